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

Personal data can be removed from a record: its digest covers salted commitments to the lines of the event's
texts (docs/decisions/0056). Records of older releases have no salts, and their digests cover the texts.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import MISSING, fields, replace
from datetime import date, datetime
from functools import partial
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from onym.common.text import format_timestamp, parse_timestamp
from onym.errors import StoreError
from onym.registry import records

#: version of the form
VERSION: Final = 1
#: lists and objects inside one another, in `Event.data`
MAX_DEPTH: Final = 32
#: integers of `Event.data` are below this number
_MAX_INTEGER: Final = 1 << 63

#: a value that has a JSON form
Codable = (
    records.Entry
    | records.Request
    | records.Event
    | records.Actor
    | records.Note
    | records.DraftReference
    | records.ListMessage
    | records.Appeal
    | records.LogRecord
)
_Value = TypeVar("_Value", bound=Codable)

_VERSIONED: Final = (records.Entry, records.Request, records.LogRecord)
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


#: members of a record that its digest does not cover: they only tell how it is computed
_OUTSIDE_DIGEST: Final = ("digest", "salt", "salts", "removed")
#: what stands in place of a line that was removed
REMOVED_TEXT: Final = "[removed]"


def compute_digest(record: records.LogRecord) -> str:
    """Return the digest that the record must have: of an old record that lost a text, that of the rest.

    If the record has salts, each text of `event.data` counts as the list of commitments to its lines. A
    commitment is HMAC-SHA256 of the line under the line's salt, which is HMAC-SHA256 of its place under the
    record's salt.
    """
    data = to_data(record)
    for member in _OUTSIDE_DIGEST:
        data.pop(member, None)
    if record.salt or record.salts or any(record.removed.values()):
        data["event"]["data"] = _commit_texts(record, data["event"].get("data", {}), "")
    return hashlib.sha256(canonicalize_json(data).encode()).hexdigest()


def is_unsalted_remainder(record: records.LogRecord) -> bool:
    """Report whether a text was removed from a record without salts: its digest cannot be computed."""
    return "" in record.removed.values()


def iter_lines(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line in `event.data`."""
    if isinstance(value, str):
        yield from ((f"{place}#{number}", line) for number, line in enumerate(value.split("\n")))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from iter_lines(item, _join_place(place, key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from iter_lines(item, f"{place}/{number}")


def remove_lines(record: records.LogRecord, places: Set[str]) -> records.LogRecord:
    """Return the record without the text of these lines; its digest stays valid if it has salts."""
    salts = {
        place: record.salts.get(place) or _derive_salt(record.salt, place)
        for place, _ in iter_lines(record.event.data)
        if place not in record.removed
    }
    salted = bool(record.salt or record.salts or any(record.removed.values()))
    lines = dict(iter_lines(record.event.data))
    removed = {
        place: _commit_line(salts[place], lines[place]) if salted else ""
        for place in sorted(places - record.removed.keys())
    }
    kept = {place: salt for place, salt in salts.items() if place not in removed} if salted else {}
    data = _replace_lines(record.event.data, "", places)
    return replace(
        record,
        event=replace(record.event, data=MappingProxyType(data)),
        salt="",
        salts=MappingProxyType(kept),
        removed=MappingProxyType({**record.removed, **removed}),
    )


def _commit_texts(record: records.LogRecord, value: Any, place: str) -> Any:
    if isinstance(value, str):
        return [_commit_place(record, found, line) for found, line in iter_lines(value, place)]
    if isinstance(value, dict):
        return {key: _commit_texts(record, item, _join_place(place, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_commit_texts(record, item, f"{place}/{number}") for number, item in enumerate(value)]
    return value


def _commit_place(record: records.LogRecord, place: str, line: str) -> str:
    if place in record.removed:
        return record.removed[place]
    salt = record.salts.get(place)
    if salt is None and not record.salt:
        raise _make_broken_chain_error(record.number, f"record {record.number} lacks the salt of {place}")
    return _commit_line(salt or _derive_salt(record.salt, place), line)


def _replace_lines(value: Any, place: str, places: Set[str]) -> Any:
    if isinstance(value, str):
        lines = (REMOVED_TEXT if found in places else line for found, line in iter_lines(value, place))
        return "\n".join(lines)
    if isinstance(value, Mapping):
        return {key: _replace_lines(item, _join_place(place, key), places) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_lines(item, f"{place}/{number}", places) for number, item in enumerate(value)]
    return value


def _join_place(place: str, key: str) -> str:
    """Return the place of a member: RFC 6901 4, and without the "#" that begins the number of a line."""
    return f"{place}/{key.replace('~', '~0').replace('/', '~1').replace('#', '~2')}"


def _derive_salt(salt: str, place: str) -> str:
    return hmac.digest(salt.encode(), place.encode(), "sha256").hex()


def _commit_line(salt: str, line: str) -> str:
    return hmac.digest(salt.encode(), line.encode(), "sha256").hex()


def seal_record(
    previous: records.LogRecord | records.Head | None,
    *,
    at: datetime,
    actor: records.Actor,
    event: records.Event,
    rule: str,
    clause: str,
    salt: str = "",
) -> records.LogRecord:
    """Return the record after `previous` (None: the first). Raises StoreError (registry.bad-record).

    With a `salt` (random and secret only once texts were removed), texts can be removed later.
    """
    number, digest = (0, GENESIS) if previous is None else (previous.number, previous.digest)
    record = records.LogRecord(
        number=number + 1,
        at=at,
        actor=actor,
        event=event,
        rule=rule,
        clause=clause,
        previous=digest,
        digest="",
        salt=salt,
    )
    return replace(record, digest=compute_digest(record))


def verify_link(previous: records.LogRecord | None, record: records.LogRecord) -> None:
    """Check that `record` follows `previous`. Raises StoreError (registry.broken-chain) with its number."""
    number, digest = (0, GENESIS) if previous is None else (previous.number, previous.digest)
    if record.number != number + 1:
        raise _make_broken_chain_error(number + 1, f"the record after {number} has number {record.number}")
    if record.previous != digest:
        raise _make_broken_chain_error(
            record.number, f"record {record.number} does not contain the digest of the record before"
        )
    lines = dict(iter_lines(record.event.data)) if record.removed else {}
    if any(lines.get(place) != REMOVED_TEXT for place in record.removed):
        raise _make_broken_chain_error(
            record.number, f"record {record.number} has another text where one was removed"
        )
    # a text was removed from a record without salts; the redaction's record has a digest of what remains
    if not is_unsalted_remainder(record) and record.digest != compute_digest(record):
        raise _make_broken_chain_error(record.number, f"record {record.number} does not match its digest")


def _make_broken_chain_error(number: int, message: str) -> StoreError:
    return StoreError(
        message,
        code="registry.broken-chain",
        field=str(number),
        hint="Another program changed the log. Restore a backup and keep this file as evidence.",
    )
