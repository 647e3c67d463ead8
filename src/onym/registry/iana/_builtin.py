"""The registries as Onym ships them: facts with their provenance, and nobody's address."""

from __future__ import annotations

import json
import pkgutil
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from onym.registry.iana._types import Irregular, Snapshot
from onym.registry.records import Entry, Status
from onym.registry.registries import registry as registry_of

__all__ = ["builtin", "shipped"]

_FILES: Final = {
    "uri-schemes": "uri_schemes.json",
    "llm-parameters": "llm_parameters.json",
    "ai-namespaces": "ai_namespaces.json",
}


def shipped(name: str) -> Any:
    """The JSON of a file of `onym.registry.data`."""
    return json.loads(pkgutil.get_data("onym.registry", f"data/{name}") or b"")


@cache
def builtin(registry: str) -> Snapshot:
    """The shipped snapshot of a registry, read once. Raises UnknownEntryError for one that there is not."""
    row = registry_of(registry)
    data = shipped(_FILES[row.id])
    columns = tuple(data["columns"])
    return Snapshot(
        registry=row.id,
        entries=tuple(_entry(row.id, columns, cells) for cells in data["rows"]),
        irregular=tuple(
            Irregular(name=name, code=code, reason=reason, line=line)
            for name, code, reason, line in data.get("irregular", ())
        ),
        source=data["source"],
        vintage=data["vintage"],
        columns=columns,
    )


def _entry(registry: str, columns: tuple[str, ...], row: list[str]) -> Entry:
    cells = {column: value for column, value in zip(columns, row, strict=True) if value}
    name, status = cells.pop("name"), Status(cells.pop("status"))
    key = registry_of(registry).key(name)
    return Entry(
        registry=registry,
        name=key,
        spelling=None if name == key else name,
        status=status,
        fields=MappingProxyType(cells),
    )
