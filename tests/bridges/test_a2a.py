"""A2A, both ways: an agent as an `ai://` resource, and an `ai://` agent as an A2A agent."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Coroutine
from hashlib import sha256
from typing import Any

import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError, A2AClientTimeoutError
from a2a.helpers import (
    get_data_parts,
    get_text_parts,
    new_data_part,
    new_message,
    new_raw_part,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)
from a2a.utils.errors import A2AError, ContentTypeNotSupportedError, InvalidParamsError, TaskNotFoundError
from a2a.utils.signing import create_agent_card_signer
from google.protobuf.json_format import MessageToJson
from jwt import PyJWK
from starlette.applications import Starlette

from ai_support import PATIENCE, serve_asgi
from bridge_support import HandClient, peer
from kinds_support import EVENTS, call, events, given, run
from onym.ai.exchange import _validate_invocation
from onym.ai.records import Description, Invocation
from onym.bridges._a2a_tasks import derive_idempotency_key
from onym.bridges.a2a import EXTENSION, _decode_parts, a2a_agent, a2a_app
from onym.errors import AIIPError, DeniedError, MissingExtraError, UsageError
from onym.sign.keys import SigningKey
from onym.uri.ai import AIURI
from support import as_subtests

PLANNER = "ai://factory.example/agent/planner"


def card(url: str, *, streaming: bool = True, **more: Any) -> AgentCard:
    return AgentCard(
        name="Planner",
        description="Plans",
        version="1",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="plan", name="Plan", description="Plans", tags=["x"])],
        **more,
    )


class Scripted(AgentExecutor):
    """An agent that does what its first word says."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    async def execute(self, context: Any, event_queue: Any) -> None:
        self.got.append(context.message)
        text = context.get_user_input()
        if text.startswith("say"):
            parts = [
                new_text_part(text),
                new_data_part({"n": 1.5}),
                new_raw_part(b"x", media_type="image/png"),
            ]
            await event_queue.enqueue_event(new_message(parts, context_id=context.context_id))
            return
        await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work(updater.new_agent_message([new_text_part("thinking")]))
        if text.startswith("ask"):
            await updater.requires_input(updater.new_agent_message([new_text_part("which one?")]))
            return
        await updater.add_artifact([new_text_part("pl")], artifact_id="a", name="plan", last_chunk=False)
        await updater.add_artifact([new_text_part("an")], artifact_id="a", append=True, last_chunk=True)
        await updater.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        raise NotImplementedError


class Served:
    """A real A2A agent, over HTTP."""

    def __init__(self) -> None:
        self.agent = Scripted()
        self.card: Callable[[str], AgentCard] = card
        self.app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.app(scope, receive, send)

    def build(self, url: str) -> None:
        shown = self.card(url)
        handler = DefaultRequestHandler(self.agent, InMemoryTaskStore(), shown)
        self.app = Starlette(routes=[*create_agent_card_routes(shown), *create_jsonrpc_routes(handler, "/")])


@pytest.fixture
def served() -> Any:
    found = Served()
    with serve_asgi(found) as port:
        found.url = f"http://127.0.0.1:{port}"
        found.build(f"{found.url}/")
        yield found


def by(served: Any, work: Callable[[Any], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def whole() -> Any:
        return await work(await a2a_agent(served.url, **options))

    return run(whole())


async def said(handler: Any, body: Any, **more: Any) -> Any:
    found = await handler.invoke(call(body, **more))
    return json.loads(found.body)


def test_an_agent_is_asked_by_post_and_its_parts_are_text_and_data(served: Any) -> None:
    found = by(served, lambda handler: said(handler, {"message": "say hi"}, idempotency_key="key-1"))
    assert (found["text"], found["state"]) == ("say hi", "completed")
    assert found["data"] == [{"n": 1.5}, {"raw": "eA==", "mediaType": "image/png"}]
    assert served.agent.got[0].message_id == "key-1"


def test_the_title_is_the_cards_unless_the_operator_has_one(served: Any) -> None:
    assert run(a2a_agent(served.url)).describe()["title"] == "Planner"
    assert run(a2a_agent(served.url, title="Mine")).describe()["title"] == "Mine"


@pytest.mark.parametrize("streaming", [True, False])
def test_a_task_is_followed_to_its_end_and_nothing_counts_twice(served: Any, streaming: bool) -> None:
    served.card = lambda url: card(url, streaming=streaming)
    served.build(f"{served.url}/")
    found = by(served, lambda handler: said(handler, {"message": "plan"}))
    assert found["state"] == "completed"
    # without a stream the SDK's store keeps one artifact of two parts
    assert found["text"].replace("\n", "") == "plan"
    assert found["task"]
    assert found["context"]


def test_progress_comes_as_events(served: Any) -> None:
    names = events(run(a2a_agent(served.url)), call({"message": "plan"}, accept=EVENTS))
    assert ("update", {"note": "thinking", "state": "working"}) in names
    assert names[-1][0] == "result"
    assert names[-1][1]["text"] == "plan"


def test_an_agent_that_asks_back_is_answered_in_the_same_task(served: Any) -> None:
    handler = run(a2a_agent(served.url))
    first = given(handler, call({"message": "ask"}))
    assert (first["state"], first["text"]) == ("input-required", "which one?")
    second = given(handler, call({"message": "plan", "context": first["context"], "task": first["task"]}))
    assert (second["state"], second["task"]) == ("completed", first["task"])


def test_data_is_a_part_of_its_own(served: Any) -> None:
    given(run(a2a_agent(served.url)), call({"message": "say", "data": {"a": [1, "b"]}}))
    assert get_data_parts(served.agent.got[0].parts) == [{"a": [1.0, "b"]}]  # as the SDK reads it


@pytest.mark.parametrize("number", [2**53, -(2**53), 10**400])
def test_an_integer_that_a2a_would_change_is_not_sent(served: Any, number: int) -> None:
    body = f'{{"message":"say","data":{{"a":[{number}]}}}}'.encode()
    with pytest.raises(AIIPError) as found:
        given(run(a2a_agent(served.url)), call(raw=body))
    assert found.value.hint is not None
    assert found.value.code == "aiip.invalid-input"
    assert not served.agent.got


def test_whole_numbers_of_an_agent_are_integers_up_to_where_doubles_tell_them_apart() -> None:
    largest = 2**53 - 1
    parts = [new_data_part([1, -largest, largest, 1.5, True, None, {"a": 2.0}]), new_data_part(2**53)]
    _, (first, beyond) = _decode_parts(parts)
    assert json.dumps(first) == json.dumps([1, -largest, largest, 1.5, True, None, {"a": 2}])
    assert isinstance(beyond, float)


def test_what_is_no_number_of_json_is_the_agents_fault() -> None:
    for odd in (math.nan, math.inf):
        with pytest.raises(AIIPError) as found:
            _decode_parts([new_data_part(odd)])
        assert found.value.code == "aiip.upstream-failed"


def test_an_unknown_task_is_told(served: Any) -> None:
    with pytest.raises(AIIPError) as found:
        given(run(a2a_agent(served.url)), call({"message": "say", "task": "nope"}))
    assert found.value.code == "aiip.task-not-found"


def test_a_card_that_leads_to_another_origin_is_refused(served: Any) -> None:
    for elsewhere in (
        "https://evil.example/",
        served.url.replace("127.0.0.1", "127.0.0.2"),
        "grpc.example:443",
    ):
        served.build(elsewhere)
        with pytest.raises(UsageError) as caught:
            run(a2a_agent(served.url))
        assert caught.value.code == "usage.bad-url"


def test_a_card_that_cannot_be_had_is_said_at_once(served: Any) -> None:
    for url in ("http://127.0.0.1:9", f"{served.url}/elsewhere"):
        with pytest.raises(AIIPError) as found:
            run(a2a_agent(url))
        assert found.value.code == "aiip.upstream-unreachable"


# signed cards


def signed(url: str, key: SigningKey, *, algorithm: str = "ES256", jku: str | None = None) -> AgentCard:
    jwk = json.loads(key.secret().reveal())
    header: Any = {"kid": key.kid, "alg": algorithm, "jku": jku, "typ": "JOSE"}
    return create_agent_card_signer(PyJWK({**jwk, "alg": algorithm}).key, header)(card(url))


def jwks(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [key.public() for key in keys]}).encode()


def test_a_card_counts_by_the_keys_that_the_operator_knows(served: Any) -> None:
    key, other = SigningKey.generate("ES256", kid="k"), SigningKey.generate("ES256", kid="o")
    served.card = lambda url: signed(url, key, jku="http://127.0.0.1:9/jwks")
    served.build(f"{served.url}/")
    assert run(a2a_agent(served.url, keys=jwks(other, key)))
    for wrong in (
        jwks(other),
        jwks(SigningKey.generate("ES256", kid="k")),
        b'{"keys":[{"kty":"oct","k":"AA","kid":"k"}]}',
    ):
        with pytest.raises(AIIPError, match="signature") as caught:
            run(a2a_agent(served.url, keys=wrong))
        assert caught.value.code == "aiip.internal"


def test_a_card_without_a_signature_is_refused_where_one_is_asked_for(served: Any) -> None:
    with pytest.raises(AIIPError, match="signature") as caught:
        run(a2a_agent(served.url, keys=jwks(SigningKey.generate("ES256", kid="k"))))
    assert caught.value.code == "aiip.internal"


def test_a_card_that_was_changed_is_refused(served: Any) -> None:
    key = SigningKey.generate("ES256", kid="k")

    def changed(url: str) -> AgentCard:
        found = signed(url, key)
        found.description = "Pays"
        return found

    served.card = changed
    served.build(f"{served.url}/")
    with pytest.raises(AIIPError, match="signature") as caught:
        run(a2a_agent(served.url, keys=jwks(key)))
    assert caught.value.code == "aiip.internal"


class Failing(Client):
    """An open client that fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def send_message(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise self.error
        yield

    async def close(self) -> None: ...


Failing.__abstractmethods__ = frozenset()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (A2AClientTimeoutError("late"), "aiip.upstream-timeout"),
        (A2AClientError("down"), "aiip.upstream-unreachable"),
        (InvalidParamsError(), "aiip.invalid-input"),
        (TaskNotFoundError(), "aiip.task-not-found"),
        (A2AError("sk-secret"), "aiip.upstream-unreachable"),
    ],
)
def test_the_sdks_errors_are_said_in_words_of_aiip(error: Exception, code: str) -> None:
    with pytest.raises(AIIPError) as found:
        given(run(a2a_agent(Failing(error))), call({"message": "x"}))
    assert found.value.code == code
    assert "sk-secret" not in str(found.value)


# an ai:// agent as an A2A agent

INPUT = {"type": "object", "properties": {"message": {}, "data": {}, "context": {}}}


def planner(**more: Any) -> HandClient:
    known = {"uri": PLANNER, "title": "Planner", "input": INPUT, **more.pop("description", {})}
    return HandClient({PLANNER: Description(**known)}, **more)


def state_of(task: Any) -> str:
    return str(TaskState.Name(task.status.state)).removeprefix("TASK_STATE_")


def ask(source: HandClient, *parts: Any, own: AgentCard | None = None, message_id: str = "m-1") -> Any:
    async def work(url: str, app: Any) -> Any:
        import httpx

        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport) as http:
            client = await ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create_from_url(
                url
            )
            message = new_message(list(parts) or [new_text_part("hi")], role=Role.ROLE_USER)
            message.message_id = message_id
            return [event async for event in client.send_message(SendMessageRequest(message=message))]

    async def whole() -> Any:
        app = await a2a_app(source, PLANNER, url="http://factory.example/", card=own)
        return await work("http://factory.example", app)

    return run(whole())


def test_a_message_is_an_invocation_and_the_reply_has_the_receipt() -> None:
    source = planner()
    (reply,) = ask(source)
    (asked,) = source.asked
    assert asked[0] == PLANNER
    assert asked[1]["message"] == "hi"
    assert asked[1]["context"] == reply.message.context_id
    assert asked[2] == "m-1"
    assert get_text_parts(reply.message.parts) == ["yes"]
    assert get_data_parts(reply.message.parts) == [{"text": "yes"}]
    assert list(reply.message.extensions) == [EXTENSION]
    assert dict(reply.message.metadata[EXTENSION]) == {
        "aiip-receipt": "receipt.of.result",
        "aiip-uri": PLANNER,
    }


@as_subtests(
    ("schema", "parts", "arguments"),
    [
        ({"properties": {"prompt": {}}}, [new_text_part("a"), new_text_part("b")], {"prompt": "a\nb"}),
        ({"properties": {"text": {}}}, [new_text_part("a")], {"text": "a"}),
        (None, [new_text_part("a")], {"message": "a"}),
        ({"properties": {"data": {}}}, [new_data_part({"x": "1"})], {"data": {"x": "1"}}),
        ({"properties": {"data": {}}}, [new_data_part("a"), new_data_part("b")], {"data": ["a", "b"]}),
        ({"properties": {"x": {}}}, [new_data_part({"x": "1"})], {"x": "1"}),
        ({"properties": {"x": {}}}, [new_data_part("1")], {}),
        ({"properties": {"x": {}}}, [new_data_part({"x": 1}), new_data_part({"y": 1.5})], {"x": 1, "y": 1.5}),
        (
            {"$ref": "#/$defs/ask", "$defs": {"ask": {"properties": {"prompt": {}}}}},
            [new_text_part("a")],
            {"prompt": "a"},
        ),
        ({"properties": 5}, [new_data_part(5)], {}),
    ],
)
def test_a_message_becomes_the_input_that_the_resource_describes(
    schema: Any, parts: Any, arguments: Any
) -> None:
    source = planner(description={"input": schema})
    ask(source, *parts)
    assert json.dumps(source.asked[0][1]) == json.dumps(arguments)


def test_a_file_is_refused_and_not_left_out() -> None:
    source = planner()
    with pytest.raises(ContentTypeNotSupportedError):
        ask(source, new_text_part("look at this"), new_raw_part(b"x"))
    assert not source.asked


@pytest.mark.parametrize("message_id", ["x" * 256, "nachricht-ü", "a\nb", "msg 1", 'a"b', "a\\b", "\x7f"])
def test_an_id_that_is_no_key_is_made_one(message_id: str) -> None:
    source = planner()
    ask(source, message_id=message_id)
    ((_, _, key),) = source.asked
    assert key == urlsafe_b64encode(sha256(message_id.encode()).digest()).decode().rstrip("=")
    _validate_invocation(Invocation(uri=AIURI.parse(PLANNER), idempotency_key=key))  # raises nothing


@pytest.mark.parametrize("message_id", ["x" * 255, "!", "~", "a#[]b"])
def test_an_id_that_is_a_key_is_one(message_id: str) -> None:
    source = planner()
    ask(source, message_id=message_id)
    assert source.asked[0][2] == message_id


def test_a_message_without_an_id_is_like_no_other() -> None:
    assert derive_idempotency_key("") is None


def test_a_message_sent_again_asks_the_same_again() -> None:
    source = planner()
    ask(source)
    ask(source)
    ask(source, message_id="m-2")
    first, again, other = source.asked
    assert first == again
    assert first[1]["context"] != other[1]["context"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_message_with_what_is_no_number_of_json_is_refused(number: str) -> None:
    import httpx

    source = planner()
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER",'
        f'"parts":[{{"data":{{"a":{number}}}}}]}}}}}}'
    )

    async def work() -> Any:
        app = await a2a_app(source, PLANNER, url="http://factory.example/")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
            fields = {"content-type": "application/json", "a2a-version": "1.0"}
            return (await http.post("http://factory.example/", content=body, headers=fields)).json()

    assert run(work())["error"]["code"] == -32602
    assert not source.asked


def test_json_that_a_data_part_would_change_goes_as_its_octets() -> None:
    deep = b'{"text":"hi","a":' + b"[" * 40 + b"]" * 40 + b"}"
    for body in (b'{"id":9007199254740993}', deep, b'{"a":', b'{"a":1,"a":2}', b""):
        (reply,) = ask(planner(body=body))
        (part,) = reply.message.parts
        assert (part.raw, part.media_type) == (body, "application/json")
    (reply,) = ask(planner(body=b'{"id":9007199254740991}'))
    assert get_data_parts(reply.message.parts) == [{"id": 2**53 - 1}]


@pytest.mark.parametrize(
    ("kind", "body", "texts", "data"),
    [
        ("text/plain", b"hi", ["hi"], []),
        ("application/json", b'{"a":"b"}', [], [{"a": "b"}]),
        ("application/json", b'["a"]', [], [["a"]]),
        ("application/json", b"null", [], [None]),
        ("text/plain; charset=iso-8859-1", b"h\xe9", [], []),
        ("image/png", b"x", [], []),
        (None, b"x", [], []),
    ],
)
def test_every_media_type_has_a_part(kind: str | None, body: bytes, texts: Any, data: Any) -> None:
    (reply,) = ask(planner(body=body, content_type=kind))
    assert get_text_parts(reply.message.parts) == texts
    assert get_data_parts(reply.message.parts) == data
    assert len(reply.message.parts) == 1


@pytest.mark.parametrize("code", ["aiip.invalid-input", "aiip.policy-denied"])
def test_what_the_resource_refuses_is_a_failed_task_with_its_code(code: str) -> None:
    source = planner()
    source.error = DeniedError("no\x1b[31m", code=code)
    (reply,) = ask(source)
    assert state_of(reply.task) == "FAILED"
    assert dict(reply.task.metadata[EXTENSION]) == {"aiip-code": code, "aiip-uri": PLANNER}
    assert get_text_parts(reply.task.status.message.parts) == ["no [31m"]


def test_a_card_of_your_own_is_served_as_it_is_with_its_signatures() -> None:
    key = SigningKey.generate("ES256", kid="k")
    own = signed("http://factory.example/", key)
    octets = own.SerializeToString()

    async def fetched() -> Any:
        import httpx

        app = await a2a_app(planner(), PLANNER, url="http://factory.example", card=own)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
            missing = await http.post("http://factory.example/elsewhere")
            return missing.status_code, (
                await http.get("http://factory.example/.well-known/agent-card.json")
            ).json()

    status, shown = run(fetched())
    assert status == 404
    assert own.SerializeToString() == octets
    assert shown == json.loads(MessageToJson(own))


def test_the_javascript_sdk_talks_to_an_ai_agent_and_sees_its_receipt() -> None:
    class Later:
        app: Any = None

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await self.app(scope, receive, send)

    later, source = Later(), planner()
    with serve_asgi(later) as port:
        url = f"http://127.0.0.1:{port}"
        later.app = run(a2a_app(source, PLANNER, url=url))
        found = peer("a2a_client.mjs", url=url, text="hello")
    assert found["name"] == "Planner"
    assert found["extensions"][0]["uri"] == EXTENSION
    assert "receipt.of.result" in json.dumps(found["reply"])
    assert source.asked[0][1]["message"] == "hello"


def test_without_the_sdk_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [module for module in sys.modules if module == "a2a" or module.startswith("a2a.")]:
        monkeypatch.setitem(sys.modules, name, None)
    for work in (a2a_agent("http://127.0.0.1:9"), a2a_app(planner(), PLANNER, url="http://x.example")):
        with pytest.raises(MissingExtraError) as caught:
            asyncio.run(work)  # type: ignore[arg-type]
        assert caught.value.command == "pip install 'onym[a2a]'"


def test_a_text_message_of_the_sdk_reads_as_it_was_written() -> None:
    assert _decode_parts(new_text_message("hi").parts) == ("hi", ())
    assert _decode_parts([Part()]) == ("", ())


def test_an_open_client_of_the_sdk_is_used_as_it_is(served: Any) -> None:
    import httpx

    async def work() -> Any:
        async with httpx.AsyncClient(timeout=PATIENCE) as http:
            client = await ClientFactory(ClientConfig(httpx_client=http)).create_from_url(served.url)
            return await said(await a2a_agent(client), {"message": "say hi"})

    assert run(work())["text"] == "say hi"


class Endless:
    """An agent whose card is good, and whose answers are larger than they look."""

    def __init__(self, *, coded: bool = False, card_too: bool = False) -> None:
        self.coded, self.card_too, self.port, self.sent = coded, card_too, 0, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        headers = [(b"content-type", b"application/json")]
        if scope["path"].endswith(".json") and not self.card_too:
            shown = MessageToJson(card(f"http://127.0.0.1:{self.port}/", streaming=False)).encode()
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": shown})
            return
        if self.coded:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        part = gzip.compress(b" " * 2**20) if self.coded else b" " * 2**20
        for _ in range(20):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            self.sent += 1
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("attack", [{}, {"coded": True}, {"card_too": True}])
def test_an_agent_whose_answer_has_no_end_is_not_listened_to(
    attack: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 600 KiB of gzip were 2.5 GB of memory
    monkeypatch.setattr("onym.bridges._sdk.MAX_RESPONSE", 2**20 + 10)
    endless = Endless(**attack)

    async def ask() -> None:
        handler = await a2a_agent(f"http://127.0.0.1:{endless.port}")
        await handler.invoke(call({"message": "hello"}))

    with serve_asgi(endless) as endless.port, pytest.raises(AIIPError) as caught:
        run(ask())
    assert caught.value.code == "aiip.upstream-unreachable"
