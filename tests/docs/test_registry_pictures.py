"""The page that shows a registration names every picture that the walk draws, and each is there."""

from __future__ import annotations

import re

from e2e.walk import PICTURES
from support import ROOT

PAGE = ROOT / "docs" / "how-to" / "registry-walk-through.md"
FOLDER = ROOT / "docs" / "assets" / "registry"
#: octets of all pictures, and the first of every PNG
MOST = 1_500_000
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def test_the_page_shows_every_picture_in_words_too() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"!\[([^\]]*)\]\(\.\./assets/registry/([a-z0-9-]+)\.png\)\n\n([^\n!#]+)", text)
    assert sorted(name for _, name, _ in shown) == sorted(PICTURES)
    assert text.count("![") == len(PICTURES)
    assert not [name for alt, name, said in shown if len(alt) < 20 or not said.strip()]


def test_every_picture_is_there_and_they_are_not_heavy() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(PICTURES)
    found = {name: (FOLDER / f"{name}.png").read_bytes() for name in PICTURES}
    assert all(picture.startswith(SIGNATURE) for picture in found.values())
    widths = {name: int.from_bytes(picture[16:20], "big") for name, picture in found.items()}
    assert widths == {name: 380 if name == "narrow" else 1280 for name in PICTURES}
    assert sum(map(len, found.values())) < MOST
