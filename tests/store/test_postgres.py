"""Small transactions at PostgreSQL: in groups, one after the other in the fleet, in a session that lasts."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from model_support import unavailable
from onym.errors import StoreError
from onym.store.postgres import (
    PostgresTransaction,
    PostgresWriter,
    TableGroup,
    hash_lock,
    is_owner_alive,
    is_postgres_url,
)
from onym.uri.secret import Secret
from postgres_support import Postgres, guarded, postgres_server
from support import free_port

TABLES = TableGroup(
    name="test",
    schema="onym_test",
    version=1,
    lock_key=4711,
    statements=("CREATE TABLE counters (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def url(server: Postgres) -> Iterator[str]:
    with server.database() as name:
        yield server.url(name)


def open_writer(url: str | Secret, tables: TableGroup = TABLES) -> PostgresWriter:
    return PostgresWriter(url, tables, name="onym-test")


def put(transaction: PostgresTransaction, name: str, value: int) -> int:
    return transaction.execute(
        "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    ).rowcount


def get(transaction: PostgresTransaction, name: str) -> int | None:
    row = transaction.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def increase(transaction: PostgresTransaction, name: str) -> int:
    """Look before writing, as a lost race would show."""
    value = (get(transaction, name) or 0) + 1
    put(transaction, name, value)
    return value


def test_what_waits_is_committed_together(url: str) -> None:
    async def work(writer: PostgresWriter) -> None:
        await writer.run(lambda transaction: increase(transaction, "a"))
        values = await asyncio.gather(
            *(writer.run(lambda transaction: increase(transaction, "a")) for _ in range(300))
        )
        assert sorted(values) == list(range(2, 302))
        ids = await asyncio.gather(
            *(
                writer.run(lambda transaction: transaction.execute("SELECT txid_current()").fetchone())
                for _ in range(50)
            )
        )
        assert len(set(ids)) < 50

    with closing(open_writer(url)) as writer:
        asyncio.run(work(writer))


def test_a_fault_undoes_only_its_own_changes(url: str) -> None:
    def fail(transaction: PostgresTransaction) -> None:
        increase(transaction, "bad")
        raise LookupError("mine")

    def break_rule(transaction: PostgresTransaction) -> None:
        transaction.execute("INSERT INTO counters VALUES ('bad', NULL)")

    async def work(writer: PostgresWriter) -> None:
        works = [fail, lambda transaction: increase(transaction, "good"), break_rule] * 20
        found = await asyncio.gather(*(writer.run(job) for job in works), return_exceptions=True)
        assert all(isinstance(error, LookupError) for error in found[::3])
        assert found[1::3] == list(range(1, 21))
        assert {error.code for error in found[2::3] if isinstance(error, StoreError)} == {"store.rejected"}
        assert await writer.run(lambda transaction: get(transaction, "bad")) is None
        writer.post(fail)
        writer.post(lambda transaction: increase(transaction, "good"))
        assert await writer.run(lambda transaction: get(transaction, "good")) == 21

    with closing(open_writer(url)) as writer:
        asyncio.run(work(writer))


def test_machines_wait_for_each_other(url: str) -> None:
    """No transaction loses a race, although each looks before it writes."""

    async def work(writer: PostgresWriter) -> None:
        await asyncio.gather(*(writer.run(partial(increase, name=f"n{n % 3}")) for n in range(150)))

    writers = [open_writer(url) for _ in range(3)]
    threads = [threading.Thread(target=lambda writer=writer: asyncio.run(work(writer))) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def read() -> list[int | None]:
        return [await writers[0].run(lambda t, n=n: get(t, f"n{n}")) for n in range(3)]  # type: ignore[misc]

    assert asyncio.run(read()) == [150, 150, 150]
    for writer in writers:
        writer.close()


def test_an_owner_lives_as_long_as_its_session(url: str) -> None:
    first, second = open_writer(url), open_writer(url)

    async def look(owner: str) -> bool:
        return await second.run(lambda transaction: is_owner_alive(transaction, owner))

    assert first.owner != second.owner
    assert asyncio.run(look(first.owner))
    assert not asyncio.run(look("nobody"))
    owner = first.owner
    first.close()
    first.close()
    assert not asyncio.run(look(owner))
    with pytest.raises(StoreError) as caught:
        first.post(lambda transaction: None)
    assert caught.value.code == "store.closed"
    second.close()


def test_a_session_that_was_ended_is_made_again(server: Postgres, url: str) -> None:
    writer, witness = open_writer(url), open_writer(url)

    def is_alive() -> bool:
        return witness.call(lambda transaction: is_owner_alive(transaction, writer.owner))

    async def work() -> None:
        await writer.run(lambda transaction: increase(transaction, "a"))
        server.execute(
            f"SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE locktype = 'advisory' AND "
            f"(classid::bigint << 32 | objid::bigint) = {hash_lock(writer.owner)}"
        )
        assert not is_alive()
        with pytest.raises(StoreError) as caught:
            await writer.run(lambda transaction: increase(transaction, "a"))
        assert caught.value.code == "store.unfinished"
        assert await writer.run(lambda transaction: increase(transaction, "a")) == 2

    assert is_alive()
    asyncio.run(work())
    assert is_alive()
    writer.close()
    witness.close()


def test_a_server_that_is_away_fails_fast(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.store.postgres._PAUSE", 3600.0)
    with server.database() as name:
        writer = open_writer(server.url(name))
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

        async def work() -> list[StoreError]:
            caught = []
            for _ in range(3):
                with pytest.raises(StoreError) as failure:
                    await writer.run(lambda transaction: None)
                caught.append(failure.value)
            return caught

        errors = asyncio.run(work())
        assert {error.code for error in errors} == {"store.unreachable", "store.unfinished"}
        assert "failed a moment ago" in str(errors[2])
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        monkeypatch.setattr("onym.store.postgres._PAUSE", 0.0)

        async def again() -> int:
            return await writer.run(lambda transaction: increase(transaction, "a"))

        assert asyncio.run(again()) == 1
        writer.close()


def test_a_later_version_is_left_alone(server: Postgres, url: str) -> None:
    open_writer(url).close()
    open_writer(url).close()
    newer = TableGroup(name="test", schema="onym_test", version=0, lock_key=4711, statements=())
    with pytest.raises(StoreError) as caught:
        open_writer(url, newer)
    assert caught.value.code == "store.newer"


def test_no_error_shows_the_password() -> None:
    address = Secret(f"postgresql://user:hunter2@127.0.0.1:{free_port()}/x")
    with pytest.raises(StoreError) as caught:
        open_writer(address)
    assert caught.value.code == "store.unreachable"
    del address
    report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in report.stack if Path(frame.filename).name == "postgres.py"]
    assert ours
    assert "hunter2" not in "".join(report.format_exception_only()) + str([frame.locals for frame in ours])


@pytest.mark.parametrize("text", ["keys.sqlite", "mysql://x", "", None, Path("postgresql:")])
def test_other_addresses_are_rejected(text: object) -> None:
    assert not is_postgres_url(text)
    with pytest.raises(StoreError) as caught:
        open_writer(text)  # type: ignore[arg-type]
    assert caught.value.code == "store.bad-url"


def test_addresses_of_postgresql_are_known() -> None:
    assert is_postgres_url(Secret("postgres://db/x"))
    assert is_postgres_url("postgresql+psycopg://db/x")


@contextmanager
def pooler(server: Postgres, database: str, mode: str) -> Iterator[str]:
    """The URL of pgbouncer in front of the database."""
    program = shutil.which("pgbouncer")
    if program is None:
        unavailable("pgbouncer is not installed: apt-get install pgbouncer")
    with tempfile.TemporaryDirectory(prefix="onym-pool-", dir="/tmp") as name:
        folder, port = Path(name), free_port()
        users = folder / "users.txt"
        users.write_text(f'"{server.user}" "{server.password}"\n')
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n{database} = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = trust\nauth_file = {users}\n"
            f"pool_mode = {mode}\nunix_socket_dir =\n"
        )
        folder.chmod(0o755)
        with guarded([program, "-u", "nobody", str(settings)], stop="SIGINT", log=folder / "log") as process:
            address = f"postgresql://{server.user}@127.0.0.1:{port}/{database}"
            while not _answers(address):
                try:
                    process.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    continue
                raise AssertionError((folder / "log").read_text())
            yield address


def _answers(address: str) -> bool:
    import psycopg

    try:
        psycopg.connect(address, connect_timeout=60).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
def test_a_pooler_in_transaction_mode_is_rejected(server: Postgres, mode: str) -> None:
    """The lock of a session would belong to whoever gets the session next."""
    with server.database() as name, pooler(server, name, mode) as address:
        if mode == "session":
            open_writer(address).close()
            return
        with pytest.raises(StoreError) as caught:
            open_writer(address)
        assert caught.value.code == "store.pooler" or mode == "statement"
