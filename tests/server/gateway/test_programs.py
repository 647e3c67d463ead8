"""Programs that act for people through the gateway, with tokens of a real authorization server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from ai_support import client_cert, thumbprint
from gateway_support import Answer, world
from oauth_support import HandIssuer, hand_issuer
from onym.common.text import decode_base64url, parse_json_object
from onym.errors import ConfigError
from onym.server.gateway.settings import ProgramTable, load_gateway_settings
from onym.server.settings import IssuerTable
from openid_support import independent_client
from people_support import Browser
from programs_support import SECRET, ProgramTown, program_town
from support import mentions

pytestmark = pytest.mark.xdist_group("gateway-programs")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramTown]:
    with program_town(tmp_path_factory.mktemp("programs")) as found:
        yield found


NOTE = b'{"text": "milk"}'


def claims(token: str) -> dict[str, Any]:
    return parse_json_object(decode_base64url(token.split(".")[1]))


def test_a_program_without_a_token_is_told_where_to_get_one(town: ProgramTown) -> None:
    answer = town.world.ask("POST", "/balance", b"{}")
    assert (answer.status, answer.json()["code"]) == (401, "sign-in-required")
    challenges = [value for name, value in answer.fields if name == "www-authenticate"]
    location = f'resource_metadata="{town.world.base}/.well-known/oauth-protected-resource"'
    assert [value.split()[0] for value in challenges] == ["Bearer", "DPoP"]
    assert all(location in value and 'scope="use"' in value for value in challenges)
    document = town.world.at("GET", "/.well-known/oauth-protected-resource").json()
    assert document["resource"] == town.world.base
    assert document["authorization_servers"] == [town.login.issuer]
    assert document["scopes_supported"] == ["use"]
    # a browser is shown the way to sign in, and no challenge that it cannot answer
    page = town.world.at("GET", "/account", accept="text/html")
    assert page.status == 401
    assert b"/auth/login" in page.body
    assert "resource_metadata" not in page.headers["www-authenticate"]


@pytest.mark.requirement("ai-gateway-g", "ai-gateway-i")
def test_a_program_reads_for_its_person(town: ProgramTown) -> None:
    grant = town.grant("ann")
    answer = town.send(grant, "/balance")
    assert answer.status == 200, answer.body
    assert answer.json() == {"of": "subject-of-ann", "by": "gateway"}
    caller = town.calls[-1].caller
    # the program is inside the gateway's own act
    assert [actor.subject for actor in caller.actors] == ["gateway", "agent"]
    upstream, own = claims(answer.headers["aiip-receipt"]), claims(answer.headers["aiip-gateway-receipt"])
    assert upstream["ath"] == caller.token_hash
    assert own["aud"] == "agent"
    assert own["ath"] != upstream["ath"]
    line = town.world.lines()[-1]
    assert (line["route"], line["client"], line["proof"]) == ("exchange", "agent", "dpop")
    assert not mentions(str(line), "ann")


def test_the_token_of_a_program_stays_at_the_gateway(town: ProgramTown) -> None:
    grant = town.grant("bea")
    assert town.send(grant, "/balance").status == 200
    seen = [scope["headers"] for scope in town.world.endpoint.seen if scope["type"] == "http"]
    values = b"\n".join(value for fields in seen for _, value in fields)
    assert grant.token.reveal().encode() not in values
    assert b"DPoP ey" in values


def test_two_people_and_two_programs_never_share_a_token(town: ProgramTown) -> None:
    grants = {
        (who, client): town.grant(who, client) for who in ("cid", "dan") for client in ("agent", "robot")
    }
    found = set()
    for (who, client), grant in grants.items():
        assert town.send(grant, "/balance").json()["of"] == f"subject-of-{who}"
        caller = town.calls[-1].caller
        assert caller.actors[-1].subject == client
        found.add(caller.token_hash)
    assert len(found) == 4


def test_attack_60_a_token_is_good_at_its_own_resource_only(town: ProgramTown) -> None:
    elsewhere = town.grant("eve", resource=town.authority, scopes=("balance",))
    answer = town.send(elsewhere, "/balance")
    assert (answer.status, answer.json()["code"]) == (401, "authentication-required")
    before = len(town.calls)
    # nor does the authority take a token for the gateway
    grant = town.grant("eve", bound=False)
    with pytest.raises(OSError, match=r"401"):
        _call_authority(town, grant.token.reveal())
    assert len(town.calls) == before


def _call_authority(town: ProgramTown, token: str) -> None:
    import http.client
    import ssl

    context = ssl.create_default_context(cafile=str(town.ca_file))
    host, port = town.world.authority.split(":")
    connection = http.client.HTTPSConnection("127.0.0.1", int(port), context=context)
    context.check_hostname = False
    try:
        path = f"/.well-known/aiip/v1/{town.world.authority}/balance"
        fields = {
            "host": f"{host}:{port}",
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
        }
        connection.request("POST", path, b"{}", fields)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise OSError(str(answer.status))
    finally:
        connection.close()


@pytest.mark.requirement("ai-gateway-g")
def test_an_independent_client_finds_its_way_from_a_challenge_to_a_result(town: ProgramTown) -> None:
    calls = [{"url": town.world.base + town.world.path("/balance"), "body": "{}"} for _ in range(2)]
    calls.append({"url": town.world.base + town.world.path("/note"), "body": NOTE.decode(), "key": "far-1"})
    settings = {"client_id": "robot", "client_secret": SECRET, "login": "far", "calls": calls}
    found = independent_client("program.mjs", settings, town.ca_file)
    assert found["bare"] == 401
    assert found["metadata"]["resource"] == town.world.base
    assert found["type"] == "dpop"
    # one nonce is enough for the next minutes
    assert found["nonces"] == 1
    balance, again, note = found["answers"]
    assert (balance["status"], again["status"]) == (200, 200)
    assert '"of":"subject-of-far"' in balance["body"]
    assert note["status"] == 403
    assert '"code":"consent-required"' in note["body"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("other method", "sender-constraint"),
        ("other path", "sender-constraint"),
        ("old", "sender-constraint"),
        ("other body", "sender-constraint"),
        ("as bearer", "sender-constraint"),
        ("no proof", "sender-constraint"),
        ("altered", "authentication-required"),
    ],
)
def test_a_token_is_no_use_without_its_proof(town: ProgramTown, change: str, code: str) -> None:
    grant = town.grant("fay")
    assert town.send(grant, "/balance").status == 200
    path = town.world.path("/balance")
    fields = town.fields(grant, "POST", path)
    if change == "other method":
        fields = town.fields(grant, "GET", path)
    elif change == "other path":
        fields = town.fields(grant, "POST", town.world.path("/note"))
    elif change == "other body":
        fields = town.fields(grant, "POST", path, request_hash="x" * 43)
    elif change == "as bearer":
        fields = {"authorization": fields["authorization"].replace("DPoP", "Bearer")}
    elif change == "no proof":
        del fields["dpop"]
    elif change == "altered":
        fields["authorization"] = fields["authorization"][:-4] + "AAAA"
    elif change == "old":
        from onym.sign.dpop import sign_dpop_proof

        assert grant.dpop_key is not None
        fields["dpop"] = sign_dpop_proof(
            grant.dpop_key,
            method="POST",
            url=town.world.base + path,
            at=time.time() - 62,
            access_token=grant.token.reveal(),
            nonce=town.nonces["gateway"],
        )
    before = len(town.calls)
    answer = town.world.at("POST", path, b"{}", **fields)
    assert (answer.status, answer.json()["code"]) == (401, code)
    assert "www-authenticate" in answer.headers
    assert grant.token.reveal()[-40:] not in str(answer.fields) + answer.body.decode()
    assert len(town.calls) == before


def test_a_proof_is_accepted_once(town: ProgramTown) -> None:
    grant = town.grant("gus")
    assert town.send(grant, "/balance").status == 200
    path = town.world.path("/balance")
    fields = town.fields(grant, "POST", path)
    answers = [town.world.at("POST", path, b"{}", **fields).status for _ in range(2)]
    assert answers == [200, 401]


def test_a_proof_that_covers_the_request_is_accepted(town: ProgramTown) -> None:
    from onym.sign.receipts import content_digest, request_hash

    covered = request_hash(
        method="POST",
        target=f"ai://{town.world.authority}/balance",
        digest=content_digest(b"{}"),
        content_type="application/json",
        idempotency_key=None,
    )
    answer = town.send(town.grant("hal"), "/balance", proof={"request_hash": covered})
    assert answer.status == 200, answer.body


def test_a_token_needs_the_scopes_of_the_gateway(town: ProgramTown) -> None:
    answer = town.send(town.grant("ida", scopes=("other",)), "/balance")
    assert (answer.status, answer.json()["code"]) == (403, "insufficient-scope")
    assert re.search(r'error="insufficient_scope".*scope="use"', answer.headers["www-authenticate"])


def test_a_program_with_its_own_token_acts_for_nobody(town: ProgramTown) -> None:
    grant, before = town.own_grant(), len(town.calls)
    for resource in ("/balance", "/note", "/close", "/pay"):
        answer = town.send(grant, resource)
        assert (answer.status, answer.json()["code"]) == (401, "sign-in-required")
    assert len(town.calls) == before


def test_a_bearer_token_is_accepted_unless_the_gateway_requires_dpop(
    town: ProgramTown, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert town.send(town.grant("joe", bound=False), "/balance").status == 200
    with program_town(tmp_path_factory.mktemp("strict"), program={"dpop": "required"}) as strict:
        answer = strict.send(strict.grant("joe", bound=False), "/balance")
        assert (answer.status, answer.json()["code"]) == (401, "sender-constraint")
        document = strict.world.at("GET", "/.well-known/oauth-protected-resource").json()
        assert document["dpop_bound_access_tokens_required"] is True


def test_a_task_of_a_program_is_open_to_its_person_only(town: ProgramTown) -> None:
    grant = town.grant("tom")
    begun = town.send(grant, "/slow", prefer="respond-async, wait=0", idempotency_key='"tom-1"')
    assert begun.status == 202, begun.body
    path = begun.headers["location"].removeprefix(town.world.base)
    while "result" not in (status := town.send(grant, path, method="GET", prefer="wait=20").json()):
        assert status["state"] in {"submitted", "working"}
    result = path.replace("/tasks/status/", "/tasks/result/")
    assert town.send(grant, result, method="GET").body == b"for subject-of-tom"
    events = town.send(grant, path.replace("/tasks/status/", "/tasks/events/"), method="GET")
    assert b"event: gateway-receipt" in events.body
    foreign = town.send(town.grant("ute"), result, method="GET")
    assert (foreign.status, foreign.json()["code"]) == (404, "task-not-found")
    assert town.world.at("GET", result).status == 401
    bound = town.send(grant, result, method="GET", proof={"request_hash": "x" * 43})
    assert (bound.status, bound.json()["code"]) == (401, "sender-constraint")


# --- client certificates, and several issuers: tokens that the test signs ---


def hand_table(name: str, issuer: HandIssuer) -> IssuerTable:
    return IssuerTable(id=name, issuer=issuer.issuer, client_id="gateway", network="local")


def test_a_token_may_be_bound_to_a_certificate_that_a_known_proxy_has_verified() -> None:
    clients = trustme.CA()
    own, other = (clients.issue_cert(name) for name in ("own@client.test", "other@client.test"))
    with hand_issuer() as issuer:
        settings = {
            "providers": (hand_table("works", issuer),),
            "programs": (ProgramTable(provider="works", mtls=True),),
        }
        proxied = {"certificate_proxies": ("127.0.0.0/8",)}
        with world(server=proxied, **settings) as known, world(**settings) as direct:
            for place, certificate, bound, status in (
                (known, own, own, 200),
                (known, other, own, 401),
                (known, None, own, 401),
                (known, own, None, 401),
                # a field of a stranger proves nothing
                (direct, own, own, 401),
            ):
                binding = None if bound is None else {"x5t#S256": thumbprint(bound)}
                token = issuer.token(aud=place.base, cnf=binding)
                fields = {} if certificate is None else dict([client_cert(certificate)])
                answer = place.ask(
                    "POST", "/tool/add", b'{"a": 1, "b": 2}', authorization=f"Bearer {token}", **fields
                )
                assert answer.status == status, answer.body
                if status == 401:
                    assert answer.json()["code"] == "sender-constraint"
                else:
                    assert place.lines()[-1]["proof"] == "certificate"


def test_a_token_is_judged_by_the_keys_of_its_own_issuer() -> None:
    with hand_issuer() as first, hand_issuer() as second:
        tables = (hand_table("one", first), hand_table("two", second))
        programs = (ProgramTable(provider="one"), ProgramTable(provider="two", scopes=("agents:invoke",)))
        with world(providers=tables, programs=programs) as place:
            document = place.at("GET", "/.well-known/oauth-protected-resource").json()
            assert document["authorization_servers"] == [first.issuer, second.issuer]

            def status(token: str) -> int:
                fields = {"authorization": f"Bearer {token}"}
                return place.ask("POST", "/tool/add", b'{"a": 1, "b": 2}', **fields).status

            assert status(first.token(aud=place.base, scope=None)) == 200
            assert status(second.token(aud=place.base)) == 200
            assert status(second.token(aud=place.base, scope="agents:read")) == 403
            # a claim of another issuer, an unknown one and no token at all
            assert status(second.token(aud=place.base, iss=first.issuer)) == 401
            assert status(first.token(aud=place.base, iss="https://evil.example")) == 401
            assert status(first.token(aud="https://gw.example")) == 401
            assert status(first.token(aud=place.base, act={"sub": "a", "act": {"sub": "a"}})) == 401
            for token in ("x", "x.y.z", "." * 20_000, "e30.e30.e30", "e30.W10.e30"):
                assert status(token) in {400, 401}


# --- consents ---


def ask_for_note(town: ProgramTown, grant: Any, key: str, body: bytes = NOTE) -> Answer:
    return town.send(grant, "/note", body, idempotency_key=f'"{key}"')


def decide(town: ProgramTown, browser: Browser, url: str, decision: str, **fields: str) -> Answer:
    """Open the page of a question, and answer it with its form."""
    path = urlsplit(url).path
    page = browser.open(town.world.port, "GET", path).body.decode()
    forms = re.findall(r"<form.*?</form>", page, re.DOTALL)
    (form,) = [form for form in forms if f'value="{decision}"' in form]
    given = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form))
    return browser.open(town.world.port, "POST", path, given | fields, accept="application/json")


def test_attack_99_a_program_changes_nothing_without_the_consent_of_its_person(town: ProgramTown) -> None:
    grant, before = town.grant("kim"), len(town.calls)
    refused = ask_for_note(town, grant, "kim-1")
    assert (refused.status, refused.json()["code"]) == (403, "consent-required")
    url = refused.json()["page_url"]
    assert url.startswith(f"{town.world.base}/consents/~")
    assert len(town.calls) == before
    browser = Browser()
    assert browser.open(town.world.port, "GET", urlsplit(url).path).status == 401
    town.sign_in(browser, "kim")
    assert decide(town, browser, url, "allow").json() == {"decision": "allow"}
    assert ask_for_note(town, grant, "kim-1").body == b"milk"
    assert town.calls[-1].caller.subject == "subject-of-kim"
    # another token of the same program is as good, and no other program, proof or effects are
    assert ask_for_note(town, town.grant("kim"), "kim-2").status == 200
    for other in (town.grant("kim", "robot"), town.grant("kim", bound=False), town.grant("lea")):
        assert ask_for_note(town, other, "kim-3").json()["code"] == "consent-required"
    for resource, body in (("/close", b'{"account": "1"}'), ("/pay", b'{"amount": 1}')):
        more = town.send(grant, resource, body, idempotency_key=f'"kim-{resource}"')
        assert (more.status, more.json()["code"]) == (403, "approval-required")
    events = [line for line in town.world.lines() if line["event"] == "consent"]
    assert (events[-1]["decision"], events[-1]["client"]) == ("permit", "agent")
    assert not mentions(str(events), "kim")


def test_attack_99_a_consent_that_was_revoked_a_second_ago_covers_nothing(town: ProgramTown) -> None:
    grant, browser = town.grant("mia"), Browser()
    url = ask_for_note(town, grant, "mia-1").json()["page_url"]
    town.sign_in(browser, "mia")
    decide(town, browser, url, "allow")
    assert ask_for_note(town, grant, "mia-1").status == 200
    listed = browser.open(town.world.port, "GET", "/consents", accept="application/json").json()
    (given,) = listed["consents"]
    assert (given["scope"]["client"], given["scope"]["authority"]) == ("agent", town.world.authority)
    form = {"csrf_token": browser.token(town.world.port, "/consents"), "decision": "revoke"}
    path = f"/consents/{given['scope']['id']}"
    assert browser.open(town.world.port, "POST", path, form).headers["location"] == "/consents"
    refused = ask_for_note(town, grant, "mia-2")
    assert (refused.status, refused.json()["code"]) == (403, "consent-required")
    assert "No program may change" in browser.open(town.world.port, "GET", "/consents").body.decode()


def test_a_denial_is_final_until_the_person_changes_it(town: ProgramTown) -> None:
    grant, browser = town.grant("ned"), Browser()
    url = ask_for_note(town, grant, "ned-1").json()["page_url"]
    town.sign_in(browser, "ned")
    decide(town, browser, url, "deny")
    again = ask_for_note(town, grant, "ned-1")
    assert (again.status, again.json()["code"]) == (403, "consent-required")
    assert "denied" in again.json()["hint"]
    decide(town, browser, url, "allow")
    assert ask_for_note(town, grant, "ned-1").status == 200


def test_a_question_is_for_its_person_and_answered_by_the_form_of_this_browser(town: ProgramTown) -> None:
    grant, own, other = town.grant("oda"), Browser(), Browser()
    url = ask_for_note(town, grant, "oda-1").json()["page_url"]
    town.sign_in(own, "oda")
    town.sign_in(other, "pia")
    path = urlsplit(url).path
    # another person sees what they would see of a question that does not exist
    foreign, unknown = (
        other.open(town.world.port, "GET", where, accept="application/json")
        for where in (path, path[:-4] + "aaaa")
    )
    assert foreign.status == unknown.status == 404
    assert foreign.json()["detail"] == unknown.json()["detail"]
    token = own.token(town.world.port, path)
    form = {"csrf_token": token, "decision": "allow", "proof": "dpop"}
    for changed, headers in (
        ({"csrf_token": ""}, {}),
        ({"csrf_token": other.token(town.world.port)}, {}),
        ({}, {"sec_fetch_site": "cross-site"}),
        ({}, {"origin": "https://evil.example"}),
    ):
        forged = own.open(
            town.world.port, "POST", path, {**form, **changed}, accept="application/json", **headers
        )
        assert (forged.status, forged.json()["code"]) == (403, "forged")
    theirs = {**form, "csrf_token": other.token(town.world.port)}
    assert other.open(town.world.port, "POST", path, theirs).status == 404
    # a program that called again with a weaker proof has not been shown
    stale = own.open(
        town.world.port, "POST", path, {**form, "proof": "certificate"}, accept="application/json"
    )
    assert (stale.status, stale.json()["code"]) == (403, "consent-required")
    assert own.open(town.world.port, "POST", path, {**form, "decision": "x"}).status == 400
    # a token of the program is no session: it cannot answer for its person
    fields = town.fields(grant, "POST", path)
    assert town.world.at("POST", path, b"decision=allow", **fields).status == 401
    assert ask_for_note(town, grant, "oda-1").status == 403


def test_attack_100_a_program_is_shown_by_its_id_and_proof_and_not_by_its_own_words(
    town: ProgramTown,
) -> None:
    browser = Browser()
    town.sign_in(browser, "quy")
    pages = {}
    for bound in (True, False):
        grant = town.grant("quy", bound=bound)
        url = ask_for_note(town, grant, f"quy-{bound}").json()["page_url"]
        answer = browser.open(town.world.port, "GET", urlsplit(url).path)
        assert answer.status == 200
        pages[bound] = answer.body.decode()
        if grant.dpop_key is not None:
            assert grant.dpop_key.thumbprint in pages[bound]
    for page in pages.values():
        assert ">agent<" in page
        assert town.login.issuer in page
        # the name and the logo with which the program is registered
        assert "The bank itself" not in page
        assert "evil.example" not in page
        assert town.world.authority in page
        assert "It changes data" in page
        assert "90 days" in page
    assert "It proved that it has the key" in pages[True]
    assert "bound to no key" in pages[False]


# --- settings ---

_WORKS = '[[providers]]\nid = "works"\nissuer = "https://login.example"\nclient_id = "gateway"\n'
_TOKENS = '[[programs]]\nprovider = "works"\n'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (_TOKENS, "config.bad-setting"),
        (_WORKS + _TOKENS.replace("works", "other"), "config.bad-setting"),
        (_WORKS + _TOKENS + _TOKENS, "config.bad-setting"),
        (_WORKS + _TOKENS + "mtls = true", "config.missing-setting"),
        ('client_ca = "ca.pem"\n' + _WORKS + _TOKENS, "config.bad-setting"),
        (_WORKS + _TOKENS + 'dpop = "sometimes"', "config.bad-setting"),
        (_WORKS + _TOKENS + "scopes = ['a b']", "config.bad-setting"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "gateway.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_gateway_settings(tmp_path / "gateway.toml", environ={})
    assert caught.value.code == code


def test_settings_for_certificates_and_scopes_of_other_servers(tmp_path: Path) -> None:
    names = 'id = "bank"\nissuer = "https://as.example"\nclient_id = "gateway"\n'
    server = f'[[authorization_servers]]\n{names}scopes = ["pay"]'
    text = 'certificate_proxies = ["10.0.0.0/8"]\n' + _WORKS + _TOKENS + "mtls = true\n" + server
    (tmp_path / "gateway.toml").write_text(text, encoding="utf-8")
    settings = load_gateway_settings(tmp_path / "gateway.toml", environ={})
    assert settings.programs == (ProgramTable(provider="works", mtls=True),)
    assert settings.authorization_servers[0].scopes == ("pay",)


# --- the documentation ---

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "run-a-gateway.md").read_text(encoding="utf-8")
SETTINGS = re.findall(r"^```toml title=\"programs.toml\"\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TESTED = re.findall(
    r"<!-- tested: tests/server/gateway/test_programs.py -->\n```console\n(.*?)^```$",
    PAGE,
    re.MULTILINE | re.DOTALL,
)
(SHOWN,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_settings_of_the_documentation_are_accepted(tmp_path: Path) -> None:
    (text,) = SETTINGS
    (tmp_path / "programs.toml").write_text(text, encoding="utf-8")
    settings = load_gateway_settings(tmp_path / "programs.toml", environ={})
    assert settings.programs == (ProgramTable(provider="works", scopes=("use",)),)


def test_the_commands_of_the_documentation_work(town: ProgramTown) -> None:
    token = town.grant("sue", bound=False).token.reveal()
    replies = []
    for command in "".join(TESTED).splitlines():
        here = command.removeprefix("$ ").replace("https://gw.example", town.world.base)
        here = here.replace("/gateway/bank.example/", f"/gateway/{town.world.authority}/")
        environment = {"PATH": os.environ["PATH"], "TOKEN": token}
        done = subprocess.run(
            ["sh", "-c", here], env=environment, capture_output=True, timeout=300, check=True
        )
        replies.append(json.loads(done.stdout))
    metadata, balance, note = replies
    assert metadata["resource"] == town.world.base
    assert balance == {"of": "subject-of-sue", "by": "gateway"}
    shown = json.loads(SHOWN)
    assert {name: note[name] for name in shown} == {**shown, "page_url": note["page_url"]}
    assert note["page_url"].startswith(f"{town.world.base}/consents/~")
