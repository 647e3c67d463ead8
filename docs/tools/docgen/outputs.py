"""Every generated text, by the path that it is written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from docgen.ai_picture import ai_picture
from docgen.changelog import changelog_page
from docgen.charts import chart_picture, charts
from docgen.config_schemas import SCHEMAS, encode_schema
from docgen.conformance import CONFORMANCE_PAGES, conformance_index, document_page
from docgen.drafts_checked import PAGE as DRAFTS_CHECKED
from docgen.drafts_checked import drafts_checked_page
from docgen.man_page import COMPLETIONS, completion_script, man_page
from docgen.pages import refreshed
from docgen.paths import DOCS, ROOT, pages
from docgen.picture import uri_picture
from docgen.reference_ai import ai_page
from docgen.reference_aiip import aiip_page
from docgen.reference_api import api_page
from docgen.reference_cli import cli_page, json_page
from docgen.reference_config import config_page
from docgen.reference_diagnostics import diagnostics_page
from docgen.reference_errors import errors_page, exit_codes_page
from docgen.reference_llm import parameters_page, providers_page
from docgen.reference_registry import checks_page, http_page, procedure_page, python_page
from docgen.reference_strings import strings_page
from docgen.requests_picture import requests_picture

__all__ = ["GENERATED_FILES", "fresh", "hand_written", "stale", "write_all"]

CLI_DATA = ROOT / "src" / "onym" / "cli" / "data"
#: path -> what writes the whole file
GENERATED_FILES: Mapping[Path, Callable[[], str]] = {
    **{DOCS / "assets" / "charts" / f"{name}.svg": partial(chart_picture, name) for name in charts()},
    **{
        DOCS / "assets" / f"{name}{suffix}.svg": partial(draw, narrow=bool(suffix))
        for name, draw in (
            ("ai-name", ai_picture),
            ("llm-uri", uri_picture),
            ("one-string", requests_picture),
        )
        for suffix in ("", "-narrow")
    },
    DOCS / "reference" / "ai-python.md": ai_page,
    DOCS / "reference" / "aiip.md": aiip_page,
    DOCS / "reference" / "api.md": api_page,
    DOCS / "reference" / "cli.md": cli_page,
    DOCS / "reference" / "config.md": config_page,
    DOCS / "reference" / "diagnostics.md": diagnostics_page,
    DOCS / "reference" / "errors.md": errors_page,
    DOCS / "reference" / "exit-codes.md": exit_codes_page,
    DOCS / "reference" / "cli-json.md": json_page,
    DOCS / "reference" / "parameters.md": parameters_page,
    DOCS / "reference" / "providers.md": providers_page,
    DOCS / "reference" / "llm-strings.md": strings_page,
    DOCS / "reference" / "registry-python.md": python_page,
    DOCS / "reference" / "registry-http.md": http_page,
    DOCS / "reference" / "registry-procedure.md": procedure_page,
    DOCS / "reference" / "scheme-checks.md": checks_page,
    DOCS / "conformance" / "index.md": conformance_index,
    **{DOCS / "conformance" / f"{name}.md": partial(document_page, name) for name in CONFORMANCE_PAGES},
    DOCS / "changelog.md": changelog_page,
    DRAFTS_CHECKED: drafts_checked_page,
    CLI_DATA / "onym.1": man_page,
    **{
        CLI_DATA / "completions" / file: partial(completion_script, shell)
        for shell, file in COMPLETIONS.items()
    },
    # on the site, and in the package for editors (`onym config schema`)
    **{DOCS / "schemas" / f"{name}.schema.json": partial(encode_schema, name) for name in SCHEMAS},
    **{CLI_DATA / "schemas" / f"{name}.schema.json": partial(encode_schema, name) for name in SCHEMAS},
}


def hand_written() -> list[Path]:
    """The pages that people write; only their backed blocks are filled in."""
    return [page for page in pages() if page not in GENERATED_FILES]


def fresh(path: Path) -> str:
    """What `path` should hold now."""
    if path in GENERATED_FILES:
        return GENERATED_FILES[path]()
    return refreshed(path.read_text(encoding="utf-8"))


def _changed() -> Iterator[tuple[Path, str]]:
    for path in (*GENERATED_FILES, *hand_written()):
        text = fresh(path)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield path, text


def stale() -> Iterator[str]:
    """The files that do not hold what they should."""
    for path, _ in _changed():
        yield path.relative_to(ROOT).as_posix()


def write_all() -> Iterator[str]:
    """Write what is stale; the names of what was written."""
    for path, text in _changed():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        yield path.relative_to(ROOT).as_posix()
