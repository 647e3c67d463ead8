"""The address table: its rows, and what hides behind IPv6."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.net.hosts import (
    PUBLIC,
    Address,
    Network,
    classify_address,
    get_client_network,
    parse_address,
    parse_network,
)
from support import as_subtests

V4 = st.integers(0, 2**32 - 1)
V6 = st.integers(0, 2**128 - 1)


def category(text: str) -> str:
    address = parse_address(text)
    assert address is not None
    return classify_address(address)


@pytest.mark.requirement("llm-10.5-a")
@as_subtests(
    ("first", "last", "expected"),
    [
        ("0.0.0.0", "0.255.255.255", "this-network"),
        ("10.0.0.0", "10.255.255.255", "private"),
        ("100.64.0.0", "100.127.255.255", "cgnat"),
        ("127.0.0.0", "127.255.255.255", "loopback"),
        ("169.254.0.0", "169.254.255.255", "link-local"),
        ("172.16.0.0", "172.31.255.255", "private"),
        ("192.0.0.0", "192.0.0.255", "ietf-protocol"),
        ("192.0.2.0", "192.0.2.255", "documentation"),
        ("192.31.196.0", "192.31.196.255", "as112"),
        ("192.52.193.0", "192.52.193.255", "amt"),
        ("192.88.99.0", "192.88.99.255", "6to4-relay"),
        ("192.168.0.0", "192.168.255.255", "private"),
        ("192.175.48.0", "192.175.48.255", "as112"),
        ("198.18.0.0", "198.19.255.255", "benchmarking"),
        ("198.51.100.0", "198.51.100.255", "documentation"),
        ("203.0.113.0", "203.0.113.255", "documentation"),
        ("224.0.0.0", "239.255.255.255", "multicast"),
        ("240.0.0.0", "255.255.255.254", "reserved"),
        ("100::", "100::ffff:ffff:ffff:ffff", "discard"),
        ("100:0:0:1::", "100::1:ffff:ffff:ffff:ffff", "dummy"),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
        ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", "as112"),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
        ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "srv6"),
        ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private"),
        ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local"),
        ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "site-local"),
        ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"),
    ],
)
def test_a_block_is_refused_from_its_first_address_to_its_last(first: str, last: str, expected: str) -> None:
    assert category(first) == category(last) == expected
    start, end = parse_address(first), parse_address(last)
    assert start is not None
    assert end is not None
    outside = [Address(start.version, start.value - 1), Address(end.version, end.value + 1)]
    bits = 32 if start.version == 4 else 128
    assert all(classify_address(each) != expected for each in outside if 0 <= each.value < 2**bits)


@pytest.mark.requirement("llm-10.5-a")
@pytest.mark.parametrize(
    "text",
    [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    ],
)
def test_where_clouds_hand_out_credentials_is_metadata(text: str) -> None:
    assert category(text) == "metadata"


@pytest.mark.requirement("onym-net-c")
@as_subtests(
    ("text", "expected"),
    [
        ("255.255.255.255", "broadcast"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("2001:1::1", "ietf-protocol"),
        ("2001:2::1", "benchmarking"),
        ("2001:1ff:ffff::1", "ietf-protocol"),
        ("2001:200::1", "public"),
        ("2001:20::1", "orchid"),
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("::ffff:8.8.8.8", "public"),
        ("::ffff:127.0.0.1", "embedded-loopback"),
        ("64:ff9b::8.8.8.8", "public"),
        ("64:ff9b::169.254.169.254", "embedded-metadata"),
        ("64:ff9b:1:808:8:800::", "embedded-nat64-local"),
        ("64:ff9b:1:7f00:0:100::", "embedded-loopback"),
        ("2002:808:808::1", "embedded-6to4"),
        ("2002:a00:1::1", "embedded-private"),
        ("::8.8.8.8", "embedded-obsolete"),
        ("::2", "embedded-this-network"),
        ("::ffff:0:8.8.8.8", "embedded-obsolete"),
        ("::ffff:0:10.0.0.1", "embedded-private"),
        ("2001:0:808:808::f7f7:f7f7", "embedded-teredo"),
        ("2001:0:7f00:1::f7f7:f7f7", "embedded-loopback"),
        ("2001:0:808:808::80ff:fffe", "embedded-loopback"),
        ("2a02:2b88::5efe:10.0.0.1", "embedded-private"),
        ("2a02:2b88::200:5efe:10.0.0.1", "embedded-private"),
        ("2a02:2b88::5efe:8.8.8.8", "public"),
    ],
)
def test_an_address_is_judged_by_what_it_carries(text: str, expected: str) -> None:
    assert category(text) == expected


@pytest.mark.requirement("onym-net-c")
@given(V4)
def test_no_way_to_carry_an_ipv4_address_makes_a_refused_one_good(value: int) -> None:
    if classify_address(Address(4, value)) == PUBLIC:
        return
    carriers = [
        0xFFFF << 32 | value,
        0xFFFF_0000 << 32 | value,
        value,
        0x64_FF9B << 96 | value,
        0x64_FF9B_0001 << 80 | value >> 16 << 64 | (value & 0xFFFF) << 40,
        0x2002 << 112 | value << 80 | 1,
        0x2001_0000 << 96 | value << 64 | 0xF7F7_F7F7,
        0x2001_0000 << 96 | 0x0808_0808 << 64 | value ^ 0xFFFF_FFFF,
        0x2A02_2B88 << 96 | 0x5EFE << 32 | value,
    ]
    assert all(classify_address(Address(6, carrier)) != PUBLIC for carrier in carriers)


@given(st.one_of(st.builds(Address, st.just(4), V4), st.builds(Address, st.just(6), V6)))
def test_every_address_is_written_so_that_it_reads_back(address: Address) -> None:
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.0/8", "10.1.2.3", "11.0.0.0"),
        ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
        ("0.0.0.0/0", "8.8.8.8", "::1"),
        ("fd00::/8", "fd12::1", "fc00::1"),
        ("::/0", "2606:4700::1111", "8.8.8.8"),
    ],
)
def test_a_block_holds_its_own_addresses(text: str, inside: str, outside: str) -> None:
    network = parse_network(text)
    assert network is not None
    addresses = [parse_address(inside), parse_address(outside)]
    assert [address is not None and network.contains_address(address) for address in addresses] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0.1/8", "::/129", "10.0.0.0/8/8", "x/8", "10.0.0.0/+8", "::1/٣"],
)
def test_what_is_no_block_is_read_as_none(text: str) -> None:
    assert parse_network(text) is None


def test_a_block_of_one_address_is_known_as_such() -> None:
    assert Network(4, 0x0A000001, 32).is_single
    assert Network(6, 1, 128).is_single
    assert not Network(6, 0, 32).is_single


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1::1", "20010db800000001/64"),
        ("2001:DB8:0:1:ffff::", "20010db800000001/64"),
        ("::1", "0/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_the_addresses_of_one_client_are_one(text: str, network: str) -> None:
    assert get_client_network(text) == network
