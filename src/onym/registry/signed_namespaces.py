"""Resolving one-label `ai://` authorities from a signed registry file, with its signing key pinned.

    onym registry export -r ai-namespaces --format namespaces --sign-key KEY > namespaces.jws

`SignedNamespaces` implements the Protocol `Namespaces` of `onym.ai`; neither package imports the other.
There is no common trust root: you choose the file and the key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.errors import ConfigError, DiscoveryError, OnymError, SignatureError, SnapshotError
from onym.registry.iana import NamespaceFile, format_utc_time, parse_utc_time, read_namespaces
from onym.registry.records import Status
from onym.sign.keys import USUAL_ALGORITHMS

if TYPE_CHECKING:
    from onym.sign.keys import KeySet

#: the `typ` of the file's signature
SIGNATURE_TYPE: Final = "onym-ai-namespaces+jws"
#: bytes of a signed file, a key file and a state file
_MAX_FILE: Final = 12 * 1024 * 1024
_MAX_KEY: Final = 256 * 1024
_MAX_STATE: Final = 1024 * 1024
_ALGORITHMS: Final = USUAL_ALGORITHMS
#: seconds that the registry's clock may be ahead
_SKEW: Final = 60.0
_CLAUSE: Final = "AIIP/HTTPS v1 3.1"

_Path: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One label: its anchor origin, and thumbprints of its keys (none: any key of the anchor)."""

    label: str
    anchor: str
    keys: tuple[str, ...] = ()


class SignedNamespaces:
    """The namespaces of a signed registry file. Threads may share it; a replaced file is read again."""

    def __init__(self, path: Path, keys: KeySet, state: Path | None) -> None:
        self._path = path
        self._keys = keys
        self._state = state
        self._stamp, self._file = self._read_file()

    @classmethod
    def load(
        cls,
        path: _Path,
        *,
        key: _Path | Mapping[str, Any],
        state: _Path | None = None,
        at: float | None = None,
    ) -> SignedNamespaces:
        """Load the file at `path`, signed with `key`: a public JWK, or a file with a JWK or a JWK Set.

        The file `state` remembers the newest issue time, so that older files are rejected. With `at` (seconds
        since the epoch) the file must be valid then. Raises ConfigError for files that cannot be read,
        SignatureError for an invalid signature, and SnapshotError for other faults.
        """
        found = cls(Path(path), _load_pinned_keys(key), None if state is None else Path(state))
        if at is not None:
            found._require_in_force(at)
        return found

    @property
    def issued(self) -> datetime:
        """The issue time of the file (UTC)."""
        return self._file.issued

    def find(self, label: str, at: float) -> Allocation | None:
        """Return the allocation of a label, or None.

        Raises DiscoveryError: aiip.unknown-authority for a namespace that is not active; aiip.unavailable if
        the file is not valid at `at`, or its replacement cannot be used.
        """
        try:
            self._reload_if_changed()
            self._require_in_force(at)
        except OnymError as error:
            raise DiscoveryError(
                f"the registry file cannot be used: {error.message}",
                code="aiip.unavailable",
                clause=_CLAUSE,
                hint=error.hint or "Fetch the newest file of the registry.",
            ) from error
        row = self._file.namespaces.get(label)
        if row is None:
            return None
        ended = row.expires is not None and datetime.fromtimestamp(at, UTC).date() > row.expires
        if row.state is not Status.ACTIVE or ended:
            why = f"expired on {row.expires}" if ended else f"is {str(row.state).replace('-', ' ')}"
            raise DiscoveryError(
                f"the registry reports that {label} {why}",
                code="aiip.unknown-authority",
                clause=_CLAUSE,
                hint="Ask its registrant.",
            )
        return Allocation(label=label, anchor=row.anchor, keys=row.keys)

    def _require_in_force(self, at: float) -> None:
        # the same check that reading makes, without reading twenty thousand rows again
        issued, expires = self._file.issued, self._file.expires
        if not issued.timestamp() - _SKEW <= at < expires.timestamp():
            raise SnapshotError(
                f"the file is valid from {_format_minute(issued)} until {_format_minute(expires)} UTC",
                code="registry.expired-file",
                field="expires",
            )

    def _reload_if_changed(self) -> None:
        try:
            same = _get_file_stamp(self._path) == self._stamp
        except OSError as error:
            raise _make_file_error(self._path, error) from None
        if not same:
            self._stamp, self._file = self._read_file()

    def _read_file(self) -> tuple[tuple[int, ...], NamespaceFile]:
        from onym.sign.jws import verify  # late: the JOSE library

        try:
            stamp, octets = _get_file_stamp(self._path), _read_limited(self._path, _MAX_FILE)
        except OSError as error:
            raise _make_file_error(self._path, error) from None
        try:
            token = octets.decode("ascii").strip()
        except UnicodeDecodeError:
            token = ""
        found = verify(token, self._keys, algorithms=_ALGORITHMS, limit=_MAX_FILE)
        if found.header.get("typ") != SIGNATURE_TYPE:
            raise SignatureError(
                "the signature is not for a registry file", code="sign.bad-header", hint=SIGNATURE_TYPE
            )
        file = read_namespaces(found.payload)
        if self._state is not None:
            _record_issue_time(self._state, file.issued)
        return stamp, file


def _record_issue_time(state: Path, issued: datetime) -> None:
    """Reject an older issue time than the newest in `state`; append a newer one."""
    try:
        lines = _read_limited(state, _MAX_STATE).decode("ascii").split() if state.exists() else []
        newest = max(_parse_state_times(state, lines), default=None)
        if newest is not None and issued < newest:
            raise SnapshotError(
                f"the file of {_format_minute(issued)} UTC is older than the last one, of "
                f"{_format_minute(newest)} UTC",
                code="registry.expired-file",
                field="issued",
                hint="An old file may name revoked keys. Fetch the newest one.",
            )
        if newest is None or issued > newest:
            _append_line(state, f"{format_utc_time(issued)}\n")
    except (OSError, ValueError) as error:
        raise _make_file_error(state, error) from None


def _parse_state_times(state: Path, lines: Iterable[str]) -> list[datetime]:
    try:
        return [parse_utc_time(line) for line in lines]
    except ValueError:
        raise ConfigError(
            f"{state} is not the state of a registry file",
            hint="Delete it to trust the present file again.",
        ) from None


def _append_line(state: Path, line: str) -> None:
    state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(state, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode("ascii"))
    finally:
        os.close(descriptor)


def _load_pinned_keys(key: _Path | Mapping[str, Any]) -> KeySet:
    from onym.sign.keys import read_keys

    if isinstance(key, Mapping):
        found: Any = dict(key)
    else:
        try:
            found = json.loads(_read_limited(Path(key), _MAX_KEY))
        except OSError as error:
            raise _make_file_error(Path(key), error) from None
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, dict):
        raise SignatureError(
            "the pinned key is not a public JWK or JWK Set (RFC 7517)",
            code="sign.bad-key",
            hint="Give the key itself; a thumbprint cannot verify a signature.",
        )
    keys = read_keys(json.dumps(found if "keys" in found else {"keys": [found]}).encode("utf-8"))
    if not keys.keys:
        raise SignatureError("the pinned key cannot verify signatures", code="sign.bad-key")
    return keys


def _read_limited(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        octets = file.read(limit + 1)
    if len(octets) > limit:
        raise SnapshotError(f"{path} is longer than {limit} bytes", code="registry.snapshot-too-large")
    return octets


def _format_minute(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M}"


def _get_file_stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _make_file_error(path: Path, error: Exception) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return ConfigError(f"{path} cannot be read or written: {why}")
