"""`URI`: any RFC 3986 URI or relative reference as a frozen value.

    >>> uri = URI.parse("http://user:secret@example.com/a/b?q#f")
    >>> uri.host, uri.path, uri.query
    ('example.com', '/a/b', 'q')
    >>> str(uri.resolve("../c"))
    'http://user:secret@example.com/c'
    >>> uri
    URI('http://user:***@example.com/a/b?q#f')

`str()` gives the exact text, because a generic URI is data to resolve, normalise and send on; `repr()`
hides what follows the first colon of the userinfo, as RFC 3986 3.2.1 asks. `LLMURI` hides it in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self, final

from onym.uri import _rfc3986
from onym.uri._rfc3986 import MAX_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["URI"]


class FrozenURI:
    """What `URI` and `AIURI` share: the text, its parts, and how such a value behaves.

    Two values are equal when they are of one class and their texts are equal, character by character;
    compare `normalize()`d values to compare what they name.
    """

    __slots__ = ("_parts", "_text")
    _parts: _rfc3986.Parts
    _text: str

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} has no constructor: use {type(self).__name__}.parse()")

    @classmethod
    def _make(cls, text: str, parts: _rfc3986.Parts) -> Self:
        self = object.__new__(cls)
        object.__setattr__(self, "_text", text)
        object.__setattr__(self, "_parts", parts)
        return self

    @classmethod
    def _restore(cls, text: str) -> Self:
        return cls._make(text, _rfc3986.split(text, max_length=len(text)))

    @property
    def scheme(self) -> str | None:
        """As written; None in a relative reference."""
        return self._parts.scheme

    @property
    def authority(self) -> str | None:
        """Userinfo, host and port as written; None without `//`."""
        return self._parts.authority

    @property
    def userinfo(self) -> str | None:
        """As written, still percent-encoded. It may hold a password."""
        return self._parts.userinfo

    @property
    def host(self) -> str | None:
        """As written, an IP literal without its brackets; "" where the authority names no host."""
        return self._parts.host

    @property
    def host_type(self) -> str | None:
        """`reg-name`, `IPv4address`, `IPv6address` or `IPvFuture` (RFC 3986 3.2.2, first match wins)."""
        return self._parts.host_type

    @property
    def port(self) -> str | None:
        """The digits as written; "" after a colon with no digits."""
        return self._parts.port

    @property
    def path(self) -> str:
        """As written, still percent-encoded."""
        return self._parts.path

    @property
    def query(self) -> str | None:
        """As written, without `?`; "" differs from None."""
        return self._parts.query

    @property
    def fragment(self) -> str | None:
        """As written, without `#`; "" differs from None."""
        return self._parts.fragment

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({masked(self._text, self._parts)!r})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._text == other._text

    def __hash__(self) -> int:
        return hash((type(self), self._text))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._restore, (self._text,)


def masked(text: str, parts: _rfc3986.Parts) -> str:
    """`text` with `***` for what follows the first colon of its userinfo (RFC 3986 3.2.1)."""
    user, colon, _ = (parts.userinfo or "").partition(":")
    if not colon:
        return text
    at = _rfc3986.offsets(parts)
    return f"{text[: at.userinfo]}{user}:***{text[at.userinfo + len(parts.userinfo or '') :]}"


@final
class URI(FrozenURI):
    """A URI or relative reference: frozen, hashable, comparable by text, picklable.

    Made by `parse` (text in) or `build` (raw parts in). Attributes give each component exactly as
    written, None where it is absent and "" where it is empty.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("URI cannot be subclassed")

    @classmethod
    def parse(cls, text: str | URI, rule: str = "URI-reference", *, max_length: int = MAX_LENGTH) -> URI:
        """`text` read strictly by a rule of RFC 3986: URI, URI-reference, absolute-URI or relative-ref.

        A `URI` passes through when it matches the rule. Raises URISyntaxError (component, offset,
        clause), URILimitError above `max_length` characters, UsageError for an unknown rule.
        """
        text = text._text if isinstance(text, URI) else text
        if not isinstance(text, str):
            raise TypeError("a URI is parsed from str")
        return cls._make(text, _rfc3986.split(text, rule, max_length=max_length))

    @classmethod
    def build(
        cls,
        *,
        scheme: str | None = None,
        userinfo: str | tuple[str, str] | None = None,
        host: str | None = None,
        port: int | None = None,
        path: str | Sequence[str] = "",
        query: str | Iterable[tuple[str, str]] | None = None,
        fragment: str | None = None,
    ) -> URI:
        """A URI from raw parts: each is percent-encoded as its component needs, a `%` too.

        `userinfo` is one text or a (user, password) pair. `host` is a name or an address, an IP literal
        with or without its brackets. `path` is text whose `/` separate, or a sequence of segments, whose
        `/` are data and which make a path that starts with `/`. `query` is text, or (name, value) pairs
        whose `&`, `=` and `+` are data. Raises URISyntaxError for parts that make no URI.
        """
        from onym.uri._build import compose  # read by those who build, not by those who parse

        return cls.parse(compose(scheme, userinfo, host, port, path, query, fragment))

    def resolve(self, reference: str | URI, *, strict: bool = True) -> URI:
        """The target of `reference` with this URI as its base (RFC 3986 5.2).

        `strict=False` ignores a reference's scheme that is the base's own. Raises URISyntaxError for a
        base without scheme (`uri.no-scheme`) or a reference that is not one.
        """
        other = reference if isinstance(reference, URI) else URI.parse(reference)
        parts = _rfc3986.resolve(self._parts, other._parts, strict=strict)
        return self._make(_rfc3986.recompose(parts), parts)

    def normalize(self) -> URI:
        """The normal form: RFC 3986 6.2.2, and 6.2.3 for the schemes that Onym knows. Idempotent.

        Lower-case scheme and host, upper-case triplets, unreserved characters decoded, dot segments
        removed, IPv6 addresses as RFC 5952 writes them; default and empty ports dropped and an empty
        path made `/` for ai, ftp, http, https, ws and wss.
        """
        parts = _rfc3986.normalize(self._parts)
        return self._make(_rfc3986.recompose(parts), parts)
