"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from model_support import unavailable
from peer_install import npm_package

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["accessibility_findings", "chromium", "chromiums"]

#: milliseconds: how long a browser may take to start, and what a test expects to come about
PATIENCE = 300_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, headless. Within the block this thread has a running loop: see `arun`."""
    with chromiums(1) as (browser,):
        yield browser


@contextmanager
def chromiums(count: int) -> Iterator[list[Browser]]:
    """So many processes of Chromium, which share nothing."""
    from playwright.sync_api import expect, sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        unavailable("Chromium is not installed: apt-get install chromium")
    root = os.geteuid() == 0
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright, ExitStack() as stack:
        browsers = []
        for _ in range(count):
            browser = playwright.chromium.launch(
                executable_path=program,
                headless=True,
                timeout=PATIENCE,
                chromium_sandbox=not root,
                args=["--disable-dev-shm-usage", "--disable-gpu", *(["--no-sandbox"] if root else [])],
            )
            stack.callback(browser.close)
            browsers.append(browser)
        yield browsers


@cache
def _checker() -> str:
    """axe-core, which runs in the page."""
    return (npm_package(Path(__file__).parent / "axe") / "axe-core" / "axe.min.js").read_text("utf-8")


def accessibility_findings(
    page: Page, *, only: Sequence[str] = (), without: Sequence[str] = (), outside: str | None = None
) -> list[str]:
    """What axe-core finds on a page: its rules by id, with the elements. The page's scripts must be on.

    `only` are the rules that are tried, in place of all, and `without` are rules that are not. `outside` is a
    selector of what is not looked at.
    """
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(_checker())
    scope = {"include": [["html"]]} if outside is None else {"exclude": [[outside]]}
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if only:
        options["runOnly"] = list(only)
    if without:
        options["rules"] = {rule: {"enabled": False} for rule in without}
    found = page.evaluate("([scope, options]) => axe.run(scope, options)", [scope, options])
    return [f"{rule['id']}: {[node['html'] for node in rule['nodes']]}" for rule in found["violations"]]


def lengthen(page: Page) -> None:
    """Make every text 40 percent longer, as German is."""
    page.evaluate(
        """() => {
          const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          for (let node; (node = walk.nextNode());) {
            const words = node.data.trim().split(/\\s+/).filter(Boolean);
            node.data += ' ' + words.slice(0, Math.ceil(words.length * 0.4)).join(' ');
          }
        }"""
    )
