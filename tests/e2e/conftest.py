"""The peers, one of each for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import peers
from e2e.peers import Peer

pytest.register_assert_rewrite("e2e.asking")


@pytest.fixture(scope="session")
def llama() -> Iterator[Peer]:
    with peers.llama() as peer:
        yield peer


@pytest.fixture(scope="session")
def portkey(llama: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with peers.portkey(llama, tmp_path_factory.mktemp("portkey")) as peer:
        yield peer


@pytest.fixture(scope="session")
def litellm(llama: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with peers.litellm(llama, tmp_path_factory.mktemp("litellm")) as peer:
        yield peer


@pytest.fixture(scope="session")
def ollama(llama: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with peers.ollama(llama, tmp_path_factory.mktemp("ollama")) as peer:
        yield peer


@pytest.fixture(params=["llama", "portkey", "litellm"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each of the three in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Peer)
    return found
