"""The keyword arguments of one call: what they may be called, and what they may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from onym.errors import ConfigError, UsageError
from onym.llm._messages import to_tools
from onym.llm.mapping import Layer
from onym.llm.types import Tool
from onym.uri._names import WELL_KNOWN, is_redirecting

__all__ = ["CHAT", "EMBED", "Overrides", "profile_layer", "read_overrides"]

_COMMON = ("timeout", "retries")
CHAT = (*WELL_KNOWN, "tools", "tool_choice", "schema", "extra")
EMBED = (*_COMMON, "dimensions", "extra")

_CHOICES = frozenset({"auto", "none", "required"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What one call says beside its messages; `layers` is the strongest layer, or nothing."""

    layers: tuple[Layer, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    schema: Mapping[str, Any] | None = None


def read_overrides(given: Mapping[str, Any], extra_names: Iterable[str] = CHAT) -> Overrides:
    """The overrides of a call. A name that is not known, or has no place here, is a UsageError.

    None stands for "as the URI says". A schema without a format means `format="json_schema"`.
    """
    allowed = (*_COMMON, *extra_names)
    for name in given:
        if name not in allowed:
            close = get_close_matches(name, allowed, n=1)
            raise UsageError(
                "an argument has a name that this call does not know",
                code="usage.unknown-argument",
                hint=f"did you mean {close[0]}?" if close else f"it knows {', '.join(sorted(set(allowed)))}",
            )
    values = {name: given[name] for name in WELL_KNOWN if given.get(name) is not None}
    schema = given.get("schema")
    if schema is not None:
        if not isinstance(schema, Mapping):
            raise UsageError("schema is a JSON Schema, as a dict")
        if values.setdefault("format", "json_schema") != "json_schema":
            raise UsageError("a schema goes with format=json_schema alone")
    extra = dict(_extra(given.get("extra")))
    if given.get("dimensions") is not None:
        extra["dimensions"] = _dimensions(given["dimensions"])
    tools = to_tools(given["tools"]) if given.get("tools") is not None else ()
    layer = Layer(origin="override", values=values, extra=extra)
    return Overrides(
        layers=(layer,) if values or extra else (),
        tools=tools,
        tool_choice=_tool_choice(given.get("tool_choice"), tools),
        schema=schema,
    )


def profile_layer(name: str, values: Mapping[str, Any]) -> tuple[Layer, Mapping[str, Any] | None]:
    """A profile of the configuration as a layer, and the schema that it may bring.

    Raises ConfigError for a name that would redirect or replace a request.
    """
    schema = values.get("schema")
    if schema is not None and not isinstance(schema, Mapping):
        raise ConfigError("the schema of a profile is a table", code="config.bad-profile")
    extra = {key: value for key, value in values.items() if key not in (*WELL_KNOWN, "schema")}
    if any(is_redirecting(key) for key in extra):
        raise ConfigError(
            "a profile holds a name that would redirect or replace the request", code="config.bad-profile"
        )
    known = {key: values[key] for key in WELL_KNOWN if key in values}
    return Layer(origin=f"profile:{name}", values=known, extra=extra), schema


def _extra(given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise UsageError("extra is a dict of parameters for the provider")
    if any(is_redirecting(name) for name in given):
        raise UsageError(
            "extra holds a name that would redirect or replace the request", code="usage.redirecting"
        )
    return given


def _dimensions(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError("dimensions is a whole number of at least 1")
    return given


def _tool_choice(given: Any, tools: tuple[Tool, ...]) -> str | None:
    """One of auto, none, required, or the name of a tool of this call."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        function = given.get("function")
        given = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(given, str) or (given not in _CHOICES and given not in {tool.name for tool in tools}):
        raise UsageError("tool_choice is auto, none, required or the name of a tool of this call")
    if not tools:
        raise UsageError("tool_choice goes with tools")
    return given
