"""The built-in rows: who serves models, as captured from vendor SDKs on the wire and from sources.

What a source did not say is left out, and so unknown. Nothing but a rename stands in `params`: `timeout` and
`retries` are the client's own.
"""

from __future__ import annotations

from onym.llm.providers._row import Provider
from onym.llm.providers._rows import gateways, local, media, openai, own_formats, vendors

__all__ = ["BUILTIN"]

BUILTIN: tuple[Provider, ...] = (
    *local.ROWS,
    *openai.ROWS,
    *gateways.ROWS,
    *vendors.ROWS,
    *own_formats.ROWS,
    *media.ROWS,
)
