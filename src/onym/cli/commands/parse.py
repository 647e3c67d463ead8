"""`onym parse`: a URI in its parts, the parameters typed."""

from __future__ import annotations

from typing import Any

import click

from onym.cli._input import find_subject, to_uri
from onym.cli._options import json_option, uri_argument
from onym.cli._output import Session, Subject, dumps, plain

__all__ = ["command"]

Parts = dict[str, Any]


@click.command("parse")
@uri_argument
@click.option("--strict", is_flag=True, help="Refuse what the draft forbids, not only what RFC 3986 does.")
@click.option(
    "--as",
    "kind",
    type=click.Choice(["llm", "ai", "uri"]),
    help="Read it as an llm or ai URI, or as any URI reference of RFC 3986. Default: by its scheme.",
)
@json_option
@click.pass_obj
def command(session: Session, uri: str, strict: bool, kind: str | None) -> None:
    """Take URI apart: host, port, model, label, parameters with their types. The key is shown as ***.

    \b
    Examples:
      onym parse 'llm://api.openai.com/gpt-5?temp=0.7&max_tokens=1500'
      onym parse --json fast                        (a name from your configuration)
      onym parse --as uri 'https://example.org/a?b'
    """
    subject = find_subject(session, uri)
    reader = {"llm": _llm, "ai": _ai, "uri": _generic}[kind or _kind(subject.text)]
    parts = reader(subject, strict)
    session.record(parts)
    _draw(session, parts)


def _kind(text: str) -> str:
    return "ai" if text[:3].lower() == "ai:" else "llm"


def _llm(subject: Subject, strict: bool) -> Parts:
    uri = to_uri(subject, strict=strict)
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
        "params": plain(uri.params),
        "fragment": uri.fragment,
    }


def _ai(subject: Subject, strict: bool) -> Parts:
    from onym.uri.ai import AIURI

    uri = AIURI.parse(subject.text)
    names = ("authority", "host", "port", "path", "query", "fragment")
    return {"uri": str(uri), "scheme": "ai", **{name: getattr(uri, name) for name in names}}


def _generic(subject: Subject, strict: bool) -> Parts:
    from onym.cli._generic import masked_parts, masked_text
    from onym.uri.generic import URI

    uri = URI.parse(subject.text)
    return {"uri": masked_text(uri), **masked_parts(uri)}


def _draw(session: Session, parts: Parts) -> None:
    rows: list[tuple[str, str]] = []
    for name, value in parts.items():
        if name == "params":
            rows.extend((f"  {key}", _typed(item)) for key, item in value.items())
        elif value is not None:
            rows.append((name.replace("_", " "), str(value)))
    session.table(rows, styles=("dim",))


def _typed(value: object) -> str:
    kind = {bool: "boolean", int: "integer", float: "number", str: "text"}.get(type(value), "JSON")
    return f"{value if isinstance(value, str) else dumps(value)}  ({kind})"
