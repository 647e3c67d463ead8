"""Stores for these tests: made once, then copied or emptied, so that each test has its own at little cost.

A SQLite file is copied. Of PostgreSQL one database serves all tests of a process and is emptied between them:
that takes 10 ms, a copy (CREATE DATABASE ... TEMPLATE) twenty times as long.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from onym.accounts.store import METADATA as ACCOUNT_TABLES
from onym.registry.store import REVISION, Store
from onym.registry.store.schema import METADATA
from registry.store.store_support import in_store
from registry_support import Postgres
from registry_support import store_url as empty_url

__all__ = ["empty_url"]


async def _nothing(store: Store) -> None:
    """The schema is all that is wanted."""


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "registry.db"
    in_store(str(path), _nothing)
    return path


#: a test may leave rows, a revision and connections behind, and nothing else; triggers guard the log's rows
_EMPTY = """
SET lock_timeout = '120s';
SET session_replication_role = replica;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid();
{deletes};
SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S';
UPDATE alembic_version SET version_num = '{revision}';
"""


@pytest.fixture(scope="session")
def _postgres_database(postgres: Postgres) -> Iterator[str]:
    with postgres.database() as name:
        in_store(postgres.url(name), _nothing)
        yield name


@pytest.fixture
def sqlite_path(_sqlite_template: Path, tmp_path: Path) -> Path:
    """An empty registry in a file of its own, for what is about SQLite or the same on both."""
    path = tmp_path / "registry.db"
    shutil.copy(_sqlite_template, path)
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty registry of the schema in force: a SQLite file, then a PostgreSQL database."""
    if request.param == "sqlite":
        yield str(request.getfixturevalue("sqlite_path"))
        return
    server: Postgres = request.getfixturevalue("postgres")
    name: str = request.getfixturevalue("_postgres_database")
    yield server.url(name)
    deletes = "; ".join(f'DELETE FROM "{table}"' for table in (*METADATA.tables, *ACCOUNT_TABLES.tables))
    server.execute(_EMPTY.format(deletes=deletes, revision=REVISION), name)
