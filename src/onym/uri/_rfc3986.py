"""RFC 3986: the grammar of Appendix A, recomposition, reference resolution and normalisation.

One compiled expression reads a good text in one pass; `_explain` is imported only to say why a bad one
is bad. Every step is linear in the length of the text: quantifiers that could backtrack are possessive.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from onym.errors import URILimitError, URISyntaxError, UsageError
from onym.uri._ip import format_ipv6, is_ipv4, literal_type, parse_ipv6
from onym.uri._percent import normalize_triplets, upper_triplets

__all__ = [
    "DEFAULT_PORTS",
    "MAX_LENGTH",
    "RULES",
    "Offsets",
    "Parts",
    "normal_reg_name",
    "normalize",
    "offsets",
    "recompose",
    "remove_dot_segments",
    "resolve",
    "split",
]

#: characters; a longer text is refused unless the caller says otherwise
MAX_LENGTH: Final = 65_536
#: the rules of RFC 3986 that `split` reads
RULES: Final = ("URI", "URI-reference", "absolute-URI", "relative-ref")
#: RFC 3986 6.2.3, for the schemes that Onym knows. Not `llm`: its default depends on the host, and
#: a port says there that the host is no alias
DEFAULT_PORTS: Final = {"ai": "443", "ftp": "21", "http": "80", "https": "443", "ws": "80", "wss": "443"}


class Parts(NamedTuple):
    """The components exactly as in the text: None is absent, "" is empty.

    `authority` is the whole of userinfo, host and port. An IP literal stands in `host` without its
    brackets, and `host_type` is `reg-name`, `IPv4address`, `IPv6address` or `IPvFuture`.
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


def _run(characters: str) -> str:
    """A run of `characters` and percent triplets, of any length, that never backtracks."""
    return f"[{characters}]*+(?:%[0-9A-Fa-f]{{2}}[{characters}]*+)*+"


_REG = r"A-Za-z0-9._~!$&'()*+,;=\-"  # unreserved and sub-delims
_URI_REFERENCE = re.compile(
    # a scheme, or else no colon in the first segment (path-noscheme)
    r"(?:([A-Za-z][A-Za-z0-9+.\-]*+):|(?![^:/?#]*+:))"
    # an authority and path-abempty, or else a path that does not start with two slashes
    rf"(?://((?:({_run(_REG + ':')})@)?(\[[{_REG}:]*+\]|{_run(_REG)})(?::([0-9]*+))?)(?![^/?#])|(?!//))"
    rf"({_run(_REG + ':@/')})(?:\?({_run(_REG + ':@/?')}))?(?:#({_run(_REG + ':@/?')}))?"
).fullmatch


def split(text: str, rule: str = "URI-reference", *, max_length: int = MAX_LENGTH) -> Parts:
    """The components of `text`, which has to match `rule` of RFC 3986 Appendix A.

    Raises URISyntaxError with component, offset and clause, URILimitError where `text` has more than
    `max_length` characters, UsageError for a rule that is not in `RULES`.
    """
    if len(text) > max_length:
        raise URILimitError(f"the URI has more than {max_length} characters", offset=max_length)
    if rule not in RULES:
        raise UsageError(f"no such rule; choose one of {', '.join(RULES)}")
    found = _URI_REFERENCE(text)
    if found is None:
        raise _explained(text, rule)
    scheme, authority, userinfo, host, port, path, query, fragment = found.groups()
    host_type = None
    if host is not None:
        if host[:1] == "[":
            host = host[1:-1]
            host_type = literal_type(host)
            if host_type is None:
                raise _explained(text, rule)
        else:
            host_type = "IPv4address" if host[-1:].isdigit() and is_ipv4(host) else "reg-name"
    if rule != "URI-reference" and (
        (scheme is None) is (rule != "relative-ref") or (rule == "absolute-URI" and fragment is not None)
    ):
        raise _explained(text, rule)
    return Parts(scheme, authority, userinfo, host, host_type, port, path, query, fragment)


def _explained(text: str, rule: str) -> URISyntaxError:
    from onym.uri._explain import explain  # only where there is a fault to explain

    return explain(text, rule)


class Offsets(NamedTuple):
    """Where each component starts in the text, delimiters not counted; -1 where it is absent.

    The `host` of an IP literal starts after its bracket.
    """

    userinfo: int
    host: int
    port: int
    path: int
    query: int
    fragment: int


def offsets(parts: Parts) -> Offsets:
    """Where the components of `parts` stand in the text that they were read from."""
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
    return Offsets(userinfo, host, port, path, query, fragment)


def recompose(parts: Parts) -> str:
    """The text of `parts` (RFC 3986 5.3), from `authority` and not from its pieces."""
    scheme, authority, _, _, _, _, path, query, fragment = parts
    text = path if authority is None else f"//{authority}{path}"
    if scheme is not None:
        text = f"{scheme}:{text}"
    if query is not None:
        text = f"{text}?{query}"
    return text if fragment is None else f"{text}#{fragment}"


def resolve(base: Parts, reference: Parts, *, strict: bool = True) -> Parts:
    """The target of `reference` against `base` (RFC 3986 5.2.2).

    `strict=False` ignores a scheme in the reference that is the base's own. A target without authority
    whose path would start with `//` gets `/.` before it: it would read as an authority. Raises
    URISyntaxError `uri.no-scheme` for a base that is a relative reference.
    """
    if base.scheme is None:
        raise URISyntaxError(
            "the base of a resolution needs a scheme",
            code="uri.no-scheme",
            component="scheme",
            offset=0,
            clause="RFC 3986 5.1",
        )
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
                path = remove_dot_segments(_merge(base, reference.path))
    if source.authority is None:
        path = _guarded(path)
    return source._replace(scheme=scheme, path=path, query=query, fragment=reference.fragment)


def _merge(base: Parts, path: str) -> str:
    """RFC 3986 5.2.3."""
    if base.authority is not None and base.path == "":
        return "/" + path
    return base.path[: base.path.rfind("/") + 1] + path


def _guarded(path: str) -> str:
    """`path` as it may stand where there is no authority (RFC 3986 3.3)."""
    return "/." + path if path.startswith("//") else path


def remove_dot_segments(path: str) -> str:
    """`path` without its `.` and `..` segments (RFC 3986 5.2.4, to the letter), in linear time.

    To the letter also where a rootless path loses all its segments: `a/../b` gives `/b`.
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


def normalize(parts: Parts) -> Parts:
    """`parts` in normal form: RFC 3986 6.2.2, and 6.2.3 for the schemes that Onym knows.

    Idempotent, and always readable again. An IPv6 address takes the form of RFC 5952, a port loses
    leading zeros, an empty port goes. The path of a relative reference keeps its leading `..`. Of a
    `urn` only the namespace identifier and the case of triplets change (RFC 8141 3.1).
    """
    scheme = None if parts.scheme is None else parts.scheme.lower()
    authority, userinfo, host, host_type, port = _normal_authority(parts, scheme)
    path = _normal_path(parts.path, scheme, has_authority=authority is not None)
    query = None if parts.query is None else normalize_triplets(parts.query)
    fragment = None if parts.fragment is None else normalize_triplets(parts.fragment)
    return Parts(scheme, authority, userinfo, host, host_type, port, path, query, fragment)


_Authority = tuple[str | None, str | None, str | None, str | None, str | None]


def _normal_authority(parts: Parts, scheme: str | None) -> _Authority:
    if parts.authority is None or parts.host is None:
        return (None, None, None, None, None)
    host, host_type = _normal_host(parts.host, parts.host_type)
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


def _normal_host(host: str, host_type: str | None) -> tuple[str, str | None]:
    if host_type == "IPv6address":
        return format_ipv6(parse_ipv6(host) or 0), host_type
    if host_type == "IPvFuture":
        return host.lower(), host_type
    host = normal_reg_name(host)
    return host, "IPv4address" if is_ipv4(host) else "reg-name"


def normal_reg_name(host: str) -> str:
    """A registered name in lower case, with upper-case triplets and unreserved characters decoded."""
    # decoding can uncover capitals, and lower-casing spoils triplets: so twice
    return normalize_triplets(normalize_triplets(host).lower())


def _normal_path(path: str, scheme: str | None, *, has_authority: bool) -> str:
    if scheme == "urn" and not has_authority:
        namespace, colon, rest = path.partition(":")
        return upper_triplets(namespace.lower()) + colon + upper_triplets(rest)
    path = normalize_triplets(path)
    if has_authority:
        return remove_dot_segments(path) or ("/" if scheme in DEFAULT_PORTS else "")
    if scheme is None and path[:1] != "/":
        return _normal_relative_path(path)
    return _guarded(remove_dot_segments(path))


def _normal_relative_path(path: str) -> str:
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
