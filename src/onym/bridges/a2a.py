"""A2A, both ways: an A2A agent as an `ai://` resource, and an `ai://` agent as an A2A agent.

    app.add("/agent/planner", await a2a_agent("https://agents.example"), effects="write")
    asgi = await a2a_app(AsyncAIClient(), "ai://factory.example/agent/planner", url="https://factory.example/a2a")

The official SDK speaks A2A, over its own connections: URLs are the operator's, and Onym's network policy does
not hold for them. A message is one invocation and waits for its end; long tasks are for a later version.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from onym.ai.endpoint.kinds.agent import AgentHandler, Outgoing, State, Update, agent
from onym.bridges._a2a_app import EXTENSION, a2a_app
from onym.bridges._a2a_data import data_part, read_part
from onym.bridges._ai import plain
from onym.bridges._bounded import MOST_OCTETS, bounds
from onym.bridges._extra import needs
from onym.errors import AIIPError, UsageError
from onym.uri.generic import URI

if TYPE_CHECKING:
    from a2a.client import Client
    from a2a.types import AgentCard, Artifact, Part, StreamResponse

__all__ = ["EXTENSION", "a2a_agent", "a2a_app"]

_TIMEOUT: Final = 60.0
#: signatures of agent cards that count, by the names of the SDK's JOSE library
_CARD_ALGORITHMS: Final = ("ES256", "EdDSA", "RS256", "PS256")
_PORTS: Final = {"https": "443", "http": "80"}
#: what an agent says in these states is on the way to its answer, and no part of it
_UNDER_WAY: Final = frozenset({"submitted", "working"})


async def a2a_agent(
    agent_at: str | Client,
    *,
    title: str | None = None,
    keys: bytes | None = None,
    timeout: float = _TIMEOUT,  # noqa: ASYNC109 - for each message, not for this
) -> AgentHandler:
    """A resource handler for an A2A agent: POST is SendMessage, states are the same, the idempotency key is
    the message's id.

    `agent_at` is an `a2a.client.Client`, or the URL where the agent's card is: it is read now, must name
    interfaces of the same origin alone, and each message has a connection of its own. With `keys`, a JWK Set
    that the operator knows, the card must have a signature of one of them; where a card says that its keys
    are is never looked at.

    Raises MissingExtraError, UsageError for a card that leads elsewhere, AIIPError for one that cannot be had
    or is not signed.
    """
    with needs("a2a", "a2a"):
        import a2a.client  # noqa: F401 - so that one that is missing is said now
    if not isinstance(agent_at, str):
        return agent(_Agent(agent_at, None, timeout), title=title)
    card = await _card(agent_at, keys, timeout)
    return agent(_Agent(None, card, timeout), title=title or plain(card.name, 120) or None)


class _Agent:
    """A `Responder` that is an A2A agent: by an open client, or by its card."""

    def __init__(self, client: Client | None, card: AgentCard | None, timeout: float) -> None:
        self._client = client
        self._card = card
        self._timeout = timeout

    async def send(self, message: Outgoing) -> AsyncIterator[Update]:
        """What the agent says. The SDK's errors are said in words of AIIP."""
        from a2a.client import ClientCallContext

        reader = _Reader()
        context = ClientCallContext(timeout=self._timeout)
        async with _translated(), self._open() as client:
            async for each in client.send_message(_request(message), context=context):
                yield reader.read(each)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Client]:
        if self._client is not None:
            yield self._client
            return
        from a2a.client import ClientConfig, ClientFactory

        async with _http(self._timeout) as http:
            yield ClientFactory(ClientConfig(httpx_client=http)).create(cast("AgentCard", self._card))


class _Reader:
    """Reads what an agent sends as updates; an artifact that came in pieces does not count twice."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def read(self, found: StreamResponse) -> Update:
        """One update."""
        kind = found.WhichOneof("payload")
        if kind == "message":
            text, data = _said(found.message.parts)
            ids = found.message
            return Update(text=text, data=data, context=ids.context_id or None, task=ids.task_id or None)
        if kind == "artifact_update":
            event = found.artifact_update
            self._seen.add(event.artifact.artifact_id)
            text, data = _said(event.artifact.parts)
            return _about(event.context_id, event.task_id, text, data, joined=event.append)
        if kind == "status_update":
            return self._status(
                found.status_update.context_id, found.status_update.task_id, found.status_update
            )
        return self._task(found.task)

    def _task(self, found: Any) -> Update:
        new = [each for each in found.artifacts if each.artifact_id not in self._seen]
        self._seen.update(each.artifact_id for each in new)
        return self._status(found.context_id, found.id, found, new)

    def _status(self, context: str, task: str, holder: Any, artifacts: Iterable[Artifact] = ()) -> Update:
        state = _state(holder.status.state)
        parts = [part for each in artifacts for part in each.parts]
        said, _ = _said(holder.status.message.parts)
        text, data = _said(parts)
        under_way = state in _UNDER_WAY
        return _about(
            context,
            task,
            "\n".join(each for each in (text, "" if under_way else said) if each),
            data,
            state=state,
            note=said if under_way else "",
        )


def _about(
    context: str, task: str, text: str, data: tuple[Any, ...], *, joined: bool = False, **more: Any
) -> Update:
    return Update(text=text, data=data, joined=joined, context=context or None, task=task or None, **more)


def _said(parts: Iterable[Part]) -> tuple[str, tuple[Any, ...]]:
    """Text and data of parts. Files are data as A2A writes them."""
    texts: list[str] = []
    data: list[Any] = []
    for each in parts:
        kind = each.WhichOneof("content")
        if kind == "text":
            texts.append(each.text)
        elif kind is not None:
            data.append(read_part(each, "aiip.upstream-failed"))
    return "\n".join(texts), tuple(data)


def _state(number: Any) -> State:
    from a2a.types import TaskState

    name = TaskState.Name(number).removeprefix("TASK_STATE_").lower().replace("_", "-")
    return "working" if name == "unspecified" else cast("State", name)


def _request(message: Outgoing) -> Any:
    from a2a.helpers import new_text_part
    from a2a.types import Message, Role, SendMessageRequest

    parts = [new_text_part(message.text)] if message.text else []
    if message.data is not None:
        parts.append(data_part(message.data))
    return SendMessageRequest(
        message=Message(
            message_id=message.id,
            role=Role.ROLE_USER,
            parts=parts,
            context_id=message.context or "",
            task_id=message.task or "",
        )
    )


def _http(timeout: float) -> Any:
    """An HTTP client of the SDK's kind: no redirects, no environment, no answer without end."""
    import httpx

    return httpx.AsyncClient(
        timeout=timeout, follow_redirects=False, trust_env=False, **bounds(httpx, MOST_OCTETS)
    )


async def _card(url: str, keys: bytes | None, timeout: float) -> AgentCard:  # noqa: ASYNC109
    from a2a.client import A2ACardResolver

    async with _translated(), _http(timeout) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    if keys is not None:
        _check_signature(card, keys)
    home = _origin(url)
    if any(_origin(each.url) != home for each in card.supported_interfaces):
        raise UsageError(
            "the agent's card names an interface of another origin",
            code="usage.bad-url",
            hint="give an a2a.client.Client, if it is meant to",
        )
    return card


def _check_signature(card: AgentCard, keys: bytes) -> None:
    """Tests the card's signatures. Left alone, the SDK would take a key from a URL in the card itself."""
    with needs("jwt"):
        from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
        from jwt import PyJWKSet
        from jwt.exceptions import InvalidKeyError
    known = {
        each.key_id: each for each in PyJWKSet.from_dict(json.loads(keys)).keys if each.key_type != "oct"
    }

    def key(kid: str | None, jku: str | None) -> Any:
        if kid not in known:
            raise InvalidKeyError("unknown key")  # and the next signature is tried
        return known[kid]

    try:
        create_signature_verifier(key, list(_CARD_ALGORITHMS))(card)
    except SignatureVerificationError as error:
        raise AIIPError(
            "the agent's card has no signature of the keys given", code="aiip.internal"
        ) from error


def _origin(url: str) -> tuple[str, str, str]:
    uri = URI.parse(url).normalize()
    scheme = uri.scheme or ""
    return scheme, uri.host or "", uri.port or _PORTS.get(scheme, "")


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """The SDK's errors in words of AIIP, without its text, which may quote a stranger's."""
    from a2a.client.errors import A2AClientTimeoutError, AgentCardResolutionError
    from a2a.utils.errors import A2AError, InvalidParamsError, TaskNotFoundError

    told: tuple[tuple[type[Exception], str, str, bool], ...] = (
        (A2AClientTimeoutError, "upstream-timeout", "the agent did not answer in time", True),
        (InvalidParamsError, "invalid-input", "the agent does not take this message", False),
        (TaskNotFoundError, "task-not-found", "the agent knows no such task", False),
        (AgentCardResolutionError, "upstream-unreachable", "the agent's card cannot be had", True),
        (A2AError, "upstream-unreachable", "the agent does not answer", True),
    )
    try:
        yield
    except A2AError as error:
        row = next(each for each in told if isinstance(error, each[0]))
        raise AIIPError(row[2], code=f"aiip.{row[1]}", retryable=row[3]) from error
