"""The signing keys of an authority in a folder: new, in use, rotated, revoked (AIIP/HTTPS v1, 3.9).

The folder (0700) holds `keys.json`, which says what each key is and when it signs, and a private JWK for each
key that may still sign, all 0600. Processes may share it: whoever changes it holds a lock, and a reader sees
the file before or after a change, never half of one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from onym._lazy import require
from onym.errors import CredentialError, SignatureError
from onym.sign._files import check_folder, locked, make_folder, read_private, remove, write_private
from onym.sign._jwk import RECEIPT_ALGORITHMS
from onym.sign._keyfile import KeyRecord, read_records, write_records
from onym.sign.authority import LEEWAY, MAX_HISTORY
from onym.sign.keys import Signer, SigningKey
from onym.sign.receipt import MAX_LIFE
from onym.uri.secret import Secret

__all__ = ["MAX_AGE", "KeyRecord", "KeyStore"]

#: seconds that others may keep a copy of the key set, where nobody says more
MAX_AGE: Final = 3600.0
#: seconds between a look at the clock and one at the keys, at most
_MOMENT: Final = 1.0
_STATE: Final = "keys.json"
_LOCK: Final = ".lock"
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
        require("joserfc", "ai")  # before there is a folder without a key
        _check_algorithm(algorithm)
        make_folder(self.path)
        made = _Maker(self.path, algorithm, at, starts=at)

        def change(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
            if any(each.may_sign(at) or each.waits(at) for each in records):
                raise CredentialError(
                    f"{self.path} holds a key that signs",
                    code="credential.key-exists",
                    hint="onym ai keys rotate replaces it with overlap, onym ai keys revoke at once",
                )
            return (*records, made.record())

        self._change(change, at)
        return made.kid

    def rotate(self, at: float, *, algorithm: str | None = None) -> str:
        """Publish a new key now, and sign with it once everybody's copy of the set is new; its kid.

        Where a new key waits already, nothing changes: of two processes one rotates. Raises CredentialError
        where no key signs.
        """
        if algorithm is not None:
            _check_algorithm(algorithm)
        found: list[str] = []

        def change(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
            waiting = next((each for each in records if each.waits(at)), None)
            if waiting is not None:
                found.append(waiting.kid)
                return records
            current = self._current(records, at)
            starts = at + self.max_age
            made = _Maker(self.path, algorithm or current.algorithm, at, starts=starts)
            found.append(made.kid)
            ended = current.until(starts, starts + self.max_age + MAX_LIFE + LEEWAY)
            return (*(ended if each is current else each for each in records), made.record())

        self._change(change, at)
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
            left = tuple(each.revoke(at) if each.kid == kid else each for each in records)
            left, now = self._succeed(left, at)
            found.append(now)
            return left

        self._change(change, at)
        return found[0]

    def _succeed(self, records: tuple[KeyRecord, ...], at: float) -> tuple[tuple[KeyRecord, ...], str]:
        """The records with a key that signs now: the present one, the next one at once, or a new one."""
        current = next((each for each in records if each.may_sign(at)), None)
        waiting = next((each for each in records if each.waits(at)), None)
        if current is not None:
            # where the one that would have followed is revoked, there is no end in sight any more
            lasting = current if waiting else current.until(None, None)
            return tuple(lasting if each is current else each for each in records), current.kid
        if waiting is not None:
            begun = replace(waiting, starts=at)
            return tuple(begun if each is waiting else each for each in records), begun.kid
        last = max(records, key=lambda each: each.starts)
        made = _Maker(self.path, last.algorithm, at, starts=at)
        return (*records, made.record()), made.kid

    def signer(self, at: float) -> Signer:
        """The key that signs now. Raises CredentialError where there is none."""
        try:
            return self._signer(at)
        except CredentialError:
            # the key may have been replaced between the look at the list and the one at its file
            return self._signer(at)

    def _signer(self, at: float) -> Signer:
        record = self._current(self.records(), at)
        with self._guard:
            signer = self._signers.get(record.kid)
            if signer is None:
                signer = self._signers[record.kid] = self._private(record)
        return signer

    def jwks(self, at: float) -> bytes:
        """The key set to serve: what signs, what will, what signed lately; and the kids that are revoked."""
        return _set(self.records(), lambda each: each.published(at))

    def history(self, at: float) -> bytes:
        """The key set for auditors: every key that was ever published, with the time in which it signed."""
        return _set(self.records(), lambda each: each.created <= at, past=True)

    def records(self) -> tuple[KeyRecord, ...]:
        """What the store says of each key, oldest first; read again when its file has changed."""
        check_folder(self.path)
        try:
            found = (self.path / _STATE).stat()
        except OSError as error:
            raise CredentialError(
                f"{self.path} holds no keys: {error.strerror}", hint="onym ai keys new makes the first"
            ) from None
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        with self._guard:
            if stamp != self._stamp:
                self._records = self._read()
                self._stamp = stamp
                # a key that was revoked is not kept in memory
                usable = {each.kid for each in self._records if each.revoked is None}
                self._signers = {kid: key for kid, key in self._signers.items() if kid in usable}
            return self._records

    def _read(self) -> tuple[KeyRecord, ...]:
        return read_records(read_private(self.path / _STATE, _MAX_STATE), str(self.path / _STATE))

    def _private(self, record: KeyRecord) -> SigningKey:
        file = _file(self.path, record.kid)
        if not file.exists():
            raise CredentialError(
                f"the private key {record.kid} is not in {self.path}",
                code="credential.no-key",
                hint="put it back from a copy, or onym ai keys revoke takes the next one at once",
            )
        octets = read_private(file, _MAX_KEY)
        key = SigningKey.read(Secret(octets.decode("utf-8", "replace")), algorithm=record.algorithm)
        if key.with_thumbprint().kid != record.kid:
            raise CredentialError("the private key is not that of its name", code="credential.wrong-key")
        return key.with_thumbprint()

    def _current(self, records: tuple[KeyRecord, ...], at: float) -> KeyRecord:
        # a key that was revoked since the caller looked at the clock has a successor that begins after that
        found = [each for each in records if each.may_sign(at)]
        found = found or [each for each in records if each.may_sign(at + _MOMENT)]
        if not found:
            raise CredentialError(
                f"{self.path} holds no key that may sign now",
                code="credential.no-key",
                hint="onym ai keys list shows why, onym ai keys new makes one",
            )
        return max(found, key=lambda each: each.starts)

    def _change(self, change: _Change, at: float) -> None:
        check_folder(self.path)
        with locked(self.path / _LOCK):
            before = self._read() if (self.path / _STATE).exists() else ()
            after = change(before)
            if len(after) > MAX_HISTORY:
                raise CredentialError(
                    f"{self.path} holds {MAX_HISTORY} keys, and a history has no more",
                    code="credential.too-many",
                    hint="publish its history elsewhere and begin a new folder",
                )
            write_private(self.path / _STATE, write_records(after))
            for each in after:
                if not (each.may_sign(at) or each.waits(at)):
                    remove(_file(self.path, each.kid))


class _Maker:
    """A new key: its private file is written when its record is asked for, before any record names it."""

    def __init__(self, folder: Path, algorithm: str, at: float, *, starts: float) -> None:
        self._folder, self._algorithm, self._at, self._starts = folder, algorithm, at, starts
        self.kid = "-"
        while self.kid.startswith("-"):
            # on a command line that would be an option
            self._key = SigningKey.generate(algorithm).with_thumbprint()
            self.kid = str(self._key.kid)

    def record(self) -> KeyRecord:
        write_private(_file(self._folder, self.kid), self._key.secret().reveal().encode())
        return KeyRecord(
            kid=self.kid,
            algorithm=self._algorithm,
            public=self._key.public(),
            created=self._at,
            starts=self._starts,
        )


def _set(records: tuple[KeyRecord, ...], chosen: Callable[[KeyRecord], bool], *, past: bool = False) -> bytes:
    keys: list[dict[str, Any]] = [each.jwk(past=past) for each in records if chosen(each)]
    revoked = [each.kid for each in records if each.revoked is not None]
    found = {"keys": keys} | ({"revoked": revoked} if revoked else {})
    return json.dumps(found, indent=1).encode("ascii")


def _file(folder: Path, kid: str) -> Path:
    return folder / f"{kid}.jwk"


def _check_algorithm(algorithm: str) -> None:
    if algorithm not in RECEIPT_ALGORITHMS:
        raise SignatureError(
            "this algorithm is not for receipts",
            code="sign.bad-algorithm",
            hint=f"one of {', '.join(RECEIPT_ALGORITHMS)}",
        )
