"""What went wrong, as a problem document (RFC 9457). Our own faults say no more than that they are. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from onym.ai.codes import CODES, Code, code_of
from onym.ai.endpoint.context import Answer
from onym.errors import (
    AIIPError,
    AIURIError,
    ConfigError,
    DiscoveryError,
    InvocationError,
    NetError,
    OnymError,
    ProvenanceError,
    ProviderError,
    RateLimitError,
    URIError,
)
from onym.uri.ai import AIURI

__all__ = ["PROBLEM", "TYPES", "is_ours", "problem"]

#: RFC 9457 3
PROBLEM: Final = "application/problem+json"
#: the path at the anchor that the type of a problem begins with; the code follows
TYPES: Final = "/.well-known/aiip/problems/"
_LONGEST_DETAIL: Final = 500
#: seconds after which a caller may ask again, where it may
_RETRY: Final = (("Retry-After", "1"),)
#: an error of another family: the code that a stranger is told. What stands first counts
_FAMILIES: Final[tuple[tuple[type[OnymError], str], ...]] = (
    (AIURIError, "malformed-uri"),
    (URIError, "bad-request"),
    (RateLimitError, "unavailable"),
    (ProviderError, "upstream-unreachable"),
    (NetError, "upstream-unreachable"),
    (ConfigError, "internal"),
)
#: codes whose errors say themselves whether the same request may do better later
_SAID: Final = frozenset({"idempotency-in-progress"})
_SPELLING: Final = frozenset({"ai.non-canonical"})


def problem(
    error: BaseException,
    *,
    anchor: str,
    target: str | None,
    instance: str,
    trace: str | None = None,
    final: bool = False,
) -> Answer:
    """The answer that tells of this error. `target` is the canonical URI without its query.

    `trace` is the id of the caller's trace (W3C Trace Context), where there is one. With `final`, nobody is
    asked to try again, whatever the error is.
    """
    elsewhere = _elsewhere(error, target)
    row = _upstream(error) if elsewhere else _row(error)
    # what another server or library said is not for strangers
    tells = not (elsewhere or is_ours(row) or _proof(row))
    known = error if tells and isinstance(error, AIIPError | URIError) else None
    retryable = not final and _retryable(known, row)
    body: dict[str, Any] = {
        "type": anchor + TYPES + row.name,
        "title": row.title,
        "status": row.status,
        "detail": row.title if known is None else _detail(known),
        "instance": f"urn:uuid:{instance}",
        "code": row.name,
        "retryable": retryable,
    }
    body |= _members(known, target) | ({} if trace is None else {"trace": trace})
    headers = _RETRY if retryable and row.retryable else ()
    challenge = getattr(known, "challenge", None)
    if isinstance(challenge, str):
        headers = (*headers, ("WWW-Authenticate", challenge))
    return Answer(status=row.status, content_type=PROBLEM, body=msgspec.json.encode(body), headers=headers)


def is_ours(row: Code) -> bool:
    """Is this a failure of the endpoint, whose reason is for its log alone?"""
    return row.name == "internal"


def _elsewhere(error: BaseException, target: str | None) -> bool:
    """Does it tell of a call that a function made? It is about another resource, or only clients raise it."""
    if isinstance(error, InvocationError | DiscoveryError | ProvenanceError):
        return True
    about = error.target if isinstance(error, AIIPError) else None
    resource = None if target is None or not isinstance(about, str) else _resource(about)
    return resource is not None and resource != target


def _resource(text: str) -> str | None:
    """The canonical URI without its query; None for what names no resource."""
    try:
        return str(AIURI.parse(text).without_query)
    except URIError:
        return None


def _upstream(error: BaseException) -> Code:
    """A call of the function failed: that, and at most in which way. Its status there is no status here."""
    row = _row(error)
    known = not isinstance(error, InvocationError) and (_proof(row) or row.name.startswith("upstream-"))
    return row if known else CODES["upstream-failed"]


def _retryable(known: OnymError | None, row: Code) -> bool:
    return getattr(known, "retryable", False) or (row.retryable and row.name not in _SAID)


def _proof(row: Code) -> bool:
    return row.name.startswith("provenance-")


def _row(error: BaseException) -> Code:
    if not isinstance(error, OnymError):
        return CODES["internal"]
    if error.code in _SPELLING:
        return CODES["non-canonical-uri"]
    found = code_of(error.code) if error.code.startswith("aiip.") else None
    if found is not None:
        # a handler that asked elsewhere: which check failed there is no stranger's business (3.8)
        return CODES["provenance-invalid"] if _proof(found) else found
    name = next((name for kind, name in _FAMILIES if isinstance(error, kind)), "internal")
    return CODES[name]


def _detail(error: OnymError) -> str:
    text = error.message if error.hint is None else f"{error.message} ({error.hint})"
    return text[:_LONGEST_DETAIL]


def _members(error: OnymError | None, target: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if target is None else {"target": target}
    if error is None:
        return found
    if error.code in _SPELLING and error.hint:
        found["canonical"] = error.hint
    for name in ("clause", "offset"):
        value = getattr(error, name, None)
        if value is not None:
            found[name] = value
    return found
