"""The group of all commands. A command's module is imported only when the command runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from time import monotonic
from typing import Any

import click

from onym import errors
from onym.cli import exit_codes
from onym.cli._commands import OrderedGroup
from onym.cli._errors import report_error, report_unexpected
from onym.cli._output import Session, discard_stream

#: the commands by subject, in the order of the help, each with its first line
GROUPS: dict[str, dict[str, str]] = {
    "Call models": {
        "chat": "Send a prompt to a model, or hold a conversation.",
        "embed": "Turn texts into vectors.",
        "batch": "Answer a file of requests, and resume after a stop.",
        "explain": "Show the request that Onym would send. Sends nothing.",
        "ping": "Test an endpoint step by step.",
        "models": "List the models of a server, or fetch the embedded model.",
        "cache": "Inspect and clear the response cache.",
    },
    "URIs": {
        "parse": "Split a URI into its parts.",
        "check": "Check URIs and suggest corrections.",
        "normalize": "Print URIs in canonical form.",
        "build": "Build a URI from its parts.",
        "convert": "Convert between URIs and the model names of other tools.",
        "redact": "Remove credentials from text.",
    },
    "ai:// resources": {
        "ai": "Find, invoke, verify and serve ai:// resources.",
    },
    "Registry": {
        "registry": "Look up registry entries, request changes, run a registry.",
        "scheme": "Check URI scheme definitions and test their grammar.",
    },
    "More": {
        "config": "Find, show, check or create the configuration file.",
        "completions": "Print the completion script of a shell.",
        "conformance": "Answer conformance questions, one JSON object per line.",
        "help": "Explain a command or a topic, such as exit codes.",
    },
}
#: every command in the order of the help, with its first line
COMMANDS: dict[str, str] = {name: line for group in GROUPS.values() for name, line in group.items()}

_HELP = """Call AI models and agents by URI.

\b
  onym chat llm://openai/gpt-5.5 "Say hello."          (OPENAI_API_KEY)
  onym chat llm://localhost:11434/llama3 "Say hello."  (Ollama)
  onym explain llm://openai/gpt-5.5                    (sends nothing)
"""
#: the list of commands of `onym --help`; `onym help commands` has the long one
_SHORT_LIST = (
    ("Call models", ", ".join(GROUPS["Call models"])),
    ("URIs", ", ".join(GROUPS["URIs"])),
    ("ai://", "ai discover, ai invoke, ai verify, ai serve, ai gateway, ..."),
    ("Registry", "registry show, registry submit, registry serve, scheme, ..."),
    ("More", ", ".join(GROUPS["More"])),
)


#: seconds until SIGTERM is repeated
_ASK_AGAIN = 2


#: command -> its module in `onym.cli.commands`, if the module has another name
_MODULES = {
    "build": "uri",
    "cache": "config",
    "completions": "config",
    "convert": "uri",
    "embed": "chat",
    "explain": "endpoint",
    "help": "config",
    "models": "endpoint",
    "normalize": "uri",
    "parse": "uri",
    "ping": "endpoint",
    "redact": "uri",
}


#: the advice at the end of a message of click, and the words with which its messages begin
_ADVICE = re.compile(r" \(?(Did you mean .*\?|Choose from: .*|Possible options: [^)]*)\)?$")
_CLICK_WORDS = ("Missing ", "No such ", "Invalid value", "Got ", "Option ")

#: words for a command that other programs use, and what to run instead
_SYNONYMS = {"ask": "chat", "prompt": "chat", "run": "chat", "version": "--version"}
#: the groups whose commands are suggested for a word that is not a command: `verify`, `serve`
_SEARCHED = ("ai", "models", "config", "registry", "scheme")


class OnymGroup(OrderedGroup):
    """A group that imports a command's module when the command runs, and reports all errors in one way."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first word. Raises UsageError that suggests a command before a URI."""
        if ":" in args[0]:
            raise errors.UsageError(
                f'"{args[0]}" is not a command of onym',
                code="usage.command-line",
                hint="put a command before the URI, such as onym explain URI or onym chat URI",
            )
        return super().resolve_command(ctx, args)

    def suggest_command(self, group: str, word: str, names: Iterable[str]) -> str:
        """Return the hint for an unknown word: a similar command, or commands of groups with that name."""
        meant = [_SYNONYMS[word]] if word in _SYNONYMS else []
        for name in _SEARCHED:
            # not the context of this run: it would take the name as that of the running command
            found = self.get_command(click.Context(self), name)
            if isinstance(found, click.Group) and word in found.commands:
                meant.append(f"{name} {word}")
        if not meant:
            return super().suggest_command(group, word, names)
        return f"did you mean {' or '.join(f'{group} {command}' for command in meant)}?"

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every command, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return the command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"onym.cli.commands.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        session = ctx.find_object(Session)
        if session is not None:
            session.command = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the commands by subject, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(_SHORT_LIST)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write where to go on."""
        formatter.write_paragraph()
        formatter.write_text(
            "Examples of a command: onym COMMAND --help. All commands: onym help commands. "
            "URIs and keys: onym help uris. More topics: onym help."
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
        """Run a command. Always ends by SystemExit with a documented code."""
        words = list(sys.argv[1:] if args is None else args)
        instruction = os.environ.get("_ONYM_COMPLETE")
        if instruction:
            from click.shell_completion import shell_complete

            sys.exit(shell_complete(self, {}, "onym", "_ONYM_COMPLETE", instruction))
        sys.exit(_run_group(self, words, extra))


def _run_group(group: OnymGroup, words: list[str], extra: dict[str, Any]) -> int:
    options = words[: words.index("--")] if "--" in words else words
    # also for errors in the command line, which click finds before it reads the options
    session = Session(as_json="--json" in options, words=words)
    started = monotonic()
    try:
        _prepare_streams()
        code = _invoke_group(group, list(words), session, extra)
        session.print_detail("time", f"{monotonic() - started:.3f} s, exit code {code}")
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stream(sys.stdout)
        return exit_codes.BROKEN_PIPE
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
        # the user asked for too little: the help is the answer, so it is not formatted as an error
        session.print_error(error.format_message())
        return exit_codes.USAGE
    except click.ClickException as error:
        return report_error(session, _convert_click_error(session, error))
    except errors.OnymError as error:
        return report_error(session, error)
    except (KeyboardInterrupt, click.Abort):
        session.print_error("")  # the terminal has printed ^C on this line
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the last place to keep a traceback from the user
        return report_unexpected(session, error)
    return exit_codes.OK


def _convert_click_error(session: Session, error: click.ClickException) -> errors.UsageError:
    """Convert an error of click to a UsageError with a message of one line."""
    ctx = getattr(error, "ctx", None)
    if isinstance(ctx, click.Context):
        session.command = ctx.command_path.partition(" ")[2]
    message, hint = _split_message(" ".join(error.format_message().split()))
    calls = isinstance(ctx, click.Context) and any(param.name == "params" for param in ctx.command.params)
    if calls and isinstance(error, click.NoSuchOption):
        # better than an option that is only spelled alike
        hint = _explain_parameter(error.option_name) or hint
    elif calls and isinstance(error, click.MissingParameter) and error.param and error.param.name == "uri":
        hint = "write an llm:// URI or the name of an endpoint first, such as llm://openai/gpt-5.5"
    return errors.UsageError(message, code="usage.command-line", hint=hint)


def _split_message(text: str) -> tuple[str, str | None]:
    """Split a message of click into the error and the advice at its end, in the style of other messages."""
    found = _ADVICE.search(text)
    message = (text if found is None else text[: found.start()]).rstrip(".")
    if message.startswith(_CLICK_WORDS):
        message = message[0].lower() + message[1:]
    return message, None if found is None else found[1][0].lower() + found[1][1:]


def _explain_parameter(option: str) -> str | None:
    """Return how to set what other programs have as an option, such as --temperature, in a URI or with -p."""
    from onym.uri.parameters import PROVIDER_NAMES, WELL_KNOWN  # late: only this mistake needs them

    name = option.lstrip("-").replace("-", "_").lower()
    if name in ("m", "model"):
        return "the model is part of the URI, as in llm://openai/gpt-5.5"
    if name in ("image", "attach", "attachment"):
        return "onym chat sends text only; in Python, add an onym.ImagePart to the message"
    name = PROVIDER_NAMES.get(name, name)
    if name not in WELL_KNOWN:
        return None
    value = "MILLISECONDS" if name == "timeout" else "VALUE"
    return f"{name} is a parameter: use -p {name}={value}, or put ?{name}={value} at the end of the URI"


def _prepare_streams() -> None:
    """Replace closed streams, and escape characters that the terminal's encoding does not have."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Python sets a stream to None if its descriptor was closed at the start
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole run
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def install_sigterm_handler() -> None:
    """Make SIGTERM unwind the stack like a normal exit, so that no partial file or child process remains."""
    import signal
    from threading import current_thread, main_thread

    def end(*_: object) -> None:
        # Python drops an exception that is raised inside a finalizer; the alarm then raises it again
        if hasattr(signal, "alarm"):
            signal.alarm(_ASK_AGAIN)
        sys.exit(exit_codes.TERMINATED)

    if current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
        if hasattr(signal, "alarm"):
            signal.signal(signal.SIGALRM, end)


def _report_lost_output(session: Session, error: OSError) -> int:
    session.as_json = False
    discard_stream(sys.stdout)
    return report_unexpected(session, OSError(error.errno, f"cannot write the output: {error.strerror}"))


@click.group(
    "onym",
    cls=OnymGroup,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.option("-V", "--version", is_flag=True, is_eager=True, expose_value=False, help="Show the version.",
              callback=lambda ctx, param, value: _print_version(ctx, value))  # fmt: skip
def app() -> None:
    """Run the commands; `_HELP` is the help text."""


def _print_version(ctx: click.Context, value: bool) -> None:
    if value:
        from onym import __version__

        click.echo(f"onym {__version__}")
        ctx.exit()
