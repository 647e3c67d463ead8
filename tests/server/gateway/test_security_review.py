"""Attacks of an authority on a gateway and its users, and of others on its machine."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from click.testing import CliRunner

from ai_support import PATIENCE
from gateway_support import world
from onym.ai.endpoint import Answer, Call, Endpoint
from onym.ai.gateway.audit import AuditLog, rotate_log, verify_log
from onym.ai.gateway.review import build_form_fields
from onym.cli._output import Session
from onym.cli.commands.ai.receipts import verify_command as verify
from onym.cli.commands.ai.serve import audit_command as audit
from onym.errors import ConfigError
from onym.net.messages import SSEDecoder
from onym.server.gateway.dependencies import ResultStore
from onym.server.gateway.responses import (
    EventStreamResponse,
    StartedStream,
    build_control_views,
    get_template_environment,
)
from onym.sign.keystore import KeyStore

AT = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def drawn(schema: dict[str, Any]) -> str:
    page = '{% import "parts.html" as p %}{% for each in all %}{{ p.control(each) }}{% endfor %}'
    return (
        get_template_environment()
        .from_string(page)
        .render(all=build_control_views(build_form_fields(schema)))
    )


def test_a_page_does_not_grow_with_the_product_of_a_schema() -> None:
    # 1.5 MB of schema were 435 MB of page and 1.9 GB of memory
    long = ['"<' * 500] * 100
    properties = {f"p{index}": {"$ref": "#/$defs/x"} for index in range(48)}
    schema = {"type": "object", "properties": properties, "$defs": {"x": {"enum": long}}}
    assert len(drawn(schema)) < len(msgspec.json.encode(schema))
    assert {field.kind for field in build_form_fields(schema)} == {"json"}


def test_a_choice_is_as_long_as_a_label_at_most() -> None:
    def kind(value: str) -> str:
        return build_form_fields({"properties": {"a": {"enum": [value]}}})[0].kind

    assert kind("x" * 198) == "choice"  # two more are its quotes
    assert kind("x" * 199) == "json"


class Described:
    """A resource that describes itself at length."""

    def __init__(self, size: int) -> None:
        self._size = size

    def describe(self) -> dict[str, Any]:
        return {"input": {"type": "object", "description": "x" * self._size}}

    async def invoke(self, call: Call) -> Answer:
        return Answer(body=b"1")


@pytest.fixture(scope="module")
def town() -> Any:
    with world() as found:
        # the resources are there once somebody has asked
        endpoint: Endpoint = found.endpoint.app
        endpoint.add("/long", Described(1_000_000))
        endpoint.add("/short", Described(1_000))

        @endpoint.resource("/endless")
        async def endless() -> AsyncIterator[int]:
            yield 1
            await asyncio.Event().wait()

        yield found


class Gate:
    """A stream that goes on when it is told to."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.opened = threading.Event()

        @endpoint.resource("/gated")
        async def gated() -> AsyncIterator[int]:
            yield 1
            await asyncio.to_thread(self.opened.wait, PATIENCE)
            yield 2


@contextmanager
def begun_at(found: Any, resource: str) -> Iterator[tuple[Any, bytes]]:
    """A stream of events, and what came of it up to its first event."""
    line = http.client.HTTPConnection("127.0.0.1", found.port, timeout=PATIENCE)
    try:
        line.request("POST", found.path(resource), b"", {"Accept": "text/event-stream"})
        with line.getresponse() as reply:
            assert reply.status == 200
            heard = b""
            while b"data:" not in heard:
                heard += reply.read1()
            yield reply, heard
    finally:
        line.close()


def decisions(found: Any) -> list[tuple[str, str]]:
    return [(line["event"], line["decision"]) for line in found.lines()]


def test_a_stream_is_in_the_audit_log_before_its_first_octet_and_at_its_end() -> None:
    with world() as found:
        gate = Gate(found.endpoint.app)
        with begun_at(found, "/gated") as (reply, _):
            assert decisions(found) == [("begun", "provisional")]
            verdict = verify_log(found.folder / "audit.jsonl")
            assert (verdict.is_valid, verdict.begun) == (True, frozenset({found.lines()[0]["id"]}))
            gate.opened.set()
            assert b"event: gateway-receipt" in reply.read()
        begun, ended = found.lines()
        assert decisions(found) == [("begun", "provisional"), ("exchange", "permit")]
        assert begun["id"] == ended["id"]
        assert begun["path"] == ended["path"]
        assert ("jti" in begun, "jti" in ended) == (False, True)
        assert verify_log(found.folder / "audit.jsonl").begun == frozenset()


def test_a_stream_that_cannot_be_recorded_does_not_begin() -> None:
    with world() as found:
        (found.folder / "audit.jsonl").unlink()
        (found.folder / "audit.jsonl").mkdir()
        answer = found.ask("POST", "/tool/count", b"{}", Accept="text/event-stream")
        assert (answer.status, answer.json()["code"]) == (503, "unavailable")
        assert b"number" not in answer.body
        assert len(found.gateway.parts.slots) == 0


def test_a_stream_whose_end_cannot_be_recorded_never_counts() -> None:
    with world() as found:
        gate = Gate(found.endpoint.app)
        with begun_at(found, "/gated") as (reply, heard):
            kept = (found.folder / "audit.jsonl").rename(found.folder / "kept")
            (found.folder / "audit.jsonl").mkdir()
            gate.opened.set()
            with pytest.raises(http.client.IncompleteRead) as cut:
                reply.read()
        heard += cut.value.partial
        assert b"event: error" in heard
        assert b'"code":"unavailable"' in heard
        assert b"receipt\ndata" not in heard
        assert len(verify_log(kept).begun) == 1
        assert len(found.gateway.parts.slots) == 0


def test_streams_that_were_cut_off_are_told_of_over_files(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    for event, name in (("begun", "a"), ("begun", "b"), ("exchange", "c")):
        log.append({"event": event, "id": name}, at=AT)
    kept = rotate_log(path, at=AT)
    log.append({"event": "exchange", "id": "a"}, at=AT)
    log.close()
    told = CliRunner().invoke(audit, ("verify", str(kept), str(path)), obj=Session())
    assert (told.exit_code, told.output.splitlines()[-1].partition(":")[0]) == (0, "1 stream has no end")
    told = CliRunner().invoke(audit, ("verify", str(kept)), obj=Session())
    assert (told.exit_code, told.output.splitlines()[-1].partition(":")[0]) == (0, "2 streams have no end")
    log = AuditLog(path)
    log.append({"event": "exchange", "id": "b"}, at=AT)
    log.close()
    told = CliRunner().invoke(audit, ("verify", str(kept), str(path)), obj=Session())
    assert (told.exit_code, told.output.splitlines()[-1].partition(":")[0]) == (0, "  last hash")


def test_a_description_without_an_end_is_not_read_and_not_kept(town: Any) -> None:
    assert town.ask("POST", "/long", b"{}").status == 502
    page = town.ask("GET", "/long", Accept="text/html")
    assert (page.status, b"xxxx" in page.body) == (502, False)
    assert town.ask("POST", "/short", b"{}").status == 200
    kept = town.gateway._exchanges._relay._described
    uris = [uri for uri in kept if uri.endswith(("/long", "/short"))]
    assert [uri.rpartition("/")[2] for uri in uris] == ["short"]
    assert all(description.input is None and description.output is None for _, description in kept.values())


class Whole:
    """As much of a result as a shelf needs."""

    def __init__(self, octets: int) -> None:
        self.body = b"x" * octets


@pytest.mark.parametrize(("octets", "times"), [(40, 20), (0, 400)])
def test_one_client_cannot_push_out_what_others_asked_for(octets: int, times: int) -> None:
    # eight results of 8 MiB were enough to take everybody's results away
    shelf = ResultStore(lambda: 0.0, octets=100, most=10)

    def put(client: str, size: int) -> str:
        result: Any = Whole(size)
        return shelf.put(result, "witness", client, AT, client=client)

    mine = put("somebody", 10)
    theirs = [put("greedy", octets) for _ in range(times)]
    assert shelf.find(mine, "somebody") is not None
    assert shelf.find(theirs[0], "greedy") is None
    assert shelf.find(theirs[-1], "greedy") is not None


def test_who_leaves_a_stream_early_is_in_the_audit_log_all_the_same(town: Any) -> None:
    with socket.create_connection(("127.0.0.1", town.port), PATIENCE) as line:
        head = f"POST {town.path('/endless')} HTTP/1.1\r\nHost: 127.0.0.1:{town.port}\r\n"
        line.sendall(f"{head}Accept: text/event-stream\r\nContent-Length: 0\r\n\r\n".encode())
        with line.makefile("rb") as heard:
            assert any(b"data:" in chunk for chunk in heard)
    until = time.monotonic() + PATIENCE
    while len(town.gateway.parts.slots) and time.monotonic() < until:
        assert town.at("GET", "/").status == 200  # the gateway's loop goes on
    assert len(town.gateway.parts.slots) == 0
    last = [entry for entry in town.lines() if entry["method"] == "POST"][-1]
    assert (last["decision"], last["status"]) == ("provisional", 200)


def test_who_leaves_before_a_stream_begins_gives_its_place_back() -> None:
    # an answer before it that is not taken holds up the head of this one; then the client leaves
    ended: list[str] = []

    class Stream:
        async def close(self) -> None:
            ended.append("stream")

    async def held(message: Any) -> None:
        await asyncio.Event().wait()

    async def left() -> Any:
        return {"type": "http.disconnect"}

    nothing: Any = None
    begun = StartedStream(cast("Any", Stream()), None, nothing, nothing)
    answer = EventStreamResponse(nothing, nothing, begun, lambda: ended.append("place"))
    asyncio.run(answer({"type": "http", "asgi": {"spec_version": "2.3"}}, left, held))
    assert sorted(ended) == ["place", "stream"]


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_an_audit_log_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    AuditLog(path).close()
    for mode, good in ((0o620, False), (0o602, False), (0o640, True)):
        path.chmod(mode)
        if good:
            AuditLog(path).close()
            continue
        with pytest.raises(ConfigError) as caught:
            AuditLog(path)
        assert caught.value.code == "audit.unusable"


def test_an_audit_log_cannot_command_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text(json.dumps({"n": 1, "prev": "0" * 64, "at": "\x1b]52;c;aGk=\x07\x1b[2J"}) + "\n")
    found = CliRunner().invoke(audit, ("verify", str(path)), obj=Session())
    assert "\x1b" not in found.output
    assert "\\x1b" in found.output


def test_a_stream_that_was_saved_is_verified_with_either_receipt(town: Any, tmp_path: Path) -> None:
    answer = town.ask("POST", "/tool/count", b'{"to":3}', Accept="text/event-stream")
    events = {event.event: event.data for event in SSEDecoder().feed(answer.body)}
    body, now = tmp_path / "stream", time.time()
    body.write_bytes(answer.body)
    for event, store, options in (
        ("receipt", KeyStore(town.endpoint.folder / "keys"), ()),
        ("gateway-receipt", town.keys, ("--gateway-receipt",)),
    ):
        (tmp_path / "token").write_text(events[event])
        (tmp_path / "keys").write_bytes(store.history(now))
        given = (str(tmp_path / "token"), "--history", str(tmp_path / "keys"), "--body", str(body), *options)
        told = CliRunner().invoke(verify, given, obj=Session())
        assert (told.exit_code, "3 events" in told.output) == (0, True), told
