"""The README is short, and `make run` ends as it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from docgen.consoles import commands
from docgen.fences import Fence, fences
from docgen.paths import DOCS, ROOT

from model_support import pulled_weights
from support import as_subtests

README = ROOT / "README.md"


def first_run(page: Path) -> Fence:
    return next(
        fence for fence in fences(page.read_text(encoding="utf-8")) if fence.body.startswith("$ make run\n")
    )


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 130


@as_subtests("page", [README, DOCS / "index.md"], ids=lambda page: page.name)
def test_make_run_ends_with_the_lines_that_the_page_shows(page: Path) -> None:
    pulled_weights()
    shown = first_run(page).body.splitlines()
    assert commands(first_run(page).body) == ["make run"]
    # the tests' own environment stands for the one that make would install
    made = [
        "--old-file=.venv/.run",
        "--silent",
        f"BIN={Path(sys.executable).parent}",
        f"PYTHON={sys.executable}",
    ]
    done = subprocess.run(
        ["make", *made, "run"],
        cwd=ROOT,
        env=os.environ | {"MAKEFLAGS": ""},
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    assert done.stdout.splitlines()[-2:] == shown[1:]
