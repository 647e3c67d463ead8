"""ASGI applications: the registry service and the gateway. The only importer of Starlette, uvicorn and Jinja.

`create_app(settings, store)` makes the application, `serve` runs it. Names are loaded when they are first
used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_names, require_extra

if TYPE_CHECKING:
    from onym.server.app import create_app as create_app
    from onym.server.app import serve as serve
    from onym.server.settings import Settings as Settings
    from onym.server.settings import load_settings as load_settings

# every module below needs it and imports it without a check
require_extra("starlette", "ai")

_HOMES = {
    "onym.server.app": "create_app serve",
    "onym.server.settings": "Settings load_settings",
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)
