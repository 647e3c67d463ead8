"""Writing a registry in any format."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final

from onym.errors import UsageError
from onym.registry.iana._csv import write_csv, write_csv_2015, write_csv_2022
from onym.registry.iana._json import write_json
from onym.registry.iana._text import write_text
from onym.registry.iana._xml_write import write_xml
from onym.registry.records import Entry, Status
from onym.registry.registries import registry as registry_of

__all__ = ["WRITE_FORMATS", "write"]

#: what may be given as `format`
WRITE_FORMATS: Final = ("csv", "csv-2015", "csv-2022", "json", "text", "xml")
_SCHEMES_ONLY: Final = frozenset({"csv-2015", "csv-2022"})


def write(
    entries: Iterable[Entry],
    *,
    format: str,  # noqa: A002 - what it is called everywhere
    registry: str,
    updated: date,
    status: Status | None = None,
) -> str:
    """The entries as text, in the order given; to be encoded as UTF-8, line ends as they are.

    `updated` is the day that the file says it is of. `status` chooses the part for csv-2015. JSON carries
    everything, XML and text the registry's columns (XML the dates too), csv the columns and every other
    field. Raises UsageError for a format that is unknown or not of this registry, and StoreError from the
    codec for values that JSON cannot hold.
    """
    row = registry_of(registry)
    if format not in WRITE_FORMATS or (format in _SCHEMES_ONLY and row.id != "uri-schemes"):
        raise UsageError(
            f"no format {format[:40]!r} for {row.id}",
            code="usage.bad-format",
            hint=f"one of {', '.join(WRITE_FORMATS)}; csv-2015 and csv-2022 are for uri-schemes",
        )
    chosen = tuple(entries)
    if format == "csv-2015":
        return write_csv_2015(chosen, row, status)
    if format == "csv-2022":
        return write_csv_2022(chosen, row)
    if format == "csv":
        return write_csv(chosen, row)
    day = date(updated.year, updated.month, updated.day)
    return {"json": write_json, "text": write_text, "xml": write_xml}[format](chosen, row, day)
