"""How the tests of the command line run it: in process for most, as a real process where it matters."""

from __future__ import annotations

import codecs
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from onym.cli._app import app
from onym.cli._output import Session, encode_json
from onym.cli.commands.config import make_schema
from registry_support import postgres, postgres_url, smtp

__all__ = ["postgres", "postgres_url", "smtp"]


class Ran(NamedTuple):
    """What a run left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@lru_cache
def make_validator(command: str) -> Draft202012Validator:
    """What compares the output of a command with its JSON Schema."""
    schema = make_schema(command)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.fixture(autouse=True)
def _validate_output(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every JSON document that a command prints in this process has the form of its schema."""
    # not raised at once: the command line would report it like a bug of the command
    wrong: list[str] = []

    def validate(session: Session, value: object) -> None:
        root = None if session.context is None else session.context.find_root()
        # a few tests run a command without the application above it
        if root is not None and root.command is app:
            document = json.loads(encode_json(value))
            wrong.extend(
                f"{session.command}: {error.json_path}: {error.message[:300]}"
                for error in make_validator(session.command).iter_errors(document)
            )

    print_record, print_json_line = Session.print_record, Session.print_json_line

    def print_valid_record(session: Session, value: object) -> None:
        if session.as_json:
            validate(session, value)
        print_record(session, value)

    def print_valid_line(session: Session, value: object) -> None:
        validate(session, value)
        print_json_line(session, value)

    monkeypatch.setattr(Session, "print_record", print_valid_record)
    monkeypatch.setattr(Session, "print_json_line", print_valid_line)
    yield
    assert wrong == []


_LONG = {"timeout": "300s"}
#: the commands that ask other computers, which wait as long as a busy machine may need
PATIENT: dict[str, Any] = {
    "ping": _LONG,
    "ai": {
        **dict.fromkeys(("discover", "resolve", "describe", "invoke", "login", "logout"), _LONG),
        "tasks": dict.fromkeys(("show", "wait", "events", "result", "input", "cancel"), _LONG),
        "approve": dict.fromkeys(("list", "show", "yes", "no", "ask", "evidence"), _LONG),
    },
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """`onym ARGS` in this process."""

    def call(*args: str, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None) -> Ran:
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        # the help of a command shows its own default
        defaults = None if {"--help", "-h"} & set(args) else PATIENT
        result = CliRunner().invoke(app, list(args), input=stdin, prog_name="onym", default_map=defaults)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if args[:1] == ("chat",) and "--json" in args:
            # `chat` writes its events itself, because they may go to a file
            for line in result.stdout.splitlines():
                make_validator("chat").validate(json.loads(line))
        return Ran(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A small, clean environment for a real process."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "ONYM_CACHE") if name in os.environ}
    kept.update({name: value for name, value in os.environ.items() if name.startswith(("COV", "COVERAGE"))})
    home = tmp_path / "home"
    home.mkdir()
    return {
        **kept,
        "HOME": str(home),
        "PYTHONUTF8": "1",
        "PYTHONWARNINGS": "error",
    }


@pytest.fixture
def spawn(environment: dict[str, str]) -> Run:
    """`onym ARGS` as a real process."""

    def call(*args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "onym", *args],
            input=stdin,
            capture_output=True,
            env={**environment, **(env or {})},
            timeout=600,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


class Terminal:
    """A real process with a terminal of its own, and a person who types."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        import pty

        self._screen, keyboard = pty.openpty()
        self._process = subprocess.Popen(
            argv,
            stdin=keyboard,
            stdout=keyboard,
            stderr=keyboard,
            env={**env, "TERM": "xterm"},
            # a session of its own, so that Ctrl-C reaches it through its own terminal
            start_new_session=True,
            preexec_fn=lambda: _take_terminal(keyboard),
        )
        os.close(keyboard)
        # a piece may end within a character
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""
        self._fresh = ""

    def read_until(self, text: str) -> str:
        """What appears on the screen, up to and with `text`, since the last time."""
        while text not in self._fresh:
            piece = self._read()
            assert piece, f"{text!r} never appeared; the screen shows {self.shown!r}"
            self._fresh += piece
        seen, found, self._fresh = self._fresh.partition(text)
        return seen + found

    def press_until(self, key: str, text: str) -> None:
        """Press a key, again if nothing comes of it: readline misses a signal now and then."""
        import select

        self.type(key)
        # not sooner: a second signal that comes with the effect of the first ends what the test does next
        while not select.select([self._screen], [], [], 5)[0]:
            self.type(key)
        self.read_until(text)

    def _read(self) -> str:
        import select

        piece = ""
        while not piece:
            ready, _, _ = select.select([self._screen], [], [], 300)
            assert ready, f"nothing for five minutes; the screen shows {self.shown!r}"
            try:
                octets = os.read(self._screen, 4096)
            except OSError:  # EIO: the other side has gone
                return ""
            if not octets:
                return ""
            piece = self._decoder.decode(octets)
        self.shown += piece
        return piece

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        os.close(self._screen)
        return self._process.wait(timeout=600)


def _take_terminal(descriptor: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """`onym ARGS` at a terminal."""
    opened: list[Terminal] = []

    def call(*args: str, env: Mapping[str, str] | None = None) -> Terminal:
        opened.append(Terminal([sys.executable, "-m", "onym", *args], {**environment, **(env or {})}))
        return opened[-1]

    yield call
    for each in opened:
        if each._process.poll() is None:
            each._process.kill()
            each._process.wait()
