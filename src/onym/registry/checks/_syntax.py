"""S1 to S6: what the grammar of the scheme says, decided and not guessed."""

from __future__ import annotations

import re
from typing import Any, Final

from onym.registry.abnf import Outcome, Position, Verdict
from onym.registry.checks._context import Context, Fault, Faults, clean_name, fault, lowered, shown, unchecked
from onym.registry.checks.report import Level

__all__ = ["beginning", "dots", "inclusion", "reserved", "rules", "slashes"]

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


def _no_grammar(ctx: Context, what: str) -> Faults:
    """Why nothing could be decided: once for each check, as a hint."""
    problem = ctx.syntax.problem
    if problem is not None:
        yield unchecked(what, problem.message, line=problem.line, fix=problem.fix)
    elif ctx.syntax.unclear:
        yield unchecked(what, "which rule is the scheme's is not clear")
    elif ctx.whole or ctx.syntax.present or ctx.value("syntax"):
        yield unchecked(
            what,
            "the text holds no ABNF for this scheme",
            line=ctx.line("syntax"),
            fix="give the syntax as ABNF (RFC 5234), with one rule that begins with the scheme's name",
        )
    else:
        yield unchecked(what, "the template alone was given, not the specification")


def _level(ctx: Context, line: int | None, level: Level | None) -> Level | None:
    """A hint where nothing says that the line is ABNF, and the scheme has no rule that is named around it."""
    block = ctx.reading.block_at(line)
    if block is None or block.marked or not ctx.syntax.decidable:
        return level
    names = _NAME.findall(_STRINGS.sub("", block.text.lower()))
    return Level.HINT if ctx.syntax.reached.isdisjoint(names) else level


def inclusion(ctx: Context) -> Faults:
    """S1: every string of the scheme is an absolute-URI; else a witness, and how far the fault goes."""
    problem = ctx.syntax.problem
    if problem is not None and problem.code != "no-grammar":
        yield Fault(
            code=problem.code,
            message=problem.message,
            level=_level(ctx, problem.line, Level.ERROR if problem.code == "abnf-syntax" else Level.WARNING),
            field="syntax",
            line=problem.line,
            column=problem.column,
            fix=problem.fix,
        )
    if not ctx.syntax.decidable:
        if ctx.syntax.unclear and _of_scheme(ctx):
            yield _not_clear(ctx)
        yield from _no_grammar(ctx, "inclusion in absolute-URI")
        return
    yield from _verdict(ctx, ctx.syntax.inclusion)


def _of_scheme(ctx: Context) -> bool:
    """Is a scheme asked for, whose rule is to be there? RFCs have grammars of much else.

    `example` is no scheme to ask for (RFC 7595 8.1): a text with a template for it shows the form.
    """
    return ctx.syntax.alone if ctx.template is None else ctx.scheme not in ("", "example")


def _not_clear(ctx: Context) -> Fault:
    """A grammar is there, and nothing says where the scheme's strings begin."""
    name = shown(ctx.scheme) or "name"
    return fault(
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


def _verdict(ctx: Context, verdict: Verdict) -> Faults:
    where: dict[str, Any] = {"field": "syntax", "line": ctx.syntax.line_of(verdict.start)}
    if verdict.outcome in _UNDECIDED:
        problem = verdict.problem
        why = "no reason was given" if problem is None else problem.message
        hint = None if problem is None else problem.hint
        yield fault(
            _UNDECIDED[verdict.outcome],
            f"inclusion in absolute-URI was not decided: {why}",
            level=Level.WARNING,
            fix=hint or "write the rule in ABNF without recursion, so that it can be decided",
            **where,
        )
        yield unchecked("inclusion in absolute-URI", "it was not decided, which is no pass")
    elif verdict.outcome is Outcome.EMPTY:
        yield fault(
            "no-strings", "no string is of this rule", fix="give each rule an end that it can reach", **where
        )
    elif verdict.outcome is Outcome.FRAGMENT_ONLY:
        yield fault(
            "fragment-in-syntax",
            "the syntax takes in the fragment; that is its only fault: without it, all are absolute-URIs",
            witness=shown(verdict.witness or ""),
            fix=_MOVE + _rewritten(ctx),
            **where,
        )
    elif verdict.outcome is Outcome.NOT_INCLUDED:
        also = "" if not verdict.second else f"; without a fragment too: {shown(verdict.second)}"
        yield fault(
            "not-a-uri",
            f"the syntax admits strings that are no absolute-URI{also}",
            witness=shown(verdict.witness or ""),
            fix="percent-encode what RFC 3986 does not admit there, or take it out of the rule",
            **where,
        )


def _rewritten(ctx: Context) -> str:
    """The rule without its fragment, where the text shows it as a last optional part."""
    text = ctx.syntax.source_of(ctx.syntax.start or "")
    without = re.sub(r"\s*\[\s*\"#\"\s*[\w-]+\s*\]", "", text)
    if not text or without == text:
        return ""
    return f": write `{' '.join(re.sub(r';.*', '', without).split())}`"


def beginning(ctx: Context) -> Faults:
    """S2: every string begins with the name that is registered, and a colon."""
    if not ctx.name:
        return
    if ctx.scheme != lowered(ctx.name):
        if ctx.syntax.present:
            yield unchecked("whether each string begins with the name", "it is no name of a scheme (N1)")
        return
    if not ctx.syntax.decidable:
        yield from _other_scheme(ctx)
        return
    found = ctx.syntax.begins(lowered(ctx.name))
    if found.problem is not None:
        yield unchecked("whether each string begins with the name", found.problem)
    elif found.witness is not None:
        yield fault(
            "wrong-prefix",
            f'the syntax admits a string that does not begin with "{lowered(ctx.name)}:"',
            field="syntax",
            line=ctx.syntax.line_of(ctx.syntax.start or ""),
            witness=shown(found.witness),
            fix=f'begin the rule with `"{lowered(ctx.name)}:"`',
        )


def _other_scheme(ctx: Context) -> Faults:
    """A grammar is there, and none of its rules begins with the name."""
    others = ctx.syntax.schemes
    # of two templates in one text, one alone may have its grammar there
    wanted = {lowered(clean_name(each.text("name"))) for each in ctx.document.templates}
    if others and wanted.isdisjoint(others) and ctx.syntax.problem is None:
        yield fault(
            "name-not-in-syntax",
            f'no rule begins with "{shown(lowered(ctx.name))}:"; there are {shown(", ".join(others[:5]))}',
            field="syntax",
            line=ctx.line("name"),
            witness=shown(ctx.name),
            fix=f'write the name into the rule: `"{shown(lowered(ctx.name))}:"`',
        )
    elif ctx.syntax.present:
        yield from _no_grammar(ctx, "whether each string begins with the name")


def slashes(ctx: Context) -> Faults:
    """S3: `//` is followed by an authority and a path of slashes, and the authority says something."""
    if not ctx.syntax.decidable:
        return  # S1 has said why
    if ctx.syntax.unprobed is not None:
        yield unchecked("the use of //", ctx.syntax.unprobed)
        return
    where: dict[str, Any] = {"field": "syntax", "line": ctx.syntax.line_of(ctx.syntax.start or "")}
    improper = ctx.syntax.probe("improper-slashes")
    if improper is not None:
        yield fault(
            "improper-double-slash",
            'improper use of "//": what follows is no authority and path of RFC 3986',
            witness=shown(improper),
            fix='leave out "//", or let an authority follow it',
            **where,
        )
    empty = ctx.syntax.probe("empty-host")
    if empty is not None:
        yield fault(
            "empty-host",
            'the syntax admits "//" with an empty host',
            level=Level.WARNING,
            witness=shown(empty),
            fix="say what an empty host means, or narrow `host` (in RFC 3986 `reg-name` may be empty)",
            **where,
        )


def dots(ctx: Context) -> Faults:
    """S4: segments that relative resolution would act on, though the text wants none."""
    if not ctx.syntax.decidable:
        return
    if ctx.syntax.unprobed is not None:
        yield unchecked("dot segments", ctx.syntax.unprobed)
    where: dict[str, Any] = {"field": "syntax", "line": ctx.syntax.line_of(ctx.syntax.start or "")}
    dotted = ctx.syntax.probe("dot-segments")
    if dotted is not None:
        yield fault(
            "dot-segments",
            "the syntax admits the segments . and .., which software removes before it looks at the path",
            witness=shown(dotted),
            fix="forbid the segments `.` and `..` in prose or in the rule",
            **where,
        )
    wants_none = _NOT_RELATIVE.search(ctx.prose) is not None
    if wants_none and ctx.syntax.unprobed is None and ctx.syntax.unreserved_why is not None:
        yield unchecked("slashes without hierarchy", ctx.syntax.unreserved_why)
    if wants_none and any(each.character == "/" and each.component == "path" for each in ctx.syntax.reserved):
        yield fault(
            "slash-without-hierarchy",
            'the text wants no relative references, and the syntax admits "/"',
            witness="/",
            fix='percent-encode "/", or say how relative references resolve',
            **where,
        )
    bare = ctx.syntax.probe("bare-scheme")
    if bare is not None:
        yield fault(
            "bare-scheme",
            "the syntax admits the scheme's name and a colon alone",
            witness=shown(bare),
            fix="demand at least one character after the colon, or say what the bare form means",
            **where,
        )


def reserved(ctx: Context) -> Faults:
    """S5: reserved characters that the syntax admits as data and the prose never speaks of, by component."""
    if not ctx.syntax.decidable:
        return
    if ctx.syntax.unreserved_why is not None:
        yield unchecked("reserved characters", ctx.syntax.unreserved_why)
    prose = ctx.reading.prose_without_blocks
    silent = [each for each in ctx.syntax.reserved if _ours(each) and not _named(each.character, prose)]
    if silent:
        by_component: dict[str, str] = {}
        for each in silent:
            by_component[each.component] = by_component.get(each.component, "") + each.character
        places = "; ".join(f"{found} in the {component}" for component, found in by_component.items())
        yield fault(
            "reserved-unexplained",
            f"the syntax admits reserved characters that the text never speaks of: {places}",
            field="syntax",
            line=ctx.syntax.line_of(ctx.syntax.start or ""),
            witness=shown(silent[0].witness),
            fix="say of each whether it is a delimiter, and when it is to be percent-encoded",
        )


def _ours(each: Position) -> bool:
    """A fragment is no scheme's, and brackets in an authority are an IP literal's."""
    return each.component != "fragment" and not (each.character in "[]" and each.component == "authority")


_QUOTES: Final = ('""', "''", "\u201c\u201d", "\u2018\u2019", "``", "<>")


def _named(character: str, prose: str) -> bool:
    if re.search(_CALLED[character], prose, re.IGNORECASE):
        return True
    return any(f"{quote}{character}{close}" in prose for quote, close in _QUOTES)


#: code of a remark -> how grave it is here; what is not listed is a warning
_REMARKS: Final = {"abnf-syntax": Level.ERROR}
MAX_REMARKS: Final = 40


def rules(ctx: Context) -> Faults:
    """S6: the same rule twice, rules undefined, unused, recursive, unreachable, redundant, or redefined."""
    for each in ctx.syntax.remarks[:MAX_REMARKS]:
        if each.code == "undecided":
            yield unchecked(shown(each.rule or "a rule"), each.message, line=each.line)
            continue
        yield fault(
            each.code.value,
            f"{shown(each.rule)}: {each.message}" if each.rule else each.message,
            level=_level(ctx, each.line, _REMARKS.get(each.code.value)),
            field="syntax",
            line=each.line,
            column=each.column,
            witness=shown(each.witness) if each.witness else None,
            fix=each.fix,
        )
    if ctx.syntax.imported and ctx.syntax.decidable:
        yield fault(
            "rules-imported",
            f"rules taken from elsewhere: {shown(ctx.syntax.imported, 1_000)}",
            level=Level.HINT,
            field="syntax",
            line=ctx.syntax.line_of(ctx.syntax.start or ""),
        )
    more = len(ctx.syntax.remarks) - MAX_REMARKS
    if more > 0:
        yield unchecked(f"{more} further remarks on the grammar", "the list is cut here")
