"""The URI that somebody probably meant with a text that is none, for `check` to propose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onym.errors import URIError

if TYPE_CHECKING:
    from onym.uri.llm import LLMURI

__all__ = ["repaired"]

_WRAPPING = " \t\r\n\ufeff\u200b<>\"'`"
_SHORT_START = re.compile(r"llm:/?(?=[^/])", re.IGNORECASE)
_PATH = re.compile(r"(?<![:/])/[^?#]*")
_SLASHES = re.compile("/{2,}")
# what no URI holds raw, and a % that starts no triplet; controls are left: nobody means them
_STRAY = re.compile(r"[ \"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")
#: longer texts are not repaired
_LONGEST = 8192


def repaired(text: str) -> LLMURI | None:
    """The llm URI nearest to `text`, or None.

    Quotes and blanks around it go, `llm:` gets its slashes, characters that no URI holds are
    percent-encoded, empty segments go, and an IRI becomes a URI.
    """
    from onym.uri.llm import LLMURI  # that module imports `check`, which imports this one

    if len(text) > _LONGEST:
        return None
    better = text.strip(_WRAPPING)
    better = _SHORT_START.sub("llm://", better, count=1) if _SHORT_START.match(better) else better
    better = _STRAY.sub(lambda found: f"%{ord(found[0]):02X}", better)
    better = _PATH.sub(_without_empty_segments, better, count=1)
    try:
        return LLMURI.parse(better) if better.isascii() else LLMURI.from_iri(better)
    except URIError:
        return None


def _without_empty_segments(path: re.Match[str]) -> str:
    return _SLASHES.sub("/", path[0]).rstrip("/") or "/"
