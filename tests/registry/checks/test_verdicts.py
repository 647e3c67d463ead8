"""The errors in published texts, each judged by reading, and faults that were put into good texts.

`vectors/scheme_check_verdicts.json` has the judgements without the texts. Texts that are at hand in
`../shared` are checked. To check all, name a folder of RFC texts (`rfc4151.txt`):

    ONYM_SCHEME_TEXTS=/path/to/texts python -m pytest tests/registry/checks/test_verdicts.py
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from onym.registry.checks import Level, Report, check, load_document
from support import as_subtests

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
VERDICTS = json.loads((ROOT / "vectors" / "scheme_check_verdicts.json").read_text(encoding="utf-8"))[
    "documents"
]
FAULTS = json.loads((ROOT / "vectors" / "scheme_check_faults.json").read_text(encoding="utf-8"))
TEXTS = {name: "\n".join(rows) for name, rows in FAULTS["texts"].items()}
TODAY = date(2025, 7, 1)
#: where texts may be, and what the name of a document has there in front
FOLDERS = (
    (Path(os.environ.get("ONYM_SCHEME_TEXTS", os.devnull)), ""),
    (SHARED / "spec", ""),
    (SHARED / "spec" / "rfc", ""),
    (SHARED / "data" / "iana" / "templates" / "fred-wang", "iana-"),
    (SHARED / "data" / "iana" / "templates" / "git", ""),
)


def find_text(name: str) -> str | None:
    """Return the text of a document as it was judged, if it is at hand."""
    for folder, prefix in FOLDERS:
        path = folder / name.removeprefix(prefix)
        if name.startswith(prefix) and path.is_file():
            octets = path.read_bytes()
            if hashlib.sha256(octets).hexdigest() == VERDICTS[name]["sha256"]:
                return octets.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return None


def list_reported(name: str) -> Counter[tuple[str, int | None]]:
    errors = VERDICTS[name]["errors"]
    return Counter((error["code"], error.get("line")) for error in errors if error.get("reported", True))


@as_subtests("name", sorted(VERDICTS))
def test_each_error_in_a_published_text_was_judged_and_no_true_one_is_lost(name):
    text = find_text(name)
    if text is None:
        pytest.skip(f"{name} is not at hand")
    report = check(load_document(text, source=name), source=name)
    found = Counter((finding.code, finding.line) for finding in report.of(Level.ERROR))
    assert found == list_reported(name)
    undecided = any(finding.check == "S1" for finding in report.unchecked)
    assert undecided is (VERDICTS[name]["inclusion"] in ("undecided", "template only"))


def test_texts_are_at_hand_wherever_the_shared_data_is():
    if not SHARED.is_dir():
        pytest.skip("the specifications and data are not beside this checkout")
    assert sum(find_text(name) is not None for name in VERDICTS) >= 16


def test_at_most_five_errors_are_false_and_seven_answers_in_fifty_five_open():
    errors = [error for row in VERDICTS.values() for error in row["errors"]]
    assert all(error["true"] or error["reason"] for error in errors)
    assert sum(not error["true"] for error in errors if error.get("reported", True)) <= 5
    # an error that is right is always reported
    assert not [error for error in errors if error["true"] and not error.get("reported", True)]
    whole = [row for row in VERDICTS.values() if row["inclusion"] != "template only"]
    undecided = sum(row["inclusion"] == "undecided" for row in whole)
    assert undecided / len(whole) <= 7 / 55


def run_check(text: str) -> Report:
    return check(load_document(text), today=TODAY)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_good_texts_have_no_errors(name):
    assert [finding.code for finding in run_check(TEXTS[name]).of(Level.ERROR)] == []


def test_at_least_39_in_41_faults_of_good_texts_are_found():
    missed = []
    for fault in FAULTS["faults"]:
        text = TEXTS[fault["base"]]
        assert text.count(fault["replace"]) == 1
        before = {finding.code for finding in run_check(text).findings}
        after = {
            finding.code for finding in run_check(text.replace(fault["replace"], fault["with"])).findings
        }
        if fault["code"] in before or fault["code"] not in after:
            missed.append((fault["base"], fault["code"], fault["with"]))
    assert len(FAULTS["faults"]) >= 41
    assert len(missed) <= len(FAULTS["faults"]) * 2 / 41, missed
