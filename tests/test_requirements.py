"""spec/requirements.toml and the tests agree, read without running a test."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from requirement_records import ROOT, holders, records

SOURCES = {
    "llm": ROOT.parent / "shared" / "spec" / "draft-levy-llm-uri-scheme-00.txt",
    "ai": ROOT.parent / "shared" / "spec" / "draft-sogomonian-ai-uri-scheme-01.txt",
    **{
        name: ROOT.parent / "shared" / "spec" / "rfc" / f"{name}.txt"
        for name in ("rfc3986", "rfc4395", "rfc7595", "rfc8126")
    },
}
STATUSES = {"tested", "divergence", "later", "not-applicable"}
KEY_WORDS = re.compile(r"\b(MUST NOT|MUST|SHALL NOT|SHALL|SHOULD NOT|SHOULD|NOT RECOMMENDED|RECOMMENDED)\b")
#: the RFCs about registration demand with one word more
REGISTRY_WORDS = re.compile(KEY_WORDS.pattern[:-3] + r"|REQUIRED)\b")
#: the ai draft permits, and that is recorded too
PERMISSIONS_TOO = re.compile(KEY_WORDS.pattern[:-3] + r"|NEED NOT|MAY)\b")
_PAGE_BREAK = re.compile(r"\n+[^\n]*\[Page \d+\]\n\f?\n*(?:RFC \d+|Internet-Draft)[^\n]*\n+")


def squeezed(text: str) -> str:
    """Text with page furniture and all white space out, so that line breaks do not matter."""
    return re.sub(r"[\s\N{PILCROW SIGN}]+", "", _PAGE_BREAK.sub("\n", text))


@cache
def source_text(path: Path) -> str:
    if not path.is_file():
        pytest.skip(f"the specifications are not beside this checkout: {path.name}")
    return path.read_text(encoding="utf-8")


def test_every_id_that_a_test_names_exists() -> None:
    unknown = {name: where for name, where in holders().items() if name not in records()}
    assert not unknown


def test_every_tested_requirement_has_a_test() -> None:
    bare = [
        name for name, record in records().items() if record["status"] == "tested" and name not in holders()
    ]
    assert not bare


def test_what_is_not_tested_says_why_and_what_is_not_applicable_has_no_test() -> None:
    for name, record in records().items():
        assert record["status"] in STATUSES, name
        assert (record["status"] == "tested") == ("reason" not in record), name
        if record["status"] == "not-applicable":
            assert name not in holders(), name


def test_every_id_says_its_source_and_section_in_order_of_letters() -> None:
    letters: dict[str, str] = {}
    for name, record in records().items():
        source, section, letter = name.split("-", 1)[0], *name.split("-", 1)[1].rsplit("-", 1)
        assert source in {*SOURCES, "onym"}, name
        assert source == "onym" or record["section"].startswith(section), name
        assert letter > letters.get(f"{source}-{section}", ""), f"{name} is out of order"
        letters[f"{source}-{section}"] = letter


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_every_quoted_sentence_stands_in_its_source(source: str) -> None:
    text = squeezed(source_text(SOURCES[source]))
    for name, record in records().items():
        if name.startswith(f"{source}-"):
            for key in ("sentence", "part"):
                assert squeezed(record.get(key, "")) in text, f"{name}: {key}"


def test_each_record_of_the_draft_quotes_its_own_key_word() -> None:
    for name, record in records().items():
        if name.startswith("llm-"):
            said = KEY_WORDS.findall(record.get("part", "")) or KEY_WORDS.findall(record["sentence"])
            assert record["level"] in said, name


def test_no_key_word_of_the_draft_is_left_out() -> None:
    """Section by section: as many records as key words, and one more for each further list item."""
    text = source_text(SOURCES["llm"])
    body = text[text.index('3.1. The "llm" Scheme\nThe ') :]
    in_draft = KEY_WORDS.findall(body)
    ours = [record for name, record in records().items() if name.startswith("llm-")]
    items = [r for r in ours if r["sentence"].endswith("MUST:")]
    leads = {r["sentence"] for r in items}
    assert sorted(in_draft) == sorted([r["level"] for r in ours if r not in items] + ["MUST"] * len(leads))


@pytest.mark.parametrize("source", ["ai", "llm"])
def test_the_records_stand_in_the_order_of_the_draft(source: str) -> None:
    text = squeezed(source_text(SOURCES[source]))
    at = [
        text.index(squeezed(record["sentence"]))
        for name, record in records().items()
        if name.startswith(f"{source}-")
    ]
    assert at == sorted(at)


def test_no_key_word_of_the_ai_draft_is_left_out() -> None:
    """Each quoted sentence once gives all key words of the draft, and each has a record of its level."""
    text = source_text(SOURCES["ai"])
    about_the_words = text.index("The key words MUST")
    body = text[:about_the_words] + text[text.index("\n", about_the_words) :]
    ours = [record for name, record in records().items() if name.startswith("ai-")]
    sentences = dict.fromkeys(record["sentence"] for record in ours)
    said = [word for sentence in sentences for word in PERMISSIONS_TOO.findall(sentence)]
    assert sorted(said) == sorted(PERMISSIONS_TOO.findall(body))
    for record in ours:
        words = PERMISSIONS_TOO.findall(record["sentence"])
        assert record["level"] in words or (record["level"] == "rule" and not words), record["id"]


def test_nothing_comes_later() -> None:
    assert [name for name, record in records().items() if record["status"] == "later"] == []


@pytest.mark.parametrize(
    ("source", "begins"), [("rfc4395", "2.  Guidelines for Permanent URI"), ("rfc7595", "3.  Requirements")]
)
def test_no_key_word_of_the_registration_rfcs_is_left_out(source: str, begins: str) -> None:
    """A list that one key word leads has a record for each item."""
    text = _PAGE_BREAK.sub("\n", source_text(SOURCES[source]))
    body = " ".join(text[text.rindex(f"\n{begins}") :].split())
    ours = [record for name, record in records().items() if name.startswith(f"{source}-")]
    lists = {r["sentence"] for r in ours if r["sentence"].endswith((":", ": "))}
    said = [r["level"] for r in ours if r["level"] != "rule" and r["sentence"] not in lists]
    said += [REGISTRY_WORDS.findall(lead)[0] for lead in lists if REGISTRY_WORDS.findall(lead)]
    assert sorted(REGISTRY_WORDS.findall(body)) == sorted(said)


@pytest.mark.requirement("llm-10-a")
def test_every_security_consideration_of_the_draft_is_tested_and_none_is_excused() -> None:
    security = {name: r for name, r in records().items() if name.startswith("llm-10.")}
    assert {name.split("-")[1] for name in security} == {"10.1", "10.2", "10.3", "10.4", "10.5"}
    assert {r["status"] for r in security.values()} == {"tested"}
