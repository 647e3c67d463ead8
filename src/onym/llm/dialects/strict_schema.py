"""JSON Schemas in the form that a provider's strict mode takes. A given schema is never changed.

The rules are those of the vendors' SDKs: `to_strict_json_schema` of openai 3.52 with the transformer of
pydantic-ai 2.68, `rec_strict_json_schema` of mistralai 3.7, and `transform_schema` of anthropic 2.12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from onym.errors import UnsupportedError
from onym.llm.types import Tool

#: schemas below schemas: a deeper one is not strict
_MAX_DEPTH: Final = 100
#: schemas in the result, because references with other members are written out
_MAX_NODES: Final = 20_000
#: OpenAI's limits of one strict schema
_MAX_OBJECT_DEPTH: Final = 10
_MAX_PROPERTIES: Final = 5_000


class StrictSchema(NamedTuple):
    """A schema to send; `obstacle` says why it cannot be strict, None if it is."""

    schema: Mapping[str, Any]
    obstacle: str | None = None


def make_openai_schema(schema: Mapping[str, Any]) -> StrictSchema:
    """Return a schema for OpenAI's `strict: true`, or the schema itself with the obstacle.

    Objects take no other members, and all their members are required, as OpenAI's SDK has it. Constraints
    that strict mode rejects become a part of the description.
    """
    return _convert_schema(schema, lambda: _OpenAIConverter(schema).convert_root())


def make_mistral_schema(schema: Mapping[str, Any]) -> StrictSchema:
    """Return a schema for Mistral's `strict: true`: objects take no other members."""
    return _convert_schema(schema, lambda: _close_objects(schema, 0))


def make_anthropic_schema(schema: Mapping[str, Any]) -> StrictSchema:
    """Return a schema for Anthropic's structured output, or the schema itself with the obstacle.

    Objects take no other members, and constraints that the API rejects become a part of the description. As
    in the SDK, an object with members of any name takes none; then there is an obstacle too.
    """
    found: list[str] = []
    converted = _convert_schema(schema, lambda: _AnthropicConverter(found).convert(schema, 0))
    return converted._replace(obstacle=converted.obstacle or next(iter(found), None))


def convert_tool(tool: Tool, convert: Callable[[Mapping[str, Any]], StrictSchema]) -> Tool:
    """Return a strict tool with a strict schema, or without `strict` if its schema cannot be strict."""
    if not tool.strict or not tool.parameters:
        return tool
    schema, obstacle = convert(tool.parameters)
    return replace(tool, parameters=schema if obstacle is None else tool.parameters, strict=obstacle is None)


def _convert_schema(schema: Mapping[str, Any], convert: Callable[[], Mapping[str, Any]]) -> StrictSchema:
    try:
        return StrictSchema(convert())
    except UnsupportedError as error:
        return StrictSchema(schema, error.message)


def _require_schema(value: Any, depth: int) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UnsupportedError("a part of it is not an object")
    if depth > _MAX_DEPTH:
        raise UnsupportedError(f"it is nested more than {_MAX_DEPTH} levels deep")
    return value


def _has_type(schema: Mapping[str, Any], name: str) -> bool:
    kind = schema.get("type")
    return kind == name or (isinstance(kind, list | tuple) and name in kind)


def _describe_constraints(description: Any, constraints: Mapping[str, Any]) -> str:
    """Return the description with constraints that only the reader of the schema can follow."""
    text = "{" + ", ".join(f"{name}: {value}" for name, value in constraints.items()) + "}"
    return f"{description}\n\n{text}" if isinstance(description, str) and description else text


#: members of a schema with schemas by name, with one schema, and with a list of schemas
_NAMED: Final = ("$defs", "definitions", "properties")
_VARIANTS: Final = ("anyOf", "oneOf", "allOf")
#: one of them gives a schema its type
_TYPE_MEMBERS: Final = ("type", "$ref", "anyOf", "allOf", "enum", "const")
#: rejected by strict mode; a description can express them
_DESCRIBED: Final = frozenset(
    {
        *("default", "maxContains", "maxProperties", "minContains", "minProperties", "propertyNames"),
        "uniqueItems",
    }
)
#: rejected by strict mode, and the schema would have another meaning without them
_REJECTED: Final = (
    *("contains", "dependentRequired", "dependentSchemas", "else", "if", "not", "patternProperties"),
    *("prefixItems", "then", "unevaluatedItems", "unevaluatedProperties"),
)
#: members without a meaning for the answer, which strict mode rejects
_DROPPED: Final = frozenset({"$schema", "discriminator"})
_STRING_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)
_LOOKAROUND: Final = re.compile(r"(?<!\\)(?:\\\\)*\(\?(?:[=!]|<[=!])")
#: the references that strict mode resolves
_REFERENCE: Final = re.compile(r"#|#/(?:\$defs|definitions)/[^/]+")


class _OpenAIConverter:
    """Converts one schema. `_inlined` has the references that are being written out."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._inlined: list[str] = []
        self._nodes = 0

    def convert_root(self) -> dict[str, Any]:
        converted = self._convert(self._root, 0)
        if converted.get("type") != "object":
            raise UnsupportedError("its root is not an object")
        parts = [converted, *converted.get("$defs", {}).values(), *converted.get("definitions", {}).values()]
        properties = 0
        for part in parts:
            for node, level in _iter_objects(part, 0):
                properties += len(node["properties"])
                if level > _MAX_OBJECT_DEPTH or properties > _MAX_PROPERTIES:
                    raise UnsupportedError(
                        f"it has objects on more than {_MAX_OBJECT_DEPTH} levels, "
                        f"or more than {_MAX_PROPERTIES} properties"
                    )
        return converted

    def _convert(self, value: Any, depth: int) -> dict[str, Any]:
        schema = _require_schema(value, depth)
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise UnsupportedError("it is too large")
        reference = schema.get("$ref")
        if reference is not None and len(schema) > 1:
            return self._convert_reference(schema, reference, depth)
        out = self._convert_members(schema, depth)
        if reference is not None and not _is_reference(reference):
            raise UnsupportedError("it refers to a schema that is not in $defs")
        if not any(name in out for name in _TYPE_MEMBERS):
            raise UnsupportedError("a part of it has no type")
        if _has_type(out, "object"):
            _close_object(out)
        if _has_type(out, "array") and "items" not in out:
            raise UnsupportedError("a list does not say what it contains")
        return out

    def _convert_members(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return the schema with its inner schemas converted, without members that strict mode rejects."""
        out: dict[str, Any] = {}
        described: dict[str, Any] = {}
        for name, value in schema.items():
            if name in _VARIANTS and not isinstance(value, list | tuple):
                raise UnsupportedError(f"{name} is not a list")
            if name in _DROPPED or (name == "default" and value is None):
                continue
            if _is_described(name, value):
                described[name] = value
            else:
                # strict mode has no oneOf; the variants of a union with a discriminator exclude each other
                out["anyOf" if name == "oneOf" else name] = self._convert_member(name, value, depth + 1)
        if len(out.get("allOf", ())) == 1:
            # the only one takes precedence, as in the SDK
            out.update(out.pop("allOf")[0])
        if described:
            out["description"] = _describe_constraints(out.get("description"), described)
        return out

    def _convert_member(self, name: str, value: Any, depth: int) -> Any:
        if name in _REJECTED or (name == "allOf" and len(value) != 1):
            raise UnsupportedError(f"strict mode has no {name}")
        if name in _NAMED and isinstance(value, Mapping):
            return {key: self._convert(item, depth) for key, item in value.items()}
        if name == "items":
            return self._convert(value, depth)
        if name in _VARIANTS:
            return [self._convert(item, depth) for item in value]
        return value

    def _convert_reference(self, schema: Mapping[str, Any], reference: Any, depth: int) -> dict[str, Any]:
        """Write a reference with other members out: strict mode takes only references without them."""
        others = {name: value for name, value in schema.items() if name != "$ref"}
        if reference in self._inlined:
            # a schema that contains itself
            return self._convert({**others, "anyOf": [{"$ref": reference}]}, depth)
        self._inlined.append(reference)
        target = _require_schema(self._resolve(reference), depth)
        converted = self._convert({**target, **others}, depth + 1)
        self._inlined.pop()
        return converted

    def _resolve(self, reference: Any) -> Any:
        if not _is_reference(reference):
            raise UnsupportedError("it refers to a schema that is not in $defs")
        found: Any = self._root
        for step in reference.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def _is_described(name: str, value: Any) -> bool:
    """Whether a member of a schema is a constraint that strict mode rejects."""
    if name == "format":
        return not isinstance(value, str) or value not in _STRING_FORMATS
    if name == "pattern":
        return isinstance(value, str) and _LOOKAROUND.search(value) is not None
    return name in _DESCRIBED


def _close_object(schema: dict[str, Any]) -> None:
    """Let an object take no other members, and require all of its own."""
    if schema.setdefault("additionalProperties", False) is not False:
        raise UnsupportedError("an object in it takes members of any name")
    if not isinstance(schema.get("properties"), dict):
        raise UnsupportedError("an object in it does not list its members")
    schema["required"] = list(schema["properties"])


def _iter_objects(schema: Mapping[str, Any], level: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the objects of a converted schema with their levels, without following references."""
    if isinstance(schema.get("properties"), Mapping):
        level += 1
        yield schema, level
        for item in schema["properties"].values():
            yield from _iter_objects(item, level)
    if "items" in schema:
        yield from _iter_objects(schema["items"], level)
    for item in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from _iter_objects(item, level)


def _close_objects(value: Any, depth: int) -> dict[str, Any]:
    """Return a schema whose objects take no other members."""
    schema = _require_schema(value, depth)
    out = {name: _close_inner(name, item, depth + 1) for name, item in schema.items()}
    if _has_type(out, "object") and out.setdefault("additionalProperties", False) is not False:
        raise UnsupportedError("an object in it takes members of any name")
    return out


def _close_inner(name: str, value: Any, depth: int) -> Any:
    if name in _NAMED and isinstance(value, Mapping):
        return {key: _close_objects(item, depth) for key, item in value.items()}
    if name == "items" and isinstance(value, Mapping):
        return _close_objects(value, depth)
    if name in (*_VARIANTS, "prefixItems") and isinstance(value, Sequence):
        return [_close_objects(item, depth) for item in value]
    return value


_ANTHROPIC_FORMATS: Final = _STRING_FORMATS | {"uri"}


class _AnthropicConverter:
    """Converts one schema. `found` gets what the converted schema cannot express."""

    def __init__(self, found: list[str]) -> None:
        self._found = found

    def convert(self, value: Any, depth: int) -> dict[str, Any]:
        schema = dict(_require_schema(value, depth))
        out: dict[str, Any] = {}
        definitions = schema.pop("$defs", None)
        if isinstance(definitions, Mapping):
            out["$defs"] = {name: self.convert(item, depth + 1) for name, item in definitions.items()}
        if "$ref" in schema:
            # without its other members
            return {**out, "$ref": schema["$ref"]}
        kind = schema.pop("type", None)
        _move_literals(schema, out)
        if "enum" in out or "const" in out:
            kind = None
        variants = self._move_variants(schema, out, depth)
        if kind is not None and not variants:
            out["type"] = kind
        elif kind is None and not variants and "enum" not in out and "const" not in out:
            raise UnsupportedError("a part of it has no type")
        for name in ("description", "title"):
            text = schema.pop(name, None)
            if text is not None:
                out[name] = text
        self._move_members(kind, schema, out, depth)
        if schema:
            out["description"] = _describe_constraints(out.get("description"), schema)
        return out

    def _move_variants(self, schema: dict[str, Any], out: dict[str, Any], depth: int) -> bool:
        """Move the first list of variants, and report whether there is one; the API has no oneOf."""
        lists = {name: schema.pop(name, None) for name in ("anyOf", "oneOf", "allOf")}
        for name, items in lists.items():
            if isinstance(items, list):
                converted = [self.convert(item, depth + 1) for item in items]
                out["allOf" if name == "allOf" else "anyOf"] = converted
                return True
        return False

    def _move_members(self, kind: Any, schema: dict[str, Any], out: dict[str, Any], depth: int) -> None:
        """Move the members that the API takes for this type."""
        if kind == "object":
            if schema.pop("additionalProperties", False) not in (False, None):
                self._found.append("an object in it takes members of any name")
            properties = _require_schema(schema.pop("properties", {}), depth)
            out["properties"] = {name: self.convert(item, depth + 1) for name, item in properties.items()}
            out["additionalProperties"] = False
            required = schema.pop("required", None)
            if isinstance(required, list | tuple):
                out["required"] = list(required)
        elif kind == "string":
            _move_member("format", _ANTHROPIC_FORMATS, schema, out)
        elif kind == "array":
            if schema.get("items") is not None:
                out["items"] = self.convert(schema.pop("items"), depth + 1)
            _move_member("minItems", (0, 1), schema, out)


def _move_member(name: str, allowed: Collection[Any], schema: dict[str, Any], out: dict[str, Any]) -> None:
    """Move a member with an allowed value; any other value goes last, into the description."""
    value = schema.pop(name, None)
    if isinstance(value, str | int) and value in allowed:
        out[name] = value
    elif value is not None:
        schema[name] = value


def _move_literals(schema: dict[str, Any], out: dict[str, Any]) -> None:
    values = schema.get("enum")
    if isinstance(values, list) and values and all(map(_is_primitive, values)):
        out["enum"] = schema.pop("enum")
    if "const" in schema and _is_primitive(schema["const"]):
        out["const"] = schema.pop("const")


def _is_primitive(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
