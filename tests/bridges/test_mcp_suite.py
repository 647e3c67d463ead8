"""Foreign judges of the MCP bridge, whose tools are Onym resources: the conformance suite, the inspector."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_support import PATIENCE
from peer_install import node, npm_package
from suites_support import read_baseline, serve_mcp_tools

pytestmark = pytest.mark.xdist_group("mcp-suite")
_SUITES = Path(__file__).parent / "suites"
_SCENARIO = re.compile(r"(?:server-)?(.*?)-20\d\d-\d\d-\d\dT")


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with serve_mcp_tools() as url:
        yield url


def run_peer(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the suite's packages by Node itself, which ends with it."""
    modules, runtime = npm_package(_SUITES, "bridge-suites"), node()
    return subprocess.run(
        [runtime.program, str(modules / script), *arguments],
        cwd=folder,
        env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def run_suite(*arguments: str, folder: Path) -> tuple[int, dict[str, str], str]:
    """Run the conformance suite. Return how many checks pass, what it finds by check, and what it prints."""
    script = "@modelcontextprotocol/conformance/dist/index.js"
    # a scenario has 30 seconds otherwise, and those of a client start a process each
    patience = ("--timeout", str(int(PATIENCE * 1000)))
    done = run_peer(script, *arguments, *patience, "-o", str(folder), folder=folder)
    found: dict[str, str] = {}
    passed = 0
    for file in folder.rglob("checks.json"):
        scenario = _SCENARIO.match(str(file.parent.relative_to(folder)))
        assert scenario is not None
        for check in json.loads(file.read_text(encoding="utf-8")):
            passed += check["status"] == "SUCCESS"
            if check["status"] in {"FAILURE", "WARNING"}:
                found[f"{scenario[1]}/{check['id']}"] = check.get("errorMessage", check["description"])
    return passed, found, done.stdout[-2000:] + done.stderr[-2000:]


def compare(found: dict[str, str], baseline: str | None) -> None:
    """Assert that a suite finds exactly what is in the baseline, nothing without one."""
    known = {} if baseline is None else read_baseline(baseline)
    assert all(known.values()), "a line without a reason"
    assert {name: why for name, why in found.items() if name not in known} == {}
    assert known.keys() - found.keys() == set(), "these pass: remove them from the baseline"


@pytest.mark.parametrize(
    ("choice", "baseline", "least"),
    [
        (["--requirements", "2026-07-28"], "mcp_2026_07_28.txt", 145),
        (["--suite", "active", "--spec-version", "2025-11-25"], "mcp_2025_11_25.txt", 45),
    ],
    ids=["2026-07-28", "2025-11-25"],
)
def test_the_conformance_suite_finds_what_is_in_the_baseline_and_nothing_else(
    served: str, tmp_path: Path, choice: list[str], baseline: str, least: int
) -> None:
    passed, found, printed = run_suite("server", "--url", served, *choice, folder=tmp_path)
    assert passed >= least, printed
    compare(found, baseline)


@pytest.mark.parametrize(
    ("choice", "baseline", "least"),
    [
        (["--requirements", "2026-07-28"], None, 402),
        (["--suite", "backcompat", "--spec-version", "2025-03-26"], "mcp_client_2025_03_26.txt", 0),
    ],
    ids=["2026-07-28", "2025-03-26"],
)
def test_the_suite_for_oauth_clients_finds_what_is_in_the_baseline_and_nothing_else(
    tmp_path: Path, choice: list[str], baseline: str | None, least: int
) -> None:
    # a requirement set has scenarios of MCP itself as well, of which this client knows nothing
    command = tmp_path / "client.sh"
    run = f'exec "{sys.executable}" "{_SUITES / "oauth_client.py"}" "$1"'
    command.write_text(f'case "$MCP_CONFORMANCE_SCENARIO" in auth/*) {run} ;; esac\n', encoding="utf-8")
    passed, found, printed = run_suite("client", "--command", f"sh {command}", *choice, folder=tmp_path)
    assert passed >= least, printed
    compare({name: why for name, why in found.items() if name.startswith("auth/")}, baseline)


def inspect(served: str, folder: Path, *arguments: str) -> Any:
    script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    done = run_peer(script, "--cli", served, "--transport", "http", *arguments, folder=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_inspector_lists_and_calls_the_tools(served: str, tmp_path: Path) -> None:
    tools = inspect(served, tmp_path, "--method", "tools/list")["tools"]
    assert "greet" in [tool["name"] for tool in tools]
    asked = ("--method", "tools/call", "--tool-name", "greet", "--tool-arg", "name=Ada")
    result = inspect(served, tmp_path, *asked)
    assert result["content"] == [{"type": "text", "text": "Hello, Ada!"}]
    assert result["_meta"]["aiip-receipt"].count(".") == 2
