"""What the bridges of MCP and A2A need of a client for ai names, and how they show what it found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from onym.errors import UsageError
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from onym.ai.records import Description, Result

__all__ = ["RECEIPT", "URI", "Invoker", "is_json", "named", "plain"]

#: members of metadata: the receipt in its compact form, and the ai URI that was asked
RECEIPT: Final = "aiip-receipt"
URI: Final = "aiip-uri"
_MOST: Final = 128
_LONGEST_NAME: Final = 64


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
        label = name or _label(uri)
        if label in found or len(found) >= _MOST:
            raise UsageError(
                f"two resources are called {label}, or there are more than {_MOST}",
                code="usage.bad-argument",
                hint="give a mapping of names to URIs",
            )
        found[label] = uri
    return found


def is_json(content_type: str | None) -> bool:
    """Whether a media type is JSON."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def plain(text: str, most: int = 500) -> str:
    """A stranger's text, fit to be shown: one line, without controls, of bounded length."""
    shown = "".join(each if each.isprintable() else " " for each in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _label(uri: AIURI) -> str:
    kept = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "_" for each in uri.path)
    return kept.strip("_")[:_LONGEST_NAME] or "root"
