"""Convert other tools' model names and settings to `llm://` URIs and back, without importing the tools.

    >>> from_langchain("openai:gpt-5").uri
    LLMURI('llm://api.openai.com/gpt-5')
    >>> from_ai_sdk("anthropic/claude-sonnet-4.5").uri
    LLMURI('llm://ai-gateway.vercel.sh/anthropic/claude-sonnet-4.5')

A setting that the target cannot express becomes a `Note`. A key in a variable becomes `?auth=env:NAME`; a
literal key is copied only with `with_key=True`. Notes never contain keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr

if TYPE_CHECKING:
    from onym.llm.convert._conversion import Conversion, Named, Note, Written
    from onym.llm.convert._exporters import to_ai_sdk, to_env, to_langchain, to_litellm
    from onym.llm.convert._importers import from_ai_sdk, from_env, from_langchain, from_litellm, load_models
    from onym.llm.convert._llm_strings import from_llm_strings

_HOME = {
    "Conversion": "onym.llm.convert._conversion",
    "Named": "onym.llm.convert._conversion",
    "Note": "onym.llm.convert._conversion",
    "Written": "onym.llm.convert._conversion",
    "from_ai_sdk": "onym.llm.convert._importers",
    "from_env": "onym.llm.convert._importers",
    "from_langchain": "onym.llm.convert._importers",
    "from_litellm": "onym.llm.convert._importers",
    "from_llm_strings": "onym.llm.convert._llm_strings",
    "load_models": "onym.llm.convert._importers",
    "to_ai_sdk": "onym.llm.convert._exporters",
    "to_env": "onym.llm.convert._exporters",
    "to_langchain": "onym.llm.convert._exporters",
    "to_litellm": "onym.llm.convert._exporters",
}

__all__ = [
    "Conversion",
    "Named",
    "Note",
    "Written",
    "from_ai_sdk",
    "from_env",
    "from_langchain",
    "from_litellm",
    "from_llm_strings",
    "load_models",
    "to_ai_sdk",
    "to_env",
    "to_langchain",
    "to_litellm",
]

__getattr__ = make_lazy_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
