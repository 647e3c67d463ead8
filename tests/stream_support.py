"""What tests of streams share: one is cut, read as a client reads it, and looked into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st

from onym.errors import MalformedResponseError, OnymError, ProviderError, ResponseTooLarge
from onym.llm.dialects import Decoder, Dialect, Exchange
from onym.llm.flow import Collector
from onym.llm.types import Completion, Event, Finish, ReasoningDelta, TextDelta, Usage
from onym.net.messages import Headers

__all__ = [
    "AT",
    "Ended",
    "any_cut",
    "check_capped",
    "check_failed",
    "check_malformed",
    "check_same",
    "check_silent_after_its_end",
    "check_texts",
    "decoder_for",
    "every_cut",
    "finish_of",
    "put_together",
    "read",
    "same",
    "texts",
    "texts_of",
    "thoughts_of",
]

AT = Exchange(endpoint="llm://host/m", model="asked")
#: events, and the error that ended them if one did
Ended: TypeAlias = tuple[list[Event], OnymError | None]
texts = st.text(st.characters(codec="utf-8"), max_size=8)


def read(decoder: Decoder, pieces: Iterable[bytes]) -> Ended:
    """Events and what ended the stream, as a client reads them."""
    events: list[Event] = []
    for piece in pieces:
        events += decoder.feed(piece)
    try:
        events += decoder.close()
    except OnymError as error:
        assert decoder.error is error  # noqa: PT017 - the stream's end, good or bad, is what is tested
        return events, error
    assert decoder.error is None
    return events, None


def decoder_for(dialect: Dialect, media: str | None) -> Decoder:
    """What a dialect reads an answer of this content type with."""
    headers = Headers([] if media is None else [("content-type", media)])
    return dialect.stream_decoder(200, headers, AT)


# cuts


def every_cut(data: bytes) -> Iterable[list[bytes]]:
    """Whole, octet by octet, and in two at each place."""
    yield [data]
    yield [data[index : index + 1] for index in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def any_cut(data: bytes, random: Random) -> list[bytes]:
    """In as many pieces as chance will have it."""
    pieces = []
    while data:
        at = random.randint(1, len(data))
        pieces.append(data[:at])
        data = data[at:]
    return pieces


def same(error: OnymError | None) -> Any:
    """What can be seen of an error, to be compared."""
    return None if error is None else (type(error), str(error), getattr(error, "usage", None))


def check_same(decode: Callable[[list[bytes]], Ended], cuts: Iterable[list[bytes]]) -> None:
    """However it is cut, a stream reads as it does in the first of these cuts."""
    first, *others = cuts
    events, error = decode(first)
    for pieces in others:
        found, ending = decode(pieces)
        assert (found, same(ending)) == (events, same(error))


# events


def texts_of(events: Iterable[Event]) -> list[str]:
    return [each.text for each in events if isinstance(each, TextDelta)]


def thoughts_of(events: Iterable[Event]) -> list[str]:
    return [each.text for each in events if isinstance(each, ReasoningDelta)]


def finish_of(events: list[Event]) -> Finish:
    """The last event, which has to be one that says why the answer ended."""
    last = events[-1]
    assert isinstance(last, Finish)
    return last


def put_together(events: Iterable[Event]) -> Completion:
    """The answer that the events of a stream make up."""
    whole = Collector()
    for each in events:
        whole.add(each)
    return whole.completion()


# ends


def check_failed(error: OnymError | None, kind: type[ProviderError], usage: Usage) -> None:
    """The server's error is of this class, and says where it was and what it cost."""
    assert type(error) is kind
    assert isinstance(error, ProviderError)
    assert error.usage == usage
    assert (error.request_id, error.endpoint, error.status) == ("r", "llm://host/m", 200)


def check_texts(ended: Ended, texts: Iterable[str]) -> None:
    """It ended well, and said these texts; an empty one is not said."""
    events, error = ended
    assert error is None
    assert texts_of(events) == [text for text in texts if text]


def check_malformed(ended: Ended) -> None:
    """What ended it is that it was no answer, and the error says whose."""
    _, error = ended
    assert type(error) is MalformedResponseError
    assert (error.status, error.request_id, error.endpoint) == (200, "r", "llm://host/m")


def check_capped(decoder: Decoder, piece: bytes) -> None:
    """A piece of something that has no end is taken a few times, and then refused."""
    for _ in range(20):
        assert decoder.feed(piece) == []
        if decoder.error is not None:
            break
    assert isinstance(decoder.error, ResponseTooLarge)
    with pytest.raises(ResponseTooLarge):
        decoder.close()


def check_silent_after_its_end(decoder: Decoder, data: bytes, events: Sequence[object]) -> None:
    """A whole stream says these events, and the same once more says nothing."""
    assert decoder.feed(data) == events
    assert decoder.done
    assert decoder.feed(data) == []
    assert decoder.close() == []
