"""Headers that a call, an endpoint of the configuration or a provider entry adds to requests.

They cannot frame, authenticate or redirect a request: the transport, the credential and the policy do that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.errors import PolicyError, UsageError
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.net.policy import Policy

#: names and values of headers, in order
HeaderPairs: TypeAlias = tuple[tuple[str, str | Secret], ...]

_is_token = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}").fullmatch
_is_text = re.compile(r"[\t\x20-\x7e\x80-\ud7ff\ue000-\U0010ffff]*").fullmatch
_MOST: Final = 64
_LONGEST: Final = 8192
#: headers that frame the message or say how to read it
_FRAMING: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: headers that contain credentials, at one provider or another
_CREDENTIALS: Final = frozenset(
    {
        "api-key",
        "authorization",
        "cookie",
        "cookie2",
        "ocp-apim-subscription-key",
        "x-amz-date",
        "x-amz-security-token",
        "x-api-key",
        "x-auth-token",
        "x-goog-api-key",
        "x-goog-iam-authorization-token",
    }
)
#: headers by which servers replace the method, the target or the client of a request
_REDIRECTING: Final = frozenset(
    {"forwarded", "x-http-method", "x-http-method-override", "x-method-override", "x-original-url",
     "x-real-ip", "x-rewrite-url"}
)  # fmt: skip
_PREFIXES: Final = ("proxy-", "x-forwarded-", "sec-", ":")


def is_reserved(name: str) -> bool:
    """Whether this header frames, authenticates or redirects a request."""
    lower = name.lower()
    return lower in _FRAMING or lower in _CREDENTIALS or lower in _REDIRECTING or lower.startswith(_PREFIXES)


def parse_headers(given: Any, key_headers: Collection[str] = ()) -> HeaderPairs:
    """Return the headers of a mapping from names to values, which may be `Secret`.

    `key_headers` are those with which the provider takes a key, in lower case.

    Raises UsageError (`usage.header`) for a name that is not a header's, that is given twice, or that frames,
    authenticates or redirects a request, the provider's key headers included; and for a value that is not
    a line of text.
    """
    if given is None:
        return ()
    if not isinstance(given, Mapping) or len(given) > _MOST:
        raise UsageError(f"headers are a dict of at most {_MOST} names and values", code="usage.header")
    seen: set[str] = set()
    for name, value in given.items():
        if not isinstance(name, str) or _is_token(name) is None:
            raise UsageError("a name in headers is not the name of a header", code="usage.header")
        if is_reserved(name) or name.lower() in key_headers:
            raise UsageError(
                f"the header {name} cannot be set, because it frames, authenticates or redirects the request",
                code="usage.header",
                hint="A key belongs into the URI or into key=, an app's name into the URI's label.",
            )
        if name.lower() in seen:
            raise UsageError(f"the header {name} is given twice", code="usage.header")
        seen.add(name.lower())
        _require_value(name, value)
    return tuple(given.items())


def _require_value(name: str, value: object) -> None:
    if not isinstance(value, str | Secret):
        raise UsageError(f"the value of the header {name} is not a text", code="usage.header")
    # never in a variable, which tools that report errors would show
    if not _is_line(value.reveal() if isinstance(value, Secret) else value):
        raise UsageError(
            f"the value of the header {name} is longer than {_LONGEST} characters, contains a control "
            "character, or has a blank at an end",
            code="usage.header",
        )


def _is_line(text: str) -> bool:
    return len(text) <= _LONGEST and _is_text(text) is not None and text.strip("\t ") == text


def require_allowed(headers: HeaderPairs, policy: Policy, endpoint: str) -> None:
    """Raise PolicyError if the policy does not allow one of these headers."""
    if policy.allow_headers is None:
        return
    for name, _ in headers:
        if name.lower() not in policy.allow_headers:
            raise PolicyError(
                f"the policy does not allow the header {name}",
                reason="header",
                endpoint=endpoint,
                hint="List it in the policy's allow_headers.",
            )


def merge_headers(*layers: Iterable[tuple[str, str | Secret]]) -> HeaderPairs:
    """Return the headers of all layers, the weakest first. A stronger one replaces all of its name."""
    merged: dict[str, tuple[str, str | Secret]] = {}
    for layer in layers:
        for name, value in layer:
            merged[name.lower()] = name, value
    return tuple(merged.values())
