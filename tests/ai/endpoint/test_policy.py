"""Cedar policies at an endpoint: effects on the world need a permit, a forbid always wins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.endpoint import Call, Caller, Endpoint
from onym.ai.endpoint.policy import MAX_POLICY, read_policies
from onym.ai.records import Effects
from onym.errors import ConfigError, DeniedError
from onym.net.messages import Headers
from onym.uri.ai import AIURI

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
        read_policies("a.example", policy).check(what or call(), Effects(effects), body)
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


@pytest.mark.parametrize(
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
            read_policies("a.example", source)
        assert caught.value.code == "config.bad-policy"


def test_policies_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "good.cedar"
    file.write_text(PERMIT)
    read_policies("a.example", file).check(call(), Effects.PHYSICAL)


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
