"""How many exchanges run at one time: in all, for one client, with one authority. Nobody waits in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from onym.errors import AIIPError

__all__ = ["Slots"]

_ALL: Final = ""


class Slots:
    """Counts what runs. The limits are numbers of exchanges."""

    def __init__(self, *, total: int, client: int, authority: int) -> None:
        self._limits = {"all": total, "client": client, "authority": authority}
        self._taken: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return self._taken["all", _ALL]

    @contextmanager
    def take(self, client: str, authority: str) -> Iterator[None]:
        """A place for one exchange. Raises AIIPError `aiip.unavailable` where there is none."""
        places = [("all", _ALL), ("client", client), ("authority", authority)]
        full = next((sort for sort, key in places if self._taken[sort, key] >= self._limits[sort]), None)
        if full is not None:
            raise AIIPError(
                "too much is going on at this moment",
                code="aiip.unavailable",
                retryable=True,
                hint="try again in a second",
            )
        self._taken.update(places)
        try:
            yield
        finally:
            self._taken.subtract(places)
            for place in places:
                if not self._taken[place]:
                    del self._taken[place]
