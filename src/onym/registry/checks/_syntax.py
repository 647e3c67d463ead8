"""Checks S1 to S7: the scheme's grammar and examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from onym.registry.abnf import Outcome, Remark, ReservedCharacter, Verdict, is_in_appendix
from onym.registry.checks import context
from onym.registry.checks._grammar import GrammarProblem
from onym.registry.documents.types import Example
from onym.registry.registries import clean_name

_INCLUSION: Final = "inclusion in absolute-URI"
_PREFIX: Final = "whether each string begins with the name"
_REMOVE_FRAGMENT: Final = (
    'remove `[ "#" fragment ]` from the scheme\'s syntax: every URI may have a fragment (RFC 3986 3.5), '
    "so a scheme does not define it"
)
_NOT_RELATIVE: Final = re.compile(
    r"\b(?:no|not|never|without)\b[^.]{0,60}\brelative (?:reference|URI|form|resolution|use)"
    r"|\brelative (?:reference|URI|form)s?\b[^.]{0,60}\b(?:not|never|cannot|no)\b",
    re.IGNORECASE,
)
_RULE_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
_STRINGS_AND_COMMENTS: Final = re.compile(r"\"[^\"\n]*\"|;[^\n]*")
_DEFINED_RULE: Final = re.compile(r"^[ \t]*<?([A-Za-z][A-Za-z0-9-]*)>?[ \t]*=", re.MULTILINE)
#: the reserved characters of RFC 3986 2.2 -> the words that name them in prose
_CHARACTER_NAMES: Final = {
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


def _explain_no_grammar(ctx: context.CheckContext, subject: str) -> context.Findings:
    """Report why nothing about the grammar could be decided."""
    problem = ctx.syntax.problem
    if problem is not None:
        yield ctx.report_unchecked(subject, problem.message, line=problem.line, fix=problem.fix)
    elif ctx.syntax.unclear:
        yield ctx.report_unchecked(subject, "it is not clear which rule defines the scheme")
    elif ctx.is_specification or ctx.syntax.present or ctx.get_field("syntax"):
        yield ctx.report_unchecked(
            subject,
            "the text has no ABNF for this scheme",
            line=ctx.get_line("syntax"),
            fix="write the syntax as ABNF (RFC 5234), with one rule that begins with the scheme's name",
        )
    else:
        yield ctx.report_unchecked(subject, "only the template was given, not the specification")


def _adjust_level(
    ctx: context.CheckContext, line: int | None, level: context.Level | None
) -> context.Level | None:
    """Return a hint if the line may not be ABNF and its block names none of the scheme's rules.

    An error needs a block that defines one of these rules. If the scheme's rule is not known, a block without
    a rule of a URI is at most a warning.
    """
    block = ctx.reading.find_block(line)
    if block is None or block.marked:
        return level
    defined = {name.lower() for name in _DEFINED_RULE.findall(block.text)}
    if ctx.syntax.decidable:
        names = defined if level is context.Level.ERROR else _list_rule_names(block.text)
        return context.Level.HINT if ctx.syntax.reached.isdisjoint(names) else level
    is_of_scheme = ctx.syntax.alone or any(
        name.endswith(("uri", "url")) or (ctx.scheme and name.startswith(ctx.scheme)) for name in defined
    )
    return context.Level.WARNING if level is context.Level.ERROR and not is_of_scheme else level


def _list_rule_names(text: str) -> list[str]:
    return _RULE_NAME.findall(_STRINGS_AND_COMMENTS.sub("", text.lower()))


def check_inclusion(ctx: context.CheckContext) -> context.Findings:
    """S1: every string of the scheme is an absolute-URI; otherwise report a counterexample."""
    problem = ctx.syntax.problem
    if problem is not None and problem.code != "no-grammar":
        level = context.Level.ERROR if problem.code == "abnf-syntax" else context.Level.WARNING
        yield ctx.report(
            problem.code,
            problem.message,
            level=_adjust_level(ctx, problem.line, level),
            field="syntax",
            line=problem.line,
            column=problem.column,
            fix=problem.fix,
        )
    if ctx.syntax.decidable:
        yield from _report_verdict(ctx, ctx.syntax.inclusion)
        return
    if ctx.syntax.unclear and _is_scheme_expected(ctx):
        name = context.to_printable(ctx.scheme) or "name"
        yield ctx.report_syntax(
            "no-start-rule",
            f"{_INCLUSION} was not decided: it is not clear which rule defines the scheme",
            level=context.Level.WARNING,
            rule=next(iter(ctx.syntax.own_rules), ""),
            fix=f'begin one rule with the scheme\'s name and a colon: `{name}-URI = "{name}:" ...`',
        )
    yield from _explain_no_grammar(ctx, _INCLUSION)


def _is_scheme_expected(ctx: context.CheckContext) -> bool:
    """Return whether the grammar should define a scheme; grammars of RFCs define many other things.

    A template for `example` only shows the form (RFC 7595 8.1), so no rule is expected.
    """
    return ctx.syntax.alone if ctx.template is None else ctx.scheme not in ("", "example")


#: outcome -> the stable code of an undecided question
_UNDECIDED: Final = {
    Outcome.RECURSIVE: "recursive-rule",
    Outcome.UNDEFINED: "undefined-rule",
    Outcome.PROSE: "prose-rule",
    Outcome.BROKEN: "broken-rule",
    Outcome.TOO_LARGE: "grammar-too-large",
}


#: code of the reason why only a condition is known -> the stable code of the finding
_CONDITIONS: Final = {
    "abnf.undefined-rule": "undefined-rule",
    "abnf.broken-rule": "broken-rule",
}
#: rules that a finding names
_MAX_OPEN: Final = 8


def _report_verdict(ctx: context.CheckContext, verdict: Verdict) -> context.Findings:
    rule, witness = verdict.start, verdict.witness or ""
    if verdict.outcome in _UNDECIDED:
        problem = verdict.problem
        reason = "no reason was given" if problem is None else problem.message
        hint = None if problem is None else problem.hint
        yield ctx.report_syntax(
            _UNDECIDED[verdict.outcome],
            f"{_INCLUSION} was not decided: {reason}",
            rule=rule,
            level=context.Level.WARNING,
            fix=hint or "write the rule in ABNF without recursion, so that it can be decided",
        )
        yield ctx.report_unchecked(_INCLUSION, "it was not decided, so the check did not pass")
    elif verdict.outcome is Outcome.CONDITIONAL:
        problem = verdict.problem
        names = context.to_printable(", ".join(verdict.open_rules[:_MAX_OPEN]))
        answer = "not every string is" if witness else "every string is"
        yield ctx.report_syntax(
            _CONDITIONS.get("" if problem is None else problem.code, "prose-rule"),
            f"the text has no ABNF for {names}; with only unreserved and percent-encoded characters there, "
            f"{answer} an absolute-URI",
            rule=rule,
            level=context.Level.WARNING,
            witness=verdict.witness,
            fix="define it in ABNF, or name the rule and the RFC that defines it",
        )
    elif verdict.outcome is Outcome.EMPTY:
        yield ctx.report_syntax(
            "no-strings",
            "the rule matches no string",
            rule=rule,
            fix="give each rule an end that can be reached",
        )
    elif verdict.outcome is Outcome.FRAGMENT_ONLY:
        yield ctx.report_syntax(
            "fragment-in-syntax",
            "the syntax includes the fragment"
            + ("" if verdict.problem else "; without the fragment, every string is an absolute-URI"),
            rule=rule,
            witness=witness,
            fix=_REMOVE_FRAGMENT + _format_rewritten_rule(ctx),
        )
    elif verdict.outcome is Outcome.NOT_INCLUDED:
        also = f"; without a fragment too: {context.to_visible(verdict.second)}" if verdict.second else ""
        yield ctx.report_syntax(
            "not-a-uri",
            f"the syntax allows strings that are not an absolute-URI{also}",
            rule=rule,
            witness=witness,
            fix="percent-encode what RFC 3986 does not allow there, or remove it from the rule",
        )


def _format_rewritten_rule(ctx: context.CheckContext) -> str:
    """Return the rule without its fragment, if the rule ends with an optional fragment."""
    text = ctx.syntax.source_of(ctx.syntax.start or "")
    without = re.sub(r"\s*\[\s*\"#\"\s*[\w-]+\s*\]", "", text)
    if not text or without == text:
        return ""
    return f": write `{' '.join(re.sub(r';.*', '', without).split())}`"


def check_prefix(ctx: context.CheckContext) -> context.Findings:
    """S2: every string begins with the registered name and a colon."""
    if not ctx.name:
        return
    name = context.lower_ascii(ctx.name)
    if ctx.scheme != name:
        if ctx.syntax.present:
            yield ctx.report_unchecked(_PREFIX, "the name is not valid for a scheme")
        return
    if not ctx.syntax.decidable:
        yield from _check_other_scheme(ctx, name)
        return
    if name not in ctx.syntax.schemes and ctx.syntax.alias is not None:
        reason = f'the template refers to the syntax of "{ctx.syntax.alias}"'
        yield ctx.report_unchecked(_PREFIX, reason, line=ctx.get_line("syntax"))
        return
    # one grammar may define several of the requested schemes (`stun` and `stuns`)
    answer = ctx.syntax.begins(*ctx.wanted_names)
    if answer.problem is not None:
        yield ctx.report_unchecked(_PREFIX, answer.problem)
    elif answer.witness is not None:
        yield ctx.report_syntax(
            "wrong-prefix",
            f'the syntax allows a string that does not begin with "{name}:"',
            witness=answer.witness,
            fix=f'begin the rule with `"{name}:"`',
        )


def _check_other_scheme(ctx: context.CheckContext, name: str) -> context.Findings:
    """Report a grammar in which no rule begins with the name."""
    schemes = ctx.syntax.schemes
    # of two templates in one text, only one may have its grammar there
    wanted = {context.lower_ascii(clean_name(template.text("name"))) for template in ctx.document.templates}
    if schemes and wanted.isdisjoint(schemes) and ctx.syntax.problem is None:
        yield ctx.report(
            "name-not-in-syntax",
            f'no rule begins with "{context.to_printable(name)}:"; '
            f"the rules begin with {context.to_printable(', '.join(schemes[:5]))}",
            field="syntax",
            line=ctx.get_line("name"),
            witness=ctx.name,
            fix=f'write the name into the rule: `"{context.to_printable(name)}:"`',
        )
    elif ctx.syntax.present:
        yield from _explain_no_grammar(ctx, _PREFIX)


#: a syntax field that refers to the syntax of another scheme
_SAME_SYNTAX: Final = re.compile(r"\b(?:same|identical|equivalent|that) (?:as|to|of)\b", re.IGNORECASE)


def find_same_syntax(text: str, schemes: Sequence[str]) -> str | None:
    """Return the scheme to whose syntax a field refers ("Same as for 'news'"); None if there is none."""
    if not _SAME_SYNTAX.search(text):
        return None
    return next((scheme for scheme in schemes if _quotes(text, scheme)), None)


def _quotes(text: str, scheme: str) -> bool:
    """Return whether the text has the name of the scheme in quotes."""
    quoted = rf"[\"'\u2018\u201c`]{re.escape(scheme)}[\"'\u2019\u201d`]"
    return re.search(quoted, text, re.IGNORECASE) is not None


#: a sentence that defines or forbids an empty host
_EMPTY_HOST: Final = re.compile(
    r"\b(?:empty|absent|omitted) (?:host|authority)\b[^.]{0,60}"
    r"\b(?:means?|denotes?|identif\w+|refers?|represents?|stands?|is|are|reject\w*|MUST)\b"
    r"|\b(?:host|authority)\b[^.]{0,40}"
    r"\b(?:is (?:never|not) empty|(?:MUST|can|may)(?: not|not) be empty|non-empty)\b"
    r"|\bif the (?:host|authority) (?:component )?is (?:empty|absent|omitted)\b",
    re.IGNORECASE,
)


def check_slashes(ctx: context.CheckContext) -> context.Findings:
    """S3: an authority that is not empty and a path follow `//`."""
    if not ctx.syntax.decidable:
        return  # S1 reports the reason
    if ctx.syntax.unprobed is not None:
        yield ctx.report_unchecked("the use of //", ctx.syntax.unprobed)
        return
    improper = ctx.syntax.probe("improper-slashes")
    if improper is not None:
        yield ctx.report_syntax(
            "improper-double-slash",
            'improper use of "//": no authority and path of RFC 3986 follow it',
            witness=improper,
            fix='remove "//", or write an authority after it',
        )
    empty = ctx.syntax.probe("empty-host")
    if empty is not None and not any(map(_EMPTY_HOST.search, ctx.reading.sentences)):
        yield ctx.report_syntax(
            "empty-host",
            'the syntax allows "//" with an empty host',
            level=context.Level.WARNING,
            witness=empty,
            fix="define what an empty host means, or restrict `host` (in RFC 3986 `reg-name` may be empty)",
        )


def check_dot_segments(ctx: context.CheckContext) -> context.Findings:
    """S4: segments that relative resolution would change, although the text rejects relative references."""
    if not ctx.syntax.decidable:
        return
    if ctx.syntax.unprobed is not None:
        yield ctx.report_unchecked("dot segments", ctx.syntax.unprobed)
    dotted = ctx.syntax.probe("dot-segments")
    if dotted is not None:
        yield ctx.report_syntax(
            "dot-segments",
            "the syntax allows the segments . and .., which software removes before it reads the path",
            witness=dotted,
            fix="forbid the segments `.` and `..` in prose or in the rule",
        )
    if _NOT_RELATIVE.search(ctx.prose) is not None:
        if ctx.syntax.unprobed is None and ctx.syntax.unreserved_why is not None:
            yield ctx.report_unchecked("slashes without hierarchy", ctx.syntax.unreserved_why)
        if any((found.character, found.component) == ("/", "path") for found in ctx.syntax.reserved):
            yield ctx.report_syntax(
                "slash-without-hierarchy",
                'the text rejects relative references, but the syntax allows "/"',
                witness="/",
                fix='percent-encode "/", or define how relative references resolve',
            )
    bare = ctx.syntax.probe("bare-scheme")
    if bare is not None:
        yield ctx.report_syntax(
            "bare-scheme",
            "the syntax allows the scheme's name and a colon with nothing after it",
            witness=bare,
            fix="require at least one character after the colon, or define what the bare form means",
        )


def check_reserved(ctx: context.CheckContext) -> context.Findings:
    """S5: reserved characters that the syntax allows as data and the prose does not mention."""
    if not ctx.syntax.decidable:
        return
    if ctx.syntax.unreserved_why is not None:
        yield ctx.report_unchecked("reserved characters", ctx.syntax.unreserved_why)
    prose = ctx.reading.prose_without_blocks
    silent = [
        reserved
        for reserved in ctx.syntax.reserved
        if _is_scheme_data(reserved) and not _is_mentioned(reserved.character, prose)
    ]
    if silent:
        by_component: dict[str, str] = {}
        for reserved in silent:
            by_component[reserved.component] = by_component.get(reserved.component, "") + reserved.character
        places = "; ".join(
            f"{characters} in the {component}" for component, characters in by_component.items()
        )
        yield ctx.report_syntax(
            "reserved-unexplained",
            f"the syntax allows reserved characters that the text does not mention: {places}",
            witness=silent[0].witness,
            fix="define for each character whether it is a delimiter, and when to percent-encode it",
        )


def _is_scheme_data(reserved: ReservedCharacter) -> bool:
    """Return whether the scheme defines it: not a fragment, nor the brackets of an IP literal."""
    in_literal = reserved.character in "[]" and reserved.component == "authority"
    return reserved.component != "fragment" and not in_literal


#: several characters in one pair of quotes, as in "!$&"
_QUOTED_LIST: Final = re.compile(r"""["'\u201c\u2018`]([!$&'()*+,;=:/?@\[\]]{2,20})["'\u201d\u2019`]""")
_QUOTES: Final = ('""', "''", "\u201c\u201d", "\u2018\u2019", "``", "<>")


def _is_mentioned(character: str, prose: str) -> bool:
    if re.search(_CHARACTER_NAMES[character], prose, re.IGNORECASE):
        return True
    if any(f"{quote}{character}{close}" in prose for quote, close in _QUOTES):
        return True
    if any(character in quoted[1] and len(set(quoted[1])) > 1 for quoted in _QUOTED_LIST.finditer(prose)):
        return True
    named = "sub-delims" if character in "!$&'()*+,;=" else "gen-delims"
    return re.search(rf"\b{named}\b", prose, re.IGNORECASE) is not None


MAX_REMARKS: Final = 40


def check_rules(ctx: context.CheckContext) -> context.Findings:
    """S6: rules that are repeated, undefined, unused, recursive, unreachable, redundant or redefined."""
    problem = ctx.syntax.problem
    for remark in ctx.syntax.remarks[:MAX_REMARKS]:
        if problem is not None and remark.column and _get_place(remark) == _get_place(problem):
            continue  # S1 reports it
        if remark.code == "undecided":
            yield ctx.report_unchecked(
                context.to_printable(remark.rule or "a rule"), remark.message, line=remark.line
            )
            continue
        level = context.Level.ERROR if remark.code.value == "abnf-syntax" else None
        yield ctx.report(
            remark.code.value,
            f"{context.to_printable(remark.rule)}: {remark.message}" if remark.rule else remark.message,
            level=_adjust_level(ctx, remark.line, level),
            field="syntax",
            line=remark.line,
            column=remark.column,
            witness=remark.witness or None,
            fix=remark.fix,
        )
    if ctx.syntax.imported and ctx.syntax.decidable:
        yield ctx.report_syntax(
            "rules-imported",
            f"rules taken from elsewhere: {context.to_printable(ctx.syntax.imported, 1_000)}",
            level=context.Level.HINT,
        )
    more = len(ctx.syntax.remarks) - MAX_REMARKS
    if more > 0:
        yield ctx.report_unchecked(f"{more} further remarks on the grammar", f"only {MAX_REMARKS} are shown")


def _get_place(found: Remark | GrammarProblem) -> tuple[str, int | None, int | None]:
    return found.message, found.line, found.column


MAX_EXAMPLES: Final = 200
#: characters of the longest example that is matched
MAX_EXAMPLE: Final = 4_096
#: characters of an example that a finding repeats
_SHOWN_URI: Final = 160

#: words for wrong examples, about URIs or examples or next to them
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
#: a line above examples that only says that they are wrong
_LABEL: Final = re.compile(rf"\W*{_WRONG}(?: [\w-]+){{0,2}}\W*", re.IGNORECASE)
#: words after the example that call it wrong, in the sentence or in a comment
_AFTER: Final = re.compile(
    rf"(?:[\s,]*(?:and|or) \S+){{0,4}}[\s\"'`>)*,]*(?:(?:which|that) )?{_IS}\b"
    rf"|[\"'`>*]*(?:\s\s+|\s*(?:[;#(|]|//|--?|<-+|\u2190|\u2014)\s*)[(*]*(?:(?:this )?is )?{_WRONG}\b",
    re.IGNORECASE,
)
#: lines above an example that may call it wrong
_ABOVE: Final = 6
#: characters of each line that are read before the example and after it
_BEFORE: Final = 400
_BEHIND: Final = 80
#: occurrences in one line that are tried
_PLACES: Final = 50


def check_examples(ctx: context.CheckContext) -> context.Findings:
    """S7: each example of the scheme matches its syntax, is an absolute-URI and is ASCII."""
    if not ctx.scheme:
        return
    matching: list[Example] = []
    # an example that is not ASCII may be a damaged one of this scheme
    others: list[Example] = []
    for example in ctx.document.examples:
        if example.uri.lower().startswith(f"{ctx.scheme}:"):
            matching.append(example)
        elif not example.uri.isascii():
            others.append(example)
    for example in [*matching[:MAX_EXAMPLES], *others[:MAX_EXAMPLES]]:
        findings = list(_check_example(ctx, example))
        reason = _find_excuse(ctx, example) if findings else None
        if reason is not None:
            findings = [ctx.report_unchecked(context.to_printable(example.uri), reason, line=example.line)]
        yield from findings
    tried = [example.uri for example in matching[:MAX_EXAMPLES] if len(example.uri) <= MAX_EXAMPLE]
    yield from _report_untried(ctx, tried)
    if len(matching) > MAX_EXAMPLES:
        subject = f"{len(matching) - MAX_EXAMPLES} further examples"
        yield ctx.report_unchecked(subject, f"only {MAX_EXAMPLES} are checked")


def _report_untried(ctx: context.CheckContext, uris: Sequence[str]) -> context.Findings:
    left = sum(ctx.syntax.accepts(uri) is None for uri in uris)
    if left:
        subject = "the examples fit" if left == len(uris) else f"{left} of the examples fit"
        problem = ctx.syntax.problem
        reason = problem.message if problem else "the scheme has no grammar that can be decided"
        yield ctx.report_unchecked(f"whether {subject} the syntax", ctx.syntax.unmatched or reason)


#: characters of punctuation that may be part of a URI
_MAX_TAIL: Final = 8
#: words directly before the beginning of a URI
_BEGINNING: Final = re.compile(
    r"\b(?:(?:start|begin)(?:s|ning|ting|ing)?(?: \w+)? with|beginning|prefix(?:ed (?:by|with))?)[\W_]*\Z",
    re.IGNORECASE,
)
_OBSOLETE: Final = re.compile(
    r"\b(?:obsolete|deprecated|no longer|(?:previous|earlier|older) (?:version|draft|specification)s?)\b",
    re.IGNORECASE,
)
_IRI: Final = re.compile(r"\bIRIs?\b")
_URI_WORD: Final = re.compile(r"\bURIs?\b")


def _find_excuse(ctx: context.CheckContext, example: Example) -> str | None:
    """Return why an example may be different from the scheme's URIs; None if nothing in the text says so."""
    lines = ctx.reading.lines
    row = lines[example.line - 1] if 0 < example.line <= len(lines) else ""
    start, end = _find_uri(row, example.uri)
    lead = _collect_lead(ctx, example, row[max(start - _BEFORE, 0) : start])
    texts = (" ".join(lead), *lead[:-1], ctx.reading.get_title(example.line))
    if _AFTER.match(row[end : end + _BEHIND]) or any(map(_calls_uris_wrong, texts)):
        return "the text seems to show it as wrong"
    said = _get_last_sentence(texts[0])
    if _OBSOLETE.search(said) or _OBSOLETE.search(texts[-1]):
        return "the text shows a form that is not in use any more"
    if _BEGINNING.search(said):
        return "the text shows the beginning of a URI"
    if _IRI.search(said) and not _URI_WORD.search(said) and not ctx.syntax.is_uri(example.uri):
        return "the text shows an IRI"
    return None


def _collect_lead(ctx: context.CheckContext, example: Example, before: str) -> list[str]:
    """Return the lines before an example that introduce it, with `before` from its own line as the last."""
    lines = ctx.reading.lines
    lead = [before]
    prefix = example.uri.partition(":")[0] + ":"
    for index in range(min(example.line - 2, len(lines) - 1), max(example.line - 2 - _ABOVE, -1), -1):
        above = lines[index][-_BEFORE:].strip(' \t*->`"')
        if above.endswith("."):
            break
        # a line with another example is about that example
        if not above.startswith(prefix):
            lead.insert(0, above)
    return lead


def _calls_uris_wrong(text: str) -> bool:
    """Return whether the last sentence is about wrong URIs, or only the word "wrong"."""
    last = _get_last_sentence(text)
    return _COUNTER.search(last) is not None or _LABEL.fullmatch(last) is not None


def _get_last_sentence(text: str) -> str:
    return re.split(r"[.!?] ", context.squeeze_spaces(text))[-1]


def _find_uri(row: str, uri: str) -> tuple[int, int]:
    """Return the start and end of the URI in its line, not of a longer URI with the same beginning.

    A URI that is wrapped ends with the line.
    """
    start = -1
    for _ in range(_PLACES):
        start = row.find(uri, start + 1)
        if start < 0:
            break
        after = row[start + len(uri) : start + len(uri) + 1]
        if not (after.isalnum() or after in ("%", "/", "-", "_", "~")):
            return start, start + len(uri)
    return max(row.rfind(uri.partition(":")[0] + ":"), 0), len(row)


def _check_example(ctx: context.CheckContext, example: Example) -> context.Findings:
    uri, line = example.uri, example.line
    odd = next((character for character in uri if not character.isascii()), None)
    if odd is not None:
        damage = " (copy damage of `&curren`?)" if odd == "\u00a4" else ""
        yield ctx.report(
            "example-not-ascii",
            f"a URI is ASCII; U+{ord(odd):04X} is not{damage}",
            line=line,
            witness=uri,
            shown=_SHOWN_URI,
            fix=f"write `{context.to_printable(_repair_uri(uri), _SHOWN_URI)}`",
        )
    elif len(uri) > MAX_EXAMPLE:
        yield ctx.report_unchecked("an example", f"it is longer than {MAX_EXAMPLE} characters", line=line)
    elif not ctx.syntax.is_uri(uri):
        yield ctx.report(
            "example-not-a-uri",
            "the example is not a URI of RFC 3986",
            line=line,
            witness=uri,
            shown=_SHOWN_URI,
            fix="percent-encode what RFC 3986 does not allow there",
        )
    else:
        yield from _check_fits_syntax(ctx, example)


def _check_fits_syntax(ctx: context.CheckContext, example: Example) -> context.Findings:
    uri, line = example.uri, example.line
    before, mark, _ = uri.partition("#")
    if mark:
        yield ctx.report(
            "example-has-fragment",
            "the example has a fragment, so it is a URI but not an absolute-URI; "
            "the scheme does not define fragments",
            level=context.Level.WARNING,
            line=line,
            witness=uri,
            shown=_SHOWN_URI,
            fix=f"write `{context.to_printable(before, _SHOWN_URI)}`, "
            "or explain that RFC 3986 defines the fragment",
        )
    # the scheme's syntax has no fragment, but an example may show one
    if (
        ctx.syntax.accepts(uri) is False
        and not (mark and ctx.syntax.accepts(before) is True)
        # quotes may enclose the punctuation of the sentence, or the last character of the URI
        and not any(map(ctx.syntax.accepts, _list_longer_readings(example)))
        and not (is_in_appendix(example.section) and ctx.syntax.accepts_in_appendix(uri))
    ):
        yield ctx.report(
            "example-not-in-syntax",
            f"the example does not match {context.to_printable(ctx.syntax.start or '')}",
            line=line,
            witness=uri,
            shown=_SHOWN_URI,
            fix="correct the example or the grammar",
        )


def _list_longer_readings(example: Example) -> list[str]:
    """Return the example with one or more of the characters of punctuation that follow it."""
    return [example.uri + example.tail[:end] for end in range(1, min(len(example.tail), _MAX_TAIL) + 1)]


def _repair_uri(uri: str) -> str:
    """Return the URI with percent-encoded UTF-8, and `&curren` restored that a browser had replaced."""
    restored = uri.replace("\u00a4", "&curren")
    return "".join(
        character if character.isascii() else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in restored
    )
