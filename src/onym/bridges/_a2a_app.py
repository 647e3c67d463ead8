"""An `ai://` agent as an A2A agent: its card, and an adapter that turns SendMessage into an invocation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from onym.bridges._ai import RECEIPT, URI, Invoker, is_json, plain
from onym.bridges._extra import needs
from onym.errors import OnymError
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.types import AgentCard, Message, Part

    from onym.ai.records import Description, Result

__all__ = ["EXTENSION", "a2a_app"]

#: the A2A extension under which receipts travel in a message's metadata
EXTENSION: Final = "urn:onym:a2a:aiip-receipt:1"
#: members of an input that a message's text can be, the first that the resource knows
_TEXTS: Final = ("message", "prompt", "text")
_CODE: Final = "aiip-code"
_LONGEST_KEY: Final = 255
_App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


async def a2a_app(
    client: Invoker, uri: str | AIURI, *, url: str, card: AgentCard | None = None, rpc_path: str = "/"
) -> _App:
    """An ASGI app that is an A2A agent: each message invokes the resource, which is described now.

    `url` is where the app is reached, its JSON-RPC interface at `rpc_path`. A `card` of your own is served as
    it is, its signatures with it; without one it is made of the description. A reply has the receipt in its
    metadata, under the extension `EXTENSION`; what the resource refuses is an A2A error with the code.

    Whoever reaches the app acts with the client's authority: have them sign in, or give the client none.

    Raises MissingExtraError, AIURIError, and what `AsyncAIClient.describe` raises.
    """
    with needs("a2a", "a2a"):
        from a2a.server.request_handlers import DefaultRequestHandler
        from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
        from a2a.server.tasks import InMemoryTaskStore
    target = AIURI.parse(uri)
    found = await client.describe(target)
    shown = card or _card(found, url.rstrip("/") + rpc_path)
    # replies are whole messages, so nothing is ever stored
    handler = DefaultRequestHandler(_executor(client, target, found), InMemoryTaskStore(), shown)
    (cards,), (calls,) = create_agent_card_routes(shown), create_jsonrpc_routes(handler, rpc_path)

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await (cards if scope.get("path") == cards.path else calls)(scope, receive, send)

    return app


def _card(found: Description, url: str) -> AgentCard:
    from a2a.types import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill

    name = plain(found.title or found.uri, 120)
    about = f"{name}: the resource {found.uri}, with signed results (effects: {found.effects})"
    extension = AgentExtension(
        uri=EXTENSION, description="Each reply has the receipt of its result", params={URI: found.uri}
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


def _executor(client: Invoker, uri: AIURI, found: Description) -> AgentExecutor:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.utils.errors import InternalError, InvalidParamsError, UnsupportedOperationError

    class Invoking(AgentExecutor):
        """One message, one invocation."""

        async def execute(self, context: Any, event_queue: Any) -> None:
            message = context.message
            try:
                result = await client.invoke(
                    uri, _arguments(message, found), idempotency_key=_key(message.message_id)
                )
            except OnymError as error:
                kind = InvalidParamsError if error.code == "aiip.invalid-input" else InternalError
                raise kind(plain(error.message), data={_CODE: error.code, URI: str(uri)}) from error
            await event_queue.enqueue_event(_reply(result, message, uri))

        async def cancel(self, context: Any, event_queue: Any) -> None:
            raise UnsupportedOperationError("an invocation ends with its request")

    return Invoking()


def _arguments(message: Message, found: Description) -> dict[str, Any]:
    """The input that a message stands for, as the resource's schema has it."""
    from a2a.helpers import get_data_parts, get_text_parts

    known = _members(found.input)
    data, text = get_data_parts(message.parts), "\n".join(get_text_parts(message.parts))
    given: dict[str, Any] = {}
    if text:
        given[next((each for each in _TEXTS if each in known), _TEXTS[0])] = text
    if data and "data" in known:
        given["data"] = data[0] if len(data) == 1 else data
    elif data and isinstance(data[0], dict):
        given |= data[0]
    return given | ({"context": message.context_id} if "context" in known else {})


def _members(schema: Mapping[str, Any] | None) -> frozenset[str]:
    found = (schema or {}).get("properties")
    return frozenset(found) if isinstance(found, Mapping) else frozenset()


def _reply(result: Result, message: Message, uri: AIURI) -> Message:
    from a2a.helpers import new_message

    reply = new_message(_parts(result), context_id=message.context_id)
    reply.extensions.append(EXTENSION)
    reply.metadata.update({EXTENSION: {RECEIPT: result.token, URI: str(uri)}})
    return reply


def _parts(result: Result) -> list[Part]:
    """Text as text, JSON as data; the `text` of an agent or a model is a part of its own."""
    from a2a.helpers import new_data_part, new_raw_part, new_text_part

    kind = result.content_type or "application/octet-stream"
    if is_json(kind):
        value = result.json()
        said = value.get("text") if isinstance(value, dict) else None
        spoken = [new_text_part(said)] if isinstance(said, str) and said else []
        return [*spoken, new_data_part(value)]
    if kind.startswith("text/"):
        return [new_text_part(result.body.decode("utf-8", "replace"), media_type=kind)]
    return [new_raw_part(result.body, media_type=kind)]


def _key(message_id: str) -> str:
    """The message's id as an idempotency key: the same message is the same invocation."""
    from hashlib import sha256

    fits = 0 < len(message_id) <= _LONGEST_KEY and message_id.isascii() and message_id.isprintable()
    return message_id if fits else sha256(message_id.encode()).hexdigest()
