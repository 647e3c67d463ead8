"""JSON Schemas and decoders for the types of a Python function, with msgspec or pydantic.

pydantic is never imported here. Its types are used only if the application has imported it.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from onym.ai.endpoint.context import Answer, Call, Task, ThreadTask
from onym.ai.records import require_finite_numbers
from onym.errors import URIError, UsageError
from onym.uri.components import decode_component

_OWN: Final = ("__pydantic_core_schema__", "__get_pydantic_core_schema__")
#: packages whose marks in `Annotated` pydantic uses and msgspec ignores
_MARKS: Final = frozenset({"annotated_types", "pydantic"})
#: how pydantic may write numbers that JSON does not have
_ODD: Final = (b"null", b"NaN", b"Infinity")


class PydanticModel:
    """A type that pydantic parses and encodes."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def build_schema(self, *, output: bool = False, prefix: str = "") -> dict[str, Any]:
        """Return the JSON Schema, with definitions in `$defs` whose names begin with `prefix`."""
        schema: dict[str, Any] = self._adapter.json_schema(
            mode="serialization" if output else "validation", ref_template=f"#/$defs/{prefix}{{model}}"
        )
        definitions = schema.pop("$defs", {})
        return _add_definitions(schema, {prefix + name: value for name, value in definitions.items()})

    def decode(self, value: Any, place: str) -> Any:
        """Convert decoded JSON to this type. Raises msgspec.ValidationError with the path of the fault."""
        try:
            return self._adapter.validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise msgspec.ValidationError(_format_error(error, place)) from None

    def encode(self, value: Any) -> bytes:
        """Encode a result as JSON. Raises ValueError for a result of another type, without its content."""
        try:
            made = self._adapter.validate_python(value)
            body: bytes = self._adapter.dump_json(made, by_alias=True, warnings="error")
            if any(literal in body for literal in _ODD):
                require_finite_numbers(self._adapter.dump_python(made, mode="json"))
        except ValueError as error:
            raise ValueError(f"pydantic refuses it ({type(error).__name__})") from None
        return body


def find_model(kind: Any) -> PydanticModel | None:
    """Return the model of a type that uses pydantic; None for other types.

    Raises TypeError for a type that pydantic cannot parse.
    """
    if not _uses_pydantic(kind):
        return None
    loaded: Any = sys.modules.get("pydantic")
    if loaded is None:
        raise TypeError("marks of annotated_types need pydantic; import it in your application")
    try:
        model = PydanticModel(loaded.TypeAdapter(kind))
        model.build_schema()
    except (loaded.errors.PydanticUserError, NameError) as error:
        raise TypeError(str(error).partition("\n")[0]) from None
    return model


def is_pydantic_field(default: Any) -> bool:
    """Report whether this is a `pydantic.Field(...)`, which the function would get as its default."""
    loaded: Any = sys.modules.get("pydantic")
    return loaded is not None and isinstance(default, loaded.fields.FieldInfo)


def _uses_pydantic(kind: Any) -> bool:
    marks = getattr(kind, "__metadata__", ())
    return (
        any(hasattr(kind, name) for name in _OWN)
        or any(type(mark).__module__.partition(".")[0] in _MARKS for mark in marks)
        or any(_uses_pydantic(argument) for argument in typing.get_args(kind))
    )


def _format_error(error: Any, place: str) -> str:
    """Return the first fault and its path, without the input and pydantic's advice."""
    faults: list[Mapping[str, Any]] = error.errors(
        include_url=False, include_input=False, include_context=False
    )
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in faults[0]["loc"])
    return f"{faults[0]['msg']} - at `$.{place}{path}`"


_STREAMS: Final = frozenset({AsyncGenerator, AsyncIterator, Generator, Iterator})
#: chained references at the root
_MOST_REFERENCES: Final = 8
#: types without a useful schema, or whose results are not JSON
_NO_SCHEMA_TYPES: Final = (Any, bytes, str, None, type(None), Answer)
_MUTABLE: Final = (list, dict, set, bytearray)
_PLAIN: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The input and output of a function.

    `input` is a Struct with a field for every parameter, `members` contains their types; `call` is the name
    of the parameter for the `Call` itself, `task` that of the parameter for the long task. `models` parse the
    parameters of pydantic types: in `input` they are unparsed, or UNSET for one of `defaults`. `output` is
    the type of the result, or of one event of a stream.
    """

    input: type[msgspec.Struct]
    members: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, PydanticModel] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    call: str | None = None
    task: str | None = None
    output: Any = Any
    streams: bool = False
    asynchronous: bool = False


def parse_signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of a function.

    Raises UsageError for a parameter that cannot be passed by name, has no type hint, or has a type without a
    JSON form.
    """
    name = getattr(function, "__name__", "function")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise make_signature_error(name, "its type hints", error) from None
    members: dict[str, Any] = {}
    models: dict[str, PydanticModel] = {}
    defaults: dict[str, Any] = {}
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    call = task = None
    for parameter in parameters.values():
        if parameter.kind not in _PLAIN or parameter.name not in hints:
            why = "it needs a type hint and must accept a keyword argument"
            raise make_signature_error(name, f"the parameter {parameter.name}", why)
        kind = members[parameter.name] = Any if hints[parameter.name] is object else hints[parameter.name]
        if kind is Call:
            call = parameter.name
            del members[parameter.name]
            continue
        if kind is Task or kind is ThreadTask:
            _require_task_type(function, name, kind)
            task = parameter.name
            del members[parameter.name]
            continue
        model = _find_parameter_model(name, parameter, kind)
        if model is not None:
            models[parameter.name] = model
            defaults[parameter.name] = parameter.default
            kind = Any
            if parameter.default is not parameter.empty:
                parameter = parameter.replace(default=msgspec.UNSET)
        fields.append(_make_field(parameter, kind))
    output, streams = _get_result_type(function, hints.get("return", Any))
    try:
        made = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.Decoder(made)
    except (TypeError, ValueError) as error:
        raise make_signature_error(name, "its input", error) from None
    return Signature(
        input=made,
        members=members,
        models=models,
        defaults=defaults,
        call=call,
        task=task,
        output=output,
        streams=streams,
        asynchronous=inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function),
    )


def _require_task_type(function: Callable[..., Any], name: str, kind: Any) -> None:
    """Raise UsageError for a task whose methods this function cannot call."""
    wanted = Task if inspect.iscoroutinefunction(function) else ThreadTask
    if kind is not wanted:
        part = "a coroutine function" if wanted is Task else "a plain function"
        why = f"{part} needs a parameter of the type {wanted.__name__}"
        raise make_signature_error(name, "its task", why)


def find_schema(kind: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a type, or None if it has no useful schema."""
    if any(kind is excluded for excluded in _NO_SCHEMA_TYPES):
        return {"type": "string"} if kind is str else None
    try:
        return build_schema(kind)
    except (TypeError, ValueError):
        return None


def build_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type, with the members of an object at its root, where all readers look.

    Definitions stay if something else refers to them. Raises TypeError or ValueError for a type without a
    JSON form.
    """
    schema = msgspec.json.schema(kind)
    root = inline_root_reference(schema)
    definitions = root.pop("$defs", {})
    own = schema.get("$ref", "")
    if own and msgspec.json.encode(own) not in msgspec.json.encode([root, definitions]):
        definitions = {name: value for name, value in definitions.items() if f"#/$defs/{name}" != own}
    return _add_definitions(root, definitions)


def _add_definitions(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "$defs": definitions} if definitions else dict(schema)


def build_input_schema(signature: Signature) -> dict[str, Any] | None:
    """Return the JSON Schema of a function's input, with pydantic's schemas for its types."""
    schema = find_schema(signature.input)
    if schema is None or not signature.models:
        return schema
    members, definitions = dict(schema.get("properties", {})), dict(schema.get("$defs", {}))
    for name, model in signature.models.items():
        members[name] = model.build_schema(prefix=f"{name}.")
        definitions |= members[name].pop("$defs", {})
    return _add_definitions({**schema, "properties": members}, definitions)


def inline_root_reference(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a local `$ref` at the root by the schema that it names, merged with the reference's siblings.

    A reference to another document or to nothing stays, and so does a circular one.
    """
    schema = dict(given)
    for _ in range(_MOST_REFERENCES):
        target = _resolve_pointer(given, schema.get("$ref"))
        if target is None:
            return schema
        schema = {**target, **{name: member for name, member in schema.items() if name != "$ref"}}
    return dict(given)


def _resolve_pointer(schema: Mapping[str, Any], reference: Any) -> Mapping[str, Any] | None:
    """Return the schema that a local reference (RFC 6901 6) names, unless it has an `$id`."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    try:
        parts = decode_component(reference[2:], component="reference").split("/")
    except URIError:
        return None
    found: Any = schema
    for part in parts:
        if not isinstance(found, Mapping):
            return None
        found = found.get(part.replace("~1", "/").replace("~0", "~"))
    return found if isinstance(found, Mapping) and "$id" not in found else None


def _find_parameter_model(name: str, parameter: inspect.Parameter, kind: Any) -> PydanticModel | None:
    """Return the model of a pydantic parameter. Raises UsageError for a type that cannot be parsed."""
    if is_pydantic_field(parameter.default):
        why = f"write {parameter.name}: Annotated[..., Field(...)] = default"
        raise make_signature_error(name, f"the parameter {parameter.name}", why)
    try:
        model = find_model(kind)
        if model is None:
            msgspec.json.schema(kind)
            msgspec.json.Decoder(kind)
        return model
    except (NameError, TypeError, ValueError) as error:
        raise make_signature_error(name, f"the parameter {parameter.name}", error) from None


def copy_default(default: Any) -> Any:
    """Copy a default, because callers must not share a mutable value."""
    kind: Any = type(default)
    return kind(default) if isinstance(default, _MUTABLE) else default


def _make_field(parameter: inspect.Parameter, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name, kind
    if isinstance(parameter.default, _MUTABLE):
        return parameter.name, kind, msgspec.field(default_factory=partial(copy_default, parameter.default))
    return parameter.name, kind, parameter.default


def _get_result_type(function: Callable[..., Any], kind: Any) -> tuple[Any, bool]:
    """Return the type of the result or of an event, and whether the function is a stream of events."""
    generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if not generator and typing.get_origin(kind) not in _STREAMS:
        return kind, False
    return [*typing.get_args(kind), Any][0], True


def make_signature_error(name: str, part: str, why: object) -> UsageError:
    """Return the error of a function with a part that has no JSON form."""
    reason = str(why).rpartition("\n")[2]  # msgspec's advice comes first
    return UsageError(
        f"the function {name} cannot be a resource because of {part}: {reason}",
        hint="Use a type that msgspec supports (str, int, list[str], dataclass, TypedDict, Struct, ...), "
        "a pydantic model, or Any for any JSON.",
    )
