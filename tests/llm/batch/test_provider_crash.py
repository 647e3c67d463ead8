"""A real `onym batch --provider-batch` is killed at each step: nothing is lost, and nothing is paid twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batch_api_server import KEY, MODEL, AnthropicServer, BatchServer, OpenAIServer
from batch_support import read_results, write_rows
from support import untraced

ROWS = 5
OURS = {"in.jsonl", "out.jsonl", "out.jsonl.batch", "config.toml"}
ROW = """
[policy]
allow_loopback = true

[providers.capture]
title = "Capture"
hosts = ["127.0.0.1"]
default_port = {port}
dialect = "anthropic_messages"
base_path = ""
key_header = "x-api-key"
key_prefix = ""
docs = "https://example.com"
source = "test"
checked = "2026-11-21"
"""
SERVERS = {"openai": OpenAIServer, "anthropic": AnthropicServer}
STEPS = [
    *[("openai", step, when) for step in ("upload", "create") for when in ("before", "after")],
    ("openai", "look", "after"),
    ("openai", "results", "half"),
    *[("anthropic", "create", when) for when in ("before", "after")],
    ("anthropic", "look", "after"),
    ("anthropic", "results", "half"),
]


def start(server: BatchServer, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    if isinstance(server, AnthropicServer):
        config = folder / "config.toml"
        config.write_text(ROW.format(port=server.port))
        environment["ONYM_CONFIG"] = str(config)
    uri = f"llm://x:{KEY}@127.0.0.1:{server.port}/{MODEL}"
    args = ["batch", uri, str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"), "--provider-batch"]
    return subprocess.Popen(
        [sys.executable, "-m", "onym", *args, "--poll", "0s", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=untraced(environment),
    )


def kill_at(server: BatchServer, folder: Path, step: str, when: str, *more: str) -> None:
    """Start a run, and kill it while the server has this request."""
    server.hold(step, when)
    process = start(server, folder, *more)
    while not server.held.wait(0.05):
        assert process.poll() is None, process.communicate()
    process.kill()
    assert process.wait(600) == -signal.SIGKILL
    process.communicate()
    server.release()


def end(server: BatchServer, folder: Path, *more: str) -> dict:
    process = start(server, folder, "--json", *more)
    out, complaint = process.communicate(timeout=600)
    assert process.returncode == 0, (out, complaint)
    assert KEY.encode() not in out + complaint
    return json.loads(out)


@pytest.mark.parametrize(("name", "step", "when"), STEPS)
def test_a_run_killed_at_any_step_answers_each_row_once_and_creates_no_batch_twice(
    tmp_path: Path, name: str, step: str, when: str
) -> None:
    write_rows(tmp_path / "in.jsonl", ROWS)
    with SERVERS[name]() as server:
        kill_at(server, tmp_path, step, when)
        report = end(server, tmp_path)
    assert report["answered"] == ROWS
    results = read_results(tmp_path / "out.jsonl")
    assert [row["id"] for row in results] == [f"row-{at}" for at in range(ROWS)]
    assert [row["text"] for row in results] == [f"ASK {at}" for at in range(ROWS)]
    # what the provider has to be paid for: each prompt once
    assert len(server.batches) == 1
    assert set(server.asked.values()) == {1}
    assert {path.name for path in tmp_path.iterdir()} <= OURS


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_run_killed_at_every_step_in_turn_is_still_paid_once(tmp_path: Path, name: str) -> None:
    write_rows(tmp_path / "in.jsonl", ROWS)
    with SERVERS[name]() as server:
        server.states = ["in_progress"] * 3
        for step, when in (("create", "after"), ("list", "after"), ("look", "after"), ("results", "half")):
            kill_at(server, tmp_path, step, when)
        report = end(server, tmp_path)
    assert report["answered"] == ROWS
    assert len(server.batches) == 1
    assert set(server.asked.values()) == {1}


def test_a_batch_that_may_be_ours_and_is_not_costs_nothing_and_its_results_are_not_taken(
    tmp_path: Path,
) -> None:
    # Anthropic's list shows no marker: another batch of as many requests has to be told by its results
    write_rows(tmp_path / "in.jsonl", ROWS)
    with AnthropicServer() as server:
        other = tmp_path / "other"
        other.mkdir()
        write_rows(other / "in.jsonl", ROWS)
        kill_at(server, other, "look", "after")
        assert len(server.batches) == 1
        kill_at(server, tmp_path, "create", "before")
        report = end(server, tmp_path)
        assert report["answered"] == ROWS
        assert len(server.batches) == 2
        assert end(server, other)["answered"] == ROWS
    assert set(server.asked.values()) == {2}


def test_the_second_of_two_batches_is_found_again_and_the_first_is_not_touched(tmp_path: Path) -> None:
    rows = 50_003
    write_rows(tmp_path / "in.jsonl", rows)
    with OpenAIServer() as server:
        server.states = []
        kill_at(server, tmp_path, "create", "before")
        kill_at(server, tmp_path, "results", "half")
        report = end(server, tmp_path)
        assert report["answered"] == rows
        assert sorted(len(batch["rows"]) for batch in server.batches.values()) == [3, 50_000]
    assert len(server.asked) == rows
    assert set(server.asked.values()) == {1}
    assert [row["index"] for row in read_results(tmp_path / "out.jsonl")] == list(range(rows))


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_ctrl_c_leaves_the_batch_at_the_provider_and_says_how_to_go_on(tmp_path: Path, name: str) -> None:
    write_rows(tmp_path / "in.jsonl", ROWS)
    with SERVERS[name]() as server:
        server.states = ["in_progress"] * 1000
        server.hold("look", "after")
        process = start(server, tmp_path, "--poll", "3600s")
        while not server.held.wait(0.05):
            assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        server.release()
        out, complaint = process.communicate(timeout=600)
        assert (process.returncode, out) == (130, b"")
        said = complaint.decode()
        assert "continue; to resume, run: onym batch" in said
        assert "--provider-batch" in said
        assert "Traceback" not in said
        assert KEY not in said
        assert "cancel" not in server.steps()
        server.batches[next(iter(server.batches))]["states"] = []
        assert end(server, tmp_path)["answered"] == ROWS
    assert len(server.batches) == 1
    assert set(server.asked.values()) == {1}


def test_cancel_ends_the_batch_takes_what_it_has_and_leaves_the_rest_to_be_asked_again(
    tmp_path: Path,
) -> None:
    write_rows(tmp_path / "in.jsonl", ROWS)
    with OpenAIServer() as server:
        server.states = ["in_progress"] * 1000
        kill_at(server, tmp_path, "look", "after")
        process = start(server, tmp_path, "--cancel", "--yes", "--json")
        out, complaint = process.communicate(timeout=600)
        assert process.returncode == 1, complaint
        report = json.loads(out)
        assert (report["answered"], report["failed"], report["left"]) == (3, 2, 0)
        results = read_results(tmp_path / "out.jsonl")
        errors = [row["error"] for row in results if row["status"] == "error"]
        assert {error["code"] for error in errors} == {"provider.batch-cancelled"}
        assert "cancel" in server.steps()
        server.states = []
        report = end(server, tmp_path, "--retry-errors")
        assert report["answered"] == ROWS
        assert [len(batch["rows"]) for batch in server.batches.values()] == [5, 2]
    assert set(server.asked.values()) == {1}
