"""One word per idea: durations, bodies, shared options, confirmations and missing files, in all commands."""

from __future__ import annotations

import json
import logging
import shlex
from collections import defaultdict

import click
import pytest
from jsonschema import Draft202012Validator

from onym.cli import exit_codes
from onym.cli._app import app
from onym.cli._commands import SHARED_OPTIONS, DurationType, format_duration
from onym.cli.commands.config import load_schemas
from support import as_subtests

#: options whose metavar depends on the command, with the reason
DIFFERENT = {
    "--from": "a format to convert, or the hash that a log continues",
    "--host": "the server of a URI, or the address to listen on",
    "--keys": "a folder of signing keys, or a file of public ones",
    "--history": "a file of public keys, or whether to write all of them",
    "--revoke": "the ID of a token, or whether the old secrets end at once",
}


def walk(command=app, words=()):
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(app), name)
            yield from walk(found, (*words, name))


def options():
    for words, command in walk():
        for param in command.params:
            if isinstance(param, click.Option):
                yield words, param


def test_an_option_has_one_metavar_and_one_type_everywhere():
    found = defaultdict(set)
    for _, option in options():
        kind = "flag" if option.is_flag else option.make_metavar(click.Context(click.Command("x")))
        if isinstance(option.type, click.Choice) and option.metavar is None and not option.is_flag:
            kind = "choice"  # of the values that the command has
        for name in option.opts:
            if name.startswith("--"):
                found[name].add(kind)
    assert {name: kinds for name, kinds in found.items() if len(kinds) > 1 and name not in DIFFERENT} == {}


def test_a_short_option_means_one_thing_everywhere():
    found = defaultdict(set)
    for _, option in options():
        for name in option.opts:
            if not name.startswith("--"):
                found[name].add(next((long for long in option.opts if long.startswith("--")), name))
    assert {name: longs for name, longs in found.items() if len(longs) > 1} == {}
    shared = {name for option in SHARED_OPTIONS for name in option.opts}
    assert not shared & {name for _, option in options() for name in option.opts}


def test_every_time_is_a_duration_with_a_unit():
    durations = {
        name for _, option in options() for name in option.opts if isinstance(option.type, DurationType)
    }
    assert durations == {"--timeout", "--wait", "--poll", "--max-age", "--keep", "--lifetime"}
    told = [f"{words} {option.opts}" for words, option in options() if "SECONDS" in str(option.metavar)]
    assert told == []


@as_subtests(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30.0), ("2m", 120.0), ("12h", 43_200.0), ("90d", 7_776_000.0), ("1.5s", 1.5)],
)
def test_a_duration_has_a_unit(text, seconds):
    assert DurationType().convert(text, None, None) == seconds
    assert DurationType().convert(format_duration(seconds), None, None) == seconds


@as_subtests("text", ["30", "0.5", "s", "30 s", "30S", "-1s", "1w", "1e3s", "", "٣s", "9" * 30 + "s", "0s"])
def test_other_texts_are_no_durations(text):
    with pytest.raises(click.UsageError):
        DurationType().convert(text, None, None)


def test_a_bare_number_says_what_to_write(run):
    ran = run("ping", "llm://localhost:1/m", "--timeout", "30")
    assert ran.code == exit_codes.USAGE
    assert "30s" in ran.err


@as_subtests(
    "args",
    [
        ("--json", "parse", "llm://h/m"),
        ("parse", "--json", "llm://h/m"),
        ("parse", "llm://h/m", "--json", "-q", "-v", "--color", "never"),
        ("-q", "--color", "always", "parse", "llm://h/m", "--json"),
    ],
)
def test_shared_options_work_before_and_after_the_name(run, args):
    assert run(*args).json["host"] == "h"


def test_shared_options_work_in_the_middle_too(run):
    assert run("registry", "--json", "show", "http").json["entry"]["name"] == "http"
    assert run("models", "-q", "list", "--local").out == run("models", "--local", "-q").out


def test_quiet_drops_notes_and_verbose_adds_what_is_used(run, tmp_path):
    uri = "llm://app:sk-proj-0123456789abcdefghijABCDEFGHIJ@h/m"
    assert "note" in run("parse", uri).err
    assert run("-q", "parse", uri).err == ""
    told = run("-v", "explain", "llm://localhost:1/m", "Hi").err
    assert all(name in told for name in ("configuration:", "endpoint:", "policy:", "proxy:", "time:"))
    shown = run("explain", uri, "Hi", "--verbose").err
    assert "0123456789" not in shown


def test_verbose_shows_log_records_once_and_masked(run):
    for _ in range(2):
        assert run("-v", "parse", "llm://h/m").code == 0
    handlers = [
        handler
        for handler in logging.getLogger("onym").handlers
        if type(handler).__name__ == "SessionLogHandler"
    ]
    assert len(handlers) == 1
    logging.getLogger("onym").removeHandler(handlers[0])
    logging.getLogger("onym").setLevel(logging.NOTSET)


def test_colour_can_be_forced_and_forbidden(run, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in run("--color", "always", "cache", "stats").out
    assert "\x1b[" in run("cache", "stats", "--color", "always").out
    assert "\x1b[" not in run("cache", "stats", "--color", "never").out
    assert "\x1b[" not in run("cache", "stats").out
    assert run("cache", "stats", "--color", "red").code == exit_codes.USAGE


def test_colour_follows_the_terminal_and_no_color(terminal):
    at_terminal = terminal("cache", "stats")
    assert at_terminal.end() == 0
    assert "\x1b[" in at_terminal.shown
    plain = terminal("cache", "stats", env={"NO_COLOR": "1"})
    assert plain.end() == 0
    assert "\x1b[" not in plain.shown


#: commands that cannot be undone, without `--yes`
ASKING = [
    ("ai", "keys", "revoke", "keys", "kid"),
    ("ai", "audit", "repair", "audit.jsonl"),
    ("ai", "audit", "rotate", "audit.jsonl", "--keep", "90d"),
    ("ai", "gateway", "secrets", "rotate", "secrets", "--revoke"),
    ("ai", "gateway", "sessions", "end", "login ann"),
    ("batch", "llm://localhost:1/m", "in", "-o", "out", "--restart"),
    ("batch", "llm://localhost:1/m", "in", "-o", "out", "--provider-batch", "--cancel"),
    ("registry", "restore", "out", "--db", "new.db"),
]


@as_subtests("words", ASKING, ids=" ".join)
def test_nothing_is_lost_without_a_confirmation(run, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").write_text("earlier results")
    ran = run(*words, "--json")
    assert ran.code == exit_codes.USAGE
    assert ran.json["error"]["code"] == "usage.confirmation"
    assert ran.json["error"]["next"].endswith("--yes")
    assert (tmp_path / "out").read_text() == "earlier results"


def test_the_command_to_confirm_works_as_printed(run, tmp_path):
    folder = str(tmp_path / "my keys")
    kid = run("ai", "keys", "new", folder, "--json").json["kid"]
    words = shlex.split(run("ai", "keys", "revoke", folder, kid, "--json").json["error"]["next"])
    assert words[0] == "onym"
    assert run(*words[1:]).json["kid"] != kid


def test_every_command_that_asks_can_be_told_not_to():
    asking = {words[:2] for words in ASKING} | {
        ("cache", "clear"),
        ("registry", "redact"),
        ("registry", "user"),
    }
    having = {words for words, option in options() if "--yes" in option.opts}
    assert {words[:2] if words[0] != "batch" else words for words in having} == {
        words if words[0] != "batch" else ("batch",) for words in asking
    }


MISSING = "missing.txt"
NAMING = [
    ("chat", "llm://localhost:1/m", "x", "--schema", MISSING),
    ("chat", "llm://embedded/x", "hi", "--gguf", MISSING),
    ("batch", "llm://localhost:1/m", MISSING, "-o", "out"),
    ("redact", MISSING),
    ("redact", "--check", MISSING),
    ("ai", "verify", MISSING, "--keys", MISSING),
    ("ai", "invoke", "ai://localhost:1/x", "-d", f"@{MISSING}"),
    ("ai", "invoke", "ai://localhost:1/x", "--approval", MISSING, "--idempotency-key", "k"),
    ("ai", "audit", "verify", MISSING),
    ("ai", "audit", "repair", MISSING, "--yes"),
    ("ai", "audit", "rotate", MISSING),
    ("ai", "keys", "list", MISSING),
    ("ai", "discover", "h", "--ca", MISSING),
    ("ai", "discover", "h", "--namespaces", MISSING),
    ("ai", "gateway", "check", "--config", MISSING),
    ("ai", "gateway", "--config", MISSING),
    ("ai", "gateway", "--ca", MISSING),
    ("ai", "gateway", "--keys", MISSING),
    ("registry", "serve", "--config", MISSING),
    ("registry", "tick", "--config", MISSING),
    ("registry", "status", "uri-schemes-1", "--db", MISSING),
    ("registry", "submit", "--dry-run", MISSING),
    ("registry", "restore", MISSING, "--yes", "--db", "new.db"),
    ("registry", "init", "--db", "new.db", "--definition", MISSING),
    ("scheme", "check", MISSING),
    ("scheme", "match", MISSING, "x"),
]


@as_subtests("words", NAMING, ids=" ".join)
def test_a_missing_file_has_one_exit_code(run, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*words).code == exit_codes.USAGE


def test_a_missing_file_of_the_variable_is_an_error(run, tmp_path):
    env = {"ONYM_CONFIG": str(tmp_path / MISSING)}
    for words in (("config", "show"), ("explain", "llm://localhost:1/m", "Hi"), ("chat", "fast", "Hi")):
        ran = run(*words, "--json", env=env)
        assert (ran.code, ran.json["error"]["code"]) == (exit_codes.USAGE, "config.missing")
    # these two are about the path itself
    assert run("config", "path", env=env).code == 0
    assert run("config", "init", env=env).code == 0
    assert run("config", "show", env=env).code == 0


@pytest.mark.parametrize("words", [("hello",), ("tell me a joke",)])
def test_a_prompt_in_place_of_the_uri_is_told(run, words):
    ran = run("chat", *words)
    assert ran.code == exit_codes.CONFIGURATION
    assert "neither a URI nor an endpoint" in ran.err
    assert "onym chat llm://" in ran.err


@as_subtests(
    "words", [("prse",), ("registry", "shwo"), ("ai", "gateway", "chekc"), ("parse", "--strct", "x")]
)
def test_a_mistyped_command_or_option_suggests_the_right_one(run, words):
    ran = run(*words)
    assert ran.code == exit_codes.USAGE
    assert "did you mean" in ran.err.lower()


def test_a_body_is_text_a_file_or_standard_input(run, tmp_path):
    db = str(tmp_path / "r.db")
    body = tmp_path / "event.json"
    body.write_text("[1]", encoding="utf-8")
    for data, stdin in (("[1]", None), (f"@{body}", None), ("-", "[1]")):
        ran = run("registry", "decide", "x", "revoke", "-d", data, "--db", db, "--json", stdin=stdin)
        assert "JSON object" in json.dumps(ran.json), ran


def test_the_output_of_every_command_has_a_schema(run):
    # `conftest.py` compares every document that the tests print with its schema
    runnable = {
        " ".join(words)
        for words, command in walk()
        if not isinstance(command, click.Group) or command.invoke_without_command
    }
    assert set(load_schemas()["commands"]) == runnable - {""}
    assert set(run("help", "json-schema", "--json").json["commands"]) == runnable - {""}


def test_a_schema_is_printed_for_other_programs(run):
    schema = run("help", "json-schema", "ai", "invoke").json
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert not validator.is_valid({"status": 200})
    assert validator.is_valid(run("ai", "invoke", "nonsense", "--json").json)
    ran = run("help", "json-schema", "prse", "--json")
    assert ran.code == exit_codes.USAGE
    assert "parse" in ran.json["error"]["hint"]
