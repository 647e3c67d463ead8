"""Secrets that the machines of a fleet share: a folder, its rotation, and what a process does with it."""

from __future__ import annotations

import os
import threading
import traceback
from pathlib import Path

import pytest

from onym.errors import CredentialError, SignatureError
from onym.sign.sealing import (
    OVERLAP_SECONDS,
    PATIENCE_SECONDS,
    RELOAD_SECONDS,
    FleetSecrets,
    open_sealed,
    rotate_secrets,
    seal,
)

NOW = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path, clock: Clock) -> Path:
    path = tmp_path / "secrets"
    rotate_secrets(path, clock=clock)
    return path


def reveal(secrets: FleetSecrets) -> list[str]:
    return [secret.reveal() for secret in secrets.list_secrets()]


def test_a_new_folder_has_one_secret_for_its_owner_only(folder: Path, clock: Clock) -> None:
    (secret,) = reveal(FleetSecrets(folder, clock=clock))
    assert len(secret) == 43
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert secret not in repr(FleetSecrets(folder, clock=clock).__dict__)


def test_a_rotation_never_separates_two_machines(folder: Path, clock: Clock) -> None:
    """At every moment what one machine seals opens on the other, which reads the folder later."""
    first = FleetSecrets(folder, clock=clock)
    (old,) = reveal(first)
    clock.now += 20
    second = FleetSecrets(folder, clock=clock)
    clock.now += 5
    assert rotate_secrets(folder, clock=clock) == clock.now + OVERLAP_SECONDS
    seen = set()
    for _ in range(200):
        clock.now += 1
        used = [tuple(reveal(machine)) for machine in (first, second)]
        assert used[0][0] in used[1]
        assert used[1][0] in used[0]
        sealed = seal(first, "test", b"data")
        assert open_sealed(second, "test", sealed) == b"data"
        seen.update(used)
    new = reveal(first)
    assert new[1] == old
    assert new[0] != old
    assert seen == {(old,), (old, new[0]), (new[0], old)}


def test_a_second_rotation_waits_for_the_first(folder: Path, clock: Clock) -> None:
    rotate_secrets(folder, clock=clock)
    clock.now += OVERLAP_SECONDS - 1
    with pytest.raises(CredentialError) as caught:
        rotate_secrets(folder, clock=clock)
    assert caught.value.code == "credential.too-early"
    before = reveal(FleetSecrets(folder, clock=clock))
    clock.now += 1
    rotate_secrets(folder, clock=clock)
    assert reveal(FleetSecrets(folder, clock=clock))[0] == before[1]


def test_a_revoked_secret_opens_nothing_after_a_minute(folder: Path, clock: Clock) -> None:
    """Attack 104: what was sealed with a secret that is gone does not open."""
    rotate_secrets(folder, clock=clock)
    machine = FleetSecrets(folder, clock=clock)
    old = reveal(machine)
    sealed = seal(machine, "test", b"data")
    assert rotate_secrets(folder, revoke=True, clock=clock) == clock.now
    clock.now += 60
    (new,) = reveal(machine)
    assert new not in old
    with pytest.raises(SignatureError) as caught:
        open_sealed(machine, "test", sealed)
    assert caught.value.code == "sign.bad-seal"


def test_a_folder_that_is_away_is_used_for_ten_minutes(folder: Path, clock: Clock) -> None:
    machine = FleetSecrets(folder, clock=clock)
    old = reveal(machine)
    folder.rename(folder.with_name("away"))
    clock.now += PATIENCE_SECONDS - 1
    assert reveal(machine) == old
    clock.now += RELOAD_SECONDS
    for _ in range(2):
        with pytest.raises(CredentialError) as caught:
            machine.list_secrets()
        assert caught.value.code == "credential.missing"
    folder.with_name("away").rename(folder)
    assert reveal(machine) == old


def test_a_clock_that_was_set_back_does_not_stop_the_reading(folder: Path, clock: Clock) -> None:
    machine = FleetSecrets(folder, clock=clock)
    clock.now -= 3600
    rotate_secrets(folder, revoke=True, clock=clock)
    assert reveal(machine) == reveal(FleetSecrets(folder, clock=clock))


def test_an_operator_may_write_the_secrets(folder: Path, clock: Clock) -> None:
    (folder / "current").write_text("n" * 32)
    (folder / "previous").write_text("p" * 1024 + "\n")
    (folder / "previous").chmod(0o600)
    assert reveal(FleetSecrets(folder, clock=clock)) == ["n" * 32, "p" * 1024]
    rotate_secrets(folder, clock=clock)
    clock.now += OVERLAP_SECONDS
    assert reveal(FleetSecrets(folder, clock=clock))[1] == "n" * 32


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hunter2hunter2hunter2hunter2hun",
        b"hunter2" * 147,
        b"\n",
        b"hunter2hunter2hunter2hunter2hunter2\nlater",
        b"hunter2hunter2hunter2hunter2hunter2\nfrom tomorrow",
        b"hunter2hunter2hunter2hunter2hunter2\nfrom 2026-01-02T03:04:05Z\nfrom 2026-01-02T03:04:05Z",
        b"hunter2hunter2hunter2hunter2hunter2\xff",
    ],
    ids=[f"case {number}" for number in range(8)],
)
@pytest.mark.parametrize("name", ["current", "previous"])
def test_a_file_that_is_not_a_secret_is_rejected_and_not_shown(
    folder: Path, name: str, content: bytes
) -> None:
    (folder / name).write_bytes(content)
    (folder / name).chmod(0o600)
    with pytest.raises(CredentialError) as caught:
        FleetSecrets(folder)
    assert caught.value.code == "credential.bad-secret"
    report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    shown = "".join(
        str(frame.locals) for frame in report.stack if Path(frame.filename).name == "fleet_secrets.py"
    )
    assert "hunter2" not in shown + "".join(report.format_exception_only())
    assert caught.value.__context__ is None


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
@pytest.mark.parametrize("name", ["", "current", "previous"])
def test_others_may_not_read_the_secrets(folder: Path, clock: Clock, name: str) -> None:
    rotate_secrets(folder, clock=clock)
    (folder / name).chmod(0o755)
    with pytest.raises(CredentialError) as caught:
        FleetSecrets(folder, clock=clock)
    assert caught.value.code == "credential.permissions"


def test_a_folder_without_secrets_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CredentialError) as caught:
        FleetSecrets(tmp_path / "none")
    assert caught.value.code == "credential.missing"


def test_readers_meet_no_half_rotation(folder: Path) -> None:
    """Readers that run beside rotations always find a secret that the others accept."""
    begun, stop, found = threading.Event(), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            found.append(reveal(FleetSecrets(folder)))
            begun.set()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    assert begun.wait(300)
    clock = Clock()
    history = [reveal(FleetSecrets(folder, clock=clock))[0]]
    for _ in range(30):
        clock.now += OVERLAP_SECONDS
        rotate_secrets(folder, clock=clock)
        history.append((folder / "current").read_text().split()[0])
    stop.set()
    for reader in readers:
        reader.join(300)
    assert found
    for secrets in found:
        places = sorted(history.index(secret) for secret in secrets)
        assert places[-1] - places[0] == len(places) - 1 or places == [0]
