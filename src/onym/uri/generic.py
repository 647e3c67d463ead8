"""RFC 3986: parse, build, resolve and normalise any URI or relative reference, and `URI` as a frozen value.

    >>> uri = URI.parse("http://user:secret@example.com/a/b?q#f")
    >>> uri.host, uri.path, uri.query
    ('example.com', '/a/b', 'q')
    >>> str(uri.resolve("../c"))
    'http://user:secret@example.com/c'
    >>> uri
    URI('http://user:***@example.com/a/b?q#f')

One compiled expression reads a valid text in one pass. Every step is linear in the length of the text:
quantifiers that could backtrack are possessive. `str()` returns the exact text, because a generic URI is
data to resolve, normalise and send on. `repr()` hides what follows the first colon of the userinfo, as
RFC 3986 3.2.1 recommends. `LLMURI` hides it in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Self, final

from onym.errors import URILimitError, UsageError
from onym.uri import components
from onym.uri.components import (
    SCHEME_RULE,
    Frozen,
    classify_ip_literal,
    explain_syntax_error,
    format_ipv6,
    is_ipv4,
    is_ipvfuture,
    make_syntax_error,
    normalize_triplets,
    parse_ipv6,
    uppercase_triplets,
)

#: characters; a longer text is refused unless the caller says otherwise
MAX_LENGTH: Final = 65_536
#: the rules of RFC 3986 that `split_uri` reads
RULES: Final = ("URI", "URI-reference", "absolute-URI", "relative-ref")
#: RFC 3986 6.2.3, for the schemes that Onym knows. Not `llm`: its default depends on the host, and with a
#: port the host is not an alias
DEFAULT_PORTS: Final = {"ai": "443", "ftp": "21", "http": "80", "https": "443", "ws": "80", "wss": "443"}


class URIParts(NamedTuple):
    """The components exactly as in the text: None is absent, "" is empty.

    `authority` consists of userinfo, host and port. `host` has an IP literal without its brackets, and
    `host_type` is `reg-name`, `IPv4address`, `IPv6address` or `IPvFuture`.
    """

    scheme: str | None
    authority: str | None
    userinfo: str | None
    host: str | None
    host_type: str | None
    port: str | None
    path: str
    query: str | None
    fragment: str | None

    def __repr__(self) -> str:
        # the userinfo may hold a password
        shown = ("scheme", "host", "port", "path")
        return f"<Parts {' '.join(f'{name}={getattr(self, name)!r}' for name in shown)}>"


def _build_run_pattern(characters: str) -> str:
    """A run of `characters` and percent triplets, of any length."""
    # The group is not possessive: CPython 3.11.2 takes a `%` without digits for a repetition of such a group.
    # A failed match gives the triplets back one by one, in linear time, because each has only one reading.
    return f"[{characters}]*+(?:%[0-9A-Fa-f]{{2}}[{characters}]*+)*"


_REG = r"A-Za-z0-9._~!$&'()*+,;=\-"  # unreserved and sub-delims
_REG_NAME = _build_run_pattern(_REG)
_USERINFO = _build_run_pattern(_REG + ":")
_PATH = _build_run_pattern(_REG + ":@/")
_QUERY = _build_run_pattern(_REG + ":@/?")
_URI_REFERENCE = re.compile(
    # a scheme, or else no colon in the first segment (path-noscheme)
    r"(?:([A-Za-z][A-Za-z0-9+.\-]*+):|(?![^:/?#]*+:))"
    # an authority and path-abempty, or else a path that does not start with two slashes
    rf"(?://((?:({_USERINFO})@)?(\[[{_REG}:]*+\]|{_REG_NAME})(?::([0-9]*+))?)(?![^/?#])|(?!//))"
    rf"({_PATH})(?:\?({_QUERY}))?(?:#({_QUERY}))?"
).fullmatch


def split_uri(text: str, rule: str = "URI-reference", *, max_length: int = MAX_LENGTH) -> URIParts:
    """Split `text`, which has to match `rule` of RFC 3986 Appendix A.

    Raises URISyntaxError with component, offset and clause, URILimitError if `text` has more than
    `max_length` characters, UsageError for a rule that is not in `RULES`.
    """
    if len(text) > max_length:
        raise URILimitError(f"the URI has more than {max_length} characters", offset=max_length)
    if rule not in RULES:
        raise UsageError(f"{rule!r} is not a rule of RFC 3986; choose one of {', '.join(RULES)}")
    found = _URI_REFERENCE(text)
    if found is None:
        raise explain_syntax_error(text, rule)
    scheme, authority, userinfo, host, port, path, query, fragment = found.groups()
    host_type = None
    if host is not None:
        if host[:1] == "[":
            host = host[1:-1]
            host_type = classify_ip_literal(host)
            if host_type is None:
                raise explain_syntax_error(text, rule)
        else:
            host_type = "IPv4address" if host[-1:].isdigit() and is_ipv4(host) else "reg-name"
    if rule != "URI-reference" and (
        (scheme is None) is (rule != "relative-ref") or (rule == "absolute-URI" and fragment is not None)
    ):
        raise explain_syntax_error(text, rule)
    return URIParts(scheme, authority, userinfo, host, host_type, port, path, query, fragment)


class URIOffsets(NamedTuple):
    """The position of each component in the text, without its delimiter; -1 if the component is absent.

    The `host` of an IP literal starts after its bracket.
    """

    userinfo: int
    host: int
    port: int
    path: int
    query: int
    fragment: int


def compute_offsets(parts: URIParts) -> URIOffsets:
    """The positions of the components in the text that `parts` was split from."""
    at = 0 if parts.scheme is None else len(parts.scheme) + 1
    userinfo = host = port = query = fragment = -1
    if parts.authority is not None:
        at += 2
        host = at
        if parts.userinfo is not None:
            userinfo = at
            host += len(parts.userinfo) + 1
        at += len(parts.authority)
        if parts.port is not None:
            port = at - len(parts.port)
        if parts.host_type in ("IPv6address", "IPvFuture"):
            host += 1
    path = at
    at += len(parts.path)
    if parts.query is not None:
        query = at + 1
        at = query + len(parts.query)
    if parts.fragment is not None:
        fragment = at + 1
    return URIOffsets(userinfo, host, port, path, query, fragment)


def recompose_uri(parts: URIParts) -> str:
    """The text of `parts` (RFC 3986 5.3), with `authority` as it is."""
    scheme, authority, _, _, _, _, path, query, fragment = parts
    text = path if authority is None else f"//{authority}{path}"
    if scheme is not None:
        text = f"{scheme}:{text}"
    if query is not None:
        text = f"{text}?{query}"
    return text if fragment is None else f"{text}#{fragment}"


def resolve_reference(base: URIParts, reference: URIParts, *, strict: bool = True) -> URIParts:
    """The target of `reference` against `base` (RFC 3986 5.2.2).

    `strict=False` ignores a scheme in the reference that is the base's own. A target without authority
    whose path would start with `//` gets `/.` before it: it would read as an authority. Raises
    URISyntaxError `uri.no-scheme` for a base that is a relative reference.
    """
    if base.scheme is None:
        message = "the base of a resolution needs a scheme"
        raise make_syntax_error("uri.no-scheme", message, "scheme", 0, "RFC 3986 5.1")
    scheme, query = reference.scheme, reference.query
    if scheme is not None and not strict and scheme.lower() == base.scheme.lower():
        scheme = None
    source, path = reference, remove_dot_segments(reference.path)
    if scheme is None:
        scheme = base.scheme
        if reference.authority is None:
            source = base
            if reference.path == "":
                path = base.path
                query = base.query if query is None else query
            elif reference.path[0] != "/":
                path = remove_dot_segments(_merge_paths(base, reference.path))
    if source.authority is None:
        path = _guard_path(path)
    return source._replace(scheme=scheme, path=path, query=query, fragment=reference.fragment)


def _merge_paths(base: URIParts, path: str) -> str:
    """RFC 3986 5.2.3."""
    if base.authority is not None and base.path == "":
        return "/" + path
    return base.path[: base.path.rfind("/") + 1] + path


def _guard_path(path: str) -> str:
    """`path`, changed if it would read as an authority in a URI without one (RFC 3986 3.3)."""
    return "/." + path if path.startswith("//") else path


def remove_dot_segments(path: str) -> str:
    """`path` without its `.` and `..` segments (RFC 3986 5.2.4, to the letter), in linear time.

    This includes rootless paths that lose all their segments: `a/../b` gives `/b`.
    """
    if "." not in path:
        return path
    segments = path.split("/")
    start, last = 0, len(segments) - 1
    while segments[start] in (".", ".."):
        if start == last:
            return ""
        start += 1
    kept = [segments[start]]
    for segment in segments[start + 1 :]:
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append("/" + segment)
    if segments[-1] in (".", ".."):
        kept.append("/")
    return "".join(kept)


def normalize_parts(parts: URIParts) -> URIParts:
    """`parts` in normal form: RFC 3986 6.2.2, and 6.2.3 for the schemes that Onym knows.

    Idempotent, and the result can always be parsed. An IPv6 address takes the form of RFC 5952, a port loses
    leading zeros, an empty port goes. The path of a relative reference keeps its leading `..`. Of a
    `urn` only the namespace identifier and the case of triplets change (RFC 8141 3.1).
    """
    scheme = None if parts.scheme is None else parts.scheme.lower()
    authority, userinfo, host, host_type, port = _normalize_authority(parts, scheme)
    path = _normalize_path(parts.path, scheme, has_authority=authority is not None)
    query = None if parts.query is None else normalize_triplets(parts.query)
    fragment = None if parts.fragment is None else normalize_triplets(parts.fragment)
    return URIParts(scheme, authority, userinfo, host, host_type, port, path, query, fragment)


_Authority = tuple[str | None, str | None, str | None, str | None, str | None]


def _normalize_authority(parts: URIParts, scheme: str | None) -> _Authority:
    if parts.authority is None or parts.host is None:
        return (None, None, None, None, None)
    host, host_type = _normalize_host(parts.host, parts.host_type)
    authority = f"[{host}]" if host_type in ("IPv6address", "IPvFuture") else host
    userinfo, port = parts.userinfo, parts.port
    if userinfo is not None:
        userinfo = normalize_triplets(userinfo)
        authority = f"{userinfo}@{authority}"
    if port:
        port = port.lstrip("0") or "0"
    if not port or port == DEFAULT_PORTS.get(scheme or ""):
        return authority, userinfo, host, host_type, None
    return f"{authority}:{port}", userinfo, host, host_type, port


def _normalize_host(host: str, host_type: str | None) -> tuple[str, str | None]:
    if host_type == "IPv6address":
        return format_ipv6(parse_ipv6(host) or 0), host_type
    if host_type == "IPvFuture":
        return host.lower(), host_type
    host = normalize_reg_name(host)
    return host, "IPv4address" if is_ipv4(host) else "reg-name"


_LONGEST_NAME: Final = 253
# letters, digits and, within a label, hyphens (RFC 3986 3.2.2, RFC 1123 2.1); and the underscore that names
# of services in container networks have
_LABEL: Final = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*").fullmatch
# a last label that some resolver reads as a number (WHATWG URL, "ends in a number"; inet_aton)
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*").fullmatch


def is_dns_name(name: str) -> bool:
    """Whether a normal `name`, without a dot at its end, has the form of a DNS name."""
    return len(name) <= _LONGEST_NAME and _NAME(name) is not None


def ends_in_number(name: str) -> bool:
    """Whether some software reads a normal `name` as an IPv4 address: 127.1, 2130706433, 0x7f.1."""
    return _NUMBER(name.rpartition(".")[2]) is not None


def normalize_reg_name(host: str) -> str:
    """A registered name in lower case, with upper-case triplets and unreserved characters decoded."""
    # decoding can uncover capitals, and lower-casing changes triplets: so do it twice
    return normalize_triplets(normalize_triplets(host).lower())


def _normalize_path(path: str, scheme: str | None, *, has_authority: bool) -> str:
    if scheme == "urn" and not has_authority:
        namespace, colon, rest = path.partition(":")
        return uppercase_triplets(namespace.lower()) + colon + uppercase_triplets(rest)
    path = normalize_triplets(path)
    if has_authority:
        return remove_dot_segments(path) or ("/" if scheme in DEFAULT_PORTS else "")
    if scheme is None and path[:1] != "/":
        return _normalize_relative_path(path)
    return _guard_path(remove_dot_segments(path))


def _normalize_relative_path(path: str) -> str:
    """A path-noscheme with its inner dot segments resolved, and the same target against any base."""
    if "." not in path:
        return path
    segments = path.split("/")
    kept: list[str] = []
    for segment in segments:
        if segment == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    if kept[0] == "" or ":" in kept[0]:
        kept.insert(0, ".")  # or it would be empty, absolute or a scheme
    return "/".join(kept)


_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*").fullmatch
_DELIMITER = re.compile(r"[:/?#\[\]@\\]")


def _encode_authority(
    userinfo: str | tuple[str, str] | None, host: str | None, port: int | None
) -> str | None:
    if host is None:
        if userinfo is None and port is None:
            return None
        message = "userinfo and port need a host"
        raise make_syntax_error("uri.no-host", message, "host", None, "RFC 3986 3.2")
    text = _encode_host(host)
    if userinfo is not None:
        text = f"{_encode_userinfo(userinfo)}@{text}"
    if port is None:
        return text
    if not 0 <= port <= 65535:
        message = f"the port {port} is not from 0 to 65535"
        raise make_syntax_error("uri.bad-port", message, "port", None, "RFC 3986 3.2.3")
    return f"{text}:{port:d}"


def _encode_userinfo(userinfo: str | tuple[str, str]) -> str:
    if isinstance(userinfo, str):
        return components.USERINFO_PAIR.quote(userinfo)
    user, password = userinfo
    return f"{components.USERINFO.quote(user)}:{components.USERINFO_PAIR.quote(password)}"


def _encode_host(host: str) -> str:
    literal = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else None
    if parse_ipv6(host if literal is None else literal) is not None:
        return f"[{host}]" if literal is None else host
    if literal is not None and is_ipvfuture(literal):
        return host
    if _DELIMITER.search(host):
        hint = "pass only a name or an address; the port and the userinfo have their own arguments"
        message = "the host contains a delimiter"
        raise make_syntax_error("uri.bad-host", message, "host", None, "RFC 3986 3.2.2", hint)
    return components.REG_NAME.quote(host)


def _encode_path(path: str | Sequence[str], *, has_authority: bool, has_scheme: bool) -> str:
    if isinstance(path, str):
        text = components.PATH.quote(path)
    else:
        text = "".join("/" + components.PCHAR_SEGMENT.quote(segment) for segment in path)
    if has_authority:
        if text[:1] not in ("", "/"):
            message = "a path after an authority starts with /"
            raise make_syntax_error("uri.bad-path", message, "path", None, "RFC 3986 3.3")
        return text
    if text[:2] == "//":
        message = "a path without an authority cannot start with //"
        raise make_syntax_error("uri.bad-path", message, "path", None, "RFC 3986 3.3")
    if not has_scheme:
        first, slash, rest = text.partition("/")
        # a raw colon would end a scheme
        return first.replace(":", "%3A") + slash + rest
    return text


def _encode_query(query: str | Iterable[tuple[str, str]]) -> str:
    if isinstance(query, str):
        return components.QUERY.quote(query)
    return "&".join(
        f"{components.QUERY_NAME.quote(name)}={components.QUERY_VALUE.quote(value)}" for name, value in query
    )


class FrozenURI(Frozen):
    """The base of `URI` and `AIURI`: a text and its parts.

    Two values are equal when they are of one class and their texts are equal, character by character;
    compare `normalize()`d values to compare what they name.
    """

    __slots__ = ("_parts", "_text")
    _parts: URIParts
    _text: str

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} has no constructor: use {type(self).__name__}.parse()")

    @classmethod
    def _from_parts(cls, text: str, parts: URIParts) -> Self:
        self = object.__new__(cls)
        object.__setattr__(self, "_text", text)
        object.__setattr__(self, "_parts", parts)
        return self

    @classmethod
    def _from_text(cls, text: str) -> Self:
        return cls._from_parts(text, split_uri(text, max_length=len(text)))

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
        """As written, still percent-encoded. It may contain a password."""
        return self._parts.userinfo

    @property
    def host(self) -> str | None:
        """As written, an IP literal without its brackets; "" if the authority names no host."""
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
        return f"{type(self).__name__}({mask_password(self._text, self._parts)!r})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._text == other._text

    def __hash__(self) -> int:
        return hash((type(self), self._text))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._from_text, (self._text,)


def mask_password(text: str, parts: URIParts) -> str:
    """`text` with `***` for what follows the first colon of its userinfo (RFC 3986 3.2.1)."""
    user, colon, _ = (parts.userinfo or "").partition(":")
    if not colon:
        return text
    at = compute_offsets(parts)
    return f"{text[: at.userinfo]}{user}:***{text[at.userinfo + len(parts.userinfo or '') :]}"


@final
class URI(FrozenURI):
    """A URI or relative reference: frozen, hashable, comparable by text, picklable.

    `parse` makes one of a text, `build` of raw parts. The attributes are the components exactly as written,
    None if a component is absent and "" if it is empty.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("URI cannot be subclassed")

    @classmethod
    def parse(cls, text: str | URI, rule: str = "URI-reference", *, max_length: int = MAX_LENGTH) -> URI:
        """Parse `text` strictly by a rule of RFC 3986: URI, URI-reference, absolute-URI or relative-ref.

        A `URI` passes through if it matches the rule. Raises URISyntaxError (component, offset,
        clause), URILimitError above `max_length` characters, UsageError for an unknown rule.
        """
        text = text._text if isinstance(text, URI) else text
        if not isinstance(text, str):
            raise TypeError("a URI is parsed from str")
        return cls._from_parts(text, split_uri(text, rule, max_length=max_length))

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
        """Build a URI from raw parts. Each part is percent-encoded as its component requires, also a `%`.

        `userinfo` is one text or a (user, password) pair. `host` is a name or an address, an IP literal
        with or without its brackets. `path` is text whose `/` separate, or a sequence of segments, whose
        `/` are data and which make a path that starts with `/`. `query` is text, or (name, value) pairs
        whose `&`, `=` and `+` are data. Raises URISyntaxError for parts that do not form a URI.
        """
        authority = _encode_authority(userinfo, host, port)
        text = _encode_path(path, has_authority=authority is not None, has_scheme=scheme is not None)
        if authority is not None:
            text = f"//{authority}{text}"
        if scheme is not None:
            if not _SCHEME(scheme):
                raise make_syntax_error("uri.bad-scheme", SCHEME_RULE, "scheme", None, "RFC 3986 3.1")
            text = f"{scheme}:{text}"
        if query is not None:
            text = f"{text}?{_encode_query(query)}"
        return cls.parse(text if fragment is None else f"{text}#{components.FRAGMENT.quote(fragment)}")

    def resolve(self, reference: str | URI, *, strict: bool = True) -> URI:
        """Resolve `reference` against this URI (RFC 3986 5.2).

        `strict=False` ignores the reference's scheme if it is the base's. Raises URISyntaxError for a
        base without scheme (`uri.no-scheme`) or a reference that is not one.
        """
        other = reference if isinstance(reference, URI) else URI.parse(reference)
        parts = resolve_reference(self._parts, other._parts, strict=strict)
        return self._from_parts(recompose_uri(parts), parts)

    def normalize(self) -> URI:
        """The normal form: RFC 3986 6.2.2, and 6.2.3 for the schemes that Onym knows. Idempotent.

        Lower-case scheme and host, upper-case triplets, unreserved characters decoded, dot segments
        removed, IPv6 addresses as RFC 5952 writes them; default and empty ports dropped and an empty
        path made `/` for ai, ftp, http, https, ws and wss.
        """
        parts = normalize_parts(self._parts)
        return self._from_parts(recompose_uri(parts), parts)
