"""What Onym ships: the facts, their provenance, and the tables made of them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from iana_support import by_status, codes
from onym.errors import UnknownEntryError
from onym.registry.iana import load_builtin_snapshot, load_known_rfcs
from onym.uri import _registered

_ROOT = Path(__file__).resolve().parents[3]
_DATA = _ROOT / "src" / "onym" / "registry" / "data"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = _ROOT / "tools" / "registry_tables.py"
    if not path.is_file():
        pytest.skip("the tools are not beside this installation")
    spec = importlib.util.spec_from_file_location("registry_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_shipped_schemes_are_those_of_mid_2026() -> None:
    snapshot = load_builtin_snapshot("uri-schemes")
    assert by_status(snapshot) == {"permanent": 99, "provisional": 293, "historical": 18}
    assert snapshot.vintage == "mid-2026"
    assert "merged" in snapshot.source
    http = snapshot.find("http")
    assert http is not None
    assert http.fields["cri_number"] == "2"
    assert set(codes(snapshot)) == {
        "template-path",
        "ends-in-punctuation",
        "not-a-reversed-domain",
        "upper-case",
    }
    assert snapshot.find("llm") is None
    assert snapshot.find("ai") is None


def test_nothing_that_is_shipped_holds_a_mail_address() -> None:
    for path in _DATA.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "mailto:" not in text
        assert not re.findall(r"[\w.]+[@&][\w-]+\.\w+", text), path.name


def test_the_parameters_are_those_of_the_drafts_table() -> None:
    entries = load_builtin_snapshot("llm-parameters").entries
    assert [(entry.name, entry.fields["type"]) for entry in entries][:3] == [
        ("temp", "float"),
        ("max_tokens", "int"),
        ("top_p", "float"),
    ]
    draft = _ROOT.parent / "shared" / "spec" / "draft-levy-llm-uri-scheme-00.txt"
    if not draft.is_file():
        pytest.skip("the draft is not beside this checkout")
    text = draft.read_text(encoding="utf-8")
    table = text[text.index("| Parameter | Type |") : text.index("\nTable 1")]
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (.+?) \|$", table, re.MULTILINE)[1:]
    assert [(e.name, e.fields["type"], e.fields["description"]) for e in entries] == rows


def test_no_namespace_is_allocated_yet() -> None:
    snapshot = load_builtin_snapshot("ai-namespaces")
    assert snapshot.entries == ()
    assert "anchor" in snapshot.columns


def test_a_snapshot_is_read_once_and_without_the_readers_of_other_formats() -> None:
    assert load_builtin_snapshot("uri-schemes") is load_builtin_snapshot("uri-schemes")
    code = (
        "import sys; from onym.registry.iana import load_builtin_snapshot;"
        "load_builtin_snapshot('uri-schemes');"
        "print(*sorted({'csv', 'pyexpat', 'publicsuffixlist', 'onym.registry.codec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_an_unknown_registry_has_no_snapshot() -> None:
    with pytest.raises(UnknownEntryError):
        load_builtin_snapshot("media-types")


def test_the_rfcs_say_what_replaced_them() -> None:
    known = load_known_rfcs()
    assert known[4395].obsoleted_by == (7595,)
    assert known[4395].title == "Guidelines and Registration Procedures for New URI Schemes"
    assert known[7230].obsoleted_by == (9110, 9112)
    assert (known[7595].obsoleted_by, known[7595].basis) == ((), "text")
    assert all(item in known for row in known.values() for item in row.obsoleted_by)
    assert {row.basis for row in known.values()} == {"text", "cited", "known"}
    assert list(known) == sorted(known)
    cited = re.findall(r"\[RFC(\d+)", (_DATA / "uri_schemes.json").read_text(encoding="utf-8"))
    assert {int(item) for item in cited} <= set(known)


def test_the_tables_of_lower_floors_are_made_of_the_registry(tool: ModuleType) -> None:
    assert tool.main(["--check"]) == 0
    entries = load_builtin_snapshot("llm-parameters").entries
    assert tuple(entry.name for entry in entries) == _registered.WELL_KNOWN
    assert {entry.name: entry.fields["type"] for entry in entries} == _registered.TYPES


def test_a_table_that_differs_is_found_and_mended(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.json"
    table.write_text("old")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "tables", lambda: iter([(table, "new")]))
    assert tool.main(["--check"]) == 1
    assert "table.json is not what" in capsys.readouterr().out
    assert table.read_text() == "old"
    assert tool.main([]) == 0
    assert table.read_text() == "new"
    assert tool.main(["--wrong"]) == 2


def test_the_shipped_files_are_plain_json_with_a_source() -> None:
    for path in _DATA.glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        assert data["source"]
        assert all(len(row) == len(data["columns"]) for row in data["rows"])
