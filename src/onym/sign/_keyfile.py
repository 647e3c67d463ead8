"""What a key store says of each key, and the file that it is kept in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from onym.errors import CredentialError, SignatureError
from onym.sign._jwk import PRIVATE, RECEIPT_ALGORITHMS, thumbprint
from onym.sign._strict import read_object

__all__ = ["KeyRecord", "read_records", "write_records"]

_FORMAT: Final = "onym-keys-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One key of a store; its private part is elsewhere. Times are seconds since the epoch.

    It is published from `created` on, signs from `starts` until `ends`, and stays published until `dropped`;
    None is no end yet. `revoked` is when it was revoked.
    """

    kid: str
    algorithm: str
    public: Mapping[str, Any]
    created: float
    starts: float
    ends: float | None = None
    dropped: float | None = None
    revoked: float | None = None

    def may_sign(self, at: float) -> bool:
        """Is this its time?"""
        return self.revoked is None and self.starts <= at < _or_never(self.ends)

    def waits(self, at: float) -> bool:
        """Is its time to come?"""
        return self.revoked is None and at < self.starts

    def published(self, at: float) -> bool:
        """Is it in the set that is served?"""
        return self.revoked is None and self.created <= at < _or_never(self.dropped)

    def state(self, at: float) -> str:
        """One word for people: signs, waits, kept, retired or revoked."""
        if self.revoked is not None:
            return "revoked"
        if self.waits(at):
            return "waits"
        if self.may_sign(at):
            return "signs"
        return "kept" if self.published(at) else "retired"

    def until(self, ends: float | None, dropped: float | None) -> KeyRecord:
        """The same key with another end."""
        return replace(self, ends=ends, dropped=dropped)

    def revoke(self, at: float) -> KeyRecord:
        """The same key, revoked; a second time changes nothing."""
        return self if self.revoked is not None else replace(self, revoked=at)

    def jwk(self, *, past: bool) -> dict[str, Any]:
        """The public JWK with the time that its signatures are of, and in a history its end by revocation."""
        times: dict[str, Any] = {"nbf": _whole(self.starts)}
        if self.ends is not None:
            times["exp"] = _whole(self.ends)
        if past and self.revoked is not None:
            times["revoked"] = {"revoked_at": _whole(self.revoked)}
        return {**self.public, **times}


def write_records(records: tuple[KeyRecord, ...]) -> bytes:
    """The file's octets."""
    rows = [{name: value for name, value in asdict(each).items() if value is not None} for each in records]
    return json.dumps({"format": _FORMAT, "keys": rows}, indent=1).encode("ascii")


def read_records(octets: bytes, name: str) -> tuple[KeyRecord, ...]:
    """The records of a file; `name` is the file's. Raises CredentialError for one that Onym did not write."""
    try:
        found = read_object(octets, "file")
        rows = found.get("keys")
        if found.get("format") == _FORMAT and isinstance(rows, list):
            return tuple(_record(row) for row in rows)
    except (SignatureError, TypeError, ValueError, OverflowError):
        pass  # said below, without a word of what stands there
    raise CredentialError(
        f"{name} is no list of keys of this version", code="credential.unreadable", hint="restore it"
    )


_TIMES: Final = ("created", "starts", "ends", "dropped", "revoked")
_NAMES: Final = frozenset(each.name for each in fields(KeyRecord))


def _record(row: object) -> KeyRecord:
    if not isinstance(row, dict) or not row.keys() <= _NAMES or not _is_public(row):
        raise ValueError
    times = {name: math.fsum([row[name]]) for name in _TIMES if name in row}  # of a number alone
    return KeyRecord(**{**row, **times})


def _is_public(row: dict[str, Any]) -> bool:
    public = row.get("public")
    return (
        isinstance(public, dict)
        and PRIVATE.isdisjoint(public)
        and row.get("algorithm") in RECEIPT_ALGORITHMS
        and thumbprint(public) == row.get("kid")
    )


def _or_never(at: float | None) -> float:
    return math.inf if at is None else at


def _whole(at: float) -> int:
    return math.floor(at)
