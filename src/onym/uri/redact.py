"""Secrets out of any text, in linear time, by position.

Found are: the credential in llm:// URIs and in the userinfo of other schemes, whole or broken, plain
or escaped; keys that show their provider's shape; values that their name gives away; PEM private
keys; and every secret that the caller knows. Each is replaced by `***`, an app label stays (draft
10.1). A key without shape, name or URI around it cannot be told from other text: pass it in `secrets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from onym.uri._redact_names import is_secret_name
from onym.uri._redact_scan import cleaned, known_values
from onym.uri._redact_stream import WINDOW, redact_stream
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.uri._redact_log import RedactingFilter, install_logging_filter

__all__ = [
    "WINDOW",
    "RedactingFilter",
    "install_logging_filter",
    "is_secret_name",
    "redact",
    "redact_stream",
]


def redact(text: str, *, secrets: Iterable[Secret | str] = ()) -> str:
    """The text with `***` in place of every credential that can be found in it.

    `secrets` are values to remove wherever they occur, also escaped; those shorter than four
    characters are ignored. Idempotent. Raises TypeError for what is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"redact() takes a str, not {type(text).__name__}")
    return cleaned(text, known_values(secrets))


def __getattr__(name: str) -> Any:
    # `logging` costs more to import than all of this
    if name in ("RedactingFilter", "install_logging_filter"):
        from onym.uri import _redact_log

        return getattr(_redact_log, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
