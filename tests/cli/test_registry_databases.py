"""Databases that cannot be used: each cause has its own code, and a hint that works, through both doors."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from app_support import registry_service
from onym.store import sql
from postgres_support import Postgres
from support import free_port

pytestmark = pytest.mark.xdist_group("registry-cli")

INIT = ("registry", "init", "--password-stdin", "--empty")
PASSWORD = "a passphrase of four words\n"
#: what a server without the contrib modules answers, if the extension was installed before
HIDE_LIBRARY = (
    "SET allow_system_table_mods = on; "
    "UPDATE pg_proc SET probin = '$libdir/removed' WHERE probin = '$libdir/pg_trgm'"
)


@pytest.fixture
def plain(postgres: Postgres) -> Iterator[str]:
    """A user without rights."""
    name = f"plain_{secrets.token_hex(4)}"
    postgres.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    postgres.execute(f"DROP ROLE {name}")


@pytest.fixture
def failure(run: Any) -> Callable[..., dict[str, Any]]:
    """The error of a command on the database at a URL."""

    def call(url: str, *words: str) -> dict[str, Any]:
        ran = run(*(words or ("registry", "user", "list")), "--db", url, "--json", stdin=PASSWORD)
        assert ran.code == 11, ran.out + ran.err
        error: dict[str, Any] = ran.json["error"]
        return error

    return call


def test_each_cause_of_a_failed_connection_has_its_own_code(
    postgres: Postgres, plain: str, failure: Any
) -> None:
    tcp = postgres.url(tcp=True)
    user = replace(postgres, user=plain)
    with postgres.database() as name:
        postgres.execute(f'REVOKE CONNECT ON DATABASE "{name}" FROM PUBLIC')
        causes = {
            tcp.replace(postgres.password, "sekret"): "wrong-credentials",
            tcp.replace(f":{postgres.password}", ""): "wrong-credentials",
            replace(postgres, user="nobody_here").url(): "wrong-credentials",
            tcp.replace(str(postgres.port), str(free_port())): "unreachable",
            tcp.replace("127.0.0.1", "registry.invalid"): "unreachable",
            postgres.url("missing_one"): "unknown-database",
            user.url(name): "no-permission",
        }
        found = {url: failure(url) for url in causes}
    assert {url: error["code"] for url, error in found.items()} == {
        url: f"registry.{code}" for url, code in causes.items()
    }
    assert "createdb -O postgres missing_one" in found[postgres.url("missing_one")]["hint"]
    assert postgres.password not in json.dumps(list(found.values()))
    assert "sekret" not in json.dumps(list(found.values()))


def test_a_database_that_takes_no_more_connections_is_told(
    postgres: Postgres, plain: str, failure: Any
) -> None:
    with postgres.database() as name:
        postgres.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0')
        error = failure(replace(postgres, user=plain).url(name))
    assert error["code"] == "registry.too-many-connections"


def test_the_command_in_the_hint_gives_the_permission_that_is_missing(
    postgres: Postgres, plain: str, run: Any, failure: Any
) -> None:
    with postgres.database() as name:
        url = replace(postgres, user=plain).url(name)
        error = failure(url, *INIT)
        assert error["code"] == "registry.no-permission"
        postgres.execute(error["hint"].partition(": ")[2], name)
        assert run(*INIT, "--db", url, stdin=PASSWORD).code == 0


def test_a_read_only_database_is_told_with_the_command_that_ends_it(
    postgres: Postgres, run: Any, failure: Any
) -> None:
    with postgres.database() as name:
        url = postgres.url(name)
        run(*INIT, "--db", url, stdin=PASSWORD)
        postgres.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        error = failure(url, "registry", "user", "email", "admin", "a@registry.example")
        assert error["code"] == "registry.read-only"
        postgres.execute("SET default_transaction_read_only = off; " + error["hint"].rpartition(": ")[2])
        assert run("registry", "user", "list", "--db", url).code == 0


def test_a_schema_of_another_program_is_not_an_internal_error(
    postgres: Postgres, run: Any, failure: Any
) -> None:
    with postgres.database() as name:
        url = postgres.url(name)
        run(*INIT, "--db", url, stdin=PASSWORD)
        postgres.execute("UPDATE alembic_version SET version_num = '0000'", name)
        assert failure(url, "registry", "init")["code"] == "registry.wrong-schema"
        postgres.execute("UPDATE alembic_version SET version_num = '0002'", name)
        postgres.execute("ALTER TABLE accounts RENAME COLUMN login TO name_of_another", name)
        assert failure(url)["code"] == "registry.wrong-schema"


def test_a_server_without_pg_trgm_has_a_registry_and_says_what_is_missing(
    postgres: Postgres, run: Any
) -> None:
    with postgres.database() as name:
        url = postgres.url(name)
        postgres.execute("CREATE EXTENSION pg_trgm", name)
        postgres.execute(HIDE_LIBRARY, name)
        ran = run("registry", "init", "--password-stdin", "--db", url, stdin=PASSWORD)
        assert ran.code == 0
        assert "postgresql-contrib" in ran.err
        assert "mailto" in run("registry", "search", "mailto", "--db", url).out
        # once the library is there, init makes the index
        postgres.execute("DROP EXTENSION pg_trgm", name)
        ran = run("registry", "init", "--db", url)
        assert ran.code == 0
        assert "postgresql-contrib" not in ran.err
        found = postgres.execute("SELECT to_regclass('entry_text_text_trigrams') IS NOT NULL", name)
        assert found == [(True,)]


def test_a_library_that_went_away_is_told_on_the_command_line_and_by_the_service(
    postgres: Postgres, run: Any, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with postgres.database() as name:
        url = postgres.url(name)
        run("registry", "init", "--password-stdin", "--db", url, stdin=PASSWORD)
        postgres.execute(HIDE_LIBRARY, name)
        error = failure(url, "registry", "search", "mail")
        assert error["code"] == "registry.missing-library"
        with registry_service(url) as service:
            asked = urllib.request.Request(
                f"{service.url}/api/v1/search?q=mail", headers={"accept": "application/json"}
            )
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(asked)
    # visitors learn nothing about the database; the operator's log says what is missing
    assert caught.value.code == 503
    assert b"pg_trgm" not in caught.value.read()
    assert "apt-get install postgresql-contrib" in caplog.text


def test_a_server_that_is_too_old_is_refused(
    postgres: Postgres, failure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_OLDEST_SERVER", (10_000,))
    assert failure(postgres.url())["code"] == "registry.old-server"
