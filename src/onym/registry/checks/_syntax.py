"""Checks S1 to S8: the scheme's grammar, examples and character encoding."""

from __future__ import annotations

import re
from typing import Any, Final

from onym.registry.abnf import Outcome, ReservedCharacter, Verdict
from onym.registry.checks.context import (
    CheckContext,
    Fault,
    Faults,
    Level,
    clean_name,
    lower_ascii,
    make_fault,
    make_unchecked,
    split_sentences,
    squeeze_spaces,
    to_printable,
)
from onym.registry.documents.types import Example
from onym.registry.records import Status

_MOVE: Final = (
    'move `[ "#" fragment ]` out of the scheme\'s own syntax: fragments belong to every URI alike '
    "(RFC 3986 3.5), not to a scheme"
)
_NOT_RELATIVE: Final = re.compile(
    r"\b(?:no|not|never|without)\b[^.]{0,60}\brelative (?:reference|URI|form|resolution|use)"
    r"|\brelative (?:reference|URI|form)s?\b[^.]{0,60}\b(?:not|never|cannot|no)\b",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
_STRINGS: Final = re.compile(r"\"[^\"\n]*\"|;[^\n]*")
#: RFC 3986 2.2, and the words by which prose names each
_CALLED: Final = {
    ":": "colon",
    "/": "slash",
    "?": "question mark",
    "[": "bracket",
    "]": "bracket",
    "@": "at sign|at-sign|commercial at",
    "!": "exclamation",
    "$": "dollar",
    "&": "ampersand",
    "'": "apostrophe|single quote",
    "(": "parenthes",
    ")": "parenthes",
    "*": "asterisk|star",
    "+": "plus",
    ",": "comma",
    ";": "semicolon",
    "=": "equals|equal sign",
}


def _explain_no_grammar(ctx: CheckContext, what: str) -> Faults:
    """Why nothing could be decided: once for each check, as a hint."""
    problem = ctx.syntax.problem
    if problem is not None:
        yield make_unchecked(what, problem.message, line=problem.line, fix=problem.fix)
    elif ctx.syntax.unclear:
        yield make_unchecked(what, "which rule is the scheme's is not clear")
    elif ctx.is_specification or ctx.syntax.present or ctx.get_field("syntax"):
        yield make_unchecked(
            what,
            "the text holds no ABNF for this scheme",
            line=ctx.get_line("syntax"),
            fix="give the syntax as ABNF (RFC 5234), with one rule that begins with the scheme's name",
        )
    else:
        yield make_unchecked(what, "the template alone was given, not the specification")


def _adjust_level(ctx: CheckContext, line: int | None, level: Level | None) -> Level | None:
    """A hint where nothing says that the line is ABNF, and the scheme has no rule that is named around it."""
    block = ctx.reading.find_block(line)
    if block is None or block.marked or not ctx.syntax.decidable:
        return level
    names = _NAME.findall(_STRINGS.sub("", block.text.lower()))
    return Level.HINT if ctx.syntax.reached.isdisjoint(names) else level


def check_inclusion(ctx: CheckContext) -> Faults:
    """S1: every string of the scheme is an absolute-URI; else a witness, and how far the fault goes."""
    problem = ctx.syntax.problem
    if problem is not None and problem.code != "no-grammar":
        yield Fault(
            code=problem.code,
            message=problem.message,
            level=_adjust_level(
                ctx, problem.line, Level.ERROR if problem.code == "abnf-syntax" else Level.WARNING
            ),
            field="syntax",
            line=problem.line,
            column=problem.column,
            fix=problem.fix,
        )
    if not ctx.syntax.decidable:
        if ctx.syntax.unclear and _is_scheme_expected(ctx):
            yield _make_unclear_fault(ctx)
        yield from _explain_no_grammar(ctx, "inclusion in absolute-URI")
        return
    yield from _report_verdict(ctx, ctx.syntax.inclusion)


def _is_scheme_expected(ctx: CheckContext) -> bool:
    """Is a scheme asked for, whose rule is to be there? RFCs have grammars of much else.

    `example` is no scheme to ask for (RFC 7595 8.1): a text with a template for it shows the form.
    """
    return ctx.syntax.alone if ctx.template is None else ctx.scheme not in ("", "example")


def _make_unclear_fault(ctx: CheckContext) -> Fault:
    """A grammar is there, and nothing says where the scheme's strings begin."""
    name = to_printable(ctx.scheme) or "name"
    return make_fault(
        "no-start-rule",
        "inclusion in absolute-URI was not decided: which rule is the scheme's is not clear",
        level=Level.WARNING,
        field="syntax",
        line=ctx.syntax.line_of(next(iter(ctx.syntax.own_rules), "")),
        fix=f'begin one rule with the scheme\'s name and a colon: `{name}-URI = "{name}:" ...`',
    )


#: outcome -> the stable code of what was not decided
_UNDECIDED: Final = {
    Outcome.RECURSIVE: "recursive-rule",
    Outcome.UNDEFINED: "undefined-rule",
    Outcome.PROSE: "prose-rule",
    Outcome.BROKEN: "broken-rule",
    Outcome.TOO_LARGE: "grammar-too-large",
}


def _report_verdict(ctx: CheckContext, verdict: Verdict) -> Faults:
    where: dict[str, Any] = {"field": "syntax", "line": ctx.syntax.line_of(verdict.start)}
    if verdict.outcome in _UNDECIDED:
        problem = verdict.problem
        why = "no reason was given" if problem is None else problem.message
        hint = None if problem is None else problem.hint
        yield make_fault(
            _UNDECIDED[verdict.outcome],
            f"inclusion in absolute-URI was not decided: {why}",
            level=Level.WARNING,
            fix=hint or "write the rule in ABNF without recursion, so that it can be decided",
            **where,
        )
        yield make_unchecked("inclusion in absolute-URI", "it was not decided, which is no pass")
    elif verdict.outcome is Outcome.EMPTY:
        yield make_fault(
            "no-strings", "no string is of this rule", fix="give each rule an end that it can reach", **where
        )
    elif verdict.outcome is Outcome.FRAGMENT_ONLY:
        yield make_fault(
            "fragment-in-syntax",
            "the syntax takes in the fragment; that is its only fault: without it, all are absolute-URIs",
            witness=to_printable(verdict.witness or ""),
            fix=_MOVE + _format_rewritten_rule(ctx),
            **where,
        )
    elif verdict.outcome is Outcome.NOT_INCLUDED:
        also = "" if not verdict.second else f"; without a fragment too: {to_printable(verdict.second)}"
        yield make_fault(
            "not-a-uri",
            f"the syntax admits strings that are no absolute-URI{also}",
            witness=to_printable(verdict.witness or ""),
            fix="percent-encode what RFC 3986 does not admit there, or take it out of the rule",
            **where,
        )


def _format_rewritten_rule(ctx: CheckContext) -> str:
    """The rule without its fragment, where the text shows it as a last optional part."""
    text = ctx.syntax.source_of(ctx.syntax.start or "")
    without = re.sub(r"\s*\[\s*\"#\"\s*[\w-]+\s*\]", "", text)
    if not text or without == text:
        return ""
    return f": write `{' '.join(re.sub(r';.*', '', without).split())}`"


def check_prefix(ctx: CheckContext) -> Faults:
    """S2: every string begins with the name that is registered, and a colon."""
    if not ctx.name:
        return
    if ctx.scheme != lower_ascii(ctx.name):
        if ctx.syntax.present:
            yield make_unchecked("whether each string begins with the name", "it is no name of a scheme (N1)")
        return
    if not ctx.syntax.decidable:
        yield from _check_other_scheme(ctx)
        return
    found = ctx.syntax.begins(lower_ascii(ctx.name))
    if found.problem is not None:
        yield make_unchecked("whether each string begins with the name", found.problem)
    elif found.witness is not None:
        yield make_fault(
            "wrong-prefix",
            f'the syntax admits a string that does not begin with "{lower_ascii(ctx.name)}:"',
            field="syntax",
            line=ctx.syntax.line_of(ctx.syntax.start or ""),
            witness=to_printable(found.witness),
            fix=f'begin the rule with `"{lower_ascii(ctx.name)}:"`',
        )


def _check_other_scheme(ctx: CheckContext) -> Faults:
    """A grammar is there, and none of its rules begins with the name."""
    others = ctx.syntax.schemes
    # of two templates in one text, one alone may have its grammar there
    wanted = {lower_ascii(clean_name(template.text("name"))) for template in ctx.document.templates}
    if others and wanted.isdisjoint(others) and ctx.syntax.problem is None:
        yield make_fault(
            "name-not-in-syntax",
            f'no rule begins with "{to_printable(lower_ascii(ctx.name))}:"; '
            f"there are {to_printable(', '.join(others[:5]))}",
            field="syntax",
            line=ctx.get_line("name"),
            witness=to_printable(ctx.name),
            fix=f'write the name into the rule: `"{to_printable(lower_ascii(ctx.name))}:"`',
        )
    elif ctx.syntax.present:
        yield from _explain_no_grammar(ctx, "whether each string begins with the name")


def check_slashes(ctx: CheckContext) -> Faults:
    """S3: `//` is followed by an authority and a path of slashes, and the authority says something."""
    if not ctx.syntax.decidable:
        return  # S1 has said why
    if ctx.syntax.unprobed is not None:
        yield make_unchecked("the use of //", ctx.syntax.unprobed)
        return
    where: dict[str, Any] = {"field": "syntax", "line": ctx.syntax.line_of(ctx.syntax.start or "")}
    improper = ctx.syntax.probe("improper-slashes")
    if improper is not None:
        yield make_fault(
            "improper-double-slash",
            'improper use of "//": what follows is no authority and path of RFC 3986',
            witness=to_printable(improper),
            fix='leave out "//", or let an authority follow it',
            **where,
        )
    empty = ctx.syntax.probe("empty-host")
    if empty is not None:
        yield make_fault(
            "empty-host",
            'the syntax admits "//" with an empty host',
            level=Level.WARNING,
            witness=to_printable(empty),
            fix="say what an empty host means, or narrow `host` (in RFC 3986 `reg-name` may be empty)",
            **where,
        )


def check_dot_segments(ctx: CheckContext) -> Faults:
    """S4: segments that relative resolution would act on, though the text wants none."""
    if not ctx.syntax.decidable:
        return
    if ctx.syntax.unprobed is not None:
        yield make_unchecked("dot segments", ctx.syntax.unprobed)
    where: dict[str, Any] = {"field": "syntax", "line": ctx.syntax.line_of(ctx.syntax.start or "")}
    dotted = ctx.syntax.probe("dot-segments")
    if dotted is not None:
        yield make_fault(
            "dot-segments",
            "the syntax admits the segments . and .., which software removes before it looks at the path",
            witness=to_printable(dotted),
            fix="forbid the segments `.` and `..` in prose or in the rule",
            **where,
        )
    wants_none = _NOT_RELATIVE.search(ctx.prose) is not None
    if wants_none and ctx.syntax.unprobed is None and ctx.syntax.unreserved_why is not None:
        yield make_unchecked("slashes without hierarchy", ctx.syntax.unreserved_why)
    if wants_none and any(
        character.character == "/" and character.component == "path" for character in ctx.syntax.reserved
    ):
        yield make_fault(
            "slash-without-hierarchy",
            'the text wants no relative references, and the syntax admits "/"',
            witness="/",
            fix='percent-encode "/", or say how relative references resolve',
            **where,
        )
    bare = ctx.syntax.probe("bare-scheme")
    if bare is not None:
        yield make_fault(
            "bare-scheme",
            "the syntax admits the scheme's name and a colon alone",
            witness=to_printable(bare),
            fix="demand at least one character after the colon, or say what the bare form means",
            **where,
        )


def check_reserved(ctx: CheckContext) -> Faults:
    """S5: reserved characters that the syntax admits as data and the prose never speaks of, by component."""
    if not ctx.syntax.decidable:
        return
    if ctx.syntax.unreserved_why is not None:
        yield make_unchecked("reserved characters", ctx.syntax.unreserved_why)
    prose = ctx.reading.prose_without_blocks
    silent = [
        character
        for character in ctx.syntax.reserved
        if _is_scheme_data(character) and not _is_mentioned(character.character, prose)
    ]
    if silent:
        by_component: dict[str, str] = {}
        for character in silent:
            by_component[character.component] = (
                by_component.get(character.component, "") + character.character
            )
        places = "; ".join(f"{found} in the {component}" for component, found in by_component.items())
        yield make_fault(
            "reserved-unexplained",
            f"the syntax admits reserved characters that the text never speaks of: {places}",
            field="syntax",
            line=ctx.syntax.line_of(ctx.syntax.start or ""),
            witness=to_printable(silent[0].witness),
            fix="say of each whether it is a delimiter, and when it is to be percent-encoded",
        )


def _is_scheme_data(each: ReservedCharacter) -> bool:
    """A fragment is no scheme's, and brackets in an authority are an IP literal's."""
    return each.component != "fragment" and not (each.character in "[]" and each.component == "authority")


_QUOTES: Final = ('""', "''", "\u201c\u201d", "\u2018\u2019", "``", "<>")


def _is_mentioned(character: str, prose: str) -> bool:
    if re.search(_CALLED[character], prose, re.IGNORECASE):
        return True
    return any(f"{quote}{character}{close}" in prose for quote, close in _QUOTES)


#: code of a remark -> how grave it is here; what is not listed is a warning
_REMARKS: Final = {"abnf-syntax": Level.ERROR}
MAX_REMARKS: Final = 40


def check_rules(ctx: CheckContext) -> Faults:
    """S6: the same rule twice, rules undefined, unused, recursive, unreachable, redundant, or redefined."""
    for remark in ctx.syntax.remarks[:MAX_REMARKS]:
        if remark.code == "undecided":
            yield make_unchecked(to_printable(remark.rule or "a rule"), remark.message, line=remark.line)
            continue
        yield make_fault(
            remark.code.value,
            f"{to_printable(remark.rule)}: {remark.message}" if remark.rule else remark.message,
            level=_adjust_level(ctx, remark.line, _REMARKS.get(remark.code.value)),
            field="syntax",
            line=remark.line,
            column=remark.column,
            witness=to_printable(remark.witness) if remark.witness else None,
            fix=remark.fix,
        )
    if ctx.syntax.imported and ctx.syntax.decidable:
        yield make_fault(
            "rules-imported",
            f"rules taken from elsewhere: {to_printable(ctx.syntax.imported, 1_000)}",
            level=Level.HINT,
            field="syntax",
            line=ctx.syntax.line_of(ctx.syntax.start or ""),
        )
    more = len(ctx.syntax.remarks) - MAX_REMARKS
    if more > 0:
        yield make_unchecked(f"{more} further remarks on the grammar", "the list is cut here")


MAX_EXAMPLES: Final = 200
#: longest example that is matched, in characters
MAX_EXAMPLE: Final = 4_096

_CHARSET: Final = re.compile(
    r"\bUTF-?8\b|\bUS-?ASCII\b|\bASCII\b|\bUnicode\b|\bISO[- ]?8859|\bUTF-?16\b|RFC ?3(?:629|987)|octets?\b",
    re.IGNORECASE,
)
_ELSEWHERE: Final = re.compile(r"\bsection\b|\bRFC ?\d|\[[\w.-]+\]", re.IGNORECASE)
#: in a whole specification, anywhere: narrower, for "octets" and "ASCII" are in every grammar
_NAMED: Final = re.compile(r"\bUTF-?8\b|\bUTF-?16\b|\bISO[- ]?8859|RFC ?3629", re.IGNORECASE)
#: what happens to octets that are not UTF-8
_REFUSES: Final = re.compile(
    r"\b(?:other|invalid|illegal|ill-formed|malformed|non-UTF-?8"
    r"|not(?: (?:valid|legal|well-formed))? UTF-?8)\b"
    r"[^.]{0,100}\b(?:refus|reject|error|MUST NOT|not allowed|forbidden|invalid|ignor|replac|opaque)"
    r"|\b(?:refus|reject|MUST NOT|only)\w*\b[^.]{0,100}\b(?:not|other than|invalid|valid) UTF-?8",
    re.IGNORECASE,
)
#: what such a sentence speaks of
_OCTETS: Final = re.compile(r"\bUTF-?8\b|\b(?:octet|byte)s?\b|percent-?encod", re.IGNORECASE)
_OF_URIS: Final = re.compile(
    r"\bURIs?\b|\bIRIs?\b|\bcharacters?\b|\boctets?\b|percent-?encod|\bscheme(?:'s)?\b"
    r"|\b(?:path|query|component|segment)s?\b",
    re.IGNORECASE,
)
_NOT_NAMED: Final = re.compile(
    r"(?:\b(?:not|never|nor|no|without|than|instead of)"
    r"(?: (?!(?:(?:US-)?ASCII|invalid|malformed|ill-formed)\b)[\w-]+){0,3} |\bnon-)"
    r"(?:UTF-?8|UTF-?16|ISO[- ]?8859|RFC ?3629)",
    re.IGNORECASE,
)
#: what the text shows as wrong: the word is about URIs or examples, or stands alone beside them
_WRONG: Final = (
    r"(?:invalid|illegal|malformed|ill-formed|incorrect|wrong|forbidden|erroneous"
    r"|not (?:a )?(?:valid|legal|well-formed|allowed|permitted))"
)
_SHOWN: Final = r"(?:(?:URI|URL|IRI|example|identifier)s?|following)"
_IS: Final = (
    rf"(?:(?:is|are|be) (?:(?!not |never )\w+ ){{0,2}}{_WRONG}"
    r"|(?:must|shall|will|are|is) (?:be )?(?:refused|rejected))"
)
_COUNTER: Final = re.compile(
    rf"\b{_WRONG} (?:[\w-]+ ){{0,2}}(?:URI|URL|IRI|example|identifier)s?\b|\bcounter-?examples?\b"
    rf"|\b(?:{_SHOWN}(?: [\w-]+){{0,4}}|these|those) {_IS}\b"
    rf"|\b(?:refuse|reject)s? (?:the )?(?:{_SHOWN}|these|those)(?: [\w-]+){{0,3}}:",
    re.IGNORECASE,
)
#: a line that is nothing but the word, over examples
_LABEL: Final = re.compile(rf"\W*{_WRONG}(?: [\w-]+){{0,2}}\W*", re.IGNORECASE)
#: after the example, and perhaps others: that it is wrong, in the sentence or in a comment
_AFTER: Final = re.compile(
    rf"(?:[\s,]*(?:and|or) \S+){{0,4}}[\s\"'`>)*,]*(?:(?:which|that) )?{_IS}\b"
    rf"|[\"'`>*]*(?:\s\s+|\s*(?:[;#(|]|//|--?|<-+|\u2190|\u2014)\s*)[(*]*(?:(?:this )?is )?{_WRONG}\b",
    re.IGNORECASE,
)
#: lines above an example in which the text may say so
_ABOVE: Final = 6
#: how much of each line is read, before the example and after it
_BEFORE: Final = 400
_BEHIND: Final = 80
#: places in one line that are looked at for the one of the example
_PLACES: Final = 50
_UTF8: Final = re.compile(r"\bUTF-?8\b|RFC ?3629", re.IGNORECASE)


def check_examples(ctx: CheckContext) -> Faults:
    """S7: each example of the scheme is a string of its syntax, an absolute-URI, and ASCII."""
    if not ctx.scheme:
        return
    mine: list[Example] = []
    others: list[Example] = []
    for example in ctx.document.examples:
        if example.uri.lower().startswith(f"{ctx.scheme}:"):
            mine.append(example)
        elif not example.uri.isascii():
            # it may hold an example of this scheme, and the same damage
            others.append(example)
    for each in [*mine[:MAX_EXAMPLES], *others[:MAX_EXAMPLES]]:
        found = list(_check_example(ctx, each))
        if found and _is_counter_example(ctx, each):
            found = [
                make_unchecked(to_printable(each.uri), "the text seems to show it as wrong", line=each.line)
            ]
        yield from found
    yield from _report_untried(
        ctx, [example.uri for example in mine[:MAX_EXAMPLES] if len(example.uri) <= MAX_EXAMPLE]
    )
    if len(mine) > MAX_EXAMPLES:
        yield make_unchecked(f"{len(mine) - MAX_EXAMPLES} further examples", f"{MAX_EXAMPLES} are checked")


def _report_untried(ctx: CheckContext, uris: list[str]) -> Faults:
    """Examples of which nobody knows whether they fit."""
    left = sum(ctx.syntax.accepts(uri) is None for uri in uris)
    if left:
        which = "the examples fit" if left == len(uris) else f"{left} of the examples fit"
        why = ctx.syntax.problem.message if ctx.syntax.problem else "no grammar of the scheme can be decided"
        yield make_unchecked(f"whether {which} the syntax", ctx.syntax.unmatched or why)


def _is_counter_example(ctx: CheckContext, each: Example) -> bool:
    """Does the sentence that leads to the example, its heading or a comment say that it is no good one?"""
    lines = ctx.reading.lines
    row = lines[each.line - 1] if 0 < each.line <= len(lines) else ""
    start, end = _find_place(row, each.uri)
    if _AFTER.match(row[end : end + _BEHIND]):
        return True
    lead = [row[max(start - _BEFORE, 0) : start]]
    prefix = each.uri.partition(":")[0] + ":"
    for at in range(min(each.line - 2, len(lines) - 1), max(each.line - 2 - _ABOVE, -1), -1):
        above = lines[at][-_BEFORE:].strip(' \t*->`"')
        if above.endswith("."):
            break
        # what is said beside another example is said of that one
        if not above.startswith(prefix):
            lead.insert(0, above)
    return any(
        _is_called_wrong(said) for said in (" ".join(lead), *lead[:-1], ctx.reading.get_title(each.line))
    )


def _is_called_wrong(said: str) -> bool:
    """Is its last sentence about wrong URIs, or nothing but that word?"""
    last = re.split(r"[.!?] ", squeeze_spaces(said))[-1]
    return _COUNTER.search(last) is not None or _LABEL.fullmatch(last) is not None


def _find_place(row: str, uri: str) -> tuple[int, int]:
    """Where the example stands in its line: not where a longer one begins alike. Wrapped, it is the last."""
    at = -1
    for _ in range(_PLACES):
        at = row.find(uri, at + 1)
        if at < 0:
            break
        after = row[at + len(uri) : at + len(uri) + 1]
        if not (after.isalnum() or after in ("%", "/", "-", "_", "~")):
            return at, at + len(uri)
    at = max(row.rfind(uri.partition(":")[0] + ":"), 0)
    return at, len(row)


def _check_example(ctx: CheckContext, each: Example) -> Faults:
    where: dict[str, Any] = {"line": each.line, "witness": to_printable(each.uri, 160)}
    odd = next((one for one in each.uri if not one.isascii()), None)
    if odd is not None:
        yield make_fault(
            "example-not-ascii",
            f"a URI is ASCII; U+{ord(odd):04X} is not"
            + (" (copy damage of `&curren`?)" if odd == "\u00a4" else ""),
            fix=f"write `{to_printable(_repair_uri(each.uri), 160)}`",
            **where,
        )
    elif len(each.uri) > MAX_EXAMPLE:
        yield make_unchecked("an example", f"it is longer than {MAX_EXAMPLE} characters", line=each.line)
    elif not ctx.syntax.is_uri(each.uri):
        yield make_fault(
            "example-not-a-uri",
            "the example is no URI of RFC 3986",
            fix="percent-encode what RFC 3986 does not admit there",
            **where,
        )
    else:
        yield from _check_fits_syntax(ctx, each)


def _check_fits_syntax(ctx: CheckContext, each: Example) -> Faults:
    where: dict[str, Any] = {"line": each.line, "witness": to_printable(each.uri, 160)}
    if "#" in each.uri:
        yield make_fault(
            "example-has-fragment",
            "the example has a fragment: it is a URI and no absolute-URI, and the fragment not the scheme's",
            level=Level.WARNING,
            fix=f"write `{to_printable(each.uri.partition('#')[0], 160)}`, or say that it is RFC 3986's",
            **where,
        )
    if ctx.syntax.accepts(each.uri) is False and not _fits_without_fragment(ctx, each.uri):
        yield make_fault(
            "example-not-in-syntax",
            f"the example is no string of {to_printable(ctx.syntax.start or '')}",
            fix="correct the example or the grammar",
            **where,
        )


def _fits_without_fragment(ctx: CheckContext, uri: str) -> bool:
    """A scheme's syntax has no fragment; an example may show one all the same."""
    before, mark, _ = uri.partition("#")
    return bool(mark) and ctx.syntax.accepts(before) is True


def _repair_uri(uri: str) -> str:
    """Percent-encoded UTF-8; `&curren` that a browser read as a currency sign is put back."""
    restored = uri.replace("\u00a4", "&curren")
    return "".join(
        character if character.isascii() else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in restored
    )


def check_encoding(ctx: CheckContext) -> Faults:
    """S8: where URIs carry text, a character encoding is named, and the syntax keeps to it."""
    text = ctx.collect_prose("encoding", "encoding", "international", "character")
    if not ctx.syntax.decidable:
        if ctx.get_field("encoding") or ctx.is_specification:
            yield from _check_encoding_without_grammar(ctx, text)
        return
    if not ctx.syntax.holds_text:
        return
    lenient = ctx.status is Status.PROVISIONAL and ctx.profile.id != "rfc4395"
    level = Level.WARNING if lenient else Level.ERROR
    if not _CHARSET.search(text) and ctx.is_specification:
        text = _find_encoding_sentences(ctx) or text
    if not _CHARSET.search(text) and _ELSEWHERE.search(text) and not ctx.is_specification:
        yield make_unchecked(
            "the character encoding", "the field points at a specification that was not given"
        )
    elif not _CHARSET.search(text):
        yield make_fault(
            "no-charset",
            "URIs of the scheme hold text, and no character encoding is named",
            level=level,
            field="encoding",
            line=ctx.get_line("encoding"),
            fix="write: characters beyond ASCII are encoded as UTF-8 and then percent-encoded (RFC 3986 2.5)",
        )
    elif ctx.syntax.unprobed is not None:
        yield make_unchecked("octets that are no UTF-8", ctx.syntax.unprobed)
    elif (stray := ctx.syntax.probe("encoded-octet")) is not None and _is_utf8_only(ctx, text):
        yield make_fault(
            "not-only-utf-8",
            "the text says UTF-8, and the syntax admits percent-encoded octets that are not",
            level=Level.WARNING,
            field="encoding",
            line=ctx.get_line("encoding"),
            witness=to_printable(stray),
            fix="say what a reader does with octets that are not UTF-8: refuse it, or take octets",
        )


def _find_encoding_sentences(ctx: CheckContext) -> str:
    """The sentences, anywhere in the text, that name the encoding of the scheme's characters."""
    return "\n".join(
        sentence
        for sentence in ctx.reading.sentences
        if _NAMED.search(sentence)
        and not _NOT_NAMED.search(sentence)
        and (_OF_URIS.search(sentence) or _mentions_scheme(ctx, sentence))
    )


def _mentions_scheme(ctx: CheckContext, sentence: str) -> bool:
    return bool(ctx.scheme) and f"{ctx.scheme}:" in sentence


def _is_utf8_only(ctx: CheckContext, text: str) -> bool:
    """Is UTF-8 said, and no sentence says what becomes of octets that are none?"""
    sentences = (*split_sentences(text), *(ctx.reading.sentences if ctx.is_specification else ()))
    refused = any(_OCTETS.search(sentence) and _REFUSES.search(sentence) for sentence in sentences)
    return bool(_UTF8.search(text)) and not refused


def _check_encoding_without_grammar(ctx: CheckContext, text: str) -> Faults:
    if not _CHARSET.search(text):
        yield make_unchecked(
            "whether the scheme's text needs a character encoding",
            "there is no grammar that can be decided, and no encoding is named",
            line=ctx.get_line("encoding"),
        )
