"""A Python function's types, as what JSON Schema says of its input and output."""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from onym.ai.endpoint.context import Answer, Call
from onym.errors import UsageError

__all__ = ["Signature", "read_signature", "schema_of"]

_STREAMS: Final = frozenset({AsyncGenerator, AsyncIterator, Generator, Iterator})
_PLAIN: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a function takes and gives.

    `input` is a Struct with a field for each parameter, `members` the type of each; `call` names the
    parameter that takes the `Call` itself. `output` is the type of the result, or of one event of a stream.
    """

    input: type[msgspec.Struct]
    members: Mapping[str, Any] = field(default_factory=dict)
    call: str | None = None
    output: Any = Any
    streams: bool = False
    asynchronous: bool = False


def read_signature(function: Callable[..., Any]) -> Signature:
    """Raises UsageError for a function whose parameters cannot be given by name, or have no type hints."""
    name = getattr(function, "__name__", "function")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise _unusable(name, f"its type hints cannot be read: {error}") from None
    members: dict[str, Any] = {}
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    call = None
    for each in parameters.values():
        if each.kind not in _PLAIN or each.name not in hints:
            raise _unusable(name, f"the parameter {each.name} needs a type hint, and to be given by name")
        if hints[each.name] is Call:
            call = each.name
            continue
        members[each.name] = hints[each.name]
        fields.append(_field(each, hints[each.name]))
    output, streams = _output(function, hints.get("return", Any))
    try:
        made = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.Decoder(made)
    except (TypeError, ValueError) as error:
        raise _unusable(name, f"its input has no JSON form: {error}") from None
    return Signature(
        input=made,
        members=members,
        call=call,
        output=output,
        streams=streams,
        asynchronous=inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function),
    )


def schema_of(kind: Any) -> dict[str, Any] | None:
    """The JSON Schema of a type; None where it says nothing, or has none."""
    if kind in {Any, bytes, str, None, type(None), Answer}:
        return {"type": "string"} if kind is str else None
    try:
        return msgspec.json.schema(kind)
    except (TypeError, ValueError):
        return None


def _field(each: inspect.Parameter, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if each.default is inspect.Parameter.empty:
        return each.name, kind
    if isinstance(each.default, list | dict | set | bytearray):
        # one value for all calls would be shared between strangers
        default: Any = each.default
        return each.name, kind, msgspec.field(default_factory=lambda: type(default)(default))
    return each.name, kind, each.default


def _output(function: Callable[..., Any], kind: Any) -> tuple[Any, bool]:
    """The type of the result, or of an event, and whether there are events."""
    generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    streams = generator or typing.get_origin(kind) in _STREAMS
    if not streams:
        return kind, False
    arguments = typing.get_args(kind)
    return (arguments[0] if arguments else Any), True


def _unusable(name: str, why: str) -> UsageError:
    return UsageError(
        f"the function {name} cannot be a resource: {why}",
        hint="parameters with type hints that msgspec knows: str, int, list[str], dataclasses, ...",
    )
