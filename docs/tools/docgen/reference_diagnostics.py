"""docs/reference/diagnostics.md: what `check` really says of one URI for each code."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from docgen.text import GENERATED, cell, code, prose, table
from onym.cli.commands.check import check_provider
from onym.llm.providers import ProviderTable
from onym.uri.llm import check
from onym.uri.llm_check import RULES, Diagnostic

__all__ = ["CASES", "PROVIDER_CASES", "codes_in_source", "diagnostics_page", "found_codes"]

#: texts that between them earn every diagnostic
CASES = (
    "LLM://api.openai.com/gpt-5.5",
    "llm://@api.openai.com/gpt-5.5",
    "llm://:sk-made-up@api.openai.com/gpt-5.5",
    "llm://my-app:@api.openai.com/gpt-5.5",
    "llm://my&app@api.openai.com/gpt-5.5",
    "llm://sk-proj-0123456789abcdefghijklmnop@api.openai.com/gpt-5.5",
    "llm://my-app:a:b@api.openai.com/gpt-5.5",
    "llm://my-app:***@api.openai.com/gpt-5.5",
    "llm://my-app:%C3%A9@api.openai.com/gpt-5.5",
    "llm://API.openai.com/gpt-5.5",
    "llm://my!host/gpt-5.5",
    "llm://api.openai.com:/gpt-5.5",
    "llm://api.openai.com:0443/gpt-5.5",
    "llm://api.openai.com:443/gpt-5.5",
    "llm://ollama/llama3:8b",
    "llm://api.openai.com/gpt%2D5",
    "llm://openrouter/anthropic%2Fclaude",
    "llm://api.openai.com/gpt-5.5?",
    "llm://api.openai.com/gpt-5.5?temp=0.5&&seed=1",
    "llm://api.openai.com/gpt-5.5?verbose",
    "llm://api.openai.com/gpt-5.5?=1",
    "llm://api.openai.com/gpt-5.5?a%00b=1",
    "llm://api.openai.com/gpt-5.5?a:b=1",
    "llm://api.openai.com/gpt-5.5?user=a/b",
    "llm://api.openai.com/gpt-5.5?user=sk-proj-0123456789abcdefghijklmnop",
    "llm://api.openai.com/gpt-5.5?system=Be+brief",
    "llm://api.openai.com/gpt-5.5?system=a%E2%80%AEb",
    "llm://api.openai.com/gpt-5.5?format=xml",
    "llm://api.openai.com/gpt-5.5?seed=007",
    "llm://api.openai.com/gpt-5.5?tag=a&tag=b",
    "llm://api.openai.com/gpt-5.5?a..b=1",
    "llm://api.openai.com/gpt-5.5?temperature=0.5",
    "llm://api.openai.com/gpt-5.5?tmep=0.5",
    "llm://api.openai.com/gpt-5.5?web_search=%7B%22max_uses%22%3A3%7D",
    "llm://api.openai.com/gpt-5.5?api_key=sk-made-up",
    "llm://api.openai.com/gpt-5.5?base_url=https%3A%2F%2Fevil.example",
    "llm://api.openai.com/gpt-5.5?user=" + "a" * 2048,
)

#: texts that earn what `onym check` alone says, since it takes knowledge of providers
PROVIDER_CASES = (
    "llm://opnai/gpt-5.5",
    "llm://vertex/gemini-3.8-flash?projct=x",
    "llm://openai/gpt-5.5?api=respones",
    "llm://openai/gpt-5.5?temp=0.5",
    "llm://openai/gpt-6-luna?api=chat",
    "llm://openai/gpt-5",
    "llm://openai/gpt-4",
)
#: the day on which the page reads the ends of models
AS_OF = date(2026, 11, 23)


def diagnostics_page() -> str:
    """The page."""
    columns = ["code", "severity", "clause", "message", "example", "corrected"]
    rows, known = _rows(_found()), _rows(_found_of_providers())
    return "\n".join(
        [
            GENERATED,
            "# Diagnostics\n",
            (
                "`onym.check` and `onym check` report these diagnostics for a URI that RFC 3986 allows. "
                "Errors break the draft, and `strict=True` rejects them. Warnings mark discouraged forms "
                "and likely mistakes. Notes are informational. The codes are stable.\n"
            ),
            (
                "Each example is a real run. A text that is not a URI gets one diagnostic, with the code of "
                "the [error](errors.md).\n"
            ),
            table(columns, (rows[each] for each in sorted(rows))),
            "## Providers and models\n",
            (
                "The command `onym check` also knows the [providers](providers.md), including those of your "
                "configuration. Their diagnostics name the source of the rule.\n"
            ),
            table(columns, (known[each] for each in sorted(known))),
        ]
    )


def _rows(findings: Iterator[tuple[str, Diagnostic]]) -> dict[str, list[str]]:
    """A row of the table for each code."""
    rows: dict[str, list[str]] = {}
    for text, found in findings:
        shown = text if len(text) < 90 else f"{text[:60]}…"
        fix = code(found.fix) if found.fix else "-"
        rows.setdefault(
            found.code,
            [code(found.code), found.severity, _clause(found), prose(found.message), code(shown), fix],
        )
    return rows


def found_codes() -> set[str]:
    """The codes that the cases earn."""
    return {found.code for _, found in _found()}


def codes_in_source() -> set[str]:
    """The codes that `check` can give."""
    return {f"llm.{rule}" for rule in RULES}


def _found() -> Iterator[tuple[str, Diagnostic]]:
    for text in CASES:
        report = check(text)
        assert report.uri is not None, text
        for found in report.diagnostics:
            yield text, found


def _found_of_providers() -> Iterator[tuple[str, Diagnostic]]:
    for text in PROVIDER_CASES:
        for found in check_provider(text, ProviderTable.builtin(), AS_OF):
            yield text, found


def _clause(found: Diagnostic) -> str:
    return cell((found.clause or "-").replace("draft-levy-llm-uri-scheme-00", "draft"))
