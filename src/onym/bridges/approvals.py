"""Approvals through the MCP and A2A bridges: where a person decides, and the evidence of the decision (3.13).

    people = ApprovalClient("https://gateway.example", StoredCredentials(settings=settings), settings)
    server = await mcp_server(client, uris, approvals=GatewayApprovals(people, transport))

A call that people must approve is brought to them with the endpoint's challenge. The bridge tells its client
the page on which they decide. When the client sends the call again, the bridge fetches their evidence and
sends it with the same request. Nothing that a client says is ever taken as an approval.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from onym.ai.approvals import ApprovalClient, ApprovalRequest
from onym.ai.records import JSON, encode_json
from onym.errors import ApprovalRequired, DeniedError, OnymError
from onym.net.messages import Flow
from onym.net.transport import AsyncTransport, arun_flow
from onym.uri.ai import AIURI

__all__ = ["ApprovalPage", "Approvals", "GatewayApprovals"]

T = TypeVar("T")

#: in metadata: the link to the page on which people decide
PAGE_KEY: Final = "aiip-approval-page"
#: seconds between two looks at an approval that waits
_POLL_SECONDS: Final = 2.0
#: refusals that a person can lift, elsewhere
PERMISSION_CODES: Final = frozenset(
    {"aiip.approval-required", "aiip.authentication-required", "aiip.step-up-required"}
)


class ApprovalPage(NamedTuple):
    """An approval that was asked for: its ID, and the URL of the page on which people decide."""

    id: str
    url: str


class Approvals(Protocol):
    """Where people approve the calls of a bridge, such as a gateway. The methods raise OnymError."""

    async def ask(self, request: bytes) -> ApprovalPage:
        """Bring a call to the people who decide: the JSON document that `/approvals` of a gateway takes."""
        ...

    async def fetch_evidence(self, approval: str) -> str | None:
        """Return the evidence, None while nobody has decided. Raises DeniedError if the call was denied."""
        ...


class GatewayApprovals:
    """The approvals of a gateway, asked for by the person with whose sign-in `client` calls it.

    That person must also be the one in whose name the bridge calls the endpoint. `seconds` is how long
    `fetch_evidence` waits for a decision.
    """

    def __init__(self, client: ApprovalClient, transport: AsyncTransport, *, seconds: float = 20.0) -> None:
        self._client, self._transport = client, transport
        self._looks = max(1, round(seconds / _POLL_SECONDS))

    async def ask(self, request: bytes) -> ApprovalPage:
        """Bring a call to the gateway; the same call again has the same page."""
        view = await self._run(self._client.ask(request))
        return ApprovalPage(view.id, f"{self._client.gateway}/approvals/{view.id}")

    async def fetch_evidence(self, approval: str) -> str | None:
        """Return the evidence as soon as it is there, None if nobody decides in time. Raises DeniedError."""
        for look in range(self._looks):
            if look:
                await asyncio.sleep(_POLL_SECONDS)
            view = await self._run(self._client.get(approval))
            if view.has_evidence:
                return await self._run(self._client.fetch_evidence(approval))
            if view.state != "waiting":
                raise DeniedError(
                    f"people have not approved the call: its approval is {view.state}",
                    target=view.target,
                    clause="AIIP/HTTPS v1 3.13",
                )
        return None

    async def _run(self, flow: Flow[T]) -> T:
        return await arun_flow(flow, self._transport)


@dataclass(frozen=True, slots=True)
class PermissionPages:
    """The pages to which a bridge sends the people who can permit a call."""

    approvals: Approvals | None
    #: returns the page for an error that is not about an approval
    page: Callable[[OnymError], str | None] | None

    async def ask_for_approval(
        self, error: OnymError, uri: AIURI, arguments: Mapping[str, Any]
    ) -> ApprovalPage | None:
        """Bring a refused call to the people who decide; None if an approval would not help."""
        if self.approvals is None or not isinstance(error, ApprovalRequired):
            return None
        request = ApprovalRequest(
            transaction_challenge=error.transaction_challenge or "",
            uri=str(uri.target),
            idempotency_key=error.idempotency_key or "",
            body_base64=b64encode(encode_json(dict(arguments))).decode("ascii"),
            content_type=JSON,
        )
        return await self.approvals.ask(msgspec.json.encode(request))

    async def fetch_evidence(self, asked: ApprovalPage) -> str | None:
        """Return the evidence of an approval that was asked for, None while nobody has decided."""
        return None if self.approvals is None else await self.approvals.fetch_evidence(asked.id)

    def find_page(self, error: OnymError) -> str | None:
        """Return the page for an error that a person can lift."""
        if self.page is None or error.code not in PERMISSION_CODES:
            return None
        return self.page(error)


def build_approval(evidence: str | None) -> dict[str, str]:
    """Return the argument of `AsyncAIClient` for evidence; without any, clients need not know it."""
    return {} if evidence is None else {"approval": evidence}
