"""Reading a registry in any format, which the data itself tells."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from onym.errors import UsageError
from onym.registry.iana._faults import bad, check_size, decoded
from onym.registry.iana._rows import Table, assemble
from onym.registry.iana._types import Snapshot
from onym.registry.records import Status
from onym.registry.registries import Registry
from onym.registry.registries import registry as registry_of

__all__ = ["READ_FORMATS", "read"]

#: what may be given as `format`; both CSV vintages are told by their headings
READ_FORMATS: Final = ("csv", "csv-2015", "csv-2022", "json", "text", "xml")

#: IANA's file names of 2015: uri-schemes-1.csv is the first part
_PART: Final = re.compile(r"-([123])\.[a-z]+\Z")
_PARTS: Final = {"1": Status.PERMANENT, "2": Status.PROVISIONAL, "3": Status.HISTORICAL}
_DATE: Final = re.compile(
    r"(?<![0-9])((?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])(?:-[0-9]{2})?|mid-20[0-9]{2})(?![0-9])"
)


def read(
    data: bytes,
    *,
    format: str | None = None,  # noqa: A002 - what it is called everywhere
    registry: str = "uri-schemes",
    contacts: bytes | None = None,
    status: Status | None = None,
    source: str = "-",
) -> Snapshot:
    """The snapshot that `data` holds.

    `format` is one of READ_FORMATS, None to be told by the data. `source` is the file's name: it gives the
    date where the file has none and, for a part of 2015, the status, unless `status` does. `contacts` is a
    file of contacts (`_contacts.py`), which fills the field `contact`.

    Raises SnapshotError with the line for what is no registry, hostile or beyond its caps, UsageError for
    an unknown format. Irregular rows are kept, and reported in the snapshot.
    """
    if format is not None and format not in READ_FORMATS:
        raise UsageError(
            f"no format {format[:40]!r}", code="usage.bad-format", hint=f"one of {', '.join(READ_FORMATS)}"
        )
    check_size(data)
    row = registry_of(registry)
    snapshot = _read(data, format, row, status or _status_of(source), source)
    if snapshot.vintage is None:
        dated = _DATE.search(source)
        snapshot = replace(snapshot, vintage=dated[1] if dated else None)
    if contacts is not None:
        from onym.registry.iana._contacts import with_contacts  # few imports bring one

        snapshot = with_contacts(snapshot, contacts)
    return snapshot


def _status_of(source: str) -> Status | None:
    part = _PART.search(source)
    return _PARTS[part[1]] if part else None


def _read(
    data: bytes, format_: str | None, registry: Registry, status: Status | None, source: str
) -> Snapshot:
    # each reader is loaded when a file asks for it
    if format_ == "xml" or (format_ is None and data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")):
        from onym.registry.iana._xml_read import read_xml

        return assemble(read_xml(data, registry), registry, source=source)
    text = decoded(data)
    if format_ == "json" or (format_ is None and text.lstrip().startswith(("{", "["))):
        return _json(text, registry, source)
    return assemble(_table(text, format_, registry, status), registry, source=source)


def _json(text: str, registry: Registry, source: str) -> Snapshot:
    from onym.registry.iana._json import load, read_entries, read_list

    value = load(text)
    if isinstance(value, list) and registry.id == "uri-schemes":
        return assemble(read_list(value), registry, source=source)
    return read_entries(value if isinstance(value, dict) else {}, registry, source=source)


def _table(text: str, format_: str | None, registry: Registry, status: Status | None) -> Table:
    from onym.registry.iana._text import looks_like_text, read_text

    if format_ == "text" or (format_ is None and looks_like_text(text)):
        return read_text(text, registry)
    from onym.registry.iana._csv import read_csv
    from onym.registry.iana._join import looks_like_numbers

    if looks_like_numbers(text):
        raise bad(
            "CRI numbers, and no registry",
            "not-a-registry",
            line=1,
            hint="join them onto a registry's entries: onym.registry.iana.with_numbers",
        )
    return read_csv(text, registry, status)
