"""For each provider and a model of its kind: every fact that differs from a row that says nothing.

A change to a shared layer shows here as a difference. `python tests/llm/test_resolution_matrix.py`
writes the snapshot anew; read the difference before committing it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from onym.llm import profiles
from onym.llm.providers import Provider, ProviderTable

SNAPSHOT = Path(__file__).with_name("resolution_matrix.json")
#: a model that each provider serves; several where its families differ
MODELS: dict[str, tuple[str, ...]] = {
    "embedded": ("smollm2-135m-instruct",),
    "ollama": ("llama3",),
    "openai": (
        "gpt-4.1",
        "gpt-5",
        "gpt-5-chat-latest",
        "gpt-5.1",
        "gpt-5.2-pro",
        "gpt-5.5",
        "gpt-6",
        "o1",
        "o3",
    ),
    "azure-openai": ("my-deployment",),
    "deepseek": ("deepseek-chat", "deepseek-v4"),
    "xai": ("grok-3", "grok-4", "grok-4-fast-non-reasoning"),
    "openrouter": ("openai/gpt-5", "anthropic/claude-opus-4.7"),
}
#: what says where a fact comes from is no fact itself
_LEFT_OUT = ("name", "title", "docs", "source", "checked", "family", "matches")


def differing(value: Provider | profiles.Profile, plain: Provider | profiles.Profile) -> dict[str, Any]:
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
            profile = profiles.find(row.name, model)
            facts = {"row": differing(row, plain)}
            if profile is not profiles.DEFAULT:
                facts["profile"] = {"family": profile.family, **differing(profile, profiles.DEFAULT)}
            found[f"{row.name} / {model}"] = facts
    return found


def test_every_row_and_profile_resolves_to_the_facts_of_the_snapshot() -> None:
    assert matrix() == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_each_model_of_the_matrix_belongs_to_a_row() -> None:
    assert set(MODELS) <= set(ProviderTable.builtin().names())


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in matrix().items()]
    SNAPSHOT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
