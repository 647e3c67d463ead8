"""`onym models show`: what a server says of one model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from onym.testing.fake_provider import FakeProvider

MODEL = {
    "id": "m",
    "context_length": 4096,
    "owned_by": "me",
    "created": 1_700_000_000,
    "max_output_tokens": 1024,
    "supported_parameters": ["temperature", "seed"],
}


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(models=("fake-model", "other")) as provider:
        yield provider


def listed(*models: dict[str, Any]) -> bytes:
    return json.dumps({"data": models}).encode()


def test_what_the_server_says_of_a_model_is_shown(run: Any, fake: FakeProvider) -> None:
    fake.raw(listed({"id": "other"}, MODEL))
    ran = run("models", "show", fake.uri("m"))
    assert ran.code == 0
    said = dict(line.split("  ", 1) for line in ran.out.splitlines())
    assert {name: text.strip() for name, text in said.items()} == {
        "model": "m",
        "context window": "4096 tokens",
        "longest answer": "1024 tokens",
        "owner": "me",
        "created": "2023-11-14",
        "parameters": "temperature, seed",
    }


def test_json_has_null_where_the_server_says_nothing(run: Any, fake: FakeProvider) -> None:
    fake.raw(listed(MODEL))
    assert run("models", "show", "--json", fake.uri("m")).json == {
        "id": "m",
        "context_window": 4096,
        "max_output_tokens": 1024,
        "owner": "me",
        "created": 1_700_000_000,
        "parameters": ["temperature", "seed"],
    }
    silent = run("models", "show", "--json", fake.uri("other")).json
    assert silent["id"] == "other"
    assert {name for name, value in silent.items() if value is None} == set(silent) - {"id"}
    assert run("models", "show", fake.uri("other")).out == "model  other\n"


def test_a_model_that_the_server_does_not_have_is_an_error_of_its_own(run: Any, fake: FakeProvider) -> None:
    ran = run("models", "show", fake.uri("nothing-like-it"))
    assert ran.code != 0
    assert "provider.not-found" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("created", [10**18, -(10**18)])
def test_a_time_that_no_calendar_has_is_left_out(run: Any, fake: FakeProvider, created: int) -> None:
    fake.raw(listed({"id": "m", "created": created}))
    assert run("models", "show", fake.uri("m")).out == "model  m\n"


def test_it_needs_a_uri(run: Any) -> None:
    assert run("models", "show").code == 2
