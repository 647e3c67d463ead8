"""The scheme checker: check a scheme's document against RFC 4395 or RFC 7595.

    from onym.registry.checks import as_text, check
    from onym.registry.documents import read_document

    report = check(read_document(text))
    print(as_text(report))

The checks use no file, clock or network. The table `CHECKS` lists them.
"""

from __future__ import annotations

from onym.registry.checks._render import as_text, format_summary, to_sarif
from onym.registry.checks.context import Finding, Level, Report, clean_name
from onym.registry.checks.reference_data import ReferenceData
from onym.registry.checks.runner import (
    CHECKS,
    MAX_TEMPLATES,
    check,
    check_entries,
    check_request,
    choose_profile,
)

__all__ = [
    "CHECKS",
    "MAX_TEMPLATES",
    "Finding",
    "Level",
    "ReferenceData",
    "Report",
    "as_text",
    "check",
    "check_entries",
    "check_request",
    "choose_profile",
    "clean_name",
    "format_summary",
    "to_sarif",
]
