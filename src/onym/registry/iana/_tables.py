"""A registry as a Python module: the tables that lower floors ship, which import nothing from here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from onym.registry.records import Entry, Status
from onym.registry.registries import registry as registry_of

__all__ = ["write_table"]

#: registry -> the constant with one column, what that column is of each entry, its id ("" for the status)
_COLUMNS: Final = {
    "uri-schemes": ("STATUSES", "the status of each one", ""),
    "llm-parameters": ("TYPES", "the type of each one's value", "type"),
    "ai-namespaces": ("STATUSES", "the status of each one", ""),
}


def write_table(entries: Iterable[Entry], *, registry: str) -> str:
    """The module: names in the order given, and one column of them. Pending entries are not registered yet.

    Every text is written as a literal, so that no entry says anything to Python. Raises UnknownEntryError
    for a registry that there is not.
    """
    row = registry_of(registry)
    constant, what, column = _COLUMNS[row.id]
    chosen = [each for each in entries if each.status is not Status.PENDING_REVIEW]
    cells = [
        (_literal(each.name), _literal(each.fields.get(column, "") if column else str(each.status)))
        for each in chosen
    ]
    names = "".join(f"    {name},\n" for name, _ in cells)
    values = "".join(f"    {name}: {value},\n" for name, value in cells)
    exported = sorted((constant, "WELL_KNOWN"))
    about = f"{row.title}.\n\nWritten by `onym registry export -r {row.id} --format tables`.\n"
    return (
        f'"""{about}"""\n\n'
        "from __future__ import annotations\n\nfrom typing import Final\n\n"
        f"__all__ = {json.dumps(exported)}\n\n"
        f"#: their names, in the registry's order\nWELL_KNOWN: Final = (\n{names})\n\n"
        f"#: {what}\n{constant}: Final = {{\n{values}}}\n"
    )


def _literal(text: str) -> str:
    """A string of JSON in full characters is one of Python."""
    return json.dumps(text, ensure_ascii=False)
