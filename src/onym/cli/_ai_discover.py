"""`onym ai discover`: every source of an authority, what it said, its rank, and why it won or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

import click

from onym._lazy import require
from onym.cli._ai_connect import Options, ai_options, resolver_settings, transport
from onym.cli._errors import error_record
from onym.cli._options import json_option
from onym.cli._output import Session
from onym.cli.exit_codes import exit_code

if TYPE_CHECKING:
    from onym.ai.discovery.flow import Discovery
    from onym.ai.records import Source

__all__ = ["command"]

#: verdict -> its mark, which needs no colour
_MARKS: Final = {
    "won": "+",
    "confirms": "=",
    "dropped": "-",
    "contradicts": "!",
    "absent": ".",
    "failed": "x",
}
#: names that a row shows; --json has all
_MOST_SAID: Final = 2


@click.command("discover", short_help="Find who answers for a name; which source won, and why.")
@click.argument("name", metavar="NAME")
@ai_options
@json_option
@click.pass_obj
def command(session: Session, /, name: str, **options: Unpack[Options]) -> None:
    """Find out who answers for NAME: a host, an https address or an ai URI. Nothing is invoked.

    Every source is asked and explained, best rank first: + won, = confirms, - dropped, ! contradicts,
    . has nothing to say, x failed. What the anchor's document promises is remembered, and held against
    it the next time.

    \b
    Examples:
      onym ai discover bank.example
      onym ai discover --json https://shop.example/pay
      onym ai discover --registry namespaces.jws --registry-key registry.jwk ai://bank/service/payments
    """
    session.command = "ai discover"
    require("selectolax", "ai")  # now, and not when the first page has come
    from onym.ai.discovery.flow import discover
    from onym.net.transport import run
    from onym.uri.redact import install_logging_filter

    install_logging_filter()
    settings = resolver_settings(options)
    with transport(options) as wire:
        found = run(discover(name, settings), wire)
    _show(session, found)
    if found.refusal is not None:
        if not session.as_json:
            raise found.refusal
        raise SystemExit(exit_code(found.refusal)) from found.refusal


def _show(session: Session, found: Discovery) -> None:
    sources = sorted(found.sources, key=lambda each: -each.rank)
    session.table([_row(each) for each in sources])
    session.say()
    session.table(_decision(found), styles=("name",))
    session.record(_record(session, found, sources))


def _row(source: Source) -> tuple[str, ...]:
    what = ", ".join(source.said[:_MOST_SAID]) or "-"
    if len(source.said) > _MOST_SAID:
        what += f" and {len(source.said) - _MOST_SAID} more"
    why = f"{source.location}: {source.why}" if source.why else source.location
    return _MARKS[source.verdict], str(source.rank), source.name, source.verdict, what, why


def _decision(found: Discovery) -> list[tuple[str, str]]:
    rows = [("authority", found.authority)]
    if found.anchor is not None:
        rows.append(("anchor", found.anchor))
    if found.document is not None:
        rows.append(("service", found.document.service))
    if found.connect is not None:
        rows.append(("connect", f"{found.connect.host}:{found.connect.port}, as a signed SRV record says"))
    rows += [("or else", f"{each.host}:{each.port}") for each in found.fallbacks]
    rows += [("key", kid) for kid in found.kids]
    for each in found.candidates:
        state = "confirmed" if each.confirmed else "unconfirmed"
        rows.append(("resource", f"{each.uri} ({state}: {each.why}; {', '.join(each.by)})"))
    why = "discovered" if found.refusal is None else f"refused: {found.refusal.message}"
    return [*rows, ("decision", why)]


def _record(session: Session, found: Discovery, sources: list[Source]) -> dict[str, Any]:
    document = found.document
    record: dict[str, Any] = {
        "authority": found.authority,
        "anchor": found.anchor,
        "service": None if document is None else document.service,
        "keys": list(found.kids),
        "connect": None if found.connect is None else f"{found.connect.host}:{found.connect.port}",
        "fallbacks": [f"{each.host}:{each.port}" for each in found.fallbacks],
        "sources": [_fields(each) for each in sources],
        "candidates": [
            {"uri": each.uri, "confirmed": each.confirmed, "by": list(each.by), "why": each.why}
            for each in found.candidates
        ],
        "ok": found.refusal is None,
    }
    return record if found.refusal is None else record | error_record(session, found.refusal)


def _fields(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "rank": source.rank,
        "verdict": str(source.verdict),
        "said": list(source.said),
        "why": source.why,
        "location": source.location,
        "validated": source.validated,
        "code": source.code,
    }
