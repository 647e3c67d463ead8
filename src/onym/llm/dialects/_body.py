"""What the bodies of several dialects share: nested names, pass-through parameters, data URLs."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from onym.errors import UnsupportedError
from onym.llm.types import DocumentPart, ImagePart

__all__ = ["data_base64", "data_url", "merge", "no_part", "put", "schema_name"]

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


def merge(body: dict[str, Any], extra: Mapping[str, Any]) -> None:
    """Add pass-through parameters, objects into objects; what is already there is never replaced."""
    for name, value in extra.items():
        here = body.setdefault(name, value)
        if here is not value and isinstance(here, dict) and isinstance(value, Mapping):
            merge(here, value)
        elif here is value and isinstance(value, Mapping):
            body[name] = dict(value)


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
