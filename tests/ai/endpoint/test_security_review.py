"""Attacks of a client on an endpoint: each was proved against a running server before it was refused."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from ai_support import PATIENCE, BlockingStore, Line, key_scope
from onym.ai.endpoint import Answer, Call, Endpoint, Limits
from onym.ai.endpoint.idempotency import ANONYMOUS_PREFIX
from onym.ai.endpoint.kinds import Completed, model, task, tool
from onym.ai.messages import validate_json_depth
from onym.errors import AIIPError, ProvenanceError, SignatureError

Serving = Callable[..., Any]
JSON = ("Content-Type", "application/json")
#: a policy as one writes it: whoever asks for more than 100 is stopped
CAPPED = (
    "permit(principal, action, resource);"
    "forbid(principal, action, resource) when { context.input has amount && context.input.amount > 100 };"
    "forbid(principal, action, resource) when { context.input has amount && context.input.amount == 13 };"
)


def keyed(number: int) -> tuple[str, str]:
    return ("Idempotency-Key", f'"{number}"')


def test_a_string_without_an_end_costs_no_more_than_it_is_long() -> None:
    # 1 MiB took half an hour of the event loop: the string was begun again at each of its quotes
    body = b"[" * 40 + b'"' + b'\\"' * 500_000
    began = time.process_time()
    for tail in (b"", b"\\"):
        with pytest.raises(AIIPError) as caught:
            validate_json_depth(body + tail, 32)
        assert caught.value.code == "aiip.too-large"
    assert time.process_time() - began < 5


def deepest(octets: bytes) -> int:
    """The depth, by a reader that goes octet by octet."""
    depth = most = at = 0
    inside = False
    while at < len(octets):
        octet = octets[at : at + 1]
        if inside:
            at += octet == b"\\"
            inside = octet != b'"'
        elif octet == b'"':
            inside = True
        else:
            depth += (octet in b"[{") - (octet in b"]}")
            most = max(most, depth)
        at += 1
    return most


@given(st.lists(st.sampled_from(list(b'["\\]a{}')), max_size=24).map(bytes), st.integers(0, 6))
def test_the_depth_is_that_of_a_plain_reader(octets: bytes, most: int) -> None:
    try:
        validate_json_depth(octets, most)
    except AIIPError:
        assert deepest(octets) > most
    else:
        assert deepest(octets) <= most


class Echo(msgspec.Struct):
    amount: int


@pytest.mark.requirement("ai-security-c")
def test_what_a_policy_forbids_in_the_body_is_forbidden_in_the_query(serving: Serving) -> None:
    paid: list[int] = []

    async def run(arguments: dict[str, Any], call: Call) -> Any:
        paid.append(int(arguments["amount"]))

    async def work(given: Echo) -> AsyncIterator[Echo]:
        paid.append(given.amount)
        yield given

    def fill(app: Endpoint) -> None:
        @app.resource("/pay", effects="financial")
        def pay(amount: int) -> int:
            paid.append(amount)
            return amount

        app.add("/tool", tool(run, input={"type": "object"}), effects="financial")
        app.add("/task", task(work, input=Echo), effects="financial")

    with serving(fill, policy=CAPPED) as (_, line):
        for number, path in enumerate(("/pay", "/task", "/tool")):
            for amount in ("1000", "13"):
                body = f'{{"amount":{amount}}}'.encode()
                assert line.ask("POST", path, body, keyed(number), JSON).status == 403
                # a tool takes texts, which a policy on numbers cannot judge: it is refused where it compares
                if path != "/tool" or amount == "1000":
                    heard = line.ask("POST", f"{path}?amount={amount}", b"", keyed(number))
                    assert (heard.status, heard.json()["code"]) == (403, "policy-denied")
        assert paid == []
        for path in ("/pay", "/task"):
            assert line.ask("POST", f"{path}?amount=99", b"", keyed(9)).status == 200
        assert line.ask("POST", "/pay?amount=much", b"", keyed(10)).status == 422
        assert line.ask("POST", "/pay?other=1", b'{"amount":1}', keyed(11), JSON).status == 422
    assert paid == [99, 99]


def test_a_policy_sees_a_models_parameters_as_the_model_reads_them(serving: Serving) -> None:
    class Quiet:
        async def complete(self, turns: Any, options: Any) -> Completed:
            return Completed(text="ok", model="m")

        def stream(self, turns: Any, options: Any) -> Any:
            raise NotImplementedError

    policy = (
        "permit(principal, action, resource);"
        "forbid(principal, action, resource)"
        " when { context.input has max_tokens && context.input.max_tokens == 4000 };"
    )

    def fill(app: Endpoint) -> None:
        app.add("/model", model(Quiet()))

    with serving(fill, policy=policy) as (_, line):
        assert line.ask("POST", "/model?prompt=a&max_tokens=4000").status == 403
        assert line.ask("POST", "/model?prompt=a&max_tokens=40").status == 200


def test_a_handler_without_types_is_judged_by_the_texts_it_is_given(serving: Serving) -> None:
    class Plain:
        def describe(self) -> dict[str, Any]:
            return {}

        async def invoke(self, call: Call) -> Answer:
            return Answer(body=b"1")

    policy = (
        "permit(principal, action, resource);"
        'forbid(principal, action, resource) when { context.input has to && context.input.to == "street" };'
    )

    def fill(app: Endpoint) -> None:
        app.add("/go", Plain())

    with serving(fill, policy=policy) as (_, line):
        assert line.ask("POST", "/go?to=street").status == 403
        assert line.ask("POST", "/go?to=street", b"[1]", JSON).status == 403
        assert line.ask("POST", "/go?to=dock").status == 200


def test_come_again_later_is_not_what_a_key_is_answered_with(serving: Serving, ca: trustme.CA) -> None:
    began, go = threading.Event(), threading.Event()

    def fill(app: Endpoint) -> None:
        @app.resource("/slow", effects="write")
        def slow() -> str:
            began.set()
            go.wait(PATIENCE)
            return "done"

    with (
        serving(fill, limits=Limits(concurrent=1)) as (app, line),
        Line(app.authority, ca) as other,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(other.ask, "POST", "/slow", b"", keyed(1))
        assert began.wait(PATIENCE)
        busy = line.ask("POST", "/slow", b"", keyed(2))
        assert (busy.status, busy.json()["retryable"]) == (503, True)
        go.set()
        assert first.result(PATIENCE).status == 200
        again = line.ask("POST", "/slow", b"", keyed(2))
        assert (again.status, again.get("idempotency-replayed")) == (200, None)
        # places are given back by whoever found an answer, or none
        assert line.ask("POST", "/slow", b"", keyed(2)).get("idempotency-replayed") == "?1"
        assert line.ask("POST", "/slow?a=1", b"", keyed(2)).status == 422
        assert line.ask("POST", "/slow", b"", keyed(3)).status == 200


def test_names_that_a_stranger_makes_up_share_one_allowance(serving: Serving) -> None:
    def fill(app: Endpoint) -> None:
        @app.resource("/write", effects="write")
        def write() -> str:
            return "done"

    def ask(line: Line, number: int) -> int:
        origin = ("Origin", f"https://made-up-{number}.example")
        return line.ask("POST", "/write", b"", keyed(number), origin).status

    with serving(fill, limits=Limits(keys=3)) as (_, line):
        assert [ask(line, number) for number in range(5)] == [200, 200, 200, 429, 429]
        assert line.ask("POST", "/write", b"", keyed(9)).status == 429


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockingStore]:
    found = BlockingStore(tmp_path / "k.sqlite", most=1)
    yield found
    found.close()


def test_strangers_take_nothing_from_those_who_are_known(store: BlockingStore) -> None:
    def begin(client: str) -> None:
        store.begin(key_scope("k", client), "f", 1e9)

    begin(f"{ANONYMOUS_PREFIX}https://one.example")
    with pytest.raises(AIIPError):
        begin(f"{ANONYMOUS_PREFIX}https://two.example")
    begin("client shop")
    begin("client other")


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_store_is_never_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    modes: dict[str, int] = {}
    connect = sqlite3.connect

    def seen(where: str, **options: Any) -> sqlite3.Connection:
        modes[Path(where).suffix] = stat.S_IMODE(Path(where).stat().st_mode)
        return connect(where, **options)

    monkeypatch.setattr(sqlite3, "connect", seen)
    before = os.umask(0o022)
    try:
        BlockingStore(tmp_path / "k.sqlite", most=1).close()
    finally:
        os.umask(before)
    assert modes == {".sqlite": 0o600, ".lock": 0o600}


def test_which_check_failed_elsewhere_is_told_to_nobody(serving: Serving) -> None:
    def fill(app: Endpoint) -> None:
        @app.resource("/relay")
        def relay(code: str) -> str:
            error = ProvenanceError(
                "it does not hold", code=code, clause="AIIP/HTTPS v1 3.8 step 5", hint="a key"
            )
            raise error from SignatureError("the signature does not hold")

    with serving(fill) as (_, line):
        told = []
        for name in ("missing", "stale", "invalid"):
            heard = line.ask("POST", f"/relay?code=aiip.provenance-{name}")
            assert heard.receipt
            told.append({key: value for key, value in heard.json().items() if key != "instance"})
    assert told[0] == told[1] == told[2]
    assert (told[0]["code"], told[0]["status"]) == ("provenance-invalid", 502)
    assert "clause" not in told[0]
    assert "step" not in str(told[0])
