"""`make quick`: which tests it selects for which changes, and that it stops in time."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from support import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import quick

TESTS = {
    "tests/test_public_api.py": "",
    "tests/test_errors.py": "",
    "tests/gateway_support.py": "",
    "tests/net/conftest.py": "",
    "tests/net/test_policy.py": "from onym.net.policy import Policy",
    "tests/net/test_guard.py": "from onym.net import guard, policy",
    "tests/net/test_policy_files.py": "",
    "tests/net/test_hosts.py": "from onym.net.policy_other import x",
    "tests/llm/batch/test_run.py": "from onym.net.policy import Policy",
    "tests/llm/batch/test_sets.py": "from gateway_support import serve",
    "tests/llm/test_client.py": "",
    "tests/docs/test_help.py": "from gateway_support import serve",
    "tests/e2e/test_house.py": "",
    "tests/tools/test_quick.py": "",
}
SMOKE = ["tests/test_public_api.py", "tests/test_errors.py"]


@pytest.mark.parametrize(
    ("changed", "selected"),
    [
        ([], []),
        (["README.md", "uv.lock"], []),
        # by the name of the module, and by an import in the same part of the tests
        (
            ["src/onym/net/policy.py"],
            ["tests/net/test_policy.py", "tests/net/test_policy_files.py", "tests/net/test_guard.py"],
        ),
        # nothing has its name or imports it: the folder that mirrors its own, or the nearest
        (["src/onym/llm/batch/_ledger.py"], ["tests/llm/batch/test_run.py", "tests/llm/batch/test_sets.py"]),
        (["src/onym/llm/dialects/ollama.py"], ["tests/llm/test_client.py"]),
        (["src/onym/llm/providers/data/table.toml"], ["tests/llm/test_client.py"]),
        (["src/onym/py.typed"], []),
        (["tests/llm/test_client.py"], ["tests/llm/test_client.py"]),
        (["tests/gateway_support.py"], ["tests/llm/batch/test_sets.py"]),
        (
            ["tests/net/conftest.py"],
            [f"tests/net/test_{name}.py" for name in ("guard", "hosts", "policy", "policy_files")],
        ),
        (["tools/quick.py"], ["tests/tools/test_quick.py"]),
        # left to `make test`, or deleted
        (["tests/docs/test_help.py", "tests/e2e/test_house.py", "tests/net/test_gone.py"], []),
    ],
)
def test_the_tests_that_mirror_the_changes_are_selected(changed: list[str], selected: list[str]) -> None:
    assert quick.select_tests(changed, TESTS) == [*SMOKE, *selected]


def test_every_smoke_test_exists() -> None:
    assert set(quick.SMOKE) <= set(quick.read_tests())


def test_changed_files_are_those_of_git(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        ("merge-base", "HEAD", "origin/main"): ["0123abcd"],
        ("diff", "--name-only", "0123abcd"): ["src/onym/errors.py"],
        ("ls-files", "--others", "--exclude-standard"): ["new.py"],
    }
    monkeypatch.setattr(quick, "_git", lambda *arguments: answers.get(arguments, []))
    assert quick.list_changed_files() == ["new.py", "src/onym/errors.py"]


@pytest.mark.parametrize(("seconds", "stopped"), [(3_600, False), (-1, True)])
def test_no_test_is_started_after_the_deadline(seconds: int, stopped: bool) -> None:
    workers = SimpleNamespace(shouldstop=False)
    plugins = SimpleNamespace(get_plugin=lambda name: workers if name == "dsession" else None)
    deadline = quick.Deadline(seconds)
    deadline.pytest_sessionstart(SimpleNamespace(config=SimpleNamespace(pluginmanager=plugins)))
    report: Any = SimpleNamespace(failed=True, when="call")
    deadline.pytest_runtest_logreport(report)
    assert (deadline.ran, deadline.failed, deadline.stopped) == (1, True, stopped)
    assert bool(workers.shouldstop) is stopped
