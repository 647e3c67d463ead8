"""The mapping ai: <-> HTTPS of the AIIP/HTTPS v1 binding: one pair, for gateways and for service bases.

    >>> uri = AIURI.parse("ai://bank/service/payments?amount=10&currency=USD")
    >>> to_https("https://ai.example/gateway", uri)
    'https://ai.example/gateway/bank/service/payments?amount=10&currency=USD'
    >>> str(from_target("/gateway", b"/gateway/bank/service/payments", b"amount=10&currency=USD"))
    'ai://bank/service/payments?amount=10&currency=USD'

Both ends are text that browsers and HTTP clients leave as it is, and each is the inverse of the other: what
`from_target` accepts is, octet by octet, what `to_path` writes for its result. (An empty query after `?` is
the one thing that ASGI does not tell apart from none.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NoReturn

from onym.errors import AIURIError, URIError, UsageError
from onym.uri.ai import AIURI
from onym.uri.generic import URI

__all__ = ["from_target", "to_https", "to_path"]

CLAUSE: Final = "AIIP/HTTPS v1, mapping"
#: stands where an authority would, for a URI that has none; no host can be called so
_NO_AUTHORITY: Final = "_"
_PREFIX: Final = "a prefix is a path like /gateway, in canonical form, without a / at its end"


def to_https(base: str, uri: AIURI) -> str:
    """The HTTPS URL of `uri` under `base`, an https URL that may have a path ("https://ai.example/gateway").

    `uri` is taken in its canonical form. Raises AIURIError where it has none, UsageError for a base that
    is no normalised https URL or has userinfo, query or fragment. One `/` at the end of a base is ignored.
    """
    origin, prefix = _split_base(base)
    return origin + to_path(prefix, uri)


def to_path(prefix: str, uri: AIURI) -> str:
    """The path and query of `uri` under `prefix` ("/gateway", or "" for the root), from its `/` on.

    Raises as `to_https`.
    """
    return _mapped(_checked_prefix(prefix), uri.target)


def from_target(prefix: str, raw_path: bytes, query: bytes) -> AIURI:
    """The ai URI that a request's target stands for: the raw path and query, as the server received them.

    The inverse of `to_path`; ASGI has them as `raw_path` and `query_string`, never use its decoded `path`.
    Raises AIURIError: `ai.outside-prefix` for a path that is not under `prefix`, `ai.bad-target` for octets
    that no raw path and query hold, `ai.non-canonical` for another spelling, with the canonical form as the
    hint, and the refusals of `AIURI.canonical`; URISyntaxError for what is no URI at all.
    """
    start = _checked_prefix(prefix).encode("ascii") + b"/"
    if not raw_path.startswith(start):
        raise AIURIError("the path is not under the prefix", code="ai.outside-prefix", clause=CLAUSE)
    if b"?" in raw_path or b"#" in raw_path or b"#" in query:
        raise AIURIError(
            "this is not the raw path and query of a request",
            code="ai.bad-target",
            clause=CLAUSE,
            hint="pass the path up to its ?, the query after it, and leave the fragment with the client",
        )
    # latin-1 keeps octets beyond ASCII visible to the parser, which refuses them where they stand
    target = (raw_path + b"?" + query if query else raw_path).decode("latin-1")
    uri = AIURI.parse(_unmapped(target[len(start) :])).target
    if _mapped(prefix, uri) != target:
        raise AIURIError(
            "the target is another spelling of an ai URI",
            code="ai.non-canonical",
            clause=CLAUSE,
            hint=str(uri),
        )
    return uri


def _mapped(prefix: str, target: AIURI) -> str:
    text = str(target)
    if target.authority is None:
        return f"{prefix}/{_NO_AUTHORITY}{text.removeprefix('ai:')}"
    return f"{prefix}/{text.removeprefix('ai://')}"


def _unmapped(rest: str) -> str:
    first, slash, path = rest.partition("/")
    return f"ai:{slash}{path}" if first == _NO_AUTHORITY else f"ai://{rest}"


@lru_cache(maxsize=256)
def _split_base(base: str) -> tuple[str, str]:
    """Origin and path prefix of a base, checked."""
    try:
        uri = URI.parse(base)
    except URIError as error:
        _bad("a base is an https URL", error.message)
    if uri.scheme != "https" or not uri.host or uri.userinfo is not None:
        _bad("a base is an https URL with a host and without userinfo")
    if uri.query is not None or uri.fragment is not None:
        _bad("a base has no query and no fragment")
    path = uri.path.removesuffix("/")
    origin = f"https://{uri.authority}"
    if str(URI.parse(origin).normalize()) != f"{origin}/":
        _bad("a base is written in its normal form", "a host in lower case, no port 443")
    return origin, _checked_prefix(path)


@lru_cache(maxsize=256)
def _checked_prefix(prefix: str) -> str:
    """A prefix that every client leaves as it is: the path of a canonical ai URI, or nothing."""
    if prefix:
        try:
            uri = AIURI.parse(f"ai:{prefix}")
            fits = uri.authority is None and uri.query is None and uri.canonical() == str(uri)
        except URIError as error:
            _bad(_PREFIX, error.message)
        if not fits:
            _bad(_PREFIX)
    return prefix


def _bad(message: str, hint: str | None = None) -> NoReturn:
    raise UsageError(message, code="ai.bad-base", hint=hint)
