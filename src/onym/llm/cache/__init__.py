"""The response cache: with `cache=true`, an answer that was given once is not asked, or paid, for again.

    with onym.connect("llm://openai/gpt-5-mini?cache=true") as client:
        client.chat("Hello")  # asked
        client.chat("Hello")  # from the cache, in this process or any later one

Answers lie in one SQLite file in the user's cache folder, bounded by size and age. `ONYM_CACHE_DIR`,
`ONYM_CACHE_SIZE` and `ONYM_CACHE_AGE` set them. Several processes may share it; who asks what another is
just asking waits for that answer.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from onym.errors import ConfigError, OnymWarning
from onym.llm.cache._flight import flights_of
from onym.llm.cache._key import name_of
from onym.llm.cache._steps import Question, adrive, drive, steps
from onym.llm.cache._store import Contents, Store
from onym.llm.cache._value import pack, unpack
from onym.llm.types import Completion, Embeddings

if TYPE_CHECKING:
    from onym.llm.flow import Opened
    from onym.llm.plan import Plan

__all__ = [
    "AGE_VARIABLE",
    "DIR_VARIABLE",
    "SIZE_VARIABLE",
    "CacheSettings",
    "Contents",
    "ResponseCache",
    "default_cache",
]

A = TypeVar("A", Completion, Embeddings)

DIR_VARIABLE: Final = "ONYM_CACHE_DIR"
SIZE_VARIABLE: Final = "ONYM_CACHE_SIZE"
AGE_VARIABLE: Final = "ONYM_CACHE_AGE"

_AMOUNT: Final = re.compile(r"([0-9]{1,15})\s*([A-Za-z]*)")
_SIZES: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip
_AGES: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Where the cache is, how large it may grow (octets) and how old an answer may be (seconds)."""

    folder: Path
    size: int = 256 * 2**20
    age: float = 7 * 86_400.0

    @classmethod
    def of(cls, environ: Mapping[str, str] | None = None) -> CacheSettings:
        """What the environment says, `os.environ` by default.

        Sizes are octets or "256MiB", "1GB"; ages are seconds or "90m", "12h", "7d", "2w". Raises ConfigError
        for anything else.
        """
        environ = os.environ if environ is None else environ
        given: dict[str, int] = {}
        if SIZE_VARIABLE in environ:
            given["size"] = _amount(environ[SIZE_VARIABLE], SIZE_VARIABLE, _SIZES, "500000, 256MiB or 1GB")
        if AGE_VARIABLE in environ:
            given["age"] = _amount(environ[AGE_VARIABLE], AGE_VARIABLE, _AGES, "3600, 90m, 12h or 7d")
        return cls(folder=_folder(environ), **given)


def _amount(text: str, name: str, units: Mapping[str, int], examples: str) -> int:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2].lower() not in units:
        raise ConfigError(
            f"the variable {name} is no amount", code="config.bad-amount", hint=f"write {examples}"
        )
    return int(found[1]) * units[found[2].lower()]


def _folder(environ: Mapping[str, str]) -> Path:
    named = environ.get(DIR_VARIABLE)
    if named:
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("onym", appauthor=False) / "responses"


class ResponseCache:
    """Answers by request. Threads, event loops and processes may share it; it is open from its first use.

    `clock` gives the date in seconds. What does not work - no room, no right to write, a file that is none -
    is told once as an OnymWarning, and calls are made as if there were no cache.
    """

    def __init__(self, settings: CacheSettings, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._store = Store(
            settings.folder, size=settings.size, age=settings.age, clock=clock, trouble=self._trouble
        )
        self._flights = flights_of(settings.folder)
        self._told = False

    def __repr__(self) -> str:
        return f"ResponseCache({str(self.settings.folder)!r})"

    def answer(self, plan: Plan, kind: type[A], call: Callable[[float], A]) -> A:
        """The answer to this plan, kept or by `call`, which gets the seconds that were spent waiting."""
        question = self._question(plan)
        if question is None:
            return call(0.0)
        return drive(steps(question, kind, self._store, self._flights), call)

    async def aanswer(self, plan: Plan, kind: type[A], call: Callable[[float], Awaitable[A]]) -> A:
        """`answer` for coroutines; the disk is another thread's."""
        import asyncio

        question = await asyncio.to_thread(self._question, plan)
        if question is None:
            return await call(0.0)
        return await adrive(steps(question, kind, self._store, self._flights), call)

    def replayed(self, plan: Plan) -> Opened | None:
        """A kept answer as a stream, None where there is none."""
        from onym.llm.cache._stream import replay

        question = self._question(plan)
        octets = None if question is None else self._store.get(question.key)
        answer = None if octets is None else unpack(octets, Completion)
        return None if answer is None else replay(answer)

    def recorded(self, plan: Plan, opened: Opened) -> Opened:
        """The same stream, kept when it has come to a good end."""
        from onym.llm.cache._stream import record

        return record(opened, plan.endpoint.model, partial(self.keep, plan))

    def keep(self, plan: Plan, answer: Completion | Embeddings) -> None:
        """Keep the answer to this plan."""
        question = self._question(plan)
        octets = None if question is None else pack(answer, question.secrets)
        if question is not None and octets is not None:
            self._store.put(question.key, octets)

    def contents(self) -> Contents:
        """How much there is. Makes nothing where there is no cache yet."""
        return self._store.contents()

    def clear(self) -> Contents:
        """Forget every answer, and say how much there was."""
        return self._store.clear()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._store.close()

    def _question(self, plan: Plan) -> Question | None:
        key = self._store.secret()
        if key is None:
            return None
        # half of the time is for waiting, so that a call of one's own still fits
        return Question(key=name_of(plan, key), patience=plan.timeout / 2, secrets=plan.endpoint.secrets)

    def _trouble(self, why: str) -> None:
        if not self._told:
            self._told = True
            text = f"the response cache in {self.settings.folder} does not work ({why}): calls are sent"
            warnings.warn(text, OnymWarning, stacklevel=2)


_KNOWN: dict[CacheSettings, ResponseCache] = {}


def default_cache(environ: Mapping[str, str] | None = None) -> ResponseCache:
    """The cache that the environment describes, one for the process. Raises ConfigError."""
    settings = CacheSettings.of(environ)
    return _KNOWN.setdefault(settings, ResponseCache(settings))
