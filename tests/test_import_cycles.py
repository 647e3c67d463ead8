"""No module of Onym imports itself over others, not even by a late import or one for the type checker."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onym

_ROOT = Path(onym.__file__).parent
#: cycles that are still there; the set may only become smaller
_STILL_THERE: set[frozenset[str]] = set()


def test_no_modules_import_each_other() -> None:
    assert set(find_cycles(build_graph())) <= _STILL_THERE


def test_a_cycle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e"}}
    assert set(find_cycles(graph)) == {frozenset("abc")}


def build_graph() -> dict[str, set[str]]:
    """Module -> the modules that it imports, wherever in its text."""
    paths = {name_module(path): path for path in _ROOT.rglob("*.py")}
    return {
        name: {
            target
            for imported in iter_imports(path, name, is_package=path.name == "__init__.py")
            if (target := find_module(imported, paths)) not in (None, name)
        }
        for name, path in paths.items()
    }


def name_module(path: Path) -> str:
    parts = ("onym", *path.relative_to(_ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def iter_imports(path: Path, name: str, *, is_package: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: relative import"
            # a package that only names its members' homes for the type checker depends on none of them
            if not (is_package and (node.module or "").startswith(f"{name}.")):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def find_module(imported: str, modules: dict[str, Path]) -> str | None:
    if imported in modules:
        return imported
    parent = imported.rpartition(".")[0]
    return parent if parent in modules else None


def find_cycles(graph: dict[str, set[str]]) -> Iterator[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[frozenset[str]]:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                yield from visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                yield frozenset(component)

    for node in sorted(graph):
        if node not in index:
            yield from visit(node)
