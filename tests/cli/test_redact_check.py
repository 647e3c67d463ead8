"""`onym redact --check`: credentials make it fail, by place and never by text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_support import unavailable

KEY = "Zq8vT2mLx0Wc5RnB7yKd3Fh"


@pytest.fixture
def tree(tmp_path):
    """A folder with two credentials in two files, and what a search skips."""
    files = {
        ".env": f"A=1\nOPENAI_API_KEY={KEY}\n",
        "src/app.py": f"\n\nurl = '//app:{KEY}@h.example/m'\n",
        "src/clean.py": "print('llm://h/m?auth=env:OPENAI_API_KEY')\n",
        "src/image.bin": f"\0 llm://app:{KEY}@h/m",
        ".git/config": f"llm://app:{KEY}@h/m",
        "node_modules/x.js": f"llm://app:{KEY}@h/m",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.requirement("llm-10.1-a")
def test_a_credential_fails_the_check_and_is_not_printed(run, tree):
    ran = run("redact", "--check", str(tree / ".env"), str(tree / "src" / "app.py"))
    assert ran.code == 1
    assert ran.out.splitlines() == [f"{tree}/.env:2:16: credential", f"{tree}/src/app.py:3:14: credential"]
    assert KEY not in ran.err
    assert "2 credentials; searched 2 files" in ran.err


def test_text_without_a_credential_passes_the_check(run, tree):
    ran = run("redact", "--check", str(tree / "src" / "clean.py"))
    assert (ran.code, ran.out) == (0, "")
    assert run("redact", "--check", stdin="llm://app:***@h/m\n").code == 0


def test_a_folder_without_check_is_told_what_reads_it(run, tree):
    ran = run("redact", str(tree))
    assert ran.code == 2
    assert "onym redact --check" in ran.err


def test_standard_input_is_not_counted_as_a_file(run):
    ran = run("redact", "--check", stdin=f"llm://app:{KEY}@h/m\n")
    assert ran.code == 1
    assert "1 credential; searched standard input" in ran.err


def test_a_folder_is_searched_without_binary_files_and_version_control(run, tree):
    ran = run("redact", "--check", "--json", str(tree))
    assert ran.code == 1
    assert ran.json == {
        "ok": False,
        "files": 3,
        "skipped": 1,
        "found": [
            {"file": f"{tree}/.env", "line": 2, "column": 16},
            {"file": f"{tree}/src/app.py", "line": 3, "column": 14},
        ],
    }
    (tree / ".env").unlink()
    (tree / "src" / "app.py").unlink()
    assert run("redact", "--check", "--json", str(tree)).json["ok"] is True


def test_a_binary_file_that_is_named_is_searched(run, tree):
    assert run("redact", "--check", str(tree / "src" / "image.bin")).code == 1


def test_a_link_in_a_folder_is_not_followed(run, tree, tmp_path_factory):
    target = tmp_path_factory.mktemp("elsewhere") / "secret"
    target.write_text(f"llm://app:{KEY}@h/m", encoding="utf-8")
    folder = tree / "links"
    folder.mkdir()
    (folder / "to-file").symlink_to(target)
    (folder / "to-folder").symlink_to(target.parent)
    assert run("redact", "--check", "--json", str(folder)).json["files"] == 0
    assert run("redact", "--check", str(folder / "to-file")).code == 1


def test_standard_input_is_checked_if_no_file_is_named(run):
    ran = run("redact", "--check", stdin=f"a\nb //app:{KEY}@h/m\n")
    assert (ran.code, ran.out) == (1, "-:2:9: credential\n")


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_quiet_check_only_has_an_exit_code(run, tree, json):
    for name, code in ((".env", 1), ("src/clean.py", 0)):
        assert run("redact", *json, "--check", "--quiet", str(tree / name)) == (code, "", "")


def test_a_missing_file_is_an_error_and_not_a_passed_check(run, tree):
    assert run("redact", "--check", str(tree / "src" / "clean.py"), str(tree / "missing")).code == 2


#: root may read every folder, unless it gives up these two of its powers
_WITHOUT_POWERS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.skipif(sys.platform == "win32", reason="no mode of a folder keeps its owner out")
def test_a_folder_that_cannot_be_read_is_an_error(environment, tree):
    (tree / "src").chmod(0)
    command = [sys.executable, "-m", "onym", "redact", "--check", "--json", str(tree)]
    if os.geteuid() == 0:
        command = _WITHOUT_POWERS + command
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    finally:
        (tree / "src").chmod(0o700)
    assert done.returncode == 74
    assert KEY not in done.stdout + done.stderr


def test_a_key_in_the_name_of_a_file_is_masked(run, tmp_path):
    path = tmp_path / f"api_key={KEY}"
    path.write_text(f"//app:{KEY}@h/m", encoding="utf-8")
    ran = run("redact", "--check", str(path))
    assert ran.code == 1
    assert KEY not in ran.out + ran.err


def test_the_check_stops_a_commit(environment, tmp_path):
    """As the how-to shows it: staged files are checked by a hook, which git runs before a commit."""
    repo = tmp_path / "repo"
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}

    def git(*args):
        command = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@h.example", *args]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    repo.mkdir()
    if git("init", "-q").returncode:
        unavailable("git is not installed")
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        f'#!/bin/sh\nPATH="{Path(sys.executable).parent}:$PATH"\n'
        "git diff --cached --name-only -z --diff-filter=d | xargs -0 -r onym redact --check\n",
        encoding="utf-8",
    )
    hook.chmod(0o755)
    (repo / ".env").write_text(f"LLM_URI=llm://app:{KEY}@h/m\n", encoding="utf-8")
    git("add", ".")
    stopped = git("commit", "-m", "x")
    assert stopped.returncode
    assert ".env:1:19: credential" in stopped.stdout + stopped.stderr
    assert KEY not in stopped.stdout + stopped.stderr
    (repo / ".env").write_text("LLM_URI=llm://h/m\n", encoding="utf-8")
    git("add", ".")
    assert git("commit", "-m", "x").returncode == 0
