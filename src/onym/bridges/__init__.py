"""Use an `llm://` URI in other frameworks. Each bridge is loaded when it is first used.

    model = onym.bridges.ChatOnym("llm://openai/gpt-5.4-mini?max_tokens=500")      # LangChain
    client = onym.bridges.openai("llm://openai/gpt-5.4-mini")                      # the OpenAI SDK

A bridge raises MissingExtraError with the install command if its framework is not installed. All bridges
except `openai`, `async_openai` and `litellm_kwargs` call through Onym's own client, with its policy, pinned
addresses and redaction. Those three configure another client; their documentation says what that means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_names

if TYPE_CHECKING:
    from onym.bridges import settings as settings
    from onym.bridges._llm_client import litellm_kwargs as litellm_kwargs
    from onym.bridges._openai import async_openai as async_openai
    from onym.bridges._openai import openai as openai
    from onym.bridges.langchain import ChatOnym as ChatOnym
    from onym.bridges.llamaindex import OnymLLM as OnymLLM
    from onym.bridges.pydantic import LLMURIField as LLMURIField
    from onym.bridges.pydantic_ai import OnymModel as OnymModel
    from onym.bridges.settings import env as env
    from onym.bridges.sqlalchemy import LLMURIType as LLMURIType

_HOMES = {
    "onym.bridges._llm_client": "litellm_kwargs",
    "onym.bridges._openai": "async_openai openai",
    "onym.bridges.langchain": "ChatOnym",
    "onym.bridges.llamaindex": "OnymLLM",
    "onym.bridges.pydantic": "LLMURIField",
    "onym.bridges.pydantic_ai": "OnymModel",
    "onym.bridges.settings": "settings env",
    "onym.bridges.sqlalchemy": "LLMURIType",
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)
