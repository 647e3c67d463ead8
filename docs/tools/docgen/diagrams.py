"""Where the diagrams are, in which colours they are drawn, and how a picture is tied to its source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from docgen.paths import DOCS

__all__ = ["DIAGRAMS", "SVG_HEADER", "THEMES", "source_hash"]

DIAGRAMS = DOCS / "assets" / "diagrams"
SVG_HEADER = "<!-- Drawn by docs/tools/draw_diagrams.py from {source}, sha256 {hash} -->"
_FONT = "system-ui, 'DejaVu Sans', sans-serif"
#: theme -> Mermaid's variables, and `haloColor`, the colour of the page, which is the background
THEMES: Mapping[str, dict[str, str]] = {
    "light": {
        "fontFamily": _FONT,
        "fontSize": "16px",
        "background": "transparent",
        "haloColor": "#ffffff",
        "primaryColor": "#e6f4f1",
        "primaryTextColor": "#1f2937",
        "primaryBorderColor": "#0f766e",
        "lineColor": "#4b5563",
        "textColor": "#1f2937",
        "edgeLabelBackground": "#ffffff",
        "noteBkgColor": "#fef3c7",
        "noteTextColor": "#1f2937",
        "actorBkg": "#e6f4f1",
        "actorTextColor": "#1f2937",
        "actorBorder": "#0f766e",
        "signalColor": "#374151",
        "signalTextColor": "#1f2937",
    },
    "dark": {
        "fontFamily": _FONT,
        "fontSize": "16px",
        "background": "transparent",
        "haloColor": "#0b0c0f",
        "darkMode": "true",
        "primaryColor": "#134e4a",
        "primaryTextColor": "#f3f4f6",
        "primaryBorderColor": "#5eead4",
        "lineColor": "#9ca3af",
        "textColor": "#f3f4f6",
        "edgeLabelBackground": "#111827",
        "noteBkgColor": "#78350f",
        "noteTextColor": "#f9fafb",
        "actorBkg": "#134e4a",
        "actorTextColor": "#f3f4f6",
        "actorBorder": "#5eead4",
        "signalColor": "#d1d5db",
        "signalTextColor": "#f3f4f6",
    },
}


def source_hash(source: str) -> str:
    """Return the hash that ties a picture to its source and to the colours."""
    return hashlib.sha256(f"{source}\n{THEMES}".encode()).hexdigest()
