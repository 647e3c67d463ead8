"""What an error says to run next works as it is printed, and is not what has just failed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from net_support import free_port
from onym.testing.fake_provider import FakeProvider
from support import as_subtests

PASSWORD = "seven green kettles 41\n"
KEY = "sk-test-abcdefghijklmnopqrstuvwxyz0123456789"

#: how servers answer a route that they do not have, each in its own form
STRANGERS = {
    "llama.cpp": b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}',
    "vllm": b'{"detail":"Not Found"}',
    "go": b"404 page not found",
    "nothing": b"",
}


class OpenAIOnly:
    """A server on loopback that has OpenAI's routes, and answers `body` to every other one."""

    def __init__(self, body: bytes) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(
                    b'{"object":"list","data":[{"id":"m","object":"model"}]}', self.path == "/v1/models"
                )

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                answer = {
                    "id": "x",
                    "object": "chat.completion",
                    "model": "m",
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": "yes"},
                            "finish_reason": "stop",
                        }
                    ],
                }
                self.reply(json.dumps(answer).encode(), self.path == "/v1/chat/completions")

            def reply(self, content: bytes, known: bool) -> None:
                content = content if known else body
                self.send_response(200 if known else 404)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> OpenAIOnly:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def ollama_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a port the one that means Ollama; 11434 may be taken on this computer."""

    def choose(port: int) -> None:
        file = tmp_path / "config.toml"
        file.write_text(f"[providers.ollama]\ndefault_port = {port}\n", encoding="utf-8")
        monkeypatch.setenv("ONYM_CONFIG", str(file))

    return choose


def read_next(ran: Any) -> list[str]:
    """The words of the printed command, as a shell would read them."""
    (line,) = re.findall(r"^  next +(.*)$", ran.err, re.MULTILINE)
    words = shlex.split(line)
    assert words[0] == "onym"
    return words[1:]


def test_the_next_command_keeps_the_users_options_and_works_as_printed(
    run: Any, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_URL", fake.uri("nope"))
    fake.fail(404, code="model_not_found")
    ran = run(
        "chat", "--no-stream", "--policy", "local", "-p", "temp=0.2", "-p", "timeout=5000",
        "-s", "Be brief.", "env:LLM_URL", "Hi",
    )  # fmt: skip
    assert ran.code == 7
    words = read_next(ran)
    assert words[:2] == ["models", "list"]
    assert words[words.index("--policy") + 1] == "local"
    assert [words[at + 1] for at, word in enumerate(words) if word == "-p"] == ["temp=0.2", "timeout=5000"]
    assert "-s" not in words  # a list of models has no system prompt
    again = run(*words)
    assert (again.code, again.out) == (0, "fake-model\n")


def test_the_same_command_is_in_the_json_of_the_error(run: Any, fake: FakeProvider) -> None:
    fake.fail(404, code="model_not_found")
    uri = fake.uri("nope")
    error = run("chat", "--json", "--policy", "local", uri, "Hi").json["error"]
    assert shlex.split(error["next"])[1:] == ["models", "list", uri, "--policy", "local"]
    # the hint of the library would say the same without the options
    assert "hint" not in error


def test_a_list_of_models_that_is_not_there_does_not_lead_to_itself(run: Any, fake: FakeProvider) -> None:
    seen = []
    words = ["chat", "--no-stream", fake.uri("m"), "Hi"]
    for _ in range(5):
        fake.fail(404, code="no_such_route")
        fake.fail(404, code="no_such_route")
        ran = run(*words)
        if ran.code == 0:
            break
        seen.append(words[:2])
        words = read_next(ran)
    assert [each[0] for each in seen] == ["chat", "models"]
    assert words[0] == "explain"


@as_subtests("command", [("ping",), ("models", "list"), ("models", "show")], ids=" ".join)
def test_a_server_without_a_list_of_models_leads_to_explain(command: tuple[str, ...], run: Any) -> None:
    with FakeProvider() as fake:
        for _ in range(3):
            fake.fail(404, code="no_such_route")
        words = read_next(run(*command, fake.uri()))
        assert words[0] == "explain"
        assert run(*words).code == 0


def test_a_provider_without_a_list_of_models_is_not_asked_for_one(
    run: Any, fake: FakeProvider, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        f'[providers.bare]\nhosts = ["127.0.0.1"]\ndefault_port = {fake.port}\n'
        '[providers.bare.capabilities]\nmodels = "no"\n',
        encoding="utf-8",
    )
    fake.fail(404, code="model_not_found")
    ran = run("chat", fake.uri("nope"), "Hi", env={"ONYM_CONFIG": str(file)})
    assert read_next(ran) == ["explain", fake.uri("nope")]


def test_a_key_in_the_uri_is_asked_for_and_not_repeated(run: Any) -> None:
    with FakeProvider(key=KEY) as fake:
        fake.fail(404, code="model_not_found")
        ran = run("chat", fake.uri("nope", key=KEY), "Hi")
        assert KEY not in ran.err
        words = read_next(ran)
        assert words[-1] == "--key-stdin"
        assert run(*words, stdin=KEY).out == "fake-model\n"


def test_a_uri_from_a_pipe_has_no_command_to_type_again(run: Any, fake: FakeProvider) -> None:
    fake.fail(404, code="model_not_found")
    ran = run("chat", "--policy", "local", "-", "Hi", stdin=fake.uri("nope") + "\n")
    assert ran.code == 7
    assert "\n  next" not in ran.err


def test_ping_is_suggested_with_the_options_and_not_by_itself(run: Any) -> None:
    with free_port() as port:
        uri = f"llm://localhost:{port}/m"
        words = read_next(run("chat", "--policy", "local", "-p", "retries=0", uri, "Hi"))
        assert words == ["ping", uri, "--policy", "local", "-p", "retries=0"]
        assert "\n  next" not in run(*words).err


def test_options_are_kept_in_hints_of_the_registry(run: Any, tmp_path: Path) -> None:
    database = str(tmp_path / "own registry.db")
    assert run("registry", "init", "--db", database, "--empty", "--password-stdin", stdin=PASSWORD).code == 0
    ran = run("registry", "status", "--json", "--db", database, "uri-schemes-99")
    words = shlex.split(ran.json["error"]["next"])
    assert words == ["onym", "registry", "review", "--db", database]
    assert run(*words[1:]).code == 0
    hint = ran.json["error"]["hint"]
    assert hint == f"onym registry review --db '{database}' lists the open requests"


@pytest.mark.parametrize("name", STRANGERS)
def test_a_server_that_is_not_ollama_on_ollamas_port_is_told_how_to_reach_it(
    name: str, run: Any, ollama_port: Any
) -> None:
    with OpenAIOnly(STRANGERS[name]) as server:
        ollama_port(server.port)
        uri = f"llm://localhost:{server.port}/m?temp=0.5"
        ran = run("chat", "--json", "--policy", "local", uri, "Hi")
        assert (ran.code, ran.json["error"]["code"]) == (7, "provider.not-found")
        other = ran.json["error"]["other_uri"]
        assert other == f"{uri}&api=chat"
        assert other in ran.json["error"]["hint"]
        words = shlex.split(ran.json["error"]["next"])[1:]
        assert words == ["ping", other, "--policy", "local"]
        assert run(*words).code == 0
        assert run("chat", other, "Hi").out == "yes\n"


def test_the_corrected_uri_has_the_parameters_and_not_the_key(run: Any, ollama_port: Any) -> None:
    with OpenAIOnly(STRANGERS["vllm"]) as server:
        ollama_port(server.port)
        ran = run("ping", f"llm://app:{KEY}@localhost:{server.port}/m?temp=0.5#short")
        assert KEY not in ran.err
        words = read_next(ran)
        assert words == [
            "ping", f"llm://app@localhost:{server.port}/m?temp=0.5&api=chat#short", "--key-stdin",
        ]  # fmt: skip
        assert run(*words, stdin=KEY).code == 0


def test_a_model_that_ollama_does_not_have_is_no_reason_to_change_the_api(
    run: Any, fake: FakeProvider, ollama_port: Any
) -> None:
    ollama_port(fake.port)
    fake.raw(b'{"error":"model \'m\' not found"}', status=404)
    ran = run("chat", "--json", fake.uri("m"), "Hi")
    assert "other_uri" not in ran.json["error"]
    assert shlex.split(ran.json["error"]["next"]) == ["onym", "models", "list", fake.uri("m")]


def test_an_api_that_a_server_lacks_leads_back_to_the_usual_one(run: Any) -> None:
    with OpenAIOnly(STRANGERS["vllm"]) as server:
        uri = f"llm://localhost:{server.port}/m"
        words = read_next(run("chat", f"{uri}?api=messages", "Hi"))
        assert words == ["ping", uri]
        assert run(*words).code == 0


def test_another_base_path_is_said_where_the_api_is_only_assumed(run: Any, fake: FakeProvider) -> None:
    fake.raw(b"<html>", status=404)
    ran = run("chat", "--json", fake.uri("m"), "Hi")
    assert f"http://127.0.0.1:{fake.port}/v1/chat/completions" in ran.json["error"]["hint"]
    assert "base_path" in ran.json["error"]["hint"]


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("chat", "llm://0.0.0.0:11434/m", "hi"), "net.refused.this-network", "localhost"),
        (("chat", "llm://10.20.30.40/m", "hi"), "net.refused.private", "allow_networks below [policy]"),
        (("chat", "llm://localhost/m?timeout=2s", "hi"), "llm.bad-number", "timeout=20000 is 20 seconds"),
        (("chat", "openai:gpt-5.5", "hi"), "llm.not-llm", "did you mean llm://openai/gpt-5.5?"),
        (("chat", "llm:ollama/llama3", "hi"), "llm.no-authority", "did you mean llm://ollama/llama3?"),
        (("chat", "llm:/ollama/llama3", "hi"), "llm.no-authority", "did you mean llm://ollama/llama3?"),
    ],
)
def test_a_mistake_in_a_uri_has_a_hint_for_what_was_meant(
    run: Any, words: tuple[str, ...], code: str, hint: str
) -> None:
    ran = run(*words)
    assert code in ran.err
    assert hint in " ".join(ran.err.split())


def test_an_endpoint_of_the_configuration_on_this_computer_is_told_how_to_allow_it(
    run: Any, fake: FakeProvider, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[endpoints]\nhere = "{fake.uri()}"\n', encoding="utf-8")
    ran = run("chat", "here", "Hi", env={"ONYM_CONFIG": str(file)})
    assert "net.refused.loopback" in ran.err
    assert 'preset = "local" below [policy]' in " ".join(ran.err.split())
    with file.open("a", encoding="utf-8") as out:
        out.write('[policy]\npreset = "local"\n')
    assert run("chat", "here", "Hi", env={"ONYM_CONFIG": str(file)}).out == "Hi\n"


@pytest.mark.parametrize("status", [405, 501])
def test_a_server_that_takes_no_requests_is_probably_not_a_models_server(
    run: Any, fake: FakeProvider, status: int
) -> None:
    fake.fail(status)
    ran = run("chat", fake.uri() + "?retries=0", "Hi")
    assert "Check that this host is an OpenAI-compatible server." in " ".join(ran.err.split())
    fake.fail(502)
    assert "Check that this host" not in run("chat", fake.uri() + "?retries=0", "Hi").err


@pytest.mark.parametrize("uri", ["ai://bank.example/balance", "AI:/agent/7"])
def test_an_ai_uri_for_a_model_names_the_commands_for_it(run: Any, uri: str) -> None:
    ran = run("chat", uri, "Hi")
    assert ran.code == 3
    assert "onym ai invoke" in ran.err
