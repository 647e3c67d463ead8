"""What a check reads and returns: the context of one template, findings and the report.

`DocumentText` is the prose of a document, computed once for all of its templates. `CheckContext` adds one
template, the profile that applies, the reference data and the grammar, and makes the findings.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.registry.checks._grammar import SchemeGrammar
from onym.registry.documents import types
from onym.registry.records import EMPTY, Entry, Request, Status
from onym.registry.registries import BUILTIN, Profile, clean_name

if TYPE_CHECKING:
    from onym.registry.iana import RFC

#: letters in lower case that look like others, the longer ones first
_LOOK_ALIKES: Final = tuple(
    pair.split() for pair in ("rn m", "vv w", "cl d", "0 o", "1 l", "i l", "5 s", "2 z")
)
_LAST: Final = "\U0010ffff"


def compute_skeleton(name: str) -> str:
    """Return the name with letters that look alike made the same."""
    for letters, replacement in _LOOK_ALIKES:
        name = name.replace(letters, replacement)
    return name


def is_one_edit_apart(one: str, other: str) -> bool:
    """Return whether the names differ in one letter that is added, removed or changed. Linear."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    short, long = sorted((one, other), key=len)
    index = next((index for index, char in enumerate(short) if char != long[index]), len(short))
    rest = short[index + 1 :] if len(short) == len(long) else short[index:]
    return rest == long[index + 1 :]


class NameIndex:
    """The names of a registry in lower case, sorted so that similar names are found quickly."""

    __slots__ = ("_backward", "_forward", "_skeletons", "_spellings")

    def __init__(self, names: Iterable[str]) -> None:
        spelled = tuple(names)
        self._spellings = {name.lower(): name for name in spelled if name != name.lower()}
        self._forward = sorted({name.lower() for name in spelled})
        self._backward = sorted(name[::-1] for name in self._forward)
        # most names are equal to their skeleton and are found among the names
        self._skeletons: dict[str, list[str]] = {}
        for name in self._forward:
            skeleton = compute_skeleton(name)
            if skeleton != name:
                self._skeletons.setdefault(skeleton, []).append(name)

    def __len__(self) -> int:
        return len(self._forward)

    def __iter__(self) -> Iterator[str]:
        return iter(self._forward)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._slice_range(self._forward, name, name + "\0") != []

    def get_spelling(self, name: str) -> str:
        """Return the registry's spelling of a name in lower case."""
        return self._spellings.get(name, name)

    def find_similar(self, name: str) -> set[str]:
        """Return every name with the same skeleton or one letter away from `name`, and some others.

        One edit leaves the first or the second half of a name unchanged, so both halves are searched.
        """
        skeleton, half = compute_skeleton(name), len(name) // 2
        similar = {skeleton} & {*self._slice_range(self._forward, skeleton, skeleton + "\0")}
        similar.update(self._skeletons.get(skeleton, ()))
        begin, end = name[:half], name[half:][::-1]
        similar.update(self._slice_range(self._forward, begin, begin + _LAST))
        similar.update(name[::-1] for name in self._slice_range(self._backward, end, end + _LAST))
        return similar

    @staticmethod
    def _slice_range(names: list[str], begin: str, end: str) -> list[str]:
        return names[bisect_left(names, begin) : bisect_left(names, end)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceData:
    """Facts for the checks. If a member is empty, checks that need it report that they could not run.

    `entries` maps names in lower case. If a registry is too large to load, `names` has all of its names, and
    `entries` only those that the document may be about. `requests` has the public open requests for new
    names, oldest first, by names in lower case. `rfcs` maps numbers; with `all_rfcs` it is complete.
    `tlds` are top-level domains without the dot, in lower case, `services` the service names of RFC 6335.
    """

    entries: Mapping[str, Entry] = field(default_factory=lambda: EMPTY)
    names: NameIndex | None = None
    requests: Mapping[str, tuple[Request, ...]] = field(default_factory=lambda: MappingProxyType({}))
    rfcs: Mapping[int, RFC] = field(default_factory=lambda: MappingProxyType({}))
    all_rfcs: bool = False
    tlds: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()

    def with_entries(
        self,
        entries: Mapping[str, Entry],
        names: NameIndex | None = None,
        requests: Mapping[str, tuple[Request, ...]] = MappingProxyType({}),
    ) -> ReferenceData:
        """Return the same facts with these entries and requests, and the names of a large registry."""
        return replace(self, entries=entries, names=names, requests=requests)

    @property
    def has_names(self) -> bool:
        """Whether the registered names are known."""
        return self.names is not None or bool(self.entries)

    def find_similar(self, name: str) -> Collection[str]:
        """Return registered names; they include all that may be confused with `name`."""
        return self.entries.keys() if self.names is None else self.names.find_similar(name)


@cache
def load_builtin(registry: str = "uri-schemes") -> ReferenceData:
    """Return the shipped facts, read once: 400 schemes, known RFCs, top-level domains, service names."""
    # late: only this function needs the data
    from onym.registry.iana import load_builtin_snapshot, load_known_rfcs

    entries = load_builtin_snapshot(registry).entries
    services = _read_data_file("service-names.txt").splitlines()
    return ReferenceData(
        entries=MappingProxyType({entry.name.lower(): entry for entry in entries}),
        rfcs=load_known_rfcs(),
        tlds=_load_tlds(),
        services=frozenset(line for line in services if line and not line.startswith("#")),
    )


@cache
def load_section_titles() -> Mapping[int, Mapping[str, str]]:
    """Return the section titles by number of the RFCs that registrations cite: 3986, 7595, 8126, ..."""
    titles_by_rfc = json.loads(_read_data_file("rfc-sections.json"))
    return MappingProxyType(
        {int(number): MappingProxyType(titles) for number, titles in titles_by_rfc.items()}
    )


@cache
def load_word_list(kind: str) -> frozenset[str]:
    """Return a word list: `general` (RFC 7595 3.8), or names that are registered already.

    These are `link-relations`, `well-known-uris`, `node-names` and `service-names`, which has those that
    `ReferenceData.services` lacks.
    """
    return frozenset(json.loads(_read_data_file("words.json"))[kind].split())


def _read_data_file(name: str) -> str:
    return files("onym.registry.checks").joinpath(f"data/{name}").read_text(encoding="utf-8")


def _load_tlds() -> frozenset[str]:
    """Return the rules with one label of the Public Suffix List's ICANN part."""
    text = files("publicsuffixlist").joinpath("public_suffix_list.dat").read_text(encoding="utf-8")
    part = text.partition("===BEGIN ICANN DOMAINS===")[2].partition("===END ICANN DOMAINS===")[0]
    rules = (line.strip().lstrip("*!.") for line in part.splitlines() if not line.startswith("//"))
    return frozenset(_encode_label(rule.lower()) for rule in rules if rule and "." not in rule)


def _encode_label(label: str) -> str:
    """Return the A-label of a normal label (RFC 5891 4.4): names of schemes and hosts in URIs are ASCII."""
    return label if label.isascii() else f"xn--{label.encode('punycode').decode()}"


class Level(StrEnum):
    """The severity: an error blocks registration, a warning needs an answer, a hint is a heuristic."""

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding.

    `check` is the id of the check ("S1"), `code` its stable kebab-case name ("fragment-in-syntax"),
    `clause` the clause of the profile that applies, `field` the template field or None. `line` and `column`
    count from 1. `witness` is a string that shows the problem, `fix` what to write instead.
    """

    check: str
    code: str
    level: Level
    message: str
    clause: str
    field: str | None = None
    line: int | None = None
    column: int | None = None
    witness: str | None = None
    fix: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for `--json`, without the members that are None."""
        members = {name: getattr(self, name) for name in self.__slots__}
        members["level"] = str(self.level)
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings about one document under one profile, by severity, importance of the check and line."""

    source: str
    profile: str
    scheme: str | None
    findings: tuple[Finding, ...]
    #: ids of the checks that ran; if a check could not run, a finding gives the reason
    ran: tuple[str, ...] = ()

    def of(self, level: Level) -> tuple[Finding, ...]:
        """Return the findings of one level."""
        return tuple(finding for finding in self.findings if finding.level is level)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error; warnings and hints are allowed."""
        return not self.of(Level.ERROR)

    @property
    def unchecked(self) -> tuple[Finding, ...]:
        """The hints that something could not be checked."""
        return tuple(finding for finding in self.findings if finding.code == UNCHECKED)

    @property
    def questions(self) -> tuple[Finding, ...]:
        """The questions for a person, which are the same for every document."""
        return tuple(finding for finding in self.findings if finding.check.startswith("Q"))

    @property
    def plain(self) -> tuple[Finding, ...]:
        """The findings about the document: neither unchecked subjects nor questions."""
        apart = {*self.unchecked, *self.questions}
        return tuple(finding for finding in self.findings if finding not in apart)

    @property
    def counts(self) -> dict[str, int]:
        """The number of plain findings of each level, as every report shows them."""
        return {str(level): sum(finding.level is level for finding in self.plain) for level in Level}

    def without_questions(self) -> Report:
        """Return the report without the questions for a person."""
        asked = set(self.questions)
        return replace(self, findings=tuple(finding for finding in self.findings if finding not in asked))


#: the code of a hint that something could not be checked
UNCHECKED: Final = "could-not-check"
#: characters of a document's text that the checks of prose read
MAX_PROSE: Final = 2_000_000
#: lines above and below a citation in which its sentence is searched
_LINES_ABOVE: Final = 3
_LINES_BELOW: Final = 2
#: characters of that sentence before and after the citation
_CHARACTERS_BEFORE: Final = 320
_CHARACTERS_AFTER: Final = 160
#: lines and characters under a template's title that do not yet make the document a specification
_FEW_LINES: Final = 2
_FEW_CHARACTERS: Final = 240
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+")
_PARAGRAPH_END: Final = re.compile(r"\n[ \t]*\n")
_KEY_WORD: Final = re.compile(r"\b(?:MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b")


class DocumentText:
    """A document's text without markup, comments and page furniture, and its sections by title."""

    def __init__(self, document: types.Document) -> None:
        self.document = document
        #: line n of this text is line n of the document's text
        self.text = (document.plain or document.text)[:MAX_PROSE]
        self._sections: dict[tuple[str, ...], tuple[types.Section, ...]] = {}

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines of the text."""
        return tuple(self.text.split("\n"))

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def get_line(self, offset: int) -> int:
        """Return the line of an offset in the text, counted from 1."""
        return bisect_right(self._line_starts, offset)

    @cached_property
    def prose(self) -> str:
        """The text up to MAX_PROSE characters, with each run of white space as one space."""
        return squeeze_spaces(self.text)

    @cached_property
    def prose_without_blocks(self) -> str:
        """`prose` without the lines of ABNF."""
        return squeeze_spaces("\n".join(self._lines_without_blocks))

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of `prose_without_blocks`; a heading or a code fence also ends a sentence."""
        lines = list(self._lines_without_blocks)
        for number in self._heading_lines:
            lines[number - 1 : number] = [""] if number <= len(lines) else []
        return split_sentences("\n".join("" if line.startswith(("```", "~~~")) else line for line in lines))

    @cached_property
    def _lines_without_blocks(self) -> tuple[str, ...]:
        lines = list(self.lines)
        for block in self.document.blocks:
            for index in range(block.line - 1, min(block.line + block.text.count("\n"), len(lines))):
                lines[index] = ""
        return tuple(lines)

    def find_sections(self, words: tuple[str, ...]) -> tuple[types.Section, ...]:
        """Return the sections whose title contains one of `words` (lower case), and their subsections."""
        if words not in self._sections:
            sections = self.document.sections
            named = [any(word in section.title.lower() for word in words) for section in sections]
            numbers = {section.number for section, hit in zip(sections, named, strict=True) if hit} - {None}
            self._sections[words] = tuple(
                section
                for section, hit in zip(sections, named, strict=True)
                if hit or _is_subsection(section.number, numbers)
            )
        return self._sections[words]

    @cached_property
    def is_specification(self) -> bool:
        """Whether the document is a specification and not only a template."""
        document = self.document
        if document.kind is not types.DocumentKind.MARKDOWN:
            return document.kind is not types.DocumentKind.TEMPLATE
        if not document.templates:
            return bool(document.sections or document.blocks)
        if any(
            squeeze_spaces(block.text.lstrip().partition("\n")[0]) not in self._rows_of_fields
            for block in document.blocks
        ):
            return True
        # the first heading is the title; a template may have its own headings or be under one
        title, rest = document.sections[:1], document.sections[1:]
        return any(map(self._has_introduction, title)) or any(
            section.text.strip() and not self._is_template_section(section) for section in rest
        )

    def _has_introduction(self, title: types.Section) -> bool:
        """Return whether the text between the title and the first template is longer than an introduction."""
        starts = [template.line for template in self.document.templates]
        starts += [section.line for section in self.document.sections[1:2]]
        end = min((line for line in starts if line > title.line), default=len(self.lines) + 1)
        rows = [line.strip() for line in self.lines[title.line : end - 1] if line.strip()]
        if _KEY_WORD.search("\n".join(rows)):
            return True
        is_long = len(rows) > _FEW_LINES or sum(map(len, rows)) > _FEW_CHARACTERS
        return is_long and not self._is_template_section(title)

    @cached_property
    def _fields(self) -> tuple[types.TemplateValue, ...]:
        return tuple(
            value
            for template in self.document.templates
            for value in (*template.values.values(), *template.repeated, *template.unknown)
        )

    @cached_property
    def _rows_of_fields(self) -> frozenset[str]:
        return frozenset(squeeze_spaces(line) for value in self._fields for line in value.text.split("\n"))

    def _is_template_section(self, section: types.Section) -> bool:
        return (section.number or section.title) in self._template_names or section.line in self._field_lines

    @cached_property
    def _template_names(self) -> frozenset[str | None]:
        return frozenset(template.section for template in self.document.templates)

    @cached_property
    def _field_lines(self) -> frozenset[int]:
        return frozenset(value.line for value in self._fields)

    def is_field(self, line: int) -> bool:
        """Return whether a field of a template begins on that line."""
        return line in self._field_lines

    @cached_property
    def _heading_lines(self) -> frozenset[int]:
        return frozenset(section.line for section in self.document.sections)

    def get_title(self, line: int) -> str:
        """Return the title of the section that contains a line; "" before the first section."""
        index = bisect_right(self.document.sections, line, key=lambda section: section.line)
        return self.document.sections[index - 1].title if index else ""

    def get_sentence(self, citation: types.Citation) -> str:
        """Return the text around a citation: the nearby lines of its paragraph, cut to the sentence."""
        above = citation.line
        while citation.line - above < _LINES_ABOVE and self._is_paragraph_line(above - 1):
            above -= 1
        below = citation.line
        while below - citation.line < _LINES_BELOW and self._is_paragraph_line(below + 1):
            below += 1
        window = squeeze_spaces("\n".join(self.lines[above - 1 : below]))
        offset = -1 if citation.section is None else window.find(f"ection {citation.section}")
        offset = window.find(citation.section or citation.key) if offset < 0 else offset
        before = window[:offset].rpartition(". ")[2] if offset >= 0 else window
        after = window[offset : offset + _CHARACTERS_AFTER].partition(". ")[0] if offset >= 0 else ""
        return before[-_CHARACTERS_BEFORE:] + after

    def _is_paragraph_line(self, line: int) -> bool:
        inside = 0 < line <= len(self.lines) and line not in self._heading_lines
        return inside and bool(self.lines[line - 1].strip())

    def find_block(self, line: int | None) -> types.Block | None:
        """Return the block of ABNF that contains a line of the text."""
        index = 0 if line is None else bisect_right(self.document.blocks, line, key=lambda block: block.line)
        if not index or line is None:
            return None
        block = self.document.blocks[index - 1]
        return block if line <= block.line + block.text.count("\n") else None


def split_sentences(text: str) -> tuple[str, ...]:
    """Return the sentences of a text, white space squeezed; the end of a paragraph ends a sentence."""
    paragraphs = (squeeze_spaces(paragraph) for paragraph in _PARAGRAPH_END.split(text))
    return tuple(
        sentence for paragraph in paragraphs for sentence in _SENTENCE_END.split(paragraph) if sentence
    )


def squeeze_spaces(text: str) -> str:
    """Return the text with each run of white space as one space."""
    return " ".join(text.split())


def _is_subsection(number: str | None, numbers: Collection[str | None]) -> bool:
    while number and "." in number:
        number = number.rpartition(".")[0]
        if number in numbers:
            return True
    return False


#: characters of untrusted text that a finding repeats
MAX_SHOWN: Final = 80

#: a comment after the status
_STATUS_COMMENT: Final = re.compile(r"\([^()]*\)|[;.,](?: |\n).*\Z", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z-]*")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,62}")
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_STATUSES: Final = {
    status.value: status
    for status in (
        Status.PERMANENT,
        Status.PROVISIONAL,
        Status.HISTORICAL,
        Status.REGISTERED,
        Status.ACTIVE,
    )
}
#: headings of the columns of the URI schemes that are not fields of a template (RFC 8615 5.2)
_COLUMN_HEADINGS: Final = frozenset(
    column.heading.lower()
    for column in BUILTIN.registries["uri-schemes"].columns
    if column.id in ("well_known", "cri_number")
)
Findings: TypeAlias = Iterator[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of the table. It runs only under the profiles in `clauses`, which maps them to a clause."""

    id: str
    title: str
    clauses: dict[str, str]
    level: Level
    run: Callable[[CheckContext], Findings]


@dataclass(kw_only=True)
class CheckContext:
    """One template of one document, with everything that a check reads."""

    document: types.Document
    reading: DocumentText
    profile: Profile
    known: ReferenceData
    template: types.Template | None
    syntax: SchemeGrammar
    #: the scheme that the grammar of a text without a template defines; "" if none was inferred
    inferred: str = ""
    today: date | None = None
    #: whether the request updates the entry of this name
    update: bool = False
    #: the check that runs
    check: Check = field(init=False)
    #: the findings of the checks that ran before, which T6 reads
    findings: list[Finding] = field(default_factory=list)

    def report(
        self,
        code: str,
        message: str,
        *,
        at: str | None = None,
        field: str | None = None,
        line: int | None = None,
        column: int | None = None,
        level: Level | None = None,
        clause: str | None = None,
        witness: str | None = None,
        fix: str | None = None,
        shown: int = MAX_SHOWN,
    ) -> Finding:
        """Return a finding of the check that runs; `at` is the id of a field, which gives the line too.

        `witness` may be untrusted text: up to `shown` characters of it are repeated.
        """
        return Finding(
            check=self.check.id,
            code=code,
            level=self.check.level if level is None else level,
            message=message,
            clause=clause or self.profile.cite(self.check.clauses[self.profile.checks]),
            field=at or field,
            line=line if at is None else self.get_line(at),
            column=column,
            witness=None if witness is None else to_printable(witness, shown),
            fix=fix,
        )

    def report_syntax(self, code: str, message: str, *, rule: str | None = None, **more: Any) -> Finding:
        """Return a finding about a rule of the grammar (None: the scheme's rule), at the rule's line."""
        line = self.syntax.line_of(self.syntax.start or "" if rule is None else rule)
        return self.report(code, message, field="syntax", line=line, **more)

    def report_unchecked(
        self, subject: str, reason: str, *, line: int | None = None, fix: str | None = None
    ) -> Finding:
        """Return the hint that something was not checked, and why. Without this hint it was checked."""
        message = f"not checked: {subject}: {reason}"
        return self.report(UNCHECKED, message, level=Level.HINT, line=line, fix=fix)

    @cached_property
    def name(self) -> str:
        """The requested name without quotes, brackets and a closing colon; "" without a name."""
        return clean_name(self.raw_name)

    @property
    def is_new_name(self) -> bool:
        """Whether the registry has no entry of this name, as far as is known."""
        return not self.update and lower_ascii(self.name) not in self.known.entries

    @property
    def raw_name(self) -> str:
        """The name as the template spells it."""
        return "" if self.template is None else self.template.text("name")

    @cached_property
    def scheme(self) -> str:
        """The document's scheme in lower case: that of the template, else that of the grammar, else ""."""
        name = lower_ascii(self.name)
        return name if _SCHEME.fullmatch(name) else (self.inferred or self.syntax.scheme or "")

    @cached_property
    def wanted_names(self) -> tuple[str, ...]:
        """The names of all templates of the document in lower case, this one's first."""
        names = (self.name, *(clean_name(template.text("name")) for template in self.document.templates))
        return tuple(dict.fromkeys(name for name in map(lower_ascii, names) if _SCHEME.fullmatch(name)))

    @cached_property
    def status(self) -> Status | None:
        """The requested status; None if the template names no status, or two."""
        text = _STATUS_COMMENT.sub("", "" if self.template is None else self.template.text("status")[:4096])
        words = [word.lower() for word in _WORD.findall(text)]
        if not words or len(_STATUSES.keys() & words) > 1:
            return None
        return _STATUSES.get(words[0])

    def get_field(self, identifier: str) -> str:
        """Return a field of the template, white space squeezed; "" if the field is absent."""
        return "" if self.template is None else squeeze_spaces(self.template.text(identifier))

    def get_line(self, identifier: str) -> int | None:
        """Return the line of a field, or that of the template if the field is absent."""
        return None if self.template is None else self.template.line_of(identifier)

    def find_sections(self, *words: str) -> tuple[types.Section, ...]:
        """Return the sections whose title contains one of `words` (lower case), and their subsections."""
        return self.reading.find_sections(words)

    def collect_prose(self, identifier: str, *words: str) -> str:
        """Return a field's text and the text of the sections on the same subject.

        In a specification without headings this is the whole text.
        """
        if self.is_specification and not self.document.sections:
            return self.prose
        sections = (squeeze_spaces(section.text) for section in self.find_sections(*words))
        return "\n".join([self.get_field(identifier), *sections]).strip()

    @property
    def prose(self) -> str:
        """The prose of the document (`DocumentText.prose`)."""
        return self.reading.prose

    @property
    def is_specification(self) -> bool:
        """Whether the document is a specification and not only a template."""
        return self.reading.is_specification


def is_column_label(label: str) -> bool:
    """Return whether a label is the heading of a column that later RFCs added to the URI schemes."""
    return squeeze_spaces(label).lower().rstrip(" :") in _COLUMN_HEADINGS


def lower_ascii(name: str) -> str:
    """Return the name with ASCII letters in lower case; the Kelvin sign does not become k (decision 0026)."""
    return name.translate(_LOWER)


def to_printable(text: str, limit: int = MAX_SHOWN) -> str:
    """Return untrusted text that is safe to print: cut to `limit` characters, with code points escaped."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(
        character
        if character.isprintable() and (character.isascii() or unicodedata.category(character)[0] in "LNPSZ")
        else f"<U+{ord(character):04X}>"
        for character in cut
    )


#: spaces that a reader does not see
_UNSEEN_SPACES: Final = re.compile(r"^ +| +$| {2,}")


def to_visible(text: str, limit: int = MAX_SHOWN) -> str:
    """Return untrusted text as `to_printable` does, with unseen spaces escaped too."""
    escaped = _UNSEEN_SPACES.sub(lambda match: "<U+0020>" * len(match[0]), text[: limit + 1])
    return to_printable(escaped, limit)
