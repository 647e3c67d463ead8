"""The response cache: with `cache=true`, Onym stores answers and reuses them.

    with onym.connect("llm://openai/gpt-5.4-mini?cache=true") as client:
        client.chat("Hello")  # sent
        client.chat("Hello")  # from the cache, in this process or a later one

Answers are in one SQLite file in the user's cache folder, limited by size and age. `ONYM_CACHE_DIR`,
`ONYM_CACHE_SIZE` and `ONYM_CACHE_AGE` configure it. Several processes can share it: if an identical request
is in progress, later callers wait for its answer.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from onym.errors import ConfigError, OnymWarning
from onym.llm.cache import _store as store
from onym.llm.cache._store import Contents
from onym.llm.dialects import NO_EXCHANGE
from onym.llm.dialects.streaming import WholeBodyDecoder
from onym.llm.flow import Collector, OpenedStream, attach_listener
from onym.llm.plan import encode_body
from onym.llm.request_headers import is_reserved
from onym.llm.types import Answer, Completion
from onym.net.messages import ConnectionInfo, Headers, Reply, Work
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.plan import Plan
    from onym.llm.types import Event
    from onym.net.messages import Flow

__all__ = [
    "AGE_VARIABLE",
    "DIR_VARIABLE",
    "REQUEST_KEY_LENGTH",
    "SIZE_VARIABLE",
    "CacheSettings",
    "Contents",
    "ResponseCache",
    "attach_recorder",
    "default_cache",
    "make_request_key",
    "replay_answer",
]

REQUEST_KEY_LENGTH: Final = 32
#: headers that do not change the answer, beside those that frame or authenticate the request
_IGNORED_HEADERS: Final = frozenset({"accept", "user-agent"})


def make_request_key(plan: Plan, key: bytes) -> bytes:
    """Return the cache key of this request, made with the store's random key.

    The credential is part of it as a keyed hash, so that two credentials share no answers. The label, version
    headers and every byte of the body are part of it too.
    """
    digest = blake2b(key=key, digest_size=REQUEST_KEY_LENGTH, person=b"onym-cache-name")
    for part in _iter_key_parts(plan, key):
        # with its length, so that different lists of parts have different bytes
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _iter_key_parts(plan: Plan, key: bytes) -> Iterator[bytes]:
    endpoint = plan.endpoint
    yield str(store.FORMAT).encode()
    yield plan.operation.encode()
    yield endpoint.dialect.name.encode()
    yield plan.method.encode()
    if endpoint.is_embedded:
        from onym.llm import embedded

        # port and key are new after every start
        yield b"embedded:" + endpoint.model.encode()
        yield embedded.get_file_identity(endpoint.model)
    else:
        yield str(plan.origin).encode()
        yield _hash_credential(endpoint.secrets, key)
    yield plan.target.encode()
    for name, value in _select_headers(plan, key):
        yield name
        yield value
    yield b"\0body"
    yield b"" if plan.body is None else encode_body(plan.body)


def _hash_credential(secrets: Iterable[Secret], key: bytes) -> bytes:
    digest = blake2b(key=key, digest_size=REQUEST_KEY_LENGTH, person=b"onym-cache-cred")
    for secret in secrets:
        content = secret.reveal().encode()
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.digest()


def _select_headers(plan: Plan, key: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers that may change the answer, a secret value as its hash.

    Those of the credential are not among them: it is part of the key itself, and some are new in every call.
    """
    own = plan.endpoint.provider.key_headers | _IGNORED_HEADERS
    return sorted(
        (
            name.lower().encode(),
            _hash_credential([value], key) if isinstance(value, Secret) else value.encode(),
        )
        for name, value in plan.headers
        if name.lower() not in own and not is_reserved(name)
    )


def replay_answer(answer: Completion) -> OpenedStream:
    """Return a stored answer as a stream: its reasoning, text, tool calls and end."""
    reply = Reply(200, Headers(), b"", cast("Any", _EmptyBody()), ConnectionInfo(address=""))
    return OpenedStream(reply, WholeBodyDecoder(lambda *_: answer, 200, reply.headers, NO_EXCHANGE))


def attach_recorder(opened: OpenedStream, model: str, keep: Callable[[Completion], object]) -> OpenedStream:
    """Return the same stream; `keep` gets the answer after the stream ended without error and was closed."""
    return attach_listener(opened, _StreamRecorder(model, keep))


class _StreamRecorder:
    """A listener that builds the answer of a stream."""

    __slots__ = ("_collector", "_keep", "_model")

    def __init__(self, model: str, keep: Callable[[Completion], object]) -> None:
        self._model = model
        self._keep = keep
        self._collector = Collector()

    def on_events(self, events: list[Event]) -> None:
        for event in events:
            self._collector.add(event)

    def on_close(self, error: BaseException | None) -> Callable[[], object] | None:
        if error is not None or not self._collector.finished:
            return None
        return partial(self._keep, self._collector.completion(self._model))


class _EmptyBody:
    """An empty body for sync and async readers."""

    __slots__ = ()

    def read(self) -> bytes:
        return b""

    async def aread(self) -> bytes:
        return b""

    def close(self, patience: float = 0) -> None:
        """Nothing is open."""

    async def aclose(self, patience: float = 0) -> None:
        """Nothing is open."""


A = TypeVar("A", bound=Answer)

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
    """The folder of the cache, its largest size (bytes) and the largest age of an answer (seconds)."""

    folder: Path
    size: int = 256 * 2**20
    age: float = 7 * 86_400.0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> CacheSettings:
        """Return the settings of the environment, by default `os.environ`.

        Sizes are bytes or "256MiB", "1GB"; ages are seconds or "90m", "12h", "7d", "2w". Raises ConfigError
        for other values.
        """
        environ = os.environ if environ is None else environ
        amounts: dict[str, int] = {}
        if SIZE_VARIABLE in environ:
            amounts["size"] = _parse_amount(environ, SIZE_VARIABLE, _SIZES, "500000, 256MiB or 1GB")
        if AGE_VARIABLE in environ:
            amounts["age"] = _parse_amount(environ, AGE_VARIABLE, _AGES, "3600, 90m, 12h or 7d")
        return cls(folder=_get_folder(environ), **amounts)


def _parse_amount(environ: Mapping[str, str], name: str, units: Mapping[str, int], examples: str) -> int:
    match = _AMOUNT.fullmatch(environ[name].strip())
    if match is None or match[2].lower() not in units:
        raise ConfigError(
            f"the value of {name} is not a number with a known unit",
            code="config.bad-amount",
            hint=f"Write {examples}.",
        )
    return int(match[1]) * units[match[2].lower()]


def _get_folder(environ: Mapping[str, str]) -> Path:
    named = environ.get(DIR_VARIABLE)
    if named:
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("onym", appauthor=False) / "responses"


class ResponseCache:
    """Answers by request. Threads, event loops and processes can share it; the first use opens it.

    `clock` returns the time in seconds. If the cache does not work (disk full, no write permission, damaged
    file), it emits one OnymWarning, and calls are sent as if there were no cache.
    """

    def __init__(self, settings: CacheSettings, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._store = store.AnswerStore(
            settings.folder, size=settings.size, age=settings.age, clock=clock, trouble=self._warn_once
        )
        self._pending_calls = store.get_pending_calls(settings.folder)
        self._warned = False

    def __repr__(self) -> str:
        return f"ResponseCache({str(self.settings.folder)!r})"

    def lookup_flow(self, plan: Plan, kind: type[A], call: Callable[[float], Flow[A]]) -> Flow[A]:
        """Return the cached answer to this plan, or that of `call`, which gets the seconds spent waiting."""
        lookup = yield Work(partial(self._make_lookup, plan))
        if lookup is None:
            return (yield from call(0.0))
        return (yield from store.lookup_flow(lookup, kind, self._store, self._pending_calls, call))

    def open_replay(self, plan: Plan) -> OpenedStream | None:
        """Return the cached answer as a stream, None if there is none."""
        lookup = self._make_lookup(plan)
        content = None if lookup is None else self._store.get(lookup.key)
        answer = None if content is None else store.decode_answer(content, Completion)
        return None if answer is None else replay_answer(answer)

    def record_stream(self, plan: Plan, opened: OpenedStream) -> OpenedStream:
        """Return the same stream, which is stored after it ended successfully."""
        return attach_recorder(opened, plan.endpoint.model, partial(self.store_answer, plan))

    def store_answer(self, plan: Plan, answer: Answer) -> None:
        """Store the answer to this plan."""
        lookup = self._make_lookup(plan)
        content = None if lookup is None else store.encode_answer(answer, lookup.secrets)
        if lookup is not None and content is not None:
            self._store.put(lookup.key, content)

    def contents(self) -> Contents:
        """Return the size of the cache. Creates no file if there is none."""
        return self._store.contents()

    def clear(self) -> Contents:
        """Remove all answers and return the size that the cache had."""
        return self._store.clear()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._store.close()

    def _make_lookup(self, plan: Plan) -> store.CacheLookup | None:
        key = self._store.load_key()
        if key is None:
            return None
        # waiting takes at most half of the timeout, so that there is time for the call
        return store.CacheLookup(
            key=make_request_key(plan, key), patience=plan.timeout / 2, secrets=plan.endpoint.secrets
        )

    def _warn_once(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            text = f"the response cache in {self.settings.folder} does not work ({why}): calls are sent"
            warnings.warn(text, OnymWarning, stacklevel=2)


_CACHES: dict[CacheSettings, ResponseCache] = {}


def default_cache(environ: Mapping[str, str] | None = None) -> ResponseCache:
    """Return the cache of the environment's settings, one for the process. Raises ConfigError."""
    settings = CacheSettings.from_environment(environ)
    return _CACHES.setdefault(settings, ResponseCache(settings))
