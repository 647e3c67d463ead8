"""The whole chain of a log, from its first record."""

from __future__ import annotations

from collections.abc import Sequence

from onym.registry.codec import verify_link
from onym.registry.records import LogRecord


def verify_chain(records: Sequence[LogRecord]) -> int:
    """Return the number of records. Raises StoreError at the first record that does not follow."""
    for previous, record in zip([None, *records], records, strict=False):
        verify_link(previous, record)
    return len(records)
