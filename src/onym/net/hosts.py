"""The host of a URI, brought to one spelling before anything is compared with it or looked up.

Systems disagree on what a host means: `getaddrinfo` reads `0x7f.1`, `2130706433` and `127.0.0.1%00x` as
loopback, others drop a trailing dot or decode twice. So one spelling is made here, once, and what has no
single meaning is refused. Nothing else of Onym reads host text.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

from onym.net.addresses import LOOPBACK, Address, classify, parse_address

__all__ = ["METADATA_NAMES", "Host", "is_loopback", "loopback_addresses", "read_host"]

Kind: TypeAlias = Literal["name", "loopback", "address", "refused"]

_LONGEST_NAME: Final = 253
#: letters, digits and, within a label, hyphens (RFC 3986 3.2.2, RFC 1123 2.1); and the underscore that names
#: of services in container networks have
_LABEL: Final = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*").fullmatch
_PLAIN = re.compile(r"[A-Za-z0-9._-]").fullmatch
_TRIPLET = re.compile(r"%([0-9A-Fa-f]{2})")
#: a last label that some resolver reads as a number (WHATWG URL, "ends in a number"; inet_aton)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch

_V4_LOOPBACK: Final = "127.0.0.1"
_V6_LOOPBACK: Final = "::1"

#: names that hosts files give to this machine; they are never looked up (RFC 6761 6.3)
_LOOPBACK_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "localhost": (_V4_LOOPBACK, _V6_LOOPBACK),
    "localhost.localdomain": (_V4_LOOPBACK,),
    "localhost4": (_V4_LOOPBACK,),
    "localhost4.localdomain4": (_V4_LOOPBACK,),
    "localhost6": (_V6_LOOPBACK,),
    "localhost6.localdomain6": (_V6_LOOPBACK,),
    "ip6-localhost": (_V6_LOOPBACK,),
    "ip6-loopback": (_V6_LOOPBACK,),
}

#: names under which clouds serve credentials to whoever asks from inside; names below them count too
METADATA_NAMES: Final = frozenset(
    {
        "api.metadata.cloud.ibm.com",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.aws",
        "metadata.aws.internal",
        "metadata.azure.com",
        "metadata.azure.internal",
        "metadata.cloud.ibm.com",
        "metadata.digitalocean.com",
        "metadata.ec2.internal",
        "metadata.exoscale.com",
        "metadata.gce.internal",
        "metadata.goog",
        "metadata.google",
        "metadata.google.internal",
        "metadata.hetzner.cloud",
        "metadata.internal",
        "metadata.linode.com",
        "metadata.nic.goog",
        "metadata.oraclecloud.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "metadata.scaleway.com",
        "metadata.service.internal",
        "metadata.tencentyun.com",
        "metadata.vultr.com",
        "rancher-metadata",
        "rancher-metadata.rancher.internal",
    }
)
#: instance-data.eu-west-1.compute.internal and its like
_REGIONAL = re.compile(r"(?:.*\.)?instance-data\.[a-z0-9-]+\.compute\.internal").fullmatch


class Host(NamedTuple):
    """A host in its one spelling.

    `kind` "name" is to be looked up, "loopback" is a name of this machine, "address" is an IP literal with
    its `address`. "refused" has a `reason`: "bad-host", "numeric-host" or "metadata-name".
    """

    text: str
    kind: Kind
    address: Address | None = None
    reason: str | None = None


def read_host(text: str) -> Host:
    """The host that `text` names: a reg-name, or an IP literal without brackets.

    Percent-encoding is undone once, and only letters, digits, `-`, `.` and `_` may come out of it. One
    trailing dot is the root and is dropped. A name that ends in a number is an address or is refused. Reading
    the result again gives the same result.
    """
    if ":" in text:
        address = parse_address(text)
        return _refused("bad-host") if address is None else Host(str(address), "address", address)
    name = _decoded(text)
    if name is None:
        return _refused("bad-host")
    rooted = name.endswith(".")
    name = name[:-1] if rooted else name
    if _NAME(name) is None or len(name) > _LONGEST_NAME:
        return _refused("bad-host")
    if _NUMBER(name.rpartition(".")[2]) is not None:
        address = None if rooted else parse_address(name)
        return _refused("numeric-host") if address is None else Host(name, "address", address)
    if loopback_addresses(name):
        return Host(name, "loopback")
    if _is_metadata(name):
        return Host(name, "refused", reason="metadata-name")
    return Host(name, "name")


def loopback_addresses(name: str) -> tuple[str, ...]:
    """The addresses of a name of this machine, as `read_host` spells it; () for every other name."""
    if name.endswith(".localhost"):
        name = "localhost"
    return _LOOPBACK_NAMES.get(name, ())


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by its text alone: `localhost`, `*.localhost`, 127.0.0.0/8 or ::1."""
    found = read_host(host)
    if found.address is not None:
        return classify(found.address) == LOOPBACK
    return found.kind == "loopback"


def _decoded(text: str) -> str | None:
    """Lower case, percent-decoded once; None where something else than a plain character was encoded."""
    if "%" in text:
        plain = True

        def decode(match: re.Match[str]) -> str:
            nonlocal plain
            character = chr(int(match[1], 16))
            plain = plain and _PLAIN(character) is not None
            return character

        text = _TRIPLET.sub(decode, text)
        if not plain or "%" in text:
            return None
    return text.lower() if text.isascii() else None


def _is_metadata(name: str) -> bool:
    if name in METADATA_NAMES or _REGIONAL(name) is not None:
        return True
    above = name.partition(".")[2]
    # a single word of the list counts only where it stands alone: "metadata" is not a top-level domain
    while "." in above:
        if above in METADATA_NAMES:
            return True
        above = above.partition(".")[2]
    return False


def _refused(reason: str) -> Host:
    return Host("", "refused", reason=reason)
