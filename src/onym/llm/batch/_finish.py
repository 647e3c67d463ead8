"""From a journal to an output: in the order of the input, in bounded memory, there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from onym.llm.batch._files import fresh, sync_folder
from onym.llm.batch._journal import read_lines
from onym.llm.batch._results import index_of
from onym.llm.batch._sort import sorted_lines

__all__ = ["finish", "is_parquet"]


def is_parquet(path: Path) -> bool:
    """Whether a file of this name is Parquet."""
    return path.suffix.lower() == ".parquet"


def finish(journal: Path, output: Path, *, ordered: bool) -> None:
    """Make the output of a sound journal, and drop the journal once the output is durable. Raises OSError."""
    lines: Iterable[bytes] = read_lines(journal)
    if ordered:
        lines = sorted_lines(lines, output.parent, key=index_of)
    part = output.with_name(output.name + ".part")
    with fresh(part) as out:
        if is_parquet(output):
            from onym.llm.batch._parquet import write_results  # pyarrow is an extra, and large

            write_results(lines, out)
        else:
            out.writelines(lines)
        out.flush()
        os.fsync(out.fileno())
    part.replace(output)
    sync_folder(output.parent)
    journal.unlink(missing_ok=True)
