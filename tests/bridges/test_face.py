"""`onym.bridges` loads nothing until it is asked, and says what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import onym.bridges
from onym.bridges._llm_client import EndpointClient, decode_carried, to_overrides
from onym.bridges._sdk import require_extra
from onym.errors import MissingExtraError, SecretError, UsageError
from onym.llm.config import Config


def test_importing_the_bridges_loads_no_framework():
    code = (
        "import sys, onym.bridges, onym.bridges.settings\n"
        "names = 'openai langchain_core llama_index pydantic llm sqlalchemy flask fastapi django'\n"
        "print([name for name in names.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_face_lists_what_it_has():
    assert dir(onym.bridges) == sorted(onym.bridges.__all__)
    for name in onym.bridges.__all__:
        assert getattr(onym.bridges, name) is not None


@pytest.mark.parametrize(
    ("framework", "name", "module", "extra"),
    [
        ("openai", "openai", "_openai", "openai"),
        ("langchain_core.messages", "ChatOnym", "langchain", "langchain"),
        ("llama_index.core.base.llms.types", "OnymLLM", "llamaindex", "llamaindex"),
        ("pydantic", "LLMURIField", "pydantic", "pydantic"),
        ("pydantic_ai", "OnymModel", "pydantic_ai", "pydantic-ai"),
        ("llm", "register_models", "llm_plugin", "llm"),
        ("sqlalchemy.types", "LLMURIType", "sqlalchemy", "sqlalchemy"),
    ],
)
def test_a_bridge_without_its_framework_names_the_extra(framework, name, module, extra):
    code = (
        f"import sys\nsys.modules[{framework!r}] = None\n"
        "from onym.errors import MissingExtraError\n"
        "try:\n"
        f"    from onym.bridges.{module} import {name}\n"
        "except MissingExtraError as error:\n"
        "    print(error.code, error.command)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"bridge.missing-extra pip install 'onym[{extra}]'\n"


def test_a_framework_that_is_installed_and_broken_keeps_its_error():
    with pytest.raises(ModuleNotFoundError), require_extra("openai", "openai"):
        raise ModuleNotFoundError("x", name="something_else")
    with pytest.raises(MissingExtraError) as caught, require_extra("flask", "flask"):
        raise ModuleNotFoundError("x", name="flask")
    assert caught.value.command == "pip install 'onym[flask]'"


def test_arguments_of_other_libraries_become_overrides():
    assert to_overrides(
        {
            "temperature": 1, "max_completion_tokens": 5, "timeout": 0.5, "timeout_ms": 7, "stop": None,
            "response_format": {"type": "text"}, "tool_choice": "any", "tools": [], "x": 1,
            "extra_body": {"y": 2},
        }
    ) == {"temp": 1, "max_tokens": 5, "timeout": 7, "format": "text", "extra": {"x": 1, "y": 2}}  # fmt: skip
    tools = [{"name": "f"}]
    assert to_overrides({"tools": tools, "tool_choice": True})["tool_choice"] == "required"
    assert to_overrides({"tools": tools, "tool_choice": {"a": 1}})["tool_choice"] == {"a": 1}
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    assert to_overrides({"response_format": schema}) == {"schema": {"type": "object"}}
    assert to_overrides({"response_format": "json"}) == {"format": "json"}
    with pytest.raises(UsageError):
        to_overrides({"response_format": {"type": "xml"}})


@pytest.mark.parametrize("data", [None, 5, {}, {"dialect": 5}])
def test_what_is_nothing_to_be_carried_is_ignored(data):
    assert decode_carried(data) is None


def test_a_link_is_copied_as_itself_and_pickled_without_secrets(key):
    import copy
    import pickle

    link = EndpointClient("llm://groq/m?auth=env:K", policy=None)
    assert copy.copy(link) is copy.deepcopy(link) is link
    again = pickle.loads(pickle.dumps(link))
    assert again.uri_text == link.uri_text
    assert repr(link) == "EndpointClient('llm://groq/m?auth=env%3AK')"
    for options in ({"key": key}, {"environ": {"GROQ_API_KEY": key}}, {"config": Config()}):
        with pytest.raises(SecretError):
            pickle.dumps(EndpointClient("llm://groq/m", **options))
    with pytest.raises(SecretError):
        pickle.dumps(EndpointClient(f"llm://app:{key}@groq/m"))


@pytest.mark.parametrize(
    "name", ["openai", "async_openai", "litellm_kwargs", "ChatOnym", "OnymLLM", "OnymModel"]
)
def test_no_frame_of_a_traceback_holds_the_key(name, key):
    make = getattr(onym.bridges, name)
    with pytest.raises(onym.errors.OnymError) as caught:
        make(f"llm://app:{key}@h.example:99999/m")
    frames = [entry.frame.f_locals for entry in caught.traceback[1:]]
    # the framework's own objects are not made yet, and have no repr
    held = [value for frame in frames for name, value in frame.items() if name != "self"]
    assert held
    assert key not in repr(held)
    assert key not in str(caught.value)
