"""Arguments of an invocation as JSON: each value as it is, or none at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pytest

from onym.ai.client import _build_invocation
from onym.ai.records import encode_json, require_finite_numbers
from onym.errors import UsageError

NAN, INFINITE = float("nan"), float("inf")


class Colour(Enum):
    RED = "red"


class Point(msgspec.Struct, omit_defaults=True):
    x: float
    label: str | None = None


@dataclass
class Line:
    start: Point
    end: Point | None = None


def _body(arguments: Any) -> bytes:
    return _build_invocation("ai://a.example/x", arguments, None, None, None, None).body


def _ring() -> dict[str, Any]:
    ring: dict[str, Any] = {}
    ring["again"] = [ring]
    return ring


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": NAN},
        {"a": INFINITE},
        {"a": [{"b": -INFINITE}]},
        {"a": Point(x=NAN)},
        {"a": Line(start=Point(x=1.0), end=Point(x=NAN))},
        {"a": (None, {1: NAN})},
        {"a": object()},
        {"a": None, "b": object()},
        _ring(),
    ],
)
def test_what_json_cannot_say_is_refused_and_not_changed(arguments: Any) -> None:
    with pytest.raises(UsageError) as caught:
        _body(arguments)
    assert caught.value.code == "usage.bad-argument"


def test_everything_else_is_written_as_it_is() -> None:
    arguments = {
        "none": None,
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "colour": Colour.RED,
        "line": Line(start=Point(x=1.5)),
        "price": Decimal("1.10"),
        "ready": msgspec.Raw(b'{"x":null}'),
        "numbers": {1: None},
        "octets": b"x",
        "null": "null",
    }
    assert json.loads(_body(arguments)) == {
        "none": None,
        "when": "2026-01-02T00:00:00Z",
        "colour": "red",
        "line": {"start": {"x": 1.5}, "end": None},
        "price": "1.10",
        "ready": {"x": None},
        "numbers": {"1": None},
        "octets": "eA==",
        "null": "null",
    }


def test_numbers_are_looked_at_only_where_a_null_could_hide_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("onym.ai.records.require_finite_numbers", lambda value: asked.append(value))
    assert encode_json([1.5, "x"]) == b'[1.5,"x"]'
    assert asked == []
    assert encode_json([1.5, None]) == b"[1.5,null]"
    assert asked == [[1.5, None]]
    for number in (NAN, INFINITE, -INFINITE):
        with pytest.raises(ValueError):  # noqa: PT011 - it has no code
            require_finite_numbers([number])
    require_finite_numbers([1e308, -1e308, None])
