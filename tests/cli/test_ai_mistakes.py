"""What the ai commands say to somebody who slips, or who installed too little."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

NAME = "ai://factory.localhost:1/tool/add"
#: of RFC 8037, appendix A
PUBLIC = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("joserfc", ("ai", "invoke", NAME)),
        ("joserfc", ("ai", "describe", NAME)),
        ("joserfc", ("ai", "resolve", NAME)),
        ("selectolax", ("ai", "discover", NAME)),
        ("joserfc", ("ai", "keys", "new", "keys")),
        ("joserfc", ("ai", "keys", "list", "keys")),
        ("joserfc", ("ai", "verify", "receipt.jwt", "--keys", "keys.json")),
    ],
)
def test_what_an_extra_would_bring_is_told_with_the_command_that_installs_it(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    done = run(*words, "--json")
    told = json.loads(done.out)["error"]
    assert (done.code, told["code"], told["next"]) == (10, "ai.missing-extra", "pip install 'onym[ai]'")
    assert missing in told["message"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "extra"), [("sqlalchemy", "registry"), ("starlette", "registry"), ("nobody_has_this", None)]
)
def test_an_import_that_fails_in_the_registry_names_its_extra(
    run: Any, monkeypatch: pytest.MonkeyPatch, package: str, extra: str | None
) -> None:
    from onym.cli.commands.ai import client

    def lacks(_: object) -> None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=f"{package}.orm")

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(client, "build_resolver_settings", lacks)
    done = run("ai", "discover", NAME)
    assert done.code == (70 if extra is None else 10)
    assert (f"onym[{extra}]" in done.err) is (extra is not None)


def test_an_import_that_fails_although_the_package_is_there_is_a_bug(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onym.cli.commands.ai import client

    def broken(_: object) -> None:
        raise ModuleNotFoundError("No module named 'sqlalchemy.nothing'", name="sqlalchemy.nothing")

    monkeypatch.setattr(client, "build_resolver_settings", broken)
    assert run("ai", "discover", NAME).code == 70


@pytest.mark.parametrize("command", ["invoke", "describe", "resolve"])
@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("bank.example/x", "ai://bank.example/x?"),
        ("/x", "ai://bank.example/balance"),
    ],
)
def test_a_name_without_port_and_scheme_is_told_as_an_ai_name(
    run: Any, command: str, typed: str, hint: str
) -> None:
    done = run("ai", command, typed)
    assert done.code == 3
    assert hint in done.err
    assert "llm" not in done.err


@pytest.mark.parametrize(
    ("name", "option"),
    [("ai://factory.localhost/x", "--policy local"), ("ai://factory.example:1/x", "--policy trusted")],
)
def test_a_policy_that_refuses_names_the_one_that_allows_it(run: Any, name: str, option: str) -> None:
    done = run("ai", "resolve", name, "--policy", "untrusted", "--no-dns")
    assert done.code == 5
    assert option in done.err
    assert "model server" not in done.err
    assert "Policy." not in done.err


@pytest.mark.parametrize("option", ["--namespaces", "--namespaces-key"])
def test_a_key_file_of_the_command_line_that_holds_none_is_no_forged_receipt(
    run: Any, tmp_path: Path, option: str
) -> None:
    (tmp_path / "names.jws").write_text("x")
    (tmp_path / "key.jwk").write_text("{}" if option == "--namespaces-key" else json.dumps(PUBLIC))
    words = ("--namespaces", str(tmp_path / "names.jws"), "--namespaces-key", str(tmp_path / "key.jwk"))
    done = run("ai", "resolve", "ai://bank/x", *words)
    assert done.code == (2 if option == "--namespaces-key" else 12)
    assert ("key.jwk" in done.err) is (option == "--namespaces-key")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("factory.localhost:1/tool/add", "ai://factory.localhost:1/tool/add"),
        ("https://factory.localhost:1/x", "ai://factory.localhost:1/x"),
    ],
)
def test_a_name_without_its_scheme_is_told_as_it_was_meant(run: Any, typed: str, meant: str) -> None:
    done = run("ai", "invoke", typed)
    assert done.code == 3
    assert f"{meant}?" in done.err
    assert "onym check" not in done.err


def test_a_name_that_cannot_be_read_is_shown_with_the_place_and_what_to_run_next(run: Any) -> None:
    done = run("ai", "invoke", f"{NAME}/")
    assert done.code == 3
    lines = done.err.splitlines()
    assert lines[1:3] == [f"  {NAME}/", " " * (2 + len(NAME) + 1) + "^"]
    assert lines[-1].endswith(f"onym check {NAME}/")


def test_letters_of_two_scripts_are_warned_of_before_anything_is_asked(run: Any) -> None:
    done = run("ai", "invoke", "ai://f\u0430ctory.localhost:1/x", "--no-dns")
    notes = done.err.splitlines()
    assert any(note.startswith("note: ") and "ai://xn--fctory-3nf.localhost:1/x" in note for note in notes)
    assert any(note.startswith("warning: ") and "Cyrillic" in note for note in notes)


def test_an_authority_that_does_not_answer_leads_to_discover_and_no_model_server(run: Any) -> None:
    done = run("ai", "resolve", NAME, "--no-dns", "--json")
    told = json.loads(done.out)["error"]
    assert told["next"] == f"onym ai discover {NAME} --no-dns"
    assert "model" not in told["hint"]


@pytest.mark.parametrize(
    ("data", "says"),
    [('{"a": 2, b: 3}', "line 1, column 10"), ("", "line 1, column 1"), ("{'a': 1}", "column 2")],
)
def test_input_that_is_no_json_is_told_with_its_place_and_not_sent(run: Any, data: str, says: str) -> None:
    done = run("ai", "invoke", NAME, "-d", data)
    assert done.code == 2
    assert says in done.err
    assert done.err.rstrip().endswith("onym ai invoke --help")


def test_input_that_is_nested_too_deeply_is_left_to_the_endpoint(run: Any) -> None:
    assert run("ai", "invoke", NAME, "--no-dns", "-d", "[" * 100_000 + "]" * 100_000).code == 6


@pytest.mark.parametrize(
    ("uri", "code", "says"),
    [
        ("ai://factory.example/x?a=1", 0, "ok"),
        ("AI://Factory.example:443/x", 0, "fix: ai://factory.example/x"),
        ("ai://factory.example/x/../y", 1, "ai.dot-segment"),
        ("ai://factory.example/%zz", 1, "uri."),
        ("ai:", 1, "ai.no-path"),
    ],
)
def test_an_ai_uri_is_checked_by_its_own_rules(run: Any, uri: str, code: int, says: str) -> None:
    done = run("check", uri)
    assert done.code == code
    assert says in done.out
    assert "llm" not in done.out


def test_an_ai_uri_is_written_in_its_one_spelling(run: Any) -> None:
    assert run("normalize", "AI://Factory.example:443/%78").out == "ai://factory.example/x\n"


def test_a_file_of_authorities_that_holds_none_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "ca.txt").write_text("nothing")
    done = run("ai", "resolve", NAME, "--no-dns", "--ca", str(tmp_path / "ca.txt"))
    assert done.code == 2
    assert "ca.txt" in "".join(done.err.split("\n"))
    assert "onym ai resolve --help" in done.err
