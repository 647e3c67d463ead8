"""Contacts: who stands behind `[Adam_Barth]`. Only from a file that the operator gives; none is shipped."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from onym.registry.iana._faults import bad, check_rows, check_size, decoded
from onym.registry.iana._json import load
from onym.registry.iana._types import Irregular, Snapshot
from onym.registry.records import Entry

__all__ = ["with_contacts"]

#: a reference that names a person or an organisation, and no document, page or registry
_NAMED: Final = re.compile(r"\[(?!RFC|draft-|status-change-|http|IANA registry )([^\[\]]+)\]")
_MAX_TEXT: Final = 1000


def with_contacts(snapshot: Snapshot, data: bytes) -> Snapshot:
    """The snapshot with a `contact` for every entry whose reference names somebody of the file.

    The file is a JSON list of [id, name, organisation, URI, date]; a name that it does not have is
    reported as `contact-unknown`. Raises SnapshotError.
    """
    people = _people(data)
    irregular = list(snapshot.irregular)
    entries = []
    for entry in snapshot.entries:
        named = _NAMED.findall(entry.fields.get("reference", ""))
        irregular += (
            Irregular(name=entry.name, code="contact-unknown", reason=f"no contact is called {each[:60]!r}")
            for each in named
            if each not in people
        )
        entries.append(_with(entry, [people[each] for each in named if each in people]))
    return replace(snapshot, entries=tuple(entries), irregular=tuple(irregular))


def _with(entry: Entry, found: list[str]) -> Entry:
    if not found:
        return entry
    return replace(entry, fields=MappingProxyType({**entry.fields, "contact": "; ".join(found)}))


def _people(data: bytes) -> dict[str, str]:
    check_size(data)
    rows = load(decoded(data))
    if not isinstance(rows, list):
        raise bad("no list of contacts", "bad-contacts", hint="[[id, name, organisation, URI, date], ...]")
    check_rows(len(rows))
    people = {}
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 5 or not all(_fits(each) for each in row):
            raise bad(f"[{at}]: not [id, name, organisation, URI, date]", "bad-contacts", field=f"[{at}]")
        identifier, name, organisation, uri, _ = row
        people[identifier.strip("[]")] = _contact(name or organisation, uri)
    return people


def _fits(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TEXT


def _contact(name: str, uri: str) -> str:
    """`Adam Barth <abarth@example.org>`. IANA writes `&` for `@`, against harvesters."""
    where = uri.removeprefix("mailto:")
    if where != uri and "@" not in where:
        where = where.replace("&", "@", 1)
    return f"{name} <{where}>" if where else name
