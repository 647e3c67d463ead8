"""Which doors are open: resources that read, of authorities that ask nobody who calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onym.ai.gateway.forwarding import (
    POLICY,
    POLICY_HASH,
    find_denial,
    require_no_loop,
    require_open_authority,
    require_open_resource,
)
from onym.ai.records import (
    AnchorDocument,
    Auth,
    Description,
    Effects,
    EndpointEntry,
    Level,
    Requirements,
    Resolution,
)
from onym.errors import AIIPError, DeniedError
from onym.net.messages import Origin
from onym.sign.keys import AuthorityKeys
from onym.uri.ai import AIURI

URI = AIURI.parse("ai://factory.example/tool/add?a=1")
NAME = "ai://factory.example/tool/add"
DOCUMENT = AnchorDocument(
    anchor="https://factory.example",
    authority="factory.example",
    service="https://factory.example/.well-known/aiip/v1",
    jwks="https://factory.example/jwks",
)
RESOLUTION = Resolution(uri=URI, authority="factory.example", document=DOCUMENT, keys=AuthorityKeys())
OWN = frozenset({"gw.example"})


def asking(**requirements: object) -> Resolution:
    return replace(RESOLUTION, document=replace(DOCUMENT, requirements=Requirements(**requirements)))  # type: ignore[arg-type]


def listed(**entry: object) -> Resolution:
    return replace(RESOLUTION, entry=EndpointEntry(uri=NAME, **entry))  # type: ignore[arg-type]


def refused(resolution: Resolution) -> str:
    with pytest.raises(DeniedError) as caught:
        require_open_authority(resolution, OWN)
    assert caught.value.target == NAME  # without the query
    return caught.value.code


def test_a_resource_that_reads_is_reached() -> None:
    require_open_authority(RESOLUTION, OWN)
    require_open_authority(listed(), OWN)
    require_open_authority(asking(dpop=Level.SUPPORTED), OWN)
    require_open_resource(URI, Description(uri=NAME))
    require_no_loop(URI, OWN)


@pytest.mark.requirement("ai-gateway-g", "ai-gateway-i", "ai-provenance-c")
@pytest.mark.parametrize(
    ("resolution", "code"),
    [
        (asking(auth=Auth.OAUTH2), "authentication-required"),
        (asking(dpop=Level.REQUIRED, auth=Auth.OAUTH2), "sender-constraint"),
        (asking(mtls=True), "sender-constraint"),
        (listed(approval=True), "approval-required"),
        (listed(scopes=("pay",)), "authentication-required"),
        (listed(effects=Effects.WRITE), "policy-denied"),
        (listed(effects=Effects.FINANCIAL), "policy-denied"),
        (listed(effects=Effects.PHYSICAL), "policy-denied"),
    ],
)
def test_what_asks_for_more_is_refused_with_its_code(resolution: Resolution, code: str) -> None:
    assert refused(resolution) == f"aiip.{code}"


@pytest.mark.parametrize("effects", sorted(set(Effects) - {Effects.READ}))
def test_what_a_resource_says_of_itself_counts_too(effects: Effects) -> None:
    with pytest.raises(AIIPError):
        require_open_resource(URI, Description(uri=NAME, effects=effects))
    assert find_denial(URI, Description(uri=NAME, effects=effects)) is not None
    assert find_denial(URI, Description(uri=NAME)) is None


def test_an_authority_that_leads_back_is_refused() -> None:
    for uri in ("ai://gw.example/gateway/gw.example/x", "ai://gw.example:8443/x"):
        with pytest.raises(DeniedError) as refusal:
            require_no_loop(AIURI.parse(uri), OWN)
        assert (refusal.value.code, refusal.value.target) == ("aiip.policy-denied", uri)
    require_no_loop(AIURI.parse("ai:/x"), OWN)
    back = replace(DOCUMENT, service="https://gw.example/gateway/factory.example")
    assert refused(replace(RESOLUTION, document=back)) == "aiip.policy-denied"
    assert refused(replace(RESOLUTION, document=replace(DOCUMENT, anchor="https://gw.example"))) == (
        "aiip.policy-denied"
    )
    assert refused(replace(RESOLUTION, connect=Origin("https", "gw.example", 443))) == "aiip.policy-denied"


def test_the_policy_has_a_hash() -> None:
    assert len(POLICY_HASH) == 43
    assert "effects=read" in POLICY
