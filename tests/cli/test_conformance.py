"""The conformance driver: its protocol, its own vectors, and questions that are none."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.cli.commands import conformance
from onym.cli.commands.conformance import MAX_LINE, answer_line, serve_questions
from support import ROOT, as_subtests


def ask(question):
    return answer_line(json.dumps(question).encode())


def bad(reply, identity=None):
    return (
        reply["ok"] is False
        and reply["id"] == identity
        and reply["error"]["code"] == "conformance.bad-question"
    )


def without_messages(value):
    """The answer without what is for people and may change."""
    if isinstance(value, dict):
        return {name: without_messages(member) for name, member in value.items() if name != "message"}
    return [without_messages(member) for member in value] if isinstance(value, list) else value


@pytest.mark.requirement("onym-conformance-a")
def test_the_projects_own_vectors_are_answered_as_written():
    questions, expected = (
        (ROOT / "vectors" / name).read_text(encoding="utf-8").splitlines()
        for name in ("conformance.jsonl", "conformance.expected.jsonl")
    )
    assert len(questions) == len(expected) > 30
    for question, wanted in zip(questions, expected, strict=True):
        reply = answer_line(question.encode())
        assert reply["ok"] or reply["error"]["message"]
        assert without_messages(reply) == json.loads(wanted), question


@pytest.mark.requirement("onym-conformance-b")
@pytest.mark.requirement("onym-conformance-b")
@as_subtests(
    "line",
    [
        b"",
        b"\n",
        b"nonsense",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b'{"id":1' + b"1" * 10_000 + b"}",
        b'{"id":{"a":1},"op":"redact","text":"x"}',
        b'{"id":[1],"op":"redact","text":"x"}',
        b" " * (MAX_LINE + 1),
    ],
    ids=range(13),
)
def test_a_line_that_is_no_question_is_answered_as_such(line):
    assert bad(answer_line(line))


@pytest.mark.requirement("onym-conformance-b")
@pytest.mark.requirement("onym-conformance-b")
@as_subtests(
    "question",
    [
        {},
        {"op": None},
        {"op": "no.such"},
        {"op": "uri.parse"},
        {"op": "uri.parse", "text": 1},
        {"op": "uri.parse", "text": "x", "rule": "no-such-rule"},
        {"op": "uri.parse", "text": "x", "rule": ["URI"]},
        {"op": "uri.resolve", "base": "http://a/", "ref": None},
        {"op": "uri.resolve", "base": "http://a/", "ref": "b", "strict": "yes"},
        {"op": "llm.parse", "text": "llm://h/m", "strict": 1},
        {"op": "llm.parse", "text": "llm://h/m", "reveal": "true"},
        {"op": "redact", "text": ["x"]},
        {"op": "net.decide", "uri": "llm://h/m", "policy": "local"},
        {"op": "net.decide", "uri": "llm://h/m", "policy": {"preset": "no-such"}},
        {"op": "net.decide", "uri": "llm://h/m", "policy": {"no_such": 1}},
        {"op": "net.decide", "uri": "llm://h/m", "policy": {"ports": "443"}},
        {"op": "net.decide", "uri": "llm://h/m", "policy": {"allow_ip_literals": "yes"}},
        {"op": "net.decide", "uri": "llm://h/m", "dns": ["192.0.2.1"]},
        {"op": "net.decide", "uri": "llm://h/m", "dns": {"answers": "192.0.2.1"}},
        {"op": "net.decide"},
    ],
    ids=str,
)
def test_a_question_that_cannot_be_read_keeps_its_id(question):
    assert bad(ask({"id": "x-1", **question}), "x-1")


def test_a_failure_of_ours_ends_no_conversation(monkeypatch):
    def fail(question):
        raise ZeroDivisionError("with sk-proj-0123456789abcdefghij in it")

    monkeypatch.setattr(conformance, "OPERATIONS", {"redact": fail})
    reply = ask({"id": 1, "op": "redact", "text": "x"})
    assert reply["error"]["code"] == "internal.error"
    assert "0123456789" not in json.dumps(reply)


def test_what_is_optional_has_the_documented_default():
    assert ask({"op": "uri.parse", "text": "a/b"})["ok"] is True
    assert ask({"op": "uri.resolve", "base": "http://a/b", "ref": "http:c"})["target"] == "http:c"
    assert ask({"op": "llm.parse", "text": "llm://h/m:1"})["ok"] is True
    reply = ask({"op": "net.decide", "uri": "llm://localhost/m"})
    assert (reply["decision"], reply["reason"], reply["connect_to"]) == ("refuse", "loopback", [])


def test_diagnostics_stand_beside_the_value_and_inside_it():
    reply = ask({"op": "llm.parse", "text": "llm://h/llama3:8b"})
    assert reply["diagnostics"] == reply["value"]["diagnostics"]
    assert reply["diagnostics"][0]["code"] == "llm.raw-model"


def test_the_first_answers_of_a_sequence_decide():
    question = {
        "op": "net.decide",
        "uri": "llm://rebind.example/m",
        "policy": {"preset": "untrusted"},
        "dns": {"sequence": [["93.184.216.34"], ["127.0.0.1"]]},
    }
    reply = ask(question)
    assert (reply["decision"], reply["connect_to"]) == ("allow", ["93.184.216.34"])
    question["dns"]["sequence"].reverse()
    assert ask(question)["decision"] == "refuse"


def test_a_failed_look_up_refuses():
    for dns in ({"error": "NXDOMAIN"}, {"answers": []}, {"sequence": []}, {}, None):
        reply = ask({"op": "net.decide", "uri": "llm://api.openai.com/m", "dns": dns})
        assert reply["decision"] == "refuse"


@pytest.mark.requirement("onym-conformance-c")
def test_a_decision_never_touches_the_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was touched")

    for name in ("socket", "getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(f"socket.{name}", refuse)
    for dns in ({"answers": ["93.184.216.34"]}, {"sequence": [["10.0.0.1"]]}, {"error": "x"}, {}):
        for host in ("api.openai.com", "localhost", "10.0.0.1", "openai"):
            assert ask({"op": "net.decide", "uri": f"llm://{host}/m", "dns": dns})["ok"] is True


def test_aliases_are_judged_by_the_host_that_they_stand_for():
    reply = ask({"op": "net.decide", "uri": "llm://openai/m", "policy": {"allow_hosts": ["api.openai.com"]},
                 "dns": {"answers": ["93.184.216.34"]}})  # fmt: skip
    assert reply["decision"] == "allow"


def test_raw_unicode_is_refused_and_never_converted():
    assert ask({"op": "net.decide", "uri": "llm://bücher.example/m"})["ok"] is False
    assert ask({"op": "llm.parse", "text": "llm://bücher.example/m"})["ok"] is False


@pytest.mark.requirement("onym-read-f")
@pytest.mark.parametrize("op", ["uri.parse", "uri.normalize", "llm.parse", "ai.parse", "redact"])
@given(text=st.text(st.characters(codec=None), max_size=60))
def test_any_text_gets_an_answer_that_is_one_line_of_ascii(op, text):
    out = io.BytesIO()
    serve_questions(io.BytesIO(json.dumps({"id": 1, "op": op, "text": text}).encode() + b"\n"), out)
    line = out.getvalue()
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert json.loads(line)["id"] == 1
    assert b"internal.error" not in line


def test_lone_surrogates_come_back_as_escapes():
    out = io.BytesIO()
    serve_questions(io.BytesIO(b'{"id": "\\ud800", "op": "redact", "text": "a\\udfffb"}\n'), out)
    assert out.getvalue() == b'{"id":"\\ud800","ok":true,"text":"a\\udfffb"}\n'


def test_an_id_that_json_cannot_hold_is_not_repeated():
    out = io.BytesIO()
    serve_questions(io.BytesIO(b'{"id": NaN, "op": "redact", "text": "x"}\n'), out)
    assert bad(json.loads(out.getvalue()))


@pytest.mark.parametrize("length", [MAX_LINE + 10, MAX_LINE + 200_000])
def test_a_line_that_is_too_long_is_skipped_and_the_next_one_answered(length):
    out = io.BytesIO()
    serve_questions(io.BytesIO(b"x" * length + b'\n{"id": 2, "op": "redact", "text": "x"}\n'), out)
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert bad(first)
    assert second == {"id": 2, "ok": True, "text": "x"}


def test_a_last_line_without_an_end_is_answered_too():
    out = io.BytesIO()
    serve_questions(io.BytesIO(b'{"id": 2, "op": "redact", "text": "x"}'), out)
    assert json.loads(out.getvalue())["ok"] is True


@pytest.mark.requirement("onym-conformance-a")
@pytest.mark.requirement("onym-conformance-a")
def test_a_real_process_answers_each_line_before_the_next_one_comes(environment):
    process = subprocess.Popen(
        [sys.executable, "-m", "onym", "conformance"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    for line in (b"not a question\n", b'{"id": 1, "op": "redact", "text": "x"}\n', b"\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert json.loads(process.stdout.readline()).keys() >= {"id", "ok"}
    assert process.communicate() == (b"", b"")
    assert process.returncode == 0
