"""The servers of `registry_support` do what the tests that lean on them take for granted."""

from __future__ import annotations

import os
import smtplib
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import trustme

from model_support import ends
from registry_support import (
    OpenIDProvider,
    Postgres,
    SMTPServer,
    arun,
    openid_provider,
    postgres_server,
    run_app,
    smtp_server,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("real-servers")


def test_every_test_has_a_database_of_its_own(postgres: Postgres) -> None:
    with postgres.database() as one, postgres.database() as other:
        postgres.execute("CREATE TABLE t (a int)", one)
        with pytest.raises(psycopg.errors.UndefinedTable):
            postgres.execute("SELECT * FROM t", other)
    with pytest.raises(psycopg.OperationalError):
        postgres.execute("SELECT 1", one)


def test_a_database_may_be_the_copy_of_another(postgres: Postgres) -> None:
    with postgres.database() as first:
        postgres.execute("CREATE TABLE t (a int)", first)
        with postgres.database(template=first) as second:
            assert postgres.execute("SELECT count(*) FROM t", second) == [(0,)]


def test_postgresql_does_not_run_as_root(postgres: Postgres) -> None:
    assert Path(postgres.folder).stat().st_uid != 0


def test_over_tcp_the_password_counts(postgres: Postgres) -> None:
    url = postgres.url(tcp=True).replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(url.replace(postgres.password, "wrong")).close()


def test_only_a_durable_server_calls_fsync(postgres: Postgres) -> None:
    assert postgres.execute("SHOW fsync") == [("off",)]
    with postgres_server(durable=True) as server:
        assert server.execute("SHOW fsync") == [("on",)]
    assert not Path(server.folder).exists()


@pytest.mark.usefixtures("postgres")  # skips where PostgreSQL is not installed
def test_no_server_outlives_the_process_that_started_it() -> None:
    code = (
        "import os, signal; from pathlib import Path\n"
        "from registry_support import postgres_server\n"
        "with postgres_server() as server:\n"
        "    pid = Path(server.folder, 'data', 'postmaster.pid').read_text().split()[0]\n"
        "    print(pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    tests = str(Path(__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": tests},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == -9
    assert ends(int(run.stdout))


def test_the_store_url_is_a_fresh_place(store_url: str, postgres: Postgres) -> None:
    if not store_url.startswith("postgresql"):
        assert not Path(store_url).exists()
        assert Path(store_url).parent.is_dir()
        return
    database = urllib.parse.urlsplit(store_url).path[1:]
    found = postgres.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database)
    assert found == [(0,)]


def _send(server: SMTPServer, to: str = "ann@example.net", **options: Any) -> None:
    tls, login = options.get("tls"), options.get("login")
    with smtplib.SMTP(server.host, server.port, timeout=300) as client:
        if tls is not None:
            client.starttls(context=tls)
        if login is not None:
            client.login(*login)
        client.sendmail("registry@example.net", [to], "Subject: hello\r\n\r\nto you\r\n")


def test_mail_arrives(smtp: SMTPServer) -> None:
    _send(smtp)
    _send(smtp, "ben@example.net")
    (mail,) = smtp.wait_for(to="ben@example.net")
    assert (mail.sender, mail.message["subject"], mail.text) == ("registry@example.net", "hello", "to you\n")
    assert (mail.encrypted, mail.login) == (False, None)
    assert len(smtp.wait_for(2)) == 2


def test_mail_can_be_refused_for_now_or_for_one_address(smtp: SMTPServer) -> None:
    smtp.answers.append("451 busy")
    smtp.refused.add("nobody@example.net")
    with pytest.raises(smtplib.SMTPDataError, match="busy"):
        _send(smtp)
    with pytest.raises(smtplib.SMTPRecipientsRefused):
        _send(smtp, "nobody@example.net")
    _send(smtp)
    assert len(smtp.mails) == 1


def test_a_mail_server_may_ask_for_tls_and_a_login() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with smtp_server(login=("onym", "secret"), starttls=context) as server:
        with pytest.raises(smtplib.SMTPException):
            _send(server)
        with pytest.raises(smtplib.SMTPAuthenticationError):
            _send(server, tls=trusting, login=("onym", "wrong"))
        _send(server, tls=trusting, login=("onym", "secret"))
        (mail,) = server.wait_for()
    assert (mail.encrypted, mail.login) == (True, "onym")


def _authorization(provider: OpenIDProvider, **more: str) -> str:
    query = {
        "client_id": provider.client_id,
        "response_type": "code",
        "scope": "openid email profile",
        "redirect_uri": "http://127.0.0.1:4/back",
        "state": "s",
        "nonce": "n",
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
    }
    return f"{provider.issuer}/auth?{urllib.parse.urlencode({**query, **more})}"


def _returned(url: str) -> dict[str, str]:
    assert url.startswith("http://127.0.0.1:4/back?")
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))


@pytest.mark.peers
def test_any_user_signs_in_at_the_provider(openid: OpenIDProvider) -> None:
    back = _returned(openid.sign_in(_authorization(openid), "ann"))
    assert back["code"]
    assert (back["state"], back["iss"]) == ("s", openid.issuer)
    assert _returned(openid.sign_in(_authorization(openid, login_hint="ben"), ""))["code"]


@pytest.mark.peers
def test_the_provider_gives_a_token_for_the_code_and_the_verifier(openid: OpenIDProvider) -> None:
    code = _returned(openid.sign_in(_authorization(openid), "ann"))["code"]
    body = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": "http://127.0.0.1:4/back",
        "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    }
    from base64 import b64encode, urlsafe_b64decode

    basic = b64encode(f"{openid.client_id}:{openid.client_secret}".encode()).decode()
    request = urllib.request.Request(
        f"{openid.issuer}/token",
        data=urllib.parse.urlencode(body).encode(),
        headers={"Authorization": f"Basic {basic}"},
    )
    import json

    with urllib.request.urlopen(request, timeout=300) as reply:
        token = json.load(reply)["id_token"]
    claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["sub"] == openid.subject("ann")
    assert claims["email"] == openid.email("ann")
    assert claims["nonce"] == "n"
    assert claims["email_verified"] is True


@pytest.mark.peers
def test_the_provider_refuses_whom_it_should() -> None:
    with openid_provider(denied=["eve"]) as provider:
        assert _returned(provider.sign_in(_authorization(provider), "eve"))["error"] == "access_denied"


async def _greeting(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    body = b"<!doctype html><title>hello</title><body><script>document.body.append('run')</script>"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_app(_greeting) as url:
        yield url


def test_an_application_is_served_on_a_free_port(address: str) -> None:
    with urllib.request.urlopen(address, timeout=300) as reply:
        assert b"hello" in reply.read()


def test_an_application_that_cannot_start_says_so() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no database")

    with pytest.raises(AssertionError, match="did not start"), run_app(broken):
        pass


def test_chromium_opens_a_page_and_runs_its_scripts(page: Page, address: str) -> None:
    page.goto(address)
    assert page.title() == "hello"
    assert page.inner_text("body") == "run"


def test_coroutines_run_beside_the_browser(page: Page) -> None:
    async def answer() -> int:
        return 42

    async def failing() -> int:
        raise LookupError("no")

    assert arun(answer()) == 42
    with pytest.raises(LookupError):
        arun(failing())
