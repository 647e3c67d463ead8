"""Forms from JSON Schemas, without a script."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.gateway.review import MOST_FIELDS, WHOLE_INPUT, FormField, build_form_fields, encode_form_input
from onym.errors import AIIPError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "count", "tick"],
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "As on the door", "maxLength": 80},
        "text": {"type": "string", "default": "a\nb"},
        "day": {"type": "string", "format": "date"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
        "ratio": {"type": "number"},
        "tick": {"type": "boolean", "default": True},
        "colour": {"enum": ["red", "green", 3, None]},
        "fixed": {"const": "x"},
        "nested": {"type": "object"},
        "either": {"type": ["string", "null"]},
        "odd": True,
    },
}


def test_each_property_is_a_control() -> None:
    found = {each.name: each for each in build_form_fields(SCHEMA)}
    assert {name: each.kind for name, each in found.items()} == {
        "name": "text",
        "text": "long",
        "day": "text",
        "count": "integer",
        "ratio": "number",
        "tick": "flag",
        "colour": "choice",
        "fixed": "choice",
        "nested": "json",
        "either": "json",
        "odd": "json",
    }
    assert found["name"] == FormField(
        name="name", label="Your name", kind="text", required=True, help="As on the door", longest="80"
    )
    assert (found["count"].least, found["count"].most, found["count"].value) == ("1", "9", "3")
    assert found["text"].value == "a\nb"
    assert not found["tick"].required
    assert found["colour"].choices == (('"red"', "red"), ('"green"', "green"), ("3", "3"), ("null", "null"))


def test_a_filled_form_is_json() -> None:
    typed = {
        "name": "Ann",
        "text": "a\r\nb",
        "count": " 4 ",
        "ratio": "0.5",
        "tick": "true",
        "colour": "3",
        "nested": '{"a": [1]}',
        "either": "null",
        "day": "",
    }
    assert json.loads(encode_form_input(build_form_fields(SCHEMA), typed)) == {
        "name": "Ann",
        "text": "a\nb",
        "count": 4,
        "ratio": 0.5,
        "tick": True,
        "colour": 3,
        "nested": {"a": [1]},
        "either": None,
    }


def test_an_unticked_box_is_false() -> None:
    assert json.loads(encode_form_input(build_form_fields(SCHEMA), {"count": "1"}))["tick"] is False


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("count", "four"),
        ("count", '"4"'),
        ("count", "true"),
        ("ratio", "1,5"),
        ("colour", '"blue"'),
        ("nested", "{broken"),
    ],
)
def test_what_cannot_be_read_names_the_field_and_not_the_text(name: str, text: str) -> None:
    typed = {"name": "Ann", "count": "1", name: text}
    with pytest.raises(AIIPError) as caught:
        encode_form_input(build_form_fields(SCHEMA), typed)
    assert caught.value.code == "aiip.invalid-input"
    assert name in caught.value.message
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"anyOf": [{"type": "object"}]},
        {"type": "object", "properties": []},
        {"properties": {str(each): {} for each in range(MOST_FIELDS + 1)}},
        {"properties": {"": {}}},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/$defs/none"},
        {"$ref": "#/$defs/loop", "$defs": {"loop": {"$ref": "#/$defs/loop"}}},
    ],
)
def test_what_is_no_plain_object_is_one_field_of_json(schema: dict[str, Any]) -> None:
    (field,) = build_form_fields(schema)
    assert (field.name, field.kind, field.required) == (WHOLE_INPUT, "json", True)
    assert encode_form_input((field,), {WHOLE_INPUT: " [1, 2] "}) == b"[1,2]"
    with pytest.raises(AIIPError) as refusal:
        encode_form_input((field,), {})
    assert refusal.value.code == "aiip.invalid-input"


def test_a_reference_within_the_schema_is_followed() -> None:
    schema = {
        "$ref": "#/$defs/add",
        "$defs": {
            "add": {"type": "object", "properties": {"a": {"$ref": "#/$defs/number", "title": "A"}, "b": 3}},
            "number": {"type": "integer"},
        },
    }
    assert [(each.name, each.kind, each.label) for each in build_form_fields(schema)] == [
        ("a", "integer", "A"),
        ("b", "json", "b"),
    ]


def test_no_schema_is_an_optional_field_of_json() -> None:
    fields = build_form_fields(None)
    assert encode_form_input(fields, {}) == b""
    assert encode_form_input(fields, {WHOLE_INPUT: "1"}) == b"1"


def test_a_resource_without_input_has_no_field() -> None:
    assert build_form_fields({"type": "null"}) == ()
    assert encode_form_input((), {}) == b""
    assert build_form_fields({"type": "object", "properties": {}}) == ()


@pytest.mark.parametrize("odd", [{"enum": []}, {"enum": "x"}, {"enum": list(range(200))}, {"type": {}}, {}])
def test_an_odd_property_is_json(odd: dict[str, Any]) -> None:
    (field,) = build_form_fields({"properties": {"x": odd}, "required": "x"})
    assert (field.kind, field.required) == ("json", False)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=12), _VALUES, max_size=6))
def test_any_schema_gives_a_form_and_any_text_an_answer_or_a_refusal(schema: dict[str, Any]) -> None:
    fields = build_form_fields(schema)
    try:
        body = encode_form_input(fields, {each.name: "1" for each in fields})
    except AIIPError:
        return
    assert body == b"" or json.loads(body) is not Ellipsis
