"""JSON: ours, which carries everything, and the list that the snapshot of 2024-04 came as."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final, NoReturn

from onym.errors import StoreError
from onym.registry import codec
from onym.registry.iana._faults import bad, check_rows
from onym.registry.iana._rows import Row, Table
from onym.registry.iana._types import MAX_FIELD, Snapshot
from onym.registry.records import Entry
from onym.registry.registries import Registry

__all__ = ["FORMAT", "load", "read_entries", "read_list", "write_json"]

#: member `format` of a file of ours
FORMAT: Final = "onym-registry"
_VERSION: Final = 1
_RFC_PAGES: Final = "https://www.rfc-editor.org/rfc/rfc"
#: what the list of 2024-04 carries whole; of references it has the RFCs alone
_LIST_COLUMNS: Final = ("name", "template", "description", "status", "well_known")
_MAX_REFERENCES: Final = 100


def load(text: str) -> Any:
    """The JSON value. Refuses the same member twice, numbers that JSON has not, and unsafe depth."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise bad(f"not JSON: {error.msg}", "bad-json", line=error.lineno) from error
    except (RecursionError, ValueError) as error:
        raise bad("JSON too deep, or a number too long", "bad-json") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise bad("an object with twice the same member", "bad-json")
    return found


def _no_number(word: str) -> NoReturn:
    raise bad(f"{word} is no number of JSON", "bad-json")


def write_json(entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Every entry whole, one a line."""
    head = {"format": FORMAT, "version": _VERSION, "registry": registry.id, "updated": updated.isoformat()}
    lines = [
        "  " + json.dumps(codec.to_data(each), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        for each in entries
    ]
    body = "\n" + ",\n".join(lines) + "\n " if lines else ""
    return f'{json.dumps(head)[:-1]}, "entries": [{body}]}}\n'


def read_entries(data: Mapping[str, Any], registry: Registry, *, source: str) -> Snapshot:
    """The snapshot of a file of ours."""
    if data.get("format") != FORMAT or data.get("version") != _VERSION:
        raise bad(
            "JSON, and no registry of ours",
            "not-a-registry",
            field="format",
            hint=f'"format": "{FORMAT}", "version": {_VERSION}',
        )
    if data.get("registry") != registry.id:
        raise bad(
            f"this is the registry {str(data.get('registry'))[:40]!r}",
            "wrong-registry",
            field="registry",
            hint=f"{registry.id} was asked for",
        )
    rows = data.get("entries")
    if not isinstance(rows, list):
        raise bad("no list of entries", "bad-json", field="entries")
    check_rows(len(rows))
    entries = tuple(_entry(row, at, registry) for at, row in enumerate(rows))
    names = {each.name for each in entries}
    if len(names) < len(entries):
        raise bad("twice the same name", "duplicate-name", field="entries")
    vintage = data.get("updated")
    return Snapshot(
        registry=registry.id,
        entries=entries,
        source=source,
        vintage=vintage if isinstance(vintage, str) else None,
        columns=tuple(each.id for each in registry.columns),
    )


def _entry(row: object, at: int, registry: Registry) -> Entry:
    where = f"entries[{at}]"
    try:
        entry = codec.from_data(Entry, row)
    except StoreError as error:
        raise bad(f"{where}: {error.message}", "bad-json", field=error.field) from error
    if entry.registry != registry.id or entry.status not in registry.statuses:
        raise bad(f"{where}: another registry, or a status that it has not", "bad-json", field=where)
    if any(len(value) > MAX_FIELD for value in entry.fields.values()):
        raise bad(f"{where}: more than {MAX_FIELD} characters", "snapshot-too-large", field=where)
    return entry


def read_list(data: Sequence[Any]) -> Table:
    """The rows of the list of 2024-04: scheme, description, status, template, wku, refs, obsolete."""
    check_rows(len(data))
    return Table(rows=_rows(data), columns=_LIST_COLUMNS)


def _rows(data: Sequence[Any]) -> Iterator[Row]:
    for at, each in enumerate(data):
        if not isinstance(each, dict) or not isinstance(each.get("scheme"), str):
            raise bad(f"[{at}]: no object with a scheme", "not-a-registry", field=f"[{at}]")
        cells = {
            "name": f"{each['scheme']} (OBSOLETE)" if each.get("obsolete") is True else each["scheme"],
            "template": _text(each, "template"),
            "description": _text(each, "description"),
            "status": _text(each, "status"),
            "well_known": _well_known(each.get("wku")),
            "reference": _references(each.get("refs", []), at),
        }
        wrong = next((name for name, value in cells.items() if not isinstance(value, str)), None)
        if wrong is not None:
            raise bad(f"[{at}]: {wrong} is no text", "bad-json", field=wrong)
        # its place in the list; which line that is, the parser does not say
        yield Row(line=at + 1, cells=cells)


def _text(row: Mapping[str, Any], member: str) -> Any:
    value = row.get(member)
    return "" if value is None else value


def _well_known(value: object) -> Any:
    """`-` where the list has null (RFC 8615 5.2); a page of the RFC Editor's as IANA cites it."""
    if value is None:
        return "-"
    if isinstance(value, str) and value.startswith(_RFC_PAGES):
        return f"[RFC{value.removeprefix(_RFC_PAGES).removesuffix('.html')}]"
    return value


def _references(value: object, at: int) -> str:
    if not isinstance(value, list) or len(value) > _MAX_REFERENCES:
        raise bad(f"[{at}]: refs is no list, or too long", "bad-json", field="refs")
    if not all(isinstance(each, str) for each in value):
        raise bad(f"[{at}]: a reference is no text", "bad-json", field="refs")
    return "".join(f"[RFC{each}]" if each.isdecimal() else f"[{each}]" for each in value)
