"""SQLite files: private, checked, shared by threads and processes, and never taken from another program."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from onym.store import sqlite
from onym.store.sqlite import (
    FileFormat,
    GroupWriter,
    SharedConnection,
    SQLiteOptions,
    WrongFormatError,
    copy_sqlite,
    create_sqlite,
    describe_error,
    enable_wal,
    get_error_code,
    is_busy,
    is_damaged,
    open_sqlite,
    write_transaction,
)

NOTES = FileFormat(
    application_id=0x4F6E5401, version=2, schema="CREATE TABLE IF NOT EXISTS notes (text TEXT)"
)
IMPATIENT = SQLiteOptions(timeout=0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.sqlite"


def read_pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def add_note(connection: sqlite3.Connection, text: str) -> None:
    connection.execute("INSERT INTO notes VALUES (?)", (text,))


def list_notes(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM notes ORDER BY text")]


def test_a_new_file_is_private_and_carries_its_format(path: Path) -> None:
    with closing(open_sqlite(path, NOTES)) as connection:
        assert read_pragma(connection, "application_id") == NOTES.application_id
        assert read_pragma(connection, "user_version") == 2
        assert read_pragma(connection, "journal_mode") == "wal"
        assert read_pragma(connection, "synchronous") == 1
        assert read_pragma(connection, "trusted_schema") == 0
        assert read_pragma(connection, "busy_timeout") == 5000
        add_note(connection, "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with closing(open_sqlite(path, NOTES)) as connection:
        assert list_notes(connection) == ["one"]


def test_options_set_pragmas_on_each_connection(path: Path) -> None:
    options = SQLiteOptions(wal=False, pragmas={"synchronous": "FULL", "auto_vacuum": "INCREMENTAL"})
    for _ in range(2):
        with closing(open_sqlite(path, NOTES, options)) as connection:
            assert read_pragma(connection, "journal_mode") == "delete"
            assert read_pragma(connection, "synchronous") == 2
            assert read_pragma(connection, "auto_vacuum") == 2


def test_a_database_in_memory_needs_no_file() -> None:
    with closing(open_sqlite(None, NOTES)) as connection:
        add_note(connection, "one")
        assert list_notes(connection) == ["one"]


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps access lists instead")
def test_a_file_that_others_can_read_becomes_private(path: Path) -> None:
    open_sqlite(path, NOTES).close()
    path.chmod(0o644)
    open_sqlite(path, NOTES).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_of_another_program_or_version_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (x)")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(WrongFormatError, match="another program") as caught:
        open_sqlite(path, NOTES)
    assert is_damaged(caught.value)
    assert path.read_bytes() == before
    path.unlink()
    open_sqlite(path, FileFormat(application_id=NOTES.application_id, version=1, schema="")).close()
    with pytest.raises(WrongFormatError, match=r"format 1, not 2"):
        open_sqlite(path, NOTES)


def test_a_file_that_must_exist_is_not_created(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_sqlite(path, NOTES, create=False)
    assert not path.exists()
    path.touch()
    with pytest.raises(WrongFormatError):
        open_sqlite(path, NOTES, create=False)
    assert path.read_bytes() == b""


def test_a_file_is_created_in_one_step_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state" / "notes.sqlite"
    create_sqlite(path, NOTES, SQLiteOptions(wal=False))
    with closing(open_sqlite(path, NOTES, create=False)) as connection:
        add_note(connection, "one")
    create_sqlite(path, NOTES, SQLiteOptions(wal=False))
    with closing(open_sqlite(path, NOTES, create=False)) as connection:
        assert list_notes(connection) == ["one"]
    assert [file.name for file in path.parent.iterdir()] == ["notes.sqlite"]


def test_a_ruined_file_is_damaged(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 500)
    with pytest.raises(sqlite3.DatabaseError) as caught:
        open_sqlite(path, NOTES)
    assert is_damaged(caught.value)
    assert not is_busy(caught.value)


def test_a_busy_file_is_told_from_other_failures(path: Path) -> None:
    with closing(open_sqlite(path, NOTES)) as writer, closing(open_sqlite(path, NOTES, IMPATIENT)) as other:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as caught, write_transaction(other):
            raise AssertionError("unreachable")
    assert is_busy(caught.value)
    assert not is_damaged(caught.value)
    assert describe_error(caught.value) == "another process keeps it locked"


def test_errors_are_described_without_their_path(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere") as caught:
        open_sqlite(tmp_path / "nowhere" / "notes.sqlite", NOTES)
    assert describe_error(caught.value) == "No such file or directory"
    assert describe_error(sqlite3.OperationalError("no such table: x")) == "no such table: x"
    assert describe_error(ValueError()) == "ValueError"
    assert get_error_code(ValueError()) is None


def test_a_transaction_is_kept_as_a_whole_or_not_at_all(path: Path) -> None:
    with closing(open_sqlite(path, NOTES)) as connection:
        with write_transaction(connection):
            add_note(connection, "one")
        for statements in (("INSERT INTO notes VALUES ('two')", "nonsense"), ("ROLLBACK", "nonsense")):
            with pytest.raises(sqlite3.OperationalError), write_transaction(connection):
                connection.execute(statements[0]).execute(statements[1])
            assert list_notes(connection) == ["one"]
            assert not connection.in_transaction


def test_write_ahead_logging_waits_for_another_connection(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr("onym.store.sqlite.time.sleep", lambda _: holder.execute("ROLLBACK"))
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        enable_wal(connection)
        holder.execute("BEGIN EXCLUSIVE")
        assert read_pragma(connection, "journal_mode") == "wal"
    holder.close()


def test_write_ahead_logging_gives_up_after_the_timeout(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    connection = sqlite3.connect(path, timeout=0)
    with pytest.raises(sqlite3.OperationalError) as caught:
        enable_wal(connection, 0.0)
    assert is_busy(caught.value)
    connection.close()
    holder.close()


def test_a_copy_is_one_file_with_everything_committed(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    with closing(open_sqlite(path, NOTES)) as connection:
        add_note(connection, "one")
        copy_sqlite(path, copy)
    with closing(open_sqlite(copy, NOTES)) as connection:
        assert read_pragma(connection, "journal_mode") == "delete"
        assert list_notes(connection) == ["one"]


def test_threads_share_one_connection(path: Path) -> None:
    shared = SharedConnection(path, NOTES)

    def add(number: int) -> None:
        with shared.transaction() as connection:
            add_note(connection, f"{number:02}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    with shared.acquire() as connection:
        assert list_notes(connection) == [f"{number:02}" for number in range(24)]
    shared.close()


def test_a_closed_file_is_opened_again_on_next_use(path: Path) -> None:
    shared = SharedConnection(path, NOTES)
    for text in ("one", "two"):
        with shared.transaction() as connection:
            add_note(connection, text)
        shared.close()
        shared.close()
    with shared.acquire() as connection:
        assert list_notes(connection) == ["one", "two"]
    shared.close()


@pytest.mark.skipif(os.name != "posix", reason="Windows does not let an open file be removed")
def test_a_file_that_took_the_place_of_the_open_one_is_used(path: Path) -> None:
    shared, other = SharedConnection(path, NOTES), SharedConnection(path, NOTES)
    with shared.transaction() as connection:
        add_note(connection, "old")
    for file in path.parent.iterdir():
        file.unlink()
    with other.transaction() as connection:
        add_note(connection, "new")
    with shared.acquire() as connection:
        assert list_notes(connection) == ["new"]
    shared.close()
    with other.transaction() as connection:
        add_note(connection, "newer")
        path.unlink()
    with other.acquire() as connection:
        assert list_notes(connection) == []
    other.close()


FORKED = """
import os, sys
from onym.store import sqlite
from onym.store.sqlite import FileFormat, SharedConnection
notes = FileFormat(application_id=7, version=1, schema="CREATE TABLE IF NOT EXISTS notes (text TEXT)")
shared = SharedConnection(sys.argv[1], notes)
with shared.transaction() as connection:
    connection.execute("INSERT INTO notes VALUES ('parent')")
child = os.fork()
if not child:
    with shared.transaction() as mine:
        assert mine is not connection
        mine.execute("INSERT INTO notes VALUES ('child')")
    print(len(sqlite._INHERITED), flush=True)
    sys.exit()
os.waitpid(child, 0)
with shared.acquire() as same:
    assert same is connection
    print(*(text for (text,) in same.execute("SELECT text FROM notes ORDER BY text")), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_opens_the_file_for_itself(path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED, str(path)], capture_output=True, text=True)
    assert ran.stdout.split() == ["1", "child", "parent"], ran.stderr


def test_a_connection_inherited_by_a_fork_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    inherited: list[sqlite3.Connection] = []
    monkeypatch.setattr(sqlite, "_INHERITED", inherited)
    with closing(sqlite3.connect(":memory:")) as connection:
        sqlite._close_connection(connection, os.getpid() + 1)
        assert inherited == [connection]
        assert connection.execute("SELECT 1").fetchone() == (1,)


# groups of transactions ----------------------------------------------------------------------------------


def make_writer(path: Path, **options: int) -> GroupWriter:
    return GroupWriter(open_sqlite(path, NOTES), name="test-writer", **options)


def insert(value: int) -> Callable[[sqlite3.Connection], int]:
    def work(base: sqlite3.Connection) -> int:
        base.execute("INSERT INTO notes VALUES (?)", (str(value),))
        return value

    return work


def read_notes(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as base:
        return [row[0] for row in base.execute("SELECT text FROM notes ORDER BY CAST(text AS INTEGER)")]


def test_transactions_that_wait_are_committed_together_and_each_has_its_result(tmp_path: Path) -> None:
    writer = make_writer(tmp_path / "w.sqlite", most=50)
    commits: list[str] = []

    async def main() -> list[int]:
        await writer.run(lambda base: base.set_trace_callback(commits.append))
        return await asyncio.gather(*(writer.run(insert(number)) for number in range(200)))

    assert asyncio.run(main()) == list(range(200))
    writer.close()
    assert read_notes(tmp_path / "w.sqlite") == [str(number) for number in range(200)]
    assert 4 <= sum(statement == "COMMIT" for statement in commits) < 200


def test_a_transaction_that_fails_takes_back_only_its_own_changes(tmp_path: Path) -> None:
    writer = make_writer(tmp_path / "w.sqlite")

    def fail(base: sqlite3.Connection) -> None:
        base.execute("INSERT INTO notes VALUES ('half')")
        raise LookupError("no")

    async def main() -> list[object]:
        works = (insert(1), fail, insert(2), lambda base: base.execute("no SQL"))
        return await asyncio.gather(*map(writer.run, works), return_exceptions=True)

    one, failed, two, wrong = asyncio.run(main())
    writer.close()
    assert (one, two) == (1, 2)
    assert isinstance(failed, LookupError)
    assert isinstance(wrong, sqlite3.OperationalError)
    assert read_notes(tmp_path / "w.sqlite") == ["1", "2"]


def test_a_group_whose_transaction_is_gone_fails_as_a_whole(tmp_path: Path) -> None:
    writer = make_writer(tmp_path / "w.sqlite")

    def lose(base: sqlite3.Connection) -> None:
        base.execute("ROLLBACK")  # as SQLite does itself when the disk is full
        raise sqlite3.OperationalError("database or disk is full")

    async def main() -> list[object]:
        began, release = threading.Event(), threading.Event()

        def hold(_: sqlite3.Connection) -> None:
            began.set()
            release.wait(60)

        held = asyncio.ensure_future(writer.run(hold))
        await asyncio.to_thread(began.wait, 60)
        works = [asyncio.ensure_future(writer.run(work)) for work in (insert(1), lose, insert(2))]
        await asyncio.sleep(0)
        release.set()
        await held
        return await asyncio.gather(*works, return_exceptions=True)

    failed = asyncio.run(main())
    assert [type(error) for error in failed] == [sqlite3.OperationalError] * 3
    assert asyncio.run(writer.run(insert(3))) == 3
    writer.close()
    assert read_notes(tmp_path / "w.sqlite") == ["3"]


def test_a_file_that_is_locked_fails_the_group_and_not_the_next(tmp_path: Path) -> None:
    file = tmp_path / "w.sqlite"
    writer = GroupWriter(open_sqlite(file, NOTES, SQLiteOptions(timeout=0.01)), name="test-writer")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError):
            asyncio.run(writer.run(insert(1)))
    assert asyncio.run(writer.run(insert(2))) == 2
    assert writer.call(insert(3)) == 3
    with pytest.raises(sqlite3.OperationalError):
        writer.call(lambda base: base.execute("no SQL"))
    writer.close()


def test_what_was_submitted_before_the_end_is_written_and_nothing_after_it(tmp_path: Path) -> None:
    writer = make_writer(tmp_path / "w.sqlite")
    release = threading.Event()

    async def main() -> None:
        waiting = asyncio.ensure_future(writer.run(lambda _: release.wait(60)))
        gone = asyncio.ensure_future(writer.run(insert(1)))
        await asyncio.sleep(0)
        gone.cancel()  # the work goes on without its waiter
        writer.post(insert(2))
        release.set()
        await waiting

    asyncio.run(main())
    for number in range(3, 9):
        writer.post(insert(number))
    writer.close()
    writer.close()
    with pytest.raises(sqlite3.ProgrammingError):
        asyncio.run(writer.run(insert(9)))
    with pytest.raises(sqlite3.ProgrammingError):
        writer.post(insert(9))
    assert read_notes(tmp_path / "w.sqlite") == [str(number) for number in range(1, 9)]


def test_a_waiter_whose_loop_is_closed_stops_nothing(tmp_path: Path) -> None:
    writer = make_writer(tmp_path / "w.sqlite")
    release = threading.Event()
    loop = asyncio.new_event_loop()
    task = loop.create_task(writer.run(lambda _: release.wait(60)))
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    release.set()
    assert asyncio.run(writer.run(insert(1))) == 1
    writer.close()


def test_a_file_of_an_older_version_is_upgraded_or_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "w.sqlite"
    open_sqlite(file, NOTES).close()
    newer = FileFormat(
        application_id=NOTES.application_id,
        version=NOTES.version + 1,
        schema="CREATE TABLE notes (text TEXT, length INTEGER)",
        upgrades={NOTES.version: "ALTER TABLE notes ADD COLUMN length INTEGER;\nno SQL;\n"},
    )
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError):
            open_sqlite(file, newer)
    better = dataclasses.replace(
        newer, upgrades={NOTES.version: "ALTER TABLE notes ADD COLUMN length INTEGER;\n"}
    )
    for _ in range(2):
        with closing(open_sqlite(file, better)) as base:
            base.execute("INSERT INTO notes VALUES ('a', 1)")
    with pytest.raises(WrongFormatError):
        open_sqlite(file, NOTES)
