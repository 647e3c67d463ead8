"""Reviews, approvals and long tasks at a gateway in a real browser, at two widths, in light and dark.

Each page is checked by axe-core, must not be wider than the window, and must stand texts that are 40 percent
longer. With ONYM_SCREENSHOTS=1 the pictures of docs/assets/approvals and docs/assets/tasks are drawn anew.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from approval_house_support import ApprovalHouse, approval_house
from browser_support import accessibility_findings, chromium, lengthen
from onym.ai.endpoint import Endpoint, Task, ThreadTask

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_DRAW = os.environ.get("ONYM_SCREENSHOTS")
_ASSETS = Path(__file__).parents[3] / "docs" / "assets"
#: those that the documentation shows, by page and folder
_SHOWN = {
    ("approvals.md", "approvals"): {
        "1-review-light",
        "2-decide-light",
        "2-decide-narrow-dark",
        "3-send-light",
    },
    ("long-tasks.md", "tasks"): {"1-progress-light", "1-progress-narrow-dark"},
}
_WIDE, _NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 780}
LOOKS = ["light", "narrow-dark"]
#: seconds that a task may wait for its test
_PATIENCE = 600
GO = threading.Event()

pytestmark = pytest.mark.xdist_group("gateway-work-browser")


@dataclass
class Zone:
    """The answer to a task's question."""

    zone: str


def add_resources(bank: Endpoint) -> None:
    @bank.resource("/sort", title="Sort crates", task=True)
    def sort(crates: int, task: ThreadTask) -> dict[str, int]:
        task.progress(26, crates, "crate 26")
        GO.wait(_PATIENCE)
        task.raise_if_cancelled()
        return {"sorted": crates}

    @bank.resource("/move", title="Move a crate", task=True)
    async def move(task: Task) -> str:
        answer = await task.ask(Zone, "Which zone?")
        return f"moved to {answer.zone}"

    @bank.resource("/break", title="Fail", task=True)
    async def fail(task: Task) -> str:
        task.progress(1, 2)
        await task.ask(Zone, "Shall it fail?")
        raise RuntimeError("a secret detail")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApprovalHouse]:
    with approval_house(tmp_path_factory.mktemp("work"), add_resources=add_resources) as found:
        GO.clear()
        yield found
        GO.set()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Windows:
    """Windows of one look, each with a profile of its own."""

    def __init__(self, browser: Browser, look: str, house: ApprovalHouse, folder: Path) -> None:
        self.look, self._browser, self._house, self._folder = look, browser, house, folder
        self._contexts: list[Any] = []

    def open(self, who: str = "", then: str = "/account") -> Page:
        """A window in which this person is signed in, if one is named."""
        context = self._browser.new_context(
            locale="en-GB",
            timezone_id="UTC",
            ignore_https_errors=True,  # the certificates are of the test's own authority
            viewport=_NARROW if "narrow" in self.look else _WIDE,  # type: ignore[arg-type]
            color_scheme="dark" if "dark" in self.look else "light",
        )
        self._contexts.append(context)
        context.set_default_timeout(300_000)
        page = context.new_page()
        if who:
            page.goto(f"{self._house.gateway}/auth/login/home?next={then}")
            page.locator("input[name=login]").fill(who)
            page.keyboard.press("Enter")
            page.wait_for_url(self._house.gateway + then)
        return page

    def look_at(self, page: Page, name: str, folder: str = "") -> None:
        """Check that nobody is shut out, also with longer words, and take a picture of the page as it is."""
        assert accessibility_findings(page) == []
        assert fits(page)
        full = f"{name}-{self.look}"
        shown = any(full in names for (_, where), names in _SHOWN.items() if where == folder)
        place = _ASSETS / folder if _DRAW and shown else self._folder
        place.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(place / f"{full}.png"), full_page=True)
        lengthen(page)
        assert fits(page)
        page.screenshot(path=str(self._folder / f"{full}-long.png"), full_page=True)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.fixture(params=LOOKS)
def windows(
    request: pytest.FixtureRequest, browser: Browser, house: ApprovalHouse, tmp_path: Path
) -> Iterator[Windows]:
    found = Windows(browser, request.param, house, tmp_path)
    yield found
    found.close()


def title(page: Page) -> str:
    return page.get_by_role("heading", level=1).inner_text()


def test_a_payment_is_asked_for_approved_and_sent(house: ApprovalHouse, windows: Windows) -> None:
    amount = 10 + LOOKS.index(windows.look)
    resource = f"/gateway/{house.bank}/pay"
    ann = windows.open(f"ann-{windows.look}", resource)
    ann.get_by_label("amount").fill(str(amount))
    ann.locator("[name=in1]").fill("Acme")
    ann.get_by_role("button", name="Invoke").click()
    ann.get_by_role("heading", name="Check this call").wait_for()
    windows.look_at(ann, "1-review", "approvals")
    ann.get_by_role("button", name="Send this call").click()
    ann.wait_for_url(re.compile("/approvals/"))
    assert title(ann) == "This call waits for an approval"
    windows.look_at(ann, "4-waiting", "approvals")
    link = ann.url
    # the page is loaded again until that is switched off, which the keyboard reaches first
    ann.get_by_role("link", name="Stop reloading").click()
    ann.get_by_role("link", name="Look again").wait_for()

    bob = windows.open("bob", "/approvals")
    windows.look_at(bob, "5-list", "approvals")
    bob.goto(link)
    assert title(bob) == "Approve this call?"
    windows.look_at(bob, "2-decide", "approvals")
    bob.reload()
    # neither answer is the default, and both have one size
    bob.keyboard.press("Enter")
    assert title(bob) == "Approve this call?"
    boxes = [bob.get_by_role("button", name=name, exact=True).bounding_box() for name in ("Approve", "Deny")]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert (boxes[0]["width"], boxes[0]["height"]) == (boxes[1]["width"], boxes[1]["height"])
    bob.get_by_role("button", name="Approve", exact=True).click()
    bob.get_by_role("heading", name="This call was approved").wait_for()
    windows.look_at(bob, "6-decided", "approvals")

    ann.goto(link)
    windows.look_at(ann, "3-send", "approvals")
    ann.reload()
    ann.get_by_role("button", name="Send the call").click()
    ann.wait_for_url(re.compile("/results/"))
    assert house.paid.count(amount) == 1
    windows.look_at(ann, "7-result", "approvals")
    ann.goto(f"{ann.url.partition('/results/')[0]}/results")
    windows.look_at(ann, "8-results", "approvals")
    ann.goto(link)
    assert title(ann) == "This call was approved and sent"
    ann.goto(f"{house.gateway}/approvals/{'x' * 24}")
    windows.look_at(ann, "8-unknown", "approvals")


def test_a_task_shows_its_progress_its_question_and_its_end(house: ApprovalHouse, windows: Windows) -> None:
    GO.clear()
    page = windows.open(f"tess-{windows.look}", f"/gateway/{house.bank}/sort")
    page.get_by_label("crates").fill("100")
    page.get_by_role("button", name="Invoke").click()
    page.get_by_text("26 of 100").wait_for()
    windows.look_at(page, "1-progress", "tasks")
    page.get_by_role("link", name="Stop reloading").click()
    page.get_by_role("link", name="Look again").wait_for()
    page.get_by_role("button", name="Cancel the task").click()
    page.get_by_text("asked the authority to cancel").wait_for()
    GO.set()
    reload_until(page, "It was cancelled")
    windows.look_at(page, "2-cancelled", "tasks")

    for resource, end in (("/move", "It has ended"), ("/break", "It has failed")):
        page.goto(f"{house.gateway}/gateway/{house.bank}{resource}")
        page.get_by_role("button", name="Invoke").click()
        reload_until(page, "It has a question")
        windows.look_at(page, f"3-question{resource.replace('/', '-')}", "tasks")
        page.reload()
        page.get_by_label("zone").fill("A3")
        page.get_by_role("button", name="Send the answer").click()
        reload_until(page, end)
        windows.look_at(page, f"4-end{resource.replace('/', '-')}", "tasks")
    assert "a secret detail" not in page.content()


def reload_until(page: Page, heading: str) -> None:
    """Load the page of a task again until it has this heading, sooner than it does by itself."""
    page.wait_for_url(re.compile("/tasks/status/"))
    while page.get_by_role("heading", name=heading).count() == 0:
        page.reload()


def test_pages_about_a_person_and_refusals(house: ApprovalHouse, windows: Windows) -> None:
    nobody = windows.open()
    for number, path in enumerate(("/", "/approvals", f"/gateway/{house.bank}/pay", "/auth/login")):
        nobody.goto(house.gateway + path)
        windows.look_at(nobody, f"1-nobody-{number}")
    long = "ai://V" + ".".join(["v" * 60] * 3) + ".example/agent/forklift"
    nobody.goto(house.gateway + "/")
    nobody.get_by_label("ai: URI").fill(long)
    nobody.get_by_role("button", name="Look it up").click()
    windows.look_at(nobody, "2-long-authority")
    nobody.get_by_role("link", name="Open it").click()
    windows.look_at(nobody, "3-unknown-authority")
    cat = windows.open("cat")
    for name in ("account", "connections", "consents", "approvals"):
        cat.goto(f"{house.gateway}/{name}")
        windows.look_at(cat, f"4-{name}")


def test_a_decision_is_in_reach_of_the_keyboard(
    house: ApprovalHouse, browser: Browser, tmp_path: Path
) -> None:
    windows = Windows(browser, "light", house, tmp_path)
    try:
        ann = windows.open("kay", f"/gateway/{house.bank}/pay")
        press_tab_to(ann, "in0")
        ann.keyboard.type("77")
        press_tab_to(ann, "Invoke")
        ann.keyboard.press("Enter")
        ann.get_by_role("heading", name="Check this call").wait_for()
        press_tab_to(ann, "Send this call")
        ann.keyboard.press("Enter")
        ann.wait_for_url(re.compile("/approvals/"))
        bob = windows.open("bob", "/approvals")
        bob.goto(ann.url)
        # the answer that changes nothing comes first
        assert press_tab_to(bob, "Deny").isdisjoint({"Approve"})
        press_tab_to(bob, "Approve")
        bob.keyboard.press("Space")
        bob.get_by_role("heading", name="This call was approved").wait_for()
    finally:
        windows.close()


def press_tab_to(page: Page, target: str) -> set[str]:
    """Press Tab until the element with this text or name has the focus; the texts on the way."""
    seen: set[str] = set()
    while True:
        page.keyboard.press("Tab")
        name = page.evaluate(
            "(e => e.localName === 'button' ? e.textContent.trim() : e.name || e.textContent.trim())"
            "(document.activeElement)"
        )
        if name == target:
            return seen
        seen.add(name)
        assert len(seen) < 60, seen


@pytest.mark.parametrize(("document", "folder"), sorted(_SHOWN))
def test_the_documentation_shows_every_picture_in_words_too(document: str, folder: str) -> None:
    text = (_ASSETS.parent / "how-to" / document).read_text("utf-8")
    shown = re.findall(rf"!\[([^\]]{{20,}})\]\(\.\./assets/{folder}/([a-z0-9-]+)\.png\)", text)
    names = _SHOWN[document, folder]
    assert {name for _, name in shown} == names
    pictures = list((_ASSETS / folder).iterdir())
    assert {picture.stem for picture in pictures} == names
    assert max(picture.stat().st_size for picture in pictures) < 150_000
