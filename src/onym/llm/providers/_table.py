"""The built-in rows: who serves models, as captured from vendor SDKs on the wire and from sources.

What a source did not say is left out, and so unknown. A row with a dialect that this version does
not speak is here to be named and explained; a call to it is refused before anything is sent.
Nothing but a rename stands in `params`: `timeout`, `retries` and `cache` are the client's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.providers._row import Capability, Provider, Range

__all__ = ["BUILTIN"]

_CHECKED = "2026-11-21"
_LITELLM = "source of litellm 1.109 and any-llm 1.40"
_STRINGS = "host table of npm llm-strings 1.8.0"

_TEMP_2: Mapping[str, Range] = {"temp": (0, 2)}
_TEMP_2_TOP_P: Mapping[str, Range] = {"temp": (0, 2), "top_p": (0, 1)}
_TEMP_1_TOP_P: Mapping[str, Range] = {"temp": (0, 1), "top_p": (0, 1)}


def _can(yes: str, no: str = "") -> Mapping[str, Capability]:
    found: dict[str, Capability] = dict.fromkeys(yes.split(), "yes")
    found.update(dict.fromkeys(no.split(), "no"))
    return found


def _row(name: str, title: str, host: str, docs: str, *variables: str, **facts: Any) -> Provider:
    """A provider of the OpenAI shape, unless `facts` say otherwise; `host` may list several."""
    facts = {"capabilities": _can("chat stream"), "source": _LITELLM, "checked": _CHECKED} | facts
    return Provider(
        name=name, title=title, hosts=tuple(host.split()), docs=docs, key_variables=variables, **facts
    )


def _other(name: str, title: str, host: str, docs: str, *aliases: str) -> Provider:
    """A service of images, video or speech: its host has a name here, and no chat is spoken there."""
    return _row(
        name, title, host, docs,
        aliases=aliases, base_path="", dialect=name.replace("-", "_"), capabilities=_can("", "chat"),
        source=_STRINGS,
    )  # fmt: skip


_LOCAL: Mapping[str, Any] = {
    "needs_key": False,
    "ranges": {"temp": (0, None)},
    "capabilities": _can("chat stream models"),
}

_HERE = (
    _row(
        "embedded", "The model on this machine", "embedded",
        "https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        needs_key=False,
        ranges={"temp": (0, 2), "top_p": (0, 1)},
        capabilities=_can("chat stream models json json_schema", "tools images embeddings"),
        source="llama.cpp's server in xllamacpp 2026.8 with SmolLM2-135M-Instruct, run and measured",
    ),
    _row(
        "ollama", "Ollama", "localhost", "https://docs.ollama.com/api/openai-compatibility", "OLLAMA_API_KEY",
        default_port=11434,
        source="captured from the ollama 0.6.3 SDK; the /v1 surface from its documentation",
        **_LOCAL,
    ),
    _row(
        "openai-compatible-local", "An OpenAI-compatible server on this machine", "",
        "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        default_port=11434,
        source="documentation of vLLM, llama.cpp, LM Studio, SGLang and llamafile; vllm#9837",
        **_LOCAL,
    ),
    _row(
        "openai-compatible", "An OpenAI-compatible server", "",
        "https://platform.openai.com/docs/api-reference/chat",
        needs_key=False,
        capabilities={},
        source="no row names this host: the OpenAI shape below /v1 is assumed, nothing else",
    ),
)  # fmt: skip

_OPENAI = (
    _row(
        "openai", "OpenAI", "api.openai.com", "https://platform.openai.com/docs/api-reference/chat",
        "OPENAI_API_KEY",
        label_headers=(("org-", "OpenAI-Organization"), ("proj_", "OpenAI-Project")),
        params={"max_tokens": "max_completion_tokens", "top_k": None},
        ranges=_TEMP_2_TOP_P,
        stop_max=4,
        capabilities=_can("chat stream tools images embeddings models json json_schema"),
        source="captured from the openai 3.52 SDK; pydantic-ai 2.68 profiles",
    ),
    _row(
        "azure-openai", "Azure OpenAI", "",
        "https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle",
        "AZURE_OPENAI_API_KEY",
        host_suffixes=(".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
        endpoint_variables=("AZURE_OPENAI_ENDPOINT",),
        base_path="/openai/v1",
        key_header="api-key",
        key_prefix="",
        params={"max_tokens": "max_completion_tokens", "top_k": None},
        ranges=_TEMP_2,
        stop_max=4,
        capabilities=_can("chat stream tools images embeddings models json json_schema"),
        source="captured from the openai 3.52 SDK (v1 surface, no api-version)",
    ),
    _row(
        "azure-inference", "Azure AI model inference", "models.inference.ai.azure.com",
        "https://learn.microsoft.com/rest/api/aifoundry/modelinference/",
        aliases=("azure",), base_path="", source=_STRINGS,
    ),
    _row(
        "github-models", "GitHub Models", "models.github.ai", "https://docs.github.com/rest/models/inference",
        "GITHUB_TOKEN",
        base_path="/inference",
    ),
)  # fmt: skip

_GATEWAYS = (
    _row(
        "openrouter", "OpenRouter", "openrouter.ai", "https://openrouter.ai/docs/api-reference/overview",
        "OPENROUTER_API_KEY",
        base_path="/api/v1",
        label_headers=(("", "X-OpenRouter-Title"),),
        params={"max_tokens": "max_completion_tokens", "top_k": "top_k"},
        ranges=_TEMP_2_TOP_P,
        stop_max=4,
        capabilities=_can("chat stream embeddings models json"),
        source="captured from the openrouter 1.3.84 SDK",
    ),
    _row(
        "vercel-ai-gateway", "Vercel AI Gateway", "ai-gateway.vercel.sh", "https://vercel.com/docs/ai-gateway",
        "AI_GATEWAY_API_KEY", "VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN",
        aliases=("vercel",),
        label_headers=(("", "x-title"),),
        params={"top_k": None},
        ranges=_TEMP_2,
        capabilities=_can("chat stream embeddings models json"),
        source="vercel.com/docs/ai-gateway, @ai-sdk/gateway, pydantic-ai 2.68",
    ),
    _row(
        "huggingface", "Hugging Face router", "router.huggingface.co",
        "https://huggingface.co/docs/inference-providers",
        "HF_TOKEN", "HUGGINGFACE_API_KEY",
        label_headers=(("", "X-HF-Bill-To"),),
        params={"top_k": None},
        ranges=_TEMP_2,
        capabilities=_can("chat stream models json", "embeddings"),
        source="captured from the huggingface_hub 2.4 SDK",
    ),
    _row("portkey", "Portkey", "api.portkey.ai", "https://portkey.ai/docs", "PORTKEY_API_KEY"),
    _row("requesty", "Requesty", "router.requesty.ai", "https://docs.requesty.ai", "REQUESTY_API_KEY"),
    _row(
        "helicone", "Helicone AI Gateway", "ai-gateway.helicone.ai", "https://docs.helicone.ai",
        "HELICONE_API_KEY",
        base_path="",
    ),
)  # fmt: skip

_VENDORS = (
    _row(
        "groq", "Groq", "api.groq.com", "https://console.groq.com/docs/api-reference", "GROQ_API_KEY",
        base_path="/openai/v1",
        params={
            "max_tokens": "max_completion_tokens",
            "top_k": None,
            "logprobs": None,
            "logit_bias": None,
            "frequency_penalty": None,
        },
        ranges={"temp": (0, 2), "top_p": (0, 1), "n": (1, 1)},
        stop_max=4,
        capabilities=_can("chat stream models json", "embeddings"),
        source="captured from the groq 1.7 SDK",
    ),
    _row(
        "together", "Together AI", "api.together.ai api.together.xyz", "https://docs.together.ai/reference",
        "TOGETHER_API_KEY",
        aliases=("togetherai",),
        params={"top_k": "top_k"},
        ranges={"temp": (0, 1), "min_p": (0, 1)},
        capabilities=_can("chat stream embeddings models json"),
        source="captured from the together 3.1 SDK",
    ),
    _row(
        "fireworks", "Fireworks AI", "api.fireworks.ai", "https://docs.fireworks.ai/api-reference/introduction",
        "FIREWORKS_API_KEY",
        aliases=("fireworksai",),
        base_path="/inference/v1",
        params={"top_k": "top_k"},
        ranges={"temp": (0, 2), "top_p": (0, 1), "top_k": (0, 100)},
        stop_max=4,
        capabilities=_can("chat stream embeddings models json"),
        source="captured from the fireworks 1.2 SDK",
    ),
    _row(
        "deepseek", "DeepSeek", "api.deepseek.com", "https://api-docs.deepseek.com", "DEEPSEEK_API_KEY",
        base_path="",
        params={"top_k": None, "seed": None},
        ranges=_TEMP_2_TOP_P,
        stop_max=16,
        capabilities=_can("chat stream models json", "embeddings json_schema"),
        source="api-docs.deepseek.com; pydantic-ai 2.68 profiles",
    ),
    _row(
        "xai", "xAI", "api.x.ai", "https://docs.x.ai/docs/api-reference", "XAI_API_KEY",
        aliases=("grok",),
        params={"max_tokens": "max_completion_tokens", "top_k": None},
        ranges=_TEMP_2_TOP_P,
        stop_max=4,
        capabilities=_can("chat stream models json", "embeddings"),
        source="xai-sdk 1.21, docs.x.ai, litellm 1.109",
    ),
    _row(
        "mistral", "Mistral AI", "api.mistral.ai api.eu.mistral.ai codestral.mistral.ai",
        "https://docs.mistral.ai/api", "MISTRAL_API_KEY",
        params={"seed": "random_seed", "top_k": "top_k"},
        ranges={"top_p": (0, 1)},
        capabilities=_can("chat stream embeddings models json"),
        source="captured from the mistralai 3.7 SDK",
    ),
    _row(
        # its model list and embeddings lie below /v1, its chat does not: one base path reaches chat alone
        "perplexity", "Perplexity", "api.perplexity.ai", "https://docs.perplexity.ai/api-reference",
        "PERPLEXITY_API_KEY", "PERPLEXITYAI_API_KEY", "PPLX_API_KEY",
        base_path="",
        params={"top_k": "top_k", "seed": None},
        ranges={"top_p": (0, 1)},
        capabilities=_can("chat stream json_schema", "json models embeddings"),
        source="captured from the perplexityai 0.46 SDK; litellm 1.109",
    ),
    _row("cerebras", "Cerebras", "api.cerebras.ai", "https://inference-docs.cerebras.ai", "CEREBRAS_API_KEY"),
    _row(
        "deepinfra", "DeepInfra", "api.deepinfra.com", "https://deepinfra.com/docs", "DEEPINFRA_API_KEY",
        base_path="/v1/openai",
    ),
    _row("sambanova", "SambaNova", "api.sambanova.ai", "https://docs.sambanova.ai", "SAMBANOVA_API_KEY"),
    _row(
        "nebius", "Nebius AI Studio", "api.studio.nebius.ai", "https://docs.nebius.com/studio",
        "NEBIUS_API_KEY",
    ),
    _row(
        "moonshot", "Moonshot AI", "api.moonshot.ai", "https://platform.moonshot.ai/docs", "MOONSHOT_API_KEY",
        aliases=("moonshotai",),
    ),
    _row("zai", "Z.ai", "api.z.ai", "https://docs.z.ai", "ZAI_API_KEY", base_path="/api/paas/v4"),
    _row(
        "dashscope", "Alibaba Cloud Model Studio", "dashscope-intl.aliyuncs.com",
        "https://www.alibabacloud.com/help/en/model-studio", "DASHSCOPE_API_KEY",
        aliases=("alibaba", "alibabacloud"), base_path="/compatible-mode/v1",
    ),
    _row("minimax", "MiniMax", "api.minimax.io", "https://platform.minimax.io/docs", "MINIMAX_API_KEY"),
    _row(
        "nvidia-nim", "NVIDIA NIM", "integrate.api.nvidia.com", "https://docs.api.nvidia.com/nim/reference",
        "NVIDIA_NIM_API_KEY",
        aliases=("nvidia",),
    ),
    _row(
        "meta", "Meta Llama API", "api.meta.ai", "https://llama.developer.meta.com/docs",
        "MODEL_API_KEY", "META_API_KEY",
    ),
    _row("baseten", "Baseten", "inference.baseten.co", "https://docs.baseten.co", "BASETEN_API_KEY"),
    _row(
        "novita", "Novita AI", "api.novita.ai", "https://novita.ai/docs", "NOVITA_API_KEY",
        aliases=("novitaai",), base_path="/v3/openai",
    ),
    _row(
        "volcengine", "Volcengine Ark (ByteDance)", "ark.cn-beijing.volces.com",
        "https://www.volcengine.com/docs/82379", "VOLCENGINE_API_KEY",
        aliases=("bytedance",), base_path="/api/v3",
    ),
    _row(
        "wandb", "W&B Inference", "api.inference.wandb.ai", "https://docs.wandb.ai/inference",
        "WANDB_API_KEY",
        aliases=("weightsandbiases",),
    ),
    _row(
        "venice", "Venice AI", "api.venice.ai", "https://docs.venice.ai",
        "VENICE_API_KEY", "VENICE_AI_API_KEY",
        base_path="/api/v1",
    ),
    _row(
        "qianfan", "Baidu Qianfan", "qianfan.baidubce.com", "https://cloud.baidu.com/doc/qianfan-api",
        aliases=("baidu",), base_path="/v2", source=f"{_STRINGS}; base path as public clients use it",
    ),
    _row(
        "xiaomi", "Xiaomi MiMo", "api.xiaomimimo.com", "https://platform.xiaomimimo.com/docs",
        source=f"{_STRINGS}; base path as public clients use it",
    ),
    _row(
        "atlascloud", "Atlas Cloud", "api.atlascloud.ai", "https://www.atlascloud.ai/docs",
        "ATLASCLOUD_API_KEY",
        source=f"{_STRINGS}; base path and variable as public clients use them",
    ),
    _row(
        "parasail", "Parasail", "api.parasail.io", "https://docs.parasail.io", "PARASAIL_API_KEY",
        source=f"{_STRINGS}; base path and variable as public clients use them",
    ),
)  # fmt: skip

_OTHER_DIALECTS = (
    _row(
        "anthropic", "Anthropic", "api.anthropic.com", "https://platform.claude.com/docs/en/api/messages",
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN",
        dialect="anthropic_messages",
        aliases=("claude",),
        key_header="x-api-key",
        key_prefix="",
        label_headers=(("wrkspc_", "anthropic-workspace-id"),),
        params={"stop": "stop_sequences", "seed": None, "top_k": "top_k"},
        ranges={"temp": (0, 1), "top_p": (0, 1), "top_k": (0, None)},
        capabilities=_can("chat stream models json_schema", "embeddings json"),
        source="captured from the anthropic 0.125 SDK; anthropic 2.11; platform.claude.com",
    ),
    _row(
        "gemini", "Google Gemini API", "generativelanguage.googleapis.com", "https://ai.google.dev/api",
        "GEMINI_API_KEY", "GOOGLE_API_KEY",
        dialect="gemini",
        aliases=("google", "aistudio"),
        base_path="/v1beta",
        key_header="x-goog-api-key",
        key_prefix="",
        ranges={"top_p": (0, 1)},
        capabilities=_can("chat stream embeddings models json"),
        source="captured from the google-genai 3.4 SDK",
    ),
    _row(
        "vertex", "Google Vertex AI", "aiplatform.googleapis.com", "https://cloud.google.com/vertex-ai/docs/reference/rest",
        dialect="gemini",
        aliases=("google-vertex",),
        host_suffixes=("*-aiplatform.googleapis.com", "aiplatform.*.rep.googleapis.com"),
        ranges={"top_p": (0, 1)},
        capabilities=_can("chat stream embeddings"),
        source="captured from the google-genai 3.4 SDK",
    ),
    _row(
        "cohere", "Cohere", "api.cohere.com api.cohere.ai", "https://docs.cohere.com/reference/chat",
        "CO_API_KEY", "COHERE_API_KEY",
        dialect="cohere_v2",
        base_path="/v2",
        label_headers=(("", "X-Client-Name"),),
        params={"top_p": "p", "top_k": "k", "stop": "stop_sequences"},
        ranges={"temp": (0, None), "top_p": (0.01, 0.99), "top_k": (0, 500), "frequency_penalty": (0, 1)},
        stop_max=5,
        capabilities=_can("chat stream embeddings models json"),
        source="captured from the cohere 7.3 SDK",
    ),
    _row(
        "bedrock", "Amazon Bedrock", "bedrock-runtime.us-east-1.amazonaws.com",
        "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
        "AWS_BEARER_TOKEN_BEDROCK",
        dialect="bedrock_converse",
        # the draft's own example (section 7) names the second
        host_suffixes=("bedrock-runtime.*.amazonaws.com", "bedrock.*.amazonaws.com"),
        base_path="",
        params={"max_tokens": "maxTokens", "top_p": "topP", "stop": "stopSequences", "seed": None},
        ranges=_TEMP_1_TOP_P,
        capabilities=_can("chat stream embeddings json_schema", "json"),
        source="captured from boto3 1.44 and botocore's service model",
    ),
)  # fmt: skip

_NO_CHAT = (
    _other("fal", "fal", "fal.run", "https://docs.fal.ai"),
    _other("black-forest-labs", "Black Forest Labs", "api.bfl.ai", "https://docs.bfl.ai", "bfl"),
    _other("replicate", "Replicate", "api.replicate.com", "https://replicate.com/docs/reference/http"),
    _other("prodia", "Prodia", "api.prodia.com", "https://docs.prodia.com"),
    _other("luma", "Luma", "api.lumalabs.ai", "https://docs.lumalabs.ai"),
    _other("kling", "Kling AI", "api.klingai.com", "https://app.klingai.com/global/dev/document-api"),
    _other("elevenlabs", "ElevenLabs", "api.elevenlabs.io", "https://elevenlabs.io/docs/api-reference"),
    _other("assemblyai", "AssemblyAI", "api.assemblyai.com", "https://www.assemblyai.com/docs/api-reference"),
    _other("deepgram", "Deepgram", "api.deepgram.com", "https://developers.deepgram.com/reference"),
    _other("gladia", "Gladia", "api.gladia.io", "https://docs.gladia.io"),
    _other("lmnt", "LMNT", "api.lmnt.com", "https://docs.lmnt.com"),
    _other("hume", "Hume AI", "api.hume.ai", "https://dev.hume.ai/reference"),
    _other("revai", "Rev AI", "api.rev.ai", "https://docs.rev.ai/api"),
)

BUILTIN: tuple[Provider, ...] = (*_HERE, *_OPENAI, *_GATEWAYS, *_VENDORS, *_OTHER_DIALECTS, *_NO_CHAT)
