"""`onym batch`: a file of requests in, a file of results out, each row answered exactly once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from onym.cli import exit_codes
from onym.cli._input import pass_session, uri_argument
from onym.cli._llm_client import CallOptions, call_options, resolve_call, show_warnings_as_notes
from onym.cli._output import Session, is_terminal
from onym.errors import OnymError, OnymWarning, UsageError

if TYPE_CHECKING:
    from onym.llm.batch import BatchReport, Progress

__all__ = ["batch_command"]


#: options that a run needs again, where they differ
_USUAL = {"concurrency": 32, "order": "input", "engine": "local", "max_errors": None, "poll": None}


@click.command("batch")
@uri_argument
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), metavar="FILE",
              help="Where the results go: JSON Lines, or Parquet where the name ends so.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1, 4096), default=32, show_default=True, metavar="N",
              help="The most requests under way at once; fewer while the server refuses some.")  # fmt: skip
@click.option("--order", type=click.Choice(["input", "completion"]), default="input", show_default=True,
              help="Results in the order of the input, there at the end; or as they come.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
              help="Ask from this process, or from every machine of a Ray cluster.")  # fmt: skip
@click.option("--provider-batch", is_flag=True,
              help="Let the provider's own batch API answer: cheaper, within a day.")  # fmt: skip
@click.option("--cancel", is_flag=True,
              help="With --provider-batch: end the batches that are there, take what they have.")  # fmt: skip
@click.option("--poll", type=click.FloatRange(0, 3600), metavar="SECONDS",
              help="With --provider-batch: the first wait between two looks (5); they grow.")  # fmt: skip
@click.option("--retry-errors", is_flag=True, help="Ask rows again that failed in a former run.")
@click.option("--max-errors", type=click.IntRange(1), metavar="N", help="Stop after N rows that failed.")
@click.option("--restart", is_flag=True, help="Throw the results of former runs away.")
@call_options
@pass_session
def batch_command(session: Session, /, source: str, output: str, **given: Any) -> None:
    """Answer every row of INPUT (JSON Lines, Parquet, or - for standard input) with the model at URI.

    A row is {"id": "a", "prompt": "..."}, or {"messages": [...], "params": {"temp": 0}, "tools": [...],
    "schema": {...}}, or a line of OpenAI's batch files. A row without an id gets its number, from 0.

    Run the same command again after a crash, Ctrl-C or a full disk: it goes on where it was. A result counts
    once it is on the disk, and its row is not asked again; those under way at that moment are. Ctrl-C waits
    for what is under way, a second one does not.

    With --provider-batch the rows go into batches at the provider, if it has an API for that. Ctrl-C leaves
    them there: the same command fetches the results later.

    A row that failed for good is a result with "status": "error"; then the exit code is 1. A wrong key or no
    quota stops the run.

    \b
    Examples:
      onym batch llm://openai/gpt-5-mini requests.jsonl -o results.jsonl
      onym batch fast requests.parquet -o results.parquet --concurrency 128
      zcat requests.jsonl.gz | onym batch fast - -o results.jsonl --order completion
      onym batch fast requests.jsonl -o results.jsonl --retry-errors
      onym batch fast requests.jsonl -o results.jsonl --provider-batch
    """
    names = ("concurrency", "order", "engine", "retry_errors", "max_errors", "restart", "cancel", "poll")
    options = {name: given.pop(name) for name in names}
    if given.pop("provider_batch"):
        _use_provider_engine(options)
    elif options["cancel"] or options["poll"] is not None:
        raise UsageError("--cancel and --poll go with --provider-batch", code="usage.command-line")
    call = CallOptions(**given)
    if source == "-" and (call.uri == "-" or call.key_stdin):
        raise UsageError("standard input gives the rows, or the URI or key", code="usage.command-line")
    again = _format_resume_command(session, call, source, output, options)
    try:
        report = _run_batch(session, call, source, output, options)
    except KeyboardInterrupt:
        session.print_error("")
        there = "; what is at the provider goes on there" if options["engine"] == "provider" else ""
        session.print_note(f"stopped{there}; to go on: {again}")
        raise
    except OnymError as error:
        if getattr(error, "endpoint", None) is not None:
            session.print_note(f"to go on: {again}")
        raise
    _print_report(session, report, again)
    if report.failed or report.left:
        raise click.exceptions.Exit(exit_codes.CHECK_FAILED)


def _use_provider_engine(options: dict[str, Any]) -> None:
    if options["engine"] != "local":
        raise UsageError("--engine and --provider-batch are two ways to go", code="usage.command-line")
    options["engine"] = "provider"


def _run_batch(
    session: Session, call: CallOptions, source: str, output: str, options: dict[str, Any]
) -> BatchReport:
    from onym.llm.batch import run

    endpoint = _resolve_endpoint(session, call)
    with show_warnings_as_notes(session), _show_warnings_once(), _watch_progress(session) as watch:
        return run(
            endpoint.pop("uri"),
            sys.stdin.buffer if source == "-" else Path(source),
            Path(output),
            watch=watch,
            **endpoint,
            **options,
        )


def _resolve_endpoint(session: Session, call: CallOptions) -> dict[str, Any]:
    """Where the rows go, as arguments of `run`."""
    found = resolve_call(session, call)
    return {
        "uri": found.uri,
        "key": found.key,
        "policy": found.policy,
        "config": found.config,
        "on_unsupported": call.on_unsupported,
        "overrides": found.overrides,
    }


def _format_resume_command(
    session: Session, call: CallOptions, source: str, output: str, options: dict[str, Any]
) -> str:
    """The command that goes on, without what only a first run needs."""
    words = ["onym", "batch", call.uri, source, "-o", output]
    provider = options["engine"] == "provider"
    words += ["--provider-batch"] if provider else []
    for name, usual in _USUAL.items():
        if options[name] != usual and not (provider and name == "engine"):
            words += [f"--{name.replace('_', '-')}", str(options[name])]
    for pair in call.params:
        words += ["-p", pair]
    words += ["--key-stdin"] if call.key_stdin else []
    words += ["--policy", call.policy] if call.policy else []
    words += ["--gguf", call.gguf] if call.gguf else []
    words += ["--on-unsupported", call.on_unsupported] if call.on_unsupported != "error" else []
    return session.mask(join(words))


@contextmanager
def _show_warnings_once() -> Iterator[None]:
    """A warning that holds for every row is told once."""
    with warnings.catch_warnings():
        warnings.simplefilter("once", OnymWarning)
        yield


@contextmanager
def _watch_progress(session: Session) -> Iterator[Callable[[Progress], object] | None]:
    """A bar on a terminal, and nothing elsewhere."""
    if session.as_json or not is_terminal(sys.stderr):
        yield None
        return
    from onym.cli._output import show_progress  # rich, for what moves

    with show_progress() as watch:
        yield watch


def _print_report(session: Session, report: BatchReport, again: str) -> None:
    session.print_record(report.as_dict())
    if session.as_json:
        return
    if report.left:
        session.print_note(f"{report.left} rows are left; to go on: {again}", kind="warning")
    if report.failed:
        session.print_note(
            f"{report.failed} of {report.rows} rows failed; to ask them again: {again} --retry-errors",
            kind="warning",
        )
    if is_terminal(sys.stderr):
        session.print_note(
            f"{report.answered} of {report.rows} rows answered, {report.input_tokens} tokens in, "
            f"{report.output_tokens} out, {report.seconds:.1f} s: {report.output}"
        )
