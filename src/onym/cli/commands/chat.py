"""`onym chat` and `onym embed`: send prompts, hold conversations, and turn texts into vectors.

Answers go to the screen, a pipe, a file or JSON, complete or streamed. The line history of conversations is
readable only by its owner.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from onym.cli._commands import make_command, pass_session
from onym.cli._errors import format_error
from onym.cli._input import format_config_path, read_lines, read_stdin, read_text_file, uri_argument
from onym.cli._llm_client import CallOptions, ConnectedCall, call_options, open_client
from onym.cli._output import (
    Session,
    encode_json,
    escape_controls,
    is_terminal,
    replace_text_file,
    select_fields,
)
from onym.common.text import escape_unprintable
from onym.errors import ConfigError, OnymError, UsageError
from onym.llm.types import Completion, Event, Finish, Message, ReasoningDelta, TextDelta, ToolCallDelta, Usage

if TYPE_CHECKING:
    from onym.llm.client import Client
    from onym.llm.endpoint import Endpoint

#: writes a piece of output; line ends are included
Writer = Callable[[str], object]

_WHY = {
    "length": "the answer was cut at the token limit (max_tokens)",
    "content_filter": "the provider's content filter cut the answer",
}


def write_screen(text: str) -> None:
    """Write text to standard output at once; on a terminal its control characters are escaped."""
    sys.stdout.write(escape_controls(text) if is_terminal(sys.stdout) else text)
    sys.stdout.flush()


def _open_output(file: str | None) -> AbstractContextManager[Writer]:
    """The writer to standard output, or to a file that is replaced only if the block ends well."""
    return nullcontext(write_screen) if file is None else replace_text_file(Path(file))


def write_text_stream(events: Iterable[Event], write: Writer) -> str:
    """Write text deltas as they arrive, end the line, and return the whole text."""
    pieces: list[str] = []
    for event in events:
        if isinstance(event, TextDelta):
            pieces.append(event.text)
            write(event.text)
    text = "".join(pieces)
    if not text.endswith("\n"):
        write("\n")
    return text


def write_json_stream(events: Iterable[Event], write: Writer) -> None:
    """Write each event as one JSON line."""
    for event in events:
        write(encode_json(build_event_record(event)) + "\n")


def build_event_record(event: Event) -> dict[str, Any]:
    """Return one streamed event as plain data; `type` names its kind."""
    if isinstance(event, TextDelta):
        return {"type": "text", "text": event.text}
    if isinstance(event, ReasoningDelta):
        return {"type": "reasoning", "text": event.text}
    if isinstance(event, ToolCallDelta):
        custom = {"custom": True} if event.custom else {}
        return {"type": "tool_call", **select_fields(event, "index", "id", "name", "arguments"), **custom}
    body = {"finish_reason": event.reason, **select_fields(event, "model", "request_id")}
    if event.refusal is not None:
        body["refusal"] = event.refusal
    return {"type": "finish", **body, "usage": build_usage_record(event.usage)}


def build_completion_record(completion: Completion) -> dict[str, Any]:
    """Return a complete answer as plain data."""
    return {
        **select_fields(completion, "text", "model", "finish_reason", "reasoning"),
        "tool_calls": [call.as_dict() for call in completion.tool_calls],
        "request_id": completion.request_id,
        "usage": build_usage_record(completion.usage),
        **({} if completion.refusal is None else {"refusal": completion.refusal}),
    }


def build_cost_record(usage: Usage, endpoint: Endpoint) -> dict[str, str] | None:
    """Return the cost of the tokens at list price; null if the price is not known."""
    from onym.llm.prices import cost  # late: reads a file that no other output needs

    price = cost(usage, endpoint.provider.name, endpoint.model)
    if price is None:
        return None
    return {
        "amount": f"{price.amount:f}",
        **select_fields(price, "currency", "source"),
        "checked": price.checked.isoformat(),
    }


def build_usage_record(usage: Usage) -> dict[str, int | None]:
    """Return token counts by name; null if the server does not report them."""
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "total_tokens")
    return select_fields(usage, *names)


def format_usage(usage: Usage, began: float, request_id: str | None) -> str:
    """Return token counts, seconds since `began` and the server's request ID, on one line."""
    counts = (
        (usage.input_tokens, "tokens in"),
        (usage.output_tokens, "tokens out"),
        (usage.cached_tokens, "cached"),
        (usage.reasoning_tokens, "reasoning"),
    )
    words = [f"{count} {label}" for count, label in counts if count is not None]
    words.append(f"{monotonic() - began:.2f} s")
    if request_id is not None:
        words.append(f"request {request_id}")
    return ", ".join(words)


def print_outcome(session: Session, end: Completion | Finish, began: float, *, usage: bool) -> None:
    """Print why an answer stopped early, and with `--usage` its tokens, on standard error."""
    reason = end.finish_reason if isinstance(end, Completion) else end.reason
    if reason in _WHY:
        session.print_note(_WHY[reason], kind="warning")
    if usage:
        session.print_note(format_usage(end.usage, began, end.request_id), kind="usage")


_HELP = """\
  /reset          clear the conversation
  /system TEXT    set the system prompt and start again; without TEXT, show it
  /usage          show or hide token counts
  /help           this list
  /exit           leave (Ctrl-D too)
Ctrl-C stops an answer, or clears the line."""
_KEPT_LINES = 1000


class Conversation:
    """A conversation with one endpoint. Each turn sends all earlier messages.

    A turn that fails or is stopped is dropped, so that the next turn starts from a consistent state.
    """

    def __init__(self, client: Client, session: Session, overrides: dict[str, Any], *, usage: bool) -> None:
        self._client = client
        self._session = session
        self._overrides = overrides
        self._usage = usage
        self._turns: list[Message] = []

    def run(self) -> None:
        """Read lines until the end of the input or /exit."""
        on_terminal = is_terminal(sys.stdin)
        if on_terminal:
            self._session.print_error("/help lists the commands, Ctrl-D ends the conversation")
        while (line := self._read_line(on_terminal)) is not None:
            if line.startswith("/"):
                if not self._run_command(line):
                    return
            elif line.strip():
                self._send_turn(line)

    def _read_line(self, on_terminal: bool) -> str | None:
        try:
            return input("> " if on_terminal else "")
        except EOFError:
            if on_terminal:
                write_screen("\n")
            return None
        except KeyboardInterrupt:
            if not on_terminal:
                raise
            write_screen("\n")
            return ""

    def _run_command(self, line: str) -> bool:
        """Run a /command; return False to leave."""
        word, _, rest = line.partition(" ")
        if word in {"/exit", "/quit"}:
            return False
        if word == "/reset":
            self._turns.clear()
        elif word == "/system":
            self._set_system_prompt(rest.strip())
        elif word == "/usage":
            self._usage = not self._usage
        else:
            error = "" if word == "/help" else f"{word} is not a command; "
            self._session.print_error((error + _HELP.lstrip()) if error else _HELP)
        return True

    def _set_system_prompt(self, text: str) -> None:
        if text:
            self._overrides["system"] = text
            self._turns.clear()
        else:
            self._session.print_error(escape_unprintable(str(self._overrides.get("system", "(none)"))))

    def _send_turn(self, line: str) -> None:
        question = Message(role="user", content=line)
        began = monotonic()
        ends: list[Finish] = []
        try:
            with self._client.stream([*self._turns, question], **self._overrides) as stream:
                text = write_text_stream(_collect_finish(stream, ends), write_screen)
        except OnymError as error:
            self._session.print_error(format_error(self._session, error))
        except KeyboardInterrupt:
            write_screen("\n")
            self._session.print_note("stopped; this turn is not part of the conversation")
        else:
            self._turns += [question, Message(role="assistant", content=text)]
            for end in ends:
                print_outcome(self._session, end, began, usage=self._usage)


def _collect_finish(events: Any, ends: list[Finish]) -> Iterator[Any]:
    for event in events:
        if isinstance(event, Finish):
            ends.append(event)
        yield event


def get_history_path() -> Path:
    """Return the path of the line history, in the user's state folder."""
    from platformdirs import user_state_path

    return user_state_path("onym", appauthor=False) / "history"


@contextmanager
def keep_line_history(session: Session, path: Path) -> Iterator[None]:
    """Enable line editing with a history in `path`, which only its owner can read. Keys in it are masked.

    Without readline or a terminal, no history is kept.
    """
    readline: Any = None
    if is_terminal(sys.stdin):
        with suppress(ImportError):  # this Python may be built without it
            readline = import_module("readline")
    if readline is None:
        yield
        return
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            readline.add_history(line)
    try:
        yield
    finally:
        count = readline.get_current_history_length()
        lines = [readline.get_history_item(at) for at in range(1, count + 1)]
        lines = [session.mask(line) for line in lines if line.strip()][-_KEPT_LINES:]
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                path.chmod(0o600)
                out.writelines(line + "\n" for line in lines)


@make_command("embed")
@uri_argument
@click.argument("texts", nargs=-1)
@click.option("--batch", type=click.IntRange(1, 2048), default=64, show_default=True, metavar="N",
              help="Texts in one request.")  # fmt: skip
@click.option("--dimensions", type=click.IntRange(1), metavar="N",
              help="The length of the vectors, if the model offers a choice.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write the vectors to FILE. It is replaced only when all are there.")  # fmt: skip
@click.option("--usage", is_flag=True, help="Print the number of tokens on standard error.")
@call_options
@pass_session
def embed_command(session: Session, /, texts: tuple[str, ...], **options: Any) -> None:
    """Turn texts into vectors.

    The texts are the TEXT arguments, or the lines of standard input. The output is one JSON object per
    line, in the same order: {"index": 0, "embedding": [...]}.

    \b
    Examples:
      onym embed llm://openai/text-embedding-3-small "one text" "another"
      onym embed fast -o vectors.jsonl < lines.txt
    """
    batch, dimensions, output, usage = (
        options.pop(name) for name in ("batch", "dimensions", "output", "usage")
    )
    call = CallOptions(**options)
    if not texts and (call.uri == "-" or call.key_stdin):
        raise UsageError(
            "standard input cannot give the URI or the key and also the texts", code="usage.command-line"
        )
    with open_client(session, call) as to, _open_output(output) as write:
        if dimensions is not None:
            to.overrides["dimensions"] = dimensions
        total = _embed_texts(to, iter(texts) if texts else map(_require_utf8, read_lines()), batch, write)
    if usage:
        session.print_note(f"{total} tokens in", kind="usage")


def _embed_texts(to: ConnectedCall, texts: Iterator[str], batch: int, write: Writer) -> int:
    """Write a line for each text; return the number of tokens that the server counted."""
    index = tokens = 0
    while some := list(islice(texts, batch)):
        embeddings = to.client.embed(some, **to.overrides)
        tokens += embeddings.usage.input_tokens or 0
        for vector in embeddings.vectors:
            write(encode_json({"index": index, "embedding": list(vector)}) + "\n")
            index += 1
    if not index:
        hint = "write them after the URI, or pipe lines in"
        raise UsageError("no texts were given", code="usage.no-texts", hint=hint)
    return tokens


@make_command("chat")
@uri_argument
@click.argument("prompt", nargs=-1)
@click.option("-i", "--interactive", is_flag=True, help="Hold a conversation, with a line history.")
@click.option("-s", "--system", metavar="TEXT", help="The system prompt. Overrides the URI's.")
@click.option(
    "--schema", type=click.Path(dir_okay=False), metavar="FILE", help="A JSON Schema for the answer."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write the answer to FILE. It is replaced only when the answer is complete.")  # fmt: skip
@click.option(
    "--stream/--no-stream", default=None, help="Print the answer as it arrives. Default: only on a terminal."
)
@click.option("--usage", is_flag=True, help="Print tokens and seconds on standard error.")
@call_options
@pass_session
def chat_command(session: Session, /, prompt: tuple[str, ...], interactive: bool, **options: Any) -> None:
    """Send a prompt to a model, or hold a conversation.

    URI is an llm:// URI, the name of an endpoint in your configuration, env:NAME for the value of a
    variable, or - for a line of standard input. The prompt is the PROMPT arguments, followed by standard
    input if it is a pipe or a file.

    With --json the output is one object (text, model, finish_reason, usage, ...), with --json --stream one
    event per line. Ctrl-C stops the answer (exit code 130) and leaves no partial FILE.

    \b
    Examples:
      onym chat llm://embedded/smollm2-135m-instruct "Say hello."
      export OPENAI_API_KEY=...; onym chat llm://openai/gpt-5.5 "Say hello."
      onym chat llm://localhost:11434/llama3 -i     (Ollama on this computer)
      git diff | onym chat fast -s "Write a commit message." -o message.txt
      pass show openai | onym chat --key-stdin llm://openai/gpt-5.5 "Say hello."
    """
    output, stream, usage, system, schema = (
        options.pop(name) for name in ("output", "stream", "usage", "system", "schema")
    )
    overrides = {} if system is None else {"system": system}
    if schema is not None:
        overrides["schema"] = _read_schema(schema)
    call = CallOptions(**options)
    if interactive and (prompt or output or session.as_json):
        raise UsageError(
            "--interactive cannot be combined with a prompt, --output or --json", code="usage.command-line"
        )
    if not prompt:
        _reject_prompt_as_uri(call.uri)
    text = "" if interactive else _build_prompt(prompt, call)
    with open_client(session, call) as to:
        overrides = {**to.overrides, **overrides}
        if interactive:
            with keep_line_history(session, get_history_path()):
                Conversation(to.client, session, overrides, usage=usage).run()
            return
        if stream is False:
            overrides["stream"] = False
        elif stream is None:  # the URI decides, then the terminal
            to_terminal = output is None and is_terminal(sys.stdout)
            stream = to_terminal if to.uri.stream is None else to.uri.stream
        _run_once(session, to.client, text, overrides, output, stream=stream, usage=usage)


#: bytes of a schema file
_MAX_SCHEMA = 16 * 1024 * 1024


def _read_schema(file: str) -> dict[str, Any]:
    import json

    if file.lstrip().startswith("{"):
        raise UsageError(
            "--schema needs the name of a file, but its value is JSON",
            code="usage.schema",
            hint="write the schema to a file, such as schema.json, and pass --schema schema.json",
        )
    try:
        schema = json.loads(read_text_file(file, _MAX_SCHEMA, code="usage.schema"))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{file} is not valid JSON at {place}", code="usage.schema") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid JSON", code="usage.schema") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{file} does not contain a JSON object", code="usage.schema")
    return schema


def _reject_prompt_as_uri(word: str) -> None:
    """Raise ConfigError if the only argument is neither a URI nor an endpoint, so probably the prompt."""
    if ":" in word or "/" in word or word == "-":
        return
    from shlex import quote

    from onym.llm.config import Config

    config = Config.load()
    if word not in config.endpoints:
        raise ConfigError(
            f'"{word}" is neither a URI nor an endpoint in {format_config_path(config)}',
            code="config.no-endpoint",
            hint=f"put a URI or an endpoint before the prompt: onym chat llm://openai/gpt-5.5 {quote(word)}",
        )


def _build_prompt(words: tuple[str, ...], call: CallOptions) -> str:
    """Join the words and the piped text with a blank line. Raises UsageError without any prompt."""
    parts = [" ".join(words)]
    if call.uri != "-" and not call.key_stdin and _is_piped(only=not words):
        parts.append(_read_piped_text())
    text = "\n\n".join(part for part in parts if part)
    if not text:
        hint = "write it after the URI, pipe it in, or use -i"
        if "?" in call.uri:
            hint += "; put the URI in quotes, because the shell ends a command at &"
        raise UsageError("no prompt was given", code="usage.no-prompt", hint=hint)
    return text


def _read_piped_text() -> str:
    """Read the prompt from standard input. Raises UsageError for a picture or another binary file."""
    return _require_utf8(read_stdin()).strip("\n")


def _require_utf8(text: str) -> str:
    """Return text of standard input. Raises UsageError for bytes that are not UTF-8."""
    try:
        text.encode("utf-8")  # bytes that are not UTF-8 are lone surrogates here
    except UnicodeEncodeError as error:
        raise UsageError(
            "standard input is not UTF-8 text",
            code="usage.bad-message",
            hint="convert text with iconv; send a picture from Python, as an onym.ImagePart of a message",
        ) from error
    return text


def _is_piped(*, only: bool) -> bool:
    """Return whether standard input has text. With a prompt as argument, only a pipe or file is read."""
    if is_terminal(sys.stdin):
        return False
    if only:
        return True
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _run_once(
    session: Session,
    client: Client,
    text: str,
    overrides: dict[str, Any],
    output: str | None,
    *,
    stream: bool,
    usage: bool,
) -> None:
    began = monotonic()
    with _open_output(output) as write:
        end = (_write_stream if stream else _write_completion)(session, client, text, overrides, write)
    if end is not None:
        print_outcome(session, end, began, usage=usage)


def _write_completion(
    session: Session, client: Client, text: str, overrides: dict[str, Any], write: Writer
) -> Any:
    completion = client.chat(text, **overrides)
    if session.as_json:
        price = build_cost_record(completion.usage, client.endpoint)
        write(encode_json({**build_completion_record(completion), "cost": price}) + "\n")
    else:
        write(completion.text if completion.text.endswith("\n") else completion.text + "\n")
    return completion


def _write_stream(
    session: Session, client: Client, text: str, overrides: dict[str, Any], write: Writer
) -> Any:
    ends: list[Finish] = []
    with client.stream(text, **overrides) as events:
        writer = write_json_stream if session.as_json else write_text_stream
        writer(_collect_finish(events, ends), write)
    return ends[-1] if ends else None
