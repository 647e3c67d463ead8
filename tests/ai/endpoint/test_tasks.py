"""Long tasks at a running endpoint: begun after a commit, for their caller only, ended once (3.12)."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import PATIENCE, Heard, Line, key_store, serve_authority
from onym.ai.endpoint import Answer, Call, Caller, Endpoint, Limits, Task, ThreadTask, tasks
from onym.ai.endpoint.context import AccessRequest
from onym.ai.endpoint.task_store import KEPT_SECONDS
from onym.errors import AIIPError, TaskCancelled, UsageError
from onym.net.messages import SSEDecoder, SSEEvent
from onym.sign.receipts import Receipt, StreamChain, decode_claims, request_hash, split_token

Serving = Callable[..., Any]
ASYNC = ("Prefer", "respond-async")
TYPE = ("Content-Type", "application/json")


def key(name: str) -> tuple[str, str]:
    return ("Idempotency-Key", f'"{name}"')


@dataclass
class Zone:
    """What the mover asks for."""

    zone: str


class Works:
    """Resources that take their time; `go` lets them end."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.go = threading.Event()
        self.began = threading.Event()

    def fill(self, app: Endpoint) -> None:
        @app.resource("/pay", effects="write", task=True)
        def pay(amount: int, task: ThreadTask) -> dict[str, int]:
            """Pay slowly."""
            self.ran.append(f"pay {amount}")
            task.progress(1, 2, "asked the bank")
            self.began.set()
            self.go.wait(PATIENCE)
            task.raise_if_cancelled()
            return {"paid": amount}

        @app.resource("/move", effects="write", task=True)
        async def move(load: str, task: Task) -> dict[str, str]:
            task.progress(0, 1)
            where = await task.ask(Zone, "Which zone?")
            self.ran.append(f"move {load} to {where.zone}")
            return {"moved": load, "zone": where.zone}

        @app.resource("/read", task=True)
        async def read(task: Task, steps: int = 3) -> int:
            import asyncio

            for step in range(steps):
                task.progress(step + 1, steps)
                if steps > 100:
                    self.began.set()
                    await asyncio.sleep(0.01)
            return steps

        @app.resource("/refuses", task=True)
        async def refuses() -> int:
            raise AIIPError("no such account", code="aiip.invalid-input")

        @app.resource("/fails", task=True)
        async def fails() -> int:
            raise RuntimeError("the password is hunter2")

        @app.resource("/octets", task=True, media_type="image/png")
        async def octets() -> bytes:
            return b"\x89PNG"


def start(line: Line, path: str, *fields: tuple[str, str], **given: Any) -> Heard:
    body = json.dumps(given).encode() if given else b""
    return line.ask("POST", path, body, ASYNC, *((TYPE,) if body else ()), *fields)


def on(line: Line, method: str, task: str, part: str = "", body: bytes = b"", *fields: Any) -> Heard:
    return line.ask(method, f"/.well-known/aiip/tasks/{task}{part}", body, *fields, service=False)


def end_of(line: Line, task: str) -> dict[str, Any]:
    """The status of the task once it has ended."""
    while True:
        heard = on(line, "GET", task, "", b"", ("Prefer", "wait=20"))
        status: dict[str, Any] = heard.json()
        if "result" in status:
            return status


def claims(token: str | None) -> Receipt:
    assert token is not None
    payload = split_token(token, "a receipt", 4096)[1]
    return decode_claims(json.loads(payload), "aiip-receipt+jwt")


def events_of(octets: bytes) -> list[SSEEvent]:
    return SSEDecoder().feed(octets)


def test_a_task_is_begun_reported_on_and_its_result_is_fetched_later(serving: Serving) -> None:
    works = Works()
    with serving(works.fill) as (app, line):
        first = start(line, "/pay", key("a"), amount=7)
        assert first.status == 202
        assert first.get("content-type") == "application/aiip-task+json"
        assert first.get("preference-applied") == "respond-async"
        assert first.get("retry-after") == "1"
        status = first.json()
        task = status["id"]
        assert first.get("location") == f"https://{app.authority}/.well-known/aiip/tasks/{task}"
        assert status["target"] == f"ai://{app.authority}/pay"
        assert len(task) == 32
        assert works.began.wait(PATIENCE)
        running = on(line, "GET", task).json()
        assert running["state"] == "working"
        early = on(line, "GET", task, "/result")
        assert (early.status, early.json()["state"]) == (202, "working")
        works.go.set()
        last = end_of(line, task)
        assert last["state"] == "completed"
        assert last["progress"] == {"done": 1.0, "total": 2.0, "note": "asked the bank"}
        assert last["expires"] == pytest.approx(last["updated"] + KEPT_SECONDS, abs=1)
        result = on(line, "GET", task, "/result", b"", ("AIIP-Nonce", "n" * 22))
        assert (result.status, result.get("content-type"), result.json()) == (
            200,
            "application/json",
            {"paid": 7},
        )
        said = claims(result.receipt)
        assert (said.task, said.original, said.nonce) == (task, status["rqh"], "n" * 22)
        assert said.subject == f"ai://{app.authority}/pay"
        assert said.request == request_hash(
            method="GET",
            target=f"task:{task}/result",
            digest=None,
            content_type=None,
            idempotency_key=None,
        )
        assert claims(first.receipt).request == status["rqh"]
        assert works.ran == ["pay 7"]


def test_the_same_key_is_the_same_task_and_another_body_is_refused(serving: Serving) -> None:
    works = Works()
    with serving(works.fill) as (_, line):
        task = start(line, "/pay", key("a"), amount=7).json()["id"]
        again = start(line, "/pay", key("a"), amount=7)
        assert (again.status, again.json()["id"], again.get("idempotency-replayed")) == (202, task, "?1")
        other = start(line, "/pay", key("a"), amount=70)
        assert (other.status, other.json()["code"]) == (422, "idempotency-mismatch")
        waiting = line.ask("POST", "/pay", b'{"amount": 7}', TYPE, key("a"))
        assert (waiting.status, waiting.json()["code"]) == (409, "idempotency-in-progress")
        works.go.set()
        end_of(line, task)
        whole = line.ask("POST", "/pay", b'{"amount": 7}', TYPE, key("a"))
        assert (whole.status, whole.json(), whole.get("idempotency-replayed")) == (200, {"paid": 7}, "?1")
        assert start(line, "/pay", key("a"), amount=7).json()["state"] == "completed"
        assert works.ran == ["pay 7"]


def test_a_call_that_waits_first_and_asks_for_a_task_then_gets_its_answer(serving: Serving) -> None:
    works = Works()
    works.go.set()
    with serving(works.fill) as (_, line):
        whole = line.ask("POST", "/pay", b'{"amount": 7}', TYPE, key("a"))
        again = start(line, "/pay", key("a"), amount=7)
        assert (whole.status, again.status, again.json()) == (200, 200, {"paid": 7})
        assert again.get("idempotency-replayed") == "?1"
        assert works.ran == ["pay 7"]


def test_a_result_that_comes_in_the_time_to_wait_is_the_answer(serving: Serving) -> None:
    with serving(Works().fill) as (_, line):
        heard = line.ask("POST", "/read", b"", ("Prefer", "respond-async, wait=30"))
        assert (heard.status, heard.json(), heard.get("preference-applied")) == (200, 3, "wait=30")
        assert claims(heard.receipt).task is None


def test_a_write_needs_a_key_for_its_task_too(serving: Serving) -> None:
    with serving(Works().fill) as (_, line):
        heard = start(line, "/pay", amount=7)
        assert (heard.status, heard.json()["code"]) == (400, "idempotency-required")
        wrong = start(line, "/pay", key("a"), amount="much")
        assert (wrong.status, wrong.json()["code"]) == (422, "invalid-input")


def test_states_and_results_of_other_ends(serving: Serving) -> None:
    with serving(Works().fill) as (_, line):
        refused = start(line, "/refuses").json()["id"]
        failed = start(line, "/fails").json()["id"]
        octets = start(line, "/octets").json()["id"]
        assert end_of(line, refused)["state"] == "rejected"
        assert end_of(line, refused)["error"]["code"] == "invalid-input"
        assert on(line, "GET", refused, "/result").status == 422
        assert end_of(line, failed)["state"] == "failed"
        answer = on(line, "GET", failed, "/result")
        assert (answer.status, answer.json()["code"]) == (500, "internal")
        assert b"hunter2" not in answer.body
        end_of(line, octets)
        image = on(line, "GET", octets, "/result")
        assert (image.status, image.get("content-type"), image.body) == (200, "image/png", b"\x89PNG")


def test_status_has_a_tag_and_waits_for_a_change(serving: Serving, ca: trustme.CA) -> None:
    works = Works()
    with serving(works.fill) as (app, line):
        task = start(line, "/pay", key("a"), amount=7).json()["id"]
        assert works.began.wait(PATIENCE)
        first = on(line, "GET", task)
        while first.json().get("progress") is None:
            first = on(line, "GET", task)
        tag = first.get("etag") or ""
        same = on(line, "GET", task, "", b"", ("If-None-Match", tag))
        assert (same.status, same.body, same.get("etag")) == (304, b"", tag)
        with Line(app.authority, ca) as other:
            head = other.head(
                "GET", f"/.well-known/aiip/tasks/{task}", b"", ("If-None-Match", tag), ("Prefer", "wait=30")
            )
            other.sock.sendall(head)
            works.go.set()
            changed = other.say(b"", "GET")
        assert changed.status == 200
        assert changed.json()["state"] == "completed"
        assert changed.get("preference-applied") == "wait=30"
        still = on(line, "GET", task, "", b"", ("If-None-Match", changed.get("etag") or ""))
        assert still.status == 304


def test_events_end_with_a_receipt_over_all_of_them(serving: Serving) -> None:
    with serving(Works().fill) as (_, line):
        status = start(line, "/read", ("Prefer", "wait=5")).json()
        task = start(line, "/read", key("r")).json()["id"]
        assert status
        end_of(line, task)
        heard = on(line, "GET", task, "/events")
        found = events_of(heard.body)
        assert [event.event for event in found][0 :: len(found) - 1] == ["state", "receipt"]
        numbers = [int(event.id) for event in found[:-1]]
        assert numbers == list(range(1, len(found)))
        assert [json.loads(e.data)["state"] for e in found if e.event == "state"] == [
            "submitted",
            "working",
            "completed",
        ]
        said = claims(found[-1].data)
        chain = StreamChain(
            request_hash(
                method="GET",
                target=f"task:{task}/events",
                digest=None,
                content_type=None,
                idempotency_key=None,
            ),
            task,
        )
        for event in found[:-1]:
            chain.add(event.id, event.event, event.data)
        assert (said.stream, said.task) == (chain.end, task)
        # who has the first two gets the others, and a receipt over all of them
        rest = events_of(on(line, "GET", task, "/events", b"", ("Last-Event-ID", "2")).body)
        assert [event.id for event in rest[:-1]] == [str(number) for number in numbers[2:]]
        assert claims(rest[-1].data).stream == chain.end


@pytest.mark.parametrize("number", ["99", "-1", "x", "1e3"])
def test_events_are_not_resumed_at_a_number_that_does_not_exist(serving: Serving, number: str) -> None:
    with serving(Works().fill) as (_, line):
        task = start(line, "/read").json()["id"]
        end_of(line, task)
        heard = on(line, "GET", task, "/events", b"", ("Last-Event-ID", number))
        assert (heard.status, heard.json()["code"]) == (400, "bad-request")


def test_a_task_asks_for_input_and_takes_it_once(serving: Serving) -> None:
    works = Works()
    with serving(works.fill) as (_, line):
        task = start(line, "/move", key("a"), load="crate").json()["id"]
        early = on(line, "GET", task, "", b"", ("Prefer", "wait=20"))
        assert early.json()["state"] == "input-required"
        form = early.json()["inputs"]
        assert form["description"] == "Which zone?"
        assert list(form["properties"]) == ["zone"]
        wrong = on(line, "POST", task, "/input", b'{"zone": 3}', TYPE)
        assert (wrong.status, wrong.json()["code"]) == (422, "invalid-input")
        text = on(line, "POST", task, "/input", b"A3", ("Content-Type", "text/plain"))
        assert text.status == 415
        taken = on(line, "POST", task, "/input", b'{"zone": "A3"}', TYPE)
        assert taken.status == 202
        assert end_of(line, task)["state"] == "completed"
        late = on(line, "POST", task, "/input", b'{"zone": "B"}', TYPE)
        assert (late.status, late.json()["code"]) == (409, "task-not-waiting")
        assert on(line, "GET", task, "/result").json() == {"moved": "crate", "zone": "A3"}
        assert works.ran == ["move crate to A3"]


def test_a_wait_for_the_result_ends_when_the_task_asks(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MOST_WAIT", 3600.0)
    wait = "wait=3600"
    with serving(Works().fill) as (_, line):
        begun = line.ask(
            "POST", "/move", b'{"load": "crate"}', ("Prefer", f"respond-async, {wait}"), TYPE, key("a")
        )
        assert (begun.status, begun.json()["state"]) == (202, "input-required")
        early = on(line, "GET", begun.json()["id"], "/result", b"", ("Prefer", wait))
        assert (early.status, early.json()["state"]) == (202, "input-required")


def test_input_and_cancel_of_a_call_that_is_no_task(serving: Serving) -> None:
    with serving(Works().fill) as (_, line):
        heard = line.ask("POST", "/move", b'{"load": "crate"}', TYPE, key("a"))
        assert (heard.status, heard.json()["code"]) == (400, "bad-request")


def test_cancelling(serving: Serving) -> None:
    """A plain function decides when it stops; a task is over when its function has ended, and only once."""
    works = Works()
    with serving(works.fill) as (_, line):
        task = start(line, "/pay", key("a"), amount=7).json()["id"]
        assert works.began.wait(PATIENCE)
        first = on(line, "DELETE", task)
        assert (first.status, first.json()["state"], first.json()["canceling"]) == (202, "working", True)
        assert on(line, "DELETE", task).status == 202
        assert on(line, "GET", task).json()["state"] == "working"
        works.go.set()
        assert end_of(line, task)["state"] == "canceled"
        over = on(line, "DELETE", task)
        assert (over.status, over.json()["code"]) == (409, "task-not-cancelable")
        gone = on(line, "GET", task, "/result")
        assert (gone.status, gone.json()["code"]) == (410, "task-canceled")
        asked = start(line, "/move", key("b"), load="crate").json()["id"]
        on(line, "GET", asked, "", b"", ("Prefer", "wait=20"))
        assert on(line, "DELETE", asked).status == 202
        assert end_of(line, asked)["state"] == "canceled"
        reading = start(line, "/read?steps=1000000").json()["id"]
        assert works.began.wait(PATIENCE)
        assert on(line, "DELETE", reading).status == 202
        assert end_of(line, reading)["state"] == "canceled"
        assert works.ran == ["pay 7"]


class ByToken:
    """Knows callers by a word that they send; each may have another person."""

    def __init__(self, authority: str) -> None:
        self._authority = authority

    async def authorize(self, request: AccessRequest) -> Caller:
        word = request.headers.get("authorization")
        if word is None:
            raise AIIPError("no token", code="aiip.authentication-required")
        client, _, person = word.removeprefix("Bearer ").partition("/")
        return Caller(
            audience=client, client_id=client, subject=person, token_hash="h" * 43, scopes=frozenset({"pay"})
        )

    def metadata(self) -> dict[str, Any]:
        resource = f"https://{self._authority}/.well-known/aiip/v1"
        return {"resource": resource, "authorization_servers": ["https://as.test"]}


def test_a_task_of_another_caller_does_not_exist(tmp_path: Path, ca: trustme.CA) -> None:
    works = Works()
    keys = key_store(tmp_path)

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=keys, store=tmp_path / "k.sqlite", authorization=ByToken(authority))
        works.fill(app)
        return app

    with serve_authority(make, "factory.test", ca=ca) as (_, authority), Line(authority, ca) as line:
        own = ("Authorization", "Bearer shop/ann")
        task = start(line, "/pay", key("a"), own, amount=7).json()["id"]
        assert works.began.wait(PATIENCE)
        requests = [
            ("GET", "", b"", ()),
            ("GET", "/events", b"", ()),
            ("GET", "/events", b"", (("Last-Event-ID", "1"),)),
            ("GET", "/result", b"", ()),
            ("DELETE", "", b"", ()),
            ("POST", "/input", b"{}", (TYPE,)),
            ("PUT", "", b"", ()),
        ]
        for method, part, body, fields in requests:
            answers = [
                on(line, method, name, part, body, ("Authorization", f"Bearer {who}"), *fields)
                for name, who in (
                    (task, "shop/bob"),
                    (task, "till/ann"),
                    ("x" * 32, "shop/ann"),
                    ("y", "shop/ann"),
                )
            ]
            told = {
                (each.status, each.receipt, json.dumps(each.json() | {"instance": None})) for each in answers
            }
            assert len(told) == 1
            assert answers[0].status == 404
            assert answers[0].json()["code"] == "task-not-found"
        assert on(line, "GET", task).status == 401
        assert on(line, "GET", "x" * 32).status == 401
        assert on(line, "GET", task, "", b"", own).json()["state"] == "working"
        works.go.set()


def test_a_task_of_another_authority_does_not_exist(tmp_path: Path, ca: trustme.CA) -> None:
    """Attack 91: two authorities share a store, and each hands out and signs only for its own tasks."""
    works = Works()

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=key_store(tmp_path / authority[:4]), store=tmp_path / "k.sqlite")
        works.fill(app)
        return app

    with (
        serve_authority(make, "factory.test", ca=ca) as (_, authority),
        serve_authority(make, "shop.test", ca=ca) as (_, other),
        Line(authority, ca) as line,
        Line(other, ca) as foreign,
    ):
        task = start(line, "/move", key("a"), load="crate").json()["id"]
        on(line, "GET", task, "", b"", ("Prefer", "wait=20"))
        for method, part, body, fields in (
            ("GET", "", b"", ()),
            ("GET", "/events", b"", ()),
            ("GET", "/result", b"", ()),
            ("DELETE", "", b"", ()),
            ("POST", "/input", b'{"zone": "A3"}', (TYPE,)),
            ("PUT", "", b"", ()),
        ):
            heard = on(foreign, method, task, part, body, *fields)
            assert (heard.status, heard.json()["code"]) == (404, "task-not-found")
            assert heard.receipt is None
        status = on(line, "GET", task).json()
        assert (status["state"], status.get("canceling")) == ("input-required", None)
        assert on(line, "POST", task, "/input", b'{"zone": "A3"}', TYPE).status == 202
        assert end_of(line, task)["state"] == "completed"


def test_limits_of_tasks(serving: Serving) -> None:
    works = Works()
    limits = Limits(tasks_running=2, tasks_kept=3, task_events=20, stream_seconds=60)
    with serving(works.fill, limits=limits) as (_, line):
        tasks = [start(line, "/pay", key(name), amount=1).json()["id"] for name in "ab"]
        full = start(line, "/pay", key("c"), amount=1)
        assert (full.status, full.json()["code"], full.json()["retryable"]) == (
            429,
            "too-many-requests",
            True,
        )
        works.go.set()
        for task in tasks:
            end_of(line, task)
        assert start(line, "/read").status == 202
        kept = start(line, "/read")
        assert (kept.status, kept.json()["code"]) == (429, "too-many-requests")


def test_progress_is_cut_and_events_have_a_limit(serving: Serving) -> None:
    def fill(app: Endpoint) -> None:
        @app.resource("/long", task=True)
        async def long(task: Task) -> int:
            task.progress(1, note="x" * 1_000_000)
            return 1

        @app.resource("/nan", task=True)
        async def nan(task: Task) -> int:
            task.progress(float("nan"))
            return 1

    with serving(fill) as (_, line):
        task = start(line, "/long").json()["id"]
        assert len(end_of(line, task)["progress"]["note"]) == 500
        assert len(on(line, "GET", task, "/events").body) < 4_000
        assert end_of(line, start(line, "/nan").json()["id"])["state"] == "failed"


@pytest.mark.parametrize("limits", [{"task_events": 40}, {"task_bytes": 6_000}])
def test_a_task_that_reports_without_end_keeps_its_limits_and_its_end(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """Attack 97: the number of events, and their bytes."""
    monkeypatch.setattr("onym.ai.endpoint.task_runner._PROGRESS_SECONDS", 0.0)

    def fill(app: Endpoint) -> None:
        @app.resource("/chatty", task=True)
        async def chatty(task: Task) -> int:
            import asyncio

            for step in range(150):
                task.progress(step, note="x" * 500)
                await asyncio.sleep(0.005)
            return 150

    with serving(fill, limits=Limits(**limits)) as (_, line):
        task = start(line, "/chatty").json()["id"]
        last = end_of(line, task)
        assert (last["state"], last["progress"]["done"]) == ("completed", 149.0)
        found = events_of(on(line, "GET", task, "/events").body)[:-1]
        reports = [event for event in found if event.event == "progress"]
        octets = sum(len(event.event) + len(event.data) for event in found)
        assert 5 < len(reports) < 150
        assert len(found) <= limits.get("task_events", 150)
        assert octets <= limits.get("task_bytes", 100_000) + 1_000  # one report more, and the states
        assert json.loads(found[-1].data)["state"] == "completed"


def test_a_task_that_asks_without_end_keeps_the_limit_of_its_events(serving: Serving) -> None:
    """AIIP/HTTPS v1 3.12, attack 97: a caller who answers for ever fills no disk."""

    def fill(app: Endpoint) -> None:
        @app.resource("/picky", task=True)
        async def picky(task: Task) -> str:
            while (answer := await task.ask(Zone, "Which zone?")).zone != "A3":
                task.progress(0, note=answer.zone)
            return answer.zone

    with serving(fill, limits=Limits(task_events=24)) as (_, line):
        task = start(line, "/picky").json()["id"]
        given = 0
        while (status := on(line, "GET", task, "", b"", ("Prefer", "wait=20")).json())[
            "state"
        ] == "input-required":
            given += on(line, "POST", task, "/input", b'{"zone": "B1"}', TYPE).status == 202
            assert given < 24
        assert (status["state"], status["error"]["code"]) == ("rejected", "too-large")
        found = events_of(on(line, "GET", task, "/events").body)[:-1]
        assert len(found) <= 24


def test_text_that_utf8_cannot_encode_does_not_keep_a_task_from_its_end(serving: Serving) -> None:
    """Names of files may contain such text (PEP 383)."""

    def fill(app: Endpoint) -> None:
        @app.resource("/files", task=True)
        async def files(task: Task) -> str:
            task.progress(1, 1, "caf\udce9.txt")
            return "done"

        @app.resource("/asks", task=True)
        async def asks(task: Task) -> str:
            return (await task.ask(Zone, "Where is caf\udce9.txt?")).zone

    with serving(fill) as (_, line):
        last = end_of(line, start(line, "/files").json()["id"])
        assert (last["state"], last["progress"]["note"]) == ("completed", "caf?.txt")
        task = start(line, "/asks").json()["id"]
        asked = on(line, "GET", task, "", b"", ("Prefer", "wait=20")).json()
        assert asked["inputs"]["description"] == "Where is caf?.txt?"
        on(line, "DELETE", task)
        end_of(line, task)


def test_a_task_ends_whatever_fails(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr("onym.ai.endpoint.task_runner.RunningTask.take_pending", fail)
    works = Works()
    works.go.set()
    with serving(works.fill) as (_, line):
        last = end_of(line, start(line, "/pay", key("a"), amount=7).json()["id"])
        assert (last["state"], last["error"]["code"]) == ("failed", "internal")
        assert "hunter2" not in json.dumps(last)
    assert any("RuntimeError" in record.getMessage() for record in caplog.records)


def test_a_task_beyond_its_time_limit(serving: Serving) -> None:
    """An effect may go on, and the task says so; a function that ends in time after all has its result."""
    import asyncio

    go = threading.Event()

    def fill(app: Endpoint) -> None:
        @app.resource("/pay", effects="write", task=True)
        def pay(task: ThreadTask) -> int:
            go.wait(PATIENCE)
            return 1

        @app.resource("/read", task=True)
        async def read() -> int:
            await asyncio.sleep(PATIENCE)
            return 2

        @app.resource("/finish", effects="write", task=True)
        async def finish() -> int:
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                return 3
            return 4

    paths = ("/pay", "/read", "/finish")
    with serving(fill, limits=Limits(task_seconds=0.1)) as (_, line):
        try:
            ends = [end_of(line, start(line, path, key(path)).json()["id"]) for path in paths]
        finally:
            go.set()
        codes = [(end["state"], end.get("error", {}).get("code")) for end in ends]
        assert codes == [("failed", "interrupted"), ("failed", "upstream-timeout"), ("completed", None)]


def test_methods_of_the_parts(serving: Serving) -> None:
    with serving(Works().fill) as (_, line):
        task = start(line, "/read").json()["id"]
        end_of(line, task)
        for method, part in (("POST", ""), ("PUT", "/events"), ("DELETE", "/result"), ("GET", "/input")):
            heard = on(line, method, task, part)
            assert (heard.status, heard.json()["code"]) == (405, "method-not-allowed")
            assert heard.get("allow")
        assert on(line, "HEAD", task).body == b""
        assert on(line, "HEAD", task, "/events").status == 200
        assert on(line, "GET", task, "?x=1").status == 404


def test_a_resource_says_that_it_may_be_a_task(serving: Serving) -> None:
    def fill(app: Endpoint) -> None:
        Works().fill(app)

        @app.resource("/plain")
        def plain() -> int:
            return 1

    with serving(fill) as (_, line):
        assert line.ask("GET", "/read").json()["async"] is True
        assert line.ask("GET", "/plain").json()["async"] is False
        listed = line.ask("GET", "/.well-known/aiip", service=False).json()["endpoints"]
        assert {row["uri"].rpartition("/")[2]: row.get("async", False) for row in listed}["read"] is True
        # a preference may be ignored (RFC 7240 2)
        assert start(line, "/plain").status == 200


def test_functions_that_cannot_be_tasks(tmp_path: Path) -> None:
    app = Endpoint("factory.test", keys=key_store(tmp_path), store=tmp_path / "k.sqlite")
    bare = Endpoint("factory.test", keys=key_store(tmp_path / "other"))

    async def events() -> Any:
        yield 1

    async def wrong(task: ThreadTask) -> int:
        return 1

    def wrong_too(task: Task) -> int:
        return 1

    with pytest.raises(UsageError, match="store"):
        bare.resource("/x", task=True)(lambda: 1)
    with pytest.raises(UsageError, match="stream"):
        app.resource("/x", task=True)(events)
    for function in (wrong, wrong_too):
        with pytest.raises(UsageError, match="parameter of the type"):
            app.resource("/x", task=True)(function)


def test_tasks_and_their_keys_go_a_day_after_their_end(tmp_path: Path, ca: trustme.CA) -> None:
    now = [1_800_000_000.0]
    keys = key_store(tmp_path, at=now[0])
    store = tmp_path / "k.sqlite"

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=keys, store=store, clock=lambda: now[0])
        Works().fill(app)
        return app

    def rows(table: str) -> int:
        with closing(sqlite3.connect(store)) as base:
            count: int = base.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            return count

    with serve_authority(make, "factory.test", ca=ca) as (app, authority), Line(authority, ca) as line:
        task = start(line, "/read", key("a")).json()["id"]
        end_of(line, task)
        now[0] += KEPT_SECONDS + 100
        # the key outlives its day with its task: nothing runs twice
        assert start(line, "/read", key("a")).json()["id"] == task
        import asyncio

        asyncio.run(app._exchanges.tasks.runner.store.sweep(now[0]))  # type: ignore[union-attr]
        assert (rows("tasks"), rows("task_events")) == (0, 0)
        assert on(line, "GET", task).status == 404


def test_the_call_of_a_task_is_the_call_of_its_request(serving: Serving) -> None:
    seen: list[Call] = []

    def fill(app: Endpoint) -> None:
        @app.resource("/call", task=True)
        async def call(call: Call, task: Task) -> Answer:
            seen.append(call)
            return Answer(status=201, content_type="text/plain", body=(task.id or "").encode())

    with serving(fill) as (_, line):
        task = start(line, "/call").json()["id"]
        end_of(line, task)
        heard = on(line, "GET", task, "/result")
        assert (heard.status, heard.body) == (201, task.encode())
        whole = line.ask("POST", "/call")
        assert (whole.status, whole.body) == (201, b"")
        assert seen[0].uri == seen[1].uri
        assert "host" in seen[0].headers


def test_who_raises_cancelled_without_a_request_has_failed(serving: Serving) -> None:
    def fill(app: Endpoint) -> None:
        @app.resource("/stops", task=True)
        async def stops() -> int:
            raise TaskCancelled

    with serving(fill) as (_, line):
        assert end_of(line, start(line, "/stops").json()["id"])["state"] == "failed"


def test_a_cancellation_at_the_moment_of_the_end_leaves_one_state(serving: Serving) -> None:
    works = Works()
    works.go.set()
    with serving(works.fill) as (_, line):
        seen = set()
        for number in range(30):
            task = start(line, "/pay", key(f"k{number}"), amount=number).json()["id"]
            for _ in range(number % 3):
                on(line, "GET", task)  # a moment later each time
            asked = on(line, "DELETE", task).status
            first = end_of(line, task)
            assert asked in {202, 409}
            assert asked == 202 or first["state"] == "completed"
            assert on(line, "GET", task).json() == first
            result = on(line, "GET", task, "/result")
            assert result.status == {"completed": 200, "canceled": 410}[first["state"]]
            states = [
                json.loads(event.data)["state"]
                for event in events_of(on(line, "GET", task, "/events").body)
                if event.event == "state"
            ]
            assert states[-1] == first["state"]
            assert len([state for state in states if state in {"completed", "canceled"}]) == 1
            seen.add(first["state"])
        assert seen


def test_a_task_that_was_stored_but_not_launched_runs_once(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away between the commit and the launch: the caller gets 503, and tries again."""
    monkeypatch.setattr("onym.ai.endpoint.task_runner._LOOK_SECONDS", 0.05)
    monkeypatch.setattr("onym.ai.endpoint.task_runner._SEARCH_SECONDS", 0.05)
    works = Works()
    with serving(works.fill) as (app, line):
        store = app._exchanges.tasks.runner.store
        find, away = store.find, [True]

        async def find_when_there(task: str) -> Any:
            if away:
                away.pop()
                raise AIIPError("the database is away", code="aiip.unavailable", retryable=True)
            return await find(task)

        monkeypatch.setattr(store, "find", find_when_there)
        first = start(line, "/pay", key("a"), amount=7)
        assert (first.status, first.json()["code"]) == (503, "unavailable")
        again = start(line, "/pay", key("a"), amount=7)
        assert again.status == 202
        works.go.set()
        assert end_of(line, again.json()["id"])["state"] == "completed"
        assert works.ran == ["pay 7"]


def test_the_watcher_survives_what_it_does_not_expect(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed search, and a task that cannot be taken over, are logged once and keep nothing else."""
    monkeypatch.setattr("onym.ai.endpoint.task_runner._LOOK_SECONDS", 0.01)
    monkeypatch.setattr("onym.ai.endpoint.task_runner._SEARCH_SECONDS", 0.01)
    works = Works()
    works.go.set()
    with serving(works.fill) as (app, line):
        runner = app._exchanges.tasks.runner
        launch, list_orphans, find = runner.launch, runner.store.list_orphans, runner.store.find
        broken: list[str] = []
        faults: list[float] = []
        mended = threading.Event()

        async def find_never(task: str) -> Any:
            raise AIIPError("the database is away", code="aiip.unavailable", retryable=True)

        async def list_badly(at: float) -> Any:
            if not mended.is_set():
                faults.append(at)
                raise RuntimeError("no list")
            return await list_orphans(at)

        def launch_good(record: Any, *given: Any) -> None:
            if record.id in broken:
                raise ValueError("no call")
            launch(record, *given)

        monkeypatch.setattr(runner.store, "list_orphans", list_badly)
        monkeypatch.setattr(runner, "launch", launch_good)
        monkeypatch.setattr(runner.store, "find", find_never)
        for name in "ab":  # stored, but not launched
            assert start(line, "/pay", key(name), amount=7).status == 503
        monkeypatch.setattr(runner.store, "find", find)
        broken.append(start(line, "/pay", key("a"), amount=7).json()["id"])
        good = start(line, "/pay", key("b"), amount=7).json()["id"]
        while len(faults) < 10:
            pass  # the watcher looks again
        mended.set()
        assert end_of(line, good)["state"] == "completed"
        assert on(line, "GET", broken[0]).json()["state"] == "submitted"
        while "ValueError" not in caplog.text:
            pass  # it may come to the good one first
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert sum("RuntimeError" in text for text in said) == 1
        assert sum("ValueError" in text for text in said) == 1
        assert broken[0] not in caplog.text  # the ID is all that a caller without a token needs
        broken.clear()


def test_a_change_of_another_process_is_read_again_after_a_failure(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes away between the look for changes and the reading of what has changed."""
    monkeypatch.setattr("onym.ai.endpoint.task_runner._LOOK_SECONDS", 0.01)
    works = Works()
    with serving(works.fill) as (app, line):
        runner = app._exchanges.tasks.runner
        task = start(line, "/pay", key("a"), amount=7).json()["id"]
        assert works.began.wait(PATIENCE)
        refresh, away = runner._refresh, [True]

        async def refresh_when_there() -> None:
            if away:
                away.pop()
                raise AIIPError("the database is away", code="aiip.unavailable", retryable=True)
            await refresh()

        monkeypatch.setattr(runner, "_refresh", refresh_when_there)
        with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as base:
            base.execute("UPDATE tasks SET canceling = 1")
            base.commit()
        while not runner.find_running(task).cancelled:
            pass  # the watcher looks again
        works.go.set()
        assert end_of(line, task)["state"] == "canceled"
