"""Order what the site's search finds: guides before references, and what is about Onym itself last.

    .venv/bin/python docs/tools/rank_search.py [site]

Zensical ranks a match in a title before one in the path of a page, and that before one in the text. It has no
setting for a page's rank, so this rewrites the index that it has built, site/search.json:

- a heading below a page's own in the reference and among the error codes is found by its text, which then
  begins with the heading
- of the changelog, the decision records and the conformance pages, a search finds titles and first sentences,
  as text, and the ids of requirements
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

#: begins a word that is shown and not found: no query begins with it
_HIDDEN = "\N{WORD JOINER}"
_REFERENCE = ("reference/", "troubleshooting/")
_LAST = ("changelog/", "conformance/", "decisions/")
#: characters of the text of a page that comes last
_EXCERPT = 200
_REQUIREMENT = re.compile(r"\b(?:llm|ai|rfc\d+|onym)-[\w.]+-[a-z]+\b")


def main(arguments: list[str]) -> int:
    """Rewrite the index of the built site."""
    path = Path(*arguments or ["site"]) / "search.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    index["items"] = ranked(index["items"])
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    return 0


def ranked(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as they are to be found; equal matches come in this order."""
    last = [_last(item) for item in items if item["location"].startswith(_LAST)]
    rest = [item for item in items if not item["location"].startswith(_LAST)]
    reference = [_by_text(item) for item in rest if item["location"].startswith(_REFERENCE)]
    guides = [item for item in rest if not item["location"].startswith(_REFERENCE)]
    return [*sorted(guides, key=lambda item: int(item["level"])), *reference, *last]


def _by_text(item: dict[str, Any]) -> dict[str, Any]:
    """The same item, found by its text instead of its title, unless it is a whole page."""
    if item["level"] == 1:
        return item
    return item | {"title": _hidden(item["title"]), "text": f"<p>{item['title']}</p> {item['text']}"}


def _last(item: dict[str, Any]) -> dict[str, Any]:
    plain = re.sub(r"<[^>]+>", "", item["text"])
    kept = f"{plain[:_EXCERPT].rpartition(' ')[0]} {' '.join(_REQUIREMENT.findall(plain))}"
    found = item | {"level": 2, "text": kept, "path": [_hidden(step) for step in item["path"]]}
    return _by_text(found)


def _hidden(title: str) -> str:
    """A title that looks the same; no word of it is found."""
    return re.sub(r"(<[^>]+>)|([^\W_]+)", lambda word: word[1] or _HIDDEN + word[2], title)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
