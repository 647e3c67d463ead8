"""Real servers for the registry's tests, started by the tests on free ports in temporary folders.

PostgreSQL and Chromium come from Debian's packages, the OpenID provider from npm, aiosmtpd and uvicorn run
in threads. Whatever becomes of the test process, nothing stays behind (`guard.py`). Where a part is not
installed the test is skipped and says so; in CI it fails. `from registry_support import postgres, ...` in a
conftest registers the fixtures; each server is one per process, so workers do not share.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app_support import Service, registry_service, run_app
from browser_support import chromium
from loop_support import arun
from openid_support import OpenIDProvider, openid_provider
from postgres_support import Postgres, postgres_server
from smtp_support import SentMail, SMTPServer, smtp_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = [
    "OpenIDProvider",
    "Postgres",
    "SMTPServer",
    "SentMail",
    "Service",
    "arun",
    "browser",
    "chromium",
    "openid",
    "openid_provider",
    "page",
    "postgres",
    "postgres_server",
    "postgres_url",
    "registry_service",
    "run_app",
    "smtp",
    "smtp_server",
    "store_url",
]

_shared = ExitStack()
atexit.register(_shared.close)


@cache
def _shared_postgres() -> Postgres:
    return _shared.enter_context(postgres_server())


@cache
def _shared_openid() -> OpenIDProvider:
    return _shared.enter_context(openid_provider())


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    """PostgreSQL, one server for all tests of this process."""
    return _shared_postgres()


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """SQLAlchemy's URL of a fresh, empty database in PostgreSQL."""
    with postgres.database() as name:
        yield postgres.url(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be made: a SQLite file that is not there yet, then an empty PostgreSQL database."""
    if request.param == "sqlite":
        return str(tmp_path / "registry.sqlite3")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def smtp() -> Iterator[SMTPServer]:
    """A mail server that takes everything."""
    with smtp_server() as server:
        yield server


@pytest.fixture(scope="session")
def openid() -> OpenIDProvider:
    """An OpenID provider, one for all tests of this process."""
    return _shared_openid()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium. While it is there, run coroutines by `arun`, in another thread."""
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a profile of its own. A script's error fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", timezone_id="UTC")
    context.set_default_timeout(300_000)
    faults: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: faults.append(str(error)))
    try:
        yield opened
    finally:
        context.close()
    assert faults == []
