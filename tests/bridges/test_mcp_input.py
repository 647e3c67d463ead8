"""What the MCP bridge asks people for, and how: forms, links, sealed state; and tasks of endpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.types import ElicitResult

from ai_support import PATIENCE
from bridge_support import HandClient
from kinds_support import run
from onym.ai.records import Description, Effects
from onym.bridges._sdk import find_questions
from onym.bridges.mcp import mcp_server
from onym.errors import DeniedError, InvocationError, UsageError
from suites_support import serve_mcp_tools

PAY = "ai://bank.example/tool/pay"
VERSION = "2026-07-28"
LINK = "https://gateway.example/approvals/42"
ASKED = {"x-aiip-ask": True}
NAME = {
    "type": "object",
    "properties": {"to": {"type": "string", "title": "Payee", **ASKED}, "cents": {"type": "integer"}},
    "required": ["to", "cents"],
}


def bank(effects: Effects = Effects.WRITE, schema: Any = NAME) -> HandClient:
    return HandClient({PAY: Description(uri=PAY, effects=effects, input=schema)})


def call(
    source: HandClient, arguments: dict[str, Any], answers: Any = None, **options: Any
) -> tuple[Any, list[Any]]:
    """The result of a call by the official client, and what its user was asked."""
    seen: list[Any] = []

    async def on_elicit(_: Any, params: Any) -> ElicitResult:
        seen.append(params)
        return answers(params) if callable(answers) else answers

    async def work() -> Any:
        server = await mcp_server(source, {"pay": PAY}, **options)
        async with Client(server, elicitation_callback=on_elicit if answers is not None else None) as client:
            return await client.call_tool("pay", arguments)

    return run(work()), seen


def test_a_person_is_asked_for_what_a_call_leaves_out() -> None:
    source = bank()
    result, (form,) = call(source, {"cents": 5}, ElicitResult(action="accept", content={"to": "Ada"}))
    assert not result.is_error
    assert form.requested_schema["properties"] == {"to": {"type": "string", "title": "Payee"}}
    assert form.message == f"{PAY} asks: Payee"
    ((_, arguments, key),) = source.asked
    assert arguments == {"cents": 5, "to": "Ada"}
    assert key


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_who_does_not_answer_a_form_has_not_called(action: Any) -> None:
    source = bank()
    result, _ = call(source, {"cents": 5}, ElicitResult(action=action))
    assert result.is_error
    assert source.asked == []


def test_without_elicitation_the_endpoint_says_what_is_missing() -> None:
    source = bank()
    call(source, {"cents": 5})
    assert source.asked[0][1] == {"cents": 5}


@pytest.mark.parametrize("effects", [Effects.FINANCIAL, Effects.PHYSICAL])
def test_a_payment_is_never_asked_for_by_a_form(effects: Effects) -> None:
    """Attack 106."""
    source = bank(effects)
    source.error = DeniedError("approve this", code="aiip.approval-required")
    yes = ElicitResult(action="accept", content={"to": "Mallory", "approved": True})
    result, asked = call(source, {"cents": 5}, yes, approval_page=lambda _: None)
    assert asked == []
    assert result.is_error
    assert source.asked[0][1] == {"cents": 5}


ODD: list[dict[str, Any]] = [
    {"type": "array", "items": {"type": "string"}},
    {"type": "string", "writeOnly": True},
    {"type": "string", "format": "password"},
    {"type": "object", "properties": {"inner": {"type": "object"}}},
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {f"m{n}": {"type": "string"} for n in range(17)}},
    {"$ref": "https://elsewhere.example/schema"},
]


@pytest.mark.parametrize("member", ODD)
def test_secrets_and_what_fits_no_form_are_not_asked_for(member: Any) -> None:
    schema = {"type": "object", "properties": {"x": {**member, **ASKED}}, "required": ["x"]}
    assert find_questions(Description(uri=PAY, input=schema), {}) == {}


def test_nobody_is_asked_for_more_than_a_screen_of_questions() -> None:
    names = [f"m{n}" for n in range(17)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", **ASKED} for name in names},
        "required": names,
    }
    assert find_questions(Description(uri=PAY, input=schema), {}) == {}


# permissions


def envelope(elicitation: Any = None, tasks: bool = False) -> dict[str, Any]:
    capabilities: dict[str, Any] = {} if elicitation is None else {"elicitation": elicitation}
    if tasks:
        capabilities["extensions"] = {"io.modelcontextprotocol/tasks": {}}
    return {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }


class Raw:
    """Requests of MCP 2026-07-28 as they are written."""

    def __init__(self, url: str, app: Any = None, *, elicitation: Any = None, tasks: bool = False) -> None:
        self.url, self.meta = url, envelope(elicitation, tasks)
        self.app = app
        self.notes: list[Any] = []

    async def ask(self, method: str, named: str, **params: Any) -> Any:
        wire = None if self.app is None else httpx.ASGITransport(app=self.app)
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
            "Mcp-Name": named,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": self.meta}}
        async with httpx.AsyncClient(transport=wire, timeout=PATIENCE) as http:
            answer = await http.post(self.url, json=body, headers=headers)
        text = answer.text
        self.notes = [json.loads(line[5:]) for line in text.splitlines() if '"notifications/' in line]
        if "text/event-stream" in answer.headers["content-type"]:
            text = next(
                line[5:] for line in text.splitlines() if line.startswith("data:") and '"id":1' in line
            )
        return json.loads(text)


async def served(source: HandClient, **options: Any) -> Any:
    server = await mcp_server(source, {"pay": PAY}, **options)
    return server.streamable_http_app()


@pytest.mark.parametrize(
    "code", ["aiip.approval-required", "aiip.authentication-required", "aiip.step-up-required"]
)
def test_a_permission_is_asked_for_by_a_link_and_the_same_call_follows(code: str) -> None:
    source = bank(Effects.FINANCIAL)
    source.error = DeniedError("a person must approve this", code=code)

    async def work() -> tuple[Any, Any, Any]:
        app = await served(source, approval_page=lambda error: f"{LINK}?{error.code}")
        async with app.router.lifespan_context(app):
            raw = Raw("http://127.0.0.1:9/mcp", app, elicitation={"url": {}})
            call = {"name": "pay", "arguments": {"to": "Ada", "cents": 5}}
            first = (await raw.ask("tools/call", "pay", **call))["result"]
            # the client says "accept" when its user has opened the page: that is no approval
            opened = {"permission": {"action": "accept"}}
            again = {**call, "inputResponses": opened, "requestState": first["requestState"]}
            second = (await raw.ask("tools/call", "pay", **again))["result"]
            source.error = None  # approved, elsewhere
            again["requestState"] = second["requestState"]
            return first, second, (await raw.ask("tools/call", "pay", **again))["result"]

    first, second, third = run(work())
    for result in (first, second):
        assert result["resultType"] == "input_required"
        request = result["inputRequests"]["permission"]
        assert request["method"] == "elicitation/create"
        assert request["params"] == {
            "mode": "url",
            "message": "a person must approve this",
            "url": f"{LINK}?{code}",
        }
    assert third["resultType"] == "complete"
    assert not third.get("isError")
    # one and the same call
    assert source.asked[0] == source.asked[1] == source.asked[2]
    assert source.asked[0][2]


def test_who_does_not_open_the_page_gets_a_tool_error() -> None:
    source = bank(Effects.FINANCIAL)
    source.error = DeniedError("approve this", code="aiip.approval-required")
    result, asked = call(
        source, {"to": "Ada", "cents": 5}, ElicitResult(action="decline"), approval_page=lambda _: LINK
    )
    assert [params.mode for params in asked] == ["url"]
    assert result.is_error
    assert result.meta["aiip-code"] == "aiip.approval-required"


def test_a_client_that_cannot_open_links_is_told_the_link() -> None:
    source = bank(Effects.FINANCIAL)
    source.error = DeniedError("approve this", code="aiip.approval-required")
    result, _ = call(source, {"to": "Ada", "cents": 5}, approval_page=lambda _: LINK)
    assert result.is_error
    assert LINK in result.content[0].text
    assert result.meta["aiip-approval-page"] == LINK


def person(name: str) -> Any:
    token = AccessToken(token="t", client_id="client", scopes=[], subject=name)
    return auth_context_var.set(AuthenticatedUser(token))


@pytest.fixture(scope="module")
def tools() -> Iterator[str]:
    with serve_mcp_tools() as url:
        yield url


STATE_TOOL = "test_input_required_result_multi_round"


def test_a_state_that_was_changed_or_is_of_another_call_is_refused(tools: str) -> None:
    """Attack 105, against a running server."""

    async def work() -> list[Any]:
        raw = Raw(tools, elicitation={})
        first = (await raw.ask("tools/call", STATE_TOOL, name=STATE_TOOL, arguments={}))["result"]
        state = first["requestState"]
        middle = len(state) // 2
        flipped = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
        tries = [(STATE_TOOL, {}, text) for text in (flipped, state + "x", state[:-4], "", "v1.")]
        tries += [(STATE_TOOL, {"step2": {"color": "red"}}, state), ("greet", {"name": "Ada"}, state)]
        return [
            await raw.ask("tools/call", name, name=name, arguments=arguments, requestState=text)
            for name, arguments, text in tries
        ]

    for answer in run(work()):
        assert answer["error"]["code"] == -32602


def test_a_state_is_for_the_person_to_whom_it_was_given() -> None:
    """Attack 105: of another person."""
    source = bank()

    async def work() -> tuple[Any, Any]:
        app = await served(source)
        async with app.router.lifespan_context(app):
            raw = Raw("http://127.0.0.1:9/mcp", app, elicitation={})
            asked = {"name": "pay", "arguments": {"cents": 5}}
            answers = {"to": {"action": "accept", "content": {"to": "Ada"}}}
            person("ada")
            first = (await raw.ask("tools/call", "pay", **asked))["result"]
            asked |= {"requestState": first["requestState"], "inputResponses": answers}
            person("bob")
            other = await raw.ask("tools/call", "pay", **asked)
            person("ada")
            return other, await raw.ask("tools/call", "pay", **asked)

    other, own = run(work())
    assert other["error"]["code"] == -32602
    assert not own["result"].get("isError")


# tasks of a running endpoint


async def until(raw: Raw, task: str, *states: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await raw.ask("tasks/get", task, taskId=task))["result"]
            if found["status"] in states:
                return found
            await asyncio.sleep(0.05)


def test_a_task_of_an_endpoint_is_a_task_with_a_receipt(tools: str) -> None:
    async def work() -> tuple[Any, Any]:
        raw = Raw(tools, tasks=True)
        begun = await raw.ask("tools/call", "slow_compute", name="slow_compute", arguments={"seconds": 0.1})
        return begun["result"], await until(raw, begun["result"]["taskId"], "completed")

    begun, ended = run(work())
    assert (begun["resultType"], begun["status"]) == ("task", "working")
    assert ended["result"]["structuredContent"] == {"text": "computed "}
    assert ended["result"]["_meta"]["aiip-receipt"].count(".") == 2


def test_a_client_that_knows_no_tasks_waits(tools: str) -> None:
    async def work() -> Any:
        return await Raw(tools).ask(
            "tools/call", "slow_compute", name="slow_compute", arguments={"seconds": 0.1}
        )

    assert run(work())["result"]["structuredContent"] == {"text": "computed "}


def test_a_tool_that_runs_only_as_a_task_refuses_a_client_without_tasks(tools: str) -> None:
    async def work() -> Any:
        return await Raw(tools).ask("tools/call", "failing_job", name="failing_job", arguments={})

    error = run(work())["error"]
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@pytest.mark.parametrize("name", ["pay", "unknown"])
def test_only_resources_with_tasks_can_be_for_tasks_only(name: str) -> None:
    with pytest.raises(UsageError):
        run(mcp_server(bank(), {"pay": PAY}, task_only=[name]))


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_who_declines_what_a_task_asks_for_cancels_it(tools: str, action: str) -> None:
    async def work() -> Any:
        raw = Raw(tools, tasks=True)
        named = {"name": "confirm_delete", "arguments": {"filename": "x"}}
        task = (await raw.ask("tools/call", "confirm_delete", **named))["result"]["taskId"]
        asked = await until(raw, task, "input_required")
        assert asked["inputRequests"]["input"]["params"]["message"].endswith("asks: Delete x?")
        await raw.ask("tasks/update", task, taskId=task, inputResponses={"input": {"action": action}})
        return await until(raw, task, "cancelled", "completed", "failed")

    assert run(work())["status"] == "cancelled"


def test_an_id_of_a_task_is_sealed_and_for_one_person(tools: str) -> None:
    async def work() -> list[Any]:
        raw = Raw(tools, tasks=True)
        begun = await raw.ask("tools/call", "slow_compute", name="slow_compute", arguments={"seconds": 0})
        task = begun["result"]["taskId"]
        await until(raw, task, "completed")
        return [
            await raw.ask("tasks/get", odd, taskId=odd) for odd in (task[:-2], task + "A", "x", "v1.AAAA")
        ]

    assert {answer["error"]["code"] for answer in run(work())} == {-32602}


def test_a_task_of_another_person_is_the_same_error_as_none() -> None:
    reference = SimpleNamespace(as_dict=lambda: {"uri": PAY, "id": "i" * 32, "request": "r" * 43})
    status = SimpleNamespace(
        state="working", created=0.0, updated=0.0, expires=None, poll_after=1.0, target=PAY, error=None
    )

    class Long(HandClient):
        async def start(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(reference=reference, first=status)

        async def task(self, _: Any) -> Any:
            async def now() -> Any:
                return status

            return SimpleNamespace(status=now, id="i")

    source = Long({PAY: Description(uri=PAY, asynchronous=True)})

    async def work() -> list[Any]:
        app = await served(source)
        async with app.router.lifespan_context(app):
            raw = Raw("http://127.0.0.1:9/mcp", app, tasks=True)
            person("ada")
            task = (await raw.ask("tools/call", "pay", name="pay", arguments={}))["result"]["taskId"]
            own = await raw.ask("tasks/get", task, taskId=task)
            person("bob")
            return [
                own,
                await raw.ask("tasks/get", task, taskId=task),
                await raw.ask("tasks/get", "x", taskId="x"),
            ]

    own, others, none = run(work())
    assert own["result"]["status"] == "working"
    assert others == none


class Reporting(HandClient):
    """Streams these events."""

    events: tuple[tuple[str, str], ...] = ()

    async def stream(
        self, uri: Any, arguments: Any = None, *, idempotency_key: Any = None, keep: bool = False
    ) -> Any:
        result = await self.invoke(uri, arguments, idempotency_key=idempotency_key)
        events = self.events

        class Stream:
            def __init__(self) -> None:
                self.result = result

            async def __aenter__(self) -> Any:
                return self

            async def __aexit__(self, *_: object) -> None: ...

            async def __aiter__(self) -> AsyncIterator[Any]:
                for name, data in events:
                    yield SimpleNamespace(event=name, data=data)

        return Stream()


def test_progress_is_passed_on_and_nonsense_is_not() -> None:
    source = Reporting({PAY: Description(uri=PAY)}, content_type="text/event-stream")
    source.events = (
        ("progress", '{"done":1,"total":2,"note":"half\\u001b[31m"}'),
        ("progress", "not JSON"),
        ("progress", '{"done":"x"}'),
        ("progress", '{"done":1e999}'),
        ("progress", '{"done":2,"total":"x"}'),
        ("result", '{"n":5}'),
    )

    async def work() -> tuple[Any, list[Any]]:
        app = await served(source)
        async with app.router.lifespan_context(app):
            raw = Raw("http://127.0.0.1:9/mcp", app)
            raw.meta["progressToken"] = "token"
            answer = await raw.ask("tools/call", "pay", name="pay", arguments={})
            return answer["result"], [note["params"] for note in raw.notes]

    result, notes = run(work())
    assert result["structuredContent"] == {"n": 5}
    assert notes == [
        {"progressToken": "token", "progress": 1, "total": 2, "message": "half [31m"},
        {"progressToken": "token", "progress": 2},
    ]


@pytest.mark.parametrize("content", [[{"type": "nonsense"}], [5], "text", [{"type": "text"}]])
def test_content_that_is_not_mcps_stays_text(content: Any) -> None:
    body = json.dumps({"content": content}).encode()
    source = HandClient({PAY: Description(uri=PAY)}, body=body)
    result, _ = call(source, {})
    assert result.content[0].text == body.decode()


def test_an_error_of_the_endpoint_in_a_call_as_a_task_is_a_tool_error() -> None:
    class Refusing(HandClient):
        async def start(self, *_: Any, **__: Any) -> Any:
            raise InvocationError("no", code="aiip.invalid-input")

        async def task(self, _: Any) -> Any: ...

    source = Refusing({PAY: Description(uri=PAY, asynchronous=True)})

    async def work() -> Any:
        app = await served(source)
        async with app.router.lifespan_context(app):
            return await Raw("http://127.0.0.1:9/mcp", app, tasks=True).ask(
                "tools/call", "pay", name="pay", arguments={}
            )

    assert run(work())["result"]["_meta"]["aiip-code"] == "aiip.invalid-input"


def test_a_payment_at_a_running_endpoint_is_never_asked_for_by_a_form(tools: str) -> None:
    """Attack 106, against a running server: the member is marked, and still nobody is asked for it."""

    async def work() -> Any:
        return await Raw(tools, elicitation={}).ask("tools/call", "transfer", name="transfer", arguments={})

    result = run(work())["result"]
    assert result["resultType"] == "complete"
    assert result["isError"]
