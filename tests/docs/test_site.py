"""The pages hang together: links, pictures, navigation, and a strict build."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docgen.paths import DOCS, ROOT, pages

from support import as_subtests

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def in_nav(node: Any) -> Iterator[str]:
    """Every page that the navigation names."""
    if isinstance(node, str):
        yield node
    else:
        for child in node.values() if isinstance(node, dict) else node:
            yield from in_nav(child)


@as_subtests("page", [*pages(), *ROOT.glob("*.md")], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_and_picture_leads_to_a_file(page: Path) -> None:
    links = _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    near = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert not [link for link in near if not (page.parent / link).exists()]


def navigation() -> list[Any]:
    return list(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"])


def test_every_page_but_the_decision_records_is_in_the_navigation_once() -> None:
    files = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(in_nav(navigation())) == [name for name in files if not name.startswith("decisions/0")]


def test_a_reader_sees_at_most_15_entries_of_the_navigation_with_one_group_open() -> None:
    for tab in navigation():
        ((name, entries),) = tab.items()
        groups = [len(group) for entry in entries for group in entry.values() if not isinstance(group, str)]
        assert len(entries) + max(groups, default=0) <= 15, name


def test_every_decision_record_is_in_the_list_of_records() -> None:
    records = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    assert [name[:4] for name in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    listed = re.findall(
        r"\]\((\d{4}-[\w-]+\.md)\)", (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    )
    assert sorted(listed) == records


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_strict_build_passes_and_fails_on_a_broken_link_or_anchor(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the docs group is not installed")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    whole = build(tmp_path)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    page = tmp_path / "docs" / "index.md"
    before = page.read_text(encoding="utf-8")
    for broken in ("[x](nowhere.md)", "[x](install.md#nowhere)"):
        page.write_text(f"{before}\n{broken}\n", encoding="utf-8")
        assert build(tmp_path).returncode != 0
