"""What tests of the client share: a flow played against scripted replies, with no network and no waiting."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from onym.errors import OnymError
from onym.net.messages import ConnectionInfo, Headers, Reply, Send, Wait
from onym.testing import FakeClock

INFO = ConnectionInfo(address="127.0.0.1")


def reply(status: int = 200, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> Reply:
    return Reply(status, Headers(headers), body, None, INFO)


@dataclass
class Played:
    """How a flow went: what it sent, how long it waited, what it gave or raised."""

    sends: list[Send] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    value: Any = None
    error: OnymError | None = None


def play(
    flow: Generator[Send | Wait, Reply | None, Any],
    answers: Iterable[Reply | OnymError],
    clock: FakeClock,
    *,
    takes: float = 0.0,
) -> Played:
    """Drive a flow: each send takes `takes` seconds and is answered by the next reply or error."""
    played, script = Played(), list(answers)
    answer: Reply | OnymError | None = None
    try:
        while True:
            step = flow.throw(answer) if isinstance(answer, OnymError) else flow.send(answer)
            if isinstance(step, Wait):
                played.waits.append(step.seconds)
                clock.sleep(step.seconds)
                answer = None
            else:
                played.sends.append(step)
                clock.advance(takes)
                answer = script.pop(0)
    except StopIteration as stop:
        played.value = stop.value
    except OnymError as error:
        played.error = error
    assert not script, "the flow left answers unused"
    return played
