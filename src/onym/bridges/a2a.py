"""A2A in both directions: an A2A agent as an `ai://` resource, and an `ai://` agent as an A2A agent.

    app.add("/agent/planner", await a2a_agent("https://agents.example"), effects="write")
    asgi = await a2a_app(AsyncAIClient(), "ai://factory.example/agent/planner", url="https://factory.example/a2a")

The official SDK speaks A2A over its own connections: the operator chooses the URLs, and Onym's network policy
does not apply to them. A message is one invocation and waits for its end. Numbers in A2A's data parts are
doubles: whole numbers are restored as integers, and values that a double would change are rejected.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from onym.ai.endpoint.kinds import AgentHandler, Outgoing, State, Update, agent
from onym.bridges._sdk import make_http_client, require_extra
from onym.bridges.mcp import (
    RECEIPT_KEY,
    URI_KEY,
    Invoker,
    decode_json_result,
    decode_text_result,
    is_json,
    iter_levels,
    normalize_input_schema,
    sanitize_text,
)
from onym.errors import AIIPError, OnymError, UsageError
from onym.sign.algorithms import CARD_ALGORITHMS
from onym.uri.ai import AIURI
from onym.uri.generic import URI

if TYPE_CHECKING:
    from a2a.client import Client
    from a2a.server.agent_execution import AgentExecutor, RequestContextBuilder
    from a2a.types import AgentCard, Artifact, Message, Part, StreamResponse

    from onym.ai.records import Description, Result

#: the largest integer that a double represents exactly and uniquely (RFC 8259 6)
_LARGEST: Final = 2**53 - 1
#: levels of a value; the SDK reads 100, and each level takes two of them
_DEEPEST: Final = 32


def can_carry(value: Any) -> bool:
    """Whether a data part can carry this JSON value: no integer beyond 2^53-1 and at most 32 levels."""
    return all(
        depth < _DEEPEST and all(not isinstance(item, int) or abs(item) <= _LARGEST for item in level)
        for depth, level in enumerate(iter_levels(value))
    )


def build_data_part(value: Any) -> Part:
    """Build a data part. Raises AIIPError `aiip.invalid-input` for a value that it cannot carry unchanged."""
    from a2a.helpers import new_data_part

    if not can_carry(value):
        raise AIIPError(
            "A2A cannot carry this data: it has an integer beyond 2^53-1, or more than 32 levels",
            code="aiip.invalid-input",
            hint="write large integers as strings",
        )
    return new_data_part(value)


def decode_part(part: Part, code: str = "aiip.invalid-input") -> Any:
    """Return the JSON value of a data part, with whole numbers as integers, or another part in A2A's form.

    Raises AIIPError with this code for NaN and infinity, which JSON does not have.
    """
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]

    try:
        value = MessageToDict(part.data if part.WhichOneof("content") == "data" else part)
    except ValueError:
        raise AIIPError("the data contains NaN or infinity, which JSON does not have", code=code) from None
    return _restore_integers(value)


def _restore_integers(value: Any) -> Any:
    """Return the value with integers instead of whole doubles. The SDK limits the depth to 100 levels."""
    if isinstance(value, dict):
        return {name: _restore_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_restore_integers(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
        return int(value)
    return value


__all__ = ["EXTENSION", "a2a_agent", "a2a_app"]

#: the A2A extension for receipts in a message's metadata
EXTENSION: Final = "urn:onym:a2a:aiip-receipt:1"
#: members of an input that can be a message's text, in order of preference
_TEXTS: Final = ("message", "prompt", "text")
_CODE: Final = "aiip-code"
#: an idempotency key (AIIP/HTTPS v1 3.11): 1 to 255 visible ASCII characters except " and \
_KEY: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")
_App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


async def a2a_app(
    client: Invoker, uri: str | AIURI, *, url: str, card: AgentCard | None = None, rpc_path: str = "/"
) -> _App:
    """Return an ASGI app that is an A2A agent: each message invokes the resource.

    `url` is the public URL of the app, with its JSON-RPC interface at `rpc_path`. Your own `card` is served
    unchanged, with its signatures; without one, the card is made from the resource's description. A reply has
    the receipt in its metadata, under the extension `EXTENSION`. If the resource rejects the input, the reply
    is an A2A error.

    Every caller of the app acts with the client's authority: authenticate callers, or give the client no
    credentials.

    Raises MissingExtraError, AIURIError and the errors of `AsyncAIClient.describe`.
    """
    with require_extra("a2a", "a2a"):
        from a2a.server.request_handlers import DefaultRequestHandler
        from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
        from a2a.server.tasks import InMemoryTaskStore
    target = AIURI.parse(uri)
    description = await client.describe(target)
    shown = card or _build_card(description, url.rstrip("/") + rpc_path)
    # replies are complete messages, so no task is ever stored
    handler = DefaultRequestHandler(
        _make_executor(client, target, description),
        InMemoryTaskStore(),
        shown,
        request_context_builder=_make_context_builder(),
    )
    (cards,), (calls,) = create_agent_card_routes(shown), create_jsonrpc_routes(handler, rpc_path)

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await (cards if scope.get("path") == cards.path else calls)(scope, receive, send)

    return app


def _build_card(description: Description, url: str) -> AgentCard:
    from a2a.types import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill

    name = sanitize_text(description.title or description.uri, 120)
    about = f"{name}: the resource {description.uri}, with signed results (effects: {description.effects})"
    shown = {URI_KEY: description.uri}
    extension = AgentExtension(
        uri=EXTENSION, description="Each reply has the receipt of its result", params=shown
    )
    return AgentCard(
        name=name,
        description=about,
        version="1",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=False, push_notifications=False, extensions=[extension]),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[AgentSkill(id="invoke", name=name, description=about, tags=["ai-uri"])],
    )


def _make_context_builder() -> RequestContextBuilder:
    """Derives a missing context from the message's ID, so that a repeated message has the same one."""
    from a2a.server.agent_execution import SimpleRequestContextBuilder

    class Lasting(SimpleRequestContextBuilder):
        """Builds the SDK's context, with a derived context ID."""

        async def build(
            self,
            context: Any,
            params: Any = None,
            task_id: str | None = None,
            context_id: str | None = None,
            task: Any = None,
        ) -> Any:
            message_id = "" if params is None else params.message.message_id
            derived = _hash_text(f"context {message_id}") if message_id else None
            return await super().build(context, params, task_id, context_id or derived, task)

    return Lasting()


def _make_executor(client: Invoker, uri: AIURI, description: Description) -> AgentExecutor:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.utils.errors import InternalError, InvalidParamsError, UnsupportedOperationError

    class Invoking(AgentExecutor):
        """Invoke the resource once for one message."""

        async def execute(self, context: Any, event_queue: Any) -> None:
            message = context.message
            try:
                result = await client.invoke(
                    uri,
                    _build_arguments(message, description),
                    idempotency_key=_derive_idempotency_key(message.message_id),
                )
            except OnymError as error:
                kind = InvalidParamsError if error.code == "aiip.invalid-input" else InternalError
                raise kind(
                    sanitize_text(error.message), data={_CODE: error.code, URI_KEY: str(uri)}
                ) from error
            await event_queue.enqueue_event(_build_reply(result, message, uri))

        async def cancel(self, context: Any, event_queue: Any) -> None:
            raise UnsupportedOperationError("an invocation ends with its request, so it cannot be cancelled")

    return Invoking()


def _build_arguments(message: Message, description: Description) -> dict[str, Any]:
    """Build the input from a message, by the resource's schema."""
    from a2a.helpers import get_text_parts

    known = frozenset(normalize_input_schema(description.input).get("properties", ()))
    data = [decode_part(part) for part in message.parts if part.WhichOneof("content") == "data"]
    text = "\n".join(get_text_parts(message.parts))
    arguments: dict[str, Any] = {}
    if text:
        arguments[next((name for name in _TEXTS if name in known), _TEXTS[0])] = text
    if data and "data" in known:
        arguments["data"] = data[0] if len(data) == 1 else data
    else:
        for part in data:
            arguments |= part if isinstance(part, dict) else {}
    return arguments | ({"context": message.context_id} if "context" in known else {})


def _build_reply(result: Result, message: Message, uri: AIURI) -> Message:
    from a2a.helpers import new_message

    reply = new_message(_build_parts(result), context_id=message.context_id)
    reply.extensions.append(EXTENSION)
    reply.metadata.update({EXTENSION: {RECEIPT_KEY: result.token, URI_KEY: str(uri)}})
    return reply


def _build_parts(result: Result) -> list[Part]:
    """Return text as text and JSON as data; the `text` of an agent or a model is its own part.

    JSON that a data part would change, and content that does not match its media type, is sent as bytes.
    """
    from a2a.helpers import new_raw_part, new_text_part

    kind = result.content_type or "application/octet-stream"
    value, text = decode_json_result(result), decode_text_result(result)
    if value and can_carry(value[0]):
        answer = value[0].get("text") if isinstance(value[0], dict) else None
        texts = [new_text_part(answer)] if isinstance(answer, str) and answer else []
        return [*texts, build_data_part(value[0])]
    if text is not None and not is_json(kind):
        return [new_text_part(text, media_type=kind)]
    return [new_raw_part(result.body, media_type=kind)]


def _derive_idempotency_key(message_id: str) -> str | None:
    """Return the message's ID as an idempotency key, so that a repeated message is the same invocation.

    The digest is used for an ID that is not a valid key (AIIP/HTTPS v1 3.11). Without an ID the key is
    random.
    """
    if not message_id:
        return None
    return message_id if _KEY.fullmatch(message_id) else _hash_text(message_id)


def _hash_text(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode("ascii")


_TIMEOUT: Final = 60.0
_PORTS: Final = {"https": "443", "http": "80"}
#: states in which the agent's messages report progress, and are not part of the answer
_UNDER_WAY: Final = frozenset({"submitted", "working"})


async def a2a_agent(
    agent_at: str | Client,
    *,
    title: str | None = None,
    keys: bytes | None = None,
    timeout: float = _TIMEOUT,  # noqa: ASYNC109 - of each message, not of this function
) -> AgentHandler:
    """Return a resource handler for an A2A agent. POST is SendMessage; the message ID is the idempotency key.

    `agent_at` is an `a2a.client.Client`, or the URL of the agent's card. The card is read now and may name
    only interfaces of the same origin; each message uses its own connection. With `keys`, a JWK Set that the
    operator trusts, the card must have a signature by one of them. URLs of keys in a card are ignored.

    Raises MissingExtraError, UsageError for a card with an interface of another origin, and AIIPError for a
    card that is not available or not signed.
    """
    with require_extra("a2a", "a2a"):
        import a2a.client  # noqa: F401 - a missing package is reported now
    if not isinstance(agent_at, str):
        return agent(_Agent(agent_at, None, timeout), title=title)
    card = await _fetch_card(agent_at, keys, timeout)
    return agent(_Agent(None, card, timeout), title=title or sanitize_text(card.name, 120) or None)


class _Agent:
    """A `Responder` that calls an A2A agent, by an open client or by its card."""

    def __init__(self, client: Client | None, card: AgentCard | None, timeout: float) -> None:
        self._client = client
        self._card = card
        self._timeout = timeout

    async def send(self, message: Outgoing) -> AsyncIterator[Update]:
        """Return the agent's answer. Errors of the SDK become AIIP errors."""
        from a2a.client import ClientCallContext

        reader = _UpdateDecoder()
        context = ClientCallContext(timeout=self._timeout)
        async with _translate_errors(), self._open_client() as client:
            async for event in client.send_message(_build_request(message), context=context):
                yield reader.decode(event)

    @asynccontextmanager
    async def _open_client(self) -> AsyncIterator[Client]:
        if self._client is not None:
            yield self._client
            return
        import httpx
        from a2a.client import ClientConfig, ClientFactory

        async with make_http_client(httpx, self._timeout) as http:
            yield ClientFactory(ClientConfig(httpx_client=http)).create(cast("AgentCard", self._card))


class _UpdateDecoder:
    """Collects an agent's updates; an artifact that arrives in several pieces is used once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def decode(self, response: StreamResponse) -> Update:
        """Process one update."""
        kind = response.WhichOneof("payload")
        if kind == "message":
            text, data = _decode_parts(response.message.parts)
            return _build_update(response.message.context_id, response.message.task_id, text, data)
        if kind == "artifact_update":
            event = response.artifact_update
            self._seen.add(event.artifact.artifact_id)
            text, data = _decode_parts(event.artifact.parts)
            return _build_update(event.context_id, event.task_id, text, data, joined=event.append)
        if kind == "status_update":
            update = response.status_update
            return self._decode_status(update.context_id, update.task_id, update.status, ())
        task = response.task
        new = [artifact for artifact in task.artifacts if artifact.artifact_id not in self._seen]
        self._seen.update(artifact.artifact_id for artifact in new)
        return self._decode_status(task.context_id, task.id, task.status, new)

    def _decode_status(self, context: str, task: str, status: Any, artifacts: Iterable[Artifact]) -> Update:
        state = _parse_state(status.state)
        message, _ = _decode_parts(status.message.parts)
        text, data = _decode_parts(part for artifact in artifacts for part in artifact.parts)
        if state in _UNDER_WAY:
            return _build_update(context, task, text, data, state=state, note=message)
        answer = "\n".join(paragraph for paragraph in (text, message) if paragraph)
        return _build_update(context, task, answer, data, state=state)


def _build_update(
    context: str, task: str, text: str, data: tuple[Any, ...], *, joined: bool = False, **more: Any
) -> Update:
    return Update(text=text, data=data, joined=joined, context=context or None, task=task or None, **more)


def _decode_parts(parts: Iterable[Part]) -> tuple[str, tuple[Any, ...]]:
    """Return the text and the data of parts. Files have A2A's form."""
    texts: list[str] = []
    data: list[Any] = []
    for part in parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
        elif kind is not None:
            data.append(decode_part(part, "aiip.upstream-failed"))
    return "\n".join(texts), tuple(data)


def _parse_state(number: Any) -> State:
    from a2a.types import TaskState

    name = TaskState.Name(number).removeprefix("TASK_STATE_").lower().replace("_", "-")
    return "working" if name == "unspecified" else cast("State", name)


def _build_request(message: Outgoing) -> Any:
    from a2a.helpers import new_text_part
    from a2a.types import Message, Role, SendMessageRequest

    parts = [new_text_part(message.text)] if message.text else []
    if message.data is not None:
        parts.append(build_data_part(message.data))
    ids = {"message_id": message.id, "context_id": message.context or "", "task_id": message.task or ""}
    return SendMessageRequest(message=Message(role=Role.ROLE_USER, parts=parts, **ids))


async def _fetch_card(url: str, keys: bytes | None, timeout: float) -> AgentCard:  # noqa: ASYNC109
    import httpx
    from a2a.client import A2ACardResolver

    async with _translate_errors(), make_http_client(httpx, timeout) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    if keys is not None:
        _require_signature(card, keys)
    home = _parse_origin(url)
    if any(_parse_origin(interface.url) != home for interface in card.supported_interfaces):
        raise UsageError(
            "the agent's card names an interface of another origin",
            code="usage.bad-url",
            hint="pass an a2a.client.Client if this is intended",
        )
    return card


def _require_signature(card: AgentCard, keys: bytes) -> None:
    """Verify the card's signatures. By default the SDK would fetch a key from a URL in the card itself."""
    with require_extra("jwt"):
        from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
        from jwt import PyJWKSet
        from jwt.exceptions import InvalidKeyError
    known = {key.key_id: key for key in PyJWKSet.from_dict(json.loads(keys)).keys if key.key_type != "oct"}

    def key(kid: str | None, jku: str | None) -> Any:
        if kid not in known:
            raise InvalidKeyError("unknown key")  # the SDK then tries the next signature
        return known[kid]

    try:
        create_signature_verifier(key, list(CARD_ALGORITHMS))(card)
    except SignatureVerificationError as error:
        message = "no signature of the agent's card is by one of the keys"
        raise AIIPError(message, code="aiip.internal") from error


def _parse_origin(url: str) -> tuple[str, str, str]:
    uri = URI.parse(url).normalize()
    scheme = uri.scheme or ""
    return scheme, uri.host or "", uri.port or _PORTS.get(scheme, "")


@asynccontextmanager
async def _translate_errors() -> AsyncIterator[None]:
    """Convert errors of the SDK to AIIP errors, without their text, which may quote the agent."""
    from a2a.client.errors import A2AClientTimeoutError, AgentCardResolutionError
    from a2a.utils.errors import A2AError, InvalidParamsError, TaskNotFoundError

    rows: tuple[tuple[type[Exception], str, str, bool], ...] = (
        (A2AClientTimeoutError, "upstream-timeout", "the agent timed out", True),
        (InvalidParamsError, "invalid-input", "the agent does not accept this message", False),
        (TaskNotFoundError, "task-not-found", "the agent does not have this task", False),
        (AgentCardResolutionError, "upstream-unreachable", "the agent's card is not available", True),
        (A2AError, "upstream-unreachable", "the agent cannot be reached", True),
    )
    try:
        yield
    except A2AError as error:
        row = next(row for row in rows if isinstance(error, row[0]))
        raise AIIPError(row[2], code=f"aiip.{row[1]}", retryable=row[3]) from error
