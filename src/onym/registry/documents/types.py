"""The parts of a document: sections, templates, grammars, citations and examples.

Positions are line numbers of the original text, counted from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class DocumentKind(StrEnum):
    """The kind of a text."""

    TEMPLATE = "template"
    DRAFT = "internet-draft"
    RFC = "rfc"
    XML = "rfc-xml"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section: its number ("7.4", "A.1", None if it has none), its title and the text below the title."""

    number: str | None
    title: str
    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateValue:
    """A field of a template: the profile's field id, the label as written, the value and its line."""

    id: str
    label: str
    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A registration template. `repeated` has fields that are given again, `unknown` other labels."""

    values: Mapping[str, TemplateValue]
    repeated: tuple[TemplateValue, ...] = ()
    unknown: tuple[TemplateValue, ...] = ()
    line: int
    section: str | None = None

    def text(self, identifier: str) -> str:
        """Return the value of a field; "" if it is absent."""
        value = self.values.get(identifier)
        return "" if value is None else value.text

    def line_of(self, identifier: str) -> int:
        """Return the line of a field; that of the template if the field is absent."""
        value = self.values.get(identifier)
        return self.line if value is None else value.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A citation in running text: the key ("RFC7595") and the cited section, if any.

    `bare` means that the text names it ("RFC 7595", a draft) instead of the key of a reference.
    """

    key: str
    section: str | None
    line: int
    bare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An entry of a reference list."""

    key: str
    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines of ABNF without page furniture; `line` is the first line.

    `marked` means that the document marks it as ABNF; otherwise only its form does. `form` means that it is a
    rule made from a URI with names in angle brackets, whose parts may be optional by prose.
    """

    text: str
    line: int
    section: str | None = None
    marked: bool = False
    form: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A URI that the text shows, with wrapped lines joined.

    `tail` is punctuation between the URI and its closing quote or bracket, which may be part of the URI.
    """

    uri: str
    line: int
    section: str | None = None
    tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed text. `name` is "draft-levy-llm-uri-scheme-00", "RFC 7595" or None.

    `registry` is the registry of the templates. `plain` is the text without page furniture, markup, comments
    and front matter; its line numbers are those of `text`.
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
