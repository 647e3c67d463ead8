"""What a run says of itself, while it goes and at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["BatchReport", "Progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A run at a moment. Rows count once their results are durable; tokens and seconds are of this run alone.

    `done` counts the rows that have a result, those of former runs (`before`) included; `failed` those of
    them that failed for good. `flying` requests are under way of the `limit` that are allowed at this moment;
    `pause` is for how many seconds the server wants to be left alone.
    """

    total: int
    done: int = 0
    failed: int = 0
    before: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    retries: int = 0
    flying: int = 0
    limit: int = 0
    pause: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Results per second of this run."""
        return (self.done - self.before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long it will take yet at this rate; None where nothing is known."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """How a run ended. Rows are those of the whole output, `before` of them from former runs.

    `answered` and `failed` together are the rows with a result; `repaired` lines of a former run were cut or
    damaged and their rows asked again. `stopped` says why rows are left: "max-errors", "cancelled", or None.
    """

    rows: int
    answered: int
    failed: int
    before: int
    repaired: int
    input_tokens: int
    output_tokens: int
    retries: int
    seconds: float
    output: str
    stopped: str | None = None

    @property
    def left(self) -> int:
        """Rows without a result."""
        return self.rows - self.answered - self.failed

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data; seconds are rounded to milliseconds."""
        out = {name: getattr(self, name) for name in self.__dataclass_fields__}
        out["seconds"] = round(self.seconds, 3)
        out["left"] = self.left
        return out
