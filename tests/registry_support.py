"""Real servers for the registry's tests, started by the tests on free ports in temporary folders.

PostgreSQL and Chromium come from Debian's packages, the OpenID provider from npm, aiosmtpd and uvicorn run
in threads. Whatever becomes of the test process, nothing stays behind (`guard.py`). Where a part is not
installed the test is skipped and says so; in CI it fails. `from registry_support import postgres, ...` in a
conftest registers the fixtures; each server is one per process, so workers do not share.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default as mail_policy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from model_support import unavailable
from peer_install import node, npm_package
from postgres_support import Postgres, free_port, postgres_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = [
    "OpenIDProvider",
    "Postgres",
    "SMTPServer",
    "SentMail",
    "Service",
    "arun",
    "browser",
    "chromium",
    "free_port",
    "openid",
    "openid_provider",
    "page",
    "postgres",
    "postgres_server",
    "postgres_url",
    "registry_service",
    "run_app",
    "smtp",
    "smtp_server",
    "store_url",
]

_HERE = Path(__file__).parent
_Result = TypeVar("_Result")


def arun(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work` in a loop of its own in another thread: this one may have Playwright's loop."""
    results: list[_Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name="arun")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


# mail -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SentMail:
    """One message that the server took."""

    sender: str
    recipients: tuple[str, ...]
    message: EmailMessage
    #: was the connection encrypted; who signed in
    encrypted: bool
    login: str | None

    @property
    def text(self) -> str:
        """The plain-text part, its lines ended as Python ends them."""
        part = self.message.get_body(("plain",))
        assert part is not None
        return str(part.get_content()).replace("\r\n", "\n")


@dataclass
class SMTPServer:
    """A running server. `answers` holds replies to come to DATA, such as "451 busy"; then all is taken."""

    port: int = 0
    host: str = "127.0.0.1"
    mails: list[SentMail] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    #: addresses that RCPT TO refuses
    refused: set[str] = field(default_factory=set)
    _arrived: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def wait_for(self, count: int = 1, *, to: str | None = None, timeout: float = 20.0) -> list[SentMail]:
        """The mails (`to` that address), once there are so many. Fails after `timeout` seconds."""

        def found() -> list[SentMail]:
            return [mail for mail in self.mails if to is None or to in mail.recipients]

        with self._arrived:
            assert self._arrived.wait_for(lambda: len(found()) >= count, timeout), (
                f"{len(found())} of {count} mails came"
            )
        return found()

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - the same
        if self.answers:
            return self.answers.pop(0)
        message = BytesParser(policy=mail_policy).parsebytes(envelope.content)
        assert isinstance(message, EmailMessage)
        login = session.auth_data if isinstance(session.auth_data, str) else None
        mail = SentMail(envelope.mail_from, tuple(envelope.rcpt_tos), message, session.ssl is not None, login)
        with self._arrived:
            self.mails.append(mail)
            self._arrived.notify_all()
        return "250 taken"


@contextmanager
def smtp_server(
    *, login: tuple[str, str] | None = None, starttls: ssl.SSLContext | None = None
) -> Iterator[SMTPServer]:
    """A real SMTP server. With `login` it takes mail from that user alone, with `starttls` only encrypted."""
    from aiosmtpd.smtp import SMTP, AuthResult

    inbox = SMTPServer()

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        given = (data.login.decode(), data.password.decode())
        if given != login:
            # not handled: the answer to a refusal is left to aiosmtpd
            return AuthResult(success=False, handled=False)
        return AuthResult(success=True, auth_data=given[0])

    def protocol() -> SMTP:
        return SMTP(
            inbox,
            hostname="smtp.example",
            enable_SMTPUTF8=True,
            authenticator=authenticate,
            auth_required=login is not None,
            auth_require_tls=starttls is not None,
            tls_context=starttls,
            require_starttls=starttls is not None,
        )

    with _loop_thread("smtp") as submit:

        async def listen() -> asyncio.Server:
            return await asyncio.get_running_loop().create_server(protocol, inbox.host, 0)

        async def close(server: asyncio.Server) -> None:
            server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        server = submit(listen())
        inbox.port = server.sockets[0].getsockname()[1]
        try:
            yield inbox
        finally:
            submit(close(server))


@contextmanager
def _loop_thread(name: str) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A loop that runs in a thread; what is yielded runs a coroutine there and returns its result."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(timeout=30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=30)
        loop.close()


# OpenID provider --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenIDProvider:
    """A running provider: any login signs in, and `subject` and `email` say what it tells about one."""

    issuer: str
    client_id: str
    client_secret: str

    def subject(self, login: str) -> str:
        """The `sub` claim of that user."""
        return f"subject-of-{login}"

    def email(self, login: str) -> str:
        """The `email` claim of that user."""
        return f"{login}@example.net"

    def sign_in(self, authorization_url: str, login: str) -> str:
        """Walk from the authorization request to the redirect back, as a browser does; that URL."""
        import http.cookiejar
        import urllib.error
        import urllib.request

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        opener = urllib.request.build_opener(Stay, jar, urllib.request.ProxyHandler({}))
        url, body = authorization_url, None
        for _ in range(10):
            try:
                with opener.open(urllib.request.Request(url, data=body), timeout=20):  # the form
                    body = urllib.parse.urlencode({"login": login}).encode()
                    continue
            except urllib.error.HTTPError as error:
                with error:
                    said = f"{error.code}: {error.read(2000).decode(errors='replace')}"
                    location = error.headers.get("Location")
            if not location:
                pytest.fail(said)
            url, body = urllib.parse.urljoin(url, location), None
            if not url.startswith(f"{self.issuer}/"):
                return url
        pytest.fail("the provider never came back")


@contextmanager
def openid_provider(
    *,
    algorithm: str = "RS256",
    auth_method: str = "client_secret_basic",
    id_token_seconds: int = 600,
    denied: Sequence[str] = (),
    unverified: Sequence[str] = (),
) -> Iterator[OpenIDProvider]:
    """A provider with one client. The logins in `denied` get access_denied; PKCE is required of all."""
    client = {"client_id": "onym-registry", "client_secret": secrets.token_urlsafe(24)}
    settings = {
        **client,
        "algorithm": algorithm,
        "auth_method": auth_method,
        "id_token_seconds": id_token_seconds,
        "denied": list(denied),
        "unverified": list(unverified),
    }
    source = _HERE / "oidc"
    modules, runtime = npm_package(source), node()
    process = subprocess.Popen(
        # it ends with its standard input, so with this process whatever becomes of it
        [runtime.program, str(source / "provider.mjs"), str(modules)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", ""), "ONYM_TEST_OIDC": json.dumps(settings)},
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"the OpenID provider did not start: {process.communicate(timeout=20)[1][-2000:]}")
        yield OpenIDProvider(json.loads(line)["issuer"], **client)
    finally:
        process.communicate(timeout=30)


# a browser --------------------------------------------------------------------------------------------


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, headless. Within the block this thread has a running loop: see `arun`."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        unavailable("Chromium is not installed: apt-get install chromium")
    root = os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            headless=True,
            chromium_sandbox=not root,
            args=["--disable-dev-shm-usage", "--disable-gpu", *(["--no-sandbox"] if root else [])],
        )
        try:
            yield browser
        finally:
            browser.close()


# our own application ----------------------------------------------------------------------------------


@contextmanager
def run_app(app: Any, **options: Any) -> Iterator[str]:
    """Serve an ASGI application with uvicorn in a thread, on a free port; its base URL, without a slash."""
    import uvicorn

    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", **options)
    server, ready = uvicorn.Server(config), threading.Event()
    begin = server.startup

    async def startup(sockets: list[socket.socket] | None = None) -> None:
        await begin(sockets)
        ready.set()

    server.startup = startup  # type: ignore[method-assign]
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            server.run([listener])
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)
        finally:
            ready.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, name="uvicorn", daemon=True)
        thread.start()
        try:
            assert ready.wait(timeout=60), "uvicorn did not start"
            assert server.started, f"the application did not start: {failures}"
            scheme = "https" if config.is_ssl else "http"
            yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=60)
    assert not failures, failures


@dataclass
class Service:
    """The registry's own service, running. `now` is its clock, to be moved; None is the true time."""

    url: str
    now: datetime | None = None
    _submit: Callable[[Coroutine[Any, Any, Any]], Any] = field(default=lambda work: None, repr=False)
    _store: Any = field(default=None, repr=False)

    def clock(self) -> datetime:
        """The time as the service sees it."""
        return self.now or datetime.now(UTC)

    def ask(self, work: Callable[[Any], Coroutine[Any, Any, _Result]]) -> _Result:
        """`work(store)` in the service's own loop; its result."""
        result: _Result = self._submit(work(self._store))
        return result


@contextmanager
def registry_service(
    database: str, *, seed: Callable[[Any], Coroutine[Any, Any, Any]] | None = None, **settings: Any
) -> Iterator[Service]:
    """`onym registry serve` in a thread, on a free port, over a database that is made if it is not there.

    `seed(store)` fills it before the first request. `settings` are fields of `onym.server.Settings`.
    """
    from onym.registry.store import Store
    from onym.server.app import create_app
    from onym.server.run import serve
    from onym.server.settings import load_settings

    with socket.create_server(("127.0.0.1", 0)) as listener, _loop_thread("registry") as submit:
        service = Service(f"http://127.0.0.1:{listener.getsockname()[1]}", _submit=submit)
        ready = threading.Event()
        chosen = load_settings(environ={}, database=database, base_url=service.url, **settings)

        async def begin() -> tuple[asyncio.Task[None], asyncio.Event]:
            service._store = await Store.open(database, create=True)
            if seed is not None:
                await seed(service._store)
            stop = asyncio.Event()
            app = create_app(chosen, service._store, clock=service.clock)
            running = serve(chosen, app=app, sockets=[listener], ready=lambda _: ready.set(), stop=stop)
            task = asyncio.create_task(running)
            task.add_done_callback(lambda _: ready.set())
            return task, stop

        async def end(task: asyncio.Task[None], stop: asyncio.Event) -> None:
            stop.set()
            try:
                await task
            finally:
                await service._store.close()

        task, stop = submit(begin())
        try:
            assert ready.wait(timeout=60), "the service did not start"
            yield service
        finally:
            submit(end(task, stop))


# fixtures ---------------------------------------------------------------------------------------------

_shared = ExitStack()
atexit.register(_shared.close)


@cache
def _shared_postgres() -> Postgres:
    return _shared.enter_context(postgres_server())


@cache
def _shared_openid() -> OpenIDProvider:
    return _shared.enter_context(openid_provider())


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    """PostgreSQL, one server for all tests of this process."""
    return _shared_postgres()


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """SQLAlchemy's URL of a fresh, empty database in PostgreSQL."""
    with postgres.database() as name:
        yield postgres.url(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be made: a SQLite file that is not there yet, then an empty PostgreSQL database."""
    if request.param == "sqlite":
        return str(tmp_path / "registry.sqlite3")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def smtp() -> Iterator[SMTPServer]:
    """A mail server that takes everything."""
    with smtp_server() as server:
        yield server


@pytest.fixture(scope="session")
def openid() -> OpenIDProvider:
    """An OpenID provider, one for all tests of this process."""
    return _shared_openid()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium. While it is there, run coroutines by `arun`, in another thread."""
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a profile of its own. A script's error fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", timezone_id="UTC")
    context.set_default_timeout(20_000)
    faults: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: faults.append(str(error)))
    try:
        yield opened
    finally:
        context.close()
    assert faults == []
