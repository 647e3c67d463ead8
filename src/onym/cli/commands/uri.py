"""`onym parse`, `normalize`, `build`, `convert` and `redact`: commands that work on the text of a URI.

They open no connection. Imports beyond `onym.uri` are late, because the start-up time of these commands is
measured.
"""

from __future__ import annotations

import os
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import click

from onym.cli import _input, exit_codes
from onym.cli._commands import exit_with, make_command, pass_session
from onym.cli._output import Session, encode_json, select_fields, to_plain_data
from onym.common.text import escape_unprintable
from onym.errors import UsageError
from onym.uri.llm import LLMURI
from onym.uri.redact import find_secrets, redact, redact_stream
from onym.uri.secret import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onym.llm.convert import Conversion, Note, Written
    from onym.uri.generic import URI

#: bytes of a file to convert; the library has a lower limit
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


@make_command("parse", short_help="Split a URI into its parts.")
@_input.uri_argument
@click.option("--strict", is_flag=True, help="Reject everything that the draft forbids.")
@click.option("--as", "kind", type=click.Choice(["llm", "ai", "uri"]),
              help="Parse as an llm or ai URI, or as any URI reference. Default: by the scheme.")  # fmt: skip
@pass_session
def parse_command(session: Session, uri: str, strict: bool, kind: str | None) -> None:
    """Split a URI into its parts: host, port, model, label and typed parameters. The key is shown as ***.

    \b
    Examples:
      onym parse 'llm://api.openai.com/gpt-5.5?temp=0.7&max_tokens=1500'
      onym parse --json fast                 (a name from your configuration)
      onym parse --as uri 'https://example.org/a?b'
    """
    subject = _input.resolve_subject(session, uri)
    parts = _split_parts(subject.text, kind or ("ai" if _is_ai(subject.text) else "llm"), strict)
    session.print_record(parts)
    rows: list[tuple[str, str]] = []
    for name, value in parts.items():
        if name == "params":
            rows.extend((f"  {key}", _format_typed(item)) for key, item in value.items())
        elif value is not None:
            rows.append((name.replace("_", " "), str(value)))
    session.print_table(rows, styles=("dim",))


def _is_ai(text: str) -> bool:
    return text[:3].lower() == "ai:"


def _split_parts(text: str, kind: str, strict: bool) -> dict[str, Any]:
    if kind == "uri":
        from onym.uri.generic import URI

        generic = URI.parse(text)
        return {"uri": mask_uri(generic), **mask_parts(generic)}
    if kind == "ai":
        from onym.uri.ai import AIURI

        named = AIURI.parse(text)
        names = ("authority", "host", "port", "path", "query", "fragment")
        return {"uri": str(named), "scheme": "ai", **select_fields(named, *names)}
    uri = LLMURI.parse(text, strict=strict)
    return {
        "uri": str(uri),
        "scheme": "llm",
        "label": uri.label,
        "key": None if uri.key is None else str(uri.key),
        **select_fields(uri, "host", "host_type", "port", "effective_port", "model"),
        "params": to_plain_data(uri.params),
        "fragment": uri.fragment,
    }


def _format_typed(value: object) -> str:
    kind = {bool: "boolean", int: "integer", float: "number", str: "text"}.get(type(value), "JSON")
    return f"{value if isinstance(value, str) else encode_json(value)}  ({kind})"


@make_command("normalize", short_help="Print URIs in canonical form.")
@click.argument("uris", nargs=-1, required=True, type=_input.URI_TYPE, metavar="URI...")
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
    for subject in _input.iter_subjects(session, uris):
        text = _normalize_text(subject.text, generic, reveal)
        if session.as_json:
            session.print_json_line({"uri": text})
        else:
            session.print_line(escape_unprintable(text))


def _normalize_text(text: str, generic: bool, reveal: bool) -> str:
    if generic:
        from onym.uri.generic import URI

        uri = URI.parse(text).normalize()
        return str(uri) if reveal else mask_uri(uri)
    if _is_ai(text):
        from onym.uri.ai import AIURI

        return str(AIURI.parse(text).target)
    from onym.llm.providers import normalize

    return normalize(LLMURI.parse(text)).render(reveal=reveal)


@make_command("build")
@click.option("--host", metavar="HOST", help="The server's host name or address.")
@click.option("--provider", metavar="WORD", help="The provider, instead of --host: openai, ollama, ...")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port, if not the default.")
@click.option("--model", required=True, metavar="NAME", help="The model; / separates path segments.")
@click.option("--label", metavar="TEXT", help="The app label: your application, project or organisation.")
@_input.key_stdin_option
@click.option("--key-env", metavar="VARIABLE", help="The variable that contains the API key: auth=env:NAME.")
@_input.param_option
@click.option("--profile", metavar="NAME", help="A profile of the configuration file (the fragment).")
@click.option("--reveal", is_flag=True, help="Print the key instead of ***.")
@pass_session
def build_command(session: Session, /, **options: Any) -> None:
    """Build a URI from its parts. Special characters are percent-encoded, so the result is always valid.

    \b
    Examples:
      onym build --provider openai --model gpt-5.5 --key-env OPENAI_API_KEY
      onym build --host localhost --port 8080 --model qwen/qwen3:8b
      pass show openai | onym build --host h --model m --key-stdin --reveal
    """
    host, key_env, reveal = options["host"], options["key_env"], options["reveal"]
    if (host is None) is (options["provider"] is None):
        raise UsageError("give either --host or --provider", code="usage.command-line")
    if options["key_stdin"] and key_env:
        raise UsageError("give either --key-stdin or --key-env", code="usage.command-line")
    params = dict(_input.parse_params(options["params"]))
    if key_env:
        params["auth"] = f"env:{key_env}"
    uri = LLMURI.build(
        _find_provider_host(options["provider"]) if host is None else host,
        key=_input.read_key(session) if options["key_stdin"] else None,
        params=params,
        fragment=options["profile"],
        **{name: options[name] for name in ("model", "label", "port")},
    )
    text = uri.render(reveal=reveal)
    session.print_line(text)
    session.print_record({"uri": text})
    if uri.key is not None and not reveal:
        session.print_note("the key is shown as ***; use --reveal to print it")


def _find_provider_host(word: str) -> str:
    from onym.llm.providers import ProviderTable, format_suggestion

    table = ProviderTable.builtin()
    row = table.find_alias(word)
    if row is None or row.host is None:
        raise UsageError(
            f'no provider has the alias "{word}"',
            code="usage.provider",
            hint=format_suggestion(word, table.aliases()) or "name the server with --host",
        )
    return row.host


_SOURCES = ("env", "litellm", "langchain", "ai-sdk", "llm-strings")
_TARGETS = ("env", "litellm", "langchain", "ai-sdk")


@make_command("convert", short_help="Convert URIs from and to the model names of other tools.")
@click.option(
    "--from", "source", type=click.Choice(_SOURCES), help="The format of TEXT; the result is a URI."
)
@click.option("--to", "target", type=click.Choice(_TARGETS), help="The format to convert the URI to.")
@click.argument("text", required=False, metavar="[TEXT]")
@click.option("--model", metavar="NAME", help="With --from env: the model, if no variable names one.")
@click.option("--with-key", is_flag=True, help="Copy an API key from the source. Default: print a note.")
@pass_session
def convert_command(
    session: Session,
    /,
    source: str | None,
    target: str | None,
    text: str | None,
    model: str | None,
    with_key: bool,
) -> None:
    """Convert between llm:// URIs and the model names of other tools.

    With --from, TEXT is a LiteLLM file (a configuration or model_list in YAML or JSON; - reads standard
    input), a LangChain name (openai:gpt-5.5), an ID of the Vercel AI SDK (anthropic/claude-sonnet-5.5 or
    openai:gpt-5.5) or a URI of npm's llm-strings. --from env reads the environment. With --to, TEXT is an
    llm:// URI.

    A note is printed for each setting that the other format cannot express. A key is replaced by a reference
    (auth=env:NAME) unless you add --with-key.

    \b
    Examples:
      onym convert --from env
      onym convert --from litellm config.yaml
      onym convert --from langchain anthropic:claude-sonnet-5-5
      onym convert --to litellm 'llm://openai/gpt-5.5?max_tokens=500'
      onym convert --to env llm://localhost:8000/Qwen/Qwen3-8B
    """
    if source is not None and target is None:
        _convert_from(session, source, text, model, with_key)
    elif target is not None and source is None:
        _convert_to(session, target, text, with_key)
    else:
        hint = f"use --from to convert another format to a URI: {', '.join(_SOURCES)}"
        if (text or "").startswith("llm://"):
            hint = f"use --to to convert a URI to another format: {', '.join(_TARGETS)}"
        raise UsageError("give either --from or --to", code="usage.command-line", hint=hint)


def _convert_from(session: Session, source: str, text: str | None, model: str | None, with_key: bool) -> None:
    conversion = _convert_text(source, text, model, with_key)
    _print_notes(session, conversion.notes)
    uris = [(name, uri.render(reveal=with_key)) for name, uri in conversion.found]
    session.print_record(
        {
            "uris": [{"name": name, "uri": uri} for name, uri in uris],
            "notes": [note._asdict() for note in conversion.notes],
        }
    )
    if any(name for name, _ in uris):
        session.print_table([(name or "", uri) for name, uri in uris], styles=("name",))
    else:
        for _, uri in uris:
            session.print_line(escape_unprintable(uri))
    if not uris and not session.as_json:
        session.print_note("the source names no model")


def _convert_text(source: str, text: str | None, model: str | None, with_key: bool) -> Conversion:
    from onym.llm import convert

    if source == "env":
        if text is not None:
            raise UsageError("--from env reads the environment; remove the text", code="usage.command-line")
        return convert.from_env(os.environ, model=model, with_key=with_key, providers=_input.load_providers())
    if text is None:
        raise UsageError(f"--from {source} needs a text to convert", code="usage.command-line")
    if text.startswith("llm://") and source != "llm-strings":
        raise UsageError(
            "the text is already an llm URI",
            code="usage.command-line",
            hint="use --to for another format, or --from llm-strings for a URI of npm's llm-strings",
        )
    if source == "litellm":
        models = convert.load_models(_read_litellm_file(text))
        return convert.from_litellm(models, with_key=with_key, providers=_input.load_providers())
    if source == "langchain":
        return convert.from_langchain(text)
    if source == "ai-sdk":
        return convert.from_ai_sdk(text)
    return convert.from_llm_strings(text, environ=os.environ, with_key=with_key)


def _read_litellm_file(name: str) -> str:
    """Return the text of a LiteLLM file. The error for a name of a model tells how to write it as a URI."""
    try:
        return _input.read_text_file(name, _MAX_MODELS, code="usage.file")
    except UsageError as error:
        provider = name.partition("/")[0]
        if provider != name and _input.load_providers().find_alias(provider) is not None:
            error.hint = f"LiteLLM's settings are read from a file; write one model as llm://{name}"
        raise


def _convert_to(session: Session, target: str, text: str | None, with_key: bool) -> None:
    if text is None:
        raise UsageError("--to needs an llm:// URI", code="usage.command-line")
    written = _convert_uri(target, LLMURI.parse(_input.resolve_subject(session, text).text), with_key)
    _print_notes(session, written.notes)
    session.print_record({"value": written.value, "notes": [note._asdict() for note in written.notes]})
    if target == "env":
        from shlex import quote  # for a shell, and for most readers of .env files

        for name, value in written.value.items():
            session.print_line(f"{name}={quote(str(value))}")
    else:
        session.print_line(encode_json(written.value, indent=2))


def _convert_uri(target: str, uri: Any, with_key: bool) -> Written:
    from onym.llm import convert

    if target == "ai-sdk":
        return convert.to_ai_sdk(uri, providers=_input.load_providers())
    write = {"env": convert.to_env, "litellm": convert.to_litellm, "langchain": convert.to_langchain}[target]
    return write(uri, with_key=with_key, providers=_input.load_providers())


def _print_notes(session: Session, notes: Iterable[Note]) -> None:
    sys.stdout.flush()
    for note in notes:
        session.print_note(str(note))


_CHUNK = 1 << 16


@make_command("redact")
@click.option("--check", is_flag=True, help="List the places of credentials; exit with 1 if there are any.")
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True), metavar="[FILE]...")
@pass_session
def redact_command(session: Session, files: tuple[str, ...], check: bool) -> None:
    """Remove credentials from text, or check that it has none.

    The text is standard input, or the FILEs one after another; the result goes to standard output. Keys in
    llm:// URIs and keys in a known format become ***. Every other byte stays as it is, including line ends
    and invalid UTF-8. Lines are printed as they arrive, in bounded memory. With --json the complete text is
    read first, and the output is {"text": ...}.

    With --check the output is one line for each credential, FILE:LINE:COLUMN, without the credential. The
    exit code is 1 if there is one, otherwise 0. A FILE can then also be a folder, which is searched with its
    subfolders; binary files and the data of version control are skipped.

    \b
    Examples:
      my-server 2>&1 | onym redact
      onym redact server.log > clean.log
      onym redact --check .env src
      git ls-files -z | xargs -0 -r onym redact --check
    """
    if check:
        _check_files(session, files or ("-",))
    for name in files or ("-",):
        if _input.is_folder(name):
            raise UsageError(
                f"{escape_unprintable(session.mask(name))} is a folder",
                code="usage.input-file",
                hint="list the credentials of its files with onym redact --check, or name the files",
            )
        pieces = redact_stream(_iter_text(name))
        if session.as_json:
            session.print_record({"text": "".join(pieces)})
            continue
        for piece in filter(None, pieces):
            sys.stdout.buffer.write(piece.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()


def _check_files(session: Session, names: tuple[str, ...]) -> NoReturn:
    found: list[dict[str, str | int]] = []
    number = skipped = 0
    for name, listed in _input.iter_files(names):
        if listed and _input.is_binary(name):
            skipped += 1
            continue
        number += 1
        for line, column in find_secrets(_iter_text(name)):
            if session.quiet:
                exit_with(exit_codes.CHECK_FAILED)
            shown = session.mask(name)
            found.append({"file": shown, "line": line, "column": column})
            session.print_line(f"{escape_unprintable(shown)}:{line}:{column}: credential")
    if not session.quiet:
        session.print_record({"ok": not found, "files": number, "skipped": skipped, "found": found})
        if not session.as_json:
            where = "standard input" if names == ("-",) else _format_amount(number, "file")
            hidden = f"; skipped {_format_amount(skipped, 'binary file')}" if skipped else ""
            session.print_note(f"{_format_amount(len(found), 'credential')}; searched {where}{hidden}")
    exit_with(exit_codes.CHECK_FAILED if found else exit_codes.OK)


def _format_amount(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _iter_text(name: str) -> Iterator[str]:
    """Yield the text of a file as it arrives; bytes that are not UTF-8 become lone surrogates and back."""
    decoder = getincrementaldecoder("utf-8")("surrogateescape")
    with _input.open_input(name) as source:
        # read1 does not wait for a full block, so that a pipe flows
        while data := source.read1(_CHUNK):
            yield decoder.decode(data)
        yield decoder.decode(b"", final=True)
