"""Texts in a second language: every one has a translation, and the visitor chooses the language."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from company_support import ADMINISTRATOR, COMPANY, define, load
from onym.server import registry
from onym.server.registry import labels
from onym.server.registry.labels import LANGUAGES, REGISTRY_SUMMARIES, TextTable, load_translations
from onym.server.registry.page_parts import SORTINGS, STEP_LABELS, STEP_MARKS
from onym.server.registry.responses import (
    FORMAT_TITLES,
    NAV_LABELS,
    NAV_LINKS,
    QUEUES,
    get_template_environment,
)
from onym.server.registry.statistics_page import STAGE_LABELS, UNITS
from server.registry.site import Site
from support import as_subtests

OTHERS = [language for language in LANGUAGES if language != "en"]
#: the templates whose texts are in every language
TRANSLATED = tuple(
    f"{name}.html"
    for name in (
        "base", "compare", "entry", "error", "home", "list", "login", "request", "requests", "search",
        "statistics",
    )
)  # fmt: skip
_PLACEHOLDER = re.compile(r"%\([a-z]+\)s|</?[a-z]+(?: [^<>]*)?>")


def _list_texts(template: str) -> set[str]:
    environment = get_template_environment()
    assert environment.loader is not None
    source = environment.loader.get_source(environment, template)[0]
    found: Any = environment.extract_translations(source)  # type: ignore[attr-defined]
    texts: set[str] = set()
    for _, _, message in found:
        texts.update(text for text in (message if isinstance(message, tuple) else (message,)) if text)
    return texts


def _list_code_texts() -> set[str]:
    """The literal texts that the modules translate."""
    texts: set[str] = set()
    for module in Path(registry.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("translate_text", "translate_plural"):
                texts |= {str(given.value) for given in node.args if isinstance(given, ast.Constant)}
    return texts


def _list_tables() -> Iterator[Iterable[str]]:
    """The tables of texts that are looked up when a page is drawn."""
    yield from (table.values() for table in vars(labels).values() if isinstance(table, TextTable))
    yield from (table.values() for table in (REGISTRY_SUMMARIES, FORMAT_TITLES, NAV_LABELS))
    yield from (table.values() for table in (STAGE_LABELS, STEP_LABELS, STEP_MARKS))
    yield (label for label, _ in SORTINGS.values())
    yield (text for _, text in (*NAV_LINKS, *QUEUES))
    yield from (forms for _, *forms in UNITS)


def _list_all_texts() -> set[str]:
    marked = (_list_texts(template) for template in (*TRANSLATED, "parts/macros.html"))
    return _list_code_texts().union(*marked, *_list_tables())


@as_subtests("language", OTHERS)
def test_every_text_has_a_translation_and_every_translation_a_text(language: str) -> None:
    known, texts = set(load_translations(language).texts), _list_all_texts()
    assert texts - known == set()
    assert known - texts == set()


@as_subtests("language", OTHERS)
def test_a_translation_has_the_places_and_tags_of_its_text(language: str) -> None:
    for text, translation in load_translations(language).texts.items():
        assert sorted(_PLACEHOLDER.findall(text)) == sorted(_PLACEHOLDER.findall(translation)), text
        assert translation.strip() == translation
        assert translation


@as_subtests("template", sorted(TRANSLATED))
def test_a_translated_template_has_no_text_outside_the_marks(template: str) -> None:
    environment = get_template_environment()
    assert environment.loader is not None
    source = environment.loader.get_source(environment, template)[0]
    plain = re.sub(r"{% trans.*?{% endtrans %}|{{.*?}}|{%.*?%}|{#.*?#}", "", source, flags=re.DOTALL)
    attributes = re.findall(r'(?:title|placeholder|aria-label|data-label)="([^"]*)"', plain)
    # the mark in the corner is the name's
    outside = re.sub(r"<[^>]*>", "", plain).replace("on\n", "\n")
    words = [*re.findall(r"[A-Za-z]{3,}", outside), *filter(None, attributes)]
    assert words == []


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("de", "de"),
        ("de-AT,de;q=0.9,en;q=0.5", "de"),
        ("fr;q=1, de;q=0.4, en;q=0.3", "de"),
        ("en;q=0.3, de;q=0.2", "en"),
        ("fr", "en"),
        ("de;q=0", "en"),
        ("de;q=x", "en"),
        ("", "en"),
    ],
)
def test_the_browser_s_languages_choose_the_page_s(shared: Site, header: str, language: str) -> None:
    shared.world.client.cookies.clear()
    page = shared.get("/", {"accept-language": header})
    assert f'<html lang="{language}">' in page.text
    assert ("Offene Anträge" in page.text) is (language == "de")
    assert "Accept-Language" in page.headers["vary"]


def test_a_link_chooses_the_language_and_leads_back(fresh: Site) -> None:
    page = fresh.get("/r/uri-schemes").text
    link = re.findall(r'href="(/language/de[^"]*)"', page)
    answer = fresh.get(link[0].replace("&amp;", "&"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/r/uri-schemes")
    page = fresh.get("/r/uri-schemes", {"accept-language": "en"}).text
    assert '<html lang="de">' in page
    assert "Dateien und Verfahren" in page
    assert "Anfangsbuchstaben" in page
    assert "Anmelden" in fresh.get("/login").text


def test_a_page_without_translations_is_english_as_a_whole(shared: Site) -> None:
    page = shared.get("/help", {"accept-language": "de"}).text
    assert '<html lang="en">' in page
    assert "Anmelden" not in page


def test_a_link_leads_nowhere_else_and_to_no_other_language(shared: Site) -> None:
    answer = shared.get("/language/de?next=https://evil.example/")
    assert answer.headers["location"] == "/"
    shared.world.client.cookies.clear()
    assert shared.get("/language/xx").status_code == 404


def test_a_company_s_words_are_in_the_german_page(fresh: Site, tmp_path: Any) -> None:
    text = 'builtin = ["uri-schemes", "llm-parameters", "ai-namespaces"]\n' + COMPANY
    event = define(load(tmp_path, text))
    fresh.world.do(fresh.world.store.apply, event, ADMINISTRATOR, fresh.world.clock.now())
    page = fresh.get("/", {"accept-language": "de"}).text
    assert "Diese Verzeichnisse zeigen" in page
    assert "Internal services" in page


def test_the_list_is_kept_for_each_language(fresh: Site) -> None:
    for language, word in (("de", "Anfangsbuchstaben"), ("en", "First letters"), ("de", "Anfangsbuchstaben")):
        assert word in fresh.get("/r/uri-schemes", {"accept-language": language}).text


def test_an_operator_s_words_are_neither_html_nor_a_format(fresh: Site, tmp_path: Any) -> None:
    text = COMPANY.replace('"In use"', '"In use <b>100% of"').replace('"Internal', '"<i>50% Internal')
    event = define(load(tmp_path, 'builtin = ["uri-schemes", "llm-parameters", "ai-namespaces"]\n' + text))
    fresh.world.do(fresh.world.store.apply, event, ADMINISTRATOR, fresh.world.clock.now())
    for path in ("/", "/r/services"):
        page = fresh.get(path, {"accept-language": "de"})
        assert page.status_code == 200
        assert "&lt;i&gt;50% Internal services" in page.text
        assert "<i>" not in page.text
        assert "<b>" not in page.text


def test_the_files_are_json_with_sorted_keys() -> None:
    for language in OTHERS:
        texts = load_translations(language).texts
        assert list(texts) == sorted(texts)
        assert json.dumps(texts)
