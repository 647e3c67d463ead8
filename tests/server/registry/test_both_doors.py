"""The same text makes the same request on the command line, in the web form and through the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onym.cli._app import app
from onym.registry.codec import to_data
from server.registry.site import TEMPLATE, Site
from server.registry.test_forms import send, sign_in

PASSWORD = "a passphrase of four words"
#: members that differ between two registries: the request's ID, the account and the times
OWN = ("id", "registrant", "opened", "since", "version", "v")

Door = Callable[[str, str], dict[str, Any] | str]


def template(name: str, status: str = "Provisional") -> str:
    return TEMPLATE.format(name=name, status=status)


DRAFT = f"""\
Internet-Draft                                               Example Ltd
Expires: 1 June 2027                                     1 December 2026

                     The zed scheme
                    draft-example-zed-00

1.  IANA Considerations

{template("zed")}
"""

_ZED_DRAFT = {"name": "draft-example-zed-00", "expires": "2027-06-01"}

CASES = {
    "a colon after the name": template("abcx:"),
    "a colon and slashes after the name": template("abcx://"),
    "a quoted name": template('"abcx"'),
    "a name in angle brackets": template("<abcx:>"),
    "a semicolon after the name": template("abcx;"),
    "a status in parentheses": template("abcx", "(provisional)"),
    "a status with an explanation": template("abcx", "Provisional, for now"),
    "a status that does not exist": template("abcx", "eternal"),
    "a template in an Internet-Draft": DRAFT,
    "two templates": f"{template('abcx')}\n{'-' * 20}\n\n{template('yot')}",
    "no template": "Dear IANA, please register abcx.\n",
}


@pytest.fixture
def command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Door:
    monkeypatch.setenv("ONYM_REGISTRY_DB", str(tmp_path / "typed.db"))

    def run(*words: str, stdin: str = "") -> Any:
        return CliRunner().invoke(app, ["registry", *words], input=stdin, prog_name="onym")

    assert run("init", "--login", "ann", "--password-stdin", "--empty", stdin=f"{PASSWORD}\n").exit_code == 0

    def submit(text: str, name: str) -> dict[str, Any] | str:
        chosen = ("--name", name) if name else ()
        ran = run("submit", "--draft", "--anyway", "--json", *chosen, "-", stdin=text)
        found = json.loads(ran.stdout)
        return str(found["error"]["code"]) if "error" in found else dict(found["request"])

    return submit


@pytest.fixture
def web_form(fresh: Site) -> Iterator[Door]:
    sign_in(fresh, "rita")

    def submit(text: str, name: str) -> dict[str, Any] | str:
        fields = {"field__name": name} if name else {}
        answer = send(fresh, "/submit", "/submit", registry="uri-schemes", template=text, **fields)
        if answer.status_code != 303:
            return f"HTTP {answer.status_code}"
        identifier = answer.headers["location"].partition("?")[0].rpartition("/")[2]
        return dict(to_data(fresh.world.do(fresh.world.store.request, identifier)))

    return submit


@pytest.fixture
def api(fresh: Site) -> Door:
    headers = fresh.headers("rita")

    def submit(text: str, name: str) -> dict[str, Any] | str:
        body = {"registry": "uri-schemes", "template": text, **({"name": name} if name else {})}
        answer = fresh.world.client.post("/api/v1/requests", json=body, headers=headers)
        if answer.status_code != 201:
            return str(answer.json()["code"])
        return dict(to_data(fresh.world.do(fresh.world.store.request, answer.json()["id"])))

    return submit


def without_own(request: dict[str, Any] | str) -> Any:
    if isinstance(request, str):
        return request
    return {key: value for key, value in request.items() if key not in OWN}


@pytest.mark.parametrize("case", CASES)
def test_every_door_makes_the_same_request(case: str, command_line: Door, web_form: Door, api: Door) -> None:
    typed = without_own(command_line(CASES[case], ""))
    assert without_own(api(CASES[case], "")) == typed
    filled = without_own(web_form(CASES[case], ""))
    assert filled == typed or (isinstance(filled, str) and isinstance(typed, str))


NAMESPACE = """\
Namespace: robots2
Anchor: {anchor}
Keys: {keys}
Description: Robots
Contact: Rita Example <rita@example.org>
Change controller: Example Ltd <standards@example.org>
Expires: {expires}
"""
GOOD = {"anchor": "https://robots.example", "keys": "A" * 43, "expires": "2027-12-31"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("anchor", "http://robots.example"),
        ("anchor", "https://robots.example/path"),
        ("anchor", "https://ROBOTS.example"),
        ("keys", "short"),
        ("expires", "next year"),
        ("expires", "2020-01-31"),
    ],
)
def test_the_check_of_a_namespace_refuses_what_submitting_refuses(
    fresh: Site, tmp_path: Path, field: str, value: str
) -> None:
    def check(text: str) -> tuple[list[Any], list[Any], str]:
        file = tmp_path / "namespace.txt"
        file.write_text(text, encoding="utf-8")
        words = ["registry", "submit", "-r", "ai-namespaces", "--dry-run", "--json", str(file)]
        typed = json.loads(CliRunner().invoke(app, words, prog_name="onym").stdout)
        body = {"registry": "ai-namespaces", "template": text}
        sent = fresh.world.client.post("/api/v1/check", json=body, headers=fresh.headers("rita")).json()
        errors = [
            [(f["code"], f.get("field")) for f in report["findings"] if f["level"] == "error"]
            for report in (typed.get("report", typed), sent.get("report", sent))
        ]
        form = {"registry": "ai-namespaces", "template": text}
        return errors[0], errors[1], send(fresh, "/submit/check", "/submit", **form).text

    typed, sent, page = check(NAMESPACE.format(**GOOD))
    assert (typed, sent) == ([], [])
    assert 'aria-invalid="true"' not in page
    text = NAMESPACE.format(**{**GOOD, field: value})
    typed, sent, page = check(text)
    assert typed == sent == [("namespace-value", field)]
    assert f'aria-describedby="f-{field}-problem-1' in page
    refused = fresh.world.client.post(
        "/api/v1/requests",
        json={"registry": "ai-namespaces", "template": text},
        headers=fresh.headers("rita"),
    )
    assert refused.status_code == 409, refused.text
    assert refused.json()["field"] == field


@pytest.mark.parametrize(
    ("case", "member", "value"),
    [
        ("a colon after the name", "name", "abcx"),
        ("a quoted name", "name", "abcx"),
        ("a status in parentheses", "status", "provisional"),
        ("a status with an explanation", "status", "provisional"),
        (
            "a template in an Internet-Draft",
            "draft",
            {"name": "draft-example-zed-00", "expires": "2027-06-01"},
        ),
    ],
)
def test_a_request_holds_what_the_text_asks_for(
    case: str, member: str, value: Any, command_line: Door
) -> None:
    request = command_line(CASES[case], "")
    assert not isinstance(request, str)
    assert request[member] == value


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("two templates", "registry.several-templates"),
        ("no template", "registry.no-template"),
        ("a status that does not exist", "registry.bad-status"),
    ],
)
def test_what_cannot_be_a_request_is_refused_with_its_code(
    case: str, code: str, command_line: Door, api: Door
) -> None:
    assert command_line(CASES[case], "") == code
    assert api(CASES[case], "") == code


def test_one_of_two_templates_is_chosen_by_its_name(command_line: Door, web_form: Door, api: Door) -> None:
    typed = without_own(command_line(CASES["two templates"], "yot"))
    assert typed["name"] == "yot"
    assert without_own(api(CASES["two templates"], "yot")) == typed
    assert without_own(web_form(CASES["two templates"], "yot"))["name"] == "yot"
