"""One child process that serves a model: its start, its address, its end."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, NamedTuple
from urllib.parse import urlsplit

from onym.errors import EmbeddedError
from onym.net.messages import Origin
from onym.uri.secret import Secret

__all__ = ["Child", "Endpoint", "Launch"]

_STDERR_KEPT = 16_384
#: seconds between two looks of the child at who its parent is
_LOOK = 2.0
#: how Windows says "illegal instruction"
_WINDOWS_SIGILL = 0xC000001D


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the model is served, and the key that it wants as a bearer token.

    It is good while the child lives; ask `ensure` before each call, which costs next to nothing.
    """

    origin: Origin
    key: Secret
    model: str

    @property
    def address(self) -> str:
        """The origin as text: "http://127.0.0.1:PORT". OpenAI's routes are below /v1."""
        return str(self.origin)


class Launch(NamedTuple):
    """What a child is to serve, and how."""

    model: str
    gguf: str
    context: int
    parallel: int
    threads: int


class Child:
    """One child process, serving from the end of `__init__` on."""

    def __init__(self, launch: Launch, timeout: float) -> None:
        key = Secret(secrets.token_urlsafe(32))
        self._process = _spawn()
        self._stderr = _Tail(self._process.stderr)
        try:
            address = urlsplit(self._shake_hands(launch, key, timeout))
        except BaseException:
            self.close()
            raise
        origin = Origin("http", address.hostname or "", address.port or 0)
        self.endpoint = Endpoint(origin=origin, key=key, model=launch.model)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _shake_hands(self, launch: Launch, key: Secret, timeout: float) -> str:
        """Say what to serve and hear where it is served."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 - both are pipes
        order = {**launch._asdict(), "key": key.reveal(), "parent": os.getpid(), "look": _LOOK}
        expired = threading.Event()
        alarm = threading.Timer(timeout, self._expire, args=(expired,))
        alarm.daemon = True
        alarm.start()
        try:
            with suppress(BrokenPipeError):  # it died at once, which the answer shows
                stdin.write(json.dumps(order).encode() + b"\n")
            line = stdout.readline()
        finally:
            alarm.cancel()
            stdout.close()
        answer = json.loads(line) if line else {}
        if "address" not in answer:
            raise self._failure(answer.get("error"), timeout if expired.is_set() else None)
        return str(answer["address"])

    def _expire(self, expired: threading.Event) -> None:
        expired.set()
        self._process.kill()

    def _failure(self, error: str | None, timeout: float | None) -> EmbeddedError:
        code = self._process.wait()
        hint = None
        if timeout is not None:
            reason, hint = (
                f"it was not ready after {timeout:g} seconds",
                "a large file needs a longer start_timeout",
            )
        elif code in (-signal.SIGILL, _WINDOWS_SIGILL):
            reason = "this processor lacks instructions that it was built for (SIGILL)"
            hint = "build it here: pip install --force-reinstall --no-binary xllamacpp xllamacpp"
        elif error is not None:
            reason = error
        else:
            reason = f"it ended with {_exit(code)}"
        said = self._stderr.lines(3)
        return EmbeddedError("; ".join([f"the model server did not start: {reason}", *said]), hint=hint)

    def close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def disown(self) -> None:
        # our copy of the pipe would keep the server alive when its owner is gone
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.returncode = 0  # not ours to wait for, and no warning about it


class _Tail:
    """The last octets of a pipe, read by a thread so that its writer never blocks."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None  # noqa: S101 - a pipe
        self._pipe = pipe
        self._kept = b""
        self._reader = threading.Thread(target=self._read, daemon=True, name="onym-embedded-stderr")
        self._reader.start()

    def _read(self) -> None:
        while piece := self._pipe.read(4096):
            self._kept = (self._kept + piece)[-_STDERR_KEPT:]

    def lines(self, count: int) -> list[str]:
        """The last lines, of a writer that has ended."""
        self._reader.join(1)
        return self._kept.decode("utf-8", "replace").strip().splitlines()[-count:]

    def close(self) -> None:
        self._reader.join(1)
        self._pipe.close()


def _spawn() -> subprocess.Popen[bytes]:
    # its own session: Ctrl-C in the terminal is for us to act on; -P: nothing from the current folder
    command = [sys.executable, "-P", "-m", "onym.llm._embedded_server"]
    pipe = subprocess.PIPE
    try:
        # unbuffered, so that no lock of a buffer is held by another thread across a fork
        return subprocess.Popen(  # noqa: S603 - our own module
            command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        raise EmbeddedError(
            f"the model server could not be started: {error.strerror or type(error).__name__}",
            hint="it runs under the Python of this program (sys.executable)",
        ) from error


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
