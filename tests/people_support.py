"""People at a gateway: browsers with cookies, and gateways with a provider and a store that they share."""

from __future__ import annotations

import http.client
import http.cookiejar
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from ai_support import PATIENCE
from gateway_support import Answer, World, world
from onym.server.settings import IssuerTable
from onym.sign.sealing import rotate_secrets
from onym.uri.secret import Secret
from openid_support import OpenIDProvider, openid_provider

__all__ = ["ACR", "Browser", "People", "people", "provider_table"]

#: the classes of authentication of the provider, the stronger one last
ACR = ("urn:test:pwd", "urn:test:mfa")


@dataclass
class Browser:
    """A browser at one or more gateways of one host: it keeps their cookies, and those of the provider."""

    cookies: dict[str, str] = field(default_factory=dict)
    at_provider: http.cookiejar.CookieJar = field(default_factory=http.cookiejar.CookieJar)

    def open(
        self, port: int, method: str, path: str, form: Mapping[str, str] | None = None, **headers: str
    ) -> Answer:
        """One request, which follows no redirect. It asks for a page unless `accept` says otherwise."""
        given = {"accept": "text/html", "sec-fetch-site": "same-origin"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        body = None
        if form is not None:
            body = urlencode(form)
            given.setdefault("content-type", "application/x-www-form-urlencoded")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {name: value for name, value in given.items() if value})
            reply = connection.getresponse()
            fields = [(name.lower(), value) for name, value in reply.getheaders()]
            answer = Answer(reply.status, dict(fields), reply.read(), fields)
        finally:
            connection.close()
        for name, value in fields:
            if name == "set-cookie":
                self._keep(value)
        return answer

    def _keep(self, text: str) -> None:
        pair, *attributes = text.split(";")
        name, _, value = pair.partition("=")
        if "max-age=0" in {attribute.strip().lower() for attribute in attributes}:
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value

    def token(self, port: int, path: str = "/account") -> str:
        """The form token of a page."""
        page = self.open(port, "GET", path).body.decode()
        return re.findall(r'name="csrf_token" value="([^"]+)"', page)[0]


@dataclass
class People:
    """Gateways that share a store, and their provider."""

    towns: list[World]
    provider: OpenIDProvider
    folder: Path

    @property
    def ports(self) -> list[int]:
        return [town.port for town in self.towns]

    @property
    def store(self) -> Path:
        return self.folder / "shared.sqlite"

    def begin(self, browser: Browser, path: str = "/auth/login/real", *, at: int = 0) -> str:
        """Begin a sign-in or a step-up; the URL at the provider."""
        answer = browser.open(self.ports[at], "GET", path)
        assert answer.status == 303, answer.body
        return answer.headers["location"]

    def come_back(self, browser: Browser, url: str, **headers: str) -> Answer:
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return browser.open(int(parts.port or 0), "GET", target, **headers)

    def sign_in(
        self, browser: Browser, login: str = "ann", *, acr: str = "", at: int = 0, target: str = "/account"
    ) -> Answer:
        """A whole sign-in; the answer to the callback."""
        url = self.begin(browser, f"/auth/login/real?{urlencode({'next': target})}", at=at)
        back = self.provider.sign_in(url, login, acr=acr, jar=browser.at_provider)
        answer = self.come_back(browser, back)
        assert answer.status == 303, answer.body
        return answer

    def account(self, browser: Browser, *, at: int = 0) -> Answer:
        return browser.open(self.ports[at], "GET", "/account", accept="application/json")

    def events(self, kind: str, *, at: int = 0) -> list[dict[str, Any]]:
        """The audit records of this kind."""
        return [line for line in self.towns[at].lines() if line["event"] == kind]


def provider_table(provider: OpenIDProvider, **changes: Any) -> IssuerTable:
    given: dict[str, Any] = {
        "id": "real",
        "title": "The works",
        "issuer": provider.issuer,
        "client_id": provider.client_id,
        "client_secret": Secret(provider.client_secret),
        "network": "local",
        "acr_values": (),
        # without it the provider does not say when a person authenticated
        "max_age": 3600,
    }
    return IssuerTable(**{**given, **changes})


@contextmanager
def people(
    folder: Path,
    *,
    gateways: int = 1,
    table: Mapping[str, Any] | None = None,
    op: Mapping[str, Any] | None = None,
    more: Sequence[Mapping[str, Any]] = (),
    **changes: Any,
) -> Iterator[People]:
    """Gateways that share a store and a provider, which sends its logout tokens to the first one.

    `more` are settings of further entries for the same provider.
    """
    rotate_secrets(folder / "secrets")
    towns: list[World] = []
    providers: list[OpenIDProvider] = []
    with ExitStack() as stack:

        def prepare(base: str) -> Mapping[str, Any]:
            if not providers:
                given = {
                    "acr_values": ACR,
                    "logout_uri": f"{base}/auth/logout/real",
                    "jwks_uri": f"{base}/.well-known/jwks.json",
                    **(op or {}),
                }
                providers.append(stack.enter_context(openid_provider(**given)))
            return {
                "providers": tuple(provider_table(providers[0], **entry) for entry in (table or {}, *more)),
                "store": Secret(str(folder / "shared.sqlite")),
                "secrets": str(folder / "secrets"),
                **changes,
            }

        towns.extend(stack.enter_context(world(prepare=prepare)) for _ in range(gateways))
        yield People(towns=towns, provider=providers[0], folder=folder)


def members(answer: Answer) -> Any:
    return json.loads(answer.body)
