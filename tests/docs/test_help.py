"""What `--help` tells people to type works, and what they may set is documented."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from docgen.examples import clean_environment
from docgen.paths import DOCS, ROOT
from docgen.reference_cli import cli_page

#: those that neither send anything nor need a file or a key store of the reader's
_OFFLINE = re.compile(
    r"^ +((?:echo .+ \| )?onym (?:explain|parse|check|normalize|build|completions|conformance|config) ?.*?)"
    r"(?: {3,}\(.*\))?$",
    re.MULTILINE,
)
EXAMPLES = [example for example in _OFFLINE.findall(cli_page()) if ">" not in example and "jq" not in example]


def test_every_command_that_needs_no_network_has_an_example() -> None:
    shown = {re.search(r"onym (\w+)", example)[1] for example in EXAMPLES}  # type: ignore[index]  # it matched so
    assert shown >= {"explain", "parse", "check", "normalize", "build", "config", "conformance"}


@pytest.mark.parametrize("command", EXAMPLES)
def test_an_example_of_the_help_works_as_it_is_written(command: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[endpoints]\nfast = "llm://openai/gpt-5.4-mini"\n', encoding="utf-8"
    )
    (tmp_path / ".env").write_text("LLM_URI=llm://openai/gpt-5.4-mini\n", encoding="utf-8")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "app.yaml").write_text("model: llm://openai/gpt-5.4-mini\n", encoding="utf-8")
    if command == "onym config init":
        (tmp_path / "config.toml").unlink()
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=clean_environment(str(tmp_path)) | {"OPENAI_API_KEY": "sk-made-up-0123456789abcdef"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    # `check` is shown on a URI that it finds fault with
    assert done.returncode in ({0, 1} if " check " in command else {0}), done.stderr
    assert "sk-made-up" not in done.stdout + done.stderr


def test_every_variable_that_onym_reads_is_on_the_page_of_the_command_line() -> None:
    read = {
        name
        for path in (ROOT / "src" / "onym").rglob("*.py")
        for name in re.findall(r"\bONYM_[A-Z_]+\b", path.read_text(encoding="utf-8"))
    }
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert {name for name in read if f"`{name}" not in page and f"{name}=" not in page} <= {"ONYM_COMPLETE"}
