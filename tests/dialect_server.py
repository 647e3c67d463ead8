"""A real server that says what a row of the table says, and what both clients make of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dialect_support import AT, CASES, JSON, KEY, REQUEST_ID
from onym.errors import NetError, ProviderError
from onym.llm.client import AsyncClient, Client, aconnect, connect
from onym.llm.config import Config
from onym.llm.dialects import Dialect, Exchange, get_dialect
from onym.llm.flow import Collector
from onym.llm.providers import ProviderTable
from onym.llm.types import Completion, Event, Finish, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from onym.net.messages import Headers
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider

__all__ = [
    "Outcome",
    "Served",
    "check_events",
    "check_sound",
    "decode",
    "headers",
    "paths",
    "with_value",
]


@dataclass(slots=True)
class Outcome:
    """Events, and what ended them: a good end, or an error."""

    events: list[Event] = field(default_factory=list)
    whole: Completion | None = None
    error: NetError | ProviderError | None = None

    def same(self) -> tuple[Any, ...]:
        """All that can be seen of it, to be compared; the server's own body is not in a stream."""
        whole = None if self.whole is None else replace(self.whole, raw={})
        if self.error is None:
            return self.events, whole, None
        error = self.error
        told = type(error), str(error), error.as_dict(), getattr(error, "usage", None), error.partial
        return self.events, whole, told

    @property
    def failure(self) -> NetError | ProviderError:
        """The error that there has to be."""
        assert self.error is not None, f"no error, but {self.whole}"
        return self.error


def headers(media: str, **more: str) -> Headers:
    """Headers of an answer."""
    return Headers([("Content-Type", media), ("X-Request-Id", REQUEST_ID), *more.items()])


def decode(dialect: Dialect, media: str, pieces: Sequence[bytes], at: Exchange = AT) -> Outcome:
    """What the dialect's own decoder makes of a stream, as a client reads it."""
    decoder = dialect.stream_decoder(200, headers(media), at)
    out = Outcome()
    collector = Collector()
    try:
        for piece in pieces:
            out.events += decoder.feed(piece)
        out.events += decoder.close()
    except (NetError, ProviderError) as error:
        assert decoder.error is error  # noqa: PT017 - the stream's end, good or bad, is what is tested
        out.error = error
    for each in out.events:
        collector.add(each)
    assert collector.finished == (out.error is None)
    partial = collector.completion("m-1", decoder.usage)
    if out.error is None:
        out.whole = partial
    else:
        out.error.partial = partial
    return out


def check_sound(whole: Completion) -> None:
    """Every member is of its kind: nothing of the server's came through that the type does not promise."""
    texts = [whole.text, whole.model, whole.reasoning or ""]
    for call in whole.tool_calls:
        texts += [call.id, call.name, call.arguments]
    assert all(type(each) is str for each in texts)
    assert "".join(texts).encode() is not None  # no half a character
    assert whole.finish_reason in ("stop", "length", "tool_calls", "content_filter", "other")
    assert whole.reasoning != ""
    for count in (getattr(whole.usage, name) for name in Usage.__slots__):
        assert count is None or (type(count) is int and count >= 0)
    assert whole.request_id is None or whole.request_id.isprintable()


def check_events(events: Sequence[Event]) -> None:
    """Kinds of events, and `Finish` once and last or never."""
    kinds = (TextDelta, ReasoningDelta, ToolCallDelta, Finish)
    assert all(type(each) in kinds for each in events)
    assert not any(type(each) is Finish for each in events[:-1])


# ---------- data with something else in one place


def paths(data: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all that the data holds."""
    found = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list) else ()
    for name, value in found:
        yield (*before, name)
        yield from paths(value, (*before, name))


def with_value(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The data with another value in that place; nothing is changed in the data itself."""
    if not path:
        return value
    first, *rest = path
    copy = dict(data) if isinstance(data, Mapping) else list(data)
    copy[first] = with_value(data[first], tuple(rest), value)
    return copy


# ---------- a real server, and both clients


class Served:
    """A dialect's server on loopback, and clients of both kinds that take it for the row's own host."""

    def __init__(self, dialect: str, *, key: str = KEY, retries: int = 0) -> None:
        self.case = case = CASES[dialect]
        self.dialect = get_dialect(dialect)
        self.fake = FakeProvider()
        self._runner = asyncio.Runner()
        self.table = ProviderTable.builtin().register(
            replace(
                ProviderTable.builtin().get(case.row),
                name="served",
                aliases=(),
                hosts=("127.0.0.1",),
                host_suffixes=(),
                default_port=self.fake.port,
                first_labels={},
            )
        )
        query = "&".join(filter(None, (case.query, f"retries={retries}")))
        self.uri = f"llm://:{key}@127.0.0.1:{self.fake.port}/m-1?{query}"
        settings: dict[str, Any] = {
            "providers": self.table,
            "policy": Policy.local(),
            "config": Config(),
            "environ": {},
        }
        self.client: Client = connect(self.uri, **settings)
        self.aclient: AsyncClient = aconnect(self.uri, **settings)
        self.endpoint = f"llm://127.0.0.1:{self.fake.port}/m-1"

    def __enter__(self) -> Self:
        self.fake.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._runner.run(self.aclient.close())
        self._runner.close()
        self.fake.close()

    def chat(self, *pieces: bytes, media: str = JSON, status: int = 200, **how: Any) -> Outcome:
        """What both clients make of this answer, which is the same."""
        return self._both(self._chat, self._achat, *pieces, media=media, status=status, **how)

    def stream(self, *pieces: bytes, media: str | None = None, status: int = 200, **how: Any) -> Outcome:
        """What both clients make of this stream, which is the same."""
        media = self.case.media if media is None else media
        return self._both(self._stream, self._astream, *pieces, media=media, status=status, **how)

    def _both(
        self,
        call: Callable[[], Outcome],
        acall: Callable[[], Any],
        *pieces: bytes,
        media: str,
        status: int,
        more: Mapping[str, str] | None = None,
        **how: Any,
    ) -> Outcome:
        told = {"content-type": media, "x-request-id": REQUEST_ID, **(more or {})}
        for _ in range(2):
            self.fake.raw(*pieces, status=status, headers=told, **how)
        one, two = call(), self._runner.run(acall())
        assert one.same() == two.same(), (one.same(), two.same())
        return one

    def _chat(self) -> Outcome:
        try:
            return Outcome(whole=self.client.chat("Hi"))
        except (NetError, ProviderError) as error:
            return Outcome(error=error)

    async def _achat(self) -> Outcome:
        try:
            return Outcome(whole=await self.aclient.chat("Hi"))
        except (NetError, ProviderError) as error:
            return Outcome(error=error)

    def _stream(self) -> Outcome:
        out = Outcome()
        try:
            with self.client.stream("Hi") as stream:
                for each in stream:
                    out.events.append(each)
                out.whole = stream.completion()
        except (NetError, ProviderError) as error:
            out.error = error
        return out

    async def _astream(self) -> Outcome:
        out = Outcome()
        try:
            async with self.aclient.stream("Hi") as stream:
                async for each in stream:
                    out.events.append(each)
                out.whole = await stream.completion()
        except (NetError, ProviderError) as error:
            out.error = error
        return out
