"""Every page, for every role and state, with hostile content."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from jinja2 import meta

from onym.registry.records import IANA_CLOCK, Entry, EventKind, Status
from onym.registry.registries import REGISTRIES
from onym.server.registry import responses
from onym.server.registry.page_parts import PageFrame
from onym.server.registry.responses import get_template_environment
from onym.server.services import STATIC_FOLDER
from server.registry.site import HOSTILE, TEMPLATE, Site

LOGINS = ("", "rita", "ian", "eve", "ingo")
STATES = (
    "draft", "list", "submitted", "expert", "more", "ietf", "approved", "rejected", "incomplete", "withdrawn",
    "old", "registered", "hostile", "namespace", "parameter",
)  # fmt: skip
#: nobody has been asked about these yet: their registrant, IANA and experts see them
PRIVATE = ("draft", "withdrawn", "parameter")
PLAIN = (
    "/", "/search?q=http", "/search", "/help", "/submit", "/submit?registry=llm-parameters",
    "/submit?registry=ai-namespaces", "/requests", "/requests?state=draft", "/r/uri-schemes",
    "/r/uri-schemes?q=hostile", "/r/uri-schemes?status=permanent", "/r/llm-parameters", "/r/ai-namespaces",
    "/r/uri-schemes/hostile%2Bx", "/r/uri-schemes/hostile%2Bx/change", "/r/uri-schemes/proviso",
    "/r/uri-schemes/proviso/compare", "/r/uri-schemes/proviso/change", "/r/ai-namespaces/robots",
    "/r/ai-namespaces/robots/change", "/login", "/statistics",
)  # fmt: skip


class Seen(HTMLParser):
    """What a page holds that the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.open_forms: list[dict[str, Any]] = []
        self.forms: list[dict[str, Any]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "label":
            self.labels.add(str(found.get("for")))
        if tag == "form":
            form = {"attrs": found, "names": []}
            self.open_forms.append(form)
            self.forms.append(form)
        if tag in ("input", "select", "textarea") and self.open_forms:
            self.open_forms[-1]["names"].append(found.get("name"))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.open_forms.pop()


def paths(site: Site, login: str) -> list[str]:
    public = [state for state in STATES if login not in ("", "ingo") or state not in PRIVATE]
    found = list(PLAIN) + [f"/requests/{site.ids[state]}" for state in public]
    if login in ("ian", "eve", "ingo"):
        role = {"ian": "iana", "eve": "expert", "ingo": "iesg"}[login]
        found += [f"/queue/{role}"] + [f"/requests/{site.ids[state]}/review" for state in public]
    if login == "rita":
        found += [f"/requests/{site.ids[state]}/edit" for state in ("draft", "list", "more", "incomplete")]
    if login == "ian":
        found += [
            "/audit",
            "/r/uri-schemes/-/redact",
            "/accounts",
            "/accounts/user-eve",
            "/accounts/user-ian",
        ]
    if login:
        found += ["/account", "/requests?mine=1"]
        found.remove("/login")
    return found


def check(page: Seen, text: str) -> None:
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    names = [tag for tag, _ in page.tags]
    assert names.count("h1") == 1
    assert len(page.ids) == len(set(page.ids)), sorted(page.ids)
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attrs), (tag, attrs)
        assert tag != "style"
        if tag == "script":
            assert str(attrs["src"]).startswith("/static/")
        if tag in ("input", "select", "textarea") and attrs.get("type") != "hidden":
            assert attrs.get("id") in page.labels, attrs
        for name in ("href", "src", "action"):
            assert not str(attrs.get(name, "")).strip().lower().startswith(("javascript:", "data:")), attrs
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(str(attrs.get(name) or "").split()) <= set(page.ids), attrs
    for form in page.forms:
        if str(form["attrs"].get("method", "get")).lower() == "post":
            assert "csrf_token" in form["names"], form


@pytest.mark.parametrize("login", LOGINS)
def test_every_page_draws_for_every_role_with_nothing_unescaped(
    shared: Site, people: dict[str, dict[str, str]], login: str
) -> None:
    for path in paths(shared, login):
        answer = shared.get(path, people[login])
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:2000])
        check(Seen(answer.text), answer.text)


def test_hostile_text_is_shown_as_it_is(shared: Site) -> None:
    text = shared.get(f"/requests/{shared.ids['hostile']}").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "{{7*7}}" in text
    assert "49" not in re.sub(r"[^<>]{0,3}49[0-9]", "", HOSTILE)


@pytest.mark.parametrize("login", LOGINS)
def test_every_link_of_the_site_leads_somewhere(
    shared: Site, people: dict[str, dict[str, str]], login: str
) -> None:
    waiting, seen = ["/"], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = shared.get(path, people[login], accept="text/html, */*;q=0.5")
        assert answer.status_code in (200, 303), (path, answer.status_code)
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        page = Seen(answer.text)
        for tag, attrs in page.tags:
            for name in ("href", "src"):
                target = attrs.get(name)
                if target is None:
                    continue
                if target.startswith("#"):
                    assert target[1:] in page.ids, (path, target)
                elif target.startswith("/language/"):
                    continue  # it would change the language of the pages that follow
                elif target.startswith("/"):
                    waiting.append(target.split("#")[0])
                else:
                    assert target.startswith(("https://", "http://")), (path, target)
                    assert tag == "a", (path, target)
    assert len(seen) > 60


def test_a_template_uses_what_its_page_gives_and_nothing_else(
    shared: Site, people: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = get_template_environment()
    rendered: dict[str, set[str]] = {}
    render = responses.render_page

    def record(template: str, page: PageFrame, /, **members: Any) -> str:
        assert rendered.setdefault(template, {"page", *members}) == {"page", *members}
        return render(template, page, **members)

    monkeypatch.setattr(responses, "render_page", record)
    for path in [*paths(shared, "ian"), "/nowhere", "/login"]:
        shared.get(path, people["" if path == "/login" else "ian"])

    def used(name: str) -> set[str]:
        assert env.loader is not None
        tree = env.parse(env.loader.get_source(env, name)[0])
        # imports stand outside the blocks that use them; Jinja itself uses "_trans" for a call in {% trans %}
        return meta.find_undeclared_variables(tree) - {"m", "pieces", "_trans", *env.globals}

    assert {*rendered, "base.html", "parts/macros.html"} == set(env.list_templates())
    for template, given in rendered.items():
        assert used(template) | used("base.html") == given, template
    assert used("parts/macros.html") == set()


@pytest.mark.parametrize("path", PLAIN)
def test_a_program_that_asks_a_page_for_json_is_sent_to_the_api(shared: Site, path: str) -> None:
    answer = shared.get(path, accept="application/json")
    if path == "/login":  # the one page that never had another form
        assert answer.status_code == 200
        return
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (406, "application/problem+json")
    assert problem["code"] == "http.406"
    assert "/api/v1" in problem["hint"]
    assert "/openapi.json" in problem["hint"]
    assert shared.get(path, accept="*/*").headers["content-type"].startswith("text/html")


def test_the_picture_of_the_help_page_shows_every_state(shared: Site) -> None:
    text = shared.get("/help").text
    for state in (
        "draft",
        "list-review",
        "submitted",
        "expert-review",
        "more-review",
        "ietf-review",
        "approved",
        "rejected",
    ):
        assert f'id="rfc7595-{state}"' in text
    assert 'id="rfc4395-timed-out' in text or "time for review over" in text


def test_the_list_is_whole_with_count_letters_and_sorting(fresh: Site) -> None:
    rows = [
        Entry(registry="uri-schemes", name=f"{letter}x{at}", status=Status.PROVISIONAL, fields={})
        for letter in "abc"
        for at in range(60)
    ]
    rows.append(
        Entry(
            registry="uri-schemes", name="zz", status=Status.HISTORICAL,
            fields={"template": "historic/zz", "reference": "[RFC9110, Section 4.2.1]"},
        )
    )  # fmt: skip
    world = fresh.world
    world.do(world.store.import_entries, "uri-schemes", rows, IANA_CLOCK, world.clock.now(), source="more")
    text = fresh.get("/r/uri-schemes").text
    names = re.findall(r'<th scope="row" class="c-name"><a class="name" href="[^"]*">([^<]*)<', text)
    total = sum(world.do(world.store.count_by_status, "uri-schemes").values())
    assert len(names) == total > 181
    assert f"{total} schemes" in text
    assert '<tr id="letter-a">' in text
    assert '<a href="#letter-z">Z' in text
    assert 'href="https://www.iana.org/assignments/uri-schemes/historic/zz"' in text
    assert 'href="https://www.rfc-editor.org/rfc/rfc9110#section-4.2.1"' in text
    by_status = fresh.get("/r/uri-schemes?sort=status").text
    order = re.findall(r'status-([a-z-]+)"', by_status.partition("<tbody>")[2])
    known = [str(status) for status in REGISTRIES["uri-schemes"].statuses]
    assert order == sorted(order, key=known.index)
    assert "letter-" not in by_status
    unsorted = fresh.get("/r/uri-schemes?sort=luck")
    assert unsorted.status_code == 404
    assert "registry.bad-sort" in unsorted.text
    # the list is kept, and read again after a write
    fresh.act("ian", EventKind.OVERRIDE, name="zz", remove=True, reason="unused")
    world.clock.seconds += 1
    assert 'href="#letter-z"' not in fresh.get("/r/uri-schemes").text


def test_news_are_outcomes_one_for_each_request_and_survive_a_large_import(fresh: Site) -> None:
    rows = [
        Entry(registry="uri-schemes", name=f"n{at}", status=Status.PROVISIONAL, fields={})
        for at in range(300)
    ]
    world = fresh.world
    world.do(world.store.import_entries, "uri-schemes", rows, IANA_CLOCK, world.clock.now(), source="more")

    def read_news(text: str) -> list[tuple[str, str]]:
        part = text.partition('id="news"')[2].partition("</ol>")[0]
        return re.findall(r'href="([^"]*)">[^<]*</a> <span class="status tone-([a-z]+)">', part)

    news = read_news(fresh.get("/").text)
    assert len(news) == 8
    assert len({href for href, _ in news}) == 8
    of = dict(news)
    assert of["/requests/" + fresh.ids["incomplete"]] == "bad"
    assert of["/requests/" + fresh.ids["registered"]] == "info"
    # the draft that was withdrawn was never public
    assert "/requests/" + fresh.ids["withdrawn"] not in of
    sign_in = fresh.headers("rita")
    assert "/requests/" + fresh.ids["withdrawn"] in dict(read_news(fresh.get("/", sign_in).text))


@pytest.mark.parametrize(("state", "tone"), [("rejected", "bad"), ("approved", "good"), ("expert", "warn")])
def test_a_request_has_the_colour_of_its_outcome(shared: Site, state: str, tone: str) -> None:
    for path in (f"/requests/{shared.ids[state]}", "/requests"):
        text = shared.get(path).text
        row = (
            text
            if path != "/requests"
            else re.findall(rf">{shared.ids[state]}</a>.*?</tr>", text, re.DOTALL)[0]
        )
        assert f'class="status tone-{tone}"' in row
        assert "status-permanent" not in row


def test_an_entry_shows_its_syntax_from_the_request(fresh: Site) -> None:
    grammar = 'syntaxy-URI = "syntaxy:" 1*3( ALPHA / "<" )\n\nFor example, syntaxy:abc and syntaxy:toolong.\n'
    text = TEMPLATE.format(name="syntaxy", status="Provisional") + "\n1.  Syntax\n\n   " + grammar
    fields = {"references": "[RFC3986]"}
    identifier = fresh.open("syntax", "syntaxy", template=text, fields=fields)
    fresh.act("rita", EventKind.SUBMIT, about=identifier)
    fresh.act("ian", EventKind.CHECK_COMPLETE, about=identifier)
    page = fresh.get("/r/uri-schemes/syntaxy").text
    assert 'aria-label="Railroad diagram of syntaxy-URI"' in page
    assert "syntaxy-URI = &#34;syntaxy:&#34;" in page
    assert '<code class="example">syntaxy:abc</code>' in page
    assert f'href="/requests/{identifier}"' in page
    assert "no grammar of the scheme" in fresh.get("/r/uri-schemes/ftp").text
    assert 'id="syntax"' not in fresh.get("/r/ai-namespaces/robots").text


def test_search_marks_similar_names(shared: Site) -> None:
    text = shared.get("/search?q=htpp").text
    assert ">http</a>" in text
    assert "1 similar name:" in text
    assert "1 result for" in shared.get("/search?q=http").text
    found = shared.get("/api/v1/search?q=htpp", accept="application/json").json()
    assert [entry["name"] for entry in found["entries"]] == ["http"]


def _colours(block: str) -> dict[str, tuple[float, float, float]]:
    found = {}
    for name, value in re.findall(r"--((?:ink|fill|line|focus)[a-z-]*): #([0-9a-f]{6});", block):
        found[name] = tuple(int(value[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return found


def _luminance(colour: tuple[float, float, float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, float, float], two: tuple[float, float, float]) -> float:
    high, low = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_pair_of_colours_has_contrast_enough(scheme: str) -> None:
    sheet = (STATIC_FOLDER / "onym.css").read_text(encoding="utf-8")
    colours = _colours(
        sheet.split("@media (prefers-color-scheme: dark)")[0 if scheme == "light" else 1].split("@media")[0]
    )
    grounds = ("fill-page", "fill-card", "fill-soft")
    pairs = [(ink, fill) for ink in ("ink-page", "ink-quiet", "ink-link") for fill in grounds]
    pairs += [(f"ink-{tone}", f"fill-{tone}") for tone in ("act", "good", "bad", "warn", "info", "past")]
    pairs += [("ink-bad", "fill-page"), ("ink-bad", "fill-card")]
    assert {f"ink-{tone}" for tone in ("act", "good", "bad", "warn", "info", "past")} <= set(colours)
    for ink, fill in pairs:
        assert contrast(colours[ink], colours[fill]) >= 4.5, (ink, fill)
    for edge in ("line-strong", "focus"):  # WCAG 1.4.11
        assert contrast(colours[edge], colours["fill-card"]) >= 3, edge
        assert contrast(colours[edge], colours["fill-page"]) >= 3, edge


def test_the_sheet_takes_nothing_from_elsewhere() -> None:
    sheet = (STATIC_FOLDER / "onym.css").read_text(encoding="utf-8")
    assert "url(" not in sheet
    assert "@import" not in sheet


def test_htmx_is_the_file_that_its_readme_names() -> None:
    import hashlib

    said = (STATIC_FOLDER / "vendor" / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256((STATIC_FOLDER / "vendor" / "htmx.min.js").read_bytes()).hexdigest() in said


def test_an_entry_that_is_kept_changes_with_the_entry(fresh: Site) -> None:
    here = "/api/v1/registries/uri-schemes/entries/proviso"
    first = fresh.get(here, accept="application/json")
    assert fresh.get(here, accept="application/json").content == first.content
    assert (
        fresh.get(here, {"if-none-match": first.headers["etag"]}, accept="application/json").status_code
        == 304
    )
    fresh.act("eve", EventKind.ATTACH_SECURITY_NOTE, name="proviso", text="a new hole")
    # a write past the service is seen after the next look at the log's head
    fresh.wait(seconds=1)
    second = fresh.get(here, accept="application/json")
    assert second.headers["etag"] != first.headers["etag"]
    assert "a new hole" in second.text
    assert "a new hole" in fresh.get("/r/uri-schemes/proviso").text
    assert fresh.get("/r/uri-schemes/nothing-here", accept="application/json").status_code == 404
