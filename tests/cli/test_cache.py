"""`onym cache` in a process of the test's own: nothing of the user's cache is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import onym
from onym.llm.cache import default_cache
from onym.testing.fake_provider import FakeProvider


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "responses"
    monkeypatch.setenv("ONYM_CACHE_DIR", str(place))
    yield place
    default_cache({"ONYM_CACHE_DIR": str(place)}).close()


@pytest.fixture
def filled(folder: Path) -> Path:
    local = onym.Policy.local()
    with FakeProvider() as fake, onym.connect(fake.uri(query="cache=true"), policy=local) as client:
        client.chat("one")
        client.chat("two")
    return folder


def test_an_empty_cache_is_shown_and_not_made(run, folder: Path) -> None:
    ran = run("cache", "stats", "--json")
    assert ran.json == {
        "folder": str(folder),
        "answers": 0,
        "octets": 0,
        "most_octets": 268_435_456,
        "most_seconds": 604_800.0,
        "oldest": None,
        "newest": None,
    }
    assert not folder.exists()


def test_stats_count_the_answers_and_their_size(run, filled: Path) -> None:
    found = run("cache", "stats", "--json").json
    assert found["answers"] == 2
    assert found["octets"] > 0
    assert found["oldest"] <= found["newest"]
    shown = run("cache", "stats").out
    assert "answers        2" in shown
    assert "KiB of 256 MiB" in shown
    assert "7 days" in shown
    assert str(filled) in shown


def test_clear_forgets_every_answer(run, filled: Path) -> None:
    assert run("cache", "clear", "--yes").out == "deleted 2 responses\n"
    assert run("cache", "clear", "--json").json == {"folder": str(filled), "cleared": 0, "octets": 0}
    assert run("cache", "stats", "--json").json["answers"] == 0


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 130, 2), ("\n", 130, 2), ("y\n", 0, 0)])
def test_a_terminal_asks_before_the_answers_go(run, terminal, filled: Path, answer, code, left) -> None:
    assert run("cache", "clear", "--json").json["error"]["code"] == "usage.confirmation"
    asked = terminal("cache", "clear", env={"ONYM_CACHE_DIR": str(filled)})
    asked.read_until("[y/N] ")
    asked.type(answer)
    assert asked.end() == code
    assert run("cache", "stats", "--json").json["answers"] == left


def test_bounds_are_shown_as_they_are_set(run, folder: Path) -> None:
    for size, age, said in (
        ("2GiB", "90m", ("2 GiB", "90 minutes")),
        ("1500", "36h", ("1.465 KiB", "36 hours")),
        ("7", "59", ("7 B", "59 seconds")),
        ("0", "1d", ("0 B", "24 hours")),
    ):
        shown = run("cache", "stats", env={"ONYM_CACHE_SIZE": size, "ONYM_CACHE_AGE": age}).out
        assert all(text in shown for text in said), shown


def test_a_bound_that_is_no_amount_is_a_clear_error(run, folder: Path) -> None:
    ran = run("cache", "stats", env={"ONYM_CACHE_SIZE": "much"})
    assert ran.code != 0
    assert "ONYM_CACHE_SIZE" in ran.err
    assert "256MiB" in ran.err


def test_chat_on_the_command_line_is_answered_from_the_cache(run, folder: Path) -> None:
    with FakeProvider() as fake:
        uri = fake.uri(query="cache=true")
        for _ in range(2):
            assert run("chat", uri, "Hello").out == "Hello\n"
        assert len(fake.requests) == 1
