"""The project's own vectors of where a URI may lead; they are written from the specifications."""

from __future__ import annotations

from typing import Any

import pytest

from onym.errors import URIError
from onym.net.policy import Decision, evaluate_uri
from support import as_subtests, load_own

CASES = load_own("ssrf.json")["cases"]


@pytest.mark.requirement("llm-10.5-a", "llm-10.5-b", "llm-10.5-c")
@as_subtests("case", CASES, ids=lambda case: str(case["id"]))
def test_every_case_is_decided_as_it_says(case: dict[str, Any]) -> None:
    try:
        found = evaluate_uri(case["uri"], case["policy"], case.get("dns"))
    except URIError:
        found = Decision(False, "malformed", (), "")
    assert ("allow" if found.allowed else "refuse") == case["decision"]
    if "connect_to" in case:
        assert list(found.connect_to) == case["connect_to"]


def test_ids_are_unique_and_every_case_says_why() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES)
    assert all(case["why"] and case["clause"] for case in CASES)
