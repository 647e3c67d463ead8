"""Load public names when they are first used, and use an extra if it is installed or wanted."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from onym.errors import MissingExtraError

T = TypeVar("T")


def make_lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names are loaded when they are first used.

    `homes` maps a module to the names that it defines, with blanks between. A module's own name gives the
    module itself ("onym.errors": "OnymError errors").
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}
    public = sorted(modules)

    def load(name: str) -> Any:
        home = modules.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(home)
        value = module if home == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: public, public


def require_extra(package: str, extra: str) -> None:
    """Raise MissingExtraError, with the command to run, unless `package` of onym[extra] is installed."""
    from importlib.util import find_spec  # late: `import onym` loads next to nothing

    if find_spec(package) is None:
        raise make_missing_extra_error(package, extra)


#: with the value 1 or true, every client, endpoint and gateway reports to OpenTelemetry's global providers
_TELEMETRY: Final = "ONYM_TELEMETRY"


def make_telemetry(make: Callable[[], T], environ: Mapping[str, str]) -> T | None:
    """The telemetry that `make` makes if `ONYM_TELEMETRY` is 1 or true, else None.

    Without the extra, the result is None with a warning: observation must not stop a program.
    """
    if environ.get(_TELEMETRY, "").strip().lower() not in ("1", "true"):
        return None
    from onym.errors import MissingExtraError, OnymWarning  # late, too

    try:
        return make()
    except MissingExtraError as error:
        message = f"{_TELEMETRY} is set, but {error}: run {error.command}"
        warnings.warn(message, OnymWarning, stacklevel=3)
        return None


def make_missing_extra_error(package: str, extra: str, *, code: str | None = None) -> MissingExtraError:
    """The error for a package of onym[extra] that is not installed."""
    from onym.errors import MissingExtraError  # late, too

    command = f"pip install 'onym[{extra}]'"
    return MissingExtraError(
        f"this needs {package}, which is not installed",
        code=code or f"{extra}.missing-extra",
        command=command,
        hint=f"run: {command}",
    )
