"""Wire formats by name. Each is one module of pure functions, imported when it is first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import cast

from onym.errors import ConfigError, UnsupportedError
from onym.llm.dialects._base import NOWHERE, Decoder, Dialect, Exchange, HeaderMap, Routes, WireSpec

__all__ = [
    "DIALECTS",
    "GROUP",
    "NOWHERE",
    "Decoder",
    "Dialect",
    "Exchange",
    "HeaderMap",
    "Routes",
    "WireSpec",
    "get",
]

#: distributions add dialects here: modules, or objects, with the names of `Dialect`
GROUP = "onym.dialects"
#: the dialects that this version speaks, and the modules that speak them
DIALECTS = {
    name: f"onym.llm.dialects.{name}"
    for name in (
        "anthropic_messages",
        "anthropic_vertex",
        "bedrock_converse",
        "cohere_v2",
        "gemini",
        "gemini_vertex",
        "mistral_chat",
        "ollama",
        "openai_chat",
        "openai_responses",
    )
}


@cache
def get(name: str) -> Dialect:
    """The dialect of this name: one of our own, or one that a distribution brings by an entry point.

    Raises UnsupportedError where there is none, ConfigError for an entry point that cannot be loaded.
    """
    if name in DIALECTS:
        return cast("Dialect", import_module(DIALECTS[name]))
    # 28 ms of imports, for a name that is not known so far
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        try:
            return cast("Dialect", point.load())
        except Exception as error:
            raise ConfigError(
                f"the dialect {name}, of the entry points {GROUP}, fails to load ({type(error).__name__})",
                code="dialect.bad-plugin",
                hint="uninstall or upgrade the distribution that brings it",
            ) from error
    raise UnsupportedError(
        f"this version of Onym does not speak the dialect {name}",
        code="llm.no-dialect",
        hint=f"it speaks {', '.join(sorted(DIALECTS))}",
    )
