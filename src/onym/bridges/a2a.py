"""A2A in both directions: an A2A agent as an `ai://` resource, and an `ai://` agent as an A2A agent.

    app.add("/agent/planner", await a2a_agent("https://agents.example"), effects="write")
    asgi = await a2a_app(AsyncAIClient(), "ai://factory.example/agent/planner", url="https://factory.example/a2a")

The official SDK speaks A2A over its own connections: the operator chooses the URLs, and Onym's network policy
does not apply to them. Numbers in A2A's data parts are doubles: whole numbers are restored as integers, and
values that a double would change are rejected.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, cast

from onym.ai.endpoint.kinds import AgentHandler, Outgoing, State, Update, agent
from onym.bridges import _sdk as sdk
from onym.bridges._a2a_store import SharedTasks
from onym.bridges._a2a_tasks import EXTENSION, make_executor, make_handler
from onym.bridges.approvals import PermissionPages
from onym.common.text import encode_base64url
from onym.errors import AIIPError, OnymError, UsageError
from onym.sign.keys import CARD_ALGORITHMS
from onym.store.shared import MemoryStore, StoreLimits
from onym.uri.ai import AIURI
from onym.uri.generic import URI

if TYPE_CHECKING:
    from a2a.client import Client
    from a2a.types import AgentCard, Artifact, Part, StreamResponse

    from onym.ai.records import Description
    from onym.bridges.approvals import Approvals
    from onym.sign.keys import Signer
    from onym.store.shared import SharedStore

__all__ = ["EXTENSION", "a2a_agent", "a2a_app"]

#: bytes of a request
_MAX_BODY: Final = 4 * 1024 * 1024
#: seconds that clients may use a card without asking again
_CARD_SECONDS: Final = 300
#: of the store in memory; a task may have an answer of 4 MiB
_MEMORY: Final = StoreLimits(entries=100_000, kind=10_000, value=16 * 1024 * 1024)
_App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


async def a2a_app(
    client: sdk.Invoker,
    uri: str | AIURI,
    *,
    url: str,
    card: AgentCard | None = None,
    signer: Signer | None = None,
    approvals: Approvals | None = None,
    approval_page: Callable[[OnymError], str | None] | None = None,
    rpc_path: str = "/",
    store: SharedStore | None = None,
) -> _App:
    """Return an ASGI app that is an A2A agent, of A2A 1.0 and 0.3. Each message invokes the resource.

    `url` is the public URL of the app, with its JSON-RPC interface at `rpc_path`. Your own `card` is served
    unchanged, with its signatures; without one, the card is made from the resource's description, and signed
    by `signer`, such as `KeyStore.signer`. A result has its receipt in the metadata, under the extension
    `EXTENSION`.

    The answer to a message is a Task if the resource is an agent (its output has a `state`), if the caller
    streams or does not wait, and if the invocation is refused or fails; otherwise it is a Message. Tasks
    belong to the user that a middleware in front of the app puts into `scope["user"]`, as Starlette's
    authentication does. Without a user, a task can be reached only by its ID, and none are listed.

    Tasks are kept for 24 hours, at most 1,000 of a user: in memory, or in a `store` that the processes of the
    agent share, such as `open_shared_store("tasks.sqlite")` or one of PostgreSQL. Then each process answers
    for the tasks of all, and tasks outlive their process. What it was running when it was killed goes on if
    the resource has long tasks, and is FAILED otherwise: send the message again with the same ID.

    If the endpoint wants an approval or a sign-in, the task is AUTH_REQUIRED, with a link. With `approvals`,
    a request that people must approve is brought to them, and the link is that of their page; for other
    errors, and without `approvals`, it is what `approval_page` returns. A further message to this task sends
    the same request again, with people's evidence if they have approved it. What the message says is never
    taken as the approval (A2A 1.0 7.6.4).

    Every caller of the app acts with the client's authority: authenticate callers, or give the client no
    credentials.

    Raises MissingExtraError, UsageError, AIURIError and the errors of `AsyncAIClient.describe`.
    """
    with sdk.require_extra("a2a", "a2a"):
        from a2a.server.routes import create_jsonrpc_routes
        from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
    if card is not None and signer is not None:
        raise UsageError(
            "card and signer cannot both be given, because your own card is never changed",
            code="usage.bad-argument",
            hint="sign the card yourself, or leave out one of them",
        )
    target = AIURI.parse(uri)
    description = await client.describe(target)
    shown = card or _build_card(description, url.rstrip("/") + rpc_path)
    documents = _encode_card(shown, signer)
    shared = MemoryStore(limits=_MEMORY) if store is None else store
    tasks = SharedTasks(shared, str(target.without_query))
    executor = make_executor(client, target, description, PermissionPages(approvals, approval_page), tasks)
    handler = make_handler(executor, shown, client, target, description, tasks)
    (calls,) = create_jsonrpc_routes(handler, rpc_path, enable_v0_3_compat=True)
    serve_card = _make_card_app(*documents)

    async def close() -> None:
        await handler.aclose()
        await tasks.close()

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _run_lifespan(receive, send, close)
        elif scope["path"] == AGENT_CARD_WELL_KNOWN_PATH:
            await serve_card(scope, receive, send)
        elif scope["method"] == "POST" and scope["path"] == rpc_path and not _is_json_request(scope):
            await _refuse_media_type(send)
        else:
            await calls(scope, _limit_body(receive), send)

    return app


def _build_card(description: Description, url: str) -> AgentCard:
    from a2a.types import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill

    name = sdk.sanitize_text(description.title or description.uri, 120)
    about = f"{name}: the resource {description.uri}, with signed results (effects: {description.effects})"
    shown = {sdk.URI_KEY: description.uri}
    extension = AgentExtension(
        uri=EXTENSION, description="Each result has its receipt in the metadata", params=shown
    )
    return AgentCard(
        name=name,
        description=about,
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version)
            for version in ("1.0", "0.3")
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extensions=[extension]),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[AgentSkill(id="invoke", name=name, description=about, tags=["ai-uri"])],
    )


def _encode_card(card: AgentCard, signer: Signer | None) -> tuple[bytes, bytes]:
    """Return the card as clients of 1.0 know it, and with 0.3's members for all others.

    A card that its owner has signed is the same for all. The signer's signature is over the RFC 8785 form of
    the members of 1.0, as the SDK verifies it. The second document has another one over all of it, for
    clients that verify what they have received.
    """
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]

    plain = MessageToDict(card)
    if card.signatures:
        document = json.dumps(plain, ensure_ascii=False).encode()
        return document, document
    plain, both = _drop_empty(plain), _drop_empty(agent_card_to_dict(card))
    if signer is not None:
        first, second = _sign_card(signer, plain), _sign_card(signer, both)
        plain["signatures"], both["signatures"] = [first], [first, second]
    return json.dumps(plain, ensure_ascii=False).encode(), json.dumps(both, ensure_ascii=False).encode()


def _sign_card(signer: Signer, members: Mapping[str, Any]) -> dict[str, str]:
    # the SDK of A2A knows Ed25519 only by its older name (RFC 9864 2.2)
    algorithm = "EdDSA" if signer.algorithm == "Ed25519" else signer.algorithm
    header = {"alg": algorithm, "kid": signer.kid, "typ": "JOSE"}
    protected = encode_base64url(canonicalize({name: value for name, value in header.items() if value}))
    signed = f"{protected}.{encode_base64url(canonicalize(members))}"
    return {"protected": protected, "signature": encode_base64url(signer.sign(signed.encode()))}


def canonicalize(members: Mapping[str, Any]) -> bytes:
    """Return the RFC 8785 form of a JSON object without numbers and with ASCII names, such as a card.

    Raises UsageError for any other value.
    """

    def require_plain(value: Any) -> None:
        for level in sdk.iter_levels(value):
            for item in level:
                names_are_ascii = not isinstance(item, Mapping) or all(name.isascii() for name in item)
                if not names_are_ascii or (isinstance(item, int | float) and not isinstance(item, bool)):
                    raise UsageError(
                        "a signed card cannot have numbers, or names that are not ASCII",
                        code="usage.bad-argument",
                    )

    require_plain(members)
    return json.dumps(members, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _drop_empty(value: Any) -> Any:
    """Leave out empty texts, lists and objects, as A2A 1.0 8.4.1 wants before a card is signed."""
    if isinstance(value, dict):
        members = {name: _drop_empty(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member not in ("", None, [], {})}
    if isinstance(value, list):
        return [member for member in map(_drop_empty, value) if member not in ("", None, [], {})]
    return value


def _make_card_app(plain: bytes, both: bytes) -> _App:
    """Serve the card with an entity tag, so that clients can keep it (A2A 1.0 8.6)."""
    shared = {
        "cache-control": f"public, max-age={_CARD_SECONDS}",
        "last-modified": formatdate(time.time(), usegmt=True),
        "vary": "A2A-Version",
    }

    async def serve(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            await _respond(send, 405, b"", {"allow": "GET, HEAD"})
            return
        fields = dict(scope["headers"])
        # no version means 0.3 (A2A 1.0 3.6.2)
        document = plain if fields.get(b"a2a-version", b"").startswith(b"1.") else both
        tag = f'"{hashlib.sha256(document).hexdigest()[:32]}"'
        known = fields.get(b"if-none-match", b"").decode("latin-1").split(",")
        if tag in {choice.strip().removeprefix("W/") for choice in known}:
            await _respond(send, 304, b"", {**shared, "etag": tag})
            return
        body = b"" if scope["method"] == "HEAD" else document
        await _respond(send, 200, body, {**shared, "etag": tag, "content-type": "application/json"})

    return serve


async def _respond(send: Any, status: int, body: bytes, fields: Mapping[str, str]) -> None:
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _run_lifespan(receive: Any, send: Any, close: Callable[[], Awaitable[None]]) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await close()
    await send({"type": "lifespan.shutdown.complete"})


def _is_json_request(scope: MutableMapping[str, Any]) -> bool:
    return sdk.is_json(dict(scope["headers"]).get(b"content-type", b"").decode("latin-1"))


async def _refuse_media_type(send: Any) -> None:
    """Answer as A2A 1.0 5.4 wants: ContentTypeNotSupportedError."""
    from a2a.server.request_handlers import build_error_response
    from a2a.utils.errors import ContentTypeNotSupportedError

    error = ContentTypeNotSupportedError("a JSON-RPC request must have Content-Type: application/json")
    body = json.dumps(build_error_response(None, error)).encode()
    await _respond(send, 415, body, {"content-type": "application/json"})


def _limit_body(receive: Any) -> Any:
    """Return `receive` for bodies of a limited size; the SDK reads a whole body into memory."""
    size = 0

    async def limited() -> Any:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        # a body without its end is not JSON, so the SDK refuses it
        return {"type": "http.request", "body": b"", "more_body": False} if size > _MAX_BODY else message

    return limited


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
    with sdk.require_extra("a2a", "a2a"):
        import a2a.client  # noqa: F401 - a missing package is reported now
    if not isinstance(agent_at, str):
        return agent(_Agent(agent_at, None, timeout), title=title)
    card = await _fetch_card(agent_at, keys, timeout)
    return agent(_Agent(None, card, timeout), title=title or sdk.sanitize_text(card.name, 120) or None)


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

        async with sdk.make_http_client(httpx, self._timeout) as http:
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
            data.append(sdk.decode_part(part, "aiip.upstream-failed"))
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
        parts.append(sdk.build_data_part(message.data))
    ids = {"message_id": message.id, "context_id": message.context or "", "task_id": message.task or ""}
    return SendMessageRequest(message=Message(role=Role.ROLE_USER, parts=parts, **ids))


async def _fetch_card(url: str, keys: bytes | None, timeout: float) -> AgentCard:  # noqa: ASYNC109
    import httpx
    from a2a.client import A2ACardResolver

    async with _translate_errors(), sdk.make_http_client(httpx, timeout) as http:
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
    with sdk.require_extra("jwt", "a2a"):
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
