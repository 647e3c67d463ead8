"""What all pictures share: colours that follow the reader's theme, and the frame of an SVG.

A picture has no background. A browser shows the dark colours if the page around the picture is dark: it
takes `prefers-color-scheme` from the `color-scheme` of the element that embeds the picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

__all__ = ["BLUE", "FAINT", "GREEN", "GREY", "INK", "ORANGE", "PINK", "RED", "TEAL", "VIOLET", "frame"]

#: name -> on a light page, on a dark one; each has a contrast of 4.5 or more
_COLOURS = {
    "ink": ("#374151", "#d1d5db"),
    "faint": ("#6b7280", "#9ca3af"),
    "grey": ("#4b5563", "#cbd5e1"),
    "blue": ("#1d4ed8", "#93c5fd"),
    "orange": ("#b45309", "#fdba74"),
    "violet": ("#7c3aed", "#c4b5fd"),
    "pink": ("#be185d", "#f9a8d4"),
    "green": ("#15803d", "#86efac"),
    "teal": ("#0f766e", "#5eead4"),
    "red": ("#b91c1c", "#fca5a5"),
}
INK, FAINT, GREY, BLUE, ORANGE, VIOLET, PINK, GREEN, TEAL, RED = (f"var(--{name})" for name in _COLOURS)


def frame(width: int, height: int, title: str, description: str, lines: Iterable[str]) -> str:
    """The picture, as SVG text. `description` says in words what it shows."""
    light, dark = (
        "".join(f"--{name}:{pair[number]};" for name, pair in _COLOURS.items()) for number in (0, 1)
    )
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                'role="img" aria-labelledby="title desc" '
                'font-family="ui-monospace, DejaVu Sans Mono, monospace">'
            ),
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(description)}</desc>',
            f"<style>svg{{{light}}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}</style>",
            *lines,
            "</svg>\n",
        ]
    )
