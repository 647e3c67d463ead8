"""What an endpoint takes and gives at most."""

from __future__ import annotations

from dataclasses import dataclass

from onym.errors import UsageError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Caps of one endpoint. Sizes are octets, times seconds.

    `concurrent` counts invocations that run, streams until they end; `share` those of them that one caller
    may have (a client with a token, else a network address), where it is None half of `concurrent` or of
    `threads`, whichever is less; `threads` those that are plain functions and are at work at one time. One
    that is out of its time keeps its thread until it returns; it counts on where an idempotency key waits
    for its result, and else no more. `seconds` is for a whole
    result, `stream_seconds` for a streaming one. `depth` is that of arrays and objects in JSON. `keys` are
    the idempotency keys that one caller may use in 24 hours, `kept` the octets of answers kept under them,
    `kept_total` those of all callers.
    """

    body: int = 1024 * 1024
    answer: int = 16 * 1024 * 1024
    depth: int = 32
    concurrent: int = 128
    share: int | None = None
    threads: int = 128
    seconds: float = 60.0
    stream_seconds: float = 600.0
    stream_events: int = 100_000
    stream_bytes: int = 16 * 1024 * 1024
    event_bytes: int = 256 * 1024
    keys: int = 10_000
    kept: int = 64 * 1024 * 1024
    kept_total: int = 1024 * 1024 * 1024

    def __post_init__(self) -> None:
        if any((value := getattr(self, name)) is not None and value <= 0 for name in self.__slots__):
            raise UsageError("a limit is greater than zero")

    @property
    def of_one_caller(self) -> int:
        """Invocations that one caller may have at once."""
        # all of the threads in the hands of one caller would leave the others none
        return (min(self.concurrent, self.threads) + 1) // 2 if self.share is None else self.share
