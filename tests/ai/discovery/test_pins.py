"""Pins: a weaker document within its window is an attack; their file is shared, private, and never lost."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.records import AnchorDocument, Auth, Level, Requirements
from onym.ai.settings import MemoryPins, PinFile, Pins, default_pin_path
from onym.errors import DiscoveryError
from onym.store.sqlite import WrongFormatError

DAY = 86400
NAME = "bank.example"
Make = Callable[..., Pins]


def document(
    *, pin: int = DAY, algorithms: tuple[str, ...] = ("Ed25519", "ES256"), **asked: object
) -> AnchorDocument:
    return AnchorDocument(
        anchor="https://bank.example",
        authority=NAME,
        service="https://bank.example/v1",
        jwks="https://bank.example/keys",
        requirements=Requirements(**asked),  # type: ignore[arg-type]
        algorithms=algorithms,
        pin_max_age=pin,
    )


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def pins(**options: int) -> Pins:
        if request.param == "memory":
            return MemoryPins(**options)
        return PinFile(tmp_path / "state" / "pins.sqlite", **options)

    return pins


def refused(pins: Pins, found: AnchorDocument, kids: list[str], at: float) -> str:
    with pytest.raises(DiscoveryError) as caught:
        pins.check(NAME, found, kids, at)
    assert caught.value.code == "aiip.downgrade-detected"
    assert caught.value.clause == "AIIP/HTTPS v1 3.3 rule 7"
    return caught.value.message


STRONG = {
    "signed_results": True,
    "mtls": True,
    "dpop": Level.REQUIRED,
    "auth": Auth.OAUTH2,
    "request_binding": True,
}
WEAKER = [
    ({"signed_results": False}, "signed results"),
    ({"mtls": False}, "mTLS"),
    ({"request_binding": False}, "whole request"),
    ({"dpop": Level.SUPPORTED}, "DPoP"),
    ({"dpop": Level.NONE}, "DPoP"),
    ({"auth": Auth.NONE}, "sign in"),
    ({"algorithms": ("Ed25519", "PS256")}, "algorithms"),
]


@pytest.mark.parametrize(("change", "said"), WEAKER)
def test_a_weaker_document_in_the_window_is_a_downgrade(
    make: Make, change: dict[str, object], said: str
) -> None:
    pins = make()
    pins.check(NAME, document(**STRONG), ["a"], 0.0)
    weaker = document(**{**STRONG, **change})  # type: ignore[arg-type]
    assert said in refused(pins, weaker, ["a"], DAY - 1)
    # once the window is over it is the owner's to decide
    pins.check(NAME, weaker, ["a"], DAY + 1)


@pytest.mark.parametrize(("change", "_"), WEAKER)
def test_a_stronger_document_is_always_welcome_and_counts_from_then_on(
    make: Make, change: dict[str, object], _: str
) -> None:
    pins = make()
    weaker = document(**{**STRONG, **change})  # type: ignore[arg-type]
    pins.check(NAME, weaker, ["a"], 0.0)
    pins.check(NAME, document(**STRONG), ["a"], 10.0)
    refused(pins, weaker, ["a"], 20.0)


def test_two_steps_are_no_way_around(make: Make) -> None:
    pins = make()
    pins.check(NAME, document(), ["a"], 0.0)
    # first the window is taken back, then the demand: the promise stands
    pins.check(NAME, document(pin=0), ["a"], 1.0)
    refused(pins, document(pin=0, signed_results=False), ["a"], 2.0)


def test_a_trial_of_something_stronger_does_not_outlive_its_own_window(make: Make) -> None:
    pins = make()
    pins.check(NAME, document(), ["a"], 0.0)
    pins.check(NAME, document(pin=100, mtls=True), ["a"], 10.0)
    refused(pins, document(), ["a"], 50.0)
    pins.check(NAME, document(), ["a"], 200.0)
    refused(pins, document(signed_results=False), ["a"], 300.0)


def test_keys_go_on_from_one_look_to_the_next(make: Make) -> None:
    pins = make()
    pins.check(NAME, document(), ["a"], 0.0)
    assert "all its keys" in refused(pins, document(), ["b"], 1.0)
    # b is announced beside a, and may stand alone after that
    pins.check(NAME, document(), ["a", "b"], 2.0)
    pins.check(NAME, document(), ["b"], 3.0)
    refused(pins, document(), ["a"], 4.0)
    pins.check(NAME, document(), [], 5.0)
    refused(pins, document(), ["c"], 6.0)
    pins.check(NAME, document(), ["c"], 3 * DAY)


def test_who_promises_nothing_is_held_to_nothing(make: Make) -> None:
    pins = make()
    pins.check(NAME, document(pin=0), ["a"], 0.0)
    pins.check(NAME, document(pin=0, signed_results=False), ["b"], 1.0)


def test_authorities_do_not_share_pins(make: Make) -> None:
    pins = make()
    pins.check(NAME, document(), ["a"], 0.0)
    pins.check("other.example", document(signed_results=False), ["b"], 1.0)


def test_a_full_store_keeps_what_holds_and_takes_no_more(make: Make) -> None:
    pins = make(limit=2)
    for name in ("one.example", "two.example", "three.example"):
        pins.check(name, document(), ["a"], 0.0)
    pins.check("three.example", document(signed_results=False), ["a"], 1.0)
    with pytest.raises(DiscoveryError):
        pins.check("one.example", document(signed_results=False), ["a"], 1.0)
    # what is over makes room
    later = 2.0 * DAY
    pins.check("three.example", document(), ["a"], later)
    with pytest.raises(DiscoveryError):
        pins.check("three.example", document(signed_results=False), ["a"], later + 1)


levels = st.sampled_from(Level)
some = st.builds(
    document,
    pin=st.sampled_from([0, 50, 500]),
    signed_results=st.booleans(),
    mtls=st.booleans(),
    dpop=levels,
    auth=st.sampled_from(Auth),
)


@given(st.lists(st.tuples(some, st.integers(0, 100)), max_size=8))
def test_no_demand_is_ever_lost_before_its_time(steps: list[tuple[AnchorDocument, int]]) -> None:
    pins, at, promised = MemoryPins(), 0.0, dict[str, float]()
    for found, wait in steps:
        at += wait
        asked = found.requirements
        held = {name for name, until in promised.items() if until > at}
        lost = {name for name in held if name in ("signed_results", "mtls") and not getattr(asked, name)}
        try:
            pins.check(NAME, found, ["a"], at)
        except DiscoveryError:
            continue
        assert not lost
        for name in ("signed_results", "mtls"):
            if getattr(asked, name) and found.pin_max_age:
                promised[name] = max(promised.get(name, 0.0), at + found.pin_max_age)


def test_pins_outlive_the_process(tmp_path: Path) -> None:
    file = tmp_path / "pins.sqlite"
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from test_pins import *; "
        "PinFile(sys.argv[1]).check(NAME, document(), ['a'], 0.0)"
    )
    subprocess.run([sys.executable, "-c", code, str(file), str(Path(__file__).parent)], check=True)
    refused(PinFile(file), document(signed_results=False), ["a"], 1.0)


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "state" / "pins.sqlite"
    PinFile(file).check(NAME, document(), ["a"], 0.0)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["pins.sqlite"]
    file.chmod(0o644)
    assert f"chmod 600 {file}" in unusable(PinFile(file), PermissionError).message


def unusable(pins: Pins, *causes: type[Exception]) -> DiscoveryError:
    with pytest.raises(DiscoveryError) as caught:
        pins.check(NAME, document(), ["a"], 1.0)
    assert caught.value.code == "aiip.unavailable"
    assert caught.value.hint
    assert isinstance(caught.value.__cause__, causes), repr(caught.value.__cause__)
    return caught.value


def test_a_file_is_looked_at_before_anybody_asks(tmp_path: Path) -> None:
    file = tmp_path / "state" / "pins.sqlite"
    PinFile(file).require_usable()
    PinFile(file).require_usable()
    file.write_bytes(b"")
    with pytest.raises(DiscoveryError) as caught:
        PinFile(file).require_usable()
    assert caught.value.code == "aiip.unavailable"


@pytest.mark.parametrize("octets", [b"", b"SQLite format 3\x00 and then nothing of the kind", b"\x00" * 9000])
def test_a_ruined_file_is_an_error_and_not_an_empty_one(tmp_path: Path, octets: bytes) -> None:
    file = tmp_path / "pins.sqlite"
    PinFile(file).check(NAME, document(), ["a"], 0.0)
    file.write_bytes(octets)
    assert str(file) in unusable(PinFile(file), sqlite3.DatabaseError).message


@pytest.mark.parametrize("pin", ["{", "{}", '{"demands": {"signed-results": "x"}, "kids": []}', "[]"])
def test_a_ruined_row_is_an_error(tmp_path: Path, pin: str) -> None:
    file = tmp_path / "pins.sqlite"
    PinFile(file).check(NAME, document(), ["a"], 0.0)
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE pins SET pin = ?", (pin,))
    unusable(PinFile(file), KeyError, TypeError, ValueError)


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "pins.sqlite"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE theirs (x)")
    file.chmod(0o600)
    before = file.read_bytes()
    unusable(PinFile(file), WrongFormatError)
    assert file.read_bytes() == before


def test_a_file_that_is_busy_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.ai.settings._BUSY_SECONDS", 0.01)
    file = tmp_path / "pins.sqlite"
    PinFile(file).check(NAME, document(), ["a"], 0.0)
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    error = unusable(PinFile(file), sqlite3.OperationalError)
    assert error.retryable
    db.close()


def test_many_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SQLite hands its lock to whoever looks first: with eight at it one may look late again and again
    monkeypatch.setattr("onym.ai.settings._BUSY_SECONDS", 60.0)
    file = tmp_path / "pins.sqlite"
    names = [f"a{number}.example" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: PinFile(file).check(name, document(), ["a"], 0.0), names * 2))
    for name in names:
        with pytest.raises(DiscoveryError) as refusal:
            PinFile(file).check(name, document(signed_results=False), ["a"], 1.0)
        assert refusal.value.code == "aiip.downgrade-detected"


def test_a_look_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "pins.sqlite"
    pins = PinFile(file)
    pins.check(NAME, document(), ["a"], 0.0)
    before = file.read_bytes()
    pins.check(NAME, document(), ["a"], 30.0)
    assert file.read_bytes() == before
    pins.check(NAME, document(), ["a"], 3600.0)
    assert file.read_bytes() != before


def test_the_users_state_directory_is_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert PinFile().path == default_pin_path()
    assert default_pin_path().name == "aiip-pins.sqlite"
