"""Attacks of an authority on a gateway and its users, and of others on its machine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from click.testing import CliRunner

from ai_support import PATIENCE
from gateway_support import world
from onym.ai.endpoint import Answer, Call, Endpoint
from onym.ai.gateway.form import fields_of
from onym.ai.gateway.journal import Journal
from onym.cli._ai_audit import command as audit
from onym.cli._output import Session
from onym.errors import ConfigError
from onym.server.gateway.answers import Begun, stream_answer
from onym.server.gateway.draw import environment
from onym.server.gateway.shelf import Shelf
from onym.server.gateway.views import control_views

AT = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def drawn(schema: dict[str, Any]) -> str:
    page = '{% import "parts.html" as p %}{% for each in all %}{{ p.control(each) }}{% endfor %}'
    return environment().from_string(page).render(all=control_views(fields_of(schema)))


def test_a_page_does_not_grow_with_the_product_of_a_schema() -> None:
    # 1.5 MB of schema were 435 MB of page and 1.9 GB of memory
    long = ['"<' * 500] * 100
    properties = {f"p{index}": {"$ref": "#/$defs/x"} for index in range(48)}
    schema = {"type": "object", "properties": properties, "$defs": {"x": {"enum": long}}}
    assert len(drawn(schema)) < len(msgspec.json.encode(schema))
    assert {each.kind for each in fields_of(schema)} == {"json"}


def test_a_choice_is_as_long_as_a_label_at_most() -> None:
    def kind(value: str) -> str:
        return fields_of({"properties": {"a": {"enum": [value]}}})[0].kind

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


def test_a_description_without_an_end_is_not_read_and_not_kept(town: Any) -> None:
    assert town.ask("POST", "/long", b"{}").status == 502
    page = town.ask("GET", "/long", Accept="text/html")
    assert (page.status, b"xxxx" in page.body) == (502, False)
    assert town.ask("POST", "/short", b"{}").status == 200
    kept = town.gateway._relay._described
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
    shelf = Shelf(lambda: 0.0, octets=100, most=10)

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
            assert any(b"data:" in each for each in heard)
    until = time.monotonic() + PATIENCE
    while len(town.gateway._parts.slots) and time.monotonic() < until:
        assert town.at("GET", "/").status == 200  # the gateway's loop goes on
    assert len(town.gateway._parts.slots) == 0
    last = [each for each in town.lines() if each["method"] == "POST"][-1]
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
    begun = Begun(cast("Any", Stream()), None, nothing)
    answer = stream_answer(nothing, nothing, begun, lambda: ended.append("place"))
    asyncio.run(answer({"type": "http", "asgi": {"spec_version": "2.3"}}, left, held))
    assert sorted(ended) == ["place", "stream"]


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_an_audit_log_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    Journal(path).close()
    for mode, good in ((0o620, False), (0o602, False), (0o640, True)):
        path.chmod(mode)
        if good:
            Journal(path).close()
            continue
        with pytest.raises(ConfigError) as caught:
            Journal(path)
        assert caught.value.code == "audit.unusable"


def test_an_audit_log_cannot_command_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text(json.dumps({"n": 1, "prev": "0" * 64, "at": "\x1b]52;c;aGk=\x07\x1b[2J"}) + "\n")
    found = CliRunner().invoke(audit, ("verify", str(path)), obj=Session())
    assert "\x1b" not in found.output
    assert "\\x1b" in found.output
