"""The state machine of RFC 4395 and RFC 7595: pure functions over an append-only log.

`decide` answers one event; `allowed` says which events may be asked for; `due` which timers have gone
off; `rebuild` folds a log into the registry that it makes. `RULES` is the table itself.
"""

from __future__ import annotations

from onym.registry.engine._book import Book, rebuild
from onym.registry.engine._case import Rule
from onym.registry.engine._decide import RULES, allowed, decide, due, publication_refusal

__all__ = ["RULES", "Book", "Rule", "allowed", "decide", "due", "publication_refusal", "rebuild"]
