"""What a call would send: the request, and where each value came from. Nothing is sent here."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import (
    ConfigError,
    LLMURIError,
    OnymError,
    ParameterError,
    PolicyError,
    UnsupportedError,
    UsageError,
)
from onym.llm._arguments import to_texts
from onym.llm.embedded import EmbeddedEndpoint as Running
from onym.llm.mapping import MappingNote
from onym.llm.plan import Plan
from onym.llm.planner import Planner, PlannerSettings, build_plan
from onym.llm.providers import Provider, ProviderTable
from onym.llm.types import Completion, ImagePart, Message, TextPart, Tool, ToolCall
from onym.net.messages import Origin
from onym.net.policy import Policy
from onym.testing.strategies import llm_uris
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret, SecretBytes
from support import as_subtests

KEY = "sk-test-key-0123456789"
TABLE = ProviderTable.builtin()
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def planner(uri: str, **settings: Any) -> Planner:
    given = {"policy": Policy.trusted(), "providers": TABLE, **settings}
    return Planner(LLMURI.parse(uri), PlannerSettings(**given))


def chat(query: str = "", messages: Any = "Hello", *, settings: Any = None, **overrides: Any) -> Plan:
    uri = f"llm://me:{KEY}@llm.example/m{query}"
    return planner(uri, **(settings or {})).chat(messages, overrides)


def body(made: Plan) -> Any:
    """What goes over the wire."""
    return json.loads(made.request.body)


def note(made: Plan, parameter: str) -> MappingNote:
    (found,) = [note for note in made.notes if note.parameter == parameter]
    return found


@pytest.mark.requirement("onym-call-d", "llm-5.1-a", "llm-4.3-b")
def test_what_a_plan_shows_is_the_request_that_it_sends() -> None:
    made = chat("?temp=0.5&max_tokens=9&frequency_penalty=0.25")
    shown, request = made.as_dict(), made.request
    assert shown["method"] == request.method == "POST"
    assert shown["url"] == "https://llm.example/v1/chat/completions"
    assert (str(request.origin), request.target) == ("https://llm.example:443", "/v1/chat/completions")
    assert shown["body"] == body(made)
    assert shown["body"] == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0.5,
        "max_tokens": 9,
        "frequency_penalty": 0.25,
    }
    assert list(shown["headers"]) == [name for name, _ in request.headers]
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.requirement("onym-secret-a", "llm-10.1-a", "llm-10.1-b")
def test_no_form_of_a_plan_shows_the_key() -> None:
    made = chat("?x_api_key=sk-other-key-0123456789")
    texts = [repr(made), str(made), json.dumps(made.as_dict()), repr(made.request), repr(made.endpoint)]
    assert "sk-" not in "".join(texts)
    assert made.as_dict()["headers"]["Authorization"] == "***"
    assert dict(made.headers)["Authorization"].reveal() == f"Bearer {KEY}"  # type: ignore[union-attr]


def test_a_key_inside_a_prompt_is_not_shown_either() -> None:
    made = chat(messages=f"my key is {KEY}")
    assert KEY not in json.dumps(made.as_dict())
    assert KEY in body(made)["messages"][0]["content"]


@pytest.mark.requirement("onym-query-i", "llm-4.4-c")
@pytest.mark.parametrize(
    "name", ["model", "messages", "base_url", "api_base", "headers", "extra_body", "proxy"]
)
def test_a_name_that_would_redirect_is_withheld_with_a_note_and_a_warning(name: str) -> None:
    made = chat(f"?{name}=evil")
    assert "evil" not in made.request.body.decode()
    assert "evil" not in made.url + repr(made.request.headers)
    assert note(made, name).action == "withheld"
    assert any(name in warning for warning in made.warnings)


def test_a_credential_among_the_parameters_is_withheld_and_masked() -> None:
    made = chat("?api_key=sk-other-key-0123456789")
    assert "sk-other" not in made.request.body.decode()
    assert note(made, "api_key").action == "withheld"
    assert "sk-other" not in json.dumps(made.as_dict())


@pytest.mark.requirement("llm-4.4-e", "llm-4.4-b")
def test_dotted_names_and_json_reach_the_body_nested() -> None:
    made = chat("?web_search.max_uses=3&web_search.enabled=true&x=%7B%22a%22%3A%5B1%5D%7D")
    assert body(made)["web_search"] == {"max_uses": 3, "enabled": True}
    assert body(made)["x"] == {"a": [1]}


@pytest.mark.requirement("llm-4.3-c", "llm-4.3-a")
def test_all_segments_of_the_path_are_the_model_and_nothing_else() -> None:
    made = planner("llm://openrouter.ai/anthropic/claude-sonnet-4.5").chat("Hi", {})
    assert made.body is not None
    assert made.body["model"] == "anthropic/claude-sonnet-4.5"
    assert made.url == "https://openrouter.ai/api/v1/chat/completions"


@pytest.mark.requirement("onym-host-a")
def test_an_alias_stands_for_the_providers_host_unless_a_port_is_given() -> None:
    assert planner("llm://openai/gpt-4.1").chat("Hi", {}).url == "https://api.openai.com/v1/chat/completions"
    made = planner("llm://openai:8443/gpt-4.1").chat("Hi", {})
    assert made.url == "https://openai:8443/v1/chat/completions"
    assert made.endpoint.provider.name == "openai-compatible"


@pytest.mark.requirement("llm-4.2.3-a", "llm-10.2-c")
@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("localhost", "http://localhost:11434/api/chat"),
        ("localhost:8080", "http://localhost:8080/v1/chat/completions"),
        ("127.0.0.1", "http://127.0.0.1:11434/api/chat"),
        ("[::1]:8000", "http://[::1]:8000/v1/chat/completions"),
        ("llm.example", "https://llm.example/v1/chat/completions"),
        ("10.0.0.1:80", "https://10.0.0.1:80/v1/chat/completions"),
    ],
)
def test_plain_http_is_for_this_machine_alone(host: str, url: str) -> None:
    assert planner(f"llm://{host}/m").chat("Hi", {}).url == url


@pytest.mark.requirement("llm-4.2.1-a", "llm-4.2.1-b")
@pytest.mark.parametrize(
    ("label", "header"),
    [("org-1", "OpenAI-Organization"), ("proj_1", "OpenAI-Project"), ("my-app", None)],
)
def test_the_app_label_goes_to_the_header_that_the_row_names_or_nowhere(
    label: str, header: str | None
) -> None:
    made = planner(f"llm://{label}:{KEY}@api.openai.com/gpt-4.1").chat("Hi", {})
    sent = {name: value for name, value in made.headers if value == label}
    assert sent == ({} if header is None else {header: label})
    found = note(made, "label")
    assert (found.wire_name, found.action) == (header, "sent" if header else "dropped")


@pytest.mark.parametrize("label", ["a%0Db", "%20a", "a%20", "caf%C3%A9", "a" * 300])
def test_a_label_that_no_header_can_carry_is_refused(label: str) -> None:
    with pytest.raises(LLMURIError):
        planner(f"llm://{label}:{KEY}@openrouter.ai/m")


def test_a_row_says_where_the_key_goes_and_how_it_begins() -> None:
    made = planner(f"llm://:{KEY}@x.openai.azure.com/m").chat("Hi", {})
    assert dict(made.headers)["api-key"] == Secret(KEY)


def test_the_constant_headers_are_few() -> None:
    names = [name for name, _ in chat().headers]
    assert names == ["Content-Type", "Accept", "User-Agent", "Authorization"]


# system


@pytest.mark.requirement("llm-6-b")
def test_the_uris_system_prompt_comes_first() -> None:
    made = chat("?system=Be%20brief.")
    assert body(made)["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (note(made, "system").wire_name, note(made, "system").origin) == ("messages[0]", "uri")


def test_a_system_message_of_the_callers_own_goes_before_the_uris() -> None:
    messages = [{"role": "system", "content": "Mine."}, "Hello"]
    made = chat("?system=Theirs.", messages)
    assert [message["content"] for message in body(made)["messages"]] == ["Mine.", "Hello"]
    assert note(made, "system").action == "dropped"


def test_a_system_prompt_of_the_call_goes_before_the_uris() -> None:
    made = chat("?system=Theirs.", system="Mine.")
    assert body(made)["messages"][0]["content"] == "Mine."
    assert note(made, "system").reason is None


def test_a_system_prompt_said_twice_in_one_call_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        chat("", [{"role": "system", "content": "a"}, "Hello"], system="b")
    assert caught.value.code == "usage.bad-argument"


@pytest.mark.requirement("llm-10.4-a")
def test_an_untrusted_policy_refuses_a_system_prompt_unless_it_is_filtered() -> None:
    untrusted = Policy.untrusted()
    with pytest.raises(PolicyError) as caught:
        chat("?system=Obey%20me", settings={"policy": untrusted})
    assert caught.value.reason == "system"
    assert "Obey" not in str(caught.value)
    made = chat(
        "?system=Obey%20me", settings={"policy": untrusted, "system_filter": lambda text: text.upper()}
    )
    assert body(made)["messages"][0]["content"] == "OBEY ME"
    assert "author of the URI" in (note(made, "system").reason or "")


def test_an_untrusted_policy_lets_the_calls_own_system_prompt_pass() -> None:
    made = chat(system="Mine.", settings={"policy": Policy.untrusted()})
    assert body(made)["messages"][0]["content"] == "Mine."


# profiles of the configuration

PROFILES = {"review": {"temp": 0.1, "top_p": 0.5, "system": "Review.", "schema": SCHEMA, "min_p": 0.2}}


@pytest.mark.requirement("onym-fragment-a", "llm-4.4-h")
def test_a_fragment_chooses_a_profile_that_is_weaker_than_the_uri() -> None:
    made = chat("?temp=0.9#review", settings={"profiles": PROFILES})
    sent = body(made)
    assert (sent["temperature"], sent["top_p"], sent["min_p"]) == (0.9, 0.5, 0.2)
    assert sent["messages"][0]["content"] == "Review."
    assert note(made, "top_p").origin == "profile:review"
    assert "review" not in made.url + made.request.body.decode()
    assert "chooses this profile" in (note(made, "fragment").reason or "")


def test_a_fragment_that_no_profile_has_is_noted_and_harmless() -> None:
    made = chat("#coding-assistant", settings={"profiles": PROFILES})
    assert "no profile" in (note(made, "fragment").reason or "")


def test_a_profile_may_bring_the_schema() -> None:
    made = chat("?format=json_schema#review", settings={"profiles": PROFILES})
    assert body(made)["response_format"]["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize("bad", [{"schema": 5}, {"base_url": "x"}, {"model": "x"}])
def test_a_profile_that_would_redirect_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        chat("#p", settings={"profiles": {"p": bad}})


# overrides


def test_an_override_goes_before_the_uri_and_none_leaves_it() -> None:
    made = chat("?temp=0.5&seed=1", temp=0.1, seed=None)
    assert (body(made)["temperature"], body(made)["seed"]) == (0.1, 1)
    assert note(made, "temp").origin == "override"


def test_an_override_leaves_no_trace_in_the_next_call() -> None:
    made = planner("llm://llm.example/m?temp=0.5")
    assert made.chat("a", {"temp": 0.1, "seed": 3}).body != made.chat("a", {}).body
    assert made.chat("a", {}).as_dict()["body"]["temperature"] == 0.5


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("temperatur", "temp, timeout"),
        ("max_token", " max_tokens?"),
        ("model", "temp, timeout"),
        ("temperature", "did you mean temp?"),
        ("max_completion_tokens", "did you mean max_tokens?"),
        ("response_format", "did you mean format?"),
        ("max_retries", "did you mean retries?"),
    ],
)
def test_an_argument_that_nobody_knows_is_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        chat(**{name: 1})
    assert caught.value.code == "usage.unknown-argument"
    assert hint in (caught.value.hint or "")
    assert caught.value.message.startswith(f"{name} ")


def test_a_key_in_the_place_of_a_name_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        chat(**{"sk-proj-0123456789abcdefghijklmnop": 1})
    assert "0123456789" not in str(caught.value)


def test_extra_of_a_call_is_merged_over_the_uris() -> None:
    made = chat("?min_p=0.1&top_a=2", extra={"min_p": 0.3})
    assert (body(made)["min_p"], body(made)["top_a"]) == (0.3, 2)


def test_tools_of_the_call_go_before_pass_through_ones_and_the_note_says_so() -> None:
    query = "?tools=%5B%5D&top_a=2"
    assert (body(chat(query))["tools"], note(chat(query), "tools").action) == ([], "sent")
    made = chat(query, tools=[{"name": "a"}])
    assert len(body(made)["tools"]) == 1
    assert (note(made, "tools").action, note(made, "top_a").action) == ("dropped", "sent")
    own = chat("?tools=%5B%7B%22type%22%3A%22x%22%7D%5D", tools=[{"type": "web_search"}])
    assert body(own)["tools"] == [{"type": "web_search"}]
    assert note(own, "tools").action == "dropped"


@pytest.mark.requirement("llm-4.4-b")
def test_tools_in_extra_are_added_to_those_of_the_same_call() -> None:
    made = chat("", tools=[{"name": "a"}, {"type": "web_search"}], extra={"tools": [{"type": "x", "y": 1}]})
    assert [tool["type"] for tool in body(made)["tools"]] == ["function", "web_search", "x"]
    assert note(made, "tools").action == "sent"


@as_subtests(
    ("extra", "arguments"),
    [
        ({"tools": {"name": "b"}}, {"tools": [{"name": "a"}]}),
        ({"tool_choice": "none"}, {"tools": [{"name": "a"}], "tool_choice": "required"}),
        ({"temperature": 1}, {"temp": 0.5}),
        ({"response_format": {"type": "json_object"}}, {"schema": {"type": "object"}}),
        ({"n": {"a": 1}, "stream": True}, {"stream": False}),
    ],
)
def test_an_argument_that_another_one_sets_too_is_refused_by_name(
    extra: dict[str, Any], arguments: dict[str, Any]
) -> None:
    with pytest.raises(UsageError) as caught:
        chat("", extra=extra, **arguments)
    assert caught.value.code == "usage.conflict"


def test_a_nested_value_that_an_argument_sets_is_noted() -> None:
    made = chat("?tool_choice=%22none%22&reasoning.effort=low", tools=[{"name": "a"}], tool_choice="auto")
    assert note(made, "tool_choice").action == "dropped"
    assert body(made)["tool_choice"] == "auto"


def test_objects_of_the_uri_and_of_the_call_are_merged() -> None:
    made = chat("?reasoning.effort=low&reasoning.summary=auto", extra={"reasoning": {"effort": "high"}})
    assert body(made)["reasoning"] == {"effort": "high", "summary": "auto"}


@pytest.mark.parametrize("extra", [5, {"model": "x"}, {"base_url": "x"}, {1: 2}])
def test_extra_that_would_redirect_or_is_no_dict_is_refused(extra: Any) -> None:
    with pytest.raises(UsageError):
        chat(extra=extra)


def test_timeout_and_retries_are_the_clients_own() -> None:
    made = chat("?timeout=1500", retries=5)
    assert (made.timeout, made.retries) == (1.5, 5)
    assert set(body(made)) == {"model", "messages"}
    assert (chat().timeout, chat().retries) == (600.0, 2)


@pytest.mark.parametrize(
    ("query", "stream", "overrides", "streams"),
    [
        ("", None, {}, False),
        ("?stream=true", None, {}, True),
        ("?stream=true", None, {"stream": False}, False),
        ("?stream=false", True, {}, True),
        ("", None, {"stream": True}, True),
    ],
)
def test_the_method_goes_before_the_call_and_the_call_before_the_uri(
    query: str, stream: bool | None, overrides: dict[str, Any], streams: bool
) -> None:
    made = planner(f"llm://llm.example/m{query}").chat("Hi", overrides, stream=stream)
    assert made.stream is streams
    assert (made.body or {}).get("stream", False) is streams
    if query or overrides:
        assert note(made, "stream").action == ("sent" if streams else "client")


def test_tools_and_a_choice_among_them_are_sent() -> None:
    tools = [Tool(name="a"), {"type": "function", "function": {"name": "b", "strict": True}}, {"name": "c"}]
    sent = body(chat(tools=tools, tool_choice={"type": "function", "function": {"name": "b"}}))
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["a", "b", "c"]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "b"}}
    assert body(chat(tools=tools, tool_choice="required"))["tool_choice"] == "required"


@as_subtests(
    "bad",
    [
        {"tools": "weather"},
        {"tools": 5},
        {"tools": [5]},
        {"tools": [{}]},
        {"tools": [{"name": ""}]},
        {"tools": [{"name": "a"}, {"name": "a"}]},
        {"tools": [{"type": "function", "function": 5}]},
        {"tools": [{"name": "a", "parameters": 5}]},
        {"tools": [{"name": "a", "strict": "yes"}]},
        {"tools": [{"name": "a", "description": 5}]},
        {"tools": [{"name": "a"}], "tool_choice": "b"},
        {"tools": [{"name": "a"}], "tool_choice": {"function": 5}},
        {"tools": [{"name": "a"}], "tool_choice": 5},
        {"tool_choice": "auto"},
        {"schema": 5},
        {"schema": SCHEMA, "format": "json"},
        {"format": "json_schema"},
    ],
)
def test_arguments_that_cannot_be_used_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        chat(**bad)


def test_a_schema_alone_asks_for_an_answer_of_that_schema() -> None:
    sent = body(chat("?format=json", schema=MappingProxyType(SCHEMA)))["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"] == SCHEMA


def test_a_value_that_cannot_be_used_is_refused_by_name() -> None:
    with pytest.raises(ParameterError) as caught:
        chat(temp=3)
    assert caught.value.parameter == "temp"


# what a provider cannot do


def narrow(**capabilities: str) -> dict[str, Any]:
    row = Provider(
        name="narrow",
        title="Narrow",
        hosts=("llm.example",),
        capabilities=capabilities,  # type: ignore[arg-type]
        docs="https://narrow.example",
        source="its docs",
        checked="2026-11-21",
    )
    return {"providers": TABLE.register(row)}


IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": "https://a.example/b.png"}]}]


@pytest.mark.parametrize(
    ("capability", "call"),
    [
        ("chat", {}),
        ("stream", {"stream": True}),
        ("tools", {"tools": [{"name": "a"}]}),
        ("images", {"messages": IMAGE}),
    ],
)
@pytest.mark.requirement("onym-call-a")
def test_what_the_provider_is_known_not_to_have_is_refused(capability: str, call: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        chat(settings=narrow(**{capability: "no"}), **call)
    error = caught.value
    assert (error.parameter, error.code, error.source) == (capability, f"llm.no-{capability}", "its docs")
    chat(settings=narrow(**{capability: "unknown"}), **call)


def test_embeddings_and_models_are_refused_where_there_are_none() -> None:
    settings = narrow(embeddings="no", models="no")
    made = planner("llm://llm.example/m", **settings)
    with pytest.raises(UnsupportedError) as caught:
        made.plan_inputs("embed", ("a",), {}, expected=1)
    assert (caught.value.code, caught.value.parameter) == ("llm.no-embeddings", "embeddings")
    with pytest.raises(UnsupportedError) as caught:
        made.models({})
    assert (caught.value.code, caught.value.parameter) == ("llm.no-models", "models")


@pytest.mark.requirement("onym-call-a")
def test_a_dialect_that_is_not_spoken_yet_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="elevenlabs") as caught:
        planner("llm://elevenlabs/v3")
    assert caught.value.code == "llm.no-dialect"


def test_dropping_by_choice_is_noted_and_warning_by_choice_is_said() -> None:
    uri = "llm://openai/gpt-4.1?top_k=40"
    with pytest.raises(UnsupportedError):
        planner(uri)
    dropped = planner(uri, on_unsupported="drop").chat("Hi", {})
    assert note(dropped, "top_k").action == "dropped"
    assert dropped.warnings == ()
    assert planner(uri, on_unsupported="warn").chat("Hi", {}).warnings


# embeddings and models


def test_embeddings_take_the_extra_and_no_sampling() -> None:
    made = planner("llm://llm.example/m?temp=0.5&user=u").plan_inputs(
        "embed", ("a", "b"), {"dimensions": 8, "retries": 0}, expected=2
    )
    assert made.body == {"model": "m", "input": ["a", "b"], "user": "u", "dimensions": 8}
    assert made.retries == 0
    assert note(made, "temp").action == "dropped"
    assert note(made, "user").action == "sent"
    assert note(made, "timeout").action == "client"


@pytest.mark.parametrize("texts", [[], ["a", 5], 5, b"a", {"a": 1}])
def test_texts_to_embed_are_texts(texts: Any) -> None:
    with pytest.raises(UsageError):
        to_texts(texts)


@pytest.mark.parametrize(
    "overrides", [{"dimensions": 0}, {"dimensions": "8"}, {"dimensions": True}, {"temp": 1}]
)
def test_embeddings_take_no_other_arguments(overrides: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        planner("llm://llm.example/m").plan_inputs("embed", ("a",), overrides, expected=1)


def test_the_list_of_models_is_a_get_without_body() -> None:
    made = planner("llm://llm.example/m?temp=0.5&x=1").models({"timeout": 100})
    assert (made.method, made.body, made.timeout) == ("GET", None, 0.1)
    assert made.as_dict()["body"] is None
    assert {note.parameter for note in made.notes} == {"timeout", "retries"}


# messages


def image(url: str, **members: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **members}}


CALL = {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}


@as_subtests(
    ("given", "sent"),
    [
        ("Hi", [{"role": "user", "content": "Hi"}]),
        (Message(role="user", content="Hi"), [{"role": "user", "content": "Hi"}]),
        ({"role": "developer", "content": "Hi"}, [{"role": "system", "content": "Hi"}]),
        (["a", Message(role="assistant", content="b")], [
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
        ({"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
         [{"role": "assistant", "content": None, "tool_calls": [CALL]}]),
        ({"role": "assistant", "tool_calls": (ToolCall(id="c1", name="a", arguments="{}"),)},
         [{"role": "assistant", "content": None, "tool_calls": [CALL]}]),
        ({"role": "tool", "content": "x", "tool_call_id": "c1"},
         [{"role": "tool", "content": "x", "tool_call_id": "c1"}]),
        ({"role": "user", "name": "Ann", "content": "x"}, [{"role": "user", "content": "x", "name": "Ann"}]),
        (Completion(text="b", model="m", finish_reason="stop"), [{"role": "assistant", "content": "b"}]),
        ({"role": "user", "content": ["a", TextPart("b"), {"type": "text", "text": "c"}]},
         [{"role": "user", "content": [{"type": "text", "text": text} for text in "abc"]}]),
        ({"role": "user", "content": [ImagePart(data=b"\x00")]},
         [{"role": "user", "content": [image("data:image/png;base64,AA==")]}]),
        ({"role": "user", "content": [image("https://a/b", detail="low")]},
         [{"role": "user", "content": [
             image("https://a/b", detail="low")]}]),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "data:image/gif;base64,AA=="}]},
         [{"role": "user", "content": [image("data:image/gif;base64,AA==")]}]),
    ],
)  # fmt: skip
def test_messages_come_in_every_common_shape(given: Any, sent: Any) -> None:
    assert body(chat(messages=given))["messages"] == sent


def test_an_answer_goes_back_as_the_assistants_turn_with_its_calls() -> None:
    answer = Completion(
        text="",
        model="m",
        finish_reason="tool_calls",
        tool_calls=(ToolCall(id="c1", name="a", arguments="{}"),),
    )
    sent = body(chat(messages=["Hi", answer, {"role": "tool", "content": "x", "tool_call_id": "c1"}]))[
        "messages"
    ]
    assert sent[1] == {"role": "assistant", "content": None, "tool_calls": [CALL]}


@as_subtests(
    "bad",
    [
        [],
        5,
        b"Hi",
        [5],
        {"role": "boss", "content": "x"},
        {"role": 5, "content": "x"},
        {"content": "x"},
        Message(role="boss", content="x"),  # type: ignore[arg-type]
        Message(role="user", content=(5,)),  # type: ignore[arg-type]
        Message(role="user", content=(ImagePart(),)),
        {"role": "user", "content": 5},
        {"role": "user", "content": [5]},
        {"role": "user", "content": [{"type": "text", "text": 5}]},
        {"role": "user", "content": [{"type": "video", "url": "x"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png,AA"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "data:;base64,AA=="}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,*"}]},
        {"role": "user", "content": "x", "unknown": 1},
        {"role": "user", "content": "x", "name": 5},
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "a"}}]},
    ],
)
def test_what_is_no_message_is_refused(bad: Any) -> None:
    with pytest.raises(UsageError) as caught:
        chat(messages=bad)
    assert caught.value.code == "usage.bad-message"


@pytest.mark.requirement("onym-read-f")
def test_text_that_no_request_can_carry_is_refused_without_being_shown() -> None:
    made = chat(messages="prompt \ud800")
    with pytest.raises(UsageError) as caught:
        _ = made.request
    assert "prompt" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_value_that_json_does_not_know_is_a_type_error() -> None:
    made = chat(extra={"x": object(), "y": MappingProxyType({"a": 1})})
    with pytest.raises(TypeError, match="object"):
        _ = made.request


def test_a_secret_in_extra_reaches_the_wire_and_no_eye() -> None:
    made = chat(extra={"passphrase": Secret("hush-hush")})
    sent = made.request.body
    assert isinstance(sent, SecretBytes)
    assert json.loads(sent.reveal())["passphrase"] == "hush-hush"
    assert "hush" not in json.dumps(made.as_dict()) + repr(made) + repr(made.request)


# the embedded model


def test_the_embedded_model_is_explained_before_it_runs() -> None:
    made = planner("llm://embedded/smollm2-135m-instruct").chat("Hi", {})
    assert "chosen at the start" in made.url
    assert made.as_dict()["credential"] is None
    with pytest.raises(UsageError) as caught:
        _ = made.request
    assert caught.value.code == "usage.not-running"


def test_the_embedded_model_always_gets_a_system_message() -> None:
    made = planner("llm://embedded/smollm2-135m-instruct")
    plain, own = made.chat("Hi", {}), made.chat([Message(role="system", content=""), "Hi"], {})
    assert plain.body is not None
    assert own.body is not None
    assert plain.body["messages"][0] == {"role": "system", "content": "You are a helpful assistant."}
    assert note(plain, "system").origin == "default"
    assert [message["content"] for message in own.body["messages"]] == ["", "Hi"]


@pytest.mark.requirement("onym-call-a")
def test_the_embedded_model_refuses_what_it_would_ignore() -> None:
    with pytest.raises(UnsupportedError):
        planner("llm://embedded/smollm2-135m-instruct").chat("Hi", {"tools": [{"name": "a"}]})


def test_a_plan_of_the_embedded_model_learns_where_it_runs() -> None:
    made = planner("llm://embedded/m")
    where = Running(origin=Origin("http", "127.0.0.1", 4242), key=Secret("k-1"), model="m")
    ready = made.with_running_server(made.chat("Hi", {}), where)
    assert ready.url == "http://127.0.0.1:4242/v1/chat/completions"
    assert dict(ready.request.headers)["Authorization"] == Secret("Bearer k-1")
    assert made.with_running_server(made.chat("Hi", {}), where).endpoint is ready.endpoint
    again = Running(origin=where.origin, key=Secret("k-2"), model="m")
    assert dict(made.with_running_server(made.models({}), again).headers)["Authorization"] == Secret(
        "Bearer k-2"
    )


@pytest.mark.parametrize(
    "policy", [Policy.untrusted(), Policy.trusted().replace(allow_hosts={"api.openai.com"})]
)
def test_a_uri_from_outside_starts_no_model(policy: Policy) -> None:
    with pytest.raises(PolicyError) as caught:
        planner("llm://embedded/m", policy=policy)
    assert caught.value.reason == "embedded"


def test_a_plan_can_be_had_without_a_client() -> None:
    settings = PlannerSettings(policy=Policy.trusted(), providers=TABLE)
    made = build_plan(LLMURI.parse("llm://llm.example/m"), "Hi", settings, temp=0.5)
    assert made.as_dict()["body"]["temperature"] == 0.5


def test_auth_is_consumed_by_the_client() -> None:
    made = planner("llm://llm.example/m?auth=env:MY_KEY", environ={"MY_KEY": KEY}).chat("Hi", {})
    assert note(made, "auth").action == "client"
    assert "MY_KEY" not in made.request.body.decode()


@pytest.mark.requirement("onym-read-f", "onym-secret-a", "llm-10.3-a")
@given(llm_uris(), st.text(max_size=20))
def test_any_uri_gives_a_plan_or_one_of_our_errors_and_no_key(uri: LLMURI, prompt: str) -> None:
    settings = PlannerSettings(policy=Policy.trusted(), providers=TABLE)
    try:
        made = Planner(uri, settings).chat(prompt, {})
        shown = json.dumps(made.as_dict())
        sent = made.request.body.decode()
    except OnymError as error:
        shown, sent = str(error) + json.dumps(error.as_dict()), "{}"
    assert isinstance(json.loads(sent), dict)
    key = None if uri.key is None else uri.key.reveal()
    # a key of this chance may also be the name of a parameter, or stand in the prompt
    if key is not None and len(key) > 8 and key not in f"{uri.without_key().render(reveal=True)} {prompt}":
        assert key not in shown


def test_a_recording_is_not_a_document_that_a_provider_lacks() -> None:
    made = planner("llm://localhost:11434/m?api=chat", policy=Policy.local())
    wav = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    paper = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}
    plan = made.chat([{"role": "user", "content": [wav]}], {})
    assert body(plan)["messages"][0]["content"] == [wav]
    with pytest.raises(UnsupportedError) as caught:
        made.chat([{"role": "user", "content": [paper]}], {})
    assert caught.value.code == "llm.no-documents"


def test_a_clash_is_noted_if_arguments_may_be_dropped() -> None:
    given = {"tools": [{"name": "a"}], "tool_choice": "required", "extra": {"tool_choice": "none", "n": 1}}
    for how in ("drop", "warn"):
        made = chat("", settings={"on_unsupported": how}, **given)
        assert body(made)["tool_choice"] == "required"
        assert (note(made, "tool_choice").action, note(made, "n").action) == ("dropped", "sent")
        assert any("tool_choice" in text for text in made.warnings) is (how == "warn")


def test_a_part_of_an_object_that_another_parameter_sets_is_noted() -> None:
    uri = "llm://gemini/gemini-2.5-pro?temp=1&generationConfig.temperature=2&generationConfig.seed=3"
    made = planner(uri, key=Secret(KEY)).chat("Hello", {})
    assert body(made)["generationConfig"] == {"temperature": 1, "seed": 3}
    assert note(made, "generationConfig").action == "sent"
    assert "generationConfig.temperature" in (note(made, "generationConfig").reason or "")
