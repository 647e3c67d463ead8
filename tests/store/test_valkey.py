"""Clients of Valkey and Redis, against a real server: connections, errors, and no password anywhere."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from onym.errors import MissingExtraError, StaleError, StoreError
from onym.store.valkey import ValkeyOptions, open_async_valkey, open_valkey, translate_errors
from onym.uri.secret import Secret
from support import free_port
from valkey_support import ValkeyServer, valkey_server


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with valkey_server() as running:
        yield running


@pytest.fixture(params=["tcp", "redis", "user", "tls", "rediss", "unix"])
def url(request: pytest.FixtureRequest, server: ValkeyServer) -> Secret:
    secret, port, tls_port = server.password, server.port, server.tls_port
    return Secret(
        {
            "tcp": f"valkey://:{secret}@127.0.0.1:{port}",
            "redis": f"redis://:{secret}@127.0.0.1:{port}/1",
            "user": f"valkey://default:{secret}@localhost:{port}/0",
            "tls": f"valkeys://:{secret}@localhost:{tls_port}/2",
            "rediss": f"rediss://:{secret}@localhost:{tls_port}",
            "unix": f"unix://:{secret}@{server.socket}?db=3",
        }[request.param]
    )


def options(server: ValkeyServer, **changes: object) -> ValkeyOptions:
    return ValkeyOptions(**{"timeout": 60.0, "ca_files": (str(server.authority),), **changes})  # type: ignore[arg-type]


def plain_url(server: ValkeyServer, user: str = "", password: str = "") -> Secret:
    return Secret(f"valkey://{user}:{password or server.password}@127.0.0.1:{server.port}")


def test_a_key_is_set_only_once(server: ValkeyServer, url: Secret) -> None:
    with open_valkey(url, options(server)) as client, translate_errors():
        client.delete("key")
        assert client.set("key", "one", nx=True, px=600_000)
        assert client.set("key", "two", nx=True, px=600_000) is None
        assert client.get("key") == b"one"


def test_asyncio_has_the_same_client(server: ValkeyServer, url: Secret) -> None:
    async def work() -> bytes | None:
        async with open_async_valkey(url, options(server)) as client:
            with translate_errors():
                await client.set("async", "one")
                found = await client.get("async")
        return found

    assert asyncio.run(work()) == b"one"


PATIENT = ValkeyOptions(timeout=60.0)


def code_of(url: Secret | str, given: ValkeyOptions = PATIENT, command: str = "PING") -> str:
    with pytest.raises(StoreError) as caught, open_valkey(url, given) as client, translate_errors():
        client.execute_command(*command.split())

    async def work() -> None:
        async with open_async_valkey(url, given) as client:
            with translate_errors():
                await client.execute_command(*command.split())

    with pytest.raises(StoreError) as again:
        asyncio.run(work())
    assert caught.value.code == again.value.code
    return caught.value.code


def test_each_failure_has_a_code(server: ValkeyServer, tmp_path: Path, subtests: pytest.Subtests) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    tls = Secret(f"valkeys://:{server.password}@localhost:{server.tls_port}")
    elsewhere = Secret(f"valkeys://:{server.password}@127.0.0.1:{server.tls_port}")
    cases = {
        "nothing listens": (Secret(f"valkey://127.0.0.1:{free_port()}"), {}, "PING", "unreachable"),
        "wrong password": (plain_url(server, password="hunter2"), {}, "PING", "credentials"),
        "no password": (Secret(f"valkey://127.0.0.1:{server.port}"), {}, "PING", "credentials"),
        "unknown authority": (tls, {"ca_files": (str(other),)}, "PING", "tls"),
        "another name": (elsewhere, {}, "PING", "tls"),
        "unknown command": (plain_url(server), {}, "NO-SUCH", "failed"),
        "blocked": (plain_url(server), {"timeout": 0.05}, "BLPOP nothing 60", "timeout"),
    }
    for name, (address, changes, command, code) in cases.items():
        with subtests.test(name):
            assert code_of(address, options(server, **changes), command) == f"valkey.{code}"


def test_a_server_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"valkey://127.0.0.1:{listener.getsockname()[1]}"
        assert code_of(address, ValkeyOptions(timeout=0.05)) == "valkey.timeout"


def test_rights_memory_and_replicas_have_codes(server: ValkeyServer) -> None:
    with open_valkey(plain_url(server), options(server)) as admin:
        admin.execute_command("ACL", "SETUSER", "guest", "on", ">guest", "+ping", "+client", "+select")
        assert code_of(plain_url(server, "guest", "guest"), command="GET key") == "valkey.forbidden"
        admin.config_set("maxmemory", "1")
        try:
            assert code_of(plain_url(server), command="SET key value") == "valkey.full"
        finally:
            admin.config_set("maxmemory", "0")
        admin.replicaof("127.0.0.1", str(free_port()))
        try:
            assert code_of(plain_url(server), command="SET key value") == "valkey.read-only"
        finally:
            admin.replicaof("NO", "ONE")


def test_a_lost_race_is_stale(server: ValkeyServer) -> None:
    with open_valkey(plain_url(server), options(server)) as client, client.pipeline() as pipeline:
        pipeline.watch("race")
        client.set("race", "other")
        pipeline.multi()
        pipeline.set("race", "mine")
        with pytest.raises(StaleError) as caught, translate_errors():
            pipeline.execute()
    assert caught.value.code == "valkey.stale"


@pytest.mark.parametrize(
    "text",
    [
        "http://:hunter2@cache.example",
        "valkey://:hunter2@",
        "valkey://:hunter2@cache.example:port",
        "valkey://:hunter2@cache.example:70000",
        "valkey://:hunter2@cache.example/zero",
        "valkey://:hunter2@cache.example/1/2",
        "valkey://:hunter2@cache.example/0?timeout=5",
        "valkey://:hunter2@cache.example/0#x",
        "valkey://:hunter2@[::1/0",
        "unix://?db=1",
        "unix:///run/x?database=1",
        "unix:///run/x?db=-1",
        "cache.example",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_shown(text: str) -> None:
    url = Secret(text)
    for opened in (open_valkey, open_async_valkey):
        with pytest.raises(StoreError) as caught:
            opened(url)
        assert (caught.value.code, caught.value.field) == ("valkey.bad-url", "url")
        assert "hunter2" not in describe(caught.value)


def test_authorities_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("none", encoding="ascii")
    for file in (wrong, tmp_path / "missing.pem"):
        with pytest.raises(StoreError) as caught:
            open_valkey("valkeys://:hunter2@cache.example", ValkeyOptions(ca_files=(str(file),)))
        assert (caught.value.code, caught.value.field) == ("valkey.bad-tls", "ca_files")


def describe(error: BaseException) -> str:
    """The error with its causes and the variables of all frames but those of this file."""
    lines = [repr(error), str(error)]
    seen: BaseException | None = error
    while seen is not None:
        stack = traceback.TracebackException.from_exception(seen, capture_locals=True).stack
        lines += [str(frame.locals) for frame in stack if frame.filename != __file__]
        seen = seen.__cause__ or seen.__context__
    return "".join(lines)


def test_the_password_is_nowhere(server: ValkeyServer) -> None:
    wrong = plain_url(server, "app", "hunter2")
    client = open_valkey(wrong)
    assert "hunter2" not in repr(client) + repr(client.connection_pool)
    with pytest.raises(StoreError) as caught, client, translate_errors():
        client.ping()
    assert "hunter2" not in describe(caught.value)


def test_the_package_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        open_valkey("valkey://localhost")
    assert caught.value.code == "valkey.missing-extra"
    assert "onym[valkey]" in str(caught.value.hint)
