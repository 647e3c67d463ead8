"""The checker: what RFC 4395 or RFC 7595 would have a scheme's document say, and does not find there.

    from onym.registry.checks import check
    from onym.registry.documents import read_document

    report = check(read_document(text))
    print(as_text(report))

Pure: no file, no clock, no network. Each check is a small function in the table `CHECKS`.
"""

from __future__ import annotations

from onym.registry.checks._context import clean_name
from onym.registry.checks._registry import check_entries
from onym.registry.checks._run import MAX_TEMPLATES, check, check_request, choose_profile
from onym.registry.checks._sarif import sarif
from onym.registry.checks._show import as_text, summary
from onym.registry.checks._table import CHECKS
from onym.registry.checks.known import Known
from onym.registry.checks.report import Finding, Level, Report

__all__ = [
    "CHECKS",
    "MAX_TEMPLATES",
    "Finding",
    "Known",
    "Level",
    "Report",
    "as_text",
    "check",
    "check_entries",
    "check_request",
    "choose_profile",
    "clean_name",
    "sarif",
    "summary",
]
