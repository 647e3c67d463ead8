"""Opening a request: which kinds, on which rows, by whom, with what."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry.engine import decide
from onym.registry.records import (
    Decision,
    Entry,
    Event,
    EventKind,
    Request,
    RequestKind,
    RequestState,
    Status,
)
from support import as_subtests

from .table import ACTORS, AT, BOTH, COMPLETE

R, T = RequestKind, Status
STATUSES = (None, T.PERMANENT, T.PROVISIONAL, T.HISTORICAL, T.PENDING_REVIEW)
ASKABLE = (T.PERMANENT, T.PROVISIONAL, T.HISTORICAL)


def row(status: Status | None) -> Entry | None:
    if status is None:
        return None
    pending = ("uri-schemes-3",) if status is T.PENDING_REVIEW else ()
    return Entry(
        registry="uri-schemes", name="demo", status=status, registrant="owner", pending=pending,
        designees=frozenset({"designee"}),
    )  # fmt: skip


def ask(
    entry: Entry | None, actor: str, *, name: str = "demo", registry: str = "uri-schemes", **data: Any
) -> Decision:
    if registry == "uri-schemes" and data.get("kind", "new") == "new":
        data.setdefault("status", T.PROVISIONAL)
    asked = Event(kind=EventKind.OPEN, registry=registry, request="uri-schemes-1", name=name, data=data)
    return decide(asked, ACTORS[actor], AT, request=None, entry=entry)


def opened(*given: Any, **data: Any) -> Request:
    request = ask(*given, **data).request
    assert request is not None
    return request


def may(kind: RequestKind, wanted: Status, status: Status | None, actor: str) -> bool:
    """What RFC 4395 5.2, 5.3 and RFC 7595 7.2, 7.3 allow."""
    if actor in ("reader", "nobody"):
        return False
    if kind is R.NEW:
        return status is None
    if kind is R.SEPARATE_USE:
        return status is not None
    if status in (None, T.PENDING_REVIEW):
        return False
    if kind is R.UPDATE:
        return wanted is status and (status is not T.PROVISIONAL or actor in ("owner", "designee"))
    if kind is R.STATUS_CHANGE:
        if (status, wanted) == (T.PROVISIONAL, T.PERMANENT):
            return True
        if (status, wanted) == (T.PROVISIONAL, T.HISTORICAL):
            return actor in ("owner", "designee")
        return (status, wanted) == (T.PERMANENT, T.HISTORICAL)
    if kind is R.REASSIGN:
        return status is T.PROVISIONAL
    return True


@pytest.mark.parametrize("profile", BOTH)
@as_subtests("kind", list(R), ids=str)
def test_a_request_opens_where_its_kind_has_sense_and_nowhere_else(kind: RequestKind, profile: str) -> None:
    for wanted, status, actor in itertools.product(ASKABLE, STATUSES, ACTORS):
        data = {"kind": kind, "status": wanted, "fields": COMPLETE, "profile": profile}
        where = f"{wanted} of {status} by {actor}"
        if may(kind, wanted, status, actor):
            request = opened(row(status), actor, **data)
            assert request.state is RequestState.DRAFT, where
            asked = wanted if kind in (R.NEW, R.STATUS_CHANGE) else status
            assert (request.kind, request.status, request.registrant) == (kind, asked, actor), where
        else:
            with pytest.raises(RefusalError) as caught:
                ask(row(status), actor, **data)
            assert caught.value.clause is not None, where


def test_a_name_is_filed_in_lower_case() -> None:
    assert opened(None, "owner", name=" Demo ").name == "demo"


@as_subtests(
    "name",
    ["", "1a", "a b", "a/b", "../etc", "ä", "a\x00", "a%2e", "<script>", "=1+1", "-a", "a_b"],
)
def test_a_name_that_no_scheme_may_have_is_refused_with_its_clause(name: str) -> None:
    with pytest.raises(RefusalError) as caught:
        ask(None, "owner", name=name)
    assert (caught.value.code, caught.value.field, caught.value.clause) == (
        "registry.bad-name", "name", "RFC 3986 3.1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("registry", "good", "bad"),
    [("llm-parameters", "max_tokens", "max-tokens"), ("ai-namespaces", "bank", "bank.example")],
)
def test_each_registry_judges_names_by_its_own_rule(registry: str, good: str, bad: str) -> None:
    assert opened(None, "owner", name=good, registry=registry).name == good
    with pytest.raises(RefusalError):
        ask(None, "owner", name=bad, registry=registry)


def test_parameter_names_keep_their_case() -> None:
    assert opened(None, "owner", name="topP", registry="llm-parameters").name == "topP"


def test_a_name_that_is_too_long_is_refused_by_whose_limit_it_is() -> None:
    with pytest.raises(RefusalError) as caught:
        ask(None, "owner", name="a" * 64)
    assert (caught.value.code, caught.value.field) == ("registry.bad-name", "name")
    assert caught.value.clause == "docs/decisions/0026"
    assert opened(None, "owner", name="a" * 63).name == "a" * 63


def test_the_status_asked_for_is_named_and_read_in_any_case() -> None:
    assert opened(None, "owner", status="Permanent").status is T.PERMANENT
    assert opened(row(T.PERMANENT), "stranger", kind="update").status is T.PERMANENT
    assert opened(None, "owner", name="temp", registry="llm-parameters").status is T.REGISTERED
    with pytest.raises(RefusalError) as caught:
        ask(None, "owner", status=None)
    assert (caught.value.code, caught.value.field) == ("registry.bad-status", "status")
    assert caught.value.clause == "RFC 7595 7.4"
    assert "Permanent, Provisional, Historical" in (caught.value.hint or "")


def test_an_update_does_not_change_the_status() -> None:
    with pytest.raises(RefusalError, match="permanent") as caught:
        ask(row(T.PERMANENT), "owner", kind="update", status="historical")
    assert (caught.value.code, caught.value.field) == ("registry.bad-status", "status")
    assert caught.value.hint == "Open a request of kind status-change."


@as_subtests(
    ("data", "field"),
    [
        ({"kind": "whim"}, "kind"),
        ({"status": "eternal"}, "status"),
        ({"status": "pending-review"}, "status"),
        ({"status": 5}, "status"),
        ({"profile": "rfc2717"}, "profile"),
        ({"profile": "expert-review"}, "profile"),
        ({"fields": "text"}, "fields"),
        ({"fields": {"contact": 5}}, "contact"),
        ({"fields": {"contact": "x" * 1_000_001}}, "contact"),
        ({"fields": {str(n): "x" for n in range(65)}}, "fields"),
        ({"fields": {"notes": "endorsed"}}, "notes"),
        ({"fields": {"cri_number": "1"}}, "cri_number"),
        ({"fields": {"colour": "red"}}, "colour"),
        ({"template": 5}, "template"),
        ({"template": "x" * 1_000_001}, "template"),
        ({"draft": "draft-x"}, "draft"),
        ({"draft": {"name": "draft-x"}}, "draft"),
        ({"draft": {"name": "draft-x", "expires": "soon"}}, "expires"),
        ({"on_behalf_of": ["x"]}, "on_behalf_of"),
    ],
)
def test_what_an_event_brings_is_checked_and_named(data: dict[str, Any], field: str) -> None:
    with pytest.raises(RefusalError) as caught:
        ask(None, "owner", **data)
    assert caught.value.field == field


def test_a_request_needs_an_id_and_its_time_is_utc() -> None:
    event = Event(kind=EventKind.OPEN, registry="uri-schemes", name="demo", data={"status": "provisional"})
    with pytest.raises(RefusalError) as caught:
        decide(event, ACTORS["owner"], AT, request=None, entry=None)
    assert (caught.value.code, caught.value.field) == ("registry.bad-data", "request")
    named = replace(event, request="uri-schemes-1")
    for at in (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))):  # noqa: DTZ001
        with pytest.raises(RefusalError) as caught:
            decide(named, ACTORS["owner"], at, request=None, entry=None)
        assert (caught.value.code, caught.value.field) == ("registry.bad-data", "at")


def test_an_event_about_a_request_without_one_says_so() -> None:
    event = Event(kind=EventKind.SUBMIT, registry="uri-schemes", name="demo")
    with pytest.raises(RefusalError) as caught:
        decide(event, ACTORS["owner"], AT, request=None, entry=None)
    assert caught.value.field == "request"


def test_a_request_may_speak_for_the_one_who_made_the_scheme() -> None:
    request = opened(
        None, "stranger", on_behalf_of="The makers", draft={"name": "draft-x-00", "expires": "2026-09-01"}
    )
    assert request.on_behalf_of == "The makers"
    assert request.draft is not None
    assert request.draft.name == "draft-x-00"
    assert request.opened == AT.astimezone(UTC)
