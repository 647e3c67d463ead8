"""The railroad diagram: one well-formed SVG, named for those who do not see it, and without code."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from onym.errors import GrammarError, UnknownEntryError
from onym.registry.abnf import parse_blocks, parse_grammar, render_railroad, resolve
from onym.registry.documents.types import Block

SVG = "{http://www.w3.org/2000/svg}"
EVERY = """\
s = "a" %s"b" / %x41-5A / %d13.10 / t [ u ] *v 1*w
t = 2*3"x" 4"y" 5*"z" *1t2 0"n" 1"o" ""
u = <some "words" & <more>>
v = 1#"e" / 2#3"f" / #"g"
w = host / nowhere
t2 = 1*3( "deep" / "er" ) *( "long" / 1*"loop" )
"""


def drawn(text: str, start: str = "s") -> ET.Element:
    grammar = resolve(parse_blocks([Block(text=text, line=1)]))
    return ET.fromstring(render_railroad(grammar, start))


def test_every_form_is_drawn_in_a_well_formed_picture() -> None:
    picture = drawn(EVERY.replace(" & <more>>", " & more>"))
    texts = [each.text or "" for each in picture.iter(f"{SVG}text")]
    for label in (
        '"a"',
        '%s"b"',
        "%x41-5A",
        "%x0D.0A",
        "2 to 3 times",
        "4 times",
        "5 or more",
        "by commas",
        "2 to 3 times by commas",
        "host",
        "nowhere",
        'some "words" & more',
    ):
        assert label in texts, label
    titles = [each.text for each in picture.iter(f"{SVG}title")]
    assert titles[0] == "Railroad diagram of s"
    assert "host: RFC 3986" in titles
    assert "nowhere: not defined" in titles


def test_the_picture_has_a_name_and_each_rule_its_abnf() -> None:
    picture = drawn('s = "a" t\nt = "b" ; end')
    assert picture.get("role") == "img"
    assert picture.get("aria-label") == "Railroad diagram of s"
    groups = [each for each in picture.iter(f"{SVG}g") if each.get("role") == "group"]
    assert [each.get("aria-label") for each in groups] == ["s", "t"]
    assert [each[0].text for each in groups] == ['s = "a" t', 't = "b" ; end']


def test_boxes_lie_within_the_picture_and_do_not_cover_each_other() -> None:
    picture = drawn(EVERY.replace(" & <more>>", " & more>"))
    _, _, width, height = map(float, (picture.get("viewBox") or "").split())
    boxes = [
        tuple(float(each.get(name) or 0) for name in ("x", "y", "width", "height"))
        for each in picture.iter(f"{SVG}rect")
    ]
    assert len(boxes) > 20
    for at, (x, y, w, h) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        for x2, y2, w2, h2 in boxes[at + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_the_picture_takes_its_colour_from_around_it_and_loads_nothing() -> None:
    text = render_railroad(parse_grammar(EVERY.replace(" & <more>>", " & more>")), "s")
    assert "currentColor" in text
    for word in ("href", "url(", "<style", "<script", " style=", "#0", "#f"):
        assert word not in text.replace("2#3", "").replace('#"', "")
    assert text.count("http") == 1  # the name of the language alone


def test_markup_in_a_grammar_is_text_in_the_picture() -> None:
    hostile = 's = "</text><script>alert(1)</script>" <&"\'\x1b\x00]]> ; --></svg>'
    picture = drawn(hostile)
    assert not list(picture.iter(f"{SVG}script"))
    assert not list(picture.iter("script"))
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert '"</text><script>alert(1)</script>"' in texts


def test_only_rules_that_the_start_needs_are_drawn_and_imports_are_not() -> None:
    picture = drawn("s = t host\nt = ALPHA s\nz = s")
    groups = [each.get("aria-label") for each in picture.iter(f"{SVG}g") if each.get("role") == "group"]
    assert groups == ["s", "t"]
    imported = resolve(parse_grammar("s = host"))
    assert "IP-literal" in render_railroad(imported, "host")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("s = |", "abnf.broken-rule"),
        ("s = t\nt = |", "abnf.broken-rule"),
        ("\n".join(["s = r0", *(f'r{at} = "a" r{at + 1}' for at in range(300))]), "abnf.too-large"),
        ("s = " + " / ".join(['"a"'] * 6_000), "abnf.too-large"),
    ],
)
def test_what_is_too_large_or_broken_is_not_drawn(text: str, code: str) -> None:
    with pytest.raises(GrammarError) as caught:
        drawn(text)
    assert caught.value.code == code


def test_a_start_that_does_not_exist_is_unknown() -> None:
    with pytest.raises(UnknownEntryError):
        drawn("s = a", "nothing")
