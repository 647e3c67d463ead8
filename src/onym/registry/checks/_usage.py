"""D1 to D3: other registries that the text uses, well-known support, example names and key words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Final

from onym.registry.checks._context import Context, Faults, fault, shown
from onym.registry.checks.known import words
from onym.registry.checks.report import Level

__all__ = ["example_names", "other_registries", "well_known"]

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


def other_registries(ctx: Context) -> Faults:
    """D1: well-known names, link relations, services and underscored nodes that IANA is not asked for."""
    text, asked = ctx.reading.text, _asked(ctx)
    for found, kind, clause, name, how in _used(ctx, text):
        if not _requests(asked, name, kind) and not _cited(ctx, text, found):
            yield fault(
                "not-requested",
                f"{kind} {shown(found[0].rstrip('.'))} is used, and IANA is not asked for it",
                clause=clause,
                line=ctx.reading.line(found.start()),
                witness=shown(found[0].rstrip(".")),
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


def _requests(asked: str, name: str, kind: str) -> bool:
    return (
        _WORDS[kind] in asked
        and re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", asked) is not None
    )


def _asked(ctx: Context) -> str:
    """The IANA considerations, in lower case; what the template says counts too."""
    found = "\n".join(each.text for each in ctx.sections("iana"))
    mine = "" if ctx.template is None else "\n".join(each.text for each in ctx.template.values.values())
    return f"{found}\n{mine}".lower()


def _of_domain(ctx: Context, text: str, found: re.Match[str]) -> bool:
    """Does a domain name follow, and not the rest of a file's name or of a program's?"""
    labels = _DOMAIN.match(text, found.end())
    parts = [] if labels is None else labels[0].lower().rstrip(".-").split(".")
    return bool(parts) and (
        parts[-1] in _ANY or (len(parts) > 1 and parts[-1] in {*ctx.known.tlds, *_SPECIAL})
    )


def _cited(ctx: Context, text: str, found: re.Match[str]) -> bool:
    """Does the sentence cite the document that registers it?"""
    line = ctx.reading.line(found.start())
    before = re.split(r"[.;:] ", text[max(found.start() - 300, 0) : found.start()])[-1]
    # the line above, unless it is of a paragraph or a template that ends there
    *above, here = before.split("\n")
    if above and above[-1].strip() and not ctx.reading.is_field(line - 1):
        here = f"{above[-1]} {here}"
    after = re.split(r"[.;:](?:\s|\Z)|\n\n", text[found.end() : found.end() + 200], maxsplit=1)[0]
    cited = _CITES.findall(f"{here} {after}")
    return not _RULES.issuperset(re.sub(r"[^A-Z0-9]", "", each.upper()) for each in cited)


_Used = tuple[re.Match[str], str, str, str, str]


def _used(ctx: Context, text: str) -> Iterator[_Used]:
    """Each name once: the match, what it is, its clause, the name, what to ask for."""
    seen: set[tuple[str, str]] = set()
    for row in _all_used(ctx, text):
        key = (row[1], row[3].lower())
        if key not in seen and len(seen) < MAX_LISTED:
            seen.add(key)
            yield row


def _all_used(ctx: Context, text: str) -> Iterator[_Used]:
    for found in _WELL_KNOWN.finditer(text):
        name = found[1].rstrip(".-")
        if name.lower() not in words("well-known-uris"):
            yield found, "the well-known URI", "RFC 8615 3.1", name, f'the well-known URI suffix "{name}"'
    for found in _REL.finditer(text):
        if found[1].lower() not in words("link-relations"):
            yield (
                found,
                "the link relation",
                "RFC 8288 2.1.1.1",
                found[1],
                f'the link relation type "{found[1]}"',
            )
    for found in _SRV.finditer(text):
        name = found[1].lstrip("_")
        if name.lower() not in ctx.known.services and name.lower() not in words("service-names"):
            yield found, "the service name", "RFC 6335 8.1", name, f'the service name "{name}"'
    for found in _NODE.finditer(text):
        if (
            found[1].lower() not in words("node-names")
            and _of_domain(ctx, text, found)
            and f"{found[1]}._".lower() not in text[found.start() :][:80].lower()
        ):
            yield (
                found,
                "the underscored node name",
                "RFC 8552 4.1",
                found[1],
                f'the global node name "{found[1]}"',
            )


def well_known(ctx: Context) -> Faults:
    """D2: whoever claims support for well-known URIs in the scheme cites RFC 8615; the default is "-"."""
    value = ctx.value("well_known")
    text = ctx.reading.text
    own = rf"\b{re.escape(ctx.scheme)}://[^\s/]{{1,255}}/\.well-known/"
    used = re.search(own, text, re.IGNORECASE) if ctx.scheme else None
    claims = (value not in ("", "-")) or bool(_CLAIMS.search(ctx.prose)) or used is not None
    if claims and not _8615.search(f"{value}\n{ctx.prose}"):
        yield fault(
            "well-known-without-reference",
            "the scheme is said to support well-known URIs, and RFC 8615 is not cited",
            field="well_known" if value else None,
            line=ctx.line("well_known") if value else ctx.reading.line(used.start()) if used else None,
            witness=shown(value or (used[0] if used else "")) or None,
            fix='cite RFC 8615 5.2 and say which URIs; without support the registry keeps "-"',
        )


def example_names(ctx: Context) -> Faults:
    """D3: hosts of examples are reserved for examples; key words are those of BCP 14, and BCP 14 is cited."""
    yield from _hosts(ctx)
    text = ctx.reading.text
    found = _WORD.search(text)
    if ctx.whole and found and not (_CITES_14.search(text) or _BOILERPLATE in ctx.document.text):
        yield fault(
            "keywords-undefined",
            "key words in capitals, and BCP 14 is not cited",
            clause="RFC 8174 2",
            line=ctx.reading.line(found.start()),
            fix="add the paragraph of RFC 8174 2 and cite RFC 2119 and RFC 8174",
        )
    for word, odd in _first_each(_ODD_WORDS, text).items():
        yield fault(
            "keyword-unknown",
            f'"{word}" is no key word of BCP 14',
            clause="RFC 8174 2",
            line=ctx.reading.line(odd.start()),
            witness=word,
            fix=f"write {_INSTEAD[word]}, or use small letters",
        )


def _first_each(pattern: re.Pattern[str], text: str) -> dict[str, re.Match[str]]:
    seen: dict[str, re.Match[str]] = {}
    for found in pattern.finditer(text):
        seen.setdefault(found[1], found)
    return seen


def _hosts(ctx: Context) -> Faults:
    seen: dict[str, int] = {}
    for each in ctx.document.examples:
        match = _HOST.match(each.uri)
        if match and match[1] and len(seen) < MAX_LISTED and not _reserved(ctx, match[1]):
            seen.setdefault(match[1].lower(), each.line)
    for host, line in seen.items():
        yield fault(
            "real-host-in-example",
            f"the example host {shown(host)} is no name reserved for examples",
            level=Level.WARNING,
            line=line,
            witness=shown(host),
            fix="write a host under example.com or .example, or an address of 192.0.2.0/24 or 2001:db8::/32",
        )


def _reserved(ctx: Context, host: str) -> bool:
    if _EXAMPLE_HOST.search(host):
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        tlds = ctx.known.tlds
        return not _REAL.fullmatch(host) or bool(
            tlds and host.lower().strip(".").rpartition(".")[2] not in tlds
        )
    return any(address in each for each in _DOCUMENTATION if each.version == address.version)
