"""Failures of Ollama's dialect: `{"error": text}`, told by the status alone."""

from __future__ import annotations

from typing import Any

from onym.llm.dialects._errors import Failures, Said, status_number

__all__ = ["FAILURES"]


def _read(data: Any) -> Said | None:
    """The server's own shape, or the record that a gateway before it writes under the same name."""
    error = data.get("error") if isinstance(data, dict) else None
    if isinstance(error, str):
        return Said(error)
    if not isinstance(error, dict):
        return None
    text = error.get("message")
    return Said(text if isinstance(text, str) else "", status=status_number(error.get("code")))


FAILURES = Failures(read=_read, codes={}, hint="is this host an Ollama server?")
