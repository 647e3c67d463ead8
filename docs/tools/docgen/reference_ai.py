"""docs/reference/ai-python.md: the public names of ai:// in Python, by their modules."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any

from docgen.reference_api import entry
from docgen.text import GENERATED, code, paragraphs
from onym.ai.client import AIStream, AsyncAIStream
from onym.ai.client_flows import Session

__all__ = ["MODULES", "ai_page"]

#: in the order of the page; a name that several have stands with the first
MODULES = (
    "onym.ai",
    "onym.ai.endpoint",
    "onym.ai.endpoint.oauth",
    "onym.ai.telemetry",
    "onym.ai.endpoint.kinds",
    "onym.server.models",
    "onym.bridges.mcp",
    "onym.bridges.a2a",
    "onym.bridges.approvals",
    "onym.sign",
)


def ai_page() -> str:
    """The page."""
    out = [
        GENERATED,
        "# ai:// names in Python\n",
        (
            "These modules need the extra `ai`; the bridges also need `mcp` or `a2a`, and hardware keys "
            "need `pkcs11`. The guides show how to use "
            "them: [Publish a function](../how-to/publish-a-function.md), "
            "[Serve a model](../how-to/serve-a-model.md), [Verify a result](../how-to/verify-a-result.md). "
            "All errors are in [Error codes](errors.md).\n"
        ),
    ]
    seen: set[int] = set()
    for name in MODULES:
        module = import_module(name)
        out += [f"## {name}\n", paragraphs(inspect.getdoc(module) or "")]
        for public in sorted(module.__all__, key=str.lower):
            out += _public(module, public, seen)
        if name == "onym.ai":
            out += _rest()
    return "\n".join(out)


def _rest() -> Iterator[str]:
    """What `stream` gives, and what the arguments of a client are."""
    for value in (AIStream, AsyncAIStream, Session):
        yield from entry(value.__name__, value, "###", anchor=f"ai-{value.__name__.lower()}")


def _public(module: ModuleType, name: str, seen: set[int]) -> Iterator[str]:
    value: Any = getattr(module, name)
    if id(value) in seen or not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    seen.add(id(value))
    if inspect.isclass(value) and issubclass(value, Enum):
        yield f"### {name}\n"
        yield f"{inspect.getdoc(value)} One of {', '.join(code(each) for each in value)}.\n"
        return
    room = module.__name__.removeprefix("onym.").replace(".", "-")
    yield from entry(name, value, "###", anchor=f"{room}-{name.lower()}")
