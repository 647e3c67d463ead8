"""Several processes on one port: who answers, who is replaced, and how they end."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from onym.errors import ConfigError
from onym.server.workers import require_workers, run_workers
from workers_support import Processes, fail_to_start, serve_pid, supervise

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_process_serves_and_a_killed_one_is_replaced(tmp_path: Path) -> None:
    """The failure matrix of 7: a machine that is killed."""
    seen: set[int] = set()

    def scenario(processes: Processes) -> None:
        killed, other = processes.pids
        processes.wait_until(lambda found: found == {killed, other})
        os.kill(killed, signal.SIGKILL)
        found = processes.wait_until(lambda found: other in found and len(found) == 2 and killed not in found)
        seen.update(found)

    supervise(scenario, str(tmp_path))
    assert len(seen) == 2
    assert not any(is_running(pid) for pid in seen)


def test_too_many_deaths_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # a busy machine may take longer than a minute to start the one that replaces the first
    monkeypatch.setattr("onym.server.workers._RESTART_SECONDS", 3600.0)

    def scenario(processes: Processes) -> None:
        first, second = processes.pids
        os.kill(first, signal.SIGKILL)
        (third,) = processes.wait_until(lambda found: second in found and len(found) == 2) - {second}
        os.kill(third, signal.SIGKILL)
        processes.wait_until(lambda found: found == {second})
        os.kill(second, signal.SIGKILL)
        processes.over.wait()

    with pytest.raises(ConfigError) as caught:
        supervise(scenario, str(tmp_path), most_restarts=1)
    assert caught.value.code == "config.workers-died"
    assert sum("ended with signal 9" in record.message for record in caplog.records) == 3


def test_a_hangup_replaces_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    def scenario(processes: Processes) -> None:
        before = set(processes.pids)
        os.kill(os.getpid(), signal.SIGHUP)
        after = processes.wait_until(lambda found: len(found) == 2 and not found & before)
        # new processes that do not start replace nothing
        (tmp_path / "broken").touch()
        os.kill(os.getpid(), signal.SIGHUP)
        while not any("the store is gone" in record.message for record in caplog.records):
            processes.answering()
        assert processes.wait_until(lambda found: len(found) == 2) == after

    supervise(scenario, str(tmp_path))


def test_a_process_that_does_not_start_is_an_error_of_the_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        supervise(lambda _: None, str(tmp_path), target=fail_to_start)
    assert caught.value.code == "config.no-keys"


def test_a_port_of_another_server_is_not_shared(tmp_path: Path) -> None:
    """SO_REUSEPORT would let two servers of one user take each other's connections."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            run_workers(serve_pid, str(tmp_path), count=2, host="127.0.0.1", port=port, ready=lambda _: None)
    assert caught.value.code == "config.cannot-listen"


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError) as caught:
        require_workers()
    assert caught.value.code == "config.no-workers"


def test_an_error_of_the_caller_ends_the_processes(tmp_path: Path) -> None:
    seen: list[int] = []

    def ready(reports: list[Any]) -> None:
        seen.extend(pid for pid, _ in reports)
        raise ConfigError("they differ", code="config.not-shared")

    with pytest.raises(ConfigError):
        run_workers(serve_pid, str(tmp_path), count=2, host="127.0.0.1", port=0, ready=ready)
    assert len(seen) == 2
    assert not any(is_running(pid) for pid in seen)
