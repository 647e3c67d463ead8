"""`onym parse`, `normalize`, `build`, `convert` and `redact`: commands that work on the text of a URI.

They open no connection. Imports beyond `onym.uri` are late, because the start-up time of these commands is
measured.
"""

from __future__ import annotations

import os
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import click

from onym.cli._input import (
    URI_TYPE,
    iter_subjects,
    key_stdin_option,
    load_providers,
    param_option,
    parse_params,
    parse_subject,
    pass_session,
    read_key,
    read_text_file,
    resolve_subject,
    uri_argument,
)
from onym.cli._output import Session, Subject, encode_json, to_plain_data
from onym.common.text import escape_unprintable
from onym.errors import UsageError
from onym.uri.llm import LLMURI
from onym.uri.redact import redact, redact_stream
from onym.uri.secret import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import BufferedReader

    from onym.llm.convert import Conversion, Note, Written
    from onym.uri.generic import URI

#: bytes of a file to convert; the library has a lower limit of its own
_MAX_MODELS = 64 * 1024 * 1024
_NAMES = ("scheme", "authority", "userinfo", "host", "host_type", "port", "path", "query", "fragment")


def mask_parts(uri: URI) -> dict[str, str | None]:
    """Return the components as written, with userinfo after the first colon and named keys masked."""
    return {name: _mask_part(name, getattr(uri, name)) for name in _NAMES}


def mask_uri(uri: URI) -> str:
    """Join the masked parts to the complete text (RFC 3986 5.3)."""
    parts = mask_parts(uri)
    marks = (("scheme", "", ":"), ("authority", "//", ""), ("path", "", ""), ("query", "?", ""))
    return "".join(
        f"{before}{parts[name]}{after}"
        for name, before, after in (*marks, ("fragment", "#", ""))
        if parts[name] is not None
    )


def _mask_part(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if name == "authority":
        user, at, host = value.rpartition("@")
        return _mask_userinfo(user) + at + host
    if name == "userinfo":
        return _mask_userinfo(value)
    if name in ("query", "fragment"):
        # whether name=value is a key depends on the text before it
        return redact(f"?{value}")[1:]
    return redact(value)


def _mask_userinfo(userinfo: str) -> str:
    user, colon, _ = userinfo.partition(":")
    return f"{user}:{MARK}" if colon else userinfo


Parts = dict[str, Any]


@click.command("parse")
@uri_argument
@click.option("--strict", is_flag=True, help="Reject everything that the draft forbids.")
@click.option(
    "--as",
    "kind",
    type=click.Choice(["llm", "ai", "uri"]),
    help="Parse as an llm or ai URI, or as any URI reference of RFC 3986. Default: by the scheme.",
)
@pass_session
def parse_command(session: Session, uri: str, strict: bool, kind: str | None) -> None:
    """Split a URI into its parts: host, port, model, label and typed parameters. The key is shown as ***.

    \b
    Examples:
      onym parse 'llm://api.openai.com/gpt-5?temp=0.7&max_tokens=1500'
      onym parse --json fast                        (a name from your configuration)
      onym parse --as uri 'https://example.org/a?b'
    """
    subject = resolve_subject(session, uri)
    reader = {"llm": _parse_llm, "ai": _parse_ai, "uri": _parse_generic}[kind or _detect_kind(subject.text)]
    parts = reader(subject, strict)
    session.print_record(parts)
    _print_parts(session, parts)


def _detect_kind(text: str) -> str:
    return "ai" if text[:3].lower() == "ai:" else "llm"


def _parse_llm(subject: Subject, strict: bool) -> Parts:
    uri = parse_subject(subject, strict=strict)
    return {
        "uri": str(uri),
        "scheme": "llm",
        "label": uri.label,
        "key": None if uri.key is None else str(uri.key),
        "host": uri.host,
        "host_type": uri.host_type,
        "port": uri.port,
        "effective_port": uri.effective_port,
        "model": uri.model,
        "params": to_plain_data(uri.params),
        "fragment": uri.fragment,
    }


def _parse_ai(subject: Subject, strict: bool) -> Parts:
    from onym.uri.ai import AIURI

    uri = AIURI.parse(subject.text)
    names = ("authority", "host", "port", "path", "query", "fragment")
    return {"uri": str(uri), "scheme": "ai", **{name: getattr(uri, name) for name in names}}


def _parse_generic(subject: Subject, strict: bool) -> Parts:
    from onym.uri.generic import URI

    uri = URI.parse(subject.text)
    return {"uri": mask_uri(uri), **mask_parts(uri)}


def _print_parts(session: Session, parts: Parts) -> None:
    rows: list[tuple[str, str]] = []
    for name, value in parts.items():
        if name == "params":
            rows.extend((f"  {key}", _format_typed(item)) for key, item in value.items())
        elif value is not None:
            rows.append((name.replace("_", " "), str(value)))
    session.print_table(rows, styles=("dim",))


def _format_typed(value: object) -> str:
    kind = {bool: "boolean", int: "integer", float: "number", str: "text"}.get(type(value), "JSON")
    return f"{value if isinstance(value, str) else encode_json(value)}  ({kind})"


@click.command("normalize")
@click.argument("uris", nargs=-1, required=True, type=URI_TYPE, metavar="URI...")
@click.option("--generic", is_flag=True, help="Use only the rules of RFC 3986, for a URI of any scheme.")
@click.option("--reveal", is_flag=True, help="Print the key instead of ***.")
@pass_session
def normalize_command(session: Session, uris: tuple[str, ...], generic: bool, reveal: bool) -> None:
    """Print URIs in canonical form, in which equal endpoints have equal text.

    Aliases become host names (openai becomes api.openai.com), case and percent-encoding are normalized, and
    default ports are removed. - reads the lines of standard input. With --json, one object per line.

    \b
    Examples:
      onym normalize 'LLM://OpenAI/gpt%2d5?temp=0.70'
      onym normalize ai://Factory.example:443/agent/x
      onym normalize --generic 'HTTP://Example.ORG/%7ea/./b'
    """
    for subject in iter_subjects(session, uris):
        if generic:
            text = _normalize_generic(subject.text, reveal)
        elif subject.text[:3].lower() == "ai:":
            text = _normalize_ai(subject.text)
        else:
            text = _normalize_llm(parse_subject(subject), reveal)
        if session.as_json:
            session.print_json_line({"uri": text})
        else:
            session.print_line(escape_unprintable(text))


def _normalize_llm(uri: LLMURI, reveal: bool) -> str:
    from onym.llm.providers import normalize

    return normalize(uri).render(reveal=reveal)


def _normalize_ai(text: str) -> str:
    from onym.uri.ai import AIURI

    return str(AIURI.parse(text).target)


def _normalize_generic(text: str, reveal: bool) -> str:
    from onym.uri import generic

    uri = generic.URI.parse(text).normalize()
    return str(uri) if reveal else mask_uri(uri)


@click.command("build")
@click.option("--host", metavar="HOST", help="The server's host name or address.")
@click.option(
    "--provider",
    metavar="WORD",
    help="Use a provider instead of --host: openai, anthropic, ollama, embedded, ...",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="The port, if it is not the server's default.",
)
@click.option("--model", required=True, metavar="NAME", help="The model; / separates path segments.")
@click.option("--label", metavar="TEXT", help="The app label: your application, project or organisation.")
@key_stdin_option
@click.option("--key-env", metavar="NAME", help="The variable that contains the API key: auth=env:NAME.")
@param_option
@click.option("--profile", metavar="NAME", help="A profile of the configuration file (the fragment).")
@click.option("--reveal", is_flag=True, help="Print the key instead of ***.")
@pass_session
def build_command(session: Session, /, **given: Any) -> None:
    """Build a URI from its parts. Special characters are percent-encoded, so the result is always valid.

    \b
    Examples:
      onym build --provider openai --model gpt-5 -p temp=0.2 --key-env OPENAI_API_KEY
      onym build --host localhost --port 8080 --model qwen/qwen3:8b
      pass show openai | onym build --provider openai --model gpt-5 --key-stdin --reveal
    """
    uri = _build_uri(session, given)
    text = uri.render(reveal=given["reveal"])
    session.print_line(text)
    session.print_record({"uri": text})
    if uri.key is not None and not given["reveal"]:
        session.print_note("the key is shown as ***; use --reveal to print it")


def _build_uri(session: Session, given: dict[str, Any]) -> LLMURI:
    if (given["host"] is None) is (given["provider"] is None):
        raise UsageError("give either --host or --provider", code="usage.command-line")
    if given["key_stdin"] and given["key_env"]:
        raise UsageError("give either --key-stdin or --key-env", code="usage.command-line")
    params = dict(parse_params(given["params"]))
    if given["key_env"]:
        params["auth"] = f"env:{given['key_env']}"
    return LLMURI.build(
        _get_host(given),
        model=given["model"],
        label=given["label"],
        key=read_key(session) if given["key_stdin"] else None,
        port=given["port"],
        params=params,
        fragment=given["profile"],
    )


def _get_host(given: dict[str, Any]) -> str:
    if given["host"] is not None:
        return str(given["host"])
    from onym.llm.providers import ProviderTable, format_suggestion

    table = ProviderTable.builtin()
    row = table.find_alias(given["provider"])
    if row is None or row.host is None:
        raise UsageError(
            f'there is no provider "{given["provider"]}"',
            code="usage.provider",
            hint=format_suggestion(given["provider"], table.aliases()) or "name the server with --host",
        )
    return row.host


_SOURCES = ("env", "litellm", "langchain", "ai-sdk", "llm-strings")
_TARGETS = ("env", "litellm", "langchain", "ai-sdk")


@click.command("convert")
@click.option(
    "--from", "source", type=click.Choice(_SOURCES), help="The format of TEXT; the result is a URI."
)
@click.option("--to", "target", type=click.Choice(_TARGETS), help="The format to convert the URI to.")
@click.argument("text", required=False, metavar="[TEXT]")
@click.option("--model", metavar="NAME", help="With --from env: the model, if no variable names one.")
@click.option("--with-key", is_flag=True, help="Copy an API key from the source. Default: print a note.")
@pass_session
def convert_command(session: Session, /, **given: Any) -> None:
    """Convert between llm:// URIs and the model names of other tools.

    With --from, TEXT is a LiteLLM file (a configuration or model_list in YAML or JSON; - reads standard
    input), a LangChain name (openai:gpt-5), an ID of the Vercel AI SDK (anthropic/claude-sonnet-4.5 or
    openai:gpt-5) or a URI of npm's llm-strings. --from env reads the environment. With --to, TEXT is an
    llm:// URI.

    A note is printed for each setting that the other format cannot express. A key is replaced by a reference
    (auth=env:NAME) unless you add --with-key.

    \b
    Examples:
      onym convert --from env
      onym convert --from litellm config.yaml
      onym convert --from langchain anthropic:claude-sonnet-4-5
      onym convert --to litellm 'llm://openai/gpt-5?max_tokens=500'
      onym convert --to env llm://localhost:8000/Qwen/Qwen3-8B
    """
    if (given["source"] is None) is (given["target"] is None):
        raise UsageError(
            "give either --from or --to", code="usage.command-line", hint=_suggest_direction(given)
        )
    if given["target"] is not None:
        _convert_to(session, given)
    else:
        _convert_from(session, given)


def _suggest_direction(given: dict[str, Any]) -> str:
    """Suggest --from or --to, by the form of the text."""
    text = given["text"] or ""
    if text.startswith("llm://"):
        return f"use --to to convert a URI to another format: {', '.join(_TARGETS)}"
    return f"use --from to convert another format to a URI: {', '.join(_SOURCES)}"


def _convert_from(session: Session, given: dict[str, Any]) -> None:
    found = _convert_text(given)
    _print_notes(session, found.notes)
    reveal = given["with_key"]
    session.print_record(
        {
            "uris": [{"name": name, "uri": uri.render(reveal=reveal)} for name, uri in found.found],
            "notes": _build_note_records(found.notes),
        }
    )
    if any(name for name, _ in found.found):
        session.print_table(
            [(name or "", uri.render(reveal=reveal)) for name, uri in found.found], styles=("name",)
        )
    else:
        for uri in found.uris:
            session.print_line(escape_unprintable(uri.render(reveal=reveal)))
    if not found.found and not session.as_json:
        session.print_note("the source names no model")


def _convert_text(given: dict[str, Any]) -> Conversion:
    from onym.llm import convert

    source, text, with_key = given["source"], given["text"], given["with_key"]
    if source == "env":
        if text is not None:
            raise UsageError("--from env reads the environment; remove the text", code="usage.command-line")
        return convert.from_env(
            os.environ, model=given["model"], with_key=with_key, providers=load_providers()
        )
    if text is None:
        raise UsageError(f"--from {source} needs a text to convert", code="usage.command-line")
    if text.startswith("llm://") and source != "llm-strings":
        raise UsageError(
            "the text is already an llm URI",
            code="usage.command-line",
            hint="use --to for another format, or --from llm-strings for a URI of npm's llm-strings",
        )
    if source == "litellm":
        return convert.from_litellm(
            convert.load_models(read_text_file(text, _MAX_MODELS, code="usage.file")),
            with_key=with_key,
            providers=load_providers(),
        )
    if source == "langchain":
        return convert.from_langchain(text)
    if source == "ai-sdk":
        return convert.from_ai_sdk(text)
    return convert.from_llm_strings(text, environ=os.environ, with_key=with_key)


def _convert_to(session: Session, given: dict[str, Any]) -> None:
    if given["text"] is None:
        raise UsageError("--to needs an llm:// URI", code="usage.command-line")
    written = _convert_uri(
        given["target"], parse_subject(resolve_subject(session, given["text"])), given["with_key"]
    )
    _print_notes(session, written.notes)
    session.print_record({"value": written.value, "notes": _build_note_records(written.notes)})
    if given["target"] == "env":
        for name, value in written.value.items():
            session.print_line(f"{name}={_quote_value(str(value))}")
    else:
        session.print_line(encode_json(written.value, indent=2))


def _convert_uri(target: str, uri: Any, with_key: bool) -> Written:
    from onym.llm import convert

    if target == "ai-sdk":
        return convert.to_ai_sdk(uri, providers=load_providers())
    write = {"env": convert.to_env, "litellm": convert.to_litellm, "langchain": convert.to_langchain}[target]
    return write(uri, with_key=with_key, providers=load_providers())


def _quote_value(value: str) -> str:
    """Quote the value for a shell and for most readers of .env files."""
    from shlex import quote

    return quote(value)


def _print_notes(session: Session, notes: Iterable[Note]) -> None:
    sys.stdout.flush()
    for note in notes:
        session.print_note(str(note))


def _build_note_records(notes: Iterable[Note]) -> list[dict[str, str]]:
    return [note._asdict() for note in notes]


_CHUNK = 1 << 16


@click.command("redact")
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True), metavar="[FILE]...")
@pass_session
def redact_command(session: Session, files: tuple[str, ...]) -> None:
    """Remove credentials from text.

    The text is standard input, or the FILEs one after another; the result goes to standard output. Keys in
    llm:// URIs and keys in a known format become ***. Every other byte stays as it is, including line ends
    and invalid UTF-8. Lines are printed as they arrive, in bounded memory. With --json the complete text is
    read first, and the output is {"text": ...}.

    \b
    Examples:
      my-server 2>&1 | onym redact
      onym redact server.log > clean.log
    """
    for name in files or ("-",):
        pieces = redact_stream(_iter_text(name))
        if session.as_json:
            session.print_record({"text": "".join(pieces)})
        else:
            _write_pieces(pieces)


def _iter_text(name: str) -> Iterator[str]:
    """Yield the text of a file as it arrives; bytes that are not UTF-8 become lone surrogates and back."""
    decoder = getincrementaldecoder("utf-8")("surrogateescape")
    with click.open_file(name, "rb") as opened:
        source = cast("BufferedReader", opened)
        # read1 does not wait for a full block, so that a pipe flows
        while data := source.read1(_CHUNK):
            yield decoder.decode(data)
        yield decoder.decode(b"", final=True)


def _write_pieces(pieces: Iterator[str]) -> None:
    out = sys.stdout.buffer
    for piece in pieces:
        if piece:
            out.write(piece.encode("utf-8", "surrogateescape"))
            out.flush()
