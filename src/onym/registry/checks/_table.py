"""Every check: id, title, clause under each profile, level, function; in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onym.registry.checks import (
    _citations,
    _examples,
    _names,
    _people,
    _prose,
    _registry,
    _syntax,
    _template,
    _usage,
)
from onym.registry.checks._context import Context, Faults, Row
from onym.registry.checks.report import Level

__all__ = ["CHECKS"]

_E, _W, _H = Level.ERROR, Level.WARNING, Level.HINT
#: the templates of the two other registries have fields, names and contacts, and no syntax
_OTHERS: Final = ("specification-required", "expert-review")


def _row(
    identifier: str,
    title: str,
    old: str | None,
    new: str,
    level: Level,
    run: Callable[[Context], Faults],
    other: str | None = None,
) -> Row:
    """`old` is the clause in RFC 4395, `new` that in RFC 7595, `other` for parameters and namespaces."""
    clauses = {}
    if old:
        clauses["rfc4395"] = old if old.startswith(("RFC", "docs")) else f"RFC 4395 {old}"
    clauses["rfc7595"] = new if new.startswith(("RFC", "docs")) else f"RFC 7595 {new}"
    if other:
        clauses.update(dict.fromkeys(_OTHERS, other))
    return Row(id=identifier, title=title, clauses=clauses, level=level, run=run)


def _nothing(ctx: Context) -> Faults:
    """R1 runs over a registry (`check_entries`), not over a document."""
    yield from ()


CHECKS: Final[tuple[Row, ...]] = (
    _row("N1", "the name's syntax", "2.8", "3.8", _E, _names.syntax, "RFC 8126 2.2"),
    _row("N2", "the name is free", "5.2 step 2", "7.2 step 7", _E, _names.taken, "RFC 8126 3"),
    _row("N3", "dots and reversed domains", "2.8", "3.8", _E, _names.with_dot),
    _row("N4", "short, general or near names", "2.8", "3.8", _H, _names.general),
    _row("N5", "service names", None, "3.8", _H, _names.service),
    _row("T1", "every field of the template", "5.4", "7.4", _E, _template.complete, "RFC 8126 3.1"),
    _row("T1", "each field fits", "5.4", "7.4", _E, _template.fields_fit, "RFC 8126 3.1"),
    _row("T2", "the status asked for", "5.4", "7.4", _E, _template.status, "RFC 8126 3.1"),
    _row("T3", "contact and change controller", "5.4", "7.4", _E, _template.contacts, "RFC 8126 9.5"),
    _row("T4", "citations", "5.2 step 1", "7.2 step 1", _E, _citations.citations),
    _row("T5", "a reason where there is no specification", "3", "4", _W, _template.reasons),
    _row("T7", "when the draft expires", "5.4", "7.4", _H, _citations.expiry),
    _row("T8", "where a historical scheme was defined", "4", "5", _W, _template.history),
    _row("S1", "inclusion in absolute-URI", "2.2", "3.2", _E, _syntax.inclusion),
    _row("S2", "each URI begins with the name", "2.2", "3.2", _E, _syntax.beginning),
    _row("S3", "the use of //", "2.2", "3.2", _E, _syntax.slashes),
    _row("S4", "dot segments and relative use", "2.2", "3.2", _W, _syntax.dots),
    _row("S5", "reserved characters", "2.2", "3.2", _W, _syntax.reserved),
    _row("S6", "the grammar's rules", "2.2", "3.2", _W, _syntax.rules),
    _row("S7", "examples", "2.2", "3.2", _E, _examples.examples),
    _row("S8", "character encoding", "2.6", "3.6", _E, _examples.encoding),
    _row("O1", "semantics and operations", "2.4", "3.4", _E, _prose.operations),
    _row("O2", "references for protocols", "2.5", "3.5", _W, _prose.protocols),
    _row("C1", "security and privacy", "2.7", "3.7", _E, _prose.security),
    _row("C2", "secrets in the URI", "2.7", "3.7", _W, _prose.credentials),
    _row("D1", "names in other registries", "RFC 8126 3", "RFC 8126 3", _W, _usage.other_registries),
    _row("D2", "support for well-known URIs", "RFC 8615 5.2", "RFC 8615 5.2", _W, _usage.well_known),
    _row("D3", "example names and key words", "RFC 2606 2", "RFC 2606 2", _W, _usage.example_names),
    _row("R1", "the registry's own list", _registry.CLAUSE, _registry.CLAUSE, _W, _nothing),
    _row("T6", "differences from the guidelines are noted", "3", "4", _W, _template.differences),
    _row("Q1", "utility: for a person", "2.1", "3.1", _H, _people.utility),
    _row("Q2", "trademarks: for a person", "2.8", "3.8", _H, _people.trademark),
    _row("Q3", "clarity: for a person", "2.3", "3.3", _H, _people.clarity),
    _row("Q4", "a syntax with precedent: for a person", "2.2", "3.2", _H, _people.precedent),
    _row("Q5", "access and mapping: for a person", "2.3", "3.3", _H, _people.access),
    _row("Q6", "a safe default operation: for a person", None, "3.4", _H, _people.safety),
)
