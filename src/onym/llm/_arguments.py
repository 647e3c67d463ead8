"""The arguments of one call: messages, tools and overrides.

`to_messages`, `to_tools` and `to_texts` convert what a caller passes to the values of `onym.llm.types`.
`parse_overrides` checks the keyword arguments. All of them raise UsageError.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn, TypeAlias, cast, get_args

from onym.errors import ConfigError, UsageError
from onym.llm.mapping import ParameterLayer
from onym.llm.types import (
    Completion,
    Content,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCall,
)
from onym.uri.parameters import WELL_KNOWN, is_redirecting

MessageLike: TypeAlias = str | Message | Completion | Mapping[str, Any]
Messages: TypeAlias = MessageLike | Iterable[MessageLike]
ToolLike: TypeAlias = Tool | Mapping[str, Any]

_ROLES: frozenset[str] = frozenset(get_args(Role))
#: other names of the same roles
_ROLE_ALIASES = {"developer": "system", "function": "tool"}


def to_messages(given: Messages) -> tuple[Message, ...]:
    """Convert a text (one user turn), a message or several messages.

    A message may be a `Message`, a `Completion` (the assistant's turn with its tool calls), a text (a user
    turn) or a dict with `role` and `content`. Raises UsageError for other values.
    """
    if isinstance(given, str):
        return (Message(role="user", content=given),)
    if isinstance(given, Message | Completion | Mapping):
        return (_to_message(given),)
    if not _is_sequence(given):
        _raise_bad_message("messages are a text, a message, or several of them")
    messages = tuple([_to_message(message) for message in given])
    if not messages:
        _raise_bad_message("the list of messages is empty")
    return messages


def to_tools(given: Iterable[ToolLike]) -> tuple[Tool, ...]:
    """Convert `Tool` values, or dicts in OpenAI's form with or without `type`."""
    if not _is_sequence(given):
        _raise_bad_message("tools are a sequence of tools")
    tools = tuple([_to_tool(tool) for tool in given])
    if len({tool.name for tool in tools}) != len(tools):
        _raise_bad_message("two tools have the same name")
    return tools


def to_texts(given: str | Iterable[str]) -> tuple[str, ...]:
    """Convert one text or several texts to embed."""
    if isinstance(given, str):
        return (given,)
    if not _is_sequence(given):
        _raise_bad_message("texts are a text or several of them")
    texts = tuple(given)
    if not texts or not all(isinstance(text, str) for text in texts):
        _raise_bad_message("texts must be at least one text")
    return texts


def _is_sequence(given: object) -> bool:
    """Whether the value is a sequence of values, and not one value that is iterable."""
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray | Mapping)


def _raise_bad_message(text: str) -> NoReturn:
    raise UsageError(text, code="usage.bad-message")


def _to_message(given: MessageLike) -> Message:
    if isinstance(given, Message):
        if given.role not in _ROLES:
            _raise_bad_message(f"a message's role is one of {', '.join(sorted(_ROLES))}")
        if not isinstance(given.content, str):
            _to_content(given.content)
        return given
    if isinstance(given, str):
        return Message(role="user", content=given)
    if isinstance(given, Completion):
        return Message(
            role="assistant", content=given.text, tool_calls=given.tool_calls, carried=given.carried
        )
    if isinstance(given, Mapping):
        return _mapping_to_message(given)
    _raise_bad_message("a message is a text, a Message, a Completion or a dict with role and content")


def _mapping_to_message(given: Mapping[str, Any]) -> Message:
    role = given.get("role")
    role = _ROLE_ALIASES.get(role, role) if isinstance(role, str) else None
    if role not in _ROLES:
        _raise_bad_message(f"a message's role is one of {', '.join(sorted(_ROLES))}")
    unknown = set(given) - {"role", "content", "name", "tool_calls", "tool_call_id", "refusal"}
    if unknown:
        _raise_bad_message(
            "a message has a member that is not one of role, content, name, tool_calls, tool_call_id"
        )
    calls = given.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        _raise_bad_message("tool_calls are a list")
    return Message(
        role=cast("Role", role),
        content=_to_content(given.get("content")),
        tool_calls=tuple([_to_tool_call(call) for call in calls]),
        tool_call_id=_get_text(given, "tool_call_id"),
        name=_get_text(given, "name"),
    )


def _to_content(given: Any) -> Content:
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    if not isinstance(given, list | tuple):
        _raise_bad_message("a message's content is a text or a list of parts")
    return tuple([_to_part(part) for part in given])


def _to_part(given: Any) -> ContentPart:
    if isinstance(given, str):
        return TextPart(given)
    if isinstance(given, TextPart):
        return given
    if isinstance(given, ImagePart | DocumentPart):
        if given.url is None and not given.data:
            _raise_bad_message("an image or a document has a url or data")
        return given
    if isinstance(given, Mapping):
        kind = given.get("type")
        if kind == "text" and isinstance(given.get("text"), str):
            return TextPart(given["text"])
        if kind == "image_url":
            return _to_image(given.get("image_url"))
        if kind == "file":
            return _to_document(given.get("file"))
    _raise_bad_message("a part of a message is a text, an image as image_url, or a document as file")


def _to_image(given: Any) -> ImagePart:
    record = {"url": given} if isinstance(given, str) else given
    if not isinstance(record, Mapping) or not isinstance(record.get("url"), str):
        _raise_bad_message("an image_url must have a url")
    detail = _get_text(record, "detail")
    url: str = record["url"]
    if not url.startswith("data:"):
        return ImagePart(url=url, detail=detail)
    media, data = _decode_data_url(url, "an image")
    return ImagePart(data=data, media_type=media, detail=detail)


def _to_document(given: Any) -> DocumentPart:
    """Convert a document in OpenAI's form: `file_data`, a data: URL, and `filename`."""
    url = given.get("file_data") if isinstance(given, Mapping) else None
    if not isinstance(url, str) or not url.startswith("data:"):
        _raise_bad_message("a file must have file_data, a data: URL")
    media, data = _decode_data_url(url, "a file")
    return DocumentPart(data=data, media_type=media, name=_get_text(given, "filename"))


def _decode_data_url(url: str, title: str) -> tuple[str, bytes]:
    head, comma, text = url[5:].partition(",")
    media, _, coding = head.rpartition(";")
    if not comma or coding != "base64" or not media:
        _raise_bad_message(f"the data: URL of {title} must be data:MEDIA-TYPE;base64,DATA")
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        data = b""
    if not data:
        _raise_bad_message(f"the data: URL of {title} does not contain base64 data")
    return media, data


def _to_tool_call(given: Any) -> ToolCall:
    if isinstance(given, ToolCall):
        return given
    function = given.get("function") if isinstance(given, Mapping) else None
    if isinstance(function, Mapping):
        identity, name, arguments = given.get("id"), function.get("name"), function.get("arguments")
        if isinstance(identity, str) and isinstance(name, str) and isinstance(arguments, str):
            return ToolCall(id=identity, name=name, arguments=arguments)
    _raise_bad_message("a tool call must have an id and a function with a name and arguments, all texts")


def _to_tool(given: Any) -> Tool:
    if isinstance(given, Tool):
        return given
    if not isinstance(given, Mapping):
        _raise_bad_message("a tool is a Tool or a dict")
    function = given.get("function", given) if given.get("type") == "function" else given
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        _raise_bad_message("a tool has a name")
    parameters, strict = function.get("parameters", {}), function.get("strict")
    if not isinstance(parameters, Mapping) or not isinstance(strict, bool | None):
        _raise_bad_message("a tool's parameters are a JSON Schema, its strict is true or false")
    return Tool(
        name=function["name"],
        description=_get_text(function, "description"),
        parameters=parameters,
        strict=strict,
    )


def _get_text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        _raise_bad_message(f"{name} is a text")
    return value


_COMMON = ("timeout", "retries")
CHAT_ARGUMENTS = (*WELL_KNOWN, "tools", "tool_choice", "schema", "extra")

_TOOL_CHOICES = frozenset({"auto", "none", "required"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The arguments of a call besides its messages; `layers` has at most one layer, the strongest."""

    layers: tuple[ParameterLayer, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    schema: Mapping[str, Any] | None = None


def parse_overrides(given: Mapping[str, Any], extra_names: Iterable[str] = CHAT_ARGUMENTS) -> Overrides:
    """Return the overrides of a call. Raises UsageError for an unknown or unsuitable argument.

    None means "as in the URI". A schema without a format means `format="json_schema"`.
    """
    allowed = (*_COMMON, *extra_names)
    for name in given:
        if name not in allowed:
            close = get_close_matches(name, allowed, n=1)
            raise UsageError(
                "an argument has a name that this call does not know",
                code="usage.unknown-argument",
                hint=f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(set(allowed)))}",
            )
    values = {name: given[name] for name in WELL_KNOWN if given.get(name) is not None}
    schema = given.get("schema")
    if schema is not None:
        if not isinstance(schema, Mapping):
            raise UsageError("schema is a JSON Schema, as a dict")
        if values.setdefault("format", "json_schema") != "json_schema":
            raise UsageError("a schema is allowed only with format=json_schema")
    extra = dict(_validate_extra(given.get("extra")))
    if given.get("dimensions") is not None:
        extra["dimensions"] = _validate_dimensions(given["dimensions"])
    tools = to_tools(given["tools"]) if given.get("tools") is not None else ()
    layer = ParameterLayer(origin="override", values=values, extra=extra)
    return Overrides(
        layers=(layer,) if values or extra else (),
        tools=tools,
        tool_choice=_normalize_tool_choice(given.get("tool_choice"), tools),
        schema=schema,
    )


def build_profile_layer(
    name: str, values: Mapping[str, Any]
) -> tuple[ParameterLayer, Mapping[str, Any] | None]:
    """Return a profile of the configuration as a layer, and its schema.

    Raises ConfigError for a name that would redirect or replace a request.
    """
    schema = values.get("schema")
    if schema is not None and not isinstance(schema, Mapping):
        raise ConfigError("the schema of a profile is a table", code="config.bad-profile")
    extra = {key: value for key, value in values.items() if key not in (*WELL_KNOWN, "schema")}
    if any(is_redirecting(key) for key in extra):
        raise ConfigError(
            "a profile contains a name that would redirect or replace the request", code="config.bad-profile"
        )
    known = {key: values[key] for key in WELL_KNOWN if key in values}
    return ParameterLayer(origin=f"profile:{name}", values=known, extra=extra), schema


def _validate_extra(given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise UsageError("extra is a dict of parameters for the provider")
    if any(is_redirecting(name) for name in given):
        raise UsageError(
            "extra contains a name that would redirect or replace the request", code="usage.redirecting"
        )
    return given


def _validate_dimensions(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError("dimensions is a whole number of at least 1")
    return given


def _normalize_tool_choice(given: Any, tools: tuple[Tool, ...]) -> str | None:
    """Return auto, none, required, or the name of a tool of this call."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        function = given.get("function")
        given = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(given, str) or (
        given not in _TOOL_CHOICES and given not in {tool.name for tool in tools}
    ):
        raise UsageError("tool_choice is auto, none, required or the name of a tool of this call")
    if not tools:
        raise UsageError("tool_choice needs tools")
    return given
