"""Helpers to encode request bodies and decode responses, shared by all API formats.

Responses may lack members or have members of the wrong type. Bodies need nested names, pass-through
parameters and data URLs.
"""

from __future__ import annotations

import re
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from sys import byteorder
from typing import Any, TypeVar

import msgspec

from onym.errors import MalformedResponseError, UnsupportedError, UsageError
from onym.llm import types
from onym.llm.dialects import WireSpec
from onym.uri.parameters import format_name

T = TypeVar("T")

NO_USAGE = types.Usage()

#: no response has so many tokens; larger numbers fit no column, metric or float
_MAX_COUNT = 2**53


def make_malformed_error(text: str) -> MalformedResponseError:
    """Return the error for an invalid member. `ErrorDecoder.locate_errors` adds the exchange."""
    return MalformedResponseError(text)


def parse_json_object(text: str | bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None for anything else."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def require_json_object(text: str | bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object of a stream; MalformedResponseError, with this name, for anything else."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise make_malformed_error(f"{name} of the stream is not a JSON object")
    return value


def require_object(value: Any, problem: str) -> dict[str, Any]:
    """Return an object; MalformedResponseError with this text for anything else."""
    if not isinstance(value, dict):
        raise make_malformed_error(problem)
    return value


def require_objects(values: Any, problem: str, item_problem: str) -> list[dict[str, Any]]:
    """Return a list of objects; MalformedResponseError with the text of what is not one."""
    if not isinstance(values, list):
        raise make_malformed_error(problem)
    if not all(isinstance(item, dict) for item in values):
        raise make_malformed_error(item_problem)
    return values


def get_member(record: Any, *path: str) -> Any:
    """Return a nested member, None if it or one of the objects on the way to it is absent."""
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def find_count(record: Any, *path: str) -> int | None:
    """Return a nested count of tokens, None if it is absent or invalid."""
    for name in path:
        if not isinstance(record, dict):
            return None
        record = record.get(name)
    return record if type(record) is int and 0 <= record < _MAX_COUNT else None


def encode_arguments(value: Any) -> str:
    """Return a tool call's arguments as JSON text: some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def parse_count(value: Any) -> int | None:
    """Return a count of tokens, None if it is absent or invalid."""
    return value if type(value) is int and 0 <= value < _MAX_COUNT else None


def get_text(record: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a non-empty string, else None."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def decode_tool_calls(calls: Any, first: int = 0) -> Iterator[types.ToolCall]:
    """Decode tool calls in OpenAI's format, counted from `first`; some servers send no ids."""
    if calls is None:
        return
    if not isinstance(calls, list):
        raise make_malformed_error("the tool calls are not a list")
    for index, call in enumerate(calls, first):
        custom = isinstance(get_member(call, "custom"), dict)
        kind, member = ("custom", "input") if custom else ("function", "arguments")
        function = require_object(get_member(call, kind), "a tool call has no function")
        identity = get_text(call, "id") or f"call_{index}"
        yield make_tool_call(identity, function.get("name"), function.get(member), custom=custom)


def make_tool_call(identity: str, name: Any, arguments: Any, *, custom: bool = False) -> types.ToolCall:
    """Return a tool call; MalformedResponseError if it has no name. `arguments` is text or any JSON value."""
    if not isinstance(name, str) or not name:
        raise make_malformed_error("a tool call has no name")
    return types.ToolCall(id=identity, name=name, arguments=encode_arguments(arguments), custom=custom)


def invert_table(table: Mapping[T, str]) -> dict[str, T]:
    """Return the key of every word: a format's codes are listed by what they mean, and looked up by code."""
    return {word: key for key, words in table.items() for word in words.split()}


def find_finish_reason(reasons: Mapping[str, types.FinishReason], value: Any) -> types.FinishReason:
    """Return Onym's finish reason for a server's value; `other` if it is missing or unknown."""
    return reasons.get(value, "other") if isinstance(value, str) else "other"


def parse_timestamp(value: Any) -> float | None:
    """Return an RFC 3339 time as seconds since 1970, None for any other value."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if moment is None or moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


def require_model_records(records: Any, *names: str) -> list[dict[str, Any]]:
    """Return the records of a list of models; items that have a text under none of the names are skipped."""
    if not isinstance(records, list):
        raise make_malformed_error("it has no list of models")
    objects = [record for record in records if isinstance(record, dict)]
    return [record for record in objects if any(get_text(record, name) for name in names)]


def require_model_record(record: Any, name: str) -> dict[str, Any]:
    """Return the record of one model; MalformedResponseError if it does not have the text `name`."""
    if not isinstance(record, dict) or get_text(record, name) is None:
        raise make_malformed_error("it has no model")
    return record


def require_vector_list(vectors: Any, count: int) -> list[Any]:
    """Return a list with one vector, or record of one, for each text."""
    if not isinstance(vectors, list) or len(vectors) != count:
        raise make_malformed_error("it does not have one vector for each text")
    return vectors


def decode_vector(value: Any) -> Sequence[float]:
    """Return a list of numbers as floats; MalformedResponseError for anything else."""
    if not isinstance(value, list) or not value or not all(type(item) in (float, int) for item in value):
        raise make_malformed_error("a vector is not a list of numbers")
    try:
        return tuple(map(float, value))
    except OverflowError:
        raise make_malformed_error("a vector has a number that is too large") from None


def decode_vector_or_base64(value: Any) -> Sequence[float]:
    """Decode a list of numbers, or base64 of little-endian 32-bit floats."""
    return _decode_base64_vector(value) if isinstance(value, str) else decode_vector(value)


def _decode_base64_vector(coded: str) -> Sequence[float]:
    try:
        data = b64decode(coded, validate=True)
    except ValueError:
        data = b""
    if not data or len(data) % 4:
        raise make_malformed_error("a vector is not base64 of 32-bit floats")
    numbers = array("f", data)
    if byteorder == "big":  # pragma: no cover - the machines of this project are little-endian
        numbers.byteswap()
    return tuple(numbers)


#: the schema of a tool without parameters, for APIs that require a schema
NO_TOOL_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_SCHEMA_NAME = re.compile(r"[^A-Za-z0-9_-]+")

#: the value that turns a provider's own prompt cache on, by the wire name of the switch
_CACHE_VALUES: Mapping[str, Any] = {
    "cache_control": {"type": "ephemeral"},
    "providerOptions.gateway.caching": "auto",
}


def set_member(body: dict[str, Any], name: str, value: Any) -> None:
    """Set a member by its wire name. Dots create nested objects: `generationConfig.topK`."""
    *path, last = name.split(".")
    for step in path:
        body = body.setdefault(step, {})
    body[last] = _CACHE_VALUES.get(name, value) if value is True else value


def encode_params(
    body: dict[str, Any],
    request: types.Request,
    spec: WireSpec,
    names: Mapping[str, str],
    write_format: Callable[[str, Mapping[str, Any] | None], Any],
) -> None:
    """Add the standard parameters of a request under their wire names; names in `spec` take precedence."""
    for name, value in request.params.items():
        wire = spec.names.get(name) or names.get(name, name)
        if name == "format":
            value = write_format(value, request.schema)
        elif name == "stop":
            value = list(value)
        set_member(body, wire, value)


def merge_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> None:
    """Add pass-through parameters: objects are merged, and lists of tools are joined.

    Other existing values are never replaced; `find_unsent` finds the parameters that were not added.
    """
    for name, value in extra.items():
        present = body.setdefault(name, value)
        if present is value:
            if isinstance(value, Mapping):
                body[name] = dict(value)
        elif isinstance(present, dict) and isinstance(value, Mapping):
            merge_extra(present, value)
        elif name == "tools" and isinstance(present, list) and isinstance(value, list | tuple):
            body[name] = [*present, *(tool for tool in value if tool not in present)]


def find_unsent(body: Mapping[str, Any], extra: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pass-through parameters that are not in the body, because it has other values."""
    for name, value in extra.items():
        present = body.get(name)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in find_unsent(present, value))
        elif name == "tools" and isinstance(present, list) and isinstance(value, list | tuple):
            yield from () if all(tool in present for tool in value) else (name,)
        elif present != value and not (isinstance(value, tuple) and present == list(value)):
            yield name


def parse_arguments(call: types.ToolCall) -> dict[str, Any]:
    """Return the arguments as an object, which some APIs require; empty text is an empty object.

    Raises UsageError for anything else.
    """
    arguments = parse_json_object(call.arguments) if call.arguments.strip() else {}
    if arguments is None:
        raise make_message_error(
            f"the arguments of the tool call {call.name} are not a JSON object, which this API requires"
        )
    return arguments


def encode_base64(part: types.ImagePart | types.DocumentPart) -> str:
    """Return the content of a part as base64 text."""
    return b64encode(part.data or b"").decode("ascii")


def encode_data_url(part: types.ImagePart | types.DocumentPart) -> str:
    """Return the content of a part as a data: URL."""
    return f"data:{part.media_type};base64,{encode_base64(part)}"


def encode_image_url(part: types.ImagePart) -> dict[str, Any]:
    """Return an image part as OpenAI's format has it."""
    image: dict[str, Any] = {"url": part.url if part.data is None else encode_data_url(part)}
    if part.detail is not None:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def encode_tool(tool: types.Tool, **members: Any) -> dict[str, Any]:
    """Return a tool as OpenAI's format has it. `members` are added to the function."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters:
        function["parameters"] = tool.parameters
    return {"type": "function", "function": {**function, **members}}


def get_tool_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a provider's own tool: its `name`, else its type, else its first member."""
    kind = tool.get("type")
    inner = tool.get(kind) if isinstance(kind, str) else None
    nested = inner.get("name") if isinstance(inner, Mapping) else None
    names = (tool.get("name"), nested, kind, next(iter(tool), ""))
    return next((name for name in names if isinstance(name, str)), "")


def encode_tools(
    request: types.Request, dialect: str, write: Callable[[types.Tool], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the functions of a request, then the provider's own tools, of an API whose tools have a type."""
    return [*map(write, request.tools), *list_provider_tools(request, dialect, typed=True)]


def list_provider_tools(request: types.Request, dialect: str, *, typed: bool) -> list[dict[str, Any]]:
    """Return the provider's own tools, unchanged; `typed` tells whether tools of this API have a `type`.

    Raises UnsupportedError for a tool in another API's form.
    """
    for tool in request.provider_tools:
        if ("type" in tool) is not typed:
            raise make_tool_error(tool, dialect)
    return [*map(dict, request.provider_tools)]


def require_no_provider_tools(request: types.Request, dialect: str) -> None:
    """Raise UnsupportedError for a tool of a provider: this API has none."""
    for tool in request.provider_tools:
        raise make_tool_error(tool, dialect)


def make_tool_error(tool: Mapping[str, Any], dialect: str) -> UnsupportedError:
    """Return the error for a provider's own tool that an API does not have."""
    return UnsupportedError(
        f"the {dialect} API does not have the tool {format_name(get_tool_name(tool))}",
        code="llm.no-tool",
        parameter="tools",
        hint="Pass a function with a name and parameters, or call a provider that has this tool.",
    )


def require_no_cache_control(request: types.Request, dialect: str) -> None:
    """Raise UnsupportedError for a part or a tool that marks a prefix to cache: this API has no such mark."""
    parts = (
        part
        for message in request.messages
        if not isinstance(message.content, str)
        for part in message.content
    )
    if any(item.cache_control is not None for item in (*parts, *request.tools)):
        raise UnsupportedError(
            f"the {dialect} API does not support cache_control in a part of a message or in a tool",
            code="llm.no-cache-control",
            parameter="cache_control",
            hint="Leave it out. With cache=true, Onym uses the provider's own prompt cache if it has one.",
        )


def is_audio(part: types.ContentPart) -> bool:
    """Whether a part is a recording."""
    return isinstance(part, types.DocumentPart) and part.media_type.lower().startswith("audio/")


#: other names of formats of recordings
_AUDIO_FORMATS: Mapping[str, str] = {"mpeg": "mp3", "wave": "wav", "x-wav": "wav", "vnd.wave": "wav"}


def encode_input_audio(part: types.DocumentPart, dialect: str) -> dict[str, Any]:
    """Return a recording as OpenAI's formats have it."""
    if part.data is None:
        raise make_part_error("audio by URL", dialect, hint="Pass the recording's bytes as data.")
    kind = part.media_type.partition("/")[2].partition(";")[0].strip().lower()
    audio = {"data": encode_base64(part), "format": _AUDIO_FORMATS.get(kind, kind)}
    return {"type": "input_audio", "input_audio": audio}


def encode_tool_calls(calls: Iterable[types.ToolCall]) -> list[dict[str, Any]]:
    """Return an assistant's tool calls as OpenAI's format has them."""
    return [
        {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
        if call.custom
        else {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def make_schema_name(schema: Mapping[str, Any]) -> str:
    """Return a name for a schema, from its title, that APIs accept."""
    title = schema.get("title")
    name = _SCHEMA_NAME.sub("_", title)[:64].strip("_") if isinstance(title, str) else ""
    return name or "answer"


def require_texts(content: types.Content, dialect: str, position: str) -> list[str]:
    """Return the texts of a content that may contain nothing else; raises UnsupportedError."""
    parts = (types.TextPart(content),) if isinstance(content, str) else content
    if not all(isinstance(part, types.TextPart) for part in parts):
        raise make_part_error(f"images or documents in {position}", dialect)
    return [part.text for part in parts if isinstance(part, types.TextPart)]


def decode_document(part: types.DocumentPart, problem: str) -> str:
    """Return the text of a document; UsageError with this text if it is not UTF-8."""
    try:
        return (part.data or b"").decode("utf-8")
    except UnicodeDecodeError:
        # raised below: this exception contains the document
        pass
    raise make_message_error(problem)


def make_message_error(problem: str, *, hint: str | None = None) -> UsageError:
    """Return the error for a message that no request can express."""
    return UsageError(problem, code="usage.bad-message", hint=hint)


def make_part_error(part: str, dialect: str, *, hint: str | None = None) -> UnsupportedError:
    """Return the error for a part that an API does not support."""
    return UnsupportedError(
        f"the {dialect} API does not support {part}", code="llm.no-part", parameter="messages", hint=hint
    )


#: the API format that carried content names, also that of Mistral
DIALECT = "openai_chat"

#: members of a message that are text
TEXT_MEMBERS = ("reasoning_content", "reasoning")
#: members of a message that may be carried; beside them `extra_content` has that of tool calls, by ID
_MEMBER_TYPES: Mapping[str, type] = {
    **dict.fromkeys(TEXT_MEMBERS, str),
    "reasoning_details": list,
    "content": list,
}

#: by provider: the member without which it rejects an assistant's tool calls while it thinks, also if no
#: turn has reasoning. https://api-docs.deepseek.com/guides/thinking_mode, checked 2026-11-23
_REQUIRED: Mapping[str, str] = {"deepseek": "reasoning_content"}

#: members of parts and of reasoning_details that arrive in pieces; others are complete in the chunk with them
_TEXTS = frozenset({"text", "summary", "thinking"})


def decode_carried(message: Mapping[str, Any], provider: str) -> types.Carried | None:
    """Return the members of an assistant's message that the server needs back, None if it has none."""
    members: dict[str, Any] = {}
    calls = message.get("tool_calls")
    for name in TEXT_MEMBERS:
        text = message.get(name)
        # with tool calls an empty text counts too: DeepSeek rejects the calls without it
        if type(text) is str and (text or calls):
            members[name] = text
    details, content = message.get("reasoning_details"), message.get("content")
    if type(details) is list and details and all(isinstance(item, dict) for item in details):
        members["reasoning_details"] = details
    if type(content) is list and _has_reasoning(content):
        members["content"] = content
    if calls and (signed := _find_extra_content(calls)):
        members["extra_content"] = signed
    return types.Carried(dialect=DIALECT, parts=(members,), provider=provider) if members else None


def _has_reasoning(content: Iterable[Any]) -> bool:
    """Whether a content has a part with reasoning."""
    return any(isinstance(part, dict) and part.get("type") in ("thinking", "reasoning") for part in content)


def _find_extra_content(calls: Any) -> dict[str, Any]:
    if not isinstance(calls, list):
        return {}
    return {
        call["id"]: call["extra_content"]
        for call in calls
        if isinstance(call, dict) and isinstance(call.get("id"), str) and call.get("extra_content")
    }


def get_members(carried: types.Carried | None, spec: WireSpec) -> Mapping[str, Any]:
    """Return the carried members of a turn that belong to this endpoint."""
    if carried is None or not spec.may_carry(carried, DIALECT) or not carried.parts:
        return {}
    return carried.parts[0]


def get_written_text(carried: types.Carried | None) -> str | None:
    """Return the reasoning that a program wrote into a message, for any API format that takes it as text."""
    if carried is None or carried.provider or carried.dialect != DIALECT or not carried.parts:
        return None
    texts = (carried.parts[0].get(name) for name in (*TEXT_MEMBERS, "thinking"))
    return next((text for text in texts if isinstance(text, str) and text), None)


def add_members(message: dict[str, Any], members: Mapping[str, Any]) -> None:
    """Add the carried members to an assistant's encoded message."""
    for name, kind in _MEMBER_TYPES.items():
        # another server may have written them
        if isinstance(members.get(name), kind):
            message[name] = members[name]
    signed = members.get("extra_content")
    if isinstance(signed, Mapping):
        for call in message.get("tool_calls", ()):
            if call["id"] in signed:
                call["extra_content"] = signed[call["id"]]


def add_thinking_part(message: dict[str, Any], members: Mapping[str, Any]) -> None:
    """Add reasoning to an assistant's message as Mistral has it: as a part of the content."""
    if isinstance(members.get("content"), list):
        message["content"] = members["content"]
        return
    thought = get_written_text(types.Carried(dialect=DIALECT, parts=(members,)))
    if thought is not None:
        content = message["content"]
        texts = [{"type": "text", "text": content}] if content and isinstance(content, str) else content
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
        message["content"] = [thinking, *(texts or ())]


def fill_tool_calls(messages: Sequence[dict[str, Any]], request: types.Request, provider: str) -> None:
    """Add empty reasoning to tool calls that have none, if the server rejects them otherwise.

    Such calls come from a program, from another provider or from an answer without reasoning. Servers that
    are not known to require the member get it only beside turns that have it, and only for the current turn:
    those after the last message of the user.
    """
    name, start = _REQUIRED.get(provider), 0
    if name is None:
        used = {name for message in messages for name in TEXT_MEMBERS if name in message}
        if len(used) != 1:
            return
        (name,) = used
        start = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=0)
    elif get_member(request.extra, "thinking", "type") == "disabled":
        return
    for message in messages[start:]:
        if message["role"] == "assistant" and "tool_calls" in message:
            message.setdefault(name, "")


class _RecordBuilder:
    """An object that arrives in pieces: its texts are joined, and of other members the last value stays."""

    __slots__ = ("_items", "_record", "_texts")

    def __init__(self, *, nested: bool = False) -> None:
        self._record: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        #: the parts of a thinking part (Mistral). Only one level: more would exhaust the stack
        self._items: _PartsBuilder | None = None if nested else _PartsBuilder(nested=True)

    @property
    def kind(self) -> str:
        """The type of the object, "" if it has none."""
        return get_text(self._record, "type") or ""

    def is_other(self, identity: str | None) -> bool:
        """Whether a piece with this ID belongs to another object."""
        return identity is not None and get_text(self._record, "id") not in (None, identity)

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add a piece."""
        for name, value in piece.items():
            if name in _TEXTS and isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            elif name == "thinking" and isinstance(value, list) and self._items is not None:
                self._items.add(value)
            elif value is not None or name not in self._record:
                self._record[name] = value

    def to_record(self) -> dict[str, Any]:
        """Return the object."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        items = {"thinking": self._items.to_records()} if self._items else {}
        return {**self._record, **texts, **items}


class _PartsBuilder:
    """Parts of a content: neighbours of one kind are joined, if they are text."""

    __slots__ = ("_nested", "_parts")

    def __init__(self, *, nested: bool = False) -> None:
        self._nested = nested
        self._parts: list[_RecordBuilder] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, parts: Iterable[Any]) -> None:
        """Add the next parts."""
        for part in parts:
            if not isinstance(part, dict):
                continue
            kind = get_text(part, "type")
            if not self._parts or kind not in ("text", "thinking") or kind != self._parts[-1].kind:
                self._parts.append(_RecordBuilder(nested=self._nested))
            self._parts[-1].add(part)

    def to_records(self) -> list[dict[str, Any]]:
        """Return the parts."""
        return [part.to_record() for part in self._parts]


class ReasoningBuilder:
    """The carried members of a message while they arrive in pieces."""

    __slots__ = ("_called", "_details", "_parts", "_signed", "_spoken", "_texts")

    def __init__(self, *, spoken: bool) -> None:
        """`spoken` tells whether text came before: then later parts are not the whole turn."""
        self._spoken = spoken
        self._called = False
        self._texts: dict[str, list[str]] = {}
        self._details: dict[tuple[Any, ...], _RecordBuilder] = {}
        self._parts = _PartsBuilder()
        self._signed: dict[str, Any] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        """Add the members of a delta. Every delta with text comes here once there is a builder."""
        for name in TEXT_MEMBERS:
            text = delta.get(name)
            if isinstance(text, str):
                self._texts.setdefault(name, []).append(text)
        details, content = delta.get("reasoning_details"), delta.get("content")
        for place, detail in enumerate(details if isinstance(details, list) else ()):
            if isinstance(detail, dict):
                self._add_detail(detail, place)
        if isinstance(content, list) and not self._spoken:
            self._parts.add(content)
        elif isinstance(content, str) and content:
            if self._parts:
                # text after the first part belongs to the parts
                self._parts.add([{"type": "text", "text": content}])
            else:
                self._spoken = True
        if calls := delta.get("tool_calls"):
            self._called = True
            self._signed.update(_find_extra_content(calls))

    def _add_detail(self, detail: dict[str, Any], place: int) -> None:
        """Add a piece of a detail. Details of several kinds may have the same index."""
        index, identity = detail.get("index"), get_text(detail, "id")
        key: tuple[Any, ...] = (get_text(detail, "type"), index if type(index) is int else place)
        known = self._details.get(key)
        if known is not None and known.is_other(identity):
            key = (*key, identity)
            known = self._details.get(key)
        if known is None:
            known = self._details[key] = _RecordBuilder()
        known.add(detail)

    def build(self, provider: str) -> types.Carried | None:
        """Return the content to carry, None if there is none."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        members: dict[str, Any] = {name: text for name, text in texts.items() if text or self._called}
        if self._details:
            members["reasoning_details"] = [detail.to_record() for detail in self._details.values()]
        if _has_reasoning(content := self._parts.to_records()):
            members["content"] = content
        if self._signed:
            members["extra_content"] = self._signed
        return types.Carried(dialect=DIALECT, parts=(members,), provider=provider) if members else None
