"""`onym ai verify` and `onym ai keys`: verify a receipt offline, and manage signing keys."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym._lazy import require_extra
from onym.cli import _commands
from onym.cli._input import read_file, translate_key_errors
from onym.cli._output import Session, replace_text_file, select_fields
from onym.common.text import escape_unprintable
from onym.errors import CredentialError, NetError, ProvenanceError, SignatureError, UsageError
from onym.sign.keys import RECEIPT_ALGORITHMS
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.sign.keys import AuthorityKeys
    from onym.sign.keystore import KeyRecord, KeyStore
    from onym.sign.receipts import Receipt
    from onym.uri.ai import AIURI

#: bytes
_MAX_BODY: Final = 1024**3
_MAX_KEYS: Final = 1024**2
_MAX_TOKEN: Final = 16 * 1024
#: an https origin, so that it can be shown as a part of a command
_ORIGIN: Final = re.compile(r"https://[a-z0-9.-]{1,253}(?::\d{1,5})?", re.ASCII)
#: the field name before a receipt, if the complete field was saved
_FIELD: Final = re.compile(r"\AAIIP-(?:(?:Gateway-)?Receipt|Approval):[ \t]*", re.IGNORECASE)
#: codes of a file without a usable key; an invalid signature has other codes
_NO_KEYS: Final = ("sign.malformed", "sign.bad-key", "sign.too-large", "sign.weak-key")
#: checks of every receipt, in order (AIIP/HTTPS v1 3.8)
_ALWAYS: Final = ("form", "header", "key", "signature", "claims", "time of the key")
_NEVER: Final = ("audience", "nonce", "request", "replay")
_CLAUSE: Final = "AIIP/HTTPS v1 3.8"


@_commands.make_command("verify", short_help="Verify a receipt offline.")
@click.argument("receipt", metavar="RECEIPT")
@click.option("--body", metavar="FILE", help="The response's content, byte for byte; of a stream, all of it.")
@click.option("--history", metavar="FILE", help="The authority's key history: every key that ever signed.")
@click.option("--keys", metavar="FILE", help="The authority's current key set, for a recent receipt.")
@click.option("--uri", metavar="URI", help="The request's ai URI; the receipt and its issuer must match it.")
@click.option("--approval", metavar="FILE",
              help="The evidence that people approved the call; the receipt must name it.")  # fmt: skip
@click.option("--approver-keys", metavar="FILE", help="The approver's key history, for --approval.")
@click.option("--at", "when", metavar="TIME",
              help="Verify as of this time (ISO 8601 with an offset or Z). Default: now.")  # fmt: skip
@click.option(
    "--gateway-receipt", "gateway", is_flag=True, help="The receipt is a gateway's (AIIP-Gateway-Receipt)."
)
@_commands.pass_session
def verify_command(
    session: Session,
    /,
    receipt: str,
    body: str | None,
    history: str | None,
    keys: str | None,
    uri: str | None,
    approval: str | None,
    approver_keys: str | None,
    when: str | None,
    gateway: bool,
) -> None:
    """Verify a receipt offline: who signed what, for whom and when. Nothing is sent or fetched.

    RECEIPT is a file with the AIIP-Receipt field, with or without its name, or - for standard input. It can
    also be a folder of `onym ai invoke --save`: then body and, if it is there, history.json are read too. The
    keys are taken as the authority's own: save them with the receipts, from
    ANCHOR/.well-known/aiip.jwks.json (?history). A receipt is verified as of the time that it names. A
    receipt by a revoked key is never valid.

    The exit code is 0 for a valid receipt, 12 for an invalid one, 2 for a file that cannot be read or has no
    keys.

    \b
    Examples:
      onym ai verify receipt.jwt --body answer.json --history keys.json
      onym ai verify receipt.jwt --keys jwks.json --uri ai://bank.example/balance
      onym ai verify receipt.jwt --approval approval.jwt --approver-keys gw.json
    """
    require_extra("joserfc", "ai")
    from onym.sign.approval import verify_receipt_approval
    from onym.sign.receipts import GATEWAY, RECEIPT, get_kid, verify_filed  # late: the JOSE library
    from onym.uri.ai import AIURI

    at = _parse_time(when)
    saved = None
    if Path(receipt).is_dir():
        folder = Path(receipt)
        receipt, body = str(folder / "receipt.jwt"), body or _find_file(folder / "body")
        saved = None if history or keys else _find_file(folder / "history.json")
    token = _read_token(receipt)
    authority_keys = _load_keys(token, history or saved, keys)
    evidence = _load_approval(approval, approver_keys)
    content = None if body is None else read_file(body, _MAX_BODY)
    target = None if uri is None else AIURI.parse(uri).without_query
    subject, kind = None if target is None else str(target), GATEWAY if gateway else RECEIPT
    try:
        verified = verify_filed(token, authority_keys, subject=subject, at=at, kind=kind)
        if not gateway:
            _require_issuer(verified, target or AIURI.parse(verified.subject))
        if content is not None and verified.stream is None:
            verify_filed(token, authority_keys, body=content, kind=kind)
        elif content is not None:
            _require_stream(verified, content)
    except ProvenanceError as error:
        # the user has the file, and may see more of the reason than an untrusted caller
        if error.hint is None and isinstance(error.__cause__, SignatureError):
            error.hint = str(error.__cause__)
        raise
    if evidence is not None:
        verify_receipt_approval(verified, *evidence)
    kid = get_kid(token)
    optional = {
        "issuer": not gateway,
        "resource": target is not None,
        "content": content is not None,
        **({} if verified.approval is None else {"approval": evidence is not None}),
        # a folder of another person may contain that person's keys
        **({} if saved is None else {"origin of the keys": False}),
    }
    _print_receipt(session, verified, kid, authority_keys.keys[kid].algorithm, optional)
    if saved is not None:
        session.print_note(
            f"the keys are from {escape_unprintable(saved)}; if the folder is from another person, fetch the "
            f"keys from {verified.issuer} and add --history"
        )


def _require_issuer(receipt: Receipt, uri: AIURI) -> None:
    """Check that a DNS authority's own anchor issued the receipt (3.1). A registry's label is not checked."""
    authority = uri.authority_text
    if authority is not None and "." in authority and receipt.issuer != f"https://{authority}":
        raise ProvenanceError(
            "the receipt is invalid",
            clause=f"{_CLAUSE} step 6 (iss)",
            hint="the issuer is not the anchor of the authority in the URI",
        )


def _require_stream(receipt: Receipt, content: bytes) -> None:
    """Check the end of the chain over a saved event stream, without the receipt events at its end."""
    from onym.net.messages import SSEDecoder
    from onym.sign.receipts import StreamChain

    chain = StreamChain(receipt.request, receipt.task or "-")
    try:
        events = SSEDecoder().feed(content)
    except NetError as error:
        raise ProvenanceError(
            "the content is not an event stream", clause=f"{_CLAUSE}, streams", hint=error.message
        ) from error
    # in any other position, they are events
    if [event.event for event in events[-2:]] == ["receipt", "gateway-receipt"]:
        events.pop()
    if events and events[-1].event == "receipt":
        events.pop()
    for event in events:
        chain.add(event.id, event.event, event.data)
    if chain.end != receipt.stream:
        raise ProvenanceError(
            "the receipt is invalid",
            clause=f"{_CLAUSE} step 7 (str)",
            hint="the receipt is for other events, or for a different number of events",
        )


def _print_receipt(
    session: Session, receipt: Receipt, kid: str, algorithm: str | None, optional: dict[str, bool]
) -> None:
    """Print a valid receipt; `optional` tells which checks beyond those of every receipt were done."""
    checked = [*_ALWAYS, *(name for name, done in optional.items() if done)]
    unchecked = [*(name for name, done in optional.items() if not done), *_NEVER]
    session.print_record(
        {
            "valid": True,
            "receipt": {name: value for name, value in asdict(receipt).items() if value is not None},
            "issued": _format_iso(receipt.issued),
            "expires": _format_iso(receipt.expires),
            "key": {"kid": kid, "algorithm": algorithm},
            "checked": checked,
            "unchecked": unchecked,
        }
    )
    session.print_line(session.paint("the receipt is valid", "good"))
    content = f"{receipt.length} bytes, {receipt.digest}"
    if receipt.stream is not None:
        content = f"{receipt.stream.count} events, {receipt.stream.digest}"
    rows = [
        ("signed by", receipt.issuer),
        ("key", f"{kid} ({algorithm})"),
        ("for", receipt.audience),
        ("about", receipt.subject),
        ("issued", _format_iso(receipt.issued)),
        ("status", f"{receipt.status} {receipt.content_type or ''}".rstrip()),
        ("content", content),
    ]
    details = select_fields(receipt, "task", "policy", "upstream")
    rows += [(name, value) for name, value in details.items() if value is not None]
    if receipt.approval is not None:
        rows.append(("approved", f"by {' and '.join(receipt.approval.by)} at {receipt.approval.issuer}"))
    rows += [("checked", ", ".join(checked)), ("not", ", ".join(unchecked))]
    session.print_table(rows, indent="  ", styles=("dim",))


def _read_token(file: str) -> str:
    """Read a token, with or without the name of its header field."""
    return _FIELD.sub("", read_file(file, _MAX_TOKEN).decode("ascii", "replace").strip(), count=1)


def _load_approval(file: str | None, keys: str | None) -> tuple[str, AuthorityKeys] | None:
    """Return the evidence and the approver's keys, or None without evidence."""
    from onym.sign.keys import read_authority_keys

    if file is None and keys is None:
        return None
    if file is None or keys is None:
        raise UsageError(
            "--approval and --approver-keys must be given together",
            code="usage.command-line",
            hint="add both: the evidence, and the key history of the approver that signed it",
        )
    content = read_file(keys, _MAX_KEYS)
    with translate_key_errors(keys, *_NO_KEYS):
        return _read_token(file), read_authority_keys(content, history=True)


def _find_file(path: Path) -> str | None:
    return str(path) if path.is_file() else None


def _load_keys(token: str, history: str | None, keys: str | None) -> AuthorityKeys:
    from onym.sign.keys import read_authority_keys

    file = history or keys
    if file is None or (history and keys):
        raise UsageError(
            "the authority's keys are missing",
            code="usage.command-line",
            hint=_describe_keys(token),
        )
    content = read_file(file, _MAX_KEYS)
    with translate_key_errors(file, *_NO_KEYS):
        return read_authority_keys(content, history=history is not None)


def _describe_keys(token: str) -> str:
    """Return where the keys are. The receipt is not verified: people compare its issuer themselves."""
    from onym.sign.jws import read_unverified_claims

    issuer = (read_unverified_claims(Secret(token)) or {}).get("iss")
    if not isinstance(issuer, str) or _ORIGIN.fullmatch(issuer) is None:
        return "add --history FILE or --keys FILE, from ANCHOR/.well-known/aiip.jwks.json (?history)"
    return (
        f"if {issuer} is the authority that you called, fetch its keys with curl -fsS "
        f"'{issuer}/.well-known/aiip.jwks.json?history' -o history.json, and add --history history.json "
        "(curl needs --cacert FILE for a certificate for trials)"
    )


def _parse_time(text: str | None) -> float:
    if text is None:
        return _get_timestamp()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise UsageError(
            f"--at {text} is not a time with an offset",
            code="usage.command-line",
            hint="write a time such as 2026-11-22T09:30:00Z",
        )
    return at.timestamp()


def _format_iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


#: seconds
_MAX_AGE: Final = 24 * 3600
_ALGORITHM: Final = click.Choice(RECEIPT_ALGORITHMS)
#: what to do without a private key
_LOST_KEY_HINT: Final = (
    "restore it from a backup, or run onym ai keys revoke to use the next key at once (receipts by a "
    "revoked key become invalid)"
)

_folder = click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


@click.group(
    "keys", cls=_commands.OrderedGroup, short_help="Manage the keys that sign the answers of an authority."
)
def keys_command() -> None:
    """Manage the keys with which an ai:// authority signs its answers. Every command accepts --json.

    DIR is a folder that only you can read. `onym ai serve --keys DIR` signs with its keys and publishes them.

    \b
    Examples:
      onym ai keys new keys
      onym ai keys rotate keys
      onym ai keys revoke keys KID
      onym ai keys publish keys > aiip.jwks.json
      onym ai keys join keys --fleet postgresql://onym@db.example/fleet
    """


_fleet = click.option(
    "--fleet",
    metavar="URL",
    help="The database of the machines' keys: a file, or postgresql://USER@HOST/NAME.",
)


@keys_command.command("new", short_help="Create a key folder and its first signing key.")
@_folder
@click.option("--algorithm", type=_ALGORITHM, default="Ed25519", show_default=True, help="The algorithm.")
@_commands.pass_session
def new_command(session: Session, /, folder: Path, algorithm: str) -> None:
    """Create a key folder and its first signing key. A folder that does not exist is created for you only."""
    kid = _open_key_store(folder).new(algorithm, at=_get_timestamp())
    _print_key(session, folder, kid, "signs from now on")


@keys_command.command("rotate", short_help="Rotate the signing key, with overlap.")
@_folder
@click.option("--algorithm", type=_ALGORITHM, help="The new key's algorithm. Default: that of the old key.")
@_commands.make_duration_option(
    "--max-age",
    least=60.0,
    most=float(_MAX_AGE),
    help="How long clients may cache the key set (1h). The new key signs after it.",
)
@_commands.pass_session
def rotate_command(session: Session, /, folder: Path, algorithm: str | None, max_age: float | None) -> None:
    """Rotate the signing key. The new key is published before it is used, so that clients already know it.

    The new key signs when every client's copy of the key set has expired. The old key stays published until
    its last receipt has expired. A second call before that changes nothing.
    """
    at = _get_timestamp()
    store = _open_key_store(folder, None if max_age is None else round(max_age))
    kid = store.rotate(at, algorithm=algorithm)
    lost = [record.kid for record in store.records() if record.can_sign(at) and _is_lost(store, record, at)]
    starts = _format_time(next(record.starts for record in store.records() if record.kid == kid))
    for lost_kid in lost:
        message = f"{lost_kid} is scheduled to sign, but its private key is lost"
        session.print_note(f"{message}: {_LOST_KEY_HINT}", kind="warning")
    _print_key(session, folder, kid, f"signs from {starts}", starts=starts)


@keys_command.command("join", short_help="Announce this machine's keys to its fleet.")
@_folder
@click.option("--fleet", metavar="URL", required=True,
              help="The machines' database: a file, or postgresql://USER@HOST/NAME.")  # fmt: skip
@_commands.pass_session
def join_command(session: Session, /, folder: Path, fleet: str) -> None:
    """Announce this machine's keys to its fleet, before the machine serves.

    All machines publish the keys of all. A new key signs when every client's copy of the key set has expired;
    the first key of a fleet signs at once.
    """
    from onym.ai.endpoint.signing import FleetKeys  # late, as in every command

    with FleetKeys(_open_key_store(folder), fleet, background=False) as keys:
        at = _get_timestamp()
        for record in keys.list_own():
            starts = _format_time(record.starts)
            waits = f"signs from {starts}" if record.is_waiting(at) else record.get_state(at)
            _print_key(session, folder, record.kid, waits, starts=starts)


@keys_command.command(
    "revoke",
    short_help="Revoke a key permanently.",
    # one kid in 64 begins with a hyphen
    context_settings={"ignore_unknown_options": True},
)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("kid", required=False)
@_fleet
@_commands.yes_option
@_commands.pass_session
def revoke_command(session: Session, /, folder: Path, kid: str | None, fleet: str | None, yes: bool) -> None:
    """Revoke a key that was exposed. Everything that it signed becomes invalid, saved or not.

    If it is the signing key, the next key signs at once; a new key is created if there is none.

    With --fleet, give only the KID, of any machine: no machine accepts the key after a minute.

    \b
    Examples:
      onym ai keys revoke keys KID
      onym ai keys revoke KID --fleet postgresql://onym@db.example/fleet
    """
    if fleet is not None:
        from onym.ai.endpoint.signing import revoke_fleet_key

        if kid is not None:
            raise UsageError("--fleet revokes the key of any machine", hint="give only the KID, without DIR")
        _commands.confirm_action(session, f"Revoke the key {folder} on every machine?", yes=yes)
        revoke_fleet_key(fleet, str(folder))
        session.print_record({"kid": str(folder), "revoked": True})
        session.print_line(
            f"{session.paint(str(folder), 'name')}  revoked; every machine knows it in a minute"
        )
        return
    if kid is None:
        raise UsageError("the key to revoke is missing", hint="onym ai keys list DIR shows the keys")
    _commands.confirm_action(session, f"Revoke the key {kid} in {folder}?", yes=yes)
    now = _open_key_store(folder).revoke(kid, _get_timestamp())
    session.print_note(f"{kid} is revoked; publish the new key set at once", kind="note")
    _print_key(session, folder, now, "signs from now on")


@keys_command.command("publish", short_help="Write the public key set (JWKS).")
@_folder
@click.option("--history", is_flag=True, help="Include every key that ever signed, for auditors of receipts.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              help="Write the key set to FILE instead of standard output.")  # fmt: skip
@_commands.pass_session
def publish_command(session: Session, /, folder: Path, history: bool, output: Path | None) -> None:
    """Write the public key set (application/jwk-set+json). It contains no secret."""
    store = _open_key_store(folder)
    text = (store.history if history else store.jwks)(_get_timestamp()).decode("ascii") + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    with replace_text_file(output) as write:
        write(text)
    session.print_record({"output": str(output)})


@keys_command.command("list", short_help="List the keys and the state of each.")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path))
@_fleet
@_commands.pass_session
def list_command(session: Session, /, folder: Path | None, fleet: str | None) -> None:
    """List the keys: signing, waiting, kept (published, but no longer signing), retired, revoked or lost.

    A key is lost if it signs now or later, but its private file is missing or unreadable. With --fleet
    instead of DIR, the keys of all machines are listed.
    """
    if fleet is not None:
        from onym.ai.endpoint.signing import list_fleet_keys

        at = _get_timestamp()
        announced = [(record, record.get_state(at)) for record in list_fleet_keys(fleet)]
        session.print_record({"keys": [_build_key_record(record, state) for record, state in announced]})
        session.print_table([_build_key_row(record, state) for record, state in announced], styles=("name",))
        return
    if folder is None:
        raise UsageError("the folder of the keys is missing", hint="give DIR, or --fleet URL")
    at, store = _get_timestamp(), _open_key_store(folder)
    records = store.records()
    states = {
        record.kid: "lost" if _is_lost(store, record, at) else record.get_state(at) for record in records
    }
    session.print_record({"keys": [_build_key_record(record, states[record.kid]) for record in records]})
    session.print_table([_build_key_row(record, states[record.kid]) for record in records], styles=("name",))
    if "lost" in states.values():
        message = f"the private file of a lost key is missing or unreadable: {_LOST_KEY_HINT}"
        session.print_note(message, kind="warning")


def _is_lost(store: KeyStore, record: KeyRecord, at: float) -> bool:
    """Return whether a key signs now or later and its private file cannot be read."""
    if not (record.can_sign(at) or record.is_waiting(at)):
        return False
    try:
        store.signer(max(at, record.starts))
    except (CredentialError, SignatureError):
        return True
    return False


def _open_key_store(folder: Path, max_age: int | None = None) -> KeyStore:
    require_extra("joserfc", "ai")
    from onym.sign.keystore import MAX_AGE, KeyStore  # late: the JOSE library

    return KeyStore(folder, max_age=MAX_AGE if max_age is None else max_age)


def _print_key(session: Session, folder: Path, kid: str, effect: str, **members: str) -> None:
    session.print_record({"kid": kid, "folder": str(folder), **members})
    session.print_line(f"{session.paint(kid, 'name')}  {effect}")


def _build_key_record(record: KeyRecord, state: str) -> dict[str, Any]:
    times = select_fields(record, "created", "starts", "ends", "dropped", "revoked")
    return {
        **select_fields(record, "kid", "algorithm"),
        "state": state,
        **{name: None if at is None else _format_time(at) for name, at in times.items()},
    }


def _build_key_row(record: KeyRecord, state: str) -> tuple[str, ...]:
    end = record.revoked if record.revoked is not None else record.ends
    until = "" if end is None else f" until {_format_time(end)}"
    return record.kid, record.algorithm, state, f"from {_format_time(record.starts)}{until}"


def _get_timestamp() -> float:
    return datetime.now(UTC).timestamp()


def _format_time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        raise UsageError(
            f"the key store contains a time outside the calendar ({at:g})", code="usage.input-file"
        ) from None
