"""Rows through a provider's own batch API: what is sent, what is read, what becomes of what goes wrong."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from functools import partial

import pytest

from batch_api_server import KEY, MODEL, AnthropicServer, OpenAIServer
from batch_support import read_results, write_rows
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailed,
    MalformedResponseError,
    NotFoundError,
    OnymError,
    OnymWarning,
    PermissionDeniedError,
    PolicyError,
    ResolveError,
    ServerError,
    UnsupportedError,
    UsageError,
)
from onym.llm import batch as driver_module
from onym.llm.batch import _storage as storage_module
from onym.llm.batch import arun, run
from onym.llm.batch._provider import ProviderEngine
from onym.llm.batch._storage import JournalWriter, SubmissionLog
from onym.llm.client import connect
from onym.llm.config import Config
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider

CAPTURED = {"aliases": (), "hosts": ("127.0.0.1",), "host_suffixes": ()}


def table(server, **changes):
    """The built-in rows, and one that leads to this server."""
    name = "anthropic" if isinstance(server, AnthropicServer) else "openai"
    row = ProviderTable.builtin().get(name)
    row = replace(row, name="capture", default_port=server.port, **{**CAPTURED, **changes})
    return ProviderTable.builtin().register(row)


def options_of(server, query="", **changes):
    uri = f"llm://:{KEY}@127.0.0.1:{server.port}/{MODEL}" + (f"?{query}" if query else "")
    given = {
        "policy": Policy.local(),
        "config": Config(),
        "providers": table(server, **changes),
        "environ": {},
    }
    return uri, given


def go(server, folder, query="", *, row=(), **options):
    uri, given = options_of(server, query, **dict(row))
    given = {"engine": "provider", **given, **options}
    if given["engine"] == "provider":
        given.setdefault("poll", 0.0)
    return run(uri, folder / "in.jsonl", folder / "out.jsonl", **given)


@pytest.fixture
def openai():
    with OpenAIServer() as server:
        yield server


@pytest.fixture
def anthropic():
    with AnthropicServer() as server:
        yield server


@pytest.fixture(params=[OpenAIServer, AnthropicServer])
def server(request):
    with request.param() as found:
        yield found


@pytest.fixture
def rows(tmp_path):
    return write_rows(tmp_path / "in.jsonl", 5)


@pytest.fixture
def small(monkeypatch):
    """Batches of two or three of these rows."""
    monkeypatch.setitem(ProviderEngine.__init__.__kwdefaults__, "room", 400)


@pytest.fixture
def hurried(monkeypatch):
    """Attempts follow one another without a pause."""

    async def rest(self, seconds):
        await asyncio.sleep(0)

    monkeypatch.setattr(ProviderEngine, "_wait_or_stop", rest)


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def errors(folder):
    return {row["id"]: row["error"] for row in read_results(folder / "out.jsonl") if row["status"] == "error"}


def sent(server):
    """The bodies of all requests of all batches, in order."""
    name = "params" if isinstance(server, AnthropicServer) else "body"
    return [row[name] for batch in server.batches.values() for row in batch["rows"]]


@pytest.mark.parametrize("order", ["input", "completion"])
def test_every_row_is_asked_once_and_has_its_result(server, rows, tmp_path, order):
    report = go(server, tmp_path, order=order)
    results = read_results(tmp_path / "out.jsonl")
    assert {row["id"]: row["text"] for row in results} == {f"row-{at}": f"ASK {at}" for at in range(5)}
    if order == "input":
        assert [row["index"] for row in results] == list(range(5))
    assert (report.rows, report.answered, report.failed, report.left) == (5, 5, 0, 0)
    assert (report.input_tokens, report.output_tokens) == (15, 10)
    assert set(server.asked.values()) == {1}
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl", "out.jsonl.batch"}


@pytest.mark.parametrize("query", ["temp=0.2&max_tokens=9", "api=responses&max_tokens=99"])
def test_bodies_are_those_of_single_calls(openai, rows, tmp_path, query):
    go(openai, tmp_path, query)
    uri, given = options_of(openai, query)
    with connect(uri, **given) as client:
        expected = [json.loads(json.dumps(client.explain(f"ask {at}").body)) for at in range(5)]
    assert sent(openai) == expected
    url = "/v1/responses" if "responses" in query else "/v1/chat/completions"
    batch = next(iter(openai.batches.values()))
    assert batch["given"]["endpoint"] == url
    assert {row["url"] for row in batch["rows"]} == {url}
    assert [row["text"] for row in read_results(tmp_path / "out.jsonl")] == [f"ASK {at}" for at in range(5)]


def test_messages_are_not_streamed_whatever_the_uri_says(anthropic, rows, tmp_path):
    go(anthropic, tmp_path, "stream=true")
    assert all("stream" not in body or body["stream"] is False for body in sent(anthropic))
    assert all(body["max_tokens"] == 4096 and body["model"] == MODEL for body in sent(anthropic))


def test_a_result_is_of_the_shape_that_the_local_engine_writes(openai, tmp_path):
    write(tmp_path / "in.jsonl", {"prompt": "a"})
    go(openai, tmp_path)
    (ours,) = read_results(tmp_path / "out.jsonl")
    with FakeProvider() as fake:
        run(fake.uri(), tmp_path / "in.jsonl", tmp_path / "local", policy=Policy.local(), config=Config())
    (local,) = read_results(tmp_path / "local")
    assert list(ours) == list(local)
    assert list(ours["usage"]) == list(local["usage"])
    assert ours["request_id"] == "req_0"


def test_names_fit_both_apis_and_differ_from_batch_to_batch(server, rows, tmp_path, small):
    go(server, tmp_path)
    names = [row["custom_id"] for batch in server.batches.values() for row in batch["rows"]]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert len({name.partition("-")[0] for name in names}) == len(server.batches) > 1


def test_what_does_not_fit_into_one_batch_goes_into_several(server, rows, tmp_path, small):
    report = go(server, tmp_path)
    assert report.answered == 5
    sizes = [len(batch["rows"]) for batch in server.batches.values()]
    assert sum(sizes) == 5
    assert max(sizes) in {2, 3}
    assert set(server.asked.values()) == {1}


def test_the_most_requests_of_a_batch_are_kept(openai, rows, tmp_path, monkeypatch):
    from onym.llm.dialects.batch_api import OpenAIBatches

    monkeypatch.setattr(OpenAIBatches, "most", 2)
    go(openai, tmp_path)
    assert [len(batch["rows"]) for batch in openai.batches.values()] == [2, 2, 1]


def test_rows_that_cannot_be_asked_are_results_and_in_no_batch(openai, tmp_path):
    write(tmp_path / "in.jsonl", {"prompt": "a"}, {"prompt": 1}, {"prompt": "b", "params": {"temp": 9}})
    report = go(openai, tmp_path)
    assert (report.answered, report.failed) == (1, 2)
    assert errors(tmp_path)["1"]["code"] == "usage.bad-row"
    assert errors(tmp_path)["2"]["parameter"] == "temp"
    assert len(sent(openai)) == 1


def test_where_no_row_can_be_asked_nothing_is_sent(openai, tmp_path):
    write(tmp_path / "in.jsonl", {"prompt": 1})
    assert go(openai, tmp_path).failed == 1
    assert openai.requests == []


def test_a_failed_row_has_its_own_error_and_is_asked_again_on_demand(openai, rows, tmp_path):
    refusal = {"error": {"type": "invalid_request_error", "param": "temperature", "message": f"bad {KEY}"}}
    openai.outcome = lambda prompt: (
        {"response": {"status_code": 400, "request_id": "r", "body": refusal}} if prompt == "ask 2" else None
    )
    report = go(openai, tmp_path)
    assert (report.answered, report.failed) == (4, 1)
    error = errors(tmp_path)["row-2"]
    assert (error["code"], error["status"], error["parameter"], error["request_id"]) == (
        "provider.bad-request", 400, "temperature", "r",
    )  # fmt: skip
    assert KEY not in (tmp_path / "out.jsonl").read_text()
    openai.outcome = lambda prompt: None
    report = go(openai, tmp_path, retry_errors=True)
    assert (report.answered, report.failed) == (5, 0)
    assert [len(batch["rows"]) for batch in openai.batches.values()] == [5, 1]
    assert set(openai.asked.values()) == {1}


def test_anthropics_row_errors_are_those_of_single_calls(anthropic, rows, tmp_path):
    outcomes = {
        "ask 0": {"type": "errored", "error": {"type": "error", "request_id": "req_9",
                  "error": {"type": "rate_limit_error", "message": "slow"}}},
        "ask 1": {"type": "expired"},
        "ask 2": {"type": "canceled"},
        "ask 3": {"type": "errored", "error": 7},
        "ask 4": {"type": "new"},
    }  # fmt: skip
    anthropic.outcome = outcomes.get
    assert go(anthropic, tmp_path).failed == 5
    found = errors(tmp_path)
    assert [found[f"row-{at}"]["code"] for at in range(5)] == [
        "provider.rate-limit", "provider.batch-expired", "provider.batch-cancelled", "provider.server",
        "provider.malformed",
    ]  # fmt: skip
    assert found["row-0"]["request_id"] == "req_9"


def test_rows_of_an_expired_batch_are_errors_that_can_be_asked_again(openai, rows, tmp_path):
    openai.end = "expired"
    report = go(openai, tmp_path)
    assert (report.answered, report.failed) == (3, 2)
    assert {error["code"] for error in errors(tmp_path).values()} == {"provider.batch-expired"}
    assert all(
        row["attempts"] == 0 for row in read_results(tmp_path / "out.jsonl") if row["status"] == "error"
    )
    openai.end = "completed"
    assert go(openai, tmp_path, retry_errors=True).answered == 5
    assert set(openai.asked.values()) == {1}


def test_a_batch_that_the_provider_refuses_says_so_at_its_rows(openai, rows, tmp_path):
    openai.end = "failed"
    openai.errors = {"object": "list", "data": [
        {"code": "invalid_json_line", "line": 2, "message": "this line", "param": None},
        {"code": "model_not_found", "message": f"no model, says {KEY}", "line": None},
        "noise",
    ]}  # fmt: skip
    assert go(openai, tmp_path).failed == 5
    found = errors(tmp_path)
    assert found["row-1"]["provider_code"] == "invalid_json_line"
    assert "this line" in found["row-1"]["message"]
    assert found["row-0"]["code"] == "provider.not-found"
    assert KEY not in (tmp_path / "out.jsonl").read_text()
    openai.errors, openai.end = None, "completed"
    assert go(openai, tmp_path, retry_errors=True).answered == 5


def test_a_failed_batch_without_a_reason_is_an_error_of_its_rows(openai, rows, tmp_path):
    openai.end = "failed"
    go(openai, tmp_path)
    assert {error["code"] for error in errors(tmp_path).values()} == {"provider.batch-failed"}


# results that cannot be right


def cut(data):
    return 200, "application/json", data[:-30]


def html(data):
    return 200, "text/html", b"<html>sign in</html>"


def nothing(data):
    return 200, "application/json", b""


def swapped(data):
    """Every answer under the name of a row of another batch, of no row, or twice."""
    lines = [json.loads(line) for line in data.splitlines()]
    noise = [{**lines[0], "custom_id": name} for name in ("0", "x-0", "0123456789abcdef-0", "")]
    token = lines[0]["custom_id"].partition("-")[0]
    noise += [{**lines[0], "custom_id": f"{token}-{at}"} for at in ("99", "00", "-1", "1e1", "9" * 30)]
    return (
        200,
        "application/json",
        b"".join(json.dumps(item).encode() + b"\n" for item in noise + lines + lines),
    )


@pytest.mark.parametrize("spoilt", [cut, html, nothing])
def test_damaged_results_are_fetched_again(server, rows, tmp_path, hurried, spoilt):
    server.spoil["results"] = [spoilt, spoilt]
    assert go(server, tmp_path).answered == 5
    assert server.steps().count("results") == 3
    assert set(server.asked.values()) == {1}


@pytest.mark.parametrize("spoilt", [cut, html])
def test_results_that_stay_damaged_stop_the_run_and_nothing_is_lost(server, rows, tmp_path, hurried, spoilt):
    server.spoil["results"] = [spoilt] * 3
    with pytest.raises(MalformedResponseError) as caught:
        go(server, tmp_path)
    assert "saved" in caught.value.hint
    report = go(server, tmp_path)
    assert report.answered == 5
    assert report.before == (4 if spoilt is cut else 0)
    assert len(server.batches) == 1
    assert set(server.asked.values()) == {1}


def test_cancelling_gives_up_rows_whose_results_stay_damaged(server, rows, tmp_path, hurried):
    server.spoil["results"] = [html] * 6
    with pytest.raises(MalformedResponseError):
        go(server, tmp_path)
    report = go(server, tmp_path, cancel=True)
    assert (report.failed, report.left) == (5, 0)
    assert not (tmp_path / "out.jsonl.provider").exists()


def test_rows_without_a_result_in_sound_results_are_errors_after_some_fetches(
    server, rows, tmp_path, hurried
):
    server.spoil["results"] = [nothing] * 3
    assert go(server, tmp_path).failed == 5
    assert {error["code"] for error in errors(tmp_path).values()} == {"provider.malformed"}


def test_unknown_and_doubled_names_are_passed_over(server, rows, tmp_path, small):
    server.spoil["results"] = [swapped] * 9
    assert go(server, tmp_path).answered == 5
    results = read_results(tmp_path / "out.jsonl")
    assert [row["text"] for row in results] == [f"ASK {at}" for at in range(5)]


def test_lines_of_another_shape_are_errors_of_their_rows(openai, rows, tmp_path):
    odd = [{"response": 7}, {"response": {"status_code": "x", "body": {}}}, {"error": "x"}, {},
           {"response": {"status_code": 200, "body": {"choices": []}}}]  # fmt: skip
    openai.outcome = lambda prompt: odd[int(prompt[-1])]
    assert go(openai, tmp_path).failed == 5
    assert {error["code"] for error in errors(tmp_path).values()} == {"provider.malformed", "provider.error"}


def test_the_address_in_results_url_is_not_followed(anthropic, rows, tmp_path):
    with FakeProvider() as elsewhere:
        anthropic.elsewhere = f"http://127.0.0.1:{elsewhere.port}"
        assert go(anthropic, tmp_path).answered == 5
        assert elsewhere.requests == []


def test_a_connection_that_breaks_in_the_results_is_made_again(server, rows, tmp_path, hurried):
    server.hold("results", "half")
    server.release()
    assert go(server, tmp_path).answered == 5
    assert server.steps().count("results") == 2


def test_results_that_cannot_be_had_stop_the_run_and_are_given_up_on_demand(server, rows, tmp_path, hurried):
    server.refuse["results"] = [404] * 6
    with pytest.raises(NotFoundError):
        go(server, tmp_path)
    assert go(server, tmp_path, cancel=True).failed == 5


# looking at batches


@pytest.mark.parametrize("spoilt", [cut, html, nothing])
def test_news_that_cannot_be_read_are_asked_for_again(server, rows, tmp_path, hurried, spoilt):
    server.spoil["look"] = [spoilt] * 4
    assert go(server, tmp_path).answered == 5


def other(data):
    return 200, "application/json", json.dumps({**json.loads(data), "id": "another"}).encode()


@pytest.mark.parametrize("spoilt", [html, other])
def test_a_batch_without_news_for_long_stops_the_run_and_is_kept(server, rows, tmp_path, hurried, spoilt):
    server.spoil["look"] = [spoilt] * 11
    with pytest.raises(MalformedResponseError):
        go(server, tmp_path)
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1


def test_a_batch_that_is_gone_stops_the_run_and_cancelling_gives_its_rows_up(server, rows, tmp_path):
    server.refuse["look"] = [401]
    with pytest.raises(AuthenticationError):
        go(server, tmp_path)
    kept = dict(server.batches)
    server.batches.clear()
    with pytest.raises(NotFoundError, match=rf"{next(iter(kept))}\b.*--cancel"):
        go(server, tmp_path)
    report = go(server, tmp_path, cancel=True)
    assert (report.failed, report.left) == (5, 0)
    assert {error["code"] for error in errors(tmp_path).values()} == {"provider.batch-gone"}
    server.batches.update(kept)


# creating batches


@pytest.mark.parametrize("spoilt", [html, lambda data: (500, "application/json", b"{}"), other])
def test_a_batch_whose_creation_ended_in_the_dark_is_not_created_again(
    server, rows, tmp_path, hurried, spoilt
):
    if spoilt is other:
        spoilt = lambda data: (200, "application/json", b'{"id": "../files"}')  # noqa: E731
    server.spoil["create"] = [spoilt]
    report = go(server, tmp_path)
    assert report.answered == 5
    assert len(server.batches) == 1
    assert "list" in server.steps()


def test_a_batch_that_was_not_created_is_created_once(server, rows, tmp_path, hurried):
    server.refuse["create"] = [500, 529, 429, 408]
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1
    # after the 429 nothing is looked for: it was surely refused
    assert server.steps().count("list") == 3


def test_a_refused_creation_stops_the_run_and_its_rows_are_asked_by_the_next(server, rows, tmp_path):
    server.refuse["create"] = [400]
    with pytest.raises(BadRequestError) as caught:
        go(server, tmp_path)
    assert KEY not in str(caught.value)
    assert not (tmp_path / "out.jsonl.provider").exists()
    assert go(server, tmp_path).answered == 5
    assert "list" not in server.steps()


def test_a_creation_in_the_dark_is_looked_for_by_the_next_run(server, rows, tmp_path):
    server.spoil["create"] = [html]
    with pytest.raises(MalformedResponseError):
        go(server, tmp_path, overrides={"retries": 0})
    assert (tmp_path / "out.jsonl.provider").exists()
    assert go(server, tmp_path, overrides={"retries": 0}).answered == 5
    assert len(server.batches) == 1


def test_another_batch_of_as_many_requests_that_goes_on_is_waited_for_and_left_alone(
    anthropic, rows, tmp_path, hurried
):
    anthropic.states = ["in_progress"] * 3
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    write_rows(other_folder / "in.jsonl", 5)
    anthropic.refuse["look"] = [401]
    with pytest.raises(AuthenticationError):
        go(anthropic, other_folder)
    anthropic.refuse["create"] = [500]
    # it may be ours: nothing is created before it has ended
    report = go(anthropic, tmp_path)
    assert (report.answered, report.left) == (0, 5)
    assert len(anthropic.batches) == 1
    assert go(anthropic, tmp_path).answered == 5
    assert len(anthropic.batches) == 2


def test_the_list_is_read_page_by_page(openai, rows, tmp_path, hurried):
    openai.page = 1
    openai.states = []
    for name in ("a", "b", "c"):
        folder = tmp_path / name
        folder.mkdir()
        write_rows(folder / "in.jsonl", 5)
        go(openai, folder)
    openai.spoil["create"] = [html]
    assert go(openai, tmp_path).answered == 5
    openai.refuse["create"] = [500]
    assert go(openai, tmp_path, restart=True).answered == 5
    assert openai.steps().count("list") == 1 + 4
    assert len(openai.batches) == 5


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b'{"data": [7]}', b'{"data": {}}', b'{"data": [{"id": 1}]}']
)
def test_where_the_list_cannot_be_read_nothing_is_created(server, rows, tmp_path, hurried, body):
    server.spoil = {"create": [html], "list": [lambda data: (200, "application/json", body)]}
    with pytest.raises(MalformedResponseError):
        go(server, tmp_path)
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 429])
def test_a_search_that_is_refused_after_a_creation_in_the_dark_is_no_refused_creation(
    server, rows, tmp_path, hurried, status
):
    server.spoil["create"] = [html]
    server.refuse["list"] = [status] * 6
    with pytest.raises(OnymError):
        go(server, tmp_path)
    # the batch is there and will be paid: the next run has to find it
    assert (tmp_path / "out.jsonl.provider").exists()
    server.refuse.clear()
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1


def test_a_name_that_cannot_be_looked_up_after_a_creation_in_the_dark_loses_no_batch(
    server, rows, tmp_path, hurried, monkeypatch
):
    def search(self, chunk):
        raise ResolveError("the network is down")
        yield

    server.spoil["create"] = [html]
    with monkeypatch.context() as patch:
        patch.setattr(ProviderEngine, "_search_batch", search)
        with pytest.raises(ResolveError):
            go(server, tmp_path)
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1


def test_a_creation_that_is_refused_after_one_in_the_dark_is_looked_for_again(
    server, rows, tmp_path, hurried
):
    server.refuse["create"] = [500, 400]
    with pytest.raises(BadRequestError):
        go(server, tmp_path)
    assert (tmp_path / "out.jsonl.provider").exists()
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1


def test_a_list_that_never_ends_is_given_up(openai, rows, tmp_path, hurried, monkeypatch):
    from onym.llm.batch import _provider_flow

    monkeypatch.setattr(_provider_flow, "_MAX_PAGES", 3)
    endless = json.dumps({"data": [{"id": "b"}], "has_more": True}).encode()
    openai.spoil = {"create": [html], "list": [lambda data: (200, "application/json", endless)] * 3}
    with pytest.raises(MalformedResponseError) as caught:
        go(openai, tmp_path)
    assert caught.value.code == "provider.malformed"
    assert openai.steps().count("list") == 3


@pytest.mark.parametrize("answer", [b'{"id": 7}', b"[]", b'{"id": "a/b"}', b'{"id": ".."}'])
def test_an_upload_without_an_identifier_stops_the_run(openai, rows, tmp_path, answer):
    openai.spoil["upload"] = [lambda data: (200, "application/json", answer)]
    with pytest.raises(MalformedResponseError):
        go(openai, tmp_path)
    assert openai.batches == {}
    assert go(openai, tmp_path).answered == 5


def test_a_server_that_stays_down_stops_the_run(server, rows, tmp_path, hurried):
    step = "upload" if isinstance(server, OpenAIServer) else "create"
    server.refuse[step] = [500] * 6
    with pytest.raises(ServerError):
        go(server, tmp_path)
    assert go(server, tmp_path).answered == 5


def test_where_nobody_listens_nothing_is_lost(rows, tmp_path, hurried):
    with AnthropicServer() as server:
        given = options_of(server)
    with pytest.raises(ConnectionFailed):
        run(given[0], tmp_path / "in.jsonl", tmp_path / "out.jsonl", engine="provider", poll=0.0, **given[1])
    # nothing can have got there: there is nothing that the next run has to look for
    assert not (tmp_path / "out.jsonl.provider").exists()


# endpoints without a batch API


def refuse_no_batch(caught):
    assert caught.value.code == "llm.no-batch"
    assert "--provider-batch" in caught.value.hint


@pytest.mark.parametrize("uri", ["llm://embedded/x", "llm://localhost/m?api=ollama",
                                 "llm://:k@x.openai.azure.com/m?api-version=2024-10-21"])  # fmt: skip
def test_an_endpoint_that_is_known_to_have_no_batch_api_is_refused_before_anything_is_written(
    rows, tmp_path, uri
):
    with pytest.raises(UnsupportedError) as caught:
        run(uri, tmp_path / "in.jsonl", tmp_path / "out", engine="provider", config=Config(), environ={})
    refuse_no_batch(caught)
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl"}


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_that_has_nothing_there_has_no_batch_api(server, rows, tmp_path, hurried, status):
    step = "upload" if isinstance(server, OpenAIServer) else "create"
    server.refuse[step] = [status] * 9
    with pytest.raises(UnsupportedError) as caught:
        go(server, tmp_path)
    assert caught.value.code == "llm.no-batch"
    assert caught.value.hint.startswith("Remove --provider-batch")


# going on, cancelling, and what other engines may not do


def broken_off(server, folder, **options):
    """A run that ends with its batches at the provider."""
    server.refuse["look"] = [401]
    with pytest.raises(AuthenticationError):
        go(server, folder, **options)


def test_a_later_run_fetches_what_is_there_and_creates_the_rest(server, rows, tmp_path, small):
    step = "upload" if isinstance(server, OpenAIServer) else "create"
    # the second batch is refused for good
    server.spoil[step] = [lambda data: (200, "application/json", data),
                          lambda data: (403, "application/json", b"{}")]  # fmt: skip
    with pytest.raises(PermissionDeniedError):
        go(server, tmp_path)
    first = list(server.batches)[:1]
    if isinstance(server, AnthropicServer):
        # it was created all the same, by a server that lies: that is not seen, and paid twice
        del server.batches[list(server.batches)[1]]
    assert go(server, tmp_path).answered == 5
    assert list(server.batches)[:1] == first
    assert set(server.asked.values()) == {1}


@pytest.mark.parametrize(
    "options", [{"engine": "local"}, {"restart": True}, {"engine": "local", "restart": True}]
)
def test_rows_at_the_provider_are_not_asked_by_others_or_forgotten(server, rows, tmp_path, options):
    broken_off(server, tmp_path)
    with pytest.raises(UsageError) as caught:
        go(server, tmp_path, **options)
    assert caught.value.code == "usage.batch-at-provider"
    assert caught.value.code == "usage.batch-at-provider"
    assert caught.value.message.startswith("5 ")
    assert "--cancel" in caught.value.hint
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1


def test_a_finished_output_can_be_thrown_away(server, rows, tmp_path):
    go(server, tmp_path)
    assert go(server, tmp_path, restart=True).answered == 5
    assert len(server.batches) == 2


def test_cancelling_takes_what_there_is_and_sends_nothing_new(server, rows, tmp_path, small):
    server.states = ["in_progress"] * 50
    broken_off(server, tmp_path)
    count = len(server.batches)
    report = go(server, tmp_path, cancel=True)
    assert report.left == 0
    assert report.answered + report.failed == 5
    assert server.steps().count("cancel") == count == len(server.batches)
    assert {error["code"] for error in errors(tmp_path).values()} == {"provider.batch-cancelled"}


def test_cancelling_leaves_rows_that_were_at_no_provider(server, rows, tmp_path):
    report = go(server, tmp_path, cancel=True)
    assert (report.left, report.stopped) == (5, "cancelled")
    assert server.requests == []
    assert go(server, tmp_path).answered == 5


def test_a_batch_that_cannot_be_cancelled_any_more_is_fetched(server, rows, tmp_path):
    broken_off(server, tmp_path)
    server.refuse["cancel"] = [409 if isinstance(server, OpenAIServer) else 400]
    assert go(server, tmp_path, cancel=True).answered == 5


def test_a_cancellation_that_is_refused_is_not_passed_over(server, rows, tmp_path):
    broken_off(server, tmp_path)
    server.refuse["cancel"] = [403]
    with pytest.raises(PermissionDeniedError):
        go(server, tmp_path, cancel=True)
    assert go(server, tmp_path).answered == 5


def test_cancel_and_poll_belong_to_this_engine(openai, rows, tmp_path):
    for option in ({"cancel": True}, {"poll": 1.0}):
        with pytest.raises(UsageError, match="engine=provider"):
            go(openai, tmp_path, engine="local", **option)


def test_too_many_errors_end_the_run_and_the_rest_is_fetched_by_the_next(openai, rows, tmp_path):
    openai.outcome = lambda prompt: {"response": {"status_code": 400, "body": {}}}
    report = go(openai, tmp_path, max_errors=2)
    assert report.stopped == "max-errors"
    assert 0 < report.left < 5
    assert go(openai, tmp_path).failed == 5
    assert len(openai.batches) == 1


def test_a_run_that_is_stopped_before_it_sends_sends_nothing(server, rows, tmp_path):
    async def stopped():
        stop = asyncio.Event()
        stop.set()
        uri, given = options_of(server)
        out = tmp_path / "out.jsonl"
        return await arun(uri, tmp_path / "in.jsonl", out, engine="provider", stop=stop, **given)

    assert asyncio.run(stopped()).left == 5
    assert server.requests == []


def test_progress_says_how_many_requests_the_provider_has(openai, rows, tmp_path, monkeypatch):
    openai.states = ["in_progress"] * 3
    seen = []
    engines = []
    begin = ProviderEngine.__init__

    def remember(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        engines.append(self)

    monkeypatch.setattr(ProviderEngine, "__init__", remember)
    look = ProviderEngine._record_figures

    def see(self, batch):
        look(self, batch)
        seen.append(self.load)

    monkeypatch.setattr(ProviderEngine, "_record_figures", see)
    assert go(openai, tmp_path, watch=lambda now: None).answered == 5
    assert seen[0] == (5, 5, 0.0)
    assert engines[0].load == (0, 0, 0)


def test_what_a_policy_refuses_stops_the_run(server, rows, tmp_path):
    with pytest.raises(PolicyError):
        go(server, tmp_path, policy=Policy.trusted())
    assert server.requests == []


def test_a_warning_is_told(openai, rows, tmp_path):
    with pytest.warns(OnymWarning):
        go(openai, tmp_path, "base_url=x")


def test_requests_carry_key_and_label_and_nothing_of_them_is_written_down(server, rows, tmp_path):
    broken_off(server, tmp_path)
    texts = "".join(path.read_text() for path in tmp_path.iterdir())
    assert KEY not in texts
    name = "authorization" if isinstance(server, OpenAIServer) else "x-api-key"
    assert all(KEY in headers[name] for headers in server.headers)


# runs that are stopped, wherever they are


def stop_at(server, folder, step, **options):
    """A run that is stopped while the server has a request of this step, which it then refuses."""

    async def stopped():
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def refuse(data):
            loop.call_soon_threadsafe(stop.set)
            return 503, "application/json", b"{}"

        server.spoil[step] = [refuse]
        uri, given = options_of(server)
        given = {**given, "engine": "provider", "poll": 0.0, "stop": stop, **options}
        return await arun(uri, folder / "in.jsonl", folder / "out.jsonl", **given)

    return asyncio.run(stopped())


@pytest.mark.parametrize("step", ["upload", "create", "list", "look", "results"])
def test_a_run_stopped_at_any_step_is_gone_on_with_by_the_next(server, rows, tmp_path, hurried, step):
    if step == "upload" and isinstance(server, AnthropicServer):
        step = "create"  # nothing is uploaded there
    if step == "list":
        server.spoil["create"] = [html]
        with pytest.raises(MalformedResponseError):
            go(server, tmp_path, overrides={"retries": 0})
    report = stop_at(server, tmp_path, step)
    assert (report.answered, report.left) == (0, 5)
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1
    assert set(server.asked.values()) == {1}


def test_a_run_stopped_while_it_tells_whose_batch_it_is_knows_it_later(anthropic, rows, tmp_path, hurried):
    for step in ("look", "results"):
        anthropic.states = []
        anthropic.spoil["create"] = [html]
        with pytest.raises(MalformedResponseError):
            go(anthropic, tmp_path, overrides={"retries": 0}, restart=True)
        assert stop_at(anthropic, tmp_path, step).left == 5
        assert go(anthropic, tmp_path).answered == 5
    assert len(anthropic.batches) == 2


def test_a_batch_that_may_be_ours_and_is_gone_is_not_it(anthropic, rows, tmp_path, hurried):
    anthropic.refuse["create"] = [500]
    anthropic.states = ["in_progress"] * 9
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    write_rows(other_folder / "in.jsonl", 5)
    broken_off(anthropic, other_folder)
    anthropic.refuse = {"create": [500], "look": [404, 404]}
    report = go(anthropic, tmp_path)
    assert (report.answered, report.left) == (0, 5)
    assert go(anthropic, tmp_path).answered == 5


def test_results_that_do_not_say_whose_they_are_stop_the_run_until_they_are_given_up(
    anthropic, rows, tmp_path, hurried
):
    anthropic.spoil["create"] = [html]
    anthropic.states = []
    with pytest.raises(MalformedResponseError):
        go(anthropic, tmp_path, overrides={"retries": 0})
    for spoilt in (html, nothing):
        anthropic.spoil["results"] = [spoilt]
        with pytest.raises(MalformedResponseError, match=r"msgbatch_0 .*requests"):
            go(anthropic, tmp_path)
    anthropic.spoil["results"] = [html]
    report = go(anthropic, tmp_path, cancel=True)
    assert (report.left, report.stopped) == (5, "cancelled")


def test_cancelling_does_not_end_batches_that_may_be_of_others(anthropic, rows, tmp_path, hurried):
    anthropic.states = ["in_progress"] * 6
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    write_rows(other_folder / "in.jsonl", 5)
    broken_off(anthropic, other_folder)
    anthropic.spoil["create"] = [lambda data: (500, "application/json", b"{}")]
    anthropic.refuse["look"] = [401]
    with pytest.raises(AuthenticationError):
        go(anthropic, tmp_path)
    report = go(anthropic, tmp_path, cancel=True)
    # two of the same size go on: it is the first or the second, and neither is ended by mistake
    assert "cancel" not in anthropic.steps()
    assert report.answered == 5
    assert len(anthropic.batches) == 2


def test_results_wait_for_the_disk(server, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "_MAX_UNDURABLE", 1)
    assert go(server, tmp_path).answered == 5
    monkeypatch.undo()


def test_errors_of_a_whole_batch_wait_for_the_disk(openai, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "_MAX_UNDURABLE", 1)
    openai.end = "failed"
    assert go(openai, tmp_path).failed == 5


def test_a_batch_is_not_done_with_before_its_results_are_durable(server, rows, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(storage_module, "JournalWriter", partial(JournalWriter, synced=full))
        with pytest.raises(OSError, match="No space"):
            go(server, tmp_path)
    assert (tmp_path / "out.jsonl.provider").exists()
    assert go(server, tmp_path).answered == 5
    assert len(server.batches) == 1


def test_results_that_were_durable_before_a_crash_are_not_fetched_again(server, rows, tmp_path, monkeypatch):
    # the crash comes between the last result and the ledger's word on it
    def crash(self, chunk, how):
        raise RuntimeError("crash")

    with monkeypatch.context() as patched:
        patched.setattr(SubmissionLog, "record_end", crash)
        with pytest.raises(RuntimeError, match="crash"):
            go(server, tmp_path)
    fetched = server.steps().count("results")
    assert go(server, tmp_path).answered == 5
    assert server.steps().count("results") == fetched
    assert not (tmp_path / "out.jsonl.provider").exists()


def test_a_batch_whose_results_were_durable_before_a_crash_is_done_while_others_go_on(
    server, rows, tmp_path, small, monkeypatch
):
    def crash(self, chunk, how):
        raise RuntimeError("crash")

    with monkeypatch.context() as patched:
        patched.setattr(SubmissionLog, "record_end", crash)
        with pytest.raises(RuntimeError, match="crash"):
            go(server, tmp_path)
    assert go(server, tmp_path).answered == 5
    assert server.steps().count("results") == len(server.batches)


def test_many_rows_leave_others_their_turn(openai, tmp_path):
    write_rows(tmp_path / "in.jsonl", 600)
    assert go(openai, tmp_path).answered == 600
