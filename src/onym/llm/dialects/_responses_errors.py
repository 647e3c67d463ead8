"""Failures of the OpenAI Responses dialect: those of the chat dialect, and the ones inside a response.

A response fails with `status: "failed"` and an `error` of a code and a message; a stream fails with the event
`response.failed`, which holds such a response, or with the event `error`, whose code stands beside its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onym.errors import BadRequestError, ContentFilterError, OverloadedError, ProviderError
from onym.llm.dialects import _openai_errors as chat
from onym.llm.dialects._errors import has_error

__all__ = ["FAILURES"]

_CODES: Mapping[str, type[ProviderError]] = {
    "bio_policy": ContentFilterError,
    "cyber_policy": ContentFilterError,
    "image_content_policy_violation": ContentFilterError,
    "misalignment_policy_violation": ContentFilterError,
    "server_is_overloaded": OverloadedError,
    "slow_down": OverloadedError,
    "vector_store_timeout": OverloadedError,
}

#: the caller's fault, said in a response that came with 200
_REFUSED = (
    "data_residency_mismatch",
    "empty_image_file",
    "failed_to_download_image",
    "image_file_not_found",
    "image_file_too_large",
    "image_parse_error",
    "image_too_large",
    "image_too_small",
    "invalid_base64_image",
    "invalid_image",
    "invalid_image_format",
    "invalid_image_mode",
    "invalid_image_url",
    "invalid_prompt",
    "unsupported_image_media_type",
)


def _is_failure(data: Mapping[str, Any]) -> bool:
    return (
        has_error(data)
        or data.get("status") == "failed"
        or data.get("type") == "error"
        or data.get("object") == "error"
    )


FAILURES = replace(
    chat.FAILURES,
    codes={**chat.CODES, **_CODES},
    wide={**chat.WIDE, **dict.fromkeys(_REFUSED, BadRequestError)},
    is_failure=_is_failure,
    hint="does this host speak OpenAI's Responses API?",
)
