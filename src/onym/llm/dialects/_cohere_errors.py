"""Failures of the Cohere dialect: `{"message": text, "id": text}`, told by the status alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.errors import BadRequestError, ContentFilterError, ProviderError, ServerError
from onym.llm.dialects._errors import Failures, Said, has_error, status_number

__all__ = ["FAILURES"]

#: where the API's statuses differ from the usual ones
_STATUSES: Mapping[int, type[ProviderError]] = {
    498: ContentFilterError,  # "a request or response contains a deny-listed token"
    499: ServerError,  # the request was cancelled on its way
    501: BadRequestError,  # no such feature
}


def _is_failure(data: Mapping[str, Any]) -> bool:
    # the message of an answer is an object, that of a failure is text
    return has_error(data) or isinstance(data.get("message"), str) or data.get("finish_reason") == "ERROR"


def _read(data: Any) -> Said | None:
    """A failure as such, an event that ends a stream with `error`, or what a gateway says instead."""
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    record = error if isinstance(error, dict) else data
    said = (record.get("message"), error, data.get("detail"))
    text = next((each for each in said if isinstance(each, str)), "")
    return Said(text, status=status_number(record.get("status_code") or record.get("code")))


FAILURES = Failures(read=_read, codes={}, statuses=_STATUSES, is_failure=_is_failure)
