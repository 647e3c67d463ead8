"""What the built-in rows are written with: defaults, and the facts that several share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.providers._row import Api, Capability, Provider, Range

__all__ = [
    "CHAT_API",
    "LITELLM",
    "MESSAGES_API",
    "OPENAI_APIS",
    "READ",
    "RESPONSES_API",
    "STRINGS",
    "TEMP_1_TOP_P",
    "TEMP_2",
    "TEMP_2_TOP_P",
    "can",
    "row",
]

_CHECKED = "2026-11-21"
LITELLM = "source of litellm 1.109 and any-llm 1.40"
#: after the address of a page
READ = f"read {_CHECKED}"
STRINGS = "host table of npm llm-strings 1.8.0"

TEMP_2: Mapping[str, Range] = {"temp": (0, 2)}
TEMP_2_TOP_P: Mapping[str, Range] = {"temp": (0, 2), "top_p": (0, 1)}
TEMP_1_TOP_P: Mapping[str, Range] = {"temp": (0, 1), "top_p": (0, 1)}

CHAT_API = Api(dialect="openai_chat", base_path="/v1")
#: the dialect's own routes begin with /v1
MESSAGES_API = Api(dialect="anthropic_messages", base_path="")
RESPONSES_API = Api(dialect="openai_responses")
#: the wire formats that servers of many formats speak, each at its usual path
OPENAI_APIS: Mapping[str, Api] = {
    "responses": RESPONSES_API,
    "messages": MESSAGES_API,
    "gemini": Api(dialect="gemini", base_path="/v1beta"),
    "ollama": Api(dialect="ollama", base_path=""),
    "cohere": Api(dialect="cohere_v2", base_path=""),
}


def can(yes: str, no: str = "") -> Mapping[str, Capability]:
    """Capabilities by name: those that a provider has, and those that it is known not to have."""
    found: dict[str, Capability] = dict.fromkeys(yes.split(), "yes")
    found.update(dict.fromkeys(no.split(), "no"))
    return found


def row(name: str, title: str, host: str, docs: str, *variables: str, **facts: Any) -> Provider:
    """A provider of the OpenAI shape, unless `facts` say otherwise; `host` may list several."""
    facts = {"capabilities": can("chat stream"), "source": LITELLM, "checked": _CHECKED} | facts
    return Provider(
        name=name, title=title, hosts=tuple(host.split()), docs=docs, key_variables=variables, **facts
    )
