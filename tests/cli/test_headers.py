"""`-H`: headers of a command, which replace those of an endpoint and whose values never appear."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from net_support import free_port
from onym.testing.fake_provider import FakeProvider
from support import as_subtests

TOKEN = "quiet-harbour-token"


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


def write_endpoint(tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        f'[policy]\npreset = "local"\n[endpoints.team]\nuri = "{uri}"\n'
        'headers = { "X-Team" = "of the endpoint", "x-room" = "4" }\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("ONYM_CONFIG", str(file))


COMMANDS = {
    "chat": ("chat", "--no-stream", "{uri}", "Hi"),
    "chat, streamed": ("chat", "--stream", "{uri}", "Hi"),
    "embed": ("embed", "{uri}", "Hi"),
    "models list": ("models", "list", "{uri}"),
    "batch": ("batch", "{uri}", "-", "-o", "{output}"),
}


@as_subtests("name", COMMANDS)
@pytest.mark.parametrize("spelling", ["X-Team", "x-team", "X-TEAM"])
def test_a_header_of_the_command_replaces_that_of_the_endpoint_in_any_case(
    name: str, spelling: str, run: Any, fake: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_endpoint(tmp_path, fake.uri(), monkeypatch)
    output = tmp_path / f"{name} {spelling}.jsonl"
    words = [word.format(uri="team", output=output) for word in COMMANDS[name]]
    ran = run(*words, "-H", f"{spelling}: {TOKEN}", stdin='{"prompt": "Hi"}\n' if name == "batch" else None)
    assert ran.code == 0, ran.err
    sent = {key.lower(): value for key, value in fake.requests[-1].headers.items()}
    assert (sent["x-team"], sent["x-room"]) == (TOKEN, "4")
    assert TOKEN not in ran.out + ran.err


def test_two_headers_of_one_name_are_an_error(run: Any, fake: FakeProvider) -> None:
    words = ("chat", "--json", fake.uri(), "Hi", "-H", f"x-team: {TOKEN}")
    for second in ("x-team: b", "X-Team: b"):
        ran = run(*words, "-H", second)
        assert (ran.code, ran.json["error"]["code"]) == (2, "usage.header")
        assert TOKEN not in ran.out + ran.err
    assert not fake.requests


@as_subtests("header", [TOKEN, f": {TOKEN}", f"authorization: {TOKEN}", f"x y: {TOKEN}", f"x-a: {TOKEN}\n"])
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(
    header: str, run: Any, fake: FakeProvider
) -> None:
    ran = run("chat", "--json", fake.uri(), "Hi", "-H", header)
    assert (ran.code, ran.json["error"]["code"]) == (2, "usage.header")
    assert TOKEN not in ran.out + ran.err
    assert not fake.requests


def test_explain_shows_the_names_of_headers_and_the_values_of_features_only(
    run: Any, fake: FakeProvider
) -> None:
    words = ("explain", fake.uri(), "-H", f"x-team: {TOKEN}", "-H", "Anthropic-Beta: some-feature")
    headers = run(*words, "--json").json["headers"]
    assert (headers["x-team"], headers["Anthropic-Beta"]) == ("***", "some-feature")
    text = run(*words).out
    assert "x-team:" in text
    assert "some-feature" in text
    assert TOKEN not in text


@as_subtests("value", [TOKEN, "abc"])
def test_the_next_command_has_the_names_of_headers_without_their_values(value: str, run: Any) -> None:
    with free_port() as port:
        uri = f"llm://localhost:{port}/m"
        ran = run(
            "chat", "--json", "-p", "retries=0", "-H", f"x-team: {value}", "-H", "openai-beta: v2", uri, "Hi"
        )
    words = shlex.split(ran.json["error"]["next"])
    assert words == [
        "onym", "ping", uri, "-p", "retries=0", "-H", "x-team: ***", "-H", "openai-beta: v2",
    ]  # fmt: skip
    assert value not in ran.out + ran.err


def test_an_answer_that_repeats_a_header_is_printed_without_its_value(run: Any, fake: FakeProvider) -> None:
    fake.fail(400, f"bad team {TOKEN}")
    ran = run("chat", fake.uri(), "Hi", "-H", f"x-team: {TOKEN}")
    assert ran.code != 0
    assert "bad team ***" in ran.err
    assert TOKEN not in ran.out + ran.err
