"""Gateways to the models of others."""

from __future__ import annotations

from onym.llm.providers._row import PathValue
from onym.llm.providers._rows._make import (
    LITELLM,
    MESSAGES_API,
    READ,
    RESPONSES_API,
    TEMP_2,
    TEMP_2_TOP_P,
    can,
    row,
)

__all__ = ["ROWS"]

ROWS = (
    row(
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
    row(
        "vercel-ai-gateway", "Vercel AI Gateway", "ai-gateway.vercel.sh", "https://vercel.com/docs/ai-gateway",
        "AI_GATEWAY_API_KEY", "VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN",
        aliases=("vercel",),
        label_headers=(("", "x-title"),),
        params={"top_k": None, "cache": "providerOptions.gateway.caching"},
        ranges=TEMP_2,
        capabilities=can("chat stream tools images documents embeddings models json json_schema", "batch"),
        apis={"responses": RESPONSES_API, "messages": MESSAGES_API},
        source=(
            f"vercel.com/docs/ai-gateway: sdks-and-apis, anthropic-compat, {READ}; @ai-sdk/gateway; "
            "pydantic-ai 2.68"
        ),
    ),
    row(
        "huggingface", "Hugging Face router", "router.huggingface.co",
        "https://huggingface.co/docs/inference-providers",
        "HF_TOKEN", "HUGGINGFACE_API_KEY",
        label_headers=(("", "X-HF-Bill-To"),),
        params={"top_k": None},
        ranges=TEMP_2,
        capabilities=can("chat stream tools models json", "embeddings batch"),
        source=f"captured from the huggingface_hub 2.4 SDK; huggingface.co/docs/inference-providers, {READ}",
    ),
    row("portkey", "Portkey", "api.portkey.ai", "https://portkey.ai/docs", "PORTKEY_API_KEY"),
    row("requesty", "Requesty", "router.requesty.ai", "https://docs.requesty.ai", "REQUESTY_API_KEY"),
    row(
        "helicone", "Helicone AI Gateway", "ai-gateway.helicone.ai", "https://docs.helicone.ai",
        "HELICONE_API_KEY",
        base_path="",
        source=f"{LITELLM}: providers.json",
    ),
    row(
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
        source=f"developers.cloudflare.com/workers-ai: open-ai-compatibility, {READ}; litellm 1.109",
    ),
    row(
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
            f"learn.microsoft.com/azure/databricks/machine-learning/model-serving, {READ}; "
            "no list of models: any-llm 1.40"
        ),
    ),
)  # fmt: skip
