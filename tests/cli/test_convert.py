"""`onym convert`: both ways, notes on standard error, JSON, and no key anywhere unless asked for."""

from __future__ import annotations

import json

import pytest

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


def test_a_name_of_another_tool_becomes_a_uri_alone_on_standard_output(run):
    ran = run("convert", "--from", "langchain", "openai:gpt-5.5")
    assert (ran.code, ran.out, ran.err) == (0, "llm://api.openai.com/gpt-5.5\n", "")
    ran = run("convert", "--from", "ai-sdk", "anthropic/claude-sonnet-4.6")
    assert ran.out == "llm://ai-gateway.vercel.sh/anthropic/claude-sonnet-4.6\n"


def test_the_environment_is_read_and_its_key_only_pointed_at(run):
    env = {"OPENAI_API_KEY": KEY, "OPENAI_MODEL": "gpt-5.5"}
    ran = run("convert", "--from", "env", env=env)
    assert ran.out == "openai  llm://api.openai.com/gpt-5.5?auth=env%3AOPENAI_API_KEY\n"
    ran = run("convert", "--from", "env", "--with-key", env=env)
    assert KEY in ran.out


def test_the_model_may_be_said_where_no_variable_does(run):
    ran = run("convert", "--from", "env", env={"GROQ_API_KEY": KEY})
    assert ran.out == ""
    assert "GROQ_MODEL" in ran.err
    assert "the source names no model" in ran.err
    ran = run("convert", "--from", "env", "--model", "m", env={"GROQ_API_KEY": KEY})
    assert ran.out == "groq  llm://api.groq.com/m?auth=env%3AGROQ_API_KEY\n"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_file_of_litellm_gives_names_uris_and_notes_without_its_keys(run, tmp_path, flags):
    path = tmp_path / "config.yaml"
    path.write_text(
        "model_list:\n- model_name: fast\n  litellm_params:\n"
        f"    model: openai/gpt-5.5\n    api_key: {KEY}\n",
        encoding="utf-8",
    )
    ran = run("convert", "--from", "litellm", str(path), *flags)
    assert ran.code == 0
    assert KEY not in ran.out + ran.err
    assert "note: model_list[0].api_key: the key was not copied" in ran.err
    if flags:
        assert ran.json["uris"] == [{"name": "fast", "uri": "llm://api.openai.com/gpt-5.5"}]
        assert ran.json["notes"][0]["where"] == "model_list[0].api_key"
    else:
        assert ran.out == "fast  llm://api.openai.com/gpt-5.5\n"


def test_a_list_comes_from_a_pipe_too(run):
    ran = run("convert", "--from", "litellm", "-", stdin='[{"litellm_params": {"model": "groq/m"}}]')
    assert ran.out == "llm://api.groq.com/m\n"


def test_a_uri_of_llm_strings_is_read_with_the_overrides_of_its_hosts(run):
    ran = run("convert", "--from", "llm-strings", "llm://openai/m?max=5")
    assert ran.out == "llm://api.openai.com/m?max_tokens=5\n"
    env = {"LLM_STRINGS_OPENAI_HOST": "eu.example"}
    assert run("convert", "--from", "llm-strings", "llm://openai/m", env=env).out == "llm://eu.example/m\n"


def test_a_uri_becomes_what_another_tool_takes(run):
    ran = run("convert", "--to", "litellm", "llm://openai/gpt-5.5?max_tokens=5&auth=env:MY")
    assert json.loads(ran.out) == {"model": "openai/gpt-5.5", "api_key": "os.environ/MY", "max_tokens": 5}
    assert run("convert", "--to", "env", "llm://localhost:8000/a%20b").out == (
        "OPENAI_MODEL='a b'\nOPENAI_BASE_URL=http://localhost:8000/v1\n"
    )
    ran = run("convert", "--to", "ai-sdk", "--json", "llm://openai/gpt-5.5?x=1")
    assert ran.json["value"] == {"model": "openai:gpt-5.5"}
    assert ran.json["notes"][0]["where"] == "x"
    assert json.loads(run("convert", "--to", "langchain", "llm://groq/m").out) == {"model": "groq:m"}


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_key_of_a_uri_is_written_only_when_asked_for(run, flags):
    uri = f"llm://:{KEY}@api.openai.com/m"
    ran = run("convert", "--to", "litellm", uri, *flags)
    assert KEY not in ran.out + ran.err
    ran = run("convert", "--to", "litellm", "--with-key", uri, *flags)
    assert KEY in ran.out
    assert KEY not in ran.err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--from", "env", "--to", "env"),
        ("--from", "env", "text"),
        ("--from", "langchain"),
        ("--to", "litellm"),
        ("--from", "litellm", "no-such-file.yaml"),
        ("--from", "langchain", "nobody:m"),
        ("--from", "cobol", "x"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(run, words):
    ran = run("convert", *words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("error: ")


def test_a_provider_without_a_word_there_is_said_so(run):
    ran = run("convert", "--to", "litellm", "llm://fal.run/m")
    assert ran.code != 0
    assert "convert.no-word" in ran.err
    assert "LiteLLM" in ran.err


def test_rows_of_the_configuration_count_both_ways(run, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(
        '[providers.openai]\nhosts = ["gateway.corp.example"]\n\n'
        '[providers.corp]\nhosts = ["llm.corp.example"]\nbase_path = "/models"\n'
        'title = "Corp"\ndocs = "https://corp.example"\nkey_variables = ["CORP_API_KEY"]\n',
        encoding="utf-8",
    )
    env = {"ONYM_CONFIG": str(config)}
    ran = run("convert", "--to", "litellm", "llm://openai/gpt-5.5", env=env)
    assert json.loads(ran.out)["api_base"] == "https://gateway.corp.example/v1"
    assert (
        "OPENAI_BASE_URL=https://gateway.corp.example/v1"
        in run("convert", "--to", "env", "llm://openai/m").out
    )
    ran = run("convert", "--to", "langchain", "llm://openai/m")
    assert json.loads(ran.out)["base_url"] == "https://gateway.corp.example/v1"
    assert "baseURL" in run("convert", "--to", "ai-sdk", "llm://openai/m").err
    entry = {"model": "openai/m", "api_base": "https://llm.corp.example/models"}
    ran = run("convert", "--from", "litellm", "-", stdin=json.dumps([{"litellm_params": entry}]))
    assert (ran.out, ran.err) == ("llm://llm.corp.example/m\n", "")
    ran = run("convert", "--from", "env", env={"CORP_API_KEY": KEY, "CORP_MODEL": "m"})
    assert ran.out == "corp  llm://llm.corp.example/m?auth=env%3ACORP_API_KEY\n"


def test_a_providers_word_in_another_tool_means_the_host_that_it_means_there(run, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[providers.openai]\nhosts = ["gateway.corp.example"]\n', encoding="utf-8")
    ran = run(
        "convert", "--from", "litellm", "-", stdin='[{"litellm_params": {"model": "openai/m"}}]',
        env={"ONYM_CONFIG": str(config)},
    )  # fmt: skip
    assert ran.out == "llm://api.openai.com/m\n"


def test_the_name_of_a_model_in_place_of_a_litellm_file_is_shown_as_a_uri(run):
    ran = run("convert", "--from", "litellm", "groq/llama-3.3-70b")
    assert (ran.code, "usage.file" in ran.err) == (2, True)
    assert "llm://groq/llama-3.3-70b" in ran.err
    assert "llm://" not in run("convert", "--from", "litellm", "folder/litellm.yaml").err
