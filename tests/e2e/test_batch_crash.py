"""A batch that is killed again and again answers every row exactly once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batch_support import Server, read_results, write_rows
from support import untraced

#: between two kills, more than may wait to be durable
ROWS, KILLS = 10_000, 5
#: the same on a cluster, which is slow to start
RAY_ROWS, RAY_KILLS = 5_000, 2
CONCURRENCY = 32
#: results that may wait to be durable (`_driver.py`)
UNDURABLE = 1024


def start(args: list[str], tmp_path: Path) -> subprocess.Popen[bytes]:
    environment = {**untraced(), "XDG_CONFIG_HOME": str(tmp_path / "none")}
    return subprocess.Popen(
        [sys.executable, "-m", "onym", "batch", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment,
    )


@pytest.mark.requirement("onym-batch-a")
@pytest.mark.parametrize("order", ["input", "completion"])
def test_ten_thousand_rows_killed_five_times_are_each_answered_once(tmp_path: Path, order: str) -> None:
    source, output = write_rows(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl"
    with Server(rate=0.05, seed=7) as server:
        args = [server.uri, str(source), "-o", str(output), "--concurrency", str(CONCURRENCY)]
        args += ["--order", order, "--json"]
        for kill in range(KILLS):
            asked = (kill + 1) * ROWS // (KILLS + 2)
            server.hold(asked)
            process = start(args, tmp_path)
            server.wait(asked)
            process.kill()
            assert process.wait(timeout=600) == -9
            server.release()
            process.communicate()
        process = start(args, tmp_path)
        out, complaint = process.communicate(timeout=3000)
        counts = server.counts()
    assert (process.returncode, complaint) == (0, b"")
    report, results = json.loads(out), read_results(output)
    assert report["answered"] == ROWS
    assert 0 < report["before"] < ROWS
    assert sorted(row["index"] for row in results) == list(range(ROWS))
    assert {row["id"] for row in results} == {f"row-{at}" for at in range(ROWS)}
    assert all(row["status"] == "ok" and row["text"] == f"ASK {row['index']}" for row in results)
    if order == "input":
        assert [row["index"] for row in results] == list(range(ROWS))
    # what was under way, or not durable yet, at a kill is asked again, and nothing else
    assert counts["refused"] > ROWS * 0.04
    again = counts["total"] - counts["refused"] - ROWS
    assert again == sum(counts["answered"].values()) - ROWS
    assert 0 <= again <= KILLS * (CONCURRENCY + UNDURABLE)
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl", "out.jsonl.batch"}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Ray cluster of two nodes, both on this machine."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    for name in set(os.environ) - set(untraced()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.mark.requirement("onym-batch-a")
@pytest.mark.xdist_group("ray")
def test_two_ray_nodes_answer_each_row_once_though_the_driver_is_killed_twice(
    tmp_path: Path, nodes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes)
    source, output = write_rows(tmp_path / "in.jsonl", RAY_ROWS), tmp_path / "out.jsonl"
    with Server(rate=0.05, seed=11) as server:
        args = [server.uri, str(source), "-o", str(output), "--concurrency", str(CONCURRENCY)]
        args += ["--engine", "ray", "--json"]
        for kill in range(RAY_KILLS):
            asked = (kill + 1) * RAY_ROWS // (RAY_KILLS + 2)
            server.hold(asked)
            process = start(args, tmp_path)
            server.wait(asked)
            process.kill()
            assert process.wait(timeout=600) == -9
            server.release()
            process.communicate()
        process = start(args, tmp_path)
        out, complaint = process.communicate(timeout=3000)
        counts = server.counts()
    assert process.returncode == 0, complaint
    report, results = json.loads(out.splitlines()[-1]), read_results(output)
    assert report["answered"] == RAY_ROWS
    assert 0 < report["before"] < RAY_ROWS
    assert [row["index"] for row in results] == list(range(RAY_ROWS))
    assert all(row["status"] == "ok" and row["text"] == f"ASK {row['index']}" for row in results)
    # leased rows are as good as under way: two chunks of 64 rows on each of two nodes
    again = sum(counts["answered"].values()) - RAY_ROWS
    assert 0 <= again <= RAY_KILLS * (2 * 2 * 64 + UNDURABLE)
