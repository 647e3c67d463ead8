"""Schemas for strict modes: always in a form that the provider takes, or not strict and said so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onym.errors import OnymWarning
from onym.llm.client import connect
from onym.llm.config import Config
from onym.llm.dialects.strict_schema import make_anthropic_schema, make_mistral_schema, make_openai_schema
from onym.llm.planner import Planner, PlannerSettings
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider
from onym.uri.llm import LLMURI
from support import as_subtests, linear_enough

TEXT = {"type": "string"}
OPEN = {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": TEXT}}}
CITY = {"type": "object", "properties": {"name": TEXT, "size": {"type": "integer"}}, "required": ["name"]}
STRICT_CITY = {**CITY, "required": ["name", "size"], "additionalProperties": False}


def member(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}}


def strict(schema: Any) -> Any:
    found = make_openai_schema(member(schema))
    assert found.obstacle is None
    assert found.schema["required"] == ["a"]
    return found.schema["properties"]["a"]


def test_objects_take_no_other_members_and_require_their_own() -> None:
    before = json.dumps(CITY)
    assert make_openai_schema(CITY) == (STRICT_CITY, None)
    assert json.dumps(CITY) == before
    assert strict(CITY) == STRICT_CITY
    assert strict({"type": "array", "items": CITY}) == {"type": "array", "items": STRICT_CITY}
    assert strict({"anyOf": [CITY, {"type": "null"}]}) == {"anyOf": [STRICT_CITY, {"type": "null"}]}
    assert strict({**CITY, "type": ["object", "null"]})["additionalProperties"] is False


@as_subtests(
    ("given", "sent"),
    [
        ({**TEXT, "default": None}, TEXT),
        ({**TEXT, "default": "x"}, {**TEXT, "description": "{default: x}"}),
        ({**TEXT, "format": "uri", "description": "D"}, {**TEXT, "description": "D\n\n{format: uri}"}),
        ({**TEXT, "format": "date"}, {**TEXT, "format": "date"}),
        ({**TEXT, "pattern": "^a+$", "maxLength": 9}, {**TEXT, "pattern": "^a+$", "maxLength": 9}),
        ({**TEXT, "pattern": "a(?=b)"}, {**TEXT, "description": "{pattern: a(?=b)}"}),
        ({**TEXT, "pattern": r"a\(?=b"}, {**TEXT, "pattern": r"a\(?=b"}),
        (
            {"type": "array", "items": TEXT, "uniqueItems": True},
            {"type": "array", "items": TEXT, "description": "{uniqueItems: True}"},
        ),
        ({"oneOf": [TEXT, {"type": "null"}], "discriminator": {}}, {"anyOf": [TEXT, {"type": "null"}]}),
        ({"allOf": [TEXT], "description": "D"}, {**TEXT, "description": "D"}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1]}),
        ({"const": "a"}, {"const": "a"}),
    ],
)
def test_members_that_strict_mode_rejects_are_written_otherwise(given: Any, sent: Any) -> None:
    assert strict(given) == sent


@as_subtests(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": True},
        OPEN,
        member({}),
        member({"description": "anything"}),
        member(True),
        member({"type": "array"}),
        member({"type": "array", "items": {}}),
        member({"type": "array", "prefixItems": [TEXT], "items": TEXT}),
        member({**CITY, "patternProperties": {"^x": TEXT}}),
        member({"allOf": [TEXT, {"maxLength": 1}]}),
        member({"not": TEXT}),
        member({"if": TEXT, "then": TEXT}),
        member({"anyOf": 5}),
        member({"anyOf": "ab"}),
        member({"$ref": "#/properties/b"}),
        member({"$ref": 5}),
        member({"$ref": "https://example.org/x"}),
        member({"$ref": "#/$defs/Missing", "description": "D"}),
        {"anyOf": [CITY, CITY]},
        {"type": "array", "items": CITY},
        {"type": "object", "properties": [1]},
        {},
    ],
)
def test_a_schema_that_cannot_be_strict_stays_as_it_is(schema: Any) -> None:
    found = make_openai_schema(schema)
    assert found.obstacle
    assert found.schema is schema


def test_references_with_other_members_are_written_out() -> None:
    schema = {**member({"$ref": "#/$defs/City", "description": "D"}), "$defs": {"City": CITY}}
    found = make_openai_schema(schema)
    assert found.obstacle is None
    assert found.schema["properties"]["a"] == {**STRICT_CITY, "description": "D"}
    assert found.schema["$defs"] == {"City": STRICT_CITY}
    alone = {**member({"$ref": "#/$defs/City"}), "$defs": {"City": CITY}}
    assert make_openai_schema(alone).schema["properties"]["a"] == {"$ref": "#/$defs/City"}


def test_a_schema_that_contains_itself_keeps_its_references() -> None:
    node = member({"$ref": "#/$defs/Node", "description": "D"})
    found = make_openai_schema({"$ref": "#/$defs/Node", "$defs": {"Node": node}})
    assert found.obstacle is None
    assert found.schema["properties"]["a"] == {"anyOf": [{"$ref": "#/$defs/Node"}], "description": "D"}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = TEXT
    for _ in range(depth):
        schema = member(schema)
    return schema


def test_schemas_beyond_the_limits_are_not_strict() -> None:
    assert make_openai_schema(nested(10)).obstacle is None
    assert make_openai_schema(nested(11)).obstacle
    assert make_openai_schema(nested(100_000)).obstacle
    wide = {"type": "object", "properties": {f"p{at}": TEXT for at in range(5_000)}}
    assert make_openai_schema(wide).obstacle is None
    assert make_openai_schema({"type": "object", "properties": {**wide["properties"], "x": TEXT}}).obstacle
    assert make_mistral_schema(nested(100_000)).obstacle
    assert make_anthropic_schema(nested(100_000)).obstacle


def test_references_that_double_at_every_step_end_soon() -> None:
    defs: dict[str, Any] = {"D40": member(TEXT)}
    for at in range(40):
        more = {"$ref": f"#/$defs/D{at + 1}", "description": "D"}
        defs[f"D{at}"] = {"type": "object", "properties": {"a": more, "b": more}}
    with linear_enough(5):
        assert make_openai_schema({"$ref": "#/$defs/D0", "$defs": defs}).obstacle


keywords = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "enum", "required", "format"]
)
values = st.recursive(
    st.sampled_from(["object", "array", "string", "#", "#/$defs/a", "uri", None, True, 1, [], {}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(keywords, values, max_size=5))
def test_any_schema_is_strict_or_stays_as_it_is(schema: dict[str, Any]) -> None:
    before = json.dumps(schema)
    for convert in (make_openai_schema, make_mistral_schema, make_anthropic_schema):
        found = convert(schema)
        assert found.obstacle is None or found.schema == schema or convert is make_anthropic_schema
        json.dumps(found.schema)
    assert json.dumps(schema) == before


def test_mistral_takes_optional_members() -> None:
    assert make_mistral_schema(CITY) == ({**CITY, "additionalProperties": False}, None)
    assert make_mistral_schema(OPEN).obstacle
    inner = {"type": "object", "properties": {"a": {"oneOf": [CITY]}}, "$defs": {"C": CITY}}
    closed = {**CITY, "additionalProperties": False}
    assert make_mistral_schema(inner).schema == {
        "type": "object",
        "properties": {"a": {"oneOf": [closed]}},
        "$defs": {"C": closed},
        "additionalProperties": False,
    }


# what is sent


def plan(uri: str, **overrides: Any) -> Any:
    settings = PlannerSettings(policy=Policy.local(), providers=ProviderTable.builtin())
    return Planner(LLMURI.parse(f"llm://:sk-test-key-0123456789@{uri}"), settings).chat("Hi", overrides)


def find_format(made: Any) -> Any:
    body = made.body
    if "response_format" in body:
        return body["response_format"]["json_schema"]
    return (body.get("text") or body["output_config"])["format"]


@as_subtests(
    ("uri", "required"),
    [
        ("openai/gpt-4.1", ["name", "size"]),
        ("openai/gpt-6-luna", ["name", "size"]),
        ("res.openai.azure.com/gpt", ["name", "size"]),
        ("openrouter/openai/gpt-6-luna", ["name", "size"]),
        ("llm.example/m", ["name", "size"]),
        ("mistral/mistral-large-latest", ["name"]),
        ("anthropic/claude-opus-5", ["name"]),
    ],
)
def test_schemas_and_strict_tools_go_out_in_the_providers_form(uri: str, required: list[str]) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": CITY, "strict": True}}
    made = plan(uri, schema=CITY, tools=[tool])
    sent = find_format(made)
    assert sent["schema"]["additionalProperties"] is False
    assert sent["schema"]["required"] == required
    assert sent.get("strict", True) is True
    described = made.body["tools"][0]
    described = described.get("function", described)
    parameters = described.get("parameters") or described["input_schema"]
    assert (parameters["additionalProperties"], parameters["required"]) == (False, required)
    assert described["strict"] is True
    assert made.warnings == ()


@as_subtests("uri", ["openai/gpt-4.1", "openai/gpt-6-luna", "mistral/mistral-large-latest", "llm.example/m"])
def test_a_schema_that_cannot_be_strict_is_sent_so_with_a_warning(uri: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": OPEN, "strict": True}}
    made = plan(uri, schema=OPEN, tools=[tool])
    sent = find_format(made)
    assert (sent["schema"], sent["strict"]) == (OPEN, False)
    described = made.body["tools"][0]
    described = described.get("function", described)
    assert (described["parameters"], described["strict"]) == (OPEN, False)
    notes = [note for note in made.notes if note.parameter in ("schema", "the tool f")]
    assert len(notes) == len(made.warnings) == 2
    assert all(note.reason for note in notes)


def test_tools_that_are_not_strict_keep_their_schema() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": CITY}}
    assert plan("openai/gpt-4.1", tools=[tool]).body["tools"][0]["function"]["parameters"] == CITY
    assert plan("openai/gpt-4.1", tools=[tool]).warnings == ()


def test_a_call_with_an_open_schema_warns() -> None:
    with FakeProvider() as fake:
        fake.answer("{}")
        with (
            connect(fake.uri("m"), policy=Policy.local(), config=Config.empty(), environ={}) as client,
            pytest.warns(OnymWarning, match="schema"),
        ):
            client.chat("Hi", schema=OPEN)
        assert fake.requests[-1].json["response_format"]["json_schema"]["strict"] is False
