"""Calls through the bridges that people must approve: an endpoint with a Cedar policy, and an approver."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import new_data_part, new_message, new_text_part
from a2a.types import Role, SendMessageRequest, TaskState
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.authentication import SimpleUser

from ai_factory import Factory
from ai_support import PATIENCE, authority_ca, key_store, serve_authority, trust
from approval_house_support import ApprovalHouse, approval_house
from approval_support import HandApprover, hand_approver
from onym.ai import AsyncAIClient
from onym.ai.credentials import StaticCredentials
from onym.ai.endpoint import Endpoint
from onym.bridges.a2a import EXTENSION, a2a_app
from onym.bridges.approvals import ApprovalPage, GatewayApprovals
from onym.bridges.mcp import mcp_server
from onym.errors import ConnectionFailed, DeniedError
from onym.net.transport import AsyncTransport
from onym.sign.approval import Challenge, verify_receipt_approval
from onym.sign.keys import read_authority_keys
from onym.sign.receipts import RECEIPT, decode_claims

POLICY = '@approval("person") permit(principal, action, resource);'
pytestmark = pytest.mark.xdist_group("bridge-approvals")
VERSION = "2026-07-28"
HOME = "http://agents.example"


@dataclass
class Shop:
    """An authority whose payments people must approve; `asked` are the calls brought to the approver."""

    factory: Factory
    approver: HandApprover
    asked: dict[str, Challenge] = field(default_factory=dict)
    decided: dict[str, str | None] = field(default_factory=dict)
    closed: bool = False

    async def ask(self, request: bytes) -> ApprovalPage:
        """Take a call as a gateway does: the challenge must be the authority's, and for this body."""
        if self.closed:
            raise ConnectionFailed("nobody is there")
        document = json.loads(request)
        keys = read_authority_keys(self.factory.keys.jwks(2e9))
        resource = f"https://{self.factory.authority}/.well-known/aiip/v1"
        challenge = self.approver.understand(document["transaction_challenge"], keys, resource)
        assert challenge.call.uri == document["uri"]
        assert "amount" in json.loads(b64decode(document["body_base64"]))
        name = f"approval-{len(self.asked)}"
        self.asked[name] = challenge
        return ApprovalPage(name, f"{self.approver.issuer}/approvals/{name}")

    async def fetch_evidence(self, approval: str) -> str | None:
        evidence = self.decided.get(approval, "")
        if evidence is None:
            raise DeniedError("people denied the call")
        return evidence or None

    def approve_last(self) -> str:
        name = list(self.asked)[-1]
        evidence = self.decided[name] = self.approver.approve(self.asked[name])
        return evidence

    def deny_last(self) -> None:
        self.decided[list(self.asked)[-1]] = None

    def count(self, call: str) -> int:
        return self.factory.calls.count(call)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    keys, ca, calls = key_store(folder), authority_ca(), list[str]()
    with hand_approver(ca, folder) as approver:

        def make(authority: str) -> Endpoint:
            app = Endpoint(
                authority,
                keys=keys,
                store=folder / "seen.sqlite",
                policy=POLICY,
                approvers=[approver.entry()],
                network=approver.network,
            )

            @app.resource("/pay", effects="financial")
            def pay(amount: int) -> dict[str, int]:
                calls.append(f"pay {amount}")
                return {"paid": amount}

            @app.resource("/transfer", effects="financial", task=True)
            async def transfer(amount: int) -> dict[str, int]:
                calls.append(f"transfer {amount}")
                return {"sent": amount}

            return app

        trust(ca, folder)
        with serve_authority(make, "shop.localhost", ca=ca) as (app, authority):
            yield Shop(Factory(app, authority, keys, folder, ca, calls), approver)


# --- MCP ---


class MCPPeer:
    """A client of the MCP bridge that can be made to do what an honest one would not."""

    def __init__(self, app: Any, *, modes: Any, tasks: bool = False) -> None:
        self.app = app
        extensions = {"extensions": {"io.modelcontextprotocol/tasks": {}}} if tasks else {}
        self.meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": modes, **extensions},
        }

    async def request(self, method: str, named: str, /, **params: Any) -> Any:
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
            "Mcp-Name": named,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": self.meta}}
        wire = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=wire, timeout=PATIENCE) as http:
            answer = await http.post("http://127.0.0.1:9/mcp", json=body, headers=headers)
        lines = [
            line[5:] for line in answer.text.splitlines() if line.startswith("data:") and '"id":1' in line
        ]
        return json.loads(lines[-1] if lines else answer.text)

    async def call(self, tool: str, amount: int, state: str | None = None, opened: Any = None) -> Any:
        """Call a tool; `opened` is what the client says of the page that it was told."""
        again = {} if state is None else {"requestState": state}
        if opened is not None:
            again["inputResponses"] = {"permission": opened}
        found = await self.request("tools/call", tool, name=tool, arguments={"amount": amount}, **again)
        return found.get("result", found)


OPENED = {"action": "accept"}


@asynccontextmanager
async def mcp_peer(shop: Shop, modes: Any = None, **options: Any) -> AsyncIterator[MCPPeer]:
    tools = {name: shop.factory.uri(f"/{name}") for name in ("pay", "transfer")}
    async with shop.factory.aclient(allow_effects=["read", "write", "financial"]) as client:
        server = await mcp_server(client, tools, approvals=shop)
        app = server.streamable_http_app()
        async with app.router.lifespan_context(app):
            yield MCPPeer(app, modes={"url": {}} if modes is None else modes, **options)


def get_link(result: Any) -> str:
    assert result["resultType"] == "input_required"
    request = result["inputRequests"]["permission"]
    assert (request["method"], request["params"]["mode"]) == ("elicitation/create", "url")
    return str(request["params"]["url"])


def check_receipt(shop: Shop, token: str, evidence: str) -> None:
    """The receipt names the approval, as others can verify offline."""
    payload = token.split(".")[1]
    receipt = decode_claims(json.loads(b64decode(payload + "==", altchars=b"-_")), RECEIPT)
    verify_receipt_approval(receipt, evidence, read_authority_keys(shop.approver.key_set()))


def test_an_approved_call_is_sent_with_its_evidence_once(shop: Shop) -> None:
    async def work() -> tuple[Any, ...]:
        async with mcp_peer(shop) as peer:
            first = await peer.call("pay", 11)
            # the page was opened, nobody has decided
            second = await peer.call("pay", 11, first["requestState"], OPENED)
            evidence = shop.approve_last()
            third = await peer.call("pay", 11, second["requestState"], OPENED)
            # the answer was lost on its way
            again = await peer.call("pay", 11, second["requestState"], OPENED)
            return first, second, third, again, evidence

    asked = len(shop.asked)
    first, second, third, again, evidence = asyncio.run(work())
    assert get_link(first) == get_link(second) == f"{shop.approver.issuer}/approvals/approval-{asked}"
    assert third["structuredContent"] == again["structuredContent"] == {"paid": 11}
    check_receipt(shop, third["_meta"]["aiip-receipt"], evidence)
    assert shop.count("pay 11") == 1
    assert len(shop.asked) == asked + 1


def test_a_long_task_is_begun_with_its_evidence(shop: Shop) -> None:
    async def work() -> Any:
        async with mcp_peer(shop, tasks=True) as peer:
            first = await peer.call("transfer", 12)
            get_link(first)
            assert shop.count("transfer 12") == 0
            shop.approve_last()
            begun = await peer.call("transfer", 12, first["requestState"], OPENED)
            assert begun["resultType"] == "task"
            async with asyncio.timeout(PATIENCE):
                while True:
                    found = await peer.request("tasks/get", begun["taskId"], taskId=begun["taskId"])
                    if found["result"]["status"] != "working":
                        return found["result"]
                    await asyncio.sleep(0.05)

    assert asyncio.run(work())["result"]["structuredContent"] == {"sent": 12}
    assert shop.count("transfer 12") == 1


def test_attack_105_an_approval_is_for_the_call_and_the_person_of_its_state(shop: Shop) -> None:
    def sign_in(name: str) -> None:
        token = AccessToken(token="t", client_id="client", scopes=[], subject=name)
        auth_context_var.set(AuthenticatedUser(token))

    async def work() -> tuple[list[Any], Any]:
        async with mcp_peer(shop) as peer:
            sign_in("ada")
            state = (await peer.call("pay", 13))["requestState"]
            shop.approve_last()
            middle = len(state) // 2
            altered = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
            refused = [
                await peer.call("pay", 1300, state, OPENED),  # the arguments were changed on the retry
                await peer.call("transfer", 13, state, OPENED),
                await peer.call("pay", 13, altered, OPENED),
            ]
            sign_in("bob")
            refused.append(await peer.call("pay", 13, state, OPENED))
            sign_in("ada")
            return refused, await peer.call("pay", 13, state, OPENED)

    refused, own = asyncio.run(work())
    assert [answer["error"]["code"] for answer in refused] == [-32602] * 4
    assert own["structuredContent"] == {"paid": 13}
    assert (shop.count("pay 1300"), shop.count("transfer 13"), shop.count("pay 13")) == (0, 0, 1)


@pytest.mark.parametrize("modes", [{"form": {}}, {}])
def test_attack_106_an_approval_is_never_asked_for_by_a_form(shop: Shop, modes: Any) -> None:
    async def work() -> list[Any]:
        async with mcp_peer(shop, modes) as peer:
            yes = {"action": "accept", "content": {"approved": True}}
            return [await peer.call("pay", 14), await peer.call("pay", 14, None, yes)]

    for result in asyncio.run(work()):
        assert result["isError"]
        assert result["_meta"]["aiip-code"] == "aiip.approval-required"
        # the person is told where to decide
        assert result["_meta"]["aiip-approval-page"].startswith(shop.approver.issuer)
    assert shop.count("pay 14") == 0


def test_a_denied_call_is_a_tool_error(shop: Shop) -> None:
    async def work() -> list[Any]:
        async with mcp_peer(shop) as peer:
            state = (await peer.call("pay", 15))["requestState"]
            shop.deny_last()
            return [await peer.call("pay", 15, state, OPENED) for _ in range(2)]

    assert [result["isError"] for result in asyncio.run(work())] == [True, True]
    assert shop.count("pay 15") == 0


def test_who_does_not_open_the_page_has_not_called(shop: Shop) -> None:
    async def work() -> Any:
        async with mcp_peer(shop) as peer:
            state = (await peer.call("pay", 16))["requestState"]
            return await peer.call("pay", 16, state, {"action": "decline"})

    assert asyncio.run(work())["isError"]
    assert shop.count("pay 16") == 0


def test_an_approver_that_cannot_be_reached_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "closed", True)

    async def work() -> tuple[Any, Any]:
        async with mcp_peer(shop) as peer, agent_client(shop, "/pay") as client:
            return await peer.call("pay", 17), await send(client, {"amount": 17}, name="unreachable")

    result, task = asyncio.run(work())
    assert result["_meta"]["aiip-code"] == ConnectionFailed.default_code
    assert get_state(task) == "AUTH_REQUIRED"
    assert "aiip-approval-page" not in get_notes(task)
    assert shop.count("pay 17") == 0


# --- A2A ---


@asynccontextmanager
async def agent_client(shop: Shop, path: str) -> AsyncIterator[Any]:
    """A client of the A2A bridge, signed in as Ada."""
    async with shop.factory.aclient(allow_effects=["read", "write", "financial"]) as source:
        bridge = await a2a_app(source, shop.factory.uri(path), url=HOME, approvals=shop)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await bridge({**scope, "user": SimpleUser("ada")}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), timeout=PATIENCE) as http:
            config = ClientConfig(httpx_client=http, streaming=False)
            yield await ClientFactory(config).create_from_url(HOME)


async def send(client: Any, content: Any, *, name: str, task: Any = None) -> Any:
    part = new_text_part(content) if isinstance(content, str) else new_data_part(content)
    message = new_message([part], role=Role.ROLE_USER)
    message.message_id = name
    if task is not None:
        message.task_id = task.id
    ((event),) = [event async for event in client.send_message(SendMessageRequest(message=message))]
    return event.task


def get_state(task: Any) -> str:
    return str(TaskState.Name(task.status.state)).removeprefix("TASK_STATE_")


def get_notes(task: Any) -> dict[str, Any]:
    return dict(task.metadata[EXTENSION])


@pytest.mark.parametrize(("path", "call"), [("/pay", "pay 21"), ("/transfer", "transfer 21")])
def test_attack_107_only_the_evidence_approves_what_a_task_waits_for(
    shop: Shop, path: str, call: str
) -> None:
    async def work() -> tuple[list[Any], Any, str]:
        async with agent_client(shop, path) as client:
            first = await send(client, {"amount": 21}, name=f"{path}-1")
            words: list[Any] = ["approved", "AUTH_COMPLETED", {"approved": True}, {"amount": 2100}]
            waiting = [
                await send(client, word, name=f"{path}-word-{number}", task=first)
                for number, word in enumerate(words)
            ]
            assert shop.count(call) == 0
            evidence = shop.approve_last()
            done = await send(client, {"amount": 2100}, name=f"{path}-2", task=first)
            return [first, *waiting], done, evidence

    asked = len(shop.asked)
    waiting, done, evidence = asyncio.run(work())
    assert {get_state(task) for task in waiting} == {"AUTH_REQUIRED"}
    assert {get_notes(task)["aiip-approval-page"] for task in waiting} == {
        f"{shop.approver.issuer}/approvals/approval-{asked}"
    }
    assert get_state(done) == "COMPLETED"
    check_receipt(shop, get_notes(done)["aiip-receipt"], evidence)
    assert shop.count(call) == 1
    assert shop.count(call + "00") == 0
    assert len(shop.asked) == asked + 1


def test_a_denied_message_has_failed(shop: Shop) -> None:
    async def work() -> Any:
        async with agent_client(shop, "/pay") as client:
            first = await send(client, {"amount": 22}, name="denied-1")
            shop.deny_last()
            return await send(client, "go on", name="denied-2", task=first)

    assert get_state(asyncio.run(work())) == "FAILED"
    assert shop.count("pay 22") == 0


# --- a gateway ---


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApprovalHouse]:
    with approval_house(tmp_path_factory.mktemp("house")) as found:
        yield found


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_people_decide_at_a_gateway_about_a_call_of_the_bridge(house: ApprovalHouse, decision: Any) -> None:
    grant, amount = house.bank_grant("ann"), 4711 + len(decision)
    credentials = StaticCredentials(grant.token, "agent", authority=house.bank, dpop_key=grant.dpop_key)
    people, bob = house.approvals("ann"), house.approvals("bob", "approve", client="onym-cli")

    def decide() -> None:
        (row,) = [row for row in house.run(bob.list_waiting()) if row.target == house.uri("/pay")]
        seen = house.run(bob.get(row.id))
        house.run(bob.decide(row.id, decision, shown=seen.shown))

    async def work() -> tuple[Any, Any, Any]:
        async with (
            AsyncTransport(house.network()) as wire,
            AsyncAIClient(
                house.settings, transport=wire, credentials=credentials, allow_effects=["read", "financial"]
            ) as client,
        ):
            approvals = GatewayApprovals(people, wire, seconds=0)
            server = await mcp_server(client, {"pay": house.uri("/pay")}, approvals=approvals)
            app = server.streamable_http_app()
            async with app.router.lifespan_context(app):
                peer = MCPPeer(app, modes={"url": {}})
                first = await peer.call("pay", amount)
                second = await peer.call("pay", amount, first["requestState"], OPENED)
                await asyncio.to_thread(decide)
                return first, second, await peer.call("pay", amount, second["requestState"], OPENED)

    first, second, third = asyncio.run(work())
    assert get_link(first) == get_link(second)
    assert get_link(first).startswith(f"{house.gateway}/approvals/")
    if decision == "approve":
        assert third["content"][0]["text"] == str(amount)
    else:
        assert third["_meta"]["aiip-code"] == "aiip.policy-denied"
    assert house.paid.count(amount) == (decision == "approve")
