"""What tests of several rooms share: the vectors, ours and those kept beside the checkout."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "vectors"


@cache
def load_own(name: str) -> Any:
    """A file of the project's own `vectors/`."""
    return json.loads((ROOT / "vectors" / name).read_text(encoding="utf-8"))


def load_shared(name: str) -> Any:
    """A file of the shared vectors, or a skip that says why."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"shared vectors are not beside this checkout: {name}", allow_module_level=True)
    return json.loads(path.read_text(encoding="utf-8"))


def generated(case: dict[str, Any], key: str) -> str:
    """The input of a vector: given in full, or built from its `generate` record."""
    if key in case:
        return str(case[key])
    recipe = case["generate"]
    text = str(recipe.get("prefix", ""))
    text += repeated(recipe.get("repeat"))
    text += str(recipe.get("suffix", ""))
    return text + repeated(recipe.get("suffix_repeat"))


def repeated(pair: list[Any] | None) -> str:
    """`["a{i}", n]` as n copies, `{i}` the index."""
    if pair is None:
        return ""
    unit, count = pair
    if "{i}" in unit:
        return "".join(unit.replace("{i}", str(i)) for i in range(count))
    return str(unit) * int(count)
