"""The server that SDK and Onym both call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.capture import Capture


@pytest.fixture(scope="module")
def server() -> Iterator[Capture]:
    with Capture() as capture:
        yield capture
