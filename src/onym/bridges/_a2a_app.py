"""An `ai://` agent as an A2A agent: its card, and an adapter that turns SendMessage into an invocation."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from onym.bridges._a2a_data import carries, data_part, read_part
from onym.bridges._ai import RECEIPT, URI, Invoker, input_schema, is_json, json_of, plain, text_of
from onym.bridges._extra import needs
from onym.errors import OnymError
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor, RequestContextBuilder
    from a2a.types import AgentCard, Message, Part

    from onym.ai.records import Description, Result

__all__ = ["EXTENSION", "a2a_app"]

#: the A2A extension under which receipts travel in a message's metadata
EXTENSION: Final = "urn:onym:a2a:aiip-receipt:1"
#: members of an input that a message's text can be, the first that the resource knows
_TEXTS: Final = ("message", "prompt", "text")
_CODE: Final = "aiip-code"
#: an idempotency key (AIIP/HTTPS v1 3.11): 1 to 255 visible characters of ASCII, neither " nor \
_KEY: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")
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
    handler = DefaultRequestHandler(
        _executor(client, target, found),
        InMemoryTaskStore(),
        shown,
        request_context_builder=_contexts(),
    )
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


def _contexts() -> RequestContextBuilder:
    """Makes the context of a message that names none out of its id: sent again, it asks the same again."""
    from a2a.server.agent_execution import SimpleRequestContextBuilder

    class Lasting(SimpleRequestContextBuilder):
        """The SDK's own, but for new contexts."""

        async def build(
            self,
            context: Any,
            params: Any = None,
            task_id: str | None = None,
            context_id: str | None = None,
            task: Any = None,
        ) -> Any:
            asked = "" if params is None else params.message.message_id
            made = _digest(f"context {asked}") if asked else None
            return await super().build(context, params, task_id, context_id or made, task)

    return Lasting()


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
    from a2a.helpers import get_text_parts

    known = frozenset(input_schema(found.input).get("properties", ()))
    data = [read_part(each) for each in message.parts if each.WhichOneof("content") == "data"]
    text = "\n".join(get_text_parts(message.parts))
    given: dict[str, Any] = {}
    if text:
        given[next((each for each in _TEXTS if each in known), _TEXTS[0])] = text
    if data and "data" in known:
        given["data"] = data[0] if len(data) == 1 else data
    else:
        for each in data:
            given |= each if isinstance(each, dict) else {}
    return given | ({"context": message.context_id} if "context" in known else {})


def _reply(result: Result, message: Message, uri: AIURI) -> Message:
    from a2a.helpers import new_message

    reply = new_message(_parts(result), context_id=message.context_id)
    reply.extensions.append(EXTENSION)
    reply.metadata.update({EXTENSION: {RECEIPT: result.token, URI: str(uri)}})
    return reply


def _parts(result: Result) -> list[Part]:
    """Text as text, JSON as data; the `text` of an agent or a model is a part of its own.

    JSON that a data part would change, and what is not what it calls itself, goes as its octets.
    """
    from a2a.helpers import new_raw_part, new_text_part

    kind = result.content_type or "application/octet-stream"
    value, text = json_of(result), text_of(result)
    if value and carries(value[0]):
        said = value[0].get("text") if isinstance(value[0], dict) else None
        spoken = [new_text_part(said)] if isinstance(said, str) and said else []
        return [*spoken, data_part(value[0])]
    if text is not None and not is_json(kind):
        return [new_text_part(text, media_type=kind)]
    return [new_raw_part(result.body, media_type=kind)]


def _key(message_id: str) -> str | None:
    """The message's id as an idempotency key: the same message is the same invocation.

    One that is no key (AIIP/HTTPS v1 3.11) is its digest. A message without an id is like no other.
    """
    if not message_id:
        return None
    return message_id if _KEY.fullmatch(message_id) else _digest(message_id)


def _digest(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode("ascii")
