"""The parser knows what the registry knows: each registered parameter has a reader of its type."""

from __future__ import annotations

from onym.uri import LLMURI
from onym.uri._registered import TYPES, WELL_KNOWN
from onym.uri.parameters import VALUE_PARSERS
from support import as_subtests

#: the draft's word for a type, a value of it, and what reading gives
SAMPLES = {"float": ("0.5", float), "int": ("3", int), "bool": ("true", bool), "string": ("x", str)}


def test_the_parser_reads_what_is_registered_and_its_own_auth() -> None:
    assert set(VALUE_PARSERS) == {*WELL_KNOWN, "auth"}
    assert tuple(TYPES) == WELL_KNOWN


@as_subtests(("name", "kind"), TYPES.items())
def test_a_registered_parameter_is_read_as_its_registered_type(name: str, kind: str) -> None:
    text, expected = SAMPLES[kind]
    value = LLMURI.parse(f"llm://h/m?{name}={text}").params[name]
    # several stop sequences are one value
    assert type(value) is expected or (name == "stop" and value == ("x",))
