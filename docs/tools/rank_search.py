"""Order what the site's search finds: guides before references, and what is about Onym itself last.

    .venv/bin/python docs/tools/rank_search.py [site]

Zensical ranks a match in a title before one in the path of a page, and that before one in the text; in each,
the match that is nearer to the beginning comes first. It has no setting for a page's rank, so this rewrites
the index that it has built, site/search.json:

- a heading below a page's own in the reference, among the error codes and on pages about how Onym was made is
  found by its text, which then begins with the heading, as if that were some lines further down
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
_REFERENCE = (
    "reference/",
    "troubleshooting/",
    "benchmarks/",
    "explanation/decisions/",
    "explanation/drafts-checked/",
    "how-to/release/",
)
_LAST = ("changelog/", "conformance/", "decisions/")
#: so many words that nobody sees or finds begin a text, which comes after others with the same words
_REFERENCE_DEPTH, _LAST_DEPTH, _EXCERPT_DEPTH = 20, 30, 600
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
        return item | {"text": _lowered(item["text"], _REFERENCE_DEPTH)}
    text = _lowered(f"<p>{item['title']}</p> {item['text']}", _REFERENCE_DEPTH)
    return item | {"title": _hidden(item["title"]), "text": text}


def _last(item: dict[str, Any]) -> dict[str, Any]:
    plain = re.sub(r"<[^>]+>", "", item["text"])
    excerpt = plain[:_EXCERPT].rpartition(" ")[0]
    kept = _lowered(f"{excerpt} {' '.join(_REQUIREMENT.findall(plain))}", _EXCERPT_DEPTH)
    path = [_hidden(step) for step in item["path"]]
    return item | {
        "level": 2,
        "title": _hidden(item["title"]),
        "text": _lowered(f"<p>{item['title']}</p> {kept}", _LAST_DEPTH),
        "path": path,
    }


def _lowered(text: str, words: int) -> str:
    """The text as if so many words stood before it."""
    return f"{_HIDDEN} " * words + text


def _hidden(title: str) -> str:
    """A title that looks the same; no word of it is found."""
    return re.sub(r"(<[^>]+>)|([^\W_]+)", lambda word: word[1] or _HIDDEN + word[2], title)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
