"""Strings of npm's llm-strings work here: each word that serves text, and every difference has a reason."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import Any

import pytest

import onym
from onym.errors import UnsupportedError
from onym.llm.config import Config
from onym.llm.dialects import DIALECTS
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from support import ROOT, as_subtests, load_own

sys.path.insert(0, str(ROOT / "docs" / "tools"))

from docgen.llm_strings import Difference, differences, text_words
from docgen.llm_strings_reasons import REASONS, why
from docgen.reference_strings import strings_page

THEIRS: dict[str, Any] = load_own("llm_strings.json")
FOUND = list(differences())


def client(word: str, query: str = "") -> onym.Client:
    # projects and the like have no place in its strings: they come from where the vendor's own SDK has them
    environ = {"GOOGLE_CLOUD_PROJECT": "my-project"}
    uri = f"llm://:sk-test-key-0123456789@{word}/some-model{query}"
    return onym.connect(uri, policy=Policy.local(), config=Config.empty(), environ=environ)


def test_the_copy_holds_all_of_its_providers_and_says_where_it_is_from() -> None:
    assert len(THEIRS["providers"]) == 37
    assert THEIRS["meta"]["version"] == "1.8.0"
    assert set(THEIRS["media"]) < set(THEIRS["hosts"])
    assert {name for name in THEIRS["ids"].values() if name} == set(THEIRS["providers"])
    silent = [name for name in THEIRS["providers"] if "max_tokens" not in THEIRS["names"][name]]
    assert set(silent) == (set(THEIRS["media"]) - {"bfl"}) | {"bytedance"}


@as_subtests("word", text_words())
def test_each_word_for_a_host_that_serves_text_leads_to_a_request(word: str) -> None:
    row = ProviderTable.builtin().find_alias(word)
    assert row is not None
    assert row.dialect in DIALECTS
    with client(word, "?max_tokens=10&stream=true") as to:
        plan = to.explain("Hi")
        assert to.explain("Hi", streaming=True).stream
    assert plan.url.startswith(f"https://{row.host}/")
    assert plan.endpoint.provider.name == row.name
    assert "10" in str(plan.body)
    assert plan.endpoint.credential is not None


def test_every_provider_that_serves_text_is_reached_by_each_of_its_words() -> None:
    table = ProviderTable.builtin()
    for word in text_words():
        name = THEIRS["ids"][word]
        assert name is None or table.find_alias(name) is table.find_alias(word)
    text = set(THEIRS["providers"]) - set(THEIRS["media"])
    assert len(text) == 24
    assert text <= set(text_words())


@as_subtests("word", THEIRS["media"])
def test_a_word_for_another_service_is_known_and_refused(word: str) -> None:
    row = ProviderTable.builtin().find_alias(word)
    assert row is not None
    assert row.host == THEIRS["hosts"][word]
    with pytest.raises(UnsupportedError) as caught:
        client(word)
    assert caught.value.code == "llm.no-dialect"


@as_subtests("word", text_words())
def test_its_host_is_one_of_the_rows_hosts_or_the_page_says_why_not(word: str) -> None:
    row = ProviderTable.builtin().find_alias(word)
    assert row is not None
    host = THEIRS["hosts"][word]
    assert host in row.hosts or any(item.kind == "host" and item.subject == word for item in FOUND)


@as_subtests("difference", FOUND, ids=lambda item: f"{item.kind}-{item.subject}")
def test_every_difference_is_one_and_has_a_reason(difference: Difference) -> None:
    assert difference.theirs != difference.ours
    assert why(difference.kind, difference.subject) is not None


def test_no_reason_is_left_over_and_no_subject_of_one() -> None:
    for reason in REASONS:
        mine = [item.subject for item in FOUND if why(item.kind, item.subject) is reason]
        assert all(any(fnmatchcase(subject, glob) for subject in mine) for glob in reason.subjects), reason
    assert why("outcome", "never-heard-of") is None


def test_every_difference_is_on_the_page_with_its_reason() -> None:
    page = strings_page()
    examples = {item["name"]: item["uri"] for item in THEIRS["examples"]}
    for item in FOUND:
        assert f"`{examples.get(item.subject, item.subject)}`" in page
    assert "| - |" not in page.partition("## Other outcomes")[2]


def test_each_example_of_it_is_read_again_by_the_converter() -> None:
    from onym.llm.convert import from_llm_strings

    for example in THEIRS["examples"]:
        made = from_llm_strings(example["uri"], environ=example.get("environ", {})).uris[0]
        assert made.host
