"""parse, check, normalize and build."""

from __future__ import annotations

import json

import pytest

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"
WITH_KEY = f"llm://my-app:{KEY}@api.openai.com/gpt-5.5"


def test_parse_shows_the_parts_and_the_types_of_the_parameters(run):
    ran = run("parse", "llm://my-app@api.openai.com/gpt-5.5?temp=0.7&max_tokens=9&a.b=true&x=y&z=[1]")
    assert ran.code == 3  # raw brackets are no URI
    ran = run("parse", "llm://my-app@api.openai.com/gpt-5.5?temp=0.7&max_tokens=9&a.b=true&x=y&z=%5B1%5D")
    assert ran.code == 0
    rows = dict(line.strip().split("  ", 1) for line in ran.out.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["host"] == "api.openai.com"
    assert rows["model"] == "gpt-5.5"
    assert rows["label"] == "my-app"
    assert rows["temp"] == "0.7  (number)"
    assert rows["max_tokens"] == "9  (integer)"
    assert rows["a.b"] == "true  (boolean)"
    assert rows["x"] == "y  (text)"
    assert rows["z"] == "[1]  (JSON)"
    assert ran.err == ""


def test_parse_as_json_is_one_document_with_everything(run):
    ran = run("parse", "--json", "llm://app@[::1]:8080/a/b?stop=x,y&seed=1#review")
    assert ran.json == {
        "uri": "llm://app@[::1]:8080/a/b?stop=x,y&seed=1#review",
        "scheme": "llm",
        "label": "app",
        "key": None,
        "host": "::1",
        "host_type": "IPv6address",
        "port": 8080,
        "effective_port": 8080,
        "model": "a/b",
        "params": {"stop": ["x", "y"], "seed": 1},
        "fragment": "review",
    }


@pytest.mark.requirement("llm-10.1-a")
@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize("command", ["parse", "check", "normalize"])
def test_no_command_shows_a_key(run, command, flags):
    ran = run(command, *flags, WITH_KEY + "?api_key=qwertyuiop1234")
    assert "0123456789" not in ran.out + ran.err
    assert "qwertyuiop" not in ran.out + ran.err
    assert "***" in ran.out


def test_a_key_on_the_command_line_earns_one_note(run):
    ran = run("parse", WITH_KEY)
    assert ran.err.count("note: ") == 1
    assert "--key-stdin" in ran.err
    assert "auth=env:" in ran.err


def test_control_characters_in_a_value_do_not_reach_the_terminal(run):
    ran = run("parse", "llm://h/m?x=%1b%5b31m")
    assert "\x1b" not in ran.out
    assert "\\x1b[31m" in ran.out


def test_parse_refuses_with_the_place_the_rule_and_what_to_do_next(run):
    ran = run("parse", "llm://h.example/m?temp=hot")
    assert ran.code == 3
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert lines[0] == "error: the parameter temp is not a decimal number"
    assert lines[1] == "  llm://h.example/m?temp=hot"
    assert lines[2].index("^") == lines[1].index("hot")
    assert any("10.3" in line for line in lines)
    assert any("onym check 'llm://h.example/m?temp=hot'" in line for line in lines)
    assert "Traceback" not in ran.err


def test_an_error_as_json_is_on_standard_output_alone(run):
    ran = run("parse", "--json", "llm://h.example/m?temp=hot")
    assert ran.code == 3
    assert ran.err == ""
    error = ran.json["error"]
    assert error["code"] == "llm.bad-number"
    assert error["parameter"] == "temp"
    assert error["offset"] == 23
    assert error["exit_code"] == 3


@pytest.mark.requirement("onym-read-e")
def test_an_error_never_shows_the_key_of_a_uri_that_cannot_be_read(run):
    ran = run("parse", f"llm://my-app:{KEY}@api.openai.com:99999/gpt-5.5")
    assert ran.code == 3
    assert "0123456789" not in ran.err
    assert "my-app:***@" in ran.err


@pytest.mark.requirement("onym-read-b")
@pytest.mark.parametrize(
    "words", [("parse", "llm://h/m", WITH_KEY), (WITH_KEY,), ("parse", f"--x={WITH_KEY}")]
)
def test_a_key_in_the_wrong_place_of_the_command_line_is_not_shown(run, words):
    for flags in ((), ("--json",)):
        ran = run(*words, *flags)
        assert ran.code == 2
        assert "0123456789" not in ran.out + ran.err


def test_strict_refuses_what_the_draft_forbids(run):
    assert run("parse", "llm://h/llama3:8b").code == 0
    assert run("parse", "--strict", "llm://h/llama3:8b").code == 3


@pytest.mark.requirement("onym-read-h")
def test_unicode_that_a_person_typed_is_converted_and_shown(run):
    ran = run("parse", "--json", "llm://bücher.example/m")
    assert ran.json["host"] == "xn--bcher-kva.example"
    assert ran.err == "note: read as llm://xn--bcher-kva.example/m\n"


@pytest.mark.requirement("onym-read-h")
def test_unicode_that_comes_from_a_pipe_is_refused(run):
    ran = run("parse", "-", stdin="llm://bücher.example/m\n")
    assert ran.code == 3
    assert "read as" not in ran.err


def test_an_iri_that_cannot_be_converted_is_refused_with_its_place(run):
    ran = run("parse", "llm://b\u00fc\u2488/m")
    assert ran.code == 3
    assert "^" in ran.err


def test_parse_reads_ai_uris_by_their_scheme(run):
    ran = run("parse", "--json", "AI://Bank:8/x?y#z")
    assert ran.json["scheme"] == "ai"
    assert ran.json["host"] == "Bank"
    assert run("parse", "ai:/agent/ x").code == 3


def test_parse_reads_any_uri_reference_when_asked(run):
    ran = run(
        "parse", "--json", "--as", "uri", "https://u:hunter2hunter2@example.org:80/a?api_key=abcdefgh12#f"
    )
    assert ran.json == {
        "uri": "https://u:***@example.org:80/a?api_key=***#f",
        "scheme": "https",
        "authority": "u:***@example.org:80",
        "userinfo": "u:***",
        "host": "example.org",
        "host_type": "reg-name",
        "port": "80",
        "path": "/a",
        "query": "api_key=***",
        "fragment": "f",
    }
    assert run("parse", "--json", "--as", "uri", "//u@h/p").json["userinfo"] == "u"
    assert run("parse", "--as", "uri", "a b").code == 3


def test_a_uri_is_read_from_standard_input(run):
    assert run("parse", "--json", "-", stdin="\n  \nllm://h/m\nllm://i/n\n").json["host"] == "h"


def test_an_empty_pipe_is_a_usage_error(run):
    ran = run("parse", "-", stdin="\n")
    assert ran.code == 2
    assert "usage.no-uri" in ran.err


def test_octets_that_are_not_utf_8_are_refused_and_not_guessed(run):
    assert run("parse", "-", stdin=b"llm://h/\xff\n").code == 3


def test_a_uri_is_read_from_a_variable(run):
    assert run("parse", "--json", "env:MODEL_URI", env={"MODEL_URI": "llm://h/m"}).json["host"] == "h"
    ran = run("parse", "env:NO_SUCH_VARIABLE")
    assert ran.code == 2
    assert "NO_SUCH_VARIABLE" in ran.err


def test_a_name_of_the_configuration_stands_for_its_uri(run, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(f'[endpoints]\nfast = "{WITH_KEY}"\n', encoding="utf-8")
    env = {"ONYM_CONFIG": str(config)}
    ran = run("parse", "--json", "fast", env=env)
    assert ran.json["uri"] == "llm://my-app:***@api.openai.com/gpt-5.5"
    assert ran.err == ""
    assert run("check", "fats", env=env).code == 4


def test_a_word_that_names_nothing_shows_how_a_uri_begins(run):
    ran = run("parse", "api.openai.com")
    assert ran.code == 4
    assert "llm://openai/gpt-5.5" in ran.err


def test_check_of_a_good_uri_says_ok(run):
    ran = run("check", "llm://api.openai.com/gpt-5.4?temp=0.7")
    assert (ran.code, ran.out) == (0, "ok  llm://api.openai.com/gpt-5.4?temp=0.7\n")


@pytest.mark.requirement("onym-read-a")
def test_check_underlines_names_the_rule_and_offers_the_mended_uri(run):
    ran = run("check", "llm://localhost/llama3:8b")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0].startswith("error: ")
    assert "3.2" in lines[0]
    assert lines[1] == "  llm://localhost/llama3:8b"
    assert lines[2].startswith(" " * lines[1].index(":8b") + "^ llm.raw-model")
    assert lines[3] == "  fix: llm://localhost/llama3%3A8b"


def test_check_of_warnings_alone_passes_unless_strict(run):
    assert run("check", "LLM://h/m").code == 0
    assert run("check", "--strict", "LLM://h/m").code == 1


def test_check_takes_several_uris_and_the_lines_of_a_pipe(run):
    ran = run("check", "llm://h/m", "-", "--json", stdin="llm://i/m:1\n\nnonsense\n")
    assert ran.code == 1
    assert [line["ok"] for line in ran.lines] == [True, False, False]
    assert ran.lines[1]["diagnostics"][0]["code"] == "llm.raw-model"
    assert ran.lines[0]["uri"] == "llm://h/m"


def test_check_of_what_is_no_uri_is_a_failed_check_not_a_crash(run):
    ran = run("check", "-", stdin=b"llm://h/\xff\xfe\n\x00\n")
    assert ran.code == 1
    assert ran.out.count("error: ") == 2


def test_check_of_a_file_names_the_option_that_reads_files(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.env").write_text("LLM_URI=llm://ollama/llama3:8b\n")
    (tmp_path / ".env").write_text("LLM_URI=llm://ollama/llama3:8b\n")
    for name in ("a.env", ".env", "."):
        ran = run("check", name)
        assert ran.code == 2
        assert f"onym check --files {name}" in ran.err
    assert "--files" not in run("check", "absent.env").err


def test_check_of_an_endpoint_is_not_stopped_by_a_file_of_its_name(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fast").write_text("")
    (tmp_path / "c.toml").write_text('[endpoints]\nfast = "llm://openai/gpt-5.4-mini"\n')
    assert run("check", "fast", env={"ONYM_CONFIG": str(tmp_path / "c.toml")}).code == 0


def test_check_searches_a_folder_for_files_with_uris(run, tmp_path):
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "sub" / "a.env").write_text("LLM_URI=llm://ollama/llama3:8b\n")
    (tmp_path / "sub" / "latin.txt").write_bytes(b"caf\xe9 llm://ollama/phi:3\n")
    (tmp_path / "sub" / "binary").write_bytes(b"\0 llm://ollama/phi:3\n")
    (tmp_path / "sub" / ".git" / "config").write_text("llm://ollama/phi:3\n")
    ran = run("check", "--json", "--files", str(tmp_path))
    assert ran.code == 1
    places = [record["place"] for record in ran.lines]
    assert places == [f"{tmp_path}/sub/a.env:1:9", f"{tmp_path}/sub/latin.txt:1:6"]


def test_check_of_files_says_how_to_find_the_keys_in_valid_uris(run, tmp_path):
    path = tmp_path / "a b.env"
    path.write_text(f"LLM_URI=llm://app:{KEY}@openai/gpt-5.4-mini\n")
    ran = run("check", "--files", str(path))
    assert (ran.code, ran.out) == (0, "")
    assert f"onym redact --check '{path}'" in ran.err
    assert KEY not in ran.err
    assert run("redact", "--check", str(path)).code == 1


def test_normalize_writes_the_real_host_and_one_spelling(run):
    ran = run("normalize", "LLM://OpenAI/gpt%2d5.5?temp=0.70", "llm://LOCALHOST:11434/m")
    assert ran.out == "llm://api.openai.com/gpt-5.5?temp=0.7\nllm://localhost/m\n"


def test_normalize_as_json_is_one_object_a_line(run):
    ran = run("normalize", "--json", "llm://h/a", "llm://h/b")
    assert ran.lines == [{"uri": "llm://h/a"}, {"uri": "llm://h/b"}]


def test_normalize_by_rfc_3986_alone_takes_any_scheme(run):
    ran = run("normalize", "--generic", "HTTP://Example.ORG:80/%7ea/./b")
    assert ran.out == "http://example.org/~a/b\n"


def test_normalize_of_any_uri_hides_what_follows_the_user(run):
    ran = run("normalize", "--generic", "HTTPS://u:hunter2hunter2@Example.ORG")
    assert "hunter2" not in ran.out + ran.err


def test_normalize_writes_the_key_only_when_told_to(run):
    assert KEY not in run("normalize", WITH_KEY).out
    assert run("normalize", "--reveal", WITH_KEY).out == WITH_KEY + "\n"


def test_build_encodes_every_part(run):
    ran = run(
        "build", "--host", "h.example", "--port", "8443", "--model", "a/b c:1", "--label", "my app",
        "-p", "temp=0.2", "-p", "x.y=7", "-p", "q=a&b=c+d", "-p", "stop=a,b", "--profile", "code review",
    )  # fmt: skip
    assert ran.out == (
        "llm://my%20app@h.example:8443/a/b%20c%3A1?temp=0.2&x.y=7&q=a%26b%3Dc%2Bd&stop=a,b#code%20review\n"
    )


def test_build_knows_providers_by_one_word(run):
    ran = run("build", "--provider", "openai", "--model", "gpt-5.5", "--key-env", "MY_KEY", "--json")
    assert ran.json["uri"].startswith("llm://api.openai.com/gpt-5.5?auth=env")
    assert "MY_KEY" in ran.json["uri"]


def test_build_of_an_unknown_provider_offers_a_near_one(run):
    ran = run("build", "--provider", "openia", "--model", "m")
    assert ran.code == 2
    assert "openai" in ran.err


def test_build_reads_a_key_from_standard_input_and_masks_it(run):
    ran = run("build", "--host", "h", "--model", "m", "--key-stdin", stdin=KEY + "\n")
    assert ran.out == "llm://:***@h/m\n"
    assert "--reveal" in ran.err
    ran = run("build", "--host", "h", "--model", "m", "--key-stdin", "--reveal", stdin=KEY + "\r\n")
    assert ran.out == f"llm://:{KEY}@h/m\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "m"),
        ("--host", "h", "--provider", "openai", "--model", "m"),
        ("--host", "h", "--model", "m", "--key-stdin", "--key-env", "X"),
        ("--host", "h", "--model", "m", "-p", "no-equals-sign"),
        ("--host", "h", "--model", "m", "-p", "=value"),
        ("--host", "h", "--model", "m", "--key-stdin"),
        ("--host", "h"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_exit_code_2(run, arguments):
    ran = run("build", *arguments, stdin="")
    assert ran.code == 2
    assert ran.out == ""


def test_two_lines_are_no_key(run):
    assert run("build", "--host", "h", "--model", "m", "--key-stdin", stdin="a\nb\n").code == 2


def test_a_value_out_of_range_is_refused_at_the_command_line_too(run):
    ran = run("build", "--host", "h", "--model", "m", "-p", "temp=3")
    assert ran.code == 3
    assert "temp" in ran.err


def test_a_usage_error_as_json_is_an_object_too(run):
    ran = run("parse", "--json", "--no-such-option")
    assert ran.code == 2
    assert ran.err == ""
    assert ran.json["error"]["code"] == "usage.command-line"


def test_json_as_an_argument_is_no_option(run):
    ran = run("parse", "--", "--json")
    assert ran.code == 3
    assert ran.out == ""


def test_json_output_is_ascii_whatever_the_text(run):
    ran = run("parse", "--json", "llm://h/m?x=%C3%A9%F0%9F%98%80")
    assert ran.out.isascii()
    assert json.loads(ran.out)["params"]["x"] == "é😀"


@pytest.mark.parametrize(
    "command",
    [
        ["check", "llm://ollama/llama3:8b?temperature=0.2"],
        ["chat", "llm://ollama/llama3?temp=as-hot-as-possible", "Hi"],
    ],
    ids=["findings", "error"],
)
def test_at_a_terminal_no_line_breaks_inside_a_word(terminal, command):
    shown = terminal(*command, env={"NO_COLOR": "1"})
    assert shown.end() != 0
    lines = shown.shown.splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 80 for line in lines), lines
    assert "draft-levy-llm-uri-scheme-00" in " ".join(lines)


def test_a_byte_order_mark_is_not_part_of_the_first_uri(run):
    ran = run("normalize", "-", stdin=b"\xef\xbb\xbfLLM://h/m\r\n\r\nllm://i/m\r\n")
    assert (ran.code, ran.out) == (0, "llm://h/m\nllm://i/m\n")
