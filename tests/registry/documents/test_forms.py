"""Each form in which templates are written, alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from onym.errors import TemplateError
from onym.registry.documents import Document, DocumentKind, Template, read_document
from support import as_subtests

DATA = Path(__file__).parent / "data"


def read(name: str) -> Document:
    return read_document((DATA / name).read_text(encoding="utf-8"), source=name)


def values(template: Template) -> dict[str, str]:
    return {key: value.text for key, value in template.values.items()}


def one(text: str, **options: DocumentKind) -> dict[str, str]:
    (template,) = read_document(text, **options).templates
    return values(template)


def test_fields_that_are_sections_keep_their_subsections_and_end_with_the_section_around_them() -> None:
    (template,) = read("headings.txt").templates
    assert values(template) == {
        "name": "sample",
        "status": "permanent",
        "semantics": "What it means.\n\n3.3.1.  Details\n\nMore of it.",
        "contact": "J. Doe",
    }
    assert [(each.label, each.text) for each in template.unknown] == [("Remarks on Nothing", "Not a field.")]
    assert template.line_of("contact") == 21


def test_labels_alone_on_their_lines_have_their_values_below() -> None:
    (template,) = read("labels-alone.txt").templates
    found = values(template)
    assert found.pop("syntax").endswith("\n\nA paragraph at the labels' column goes on with the syntax.")
    assert found == {
        "name": "sample",
        "status": "Permanent",
        "security": "None.\nStatus: this is part of the value.",
        "contact": "J. Doe",
        "change_controller": "IETF",
        "references": "RFC 1",
    }
    assert not template.repeated


def test_labels_that_share_a_line_are_told_apart_even_when_wrapped() -> None:
    (template,) = read("run-together.txt").templates
    assert values(template) == {
        "name": "sample",
        "status": "Provisional",
        "applications": "Tests",
        "contact": "J. Doe <doe@example.org>",
        "change_controller": "J. Doe",
        "references": "This document; RFC\n3986",
    }
    assert [each.line for each in template.values.values()] == [1, 1, 1, 2, 2, 3]


def test_bold_labels_of_markdown_are_labels() -> None:
    document = read("bold.md")
    (template,) = document.templates
    assert document.kind is DocumentKind.MARKDOWN
    assert values(template) == {
        "name": "sample",
        "status": "Provisional",
        "applications": "Tests\nand more tests.",
        "contact": "- J. Doe\n- R. Roe",
        "change_controller": "J. Doe\n\n**Note:** this is a remark of the controller.",
        "references": "See [RFC 7595, Section 3.8](https://example.org/x).",
    }
    assert [(each.label, each.text) for each in template.unknown] == [("Favourite colour", "blue")]
    assert [(each.text, each.line, each.section) for each in document.blocks] == [
        ('sample-URI = "sample:" 1*ALPHA', 29, "Grammar")
    ]
    assert [each.uri for each in document.examples] == ["sample:shown"]
    assert [(each.key, each.section) for each in document.citations] == [("RFC7595", "3.8")]


def test_definition_lists_of_kramdown_and_its_references_are_read() -> None:
    document = read("kramdown.md")
    (template,) = document.templates
    assert values(template) == {
        "name": "sample",
        "status": "Provisional",
        "contact": "J. Doe",
        "change_controller": "J. Doe,\nagain",
    }
    assert template.section == "Registration of it"
    assert document.name == "draft-example-sample-latest"
    assert [(each.key, each.section) for each in document.citations] == [
        ("RFC3986", None),
        ("RFC9110", "4.2"),
        ("RFC4648", "2.1"),
        ("OTHER", None),
    ]
    assert [(each.key, each.text) for each in document.references] == [
        ("OTHER", "Another Document"),
        ("RFC3986", ""),
        ("RFC9110", ""),
        ("RFC4648", ""),
    ]


def test_rows_of_a_table_are_fields() -> None:
    (template,) = read("table.md").templates
    assert values(template) == {
        "name": "sample",
        "status": "provisional",
        "contact": "J. Doe",
        "change_controller": "J. Doe",
    }


def test_labels_that_come_again_and_foreign_labels_are_kept() -> None:
    (template,) = read("duplicates.txt").templates
    assert values(template) == {
        "contact": "early",
        "name": "sample",
        "status": "provisional",
        "applications": "tests",
        "change_controller": "one",
    }
    assert [(each.id, each.text, each.line) for each in template.repeated] == [
        ("status", "historical", 2),
        ("status", "permanent", 6),
    ]
    assert [(each.id, each.label) for each in template.unknown] == [
        ("", "Shceme author"),
        ("applications", "Intended usage"),
        ("change_controller", "Author"),
    ]


@as_subtests(
    "label",
    [
        "Scheme name:",
        "URI scheme name:",
        "URI Scheme Name.",
        "URL scheme name:",
        "scheme name :",
        "3.1.  URI Scheme Name",
        "## Scheme name",
        "**Scheme name:**",
        "**Scheme name**:",
        "__Scheme name__:",
        "*Scheme name:*",
        "`Scheme name:`",
        "- Scheme name:",
        "o  URI scheme name:",
        "•  Scheme name:",
        "Scheme\u00a0name:",
        "\ufeffScheme name:",
        "Scheme name\uff1a",
        "1.  Scheme name",
    ],
)
def test_every_spelling_of_the_label_names_the_scheme(label: str) -> None:
    assert one(f"{label}\n\n   sample\n")["name"] == "sample"


@pytest.mark.parametrize("value", ['"sample"', "'sample'.", "sample.", "`sample`", "*sample*", "“sample”"])
def test_quotes_and_a_final_stop_are_no_part_of_a_name(value: str) -> None:
    assert one(f"Scheme name: {value}\nStatus: permanent\n")["name"] == "sample"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "¶\n", " \n", "¶\r\n"])
def test_ends_of_lines_of_every_kind_are_read(end: str) -> None:
    text = end.join(["Scheme name: sample", "Status: permanent", "Contact:", "  J. Doe", ""])
    (template,) = read_document(text).templates
    assert values(template) == {"name": "sample", "status": "permanent", "contact": "J. Doe"}
    assert template.line_of("contact") == 3


@pytest.mark.parametrize(
    ("label", "field"),
    [
        ("Applications and/or protocols which use this URL scheme name", "applications"),
        ("Applications/protocols that use the 'sample' scheme", "applications"),
        ("URI schema semantics", "semantics"),
        ("URI scheme status", "status"),
        ("Character encoding considerations", "encoding"),
        ("Change controller(s)", "change_controller"),
        ("Relevant publications", "references"),
        ("Intended usage", "applications"),
        ("Author", "change_controller"),
    ],
)
def test_other_spellings_name_their_fields(label: str, field: str) -> None:
    assert one(f"Scheme name: sample\n{label}: a value\n") == {"name": "sample", field: "a value"}


def test_a_label_that_is_cut_by_the_end_of_a_line_is_one_label() -> None:
    text = "Scheme name: sample\nApplications/protocols that use this scheme\nname: tests\n"
    assert one(text) == {"name": "sample", "applications": "tests"}


def test_a_pasted_template_may_lack_its_name() -> None:
    assert one("Status: provisional\nContact: J. Doe\n") == {"status": "provisional", "contact": "J. Doe"}


def test_a_pasted_name_alone_is_a_template_that_lacks_the_rest() -> None:
    assert one("Scheme name: sample\n") == {"name": "sample"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Name: J. Doe\n",
        "Status: x\n",
        "Some prose.\n",
        "Name: J. Doe\nContact: x\nHobby: y\n# Z\n",
    ],
)
def test_what_only_resembles_a_template_is_refused(text: str) -> None:
    with pytest.raises(TemplateError) as caught:
        one(text) if "Hobby" not in text else read_document(text, kind=DocumentKind.RFC)
    assert caught.value.code == "registry.no-template"
    assert '"Scheme name:", "Status:"' in (caught.value.hint or "")
    assert read_document("Some prose.", need_template=False).templates == ()


def test_a_document_other_than_a_paste_needs_a_name_in_its_template() -> None:
    with pytest.raises(TemplateError):
        read_document("Status: provisional\nContact: J. Doe\n", kind=DocumentKind.DRAFT)


def test_a_generic_name_label_needs_two_more_fields() -> None:
    assert one("Name: sample\nStatus: permanent\nContact: J. Doe\n")["name"] == "sample"
    found = one("Contact:\n   Name: J. Doe\nScheme name: sample\nReferences: none\n")
    assert found == {"contact": "Name: J. Doe", "name": "sample", "references": "none"}


def test_two_templates_with_generic_names_are_told_apart() -> None:
    text = "Scheme: a\nStatus: permanent\nContact: x\nScheme: b\nStatus: permanent\nContact:\n  Name: y\n"
    assert [values(each) for each in read_document(text).templates] == [
        {"name": "a", "status": "permanent", "contact": "x"},
        {"name": "b", "status": "permanent", "contact": "Name: y"},
    ]


def test_a_generic_name_after_the_name_is_part_of_a_value() -> None:
    text = "Scheme name: a\nStatus: x\nContact: somebody\nName: y\n"
    assert one(text)["contact"] == "somebody\nName: y"


def test_the_first_line_of_a_paste_may_have_lost_its_indentation() -> None:
    assert one("Scheme name: a\n   Status: x\n   Contact: y\n") == {
        "name": "a",
        "status": "x",
        "contact": "y",
    }
    assert one("   Scheme name: a\nStatus: x\nContact: y\n")["contact"] == "y"


def test_text_left_of_the_labels_ends_a_template() -> None:
    text = "   Scheme name: a\n   Status: x\n   References: r\nBest regards,\n   Contact: not this\n"
    assert one(text) == {"name": "a", "status": "x", "references": "r"}


@pytest.mark.parametrize("rule", ["---", "-----", "======", "***", "_____"])
def test_a_rule_ends_a_template(rule: str) -> None:
    assert one(f"Scheme name: a\nStatus: x\nContact: c\n\n{rule}\n\nReferences: r\n") == {
        "name": "a",
        "status": "x",
        "contact": "c",
    }


def test_a_rule_inside_a_value_is_text() -> None:
    assert one("Scheme name: a\nContact:\n    x\n    ---\n    y\n")["contact"] == "x\n---\ny"


def test_prose_after_the_last_field_is_no_part_of_it_but_its_list_is() -> None:
    text = "Scheme name: a\nReferences:\n\n[1] one\n\n[2] two\n\nThank you.\n"
    assert one(text)["references"] == "[1] one\n\n[2] two"
    assert (
        one("Scheme name: a\nContact: x\nReferences: r\nand more\n\nThank you.\n")["references"]
        == "r\nand more"
    )


def test_marks_of_a_remark_or_an_address_are_no_labels() -> None:
    text = "Scheme name: a\nStatus: x\nContact: y\n\nNote: z\nhttps://example.org/\nsee a:b\n\nOdd field: w\n"
    (template,) = read_document(text).templates
    assert template.text("contact").startswith("y\n\nNote: z")
    assert [each.label for each in template.unknown] == ["Odd field"]


def test_headings_of_markdown_are_fields_until_the_section_around_them_ends() -> None:
    text = (
        "# A\n\n## Scheme name\na\n## Status\nx\n### More\nof it\n---\n"
        "## Scheme name\nb\n## Status\ny\n# Contact\nz\n"
    )
    assert [values(each) for each in read_document(text).templates] == [
        {"name": "a", "status": "x\n### More\nof it"},
        {"name": "b", "status": "y"},
    ]


def test_a_label_in_a_line_is_text_where_sections_are_the_fields() -> None:
    assert one("## Scheme name\na\n## Status\nx\nContact: y\n") == {"name": "a", "status": "x\nContact: y"}


def test_a_template_in_lines_ends_one_in_headings() -> None:
    text = '2.  URI Scheme Name\n\n   It is "a".\n\n3.  More\n\n   Scheme name: a\n   Status: x\n'
    assert one(text) == {"name": "a", "status": "x"}


def test_comments_fences_and_attributes_of_markdown_hide_what_they_should() -> None:
    text = (
        "# A\n<!-- Scheme name: x --> <!--\nStatus: y\n--> \n{::boilerplate}\n"
        "~~~ abnf\nScheme name: b\n~~~\nScheme name: c\nStatus: z\n"
    )
    assert one(text) == {"name": "c", "status": "z"}


def test_front_matter_that_never_ends_is_text() -> None:
    assert one("---\nScheme name: a\nStatus: b\n") == {"name": "a", "status": "b"}


def test_numbers_of_markdown_headings_are_taken_off_their_titles() -> None:
    document = read_document("# 3.1 Scheme name {#x}\na\n# 3.2. Status #\nb\n")
    assert [(each.number, each.title) for each in document.sections] == [
        ("3.1", "Scheme name"),
        ("3.2", "Status"),
    ]


def test_an_empty_field_is_there_and_empty() -> None:
    assert one("Scheme name: a\nContact:\nStatus: x\n")["contact"] == ""
    (template,) = read_document("Scheme name: a\n").templates
    assert template.text("contact") == ""
    assert template.line_of("contact") == 1
