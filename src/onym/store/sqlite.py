"""SQLite files of the client: one way to create, check, open and share them, with the standard library.

`open_sqlite` opens a file that only its owner can read, creates its tables and rejects a file of another
program or version. `SharedConnection` is for a store that many threads use: it opens the file on first
use, again after a fork, and again if another file has taken its place. `GroupWriter` is for many small
transactions at once that must survive a power cut: those that wait are committed with one write to the disk.

Failures are `sqlite3.Error` and `OSError`. A store turns them into its own exception with `describe_error`
and decides with `is_busy` and `is_damaged` what to do next. Databases of servers, with SQLAlchemy, are in
`onym.store.sql`.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from onym.common.concurrency import Job, TransactionQueue

T = TypeVar("T")

#: seconds to wait for another writer
BUSY_SECONDS: Final = 5.0
_PAUSE: Final = 0.01
_POSIX: Final = os.name == "posix"

#: a power cut may lose the last transactions (NORMAL), or none (FULL); the file stays consistent
_DEFAULT_PRAGMAS: Final = MappingProxyType({"synchronous": "NORMAL"})
#: these must be set before the first table exists
_FIRST_PRAGMAS: Final = ("page_size", "auto_vacuum")


class WrongFormatError(sqlite3.DatabaseError):
    """The file belongs to another program, or another version of Onym wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """The tables of a file, and the two numbers in its header that tell which program and version wrote it.

    `application_id` differs for each kind of store. `schema` is SQL that may run twice (`IF NOT EXISTS`),
    because two processes may create the same file at once. `upgrades` is SQL that turns a file of the version
    in its key into one of `version`; it runs in one transaction.
    """

    application_id: int
    version: int
    schema: str
    upgrades: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SQLiteOptions:
    """How to open a file.

    Without `wal` the file uses a rollback journal, and no file stays beside it. `pragmas` are set on every
    connection; `synchronous` is NORMAL unless they say otherwise.
    """

    timeout: float = BUSY_SECONDS
    wal: bool = True
    pragmas: Mapping[str, str | int] = field(default_factory=dict)


DEFAULT_OPTIONS: Final = SQLiteOptions()


def open_sqlite(
    path: str | os.PathLike[str] | None,
    file_format: FileFormat,
    options: SQLiteOptions = DEFAULT_OPTIONS,
    *,
    create: bool = True,
) -> sqlite3.Connection:
    """Open the file, and create it and its tables if it is missing or empty. `path` None: in memory.

    The file becomes readable by its owner only. With `create=False` a missing file raises FileNotFoundError
    and an empty one WrongFormatError. The connection is in autocommit mode (begin with `write_transaction`)
    and may be used by several threads, one at a time.

    Raises WrongFormatError for a file of another program or version; sqlite3.Error and OSError.
    """
    if path is not None:
        _prepare_file(Path(path), create=create)
    connection = open_connection(path, options)
    try:
        _ensure_tables(connection, file_format, options, create=create)
    except BaseException:
        connection.close()
        raise
    return connection


def open_connection(
    path: str | os.PathLike[str] | None, options: SQLiteOptions = DEFAULT_OPTIONS
) -> sqlite3.Connection:
    """Open one more connection to a file that `open_sqlite` has opened. Raises sqlite3.Error, OSError."""
    connection = sqlite3.connect(
        ":memory:" if path is None else path,
        timeout=options.timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _set_pragmas(connection, options)
    except BaseException:
        connection.close()
        raise
    return connection


def create_sqlite(path: Path, file_format: FileFormat, options: SQLiteOptions = DEFAULT_OPTIONS) -> None:
    """Create the file with its tables in one step, so that an empty file is always a damaged one.

    A file that exists stays as it is. The folder is created too, readable by its owner only.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    os.close(descriptor)
    try:
        open_sqlite(name, file_format, options).close()
        with suppress(FileExistsError):  # another process was first
            os.link(name, path)
    finally:
        Path(name).unlink()


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run the block as one transaction that waits for other writers at its start, not at its end."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after some errors SQLite has rolled back by itself
            connection.execute("ROLLBACK")
        raise


class SharedConnection:
    """A connection that stays open between uses. Threads take turns.

    It is opened on first use. A forked process opens its own, and if another file has taken the place of
    the open one, the next use opens that file.
    """

    def __init__(
        self, path: str | os.PathLike[str], file_format: FileFormat, options: SQLiteOptions = DEFAULT_OPTIONS
    ) -> None:
        self.path = Path(path)
        self._format = file_format
        self._options = options
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._file: os.stat_result | None = None
        self._finalizer: weakref.finalize[..., SharedConnection] | None = None

    @contextmanager
    def acquire(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread until the block ends. Raises what `open_sqlite` raises."""
        with self._lock:
            connection = self._connection
            if connection is None or self._process != os.getpid() or not self._is_current_file():
                connection = self._reconnect()
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection in a `write_transaction`."""
        with self.acquire() as connection, write_transaction(connection):
            yield connection

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._finalizer is not None:
                self._finalizer()
            self._connection = self._finalizer = None

    def _is_current_file(self) -> bool:
        try:
            return self._file is not None and os.path.samestat(self._file, self.path.stat())
        except FileNotFoundError:
            return False

    def _reconnect(self) -> sqlite3.Connection:
        self.close()
        _prepare_file(self.path, create=True)
        self._file = self.path.stat()  # before SQLite opens it: the next use notices a change in between
        self._connection = open_sqlite(self.path, self._format, self._options)
        self._process = os.getpid()
        self._finalizer = close_at_end(self, self._connection)
        return self._connection


#: connections inherited by a fork: closing them would disturb the parent process
_INHERITED: Final[list[sqlite3.Connection]] = []


def close_at_end(owner: T, connection: sqlite3.Connection) -> weakref.finalize[..., T]:
    """Close the connection at the latest when `owner` or the program ends; calling the result does it now."""
    return weakref.finalize(owner, _close_connection, connection, os.getpid())


def _close_connection(connection: sqlite3.Connection, process: int) -> None:
    if process == os.getpid():
        connection.close()
    else:
        _INHERITED.append(connection)


def is_busy(error: BaseException) -> bool:
    """Report whether another connection kept the file locked longer than the timeout."""
    return get_error_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damaged(error: BaseException) -> bool:
    """Report whether the file is not a SQLite file, is corrupt, or has the format of another program."""
    if isinstance(error, WrongFormatError):
        return True
    return get_error_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def get_error_code(error: BaseException) -> int | None:
    """Return SQLite's primary result code (sqlite3.h), or None for other errors."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def describe_error(error: BaseException) -> str:
    """Return what went wrong in a few words, without the path."""
    if is_busy(error):
        return "another process keeps it locked"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def enable_wal(connection: sqlite3.Connection, timeout: float = BUSY_SECONDS) -> None:
    """Switch the file to write-ahead logging, which is a property of the file.

    SQLite does not wait for other connections here, whatever its busy timeout, so this function does.
    """
    until = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
        time.sleep(_PAUSE)


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless the file exists. Raises OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600))


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database that may be in use into `target`, as one file without a write-ahead log."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")


def _prepare_file(path: Path, *, create: bool) -> None:
    if create:
        create_private_file(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if _POSIX and mode & 0o077:
        path.chmod(mode & 0o700)


def _set_pragmas(connection: sqlite3.Connection, options: SQLiteOptions) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    pragmas = {**_DEFAULT_PRAGMAS, **options.pragmas}
    for name in sorted(pragmas, key=lambda name: name not in _FIRST_PRAGMAS):
        connection.execute(f"PRAGMA {name} = {pragmas[name]}")


def _ensure_tables(
    connection: sqlite3.Connection, file_format: FileFormat, options: SQLiteOptions, *, create: bool
) -> None:
    # in one transaction, because another process may create the tables in between
    connection.execute("BEGIN")
    try:
        empty = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
        numbers = tuple(
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
    finally:
        if connection.in_transaction:  # SQLite ends it itself after some errors
            connection.execute("COMMIT")
    if numbers == (file_format.application_id, file_format.version):
        return
    if numbers[0] == file_format.application_id:
        if create and numbers[1] in file_format.upgrades:
            _upgrade_tables(connection, file_format)
            return
        raise WrongFormatError(
            f"another version of Onym wrote it (format {numbers[1]}, not {file_format.version})"
        )
    if numbers != (0, 0) or not empty or not create:
        raise WrongFormatError("it is empty, or a file of another program")
    if options.wal:
        enable_wal(connection, options.timeout)
    connection.executescript(
        f"BEGIN IMMEDIATE; {file_format.schema};"
        f"PRAGMA application_id = {file_format.application_id};"
        f"PRAGMA user_version = {file_format.version};"
        "COMMIT;"
    )


def _upgrade_tables(connection: sqlite3.Connection, file_format: FileFormat) -> None:
    connection.execute("BEGIN IMMEDIATE")  # only one of several processes upgrades the file
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    try:
        if version != file_format.version:
            # `executescript` would commit before it runs
            for statement in _split_statements(file_format.upgrades[version]):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {file_format.version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _split_statements(script: str) -> Iterator[str]:
    """The statements of a script; those of a trigger contain semicolons."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


class GroupWriter(TransactionQueue[sqlite3.Connection]):
    """Runs small transactions in a thread of its own, and commits those that wait together.

    A transaction is a function of the connection, which belongs to the writer from now on. If the function
    raises an exception, only its own changes are undone. Each waiter goes on when the group is committed, so
    what it has written is as durable as the connection's `synchronous` makes it. Raises sqlite3.Error if the
    group cannot be committed.
    """

    def __init__(self, connection: sqlite3.Connection, *, name: str, most: int = 256) -> None:
        """Start the thread `name`. A group has at most `most` transactions."""
        super().__init__(name=name, most=most)
        self._connection = connection
        self._thread.start()

    def _make_closed_error(self) -> sqlite3.Error:
        return sqlite3.ProgrammingError("the database is closed")

    def _close_connection(self) -> None:
        self._connection.close()

    def _run_group(self, group: list[Job[sqlite3.Connection]]) -> None:
        try:
            with write_transaction(self._connection) as connection:
                for job in group:
                    _run_job(connection, job)
        except sqlite3.Error as error:
            for job in group:
                job.error = job.error or error


def _run_job(connection: sqlite3.Connection, job: Job[sqlite3.Connection]) -> None:
    connection.execute("SAVEPOINT job")
    try:
        job.result = job.work(connection)
    except Exception as error:
        job.error = error
        if not connection.in_transaction:  # SQLite has rolled back the whole group
            raise sqlite3.OperationalError("the transaction was rolled back") from error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")
