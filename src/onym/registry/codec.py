"""The registry's values as JSON and back, and the hash chain of the log over that JSON.

    data = to_data(entry)
    from_data(Entry, data) == entry

Members with their default value are left out. A field that is added later, with a default, therefore
does not change the form (or the digest) of older records. Sets become sorted lists, times ISO 8601 in
UTC with `Z`, days ISO 8601. `Entry`, `Request` and `LogRecord` have `v`, the version of the form.
Decoding checks the whole value: unknown members, other types and times without an offset are rejected.

Each log record contains the digest of the record before, so that every change is visible. The digest is
SHA-256 over the canonical text of the record without its own `digest` member. Canonical text has keys
sorted by code point, no white space, UTF-8 without escapes beyond those that JSON requires, and finite
numbers as Python writes them. It is close to RFC 8785 but does not claim conformance.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from datetime import date, datetime
from functools import partial
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from onym.common.text import format_timestamp, parse_timestamp
from onym.errors import StoreError
from onym.registry.records import (
    Actor,
    Appeal,
    DraftReference,
    Entry,
    Event,
    Head,
    ListMessage,
    LogRecord,
    Note,
    Request,
)

#: version of the form
VERSION: Final = 1
#: lists and objects inside one another, in `Event.data`
MAX_DEPTH: Final = 32
#: integers of `Event.data` are below this number
_MAX_INTEGER: Final = 1 << 63

#: a value that has a JSON form
Codable = Entry | Request | Event | Actor | Note | DraftReference | ListMessage | Appeal | LogRecord
_Value = TypeVar("_Value", bound=Codable)

_VERSIONED: Final = (Entry, Request, LogRecord)
_TYPES: Final = get_args(Codable)


def to_data(value: Codable) -> dict[str, Any]:
    """Return the JSON form of a value.

    Raises StoreError (registry.bad-record) for data that has no JSON form.
    """
    return _encode_value(type(value), value, type(value).__name__.lower())


def from_data(cls: type[_Value], data: object) -> _Value:
    """Return the value of a JSON form. Raises StoreError (registry.bad-record); `field` is the path."""
    value = _decode_value(cls, data, cls.__name__.lower())
    assert isinstance(value, cls)  # noqa: S101 - for the type checker
    return value


def encode_time(value: datetime, path: str = "time") -> str:
    """Return ISO 8601 in UTC with six digits and `Z`, so that text sorts as time does.

    Raises StoreError for a time without an offset.
    """
    try:
        return format_timestamp(value)
    except ValueError as error:
        raise _make_record_error(path, str(error)) from None


def decode_time(data: object, path: str = "time") -> datetime:
    """Return the time of `encode_time`, in UTC. Raises StoreError."""
    try:
        return parse_timestamp(_require_text(data, path))
    except ValueError as error:
        raise _make_record_error(path, str(error)) from None


def _make_record_error(path: str, message: str) -> StoreError:
    return StoreError(
        f"{path}: {message}",
        code="registry.bad-record",
        field=path,
        hint=f"The form is version {VERSION} of onym.registry.codec.",
    )


_Convert = Callable[[Any, str], Any]


class _Member(NamedTuple):
    """One member of a type; `default` is MISSING if the member is required."""

    name: str
    default: Any
    encode: _Convert
    decode: _Convert


def _encode_value(cls: type[Any], value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, cls):
        raise _make_record_error(path, f"not of type {cls.__name__}")
    out: dict[str, Any] = {"v": VERSION} if cls in _VERSIONED else {}
    for name, default, encode, _ in _MEMBERS[cls]:
        member = getattr(value, name)
        if default is MISSING or member != default:
            out[name] = encode(member, f"{path}.{name}")
    return out


def _decode_value(cls: type[Any], data: object, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise _make_record_error(path, "not an object")
    rest = dict(data)
    if cls in _VERSIONED and rest.pop("v", None) != VERSION:
        raise _make_record_error(f"{path}.v", "missing, or another version of the form")
    out = {}
    for name, default, _, decode in _MEMBERS[cls]:
        if name in rest:
            out[name] = decode(rest.pop(name), f"{path}.{name}")
        elif default is MISSING:
            raise _make_record_error(f"{path}.{name}", "missing")
    if rest:
        raise _make_record_error(path, "has an unknown member")
    return cls(**out)


def _require_text(data: object, path: str) -> str:
    if not isinstance(data, str):
        raise _make_record_error(path, "not a text")
    try:
        data.encode()
    except UnicodeEncodeError:
        raise _make_record_error(path, "half a surrogate pair, which UTF-8 cannot encode") from None
    return data


def _require_integer(data: object, path: str) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise _make_record_error(path, "not an integer")
    return data


def _require_boolean(data: object, path: str) -> bool:
    if not isinstance(data, bool):
        raise _make_record_error(path, "not true or false")
    return data


def _iter_items(data: object, path: str) -> Iterable[tuple[Any, str]]:
    if not isinstance(data, list):
        raise _make_record_error(path, "not a list")
    return ((item, f"{path}[{at}]") for at, item in enumerate(data))


def _encode_date(value: Any, path: str) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _make_record_error(path, "not a date")
    return value.isoformat()


def _decode_date(data: object, path: str) -> date:
    try:
        return date.fromisoformat(_require_text(data, path))
    except ValueError:
        raise _make_record_error(path, "not a date of ISO 8601") from None


def _decode_enum(enum: Callable[[str], Any], data: object, path: str) -> Any:
    try:
        return enum(_require_text(data, path))
    except ValueError:
        raise _make_record_error(path, f"not a value of {getattr(enum, '__name__', enum)}") from None


def _copy_json(value: Any, path: str, depth: int = 0) -> Any:
    """Return a checked copy: only JSON values, strings as keys, finite numbers, at most 32 levels."""
    if depth > MAX_DEPTH:
        raise _make_record_error(path, f"nested more than {MAX_DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(_require_text(value, path))
    if isinstance(value, Mapping):
        return {
            _require_text(key, path): _copy_json(item, f"{path}.{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_copy_json(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
    is_integer = isinstance(value, int) and abs(value) < _MAX_INTEGER
    if is_integer or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise _make_record_error(path, "not a JSON value")


def _copy_object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _make_record_error(path, "not an object")
    copy: dict[str, Any] = _copy_json(value, path)
    return copy


def _copy_texts(value: Any, path: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _make_record_error(path, "not an object")
    return {_require_text(key, path): _require_text(item, f"{path}.{key}") for key, item in value.items()}


#: annotation -> how its values are encoded and decoded
_CONVERTERS: Final[Mapping[Any, tuple[_Convert, _Convert]]] = {
    # the check of a value that stays as it is, in both directions
    str: (_require_text, _require_text),
    int: (_require_integer, _require_integer),
    bool: (_require_boolean, _require_boolean),
    datetime: (encode_time, decode_time),
    date: (_encode_date, _decode_date),
    Mapping[str, str]: (_copy_texts, lambda data, path: MappingProxyType(_copy_texts(data, path))),
    Mapping[str, Any]: (_copy_object, lambda data, path: MappingProxyType(_copy_object(data, path))),
}


def _make_converters(hint: Any) -> tuple[_Convert, _Convert]:
    """Return the encoder and the decoder of an annotation in `records.py`."""
    if hint in _CONVERTERS:
        return _CONVERTERS[hint]
    if hint in _TYPES:
        return partial(_encode_value, hint), partial(_decode_value, hint)
    arguments = [argument for argument in get_args(hint) if argument not in (NoneType, ...)]
    if not arguments:
        return (lambda value, path: str(_decode_enum(hint, value, path))), partial(_decode_enum, hint)
    encode, decode = _make_converters(arguments[0])
    if isinstance(hint, UnionType):
        return (
            lambda value, path: None if value is None else encode(value, path),
            lambda data, path: None if data is None else decode(data, path),
        )
    if get_origin(hint) is frozenset:
        return (
            lambda value, path: sorted(encode(item, path) for item in value),
            lambda data, path: frozenset(decode(item, path) for item, _ in _iter_items(data, path)),
        )
    return (
        lambda value, path: [encode(item, f"{path}[{at}]") for at, item in enumerate(value)],
        lambda data, path: tuple(decode(item, place) for item, place in _iter_items(data, path)),
    )


def _build_members(cls: type[Any]) -> tuple[_Member, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Member(
            field.name,
            field.default if field.default_factory is MISSING else field.default_factory(),
            *_make_converters(hints[field.name]),
        )
        for field in fields(cls)
    )


_MEMBERS: Final = {cls: _build_members(cls) for cls in _TYPES}

#: `previous` of the first record
GENESIS: Final = "0" * 64


def canonicalize_json(data: Any) -> str:
    """Return the canonical JSON text of a JSON value. Raises StoreError (registry.bad-record)."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"this value has no canonical JSON form ({type(error).__name__})",
            code="registry.bad-record",
            hint="Use strings, finite numbers, true, false, null, lists and objects with string keys.",
        ) from None
    return text


def compute_digest(record: LogRecord) -> str:
    """Return the digest that the record must have."""
    data = to_data(record)
    del data["digest"]
    return hashlib.sha256(canonicalize_json(data).encode()).hexdigest()


def seal_record(
    previous: LogRecord | Head | None, *, at: datetime, actor: Actor, event: Event, rule: str, clause: str
) -> LogRecord:
    """Return the record after `previous` (None: the first). Raises StoreError (registry.bad-record)."""
    number, digest = (0, GENESIS) if previous is None else (previous.number, previous.digest)
    record = LogRecord(
        number=number + 1,
        at=at,
        actor=actor,
        event=event,
        rule=rule,
        clause=clause,
        previous=digest,
        digest="",
    )
    return replace(record, digest=compute_digest(record))


def verify_link(previous: LogRecord | None, record: LogRecord) -> None:
    """Check that `record` follows `previous`. Raises StoreError (registry.broken-chain) with its number."""
    number, digest = (0, GENESIS) if previous is None else (previous.number, previous.digest)
    if record.number != number + 1:
        raise _make_broken_chain_error(number + 1, f"the record after {number} has number {record.number}")
    if record.previous != digest:
        raise _make_broken_chain_error(
            record.number, f"record {record.number} does not contain the digest of the record before"
        )
    if record.digest != compute_digest(record):
        raise _make_broken_chain_error(record.number, f"record {record.number} does not match its digest")


def _make_broken_chain_error(number: int, message: str) -> StoreError:
    return StoreError(
        message,
        code="registry.broken-chain",
        field=str(number),
        hint="Another program changed the log. Restore a backup and keep this file as evidence.",
    )
