"""The registry file of `ai` namespaces: the payload that the registry signs and resolvers verify.

    {"expires":"2027-01-01T00:00:00Z","format":"onym-ai-namespaces","issued":"2026-11-21T00:00:00Z",
     "namespaces":{"bank":{"anchor":"https://bank.example","expires":"2027-06-30",
                           "keys":["NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"],"state":"active"}},
     "version":1}

The bytes are canonical: members sorted, no white space, UTF-8 (RFC 8785, for the values in such a file).
`onym.sign` makes and verifies the signature. A namespace that is not active stays in the file with its
state, so that a resolver can explain the refusal. A namespace that is pending review is not in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from onym.errors import SnapshotError, URIError
from onym.registry.iana import decode_utf8, format_utc_time, parse_utc_time, require_size_limit
from onym.registry.iana.formats import parse_strict_json
from onym.registry.records import Entry, Status
from onym.registry.registries import BUILTIN
from onym.uri.generic import URI

_FORMAT: Final = "onym-ai-namespaces"
_VERSION: Final = 1
#: namespaces in one file, and keys of one namespace
MAX_NAMESPACES: Final = 20_000
MAX_KEYS: Final = 16
_MAX_BYTES: Final = 8 * 1024 * 1024
_MAX_ANCHOR: Final = 300
#: how far the issuer's clock may be ahead
_SKEW: Final = timedelta(seconds=60)

#: an RFC 7638 thumbprint by SHA-256: 32 bytes in base64url, so the last character has two unused bits
_THUMBPRINT: Final = re.compile("[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
_THUMBPRINTS: Final = "use RFC 7638 thumbprints with SHA-256: 43 characters of base64url each"
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN: Final = re.compile(
    rf"https://(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{{0,4}}))?"
)
_DAY: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_REGISTRY: Final = BUILTIN.registries["ai-namespaces"]
_STATES: Final = frozenset(_REGISTRY.statuses) - {Status.PENDING_REVIEW}
_MEMBERS: Final = frozenset({"format", "version", "issued", "expires", "namespaces"})
_ROW: Final = frozenset({"anchor", "keys", "state", "expires"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One namespace. `anchor` is an https origin, `keys` are RFC 7638 thumbprints (SHA-256, base64url).

    `expires` is the last day on which it is valid, None for no end. Only a namespace whose `state` is active
    resolves without further conditions.
    """

    name: str
    anchor: str
    state: Status
    keys: tuple[str, ...] = ()
    expires: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceFile:
    """A registry file: from `issued` until `expires` (UTC, not included), and the namespaces by name."""

    issued: datetime
    expires: datetime
    namespaces: Mapping[str, Namespace]


def write_namespaces(entries: Iterable[Entry], *, issued: datetime, expires: datetime) -> bytes:
    """Return the payload to sign. Raises SnapshotError for an entry that resolvers cannot use."""
    rows: dict[str, Any] = {}
    for entry in entries:
        if entry.status is Status.PENDING_REVIEW:
            continue
        if entry.name in rows:
            raise _make_namespace_error(entry.name, "is in the file twice")
        rows[entry.name] = _encode_namespace(entry)
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "issued": format_utc_time(_require_offset(issued, "issued")),
        "expires": format_utc_time(_require_offset(expires, "expires")),
        "namespaces": rows,
    }
    data = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")
    # raises if readers would reject the file
    read_namespaces(data)
    return data


def _encode_namespace(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {
        "anchor": entry.fields.get("anchor", ""),
        "keys": _split_thumbprints(entry.fields.get("keys", "")),
        "state": str(entry.status),
    }
    if entry.expires is not None:
        row["expires"] = entry.expires.isoformat()
    return row


def _require_offset(time: datetime, field: str) -> datetime:
    if time.utcoffset() is None:
        raise _make_namespace_error(field, "a time needs an offset from UTC")
    return time


def read_namespaces(data: bytes, *, at: datetime | None = None) -> NamespaceFile:
    """Return the file in a verified payload. Every member of it is checked.

    With `at` (aware) it must be valid at that time. Raises SnapshotError (registry.bad-namespaces,
    registry.expired-file) with the `field`.
    """
    require_size_limit(data, _MAX_BYTES)
    document = parse_strict_json(decode_utf8(data))
    _require_members(document, "file", _MEMBERS, _MEMBERS)
    if document["format"] != _FORMAT or repr(document["version"]) != repr(_VERSION):
        raise _make_namespace_error("format", f"must be version {_VERSION} of {_FORMAT}")
    issued, expires = _parse_time(document["issued"], "issued"), _parse_time(document["expires"], "expires")
    if expires <= issued:
        raise _make_namespace_error("expires", "must be after `issued`")
    if at is not None and not issued - _SKEW <= at < expires:
        raise _make_namespace_error(
            "expires", f"the file is valid from {issued} until {expires}", code="registry.expired-file"
        )
    rows = document["namespaces"]
    if not isinstance(rows, dict) or len(rows) > MAX_NAMESPACES:
        raise _make_namespace_error("namespaces", f"must be an object of at most {MAX_NAMESPACES} members")
    return NamespaceFile(
        issued=issued,
        expires=expires,
        namespaces={name: _decode_namespace(name, row) for name, row in rows.items()},
    )


def _decode_namespace(name: str, row: Any) -> Namespace:
    if not _REGISTRY.is_valid_name(name):
        raise _make_namespace_error(
            "namespaces", f"{name[:70]!r} is not a valid label", hint=_REGISTRY.name_rule
        )
    _require_members(row, name, _ROW, _ROW - {"expires"})
    if not isinstance(row["state"], str) or row["state"] not in _STATES:
        raise _make_namespace_error(
            f"{name}.state", "unknown state", hint=f"Choose one of {', '.join(sorted(_STATES))}."
        )
    keys = row["keys"]
    if not isinstance(keys, list) or len(keys) > MAX_KEYS or not all(_is_thumbprint(key) for key in keys):
        raise _make_namespace_error(
            f"{name}.keys", f"must be a list of at most {MAX_KEYS} key thumbprints", hint=_THUMBPRINTS
        )
    return Namespace(
        name=name,
        anchor=_require_origin(row["anchor"], f"{name}.anchor"),
        state=Status(row["state"]),
        keys=tuple(keys),
        expires=_parse_day(row["expires"], f"{name}.expires") if "expires" in row else None,
    )


def check_namespace_fields(fields: Mapping[str, str]) -> None:
    """Check that resolvers can use these fields of a template; empty fields are not checked.

    Raises SnapshotError (registry.bad-namespaces) with the id of the field.
    """
    if fields.get("anchor", "").strip():
        _require_origin(fields["anchor"], "anchor")
    keys = _split_thumbprints(fields.get("keys", ""))
    if len(keys) > MAX_KEYS:
        raise _make_namespace_error("keys", f"has {len(keys)} key thumbprints, and the most is {MAX_KEYS}")
    if not all(map(_is_thumbprint, keys)):
        raise _make_namespace_error("keys", "has a value that is not a key thumbprint", hint=_THUMBPRINTS)


def _split_thumbprints(text: str) -> list[str]:
    return sorted({word for word in re.split(r"[\s,;]+", text) if word})


def _is_thumbprint(value: object) -> bool:
    return isinstance(value, str) and _THUMBPRINT.fullmatch(value) is not None


def _require_origin(value: object, field: str) -> str:
    """Return an https origin in normal form: lower case, without user, path and default port."""
    origin = _ORIGIN.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_ANCHOR else None
    if origin is not None and int(origin["port"] or 0) <= 65_535:
        try:
            normal = str(URI.parse(origin[0]).normalize())
        except URIError:
            normal = ""
        if normal == f"{value}/":
            return origin[0]
    hint = "use https, a host in lower case and no path, such as https://bank.example:8443"
    raise _make_namespace_error(field, "not an https origin in normal form", hint=hint)


def _require_members(value: object, field: str, known: frozenset[str], needed: frozenset[str]) -> None:
    if not isinstance(value, dict) or not needed <= value.keys() <= known:
        raise _make_namespace_error(field, f"must be an object of {', '.join(sorted(known))}")


def _parse_time(value: object, field: str) -> datetime:
    if isinstance(value, str):
        with suppress(ValueError):
            return parse_utc_time(value)
    raise _make_namespace_error(field, "not a time", hint="2026-11-21T00:00:00Z")


def _parse_day(value: object, field: str) -> date:
    if isinstance(value, str) and _DAY.fullmatch(value):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise _make_namespace_error(field, "not a date", hint="2027-06-30")


def _make_namespace_error(
    field: str, message: str, *, code: str = "registry.bad-namespaces", hint: str | None = None
) -> SnapshotError:
    return SnapshotError(f"{field}: {message}", code=code, field=field, hint=hint)
