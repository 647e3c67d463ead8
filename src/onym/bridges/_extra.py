"""The one way in which a bridge says that its framework is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onym.errors import MissingExtraError

__all__ = ["needs"]


@contextmanager
def needs(package: str, extra: str | None = None) -> Iterator[None]:
    """Imports of `package` inside the `with` raise MissingExtraError where it is not installed.

    `extra` is the extra of this distribution that brings it; without one, the package itself is named. A
    package that is installed and broken keeps its own error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package.partition(".")[0]:
            raise
        wanted = package.partition(".")[0].replace("_", "-") if extra is None else f"onym[{extra}]"
        command = f"pip install '{wanted}'"
        raise MissingExtraError(
            f"this bridge needs {package.partition('.')[0]}, which is not installed",
            code="bridge.missing-extra",
            command=command,
            hint=f"run: {command}",
        ) from None
