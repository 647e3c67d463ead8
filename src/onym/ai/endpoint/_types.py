"""A Python function's types, as what JSON Schema says of its input and output."""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from onym.ai.endpoint._pydantic import Model, is_field, model_of
from onym.ai.endpoint.context import Answer, Call
from onym.errors import URIError, UsageError
from onym.uri._percent import decode

__all__ = [
    "Signature",
    "fresh",
    "input_schema",
    "read_signature",
    "rooted",
    "schema",
    "schema_of",
    "unusable",
]

_STREAMS: Final = frozenset({AsyncGenerator, AsyncIterator, Generator, Iterator})
#: references of a root that lead to references
_MOST_REFERENCES: Final = 8
#: types whose schema says nothing, or whose results are no JSON
_SAID_ELSEWHERE: Final = (Any, bytes, str, None, type(None), Answer)
_MUTABLE: Final = (list, dict, set, bytearray)
_PLAIN: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a function takes and gives.

    `input` is a Struct with a field for each parameter, `members` the type of each; `call` names the
    parameter that takes the `Call` itself. `models` reads the parameters that are pydantic's, which `input`
    takes as they come, or leaves UNSET where one of `defaults` is meant. `output` is the type of the result,
    or of one event of a stream.
    """

    input: type[msgspec.Struct]
    members: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    call: str | None = None
    output: Any = Any
    streams: bool = False
    asynchronous: bool = False


def read_signature(function: Callable[..., Any]) -> Signature:
    """Raises UsageError for a function whose parameters cannot be given by name, or have no type hints.

    So it does for a type without a JSON form: nobody could ever call that function.
    """
    name = getattr(function, "__name__", "function")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise unusable(name, "its type hints", error) from None
    members: dict[str, Any] = {}
    models: dict[str, Model] = {}
    defaults: dict[str, Any] = {}
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    call = None
    for each in parameters.values():
        if each.kind not in _PLAIN or each.name not in hints:
            why = "it needs a type hint, and to be given by name"
            raise unusable(name, f"the parameter {each.name}", why)
        kind = members[each.name] = Any if hints[each.name] is object else hints[each.name]
        if kind is Call:
            call = each.name
            del members[each.name]
            continue
        model = _read_by(name, each, kind)
        if model is not None:
            models[each.name] = model
            defaults[each.name] = each.default
            kind, each = Any, each if each.default is each.empty else each.replace(default=msgspec.UNSET)
        fields.append(_field(each, kind))
    output, streams = _output(function, hints.get("return", Any))
    try:
        made = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.Decoder(made)
    except (TypeError, ValueError) as error:
        raise unusable(name, "its input", error) from None
    return Signature(
        input=made,
        members=members,
        models=models,
        defaults=defaults,
        call=call,
        output=output,
        streams=streams,
        asynchronous=inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function),
    )


def schema_of(kind: Any) -> dict[str, Any] | None:
    """The JSON Schema of a type; None where it says nothing, or has none."""
    if any(kind is each for each in _SAID_ELSEWHERE):
        return {"type": "string"} if kind is str else None
    try:
        return schema(kind)
    except (TypeError, ValueError):
        return None


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type; what an object has is said at its root, where all readers look.

    Definitions stay where something else refers to them. Raises TypeError or ValueError for a type that has
    no JSON form.
    """
    found = msgspec.json.schema(kind)
    root = rooted(found)
    named = root.pop("$defs", {})
    own = found.get("$ref", "")
    if own and msgspec.json.encode(own) not in msgspec.json.encode([root, named]):
        named = {name: each for name, each in named.items() if f"#/$defs/{name}" != own}
    return {**root, **({"$defs": named} if named else {})}


def input_schema(signature: Signature) -> dict[str, Any] | None:
    """The JSON Schema of what a function takes; pydantic says it of its own types."""
    found = schema_of(signature.input)
    if found is None or not signature.models:
        return found
    members, named = dict(found.get("properties", {})), dict(found.get("$defs", {}))
    for name, model in signature.models.items():
        members[name] = model.schema(prefix=f"{name}.")
        named |= members[name].pop("$defs", {})
    return {**found, "properties": members, **({"$defs": named} if named else {})}


def rooted(given: Mapping[str, Any]) -> dict[str, Any]:
    """A schema whose root has what its `$ref` leads to within it, and what stands beside that.

    A reference to elsewhere, or to nothing, stays as it is; so does one that never ends.
    """
    found = dict(given)
    for _ in range(_MOST_REFERENCES):
        target = _pointed(given, found.get("$ref"))
        if target is None:
            return found
        found = {**target, **{name: each for name, each in found.items() if name != "$ref"}}
    return dict(given)


def _pointed(schema: Mapping[str, Any], reference: Any) -> Mapping[str, Any] | None:
    """What a local reference (RFC 6901 6) points at, if that is a schema without an identity of its own."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    try:
        parts = decode(reference[2:], component="reference").split("/")
    except URIError:
        return None
    found: Any = schema
    for part in parts:
        if not isinstance(found, Mapping):
            return None
        found = found.get(part.replace("~1", "/").replace("~0", "~"))
    return found if isinstance(found, Mapping) and "$id" not in found else None


def _read_by(name: str, each: inspect.Parameter, kind: Any) -> Model | None:
    """What reads a parameter that is pydantic's. Raises UsageError for one that nothing reads."""
    if is_field(each.default):
        why = f"write {each.name}: Annotated[..., Field(...)], with the default after that"
        raise unusable(name, f"the parameter {each.name}", why)
    try:
        model = model_of(kind)
        if model is None:
            msgspec.json.schema(kind)
            msgspec.json.Decoder(kind)
        return model
    except (NameError, TypeError, ValueError) as error:
        raise unusable(name, f"the parameter {each.name}", error) from None


def fresh(default: Any) -> Any:
    """A default for one call: one value for all calls would be shared between strangers."""
    kind: Any = type(default)
    return kind(default) if isinstance(default, _MUTABLE) else default


def _field(each: inspect.Parameter, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if each.default is inspect.Parameter.empty:
        return each.name, kind
    if isinstance(each.default, _MUTABLE):
        return each.name, kind, msgspec.field(default_factory=partial(fresh, each.default))
    return each.name, kind, each.default


def _output(function: Callable[..., Any], kind: Any) -> tuple[Any, bool]:
    """The type of the result, or of an event, and whether there are events."""
    generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    streams = generator or typing.get_origin(kind) in _STREAMS
    if not streams:
        return kind, False
    arguments = typing.get_args(kind)
    return (arguments[0] if arguments else Any), True


def unusable(name: str, part: str, why: object) -> UsageError:
    """The error of a function of which this part cannot be given, or told, as JSON."""
    reason = str(why).rpartition("\n")[2]  # msgspec's advice comes first
    return UsageError(
        f"the function {name} cannot be a resource: {part}: {reason}",
        hint="what msgspec knows: str, int, list[str], dataclass, TypedDict, msgspec.Struct, ...; a pydantic "
        "model; Any for whatever JSON says",
    )
