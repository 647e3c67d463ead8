"""`onym ai describe`: what a resource is, as its endpoint says and signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import click

from onym.cli._ai_connect import Options, ai_options, connected, read_uri, uri_argument
from onym.cli._options import json_option
from onym.cli._output import Session, dumps

if TYPE_CHECKING:
    from onym.ai.records import Description

__all__ = ["command"]


@click.command("describe", short_help="Ask what a resource is: input, output, effects, scopes.")
@uri_argument
@ai_options
@json_option
@click.pass_obj
def command(session: Session, /, uri: str, **options: Unpack[Options]) -> None:
    """Ask what the resource at URI is: title, input and output, effects, scopes. Has no effects itself.

    \b
    Example:
      onym ai describe ai://factory.example/model/helper
    """
    session.command = "ai describe"
    with connected(options) as client:
        found = client.describe(read_uri(session, uri))
    session.record(_record(found))
    session.table(list(_rows(found)), styles=("name",))
    for name, schema in (("input", found.input), ("output", found.output)):
        if schema is not None:
            session.say(f"\n{session.paint(name, 'name')}\n{dumps(schema, indent=2)}")


def _record(found: Description) -> dict[str, Any]:
    return {
        "uri": found.uri,
        "title": found.title,
        "methods": list(found.methods),
        "input": found.input,
        "output": found.output,
        "effects": found.effects,
        "scopes": list(found.scopes),
        "idempotency": found.idempotency,
        "async": found.asynchronous,
        "approval": found.approval,
    }


def _rows(found: Description) -> list[tuple[str, str]]:
    return [
        ("uri", found.uri),
        ("title", found.title or "-"),
        ("methods", ", ".join(found.methods)),
        ("effects", found.effects),
        ("scopes", ", ".join(found.scopes) or "-"),
        ("idempotency", "a key is required" if found.idempotency else "-"),
    ]
