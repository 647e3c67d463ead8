"""A seeded registry behind the real application: people, requests in every state, hostile content."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onym.accounts.records import Account
from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import IANA_CLOCK, Actor, Entry, Event, EventKind, Role, Status
from onym.server import registry as room
from server_support import PASSWORD_HASH, START, World, world

__all__ = ["HOSTILE", "PEOPLE", "Site", "hostile_entry", "site"]

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}=cmd|'/c calc'!A0"
_SCHEMES = "uri-schemes"
_ROLES = {"rita": None, "ian": Role.IANA, "eve": Role.EXPERT, "ingo": Role.IESG}

PEOPLE = {
    login: Account(
        id=f"user-{login}",
        login=login,
        name=f"{login.capitalize()} Example",
        email=f"{login}@example.org",
        password_hash=PASSWORD_HASH,
        roles={} if role is None else {"*": frozenset({role})},
        created=START,
    )
    for login, role in _ROLES.items()
}

TEMPLATE = """\
Scheme name: {name}

Status: {status}

Applications/protocols that use this scheme name: Programs that speak to language models.

Contact: Rita Example <rita@example.org>

Change controller: Example Ltd <standards@example.org>

References: [RFC3986], https://example.org/spec
"""


@dataclass
class Site:
    """The application, its client, and short ways to act."""

    world: World
    ids: dict[str, str]

    def actor(self, login: str) -> Actor:
        role = _ROLES[login]
        return Actor(id=PEOPLE[login].id, roles=frozenset({Role.REGISTRANT} | ({role} if role else set())))

    def act(self, login: str, kind: EventKind, *, about: str | None = None, name: str | None = None,
            registry: str = _SCHEMES, **data: Any) -> Any:  # fmt: skip
        event = Event(kind=kind, registry=registry, request=about, name=name, data=data)
        store = self.world.store
        return self.world.do(store.apply, event, self.actor(login), self.world.clock.now())

    def open(self, label: str, name: str, *, registry: str = _SCHEMES, fields: dict[str, str] | None = None,
             **data: Any) -> str:  # fmt: skip
        given = {
            "name": name, "contact": "Rita <rita@example.org>",
            "change_controller": "Example <standards@example.org>",
        }  # fmt: skip
        if registry == _SCHEMES:
            given |= {"applications": "Programs", "references": "[RFC3986]"}
            data.setdefault("status", "provisional")
        given |= fields or {}
        applied = self.act("rita", EventKind.OPEN, name=name, registry=registry, fields=given, **data)
        self.ids[label] = applied.decision.request.id
        return self.ids[label]

    def wait(self, **by: float) -> None:
        self.world.clock.seconds += timedelta(**by).total_seconds()

    def headers(self, login: str | None) -> dict[str, str]:
        """The credentials of a person: a token with every scope; nothing for None."""
        if login is None:
            return {}
        scopes = ("read", "submit", "review", "iana", "iesg", "admin")
        return self.world.token(*scopes, account=PEOPLE[login].id)

    def get(self, path: str, headers: dict[str, str] | None = None, accept: str = "text/html") -> Any:
        return self.world.client.get(
            path, headers={"accept": accept, **(headers or {})}, follow_redirects=False
        )


def hostile_entry() -> Entry:
    """A row whose every field is an attack."""
    names = "template description well_known reference notes cri_number contact change_controller references"
    fields = dict.fromkeys([*names.split(), "applications", "syntax", "security"], HOSTILE)
    return Entry(
        registry=_SCHEMES, name="hostile+x", status=Status.PROVISIONAL, fields=fields, spelling=HOSTILE,
        registrant=HOSTILE,
    )  # fmt: skip


def _plain(name: str, status: str) -> Entry:
    fields = {"description": name, "reference": "[RFC3986]"}
    return Entry(registry=_SCHEMES, name=name, status=Status(status), fields=fields)


@contextmanager
def site(folder: Path, *, snapshot: bool = False, **options: Any) -> Iterator[Site]:
    """The site, seeded: an entry of each status, a request in each state."""
    if options:
        with _new_site(folder, snapshot=snapshot, **options) as here:
            yield here
        return
    database, ids, seconds = _make_site(snapshot)
    with world(folder, database=database, routes=room.list_routes()) as found:
        found.clock.seconds = seconds
        yield Site(found, dict(ids))


@cache
def _make_site(snapshot: bool) -> tuple[bytes, dict[str, str], float]:
    """The database of a seeded site, which is made once and copied; the IDs; and the time after seeding."""
    with TemporaryDirectory() as folder:
        with _new_site(Path(folder), snapshot=snapshot) as here:
            ids, seconds = here.ids, here.world.clock.seconds
        return (Path(folder) / "registry.db").read_bytes(), ids, seconds


@contextmanager
def _new_site(folder: Path, *, snapshot: bool, **options: Any) -> Iterator[Site]:
    with world(folder, routes=room.list_routes(), **options) as found:
        here = Site(found, {})
        for account in PEOPLE.values():
            found.do(found.store.accounts.add, account)
        rows = list(load_builtin_snapshot(_SCHEMES).entries) if snapshot else []
        rows += [hostile_entry()]
        rows += [] if snapshot else [_plain("http", "permanent"), _plain("ftp", "historical")]
        found.do(found.store.import_entries, _SCHEMES, rows, IANA_CLOCK, found.clock.now(), source="seed")
        parameters = load_builtin_snapshot("llm-parameters").entries
        found.do(
            found.store.import_entries,
            "llm-parameters",
            parameters,
            IANA_CLOCK,
            found.clock.now(),
            source="seed",
        )
        _seed(here)
        yield here


def _seed(here: Site) -> None:
    act, ids = here.act, here.ids
    here.open("draft", "drafty", template=TEMPLATE.format(name="drafty", status="Provisional"))
    here.open("list", "listy", status="permanent")
    act("rita", EventKind.ANNOUNCE, about=ids["list"], archive="https://list.example/1")
    here.open(
        "submitted",
        "subby",
        status="provisional",
        template=TEMPLATE.format(name="subby", status="Provisional"),
    )
    act("rita", EventKind.SUBMIT, about=ids["submitted"])
    for label, name in (
        ("expert", "experty"),
        ("more", "morey"),
        ("ietf", "ietfy"),
        ("approved", "approvy"),
        ("rejected", "rejecty"),
    ):
        here.open(label, name, status="permanent", template=TEMPLATE.format(name=name, status="Permanent"))
        act("rita", EventKind.ANNOUNCE, about=ids[label], archive="https://list.example/2")
    here.wait(days=29)
    for label in ("expert", "more", "ietf", "approved", "rejected"):
        act("rita", EventKind.SUBMIT, about=ids[label])
        here.wait(hours=3)
        act("ian", EventKind.CHECK_COMPLETE, about=ids[label])
    here.wait(days=2)
    act("eve", EventKind.ASK_MORE_REVIEW, about=ids["more"], reason="Say how the host is found.")
    act("eve", EventKind.ASK_IETF_REVIEW, about=ids["ietf"], reason="It touches several protocols.")
    act("eve", EventKind.APPROVE, about=ids["approved"], reason="Clear and useful.")
    act("eve", EventKind.REJECT, about=ids["rejected"], reason="The name is a trademark of somebody else.")
    here.open("incomplete", "incompy", status="provisional")
    act("rita", EventKind.SUBMIT, about=ids["incomplete"])
    act(
        "ian", EventKind.REJECT_INCOMPLETE, about=ids["incomplete"], missing=["contact"], reason="No contact."
    )
    here.open("withdrawn", "withy")
    act("rita", EventKind.WITHDRAW, about=ids["withdrawn"], reason="Changed our mind.")
    here.open(
        "old",
        "oldy",
        status="provisional",
        profile="rfc4395",
        fields=dict.fromkeys(("syntax", "semantics", "encoding", "interoperability", "security"), "x"),
    )
    act("rita", EventKind.SUBMIT, about=ids["old"])
    act("ian", EventKind.CHECK_COMPLETE, about=ids["old"])
    here.open("registered", "proviso", status="provisional")
    act("rita", EventKind.SUBMIT, about=ids["registered"])
    act("ian", EventKind.CHECK_COMPLETE, about=ids["registered"])
    act(
        "eve",
        EventKind.ATTACH_SECURITY_NOTE,
        name="proviso",
        text="Never resolve it as root.",
        reference="[RFC3986]",
    )
    here.open(
        "hostile",
        "hosty",
        status="permanent",
        template=HOSTILE,
        on_behalf_of=HOSTILE,
        fields=dict.fromkeys(("applications", "contact", "change_controller", "security"), HOSTILE),
    )
    act("rita", EventKind.ANNOUNCE, about=ids["hostile"], archive=HOSTILE)
    act("rita", EventKind.SUBMIT, about=ids["hostile"])
    act("ian", EventKind.CHECK_COMPLETE, about=ids["hostile"])
    act("eve", EventKind.ASK_MORE_REVIEW, about=ids["hostile"], reason=HOSTILE)
    here.open(
        "namespace",
        "robots",
        registry="ai-namespaces",
        fields={"anchor": "https://robots.example", "description": "Robots", "expires": "2027-12-31"},
    )
    act("rita", EventKind.SUBMIT, about=ids["namespace"], registry="ai-namespaces")
    act("ian", EventKind.CHECK_COMPLETE, about=ids["namespace"], registry="ai-namespaces")
    act("eve", EventKind.APPROVE, about=ids["namespace"], registry="ai-namespaces", reason="Fine.")
    here.open(
        "parameter",
        "max_price",
        registry="llm-parameters",
        fields={"type": "number", "description": "Most that a call may cost", "reference": "[RFC3986]"},
    )
