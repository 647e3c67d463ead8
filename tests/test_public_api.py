"""`onym` offers what `__all__` says, from where the type checker looks, and loads it late."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import onym
from support import as_subtests

_SOURCE = Path(onym.__file__)


def typed_imports() -> dict[str, str]:
    """Public name -> module, as the TYPE_CHECKING block imports it."""
    tree = ast.parse(_SOURCE.read_text(encoding="utf-8"))
    block = next(
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            # `as` with the same name is how a type checker knows that a name is exported
            assert alias.asname == alias.name
            found[alias.name] = f"onym.{alias.name}" if node.module == "onym" else node.module
    return found


HOMES = {name: module for module, names in onym._HOMES.items() for name in names.split()}


def test_no_name_is_listed_twice() -> None:
    assert len(onym.__all__) == len(set(onym.__all__))


def test_all_lists_exactly_what_the_module_offers() -> None:
    assert set(onym.__all__) == {*HOMES, "__version__"}
    assert dir(onym) == sorted(onym.__all__)
    public = {name for name in vars(onym) if not name.startswith("_")}
    # submodules appear once they are imported; nothing else may stand there unlisted
    submodules = {module.name for module in pkgutil.iter_modules(onym.__path__)}
    assert public - submodules - {"annotations", "TYPE_CHECKING", "make_lazy_names"} <= set(onym.__all__)


def test_the_type_checker_and_the_running_program_see_the_same_modules() -> None:
    assert typed_imports() == HOMES


@as_subtests("name", onym.__all__)
def test_every_public_name_can_be_loaded(name: str) -> None:
    value = getattr(onym, name)
    if name in HOMES:
        home = importlib.import_module(HOMES[name])
        assert value is home or value is getattr(home, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        onym.nothing  # noqa: B018 - the access is the test


def test_importing_onym_loads_none_of_the_floors_above_uri() -> None:
    above = "('onym.net', 'onym.llm', 'onym.cli')"
    code = f"import sys, onym; print(*[name for name in sys.modules if name.startswith({above})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_module_has_what_its_all_names() -> None:
    for found in pkgutil.walk_packages(onym.__path__, "onym."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            missing = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
            assert not missing, found.name


def test_a_package_lists_its_public_names_and_nothing_else() -> None:
    import onym.uri

    assert dir(onym) == sorted(onym.__all__)
    assert dir(onym.uri) == sorted(onym.uri.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = onym.nothing
