"""Every kind behind a real endpoint, called by the real client over TLS: results and streams that verify."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from ai_factory import NAME, Factory
from ai_support import authority_ca, key_store, serve_authority
from kinds_support import run
from model_support import MODEL, pulled_weights
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.kinds import Outgoing, Progress, Update, agent, model, task
from onym.bridges.a2a import a2a_app
from onym.bridges.mcp import mcp_server, mcp_tool
from onym.errors import InvocationError
from onym.llm import embedded
from onym.net.policy import Policy
from onym.server.models import served_by
from onym.testing.fake_provider import FakeProvider


class Echo:
    """An agent that repeats."""

    async def send(self, message: Outgoing) -> AsyncIterator[Update]:
        yield Update(note="listening", state="working")
        yield Update(text=message.text, state="completed")


async def count(to: dict[str, int]) -> AsyncIterator[Any]:
    for number in range(to["to"]):
        yield Progress(done=number + 1, total=to["to"])
    yield {"counted": to["to"]}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key="sk-proj-0123456789abcdefghijABCDEFGHIJ") as provider:
        yield provider


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory, fake: FakeProvider) -> Iterator[Factory]:
    folder = tmp_path_factory.mktemp("kinds")
    keys, ca = key_store(folder), authority_ca()
    tools = MCPServer("tools", log_level="CRITICAL")

    @tools.tool()
    def add(a: int, b: int) -> dict[str, int]:
        """Adds."""
        return {"sum": a + b}

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=keys)
        served = [
            served_by(fake.uri("m"), policy=Policy.local()),
            served_by(f"llm://embedded/{MODEL}?temp=0"),
        ]
        app.add("/model/helper", model(served[0], name="helper"))
        app.add("/model/own", model(served[1], max_tokens=16))

        @app.resource("/tool/end")
        async def end() -> bool:
            # connections are closed in the loop that opened them
            for each in served:
                await each.close()
            return True

        app.add("/tool/add", run(mcp_tool(tools, "add")))
        app.add("/agent/echo", agent(Echo(), title="Echo"))
        app.add("/task/count", task(count, input=dict[str, int]))
        return app

    with serve_authority(make, NAME, ca=ca) as (app, authority):
        made = Factory(app, authority, keys, folder, ca)
        yield made
        with made.client() as client:
            assert client.invoke(made.uri("/tool/end")).json()


@pytest.mark.requirement("ai-intro-a")
def test_a_model_answers_with_a_signed_completion(factory: Factory, fake: FakeProvider) -> None:
    fake.answer("Hello")
    with factory.client() as client:
        result = client.invoke(factory.uri("/model/helper"), {"prompt": "Hi"})
    assert result.json()["text"] == "Hello"
    assert result.receipt.subject == factory.uri("/model/helper")


def test_a_models_stream_ends_with_its_receipt(factory: Factory, fake: FakeProvider) -> None:
    fake.answer("Hello you")
    with factory.client() as client, client.stream(factory.uri("/model/helper"), {"prompt": "Hi"}) as stream:
        names = [each.event for each in stream]
        assert names[-1] == "result"
        assert stream.result.receipt.stream is not None
        assert stream.result.receipt.stream.count == len(names)


def test_an_input_that_does_not_fit_is_a_signed_refusal(factory: Factory) -> None:
    with factory.client() as client, pytest.raises(InvocationError) as found:
        client.invoke(factory.uri("/model/helper"), {"prompt": ""})
    assert found.value.status == 422


def test_what_the_provider_says_of_a_failure_stays_with_the_operator(
    factory: Factory, fake: FakeProvider
) -> None:
    fake.fail(401, "wrong key sk-proj-0123456789abcdefghijABCDEFGHIJ")
    with factory.client() as client, pytest.raises(InvocationError) as found:
        client.invoke(factory.uri("/model/helper"), {"prompt": "Hi"})
    assert found.value.status == 500
    assert "sk-proj" not in json.dumps(found.value.problem)


@pytest.mark.requirement("ai-intro-a")
def test_a_tool_of_an_mcp_server_is_a_resource_and_can_be_one_of_another_server(factory: Factory) -> None:
    async def work() -> Any:
        async with factory.aclient() as client:
            server = await mcp_server(client, [factory.uri("/tool/add")])
            async with Client(server) as session:
                return await session.call_tool("tool_add", {"a": 1, "b": 2})

    found = run(work())
    assert found.structured_content == {"sum": 3}
    assert found.meta["aiip-receipt"].count(".") == 2


@pytest.mark.requirement("ai-intro-a")
def test_an_agent_says_its_words_and_is_an_a2a_agent_as_well(factory: Factory) -> None:
    import httpx
    from a2a.client import ClientConfig, ClientFactory
    from a2a.helpers import get_text_parts, new_text_message
    from a2a.types import Role, SendMessageRequest, TaskState

    async def work() -> Any:
        async with factory.aclient() as client:
            app = await a2a_app(client, factory.uri("/agent/echo"), url="http://echo.test/")
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
                peer = await ClientFactory(ClientConfig(httpx_client=http)).create_from_url(
                    "http://echo.test"
                )
                asked = SendMessageRequest(message=new_text_message("hi", role=Role.ROLE_USER))
                return [each async for each in peer.send_message(asked)]

    replies = run(work())
    said = [get_text_parts(reply.artifact_update.artifact.parts) for reply in replies]
    assert ["hi"] in said
    assert replies[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


@pytest.mark.requirement("ai-intro-a")
def test_a_task_shows_its_progress_and_ends_with_its_result(factory: Factory) -> None:
    with factory.client() as client:
        assert client.invoke(factory.uri("/task/count"), {"to": 2}).json() == {"counted": 2}
        with client.stream(factory.uri("/task/count"), {"to": 2}) as stream:
            assert [each.event for each in stream] == ["progress", "progress", "result"]
            assert stream.result.receipt.stream is not None


@pytest.mark.embedded
@pytest.mark.xdist_group("embedded")
def test_the_model_on_this_machine_answers_with_a_signed_completion(factory: Factory) -> None:
    pulled_weights()
    try:
        with factory.client() as client:
            asked = {"prompt": "What is the capital of France?"}
            result = client.invoke(factory.uri("/model/own"), asked)
            with client.stream(factory.uri("/model/own"), asked) as stream:
                *_, last = list(stream)
                assert json.loads(last.data)["text"] == result.json()["text"]
    finally:
        embedded.close_servers()
    assert "Paris" in result.json()["text"]
