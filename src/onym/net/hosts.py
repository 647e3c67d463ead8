"""Hosts and IP addresses: one spelling for each host, and the category of each address.

Systems disagree on what a host means: `getaddrinfo` reads `0x7f.1`, `2130706433` and `127.0.0.1%00x` as
loopback addresses. Only `parse_host` parses host text, and rejects a host that has no single meaning.
`ipaddress.is_global` differs between Python versions and does not look inside addresses that carry an IPv4
address, so a table holds IANA's special-purpose registries (as of October 2026; RFC 6890, RFC 8190).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from onym.uri.components import format_ipv6, is_ipv4, parse_ipv6
from onym.uri.generic import ends_in_number, is_dns_name

PUBLIC: Final = "public"
LOOPBACK: Final = "loopback"
METADATA: Final = "metadata"

_LOW32: Final = 0xFFFF_FFFF


class Address(NamedTuple):
    """An IP address: `version` 4 or 6, and its number."""

    version: int
    value: int

    def __str__(self) -> str:
        if self.version == 4:
            return ".".join(str(self.value >> shift & 0xFF) for shift in (24, 16, 8, 0))
        return format_ipv6(self.value)


class Network(NamedTuple):
    """A CIDR block: the address range of `version` whose first `length` bits are those of `value`."""

    version: int
    value: int
    length: int

    def contains_address(self, address: Address) -> bool:
        """Whether the address is in this block. IPv4 and IPv6 are never in each other's blocks."""
        bits = 32 if self.version == 4 else 128
        shift = bits - self.length
        return address.version == self.version and address.value >> shift == self.value >> shift

    @property
    def is_single(self) -> bool:
        """Whether the block is one address."""
        return self.length == (32 if self.version == 4 else 128)


def parse_address(text: str) -> Address | None:
    """Parse an address, or return None.

    A dotted quad without leading zeros, or IPv6 without brackets and without a zone identifier.
    """
    if ":" in text:
        value = parse_ipv6(text)
        return None if value is None else Address(6, value)
    if not is_ipv4(text):
        return None
    a, b, c, d = map(int, text.split("."))
    return Address(4, a << 24 | b << 16 | c << 8 | d)


def parse_network(text: str) -> Network | None:
    """Parse a block ("10.0.0.0/8", or a single address), or return None.

    Bits beyond the length are not allowed: "10.0.0.1/8" is probably a mistake.
    """
    host, slash, suffix = text.partition("/")
    address = parse_address(host)
    if address is None:
        return None
    bits = 32 if address.version == 4 else 128
    if not slash:
        return Network(*address, bits)
    if not (suffix.isascii() and suffix.isdigit() and len(suffix) <= 3 and int(suffix) <= bits):
        return None
    length = int(suffix)
    if address.value & ((1 << bits - length) - 1):
        return None
    return Network(*address, length)


@lru_cache(maxsize=4_096)  # every request of a client asks again
def get_client_network(text: str) -> str:
    """Return the part of the address that all requests of one client share, for rate limits.

    This is the IPv4 address, also of its IPv6-mapped form (`::ffff:192.0.2.1`, RFC 4291 2.5.5.2), or the
    IPv6 /64 network. Other text is returned unchanged.
    """
    address = parse_address(text)
    if address is None:
        return text
    if address.value >> 32 == _MAPPED:
        address = Address(4, address.value & _LOW32)
    return str(address) if address.version == 4 else f"{address.value >> 64:x}/64"


def classify_address(address: Address) -> str:
    """Return the category of the address: "public", "loopback", "private", "link-local", "metadata", …

    "embedded-…" is an IPv6 address that contains an IPv4 address of that category. An IPv4-mapped or NAT64
    address that contains a public address is public; other embeddings are obsolete and never public.
    """
    if address.version == 4:
        return _classify_v4(address.value)
    for network, category in _V6:
        if network.contains_address(address):
            return category
    return _classify_embedded(address.value)


def _classify_v4(value: int) -> str:
    address = Address(4, value)
    for network, category in _V4:
        if network.contains_address(address):
            return category
    return PUBLIC


def _classify_embedded(value: int) -> str:
    """Classify an IPv6 address outside the table by the IPv4 address that it may contain."""
    high = value >> 32
    if high in (_MAPPED, _NAT64):
        return _classify_carried(value & _LOW32)
    if high == _TRANSLATED or high == 0:
        return _classify_carried(value & _LOW32, otherwise="embedded-obsolete")
    if value >> 80 == _NAT64_LOCAL:
        return _classify_carried(_extract_nat64_local(value), otherwise="embedded-nat64-local")
    if value >> 112 == 0x2002:
        return _classify_carried(value >> 80 & _LOW32, otherwise="embedded-6to4")
    if value >> 96 == _TEREDO:
        return _pick_worst(
            _classify_carried(value >> 64 & _LOW32), _classify_carried(~value & _LOW32), "embedded-teredo"
        )
    if value >> 105 == _IETF:
        return "ietf-protocol"
    if value >> 32 & 0xFDFF_FFFF == _ISATAP:
        # the prefix is public, but its router may forward the packet to the embedded address
        return _classify_carried(value & _LOW32)
    return PUBLIC


def _extract_nat64_local(value: int) -> int:
    """RFC 6052 2.2, /48: two bytes, the reserved byte, two bytes."""
    return (value >> 64 & 0xFFFF) << 16 | value >> 40 & 0xFFFF


def _classify_carried(inner: int, otherwise: str = PUBLIC) -> str:
    category = _classify_v4(inner)
    return otherwise if category == PUBLIC else f"embedded-{category}"


def _pick_worst(*categories: str) -> str:
    return next(category for category in categories if category != PUBLIC)


#: the first 96 bits of addresses that contain an IPv4 address in the last 32
_MAPPED: Final = 0xFFFF
_TRANSLATED: Final = 0xFFFF_0000
_NAT64: Final = 0x0064_FF9B << 64
#: the first 48, 32 and 23 bits
_NAT64_LOCAL: Final = 0x0064_FF9B_0001
_TEREDO: Final = 0x2001_0000
_IETF: Final = 0x2001_0000 >> 9
#: the third word of an ISATAP interface identifier, its universal bit masked (RFC 5214 6.1)
_ISATAP: Final = 0x0000_5EFE


def _parse_rows(*rows: tuple[str, str]) -> tuple[tuple[Network, str], ...]:
    """Parse the rows and sort them, the narrowest block first."""
    parsed = [(network, category) for text, category in rows if (network := parse_network(text)) is not None]
    return tuple(sorted(parsed, key=lambda row: -row[0].length))


_V4: Final = _parse_rows(
    # services of clouds that issue credentials
    ("169.254.169.254", METADATA),  # AWS, Azure, Google, Oracle, DigitalOcean, Hetzner, OpenStack
    ("169.254.169.253", METADATA),  # AWS: the resolver of a VPC
    ("169.254.169.123", METADATA),  # AWS: time
    ("169.254.170.2", METADATA),  # AWS ECS: task credentials
    ("169.254.170.23", METADATA),  # AWS EKS: pod identity
    ("169.254.0.23", METADATA),  # Tencent Cloud
    ("169.254.10.10", METADATA),  # Tencent Cloud, obsolete
    ("169.254.42.42", METADATA),  # Scaleway
    ("100.100.100.200", METADATA),  # Alibaba Cloud
    ("168.63.129.16", METADATA),  # Azure: WireServer, on a public address
    ("192.0.0.192", METADATA),  # Oracle Cloud, obsolete
    # IANA IPv4 Special-Purpose Address Registry, whether globally reachable or not
    ("0.0.0.0/8", "this-network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "cgnat"),
    ("127.0.0.0/8", LOOPBACK),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "ietf-protocol"),
    ("192.0.2.0/24", "documentation"),
    ("192.31.196.0/24", "as112"),
    ("192.52.193.0/24", "amt"),
    ("192.88.99.0/24", "6to4-relay"),
    ("192.168.0.0/16", "private"),
    ("192.175.48.0/24", "as112"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("255.255.255.255", "broadcast"),
)

_V6: Final = _parse_rows(
    ("fd00:ec2::254", METADATA),  # AWS
    ("fd00:ec2::253", METADATA),  # AWS: the resolver of a VPC
    ("fd00:ec2::23", METADATA),  # AWS EKS: pod identity
    ("fd20:ce::254", METADATA),  # Google Cloud
    ("fd00:42::42", METADATA),  # Scaleway
    ("fd00:c1::a9fe:a9fe", METADATA),  # Oracle Cloud
    # IANA IPv6 Special-Purpose Address Registry, less the blocks that carry IPv4 addresses
    ("::", "unspecified"),
    ("::1", LOOPBACK),
    ("100::/64", "discard"),
    ("100:0:0:1::/64", "dummy"),
    ("2001:2::/48", "benchmarking"),
    ("2001:10::/28", "orchid"),
    ("2001:20::/28", "orchid"),
    ("2001:db8::/32", "documentation"),
    ("2620:4f:8000::/48", "as112"),
    ("3fff::/20", "documentation"),
    ("5f00::/16", "srv6"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)


Kind: TypeAlias = Literal["name", "loopback", "address", "refused"]

_PLAIN = re.compile(r"[A-Za-z0-9._-]").fullmatch
_TRIPLET = re.compile(r"%([0-9A-Fa-f]{2})")

_V4_LOOPBACK: Final = "127.0.0.1"
_V6_LOOPBACK: Final = "::1"

#: names of this computer in hosts files; they are never looked up (RFC 6761 6.3)
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

#: names of clouds' metadata services, which issue credentials; names below them are rejected too
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
#: such as instance-data.eu-west-1.compute.internal
_REGIONAL = re.compile(r"(?:.*\.)?instance-data\.[a-z0-9-]+\.compute\.internal").fullmatch


class Host(NamedTuple):
    """A host in its canonical spelling.

    A "name" has to be looked up, "loopback" is a name of this computer, "address" is an IP literal with its
    `address`. "refused" has a `reason`: "bad-host", "numeric-host" or "metadata-name".
    """

    text: str
    kind: Kind
    address: Address | None = None
    reason: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether the text names this computer; a lookup does not change that."""
        if self.address is not None:
            return classify_address(self.address) == LOOPBACK
        return self.kind == "loopback"


def parse_host(text: str) -> Host:
    """Parse a host: a reg-name, or an IP literal without brackets.

    Percent-encoding is decoded once and may only contain letters, digits, `-`, `.` and `_`. One trailing dot
    (the root) is dropped. A name that ends in a number is an address or is refused. Parsing the result again
    gives the same result.
    """
    if ":" in text:
        address = parse_address(text)
        return _make_refused_host("bad-host") if address is None else Host(str(address), "address", address)
    name = _decode_name(text)
    if name is None:
        return _make_refused_host("bad-host")
    rooted = name.endswith(".")
    name = name[:-1] if rooted else name
    if not is_dns_name(name):
        return _make_refused_host("bad-host")
    if ends_in_number(name):
        address = None if rooted else parse_address(name)
        return _make_refused_host("numeric-host") if address is None else Host(name, "address", address)
    if list_loopback_addresses(name):
        return Host(name, "loopback")
    if _is_metadata(name):
        return Host(name, "refused", reason="metadata-name")
    return Host(name, "name")


def list_loopback_addresses(name: str) -> tuple[str, ...]:
    """Return the addresses of a name of this computer, as `parse_host` spells it; () for other names."""
    if name.endswith(".localhost"):
        name = "localhost"
    return _LOOPBACK_NAMES.get(name, ())


def is_loopback(host: str) -> bool:
    """Report whether the text names this computer: `localhost`, `*.localhost`, 127.0.0.0/8 or ::1."""
    return parse_host(host).is_loopback


def _decode_name(text: str) -> str | None:
    """Return the name in lower case, decoded once; None if another character than a plain one was encoded."""
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
    # single labels of the list match only the whole name: "metadata" is not a top-level domain
    while "." in above:
        if above in METADATA_NAMES:
            return True
        above = above.partition(".")[2]
    return False


def _make_refused_host(reason: str) -> Host:
    return Host("", "refused", reason=reason)
