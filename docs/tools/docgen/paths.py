"""Where things lie in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "docs_src"


def pages() -> list[Path]:
    """Every page whose code is held by the tests: the documentation's, and the README."""
    return [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]
