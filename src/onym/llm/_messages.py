"""What people pass in (texts, dicts in the common shape, earlier answers) as `Message` and `Tool`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias, cast, get_args

from onym.errors import UsageError
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

__all__ = ["MessageLike", "Messages", "ToolLike", "to_messages", "to_texts", "to_tools"]

MessageLike: TypeAlias = str | Message | Completion | Mapping[str, Any]
Messages: TypeAlias = MessageLike | Iterable[MessageLike]
ToolLike: TypeAlias = Tool | Mapping[str, Any]

_ROLES: frozenset[str] = frozenset(get_args(Role))
#: other names of the same roles
_ALSO = {"developer": "system", "function": "tool"}


def to_messages(given: Messages) -> tuple[Message, ...]:
    """Messages from a text (one user turn), one message, or several.

    A message may be a `Message`, a `Completion` (the assistant's turn, tool calls included), a text
    (a user turn) or a dict with `role` and `content`. Raises UsageError for what is none of these.
    """
    if isinstance(given, str):
        return (Message(role="user", content=given),)
    if isinstance(given, Message | Completion | Mapping):
        return (_message(given),)
    if not _is_several(given):
        _refuse("messages are a text, a message, or several of them")
    messages = tuple([_message(each) for each in given])
    if not messages:
        _refuse("there is no message to send")
    return messages


def to_tools(given: Iterable[ToolLike]) -> tuple[Tool, ...]:
    """Tools from `Tool` values, or from dicts in the common shape with or without `type`."""
    if not _is_several(given):
        _refuse("tools are a sequence of tools")
    tools = tuple([_tool(each) for each in given])
    if len({tool.name for tool in tools}) != len(tools):
        _refuse("two tools have the same name")
    return tools


def to_texts(given: str | Iterable[str]) -> tuple[str, ...]:
    """The texts to embed: one, or several."""
    if isinstance(given, str):
        return (given,)
    if not _is_several(given):
        _refuse("texts are a text or several of them")
    texts = tuple(given)
    if not texts or not all(isinstance(each, str) for each in texts):
        _refuse("texts are one text at least, and nothing but texts")
    return texts


def _is_several(given: object) -> bool:
    """Whether these are things one after another, and not one thing that happens to be iterable."""
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray | Mapping)


def _refuse(text: str) -> NoReturn:
    raise UsageError(text, code="usage.bad-message")


def _message(given: MessageLike) -> Message:
    if isinstance(given, Message):
        if given.role not in _ROLES:
            _refuse(f"a message's role is one of {', '.join(sorted(_ROLES))}")
        if not isinstance(given.content, str):
            _content(given.content)
        return given
    if isinstance(given, str):
        return Message(role="user", content=given)
    if isinstance(given, Completion):
        return Message(
            role="assistant", content=given.text, tool_calls=given.tool_calls, carried=given.carried
        )
    if isinstance(given, Mapping):
        return _from_mapping(given)
    _refuse("a message is a text, a Message, a Completion or a dict with role and content")


def _from_mapping(given: Mapping[str, Any]) -> Message:
    role = given.get("role")
    role = _ALSO.get(role, role) if isinstance(role, str) else None
    if role not in _ROLES:
        _refuse(f"a message's role is one of {', '.join(sorted(_ROLES))}")
    unknown = set(given) - {"role", "content", "name", "tool_calls", "tool_call_id", "refusal"}
    if unknown:
        _refuse("a message has a member that is not one of role, content, name, tool_calls, tool_call_id")
    calls = given.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        _refuse("tool_calls are a list")
    return Message(
        role=cast("Role", role),
        content=_content(given.get("content")),
        tool_calls=tuple([_tool_call(call) for call in calls]),
        tool_call_id=_text_or_none(given, "tool_call_id"),
        name=_text_or_none(given, "name"),
    )


def _content(given: Any) -> Content:
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    if not isinstance(given, list | tuple):
        _refuse("a message's content is a text or a list of parts")
    return tuple([_part(part) for part in given])


def _part(given: Any) -> ContentPart:
    if isinstance(given, str):
        return TextPart(given)
    if isinstance(given, TextPart):
        return given
    if isinstance(given, ImagePart | DocumentPart):
        if given.url is None and not given.data:
            _refuse("an image or a document has a url or data")
        return given
    if isinstance(given, Mapping):
        kind = given.get("type")
        if kind == "text" and isinstance(given.get("text"), str):
            return TextPart(given["text"])
        if kind == "image_url":
            return _image(given.get("image_url"))
        if kind == "file":
            return _file(given.get("file"))
    _refuse("a part of a message is a text, an image as image_url, or a document as file")


def _image(given: Any) -> ImagePart:
    record = {"url": given} if isinstance(given, str) else given
    if not isinstance(record, Mapping) or not isinstance(record.get("url"), str):
        _refuse("an image_url holds a url")
    detail = _text_or_none(record, "detail")
    url: str = record["url"]
    if not url.startswith("data:"):
        return ImagePart(url=url, detail=detail)
    media, octets = _from_data_url(url, "an image")
    return ImagePart(data=octets, media_type=media, detail=detail)


def _file(given: Any) -> DocumentPart:
    """A document as OpenAI writes it: `file_data`, a data: URL, and `filename`."""
    url = given.get("file_data") if isinstance(given, Mapping) else None
    if not isinstance(url, str) or not url.startswith("data:"):
        _refuse("a file holds file_data, a data: URL")
    media, octets = _from_data_url(url, "a file")
    return DocumentPart(data=octets, media_type=media, name=_text_or_none(given, "filename"))


def _from_data_url(url: str, what: str) -> tuple[str, bytes]:
    head, comma, data = url[5:].partition(",")
    media, _, coding = head.rpartition(";")
    if not comma or coding != "base64" or not media:
        _refuse(f"{what}'s data: URL is data:MEDIA-TYPE;base64,DATA")
    try:
        octets = b64decode(data, validate=True)
    except ValueError:
        octets = b""
    if not octets:
        _refuse(f"{what}'s data: URL holds no base64 data")
    return media, octets


def _tool_call(given: Any) -> ToolCall:
    if isinstance(given, ToolCall):
        return given
    function = given.get("function") if isinstance(given, Mapping) else None
    if isinstance(function, Mapping):
        identity, name, arguments = given.get("id"), function.get("name"), function.get("arguments")
        if isinstance(identity, str) and isinstance(name, str) and isinstance(arguments, str):
            return ToolCall(id=identity, name=name, arguments=arguments)
    _refuse("a tool call holds an id and a function with a name and arguments, all texts")


def _tool(given: Any) -> Tool:
    if isinstance(given, Tool):
        return given
    if not isinstance(given, Mapping):
        _refuse("a tool is a Tool or a dict")
    function = given.get("function", given) if given.get("type") == "function" else given
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        _refuse("a tool has a name")
    parameters, strict = function.get("parameters", {}), function.get("strict")
    if not isinstance(parameters, Mapping) or not isinstance(strict, bool | None):
        _refuse("a tool's parameters are a JSON Schema, its strict is true or false")
    return Tool(
        name=function["name"],
        description=_text_or_none(function, "description"),
        parameters=parameters,
        strict=strict,
    )


def _text_or_none(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        _refuse(f"{name} is a text")
    return value
