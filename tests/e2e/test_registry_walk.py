"""The registry in a real browser: schemes from their drafts' templates to publication, under both profiles.

With ONYM_SCREENSHOTS=1 the pictures of docs/assets/registry are drawn anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.walk import FIELDS_OF_2006, Person, draft, fetch, seed
from onym.registry.store import Store
from registry_support import Service, arun, browser, registry_service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

pytestmark = pytest.mark.xdist_group("registry-walk")

MAIL = "https://mailarchive.ietf.org/arch/msg/uri-review/example"
#: neither draft has expired then
BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)
#: what is asked for under each procedure, and what the entry then is
ASKED = {"rfc7595": ("permanent", "Permanent"), "rfc4395": ("provisional", "Provisional")}

Meet = Callable[..., Person]


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the accounts and the shipped facts, made once and copied for each test."""
    path = tmp_path_factory.mktemp("seeded") / "registry.db"

    async def make() -> None:
        async with await Store.open(path, create=True) as store:
            await seed(store)

    arun(make())
    return path


@pytest.fixture
def service(seeded: Path, tmp_path: Path) -> Iterator[Service]:
    database = tmp_path / "registry.db"
    shutil.copy(seeded, database)
    with registry_service(str(database)) as running:
        running.now = BEGIN
        yield running


@pytest.fixture
def meet(browser: Browser, service: Service) -> Iterator[Meet]:
    """A browser for each person, with their account."""
    people: list[Person] = []

    def make(login: str | None = None, **look: Any) -> Person:
        people.append(Person.at(browser, service, login=login, **look))
        return people[-1]

    yield make
    for person in people:
        person.page.context.close()


def _later(service: Service, **span: float) -> None:
    assert service.now is not None
    service.now += timedelta(**span)


@pytest.mark.parametrize("profile", ASKED)
@pytest.mark.parametrize("name", ["llm", "ai"])
def test_a_scheme_goes_from_its_draft_to_publication(
    meet: Meet, service: Service, name: str, profile: str
) -> None:
    asked, published = ASKED[profile]
    shots = f"{name}-{profile}"
    ann = meet("ann")
    ann.propose(
        "uri-schemes",
        template=draft(name),
        choices={"Procedure": profile, "Requested status": asked},
        fields={},
    )
    ann.picture(f"{shots}-1-check")
    if profile == "rfc4395":
        # the drafts fill the template of RFC 7595: the other five fields are asked for
        for field, value in FIELDS_OF_2006.items():
            ann.page.locator(f"[name='field.{field}']").fill(value)
    request = ann.save()
    assert "Draft" in ann.text

    ann.press("Announce for list review", archive=MAIL)
    assert "Mailing list review" in ann.text
    ann.picture(f"{shots}-2-list-review")
    _later(service, days=28)
    # a session does not last that long unused
    ann.sign_in("ann")
    ann.go(f"/requests/{request}")
    ann.press("Submit to IANA")
    assert "Submitted to IANA" in ann.text

    clerk = meet("iana")
    clerk.go("/queue/iana")
    assert request in clerk.text
    clerk.go(f"/requests/{request}")
    clerk.press("Accept and send to the expert")
    assert "the Designated Expert" in clerk.text
    clerk.picture(f"{shots}-3-status")
    entry = f"{service.url}/api/v1/registries/uri-schemes/entries/{name}"
    if profile == "rfc7595":
        assert fetch(entry)[0] == 200
        clerk.go(f"/r/uri-schemes/{name}")
        assert "Pending Review" in clerk.text
        clerk.picture(f"{shots}-3-pending")
    else:
        assert fetch(entry)[0] == 404

    expert = meet("expert")
    expert.go("/queue/expert")
    expert.page.get_by_role("link", name=request).first.click()
    expert.go(f"/requests/{request}/review")
    assert "Check report" in expert.text
    expert.picture(f"{shots}-4-review")
    expert.press(f"Approve and register as {asked}", reason="The name is free, the template is complete.")

    anyone = meet()
    anyone.go(f"/r/uri-schemes/{name}")
    assert published in anyone.text
    assert "The name is free" in anyone.text
    of = {"rfc7595": "#history", "rfc4395": "body"}[profile]
    anyone.picture(f"{shots}-5-entry", of=of, block="start" if of == "body" else "center")
    anyone.go(f"/search?q={name}")
    assert anyone.page.get_by_role("link", name=name, exact=True).first.is_visible()
    anyone.go(f"/requests/{request}")
    assert "Approved" in anyone.text
    service.ask(lambda store: store.verify())


def test_a_rejected_scheme_is_appealed_and_becomes_permanent(meet: Meet, service: Service) -> None:
    """RFC 8126 10: the registrant appeals to the IESG, and the request is checked again."""
    ann = meet("ann")
    choices = {"Procedure": "rfc7595", "Requested status": "permanent"}
    ann.propose("uri-schemes", template=draft("llm"), choices=choices, fields={})
    request = ann.save()
    ann.press("Announce for list review", archive=MAIL)
    _later(service, days=28)
    ann, clerk, expert, iesg = (meet(login) for login in ("ann", "iana", "expert", "iesg"))
    ann.go(f"/requests/{request}")
    ann.press("Submit to IANA")

    def decide() -> None:
        clerk.go(f"/requests/{request}")
        clerk.press("Accept and send to the expert")
        expert.go(f"/requests/{request}")

    decide()
    expert.press("Reject the request", reason="A scheme for one kind of client is not needed.")
    ann.go(f"/requests/{request}")
    assert "Rejected" in ann.text
    ann.press("Appeal to the IESG", reason="The expert overlooked the uses in section 1.")
    assert "Under appeal" in ann.text
    iesg.go(f"/requests/{request}")
    assert "The expert overlooked" in iesg.text
    iesg.press("Uphold the appeal", reason="The uses are real. Review the request again.")
    decide()
    expert.press("Approve and register as permanent", reason="The IESG has answered the question of need.")
    anyone = meet()
    anyone.go("/r/uri-schemes/llm")
    assert "Permanent" in anyone.text
    anyone.go(f"/requests/{request}")
    assert "Upheld" in anyone.text
    service.ask(lambda store: store.verify())


def test_a_timer_registers_what_nobody_rejects_and_only_under_the_old_procedure(
    meet: Meet, service: Service
) -> None:
    ann = meet("ann")
    ann.propose(
        "uri-schemes",
        template=draft("llm"),
        choices={"Procedure": "rfc4395", "Requested status": "provisional"},
        fields=FIELDS_OF_2006,
    )
    request = ann.save()
    ann.press("Submit to IANA")
    clerk = meet("iana")
    clerk.go(f"/requests/{request}")
    clerk.press("Accept and send to the expert")
    _later(service, days=15)
    ann.go(f"/requests/{request}")
    assert "overdue" in ann.text

    from onym.registry.records import IANA_CLOCK

    async def tick(store):  # type: ignore[no-untyped-def]
        for event in await store.list_due_events(service.clock()):
            await store.apply(event, IANA_CLOCK, service.clock())

    service.ask(tick)
    ann.go("/r/uri-schemes/llm")
    assert "Provisional" in ann.text
    assert "RFC 4395 5.2 step 6" in ann.text


def test_conti_is_removed_by_an_override_with_a_reason(meet: Meet, service: Service) -> None:
    clerk = meet("iana")
    clerk.go("/r/uri-schemes/conti/change")
    why = {"status": "remove", "reason": "It vanished from IANA's registry between 2022 and 2024."}
    clerk.fill("Override", **why)
    clerk.picture("conti-override", of="details[open]", block="end")
    clerk.press("Override", **why)
    assert "Nothing found." in clerk.text
    assert fetch(f"{service.url}/r/uri-schemes/conti")[0] == 404
    _, feed = fetch(f"{service.url}/r/uri-schemes/changes.atom", accept="application/atom+xml")
    assert "conti: removed" in feed
    clerk.go("/")
    clerk.picture("conti-removed", of=".timeline", block="center")


def test_a_parameter_and_a_namespace_are_registered(meet: Meet, service: Service) -> None:
    common = {
        "contact": "Ann Example <ann@example.net>",
        "change_controller": "Example Foundation <board@example.net>",
    }
    asks = {
        "llm-parameters": {
            "name": "min_p",
            "type": "number",
            "description": "the least probability of a token, relative to the likeliest",
            "reference": "https://example.net/min_p",
        },
        "ai-namespaces": {
            "name": "agents",
            "anchor": "https://agents.example",
            "description": "agents of the Example Foundation",
            "expires": "2027-11-21",
        },
    }
    ann, clerk, expert = meet("ann"), meet("iana"), meet("expert")
    for registry, fields in asks.items():
        ann.propose(registry, choices={}, fields={**common, **fields})
        request = ann.save()
        ann.press("Submit to IANA")
        clerk.go(f"/requests/{request}")
        clerk.press("Accept and send to the expert")
        expert.go(f"/requests/{request}/review")
        outcome = "registered" if registry == "llm-parameters" else "active"
        expert.press(f"Approve and register as {outcome}", reason="well described")
        status, found = fetch(f"{service.url}/api/v1/registries/{registry}/entries/{fields['name']}")
        assert status == 200, found
        ann.go(f"/r/{registry}/{fields['name']}")
        ann.picture(f"{registry}-entry")


def test_the_pages_are_legible_in_the_dark_on_a_telephone_and_without_scripts(
    meet: Meet, browser: Browser, service: Service
) -> None:
    reader = meet(dark=True)
    for path in ("/", "/r/uri-schemes/http", "/help", "/r/uri-schemes"):
        reader.go(path)
        colour = reader.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert sum(int(part) for part in colour[4:-1].split(",")[:3]) < 3 * 96, colour
    reader.picture("dark")
    handheld = meet("iana", width=380)
    for path in ("/", "/help", "/account", "/r/uri-schemes/http/change", "/r/uri-schemes", "/submit"):
        handheld.go(path)
        wide = handheld.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 380, f"{path} is {wide} wide"
    handheld.go("/r/uri-schemes/http")
    handheld.picture("narrow")
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{service.url}/search?q=http")
        assert page.get_by_role("link", name="http", exact=True).first.is_visible()
    finally:
        context.close()
