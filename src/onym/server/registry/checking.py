"""What somebody hands in, read and checked: a pasted text, the fields of a form, or both."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.errors import RegistryError
from onym.registry.documents.types import Document, DocumentKind, Template, TemplateValue
from onym.registry.profiles import PROFILES, Profile
from onym.registry.profiles import profile as profile_of
from onym.registry.records import EMPTY, Entry, RequestKind, Status
from onym.registry.registries import Registry
from onym.server.registry.desk import store
from onym.server.registry.workers import workers_of
from onym.server.security import current
from onym.server.security.rates import address_key
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.checks import Known, Report
    from onym.registry.checks.near import Names
    from onym.registry.records import Request

__all__ = [
    "Given",
    "Submission",
    "asked_of",
    "check_given",
    "check_saved",
    "examined",
    "given_status",
    "read_for",
    "read_given",
    "with_row",
]

#: what people put around a name
_QUOTES: Final = "\"'`\u201c\u201d\u2018\u2019"
#: the word that the checker reads as the status
_WORD: Final = re.compile(r"[\W_]*([A-Za-z-]+)")
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
    #: what the entry has of a template's fields, for those that a change of it leaves out
    row: Mapping[str, str] = field(default_factory=lambda: EMPTY)
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
    if given.text.strip():
        from onym.registry.checks import choose_profile  # late: readers and checks take a while to load
        from onym.registry.documents import read_document

        document = read_document(given.text, registry=row.id)
        profile = profile_of(chosen or choose_profile(document))
    else:
        profile = profile_of(chosen or row.default_profile)
        document = Document(kind=DocumentKind.TEMPLATE, registry=row.id, text="")
    document = _overlaid(document, profile, given)
    template = document.templates[0]
    fields = {key: each.text for key, each in template.values.items()}
    return Submission(given=given, document=document, profile=profile, fields=fields)


def _overlaid(document: Document, profile: Profile, given: Given) -> Document:
    """The document with the form's fields over its first template, and the entry's beneath."""
    said = {key: value.strip() for key, value in given.fields.items() if value.strip()}
    if given.status:
        said["status"] = given.status
    base = document.templates[0] if document.templates else Template(values=EMPTY, line=1)
    values = dict(base.values)
    row = {key: text for key, text in given.row.items() if key not in values and text.strip()}
    for key, text in {**row, **said}.items():
        known = profile.field(key)
        label = known.label if known is not None else key
        values[key] = TemplateValue(id=key, label=label, text=text, line=base.line_of(key))
    if not values and document.templates == ():
        return replace(document, templates=(base,))
    return replace(
        document, templates=(replace(base, values=MappingProxyType(values)), *document.templates[1:])
    )


def given_status(submission: Submission) -> str:
    """The status asked for: the first word, where that is one, else what was written; "" for nothing."""
    said = submission.fields.get("status", "").strip()
    word = _WORD.match(said)
    first = "" if word is None else word[1].lower()
    return first if first in submission.profile.policies else said


async def check_given(request: HTTPRequest, given: Given) -> Report:
    """Read and check it, off the event loop. Raises RegistryError where nothing can be read."""

    async def known(asked: tuple[str, ...]) -> Known:
        return await known_of(request, given, asked)

    return await workers_of(request.app).check(given, known, key=_visitor(request))


async def read_for(request: HTTPRequest, given: Given) -> Submission:
    """Read it, off the event loop. Raises RegistryError where nothing can be read."""
    offered = services(request).settings.profiles_in(given.registry)
    if not given.profile and len(offered) == 1:
        given = replace(given, profile=offered[0])
    return await workers_of(request.app).read(given, key=_visitor(request))


def _visitor(request: HTTPRequest) -> str:
    visitor = current(request)
    return address_key(visitor.address) if visitor.account is None else visitor.account.id


def examined(submission: Submission, known: Known) -> Report:
    """The report over what was handed in."""
    from onym.registry.checks import check  # late, as above

    return check(
        submission.document,
        profile=submission.profile.id,
        known=known,
        update=submission.given.update,
        source="submission",
    )


def with_row(given: Given, entry: Entry | None) -> Given:
    """For the checker, a request about an entry: what it leaves out stays as the entry has it."""
    if entry is None or not given.update:
        return given
    known = {each for name in given.registry.profiles for each in _ids(PROFILES[name])}
    kept = {name: text for name, text in _row_fields(entry).items() if name in known}
    return replace(given, row=kept)


def _ids(profile: Profile) -> set[str]:
    return {each.id for each in (*profile.fields, *profile.elsewhere)}


def _row_fields(entry: Entry) -> dict[str, str]:
    return {"references": entry.fields.get("reference", ""), **entry.fields}


async def check_saved(request: HTTPRequest, about: Request, entry: Entry | None) -> tuple[Report | None, str]:
    """The report over a saved request, about `entry` if that exists; or None, and why there is none."""
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
        return await check_given(request, with_row(given, entry)), ""
    except RegistryError as error:
        return None, str(error)


async def known_of(request: HTTPRequest, given: Given, asked: tuple[str, ...]) -> Known:
    """What checks know: all names of this registry, and those of its entries that are asked for."""
    from onym.registry.checks.known import builtin  # late, as above

    row, names = given.registry, await _names_of(request, given.registry.id)
    entries: dict[str, Entry] = {}
    for name in asked:
        found = await store(request).entry(row.id, names.spelling(name)) if name in names else None
        # a row that is pending for this very request is no other's
        if found is not None and given.request not in found.pending:
            entries[name] = found
    base = await asyncio.to_thread(builtin)
    return base.with_entries(MappingProxyType(entries), names)


def asked_of(submission: Submission) -> tuple[str, ...]:
    """The names that the document's templates ask for, as the registry would file them."""
    from onym.registry.checks import MAX_TEMPLATES, clean_name  # late, as above

    templates = submission.document.templates[:MAX_TEMPLATES]
    key = submission.given.registry.key
    return tuple(dict.fromkeys(key(clean_name(each.text("name"))) for each in templates))


async def _names_of(request: HTTPRequest, registry: str) -> Names:
    """The registry's names, read anew when it has changed."""
    from onym.registry.checks.near import Names  # late, as above

    state = request.app.state
    kept: dict[str, tuple[int, float, Names]] = getattr(state, "registry_names", None) or {}
    state.registry_names = kept
    head, at = (await store(request).head()).number, time.monotonic()
    found = kept.get(registry)
    if found is not None and (found[0] == head or at - found[1] < _AGE):
        return found[2]
    names = await asyncio.to_thread(Names, await store(request).names(registry))
    kept[registry] = (head, at, names)
    return names


def missing_of(about: Request, entry: Entry | None) -> tuple[tuple[str, str], ...]:
    """(id, label) of the fields that the procedure requires and the request leaves out.

    A change leaves out what it leaves as it is, and an upgrade what the entry has (docs/decisions/0026).
    """
    given = {**about.fields, "name": about.name, "status": str(about.status)}
    upgrade = about.kind is RequestKind.STATUS_CHANGE and about.status is Status.PERMANENT
    if upgrade and entry is not None:
        given = {**_row_fields(entry), **given}
    found = PROFILES[about.profile].missing(about.status, given)
    whole = upgrade or about.kind is RequestKind.NEW
    return tuple((each.id, each.label) for each in found if whole or each.id in given)
