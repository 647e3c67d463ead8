"""The rules of an HTTPS gateway to ai names, without a server: what passes, is refused, is recorded.

`onym.server.gateway` is the gateway that follows them. The files of the audit log need a system with `fcntl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import lazily

if TYPE_CHECKING:
    from onym.ai.gateway.audit import Verdict, verify_lines
    from onym.ai.gateway.guard import Head, check_head
    from onym.ai.gateway.journal import Journal, mend, verify_file
    from onym.ai.gateway.problems import Refusal, refusal_of
    from onym.ai.gateway.rotation import retain, rotate

__all__ = [
    "Head",
    "Journal",
    "Refusal",
    "Verdict",
    "check_head",
    "mend",
    "refusal_of",
    "retain",
    "rotate",
    "verify_file",
    "verify_lines",
]

_HOMES = {
    "audit": ("Verdict", "verify_lines"),
    "guard": ("Head", "check_head"),
    "journal": ("Journal", "mend", "verify_file"),
    "problems": ("Refusal", "refusal_of"),
    "rotation": ("retain", "rotate"),
}

# late: telemetry takes one hash from here, also where there is no fcntl
__getattr__ = lazily(
    "onym.ai.gateway",
    {name: f"onym.ai.gateway.{home}" for home, names in _HOMES.items() for name in names},
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
