"""What was seen once does not count again, and nothing is forgotten before its time."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from onym.ai.replay import MAX_REPLAY_IDS, MemoryReplays, ReplayFile, Replays, SharedReplays, open_replays
from onym.errors import ConfigError, ProvenanceError, StoreError
from onym.store.valkey import ValkeyOptions, open_valkey
from onym.uri.secret import Secret
from support import free_port
from valkey_support import valkey_server


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    if request.param == "memory":
        return MemoryReplays
    return lambda most=MAX_REPLAY_IDS: ReplayFile(tmp_path / "seen.sqlite", most)


def test_an_id_is_new_once(make) -> None:
    store: Replays = make()
    assert not store.seen("a", 100.0, now=1.0)
    assert store.seen("a", 100.0, now=2.0)
    assert not store.seen("b", 100.0, now=2.0)


def test_an_id_is_known_until_its_last_second_and_new_after_it(make) -> None:
    store: Replays = make()
    store.seen("a", 100.0, now=1.0)
    assert store.seen("a", 100.0, now=100.0)
    assert not store.seen("a", 300.0, now=100.1)


def test_a_full_store_refuses_and_forgets_nothing(make) -> None:
    store: Replays = make(2)
    store.seen("a", 100.0, now=1.0)
    store.seen("b", 50.0, now=1.0)
    with pytest.raises(ProvenanceError) as caught:
        store.seen("c", 100.0, now=2.0)
    assert caught.value.code == "aiip.unavailable"
    assert caught.value.retryable
    assert store.seen("a", 100.0, now=2.0)
    # one has ended: there is room
    assert not store.seen("c", 100.0, now=51.0)


def test_an_overlong_id_is_refused(make) -> None:
    with pytest.raises(ProvenanceError):
        make().seen("x" * 2_000, 100.0, now=1.0)


def test_of_many_at_once_one_is_the_first(make) -> None:
    store: Replays = make()
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(store.seen("a", 100.0, now=1.0))) for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(answers) == [False] + [True] * 7


def test_a_file_is_for_its_owner_and_shared_by_processes(tmp_path: Path) -> None:
    path = tmp_path / "seen.sqlite"
    ReplayFile(path).seen("a", 100.0, now=1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ReplayFile(path).seen("a", 100.0, now=2.0)


def test_a_file_that_cannot_be_used_is_no_new_id_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.ai.replay._BUSY_SECONDS", 0.01)
    store = ReplayFile(tmp_path / "seen.sqlite")
    with closing(sqlite3.connect(tmp_path / "seen.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ProvenanceError) as caught:
            store.seen("a", 100.0, now=1.0)
        assert (caught.value.code, caught.value.retryable) == ("aiip.unavailable", True)
        other.execute("ROLLBACK")
        assert not store.seen("a", 100.0, now=1.0)
        other.execute("DROP TABLE seen")
    with pytest.raises(ProvenanceError) as caught:
        store.seen("b", 100.0, now=1.0)
    assert caught.value.code == "aiip.unavailable"


def owned(owner: str, number: int) -> str:
    return f"https://{owner}.example\nkid.{number}"


def fill(store: Replays, owner: str, *, until: float = 100.0, now: float = 1.0) -> int:
    """As many ids of this owner as find room."""
    for number in range(10_000):
        try:
            assert not store.seen(owned(owner, number), until, now=now)
        except ProvenanceError:
            return number
    raise AssertionError("there is no end of it")


def test_one_authority_alone_takes_three_quarters_and_the_others_share_the_rest(make) -> None:
    store: Replays = make(1_000)
    assert fill(store, "busy") == 750
    assert fill(store, "second") == 188
    assert fill(store, "third") == 47
    # whoever has next to nothing always gets in
    assert not store.seen(owned("quiet", 1), 100.0, now=1.0)
    assert store.seen(owned("busy", 0), 100.0, now=1.0)
    # what is over gives its room back
    assert fill(store, "busy", until=300.0, now=101.0) == 750


def test_who_finds_no_room_is_told_before_a_request_goes_out(make) -> None:
    store: Replays = make(1_000)
    store.admit("https://busy.example", now=1.0)
    for number in range(749):
        store.seen(owned("busy", number), 100.0, now=1.0)
    with pytest.raises(ProvenanceError) as caught:
        store.admit("https://busy.example", now=1.0)
    assert (caught.value.code, caught.value.retryable) == ("aiip.unavailable", True)
    # what was asked before finds room for its answer
    assert not store.seen(owned("busy", 749), 100.0, now=1.0)
    store.admit("https://quiet.example", now=1.0)
    store.admit("https://busy.example", now=100.5)


def test_a_thousand_calls_a_second_of_one_authority_find_room() -> None:
    # 1,017 a second are measured at a gateway; a receipt counts for 180 seconds
    assert MAX_REPLAY_IDS * 3 // 4 > 1_017 * 180 * 4


@pytest.mark.parametrize("most", [4, 8])
def test_a_store_of_a_few_has_room_for_all_of_them(make, most: int) -> None:
    store: Replays = make(most)
    for number in range(most):
        store.admit("", now=1.0)
        assert not store.seen(f"a{number}", 100.0, now=1.0)
    with pytest.raises(ProvenanceError):
        store.admit("", now=1.0)


def test_an_id_of_halves_of_characters_is_an_id(make) -> None:
    store: Replays = make()
    assert not store.seen("\ud800", 100.0, now=1.0)
    assert store.seen("\ud800", 100.0, now=1.0)


def test_the_cost_of_a_call_does_not_grow_with_what_a_file_holds(tmp_path: Path) -> None:
    def steps(store: ReplayFile, number: int) -> int:
        """Instructions of SQLite for one more id, in hundreds."""
        count = [0]
        with store._writer.acquire() as database:
            database.set_progress_handler(lambda: count.__setitem__(0, count[0] + 1), 100)
        store.seen(owned("busy", number), 100.0, now=1.0)
        store.admit("https://busy.example", now=1.0)
        return count[0]

    store = ReplayFile(tmp_path / "seen.sqlite")
    few = steps(store, 0)
    with store._writer.acquire() as database, database:
        database.execute("BEGIN")
        for number in range(20_000):
            row = (number.to_bytes(16, "big"), b"x" * 16, 100.0)
            database.execute("INSERT INTO seen VALUES (?, ?, ?)", row)
    assert steps(store, 1) <= few + 2
    with store._reader.acquire() as database:
        assert database.execute("SELECT taken FROM room WHERE owner = x''").fetchone() == (20_002,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_what_is_over_is_forgotten_step_by_step_and_is_new_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.ai.replay._PURGE", 3)
    store = ReplayFile(tmp_path / "seen.sqlite", 12)
    for number in range(12):
        store.seen(f"a{number}", 10.0 + number, now=1.0)
    # most of them are over, and not all of these are purged: none of them is known
    assert not store.seen("a9", 100.0, now=20.5)
    assert store.seen("a11", 100.0, now=20.5)
    # and room is made, as much as is needed
    for number in range(20, 29):
        assert not store.seen(f"a{number}", 100.0, now=50.0)
    store.close()


def test_a_refusal_forgets_what_is_over_all_the_same(tmp_path: Path) -> None:
    store = ReplayFile(tmp_path / "seen.sqlite", 8)
    store.seen(owned("b", 1), 10.0, now=1.0)
    for number in range(6):
        store.seen(owned("a", number), 100.0, now=1.0)
    with pytest.raises(ProvenanceError):
        store.seen(owned("a", 7), 100.0, now=50.0)
    with store._reader.acquire() as database:
        assert database.execute("SELECT count(*) FROM seen").fetchone() == (6,)
    store.close()


def test_processes_share_one_count(tmp_path: Path) -> None:
    path = tmp_path / "seen.sqlite"
    one, other = ReplayFile(path, 8), ReplayFile(path, 8)
    for number in range(3):
        assert not one.seen(owned("a", number), 100.0, now=1.0)
        assert not other.seen(owned("a", number + 3), 100.0, now=1.0)
    for each in (one, other):
        with pytest.raises(ProvenanceError):
            each.seen(owned("a", 9), 100.0, now=1.0)
        each.close()


def test_a_file_is_opened_again_after_its_end(tmp_path: Path) -> None:
    store = ReplayFile(tmp_path / "seen.sqlite")
    store.seen("a", 100.0, now=1.0)
    store.close()
    store.close()
    assert store.seen("a", 100.0, now=1.0)
    store.close()


FORKED = """
import os, sys
from onym.ai.replay import ReplayFile
store = ReplayFile(sys.argv[1])
store.seen("a", 100.0, now=1.0)
child = os.fork()
if not child:
    print(store.seen("a", 100.0, now=1.0), store.seen("b", 100.0, now=1.0), flush=True)
    sys.exit()
os.waitpid(child, 0)
print(store.seen("b", 100.0, now=1.0), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_was_forked_opens_the_file_for_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path / "seen.sqlite")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.stdout.split() == ["True", "False", "True"], ran.stderr


def test_a_file_that_cannot_hold_ids_is_a_mistake_of_whoever_set_it(tmp_path: Path) -> None:
    log = tmp_path / "openssl.log"
    log.write_text("nothing that SQLite could read", encoding="utf-8")
    for path in (log, tmp_path, tmp_path / "none" / "seen.sqlite", log / "seen.sqlite"):
        with pytest.raises(ConfigError) as caught:
            ReplayFile(path)
        assert (caught.value.code, str(path) in caught.value.message) == ("config.bad-store", True)
    assert log.read_text(encoding="utf-8") == "nothing that SQLite could read"


FOREIGN = [
    "CREATE TABLE seen (id TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE people (name TEXT)",
    "PRAGMA application_id = 7",
]


@pytest.mark.parametrize("statement", FOREIGN)
def test_a_file_of_another_form_is_refused_as_it_is_opened_and_left_as_it_is(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "seen.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(statement)
    kept = path.read_bytes()
    with pytest.raises(ConfigError) as caught:
        ReplayFile(path)
    assert (caught.value.code, str(path) in caught.value.message) == ("config.bad-store", True)
    assert "remove" in str(caught.value.hint)
    assert path.read_bytes() == kept


def remove(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def test_whoever_has_a_file_that_is_removed_goes_over_to_the_one_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "seen.sqlite"
    one = ReplayFile(path, 4)
    assert not one.seen("a", 100.0, now=1.0)
    one.admit("", now=1.0)
    remove(path)
    other = ReplayFile(path, 4)
    for each in "bcde":
        assert not other.seen(each, 100.0, now=1.0)
    assert one.seen("b", 100.0, now=1.0)
    with pytest.raises(ProvenanceError):
        one.admit("", now=1.0)
    one.close()
    # what `one` closed was not the log of `other`
    with closing(ReplayFile(path)) as third:
        assert third.seen("c", 100.0, now=1.0)
    other.close()


def test_a_file_that_is_removed_is_made_anew_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "seen.sqlite"
    store = ReplayFile(path)
    remove(path)
    assert not store.seen("a", 100.0, now=1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.admit("", now=1.0)
    with closing(ReplayFile(path)) as other:
        assert other.seen("a", 100.0, now=1.0)
    store.close()


def test_a_file_that_gives_way_to_one_of_another_form_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "state" / "seen.sqlite"
    path.parent.mkdir()
    store = ReplayFile(path)
    remove(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(FOREIGN[0])
    for _ in range(2):
        with pytest.raises(ProvenanceError) as caught:
            store.seen("a", 100.0, now=1.0)
        assert caught.value.code == "aiip.unavailable"
    # nor can one whose folder has gone
    remove(path)
    path.parent.rmdir()
    with pytest.raises(ProvenanceError) as caught:
        store.admit("", now=1.0)
    assert caught.value.code == "aiip.unavailable"
    path.parent.mkdir()
    assert not store.seen("a", 100.0, now=1.0)
    store.close()


def test_a_file_that_another_process_turns_into_a_wal_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "seen.sqlite"
    monkeypatch.setattr("onym.ai.replay._BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ProvenanceError) as caught:
            ReplayFile(path)
        assert caught.value.code == "aiip.unavailable"


def test_a_fleet_knows_an_id_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 65: 4,000 uses of 200 IDs on four machines are accepted 200 times."""
    patient = ValkeyOptions(timeout=60.0, connect_timeout=60.0)
    monkeypatch.setattr("onym.store.shared.DEFAULT_VALKEY", patient)
    far = time.time() + 3600
    with valkey_server() as server, ExitStack() as stack:
        url = Secret(f"unix://:{server.password}@{server.socket}")
        machines = [open_replays(url) for _ in range(4)]
        for machine in machines:
            assert isinstance(machine, SharedReplays)
            stack.callback(machine.close)
        accepted: list[str] = []

        def use(machine: Replays) -> None:
            for number in range(1000):
                identity = f"https://bank.example\n{number % 200}"
                machine.admit("https://bank.example", now=time.time())
                if not machine.seen(identity, far, now=time.time()):
                    accepted.append(identity)

        threads = [threading.Thread(target=use, args=(machine,)) for machine in machines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(accepted) == len(set(accepted)) == 200
        with pytest.raises(ProvenanceError):
            machines[0].seen("x" * 2_000, far, now=time.time())

        with open_valkey(url) as admin:
            admin.config_set("maxmemory", "1")
        with pytest.raises(ProvenanceError) as full:
            machines[0].seen("new", far, now=100.0)
        assert (full.value.code, full.value.retryable) == ("aiip.unavailable", True)
        with pytest.raises(ProvenanceError):
            machines[0].admit("https://bank.example", now=100.5)
        machines[0].admit("https://bank.example", now=101.5)
        assert machines[1].seen("https://bank.example\n1", far, now=time.time())


def test_a_fleet_without_its_store_does_not_start() -> None:
    with pytest.raises(StoreError) as caught:
        open_replays(Secret(f"valkey://:hunter2@127.0.0.1:{free_port()}"))
    assert caught.value.code == "valkey.unreachable"
    assert "hunter2" not in str(caught.value)


def test_a_store_is_opened_by_its_url(tmp_path: Path) -> None:
    assert isinstance(open_replays(None), MemoryReplays)
    file = open_replays(tmp_path / "seen.sqlite")
    assert isinstance(file, ReplayFile)
    file.close()
