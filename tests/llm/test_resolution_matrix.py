"""For each provider and a model of its kind: every fact that differs from a row that says nothing.

A change to a shared layer shows here as a difference. `python tests/llm/test_resolution_matrix.py`
writes the snapshot anew; read the difference before committing it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from onym.llm import models
from onym.llm.providers import Provider, ProviderTable

SNAPSHOT = Path(__file__).with_name("resolution_matrix.json")
#: a model that each provider serves; several where its families differ
MODELS: dict[str, tuple[str, ...]] = {
    "embedded": ("smollm2-135m-instruct",),
    "ollama": ("llama3", "qwen3:8b", "gpt-oss:20b", "deepseek-r1:14b"),
    "ollama-cloud": ("gpt-oss:120b", "kimi-k2.6"),
    "vllm": ("Qwen/Qwen3-8B", "openai/gpt-oss-20b"),
    "openai": (
        "gpt-4.1",
        "gpt-5",
        "gpt-5-mini-2025-08-07",
        "gpt-5-chat-latest",
        "gpt-5.1",
        "gpt-5.1-chat-latest",
        "gpt-5.2-pro",
        "gpt-5.3-codex",
        "gpt-5.1-codex",
        "gpt-5.4",
        "gpt-5.5",
        "gpt-5.6-cyber",
        "gpt-6",
        "gpt-6-astra",
        "o1",
        "o3",
        "o3-pro",
        "o3-deep-research",
        "o4-mini",
        "ft:gpt-4.1-mini:my-org::abc",
        "ft:o4-mini:my-org::abc",
        "text-embedding-3-small",
    ),
    "azure-openai": ("my-deployment", "gpt-5"),
    "github-models": ("openai/gpt-5", "deepseek/deepseek-r1"),
    "openrouter": (
        "openai/gpt-5",
        "anthropic/claude-opus-4.7",
        "anthropic/claude-sonnet-4.5",
        "anthropic/claude-opus-5.5",
        "google/gemini-3-pro",
        "deepseek/deepseek-r1",
    ),
    "vercel-ai-gateway": ("openai/gpt-5", "anthropic/claude-opus-4.7"),
    "huggingface": ("openai/gpt-oss-120b:fastest", "deepseek-ai/DeepSeek-R1"),
    "cloudflare": ("@cf/meta/llama-3.1-8b-instruct", "@cf/openai/gpt-oss-120b"),
    "databricks": ("databricks-claude-sonnet-4-6", "databricks-gpt-5"),
    "groq": ("llama-3.3-70b-versatile", "openai/gpt-oss-120b"),
    "together": (
        "meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "deepseek-ai/DeepSeek-R1",
        "deepseek-ai/DeepSeek-V4-Pro",
    ),
    "moonshot": ("kimi-k3", "kimi-k2.7-code", "kimi-k2.6", "moonshot-v1-8k"),
    "dashscope": ("qwen3.8-max",),
    "meta": ("muse-spark-1.1",),
    "fireworks": ("accounts/fireworks/models/kimi-k3", "accounts/fireworks/models/gpt-oss-120b"),
    "deepseek": ("deepseek-chat", "deepseek-flash", "deepseek-reasoner", "deepseek-v4-pro"),
    "xai": (
        "grok-3",
        "grok-3-mini",
        "grok-4",
        "grok-4-0709",
        "grok-4-fast-reasoning",
        "grok-4-fast-non-reasoning",
    ),
    "mistral": ("mistral-large-latest", "magistral-medium-latest", "codestral-latest"),
    "perplexity": ("sonar", "sonar-reasoning-pro"),
    "anthropic": (
        "claude-3-5-haiku-20241022",
        "claude-3-7-sonnet-20250219",
        "claude-sonnet-4-20250514",
        "claude-opus-4-1-20250805",
        "claude-haiku-4-5-20251001",
        "claude-sonnet-4-5",
        "claude-opus-4-6",
        "claude-opus-4-7",
        "claude-sonnet-5",
        "claude-sonnet-5-5",
        "claude-opus-5",
        "claude-opus-5-5",
        "claude-fable-5",
    ),
    "gemini": (
        "gemini-2.0-flash",
        "gemini-2.5-flash",
        "gemini-2.5-flash-image",
        "gemini-2.5-flash-lite",
        "gemini-2.5-pro",
        "gemini-3-pro-preview",
        "gemini-3.5-flash",
        "gemini-3.6-flash",
        "gemini-flash-latest",
        "gemma-3-27b-it",
    ),
    "vertex": ("gemini-2.5-flash", "gemini-3-pro-preview", "gemini-3.6-flash", "claude-opus-4-7@20260101"),
    "cohere": ("command-a-03-2025", "command-a-reasoning-08-2025", "embed-v4.0"),
    "bedrock": (
        "anthropic.claude-3-haiku-20240307-v1:0",
        "us.anthropic.claude-sonnet-4-20250514-v1:0",
        "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "global.anthropic.claude-opus-4-7-v1:0",
        "global.anthropic.claude-opus-5-5-v1",
        "amazon.nova-pro-v1:0",
        "us.amazon.nova-2-lite-v1:0",
        "amazon.titan-text-express-v1",
        "meta.llama3-3-70b-instruct-v1:0",
        "mistral.mistral-7b-instruct-v0:2",
        "mistral.mistral-large-2407-v1:0",
        "openai.gpt-oss-120b-1:0",
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-4-7-v1:0",
        "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abcdefgh",
    ),
}
#: what says where a fact comes from is no fact itself
_LEFT_OUT = ("name", "title", "docs", "source", "checked", "family", "matches")


def differing(value: Provider | models.Profile, plain: Provider | models.Profile) -> dict[str, Any]:
    """Field by field, what differs from the plain one; of mappings, the members that differ."""
    found: dict[str, Any] = {}
    mine, other = value.as_dict(), plain.as_dict()
    for field in dataclasses.fields(value):
        new, old = mine[field.name], other[field.name]
        if field.name in _LEFT_OUT or new == old:
            continue
        if isinstance(new, dict) and isinstance(old, dict):
            new = {name: item for name, item in new.items() if name not in old or old[name] != item}
        found[field.name] = new
    return found


def matrix() -> dict[str, Any]:
    """Provider / model to the facts that differ from default."""
    plain = Provider(name="plain", title="plain", docs="", source="", checked="2026-11-21")
    found = {}
    for row in ProviderTable.builtin():
        for model in MODELS.get(row.name, ("any-model",)):
            profile = models.find_profile(row.name, model)
            facts = {"row": differing(row, plain)}
            if profile is not models.DEFAULT_PROFILE:
                facts["profile"] = {"family": profile.family, **differing(profile, models.DEFAULT_PROFILE)}
            found[f"{row.name} / {model}"] = facts
    return found


def test_every_row_and_profile_resolves_to_the_facts_of_the_snapshot() -> None:
    # through JSON, which has no tuples
    assert json.loads(json.dumps(matrix())) == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_each_model_of_the_matrix_belongs_to_a_row() -> None:
    assert set(MODELS) <= set(ProviderTable.builtin().names())


def test_every_family_is_in_the_matrix_where_its_provider_is_named() -> None:
    resolved = {facts["profile"]["family"] for facts in matrix().values() if "profile" in facts}
    assert {profile.family for profile in models.load_profiles()} <= resolved


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in matrix().items()]
    SNAPSHOT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
