"""XML in IANA's schema (namespace http://www.iana.org/assignments)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

from onym.registry.iana._cells import cell
from onym.registry.iana._markup import attribute, collapsed, content
from onym.registry.iana._xref import xrefs
from onym.registry.records import Entry
from onym.registry.registries import Registry

__all__ = ["NAMESPACE", "write_xml"]

NAMESPACE: Final = "http://www.iana.org/assignments"


def write_xml(entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """The registry as one nested `<registry>` of records, in the order given."""
    lines = [
        "<?xml version='1.0' encoding='UTF-8'?>",
        f'<registry xmlns="{NAMESPACE}" id="{registry.id}">',
        f"  <title>{content(registry.title)}</title>",
        f"  <updated>{updated.isoformat()}</updated>",
        f'  <registry id="{registry.id}-1">',
        f"    <title>{content(registry.title)}</title>",
        *(f"    {each}" for each in _references(registry.reference)),
    ]
    for entry in entries:
        lines += _record(entry, registry)
    return "\n".join((*lines, "  </registry>", "</registry>", ""))


def _record(entry: Entry, registry: Registry) -> Iterator[str]:
    dates = "".join(
        f' {name}="{when.date().isoformat()}"'
        for name, when in (("date", entry.registered), ("updated", entry.updated))
        if when is not None
    )
    yield f"    <record{dates}>"
    for column in registry.columns:
        value = cell(entry, column.id)
        if column.id == "reference":
            yield from (f"      {each}" for each in _references(value))
        elif value:
            tag, attributes = _TAGS.get(column.id, (column.id.replace("_", "-"), ""))
            yield f"      {_element(tag, value, attributes)}"
    yield "    </record>"


_TAGS: Final = {"name": ("value", ""), "template": ("file", ' type="template"')}


def _element(tag: str, value: str, attributes: str = "") -> str:
    # a reader may fold white space unless it is told not to
    keep = "" if value == collapsed(value) else ' xml:space="preserve"'
    return f"<{tag}{attributes}{keep}>{content(value)}</{tag}>"


def _references(value: str) -> Iterator[str]:
    for kind, data, text in xrefs(value):
        named = f' type="{kind}"' + (f' data="{attribute(data)}"' if data else "")
        yield _element("xref", text, named) if text else f"<xref{named}/>"
