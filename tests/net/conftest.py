"""Fixtures of the transport's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dns_support import give_dns_time
from net_support import Authority, Face, free_port
from onym.net.policy import Policy


@pytest.fixture(autouse=True)
def _time_for_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    give_dns_time(monkeypatch)


@pytest.fixture(scope="session")
def authority() -> Authority:
    """One authority for the whole run; making keys takes time."""
    return Authority()


@pytest.fixture(params=["sync", "async"])
def make_face(request: pytest.FixtureRequest) -> Iterator[Callable[..., Face]]:
    """Makes transports of either kind, and closes them."""
    made: list[Face] = []

    def make(policy: Policy | None = None, **options: Any) -> Face:
        made.append(Face(request.param, policy or Policy.local(), **options))
        return made[-1]

    yield make
    for face in made:
        face.close()


@pytest.fixture
def face(make_face: Callable[..., Face]) -> Face:
    """A transport of either kind that may go to this machine."""
    return make_face()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of 127.0.0.1 on which nothing listens."""
    with free_port() as port:
        yield port
