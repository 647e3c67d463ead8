"""ASGI applications: the registry service and the gateway. The only importer of Starlette, uvicorn and Jinja.

`create_app(settings, store)` makes the application, `serve` runs it. Names are loaded when they are first
used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr, require_extra

if TYPE_CHECKING:
    from onym.server.app import create_app, serve
    from onym.server.settings import Settings, load_settings

__all__ = ["Settings", "create_app", "load_settings", "serve"]

# everything here needs it, and the modules below import it without a word
require_extra("starlette", "ai")

_HOME = {
    "Settings": "onym.server.settings",
    "create_app": "onym.server.app",
    "load_settings": "onym.server.settings",
    "serve": "onym.server.app",
}

__getattr__ = make_lazy_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
