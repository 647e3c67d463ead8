"""What the results of a batch are turned into: each row's line of the output, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from onym.errors import OnymError, ResponseTooLarge
from onym.llm.batch._done import Done
from onym.llm.batch._provider_ledger import Chunk
from onym.llm.batch._provider_rows import Labels
from onym.llm.batch._results import Result, answered, failed
from onym.llm.dialects import Exchange
from onym.llm.dialects._batch import Batch, BatchApi, Decode, not_asked
from onym.llm.types import Completion

__all__ = ["Intake", "Lines"]

#: octets of one line of the results
_LONGEST: Final = 64 * 1024 * 1024
#: more rows than any input has
_ENDLESS: Final = 1 << 62


class Lines:
    """Octets to lines, however they are cut. Blank lines are none."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that these octets complete; raises ResponseTooLarge."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = b"".join((*self._pending, end)).strip()
            self._pending, self._size = [], 0
            if line:
                yield line
        if rest:
            self._pending.append(rest)
            self._size += len(rest)
            if self._size > _LONGEST:
                raise ResponseTooLarge(
                    f"a line of the results is longer than {_LONGEST // 1024**2} MiB",
                    code="net.too-large.event",
                )

    def close(self) -> Iterator[bytes]:
        """The last line, if it has no end."""
        line = b"".join(self._pending).strip()
        self._pending = []
        if line:
            yield line


class Intake:
    """Takes lines of results, and gives a result for each row that waits for one.

    A row that has its result, one of another batch, and a name that nobody gave are passed over.
    """

    def __init__(
        self,
        labels: Labels,
        give: Callable[[Result], None],
        *,
        api: BatchApi,
        decode: Decode,
        exchange: Exchange,
    ) -> None:
        self._labels = labels
        self._give = give
        self._api = api
        self._decode = decode
        self._exchange = exchange
        self._given = Done(_ENDLESS)

    def take(self, chunk: Chunk, line: bytes) -> bool:
        """Take one line of this batch's results; False for one that is not whole."""
        answer = self._api.read(line, self._decode, self._exchange)
        if answer is None:
            return False
        index = chunk.index(answer.name)
        if index is not None and self._waits(index):
            self._answer(index, answer.outcome)
        return True

    def is_ours(self, chunk: Chunk, line: bytes) -> bool | None:
        """Whether a line is of this batch; None where it cannot be read."""
        answer = self._api.read(line, self._decode, self._exchange)
        return None if answer is None else chunk.index(answer.name) is not None

    def missing(self, chunk: Chunk) -> Iterator[int]:
        """The rows of a batch that wait for their result."""
        return (index for index in chunk.indexes() if self._waits(index))

    def lacks(self, chunk: Chunk) -> bool:
        """Whether a row waits."""
        return next(self.missing(chunk), None) is not None

    def give_up(self, chunk: Chunk, batch: Batch) -> Iterator[int]:
        """Give the rows that wait an error; what the provider says of a row goes first. Yields each."""
        ending = batch.ending or "completed"
        unasked = not_asked(ending, self._exchange)
        of_lines = {fault.line: fault.error for fault in batch.faults if fault.line is not None}
        of_all = [fault.error for fault in batch.faults if fault.line is None and ending == "failed"]
        for line, index in enumerate(chunk.indexes(), 1):
            if self._waits(index):
                self._answer(index, of_lines.get(line) or (of_all[0] if of_all else unasked))
                yield index

    def _waits(self, index: int) -> bool:
        return index in self._labels and index not in self._given

    def _answer(self, index: int, outcome: Completion | OnymError) -> None:
        self._given.add(index)
        label = self._labels.get(index)
        if isinstance(outcome, Completion):
            self._give(answered(index, label, outcome, 1))
            return
        asked = not outcome.code.startswith("provider.batch-")
        self._give(failed(index, label, outcome, int(asked), self._exchange.secrets))
