"""`onym batch`: answer a file of requests, each row exactly once, and resume after a stop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from onym.cli import _commands, exit_codes
from onym.cli._errors import complete_command
from onym.cli._input import uri_argument
from onym.cli._llm_client import CallOptions, call_options, resolve_call, show_warnings_as_notes
from onym.cli._output import Session, is_terminal, select_fields
from onym.errors import OnymError, UsageError

if TYPE_CHECKING:
    from onym.llm.batch import BatchReport, Progress

#: options that a resumed run needs again if they are not the default
_USUAL = {"concurrency": 32, "order": "input", "engine": "local", "max_errors": None, "poll": None}


@_commands.make_command("batch")
@uri_argument
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), metavar="FILE",
              help="The results: JSON Lines, or Parquet if the name ends in .parquet.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1, 4096), default=32, show_default=True, metavar="N",
              help="Most concurrent requests; Onym sends fewer while the server limits them.")  # fmt: skip
@click.option("--order", type=click.Choice(["input", "completion"]), default="input", show_default=True,
              help="Write results in the order of the input, at the end, or as they complete.")  # fmt: skip
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
              help="Send requests from this process, or from every machine of a Ray cluster.")  # fmt: skip
@click.option("--provider-batch", is_flag=True,
              help="Use the provider's batch API: cheaper, with results within a day.")  # fmt: skip
@click.option("--cancel", is_flag=True,
              help="With --provider-batch: cancel the batches and fetch finished results.")  # fmt: skip
@_commands.make_duration_option(
    "--poll",
    least=0.0,
    most=3600.0,
    help="With --provider-batch: the first wait between two status requests (5s).",
)
@click.option("--retry-errors", is_flag=True, help="Send rows again that failed in an earlier run.")
@click.option("--max-errors", type=click.IntRange(1), metavar="N", help="Stop after N failed rows.")
@click.option("--restart", is_flag=True, help="Discard the results of earlier runs.")
@_commands.yes_option
@call_options
@_commands.pass_session
def batch_command(session: Session, /, source: str, output: str, **arguments: Any) -> None:
    """Answer a file of requests, and resume after a stop.

    INPUT is a JSON Lines or Parquet file, or - for standard input.

    A row is {"id": "a", "prompt": "..."}, or {"messages": [...], "params": {"temp": 0}, "tools": [...],
    "schema": {...}}, or a line of OpenAI's batch files. A row without an id gets its number, from 0.

    To resume after a crash, Ctrl-C or a full disk, run the same command again. Rows whose results are on the
    disk are not sent again; rows that were in progress are. The first Ctrl-C waits for requests in progress,
    the second one does not.

    With --provider-batch the rows go to the provider's batch API, if it has one. Ctrl-C leaves the batches
    there; the same command fetches the results later.

    A row that failed permanently is a result with "status": "error", and the exit code is 1. An invalid key
    or an exhausted quota stops the run.

    \b
    Examples:
      onym batch llm://openai/gpt-5.4-mini requests.jsonl -o results.jsonl
      onym batch fast requests.parquet -o results.parquet --concurrency 128
      zcat rows.jsonl.gz | onym batch fast - -o results.jsonl --order completion
      onym batch fast requests.jsonl -o results.jsonl --retry-errors
      onym batch fast requests.jsonl -o results.jsonl --provider-batch
    """
    yes = arguments.pop("yes")
    names = ("concurrency", "order", "engine", "retry_errors", "max_errors", "restart", "cancel", "poll")
    options = {name: arguments.pop(name) for name in names}
    if arguments.pop("provider_batch"):
        if options["engine"] != "local":
            message = "--engine ray and --provider-batch cannot be combined"
            raise UsageError(message, code="usage.command-line")
        options["engine"] = "provider"
    elif options["cancel"] or options["poll"] is not None:
        raise UsageError("--cancel and --poll need --provider-batch", code="usage.command-line")
    call = CallOptions(**arguments)
    if source == "-" and (call.uri == "-" or call.key_stdin):
        raise UsageError(
            "standard input cannot give the rows and also the URI or the key", code="usage.command-line"
        )
    _confirm_run(session, output, options, yes=yes)
    again = _format_resume_command(session, call, source, output, options)
    try:
        report = _run_batch(session, call, source, output, options)
    except KeyboardInterrupt:
        session.print_error("")
        there = "; the batches at the provider continue" if options["engine"] == "provider" else ""
        session.print_note(f"stopped{there}; to resume, run: {again}")
        raise
    except OnymError as error:
        if getattr(error, "endpoint", None) is not None:
            session.print_note(f"to resume, run: {again}")
        raise
    _print_report(session, report, again)
    if report.failed or report.left:
        raise click.exceptions.Exit(exit_codes.CHECK_FAILED)


def _confirm_run(session: Session, output: str, options: dict[str, Any], *, yes: bool) -> None:
    """Ask before results are discarded or batches are cancelled."""
    if options["restart"] and Path(output).exists():
        _commands.confirm_action(session, f"Discard the results of earlier runs in {output}?", yes=yes)
    if options["cancel"]:
        _commands.confirm_action(session, "Cancel the batches at the provider?", yes=yes)


def _run_batch(
    session: Session, call: CallOptions, source: str, output: str, options: dict[str, Any]
) -> BatchReport:
    from onym.llm.batch import run

    resolved = resolve_call(session, call)
    # a warning is printed once, even if it applies to every row
    with show_warnings_as_notes(session, "once"), _watch_progress(session) as watch:
        return run(
            resolved.uri,
            sys.stdin.buffer if source == "-" else Path(source),
            Path(output),
            watch=watch,
            on_unsupported=call.on_unsupported,
            **select_fields(resolved, "key", "network", "config", "overrides", "environ"),
            **options,
        )


def _format_resume_command(
    session: Session, call: CallOptions, source: str, output: str, options: dict[str, Any]
) -> str:
    """Return the command that resumes the run, without the options of the first run."""
    words = ["onym", "batch", call.uri, source, "-o", output]
    provider = options["engine"] == "provider"
    words += ["--provider-batch"] if provider else []
    for name, usual in _USUAL.items():
        if options[name] != usual and not (provider and name == "engine"):
            text = _commands.format_duration(options[name]) if name == "poll" else str(options[name])
            words += [f"--{name.replace('_', '-')}", text]
    # the options of the call are those that the user gave
    return session.mask(complete_command(session, join(words)))


@contextmanager
def _watch_progress(session: Session) -> Iterator[Callable[[Progress], object] | None]:
    """Show a bar on a terminal."""
    if session.as_json or not is_terminal(sys.stderr):
        yield None
        return
    from onym.cli._output import show_progress  # late: rich is needed only on a terminal

    with show_progress() as watch:
        yield watch


def _print_report(session: Session, report: BatchReport, again: str) -> None:
    session.print_record(report.as_dict())
    if session.as_json:
        return
    if report.left:
        session.print_note(f"{report.left} rows remain; to resume, run: {again}", kind="warning")
    if report.failed:
        failed = f"{report.failed} of {report.rows} rows failed"
        if report.error is not None:
            hint = f" ({report.error['hint']})" if "hint" in report.error else ""
            failed += f"; the first: {report.error['message']}{hint} [{report.error['code']}]"
        if report.error is not None and report.error["code"] == "usage.bad-row":
            step = f"correct the rows, then start again with: {again} --restart"
        else:
            step = f"to send them again, run: {again} --retry-errors"
        session.print_note(f"{failed}; {step}", kind="warning")
    if is_terminal(sys.stderr):
        session.print_note(
            f"{report.answered} of {report.rows} rows answered, {report.input_tokens} tokens in, "
            f"{report.output_tokens} out, {report.seconds:.1f} s: {report.output}"
        )
