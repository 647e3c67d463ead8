"""A person allows a program to act, in a real browser, at two widths, in light and dark."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser_support import accessibility_findings, chromium, lengthen
from onym.ai.gateway.permissions import (
    QUESTION_SECONDS,
    ConsentQuestion,
    ConsentScope,
    ConsentStore,
    name_person,
)
from onym.ai.records import Effects
from onym.store import open_shared_store
from onym.uri.secret import Secret
from programs_support import ProgramTown, program_town

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: 200 characters, one of its labels in Cyrillic letters
LONG = (
    "xn--80ak6aa92e."
    + "-".join(["verwaltungsgesellschaft"] * 2)
    + "."
    + "a" * 60
    + "."
    + "b" * 60
    + ".example"
)
_WIDE, _NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 780}

pytestmark = pytest.mark.xdist_group("gateway-consent-browser")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramTown]:
    with program_town(tmp_path_factory.mktemp("consents")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(params=["light", "dark", "narrow-light", "narrow-dark"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    look: dict[str, Any] = {
        "viewport": _NARROW if "narrow" in request.param else _WIDE,
        "color_scheme": "dark" if "dark" in request.param else "light",
    }
    # the provider has a certificate of the test's own authority
    context = browser.new_context(locale="en-GB", timezone_id="UTC", ignore_https_errors=True, **look)
    context.set_default_timeout(300_000)
    opened = context.new_page()
    opened.name = request.param  # type: ignore[attr-defined]
    yield opened
    context.close()


def look_at(page: Page, name: str, folder: Path) -> None:
    """Check that nobody is shut out, that nothing is wider than the window, and take a picture."""
    assert accessibility_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=str(folder / f"{name}-{page.name}.png"), full_page=True)  # type: ignore[attr-defined]


def sign_in(page: Page, town: ProgramTown, who: str, then: str) -> None:
    page.goto(f"{town.world.base}/auth/login/home?next={then}")
    page.locator("input[name=login]").fill(who)
    page.keyboard.press("Enter")
    page.wait_for_url(town.world.base + then)


def test_a_person_allows_a_program_and_revokes_it(page: Page, town: ProgramTown, tmp_path: Path) -> None:
    who = f"ann-{page.name}"  # type: ignore[attr-defined]
    grant = town.grant(who)

    def call(key: str) -> Any:
        return town.send(grant, "/note", b'{"text": "milk"}', idempotency_key=f'"{who}-{key}"')

    url = call("1").json()["page_url"]
    page.goto(url)
    assert page.get_by_role("heading", level=1).inner_text() == "Sign in first"
    sign_in(page, town, who, url.removeprefix(town.world.base))
    assert page.get_by_role("heading", level=1).inner_text() == "Allow this program to act for you?"
    look_at(page, "1-question", tmp_path)
    # neither answer is the default, and both have one size
    page.keyboard.press("Enter")
    assert page.url == url
    allow, deny = (page.get_by_role("button", name=name, exact=True) for name in ("Allow", "Deny"))
    boxes = [button.bounding_box() for button in (allow, deny)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert (boxes[0]["width"], boxes[0]["height"]) == (boxes[1]["width"], boxes[1]["height"])
    assert page.locator("script").count() == 0
    allow.click()
    page.wait_for_url(f"{town.world.base}/consents")
    assert "agent" in page.locator("table").inner_text()
    look_at(page, "2-consents", tmp_path)
    assert call("1").status == 200
    page.get_by_role("button", name=re.compile("Revoke")).click()
    page.get_by_text("No program may change anything for you.").wait_for()
    assert call("2").status == 403


@pytest.mark.parametrize("page", ["light", "narrow-dark"], indirect=True)
def test_a_long_authority_and_long_words_fit(page: Page, town: ProgramTown, tmp_path: Path) -> None:
    who = f"bob-{page.name}"  # type: ignore[attr-defined]
    person = name_person(town.login.issuer, town.login.subject(who))
    now = time.time()
    scope = ConsentScope(
        client="https://programs.example/" + "c" * 200, authority=LONG, effects=Effects.WRITE, bound=False
    )
    asked = ConsentQuestion(
        scope=scope,
        target=f"ai://{LONG}/note",
        scopes=("balance",),
        proof="bearer",
        thumbprint=None,
        created=now,
        until=now + QUESTION_SECONDS,
    )

    async def put() -> None:
        store = open_shared_store(town.world.settings.store or Secret(""))
        try:
            consents = ConsentStore(store)
            await consents.ask(person, asked)
            other = ConsentScope(client="agent", authority=LONG, effects=Effects.WRITE, bound=True)
            await consents.allow(person, other, at=now)
        finally:
            await store.close()

    with ThreadPoolExecutor(1) as thread:  # this one has the loop of the browser
        thread.submit(lambda: asyncio.run(put())).result()
    sign_in(page, town, who, f"/consents/{scope.id}")
    text = page.locator("main").inner_text()
    assert LONG in text
    # both forms, and a warning that they differ
    assert "\u0430\u0440\u0440\u04cf\u0435" in text
    assert page.get_by_text("Warning:").count() >= 1
    look_at(page, "3-long", tmp_path)
    lengthen(page)
    look_at(page, "4-longer", tmp_path)
    page.goto(f"{town.world.base}/consents")
    lengthen(page)
    look_at(page, "5-list", tmp_path)


def test_a_consent_is_given_with_the_keyboard(browser: Browser, town: ProgramTown) -> None:
    grant = town.grant("kay")
    url = town.send(grant, "/note", b'{"text": "x"}', idempotency_key='"kay-1"').json()["page_url"]
    context = browser.new_context(viewport=_WIDE, ignore_https_errors=True)
    context.set_default_timeout(300_000)
    try:
        page = context.new_page()
        sign_in(page, town, "kay", url.removeprefix(town.world.base))
        seen: list[str] = []
        while "Allow" not in seen:
            page.keyboard.press("Tab")
            seen.append(page.evaluate("document.activeElement.textContent.trim()"))
            assert len(seen) < 40
        assert seen[-2:] == ["Deny", "Allow"]
        page.keyboard.press("Enter")
        page.wait_for_url(f"{town.world.base}/consents")
    finally:
        context.close()
