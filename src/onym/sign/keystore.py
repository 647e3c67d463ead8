"""The signing keys of an authority in a folder: create, use, rotate and revoke (AIIP/HTTPS v1, 3.9).

The folder (mode 0700) holds `keys.json`, the state and the signing period of each key, and a private JWK for
each key that may still sign (mode 0600). Processes may share the folder: a writer holds a lock, and a reader
sees the file before or after a change, never in between.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from onym._lazy import require_extra
from onym.common.files import (
    lock_private_file,
    make_private_folder,
    read_private_file,
    remove_private_file,
    require_private_folder,
    write_private_file,
)
from onym.errors import CredentialError, SignatureError
from onym.sign.algorithms import RECEIPT_ALGORITHMS
from onym.sign.encoding import parse_json_object
from onym.sign.keys import LEEWAY, MAX_HISTORY, PRIVATE, Signer, SigningKey, thumbprint
from onym.sign.receipts import MAX_LIFE
from onym.uri.secret import Secret

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

    def can_sign(self, at: float) -> bool:
        """Is this its time?"""
        return self.revoked is None and self.starts <= at < _or_never(self.ends)

    def is_waiting(self, at: float) -> bool:
        """Is its time to come?"""
        return self.revoked is None and at < self.starts

    def is_published(self, at: float) -> bool:
        """Is it in the set that is served?"""
        return self.revoked is None and self.created <= at < _or_never(self.dropped)

    def get_state(self, at: float) -> str:
        """One word for people: signs, waits, kept, retired or revoked."""
        if self.revoked is not None:
            return "revoked"
        if self.is_waiting(at):
            return "waits"
        if self.can_sign(at):
            return "signs"
        return "kept" if self.is_published(at) else "retired"

    def with_end(self, ends: float | None, dropped: float | None) -> KeyRecord:
        """The same key with another end."""
        return replace(self, ends=ends, dropped=dropped)

    def with_revocation(self, at: float) -> KeyRecord:
        """The same key, revoked; a second time changes nothing."""
        return self if self.revoked is not None else replace(self, revoked=at)

    def to_jwk(self, *, past: bool) -> dict[str, Any]:
        """The public JWK with the time that its signatures are of, and in a history its end by revocation."""
        times: dict[str, Any] = {"nbf": _floor_seconds(self.starts)}
        if self.ends is not None:
            times["exp"] = _floor_seconds(self.ends)
        if past and self.revoked is not None:
            times["revoked"] = {"revoked_at": _floor_seconds(self.revoked)}
        return {**self.public, **times}


def encode_records(records: tuple[KeyRecord, ...]) -> bytes:
    """The file's octets."""
    rows = [{name: value for name, value in asdict(each).items() if value is not None} for each in records]
    return json.dumps({"format": _FORMAT, "keys": rows}, indent=1).encode("ascii")


def decode_records(octets: bytes, name: str) -> tuple[KeyRecord, ...]:
    """The records of a file; `name` is the file's. Raises CredentialError for one that Onym did not write."""
    try:
        found = parse_json_object(octets, "file")
        rows = found.get("keys")
        if found.get("format") == _FORMAT and isinstance(rows, list):
            return tuple(_parse_record(row) for row in rows)
    except (SignatureError, TypeError, ValueError, OverflowError):
        pass  # said below, without a word of what stands there
    raise CredentialError(
        f"{name} is no list of keys of this version", code="credential.unreadable", hint="restore it"
    )


_TIMES: Final = ("created", "starts", "ends", "dropped", "revoked")
_NAMES: Final = frozenset(each.name for each in fields(KeyRecord))


def _parse_record(row: object) -> KeyRecord:
    if not isinstance(row, dict) or not row.keys() <= _NAMES or not _is_valid_public(row):
        raise ValueError
    times = {name: math.fsum([row[name]]) for name in _TIMES if name in row}  # of a number alone
    return KeyRecord(**{**row, **times})


def _is_valid_public(row: dict[str, Any]) -> bool:
    public = row.get("public")
    return (
        isinstance(public, dict)
        and PRIVATE.isdisjoint(public)
        and row.get("algorithm") in RECEIPT_ALGORITHMS
        and thumbprint(public) == row.get("kid")
    )


def _or_never(at: float | None) -> float:
    return math.inf if at is None else at


def _floor_seconds(at: float) -> int:
    return math.floor(at)


#: seconds that others may keep a copy of the key set, where nobody says more
MAX_AGE: Final = 3600.0
#: seconds between a look at the clock and one at the keys, at most
_MOMENT: Final = 1.0
_STATE_FILE: Final = "keys.json"
_LOCK_FILE: Final = ".lock"
_MAX_STATE: Final = 1024 * 1024
_MAX_KEY: Final = 16 * 1024
_Change = Callable[[tuple[KeyRecord, ...]], tuple[KeyRecord, ...]]


class KeyStore:
    """A folder of keys. Times (`at`) are seconds since the epoch.

    `max_age` is how long others may keep a copy of `jwks`; what serves it says so in Cache-Control. A new key
    is published that long before it signs, an old one that long, and the life of a receipt, after it signed
    last. Threads may share a store.
    """

    def __init__(self, path: str | Path, *, max_age: float = MAX_AGE) -> None:
        self.path = Path(path)
        self.max_age = max_age
        self._guard = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._records: tuple[KeyRecord, ...] = ()
        self._signers: dict[str, SigningKey] = {}

    def new(self, algorithm: str = "Ed25519", *, at: float) -> str:
        """Make the folder, if need be, and a key that signs from now on; its kid.

        Raises CredentialError where there is a key that signs already (`credential.key-exists`), where the
        folder or a file is open to others or cannot be used, SignatureError for another algorithm.
        """
        require_extra("joserfc", "ai")  # before there is a folder without a key
        _require_algorithm(algorithm)
        make_private_folder(self.path)
        made = _KeyMaker(self.path, algorithm, at, starts=at)

        def change(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
            if any(each.can_sign(at) or each.is_waiting(at) for each in records):
                raise CredentialError(
                    f"{self.path} holds a key that signs",
                    code="credential.key-exists",
                    hint="onym ai keys rotate replaces it with overlap, onym ai keys revoke at once",
                )
            return (*records, made.write_record())

        self._update_records(change, at)
        return made.kid

    def rotate(self, at: float, *, algorithm: str | None = None) -> str:
        """Publish a new key now, and sign with it once everybody's copy of the set is new; its kid.

        Where a new key waits already, nothing changes: of two processes one rotates. Raises CredentialError
        where no key signs.
        """
        if algorithm is not None:
            _require_algorithm(algorithm)
        found: list[str] = []

        def change(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
            waiting = next((each for each in records if each.is_waiting(at)), None)
            if waiting is not None:
                found.append(waiting.kid)
                return records
            current = self._find_current(records, at)
            starts = at + self.max_age
            made = _KeyMaker(self.path, algorithm or current.algorithm, at, starts=starts)
            found.append(made.kid)
            ended = current.with_end(starts, starts + self.max_age + MAX_LIFE + LEEWAY)
            return (*(ended if each is current else each for each in records), made.write_record())

        self._update_records(change, at)
        return found[0]

    def revoke(self, kid: str, at: float) -> str:
        """Take a key out of use for good; the kid of the key that signs from now on.

        That is the one that signed, or waited, or else a new one. The private key is removed. Raises
        CredentialError for a key that is not in this store.
        """
        found: list[str] = []

        def change(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
            if all(each.kid != kid for each in records):
                raise CredentialError(
                    "the store has no key of that kid",
                    code="credential.no-key",
                    hint="onym ai keys list shows them",
                )
            left = tuple(each.with_revocation(at) if each.kid == kid else each for each in records)
            left, now = self._ensure_signing_key(left, at)
            found.append(now)
            return left

        self._update_records(change, at)
        return found[0]

    def _ensure_signing_key(
        self, records: tuple[KeyRecord, ...], at: float
    ) -> tuple[tuple[KeyRecord, ...], str]:
        """The records with a key that signs now: the present one, the next one at once, or a new one."""
        current = next((each for each in records if each.can_sign(at)), None)
        waiting = next((each for each in records if each.is_waiting(at)), None)
        if current is not None:
            # where the one that would have followed is revoked, there is no end in sight any more
            lasting = current if waiting else current.with_end(None, None)
            return tuple(lasting if each is current else each for each in records), current.kid
        if waiting is not None:
            begun = replace(waiting, starts=at)
            return tuple(begun if each is waiting else each for each in records), begun.kid
        last = max(records, key=lambda each: each.starts)
        made = _KeyMaker(self.path, last.algorithm, at, starts=at)
        return (*records, made.write_record()), made.kid

    def signer(self, at: float) -> Signer:
        """The key that signs now. Raises CredentialError where there is none."""
        try:
            return self._load_signer(at)
        except CredentialError:
            # the key may have been replaced between the look at the list and the one at its file
            return self._load_signer(at)

    def _load_signer(self, at: float) -> Signer:
        record = self._find_current(self.records(), at)
        with self._guard:
            signer = self._signers.get(record.kid)
            if signer is None:
                signer = self._signers[record.kid] = self._load_private_key(record)
        return signer

    def jwks(self, at: float) -> bytes:
        """The key set to serve: what signs, what will, what signed lately; and the kids that are revoked."""
        return _encode_key_set(self.records(), lambda each: each.is_published(at))

    def history(self, at: float) -> bytes:
        """The key set for auditors: every key that was ever published, with the time in which it signed."""
        return _encode_key_set(self.records(), lambda each: each.created <= at, past=True)

    def records(self) -> tuple[KeyRecord, ...]:
        """What the store says of each key, oldest first; read again when its file has changed."""
        require_private_folder(self.path)
        try:
            found = (self.path / _STATE_FILE).stat()
        except OSError as error:
            raise CredentialError(
                f"{self.path} holds no keys: {error.strerror}", hint="onym ai keys new makes the first"
            ) from None
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        with self._guard:
            if stamp != self._stamp:
                self._records = self._load_records()
                self._stamp = stamp
                # a key that was revoked is not kept in memory
                usable = {each.kid for each in self._records if each.revoked is None}
                self._signers = {kid: key for kid, key in self._signers.items() if kid in usable}
            return self._records

    def _load_records(self) -> tuple[KeyRecord, ...]:
        return decode_records(
            read_private_file(self.path / _STATE_FILE, _MAX_STATE), str(self.path / _STATE_FILE)
        )

    def _load_private_key(self, record: KeyRecord) -> SigningKey:
        file = _get_key_file(self.path, record.kid)
        if not file.exists():
            raise CredentialError(
                f"the private key {record.kid} is not in {self.path}",
                code="credential.no-key",
                hint="put it back from a copy, or onym ai keys revoke takes the next one at once",
            )
        octets = read_private_file(file, _MAX_KEY)
        key = SigningKey.from_jwk(Secret(octets.decode("utf-8", "replace")), algorithm=record.algorithm)
        if key.with_thumbprint().kid != record.kid:
            raise CredentialError("the private key is not that of its name", code="credential.wrong-key")
        return key.with_thumbprint()

    def _find_current(self, records: tuple[KeyRecord, ...], at: float) -> KeyRecord:
        # a key that was revoked since the caller looked at the clock has a successor that begins after that
        found = [each for each in records if each.can_sign(at)]
        found = found or [each for each in records if each.can_sign(at + _MOMENT)]
        if not found:
            raise CredentialError(
                f"{self.path} holds no key that may sign now",
                code="credential.no-key",
                hint="onym ai keys list shows why, onym ai keys new makes one",
            )
        return max(found, key=lambda each: each.starts)

    def _update_records(self, change: _Change, at: float) -> None:
        require_private_folder(self.path)
        with lock_private_file(self.path / _LOCK_FILE):
            before = self._load_records() if (self.path / _STATE_FILE).exists() else ()
            after = change(before)
            if len(after) > MAX_HISTORY:
                raise CredentialError(
                    f"{self.path} holds {MAX_HISTORY} keys, and a history has no more",
                    code="credential.too-many",
                    hint="publish its history elsewhere and begin a new folder",
                )
            write_private_file(self.path / _STATE_FILE, encode_records(after))
            for each in after:
                if not (each.can_sign(at) or each.is_waiting(at)):
                    remove_private_file(_get_key_file(self.path, each.kid))


class _KeyMaker:
    """A new key: its private file is written when its record is asked for, before any record names it."""

    def __init__(self, folder: Path, algorithm: str, at: float, *, starts: float) -> None:
        self._folder, self._algorithm, self._at, self._starts = folder, algorithm, at, starts
        self.kid = "-"
        while self.kid.startswith("-"):
            # on a command line that would be an option
            self._key = SigningKey.generate(algorithm).with_thumbprint()
            self.kid = str(self._key.kid)

    def write_record(self) -> KeyRecord:
        write_private_file(_get_key_file(self._folder, self.kid), self._key.secret().reveal().encode())
        return KeyRecord(
            kid=self.kid,
            algorithm=self._algorithm,
            public=self._key.public(),
            created=self._at,
            starts=self._starts,
        )


def _encode_key_set(
    records: tuple[KeyRecord, ...], chosen: Callable[[KeyRecord], bool], *, past: bool = False
) -> bytes:
    keys: list[dict[str, Any]] = [each.to_jwk(past=past) for each in records if chosen(each)]
    revoked = [each.kid for each in records if each.revoked is not None]
    found = {"keys": keys} | ({"revoked": revoked} if revoked else {})
    return json.dumps(found, indent=1).encode("ascii")


def _get_key_file(folder: Path, kid: str) -> Path:
    return folder / f"{kid}.jwk"


def _require_algorithm(algorithm: str) -> None:
    if algorithm not in RECEIPT_ALGORITHMS:
        raise SignatureError(
            "this algorithm is not for receipts",
            code="sign.bad-algorithm",
            hint=f"one of {', '.join(RECEIPT_ALGORITHMS)}",
        )
