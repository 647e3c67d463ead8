"""The JSON API: what it gives, takes and refuses, and that its OpenAPI document is true."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import jsonschema
import pytest

from onym.registry.records import IANA_CLOCK, Entry, EventKind, Status
from onym.registry.registries import REGISTRIES
from onym.server.registry.api.openapi import OPERATIONS, build_openapi_document
from server.registry.site import TEMPLATE, Site

API = "/api/v1"
JSON = {"content-type": "application/json"}


def get(site: Site, path: str, headers: dict[str, str] | None = None) -> Any:
    return site.get(API + path, headers, accept="application/json")


def post(site: Site, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    return site.world.client.post(API + path, content=content, headers={**JSON, **(headers or {})})


def schema_of(operation: str, status: str) -> dict[str, Any]:
    row = next(row for row in OPERATIONS if row.id == operation)
    answer = build_openapi_document()["paths"][API + row.path][row.method.lower()]["responses"][status]
    media = next(iter(answer["content"]))
    return {**answer["content"][media]["schema"], "components": build_openapi_document()["components"]}


def holds(operation: str, answer: Any) -> Any:
    data = answer.json()
    jsonschema.validate(data, schema_of(operation, str(answer.status_code)))
    return data


READS = (
    ("getEntry", "/registries/uri-schemes/entries/proviso"),
    ("getEntry", "/registries/uri-schemes/entries/hostile%2Bx"),
    ("listEntries", "/registries/uri-schemes/entries"),
    ("listEntries", "/registries/llm-parameters/entries?limit=3"),
    ("searchEntries", "/search?q=http"),
    ("searchEntries", "/search"),
    ("listRegistries", "/registries"),
    ("getRegistry", "/registries/ai-namespaces"),
    ("getEntryHistory", "/registries/uri-schemes/entries/proviso/history"),
    ("listEntryVersions", "/registries/uri-schemes/entries/proviso/versions"),
    ("listEntryActions", "/registries/uri-schemes/entries/proviso/actions"),
    ("listRequests", "/requests"),
    ("listRequests", "/requests?state=draft&registry=uri-schemes&limit=1"),
    ("getRequest", "/requests/uri-schemes-2"),
    ("getRequestHistory", "/requests/uri-schemes-4/history"),
    ("listRequestActions", "/requests/uri-schemes-4/actions"),
    ("getLog", "/log"),
    ("getLog", "/log?after=5&limit=2"),
    ("getHealth", "/health"),
)


@pytest.mark.parametrize(("operation", "path"), READS)
def test_a_read_is_as_its_schema_says_and_is_not_sent_twice(shared: Site, operation: str, path: str) -> None:
    answer = get(shared, path)
    assert answer.status_code == 200, answer.text
    holds(operation, answer)
    tag = answer.headers["etag"]
    again = get(shared, path, {"if-none-match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    head = shared.world.client.head(API + path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.content))


def test_a_list_is_read_whole_by_following_next(shared: Site) -> None:
    found, path = [], API + "/registries/llm-parameters/entries?limit=5"
    while path:
        answer = shared.get(path, accept="application/json")
        found += [entry["name"] for entry in answer.json()["entries"]]
        path = answer.json()["next"]
        assert ("link" in answer.headers) == bool(path)
        if path:
            assert answer.headers["link"] == f'<{path}>; rel="next"'
    assert len(found) == len(set(found)) == 12


def test_versions_are_those_of_the_history(shared: Site) -> None:
    found = get(shared, "/registries/uri-schemes/entries/proviso/versions").json()["versions"]
    assert [version["version"] for version in found] == [1, 2]
    assert found[-1]["entry"] == get(shared, "/registries/uri-schemes/entries/proviso").json()


def test_a_long_history_is_read_in_parts_and_shown_in_parts(
    fresh: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onym.registry.records import EventKind
    from onym.server.registry import dependencies
    from onym.server.registry.page_parts import EVENTS_SHOWN

    monkeypatch.setattr(dependencies, "_RECORDS", 7)
    path, request = "/registries/uri-schemes/entries/proviso", fresh.ids["list"]
    for number in range(EVENTS_SHOWN):
        fresh.act("eve", EventKind.ATTACH_SECURITY_NOTE, name="proviso", text=f"Note {number}.")
        fresh.act("rita", EventKind.REVISE, about=request, fields={"contact": f"Rita {number}"})
    versions = get(fresh, f"{path}/versions").json()["versions"]
    assert [version["version"] for version in versions] == list(range(1, EVENTS_SHOWN + 3))
    for where in (path, f"/requests/{request}"):
        numbers, following = [], f"{API}{where}/history?limit=13"
        while following:
            part = fresh.get(following, accept="application/json").json()
            numbers += [record["number"] for record in part["records"]]
            following = part["next"]
        assert len(numbers) > EVENTS_SHOWN
        assert numbers == sorted(set(numbers))
        page = where.replace(path, "/r/uri-schemes/proviso")
        shown: list[int] = []
        while page:
            text = html.unescape(fresh.get(page).text)
            part = [int(number) for number in re.findall(r"· event ([0-9]+)", text)]
            assert 0 < len(part) <= EVENTS_SHOWN
            shown += part
            earlier = re.search(r'href="([^"#]+)[^"]*">Earlier events', text)
            page = "" if earlier is None else earlier[1]
        assert sorted(shown) == numbers
    assert "Earlier events" in fresh.get("/r/uri-schemes/proviso").text
    assert fresh.get("/r/uri-schemes/proviso/compare?before=1&after=52").status_code == 200


def test_a_request_goes_its_whole_way_by_the_api(fresh: Site) -> None:
    rita, ian = fresh.headers("rita"), fresh.headers("ian")
    body = {"registry": "uri-schemes", "template": TEMPLATE.format(name="wayly", status="Provisional")}
    opened = post(fresh, "/requests", body, rita)
    assert opened.status_code == 201, opened.text
    data = holds("openRequest", opened)
    path = opened.headers["location"].removeprefix(API)
    assert data["fields"]["contact"].startswith("Rita")
    tag = opened.headers["etag"]
    assert get(fresh, path, rita).headers["etag"] == tag
    assert get(fresh, path).status_code == 404, "a draft is its registrant's"
    step = post(fresh, f"{path}/events", {"event": "submit"}, {**rita, "if-match": tag})
    assert step.status_code == 200, step.text
    holds("changeRequest", step)
    stale = post(fresh, f"{path}/events", {"event": "withdraw"}, {**rita, "if-match": tag})
    assert stale.status_code == 412
    assert stale.json()["version"] == 2
    done = post(
        fresh, f"{path}/events", {"event": "check-complete"}, {**ian, "if-match": step.headers["etag"]}
    )
    assert done.status_code == 200, done.text
    assert get(fresh, path).json()["state"] == "approved"
    assert get(fresh, "/registries/uri-schemes/entries/wayly").json()["status"] == "provisional"


def test_an_entry_is_changed_under_its_version_and_read_anew_at_once(fresh: Site) -> None:
    eve, path = fresh.headers("eve"), "/registries/uri-schemes/entries/proviso"
    before = get(fresh, path)
    body = {"event": "attach-security-note", "data": {"text": "Mind the gap."}}
    missing = post(fresh, f"{path}/events", body, eve)
    assert missing.status_code == 428
    done = post(fresh, f"{path}/events", body, {**eve, "if-match": before.headers["etag"]})
    assert done.status_code == 200, done.text
    after = get(fresh, path)
    assert after.headers["etag"] != before.headers["etag"]
    assert after.json()["notes"][-1]["text"] == "Mind the gap."


def test_another_process_is_noticed_after_the_probe_time(fresh: Site) -> None:
    from onym.registry.records import EventKind

    path = "/registries/uri-schemes/entries/proviso"
    before = get(fresh, path)
    fresh.act("eve", EventKind.ATTACH_SECURITY_NOTE, name="proviso", text="From elsewhere.")
    assert get(fresh, path).headers["etag"] == before.headers["etag"]
    fresh.wait(seconds=0.3)
    assert get(fresh, path).headers["etag"] != before.headers["etag"]


REFUSED: tuple[tuple[str, str, Any, dict[str, str], int], ...] = (
    ("GET", "/registries/none/entries", None, {}, 404),
    ("GET", "/registries/uri-schemes/entries/none", None, {}, 404),
    ("GET", "/registries/uri-schemes/entries/..%2f..%2fetc%2fpasswd", None, {}, 404),
    ("GET", "/requests/none", None, {}, 404),
    ("GET", "/registries/uri-schemes/entries?limit=x", None, {}, 400),
    ("GET", "/search?limit=", None, {}, 400),
    ("GET", "/search?q=" + "x" * 201, None, {}, 400),
    ("GET", "/search?registry=none", None, {}, 404),
    ("GET", "/registries/uri-schemes/entries?limit=0", None, {}, 400),
    ("GET", "/registries/uri-schemes/entries?limit=1&limit=2", None, {}, 400),
    ("GET", "/registries/uri-schemes/entries?nonsense=1", None, {}, 400),
    ("GET", "/registries/uri-schemes/entries?after=%00", None, {}, 400),
    ("GET", "/registries/uri-schemes/entries?status=active", None, {}, 404),
    ("GET", "/registries/uri-schemes/export/exe", None, {}, 404),
    ("GET", "/registries/llm-parameters/export/csv-2015", None, {}, 404),
    ("GET", "/registries", None, {"accept": "image/png"}, 406),
    ("DELETE", "/registries", None, {}, 405),
    ("POST", "/check", b"{", {}, 400),
    ("POST", "/check", b'{"nonsense": 1}', {}, 400),
    ("POST", "/check", b'{"template": "\\u0000"}', {}, 400),
    ("POST", "/check", b'{"template": 1}', {}, 400),
    ("POST", "/check", b"{}", {"content-type": "text/plain"}, 415),
    ("POST", "/check", b'{"registry": "none"}', {}, 404),
    ("POST", "/requests", b"{}", {}, 401),
    ("POST", "/requests/uri-schemes-1/events", b"{}", {}, 401),
)


@pytest.mark.parametrize(("method", "path", "body", "headers", "status"), REFUSED)
def test_a_fault_is_told_as_problem_details(
    shared: Site, method: str, path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    given = {**(JSON if body is not None else {}), **headers}
    answer = shared.world.client.request(method, API + path, content=body, headers=given)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    jsonschema.validate(
        answer.json(),
        {"$ref": "#/components/schemas/Problem", "components": build_openapi_document()["components"]},
    )
    if status == 405:
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


def test_options_says_what_an_address_takes(shared: Site) -> None:
    answer = shared.world.client.options(API + "/requests")
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")


def test_a_token_without_the_scope_takes_no_step(fresh: Site) -> None:
    token = fresh.world.token("read", account="user-rita")
    answer = post(fresh, "/requests", {"registry": "uri-schemes", "name": "xx"}, token)
    assert (answer.status_code, answer.json()["code"]) == (403, "accounts.missing-scope")


def test_a_wrong_role_is_refused_with_the_clause(fresh: Site) -> None:
    path = f"/requests/{fresh.ids['expert']}"
    tag = get(fresh, path).headers["etag"]
    answer = post(
        fresh,
        f"{path}/events",
        {"event": "approve", "data": {"reason": "x"}},
        {**fresh.headers("rita"), "if-match": tag},
    )
    assert answer.status_code == 409
    assert answer.json()["clause"].startswith("RFC 7595")


@pytest.mark.parametrize("form", ["xml", "csv", "csv-2022", "text", "json"])
def test_a_registry_is_exported_and_read_back(shared: Site, form: str) -> None:
    from onym.registry.iana import read_snapshot

    answer = shared.get(f"{API}/registries/uri-schemes/export/{form}", accept="*/*")
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    if form != "text":
        names = {entry.name for entry in read_snapshot(answer.content, registry="uri-schemes").entries}
        assert {"http", "proviso"} <= names


def test_a_spreadsheet_runs_nothing_of_an_export(shared: Site) -> None:
    import csv
    import io

    text = shared.get(f"{API}/registries/uri-schemes/export/csv", accept="*/*").text
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "\t", "\r", "+"))]


def test_the_feed_is_well_formed_and_newest_first(shared: Site) -> None:
    from xml.etree import ElementTree as ET

    answer = shared.get("/r/uri-schemes/changes.atom", accept="application/atom+xml")
    assert answer.headers["content-type"].startswith("application/atom+xml")
    name = "{http://www.w3.org/2005/Atom}"
    times = [element.text for element in ET.fromstring(answer.content).iterfind(f"{name}entry/{name}updated")]
    assert len(times) > 5
    assert times == sorted(times, reverse=True)
    tag = answer.headers["etag"]
    assert shared.get("/r/uri-schemes/changes.atom", {"if-none-match": tag}, accept="*/*").status_code == 304


def test_the_openapi_document_holds_every_operation_once(shared: Site) -> None:
    answer = shared.get("/openapi.json", accept="application/json")
    found = answer.json()
    assert found["openapi"] == "3.1.0"
    names = [row["operationId"] for path in found["paths"].values() for row in path.values()]
    assert sorted(names) == sorted(operation.id for operation in OPERATIONS)
    for schema in found["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_draft_is_checked_and_the_report_is_as_its_schema_says(shared: Site) -> None:
    answer = post(shared, "/check", {"template": TEMPLATE.format(name="checky", status="Provisional")})
    assert answer.status_code == 200, answer.text
    data = holds("check", answer)
    assert data["profile"] == "rfc7595"
    bad = post(shared, "/check", {"registry": "llm-parameters", "fields": {"name": "x y"}})
    assert not holds("check", bad)["ok"]
    unknown = post(shared, "/check", {"profile": "expert-review"})
    assert unknown.status_code == 404


def test_a_grammar_in_the_syntax_field_is_read_in_the_form_of_the_api_and_in_the_text(shared: Site) -> None:
    grammar = 'kite-URI = "kite:" 1*( ALPHA / "[" )'
    text = f"Scheme name: kite\nStatus: Provisional\nScheme syntax: {grammar}\nContact: A <a@example.org>\n"
    bodies = (
        {"fields": {"name": "kite", "syntax": grammar}},
        {"template": text},
        {"template": text.replace('"["', '"]"'), "fields": {"syntax": grammar}},
    )
    for body in bodies:
        data = holds("check", post(shared, "/check", body))
        found = [each for each in data["findings"] if each["code"] == "not-a-uri"]
        assert [(each["witness"], each["field"]) for each in found] == [("kite:[", "syntax")], body


def test_an_update_is_opened_by_the_api_and_keeps_the_status(fresh: Site) -> None:
    body = {
        "registry": "uri-schemes",
        "kind": "update",
        "name": "proviso",
        "fields": {"contact": "New <n@example.org>"},
    }
    answer = post(fresh, "/requests", body, fresh.headers("rita"))
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "provisional"
    named = {**body, "status": "provisional", "on_behalf_of": "Somebody"}
    assert post(fresh, "/requests", named, fresh.headers("rita")).json()["on_behalf_of"] == "Somebody"


@pytest.mark.parametrize("written", ["Permanant", ""])
def test_a_new_request_by_the_api_names_its_status_or_is_refused(fresh: Site, written: str) -> None:
    body = {"registry": "uri-schemes", "template": TEMPLATE.format(name="wayly", status=written)}
    answer = post(fresh, "/requests", body, fresh.headers("rita"))
    assert (answer.status_code, answer.json()["code"]) == (409, "registry.bad-status")
    named = post(fresh, "/requests", {**body, "status": "permanent"}, fresh.headers("rita"))
    assert named.json()["status"] == "permanent"


def test_a_body_that_nests_too_deep_is_refused(fresh: Site) -> None:
    path = f"/requests/{fresh.ids['draft']}"
    rita = fresh.headers("rita")
    rita |= {"if-match": get(fresh, path, rita).headers["etag"]}
    for data in ({"reason": "a\u0007"}, {"x": json.loads("[" * 40 + "]" * 40)}):
        answer = post(fresh, f"{path}/events", {"event": "withdraw", "data": data}, rita)
        assert (answer.status_code, answer.json()["code"]) == (422, "registry.bad-data")


ENTRY = "/registries/uri-schemes/entries/proviso"
REMOVE = {"event": "override", "data": {"remove": True, "reason": "oops"}}


def test_the_tag_of_an_entry_that_was_removed_never_comes_back(fresh: Site) -> None:
    ian = fresh.headers("ian")
    old = get(fresh, ENTRY).headers["etag"]
    assert post(fresh, f"{ENTRY}/events", REMOVE, {**ian, "if-match": old}).status_code == 200
    again = fresh.open("again", "proviso", fields={"contact": "Bob <bob@example.net>"})
    fresh.act("rita", EventKind.SUBMIT, about=again)
    fresh.act("ian", EventKind.CHECK_COMPLETE, about=again)
    fresh.wait(seconds=1)
    found = get(fresh, ENTRY, {"if-none-match": old})
    assert (found.status_code, found.json()["fields"]["contact"]) == (200, "Bob <bob@example.net>")
    stale = post(fresh, f"{ENTRY}/events", REMOVE, {**ian, "if-match": old})
    assert stale.status_code == 412
    versions = get(fresh, f"{ENTRY}/versions").json()["versions"]
    assert [version["version"] for version in versions] == [1, 2, 3]


def test_a_removal_is_undone_by_its_record(fresh: Site) -> None:
    ian, rita = fresh.headers("ian"), fresh.headers("rita")
    before = get(fresh, ENTRY)
    done = post(fresh, f"{ENTRY}/events", REMOVE, {**ian, "if-match": before.headers["etag"]})
    undo = {"event": "override", "data": {"undoes": done.json()["number"], "reason": "it is used"}}
    assert "change" in get(fresh, ENTRY).json()["hint"]
    assert post(fresh, f"{ENTRY}/events", undo, ian).status_code == 428
    assert post(fresh, f"{ENTRY}/events", undo, {**ian, "if-match": "*"}).status_code == 412
    absent = {"if-none-match": "*"}
    assert post(fresh, f"{ENTRY}/events", undo, {**rita, **absent}).status_code in (403, 409)
    other = {"event": "retire", "data": {"reason": "x"}}
    assert post(fresh, f"{ENTRY}/events", other, {**ian, **absent}).status_code == 404
    never = ENTRY.replace("proviso", "never-was")
    assert post(fresh, f"{never}/events", undo, {**ian, **absent}).status_code == 409
    back = post(fresh, f"{ENTRY}/events", undo, {**ian, **absent})
    assert back.status_code == 200, back.text
    after = get(fresh, ENTRY)
    assert after.headers["etag"] == back.headers["etag"] != before.headers["etag"]
    assert after.json()["fields"] == before.json()["fields"]


def test_the_feed_keeps_its_changes_whatever_else_happens(fresh: Site) -> None:
    def feed() -> str:
        return str(fresh.get("/r/uri-schemes/changes.atom", accept="*/*").text)

    before = feed()
    assert "proviso: added" in before
    rows = [
        Entry(registry="llm-parameters", name=f"p{number}", status=Status.REGISTERED) for number in range(600)
    ]
    fresh.wait(days=1)
    store = fresh.world.store
    fresh.world.do(
        store.import_entries, "llm-parameters", rows, IANA_CLOCK, fresh.world.clock.now(), source="x"
    )
    for number in range(30):
        fresh.act("rita", EventKind.DESIGNATE, name="proviso", add=[f"u{number}"])
        fresh.act("rita", EventKind.REVISE, about=fresh.ids["list"], template="y" * 400_000)
    assert feed() == before
    fresh.act("ian", EventKind.OVERRIDE, name="proviso", remove=True, reason="oops")
    assert re.findall("<title>(.*)</title>", feed())[1] == "proviso: removed"


def test_a_token_is_told_which_scope_the_step_takes(fresh: Site) -> None:
    path = f"/requests/{fresh.ids['expert']}"
    tag = get(fresh, path).headers["etag"]
    body = {"event": "approve", "data": {"reason": "x"}}
    for scopes in (("read",), ("read", "iana")):
        token = fresh.world.token(*scopes, account="user-eve")
        answer = post(fresh, f"{path}/events", body, {**token, "if-match": tag})
        assert answer.json()["code"] == "accounts.missing-scope"
        assert "'review'" in answer.text
        assert "iana" not in answer.json()["detail"]
    token = fresh.world.token("read", "review", account="user-eve")
    assert post(fresh, f"{path}/events", body, {**token, "if-match": tag}).status_code == 200


@pytest.mark.parametrize(("to", "status"), [("nobody-at-all", 404), ("ian", 200), ("user-ian", 200)])
def test_an_entry_is_reassigned_to_accounts_alone(fresh: Site, to: str, status: int) -> None:
    tag = get(fresh, ENTRY).headers["etag"]
    body = {"event": "reassign", "data": {"to": to, "reason": "gone"}}
    answer = post(fresh, f"{ENTRY}/events", body, {**fresh.headers("ingo"), "if-match": tag})
    assert answer.status_code == status, answer.text
    assert get(fresh, ENTRY).json()["registrant"] == ("user-ian" if status == 200 else "user-rita")


def test_the_document_says_that_an_override_of_a_removed_name_has_no_version_to_match() -> None:
    def headers(path: str) -> dict[str, bool]:
        parameters = build_openapi_document()["paths"][path]["post"]["parameters"]
        return {
            parameter["name"]: parameter["required"]
            for parameter in parameters
            if parameter["in"] == "header"
        }

    api = "/api/v1"
    assert headers(f"{api}/registries/{{registry}}/entries/{{name}}/events") == {
        "If-Match": False,
        "If-None-Match": False,
    }
    assert headers(f"{api}/requests/{{id}}/events") == {"If-Match": True}


def test_the_feed_of_all_registries_has_the_entries_of_each_feed(shared: Site) -> None:
    from xml.etree import ElementTree as ET

    name = "{http://www.w3.org/2005/Atom}"

    def read_ids(path: str) -> tuple[str, list[str], list[str]]:
        answer = shared.get(path, accept="application/atom+xml")
        assert answer.headers["content-type"].startswith("application/atom+xml")
        root = ET.fromstring(answer.content)
        entries = root.findall(f"{name}entry")
        times = [entry.findtext(f"{name}updated", "") for entry in entries]
        assert times == sorted(times, reverse=True)
        return (
            root.findtext(f"{name}id", ""),
            [entry.findtext(f"{name}id", "") for entry in entries],
            [entry.findtext(f"{name}title", "") for entry in entries],
        )

    own, ids, titles = read_ids("/changes.atom")
    feeds = [read_ids(f"/r/{registry}/changes.atom") for registry in REGISTRIES]
    assert len({own, *(feed[0] for feed in feeds)}) == len(REGISTRIES) + 1
    assert set(ids) <= {identifier for feed in feeds for identifier in feed[1]}
    # namespaces and parameters change less often than schemes, and still are in it
    assert any(title.endswith("(ai-namespaces)") for title in titles)
    assert any(title.endswith("(uri-schemes)") for title in titles)
