"""Draw the diagrams of the documentation: NAME.mmd becomes NAME.light.svg and NAME.dark.svg.

    .venv/bin/python docs/tools/draw_diagrams.py [NAME ...]

Mermaid draws in a headless Chromium. The pictures are kept in the repository, so that a page loads no script
for them; each holds the hash of its source, which a test compares.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from docgen.diagrams import DIAGRAMS, SVG_HEADER, THEMES, source_hash
from playwright.sync_api import Page, sync_playwright

MERMAID = Path(__file__).parents[2] / "tools" / "mermaid"
_DRAW = """async ([source, variables]) => {
  mermaid.initialize({
    startOnLoad: false, theme: "base", themeVariables: variables, fontFamily: variables.fontFamily,
    htmlLabels: false, deterministicIds: true,
    // a text that crosses a line has an edge in the colour of the page
    themeCSS: `text { font-size: 15px } .messageText { paint-order: stroke; stroke-width: 6px !important;
      stroke: ${variables.haloColor} !important }`,
    flowchart: {htmlLabels: false, curve: "linear", useMaxWidth: false, wrappingWidth: 150},
    sequence: {useMaxWidth: false, mirrorActors: false, width: 112, actorMargin: 40, wrap: true},
    state: {useMaxWidth: false},
  });
  return (await mermaid.render("diagram", source)).svg;
}"""


def draw_diagram(page: Page, source: str, variables: dict[str, str]) -> str:
    """Return the picture of one diagram, as SVG."""
    svg: str = page.evaluate(_DRAW, [source, variables])
    return svg


def main(names: list[str]) -> None:
    """Draw the named diagrams, or all of them."""
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent", "--prefix", str(MERMAID)], check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.goto("about:blank")
        page.add_script_tag(path=str(MERMAID / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"))
        for path in sorted(DIAGRAMS.glob("*.mmd")):
            if names and path.stem not in names:
                continue
            source = path.read_text(encoding="utf-8")
            for theme, variables in THEMES.items():
                svg = draw_diagram(page, source, variables)
                target = path.with_suffix(f".{theme}.svg")
                header = SVG_HEADER.format(source=path.name, hash=source_hash(source))
                target.write_text(f"{header}\n{svg}\n", encoding="utf-8")
                print("drew", target.name)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
