"""The audit log: a chain of hashes, kill -9, rotation, mending (AIIP/HTTPS v1 3.16)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.gateway import audit
from onym.ai.gateway.audit import (
    LONGEST_LINE,
    START,
    AuditLog,
    HashChain,
    encode_line,
    hash_line,
    remove_old_logs,
    repair_log,
    rotate_log,
    verify_lines,
    verify_log,
)
from onym.ai.records import hash_path
from onym.errors import ConfigError

AT = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def written(count: int) -> list[bytes]:
    chain, lines = HashChain(), []
    for number in range(count):
        lines.append(chain.encode_next({"at": "2026-11-22T12:00:00Z", "id": str(number)}))
        chain.advance(lines[-1])
    return lines


def filled(folder: Path, count: int = 5) -> Path:
    path = folder / "audit.jsonl"
    log = AuditLog(path)
    for number in range(count):
        log.append({"id": str(number), "code": None}, at=AT)
    log.close()
    return path


@pytest.mark.requirement("ai-privacy-a")
def test_a_log_that_nobody_touched_holds() -> None:
    lines = written(5)
    verdict = verify_lines(lines)
    assert verdict.is_valid
    assert (verdict.lines, verdict.begins, verdict.ends) == (5, START, hash_line(lines[-1]))
    assert verdict.first == verdict.last == "2026-11-22T12:00:00Z"


def test_an_empty_log_holds() -> None:
    assert verify_lines([]).is_valid
    assert verify_lines([]).ends == START
    assert verify_lines([], previous="a" * 64).ends == "a" * 64


@given(st.integers(2, 8), st.data())
def test_no_line_can_be_taken_out_but_the_last(count: int, data: st.DataObject) -> None:
    lines = written(count)
    gone = data.draw(st.integers(0, count - 2))
    verdict = verify_lines(lines[:gone] + lines[gone + 1 :])
    assert not verdict.is_valid
    assert verdict.faults[0].line == gone + 1


@given(st.integers(2, 8), st.data())
def test_no_line_can_be_changed_but_the_last(count: int, data: st.DataObject) -> None:
    lines = written(count)
    at = data.draw(st.integers(0, count - 2))
    lines[at] = lines[at].replace(f'"id":"{at}"'.encode(), b'"id":"x"')
    assert [each.line for each in verify_lines(lines).faults] == [at + 2]


def test_a_changed_or_missing_last_line_shows_by_the_last_hash() -> None:
    lines = written(3)
    assert verify_lines(lines[:-1]).ends != hash_line(lines[-1])


@given(st.permutations(range(4)))
def test_lines_cannot_change_places(order: list[int]) -> None:
    lines = written(4)
    assert verify_lines([lines[each] for each in order]).is_valid is (order == [0, 1, 2, 3])


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[]\n",
        b"{}\n",
        b'{"n":true,"prev":"","at":""}\n',
        b'{"n":1,"prev":"short","at":"x"}\n',
        b"\xff\n",
        b"[" * 4000 + b"\n",
        b'{"n":' + b"1" * LONGEST_LINE + b"}\n",
    ],
)
def test_what_is_no_line_is_told(line: bytes) -> None:
    verdict = verify_lines([line])
    assert [each.line for each in verdict.faults] == [1]


def test_a_hostile_log_gives_few_faults() -> None:
    assert len(verify_lines([b"{}\n"] * 1000).faults) == 20


def test_a_log_that_begins_in_the_middle_is_told() -> None:
    lines = written(3)
    assert [fault.line for fault in verify_lines(lines[1:]).faults] == [1]
    assert verify_lines(lines[1:], previous=hash_line(lines[0])).is_valid


def test_a_line_is_never_too_long() -> None:
    room = LONGEST_LINE - len(encode_line({"x": ""}))
    assert len(encode_line({"x": "a" * room})) == LONGEST_LINE
    with pytest.raises(ValueError):  # noqa: PT011 - the line above is one byte shorter
        encode_line({"x": "a" * (room + 1)})


@pytest.mark.requirement("ai-privacy-c")
def test_a_path_is_a_keyed_hash() -> None:
    one, same, other = (hash_path(key, "ai://a.example/x") for key in (b"k", b"k", b"l"))
    assert one == same != other
    assert "example" not in one
    assert hash_path(b"k", "ai://a.example/y") != one


def test_a_file_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = filled(tmp_path)
    log = AuditLog(path)
    log.append({"id": "again"}, at=AT)
    log.close()
    log.close()
    assert verify_log(path).is_valid
    assert verify_log(path).lines == 6
    assert path.stat().st_mode & 0o777 == 0o600


def test_two_writers_share_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def work(name: str) -> None:
        log = AuditLog(path)
        for _ in range(50):
            log.append({"id": name}, at=AT)
        log.close()

    threads = [threading.Thread(target=work, args=(str(each),)) for each in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    verdict = verify_log(path)
    assert (verdict.is_valid, verdict.lines) == (True, 200)


def test_a_torn_last_line_is_told_and_mended_on_request_alone(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n":6,"prev":"')
    verdict = verify_log(path)
    assert not verdict.is_valid
    assert (verdict.torn, verdict.lines, verdict.faults) == (15, 5, ())
    with pytest.raises(ConfigError) as caught:
        AuditLog(path)
    assert caught.value.code == "audit.torn"
    assert "onym ai audit repair" in str(caught.value.hint)
    with pytest.raises(ConfigError):
        rotate_log(path, at=AT)
    assert path.read_bytes().startswith(whole + b'{"n":6')

    assert repair_log(path, at=AT) == 15
    assert verify_log(path).is_valid
    last = msgspec.json.decode(path.read_bytes().splitlines()[-1])
    assert (last["event"], last["octets"]) == ("mended", 15)
    assert repair_log(path, at=AT) == 0
    AuditLog(path).close()


def test_a_log_whose_only_line_is_torn_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"n"')
    assert repair_log(path, at=AT) == 4
    assert verify_log(path).is_valid


WRITER = """
import sys
from datetime import UTC, datetime
from onym.ai.gateway.audit import AuditLog
log = AuditLog(sys.argv[1])
print("ready", flush=True)
while True:
    log.append({"id": "x"}, at=datetime.now(UTC))
"""


def test_a_killed_writer_leaves_whole_lines_or_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        while path.stat().st_size < 20_000:
            pass
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    verdict = verify_log(path)
    assert verdict.faults == ()
    repair_log(path, at=AT)
    log = AuditLog(path)
    log.append({"id": "after"}, at=AT)
    log.close()
    assert verify_log(path).is_valid


def test_rotation_goes_on_with_the_chain_and_a_running_writer_follows(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.append({"id": "before"}, at=AT)
    kept = rotate_log(path, at=AT)
    log.append({"id": "after"}, at=AT)
    log.close()
    old = verify_log(kept)
    new = verify_log(path, previous=old.ends)
    assert (old.is_valid, old.lines) == (True, 1)
    assert (new.is_valid, new.lines) == (True, 2)
    assert verify_log(path).is_valid  # alone too: its first line says that it goes on
    assert b'"after"' in path.read_bytes()


def test_a_log_that_was_moved_away_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.append({"id": "before"}, at=AT)
    path.rename(tmp_path / "elsewhere")
    log.append({"id": "after"}, at=AT)
    log.close()
    assert verify_log(path).lines == 1


@pytest.mark.requirement("ai-privacy-b")
def test_old_files_go_and_young_ones_stay(tmp_path: Path) -> None:
    path = filled(tmp_path)
    old = rotate_log(path, at=AT - timedelta(days=40))
    young = rotate_log(path, at=AT - timedelta(days=10))
    (tmp_path / "audit.jsonl.notoursZ").write_bytes(b"")
    assert remove_old_logs(path, days=30, at=AT) == (old,)
    assert young.exists()
    assert path.exists()
    assert (tmp_path / "audit.jsonl.notoursZ").exists()


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    for work, code in (
        (lambda: AuditLog(tmp_path), "audit.unusable"),
        (lambda: verify_log(tmp_path), "audit.unusable"),
        (lambda: repair_log(tmp_path / "no", at=AT), "audit.missing"),
    ):
        with pytest.raises(ConfigError) as caught:
            work()
        assert caught.value.code == code
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError):
        AuditLog(tmp_path / "link")
    with pytest.raises(ConfigError):
        rotate_log(tmp_path / "none", at=AT)


def test_rotation_does_not_overwrite(tmp_path: Path) -> None:
    path = filled(tmp_path)
    kept = rotate_log(path, at=AT)
    before = kept.read_bytes()
    with pytest.raises(ConfigError):
        rotate_log(path, at=AT)
    assert kept.read_bytes() == before
    assert verify_log(path, previous=verify_log(kept).ends).is_valid
    assert not list(tmp_path.glob("*.part"))


def test_a_rotation_for_which_there_was_no_room_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("fsync", "fdatasync", "replace"):
        monkeypatch.setattr(os, name, full)
        with pytest.raises(ConfigError) as refusal:
            rotate_log(path, at=AT)
        monkeypatch.undo()
        assert refusal.value.code == "audit.unusable"
        assert [each.name for each in tmp_path.iterdir()] == ["audit.jsonl"]
    kept = rotate_log(path, at=AT)
    assert verify_log(path, previous=verify_log(kept).ends).is_valid


def test_a_rotation_whose_first_line_is_written_in_part_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits the size of files")
    path = filled(tmp_path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (7, limits[1]))
    try:
        with pytest.raises(ConfigError) as refusal:
            rotate_log(path, at=AT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refusal.value.code == "audit.unusable"
    assert [file.name for file in tmp_path.iterdir()] == ["audit.jsonl"]
    assert path.read_bytes() == before
    kept = rotate_log(path, at=AT)
    assert verify_log(path, previous=verify_log(kept).ends).is_valid


KILLED = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from onym.ai.gateway.audit import rotate_log
at = int(sys.argv[2])
calls = 0

def counted(name):
    real = getattr(os, name)
    def call(*given, **more):
        global calls
        calls += 1
        if calls == at:
            os._exit(9)
        return real(*given, **more)
    setattr(os, name, call)

for name in ("open", "write", "fsync", "fdatasync", "link", "replace", "unlink"):
    counted(name)
print(rotate_log(Path(sys.argv[1]), at=datetime(2026, 11, 22, tzinfo=UTC)))
"""


def test_a_rotation_that_is_killed_loses_nothing_wherever_it_was(tmp_path: Path) -> None:
    died = 0
    for step in range(1, 40):
        folder = tmp_path / str(step)
        folder.mkdir()
        path = filled(folder)
        ran = subprocess.run([sys.executable, "-c", KILLED, str(path), str(step)], capture_output=True)
        died += ran.returncode == 9
        log = AuditLog(path)
        log.append({"id": "after"}, at=AT)
        log.close()
        kept = rotate_log(path, at=AT)
        files = sorted(folder.glob("audit.jsonl.*Z"))
        assert files[-1] == kept
        previous, lines = None, 0
        for each in (*files, path):
            verdict = verify_log(each, previous=previous)
            assert verdict.is_valid, (step, each.name, verdict)
            previous, lines = verdict.ends, lines + verdict.lines
        assert lines == 6 + len(files)  # what was written, and a line for each rotation
        assert not list(folder.glob("*.part"))
        if ran.returncode == 0:
            break
    assert died == step - 1 >= 8


def test_the_log_has_its_name_at_every_moment_of_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path)
    there: list[bool] = []

    def watched(real: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            found = real(*given, **more)
            there.append(path.exists())
            return found

        return call

    for name in ("link", "replace", "unlink", "fsync", "fdatasync"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    rotate_log(path, at=AT)
    assert len(there) >= 5
    assert all(there)


def test_a_rotation_that_waits_for_another_goes_on_with_the_new_file(tmp_path: Path) -> None:
    path = filled(tmp_path)
    start = threading.Barrier(4)
    kept: list[Path] = []

    def work(number: int) -> None:
        start.wait()
        kept.append(rotate_log(path, at=AT + timedelta(seconds=number)))

    threads = [threading.Thread(target=work, args=(each,)) for each in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(kept)) == 4
    assert sum(verify_log(each).lines for each in (*kept, path)) == 5 + 4


def test_a_filesystem_without_hard_links_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path)

    def none(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    with pytest.raises(ConfigError) as caught:
        rotate_log(path, at=AT)
    assert (caught.value.code, caught.value.hint is not None) == ("audit.unusable", True)
    assert [each.name for each in tmp_path.iterdir()] == ["audit.jsonl"]
    assert verify_log(path).lines == 5


def test_a_last_line_of_another_kind_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"hello\n")
    with pytest.raises(ConfigError) as caught:
        AuditLog(path)
    assert caught.value.code == "audit.malformed"
    path.write_bytes(b"x" * (4 * LONGEST_LINE) + b"\n")
    with pytest.raises(ConfigError):
        AuditLog(path)
    path.write_bytes(b"x" * (4 * LONGEST_LINE))
    with pytest.raises(ConfigError):
        AuditLog(path)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path)
    log = AuditLog(path)
    before = path.read_bytes()
    write: Any = os.write

    def full(file: int, data: bytes) -> int:
        write(file, data[:7])
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError) as failure:  # noqa: PT011 - compared below
        log.append({"id": "x"}, at=AT)
    assert failure.value.errno == errno.ENOSPC
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    with pytest.raises(OSError) as failure:  # noqa: PT011 - compared below
        log.append({"id": "x"}, at=AT)
    assert failure.value.errno == errno.EIO
    monkeypatch.undo()
    assert path.read_bytes() == before
    log.append({"id": "x"}, at=AT)
    log.close()
    assert verify_log(path).is_valid


def test_mending_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path)
    path.write_bytes(path.read_bytes() + b"{")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(ConfigError) as failure:
        repair_log(path, at=AT)
    assert failure.value.code == "audit.unusable"


def test_the_end_of_a_log_is_its_last_line_and_the_part_after_it() -> None:
    assert audit.split_tail(b"a\nb\nc") == (b"b\n", b"c")
