"""The group of commands: names and one-line helps here, modules only when one is run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from onym import errors
from onym.cli import exit_codes
from onym.cli._errors import report_error, report_unexpected
from onym.cli._output import Session

__all__ = ["COMMANDS", "OnymGroup", "app", "install_sigterm_handler"]

#: every command in the order of the help, and its one line; `commands/NAME.py` holds it as `command`
COMMANDS: dict[str, str] = {
    "chat": "Ask a model: one prompt, a pipe, or a conversation.",
    "explain": "Show what would be sent, and why. Sends nothing.",
    "ping": "Try an endpoint step by step: name, TLS, key, latency.",
    "models": "List the models of a server, show one, or fetch the embedded one.",
    "embed": "Turn texts into vectors.",
    "batch": "Answer a file of requests, each exactly once, resumable.",
    "parse": "Take a URI apart.",
    "check": "Say what is wrong with a URI, and how to mend it.",
    "normalize": "Write a URI in its one canonical spelling.",
    "build": "Make a URI from its parts.",
    "convert": "To and from what LiteLLM, LangChain and others call a model.",
    "redact": "Take credentials out of any text.",
    "ai": "ai:// names: discover, describe, invoke, verify; serve your own.",
    "gateway": "Serve ai:// resources to web users over HTTPS.",
    "scheme": "Check a scheme's template, draft or grammar: clause, place, fix.",
    "registry": "Schemes, parameters and namespaces: look up, ask for, decide, serve.",
    "cache": "The kept answers of cache=true: how many, and forget them.",
    "config": "The configuration file: where, what, is it right.",
    "completions": "Print the completion script of a shell.",
    "conformance": "Answer conformance questions, one JSON object a line.",
}

_HELP = """One string for a model: llm:// connection strings, from the command line.

\b
  onym chat llm://embedded/smollm2-135m-instruct "Say hello."
  onym chat llm://anthropic/claude-sonnet-4-5 "Say hello."   (ANTHROPIC_API_KEY)
  onym chat fast "Say hello."         (a name from your configuration)
  onym explain llm://openai/gpt-5     (sends nothing)

A URI may be given as text, as a name from your configuration (onym config init), as env:NAME for the
variable that holds it, or as - for a line of standard input.

A key is best kept out of the URI: set the provider's own variable (OPENAI_API_KEY, ...), name any
variable with ?auth=env:NAME, or pipe it to --key-stdin. `onym explain` says which one would be used.

An Ollama or other server on this machine: type its URI (llm://localhost:11434/llama3) and it is
allowed. A URI that comes from a file, a variable or a pipe needs --policy local, or
ONYM_ALLOW_LOOPBACK=1.
"""


#: seconds
_ASK_AGAIN = 2


#: command -> its module in `onym.cli.commands`, if the module has another name
_MODULES = {
    "build": "uri",
    "cache": "config",
    "completions": "config",
    "convert": "uri",
    "embed": "chat",
    "gateway": "ai.serve",
    "normalize": "uri",
    "parse": "uri",
    "ping": "explain",
    "redact": "uri",
}


class OnymGroup(click.Group):
    """A group that imports a command's module when the command runs, and answers errors in one way."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; imports its module."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"onym.cli.commands.{_MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)  # noqa: S101
        session = ctx.find_object(Session)
        if session is not None:
            session.command = cmd_name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; raises UsageError with a near one where there is none."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise errors.UsageError(
                "no such command", code="usage.command-line", hint=_suggest_command(args[0])
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands from the table, so that help imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The exit codes, and where things are written."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in exit_codes.MEANINGS.items()])
        formatter.write_paragraph()
        formatter.write_text(
            "Results go to standard output, notes and errors to standard error. With --json, standard output "
            'holds JSON alone, and an error is {"error": {...}} there. Keys are masked everywhere.'
        )

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and end by SystemExit with a documented code, whatever happens."""
        words = list(sys.argv[1:] if args is None else args)
        instruction = os.environ.get("_ONYM_COMPLETE")
        if instruction:
            from click.shell_completion import shell_complete

            sys.exit(shell_complete(self, {}, "onym", "_ONYM_COMPLETE", instruction))
        sys.exit(_run_group(self, words, extra))


def _run_group(group: OnymGroup, words: list[str], extra: dict[str, Any]) -> int:
    options = words[: words.index("--")] if "--" in words else words
    session = Session(as_json="--json" in options)
    _prepare_streams()
    try:
        code = _invoke_group(group, words, session, extra)
        sys.stdout.flush()
    except BrokenPipeError:
        return _silence_stdout(exit_codes.BROKEN_PIPE)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except OSError as error:
        return _report_lost_output(session, error)
    return code


def _invoke_group(group: OnymGroup, words: list[str], session: Session, extra: dict[str, Any]) -> int:
    try:
        with group.make_context("onym", words, obj=session, **extra) as ctx:
            group.invoke(ctx)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        # the help is the answer to a command that says too little, not the text of an error
        session.print_error(error.format_message())
        return exit_codes.USAGE
    except click.ClickException as error:
        return report_error(session, _convert_click_error(session, error))
    except errors.OnymError as error:
        return report_error(session, error)
    except (KeyboardInterrupt, click.Abort):
        sys.stdout.flush()
        # a line of its own after the terminal's ^C
        sys.stderr.write("\n")
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the last seam: no traceback reaches a person
        return report_unexpected(session, error)
    return exit_codes.OK


def _suggest_command(word: str) -> str:
    if ":" in word:
        return "put a command before the URI: onym explain URI, or onym chat URI"
    from difflib import get_close_matches

    close = get_close_matches(word, COMMANDS, n=1)
    return f"did you mean onym {close[0]}?" if close else "onym --help lists them"


def _convert_click_error(session: Session, error: click.ClickException) -> errors.UsageError:
    """click's own complaint in the shape of ours, on one line."""
    ctx = getattr(error, "ctx", None)
    if isinstance(ctx, click.Context):
        session.command = ctx.command_path.partition(" ")[2]
    return errors.UsageError(" ".join(error.format_message().split()), code="usage.command-line")


def _prepare_streams() -> None:
    """Every stream is there, and no text unprintable: what an encoding lacks is written as an escape."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Python has None where the descriptor was closed before it started
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def install_sigterm_handler() -> None:
    """SIGTERM unwinds like any exit, so that no half-written file and no child stays behind."""
    import signal
    from threading import current_thread, main_thread

    def end(*_: object) -> None:
        # Python drops what is raised inside a finalizer: if this is, the alarm asks again
        if hasattr(signal, "alarm"):
            signal.alarm(_ASK_AGAIN)
        sys.exit(exit_codes.TERMINATED)

    if current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
        if hasattr(signal, "alarm"):
            signal.signal(signal.SIGALRM, end)


def _silence_stdout(code: int) -> int:
    """Standard output is gone: point it nowhere, so that the interpreter's last flush says nothing."""
    with suppress(OSError, ValueError):  # a stand-in for standard output has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _report_lost_output(session: Session, error: OSError) -> int:
    session.as_json = False
    _silence_stdout(exit_codes.INPUT_OUTPUT)
    return report_unexpected(session, error)


@click.group(
    "onym",
    cls=OnymGroup,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    help="Show the version.",
    callback=lambda ctx, param, value: _print_version(ctx, value),
)
def app() -> None:
    """Hold the commands; the help is above."""


def _print_version(ctx: click.Context, value: bool) -> None:
    if value:
        from onym._version import __version__

        click.echo(f"onym {__version__}")
        ctx.exit()
