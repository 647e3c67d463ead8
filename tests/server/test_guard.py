"""Forged writes, wrong hosts, large bodies, wrong tokens, headers, rates, the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onym.server.clients import TokenBuckets as Buckets
from onym.server.clients import make_address_key
from onym.server.middleware import CONTENT_SECURITY_POLICY
from onym.server.settings import RateLimit, RateLimits
from server_support import BASE, World, settings, world

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("guard")) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_cookies(request: pytest.FixtureRequest) -> None:
    if "site" in request.fixturenames:
        request.getfixturevalue("site").client.cookies.clear()


def signed_in(site: World) -> str:
    site.sign_in()
    return str(site.client.get("/who").json()["csrf"])


# forged writes


@pytest.mark.parametrize("source", ["cross-site", "same-site", "Same-Origin", ""])
def test_a_write_from_another_site_is_refused_even_with_the_token(site: World, source: str) -> None:
    token = signed_in(site)
    answer = site.client.post("/echo", data={"csrf_token": token}, headers={"sec-fetch-site": source})
    assert (answer.status_code, answer.json()["code"]) == (403, "http.forged")


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://registry.example.org", BASE + ":8443"]
)
def test_a_write_of_another_origin_is_refused_where_the_browser_says_no_more(
    site: World, origin: str
) -> None:
    token = signed_in(site)
    answer = site.client.post("/echo", data={"csrf_token": token}, headers={"origin": origin})
    assert (answer.status_code, answer.json()["code"]) == (403, "http.forged")


@pytest.mark.parametrize("headers", [{}, {"origin": BASE}, {"sec-fetch-site": "same-origin"}])
def test_the_form_of_our_own_page_is_taken(site: World, headers: dict[str, str]) -> None:
    token = signed_in(site)
    answer = site.client.post("/echo", data={"csrf_token": token, "a": "b"}, headers=headers)
    assert answer.status_code == 200
    assert answer.json()["form"]["a"] == "b"


def test_a_multipart_form_is_taken_with_its_token_and_its_file(site: World) -> None:
    token = signed_in(site)
    answer = site.client.post("/echo", data={"csrf_token": token}, files={"f": ("a.txt", b"text")})
    assert answer.status_code == 200


@pytest.mark.parametrize("token", [None, "", "x" * 43, "é", "\0"])
def test_a_form_without_its_token_is_refused(site: World, token: str | None) -> None:
    signed_in(site)
    data = {} if token is None else {"csrf_token": token}
    assert site.client.post("/echo", data={"a": "b", **data}).status_code == 403


def test_a_token_given_twice_is_none(site: World) -> None:
    token = signed_in(site)
    assert site.client.post("/echo", data={"csrf_token": [token, token]}).status_code == 403


def test_a_token_of_another_session_is_worth_nothing(site: World) -> None:
    stolen = signed_in(site)
    site.client.cookies.clear()
    assert signed_in(site) != stolen
    assert site.client.post("/echo", data={"csrf_token": stolen}).status_code == 403


def test_a_script_sends_the_token_in_a_header(site: World) -> None:
    token = signed_in(site)
    good = site.client.post("/echo", content=b"{}", headers={**JSON, "x-csrf-token": token})
    bad = site.client.post("/echo", content=b"{}", headers=JSON)
    plain = site.client.post("/echo", content=b"{}", headers={"content-type": "text/plain"})
    assert (good.status_code, bad.status_code, plain.status_code) == (200, 403, 403)


def test_nobodys_form_needs_the_token_of_the_page_that_it_is_from(site: World) -> None:
    assert site.client.post("/echo", data={"a": "b"}).status_code == 403
    token = site.csrf()
    assert site.client.post("/echo", data={"a": "b", "csrf_token": token}).status_code == 200
    site.client.cookies.clear()
    assert site.client.post("/echo", data={"a": "b", "csrf_token": token}).status_code == 403


def test_nobodys_json_has_no_authority_to_steal(site: World) -> None:
    assert site.client.post("/api/v1/echo", content=b"{}", headers=JSON).status_code == 200


def test_signing_in_from_another_site_is_refused(site: World) -> None:
    token = site.csrf()
    data = {"login": "alice", "password": "x", "csrf_token": token}
    assert site.client.post("/login", data=data, headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_a_program_with_a_token_sends_no_form_token(site: World) -> None:
    answer = site.client.post("/echo", data={"a": "b"}, headers=site.token("submit"))
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "body", [b"--x\r\n", b"", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n']
)
def test_a_broken_multipart_body_is_a_client_error(site: World, body: bytes) -> None:
    signed_in(site)
    for kind in ("multipart/form-data; boundary=x", "multipart/form-data"):
        assert site.client.post("/echo", content=body, headers={"content-type": kind}).status_code in {
            400,
            403,
        }


def test_too_many_fields_are_refused(site: World) -> None:
    token = signed_in(site)
    data = {"csrf_token": token, **{f"f{n}": "x" for n in range(300)}}
    assert site.client.post("/echo", data=data).status_code == 400


# tokens


def test_a_token_speaks_for_its_account_within_its_scopes(site: World) -> None:
    header = site.token("read", "review")
    found = site.client.get("/who", headers=header).json()
    assert (found["account"], found["via"], found["scopes"]) == ("user-alice", "token", ["read", "review"])
    assert site.client.get("/actor", headers=header).json() == {"id": "user-alice", "roles": ["expert"]}
    assert site.client.get("/experts", headers=header).status_code == 200


def test_a_token_without_the_scope_is_refused(site: World) -> None:
    answer = site.client.get("/experts", headers=site.token("read"))
    assert (answer.status_code, answer.json()["code"]) == (403, "accounts.missing-scope")


def test_a_role_that_the_account_lacks_is_not_made_by_a_scope(site: World) -> None:
    answer = site.client.get("/experts", headers=site.token("review", account="user-root"))
    assert (answer.status_code, answer.json()["code"]) == (403, "registry.wrong-role")


def test_administrators_hold_iana_everywhere_and_the_scope(site: World) -> None:
    assert (
        site.client.get("/administrators", headers=site.token("admin", account="user-root")).status_code
        == 200
    )
    assert (
        site.client.get("/administrators", headers=site.token("iana", account="user-root")).status_code == 403
    )
    assert site.client.get("/administrators", headers=site.token("admin")).status_code == 403


def test_whoever_is_signed_in_is_a_registrant(site: World) -> None:
    assert "registrant" in site.client.get("/actor", headers=site.token("submit")).json()["roles"]
    assert site.client.get("/actor").status_code == 401


def test_expired_revoked_and_closed_are_refused(site: World) -> None:
    from datetime import timedelta

    now = site.clock.now()
    expired = site.token("read", expires=now + timedelta(days=1))
    revoked = site.token("read")
    site.do(site.store.tokens.revoke, f"token-{len(site.tokens) - 1}", now)
    assert site.client.get("/who", headers=expired).status_code == 200
    site.clock.advance(days=1)
    for header in (expired, revoked):
        answer = site.client.get("/who", headers=header)
        assert (answer.status_code, answer.json()["code"]) == (401, "accounts.bad-token")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "value",
    [
        "Bearer",
        "Bearer x",
        "Basic YTpi",
        "Bearer onym_reg_" + "A" * 43,
        "onym_reg_" + "A" * 43,
        "",
        "Bearer \xe9",
    ],
)
def test_a_wrong_authorization_is_never_taken_for_nobody(site: World, value: str) -> None:
    answer = site.client.get("/who", headers={"authorization": value.encode("latin-1")})
    assert answer.status_code == 401


def test_two_authorizations_are_refused(site: World) -> None:
    header = site.token("read")["authorization"]
    answer = site.client.get("/who", headers=[("authorization", header), ("authorization", header)])
    assert answer.status_code == 401


def test_the_last_use_of_a_token_is_kept(site: World) -> None:
    header = site.token("read")
    site.client.get("/who", headers=header)
    used = site.do(site.store.tokens.list, "user-alice")[-1].last_used
    assert used == site.clock.now()


# intake


@pytest.mark.parametrize("host", ["evil.example", "registry.example.org:444", "registry.example.org.", ""])
def test_other_hosts_are_not_served(site: World, host: str) -> None:
    answer = site.client.get("/who", headers={"host": host})
    assert (answer.status_code, answer.json()["code"]) == (421, "http.wrong-host")
    assert "the URL of the service" in answer.json()["hint"]


def test_the_host_is_compared_without_case(site: World) -> None:
    assert site.client.get("/who", headers={"host": "REGISTRY.example.org"}).status_code == 200


def test_a_large_body_is_refused_by_its_length_and_as_it_comes(site: World) -> None:
    limit = site.settings.body_limit

    def chunks() -> Iterator[bytes]:
        for _ in range(limit // 65536 + 2):
            yield b"x" * 65536

    for body in (b"x" * (limit + 1), chunks()):
        answer = site.client.post("/api/v1/echo", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (413, "http.too-large")


def test_a_body_at_the_limit_is_taken(site: World) -> None:
    body = b"x" * site.settings.body_limit
    assert site.client.post("/api/v1/echo", content=body, headers=JSON).status_code == 200


def test_long_addresses_and_headers_are_refused(site: World) -> None:
    assert site.client.get("/who?" + "x" * 9000).status_code == 414
    assert site.client.get("/who", headers={"x-much": "x" * 70_000}).status_code == 413
    for length in ("-1", "1e9", "999999999999999999999"):
        answer = site.client.post("/api/v1/echo", headers={"content-length": length})
        assert answer.status_code == 413


# headers


def test_every_answer_has_the_security_headers(site: World) -> None:
    for path in ("/who", "/no/such", "/fail/bug", "/login"):
        headers = site.client.get(path).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert "unsafe" not in CONTENT_SECURITY_POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["strict-transport-security"].startswith("max-age=")
        assert len(headers["x-request-id"]) == 36


def test_what_somebody_sees_who_is_signed_in_is_not_kept(site: World) -> None:
    assert "cache-control" not in site.client.get("/who").headers
    answer = site.client.get("/who", headers=site.token("read"))
    assert answer.headers["cache-control"] == "no-store"
    assert "Cookie" in answer.headers["vary"]


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("203.0.113.9, 10.1.1.1", "203.0.113.9"),
        ("203.0.113.9, nonsense", "10.0.0.5"),
        ("2001:db8::1", "2001:db8::1"),
        ("", "10.0.0.5"),
        (",".join(["10.0.0.1"] * 100), "10.0.0.1"),
    ],
)
def test_the_address_comes_from_trusted_proxies_alone(tmp_path: Path, forwarded: str, address: str) -> None:
    with world(tmp_path, settings(trusted_proxies=("10.0.0.0/8",))) as site:
        headers = {"x-forwarded-for": forwarded}
        assert behind(site, "10.0.0.5", headers) == address
        assert behind(site, "192.0.2.1", headers) == "192.0.2.1"


def behind(site: World, peer: str, headers: dict[str, str]) -> Any:
    from starlette.testclient import TestClient

    with TestClient(site.app, base_url=BASE, client=(peer, 1)) as client:
        return client.get("/who", headers=headers).json()["address"]


# rates


def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    rates = RateLimits(reads=RateLimit(burst=3, per_minute=6))
    with world(tmp_path, settings(rates=rates)) as site:
        statuses = [site.client.get("/who").status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        answer = site.client.get("/who")
        assert (answer.headers["retry-after"], answer.json()["code"]) == ("10", "http.too-many-requests")
        # an account has a bucket of its own
        assert site.client.get("/who", headers=site.token("read")).status_code == 200
        site.clock.advance(seconds=10)
        assert [site.client.get("/who").status_code for _ in range(2)] == [200, 429]


def test_wrong_tokens_are_counted_by_address(tmp_path: Path) -> None:
    with world(tmp_path, settings(rates=RateLimits(reads=RateLimit(burst=2, per_minute=1)))) as site:
        wrong = {"authorization": "Bearer onym_reg_" + "A" * 43}
        assert [site.client.get("/who", headers=wrong).status_code for _ in range(3)] == [401, 401, 429]


def test_sign_ins_are_limited_by_address_and_by_login(tmp_path: Path) -> None:
    with world(tmp_path, settings(rates=RateLimits(logins=RateLimit(burst=2, per_minute=1)))) as site:
        assert [site.sign_in(password="wrong password!!").status_code for _ in range(3)] == [401, 401, 429]
        # the right password does not help now either
        assert site.sign_in().status_code == 429
        site.clock.advance(minutes=1)
        assert site.sign_in().status_code == 303


def test_buckets_stay_few() -> None:
    buckets = Buckets(RateLimits(reads=RateLimit(burst=1, per_minute=60)), lambda: 0.0, most=10)
    assert all(buckets.take_token("reads", str(n)) == 0 for n in range(100))
    assert len(buckets) == 10
    assert buckets.take_token("reads", "99") == 1.0


def test_a_bucket_fills_up_to_its_burst_and_no_further() -> None:
    now = [0.0]
    buckets = Buckets(RateLimits(writes=RateLimit(burst=2, per_minute=60)), lambda: now[0])
    assert [buckets.take_token("writes", "a") for _ in range(3)] == [0, 0, 1.0]
    now[0] = 1000
    assert [buckets.take_token("writes", "a") for _ in range(3)] == [0, 0, 1.0]


def test_neighbours_in_an_ipv6_network_share_a_bucket() -> None:
    assert (
        make_address_key("2001:db8::1")
        == make_address_key("2001:db8::2")
        != make_address_key("2001:db8:0:1::1")
    )
    assert make_address_key("192.0.2.1") != make_address_key("192.0.2.2")
    assert make_address_key(None) == make_address_key("")


def test_an_ipv4_address_on_a_socket_of_both_kinds_has_its_own_bucket() -> None:
    assert make_address_key("::ffff:192.0.2.1") == make_address_key("192.0.2.1")
    assert make_address_key("::ffff:192.0.2.1") != make_address_key("::ffff:192.0.2.2")


# audit


def test_every_write_of_somebody_is_in_the_audit_log(site: World) -> None:
    before = len(site.audit())
    header = site.token("submit")
    site.client.post("/named", headers=header)
    site.client.post("/fail/refusal", headers=header)
    site.client.get("/who", headers=header)
    lines = site.audit()[before:]
    assert [(line.account, line.action, line.subject, line.outcome) for line in lines] == [
        ("user-alice", "thing.done", "thing-1", "ok"),
        ("user-alice", "http.post", "/fail/refusal", "registry.not-allowed"),
    ]


def test_sign_ins_are_in_the_audit_log_with_login_and_account(site: World) -> None:
    before = len(site.audit())
    site.sign_in(password="wrong password!!")
    site.sign_in()
    lines = site.audit()[before:]
    assert [(line.account, line.action, line.subject, line.outcome) for line in lines] == [
        (None, "sign-in.password", "alice", "accounts.wrong-password"),
        ("user-alice", "sign-in.password", "alice", "ok"),
    ]


def test_strangers_do_not_fill_the_audit_log(site: World) -> None:
    before = len(site.audit())
    site.client.post("/api/v1/echo", content=b"{}", headers=JSON)
    site.client.post("/echo", data={"a": "b"})
    assert len(site.audit()) == before


def test_an_audit_log_that_cannot_be_written_takes_no_answer_away(
    site: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from onym.errors import StoreError

    async def broken(record: object) -> None:
        raise StoreError("disk full")

    header = site.token("submit")
    monkeypatch.setattr(site.store.audit, "write", broken)
    assert site.client.post("/named", headers=header).status_code == 200
    assert "no audit line" in caplog.text


# whatever comes


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    name=st.sampled_from(
        [
            "cookie",
            "authorization",
            "x-forwarded-for",
            "if-match",
            "if-none-match",
            "origin",
            "accept",
            "content-type",
            "sec-fetch-site",
            "x-csrf-token",
            "content-length",
        ]
    ),
    value=st.text(
        st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=200
    ),
    path=st.sampled_from(["/who", "/thing", "/login", "/list", "/account", "/login/oidc/x"]),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "TRACE", "BREW"]),
)
def test_no_header_makes_a_server_error(site: World, name: str, value: str, path: str, method: str) -> None:
    answer = site.client.request(method, path, headers={name: value.strip().encode("latin-1")})
    assert answer.status_code < 500


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(
    value=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80),
    cookie=st.sampled_from(["__Host-onym", "__Host-onym-form", "__Host-onym-flow"]),
)
def test_no_cookie_makes_a_server_error_or_a_visitor(site: World, cookie: str, value: str) -> None:
    for path in ("/who", "/login", "/login/oidc/none/callback"):
        answer = site.client.get(path, headers={"cookie": f"{cookie}={value}"})
        assert answer.status_code < 500
    assert site.client.get("/who", headers={"cookie": f"{cookie}={value}"}).json()["account"] is None
