"""spec/requirements.toml, and which tests name its ids, read without running a test."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@cache
def records() -> dict[str, dict[str, Any]]:
    """Requirement id -> its record, in the order of the file."""
    text = (ROOT / "spec" / "requirements.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text)["requirement"]
    found = {record["id"]: record for record in listed}
    assert len(found) == len(listed), "an id stands twice"
    return found


def marked_ids(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Owner and id of each `pytest.mark.requirement(...)`: a function, a class, or "" for the module."""
    owners: dict[ast.expr, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            owners.update(dict.fromkeys(node.decorator_list, node.name))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "requirement"
            and ast.unparse(node.func) == "pytest.mark.requirement"
        ):
            for argument in node.args:
                assert isinstance(argument, ast.Constant), f"line {node.lineno}: ids are written out"
                yield owners.get(node, ""), str(argument.value)


@cache
def holders() -> dict[str, list[str]]:
    """Requirement id -> the tests that hold it, as path::name."""
    held: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        # parsing every test takes seconds; most have no requirement
        for owner, name in marked_ids(ast.parse(text)) if "mark.requirement" in text else ():
            where = path.relative_to(ROOT).as_posix() + (f"::{owner}" if owner else "")
            if where not in held.setdefault(name, []):
                held[name].append(where)
    return held
