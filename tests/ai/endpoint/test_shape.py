"""Results are checked against what their JSON looks like: no class of the function's runs for it."""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import enum
import uuid
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    Required,
    TypedDict,
    TypeVar,
)

import msgspec
import pytest

from onym.ai.endpoint.functions import ResultEncoder
from onym.errors import OnymError, UsageError
from support import as_subtests

T = TypeVar("T")
UNSET = msgspec.UNSET
ran: list[Any] = []


def _tags() -> list[str]:
    ran.append("tags")
    return []


@dataclass
class Span:
    low: int
    tags: list[str] = field(default_factory=_tags)

    def __post_init__(self) -> None:
        ran.append(self.low)
        self.low -= 1
        if self.low < 0:
            raise ValueError("low is 1 at least")


class Stamp(msgspec.Struct):
    low: int

    def __post_init__(self) -> None:
        ran.append(self.low)
        self.low -= 1


class Pair(NamedTuple):
    first: Any
    span: Span


@dataclass
class Node:
    value: int
    next: Node | None = None


class Box(msgspec.Struct, Generic[T]):
    value: T
    more: list[Box[T]] = []


class One(msgspec.Struct, tag="one", rename="camel", omit_defaults=True):
    my_x: int | msgspec.UnsetType
    other: Annotated[int, msgspec.Meta(ge=3)] = 4


class Two(msgspec.Struct, tag="two", forbid_unknown_fields=True):
    many: frozenset[Pair] | None


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = "x"


class Point(NamedTuple):
    a: int
    b: int = 2


class Some(TypedDict, total=False):
    a: Required[int]
    b: str


class Colour(enum.Enum):
    RED = 1


@dataclass
class Late:
    value: int
    extra: InitVar[int] = 1
    shared: ClassVar[complex] = 1j


@dataclass
class Kept:
    path: Path


@dataclass
class Unknown:
    value: Nowhere  # type: ignore[name-defined]  # noqa: F821 - as names are that only type checkers import


class Named(Protocol):
    def name(self) -> str: ...


class Own:
    """A class that says nothing of itself."""


@pytest.mark.parametrize(
    ("kind", "make", "body"),
    [
        (Span, lambda: Span(1), b'{"low":0,"tags":[]}'),
        (list[Span], lambda: [Span(1)], b'[{"low":0,"tags":[]}]'),
        (Span, lambda: {"low": 0}, b'{"low":0}'),
        (Stamp, lambda: Stamp(1), b'{"low":0}'),
        (dict[str, Stamp] | None, lambda: {"a": Stamp(1)}, b'{"a":{"low":0}}'),
        (Pair, lambda: Pair(1, Span(1)), b'[1,{"low":0,"tags":[]}]'),
        (Box[Span], lambda: Box(Span(1)), b'{"value":{"low":0,"tags":[]},"more":[]}'),
    ],
)
def test_what_a_class_does_when_it_is_made_is_done_once(
    kind: Any, make: Callable[[], Any], body: bytes
) -> None:
    output, value = ResultEncoder("give", kind), make()
    ran.clear()
    assert output.encode(value) == body
    assert ran == []


@as_subtests(
    ("kind", "value", "body"),
    [
        (Node, Node(1, Node(2)), b'{"value":1,"next":{"value":2,"next":null}}'),
        (Box[int], Box(1, [Box(2)]), b'{"value":1,"more":[{"value":2,"more":[]}]}'),
        (Box, Box("a"), b'{"value":"a","more":[]}'),
        (One | Two, One(UNSET), b'{"type":"one"}'),
        (One, One(3, 9), b'{"type":"one","myX":3,"other":9}'),
        (One | Two, Two(None), b'{"type":"two","many":null}'),
        (list[Row], [Row(1)], b'[[1,"x"]]'),
        (Point, Point(1), b"[1,2]"),
        (Point, (1,), b"[1]"),
        (set[Point], {Point(1)}, b"[[1,2]]"),
        (Some, {"a": 1}, b'{"a":1}'),
        (dict[Colour, int], {Colour.RED: 1}, b'{"1":1}'),
        (dict[int, str], {1: "a"}, b'{"1":"a"}'),
        (tuple[int, ...] | None, (1,), b"[1]"),
        (tuple[int, str], (1, "a"), b'[1,"a"]'),
        (Annotated[str, msgspec.Meta(pattern="a", title="A")], "a", b'"a"'),
        (Literal["a", 1], 1, b"1"),
        (bytes | None, None, b"null"),
        (dt.timedelta, dt.timedelta(1), b'"P1D"'),
    ],
)
def test_what_fits_is_written_and_checked(kind: Any, value: Any, body: bytes) -> None:
    output = ResultEncoder("give", kind)
    assert output._decoder is not None
    assert output.encode(value) == body


@as_subtests(
    ("kind", "value", "where"),
    [
        (Node, {"value": 1, "next": {"value": "x"}}, "$.next.value"),
        (Box[int], Box[Any](1, [Box("x")]), r"\$.more\[0\].value"),
        (One, One(1, 2), "`int` >= 3 - at `$.other`"),
        (One | Two, {"type": "three"}, "ValidationError"),
        (Two, {"many": None, "more": 1}, "ValidationError"),
        (Row, [1, 2], r"\$\[1\]"),
        (Point, ("a",), r"\$\[0\]"),
        (Some, {"b": "x"}, "missing required field `a`"),
        (tuple[int, str], [1], "length 2"),
        (set[int], ["a"], r"\$\[0\]"),
        (Annotated[list[int], msgspec.Meta(min_length=1)], [], "length >= 1"),
        (Annotated[str, msgspec.Meta(pattern="a")], "b", "matching regex"),
        (Colour, 5, "ValidationError"),
        (Stamp, {"low": None}, "$.low"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(kind: Any, value: Any, where: str) -> None:
    with pytest.raises(OnymError, match=where.replace("$.", r"\$.").replace(r"\\$", r"\$")) as caught:
        ResultEncoder("give", kind).encode(value)
    assert caught.value.code == "aiip.internal"


@as_subtests(
    ("kind", "value", "body"),
    [
        (Node | Late, Node(1), b'{"value":1,"next":null}'),
        (list[Node | Late], [Node(1)], b'[{"value":1,"next":null}]'),
        (dict | Node, {"a": 1}, b'{"a":1}'),
        (str | bytes, "a", b'"a"'),
        (str | dt.datetime, "a", b'"a"'),
        (uuid.UUID | str, "a", b'"a"'),
        (Iterable[int], [1], b"[1]"),
        (AsyncIterable[int], [1], b"[1]"),
        (Late, Late(1), b'{"value":1}'),
        (collections.defaultdict[str, Any], {"a": 1}, b'{"a":1}'),
        (collections.OrderedDict, collections.OrderedDict(a=1), b'{"a":1}'),
        (collections.Counter[str], collections.Counter("a"), b'{"a":1}'),
        (Mapping[str, int] | Some, {"a": 1}, b'{"a":1}'),
        (asyncio.Future, 1, b"1"),
        (Named, {"a": 1}, b'{"a":1}'),
        (Own | int | dict | Node, 1, b"1"),
        (Some | Mapping[str, int], {"a": 1}, b'{"a":1}'),
        (AsyncIterable[Literal["a"]], ["a"], b'["a"]'),
        (collections.Counter[T], {"a": 1}, b'{"a":1}'),  # type: ignore[valid-type]
        (Unknown, Unknown(1), b'{"value":1}'),
    ],
)
def test_a_type_that_is_written_and_not_read_is_left_unchecked_and_undescribed(
    kind: Any, value: Any, body: bytes
) -> None:
    output = ResultEncoder("give", kind)
    assert output.encode(value) == body
    assert output.build_schema() is None


def test_a_future_is_known_by_what_comes_of_it() -> None:
    assert ResultEncoder("give", asyncio.Future[int]).build_schema() == {"type": "integer"}


@as_subtests(
    "kind",
    [
        Own,
        Own | None,
        complex,
        Path,
        type,
        Callable,
        Callable[[int], int],
        Kept,
        list[Own],
        dict[str, Path],
        Iterable[Own],
        Annotated[Own, "mark"],
    ],
)
def test_what_no_json_can_say_is_refused(kind: Any) -> None:
    with pytest.raises(UsageError) as refusal:
        ResultEncoder("give", kind)
    assert (refusal.value.code, "give" in refusal.value.message) == ("usage.bad-argument", True)
