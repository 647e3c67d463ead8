from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.cli._output import count_columns, escape_controls, point_at
from onym.common.text import escape_unprintable
from onym.uri.redact import redact

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


def under(text, start, end=None):
    """What stands above the carets."""
    pointed = point_at(text, start, end)
    first = pointed.carets.index("^")
    return pointed.text[first : len(pointed.carets)]


def test_carets_stand_under_the_span():
    assert under("llm://h/m?temp=9&x=1", 10, 16) == "temp=9"


def test_carets_after_a_masked_key_follow_what_is_shown():
    text = f"llm://app:{KEY}@h.example/m?temp=9"
    start = text.index("temp")
    assert point_at(text, start).text == "llm://app:***@h.example/m?temp=9"
    assert under(text, start, start + 4) == "temp"


def test_a_span_inside_a_secret_points_at_its_mark():
    text = f"llm://app:{KEY}@h.example/m"
    assert under(text, text.index("0123")) == "***"
    assert under(text, text.index(KEY), text.index(KEY) + len(KEY)) == "***"


def test_a_span_from_before_a_secret_into_it_ends_with_the_mark():
    text = f"llm://app:{KEY}@h.example/m"
    assert under(text, 6, text.index("0123")) == "app:***"


def test_a_span_that_ends_where_a_character_is_escaped_covers_the_escape():
    assert under("llm://h/m\x1b?x", 9, 10) == "\\x1b"


def test_a_place_at_the_end_gets_one_caret_after_the_text():
    assert point_at("llm://h", 7).carets == " " * 7 + "^"


def test_no_place_means_no_carets():
    assert point_at("llm://h/m", None) == ("llm://h/m", "")


def test_wide_characters_move_the_carets_by_two_columns():
    assert point_at("llm://例え/m?x", 11).carets == " " * 13 + "^"


def test_combining_marks_take_no_column():
    assert count_columns("e\u0301x") == 2


def test_a_long_text_is_cut_to_the_neighbourhood_of_the_place():
    text = "llm://h/m?x=" + "a" * 5000 + "%zz" + "b" * 5000
    place = text.index("%")
    pointed = point_at(text, place)
    assert len(pointed.text) < 200
    assert pointed.text[0] == pointed.text[-1] == "…"
    assert pointed.text[len(pointed.carets) - 1] == "%"


def test_a_long_text_without_a_place_is_cut_at_its_end():
    assert point_at("llm://h/" + "a" * 500, None).text.endswith("…")


def test_a_mark_that_was_there_before_stays_where_it_was():
    assert under("llm://app:***@h/m?temp=9", 18, 24) == "temp=9"


def test_text_that_cannot_be_aligned_is_shown_without_carets(monkeypatch):
    monkeypatch.setattr("onym.cli._output.redact", lambda text: "something *** else")
    assert point_at("llm://h/m", 3) == ("something *** else", "")


@given(
    st.text(st.sampled_from("llm://ap:@h.x?&=temp%19*é\u202e\x00 例"), max_size=40),
    st.integers(0, 41),
    st.integers(0, 41),
)
def test_pointing_never_fails_and_never_shows_more_than_redaction_does(text, start, end):
    pointed = point_at(text, min(start, len(text)), end)
    assert pointed.text == escape_unprintable(redact(text))
    assert pointed.carets.strip() == "^" * (len(pointed.carets) - pointed.carets.count(" "))
    assert pointed.text.isprintable()


@given(st.text())
def test_printable_text_is_printable(text):
    assert escape_unprintable(text).isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202e", "\\u202e"),
        ("\U000e0001", "\\U000e0001"),
        ("\ud800", "\\ud800"),
        ("bücher", "bücher"),
    ],
)
def test_what_does_not_print_is_shown_as_an_escape(text, shown):
    assert escape_unprintable(text) == shown


def test_an_answer_keeps_its_lines_and_loses_what_a_terminal_would_obey():
    assert (
        escape_controls("a\n\tb\x1b]52;c;eA==\x07\x9b1m👩\u200d💻")
        == "a\n\tb\\x1b]52;c;eA==\\x07\\x9b1m👩\u200d💻"
    )
