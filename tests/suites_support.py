"""Onym resources behind the MCP and A2A bridges, as the foreign test suites want to find them.

python tests/suites_support.py mcp     # serves http://127.0.0.1:PORT/mcp until the input ends
python tests/suites_support.py a2a     # serves http://127.0.0.1:PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar

import msgspec
from starlette.applications import Starlette
from starlette.authentication import SimpleUser

from ai_support import (
    LOOPBACK,
    PATIENCE,
    ai_policy,
    authority_ca,
    key_store,
    names_resolver,
    serve_asgi,
    serve_authority,
    trust,
)
from onym.ai import AsyncAIClient, Endpoint
from onym.ai.endpoint.context import Call, Task
from onym.ai.endpoint.kinds import AgentHandler, Outgoing, Progress, Update, agent, make_answer, task, tool
from onym.ai.settings import ResolverSettings
from onym.bridges.a2a import a2a_app
from onym.bridges.mcp import mcp_server
from onym.errors import AIIPError
from onym.net.config import NetConfig
from onym.net.transport import AsyncTransport

__all__ = ["SuiteAgent", "read_baseline", "serve_a2a_agent", "serve_a2a_tool", "serve_mcp_tools"]

NAME = "suite.test"
#: the tools that the MCP suite calls
TOOLS = (
    "test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource",
    "test_multiple_content_types", "test_error_handling", "greet", "test_logging_tool",
    "test_input_required_result_elicitation", "test_streaming_elicitation",
    "test_input_required_result_request_state", "test_input_required_result_tampered_state",
    "test_input_required_result_multi_round", "test_tool_with_progress", "json_schema_2020_12_tool",
    "test_custom_headers", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete",
    "multi_input", "test_tool_with_task", "transfer",
)  # fmt: skip
#: a picture and a sound of the smallest size
_PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_WAV = b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=")
#: the schema that the suite looks for in the tool json_schema_2020_12_tool
_SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_HEADERS_SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
    },
    "required": ["region"],
}


def add_tools(app: Endpoint) -> None:
    """The tools of `server` scenarios whose result is content."""

    @app.resource("/test_simple_text", media_type="text/plain")
    def simple_text() -> str:
        return "This is a simple text response for testing."

    @app.resource("/test_image_content", media_type="image/png")
    def image() -> bytes:
        return _PNG

    @app.resource("/test_audio_content", media_type="audio/wav")
    def audio() -> bytes:
        return _WAV

    @app.resource("/test_embedded_resource")
    def embedded() -> dict[str, Any]:
        text = "This is an embedded resource content."
        resource = {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": text}
        return {"content": [{"type": "resource", "resource": resource}]}

    @app.resource("/test_multiple_content_types")
    def several() -> dict[str, Any]:
        resource = {
            "uri": "test://mixed-content-resource",
            "mimeType": "application/json",
            "text": '{"test":"data","value":123}',
        }
        return {
            "content": [
                {"type": "text", "text": "Multiple content types test:"},
                {"type": "image", "data": b64encode(_PNG).decode(), "mimeType": "image/png"},
                {"type": "resource", "resource": resource},
            ]
        }

    @app.resource("/test_error_handling")
    def fail() -> str:
        raise AIIPError("This tool intentionally returns an error for testing", code="aiip.upstream-failed")

    @app.resource("/greet", media_type="text/plain")
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    @app.resource("/test_logging_tool", media_type="text/plain")
    def log() -> str:
        return "nothing is logged"


class Name(msgspec.Struct):
    """What is your name?"""

    name: str


class Consent(msgspec.Struct):
    """Please confirm"""

    ok: bool


class Color(msgspec.Struct):
    """What is your favorite color?"""

    color: str


#: a person is asked for members of these types, where a call leaves them out
AskedName = Annotated[Name, msgspec.Meta(extra_json_schema={"x-aiip-ask": True})]
AskedConsent = Annotated[Consent, msgspec.Meta(extra_json_schema={"x-aiip-ask": True})]
AskedColor = Annotated[Color, msgspec.Meta(extra_json_schema={"x-aiip-ask": True})]


def add_questions(app: Endpoint) -> None:
    """The tools of `input-required-result-*` scenarios: a person gives what the call leaves out."""

    def greet(user_name: AskedName) -> dict[str, str]:
        return {"text": f"Hello, {user_name.name}!"}

    def confirm(confirm: AskedConsent) -> dict[str, str]:
        return {"text": f"state-ok: {confirm.ok}"}

    def paint(step1: AskedName, step2: AskedColor) -> dict[str, str]:
        return {"text": f"{step1.name} likes {step2.color}"}

    app.resource("/test_input_required_result_elicitation")(greet)
    app.resource("/test_streaming_elicitation")(greet)
    app.resource("/test_input_required_result_request_state")(confirm)
    app.resource("/test_input_required_result_tampered_state")(confirm)
    app.resource("/test_input_required_result_multi_round")(paint)
    # not of the suite: what must never be asked for by a form
    app.resource("/transfer", effects="financial")(greet)


class Confirm(msgspec.Struct):
    """One plain answer."""

    confirm: bool


class Both(msgspec.Struct):
    """Two answers, which may come one after the other."""

    first: Confirm
    second: Confirm


def add_tasks(app: Endpoint) -> None:
    """The tools of `tasks-*` scenarios: resources that may be called as long tasks."""

    @app.resource("/slow_compute", task=True)
    async def slow_compute(seconds: float, task: Task, label: str = "") -> dict[str, str]:
        for _ in range(round(seconds * 20)):
            await asyncio.sleep(0.05)
            task.raise_if_cancelled()
            task.progress(1, 2, "halfway")
        return {"text": f"computed {label}"}

    @app.resource("/failing_job", task=True)
    async def failing_job(task: Task) -> dict[str, str]:
        await asyncio.sleep(0.2)
        raise AIIPError("the job does not work", code="aiip.upstream-failed")

    @app.resource("/protocol_error_job", task=True)
    async def protocol_error_job(task: Task) -> dict[str, str]:
        raise RuntimeError("on purpose")

    @app.resource("/confirm_delete", task=True)
    async def confirm_delete(filename: str, task: Task) -> dict[str, bool]:
        return {"deleted": (await task.ask(Confirm, f"Delete {filename}?")).confirm}

    @app.resource("/multi_input", task=True)
    async def multi_input(task: Task) -> dict[str, bool]:
        both = await task.ask(Both, "Twice, please")
        return {"both": both.first.confirm and both.second.confirm}

    @app.resource("/test_tool_with_task", task=True)
    async def tool_with_task(user_name: AskedName, task: Task) -> dict[str, str]:
        await asyncio.sleep(0.1)
        return {"text": f"Hello, {user_name.name}!"}


async def _count(_: Any) -> AsyncIterator[Any]:
    for done in (0, 50, 100):
        yield Progress(done=done, total=100)
        await asyncio.sleep(0.05)
    yield {"text": "counted"}


@dataclass
class Nothing:
    """No input."""


async def _echo(arguments: dict[str, Any], _: Any) -> dict[str, Any]:
    return {"got": arguments}


def make_tools(authority: str, folder: Path) -> Endpoint:
    """The endpoint whose resources are the tools of the MCP suite."""
    app = Endpoint(authority, keys=key_store(folder), store=folder / "keys.sqlite")
    add_tools(app)
    add_questions(app)
    add_tasks(app)
    app.add("/test_tool_with_progress", task(_count, input=Nothing))
    app.add("/json_schema_2020_12_tool", tool(_echo, input=_SCHEMA_2020_12))
    app.add("/test_custom_headers", tool(_echo, input=_HEADERS_SCHEMA))
    return app


class Scripted:
    """An agent that does what the id of a message says: the suite of A2A writes its wishes there."""

    async def send(self, message: Outgoing) -> AsyncIterator[Update]:
        wish = message.id
        if wish.startswith(("tck-stream-artifact-chunked",)):
            yield Update(text="chunk-1 ")
            yield Update(text="chunk-2", joined=True)
        elif wish.startswith("test-resubscribe-message-id"):
            yield Update(state="working", note="at it")
            await asyncio.sleep(4)
            yield Update(text="done")
        elif wish.startswith("tck-input-required"):
            yield Update(text="which one?", state="input-required")
        elif wish.startswith("tck-reject-task"):
            yield Update(text="rejected", state="rejected")
        elif wish.startswith("tck-artifact-text"):
            yield Update(text="Generated text content")
        elif wish.startswith(("tck-artifact-file", "tck-stream-artifact-file")):
            at = {"url": "https://example.com/output.txt"} if "file-url" in wish else {"raw": "dGNr"}
            yield Update(data=({**at, "mediaType": "text/plain", "filename": "output.txt"},))
        elif wish.startswith("tck-artifact-data"):
            yield Update(data=({"key": "value", "count": 42},))
        elif wish.startswith("tck-stream-001"):
            yield Update(text="Stream hello from TCK", state="completed")
        else:
            yield Update(text="Hello from TCK", state="completed")


@dataclass
class SuiteAgent:
    """The agent, whose answer to one wish has no state, as that of a function has none."""

    inner: AgentHandler
    #: not of the suite: messages that needed an approval, which nobody gives, and ran all the same
    ran: ClassVar[list[str]] = []

    def describe(self) -> Any:
        return self.inner.describe()

    async def invoke(self, call: Call) -> Any:
        if (call.idempotency_key or "").startswith("tck-message-response"):
            return make_answer({"text": "Direct message response"})
        if (call.idempotency_key or "").startswith("guarded"):
            raise AIIPError("a person must approve this", code="aiip.approval-required")
        self.ran.append(call.body.decode())
        return await self.inner.invoke(call)


class SignedIn:
    """The app behind a sign-in that everybody passes as the same person: tasks are listed for people only.

    The suite asks for the card without the version that clients of 1.0 must send.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [*scope.get("headers", ())]
        if scope.get("path", "").endswith("agent-card.json"):
            headers.append((b"a2a-version", b"1.0"))
        await self.app({**scope, "headers": headers, "user": SimpleUser("tester")}, receive, send)


def make_agent(authority: str, folder: Path) -> Endpoint:
    """The endpoint whose resource is the agent of the A2A suite."""
    app = Endpoint(authority, keys=key_store(folder), store=folder / "keys.sqlite")
    app.add("/agent", SuiteAgent(agent(Scripted(), title="Agent of the suite")))
    return app


#: what makes the bridge's app of a client, the endpoint's authority and the app's own URL
Build = Callable[[AsyncAIClient, str, str], Coroutine[Any, Any, Any]]


@contextlib.contextmanager
def _serve_bridge(make: Callable[[str, Path], Endpoint], build: Build) -> Iterator[str]:
    """Serve an endpoint with TLS, and over plain HTTP the app that `build` makes of it; the app's URL."""
    ca = authority_ca()
    with TemporaryDirectory() as text, contextlib.ExitStack() as stack:
        folder = Path(text)
        _, authority = stack.enter_context(serve_authority(lambda name: make(name, folder), NAME, ca=ca))
        network = NetConfig(
            policy=ai_policy([int(authority.rpartition(":")[2])]),
            resolver=names_resolver({NAME: LOOPBACK}),
            tls=trust(ca, folder),
        )
        listener = stack.enter_context(socket.create_server((LOOPBACK, 0)))
        url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        stack.enter_context(serve_asgi(_Bridge(network, authority, url, build), sockets=[listener]))
        yield url


class _Bridge:
    """An app that is built in the loop of its own server, when that starts."""

    def __init__(self, network: NetConfig, authority: str, url: str, build: Build) -> None:
        self._network, self._authority, self._url, self._build = network, authority, url, build
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            wire = await stack.enter_async_context(AsyncTransport(self._network))
            settings = ResolverSettings(timeout=PATIENCE)
            client = AsyncAIClient(settings, transport=wire, allow_effects=["read", "write"])
            await stack.enter_async_context(client)
            self._app = await self._build(client, self._authority, self._url)
            if isinstance(self._app, Starlette):
                await stack.enter_async_context(self._app.router.lifespan_context(self._app))
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def _build_mcp(client: AsyncAIClient, authority: str, _: str) -> Any:
    tools = {name: f"ai://{authority}/{name}" for name in TOOLS}
    server = await mcp_server(client, tools, task_only=["failing_job"])
    return server.streamable_http_app()


async def _build_a2a(client: AsyncAIClient, authority: str, url: str) -> Any:
    return SignedIn(await a2a_app(client, f"ai://{authority}/agent", url=url))


def read_baseline(name: str) -> dict[str, str]:
    """What a suite finds and we keep, by the names in a file beside the tests, each with its reason."""
    lines = (Path(__file__).parent / "bridges" / "suites" / name).read_text(encoding="utf-8").splitlines()
    rows = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


@contextlib.contextmanager
def serve_mcp_tools() -> Iterator[str]:
    """The URL of an MCP server with the tools of the suite; each of them is an Onym resource."""
    with _serve_bridge(make_tools, _build_mcp) as url:
        yield f"{url}/mcp"


@contextlib.contextmanager
def serve_a2a_tool(name: str) -> Iterator[str]:
    """The URL of an A2A agent that is one of the tools."""

    async def build(client: AsyncAIClient, authority: str, url: str) -> Any:
        return SignedIn(await a2a_app(client, f"ai://{authority}/{name}", url=url))

    with _serve_bridge(make_tools, build) as url:
        yield url


@contextlib.contextmanager
def serve_a2a_agent() -> Iterator[str]:
    """The URL of an A2A agent that does what the suite wants; it is an Onym resource."""
    with _serve_bridge(make_agent, _build_a2a) as url:
        yield url


if __name__ == "__main__":
    with {"mcp": serve_mcp_tools, "a2a": serve_a2a_agent}[sys.argv[1]]() as served:
        print(served, flush=True)
        sys.stdin.read()
