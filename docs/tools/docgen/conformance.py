"""docs/conformance/: a page for each document, from spec/requirements.toml and the tests that name it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from docgen.paths import ROOT
from docgen.text import GENERATED, cell, table

sys.path.insert(0, str(ROOT / "tests"))

from requirement_records import holders, records

__all__ = ["CONFORMANCE_PAGES", "conformance_index", "document_page"]

_PARTS = (
    (
        "llm",
        "The llm draft",
        "Every MUST, MUST NOT, SHOULD, SHOULD NOT and RECOMMENDED of draft-levy-llm-uri-scheme-00.",
    ),
    ("rfc3986", "RFC 3986", "It uses no key words; these are the rules that Onym implements."),
    ("rfc4395", "RFC 4395", "Every key word, and every step of its procedure."),
    ("rfc7595", "RFC 7595", "Every key word, and every step of its procedure."),
    ("rfc8126", "RFC 8126", "Designated Experts and appeals, as the registry has them."),
    (
        "ai",
        "The ai draft",
        "Every MUST, SHOULD, MAY and NEED NOT of draft-sogomonian-ai-uri-scheme-01, and its other demands.",
    ),
    (
        "onym",
        "Onym's own promises",
        "Reasons: [How Onym reads the llm draft](../explanation/decisions.md).",
    ),
)
_SHOWN = {
    "tested": "tested",
    "divergence": "**done otherwise**",
    "later": "**not yet**",
    "not-applicable": "not applicable",
}


#: the pages of single documents, as they are named in docs/conformance/
CONFORMANCE_PAGES = tuple(source for source, _, _ in _PARTS)


def conformance_index() -> str:
    """The overview: how many requirements each document has, and their state."""
    return "\n".join(
        [
            GENERATED,
            "# Conformance\n",
            (
                "These pages list every requirement of the specifications, what Onym does about it, and the "
                "tests that check it. A test fails if a requirement has no test, if a test names an unknown "
                "requirement, or if a quoted sentence is not in its source.\n"
            ),
            _summary(),
            "`onym conformance` answers the language-neutral cases of `vectors/`, one JSON a line.\n",
        ]
    )


def document_page(source: str) -> str:
    """The requirements of one document."""
    title, lead = next((title, lead) for name, title, lead in _PARTS if name == source)
    ours = [record for name, record in records().items() if name.startswith(f"{source}-")]
    return "\n".join([GENERATED, f"# {title}\n", f"{lead}\n", *_sections(ours)])


def _summary() -> str:
    rows = []
    for source, title, _ in _PARTS:
        count = Counter(r["status"] for name, r in records().items() if name.startswith(f"{source}-"))
        rows.append([f"[{title}]({source}.md)", *(str(count[status]) for status in _SHOWN)])
    return table(["source", *(each.strip("*") for each in _SHOWN.values())], rows)


def _sections(ours: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    last = None
    for record in ours:
        if record["section"] != last:
            last = record["section"]
            yield f"## {_heading(record)}\n"
        yield _clause(record)


def _heading(record: Mapping[str, Any]) -> str:
    section = str(record["section"])
    if section.startswith("A"):
        return f"Appendix {section}"
    return f"Section {section}" if section[0].isdigit() else section.capitalize()


def _clause(record: Mapping[str, Any]) -> str:
    name = record["id"]
    lines = [
        f'<a id="{name}"></a>**{name}** · {record["level"]} · {record["who"]} · {_SHOWN[record["status"]]}\n',
        f"> {cell(record['sentence'])}",
    ]
    if "part" in record and record["part"] != record["sentence"]:
        lines.append(f">\n> Here: {cell(record['part'])}")
    lines.append("")
    lines += [f"{record[key]}\n" for key in ("reason", "note") if key in record]
    lines += [f"- `{where}`" for where in holders().get(name, ())]
    return "\n".join(lines) + ("\n" if holders().get(name) else "")
