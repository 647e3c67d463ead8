"""From a file to a request: reading a template or draft, checking it, the event that opens the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onym.cli._input import stdin_text
from onym.errors import TemplateError, UsageError
from onym.registry.profiles import DRAFT_LIFE, PROFILES, Profile
from onym.registry.registries import registry as registry_row

if TYPE_CHECKING:
    from onym.registry.checks import Report
    from onym.registry.documents import Document
    from onym.registry.documents.types import Template
    from onym.registry.records import Entry

__all__ = ["GUIDANCE", "Draft", "blank", "read_draft", "read_text"]

#: octets of a file that is read; RFC 3986 has 140,000
MAX_FILE: Final = 4 * 1024 * 1024
_DAY: Final = timedelta(days=1)

#: what belongs in a field, in one line
GUIDANCE: Final = {
    "status": "one of the words above",
    "syntax": "the grammar (ABNF), or the section that has it",
    "semantics": "what such a URI names, and the operations on it",
    "encoding": "which characters, in which charset (UTF-8 unless there is a reason)",
    "applications": "who makes and reads such URIs",
    "interoperability": "what implementations may do differently, or: none known",
    "security": "what can go wrong: secrets, malicious URIs, privacy",
    "contact": "a person or role, with an address that is read",
    "change_controller": "who may change the registration, with an address",
    "references": "the documents that define it, with stable addresses",
    "reference": "the document that defines it",
    "type": "what a value is: int, float, bool, string",
    "description": "one sentence",
    "anchor": "the https origin that answers for the namespace",
    "keys": "thumbprints (RFC 7638) of its keys, one a line",
    "expires": "the last day it holds, as 2027-01-31",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a file asks for: its template's fields, as the profile reads them, and the checker's report."""

    source: str
    text: str
    profile: Profile
    fields: dict[str, str]
    report: Report
    document: Document

    @property
    def name(self) -> str:
        """The name to register."""
        return self.fields.get("name", "").strip()

    def data(
        self, registry: str, *, kind: str, status: str | None, on_behalf_of: str | None
    ) -> dict[str, Any]:
        """The members of the event that opens the request."""
        wanted = status or _status_word(self.fields.get("status", ""), self.profile)
        found: dict[str, Any] = {
            "kind": kind,
            "profile": self.profile.id,
            "fields": {name: text for name, text in self.fields.items() if name not in ("name", "status")},
            "template": self.text,
            "status": wanted,
            "on_behalf_of": on_behalf_of,
            "draft": self._internet_draft(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _internet_draft(self) -> dict[str, str] | None:
        """The Internet-Draft that holds the template, and when it expires (RFC 7595 7.4 References)."""
        document = self.document
        if document.name is None or not document.name.startswith("draft-"):
            return None
        expires = document.expires or (None if document.dated is None else document.dated + DRAFT_LIFE)
        return None if expires is None else {"name": document.name, "expires": expires.isoformat()}


def _status_word(text: str, profile: Profile) -> str | None:
    """The status that the template asks for, where its first word is one."""
    words = text.strip().strip(".").split()
    known = {word.lower(): word.lower() for word in profile.status_words}
    return known.get(words[0].strip(".,;").lower()) if words else None


def read_text(file: str) -> str:
    """The text of a file, or of standard input for `-`. Raises UsageError."""
    if file == "-":
        return stdin_text()
    path = Path(file)
    try:
        with path.open("rb") as stream:
            octets = stream.read(MAX_FILE + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {file or 'a file without a name'}: {error.strerror}", code="usage.input-file"
        ) from None
    if len(octets) > MAX_FILE:
        raise UsageError(f"{file} is longer than {MAX_FILE} octets", code="usage.input-file")
    try:
        return octets.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 (octet {error.start})", code="usage.input-file") from None


def read_draft(
    file: str,
    registry: str,
    *,
    profile: str | None,
    name: str | None,
    kind: str = "new",
    entries: Mapping[str, Entry] | None = None,
) -> Draft:
    """Read a template or the document around one, and check it.

    `name` chooses among several templates, `entries` are those of a registry of one's own, by name. Raises
    TemplateError where there is no template, or more than one.
    """
    from onym.registry.checks import check  # late: grammars take a while to load
    from onym.registry.checks.known import builtin
    from onym.registry.documents import profile_of_template, read_document

    text = read_text(file)
    source = "standard input" if file == "-" else file
    document = read_document(text, source=source, registry=registry)
    template = _chosen(document, name)
    known = builtin(registry) if entries is None else builtin(registry).with_entries(entries)
    report = check(
        replace(document, templates=(template,)),
        profile=profile or profile_of_template(template, registry),
        known=known,
        source=source,
        update=kind != "new",
    )
    used = PROFILES[report.profile]
    if used.id not in registry_row(registry).profiles:
        raise UsageError(
            f"{registry} has no procedure {used.id}",
            code="usage.profile",
            hint=f"--profile {' or '.join(registry_row(registry).profiles)}",
        )
    fields = {identifier: value.text for identifier, value in template.values.items()}
    return Draft(source=source, text=text, profile=used, fields=fields, report=report, document=document)


def _chosen(document: Document, name: str | None) -> Template:
    named = [(each.text("name").strip().strip('"').lower(), each) for each in document.templates]
    fits = [each for key, each in named if name is None or key == name.strip().lower()]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise TemplateError(
            "no template of that name",
            code="registry.no-template",
            hint=f"there are: {', '.join(key or '(no name)' for key, _ in named)}",
        )
    names = ", ".join(sorted({key or "(no name)" for key, _ in named}))
    raise TemplateError(
        f"there are {len(fits)} templates in that text: {names}",
        code="registry.several-templates",
        line=fits[1].line,
        hint="choose one with --name, or put each in a file of its own",
    )


def blank(profile: Profile) -> str:
    """The empty template of a profile: its labels in order, room between them."""
    lines = []
    for each in profile.fields:
        label = each.label[:1].upper() + each.label[1:]
        value = (
            f" {profile.status_words[0]}" if each.id == "status" and len(profile.status_words) == 1 else ""
        )
        lines.append(f"{label}:{value}\n")
    return "\n".join(lines)
