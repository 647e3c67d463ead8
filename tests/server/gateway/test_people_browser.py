"""People at a gateway in a real browser: sign-in, sessions and sign-out, at two widths, in light and dark.

With ONYM_SCREENSHOTS=1 the pictures of docs/assets/sign-in are drawn anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser_support import accessibility_findings, chromium
from people_support import ACR, People, people

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_DRAW = os.environ.get("ONYM_SCREENSHOTS")
#: those that the documentation shows
_SHOWN = frozenset({"1-choose-light", "3-account-light", "3-account-narrow-dark"})
_PICTURES = Path(__file__).parents[3] / "docs" / "assets" / "sign-in"
_WIDE, _NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 780}

pytestmark = pytest.mark.xdist_group("gateway-people-browser")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    folder = tmp_path_factory.mktemp("browser")
    # a title as long as a German one
    more = [{"id": "partners", "title": "Lieferantenverwaltungsgesellschaft und Partner der Werke"}]
    with people(folder, more=more) as found:
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
    context = browser.new_context(locale="en-GB", timezone_id="UTC", **look)
    context.set_default_timeout(300_000)
    opened = context.new_page()
    opened.name = request.param  # type: ignore[attr-defined]
    yield opened
    context.close()


def look_at(page: Page, name: str, folder: Path) -> None:
    """Check that nobody is shut out, that nothing is wider than the window, and take a picture."""
    assert accessibility_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    full = f"{name}-{page.name}"  # type: ignore[attr-defined]
    where = _PICTURES if _DRAW and full in _SHOWN else folder
    where.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(where / f"{full}.png"), full_page=True)


def test_a_person_signs_in_sees_their_sessions_and_signs_out(
    page: Page, town: People, tmp_path: Path
) -> None:
    base = town.towns[0].base
    page.goto(f"{base}/account")
    assert page.get_by_role("heading", level=1).inner_text() == "Sign in first"
    look_at(page, "0-first", tmp_path)
    page.get_by_role("link", name="Sign in").click()
    look_at(page, "1-choose", tmp_path)
    page.get_by_role("link", name="The works").click()
    page.get_by_label("Login").fill("ann")
    page.get_by_role("button", name="Sign in").click()
    assert page.url == f"{base}/account"
    assert "Ann Example" in page.locator("main").inner_text()
    assert "this browser" in page.locator("table").inner_text()
    look_at(page, "3-account", tmp_path)
    # signing out leads through the provider's own page, and back
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Yes, sign me out").click()
    assert page.url == f"{base}/auth/signed-out"
    look_at(page, "4-signed-out", tmp_path)
    page.goto(f"{base}/account")
    assert page.get_by_role("heading", level=1).inner_text() == "Sign in first"


def test_a_person_is_told_why_a_step_up_failed(page: Page, town: People, tmp_path: Path) -> None:
    base = town.towns[0].base
    page.goto(f"{base}/auth/login/real?next=/account")
    page.get_by_label("Login").fill("bob")
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"{base}/auth/step-up?acr_values={ACR[1]}&next=/account")
    page.get_by_label("Login").fill("bob")
    page.get_by_role("button", name="Sign in").click()
    assert "the kind of sign-in that is required" in page.locator("main").inner_text()
    look_at(page, "5-step-up", tmp_path)
    page.goto(f"{base}/auth/callback/real?state=x&code=y")
    assert page.get_by_role("heading", level=1).inner_text() == "Sign-in failed"
    look_at(page, "6-failed", tmp_path)


def test_everything_is_in_reach_of_the_keyboard(browser: Browser, town: People) -> None:
    context = browser.new_context(viewport=_WIDE)
    context.set_default_timeout(300_000)
    try:
        page = context.new_page()
        base = town.towns[0].base
        page.goto(f"{base}/auth/login?next=/account")
        while page.evaluate("document.activeElement.textContent.trim()") != "Sign in with The works":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_label("Login").wait_for()
        page.keyboard.type("kay")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{base}/account")
        seen = []
        while "End all sessions" not in seen:
            page.keyboard.press("Tab")
            seen.append(page.evaluate("document.activeElement.textContent.trim()"))
            assert len(seen) < 40
        assert "Sign out" in seen
        page.keyboard.press("Enter")
        page.wait_for_url(f"{base}/auth/signed-out")
    finally:
        context.close()


def test_the_documentation_shows_every_picture_in_words_too_and_they_are_not_heavy() -> None:
    page = _PICTURES.parents[1] / "how-to" / "sign-in.md"
    shown = re.findall(r"!\[([^\]]{20,})\]\(\.\./assets/sign-in/([a-z0-9-]+)\.png\)", page.read_text("utf-8"))
    assert sorted(name for _, name in shown) == sorted(_SHOWN)
    assert sorted(picture.stem for picture in _PICTURES.iterdir()) == sorted(_SHOWN)
    assert max(picture.stat().st_size for picture in _PICTURES.iterdir()) < 150_000
