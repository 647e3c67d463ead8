"""Sources and URIs that were written to hurt whoever converts them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import UsageError
from onym.llm.convert import from_env, from_litellm, load_models, to_env
from onym.uri.llm import LLMURI
from support import as_subtests

REGIONS = (
    "evil.example",
    "evil.example/x",
    "x.evil.example#",
    "x@evil.example",
    "x:1",
    "a.b",
    "-",
    "A b",
)


@pytest.mark.parametrize("region", REGIONS)
def test_a_region_of_the_environment_is_no_other_host(region: str) -> None:
    for name, environ in (
        ("bedrock", {"AWS_REGION": region, "AWS_BEARER_TOKEN_BEDROCK": "t", "BEDROCK_MODEL": "m"}),
        ("vertex", {"GOOGLE_CLOUD_LOCATION": region, "VERTEX_MODEL": "m"}),
    ):
        found = from_env(environ)
        assert not found.found
        assert [str(note) for note in found.notes] == [f"{name}: skipped: the region is not a valid name"]


@as_subtests("region", REGIONS)
@pytest.mark.parametrize(
    ("model", "member"), [("bedrock/m", "aws_region_name"), ("vertex_ai/m", "vertex_location")]
)
def test_a_region_of_a_model_list_is_no_other_host(model: str, member: str, region: str) -> None:
    found = from_litellm({"model_list": [{"litellm_params": {"model": model, member: region}}]})
    assert not found.found
    assert "region" in found.notes[0].text


@given(st.text(min_size=1, max_size=20))
def test_whatever_the_region_the_key_points_to_a_host_of_amazon(region: str) -> None:
    environ = {"AWS_REGION": region, "AWS_BEARER_TOKEN_BEDROCK": "t", "BEDROCK_MODEL": "m"}
    for _, uri in from_env(environ).found:
        assert uri.host.endswith(".amazonaws.com")


@pytest.mark.parametrize(
    "query",
    ["project=a%0ALD_PRELOAD=/evil.so%0A", "project=a%0DX=1", "project=a%E2%80%A8X=1", "project=a%00"],
)
def test_no_value_brings_a_line_of_its_own_into_a_file_of_variables(query: str) -> None:
    uri = f"llm://vertex/gemini-2?{query}"
    written = to_env(uri)
    assert dict(written.value) == {"VERTEX_MODEL": "gemini-2"}
    assert [note.where for note in written.notes] == ["GOOGLE_CLOUD_PROJECT"]


@given(st.text(max_size=12), st.text(min_size=1, max_size=12))
def test_every_variable_is_one_line_whatever_the_uri(value: str, model: str) -> None:
    try:
        uri = LLMURI.build("vertex", model=model, params={"project": value})
    except Exception:  # noqa: BLE001 - what is no URI is not converted
        return
    for name, text in to_env(uri).value.items():
        assert f"{name}={text}".splitlines() == [f"{name}={text}"]
        assert text.isprintable()


@pytest.mark.parametrize(
    "number",
    [
        "1:" * 200_000 + "1",
        "0x" + "f" * 200_000,
        "9" * 200_000,
        '!!int "' + "1:" * 9000 + '1"',
        "-" + "1:" * 9000 + "1",
    ],
    ids=["base 60", "hexadecimal", "decimal", "tagged", "negative"],
)
def test_a_number_that_takes_minutes_to_read_is_not_read(number: str) -> None:
    pytest.importorskip("yaml")
    with pytest.raises(UsageError, match="200,000") as caught:
        load_models(f"model_list:\n- litellm_params: {{model: openai/x, seed: {number} }}\n")
    assert caught.value.code == "convert.too-long"


@pytest.mark.parametrize("text", ["'" + "1" * 5000 + "'", "a" * 5000, '"' + "1:" * 5000 + '"'])
def test_a_long_text_is_read(text: str) -> None:
    pytest.importorskip("yaml")
    found: Any = load_models(f"name: {text}")
    assert found == {"name": text.strip("\"'")}
    assert json.dumps(found)
