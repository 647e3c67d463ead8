"""The beginning of a run: whose results these are, what a former run has left, what remains to be asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from onym.errors import UsageError
from onym.llm.batch._binding import Binding, Bound, digest, refuse_other
from onym.llm.batch._done import Done
from onym.llm.batch._files import touch
from onym.llm.batch._finish import is_parquet
from onym.llm.batch._journal import Found, repair
from onym.llm.batch._provider_ledger import ledger_path, refuse_open
from onym.llm.batch._source import Source, opened
from onym.llm.batch._unique import count_rows

if TYPE_CHECKING:
    from onym.llm.batch._job import Job

__all__ = ["Begun", "begin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Where a run stands at its beginning. `finished` says that the output is there, whole."""

    source: Source
    output: Path
    journal: Path
    done: Done
    found: Found
    finished: bool = False

    @property
    def left(self) -> int:
        """Rows without a result."""
        return self.done.total - len(self.done)


@contextmanager
def begin(
    job: Job,
    given: Path | IO[bytes],
    output: Path,
    *,
    order: str,
    restart: bool,
    retry_errors: bool,
    batches: bool = False,
) -> Iterator[Begun]:
    """Lock the output, check that former results fit, mend their journal. Raises UsageError or OSError.

    `batches` says that this run goes on with batches which a former one left at the provider.
    """
    output = output.resolve()
    if output.exists() and not output.is_file():
        raise UsageError(f"{output} is no file", code="usage.output-file")
    if isinstance(given, Path) and given.resolve() == output:
        raise UsageError("input and output are the same file", code="usage.output-file")
    if is_parquet(output):
        from onym.llm.batch._parquet import require  # pyarrow is an extra: say so before anything is paid

        require()
    direct = order == "completion" and not is_parquet(output)
    journal = output if direct else output.with_name(output.name + ".journal")
    bound = Bound(output)
    try:
        with opened(given, output.parent) as source:
            wanted = Binding(
                endpoint=job.text, settings=digest(job.settings()), input=source.fingerprint, order=order
            )
            former = None if restart else bound.read()
            if former is None or not batches:
                refuse_open(output)
            if restart:
                for path in (journal, output, ledger_path(output)):
                    path.unlink(missing_ok=True)
            if former is None:
                yield _anew(bound, wanted, source, output, journal)
            else:
                refuse_other(former, wanted)
                yield _again(source, output, journal, former.rows, retry_errors=retry_errors)
    finally:
        bound.close()


def _anew(bound: Bound, wanted: Binding, source: Source, output: Path, journal: Path) -> Begun:
    for path in (journal, output):
        if path.exists() and path.stat().st_size:
            raise UsageError(
                f"{path} is there already, and nothing says what it belongs to",
                code="usage.output-file",
                hint="choose another output, or --restart (restart=True) to throw it away",
            )
    rows = count_rows(source.rows(), output.parent)
    bound.write(msgspec.structs.replace(wanted, rows=rows))
    # an output that is its own journal is there from the start
    touch(journal)
    return Begun(source=source, output=output, journal=journal, done=Done(rows), found=Found())


def _again(source: Source, output: Path, journal: Path, rows: int, *, retry_errors: bool) -> Begun:
    """What is left of a former run, whatever ended it."""
    done = Done(rows)
    if not journal.exists() and output.exists():
        # that run came to its end: its output is the journal
        if not is_parquet(output):
            found = repair(output, done)
            if len(done) == rows and not (retry_errors and found.failed):
                return Begun(
                    source=source, output=output, journal=journal, done=done, found=found, finished=True
                )
            done = Done(rows)
            found = repair(output, done, into=journal, drop_failed=retry_errors)
            return Begun(source=source, output=output, journal=journal, done=done, found=found)
        from onym.llm.batch._parquet import restore  # pyarrow is an extra, and large

        restore(output, journal)
    touch(journal)
    found = repair(journal, done, drop_failed=retry_errors)
    return Begun(source=source, output=output, journal=journal, done=done, found=found)
