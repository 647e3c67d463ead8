"""LLM URI Scheme Well-Known Query Parameters.

Written by `onym registry export -r llm-parameters --format tables`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TYPES", "WELL_KNOWN"]

#: their names, in the registry's order
WELL_KNOWN: Final = (
    "temp",
    "max_tokens",
    "top_p",
    "top_k",
    "stop",
    "seed",
    "stream",
    "timeout",
    "retries",
    "cache",
    "format",
    "system",
)

#: the type of each one's value
TYPES: Final = {
    "temp": "float",
    "max_tokens": "int",
    "top_p": "float",
    "top_k": "int",
    "stop": "string",
    "seed": "int",
    "stream": "bool",
    "timeout": "int",
    "retries": "int",
    "cache": "bool",
    "format": "string",
    "system": "string",
}
