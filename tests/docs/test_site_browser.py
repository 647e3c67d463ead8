"""The built site in a browser: wide and narrow, light and dark; what search finds; what is copied."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from docgen.paths import DOCS, ROOT

from browser_support import accessibility_findings, chromium
from support import as_subtests

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

#: one of each kind: landing page, recordings, sessions, wide tables, pictures, charts, a list of requirements
PAGES = (
    "",
    "how-to/handle-errors/",
    "the-uri/",
    "tutorials/publish-and-verify/",
    "how-to/local-models/",
    "reference/parameters/",
    "how-to/approvals/",
    "benchmarks/",
    "conformance/ai/",
)
#: what people type, and where the first result leads; those whose page is there
WORDS = {
    "install": "install",
    "tutorial": "tutorials/",
    "function calling": "how-to/tools-and-json",
    "structured output": "how-to/tools-and-json",
    "migrate": "how-to/migrate-from-",
    "proxy": "how-to/networks",
    "docker": "how-to/docker-ci",
    "redact": "how-to/redact-keys",
    "verify": "how-to/verify-a-result",
    "rate limit": "how-to/handle-errors",
    "quickstart": "#quick-start",
    "timeout": "how-to/handle-errors",
    "retry": "how-to/handle-errors",
    "api key": "how-to/keys-and-configuration",
    "error codes": "reference/errors",
    "json schema": "how-to/tools-and-json",
    "logging": "how-to/redact-keys",
    "telemetry": "how-to/telemetry",
    "gemini": "how-to/providers",
    "ollama": "how-to/local-models",
    "backup": "how-to/run-a-registry",
    "keyring": "how-to/keys-and-configuration",
    "stream": "cookbook",
    "batch": "how-to/batch",
    "cache": "how-to/cache",
    "cost": "how-to/telemetry",
    "exit code": "reference/exit-codes",
    "mcp": "how-to/mcp-and-a2a",
    "embeddings": "how-to/tools-and-json",
}
LAST = ("decisions/", "conformance/", "changelog/")
#: rows of a long table that are as those before, once all of them have been looked at
LATER_ROWS = "tbody tr:nth-child(n+9), li:nth-child(n+9)"
#: the rules of axe-core whose result depends on the theme
OF_COLOURS = ("color-contrast", "link-in-text-block")

#: words of a table that are broken across lines
BROKEN_WORDS = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll(".md-typeset :is(td, th)")) {
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) {
      const code = node.parentElement.closest("code") !== null;
      for (const word of node.data.matchAll(code ? /\\S+/g : /[\\p{L}\\p{N}]+/gu)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site as `make docs` builds it."""
    pytest.importorskip("zensical", reason="the docs group is not installed")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", folder)
    for command in (["-m", "zensical", "build", "--strict"], [str(DOCS / "tools" / "rank_search.py")]):
        subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True, timeout=600)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder / "site"))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def opened(browser: Browser, address: str, width: int = 1280, scheme: Any = "light") -> Page:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(300_000)
    page = context.new_page()
    page.goto(address)
    return page


@as_subtests("name", PAGES)
def test_a_page_fits_is_legible_and_accessible_on_each_screen_in_each_theme(
    name: str, site: str, browser: Browser
) -> None:
    """Every rule on a light phone and on a dark desktop; the other two differ from these in colours alone."""
    page = opened(browser, site + name, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(BROKEN_WORDS) == []
    assert accessibility_findings(page) == []
    switch_theme(page, "dark")
    assert accessibility_findings(page, outside=LATER_ROWS, only=OF_COLOURS) == []
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("document.querySelector('table.cards') === null")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert page.evaluate(BROKEN_WORDS) == []
    assert accessibility_findings(page, outside=LATER_ROWS) == []
    switch_theme(page, "light")
    assert accessibility_findings(page, outside=LATER_ROWS, only=OF_COLOURS) == []
    page.context.close()


def switch_theme(page: Page, theme: str) -> None:
    page.get_by_title(f"Switch to {theme} mode").click()
    scheme = {"dark": "slate", "light": "default"}[theme]
    page.wait_for_function(f"document.body.dataset.mdColorScheme === '{scheme}'")


def test_a_drawing_follows_the_theme_that_the_reader_chose(site: str, browser: Browser) -> None:
    page = opened(browser, site)
    drawing = page.locator("img.wide").first
    before = drawing.screenshot()
    switch_theme(page, "dark")
    after = drawing.screenshot()
    assert before != after
    style = page.evaluate(
        "(({colorScheme, backgroundColor}) => [colorScheme, backgroundColor])"
        "(getComputedStyle(document.querySelector('img.wide')))"
    )
    assert style == ["dark", "rgba(0, 0, 0, 0)"]
    page.context.close()


def test_a_recording_plays_once_for_readers_who_press_its_button(site: str, browser: Browser) -> None:
    from playwright.sync_api import expect

    page = opened(browser, f"{site}the-uri/")
    films = page.locator("img[src*='/terminal/']").all()
    for film in films:
        expect(film).to_have_attribute("src", re.compile("#still$"))
    last = last_screen(films[0])
    play = page.get_by_role("button", name="Play the recording")
    end = page.get_by_role("button", name="Show the last screen")
    play.click()
    for film in films:
        expect(film).to_have_attribute("src", re.compile(r"svg\?\d+$"))
    for _ in range(5):  # a busy machine may take the picture when the eleven seconds are over
        if last_screen(films[0]) != last:
            break
        end.click()
        play.click()
    else:
        pytest.fail("the recording does not play")
    end.click()
    assert last_screen(films[0]) == last
    page.goto(f"{site}assets/terminal/check.svg")
    assert page.evaluate("document.getAnimations().every((film) => film.effect.getTiming().iterations === 1)")
    page.context.close()


def last_screen(film: Locator) -> bytes:
    """What the picture shows once it is loaded."""
    film.evaluate("film => film.decode()")
    return film.screenshot()


def test_a_recording_stands_still_for_readers_who_want_less_motion(site: str, browser: Browser) -> None:
    for motion, still in (("no-preference", False), ("reduce", True)):
        page = browser.new_context(reduced_motion=motion).new_page()  # type: ignore[arg-type]
        page.set_default_timeout(300_000)
        page.goto(f"{site}assets/terminal/check.svg")
        assert (page.evaluate("document.getAnimations().length") == 0) is still
        page.goto(f"{site}assets/terminal/check.svg#still")
        assert page.evaluate("document.getAnimations().length") == 0
        page.context.close()


def test_a_recording_on_a_phone_has_letters_of_11_pixels_or_more(site: str, browser: Browser) -> None:
    page = opened(browser, f"{site}the-uri/", width=390)
    film = page.locator("img[src*='/terminal/']:visible")
    letters = float(
        re.findall(r"text\{font-size:([\d.]+)px", page.request.get(film.evaluate("film => film.src")).text())[
            0
        ]
    )
    assert letters * film.evaluate("film => film.width / film.naturalWidth") >= 11
    page.context.close()


def test_the_copy_button_takes_commands_without_prompts_and_output(site: str, browser: Browser) -> None:
    page = opened(browser, site + "how-to/local-models/")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    block = page.locator(".language-console", has_text="onym chat --policy local env:LLM_URI")
    block.scroll_into_view_if_needed()
    block.hover()
    block.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied to clipboard").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert [line for line in copied.splitlines() if line] == [
        "export LLM_URI='llm://localhost:11434/llama3?temp=0'",
        "onym chat env:LLM_URI 'The capital of France?'",
        "onym chat --policy local env:LLM_URI 'The capital of France?'",
    ]
    page.context.close()


def test_the_matrix_of_providers_can_be_filtered(site: str, browser: Browser) -> None:
    page = opened(browser, site + "reference/parameters/")
    field = page.get_by_role("searchbox", name="Filter providers or parameters")
    rows = page.locator("[data-filter] + * tbody tr:visible")
    whole = rows.count()
    field.fill("mistral random_seed")
    assert 0 < rows.count() < whole
    assert page.locator("[data-filter] output").text_content() == f"{rows.count()} of {whole}"
    field.fill("no such provider")
    assert rows.count() == 0
    page.context.close()


def test_search_finds_the_page_for_each_word_first_and_nothing_about_onym_among_three(
    site: str, browser: Browser
) -> None:
    from playwright.sync_api import expect

    page = opened(browser, site)
    page.get_by_role("button", name="Search").click()
    field, results = page.get_by_role("combobox", name="Search"), page.get_by_role("option")
    asked = {word: place for word, place in WORDS.items() if list(DOCS.glob(f"{place}*"))}
    assert len(asked) >= 7
    for word, place in asked.items():
        field.fill(word)
        expect(results.first).to_have_attribute("href", re.compile(f"^{re.escape(site + place)}"))
        first = [str(link.get_attribute("href")).removeprefix(site) for link in results.all()[:3]]
        assert not [address for address in first if address.startswith(LAST)], word
    field.fill("msgspec")
    expect(results.first).to_have_attribute("href", f"{site}decisions/0003-msgspec-at-the-edges/")
    page.context.close()
