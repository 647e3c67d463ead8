"""A result that is not what the function's annotation says is told as our fault, and never signed as one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypedDict

import msgspec
import pytest

from onym.ai.endpoint import Answer, Endpoint, StreamEvent
from onym.errors import UsageError

SECRET = "4111-1111"
NAN, INFINITE = float("nan"), float("inf")


@dataclass
class Card:
    number: int
    limit: float | None = None


class Money(msgspec.Struct):
    cents: int


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    cents: int


class Row(TypedDict):
    name: str


class Picky:
    """A type that JSON does not know."""


def _giving(kind: Any, value: Any, *, media_type: str | None = None) -> Callable[[Endpoint], None]:
    def give() -> Any:
        return value

    give.__annotations__["return"] = kind
    return lambda app: void(app.resource("/give", media_type=media_type)(give))


def void(_: object) -> None: ...


def _answered(played: Callable[..., None], fill: Callable[[Endpoint], None], status: int) -> Any:
    heard: list[Any] = []

    async def ask(app: Endpoint, post: Callable[..., Awaitable[Any]]) -> None:
        fill(app)
        heard.append(await post("/give"))

    played(ask)
    assert heard[0].status == status, heard[0].body
    return heard[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "x"),
        (int, 1.5),
        (int, True),
        (int, None),
        (int, b"octets"),
        (None, 5),
        (str, 5),
        (list[int], [1, "x"]),
        (dict[str, int], {"a": None}),
        (dict, [1]),
        (list, {"a": 1}),
        (dict[str, Any], "x"),
        (Card, Card(number=SECRET)),  # type: ignore[arg-type]
        (Card, {"limit": 1.0}),
        (Money, Card(number=1)),
        (Row, {"name": 5}),
        (Answer | int, "x"),
        (int | str, 1.5),
        (Any, Picky()),
        (Any, NAN),
        (Any, {"a": [1, -INFINITE]}),
        (float, NAN),
        (float, INFINITE),
        (list[float], [0.0, NAN]),
        (float | None, NAN),
        (Card, Card(number=1, limit=NAN)),
        (dict[str, Any], {"n": None, "deep": {"x": NAN}}),
    ],
)
def test_a_result_that_is_not_of_the_type_that_is_told_is_an_internal_error(
    played: Callable[..., None], kind: Any, value: Any
) -> None:
    heard = _answered(played, _giving(kind, value), 500)
    assert heard.json()["code"] == "internal"


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        (int, 5, b"5"),
        (float, 1, b"1"),
        (None, None, b""),
        (bytes, b"x", b"x"),
        (bytes | int, b"x", b"x"),
        (bytes | int, 5, b"5"),
        (str, "null", b"null"),
        (Any, "x", b'"x"'),
        (object, {"a": 1}, b'{"a":1}'),
        (dict, {"a": None}, b'{"a":null}'),
        (list, [None, 1.5], b"[null,1.5]"),
        (dict[str, Any], {"a": msgspec.Raw(b'{"b":null}')}, b'{"a":{"b":null}}'),
        (list[dict[str, Any]], [{"a": 1}], b'[{"a":1}]'),
        (Card, Card(number=5), b'{"number":5,"limit":null}'),
        (Card, {"number": 5}, b'{"number":5}'),
        (Money | None, Money(cents=5), b'{"cents":5}'),
        (Row, {"name": "a", "more": 1}, b'{"name":"a","more":1}'),
        (Answer | int, 5, b"5"),
        (int, Answer(body=b"{}"), b"{}"),
        (set[int], {5}, b"[5]"),
    ],
)
def test_a_result_of_its_type_is_what_it_was(
    played: Callable[..., None], kind: Any, value: Any, body: bytes
) -> None:
    status = 204 if value is None else 200
    assert _answered(played, _giving(kind, value), status).body == body


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, SECRET),
        (Any, {SECRET: NAN}),
        (list[Card], [{"number": SECRET}]),
        (Literal["a"], SECRET),
        (Strict, {"cents": 1, SECRET: 2}),
        (dict[str, int], {SECRET: "x"}),
    ],
)
def test_the_log_names_the_function_and_nothing_of_its_result(
    played: Callable[..., None], caplog: pytest.LogCaptureFixture, kind: Any, value: Any
) -> None:
    with caplog.at_level(logging.ERROR):
        heard = _answered(played, _giving(kind, value), 500)
    assert "the function give" in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in heard.body.decode()


def test_an_event_of_another_type_ends_the_stream_without_a_receipt(played: Callable[..., None]) -> None:
    async def count() -> AsyncIterator[int]:
        yield 1
        yield "x"  # type: ignore[misc]

    def measure() -> Iterator[float]:
        yield 1.0
        yield NAN

    def named() -> Iterator[StreamEvent | int]:
        yield StreamEvent(data="x", event="note")
        yield 5

    async def ask(app: Endpoint, post: Callable[..., Awaitable[Any]]) -> None:
        for path, function in (("/count", count), ("/measure", measure), ("/named", named)):
            app.resource(path)(function)
        for path in ("/count", "/measure"):
            heard = await post(path)
            assert b"event: problem" in heard.body
            assert b"event: receipt" not in heard.body
            assert b"null" not in heard.body
        assert b"event: receipt" in (await post("/named")).body

    played(ask)


@pytest.mark.parametrize("kind", [Picky, list[Picky], Picky | None, complex, Iterator[Picky]])
def test_a_result_without_a_json_form_is_refused_when_the_function_is_registered(kind: Any) -> None:
    app = Endpoint("factory.test")
    with pytest.raises(UsageError) as caught:
        _giving(kind, None)(app)
    assert "give" in caught.value.message
    assert app.resources == ()


def test_a_function_that_gives_an_awaitable_is_known_by_what_comes_of_it(
    played: Callable[..., None],
) -> None:
    async def later(value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    def well() -> Awaitable[int]:
        return later(5)

    def badly() -> Awaitable[int]:
        return later("x")

    def never() -> NoReturn:
        raise ValueError

    async def ask(app: Endpoint, post: Callable[..., Awaitable[Any]]) -> None:
        for function in (well, badly, never):
            app.resource(f"/{function.__name__}")(function)
        answers = [(await post(f"/{each}")).status for each in ("well", "badly", "never")]
        assert answers == [200, 500, 500]
        found = app.handler("ai://factory.test/well")
        assert found is not None
        assert found.describe()["output"] == {"type": "integer"}

    played(ask)
