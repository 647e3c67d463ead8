"""IP addresses as RFC 3986 3.2.2 writes them: `IPv4address`, `IPv6address`, `IPvFuture`.

`ipaddress` is not used: it is slow to import, and what it takes (zone identifiers, leading zeros)
differs by version of Python.
"""

from __future__ import annotations

from typing import Final

from onym.uri._percent import SUB_DELIMS, UNRESERVED

__all__ = ["format_ipv6", "is_ipv4", "is_ipvfuture", "literal_type", "parse_ipv6"]

_HEX: Final = "0123456789abcdefABCDEF"
_FUTURE: Final = UNRESERVED + SUB_DELIMS + ":"
#: seven groups of four and a dotted quad: nothing longer is an address
_LONGEST: Final = 45

# `not text.strip(characters)` asks whether all of a text is made of those characters: as fast as an
# expression, and nothing to compile at import


def is_ipv4(text: str) -> bool:
    """Whether `text` is an `IPv4address`: four decimal octets, none with a leading zero."""
    octets = text.split(".")
    return len(octets) == 4 and all(
        octet.isascii()
        and octet.isdecimal()
        and (octet[0] != "0" or octet == "0")
        and len(octet) <= 3
        and int(octet) <= 255
        for octet in octets
    )


def is_ipvfuture(text: str) -> bool:
    """Whether `text`, without brackets, is an `IPvFuture`."""
    version, dot, address = text[1:].partition(".")
    return (
        text[:1] in ("v", "V")
        and version != ""
        and not version.strip(_HEX)
        and dot != ""
        and address != ""
        and not address.strip(_FUTURE)
    )


def literal_type(text: str) -> str | None:
    """`"IPv6address"`, `"IPvFuture"` or None, for what stands between the brackets of a host."""
    if text[:1] in ("v", "V"):
        return "IPvFuture" if is_ipvfuture(text) else None
    return None if parse_ipv6(text) is None else "IPv6address"


def parse_ipv6(text: str) -> int | None:
    """The 128-bit value of an `IPv6address`, or None where `text` is not one."""
    if len(text) > _LONGEST:
        return None
    head, gap, tail = text.partition("::")
    before = head.split(":") if head else []
    after = tail.split(":") if tail else []
    last = after if gap else before
    if last and "." in last[-1]:
        if not is_ipv4(last[-1]):
            return None
        a, b, c, d = map(int, last.pop().split("."))
        last += [f"{a << 8 | b:x}", f"{c << 8 | d:x}"]
    missing = 8 - len(before) - len(after)
    if (missing < 1) if gap else (missing != 0):
        return None
    value = 0
    for group in (*before, *["0"] * missing, *after):
        if not 1 <= len(group) <= 4 or group.strip(_HEX):
            return None
        value = value << 16 | int(group, 16)
    return value


def format_ipv6(value: int) -> str:
    """The address as RFC 5952 4 writes it: lower case, the longest run of zeros as `::`.

    All of it in hexadecimal: the dotted quad of RFC 5952 5 is optional, and one form for every
    address needs no list of prefixes.
    """
    groups = [value >> shift & 0xFFFF for shift in range(112, -1, -16)]
    start, length = _longest_zero_run(groups)
    texts = [f"{group:x}" for group in groups]
    if length < 2:
        return ":".join(texts)
    return ":".join(texts[:start]) + "::" + ":".join(texts[start + length :])


def _longest_zero_run(groups: list[int]) -> tuple[int, int]:
    """Where the first longest run of zeros starts, and its length."""
    best = (0, 0)
    start = None
    for index, group in enumerate([*groups, 1]):
        if group == 0:
            start = index if start is None else start
        elif start is not None:
            if index - start > best[1]:
                best = (start, index - start)
            start = None
    return best
