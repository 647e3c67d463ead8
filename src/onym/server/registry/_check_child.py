"""The process that reads and checks long texts: it answers JSON lines until its input ends.

The texts are untrusted. The service ends this process if it takes too long, and its memory is limited.
"""

from __future__ import annotations

import json
import sys
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onym.common.platform import limit_process
from onym.errors import RegistryError
from onym.registry.checks.context import NameIndex, load_builtin
from onym.registry.codec import from_data
from onym.registry.definitions import build_next_catalog
from onym.registry.records import Entry, Request
from onym.registry.registries import BUILTIN, Catalog, enter_catalog, get_registry
from onym.registry.service import SubmissionInput, build_report, list_requested_names, parse_submission

if TYPE_CHECKING:
    from onym.registry.service import ParsedSubmission

__all__ = ["main"]

#: bytes of memory
_MAX_MEMORY: Final = 1536 * 1024 * 1024
#: the service has priority over this process
_NICENESS: Final = 10


def main() -> None:
    """Answer orders until standard input ends: parse a text, then check it."""
    limit_process(memory=_MAX_MEMORY, niceness=_NICENESS)
    work = _CheckSession()
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(work.handle_order(json.loads(line)), separators=(",", ":")) + "\n")
        sys.stdout.flush()


class _CheckSession:
    """The text that is being checked, and the registry's names."""

    def __init__(self) -> None:
        self._submission: ParsedSubmission | None = None
        self._names = NameIndex(())

    def handle_order(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the result of an order: names, a report or an error."""
        try:
            return self._parse_order(order) if "given" in order else self._check_order(order)
        except RegistryError as error:
            return {"class": type(error).__name__, "refused": error.as_dict()}
        except Exception as error:  # noqa: BLE001 - only the class: the message may quote the text
            return {"failed": type(error).__name__}

    def _parse_order(self, order: dict[str, Any]) -> dict[str, Any]:
        enter_catalog(load_catalog_of_order(order))
        given = SubmissionInput(**{**order["given"], "registry": get_registry(order["registry"])})
        self._submission = parse_submission(given)
        return {"asked": list_requested_names(self._submission)}

    def _check_order(self, order: dict[str, Any]) -> dict[str, Any]:
        if order["names"] is not None:
            self._names = NameIndex(order["names"])
        assert self._submission is not None  # noqa: S101 - the text comes first
        entries = {key: from_data(Entry, entry) for key, entry in order["entries"].items()}
        requests = {
            key: tuple(from_data(Request, request) for request in found)
            for key, found in order["requests"].items()
        }
        known = load_builtin(self._submission.given.registry.id).with_entries(
            MappingProxyType(entries), self._names, MappingProxyType(requests)
        )
        today = date.fromisoformat(order["today"])
        report = build_report(self._submission, known, today=today)
        return {
            "profile": report.profile,
            "scheme": report.scheme,
            "ran": report.ran,
            "findings": [finding.as_dict() for finding in report.findings],
        }


def load_catalog_of_order(order: dict[str, Any]) -> Catalog:
    """Return the rows in force in the service."""
    definition = order.get("definition")
    enter_catalog(BUILTIN)
    return BUILTIN if definition is None else build_next_catalog(definition)


if __name__ == "__main__":
    main()
