"""The pages: a name is typed, a resource is shown, a form is sent, a result is taken home."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import quote_plus, urlencode

import pytest

from gateway_support import Answer, World, world
from onym.server.gateway.app import Gateway

FORM = {"Content_Type": "application/x-www-form-urlencoded", "Accept": "text/html"}


class Browser:
    """Keeps the cookie, and sends forms back."""

    def __init__(self, site: World) -> None:
        self.site = site
        self.cookie: dict[str, str] = {}

    def get(self, path: str) -> Answer:
        answer = self.site.at("GET", path, Accept="text/html", **self.cookie)
        self._keep(answer)
        return answer

    def _keep(self, answer: Answer) -> None:
        if "set-cookie" in answer.headers:
            self.cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}

    def form(self, path: str) -> dict[str, str]:
        page = self.get(path).body.decode()
        return {
            name: html.unescape(value)
            for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)
        }

    def send(self, form: dict[str, str], **more: str) -> Answer:
        body = urlencode(form).encode()
        given = {**FORM, "Origin": self.site.base, "Sec_Fetch_Site": "same-origin", **self.cookie, **more}
        return self.site.at("POST", "/invoke", body, **given)


@pytest.fixture
def person(site: World) -> Browser:
    return Browser(site)


def text(answer: Answer) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", answer.body.decode()))


def test_a_form_whose_key_was_changed_is_the_senders_mistake(person: Browser) -> None:
    form = person.form(person.site.path("/tool/add"))
    for key in ('a"b', "x" * 65, "\u00e9"):
        answer = person.send({**form, "in0": "1", "in1": "2", "key": key})
        assert (answer.status, "onym" in text(answer).lower().split()) == (400, False)
        assert "bad-request" in text(answer)


def test_the_front_page_shows_both_forms_before_anything_is_asked(person: Browser) -> None:
    before = len(person.site.endpoint.seen)
    assert "Open an ai: name" in text(person.get("/"))
    found = person.get("/?uri=" + quote_plus("ai://bücher.example/straße"))
    assert found.status == 200
    assert "ai://xn--bcher-kva.example/stra%C3%9Fe" in text(found)
    assert "ai://bücher.example/straße" in text(found)
    mixed = person.get("/?uri=" + quote_plus("ai://b\u0430nk.example/"))
    assert 'role="alert"' in mixed.body.decode()
    assert "TypedWarning" not in mixed.body.decode()
    assert len(person.site.endpoint.seen) == before


def test_a_canonical_name_goes_on_at_once(person: Browser) -> None:
    found = person.get(f"/?uri=ai://{person.site.authority}/tool/add")
    assert (found.status, found.headers["location"]) == (
        303,
        person.site.base + person.site.path("/tool/add"),
    )


@pytest.mark.parametrize(
    "typed", ["http://a.example/", "ai:", "ai://user@a.example/", "<script>alert(1)</script>"]
)
def test_what_is_no_name_is_told(person: Browser, typed: str) -> None:
    found = person.get("/?uri=" + quote_plus(typed))
    assert found.status == 400
    assert 'role="alert"' in found.body.decode()
    assert "<script>" not in found.body.decode()


@pytest.mark.requirement("ai-interop-b", "ai-agents-a", "ai-agents-b")
def test_a_resource_has_a_page_that_says_who_answers_and_how_it_was_verified(person: Browser) -> None:
    page = person.get(person.site.path("/tool/add"))
    said = text(page)
    for words in (
        "Add two numbers",
        "read",
        person.site.authority,
        "The signature is valid",
        "AIIP/HTTPS v1",
    ):
        assert words in said
    assert "<script" not in page.body.decode()
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_a_form_is_invoked_once_and_its_result_stays_for_its_browser(person: Browser) -> None:
    form = person.form(person.site.path("/tool/add")) | {"in0": "1", "in1": "2", "in2": "<b>"}
    before = len(person.site.endpoint.seen)
    sent = person.send(form)
    assert sent.status == 303
    here = sent.headers["location"]
    assert [request["method"] for request in person.site.endpoint.seen[before:]].count("POST") == 1
    page = person.get(here)
    assert '"sum": 3' in text(page)
    assert "<b>" not in page.body.decode()
    from onym.sign.keys import read_authority_keys
    from onym.sign.receipts import GATEWAY, verify_filed

    body = person.get(here + "/body")
    assert body.body == b'{"sum":3,"note":"<b>"}'
    assert body.headers["content-disposition"].startswith("attachment")
    own = person.get(here + "/gateway-receipt").body.decode()
    keys = read_authority_keys(person.site.at("GET", "/.well-known/aiip.jwks.json").body)
    assert verify_filed(own, keys, body=body.body, kind=GATEWAY).status == 200
    assert person.get(here + "/receipt").headers["content-type"] == "application/jwt"
    assert person.get(here + "/other").status == 404
    stranger = Browser(person.site)
    assert stranger.get(here).status == 404
    stranger.form(person.site.path("/tool/add"))
    assert stranger.get(here).status == 404
    assert person.send(form, **stranger.cookie).status == 403


def test_every_kind_of_control_is_sent(person: Browser) -> None:
    form = person.form(person.site.path("/tool/greet")) | {"in0": "Ann", "in1": '"de"', "in2": "true"}
    page = person.get(person.send(form).headers["location"])
    assert "GUTEN TAG, ANN!" in text(page)


def test_a_form_with_a_mistake_comes_back_as_it_was_filled(person: Browser) -> None:
    form = person.form(person.site.path("/tool/add")) | {"in0": "one", "in1": "2"}
    page = person.send(form)
    assert page.status == 422
    assert 'role="alert"' in page.body.decode()
    assert 'value="one"' in page.body.decode()


def test_what_the_endpoint_refuses_is_shown_with_its_proof(person: Browser) -> None:
    form = person.form(person.site.path("/tool/fail"))
    page = person.get(person.send(form).headers["location"])
    assert "It refused" in text(page)
    assert "The signature is valid" in text(page)


def test_a_result_that_is_html_is_shown_as_text(person: Browser) -> None:
    form = person.form(person.site.path("/tool/page"))
    page = person.get(person.send(form).headers["location"])
    assert "&lt;script&gt;" in page.body.decode()
    assert "<script>" not in page.body.decode()


def test_what_may_not_be_invoked_is_described_and_has_no_form(person: Browser) -> None:
    page = person.get(person.site.path("/agent/forklift"))
    assert page.status == 200
    assert "physical" in text(page)
    assert "<form" not in page.body.decode().partition("<main")[2]
    form = person.form(person.site.path("/tool/add"))
    refused = person.send(form | {"uri": f"ai://{person.site.authority}/agent/forklift", "in0": "x"})
    assert refused.status == 403
    for uri in ("ai://FACTORY.test/x", "http://x/", ""):
        assert person.send(form | {"uri": uri}).status == 400


def test_a_problem_has_a_page(person: Browser) -> None:
    page = person.get(person.site.path("/Tool/%41dd"))
    assert page.status == 400
    assert "ai://" in text(page)
    assert person.get(person.site.path("/no/such")).status == 404


def test_an_error_of_ours_says_nothing(site: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Any, visit: Any) -> Any:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(Gateway, "_check_and_route", fail)
    for accept in ("text/html", "*/*"):
        answer = site.at("GET", "/", Accept=accept)
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert b"RuntimeError" not in answer.body


def test_over_https_the_cookie_is_bound_to_the_host_and_hsts_is_sent() -> None:
    with world(base_url="https://gw.test", allowed_hosts=("gw.test",)) as found:
        page = found.ask("GET", "/tool/add", Accept="text/html", Host="gw.test")
        assert page.headers["set-cookie"].startswith("__Host-onym-gateway=")
        assert "Secure" in page.headers["set-cookie"]
        assert "strict-transport-security" in page.headers
