"""Vendors with a wire format of their own."""

from __future__ import annotations

from onym.llm.providers._row import Api, PathValue
from onym.llm.providers._rows._make import READ, TEMP_1_TOP_P, TEMP_2_TOP_P, can, row

__all__ = ["ROWS"]

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

ROWS = (
    row(
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
    row(
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
            f"ai.google.dev/api/generate-content#GenerationConfig, copies of it {READ}"
        ),
    ),
    row(
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
            f"cloud.google.com/vertex-ai/docs/generative-ai/learn/locations, {READ}"
        ),
    ),
    row(
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
        source=f"captured from the cohere 7.3 SDK; chat: docs.cohere.com/docs/compatibility-api, {READ}",
    ),
    row(
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
