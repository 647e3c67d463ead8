"""OpenAI's own SDK as the judge of batches: it sends what Onym sends, and reads what Onym reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from batch_api_server import KEY, MODEL, OpenAIServer, answer
from batch_support import read_results, write_rows
from contract.capture import Capture, Recorded
from onym.llm.batch import run
from onym.llm.batch._provider_flow import BatchClient
from onym.llm.client import Client
from onym.llm.config import Config
from onym.llm.dialects import Exchange
from onym.llm.dialects.batch_api import CHAT, RESPONSES, BatchRequest
from onym.llm.dialects.openai_chat import decode_chat
from onym.llm.flow import SYSTEM_CLOCK
from onym.llm.providers import ProviderTable
from onym.net.messages import Headers, Reply, Send
from onym.net.policy import Policy
from onym.net.transport import Transport

openai = pytest.importorskip("openai")
from openai.types.batch import Batch  # noqa: E402
from openai.types.batch_create_params import BatchCreateParams  # noqa: E402

TOKEN = "0123456789abcdef"
LINES = [CHAT.encode_line(f"{TOKEN}-{at}", b'{"model":"m","messages":[]}') for at in range(2)]
#: headers that say who asks and what is sent
TOLD = ("authorization", "content-type")


@pytest.fixture(scope="module")
def capture() -> Iterator[Capture]:
    with Capture() as server:
        yield server


@pytest.fixture(scope="module")
def sdk(capture: Capture) -> Iterator[Any]:
    with openai.OpenAI(api_key=KEY, base_url=f"{capture.url}/v1", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def onym(capture: Capture) -> Iterator[Client]:
    with capture.client("openai", MODEL, key=KEY) as client:
        yield client


def send(client: Client, call: BatchRequest) -> Reply:
    """What Onym sends for a call."""
    endpoint = client.explain("x").endpoint
    desk = BatchClient(api=CHAT, endpoint=endpoint, exchange=Exchange(), clock=SYSTEM_CLOCK, retries=0)
    with Transport(Policy.local()) as transport:
        return transport.send(Send(desk.build_request(call), 10.0))


def both(capture: Capture) -> tuple[Recorded, Recorded]:
    theirs, ours = capture.requests[-2:]
    assert (ours.method, ours.target.partition("?")[0]) == (theirs.method, theirs.target.partition("?")[0])
    return theirs, ours


def parts(request: Recorded) -> list[tuple[dict[str, str], bytes]]:
    """The parts of a multipart body: headers by lower-case name, content."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    whole: Message = BytesParser(policy=HTTP).parsebytes(head + request.body)
    found = []
    for part in whole.get_payload():
        assert isinstance(part, Message)
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found.append(({name.lower(): str(value) for name, value in part.items()}, content))
    return found


def test_the_upload_is_the_sdks_part_by_part(capture: Capture, sdk: Any, onym: Client) -> None:
    capture.answer({"id": "file-1"})
    name = f"onym-{TOKEN}.jsonl"
    sdk.files.create(file=(name, b"".join(LINES)), purpose="batch")
    reply = send(onym, CHAT.upload(TOKEN, LINES))
    theirs, ours = both(capture)
    assert parts(ours) == parts(theirs)
    assert len(parts(ours)) == 2
    assert ours.headers["authorization"] == theirs.headers["authorization"]
    assert ours.headers["accept"] == theirs.headers["accept"]
    assert CHAT.decode_upload(reply.status, reply.headers, reply.body, Exchange()) == "file-1"


@pytest.mark.parametrize("api", [CHAT, RESPONSES])
def test_the_creation_is_the_sdks(capture: Capture, sdk: Any, onym: Client, api: Any) -> None:
    sdk.batches.create(
        input_file_id="file-1", endpoint=api.endpoint, completion_window="24h", metadata={"onym": TOKEN}
    )
    send(onym, api.create(TOKEN, [], "file-1"))
    theirs, ours = both(capture)
    assert ours.json == theirs.json
    assert [ours.headers[name] for name in TOLD] == [theirs.headers[name] for name in TOLD]
    TypeAdapter(BatchCreateParams).validate_python(ours.json)


def test_looking_cancelling_listing_and_fetching_are_the_sdks(
    capture: Capture, sdk: Any, onym: Client
) -> None:
    capture.answer({"data": [], "id": "b"})
    calls = [
        (lambda: sdk.batches.retrieve("batch_1"), CHAT.retrieve("batch_1")),
        (lambda: sdk.batches.cancel("batch_1"), CHAT.cancel("batch_1")),
        (lambda: sdk.batches.list(limit=100), CHAT.list(None)),
        (lambda: sdk.batches.list(limit=100, after="batch_1"), CHAT.list("batch_1")),
        (lambda: sdk.files.content("file-1"), CHAT.download(batch({"output_file_id": "file-1"}))[0]),
    ]
    for theirs_send, call in calls:
        theirs_send()  # type: ignore[no-untyped-call]
        send(onym, call)
        theirs, ours = both(capture)
        assert set(ours.target.partition("?")[2].split("&")) == set(
            theirs.target.partition("?")[2].split("&")
        )
        assert ours.body == theirs.body
        for name in (*TOLD, "accept"):
            assert ours.headers.get(name) == theirs.headers.get(name), (call.path, name)


def batch(members: dict[str, Any]) -> Any:
    return CHAT.decode_batch(200, Headers(), json.dumps({"id": "b", **members}).encode(), Exchange())


ENDINGS = {"completed", "failed", "expired", "cancelled"}
STATES = [*sorted(ENDINGS), "validating", "in_progress", "finalizing", "cancelling"]


@pytest.mark.parametrize("status", STATES)
def test_a_batch_is_read_as_the_sdk_reads_it(capture: Capture, sdk: Any, status: str) -> None:
    body = {
        "id": "batch_1",
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": status,
        "created_at": 1_796_000_000,
        "output_file_id": "file-2" if status == "completed" else None,
        "error_file_id": "file-3",
        "request_counts": {"total": 5, "completed": 3, "failed": 1},
        "metadata": {"onym": TOKEN},
        "errors": {"object": "list", "data": [{"code": "invalid", "line": 4, "message": "m", "param": None}]},
    }
    capture.answer(body)
    theirs: Batch = sdk.batches.retrieve("batch_1")
    ours = batch(body)
    assert ours.id == theirs.id
    assert ours.ending == (theirs.status if theirs.status in ENDINGS else None)
    assert ours.files == tuple(item for item in (theirs.output_file_id, theirs.error_file_id) if item)
    counts = theirs.request_counts
    assert counts is not None
    assert (ours.total, ours.finished) == (counts.total, counts.completed + counts.failed)
    assert theirs.metadata is not None
    assert (ours.marker, ours.created) == (theirs.metadata["onym"], theirs.created_at)
    assert theirs.errors is not None
    assert theirs.errors.data is not None
    (fault,) = theirs.errors.data
    assert (ours.faults[0].line, ours.faults[0].error.provider_code) == (fault.line, fault.code)
    assert set(STATES) == set(Batch.model_fields["status"].annotation.__args__)  # type: ignore[union-attr]


def test_a_list_is_paged_as_the_sdk_pages_it(sdk: Any, tmp_path: Path) -> None:
    with OpenAIServer() as server:
        server.page = 2
        for at in range(5):
            server.files["f"] = b""
            given = {"input_file_id": "f", "metadata": {"onym": str(at)}, "endpoint": "x"}
            server.create("", {}, json.dumps({**given, "completion_window": "24h"}).encode(), "")
        with openai.OpenAI(api_key=KEY, base_url=f"{server.url}/v1", max_retries=0) as client:
            theirs = [batch.id for batch in client.batches.list(limit=100)]
        ours: list[str] = []
        after = None
        while True:
            shown = server.list("", {} if after is None else {"after": [after]}, b"", "")
            page = CHAT.decode_list(200, Headers(), json.dumps(shown).encode(), Exchange())
            ours += [batch.id for batch in page.batches]
            after = page.next
            if after is None:
                break
    assert ours == theirs
    assert len(ours) == 5


def test_lines_of_results_are_read_as_the_sdk_reads_the_answers_in_them() -> None:
    body = answer("/v1/chat/completions", "hello")
    line = {"id": "r", "custom_id": "t-1", "error": None,
            "response": {"status_code": 200, "request_id": "req_1", "body": body}}  # fmt: skip
    found = CHAT.decode_line(json.dumps(line).encode(), decode_chat, Exchange())
    assert found is not None
    ours: Any = found.outcome
    theirs = openai.types.chat.ChatCompletion.model_validate(body)
    assert (found.name, ours.text, ours.model) == ("t-1", theirs.choices[0].message.content, theirs.model)
    assert ours.usage.total_tokens == theirs.usage.total_tokens
    assert ours.request_id == "req_1"


@pytest.mark.parametrize("query", ["", "?api=responses"])
def test_the_same_rows_by_the_sdk_and_by_onym_end_the_same(tmp_path: Path, query: str) -> None:
    # end to end: each makes a batch of the same requests at a server that keeps state
    api = RESPONSES if query else CHAT
    with OpenAIServer() as server:
        source = write_rows(tmp_path / "in.jsonl", 3)
        with Capture() as capture:
            row = replace(capture.row("openai"), default_port=server.port)
        uri = f"llm://:{KEY}@127.0.0.1:{server.port}/{MODEL}{query}"
        table = ProviderTable.builtin().register(row)
        run(uri, source, tmp_path / "out", engine="provider", poll=0.0, policy=Policy.local(),
            config=Config(), environ={}, providers=table)  # fmt: skip
        (made,) = server.batches.values()
        with openai.OpenAI(api_key=KEY, base_url=f"{server.url}/v1", max_retries=0) as client:
            lines = b"".join(json.dumps(item).encode() + b"\n" for item in made["rows"])
            file = client.files.create(file=("x.jsonl", lines), purpose="batch")
            job = client.batches.create(
                input_file_id=file.id, endpoint=api.endpoint, completion_window="24h", metadata={"onym": "x"}
            )
            while job.status != "completed":
                job = client.batches.retrieve(job.id)
            assert job.output_file_id is not None
            results = client.files.content(job.output_file_id).text.splitlines()
        texts = {}
        for result in map(json.loads, results):
            body = result["response"]["body"]
            if query:
                text = openai.types.responses.Response.construct(**body).output_text
            else:
                text = openai.types.chat.ChatCompletion.model_validate(body).choices[0].message.content
            texts[int(result["custom_id"].partition("-")[2])] = text
    assert {row["index"]: row["text"] for row in read_results(tmp_path / "out")} == texts
