"""Of many names, those that may be taken for another are found without looking at each."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from onym.registry.checks import ReferenceData, check
from onym.registry.checks.context import NameIndex, compute_skeleton, is_one_edit_apart
from onym.registry.documents import read_document

_NAMES = st.text(alphabet="ab01lirncvwd5s2z+", min_size=1, max_size=6)


def is_confusable(one: str, other: str) -> bool:
    if one == other or one == f"{other}s" or other == f"{one}s":
        return False
    return compute_skeleton(one) == compute_skeleton(other) or is_one_edit_apart(one, other)


@given(st.lists(_NAMES, max_size=30), _NAMES)
@example(["a", "b", "ab"], "a")
@example(["modern", "modem"], "modem")
def test_every_confusable_name_is_among_the_near_ones(names: list[str], name: str) -> None:
    found = NameIndex(names).find_similar(name)
    assert {each for each in names if is_confusable(each, name)} <= found <= set(names)


@given(st.lists(st.text(alphabet="aAbB\0", max_size=4)), st.text(alphabet="ab\0", max_size=4))
def test_a_name_is_found_whatever_its_case(names: list[str], name: str) -> None:
    found = NameIndex(names)
    assert (name in found) == (name in {each.lower() for each in names})
    assert len(found) == len({each.lower() for each in names})
    assert name not in found or found.get_spelling(name).lower() == name
    assert 7 not in found


def test_of_a_hundred_thousand_names_few_are_looked_at() -> None:
    letters = "abcdefghijklmnopqrst"
    names = NameIndex(
        f"{a}{b}{c}kite{d}{b}{a}" for a in letters for b in letters for c in letters for d in letters[:13]
    )
    assert len(names) > 100_000
    found = names.find_similar("abckitedba")
    assert {"abckiteaba", "abakitedba", "abckitedba"} <= found
    assert "bbckitedbb" not in found
    assert len(found) < 2_000


def test_names_without_their_entries_are_enough_to_warn() -> None:
    document = read_document("Scheme name: kites2\n\nStatus: provisional\n")
    report = check(document, known=ReferenceData(names=NameIndex(["kitesz", "kitess"])))
    codes = {each.code: each.message for each in report.findings}
    assert "kitesz" in codes["name-looks-alike"]
    assert "kitess" in codes["name-near"]
    assert "name-taken" not in codes
