"""docs/changelog.md: CHANGELOG.md with the fragments of changelog.d, as towncrier would write them."""

from __future__ import annotations

import re
import subprocess
import sys

from docgen.paths import ROOT
from docgen.text import GENERATED

__all__ = ["changelog_page"]

_VERSION = "Not yet released"


def changelog_page() -> str:
    """The page."""
    whole = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    head, _, released = whole.partition("<!-- towncrier release notes start -->\n")
    return "\n".join([GENERATED, head.rstrip() + "\n", _next_release(), released]).rstrip() + "\n"


def _next_release() -> str:
    """The fragments as the next release's chapter, without a date."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", _VERSION, "--date", "-"]
    draft = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=120).stdout.decode()
    chapter = re.sub(r"\A.*?^## [^\n]*", f"## {_VERSION}", draft, flags=re.DOTALL | re.MULTILINE)
    # Python-Markdown wants what belongs to an item of a list indented by four, and an empty line after it
    chapter = re.sub(r"^ +", lambda indent: 2 * indent[0], chapter, flags=re.MULTILINE)
    return re.sub(r"^( .*\n)(?=- )", r"\1\n", chapter, flags=re.MULTILINE)
