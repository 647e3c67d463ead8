"""Which procedure new requests follow is the operator's setting, not the registrant's choice."""

from __future__ import annotations

from pathlib import Path

import pytest

import onym.server.registry as room
from server_support import settings, world

TEMPLATE = "Scheme name: abc\nStatus: provisional\nScheme syntax: any\nScheme semantics: none\n"


@pytest.mark.parametrize(("in_force", "other"), [("rfc7595", "rfc4395"), ("rfc4395", "rfc7595")])
def test_the_operator_says_which_procedure_is_in_force(tmp_path: Path, in_force: str, other: str) -> None:
    with world(tmp_path, settings(profile=in_force), routes=room.list_routes()) as here:
        form = here.client.get("/submit", headers={"accept": "text/html"}).text
        assert f'value="{in_force}"' in form
        assert f'value="{other}"' not in form
        body = {"registry": "uri-schemes", "name": "abc", "kind": "new", "status": "provisional"}
        headers = here.token("read", "submit")
        refused = here.client.post("/api/v1/requests", json=body | {"profile": other}, headers=headers)
        assert refused.json()["code"] == "registry.bad-profile"
        assert refused.status_code == 409
        # a template of either kind is read, and follows what is in force
        opened = here.client.post("/api/v1/requests", json=body | {"template": TEMPLATE}, headers=headers)
        assert (opened.status_code, opened.json()["profile"]) == (201, in_force)
