"""What tests of the embedded model and of peers share: its weights, uv, waiting for a process to end."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from onym.errors import WeightsError
from onym.llm import embedded
from support import ROOT

MODEL = "smollm2-135m-instruct"
IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")


def unavailable(reason: str) -> NoReturn:
    """Skip, and say why; where everything is meant to be there, fail."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def pulled_weights() -> Path:
    """The GGUF file of the embedded model, pulled once per machine. Workers wait for each other."""
    # a busy machine may take long to load it
    (embedded.ensure_server.__kwdefaults__ or {})["start_timeout"] = 600.0
    try:
        return embedded.pull_weights(MODEL)
    except WeightsError as error:
        unavailable(str(error))


def uv() -> str:
    """A uv to run: the one on PATH, or the one that `make` installed for itself."""
    script = ROOT / "tools" / "uv.py"
    program = shutil.which("uv")
    if program is None and script.is_file():
        done = subprocess.run(
            [sys.executable, "-c", "import uv; print(uv.find())"],
            cwd=script.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        program = done.stdout.strip() or None
    if program is None:
        unavailable("there is no uv on PATH and none could be installed")
    return program


def ends(pid: int, seconds: float = 300.0) -> bool:
    """Whether a process, which need not be a child, ends within so many seconds (Linux)."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)
