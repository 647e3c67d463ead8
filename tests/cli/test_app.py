"""The frame: help, unknown commands, what happens to failures of every kind."""

from __future__ import annotations

import json
import re

import click
import pytest

from onym import __version__, errors
from onym.cli import exit_codes
from onym.cli._app import COMMANDS, app
from onym.cli._commands import make_command
from onym.cli._errors import build_error_record, find_next_command, format_error
from onym.cli._output import Session, Subject, has_colour, is_terminal, to_plain_data
from onym.uri.secret import Secret
from support import as_subtests

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(run, name):
    ran = run(name, "--help")
    assert ran.code == 0
    assert re.search(rf"Examples?:\n(.*\n)*?.*onym {name}", ran.out)
    assert "--json" in ran.out or name in {"cache", "config", "models", "scheme"}
    assert run(name, "-h").out == ran.out


def subcommands(command=app, words=()):
    if isinstance(command, click.Group):
        names = COMMANDS if command is app else command.commands
        for name in names:
            yield from subcommands(command.get_command(click.Context(app), name), (*words, name))
    else:
        yield words


@pytest.mark.parametrize("words", tuple(subcommands()), ids=" ".join)
def test_every_command_takes_json_and_help(run, words):
    assert "--json" in run(*words, "--help").out


@as_subtests("name", COMMANDS)
def test_the_names_of_modules_and_commands_agree(name):
    command = app.get_command(click.Context(app), name)
    assert command.name == name


def test_the_help_fits_on_a_small_terminal_and_says_where_to_go_on(run):
    ran = run("--help", env={"COLUMNS": "80"})
    lines = ran.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert all(re.search(rf"\b{name}\b", ran.out) for name in COMMANDS)
    assert all(topic in ran.out for topic in ("help commands", "help uris", "onym help."))


def test_the_topics_list_every_command_and_every_exit_code(run):
    assert all(f"\n  {name} " in run("help", "commands").out for name in COMMANDS)
    assert all(f"\n  {code} " in run("help", "exit-codes").out for code in exit_codes.MEANINGS)
    assert "ONYM_ALLOW_LOOPBACK=1" in run("help", "uris").out
    assert "--color" in run("help", "options").out
    assert run("help", "exit-codes", "--json").json["topic"] == "exit-codes"


def test_help_explains_a_command_like_its_own_option(run):
    assert run("help", "ai", "invoke").out == run("ai", "invoke", "--help").out
    assert run("help").out == run("help", "--help").out
    assert "did you mean onym ai invoke?" in run("help", "ai", "invke").err


def contexts(command, context):
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(click.Context(command), name)
            yield from contexts(found, found.context_class(found, info_name=name, parent=context))


@as_subtests(
    ("command", "context"),
    tuple(contexts(app, app.context_class(app, info_name="onym", **app.context_settings))),
    ids=lambda value: getattr(value, "command_path", ""),
)
def test_no_help_is_wider_than_80_columns_or_breaks_a_word(command, context, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = command.get_help(context).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    # every word of the source is still one word
    shown = set(" ".join(lines).split())
    told = [param.help or "" for param in command.params if isinstance(param, click.Option)]
    assert set(" ".join([*told, (command.help or "").replace("\b", "")]).split()) - shown == set()
    assert len(command.get_short_help_str(200)) <= 60


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_told_beside_other_words_too(run, flag):
    assert run(flag, "parse").out == f"onym {__version__}\n"


def test_no_command_at_all_shows_the_help(run):
    ran = run()
    assert ran.code == 2
    assert "Commands:" in ran.out + ran.err


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("normalise", "did you mean onym normalize?"),
        ("llm://openai/gpt-5.5", "onym chat URI"),
        ("xyzzy", "onym --help"),
    ],
)
def test_an_unknown_command_is_a_usage_error_with_a_way_on(run, word, hint):
    ran = run(word)
    assert ran.code == 2
    assert hint in ran.err


def test_an_unknown_option_names_the_help_to_read(run):
    ran = run("parse", "--no-such-option", "x")
    assert ran.code == 2
    assert "onym parse --help" in ran.err


@pytest.fixture
def failing(monkeypatch):
    """A command that fails as it is told to."""

    def install(error):
        @make_command("parse")
        def command():
            raise error

        monkeypatch.setattr("onym.cli.commands.uri.parse_command", command)

    return install


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ResolveError("no address"), 6),
        (errors.WeightsError("wrong hash", command="onym models pull"), 10),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.FileError("x", "gone"), 2),
        (OSError(5, "Input/output error"), 74),
        (FileNotFoundError(2, "No such file or directory", f"/tmp/{KEY}"), 2),
        (RuntimeError(f"something about {KEY}"), 70),
        (RecursionError(), 70),
        (BrokenPipeError(), 141),
    ],
)
def test_every_failure_ends_with_its_code_and_no_traceback(run, failing, error, code):
    failing(error)
    ran = run("parse")
    assert ran.code == code
    assert "Traceback" not in ran.err
    assert "0123456789" not in ran.err


def test_a_bug_is_told_as_json_too(run, failing):
    failing(RuntimeError("boom"))
    ran = run("parse", "--json")
    assert ran.json["error"]["code"] == "internal.error"
    assert ran.json["error"]["exit_code"] == 70
    assert "boom" not in ran.out


def test_debugging_shows_the_traceback_without_keys(run, failing):
    failing(RuntimeError(f"something about {KEY}"))
    ran = run("parse", env={"ONYM_DEBUG": "1"})
    assert "Traceback" in ran.err
    assert "something about ***" in ran.err


def session_on(text, *, argument=None, as_json=False):
    session = Session(as_json=as_json)
    session.subject = Subject(argument or text, text, typed=True)
    session.context = click.Context(app)
    return session


def test_a_block_shows_every_field_that_the_error_has():
    error = errors.RateLimitError(
        "too many requests",
        endpoint="llm://h/m",
        status=429,
        provider_code="rate_limit_exceeded",
        request_id="req-1",
        retry_after=1.5,
        hint="wait",
    )
    block = format_error(session_on("llm://h/m"), error)
    for text in ("too many", "llm://h/m", "429", "rate_limit_exceeded", "req-1", "1.5 s", "wait", error.code):
        assert text in block


def test_what_a_server_says_cannot_drive_the_terminal_nor_show_the_key():
    session = session_on("llm://h/m")
    session.secrets.append(Secret("hunter2hunter2"))
    error = errors.BadRequestError("\x1b[2Jyou sent hunter2hunter2", endpoint="llm://h/m")
    block = format_error(session, error)
    assert "\x1b" not in block
    assert "hunter2" not in block
    assert "hunter2" not in json.dumps(build_error_record(session, error))


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (errors.URISyntaxError("x", offset=0), "onym check 'llm://app:***@h/m'"),
        (errors.ParameterError("x"), None),
        (errors.PolicyError("x", reason="private"), "onym explain llm://app@h/m --key-stdin"),
        (errors.TLSError("x"), "onym ping llm://app@h/m --key-stdin"),
        (errors.NotFoundError("x"), "onym models list llm://app@h/m --key-stdin"),
        # `config check` would read the same file and print the same error
        (errors.ConfigError("x"), None),
        (errors.ConfigError("x", code="config.bad-profile"), "onym config check"),
        (errors.MissingWeightsError("x", command="onym models pull y"), "onym models pull y"),
        (errors.RateLimitError("x"), None),
    ],
)
def test_the_next_command_fits_the_error_and_asks_for_the_key(error, command):
    assert find_next_command(session_on(f"llm://app:{KEY}@h/m"), error) == command


def test_there_is_no_next_command_about_a_uri_that_was_never_read():
    assert find_next_command(Session(), errors.TLSError("x")) is None


def test_a_command_does_not_send_one_to_itself():
    session = session_on("llm://h/m")
    session.command = "ping"
    assert find_next_command(session, errors.TLSError("x")) is None
    session.command = "check"
    assert find_next_command(session, errors.URISyntaxError("x", offset=0)) is None


def test_colour_needs_a_terminal_that_can_and_a_person_who_wants_it(monkeypatch):
    class Stream:
        def __init__(self, answer):
            self.answer = answer

        def isatty(self):
            if self.answer is None:
                raise ValueError("I/O operation on closed file")
            return self.answer

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert has_colour(Stream(True))
    assert not has_colour(Stream(False))
    assert not has_colour(Stream(None))
    assert not is_terminal(Stream(None))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Stream(True))
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colour(Stream(True))


def test_values_become_plain_data_and_secrets_stay_hidden():
    value = {"a": (1, Secret("x")), "b": [Secret("y")]}
    assert to_plain_data(value) == {"a": [1, "***"], "b": ["***"]}
    assert to_plain_data(value, reveal=True) == {"a": [1, "x"], "b": ["y"]}


def test_an_empty_table_is_no_line(capsys):
    Session().print_table([])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_a_script_for_each_shell(run, shell):
    ran = run("completions", shell)
    assert ran.code == 0
    assert "_ONYM_COMPLETE" in ran.out
    assert run("completions", "--json", shell).json["script"] + "\n" == ran.out


def complete(run, words, current):
    env = {"_ONYM_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(current)}
    return [line.partition(",")[2] for line in run(env=env).out.splitlines()]


def test_a_shell_completes_commands_options_and_endpoints(run, tmp_path, monkeypatch):
    assert complete(run, ["onym", "ex"], 1) == ["explain"]
    assert "--strict" in complete(run, ["onym", "check", "--st"], 2)
    config = tmp_path / "config.toml"
    config.write_text('[endpoints]\nfast = "llm://h/m"\nfine = "llm://h/n"\n', encoding="utf-8")
    monkeypatch.setenv("ONYM_CONFIG", str(config))
    assert complete(run, ["onym", "chat", "f"], 2) == ["fast", "fine"]


def test_the_application_can_be_run_by_others_without_ending_the_process():
    with pytest.raises(SystemExit) as ended:
        app.main(["parse", "llm://h/m"], prog_name="onym")
    assert ended.value.code == 0


@as_subtests(
    ("words", "hint"),
    [
        (("chat", "--temperature", "0", "llm://h.example/m", "hi"), "-p temp=VALUE"),
        (("embed", "--timeout", "30", "llm://h.example/m", "hi"), "-p timeout=MILLISECONDS"),
        (("chat", "--model", "gpt-5.5", "hi"), "part of the URI"),
        (("chat", "--image", "a.png", "llm://h.example/m"), "onym.ImagePart"),
        (("chat",), "llm://openai/"),
    ],
)
def test_what_other_programs_have_as_an_option_is_explained(run, words, hint):
    ran = run(*words)
    assert (ran.code, "usage.command-line" in ran.err) == (2, True)
    assert hint in " ".join(ran.err.split())


@as_subtests(
    ("words", "message", "hint"),
    [
        (("parse",), "missing argument 'URI'", ""),
        (("redact", "--chekc"), "no such option '--chekc'", "--check"),
        (("completions",), "missing argument 'SHELL'", "fish"),
        (("config", "check", "x"), "got unexpected extra argument (x)", ""),
        (("ping", "--timeout", "x", "llm://h/m"), "invalid value for '--timeout'", ""),
    ],
)
def test_an_error_in_the_command_line_has_the_style_of_other_errors(run, words, message, hint):
    error = run("--json", *words).json["error"]
    assert error["message"].startswith(message)
    assert not error["message"].endswith(".")
    assert hint in error.get("hint", "")
    assert hint not in error["message"] or not hint


def test_commands_without_parameters_explain_none(run):
    ran = run("redact", "--temperature", "0")
    assert (ran.code, "-p temp" in ran.err) == (2, False)


@as_subtests(
    ("word", "meant"),
    [
        ("serve", "did you mean onym ai serve or onym registry serve?"),
        ("invoke", "did you mean onym ai invoke?"),
        ("pull", "did you mean onym models pull?"),
        ("version", "did you mean onym --version?"),
        ("ask", "did you mean onym chat?"),
    ],
)
def test_a_command_of_a_group_is_found_without_the_group(run, word, meant):
    ran = run(word)
    assert (ran.code, meant in ran.err) == (2, True)
