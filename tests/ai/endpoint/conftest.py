"""An authority with resources of each kind, on real TLS."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import Line, authority_ca, key_store, serve_authority
from onym.ai.endpoint import Endpoint

NAME = "factory.test"


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return authority_ca()


@pytest.fixture
def serving(tmp_path: Path, ca: trustme.CA) -> Callable[..., Any]:
    """Serves an endpoint whose resources `fill` adds; gives it and a connection to it."""

    @contextlib.contextmanager
    def serve(fill: Callable[[Endpoint], object], **options: Any) -> Iterator[tuple[Endpoint, Line]]:
        given = {"store": tmp_path / "keys.sqlite", **options}
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        keys = given.pop("keys", None) or key_store(folder)

        def make(authority: str) -> Endpoint:
            app = Endpoint(authority, keys=keys, **given)
            fill(app)
            return app

        with serve_authority(make, NAME, ca=ca) as (app, authority), Line(authority, ca) as line:
            yield app, line

    return serve
