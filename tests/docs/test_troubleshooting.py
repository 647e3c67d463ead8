"""Every code on the page of troubleshooting is one that Onym raises or reports."""

from __future__ import annotations

import re

from docgen.paths import DOCS, ROOT

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
CODES = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)


def test_every_code_of_the_page_is_in_the_source() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "src" / "onym").rglob("*.py"))
    )
    # the reason of a refusal is added to `net.refused` when the error is made
    reasons = {code: code.removeprefix("net.refused.") for code in CODES}
    tables = "".join(
        (DOCS / "reference" / name).read_text(encoding="utf-8") for name in ("errors.md", "diagnostics.md")
    )
    missing = [
        code for code, reason in reasons.items() if f'"{reason}"' not in source and f"`{code}`" not in tables
    ]
    assert missing == []
    assert len(CODES) == len(set(CODES)) > 40
