"""`onym check` and errors on what lies behind the grammar: near providers, APIs, parameters, refusals."""

from __future__ import annotations

import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.cli.commands.check import check_provider, find_misspellings
from onym.llm.providers import ProviderTable
from support import ROOT, as_subtests

TABLE = ProviderTable.builtin()
KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


def found(text):
    return [(each.code, text[each.start : each.end], each.fix) for each in check_provider(text, TABLE)]


@as_subtests(
    ("text", "code", "place", "fix"),
    [
        ("llm://opnai/gpt-5.5", "llm.near-provider", "opnai", "llm://openai/gpt-5.5"),
        ("llm://app@antropic/m?temp=1", "llm.near-provider", "antropic", "llm://app@anthropic/m?temp=1"),
        ("llm://api.opnai.com/gpt-5.5", "llm.near-provider", "api.opnai.com", "llm://api.openai.com/gpt-5.5"),
        ("llm://openai/m?api=respones", "llm.no-api", "respones", "llm://openai/m?api=responses"),
        ("llm://openai/m?seed=1&appi=chat", "llm.near-miss", "appi=chat", "llm://openai/m?seed=1&api=chat"),
        ("LLM://app@OPNAI/m", "llm.near-provider", "OPNAI", "LLM://app@openai/m"),
        ("llm://%6fpnai/m", "llm.near-provider", "%6fpnai", "llm://openai/m"),
        ("llm://openai/m?api", "llm.no-api", "api", None),
        ("llm://openai/m?%61pi=a&api=b", "llm.no-api", "a", None),
        ("llm://vertex/m?projct=x", "llm.near-miss", "projct=x", "llm://vertex/m?project=x"),
        (
            "llm://r.openai.azure.com/m?api-verson=2024-10-21#p",
            "llm.near-miss",
            "api-verson=2024-10-21",
            "llm://r.openai.azure.com/m?api-version=2024-10-21#p",
        ),
    ],
)
def test_a_slip_is_shown_with_its_place_and_the_uri_that_was_meant(text, code, place, fix):
    assert found(text) == [(code, place, fix)]
    assert [misspelling.fix for misspelling in find_misspellings(text, TABLE)] == [fix]


VECTORS = [
    text
    for path in sorted((ROOT / "vectors").glob("*.json"))
    for text in re.findall(r'"(llm://[^"\\\\]*)"', path.read_text(encoding="utf-8"))
]


def test_no_uri_of_the_vectors_is_too_odd_for_it():
    assert len(VECTORS) > 100
    for text in VECTORS:
        for each in check_provider(text, TABLE):
            assert 0 <= each.start < each.end <= len(text), text


@given(
    host=st.sampled_from(
        ["opnai", "openai", "VERTEX", "my-res.openai.azure.com", "gemini", "cohere", "a@b:c@ollama"]
    ),
    query=st.lists(
        st.tuples(
            st.sampled_from(
                ["api", "%61pi", "projct", "temp", "format", "x.y", "api-verson", "temperature", ""]
            ),
            st.sampled_from(["", "=", "=1", "=a", "=%7B%7D", "=json", "=true"]),
        ).map("".join)
    ).map("&".join),
)
def test_no_combination_of_host_and_query_is_too_odd_for_it(host, query):
    text = f"llm://{host}/gpt-5.5?{query}#f"
    for each in check_provider(text, TABLE):
        assert 0 <= each.start < each.end <= len(text)


def test_an_api_that_nothing_is_near_to_names_those_that_there_are():
    (only,) = check_provider("llm://openai/m?api=soap", TABLE)
    assert only.code == "llm.no-api"
    assert only.fix is None
    assert "chat, responses" in only.message


@pytest.mark.parametrize(
    "text",
    [
        "llm://openai/gpt-5.4?temp=0.5",
        "llm://gpu-box/m",
        "llm://llm.corp.example/m?temp=1.9",
        "llm://opnai:8443/m",
        "llm://localhost:8000/m?anything=1",
        "llm://vertex/m?project=x&projct=y",
        "llm://192.0.2.1/m",
        "no URI at all",
        "llm://openai/gpt-5.5?temp=hot",
    ],
)
def test_what_is_no_slip_and_no_refusal_is_left_alone(text):
    assert found(text) == []
    assert find_misspellings(text, TABLE) == ()


def test_everything_that_the_model_refuses_is_shown_at_once_each_with_its_source():
    text = "llm://anthropic/claude-sonnet-4-6?temp=1.5&seed=7&format=json"
    warnings = check_provider(text, TABLE)
    assert [text[warning.start : warning.end] for warning in warnings] == [
        "temp=1.5",
        "seed=7",
        "format=json",
    ]
    assert {warning.code for warning in warnings} == {"llm.refused"}
    assert all(warning.severity == "warning" and warning.clause for warning in warnings)


def test_a_refused_parameter_under_the_providers_own_name_is_found_too():
    text = "llm://anthropic/claude-opus-4-7?temperature=1"
    assert [each.parameter for each in check_provider(text, TABLE)] == ["temperature"]


def test_a_key_stays_out_of_the_mended_uri():
    (only,) = check_provider(f"llm://app:{KEY}@opnai/gpt-5.5", TABLE)
    assert only.fix == "llm://app:***@openai/gpt-5.5"


def test_check_shows_it_and_fails_with_strict_alone(run):
    ran = run("check", "llm://openai/gpt-5.5?temp=0.2")
    assert ran.code == 0
    assert "llm.refused" in ran.out
    assert run("check", "--strict", "llm://openai/gpt-5.5?temp=0.2").code == 1
    ran = run("check", "--json", "llm://opnai/gpt-5.5")
    assert [each["code"] for each in ran.json["diagnostics"]] == ["llm.near-provider"]


def test_check_knows_the_rows_of_the_configuration_and_does_without_a_broken_one(run, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[providers.corporate]\nhosts = ["llm.corp.example"]\n', encoding="utf-8")
    ran = run("check", "llm://corprate/m", env={"ONYM_CONFIG": str(file)})
    assert "fix: llm://corporate/m" in ran.out
    file.write_text("[broken", encoding="utf-8")
    ran = run("check", "llm://corprate/m", env={"ONYM_CONFIG": str(file)})
    assert (ran.code, ran.out) == (0, "ok  llm://corprate/m\n")


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("llm://openai/gpt-5.5?api=respones", "llm://openai/gpt-5.5?api=responses"),
        ("llm://vertex/gemini-3.8-flash?projct=x", "llm://vertex/gemini-3.8-flash?project=x"),
        ("openai/gpt-5.5", "llm://openai/gpt-5.5"),
    ],
)
def test_an_error_asks_whether_another_uri_was_meant(run, uri, meant):
    ran = run("explain", "--json", uri)
    assert ran.json["error"]["hint"] == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("localhost:11434/llama3", "llm://localhost:11434/llama3"),
        ("http://localhost:11434/v1", "llm://localhost:11434/MODEL"),
        ("https://api.openai.com", "llm://api.openai.com/MODEL"),
    ],
)
def test_the_address_of_a_server_is_read_as_a_uri_that_was_meant(run, text, meant):
    ran = run("chat", text, "hi")
    assert ran.code == 3
    assert f"did you mean {meant}?" in ran.err
    assert "next" not in ran.err


def test_an_address_with_a_key_is_not_repeated(run):
    ran = run("chat", "http://app:made-up-key-0123@localhost:8000/v1", "hi")
    assert ran.code == 3
    assert "made-up-key" not in ran.err


def test_a_uri_without_a_model_leads_to_the_list_of_models(run):
    assert "next      onym models list llm://ollama/any" in run("chat", "llm://ollama", "hi").err
    assert "next      onym models list llm://ollama/any" in run("explain", "llm://ollama/").err


@pytest.mark.parametrize("uri", ["nowhere/gpt-5.5", "openai/", "/gpt-5.5"])
def test_text_without_a_scheme_that_names_no_provider_is_told_how_a_uri_begins(run, uri):
    assert "uri.no-scheme" in run("parse", uri).err


def test_a_refusal_points_at_check_which_shows_all_of_them(run):
    uri = "llm://anthropic/claude-sonnet-4-6?seed=7&temp=1.5"
    ran = run("explain", "--json", uri)
    assert ran.json["error"]["next"] == f"onym check '{uri}'"
    # a value of -p does not stand in the URI: check would not see it
    ran = run("explain", "--json", "-p", "seed=7", "llm://anthropic/claude-sonnet-4-6")
    assert ran.json["error"]["code"] == "llm.unsupported"
    assert "next" not in ran.json["error"]


def test_a_refusal_of_a_uri_from_a_pipe_has_no_command_to_type_again(run):
    ran = run("explain", "--json", "-", stdin="llm://openai/gpt-5.5?temp=0.2\n")
    assert ran.json["error"]["code"] == "llm.unsupported"
    assert "next" not in ran.json["error"]


def test_explain_warns_of_a_provider_that_was_probably_meant(run):
    ran = run("explain", "llm://opnai/gpt-5.5")
    assert ran.code == 0
    assert ran.err == "warning: no provider with this host is known; did you mean openai?\n"


@pytest.mark.parametrize(
    ("uri", "code", "severity"),
    [
        ("llm://openai/gpt-5.3-codex?api=chat", "llm.no-api", "error"),
        ("llm://openai/gpt-6-astra?api=chat", "llm.no-tools", "warning"),
        ("llm://openai/gpt-5.4?api=chat&reasoning_effort=low", "llm.no-tools", "warning"),
        ("llm://openai/gpt-6-luna?stop=END", "llm.refused", "warning"),
        ("llm://openai/gpt-5.3-codex?n=2", "llm.refused", "warning"),
    ],
)
def test_an_api_that_does_not_serve_the_model_is_reported(uri: str, code: str, severity: str) -> None:
    (only,) = check_provider(uri, TABLE)
    assert (only.code, only.severity) == (code, severity)
    assert uri[only.start : only.end] in ("chat", "api=chat", "stop=END", "n=2")


@pytest.mark.parametrize(
    "rest",
    ["gpt-6-luna", "gpt-5.3-codex", "gpt-6-luna?reasoning_effort=low", "gpt-5.4?api=chat", "o3?api=chat"],
)
def test_a_model_without_an_api_in_the_uri_is_right(rest: str) -> None:
    # o3 ends on 2026-12-11
    assert check_provider(f"llm://openai/{rest}", TABLE, date(2026, 8, 1)) == ()
