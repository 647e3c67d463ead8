"""The README is short, and `make run` ends as the pages and the recordings show."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
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


@cache
def make_run() -> list[str]:
    """The last lines of `make run`: the call, and the answer."""
    pulled_weights()
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
    return done.stdout.splitlines()[-2:]


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_make_run_ends_with_the_lines_that_the_landing_page_shows() -> None:
    shown = first_run(DOCS / "index.md").body
    assert commands(shown) == ["make run"]
    assert make_run() == shown.splitlines()[1:]


@as_subtests("suffix", ["", "-narrow"])
def test_make_run_ends_with_the_lines_of_its_recording(suffix: str) -> None:
    from record_terminal import FOLDER, LAYOUTS, read_last_lines, wrap_lines

    shown = read_last_lines((FOLDER / f"make-run{suffix}.svg").read_text(encoding="utf-8"))
    expected = wrap_lines("\n".join([*make_run(), "$"]), LAYOUTS[suffix].columns)
    assert shown[-len(expected) :] == expected, "run docs/tools/record_terminal.py make-run"
