"""What only a real process shows: start-up, streams, signals, terminals."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onym import __version__
from support import untraced

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"
ONYM = [sys.executable, "-m", "onym"]


def open_process(environment, *args):
    return subprocess.Popen(
        [*ONYM, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=untraced(environment),
    )


def modules_after(environment, *args):
    """The modules that `onym ARGS` has loaded at its end."""
    script = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr))\n"
        "from onym.cli import main\n"
        "main()"
    )
    # a measured run loads the measuring tool as well
    bare = {name: value for name, value in environment.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", script, *args], capture_output=True, text=True, env=bare, check=False
    )
    return set(done.stderr.partition("MODULES")[2].split())


def test_the_version_is_told_without_loading_the_library(environment, spawn):
    assert spawn("--version").out == spawn("-V").out == f"onym {__version__}\n"
    loaded = modules_after(environment, "--version")
    assert {name for name in loaded if name.partition(".")[0] in {"click", "json"}} == set()
    assert {name for name in loaded if name.startswith("onym.")} <= {
        "onym.cli",
        "onym._lazy",
    }


@pytest.mark.parametrize("args", [("parse", "llm://h/m"), ("check", "llm://h/m"), ("redact",)])
def test_the_uri_commands_load_nothing_of_the_network_nor_of_drawing(environment, args):
    heavy = {"rich", "msgspec", "httptools", "dns", "keyring", "idna", "ssl", "asyncio"}
    loaded = {name.partition(".")[0] for name in modules_after(environment, *args)}
    assert loaded & heavy == set()


def test_help_imports_no_command(environment):
    assert {name for name in modules_after(environment, "--help") if "cli.commands." in name} == set()


def test_a_reader_that_goes_away_is_no_error(environment):
    process = open_process(environment, "normalize", "-")
    process.stdout.close()
    _, complaint = process.communicate(b"llm://h/m\n" * 10_000)
    assert process.returncode == 141
    assert complaint == b""


FULL = Path("/dev/full")
needs_full_disk = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")


@needs_full_disk
@pytest.mark.parametrize("args", [("parse", "llm://h/m"), ("--version",), ("--help",)])
def test_a_full_disk_is_told_in_one_line(environment, args):
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*ONYM, *args], stdout=full, stderr=subprocess.PIPE, env=environment, check=False
        )
    assert done.returncode == 74
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


@needs_full_disk
@pytest.mark.parametrize(("args", "code"), [(("parse", "llm://h/m", "-v"), 0), (("parse", "a"), 4)])
def test_a_full_disk_under_standard_error_changes_neither_result_nor_exit_code(environment, args, code):
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*ONYM, *args], stdout=subprocess.PIPE, stderr=full, env=environment, check=False
        )
    assert done.returncode == code
    assert (b"llm://h/m" in done.stdout) is (code == 0)


def test_a_file_that_is_missing_is_told_in_one_line(spawn):
    ran = spawn("redact", "/no/such/file")
    assert ran.code == 2
    assert "No such file" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.requirement("llm-11-b")
def test_redaction_passes_lines_on_as_they_come(environment):
    process = open_process(environment, "redact")
    for number in range(3):
        process.stdin.write(f"{number} llm://app:{KEY}@h/m is used\n".encode())
        process.stdin.flush()
        assert process.stdout.readline() == f"{number} llm://app:***@h/m is used\n".encode()
    assert process.communicate() == (b"", b"")
    assert process.returncode == 0


def test_redaction_changes_no_other_octet(environment):
    process = open_process(environment, "redact")
    noise = b"\xff\xfe\r\n\x00\x80 caf\xc3\xa9 \xed\xa0\x80\n"
    out, _ = process.communicate(noise + f"{KEY}\n".encode() + noise)
    assert out == noise + b"***\n" + noise


@pytest.mark.requirement("onym-secret-b")
def test_redaction_finds_a_key_that_is_cut_by_the_pipe(environment):
    process = open_process(environment, "redact")
    text = f"llm://app:{KEY}@h/m\n".encode()
    for at in range(0, len(text), 5):
        process.stdin.write(text[at : at + 5])
        process.stdin.flush()
    out, _ = process.communicate()
    assert out == b"llm://app:***@h/m\n"


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")  # noqa: PTH110
def test_redaction_of_a_large_stream_needs_little_memory(environment):
    script = (
        "import pathlib, sys\n"
        "from onym.cli._app import app\n"
        "try:\n    app.main(['redact'])\n"
        "finally:\n"
        "    print(pathlib.Path('/proc/self/status').read_text(), file=sys.stderr)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=untraced(environment),
    )
    block = b"a line of a log without anything to hide in it\n" * 2_000
    for _ in range(200):
        process.stdin.write(block)
    process.stdin.close()
    peak = int(re.search(rb"VmHWM:\s*([0-9]+) kB", process.stderr.read())[1])
    process.stderr.close()
    assert process.wait() == 0
    assert peak < 80_000  # kilobytes, for 19 MB of text


def test_redaction_takes_files_one_after_another(tmp_path, spawn):
    for name in "ab":
        (tmp_path / name).write_text(f"{name} llm://app:{KEY}@h/m\n", encoding="utf-8")
    ran = spawn("redact", str(tmp_path / "a"), str(tmp_path / "b"))
    assert ran.out == "a llm://app:***@h/m\nb llm://app:***@h/m\n"
    assert spawn("redact", "--json", str(tmp_path / "a")).json == {"text": "a llm://app:***@h/m\n"}


@pytest.mark.requirement("onym-cli-b")
def test_ctrl_c_is_exit_code_130_and_no_traceback(environment):
    process = open_process(environment, "conformance")
    process.stdin.write(b'{"id": 1, "op": "redact", "text": "x"}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["ok"] is True
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate()
    assert process.returncode == 130
    assert complaint == b"\n"


def test_a_polite_kill_is_exit_code_143(environment):
    process = open_process(environment, "conformance")
    process.stdin.write(b'{"id": 1, "op": "redact", "text": "x"}\n')
    process.stdin.flush()
    process.stdout.readline()
    process.terminate()
    assert process.communicate() == (b"", b"")
    assert process.returncode == 143


@pytest.mark.parametrize(
    ("args", "closed", "code"),
    [
        (("parse", "llm://h/m"), "<&-", 0),
        (("parse", "-"), "<&-", 2),
        (("parse", "llm://h/m"), ">&-", 0),
        (("parse", "llm://h/m?temp=x"), "2>&-", 3),
        (("redact",), "<&-", 0),
    ],
)
def test_a_stream_that_is_closed_from_the_start_is_like_an_empty_one(environment, args, closed, code):
    command = " ".join(["exec", *map(shlex.quote, [*ONYM, *args]), closed])
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, env=environment, check=False)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_text_that_the_terminal_cannot_show_is_escaped(spawn):
    ran = spawn("parse", "llm://h/m?x=%C3%A9", env={"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
    assert ran.code == 0
    assert "\\xe9" in ran.out


def test_colour_appears_on_a_terminal(terminal):
    screen = terminal("check", "LLM://h/m")
    assert screen.end() == 0
    assert "\x1b[1;33mwarning\x1b[0m" in screen.shown


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_it_is_not_wanted(terminal, env, monkeypatch):
    screen = terminal("check", "LLM://h/m", env=env)
    screen.end()
    if "NO_COLOR" in env:
        assert "\x1b[" not in screen.shown


def test_json_on_a_terminal_is_indented_and_still_json(terminal):
    screen = terminal("parse", "--json", "llm://h/m")
    assert screen.end() == 0
    assert json.loads(screen.shown)["host"] == "h"
    assert "\r\n  " in screen.shown


def test_a_key_typed_at_the_terminal_is_not_shown(terminal):
    screen = terminal("build", "--host", "h", "--model", "m", "--key-stdin")
    screen.read_until("key: ")
    screen.type(KEY + "\n")
    assert screen.end() == 0
    assert "llm://:***@h/m" in screen.shown
    assert "0123456789" not in screen.shown


def test_debugging_shows_where_and_still_no_key(spawn):
    ran = spawn("parse", f"llm://app:{KEY}@h:99999/m", env={"ONYM_DEBUG": "1"})
    assert "Traceback" in ran.err
    assert "0123456789" not in ran.err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM that is handled")
def test_a_polite_kill_that_python_drops_is_asked_for_again(environment):
    code = (
        "import os, signal, time\n"
        "from onym.cli._app import install_sigterm_handler\n"
        "class Dropped:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "install_sigterm_handler()\n"
        "Dropped()\n"
        "signal.pause()\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 143
