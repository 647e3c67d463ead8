"""The three registries, as data: one engine serves them all.

A row says what a registry is called, which names it holds, which profiles its requests may follow,
which statuses its entries may have and which columns they show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from onym.errors import UnknownEntryError
from onym.registry.records import Status

__all__ = ["REGISTRIES", "Column", "Registry", "registry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a registry, in the order in which it is shown: the field's id and its heading."""

    id: str
    heading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """One registry. `name_pattern` judges a whole name, already in lower case where `fold_case`."""

    id: str
    title: str
    #: what one entry is called, for people
    noun: str
    name_pattern: re.Pattern[str]
    name_clause: str
    name_rule: str
    #: characters in a name, and whose limit that is
    name_limit: int
    limit_clause: str
    #: are names compared, and kept, without case?
    fold_case: bool
    profiles: tuple[str, ...]
    #: the profile that a request follows when it names none
    default_profile: str
    statuses: tuple[Status, ...]
    #: the status that advice is for where a text names none; a request has to name its own
    default_status: Status
    columns: tuple[Column, ...]
    reference: str

    def key(self, name: str) -> str:
        """The name as the registry files it."""
        text = name.strip()
        # letters of ASCII alone: the sign of Kelvin is no k
        return text.lower() if self.fold_case and text.isascii() else text

    def allows(self, key: str) -> bool:
        """Is it a name that this registry may hold?"""
        return len(key) <= self.name_limit and self.name_pattern.fullmatch(key) is not None


def _columns(*pairs: tuple[str, str]) -> tuple[Column, ...]:
    return tuple(Column(id=identifier, heading=heading) for identifier, heading in pairs)


#: every registry, by id
REGISTRIES: Final[Mapping[str, Registry]] = MappingProxyType(
    {
        each.id: each
        for each in (
            Registry(
                id="uri-schemes",
                title="Uniform Resource Identifier (URI) Schemes",
                noun="scheme",
                name_pattern=re.compile(r"[a-z][a-z0-9+.-]*"),
                name_clause="RFC 3986 3.1",
                name_rule="a lower-case letter, then lower-case letters, digits, '+', '-' and '.'",
                name_limit=63,
                limit_clause="docs/decisions/0026",
                fold_case=True,
                profiles=("rfc7595", "rfc4395"),
                default_profile="rfc7595",
                statuses=(
                    Status.PERMANENT,
                    Status.PROVISIONAL,
                    Status.HISTORICAL,
                    Status.PENDING_REVIEW,
                ),
                default_status=Status.PROVISIONAL,
                columns=_columns(
                    ("name", "URI Scheme"),
                    ("template", "Template"),
                    ("description", "Description"),
                    ("status", "Status"),
                    ("well_known", "Well-Known URI Support"),
                    ("reference", "Reference"),
                    ("notes", "Notes"),
                    ("cri_number", "CRI Scheme Number"),
                ),
                reference="RFC 7595",
            ),
            Registry(
                id="llm-parameters",
                title="LLM URI Scheme Well-Known Query Parameters",
                noun="parameter",
                name_pattern=re.compile(r"[A-Za-z][A-Za-z0-9_]*"),
                name_clause="draft-levy-llm-uri-scheme-00 4.4",
                name_rule="a letter, then letters, digits and '_'; case counts",
                name_limit=63,
                limit_clause="docs/decisions/0026",
                fold_case=False,
                profiles=("specification-required",),
                default_profile="specification-required",
                statuses=(Status.REGISTERED, Status.DEPRECATED, Status.PENDING_REVIEW),
                default_status=Status.REGISTERED,
                columns=_columns(
                    ("name", "Parameter"),
                    ("type", "Type"),
                    ("description", "Description"),
                    ("status", "Status"),
                    ("change_controller", "Change Controller"),
                    ("reference", "Reference"),
                ),
                reference="draft-levy-llm-uri-scheme-00",
            ),
            Registry(
                id="ai-namespaces",
                title="AI Root Registry: Namespaces",
                noun="namespace",
                name_pattern=re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"),
                name_clause="draft-sogomonian-ai-uri-scheme-01",
                name_rule="one label without a dot: letters, digits and inner '-'",
                name_limit=63,
                limit_clause="RFC 1035 2.3.4",
                fold_case=True,
                profiles=("expert-review",),
                default_profile="expert-review",
                statuses=(
                    Status.ACTIVE,
                    Status.SAFE_MODE,
                    Status.SUSPENDED,
                    Status.REVOKED,
                    Status.EXPIRED,
                    Status.PENDING_REVIEW,
                ),
                default_status=Status.ACTIVE,
                columns=_columns(
                    ("name", "Namespace"),
                    ("anchor", "Anchor"),
                    ("keys", "Keys"),
                    ("status", "Status"),
                    ("expires", "Expires"),
                    ("description", "Description"),
                    ("change_controller", "Change Controller"),
                ),
                reference="draft-sogomonian-ai-uri-scheme-01",
            ),
        )
    }
)


def registry(identifier: str) -> Registry:
    """The registry of that id; `UnknownEntryError` names the ones there are."""
    try:
        return REGISTRIES[identifier]
    except KeyError:
        raise UnknownEntryError(
            "no such registry",
            code="registry.unknown-registry",
            field="registry",
            hint=f"one of {', '.join(REGISTRIES)}",
        ) from None
