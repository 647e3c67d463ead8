"""A PostgreSQL that is killed and started again on the same data, as a power cut would leave it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import postgres_support as support
from postgres_support import Postgres
from support import free_port

__all__ = ["Mortal", "mortal_postgres"]

#: how often a start is tried: what the killed one left in shared memory goes with its last process
_STARTS = 20


@dataclass
class Mortal:
    """A server with fsync on. `kill` ends all its processes at once, by kill -9."""

    server: Postgres
    user: str

    @contextmanager
    def running(self) -> Iterator[Postgres]:
        """The server, on the data that is there; killed at the end of the block, unless it was before."""
        log = Path(self.server.folder, "log")
        for _ in range(_STARTS):
            # no folder to remove: the data outlive the process
            with support.guarded(
                support._postgres_command(self.server, durable=True), stop="SIGINT", user=self.user, log=log
            ) as process:
                if support._postgres_ready(process, self.server):
                    yield self.server
                    return
        pytest.fail(f"PostgreSQL did not start: {log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """kill -9 for the postmaster and each of its children."""
        children = [pid for (pid,) in self.server.execute("SELECT pid FROM pg_stat_activity")]
        first = int(Path(self.server.folder, "data", "postmaster.pid").read_text().split()[0])
        for child in (first, *children):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


@contextmanager
def mortal_postgres() -> Iterator[Mortal]:
    """A server that has not been started yet; its data are removed at the end."""
    programs, user = support._postgres_programs(), support._unprivileged()
    folder = tempfile.mkdtemp(prefix="onym-pg-", dir="/tmp")
    server = Postgres(folder, free_port(), secrets.token_hex(12), programs)
    try:
        support._initdb(server, user)
        yield Mortal(server, user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
