"""`onym ai resolve`, `describe` and `invoke` against a real endpoint on this machine."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ai_factory import Factory, resources
from ai_support import authority_ca, key_store, serve_authority, trust
from onym.ai.endpoint import Endpoint
from onym.cli import exit_codes
from onym.cli._app import app
from onym.cli.commands.ai import client as ai_commands

#: what a terminal would obey, and a table needs
TABLE = "a\tb\r\nc\x1b[31m\t\u202ed\r\n"


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    folder = tmp_path_factory.mktemp("factory")
    keys, ca, calls = key_store(folder), authority_ca(), list[str]()

    def make(authority: str) -> Endpoint:
        policy = 'permit(principal, action == Action::"financial", resource);'
        app = Endpoint(authority, keys=keys, store=folder / "seen.sqlite", policy=policy)
        resources(app, calls)

        @app.resource("/tool/picture", media_type="image/png")
        def picture() -> bytes:
            return b"\x89PNG\x1b[31m"

        @app.resource("/tool/table", media_type="text/tab-separated-values")
        def table() -> str:
            return TABLE

        @app.resource("/tool/xml", media_type="application/xml")
        def xml() -> str:
            return "<a/>"

        @app.resource("/tool/linked", media_type="application/ld+json")
        def linked() -> dict[str, int]:
            return {"a": 1}

        @app.resource("/tool/nothing")
        def nothing() -> None:
            calls.append("nothing")

        @app.resource("/tool/breaks")
        def breaks() -> Iterator[int]:
            yield 1
            raise RuntimeError("the password is hunter2")

        return app

    with serve_authority(make, "factory.localhost", ca=ca) as (app, authority):
        trust(ca, folder)
        yield Factory(app, authority, keys, folder, ca, calls)


@pytest.fixture
def octets(factory: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The octets on standard output of an invocation."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def call(path: str) -> bytes:
        words = ["ai", "invoke", factory.uri(path), "--ca", str(factory.folder / "authority.pem"), "--no-dns"]
        return CliRunner().invoke(app, words, prog_name="onym").stdout_bytes

    return call


@pytest.fixture
def ai(factory: Factory, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ca = str(factory.folder / "authority.pem")

    def call(command: str, path: str, *args: str, **given: Any) -> Any:
        return run("ai", command, factory.uri(path), "--ca", ca, "--no-dns", *args, **given)

    return call


def test_resolve_says_where_a_name_leads(factory: Factory, ai: Any) -> None:
    ran = ai("resolve", "/agent/pay")
    assert ran.code == 0
    told = dict(line.split(None, 1) for line in ran.out.splitlines())
    assert told["anchor"] == f"https://{factory.authority}"
    assert told["requires"] == "signed results, no authentication"
    assert told["resource"].endswith("effects financial")
    found = ai("resolve", "/agent/pay", "--json").json
    assert found["resource"]["effects"] == "financial"
    assert found["connect"] is None
    assert len(found["keys"]) == 1


def test_resolve_of_what_the_authority_does_not_list_leaves_the_resource_out(ai: Any) -> None:
    assert ai("resolve", "/elsewhere", "--json").json["resource"] is None
    assert "resource" not in ai("resolve", "/elsewhere").out


def test_describe_shows_input_and_output(ai: Any) -> None:
    ran = ai("describe", "/tool/add")
    assert ran.code == 0
    assert "\ninput\n{" in ran.out
    assert '"integer"' in ran.out
    found = ai("describe", "/tool/add", "--json").json
    assert (found["effects"], found["methods"], found["approval"]) == ("read", ["GET", "POST"], False)


def test_invoke_prints_the_verified_result_and_says_who_signed(factory: Factory, ai: Any) -> None:
    ran = ai("invoke", "/tool/add", "-d", '{"a": 2, "b": 3}')
    assert (ran.code, ran.out) == (0, "5")
    assert f"signed by https://{factory.authority} for anonymous" in ran.err


def test_invoke_tells_programs_the_receipt_too(ai: Any) -> None:
    found = ai("invoke", "/tool/add", "-d", "-", "--json", stdin='{"a": 2, "b": 3}').json
    assert found["body"] == "5"
    assert found["receipt"]["token"].count(".") == 2
    assert "signature" in found["checks"]


def test_what_was_saved_is_verified_offline(factory: Factory, ai: Any, run: Any, tmp_path: Path) -> None:
    saved, keys = tmp_path / "out", tmp_path / "keys.json"
    assert ai("invoke", "/tool/add", "-d", '{"a": 2, "b": 3}', "--save", str(saved)).code == 0
    keys.write_bytes(factory.keys.history(time.time()))
    verify = ("ai", "verify", str(saved / "receipt.jwt"), "--history", str(keys), "--body")
    assert run(*verify, str(saved / "body")).code == 0
    (saved / "body").write_bytes(b"6")
    assert run(*verify, str(saved / "body")).code == exit_codes.SIGNATURE


def test_a_saved_folder_is_verified_without_further_files(
    factory: Factory, ai: Any, run: Any, tmp_path: Path
) -> None:
    saved = tmp_path / "out"
    assert ai("invoke", "/tool/add", "-d", '{"a": 2, "b": 3}', "--save", str(saved)).code == 0
    assert sorted(path.name for path in saved.iterdir()) == ["body", "history.json", "receipt.jwt"]
    assert run("ai", "verify", str(saved)).code == 0
    factory.keys.revoke(factory.keys.signer(time.time()).kid, at=time.time())
    assert run("ai", "verify", str(saved)).code == 0  # the keys as they were when the result was saved
    assert ai("invoke", "/tool/add", "-d", '{"a": 2, "b": 4}', "--save", str(tmp_path / "two")).code == 0
    history = str(tmp_path / "two" / "history.json")
    assert run("ai", "verify", str(saved), "--history", history).code == exit_codes.SIGNATURE
    (saved / "body").write_bytes(b"6")
    assert run("ai", "verify", str(saved)).code == exit_codes.SIGNATURE


def test_a_saved_stream_is_verified_offline_too(factory: Factory, ai: Any, run: Any, tmp_path: Path) -> None:
    saved, keys = tmp_path / "out", tmp_path / "keys.json"
    assert ai("invoke", "/agent/count?to=3", "--stream", "--save", str(saved)).code == 0
    keys.write_bytes(factory.keys.history(time.time()))
    verify = ("ai", "verify", str(saved / "receipt.jwt"), "--history", str(keys), "--body")
    assert run(*verify, str(saved / "body")).code == 0
    body = (saved / "body").read_bytes()
    (saved / "body").write_bytes(body.replace(b"1}", b"7}"))
    assert run(*verify, str(saved / "body")).code == exit_codes.SIGNATURE


def test_events_are_shown_as_they_come(ai: Any) -> None:
    ran = ai("invoke", "/agent/count", "-d", '{"to": 2}', "--stream")
    assert ran.out.splitlines() == ['{"number":0}', '{"number":1}']
    *events, last = ai("invoke", "/agent/count?to=2", "--stream", "--json").out.splitlines()
    assert [json.loads(event)["provisional"] for event in events] == [True, True]
    assert json.loads(last)["status"] == 200


def test_money_moves_only_if_allowed(factory: Factory, ai: Any) -> None:
    ran = ai("invoke", "/agent/pay", "-d", '{"amount": 5}')
    assert ran.code == exit_codes.REFUSED
    assert "--allow financial" in ran.err
    assert ai("invoke", "/agent/pay", "-d", '{"amount": 5}', "--allow", "financial").code == 0


def test_the_same_key_does_it_once_and_says_so(ai: Any) -> None:
    words = ("invoke", "/agent/note", "-d", '{"text": "cli"}', "--idempotency-key", "cli-1")
    ai(*words)
    again = ai(*words)
    assert "given again" in again.err
    assert ai(*words, "--json").json["replayed"] is True


def test_a_file_is_sent_as_it_is(ai: Any, tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_text('{"a": 1, "b": 1}')
    ran = ai("invoke", "/tool/add", "-d", f"@{path}", "--type", "application/json")
    assert ran.out == "2"
    untyped = ai("invoke", "/tool/add", "-d", f"@{path}")
    assert untyped.out == "2"
    path.write_text("no JSON")
    refused = ai("invoke", "/tool/add", "-d", f"@{path}")
    assert refused.code == exit_codes.USAGE
    assert "--type" in refused.err


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal."""
    monkeypatch.setattr(ai_commands, "is_terminal", lambda stream: True)


def test_octets_go_to_a_pipe_as_they_are(ai: Any, octets: Any) -> None:
    assert octets("/tool/picture") == b"\x89PNG\x1b[31m"
    assert octets("/tool/table") == TABLE.encode()


def test_octets_go_to_no_terminal_and_the_call_went_well(ai: Any, screen: None) -> None:
    ran = ai("invoke", "/tool/picture")
    assert (ran.code, ran.out) == (0, "")
    assert "image/png (9 bytes)" in ran.err
    assert "--save DIR" in ran.err
    assert "signed by" in ran.err


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/tool/nothing", ""),
        ("/tool/xml", "<a/>\n"),
        ("/tool/linked", '{"a":1}\n'),
        ("/tool/table", "a\tb\nc\\x1b[31m\t\\u202ed\n"),
    ],
)
def test_a_terminal_gets_every_kind_of_text_and_nothing_that_it_would_obey(
    ai: Any, screen: None, path: str, shown: str
) -> None:
    ran = ai("invoke", path)
    assert (ran.code, ran.out) == (0, shown)
    assert "signed by" in ran.err


def test_a_note_begins_a_line_of_its_own_where_both_streams_are_one(ai: Any, tmp_path: Path) -> None:
    path = tmp_path / "both"
    code = (
        "import sys; from pathlib import Path; from types import SimpleNamespace as N\n"
        "from onym.cli import _output\nfrom onym.cli.commands.ai.client import write_result\n"
        "session = _output.Session()\n"
        "write_result(session, N(body=b'5', content_type='application/json')); session.print_note('signed')"
    )
    with path.open("wb") as both:
        subprocess.run([sys.executable, "-c", code], stdout=both, stderr=both, check=True, timeout=300)
    assert path.read_text() == "5\nnote: signed\n"


def test_programs_get_octets_in_base64_where_they_are_no_text(ai: Any) -> None:
    picture = ai("invoke", "/tool/picture", "--json").json
    assert picture["body"] is None
    assert base64.b64decode(picture["body_base64"]) == b"\x89PNG\x1b[31m"
    table = ai("invoke", "/tool/table", "--json").json
    assert (table["body"], "body_base64" in table) == (TABLE, False)


def test_a_result_that_does_not_stream_is_shown_with_stream_too(ai: Any) -> None:
    ran = ai("invoke", "/tool/add", "-d", '{"a": 2, "b": 3}', "--stream")
    assert (ran.code, ran.out) == (0, "5")


def test_a_refusal_that_is_signed_ends_a_call_with_stream_as_any_other(ai: Any) -> None:
    words = ("invoke", "/tool/add", "-d", '{"a": 2, "b": "x"}')
    assert ai(*words).code == ai(*words, "--stream").code == exit_codes.AIIP


@pytest.mark.parametrize("how", [(), ("--stream",)])
def test_why_a_stream_failed_is_told_as_nobody_signed_it(ai: Any, how: tuple[str, ...]) -> None:
    ran = ai("invoke", "/tool/breaks", *how)
    assert ran.code == exit_codes.AIIP
    assert "code      aiip.internal" in ran.err
    assert "not signed" in ran.err
    assert "hunter2" not in ran.out + ran.err


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_done(
    factory: Factory, ai: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    before = list(factory.calls)
    ran = ai("invoke", "/agent/note", "-d", '{"text": "x"}', "--save", str(tmp_path / "file" / "out"))
    assert ran.code == exit_codes.INPUT_OUTPUT
    assert factory.calls == before


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_result_that_cannot_be_saved_is_shown(ai: Any, tmp_path: Path, form: tuple[str, ...]) -> None:
    (tmp_path / "out" / "receipt.jwt").mkdir(parents=True)
    ran = ai("invoke", "/agent/note", "-d", '{"text": "y"}', "--save", str(tmp_path / "out"), *form)
    assert ran.code == exit_codes.INPUT_OUTPUT
    if form:
        assert ran.json["receipt"]["token"].count(".") == 2
        assert ran.json["error"]["code"] == "io.failed"
        assert ran.json["error"]["exit_code"] == exit_codes.INPUT_OUTPUT
    else:
        assert "notes" in ran.out
        assert "signed by" in ran.err
        assert "error: Is a directory" in ran.err


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have_is_told_here(ai: Any, name: str) -> None:
    ran = ai("invoke", "/tool/add", "-d", f'{{"a": {name}}}')
    assert ran.code == exit_codes.USAGE
    assert "usage.command-line" in ran.err
    assert f"--data contains {name}," in ran.err


def test_a_token_comes_from_a_variable_and_with_its_client(ai: Any) -> None:
    words = ("invoke", "/tool/add?a=1&b=1", "--token-env", "MADE_UP_TOKEN")
    unset = ai(*words, "--client-id", "me")
    assert unset.code == exit_codes.USAGE
    assert "MADE_UP_TOKEN" in unset.err
    nobody = ai(*words, env={"MADE_UP_TOKEN": "made-up"})
    assert nobody.code == exit_codes.USAGE
    assert "--client-id" in nobody.err
    assert "made-up" not in nobody.err


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("ai://bank/service", exit_codes.AIIP),
        ("ai://h.example/a/../b", exit_codes.BAD_URI),
        ("https://h.example/", exit_codes.BAD_URI),
        ("ai://nowhere.localhost:1/x", exit_codes.NETWORK),
    ],
)
def test_what_cannot_be_resolved_ends_with_its_own_code(
    run: Any, uri: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ran = run("ai", "invoke", uri, "--no-dns", "--timeout", "60s")
    assert ran.code == code, ran.err
    assert "error" in ran.err


@pytest.mark.parametrize("server", ["127.0.0.1:x", "127.0.0.1:0", ":53", "1.2.3.4:99999"])
def test_a_name_server_is_an_address_with_a_port(run: Any, server: str) -> None:
    ran = run("ai", "resolve", "ai://h.example/", "--resolver", server)
    assert ran.code == exit_codes.USAGE


def test_a_registry_file_needs_its_key(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "names.jws"
    path.write_text("x")
    ran = run("ai", "resolve", "ai://bank/x", "--namespaces", str(path))
    assert ran.code == exit_codes.USAGE
    assert "--namespaces-key" in ran.err
