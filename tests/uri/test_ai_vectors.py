"""The project's own vectors of ai URIs: canonical forms, the mapping to HTTPS, and what people type."""

from __future__ import annotations

from typing import Any

import pytest

from onym.errors import URIError
from onym.uri.ai import AIURI, from_target, to_https
from onym.uri.iri import parse_user_input
from support import as_subtests, load_own

CANONICAL = load_own("ai_canonical.json")
MAPPING = load_own("ai_mapping.json")
TYPED = load_own("ai_typed.json")


def by_id(case: dict[str, Any]) -> str:
    return str(case["id"])


def fault(error: URIError) -> dict[str, Any]:
    return {"code": error.code, "component": error.component, "offset": error.offset}


@pytest.mark.requirement("ai-gateway-e")
@as_subtests("case", CANONICAL["valid"], ids=by_id)
def test_an_ai_uri_has_one_canonical_form(case: dict[str, Any]) -> None:
    uri = AIURI.parse(case["text"])
    assert uri.canonical() == case["canonical"]
    assert uri.authority_text == case["authority"]
    assert [list(pair) for pair in uri.parameters] == case["parameters"]
    assert AIURI.parse(case["canonical"]).canonical() == case["canonical"]


@pytest.mark.requirement("ai-gateway-f")
@as_subtests("case", CANONICAL["invalid"], ids=by_id)
def test_what_is_malformed_or_ambiguous_is_refused_where_it_is(case: dict[str, Any]) -> None:
    with pytest.raises(URIError) as caught:
        AIURI.parse(case["text"]).canonical()
    assert fault(caught.value) == case["error"]
    assert (caught.value.clause or "").startswith(case["clause"])


@pytest.mark.requirement("ai-gateway-a")
@pytest.mark.parametrize("case", MAPPING["valid"], ids=by_id)
def test_a_canonical_uri_has_one_url_and_the_url_one_uri(case: dict[str, Any]) -> None:
    uri = AIURI.parse(case["uri"])
    assert to_https(case["base"], uri) == case["https"]
    prefix = "/" + case["base"].partition("://")[2].partition("/")[2]
    path, _, query = case["https"][len(case["base"]) - len(prefix.rstrip("/")) :].partition("?")
    assert from_target(prefix.rstrip("/"), path.encode(), query.encode()) == uri


@pytest.mark.requirement("ai-gateway-f")
@as_subtests("case", MAPPING["invalid"], ids=by_id)
def test_a_target_that_is_no_canonical_uri_is_refused_and_never_repaired(case: dict[str, Any]) -> None:
    with pytest.raises(URIError) as caught:
        from_target(case["prefix"], case["path"].encode("latin-1"), case["query"].encode("latin-1"))
    assert caught.value.code == case["code"]
    if case["hint"] is not None:
        assert caught.value.hint == case["hint"]


@pytest.mark.requirement("ai-i18n-c")
@as_subtests("case", TYPED["valid"], ids=by_id)
def test_what_a_person_types_has_two_forms_and_its_warnings(case: dict[str, Any]) -> None:
    typed = parse_user_input(case["typed"])
    assert (str(typed.uri), typed.unicode) == (case["uri"], case["unicode"])
    assert [{"code": each.code, "part": each.part} for each in typed.warnings] == case["warnings"]
    assert parse_user_input(typed.unicode).uri == typed.uri


@pytest.mark.requirement("ai-i18n-c")
@as_subtests("case", TYPED["invalid"], ids=by_id)
def test_what_a_person_types_is_judged_after_the_mapping(case: dict[str, Any]) -> None:
    with pytest.raises(URIError) as caught:
        parse_user_input(case["typed"])
    assert fault(caught.value) == case["error"]
