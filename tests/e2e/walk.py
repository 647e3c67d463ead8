"""People who use the registry's pages in a real browser: what they read, fill in and press."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onym.accounts import records, sign_in
from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import Actor, Entry, Role, Status
from onym.registry.registries import REGISTRIES
from onym.uri.secret import Secret
from support import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from registry_support import Service

__all__ = ["FIELDS_OF_2006", "PEOPLE", "PICTURES", "Person", "draft", "fetch", "seed"]

_DRAFTS = {"llm": "draft-levy-llm-uri-scheme-00.txt", "ai": "draft-sogomonian-ai-uri-scheme-01.txt"}
_PASSWORD = "a passphrase of four words"
#: login -> name and role; whoever has an account is a registrant
PEOPLE = {
    "ann": ("Ann Example", None),
    "iana": ("Ivo Example", Role.IANA),
    "expert": ("Eda Example", Role.EXPERT),
    "iesg": ("Ida Example", Role.IESG),
}
#: set, the pictures of the documentation are drawn anew; read now, since no test sees such variables
_DRAW = os.environ.get("ONYM_SCREENSHOTS")
#: the pictures that the documentation shows
PICTURES = (
    "llm-rfc7595-1-check",
    "llm-rfc7595-2-list-review",
    "llm-rfc7595-3-pending",
    "llm-rfc7595-4-review",
    "llm-rfc7595-5-entry",
    "ai-rfc4395-1-check",
    "ai-rfc4395-3-status",
    "ai-rfc4395-5-entry",
    "conti-override",
    "conti-removed",
    "llm-parameters-entry",
    "ai-namespaces-entry",
    "dark",
    "narrow",
)
#: what RFC 4395 5.4 wants in the template and RFC 7595 7.4 in the specification
FIELDS_OF_2006 = {
    "syntax": "see the section Syntax of the specification; it is a subset of absolute-URI",
    "semantics": "it names an endpoint; the operation is to send a request there and read the answer",
    "encoding": "UTF-8, percent-encoded as in RFC 3986",
    "interoperability": "implementations may know more parameters than the ones that are registered",
    "security": "secrets in URIs, malicious URIs and privacy: see the specification",
}


def draft(name: str) -> str:
    """The draft that defines a scheme; where it is not beside the checkout, our copy of its template."""
    shared = ROOT.parent / "shared" / "spec" / _DRAFTS[name]
    own = Path(__file__).parent / "registry" / f"{name}.txt"
    text = (shared if shared.is_file() else own).read_text(encoding="utf-8")
    # nobody's own mail address goes into a picture
    return re.sub(r"<[^<>@\s]+@[^<>@\s]+>|(?<=Email: )\S+", "<author@example.net>", text)


async def seed(store: Any) -> None:
    """Four accounts, the shipped facts, and `conti`, which IANA's registry had until 2022."""
    begin = datetime(2026, 1, 5, 9, tzinfo=UTC)
    hashed = sign_in.hash_password(Secret(_PASSWORD))
    for login, (name, role) in PEOPLE.items():
        roles = {} if role is None else {records.ALL_REALMS: frozenset({role})}
        account = records.Account(
            id=f"user-{login}",
            login=login,
            name=name,
            email=f"{login}@example.net",
            password_hash=hashed,
            roles=roles,
            created=begin,
        )
        await store.accounts.add(account)
    clerk = Actor(id="user-iana", roles=frozenset({Role.IANA}))
    for registry in REGISTRIES:
        facts = load_builtin_snapshot(registry)
        await store.import_entries(registry, facts.entries, clerk, begin, source="shipped facts")
    conti = Entry(
        registry="uri-schemes",
        name="conti",
        status=Status.PROVISIONAL,
        fields={"description": "conti", "reference": "[Oliver_Example]"},
    )
    await store.import_entries("uri-schemes", [conti], clerk, begin, source="2022-11-18")


def _session(service: Service, login: str) -> str:
    """A session of theirs, as signing in makes one: that way is walked where a session has run out."""
    secret, at = records.make_session_id(), service.clock()
    session = records.Session(
        digest=records.hash_secret(secret),
        account=f"user-{login}",
        created=at,
        expires=at + timedelta(hours=12),
        seen=at,
    )
    service.ask(lambda store: store.sessions.create(session))
    return secret.reveal()


@dataclass
class Person:
    """Somebody at a browser of their own."""

    page: Page
    url: str

    @classmethod
    def at(
        cls,
        browser: Browser,
        service: Service,
        *,
        login: str | None,
        dark: bool = False,
        width: int = 1280,
    ) -> Person:
        """Somebody who is signed in, or just reads."""
        context = browser.new_context(
            viewport={"width": width, "height": 700},
            locale="en-GB",
            timezone_id="UTC",
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(300_000)
        if login is not None:
            context.add_cookies([{"name": "onym", "value": _session(service, login), "url": service.url}])
        return cls(context.new_page(), service.url)

    def sign_in(self, login: str) -> None:
        """Through the form."""
        self.go("/login")
        self.page.get_by_label("Login").fill(login)
        self.page.get_by_label("Password").fill(_PASSWORD)
        self.page.locator("#content").get_by_role("button", name="Sign in").click()
        self.page.get_by_role("button", name="Sign out").wait_for()

    def go(self, path: str) -> None:
        """Open a page, which must be there."""
        answer = self.page.goto(self.url + path)
        assert answer is not None
        assert answer.status == 200, f"{path}: {answer.status}"

    @property
    def text(self) -> str:
        """What the page says."""
        return self.page.locator("#content").inner_text()

    def picture(self, name: str, *, of: str = "body", block: str = "start") -> None:
        """A screenshot for the documentation, if pictures are asked for.

        `of` is what it is about, and `block` where that stands: at its start, center or end.
        """
        self.page.evaluate("document.activeElement.blur()")
        # whoever leaves a field has it checked
        self.page.locator(".htmx-request").first.wait_for(state="detached")
        self.page.locator(of).last.evaluate("(element, block) => element.scrollIntoView({block})", block)
        if _DRAW and name in PICTURES:
            folder = ROOT / "docs" / "assets" / "registry"
            folder.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=folder / f"{name}.png", animations="disabled")

    def propose(
        self, registry: str, *, template: str = "", choices: Mapping[str, str], fields: Mapping[str, str]
    ) -> None:
        """Fill the form of a registration; the report beside it follows."""
        self.go(f"/submit?registry={registry}")
        for label, value in choices.items():
            self.page.get_by_label(label, exact=True).select_option(value)
        for selector, value in {"#template": template, **_select_fields(fields)}.items():
            field = self.page.locator(selector)
            field.fill(value)
            field.blur()
            # leaving a field has the form checked; a visitor's checks that run together are limited
            self.page.locator(".htmx-request").first.wait_for(state="detached")
        self.page.locator("#report .verdict").filter(has_text="rror").wait_for()

    def save(self) -> str:
        """Save what was proposed; the id of the request."""
        self.page.get_by_role("button", name="Save as a draft request").click()
        from playwright.sync_api import TimeoutError as PlaywrightTimeout  # late: not everybody has it

        try:
            self.page.wait_for_url("**/requests/*")
        except PlaywrightTimeout as error:
            raise AssertionError(f"it was not saved: {self.text}") from error
        return self.page.url.partition("?")[0].rpartition("/")[2]

    def fill(self, label: str, **fields: str) -> Locator:
        """Open an action and fill it."""
        action = self.page.locator("details.action").filter(
            has=self.page.locator("summary").get_by_text(label, exact=True)
        )
        if action.get_attribute("open") is None:
            action.locator("summary").click()
        for name, value in fields.items():
            control = action.locator(f"[name='{name}']")
            if control.evaluate("element => element.tagName") == "SELECT":
                control.select_option(value)
            else:
                control.fill(value)
        return action

    def press(self, label: str, **fields: str) -> None:
        """Fill an action and do it; the page must say that it was done."""
        self.fill(label, **fields).get_by_role("button", name=label, exact=True).click()
        self.page.get_by_role("status").wait_for()


def fetch(url: str, *, accept: str = "application/json") -> tuple[int, Any]:
    """Status and body of an address, as a program sees it."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=300) as reply:
            body = reply.read()
            return reply.status, json.loads(body) if accept == "application/json" else body.decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def _select_fields(fields: Mapping[str, str]) -> dict[str, str]:
    return {f"[name='field.{name}']": value for name, value in fields.items()}
