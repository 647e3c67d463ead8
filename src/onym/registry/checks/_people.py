"""What no program decides: questions for the reviewer, each in the report so that silence means checked."""

from __future__ import annotations

from onym.registry.checks._context import Context, Faults, fault

__all__ = ["access", "clarity", "precedent", "safety", "trademark", "utility"]


def utility(ctx: Context) -> Faults:
    """Q1: is it of use to the Internet community, and new?"""
    yield fault(
        "ask-utility",
        "ask a person: does the scheme serve the Internet community beyond what existing schemes do?",
        line=ctx.line("applications"),
    )


def trademark(ctx: Context) -> Faults:
    """Q2: does the name touch the rights of others?"""
    yield fault(
        "ask-trademark",
        "ask a person: does the name touch a trademark or service mark, or a name in use elsewhere?",
        field="name",
        line=ctx.line("name"),
    )


def clarity(ctx: Context) -> Faults:
    """Q3: would two people who read it build the same?"""
    yield fault(
        "ask-clarity",
        "ask a person: is the definition clear enough that two implementations would agree?",
        line=ctx.line("semantics"),
    )


def precedent(ctx: Context) -> Faults:
    """Q4: does a syntax without hierarchy follow that of schemes before it?"""
    yield fault(
        "ask-precedent",
        "ask a person: if the syntax is not hierarchical, does it follow that of a registered scheme?",
        line=ctx.line("syntax"),
    )


def access(ctx: Context) -> Faults:
    """Q5: how does software get from the URI to what it identifies, and back?"""
    yield fault(
        "ask-access",
        "ask a person: does the text say how software finds what a URI identifies, and, where URIs stand for "
        "names or actions elsewhere, the mapping both ways and which of them it leaves out?",
        line=ctx.line("semantics"),
    )


def safety(ctx: Context) -> Faults:
    """Q6: does following a link oblige nobody?"""
    yield fault(
        "ask-safety",
        "ask a person: is the default operation safe, so that following a URI obliges nobody to anything?",
        line=ctx.line("semantics"),
    )
