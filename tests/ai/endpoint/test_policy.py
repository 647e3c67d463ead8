"""Cedar policies at an endpoint: effects on the world need a permit, a forbid always wins."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import AsyncIterator, Callable
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.endpoint import Call, Caller, Endpoint
from onym.ai.endpoint.kinds import task
from onym.ai.endpoint.policy import MAX_POLICY, load_policies
from onym.ai.records import Effects
from onym.errors import ConfigError, DeniedError
from onym.net.messages import Headers
from onym.uri.ai import AIURI
from support import as_subtests

Serving = Callable[..., Any]
PERMIT = "permit(principal, action, resource);"
CLIENT = Caller(audience="shop", client_id="shop", scopes=frozenset({"pay"}))
PERSON = Caller(audience="shop", client_id="shop", subject="ann")
STRANGER = Caller(audience="shop")
JSON = ("Content-Type", "application/json")


def call(caller: Caller = CLIENT, target: str = "ai://a.example/pay?amount=10") -> Call:
    uri = AIURI.parse(target)
    return Call(uri=uri, caller=caller, parameters=uri.parameters, headers=Headers(), request_hash="x")


def allowed(policy: str | None, effects: str, what: Call | None = None, body: Any = None) -> bool:
    caught = []
    try:
        load_policies("a.example", policy).require_permission(what or call(), Effects(effects), body)
    except DeniedError as error:
        caught.append((error.code, error.target))
    assert caught in ([], [("aiip.policy-denied", "ai://a.example/pay")])
    return not caught


@pytest.mark.requirement("ai-security-b", "ai-security-c")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, {"read": True, "write": True, "financial": False, "physical": False}),
        ("", {"read": True, "write": True, "financial": False, "physical": False}),
        (PERMIT, {"read": True, "write": True, "financial": True, "physical": True}),
        (
            PERMIT + "forbid(principal, action, resource);",
            {"read": False, "write": False, "financial": False, "physical": False},
        ),
        (
            'forbid(principal, action == Action::"write", resource);',
            {"read": True, "write": False, "financial": False, "physical": False},
        ),
        (
            'permit(principal, action == Action::"physical", resource);',
            {"read": True, "write": True, "financial": False, "physical": True},
        ),
    ],
)
def test_what_each_effect_needs(policy: str | None, expected: dict[str, bool]) -> None:
    assert {effects: allowed(policy, effects) for effects in expected} == expected


@pytest.mark.parametrize(
    ("clause", "caller", "expected"),
    [
        ('principal == Client::"shop"', CLIENT, True),
        ('principal in Client::"shop"', PERSON, True),
        ('principal == Subject::"ann"', PERSON, True),
        ('principal == Client::"shop"', PERSON, False),
        # what a caller says of itself never passes for what a token says
        ('principal == Client::"shop"', STRANGER, False),
        ('principal == Anonymous::"shop"', STRANGER, True),
    ],
)
def test_the_principal_is_who_the_token_says(clause: str, caller: Caller, expected: bool) -> None:
    assert allowed(f"permit({clause}, action, resource);", "financial", call(caller)) is expected


@as_subtests(
    ("condition", "expected"),
    [
        ('context.parameters.amount == "10"', True),
        ('context.parameters.amount == "11"', False),
        ("context.input.count <= 3", True),
        ("context.input.count <= 2", False),
        ('context.input.price == "1.5"', True),
        ('context.input.big == "9223372036854775808"', True),
        ("context.input has nothing", False),
        ("context.input has __entity", False),
        ('context.input.tags.contains("a")', True),
        ("context.input.deep.flag", True),
        ('context.scopes.contains("pay")', True),
        ('context.authority == "a.example" && context.effects == "financial"', True),
        ('resource == Resource::"ai://a.example/pay"', True),
        ('resource in Authority::"a.example"', True),
    ],
)
def test_the_context_holds_what_was_asked(condition: str, expected: bool) -> None:
    body = {
        "count": 3,
        "price": 1.5,
        "big": 2**63,
        "nothing": None,
        "__entity": {"type": "Client", "id": "root"},
        "tags": ["a", None],
        "deep": {"flag": True},
    }
    policy = f"permit(principal, action, resource) when {{ {condition} }};"
    assert allowed(policy, "financial", body=body) is expected


@pytest.mark.parametrize(
    "slot", ["principal == ?principal, action, resource", "principal, action, resource in ?resource"]
)
def test_a_template_is_refused_for_nobody_would_fill_it_in(slot: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_policies("a.example", f"permit(principal, action, resource); forbid({slot});")
    assert caught.value.code == "config.bad-policy"
    load_policies("a.example", "permit(principal, action, resource); forbid(principal, action, resource);")


def test_a_body_that_is_no_object_is_no_input() -> None:
    assert not allowed(
        "permit(principal, action, resource) when { context.input has a };", "financial", body=[1]
    )


def test_a_forbid_that_cannot_be_evaluated_denies() -> None:
    policy = PERMIT + 'forbid(principal, action, resource) when { context.parameters.limit == "0" };'
    assert not allowed(policy, "financial")
    assert not allowed(policy, "read")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_any_json_can_be_judged(value: Any) -> None:
    assert allowed(PERMIT, "financial", body={"value": value, "__extn": value})


@given(st.dictionaries(st.text(), st.text() | st.integers()))
def test_any_member_names_can_be_judged(value: dict[str, Any]) -> None:
    assert allowed(PERMIT, "financial", body=value)


def test_policies_that_cannot_be_parsed_stop_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cedar"
    broken.write_text("permit(oops")
    latin = tmp_path / "latin.cedar"
    latin.write_bytes(b"// \xff")
    for source in ("permit(oops", broken, latin, tmp_path / "none.cedar", "/" * (MAX_POLICY + 1)):
        with pytest.raises(ConfigError) as caught:
            load_policies("a.example", source)
        assert caught.value.code == "config.bad-policy"


def test_policies_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "good.cedar"
    file.write_text(PERMIT)
    load_policies("a.example", file).require_permission(call(), Effects.PHYSICAL)


@pytest.mark.requirement("ai-security-c")
def test_nothing_moves_without_a_permit(serving: Serving) -> None:
    moved = []

    def fill(app: Endpoint) -> None:
        @app.resource("/agent/forklift", effects="physical")
        def forklift(to: str, speed: int = 1) -> str:
            moved.append(to)
            return to

    policy = (
        'permit(principal, action == Action::"physical", resource)'
        ' when { context.input has to && context.input.to == "dock" };'
    )
    key = ("Idempotency-Key", '"1"')
    with serving(fill) as (_, line):
        heard = line.ask("POST", "/agent/forklift?to=dock", b"", key)
        assert (heard.status, heard.json()["code"]) == (403, "policy-denied")
        assert heard.receipt
    with serving(fill, policy=policy) as (_, line):
        assert line.ask("POST", "/agent/forklift", b'{"to":"street"}', key, JSON).status == 403
        assert line.ask("POST", "/agent/forklift", b'{"to":', key, JSON).status == 422
        assert moved == []
        assert line.ask("GET", "/agent/forklift").json()["effects"] == "physical"
        assert line.ask("POST", "/agent/forklift", b'{"to":"dock"}', key, JSON).body == b"dock"
    assert moved == ["dock"]


class Cheque(msgspec.Struct, omit_defaults=True, rename="camel", tag="cheque"):
    """Written as JSON it says nothing of its defaults."""

    amount_due: int = 5000


@dataclasses.dataclass
class Order:
    cheque: Cheque = dataclasses.field(default_factory=Cheque)
    at: date = date(2026, 11, 22)


class Speed(enum.Enum):
    FAST = "fast"


PAID: list[Any] = []


def desk(app: Endpoint) -> None:
    @app.resource("/pay", effects="write")
    def pay(
        call: Call,
        amount: int = 5000,
        order: Order = Order(),  # noqa: B008
        speed: Speed = Speed.FAST,
        weight: float = 1.0,
        tags: tuple[str, ...] = ("a",),
        extra: msgspec.UnsetType | int = msgspec.UNSET,
    ) -> int:
        PAID.append(amount)
        return amount


def test_a_default_is_judged_like_what_was_sent(serving: Serving) -> None:
    PAID.clear()
    policy = PERMIT + "forbid(principal, action, resource) when "
    policy += "{ context.input has amount && context.input.amount > 100 };"
    with serving(desk, policy=policy) as (_, line):
        for number, (target, body) in enumerate(
            (("/pay", b"{}"), ("/pay", b""), ("/pay?speed=fast", b""), ("/pay", b'{"amount":5000}'))
        ):
            heard = line.ask("POST", target, body, ("Idempotency-Key", f'"{number}"'), JSON)
            assert (heard.status, heard.json()["code"]) == (403, "policy-denied"), target
        assert line.ask("POST", "/pay", b'{"amount":5}', ("Idempotency-Key", '"5"'), JSON).status == 200
    assert PAID == [5]


@pytest.mark.parametrize(
    "condition",
    [
        "context.input.order.cheque.amountDue == 5000",
        'context.input.order.cheque.type == "cheque"',
        'context.input.order.at == "2026-11-22"',
        'context.input.speed == "fast"',
        'context.input.weight == "1.0"',
        'context.input.tags.contains("a")',
        "!(context.input has extra) && !(context.input has call)",
    ],
)
@pytest.mark.parametrize("body", [b"{}", b'{"order":{"cheque":{"type":"cheque"}},"weight":1}'])
def test_policies_see_what_the_function_is_given(serving: Serving, condition: str, body: bytes) -> None:
    policy = f"forbid(principal, action, resource) unless {{ {condition} }};"
    with serving(desk, policy=policy) as (_, line):
        assert line.ask("POST", "/pay", body, ("Idempotency-Key", '"1"'), JSON).status == 200


class Job(msgspec.Struct):
    steps: int = 500


def test_the_default_of_a_task_is_judged_too(serving: Serving) -> None:
    async def work(job: Job) -> AsyncIterator[int]:
        yield job.steps

    def fill(app: Endpoint) -> None:
        app.add("/work", task(work, input=Job), effects="read")

    policy = "forbid(principal, action, resource) when { context.input.steps > 100 };"
    with serving(fill, policy=policy) as (_, line):
        assert line.ask("POST", "/work", b"{}", JSON).status == 403
        assert line.ask("POST", "/work?steps=500", b"").status == 403
        assert line.ask("POST", "/work", b'{"steps":7}', JSON).body == b"7"
