"""Tables of lower floors: Python that says names and one column, and nothing that an entry would add."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import UnknownEntryError
from onym.registry.iana import load_builtin_snapshot, write_table
from onym.registry.records import Entry, Status
from onym.registry.registries import REGISTRIES


def ran(text: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "table"}
    exec(compile(text, "table", "exec"), scope)
    return scope


def entry(name: str, kind: str = "int", status: Status = Status.REGISTERED) -> Entry:
    return Entry(registry="llm-parameters", name=name, status=status, fields={"type": kind})


@pytest.mark.parametrize("registry", REGISTRIES)
def test_every_shipped_registry_is_a_table(registry: str) -> None:
    entries = load_builtin_snapshot(registry).entries
    table = ran(write_table(entries, registry=registry))
    assert table["WELL_KNOWN"] == tuple(entry.name for entry in entries)
    if registry == "uri-schemes":
        assert table["STATUSES"]["http"] == "permanent"
    assert set(table["__all__"]) <= set(table)


def test_what_is_pending_is_not_well_known() -> None:
    entries = [entry("a"), entry("b", status=Status.PENDING_REVIEW)]
    assert ran(write_table(entries, registry="llm-parameters"))["WELL_KNOWN"] == ("a",)


def test_one_entry_is_a_tuple_of_one_and_none_is_an_empty_one() -> None:
    assert ran(write_table([entry("a")], registry="llm-parameters"))["WELL_KNOWN"] == ("a",)
    assert ran(write_table([], registry="ai-namespaces"))["WELL_KNOWN"] == ()


@given(kind=st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_of_an_entry_says_anything_to_python(kind: str) -> None:
    table = ran(write_table([entry("a", kind)], registry="llm-parameters"))
    assert table["TYPES"] == {"a": kind}


def test_a_registry_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownEntryError):
        write_table([], registry="tables")
