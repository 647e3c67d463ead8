"""The Link header: RFC 8288, its traps, and which links count."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.discovery.pointers import MAX_LINK_BYTES, MAX_LINKS, Link, find_pointers, parse_links
from peer_install import node, npm_package
from support import as_subtests

PAGE = "https://bank.example/page"


def targets(*values: str, context: str = PAGE) -> tuple[str, ...]:
    return find_pointers(values, context=context).targets


@as_subtests(
    ("value", "found"),
    [
        # the draft's own
        ('<ai://bank/service/payments>; rel="aiip"', ("ai://bank/service/payments",)),
        ("<ai://a/x>;rel=aiip", ("ai://a/x",)),
        ("<ai://a/x> ; REL = aiip", ("ai://a/x",)),
        ('<ai://a/x>; rel="next\tAIIP prev"', ("ai://a/x",)),
        ('<ai://a/x>; title="a;b, <ai://evil/y>; rel=aiip"; rel=aiip', ("ai://a/x",)),
        ('<ai://a/x>; title="say \\"hi\\", \\\\"; rel=aiip', ("ai://a/x",)),
        ('</style>; rel=preload, <ai://a/x>; rel=aiip,<ai://b/y>; rel="aiip"', ("ai://a/x", "ai://b/y")),
        # a later rel does not count (RFC 8288 3.3)
        ("<ai://evil/x>; rel=next; rel=aiip", ()),
        ("<ai://a/x>; rel=aiip; rel=next", ("ai://a/x",)),
        # about something else (RFC 8288 3.2)
        ('<ai://evil/x>; rel=aiip; anchor="https://other.example/"', ()),
        ('<ai://evil/x>; rel=aiip; anchor="#part"', ()),
        ('<ai://evil/x>; rel=aiip; anchor="/other"', ()),
        ('<ai://a/x>; rel=aiip; anchor="/page"', ("ai://a/x",)),
        ('<ai://a/x>; rel=aiip; anchor=""', ("ai://a/x",)),
        ('<ai://a/x>; rel=aiip; anchor="HTTPS://Bank.example:443/page"', ("ai://a/x",)),
        ('<ai://evil/x>; rel=aiip; anchor="https://other.example/"; anchor="/page"', ()),
        ('<ai://evil/x>; rel=aiip; anchor="ht!tp://["', ()),
        # not ours
        ("<ai://a/x>; rel=aiip-x", ()),
        ("<ai://a/x>; rel=xaiip", ()),
        ("<ai://a/x>; rev=aiip", ()),
        ("<ai://a/x>; rel*=aiip", ()),
        ("<ai://a/x>", ()),
        ('<ai://a/x>; rel="aiip\xa0x"', ()),
        # what is no link ends the reading
        ("ai://a/x; rel=aiip", ()),
        ("<ai://a/x; rel=aiip", ()),
        ("<ai://a/x> rel=aiip", ()),
        ('<ai://a/x>; title="never closed; rel=aiip', ()),
        ('<ai://a/x>; rel="aiip', ("ai://a/x",)),
        ('<ai://a/x>; rel="aiip\\', ("ai://a/x",)),
        (", <ai://a/x>; rel=aiip", ()),
        ("<ai://a/x>; ; rel=aiip", ("ai://a/x",)),
        ("<ai://a/x>; rel=", ()),
        ("<ai://a/x>;", ()),
        ("", ()),
    ],
)  # fmt: skip
def test_a_value_gives_these_targets(value: str, found: tuple[str, ...]) -> None:
    assert targets(value) == found


def test_links_about_others_are_reported() -> None:
    found = find_pointers(['<ai://evil/x>; rel=aiip; anchor="https://other.example/"'], context=PAGE)
    assert found.ignored == ("a link about another page",)


def test_several_fields_are_one_list_without_repetition() -> None:
    assert targets("<ai://a/x>; rel=aiip", "<ai://a/x>; rel=aiip, <ai://b/y>; rel=aiip") == (
        "ai://a/x",
        "ai://b/y",
    )


def test_links_beyond_the_cap_are_not_read() -> None:
    filler = ", ".join(["<ai://a/x>; rel=aiip"] * MAX_LINKS)
    found = find_pointers([filler, "<ai://late/x>; rel=aiip"], context=PAGE)
    assert found.targets == ("ai://a/x",)
    assert "first 64" in found.ignored[0]
    assert len(parse_links(filler + ", <ai://late/x>")) == MAX_LINKS


def test_octets_beyond_the_cap_are_not_read() -> None:
    found = find_pointers(["<" + "x" * MAX_LINK_BYTES + ">; rel=aiip"], context=PAGE)
    assert found.targets == ()
    assert "16384 bytes" in found.ignored[0]


def test_parameters_keep_their_order_and_their_text() -> None:
    (link,) = parse_links('<x>; A="1\\;"; b = 2 ;a=3;c')
    assert link == Link("x", (("a", "1;"), ("b", "2"), ("a", "3"), ("c", "")))
    assert link.get_parameter("a") == "1;"
    assert link.get_parameter("z") is None


@given(st.text(alphabet='<>;,="\\ \trelaiipx:/é\x00', max_size=80))
def test_any_text_is_read_without_complaint(value: str) -> None:
    for each in parse_links(value):
        assert ">" not in each.target
    find_pointers([value], context=PAGE)


@given(st.text(max_size=80))
def test_any_unicode_is_read_without_complaint(value: str) -> None:
    find_pointers([value], context=PAGE)


@pytest.mark.parametrize("piece", ["<a>;", "<a>,", '"', "\\", "<", ";a=", " ", '<a>;b="', "<a>; rel=aiip,"])
def test_long_hostile_values_take_linear_time(piece: str) -> None:
    # a quadratic reading of a megabyte would not end within the test's time
    parse_links("<x>;y=" + piece * (1_000_000 // len(piece)))
    parse_links(piece * (1_000_000 // len(piece)))


token = st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
quoted = st.text(alphabet='abc;,<>="\\ =', max_size=12)
link_values = st.builds(
    lambda target, rels, extra: (target, rels, extra),
    st.from_regex(r"ai://[a-z]{1,6}\.example/[a-z]{0,6}", fullmatch=True),
    st.lists(st.sampled_from(["aiip", "next", "prev"]), min_size=1, max_size=3, unique=True),
    st.lists(
        st.tuples(st.sampled_from(["title", "x-a", "x-b"]), quoted), max_size=2, unique_by=lambda p: p[0]
    ),
)


def written(target: str, rels: list[str], extra: list[tuple[str, str]]) -> str:
    def quote(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "; ".join([f"<{target}>", f"rel={quote(' '.join(rels))}", *(f"{n}={quote(v)}" for n, v in extra)])


@given(st.lists(link_values, min_size=1, max_size=5))
def test_what_is_written_by_the_grammar_is_read_back(
    made: list[tuple[str, list[str], list[tuple[str, str]]]],
) -> None:
    found = parse_links(", ".join(written(*each) for each in made))
    assert [(each.target, list(each.relations), list(each.parameters[1:])) for each in found] == [
        (target, rels, extra) for target, rels, extra in made
    ]


WELL_FORMED = [
    '<ai://bank/service/payments>; rel="aiip"',
    "<ai://a.example/x>; rel=aiip",
    '<https://example.com/a,b;c>; rel="next prev"; title="a, b; c"',
    '<ai://a/x>; rel="aiip next", </y>; rel=prev',
    '<ai://a/x>;rel="aiip";title="say \\"hi\\""',
    '<https://example.org/>; rel="start", <https://example.org/index>; rel="index"',
]


def test_another_parser_reads_well_formed_values_alike() -> None:
    modules = npm_package(Path(__file__).parent / "link_peer", "http-link-header")
    script = (
        "const L = require(process.argv[1]); const fs = require('fs');"
        "const v = JSON.parse(fs.readFileSync(0, 'utf8'));"
        "console.log(JSON.stringify(v.map(x => L.parse(x).refs.map(r => [r.uri, r.rel]))))"
    )
    runtime = node()
    done = subprocess.run(
        [runtime.program, "-e", script, str(modules / "http-link-header")],
        input=json.dumps(WELL_FORMED),
        capture_output=True,
        text=True,
        check=True,
        env=runtime.environment or None,
    )
    theirs = json.loads(done.stdout)
    for value, refs in zip(WELL_FORMED, theirs, strict=True):
        ours = [[each.target, rel] for each in parse_links(value) for rel in each.relations]
        # it gives one row per link, or one per relation type
        spread = [[uri, rel] for uri, rels in refs for rel in rels.split()]
        assert ours == spread, value
