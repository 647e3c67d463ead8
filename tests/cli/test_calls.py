"""explain, embed, models and ping."""

from __future__ import annotations

import json

import pytest

from contract.capture import Capture
from model_support import pulled_weights
from net_support import free_port
from onym.errors import ResolveError, TLSError
from onym.net.messages import Origin
from onym.net.transport import ProbeReport
from onym.testing.fake_provider import FakeProvider

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


@pytest.fixture
def fake():
    with FakeProvider(models=("fake-model", "other")) as provider:
        yield provider


@pytest.fixture
def guarded():
    with FakeProvider(key=KEY) as provider:
        yield provider


def test_explain_shows_the_request_and_sends_nothing(run, fake):
    ran = run("explain", fake.uri(query="temp=0.3&seed=1"), "Say hello.", "-p", "seed=2", "-s", "be brief")
    assert ran.code == 0
    assert fake.requests == []
    assert f"POST http://127.0.0.1:{fake.port}/v1/chat/completions" in ran.out
    assert '"temperature": 0.3' in ran.out
    assert '"seed": 2' in ran.out
    assert "Say hello." in ran.out
    assert "be brief" in ran.out
    assert "command line" in ran.out
    assert "local: allowed" in ran.out


def test_explain_masks_the_key_and_says_where_it_comes_from(run):
    env = {"OPENAI_API_KEY": KEY}
    for flags in ((), ("--json",)):
        ran = run("explain", *flags, "llm://openai/gpt-5.4?max_tokens=9", env=env)
        assert ran.code == 0
        assert "0123456789" not in ran.out + ran.err
        assert "OPENAI_API_KEY" in ran.out
        assert "max_completion_tokens" in ran.out
        assert "***" in ran.out


def test_explain_as_json_is_the_plan(run):
    plan = run("explain", "--json", "llm://openai/gpt-5.4?foo=1", "Hi", env={"OPENAI_API_KEY": KEY}).json
    assert plan["method"] == "POST"
    assert plan["url"] == "https://api.openai.com/v1/chat/completions"
    assert plan["body"]["messages"] == [{"role": "user", "content": "Hi"}]
    assert plan["headers"]["Authorization"] == "***"
    assert plan["policy"] == {"name": "local", "allowed": None, "reason": None}
    assert {"parameter": "foo", "origin": "uri", "action": "sent"}.items() <= next(
        note for note in plan["notes"] if note["parameter"] == "foo"
    ).items()


def test_explain_says_that_the_policy_will_refuse(run):
    ran = run("explain", "--policy", "trusted", "llm://10.0.0.1/m")
    assert ran.code == 0
    assert "rejected, " in ran.out


def test_explain_of_the_embedded_model_starts_nothing(run):
    ran = run("explain", "--stream", "llm://embedded/smollm2-135m-instruct", "Hi")
    assert ran.code == 0
    assert '"stream": true' in ran.out


def test_embed_gives_a_line_for_each_text(run, fake):
    ran = run("embed", fake.uri(), "one", "two", "--usage")
    assert ran.code == 0
    assert [line["index"] for line in ran.lines] == [0, 1]
    assert all(isinstance(number, float) for line in ran.lines for number in line["embedding"])
    assert ran.err == "usage: 2 tokens in\n"


def test_embed_reads_lines_in_batches(run, fake):
    ran = run("embed", fake.uri(), "--batch", "2", "--dimensions", "3", stdin="a\nb\n\nc\n")
    assert [line["index"] for line in ran.lines] == [0, 1, 2]
    assert [request.json["input"] for request in fake.requests] == [["a", "b"], ["c"]]
    assert fake.requests[0].json["dimensions"] == 3


def test_embed_takes_text_in_utf_8_without_its_byte_order_mark(run, fake):
    assert run("embed", fake.uri(), stdin=b"\xef\xbb\xbfone\r\n").code == 0
    assert fake.requests[0].json["input"] == ["one"]
    ran = run("embed", fake.uri(), stdin=b"\xff\xfe")
    assert ran.code == 2
    assert "not UTF-8" in ran.err


def test_embed_of_nothing_is_a_usage_error(run, fake):
    assert run("embed", fake.uri(), stdin="\n").code == 2
    assert run("embed", "-", stdin="llm://h/m\n").code == 2
    assert run("embed", "--key-stdin", fake.uri(), stdin="key\n").code == 2


def test_embed_writes_a_file_that_is_replaced_only_when_all_vectors_are_there(run, fake, tmp_path):
    file = tmp_path / "vectors.jsonl"
    ran = run("embed", fake.uri(), "one", "two", "-o", str(file))
    assert (ran.code, ran.out) == (0, "")
    first = file.read_text(encoding="utf-8")
    assert [json.loads(line)["index"] for line in first.splitlines()] == [0, 1]
    fake.fail(400, "too long")
    assert run("embed", fake.uri(), "three", "-o", str(file)).code == 7
    assert file.read_text(encoding="utf-8") == first
    assert list(tmp_path.iterdir()) == [file]
    assert run("embed", fake.uri(), "three", "-o", str(tmp_path / "missing" / "file")).code == 2


def test_models_lists_what_the_server_has(run, fake):
    assert run("models", fake.uri()).out == "fake-model\nother\n"
    listed = run("models", "list", "--json", fake.uri()).json["models"]
    assert [model["id"] for model in listed] == ["fake-model", "other"]


def test_models_shows_the_size_of_the_context_where_the_server_tells_it(run, fake):
    fake.raw(b'{"data": [{"id": "m", "context_length": 4096, "owned_by": "me"}]}')
    ran = run("models", fake.uri())
    assert ran.out.split() == ["m", "4096", "tokens", "me"]


def test_models_for_this_machine_need_no_uri(run, monkeypatch, tmp_path):
    monkeypatch.setenv("ONYM_CACHE", str(tmp_path))
    ran = run("models", "list", "--local")
    assert ran.code == 0
    assert "llm://embedded/smollm2-135m-instruct" in ran.out
    assert "onym models pull" in ran.out
    assert run("models", "--local", "--json").json["models"][0]["file"] is None


@pytest.mark.parametrize("args", [("list",), ("list", "--local", "llm://h/m")])
def test_models_needs_one_of_a_uri_and_local(run, args):
    assert run("models", *args).code == 2


def test_models_help_is_that_of_the_group(run):
    assert "pull" in run("models", "--help").out


def test_pull_of_an_unknown_model_names_those_that_there_are(run):
    ran = run("models", "pull", "no-such-model")
    assert ran.code == 9
    assert "smollm2" in ran.err


@pytest.fixture
def fetched(monkeypatch, tmp_path):
    def fetch(name, progress):
        for octets, what in ((None, "checking"), (10, "fetching"), (20, "fetching")):
            progress(octets, 98_362_432, what)
        return tmp_path / f"{name}.gguf"

    monkeypatch.setattr("onym.llm.embedded.pull_weights", fetch)
    return tmp_path / "smollm2-135m-instruct.gguf"


def test_pull_says_what_it_does_and_where_the_file_is(run, fetched):
    ran = run("models", "pull")
    assert ran.out == f"smollm2-135m-instruct is installed: {fetched}\n"
    assert ran.err.splitlines() == ["note: checking (98 MB)", "note: fetching (98 MB)"]
    assert run("models", "pull", "--json", "smollm2-135m-instruct").json["file"] == str(fetched)


def test_pull_draws_a_bar_on_a_terminal(run, fetched, monkeypatch):
    monkeypatch.setattr("onym.cli.commands.endpoint.is_terminal", lambda stream: True)
    ran = run("models", "pull")
    assert ran.code == 0
    assert "fetching" in ran.err


def test_a_value_of_p_may_choose_the_api_and_parts_of_the_path(run):
    given = run("explain", "--json", "llm://openai/gpt-4.1", "-p", "api=responses").json
    assert given["url"] == "https://api.openai.com/v1/responses"
    assert "api" not in given["body"]
    vertex = run("explain", "--json", "llm://vertex/some-model", "-p", "project=mine", "-p", "temp=0").json
    assert "/projects/mine/" in vertex["url"]


def test_ping_shows_each_step(run, fake):
    ran = run("ping", fake.uri())
    assert ran.code == 0
    assert [line.split()[:2] for line in ran.out.splitlines()] == [
        ["ok", "key"],
        ["ok", "route"],
        ["ok", "name"],
        ["ok", "connect"],
        ["ok", "tls"],
        ["ok", "request"],
    ]
    assert "2 models, fake-model is among them" in ran.out
    assert [request.path for request in fake.requests] == ["/v1/models"]


@pytest.mark.parametrize(
    ("model", "listed"), [("llama3", True), ("llama3:latest", True), ("llama3:8b", False), ("phi", False)]
)
def test_ping_reads_a_model_of_ollama_without_a_tag_as_the_latest(run, model, listed):
    with Capture() as server:
        server.answer({"models": [{"name": "llama3:latest", "model": "llama3:latest"}]})
        uri = f"llm://127.0.0.1:{server.port}/{model.replace(':', '%3A')}?api=ollama"
        ran = run("ping", "--json", uri)
        assert server.last().target == ("/api/tags" if listed else "/api/chat")
    assert (ran.code == 0) is listed, ran.err  # the server answers a chat with its list
    assert ran.json["steps"][-1]["model_listed"] is listed


def test_ping_asks_for_a_short_answer_where_there_is_no_list(run, fake):
    fake.fail(404, "no such route").answer("p", finish="length")
    ran = run("ping", "--json", fake.uri())
    assert ran.code == 0
    assert ran.json["steps"][-1]["operation"] == "chat"
    assert ran.json["steps"][-1]["model_listed"] is None
    assert fake.requests[-1].json["max_tokens"] == 16


def test_ping_asks_a_model_that_is_not_listed_for_a_short_answer(run, fake):
    ran = run("ping", fake.uri("my-deployment"))
    assert ran.code == 0
    assert "2 models, my-deployment is not among them; chat works (stop)" in ran.out
    assert [request.path for request in fake.requests] == ["/v1/models", "/v1/chat/completions"]


def test_ping_fails_for_a_model_that_is_neither_listed_nor_answers(run):
    with FakeProvider() as provider:
        provider.raw(b'{"object": "list", "data": [{"id": "other"}]}')
        provider.fail(404, "the model does not exist", code="model_not_found")
        ran = run("ping", provider.uri("missing"))
    assert ran.code == 7
    assert ran.out.splitlines()[-1].startswith("fail request")
    assert "missing is not among them" in ran.out


def test_ping_stops_at_the_request_that_fails(run, guarded):
    uri = guarded.uri(key="sk-wrong-0000000000000000")
    ran = run("ping", uri)
    assert ran.code == 7
    assert ran.out.splitlines()[-1].startswith("fail request")
    assert "onym explain" in ran.err
    answer = run("ping", "--json", uri).json
    assert answer["ok"] is False
    assert answer["steps"][-1]["ok"] is False
    assert answer["error"]["status"] == 401


def test_ping_stops_where_the_policy_does(run):
    ran = run("ping", "llm://10.0.0.1/m")
    assert ran.code == 5
    assert ran.out.splitlines()[-1].startswith("fail name")


def test_ping_tells_a_closed_port_from_a_missing_name(run):
    with free_port() as port:
        ran = run("ping", f"llm://127.0.0.1:{port}/m")
    assert ran.code == 6
    assert ran.out.splitlines()[-1].startswith("fail connect")
    assert "onym ping" not in ran.err


@pytest.fixture
def probed(monkeypatch):
    """What a probe finds, without a network."""

    def install(**found):
        report = ProbeReport(origin=Origin("https", "h.example", 443), **found)
        monkeypatch.setattr("onym.net.transport.Transport.probe", lambda *_: report)

    return install


def test_ping_tells_about_tls(run, fake, probed):
    probed(
        answers=("93.184.216.34",),
        lookup_seconds=0.001,
        address="93.184.216.34",
        connect_seconds=0.002,
        tls_seconds=0.003,
        tls_version="TLSv1.3",
        cipher="TLS_AES_256_GCM_SHA384",
        subject="h.example",
        issuer="Some CA",
        not_after="Jan  1 00:00:00 2030 GMT",
    )
    ran = run("ping", fake.uri())
    assert ran.code == 0
    assert (
        "TLSv1.3, TLS_AES_256_GCM_SHA384, certificate of h.example until Jan  1 00:00:00 2030 GMT" in ran.out
    )
    assert "3 ms" in ran.out
    step = next(step for step in run("ping", "--json", fake.uri()).json["steps"] if step["step"] == "tls")
    assert step["issuer"] == "Some CA"


def test_ping_stops_at_a_certificate_that_nobody_vouches_for(run, fake, probed):
    error = TLSError("the certificate is not trusted", endpoint="https://h.example:443")
    probed(answers=("93.184.216.34",), address="93.184.216.34", connect_seconds=0.002, error=error)
    ran = run("ping", fake.uri())
    assert ran.code == 6
    assert ran.out.splitlines()[-1].startswith("fail tls")
    assert fake.requests == []


def test_ping_stops_where_there_is_no_key(run):
    ran = run("ping", "llm://openai/gpt-5.5")
    assert ran.code == 4
    assert ran.out == "fail key      no key for openai: OPENAI_API_KEY is not set\n"


def test_explain_works_without_the_key_and_says_so(run):
    ran = run("explain", "llm://openai/gpt-5.4")
    assert ran.code == 0
    assert "missing: " in ran.out
    assert "OPENAI_API_KEY" in ran.out


def test_ping_stops_at_a_name_without_an_address(run, fake, probed):
    probed(error=ResolveError("the name has no address"))
    ran = run("ping", fake.uri())
    assert ran.code == 6
    assert ran.out.splitlines()[-1].startswith("fail name")


def test_a_gguf_file_of_ones_own_is_the_embedded_model(run):
    ran = run("chat", "--gguf", str(pulled_weights()), "llm://embedded/mine?temp=0&max_tokens=5", "Hi")
    assert ran.code == 0
    assert ran.out.strip()


def test_a_gguf_file_goes_with_the_embedded_model_alone(run, tmp_path):
    ran = run("chat", "--gguf", "any.gguf", "llm://models.example/m", "Hi")
    assert ran.code == 2
    other = tmp_path / "notes.gguf"
    other.write_text("no model")
    ran = run("chat", "--gguf", str(other), "llm://embedded/mine", "Hi")
    assert ran.code == 10
    assert "embedded.no-gguf" in ran.err
    assert "notes.gguf" in ran.err
