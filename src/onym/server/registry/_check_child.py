"""The process that reads and checks long texts: one JSON line in, one out, until its input ends.

Strangers choose the texts. Here they cannot hold up the service: whoever started this process ends it when
it takes too long, and its memory is capped.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onym.errors import RegistryError
from onym.registry.checks.known import builtin
from onym.registry.checks.near import Names
from onym.registry.codec import from_data
from onym.registry.records import Entry
from onym.registry.registries import registry
from onym.server.registry.checking import Given, asked_of, examined, read_given

if TYPE_CHECKING:
    from onym.server.registry.checking import Submission

__all__ = ["main"]

#: octets of memory
_MEMORY: Final = 1536 * 1024 * 1024
#: how much more politely than the service it asks for the processor
_NICE: Final = 10


def main() -> None:
    """Answer orders until standard input ends: a text to read, then what is known of the names in it."""
    _confine()
    work = _Work()
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(work.answer(json.loads(line)), separators=(",", ":")) + "\n")
        sys.stdout.flush()


class _Work:
    """One check under way, and the names that were told last."""

    def __init__(self) -> None:
        self._submission: Submission | None = None
        self._names = Names(())

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """What an order comes to: names, a report, or why there is none."""
        try:
            return self._read(order) if "given" in order else self._check(order)
        except RegistryError as error:
            return {"class": type(error).__name__, "refused": error.as_dict()}
        except Exception as error:  # noqa: BLE001 - its text may quote what was handed in
            return {"failed": type(error).__name__}

    def _read(self, order: dict[str, Any]) -> dict[str, Any]:
        given = Given(**{**order["given"], "registry": registry(order["registry"])})
        self._submission = read_given(given)
        return {"asked": asked_of(self._submission)}

    def _check(self, order: dict[str, Any]) -> dict[str, Any]:
        if order["names"] is not None:
            self._names = Names(order["names"])
        assert self._submission is not None  # noqa: S101 - the text comes first
        entries = {key: from_data(Entry, each) for key, each in order["entries"].items()}
        known = builtin().with_entries(MappingProxyType(entries), self._names)
        report = examined(self._submission, known)
        return {
            "profile": report.profile,
            "scheme": report.scheme,
            "ran": report.ran,
            "findings": [each.as_dict() for each in report.findings],
        }


def _confine() -> None:
    with suppress(OSError, AttributeError):
        os.nice(_NICE)
    try:
        import resource  # Windows has none
    except ImportError:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


if __name__ == "__main__":
    main()
