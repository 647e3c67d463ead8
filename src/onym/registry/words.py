"""The words of a registry that an operator defined, in place of IANA's.

The rows in force name the roles ("the naming office"). `apply_words` puts these names into a text of Onym,
so that pages, notices and messages need no second wording. `name_role` and `parse_role` are for the
identifiers that people type: a defined registry has registrars, reviewers and a board.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from onym.registry.records import Role
from onym.registry.registries import get_catalog

#: role -> its identifier in a defined registry
OWN_NAMES: Final[Mapping[Role, str]] = {
    Role.REGISTRANT: "requester",
    Role.IANA: "registrar",
    Role.EXPERT: "reviewer",
    Role.IESG: "board",
}
#: the names of roles if the definition has none, with their articles
DEFAULT_WORDS: Final[Mapping[Role, str]] = {role: f"the {name}" for role, name in OWN_NAMES.items()}

#: a phrase of Onym's texts -> what it becomes: {iana} with its article, {iana_} without; longer phrases first
_PHRASES: Final[Mapping[str, str]] = {
    "are over (RFC 2026 6.5.4)": "are over",
    "After the IESG's answer, the appellant can appeal to the IAB (appeal-to-iab).": "The answer is final.",
    "within two months, and then to the IAB": "within two months",
    "IETF review and IESG approval": "Decision of {iesg}",
    "IETF reviews": "{iesg} considers",
    "IETF review": "a decision of {iesg}",
    "the IETF": "{iesg}",
    "IESG-approved document": "document of {iesg}",
    "the IESG": "{iesg}",
    "The IESG": "{iesg}",
    "IESG": "{iesg_}",
    "IANA's": "{iana}'s",
    "IANA queue": "Queue of {iana}",
    "IANA check": "Check",
    "IANA": "{iana}",
    "a Designated Expert": "{expert}",
    "the Designated Expert": "{expert}",
    "The Designated Expert": "{expert}",
    "Designated Experts": "{expert_}",
    "Designated Expert": "{expert_}",
    "as an expert": "as {expert}",
    "an expert": "{expert}",
    "the expert": "{expert}",
    "The expert": "{expert}",
    "Expert Review": "Review",
    "uri-review@ietf.org": "the people concerned",
    "uri-review": "the people concerned",
    "the mailing list": "the people concerned",
    "The mailing list": "{registrant}",
    "Mailing list review": "Discussion",
    "List review": "Discussion",
    "list review": "discussion",
    "the registrant": "{registrant}",
    "The registrant": "{registrant}",
    "registrant": "{registrant_}",
}
_PATTERN: Final = re.compile(
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(_PHRASES, key=len, reverse=True)))})(?![\w-])"
)
_SENTENCE_START: Final = re.compile(r"(?:^|[.!?] )\Z")


def apply_words(text: str) -> str:
    """Return a text of Onym with the operator's names of roles; unchanged for the built-in registries."""
    words = get_catalog().words
    if not words:
        return text
    names = {str(role): words[role] for role in words}
    names |= {f"{role}_": words[role].removeprefix("the ") for role in words}

    def replace(match: re.Match[str]) -> str:
        said = _PHRASES[match[0]].format_map(names)
        if match[0] == text:
            return said
        starts = _SENTENCE_START.search(text[: match.start()]) is not None
        return said[:1].upper() + said[1:] if starts or match[0][:4] in ("The ", "Mail", "List") else said

    return _PATTERN.sub(replace, text)


def name_role(role: Role) -> str:
    """Return the identifier of a role as people type it in the registries in force."""
    return OWN_NAMES.get(role, str(role)) if get_catalog().words else str(role)


def parse_role(text: str) -> Role | None:
    """Return the role of an identifier, in either vocabulary, or None."""
    return next((role for role in Role if text in (str(role), OWN_NAMES.get(role))), None)
