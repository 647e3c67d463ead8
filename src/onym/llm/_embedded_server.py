"""The child process of `embedded`: load a GGUF file and serve it on loopback.

`onym.llm.embedded` runs it as `python -m onym.llm._embedded_server`. It reads one line of JSON from
standard input: the model, its options and the key, so that no argument list and no environment contains the
key. It writes one line to standard output: the address, or an error. It exits when standard input ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from typing import Any, TextIO

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve until the parent closes standard input or dies. Does not return after the server has started.

    Returns 1 after an error that it reported to the parent, and 2 if standard input was empty.
    """
    line = _read_first_line()
    if not line:
        return 2
    settings = json.loads(line)
    answers = _redirect_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides on Ctrl-C
    # loading blocks the interpreter, so only the kernel can end it. Linux sends the signal when the thread
    # that started this process ends, not its process; that thread waits only for the answer
    _set_parent_death_signal(int(getattr(signal, "SIGKILL", 0)))
    try:
        server = _start_server(settings)
    except Exception as error:  # noqa: BLE001 - the parent reports every error
        _send_answer(answers, error=f"{type(error).__name__}: {error}")
        return 1
    _set_parent_death_signal(0)
    _send_answer(answers, address=server.listening_address)
    _wait_for_parent(settings["parent"], settings["look"])
    # closing the server properly would wait for every answer that is still being written
    os._exit(0)


def _read_first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65_536)
        if not piece:
            return b""
        line += piece
    return line


def _redirect_stdout() -> TextIO:
    """Return standard output for the answer, and send the runtime's output to standard error."""
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


def _send_answer(answers: TextIO, **members: str) -> None:
    with answers:
        answers.write(json.dumps(members) + "\n")


def _start_server(settings: dict[str, Any]) -> Any:
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = settings["gguf"]
    params.model_alias = {settings["model"]}
    params.api_keys = [settings["key"]]
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["context"] * settings["parallel"]  # the runtime divides it between the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.verbosity = 1  # only errors, which the parent buffers
    params.warmup = False
    params.fit_params = False
    params.ui = False
    params.cache_ram_mib = 128  # the runtime would keep up to 8 GiB of old prompts
    params.cors_origins = ""  # "*" would allow every web page
    params.cors_credentials = False
    return xllamacpp.Server(params)


def _wait_for_parent(parent: int, look: float) -> None:
    """Return when standard input ends or the parent dies, even if another process has its pipe open.

    `look` is the number of seconds between two checks of the parent.
    """
    if os.name == "posix":
        while not select.select([0], [], [], look)[0]:
            if os.getppid() != parent:
                return
    else:
        os.read(0, 1)


def _set_parent_death_signal(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
