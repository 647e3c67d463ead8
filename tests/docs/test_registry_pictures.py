"""The pages that show the registry name every picture that the browser tests draw, and each is there."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest

from e2e.walk import PICTURES
from server.registry.test_pages_browser import NARROW
from server.registry.test_pages_browser import PICTURES as PAGES
from support import ROOT

HOW_TO = ROOT / "docs" / "how-to"
ASSETS = ROOT / "docs" / "assets"
#: page -> folder of its pictures, their names, and the width of each that is not 1280 wide
SHOWN: dict[str, tuple[str, Collection[str], dict[str, int]]] = {
    "registry-walk-through": ("registry", PICTURES, {"narrow": 380}),
    "registry-pages": ("registry-pages", PAGES, {"list-narrow": NARROW}),
}
#: octets of all pictures of a page, and the first of every PNG
MOST = 1_500_000
SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("page", SHOWN)
def test_the_page_shows_every_picture_in_words_too(page: str) -> None:
    folder, names, _ = SHOWN[page]
    text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
    shown = re.findall(rf"!\[([^\]]*)\]\(\.\./assets/{folder}/([a-z0-9-]+)\.png\)\n\n([^\n!#]+)", text)
    assert sorted(name for _, name, _ in shown) == sorted(names)
    assert text.count("![") == len(names)
    assert not [name for alt, name, said in shown if len(alt) < 20 or not said.strip()]


@pytest.mark.parametrize("page", SHOWN)
def test_every_picture_is_there_and_they_are_not_heavy(page: str) -> None:
    folder, names, narrow = SHOWN[page]
    assert sorted(path.stem for path in (ASSETS / folder).iterdir()) == sorted(names)
    found = {name: (ASSETS / folder / f"{name}.png").read_bytes() for name in names}
    assert all(picture.startswith(SIGNATURE) for picture in found.values())
    widths = {name: int.from_bytes(picture[16:20], "big") for name, picture in found.items()}
    assert widths == {name: narrow.get(name, 1280) for name in names}
    assert sum(map(len, found.values())) < MOST
