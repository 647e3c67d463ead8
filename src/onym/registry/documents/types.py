"""The parts of a document: sections, templates, grammars, citations and examples.

Every position is a line number of the original text, counted from 1, so that a finding can refer to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class DocumentKind(StrEnum):
    """What a text was taken for."""

    TEMPLATE = "template"
    DRAFT = "internet-draft"
    RFC = "rfc"
    XML = "rfc-xml"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section: its number ("7.4", "A.1", None where unnumbered), title, text below the title."""

    number: str | None
    title: str
    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateValue:
    """One field of a template: the profile's field id, the label as written, the value, its line."""

    id: str
    label: str
    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One registration template. `repeated` holds labels that came again, `unknown` the foreign ones."""

    values: Mapping[str, TemplateValue]
    repeated: tuple[TemplateValue, ...] = ()
    unknown: tuple[TemplateValue, ...] = ()
    line: int
    section: str | None = None

    def text(self, identifier: str) -> str:
        """The value of a field, "" where it is absent."""
        value = self.values.get(identifier)
        return "" if value is None else value.text

    def line_of(self, identifier: str) -> int:
        """Where the field stands; the template's own line where it is absent."""
        value = self.values.get(identifier)
        return self.line if value is None else value.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """One citation in running text: the key ("RFC7595"), and the section cited with it, if any.

    `bare`: it is named ("RFC 7595", a draft's name) and not written as a key of a list.
    """

    key: str
    section: str | None
    line: int
    bare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One entry of a reference list."""

    key: str
    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines of ABNF, as they stand (page furniture out); `line` is where the first one stands.

    `marked`: the document says that it is ABNF; else it has the form.
    """

    text: str
    line: int
    section: str | None = None
    marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A URI that the text shows, wrapped lines joined."""

    uri: str
    line: int
    section: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text, read. `name` is "draft-levy-llm-uri-scheme-00", "RFC 7595" or None.

    `registry` is the one whose templates were looked for. `plain` is the text as it was read, without page
    furniture, markup, comments and front matter: its lines have the numbers of those of `text`.
    """

    kind: DocumentKind
    registry: str = "uri-schemes"
    name: str | None = None
    dated: date | None = None
    expires: date | None = None
    text: str
    plain: str = ""
    sections: tuple[Section, ...] = ()
    templates: tuple[Template, ...] = ()
    citations: tuple[Citation, ...] = ()
    references: tuple[Reference, ...] = ()
    blocks: tuple[Block, ...] = ()
    examples: tuple[Example, ...] = ()
