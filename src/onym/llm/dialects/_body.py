"""What the bodies of several dialects share: nested names, pass-through parameters, data URLs."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from onym.errors import UnsupportedError, UsageError
from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._read import json_object
from onym.llm.types import DocumentPart, ImagePart, Request, ToolCall

__all__ = [
    "arguments_object",
    "data_base64",
    "data_url",
    "merge",
    "no_part",
    "put",
    "put_params",
    "schema_name",
]

_SCHEMA_NAME = re.compile(r"[^A-Za-z0-9_-]+")

#: what switches a provider's own prompt cache on, by the wire name of the switch
_CACHE_VALUES: Mapping[str, Any] = {
    "cache_control": {"type": "ephemeral"},
    "providerOptions.gateway.caching": "auto",
}


def put(body: dict[str, Any], name: str, value: Any) -> None:
    """Set a member by its wire name; dots nest: `generationConfig.topK`."""
    *path, last = name.split(".")
    for step in path:
        body = body.setdefault(step, {})
    body[last] = _CACHE_VALUES.get(name, value) if value is True else value


def put_params(
    body: dict[str, Any],
    request: Request,
    spec: WireSpec,
    names: Mapping[str, str | None],
    write_format: Callable[[str, Mapping[str, Any] | None], Any],
) -> None:
    """The well-known parameters of a request under their wire names, which `spec` may change."""
    for name, value in request.params.items():
        wire = spec.names.get(name) or names[name] or name
        if name == "format":
            value = write_format(value, request.schema)
        elif name == "stop":
            value = list(value)
        put(body, wire, value)


def merge(body: dict[str, Any], extra: Mapping[str, Any]) -> None:
    """Add pass-through parameters, objects into objects; what is already there is never replaced."""
    for name, value in extra.items():
        here = body.setdefault(name, value)
        if here is not value and isinstance(here, dict) and isinstance(value, Mapping):
            merge(here, value)
        elif here is value and isinstance(value, Mapping):
            body[name] = dict(value)


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """The arguments as the object that some APIs want; no text at all is an empty one.

    Raises UsageError where they are no object.
    """
    found = json_object(call.arguments) if call.arguments.strip() else {}
    if found is None:
        raise UsageError(
            f"the arguments of the tool call {call.name} are no JSON object, and this API takes nothing else",
            code="usage.bad-message",
        )
    return found


def data_base64(part: ImagePart | DocumentPart) -> str:
    """The octets of a part as base64 text."""
    return b64encode(part.data or b"").decode("ascii")


def data_url(part: ImagePart | DocumentPart) -> str:
    """The octets of a part as a data: URL."""
    return f"data:{part.media_type};base64,{data_base64(part)}"


def schema_name(schema: Mapping[str, Any]) -> str:
    """A name for a schema that APIs accept, from its title."""
    title = schema.get("title")
    name = _SCHEMA_NAME.sub("_", title)[:64].strip("_") if isinstance(title, str) else ""
    return name or "answer"


def no_part(what: str, dialect: str, *, hint: str | None = None) -> UnsupportedError:
    """The refusal of a part that a dialect has no place for."""
    return UnsupportedError(
        f"the {dialect} API takes no {what}", code="llm.no-part", parameter="messages", hint=hint
    )
