"""Checks N1 to N5, T1 to T3, T5, T6 and T8: the requested name and the fields of the template."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import date
from difflib import get_close_matches
from typing import Final

from onym.errors import SnapshotError
from onym.registry.checks import context
from onym.registry.documents.types import DocumentKind, Template, TemplateValue
from onym.registry.records import Status
from onym.registry.registries import BUILTIN, REGISTRIES, Registry, TemplateField, clean_name

#: lines below its label in which a name is searched
_LINES_BELOW: Final = 3
#: similar names that a finding lists
MAX_NEAR: Final = 8

_SEPARATOR: Final = re.compile(r"\s*(?:,|;|/|\band\b|\bor\b)\s*")
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
    return _capitalize_first(ctx.profile.fields[0].label)


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
        for request in others[:MAX_NEAR]
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
    more = len(listed) - MAX_NEAR
    return ", ".join(listed[:MAX_NEAR]) + (f" and {more} more" if more > 0 else "")


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


#: characters of the longest field that is not suspicious
MAX_FIELD: Final = 20_000

#: example values of missing fields, for the fix
_SAMPLES: Final = {
    "name": "NAME",
    "status": "{status}",
    "syntax": "see Section N of this document",
    "semantics": "see Section N of this document",
    "encoding": "see Section N of this document (UTF-8, percent-encoded)",
    "applications": "the applications and protocols, each with a reference",
    "interoperability": 'see Section N of this document, or "none known"',
    "security": "see Section N of this document",
    "contact": "NAME <ADDRESS>",
    "change_controller": "NAME <ADDRESS>",
    "references": "[KEY] full citation",
}
#: fields of one word; names in other fields may need joiners (U+200C, U+200D), as in Persian and emoji
_WORD_FIELDS: Final = frozenset({"name", "status"})
_EMAIL: Final = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_AT: Final = re.compile(
    r"[\w.+-]{1,64} ?(?:\(at\)|\[at\]|<at>|&commat;| at ) ?[\w-]{1,63}(?:(?:\.| ?dot ?)[\w-]{2,63}){1,8}",
    re.IGNORECASE,
)
#: a field that refers to an address in another part of the text
_ELSEWHERE: Final = re.compile(
    r"\bauthor\S{0,3} address|\bsee (?:below|above)\b"
    r"|\bsections? (?P<number>[0-9A-Z]{1,3}(?:\.[0-9]{1,3}){0,6})\b",
    re.IGNORECASE,
)
_AUTHORS: Final = ("author", "editor", "contact")
#: a URI that leads to people; other words before a colon are labels, as in `Name:Ada`
_URI: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>]{3,}"
    r"|\b(?:mailto|tel|sms|sips?|xmpp|acct|matrix|did|urn|ni):[^\s<>]{3,}|\bwww\.[\w.-]+",
    re.IGNORECASE,
)
#: an international telephone number, or one with a label
_TELEPHONE: Final = re.compile(
    r"(?:\+|\b(?:tel|phone|telephone)[.:]{0,2} {0,2})[0-9(][0-9 ()./-]{5,30}[0-9]", re.IGNORECASE
)
#: bodies whose address is well known
_BODIES: Final = re.compile(r"\b(?:IETF|IESG|IAB|IRTF|W3C|IANA|Internet Engineering Task Force)\b")
#: where both parties are asked for
_THIRD_PARTY_CLAUSES: Final = {"rfc4395": "RFC 4395 3", "rfc7595": "RFC 7595 4"}
_THIRD_PARTY: Final = re.compile(r"\b(?:on behalf of|third[- ]party|unaffiliated)\b", re.IGNORECASE)
_MARKUP: Final = re.compile(
    r"<\s*/?\s*(?:script|iframe|img|svg|style|object|embed|html|body|a|b|i|p|div|span)(?=[\s/>])[^>]{0,200}>",
    re.IGNORECASE,
)
_COPIED: Final = re.compile(
    r"^see (?:also )?sections? [\d.]+\d(?:,? and (?:section )?[\d.]+\d)? for guidelines\.?$", re.IGNORECASE
)
_NOTHING: Final = re.compile(r"(?:none|n/?a|no|tb[ad]|todo|unknown|-+|\?+)\.?", re.IGNORECASE)
_REASON: Final = re.compile(
    r"\b(?:no (?:public |permanent |citable |formal )*(?:specification|document)"
    r"|proprietary|not (?:yet )?(?:public|published|available)"
    r"|because|since|confidential|in preparation|work in progress)\b",
    re.IGNORECASE,
)
_NOTED: Final = re.compile(
    r"\b(?:does not (?:meet|follow|conform|comply)|deviat\w+|differs? from (?:the )?(?:guidelines|RFC)"
    r"|guidelines of RFC"
    r"|reasons? for (?:this|not))\b",
    re.IGNORECASE,
)
#: RFCs that do not specify a scheme
_GENERIC: Final = frozenset(
    [
        "2119",
        "8174",
        "2234",
        "4234",
        "5234",
        "7405",
        "2396",
        "3986",
        "3987",
        "2717",
        "4395",
        "7595",
        "8126",
        "5226",
    ]
)
_DEFINED: Final = re.compile(
    r"\bRFC ?(\d{3,5})\b|\bdraft-[a-z0-9-]+|https?://|\bISO\b|\bISBN\b"
    r"|\bthis (?:document|specification|RFC|memo)\b",
    re.IGNORECASE,
)


def check_complete(ctx: context.CheckContext) -> context.Findings:
    """T1: every field that the profile requires is present."""
    if ctx.template is None:
        needed = ", ".join(field.label for field in ctx.profile.fields if field.required)
        yield ctx.report(
            "no-template",
            "no registration template was found",
            line=1,
            fix=f"add a template with these fields, each on its own line as `Label: value`: {needed}",
        )
        return
    status_words, similar = ctx.profile.status_words, _find_similar_labels(ctx)
    texts = {name: value.text for name, value in ctx.template.values.items()}
    for field in ctx.profile.list_missing_fields(ctx.status or Status.PROVISIONAL, texts):
        sample = _SAMPLES.get(field.id, "...").format(status=status_words[1 % len(status_words)])
        label = _capitalize_first(field.label)
        if field.id in similar:
            value = similar[field.id]
            yield ctx.report(
                "field-missing",
                f'the field "{label}" is missing; the text has "{context.to_printable(value.label)}"',
                clause=field.clause,
                field=field.id,
                line=value.line,
                fix=f"write `{label}:` instead of `{context.to_printable(value.label)}:`",
            )
            continue
        is_empty = field.id in ctx.template.values
        line = None if is_empty else _find_label_without_colon(ctx, field)
        yield ctx.report(
            "field-empty" if is_empty else "field-missing",
            f'the field "{label}" is {"empty" if is_empty else "missing"}'
            + ("" if line is None else "; this line has its label without a colon"),
            clause=field.clause,
            field=field.id,
            line=ctx.get_line(field.id) if line is None else line,
            fix=f"write `{label}: {sample}`",
        )


def _find_similar_labels(ctx: context.CheckContext) -> dict[str, TemplateValue]:
    """Return the unknown fields of the template that are misspelled labels, by the field that is meant."""
    if ctx.template is None:
        return {}
    free = {field.id: field for field in ctx.profile.fields if field.id not in ctx.template.values}
    found: dict[str, TemplateValue] = {}
    for value in ctx.template.unknown[:20]:
        written = _normalize_label(value.label)
        spelled = {spelling: name for name, field in free.items() for spelling in _list_spellings(field)}
        near = get_close_matches(written, spelled, n=1, cutoff=0.8)
        if near:
            found.setdefault(spelled[near[0]], value)
    return found


def _list_spellings(field: TemplateField) -> list[str]:
    return [_normalize_label(text) for text in (*field.labels, field.id.replace("_", " "))]


def _find_label_without_colon(ctx: context.CheckContext, field: TemplateField) -> int | None:
    """Return the line of a bare template that begins with the label, after which the colon is missing."""
    if ctx.document.kind is not DocumentKind.TEMPLATE:
        return None
    label = re.escape(field.label)
    found = re.search(rf"^[ \t]*{label}[ \t]+[^\s:]", ctx.document.text, re.IGNORECASE | re.MULTILINE)
    return None if found is None else ctx.document.text.count("\n", 0, found.start()) + 1


def check_fields(ctx: context.CheckContext) -> context.Findings:
    """T1, continued: labels that are repeated, unknown or of the other template, and unusual values."""
    if ctx.template is None:
        return
    for value in ctx.template.repeated[:20]:
        yield ctx.report(
            "field-repeated",
            f'the field "{context.to_printable(value.label)}" is given twice',
            level=context.Level.ERROR,
            field=value.id,
            line=value.line,
            fix="write both values into one field",
        )
    meant = {value.line for value in _find_similar_labels(ctx).values()}
    for value in ctx.template.unknown[:20]:
        if value.line in meant:
            continue  # `check_complete` reports it if the field is required
        column = context.is_column_label(value.label)
        yield ctx.report(
            "field-unknown",
            f'"{context.to_printable(value.label)}" is {"a column of the registry, " if column else ""}'
            "not a field of the template",
            level=context.Level.HINT,
            line=value.line,
            fix=_suggest_for_unknown_field(ctx, column),
        )
    elsewhere = {field.id for field in ctx.profile.elsewhere}
    for value in ctx.template.values.values():
        if value.id in elsewhere:
            yield ctx.report(
                "field-of-the-other-template",
                f'"{context.to_printable(value.label)}" is a field of RFC 4395 '
                "and belongs in the specification",
                level=context.Level.HINT,
                field=value.id,
                line=value.line,
                fix="move it to the specification of the scheme",
            )
        yield from _check_label(ctx, value)
        yield from _check_value(ctx, value)
    if ctx.profile.id in BUILTIN.registries["ai-namespaces"].profiles:
        yield from _check_namespace_values(ctx, ctx.template)


def _suggest_for_unknown_field(ctx: context.CheckContext, is_column: bool) -> str:
    """Return the advice on an unknown field. An operator's own registry has no specifications."""
    if ctx.profile.own_rules is not None:
        return f"remove it; the fields are {', '.join(field.label for field in ctx.profile.fields)}"
    if is_column:
        return "keep it as a request to IANA, and cite the document that supports it under References"
    return "remove it, or move it to the specification"


def _check_namespace_values(ctx: context.CheckContext, template: Template) -> context.Findings:
    """Report the values of a namespace that a submission refuses, one finding for each field."""
    from onym.registry.iana import check_namespace_fields  # late: it reads every format of the registries

    for identifier in ("anchor", "keys"):
        try:
            check_namespace_fields({identifier: template.text(identifier)})
        except SnapshotError as error:
            yield ctx.report("namespace-value", error.message, at=identifier, fix=error.hint)
    expires = template.text("expires").strip()
    if expires:
        try:
            last = date.fromisoformat(expires)
        except ValueError:
            message = f'"{context.to_printable(expires)}" is not a date'
            yield ctx.report("namespace-value", message, at="expires", fix="write it as `2027-01-31`")
        else:
            if ctx.today is not None and last < ctx.today:
                yield ctx.report("namespace-value", f"the expiry day {last} is past", at="expires")


def _check_label(ctx: context.CheckContext, value: TemplateValue) -> context.Findings:
    field = ctx.profile.find_field(value.id)
    if field is None or _normalize_label(value.label) == _normalize_label(field.label):
        return
    label = _capitalize_first(field.label)
    yield ctx.report(
        "label-spelling",
        f'the template calls this field "{label}", '
        f'not "{context.to_printable(context.squeeze_spaces(value.label))}"',
        level=context.Level.HINT,
        field=value.id,
        line=value.line,
        fix=f"write `{label}:`",
    )


def _normalize_label(label: str) -> str:
    """Return the label in lower case without closing marks and the word that RFC 7595 removed."""
    return context.squeeze_spaces(label).rstrip(" :.").lower().replace("uri scheme", "scheme")


def _capitalize_first(label: str) -> str:
    return label[:1].upper() + label[1:]


def _check_value(ctx: context.CheckContext, value: TemplateValue) -> context.Findings:
    if len(value.text) > MAX_FIELD:
        yield ctx.report(
            "field-too-long",
            f"the field has {len(value.text):,} characters; a template refers to the specification",
            level=context.Level.WARNING,
            field=value.id,
            line=value.line,
            fix=f"keep it below {MAX_FIELD:,} characters and cite the section that has the rest",
        )
    head = value.text[:MAX_FIELD]
    markup = _MARKUP.search(head)
    if markup:
        yield ctx.report(
            "markup-in-field",
            "HTML in a field is stored and shown as text",
            level=context.Level.WARNING,
            field=value.id,
            line=value.line + head.count("\n", 0, markup.start()),
            witness=markup[0],
            fix="write plain text",
        )
    spaces = "\n\r\t" if value.id in _WORD_FIELDS else "\n\r\t\u200c\u200d"
    odd = next(
        (offset for offset, char in enumerate(head) if not (char.isprintable() or char in spaces)), None
    )
    if odd is not None:
        yield ctx.report(
            "unprintable-in-field",
            f"U+{ord(head[odd]):04X} is not printable: it can hide or reorder text",
            level=context.Level.ERROR,
            field=value.id,
            line=value.line + head.count("\n", 0, odd),
            fix="remove it",
        )
    text = context.squeeze_spaces(head)
    if _COPIED.match(text):
        yield ctx.report(
            "guideline-copied",
            "the field still has the template's instruction",
            level=context.Level.ERROR,
            field=value.id,
            line=value.line,
            witness=text,
            fix="write the answer, or name the section of your document that has it",
        )


def check_status(ctx: context.CheckContext) -> context.Findings:
    """T2: the status is one of the profile's words."""
    value = ctx.get_field("status")
    if not value:
        return
    words = {word.lower(): word for word in ctx.profile.status_words}
    choice = ", ".join(words.values())
    word = None if ctx.status is None else words.get(ctx.status.value)
    if word is None:
        several = sum(lower in value.lower() for lower in words) > 1
        yield ctx.report(
            "status-unknown",
            f"the status is {'more than one' if several else 'none'} of {choice}"
            if len(words) > 1
            else f"the status is not {choice}",
            at="status",
            witness=value,
            fix=_suggest_status(ctx, value.lower()),
        )
    elif value.strip("\"' .") != word:
        yield ctx.report(
            "status-spelling",
            f'the template spells it "{word}"',
            level=context.Level.HINT,
            at="status",
            witness=value,
            fix=f"write `Status: {word}`",
        )


def _suggest_status(ctx: context.CheckContext, value: str) -> str:
    """Return the advice on a status that the profile does not have; `value` is in lower case."""
    words = ctx.profile.status_words
    if ctx.profile.own_rules == "simple" and value.strip() == Status.DEPRECATED:
        return "retire the entry instead: onym registry decide NAME retire"
    # the beginning of a word finds misspelled ends too
    meant = [word for word in words if word.lower()[:8] in value]
    meant = meant or [word for word in words if get_close_matches(word.lower(), [value[:40]], cutoff=0.8)]
    if len(meant) == 1 or len(words) == 1:
        return f"write `Status: {(meant or words)[0]}`"
    return f"write `Status: WORD`, where WORD is one of {', '.join(words)}"


def check_contacts(ctx: context.CheckContext) -> context.Findings:
    """T3: contact and change controller can be reached; a third party names both parties."""
    contact, controller = ctx.get_field("contact"), ctx.get_field("change_controller")
    if contact and not _is_reachable(contact):
        yield from _check_unreachable(ctx, "contact", contact)
    if controller and not _is_reachable(controller) and not _is_same_party(controller, contact):
        yield from _check_unreachable(ctx, "change_controller", controller)
    same = _normalize_label(contact) == _normalize_label(controller)
    if same and _THIRD_PARTY.search(f"{contact} {controller}"):
        yield ctx.report(
            "third-party-unnamed",
            "a third party registers, but contact and change controller are the same",
            level=context.Level.WARNING,
            at="contact",
            clause=_THIRD_PARTY_CLAUSES.get(ctx.profile.id),
            fix="name the registering party as contact, and the author of the scheme as change controller",
        )


def _check_unreachable(ctx: context.CheckContext, identifier: str, text: str) -> context.Findings:
    field = ctx.profile.find_field(identifier)
    label = identifier if field is None else _capitalize_first(field.label)
    elsewhere = _ELSEWHERE.search(text)
    if elsewhere is not None:
        number = elsewhere["number"]
        sections = [
            *ctx.find_sections(*_AUTHORS),
            *(section for section in ctx.document.sections if number and section.number == number),
        ]
        if not any(_EMAIL.search(section.text) for section in sections):
            subject = f"the address of the {label.lower()}"
            yield ctx.report_unchecked(subject, "the text does not have the section that the field names")
    elif _AT.search(text):
        yield ctx.report(
            "address-disguised",
            "programs cannot read the disguised address",
            level=context.Level.HINT,
            at=identifier,
            fix=f"write `{label}: NAME <ADDRESS>`",
        )
    else:
        # RFC 4395 5.4 requires a person, but no address of the change controller
        lenient = identifier == "change_controller" and ctx.profile.id == "rfc4395"
        yield ctx.report(
            "no-address",
            f"the {label.lower()} cannot be reached: no mail address, telephone number or URI",
            level=context.Level.WARNING if lenient else None,
            at=identifier,
            witness=text,
            fix=f"write `{label}: NAME <ADDRESS>`, with the name and address of a person or organisation",
        )


def _is_reachable(text: str) -> bool:
    return any(pattern.search(text) for pattern in (_EMAIL, _URI, _TELEPHONE, _BODIES))


def _is_same_party(text: str, contact: str) -> bool:
    """Return whether the contact has an address and all words of the text."""
    words = {word for word in re.findall(r"\w{3,}", text.lower()) if word not in {"and", "the"}}
    return bool(words) and words <= set(re.findall(r"\w{3,}", contact.lower())) and _is_reachable(contact)


def check_reasons(ctx: context.CheckContext) -> context.Findings:
    """T5: a provisional request needs a specification or a reason; a permanent one (RFC 7595) the former.

    A parameter is registered by Specification Required (RFC 8126 4.6).
    """
    if ctx.profile.id == "specification-required":
        yield from _check_public_specification(ctx)
    text = ctx.get_field("references")
    # the specification of a template from an RFC or a draft is that document
    if not text or _cites_specification(text) or ctx.is_specification or ctx.document.name:
        return
    if ctx.status is Status.PERMANENT and ctx.profile.id == "rfc7595":
        yield ctx.report(
            "no-specification",
            "a permanent registration needs a specification of the scheme, but none is cited",
            level=context.Level.ERROR,
            clause="RFC 7595 7.4",
            at="references",
            fix="cite the specification, or request provisional registration",
        )
    if ctx.status is Status.PROVISIONAL and not _REASON.search(ctx.prose):
        yield ctx.report(
            "no-specification-no-reason",
            "no specification of the scheme is cited, and no reason is given",
            at="references",
            fix="cite a permanent specification, or explain why there is none",
        )


def _check_public_specification(ctx: context.CheckContext) -> context.Findings:
    text = ctx.get_field("reference")
    if text and not _cites_specification(text):
        yield ctx.report(
            "no-specification",
            "a permanent and readily available public specification is needed, but none is cited",
            # a book or a paper has no address that programs know
            level=context.Level.ERROR if _NOTHING.fullmatch(text) else context.Level.WARNING,
            at="reference",
            witness=text,
            fix="cite an RFC, an Internet-Draft or another public document with its address",
        )


def _cites_specification(text: str) -> bool:
    return any(match[1] is None or match[1] not in _GENERIC for match in _DEFINED.finditer(text))


def check_differences(ctx: context.CheckContext) -> context.Findings:
    """T6: a provisional request notes where it differs from the guidelines for permanent ones, and why."""
    if ctx.status is not Status.PROVISIONAL or not ctx.is_specification:
        return
    failed = (finding for finding in ctx.findings if finding.level is not context.Level.HINT)
    missed = sorted({finding.check for finding in failed if finding.check[0] in "SOC"})
    if missed and not _NOTED.search(ctx.prose):
        yield ctx.report(
            "differences-not-noted",
            f"the scheme does not meet guidelines for permanent schemes ({', '.join(missed)}), and the text "
            "does not note that",
            line=ctx.get_line("status"),
            fix="correct these, or note each difference and its reason in the specification",
        )


def check_history(ctx: context.CheckContext) -> context.Findings:
    """T8: a historical request cites the document that defined the scheme."""
    if ctx.status is not Status.HISTORICAL or ctx.template is None:
        return
    if not _cites_specification(ctx.get_field("references")):
        yield ctx.report(
            "no-origin",
            "the document that defined this historical scheme is not cited",
            at="references",
            fix="write `References: [KEY] the document that defined the scheme`",
        )
