"""Long tasks through a gateway: its own URLs, receipts that pass unchanged, a page without scripts."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from ai_support import PATIENCE
from gateway_support import Answer, World, world
from onym.ai.endpoint import Call, Task, ThreadTask
from onym.net.messages import SSEDecoder
from onym.sign.receipts import decode_claims, split_token

ASYNC = {"Prefer": "respond-async"}
GO = threading.Event()


@pytest.fixture(scope="module")
def far() -> Iterator[World]:
    with world() as found:

        @found.endpoint.app.resource("/tool/long", title="Take a while", task=True)
        def long(task: ThreadTask, word: str = "done") -> str:
            task.progress(1, 2, "<b>half</b>")
            GO.wait(PATIENCE)
            task.raise_if_cancelled()
            return word

        @found.endpoint.app.resource("/tool/ask", title="Ask", task=True)
        async def ask(task: Task, call: Call) -> str:
            from dataclasses import make_dataclass

            zone = make_dataclass("Zone", [("zone", str)])
            return str((await task.ask(zone, "Which zone?")).zone)

        GO.clear()
        yield found
        GO.set()


def place(answer: Answer) -> str:
    """Path and query of where an answer leads."""
    parts = urlsplit(answer.headers["location"])
    return f"{parts.path}?{parts.query}"


def other(path: str, part: str) -> str:
    return path.replace("/tasks/status/", f"/tasks/{part}/")


def begin(far: World, resource: str = "/tool/long") -> str:
    answer = far.ask("POST", resource, b"", **ASYNC)
    assert answer.status == 202
    return place(answer)


def end_of(far: World, path: str) -> dict[str, Any]:
    while True:
        status: dict[str, Any] = far.at("GET", path, Prefer="wait=20").json()
        if "result" in status:
            return status


def test_a_program_begins_a_task_and_gets_its_result(far: World) -> None:
    GO.clear()
    begun = far.ask("POST", "/tool/long", b"", **ASYNC)
    assert begun.status == 202
    assert begun.headers["content-type"] == "application/aiip-task+json"
    assert begun.headers["preference-applied"] == "respond-async"
    path = place(begun)
    assert begun.headers["location"].startswith(f"{far.base}/tasks/status/{far.authority}/tool/long?")
    # the body is the endpoint's, octet by octet: its receipt covers it
    assert begun.json()["location"].startswith(f"https://{far.authority}/.well-known/aiip/tasks/")
    early = far.at("GET", other(path, "result"))
    assert (early.status, early.json()["state"]) == (202, "working")
    GO.set()
    assert end_of(far, path)["state"] == "completed"
    result = far.at("GET", other(path, "result"))
    assert (result.status, result.body) == (200, b"done")
    claims = decode_claims(
        json.loads(split_token(result.headers["aiip-receipt"], "a receipt", 4096)[1]), "aiip-receipt+jwt"
    )
    assert (claims.task, claims.original) == (begun.json()["id"], begun.json()["rqh"])
    assert result.headers["aiip-gateway-receipt"]
    tag = far.at("GET", path).headers["etag"]
    assert far.at("GET", path, If_None_Match=tag).status == 304
    over = far.at("DELETE", path)
    assert (over.status, over.json()["code"]) == (409, "task-not-cancelable")


def test_events_come_through_and_are_resumed(far: World) -> None:
    GO.set()
    path = begin(far)
    end_of(far, path)
    whole = SSEDecoder().feed(far.at("GET", other(path, "events")).body)
    assert [event.event for event in whole[-2:]] == ["receipt", "gateway-receipt"]
    numbers = [event.id for event in whole[:-2]]
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    rest = SSEDecoder().feed(far.at("GET", other(path, "events"), Last_Event_ID="2").body)
    assert [event.id for event in rest[:-2]] == numbers[2:]
    assert far.at("GET", other(path, "events"), Last_Event_ID="x").status == 400


def test_a_task_asks_and_is_cancelled_through_the_gateway(far: World) -> None:
    path = begin(far, "/tool/ask")
    asked = far.at("GET", path, Prefer="wait=20").json()
    assert asked["state"] == "input-required"
    assert far.at("POST", other(path, "input"), b'{"zone": 1}').status == 422
    assert far.at("POST", other(path, "input"), b'{"zone": "A3"}').status == 202
    assert end_of(far, path)["state"] == "completed"
    second = begin(far, "/tool/ask")
    assert far.at("DELETE", second).status == 202
    assert end_of(far, second)["state"] == "canceled"
    assert far.at("GET", other(second, "result")).status == 410


def test_a_task_that_does_not_exist_is_one_404(far: World) -> None:
    GO.set()
    path = begin(far)
    end_of(far, path)
    bare, query = path.partition("?")[::2]
    task, request = (pair.partition("=")[2] for pair in query.split("&"))
    for wrong in (
        "",
        f"?task={task}",
        f"?{urlencode({'task': 'x' * 32, 'request': request})}",
        f"?{urlencode({'task': '../v1', 'request': request})}",
    ):
        answer = far.at("GET", bare + wrong)
        assert (answer.status, answer.json()["code"]) == (404, "task-not-found")
    # another request, or another resource, is not what the receipt says
    forged = far.at("GET", f"{bare}?{urlencode({'task': task, 'request': 'A' * 43})}")
    assert (forged.status, forged.json()["code"]) == (502, "provenance-invalid")
    moved = far.at("GET", path.replace("/tool/long", "/tool/ask"))
    assert (moved.status, moved.json()["code"]) == (502, "provenance-invalid")
    assert far.at("GET", path.replace("/tasks/status/", "/tasks/other/")).status == 404
    assert far.at("PUT", path).status == 405


def test_pages_of_other_sites_change_nothing(far: World) -> None:
    GO.clear()
    path = begin(far)
    for method, name in (("DELETE", "status"), ("POST", "cancel"), ("POST", "input")):
        answer = far.at(method, other(path, name), b"", Origin="https://evil.example")
        assert (answer.status, answer.json()["code"]) == (403, "forged")
    assert far.at("GET", path).json()["state"] in {"submitted", "working"}
    form = b"csrf_token=x"
    refused = far.at("POST", other(path, "cancel"), form, Content_Type="application/x-www-form-urlencoded")
    assert (refused.status, refused.json()["code"]) == (403, "forged")
    GO.set()


def test_a_browser_follows_a_task_without_scripts(far: World) -> None:
    GO.clear()
    html = {"Accept": "text/html"}
    page = far.ask("GET", "/tool/long", **html)
    cookie = page.headers["set-cookie"].partition(";")[0]
    text = page.body.decode()
    hidden = dict(re.findall(r'name="(csrf_token|uri|key)" value="([^"]*)"', text))
    fields = urlencode({name: unescape(value) for name, value in hidden.items()})
    typed = {"Content_Type": "application/x-www-form-urlencoded", "Cookie": cookie, **html}
    sent = far.at("POST", "/invoke", fields.encode(), **typed)
    assert sent.status == 303
    path = place(sent)
    running = far.at("GET", path, Cookie=cookie, **html)
    assert running.headers["refresh"] == "5"
    quiet = far.at("GET", f"{path}&reload=off", Cookie=cookie, **html)
    assert (quiet.status, "refresh" in quiet.headers) == (200, False)
    shown = running.body.decode()
    assert "&lt;b&gt;half&lt;/b&gt;" in shown
    assert "<script" not in shown
    assert '<progress max="2.0" value="1.0"' in shown
    token = re.findall(r'name="csrf_token" value="([^"]*)"', shown)[0]
    action = urlsplit(unescape(re.findall(r'<form method="post" action="([^"]*)"', shown)[0]))
    again = far.at("POST", "/invoke", fields.encode(), **typed)
    assert place(again) == path  # a second click is the same task
    stop = f"csrf_token={token}".encode()
    stopped = far.at("POST", f"{action.path}?{action.query}", stop, **typed)
    assert (stopped.status, place(stopped)) == (303, path)
    assert "asked the authority to cancel" in far.at("GET", path, Cookie=cookie, **html).body.decode()
    GO.set()
    assert end_of(far, path)["state"] == "canceled"
    last = far.at("GET", path, **html)
    assert "It was cancelled" in last.body.decode()
    assert "refresh" not in last.headers


def test_a_browser_gets_the_page_of_a_result_with_its_proof(far: World) -> None:
    GO.set()
    path = begin(far)
    end_of(far, path)
    sent = far.at("GET", other(path, "result"), Accept="text/html")
    assert (sent.status, sent.headers["location"].startswith("/results/")) == (303, True)
    cookie = sent.headers["set-cookie"].partition(";")[0]
    page = far.at("GET", sent.headers["location"], Accept="text/html", Cookie=cookie).body.decode()
    assert "done" in page
    assert "Proof of this result" in page


def test_the_audit_log_names_no_task(far: World) -> None:
    GO.set()
    path = begin(far)
    end_of(far, path)
    task = path.partition("task=")[2].partition("&")[0]
    log = (far.folder / "audit.jsonl").read_text()
    assert task not in log
