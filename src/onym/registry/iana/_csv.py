"""CSV: IANA's of every vintage, and ours.

A spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a line break as a formula. Such a
cell is written with an apostrophe before it; one that begins with apostrophes and then such a character
gets one more, so that reading, which takes one away, gives back exactly what was written. A cell that is
`-` and nothing else computes nothing, is what IANA writes for "no well-known URI", and stays plain.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from onym.errors import UsageError
from onym.registry.iana._cells import cell, column_id, extra_columns, heading, is_known
from onym.registry.iana._faults import bad
from onym.registry.iana._rows import Row, Table
from onym.registry.iana._types import MAX_COLUMNS, Irregular
from onym.registry.records import Entry, Status
from onym.registry.registries import Registry

__all__ = ["COLUMNS_2015", "COLUMNS_2022", "read_csv", "write_csv", "write_csv_2015", "write_csv_2022"]

COLUMNS_2015: Final = ("name", "template", "description", "reference")
COLUMNS_2022: Final = (
    "name",
    "template",
    "description",
    "status",
    "well_known",
    "reference",
    "notes",
)

# the full-width forms too: some programs fold them
_ACTIVE: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def _shielded(value: str) -> str:
    return f"'{value}" if value != "-" and _ACTIVE.match(value) else value


def _bared(value: str) -> str:
    return value[1:] if value.startswith("'") and _ACTIVE.match(value) else value


def write_csv(entries: Sequence[Entry], registry: Registry) -> str:
    """Every column of the registry, then every other field that some entry has."""
    return _written(
        entries, registry, (*(each.id for each in registry.columns), *extra_columns(registry, entries))
    )


def write_csv_2022(entries: Sequence[Entry], registry: Registry) -> str:
    """The columns of IANA's file from 2015 (RFC 7595) to 2024."""
    return _written(entries, registry, COLUMNS_2022)


def write_csv_2015(entries: Sequence[Entry], registry: Registry, status: Status | None) -> str:
    """One part, as IANA published them under RFC 4395: the entries of one status, which it does not name."""
    if status is None:
        found = {each.status for each in entries}
        if len(found) > 1:
            raise UsageError(
                "csv-2015 has one file per status, and these entries have several",
                code="usage.status-needed",
                hint=f"choose one: {', '.join(sorted(found))}",
            )
    else:
        entries = [each for each in entries if each.status is status]
    return _written(entries, registry, COLUMNS_2015)


def _written(entries: Iterable[Entry], registry: Registry, columns: Sequence[str]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([heading(registry, each) for each in columns])
    for entry in entries:
        writer.writerow([_shielded(cell(entry, each)) for each in columns])
    return out.getvalue()


def read_csv(text: str, registry: Registry, status: Status | None) -> Table:
    """The rows of a CSV file; `status` is that of the part, for a file that has no such column."""
    lines = _Lines(text)
    titles = next(lines.rows(), [])
    columns = tuple(column_id(registry, each) for each in titles[: MAX_COLUMNS + 1])
    _check_columns(columns, titles, status)
    findings = [
        Irregular(name="", code="unknown-column", reason=f"column {title[:40]!r} is kept as {each}", line=1)
        for title, each in zip(titles, columns, strict=True)
        if not is_known(registry, each)
    ]
    table = Table(rows=(), columns=columns, findings=findings)
    if "status" not in columns:
        table.covers = frozenset() if status is None else frozenset({status})
    table.rows = _rows(lines, columns, status, findings)
    return table


def _check_columns(columns: Sequence[str], titles: Sequence[str], status: Status | None) -> None:
    if "name" not in columns:
        first = ",".join(titles)[:60]
        raise bad(
            f"no column with names in {first!r}",
            "not-a-registry",
            line=1,
            hint="the first line of IANA's CSV names the columns: URI Scheme,Template,...",
        )
    if len(columns) > MAX_COLUMNS or len(set(columns)) < len(columns) or "" in columns:
        raise bad("columns without names, twice the same one, or too many", "bad-csv", line=1)
    if "status" not in columns and status is None:
        raise bad(
            "no column Status, and nothing says which part of the registry this is",
            "part-unknown",
            line=1,
            field="status",
            hint="give the status; uri-schemes-1.csv says permanent, -2 provisional, -3 historical",
        )


class _Lines:
    """The records of CSV text, with the line on which each began."""

    def __init__(self, text: str) -> None:
        self._reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        self.began = 1

    def rows(self) -> Iterator[list[str]]:
        # whoever asked before may have stopped at a row, and not seen where the next one begins
        self.began = self._reader.line_num + 1
        try:
            for cells in self._reader:
                if cells:
                    yield [_bared(each) for each in cells]
                self.began = self._reader.line_num + 1
        except csv.Error as error:
            raise bad(f"not CSV: {error}", "bad-csv", line=self._reader.line_num) from error


def _rows(
    lines: _Lines, columns: Sequence[str], status: Status | None, findings: list[Irregular]
) -> Iterator[Row]:
    for cells in lines.rows():
        if len(cells) != len(columns):
            name = cells[columns.index("name")] if len(cells) > columns.index("name") else ""
            findings.append(
                Irregular(
                    name=name,
                    code="ragged-row",
                    reason=f"{len(cells)} cells, and the table has {len(columns)} columns",
                    line=lines.began,
                )
            )
        yield Row(line=lines.began, cells=dict(zip(columns, cells, strict=False)), status=status)
