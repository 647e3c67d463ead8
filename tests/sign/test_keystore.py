"""Keys in a folder: permissions, rotation with overlap, revocation, history, several processes at once."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from onym.common import files
from onym.errors import CredentialError, ProvenanceError, SignatureError
from onym.sign import keystore
from onym.sign.keys import MAX_AUTHORITY_KEYS, MAX_HISTORY, read_authority_keys
from onym.sign.keystore import MAX_AGE, KeyRecord, KeyStore
from onym.sign.receipts import MAX_LIFE, sign_receipt, verify_filed
from sign_support import EXPECTED, NOW, RECEIPT, verified

#: seconds that an old key stays in the set behind its last signature
KEPT = MAX_AGE + MAX_LIFE + 60


def made(tmp_path: Path, algorithm: str = "Ed25519") -> tuple[KeyStore, str]:
    store = KeyStore(tmp_path / "keys")
    return store, store.new(algorithm, at=NOW)


def served(store: KeyStore, at: float) -> list[str]:
    return [key["kid"] for key in json.loads(store.jwks(at))["keys"]]


def receipt(store: KeyStore, at: float) -> str:
    return sign_receipt(replace(RECEIPT, issued=at, expires=at + 120), store.signer(at))


def error_of(call: Any, *args: Any, **more: Any) -> CredentialError:
    with pytest.raises(CredentialError) as caught:
        call(*args, **more)
    return caught.value


@pytest.mark.parametrize("algorithm", ["Ed25519", "ES256", "ES384", "PS256"])
def test_a_new_key_signs_at_once_and_its_receipt_holds_by_the_set_that_is_served(
    tmp_path: Path, algorithm: str
) -> None:
    store, kid = made(tmp_path, algorithm)
    assert (store.signer(NOW).kid, store.signer(NOW).algorithm) == (kid, algorithm)
    keys = read_authority_keys(store.jwks(NOW))
    assert keys.kids == {kid}
    assert not keys.ignored
    assert verified(receipt(store, NOW), keys, EXPECTED, algorithms=(algorithm,)).issued == NOW
    assert KeyStore(store.path).signer(NOW).kid == kid


def test_folder_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        store, kid = made(tmp_path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.path.iterdir()}
    assert modes == {"keys.json": 0o600, f"{kid}.jwk": 0o600, ".lock": 0o600}


@pytest.mark.parametrize("mode", [0o710, 0o750, 0o755, 0o701, 0o770])
def test_a_folder_that_others_may_enter_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, mode: int
) -> None:
    store, _ = made(tmp_path)
    store.path.chmod(mode)
    for call in (
        store.records,
        lambda: store.signer(NOW),
        lambda: store.rotate(NOW),
        lambda: store.new(at=NOW),
    ):
        error = error_of(call)
        assert (error.code, error.hint) == ("credential.permissions", f"chmod 700 {store.path}")
    store.path.chmod(0o700)
    assert store.signer(NOW)


@pytest.mark.parametrize("name", ["keys.json", "jwk"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, name: str, mode: int) -> None:
    store, kid = made(tmp_path)
    file = store.path / (name if name == "keys.json" else f"{kid}.jwk")
    file.chmod(mode)
    error = error_of(KeyStore(store.path).signer, NOW)
    assert (error.code, error.hint) == ("credential.permissions", f"chmod 600 {file}")


def test_a_path_with_blanks_is_quoted_in_the_command(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "my keys")
    store.new(at=NOW)
    store.path.chmod(0o755)
    assert error_of(store.records).hint == f"chmod 700 '{store.path}'"


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = made(tmp_path)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert error_of(store.records).code == "credential.owner"


def test_what_is_no_folder_or_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert error_of(KeyStore(tmp_path / "file").records).code == "credential.unreadable"
    assert error_of(KeyStore(tmp_path / "file").new, at=NOW).code == "credential.unreadable"
    store, kid = made(tmp_path)
    file = store.path / f"{kid}.jwk"
    aside = tmp_path / "aside"
    file.rename(aside)
    file.symlink_to(aside)
    assert error_of(KeyStore(store.path).signer, NOW).code == "credential.unreadable"
    file.unlink()
    file.mkdir(mode=0o700)
    assert error_of(KeyStore(store.path).signer, NOW).code == "credential.unreadable"
    file.rmdir()
    os.mkfifo(file, 0o600)
    assert error_of(KeyStore(store.path).signer, NOW).code == "credential.unreadable"


def test_a_store_that_is_not_there_or_empty_says_so(tmp_path: Path) -> None:
    assert error_of(KeyStore(tmp_path / "none").signer, NOW).code == "credential.missing"
    (tmp_path / "empty").mkdir(mode=0o700)
    error = error_of(KeyStore(tmp_path / "empty").signer, NOW)
    assert f"onym ai keys new {tmp_path}/empty" in str(error.hint)
    assert error_of(KeyStore(tmp_path / "empty").rotate, NOW).code == "credential.no-key"


def test_a_private_key_that_is_lost_is_named_with_the_two_ways_on(tmp_path: Path) -> None:
    store, kid = made(tmp_path)
    (store.path / f"{kid}.jwk").unlink()
    error = error_of(KeyStore(store.path).signer, NOW)
    assert (error.code, kid in error.message) == ("credential.no-key", True)
    assert all(words in (error.hint or "") for words in ("copy", "onym ai keys revoke"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"format":"onym-keys-2","keys":[]}',
        '{"format":"onym-keys-1","keys":{}}',
        '{"format":"onym-keys-1","keys":[7]}',
        '{"format":"onym-keys-1","keys":[{}]}',
        '{"format":"onym-keys-1","keys":[{"public":{"kty":"OKP"},"algorithm":"Ed25519"}]}',
    ],
)
def test_a_state_that_onym_did_not_write_is_refused(tmp_path: Path, text: str) -> None:
    store, _ = made(tmp_path)
    files.write_private_file(store.path / "keys.json", text.encode())
    assert error_of(store.records).code == "credential.unreadable"


@pytest.mark.parametrize(
    "change",
    [
        {"created": "1"},
        {"created": 10**400},
        {"created": [1]},
        {"starts": 1e999},
        {"more": 1},
        {"kid": "other"},
        {"algorithm": "none"},
        {"created": None},
    ],
)
def test_a_state_with_a_changed_row_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    store, _ = made(tmp_path)
    state = json.loads((store.path / "keys.json").read_text(encoding="utf-8"))
    state["keys"][0].update(change)
    files.write_private_file(store.path / "keys.json", json.dumps(state).encode())
    assert error_of(store.records).code == "credential.unreadable"


def test_a_state_or_key_that_is_too_long_is_refused(tmp_path: Path) -> None:
    store, kid = made(tmp_path)
    files.write_private_file(store.path / f"{kid}.jwk", b" " * 20_000)
    assert error_of(KeyStore(store.path).signer, NOW).code == "credential.unreadable"


def test_a_private_key_that_is_another_one_is_refused(tmp_path: Path) -> None:
    store, kid = made(tmp_path)
    other, other_kid = made(tmp_path / "other")
    files.write_private_file(store.path / f"{kid}.jwk", (other.path / f"{other_kid}.jwk").read_bytes())
    assert error_of(KeyStore(store.path).signer, NOW).code == "credential.wrong-key"


def test_no_error_and_no_public_set_holds_a_secret(tmp_path: Path) -> None:
    store, kid = made(tmp_path)
    secret = json.loads((store.path / f"{kid}.jwk").read_text(encoding="utf-8"))["d"]
    store.rotate(NOW)
    state = (store.path / "keys.json").read_text(encoding="utf-8")
    for text in (store.jwks(NOW).decode(), store.history(NOW).decode(), state, repr(store.signer(NOW))):
        assert secret not in text


# new and rotate


def test_a_second_first_key_is_refused(tmp_path: Path) -> None:
    store, kid = made(tmp_path)
    error = error_of(store.new, at=NOW + 1)
    assert (error.code, "rotate" in str(error.hint)) == ("credential.key-exists", True)
    assert served(store, NOW + 1) == [kid]
    assert len(list(store.path.glob("*.jwk"))) == 1


@pytest.mark.parametrize("algorithm", ["RS256", "EdDSA", "none", "HS256"])
def test_a_key_for_another_algorithm_is_not_made(tmp_path: Path, algorithm: str) -> None:
    with pytest.raises(SignatureError) as caught:
        KeyStore(tmp_path / "keys").new(algorithm, at=NOW)
    assert caught.value.code == "sign.bad-algorithm"
    assert not (tmp_path / "keys").exists()
    store, _ = made(tmp_path)
    with pytest.raises(SignatureError):
        store.rotate(NOW, algorithm=algorithm)


def test_a_new_key_is_published_before_it_signs_and_an_old_one_after_it_signed(tmp_path: Path) -> None:
    store, old = made(tmp_path)
    new = store.rotate(NOW + 100)
    switch = NOW + 100 + MAX_AGE
    assert served(store, NOW + 100) == [old, new]
    assert store.signer(switch - 1).kid == old
    assert store.signer(switch).kid == new
    assert served(store, switch + KEPT - 1) == [old, new]
    assert served(store, switch + KEPT) == [new]
    history = json.loads(store.history(switch + KEPT))["keys"]
    assert [(key["kid"], key["nbf"], key.get("exp")) for key in history] == [
        (old, NOW, switch),
        (new, switch, None),
    ]


def test_every_receipt_verifies_with_any_copy_of_the_set_that_is_young_enough(tmp_path: Path) -> None:
    """The point of the overlap: whoever fetched the set up to max-age ago, or fetches it now, accepts."""
    store, _ = made(tmp_path)
    store.rotate(NOW + 500)
    for at in range(int(NOW) + 400, int(NOW + 500 + MAX_AGE + KEPT) + 400, 200):
        token = receipt(store, float(at))
        for fetched in (at - MAX_AGE + 1, at - 60, at, at + 60):
            if fetched >= NOW:
                keys = read_authority_keys(store.jwks(fetched))
                assert verified(token, keys, EXPECTED, at=float(at) + 30)


def test_a_rotation_that_waits_is_not_begun_again(tmp_path: Path) -> None:
    store, old = made(tmp_path)
    new = store.rotate(NOW)
    assert store.rotate(NOW + 10) == new
    assert served(store, NOW + 10) == [old, new]
    third = store.rotate(NOW + MAX_AGE, algorithm="ES256")
    assert third not in {old, new}
    assert [record.algorithm for record in store.records()] == ["Ed25519", "Ed25519", "ES256"]


def test_a_private_key_goes_when_its_time_is_over(tmp_path: Path) -> None:
    store, old = made(tmp_path)
    new = store.rotate(NOW)
    assert (store.path / f"{old}.jwk").exists()
    store.rotate(NOW + MAX_AGE + 1)
    assert not (store.path / f"{old}.jwk").exists()
    assert store.signer(NOW + MAX_AGE + 1).kid == new


def test_a_store_with_a_shorter_max_age_rotates_sooner(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys", max_age=60)
    store.new(at=NOW)
    new = store.rotate(NOW)
    assert store.signer(NOW + 60).kid == new


# revoke


def test_a_revoked_key_is_replaced_at_once_and_listed(tmp_path: Path) -> None:
    store, old = made(tmp_path)
    token = receipt(store, NOW)
    new = store.revoke(old, NOW + 1)
    assert store.signer(NOW + 1).kid == new != old
    assert json.loads(store.jwks(NOW + 1))["revoked"] == [old]
    assert served(store, NOW + 1) == [new]
    assert not (store.path / f"{old}.jwk").exists()
    for octets in (store.jwks(NOW + 1), store.history(NOW + 1)):
        with pytest.raises(ProvenanceError):
            verify_filed(token, read_authority_keys(octets, history=True))
    past = json.loads(store.history(NOW + 1))["keys"]
    assert past[0]["revoked"] == {"revoked_at": int(NOW) + 1}


def test_when_the_key_that_signs_is_revoked_the_one_that_waits_signs(tmp_path: Path) -> None:
    store, old = made(tmp_path)
    new = store.rotate(NOW)
    assert store.revoke(old, NOW + 1) == new
    assert store.signer(NOW + 1).kid == new
    assert served(store, NOW + 1) == [new]


def test_when_the_key_that_waits_is_revoked_the_one_that_signs_goes_on(tmp_path: Path) -> None:
    store, old = made(tmp_path)
    new = store.rotate(NOW)
    assert store.revoke(new, NOW + 1) == old
    assert store.signer(NOW + MAX_AGE * 9).kid == old
    assert served(store, NOW + MAX_AGE * 9) == [old]


def test_a_key_that_signs_no_more_can_be_revoked_and_twice_is_once(tmp_path: Path) -> None:
    store, old = made(tmp_path)
    new = store.rotate(NOW)
    late = NOW + MAX_AGE + 10
    assert store.revoke(old, late) == new
    assert store.revoke(old, late + 5) == new
    assert store.records()[0].revoked == late
    with_third = store.rotate(late)
    assert store.revoke(old, late + 6) == new
    assert served(store, late) == [new, with_third]


def test_a_key_of_another_store_cannot_be_revoked(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    assert error_of(store.revoke, "nobody", NOW).code == "credential.no-key"


def test_the_signing_key_is_looked_up_every_50_ms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("onym.sign.keystore.time.monotonic", lambda: clock[0])
    store, first = made(tmp_path)
    other = KeyStore(store.path)
    assert store.signer(NOW).kid == first
    looks: list[Path] = []
    require = keystore.require_private_folder

    def look(path: Path) -> None:
        looks.append(path)
        require(path)

    monkeypatch.setattr(keystore, "require_private_folder", look)
    second = other.revoke(first, NOW)
    looks.clear()
    clock[0] += 0.049
    assert [store.signer(NOW).kid for _ in range(3)] == [first] * 3
    assert looks == []
    clock[0] += 0.001
    assert [store.signer(NOW).kid for _ in range(3)] == [second] * 3
    assert len(looks) == 1
    # what this store changes is seen at once, and so is the end of a key
    third = store.revoke(second, NOW)
    assert store.signer(NOW).kid == third
    fourth = store.rotate(NOW)
    assert store.signer(NOW).kid == third
    assert store.signer(NOW + MAX_AGE).kid == fourth
    # who asks for the keys sees the revocation, and from then on signs with the new one
    fifth = other.revoke(third, NOW)
    assert {record.kid for record in store.records() if record.revoked is None} == {fourth}
    assert store.signer(NOW).kid == fifth


def test_after_all_keys_are_over_a_new_one_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.sign.keystore._LOOKUP_SECONDS", 0.0)
    store, old = made(tmp_path)
    store.revoke(store.revoke(old, NOW), NOW)
    assert store.signer(NOW)
    records = tuple(replace(record, revoked=NOW) for record in store.records())
    from onym.sign.keystore import encode_records

    files.write_private_file(store.path / "keys.json", encode_records(records))
    assert error_of(store.signer, NOW).code == "credential.no-key"
    assert store.new(at=NOW) == store.signer(NOW).kid


def test_a_store_has_no_more_keys_than_a_history(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    from onym.sign.keystore import encode_records

    many = store.records() * MAX_HISTORY
    files.write_private_file(store.path / "keys.json", encode_records(many))
    assert error_of(store.rotate, NOW).code == "credential.too-many"


def test_states_are_words_for_people(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    store.rotate(NOW)

    def states(at: float) -> list[str]:
        return [record.get_state(at) for record in store.records()]

    assert states(NOW) == ["signs", "waits"]
    assert states(NOW + MAX_AGE) == ["kept", "signs"]
    assert states(NOW + MAX_AGE + KEPT) == ["retired", "signs"]
    store.revoke(store.records()[0].kid, NOW + 2 * MAX_AGE)
    assert states(NOW + MAX_AGE)[0] == "revoked"


# one writer at a time, and nothing by halves


def test_a_change_by_another_process_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.sign.keystore._LOOKUP_SECONDS", 0.0)  # at once, and not within 50 ms
    store, old = made(tmp_path)
    assert store.signer(NOW).kid == old
    new = KeyStore(store.path).revoke(old, NOW)
    assert store.signer(NOW).kid == new


_ROTATE = """
import sys
from onym.sign.keystore import KeyStore
print(KeyStore(sys.argv[1]).rotate(float(sys.argv[2])))
"""


def test_two_processes_that_rotate_at_once_make_one_key(tmp_path: Path) -> None:
    store, old = made(tmp_path)
    command = [sys.executable, "-c", _ROTATE, str(store.path), str(NOW)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate(timeout=600)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(said) == 1
    assert served(store, NOW) == [old, *said]


def test_a_rotation_waits_for_the_lock(tmp_path: Path) -> None:
    store, _ = made(tmp_path)
    begun, done = threading.Event(), threading.Event()

    def rotate() -> None:
        begun.set()
        store.rotate(NOW)
        done.set()

    with files.lock_private_file(store.path / ".lock"):
        thread = threading.Thread(target=rotate)
        thread.start()
        begun.wait(300)
        assert not done.wait(0.05)
    thread.join(300)
    assert done.is_set()


def test_a_write_that_fails_leaves_the_old_file_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, kid = made(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    error = error_of(store.rotate, NOW)
    assert (error.code, "No space left" in error.message) == ("credential.unreadable", True)
    assert served(store, NOW) == [kid]
    assert {path.name for path in store.path.iterdir()} == {"keys.json", ".lock", f"{kid}.jwk"}


def test_what_cannot_be_made_locked_or_removed_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert error_of(files.make_private_folder, tmp_path / "file" / "keys").code == "credential.unreadable"
    with pytest.raises(CredentialError), files.lock_private_file(tmp_path / "none" / ".lock"):
        pass
    (tmp_path / "folder").mkdir()
    assert error_of(files.remove_private_file, tmp_path / "folder").code == "credential.unreadable"


class Rotations(RuleBasedStateMachine):
    """Whatever is done in whatever order, somebody signs, and what is served verifies it."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self._folder = tempfile.TemporaryDirectory()
        self.now = NOW
        self.store = KeyStore(Path(self._folder.name) / "keys")
        self.store.new(at=self.now)

    @rule(seconds=st.sampled_from([1.0, 100.0, MAX_AGE - 1, MAX_AGE, KEPT, 10 * MAX_AGE]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def rotate(self) -> None:
        self.store.rotate(self.now)

    @rule(number=st.integers(0, 9))
    def revoke(self, number: int) -> None:
        records = self.store.records()
        self.store.revoke(records[number % len(records)].kid, self.now)

    @invariant()
    def somebody_signs(self) -> None:
        token = receipt(self.store, self.now)
        keys = read_authority_keys(self.store.jwks(self.now))
        assert len(keys.kids) <= MAX_AUTHORITY_KEYS
        assert verified(token, keys, at=self.now)
        history = read_authority_keys(self.store.history(self.now), history=True)
        assert verify_filed(token, history)
        assert keys.kids <= history.kids
        assert not keys.ignored

    def teardown(self) -> None:
        self._folder.cleanup()


def test_somebody_signs_whatever_is_done() -> None:
    run_state_machine_as_test(Rotations, settings=settings(max_examples=15, stateful_step_count=12))


@given(st.floats(0, 1e10), st.floats(0, 1e10))
def test_a_record_is_in_one_state(starts: float, at: float) -> None:
    record = KeyRecord(kid="k", algorithm="Ed25519", public={}, created=0, starts=starts)
    assert record.can_sign(at) is not record.is_waiting(at)
    assert replace(record, revoked=1).get_state(at) == "revoked"


def test_whoever_looked_at_the_clock_before_a_key_was_revoked_signs_with_its_successor(
    tmp_path: Path,
) -> None:
    store, first = made(tmp_path)
    second = store.revoke(first, NOW + 0.5)
    assert store.signer(NOW).kid == second != first
    assert error_of(store.signer, NOW - 1).code == "credential.no-key"


def test_a_key_that_goes_between_the_list_and_its_file_is_looked_for_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, first = made(tmp_path)
    mine, looks = KeyStore(store.path), [store.records()]
    second = store.revoke(first, NOW)
    read = mine.records
    monkeypatch.setattr(mine, "records", lambda: looks.pop() if looks else read())
    assert mine.signer(NOW).kid == second
