"""IANA's XML comes back element by element, from the command line and from the service."""

from __future__ import annotations

import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from app_support import registry_service
from onym.errors import SnapshotError
from onym.registry.iana import get_cell, load_builtin_snapshot, read_snapshot, write_entries
from onym.registry.registries import REGISTRIES

pytestmark = pytest.mark.xdist_group("registry-cli")

FRAME = Path(__file__).parents[1] / "registry" / "iana" / "data" / "uri-schemes-frame.xml"
SPACE = "{http://www.iana.org/assignments}"
DAY = date(2026, 11, 28)

Node = tuple[Any, dict[str, str], str, str, list[Any]]
Registry = Callable[..., Any]


def tree(text: str | bytes) -> Node:
    """All elements, attributes and texts of a document, also comments and instructions."""

    def node(element: ET.Element) -> Node:
        children = [node(child) for child in element]
        return str(element.tag), dict(element.attrib), element.text or "", element.tail or "", children

    builder = ET.TreeBuilder(insert_comments=True, insert_pis=True)
    return node(ET.fromstring(text, parser=ET.XMLParser(target=builder)))


def records(text: str) -> dict[str, str]:
    """The records of the main table as XML, by name."""
    table = ET.fromstring(text).find(f"{SPACE}registry")
    assert table is not None
    found = {}
    for record in table.iter(f"{SPACE}record"):
        record.tail = ""
        found[str(record.findtext(f"{SPACE}value"))] = ET.tostring(record, encoding="unicode")
    return found


@pytest.fixture
def own(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """`onym registry ARGS` over a fresh registry into which the file was imported."""
    monkeypatch.setenv("ONYM_REGISTRY_DB", str(tmp_path / "registry.db"))

    def call(*words: str, code: int = 0) -> Any:
        ran = run("registry", *words, stdin="a passphrase of four words\n")
        assert ran.code == code, ran.out + ran.err
        return ran

    call("init", "--login", "ann", "--password-stdin", "--empty")
    call("import", str(FRAME))
    return call


def test_an_imported_file_comes_back_element_by_element_through_both_doors(
    own: Registry, tmp_path: Path
) -> None:
    wanted = tree(FRAME.read_bytes())
    exported = own("export", "--format", "xml").out
    assert tree(exported) == wanted
    # the style sheet and the schema are named before the root
    assert exported.splitlines()[:3] == FRAME.read_text().splitlines()[:3]
    with (
        registry_service(str(tmp_path / "registry.db")) as service,
        urllib.request.urlopen(f"{service.url}/api/v1/registries/uri-schemes/export/xml") as answer,
    ):
        assert tree(answer.read()) == wanted


def test_only_what_changed_is_written_anew(own: Registry) -> None:
    before = records(FRAME.read_text())
    own("decide", "gg", "override", "--set", "status=historical", "--reason", "not used any more")
    own("decide", "coap", "override", "--set", "remove=yes", "--reason", "a test")
    exported = own("export", "--format", "xml").out
    after = records(exported)
    assert after["http"] == before["http"]
    assert "coap" not in after
    changed = ET.fromstring(after["gg"])
    assert changed.findtext(f"{SPACE}status") == "Historical"
    assert changed.get("date") == "2017-02"
    assert changed.findtext(f"{SPACE}colour") == "blue"
    assert changed.find(f"{SPACE}xref[@data='Bob_Example']") is not None
    root = ET.fromstring(exported)
    assert root.findtext(f"{SPACE}expert") == "Ada Example, Bob Example"
    assert len(root.findall(f"{SPACE}people/{SPACE}person")) == 2


def test_an_export_after_more_changes_can_be_imported_again(own: Registry, tmp_path: Path) -> None:
    own("decide", "gg", "override", "--set", "status=historical", "--reason", "not used any more")
    path = tmp_path / "again.xml"
    own("export", "--format", "xml", "-o", str(path))
    found = own("import", "--dry-run", "--json", str(path)).json["files"][0]
    assert (found["added"], found["changed"]) == (0, 0)


def test_new_entries_come_into_the_main_table_in_order() -> None:
    snapshot = read_snapshot(FRAME.read_bytes())
    shipped = load_builtin_snapshot("uri-schemes").entries
    kept = {entry.name: entry for entry in snapshot.entries}
    rows = [kept.get(entry.name, entry) for entry in shipped]
    text = write_entries(rows, format="xml", registry="uri-schemes", updated=DAY, frame=FRAME.read_bytes())
    names = list(records(text))
    assert len(names) == len(rows)
    assert names == sorted(names, key=str.casefold)
    assert records(text)["coap"] == records(FRAME.read_text())["coap"]
    assert ET.fromstring(text).findtext(f"{SPACE}updated") == DAY.isoformat()
    back = read_snapshot(text.encode()).entries
    columns = [column.id for column in REGISTRIES["uri-schemes"].columns]
    assert [[get_cell(entry, column) for column in columns] for entry in back] == [
        [get_cell(entry, column) for column in columns] for entry in sorted(rows, key=lambda row: row.name)
    ]


def test_a_frame_that_is_hostile_is_refused() -> None:
    hostile = b'<!DOCTYPE x [<!ENTITY a "b">]>' + FRAME.read_bytes().partition(b"?>")[2]
    for frame, code in ((hostile, "registry.hostile-xml"), (b"<a/>", "registry.not-a-registry")):
        with pytest.raises(SnapshotError) as caught:
            write_entries((), format="xml", registry="uri-schemes", updated=DAY, frame=frame)
        assert caught.value.code == code


def test_a_redaction_of_a_person_forgets_the_imported_file(own: Registry) -> None:
    own("redact", "--yes", "--text", "Bob_Example", "--reason", "ticket 7")
    exported = own("export", "--format", "xml").out
    assert "Bob" not in exported
    assert 'data="rfc9110"' in exported
