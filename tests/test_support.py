"""The helpers of the tests: what decides that a failure is seen is tested itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import as_subtests, holds_a_token, mentions


class RecordedSubtests:
    """The labels of the subtests that failed, in place of pytest's fixture."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    @contextmanager
    def test(self, label: str) -> Iterator[None]:
        try:
            yield
        except AssertionError:
            self.failures.append(label)


def record(test: Callable[..., None], **fixtures: Any) -> list[str]:
    subtests = RecordedSubtests()
    test(subtests=subtests, **fixtures)
    return subtests.failures


def is_even(number: int) -> None:
    assert number % 2 == 0


def test_each_failing_row_is_a_subtest_with_its_label() -> None:
    assert record(as_subtests("number", [2, 3, 4, 5])(is_even)) == ["3", "5"]


@pytest.mark.parametrize(
    ("rows", "ids", "label"),
    [
        ([2, 3], lambda number: f"the number {number}", "the number 3"),
        ([2, 3], ["two", "three"], "three"),
        ([pytest.param(3, id="of a param")], None, "of a param"),
        ([3], lambda number: None, "3"),
    ],
)
def test_a_label_is_given_as_for_parametrize(rows: Any, ids: Any, label: str) -> None:
    assert record(as_subtests("number", rows, ids=ids)(is_even)) == [label]


@pytest.mark.parametrize("text", ["ann", "{'name': 'ann'}", "subject-of-ann", "to ann@bank.example", "ann\n"])
def test_a_word_by_itself_is_mentioned(text: str) -> None:
    assert mentions(text, "ann")


@pytest.mark.parametrize("text", ["", "anna", "xX9annQ", "Ann", "an n", "_ann_"])
def test_its_letters_within_another_word_are_no_mention(text: str) -> None:
    assert not mentions(text, "ann")


def test_the_begin_of_a_token_is_seen_and_the_middle_of_another_word_is_not() -> None:
    assert holds_a_token('{"receipt": "eyJhbGciOi')
    assert not holds_a_token("the key bQeyJ0-x of 2026")


def test_rows_share_the_fixtures() -> None:
    seen: list[tuple[int, str]] = []

    @as_subtests("number, word", [(1, "a"), (2, "b")])
    def collect(shared: list[tuple[int, str]], number: int, word: str) -> None:
        shared.append((number, word))

    assert record(collect, shared=seen) == []
    assert seen == [(1, "a"), (2, "b")]


def test_a_row_with_marks_is_refused() -> None:
    test = as_subtests("number", [pytest.param(2, marks=pytest.mark.skip)])(is_even)
    with pytest.raises(AssertionError, match="marks"):
        record(test)


def test_a_run_without_debian_packages_ends_with_the_command_to_install_them() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    options = ["-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/cli/test_shells.py"],
        cwd=Path(__file__).parents[1],
        env=environment | {"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apt-get install bash fish man-db zsh\n" in done.stdout
