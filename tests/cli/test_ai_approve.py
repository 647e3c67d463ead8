"""`onym ai approve` at a real gateway, with sign-ins of a real server, and a person at a real terminal."""

from __future__ import annotations

import os
import re
import shlex
import threading
import urllib.request
import uuid
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from approval_house_support import ApprovalHouse, approval_house
from cli.conftest import Run
from onym.cli import exit_codes

pytestmark = pytest.mark.xdist_group("ai-approve")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApprovalHouse]:
    with approval_house(tmp_path_factory.mktemp("house")) as found:
        yield found


class Desk:
    """The command line of one person, who has signed in at the gateway."""

    def __init__(self, house: ApprovalHouse, run: Run, who: str, folder: Path) -> None:
        self.house, self.who = house, who
        self._run = run
        self.env = {"ONYM_SIGN_INS": str(folder / who), "XDG_STATE_HOME": str(folder / "state")}
        self.network = ("--ca", house.ca_file, "--no-dns")

    def __call__(self, *words: str, **more: Any) -> Any:
        return self._run("ai", *words, *self.network, env=self.env, **more)

    def login(self, monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
        """Run `onym` with these words, while this person is at the browser."""
        threads: list[threading.Thread] = []

        def walk(url: str) -> None:
            with urllib.request.urlopen(self.house.login.sign_in(url, self.who), timeout=300) as page:
                page.read()

        def opened(url: str) -> bool:
            threads.append(threading.Thread(target=walk, args=(url,), daemon=True))
            threads[-1].start()
            return True

        monkeypatch.setattr(webbrowser, "open", opened)
        done = self._run(*words, env=self.env)
        for thread in threads:
            thread.join(300)
        return done


People = Callable[..., Desk]


@pytest.fixture
def people(
    house: ApprovalHouse, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Desk]:
    """The desk of a person who has just signed in, with `--approve`."""

    def enter(who: str, *words: str) -> Desk:
        desk = Desk(house, run, who, tmp_path)
        given = ("--issuer", house.login.issuer, "--client-id", "onym-cli")
        more = (*given, *(words or ("--approve",)), *desk.network)
        done = desk.login(monkeypatch, "ai", "login", house.gateway, *more)
        assert done.code == 0, done.err
        return desk

    return enter


@pytest.fixture
def saved(house: ApprovalHouse, tmp_path: Path) -> Callable[..., Path]:
    """The file of a call of Ann that waits for an approval."""

    def save(path: str = "/pay", given: Any = None) -> Path:
        with house.client(house.bank_grant("ann")) as client:
            request = house.request(
                client, path, given or {"amount": 5, "to": "a\x1b[2Jb"}, str(uuid.uuid4())
            )
        file = tmp_path / f"request-{uuid.uuid4()}.json"
        file.write_bytes(request)
        return file

    return save


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_call_is_asked_for_approved_at_a_terminal_and_its_evidence_fetched(
    house: ApprovalHouse, people: People, saved: Any, terminal: Any, tmp_path: Path
) -> None:
    ann, bob = people("ann"), people("bob")
    asked = ann("approve", "ask", str(saved()))
    assert asked.code == 0, asked.err
    name = asked.out.strip()
    waits = ann("approve", "evidence", name)
    assert (waits.code, waits.out) == (exit_codes.APPROVAL, "")
    listed = bob("approve", "list", "--json").json["approvals"]
    assert [row["own"] for row in listed if row["id"] == name] == [False]
    assert name in bob("approve", "list").out
    shown = bob("approve", "show", name)
    assert "\x1b" not in shown.out
    digest = bob("approve", "show", name, "--json").json["review"]["digest_groups"]
    assert " ".join(digest) in shown.out
    # another beginning of the digest approves nothing
    for typed, code in ((digest[1], exit_codes.REFUSED), (digest[0], 0)):
        screen = terminal("ai", "approve", "yes", name, *bob.network, env=bob.env)
        seen = screen.read_until("to approve the call: ")
        assert "Pay an invoice" in seen
        assert " ".join(digest) in seen
        assert "\x1b[2J" not in seen
        screen.type(f"{typed}\n")
        assert screen.end() == code, screen.shown
    file = tmp_path / "approval.jwt"
    done = ann("approve", "evidence", name, "--wait", "60s", "-o", str(file))
    assert (done.code, done.out) == (0, ""), done.err
    assert file.read_text().count(".") == 2
    again = ann("approve", "evidence", name, "--json").json
    assert (again["state"], again["evidence"]) == ("approved", file.read_text().strip())
    assert again["idempotency_key"]


def read_commands(part: int) -> list[str]:
    """The commands of one of the blocks of docs/how-to/approvals.md that name this file."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "approvals.md").read_text(encoding="utf-8")
    blocks = re.findall(
        r"<!-- tested: tests/cli/test_ai_approve\.py -->\n```console\n(.*?)```", page, re.DOTALL
    )
    return [line.removeprefix("$ onym ") for line in blocks[part].splitlines()]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_the_commands_of_the_documentation_approve_a_call(
    house: ApprovalHouse,
    run: Run,
    saved: Any,
    terminal: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ann, bob = Desk(house, run, "ann", tmp_path), Desk(house, run, "bob", tmp_path)
    file, request, name = tmp_path / "approval.jwt", saved(), ""

    def complete(command: str, desk: Desk) -> list[str]:
        words = shlex.split(command.replace("https://gateway.example", house.gateway))
        replaced = {
            "https://login.example": house.login.issuer,
            "out/approval-request.json": str(request),
            "approval.jwt": str(file),
            "ID": name,
        }
        return [*(replaced.get(word, word) for word in words), *desk.network]

    (login, ask, evidence), (login_to_approve, *shown, yes) = read_commands(0), read_commands(1)
    assert ann.login(monkeypatch, *complete(login, ann)).code == 0
    name = run(*complete(ask, ann), env=ann.env).out.strip()
    assert bob.login(monkeypatch, *complete(login_to_approve, bob)).code == 0
    for command in shown:
        done = run(*complete(command, bob), env=bob.env)
        assert (done.code, name in done.out or "digest" in done.out) == (0, True), done.err
    digest = bob("approve", "show", name, "--json").json["review"]["digest_groups"][0]
    screen = terminal(*complete(yes, bob), env=bob.env)
    screen.read_until("to approve the call: ")
    screen.type(f"{digest}\n")
    assert screen.end() == 0, screen.shown
    assert run(*complete(evidence, ann), env=ann.env).code == 0
    assert file.read_text().count(".") == 2


def test_attack_88_without_a_terminal_nothing_is_approved(people: People, saved: Any) -> None:
    ann, bob = people("ann"), people("bob")
    name = ann("approve", "ask", str(saved())).out.strip()
    digest = bob("approve", "show", name, "--json").json["review"]["digest_groups"][0]
    for words in ((), ("--json",)):
        done = bob("approve", "yes", name, *words, stdin=f"{digest}\n")
        assert done.code == exit_codes.REFUSED
    assert ann("approve", "show", name, "--json").json["state"] == "waiting"


def test_a_denial_needs_no_terminal_and_is_final(people: People, saved: Any) -> None:
    ann, bob = people("ann"), people("bob")
    name = ann("approve", "ask", str(saved()), "--json").json["id"]
    assert bob("approve", "no", name, "--json").json["state"] == "denied"
    assert ann("approve", "evidence", name, "--wait", "60s").code == exit_codes.AIIP
    assert bob("approve", "no", name).code == exit_codes.AIIP


def test_the_command_in_an_error_signs_in_for_decisions_as_it_is_printed(
    people: People, saved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = people("ann"), people("bob", "--scope", "use")
    name = ann("approve", "ask", str(saved())).out.strip()
    lacking = bob("approve", "list", "--json").json["approvals"]
    assert name not in {row["id"] for row in lacking}
    unknown = bob("approve", "show", name)
    assert unknown.code == exit_codes.AIIP
    words = shlex.split(" ".join(unknown.err.split()))
    typed = words[len(words) - words[::-1].index("onym") : words.index("--approve") + 1]
    fresh = bob.login(monkeypatch, *typed)
    assert fresh.code == 0, fresh.err
    assert bob("approve", "show", name).code == 0


def test_an_old_sign_in_is_told_with_the_command_that_renews_it(
    house: ApprovalHouse, people: People, saved: Any, terminal: Any
) -> None:
    ann, tired = people("ann"), people("tired")
    name = ann("approve", "ask", str(saved())).out.strip()
    digest = tired("approve", "show", name, "--json").json["review"]["digest_groups"][0]
    screen = terminal("ai", "approve", "yes", name, *tired.network, env=tired.env)
    screen.read_until("to approve the call: ")
    screen.type(f"{digest}\n")
    assert screen.end() == exit_codes.AIIP
    words = " ".join(screen.shown.split())
    assert f"onym ai login {house.gateway}" in words or "--ca" in words
    assert "--approve" in words
    # a denial needs no fresh sign-in
    assert tired("approve", "no", name).code == 0


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_sign_in_on_the_own_device_renews_an_old_one_for_the_same_person_only(
    house: ApprovalHouse, people: People, saved: Any, terminal: Any
) -> None:
    ann, tired = people("ann"), people("tired")
    names = [ann("approve", "ask", str(saved())).out.strip() for _ in range(2)]
    screens = {}
    for name, who in zip(names, ("bob", "tired"), strict=True):  # the server wants pauses: both at once
        digest = tired("approve", "show", name, "--json").json["review"]["digest_groups"][0]
        words = ("ai", "approve", "yes", name, "--sign-in", who, *tired.network)
        screens[who] = terminal(*words, env=tired.env)
        screens[who].read_until("to approve the call: ")
        screens[who].type(f"{digest}\n")
        assert digest in screens[who].read_until("sign in on your own device; it must show " + digest)
    assert screens["bob"].end() == exit_codes.REFUSED, screens["bob"].shown
    assert screens["tired"].end() == 0, screens["tired"].shown
    states = [ann("approve", "show", name, "--json").json["state"] for name in names]
    assert states == ["waiting", "approved"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("list", "--gateway", "http://gateway.example"), exit_codes.USAGE),
        (("show", "../account"), exit_codes.AIIP),
        (("show", "A" * 24), exit_codes.AIIP),
        (("ask", "/no/such/file"), exit_codes.USAGE),
        (("list", "--gateway", "https://elsewhere.example"), exit_codes.CONFIGURATION),
    ],
)
def test_mistakes(people: People, words: tuple[str, ...], code: int) -> None:
    done = people("ann")("approve", *words)
    assert done.code == code, done.err
    assert "Traceback" not in done.err


def test_without_a_sign_in_nothing_is_sent(house: ApprovalHouse, run: Run, tmp_path: Path) -> None:
    done = Desk(house, run, "nobody", tmp_path)("approve", "list")
    assert done.code == exit_codes.CONFIGURATION
    assert "onym ai login" in done.err


def test_approve_is_for_gateways(house: ApprovalHouse, run: Run, tmp_path: Path) -> None:
    done = Desk(house, run, "ann", tmp_path)("login", house.bank, "--approve")
    assert done.code == exit_codes.USAGE
