"""`AIURI`: a URI of the ai scheme (draft-sogomonian-ai-uri-scheme-01), its canonical form and its HTTPS URL.

    >>> uri = AIURI.parse("ai://bank/service/payments?amount=10&currency=USD")
    >>> to_https("https://ai.example/gateway", uri)
    'https://ai.example/gateway/bank/service/payments?amount=10&currency=USD'
    >>> str(from_target("/gateway", b"/gateway/bank/service/payments", b"amount=10&currency=USD"))
    'ai://bank/service/payments?amount=10&currency=USD'

The AIIP/HTTPS v1 binding defines the canonical form. Two canonical forms are equal byte for byte or name
different resources. The canonical form rewrites mere spelling (case, unreserved triplets, `:443`, an empty
path). Text that can be read in two ways is rejected and never repaired; `REFUSALS` lists these cases.

`to_https` and `from_target` are inverse functions: for every target that `from_target` accepts, `to_path`
writes the same bytes again. The one exception is an empty query after `?`, which ASGI does not report.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final, NoReturn, final

from onym.errors import AIURIError, URIError, URISyntaxError, UsageError
from onym.uri import generic
from onym.uri.components import decode_component, normalize_triplets
from onym.uri.generic import URI, FrozenURI, URIOffsets, URIParts, compute_offsets

#: characters of a text that has a canonical form, and of that form
MAX_CANONICAL_LENGTH: Final = 2_048
CANONICAL_CLAUSE: Final = "AIIP/HTTPS v1, canonical form"

#: the texts without a canonical form: the code after "ai.", the message and the hint
REFUSALS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "too-long": (
            f"a canonical ai URI has at most {MAX_CANONICAL_LENGTH} characters",
            "send long parameters in the body of the request",
        ),
        "userinfo": ("an ai URI has no userinfo", "remove the text before the @"),
        "no-authority": ("the authority is empty", "write ai:/path, or name a host"),
        "address-literal": ("the host reads as an address", "name the authority by its DNS name"),
        "bad-host": (
            "the host is not a DNS name of letters, digits and hyphens",
            "write a name in Unicode as its A-labels (xn--...), without a dot at the end",
        ),
        "bad-port": ("a port is 1 to 65535, without leading zeros", "remove the colon for port 443"),
        "no-path": (
            "an ai URI without authority needs a path that starts with / and has a segment",
            "write ai:/path, or ai://host/path",
        ),
        "empty-segment": ("the path has an empty segment", "write one / between segments, none at the end"),
        "dot-segment": ("the path has a dot segment", "write the path that it leads to"),
        "forbidden-octet": (
            "the {} contains an encoded control or delimiter",
            "controls are never data, / \\ ? # not in a path, and delimiters not in a parameter's name",
        ),
        "double-encoding": ("the {} is percent-encoded twice", "encode it once"),
        "not-nfc": ("the {} is not in Unicode normalisation form C", "normalise the text, then encode it"),
        "invisible": ("the {} contains an invisible or formatting character", "remove it"),
        "ambiguous-query": ("the query can be read in two ways", "write a raw +, ; or ' as %2B, %3B or %27"),
        "empty-name": ("the query has an empty parameter name", "remove the ? or & before it"),
        "duplicate-name": (
            "the query has a parameter twice",
            "give each name once; names that differ only in case are the same",
        ),
    }
)

#: `&currency` after HTML entity decoding: raw, encoded as UTF-8 or as Latin-1, or with the semicolon
DAMAGED: Final = re.compile("(?:\N{CURRENCY SIGN}|%[Cc]2%[Aa]4|(?<!%[89A-Fa-f][0-9A-Fa-f])%[Aa]4|&curren;)cy")
DAMAGED_HINT: Final = "it looks like a damaged &currency"

#: Unicode's Default_Ignorable_Code_Point except format controls (category Cf): characters without a glyph
INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)

_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]*[a-z0-9])?").fullmatch
_PORT = re.compile("[1-9][0-9]{0,4}").fullmatch
# bytes that a server, proxy or form decoder could take for syntax: C0, DEL, C1, and / \ ? # encoded
_CONTROL = re.compile("%(?:[01][0-9A-Fa-f]|7[Ff]|[Cc]2%[89][0-9A-Fa-f])")
_IN_PATH = re.compile("%(?:2[Ff3]|5[Cc]|3[Ff])")
_IN_NAME = re.compile("%(?:26|3[Dd]|3[Bb]|2[Bb]|23|25|27|2[Ff]|3[Ff]|5[Cc])")
# browsers rewrite ' as %27; form decoders read + as a blank and ; as a separator
_RAW_IN_QUERY = re.compile(r"[+;']")
# %25 and two characters, raw or encoded, that read as hexadecimal digits once it is decoded
_TWICE = re.compile("%25(?:[0-9A-Fa-f]|%3[0-9]|%[46][1-6]){2}")


def canonicalize_uri(text: str, parts: URIParts) -> str:
    """The canonical form of an ai URI, without its fragment. Raises AIURIError if it has none."""
    at = compute_offsets(parts)
    if len(text) > MAX_CANONICAL_LENGTH:
        raise _make_refusal("too-long", "path", MAX_CANONICAL_LENGTH)
    authority = _canonicalize_authority(parts, at)
    path = _canonicalize_path(parts, at.path)
    target = f"ai:{path}" if authority is None else f"ai://{authority}{path}"
    if parts.query is not None:
        target = f"{target}?{_canonicalize_query(parts.query, at.query)}"
    if len(target) > MAX_CANONICAL_LENGTH:  # the / of an empty path makes it longer
        raise _make_refusal("too-long", "path", len(text))
    return target


#: the names of resources come again with every request; queries, which may be secret, are not kept
_canonicalize_resource: Final = lru_cache(maxsize=1_024)(canonicalize_uri)


def _make_refusal(code: str, component: str, offset: int, hint: str | None = None) -> AIURIError:
    message, remedy = REFUSALS[code]
    return AIURIError(
        message.format(component),
        code=f"ai.{code}",
        component=component,
        offset=offset,
        clause=CANONICAL_CLAUSE,
        hint=hint or remedy,
    )


def _canonicalize_authority(parts: URIParts, at: URIOffsets) -> str | None:
    if parts.authority is None:
        return None
    if parts.userinfo is not None:
        raise _make_refusal("userinfo", "userinfo", at.userinfo)
    host = _canonicalize_host(parts, at.host)
    port = parts.port
    if port is None:
        return host
    if not _PORT(port) or int(port) > 65535:
        raise _make_refusal("bad-port", "port", at.port)
    return host if port == "443" else f"{host}:{port}"


def _canonicalize_host(parts: URIParts, offset: int) -> str:
    host = (parts.host or "").lower()
    if not host:
        raise _make_refusal("no-authority", "host", offset)
    if parts.host_type in ("IPv6address", "IPvFuture"):
        raise _make_refusal("address-literal", "host", offset)
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL(label) and len(label) <= 63 for label in labels):
        raise _make_refusal("bad-host", "host", offset)
    if generic.ends_in_number(host):
        raise _make_refusal("address-literal", "host", offset)
    if any(label[2:4] == "--" and not is_a_label(label) for label in labels):
        raise _make_refusal(
            "bad-host", "host", offset, "a label with -- in third place is a valid A-label (IDNA 2008)"
        )
    return host


@lru_cache(maxsize=1_024)  # idna takes longer than all other steps together
def is_a_label(label: str) -> bool:
    """Whether `label` is a valid A-label: IDNA 2008 decodes it, and encodes the result to `label` again."""
    if not label.startswith("xn--"):
        return False
    import idna  # late: it is slow to import and seldom needed

    try:
        return idna.alabel(idna.ulabel(label)) == label.encode("ascii")
    except UnicodeError:
        return False


def _canonicalize_path(parts: URIParts, offset: int) -> str:
    path = parts.path
    if parts.authority is not None and path in ("", "/"):
        return "/"
    if path[:1] != "/" or path == "/":
        raise _make_refusal("no-path", "path", offset)
    _require_safe_triplets(path, "path", offset, also=_IN_PATH)
    for segment in path[1:].split("/"):
        offset += 1
        text = decode_component(segment, component="path", offset=offset)
        if not text:
            raise _make_refusal("empty-segment", "path", offset)
        if text.partition(";")[0] in (".", ".."):
            raise _make_refusal("dot-segment", "path", offset)
        _require_visible(text, "path", offset)
        offset += len(segment)
    return normalize_triplets(path)


def _canonicalize_query(query: str, offset: int) -> str:
    damaged = DAMAGED.search(query)
    if damaged is not None:
        raise _make_refusal("ambiguous-query", "query", offset + damaged.start(), DAMAGED_HINT)
    raw = _RAW_IN_QUERY.search(query)
    if raw is not None:
        raise _make_refusal("ambiguous-query", "query", offset + raw.start())
    _require_safe_triplets(query, "query", offset)
    seen: set[str] = set()
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        _require_safe_triplets(name, "query", offset, also=_IN_NAME)
        text = decode_component(name, component="query", offset=offset)
        decode_component(value, component="query", offset=offset + len(pair) - len(value))
        _require_visible(text, "query", offset)
        if not text:
            raise _make_refusal("empty-name", "query", offset)
        folded = _fold_case(text)
        if folded in seen:
            raise _make_refusal("duplicate-name", "query", offset)
        seen.add(folded)
        offset += len(pair) + 1
    return normalize_triplets(query)


def _fold_case(text: str) -> str:
    """`text` as caseless matching compares it (Unicode 3.13, D145)."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


def _require_safe_triplets(
    text: str, component: str, offset: int, *, also: re.Pattern[str] | None = None
) -> None:
    if "%" not in text:
        return
    for pattern in (_CONTROL, also):
        found = pattern and pattern.search(text)
        if found:
            raise _make_refusal("forbidden-octet", component, offset + found.start())
    found = _TWICE.search(text)
    if found:
        raise _make_refusal("double-encoding", component, offset + found.start())


def _require_visible(text: str, component: str, offset: int) -> None:
    """Raise for text that looks like another text: not NFC, or with invisible characters."""
    if text.isascii():
        return
    if not unicodedata.is_normalized("NFC", text):
        raise _make_refusal("not-nfc", component, offset)
    if INVISIBLE.search(text) or any(
        unicodedata.category(character) in ("Cf", "Zl", "Zp") for character in text
    ):
        raise _make_refusal("invisible", component, offset)


@final
class AIURI(FrozenURI):
    """An ai URI: `ai:` and any text that RFC 3986 allows after it, as in the draft's grammar.

    Frozen, hashable, comparable by text, picklable; the attributes are the components exactly as written.
    `canonical()` is stricter: two URIs name the same resource if and only if their `target`s are equal.

        >>> uri = AIURI.parse("AI://Bank.example:443?amount=10&currency=USD#top")
        >>> str(uri.target), uri.authority_text
        ('ai://bank.example/?amount=10&currency=USD', 'bank.example')
    """

    __slots__ = ()

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("AIURI cannot be subclassed")

    @classmethod
    def parse(cls, text: str | AIURI, *, max_length: int = generic.MAX_LENGTH) -> AIURI:
        """Parse a URI of RFC 3986 with the scheme ai, in any case.

        Raises URISyntaxError for text that is not a URI (convert Unicode text with `onym.uri.iri.to_uri`),
        AIURIError `ai.wrong-scheme` for another scheme, URILimitError above `max_length` characters.
        """
        if isinstance(text, AIURI):
            return text
        if not isinstance(text, str):
            raise TypeError("an ai URI is parsed from str")
        parts = _split_ai_uri(text, max_length)
        if (parts.scheme or "").lower() != "ai":
            raise AIURIError(
                "the scheme is not ai",
                code="ai.wrong-scheme",
                component="scheme",
                offset=0,
                clause="draft-sogomonian-ai-uri-scheme-01",
                hint="an ai URI starts with ai:",
            )
        return cls._from_parts(text, parts)

    def canonical(self) -> str:
        """The canonical form for requests and signatures, without the fragment.

        Case, unreserved triplets, `:443` and an empty path are rewritten; text that could be read in two ways
        is rejected. Raises AIURIError with component, offset and hint, its code "ai." and one of

        - too-long, userinfo, no-authority, address-literal, bad-host, bad-port (the authority)
        - no-path, empty-segment, dot-segment (the path)
        - ambiguous-query, empty-name, duplicate-name (the query)
        - forbidden-octet, double-encoding, not-nfc, invisible (path or query)

        and URISyntaxError `uri.bad-utf8` for triplets that are not UTF-8.
        """
        parts = self._parts
        if parts.query is None and parts.fragment is None:
            return _canonicalize_resource(self._text, parts)
        return canonicalize_uri(self._text, parts)

    @property
    def target(self) -> AIURI:
        """The canonical form as a URI, without its fragment. Raises as `canonical`."""
        text = self.canonical()
        return self if text == self._text else self._from_text(text)

    @property
    def authority_text(self) -> str | None:
        """The canonical "host" or "host:port"; None without an authority. Raises as `canonical`."""
        return self.target.authority

    @property
    def without_query(self) -> AIURI:
        """The resource itself: `target` without its query. Raises as `canonical`."""
        target = self.target
        return target if target.query is None else self._from_text(str(target).partition("?")[0])

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Names and values of the query, decoded, in order; "" for a missing value. Raises as `canonical`."""
        query = self.target.query
        if query is None:
            return ()
        decode = partial(decode_component, component="query")
        pairs = (pair.partition("=") for pair in query.split("&"))
        return tuple((decode(name), decode(value)) for name, _, value in pairs)


def _split_ai_uri(text: str, max_length: int) -> URIParts:
    try:
        return generic.split_uri(text, "URI", max_length=max_length)
    except URISyntaxError as error:
        # the draft's own examples print &currency damaged by HTML entity decoding
        if error.offset is not None and text[error.offset : error.offset + 1] == "\N{CURRENCY SIGN}":
            error.hint = DAMAGED_HINT
        raise


MAPPING_CLAUSE: Final = "AIIP/HTTPS v1, mapping"
#: takes the place of a missing authority; it is not a valid host name
_NO_AUTHORITY: Final = "_"
_PREFIX: Final = "a prefix is a path like /gateway, in canonical form, without a / at its end"


def to_https(base: str, uri: AIURI) -> str:
    """The HTTPS URL of `uri` under `base`, an https URL that may have a path ("https://ai.example/gateway").

    The URL contains the canonical form of `uri`. Raises AIURIError if it has none, UsageError for a base that
    is not a normalised https URL or has userinfo, query or fragment. One `/` at the end of a base is ignored.
    """
    origin, prefix = _split_base(base)
    return origin + to_path(prefix, uri)


def to_path(prefix: str, uri: AIURI) -> str:
    """The path and query of `uri` under `prefix` ("/gateway", or "" for the root), from its `/` on.

    Raises as `to_https`.
    """
    return _map_target(_require_prefix(prefix), uri.target)


def from_target(prefix: str, raw_path: bytes, query: bytes) -> AIURI:
    """The ai URI of a request's target: the raw path and query, as the server received them.

    The inverse of `to_path`. ASGI has them as `raw_path` and `query_string`; never use its decoded `path`.
    Raises AIURIError: `ai.outside-prefix` for a path that is not under `prefix`, `ai.bad-target` for bytes
    that are not in a raw path or query, `ai.non-canonical` for another spelling, with the canonical form as
    the hint, and the codes of `AIURI.canonical`; URISyntaxError for a target that is not a URI.
    """
    return _parse_target(prefix, raw_path, query) if query else _parse_resource(prefix, raw_path)


def _parse_target(prefix: str, raw_path: bytes, query: bytes) -> AIURI:
    start = _require_prefix(prefix).encode("ascii") + b"/"
    if not raw_path.startswith(start):
        raise AIURIError("the path is not under the prefix", code="ai.outside-prefix", clause=MAPPING_CLAUSE)
    if b"?" in raw_path or b"#" in raw_path or b"#" in query:
        raise AIURIError(
            "this is not the raw path and query of a request",
            code="ai.bad-target",
            clause=MAPPING_CLAUSE,
            hint="pass the path up to its ?, the query after it, and leave the fragment with the client",
        )
    # latin-1 keeps bytes beyond ASCII visible to the parser, which rejects them with their position
    target = (raw_path + b"?" + query if query else raw_path).decode("latin-1")
    uri = AIURI.parse(_unmap_path(target[len(start) :])).target
    if _map_target(prefix, uri) != target:
        raise AIURIError(
            "the target is another spelling of an ai URI",
            code="ai.non-canonical",
            clause=MAPPING_CLAUSE,
            hint=str(uri),
        )
    return uri


@lru_cache(maxsize=1_024)
def _parse_resource(prefix: str, raw_path: bytes) -> AIURI:
    return _parse_target(prefix, raw_path, b"")


def _map_target(prefix: str, target: AIURI) -> str:
    text = str(target)
    if target.authority is None:
        return f"{prefix}/{_NO_AUTHORITY}{text.removeprefix('ai:')}"
    return f"{prefix}/{text.removeprefix('ai://')}"


def _unmap_path(rest: str) -> str:
    first, slash, path = rest.partition("/")
    return f"ai:{slash}{path}" if first == _NO_AUTHORITY else f"ai://{rest}"


@lru_cache(maxsize=256)
def _split_base(base: str) -> tuple[str, str]:
    """Origin and path prefix of a base, checked."""
    try:
        uri = URI.parse(base)
    except URIError as error:
        _raise_bad_base("a base is an https URL", error.message)
    if uri.scheme != "https" or not uri.host or uri.userinfo is not None:
        _raise_bad_base("a base is an https URL with a host and without userinfo")
    if uri.query is not None or uri.fragment is not None:
        _raise_bad_base("a base has no query and no fragment")
    path = uri.path.removesuffix("/")
    origin = f"https://{uri.authority}"
    if str(URI.parse(origin).normalize()) != f"{origin}/":
        _raise_bad_base("a base is in its normal form", "write the host in lower case and no port 443")
    return origin, _require_prefix(path)


@lru_cache(maxsize=256)
def _require_prefix(prefix: str) -> str:
    """`prefix`, if no client rewrites it: the path of a canonical ai URI, or "". Raises UsageError."""
    if prefix:
        try:
            uri = AIURI.parse(f"ai:{prefix}")
            fits = uri.authority is None and uri.query is None and uri.canonical() == str(uri)
        except URIError as error:
            _raise_bad_base(_PREFIX, error.message)
        if not fits:
            _raise_bad_base(_PREFIX)
    return prefix


def _raise_bad_base(message: str, hint: str | None = None) -> NoReturn:
    raise UsageError(message, code="ai.bad-base", hint=hint)
