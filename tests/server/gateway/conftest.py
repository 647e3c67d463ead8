"""One gateway and one authority for all tests that leave them as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway_support import World, world


@pytest.fixture(scope="module")
def site() -> Iterator[World]:
    with world() as found:
        yield found
