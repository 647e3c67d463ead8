"""Databases for these tests: a SQLite file, and one PostgreSQL database that is emptied after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onym.accounts.store import METADATA
from registry_support import Postgres, postgres

__all__ = ["postgres"]


@pytest.fixture(scope="session")
def _postgres_database(postgres: Postgres) -> Iterator[str]:
    with postgres.database() as name:
        yield name


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables: a SQLite file that is not there yet, then PostgreSQL."""
    if request.param == "sqlite":
        yield str(tmp_path / "accounts.db")
        return
    server: Postgres = request.getfixturevalue("postgres")
    name: str = request.getfixturevalue("_postgres_database")
    yield server.url(name)
    tables = ", ".join(f'"{table}"' for table in METADATA.tables)
    server.execute(f"TRUNCATE {tables} RESTART IDENTITY", name)
