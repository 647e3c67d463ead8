"""Reading the query of an llm URI into typed parameters (draft 4.4, 6 and 10.3).

Pairs are split at raw `&` and the first raw `=` before anything is decoded, so a percent-encoded delimiter
is data (RFC 3986 2.2). `+` is a plus sign. Reading refuses what draft 10.3 wants validated and a
name that means two things at once; every other unknown name passes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from onym.errors import ParameterError, URIError
from onym.uri import _values
from onym.uri._names import PROVIDER_NAMES, branch, is_secret, shown
from onym.uri._percent import decode
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onym.uri._limits import Limits

__all__ = ["READERS", "Repeated", "copied", "named", "nest", "read_typed"]

_INT64: Final = 2**63 - 1
#: the timers of poll() and of most runtimes end here, 24.8 days
_LONGEST_TIMEOUT: Final = 2**31 - 1

_value_text = _values.text_within("value")


class Repeated(list[Any]):
    """The values of an unknown name that stands more than once: not the same as one JSON array."""

    __slots__ = ()


def _filled(reader: Callable[[str, Limits], str]) -> Callable[[str, Limits], str]:
    def read_filled(text: str, limits: Limits) -> str:
        if not text:
            _values.bad_value("is empty", clause="6")
        return reader(text, limits)

    return read_filled


def _stop(raw: str, limits: Limits) -> tuple[str, ...]:
    """Sequences, split at raw commas: an encoded comma is a comma of the text."""
    pieces = raw.split(",")
    if len(pieces) > limits.parameters:
        _too_many_sequences(limits)
    return tuple([_sequence(piece, limits) for piece in pieces])


def _too_many_sequences(limits: Limits) -> NoReturn:
    _values.bad_value(f"lists more than {limits.parameters} sequences", code="llm.too-many")


def _sequence(piece: str, limits: Limits) -> str:
    if not piece:
        _values.bad_value("holds an empty stop sequence", clause="6")
    return _value_text(decode(piece, component="query"), limits)


#: how the part after the colon looks, for the kinds that Onym itself resolves
_REFERENCES: Final = {
    "env": re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch,
    "keyring": re.compile("[^/]+/[^/]+").fullmatch,
    "vault": re.compile("[^#]+#[^#]+").fullmatch,
}
# no digits: a pasted key of the shape id:secret must not pass for a kind of reference
_REFERENCE = re.compile("([a-z]+(?:-[a-z]+)*):(.+)").fullmatch


def _reference(text: str, limits: Limits) -> str:
    """`auth=`: where the key is, such as env:NAME. Never the key."""
    found = _REFERENCE(text)
    if found is None or not text.isprintable() or not _REFERENCES.get(found[1], bool)(found[2]):
        _values.bad_value(
            "is not a reference to a credential",
            code="llm.bad-auth",
            clause="10.1",
            hint="such as env:NAME, file:PATH or keyring:SERVICE/USER, never the key itself",
        )
    return _value_text(text, limits)


READERS: Final[dict[str, Callable[[str, Limits], Any]]] = {
    "temp": _values.float_between(0.0, 2.0),
    "max_tokens": _values.integer_between(1, _INT64),
    "top_p": _values.float_between(0.0, 1.0),
    "top_k": _values.integer_between(0, _INT64),
    "stop": _stop,
    "seed": _values.integer_between(-_INT64 - 1, _INT64),
    "stream": _values.boolean,
    "timeout": _values.integer_between(1, _LONGEST_TIMEOUT),
    "retries": _values.integer_between(0, 100),
    "cache": _values.boolean,
    "format": _filled(_values.text_within("value")),
    "system": _values.text_within("system"),
    # a parameter of this client, not of draft 6
    "auth": _reference,
}


def read_typed(query: str, start: int, limits: Limits) -> tuple[dict[str, Any], bool]:
    """Name to typed value, in order, and whether a credential is among them.

    `query` has the characters that RFC 3986 3.4 allows and stands at `start` in the whole text. The value
    of a name that says it is a credential is a `Secret`, that of a repeated unknown name a `Repeated`.
    """
    typed: dict[str, Any] = {}
    found = 0
    encoded = "%" in query
    items = query.split("&")
    if len(items) > limits.parameters:
        raise _too_many(start, limits)
    name = item = ""
    try:
        for item in items:
            name, _, text = item.partition("=")
            reader = READERS.get(name)
            if reader is None and encoded:
                name = decode(name, component="query")
                reader = READERS.get(name)
            if reader is None:
                if item:
                    found |= _add_unknown(typed, name, text, limits)
            elif name in typed:
                typed[name] = _again(typed[name], reader, text, limits)
            else:
                if encoded and reader is not _stop:
                    text = _decoded(text)
                typed[name] = reader(text, limits)
        if found & _MAY_CLASH:
            _refuse_clashes(typed, limits)
    except URIError as error:
        raise _located(error, items, item, name, start) from None
    return typed, found & _CREDENTIAL != 0


# what _add_unknown found
_MAY_CLASH: Final = 1
_CREDENTIAL: Final = 2

_HEX: Final = "0123456789abcdefABCDEF"
_ASCII: Final = {high + low: chr(int(high + low, 16)) for high in "01234567" for low in _HEX}


def _decoded(text: str) -> str:
    """`decode`, faster for what is mostly there: nothing to decode, or triplets of ASCII."""
    if "%" not in text:
        return text
    first, *rest = text.split("%")
    try:
        return first + "".join([_ASCII[piece[:2]] + piece[2:] for piece in rest])
    except KeyError:
        return decode(text, component="query")


def _too_many(start: int, limits: Limits) -> ParameterError:
    return ParameterError(
        f"the query holds more than {limits.parameters} parameters",
        code="llm.too-many",
        component="query",
        offset=start,
        clause=f"{_values.DRAFT} 4.4",
    )


def _again(earlier: Any, reader: object, text: str, limits: Limits) -> Any:
    """A well-known name for the second time: only `stop` may list its values so."""
    if reader is not _stop:
        _values.bad_value("stands twice", code="llm.duplicate", clause="4.4")
    sequences = earlier + _stop(text, limits)
    if len(sequences) > limits.parameters:
        _too_many_sequences(limits)
    return sequences


def _add_unknown(typed: dict[str, Any], name: str, text: str, limits: Limits) -> int:
    text = _decoded(text)
    found = _MAY_CLASH if "." in name or name in PROVIDER_NAMES else 0
    value: Any
    if is_secret(name):
        value = Secret(_value_text(text, limits))
        found |= _CREDENTIAL
    else:
        value = _values.unknown(text, limits)
        if isinstance(value, _values.STRUCTURES) and _holds_credential(value):
            value = Secret(text)
            found |= _CREDENTIAL
    if name not in typed:
        typed[name] = value
    elif isinstance(earlier := typed[name], Repeated):
        earlier.append(value)
    else:
        typed[name] = Repeated((earlier, value))
    return found


def _holds_credential(value: Any) -> bool:
    """Whether a member of a JSON value is a text whose name calls it a credential."""
    if isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, str):
                if name.lower() != "key" and is_secret(name):  # alone, and so deep, it says little
                    return True
            elif isinstance(member, _values.STRUCTURES) and _holds_credential(member):
                return True
    elif isinstance(value, list):
        return any(map(_holds_credential, value))
    return False


def _refuse_clashes(typed: dict[str, Any], limits: Limits) -> None:
    """A provider's name beside the well-known one, and names that are both value and object."""
    for name in typed:
        root, dot, _ = name.partition(".")
        meant = PROVIDER_NAMES.get(root)
        if meant in typed:
            _clash(name, meant)
        if dot and len(branch(name)) > limits.depth:
            _values.bad_value(f"nests deeper than {limits.depth} levels", code="llm.too-deep", parameter=name)
    nest(typed)


def nest(typed: Mapping[str, Any]) -> dict[str, Any]:
    """`typed` with dotted names as objects: `a.b=1&a.c=2` is `{"a": {"b": 1, "c": 2}}` (draft 4.4).

    Keys are text and nothing else, `__proto__` or `0` too. Raises ParameterError for a clash.
    """
    root: dict[str, Any] = {}
    branches = {id(root)}
    for name, value in typed.items():
        *above, last = branch(name)
        node = root
        for depth, key in enumerate(above, 1):
            child = node.get(key)
            if child is None:
                child = node[key] = {}
                branches.add(id(child))
            elif id(child) not in branches:
                _clash(".".join(above[:depth]), name)
            node = child
        if last in node:
            _clash(name, next(other for other in typed if other.startswith(name + ".")))
        node[last] = copied(value)
    return root


def _clash(name: str, other: str) -> NoReturn:
    _values.bad_value(
        f"clashes with {shown(other)}",
        code="llm.clash",
        clause="4.4",
        parameter=name,
        hint="keep one of them",
    )


def _located(error: URIError, items: list[str], item: str, name: str, start: int) -> URIError:
    """`error` with the parameter's name in its message, and its offset in the whole text."""
    index = next(i for i, other in enumerate(items) if other is item)
    if error.parameter is not None:
        name = error.parameter
        index = next(i for i, other in enumerate(items) if _name_of(other) == name)
    at = start + index + sum(map(len, items[:index]))
    raw, equals, _ = items[index].partition("=")
    if isinstance(error, ParameterError):
        error.offset = at if error.code in ("llm.clash", "llm.duplicate") else at + len(raw) + len(equals)
    else:
        in_name = raw == name and "%" in raw
        error.offset = at + (error.offset or 0) + (0 if in_name else len(raw) + 1)
    return named(error, name)


def named(error: URIError, name: str) -> URIError:
    """`error` with the parameter's name, in a form that may be shown."""
    name = shown(name)
    text = f"the parameter {name} {error.message}"
    if not isinstance(error, ParameterError):
        text = f"in the parameter {name}, {error.message}"
    error.args, error.message, error.parameter = (text,), text, name
    return error


def _name_of(item: str) -> str:
    return decode(item.partition("=")[0], component="query")


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(member) for key, member in value.items()}
    if isinstance(value, list):
        return [copied(member) for member in value]
    return value
