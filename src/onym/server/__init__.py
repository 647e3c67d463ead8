"""ASGI applications: the registry service. The only importer of Starlette, uvicorn and Jinja.

`create_app(settings, store)` makes the application, `serve` runs it. Names are loaded when they are first
used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onym._lazy import require_extra

if TYPE_CHECKING:
    from onym.server.app import create_app, serve
    from onym.server.settings import Settings, load_settings

__all__ = ["Settings", "create_app", "load_settings", "serve"]

# everything here needs it, and the modules below import it without a word
require_extra("starlette", "ai")

_HOME_OF = {"Settings": "settings", "create_app": "app", "load_settings": "settings", "serve": "app"}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"onym.server.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
