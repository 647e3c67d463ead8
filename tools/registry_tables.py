"""Write the tables that the registry ships, and those that flow down to lower floors; or check them.

    python tools/registry_tables.py            # write
    python tools/registry_tables.py --check    # 1 when a table differs from what it is made of

The registry of llm parameters is kept by hand in `registry/data/llm_parameters.json`; `uri/_registered.py`
is made of it, as `onym registry export -r llm-parameters --format tables` does. The snapshot of URI schemes
and the table of RFCs are made of the files beside the checkout (`../shared`); where these are absent, both
stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
DATA = ROOT / "src" / "onym" / "registry" / "data"
MERGED = SHARED / "data" / "iana" / "merged-uri-schemes-mid-2026.csv"
TEXTS = SHARED / "spec" / "rfc"

SCHEMES_ABOUT = {
    "registry": "uri-schemes",
    "vintage": "mid-2026",
    "source": (
        "merged from public copies of IANA's registry of URI schemes: github xurls and later finds (names), "
        "github eristocrates/ipa, 2026-02 to 2026-07 (status, CRI numbers), snapshots of 2024-04 and "
        "2022-11-18 (template, description; reference of 2022 alone, so empty for newer rows)"
    ),
    "note": "facts of a public registry, not a file of IANA's; it holds no mail addresses",
}
RFCS_ABOUT = {
    "source": (
        "text: the header of the RFC, or of the one that obsoletes it; cited: a row of the shipped registry "
        "of URI schemes cites it; known: the editors' knowledge, as are successors that no header here "
        "names; compared with a public copy of the RFC Editor's index of 2024-03-06, by which "
        "RFC 3265 and RFC 3490 were completed"
    ),
    "note": "no RFC index: absence says nothing, and an empty list of successors says nothing",
    "columns": ["number", "title", "obsoleted_by", "basis"],
}

#: what the editors know for certain: RFC and those that obsolete it
KNOWN = """
822 2822 | 821 2821 | 1521 2045 2046 2047 2048 2049 | 1590 2045 2046 2047 2048 2049 | 1738 4248 4266
1766 3066 3282 | 1866 2854 | 1883 2460 | 2044 2279 | 2048 4288 4289 | 2068 2616 | 2141 8141 | 2234 4234
2246 4346 | 2255 4510 4516 | 2279 3629 | 2326 7826 | 2368 6068 | 2373 3513 | 2434 5226 | 2445 5545
2459 3280 | 2460 8200 | 2543 3261 3262 3263 3264 3265 | 2616 7230 7231 7232 7233 7234 7235
2617 7235 7615 7616 7617 | 2806 3966 | 3265 6665 | 3490 5890 | 2821 5321 | 2822 5322 | 2898 8018 | 3023 7303
3066 4646 4647 | 3280 5280 | 3406 8141 | 3447 8017 | 3513 4291 | 3548 4648 | 4234 5234 | 4346 5246 | 4409 6409
4627 7159 | 4646 5646 | 5246 8446 | 5389 8489 | 5766 8656 | 5849 6749 | 6962 9162 | 7049 8949
7158 7159 | 7230 9110 9112 | 7540 9113 | 7807 9457
"""


def main(arguments: list[str]) -> int:
    """0 when every table is as it should be."""
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__)
        return 2
    stale = [path for path, text in tables() if not settle(path, text, check=check)]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not what tools/registry_tables.py makes")
    return 1 if stale else 0


def settle(path: Path, text: str, *, check: bool) -> bool:
    """Is the file as it should be? It is made so, unless it is only to be checked."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return True
    if check:
        return False
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")
    return True


def tables() -> Iterator[tuple[Path, str]]:
    """Every table that can be made here: its path and its text."""
    if MERGED.is_file():
        yield DATA / "uri_schemes.json", schemes()
    if MERGED.is_file() and TEXTS.is_dir():
        yield DATA / "rfcs.json", rfcs()
    yield ROOT / "src" / "onym" / "uri" / "_registered.py", registered()


def lines(about: dict[str, Any], **lists: Iterable[Any]) -> str:
    """JSON with one row a line, so that a change shows as one."""
    parts = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in about.items()]
    for name, rows in lists.items():
        body = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
        parts.append(f'"{name}": [\n{body}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def schemes() -> str:
    """The snapshot of URI schemes."""
    from onym.registry.iana import get_cell, read_snapshot

    snapshot = read_snapshot(MERGED.read_bytes(), source=MERGED.name)
    rows = [
        [str(each.status) if name == "status" else get_cell(each, name) for name in snapshot.columns]
        for each in snapshot.entries
    ]
    irregular = [[each.name, each.code, each.reason, each.line] for each in snapshot.irregular]
    return lines({**SCHEMES_ABOUT, "columns": list(snapshot.columns)}, rows=rows, irregular=irregular)


def rfcs() -> str:
    """What is known of RFCs."""
    found: dict[int, list[Any]] = {}
    for path in sorted(TEXTS.glob("rfc*.txt")):
        number, title, obsoletes = header(path.read_text(encoding="utf-8-sig"))
        found.setdefault(number, [number, "", set(), "text"])[1] = title
        for old in obsoletes:
            found.setdefault(old, [old, "", set(), "text"])[2].add(number)
    for number in cited():
        found.setdefault(number, [number, "", set(), "cited"])
    for record in KNOWN.replace("\n", "|").split("|"):
        numbers = [int(each) for each in record.split()]
        if numbers:
            found.setdefault(numbers[0], [numbers[0], "", set(), "known"])[2].update(numbers[1:])
            for number in numbers[1:]:
                found.setdefault(number, [number, "", set(), "known"])
    rows = ([number, title, sorted(by), basis] for number, title, by, basis in found.values())
    return lines(RFCS_ABOUT, rows=sorted(rows))


def header(text: str) -> tuple[int, str, list[int]]:
    """Number, title and what it obsoletes, of the text of an RFC."""
    blocks = [block for block in re.split(r"\n\s*\n", text.strip("\ufeff\n \t")) if block.strip()]
    left = "\n".join(re.split(r" {3,}(?=\S)", line.rstrip())[0] for line in blocks[0].splitlines())
    number = re.search(r"^Request for Comments: (\d+)", left, re.MULTILINE)
    if number is None:
        raise ValueError(f"not an RFC: {blocks[0][:60]!r}")
    # the list may go on in the next line; authors stand to its right
    obsoletes = re.search(r"^Obsoletes:([\d, ]+).*((?:\n +[\d, ]+.*)*)", blocks[0], re.MULTILINE)
    rest = re.findall(r"\n([\d, ]+)", obsoletes[2]) if obsoletes else []
    olds = re.findall(r"\d+", " ".join((obsoletes[1], *rest))) if obsoletes else []
    return int(number[1]), " ".join(blocks[1].split()), [int(each) for each in olds]


def cited() -> list[int]:
    """The RFCs that rows of the shipped registry cite."""
    text = MERGED.read_text(encoding="utf-8")
    return sorted({int(each) for each in re.findall(r"\[RFC(\d+)", text)})


def registered() -> str:
    """The module of llm parameters that `onym.uri` imports."""
    from onym.registry.iana import load_builtin_snapshot, write_table

    return write_table(load_builtin_snapshot("llm-parameters").entries, registry="llm-parameters")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
