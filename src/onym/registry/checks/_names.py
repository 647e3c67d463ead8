"""Checks N1 to N5 and R1: is the name valid and free, and is the registry's own list in order?"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from onym.registry.checks.context import (
    CheckContext,
    Fault,
    Faults,
    Finding,
    Level,
    Report,
    clean_name,
    lower_ascii,
    make_fault,
    make_unchecked,
    to_printable,
)
from onym.registry.checks.reference_data import compute_skeleton, is_one_edit_apart, load_word_list
from onym.registry.records import Entry, Status
from onym.registry.registries import REGISTRIES

MAX_NAME: Final = 63
#: lines below its label in which a name is looked for
_BELOW: Final = 3
_LABELS: Final = {"rfc4395": "URI scheme name", "rfc7595": "Scheme name"}
#: how many near names a finding lists
MAX_NEAR: Final = 8

_SEVERAL: Final = re.compile(r"\s*(?:,|;|/|\band\b|\bor\b)\s*")
_GRANDIOSE: Final = re.compile(r"universal|standard|global|generic|official|everything")


def check_name_syntax(ctx: CheckContext) -> Faults:
    """N1: `[a-z][a-z0-9+.-]*`, and no longer than the registry keeps."""
    name, line = ctx.name or ctx.raw_name.strip(), ctx.get_line("name")
    if not name:
        return  # T1 says that it is missing
    rule = REGISTRIES["uri-schemes"]
    if ctx.profile.id not in rule.profiles:
        rule = next(registry for registry in REGISTRIES.values() if ctx.profile.id in registry.profiles)
    if rule.is_valid_name(name):
        return
    label = ctx.profile.fields[0].label.capitalize() if rule.id != "uri-schemes" else _LABELS[ctx.profile.id]
    if rule.fold_case and rule.is_valid_name(lower_ascii(name)):
        yield make_fault(
            "name-not-lowercase",
            "a scheme's name is registered in lower case",
            field="name",
            line=line,
            witness=to_printable(name),
            fix=f"write `{label}: {lower_ascii(name)}`",
        )
        return
    parts = [clean_name(part) for part in _SEVERAL.split(name[:1024])]
    if len(parts) > 1 and all(rule.is_valid_name(lower_ascii(part)) for part in parts):
        yield make_fault(
            "several-names",
            f"one template names {len(parts)} {rule.noun}s; each entry needs a template of its own",
            level=Level.WARNING,
            field="name",
            line=line,
            witness=to_printable(name),
            fix=f"write one template for each: `{label}: {parts[0]}`, ...",
        )
        return
    yield _make_syntax_fault(
        ctx, name, rule.name_rule, f"write `{label}: NAME`, where NAME is {rule.name_rule}"
    )


def _make_syntax_fault(ctx: CheckContext, name: str, rule: str, fix: str) -> Fault:
    where = next(
        (
            at
            for at, character in enumerate(name)
            if not (character.isascii() and (character.isalnum() or character in "+.-"))
        ),
        None,
    )
    if where is None and name[0].isalpha() and len(name) > MAX_NAME:
        message = f"the name has {len(name)} characters; {MAX_NAME} are kept"
    elif where is None:
        message = f"not a name: it takes {rule}"
    else:
        message = (
            f"not a name: {_describe_character(name[where])} at its character {where + 1}; it takes {rule}"
        )
    line, column = _find_position(ctx, name, where or 0)
    return make_fault(
        "name-syntax",
        message,
        field="name",
        line=line,
        column=column,
        witness=to_printable(name),
        fix=fix,
    )


def _find_position(ctx: CheckContext, name: str, at: int) -> tuple[int | None, int | None]:
    """Where the name's character `at` stands in the text; the column only where the name is found there."""
    line = ctx.get_line("name")
    if line is None or "\n" in name:
        return line, None
    rows = ctx.document.text.split("\n", line + _BELOW)[line - 1 : line + _BELOW]
    for offset, row in enumerate(rows):
        # the value comes after the label, which may hold the same letters
        start = row.find(name[:64], row.find(":") + 1 if offset == 0 else 0)
        if start >= 0:
            return line + offset, start + at + 1
    return line, None


def _describe_character(character: str) -> str:
    """`a space`, or the code point with its Unicode name: look-alikes are told apart by it."""
    if character == " ":
        return "a space"
    if character.isascii() and character.isprintable():
        return f'"{character}"'
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"


def check_name_taken(ctx: CheckContext) -> Faults:
    """N2: the lower-cased name is not in the registry, unless this document is what registered it."""
    if not ctx.known.has_names:
        yield make_unchecked("whether the name is free", "no entries of the registry are at hand")
        return
    entry = ctx.known.entries.get(lower_ascii(ctx.name))
    if entry is None or ctx.update:
        return
    since = "" if entry.registered is None else f" since {entry.registered.date().isoformat()}"
    reference = entry.fields.get("reference", "")
    own = ctx.document.name
    if own and own.replace(" ", "").lower() in reference.replace(" ", "").lower():
        yield make_fault(
            "registered-here",
            f'"{entry.name}" is registered ({entry.status}{since}), by this document',
            level=Level.HINT,
            field="name",
            line=ctx.get_line("name"),
        )
        return
    by = f", reference {to_printable(reference)}" if reference else ""
    yield make_fault(
        "name-taken",
        f'"{entry.name}" is in the registry already: {entry.status}{since}{by}',
        field="name",
        line=ctx.get_line("name"),
        witness=to_printable(ctx.name),
        fix="choose another name, or ask for an update of that entry",
    )


def check_dots(ctx: CheckContext) -> Faults:
    """N3: a dot only in a reversed domain name; under RFC 4395 a reversed domain goes with hyphens."""
    name = lower_ascii(ctx.name)
    old = ctx.profile.id == "rfc4395"
    labels = re.split(r"[.-]" if old else r"\.", name)
    if len(labels) < 2 or not REGISTRIES["uri-schemes"].is_valid_name(name):
        return  # N1 says what is no name
    if not ctx.known.tlds:
        yield make_unchecked(
            "whether the name is a reversed domain name", "no list of top-level domains is at hand"
        )
        return
    reversed_domain = labels[0] in ctx.known.tlds and all(labels)
    if not old and not reversed_domain:
        yield make_fault(
            "dot-without-domain",
            f'the name has a "." and "{to_printable(labels[0])}" is no top-level domain: '
            "only names made from a reversed domain name may have dots",
            field="name",
            line=ctx.get_line("name"),
            witness=to_printable(name),
            fix=f"write `Scheme name: {to_printable(name.replace('.', '-'))}`, "
            f"or begin with your own domain, as in `com.example.{to_printable(labels[-1]) or 'mything'}`",
        )
    elif old and "." in name and not reversed_domain:
        yield make_fault(
            "dot-without-domain",
            'the name has a "." and is no reversed domain name',
            level=Level.WARNING,
            field="name",
            line=ctx.get_line("name"),
            witness=to_printable(name),
            fix=f"write `URI scheme name: {to_printable(name.replace('.', '-'))}`",
        )
    elif old and reversed_domain and _is_private(labels):
        yield make_fault(
            "private-name",
            f'the name reads as private to whoever owns the domain "{to_printable(labels[1])}.{labels[0]}"',
            level=Level.WARNING,
            field="name",
            line=ctx.get_line("name"),
            witness=to_printable(name),
            fix="register it only if that domain is yours, and say so",
        )


def _is_private(labels: list[str]) -> bool:
    """`com-example-info`; two labels alone (`ms-word`, `view-source`) are a common name with a hyphen."""
    return len(labels) >= 3


def check_general_names(ctx: CheckContext) -> Faults:
    """N4: names that are too short, too general, or easily taken for another (heuristics)."""
    name = lower_ascii(ctx.name)
    if not name or len(name) > MAX_NAME:
        return
    if len(name) <= 2:
        yield _make_heuristic(
            ctx,
            "name-very-short",
            f"a name of {len(name)} characters says little, and reviewers ask for more",
            "choose a longer name that describes the scheme",
        )
    if name in load_word_list("general"):
        yield _make_heuristic(
            ctx,
            "name-general",
            f'"{name}" is a general word',
            "choose a name that only this scheme would have",
        )
    elif _GRANDIOSE.search(name):
        yield _make_heuristic(
            ctx,
            "name-grandiose",
            "the name claims to be universal or standard",
            "choose a name that describes the scheme",
        )
    yield from _check_similar_names(ctx, name)


def _check_similar_names(ctx: CheckContext, name: str) -> Faults:
    if not ctx.known.has_names:
        yield make_unchecked("names that look alike", "no entries of the registry are at hand")
        return
    others = [
        each for each in ctx.known.find_similar(name) if each != name and not _is_secure_pair(each, name)
    ]
    alike = sorted(other for other in others if compute_skeleton(other) == compute_skeleton(name))
    close = sorted(other for other in others if other not in alike and is_one_edit_apart(other, name))
    if alike:
        yield _make_heuristic(
            ctx,
            "name-looks-alike",
            f"the name looks like {_format_names(alike)}, which is registered",
            "choose a name that is not read for another",
        )
    if close:
        yield _make_heuristic(
            ctx,
            "name-near",
            f"one letter away from {_format_names(close)}",
            "a longer or more telling name avoids slips",
        )


def is_confusable(one: str, other: str) -> bool:
    """May the two names be taken for each other? s-suffix pairs (`aaa`, `aaas`) are meant to be close."""
    if one == other or _is_secure_pair(one, other):
        return False
    return compute_skeleton(one) == compute_skeleton(other) or is_one_edit_apart(one, other)


def _make_heuristic(ctx: CheckContext, code: str, message: str, fix: str) -> Fault:
    return make_fault(
        code,
        f"{message} (a heuristic)",
        field="name",
        line=ctx.get_line("name"),
        witness=to_printable(ctx.name),
        fix=fix,
    )


def _format_names(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - MAX_NEAR
    return ", ".join(listed[:MAX_NEAR]) + (f" and {more} more" if more > 0 else "")


def _is_secure_pair(one: str, other: str) -> bool:
    """`aaa` and `aaas`: a scheme and its secure twin."""
    return one == f"{other}s" or other == f"{one}s"


def check_service_name(ctx: CheckContext) -> Faults:
    """N5: the name is a service name of RFC 6335 that the text does not mention (a heuristic)."""
    name = lower_ascii(ctx.name)
    if name and name in ctx.known.services and "service name" not in ctx.prose.lower():
        yield make_fault(
            "service-name",
            f'"{name}" is a service name too, and the text does not say whether it is the same (a heuristic)',
            field="name",
            line=ctx.get_line("name"),
            fix=f'say that the scheme goes with the service name "{name}" (RFC 6335), or choose another name',
        )


CLAUSE: Final = "RFC 7595 9"
_DIRECTORIES: Final = {"perm": Status.PERMANENT, "prov": Status.PROVISIONAL, "historic": Status.HISTORICAL}


def check_entries(entries: Sequence[Entry], *, source: str = "registry") -> Report:
    """R1: names unique and sorted, template paths trimmed and in the folder of their status."""
    findings = [*_check_entry_names(entries), *_check_template_paths(entries)]
    return Report(source=source, profile="rfc7595", scheme=None, findings=tuple(findings), ran=("R1",))


def _make_entry_finding(code: str, entry: Entry, message: str, fix: str, field: str) -> Finding:
    return Finding(
        check="R1",
        code=code,
        level=Level.WARNING,
        message=message,
        clause=CLAUSE,
        field=field,
        witness=to_printable(entry.spelling or entry.name),
        fix=fix,
    )


def _check_entry_names(entries: Sequence[Entry]) -> list[Finding]:
    count = Counter(entry.name.lower() for entry in entries)
    seen: set[str] = set()
    found: list[Finding] = []
    for before, each in zip([None, *entries], entries, strict=False):
        name = each.name.lower()
        if count[name] > 1 and name in seen:
            found.append(
                _make_entry_finding(
                    "name-twice", each, "the name stands twice, ignoring case", "keep one row", "name"
                )
            )
        seen.add(name)
        if before is not None and name < before.name.lower():
            found.append(
                _make_entry_finding(
                    "not-sorted", each, "the row is out of order", "sort rows by name", "name"
                )
            )
    return found


def _check_template_paths(entries: Sequence[Entry]) -> list[Finding]:
    found: list[Finding] = []
    for entry in entries:
        path = entry.fields.get("template", "")
        if path != path.strip():
            found.append(
                _make_entry_finding(
                    "path-not-trimmed", entry, "white space around the template path", "trim it", "template"
                )
            )
        folder = path.strip().strip("/").split("/")[0]
        fits = _DIRECTORIES.get(folder)
        if fits is not None and fits is not entry.status:
            found.append(
                _make_entry_finding(
                    "folder-does-not-fit",
                    entry,
                    f"the template is filed under {to_printable(folder)}/, and the status is {entry.status}",
                    "move the template",
                    "template",
                )
            )
    return found
