"""O1, O2, C1, C2: what the text says of operations, protocols, security and privacy."""

from __future__ import annotations

import re
from typing import Final

from onym.registry.checks._context import Context, Faults, fault, shown, unchecked
from onym.registry.checks.report import Level
from onym.registry.records import Status

__all__ = ["credentials", "operations", "protocols", "security"]

_OPERATION: Final = re.compile(
    r"\b(?:operations?|dereferenc\w+|resol(?:ve[sd]?|ution|ving)|retriev\w+|invo(?:ke[sd]?|cation)|GET|POST|fetch\w*"
    r"|connects?|opens?|launch\w*|identif(?:y|ies|ied|ication))\b"
)
_DEFAULT: Final = re.compile(
    r"\b(?:default|primary|only|single|sole) (?:operation|action|method|invocation)\b", re.IGNORECASE
)
#: `AIIP (Artificial Intelligence Internet Protocol)`, `Session Initiation Protocol (SIP)`, `the SIP protocol`
_PROTOCOL: Final = re.compile(
    r"\b(?P<short>[A-Z][A-Z0-9]{1,11})\s+\((?:[\w-]+\s+){0,6}?Protocol\)"
    r"|\bProtocol\s+\((?P<after>[A-Z][A-Z0-9]{1,11})\)"
    r"|\b(?P<bare>[A-Z][A-Z0-9]{1,11})\s+protocol\b"
)
#: the topics of RFC 3986 section 7, and the words that show one
_TOPICS: Final = (
    (
        "7.1",
        "reliability and consistency",
        r"reliab|consisten|stale|persisten|reassign|dangling|no longer exist",
    ),
    (
        "7.2",
        "malicious construction",
        r"malicious|untrusted|inject|forg(?:e|ery)|crafted|attacker|unexpected port",
    ),
    ("7.3", "back-end transcoding", r"transcod|decod|percent-encod|%00|escap(?:e|ing)|nul\b|normali[sz]"),
    ("7.4", "rare IP address formats", r"\bIP address|\bIPv[46]|loopback|rare ip|address format|octal"),
    (
        "7.5",
        "sensitive information",
        r"sensitiv|credential|password|secret|private|confidential|leak|disclos",
    ),
    (
        "7.6",
        "semantic attacks",
        r"semantic attack|spoof|phish|mislead|homograph|confus|userinfo|impersonat|disguis",
    ),
)
_TOPIC_WORDS: Final = tuple((at, topic, re.compile(words, re.IGNORECASE)) for at, topic, words in _TOPICS)
_CITES_7: Final = re.compile(
    r"(?:section\s*7\s*of\s*[\[!?]?RFC\s?3986|\[?RFC\s?3986\]?,?\s*section\s*7)\b(?!\.)", re.IGNORECASE
)
_PRIVACY: Final = re.compile(r"privacy|personal(?:ly)? |tracking|linkab|anonym", re.IGNORECASE)
_NO_SECURITY: Final = re.compile(
    r"^(?:none|n/?a|no(?:ne)? (?:known|additional)[^.]{0,60}|tbd|todo|-)?\.?$", re.IGNORECASE
)
_SECRET_RULE: Final = re.compile(
    r"(?:^|[-_])(?:api-?key|key|token|secret|password|passwd|pwd)(?:$|[-_])", re.IGNORECASE
)
_CITES_321: Final = re.compile(r"\b3\.2\.1\b.{0,40}RFC\s?3986|RFC\s?3986.{0,40}\b3\.2\.1\b", re.IGNORECASE)


def _grave(ctx: Context) -> Level:
    """What permanent schemes must have, provisional ones should; RFC 4395 asks both for it."""
    strict = ctx.status is Status.PERMANENT or ctx.profile.id == "rfc4395"
    return Level.ERROR if strict else Level.WARNING


def operations(ctx: Context) -> Faults:
    """O1: semantics are there, operations are named, and (7595) a default one."""
    text = ctx.prose_of("semantics", "semantic", "operation", "resolution", "dereferenc", "well defined")
    if not ctx.whole and not text:
        if ctx.status is Status.PERMANENT:
            yield unchecked("semantics and operations", "the template alone was given, not the specification")
        return
    if not text:
        yield fault(
            "no-semantics",
            "no section or field says what a URI of this scheme means",
            level=_grave(ctx),
            field="semantics",
            line=ctx.line("semantics"),
            fix="add a section `Semantics and operations`: what the URI identifies, which operations apply",
        )
        return
    if not _OPERATION.search(text):
        yield fault(
            "no-operations",
            "the semantics name no operation (a heuristic)",
            level=Level.HINT,
            field="semantics",
            line=ctx.line("semantics"),
            fix="say what can be done with a resource that such a URI identifies, or that nothing can",
        )
    if ctx.profile.id == "rfc7595" and not _DEFAULT.search(ctx.prose):
        yield fault(
            "no-default-operation",
            "no default operation is named (a heuristic)",
            level=Level.HINT,
            field="semantics",
            line=ctx.line("semantics"),
            fix="say what software does by default when it is given such a URI, and that this is safe",
        )


def protocols(ctx: Context) -> Faults:
    """O2: each protocol that the applications field names has a reference."""
    text = ctx.value("applications")[:10_000]
    named = dict.fromkeys(
        found["short"] or found["after"] or found["bare"] for found in _PROTOCOL.finditer(text)
    )
    listed = " ".join(
        [ctx.value("references"), *(f"{each.key} {each.text}" for each in ctx.document.references)]
    )
    for each in list(named)[:20]:
        if not re.search(rf"\b{each}\b", listed) and not re.search(
            rf"\b{each}\b[^.]{{0,40}}\[[\w.-]+\]", text
        ):
            yield fault(
                "protocol-without-reference",
                f'the protocol "{each}" has no reference',
                field="applications",
                line=ctx.line("applications"),
                witness=each,
                fix=f"cite the document that defines {each}, in this field and under References",
            )


def security(ctx: Context) -> Faults:
    """C1: security considerations, the topics of RFC 3986 section 7, and privacy (7595)."""
    text = ctx.prose_of("security", "security", "privacy")
    if not ctx.whole and not text:
        if ctx.profile.id != "rfc4395":
            yield unchecked(
                "security considerations",
                "the template alone was given, not the specification",
                fix="give the specification, or explain in the request why there is no security analysis",
            )
        return
    if _NO_SECURITY.match(text):
        yield fault(
            "no-security",
            "no security considerations, and no word on why there are none",
            level=_grave(ctx),
            field="security",
            line=ctx.line("security"),
            fix="add a section `Security considerations`, or explain why a full analysis is not available",
        )
        return
    if ctx.whole:
        yield from _topics(ctx, text)
        yield from _privacy(ctx)


def _topics(ctx: Context, text: str) -> Faults:
    missing = [f"{topic} ({number})" for number, topic, words in _TOPIC_WORDS if not words.search(text)]
    if missing and not _CITES_7.search(ctx.prose):
        yield fault(
            "security-topics",
            f"of the topics of RFC 3986 section 7, these are not mentioned: {', '.join(missing)}",
            level=Level.WARNING,
            field="security",
            line=_first_line(ctx, "security"),
            fix="say of each whether it applies, or cite RFC 3986 section 7 and say which apply",
        )


def _privacy(ctx: Context) -> Faults:
    if ctx.profile.id == "rfc7595" and not _PRIVACY.search(ctx.prose):
        yield fault(
            "no-privacy",
            "nothing is said on privacy",
            level=_grave(ctx),
            field="security",
            line=_first_line(ctx, "security"),
            fix="say what a URI of this scheme tells about whoever made or uses it, and to whom",
        )


def _first_line(ctx: Context, word: str) -> int | None:
    found = ctx.sections(word)
    return found[0].line if found else ctx.line("security")


def credentials(ctx: Context) -> Faults:
    """C2: secrets in userinfo are deprecated by RFC 3986 3.2.1, and the text ought to know."""
    if _CITES_321.search(ctx.prose):
        return
    fix = "cite RFC 3986 3.2.1, say that credentials there leak, and name a place outside the URI for them"
    names = [each for each in ctx.syntax.own_rules if _SECRET_RULE.search(each)]
    password = ctx.syntax.probe("password")
    if password is not None:
        yield fault(
            "password-in-userinfo",
            "the syntax admits user:password, which RFC 3986 3.2.1 deprecates; the text does not say so",
            field="syntax",
            line=ctx.syntax.line_of("userinfo"),
            witness=password,
            fix=fix,
        )
    elif ctx.syntax.unprobed is not None:
        yield unchecked("user:password in the syntax", ctx.syntax.unprobed)
    elif names:
        yield fault(
            "secret-in-syntax",
            f"the rule {shown(names[0])} holds a secret, and RFC 3986 3.2.1 is not cited",
            field="syntax",
            line=ctx.syntax.line_of(names[0]),
            witness=shown(names[0]),
            fix=fix,
        )
