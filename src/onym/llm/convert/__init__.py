"""Names of models as other tools write them, to `llm://` URIs and back. Pure, and no tool is imported.

    >>> from_langchain("openai:gpt-5").uri
    LLMURI('llm://api.openai.com/gpt-5')
    >>> from_ai_sdk("anthropic/claude-sonnet-4.5").uri
    LLMURI('llm://ai-gateway.vercel.sh/anthropic/claude-sonnet-4.5')

What a URI, or the other form, has no place for becomes a `Note`, never a silent loss. A key is pointed at
(`?auth=env:NAME`) and not copied, unless `with_key=True` says so; no note ever holds one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import lazily

if TYPE_CHECKING:
    from onym.llm.convert._env import from_env
    from onym.llm.convert._files import load_models
    from onym.llm.convert._ids import from_ai_sdk, from_langchain
    from onym.llm.convert._litellm import from_litellm
    from onym.llm.convert._out import to_ai_sdk, to_env, to_langchain, to_litellm
    from onym.llm.convert._strings import from_llm_strings
    from onym.llm.convert._types import Conversion, Named, Note, Written

_HOME = {
    "Conversion": "onym.llm.convert._types",
    "Named": "onym.llm.convert._types",
    "Note": "onym.llm.convert._types",
    "Written": "onym.llm.convert._types",
    "from_ai_sdk": "onym.llm.convert._ids",
    "from_env": "onym.llm.convert._env",
    "from_langchain": "onym.llm.convert._ids",
    "from_litellm": "onym.llm.convert._litellm",
    "from_llm_strings": "onym.llm.convert._strings",
    "load_models": "onym.llm.convert._files",
    "to_ai_sdk": "onym.llm.convert._out",
    "to_env": "onym.llm.convert._out",
    "to_langchain": "onym.llm.convert._out",
    "to_litellm": "onym.llm.convert._out",
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

__getattr__ = lazily(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
