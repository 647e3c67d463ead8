"""Checks T1 to T3, T5, T6 and T8: the fields of the template."""

from __future__ import annotations

import re
from datetime import date
from difflib import get_close_matches
from typing import Final

from onym.errors import SnapshotError
from onym.registry.checks import context
from onym.registry.documents.types import DocumentKind, Template, TemplateValue
from onym.registry.records import Status
from onym.registry.registries import BUILTIN, TemplateField

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
        label = field.heading
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
    label = field.heading
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
    label = identifier if field is None else field.heading
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
