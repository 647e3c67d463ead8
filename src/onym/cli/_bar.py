"""Bars on a terminal's standard error: a batch with how fast, what it took, what failed; a plain count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onym.llm.batch import Progress

__all__ = ["bar", "counting", "figures"]


def figures(now: Progress) -> str:
    """The figures beside the bar, on one line."""
    left = now.seconds_left
    words = [
        f"{now.done}/{now.total}",
        f"{now.rate:.1f}/s",
        f"{_short(now.input_tokens)}+{_short(now.output_tokens)} tokens",
        f"{now.failed} failed",
        f"{now.flying}/{now.limit} at once",
        "" if left is None else f"{timedelta(seconds=round(left))} left",
        f"server asks for {now.pause:.0f} s" if now.pause >= 1 else "",
    ]
    return "  ".join(word for word in words if word)


def _short(count: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


@contextmanager
def bar() -> Iterator[Callable[[Progress], object]]:
    """A bar that follows what it is told."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    with Bars(BarColumn(), TextColumn("{task.fields[figures]}"), console=Console(stderr=True)) as bars:
        task = bars.add_task("", total=None, figures="reading the input")

        def watch(now: Progress) -> None:
            bars.update(task, total=now.total, completed=now.done, figures=figures(now))

        yield watch


@contextmanager
def counting(text: str, total: int) -> Iterator[Callable[[int], object]]:
    """A bar that counts up to `total`; what is yielded is told how many are done."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(escape(text), total=total)
        yield lambda done: bars.update(task, completed=done)
