"""Four pages about the registry: Python, HTTP, the checks, the table of the procedure."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from docgen.reference_api import entry
from docgen.text import GENERATED, cell, code, paragraphs, prose, table
from onym.registry.checks import CHECKS
from onym.registry.engine import RULES
from onym.registry.registries import PROFILES
from onym.server.registry.api.openapi import DEPRECATIONS, MIN_NOTICE, build_openapi_document

__all__ = ["checks_page", "http_page", "procedure_page", "python_page"]

_ROOMS = ("documents", "abnf", "checks", "engine", "iana", "store")


def python_page() -> str:
    """docs/reference/registry-python.md"""
    out = [
        GENERATED,
        "# The registry in Python\n",
        (
            "Each part is a module that you can use without the others. Only `store` needs the extra "
            "`registry`. Values (`Entry`, `Request`, `Event`, ...) are in "
            "`onym.registry.records`.\n"
        ),
    ]
    for room in _ROOMS:
        module = import_module(f"onym.registry.{room}")
        out += [f"## onym.registry.{room}\n", paragraphs(inspect.getdoc(module) or "")]
        for name in sorted(module.__all__, key=str.lower):
            out += _public(room, name, getattr(module, name))
    return "\n".join(out)


def _public(room: str, name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value) or inspect.isfunction(value):
        yield from entry(name, value, "###", anchor=f"{room}-{name.lower()}")


def http_page() -> str:
    """docs/reference/registry-http.md"""
    rows = [
        [code(method.upper()), code(path), prose(operation["summary"])]
        for path, item in build_openapi_document()["paths"].items()
        for method, operation in item.items()
        if isinstance(operation, dict) and "operationId" in operation
    ]
    return "\n".join(
        [
            GENERATED,
            "# The registry over HTTP\n",
            (
                "A running service describes itself at `/openapi.json` (OpenAPI 3.1), with every type. "
                "Pages are HTML only; `/api/v1` is the one JSON interface. Errors are "
                "`application/problem+json` (RFC 9457) with an [error code](errors.md). Reads carry "
                "an ETag; a write names in `If-Match` the version that it changes (428 without one, 412 "
                "if another person was first).\n"
            ),
            table(["", "path", "what it does"], rows),
            "## Reading from other origins\n",
            (
                "Pages of every origin may read the public operations (`GET`), the files and the feeds: "
                "their responses have `Access-Control-Allow-Origin: *`, and the fields `ETag`, `Link`, "
                "`Retry-After`, `Deprecation` and `Sunset` are exposed. Writes, pages, accounts and "
                "responses to a request with an API token or a session are not shared.\n"
            ),
            "## Deprecation policy\n",
            (
                "Within `/api/v1`, operations, parameters and members are added, and none changes its "
                "meaning. Clients must ignore members that they do not know. An operation that will be "
                f"removed works for at least {MIN_NOTICE.days} days after its deprecation. From that day "
                "its responses have these fields, and `/openapi.json` marks it as `deprecated`:\n"
            ),
            table(
                ["field", "meaning"],
                [
                    [code("Deprecation"), "The day of the deprecation (RFC 9745), such as `@1796083200`."],
                    [code("Sunset"), "When the operation may stop working (RFC 8594), once that is decided."],
                    [
                        code("Link"),
                        "The service's help (`deprecation`, `sunset`), and the `successor-version`.",
                    ],
                ],
            ),
            _list_deprecated(),
        ]
    )


def _list_deprecated() -> str:
    if not DEPRECATIONS:
        return "No operation is deprecated.\n"
    rows = [
        [
            code(name),
            row.since.date().isoformat(),
            "-" if row.sunset is None else row.sunset.date().isoformat(),
        ]
        for name, row in DEPRECATIONS.items()
    ]
    return table(["operation", "since", "works until"], rows)


def checks_page() -> str:
    """docs/reference/scheme-checks.md"""
    rows = [
        [
            code(row.id),
            cell(row.title),
            row.level.value,
            cell(row.clauses.get("rfc4395") or "-"),
            cell(row.clauses.get("rfc7595") or "-"),
        ]
        for row in CHECKS
    ]
    return "\n".join(
        [
            GENERATED,
            "# The checks of a scheme\n",
            (
                "`onym scheme check` makes these checks. The level is the most severe one that a check "
                "reports. The rows with Q are questions for the reviewer, because no program can answer "
                "them. [Check a URI scheme](../how-to/check-a-scheme.md) shows the command.\n"
            ),
            table(["id", "about", "level", "RFC 4395", "RFC 7595"], rows),
        ]
    )


def procedure_page() -> str:
    """docs/reference/registry-procedure.md"""
    out = [
        GENERATED,
        "# The procedure, rule by rule\n",
        (
            "These tables decide every step of a request, and commands and histories name the rule that they "
            "applied, such as `rule I3`. Onym takes the first rule that fits the event, the state of the "
            "request and the procedure. Then it checks the role of the actor. Points that both RFCs leave "
            "open: [decision 0026](../decisions/0026-registry-ambiguities.md).\n"
        ),
    ]
    for profile in PROFILES.values():
        rows = [
            [
                code(rule.id),
                code(rule.event.value),
                ", ".join(str(state) for state in rule.states if state is not None) or "-",
                ", ".join([str(role) for role in rule.roles] + (["who may update it"] if rule.who else [])),
                cell(rule.said if rule.effect else f"refused: {rule.said}"),
                cell(rule.clauses[profile.id]),
            ]
            for rule in RULES
            if profile.id in rule.clauses
        ]
        head = ["rule", "event", "request is", "by", "what happens", "clause"]
        out += [f"## {profile.title}\n", table(head, rows)]
    return "\n".join(out)
