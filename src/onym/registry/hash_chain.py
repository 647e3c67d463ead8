"""The hash chain of the log: each record holds the digest of the record before, so that every change shows.

The digest is SHA-256 over the canonical text of the record's JSON form (`codec.py`) without its own
`digest` member. Canonical text has keys sorted by code point, no white space, UTF-8 without escapes
beyond those that JSON requires, and finite numbers as Python writes them. It is close to RFC 8785 but
does not claim conformance.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

from onym.errors import StoreError
from onym.registry.codec import to_data
from onym.registry.records import Actor, Event, LogRecord

#: what the first record holds as `previous`
GENESIS: Final = "0" * 64


class ChainLink(Protocol):
    """What the next record needs of the one before: a LogRecord, or the head of a store."""

    @property
    def number(self) -> int:
        """Its number; the first record has 1."""

    @property
    def digest(self) -> str:
        """Its digest, in lower-case hex."""


def canonicalize_json(data: Any) -> str:
    """The canonical JSON text of a JSON value. Raises StoreError (registry.bad-record)."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"this value has no canonical JSON form ({type(error).__name__})",
            code="registry.bad-record",
            hint="Use strings, finite numbers, true, false, null, lists and objects with string keys.",
        ) from None
    return text


def compute_digest(record: LogRecord) -> str:
    """The digest that the record must have."""
    data = to_data(record)
    del data["digest"]
    return hashlib.sha256(canonicalize_json(data).encode()).hexdigest()


def seal_record(
    previous: ChainLink | None, *, at: datetime, actor: Actor, event: Event, rule: str, clause: str
) -> LogRecord:
    """The record that comes after `previous` (None: the first). Raises StoreError (registry.bad-record)."""
    record = LogRecord(
        number=1 if previous is None else previous.number + 1,
        at=at,
        actor=actor,
        event=event,
        rule=rule,
        clause=clause,
        previous=GENESIS if previous is None else previous.digest,
        digest="",
    )
    return replace(record, digest=compute_digest(record))


def verify_link(previous: ChainLink | None, record: LogRecord) -> None:
    """Is `record` the one after `previous`? Raises StoreError (registry.broken-chain) with its number."""
    number, digest = (0, GENESIS) if previous is None else (previous.number, previous.digest)
    if record.number != number + 1:
        raise _make_broken_chain_error(number + 1, f"the record after {number} has number {record.number}")
    if record.previous != digest:
        raise _make_broken_chain_error(
            record.number, f"record {record.number} does not contain the digest of the record before"
        )
    if record.digest != compute_digest(record):
        raise _make_broken_chain_error(record.number, f"record {record.number} does not match its digest")


def verify_chain(records: Iterable[LogRecord]) -> int:
    """Follow the chain from the first record; how many there are.

    Raises StoreError (registry.broken-chain); `field` is the number at which it breaks.
    """
    last: LogRecord | None = None
    for record in records:
        verify_link(last, record)
        last = record
    return 0 if last is None else last.number


def _make_broken_chain_error(number: int, message: str) -> StoreError:
    return StoreError(
        message,
        code="registry.broken-chain",
        field=str(number),
        hint="Another program changed the log. Restore a backup and keep this file as evidence.",
    )
