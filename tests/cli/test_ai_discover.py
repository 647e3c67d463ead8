"""`onym ai discover`: every source explained, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from discovery_support import DOCUMENT, World, world_of
from onym.cli.exit_codes import AIIP, USAGE

#: names of this machine that have a dot, so that the system need not know them
NAMES = ("bank.localhost", "evil.localhost")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with world_of(tmp_path, *NAMES) as found:
        yield found


@pytest.fixture
def discover(world: World, run: Any) -> Any:
    ca = world.tls.ca_files[0]

    def call(*args: str) -> Any:
        return run("ai", "discover", "--no-dns", "--ca", ca, *args)

    return call


def test_sources_are_told_with_marks_that_need_no_colour(world: World, discover: Any) -> None:
    bank = world.sites["bank.localhost"]
    bank.put("/", '<head><link rel=aiip href="ai://evil.localhost/x">', link=f"<{bank.uri}>; rel=aiip")
    ran = discover(bank.authority)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split()[:4] for line in lines[:3]] == [
        ["+", "3", "anchor", "won"],
        ["=", "1", "link", "confirms"],
        ["-", "0", "html", "dropped"],
    ]
    assert "does not list" in lines[2]
    told = {line.split()[0]: line for line in lines[4:]}
    assert bank.key.kid in told["key"]
    assert told["service"].endswith("/.well-known/aiip/v1")
    assert "discovered" in told["decision"]
    assert "\x1b" not in ran.out
    assert any("ai://evil.localhost/x (unconfirmed" in line for line in lines)


def test_an_authority_with_many_resources_fits_a_screen(world: World, discover: Any) -> None:
    bank = world.sites["bank.localhost"]
    rows = [{"uri": f"ai://{bank.authority}/tool/{at}", "effects": "read"} for at in range(40)]
    bank.publish(endpoints=rows)
    ran = discover(bank.authority)
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) < 250
    assert " and 39 more" in ran.out
    assert len(discover("--json", bank.authority).json["sources"][0]["said"]) == 41


def test_programs_get_one_document(world: World, discover: Any) -> None:
    bank = world.sites["bank.localhost"]
    found = discover("--json", bank.uri).json
    assert found["ok"] is True
    assert found["authority"] == bank.authority
    assert found["keys"] == [bank.key.kid]
    assert found["connect"] is None
    assert found["sources"][0] == {
        "name": "anchor",
        "rank": 3,
        "verdict": "won",
        "said": [bank.uri],
        "why": "the authority's own document takes precedence",
        "location": bank.origin + DOCUMENT,
        "validated": False,
        "code": None,
    }
    assert found["candidates"][0]["confirmed"] is True
    assert "error" not in found


def test_a_conflict_is_told_and_ends_with_its_code(world: World, discover: Any) -> None:
    bank = world.sites["bank.localhost"]
    bank.put("/", "", link=f"<{bank.uri}>; rel=aiip, <{bank.uri}/2>; rel=aiip")
    ran = discover(bank.authority)
    assert ran.code == AIIP
    assert "! " in ran.out
    assert "rejected: " in ran.out
    assert "aiip.discovery-conflict" in ran.err
    ran = discover("--json", bank.authority)
    assert ran.code == AIIP
    assert ran.json["ok"] is False
    assert ran.json["error"]["code"] == "aiip.discovery-conflict"
    assert ran.json["error"]["exit_code"] == AIIP


def test_what_was_promised_is_remembered_between_runs(world: World, discover: Any) -> None:
    bank = world.sites["bank.localhost"]
    bank.publish(pin_max_age=3600, policy={"mtls": True})
    assert discover(bank.authority).code == 0
    bank.publish()
    assert "aiip.downgrade-detected" in discover(bank.authority).err


def test_an_unknown_host_shows_what_was_tried(world: World, discover: Any) -> None:
    bank = world.sites["bank.localhost"]
    bank.pages.clear()
    ran = discover("--json", bank.authority)
    assert ran.code == AIIP
    assert ran.json["service"] is None
    assert ran.json["sources"][0]["verdict"] == "absent"


def test_a_registry_name_without_a_registry_is_unknown(discover: Any) -> None:
    ran = discover("bank")
    assert ran.code == AIIP
    assert ran.out.startswith("x  3  registry")
    assert "anchor " not in ran.out
    assert "aiip.unknown-authority" in ran.err


def test_what_names_no_host_is_a_slip_of_the_command_line(discover: Any) -> None:
    ran = discover("http://bank.localhost/")
    assert ran.code == USAGE
    assert "usage.discover" in ran.err


def test_where_dns_leads_is_shown() -> None:
    from onym.ai.discovery.evaluation import Discovery
    from onym.cli._output import Session
    from onym.cli.commands.ai.client import _build_decision_rows, _build_discovery_record
    from onym.net.messages import Origin

    found = Discovery(
        authority="bank.example",
        anchor=None,
        document=None,
        kids=(),
        sources=(),
        candidates=(),
        connect=Origin("https", "aiip.bank.example", 8443),
    )
    record = _build_discovery_record(Session(), found)
    assert record["connect"] == "aiip.bank.example:8443"
    assert ("connect", "aiip.bank.example:8443 (signed SRV record)") in _build_decision_rows(found, record)
