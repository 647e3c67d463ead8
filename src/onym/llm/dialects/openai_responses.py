"""OpenAI's Responses API format: POST /responses. Embeddings and models are those of the chat format.

Pure functions without network, clock or provider names: `encode_*` build bodies, `decode_*` read responses,
`stream_decoder` returns a push decoder for a streamed response.
The server stores nothing unless the caller asks for it: every request contains the whole conversation and
`store: false`.

A response fails with `status: "failed"` and an `error` with a code and a message. A stream fails with the event
`response.failed`, which contains such a response, or with the event `error`, which has its code beside its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from onym.errors import BadRequestError, ContentFilterError, OverloadedError, ProviderError, UsageError
from onym.llm.dialects import NO_EXCHANGE, Exchange, HeaderMap, Routes, WireSpec
from onym.llm.dialects import openai_chat as chat
from onym.llm.dialects.codec import (
    NO_TOOL_PARAMETERS,
    NO_USAGE,
    encode_data_url,
    find_finish_reason,
    get_text,
    make_malformed_error,
    make_part_error,
    make_schema_name,
    make_tool_call,
    merge_extra,
    parse_count,
    parse_json_object,
    set_member,
)
from onym.llm.dialects.errors import find_request_id, has_error
from onym.llm.dialects.streaming import EventDecoder, SSEFramer, make_stream_decoder
from onym.llm.parameters import list_wire_names
from onym.llm.types import (
    Carried,
    Completion,
    ContentPart,
    DocumentPart,
    Event,
    FinishReason,
    Message,
    ReasoningDelta,
    Request,
    TextDelta,
    TextPart,
    Tool,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from onym.net.sse import SSEEvent

_ERROR_CODES: Mapping[str, type[ProviderError]] = {
    "bio_policy": ContentFilterError,
    "cyber_policy": ContentFilterError,
    "image_content_policy_violation": ContentFilterError,
    "misalignment_policy_violation": ContentFilterError,
    "server_is_overloaded": OverloadedError,
    "slow_down": OverloadedError,
    "vector_store_timeout": OverloadedError,
}

#: the caller's fault, said in a response that came with 200
_BAD_REQUEST_CODES = (
    "data_residency_mismatch",
    "empty_image_file",
    "failed_to_download_image",
    "image_file_not_found",
    "image_file_too_large",
    "image_parse_error",
    "image_too_large",
    "image_too_small",
    "invalid_base64_image",
    "invalid_image",
    "invalid_image_format",
    "invalid_image_mode",
    "invalid_image_url",
    "invalid_prompt",
    "unsupported_image_media_type",
)


def _is_failure(data: Mapping[str, Any]) -> bool:
    return (
        has_error(data)
        or data.get("status") == "failed"
        or data.get("type") == "error"
        or data.get("object") == "error"
    )


ERRORS = replace(
    chat.ERRORS,
    codes={**chat.ERROR_CODES, **_ERROR_CODES},
    wide={**chat.WIDE_CODES, **dict.fromkeys(_BAD_REQUEST_CODES, BadRequestError)},
    is_failure=_is_failure,
    hint="does this host speak OpenAI's Responses API?",
)


DIALECT = "openai_responses"
#: what asks for the reasoning in a form that can be sent back
_ENCRYPTED = "reasoning.encrypted_content"
#: between the parts of a reasoning: each is a paragraph, or several, of its own
_PARAGRAPH = "\n\n"

_FINISHES: Mapping[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class _ItemText(NamedTuple):
    """One part of what an item says; `kind` and `place` tell the parts of one item apart."""

    kind: str
    place: int
    text: str


def _decode_finish_reason(response: Mapping[str, Any], *, calls: bool) -> FinishReason:
    """Why the answer ended, in Onym's vocabulary; `calls` says whether it holds tool calls."""
    if response.get("status") == "completed":
        return "tool_calls" if calls else "stop"
    details = response.get("incomplete_details")
    return find_finish_reason(_FINISHES, details.get("reason") if isinstance(details, dict) else None)


def _iter_texts(item: Mapping[str, Any]) -> Iterator[_ItemText]:
    """The texts of a message (what it refuses with included) or of a reasoning item, in order."""
    if item.get("type") == "message":
        yield from _iter_parts(item.get("content"), {"output_text": "text", "refusal": "refusal"})
    elif item.get("type") == "reasoning":
        yield from _iter_parts(item.get("summary"), {"summary_text": "text"})
        yield from _iter_parts(item.get("content"), {"reasoning_text": "text"})


def _iter_parts(parts: Any, kinds: Mapping[str, str]) -> Iterator[_ItemText]:
    if parts is None:
        return
    if not isinstance(parts, list):
        raise make_malformed_error("the content of an item is not a list")
    for place, part in enumerate(parts):
        if not isinstance(part, dict):
            raise make_malformed_error("a part of the content is not an object")
        kind = part.get("type")
        if isinstance(kind, str) and kind in kinds and (found := get_text(part, kinds[kind])):
            yield _ItemText(kind, place, found)


def _decode_tool_call(item: Mapping[str, Any], index: int) -> ToolCall:
    """The tool call in a `function_call` item."""
    identity = get_text(item, "call_id") or get_text(item, "id") or f"call_{index}"
    return make_tool_call(identity, item.get("name"), item.get("arguments"))


def _decode_carried(items: Iterable[Mapping[str, Any]]) -> Carried | None:
    """The turn as the API wrote it, where it holds something encrypted.

    Reasoning without it is left out: it is known by its id alone, to a server that keeps nothing.
    """
    items = tuple(items)
    if not any(get_text(item, "encrypted_content") for item in items):
        return None
    kept = tuple(
        item for item in items if item.get("type") != "reasoning" or get_text(item, "encrypted_content")
    )
    return Carried(dialect=DIALECT, parts=kept)


def _decode_usage(record: Any) -> Usage:
    """Token counts, None for what is absent or no count."""
    if not isinstance(record, dict):
        return NO_USAGE
    taken, given = record.get("input_tokens_details"), record.get("output_tokens_details")
    return Usage(
        input_tokens=parse_count(record.get("input_tokens")),
        output_tokens=parse_count(record.get("output_tokens")),
        cached_tokens=parse_count(taken.get("cached_tokens")) if isinstance(taken, dict) else None,
        reasoning_tokens=parse_count(given.get("reasoning_tokens")) if isinstance(given, dict) else None,
    )


PARAMETERS = list_wire_names("openai_responses")

_TOOL_CHOICES = frozenset({"auto", "none", "required"})
#: what says how a response is stored: one that runs on without its caller, or joins a kept conversation, is
_STORAGE_NAMES = frozenset({"store", "background", "conversation"})


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST /responses.

    System messages that come first are `instructions`, later ones keep their place. A message's `name` has
    no place in this API and is left out. `store` is false unless pass-through parameters say how the response
    is stored: the API's own default keeps it for 30 days. Pass-through parameters come last and never
    replace what is already there.
    """
    system, rest = _split_system(request.messages)
    body: dict[str, Any] = {"model": request.model}
    if system:
        body["instructions"] = "\n\n".join(system)
    body["input"] = [item for message in rest for item in _encode_items(message)]
    for name, value in request.params.items():
        wire = spec.names.get(name) or PARAMETERS.get(name)
        if wire is not None:
            set_member(body, wire, _encode_value(name, value, request.schema))
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _encode_tool_choice(request.tool_choice)
    if request.stream:
        body["stream"] = True
    if _STORAGE_NAMES.isdisjoint(request.extra):
        body["store"] = False
    if _is_reasoning(request) and "include" not in request.extra:
        body["include"] = [_ENCRYPTED]
    merge_extra(body, request.extra)
    return body


def _is_reasoning(request: Request) -> bool:
    """Whether the model surely is one that reasons: the API refuses to encrypt the reasoning of any other."""
    return "reasoning" in request.extra or any(
        message.carried is not None and message.carried.dialect == DIALECT for message in request.messages
    )


def _split_system(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """The texts of the system messages at the beginning, and the messages after them."""
    texts: list[str] = []
    for message in messages:
        content = message.content
        if message.role != "system":
            break
        if isinstance(content, str):
            texts.append(content)
        elif all(isinstance(part, TextPart) for part in content):
            texts.append("".join(part.text for part in content if isinstance(part, TextPart)))
        else:
            break
    if len(texts) == len(messages):
        # without input there is nothing to answer
        return [], messages
    return texts, messages[len(texts) :]


def _encode_items(message: Message) -> Iterator[Mapping[str, Any]]:
    """What one turn is on the wire: an assistant's turn and its tool calls are items of their own."""
    if message.role == "tool":
        yield _encode_tool_result(message)
    elif message.role != "assistant":
        yield {"type": "message", "role": message.role, "content": _encode_content(message)}
    elif message.carried is not None and message.carried.dialect == DIALECT:
        # another server may have written them: what claims to be the developer's or the user's is not said
        yield from (part for part in message.carried.parts if part.get("role", "assistant") == "assistant")
    else:
        if message.content:
            yield {"type": "message", "role": "assistant", "content": _encode_assistant_content(message)}
        for call in message.tool_calls:
            yield {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }


def _encode_assistant_content(message: Message) -> list[dict[str, Any]]:
    """What the assistant said before. Only this form is taken by all servers, a plain text is not."""
    content = message.content
    texts = [content] if isinstance(content, str) else [_require_text(part) for part in content]
    return [{"type": "output_text", "text": text} for text in texts]


def _require_text(part: ContentPart) -> str:
    if not isinstance(part, TextPart):
        raise make_part_error("image or document in an assistant's turn", "OpenAI Responses")
    return part.text


def _encode_tool_result(message: Message) -> dict[str, Any]:
    if message.tool_call_id is None:
        raise UsageError("a tool's message has a tool_call_id", code="usage.bad-message")
    return {
        "type": "function_call_output",
        "call_id": message.tool_call_id,
        "output": _encode_content(message),
    }


def _encode_content(message: Message) -> str | list[dict[str, Any]]:
    content = message.content
    return content if isinstance(content, str) else [_encode_part(part) for part in content]


def _encode_part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, DocumentPart):
        return _encode_file(part)
    return {
        "type": "input_image",
        "image_url": part.url if part.data is None else encode_data_url(part),
        # the API's own default; its types, and servers that check by them, ask for one
        "detail": part.detail or "auto",
    }


def _encode_file(part: DocumentPart) -> dict[str, Any]:
    if part.data is None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": encode_data_url(part)}


def _encode_tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "type": "function",
        "name": tool.name,
        "parameters": tool.parameters or NO_TOOL_PARAMETERS,
        # this API reads a missing strict as true, and then demands more of the schema than it says
        "strict": bool(tool.strict),
    }
    if tool.description is not None:
        out["description"] = tool.description
    return out


def _encode_tool_choice(choice: str) -> str | dict[str, Any]:
    return choice if choice in _TOOL_CHOICES else {"type": "function", "name": choice}


def _encode_value(name: str, value: Any, schema: Mapping[str, Any] | None) -> Any:
    if name == "stop":
        return list(value)
    if name != "format":
        return value
    if value != "json_schema":
        return {"type": "json_object" if value == "json" else value}
    schema = schema or {}
    return {"type": "json_schema", "name": make_schema_name(schema), "schema": schema, "strict": True}


@ERRORS.locate_errors
def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NO_EXCHANGE) -> Completion:
    """The completion in a 2xx answer to POST /responses.

    What the model refuses with is text as well. Raises MalformedResponseError, or the typed error that
    the body holds.
    """
    data = ERRORS.decode_object(status, headers, body, exchange)
    return _decode_completion(data, headers, exchange)


def _require_items(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items of a response's output."""
    items = response.get("output")
    if not isinstance(items, list):
        raise make_malformed_error("it holds no output")
    if not all(isinstance(item, dict) for item in items):
        raise make_malformed_error("an item of the output is not an object")
    return items


def _decode_completion(data: Mapping[str, Any], headers: HeaderMap, exchange: Exchange) -> Completion:
    items = _require_items(data)
    said: dict[bool, list[str]] = {False: [], True: []}
    for item in items:
        said[item.get("type") == "reasoning"].extend(each.text for each in _iter_texts(item))
    calls = [item for item in items if item.get("type") == "function_call"]
    return Completion(
        text="".join(said[False]),
        model=get_text(data, "model") or exchange.model,
        finish_reason=_decode_finish_reason(data, calls=bool(calls)),
        reasoning=_PARAGRAPH.join(said[True]) or None,
        tool_calls=tuple(_decode_tool_call(call, index) for index, call in enumerate(calls)),
        usage=_decode_usage(data.get("usage")),
        request_id=find_request_id(headers, exchange),
        carried=_decode_carried(items),
        raw=data,
    )


_END_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})
#: what brings text: the kind of part that it belongs to, and the members with its place and with the text
_TEXT_EVENTS: Mapping[str, tuple[str, str, str]] = {
    "response.output_text.delta": ("output_text", "content_index", "delta"),
    "response.output_text.done": ("output_text", "content_index", "text"),
    "response.refusal.delta": ("refusal", "content_index", "delta"),
    "response.refusal.done": ("refusal", "content_index", "refusal"),
    "response.reasoning_summary_text.delta": ("summary_text", "summary_index", "delta"),
    "response.reasoning_summary_text.done": ("summary_text", "summary_index", "text"),
    "response.reasoning_text.delta": ("reasoning_text", "content_index", "delta"),
    "response.reasoning_text.done": ("reasoning_text", "content_index", "text"),
    "response.function_call_arguments.delta": ("arguments", "content_index", "delta"),
    "response.function_call_arguments.done": ("arguments", "content_index", "arguments"),
}
_REASONING_PARTS = frozenset({"summary_text", "reasoning_text"})


class _OutputItem:
    """One item of the output as far as it has come."""

    __slots__ = ("call", "said", "whole")

    def __init__(self) -> None:
        #: the parts whose text has been handed out: what repeats them whole is not handed out again
        self.said: set[tuple[str, int]] = set()
        #: its place among the tool calls, where it is one
        self.call: int | None = None
        self.whole: Mapping[str, Any] | None = None


class StreamDecoder(EventDecoder[SSEEvent]):
    """Server-sent events of a response to events.

    Text is told once, by the pieces that it comes in, or by the event that repeats it whole where no piece
    came. `Finish` comes at the response's end; `[DONE]` is taken for one where a server sends no other.
    """

    __slots__ = ("_calls", "_items", "_known", "_thought")

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NO_EXCHANGE, *, status: int = 200
    ) -> None:
        super().__init__(SSEFramer(), ERRORS, request_id, exchange, status=status)
        self._items: list[_OutputItem] = []
        #: the items by id (a text) and by place in the output (a number)
        self._known: dict[object, _OutputItem] = {}
        self._calls = 0
        #: the part that the last piece of reasoning belonged to
        self._thought: object = None

    def _decode_frame(self, frame: SSEEvent, events: list[Event]) -> bool:
        if frame.data.startswith("[DONE]"):
            if not self._items:
                raise make_malformed_error("the stream holds no answer")
            return True
        record = parse_json_object(frame.data)
        if record is None:
            raise make_malformed_error("an event of the stream is not a JSON object")
        kind = record.get("type")
        if not isinstance(kind, str) or not kind.startswith("response."):
            if frame.event == "error" or ERRORS.is_failure(record):
                raise self._make_stream_error(record)
            return False
        if isinstance(response := record.get("response"), dict):
            self._update_response(response)
        if kind in _END_EVENTS:
            self._decode_end(response, events)
            return True
        self._decode_event(kind, record, events)
        return False

    def _decode_event(self, kind: str, record: Mapping[str, Any], events: list[Event]) -> None:
        if kind in _TEXT_EVENTS:
            part, place, member = _TEXT_EVENTS[kind]
            at, said = record.get(place), record.get(member)
            key = part, at if type(at) is int else 0
            item = self._find_item(record.get("item_id"), record.get("output_index"))
            if not kind.endswith(".done") or key not in item.said:
                self._append_text(item, key, said, events)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            whole = record.get("item")
            if not isinstance(whole, dict):
                raise make_malformed_error("an item of the output is not an object")
            done = kind.endswith(".done")
            item = self._find_item(whole.get("id"), record.get("output_index"), fresh=not done)
            self._decode_item(item, whole, events, done=done)

    def _update_response(self, response: Mapping[str, Any]) -> None:
        """What every event that holds the response says of it."""
        self._model = get_text(response, "model") or self._model
        if response.get("usage") is not None:
            self.usage = _decode_usage(response["usage"])

    def _decode_end(self, response: Any, events: list[Event]) -> None:
        if not isinstance(response, dict):
            raise make_malformed_error("the end of the stream holds no response")
        if ERRORS.is_failure(response):
            raise self._make_stream_error(response)
        if not self._items and "output" in response:
            # a server that streams nothing but the end
            for place, whole in enumerate(_require_items(response)):
                self._decode_item(self._find_item(None, place), whole, events, done=True)
        self._reason = _decode_finish_reason(response, calls=self._calls > 0)
        self._carried = _decode_carried(item.whole for item in self._items if item.whole is not None)

    def _find_item(self, identity: Any, place: Any, *, fresh: bool = False) -> _OutputItem:
        """The item that an event is about; `fresh` says that it is announced, and places do not count.

        Some servers name items by id alone, some count no places, some change an id from event to event.
        """
        names = [name for name, kind in ((identity, str), (place, int)) if type(name) is kind and name != ""]
        found = self._known.get(identity) if identity in names else None
        if found is None and not fresh:
            found = self._known.get(place) if names else self._items[-1] if self._items else None
        if found is None:
            found = _OutputItem()
            self._items.append(found)
        self._known.update(dict.fromkeys(names, found))
        return found

    def _decode_item(
        self, item: _OutputItem, whole: Mapping[str, Any], events: list[Event], *, done: bool
    ) -> None:
        """An item as it begins, or as it is when done."""
        if whole.get("type") == "function_call":
            call = _decode_tool_call(whole, self._calls if item.call is None else item.call)
            if item.call is None:
                item.call, self._calls = self._calls, self._calls + 1
                events.append(ToolCallDelta(index=item.call, id=call.id, name=call.name))
            if done and not item.said:
                self._append_text(item, ("arguments", 0), call.arguments, events)
        if done:
            item.whole = whole
            for kind, place, said in _iter_texts(whole):
                if (kind, place) not in item.said:
                    self._append_text(item, (kind, place), said, events)

    def _append_text(self, item: _OutputItem, part: tuple[str, int], said: Any, events: list[Event]) -> None:
        if not isinstance(said, str):
            raise make_malformed_error("a piece of text is not a text")
        if not said:
            return
        item.said.add(part)
        if part[0] == "arguments":
            if item.call is None:
                raise make_malformed_error("the arguments of a tool call came before the call")
            events.append(ToolCallDelta(index=item.call, arguments=said))
        elif part[0] in _REASONING_PARTS:
            thought = id(item), part
            if self._thought not in (None, thought):
                said = _PARAGRAPH + said
            self._thought = thought
            events.append(ReasoningDelta(said))
        else:
            events.append(TextDelta(said))


name = DIALECT
routes = Routes(chat="/responses", embed="/embeddings", models="/models")
headers = ()
parameters = PARAMETERS
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
stream_decoder = make_stream_decoder(decode_chat, StreamDecoder)
decode_error = ERRORS.decode_error
decode_embed = chat.decode_embed
decode_model = chat.decode_model
decode_models = chat.decode_models
encode_embed = chat.encode_embed
