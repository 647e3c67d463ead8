"""Checks T1 to T3, T5, T6 and T8: is the template complete, and does each field fit?"""

from __future__ import annotations

import re
from typing import Final

from onym.registry.checks.context import (
    CheckContext,
    Faults,
    Level,
    make_fault,
    make_unchecked,
    squeeze_spaces,
    to_printable,
)
from onym.registry.documents.types import TemplateValue
from onym.registry.records import Status

#: longest field that is sensible, in characters
MAX_FIELD: Final = 20_000

#: what a missing field could hold, for the fix
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
#: fields of one word; in the others a name may need joiners (U+200C, U+200D), as Persian and emoji do
_WORDS: Final = frozenset({"name", "status"})
_EMAIL: Final = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_AT: Final = re.compile(
    r"[\w.+-]{1,64} ?(?:\(at\)|\[at\]|<at>|&commat;| at ) ?[\w-]{1,63}(?:(?:\.| ?dot ?)[\w-]{2,63}){1,8}",
    re.IGNORECASE,
)
_ELSEWHERE: Final = re.compile(r"\bauthor\S{0,3} address", re.IGNORECASE)
_URI: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}:(?://)?[^\s<>]{3,}|\bwww\.[\w.-]+")
#: bodies whose address everybody knows
_BODIES: Final = re.compile(r"\b(?:IETF|IESG|IAB|IRTF|W3C|IANA|Internet Engineering Task Force)\b")
_THIRD_PARTY: Final = re.compile(r"\b(?:on behalf of|third[- ]party|unaffiliated)\b", re.IGNORECASE)
_MARKUP: Final = re.compile(
    r"<\s*/?\s*(?:script|iframe|img|svg|style|object|embed|html|body|a|b|i|p|div|span)(?=[\s/>])[^>]{0,200}>",
    re.IGNORECASE,
)
_COPIED: Final = re.compile(
    r"^see (?:also )?sections? [\d.]+\d(?:,? and (?:section )?[\d.]+\d)? for guidelines\.?$", re.IGNORECASE
)
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
#: no specification of a scheme
_GENERIC: Final = frozenset(
    {
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
    }
)
_DEFINED: Final = re.compile(
    r"\bRFC ?(\d{3,5})\b|\bdraft-[a-z0-9-]+|https?://|\bISO\b|\bISBN\b"
    r"|\bthis (?:document|specification|RFC|memo)\b",
    re.IGNORECASE,
)


def check_complete(ctx: CheckContext) -> Faults:
    """T1: every field that the profile demands is there."""
    if ctx.template is None:
        needed = ", ".join(field.label for field in ctx.profile.fields if field.required)
        yield make_fault(
            "no-template",
            f"no registration template was found ({ctx.profile.template_clause})",
            line=1,
            fix=f"add a template with these fields, each on a line of its own as `Label: value`: {needed}",
        )
        return
    status = ctx.status or Status.PROVISIONAL
    given = {name: value.text for name, value in ctx.template.values.items()}
    for field in ctx.profile.list_missing_fields(status, given):
        sample = _SAMPLES.get(field.id, "...").format(
            status=ctx.profile.status_words[1 % len(ctx.profile.status_words)]
        )
        blank = field.id in ctx.template.values
        yield make_fault(
            "field-empty" if blank else "field-missing",
            f'the field "{_capitalize_first(field.label)}" is {"empty" if blank else "missing"}',
            clause=field.clause,
            field=field.id,
            line=ctx.get_line(field.id),
            fix=f"write `{_capitalize_first(field.label)}: {sample}`",
        )


def check_fields(ctx: CheckContext) -> Faults:
    """T1, the rest: labels that came twice, are unknown or belong elsewhere; fields beyond measure."""
    if ctx.template is None:
        return
    for value in ctx.template.repeated[:20]:
        yield make_fault(
            "field-repeated",
            f'the field "{to_printable(value.label)}" stands twice',
            level=Level.ERROR,
            field=value.id,
            line=value.line,
            fix="put both into one field",
        )
    for value in ctx.template.unknown[:20]:
        yield make_fault(
            "field-unknown",
            f'"{to_printable(value.label)}" is no field of the template',
            level=Level.HINT,
            line=value.line,
            fix="leave it out, or move it to the specification",
        )
    elsewhere = {field.id for field in ctx.profile.elsewhere}
    for value in ctx.template.values.values():
        if value.id in elsewhere:
            yield make_fault(
                "field-of-the-other-template",
                f'"{to_printable(value.label)}" is a field of RFC 4395 and belongs in the specification',
                level=Level.HINT,
                field=value.id,
                line=value.line,
                fix="move it to the specification of the scheme",
            )
        yield from _check_label(ctx, value)
        yield from _check_field(value)


def _check_label(ctx: CheckContext, value: TemplateValue) -> Faults:
    """The label is not the standard's, in whatever case."""
    known = ctx.profile.find_field(value.id)
    if known is None or _normalize_label(value.label) == _normalize_label(known.label):
        return
    yield make_fault(
        "label-spelling",
        f'the template calls this field "{_capitalize_first(known.label)}", '
        f'not "{to_printable(squeeze_spaces(value.label))}"',
        level=Level.HINT,
        field=value.id,
        line=value.line,
        fix=f"write `{_capitalize_first(known.label)}:`",
    )


def _normalize_label(label: str) -> str:
    """For comparison: without case, closing marks, and the word that RFC 7595 left out of all labels."""
    return squeeze_spaces(label).rstrip(" :.").lower().replace("uri scheme", "scheme")


def _capitalize_first(label: str) -> str:
    return label[:1].upper() + label[1:]


def _check_field(value: TemplateValue) -> Faults:
    if len(value.text) > MAX_FIELD:
        yield make_fault(
            "field-too-long",
            f"the field has {len(value.text):,} characters; a template points at the specification",
            level=Level.WARNING,
            field=value.id,
            line=value.line,
            fix=f"keep it below {MAX_FIELD:,} characters and cite the section that says the rest",
        )
    head = value.text[:MAX_FIELD]
    markup = _MARKUP.search(head)
    if markup:
        yield make_fault(
            "markup-in-field",
            "HTML in a field is kept as text and shown as it stands",
            level=Level.WARNING,
            field=value.id,
            line=value.line + head.count("\n", 0, markup.start()),
            witness=to_printable(markup[0]),
            fix="write plain text",
        )
    spaces = "\n\r\t" if value.id in _WORDS else "\n\r\t\u200c\u200d"
    odd = next(
        (at for at, character in enumerate(head) if not (character.isprintable() or character in spaces)),
        None,
    )
    if odd is not None:
        yield make_fault(
            "unprintable-in-field",
            f"U+{ord(head[odd]):04X} does not print: it can hide or reorder text",
            level=Level.ERROR,
            field=value.id,
            line=value.line + head.count("\n", 0, odd),
            fix="take it out",
        )
    if _COPIED.match(squeeze_spaces(head)):
        yield make_fault(
            "guideline-copied",
            "the field still holds the template's own instruction",
            level=Level.ERROR,
            field=value.id,
            line=value.line,
            witness=to_printable(squeeze_spaces(head)),
            fix="write the answer, or name the section of your document that has it",
        )


def check_status(ctx: CheckContext) -> Faults:
    """T2: one of the three words."""
    value = ctx.get_field("status")
    if not value:
        return
    words = ctx.profile.status_words
    if ctx.status is None or ctx.status.value not in {each.lower() for each in words}:
        yield make_fault(
            "status-unknown",
            f"the status is {'more than one' if _has_several_statuses(value, words) else 'none'} "
            f"of {', '.join(words)}",
            field="status",
            line=ctx.get_line("status"),
            witness=to_printable(value),
            fix=_suggest_status(value, words),
        )
        return
    word = next(each for each in words if each.lower() == ctx.status.value)
    if value.strip("\"' .") != word:
        yield make_fault(
            "status-spelling",
            f'the template spells it "{word}"',
            level=Level.HINT,
            field="status",
            line=ctx.get_line("status"),
            witness=to_printable(value),
            fix=f"write `Status: {word}`",
        )


def _has_several_statuses(value: str, words: tuple[str, ...]) -> bool:
    return sum(word.lower() in value.lower() for word in words) > 1


def _suggest_status(value: str, words: tuple[str, ...]) -> str:
    """What to write: the one status that the value means, else the choice."""
    means = [word for word in words if word.lower()[:8] in value.lower()]
    if len(means) == 1:
        return f"write `Status: {means[0]}`"
    return f"write `Status: WORD`, where WORD is one of {', '.join(words)}"


def check_contacts(ctx: CheckContext) -> Faults:
    """T3: contact and change controller can be reached; a third party names both parties."""
    contact, controller = ctx.get_field("contact"), ctx.get_field("change_controller")
    for identifier, text in (("contact", contact), ("change_controller", controller)):
        if (
            text
            and not _is_reachable(text)
            and not (identifier == "change_controller" and _is_same_party(text, contact))
        ):
            yield from _check_unreachable(ctx, identifier, text)
    if _THIRD_PARTY.search(f"{contact} {controller}") and _normalize_label(contact) == _normalize_label(
        controller
    ):
        yield make_fault(
            "third-party-unnamed",
            "a third party registers, and contact and change controller are the same",
            level=Level.WARNING,
            field="contact",
            line=ctx.get_line("contact"),
            fix="name the registering party as contact, and who made the scheme as change controller",
        )


def _check_unreachable(ctx: CheckContext, identifier: str, text: str) -> Faults:
    known = ctx.profile.find_field(identifier)
    label = identifier if known is None else _capitalize_first(known.label)
    if _ELSEWHERE.search(text):
        if not any(_EMAIL.search(section.text) for section in ctx.find_sections("author")):
            yield make_unchecked(
                f"the address of the {label.lower()}", "the section it points at is not there"
            )
        return
    if _AT.search(text):
        yield make_fault(
            "address-disguised",
            "the address is written so that programs cannot read it",
            level=Level.HINT,
            field=identifier,
            line=ctx.get_line(identifier),
            fix=f"write `{label}: NAME <ADDRESS>`",
        )
        return
    yield make_fault(
        "no-address",
        f"the {label.lower()} cannot be reached: no mail address and no URI",
        # RFC 4395 5.4 asks for a person, and for no address of the change controller
        level=Level.WARNING if identifier == "change_controller" and ctx.profile.id == "rfc4395" else None,
        field=identifier,
        line=ctx.get_line(identifier),
        witness=to_printable(text),
        fix=f"write `{label}: NAME <ADDRESS>`, with the name and address of a person or organisation",
    )


def _is_reachable(text: str) -> bool:
    return bool(_EMAIL.search(text) or _URI.search(text) or _BODIES.search(text))


def _is_same_party(text: str, contact: str) -> bool:
    """The controller is named in the contact, address and all."""
    words = {word for word in re.findall(r"\w{3,}", text.lower()) if word not in {"and", "the"}}
    return bool(words) and words <= set(re.findall(r"\w{3,}", contact.lower())) and _is_reachable(contact)


def check_reasons(ctx: CheckContext) -> Faults:
    """T5: a provisional request without a specification says why; a permanent one (7595) must have one."""
    text = ctx.get_field("references")
    # a template cut out of an RFC or a draft has that for its specification
    if not text or _cites_specification(text) or ctx.is_specification or ctx.document.name:
        return
    if ctx.status is Status.PERMANENT and ctx.profile.id == "rfc7595":
        yield make_fault(
            "no-specification",
            "a permanent registration needs a specification of the scheme, and none is cited",
            level=Level.ERROR,
            clause="RFC 7595 7.4",
            field="references",
            line=ctx.get_line("references"),
            fix="cite the specification, or ask for provisional registration",
        )
    if ctx.status is Status.PROVISIONAL and not _REASON.search(ctx.prose):
        yield make_fault(
            "no-specification-no-reason",
            "no specification of the scheme is cited, and no reason is given",
            field="references",
            line=ctx.get_line("references"),
            fix="cite a permanent specification, or say why there is none",
        )


def _cites_specification(text: str) -> bool:
    return any(found[1] is None or found[1] not in _GENERIC for found in _DEFINED.finditer(text))


def check_differences(ctx: CheckContext) -> Faults:
    """T6: a provisional request that misses the guidelines for permanent ones notes where, and why."""
    if ctx.status is not Status.PROVISIONAL or not ctx.is_specification:
        return
    missed = sorted(
        {each.check for each in ctx.so_far if each.check[0] in "SOC" and each.level is not Level.HINT}
    )
    if missed and not _NOTED.search(ctx.prose):
        yield make_fault(
            "differences-not-noted",
            f"the scheme does not meet guidelines for permanent schemes ({', '.join(missed)}), and the text "
            "does not note that",
            line=ctx.get_line("status"),
            fix="mend these, or note each difference and its reason in the specification",
        )


def check_history(ctx: CheckContext) -> Faults:
    """T8: a historical request says where the scheme was defined."""
    if ctx.status is not Status.HISTORICAL or ctx.template is None:
        return
    if not _cites_specification(ctx.get_field("references")):
        yield make_fault(
            "no-origin",
            "a historical scheme without a word on where it was defined",
            field="references",
            line=ctx.get_line("references"),
            fix="write `References: [KEY] the document that defined the scheme`",
        )
