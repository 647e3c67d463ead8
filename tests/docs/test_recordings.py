"""Recordings of terminals end as the commands end now, are legible, and tell nothing of a computer."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from docgen.paths import pages
from record_terminal import (
    DATE,
    FOLDER,
    LAYOUTS,
    PAUSE,
    RECORDINGS,
    Output,
    read_last_lines,
    record_film,
    shorten_waits,
)

from onym import redact
from support import as_subtests

#: name of a file -> its text
PICTURES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.iterdir())}
SPACE = "{http://www.w3.org/2000/svg}"
ADVICE = "run docs/tools/record_terminal.py"


@as_subtests("suffix", LAYOUTS)
def test_the_recording_of_onym_check_ends_as_the_commands_end_now(suffix: str) -> None:
    film = record_film(RECORDINGS["check"], LAYOUTS[suffix], key_seconds=0)
    assert read_last_lines(PICTURES[f"check{suffix}"]) == film.last_lines(), ADVICE


def test_there_is_a_picture_of_each_session_in_each_width_and_a_page_shows_it_in_words_too() -> None:
    names = {f"{name}{suffix}" for name in RECORDINGS for suffix in LAYOUTS}
    assert set(PICTURES) == names
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())
    shown = re.findall(r"!\[([^\]]{40,})\]\([./]*assets/terminal/([\w-]+)\.svg\)\{ \.(wide|narrow) \}", text)
    assert {(name, kind) for _, name, kind in shown} == {
        (name, "narrow" if name.endswith("-narrow") else "wide") for name in names
    }


@as_subtests("name", PICTURES)
def test_a_recording_is_described_light_and_still_for_those_who_want_that(name: str) -> None:
    text = PICTURES[name]
    picture = ET.fromstring(text)
    assert picture.findtext(f"{SPACE}title")
    assert read_last_lines(text)[-1] in str(picture.findtext(f"{SPACE}desc"))
    assert len(text.encode()) < 100_000
    assert not re.search(r"<script|<image|<foreignObject|href=|url\(|@import", text)
    assert "@media (prefers-reduced-motion:reduce){.m{animation:none}}" in text
    assert "#still:target .m{animation:none!important}" in text
    seconds = re.search(r"\.m\{animation:([\d.]+)s step-end both\}", text)
    assert seconds is not None
    assert 4 <= float(seconds[1]) <= RECORDINGS[name.removesuffix("-narrow")].seconds


@as_subtests("name", PICTURES)
def test_a_recording_tells_no_folder_name_date_or_user_of_a_computer(name: str) -> None:
    said = "\n".join(ET.fromstring(PICTURES[name]).itertext())
    assert not re.search(r"/(?:bin|etc|home|mnt|opt|root|srv|tmp|Users|usr|var|work)\b", said)
    assert not re.search(r"\w@\w", said)
    assert set(re.findall(r"\b20\d\d-\d\d-\d\d\b", said)) <= {DATE.decode()}
    assert redact(said) == said


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@as_subtests("name", PICTURES)
def test_each_colour_of_a_text_has_a_contrast_of_at_least_4_5(name: str, theme: int) -> None:
    text = PICTURES[name]
    colours: dict[str, list[str]] = {}
    for variable, colour in re.findall(r"--([a-z]+):(#[0-9a-f]{6})", text):
        colours.setdefault(variable, []).append(colour)
    used = {"ink", *re.findall(r"\.c-\w+\{fill:var\(--([a-z]+)\)\}", text)} - {"edge"}
    assert len(used) > 5
    panel = luminance(colours["panel"][theme])
    for variable in used:
        lighter, darker = sorted((luminance(colours[variable][theme]), panel), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, variable


def luminance(colour: str) -> float:
    """By WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_long_waits_are_shortened_and_typing_is_not() -> None:
    seen = [
        Output(100.0, b"$ ", typed=False),
        Output(100.5, b"l", typed=True),
        Output(100.6, b"s", typed=True),
        Output(190.6, b"a", typed=False),
        Output(190.61, b"b", typed=False),
    ]
    assert [(round(output.seconds, 3), output.data) for output in shorten_waits(seen)] == [
        (0.0, b"$ "),
        (0.5, b"l"),
        (0.6, b"s"),
        (0.6 + PAUSE, b"ab"),
    ]
