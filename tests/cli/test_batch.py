from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batch_support import Server, read_results, write_rows
from onym.cli._output import format_progress
from onym.llm.batch import Load, Progress
from onym.testing.fake_provider import FakeProvider
from support import untraced

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


@pytest.fixture
def fake():
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def source(tmp_path):
    return str(write_rows(tmp_path / "in.jsonl", 5))


def test_every_row_is_answered_and_nothing_is_said_to_a_pipe(run, fake, source, tmp_path):
    ran = run("batch", fake.uri(), source, "-o", str(tmp_path / "out.jsonl"))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert [row["text"] for row in read_results(tmp_path / "out.jsonl")] == [f"ask {at}" for at in range(5)]


def test_the_summary_is_one_json_object(run, fake, source, tmp_path):
    ran = run("batch", fake.uri(), source, "-o", str(tmp_path / "out.jsonl"), "--json")
    assert ran.code == 0
    assert ran.json["rows"] == ran.json["answered"] == 5
    assert (ran.json["failed"], ran.json["left"], ran.json["stopped"]) == (0, 0, None)
    assert ran.json["output_tokens"] == 35


def test_rows_may_come_from_a_pipe_and_parameters_from_the_command_line(run, fake, tmp_path):
    ran = run("batch", fake.uri(), "-", "-o", str(tmp_path / "out"), "-p", "temp=0.5", "-p", "min_p=0.1",
              stdin='{"prompt":"a"}\n')  # fmt: skip
    assert ran.code == 0
    assert (fake.requests[0].json["temperature"], fake.requests[0].json["min_p"]) == (0.5, 0.1)


@pytest.mark.parametrize("args", [["-", "-"], ["llm://h/m", "-", "--key-stdin"]])
def test_standard_input_cannot_be_two_things(run, tmp_path, args):
    assert run("batch", *args, "-o", str(tmp_path / "out"), stdin="x").code == 2


def test_a_key_from_standard_input_is_sent_and_shown_nowhere(run, source, tmp_path):
    with FakeProvider(key=KEY) as fake:
        uri = fake.uri(key="wrong-key-0123456789")
        ran = run("batch", uri, source, "-o", str(tmp_path / "out"), "--key-stdin", stdin=KEY + "\n")
    assert ran.code == 0
    assert KEY not in ran.err + (tmp_path / "out").read_text() + (tmp_path / "out.batch").read_text()


def test_failed_rows_are_a_code_of_their_own_and_a_word_how_to_ask_them_again(run, fake, source, tmp_path):
    fake.fail(400)
    args = ("batch", fake.uri(), source, "-o", str(tmp_path / "out"), "--concurrency", "1")
    ran = run(*args)
    assert ran.code == 1
    assert "1 of 5 rows failed" in ran.err
    assert "--concurrency 1 --retry-errors" in ran.err
    assert run(*args, "--retry-errors").code == 0


def test_the_command_to_go_on_is_of_the_same_run(run, fake, source, tmp_path):
    fake.fail(400)
    out = str(tmp_path / "out")
    args = ("batch", fake.uri(), source, "-o", out, "--concurrency", "1", "--on-unsupported", "drop")
    args += ("-p", "system=Be brief.", "--policy", "local")
    ran = run(*args, "--max-errors", "1")
    again = ran.err.partition("to resume, run: onym ")[2].splitlines()[0]
    for option in ("--on-unsupported drop", "-p 'system=Be brief.'", "--policy local", "--concurrency 1"):
        assert option in again
    assert run(*shlex.split(again)).code == 1


def test_max_errors_leaves_rows_and_says_how_to_go_on(run, fake, source, tmp_path):
    fake.fail(400)
    args = ("batch", fake.uri(), source, "-o", str(tmp_path / "out"), "--concurrency", "1")
    ran = run(*args, "--max-errors", "1")
    assert ran.code == 1
    assert "4 rows remain; to resume, run: onym batch" in ran.err
    ran = run(*args, "--max-errors", "1", "--restart", "--yes", "--json")
    assert (ran.code, ran.json["left"]) == (0, 0)


def test_a_wrong_key_stops_the_run_and_the_message_holds_the_command_to_go_on(run, source, tmp_path):
    with FakeProvider(key=KEY) as fake:
        ran = run("batch", fake.uri(key="sk-proj-wrong0123456789abcdef"), source, "-o", str(tmp_path / "out"))
    assert ran.code == 7
    assert "to resume, run: onym batch" in ran.err
    assert "wrong0123" not in ran.err.replace("llm://test:***@", "")


def test_results_of_another_endpoint_are_refused(run, fake, source, tmp_path):
    run("batch", fake.uri(), source, "-o", str(tmp_path / "out"))
    ran = run("batch", fake.uri("other"), source, "-o", str(tmp_path / "out"), "--json")
    assert (ran.code, ran.json["error"]["code"]) == (2, "usage.batch-endpoint")
    assert "--restart" in ran.json["error"]["hint"]


def test_a_warning_that_holds_for_every_row_is_told_once(run, fake, source, tmp_path):
    ran = run("batch", fake.uri(query="base_url=x"), source, "-o", str(tmp_path / "out"))
    assert ran.code == 0
    assert ran.err.count("warning:") == 1


def test_ctrl_c_waits_for_what_is_under_way_and_says_how_to_go_on(environment, tmp_path):
    with FakeProvider() as fake:
        fake.answer("late", gate=True)
        source = write_rows(tmp_path / "in.jsonl", 5)
        args = [fake.uri(), str(source), "-o", str(tmp_path / "out"), "--concurrency", "1"]
        process = subprocess.Popen(
            [sys.executable, "-m", "onym", "batch", *args], stderr=subprocess.PIPE, env=untraced(environment)
        )
        assert fake.arrived.wait(600)
        process.send_signal(signal.SIGINT)
        # the answer comes after the signal, and is kept
        fake.release()
        _, complaint = process.communicate(timeout=600)
        assert process.returncode == 130
        assert b"to resume, run: onym batch" in complaint
        assert b"Traceback" not in complaint
        texts = [row["text"] for row in read_results(tmp_path / "out.journal")]
        assert texts[0] == "late"
        assert len(texts) == len(fake.requests)


def test_sigterm_ends_the_run_with_its_results_kept(environment, tmp_path):
    with Server() as server:
        source = write_rows(tmp_path / "in.jsonl", 50_000)
        args = [server.uri, str(source), "-o", str(tmp_path / "out"), "--json"]
        server.hold(2000)
        process = subprocess.Popen(
            [sys.executable, "-m", "onym", "batch", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=untraced(environment),
        )
        server.wait(2000)
        process.terminate()
        out, complaint = process.communicate(timeout=600)
    assert (process.returncode, out, complaint) == (143, b"", b"")
    assert len(read_results(tmp_path / "out.journal")) > 1000


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_bar_follows_the_run_on_a_terminal(terminal, tmp_path):
    with Server() as server:
        source = write_rows(tmp_path / "in.jsonl", 500)
        screen = terminal("batch", server.uri, str(source), "-o", str(tmp_path / "out"))
        assert screen.end() == 0
    assert "500/500" in screen.shown
    assert "tokens" in screen.shown
    assert "500 of 500 rows answered, 1500 tokens in, 1000 out" in screen.shown


def test_the_figures_of_a_bar_say_rate_tokens_failures_and_time_left():
    now = Progress(total=200, done=100, failed=3, before=50, input_tokens=1_500, output_tokens=2_000_000,
                   load=Load(4, 16, 2.4), seconds=10.0)  # fmt: skip
    assert format_progress(now) == (
        "100/200  5.0/s  1.5k+2.0M tokens  3 failed  4/16 at once  0:00:20 left  server asks for 2 s"
    )
    assert "left" not in format_progress(Progress(total=5))


def test_the_command_to_go_on_is_complete(run, fake, tmp_path):
    source = write_rows(tmp_path / "my in.jsonl", 2)
    fake.fail(400)
    out = str(tmp_path / "out")
    ran = run("batch", fake.uri(), str(source), "-o", out, "-p", "temp=1", "--policy", "local", "--order",
              "completion")  # fmt: skip
    line = next(line for line in ran.err.splitlines() if "to send them again" in line)
    for words in ("-p temp=1", "--policy local", "--order completion", "'" + str(source) + "'", "-o " + out):
        assert words in line
    assert Path(out).exists()
    assert json.loads(Path(out).read_text().splitlines()[0])["index"] in {0, 1}


def test_rows_that_are_not_json_are_named_with_the_form_of_a_row(run, fake, tmp_path):
    source = tmp_path / "rows.csv"
    source.write_text("prompt\nfirst\n")
    ran = run("batch", fake.uri(), str(source), "-o", str(tmp_path / "out"))
    assert ran.code == 1
    assert "[usage.bad-row]" in ran.err
    assert '{"prompt": "Say hello."}' in ran.err
    # to send the same rows again would fail again
    assert "--restart" in ran.err
    assert "--retry-errors" not in ran.err
    assert fake.requests == []


def test_the_report_has_the_first_failure(run, fake, source, tmp_path):
    fake.fail(404)
    args = ("batch", fake.uri(), source, "-o", str(tmp_path / "out"), "--concurrency", "1")
    assert json.loads(run(*args, "--json").out)["error"]["code"] == "provider.not-found"
    assert json.loads(run(*args, "--json", "--retry-errors").out)["error"] is None
