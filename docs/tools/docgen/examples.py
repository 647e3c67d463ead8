"""The Python examples of the documentation: files that run, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from docgen.paths import EXAMPLES
from onym.testing.fake_provider import FakeProvider

__all__ = ["clean_environment", "example_files", "run_example"]

#: the port that a page shows for the provider of the tests
SHOWN_PORT = "11434"


def example_files() -> list[Path]:
    """Every example, in order of name."""
    return sorted(EXAMPLES.glob("*.py"))


@cache
def scripts() -> Mapping[str, Any]:
    """Example -> what the provider of the tests says in it; without an entry it repeats the prompt."""
    return tomllib.loads((EXAMPLES / "answers.toml").read_text(encoding="utf-8"))


@cache
def run_example(path: Path) -> str:
    """What `path` prints, in a process of its own, with LLM_URI leading to a provider of the tests.

    An example of what a page replaces (`before_*.py`) reaches the same provider through OPENAI_BASE_URL.

    Raises CalledProcessError when it fails, or warns.
    """
    script = scripts().get(path.stem, {})
    with FakeProvider() as fake, tempfile.TemporaryDirectory(prefix="onym-docs-") as home:
        for answer in script.get("answers", ()):
            (fake.fail if "status" in answer else fake.answer)(**answer)
        other = {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{fake.port}/v1",
            "OPENAI_API_KEY": "sk-made-up-0123456789",
        }
        # pydantic-ai's run_sync leaves its connection open: an example of it cannot close it
        lenient = ["-W", "ignore::ResourceWarning"] if path.stem.startswith("before_") else []
        done = subprocess.run(
            [sys.executable, "-W", "error", *lenient, str(path)],
            env=clean_environment(home)
            | {"LLM_URI": fake.uri("llama3")}
            | (other if path.stem.startswith("before_") else {})
            | script.get("environment", {}),
            cwd=home,
            stdout=subprocess.PIPE,
            timeout=120,
            check=True,
        )
        return re.sub(rf"\b{fake.port}\b", SHOWN_PORT, done.stdout.decode())


def clean_environment(home: str) -> dict[str, str]:
    """Nothing of this machine but the programs, and what measures coverage."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("COV")}
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
        "HOME": home,
        "XDG_CONFIG_HOME": home,
        # a missing file that the variable names is an error
        **({"ONYM_CONFIG": f"{home}/config.toml"} if Path(home, "config.toml").exists() else {}),
        "COLUMNS": "100",
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
    }
