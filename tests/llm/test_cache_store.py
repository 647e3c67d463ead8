"""The store of the response cache: what is kept, for how long, and what becomes of broken files."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onym.llm.cache import _store as files
from onym.llm.cache._store import AnswerStore
from onym.testing import FakeClock

DAY = 86_400.0


class Made:
    """A store in a folder of its own, with a clock that stands, and what it complained of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.complaints: list[str] = []
        self.store = self.another()

    def another(self, *, size: int = 1_000_000, age: float = 7 * DAY) -> AnswerStore:
        return AnswerStore(
            self.folder, size=size, age=age, clock=self.clock.time, trouble=self.complaints.append
        )

    @property
    def data(self) -> Path:
        return max(files.list_data_files(self.folder).items())[1]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    made = Made(tmp_path / "responses")
    yield made
    made.store.close()


def test_what_was_put_is_found_by_any_store_of_the_folder(made: Made) -> None:
    made.store.put(b"k", b"value")
    other = made.another()
    assert made.store.get(b"k") == other.get(b"k") == b"value"
    assert made.store.get(b"another") is None
    other.close()


@pytest.mark.skipif(os.name == "nt", reason="rights are the parent folder's there")
def test_what_was_put_into_a_folder_while_it_was_open_to_others_is_not_believed(tmp_path: Path) -> None:
    planted = Made(tmp_path / "elsewhere")
    planted.store.load_key()
    planted.store.put(b"k", b"poison")
    planted.store.close()
    made = Made(tmp_path / "responses")
    made.folder.mkdir(mode=0o777)
    made.folder.chmod(0o777)
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    for path in [*planted.folder.iterdir()]:
        copy = made.folder / path.name
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o666)
    (made.folder / "locks").unlink(missing_ok=True)
    (made.folder / "locks").symlink_to(outside)
    other = made.folder / "somebody.txt"
    other.write_bytes(b"theirs")
    assert made.store.get(b"k") is None
    assert made.store.load_key() != planted.store.load_key()
    made.store.put(b"k", b"value")
    assert made.store.get(b"k") == b"value"
    assert (outside.read_bytes(), other.read_bytes()) == (b"precious", b"theirs")
    assert not (made.folder / "locks").is_symlink()
    for made_one in (made, planted):
        made_one.store.close()


def test_a_folder_that_grew_open_keeps_what_is_its_own(made: Made) -> None:
    made.store.put(b"k", b"value")
    made.store.close()
    made.folder.chmod(0o775)
    assert made.store.get(b"k") == b"value"
    assert not stat.S_IMODE(made.folder.stat().st_mode) & 0o077


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are another matter there")
def test_no_file_is_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        files.open_private(tmp_path / "link")
    assert not (tmp_path / "target").exists()


def test_an_entry_that_is_put_again_is_replaced(made: Made) -> None:
    made.store.put(b"k", b"one")
    made.store.put(b"k", b"two")
    assert made.store.get(b"k") == b"two"
    assert made.store.contents().entries == 1


def test_folder_and_files_are_for_their_owner_alone(made: Made) -> None:
    old = os.umask(0)
    try:
        made.store.load_key()
        made.store.put(b"k", b"value")
        assert files.ByteLocks(made.folder).acquire(1)
    finally:
        os.umask(old)
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.folder.iterdir()}
    assert set(modes) >= {"key", "locks", "responses.1.sqlite3", "responses.1.sqlite3-wal"}
    assert set(modes.values()) == {0o600}


def test_a_folder_that_others_could_read_is_closed_to_them(made: Made) -> None:
    made.folder.mkdir(mode=0o755)
    made.folder.chmod(0o777)
    made.store.put(b"k", b"value")
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_not_used(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.folder.mkdir()
    theirs = made.folder.stat().st_uid + 1
    monkeypatch.setattr(os, "geteuid", lambda: theirs)
    made.store.put(b"k", b"value")
    assert made.store.get(b"k") is None
    assert made.store.load_key() is None
    assert set(made.complaints) == {"the folder belongs to another user"}
    assert list(made.folder.iterdir()) == []


@pytest.mark.requirement("onym-cache-b")
def test_an_entry_lives_as_long_as_the_age_allows(made: Made) -> None:
    made.store.put(b"k", b"value")
    made.clock.advance(7 * DAY)
    assert made.store.get(b"k") == b"value"
    made.clock.advance(1)
    assert made.store.get(b"k") is None


def test_being_read_makes_an_entry_no_younger(made: Made) -> None:
    made.store.put(b"k", b"value")
    for _ in range(8):
        made.store.get(b"k")
        made.clock.advance(DAY)
    assert made.store.get(b"k") is None


def test_an_entry_from_the_future_is_kept_no_longer_than_one_of_today(made: Made) -> None:
    made.clock.advance(30 * DAY)
    made.store.put(b"k", b"value")
    made.clock.advance(-30 * DAY)
    assert made.store.get(b"k") is None
    made.store.put(b"j", b"value")
    assert made.store.contents().entries == 1


def test_old_entries_go_when_a_new_one_comes(made: Made) -> None:
    made.store.put(b"old", b"value")
    made.clock.advance(8 * DAY)
    made.store.put(b"new", b"value")
    found = made.store.contents()
    assert (found.entries, found.oldest, found.newest) == (1, made.clock.time(), made.clock.time())


@pytest.mark.requirement("onym-cache-b")
def test_the_size_bounds_the_file(made: Made) -> None:
    made.store = made.another(size=400_000)
    for number in range(400):
        made.store.put(b"%d" % number, os.urandom(5_000))
        assert made.store.contents().octets <= 400_000
    assert made.data.stat().st_size <= 480_000
    assert 40 <= made.store.contents().entries <= 75


def test_small_entries_are_bounded_as_well(made: Made) -> None:
    made.store = made.another(size=200_000)
    for number in range(4_000):
        made.store.put(b"%032d" % number, b"x" * 60)
    assert made.store.contents().octets <= 200_000
    assert made.store.get(b"%032d" % 3_999) is not None


def test_what_was_used_last_stays(made: Made) -> None:
    made.store = made.another(size=200_000)
    made.store.put(b"wanted", b"x" * 5_000)
    for number in range(100):
        made.clock.advance(100)
        assert made.store.get(b"wanted") is not None, number
        made.store.put(b"%d" % number, b"x" * 5_000)
    assert made.store.get(b"0") is None


def test_a_value_larger_than_the_whole_bound_is_not_kept_and_drives_nothing_out(made: Made) -> None:
    made.store = made.another(size=100_000)
    made.store.put(b"small", b"value")
    made.store.put(b"large", b"x" * 100_000)
    assert made.store.get(b"large") is None
    assert made.store.get(b"small") == b"value"


def test_a_bound_of_nothing_keeps_nothing(made: Made) -> None:
    made.store = made.another(size=0)
    made.store.put(b"k", b"")
    assert made.store.get(b"k") is None


def test_a_file_that_is_no_database_is_replaced_and_removed(made: Made) -> None:
    made.folder.mkdir(mode=0o700)
    (made.folder / "responses.1.sqlite3").write_bytes(b"this is no database at all" * 100)
    assert made.store.get(b"k") is None
    made.store.put(b"k", b"value")
    assert made.store.get(b"k") == b"value"
    assert list(files.list_data_files(made.folder)) == [2]
    assert made.complaints == []


def test_a_file_that_is_ruined_while_it_is_open_is_replaced(made: Made) -> None:
    for number in range(200):
        made.store.put(b"%d" % number, os.urandom(2_000))
    made.store.close()
    with made.data.open("r+b") as file:
        file.seek(100)
        file.write(random.Random(1).randbytes(100_000))
    for number in range(200):
        made.store.put(b"%d" % number, b"fresh")
    assert made.store.get(b"199") == b"fresh"
    assert list(files.list_data_files(made.folder)) == [2]


def test_a_new_file_of_another_process_is_not_thrown_away(made: Made) -> None:
    made.store.put(b"k", b"old")
    other = made.another()
    other.put(b"j", b"old")
    made.store._replace_file()
    made.store.put(b"k", b"new")
    other._replace_file()  # it finds the old file ruined too
    assert other.get(b"k") == b"new"
    assert list(files.list_data_files(made.folder)) == [2]
    other.close()


def test_a_value_that_was_changed_is_a_miss(made: Made) -> None:
    made.store.put(b"k", b"value")
    made.store.put(b"j", b"value of another")
    with closing(sqlite3.connect(made.data)) as db, db:
        db.execute("UPDATE entries SET value = ? WHERE key = ?", (b"forged", b"k"))
        db.execute("UPDATE entries SET key = ? WHERE key = ?", (b"moved", b"j"))
    assert made.store.get(b"k") is None
    assert made.store.get(b"moved") is None


def test_a_key_file_that_holds_no_key_is_replaced(made: Made) -> None:
    made.folder.mkdir()
    (made.folder / "key").write_bytes(b"short")
    secret = made.store.load_key()
    assert secret is not None
    assert len(secret) == files.KEY_LENGTH
    assert made.another().load_key() == secret
    assert {path.name for path in made.folder.iterdir() if path.name.startswith("key")} == {"key"}


def test_a_place_where_nothing_can_be_written_is_told_and_nothing_is_raised(made: Made) -> None:
    made.folder.parent.mkdir(exist_ok=True)
    made.folder.write_text("a file stands where the folder should be")
    made.store.put(b"k", b"value")
    assert made.store.get(b"k") is None
    assert made.store.load_key() is None
    assert set(made.complaints) == {"File exists"}


def test_a_full_disk_is_told_and_nothing_is_raised(made: Made) -> None:
    made.store.put(b"k", b"value")
    assert made.store._open is not None
    made.store._open[1].execute("PRAGMA max_page_count = 8")
    made.store.put(b"j", b"x" * 100_000)
    assert made.complaints == ["database or disk is full"]
    assert made.store.get(b"k") == b"value"


def test_a_store_that_another_process_writes_to_is_a_miss_and_no_trouble(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.llm.cache._store._PATIENCE", 0.01)
    made.store.put(b"k", b"value")
    made.store.close()
    busy = sqlite3.connect(made.data, isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    made.store.put(b"j", b"value")
    assert made.store.get(b"j") is None
    assert made.complaints == []
    busy.execute("ROLLBACK")
    busy.close()
    made.store.put(b"j", b"value")
    assert made.store.get(b"j") == b"value"


def test_looking_at_a_cache_that_is_not_there_makes_none(made: Made) -> None:
    assert made.store.contents().entries == 0
    assert made.store.clear().entries == 0
    assert not made.folder.exists()


def test_clearing_gives_the_room_back(made: Made) -> None:
    for number in range(100):
        made.store.put(b"%d" % number, os.urandom(5_000))
    before = made.store.clear()
    assert before.entries == 100
    assert before.octets > 500_000
    after = made.store.contents()
    assert (after.entries, after.octets, after.oldest) == (0, 0, None)
    assert made.data.stat().st_size < 50_000
    made.store.put(b"k", b"value")
    assert made.store.get(b"k") == b"value"


def test_clearing_while_another_reads_removes_the_entries_all_the_same(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.llm.cache._store._PATIENCE", 0.01)
    made.store.put(b"k", b"value")
    made.store.close()
    reader = sqlite3.connect(made.data, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM entries").fetchall()
    assert made.store.clear().entries == 1
    assert made.store.get(b"k") is None
    reader.close()


def test_a_name_that_is_no_number_is_no_data_file(made: Made) -> None:
    made.store.put(b"k", b"value")
    (made.folder / "responses.old.sqlite3").touch()
    assert list(files.list_data_files(made.folder)) == [1]


def test_a_forked_process_opens_a_file_of_its_own(made: Made) -> None:
    made.store.put(b"k", b"value")
    code = f"""
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from pathlib import Path
from onym.llm.cache._store import AnswerStore as Store
store = Store(Path({str(made.folder)!r}), size=10**6, age=10**9, trouble=print)
assert store.get(b"k") == b"value"
child = os.fork()
if child == 0:
    store.put(b"child", b"value")
    store.close()
    os._exit(0 if store.get(b"k") == b"value" else 1)
assert os.waitpid(child, 0)[1] == 0
assert store.get(b"child") == b"value"
store.put(b"parent", b"value")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
    made.clock.advance(0)
    assert made.another(age=10**10).get(b"parent") == b"value"


HAMMER = """
import sys, random
from pathlib import Path
from onym.llm.cache._store import AnswerStore as Store
said = []
store = Store(Path(sys.argv[1]), size=300_000, age=1e9, trouble=said.append)
store.load_key()
chance = random.Random(sys.argv[2])
bad = 0
for turn in range(400):
    key = b"%d" % chance.randrange(40)
    found = store.get(key)
    if found is not None and (found[:len(key)] != key or set(found[len(key):]) != {120}):
        bad += 1
    if found is None:
        store.put(key, key + b"x" * chance.randrange(1, 20_000))
    if turn == 200 and sys.argv[2] == "0":
        store.clear()
print(bad, said, store.load_key().hex())
"""


@pytest.mark.requirement("onym-cache-b")
def test_processes_that_hammer_one_cache_spoil_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "responses"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", HAMMER, str(folder), str(number)], stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    said = {process.communicate(timeout=600)[0].strip() for process in running}
    assert {process.returncode for process in running} == {0}
    assert len(said) == 1, said
    assert said.pop().startswith("0 []")
    store = AnswerStore(folder, size=300_000, age=1e9, trouble=pytest.fail)
    assert 0 < store.contents().octets <= 300_000
    store.close()


@pytest.mark.requirement("onym-cache-b")
def test_a_process_that_is_killed_while_it_writes_leaves_a_whole_store(tmp_path: Path) -> None:
    folder = tmp_path / "responses"
    code = HAMMER.replace("range(400)", "range(10**9)").replace("turn == 200", "False") + "\n"
    code = code.replace("bad = 0\n", "bad = 0\nprint('begun', flush=True)\n")
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), "7"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.communicate(timeout=600)
    store = AnswerStore(folder, size=300_000, age=1e9, trouble=pytest.fail)
    store.put(b"k", b"value")
    assert store.get(b"k") == b"value"
    store.close()
