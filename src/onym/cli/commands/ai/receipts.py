"""`onym ai verify` and `onym ai keys`: verify a filed receipt offline, and manage the keys that sign receipts."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym._lazy import require_extra
from onym.cli._input import pass_session, read_file, translate_key_errors
from onym.cli._output import Session, replace_text_file
from onym.errors import CredentialError, NetError, ProvenanceError, SignatureError, UsageError
from onym.sign.algorithms import RECEIPT_ALGORITHMS

if TYPE_CHECKING:
    from onym.sign.keys import AuthorityKeys
    from onym.sign.keystore import KeyRecord, KeyStore
    from onym.sign.receipts import Receipt, StreamEnd
    from onym.uri.ai import AIURI

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
@pass_session
def verify_command(
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
    require_extra("joserfc", "ai")
    at = _parse_time(when)
    token = _FIELD.sub("", read_file(receipt, _MAX_TOKEN).decode("ascii", "replace").strip(), count=1)
    authority_keys = _load_keys(history, keys)
    try:
        found = _verify_case(_ReceiptCase(token, authority_keys, uri, body, at, gateway))
    except ProvenanceError as error:
        # whoever has the file at hand may know more than a stranger
        if error.hint is None and isinstance(error.__cause__, SignatureError):
            error.hint = str(error.__cause__)
        raise
    _print_receipt(session, found)


@dataclass(frozen=True, slots=True)
class _ReceiptCase:
    token: str
    keys: AuthorityKeys
    uri: str | None
    body: str | None
    at: float
    gateway: bool


@dataclass(frozen=True, slots=True)
class _VerifiedReceipt:
    receipt: Receipt
    kid: str
    algorithm: str | None
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]


def _verify_case(case: _ReceiptCase) -> _VerifiedReceipt:
    from onym.sign.receipts import GATEWAY, RECEIPT, get_kid, verify_filed
    from onym.uri.ai import AIURI

    content = None if case.body is None else read_file(case.body, _MAX_BODY)
    asked = None if case.uri is None else AIURI.parse(case.uri).without_query
    receipt = verify_filed(
        case.token,
        case.keys,
        subject=None if asked is None else str(asked),
        at=case.at,
        kind=GATEWAY if case.gateway else RECEIPT,
    )
    if not case.gateway:
        _require_issuer(receipt, asked or AIURI.parse(receipt.subject))
    if content is not None:
        _require_content(case, receipt, content)
    checked = (
        *_ALWAYS,
        *(("issuer",) if not case.gateway else ()),
        *(("resource",) if asked is not None else ()),
        *(("content",) if content is not None else ()),
    )
    left = tuple(name for name in ("issuer", "resource", "content") if name not in checked)
    kid = get_kid(case.token)
    return _VerifiedReceipt(receipt, kid, case.keys.keys[kid].algorithm, checked, (*left, *_NEVER))


def _require_issuer(receipt: Receipt, uri: AIURI) -> None:
    """Only its own anchor speaks for a DNS authority (3.1); of a registry's label nothing is known here."""
    authority = uri.authority_text
    if authority is not None and "." in authority and receipt.issuer != f"https://{authority}":
        raise ProvenanceError(
            "the receipt does not hold",
            clause=f"{_CLAUSE} step 6 (iss)",
            hint="its issuer is not the anchor of the authority that it speaks of",
        )


def _require_content(case: _ReceiptCase, receipt: Receipt, content: bytes) -> None:
    from onym.sign.receipts import GATEWAY, RECEIPT, verify_filed

    if receipt.stream is None:
        verify_filed(case.token, case.keys, body=content, kind=GATEWAY if case.gateway else RECEIPT)
    elif _compute_stream_end(receipt, content) != receipt.stream:
        raise ProvenanceError(
            "the receipt does not hold",
            clause=f"{_CLAUSE} step 7 (str)",
            hint="it is for other events, or for more or fewer",
        )


def _compute_stream_end(receipt: Receipt, content: bytes) -> StreamEnd:
    """The end of the chain over a filed stream of events, up to its receipt and a gateway's behind it."""
    from onym.net.sse import SSEDecoder
    from onym.sign.receipts import StreamChain

    chain = StreamChain(receipt.request, receipt.task or "-")
    try:
        events = SSEDecoder().feed(content)
    except NetError as error:
        raise ProvenanceError(
            "the content is no stream of events", clause=f"{_CLAUSE}, streams", hint=error.message
        ) from error
    # where they stand anywhere else, they count as events
    if [event.event for event in events[-2:]] == ["receipt", "gateway-receipt"]:
        events.pop()
    if events and events[-1].event == "receipt":
        events.pop()
    for event in events:
        chain.add(event.id, event.event, event.data)
    return chain.end


def _print_receipt(session: Session, found: _VerifiedReceipt) -> None:
    receipt = found.receipt
    session.print_record(
        {
            "valid": True,
            "receipt": {name: value for name, value in asdict(receipt).items() if value is not None},
            "issued": _format_iso(receipt.issued),
            "expires": _format_iso(receipt.expires),
            "key": {"kid": found.kid, "algorithm": found.algorithm},
            "checked": list(found.checked),
            "unchecked": list(found.unchecked),
        }
    )
    if session.as_json:
        return
    session.print_line(session.paint("the receipt holds", "good"))
    session.print_table(_build_receipt_rows(found), indent="  ", styles=("dim",))


def _build_receipt_rows(found: _VerifiedReceipt) -> list[tuple[str, str]]:
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
        ("issued", _format_iso(receipt.issued)),
        ("status", f"{receipt.status} {receipt.content_type or ''}".rstrip()),
        ("content", content),
        *((name, value) for name, value in optional if value is not None),
        ("checked", ", ".join(found.checked)),
        ("not", ", ".join(found.unchecked)),
    ]


def _load_keys(history: str | None, keys: str | None) -> AuthorityKeys:
    from onym.sign.keys import read_authority_keys

    file = history or keys
    if file is None or (history and keys):
        raise UsageError(
            "give the authority's keys: --history FILE, or --keys FILE",
            code="usage.command-line",
            hint="they are at ANCHOR/.well-known/aiip.jwks.json, the history with ?history",
        )
    octets = read_file(file, _MAX_KEYS)
    with translate_key_errors(file, *_NO_KEYS):
        return read_authority_keys(octets, history=history is not None)


def _parse_time(text: str | None) -> float:
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


def _format_iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


_LATEST: Final = 24 * 3600
#: how one goes on without a private key
_WAYS: Final = (
    "put it back from a copy, or onym ai keys revoke takes the next one at once (receipts by a revoked key "
    "hold no more)"
)

_folder = click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


@click.group("keys")
def keys_command() -> None:
    """Make and change the keys that an ai:// authority signs its answers with. Each takes --json.

    DIR is a folder that you alone can read; `onym ai serve --keys DIR` signs with it and publishes its set.

    \b
    Examples:
      onym ai keys new keys
      onym ai keys rotate keys
      onym ai keys revoke keys KID
      onym ai keys publish keys > aiip.jwks.json
    """


@keys_command.command("new", short_help="Make a folder of keys, and the first key.")
@_folder
@click.option(
    "--algorithm",
    type=click.Choice(RECEIPT_ALGORITHMS),
    default="Ed25519",
    show_default=True,
    help="What it signs with.",
)
@pass_session
def new_command(session: Session, /, folder: Path, algorithm: str) -> None:
    """Make a key that signs from now on. DIR is made where it is missing, for you alone."""
    kid = _open_key_store(folder).new(algorithm, at=_get_timestamp())
    _print_key(session, folder, kid, "signs from now on")


@keys_command.command("rotate", short_help="Publish a new key now, and sign with it later.")
@_folder
@click.option(
    "--algorithm",
    type=click.Choice(RECEIPT_ALGORITHMS),
    help="What the new key signs with; without it, as the old one.",
)
@click.option(
    "--max-age",
    type=click.IntRange(60, _LATEST),
    metavar="SECONDS",
    help="How long others may keep a copy of the key set (3600): the new key signs after that time.",
)
@pass_session
def rotate_command(session: Session, /, folder: Path, algorithm: str | None, max_age: int | None) -> None:
    """Replace the key that signs, with overlap: nobody meets a signature by a key that he cannot know yet.

    The new key is published at once and signs when everybody's copy of the set is new; the old one stays
    published until its last receipt has expired. A second call before that changes nothing.
    """
    at = _get_timestamp()
    store = _open_key_store(folder, max_age)
    kid = store.rotate(at, algorithm=algorithm)
    lost = [record.kid for record in store.records() if record.can_sign(at) and _is_lost(store, record, at)]
    starts = _format_time(next(record.starts for record in store.records() if record.kid == kid))
    for lost_kid in lost:
        session.print_note(
            f"{lost_kid} should sign until then, and its private key is lost: {_WAYS}", kind="warning"
        )
    _print_key(session, folder, kid, f"signs from {starts}", starts=starts)


@keys_command.command(
    "revoke",
    short_help="Take a key out of use for good.",
    # one kid in 64 begins with a hyphen
    context_settings={"ignore_unknown_options": True},
)
@_folder
@click.argument("kid")
@pass_session
def revoke_command(session: Session, /, folder: Path, kid: str) -> None:
    """Revoke a key that somebody else may have: nothing that it signed counts any more, filed or not.

    If it was the one that signs, the next one signs at once, a new one where none waits.
    """
    now = _open_key_store(folder).revoke(kid, _get_timestamp())
    session.print_note(f"{kid} is revoked; serve the new set at once", kind="note")
    _print_key(session, folder, now, "signs from now on")


@keys_command.command("publish", short_help="Write the key set, to be served.")
@_folder
@click.option("--history", is_flag=True, help="Every key that ever signed, for auditors of filed receipts.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file instead of standard output.",
)
@pass_session
def publish_command(session: Session, /, folder: Path, history: bool, output: Path | None) -> None:
    """Write the public keys as a JWK Set (application/jwk-set+json). It holds no secret."""
    store = _open_key_store(folder)
    text = (store.history if history else store.jwks)(_get_timestamp()).decode("ascii") + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    with replace_text_file(output) as write:
        write(text)
    session.print_record({"output": str(output)})


@keys_command.command("list", short_help="Show the keys and what each is for.")
@_folder
@pass_session
def list_command(session: Session, /, folder: Path) -> None:
    """Show each key: signs, waits (for its time), kept (published, signs no more), retired or revoked.

    A key that is to sign, now or later, and whose private file is gone or cannot be read, is lost.
    """
    at, store = _get_timestamp(), _open_key_store(folder)
    records = store.records()
    states = {
        record.kid: "lost" if _is_lost(store, record, at) else record.get_state(at) for record in records
    }
    session.print_record({"keys": [_build_key_record(record, states[record.kid]) for record in records]})
    if not session.as_json:
        session.print_table(
            [_build_key_row(record, states[record.kid]) for record in records], styles=("name",)
        )
    if "lost" in states.values():
        session.print_note(
            f"of a lost key the private file is gone, or cannot be read: {_WAYS}", kind="warning"
        )


def _is_lost(store: KeyStore, each: KeyRecord, at: float) -> bool:
    """Is it this key's turn, now or later, and can it not be had?"""
    if not (each.can_sign(at) or each.is_waiting(at)):
        return False
    try:
        store.signer(max(at, each.starts))
    except (CredentialError, SignatureError):
        return True
    return False


def _open_key_store(folder: Path, max_age: int | None = None) -> KeyStore:
    require_extra("joserfc", "ai")
    from onym.sign.keystore import MAX_AGE, KeyStore  # late: the JOSE library

    return KeyStore(folder, max_age=MAX_AGE if max_age is None else max_age)


def _print_key(session: Session, folder: Path, kid: str, what: str, **more: str) -> None:
    session.print_record({"kid": kid, "folder": str(folder), **more})
    session.print_line(f"{session.paint(kid, 'name')}  {what}")


def _build_key_record(each: KeyRecord, state: str) -> dict[str, Any]:
    times = ("created", "starts", "ends", "dropped", "revoked")
    found = {name: getattr(each, name) for name in times}
    return {
        "kid": each.kid,
        "algorithm": each.algorithm,
        "state": state,
        **{name: None if value is None else _format_time(value) for name, value in found.items()},
    }


def _build_key_row(each: KeyRecord, state: str) -> tuple[str, ...]:
    end = each.revoked if each.revoked is not None else each.ends
    until = "" if end is None else f" until {_format_time(end)}"
    return each.kid, each.algorithm, state, f"from {_format_time(each.starts)}{until}"


def _get_timestamp() -> float:
    return datetime.now(UTC).timestamp()


def _format_time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        raise UsageError("the store holds a time that is none", code="usage.input-file") from None
