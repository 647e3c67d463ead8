"""Completion in real shells, and the manual page as man reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import onym.cli
from model_support import unavailable

DATA = Path(onym.cli.__file__).with_name("data")
#: what a shell runs to complete `onym chat f` and `onym conf`, and to print what it offers
SESSIONS = {
    "bash": """
        source "$SCRIPT"
        COMP_WORDS=(onym chat f) COMP_CWORD=2; _onym_completion onym f chat; echo "${COMPREPLY[@]}"
        COMP_WORDS=(onym conf) COMP_CWORD=1; _onym_completion onym conf onym; echo "${COMPREPLY[@]}"
    """,
    "zsh": """
        autoload -Uz compinit; compinit -u -d "$HOME/dump"
        _describe() { print -rl -- ${(P)3}; }; compadd() { print -rl -- ${(P)@[-1]}; }
        words=(onym chat f) CURRENT=3; source "$SCRIPT"; _onym_completion
        words=(onym conf) CURRENT=2; _onym_completion
    """,
    "fish": """
        source "$SCRIPT"
        complete --do-complete 'onym chat f'
        complete --do-complete 'onym conf'
    """,
}
FILES = {"bash": "onym.bash", "zsh": "_onym", "fish": "onym.fish"}


@pytest.mark.parametrize("shell", SESSIONS)
def test_a_shell_completes_commands_and_the_names_of_endpoints(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        unavailable(f"{shell} is not installed: apt-get install {shell}")
    config = tmp_path / "config.toml"
    config.write_text(
        '[endpoints]\nfast = "llm://h.example/m"\nfancy = "llm://h.example/n"\nslow = "llm://h.example/o"\n',
        encoding="utf-8",
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    done = subprocess.run(
        [program, *(["--norc"] if shell == "bash" else ["-f"] if shell == "zsh" else ["--no-config"])],
        input=SESSIONS[shell],
        env={
            "PATH": path, "HOME": str(tmp_path), "ONYM_CONFIG": str(config), "LANG": "C.UTF-8",
            "SCRIPT": str(DATA / "completions" / FILES[shell]),
        },
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    offered = {word.partition(":")[0] for word in done.stdout.split()}
    assert {"fast", "fancy", "config", "conformance"} <= offered, done.stdout + done.stderr
    assert "slow" not in offered


def test_man_and_mandoc_find_nothing_wrong_with_the_page() -> None:
    page = DATA / "onym.1"
    man, mandoc = shutil.which("man"), shutil.which("mandoc")
    if man is None and mandoc is None:
        unavailable("neither man nor mandoc is installed: apt-get install man-db mandoc")
    if mandoc is not None:
        done = subprocess.run(
            [mandoc, "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    if man is not None:
        done = subprocess.run(
            [man, "--warnings", "-l", str(page)],
            env=os.environ | {"MANWIDTH": "80", "LANG": "C.UTF-8"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if "No such file" not in done.stderr and "not found" not in done.stderr:
            assert (done.returncode, done.stderr) == (0, "")
            text = done.stdout.replace("\b", "")
            assert "onym chat [OPTIONS] URI" in text
            assert "EXIT STATUS" in text
