"""What tests of several rooms share: the vectors, ours and those kept beside the checkout."""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "vectors"


@cache
def load_own(name: str) -> Any:
    """A file of the project's own `vectors/`."""
    return json.loads((ROOT / "vectors" / name).read_text(encoding="utf-8"))


#: ports that no system gives to whoever asks for any (Linux: from 32768), so that nobody gets one by chance
#: between our look and the start of the server that is to have it
_PORTS = range(10_000, 32_000)


@cache
def _own_ports() -> Iterator[int]:
    """Those of this process: workers of one run have parts of their own, runs begin at different places."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    part = _PORTS[number % count :: count]
    begin = os.getpid() * 97 % len(part)
    return itertools.cycle([*part[begin:], *part[:begin]])


def free_port() -> int:
    """A port of 127.0.0.1 for a server that another process starts. Better bind port 0 where you can."""
    return next(port for port in _own_ports() if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def untraced(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process whose lines nobody counts.

    Measuring coverage takes it twice the time, and a lock of it that an interrupt hits is never let go.
    """
    return {name: value for name, value in environment.items() if not name.startswith("COV")}


@contextmanager
def about(case: dict[str, Any]) -> Iterator[None]:
    """A failure within says which record it speaks of: thousands of small ones are one test."""
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"the record is {case}")
        raise


@contextmanager
def linear_enough(seconds: float = 30) -> Iterator[None]:
    """No measure of speed: at least ten times what the body takes under coverage, and far less than it
    would take if its time grew with the square of its input.
    """
    begun = time.process_time()
    yield
    took = time.process_time() - begun
    assert took < seconds, f"{took:.1f} s of processor time: is it linear?"


def mentions(text: str, word: str) -> bool:
    """Whether a text holds a word by itself: ports, identifiers and tokens have its letters by chance."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])", text) is not None


def holds_a_token(text: str) -> bool:
    """Whether a text shows a JWT, whole or cut: within another word, its first letters stand by chance."""
    return re.search(r"(?<![\w-])eyJ", text) is not None


class ImportedLate:
    """A module that is imported when a test first uses it, because its import takes a part of a second."""

    #: pytest asks every name of a test module for it, to recognise mock objects
    _mock_name = None

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pytest also asks for some of these
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def as_subtests(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Sequence[object] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each row of a table, as `pytest.mark.parametrize` does, but as subtests of one test.

    Collecting thousands of small tests takes longer than running them. Use it if the rows may share the
    fixtures. A failure names its row: by `ids`, by the `id` of a `pytest.param`, or by the values.
    """
    parameters = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    table = list(rows)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        fixtures = {
            name: signature.parameters[name] for name in signature.parameters if name not in parameters
        }
        assert "subtests" not in fixtures, "a test has one table of subtests"
        fixtures["subtests"] = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)

        @functools.wraps(test)
        def run_rows(*, subtests: pytest.Subtests, **shared: Any) -> None:
            for index, row in enumerate(table):
                values = _get_values(row, len(parameters))
                try:
                    test(**dict(zip(parameters, values, strict=True)), **shared)
                except BaseException:  # a failure or a skip: rows that pass need no report of their own
                    with subtests.test(_get_label(row, values, ids, index)):
                        raise

        keywords = [fixture.replace(kind=inspect.Parameter.KEYWORD_ONLY) for fixture in fixtures.values()]
        run_rows.__signature__ = signature.replace(parameters=keywords)  # type: ignore[attr-defined]
        return run_rows

    return decorate


_ParameterSet = type(pytest.param())


def _get_values(row: Any, count: int) -> tuple[Any, ...]:
    if isinstance(row, _ParameterSet):
        assert not row.marks, "a row with marks needs pytest.mark.parametrize"
        return tuple(row.values)
    return tuple(row) if count > 1 else (row,)


def _get_label(row: Any, values: tuple[Any, ...], ids: Any, index: int) -> str:
    if isinstance(row, _ParameterSet) and row.id is not None:
        return str(row.id)
    if ids is not None and not callable(ids):
        return str(list(ids)[index])
    return "-".join(str((ids and ids(value)) or repr(value)) for value in values)


def load_shared(name: str) -> Any:
    """A file of the shared vectors, or a skip that says why."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"shared vectors are not beside this checkout: {name}", allow_module_level=True)
    return json.loads(path.read_text(encoding="utf-8"))


def generated(case: dict[str, Any], key: str) -> str:
    """The input of a vector: given in full, or built from its `generate` record."""
    if key in case:
        return str(case[key])
    recipe = case["generate"]
    text = str(recipe.get("prefix", ""))
    text += repeated(recipe.get("repeat"))
    text += str(recipe.get("suffix", ""))
    return text + repeated(recipe.get("suffix_repeat"))


def repeated(pair: list[Any] | None) -> str:
    """`["a{i}", n]` as n copies, `{i}` the index."""
    if pair is None:
        return ""
    unit, count = pair
    if "{i}" in unit:
        return "".join(unit.replace("{i}", str(i)) for i in range(count))
    return str(unit) * int(count)
