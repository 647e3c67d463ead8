"""A run from end to end: what is asked, what is written, what a later run finds."""

from __future__ import annotations

import asyncio
import io
import json
import os
import threading
from pathlib import Path

import pytest

from net_support import free_port
from onym.errors import AuthenticationError, ConnectionFailed, CredentialError, QuotaError, UsageError
from onym.llm import batch as driver_module
from onym.llm import batch as run_module
from onym.llm import embedded
from onym.llm.batch import LocalEngine, _rows, arun, run
from onym.llm.batch import _storage as storage_module
from onym.llm.batch._engine import Load
from onym.llm.batch._storage import compute_digest
from onym.llm.config import Config
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


@pytest.fixture
def fake():
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.jsonl", *[{"id": f"n{at}", "prompt": f"ask {at}"} for at in range(6)])


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def no_rest(seconds):
    await asyncio.sleep(0)


def patient(job):
    """The engine of this process, which never really waits."""
    return LocalEngine(job, chance=lambda: 0.0, rest=no_rest)


def go(fake, source, output, query="", **options):
    options = {"policy": Policy.local(), "config": Config(), "engine": patient, **options}
    uri = fake if isinstance(fake, str) else fake.uri(query=query)
    return run(uri, source, output, **options)


def prompts(fake):
    return [request.json["messages"][-1]["content"] for request in fake.requests]


@pytest.mark.parametrize("order", ["input", "completion"])
def test_every_row_is_asked_once_and_has_its_result(fake, source, tmp_path, order):
    report = go(fake, source, tmp_path / "out.jsonl", order=order)
    rows = read(tmp_path / "out.jsonl")
    assert [row["index"] for row in sorted(rows, key=lambda row: row["index"])] == list(range(6))
    assert {row["id"]: row["text"] for row in rows} == {f"n{at}": f"ask {at}" for at in range(6)}
    assert sorted(prompts(fake)) == [f"ask {at}" for at in range(6)]
    assert (report.rows, report.answered, report.failed, report.left) == (6, 6, 0, 0)
    assert (report.input_tokens, report.output_tokens) == (30, 42)
    assert not (tmp_path / "out.jsonl.journal").exists()


def test_a_result_holds_what_the_model_said(fake, tmp_path):
    fake.answer("Hi", tool_calls=[("c1", "f", "{}")], reasoning="hm")
    go(fake, write(tmp_path / "in", {"prompt": "x"}), tmp_path / "out")
    assert read(tmp_path / "out") == [
        {
            "index": 0,
            "id": "0",
            "status": "ok",
            "text": "Hi",
            "finish_reason": "tool_calls",
            "tool_calls": [{"id": "c1", "name": "f", "arguments": "{}"}],
            "usage": {"input_tokens": 5, "output_tokens": 7, "cached_tokens": None, "reasoning_tokens": None},
            "model": "fake-model",
            "reasoning": "hm",
            "request_id": rid(read(tmp_path / "out")[0]),
            "attempts": 1,
        }
    ]


def test_rows_may_contain_reasoning_and_tools_of_the_provider(fake, tmp_path):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    thought = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"}
    messages = [
        {"role": "user", "content": "Hi"},
        thought,
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    ]
    tools = [{"type": "web_search"}]
    rows = (
        {"messages": messages, "tools": tools},
        {"custom_id": "b", "body": {"messages": messages, "tools": tools}},
    )
    report = go(fake, write(tmp_path / "in", *rows), tmp_path / "out")
    assert (report.answered, report.failed) == (2, 0)
    for request in fake.requests:
        assert (request.json["messages"], request.json["tools"]) == (messages, tools)


def rid(row):
    return row["request_id"]


def test_parameters_of_a_row_go_before_those_of_the_call_and_these_before_the_uri(fake, tmp_path):
    rows = [{"prompt": "a"}, {"prompt": "b", "params": {"temp": 0.3}}]
    go(fake, write(tmp_path / "in", *rows), tmp_path / "out", "temp=0.1&seed=4", overrides={"temp": 0.2})
    sent = {request.json["messages"][0]["content"]: request.json for request in fake.requests}
    assert (sent["a"]["temperature"], sent["b"]["temperature"]) == (0.2, 0.3)
    assert sent["a"]["seed"] == sent["b"]["seed"] == 4


def test_a_second_run_finds_everything_done_and_sends_nothing(fake, source, tmp_path):
    out = tmp_path / "out.jsonl"
    for order in ("input", "completion"):
        go(fake, source, out, order=order, restart=True)
        fake.requests.clear()
        before = out.read_bytes()
        report = go(fake, source, out, order=order)
        assert (report.before, report.answered, fake.requests) == (6, 6, [])
        assert out.read_bytes() == before


@pytest.mark.requirement("onym-batch-a")
@pytest.mark.parametrize("order", ["input", "completion"])
def test_a_run_goes_on_where_a_former_one_was_cut(fake, source, tmp_path, order):
    out = tmp_path / "out.jsonl"
    go(fake, source, out, order=order)
    lines = out.read_bytes().splitlines(keepends=True)
    fake.requests.clear()
    # as it is after a kill: no output yet, or one that is its own journal
    place = out if order == "completion" else tmp_path / "out.jsonl.journal"
    if order == "input":
        out.unlink()
    place.write_bytes(b"".join(lines[:3]) + lines[3][:-9])
    report = go(fake, source, out, order=order)
    assert sorted(prompts(fake)) == sorted(json.loads(line)["text"] for line in lines[3:])
    assert (report.before, report.repaired, report.answered) == (3, 1, 6)
    assert sorted(row["index"] for row in read(out)) == list(range(6))


def test_an_output_that_lost_lines_is_completed(fake, source, tmp_path):
    out = tmp_path / "out.jsonl"
    go(fake, source, out)
    out.write_bytes(b"".join(out.read_bytes().splitlines(keepends=True)[2:]))
    fake.requests.clear()
    go(fake, source, out)
    assert sorted(prompts(fake)) == ["ask 0", "ask 1"]
    assert [row["index"] for row in read(out)] == list(range(6))


def test_a_journal_that_outlived_its_output_is_put_away(fake, source, tmp_path):
    out, journal = tmp_path / "out.jsonl", tmp_path / "out.jsonl.journal"
    go(fake, source, out)
    journal.write_bytes(out.read_bytes())
    fake.requests.clear()
    go(fake, source, out)
    assert (fake.requests, journal.exists()) == ([], False)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"query": "temp=1"}, "usage.batch-settings"),
        ({"overrides": {"temp": 1}}, "usage.batch-settings"),
        ({"order": "completion"}, "usage.batch-order"),
        ({"model": "other"}, "usage.batch-endpoint"),
        ({"input": True}, "usage.batch-input"),
    ],
)
def test_results_of_another_run_are_refused_unless_they_are_to_go(fake, source, tmp_path, change, code):
    out = tmp_path / "out.jsonl"
    go(fake, source, out)
    kept, sent = out.read_bytes(), len(fake.requests)
    change = dict(change)
    uri = fake.uri(change.pop("model", "fake-model"), query=change.pop("query", ""))
    if change.pop("input", False):
        source = write(tmp_path / "other", {"prompt": "x"})
    with pytest.raises(UsageError) as caught:
        go(uri, source, out, **change)
    assert caught.value.code == code
    assert (out.read_bytes(), len(fake.requests)) == (kept, sent)
    go(uri, source, out, restart=True, **change)
    assert len(fake.requests) > sent


def test_a_profile_that_changed_is_another_run_and_how_often_it_is_tried_is_not(fake, source, tmp_path):
    def again(**profile):
        return go(f"{fake.uri()}#p", source, tmp_path / "out", config=Config(profiles={"p": profile}))

    again(temp=0, retries=1)
    assert again(temp=0, retries=2).before == 6
    with pytest.raises(UsageError) as caught:
        again(temp=1)
    assert caught.value.code == "usage.batch-settings"


def test_what_a_run_without_profile_is_bound_to_stays_the_same(fake):
    job = run_module.make_job(
        fake.uri(query="temp=1"), policy=Policy.local(), config=Config(), key=None, providers=None,
        environ={}, on_unsupported="drop", system_filter=None, overrides={"seed": 1}, concurrency=1,
    )  # fmt: skip
    uri = fake.uri(query="temp=1&retries=0").replace(":***@", "@")
    assert job.build_settings() == {"uri": uri, "on_unsupported": "drop", "overrides": {"seed": 1}}


def test_another_gguf_file_of_the_same_name_is_another_run(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "_FILES", {})

    def settings(octets):
        file = tmp_path / "mine.gguf"
        file.write_bytes(b"GGUF" + octets)
        embedded.register_model("mine", file)
        return compute_digest(run_module.make_job(
            "llm://embedded/mine", policy=None, config=Config(), key=None, providers=None, environ={},
            on_unsupported="drop", system_filter=None, overrides={}, concurrency=1,
        ).build_settings())  # fmt: skip

    assert settings(b"1") != settings(b"22")


def test_the_key_and_the_number_at_once_may_change_between_two_runs(source, tmp_path):
    with FakeProvider() as fake:
        go(fake.uri(key=KEY), source, tmp_path / "out")
        assert go(fake.uri(key="other-key-0123"), source, tmp_path / "out", concurrency=1).before == 6
    assert KEY not in (tmp_path / "out.batch").read_text()


def test_a_file_that_nobody_knows_is_not_overwritten(fake, source, tmp_path):
    out = tmp_path / "out"
    out.write_text("precious")
    with pytest.raises(UsageError) as caught:
        go(fake, source, out)
    assert caught.value.code == "usage.output-file"
    assert out.read_text() == "precious"
    go(fake, source, out, restart=True)
    assert len(read(out)) == 6


def test_a_binding_that_was_cut_while_it_was_written_is_begun_anew(fake, source, tmp_path):
    (tmp_path / "out.batch").write_text('{"endpoint":"llm')
    go(fake, source, tmp_path / "out")
    assert len(read(tmp_path / "out")) == 6


def test_two_runs_on_one_output_are_refused(fake, source, tmp_path):
    fake.answer("late", gate=True)
    thread = threading.Thread(target=lambda: go(fake, source, tmp_path / "out"))
    thread.start()
    try:
        assert fake.arrived.wait(600)
        with pytest.raises(UsageError) as caught:
            go(fake, source, tmp_path / "out")
        assert caught.value.code == "usage.batch-locked"
    finally:
        fake.release()
        thread.join(600)
    assert len(read(tmp_path / "out")) == 6


@pytest.mark.parametrize("output", [".", "in.jsonl"])
def test_an_output_that_is_no_file_or_the_input_is_refused(fake, source, tmp_path, output):
    with pytest.raises(UsageError) as caught:
        go(fake, source, tmp_path / output)
    assert caught.value.code == "usage.output-file"


def test_an_output_in_no_folder_and_an_input_that_is_not_there_are_refused(fake, source, tmp_path):
    with pytest.raises(UsageError) as caught:
        go(fake, source, tmp_path / "no" / "out")
    assert caught.value.code == "usage.output-file"
    with pytest.raises(UsageError) as caught:
        go(fake, tmp_path / "none", tmp_path / "out")
    assert caught.value.code == "usage.input-file"


def test_same_ids_are_refused_before_anything_is_sent(fake, tmp_path):
    rows = [{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}]
    with pytest.raises(UsageError, match=r"\b0 and 1\b") as caught:
        go(fake, write(tmp_path / "in", *rows), tmp_path / "out")
    assert caught.value.code == "usage.same-id"
    assert fake.requests == []


def test_an_empty_input_has_an_empty_output(fake, tmp_path):
    for order in ("input", "completion"):
        (tmp_path / "in").write_bytes(b"\n \r\n")
        report = go(fake, tmp_path / "in", tmp_path / order, order=order)
        assert (report.rows, (tmp_path / order).read_bytes()) == (0, b"")


def test_blank_lines_line_ends_and_a_byte_order_mark_are_no_rows(fake, tmp_path):
    data = b'\xef\xbb\xbf{"prompt":"a"}\r\n\n  \n{"prompt":"b"}'
    (tmp_path / "in").write_bytes(data)
    go(fake, tmp_path / "in", tmp_path / "out")
    assert [(row["index"], row["text"]) for row in read(tmp_path / "out")] == [(0, "a"), (1, "b")]


def test_a_stream_is_bound_like_a_file(fake, tmp_path):
    data = b'{"prompt":"a"}\n{"prompt":"b"}\n'
    go(fake, io.BytesIO(data), tmp_path / "out")
    assert go(fake, io.BytesIO(data), tmp_path / "out").before == 2
    with pytest.raises(UsageError) as caught:
        go(fake, io.BytesIO(data + data), tmp_path / "out")
    assert caught.value.code == "usage.batch-input"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.batch"]


def test_a_row_that_is_too_long_is_refused(fake, tmp_path, monkeypatch):

    monkeypatch.setattr(_rows, "_MAX_ROW_SIZE", 20)
    with pytest.raises(UsageError, match=r"\brow 1\b") as caught:
        go(fake, write(tmp_path / "in", {"prompt": "a"}, {"prompt": "b" * 50}), tmp_path / "out")
    assert caught.value.code == "usage.bad-input"


def test_an_input_in_which_one_octet_changed_is_another(fake, tmp_path):
    go(fake, io.BytesIO(b'{"prompt":"a"}\n{"prompt":"b"}\n'), tmp_path / "out")
    with pytest.raises(UsageError) as caught:
        go(fake, io.BytesIO(b'{"prompt":"a"}\n{"prompt":"c"}\n'), tmp_path / "out")
    assert caught.value.code == "usage.batch-input"


def test_a_symbolic_link_leads_to_the_file_that_is_written(fake, source, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "out")
    go(fake, source, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert len(read(tmp_path / "real" / "out")) == 6


def test_a_row_that_cannot_be_read_is_a_result_and_is_never_sent(fake, tmp_path):
    (tmp_path / "in").write_bytes(b'{"prompt":"a"}\nnot json\n{"id":"c","prompt":1}\n')
    report = go(fake, tmp_path / "in", tmp_path / "out")
    rows = read(tmp_path / "out")
    assert [(row["id"], row["status"], row["attempts"]) for row in rows] == [
        ("0", "ok", 1),
        ("1", "error", 0),
        ("c", "error", 0),
    ]
    assert rows[1]["error"]["code"] == "usage.bad-row"
    assert (report.answered, report.failed, len(fake.requests)) == (1, 2, 1)


def test_an_argument_that_the_call_does_not_know_fails_its_row_alone(fake, tmp_path):
    rows = [
        {"prompt": "a", "params": {"temp": 9}},
        {"prompt": "b", "params": {"model": "x"}},
        {"prompt": "c"},
    ]
    go(fake, write(tmp_path / "in", *rows), tmp_path / "out")
    assert [row["status"] for row in read(tmp_path / "out")] == ["error", "error", "ok"]


def test_a_refused_row_is_tried_again_and_says_how_often(fake, tmp_path):
    fake.fail(429).fail(500).fail(503)
    report = go(fake, write(tmp_path / "in", {"prompt": "a"}), tmp_path / "out")
    assert read(tmp_path / "out")[0]["attempts"] == 4
    assert report.retries == 3


@pytest.mark.parametrize(("query", "params"), [("retries=1", {}), ("", {"retries": 1})])
def test_the_number_of_retries_is_the_uris_or_the_rows(fake, tmp_path, query, params):
    fake.fail(500).fail(500)
    go(fake, write(tmp_path / "in", {"prompt": "a", "params": params}), tmp_path / "out", query)
    row = read(tmp_path / "out")[0]
    assert (row["status"], row["attempts"], row["error"]["status"]) == ("error", 2, 500)


def test_no_retries_means_none_for_a_busy_server_either(fake, tmp_path):
    fake.fail(429)
    go(fake, write(tmp_path / "in", {"prompt": "a"}), tmp_path / "out", overrides={"retries": 0})
    assert read(tmp_path / "out")[0]["attempts"] == 1


@pytest.mark.requirement("onym-batch-b")
def test_a_busy_server_is_asked_more_often_than_a_failing_one(fake, tmp_path):
    for _ in range(15):
        fake.fail(429)
    go(fake, write(tmp_path / "in", {"prompt": "a"}), tmp_path / "out")
    assert read(tmp_path / "out")[0]["attempts"] == 16


def test_a_bad_request_is_not_tried_again(fake, tmp_path):
    fake.fail(400, "sk-proj-0123456789abcdefghijABCDEFGHIJ is bad")
    go(fake, write(tmp_path / "in", {"prompt": "a"}), tmp_path / "out")
    assert read(tmp_path / "out")[0]["attempts"] == 1
    assert "sk-proj" not in (tmp_path / "out").read_text()


@pytest.mark.requirement("onym-batch-b")
def test_everybody_waits_as_long_as_the_server_asks(fake, tmp_path):
    now, rests = [0.0], []

    async def rest(seconds):
        rests.append(seconds)
        now[0] += seconds
        await asyncio.sleep(0)

    fake.fail(429, headers={"retry-after": "7"})
    rows = [{"prompt": f"{at}"} for at in range(3)]
    engine = lambda job: LocalEngine(job, clock=lambda: now[0], chance=lambda: 0.0, rest=rest)  # noqa: E731
    go(fake, write(tmp_path / "in", *rows), tmp_path / "out", engine=engine, concurrency=1)
    assert 7.0 in rests
    assert [row["status"] for row in read(tmp_path / "out")] == ["ok"] * 3


def test_failed_rows_are_asked_again_where_that_is_wanted(fake, source, tmp_path):
    for order in ("input", "completion"):
        out = tmp_path / order
        fake.fail(400).fail(400)
        assert go(fake, source, out, order=order, concurrency=1).failed == 2
        fake.requests.clear()
        assert go(fake, source, out, order=order).failed == 2
        assert fake.requests == []
        report = go(fake, source, out, order=order, retry_errors=True)
        assert sorted(prompts(fake)) == ["ask 0", "ask 1"]
        assert (report.failed, report.answered, report.before) == (0, 6, 4)
        assert sorted(row["index"] for row in read(out)) == list(range(6))


def test_a_run_stops_after_so_many_failed_rows_and_can_go_on(fake, source, tmp_path):
    fake.fail(400).fail(400)
    report = go(fake, source, tmp_path / "out", concurrency=1, max_errors=2)
    assert (report.stopped, report.failed, report.left) == ("max-errors", 2, 4)
    assert not (tmp_path / "out").exists()
    assert go(fake, source, tmp_path / "out").left == 0


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(401, None, AuthenticationError), (429, "insufficient_quota", QuotaError)],
)
def test_what_no_row_can_do_better_stops_the_run_and_loses_nothing(
    fake, source, tmp_path, status, code, error
):
    fake.answer("first").fail(status, code=code)
    with pytest.raises(error) as caught:
        go(fake, source, tmp_path / "out", concurrency=1)
    assert "saved" in caught.value.hint
    assert len(fake.requests) == 2
    report = go(fake, source, tmp_path / "out")
    assert (report.before, report.answered) == (1, 6)


def test_a_key_that_is_missing_is_told_before_anything_is_written(source, tmp_path):
    with pytest.raises(CredentialError):
        go("llm://openai/gpt-5.4", source, tmp_path / "out", environ={})
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_server_that_is_gone_stops_the_run_after_some_rows(tmp_path):
    rows = write(tmp_path / "in", *[{"prompt": f"{at}"} for at in range(100)])
    with free_port() as port, pytest.raises(ConnectionFailed):
        go(f"llm://127.0.0.1:{port}/m", rows, tmp_path / "out", concurrency=4)
    assert len(read(tmp_path / "out.journal")) < 20


def test_the_well_known_mistakes_of_a_caller_are_told(fake, source, tmp_path):
    for wrong in ({"concurrency": 0}, {"order": "random"}, {"engine": "cloud"}):
        with pytest.raises(UsageError):
            go(fake, source, tmp_path / "out", **wrong)


def test_a_disk_that_fails_stops_the_run_with_what_counts_kept(fake, source, tmp_path, monkeypatch):
    real = storage_module.JournalWriter

    def failing(descriptor):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(storage_module, "JournalWriter", lambda path, told: real(path, told, synced=failing))
    with pytest.raises(OSError, match="No space"):
        go(fake, source, tmp_path / "out", order="completion", concurrency=1)
    assert (tmp_path / "out").read_bytes() == b""
    monkeypatch.undo()
    assert go(fake, source, tmp_path / "out", order="completion").answered == 6


def test_rows_are_not_taken_while_too_many_results_are_not_durable(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "_MAX_UNDURABLE", 3)
    waiting = []
    real = driver_module.BatchRun.put_result

    def give(self, result):
        real(self, result)
        waiting.append(len(self._pending))

    monkeypatch.setattr(driver_module.BatchRun, "put_result", give)
    rows = write(tmp_path / "in", *[{"prompt": f"{at}"} for at in range(50)])
    assert go(fake, rows, tmp_path / "out", concurrency=2).answered == 50
    assert max(waiting) <= 3 + 2


def test_a_run_that_is_told_to_stop_waits_for_what_is_under_way(fake, source, tmp_path):
    fake.answer("late", gate=True)

    async def play():
        stop = asyncio.Event()
        task = asyncio.ensure_future(
            arun(fake.uri(), source, tmp_path / "out", policy=Policy.local(), config=Config(), stop=stop,
                 concurrency=1)
        )  # fmt: skip
        await asyncio.to_thread(fake.arrived.wait, 600)
        stop.set()
        fake.release()
        return await task

    report = asyncio.run(play())
    assert (report.answered, report.left) == (1, 5)
    assert [row["text"] for row in read(tmp_path / "out.journal")] == ["late"]


@pytest.mark.parametrize("headers", [{"retry-after": "3600"}, {}])
def test_a_run_that_is_told_to_stop_does_not_wait_for_the_next_attempt(
    fake, source, tmp_path, headers, monkeypatch
):
    from onym.llm.batch import _engine
    from onym.net.limits import RetryPolicy

    monkeypatch.setattr(_engine, "_RETRY_POLICY", RetryPolicy(base=3600, cap=3600))
    for _ in range(6):
        fake.fail(429, headers=headers)

    async def play():
        stop, seen = asyncio.Event(), asyncio.Event()
        engine = lambda job: LocalEngine(job, chance=lambda: 0.0 if headers else 1.0)  # noqa: E731

        def watch(now):
            if now.load.pause or (fake.requests and not now.load.active):
                seen.set()

        task = asyncio.ensure_future(
            arun(fake.uri(), source, tmp_path / "out", policy=Policy.local(), config=Config(), stop=stop,
                 engine=engine, watch=watch, concurrency=2)
        )  # fmt: skip
        await asyncio.wait_for(seen.wait(), 600)
        stop.set()
        return await asyncio.wait_for(task, 600)

    report = asyncio.run(play())
    assert (report.answered, report.failed, report.left) == (0, 0, 6)
    assert len(fake.requests) <= 6


def test_rows_that_wait_without_a_deputy_are_answered_too(fake, source, tmp_path, monkeypatch):
    from onym.llm.batch import _engine

    monkeypatch.setattr(_engine, "_MAX_PARKED", 0)
    for _ in range(5):  # one row may meet them all, and is tried six times
        fake.fail(500)
    assert go(fake, source, tmp_path / "out", concurrency=2).answered == 6


def test_an_attempt_after_a_real_pause_is_made(fake, source, tmp_path):
    fake.fail(500)
    engine = lambda job: LocalEngine(job, chance=lambda: 0.01)  # noqa: E731
    assert go(fake, source, tmp_path / "out", engine=engine).retries == 1


def test_a_run_that_is_cancelled_keeps_what_it_has(fake, source, tmp_path):
    fake.answer("one").answer("late", gate=True)

    async def play():
        seen = asyncio.Event()
        watch = lambda now: seen.set() if now.done else None  # noqa: E731
        task = asyncio.ensure_future(
            arun(fake.uri(), source, tmp_path / "out", policy=Policy.local(), config=Config(), watch=watch,
                 concurrency=1)
        )  # fmt: skip
        await asyncio.wait_for(seen.wait(), 600)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(play())
    assert go(fake, source, tmp_path / "out").before == 1


def test_whoever_watches_sees_rates_tokens_and_the_end(fake, source, tmp_path):
    seen = []
    go(fake, source, tmp_path / "out", watch=seen.append)
    last = seen[-1]
    assert (last.total, last.done, last.failed, last.before) == (6, 6, 0, 0)
    assert (last.input_tokens, last.output_tokens, last.load.active) == (30, 42, 0)
    assert last.rate > 0
    assert last.seconds_left == 0
    assert seen[0].seconds_left is None or seen[0].done


def test_more_at_once_than_a_transport_keeps_is_a_transport_that_keeps_more(fake, source, tmp_path):
    assert go(fake, source, tmp_path / "out", concurrency=500).answered == 6


def test_the_engine_may_be_anybodys(fake, source, tmp_path):
    class Mute:
        load = Load()

        def __init__(self, job):
            self.job = job

        async def run(self, work):
            assert work.next_row()[0] == 0

    assert go(fake, source, tmp_path / "out", engine=Mute).left == 6


def test_a_bug_in_an_engine_is_seen(fake, source, tmp_path, monkeypatch):
    from onym.llm.batch import _engine

    def broken(*args):
        raise ZeroDivisionError

    monkeypatch.setattr(_engine, "make_answer_result", broken)
    with pytest.raises(ZeroDivisionError):
        go(fake, source, tmp_path / "out")


def test_the_module_has_both_engines():
    assert run_module._find_engine("local") is LocalEngine
    assert Path(run_module.__file__).exists()
