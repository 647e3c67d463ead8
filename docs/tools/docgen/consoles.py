"""The console blocks of the documentation: their commands are run, and what they print is filled in.

A block is one shell session. Lines that begin with `$ ` are commands, `> ` continues one. Commands that
would reach a server on this machine reach the provider of the tests instead; the page keeps its own port.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docgen.examples import clean_environment
from onym.testing.fake_provider import FakeProvider

__all__ = ["Stage", "commands", "stage"]

_MARK = "\x1e"
#: begins the output of a command, and leaves $? as it is
_MARKED = r"{ left=$?; printf '\036'; (exit $left); }"
_LOCAL = re.compile(r"\b(localhost|127\.0\.0\.1):(\d+)")
_CALLS = re.compile(r"\bonym (?:chat|embed|models|ping)\b")
_VARIES = re.compile(r"\b\d+(?:\.\d+)? ?m?s\b")


class Stage:
    """One page's shell: a home of its own, an empty environment, a provider on loopback."""

    def __init__(self, home: Path, fake: FakeProvider) -> None:
        self._home = home
        self._fake = fake
        self._port = "11434"

    def write(self, name: str, body: str) -> None:
        """Put a file of the page into the home."""
        (self._home / name).write_text(self._led_here(body), encoding="utf-8")

    def run(self, body: str, answers: list[str]) -> str:
        """The block with its commands run and their output in place of the old one."""
        for answer in answers:
            self._fake.answer(answer)
        asked = commands(body)
        script = "".join(f"{_MARKED}\n{each}\n" for each in asked).replace("\n> ", "\n")
        if _CALLS.search(script):
            script = self._led_here(script)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._home,
            env=clean_environment(str(self._home)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        said = done.stdout.decode().split(_MARK)[1:]
        fresh = "".join(f"$ {each}\n{self._shown(out)}" for each, out in zip(asked, said, strict=True))
        return body if _VARIES.sub("#", fresh) == _VARIES.sub("#", body) else fresh

    def _led_here(self, text: str) -> str:
        def here(match: re.Match[str]) -> str:
            self._port = match[2]
            return f"{match[1]}:{self._fake.port}"

        return _LOCAL.sub(here, text)

    def _shown(self, output: str) -> str:
        output = re.sub(rf"\b{self._fake.port}\b", self._port, output).replace(str(self._home), "~")
        return output if output.endswith("\n") or not output else output + "\n"


def commands(body: str) -> list[str]:
    """The commands of a console block, continuation lines with them."""
    found: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif line.startswith("> ") and found:
            found[-1] += f"\n{line}"
    return found


@contextmanager
def stage() -> Iterator[Stage]:
    """A stage for one page."""
    with tempfile.TemporaryDirectory(prefix="onym-docs-") as home, FakeProvider() as fake:
        yield Stage(Path(home), fake)
