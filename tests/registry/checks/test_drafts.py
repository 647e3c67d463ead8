"""Both drafts: every defect of theirs that a program can find is found, at its line, under both profiles."""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path

import pytest

from onym.registry.checks import Finding, Level, Report, check, load_document

SPECS = Path(__file__).resolve().parents[3].parent / "shared" / "spec"
LLM, AI = "draft-levy-llm-uri-scheme-00.txt", "draft-sogomonian-ai-uri-scheme-01.txt"


@cache
def text_of(name: str) -> str:
    path = SPECS / name
    if not path.is_file():
        pytest.skip(f"the specifications are not beside this checkout: {name}")
    return path.read_text(encoding="utf-8")


@cache
def checked(name: str, profile: str = "rfc7595") -> Report:
    return check(
        load_document(text_of(name), source=name), profile=profile, today=date(2026, 11, 21), source=name
    )


def found(name: str, code: str, profile: str = "rfc7595") -> list[Finding]:
    return [each for each in checked(name, profile).findings if each.code == code]


def at(name: str, each: Finding) -> str:
    assert each.line is not None
    return text_of(name).split("\n")[each.line - 1]


@pytest.mark.parametrize(("name", "witness"), [(LLM, "llm:///a#"), (AI, "ai:#")])
def test_the_fragment_is_the_one_fault_of_both_grammars(name, witness):
    (fault,) = found(name, "fragment-in-syntax")
    assert (fault.level, fault.witness) == (Level.ERROR, witness)
    assert '`[ "#" fragment ]`' in fault.fix
    assert found(name, "fragment-in-syntax", "rfc4395")[0].clause == "RFC 4395 2.2"


def test_llm_uri_is_defined_twice_and_userinfo_is_another_than_that_of_rfc_3986():
    (twice,) = found(LLM, "repeated-rule")
    assert "llm-URI" in twice.message
    assert at(LLM, twice).startswith("llm-URI")
    assert "userinfo" in " ".join(each.message for each in found(LLM, "redefined-rule"))


@pytest.mark.parametrize(
    ("name", "code", "witness"),
    [
        (LLM, "empty-host", "llm:///a"),
        (LLM, "dot-segments", "llm:///."),
        (LLM, "password-in-userinfo", "llm://a:a@/a"),
        (AI, "bare-scheme", "ai:"),
        (AI, "empty-host", "ai://"),
        (AI, "password-in-userinfo", "ai://:@"),
    ],
)
def test_the_forms_that_the_grammars_admit_are_shown(name, code, witness):
    assert [each.witness for each in found(name, code)] == [witness]


def test_llm_cites_what_it_does_not_list_and_lists_what_it_does_not_cite():
    assert {each.witness for each in found(LLM, "reference-uncited")} == {"[OPENAI-API]", "[RFC8446]"}
    assert [each.witness for each in found(LLM, "draft-unlisted")] == ["draft-sogomonian-ai-uri-scheme"]
    for name in (LLM, AI):
        assert "This document" in found(name, "this-document")[0].witness
    assert not found(LLM, "section-does-not-fit")
    assert not found(LLM, "section-unknown")


def test_every_example_of_llm_is_in_its_own_grammar_and_two_are_no_absolute_uris():
    assert not found(LLM, "example-not-in-syntax")
    assert len(found(LLM, "example-has-fragment")) == 2


def test_the_llm_template_is_complete_under_rfc_7595_and_lacks_five_fields_under_rfc_4395():
    assert not found(LLM, "field-missing")
    missing = {each.field for each in found(LLM, "field-missing", "rfc4395")}
    assert missing == {"syntax", "semantics", "encoding", "interoperability", "security"}


def test_ai_cites_the_wrong_section_for_the_template():
    (wrong,) = found(AI, "section-does-not-fit")
    assert (wrong.level, wrong.fix) == (Level.WARNING, "write `[RFC7595] Section 7.4`")
    assert "Definition of Operations" in wrong.message
    assert "Section 3.4" in at(AI, wrong)


def test_ai_names_no_address_of_its_change_controller_and_spells_a_label_otherwise():
    assert [each.field for each in found(AI, "no-address")] == ["change_controller"]
    assert [each.field for each in found(AI, "label-spelling")] == ["applications"]


def test_ai_uses_names_of_other_registries_that_it_does_not_ask_for():
    assert {each.witness for each in found(AI, "not-requested")} == {
        "/.well-known/aiip",
        "/.well-known/aiip.jwks.json",
        'rel="aiip"',
        "_aiip._tcp",
        "_aiip",
    }
    assert not found(LLM, "not-requested")


def test_ai_has_a_word_that_bcp_14_has_not_and_urls_that_are_not_ascii():
    assert [each.witness for each in found(AI, "keyword-unknown")] == ["NEED NOT"]
    # "bank", without a dot, is no name of the DNS
    assert not found(AI, "real-host-in-example")
    broken = found(AI, "example-not-ascii")
    assert len(broken) >= 2
    assert all("&currency=USD" in each.fix and "\u00a4" in at(AI, each) for each in broken)
    assert [each.witness for each in found(AI, "protocol-without-reference")] == ["AIIP"]


@pytest.mark.parametrize(("name", "day"), [(LLM, "2026-08-10"), (AI, "2026-04-05")])
def test_both_have_expired_which_is_a_fact_and_no_fault(name, day):
    (expired,) = found(name, "draft-expired")
    assert day in expired.message
    assert expired.level is Level.HINT


def test_names_near_ai_are_told_and_llm_has_none():
    assert "aim, ar, ari, at, aw, ni" in found(AI, "name-near")[0].message
    assert not found(LLM, "name-near")
    assert not found(LLM, "name-taken") + found(AI, "name-taken")
