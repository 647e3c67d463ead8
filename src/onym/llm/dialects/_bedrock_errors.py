"""Failures of the Bedrock Converse dialect, told by an exception's name: in a header, a body or a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onym.errors import (
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._errors import Failures, Said

__all__ = ["FAILURES", "decode_error", "exception_name"]

_CODES: Mapping[str, type[ProviderError]] = {
    "throttlingexception": RateLimitError,
    "throttledexception": RateLimitError,
    "toomanyrequestsexception": RateLimitError,
    "requestlimitexceeded": RateLimitError,
    "servicequotaexceededexception": QuotaError,
    "accessdeniedexception": PermissionDeniedError,
    "accessdenied": PermissionDeniedError,
    "optinrequired": PermissionDeniedError,
    "unrecognizedclientexception": AuthenticationError,
    "invalidclienttokenid": AuthenticationError,
    "invalidsignatureexception": AuthenticationError,
    "signaturedoesnotmatch": AuthenticationError,
    "incompletesignature": AuthenticationError,
    "incompletesignatureexception": AuthenticationError,
    "expiredtoken": AuthenticationError,
    "expiredtokenexception": AuthenticationError,
    "requestexpired": AuthenticationError,
    "missingauthenticationtoken": AuthenticationError,
    "missingauthenticationtokenexception": AuthenticationError,
    "notauthorized": AuthenticationError,
    "resourcenotfoundexception": NotFoundError,
    "unknownoperationexception": NotFoundError,
    "validationexception": BadRequestError,
    "validationerror": BadRequestError,
    "serializationexception": BadRequestError,
    "conflictexception": BadRequestError,
    "modeltimeoutexception": OverloadedError,
    "modelnotreadyexception": OverloadedError,
    "serviceunavailableexception": OverloadedError,
    "serviceunavailable": OverloadedError,
    "modelerrorexception": ServerError,
    "modelstreamerrorexception": ServerError,
    "internalserverexception": ServerError,
    "internalfailure": ServerError,
}


def exception_name(value: str) -> str:
    """`ThrottlingException` out of `com.amazon.coral.service#ThrottlingException:http://…`."""
    return value.partition(":")[0].rpartition("#")[2].strip()


def _is_failure(data: Mapping[str, Any]) -> bool:
    output = data.get("Output")
    return "__type" in data or (isinstance(output, dict) and "__type" in output)


def _read(data: Any) -> Said | None:
    if not isinstance(data, dict):
        return None
    output = data.get("Output")
    if isinstance(output, dict):
        # how the front of the service says that it knows no such operation
        data = output
    kind = data.get("__type")
    text = data.get("message") or data.get("Message")
    code = exception_name(kind) if isinstance(kind, str) else ""
    return Said(text if isinstance(text, str) else "", (code,) if code else ())


FAILURES = Failures(
    read=_read, codes=_CODES, is_failure=_is_failure, hint="is this host an Amazon Bedrock runtime endpoint?"
)


def decode_error(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ProviderError:
    """The error that an answer outside 2xx means: its name stands in a header, not in the body."""
    kind = headers.get("x-amzn-errortype")
    if kind:
        try:
            data = msgspec.json.decode(body)
        except (ValueError, RecursionError):
            data = {}
        body = msgspec.json.encode({**(data if isinstance(data, dict) else {}), "__type": kind})
    return FAILURES.of_answer(status, headers, body, exchange)
