"""How users' code sees the public types. Checked by mypy, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, assert_type

import onym
from onym.llm.types import FinishReason


def read(text: str) -> None:
    uri = onym.parse(text)
    assert_type(uri, onym.LLMURI)
    assert_type(onym.parse(uri, strict=True), onym.LLMURI)
    assert_type(uri.label, str | None)
    assert_type(uri.key, onym.Secret | None)
    assert_type(uri.host, str)
    assert_type(uri.port, int | None)
    assert_type(uri.effective_port, int)
    assert_type(uri.model, str)
    assert_type(uri.segments, tuple[str, ...])
    assert_type(uri.temp, float | None)
    assert_type(uri.max_tokens, int | None)
    assert_type(uri.stop, tuple[str, ...] | None)
    assert_type(uri.stream, bool | None)
    assert_type(uri.system, str | None)
    assert_type(uri.extra, dict[str, Any])
    assert_type(uri.withheld, tuple[str, ...])
    assert_type(uri.fragment, str | None)
    assert_type(uri.check(), tuple[onym.Diagnostic, ...])
    assert_type(uri.render(reveal=True), str)
    assert_type(onym.normalize(text), onym.LLMURI)
    report = onym.check(text)
    assert_type(report.uri, onym.LLMURI | None)
    assert_type(report.diagnostics, tuple[onym.Diagnostic, ...])


def write(key: onym.Secret) -> onym.LLMURI:
    uri = onym.LLMURI.build(provider="openai", model="gpt-5.4", key=key, temp=0.2, stop=("a", "b"))
    return uri.with_params(max_tokens=5).without_params("temp").with_label(None).without_key()


def generic(text: str) -> None:
    uri = onym.URI.parse(text)
    assert_type(uri.scheme, str | None)
    assert_type(uri.path, str)
    assert_type(uri.resolve("../x"), onym.URI)


def call(text: str) -> None:
    onym.connect(text, timeout=None)  # type: ignore[call-arg]  # an argument of the call, not of the client
    with onym.connect(text, policy=onym.Policy.local().replace(ports={11434})) as client:
        assert_type(client, onym.Client)
    client = onym.connect(text, key="sk", on_unsupported="warn", system_filter=str.strip)
    completion = client.chat("Hello", temp=0.2, tools=[onym.Tool(name="weather")])
    assert_type(completion, onym.Completion)
    assert_type(completion.text, str)
    assert_type(completion.finish_reason, FinishReason)
    assert_type(completion.usage.total_tokens, int | None)
    assert_type(completion.tool_calls, tuple[onym.ToolCall, ...])
    assert_type(completion.raw, Mapping[str, Any])
    assert_type(client.models(), tuple[onym.ModelInfo, ...])
    assert_type(client.embed(["a", "b"]), onym.Embeddings)
    assert_type(client.explain("Hello"), onym.Plan)
    with client.stream([onym.Message(role="user", content="Hello"), completion]) as stream:
        assert_type(stream.text, Iterator[str])
        for event in stream:
            match event:
                case onym.TextDelta(text) | onym.ReasoningDelta(text):
                    assert_type(text, str)
                case onym.ToolCallDelta():
                    assert_type(event.index, int)
                case onym.Finish():
                    assert_type(event.usage, onym.Usage)
    client.chat("Hello", on_unsupported="never")  # an override: judged when it runs, not by the checker
    onym.connect(text, on_unsupported="never")  # type: ignore[arg-type]  # one of three words


async def acall(text: str) -> None:
    async with onym.aconnect(text) as client:
        assert_type(client, onym.AsyncClient)
        assert_type(await client.chat("Hello"), onym.Completion)
        async with client.stream("Hello") as stream:
            assert_type(stream.text, AsyncIterator[str])
            assert_type(await stream.completion(), onym.Completion)


def catch(text: str) -> None:
    try:
        onym.parse(text)
    except onym.errors.URIError as error:
        assert_type(error.offset, int | None)
    except onym.OnymError as error:
        assert_type(error.as_dict(), dict[str, Any])


def content() -> onym.Message:
    picture = onym.ImagePart(data=b"...", media_type="image/png")
    return onym.Message(role="user", content=(onym.TextPart("What is this?"), picture))


def keep(secret: onym.Secret) -> str:
    onym.redact("text", secrets=[secret, "another"])
    secret + "x"  # type: ignore[operator]  # a secret is no text
    return secret.reveal()
