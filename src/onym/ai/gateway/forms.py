"""HTML form fields from a JSON Schema, and the JSON input that a submitted form represents. Pure.

A nested object or an alternative is a field of JSON text. A schema that is not an object with properties is
one such field. The endpoint validates the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from onym.errors import AIIPError

MOST_FIELDS: Final = 48
_MOST_CHOICES: Final = 100
_LONGEST: Final = 200
_LONGEST_HELP: Final = 500
#: name of the only field of a schema that is not an object with properties
WHOLE_INPUT: Final = ""
_TEXT_LINE: Final = 200
_MOST_REFERENCES: Final = 4

Kind: TypeAlias = Literal["text", "long", "number", "integer", "choice", "flag", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One control. `name` is the property's name, `choices` are pairs of JSON text and label."""

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


def build_form_fields(schema: Mapping[str, Any] | None) -> tuple[FormField, ...]:
    """Return the controls for this input; () if the resource has no input."""
    whole = FormField(name=WHOLE_INPUT, label="Input (JSON)", kind="json", required=schema is not None)
    if schema is None:
        return (whole,)
    root, schema = schema, resolve_reference(schema, schema)
    properties = schema.get("properties")
    plain = isinstance(properties, Mapping) and schema.get("type", "object") == "object"
    properties = properties if isinstance(properties, Mapping) else {}
    if not plain or len(properties) > MOST_FIELDS or WHOLE_INPUT in properties:
        return () if schema.get("type") == "null" else (whole,)
    required = schema.get("required")
    needed = {str(name) for name in required} if isinstance(required, list) else set()
    return tuple(
        _build_field(
            str(name),
            resolve_reference(member, root) if isinstance(member, Mapping) else {},
            str(name) in needed,
        )
        for name, member in properties.items()
    )


def resolve_reference(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a local `$ref` names, merged with its siblings; other references stay."""
    for _ in range(_MOST_REFERENCES):
        reference = schema.get("$ref")
        place = reference.split("/") if isinstance(reference, str) else []
        definitions = root.get(place[1]) if len(place) == 3 and place[0] == "#" else None
        found = definitions.get(place[2]) if isinstance(definitions, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = {**found, **{name: value for name, value in schema.items() if name != "$ref"}}
    return schema


def _build_field(name: str, schema: Mapping[str, Any], required: bool) -> FormField:
    choices = _list_choices(schema)
    kind: Kind = "choice" if choices else _get_field_kind(schema)
    default = schema.get("default")
    return FormField(
        name=name,
        label=_truncate_text(schema.get("title"), _LONGEST) or name[:_LONGEST],
        kind=kind,
        # an empty checkbox is false, not missing
        required=required and kind != "flag",
        help=_truncate_text(schema.get("description"), _LONGEST_HELP),
        value=_format_default(default, kind),
        choices=choices,
        least=_format_number(schema.get("minimum")),
        most=_format_number(schema.get("maximum")),
        longest=_format_number(schema.get("maxLength")),
    )


def _get_field_kind(schema: Mapping[str, Any]) -> Kind:
    kind = schema.get("type")
    if kind == "string":
        longest = schema.get("maxLength")
        short = "format" in schema or (isinstance(longest, int) and longest <= _TEXT_LINE)
        return "text" if short else "long"
    known: dict[Any, Kind] = {"integer": "integer", "number": "number", "boolean": "flag"}
    return known.get(kind, "json") if isinstance(kind, str) else "json"


def _list_choices(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    given = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_CHOICES:
        return ()
    found = tuple(
        (_encode_json(value), value if isinstance(value, str) else _encode_json(value)) for value in given
    )
    # a definition can be referenced many times, so its size must be limited
    return found if all(len(text) <= _LONGEST for text, _ in found) else ()


def _format_default(default: Any, kind: Kind) -> str:
    if default is None:
        return ""
    text = default if isinstance(default, str) and kind in {"text", "long"} else _encode_json(default)
    return text[: 4 * _LONGEST]


def _truncate_text(value: Any, longest: int) -> str:
    return value[:longest] if isinstance(value, str) else ""


def _format_number(value: Any) -> str:
    return _encode_json(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8")


def encode_form_input(fields: tuple[FormField, ...], given: Mapping[str, str]) -> bytes:
    """Return the JSON body of a submitted form. `given` are the texts by field name.

    An empty optional field is left out. Raises AIIPError `aiip.invalid-input`, which names the field but not
    its content.
    """
    if not fields:
        return b""
    if fields[0].name == WHOLE_INPUT:
        text = given.get(WHOLE_INPUT, "").strip()
        if not text and not fields[0].required:
            return b""
        return msgspec.json.encode(_decode_json(text, fields[0]))
    found = {}
    for field in fields:
        text = given.get(field.name, "")
        if field.kind == "flag":
            found[field.name] = text != ""
        elif text or field.required:
            found[field.name] = _parse_field_value(field, text)
    return msgspec.json.encode(found)


def _parse_field_value(field: FormField, text: str) -> Any:
    if field.kind == "text":
        return text
    if field.kind == "long":
        return text.replace("\r\n", "\n")  # a form sends line ends as CRLF
    if field.kind == "choice" and text not in dict(field.choices):
        raise _make_field_error(field, "Choose one item of the list.")
    value = _decode_json(text.strip(), field)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if field.kind in {"integer", "number"} and not number:
        raise _make_field_error(field, "Enter a number.")
    return value


def _decode_json(text: str, field: FormField) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        is_number = field.kind in {"integer", "number"}
        hint = "Enter a number." if is_number else 'Enter JSON, such as {"a": 1}.'
        raise _make_field_error(field, hint) from None


def _make_field_error(field: FormField, hint: str) -> AIIPError:
    name = field.label if field.name else "the input"
    return AIIPError(f"{name} is not valid", code="aiip.invalid-input", hint=hint)
