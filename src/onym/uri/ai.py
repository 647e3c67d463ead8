"""`AIURI`: a URI of the ai scheme (draft-sogomonian-ai-uri-scheme-01) as a frozen value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from onym.errors import AIURIError, URISyntaxError
from onym.uri import _rfc3986
from onym.uri.generic import FrozenURI

__all__ = ["AIURI"]

if TYPE_CHECKING:
    from onym.uri._rfc3986 import Parts


@final
class AIURI(FrozenURI):
    """An ai URI: `ai:` and whatever RFC 3986 allows after it, as the draft's grammar says.

    Frozen, hashable, comparable by text, picklable; attributes give each component exactly as written.
    `canonical()` is the stricter level, where two spellings can't be told apart wrongly.
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
            )
        return cls._make(text, parts)

    def canonical(self) -> str:
        """The one text that stands for this URI in requests and signatures, without its fragment.

        Case, unreserved triplets, `:443` and an empty path are rewritten. Raises AIURIError with
        component and offset, or URISyntaxError for octets that are not UTF-8, where the URI could be read
        two ways: userinfo, addresses, dot or empty segments, encoded delimiters, double encoding,
        repeated names...
        """
        from onym.uri._ai_canonical import canonical  # unicodedata is needed here alone

        return canonical(self._text, self._parts)


def _split(text: str, max_length: int) -> Parts:
    try:
        return _rfc3986.split(text, "URI", max_length=max_length)
    except URISyntaxError as error:
        # the draft's own examples print &currency damaged by HTML entity decoding
        if error.offset is not None and text[error.offset : error.offset + 1] == "\N{CURRENCY SIGN}":
            error.hint = "it looks like a damaged &currency"
        raise
