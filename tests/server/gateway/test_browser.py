"""The gateway in a real browser: a name is opened, invoked and verified, in light and dark, wide and narrow.

With ONYM_SCREENSHOTS=1 the pictures of docs/assets/gateway are drawn anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser_support import chromium
from gateway_support import World, world
from support import holds_a_token

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: read now, since no test sees such variables
_DRAW = os.environ.get("ONYM_SCREENSHOTS")
#: those that the documentation shows
_SHOWN = frozenset(
    {"2-typed-light", "3-resource-light", "4-result-light", "7-stream-dark", "3-resource-narrow"}
)
_PICTURES = Path(__file__).parents[3] / "docs" / "assets" / "gateway"

pytestmark = pytest.mark.xdist_group("gateway-browser")


@pytest.fixture(scope="module")
def town() -> Iterator[World]:
    with world() as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(params=["light", "dark", "narrow"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    look: dict[str, Any] = {
        "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
        "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
        "narrow": {"viewport": {"width": 380, "height": 800}, "color_scheme": "light"},
    }[request.param]
    # no script of ours is needed
    context = browser.new_context(java_script_enabled=False, locale="en-GB", timezone_id="UTC", **look)
    context.set_default_timeout(300_000)
    opened = context.new_page()
    opened.name = request.param  # type: ignore[attr-defined]
    yield opened
    context.close()


def picture(page: Page, name: str, folder: Path) -> None:
    full = f"{name}-{page.name}"  # type: ignore[attr-defined]
    shown = bool(_DRAW) and full in _SHOWN
    where = _PICTURES if shown else folder
    where.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(where / f"{full}.png"), full_page=not shown)


def fits(page: Page) -> bool:
    """Nothing is wider than the window. Measured by the page's own boxes, since scripts are off for it."""
    box = page.locator("body").bounding_box()
    size = page.viewport_size
    assert box is not None
    assert size is not None
    wide = [element.bounding_box() for element in page.locator("main *:visible").all()]
    return all(area is None or area["x"] + area["width"] <= size["width"] + 1 for area in [box, *wide])


@pytest.mark.requirement("ai-interop-b", "ai-agents-a")
def test_a_person_opens_a_name_invokes_it_and_takes_the_result_home(
    page: Page, town: World, tmp_path: Path
) -> None:
    page.goto(town.base + "/")
    picture(page, "1-home", tmp_path)
    page.get_by_label("ai: URI").fill(f"ai://{town.authority.upper()}/tool/greet")
    page.get_by_role("button", name="Look it up").click()
    assert "Is this the URI that you mean?" in page.locator("main").inner_text()
    picture(page, "2-typed", tmp_path)
    page.get_by_role("link", name="Open it").click()
    assert page.url == town.base + town.path("/tool/greet")
    assert page.get_by_role("heading", level=1).inner_text().startswith("Say hello")
    assert town.authority in page.locator("aside").inner_text()
    if page.name == "narrow":  # type: ignore[attr-defined]
        assert fits(page)
    picture(page, "3-resource", tmp_path)
    page.get_by_text("How it was verified").click()
    assert "The signature is valid" in page.locator("main").inner_text()

    page.get_by_label("name").fill("Ann")
    page.get_by_label("language").select_option(label="de")
    page.get_by_label("loud").check()
    page.get_by_role("button", name="Invoke").click()
    assert "GUTEN TAG, ANN!" in page.locator("#result").inner_text()
    assert "/results/" in page.url
    picture(page, "4-result", tmp_path)
    if page.name == "narrow":  # type: ignore[attr-defined]
        assert fits(page)
    saved = {}
    for label, name in (("byte for byte", "result"), ("The authority's receipt", "receipt.jwt")):
        with page.expect_download() as waiting:
            page.get_by_role("link", name=label).click()
        assert waiting.value.suggested_filename == name
        saved[name] = Path(waiting.value.path()).read_bytes()
    assert saved["result"] == b"GUTEN TAG, ANN!"
    assert saved["receipt.jwt"].count(b".") == 2
    # a second look is no second invocation
    before = len(town.endpoint.seen)
    page.reload()
    assert "GUTEN TAG" in page.locator("#result").inner_text()
    assert len(town.endpoint.seen) == before


def test_a_person_reads_what_a_stream_says_and_its_events_where_they_ask_for_them(
    page: Page, town: World, tmp_path: Path
) -> None:
    page.goto(town.base + town.path("/tool/tell"))
    page.get_by_role("button", name="Invoke").click()
    assert page.locator("#result").inner_text() == "Once upon a time."
    content = page.locator("section", has=page.locator("#content-title"))
    assert '"finish": "stop"' in content.inner_text()
    assert content.locator("li:visible").count() == 0
    picture(page, "7-stream", tmp_path)
    content.get_by_text("4 events").click()
    assert content.locator("li:visible").count() == 4
    assert not holds_a_token(content.inner_text())
    if page.name == "narrow":  # type: ignore[attr-defined]
        assert fits(page)


def test_a_person_sees_why_a_door_is_closed(page: Page, town: World, tmp_path: Path) -> None:
    page.goto(town.base + town.path("/agent/forklift"))
    assert "physical" in page.locator("main").inner_text()
    assert page.get_by_role("button", name="Invoke").count() == 0
    picture(page, "5-closed", tmp_path)
    page.goto(town.base + "/gateway/FACTORY.test/x")
    assert page.get_by_role("link", name="Open it").get_attribute("href")
    picture(page, "6-spelling", tmp_path)


def test_the_pages_can_be_used_by_the_keyboard_and_read_aloud(browser: Browser, town: World) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.goto(town.base + town.path("/tool/greet"))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a')]"
            ".filter(e => !(e.labels?.length || e.textContent.trim() || e.ariaLabel)).length"
        )
        assert unnamed == 0
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
    finally:
        context.close()


def test_a_page_of_the_gateway_can_fetch_nothing(browser: Browser, town: World) -> None:
    """35: even a script that came into one could not ask for another authority's results."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(town.base + "/")
        asked = "async path => { try { await fetch(path); return 'asked' } catch { return 'refused' } }"
        assert page.evaluate(asked, town.path("/tool/add")) == "refused"
    finally:
        context.close()


def test_the_documentation_shows_every_picture_in_words_too_and_they_are_not_heavy() -> None:
    page = _PICTURES.parents[1] / "how-to" / "run-a-gateway.md"
    shown = re.findall(r"!\[([^\]]{20,})\]\(\.\./assets/gateway/([a-z0-9-]+)\.png\)", page.read_text("utf-8"))
    assert sorted(name for _, name in shown) == sorted(_SHOWN)
    assert sorted(picture.stem for picture in _PICTURES.iterdir()) == sorted(_SHOWN)
    assert max(picture.stat().st_size for picture in _PICTURES.iterdir()) < 150_000
