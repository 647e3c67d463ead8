"""Vendors and clouds that speak the OpenAI shape."""

from __future__ import annotations

from onym.llm.providers._row import Api
from onym.llm.providers._rows._make import (
    LITELLM,
    MESSAGES_API,
    READ,
    RESPONSES_API,
    STRINGS,
    TEMP_2_TOP_P,
    can,
    row,
)

__all__ = ["ROWS"]

ROWS = (
    row(
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
    row(
        "together", "Together AI", "api.together.ai api.together.xyz", "https://docs.together.ai/reference",
        "TOGETHER_API_KEY",
        aliases=("togetherai",),
        params={"top_k": "top_k"},
        ranges={"temp": (0, 1), "min_p": (0, 1)},
        capabilities=can("chat stream tools images embeddings models json json_schema"),
        source=f"captured from the together 3.1 SDK; docs.together.ai: openai-compatibility, {READ}",
    ),
    row(
        "fireworks", "Fireworks AI", "api.fireworks.ai", "https://docs.fireworks.ai/api-reference/introduction",
        "FIREWORKS_API_KEY",
        aliases=("fireworksai",),
        base_path="/inference/v1",
        params={"top_k": "top_k"},
        ranges={"temp": (0, 2), "top_p": (0, 1), "top_k": (0, 100)},
        stop_max=4,
        capabilities=can("chat stream tools images embeddings models json json_schema", "batch"),
        apis={"responses": RESPONSES_API},
        source=f"captured from the fireworks 1.2 SDK; docs.fireworks.ai/guides/response-api, {READ}",
    ),
    row(
        "deepseek", "DeepSeek", "api.deepseek.com", "https://api-docs.deepseek.com", "DEEPSEEK_API_KEY",
        base_path="",
        params={"top_k": None, "seed": None},
        ranges=TEMP_2_TOP_P,
        stop_max=16,
        capabilities=can("chat stream tools models json", "embeddings json_schema batch"),
        apis={"messages": Api(dialect="anthropic_messages", base_path="/anthropic")},
        source=f"api-docs.deepseek.com: quick_start, guides/anthropic_api, {READ}; pydantic-ai 2.68 profiles",
    ),
    row(
        "xai", "xAI", "api.x.ai", "https://docs.x.ai/docs/api-reference", "XAI_API_KEY",
        aliases=("grok",),
        params={"max_tokens": "max_completion_tokens", "top_k": None},
        ranges=TEMP_2_TOP_P,
        stop_max=4,
        capabilities=can("chat stream tools images models json json_schema", "embeddings batch"),
        apis={"responses": RESPONSES_API},
        source=(
            f"docs.x.ai/developers: rest-api-reference/inference, model-capabilities/text, {READ}; "
            "xai-sdk 1.21, litellm 1.109"
        ),
    ),
    row(
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
    row(
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
    row(
        "cerebras", "Cerebras", "api.cerebras.ai", "https://inference-docs.cerebras.ai", "CEREBRAS_API_KEY",
        params={"max_tokens": "max_completion_tokens", "top_k": None},
        ranges=TEMP_2_TOP_P,
        stop_max=4,
        capabilities=can("chat stream tools images models json json_schema"),
        source=f"cerebras-cloud-sdk 1.91: types of chat completions; inference-docs.cerebras.ai, {READ}",
    ),
    row(
        "deepinfra", "DeepInfra", "api.deepinfra.com", "https://deepinfra.com/docs", "DEEPINFRA_API_KEY",
        base_path="/v1/openai",
        capabilities=can("chat stream embeddings"),
        source=f"deepinfra.com/docs/advanced/openai_api, {READ}; any-llm 1.40",
    ),
    row(
        "sambanova", "SambaNova", "api.sambanova.ai", "https://docs.sambanova.ai", "SAMBANOVA_API_KEY",
        apis={"responses": RESPONSES_API, "messages": MESSAGES_API},
        source=f"{LITELLM}; docs.sambanova.ai: features/anthropic-compatibility, {READ}",
    ),
    row(
        "nebius", "Nebius Token Factory", "api.tokenfactory.nebius.com api.studio.nebius.ai",
        "https://docs.tokenfactory.nebius.com/api-reference/introduction",
        "NEBIUS_API_KEY",
        apis={"responses": RESPONSES_API},
        source=f"docs.tokenfactory.nebius.com/api-reference/introduction, {READ}; the older host: {LITELLM}",
    ),
    row(
        "moonshot", "Moonshot AI", "api.moonshot.ai api.moonshot.cn", "https://platform.moonshot.ai/docs",
        "MOONSHOT_API_KEY",
        aliases=("moonshotai", "kimi"),
        apis={"messages": Api(dialect="anthropic_messages", base_path="/anthropic")},
        source=f"platform.kimi.com/docs/api/overview, {READ} (.cn); rig-core 0.42 and {LITELLM} (.ai)",
    ),
    row("zai", "Z.ai", "api.z.ai", "https://docs.z.ai", "ZAI_API_KEY", base_path="/api/paas/v4"),
    row(
        "dashscope", "Alibaba Cloud Model Studio", "dashscope-intl.aliyuncs.com dashscope.aliyuncs.com",
        "https://www.alibabacloud.com/help/en/model-studio", "DASHSCOPE_API_KEY",
        aliases=("alibaba", "alibabacloud"), base_path="/compatible-mode/v1",
        capabilities=can("chat stream images embeddings"),
        source=f"docs.litellm.ai/docs/providers/dashscope, {READ}: both hosts; any-llm 1.40",
    ),
    row(
        "minimax", "MiniMax", "api.minimax.io", "https://platform.minimax.io/docs", "MINIMAX_API_KEY",
        apis={"messages": Api(dialect="anthropic_messages", base_path="/anthropic")},
        source=f"{LITELLM}: minimax/messages",
    ),
    row(
        "nvidia-nim", "NVIDIA NIM", "integrate.api.nvidia.com", "https://docs.api.nvidia.com/nim/reference",
        "NVIDIA_NIM_API_KEY", "NVIDIA_API_KEY",
        aliases=("nvidia",),
        source=f"{LITELLM}; docs.litellm.ai/docs/providers/nvidia_nim, build.nvidia.com, {READ}",
    ),
    row(
        "meta", "Meta Llama API", "api.meta.ai", "https://llama.developer.meta.com/docs",
        "MODEL_API_KEY", "META_API_KEY",
    ),
    row(
        "baseten", "Baseten", "inference.baseten.co", "https://docs.baseten.co", "BASETEN_API_KEY",
        apis={"messages": MESSAGES_API},
        source=f"docs.baseten.co: quickstart, reference/inference-api/messages, {READ}",
    ),
    row(
        "novita", "Novita AI", "api.novita.ai", "https://novita.ai/docs", "NOVITA_API_KEY",
        aliases=("novitaai",), base_path="/openai/v1",
        source=(
            f"github.com/novitalabs/novita-skills, promptfoo.dev/docs/providers/novita, {READ}; "
            "litellm 1.109 has the older /v3/openai"
        ),
    ),
    row(
        "volcengine", "Volcengine Ark (ByteDance)", "ark.cn-beijing.volces.com",
        "https://www.volcengine.com/docs/82379", "ARK_API_KEY", "VOLCENGINE_API_KEY",
        aliases=("bytedance",), base_path="/api/v3",
        apis={"responses": RESPONSES_API},
        source=f"{LITELLM}: volcengine",
    ),
    row(
        "wandb", "W&B Inference", "api.inference.wandb.ai", "https://docs.wandb.ai/inference",
        "WANDB_API_KEY",
        aliases=("weightsandbiases",),
        label_headers=(("", "OpenAI-Project"),),
        source=f"{LITELLM}; the project's header: examples of W&B Inference in public repositories, {READ}",
    ),
    row(
        "venice", "Venice AI", "api.venice.ai", "https://docs.venice.ai",
        "VENICE_API_KEY", "VENICE_AI_API_KEY",
        base_path="/api/v1",
    ),
    row(
        "qianfan", "Baidu Qianfan", "qianfan.baidubce.com", "https://cloud.baidu.com/doc/qianfan-api",
        aliases=("baidu",), base_path="/v2",
        source=f"{STRINGS}; base path as clients in public repositories have it, {READ}",
    ),
    row(
        "xiaomi", "Xiaomi MiMo", "api.xiaomimimo.com", "https://platform.xiaomimimo.com/docs",
        "XIAOMI_MIMO_API_KEY",
        source=f"{STRINGS}; litellm 1.109: providers.json",
    ),
    row(
        "atlascloud", "Atlas Cloud", "api.atlascloud.ai", "https://www.atlascloud.ai/docs",
        "ATLASCLOUD_API_KEY",
        source=f"{STRINGS}; any-llm 1.40: registry",
    ),
    row(
        "parasail", "Parasail", "api.parasail.io", "https://docs.parasail.io", "PARASAIL_API_KEY",
        source=f"{STRINGS}; litellm 1.109: providers.json",
    ),
)  # fmt: skip
