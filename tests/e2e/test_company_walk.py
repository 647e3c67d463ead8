"""A company's registry from an empty folder, as one page of the documentation says, in a real browser."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from browser_support import accessibility_findings
from registry_support import browser
from support import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]

pytestmark = pytest.mark.xdist_group("registry-walk")

PAGE = ROOT / "docs" / "how-to" / "company-registry.md"
PORT = "8012"
#: words of standards bodies
FOREIGN = re.compile(r"\b(?:IANA|IESG|IETF|RFC|Internet-Draft|Designated Expert)s?\b")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty folder, with the page's blocks done up to the service, which runs."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    from docgen.consoles import stage as make_stage
    from docgen.fences import fences

    with make_stage([PORT]) as made:
        for fence in fences(PAGE.read_text(encoding="utf-8")):
            if fence.verb == "file":
                made.write(fence.argument, fence.body)
            elif fence.verb == "run":
                made.run(fence.body, [])
            elif fence.verb == "serve":
                made.serve(fence.body, PORT)
                break
        yield made
    sys.modules.pop("docgen.consoles", None)


@contextmanager
def _open_page(browser: Browser, url: str, **look: Any) -> Iterator[Page]:
    context = browser.new_context(locale="en-GB", timezone_id="UTC", reduced_motion="reduce", **look)
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.goto(url)
    try:
        yield page
    finally:
        context.close()


def _sign_in(page: Page, login: str, password: str) -> None:
    page.get_by_role("link", name="Sign in").click()
    page.get_by_label("Login").fill(login)
    page.get_by_label("Password").fill(password)
    page.locator("#content").get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Sign out").wait_for()


def _act(page: Page, kind: str, **fields: str) -> None:
    """Open the action of an event, fill it in, and do it."""
    action = page.locator("details.action").filter(has=page.locator(f"input[name='kind'][value='{kind}']"))
    if action.get_attribute("open") is None:
        action.locator("summary").click()
    for name, value in fields.items():
        action.locator(f"[name='{name}']").fill(value)
    action.get_by_role("button").click()
    page.get_by_role("status").wait_for()


def _require_good_page(page: Page) -> None:
    """The page has no accessibility violation and no word of a standards body."""
    assert accessibility_findings(page) == [], page.url
    assert FOREIGN.findall(page.locator("body").inner_text()) == [], page.url


def test_a_company_reaches_its_first_entry_and_its_export(browser: Browser, stage: Any) -> None:
    url = f"http://127.0.0.1:{stage.ports[PORT]}/"
    passwords = {login: (stage.home / f"{login}.txt").read_text().strip() for login in ("ada", "rita")}
    with _open_page(browser, url) as page:
        assert page.get_by_role("heading", level=1).inner_text() == "Example AG names"
        _require_good_page(page)
        _sign_in(page, "ada", passwords["ada"])

        # a third account, in the browser
        page.get_by_role("link", name="Accounts").click()
        _require_good_page(page)
        page.locator("#add summary").click()
        page.get_by_label("Login").fill("otto")
        page.get_by_label("Name", exact=True).fill("Otto Example")
        page.get_by_role("button", name="Add the account").click()
        passwords["otto"] = page.locator("code.token").inner_text()
        _require_good_page(page)

    with _open_page(browser, url) as page:
        _sign_in(page, "otto", passwords["otto"])
        assert page.get_by_role("link", name="Accounts").count() == 0
        page.get_by_role("link", name="Register", exact=True).first.click()
        _require_good_page(page)
        page.locator("[name='field.name']").fill("billing")
        page.locator("[name='field.owner']").fill("Payments")
        page.get_by_role("button", name="Save as a draft request").click()
        page.wait_for_url("**/requests/*")
        request = page.url.partition("?")[0]
        _act(page, "submit")
        assert "the naming office" in page.locator("#content").inner_text()
        _require_good_page(page)

    with _open_page(browser, url) as page:
        _sign_in(page, "ada", passwords["ada"])
        page.goto(request)
        _act(page, "check-complete")

    with _open_page(browser, url, viewport={"width": 380, "height": 700}, color_scheme="dark") as page:
        _sign_in(page, "rita", passwords["rita"])
        page.get_by_role("link", name="Review queue").click()
        _require_good_page(page)
        page.goto(request)
        assert "Accept the name" in page.locator("#content").inner_text()
        _act(page, "approve", reason="The name is clear.")
        page.goto(f"{url}r/services/billing")
        assert "In use" in page.locator("#content").inner_text()
        _require_good_page(page)

    exported = stage.run("$ onym registry export --db names.db --format csv\n", [])
    assert "billing,Payments,,Registered" in exported.splitlines()
    verified = stage.run("$ onym registry verify --db names.db\n", [])
    assert "no errors" in verified
    stage.run("$ onym registry mirror public --db names.db > /dev/null\n", [])
    mirrored = stage.run("$ cat public/r/services/billing/index.html\n", [])
    assert "In use" in mirrored
    assert "IANA" not in mirrored
