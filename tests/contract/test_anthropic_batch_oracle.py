"""Anthropic's own SDK as the judge of batches: it sends what Onym sends, and reads what Onym reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from batch_api_server import KEY, MODEL, AnthropicServer, message
from batch_support import read_results, write_rows
from contract.capture import Capture, Recorded
from onym.errors import OnymError
from onym.llm.batch import run
from onym.llm.batch._provider_flow import BatchClient
from onym.llm.client import Client
from onym.llm.config import Config
from onym.llm.dialects import Exchange
from onym.llm.dialects.anthropic_messages import decode_chat
from onym.llm.dialects.batch_api import MESSAGES, Batch, BatchApi, BatchRequest
from onym.llm.flow import SYSTEM_CLOCK
from onym.llm.providers import ProviderTable
from onym.net.messages import Headers, Reply, Send
from onym.net.policy import Policy
from onym.net.transport import Transport
from support import ImportedLate, as_subtests

anthropic: Any = ImportedLate("anthropic")
messages: Any = ImportedLate("anthropic.types.messages")

TOKEN = "0123456789abcdef"
PARAMS = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
#: headers that say who asks, what is sent, and in which version
TOLD = ("content-type", "anthropic-version", "accept", "x-api-key")


@pytest.fixture(scope="module")
def capture() -> Iterator[Capture]:
    with Capture() as server:
        yield server


def vendor(url: str) -> Any:
    """The SDK, with the version and the key's header that Onym uses (see test_anthropic_oracle.py)."""
    pinned = {"anthropic-version": "2023-06-01", "x-api-key": KEY}
    return anthropic.Anthropic(api_key=KEY, base_url=url, max_retries=0, default_headers=pinned)


@pytest.fixture(scope="module")
def sdk(capture: Capture) -> Iterator[Any]:
    with vendor(capture.url) as client:
        yield client


@pytest.fixture(scope="module")
def onym(capture: Capture) -> Iterator[Client]:
    with capture.client("anthropic", MODEL, key=KEY) as client:
        yield client


def send(client: Client, call: BatchRequest) -> Reply:
    """What Onym sends for a call."""
    endpoint = client.explain("x").endpoint
    desk = BatchClient(api=MESSAGES, endpoint=endpoint, exchange=Exchange(), clock=SYSTEM_CLOCK, retries=0)
    with Transport(Policy.local()) as transport:
        return transport.send(Send(desk.build_request(call), 10.0))


def both(capture: Capture) -> tuple[Recorded, Recorded]:
    theirs, ours = capture.requests[-2:]
    assert (ours.method, ours.target.partition("?")[0]) == (theirs.method, theirs.target.partition("?")[0])
    for name in TOLD:
        assert ours.headers.get(name) == theirs.headers.get(name), (ours.target, name)
    return theirs, ours


def shown(**members: Any) -> dict[str, Any]:
    """A message batch as the API shows it."""
    counts = {"processing": 1, "succeeded": 2, "errored": 0, "canceled": 0, "expired": 3}
    return {
        "id": "msgbatch_1",
        "type": "message_batch",
        "processing_status": "in_progress",
        "request_counts": counts,
        "created_at": "2026-11-21T20:00:00.123456Z",
        "expires_at": "2026-11-22T20:00:00Z",
        **members,
    }


def errored(kind: str) -> dict[str, Any]:
    error = {"type": "error", "error": {"type": kind, "message": "m"}, "request_id": "r"}
    return {"type": "errored", "error": error}


def test_the_creation_is_the_sdks_and_its_types_take_it(capture: Capture, sdk: Any, onym: Client) -> None:
    capture.answer(shown())
    names = [f"{TOKEN}-{at}" for at in range(2)]
    sdk.messages.batches.create(requests=[{"custom_id": name, "params": PARAMS} for name in names])
    lines = [MESSAGES.encode_line(name, json.dumps(PARAMS).encode()) for name in names]
    send(onym, MESSAGES.create(TOKEN, lines, None))
    theirs, ours = both(capture)
    assert ours.json == theirs.json
    TypeAdapter(messages.batch_create_params.BatchCreateParams).validate_python(ours.json)
    api: BatchApi = MESSAGES
    assert api.upload(TOKEN, lines) is None


def test_looking_cancelling_listing_and_fetching_are_the_sdks(
    capture: Capture, sdk: Any, onym: Client
) -> None:
    batches = sdk.messages.batches
    capture.answer(shown(results_url=f"{capture.url}/v1/messages/batches/msgbatch_1/results", data=[]))
    calls = [
        (lambda: batches.retrieve("msgbatch_1"), MESSAGES.retrieve("msgbatch_1")),
        (lambda: batches.cancel("msgbatch_1"), MESSAGES.cancel("msgbatch_1")),
        (lambda: batches.list(limit=1000), MESSAGES.list(None)),
        (lambda: batches.list(limit=1000, after_id="msgbatch_1"), MESSAGES.list("msgbatch_1")),
        (lambda: batches.results("msgbatch_1").close(), MESSAGES.download(Batch(id="msgbatch_1"))[0]),
    ]
    for theirs_send, call in calls:
        theirs_send()  # type: ignore[no-untyped-call]
        send(onym, call)
        theirs, ours = both(capture)
        assert set(ours.target.partition("?")[2].split("&")) == set(
            theirs.target.partition("?")[2].split("&")
        )
        assert ours.body == theirs.body


@pytest.mark.parametrize("status", ["in_progress", "canceling", "ended"])
@pytest.mark.parametrize("stopped", [None, "2026-11-21T20:30:00Z"])
def test_a_batch_is_read_as_the_sdk_reads_it(
    capture: Capture, sdk: Any, status: str, stopped: str | None
) -> None:
    body = shown(processing_status=status, cancel_initiated_at=stopped)
    capture.answer(body)
    theirs = sdk.messages.batches.retrieve("msgbatch_1")
    ours = MESSAGES.decode_batch(200, Headers(), json.dumps(body).encode(), Exchange())
    counts = theirs.request_counts
    total = sum(getattr(counts, name) for name in type(counts).model_fields)
    assert (ours.id, ours.total, ours.finished) == (theirs.id, total, total - counts.processing)
    assert ours.created == theirs.created_at.timestamp()
    assert (ours.ending is not None) is (theirs.processing_status == "ended")
    assert (ours.ending == "cancelled") is (status == "ended" and theirs.cancel_initiated_at is not None)
    states = messages.MessageBatch.model_fields["processing_status"].annotation
    assert set(states.__args__) == {"in_progress", "canceling", "ended"}  # type: ignore[union-attr]


ERRORS = (
    "invalid_request_error", "authentication_error", "billing_error", "permission_error", "not_found_error",
    "rate_limit_error", "timeout_error", "api_error", "overloaded_error",
)  # fmt: skip
RESULTS: list[dict[str, Any]] = [
    {"type": "succeeded", "message": message("Hello")},
    {"type": "canceled"},
    {"type": "expired"},
    *[errored(item) for item in ERRORS],
]


@as_subtests("result", RESULTS, ids=lambda item: str(item.get("error", item).get("error", item)["type"]))
def test_a_result_is_read_as_the_sdk_reads_it(result: dict[str, Any]) -> None:
    line = {"custom_id": "t-1", "result": result}
    theirs = messages.MessageBatchIndividualResponse.model_validate(line)
    found = MESSAGES.decode_line(json.dumps(line).encode(), decode_chat, Exchange())
    assert found is not None
    assert found.name == theirs.custom_id
    outcome: Any = found.outcome
    if theirs.result.type == "succeeded":
        read: Any = theirs.result.message
        assert (outcome.text, outcome.model) == (read.content[0].text, read.model)
        assert outcome.usage.output_tokens == read.usage.output_tokens
        return
    assert isinstance(outcome, OnymError)
    if theirs.result.type == "errored":
        assert outcome.provider_code == theirs.result.error.error.type  # type: ignore[attr-defined]
        assert outcome.request_id == theirs.result.error.request_id  # type: ignore[attr-defined]


def test_an_error_in_a_batch_is_the_error_of_a_single_call(capture: Capture, onym: Client) -> None:
    # the API's types of errors and its statuses go together, as the SDK has them for answers
    for result in RESULTS[3:]:
        error = result["error"]
        found = MESSAGES.decode_line(
            json.dumps({"custom_id": "a", "result": result}).encode(), decode_chat, Exchange()
        )
        assert found is not None
        batched: Any = found.outcome
        capture.answer(error, status=batched.status)
        with pytest.raises(type(batched)) as caught:
            onym.chat("x", retries=0)
        assert (caught.value.code, caught.value.message) == (batched.code, batched.message)


def test_the_same_rows_by_the_sdk_and_by_onym_end_the_same(tmp_path: Path) -> None:
    # end to end: each makes a batch of the same requests at a server that keeps state
    with AnthropicServer() as server, Capture() as capture:
        source = write_rows(tmp_path / "in.jsonl", 3)
        row = replace(capture.row("anthropic"), default_port=server.port)
        uri = f"llm://:{KEY}@127.0.0.1:{server.port}/{MODEL}"
        table = ProviderTable.builtin().register(row)
        run(uri, source, tmp_path / "out", engine="provider", poll=0.0, policy=Policy.local(),
            config=Config(), environ={}, providers=table)  # fmt: skip
        (made,) = server.batches.values()
        with vendor(server.url) as client:
            batches = client.messages.batches
            job = batches.create(requests=made["rows"])
            while job.processing_status != "ended":
                job = batches.retrieve(job.id)
            texts = {
                int(result.custom_id.partition("-")[2]): result.result.message.content[0].text
                for result in batches.results(job.id)
            }
    assert {row["index"]: row["text"] for row in read_results(tmp_path / "out")} == texts
    assert len(texts) == 3
