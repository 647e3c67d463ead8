"""The registry's values as JSON, and back: the form that the log and backups hold.

    data = to_data(entry)
    from_data(Entry, data) == entry

Members with their default value are left out. A field that is added later, with a default, therefore
does not change the form (or the digest) of older records. Sets become sorted lists, times ISO 8601 in
UTC with `Z`, days ISO 8601. `Entry`, `Request` and `LogRecord` carry `v`, the version of the form.
Decoding checks the whole value: unknown members, other types and times without an offset are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import date, datetime
from enum import StrEnum
from types import MappingProxyType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from onym.common.text import format_timestamp, parse_timestamp
from onym.errors import StoreError
from onym.registry.records import Actor, DraftReference, Entry, Event, LogRecord, Note, Request

#: version of the form
VERSION: Final = 1
#: lists and objects inside one another, in `Event.data`
MAX_DEPTH: Final = 32
#: what integers of `Event.data` stay below
_MAX_INTEGER: Final = 1 << 63

#: a value that has a JSON form
Codable = Entry | Request | Event | Actor | Note | DraftReference | LogRecord
_Value = TypeVar("_Value", bound=Codable)

_VERSIONED: Final = (Entry, Request, LogRecord)
_TYPES: Final = (Entry, Request, Event, Actor, Note, DraftReference, LogRecord)


class _Member(NamedTuple):
    """How one member is written and read; `default` is MISSING where it must be there."""

    name: str
    default: Any
    write: Callable[[Any, str], Any]
    read: Callable[[Any, str], Any]


def to_data(value: Codable) -> dict[str, Any]:
    """The JSON form of a value. Raises StoreError (registry.bad-record) for data that JSON cannot hold."""
    return _encode_value(type(value), value, type(value).__name__.lower())


def from_data(cls: type[_Value], data: object) -> _Value:
    """The value of that JSON form. Raises StoreError (registry.bad-record); `field` says where."""
    value = _decode_value(cls, data, cls.__name__.lower())
    assert isinstance(value, cls)  # noqa: S101 - for the type checker
    return value


def encode_time(value: datetime, where: str = "time") -> str:
    """ISO 8601 in UTC with six digits and `Z`, so that text sorts as time does.

    Raises StoreError for a time without an offset.
    """
    try:
        return format_timestamp(value)
    except ValueError as error:
        raise _make_record_error(where, str(error)) from None


def decode_time(data: object, where: str = "time") -> datetime:
    """The time of `encode_time`, in UTC. Raises StoreError."""
    try:
        return parse_timestamp(_require_text(data, where))
    except ValueError as error:
        raise _make_record_error(where, str(error)) from None


def _make_record_error(where: str, message: str) -> StoreError:
    return StoreError(
        f"{where}: {message}",
        code="registry.bad-record",
        field=where,
        hint=f"The form is version {VERSION} of onym.registry.codec.",
    )


def _encode_value(cls: type[Any], value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, cls):
        raise _make_record_error(where, f"not of type {cls.__name__}")
    out: dict[str, Any] = {"v": VERSION} if cls in _VERSIONED else {}
    for name, default, write, _ in _MEMBERS[cls]:
        member = getattr(value, name)
        if default is MISSING or member != default:
            out[name] = write(member, f"{where}.{name}")
    return out


def _decode_value(cls: type[Any], data: object, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise _make_record_error(where, "not an object")
    given = dict(data)
    if cls in _VERSIONED and given.pop("v", None) != VERSION:
        raise _make_record_error(f"{where}.v", "missing, or another version of the form")
    out = {}
    for name, default, _, read in _MEMBERS[cls]:
        if name in given:
            out[name] = read(given.pop(name), f"{where}.{name}")
        elif default is MISSING:
            raise _make_record_error(f"{where}.{name}", "missing")
    if given:
        raise _make_record_error(where, "has an unknown member")
    return cls(**out)


def _build_members(cls: type[Any]) -> tuple[_Member, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Member(field.name, _get_default(field), *_make_pair(hints[field.name])) for field in fields(cls)
    )


def _get_default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


_Pair = tuple[Callable[[Any, str], Any], Callable[[Any, str], Any]]


def _make_pair(hint: Any) -> _Pair:
    """Writer and reader of one annotation of `records.py`."""
    if isinstance(hint, UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return _make_optional_pair(_make_pair(inner))
    if hint in _PAIRS:
        return _PAIRS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is frozenset:
        return _make_set_pair(_make_pair(arguments[0]))
    if origin is tuple:
        return _make_list_pair(_make_pair(arguments[0]))
    if hint in _TYPES:
        return (lambda value, where: _encode_value(hint, value, where)), (
            lambda data, where: _decode_value(hint, data, where)
        )
    return (lambda value, where: str(_parse_enum(hint, value, where).value)), (
        lambda data, where: _parse_enum(hint, data, where)
    )


def _make_plain_pair(read: Callable[[Any, str], Any]) -> _Pair:
    """For what JSON holds as it is: the reader checks on the way out too."""
    return read, read


def _make_optional_pair(pair: _Pair) -> _Pair:
    write, read = pair
    return (
        lambda value, where: None if value is None else write(value, where),
        lambda data, where: None if data is None else read(data, where),
    )


def _make_set_pair(pair: _Pair) -> _Pair:
    write, read = pair
    return (
        lambda value, where: sorted(write(item, where) for item in value),
        lambda data, where: frozenset(read(item, where) for item in _require_list(data, where)),
    )


def _make_list_pair(pair: _Pair) -> _Pair:
    write, read = pair
    return (
        lambda value, where: [write(item, f"{where}[{at}]") for at, item in enumerate(value)],
        lambda data, where: tuple(
            read(item, f"{where}[{at}]") for at, item in enumerate(_require_list(data, where))
        ),
    )


def _parse_enum(enum: type[StrEnum], data: object, where: str) -> StrEnum:
    try:
        return enum(_require_text(data, where))
    except ValueError:
        raise _make_record_error(where, f"not a value of {enum.__name__}") from None


def _require_text(data: object, where: str) -> str:
    if not isinstance(data, str):
        raise _make_record_error(where, "not a text")
    try:
        data.encode()
    except UnicodeEncodeError:
        raise _make_record_error(where, "half a surrogate pair, which UTF-8 cannot encode") from None
    return data


def _require_integer(data: object, where: str) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise _make_record_error(where, "not an integer")
    return data


def _require_boolean(data: object, where: str) -> bool:
    if not isinstance(data, bool):
        raise _make_record_error(where, "not true or false")
    return data


def _require_list(data: object, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise _make_record_error(where, "not a list")
    return data


def _encode_date(value: Any, where: str) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _make_record_error(where, "not a date")
    return value.isoformat()


def _decode_date(data: object, where: str) -> date:
    try:
        return date.fromisoformat(_require_text(data, where))
    except ValueError:
        raise _make_record_error(where, "not a date of ISO 8601") from None


def _copy_json(value: Any, where: str, depth: int = 0) -> Any:
    """Any JSON value, copied and checked: texts as keys, finite numbers, a depth that ends."""
    if depth > MAX_DEPTH:
        raise _make_record_error(where, f"nested more than {MAX_DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(_require_text(value, where))
    if isinstance(value, Mapping):
        return {
            _require_text(key, where): _copy_json(item, f"{where}.{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_copy_json(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)]
    return _require_number(value, where)


def _require_number(value: Any, where: str) -> int | float:
    if isinstance(value, int):
        if abs(value) < _MAX_INTEGER:
            return value
    elif isinstance(value, float) and math.isfinite(value):
        return value
    raise _make_record_error(where, "not a JSON value")


def _copy_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _make_record_error(where, "not an object")
    copy: dict[str, Any] = _copy_json(value, where)
    return copy


def _copy_texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _make_record_error(where, "not an object")
    return {_require_text(key, where): _require_text(item, f"{where}.{key}") for key, item in value.items()}


_PAIRS: Final[Mapping[Any, _Pair]] = MappingProxyType(
    {
        str: _make_plain_pair(_require_text),
        int: _make_plain_pair(_require_integer),
        bool: _make_plain_pair(_require_boolean),
        datetime: (encode_time, decode_time),
        date: (_encode_date, _decode_date),
        Mapping[str, str]: (_copy_texts, lambda data, where: MappingProxyType(_copy_texts(data, where))),
        Mapping[str, Any]: (_copy_object, lambda data, where: MappingProxyType(_copy_object(data, where))),
    }
)

_MEMBERS: Final[Mapping[type[Any], tuple[_Member, ...]]] = MappingProxyType(
    {cls: _build_members(cls) for cls in _TYPES}
)
