"""Keyword arguments of other libraries as overrides of one call of Onym's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from onym.errors import UsageError
from onym.llm.types import Carried
from onym.uri._names import PROVIDER_NAMES, WELL_KNOWN

__all__ = ["arguments_of", "carried_from", "carried_to", "overrides"]

_MILLISECONDS: Final = frozenset({"timeout_ms", "timeoutMs"})
_OURS: Final = frozenset({*WELL_KNOWN, "tools", "tool_choice", "schema"})
#: what libraries call a choice that this project calls required
_CHOICES: Final = {"any": "required", True: "required", False: "none"}


def overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """What `Client.chat` takes: well-known names, tools, schema, and everything else in `extra`.

    Other libraries' names are understood (`temperature`, `max_completion_tokens`, `response_format`, `stop`);
    a `timeout` is in seconds, as they have it. None stands for what the URI says.
    """
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in given.items():
        known = PROVIDER_NAMES.get(name, name)
        if value is None:
            continue
        if known == "format":
            found.update(_format(value))
        elif known in _OURS:
            found[known] = _value(known, name, value)
        elif name == "extra_body" and isinstance(value, Mapping):
            extra.update(value)
        else:
            extra[name] = value
    if not found.get("tools"):
        found.pop("tools", None)
        found.pop("tool_choice", None)
    if extra:
        found["extra"] = extra
    return found


def _value(known: str, name: str, value: Any) -> Any:
    if known == "timeout" and name not in _MILLISECONDS and isinstance(value, int | float):
        return max(1, round(value * 1000))
    if known == "tool_choice" and isinstance(value, str | bool):
        return _CHOICES.get(value, value)
    if known == "tools":
        return list(value)
    return value


def _format(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {"format": value}
    kind = value.get("type")
    if kind == "json_object":
        return {"format": "json"}
    described = value.get("json_schema")
    if kind == "json_schema" and isinstance(described, Mapping):
        return {"schema": described.get("schema", {})}
    if kind == "text":
        return {"format": "text"}
    raise UsageError("a response_format is text, json_object or json_schema")


def arguments_of(text: str) -> dict[str, Any] | None:
    """A tool call's arguments as the object that frameworks want, None where the model wrote none."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def carried_to(carried: Carried | None) -> dict[str, Any] | None:
    """What the provider wants back with the turn, as plain data that a framework's message keeps."""
    return (
        None if carried is None else {"dialect": carried.dialect, "parts": [dict(p) for p in carried.parts]}
    )


def carried_from(data: Any) -> Carried | None:
    """The same, read back; None for what is nothing of the kind."""
    if not isinstance(data, Mapping) or not isinstance(data.get("dialect"), str):
        return None
    return Carried(dialect=data["dialect"], parts=tuple(data.get("parts") or ()))
