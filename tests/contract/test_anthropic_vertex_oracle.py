"""Claude on Vertex AI: what Onym sends and reads is what Anthropic's own Vertex client sends and reads."""

from __future__ import annotations

from typing import Any

import pytest

from contract.capture import Capture
from onym.llm.types import Finish, TextDelta
from support import ImportedLate

anthropic = ImportedLate("anthropic")

PATH = "/v1/projects/my-project/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5@20250929"
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
STREAM = b"".join(
    b"event: %s\ndata: %s\n\n" % (name, data)
    for name, data in [
        (
            b"message_start",
            (
                b'{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],'
                b'"model":"c","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}'
            ),
        ),
        (
            b"content_block_start",
            b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        ),
        (
            b"content_block_delta",
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}',
        ),
        (b"content_block_stop", b'{"type":"content_block_stop","index":0}'),
        (
            b"message_delta",
            (
                b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
                b'"usage":{"output_tokens":2}}'
            ),
        ),
        (b"message_stop", b'{"type":"message_stop"}'),
    ]
)


#: the version that still takes sampling parameters; the SDK sends its own
PINNED = "vertex-2023-10-16"


def plain(target: str) -> str:
    """An `@` may stand in a path as it is or encoded (RFC 3986 3.3)."""
    return target.replace("%40", "@")


def sdk(server: Capture) -> Any:
    return anthropic.AnthropicVertex(
        base_url=f"{server.url}/v1",
        region="us-east5",
        project_id="my-project",
        access_token="ya29.token",
        max_retries=0,
    )


def ours(server: Capture, query: str = "") -> Any:
    where = "project=my-project&location=us-east5"
    return server.client(
        "vertex", "claude-sonnet-4-5%4020250929", f"{where}&{query}", key="ya29.token", chain=None
    )


@pytest.mark.requirement("onym-dialect-a", "onym-dialect-b")
def test_a_whole_call_is_the_sdks(server: Capture) -> None:
    server.answer(ANSWER)
    with sdk(server) as client:
        theirs = client.messages.create(
            model="claude-sonnet-4-5@20250929",
            max_tokens=9,
            system="Be brief.",
            stop_sequences=["a"],
            messages=[{"role": "user", "content": "Hi"}],
        )
    sent = server.last()
    with ours(server, "max_tokens=9&stop=a&system=Be%20brief.") as client:
        mine = client.chat("Hi")
    assert plain(server.last().target) == sent.target == f"{PATH}:rawPredict"
    assert server.last().json == {**sent.json, "anthropic_version": PINNED}
    assert server.last().headers["authorization"] == sent.headers["authorization"]
    assert mine.text == theirs.content[0].text
    assert mine.usage.input_tokens == theirs.usage.input_tokens


@pytest.mark.requirement("onym-dialect-a", "onym-dialect-b")
def test_a_stream_is_the_sdks(server: Capture) -> None:
    server.answer(STREAM, media="text/event-stream")
    with sdk(server) as client:
        messages = [{"role": "user", "content": "Hi"}]
        stream = client.messages.create(
            model="claude-sonnet-4-5@20250929", max_tokens=9, stream=True, messages=messages
        )
        theirs = "".join(item.delta.text for item in stream if item.type == "content_block_delta")
    sent = server.last()
    with ours(server, "max_tokens=9") as client, client.stream("Hi") as events:
        mine = list(events)
    assert plain(server.last().target) == sent.target == f"{PATH}:streamRawPredict"
    assert server.last().json == {**sent.json, "anthropic_version": PINNED}
    assert "".join(item.text for item in mine if isinstance(item, TextDelta)) == theirs
    assert isinstance(mine[-1], Finish)


def test_the_publishers_name_may_stand_before_the_models(server: Capture) -> None:
    server.answer(ANSWER)
    where = "project=my-project&location=us-east5"
    with server.client("vertex", "anthropic/claude-sonnet-4-5", where, chain=None) as client:
        client.chat("Hi")
    assert server.last().target.endswith("/publishers/anthropic/models/claude-sonnet-4-5:rawPredict")
