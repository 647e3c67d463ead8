"""What the command line promises and no other test of it names."""

from __future__ import annotations

import json
import socket
from typing import NoReturn

import pytest

from onym.cli.commands.conformance import answer_line


@pytest.mark.requirement("onym-conformance-c")
@pytest.mark.parametrize(
    ("host", "dns", "decision"),
    [
        ("pub.example", {"answers": ["93.184.215.14"]}, "allow"),
        ("rebind.example", {"sequence": [["93.184.215.14", "10.0.0.7"], ["93.184.215.14"]]}, "refuse"),
        ("gone.example", {"error": "NXDOMAIN"}, "refuse"),
        ("127.0.0.1", {}, "refuse"),
        ("localhost", {}, "refuse"),
    ],
)
def test_a_decision_is_made_without_the_network(
    monkeypatch: pytest.MonkeyPatch, host: str, dns: dict[str, object], decision: str
) -> None:
    def touched(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the network was touched")

    for name in ("getaddrinfo", "create_connection", "socket"):
        monkeypatch.setattr(socket, name, touched)
    question = {"id": 1, "op": "net.decide", "uri": f"llm://{host}/m", "policy": {"preset": "untrusted"}}
    found = answer_line(json.dumps(question | {"dns": dns}).encode())
    assert (found["ok"], found["decision"]) == (True, decision)
