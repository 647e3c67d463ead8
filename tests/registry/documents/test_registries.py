"""Templates of the other registries: parameters of llm URIs and ai namespaces, by the same reader."""

from __future__ import annotations

import pytest

from onym.errors import TemplateError, UnknownEntryError
from onym.registry.documents import profile_of_template, profile_reason, read_document, to_text
from onym.registry.documents._templates import get_labels
from onym.registry.registries import PROFILES, REGISTRIES

PARAMETER = """\
Parameter: top_k
Type: integer
Description: Sample among the k best.
  The rest is left out.
Contact: Ann Example <ann@example.net>
Change controller: Example Society <board@example.net>
Reference: https://example.net/top-k
"""


def values(text: str, registry: str) -> dict[str, str]:
    (template,) = read_document(text, registry=registry).templates
    return {name: value.text for name, value in template.values.items()}


def test_a_parameter_is_read_with_values_that_go_on() -> None:
    assert values(PARAMETER, "llm-parameters") == {
        "name": "top_k",
        "type": "integer",
        "description": "Sample among the k best.\nThe rest is left out.",
        "contact": "Ann Example <ann@example.net>",
        "change_controller": "Example Society <board@example.net>",
        "reference": "https://example.net/top-k",
    }


def test_a_namespace_is_read_with_a_key_a_line() -> None:
    text = "Namespace: agents\nAnchor: https://agents.example\nKeys:\n  one\n  two\nPurpose: tests\n"
    assert values(text, "ai-namespaces") == {
        "name": "agents",
        "anchor": "https://agents.example",
        "keys": "one\ntwo",
        "description": "tests",
    }


def test_marks_quotations_and_headings_are_read_as_in_templates_of_schemes() -> None:
    for text in (
        "**Parameter:** `top_k`\n\n**Type:** integer\n",
        "> Parameter: top_k\n> Type: integer\n",
        "# Parameter\n\ntop_k\n\n# Type\n\ninteger\n",
    ):
        assert values(text, "llm-parameters") == {"name": "top_k", "type": "integer"}


def test_lines_are_those_of_the_text_and_what_comes_again_or_is_foreign_is_kept() -> None:
    (template,) = read_document(f"A letter before.\n\n{PARAMETER}Unit: one\nType: number\n",
                                registry="llm-parameters").templates  # fmt: skip
    assert template.line == 3
    assert template.line_of("reference") == 9
    assert [(each.label, each.line) for each in template.unknown] == [("Unit", 10)]
    assert [(each.text, each.line) for each in template.repeated] == [("number", 11)]


def test_a_stand_in_is_read_only_where_the_label_itself_is_missing() -> None:
    alone = "Parameter: a\nType: text\nSpecification: s\nRegistrant: r\n"
    assert values(alone, "llm-parameters") | {"name": "", "type": ""} == {
        "name": "", "type": "", "reference": "s", "contact": "r",
    }  # fmt: skip
    (template,) = read_document(f"{alone}Reference: t\n", registry="llm-parameters").templates
    assert template.text("reference") == "t"
    assert [each.label for each in template.unknown] == ["Specification"]


def test_labels_of_one_registry_say_nothing_in_another() -> None:
    with pytest.raises(TemplateError) as caught:
        read_document("Parameter: a\nType: text\n", registry="ai-namespaces")
    assert caught.value.code == "registry.no-template"
    assert '"Namespace:", "Anchor:"' in (caught.value.hint or "")
    assert read_document("Namespace: a\n", need_template=False).templates == ()
    assert get_labels("llm-parameters").find("Applications/protocols that use this scheme") is None
    assert get_labels("llm-parameters").find("URI scheme type") is None


def test_a_registry_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownEntryError):
        read_document(PARAMETER, registry="tables")


def test_the_document_says_of_which_registry_its_templates_are() -> None:
    document = read_document(PARAMETER, registry="llm-parameters")
    assert document.registry == "llm-parameters"
    (template,) = document.templates
    assert profile_of_template(template, document.registry) == "specification-required"
    assert "has no other procedure" in profile_reason(template, document.registry)
    assert profile_of_template(template) == "rfc7595"


@pytest.mark.parametrize("registry", REGISTRIES)
def test_what_is_written_in_a_procedures_form_reads_back(registry: str) -> None:
    for profile in REGISTRIES[registry].profiles:
        given = {each.id: f"{each.id} one\n\n  two" for each in PROFILES[profile].fields}
        given |= {"name": "kite"} | ({"status": "permanent"} if "status" in given else {})
        assert values(to_text(given, profile), registry) == given


@pytest.mark.parametrize("registry", REGISTRIES)
def test_every_label_of_every_profile_is_found_as_its_field(registry: str) -> None:
    labels = get_labels(registry)
    for profile in REGISTRIES[registry].profiles:
        for field in PROFILES[profile].fields:
            assert field.label not in field.weak | field.stand_ins
            assert field.weak | field.stand_ins <= set(field.labels)
            for spelling in field.labels:
                found = labels.find(f"**{spelling.upper()}:**")
                assert found is not None
                assert (found.id, found.weak, found.stand_in) == (
                    field.id, spelling in field.weak, spelling in field.stand_ins,
                ), spelling  # fmt: skip
