"""Names of models in other tools, to URIs: what is carried, and what earns a note."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import MissingExtraError, OnymError, UsageError
from onym.llm.convert import (
    Conversion,
    from_ai_sdk,
    from_env,
    from_langchain,
    from_litellm,
    from_llm_strings,
    load_models,
)
from onym.llm.providers import ProviderTable
from support import as_subtests

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


def texts(found: Conversion) -> list[str]:
    return [str(uri) for uri in found.uris]


def wheres(found: Conversion) -> list[str]:
    return [note.where for note in found.notes]


def litellm(model: str, **params: Any) -> Conversion:
    return from_litellm({"model": model, **params})


@as_subtests(
    ("environ", "uri"),
    [
        (
            {"OPENAI_API_KEY": KEY, "OPENAI_MODEL": "gpt-5.4"},
            "llm://api.openai.com/gpt-5.4?auth=env%3AOPENAI_API_KEY",
        ),
        (
            {"OPENAI_BASE_URL": "http://localhost:8000/v1/", "OPENAI_MODEL": "Qwen/Qwen3-8B"},
            "llm://localhost:8000/Qwen/Qwen3-8B",
        ),
        (
            {"OPENAI_BASE_URL": "https://[2001:db8::1]:8443/v1", "OPENAI_MODEL": "m"},
            "llm://[2001:db8::1]:8443/m",
        ),
        (
            {"OPENAI_MODEL": "gpt-5.4", "OPENAI_ORG_ID": "org-1"},
            "llm://org-1@api.openai.com/gpt-5.4",
        ),
        (
            {
                "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/",
                "AZURE_OPENAI_DEPLOYMENT": "dep",
                "OPENAI_API_VERSION": "2024-10-21",
            },
            "llm://mine.openai.azure.com/dep?api-version=2024-10-21",
        ),
        (
            {"ANTHROPIC_BASE_URL": "https://api.anthropic.com", "ANTHROPIC_MODEL": "claude-sonnet-5"},
            "llm://api.anthropic.com/claude-sonnet-5",
        ),
        ({"OLLAMA_HOST": "127.0.0.1", "OLLAMA_MODEL": "llama3:8b"}, "llm://127.0.0.1/llama3%3A8b"),
        ({"OLLAMA_HOST": ":9000", "OLLAMA_MODEL": "m"}, "llm://localhost:9000/m"),
        ({"OLLAMA_HOST": "http://[::1]:9000", "OLLAMA_MODEL": "m"}, "llm://[::1]:9000/m"),
        ({"OLLAMA_HOST": "https://box.example", "OLLAMA_MODEL": "m"}, "llm://box.example/m"),
        (
            {"GEMINI_API_KEY": "k", "GEMINI_MODEL": "gemini-3.8-flash"},
            "llm://generativelanguage.googleapis.com/gemini-3.8-flash?auth=env%3AGEMINI_API_KEY",
        ),
        (
            {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "europe-west4", "VERTEX_MODEL": "g"},
            "llm://europe-west4-aiplatform.googleapis.com/g?project=p",
        ),
        (
            {"AWS_REGION": "eu-central-1", "BEDROCK_MODEL_ID": "amazon.nova-lite-v1:0"},
            "llm://bedrock-runtime.eu-central-1.amazonaws.com/amazon.nova-lite-v1%3A0",
        ),
        (
            {"HF_TOKEN": "k", "HF_MODEL": "org/model"},
            "llm://router.huggingface.co/org/model?auth=env%3AHF_TOKEN",
        ),
        (
            {"DATABRICKS_HOST": "https://x.cloud.databricks.com", "DATABRICKS_MODEL": "m"},
            "llm://x.cloud.databricks.com/m",
        ),
        (
            {"MISTRAL_API_KEY": "k", "MISTRAL_MODEL": "mistral-large"},
            "llm://api.mistral.ai/mistral-large?auth=env%3AMISTRAL_API_KEY",
        ),
    ],
)
def test_variables_of_one_provider_give_its_uri(environ, uri):
    found = from_env(environ)
    assert texts(found) == [uri]


def test_an_empty_environment_gives_nothing():
    assert from_env({"AWS_REGION": "eu-west-1", "PATH": "/bin", "OPENAI_API_KEY": " "}) == Conversion(
        found=()
    )


def test_a_key_without_a_model_is_left_out_with_a_note_or_gets_the_model_that_is_named():
    found = from_env({"OPENAI_API_KEY": KEY})
    assert found.found == ()
    assert wheres(found) == ["OPENAI_API_KEY"]
    assert "OPENAI_MODEL" in found.notes[0].text
    assert texts(from_env({"OPENAI_API_KEY": KEY}, model="gpt-5.4")) == [
        "llm://api.openai.com/gpt-5.4?auth=env%3AOPENAI_API_KEY"
    ]


@pytest.mark.requirement("onym-convert-b")
def test_a_key_is_copied_only_when_asked_for_and_never_shown():
    environ = {"OPENAI_API_KEY": KEY, "OPENAI_MODEL": "gpt-5.4"}
    found = from_env(environ, with_key=True)
    assert found.uri.key is not None
    assert found.uri.key.reveal() == KEY
    assert KEY not in repr(found)
    assert KEY not in repr(from_env(environ))


def test_a_second_label_a_listening_address_and_a_bad_url_earn_notes():
    found = from_env({"OPENAI_MODEL": "m", "OPENAI_PROJECT_ID": "proj_1", "OPENAI_ORG_ID": "org-1"})
    assert texts(found) == ["llm://proj_1@api.openai.com/m"]
    assert wheres(found) == ["OPENAI_ORG_ID"]
    found = from_env({"OLLAMA_HOST": "0.0.0.0:11434", "OLLAMA_MODEL": "m"})
    assert texts(found) == ["llm://localhost/m"]
    assert wheres(found) == ["OLLAMA_HOST"]
    found = from_env({"OPENAI_BASE_URL": f"ftp://u:{KEY}@h/", "OPENAI_MODEL": "m"})
    assert found.found == ()
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("http://gpu.example:8000/v1", "plain HTTP only for localhost"),
        ("https://localhost:8000/v1", "plain HTTP for localhost"),
        ("https://h.example/other/v2", "/other/v2 was dropped"),
        ("https://u:p@h.example/v1?x=1#y", "userinfo, query or fragment"),
    ],
)
def test_what_a_base_url_says_and_a_uri_cannot_is_noted(base, says):
    found = from_env({"OPENAI_BASE_URL": base, "OPENAI_MODEL": "m"})
    assert len(found.uris) == 1
    assert any(says in note.text and note.where == "OPENAI_BASE_URL" for note in found.notes)


@as_subtests(
    ("model", "params", "uri"),
    [
        ("gpt-5.4", {}, "llm://api.openai.com/gpt-5.4"),
        ("o3", {}, "llm://api.openai.com/o3"),
        ("claude-sonnet-5", {}, "llm://api.anthropic.com/claude-sonnet-5"),
        ("openai/gpt-5.4", {"api_key": "os.environ/MY"}, "llm://api.openai.com/gpt-5.4?auth=env%3AMY"),
        ("openai/responses/gpt-5.4", {}, "llm://api.openai.com/gpt-5.4?api=responses"),
        (
            "azure/dep",
            {"api_base": "https://x.openai.azure.com/", "api_version": "2024-10-21"},
            "llm://x.openai.azure.com/dep?api-version=2024-10-21",
        ),
        ("together_ai/a/b", {}, "llm://api.together.ai/a/b"),
        ("fireworks_ai/accounts/fireworks/models/x", {}, "llm://api.fireworks.ai/accounts/fireworks/models/x"),
        ("ollama_chat/llama3", {"api_base": "http://localhost:11434"}, "llm://localhost/llama3"),
        (
            "bedrock/converse/anthropic.claude",
            {"aws_region_name": "eu-west-1"},
            "llm://bedrock-runtime.eu-west-1.amazonaws.com/anthropic.claude",
        ),
        (
            "vertex_ai/gemini-3.8-flash",
            {"vertex_location": "us-east5", "vertex_project": "p"},
            "llm://us-east5-aiplatform.googleapis.com/gemini-3.8-flash?project=p",
        ),
        ("huggingface/together/org/model", {}, "llm://router.huggingface.co/org/model%3Atogether"),
        ("hosted_vllm/org/model", {"api_base": "http://localhost:8000/v1"}, "llm://localhost:8000/org/model"),
        ("org/model", {"base_url": "https://llm.example/v1"}, "llm://llm.example/org/model"),
        ("m", {"custom_llm_provider": "groq"}, "llm://api.groq.com/m"),
        ("openai/m", {"organization": "org-1"}, "llm://org-1@api.openai.com/m"),
        (
            "openai/m",
            {
                "temperature": 0.5, "max_tokens": 5, "stop": ["a", "b,c"], "timeout": 1.5, "num_retries": 1,
                "response_format": {"type": "json_object"}, "stream": True, "top_p": None,
            },
            (
                "llm://api.openai.com/m?temp=0.5&max_tokens=5&stop=a&stop=b%2Cc&timeout=1500&retries=1"
                "&format=json&stream=true"
            ),
        ),
        (
            "openai/m",
            {"extra_body": {"a": {"b": 1}}, "service_tier": "flex"},
            "llm://api.openai.com/m?service_tier=flex&a.b=1",
        ),
    ],
)  # fmt: skip
def test_a_litellm_model_gives_its_uri_with_nothing_lost(model, params, uri):
    found = litellm(model, **params)
    assert texts(found) == [uri]
    assert found.notes == ()


@as_subtests(
    ("params", "where"),
    [
        ({"rpm": 5}, "rpm"),
        ({"api_key": KEY}, "api_key"),
        ({"api_version": "2024-10-21"}, "api_version"),
        ({"aws_secret_access_key": KEY}, "aws_secret_access_key"),
        ({"extra_headers": {"x": KEY}}, "extra_headers"),
        ({"organization": "os.environ/ORG"}, "organization"),
        ({"custom": "os.environ/OTHER"}, "custom"),
        ({"custom": {"a": object()}}, "custom"),
        ({"custom": [object()]}, "custom"),
        ({"temperature": 9}, "temperature"),
        ({"temperature": 1, "temp": 0}, "temp"),
        ({"max_retries": "many"}, "max_retries"),
        ({"timeout": "long"}, "timeout"),
        ({"cache": {"no-cache": True}}, "cache"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ],
)
def test_what_a_uri_has_no_place_for_is_noted_and_no_secret_shown(params, where):
    found = litellm("openai/m", **params)
    assert len(found.uris) == 1
    assert wheres(found) == [where]
    assert KEY not in repr(found)
    assert KEY not in found.uri.render(reveal=True)


def test_values_that_json_has_no_format_for_are_read_as_the_sdk_means_them():
    assert litellm("openai/m", response_format={"type": "text"}).uri.format == "text"
    assert litellm("openai/m", response_format="json_schema").uri.format == "json_schema"
    assert litellm("gemini/m", response_mime_type="application/json").uri.format == "json"
    assert litellm("gemini/m", response_mime_type="text/plain").uri.format == "text"
    assert litellm("openai/m", timeout_ms=70).uri.timeout == 70
    assert litellm("openai/m", cache=True).uri.cache is True


def test_a_litellm_key_is_copied_when_asked_for():
    found = from_litellm({"model": "openai/m", "api_key": KEY}, with_key=True)
    assert found.uri.render(reveal=True) == f"llm://:{KEY}@api.openai.com/m"
    assert found.notes == ()
    assert KEY not in repr(found)


def test_settings_of_litellm_itself_are_named_with_what_to_write_instead():
    entry = {"litellm_params": {"model": "openai/x"}}
    found = from_litellm(
        {
            "router_settings": {"fallbacks": [], "routing_strategy": "simple-shuffle"},
            "litellm_settings": {"drop_params": True, "num_retries": 3},
            "general_settings": {"master_key": KEY},
            "model_list": [entry],
        }
    )
    notes = {note.where: note.text for note in found.notes}
    assert set(notes) == {
        "router_settings",
        "router_settings.fallbacks",
        "litellm_settings.drop_params",
        "litellm_settings.num_retries",
        "general_settings",
    }
    assert "retries=" in notes["litellm_settings.num_retries"]
    assert KEY not in repr(found)


def test_a_model_list_keeps_names_and_order_and_leaves_out_what_makes_no_uri():
    found = from_litellm(
        {
            "litellm_settings": {"drop_params": True},
            "model_list": [
                {"model_name": "a", "litellm_params": {"model": "openai/x"}, "model_info": {"id": "1"}},
                {"model_name": "b", "litellm_params": {"model": "nobody-knows"}},
                {"model_name": "c"},
                "text",
                {"litellm_params": {"model": "azure/x"}},
                {"litellm_params": {"model": 5}},
                {"litellm_params": {"model": "openai/x", "api_base": "os.environ/B"}},
                {"litellm_params": {"model": "openai/x", "api_base": "not a url"}},
                {"litellm_params": {"model": "openai/x/../y"}},
                {"model_name": 7, "litellm_params": {"model": "groq/x"}},
            ],
        }
    )
    assert [(name, str(uri)) for name, uri in found.found] == [
        ("a", "llm://api.openai.com/x"),
        (None, "llm://api.groq.com/x"),
    ]
    left = [note.where for note in found.notes if note.text.startswith("skipped")]
    assert left == [f"model_list[{index}]" for index in range(1, 9)]
    assert "litellm_settings.drop_params" in wheres(found)
    with pytest.raises(UsageError, match=r"\b2\b") as caught:
        _ = found.uri
    assert caught.value.code == "usage.bad-argument"


@pytest.mark.parametrize("source", [None, 5, "text", {"models": []}, {"model_list": "text"}, b"x"])
def test_data_of_another_shape_is_refused(source):
    with pytest.raises(UsageError):
        from_litellm(source)


@as_subtests(
    ("text", "settings", "uri"),
    [
        ("openai:gpt-5.4", {}, "llm://api.openai.com/gpt-5.4"),
        ("anthropic:claude-sonnet-5", {}, "llm://api.anthropic.com/claude-sonnet-5"),
        ("claude-sonnet-5", {}, "llm://api.anthropic.com/claude-sonnet-5"),
        ("mistralai:mistral-large", {}, "llm://api.mistral.ai/mistral-large"),
        ("google_genai:gemini-3.8-flash", {}, "llm://generativelanguage.googleapis.com/gemini-3.8-flash"),
        ("gemini-3.8-flash", {"project": "p"}, "llm://aiplatform.googleapis.com/gemini-3.8-flash?project=p"),
        (
            "amazon.nova-lite-v1:0",
            {},
            "llm://bedrock-runtime.us-east-1.amazonaws.com/amazon.nova-lite-v1%3A0",
        ),
        ("ollama:llama3:8b", {}, "llm://localhost/llama3%3A8b"),
        ("gpt-5.4", {"model_provider": "openai"}, "llm://api.openai.com/gpt-5.4"),
        (
            "azure_openai:dep",
            {"azure_endpoint": "https://x.openai.azure.com", "api_version": "2024-10-21"},
            "llm://x.openai.azure.com/dep?api-version=2024-10-21",
        ),
        (
            "openai:m",
            {"temperature": 0, "timeout": 2, "max_retries": 0, "model_kwargs": {"user": "me"}},
            "llm://api.openai.com/m?temp=0&timeout=2000&retries=0&user=me",
        ),
        ("nobody:m", {"base_url": "https://h.example/v1", "model_provider": "nobody"}, "llm://h.example/m"),
    ],
)
def test_a_langchain_name_gives_its_uri(text, settings, uri):
    found = from_langchain(text, **settings)
    assert texts(found) == [uri]
    assert found.notes == ()


def test_a_key_of_langchain_is_noted_or_copied():
    class SecretStr:
        def get_secret_value(self) -> str:
            return KEY

    for key in (KEY, SecretStr()):
        found = from_langchain("openai:m", api_key=key)
        assert wheres(found) == ["api_key"]
        assert found.uri.key is None
        assert from_langchain("openai:m", with_key=True, api_key=key).uri.key.reveal() == KEY


@pytest.mark.parametrize("text", ["nobody:m", "some-model", "", "openai:", ":m"])
def test_a_langchain_name_that_tells_no_provider_or_model_is_refused(text):
    with pytest.raises(UsageError):
        from_langchain(text)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("anthropic/claude-sonnet-4.6", "llm://ai-gateway.vercel.sh/anthropic/claude-sonnet-4.6"),
        ("meta/llama:free", "llm://ai-gateway.vercel.sh/meta/llama%3Afree"),
        ("openai:gpt-5.4", "llm://api.openai.com/gpt-5.4"),
        ("google:gemini-3.8-flash", "llm://generativelanguage.googleapis.com/gemini-3.8-flash"),
        ("togetherai:a/b", "llm://api.together.ai/a/b"),
        ("gateway:openai/gpt-5.4", "llm://ai-gateway.vercel.sh/openai/gpt-5.4"),
    ],
)
def test_an_id_of_the_ai_sdk_gives_its_uri(text, uri):
    assert texts(from_ai_sdk(text)) == [uri]


def test_a_registry_with_another_separator_is_read():
    assert texts(from_ai_sdk("anthropic > claude", separator=" > ")) == ["llm://api.anthropic.com/claude"]


@pytest.mark.parametrize("text", ["", "gpt-5.4", "/gpt-5.4", "nobody:m", "azure:dep"])
def test_what_is_no_id_of_the_ai_sdk_is_refused(text):
    with pytest.raises(UsageError):
        from_ai_sdk(text)


@as_subtests(
    ("text", "uri", "noted"),
    [
        ("llm://openai/gpt-5.4", "llm://api.openai.com/gpt-5.4", []),
        ("llm://api.openai.com/o-1?temp=0.7&max=9", "llm://api.openai.com/o-1?temp=0.7&max_tokens=9", []),
        ("llm://vercel/openai/gpt-5.4", "llm://ai-gateway.vercel.sh/openai/gpt-5.4", ["host"]),
        ("llm://gateway.ai.vercel.app/a/b", "llm://ai-gateway.vercel.sh/a/b", ["host"]),
        ("llm://huggingface/a/b", "llm://router.huggingface.co/a/b", ["host"]),
        ("llm://baseten/m", "llm://inference.baseten.co/m", ["host"]),
        ("llm://together/m", "llm://api.together.ai/m", []),
        ("llm://openai:8443/m", "llm://openai:8443/m", []),
        ("llm://[::1]:8080/m", "llm://[::1]:8080/m", []),
        ("llm://me@openai/m", "llm://me@api.openai.com/m", []),
        ("llm://openai/m#p", "llm://api.openai.com/m", ["fragment"]),
        ("llm://openai/a%3Ab", "llm://api.openai.com/a%3Ab", ["model"]),
        ("llm://openai/a:b", "llm://api.openai.com/a%3Ab", []),
        ("llm://openai/m?stop=a+b,c", "llm://api.openai.com/m?stop=a%20b%2Cc", []),
        ("llm://openai/m?stream=1", "llm://api.openai.com/m?stream=true", []),
        ("llm://openai/m?stream=maybe", "llm://api.openai.com/m", ["stream"]),
        ("llm://openai/m?stream=no", "llm://api.openai.com/m?stream=false", []),
        ("llm://anthropic/m?cache=5m", "llm://api.anthropic.com/m?cache=true", ["cache"]),
        ("llm://anthropic/m?cache=true", "llm://api.anthropic.com/m?cache=true", []),
        ("llm://anthropic/m?cache=no", "llm://api.anthropic.com/m?cache=false", []),
        ("llm://anthropic/m?cache=ephemeral", "llm://api.anthropic.com/m", ["cache"]),
        ("llm://openai/m?effort=high", "llm://api.openai.com/m?reasoning_effort=high", []),
        ("llm://anthropic/m?effort=high", "llm://api.anthropic.com/m?output_config.effort=high", []),
        ("llm://openai/m?pres=1&n=2", "llm://api.openai.com/m?presence_penalty=1&n=2", []),
        (
            "llm://openai/m?repetition_penalty=1.1",
            "llm://api.openai.com/m?frequency_penalty=1.1",
            ["repetition_penalty"],
        ),
        ("llm://openai/m?temp=1&temperature=0&", "llm://api.openai.com/m?temp=0", ["temperature"]),
        ("llm://openai/m?temp=hot", "llm://api.openai.com/m", ["temp"]),
        ("llm://openai/m?api_key=abcdefgh1234", "llm://api.openai.com/m", ["api_key"]),
        ("llm://openai/m?base_url=x", "llm://api.openai.com/m", ["base_url"]),
    ],
)
def test_a_uri_of_llm_strings_means_the_same_here(text, uri, noted):
    found = from_llm_strings(text)
    assert texts(found) == [uri]
    assert wheres(found) == noted


def test_the_key_and_the_overrides_of_llm_strings():
    text = f"llm://app:{KEY}@openai/m"
    found = from_llm_strings(text)
    assert str(found.uri) == "llm://app@api.openai.com/m"
    assert wheres(found) == ["key"]
    assert KEY not in repr(found)
    assert from_llm_strings(text, with_key=True).uri.key.reveal() == KEY
    for name, value, host in (
        ("LLM_STRINGS_OPENAI_HOST", "https://eu.example/v1", "eu.example"),
        ("LLM_STRINGS_HOST_OPENAI", "eu.example:8443", "eu.example:8443"),
    ):
        found = from_llm_strings("llm://openai/m", environ={name: value})
        assert str(found.uri) == f"llm://{host}/m"
    with pytest.raises(UsageError):
        from_llm_strings("llm://openai/m", environ={"LLM_STRINGS_OPENAI_HOST": "ftp://x"})


@pytest.mark.parametrize("text", ["http://openai/m", "llm:m", "llm:///m", "llm://openai/", "x"])
def test_text_that_is_no_uri_of_llm_strings_is_refused(text):
    with pytest.raises(OnymError):
        from_llm_strings(text)


#: the table of llm-strings 1.8.0, without services that speak no chat
_ALIASES = (
    "openai azure anthropic google google-vertex aistudio vertex mistral cohere bedrock "
    "openrouter vercel xai grok meta groq deepinfra together togetherai fireworks fireworksai "
    "deepseek moonshotai moonshot perplexity alibaba alibabacloud dashscope cerebras bytedance "
    "baseten huggingface wandb weightsandbiases baidu qianfan xiaomi minimax atlascloud novita "
    "novitaai parasail venice"
)


@as_subtests("word", _ALIASES.split())
def test_every_word_of_llm_strings_that_serves_text_leads_to_a_row_of_its_own(word):
    uri = from_llm_strings(f"llm://{word}/some-model").uri
    row = ProviderTable.builtin().find(uri.host, uri.port)
    assert uri.host in row.hosts


def test_json_and_yaml_are_read():
    assert load_models('{"model": "openai/m"}') == {"model": "openai/m"}
    found = load_models(
        "model_list:\n- model_name: a\n  litellm_params: &p\n    model: openai/m\n- litellm_params: *p\n"
    )
    assert texts(from_litellm(found)) == ["llm://api.openai.com/m"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        f"key: {KEY}\n\tx",
        "a: !!python/object/apply:os.system [x]",
        "&a [*a]",
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(c + 1)}: &{chr(c + 1)} [{','.join([f'*{chr(c)}'] * 10)}]\n" for c in range(97, 104)),
        "[" * 2000,
        "x" * (4 * 1024 * 1024 + 1),
        "\x00",
    ],
)
def test_a_text_that_is_neither_or_holds_too_much_is_refused_without_being_shown(text):
    with pytest.raises(UsageError) as caught:
        load_models(text)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_yaml_without_pyyaml_says_what_to_install_and_json_goes_on(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    assert load_models("[]") == []
    with pytest.raises(MissingExtraError) as caught:
        load_models("a: 1")
    assert caught.value.command == "pip install 'onym[yaml]'"


_NAMES = st.sampled_from(
    [
        "model",
        "api_base",
        "api_key",
        "temperature",
        "stop",
        "timeout",
        "extra_body",
        "organization",
        "x",
        "rpm",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_NAMES, _JSON))
def test_whatever_an_entry_holds_it_is_converted_or_left_out(params):
    found = from_litellm([{"litellm_params": {"model": "openai/m", **params}}])
    assert len(found.found) <= 1
    assert found.uris or found.notes


@given(st.text(max_size=60))
def test_whatever_an_id_holds_it_is_read_or_refused(text):
    for read in (from_ai_sdk, from_langchain, from_llm_strings):
        with suppress(OnymError):
            assert read(text).uri.model


@given(_JSON)
def test_what_json_writes_is_what_is_read(value):
    written = json.dumps(value)
    assert json.dumps(load_models(written)) == written


def test_the_face_lists_what_it_has():
    from onym.llm import convert

    assert dir(convert) == sorted(convert.__all__)
    for name in convert.__all__:
        assert getattr(convert, name) is not None
