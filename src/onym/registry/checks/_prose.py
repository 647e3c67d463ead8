"""Checks O1, O2, C1, C2, D1 to D3 and Q1 to Q6: what the prose says.

O and C cover operations, protocols, security and credentials. D covers other registries, well-known URIs,
example names and key words. Q are questions for a reviewer; each appears in the report, because no
program can answer it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Final

from onym.registry.checks.context import CheckContext, Faults, Level, make_fault, make_unchecked, to_printable
from onym.registry.checks.reference_data import load_word_list
from onym.registry.records import Status

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


def _get_severity(ctx: CheckContext) -> Level:
    """What permanent schemes must have, provisional ones should; RFC 4395 asks both for it."""
    strict = ctx.status is Status.PERMANENT or ctx.profile.id == "rfc4395"
    return Level.ERROR if strict else Level.WARNING


def check_operations(ctx: CheckContext) -> Faults:
    """O1: semantics are there, operations are named, and (7595) a default one."""
    text = ctx.collect_prose("semantics", "semantic", "operation", "resolution", "dereferenc", "well defined")
    if not ctx.is_specification and not text:
        if ctx.status is Status.PERMANENT:
            yield make_unchecked(
                "semantics and operations", "the template alone was given, not the specification"
            )
        return
    if not text:
        yield make_fault(
            "no-semantics",
            "no section or field says what a URI of this scheme means",
            level=_get_severity(ctx),
            field="semantics",
            line=ctx.get_line("semantics"),
            fix="add a section `Semantics and operations`: what the URI identifies, which operations apply",
        )
        return
    if not _OPERATION.search(text):
        yield make_fault(
            "no-operations",
            "the semantics name no operation (a heuristic)",
            level=Level.HINT,
            field="semantics",
            line=ctx.get_line("semantics"),
            fix="say what can be done with a resource that such a URI identifies, or that nothing can",
        )
    if ctx.profile.id == "rfc7595" and not _DEFAULT.search(ctx.prose):
        yield make_fault(
            "no-default-operation",
            "no default operation is named (a heuristic)",
            level=Level.HINT,
            field="semantics",
            line=ctx.get_line("semantics"),
            fix="say what software does by default when it is given such a URI, and that this is safe",
        )


def check_protocols(ctx: CheckContext) -> Faults:
    """O2: each protocol that the applications field names has a reference."""
    text = ctx.get_field("applications")[:10_000]
    named = dict.fromkeys(
        found["short"] or found["after"] or found["bare"] for found in _PROTOCOL.finditer(text)
    )
    listed = " ".join(
        [
            ctx.get_field("references"),
            *(f"{reference.key} {reference.text}" for reference in ctx.document.references),
        ]
    )
    for word in list(named)[:20]:
        if not re.search(rf"\b{word}\b", listed) and not re.search(
            rf"\b{word}\b[^.]{{0,40}}\[[\w.-]+\]", text
        ):
            yield make_fault(
                "protocol-without-reference",
                f'the protocol "{word}" has no reference',
                field="applications",
                line=ctx.get_line("applications"),
                witness=word,
                fix=f"cite the document that defines {word}, in this field and under References",
            )


def check_security(ctx: CheckContext) -> Faults:
    """C1: security considerations, the topics of RFC 3986 section 7, and privacy (7595)."""
    text = ctx.collect_prose("security", "security", "privacy")
    if not ctx.is_specification and not text:
        if ctx.profile.id != "rfc4395":
            yield make_unchecked(
                "security considerations",
                "the template alone was given, not the specification",
                fix="give the specification, or explain in the request why there is no security analysis",
            )
        return
    if _NO_SECURITY.match(text):
        yield make_fault(
            "no-security",
            "no security considerations, and no word on why there are none",
            level=_get_severity(ctx),
            field="security",
            line=ctx.get_line("security"),
            fix="add a section `Security considerations`, or explain why a full analysis is not available",
        )
        return
    if ctx.is_specification:
        yield from _check_topics(ctx, text)
        yield from _check_privacy(ctx)


def _check_topics(ctx: CheckContext, text: str) -> Faults:
    missing = [f"{topic} ({number})" for number, topic, words in _TOPIC_WORDS if not words.search(text)]
    if missing and not _CITES_7.search(ctx.prose):
        yield make_fault(
            "security-topics",
            f"of the topics of RFC 3986 section 7, these are not mentioned: {', '.join(missing)}",
            level=Level.WARNING,
            field="security",
            line=_find_first_line(ctx, "security"),
            fix="say of each whether it applies, or cite RFC 3986 section 7 and say which apply",
        )


def _check_privacy(ctx: CheckContext) -> Faults:
    if ctx.profile.id == "rfc7595" and not _PRIVACY.search(ctx.prose):
        yield make_fault(
            "no-privacy",
            "nothing is said on privacy",
            level=_get_severity(ctx),
            field="security",
            line=_find_first_line(ctx, "security"),
            fix="say what a URI of this scheme tells about whoever made or uses it, and to whom",
        )


def _find_first_line(ctx: CheckContext, word: str) -> int | None:
    found = ctx.find_sections(word)
    return found[0].line if found else ctx.get_line("security")


def check_credentials(ctx: CheckContext) -> Faults:
    """C2: secrets in userinfo are deprecated by RFC 3986 3.2.1, and the text ought to know."""
    if _CITES_321.search(ctx.prose):
        return
    fix = "cite RFC 3986 3.2.1, say that credentials there leak, and name a place outside the URI for them"
    names = [rule_name for rule_name in ctx.syntax.own_rules if _SECRET_RULE.search(rule_name)]
    password = ctx.syntax.probe("password")
    if password is not None:
        yield make_fault(
            "password-in-userinfo",
            "the syntax admits user:password, which RFC 3986 3.2.1 deprecates; the text does not say so",
            field="syntax",
            line=ctx.syntax.line_of("userinfo"),
            witness=password,
            fix=fix,
        )
    elif ctx.syntax.unprobed is not None:
        yield make_unchecked("user:password in the syntax", ctx.syntax.unprobed)
    elif names:
        yield make_fault(
            "secret-in-syntax",
            f"the rule {to_printable(names[0])} holds a secret, and RFC 3986 3.2.1 is not cited",
            field="syntax",
            line=ctx.syntax.line_of(names[0]),
            witness=to_printable(names[0]),
            fix=fix,
        )


MAX_LISTED: Final = 20

_WELL_KNOWN: Final = re.compile(r"/\.well-known/([A-Za-z0-9._~-]{1,80})")
_REL: Final = re.compile(r"\brel\s*=\s*[\"']?([A-Za-z][A-Za-z0-9.-]{0,60})[\"']?")
_SRV: Final = re.compile(r"(?<![\w.-])(_[A-Za-z0-9-]{1,63})\.(_(?:tcp|udp|sctp|dccp|quic))\b", re.IGNORECASE)
_NODE: Final = re.compile(r"(?<![\w.-])(_[A-Za-z][A-Za-z0-9-]{0,62})\.(?=[a-z])(?!_)", re.IGNORECASE)

_DOMAIN: Final = re.compile(r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,9}", re.IGNORECASE)
#: top-level domains that are not delegated
_SPECIAL: Final = frozenset({"example", "test", "invalid", "arpa"})
#: names of domains that stand for any
_ANY: Final = frozenset({"example", "domain"})
_CITES: Final = re.compile(r"\[[A-Z][\w.+-]{2,63}\]|\bRFC[ -]?\d{1,5}\b|\{\{[^{}]{2,80}\}\}")
#: documents that register nothing of this: how to register, key words, notations, HTTP itself
_RULES: Final = frozenset(
    f"RFC{each}"
    for each in (
        *(2782, 3986, 5785, 5988, 6335, 7595, 8126, 8288, 8552, 8553, 8615),
        *(2119, 8174, 3629, 2234, 4234, 5234, 2616, 7230, 7231, 9110),
    )
) | {"BCP14", "BCP35", "STD63", "STD66", "STD68", "STD97"}

_HOST: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)")
_EXAMPLE_HOST: Final = re.compile(
    r"(?:^|\.)(?:example(?:\.(?:com|net|org|edu))?|test|invalid|localhost|local|onion|arpa)\.?$",
    re.IGNORECASE,
)
#: a name of the DNS: with a dot and a top-level domain of letters; anything else is a placeholder or no host
_REAL: Final = re.compile(
    r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.(?:[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{2,59})\.?"
)
_DOCUMENTATION: Final = tuple(
    ip_network(each)
    for each in (
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "3fff::/20",
        "127.0.0.0/8",
        "::1/128",
    )
)

#: in a sentence all in capitals, as of old legal notices, they are no key words
_ODD_WORDS: Final = re.compile(r"(?<![\"'\w])(NEED NOT|MAY NOT|CAN NOT|WILL NOT)(?![\"'\w])(?!\s+[A-Z]{2})")
_WORD: Final = re.compile(r"(?<![\"'\w])(?:MUST|SHALL|SHOULD|REQUIRED|RECOMMENDED|OPTIONAL)(?![\"'\w])")
_CITES_14: Final = re.compile(r"\bBCP ?14\b|\bRFC ?2119\b|\bRFC ?8174\b", re.IGNORECASE)
#: kramdown's own paragraph of BCP 14
_BOILERPLATE: Final = "{::boilerplate bcp14"
_INSTEAD: Final = {
    "NEED NOT": "`MAY` or `are not required to`",
    "MAY NOT": "`MUST NOT`",
    "CAN NOT": "`MUST NOT`",
    "WILL NOT": "`MUST NOT`",
}

_CLAIMS: Final = re.compile(
    r"well-known URI support|well-known (?:URIs? )?(?:is|are) (?:supported|defined) (?:for|in|by)",
    re.IGNORECASE,
)
_8615: Final = re.compile(r"RFC ?8615|RFC ?5785", re.IGNORECASE)


def check_other_registries(ctx: CheckContext) -> Faults:
    """D1: well-known names, link relations, services and underscored nodes that IANA is not asked for."""
    text, asked = ctx.reading.text, _collect_iana_text(ctx)
    for found, kind, clause, name, how in _iter_used_names(ctx, text):
        if not _is_requested(asked, name, kind) and not _is_cited(ctx, text, found):
            yield make_fault(
                "not-requested",
                f"{kind} {to_printable(found[0].rstrip('.'))} is used, and IANA is not asked for it",
                clause=clause,
                line=ctx.reading.get_line(found.start()),
                witness=to_printable(found[0].rstrip(".")),
                fix=f"ask IANA for {how} in the IANA considerations, or cite in the same sentence the "
                "document that registers it",
            )


#: what a text that asks for one of these calls it
_WORDS: Final = {
    "the well-known URI": "well-known",
    "the link relation": "relation",
    "the service name": "service name",
    "the underscored node name": "node name",
}


def _is_requested(asked: str, name: str, kind: str) -> bool:
    return (
        _WORDS[kind] in asked
        and re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", asked) is not None
    )


def _collect_iana_text(ctx: CheckContext) -> str:
    """The IANA considerations, in lower case; what the template says counts too."""
    found = "\n".join(section.text for section in ctx.find_sections("iana"))
    mine = "" if ctx.template is None else "\n".join(value.text for value in ctx.template.values.values())
    return f"{found}\n{mine}".lower()


def _has_domain_after(ctx: CheckContext, text: str, found: re.Match[str]) -> bool:
    """Does a domain name follow, and not the rest of a file's name or of a program's?"""
    labels = _DOMAIN.match(text, found.end())
    parts = [] if labels is None else labels[0].lower().rstrip(".-").split(".")
    return bool(parts) and (
        parts[-1] in _ANY or (len(parts) > 1 and parts[-1] in {*ctx.known.tlds, *_SPECIAL})
    )


def _is_cited(ctx: CheckContext, text: str, found: re.Match[str]) -> bool:
    """Does the sentence cite the document that registers it?"""
    line = ctx.reading.get_line(found.start())
    before = re.split(r"[.;:] ", text[max(found.start() - 300, 0) : found.start()])[-1]
    # the line above, unless it is of a paragraph or a template that ends there
    *above, here = before.split("\n")
    if above and above[-1].strip() and not ctx.reading.is_field(line - 1):
        here = f"{above[-1]} {here}"
    after = re.split(r"[.;:](?:\s|\Z)|\n\n", text[found.end() : found.end() + 200], maxsplit=1)[0]
    cited = _CITES.findall(f"{here} {after}")
    return not _RULES.issuperset(re.sub(r"[^A-Z0-9]", "", citation.upper()) for citation in cited)


_Used = tuple[re.Match[str], str, str, str, str]


def _iter_used_names(ctx: CheckContext, text: str) -> Iterator[_Used]:
    """Each name once: the match, what it is, its clause, the name, what to ask for."""
    seen: set[tuple[str, str]] = set()
    for row in _iter_all_used(ctx, text):
        key = (row[1], row[3].lower())
        if key not in seen and len(seen) < MAX_LISTED:
            seen.add(key)
            yield row


def _iter_all_used(ctx: CheckContext, text: str) -> Iterator[_Used]:
    for found in _WELL_KNOWN.finditer(text):
        name = found[1].rstrip(".-")
        if name.lower() not in load_word_list("well-known-uris"):
            yield found, "the well-known URI", "RFC 8615 3.1", name, f'the well-known URI suffix "{name}"'
    for found in _REL.finditer(text):
        if found[1].lower() not in load_word_list("link-relations"):
            yield (
                found,
                "the link relation",
                "RFC 8288 2.1.1.1",
                found[1],
                f'the link relation type "{found[1]}"',
            )
    for found in _SRV.finditer(text):
        name = found[1].lstrip("_")
        if name.lower() not in ctx.known.services and name.lower() not in load_word_list("service-names"):
            yield found, "the service name", "RFC 6335 8.1", name, f'the service name "{name}"'
    for found in _NODE.finditer(text):
        if (
            found[1].lower() not in load_word_list("node-names")
            and _has_domain_after(ctx, text, found)
            and f"{found[1]}._".lower() not in text[found.start() :][:80].lower()
        ):
            yield (
                found,
                "the underscored node name",
                "RFC 8552 4.1",
                found[1],
                f'the global node name "{found[1]}"',
            )


def check_well_known(ctx: CheckContext) -> Faults:
    """D2: whoever claims support for well-known URIs in the scheme cites RFC 8615; the default is "-"."""
    value = ctx.get_field("well_known")
    text = ctx.reading.text
    own = rf"\b{re.escape(ctx.scheme)}://[^\s/]{{1,255}}/\.well-known/"
    used = re.search(own, text, re.IGNORECASE) if ctx.scheme else None
    claims = (value not in ("", "-")) or bool(_CLAIMS.search(ctx.prose)) or used is not None
    if claims and not _8615.search(f"{value}\n{ctx.prose}"):
        yield make_fault(
            "well-known-without-reference",
            "the scheme is said to support well-known URIs, and RFC 8615 is not cited",
            field="well_known" if value else None,
            line=ctx.get_line("well_known")
            if value
            else ctx.reading.get_line(used.start())
            if used
            else None,
            witness=to_printable(value or (used[0] if used else "")) or None,
            fix='cite RFC 8615 5.2 and say which URIs; without support the registry keeps "-"',
        )


def check_example_names(ctx: CheckContext) -> Faults:
    """D3: hosts of examples are reserved for examples; key words are those of BCP 14, and BCP 14 is cited."""
    yield from _check_hosts(ctx)
    text = ctx.reading.text
    found = _WORD.search(text)
    if ctx.is_specification and found and not (_CITES_14.search(text) or _BOILERPLATE in ctx.document.text):
        yield make_fault(
            "keywords-undefined",
            "key words in capitals, and BCP 14 is not cited",
            clause="RFC 8174 2",
            line=ctx.reading.get_line(found.start()),
            fix="add the paragraph of RFC 8174 2 and cite RFC 2119 and RFC 8174",
        )
    for word, odd in _find_first_each(_ODD_WORDS, text).items():
        yield make_fault(
            "keyword-unknown",
            f'"{word}" is no key word of BCP 14',
            clause="RFC 8174 2",
            line=ctx.reading.get_line(odd.start()),
            witness=word,
            fix=f"write {_INSTEAD[word]}, or use small letters",
        )


def _find_first_each(pattern: re.Pattern[str], text: str) -> dict[str, re.Match[str]]:
    seen: dict[str, re.Match[str]] = {}
    for found in pattern.finditer(text):
        seen.setdefault(found[1], found)
    return seen


def _check_hosts(ctx: CheckContext) -> Faults:
    seen: dict[str, int] = {}
    for example in ctx.document.examples:
        match = _HOST.match(example.uri)
        if match and match[1] and len(seen) < MAX_LISTED and not _is_reserved_host(ctx, match[1]):
            seen.setdefault(match[1].lower(), example.line)
    for host, line in seen.items():
        yield make_fault(
            "real-host-in-example",
            f"the example host {to_printable(host)} is no name reserved for examples",
            level=Level.WARNING,
            line=line,
            witness=to_printable(host),
            fix="write a host under example.com or .example, or an address of 192.0.2.0/24 or 2001:db8::/32",
        )


def _is_reserved_host(ctx: CheckContext, host: str) -> bool:
    if _EXAMPLE_HOST.search(host):
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        tlds = ctx.known.tlds
        return not _REAL.fullmatch(host) or bool(
            tlds and host.lower().strip(".").rpartition(".")[2] not in tlds
        )
    return any(address in network for network in _DOCUMENTATION if network.version == address.version)


def ask_utility(ctx: CheckContext) -> Faults:
    """Q1: is it of use to the Internet community, and new?"""
    yield make_fault(
        "ask-utility",
        "ask a person: does the scheme serve the Internet community beyond what existing schemes do?",
        line=ctx.get_line("applications"),
    )


def ask_trademark(ctx: CheckContext) -> Faults:
    """Q2: does the name touch the rights of others?"""
    yield make_fault(
        "ask-trademark",
        "ask a person: does the name touch a trademark or service mark, or a name in use elsewhere?",
        field="name",
        line=ctx.get_line("name"),
    )


def ask_clarity(ctx: CheckContext) -> Faults:
    """Q3: would two people who read it build the same?"""
    yield make_fault(
        "ask-clarity",
        "ask a person: is the definition clear enough that two implementations would agree?",
        line=ctx.get_line("semantics"),
    )


def ask_precedent(ctx: CheckContext) -> Faults:
    """Q4: does a syntax without hierarchy follow that of schemes before it?"""
    yield make_fault(
        "ask-precedent",
        "ask a person: if the syntax is not hierarchical, does it follow that of a registered scheme?",
        line=ctx.get_line("syntax"),
    )


def ask_access(ctx: CheckContext) -> Faults:
    """Q5: how does software get from the URI to what it identifies, and back?"""
    yield make_fault(
        "ask-access",
        "ask a person: does the text say how software finds what a URI identifies, and, where URIs stand for "
        "names or actions elsewhere, the mapping both ways and which of them it leaves out?",
        line=ctx.get_line("semantics"),
    )


def ask_safety(ctx: CheckContext) -> Faults:
    """Q6: does following a link oblige nobody?"""
    yield make_fault(
        "ask-safety",
        "ask a person: is the default operation safe, so that following a URI obliges nobody to anything?",
        line=ctx.get_line("semantics"),
    )
