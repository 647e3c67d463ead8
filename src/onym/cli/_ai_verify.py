"""`onym ai verify`: a receipt out of a file, verified without the network."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from onym._lazy import require
from onym.cli._input import key_file
from onym.cli._options import json_option
from onym.cli._output import Session
from onym.errors import NetError, ProvenanceError, SignatureError, UsageError

if TYPE_CHECKING:
    from onym.sign.chain import StreamEnd
    from onym.sign.keys import AuthorityKeys
    from onym.sign.receipt import Receipt
    from onym.uri.ai import AIURI

__all__ = ["command"]

#: octets
_MAX_BODY: Final = 1024**3
_MAX_KEYS: Final = 1024**2
_MAX_TOKEN: Final = 16 * 1024
#: what stands before a receipt where its whole field was filed
_FIELD: Final = re.compile(r"\AAIIP-(?:Gateway-)?Receipt:[ \t]*", re.IGNORECASE)
#: why a file holds no keys that could be used; a signature that does not hold is none of them
_NO_KEYS: Final = ("sign.malformed", "sign.bad-key", "sign.too-large", "sign.weak-key")
#: what is verified of every receipt, in its order (AIIP/HTTPS v1 3.8)
_ALWAYS: Final = ("form", "header", "key", "signature", "claims", "time of the key")
_NEVER: Final = ("audience", "nonce", "request", "replay")
_CLAUSE: Final = "AIIP/HTTPS v1 3.8"


@click.command("verify", short_help="Verify a filed receipt, offline.")
@click.argument("receipt", metavar="RECEIPT")
@click.option(
    "--body", metavar="FILE", help="The content that it came with, octet by octet; of a stream, all of it."
)
@click.option(
    "--history", metavar="FILE", help="The authority's history of keys: every key that ever signed."
)
@click.option("--keys", metavar="FILE", help="The authority's key set of now, for a receipt of now.")
@click.option(
    "--uri", metavar="URI", help="The ai URI that was asked: the receipt must be of it, and its authority."
)
@click.option(
    "--at", "when", metavar="TIME", help="Judge as of this time (ISO 8601, with its offset or Z); else now."
)
@click.option("--gateway", is_flag=True, help="It is a gateway's receipt (AIIP-Gateway-Receipt).")
@json_option
@click.pass_obj
def command(
    session: Session,
    /,
    receipt: str,
    body: str | None,
    history: str | None,
    keys: str | None,
    uri: str | None,
    when: str | None,
    gateway: bool,
) -> None:
    """Say who signed what for whom and when, or why the receipt does not hold. Nothing is sent or fetched.

    RECEIPT is a file that holds the AIIP-Receipt field as it came, with its name or without, or - for
    standard input. The keys are taken as the authority's: whoever files receipts keeps them, from
    ANCHOR/.well-known/aiip.jwks.json (?history). A filed receipt is judged by the time that it names; one by
    a revoked key never holds.

    Exit code 0 when it holds, 12 when it does not, 2 for a file that cannot be read or holds no keys.

    \b
    Examples:
      onym ai verify receipt.jwt --body answer.json --history keys.json
      onym ai verify receipt.jwt --keys jwks.json --uri ai://bank.example/balance --json
    """
    session.command = "ai verify"
    require("joserfc", "ai")
    at = _time_of(when)
    token = _FIELD.sub("", _read(receipt, _MAX_TOKEN).decode("ascii", "replace").strip(), count=1)
    authority_keys = _keys(history, keys)
    try:
        found = _verify(_Case(token, authority_keys, uri, body, at, gateway))
    except ProvenanceError as error:
        # whoever has the file at hand may know more than a stranger
        if error.hint is None and isinstance(error.__cause__, SignatureError):
            error.hint = str(error.__cause__)
        raise
    _say(session, found)


@dataclass(frozen=True, slots=True)
class _Case:
    token: str
    keys: AuthorityKeys
    uri: str | None
    body: str | None
    at: float
    gateway: bool


@dataclass(frozen=True, slots=True)
class _Found:
    receipt: Receipt
    kid: str
    algorithm: str | None
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]


def _verify(case: _Case) -> _Found:
    from onym.sign.receipt import GATEWAY, RECEIPT, kid_of, verify_filed
    from onym.uri.ai import AIURI

    content = None if case.body is None else _read(case.body, _MAX_BODY)
    asked = None if case.uri is None else AIURI.parse(case.uri).without_query
    receipt = verify_filed(
        case.token,
        case.keys,
        subject=None if asked is None else str(asked),
        at=case.at,
        kind=GATEWAY if case.gateway else RECEIPT,
    )
    if not case.gateway:
        _check_issuer(receipt, asked or AIURI.parse(receipt.subject))
    if content is not None:
        _check_content(case, receipt, content)
    checked = (
        *_ALWAYS,
        *(("issuer",) if not case.gateway else ()),
        *(("resource",) if asked is not None else ()),
        *(("content",) if content is not None else ()),
    )
    left = tuple(name for name in ("issuer", "resource", "content") if name not in checked)
    kid = kid_of(case.token)
    return _Found(receipt, kid, case.keys.keys[kid].algorithm, checked, (*left, *_NEVER))


def _check_issuer(receipt: Receipt, uri: AIURI) -> None:
    """Only its own anchor speaks for a DNS authority (3.1); of a registry's label nothing is known here."""
    authority = uri.authority_text
    if authority is not None and "." in authority and receipt.issuer != f"https://{authority}":
        raise ProvenanceError(
            "the receipt does not hold",
            clause=f"{_CLAUSE} step 6 (iss)",
            hint="its issuer is not the anchor of the authority that it speaks of",
        )


def _check_content(case: _Case, receipt: Receipt, content: bytes) -> None:
    from onym.sign.receipt import GATEWAY, RECEIPT, verify_filed

    if receipt.stream is None:
        verify_filed(case.token, case.keys, body=content, kind=GATEWAY if case.gateway else RECEIPT)
    elif _stream_end(receipt, content) != receipt.stream:
        raise ProvenanceError(
            "the receipt does not hold",
            clause=f"{_CLAUSE} step 7 (str)",
            hint="it is for other events, or for more or fewer",
        )


def _stream_end(receipt: Receipt, content: bytes) -> StreamEnd:
    """The end of the chain over a filed stream of events, up to its receipt and a gateway's behind it."""
    from onym.net.sse import SSEDecoder
    from onym.sign.chain import StreamChain

    chain = StreamChain(receipt.request, receipt.task or "-")
    try:
        events = SSEDecoder().feed(content)
    except NetError as error:
        raise ProvenanceError(
            "the content is no stream of events", clause=f"{_CLAUSE}, streams", hint=error.message
        ) from error
    # where they stand anywhere else, they count as events
    if [each.event for each in events[-2:]] == ["receipt", "gateway-receipt"]:
        events.pop()
    if events and events[-1].event == "receipt":
        events.pop()
    for event in events:
        chain.add(event.id, event.event, event.data)
    return chain.end


def _say(session: Session, found: _Found) -> None:
    receipt = found.receipt
    session.record(
        {
            "valid": True,
            "receipt": {name: value for name, value in asdict(receipt).items() if value is not None},
            "issued": _iso(receipt.issued),
            "expires": _iso(receipt.expires),
            "key": {"kid": found.kid, "algorithm": found.algorithm},
            "checked": list(found.checked),
            "unchecked": list(found.unchecked),
        }
    )
    if session.as_json:
        return
    session.say(session.paint("the receipt holds", "good"))
    session.table(_rows(found), indent="  ", styles=("dim",))


def _rows(found: _Found) -> list[tuple[str, str]]:
    receipt = found.receipt
    content = (
        f"{receipt.length} octets, {receipt.digest}"
        if receipt.stream is None
        else f"{receipt.stream.count} events, {receipt.stream.digest}"
    )
    optional = (
        ("task", receipt.task),
        ("policy", receipt.policy),
        ("approval", receipt.approval),
        ("upstream", receipt.upstream),
    )
    return [
        ("signed by", receipt.issuer),
        ("key", f"{found.kid} ({found.algorithm})"),
        ("for", receipt.audience),
        ("about", receipt.subject),
        ("issued", _iso(receipt.issued)),
        ("status", f"{receipt.status} {receipt.content_type or ''}".rstrip()),
        ("content", content),
        *((name, value) for name, value in optional if value is not None),
        ("checked", ", ".join(found.checked)),
        ("not", ", ".join(found.unchecked)),
    ]


def _keys(history: str | None, keys: str | None) -> AuthorityKeys:
    from onym.sign.keys import read_authority_keys

    file = history or keys
    if file is None or (history and keys):
        raise UsageError(
            "give the authority's keys: --history FILE, or --keys FILE",
            code="usage.command-line",
            hint="they are at ANCHOR/.well-known/aiip.jwks.json, the history with ?history",
        )
    octets = _read(file, _MAX_KEYS)
    with key_file(file, *_NO_KEYS):
        return read_authority_keys(octets, history=history is not None)


def _read(file: str, limit: int) -> bytes:
    try:
        if file == "-":
            octets = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(file).open("rb") as stream:
                octets = stream.read(limit + 1)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", code="usage.input-file") from None
    if len(octets) > limit:
        raise UsageError(f"{file} is longer than {limit} octets", code="usage.input-file")
    return octets


def _time_of(text: str | None) -> float:
    if text is None:
        return datetime.now(UTC).timestamp()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(
            "--at is a time with its offset",
            code="usage.command-line",
            hint="as in 2026-11-22T09:30:00Z",
        )
    return found.timestamp()


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
