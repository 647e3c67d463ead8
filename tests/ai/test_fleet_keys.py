"""The signing keys of several machines: one set, waiting, revocation, and a list that is away (4.12)."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.signing import PATIENCE_SECONDS, FleetKeys, list_fleet_keys, revoke_fleet_key
from onym.errors import CredentialError, StoreError
from onym.sign.keys import MAX_AUTHORITY_KEYS, SigningKey, read_authority_keys
from onym.sign.keystore import KeyStore
from onym.uri.secret import Secret
from postgres_support import Postgres, postgres_server

AGE = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | Secret]:
    if request.param == "sqlite":
        yield str(tmp_path / "fleet.sqlite")
        return
    server: Postgres = request.getfixturevalue("postgres")
    with server.database() as name:
        yield Secret(server.url(name))


Join = Callable[[str], FleetKeys]


@pytest.fixture
def join(tmp_path: Path, url: str | Secret, clock: Clock) -> Iterator[Join]:
    with ExitStack() as stack:

        def open_machine(name: str) -> FleetKeys:
            folder = KeyStore(tmp_path / name)
            if not (tmp_path / name).exists():
                folder.new(at=clock.now)
            return stack.enter_context(FleetKeys(folder, url, clock=clock, background=False))

        yield open_machine


def read_kids(keys: FleetKeys, at: float) -> set[str]:
    return {key["kid"] for key in json.loads(keys.jwks(at))["keys"]}


def refuse(keys: FleetKeys, at: float) -> str:
    with pytest.raises(CredentialError) as caught:
        keys.signer(at)
    return caught.value.code


def test_machines_publish_one_set_and_a_new_key_waits_for_all_copies(join: Join, clock: Clock) -> None:
    first = join("first")
    own = first.signer(clock.now).kid
    clock.now += 100
    second = join("second")
    assert refuse(second, clock.now) == "credential.fleet-waiting"
    first.refresh()
    assert first.jwks(clock.now) == second.jwks(clock.now)
    assert first.history(clock.now) == second.history(clock.now)
    assert own in read_kids(second, clock.now)
    clock.now += AGE
    for machine in (first, second):
        machine.refresh()
    kids = {machine.signer(clock.now).kid for machine in (first, second)}
    assert kids == read_kids(first, clock.now)
    assert len(kids) == 2
    assert first.signer(clock.now).kid == own


def test_a_rotation_leaves_no_moment_without_a_key(join: Join, clock: Clock, tmp_path: Path) -> None:
    machine = join("first")
    join("second")
    before = machine.signer(clock.now).kid
    KeyStore(tmp_path / "first").rotate(clock.now)
    clock.now += 30
    machine.refresh()
    seen = []
    for _ in range(140):
        clock.now += 30
        machine.refresh()
        kid = machine.signer(clock.now).kid
        assert kid in read_kids(machine, clock.now)
        seen.append(kid)
    assert seen[0] == before
    assert seen[-1] != before
    assert sorted(set(seen), key=seen.index) == [before, seen[-1]]


def test_attack_103_a_revoked_key_signs_nothing_after_a_minute(
    join: Join, clock: Clock, url: str | Secret
) -> None:
    join("first")
    stolen = join("second")
    clock.now += AGE
    stolen.refresh()
    kid = stolen.signer(clock.now).kid
    assert kid is not None
    revoke_fleet_key(url, kid)
    clock.now += 20  # the list is read every 20 seconds
    stolen.refresh()
    assert refuse(stolen, clock.now) == "credential.no-key"
    again = join("second")
    assert refuse(again, clock.now) == "credential.no-key"
    assert kid not in read_kids(again, clock.now)
    assert kid in json.loads(again.jwks(clock.now))["revoked"]
    assert {record.kid for record in list_fleet_keys(url) if record.revoked} == {kid}
    with pytest.raises(CredentialError):
        revoke_fleet_key(url, "no-such-key")


def test_attack_103_a_machine_without_the_list_signs_nothing(
    join: Join, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = join("first")

    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreError("away", code="store.unreachable")

    monkeypatch.setattr(machine._list._store, "find", fail)
    for _ in range(int(PATIENCE_SECONDS // 20)):
        clock.now += 20
        with pytest.raises(StoreError):
            machine.refresh()
        assert machine.signer(clock.now)
    clock.now += 20
    assert refuse(machine, clock.now) == "credential.fleet-away"
    # callers can still verify what was signed before
    assert read_kids(machine, clock.now)
    monkeypatch.undo()
    machine.refresh()
    assert machine.signer(clock.now)


def test_a_key_in_a_device_joins_too(tmp_path: Path, clock: Clock) -> None:
    """A `PKCS11Signer` has the same interface as this key."""
    key = SigningKey.generate("ES256").with_thumbprint()
    with FleetKeys(key, tmp_path / "fleet.sqlite", clock=clock, background=False) as keys:
        assert keys.signer(clock.now) is key
        assert read_kids(keys, clock.now) == {key.kid}


def test_an_endpoint_signs_and_publishes_with_its_fleet(tmp_path: Path) -> None:
    KeyStore(tmp_path / "keys").new(at=1.0)
    with FleetKeys(tmp_path / "keys", tmp_path / "fleet.sqlite") as keys:
        app = Endpoint("factory.test", keys=keys)
        app.check()
        assert json.loads(app._exchanges.signing.encode_keys("jwks"))["keys"]
        asyncio.run(app.aclose())


def test_a_fleet_publishes_no_more_keys_than_callers_accept(join: Join, clock: Clock) -> None:
    machines = [join(f"m{number}") for number in range(MAX_AUTHORITY_KEYS)]
    machines[0].refresh()
    assert len(read_authority_keys(machines[0].jwks(clock.now)).keys) == MAX_AUTHORITY_KEYS
    with pytest.raises(CredentialError) as caught:
        join("one too many")
    assert caught.value.code == "credential.too-many"
    # a machine that serves cannot add a key either, and goes on with its own
    machines[0]._keys.rotate(at=clock.now)  # type: ignore[union-attr]
    clock.now += PATIENCE_SECONDS + 1
    with pytest.raises(CredentialError) as caught:
        machines[0].refresh()
    assert caught.value.code == "credential.too-many"
    assert machines[0].signer(clock.now).kid


def test_a_long_list_of_keys_is_read_whole(
    join: Join, url: str | Secret, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.ai.endpoint.signing._PAGE", 2)
    machines = [join(f"m{number}") for number in range(5)]
    machines[0].refresh()
    assert len(read_kids(machines[0], clock.now)) == len(list_fleet_keys(url)) == 5


def test_the_thread_that_reads_the_list_survives_what_it_does_not_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack 103: it notices revocations, so it must not end; it says once that it fails."""
    monkeypatch.setattr("onym.ai.endpoint.signing.REFRESH_SECONDS", 0.001)
    folder = KeyStore(tmp_path / "keys")
    folder.new(at=time.time())
    reads = threading.Semaphore(0)
    broken = [True]

    def refresh(keys: FleetKeys) -> None:
        reads.release()
        if broken:
            raise ValueError("not a list")

    with FleetKeys(folder, tmp_path / "fleet.sqlite", background=False) as keys:
        monkeypatch.setattr(FleetKeys, "refresh", refresh)
        keys._thread = threading.Thread(target=keys._keep_fresh, daemon=True)
        keys._thread.start()
        for _ in range(5):
            assert reads.acquire(timeout=60)
        broken.clear()
        for _ in range(2):
            assert reads.acquire(timeout=60)
        said = [record for record in caplog.records if record.name == "onym.ai.endpoint.signing"]
        assert [record.levelname for record in said] == ["WARNING"]
