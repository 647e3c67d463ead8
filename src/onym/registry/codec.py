"""The registry's values as JSON, and back: what the log holds and what backups carry.

    data = to_data(entry)
    from_data(Entry, data) == entry

Members that hold their default are left out, so that a field added later, with a default, leaves the form
(and with it the digest) of every older record as it was. Sets become sorted lists, times ISO 8601 in UTC
with `Z`, days ISO 8601. `Entry`, `Request` and `LogRecord` stand alone and carry `v`, the version of the
form. What is read is checked whole: unknown members, other types, times without an offset are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import UTC, date, datetime
from enum import StrEnum
from types import MappingProxyType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from onym.errors import StoreError
from onym.registry.records import Actor, DraftReference, Entry, Event, LogRecord, Note, Request

__all__ = ["MAX_DEPTH", "VERSION", "Codable", "from_data", "from_time", "to_data", "to_time"]

#: version of the form
VERSION: Final = 1
#: lists and objects inside one another, in `Event.data`
MAX_DEPTH: Final = 32
#: what integers of `Event.data` stay below
_BIGGEST: Final = 1 << 63

#: a value that has a JSON form
Codable = Entry | Request | Event | Actor | Note | DraftReference | LogRecord
_Value = TypeVar("_Value", bound=Codable)

_ALONE: Final = (Entry, Request, LogRecord)
_TYPES: Final = (Entry, Request, Event, Actor, Note, DraftReference, LogRecord)


class _Member(NamedTuple):
    """How one member is written and read; `default` is MISSING where it must be there."""

    name: str
    default: Any
    write: Callable[[Any, str], Any]
    read: Callable[[Any, str], Any]


def to_data(value: Codable) -> dict[str, Any]:
    """The JSON form of a value. Raises StoreError (registry.bad-record) for data that JSON cannot hold."""
    return _write(type(value), value, type(value).__name__.lower())


def from_data(cls: type[_Value], data: object) -> _Value:
    """The value of that JSON form. Raises StoreError (registry.bad-record); `field` says where."""
    value = _read(cls, data, cls.__name__.lower())
    assert isinstance(value, cls)  # noqa: S101 - for the type checker
    return value


def to_time(value: datetime, where: str = "time") -> str:
    """ISO 8601 in UTC with six digits and `Z`, so that text sorts as time does.

    Raises StoreError for a time without an offset.
    """
    if value.utcoffset() is None:
        raise _bad(where, "a time needs an offset from UTC")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_time(data: object, where: str = "time") -> datetime:
    """The time of `to_time`, in UTC. Raises StoreError."""
    try:
        value = datetime.fromisoformat(_text(data, where))
    except ValueError:
        raise _bad(where, "not a time of ISO 8601") from None
    if value.utcoffset() is None:
        raise _bad(where, "a time needs an offset from UTC")
    return value.astimezone(UTC)


def _bad(where: str, message: str) -> StoreError:
    return StoreError(
        f"{where}: {message}",
        code="registry.bad-record",
        field=where,
        hint=f"the form is version {VERSION} of onym.registry.codec",
    )


def _write(cls: type[Any], value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, cls):
        raise _bad(where, f"not of type {cls.__name__}")
    out: dict[str, Any] = {"v": VERSION} if cls in _ALONE else {}
    for name, default, write, _ in _MEMBERS[cls]:
        member = getattr(value, name)
        if default is MISSING or member != default:
            out[name] = write(member, f"{where}.{name}")
    return out


def _read(cls: type[Any], data: object, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise _bad(where, "not an object")
    given = dict(data)
    if cls in _ALONE and given.pop("v", None) != VERSION:
        raise _bad(f"{where}.v", "another version of the form, or none")
    out = {}
    for name, default, _, read in _MEMBERS[cls]:
        if name in given:
            out[name] = read(given.pop(name), f"{where}.{name}")
        elif default is MISSING:
            raise _bad(f"{where}.{name}", "missing")
    if given:
        raise _bad(where, "a member that is not of the form")
    return cls(**out)


def _members(cls: type[Any]) -> tuple[_Member, ...]:
    hints = get_type_hints(cls)
    return tuple(_Member(each.name, _default(each), *_pair(hints[each.name])) for each in fields(cls))


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


_Pair = tuple[Callable[[Any, str], Any], Callable[[Any, str], Any]]


def _pair(hint: Any) -> _Pair:
    """Writer and reader of one annotation of `records.py`."""
    if isinstance(hint, UnionType):
        (inner,) = (each for each in get_args(hint) if each is not type(None))
        return _optional(_pair(inner))
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is frozenset:
        return _set_of(_pair(arguments[0]))
    if origin is tuple:
        return _list_of(_pair(arguments[0]))
    if hint in _TYPES:
        return (lambda value, where: _write(hint, value, where)), (
            lambda data, where: _read(hint, data, where)
        )
    return (lambda value, where: str(_word(hint, value, where).value)), (
        lambda data, where: _word(hint, data, where)
    )


def _same(read: Callable[[Any, str], Any]) -> _Pair:
    """For what JSON holds as it is: the reader checks on the way out too."""
    return read, read


def _optional(pair: _Pair) -> _Pair:
    write, read = pair
    return (
        lambda value, where: None if value is None else write(value, where),
        lambda data, where: None if data is None else read(data, where),
    )


def _set_of(pair: _Pair) -> _Pair:
    write, read = pair
    return (
        lambda value, where: sorted(write(each, where) for each in value),
        lambda data, where: frozenset(read(each, where) for each in _list(data, where)),
    )


def _list_of(pair: _Pair) -> _Pair:
    write, read = pair
    return (
        lambda value, where: [write(each, f"{where}[{at}]") for at, each in enumerate(value)],
        lambda data, where: tuple(read(each, f"{where}[{at}]") for at, each in enumerate(_list(data, where))),
    )


def _word(enum: type[StrEnum], data: object, where: str) -> StrEnum:
    try:
        return enum(_text(data, where))
    except ValueError:
        raise _bad(where, f"not a word of {enum.__name__}") from None


def _text(data: object, where: str) -> str:
    if not isinstance(data, str):
        raise _bad(where, "not a text")
    try:
        data.encode()
    except UnicodeEncodeError:
        raise _bad(where, "half a surrogate pair, which UTF-8 cannot hold") from None
    return data


def _integer(data: object, where: str) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise _bad(where, "not an integer")
    return data


def _boolean(data: object, where: str) -> bool:
    if not isinstance(data, bool):
        raise _bad(where, "neither true nor false")
    return data


def _list(data: object, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise _bad(where, "not a list")
    return data


def _write_day(value: Any, where: str) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _bad(where, "not a day")
    return value.isoformat()


def _read_day(data: object, where: str) -> date:
    try:
        return date.fromisoformat(_text(data, where))
    except ValueError:
        raise _bad(where, "not a day of ISO 8601") from None


def _json(value: Any, where: str, depth: int = 0) -> Any:
    """Any JSON value, copied and checked: texts as keys, finite numbers, a depth that ends."""
    if depth > MAX_DEPTH:
        raise _bad(where, f"deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(_text(value, where))
    if isinstance(value, Mapping):
        return {_text(key, where): _json(each, f"{where}.{key}", depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each, f"{where}[{at}]", depth + 1) for at, each in enumerate(value)]
    return _number(value, where)


def _number(value: Any, where: str) -> int | float:
    if isinstance(value, int):
        if abs(value) < _BIGGEST:
            return value
    elif isinstance(value, float) and math.isfinite(value):
        return value
    raise _bad(where, "not a value that JSON can hold")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _bad(where, "not an object")
    copy: dict[str, Any] = _json(value, where)
    return copy


def _texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _bad(where, "not an object")
    return {_text(key, where): _text(each, f"{where}.{key}") for key, each in value.items()}


_PLAIN: Final[Mapping[Any, _Pair]] = MappingProxyType(
    {
        str: _same(_text),
        int: _same(_integer),
        bool: _same(_boolean),
        datetime: (to_time, from_time),
        date: (_write_day, _read_day),
        Mapping[str, str]: (_texts, lambda data, where: MappingProxyType(_texts(data, where))),
        Mapping[str, Any]: (_object, lambda data, where: MappingProxyType(_object(data, where))),
    }
)

_MEMBERS: Final[Mapping[type[Any], tuple[_Member, ...]]] = MappingProxyType(
    {cls: _members(cls) for cls in _TYPES}
)
