"""How much a replay store keeps, of whom, and as what: the same for ids in memory and in a file."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from onym.errors import ProvenanceError

__all__ = ["MOST", "before", "full", "hash_of", "is_full", "key_of"]

#: ids kept at one time: a receipt's for 180 seconds at most
MOST: Final = 1_000_000
#: an authority may have as many times what it leaves free: it must not lock out the others
_SHARE: Final = 3
#: this part of the room is for answers to what was asked already
_RESERVE: Final = 64
_LONGEST: Final = 1_024
_HASH: Final = 16


def key_of(identity: str) -> tuple[str, bytes]:
    """The anchor that an id begins with, on a line of its own ("" where there is none), and the id's hash."""
    if len(identity) > _LONGEST:
        raise ProvenanceError("the id of the receipt is too long", clause="AIIP/HTTPS v1 3.8 step 6")
    return identity.rpartition("\n")[0], hash_of(identity)


def hash_of(text: str) -> bytes:
    """What is kept of a text; b"" of none."""
    # JSON of a stranger may hold halves of characters
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH).digest() if text else b""


def before(most: int) -> int:
    """The part of the room that is for what is not asked yet."""
    return most - most // _RESERVE


def is_full(taken: int, own: int, most: int) -> bool:
    """Is there no room for one more, all in all or for this owner, who has `own` (0 for nobody's)?"""
    return taken >= most or (own > 0 and own >= _SHARE * (most - taken))


def full() -> ProvenanceError:
    """The error of a store without room."""
    return ProvenanceError(
        "no more receipts can be told apart just now",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="try again in some minutes, or allow more",
    )
