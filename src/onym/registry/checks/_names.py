"""Checks N1 to N5: the requested name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from onym.registry.checks import context
from onym.registry.records import Status
from onym.registry.registries import BUILTIN, REGISTRIES, Registry, clean_name

#: lines below its label in which a name is searched
_LINES_BELOW: Final = 3
#: similar names, or requests for one name, that a finding lists
_MAX_LISTED: Final = 8

_SEPARATOR: Final = re.compile(r"\s*[,;]\s*|\s+(?:/|and|or)\s+")
_GRANDIOSE: Final = re.compile(r"universal|standard|global|generic|official|everything")


def check_name_syntax(ctx: context.CheckContext) -> context.Findings:
    """N1: the name is valid in its registry: `[a-z][a-z0-9+.-]*` for a scheme, and not too long."""
    name = ctx.name or ctx.raw_name.strip()
    if not name:
        return  # T1 reports that it is missing
    registry = _get_registry(ctx)
    if registry.is_valid_name(name):
        return
    label = _get_name_label(ctx)
    if registry.fold_case and registry.is_valid_name(context.lower_ascii(name)):
        yield ctx.report(
            "name-not-lowercase",
            "names are registered in lower case",
            at="name",
            witness=name,
            fix=f"write `{label}: {context.lower_ascii(name)}`",
        )
        return
    parts = [clean_name(part) for part in _SEPARATOR.split(name[:1024])]
    if len(parts) > 1 and all(registry.is_valid_name(context.lower_ascii(part)) for part in parts):
        yield ctx.report(
            "several-names",
            f"one template names {len(parts)} {registry.noun}s; each entry needs its own template",
            level=context.Level.WARNING,
            at="name",
            witness=name,
            fix=f"write one template for each name: `{label}: {parts[0]}`, ...",
        )
        return
    odd = _find_odd_character(registry, name)
    line, column = _find_position(ctx, name, odd or 0)
    if odd is None and len(name) > registry.name_limit:
        yield ctx.report(
            "name-too-long",
            f"the name has {len(name)} characters, but the registry allows {registry.name_limit}",
            field="name",
            line=line,
            column=column,
            clause=registry.limit_clause,
            witness=name,
            fix=f"choose a name of at most {registry.name_limit} characters",
        )
        return
    place = "" if odd is None else f"character {odd + 1} is {_describe_character(name[odd])}; "
    yield ctx.report(
        "name-syntax",
        f"not a valid name: {place}a name is {registry.name_rule}",
        field="name",
        line=line,
        column=column,
        witness=name,
        fix=f"write `{label}: NAME`, where NAME is {registry.name_rule}",
    )


def _get_registry(ctx: context.CheckContext) -> Registry:
    schemes = BUILTIN.registries["uri-schemes"]
    if ctx.profile.id in schemes.profiles:
        return schemes
    return next(row for row in REGISTRIES.values() if ctx.profile.id in row.profiles)


def _get_name_label(ctx: context.CheckContext) -> str:
    return ctx.profile.fields[0].heading


def _find_odd_character(registry: Registry, name: str) -> int | None:
    """Return the offset of the first character that no name has there; None if the fault is another one."""
    if not registry.is_valid_name("aaa"):
        return None  # the names of an operator's registry have another form
    if not registry.is_valid_name(f"{context.lower_ascii(name[0])}aa"):
        return 0
    letters = enumerate(context.lower_ascii(name))
    return next((offset for offset, char in letters if not registry.is_valid_name(f"a{char}a")), None)


def _find_position(ctx: context.CheckContext, name: str, offset: int) -> tuple[int | None, int | None]:
    """Return the line and column of a character of the name; the column only if the text has the name."""
    line = ctx.get_line("name")
    if line is None or "\n" in name:
        return line, None
    rows = ctx.document.text.split("\n", line + _LINES_BELOW)[line - 1 : line + _LINES_BELOW]
    for below, row in enumerate(rows):
        # the value comes after the label, which may contain the same letters
        start = row.find(name[:64], row.find(":") + 1 if below == 0 else 0)
        if start >= 0:
            return line + below, start + offset + 1
    return line, None


def _describe_character(character: str) -> str:
    """Return the character, or its code point and Unicode name, which distinguishes look-alikes."""
    if character == " ":
        return "a space"
    if character.isascii() and character.isprintable():
        return f'"{character}"'
    return f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"


def check_name_taken(ctx: context.CheckContext) -> context.Findings:
    """N2: the name in lower case is not in the registry, unless this document registered it."""
    if not ctx.known.has_names:
        yield ctx.report_unchecked("whether the name is free", _NO_ENTRIES)
        return
    entry = ctx.known.entries.get(context.lower_ascii(ctx.name))
    if ctx.update:
        return
    if entry is None:
        yield from _check_other_requests(ctx)
        return
    if entry.status is Status.PENDING_REVIEW:
        requests = context.to_printable(" and ".join(entry.pending)) or "another request"
        yield ctx.report(
            "name-taken",
            f'"{entry.name}" is under review already, for {requests}',
            at="name",
            witness=ctx.name,
            fix="choose another name, or wait for the decision",
        )
        return
    since = "" if entry.registered is None else f" since {entry.registered.date().isoformat()}"
    reference = entry.fields.get("reference", "")
    document = (ctx.document.name or "").replace(" ", "").lower()
    is_own = bool(document) and document in reference.replace(" ", "").lower()
    if is_own or _is_other_edition(ctx, reference):
        by = (
            "this document"
            if is_own
            else f"another edition of this document, {context.to_printable(reference)}"
        )
        yield ctx.report(
            "registered-here",
            f'"{entry.name}" is registered ({entry.status}{since}), by {by}',
            level=context.Level.HINT,
            at="name",
        )
        return
    by = f", reference {context.to_printable(reference)}" if reference else ""
    same = entry.name == _get_registry(ctx).normalize_name(ctx.name)
    yield ctx.report(
        "name-taken" if same else "name-differs-in-case",
        f'"{entry.name}" is in the registry already: {entry.status}{since}{by}',
        level=None if same else context.Level.WARNING,
        at="name",
        witness=ctx.name,
        fix="choose another name, or request a change of that entry's status"
        if ctx.status is Status.HISTORICAL
        else "choose another name, or request an update of that entry",
    )


def _is_other_edition(ctx: context.CheckContext, reference: str) -> bool:
    """Return whether an RFC of the reference replaces this RFC, or was replaced by it."""
    own = _RFC_NAME.fullmatch(ctx.document.name or "")
    if own is None:
        return False
    number = int(own[1])
    row = ctx.known.rfcs.get(number)
    newer = () if row is None else row.obsoleted_by
    for cited in map(int, _RFC_NAME.findall(reference)):
        old = ctx.known.rfcs.get(cited)
        if cited in newer or (old is not None and number in old.obsoleted_by):
            return True
    return False


_RFC_NAME: Final = re.compile(r"RFC ?([0-9]{1,5})")
_NO_ENTRIES: Final = "no entries of the registry are available"


def _check_other_requests(ctx: context.CheckContext) -> context.Findings:
    """Report open requests for the same new name: no entry reserves the name yet."""
    others = ctx.known.requests.get(context.lower_ascii(ctx.name), ())
    if not others:
        return
    listed = " and ".join(
        f"{request.id} ({request.status}, public since {request.public_since:%Y-%m-%d})"
        for request in others[:_MAX_LISTED]
    )
    yield ctx.report(
        "name-requested",
        f'"{ctx.name}" is requested already, by {listed}; {_NAME_DECISIONS[ctx.profile.checks]}',
        level=context.Level.WARNING,
        at="name",
        witness=ctx.name,
        fix="if that request is yours, revise it; if not, choose another name, or agree with its registrant "
        "before you submit",
    )


#: profile -> who gets the name that two requests ask for
_NAME_DECISIONS: Final = {
    "rfc4395": "the first request that is registered gets the name, and IANA rejects the others",
    "rfc7595": "the first request that IANA enters gets the name, and the Designated Expert decides about "
    "the others",
    "specification-required": "the first request that is registered gets the name",
    "expert-review": "the first request that is registered gets the name",
}
#: a label of a domain name (RFC 1123 2.1)
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


def check_dots(ctx: context.CheckContext) -> context.Findings:
    """N3: a new name has dots only if it is a reversed domain name; under RFC 4395 that may have hyphens."""
    name = context.lower_ascii(ctx.name)
    old = ctx.profile.id == "rfc4395"
    labels = re.split(r"[.-]" if old else r"\.", name)
    # N1 reports an invalid name; names such as z39.50r were registered before the rule
    if len(labels) < 2 or not ctx.is_new_name or not BUILTIN.registries["uri-schemes"].is_valid_name(name):
        return
    if not ctx.known.tlds:
        yield ctx.report_unchecked(
            "whether the name is a reversed domain name", "no list of top-level domains is available"
        )
        return
    fault = _find_domain_fault(ctx, labels)
    if fault is None:
        yield from _check_domain_owner(ctx, labels)
    elif "." in name:
        hyphenated = "-".join(filter(None, name.split(".")))
        own = labels[-1] or "mything"
        example = "" if old else f", or begin with your own domain, as in `com.example.{own}`"
        yield ctx.report(
            "dot-without-domain",
            f'the name has a ".", but {fault}: only names made from a reversed domain name may have dots',
            level=context.Level.WARNING if old else None,
            at="name",
            witness=name,
            fix=context.to_printable(f"write `{_get_name_label(ctx)}: {hyphenated}`{example}", 300),
        )


def _get_domain(labels: Sequence[str]) -> list[str]:
    """Return the part of a private name that is a domain name; the last label is the owner's choice."""
    return list(labels[:-1]) if len(labels) > 2 else list(labels)


def _find_domain_fault(ctx: context.CheckContext, labels: Sequence[str]) -> str | None:
    """Return why the labels are not a reversed domain name and a name in it; None if they are."""
    if not all(labels):
        return "a label is empty"
    if labels[0] not in ctx.known.tlds:
        return f'"{context.to_printable(labels[0])}" is not a top-level domain'
    odd = next((label for label in _get_domain(labels) if not _LABEL.fullmatch(label)), None)
    return None if odd is None else f'"{context.to_printable(odd)}" is not a label of a domain name'


def _check_domain_owner(ctx: context.CheckContext, labels: Sequence[str]) -> context.Findings:
    """Report a private name, unless (RFC 7595) a field has an address in that domain."""
    old = ctx.profile.id == "rfc4395"
    # two labels (`ms-word`, `view-source`) are a common name with a hyphen
    if old and len(labels) < 3:
        return
    domain = ".".join(reversed(_get_domain(labels)))
    fields = " ".join(map(ctx.get_field, ("contact", "change_controller", "references"))).lower()
    if not old and re.search(rf"(?<![\w-]){re.escape('.'.join(labels[1::-1]))}(?!\.?[\w-])", fields):
        return
    yield ctx.report(
        "private-name",
        f'only the owner of the domain "{context.to_printable(domain)}" may use this name',
        level=context.Level.WARNING if old else context.Level.HINT,
        at="name",
        witness=ctx.name,
        fix="register it only if you own that domain, and give an address in it",
    )


def check_general_names(ctx: context.CheckContext) -> context.Findings:
    """N4: names that are too short, too general, or similar to another (heuristics)."""
    name = context.lower_ascii(ctx.name)
    if not name or len(name) > _get_registry(ctx).name_limit or not ctx.is_new_name:
        return
    if len(name) <= 2:
        message = "a name of one or two characters is not descriptive, and reviewers expect more"
        fix = "choose a longer name that describes the scheme"
        yield _report_heuristic(ctx, "name-very-short", message, fix)
    if name in context.load_word_list("general"):
        fix = "choose a name that only this scheme would have"
        yield _report_heuristic(ctx, "name-general", f'"{name}" is a general word', fix)
    elif _GRANDIOSE.search(name):
        message = "the name claims to be universal or standard"
        yield _report_heuristic(ctx, "name-grandiose", message, "choose a name that describes the scheme")
    yield from _check_similar_names(ctx, name)


def _check_similar_names(ctx: context.CheckContext, name: str) -> context.Findings:
    if not ctx.known.has_names:
        yield ctx.report_unchecked("names that look alike", _NO_ENTRIES)
        return
    # `aaas` is the secure variant of `aaa`
    expected = {name, f"{name}s", name.removesuffix("s")}
    others = [other for other in ctx.known.find_similar(name) if other not in expected]
    alike = sorted(
        other for other in others if context.compute_skeleton(other) == context.compute_skeleton(name)
    )
    close = sorted(other for other in others if other not in alike and context.is_one_edit_apart(other, name))
    if alike:
        message = f"the name looks like {_format_names(alike)}, which is registered"
        fix = "choose a name that cannot be confused with another"
        yield _report_heuristic(ctx, "name-looks-alike", message, fix)
    if close:
        message = f"one letter away from {_format_names(close)}"
        fix = "choose a longer or more distinctive name, to avoid slips"
        yield _report_heuristic(ctx, "name-near", message, fix)


def _report_heuristic(ctx: context.CheckContext, code: str, message: str, fix: str) -> context.Finding:
    return ctx.report(code, f"{message} (a heuristic)", at="name", witness=ctx.name, fix=fix)


def _format_names(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _MAX_LISTED
    return ", ".join(listed[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def check_service_name(ctx: context.CheckContext) -> context.Findings:
    """N5: a service name of RFC 6335 that the text does not mention (a heuristic)."""
    name = context.lower_ascii(ctx.name)
    is_service = ctx.is_new_name and name in ctx.known.services
    if is_service and "service name" not in ctx.prose.lower():
        yield ctx.report(
            "service-name",
            f'"{name}" is also a service name; the text does not say whether both are the same (a heuristic)',
            at="name",
            fix=f'write that the scheme uses the service name "{name}" (RFC 6335), or choose another name',
        )
