"""`onym registry import` over a registry of one's own: what a file does not speak of stays as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("registry-cli")

TEMPLATE = """\
Scheme name: zed

Status: Provisional

Applications/protocols that use this scheme name: The zed editor opens files by such URIs.

Contact: Ann Example <ann@example.net>

Change controller: Example Foundation <board@example.net>

References: Example Foundation, "Files that the zed editor opens", https://example.net/zed
"""
HEADINGS = "URI Scheme,Template,Description,Status,Well-Known URI Support,Reference,Notes"


@pytest.fixture
def own(run, tmp_path, monkeypatch):
    """`onym registry ARGS` over a fresh database in which `zed` was registered."""
    monkeypatch.setenv("ONYM_REGISTRY_DB", str(tmp_path / "registry.db"))

    def call(*words: str, **options: object):
        ran = run("registry", *words, **options)
        assert ran.code == 0, ran.out + ran.err
        return ran

    call("init", "--login", "ann", "--password-stdin", "--empty", stdin="a passphrase of four words\n")
    (tmp_path / "zed.txt").write_text(TEMPLATE)
    call("submit", str(tmp_path / "zed.txt"))
    call("decide", "uri-schemes-1", "check-complete")
    return call


def table(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "registry.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def fields(own) -> dict[str, str]:
    return own("show", "zed", "--json").json["entry"]["fields"]


def counts(found) -> tuple[int, int, int]:
    (file,) = found.json["files"]
    return file["added"], file["changed"], file["same"]


def test_an_import_leaves_what_registrants_said_outside_the_columns_of_the_file(own, tmp_path):
    before = fields(own)
    path = table(tmp_path, HEADINGS, "zed,,The zed editor,Provisional,-,[ZED],")
    foretold = counts(own("import", "--dry-run", "--json", path))
    assert counts(own("import", "--json", path)) == foretold == (0, 1, 0)
    assert fields(own) == {**before, "description": "The zed editor", "reference": "[ZED]", "well_known": "-"}
    assert fields(own)["contact"] == "Ann Example <ann@example.net>"
    assert counts(own("import", "--dry-run", "--json", path)) == (0, 0, 1)
    assert counts(own("import", "--json", path)) == (0, 0, 1)
    own("verify")


def test_an_older_file_without_a_column_leaves_that_column_as_it_is(own, tmp_path):
    own("import", table(tmp_path, HEADINGS, "zed,,Zed,Provisional,-,[ZED],a note of IANA's"))
    older = table(tmp_path, "URI Scheme,Description,Reference,Status", "zed,Zed,[ZED2],Provisional")
    assert counts(own("import", "--dry-run", "--json", older)) == (0, 1, 0)
    own("import", older)
    found = fields(own)
    assert (found["well_known"], found["notes"], found["reference"]) == ("-", "a note of IANA's", "[ZED2]")
    assert counts(own("import", "--dry-run", "--json", older)) == (0, 0, 1)


def test_a_cell_that_became_blank_is_foretold_and_done(own, tmp_path):
    own("import", table(tmp_path, HEADINGS, "zed,,Zed,Provisional,-,[ZED],gone soon"))
    blank = table(tmp_path, HEADINGS, "zed,,Zed,Provisional,-,[ZED],")
    assert counts(own("import", "--dry-run", "--json", blank)) == (0, 1, 0)
    assert counts(own("import", "--json", blank)) == (0, 1, 0)
    assert "notes" not in fields(own)


def test_a_dry_run_with_contacts_tells_the_contacts_that_it_would_bring(own, tmp_path):
    path = table(tmp_path, HEADINGS, "zed,,Zed,Provisional,-,[Zoe],")
    own("import", path)
    people = tmp_path / "people.json"
    people.write_text('[["[Zoe]", "Zoe", "", "mailto:zoe&example.net", ""]]')
    words = ("import", "--json", "--contacts", str(people), path)
    assert counts(own(*words, "--dry-run")) == counts(own(*words)) == (0, 1, 0)
    assert fields(own)["contact"] == "Zoe <zoe@example.net>"


def test_a_dry_run_changes_nothing(own, tmp_path):
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database, database:
        number = "SELECT max(number) FROM log"
        before = database.execute(number).fetchone()
        own(
            "import", "--dry-run", table(tmp_path, HEADINGS, "zed,,Z,Permanent,-,[Z],", "yed,,Y,Permanent,,,")
        )
        assert database.execute(number).fetchone() == before
