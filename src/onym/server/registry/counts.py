"""How many entries a registry has of each status; kept until the log moves on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym.server.registry.desk import store

if TYPE_CHECKING:
    from starlette.requests import Request

    from onym.registry.records import Status

__all__ = ["counts_of"]


async def counts_of(request: Request, registry: str) -> dict[Status, int]:
    """Entries by status. Raises UnknownEntryError."""
    state = request.app.state
    kept: dict[str, tuple[int, dict[Status, int]]] = getattr(state, "registry_counts", None) or {}
    state.registry_counts = kept
    head = (await store(request).head()).number
    found = kept.get(registry)
    if found is None or found[0] != head:
        found = kept[registry] = (head, await store(request).counts(registry))
    return found[1]
