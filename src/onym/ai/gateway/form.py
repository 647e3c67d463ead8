"""A form from a JSON Schema, and the JSON that a filled form stands for. No script is needed in between.

What a form cannot show well (nested objects, alternatives) is a field of JSON text; a schema that is no
object with properties is one such field. What the input must be is the endpoint's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from onym.errors import AIIPError

__all__ = ["MOST_FIELDS", "WHOLE", "Field", "fields_of", "input_of"]

MOST_FIELDS: Final = 48
_MOST_CHOICES: Final = 100
_LONGEST: Final = 200
_LONGEST_HELP: Final = 500
#: name of the one field of a schema that is no plain object
WHOLE: Final = ""
_TEXT_LINE: Final = 200
_MOST_REFERENCES: Final = 4

Kind: TypeAlias = Literal["text", "long", "number", "integer", "choice", "flag", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One control. `name` is the property's name, `choices` JSON texts with what is shown for each."""

    name: str
    label: str
    kind: Kind
    required: bool = False
    help: str = ""
    value: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    least: str = ""
    most: str = ""
    longest: str = ""


def fields_of(schema: Mapping[str, Any] | None) -> tuple[Field, ...]:
    """The controls for this input; () where the resource takes none."""
    if schema is None:
        return (Field(name=WHOLE, label="Input (JSON)", kind="json"),)
    root, schema = schema, _followed(schema, schema)
    properties = schema.get("properties")
    plain = isinstance(properties, Mapping) and schema.get("type", "object") == "object"
    properties = properties if isinstance(properties, Mapping) else {}
    if not plain or len(properties) > MOST_FIELDS or WHOLE in properties:
        nothing = schema.get("type") == "null"
        return () if nothing else (Field(name=WHOLE, label="Input (JSON)", kind="json", required=True),)
    required = schema.get("required")
    needed = {str(each) for each in required} if isinstance(required, list) else set()
    return tuple(
        _field(str(name), _followed(each, root) if isinstance(each, Mapping) else {}, str(name) in needed)
        for name, each in properties.items()
    )


def _followed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a local `$ref` leads to, with what stands beside it; any other stays as it is."""
    for _ in range(_MOST_REFERENCES):
        reference = schema.get("$ref")
        place = reference.split("/") if isinstance(reference, str) else []
        definitions = root.get(place[1]) if len(place) == 3 and place[0] == "#" else None
        found = definitions.get(place[2]) if isinstance(definitions, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = {**found, **{name: value for name, value in schema.items() if name != "$ref"}}
    return schema


def _field(name: str, schema: Mapping[str, Any], required: bool) -> Field:
    choices = _choices(schema)
    kind: Kind = "choice" if choices else _kind(schema)
    default = schema.get("default")
    return Field(
        name=name,
        label=_text(schema.get("title"), _LONGEST) or name[:_LONGEST],
        kind=kind,
        # an unticked box is false, and not a missing answer
        required=required and kind != "flag",
        help=_text(schema.get("description"), _LONGEST_HELP),
        value=_shown(default, kind),
        choices=choices,
        least=_number(schema.get("minimum")),
        most=_number(schema.get("maximum")),
        longest=_number(schema.get("maxLength")),
    )


def _kind(schema: Mapping[str, Any]) -> Kind:
    kind = schema.get("type")
    if kind == "string":
        longest = schema.get("maxLength")
        short = "format" in schema or (isinstance(longest, int) and longest <= _TEXT_LINE)
        return "text" if short else "long"
    known: dict[Any, Kind] = {"integer": "integer", "number": "number", "boolean": "flag"}
    return known.get(kind, "json") if isinstance(kind, str) else "json"


def _choices(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    given = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_CHOICES:
        return ()
    found = tuple((_json(each), each if isinstance(each, str) else _json(each)) for each in given)
    # definitions can be referred to many times over: a page must not grow with their product
    return found if all(len(text) <= _LONGEST for text, _ in found) else ()


def _shown(default: Any, kind: Kind) -> str:
    if default is None:
        return ""
    text = default if isinstance(default, str) and kind in {"text", "long"} else _json(default)
    return text[: 4 * _LONGEST]


def _text(value: Any, longest: int) -> str:
    return value[:longest] if isinstance(value, str) else ""


def _number(value: Any) -> str:
    return _json(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8")


def input_of(fields: tuple[Field, ...], given: Mapping[str, str]) -> bytes:
    """The JSON body that a filled form stands for. `given` are the texts by field name.

    An empty field that is not required is left out. Raises AIIPError `aiip.invalid-input` that names the
    field, and not what stands in it.
    """
    if not fields:
        return b""
    if fields[0].name == WHOLE:
        text = given.get(WHOLE, "").strip()
        return b"" if not text and not fields[0].required else msgspec.json.encode(_decoded(text, fields[0]))
    found = {}
    for field in fields:
        text = given.get(field.name, "")
        if field.kind == "flag":
            found[field.name] = text != ""
        elif text or field.required:
            found[field.name] = _value(field, text)
    return msgspec.json.encode(found)


def _value(field: Field, text: str) -> Any:
    if field.kind == "text":
        return text
    if field.kind == "long":
        return text.replace("\r\n", "\n")  # a form sends line ends as CRLF
    if field.kind == "choice" and text not in dict(field.choices):
        raise _wrong(field, "choose one of the list")
    value = _decoded(text.strip(), field)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if field.kind in {"integer", "number"} and not number:
        raise _wrong(field, "give a number")
    return value


def _decoded(text: str, field: Field) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        hint = (
            "give a number" if field.kind in {"integer", "number"} else 'write it as JSON, such as {"a": 1}'
        )
        raise _wrong(field, hint) from None


def _wrong(field: Field, hint: str) -> AIIPError:
    where = field.label if field.name else "the input"
    return AIIPError(f"{where} cannot be read", code="aiip.invalid-input", hint=hint)
