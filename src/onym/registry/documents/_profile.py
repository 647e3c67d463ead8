"""Which procedure a template follows, by its own labels; and a template written in a procedure's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onym.registry.documents._templates import clean
from onym.registry.documents.types import Template
from onym.registry.profiles import TemplateField, profile
from onym.registry.registries import registry as registry_row

__all__ = ["profile_of_template", "profile_reason", "to_text"]

#: fields that RFC 4395 5.4 demands and RFC 7595 7.4 moved to the specification; security and
#: interoperability sections are often added to an RFC 7595 template, so these two prove nothing
_OLD: Final = ("syntax", "semantics", "encoding")
_MARGIN: Final = "    "


def profile_of_template(template: Template, registry: str = "uri-schemes") -> str:
    """The profile whose labels the template uses: "rfc4395" or "rfc7595", elsewhere the registry's only one.

    Raises UnknownEntryError for a registry that there is not.
    """
    profiles = registry_row(registry).profiles
    if len(profiles) == 1:
        return profiles[0]
    return "rfc4395" if any(each in template.values for each in _OLD) else "rfc7595"


def profile_reason(template: Template, registry: str = "uri-schemes") -> str:
    """Why `profile_of_template` chose as it did, as a sentence."""
    row = registry_row(registry)
    if len(row.profiles) == 1:
        return f"{row.title} has no other procedure"
    old = [template.values[each] for each in _OLD if each in template.values]
    if old:
        labels = ", ".join(f'"{each.label}" (line {each.line})' for each in old)
        return f"it has fields of RFC 4395 5.4 that RFC 7595 7.4 leaves out: {labels}"
    return "it has none of the syntax, semantics and encoding fields of RFC 4395 5.4"


def to_text(values: Mapping[str, str], profile_id: str) -> str:
    """A template in the standard's form, fields in its order, those of the other template after them.

    `values` are by field id; blank ones are left out. Reading the text gives the same values, cleaned
    (no spaces at ends of lines, no common indentation). Raises UnknownEntryError for a profile that
    does not exist.
    """
    chosen = profile(profile_id)
    parts = []
    for each in (*chosen.fields, *chosen.elsewhere):
        value = clean(values.get(each.id, ""))
        if value:
            parts.append(_written(each, value))
    return "\n\n".join(parts) + ("\n" if parts else "")


def _written(each: TemplateField, value: str) -> str:
    label = each.label[:1].upper() + each.label[1:]
    if "\n" not in value:
        return f"{label}: {value}"
    # four columns: no label, heading or rule of a value is taken for one of the template
    rows = [f"{_MARGIN}{row}" if row else "" for row in value.split("\n")]
    return "\n".join((f"{label}:", *rows))
