"""`onym ai invoke --async` and `onym ai tasks` against a real endpoint on this machine."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ai_factory import Factory
from ai_support import PATIENCE, authority_ca, key_store, serve_authority, trust
from cli.conftest import PATIENT
from onym.ai.endpoint import Endpoint, Task, ThreadTask
from onym.cli._app import app

#: /slow has begun, and may end
BEGUN, GO = threading.Event(), threading.Event()


@dataclass
class Zone:
    zone: str


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    folder = tmp_path_factory.mktemp("factory")
    keys, ca = key_store(folder), authority_ca()

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=keys, store=folder / "keys.sqlite")

        @app.resource("/slow", effects="write", task=True)
        def slow(load: int, task: ThreadTask) -> dict[str, int]:
            task.progress(1, 2, "half \x1b[31mred")
            BEGUN.set()
            GO.wait(PATIENCE)
            task.raise_if_cancelled()
            return {"moved": load}

        @app.resource("/ask", task=True)
        async def ask(task: Task) -> str:
            return (await task.ask(Zone, "Which zone?")).zone

        @app.resource("/plain")
        def plain() -> int:
            return 1

        return app

    with serve_authority(make, "factory.localhost", ca=ca) as (served, authority):
        trust(ca, folder)
        yield Factory(served, authority, keys, folder, ca)
        GO.set()


@pytest.fixture
def run(factory: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    wire = ["--ca", str(factory.folder / "authority.pem"), "--no-dns"]

    def call(*words: str, network: bool = True) -> Result:
        given = ["ai", *words, *(wire if network else ())]
        return CliRunner().invoke(app, given, prog_name="onym", default_map=PATIENT)

    return call


def test_a_task_is_begun_shown_and_ended(run: Any, factory: Factory, tmp_path: Path) -> None:
    GO.clear()
    BEGUN.clear()
    begun = run("invoke", factory.uri("/slow"), "-d", '{"load": 7}', "--async")
    assert begun.exit_code == 15, begun.output
    task = begun.stdout.strip()
    assert f"onym ai tasks result {task[:8]} --" in begun.stderr
    assert task not in begun.stderr
    listed = run("tasks", "list", network=False)
    assert (listed.exit_code, task in listed.stdout) == (0, True)
    rows = json.loads(run("tasks", "list", "--json", network=False).stdout)["tasks"]
    assert [row["id"] for row in rows] == [task]
    file = tmp_path / "state" / "onym" / "aiip-tasks.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    early = run("tasks", "result", task[:6])
    assert (early.exit_code, early.stdout) == (15, "")
    waited = run("tasks", "wait", task, "--wait", "0.1s", "--json")
    assert waited.exit_code == 15
    assert json.loads(waited.stdout)["error"]["task"] == task
    assert BEGUN.wait(PATIENCE)
    shown = run("tasks", "show", task)
    assert "working" in shown.stdout
    assert "\x1b[31m" not in shown.stdout
    GO.set()
    ended = run("tasks", "wait", task)
    assert (ended.exit_code, "completed" in ended.stdout) == (0, True)
    result = run("tasks", "result", task, "--save", str(tmp_path / "out"))
    assert (result.exit_code, result.stdout) == (0, '{"moved":7}')
    assert (tmp_path / "out" / "receipt.jwt").exists()
    events = run("tasks", "events", task, "--json")
    lines = [json.loads(line) for line in events.stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert run("tasks", "events", task).stdout.splitlines()[-1].split()[1] == "state"
    over = run("tasks", "cancel", task)
    assert (over.exit_code, "ended already" in over.stderr) == (13, True)


def test_a_result_that_comes_in_time_is_printed(run: Any, factory: Factory) -> None:
    GO.set()
    found = run("invoke", factory.uri("/slow"), "-d", '{"load": 7}', "--async", "--wait", "600s")
    assert (found.exit_code, found.stdout) == (0, '{"moved":7}')
    plain = run("invoke", factory.uri("/plain"), "--async")
    assert (plain.exit_code, plain.stdout) == (0, "1")


def test_a_wait_that_is_over_tells_the_task(run: Any, factory: Factory) -> None:
    GO.clear()
    BEGUN.clear()
    found = run("invoke", factory.uri("/slow"), "-d", '{"load": 7}', "--async", "--wait", "0.1s")
    task = json.loads(run("tasks", "list", "--json", network=False).stdout)["tasks"][0]["id"]
    assert found.exit_code == 15
    assert "onym ai tasks wait --ca" in found.stderr
    assert f"--no-dns {task}\n" in found.stderr
    assert BEGUN.wait(PATIENCE)
    canceled = run("tasks", "cancel", task)
    assert (canceled.exit_code, "to be cancelled" in canceled.stdout) == (0, True)
    GO.set()
    assert "canceled" in run("tasks", "wait", task).stdout
    failed = run("tasks", "result", task)
    assert (failed.exit_code, failed.stdout) == (13, "")


def test_a_task_gets_its_input(run: Any, factory: Factory) -> None:
    task = run("invoke", factory.uri("/ask"), "--async").stdout.strip()
    asked = run("tasks", "wait", task)
    assert "Which zone?" in asked.stdout
    assert run("tasks", "input", task, "-d", "[]").exit_code == 2
    assert run("tasks", "input", task, "-d", '{"zone": "A3"}').exit_code == 0
    assert run("tasks", "result", task, "--wait", "600s").stdout == "A3"


def test_mistakes_are_told(run: Any, factory: Factory, tmp_path: Path) -> None:
    assert run("invoke", factory.uri("/plain"), "--wait", "3s").exit_code == 2
    assert run("invoke", factory.uri("/plain"), "--async", "--stream").exit_code == 2
    unknown = run("tasks", "show", "nothing")
    assert (unknown.exit_code, "has begun no task nothing" in unknown.stderr) == (2, True)
    assert "no tasks" in run("tasks", "list", network=False).stderr
    for _ in range(2):
        assert run("invoke", factory.uri("/ask"), "--async").exit_code == 15
    assert "2 tasks" in run("tasks", "show", "").stderr
    (tmp_path / "state" / "onym" / "aiip-tasks.json").write_text("{")
    assert run("tasks", "list", network=False).exit_code == 4
