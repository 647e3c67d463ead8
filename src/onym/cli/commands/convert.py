"""`onym convert`: what other tools call a model, to llm:// URIs and back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onym.cli._input import find_subject, stdin_text, to_uri, user_providers
from onym.cli._options import json_option
from onym.cli._output import Session, dumps
from onym.cli._text import printable
from onym.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onym.llm.convert import Conversion, Note, Written

__all__ = ["command"]

_SOURCES = ("env", "litellm", "langchain", "ai-sdk", "llm-strings")
_TARGETS = ("env", "litellm", "langchain", "ai-sdk")


@click.command("convert")
@click.option("--from", "source", type=click.Choice(_SOURCES), help="What TEXT is; the result is a URI.")
@click.option("--to", "target", type=click.Choice(_TARGETS), help="What to write the URI as.")
@click.argument("text", required=False, metavar="[TEXT]")
@click.option("--model", metavar="NAME", help="With --from env: the model, where no variable names one.")
@click.option("--with-key", is_flag=True, help="Copy a key that stands in the source, instead of a note.")
@json_option
@click.pass_obj
def command(session: Session, /, **given: Any) -> None:
    """Convert between llm:// URIs and the names that other tools have for the same model.

    With --from, TEXT is a file of LiteLLM (a configuration or model_list, YAML or JSON; - is standard
    input), a LangChain name (openai:gpt-5), an id of the Vercel AI SDK (anthropic/claude-sonnet-4.5 or
    openai:gpt-5) or a URI written for npm's llm-strings. --from env reads the environment. With --to, TEXT
    is an llm:// URI.

    What has no place in the other form is said in a note. A key is pointed at (auth=env:NAME), never copied,
    unless --with-key says so.

    \b
    Examples:
      onym convert --from env
      onym convert --from litellm config.yaml
      onym convert --from langchain anthropic:claude-sonnet-4-5
      onym convert --to litellm 'llm://openai/gpt-5?max_tokens=500'
      onym convert --to env llm://localhost:8000/Qwen/Qwen3-8B
    """
    if (given["source"] is None) is (given["target"] is None):
        raise UsageError("give one of --from and --to", code="usage.command-line", hint=_direction(given))
    if given["target"] is not None:
        _write(session, given)
    else:
        _read(session, given)


def _direction(given: dict[str, Any]) -> str:
    """What was probably meant, by the look of the text."""
    text = given["text"] or ""
    if text.startswith("llm://"):
        return f"--to writes a URI as something else: {', '.join(_TARGETS)}"
    return f"--from makes a URI of something else: {', '.join(_SOURCES)}"


def _read(session: Session, given: dict[str, Any]) -> None:
    found = _converted(given)
    _notes(session, found.notes)
    reveal = given["with_key"]
    session.record(
        {
            "uris": [{"name": name, "uri": uri.render(reveal=reveal)} for name, uri in found.found],
            "notes": _plain(found.notes),
        }
    )
    if any(name for name, _ in found.found):
        session.table(
            [(name or "", uri.render(reveal=reveal)) for name, uri in found.found], styles=("name",)
        )
    else:
        for uri in found.uris:
            session.say(printable(uri.render(reveal=reveal)))
    if not found.found and not session.as_json:
        session.note("nothing here names a model")


def _converted(given: dict[str, Any]) -> Conversion:
    from onym.llm import convert

    source, text, with_key = given["source"], given["text"], given["with_key"]
    if source == "env":
        if text is not None:
            raise UsageError("--from env reads the environment, and takes no text", code="usage.command-line")
        return convert.from_env(
            os.environ, model=given["model"], with_key=with_key, providers=user_providers()
        )
    if text is None:
        raise UsageError(f"--from {source} needs a text", code="usage.command-line")
    if text.startswith("llm://") and source != "llm-strings":
        raise UsageError(
            "that is an llm URI already",
            code="usage.command-line",
            hint="--to writes it as something else; --from llm-strings is for those of npm's llm-strings",
        )
    if source == "litellm":
        return convert.from_litellm(
            convert.load_models(_file(text)), with_key=with_key, providers=user_providers()
        )
    if source == "langchain":
        return convert.from_langchain(text)
    if source == "ai-sdk":
        return convert.from_ai_sdk(text)
    return convert.from_llm_strings(text, environ=os.environ, with_key=with_key)


def _file(name: str) -> str:
    if name == "-":
        return stdin_text()
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}", code="usage.file") from None
    except ValueError:
        raise UsageError(f"cannot read {name}: it is not UTF-8 text", code="usage.file") from None


def _write(session: Session, given: dict[str, Any]) -> None:
    if given["text"] is None:
        raise UsageError("--to needs a URI", code="usage.command-line")
    written = _written(given["target"], to_uri(find_subject(session, given["text"])), given["with_key"])
    _notes(session, written.notes)
    session.record({"value": written.value, "notes": _plain(written.notes)})
    if given["target"] == "env":
        for name, value in written.value.items():
            session.say(f"{name}={_quoted(str(value))}")
    else:
        session.say(dumps(written.value, indent=2))


def _written(target: str, uri: Any, with_key: bool) -> Written:
    from onym.llm import convert

    if target == "ai-sdk":
        return convert.to_ai_sdk(uri, providers=user_providers())
    write = {"env": convert.to_env, "litellm": convert.to_litellm, "langchain": convert.to_langchain}[target]
    return write(uri, with_key=with_key, providers=user_providers())


def _quoted(value: str) -> str:
    """The value as a shell and most readers of .env files take it."""
    from shlex import quote

    return quote(value)


def _notes(session: Session, notes: Iterable[Note]) -> None:
    sys.stdout.flush()
    for note in notes:
        session.note(str(note))


def _plain(notes: Iterable[Note]) -> list[dict[str, str]]:
    return [note._asdict() for note in notes]
