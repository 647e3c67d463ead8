from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys

import pytest

from onym.cli.commands.chat import build_completion_record, build_event_record
from onym.llm.types import Completion, Finish, ToolCall, ToolCallDelta
from onym.testing.fake_provider import FakeProvider
from support import untraced

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


@pytest.fixture
def fake():
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def guarded():
    with FakeProvider(key=KEY) as provider:
        yield provider


def sent(provider, at=-1):
    return provider.requests[at].json


def test_the_words_after_the_uri_are_the_prompt(run, fake):
    fake.answer("Hello to you")
    ran = run("chat", fake.uri(), "Say", "hello.")
    assert (ran.code, ran.out, ran.err) == (0, "Hello to you\n", "")
    assert sent(fake)["messages"] == [{"role": "user", "content": "Say hello."}]


def test_what_is_piped_in_follows_the_words(run, fake):
    run("chat", fake.uri(), "Summarise:", stdin="line one\nline two\n")
    assert sent(fake)["messages"][0]["content"] == "Summarise:\n\nline one\nline two"


def test_a_pipe_alone_is_the_prompt(run, fake):
    assert run("chat", fake.uri(), stdin="Say hello.").out == "Say hello.\n"


def test_no_prompt_at_all_is_a_usage_error(run, fake):
    ran = run("chat", fake.uri())
    assert ran.code == 2
    assert "usage.no-prompt" in ran.err
    assert fake.requests == []


def test_an_answer_that_ends_its_last_line_gets_no_second_end(run, fake):
    fake.answer("one\n")
    assert run("chat", fake.uri(), "x").out == "one\n"
    fake.answer("one\n")
    assert run("chat", "--stream", fake.uri(), "x").out == "one\n"


def test_system_and_parameters_of_the_command_line_go_before_those_of_the_uri(run, fake):
    more = ("temp=0.5", "seed=3", "a.b=true", "stop=x,y")
    options = [word for pair in more for word in ("-p", pair)]
    run("chat", fake.uri(query="temp=1&system=old&min_p=0.1"), "x", "-s", "new", *options)
    body = sent(fake)
    assert body["messages"][0] == {"role": "system", "content": "new"}
    assert body["temperature"] == 0.5
    assert body["seed"] == 3
    assert body["a"] == {"b": True}
    assert body["min_p"] == 0.1
    assert body["stop"] == ["x", "y"]


def test_a_parameter_out_of_range_is_refused_before_anything_is_sent(run, fake):
    ran = run("chat", fake.uri(), "x", "-p", "temp=9")
    assert ran.code == 3
    assert fake.requests == []


def test_streaming_prints_the_same_text(run, fake):
    fake.answer("one two three")
    assert run("chat", "--stream", fake.uri(), "x").out == "one two three\n"
    assert sent(fake)["stream"] is True


def test_the_uri_itself_can_ask_for_streaming_and_the_option_can_refuse(run, fake):
    run("chat", fake.uri(query="stream=true"), "x")
    assert sent(fake)["stream"] is True
    run("chat", "--no-stream", fake.uri(query="stream=true"), "x")
    assert not sent(fake).get("stream")


def test_json_tells_a_refusal_and_a_call_of_a_custom_tool():
    call = ToolCall(id="c", name="shell", arguments="ls", custom=True)
    refused = {"model": "m", "finish_reason": "content_filter", "refusal": "No."}
    record = build_completion_record(Completion(text="No.", tool_calls=(call,), **refused))
    assert record["refusal"] == "No."
    assert record["tool_calls"] == [{"id": "c", "name": "shell", "arguments": "ls", "custom": True}]
    assert build_event_record(Finish(reason="content_filter", refusal="No."))["refusal"] == "No."
    assert build_event_record(ToolCallDelta(index=0, name="shell", custom=True))["custom"] is True
    assert "custom" not in build_event_record(ToolCallDelta(index=0, name="f"))


def test_json_is_one_object_with_the_whole_answer(run, fake):
    fake.answer("Hello", tool_calls=[("call_1", "f", '{"a":1}')])
    assert run("chat", "--json", fake.uri(), "x").json == {
        "text": "Hello",
        "model": "fake-model",
        "finish_reason": "tool_calls",
        "reasoning": None,
        "tool_calls": [{"id": "call_1", "name": "f", "arguments": '{"a":1}'}],
        "request_id": "req-fake",
        "usage": {
            "input_tokens": 5,
            "output_tokens": 7,
            "cached_tokens": None,
            "reasoning_tokens": None,
            "total_tokens": 12,
        },
        "cost": None,
    }


def test_json_says_what_it_cost_where_the_price_is_known(run, fake, tmp_path, monkeypatch):
    prices = tmp_path / "prices.toml"
    prices.write_text(
        '[openai-compatible-local]\nsource = "https://prices.example"\nchecked = 2026-11-21\n'
        '[openai-compatible-local.models]\nfake-model = { input = "1", output = "2" }\n'
    )
    monkeypatch.setenv("ONYM_PRICES", str(prices))
    fake.answer("Hello")
    assert run("chat", "--json", fake.uri(), "x").json["cost"]["amount"] == "0.000019"


def test_json_and_streaming_is_one_event_a_line(run, fake):
    fake.answer("Hi", reasoning="hm", tool_calls=[("call_1", "f", "{}")], pieces=["H", "i"])
    events = run("chat", "--json", "--stream", fake.uri(), "x").lines
    assert "".join(event["text"] for event in events if event["type"] == "text") == "Hi"
    assert "".join(event["text"] for event in events if event["type"] == "reasoning") == "hm"
    assert "f" in [event["name"] for event in events if event["type"] == "tool_call"]
    assert events[-1]["type"] == "finish"
    assert events[-1]["usage"]["output_tokens"] == 7


def test_usage_is_told_on_standard_error(run, fake):
    ran = run("chat", "--usage", fake.uri(), "x")
    assert ran.err.startswith("usage: 5 tokens in, 7 tokens out, ")
    assert "req-fake" in ran.err
    assert run("chat", "--usage", "--stream", fake.uri(), "x").err.startswith("usage: 5 tokens in")


@pytest.mark.parametrize("flag", ["--stream", "--no-stream"])
def test_an_answer_that_was_cut_earns_a_warning(run, fake, flag):
    fake.answer("Once upon", finish="length")
    ran = run("chat", flag, fake.uri(), "x")
    assert ran.code == 0
    assert "max_tokens" in ran.err


def test_a_schema_file_goes_along(run, fake, tmp_path):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    (tmp_path / "s.json").write_text(json.dumps(schema), encoding="utf-8")
    fake.answer('{"n": 1}')
    assert run("chat", fake.uri(), "x", "--schema", str(tmp_path / "s.json")).out == '{"n": 1}\n'
    strict = {**schema, "required": ["n"], "additionalProperties": False}
    assert sent(fake)["response_format"]["json_schema"]["schema"] == strict


@pytest.mark.parametrize("text", ["not json", "[1]", "[" * 100_000])
def test_a_schema_file_that_is_none_is_a_usage_error(run, fake, tmp_path, text):
    (tmp_path / "s.json").write_text(text, encoding="utf-8")
    assert run("chat", fake.uri(), "x", "--schema", str(tmp_path / "s.json")).code == 2
    assert run("chat", fake.uri(), "x", "--schema", str(tmp_path / "missing.json")).code == 2
    assert fake.requests == []


@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",), ("--json",)])
def test_the_answer_can_go_to_a_file(run, fake, tmp_path, flags):
    fake.answer("Hello")
    ran = run("chat", *flags, fake.uri(), "x", "-o", str(tmp_path / "answer"))
    assert (ran.code, ran.out) == (0, "")
    text = (tmp_path / "answer").read_text(encoding="utf-8")
    assert "Hello" in text
    assert text.endswith("\n")


def test_a_failed_call_leaves_no_file(run, fake, tmp_path):
    fake.fail(400, "no such thing")
    ran = run("chat", fake.uri(), "x", "-o", str(tmp_path / "answer"))
    assert ran.code == 7
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_of_the_server_is_told_with_its_status_and_what_to_do(run, guarded):
    ran = run("chat", guarded.uri(key="sk-wrong-0000000000000000"), "x")
    assert ran.code == 7
    assert "401" in ran.err
    assert "onym explain" in ran.err
    assert "sk-wrong" not in ran.err


def test_a_rate_limit_says_how_long_to_wait(run, fake):
    fake.fail(429, "slow down", code="rate_limit_exceeded", headers={"retry-after": "7"})
    ran = run("chat", fake.uri(query="retries=0"), "x")
    assert ran.code == 7
    assert "7 s" in ran.err
    fake.fail(429, "slow down", headers={"retry-after": "7"})
    assert run("chat", "--json", fake.uri(query="retries=0"), "x").json["error"]["retry_after"] == 7


@pytest.mark.requirement("llm-10.1-b")
def test_a_key_from_standard_input_is_used_and_never_shown(run, guarded):
    uri = guarded.uri().replace(f"test:{KEY}@", "")
    ran = run("chat", "--key-stdin", uri, "Hello", stdin=KEY + "\n")
    assert (ran.code, ran.out, ran.err) == (0, "Hello\n", "")
    ran = run("chat", "--key-stdin", uri, "Hello", "--json", stdin="wrong-key-1234567\n")
    assert ran.code == 7
    assert "wrong-key" not in ran.out + ran.err


def test_standard_input_cannot_give_both_the_uri_and_the_key(run):
    assert run("chat", "--key-stdin", "-", "Hello", stdin="llm://h/m\n").code == 2


@pytest.mark.requirement("llm-10.1-c")
def test_a_key_from_a_variable_by_reference(run, guarded):
    uri = guarded.uri().replace(f"test:{KEY}@", "")
    ran = run("chat", uri + "?auth=env:MY_TEST_VARIABLE", "Hello", env={"MY_TEST_VARIABLE": KEY})
    assert (ran.code, ran.out) == (0, "Hello\n")


def test_a_reference_to_a_key_on_the_command_line_goes_before_that_of_the_uri(run, guarded):
    uri = guarded.uri().replace(f"test:{KEY}@", "") + "?auth=env:NOT_THIS_ONE"
    ran = run("chat", uri, "Hello", "-p", "auth=env:MY_TEST_VARIABLE", env={"MY_TEST_VARIABLE": KEY})
    assert (ran.code, ran.out) == (0, "Hello\n")


def test_a_missing_key_says_where_it_was_looked_for(run):
    ran = run("chat", "llm://openai/gpt-5.5", "Hello")
    assert ran.code == 4
    assert "OPENAI_API_KEY" in ran.err


@pytest.mark.requirement("llm-10.5-e")
def test_a_uri_typed_here_may_lead_to_this_machine_and_others_may_not(run, fake):
    ran = run("chat", "env:MY_URI", "Hello", env={"MY_URI": fake.uri()})
    assert ran.code == 5
    assert "--policy local" in ran.err
    assert "ONYM_ALLOW_LOOPBACK=1" in ran.err
    assert fake.requests == []
    assert run("chat", "--policy", "local", "env:MY_URI", "Hello", env={"MY_URI": fake.uri()}).code == 0
    assert run("chat", "-", "Hello", stdin=fake.uri() + "\n").code == 5
    allowed = {"MY_URI": fake.uri(), "ONYM_ALLOW_LOOPBACK": "1"}
    assert run("chat", "env:MY_URI", "Hello", env=allowed).code == 0


def test_a_policy_named_on_the_command_line_decides_for_typed_uris_too(run, fake):
    assert run("chat", "--policy", "trusted", fake.uri(), "Hello").code == 5


def test_a_named_endpoint_comes_from_the_configuration(run, fake, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(f'[endpoints]\nfast = "{fake.uri()}"\n', encoding="utf-8")
    env = {"ONYM_CONFIG": str(config)}
    assert run("chat", "fast", "Hello", env=env).code == 5
    assert run("chat", "--policy", "local", "fast", "Hello", env=env).out == "Hello\n"
    ran = run("chat", "fsat", "Hello", env=env)
    assert ran.code == 4
    assert "config.no-endpoint" in ran.err
    assert "fast?" in ran.err


def test_a_parameter_that_is_not_sent_earns_a_warning(run, fake):
    ran = run("chat", fake.uri(query="base_url=x"), "Hello")
    assert ran.code == 0
    assert ran.err.startswith("warning: ")
    assert "base_url" in ran.err


def test_a_parameter_that_the_model_does_not_take_is_an_error_unless_told_otherwise(run):
    env = {"OPENAI_API_KEY": KEY}
    ran = run("explain", "llm://openai/gpt-5.4?top_k=3", "x", env=env)
    assert ran.code == 9
    assert "--on-unsupported drop" in ran.err
    ran = run("explain", "--on-unsupported", "warn", "llm://openai/gpt-5.4?top_k=3", "x", env=env)
    assert ran.code == 0
    assert "top_k" in ran.err


def start(environment, *args, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "onym", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=untraced(environment),
        **more,
    )


@pytest.mark.requirement("onym-cli-b")
@pytest.mark.requirement("onym-cli-b")
@pytest.mark.parametrize("how", ["--stream", "--no-stream"])
def test_ctrl_c_in_the_middle_leaves_no_file_and_closes_the_connection(environment, fake, tmp_path, how):
    folder = tmp_path / "out"
    folder.mkdir()
    fake.answer("one two three", gate=True)
    process = start(environment, "chat", how, fake.uri(), "x", "-o", str(folder / "answer"))
    assert fake.arrived.wait(300)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert list(folder.iterdir()) == []
    assert out == b""
    assert b"Traceback" not in err


def test_ctrl_c_after_the_first_words_is_130_too(environment, fake):
    fake.answer("one two three", gate=True)
    process = start(environment, "chat", "--stream", fake.uri(), "x")
    assert process.stdout.read(3) == b"one"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_a_polite_kill_leaves_no_file_either(environment, fake, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    fake.answer("one two three", gate=True)
    process = start(environment, "chat", "--stream", fake.uri(), "x", "-o", str(folder / "answer"))
    assert fake.arrived.wait(300)
    process.terminate()
    process.communicate(timeout=300)
    assert process.returncode == 143
    assert list(folder.iterdir()) == []


def test_a_closed_reader_ends_the_stream_quietly(environment, fake):
    fake.answer("", pieces=["word "] * 50, endless=True)
    process = start(environment, "chat", "--stream", fake.uri(), "x")
    process.stdout.read(4)
    process.stdout.close()
    process.wait(timeout=300)
    assert process.returncode == 141
    assert process.stderr.read() == b""
    process.stderr.close()
    assert fake.gone.wait(300)


def test_an_empty_device_as_standard_input_adds_nothing_to_the_prompt(environment, fake):
    process = start(environment, "chat", fake.uri(), "Hello")
    assert process.communicate(timeout=300)[0] == b"Hello\n"


def test_on_a_terminal_the_answer_streams_and_nothing_in_it_is_obeyed(terminal, fake):
    fake.answer("one \x1b]0;owned\x07 two", pieces=["one ", "\x1b]0;owned\x07", " two"])
    screen = terminal("chat", fake.uri(), "Hello")
    assert screen.end() == 0
    assert sent(fake)["stream"] is True
    assert "\x1b]0;" not in screen.shown
    assert "\\x1b]0;owned\\x07" in screen.shown


def test_a_conversation_remembers_and_forgets(terminal, fake):
    screen = terminal("chat", "-i", fake.uri(), "-s", "be brief", env={"INPUTRC": os.devnull})
    screen.read_until("> ")
    fake.answer("Hello Ada")
    screen.type("I am Ada\n")
    screen.read_until("Hello Ada")
    screen.read_until("> ")
    screen.type("Who am I?\n")
    screen.read_until("> ")
    said = sent(fake)["messages"]
    assert [message["role"] for message in said] == ["system", "user", "assistant", "user"]
    assert said[2]["content"] == "Hello Ada"
    screen.type("/reset\n")
    screen.read_until("> ")
    screen.type("Again\n")
    screen.read_until("> ")
    assert [message["role"] for message in sent(fake)["messages"]] == ["system", "user"]
    screen.type("/exit\n")
    assert screen.end() == 0


def test_a_conversation_survives_a_failure_and_forgets_that_turn(terminal, fake):
    screen = terminal("chat", "-i", fake.uri(query="retries=0"))
    screen.read_until("> ")
    fake.fail(400, "no such thing")
    screen.type("first\n")
    screen.read_until("error")
    screen.read_until("> ")
    screen.type("second\n")
    screen.read_until("second")
    screen.read_until("> ")
    assert [message["content"] for message in sent(fake)["messages"]] == ["second"]
    screen.type("\x04")
    assert screen.end() == 0


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on(terminal, fake):
    screen = terminal("chat", "-i", fake.uri())
    screen.read_until("> ")
    fake.answer("one two three", gate=True)
    screen.type("count\n")
    screen.read_until("one")
    screen.type("\x03")
    screen.read_until("stopped")
    screen.read_until("> ")
    screen.press_until("\x03", "> ")
    fake.release()
    screen.type("/usage\n")
    screen.read_until("/usage")
    screen.read_until("> ")
    screen.type("go on\n")
    screen.read_until("tokens in")
    screen.read_until("> ")
    assert [message["content"] for message in sent(fake)["messages"]] == ["go on"]
    screen.type("/exit\n")
    assert screen.end() == 0


def test_the_history_is_the_persons_own_and_holds_no_key(terminal, fake, environment, tmp_path):
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "INPUTRC": os.devnull}
    for _ in range(2):
        screen = terminal("chat", "-i", fake.uri(), env=state)
        screen.read_until("> ")
        screen.type(f"my key is {KEY}\n")
        screen.read_until("my key is")
        screen.read_until("> ")
        screen.type("/exit\n")
        assert screen.end() == 0
    path = tmp_path / "state" / "onym" / "history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines == ["my key is ***", "/exit"] * 2


def test_a_scripted_conversation_needs_no_terminal(run, fake):
    ran = run(
        "chat",
        "-i",
        fake.uri(),
        stdin="/help\none\n\n/nonsense\n/system be brief\n/system\ntwo\n/quit\nthree\n",
    )
    assert ran.code == 0
    assert ran.out == "one\ntwo\n"
    assert "/reset" in ran.err
    assert "/nonsense" in ran.err
    assert [message["role"] for message in sent(fake)["messages"]] == ["system", "user"]


@pytest.mark.parametrize("more", [("Hello",), ("-o", "x"), ("--json",)])
def test_a_conversation_takes_no_prompt_file_or_json(run, fake, more):
    assert run("chat", "-i", fake.uri(), *more).code == 2


def test_a_binary_file_as_prompt_is_refused_before_anything_is_sent(run, fake):
    ran = run("chat", fake.uri(), "Describe it.", stdin=b"\x89PNG\r\n\x1a\n\xff")
    assert ran.code == 2
    assert "usage.bad-message" in ran.err
    assert "onym.ImagePart" in ran.err
    assert fake.requests == []


def test_json_in_the_place_of_a_schema_file_is_explained(run, fake):
    ran = run("chat", fake.uri(), "hi", "--schema", '{"type": "object"}')
    assert (ran.code, "usage.schema" in ran.err) == (2, True)
    assert "the name of a file" in ran.err


def test_a_schema_with_a_mistake_is_an_error_with_its_place(run, fake, tmp_path):
    file = tmp_path / "schema.json"
    file.write_text('{"type":\n  object}')
    ran = run("chat", fake.uri(), "hi", "--schema", str(file))
    assert (ran.code, "usage.schema" in ran.err) == (2, True)
    assert "line 2, column 3" in ran.err


@pytest.mark.parametrize(
    "words",
    [("chat", "{uri}?max_token=9"), ("chat", "{uri}", "-p", "max_token=9"), ("explain", "{uri}?max_token=9")],
)
def test_a_parameter_that_is_spelled_like_a_standard_one_is_sent_with_a_warning(run, fake, words):
    ran = run(*(word.format(uri=fake.uri()) for word in words), "hi")
    assert ran.code == 0
    assert "did you mean max_tokens?" in ran.err
    if words[0] == "chat":
        assert sent(fake)["max_token"] == 9


def test_parameters_under_a_providers_own_name_get_no_warning(run, fake):
    assert run("chat", fake.uri() + "?temperature=0&min_p=0.1", "hi").err == ""


def test_a_uri_that_the_shell_may_have_cut_is_to_be_quoted(run, fake):
    ran = run("chat", fake.uri() + "?temp=0")
    assert (ran.code, "usage.no-prompt" in ran.err, "quotes" in ran.err) == (2, True, True)
