"""S7 and S8: do the examples fit the syntax, and is text encoded in a way that is said?"""

from __future__ import annotations

import re
from typing import Any, Final

from onym.registry.checks._context import Context, Faults, fault, shown, squeezed, unchecked
from onym.registry.checks._reading import sentences_of
from onym.registry.checks.report import Level
from onym.registry.documents.types import Example
from onym.registry.records import Status

__all__ = ["encoding", "examples"]

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


def examples(ctx: Context) -> Faults:
    """S7: each example of the scheme is a string of its syntax, an absolute-URI, and ASCII."""
    if not ctx.scheme:
        return
    mine: list[Example] = []
    others: list[Example] = []
    for each in ctx.document.examples:
        if each.uri.lower().startswith(f"{ctx.scheme}:"):
            mine.append(each)
        elif not each.uri.isascii():
            # it may hold an example of this scheme, and the same damage
            others.append(each)
    for each in [*mine[:MAX_EXAMPLES], *others[:MAX_EXAMPLES]]:
        found = list(_example(ctx, each))
        if found and _is_counter_example(ctx, each):
            found = [unchecked(shown(each.uri), "the text seems to show it as wrong", line=each.line)]
        yield from found
    yield from _untried(ctx, [each.uri for each in mine[:MAX_EXAMPLES] if len(each.uri) <= MAX_EXAMPLE])
    if len(mine) > MAX_EXAMPLES:
        yield unchecked(f"{len(mine) - MAX_EXAMPLES} further examples", f"{MAX_EXAMPLES} are checked")


def _untried(ctx: Context, uris: list[str]) -> Faults:
    """Examples of which nobody knows whether they fit."""
    left = sum(ctx.syntax.accepts(each) is None for each in uris)
    if left:
        which = "the examples fit" if left == len(uris) else f"{left} of the examples fit"
        why = ctx.syntax.problem.message if ctx.syntax.problem else "no grammar of the scheme can be decided"
        yield unchecked(f"whether {which} the syntax", ctx.syntax.unmatched or why)


def _is_counter_example(ctx: Context, each: Example) -> bool:
    """Does the sentence that leads to the example, its heading or a comment say that it is no good one?"""
    lines = ctx.reading.lines
    row = lines[each.line - 1] if 0 < each.line <= len(lines) else ""
    start, end = _place(row, each.uri)
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
    return any(_says_wrong(said) for said in (" ".join(lead), *lead[:-1], ctx.reading.title(each.line)))


def _says_wrong(said: str) -> bool:
    """Is its last sentence about wrong URIs, or nothing but that word?"""
    last = re.split(r"[.!?] ", squeezed(said))[-1]
    return _COUNTER.search(last) is not None or _LABEL.fullmatch(last) is not None


def _place(row: str, uri: str) -> tuple[int, int]:
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


def _example(ctx: Context, each: Example) -> Faults:
    where: dict[str, Any] = {"line": each.line, "witness": shown(each.uri, 160)}
    odd = next((one for one in each.uri if not one.isascii()), None)
    if odd is not None:
        yield fault(
            "example-not-ascii",
            f"a URI is ASCII; U+{ord(odd):04X} is not"
            + (" (copy damage of `&curren`?)" if odd == "\u00a4" else ""),
            fix=f"write `{shown(_repaired(each.uri), 160)}`",
            **where,
        )
    elif len(each.uri) > MAX_EXAMPLE:
        yield unchecked("an example", f"it is longer than {MAX_EXAMPLE} characters", line=each.line)
    elif not ctx.syntax.generic(each.uri):
        yield fault(
            "example-not-a-uri",
            "the example is no URI of RFC 3986",
            fix="percent-encode what RFC 3986 does not admit there",
            **where,
        )
    else:
        yield from _fits(ctx, each)


def _fits(ctx: Context, each: Example) -> Faults:
    where: dict[str, Any] = {"line": each.line, "witness": shown(each.uri, 160)}
    if "#" in each.uri:
        yield fault(
            "example-has-fragment",
            "the example has a fragment: it is a URI and no absolute-URI, and the fragment not the scheme's",
            level=Level.WARNING,
            fix=f"write `{shown(each.uri.partition('#')[0], 160)}`, or say that it is RFC 3986's",
            **where,
        )
    if ctx.syntax.accepts(each.uri) is False and not _without_fragment(ctx, each.uri):
        yield fault(
            "example-not-in-syntax",
            f"the example is no string of {shown(ctx.syntax.start or '')}",
            fix="correct the example or the grammar",
            **where,
        )


def _without_fragment(ctx: Context, uri: str) -> bool:
    """A scheme's syntax has no fragment; an example may show one all the same."""
    before, mark, _ = uri.partition("#")
    return bool(mark) and ctx.syntax.accepts(before) is True


def _repaired(uri: str) -> str:
    """Percent-encoded UTF-8; `&curren` that a browser read as a currency sign is put back."""
    restored = uri.replace("\u00a4", "&curren")
    return "".join(
        each if each.isascii() else "".join(f"%{byte:02X}" for byte in each.encode()) for each in restored
    )


def encoding(ctx: Context) -> Faults:
    """S8: where URIs carry text, a character encoding is named, and the syntax keeps to it."""
    text = ctx.prose_of("encoding", "encoding", "international", "character")
    if not ctx.syntax.decidable:
        if ctx.value("encoding") or ctx.whole:
            yield from _named_without_grammar(ctx, text)
        return
    if not ctx.syntax.holds_text:
        return
    lenient = ctx.status is Status.PROVISIONAL and ctx.profile.id != "rfc4395"
    level = Level.WARNING if lenient else Level.ERROR
    if not _CHARSET.search(text) and ctx.whole:
        text = _naming(ctx) or text
    if not _CHARSET.search(text) and _ELSEWHERE.search(text) and not ctx.whole:
        yield unchecked("the character encoding", "the field points at a specification that was not given")
    elif not _CHARSET.search(text):
        yield fault(
            "no-charset",
            "URIs of the scheme hold text, and no character encoding is named",
            level=level,
            field="encoding",
            line=ctx.line("encoding"),
            fix="write: characters beyond ASCII are encoded as UTF-8 and then percent-encoded (RFC 3986 2.5)",
        )
    elif ctx.syntax.unprobed is not None:
        yield unchecked("octets that are no UTF-8", ctx.syntax.unprobed)
    elif (stray := ctx.syntax.probe("encoded-octet")) is not None and _only_utf8(ctx, text):
        yield fault(
            "not-only-utf-8",
            "the text says UTF-8, and the syntax admits percent-encoded octets that are not",
            level=Level.WARNING,
            field="encoding",
            line=ctx.line("encoding"),
            witness=shown(stray),
            fix="say what a reader does with octets that are not UTF-8: refuse it, or take octets",
        )


def _naming(ctx: Context) -> str:
    """The sentences, anywhere in the text, that name the encoding of the scheme's characters."""
    return "\n".join(
        each
        for each in ctx.reading.sentences
        if _NAMED.search(each) and not _NOT_NAMED.search(each) and (_OF_URIS.search(each) or _of(ctx, each))
    )


def _of(ctx: Context, sentence: str) -> bool:
    return bool(ctx.scheme) and f"{ctx.scheme}:" in sentence


def _only_utf8(ctx: Context, text: str) -> bool:
    """Is UTF-8 said, and no sentence says what becomes of octets that are none?"""
    sentences = (*sentences_of(text), *(ctx.reading.sentences if ctx.whole else ()))
    refused = any(_OCTETS.search(each) and _REFUSES.search(each) for each in sentences)
    return bool(_UTF8.search(text)) and not refused


def _named_without_grammar(ctx: Context, text: str) -> Faults:
    if not _CHARSET.search(text):
        yield unchecked(
            "whether the scheme's text needs a character encoding",
            "there is no grammar that can be decided, and no encoding is named",
            line=ctx.line("encoding"),
        )
