"""Functions whose hints are pydantic's: it reads what they take, and writes what they give."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

import annotated_types
import pydantic
import pytest

from onym.ai.endpoint import Answer, Endpoint
from onym.errors import UsageError

Post = Callable[..., Awaitable[Any]]


class Size(pydantic.BaseModel):
    wide: int = pydantic.Field(gt=0)


class Box(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", populate_by_name=True)

    size: Size
    weight: float = 1.0
    made: datetime | None = pydantic.Field(default=None, alias="madeAt")

    @pydantic.computed_field
    def heavy(self) -> bool:
        return self.weight > 5


class Node(pydantic.BaseModel):
    value: int
    next: Node | None = None


def test_a_model_is_read_and_written_by_pydantic(played: Callable[..., None]) -> None:
    def grow(box: Box, by: int = 2) -> Box:
        assert isinstance(box, Box)
        return box.model_copy(update={"size": Size(wide=box.size.wide * by)})

    async def ask(app: Endpoint, post: Post) -> None:
        app.resource("/grow")(grow)
        heard = await post("/grow", box={"size": {"wide": 2}, "madeAt": "2026-01-02T03:04:05Z"})
        assert heard.status == 200
        assert heard.json() == {
            "size": {"wide": 4},
            "weight": 1.0,
            "madeAt": "2026-01-02T03:04:05Z",
            "heavy": False,
        }

    played(ask)


def test_what_a_model_refuses_is_told_with_its_place(played: Callable[..., None]) -> None:
    def look(box: Box) -> int:
        raise AssertionError

    async def ask(app: Endpoint, post: Post) -> None:
        app.resource("/look")(look)
        heard = await post("/look", box={"size": {"wide": 0}})
        assert (heard.status, heard.json()["code"]) == (422, "invalid-input")
        assert "Input should be greater than 0 - at `$.box.size.wide`" in heard.json()["detail"]
        assert "pydantic.dev" not in heard.json()["detail"]
        assert (await post("/look")).status == 422
        assert (await post("/look", box=5)).status == 422

    played(ask)


def test_defaults_and_constraints_and_the_query_hold(played: Callable[..., None]) -> None:
    few = Annotated[int, pydantic.Field(ge=1, le=3, description="how many")]
    usual = Box(size=Size(wide=1))

    def take(count: few = 2, box: Box | None = usual, more: list[Size | Node] = []) -> list[Any]:  # noqa: B006
        assert box is usual or box is None
        return [count, box is None, len(more)]

    async def ask(app: Endpoint, post: Post) -> None:
        app.resource("/take")(take)
        assert (await post("/take")).json() == [2, False, 0]
        more = [{"wide": 1}, {"value": 5}]
        assert (await post("/take", count=3, box=None, more=more)).json() == [3, True, 2]
        assert (await post("/take", count=4)).status == 422
        assert (await post("/take?count=1", box=None)).json() == [1, True, 0]
        assert (await post("/take?count=x", box=None)).status == 422

    take.__annotations__["count"] = few
    played(ask)


def test_the_schema_has_no_reference_that_leads_nowhere() -> None:
    def walk(first: Node, second: list[Box], plain: int) -> Node:
        raise AssertionError

    app = Endpoint("factory.test")
    app.resource("/walk")(walk)
    found = app.handler("ai://factory.test/walk")
    assert found is not None
    taken, given = found.describe()["input"], found.describe()["output"]
    assert taken["required"] == ["first", "second", "plain"]
    assert taken["properties"]["first"] == {"$ref": "#/$defs/first.Node"}
    assert taken["properties"]["second"]["items"] == {"$ref": "#/$defs/second.Box"}
    assert set(taken["$defs"]) == {"first.Node", "second.Box", "second.Size"}
    assert taken["$defs"]["second.Box"]["properties"]["size"] == {"$ref": "#/$defs/second.Size"}
    assert (given["type"], set(given["$defs"])) == ("object", {"Node"})


@pytest.mark.parametrize(
    "value",
    [
        {"size": {"wide": 0}},
        Box.model_construct(size="x"),
        Box.model_construct(size=Size(wide=1), weight=float("nan")),
        Size(wide=1),
        None,
        b"x",
    ],
)
def test_a_result_that_the_model_refuses_is_an_internal_error(
    played: Callable[..., None], value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> Box:
        return value  # type: ignore[no-any-return]

    async def ask(app: Endpoint, post: Post) -> None:
        app.resource("/make")(make)
        heard = await post("/make")
        assert (heard.status, heard.json()["code"]) == (500, "internal")

    played(ask)
    assert "the function make" in caplog.text
    assert "input_value" not in caplog.text


def test_events_and_answers_of_models_are_given(played: Callable[..., None]) -> None:
    async def sizes() -> AsyncIterator[Size]:
        yield Size(wide=1)

    def either() -> Size | Answer:
        return Size(wide=3)

    async def ask(app: Endpoint, post: Post) -> None:
        app.resource("/sizes")(sizes)
        app.resource("/either")(either)
        assert b'data: {"wide":1}' in (await post("/sizes")).body
        assert (await post("/either")).body == b'{"wide":3}'

    played(ask)


class Payment(pydantic.BaseModel):
    amount: int = pydantic.Field(default=7, alias="Amount", exclude=True)
    model_config = pydantic.ConfigDict(extra="allow")


class Payments(pydantic.RootModel[dict[str, tuple[Payment, ...]]]): ...


@pytest.mark.parametrize(
    ("box", "status"),
    [
        ({"a": [{"Amount": 8}]}, 200),
        ({"a": [{"Amount": 9}]}, 403),
        ({"a": [{}]}, 403),
        ({"a": [{"Amount": 8, "odd": True}]}, 403),
    ],
)
def test_policies_judge_what_the_function_is_given_and_not_what_a_model_shows(
    played: Callable[..., None], box: Any, status: int
) -> None:
    def pay(box: Payments | None = None) -> int:
        assert box is not None
        return sum(each.amount for each in box.root["a"])

    async def ask(app: Endpoint, post: Post) -> None:
        app.resource("/pay")(pay)
        heard = await post("/pay", box=box)
        assert heard.status == status, heard.body

    rule = """forbid(principal, action, resource) when {
        context.input.box.a.contains({"Amount": 9}) || context.input.box.a.contains({"Amount": 7})
        || context.input.box.a.contains({"Amount": 8, "odd": true}) };"""
    played(ask, policy=rule)


def test_what_pydantic_cannot_read_is_refused_when_the_function_is_registered() -> None:
    class Odd: ...

    def held(a: Annotated[Odd, pydantic.Field(description="x")]) -> int:
        return 1

    held.__annotations__ = {"a": Annotated[Odd, pydantic.Field(description="x")], "return": int}

    def default(a: int = pydantic.Field(default=1, gt=0)) -> int:
        return a

    for function, parameter in ((held, "a"), (default, "a")):
        with pytest.raises(UsageError) as caught:
            Endpoint("factory.test").resource("/x")(function)
        assert f"parameter {parameter}" in caught.value.message


def test_constraints_that_nobody_would_check_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(count: Annotated[int, annotated_types.Gt(0)]) -> int:
        return count

    Endpoint("factory.test").resource("/x")(take)
    monkeypatch.delitem(sys.modules, "pydantic")
    app = Endpoint("factory.test")
    with pytest.raises(UsageError) as refusal:
        app.resource("/x")(take)
    assert (refusal.value.code, app.resources) == ("usage.bad-argument", ())


def test_an_endpoint_alone_does_not_load_pydantic() -> None:
    code = (
        "import sys\nfrom onym.ai.endpoint import Endpoint\n"
        "app = Endpoint('factory.test')\n"
        "@app.resource('/add')\ndef add(a: int) -> int: return a\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
