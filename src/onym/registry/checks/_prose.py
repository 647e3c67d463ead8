"""Checks S8, O1, O2, C1, C2, D1 to D3 and Q1 to Q6: the prose of a document.

Q are questions for a reviewer; each is in the report, because no program can answer it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from onym.registry.checks.context import (
    CheckContext,
    Findings,
    Level,
    load_word_list,
    split_sentences,
    squeeze_spaces,
    to_printable,
)
from onym.registry.documents.types import TemplateValue
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
#: the topics of RFC 3986 section 7, and the words that indicate each topic
_TOPICS: Final = {
    "reliability and consistency (7.1)": "reliab|consisten|stale|persisten|reassign|dangling|no longer exist",
    "malicious construction (7.2)": (
        "malicious|untrusted|inject|forg(?:e|ery)|crafted|attacker|unexpected port"
    ),
    "back-end transcoding (7.3)": r"transcod|decod|percent-encod|%00|escap(?:e|ing)|nul\b|normali[sz]",
    "rare IP address formats (7.4)": r"\bIP address|\bIPv[46]|loopback|rare ip|address format|octal",
    "sensitive information (7.5)": r"sensitiv|credential|password|secret|private|confidential|leak|disclos",
    "semantic attacks (7.6)": (
        r"semantic attack|spoof|phish|mislead|homograph|confus|userinfo|impersonat|disguis"
    ),
}
_CITES_7: Final = re.compile(
    r"(?:section\s*7\s*of\s*[\[!?]?RFC\s?3986|\[?RFC\s?3986\]?,?\s*section\s*7)\b(?!\.)", re.IGNORECASE
)
_PRIVACY: Final = re.compile(r"privacy|personal(?:ly)? |tracking|linkab|anonym", re.IGNORECASE)
#: security considerations that describe what a URI reveals about people, without those words
_REVEALS: Final = re.compile(
    r"\b(?:reveal|disclos|expos|leak)\w*\b[^.]{0,100}"
    r"\b(?:authors?|users?|persons?|people|readers?|visitors?|who|whom)\b",
    re.IGNORECASE,
)
_NO_SECURITY: Final = re.compile(
    r"^(?:none|n/?a|no(?:ne)? (?:known|additional)[^.]{0,60}|tbd|todo|-)?\.?$", re.IGNORECASE
)
_SECRET_RULE: Final = re.compile(
    r"(?:^|[-_])(?:api-?key|key|token|secret|password|passwd|pwd)(?:$|[-_])", re.IGNORECASE
)
_CITES_321: Final = re.compile(r"\b3\.2\.1\b.{0,40}RFC\s?3986|RFC\s?3986.{0,40}\b3\.2\.1\b", re.IGNORECASE)


def _get_severity(ctx: CheckContext) -> Level:
    """Return an error for permanent schemes and under RFC 4395, else a warning."""
    strict = ctx.status is Status.PERMANENT or ctx.profile.id == "rfc4395"
    return Level.ERROR if strict else Level.WARNING


def check_operations(ctx: CheckContext) -> Findings:
    """O1: the text has semantics, names operations and (RFC 7595) a default operation."""
    text = ctx.collect_prose("semantics", *_SEMANTIC_TITLES)
    if not ctx.is_specification and not text:
        if ctx.status is Status.PERMANENT:
            yield ctx.report_unchecked("semantics and operations", _ONLY_TEMPLATE)
        return
    if not text and not _has_meaning(ctx):
        yield ctx.report(
            "no-semantics",
            "no section or field defines what a URI of this scheme means",
            level=_get_severity(ctx),
            clause="RFC 4395 2.3" if ctx.profile.id == "rfc4395" else "RFC 7595 3.3",
            at="semantics",
            fix="add a section `Semantics and operations`: what URIs identify, and which operations apply",
        )
        return
    if not _OPERATION.search(text or ctx.prose):
        yield ctx.report(
            "no-operations",
            "the semantics name no operation (a heuristic)",
            level=Level.HINT,
            at="semantics",
            fix="name the operations on a resource that such a URI identifies, or write that there are none",
        )
    if ctx.profile.id == "rfc7595" and not _DEFAULT.search(ctx.prose):
        yield ctx.report(
            "no-default-operation",
            "no default operation is named (a heuristic)",
            level=Level.HINT,
            at="semantics",
            fix="describe what software does by default with such a URI, and why that is safe",
        )


#: words of the titles of sections about semantics; "Intended usage" is a field of RFC 2717 6.0
_SEMANTIC_TITLES: Final = (
    *("semantic", "operation", "resolution", "dereferenc", "well defined"),
    *("intended usage", "processing uri"),
)
_INTENDED_USAGE: Final = "intended usage"
#: a sentence or a label that says what URIs of a scheme are for
_MEANING: Final = re.compile(
    r"\b(?:URI|URL|scheme|identifier)s?\b(?: \S+){0,8}? (?:identif(?:y|ies)|designates?|denotes?|represents?"
    r"|refers? to|locates?|(?:is|are) used (?:to|as|for|by)|indicates?)\b"
    r"|\bsemantics\b|\bintended usage\b",
    re.IGNORECASE,
)


def _has_meaning(ctx: CheckContext) -> bool:
    """Return whether a sentence of the specification names the scheme and what its URIs mean."""
    if not ctx.is_specification or not ctx.scheme:
        return False
    values = () if ctx.template is None else (*ctx.template.unknown, *ctx.template.values.values())
    if any(value.label.lower() == _INTENDED_USAGE and value.text.strip() for value in values):
        return True
    name = re.compile(rf"(?<![\w.+-]){re.escape(ctx.scheme)}(?![\w+-])", re.IGNORECASE)
    return any(_MEANING.search(sentence) and name.search(sentence) for sentence in ctx.reading.sentences)


def check_protocols(ctx: CheckContext) -> Findings:
    """O2: each protocol that the applications field names has a reference."""
    text = ctx.get_field("applications")[:10_000]
    names = dict.fromkeys(
        match["short"] or match["after"] or match["bare"] for match in _PROTOCOL.finditer(text)
    )
    entries = (f"{reference.key} {reference.text}" for reference in ctx.document.references)
    listed = " ".join([ctx.get_field("references"), *entries])
    for name in list(names)[:20]:
        cited = re.search(rf"\b{name}\b[^.]{{0,40}}\[[\w.-]+\]", text)
        if not cited and not re.search(rf"\b{name}\b", listed):
            yield ctx.report(
                "protocol-without-reference",
                f'the protocol "{name}" has no reference',
                at="applications",
                witness=name,
                fix=f"cite the document that defines {name}, in this field and under References",
            )


_ONLY_TEMPLATE: Final = "only the template was given, not the specification"


def check_security(ctx: CheckContext) -> Findings:
    """C1: security considerations, the topics of RFC 3986 section 7, and privacy (RFC 7595)."""
    text = ctx.collect_prose("security", "security", "privacy")
    if not ctx.is_specification and not text:
        if ctx.profile.id != "rfc4395":
            yield ctx.report_unchecked(
                "security considerations",
                _ONLY_TEMPLATE,
                fix="provide the specification, or explain in the request why it lacks a security analysis",
            )
        return
    sections = ctx.find_sections("security")
    line = sections[0].line if sections else ctx.get_line("security")
    if _NO_SECURITY.match(text):
        yield ctx.report(
            "no-security",
            "no security considerations, and no reason for that",
            level=_get_severity(ctx),
            field="security",
            line=line,
            fix="add a section `Security considerations`, or explain why a full analysis is not available",
        )
        return
    if not ctx.is_specification:
        return
    missing = [topic for topic, words in _TOPICS.items() if not re.search(words, text, re.IGNORECASE)]
    if missing and not _CITES_7.search(ctx.prose):
        yield ctx.report(
            "security-topics",
            f"of the topics of RFC 3986 section 7, these are not mentioned: {', '.join(missing)}",
            level=Level.WARNING,
            field="security",
            line=line,
            fix="write whether each topic applies, or cite RFC 3986 section 7 and name the topics that apply",
        )
    if ctx.profile.id == "rfc7595" and not (_PRIVACY.search(ctx.prose) or _REVEALS.search(text)):
        yield ctx.report(
            "no-privacy",
            "the text does not mention privacy",
            level=_get_severity(ctx),
            field="security",
            line=line,
            fix="describe what a URI of this scheme reveals about its author and its users, and to whom",
        )


def check_credentials(ctx: CheckContext) -> Findings:
    """C2: RFC 3986 3.2.1 deprecates secrets in userinfo, and the text should mention that."""
    if _CITES_321.search(ctx.prose):
        return
    fix = "cite RFC 3986 3.2.1, warn that credentials there leak, and name a place outside the URI for them"
    names = [name for name in ctx.syntax.own_rules if _SECRET_RULE.search(name)]
    password = ctx.syntax.probe("password")
    if password is not None:
        yield ctx.report_syntax(
            "password-in-userinfo",
            "the syntax allows user:password, which RFC 3986 3.2.1 deprecates; the text does not warn of it",
            rule="userinfo",
            witness=password,
            fix=fix,
        )
    elif ctx.syntax.unprobed is not None:
        yield ctx.report_unchecked("user:password in the syntax", ctx.syntax.unprobed)
    elif names:
        yield ctx.report_syntax(
            "secret-in-syntax",
            f"the rule {to_printable(names[0])} contains a secret, but RFC 3986 3.2.1 is not cited",
            rule=names[0],
            witness=names[0],
            fix=fix,
        )


MAX_LISTED: Final = 20

_WELL_KNOWN: Final = re.compile(r"/\.well-known/([A-Za-z0-9._~-]{1,80})")
_REL: Final = re.compile(r"\brel\s*=\s*[\"']?([A-Za-z][A-Za-z0-9.-]{0,60})[\"']?")
_SRV: Final = re.compile(r"(?<![\w.-])(_[A-Za-z0-9-]{1,63})\.(_(?:tcp|udp|sctp|dccp|quic))\b", re.IGNORECASE)
_NODE: Final = re.compile(r"(?<![\w.-])(_[A-Za-z][A-Za-z0-9-]{0,62})\.(?=[a-z])(?!_)", re.IGNORECASE)

_DOMAIN: Final = re.compile(r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,9}", re.IGNORECASE)
#: top-level domains that are reserved
_SPECIAL: Final = frozenset({"example", "test", "invalid", "arpa"})
#: placeholder names of domains
_ANY: Final = frozenset({"example", "domain"})
_CITES: Final = re.compile(r"\[[A-Z][\w.+-]{2,63}\]|\bRFC[ -]?\d{1,5}\b|\{\{[^{}]{2,80}\}\}")
#: documents that register no names: procedures, key words, notations and HTTP
_GENERAL_DOCUMENTS: Final = frozenset(
    f"RFC{number}"
    for number in (
        *(2782, 3986, 5785, 5988, 6335, 7595, 8126, 8288, 8552, 8553, 8615),
        *(2119, 8174, 3629, 2234, 4234, 5234, 2616, 7230, 7231, 9110),
    )
) | {"BCP14", "BCP35", "STD63", "STD66", "STD68", "STD97"}

_HOST: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)")
_EXAMPLE_HOST: Final = re.compile(
    r"(?:^|\.)(?:example(?:\.(?:com|net|org|edu))?|test|invalid|localhost|local|onion|arpa)\.?$",
    re.IGNORECASE,
)
#: a DNS name with a dot and a top-level domain of letters; anything else is a placeholder or not a host
_REAL: Final = re.compile(
    r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.(?:[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{2,59})\.?"
)
_DOCUMENTATION: Final = tuple(
    ip_network(network)
    for network in (
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "3fff::/20",
        "127.0.0.0/8",
        "::1/128",
    )
)

#: key words that BCP 14 does not define; sentences in capitals, as in old legal notices, are left out
_ODD_WORDS: Final = re.compile(r"(?<![\"'\w])(NEED NOT|MAY NOT|CAN NOT|WILL NOT)(?![\"'\w])(?!\s+[A-Z]{2})")
_WORD: Final = re.compile(r"(?<![\"'\w])(?:MUST|SHALL|SHOULD|REQUIRED|RECOMMENDED|OPTIONAL)(?![\"'\w])")
_CITES_14: Final = re.compile(r"\bBCP ?14\b|\bRFC ?2119\b|\bRFC ?8174\b", re.IGNORECASE)
#: the paragraph of BCP 14 in kramdown
_BOILERPLATE: Final = "{::boilerplate bcp14"

_CLAIMS: Final = re.compile(
    r"well-known URI support|well-known (?:URIs? )?(?:is|are) (?:supported|defined) (?:for|in|by)",
    re.IGNORECASE,
)
_8615: Final = re.compile(r"RFC ?8615|RFC ?5785", re.IGNORECASE)


class _NameKind(NamedTuple):
    """A registry of names: what the text calls a name, the clause, the request to IANA, and a key word."""

    title: str
    clause: str
    request: str
    key_word: str


_WELL_KNOWN_KIND: Final = _NameKind(
    "the well-known URI", "RFC 8615 3.1", "the well-known URI suffix", "well-known"
)
_RELATION_KIND: Final = _NameKind(
    "the link relation", "RFC 8288 2.1.1.1", "the link relation type", "relation"
)
_SERVICE_KIND: Final = _NameKind("the service name", "RFC 6335 8.1", "the service name", "service name")
_NODE_KIND: Final = _NameKind(
    "the underscored node name", "RFC 8552 4.1", "the global node name", "node name"
)


def check_other_registries(ctx: CheckContext) -> Findings:
    """D1: well-known names, link relations, services and underscored nodes that no one requests from IANA."""
    text = ctx.reading.text
    # the template may request a name too
    values = () if ctx.template is None else ctx.template.values.values()
    requests = "\n".join(part.text for part in (*ctx.find_sections("iana"), *values)).lower()
    seen: set[tuple[_NameKind, str]] = set()
    for match, kind, name in _iter_used_names(ctx, text):
        if (kind, name.lower()) in seen:
            continue
        if len(seen) >= MAX_LISTED:
            return
        seen.add((kind, name.lower()))
        words = rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])"
        requested = kind.key_word in requests and re.search(words, requests) is not None
        if not requested and not _is_cited(ctx, text, match):
            used = match[0].rstrip(".")
            yield ctx.report(
                "not-requested",
                f"{kind.title} {to_printable(used)} is used but not requested from IANA",
                clause=kind.clause,
                line=ctx.reading.get_line(match.start()),
                witness=used,
                fix=f'request {kind.request} "{name}" in the IANA considerations, or cite the document that '
                "registers it in the same sentence",
            )


def _iter_used_names(ctx: CheckContext, text: str) -> Iterator[tuple[re.Match[str], _NameKind, str]]:
    """Yield each use of a name that is not registered: the match, the kind and the name."""
    for match in _WELL_KNOWN.finditer(text):
        name = match[1].rstrip(".-")
        if name.lower() not in load_word_list("well-known-uris"):
            yield match, _WELL_KNOWN_KIND, name
    for match in _REL.finditer(text):
        if match[1].lower() not in load_word_list("link-relations"):
            yield match, _RELATION_KIND, match[1]
    for match in _SRV.finditer(text):
        name = match[1].lstrip("_")
        if name.lower() not in ctx.known.services and name.lower() not in load_word_list("service-names"):
            yield match, _SERVICE_KIND, name
    for match in _NODE.finditer(text):
        if (
            match[1].lower() not in load_word_list("node-names")
            and _has_domain_after(ctx, text, match)
            and f"{match[1]}._".lower() not in text[match.start() :][:80].lower()
        ):
            yield match, _NODE_KIND, match[1]


def _has_domain_after(ctx: CheckContext, text: str, match: re.Match[str]) -> bool:
    """Return whether a domain name follows, not the rest of a file name or an expression."""
    labels = _DOMAIN.match(text, match.end())
    parts = [] if labels is None else labels[0].lower().rstrip(".-").split(".")
    return bool(parts) and (
        parts[-1] in _ANY or (len(parts) > 1 and parts[-1] in {*ctx.known.tlds, *_SPECIAL})
    )


def _is_cited(ctx: CheckContext, text: str, match: re.Match[str]) -> bool:
    """Return whether the sentence cites a document that may register the name."""
    line = ctx.reading.get_line(match.start())
    before = re.split(r"[.;:] ", text[max(match.start() - 300, 0) : match.start()])[-1]
    # the line above, unless a paragraph or a template ends there
    *above, here = before.split("\n")
    if above and above[-1].strip() and not ctx.reading.is_field(line - 1):
        here = f"{above[-1]} {here}"
    after = re.split(r"[.;:](?:\s|\Z)|\n\n", text[match.end() : match.end() + 200], maxsplit=1)[0]
    cited = _CITES.findall(f"{here} {after}")
    return not _GENERAL_DOCUMENTS.issuperset(re.sub(r"[^A-Z0-9]", "", citation.upper()) for citation in cited)


def check_well_known(ctx: CheckContext) -> Findings:
    """D2: a text that claims support for well-known URIs cites RFC 8615; the default value is "-"."""
    asked = _find_well_known_column(ctx)
    value = "" if asked is None else squeeze_spaces(asked.text)
    uri = rf"\b{re.escape(ctx.scheme)}://[^\s/]{{1,255}}/\.well-known/"
    used = re.search(uri, ctx.reading.text, re.IGNORECASE) if ctx.scheme else None
    # "-" is the value of a scheme without support
    claimed = value != "-" if asked is not None else _CLAIMS.search(ctx.prose) is not None
    if (claimed or used is not None) and not _8615.search(f"{value}\n{ctx.prose}"):
        line, witness = None if asked is None else asked.line, value or None
        if used is not None:
            line, witness = ctx.reading.get_line(used.start()), used[0]
        yield ctx.report(
            "well-known-without-reference",
            "the text claims support for well-known URIs but does not cite RFC 8615",
            field=None if asked is None else "well_known",
            line=line,
            witness=witness,
            fix='cite RFC 8615 5.2 and name the URIs; without support the registry keeps "-"',
        )


def _find_well_known_column(ctx: CheckContext) -> TemplateValue | None:
    """Return the template's value for the registry's column; None if the template does not have it."""
    if ctx.template is None:
        return None
    unknown = (value for value in ctx.template.unknown if value.label.lower().startswith("well-known uri"))
    return ctx.template.values.get("well_known") or next(unknown, None)


def check_example_names(ctx: CheckContext) -> Findings:
    """D3: hosts of examples are reserved for examples; key words are those of BCP 14, which is cited."""
    yield from _check_hosts(ctx)
    text = ctx.reading.text
    key_word = _WORD.search(text)
    cited = _CITES_14.search(text) or _BOILERPLATE in ctx.document.text
    if ctx.is_specification and key_word and not cited:
        yield ctx.report(
            "keywords-undefined",
            "the text has key words in capitals but does not cite BCP 14",
            clause="RFC 8174 2",
            line=ctx.reading.get_line(key_word.start()),
            fix="add the paragraph of RFC 8174 2 and cite RFC 2119 and RFC 8174",
        )
    odd_words: dict[str, int] = {}
    for match in _ODD_WORDS.finditer(text):
        odd_words.setdefault(match[1], match.start())
    for word, offset in odd_words.items():
        instead = "`MAY` or `are not required to`" if word == "NEED NOT" else "`MUST NOT`"
        yield ctx.report(
            "keyword-unknown",
            f'"{word}" is not a key word of BCP 14',
            clause="RFC 8174 2",
            line=ctx.reading.get_line(offset),
            witness=word,
            fix=f"write {instead}, or use lower case",
        )


def _check_hosts(ctx: CheckContext) -> Findings:
    lines: dict[str, int] = {}
    for example in ctx.document.examples:
        match = _HOST.match(example.uri)
        if match and match[1] and len(lines) < MAX_LISTED and not _is_reserved_host(ctx, match[1]):
            lines.setdefault(match[1].lower(), example.line)
    for host, line in lines.items():
        yield ctx.report(
            "real-host-in-example",
            f"the example host {to_printable(host)} is not reserved for examples",
            level=Level.WARNING,
            line=line,
            witness=host,
            fix="write a host under example.com or .example, or an address of 192.0.2.0/24 or 2001:db8::/32",
        )


def _is_reserved_host(ctx: CheckContext, host: str) -> bool:
    if _EXAMPLE_HOST.search(host):
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        tlds = ctx.known.tlds
        unknown = bool(tlds) and host.lower().strip(".").rpartition(".")[2] not in tlds
        return unknown or not _REAL.fullmatch(host)
    return any(address in network for network in _DOCUMENTATION if network.version == address.version)


#: check -> subject, question, and the template field whose line is shown
_QUESTIONS: Final = {
    "Q1": (
        "utility",
        "does the scheme help the Internet community beyond what existing schemes do?",
        "applications",
    ),
    "Q2": (
        "trademark",
        "does the name touch a trademark or service mark, or a name in use elsewhere?",
        "name",
    ),
    "Q3": ("clarity", "is the definition clear enough that two implementations would agree?", "semantics"),
    "Q4": (
        "precedent",
        "if the syntax is not hierarchical, does it follow that of a registered scheme?",
        "syntax",
    ),
    "Q5": (
        "access",
        (
            "does the text define how software finds what a URI identifies and, if URIs represent names or "
            "actions elsewhere, the mapping in both directions and what the mapping leaves out?"
        ),
        "semantics",
    ),
    "Q6": (
        "safety",
        "is the default operation safe, so that following a URI commits no one to anything?",
        "semantics",
    ),
}


def ask_reviewer(ctx: CheckContext) -> Findings:
    """Q1 to Q6: the question of this check, for a person."""
    subject, question, field = _QUESTIONS[ctx.check.id]
    yield ctx.report(
        f"ask-{subject}",
        f"ask a person: {question}",
        field=field if field == "name" else None,
        line=ctx.get_line(field),
    )


_CHARSET: Final = re.compile(
    r"\bUTF-?8\b|\bUS-?ASCII\b|\bASCII\b|\bUnicode\b|\bISO[- ]?8859|\bUTF-?16\b|RFC ?3(?:629|987)|"
    r"octets?\b",
    re.IGNORECASE,
)
_ELSEWHERE: Final = re.compile(r"\bsection\b|\bRFC ?\d|\[[\w.-]+\]", re.IGNORECASE)
#: an encoding that is named anywhere in a specification; every grammar mentions bytes and ASCII
_NAMED: Final = re.compile(
    r"\bUTF-?8\b|\bUTF-?16\b|\bISO[- ]?8859|RFC ?3629|\bencoded\b[^.]{0,40}\bin (?:US-)?ASCII\b",
    re.IGNORECASE,
)
#: the encoding is left to the generic syntax, which names UTF-8 (RFC 3986 2.5)
_GENERIC_ENCODING: Final = re.compile(
    r"\bencod\w+\b[^.]{0,160}(?:\bRFC ?(?:3986|2396)\b|\bSTD ?66\b|\bgeneric (?:URI )?syntax)"
    r"|(?:\bRFC ?(?:3986|2396)\b|\bSTD ?66\b)[^.]{0,80}\bno (?:special|other|further|additional) encoding\b",
    re.IGNORECASE,
)
#: how the text treats bytes that are not UTF-8
_REFUSES: Final = re.compile(
    r"\b(?:other|invalid|illegal|ill-formed|malformed|non-UTF-?8"
    r"|not(?: (?:valid|legal|well-formed))? UTF-?8)\b"
    r"[^.]{0,100}\b(?:refus|reject|error|MUST NOT|not allowed|forbidden|invalid|ignor|replac|opaque)"
    r"|\b(?:refus|reject|MUST NOT|only)\w*\b[^.]{0,100}\b(?:not|other than|invalid|valid) UTF-?8",
    re.IGNORECASE,
)
#: the subjects of such a sentence
_BYTES: Final = re.compile(r"\bUTF-?8\b|\b(?:octet|byte)s?\b|percent-?encod", re.IGNORECASE)
_OF_URIS: Final = re.compile(
    r"\bURIs?\b|\bIRIs?\b|\bcharacters?\b|\boctets?\b|percent-?encod|\bscheme(?:'s)?\b"
    r"|\b(?:path|query|component|segment|value|string)s?\b|\btext protocol\b",
    re.IGNORECASE,
)
_NOT_NAMED: Final = re.compile(
    r"(?:\b(?:not|never|nor|no|without|than|instead of)"
    r"(?: (?!(?:(?:US-)?ASCII|invalid|malformed|ill-formed)\b)[\w-]+){0,3} |\bnon-)"
    r"(?:UTF-?8|UTF-?16|ISO[- ]?8859|RFC ?3629)",
    re.IGNORECASE,
)
_UTF8: Final = re.compile(r"\bUTF-?8\b|RFC ?3629", re.IGNORECASE)


def check_encoding(ctx: CheckContext) -> Findings:
    """S8: if URIs contain text, a character encoding is named, and the syntax agrees with it."""
    text = ctx.collect_prose("encoding", "encoding", "international", "character")
    if not ctx.syntax.decidable or ctx.syntax.is_form:
        wanted = ctx.get_field("encoding") or ctx.is_specification
        if wanted and not _CHARSET.search(text):
            yield ctx.report_unchecked(
                "whether the scheme's text needs a character encoding",
                "the grammar cannot be decided or is missing, and no encoding is named",
                line=ctx.get_line("encoding"),
            )
        return
    if not ctx.syntax.holds_text:
        return
    if not _CHARSET.search(text) and ctx.is_specification:
        text = _find_encoding_sentences(ctx) or text
    if not _CHARSET.search(text) and _ELSEWHERE.search(text) and not ctx.is_specification:
        reason = "the field refers to a specification that was not given"
        yield ctx.report_unchecked("the character encoding", reason)
    elif not _CHARSET.search(text):
        lenient = ctx.status is Status.PROVISIONAL and ctx.profile.id != "rfc4395"
        lenient = lenient or _leaves_encoding(ctx, text)
        yield ctx.report(
            "no-charset",
            "URIs of the scheme contain text, but no character encoding is named",
            level=Level.WARNING if lenient else Level.ERROR,
            at="encoding",
            fix="write: characters beyond ASCII are encoded as UTF-8 and then percent-encoded "
            "(RFC 3986 2.5), and other bytes are rejected",
        )
    elif ctx.syntax.unprobed is not None:
        yield ctx.report_unchecked("bytes that are not UTF-8", ctx.syntax.unprobed)
    elif (stray := ctx.syntax.probe("encoded-octet")) is not None and _is_utf8_only(ctx, text):
        yield ctx.report(
            "not-only-utf-8",
            "the text names UTF-8, but the syntax allows percent-encoded bytes that are not UTF-8",
            level=Level.WARNING,
            at="encoding",
            witness=stray,
            fix="define what a reader does with bytes that are not UTF-8: reject the URI, or accept bytes",
        )


def _leaves_encoding(ctx: CheckContext, text: str) -> bool:
    """Return whether the text leaves the encoding to RFC 3986, in its section or field about the encoding."""
    field = ctx.get_field("encoding")
    if _GENERIC_ENCODING.search(f"encoding: {field}" if field else text):
        return True
    return ctx.is_specification and any(
        _ENCODING_LABEL.search(sentence) and _GENERIC_ENCODING.search(sentence)
        for sentence in ctx.reading.sentences
    )


_ENCODING_LABEL: Final = re.compile(r"\bencoding (?:considerations|rules)\b", re.IGNORECASE)


def _find_encoding_sentences(ctx: CheckContext) -> str:
    """Return all sentences of the text that name the encoding of the scheme's characters."""
    return "\n".join(
        sentence
        for sentence in ctx.reading.sentences
        # "is UTF-8, and bytes that are not UTF-8 are rejected" names it too
        if _NAMED.search(_NOT_NAMED.sub("", sentence))
        and (_OF_URIS.search(sentence) or (ctx.scheme and f"{ctx.scheme}:" in sentence))
    )


def _is_utf8_only(ctx: CheckContext, text: str) -> bool:
    """Return whether UTF-8 is named and no sentence covers bytes that are not UTF-8."""
    sentences = (*split_sentences(text), *(ctx.reading.sentences if ctx.is_specification else ()))
    covered = any(_BYTES.search(sentence) and _REFUSES.search(sentence) for sentence in sentences)
    return bool(_UTF8.search(text)) and not covered
