"""Links of a page's head: a real parser, direct children alone, and none of the ways around it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.discovery.pointers import (
    MAX_LINKS,
    MAX_PAGE_BYTES,
    MAX_TAGS,
    Pointers,
    find_head_links,
    get_charset,
    is_html,
)
from onym.net.messages import Headers
from support import as_subtests

EVIL = "<link rel=aiip href=ai://evil.example/x>"
GOOD = "<link rel=aiip href=ai://good.example/x>"

TRAPS = {
    "a comment of a user in the body": f"<body><p>hello {EVIL}</p>",
    "text that ends the head": f"<head>text{EVIL}</head>",
    "an element that ends the head": f"<head><div>{EVIL}</div></head>",
    "noscript": f"<head><noscript>{EVIL}</noscript></head>",
    "template": f"<head><template>{EVIL}</template></head>",
    "svg": f"<head><svg>{EVIL}</svg></head>",
    "math": f"<head><math><mi>{EVIL}</mi></math></head>",
    "a comment": f"<head><!-- {EVIL} --></head>",
    "a comment that browsers close elsewhere": f"<head><!--> --><!--- {EVIL} --></head>",
    "title": f"<head><title>{EVIL}</title></head>",
    "script": f"<head><script>document.write('{EVIL}')</script></head>",
    "style": f"<head><style>/*{EVIL}*/</style></head>",
    "an attribute": f"<head><meta name=description content='{EVIL}'></head>",
    "textarea": f"<body><textarea><head>{EVIL}</head></textarea>",
    "a second head in the body": f"<body><p></p><head>{EVIL}</head>",
    "after the page": f"</html>{EVIL}",
    "a frame's own page": f'<body><iframe srcdoc="<head>{EVIL}</head>"></iframe>',
    "plaintext": f"<body><plaintext><head>{EVIL}",
    "a custom element in the head": f"<head><x-y></x-y>{EVIL}</head>",
    "a relation that begins alike": "<head><link rel=aiip-x href=ai://evil.example/x></head>",
    "another attribute": "<head><link rev=aiip href=ai://evil.example/x></head>",
    "no address": "<head><link rel=aiip></head>",
    "an empty address": "<head><link rel=aiip href=' '></head>",
    "a tag cut off by the end": "<head><link rel=aiip href=ai://evil.example/x",
    "a K that is no k": "<head><link rel=\u212aaiip href=ai://evil.example/x></head>",
}


@as_subtests("page", TRAPS.values(), ids=TRAPS.keys())
def test_nothing_but_the_head_points_anywhere(page: str) -> None:
    # attack 13, prov-097
    assert find_head_links(page.encode()) == Pointers()


@as_subtests(
    "page",
    [
        f"<!doctype html><html><head>{GOOD}</head><body></body></html>",
        GOOD,
        f"<title>Shop</title>{GOOD}<body>{EVIL}",
        "<head><LINK REL='next AIIP' HREF=' ai://good.example/x\n'></head>",
        "<head><link rel='\n\taiip\f' href=ai://good.example/x></head>",
        f"<head><base href=https://evil.example/>{GOOD}</head>",
        f"<head>{GOOD}{GOOD}</head>",
        f"<head><noscript>{EVIL}</noscript>{GOOD}</head>",
        f"<head><template>{EVIL}</template>{GOOD}</head>",
        f"<head><meta charset=utf-8><!-- x --> \n {GOOD}</head>",
    ],
)
def test_a_link_of_the_head_points(page: str) -> None:
    assert find_head_links(page.encode()).targets == ("ai://good.example/x",)


def test_entities_in_an_address_are_decoded_once() -> None:
    page = b"<head><link rel=aiip href='ai://good.example/x?a=1&amp;b=2'></head>"
    assert find_head_links(page).targets == ("ai://good.example/x?a=1&b=2",)


def test_what_is_beyond_the_cap_is_not_read() -> None:
    filler = "<head><title>" + "x" * (MAX_PAGE_BYTES - 13) + "</title>"
    assert find_head_links((filler + GOOD).encode()).targets == ()
    inside = "<head><title>" + "x" * (MAX_PAGE_BYTES - 21 - len(GOOD)) + "</title>"
    assert find_head_links((inside + GOOD + "y" * 100).encode()).targets == ("ai://good.example/x",)


def test_a_head_full_of_links_is_cut() -> None:
    page = "<head>" + "".join(f"<link rel=aiip href=ai://a.example/{n}>" for n in range(200))
    found = find_head_links(page.encode())
    assert len(found.targets) == MAX_LINKS
    assert found.ignored


def test_a_head_full_of_nodes_is_cut() -> None:
    page = "<head>" + "<meta>" * 5000 + GOOD
    assert find_head_links(page.encode()).targets == ()


@as_subtests(
    ("octets", "charset"),
    [
        (GOOD.encode(), None),
        (GOOD.encode(), "utf-8"),
        (GOOD.encode(), "ISO-8859-1"),
        (GOOD.encode(), "Shift_JIS"),
        (b"\xef\xbb\xbf" + GOOD.encode(), "iso-8859-1"),
        (b"\xff\xfe" + GOOD.encode("utf-16-le"), None),
        (b"\xfe\xff" + GOOD.encode("utf-16-be"), "utf-8"),
        (b"<meta charset=windows-1252><title>\x80\xff</title>" + GOOD.encode(), None),
        (b"<title>\xff\xfe\x81</title>" + GOOD.encode(), None),
        (b"<title>\xff\xfe\x81</title>" + GOOD.encode(), "utf-8"),
    ],
)
def test_encodings_of_pages_are_read(octets: bytes, charset: str | None) -> None:
    assert find_head_links(octets, charset).targets == ("ai://good.example/x",)


@pytest.mark.parametrize(
    "charset", ["utf-7", "utf-16", "utf-32", "iso-2022-jp", "cp037", "no-such", "base64"]
)
def test_encodings_in_which_ascii_means_something_else_are_not_read(charset: str) -> None:
    # "+ADw-" is "<" in UTF-7: a filter before us has seen plain text
    hidden = b"<head>+ADw-link rel=aiip href=ai://evil.example/x+AD4-</head>"
    for octets in (hidden, GOOD.encode("utf-16-le"), GOOD.encode()):
        found = find_head_links(octets, charset)
        assert found.targets == ()
        assert found.ignored == ("the page, because its encoding is not supported",)
    assert find_head_links(b"<meta charset=utf-7>" + hidden).targets == ()


@pytest.mark.parametrize(
    ("fields", "html", "charset"),
    [
        ([("Content-Type", "text/html")], True, None),
        ([("Content-Type", 'TEXT/HTML; Charset="UTF-8"')], True, "UTF-8"),
        ([("Content-Type", "text/html ;x=y; charset=latin1 ")], True, "latin1"),
        ([("Content-Type", "text/htmlx")], False, None),
        ([("Content-Type", "application/xhtml+xml")], False, None),
        ([("Content-Type", "text/plain")], False, None),
        ([("Content-Type", "text/plain"), ("Content-Type", "text/html")], False, None),
        ([], False, None),
    ],
)
def test_only_html_is_html(fields: list[tuple[str, str]], html: bool, charset: str | None) -> None:
    assert is_html(Headers(fields)) is html
    assert get_charset(Headers(fields)) == charset


BLOCKS = ["head", "svg", "template", "title", "script", "noscript"]
TAGS = [f"<{slash}{name}>" for name in BLOCKS for slash in ("", "/")]
pieces = st.lists(st.sampled_from([*TAGS, "<body>", "<base>", "<!--", "-->", GOOD, *"x'\"<>"]))


@given(pieces)
def test_any_heap_of_tags_gives_links_of_ours_or_none(parts: list[str]) -> None:
    assert find_head_links("".join(parts).encode()).targets in {(), ("ai://good.example/x",)}


@given(st.binary(max_size=400), st.sampled_from([None, "utf-8", "gb18030", "big5", "euc-kr"]))
def test_any_octets_are_read_without_complaint(octets: bytes, charset: str | None) -> None:
    find_head_links(octets, charset)


@pytest.mark.parametrize(
    "bomb",
    [
        b"<div>" * 100_000,
        b"<p>" + b"".join(b"<b a%d>" % number for number in range(30_000)) + b"</p>" + b"<p>x</p>" * 20_000,
    ],
)
def test_a_page_that_is_small_and_huge_to_a_parser_is_read_in_part(bomb: bytes) -> None:
    # 46 seconds the one, tens of gigabytes the other
    began = time.process_time()
    page = b'<link rel=aiip href="ai://a.example/x">' + bomb
    assert find_head_links(page).targets == ("ai://a.example/x",)
    assert time.process_time() - began < 10


@pytest.mark.parametrize(("before", "found"), [(MAX_TAGS - 1, True), (MAX_TAGS, False)])
def test_as_many_tags_are_read_as_are_named(before: int, found: bool) -> None:
    page = b"<meta>" * before + b'<link rel=aiip href="ai://a.example/x">'
    assert bool(find_head_links(page).targets) is found
