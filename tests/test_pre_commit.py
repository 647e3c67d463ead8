"""The hooks of .pre-commit-hooks.yaml, run by pre-commit in a repository that uses them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from model_support import unavailable
from support import ROOT

KEY = "Zq8vT2mLx0Wc5RnB7yKd3Fh"
CONFIG = """\
repos:
  - repo: {hooks}
    rev: {revision}
    hooks: [{{ id: onym-redact, language: system }}, {{ id: onym-check, language: system }}]
"""


def git(folder: Path, *arguments: str, environ: dict[str, str]) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """No settings of this machine: git's, pre-commit's and Onym's are in a folder of the test."""
    if shutil.which("git") is None:
        unavailable("git is not installed: apt-get install git")
    people = {
        f"GIT_{role}_{what}": "a@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    return {
        **people,
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PRE_COMMIT_HOME": str(tmp_path / "pre-commit"),
    }


@pytest.fixture
def repository(tmp_path: Path, environ: dict[str, str]) -> Path:
    """A repository that takes its hooks from another one, with this checkout's definitions."""
    hooks, own = tmp_path / "hooks", tmp_path / "own"
    for folder in (hooks, own):
        folder.mkdir()
        git(folder, "init", "--quiet", environ=environ)
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    git(hooks, "add", ".", environ=environ)
    git(hooks, "commit", "--quiet", "--message", "hooks", environ=environ)
    revision = git(hooks, "rev-parse", "HEAD", environ=environ)
    # as if installed already: an environment of its own would fetch Onym from the package index
    (own / ".pre-commit-config.yaml").write_text(
        CONFIG.format(hooks=hooks, revision=revision), encoding="utf-8"
    )
    return own


def run_hooks(repository: Path, environ: dict[str, str]) -> tuple[int, str]:
    git(repository, "add", ".", environ=environ)
    program = Path(sys.executable).with_name("pre-commit")
    done = subprocess.run(
        [str(program), "run", "--color", "never"],
        cwd=repository, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_the_hooks_find_a_credential_and_a_wrong_uri_and_pass_without(
    repository: Path, environ: dict[str, str]
) -> None:
    file = repository / "deploy.env"
    file.write_text(f"OPENAI_API_KEY={KEY}\nLLM_URI=llm://ollama/llama3:8b\n", encoding="utf-8")
    code, printed = run_hooks(repository, environ)
    assert code == 1, printed
    assert printed.count("Failed") == 2
    assert "deploy.env:1:16: credential" in printed
    assert "deploy.env:2:9:" in printed
    assert "fix: llm://ollama/llama3%3A8b" in printed
    assert KEY not in printed
    file.write_text("LLM_URI=llm://ollama/llama3%3A8b\n", encoding="utf-8")
    code, printed = run_hooks(repository, environ)
    assert code == 0, printed
    assert printed.count("Passed") == 2


def test_the_definitions_are_valid(environ: dict[str, str]) -> None:
    program = Path(sys.executable).with_name("pre-commit")
    manifest = str(ROOT / ".pre-commit-hooks.yaml")
    done = subprocess.run(
        [str(program), "validate-manifest", manifest],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
