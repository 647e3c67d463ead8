"""PostgreSQL from Debian's packages, run by a test on a free port in a temporary folder."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from model_support import unavailable
from support import free_port

__all__ = ["Postgres", "guarded", "postgres_server"]

_GUARD = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
#: seconds
_STARTUP = 120


@contextmanager
def guarded(
    command: Sequence[str], *, stop: str, user: str = "", folder: str = "", log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """`command` under the guard, which ends it by signal `stop`; `folder` goes with it."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_GUARD, stop, user, folder, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            cwd="/",
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=600)


@dataclass(frozen=True)
class Postgres:
    """A running server. `folder` holds its socket, `port` serves TCP on loopback too, with `password`."""

    folder: str
    port: int
    password: str
    programs: Path
    user: str = "postgres"

    def url(self, database: str = "postgres", *, tcp: bool = False) -> str:
        """SQLAlchemy's URL: through the socket and without a password, or (`tcp`) by address and password."""
        if tcp:
            return f"postgresql+psycopg://{self.user}:{self.password}@127.0.0.1:{self.port}/{database}"
        where = urllib.parse.urlencode({"host": self.folder, "port": self.port})
        return f"postgresql+psycopg://{self.user}@/{database}?{where}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement outside any transaction; its rows."""
        import psycopg

        target = {"host": self.folder, "port": self.port, "user": self.user, "dbname": database}
        with psycopg.connect(**target, autocommit=True, connect_timeout=120) as connection:  # type: ignore[arg-type]
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def list_processes(self) -> list[int]:
        """The server and the processes of its sessions, which come last."""
        first = int((Path(self.folder) / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """The name of a fresh database, a copy of `template`, for the time of the block."""
        name = f"t_{secrets.token_hex(8)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        try:
            yield name
        finally:
            self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[Postgres]:
    """A server of one's own. It calls fsync only if `durable`, for tests that kill it."""
    said = ""
    for _ in range(3):  # between our look and its start, somebody may take the port
        with ExitStack() as stack:
            found = stack.enter_context(_postgres_attempt(durable))
            if isinstance(found, Postgres):
                yield found
                return
            said = found
    pytest.fail(f"PostgreSQL did not start: {said}")


@contextmanager
def _postgres_attempt(durable: bool) -> Iterator[Postgres | str]:
    """A running server, or what one said that did not start."""
    programs, user = _postgres_programs(), _unprivileged()
    # not below pytest's folder, which other users may not enter; short, for the socket's path
    folder = Path(tempfile.mkdtemp(prefix="onym-pg-", dir="/tmp"))
    server = Postgres(str(folder), free_port(), secrets.token_hex(12), programs)
    try:
        _initdb(server, user)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    log = folder / "log"
    with guarded(
        _postgres_command(server, durable), stop="SIGINT", user=user, folder=str(folder), log=log
    ) as process:
        yield server if _postgres_ready(process, server) else log.read_text(errors="replace")[-2000:]


def _initdb(server: Postgres, user: str) -> None:
    folder = Path(server.folder)
    secret = folder / "password"
    secret.write_text(server.password, encoding="utf-8")
    if user:
        for path in (folder, secret):
            shutil.chown(path, user, user)
    options = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"]
    options += [f"--username={server.user}", "--encoding=UTF8", "--locale=C", "--no-sync"]
    options += ["--no-instructions", f"--pgdata={folder / 'data'}"]
    as_user: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
    run = subprocess.run(
        [str(server.programs / "initdb"), *options],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        **as_user,
    )
    assert run.returncode == 0, run.stderr


def _postgres_command(server: Postgres, durable: bool) -> list[str]:
    settings = {
        "unix_socket_directories": server.folder,
        "listen_addresses": "127.0.0.1",
        "shared_buffers": "32MB",
        "timezone": "UTC",
        "autovacuum": "off",  # its processes come and go among those of the sessions
        **({} if durable else {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}),
    }
    command = [str(server.programs / "postgres"), "-D", f"{server.folder}/data", "-p", str(server.port)]
    return command + [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _postgres_ready(process: subprocess.Popen[bytes], server: Postgres) -> bool:
    import psycopg

    for _ in range(_STARTUP * 20):
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError:
            try:
                process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
            return False
        return True
    return False


def _postgres_programs() -> Path:
    """Where initdb and postgres are: Debian keeps them per version, others on PATH."""
    numbered = [
        (int(path.parts[-3]), path.parent) for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")
    ]
    if numbered:
        return max(numbered)[1]
    on_path = shutil.which("initdb")
    if on_path is None or shutil.which("postgres") is None:
        unavailable("PostgreSQL is not installed: apt-get install postgresql")
    return Path(on_path).parent


def _unprivileged() -> str:
    """PostgreSQL refuses to run as root: the user that it runs as then, "" for this one."""
    import pwd

    if os.geteuid() != 0:
        return ""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return unavailable("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
