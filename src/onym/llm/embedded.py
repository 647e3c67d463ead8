"""The embedded model: llama.cpp's server in a child process, started at the first call.

The child serves OpenAI's API on loopback and accepts one random key. There is one child for each model and
set of options. All threads share it, and it ends with this process. Onym uses a process because native code
does not react to Ctrl-C, and because an unsupported processor would crash the whole program.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import urlsplit

from onym.errors import EmbeddedError, MissingExtraError, UsageError, WeightsError
from onym.llm import weights
from onym.llm.weights import list_installed, pull_weights
from onym.net.messages import Origin
from onym.uri.secret import Secret

__all__ = [
    "EmbeddedEndpoint",
    "LaunchOptions",
    "ServerProcess",
    "close_servers",
    "ensure_server",
    "get_file_identity",
    "list_installed",
    "pull_weights",
    "register_model",
]

_STDERR_KEPT = 16_384
#: seconds between two checks of the child whether its parent is alive
_LOOK = 2.0
#: the exit code on Windows for an illegal instruction
_WINDOWS_SIGILL = 0xC000001D


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedEndpoint:
    """The origin of the embedded model, and the key that it accepts as a bearer token.

    It is valid while the child runs. Call `ensure_server` before each call; that is cheap.
    """

    origin: Origin
    key: Secret
    model: str

    @property
    def address(self) -> str:
        """The origin as text: "http://127.0.0.1:PORT". OpenAI's routes are below /v1."""
        return str(self.origin)


class LaunchOptions(NamedTuple):
    """The model and options of a child process."""

    model: str
    gguf: str
    context: int
    parallel: int
    threads: int


class ServerProcess:
    """One child process, which serves when `__init__` returns."""

    def __init__(self, launch: LaunchOptions, timeout: float) -> None:
        key = Secret(secrets.token_urlsafe(32))
        self._process = _spawn_server()
        self._stderr = _StderrTail(self._process.stderr)
        try:
            address = urlsplit(self._start_serving(launch, key, timeout))
        except BaseException:
            self.close()
            raise
        origin = Origin("http", address.hostname or "", address.port or 0)
        self.endpoint = EmbeddedEndpoint(origin=origin, key=key, model=launch.model)

    def is_alive(self) -> bool:
        """Whether the server's process runs."""
        return self._process.poll() is None

    def _start_serving(self, launch: LaunchOptions, key: Secret, timeout: float) -> str:
        """Send the settings to the child and return its address."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 - both are pipes
        order = {**launch._asdict(), "key": key.reveal(), "parent": os.getpid(), "look": _LOOK}
        expired = threading.Event()
        alarm = threading.Timer(timeout, self._on_timeout, args=(expired,))
        alarm.daemon = True
        alarm.start()
        try:
            with suppress(BrokenPipeError):  # the child died, which the missing answer shows
                stdin.write(json.dumps(order).encode() + b"\n")
            line = stdout.readline()
        finally:
            alarm.cancel()
            stdout.close()
        answer = json.loads(line) if line else {}
        if "address" not in answer:
            raise self._build_error(answer.get("error"), timeout if expired.is_set() else None)
        return str(answer["address"])

    def _on_timeout(self, expired: threading.Event) -> None:
        expired.set()
        self._process.kill()

    def _build_error(self, error: str | None, timeout: float | None) -> EmbeddedError:
        code = self._process.wait()
        hint = None
        if timeout is not None:
            reason, hint = (
                f"it was not ready after {timeout:g} seconds",
                "A large file needs a longer start_timeout.",
            )
        elif code in (-signal.SIGILL, _WINDOWS_SIGILL):
            reason = "this processor lacks instructions that it was built for (SIGILL)"
            hint = "Build it here: pip install --force-reinstall --no-binary xllamacpp xllamacpp"
        elif error is not None:
            reason = error
            if "libgomp" in error:
                hint = "Slim images lack this library: apt-get install libgomp1"
        else:
            reason = f"it ended with {_format_exit_code(code)}"
        lines = [f"the model server did not start: {reason}", *self._stderr.last_lines(3)]
        return EmbeddedError("; ".join(lines), hint=hint)

    def close(self) -> None:
        """End the server: close its pipe, and kill it if it does not end."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def disown(self) -> None:
        """Close the pipes in a fork, which does not own the server."""
        # a copy of the pipe would keep the server running after its owner has ended
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.returncode = 0  # so that nothing waits for it or warns about it


class _StderrTail:
    """The last bytes of a pipe, read by a thread so that its writer never blocks."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None  # noqa: S101 - a pipe
        self._pipe = pipe
        self._kept = b""
        self._reader = threading.Thread(target=self._read_pipe, daemon=True, name="onym-embedded-stderr")
        self._reader.start()

    def _read_pipe(self) -> None:
        while piece := self._pipe.read(4096):
            self._kept = (self._kept + piece)[-_STDERR_KEPT:]

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines after the writer has ended."""
        self._reader.join(1)
        return self._kept.decode("utf-8", "replace").strip().splitlines()[-count:]

    def close(self) -> None:
        self._reader.join(1)
        self._pipe.close()


def _spawn_server() -> subprocess.Popen[bytes]:
    # own session: this process handles Ctrl-C in the terminal; -P: no modules of the current folder
    command = [sys.executable, "-P", "-m", "onym.llm._embedded_server"]
    pipe = subprocess.PIPE
    try:
        # unbuffered, so that no lock of a buffer is held by another thread across a fork
        return subprocess.Popen(  # noqa: S603 - a module of Onym
            command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        raise EmbeddedError(
            f"the model server could not be started: {error.strerror or type(error).__name__}",
            hint="It runs with the Python of this program (sys.executable).",
        ) from error


def _format_exit_code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


_EXTRA = "pip install 'onym[embedded]'"
#: the GGUF files and their identities, by registered name
_FILES: dict[str, tuple[Path, bytes]] = {}


def ensure_server(
    model: str,
    *,
    gguf: str | Path | None = None,
    context: int = 4096,
    parallel: int = 2,
    start_timeout: float = 60.0,
) -> EmbeddedEndpoint:
    """Return the endpoint of an embedded model, and start its server if it is not running.

    `model` is a name of the catalogue or of `register_model`; with `gguf`, any name for that GGUF file.
    `context` is the largest number of tokens of a conversation, and `parallel` the number of conversations at
    once. `start_timeout` is in seconds; loading a large file takes long.

    Raises MissingExtraError or MissingWeightsError, with the command to run; UnsupportedError for a model
    that is not in the catalogue; WeightsError for a file that is not a GGUF file; EmbeddedError if the server
    does not start.
    """
    if context < 1 or parallel < 1:
        raise UsageError("context and parallel must be at least 1")
    if find_spec("xllamacpp") is None:
        command = _build_install_command(model if gguf is None else None)
        raise MissingExtraError(
            "the runtime for embedded models is not installed",
            code="embedded.missing-extra",
            command=command,
            hint=f"Run: {command}",
        )
    own = _FILES.get(model) if gguf is None else _identify_file(Path(gguf))
    file = weights.get_weights_path(model) if own is None else own[0]
    return _SERVERS.get_endpoint(
        LaunchOptions(model, str(file), context, parallel, _choose_thread_count()), start_timeout
    )


def _build_install_command(model: str | None) -> str:
    """Return the command that installs the runtime, and the weights of a model of the catalogue."""
    missing = model in weights.CATALOGUE and model not in _FILES and model not in list_installed()
    return f"{_EXTRA} && onym models pull {model}" if missing else _EXTRA


def register_model(model: str, gguf: str | Path) -> None:
    """Use this GGUF file for `llm://embedded/<model>` in this process.

    Raises WeightsError for a file that cannot be read or is not a GGUF file.
    """
    _FILES[model] = _identify_file(Path(gguf))


def get_file_identity(model: str) -> bytes:
    """Return the identity of the GGUF file registered under this name: its path, size and time.

    Empty for a model of the catalogue, whose name means the same bytes everywhere.
    """
    return _FILES[model][1] if model in _FILES else b""


def close_servers() -> None:
    """End all child processes now, as the end of this process does. `ensure_server` starts new ones."""
    _SERVERS.close()


def _identify_file(file: Path) -> tuple[Path, bytes]:
    try:
        with file.open("rb") as handle:
            magic = handle.read(4)
            state = os.fstat(handle.fileno())
    except OSError as error:
        raise WeightsError(
            f"the GGUF file {file.name} cannot be read: {error.strerror}", code="embedded.no-gguf"
        ) from error
    if magic != b"GGUF":
        raise WeightsError(f"{file.name} is not a GGUF file", code="embedded.no-gguf")
    path = file.resolve()
    return path, b"%b\0%d\0%d" % (os.fsencode(path), state.st_size, state.st_mtime_ns)


def _choose_thread_count() -> int:
    """Return 1 on up to two cores, else at most 4, leaving one core to other programs.

    Threads of the runtime spin while they wait for each other: on two cores with another busy process, two
    threads generate 41 tokens per second and one generates 86.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return 1 if cores <= 2 else min(cores - 1, 4)


class _ServerPool:
    """The child processes of this process, one for each model and set of options."""

    def __init__(self) -> None:
        self._reset_state()

    def _reset_state(self) -> None:
        self._guard = threading.Lock()
        self._gates: dict[LaunchOptions, threading.Lock] = {}
        self._children: dict[LaunchOptions, ServerProcess] = {}

    def get_endpoint(self, launch: LaunchOptions, timeout: float) -> EmbeddedEndpoint:
        with self._guard:
            gate = self._gates.setdefault(launch, threading.Lock())
        with gate:
            child = self._children.get(launch)
            if child is None or not child.is_alive():
                self._close_server(launch)
                child = self._children[launch] = ServerProcess(launch, timeout)
            return child.endpoint

    def close(self) -> None:
        with self._guard:
            gates = dict(self._gates)
        for launch, gate in gates.items():
            with gate:
                self._close_server(launch)

    def _close_server(self, launch: LaunchOptions) -> None:
        child = self._children.pop(launch, None)
        if child is not None:
            child.close()

    def disown_servers(self) -> None:
        """Forget the children after a fork, in the new process: they belong to the parent."""
        for child in self._children.values():
            child.disown()
        self._reset_state()


_SERVERS = _ServerPool()
atexit.register(close_servers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SERVERS.disown_servers)
