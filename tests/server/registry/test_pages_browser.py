"""The registry's pages in a real browser: axe-core at two widths, in light and dark; focus and scrolling.

With ONYM_SCREENSHOTS=1 the pictures of docs/assets/registry-pages are drawn anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from browser_support import accessibility_findings
from e2e.walk import Person, draft, seed
from onym.registry.records import Actor, Event, EventKind, Role
from registry_support import Service, browser, registry_service
from support import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

pytestmark = pytest.mark.xdist_group("registry-pages-browser")

_DRAW = os.environ.get("ONYM_SCREENSHOTS")
_ASSETS = ROOT / "docs" / "assets" / "registry-pages"
BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)
MAIL = "https://mailarchive.ietf.org/arch/msg/uri-review/example"
WIDE, NARROW = 1280, 390
LOOKS = {
    "wide": (WIDE, False),
    "wide-dark": (WIDE, True),
    "narrow": (NARROW, False),
    "narrow-dark": (NARROW, True),
}
#: login -> pages; {label} is the id of that request
PAGES = {
    None: {
        "home": "/",
        "search": "/search?q=htpp",
        "search-nothing": "/search?q=xxxxxxxx",
        "list": "/r/uri-schemes",
        "list-status": "/r/uri-schemes?status=historical&sort=changed",
        "parameters": "/r/llm-parameters",
        "namespaces": "/r/ai-namespaces",
        "entry": "/r/uri-schemes/llm",
        "entry-imported": "/r/uri-schemes/http",
        "compare": "/r/uri-schemes/conti/compare",
        "requests": "/requests",
        "request": "/requests/{rejected}",
        "request-approved": "/requests/{approved}",
        "submit": "/submit",
        "submit-namespace": "/submit?registry=ai-namespaces",
        "help": "/help",
        "login": "/login",
        "error": "/r/uri-schemes/nothing-here",
    },
    "ann": {"account": "/account", "edit": "/requests/{draft}/edit", "change": "/r/uri-schemes/llm/change"},
    "expert": {"queue": "/queue/expert", "review": "/requests/{review}/review"},
    "iana": {
        "override": "/r/uri-schemes/http/change",
        "audit": "/audit",
        "redact": "/r/uri-schemes/-/redact",
    },
}
#: pages of readers that are English as a whole
_ENGLISH = frozenset({"submit", "submit-namespace", "help"})
#: the pictures that the documentation shows, and the looks of their pages
PICTURES = {
    "home": "wide",
    "search": "wide",
    "list": "wide",
    "list-narrow": "narrow",
    "entry": "wide",
    "compare": "wide",
    "request": "wide",
    "submit": "wide",
    "review": "wide-dark",
    "help": "wide",
}
#: what a picture of a page is about
_ABOUT = {"list-narrow": "#results"}
#: pictures that are higher than the window
_HEIGHTS = {"entry": 1400}
FIELDS = {
    "contact": "Ann Example <ann@example.net>",
    "change_controller": "Example Foundation <board@example.net>",
    "applications": "Tracking apps of carriers",
    "references": "[RFC3986], https://example.net/spec",
}


async def _fill(store: Any) -> dict[str, str]:
    """Shipped facts, people, and requests: approved, rejected, a draft, one under review with a long text."""
    await seed(store)
    roles = {"iana": Role.IANA, "expert": Role.EXPERT}
    at = datetime(2026, 1, 6, 9, tzinfo=UTC)
    ids: dict[str, str] = {}

    async def act(
        login: str, kind: EventKind, label: str = "", *, name: str | None = None, **data: Any
    ) -> None:
        nonlocal at
        at += timedelta(minutes=1)
        held = frozenset({Role.REGISTRANT, roles.get(login, Role.REGISTRANT)})
        event = Event(kind=kind, registry="uri-schemes", request=ids.get(label), name=name, data=data)
        applied = await store.apply(event, Actor(id=f"user-{login}", roles=held), at)
        if kind is EventKind.OPEN:
            ids[label] = applied.decision.request.id

    async def submit(label: str, name: str, template: str = "", **fields: str) -> None:
        nonlocal at
        said = {"status": "permanent", "fields": {**FIELDS, **fields}, "template": template}
        await act("ann", EventKind.OPEN, label, name=name, **said)
        await act("ann", EventKind.ANNOUNCE, label, archive=MAIL)
        at += timedelta(days=28)
        await act("ann", EventKind.SUBMIT, label)
        await act("iana", EventKind.CHECK_COMPLETE, label)

    use = "Programs that send requests to language models"
    await submit("approved", "llm", draft("llm"), applications=use, references="draft-levy-llm-uri-scheme-00")
    await act("expert", EventKind.APPROVE, "approved", reason="The name is free and the text is clear.")
    await submit("rejected", "parcel")
    await act("expert", EventKind.REJECT, "rejected", reason="The name is too general. Choose a longer one.")
    await act("ann", EventKind.OPEN, "draft", name="parcels", status="provisional", fields=FIELDS)
    long = draft("ai") + "\n" + "A long line of a long specification.\n" * 900
    await submit("review", "ai", long, applications="Agents and tools")
    why = {"reason": "The description was incomplete."}
    await act("iana", EventKind.OVERRIDE, name="conti", status="historical", **why)
    return ids


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, str]]]:
    ids: dict[str, str] = {}

    async def fill(store: Any) -> None:
        ids.update(await _fill(store))

    database = tmp_path_factory.mktemp("pages") / "registry.db"
    with registry_service(str(database), seed=fill) as running:
        running.now = BEGIN + timedelta(days=60)
        yield running, ids


def _open(browser: Browser, service: Service, login: str | None, look: str) -> Person:
    width, dark = LOOKS[look]
    person = Person.at(browser, service, login=login, dark=dark, width=width)
    person.page.set_viewport_size({"width": width, "height": 900})
    return person


#: pages of 400 rows, which axe-core tries once: a page with fewer of the same rows is tried in every look
_LONG = frozenset({"list"})
#: the rule of axe-core whose result depends on the theme
_CONTRAST = "color-contrast"


def _change_look(person: Person, look: str) -> None:
    """Show the page that is open in another theme and width."""
    width, dark = LOOKS[look]
    person.page.emulate_media(color_scheme="dark" if dark else "light")
    person.page.set_viewport_size({"width": width, "height": 900})


@pytest.mark.parametrize("login", PAGES, ids=str)
def test_axe_finds_nothing_on_any_page(
    browser: Browser, site: tuple[Service, dict[str, str]], login: str | None
) -> None:
    service, ids = site
    found: dict[str, object] = {}
    person = _open(browser, service, login, "wide")
    for name, path in PAGES[login].items():
        person.page.goto(service.url + path.format(**ids))
        for look, (most, dark) in LOOKS.items():
            _change_look(person, look)
            findings: list[str] = []
            if name not in _LONG or look == "wide":
                findings = accessibility_findings(person.page, only=[_CONTRAST] if dark else [])
            width = person.page.evaluate("document.documentElement.scrollWidth")
            if findings or width > most:
                found[f"{name}, {look}"] = (findings, width)
            _draw_picture(person, name, look)
    person.page.context.close()
    assert found == {}


def test_axe_finds_nothing_on_a_german_page(browser: Browser, site: tuple[Service, dict[str, str]]) -> None:
    service, ids = site
    person = _open(browser, service, None, "narrow")
    person.page.goto(f"{service.url}/language/de")
    found: dict[str, object] = {}
    for name, path in PAGES[None].items():
        person.page.goto(service.url + path.format(**ids))
        # the colours are those of the English page
        findings = accessibility_findings(person.page, without=[_CONTRAST])
        width = person.page.evaluate("document.documentElement.scrollWidth")
        language = person.page.evaluate("document.documentElement.lang")
        if findings or width > NARROW or language != ("en" if name in _ENGLISH else "de"):
            found[name] = (findings, width, language)
    person.page.context.close()
    assert found == {}


def _draw_picture(person: Person, name: str, look: str) -> None:
    shown = next((title for title in (name, f"{name}-narrow") if PICTURES.get(title) == look), "")
    if _DRAW and shown:
        if shown in _ABOUT:
            person.page.locator(_ABOUT[shown]).evaluate("element => element.scrollIntoView()")
        if shown in _HEIGHTS:
            person.page.set_viewport_size({"width": LOOKS[look][0], "height": _HEIGHTS[shown]})
        _ASSETS.mkdir(parents=True, exist_ok=True)
        person.page.screenshot(path=_ASSETS / f"{shown}.png", animations="disabled")
        person.page.set_viewport_size({"width": LOOKS[look][0], "height": 900})


def test_the_review_page_ends_where_its_content_ends(
    browser: Browser, site: tuple[Service, dict[str, str]]
) -> None:
    service, ids = site
    expert = _open(browser, service, "expert", "wide")
    expert.go(f"/requests/{ids['review']}/review")
    assert expert.page.locator(".source li").count() > 900
    page = expert.page.evaluate("document.documentElement.scrollHeight")
    foot = expert.page.locator(".foot").bounding_box()
    assert foot is not None
    assert page <= foot["y"] + foot["height"] + 1
    expert.page.context.close()


def test_an_error_of_saving_has_the_focus_in_its_field(
    browser: Browser, site: tuple[Service, dict[str, str]]
) -> None:
    service, _ = site
    ann = _open(browser, service, "ann", "wide")
    ann.go("/submit?registry=ai-namespaces")
    given = {**FIELDS, "name": "robots", "description": "Robots", "anchor": "http://robots.example"}
    for name in ("name", "anchor", "description", "contact", "change_controller"):
        ann.page.locator(f"[name='field.{name}']").fill(given[name])
    ann.page.get_by_role("button", name="Save as a draft request").click()
    field = ann.page.locator("#f-anchor")
    ann.page.locator("#save-error").wait_for()
    assert field.evaluate("element => element === document.activeElement")
    assert field.get_attribute("aria-invalid") == "true"
    described = str(field.get_attribute("aria-describedby")).split()
    assert "origin" in ann.page.locator(f"#{described[0]}").inner_text()
    assert accessibility_findings(ann.page) == []
    ann.page.context.close()


def test_a_hundred_schemes_fit_into_nine_thousand_pixels_of_a_telephone(
    browser: Browser, site: tuple[Service, dict[str, str]]
) -> None:
    service, _ = site
    reader = _open(browser, service, None, "narrow")
    reader.go("/r/uri-schemes")
    rows = reader.page.locator("table.entries tbody tr")
    shown = rows.count()
    assert shown > 400
    height = reader.page.evaluate("document.documentElement.scrollHeight")
    assert height / shown * 100 < 9_000
    name = rows.first.locator(".c-name").bounding_box()
    status = rows.first.locator(".c-status").bounding_box()
    assert name is not None
    assert status is not None
    # name and status share the first line of a card
    assert abs(name["y"] - status["y"]) < 12
    reader.page.context.close()


def test_letters_lead_to_their_first_name_and_typing_filters(
    browser: Browser, site: tuple[Service, dict[str, str]]
) -> None:
    service, _ = site
    reader = _open(browser, service, None, "wide")
    reader.go("/r/uri-schemes")
    reader.page.locator(".letters a[href='#letter-t']").click()
    assert reader.page.locator("#letter-t").evaluate("row => row.getBoundingClientRect().top") < 100
    reader.page.locator("#q").fill("mailt")
    reader.page.locator("#shown").filter(has_text="“mailt”").wait_for()
    assert reader.page.locator("table.entries tbody tr").count() == 1
    reader.page.context.close()
