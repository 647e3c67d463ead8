"""Use an `llm://` URI in other frameworks. Each bridge is loaded when it is first used.

    model = onym.bridges.ChatOnym("llm://openai/gpt-5-mini?max_tokens=500")      # LangChain
    client = onym.bridges.openai("llm://openai/gpt-5-mini")                      # the OpenAI SDK

A bridge raises MissingExtraError with the install command if its framework is not installed. All bridges
except `openai`, `async_openai` and `litellm_kwargs` call through Onym's own client, with its policy, pinned
addresses and redaction. Those three configure another client; their documentation says what that means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr

if TYPE_CHECKING:
    from onym.bridges import settings
    from onym.bridges._llm_client import litellm_kwargs
    from onym.bridges._openai import async_openai, openai
    from onym.bridges.langchain import ChatOnym
    from onym.bridges.llamaindex import OnymLLM
    from onym.bridges.pydantic import LLMURIField
    from onym.bridges.pydantic_ai import OnymModel
    from onym.bridges.settings import env
    from onym.bridges.sqlalchemy import LLMURIType

_HOME = {
    "ChatOnym": "onym.bridges.langchain",
    "LLMURIField": "onym.bridges.pydantic",
    "LLMURIType": "onym.bridges.sqlalchemy",
    "OnymLLM": "onym.bridges.llamaindex",
    "OnymModel": "onym.bridges.pydantic_ai",
    "async_openai": "onym.bridges._openai",
    "env": "onym.bridges.settings",
    "litellm_kwargs": "onym.bridges._llm_client",
    "openai": "onym.bridges._openai",
    "settings": "onym.bridges.settings",
}

__all__ = [
    "ChatOnym",
    "LLMURIField",
    "LLMURIType",
    "OnymLLM",
    "OnymModel",
    "async_openai",
    "env",
    "litellm_kwargs",
    "openai",
    "settings",
]

__getattr__ = make_lazy_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
