"""`onym ai keys`: the life of an authority's keys from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Run
from onym.sign.keys import read_authority_keys
from onym.sign.keystore import KeyStore


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "keys")


def new(run: Run, folder: str, *more: str) -> str:
    ran = run("ai", "keys", "new", folder, "--json", *more)
    assert ran.code == 0, ran.err
    assert ran.json["folder"] == folder
    return str(ran.json["kid"])


def test_a_first_key_signs_from_now_on(run: Run, folder: str) -> None:
    ran = run("ai", "keys", "new", folder)
    assert (ran.code, "signs from now on" in ran.out) == (0, True)
    kid = ran.out.split()[0]
    published = run("ai", "keys", "publish", folder)
    assert read_authority_keys(published.out.encode()).kids == {kid}


@pytest.mark.parametrize("algorithm", ["Ed25519", "ES256", "ES384", "PS256"])
def test_each_algorithm_can_be_chosen(run: Run, folder: str, algorithm: str) -> None:
    kid = new(run, folder, "--algorithm", algorithm)
    found = run("ai", "keys", "list", folder, "--json").json["keys"]
    assert [(record["kid"], record["algorithm"], record["state"]) for record in found] == [
        (kid, algorithm, "signs")
    ]


def test_an_unknown_algorithm_is_a_usage_error(run: Run, folder: str) -> None:
    assert run("ai", "keys", "new", folder, "--algorithm", "RS256").code == 2
    assert not Path(folder).exists()


def test_a_second_first_key_is_refused_with_the_way_on(run: Run, folder: str) -> None:
    new(run, folder)
    ran = run("ai", "keys", "new", folder)
    assert ran.code == 4
    assert "credential.key-exists" in ran.err
    assert "rotate" in ran.err


def test_rotation_publishes_the_next_key_and_says_when_it_signs(run: Run, folder: str) -> None:
    old = new(run, folder)
    ran = run("ai", "keys", "rotate", folder, "--max-age", "600s")
    assert (ran.code, "signs from 20" in ran.out) == (0, True)
    found = run("ai", "keys", "list", folder, "--json").json["keys"]
    assert [record["state"] for record in found] == ["signs", "waits"]
    assert found[0]["kid"] == old
    assert found[0]["ends"] == found[1]["starts"]
    again = run("ai", "keys", "rotate", folder, "--json")
    assert again.json["kid"] == found[1]["kid"]
    assert len(json.loads(run("ai", "keys", "publish", folder).out)["keys"]) == 2


def test_rotation_may_change_the_algorithm(run: Run, folder: str) -> None:
    new(run, folder)
    assert run("ai", "keys", "rotate", folder, "--algorithm", "ES256").code == 0
    found = run("ai", "keys", "list", folder, "--json").json["keys"]
    assert [record["algorithm"] for record in found] == ["Ed25519", "ES256"]


def test_a_revoked_key_is_replaced_listed_and_published_as_revoked(run: Run, folder: str) -> None:
    old = new(run, folder)
    ran = run("ai", "keys", "revoke", folder, old, "--yes")
    assert ran.code == 0
    assert "revoked" in ran.err
    now = ran.out.split()[0]
    assert now != old
    published = json.loads(run("ai", "keys", "publish", folder).out)
    assert ([record["kid"] for record in published["keys"]], published["revoked"]) == ([now], [old])
    listed = run("ai", "keys", "list", folder)
    assert [line.split()[2] for line in listed.out.splitlines()] == ["revoked", "signs"]
    assert " until 20" in listed.out.splitlines()[0]


def test_a_kid_that_begins_with_a_hyphen_is_a_kid(run: Run, folder: str) -> None:
    new(run, folder)
    for kid in ("-3xQ", "--json-like"):
        ran = run("ai", "keys", "revoke", folder, kid, "--yes", "--json")
        assert (ran.code, ran.json["error"]["code"]) == (4, "credential.no-key")


def test_a_history_keeps_what_the_set_does_not(run: Run, folder: str, tmp_path: Path) -> None:
    old = new(run, folder)
    run("ai", "keys", "revoke", folder, old, "--yes")
    output = tmp_path / "history.json"
    ran = run("ai", "keys", "publish", folder, "--history", "-o", str(output), "--json")
    assert ran.json == {"output": str(output)}
    history = json.loads(output.read_text(encoding="utf-8"))
    assert next(record["kid"] for record in history["keys"]) == old
    assert read_authority_keys(output.read_bytes(), history=True).revoked == {old}


def test_an_open_folder_is_refused_with_the_command_that_mends_it(run: Run, folder: str) -> None:
    new(run, folder)
    Path(folder).chmod(0o755)
    for command in ("list", "rotate", "publish"):
        ran = run("ai", "keys", command, folder)
        assert ran.code == 4
        assert f"chmod 700 {folder}" in ran.err.replace("\n", " ")


def test_a_folder_without_keys_says_how_to_make_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o700)
    ran = run("ai", "keys", "list", str(tmp_path / "empty"))
    assert ran.code == 4
    assert "onym ai keys new" in ran.err


def test_no_output_holds_a_private_key(run: Run, folder: str) -> None:
    new(run, folder)
    run("ai", "keys", "rotate", folder)
    secrets = [json.loads(path.read_text(encoding="utf-8"))["d"] for path in Path(folder).glob("*.jwk")]
    assert len(secrets) == 2
    for words in (["list"], ["list", "--json"], ["publish"], ["publish", "--history"]):
        ran = run("ai", "keys", words[0], folder, *words[1:])
        assert not any(secret in ran.out + ran.err for secret in secrets)


def test_a_time_that_no_calendar_has_is_said(run: Run, folder: str) -> None:
    KeyStore(folder).new(at=1e15)
    ran = run("ai", "keys", "list", folder)
    assert ran.code == 2
    assert "time" in ran.err


def test_a_key_whose_file_is_gone_is_lost_and_no_longer_said_to_sign(run: Run, folder: str) -> None:
    kid = new(run, folder)
    (Path(folder) / f"{kid}.jwk").unlink()
    ran = run("ai", "keys", "list", folder)
    assert ran.out.split()[2] == "lost"
    assert "the private file of a lost key is missing" in ran.err
    assert run("ai", "keys", "list", folder, "--json").json["keys"][0]["state"] == "lost"
    rotated = run("ai", "keys", "rotate", folder)
    assert rotated.code == 0
    assert f"warning: {kid} " in rotated.err
    waiting = rotated.out.split()[0]
    (Path(folder) / f"{waiting}.jwk").unlink()
    lost = run("ai", "keys", "list", folder, "--json").json["keys"]
    assert [record["state"] for record in lost] == ["lost", "lost"]


def test_rotation_tells_programs_when_the_new_key_signs(run: Run, folder: str) -> None:
    new(run, folder)
    ran = run("ai", "keys", "rotate", folder, "--json")
    found = run("ai", "keys", "list", folder, "--json").json["keys"]
    assert ran.json["starts"] == found[1]["starts"]
    assert ran.err == ""


def test_machines_join_a_fleet_and_any_key_can_be_revoked(tmp_path: Path, run: Run) -> None:
    """The commands that run-a-gateway.md shows, for two machines."""
    fleet = str(tmp_path / "fleet.sqlite")
    kids = []
    for name in ("first", "second"):
        folder = str(tmp_path / name)
        assert run("ai", "keys", "new", folder).code == 0
        done = run("ai", "keys", "join", folder, "--fleet", fleet, "--json")
        kids.append(json.loads(done.out)["kid"])
    listed = json.loads(run("ai", "keys", "list", "--fleet", fleet, "--json").out)["keys"]
    assert {(row["kid"], row["state"]) for row in listed} == {(kids[0], "signs"), (kids[1], "waits")}
    assert run("ai", "keys", "revoke", kids[1], "--yes", "--fleet", fleet).code == 0
    again = run("ai", "keys", "list", "--fleet", fleet)
    assert "revoked" in again.out
    assert run("ai", "keys", "revoke", str(tmp_path / "first"), kids[0], "--fleet", fleet).code == 2
    assert run("ai", "keys", "revoke", "no-such-key", "--yes", "--fleet", fleet).code == 4
    assert run("ai", "keys", "revoke", str(tmp_path / "first")).code == 2
    assert run("ai", "keys", "list").code == 2
