"""The signing keys of an authority: in a folder, or in a PKCS #11 device (AIIP/HTTPS v1, 3.9)."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from onym._lazy import require_extra
from onym.common import files
from onym.common.files import require_private_folder
from onym.common.text import encode_base64url
from onym.errors import CredentialError, MissingExtraError, SignatureError
from onym.sign import keys
from onym.sign.receipts import MAX_LIFE
from onym.uri.secret import Secret

_FORMAT: Final = "onym-keys-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One key of a store, without its private part. Times are seconds since the epoch.

    The key is published from `created` to `dropped` and signs from `starts` to `ends`; None is an open end.
    `revoked` is the time of its revocation.
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
        """Whether the key may sign at that time."""
        return self.revoked is None and self.starts <= at < _or_never(self.ends)

    def is_waiting(self, at: float) -> bool:
        """Whether the key will sign later."""
        return self.revoked is None and at < self.starts

    def is_published(self, at: float) -> bool:
        """Whether the key is in the published set."""
        return self.revoked is None and self.created <= at < _or_never(self.dropped)

    def get_state(self, at: float) -> str:
        """The state in one word: signs, waits, kept, retired or revoked."""
        if self.revoked is not None:
            return "revoked"
        if self.is_waiting(at):
            return "waits"
        if self.can_sign(at):
            return "signs"
        return "kept" if self.is_published(at) else "retired"

    def to_jwk(self, *, past: bool) -> dict[str, Any]:
        """The public JWK with its signing period and, for the history (`past`), its revocation."""
        times: dict[str, Any] = {"nbf": math.floor(self.starts)}
        if self.ends is not None:
            times["exp"] = math.floor(self.ends)
        if past and self.revoked is not None:
            times["revoked"] = {"revoked_at": math.floor(self.revoked)}
        return {**self.public, **times}


def encode_records(records: tuple[KeyRecord, ...]) -> bytes:
    """The content of the state file."""
    rows = [{name: value for name, value in asdict(key).items() if value is not None} for key in records]
    return json.dumps({"format": _FORMAT, "keys": rows}, indent=1).encode("ascii")


def decode_records(content: bytes, name: str) -> tuple[KeyRecord, ...]:
    """The records of the file `name`. Raises CredentialError if Onym did not write it."""
    try:
        document = keys.parse_json_object(content, "file")
        rows = document.get("keys")
        if document.get("format") == _FORMAT and isinstance(rows, list):
            return tuple(_parse_record(row) for row in rows)
    except (SignatureError, TypeError, ValueError, OverflowError):
        pass  # the error below does not quote the file
    message, hint = f"{name} is not a list of keys in format {_FORMAT}", "restore the file from a copy"
    raise CredentialError(message, code="credential.unreadable", hint=hint)


_TIMES: Final = ("created", "starts", "ends", "dropped", "revoked")
_NAMES: Final = frozenset(field.name for field in fields(KeyRecord))


def _parse_record(row: object) -> KeyRecord:
    if not isinstance(row, dict) or not row.keys() <= _NAMES or not _is_valid_public(row):
        raise ValueError
    # fsum raises for values that are not numbers
    times = {name: math.fsum([row[name]]) for name in _TIMES if name in row}
    return KeyRecord(**{**row, **times})


def _is_valid_public(row: dict[str, Any]) -> bool:
    public = row.get("public")
    return (
        isinstance(public, dict)
        and keys.PRIVATE.isdisjoint(public)
        and row.get("algorithm") in keys.RECEIPT_ALGORITHMS
        and keys.thumbprint(public) == row.get("kid")
    )


def _or_never(at: float | None) -> float:
    return math.inf if at is None else at


#: the default lifetime of copies of the key set in seconds
MAX_AGE: Final = 3600.0
#: the longest time between reading the clock and reading the keys, in seconds
_MOMENT: Final = 1.0
#: seconds for which the signing key is not looked up again: a revocation by another process is seen then
_LOOKUP_SECONDS: Final = 0.05
_STATE_FILE: Final = "keys.json"
_LOCK_FILE: Final = ".lock"
_MAX_STATE: Final = 1024 * 1024
_MAX_KEY: Final = 16 * 1024
#: returns the new records and the kid of the key that the caller asks for
_Change = Callable[[tuple[KeyRecord, ...]], tuple[tuple[KeyRecord, ...], str]]


class KeyStore:
    """A folder of keys. Times (`at`) are seconds since the epoch.

    `max_age` is the lifetime of copies of `jwks`, for Cache-Control. A new key is published for that time
    before it signs. An old key stays published for that time and the lifetime of a receipt after its last
    signature. Threads may share a store.

    The folder of a `KeyStore` (mode 0700) contains `keys.json`, the state and the signing period of each key,
    and a private JWK (mode 0600) for each key that may still sign. Processes may share the folder: a writer
    takes a lock, and a reader sees the file before or after a change. With `PKCS11Signer` (smart card, HSM,
    SoftHSM) the private key never leaves the device.
    """

    def __init__(self, path: str | Path, *, max_age: float = MAX_AGE) -> None:
        self.path = Path(path)
        self.max_age = max_age
        self._guard = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._records: tuple[KeyRecord, ...] = ()
        self._signers: dict[str, keys.SigningKey] = {}
        #: the last key that was looked up, and until when it is used (`time.monotonic`)
        self._recent: tuple[KeyRecord, keys.SigningKey, float] | None = None

    def new(self, algorithm: str = "Ed25519", *, at: float) -> str:
        """Create the folder, if necessary, and a key that signs from now on. Returns its kid.

        Raises CredentialError if there is a signing key already (`credential.key-exists`), or if the folder
        or a file is open to others or unusable, SignatureError for another algorithm.
        """
        require_extra("joserfc", "ai")  # or there would be a folder without a key
        _require_algorithm(algorithm)
        files.make_private_folder(self.path)

        def change(records: tuple[KeyRecord, ...]) -> tuple[tuple[KeyRecord, ...], str]:
            if any(record.can_sign(at) or record.is_waiting(at) for record in records):
                message = f"{self.path} already has a signing key"
                hint = f"replace it with onym ai keys rotate {self.path}"
                raise CredentialError(message, code="credential.key-exists", hint=hint)
            made = _create_key(self.path, algorithm, at, starts=at)
            return (*records, made), made.kid

        return self._update_records(change, at)

    def rotate(self, at: float, *, algorithm: str | None = None) -> str:
        """Publish a new key now, and sign with it when all copies of the set are new. Returns its kid.

        If a new key is waiting already, nothing changes, so that only one of two processes rotates. Raises
        CredentialError if no key signs.
        """
        if algorithm is not None:
            _require_algorithm(algorithm)

        def change(records: tuple[KeyRecord, ...]) -> tuple[tuple[KeyRecord, ...], str]:
            waiting = _find_waiting(records, at)
            if waiting is not None:
                return records, waiting.kid
            current = self._find_current(records, at)
            starts = at + self.max_age
            made = _create_key(self.path, algorithm or current.algorithm, at, starts=starts)
            ended = replace(current, ends=starts, dropped=starts + self.max_age + MAX_LIFE + keys.LEEWAY)
            return (*_replace_record(records, current, ended), made), made.kid

        return self._update_records(change, at)

    def revoke(self, kid: str, at: float) -> str:
        """Revoke a key and remove its private part. Returns the kid of the key that signs from now on.

        That is the present key, the waiting key, or else a new key. Raises CredentialError for a key that is
        not in this store.
        """

        def change(records: tuple[KeyRecord, ...]) -> tuple[tuple[KeyRecord, ...], str]:
            revoked = next((record for record in records if record.kid == kid), None)
            if revoked is None:
                hint = f"list the keys with onym ai keys list {self.path}"
                raise CredentialError(f"{self.path} has no key {kid}", code="credential.no-key", hint=hint)
            if revoked.revoked is None:
                records = _replace_record(records, revoked, replace(revoked, revoked=at))
            return self._ensure_signing_key(records, at)

        return self._update_records(change, at)

    def _ensure_signing_key(
        self, records: tuple[KeyRecord, ...], at: float
    ) -> tuple[tuple[KeyRecord, ...], str]:
        """The records with a key that signs now: the present key, the waiting key, or a new key."""
        current = next((record for record in records if record.can_sign(at)), None)
        waiting = _find_waiting(records, at)
        if current is not None:
            # without a successor, which may just have been revoked, the key has no end
            lasting = current if waiting else replace(current, ends=None, dropped=None)
            return _replace_record(records, current, lasting), current.kid
        if waiting is not None:
            return _replace_record(records, waiting, replace(waiting, starts=at)), waiting.kid
        last = max(records, key=lambda record: record.starts)
        made = _create_key(self.path, last.algorithm, at, starts=at)
        return (*records, made), made.kid

    def signer(self, at: float) -> keys.Signer:
        """The key that signs now. Raises CredentialError if there is none.

        The folder is read again after 50 ms at the latest, and after each change that this store makes.
        """
        recent = self._recent
        if recent is not None and time.monotonic() < recent[2] and recent[0].can_sign(at):
            return recent[1]
        try:
            return self._load_signer(at)
        except CredentialError:
            # the key may have been replaced after its record was read
            return self._load_signer(at)

    def open_key(self, kid: str) -> keys.Signer:
        """The private key of this kid, whatever the time. Raises CredentialError if it is not here."""
        record = next((record for record in self.records() if record.kid == kid), None)
        if record is None or record.revoked is not None:
            raise CredentialError(f"{self.path} has no key {kid} that may sign", code="credential.no-key")
        with self._guard:
            return self._open_record(record)

    def _load_signer(self, at: float) -> keys.Signer:
        record = self._find_current(self.records(), at)
        with self._guard:
            signer = self._open_record(record)
            self._recent = record, signer, time.monotonic() + _LOOKUP_SECONDS
        return signer

    def _open_record(self, record: KeyRecord) -> keys.SigningKey:
        signer = self._signers.get(record.kid)
        if signer is None:
            signer = self._signers[record.kid] = self._load_private_key(record)
        return signer

    def jwks(self, at: float) -> bytes:
        """The key set to publish: present, waiting and recent keys, and the revoked kids."""
        return encode_key_set(self.records(), lambda record: record.is_published(at))

    def history(self, at: float) -> bytes:
        """The key set for auditors: every key that was ever published, with its signing period."""
        return encode_key_set(self.records(), lambda record: record.created <= at, past=True)

    def records(self) -> tuple[KeyRecord, ...]:
        """The records of all keys, oldest first; the file is read again when it has changed."""
        try:
            status = (self.path / _STATE_FILE).stat()
        except OSError as error:
            if self.path.exists():
                require_private_folder(self.path)
            hint = f"create the first key with onym ai keys new {self.path}"
            missing = None if self.path.exists() else error
            raise CredentialError(f"{self.path} has no keys: {error.strerror}", hint=hint) from missing
        require_private_folder(self.path)
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        with self._guard:
            if stamp != self._stamp:
                self._recent = None
                self._records = self._load_records()
                self._stamp = stamp
                # revoked keys are removed from memory
                usable = {record.kid for record in self._records if record.revoked is None}
                self._signers = {kid: key for kid, key in self._signers.items() if kid in usable}
            return self._records

    def _load_records(self) -> tuple[KeyRecord, ...]:
        file = self.path / _STATE_FILE
        return decode_records(files.read_private_file(file, _MAX_STATE), str(file))

    def _load_private_key(self, record: KeyRecord) -> keys.SigningKey:
        file = _get_key_file(self.path, record.kid)
        if not file.exists():
            message = f"the private key {record.kid} is not in {self.path}"
            hint = f"restore it from a copy, or run onym ai keys revoke {self.path} {record.kid}"
            raise CredentialError(message, code="credential.no-key", hint=hint)
        text = files.read_private_file(file, _MAX_KEY).decode("utf-8", "replace")
        key = keys.SigningKey.from_jwk(Secret(text), algorithm=record.algorithm).with_thumbprint()
        if key.kid != record.kid:
            raise CredentialError(f"{file} contains another private key", code="credential.wrong-key")
        return key

    def _find_current(self, records: tuple[KeyRecord, ...], at: float) -> KeyRecord:
        # if a key was revoked after the caller read the clock, its successor starts after that time
        usable = [record for record in records if record.can_sign(at)]
        usable = usable or [record for record in records if record.can_sign(at + _MOMENT)]
        if not usable:
            message = f"{self.path} has no key that may sign now"
            hint = f"see the state of the keys with onym ai keys list {self.path}"
            raise CredentialError(message, code="credential.no-key", hint=hint)
        return max(usable, key=lambda record: record.starts)

    def _update_records(self, change: _Change, at: float) -> str:
        require_private_folder(self.path)
        with files.lock_private_file(self.path / _LOCK_FILE):
            before = self._load_records() if (self.path / _STATE_FILE).exists() else ()
            after, kid = change(before)
            if len(after) > keys.MAX_HISTORY:
                message = f"{self.path} has {keys.MAX_HISTORY} keys, the maximum of a history"
                hint = "publish its history elsewhere and use a new folder"
                raise CredentialError(message, code="credential.too-many", hint=hint)
            files.write_private_file(self.path / _STATE_FILE, encode_records(after))
            self._recent = None
            for record in after:
                if not (record.can_sign(at) or record.is_waiting(at)):
                    files.remove_private_file(_get_key_file(self.path, record.kid))
        return kid


def _create_key(folder: Path, algorithm: str, at: float, *, starts: float) -> KeyRecord:
    """Write the private file of a new key, and return its record for the state file."""
    kid = "-"
    while kid.startswith("-"):
        # on a command line it would be an option
        key = keys.SigningKey.generate(algorithm).with_thumbprint()
        kid = str(key.kid)
    files.write_private_file(_get_key_file(folder, kid), key.secret().reveal().encode())
    return KeyRecord(kid=kid, algorithm=algorithm, public=key.public(), created=at, starts=starts)


def _find_waiting(records: tuple[KeyRecord, ...], at: float) -> KeyRecord | None:
    return next((record for record in records if record.is_waiting(at)), None)


def _replace_record(records: tuple[KeyRecord, ...], old: KeyRecord, new: KeyRecord) -> tuple[KeyRecord, ...]:
    return tuple(new if record is old else record for record in records)


def encode_key_set(
    records: tuple[KeyRecord, ...], chosen: Callable[[KeyRecord], bool], *, past: bool = False
) -> bytes:
    """Return the chosen records as a JWK Set, with the revoked kids of all."""
    document: dict[str, Any] = {"keys": [record.to_jwk(past=past) for record in records if chosen(record)]}
    revoked = [record.kid for record in records if record.revoked is not None]
    if revoked:
        document["revoked"] = revoked
    return json.dumps(document, indent=1).encode("ascii")


def _get_key_file(folder: Path, kid: str) -> Path:
    return folder / f"{kid}.jwk"


def _require_algorithm(algorithm: str) -> None:
    if algorithm not in keys.RECEIPT_ALGORITHMS:
        hint = f"use one of {', '.join(keys.RECEIPT_ALGORITHMS)}"
        raise SignatureError("receipts do not use this algorithm", code="sign.bad-algorithm", hint=hint)


#: bytes that are signed once when a key is opened
_PROBE: Final = b"onym"


class PKCS11Signer:
    """A `Signer` whose private key is in a device; `open` finds it. Threads may share one."""

    def __init__(self, algorithm: str, jwk: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> None:
        self.algorithm = algorithm
        self.kid: str = keys.thumbprint(jwk)
        self._jwk = dict(jwk)
        self._sign = sign
        self._guard = threading.Lock()
        # the label may name the wrong pair, or the module may be faulty
        key = keys.Key(
            keys.ALGORITHMS[algorithm].kind, self.kid, algorithm, keys.import_native_key(self._jwk)
        )
        if not key.verify(algorithm, _PROBE, self.sign(_PROBE)):
            hint = "give both keys of the pair the same label"
            raise keys.make_key_error("a signature of the token is invalid under its public key", hint)

    @classmethod
    def open(
        cls, module: str, *, token: str, label: str, pin: Secret, algorithm: str = "Ed25519"
    ) -> PKCS11Signer:
        """Open the key pair with this `label` in a `token`, which is the label of the device.

        `module` is the path of the device's PKCS #11 library. The session stays open as long as the process.
        Raises MissingExtraError without python-pkcs11, CredentialError if the token, the key or the PIN is
        wrong, SignatureError if the key is not for `algorithm` or its signatures are invalid.
        """
        _require_algorithm(algorithm)
        try:
            import pkcs11  # late: an extra, with a library in C
        except ImportError as error:  # pragma: no cover - the tests have it
            raise MissingExtraError(
                "keys in a device need python-pkcs11", command="pip install 'onym[pkcs11]'"
            ) from error
        try:
            session = _open_session(pkcs11, pkcs11.lib(module).get_token(token_label=token), pin)
            kind = pkcs11.KeyType[keys.ALGORITHMS[algorithm].device_key_type]
            private = session.get_key(pkcs11.ObjectClass.PRIVATE_KEY, key_type=kind, label=label)
            public = session.get_key(pkcs11.ObjectClass.PUBLIC_KEY, key_type=kind, label=label)
            jwk = _to_public_jwk(pkcs11, public, algorithm)
        except (pkcs11.PKCS11Error, RuntimeError) as error:
            raise CredentialError(
                f"the key cannot be opened in the token ({type(error).__name__})",
                code="credential.token",
                hint="compare module, token, label, PIN and algorithm with pkcs11-tool --list-objects",
            ) from None
        return cls(algorithm, jwk, _make_sign_function(pkcs11, private, algorithm))

    def sign(self, content: bytes) -> bytes:
        """The signature of the device over these bytes. Raises SignatureError if the device fails."""
        import pkcs11

        try:
            with self._guard:  # a session does one thing at a time
                return self._sign(content)
        except pkcs11.PKCS11Error as error:
            message = f"the token did not sign ({type(error).__name__})"
            raise SignatureError(message, code="sign.device-failed") from None

    def public(self) -> dict[str, Any]:
        """The public JWK, for publication."""
        return {**self._jwk, "alg": self.algorithm, "use": "sig", "kid": self.kid}


def _open_session(pkcs11: Any, token: Any, pin: Secret) -> Any:
    try:
        return token.open(user_pin=pin.reveal())
    except pkcs11.UserAlreadyLoggedIn:  # another signer of this process has logged in
        return token.open()


def _make_sign_function(pkcs11: Any, private: Any, algorithm: str) -> Callable[[bytes], bytes]:
    """The signing function of the device, which hashes for RSA and Ed25519, but not always for ECDSA."""
    row = keys.ALGORITHMS[algorithm]
    mechanism = pkcs11.Mechanism[row.device_mechanism]
    options = {}
    if row.kty == "RSA":
        digest = pkcs11.Mechanism[row.hash_name.upper()]
        mask = pkcs11.MGF[row.hash_name.upper()]
        options["mechanism_param"] = (digest, mask, hashlib.new(row.hash_name).digest_size)

    def sign(content: bytes) -> bytes:
        if row.kty == "EC":
            content = hashlib.new(row.hash_name, content).digest()
        return bytes(private.sign(content, mechanism=mechanism, **options))

    return sign


def _to_public_jwk(pkcs11: Any, public: Any, algorithm: str) -> dict[str, Any]:
    """The public part as a JWK. A point is at the end of its bytes, with or without a DER wrapper."""
    names, curve = pkcs11.Attribute, keys.ALGORITHMS[algorithm].curve
    if curve is None:
        n, e = (bytes(public[name]).lstrip(b"\0") for name in (names.MODULUS, names.PUBLIC_EXPONENT))
        return {"kty": "RSA", "n": encode_base64url(n), "e": encode_base64url(e)}
    point = bytes(public[names.EC_POINT])
    if curve == "Ed25519":
        return {"kty": "OKP", "crv": curve, "x": encode_base64url(point[-32:])}
    size = keys.COORDINATE_SIZES[curve]
    x, y = point[-2 * size : -size], point[-size:]
    return {"kty": "EC", "crv": curve, "x": encode_base64url(x), "y": encode_base64url(y)}
