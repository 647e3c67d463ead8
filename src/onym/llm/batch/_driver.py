"""One run: rows in, results into the journal, the output at its end. The caller of every other part."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onym.llm.batch._done import Done
from onym.llm.batch._journal import Found, Writer
from onym.llm.batch._report import BatchReport, Progress

if TYPE_CHECKING:
    from onym.llm.batch._engine import Engine
    from onym.llm.batch._results import Result

__all__ = ["Driver", "Limits"]

#: seconds between two looks at a run
_LOOK: Final = 0.2
#: results that may wait to be durable: what a power failure would have asked again
_UNDURABLE: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a run ends early: after `max_errors` rows that failed in this run (None for never)."""

    max_errors: int | None = None


class Driver:
    """The `Work` of a run: lazily read rows, a journal, figures. `watch` gets a `Progress` now and then."""

    def __init__(
        self,
        rows: Iterator[tuple[int, bytes]],
        done: Done,
        found: Found,
        limits: Limits,
        watch: Callable[[Progress], object] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stop = asyncio.Event()
        self.stopped: str | None = None
        self._rows = rows
        self._done = done
        self._found = found
        self._limits = limits
        self._watch = watch
        self._clock = clock
        self._began = clock()
        self._open: deque[Result] = deque()
        self.full = False
        self._room = asyncio.Event()
        self._calm = asyncio.Event()
        self._broken: OSError | None = None
        self._writer: Writer
        self._engine: Engine
        self._ok = self._failed = self._retries = self._input = self._output = 0

    def take(self) -> tuple[int, bytes] | None:
        """The next row that has no result yet."""
        if self.stop.is_set():
            return None
        for row in self._rows:
            if row[0] not in self._done:
                return row
        return None

    def give(self, result: Result) -> None:
        """To the journal with it; it counts once it is durable."""
        self._open.append(result)
        self._writer.put(result.line)
        if len(self._open) >= _UNDURABLE:
            self.full = True
            self._room.clear()
        if not result.ok:
            self._mind_errors()

    async def room(self) -> None:
        """Wait while too many results are not durable."""
        while self.full:
            await self._room.wait()

    async def settled(self) -> bool:
        """Wait until nothing waits to be durable; False where the disk failed."""
        while self._open and self._broken is None:
            self._calm.clear()
            await self._calm.wait()
        return self._broken is None

    async def run(self, engine: Engine, journal: Path) -> None:
        """Have the engine answer all rows. Raises what stops a run: OnymError, OSError of the journal."""
        loop = asyncio.get_running_loop()

        def told(count: int, error: OSError | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, and nobody counts any more
                loop.call_soon_threadsafe(self._durable, count, error)

        self._engine = engine
        self._writer = Writer(journal, told)
        looking = asyncio.create_task(self._look()) if self._watch is not None else None
        try:
            await engine.run(self)
        finally:
            if looking is not None:
                looking.cancel()
            # no await: a run that is cancelled twice writes what it has all the same
            self._writer.close()
        # what the writer said last comes with the next turn of the loop
        await asyncio.sleep(0)
        if self._watch is not None:
            self._watch(self.progress())
        if self._broken is not None:
            raise self._broken

    def progress(self) -> Progress:
        """The run at this moment."""
        before = self._found.ok + self._found.failed
        return Progress(
            total=self._done.total,
            done=before + self._ok + self._failed,
            failed=self._found.failed + self._failed,
            before=before,
            input_tokens=self._input,
            output_tokens=self._output,
            retries=self._retries,
            flying=self._engine.flying,
            limit=self._engine.limit,
            pause=self._engine.pause,
            seconds=self._clock() - self._began,
        )

    def report(self, output: Path) -> BatchReport:
        """The run at its end."""
        return BatchReport(
            rows=self._done.total,
            answered=self._found.ok + self._ok,
            failed=self._found.failed + self._failed,
            before=self._found.ok + self._found.failed,
            repaired=self._found.dropped,
            input_tokens=self._input,
            output_tokens=self._output,
            retries=self._retries,
            seconds=self._clock() - self._began,
            output=str(output),
            stopped=self.stopped,
        )

    def _durable(self, count: int, error: OSError | None) -> None:
        if error is not None:
            self._broken = error
            self.stop.set()
            self._make_room()
            self._calm.set()
            return
        for _ in range(count):
            result = self._open.popleft()
            self._done.add(result.row)
            self._retries += result.retries
            if result.ok:
                self._ok += 1
                self._input += result.input_tokens
                self._output += result.output_tokens
            else:
                self._failed += 1
        if self.full and len(self._open) < _UNDURABLE:
            self._make_room()
        if not self._open:
            self._calm.set()

    def _make_room(self) -> None:
        self.full = False
        self._room.set()

    def _mind_errors(self) -> None:
        most = self._limits.max_errors
        if most is not None:
            waiting = sum(not result.ok for result in self._open)
            if self._failed + waiting >= most:
                self.stopped = "max-errors"
                self.stop.set()

    async def _look(self) -> None:
        assert self._watch is not None  # noqa: S101
        while True:
            self._watch(self.progress())
            await asyncio.sleep(_LOOK)
