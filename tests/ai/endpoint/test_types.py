"""What the JSON Schema of a Python type says at its root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onym.ai.endpoint.schemas import find_schema, inline_root_reference, parse_signature
from onym.errors import UsageError


@dataclass
class Node:
    value: int
    next: Node | None = None


@dataclass
class Tree:
    left: Leaf
    right: Node


@dataclass
class Leaf:
    of: Tree | None = None


@dataclass
class Flat:
    value: int


def test_an_object_says_what_it_has_at_its_root() -> None:
    assert find_schema(Flat) == {
        "title": "Flat",
        "type": "object",
        "properties": {"value": {"type": "integer"}},
        "required": ["value"],
    }


def test_the_input_of_a_function_does_too_and_keeps_what_its_members_refer_to() -> None:
    def ask(prompt: str, node: Node) -> None: ...

    found: Any = find_schema(parse_signature(_hinted(ask, prompt=str, node=Node)).input)
    assert (found["type"], found["required"]) == ("object", ["prompt", "node"])
    assert found["properties"]["node"] == {"$ref": "#/$defs/Node"}
    assert set(found["$defs"]) == {"Node"}


def _hinted(function: Any, **hints: Any) -> Any:
    function.__annotations__ = hints
    return function


@pytest.mark.parametrize("kind", [Node, Tree, Leaf, list[Tree], Node | None, dict[str, Node]])
def test_no_reference_of_a_schema_leads_nowhere(kind: Any) -> None:
    found: Any = find_schema(kind)
    assert "$ref" not in found
    named = found.get("$defs", {})
    asked = _references(found)
    assert asked == {f"#/$defs/{name}" for name in named}


def _references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {each for inner in schema for each in _references(inner)}
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"]} if "$ref" in schema else set()
    return own | {each for inner in schema.values() for each in _references(inner)}


def test_a_chain_of_references_is_followed_and_a_ring_of_them_stays() -> None:
    chain = {"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(5)}}
    chain["$defs"]["5"] = {"type": "object"}  # type: ignore[index]
    assert inline_root_reference(chain)["type"] == "object"
    ring = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert inline_root_reference(ring) == ring


class Own:
    """A class that says nothing of itself."""


@dataclass
class Lost:
    member: Nowhere  # type: ignore[name-defined]  # noqa: F821 - a hint that names nothing


NO_JSON = [Own, Path, complex, Callable[[int], int], list[Path], Flat | Node, type, Lost]


@pytest.mark.parametrize("kind", NO_JSON)
def test_a_parameter_without_a_json_form_is_refused_by_its_name(kind: Any) -> None:
    def ask(prompt: str, other: Any) -> None: ...

    with pytest.raises(UsageError) as caught:
        parse_signature(_hinted(ask, prompt=str, other=kind))
    assert "parameter other" in caught.value.message
    assert "prompt" not in caught.value.message


def test_a_parameter_of_any_type_takes_anything() -> None:
    def ask(first: Any, second: object) -> None: ...

    made = parse_signature(_hinted(ask, first=Any, second=object)).input
    assert msgspec.json.decode(b'{"first": 1, "second": [1]}', type=made) is not None
    assert find_schema(made) is not None
