"""Entries as files: the formats of the IANA room, each with its media type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from onym.errors import UnknownEntryError
from onym.server.security import entity_tag, is_fresh

if TYPE_CHECKING:
    from starlette.requests import Request

    from onym.registry.records import Entry, Status

__all__ = ["FORMATS", "MEDIA", "entry_file", "formats_of"]

#: format -> what a link to it says
FORMATS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "xml": "XML (IANA's form)",
        "csv": "CSV",
        "csv-2022": "CSV (columns of 2022)",
        "text": "Plain text",
        "json": "JSON",
    }
)
#: format -> media type, file name extension
MEDIA: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "xml": ("application/xml", "xml"),
        "csv": ("text/csv", "csv"),
        "csv-2022": ("text/csv", "csv"),
        "csv-2015": ("text/csv", "csv"),
        "text": ("text/plain", "txt"),
        "json": ("application/json", "json"),
    }
)


#: the day of a file without a dated row
_NEVER: Final = date(1970, 1, 1)
#: formats of URI schemes alone
_SCHEMES: Final = frozenset({"csv-2015", "csv-2022"})


def formats_of(registry: str) -> tuple[tuple[str, str], ...]:
    """(format, title) of every file that this registry is offered as."""
    return tuple(
        (form, title) for form, title in FORMATS.items() if form not in _SCHEMES or registry == "uri-schemes"
    )


def entry_file(
    request: Request,
    entries: Iterable[Entry],
    registry: str,
    form: str,
    name: str,
    status: Status | None = None,
) -> Response:
    """These entries as a file to keep; `status` is the part that csv-2015 holds.

    Raises UnknownEntryError for a format that there is not.
    """
    from onym.registry.iana import write  # late: writers are needed by few requests

    if form not in MEDIA or (form in _SCHEMES and registry != "uri-schemes"):
        raise UnknownEntryError(
            "no such format",
            code="registry.unknown-format",
            field="format",
            hint=f"one of {', '.join(MEDIA)}",
        )
    rows = tuple(entries)
    updated = max((each.updated for each in rows if each.updated is not None), default=_NEVER)
    body = write(rows, format=form, registry=registry, updated=updated, status=status).encode("utf-8")
    media, extension = MEDIA[form]
    tag = entity_tag(body)
    kept = "".join(each if each.isascii() and (each.isalnum() or each in "+.-_") else "_" for each in name)
    headers = {
        "etag": tag,
        "cache-control": "no-cache",
        "content-disposition": f'attachment; filename="{kept}.{extension}"',
    }
    if is_fresh(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, media_type=media)
