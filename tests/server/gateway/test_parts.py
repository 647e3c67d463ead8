"""Places, kept results and settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onym.ai.gateway.forwarding import make_refusal
from onym.ai.gateway.review import build_form_fields
from onym.errors import AIIPError, ConfigError, CredentialError
from onym.server.gateway import GatewaySettings, create_gateway, load_gateway_settings
from onym.server.gateway.dependencies import RESULT_SECONDS, ResultStore, make_limiter
from onym.server.gateway.responses import build_control_views

AT = datetime(2026, 11, 22, tzinfo=UTC)


@dataclass
class Body:
    body: bytes


def test_places_are_limited_and_given_back() -> None:
    slots = make_limiter(total=3, client=2, authority=2)
    with slots.reserve(client="a", authority="x"), slots.reserve(client="a", authority="y"):
        with pytest.raises(AIIPError) as caught, slots.reserve(client="a", authority="z"):
            pass
        assert (caught.value.code, caught.value.retryable) == ("aiip.unavailable", True)
        with slots.reserve(client="b", authority="x"):
            with pytest.raises(AIIPError), slots.reserve(client="c", authority="z"):
                pass
            assert len(slots) == 3
    with (
        slots.reserve(client="a", authority="x"),
        slots.reserve(client="b", authority="x"),
        pytest.raises(AIIPError),
        slots.reserve(client="c", authority="x"),
    ):
        pass
    assert len(slots) == 0
    assert not slots._running


def test_whoever_finds_no_place_is_told_why_and_when_to_come_again() -> None:
    slots = make_limiter(total=1, client=1, authority=1)
    with (
        slots.reserve(client="a", authority="x"),
        pytest.raises(AIIPError) as caught,
        slots.reserve(client="b", authority="y"),
    ):
        pass
    found = make_refusal(caught.value)
    assert (found.status, found.code, found.retryable) == (503, "unavailable", True)
    assert (found.detail, found.hint) == (caught.value.message, caught.value.hint)


def test_a_result_is_kept_for_a_while_and_for_its_owner() -> None:
    now = [0.0]
    shelf = ResultStore(lambda: now[0], octets=10, most=3)

    def put(octets: int) -> str:
        result: Any = Body(b"x" * octets)
        return shelf.put(result, "witness", "owner", AT)

    name = put(4)
    assert shelf.find(name, "owner") is not None
    assert shelf.find(name, "other") is None
    assert shelf.find("other", "owner") is None
    assert put(4) != name
    third = put(4)
    assert shelf.find(name, "owner") is None
    assert len(shelf) == 2
    large = put(100)
    assert len(shelf) == 1
    assert shelf.find(third, "owner") is None
    now[0] = RESULT_SECONDS
    assert shelf.find(large, "owner") is None
    for _ in range(5):
        put(0)
    assert len(shelf) == 3


FILE = """
base_url = "https://gw.example"
keys = "keys"
trusted_proxies = ["127.0.0.1/32"]
ports = [8443]
ca_files = ["ca.pem"]
nameservers = ["127.0.0.1"]
nameserver_port = 5353
[rates.reads]
burst = 5
per_minute = 6
[[namespaces]]
file = "registry.json"
keys = "registry.jwks"
[[contexts]]
path = "/agent/"
anchor = "https://factory.example"
keys = ["a"]
"""


def test_settings_come_from_file_variables_and_arguments(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(FILE)
    environ = {
        "ONYM_GATEWAY_CONFIG": str(file),
        "ONYM_GATEWAY_PORT": "9000",
        "ONYM_GATEWAY_PORTS": "8443, 9443",
        "ONYM_GATEWAY_CA_FILES": "a.pem,b.pem",
        "ONYM_GATEWAY_AUDIT_KEY": "planted",
    }
    found = load_gateway_settings(environ=environ, port=9001, host=None)
    assert (found.base_url, found.port, found.ports) == ("https://gw.example", 9001, (8443, 9443))
    assert found.allowed_hosts == ("gw.example",)
    assert (found.name, found.own_hosts, found.cookie_name) == (
        "gw.example",
        frozenset({"gw.example"}),
        "__Host-onym-gateway",
    )
    assert (found.rates.reads.burst, found.rates.writes.burst) == (5, 60)
    assert found.namespaces[0].file == "registry.json"
    assert found.contexts[0].anchor == "https://factory.example"
    assert found.ca_files == ("a.pem", "b.pem")
    assert (found.nameservers, found.nameserver_port) == (("127.0.0.1",), 5353)
    assert "planted" not in repr(found)
    assert load_gateway_settings(environ={}).own_hosts == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('base_url = "https://gw.example"', "config.missing-setting"),
        ('base_url = "http://gw.example"', "config.bad-setting"),
        ('key = "key.pem"', "config.bad-setting"),
        ("no_such = 1", "config.unknown-setting"),
        ("ports = 8443", "config.bad-setting"),
        ("ports = [0]", "config.bad-setting"),
        ("ca_files = 1", "config.bad-setting"),
        ("namespaces = 1", "config.bad-setting"),
        ('[[namespaces]]\nfile = "x"', "config.missing-setting"),
        ('[[contexts]]\npath = "/"', "config.missing-setting"),
        ('[[contexts]]\npath = "/"\nanchor = "x"', "config.bad-setting"),
        ("[rates.other]\nburst = 1", "config.unknown-setting"),
        ('network = "everything"', "config.bad-setting"),
        ("body_limit = 1", "config.bad-setting"),
        ("=", "config.syntax"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told(tmp_path: Path, text: str, code: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_gateway_settings(file, environ={})
    assert caught.value.code == code


def test_an_argument_that_is_no_setting_is_told() -> None:
    with pytest.raises(ConfigError):
        load_gateway_settings(environ={}, prefix="/x")


def test_a_gateway_on_this_machine_signs_with_a_key_of_its_own(tmp_path: Path) -> None:
    from onym.sign.keys import read_authority_keys

    app = create_gateway(GatewaySettings(pins=str(tmp_path / "pins"), replays=str(tmp_path / "replays.db")))
    keys = read_authority_keys(app.parts.jwks(False))
    assert app.parts.signer().kid in keys.kids


def test_what_a_gateway_needs_is_missed_at_its_start(tmp_path: Path) -> None:
    from onym.server.gateway.settings import Namespaces

    with pytest.raises(CredentialError):
        create_gateway(GatewaySettings(keys=str(tmp_path / "none")))
    namespaces = (Namespaces(file=str(tmp_path / "no"), keys=str(tmp_path / "no")),)
    with pytest.raises(ConfigError):
        create_gateway(GatewaySettings(namespaces=namespaces))


def test_a_box_is_ticked_by_its_default_or_by_what_was_typed_alone() -> None:
    fields = build_form_fields(
        {
            "type": "object",
            "properties": {"plain": {"type": "boolean"}, "on": {"type": "boolean", "default": True}},
        }
    )
    assert [view.ticked for view in build_control_views(fields)] == [False, True]
    assert [view.ticked for view in build_control_views(fields, {"plain": "true"})] == [True, False]
