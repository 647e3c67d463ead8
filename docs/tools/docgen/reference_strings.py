"""docs/reference/llm-strings.md: where Onym differs from npm's `llm-strings`, and why."""

from __future__ import annotations

from collections.abc import Iterator

from docgen.llm_strings import Difference, data, differences, text_words
from docgen.llm_strings_reasons import why
from docgen.text import GENERATED, cell, code, prose, table
from onym.llm.providers import ProviderTable

__all__ = ["strings_page"]

_INTRO = (
    "The npm package `llm-strings` reads `llm://` strings in JavaScript. Onym knows its aliases for hosts, "
    "so its strings work in both. `onym convert --from llm-strings URI` rewrites a string with Onym's names, "
    "and prints a note for each change. This page compares Onym with version {version}, run on "
    "{read}.\n"
)
_SILENT = "These are aliases of the same hosts for images, video and speech, which have no chat API: "
_OUTCOMES = (
    "This table shows what both make of the same string: the host and its provider, the model, the "
    "parameters that would be sent (for llm-strings, the result of `normalize`), and the messages.\n"
)


def strings_page() -> str:
    """The page."""
    meta = data()["meta"]
    found = list(differences())
    examples = {each["name"]: each["uri"] for each in data()["examples"]}
    return "\n".join(
        [
            GENERATED,
            "# Beside llm-strings\n",
            _INTRO.format(version=meta["version"], read=meta["read"]),
            "## Aliases of hosts\n",
            table(("alias", "host", "API format"), _words()),
            f"{_SILENT}{', '.join(map(code, data()['media']))}.\n",
            "## Other hosts\n",
            _section(found, "host", "word"),
            "## Other names in the request\n",
            _section(found, "name", "provider and parameter"),
            "## Other ranges\n",
            _section(found, "range", "provider and parameter"),
            "## Words for parameters\n",
            _section(found, "word", "word"),
            "## Other outcomes\n",
            _OUTCOMES,
            table(
                ("string", "llm-strings", "Onym", "why"),
                [
                    [code(examples[each.subject]), cell(each.theirs), cell(each.ours), _why(each)]
                    for each in found
                    if each.kind == "outcome"
                ],
            ),
        ]
    )


def _words() -> Iterator[list[str]]:
    table = ProviderTable.builtin()
    for word in text_words():
        row = table.find_alias(word)
        if row is not None:
            yield [code(word), f"{code(row.host)} ([{row.name}](providers.md#{row.name}))", code(row.dialect)]


def _section(found: list[Difference], kind: str, what: str) -> str:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        if each.kind == kind:
            groups.setdefault((each.theirs, each.ours, _why(each)), []).append(code(each.subject))
    rows = [
        [", ".join(names), cell(there), cell(here), text] for (there, here, text), names in groups.items()
    ]
    return table((what, "llm-strings", "Onym", "why"), rows)


def _why(each: Difference) -> str:
    reason = why(each.kind, each.subject)
    return "-" if reason is None else prose(reason.text)
