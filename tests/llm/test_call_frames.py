"""No frame of a traceback holds a key, whatever makes a call fail: blocking, async, streaming or a batch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frames_support import find_secret, interrupt_everywhere, list_frames
from onym.bridges._llm_client import EndpointClient, litellm_kwargs
from onym.errors import NetError, OnymError, OnymWarning, ProviderError, UsageError
from onym.llm import batch
from onym.llm.client import AsyncClient, Client, aconnect, connect
from onym.llm.config import Config
from onym.llm.planner import PlannerSettings, build_plan
from onym.llm.providers import ProviderTable
from onym.llm.types import TextDelta
from onym.net.config import NetConfig
from onym.net.limits import NetLimits
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

KEY = "sk-frames-0123456789abcdef"
EXTRA = {"tool_key": Secret(KEY)}
SMALL = NetConfig(policy=Policy.local(), limits=NetLimits(body=4096))


def check_frames(error: BaseException, *, attributes: bool = True) -> None:
    assert list_frames(error), "no frame was looked at"
    assert find_secret(error, KEY, attributes=attributes) == []


def _options(**how: Any) -> dict[str, Any]:
    return {"policy": Policy.local(), "config": Config.empty(), "environ": {"SOME_KEY": KEY}, **how}


#: ways to pass a key: options of `connect` by name, with what stands before the host
GIVEN: dict[str, tuple[str, dict[str, Any]]] = {
    "uri": (f"app:{KEY}@", {}),
    "argument": ("", {"key": KEY}),
    "variable": ("", {}),
}


class Caller:
    """Calls of one client, blocking or async, that go to a port of this computer."""

    def __init__(self, kind: str, given: str, port: int, query: str = "retries=0", **how: Any) -> None:
        user, options = GIVEN[given]
        query += "&auth=env:SOME_KEY" if given == "variable" else ""
        uri = f"llm://{user}127.0.0.1:{port}/m?{query}"
        self.client: Any = (connect if kind == "sync" else aconnect)(uri, **_options(**options, **how))

    def run(self, name: str, *arguments: Any, **overrides: Any) -> Any:
        if isinstance(self.client, Client):
            with self.client as client:
                return self._run_sync(client, name, *arguments, **overrides)
        return asyncio.run(self._run_async(name, *arguments, **overrides))

    def _run_sync(self, client: Client, name: str, *arguments: Any, **overrides: Any) -> Any:
        if name != "stream":
            return getattr(client, name)(*arguments, **overrides)
        with client.stream(*arguments, **overrides) as stream:
            return [event for event in stream if isinstance(event, TextDelta)]

    async def _run_async(self, name: str, *arguments: Any, **overrides: Any) -> Any:
        client: AsyncClient
        async with self.client as client:
            if name != "stream":
                return await getattr(client, name)(*arguments, **overrides)
            async with client.stream(*arguments, **overrides) as stream:
                return [event async for event in stream if isinstance(event, TextDelta)]


CALLS: dict[str, tuple[Any, ...]] = {"chat": ("Hi",), "stream": ("Hi",), "embed": ("Hi",), "models": ()}
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
#: what servers answer: the arguments of `FakeProvider.raw`
ANSWERS: dict[str, tuple[tuple[bytes, ...], dict[str, Any]]] = {
    **{
        f"status {status}": (
            (json.dumps({"error": {"message": f"no: {KEY}"}}).encode(),),
            {"status": status, "headers": {"x-echo": KEY}},
        )
        for status in (400, 401, 403, 404, 408, 409, 422, 429, 500, 503)
    },
    "an error that is not JSON": ((f"no: {KEY}".encode(),), {"status": 502}),
    "malformed JSON": ((f'{{"{KEY}'.encode(),), {}),
    "another JSON": ((f'"{KEY}"'.encode(),), {}),
    "the wrong types": ((json.dumps({"choices": KEY, "data": KEY}).encode(),), {}),
    "too much": ((b" " * 5000,), {}),
    "half": ((b'{"choices"',), {"whole": False}),
    "a stream that breaks": ((EVENT,), {"headers": {"content-type": "text/event-stream"}, "whole": False}),
    "a stream that ends early": ((EVENT,), {"headers": {"content-type": "text/event-stream"}}),
    "a stream with an error": (
        (EVENT, b'data: {"error": {"message": "no: ' + KEY.encode() + b'"}}\n\n'),
        {"headers": {"content-type": "text/event-stream"}},
    ),
    "a stream that is not JSON": (
        (EVENT, b"data: {" + KEY.encode() + b"\n\n"),
        {"headers": {"content-type": "text/event-stream"}},
    ),
    "a stream that is not UTF-8": (
        (EVENT, b"data: \xff" + KEY.encode() + b"\n\n"),
        {"headers": {"content-type": "text/event-stream"}},
    ),
}


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("given", GIVEN)
def test_no_frame_holds_the_key_when_a_server_answers_with_a_failure(
    kind: str, given: str, subtests: pytest.Subtests
) -> None:
    with FakeProvider() as fake:
        for name, arguments in CALLS.items():
            for answer, (pieces, options) in ANSWERS.items():
                with subtests.test(call=name, answer=answer):
                    fake.raw(*pieces, **options)
                    with pytest.raises((NetError, ProviderError)) as caught:
                        Caller(kind, given, fake.port, network=SMALL).run(name, *arguments)
                    # the response has the key, and is kept where nothing shows it
                    check_frames(caught.value, attributes=False)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", CALLS)
def test_no_frame_holds_the_key_when_there_is_no_answer(kind: str, given: str, name: str) -> None:
    with FakeProvider() as fake:
        fake.drop()
        with pytest.raises(NetError) as caught:
            Caller(kind, given, fake.port).run(name, *CALLS[name])
        check_frames(caught.value)
        fake.answer("a b", gate=True)
        if name in ("chat", "stream"):
            with pytest.raises(NetError) as caught:
                Caller(kind, given, fake.port, "timeout=300&retries=0").run(name, *CALLS[name])
            check_frames(caught.value)
    # the server is gone
    with pytest.raises(NetError) as caught:
        Caller(kind, given, fake.port).run(name, *CALLS[name])
    check_frames(caught.value)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_no_frame_holds_a_secret_of_the_body(kind: str) -> None:
    with FakeProvider() as fake:
        fake.fail(500)
        with pytest.raises(ProviderError) as caught:
            Caller(kind, "variable", fake.port).run("chat", "Hi", extra=EXTRA)
        check_frames(caught.value)
        assert fake.requests[0].json["tool_key"] == KEY
        with pytest.raises(UsageError) as bad:
            Caller(kind, "variable", fake.port).run("chat", "\ud800", extra=EXTRA)
        check_frames(bad.value)


@pytest.mark.parametrize("make", [connect, aconnect, EndpointClient, litellm_kwargs])
def test_no_frame_holds_the_key_when_a_client_cannot_be_made(
    make: Callable[..., object], subtests: pytest.Subtests
) -> None:
    config = Config(endpoints={"main": f"llm://app:{KEY}@h.example/m"})
    for uri, options in (
        (f"llm://app:{KEY}@h.example:99999/m", {}),
        (f"llm://app:{KEY}@h.example/m?temp=9", {}),
        (f"llm://app:{KEY}%00@h.example/m", {}),
        (f"llm://app:{KEY}@openai/m?api=none", {}),
        (KEY, {}),
        ("main", {"config": config, "key": f"{KEY}\n"}),
        ("mani", {"config": config}),
        ("llm://openai/m", {"key": f"{KEY} "}),
        ("llm://openai/m", {"key": f"{KEY}\u00e9"}),
        ("llm://openai/m?auth=env:BAD_KEY", {}),
        ("llm://openai/m?auth=env:NO_KEY", {}),
        ("llm://openai/m?auth=env:SOME_KEY", {"policy": Policy.untrusted()}),
    ):
        with subtests.test(uri=uri.replace(KEY, "KEY"), options=sorted(options)):
            environ = {"SOME_KEY": KEY, "BAD_KEY": f"{KEY}\u00e9"}
            with pytest.raises((OnymError, OnymWarning)) as caught:
                _use_key(make, uri, _options(**{"environ": environ, **options}))
            check_frames(caught.value)


def _use_key(make: Callable[..., Any], uri: str, options: dict[str, Any]) -> None:
    made = make(uri, **options)
    # what is wrong with a key may be said when it is needed
    client = made.get_sync_client() if isinstance(made, EndpointClient) else made
    _ = client.explain("Hi").request


@pytest.mark.parametrize("engine", ["local", "provider"])
def test_no_frame_of_a_batch_holds_the_key(tmp_path: Path, engine: Any) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"id": str(row), "messages": [{"role": "user", "content": "Hi"}]}) + "\n"
            for row in range(20)
        )
    )
    with FakeProvider(key="another") as fake:
        for number, given in enumerate(GIVEN):
            user, options = GIVEN[given]
            auth = "&auth=env:SOME_KEY" if given == "variable" else ""
            uri = f"llm://{user}127.0.0.1:{fake.port}/m?retries=0{auth}"
            with pytest.raises(OnymError) as caught:
                batch.run(uri, rows, tmp_path / f"out{number}.jsonl", engine=engine, **_options(**options))
            check_frames(caught.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["chat", "stream"])
def test_no_frame_of_a_call_holds_the_key_wherever_ctrl_c_interrupts(name: str) -> None:
    interrupted = 0
    with FakeProvider() as fake, Caller("sync", "uri", fake.port).client as client:

        def call() -> None:
            if name == "chat":
                client.chat("Hi", extra=EXTRA)
            else:
                with client.stream("Hi", extra=EXTRA) as stream:
                    stream.completion()

        for error in interrupt_everywhere(call):
            assert find_secret(error, KEY) == []
            interrupted += 1
    assert interrupted > 200


@pytest.mark.parametrize("given", GIVEN)
def test_no_frame_of_connect_holds_the_key_wherever_ctrl_c_interrupts(given: str) -> None:
    interrupted = 0
    for error in interrupt_everywhere(lambda: Caller("sync", given, 1)):
        # the first statement of `connect` puts the texts away, and may be interrupted too
        if list_frames(error)[1:2] not in (["wrap_secret"], ["hide_environment"], []):
            assert find_secret(error, KEY) == []
            interrupted += 1
    assert interrupted > 200


@pytest.fixture
def signed_plan() -> Any:
    pytest.importorskip("botocore.auth")
    uri = LLMURI.parse(f"llm://AKIAEXAMPLE0000000:{KEY}@bedrock-runtime.us-east-1.amazonaws.com/m")
    settings = PlannerSettings(policy=Policy.trusted(), providers=ProviderTable.builtin())
    return build_plan(uri, "Hi", settings, extra=EXTRA)


def test_no_frame_holds_the_key_when_signing_fails(signed_plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.auth import SigV4Auth

    assert signed_plan.request.headers[-1][0] == "Authorization"

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(SigV4Auth, "signature", fail)
    with pytest.raises(RuntimeError) as caught:
        _ = signed_plan.request
    check_frames(caught.value)


def test_no_frame_holds_the_key_wherever_ctrl_c_interrupts_signing(signed_plan: Any) -> None:
    interrupted = 0
    for error in interrupt_everywhere(lambda: signed_plan.request):
        assert find_secret(error, KEY) == []
        interrupted += 1
    assert interrupted > 20
