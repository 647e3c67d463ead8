"""One seeded site for all tests that only read it, and a fresh one for those that write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from server.registry.site import Site, site


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Read only."""
    with site(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture
def fresh(tmp_path: Any) -> Iterator[Site]:
    """To be changed."""
    with site(tmp_path) as found:
        yield found


@pytest.fixture(scope="session")
def people(shared: Site) -> dict[str, dict[str, str]]:
    """Credentials by login; "" is nobody."""
    return {"": {}, **{login: shared.headers(login) for login in ("rita", "ian", "eve", "ingo")}}
