"""OpenAI's Responses API format: POST /responses. Embeddings and models are those of the chat format.

Every request contains the whole conversation and `store: false`, unless the caller asks for storage. A stream
fails with `response.failed`, which contains a failed response, or with `error`, which has its code itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from onym import errors
from onym.llm import types
from onym.llm.dialects import Exchange, HeaderMap, Routes, WireSpec, codec, find_request_id, has_error
from onym.llm.dialects import openai_chat as chat
from onym.llm.dialects.streaming import EventDecoder, make_stream_decoder
from onym.llm.dialects.strict_schema import convert_tool, make_openai_schema
from onym.llm.parameters import list_wire_names
from onym.net.messages import SSEEvent

_ERROR_CODES: Mapping[str, type[errors.ProviderError]] = codec.invert_table(
    {
        errors.ContentFilterError: (
            "bio_policy cyber_policy image_content_policy_violation misalignment_policy_violation"
        ),
        errors.OverloadedError: "server_is_overloaded slow_down vector_store_timeout",
    }
)

#: errors caused by the request, in a response with status 200
_BAD_REQUEST_CODES: Mapping[str, type[errors.ProviderError]] = codec.invert_table(
    {
        errors.BadRequestError: (
            "data_residency_mismatch empty_image_file failed_to_download_image image_file_not_found "
            "image_file_too_large image_parse_error image_too_large image_too_small "
            "invalid_base64_image invalid_image invalid_image_format invalid_image_mode "
            "invalid_image_url invalid_prompt unsupported_image_media_type"
        )
    }
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
    wide={**chat.WIDE_CODES, **_BAD_REQUEST_CODES},
    is_failure=_is_failure,
    hint="Check that this host supports OpenAI's Responses API.",
)


DIALECT = "openai_responses"
#: requests the reasoning in a form that can be sent back
_ENCRYPTED = "reasoning.encrypted_content"
#: separates the parts of a reasoning: each part is one or more paragraphs
_PARAGRAPH = "\n\n"

#: items that are the answer or a part of the turn that Onym's values have
_PLAIN_ITEMS = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
#: items that wait for a result or an approval which Onym cannot express: `carried` has them
_WAITING_ITEMS = frozenset(
    {
        *("apply_patch_call", "computer_call", "local_shell_call", "mcp_approval_request"),
        *("shell_call", "tool_search_call"),
    }
)
#: calls, and the member with their arguments
_CALLS: Mapping[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}

_FINISHES: Mapping[str, types.FinishReason] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class _ItemText(NamedTuple):
    """One text of an item. `kind` and `place` identify the part within the item."""

    kind: str
    place: int
    text: str


def _decode_finish_reason(
    response: Mapping[str, Any], *, calls: bool, refused: bool, waiting: bool = False
) -> types.FinishReason:
    """Return why the response ended.

    `calls` tells whether it contains tool calls, `refused` a refusal, and `waiting` items that wait for a
    result which Onym cannot express.
    """
    if refused:
        return "content_filter"
    if response.get("status") == "completed":
        return "tool_calls" if calls else "other" if waiting else "stop"
    return codec.find_finish_reason(_FINISHES, codec.get_member(response, "incomplete_details", "reason"))


def _is_waiting(items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the turn ends with work for the caller that Onym cannot express."""
    return bool(items) and _get_kind(items[-1]) in _WAITING_ITEMS


def _get_kind(item: Mapping[str, Any]) -> str:
    """Return the type of an item, "" if it has none."""
    return codec.get_text(item, "type") or ""


def _is_commentary(item: Mapping[str, Any]) -> bool:
    """Whether a message is a remark that the model makes while it works, and not its answer."""
    return item.get("phase") == "commentary"


def _iter_texts(item: Mapping[str, Any]) -> Iterator[_ItemText]:
    """Yield the texts of a message (refusals included) or of a reasoning item, in order."""
    if item.get("type") == "message":
        kinds = {"output_text": "text", "refusal": "refusal"}
        for text in _iter_parts(item.get("content"), kinds):
            yield text._replace(kind="commentary") if _is_commentary(item) else text
    elif item.get("type") == "reasoning":
        yield from _iter_parts(item.get("summary"), {"summary_text": "text"})
        yield from _iter_parts(item.get("content"), {"reasoning_text": "text"})


def _iter_parts(parts: Any, kinds: Mapping[str, str]) -> Iterator[_ItemText]:
    if parts is None:
        return
    if not isinstance(parts, list):
        raise codec.make_malformed_error("the content of an item is not a list")
    for place, part in enumerate(parts):
        part = codec.require_object(part, "a part of the content is not an object")
        kind = part.get("type")
        if isinstance(kind, str) and kind in kinds and (text := codec.get_text(part, kinds[kind])):
            yield _ItemText(kind, place, text)


def _decode_tool_call(item: Mapping[str, Any], index: int) -> types.ToolCall:
    identity = codec.get_text(item, "call_id") or codec.get_text(item, "id") or f"call_{index}"
    kind = item["type"]
    arguments = item.get(_CALLS[kind])
    return codec.make_tool_call(identity, item.get("name"), arguments, custom=kind == "custom_tool_call")


def _decode_carried(items: Iterable[Mapping[str, Any]], exchange: Exchange) -> types.Carried | None:
    """Return the turn as the API wrote it, if Onym's values do not have all of it.

    Such are encrypted reasoning, the phase of a message and items of tools that the provider runs.
    Unencrypted reasoning is left out: it has only an ID, which a server that stores nothing cannot resolve.
    The API rejects other items by their ID then, if they belong to it.
    """
    items = tuple(items)
    parts = tuple(
        item for item in items if item.get("type") != "reasoning" or codec.get_text(item, "encrypted_content")
    )
    if not any(codec.get_text(item, "encrypted_content") for item in parts) and len(parts) < len(items):
        parts = tuple(_strip_id(item) for item in parts if _get_kind(item) in _PLAIN_ITEMS)
    if all(map(_is_plain, parts)):
        return None
    return types.Carried(dialect=DIALECT, parts=parts, provider=exchange.provider)


def _is_plain(item: Mapping[str, Any]) -> bool:
    """Whether Onym's values have all of an item that has to go back, also in the messages of a framework."""
    return (
        _get_kind(item) in _PLAIN_ITEMS - {"custom_tool_call"}
        and not item.get("phase")
        and codec.get_text(item, "encrypted_content") is None
    )


def _strip_id(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "id"}


def _decode_usage(record: Any) -> types.Usage:
    return types.Usage(
        input_tokens=codec.find_count(record, "input_tokens"),
        output_tokens=codec.find_count(record, "output_tokens"),
        cached_tokens=codec.find_count(record, "input_tokens_details", "cached_tokens"),
        reasoning_tokens=codec.find_count(record, "output_tokens_details", "reasoning_tokens"),
    )


parameters = list_wire_names("openai_responses")

_TOOL_CHOICES = frozenset({"auto", "none", "required"})
#: parameters that decide how a response is stored: background responses and those of a stored conversation
#: are
_STORAGE_NAMES = frozenset({"store", "background", "conversation"})


def encode_chat(request: types.Request, spec: WireSpec) -> dict[str, Any]:
    """Return the body of POST /responses.

    Leading system messages become `instructions`, later ones keep their position. The API has no field for a
    message's `name`. `store` is false unless a pass-through parameter decides how the response is stored: the
    API's own default keeps it for 30 days. Pass-through parameters come last and never replace existing
    values.
    """
    codec.require_no_cache_control(request, "OpenAI Responses")
    system, messages = _split_system(request.messages)
    body: dict[str, Any] = {"model": request.model}
    if system:
        body["instructions"] = "\n\n".join(system)
    body["input"] = [item for message in messages for item in _encode_items(message, spec)]
    _name_custom_results(body["input"])
    for name, value in request.params.items():
        wire = spec.names.get(name) or parameters.get(name)
        if wire is not None:
            codec.set_member(body, wire, _encode_value(name, value, request.schema))
    if request.tools or request.provider_tools:
        body["tools"] = codec.encode_tools(request, "OpenAI Responses", _encode_tool)
        if request.tool_choice is not None:
            body["tool_choice"] = _encode_tool_choice(request)
    if request.stream:
        body["stream"] = True
    if _STORAGE_NAMES.isdisjoint(request.extra):
        body["store"] = False
    if _is_reasoning(request, spec) and "include" not in request.extra:
        body["include"] = [_ENCRYPTED]
    codec.merge_extra(body, request.extra)
    return body


def _is_reasoning(request: types.Request, spec: WireSpec) -> bool:
    """Whether the model certainly reasons: others reject a request for encrypted reasoning."""
    return (
        spec.reasons
        or "reasoning" in request.extra
        or any(_has_encrypted(message.carried, spec) for message in request.messages)
    )


def _has_encrypted(carried: types.Carried | None, spec: WireSpec) -> bool:
    return (
        carried is not None
        and spec.may_carry(carried, DIALECT)
        and any(codec.get_text(part, "encrypted_content") for part in carried.parts)
    )


def _name_custom_results(items: list[Mapping[str, Any]]) -> None:
    """Give the results of custom tool calls their own type."""
    custom = {codec.get_text(item, "call_id") for item in items if item.get("type") == "custom_tool_call"}
    for index, item in enumerate(items):
        if custom and item.get("type") == "function_call_output" and item["call_id"] in custom:
            items[index] = {**item, "type": "custom_tool_call_output"}


def _split_system(messages: Sequence[types.Message]) -> tuple[list[str], Sequence[types.Message]]:
    """Return the texts of the leading system messages, and the other messages."""
    texts: list[str] = []
    for message in messages:
        content = message.content
        if message.role != "system":
            break
        if isinstance(content, str):
            texts.append(content)
        elif all(isinstance(part, types.TextPart) for part in content):
            texts.append("".join(part.text for part in content if isinstance(part, types.TextPart)))
        else:
            break
    if len(texts) == len(messages):
        # a request needs input
        return [], messages
    return texts, messages[len(texts) :]


def _encode_items(message: types.Message, spec: WireSpec) -> Iterator[Mapping[str, Any]]:
    """Yield the items of one turn: an assistant's message and its tool calls are separate items."""
    if message.role == "tool":
        yield _encode_tool_result(message)
    elif message.role != "assistant":
        yield {"type": "message", "role": message.role, "content": _encode_content(message)}
    elif message.carried is not None and spec.may_carry(message.carried, DIALECT):
        # another server may have written them: parts with the role of the developer or the user are not sent
        yield from (part for part in message.carried.parts if part.get("role", "assistant") == "assistant")
    else:
        if message.content:
            yield {"type": "message", "role": "assistant", "content": _encode_assistant_content(message)}
        for call in message.tool_calls:
            kind = "custom_tool_call" if call.custom else "function_call"
            yield {"type": kind, "call_id": call.id, "name": call.name, _CALLS[kind]: call.arguments}


def _encode_assistant_content(message: types.Message) -> list[dict[str, Any]]:
    """Return an assistant's earlier message. Some servers accept only this form, not plain text."""
    texts = codec.require_texts(message.content, "OpenAI Responses", "an assistant's message")
    return [{"type": "output_text", "text": text} for text in texts]


def _encode_tool_result(message: types.Message) -> dict[str, Any]:
    if message.tool_call_id is None:
        raise codec.make_message_error("a message of role tool has no tool_call_id")
    return {
        "type": "function_call_output",
        "call_id": message.tool_call_id,
        "output": _encode_content(message),
    }


def _encode_content(message: types.Message) -> str | list[dict[str, Any]]:
    content = message.content
    return content if isinstance(content, str) else [_encode_part(part) for part in content]


def _encode_part(part: types.ContentPart) -> dict[str, Any]:
    if isinstance(part, types.TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, types.DocumentPart):
        return (
            codec.encode_input_audio(part, "OpenAI Responses") if codec.is_audio(part) else _encode_file(part)
        )
    return {
        "type": "input_image",
        "image_url": part.url if part.data is None else codec.encode_data_url(part),
        # the API's default; its types, and servers that validate by them, require a value
        "detail": part.detail or "auto",
    }


def _encode_file(part: types.DocumentPart) -> dict[str, Any]:
    if part.data is None:
        return {"type": "input_file", "file_url": part.url}
    return {
        "type": "input_file",
        "filename": part.name or "document.pdf",
        "file_data": codec.encode_data_url(part),
    }


def _encode_tool(tool: types.Tool) -> dict[str, Any]:
    tool = convert_tool(tool, make_openai_schema)
    out: dict[str, Any] = {
        "type": "function",
        "name": tool.name,
        "parameters": tool.parameters or codec.NO_TOOL_PARAMETERS,
        # the API treats a missing strict as true, which restricts the schema further
        "strict": bool(tool.strict),
    }
    if tool.description is not None:
        out["description"] = tool.description
    return out


def _encode_tool_choice(request: types.Request) -> str | dict[str, Any]:
    choice = request.tool_choice or "auto"
    if choice in _TOOL_CHOICES:
        return choice
    for tool in request.provider_tools:
        if codec.get_tool_name(tool) == choice:
            return {"type": tool["type"], "name": choice} if "name" in tool else {"type": choice}
    return {"type": "function", "name": choice}


def _encode_value(name: str, value: Any, schema: Mapping[str, Any] | None) -> Any:
    if name == "stop":
        return list(value)
    if name != "format":
        return value
    if value != "json_schema":
        return {"type": "json_object" if value == "json" else value}
    schema = schema or {}
    converted, obstacle = make_openai_schema(schema)
    name = codec.make_schema_name(schema)
    return {"type": "json_schema", "name": name, "schema": converted, "strict": obstacle is None}


@ERRORS.decode_objects
def decode_chat(data: dict[str, Any], headers: HeaderMap, exchange: Exchange) -> types.Completion:
    """Return the completion in a 2xx response to POST /responses.

    The text of a refusal is included; remarks before the answer (phase "commentary") are reasoning. Raises
    MalformedResponseError, or the error that the body describes.
    """
    items = _require_items(data)
    texts = [text for item in items for text in _iter_texts(item)]
    calls = [item for item in items if _get_kind(item) in _CALLS]
    refusal = "".join(text.text for text in texts if text.kind == "refusal") or None
    thoughts = _PARAGRAPH.join(text.text for text in texts if text.kind in _REASONING_PARTS)
    reason = _decode_finish_reason(
        data, calls=bool(calls), refused=refusal is not None, waiting=_is_waiting(items)
    )
    return types.Completion(
        text="".join(text.text for text in texts if text.kind not in _REASONING_PARTS),
        model=codec.get_text(data, "model") or exchange.model,
        finish_reason=reason,
        reasoning=thoughts or None,
        refusal=refusal,
        tool_calls=tuple(_decode_tool_call(call, index) for index, call in enumerate(calls)),
        usage=_decode_usage(data.get("usage")),
        request_id=find_request_id(headers, exchange),
        carried=_decode_carried(items, exchange),
        raw=data,
    )


def _require_items(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    return codec.require_objects(
        response.get("output"), "it has no output", "an item of the output is not an object"
    )


_END_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})
#: events with text: the kind of its part, and the members with its position and its text
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
    "response.custom_tool_call_input.delta": ("arguments", "content_index", "delta"),
    "response.custom_tool_call_input.done": ("arguments", "content_index", "input"),
}
#: parts of items that are not the answer
_REASONING_PARTS = frozenset({"summary_text", "reasoning_text", "commentary"})


@dataclass(slots=True)
class _OutputItem:
    #: the parts whose text was returned: an event that repeats the whole text is skipped
    returned: set[tuple[str, int]] = field(default_factory=set)
    #: its index among the tool calls, if it is one
    call: int | None = None
    #: whether it is a message that is not the answer
    aside: bool = False
    whole: Mapping[str, Any] | None = None


class StreamDecoder(EventDecoder[SSEEvent]):
    """Converts server-sent events of a response to Onym's.

    Text is returned once: in the pieces in which it arrives, or from the event that repeats it whole if no
    piece came. `Finish` comes at the end of the response; some servers send `[DONE]` instead.
    """

    __slots__ = ("_calls", "_items", "_known", "_thought")
    errors = ERRORS

    def _begin(self) -> None:
        self._items: list[_OutputItem] = []
        #: the items by ID (a string) and by position in the output (a number)
        self._known: dict[object, _OutputItem] = {}
        self._calls = 0
        #: the part of the last piece of reasoning
        self._thought: object = None

    def _decode_frame(self, frame: SSEEvent, events: list[types.Event]) -> bool:
        if frame.data.startswith("[DONE]"):
            if not self._items:
                raise codec.make_malformed_error("the stream has no answer")
            return True
        record = codec.require_json_object(frame.data, "an event")
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

    def _decode_event(self, kind: str, record: Mapping[str, Any], events: list[types.Event]) -> None:
        if kind in _TEXT_EVENTS:
            part, place, member = _TEXT_EVENTS[kind]
            at, text = record.get(place), record.get(member)
            item = self._find_item(record.get("item_id"), record.get("output_index"))
            if item.aside and part in ("output_text", "refusal"):
                part = "commentary"
            key = part, at if type(at) is int else 0
            if not kind.endswith(".done") or key not in item.returned:
                self._append_text(item, key, text, events)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            whole = codec.require_object(record.get("item"), "an item of the output is not an object")
            done = kind.endswith(".done")
            item = self._find_item(whole.get("id"), record.get("output_index"), fresh=not done)
            self._decode_item(item, whole, events, done=done)

    def _update_response(self, response: Mapping[str, Any]) -> None:
        """Update the model and the usage from an event that contains the response."""
        self._model = codec.get_text(response, "model") or self._model
        if response.get("usage") is not None:
            self.usage = _decode_usage(response["usage"])

    def _decode_end(self, response: Any, events: list[types.Event]) -> None:
        response = codec.require_object(response, "the end of the stream has no response")
        if ERRORS.is_failure(response):
            raise self._make_stream_error(response)
        if not self._items and "output" in response:
            # some servers stream nothing before the end
            for place, whole in enumerate(_require_items(response)):
                self._decode_item(self._find_item(None, place), whole, events, done=True)
        items = [item.whole for item in self._items if item.whole is not None]
        refused = bool(self._refusals)
        self._reason = _decode_finish_reason(
            response, calls=self._calls > 0, refused=refused, waiting=_is_waiting(items)
        )
        self._carried = _decode_carried(items, self._exchange)

    def _find_item(self, identity: Any, place: Any, *, fresh: bool = False) -> _OutputItem:
        """Return the item of an event. If `fresh`, the item is announced, and its position is ignored.

        Some servers name items only by ID, some send no positions, and some change an ID between events.
        """
        names = [name for name, kind in ((identity, str), (place, int)) if type(name) is kind and name != ""]
        item = self._known.get(identity) if identity in names else None
        if item is None and not fresh:
            item = self._known.get(place) if names else self._items[-1] if self._items else None
        if item is None:
            item = _OutputItem()
            self._items.append(item)
        self._known.update(dict.fromkeys(names, item))
        return item

    def _decode_item(
        self, item: _OutputItem, whole: Mapping[str, Any], events: list[types.Event], *, done: bool
    ) -> None:
        """Decode an item at its start, or a complete one (`done`)."""
        item.aside = item.aside or _is_commentary(whole)
        if _get_kind(whole) in _CALLS:
            call = _decode_tool_call(whole, self._calls if item.call is None else item.call)
            if item.call is None:
                item.call, self._calls = self._calls, self._calls + 1
                events.append(
                    types.ToolCallDelta(index=item.call, id=call.id, name=call.name, custom=call.custom)
                )
            if done and not item.returned:
                self._append_text(item, ("arguments", 0), call.arguments, events)
        if done:
            item.whole = whole
            for kind, place, text in _iter_texts(whole):
                if (kind, place) not in item.returned:
                    self._append_text(item, (kind, place), text, events)

    def _append_text(
        self, item: _OutputItem, part: tuple[str, int], text: Any, events: list[types.Event]
    ) -> None:
        if not isinstance(text, str):
            raise codec.make_malformed_error("a piece of text is not a string")
        if not text:
            return
        item.returned.add(part)
        if part[0] == "arguments":
            if item.call is None:
                raise codec.make_malformed_error("the arguments of a tool call came before the call")
            events.append(types.ToolCallDelta(index=item.call, arguments=text))
        elif part[0] in _REASONING_PARTS:
            thinking = id(item), part
            if self._thought not in (None, thinking):
                text = _PARAGRAPH + text
            self._thought = thinking
            events.append(types.ReasoningDelta(text))
        else:
            if part[0] == "refusal":
                self._refusals.append(text)
            events.append(types.TextDelta(text))


name = DIALECT
routes = Routes(chat="/responses", embed="/embeddings", models="/models")
headers = ()
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
convert_schema = make_openai_schema
stream_decoder = make_stream_decoder(decode_chat, StreamDecoder)
decode_error = ERRORS.decode_error
decode_embed = chat.decode_embed
decode_model = chat.decode_model
decode_models = chat.decode_models
encode_embed = chat.encode_embed
