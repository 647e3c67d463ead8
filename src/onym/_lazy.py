"""Load public names when they are first used, and check that an extra is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onym.errors import MissingExtraError

__all__ = ["make_lazy_getattr", "make_missing_extra_error", "require_extra"]


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
    """Raises MissingExtraError, with the command to run, unless `package` of onym[extra] is installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise make_missing_extra_error(package, extra)


def make_missing_extra_error(
    package: str, extra: str | None, *, code: str | None = None
) -> MissingExtraError:
    """The error for a package that is not installed; without an extra, pip installs the package itself."""
    from onym.errors import MissingExtraError  # late: `import onym` loads next to nothing

    wanted = package.replace("_", "-") if extra is None else f"onym[{extra}]"
    command = f"pip install '{wanted}'"
    return MissingExtraError(
        f"this needs {package}, which is not installed",
        code=code or f"{extra}.missing-extra",
        command=command,
        hint=f"run: {command}",
    )
