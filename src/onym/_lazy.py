"""What is loaded late: public names when they are first used, and what an extra brings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["make_lazy_getattr", "require_extra"]


def make_lazy_getattr(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module `__getattr__` for `package`: each name of `homes` comes from the module it maps to.

    A name whose home is the module itself ("errors": "onym.errors") gives that module.
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(home)
        value = module if home == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def require_extra(package: str, extra: str) -> None:
    """Raises MissingExtraError, with the command to type, where `package` of onym[extra] is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is not None:
        return
    from onym.errors import MissingExtraError  # late: `import onym` loads next to nothing

    command = f"pip install 'onym[{extra}]'"
    raise MissingExtraError(
        f"this needs {package}, which is not installed",
        code=f"{extra}.missing-extra",
        command=command,
        hint=f"run: {command}",
    )
