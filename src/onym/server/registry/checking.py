"""What somebody hands in, read and checked: a pasted text, the fields of a form, or both."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onym.errors import RegistryError
from onym.registry.documents.types import Document, DocumentKind, Template, TemplateValue
from onym.registry.profiles import PROFILES, Profile
from onym.registry.profiles import profile as profile_of
from onym.registry.records import EMPTY, Entry, Status
from onym.registry.registries import Registry
from onym.server.registry.desk import every_entry, store

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.checks import Known, Report
    from onym.registry.records import Request

__all__ = ["Given", "Submission", "check_given", "check_saved", "given_status", "read_given"]

_SCHEMES: Final = "uri-schemes"
#: a line "Label: value" of the plain templates of the other registries
_LINE: Final = re.compile(r"[ \t]{0,8}([A-Za-z][A-Za-z /&-]{0,60}):[ \t]*(.*)")
#: what people put around a name
_QUOTES: Final = "\"'`\u201c\u201d\u2018\u2019"
#: seconds for which the registry's names may be older than the registry
_AGE: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What was handed in. `fields` are of the form, by id; `profile` and `status` are "" where left open."""

    registry: Registry
    text: str = ""
    fields: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    profile: str = ""
    status: str = ""
    on_behalf_of: str = ""
    #: the name may be in the registry already
    update: bool = False
    #: the request that this is: a row that is pending for it is no other's
    request: str | None = None

    @property
    def empty(self) -> bool:
        """Was nothing said at all?"""
        return not self.text.strip() and not any(value.strip() for value in self.fields.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The same, read: one document, its profile, and the fields by id."""

    given: Given
    document: Document
    profile: Profile
    fields: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name asked for, as the registry would file it; "" for none."""
        raw = self.fields.get("name", "").strip().strip(_QUOTES).removesuffix(":")
        return self.given.registry.key(raw)

    @property
    def draft(self) -> dict[str, str] | None:
        """The Internet-Draft that it came from, as an event names it."""
        document = self.document
        if document.kind is DocumentKind.RFC or document.name is None or document.expires is None:
            return None
        return {"name": document.name, "expires": document.expires.isoformat()}


def read_given(given: Given) -> Submission:
    """Find the template. Raises RegistryError (TemplateError) where a text holds none that can be read."""
    row = given.registry
    chosen = given.profile if given.profile in row.profiles else ""
    if given.text.strip() and row.id == _SCHEMES:
        from onym.registry.checks import choose_profile  # late: readers and checks take a while to load
        from onym.registry.documents import read_document

        document = read_document(given.text)
        profile = profile_of(chosen or choose_profile(document))
    else:
        profile = profile_of(chosen or row.default_profile)
        document = _plain(given.text, profile)
    document = _overlaid(document, profile, given)
    template = document.templates[0]
    fields = {key: each.text for key, each in template.values.items()}
    return Submission(given=given, document=document, profile=profile, fields=fields)


def _plain(text: str, profile: Profile) -> Document:
    """A template of plain "Label: value" lines, by this profile's own labels."""
    labels = {label.lower(): each.id for each in profile.fields for label in each.labels}
    found: dict[str, TemplateValue] = {}
    here: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        match = _LINE.match(line)
        key = labels.get(match[1].strip().lower()) if match else None
        if match is not None and key is not None and key not in found:
            here = key
            found[key] = TemplateValue(id=key, label=match[1].strip(), text=match[2].strip(), line=number)
        elif here is not None:
            found[here] = replace(found[here], text=f"{found[here].text}\n{line.strip()}".strip())
    template = Template(values=MappingProxyType(found), line=1)
    return Document(kind=DocumentKind.TEMPLATE, text=text, templates=(template,))


def _overlaid(document: Document, profile: Profile, given: Given) -> Document:
    """The document with the form's fields over its first template."""
    said = {key: value.strip() for key, value in given.fields.items() if value.strip()}
    if given.status:
        said["status"] = given.status
    base = document.templates[0] if document.templates else Template(values=EMPTY, line=1)
    values = dict(base.values)
    for key, text in said.items():
        known = profile.field(key)
        label = known.label if known is not None else key
        values[key] = TemplateValue(id=key, label=label, text=text, line=base.line_of(key))
    if not values and document.templates == ():
        return replace(document, templates=(base,))
    return replace(
        document, templates=(replace(base, values=MappingProxyType(values)), *document.templates[1:])
    )


def given_status(submission: Submission) -> Status:
    """The status asked for; the registry's default where it is left open or is no status."""
    said = submission.fields.get("status", "").strip().lower().replace(" ", "-")
    wanted = next((each for each in submission.profile.policies if each == said), None)
    return wanted or submission.given.registry.default_status


async def check_given(request: HTTPRequest, given: Given) -> tuple[Submission, Report]:
    """Read and check it, off the event loop. Raises RegistryError where nothing can be read."""
    known = await known_of(request, given.registry.id)
    if given.request is not None:
        others = {name: each for name, each in known.entries.items() if each.pending != given.request}
        known = known.with_entries(MappingProxyType(others))
    return await asyncio.to_thread(_examine, given, known)


def _examine(given: Given, known: Known) -> tuple[Submission, Report]:
    from onym.registry.checks import check  # late, as above

    submission = read_given(given)
    report = check(
        submission.document,
        profile=submission.profile.id,
        known=known,
        update=given.update,
        source="submission",
    )
    return submission, report


async def check_saved(request: HTTPRequest, about: Request) -> tuple[Report | None, str]:
    """The report over a saved request; or None, and why there is none."""
    from onym.registry.registries import registry  # late: the name is taken by parameters elsewhere

    given = Given(
        registry=registry(about.registry),
        text=about.template,
        fields={**about.fields, "name": about.name},
        profile=about.profile,
        status=str(about.status),
        update=about.kind != "new",
        request=about.id,
    )
    try:
        return (await check_given(request, given))[1], ""
    except RegistryError as error:
        return None, str(error)


async def known_of(request: HTTPRequest, registry: str) -> Known:
    """What checks know, with this registry's own entries; read anew when it has changed."""
    from onym.registry.checks.known import builtin  # late, as above

    state = request.app.state
    kept: dict[str, tuple[int, float, Any]] = getattr(state, "registry_known", None) or {}
    state.registry_known = kept
    head, at = (await store(request).head()).number, time.monotonic()
    found = kept.get(registry)
    if found is not None and (found[0] == head or at - found[1] < _AGE):
        known: Known = found[2]
        return known
    entries: dict[str, Entry] = {}
    async for entry in every_entry(request, registry):
        entries[entry.name.lower()] = entry
    base = await asyncio.to_thread(builtin)
    known = base.with_entries(MappingProxyType(entries))
    kept[registry] = (head, at, known)
    return known


def missing_of(about: Request) -> tuple[tuple[str, str], ...]:
    """(id, label) of the fields that the procedure requires and the request leaves out."""
    given = {**about.fields, "name": about.name, "status": str(about.status)}
    return tuple((each.id, each.label) for each in PROFILES[about.profile].missing(about.status, given))
