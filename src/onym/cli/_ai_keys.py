"""`onym ai keys`: the keys that an authority signs receipts with."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym._lazy import require
from onym.cli._atomic import AtomicFile
from onym.cli._options import json_option
from onym.cli._output import Session
from onym.errors import CredentialError, SignatureError, UsageError

if TYPE_CHECKING:
    from onym.sign.keystore import KeyRecord, KeyStore

__all__ = ["command"]

#: as in onym.sign.keys.RECEIPT_ALGORITHMS, which is heavy to import
_ALGORITHMS: Final = ("Ed25519", "ES256", "ES384", "PS256")
_LATEST: Final = 24 * 3600
#: how one goes on without a private key
_WAYS: Final = (
    "put it back from a copy, or onym ai keys revoke takes the next one at once (receipts by a revoked key "
    "hold no more)"
)

_folder = click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


@click.group("keys")
def command() -> None:
    """Make and change the keys that an ai:// authority signs its answers with. Each takes --json.

    DIR is a folder that you alone can read; `onym ai serve --keys DIR` signs with it and publishes its set.

    \b
    Examples:
      onym ai keys new keys
      onym ai keys rotate keys
      onym ai keys revoke keys KID
      onym ai keys publish keys > aiip.jwks.json
    """


@command.command("new", short_help="Make a folder of keys, and the first key.")
@_folder
@click.option(
    "--algorithm",
    type=click.Choice(_ALGORITHMS),
    default="Ed25519",
    show_default=True,
    help="What it signs with.",
)
@json_option
@click.pass_obj
def new_command(session: Session, /, folder: Path, algorithm: str) -> None:
    """Make a key that signs from now on. DIR is made where it is missing, for you alone."""
    session.command = "ai keys new"
    kid = _store(folder).new(algorithm, at=_now())
    _tell(session, folder, kid, "signs from now on")


@command.command("rotate", short_help="Publish a new key now, and sign with it later.")
@_folder
@click.option(
    "--algorithm",
    type=click.Choice(_ALGORITHMS),
    help="What the new key signs with; without it, as the old one.",
)
@click.option(
    "--max-age",
    type=click.IntRange(60, _LATEST),
    metavar="SECONDS",
    help="How long others may keep a copy of the key set (3600): the new key signs after that time.",
)
@json_option
@click.pass_obj
def rotate_command(session: Session, /, folder: Path, algorithm: str | None, max_age: int | None) -> None:
    """Replace the key that signs, with overlap: nobody meets a signature by a key that he cannot know yet.

    The new key is published at once and signs when everybody's copy of the set is new; the old one stays
    published until its last receipt has expired. A second call before that changes nothing.
    """
    session.command = "ai keys rotate"
    at = _now()
    store = _store(folder, max_age)
    kid = store.rotate(at, algorithm=algorithm)
    lost = [each.kid for each in store.records() if each.may_sign(at) and _is_lost(store, each, at)]
    starts = _time(next(each.starts for each in store.records() if each.kid == kid))
    for each in lost:
        session.note(f"{each} should sign until then, and its private key is lost: {_WAYS}", kind="warning")
    _tell(session, folder, kid, f"signs from {starts}", starts=starts)


@command.command(
    "revoke",
    short_help="Take a key out of use for good.",
    # one kid in 64 begins with a hyphen
    context_settings={"ignore_unknown_options": True},
)
@_folder
@click.argument("kid")
@json_option
@click.pass_obj
def revoke_command(session: Session, /, folder: Path, kid: str) -> None:
    """Revoke a key that somebody else may have: nothing that it signed counts any more, filed or not.

    If it was the one that signs, the next one signs at once, a new one where none waits.
    """
    session.command = "ai keys revoke"
    now = _store(folder).revoke(kid, _now())
    session.note(f"{kid} is revoked; serve the new set at once", kind="note")
    _tell(session, folder, now, "signs from now on")


@command.command("publish", short_help="Write the key set, to be served.")
@_folder
@click.option("--history", is_flag=True, help="Every key that ever signed, for auditors of filed receipts.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file instead of standard output.",
)
@json_option
@click.pass_obj
def publish_command(session: Session, /, folder: Path, history: bool, output: Path | None) -> None:
    """Write the public keys as a JWK Set (application/jwk-set+json). It holds no secret."""
    session.command = "ai keys publish"
    store = _store(folder)
    text = (store.history if history else store.jwks)(_now()).decode("ascii") + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    with AtomicFile(output) as file:
        file.write(text)
    session.record({"output": str(output)})


@command.command("list", short_help="Show the keys and what each is for.")
@_folder
@json_option
@click.pass_obj
def list_command(session: Session, /, folder: Path) -> None:
    """Show each key: signs, waits (for its time), kept (published, signs no more), retired or revoked.

    A key that is to sign, now or later, and whose private file is gone or cannot be read, is lost.
    """
    session.command = "ai keys list"
    at, store = _now(), _store(folder)
    records = store.records()
    states = {each.kid: "lost" if _is_lost(store, each, at) else each.state(at) for each in records}
    session.record({"keys": [_record(each, states[each.kid]) for each in records]})
    if not session.as_json:
        session.table([_row(each, states[each.kid]) for each in records], styles=("name",))
    if "lost" in states.values():
        session.note(f"of a lost key the private file is gone, or cannot be read: {_WAYS}", kind="warning")


def _is_lost(store: KeyStore, each: KeyRecord, at: float) -> bool:
    """Is it this key's turn, now or later, and can it not be had?"""
    if not (each.may_sign(at) or each.waits(at)):
        return False
    try:
        store.signer(max(at, each.starts))
    except (CredentialError, SignatureError):
        return True
    return False


def _store(folder: Path, max_age: int | None = None) -> KeyStore:
    require("joserfc", "ai")
    from onym.sign.keystore import MAX_AGE, KeyStore  # late: the JOSE library

    return KeyStore(folder, max_age=MAX_AGE if max_age is None else max_age)


def _tell(session: Session, folder: Path, kid: str, what: str, **more: str) -> None:
    session.record({"kid": kid, "folder": str(folder), **more})
    session.say(f"{session.paint(kid, 'name')}  {what}")


def _record(each: KeyRecord, state: str) -> dict[str, Any]:
    times = ("created", "starts", "ends", "dropped", "revoked")
    found = {name: getattr(each, name) for name in times}
    return {
        "kid": each.kid,
        "algorithm": each.algorithm,
        "state": state,
        **{name: None if value is None else _time(value) for name, value in found.items()},
    }


def _row(each: KeyRecord, state: str) -> tuple[str, ...]:
    end = each.revoked if each.revoked is not None else each.ends
    until = "" if end is None else f" until {_time(end)}"
    return each.kid, each.algorithm, state, f"from {_time(each.starts)}{until}"


def _now() -> float:
    return datetime.now(UTC).timestamp()


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        raise UsageError("the store holds a time that is none", code="usage.input-file") from None
