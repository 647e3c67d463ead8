"""Octets as text that is safe to print."""

from __future__ import annotations

__all__ = ["octets_of", "shown"]


def shown(octets: bytes) -> str:
    r"""Octets as UTF-8 text; what is no UTF-8, or is not printable, as \xNN or \uNNNN."""
    text = octets.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def octets_of(text: str | bytes) -> bytes | None:
    """A string as the octets that an automaton reads: UTF-8. None for a lone surrogate: it has none."""
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError:
        return None
