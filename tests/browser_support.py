"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from model_support import unavailable

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["chromium"]


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
