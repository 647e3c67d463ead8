"""`ai://` names over AIIP/HTTPS v1: resolve, describe, invoke, verify; endpoints that sign what they answer.

Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr

if TYPE_CHECKING:
    from onym.ai.client import AIClient, AsyncAIClient
    from onym.ai.endpoint import Endpoint
    from onym.ai.records import (
        AnchorDocument,
        Auth,
        Description,
        Effects,
        EndpointEntry,
        Invocation,
        Level,
        Namespace,
        Namespaces,
        Requirements,
        Resolution,
        Result,
        Source,
        Verdict,
    )
    from onym.ai.replay import MemoryReplays, ReplayFile, Replays
    from onym.ai.settings import ResolverSettings

__all__ = [
    "AIClient",
    "AnchorDocument",
    "AsyncAIClient",
    "Auth",
    "Description",
    "Effects",
    "Endpoint",
    "EndpointEntry",
    "Invocation",
    "Level",
    "MemoryReplays",
    "Namespace",
    "Namespaces",
    "ReplayFile",
    "Replays",
    "Requirements",
    "Resolution",
    "ResolverSettings",
    "Result",
    "Source",
    "Verdict",
]

_HOMES = {
    "client": ("AIClient", "AsyncAIClient"),
    "endpoint": ("Endpoint",),
    "records": (
        "AnchorDocument",
        "Auth",
        "Description",
        "Effects",
        "EndpointEntry",
        "Invocation",
        "Level",
        "Namespace",
        "Namespaces",
        "Requirements",
        "Resolution",
        "Result",
        "Source",
        "Verdict",
    ),
    "replay": ("MemoryReplays", "ReplayFile", "Replays"),
    "settings": ("ResolverSettings",),
}

__getattr__ = make_lazy_getattr(
    "onym.ai", {name: f"onym.ai.{home}" for home, names in _HOMES.items() for name in names}
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
