"""Texts in a second language: every one has a translation, and the visitor chooses the language."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from company_support import ADMINISTRATOR, COMPANY, define, load
from onym.registry.registries import PROFILES, REGISTRIES
from onym.server import registry
from onym.server.registry import labels
from onym.server.registry.labels import LANGUAGES, REGISTRY_SUMMARIES, TextTable, load_translations
from onym.server.registry.log_pages import STAGE_LABELS, UNITS
from onym.server.registry.page_parts import SORTINGS, STEP_LABELS, STEP_MARKS
from onym.server.registry.responses import (
    FORMAT_TITLES,
    NAV_LABELS,
    NAV_LINKS,
    QUEUES,
    get_template_environment,
)
from server.registry.site import HOSTILE, Site
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
    for row in REGISTRIES.values():
        yield (row.noun, f"{row.noun}s", row.name_rule, *row.map_headings().values())


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


class _PageTexts(HTMLParser):
    """The texts and spoken attributes of a page, without code, times, drawings and parts that are marked."""

    _APART = frozenset({"script", "pre", "code", "svg", "time"})
    _EMPTY = frozenset({"meta", "link", "input", "br"})
    _SPOKEN = ("aria-label", "title", "placeholder", "data-label")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        #: the open elements, and whether their texts are left out
        self._open: list[tuple[str, bool]] = [("", False)]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_english = given.get("lang") == "en" and tag != "html"
        is_apart = self._open[-1][1] or is_english or tag in self._APART
        if not is_apart:
            self.found |= {text for name in self._SPOKEN if (text := given.get(name))}
        if tag not in self._EMPTY:
            self._open.append((tag, is_apart))

    def handle_endtag(self, tag: str) -> None:
        while len(self._open) > 1 and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self._open[-1][1]:
            self.found.add(" ".join(data.split()).strip(" .·,():"))


#: texts that are the same in both languages: words, names of registries and policies, and what people wrote
_SAME = frozenset(
    (
        "CSV", "JSON", "Code", "Name", "Status", "Syntax", "Parameter", "IANA", "IESG", "English", "Deutsch",
        "on", "Onym registry", "Programs", "Robots", "htpp", "RFC3986", "[RFC3986]", "user-rita",
        "Expert Review", "Specification Required",
        "Clear and useful", "Fine", "No contact", "missing: contact; No contact", "Changed our mind",
        "It touches several protocols", "Say how the host is found", "Never resolve it as root",
        "Never resolve it as root. [[RFC3986]]", "The name is a trademark of somebody else", "security",
        "security: Never resolve it as root. [[RFC3986]]",
    )
)  # fmt: skip
_SAME_FORMS = re.compile(
    r"[^A-Za-z]*[A-Za-z]?[^A-Za-z]*"
    r"|(?:RFC|BCP) [0-9]{2,4}( [0-9.]+)?( \(BCP [0-9]+, [0-9]{4})?|draft-[a-z0-9-]+( [0-9.]+)?"
    r"|https://(list|robots)\.example(/[0-9])?|(Rita|Ian|Eve|Ingo) Example"
    r"|(Rita|Example) <(rita|standards)@example\.org>"
    r"|(uri-schemes|ai-namespaces|llm-parameters)-[0-9]+(: [a-z_]+ · Onym registry)?"
)


def _list_reader_pages(site: Site) -> list[str]:
    """Addresses of every page that a reader sees, with the forms that they take."""
    names = ("approvy", "proviso", "http", "ftp", "experty")
    public = ("list", "submitted", "expert", "more", "ietf", "approved", "rejected", "incomplete", "old")
    return [
        "/", "/login", "/login?done=signed-out", "/requests", "/requests?state=draft", "/requests?limit=2",
        "/search", "/search?q=http", "/search?q=htpp", "/search?q=zzzzzzzz", "/statistics",
        "/r/uri-schemes", "/r/uri-schemes?q=zz", "/r/uri-schemes?status=permanent", "/r/ai-namespaces",
        "/r/ai-namespaces/robots", "/nothing", "/r/uri-schemes/nonono", "/r/uri-schemes?sort=x",
        "/r/uri-schemes/approvy/compare", "/r/uri-schemes/proviso/compare",
        *(f"/r/uri-schemes/{name}" for name in names),
        *(f"/requests/{site.ids[label]}" for label in (*public, "registered", "namespace")),
    ]  # fmt: skip


def test_a_german_page_has_no_english_text(shared: Site) -> None:
    same = _SAME | {profile.title.rstrip(")") for profile in PROFILES.values()} | {HOSTILE}
    titles = "|".join(re.escape(row.title) for row in REGISTRIES.values())
    known = re.compile(rf"{_SAME_FORMS.pattern}|(Namespace in )?({titles})( · Onym registry)?")
    store, do = shared.world.store, shared.world.do
    names = {entry.name for entry in do(store.entries, "uri-schemes").items}
    names |= {about.name for about in do(store.requests, limit=100).items}
    for path in _list_reader_pages(shared):
        shared.world.client.cookies.clear()
        english, german = (shared.get(path, {"accept-language": language}) for language in ("en", "de"))
        assert english.status_code == german.status_code
        assert '<html lang="en">' in english.text
        assert '<html lang="de">' in german.text
        assert 'lang="en"' not in english.text.replace('<html lang="en">', "", 1)
        both = _PageTexts(english.text).found & _PageTexts(german.text).found
        left = {text for text in both - same - names if not known.fullmatch(text)}
        assert left == set(), path


def test_the_message_of_an_error_is_english_and_marked_so(shared: Site) -> None:
    page = shared.get("/r/uri-schemes/nonono", {"accept-language": "de"}).text
    assert '<title lang="en">Not found' in page
    assert "Fehler 404" in page
    assert '<h1 lang="en">Not found</h1>' in page
    assert re.search(r'<p class="value" lang="en">No scheme of that name is registered', page)
    assert re.search(r'<strong>Was Sie tun können:</strong> <span lang="en">', page)


def test_the_forms_of_a_request_s_actions_are_english_and_marked_so(
    shared: Site, people: dict[str, dict[str, str]]
) -> None:
    path = f"/requests/{shared.ids['expert']}"
    page = shared.get(path, {**people["eve"], "accept-language": "de"}).text
    assert "Was Sie jetzt tun können" in page
    actions = page.split('<div class="actions" lang="en">')[1].split("</section>")[0]
    assert "Approve and register as permanent" in actions


@as_subtests("path", ["/help", "/submit", "/r/uri-schemes/http/change"])
def test_a_page_without_translations_is_english_as_a_whole(shared: Site, path: str) -> None:
    shared.world.client.cookies.clear()
    page, english = (shared.get(path, {"accept-language": language}).text for language in ("de", "en"))
    assert '<html lang="en">' in page
    texts, expected = _PageTexts(page).found, _PageTexts(english).found
    assert texts == expected


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
