"""IANA's registry XML, read with the standard library's expat and nothing that a document asks for.

A document type declaration is refused before its first entity, so that there are none to expand and
nothing outside to fetch; size, depth and row count are capped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn
from xml.parsers import expat

from onym.registry.iana._cells import column_id, folded, is_known
from onym.registry.iana._faults import bad, check_rows
from onym.registry.iana._markup import CHAR, character, collapsed
from onym.registry.iana._rows import Row, Table
from onym.registry.iana._types import MAX_COLUMNS, MAX_DEPTH, Irregular
from onym.registry.iana._xml_write import NAMESPACE
from onym.registry.iana._xref import shown
from onym.registry.records import Status

if TYPE_CHECKING:
    from onym.registry.registries import Registry

__all__ = ["read_xml"]

_SPACE: Final = "http://www.w3.org/XML/1998/namespace space"
#: tags of IANA's that are not the column's own name; `name` holds the key in some registries
_COLUMNS: Final = {
    "value": "name",
    "name": "name",
    "file": "template",
    "xref": "reference",
    "controller": "change_controller",
}
#: different tags inside records; several may mean one column
_MAX_TAGS: Final = 1000
#: columns that IANA's files did not always have
_LATE: Final = frozenset({"cri_number"})
_PARTS: Final = (Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL)


def read_xml(data: bytes, registry: Registry) -> Table:
    """The records of the registry's own tables. Raises SnapshotError (hostile-xml, bad-xml and others)."""
    reader = _Reader(registry)
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise bad(f"not XML: {expat.ErrorString(error.code)}", "bad-xml", line=error.lineno) from error
    return Table(
        rows=reader.rows,
        columns=tuple(reader.columns),
        vintage=reader.updated,
        findings=reader.findings,
    )


class _Element:
    """An open element: its tag, its attributes and the text so far."""

    __slots__ = ("attributes", "line", "pieces", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], line: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.pieces: list[str] = []

    def text(self) -> str:
        whole = "".join(self.pieces)
        return whole if self.attributes.get(_SPACE) == "preserve" else collapsed(whole)


class _Reader:
    """expat's handlers, and what they have gathered."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.rows: list[Row] = []
        self.findings: list[Irregular] = []
        #: an element may be left out where it is empty, so that only a column as late as this is not there
        self.columns = {each.id: None for each in registry.columns if each.id not in _LATE}
        self.updated: str | None = None
        #: what the tags inside records mean
        self._ids: dict[str, str] = {}
        self._open: list[_Element] = []
        self._cells: dict[str, list[str]] = {}
        #: the nested tables that are open: (id, status that its title gives)
        self._tables: list[tuple[str, Status | None]] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.ExternalEntityRefHandler = self._refuse
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.ProcessingInstructionHandler = self._instruction

    def _refuse(self, *_: Any) -> NoReturn:
        raise bad(
            "a document type declaration or an entity",
            "hostile-xml",
            line=self.parser.CurrentLineNumber,
            hint="IANA's files have none; take the DOCTYPE out",
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self._open) >= MAX_DEPTH:
            raise bad(f"elements more than {MAX_DEPTH} deep", "hostile-xml", line=line)
        namespace, _, tag = name.rpartition(" ")
        if not self._open:
            self._check_root(namespace, tag, attributes, line)
        if tag == "registry":
            self._tables.append((attributes.get("id", ""), None))
        elif tag == "record":
            if self._in_record():
                raise bad("a record inside a record", "bad-xml", line=line)
            self._cells = {}
        self._open.append(_Element(tag, attributes, line))

    def _check_root(self, namespace: str, tag: str, attributes: dict[str, str], line: int) -> None:
        if namespace != NAMESPACE or tag != "registry":
            raise bad(
                "no registry of IANA's",
                "not-a-registry",
                line=line,
                hint=f'<registry xmlns="{NAMESPACE}">',
            )
        if attributes.get("id") != self.registry.id:
            raise bad(
                f"this is the registry {attributes.get('id', '')[:40]!r}",
                "wrong-registry",
                line=line,
                field="id",
                hint=f"{self.registry.id} was asked for",
            )

    def _in_record(self) -> bool:
        return any(each.tag == "record" for each in self._open)

    def _text(self, text: str) -> None:
        self._open[-1].pieces.append(text)

    def _instruction(self, target: str, data: str) -> None:
        if target == CHAR and self._open:
            self._open[-1].pieces.append(character(data, self.parser.CurrentLineNumber))

    def _end(self, _: str) -> None:
        element = self._open.pop()
        parent = self._open[-1].tag if self._open else ""
        if element.tag == "registry":
            self._tables.pop()
        elif element.tag == "record":
            self._finish(element)
        elif parent == "record":
            self._column(element)
        elif self._in_record():
            self._open[-1].pieces.append(self._as_shown(element))
        elif parent == "registry":
            self._about(element)

    def _about(self, element: _Element) -> None:
        """What a table says of itself."""
        if element.tag == "updated" and len(self._tables) == 1:
            self.updated = element.text()
        elif element.tag == "title":
            words = folded(element.text())
            status = next((each for each in _PARTS if words.startswith(each.value)), None)
            self._tables[-1] = (self._tables[-1][0], status)

    def _as_shown(self, element: _Element) -> str:
        text, about = element.text(), element.attributes
        if element.tag != "xref":
            return text
        return shown(about.get("type", ""), about.get("data", ""), text, about.get("section", ""))

    def _column(self, element: _Element) -> None:
        column = self._ids.get(element.tag)
        if column is None:
            column = self._new_column(element)
        self._cells.setdefault(column, []).append(self._as_shown(element))

    def _new_column(self, element: _Element) -> str:
        column = _COLUMNS.get(element.tag) or column_id(self.registry, element.tag)
        if not column or len(self.columns) >= MAX_COLUMNS or len(self._ids) >= _MAX_TAGS:
            raise bad(f"a column {element.tag[:40]!r}, or too many of them", "bad-xml", line=element.line)
        self._ids[element.tag] = column
        self.columns[column] = None
        if not is_known(self.registry, column):
            self._find("", "unknown-column", f"{element.tag[:40]!r} is kept as {column[:40]}", element.line)
        return column

    def _find(self, name: str, code: str, reason: str, line: int) -> None:
        self.findings.append(Irregular(name=name, code=code, reason=reason, line=line))

    def _finish(self, element: _Element) -> None:
        check_rows(len(self.rows) + len(self.findings))
        cells = {
            column: ("" if column == "reference" else "\n").join(filter(None, pieces))
            for column, pieces in self._cells.items()
        }
        table, status = self._tables[-1]
        own = self.registry.id
        if table not in (own, f"{own}-1") and status is None:
            reason = f"a row of {table[:40]!r}, which is no part of this registry; left out"
            self._find(cells.get("name", ""), "other-table", reason, element.line)
            return
        self.rows.append(
            Row(
                line=element.line,
                cells=cells,
                status=status,
                registered=element.attributes.get("date"),
                updated=element.attributes.get("updated"),
            )
        )
