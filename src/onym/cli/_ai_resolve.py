"""`onym ai resolve`: where an ai URI leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import click

from onym.cli._ai_connect import Options, ai_options, connected, read_uri, uri_argument
from onym.cli._options import json_option
from onym.cli._output import Session

if TYPE_CHECKING:
    from onym.ai.records import Resolution

__all__ = ["command"]


@click.command("resolve", short_help="Show where a name leads: anchor, service, keys, policy.")
@uri_argument
@ai_options
@json_option
@click.pass_obj
def command(session: Session, /, uri: str, **options: Unpack[Options]) -> None:
    """Show where URI leads: the anchor that speaks for its authority, the service, the keys, what it demands.

    \b
    Examples:
      onym ai resolve ai://factory.example/agent/forklift-42
      onym ai resolve ai://bank/service/payments --registry names.jws --registry-key registry.jwk
    """
    session.command = "ai resolve"
    with connected(options) as client:
        found = client.resolve(read_uri(session, uri))
    session.record(_record(found))
    session.table(list(_rows(found)), styles=("name",))


def _record(found: Resolution) -> dict[str, Any]:
    needs, document = found.document.requirements, found.document
    return {
        "uri": str(found.uri),
        "authority": found.authority,
        "anchor": found.anchor,
        "service": document.service,
        "connect": None if found.connect is None else str(found.connect),
        "fallbacks": [str(each) for each in found.fallbacks],
        "keys": sorted(found.keys.kids),
        "requires": {
            "auth": needs.auth,
            "signed_results": needs.signed_results,
            "mtls": needs.mtls,
            "dpop": needs.dpop,
        },
        "resource": None
        if found.entry is None
        else {
            "title": found.entry.title,
            "effects": found.entry.effects,
            "scopes": list(found.entry.scopes),
        },
    }


def _rows(found: Resolution) -> list[tuple[str, str]]:
    needs = found.document.requirements
    demands = [
        "signed results",
        "an access token (oauth2)" if needs.auth == "oauth2" else "no authentication",
        "a client certificate" if needs.mtls else "",
        "" if needs.dpop == "none" else f"DPoP {needs.dpop}",
    ]
    rows = [
        ("uri", str(found.uri)),
        ("anchor", found.anchor),
        ("service", found.document.service),
        ("keys", ", ".join(sorted(found.keys.kids))),
        ("requires", ", ".join(each for each in demands if each)),
    ]
    if found.connect is not None:
        rows.append(("connect", f"{found.connect} (DNS)"))
    rows += [("or else", f"{each} (DNS)") for each in found.fallbacks]
    entry = found.entry
    if entry is not None:
        rows.append(("resource", f"{entry.title or '-'}; effects {entry.effects}"))
    return rows
