"""N1 to N5: is it a name that may be registered, and is it free?"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from onym.registry.checks._context import Context, Fault, Faults, clean_name, fault, lowered, shown, unchecked
from onym.registry.checks.known import words
from onym.registry.checks.near import one_edit, skeleton
from onym.registry.checks.report import Level
from onym.registry.registries import REGISTRIES

__all__ = ["confusable", "general", "service", "syntax", "taken", "with_dot"]

MAX_NAME: Final = 63
#: lines below its label in which a name is looked for
_BELOW: Final = 3
_LABELS: Final = {"rfc4395": "URI scheme name", "rfc7595": "Scheme name"}
#: how many near names a finding lists
MAX_NEAR: Final = 8

_SEVERAL: Final = re.compile(r"\s*(?:,|;|/|\band\b|\bor\b)\s*")
_GRANDIOSE: Final = re.compile(r"universal|standard|global|generic|official|everything")


def syntax(ctx: Context) -> Faults:
    """N1: `[a-z][a-z0-9+.-]*`, and no longer than the registry keeps."""
    name, line = ctx.name or ctx.raw_name.strip(), ctx.line("name")
    if not name:
        return  # T1 says that it is missing
    rule = REGISTRIES["uri-schemes"]
    if ctx.profile.id not in rule.profiles:
        rule = next(each for each in REGISTRIES.values() if ctx.profile.id in each.profiles)
    if rule.allows(name):
        return
    label = ctx.profile.fields[0].label.capitalize() if rule.id != "uri-schemes" else _LABELS[ctx.profile.id]
    if rule.fold_case and rule.allows(lowered(name)):
        yield fault(
            "name-not-lowercase",
            "a scheme's name is registered in lower case",
            field="name",
            line=line,
            witness=shown(name),
            fix=f"write `{label}: {lowered(name)}`",
        )
        return
    parts = [clean_name(each) for each in _SEVERAL.split(name[:1024])]
    if len(parts) > 1 and all(rule.allows(lowered(each)) for each in parts):
        yield fault(
            "several-names",
            f"one template names {len(parts)} {rule.noun}s; each entry needs a template of its own",
            level=Level.WARNING,
            field="name",
            line=line,
            witness=shown(name),
            fix=f"write one template for each: `{label}: {parts[0]}`, ...",
        )
        return
    yield _not_a_name(ctx, name, rule.name_rule, f"write `{label}: NAME`, where NAME is {rule.name_rule}")


def _not_a_name(ctx: Context, name: str, rule: str, fix: str) -> Fault:
    where = next(
        (at for at, each in enumerate(name) if not (each.isascii() and (each.isalnum() or each in "+.-"))),
        None,
    )
    if where is None and name[0].isalpha() and len(name) > MAX_NAME:
        message = f"the name has {len(name)} characters; {MAX_NAME} are kept"
    elif where is None:
        message = f"not a name: it takes {rule}"
    else:
        message = f"not a name: {_called(name[where])} at its character {where + 1}; it takes {rule}"
    line, column = _place(ctx, name, where or 0)
    return fault(
        "name-syntax",
        message,
        field="name",
        line=line,
        column=column,
        witness=shown(name),
        fix=fix,
    )


def _place(ctx: Context, name: str, at: int) -> tuple[int | None, int | None]:
    """Where the name's character `at` stands in the text; the column only where the name is found there."""
    line = ctx.line("name")
    if line is None or "\n" in name:
        return line, None
    rows = ctx.document.text.split("\n", line + _BELOW)[line - 1 : line + _BELOW]
    for offset, row in enumerate(rows):
        # the value comes after the label, which may hold the same letters
        start = row.find(name[:64], row.find(":") + 1 if offset == 0 else 0)
        if start >= 0:
            return line + offset, start + at + 1
    return line, None


def _called(character: str) -> str:
    """`a space`, or the code point with its Unicode name: look-alikes are told apart by it."""
    if character == " ":
        return "a space"
    if character.isascii() and character.isprintable():
        return f'"{character}"'
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"


def taken(ctx: Context) -> Faults:
    """N2: the lower-cased name is not in the registry, unless this document is what registered it."""
    if not ctx.known.has_names:
        yield unchecked("whether the name is free", "no entries of the registry are at hand")
        return
    entry = ctx.known.entries.get(lowered(ctx.name))
    if entry is None or ctx.update:
        return
    since = "" if entry.registered is None else f" since {entry.registered.date().isoformat()}"
    reference = entry.fields.get("reference", "")
    own = ctx.document.name
    if own and own.replace(" ", "").lower() in reference.replace(" ", "").lower():
        yield fault(
            "registered-here",
            f'"{entry.name}" is registered ({entry.status}{since}), by this document',
            level=Level.HINT,
            field="name",
            line=ctx.line("name"),
        )
        return
    by = f", reference {shown(reference)}" if reference else ""
    yield fault(
        "name-taken",
        f'"{entry.name}" is in the registry already: {entry.status}{since}{by}',
        field="name",
        line=ctx.line("name"),
        witness=shown(ctx.name),
        fix="choose another name, or ask for an update of that entry",
    )


def with_dot(ctx: Context) -> Faults:
    """N3: a dot only in a reversed domain name; under RFC 4395 a reversed domain goes with hyphens."""
    name = lowered(ctx.name)
    old = ctx.profile.id == "rfc4395"
    labels = re.split(r"[.-]" if old else r"\.", name)
    if len(labels) < 2 or not REGISTRIES["uri-schemes"].allows(name):
        return  # N1 says what is no name
    if not ctx.known.tlds:
        yield unchecked(
            "whether the name is a reversed domain name", "no list of top-level domains is at hand"
        )
        return
    reversed_domain = labels[0] in ctx.known.tlds and all(labels)
    if not old and not reversed_domain:
        yield fault(
            "dot-without-domain",
            f'the name has a "." and "{shown(labels[0])}" is no top-level domain: only names made from a '
            "reversed domain name may have dots",
            field="name",
            line=ctx.line("name"),
            witness=shown(name),
            fix=f"write `Scheme name: {shown(name.replace('.', '-'))}`, or begin with your own domain, as in "
            f"`com.example.{shown(labels[-1]) or 'mything'}`",
        )
    elif old and "." in name and not reversed_domain:
        yield fault(
            "dot-without-domain",
            'the name has a "." and is no reversed domain name',
            level=Level.WARNING,
            field="name",
            line=ctx.line("name"),
            witness=shown(name),
            fix=f"write `URI scheme name: {shown(name.replace('.', '-'))}`",
        )
    elif old and reversed_domain and _is_private(labels):
        yield fault(
            "private-name",
            f'the name reads as private to whoever owns the domain "{shown(labels[1])}.{labels[0]}"',
            level=Level.WARNING,
            field="name",
            line=ctx.line("name"),
            witness=shown(name),
            fix="register it only if that domain is yours, and say so",
        )


def _is_private(labels: list[str]) -> bool:
    """`com-example-info`; two labels alone (`ms-word`, `view-source`) are a common name with a hyphen."""
    return len(labels) >= 3


def general(ctx: Context) -> Faults:
    """N4: names that are too short, too general, or easily taken for another (heuristics)."""
    name = lowered(ctx.name)
    if not name or len(name) > MAX_NAME:
        return
    if len(name) <= 2:
        yield _heuristic(
            ctx,
            "name-very-short",
            f"a name of {len(name)} characters says little, and reviewers ask for more",
            "choose a longer name that describes the scheme",
        )
    if name in words("general"):
        yield _heuristic(
            ctx,
            "name-general",
            f'"{name}" is a general word',
            "choose a name that only this scheme would have",
        )
    elif _GRANDIOSE.search(name):
        yield _heuristic(
            ctx,
            "name-grandiose",
            "the name claims to be universal or standard",
            "choose a name that describes the scheme",
        )
    yield from _near(ctx, name)


def _near(ctx: Context, name: str) -> Faults:
    if not ctx.known.has_names:
        yield unchecked("names that look alike", "no entries of the registry are at hand")
        return
    others = [each for each in ctx.known.near(name) if each != name and not _pair(each, name)]
    alike = sorted(each for each in others if skeleton(each) == skeleton(name))
    close = sorted(each for each in others if each not in alike and one_edit(each, name))
    if alike:
        yield _heuristic(
            ctx,
            "name-looks-alike",
            f"the name looks like {_listed(alike)}, which is registered",
            "choose a name that is not read for another",
        )
    if close:
        yield _heuristic(
            ctx,
            "name-near",
            f"one letter away from {_listed(close)}",
            "a longer or more telling name avoids slips",
        )


def confusable(one: str, other: str) -> bool:
    """May the two names be taken for each other? s-suffix pairs (`aaa`, `aaas`) are meant to be close."""
    if one == other or _pair(one, other):
        return False
    return skeleton(one) == skeleton(other) or one_edit(one, other)


def _heuristic(ctx: Context, code: str, message: str, fix: str) -> Fault:
    return fault(
        code,
        f"{message} (a heuristic)",
        field="name",
        line=ctx.line("name"),
        witness=shown(ctx.name),
        fix=fix,
    )


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - MAX_NEAR
    return ", ".join(listed[:MAX_NEAR]) + (f" and {more} more" if more > 0 else "")


def _pair(one: str, other: str) -> bool:
    """`aaa` and `aaas`: a scheme and its secure twin."""
    return one == f"{other}s" or other == f"{one}s"


def service(ctx: Context) -> Faults:
    """N5: the name is a service name of RFC 6335 that the text does not mention (a heuristic)."""
    name = lowered(ctx.name)
    if name and name in ctx.known.services and "service name" not in ctx.prose.lower():
        yield fault(
            "service-name",
            f'"{name}" is a service name too, and the text does not say whether it is the same (a heuristic)',
            field="name",
            line=ctx.line("name"),
            fix=f'say that the scheme goes with the service name "{name}" (RFC 6335), or choose another name',
        )
