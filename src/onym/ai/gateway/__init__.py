"""The rules of an HTTPS gateway to ai names, without a server: what passes, is refused, is recorded.

`onym.server.gateway` is the gateway that follows them.
"""

from __future__ import annotations

from onym.ai.gateway.audit import Verdict, verify_lines
from onym.ai.gateway.guard import Head, check_head
from onym.ai.gateway.journal import Journal, mend, retain, rotate, verify_file
from onym.ai.gateway.problems import Refusal, refusal_of

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
