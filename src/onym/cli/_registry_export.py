"""The formats of `onym registry export`: what each needs of a registry, and the text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onym.cli._input import key_file
from onym.errors import SignatureError, UsageError
from onym.registry.records import Entry, Status
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.registry.store import EntryChange
    from onym.sign.keys import SigningKey

__all__ = ["FEED", "FORMATS", "NOBODY", "Export", "written"]

#: changes that a feed holds at most
FEED: Final = 200
#: how long a namespaces file holds
_NAMESPACES_HOLD: Final = timedelta(days=30)
#: octets of a key file
_MAX_KEY: Final = 64 * 1024
#: taggingEntity of feeds (RFC 4151) where nobody said whose they are: a name that nobody owns
NOBODY: Final = "registry.invalid,2026"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What to write: `at` is the time that the file is of, `key` a file with the key that signs it."""

    registry: str
    format: str
    at: datetime
    key: str | None = None
    entries: tuple[Entry, ...]
    #: the last changes, the newest first, for a feed
    changes: Sequence[EntryChange] = ()
    #: the day that the file says it is of, where that is not `at`'s
    dated: date | None = None
    #: the part for csv-2015
    status: Status | None = None
    #: who mints the ids of a feed, and the service's origin that its links lead to
    authority: str = NOBODY
    origin: str | None = None


def written(what: Export) -> str:
    """The registry as text. Raises UsageError for a format that is not of this registry."""
    return FORMATS.get(what.format, _published)(what)


def _published(what: Export) -> str:
    """IANA's formats, and JSON."""
    from onym.registry.iana import write

    return write(
        what.entries,
        format=what.format,
        registry=what.registry,
        updated=what.dated or what.at.date(),
        status=what.status,
    )


def _atom(what: Export) -> str:
    from onym.registry.iana import atom, logged

    home = f"tag:{what.authority}:{what.registry}"
    link, feed = (lambda name: f"{home}:{name}"), None
    if what.origin is not None:
        from onym.server.registry import urls  # late: the service's addresses, for its feed alone

        origin, row = what.origin, what.registry
        home, feed = origin + urls.entries(row), origin + urls.feed(row)
        link = lambda name: origin + urls.entry(row, name)  # noqa: E731 - of the same shape as above
    return atom(
        filter(None, (logged(each.before, each.after, at=each.at) for each in what.changes)),
        registry=what.registry,
        updated=what.at,
        tagger=what.authority,
        link=link,
        home=home,
        feed=feed,
    )


def _namespaces(what: Export) -> str:
    from onym.registry.iana import write_namespaces

    if what.registry != "ai-namespaces":
        raise UsageError(
            "--format namespaces is for ai-namespaces", code="usage.bad-format", hint="add -r ai-namespaces"
        )
    payload = write_namespaces(what.entries, issued=what.at, expires=what.at + _NAMESPACES_HOLD)
    if what.key is None:
        return payload.decode("utf-8") + "\n"
    from onym.sign.jws import sign_compact  # late: the JOSE library

    return sign_compact(payload, _signing_key(what.key), header={"typ": "onym-ai-namespaces+jws"}) + "\n"


def _signing_key(file: str) -> SigningKey:
    """The private key of a file, for the algorithm that it names, else the one of its kind."""
    from onym.sign.keys import ALGORITHMS, SigningKey

    try:
        text = Path(file).read_bytes()[:_MAX_KEY].decode("utf-8")
        jwk = json.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", code="usage.input-file") from None
    except (ValueError, RecursionError):
        jwk = None
    with key_file(file, "sign.bad-key", "sign.malformed"):
        if not isinstance(jwk, dict):
            raise SignatureError("no key", code="sign.bad-key", hint="a private key as JWK (RFC 7517)")
        kind = (jwk.get("kty"), jwk.get("crv"))
        own = next((name for name, each in ALGORITHMS.items() if each == kind), "Ed25519")
        return SigningKey.read(Secret(text), algorithm=str(jwk.get("alg") or own))


def _tables(what: Export) -> str:
    from onym.registry.iana import write_table

    return write_table(what.entries, registry=what.registry)


#: formats that need more than the entries
FORMATS: Final[dict[str, Callable[[Export], str]]] = {
    "atom": _atom,
    "namespaces": _namespaces,
    "tables": _tables,
}
