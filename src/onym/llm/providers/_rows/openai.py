"""OpenAI, and its models where Microsoft and GitHub serve them."""

from __future__ import annotations

from onym.llm.providers._row import Api
from onym.llm.providers._rows._make import (
    READ,
    RESPONSES_API,
    STRINGS,
    TEMP_2,
    TEMP_2_TOP_P,
    can,
    row,
)

__all__ = ["ROWS"]

_AZURE_PARAMS = {"max_tokens": "max_completion_tokens", "top_k": None}

ROWS = (
    row(
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
    row(
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
            f"domains with /openai/v1: examples in public repositories, {READ}"
        ),
    ),
    row(
        "azure-inference", "Azure AI model inference", "models.inference.ai.azure.com",
        "https://learn.microsoft.com/rest/api/aifoundry/modelinference/",
        aliases=("azure",), base_path="", source=STRINGS,
    ),
    row(
        "github-models", "GitHub Models", "models.github.ai", "https://docs.github.com/rest/models/inference",
        "GITHUB_TOKEN",
        base_path="/inference",
        source=f"docs.github.com/en/github-models/quickstart, {READ}; any-llm 1.40",
    ),
)  # fmt: skip
