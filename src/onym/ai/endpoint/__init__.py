"""Endpoints: resources of an authority that describe themselves, run, and sign what they answer."""

from __future__ import annotations

from onym.ai.endpoint.app import Endpoint
from onym.ai.endpoint.context import (
    ANONYMOUS,
    Answer,
    Authorization,
    Call,
    Caller,
    Limits,
    ResourceHandler,
    StreamEvent,
    Task,
    ThreadTask,
)

__all__ = [
    "ANONYMOUS",
    "Answer",
    "Authorization",
    "Call",
    "Caller",
    "Endpoint",
    "Limits",
    "ResourceHandler",
    "StreamEvent",
    "Task",
    "ThreadTask",
]
