"""What the bridges of MCP and A2A need of a client for ai names, and how they show what it found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from onym.ai.endpoint._types import rooted
from onym.errors import OnymError, UsageError
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from onym.ai.records import Description, Result

__all__ = [
    "RECEIPT",
    "URI",
    "Invoker",
    "input_schema",
    "is_json",
    "json_of",
    "levels",
    "named",
    "plain",
    "text_of",
]

#: members of metadata: the receipt in its compact form, and the ai URI that was asked
RECEIPT: Final = "aiip-receipt"
URI: Final = "aiip-uri"
_MOST: Final = 128
_LONGEST_NAME: Final = 64
#: names that MCP has for tools (2025-11-25, server/tools)
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
#: levels of a stranger's schema that are told on: writers of JSON have an end
_DEEPEST: Final = 64
#: charsets of a text that UTF-8 reads
_CHARSETS: Final = frozenset({"", "utf-8", "us-ascii"})


class Invoker(Protocol):
    """A client for ai names: `onym.ai.AsyncAIClient`. What it gives was verified."""

    async def describe(self, uri: str | AIURI) -> Description:
        """What a resource is."""
        ...

    async def invoke(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        accept: str | None = None,
        idempotency_key: str | None = None,
    ) -> Result:
        """The verified result of an invocation."""
        ...


def named(uris: Mapping[str, str] | Iterable[str]) -> dict[str, AIURI]:
    """Resources by a name for other protocols: the one given, else made of the path.

    Raises AIURIError, and UsageError for two resources of one name or too many of them.
    """
    pairs = uris.items() if isinstance(uris, Mapping) else ((None, each) for each in uris)
    found: dict[str, AIURI] = {}
    for name, text in pairs:
        uri = AIURI.parse(text)
        label = _label(uri) if name is None else name
        if _NAME.fullmatch(label) is None:
            raise UsageError(
                f"{plain(label, 60)!r} is no name of a tool",
                code="usage.bad-argument",
                hint="1 to 128 of A-Z a-z 0-9 _ - .",
            )
        if label in found:
            raise UsageError(
                f"two resources are called {label}",
                code="usage.bad-argument",
                hint="give a mapping of names to URIs",
            )
        if len(found) >= _MOST:
            raise UsageError(f"there are more than {_MOST} resources", code="usage.bad-argument")
        found[label] = uri
    return found


def is_json(content_type: str | None) -> bool:
    """Whether a media type is JSON."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def json_of(found: Result) -> tuple[Any, ...]:
    """The JSON value that a result is, alone; () where it is none, whatever it calls itself."""
    if not is_json(found.content_type):
        return ()
    try:
        return (found.json(),)
    except OnymError:
        return ()


def text_of(found: Result) -> str | None:
    """The text that a result is, JSON too; None for anything that is not surely text in UTF-8."""
    kind, _, rest = (found.content_type or "").partition(";")
    text = kind.strip().lower().startswith("text/")
    if not (is_json(kind) or (text and _charset(rest) in _CHARSETS)):
        return None
    try:
        return found.body.decode()
    except UnicodeDecodeError:
        return None


def input_schema(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """A stranger's schema of an input, as one of an object; {"type": "object"} where it says nothing of it.

    What is told to all of a protocol's clients must not break them: a schema of another form says nothing.
    """
    found = rooted(schema or {})
    kind = found.get("type", "object")
    if (kind == "object" or (isinstance(kind, list) and "object" in kind)) and _is_sound(found):
        return {**found, "type": "object"}
    return {"type": "object"}


def _is_sound(schema: Mapping[str, Any]) -> bool:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(properties, dict)
        and all(isinstance(each, dict | bool) for each in properties.values())
        and isinstance(required, list)
        and all(isinstance(each, str) for each in required)
        and isinstance(schema.get("$schema", ""), str)
        and all(depth < _DEEPEST for depth, _ in enumerate(levels(schema)))
    )


def levels(value: Any) -> Iterator[list[Any]]:
    """What a JSON value holds, level by level, itself first."""
    level = [value]
    while level:
        yield level
        level = [inner for each in level for inner in _inside(each)]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def _charset(parameters: str) -> str:
    found = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    return "" if found is None else found[1].lower()


def plain(text: str, most: int = 500) -> str:
    """A stranger's text, fit to be shown: one line, without controls, of bounded length."""
    shown = "".join(each if each.isprintable() else " " for each in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _label(uri: AIURI) -> str:
    kept = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "_" for each in uri.path)
    return kept.strip("_")[:_LONGEST_NAME] or "root"
