"""`AIURI`: a URI of the ai scheme (draft-sogomonian-ai-uri-scheme-01) as a frozen value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from onym.errors import AIURIError, URISyntaxError
from onym.uri import _rfc3986
from onym.uri._percent import decode
from onym.uri.generic import FrozenURI

__all__ = ["AIURI"]

if TYPE_CHECKING:
    from onym.uri._rfc3986 import Parts


@final
class AIURI(FrozenURI):
    """An ai URI: `ai:` and whatever RFC 3986 allows after it, as the draft's grammar says.

    Frozen, hashable, comparable by text, picklable; attributes give each component exactly as written.
    `canonical()` is the stricter level, where two spellings can't be told apart wrongly: two URIs name the
    same exactly when their `target`s are equal.

        >>> uri = AIURI.parse("AI://Bank.example:443?amount=10&currency=USD#top")
        >>> str(uri.target), uri.authority_text
        ('ai://bank.example/?amount=10&currency=USD', 'bank.example')
    """

    __slots__ = ()

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("AIURI cannot be subclassed")

    @classmethod
    def parse(cls, text: str | AIURI, *, max_length: int = _rfc3986.MAX_LENGTH) -> AIURI:
        """`text` read as a URI of RFC 3986 with the scheme ai, in any case.

        Raises URISyntaxError for what is no URI (text with Unicode in it: `onym.uri.iri.to_uri`),
        AIURIError `ai.wrong-scheme` for another scheme, URILimitError above `max_length` characters.
        """
        if isinstance(text, AIURI):
            return text
        if not isinstance(text, str):
            raise TypeError("an ai URI is parsed from str")
        parts = _split(text, max_length)
        if (parts.scheme or "").lower() != "ai":
            raise AIURIError(
                "the scheme is not ai",
                code="ai.wrong-scheme",
                component="scheme",
                offset=0,
                clause="draft-sogomonian-ai-uri-scheme-01",
                hint="an ai URI starts with ai:",
            )
        return cls._make(text, parts)

    def canonical(self) -> str:
        """The one text that stands for this URI in requests and signatures, without its fragment.

        Case, unreserved triplets, `:443` and an empty path are rewritten; whatever could be read two ways is
        refused. Raises AIURIError with component, offset and hint, its code "ai." and one of

        - too-long, userinfo, no-authority, address-literal, bad-host, bad-port (the authority)
        - no-path, empty-segment, dot-segment (the path)
        - ambiguous-query, empty-name, duplicate-name (the query)
        - forbidden-octet, double-encoding, not-nfc, invisible (path or query)

        and URISyntaxError `uri.bad-utf8` for triplets that are not UTF-8.
        """
        from onym.uri._ai_canonical import canonical  # unicodedata is needed here alone

        return canonical(self._text, self._parts)

    @property
    def target(self) -> AIURI:
        """What is asked for: the canonical form as a URI, without its fragment. Raises as `canonical`."""
        text = self.canonical()
        return self if text == self._text else self._restore(text)

    @property
    def authority_text(self) -> str | None:
        """The canonical "host" or "host:port"; None without an authority. Raises as `canonical`."""
        return self.target.authority

    @property
    def without_query(self) -> AIURI:
        """The resource itself: `target` without its query. Raises as `canonical`."""
        target = self.target
        return target if target.query is None else self._restore(str(target).partition("?")[0])

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Names and values of the query, decoded, in order; "" for a name alone. Raises as `canonical`."""
        query = self.target.query
        if query is None:
            return ()
        pairs = (pair.partition("=") for pair in query.split("&"))
        return tuple((_decoded(name), _decoded(value)) for name, _, value in pairs)


def _decoded(text: str) -> str:
    return decode(text, component="query")


def _split(text: str, max_length: int) -> Parts:
    try:
        return _rfc3986.split(text, "URI", max_length=max_length)
    except URISyntaxError as error:
        # the draft's own examples print &currency damaged by HTML entity decoding
        if error.offset is not None and text[error.offset : error.offset + 1] == "\N{CURRENCY SIGN}":
            error.hint = "it looks like a damaged &currency"
        raise
