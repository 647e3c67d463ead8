"""One authority for the tests of the client: a real endpoint behind TLS 1.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ai_factory import NAME, Factory, resources
from ai_support import authority_ca, key_store, serve_authority
from onym.ai.endpoint import Endpoint


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    folder = tmp_path_factory.mktemp("factory")
    keys, ca, calls = key_store(folder), authority_ca(), list[str]()

    def make(authority: str) -> Endpoint:
        app = Endpoint(
            authority,
            keys=keys,
            store=folder / "seen.sqlite",
            policy='permit(principal, action == Action::"financial", resource) '
            "when { context.input.amount <= 100 };",
        )
        resources(app, calls)
        return app

    with serve_authority(make, NAME, ca=ca) as (app, authority):
        yield Factory(app, authority, keys, folder, ca, calls)
