"""One process that checks long texts, as the service holds it: its orders, its answers, its end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from onym import errors
from onym.errors import OnymError, RegistryError
from onym.registry.checks.report import Finding, Level, Report
from onym.registry.codec import to_data

if TYPE_CHECKING:
    from onym.registry.checks import Known
    from onym.registry.checks.near import Names
    from onym.server.registry.checking import Given

__all__ = ["Child"]


class Child:
    """A process of `_check_child`. Each answer must come within `seconds`; else the process is ended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        #: the names that it was told last
        self._names: Names | None = None

    @property
    def alive(self) -> bool:
        """Can it be asked again?"""
        return self._process is not None and self._process.poll() is None

    def read(self, given: Given) -> tuple[str, ...]:
        """The names that the text asks for. Raises RegistryError."""
        plain = {each.name: getattr(given, each.name) for each in fields(given)}
        plain |= {"fields": dict(given.fields), "row": dict(given.row), "registry": None}
        return tuple(self._ask({"registry": given.registry.id, "given": plain})["asked"])

    def check(self, known: Known) -> Report:
        """The report over the text that was read last. Raises RegistryError."""
        told = known.names is self._names
        answer = self._ask(
            {
                "names": None if told else list(known.names or ()),
                "entries": {key: to_data(each) for key, each in known.entries.items()},
            }
        )
        self._names = known.names
        found = (Finding(**{**each, "level": Level(each["level"])}) for each in answer["findings"])
        return Report(
            source="submission",
            profile=answer["profile"],
            scheme=answer["scheme"],
            findings=tuple(found),
            ran=tuple(answer["ran"]),
        )

    def end(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None  # noqa: S101 - a pipe
                pipe.close()
        process.wait()

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process = self._process or _spawn()
        alarm = threading.Timer(self._seconds, process.kill)
        alarm.daemon = True
        alarm.start()
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        line = b""
        try:
            with suppress(BrokenPipeError):  # it died, which the answer shows
                process.stdin.write(json.dumps(order).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            alarm.cancel()
        if not line.endswith(b"\n"):
            self.end()
            raise RegistryError(
                "the check took too long, or too much memory",
                code="registry.check-too-long",
                field="template",
                hint="give a shorter text, or check it yourself: onym scheme check FILE",
            )
        return _good(json.loads(line))


def _good(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless it tells of an error: then that is raised."""
    if "failed" in answer:
        raise OnymError(f"the check failed: {answer['failed']}")
    if "refused" in answer:
        kind: type[RegistryError] = getattr(errors, answer["class"])
        said = answer["refused"]
        raise kind(
            said["message"], **{name: said[name] for name in said if name in {"code", "hint", *kind.fields}}
        )
    return answer


def _spawn() -> subprocess.Popen[bytes]:
    # its own session: Ctrl-C in the terminal is for us to act on; -P: nothing from the current folder
    command = [sys.executable, "-P", "-m", "onym.server.registry._check_child"]
    pipe = subprocess.PIPE
    # its complaints may quote what was handed in
    return subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
    )
