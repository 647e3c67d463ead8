"""The arguments of one call: messages, tools and overrides.

`to_messages`, `to_tools` and `to_texts` convert what a caller passes to the values of `onym.llm.types`.
`parse_overrides` checks the keyword arguments. All of them raise UsageError.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn, TypeAlias, cast, get_args

from onym.errors import ConfigError, UsageError
from onym.llm import types
from onym.llm.dialects.codec import get_tool_name
from onym.llm.mapping import ParameterLayer
from onym.llm.request_headers import HeaderPairs, parse_headers
from onym.uri.parameters import PROVIDER_NAMES, WELL_KNOWN, format_name, is_redirecting

MessageLike: TypeAlias = str | types.Message | types.Completion | Mapping[str, Any]
Messages: TypeAlias = MessageLike | Iterable[MessageLike]
ToolLike: TypeAlias = types.Tool | Mapping[str, Any]

_ROLES: frozenset[str] = frozenset(get_args(types.Role))
#: other names of the same roles
_ROLE_ALIASES = {"developer": "system", "function": "tool"}

#: members of an assistant's message with its reasoning: every server has its own
_REASONING_TEXTS = ("reasoning_content", "reasoning", "thinking")
_REASONING_MEMBERS = (*_REASONING_TEXTS, "reasoning_details")
_MESSAGE_MEMBERS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "carried", *_REASONING_MEMBERS}
)
#: `index` orders the pieces of a stream and says nothing about a complete call
_CALL_MEMBERS = frozenset({"id", "type", "function", "index", "extra_content"})
_FUNCTION_MEMBERS = frozenset(
    {"name", "description", "parameters", "input_schema", "strict", "cache_control"}
)
_MEDIA_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_AUDIO_FORMAT = re.compile(r"[a-z0-9]{1,16}", re.ASCII)


def to_messages(given: Messages) -> tuple[types.Message, ...]:
    """Convert a text (one user turn), a message or several messages.

    A message may be a `Message`, a `Completion` (the assistant's turn with its tool calls), a text (a user
    turn) or a dict with `role` and `content`. Raises UsageError for other values.
    """
    if isinstance(given, str):
        return (types.Message(role="user", content=given),)
    if isinstance(given, types.Message | types.Completion | Mapping):
        return (_to_message(given),)
    if not _is_sequence(given):
        _raise_bad_message("messages are a text, a message, or several of them")
    messages = tuple([_to_message(message) for message in given])
    if not messages:
        _raise_bad_message("the list of messages is empty")
    return messages


def to_tools(given: Iterable[ToolLike]) -> tuple[tuple[types.Tool, ...], tuple[Mapping[str, Any], ...]]:
    """Convert tools; return the functions, and the tools that the provider runs itself, such as a web search.

    A function is a `Tool`, or a dict in OpenAI's form with or without `type`, or in Anthropic's form with
    `input_schema`. A dict with another `type`, or without a name, is a tool of the provider: it is passed on
    unchanged.
    """
    if not _is_sequence(given):
        _raise_bad_message("tools are a sequence of tools")
    tools: list[types.Tool] = []
    provider_tools: list[Mapping[str, Any]] = []
    for tool in given:
        if not isinstance(tool, types.Tool) and _is_provider_tool(tool):
            provider_tools.append(tool)
        else:
            tools.append(_to_tool(tool))
    if len({tool.name for tool in tools}) != len(tools):
        _raise_bad_message("two tools have the same name")
    return tuple(tools), tuple(provider_tools)


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


def _raise_bad_message(text: str, hint: str | None = None) -> NoReturn:
    raise UsageError(text, code="usage.bad-message", hint=hint)


def _require_known_members(
    given: Mapping[str, Any], known: frozenset[str], title: str, hint: str | None = None
) -> None:
    """Raise UsageError for a member that Onym would drop. Members without content may be dropped."""
    for name, value in given.items():
        if name not in known and value is not None and value not in ([], {}, ()):
            shown = format_name(str(name))
            _raise_bad_message(
                f"{title} has the member {shown}, which Onym does not know",
                hint or f"known members are {', '.join(sorted(known))}",
            )


def _to_message(given: MessageLike) -> types.Message:
    if isinstance(given, types.Message):
        if given.role not in _ROLES:
            _raise_bad_message(f"a message's role is one of {', '.join(sorted(_ROLES))}")
        if not isinstance(given.content, str):
            _to_content(given.content)
        return given
    if isinstance(given, str):
        return types.Message(role="user", content=given)
    if isinstance(given, types.Completion):
        return types.Message(
            role="assistant", content=given.text, tool_calls=given.tool_calls, carried=given.carried
        )
    if isinstance(given, Mapping):
        return _mapping_to_message(given)
    _raise_bad_message("a message is a text, a Message, a Completion or a dict with role and content")


def _mapping_to_message(given: Mapping[str, Any]) -> types.Message:
    role = given.get("role")
    role = _ROLE_ALIASES.get(role, role) if isinstance(role, str) else None
    if role not in _ROLES:
        _raise_bad_message(f"a message's role is one of {', '.join(sorted(_ROLES))}")
    _require_known_members(given, _MESSAGE_MEMBERS, "a message")
    calls = given.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        _raise_bad_message("tool_calls are a list")
    carried = _to_carried(given, calls)
    if carried is not None and role != "assistant":
        _raise_bad_message("only a message of the role assistant has reasoning")
    return types.Message(
        role=cast("types.Role", role),
        # a refusal is the text of the turn
        content=_to_content(given.get("content")) or _get_text(given, "refusal") or "",
        tool_calls=tuple([_to_tool_call(call) for call in calls]),
        tool_call_id=_get_text(given, "tool_call_id"),
        name=_get_text(given, "name"),
        carried=carried,
    )


def _to_carried(given: Mapping[str, Any], calls: Iterable[Any]) -> types.Carried | None:
    """Return the reasoning of a message. It is not known which provider made it."""
    record = given.get("carried")
    if record is not None:
        carried = record if isinstance(record, types.Carried) else types.Carried.from_record(record)
        if carried is None:
            _raise_bad_message("carried has dialect, provider and parts, as Carried.to_record returns them")
        return carried
    members: dict[str, Any] = {
        name: text for name in _REASONING_TEXTS if (text := _get_text(given, name)) is not None
    }
    details = given.get("reasoning_details")
    if details:
        if not isinstance(details, list | tuple) or not all(isinstance(item, Mapping) for item in details):
            _raise_bad_message("reasoning_details are a list of objects")
        members["reasoning_details"] = list(details)
    signed = {
        call.get("id"): call["extra_content"]
        for call in calls
        if isinstance(call, Mapping) and call.get("extra_content")
    }
    if signed:
        members["extra_content"] = signed
    return types.Carried(dialect="openai_chat", parts=(members,)) if members else None


def _to_content(given: Any) -> types.Content:
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    if not isinstance(given, list | tuple):
        _raise_bad_message("a message's content is a text or a list of parts")
    return tuple([_to_part(part) for part in given])


def _to_part(given: Any) -> types.ContentPart:
    if isinstance(given, str):
        return types.TextPart(given)
    if isinstance(given, types.TextPart):
        return given
    if isinstance(given, types.ImagePart | types.DocumentPart):
        if given.url is None and not given.data:
            _raise_bad_message("an image or a document has a url or data")
        return given
    if not isinstance(given, Mapping):
        _raise_bad_message("a part of a message is a text, a part, or a dict with type")
    kind = given.get("type")
    convert = _PART_CONVERTERS.get(kind) if isinstance(kind, str) else None
    if convert is None:
        shown = format_name(kind) if isinstance(kind, str) else "that is not a text"
        _raise_bad_message(
            f"a part of a message has the type {shown}", f"known types are {', '.join(_PART_CONVERTERS)}"
        )
    _require_known_members(given, frozenset({"type", str(kind), "cache_control"}), f"a part of type {kind}")
    return convert(given.get(str(kind)), _get_cache_control(given))


def _get_cache_control(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    value = given.get("cache_control")
    if value is not None and not isinstance(value, Mapping):
        _raise_bad_message('cache_control is an object, such as {"type": "ephemeral"}')
    return value


def _to_text(given: Any, cache_control: Mapping[str, Any] | None) -> types.TextPart:
    if not isinstance(given, str):
        _raise_bad_message("a part of type text must have a text")
    return types.TextPart(given, cache_control=cache_control)


def _to_image(given: Any, cache_control: Mapping[str, Any] | None) -> types.ImagePart:
    record = {"url": given} if isinstance(given, str) else given
    if not isinstance(record, Mapping) or not isinstance(record.get("url"), str):
        _raise_bad_message("an image_url must have a url")
    _require_known_members(record, frozenset({"url", "detail"}), "an image_url")
    detail = _get_text(record, "detail")
    url: str = record["url"]
    if not url.startswith("data:"):
        return types.ImagePart(url=url, detail=detail, cache_control=cache_control)
    media, data = _decode_data_url(url, "an image")
    return types.ImagePart(data=data, media_type=media, detail=detail, cache_control=cache_control)


def _to_document(given: Any, cache_control: Mapping[str, Any] | None) -> types.DocumentPart:
    """Convert a document in OpenAI's form: `file_data`, a data: URL, and `filename`."""
    if not isinstance(given, Mapping):
        _raise_bad_message("a file must have file_data, a data: URL")
    _require_known_members(given, frozenset({"file_data", "filename"}), "a file")
    url = given.get("file_data")
    if not isinstance(url, str) or not url.startswith("data:"):
        _raise_bad_message("a file must have file_data, a data: URL")
    media, data = _decode_data_url(url, "a file")
    name = _get_text(given, "filename")
    return types.DocumentPart(data=data, media_type=media, name=name, cache_control=cache_control)


def _to_audio(given: Any, cache_control: Mapping[str, Any] | None) -> types.DocumentPart:
    """Convert a recording in OpenAI's form: base64 `data` and its `format`."""
    data, kind = (given.get("data"), given.get("format")) if isinstance(given, Mapping) else (None, None)
    if not isinstance(data, str) or not isinstance(kind, str) or not _AUDIO_FORMAT.fullmatch(kind):
        _raise_bad_message("an input_audio must have data, as base64, and a format such as wav or mp3")
    _require_known_members(given, frozenset({"data", "format"}), "an input_audio")
    content = _decode_base64(data)
    if not content:
        _raise_bad_message("the data of an input_audio is not base64")
    media_type = _MEDIA_TYPES.get(kind, f"audio/{kind}")
    return types.DocumentPart(data=content, media_type=media_type, cache_control=cache_control)


#: by the type of a part, which is also the member with its content
_PART_CONVERTERS: Mapping[str, Callable[[Any, Mapping[str, Any] | None], types.ContentPart]] = {
    "text": _to_text,
    "image_url": _to_image,
    "file": _to_document,
    "input_audio": _to_audio,
}


def _decode_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


def _decode_data_url(url: str, title: str) -> tuple[str, bytes]:
    head, comma, text = url[5:].partition(",")
    media, _, coding = head.rpartition(";")
    if not comma or coding != "base64" or not media:
        _raise_bad_message(f"the data: URL of {title} must be data:MEDIA-TYPE;base64,DATA")
    data = _decode_base64(text)
    if not data:
        _raise_bad_message(f"the data: URL of {title} does not contain base64 data")
    return media, data


def _to_tool_call(given: Any) -> types.ToolCall:
    if isinstance(given, types.ToolCall):
        return given
    custom = isinstance(given, Mapping) and given.get("type") == "custom"
    kind, member = ("custom", "input") if custom else ("function", "arguments")
    function = given.get(kind) if isinstance(given, Mapping) else None
    if isinstance(function, Mapping):
        _require_known_members(given, _CALL_MEMBERS | {kind}, "a tool call")
        _require_known_members(function, frozenset({"name", member}), f"the {kind} of a tool call")
        identity, name, arguments = given.get("id"), function.get("name"), function.get(member)
        if isinstance(identity, str) and isinstance(name, str) and isinstance(arguments, str):
            return types.ToolCall(id=identity, name=name, arguments=arguments, custom=custom)
    _raise_bad_message("a tool call must have an id and a function with a name and arguments, all texts")


def _is_provider_tool(given: Any) -> bool:
    """Whether a tool is not a function that the caller runs."""
    if not isinstance(given, Mapping):
        _raise_bad_message("a tool is a Tool or a dict")
    kind = given.get("type")
    if kind is None:
        return "name" not in given and "function" not in given and bool(given)
    if not isinstance(kind, str):
        _raise_bad_message("the type of a tool is a text")
    # "custom" is Anthropic's name for a function, and OpenAI's for a tool with text as its input
    return kind != "function" and not (kind == "custom" and "input_schema" in given)


def _to_tool(given: Any) -> types.Tool:
    if isinstance(given, types.Tool):
        return given
    function = given.get("function", given)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        _raise_bad_message("a tool has a name")
    title = f"the tool {format_name(function['name'])}"
    hint = 'to send a tool as it is, pass it in extra={"tools": [...]}'
    if function is given:
        _require_known_members(given, _FUNCTION_MEMBERS | {"type"}, title, hint)
    else:
        _require_known_members(given, frozenset({"type", "function", "cache_control"}), title, hint)
        _require_known_members(function, _FUNCTION_MEMBERS, title, hint)
    schemas = [function[name] for name in ("parameters", "input_schema") if function.get(name) is not None]
    parameters, strict = schemas[0] if schemas else {}, function.get("strict")
    if len(schemas) > 1 or not isinstance(parameters, Mapping) or not isinstance(strict, bool | None):
        _raise_bad_message("a tool's parameters are a JSON Schema, its strict is true or false")
    return types.Tool(
        name=function["name"],
        description=_get_text(function, "description"),
        parameters=parameters,
        strict=strict,
        cache_control=_get_cache_control(given) or _get_cache_control(function),
    )


def _get_text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        _raise_bad_message(f"{name} is a text")
    return value


_COMMON = ("timeout", "retries", "headers")
CHAT_ARGUMENTS = (*WELL_KNOWN, "tools", "tool_choice", "schema", "extra", "idle_timeout")

_TOOL_CHOICES = frozenset({"auto", "none", "required"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The arguments of a call besides its messages.

    `layers` has at most one layer, the strongest. `idle_timeout` is in seconds.
    """

    layers: tuple[ParameterLayer, ...] = ()
    tools: tuple[types.Tool, ...] = ()
    provider_tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | None = None
    schema: Mapping[str, Any] | None = None
    headers: HeaderPairs = ()
    idle_timeout: float | None = None


def parse_overrides(given: Mapping[str, Any], extra_names: Iterable[str] = CHAT_ARGUMENTS) -> Overrides:
    """Return the overrides of a call. Raises UsageError for an unknown or unsuitable argument.

    None means "as in the URI". A schema without a format means `format="json_schema"`.
    """
    allowed = (*_COMMON, *extra_names)
    for name in given:
        if name not in allowed:
            close = [PROVIDER_NAMES.get(name), *get_close_matches(name, allowed, n=1)]
            meant = next((known for known in close if known in allowed), None)
            raise UsageError(
                f"{format_name(name)} is not an argument of this call",
                code="usage.unknown-argument",
                hint=f"did you mean {meant}?" if meant else f"known are {', '.join(sorted(set(allowed)))}",
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
    tools, provider_tools = to_tools(given["tools"]) if given.get("tools") is not None else ((), ())
    layer = ParameterLayer(origin="override", values=values, extra=extra)
    return Overrides(
        layers=(layer,) if values or extra else (),
        tools=tools,
        provider_tools=provider_tools,
        tool_choice=_normalize_tool_choice(given.get("tool_choice"), tools, provider_tools),
        schema=schema,
        headers=parse_headers(given.get("headers")),
        idle_timeout=_validate_idle_timeout(given.get("idle_timeout")),
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
    if "stream" in given:
        raise UsageError(
            "extra contains stream, which decides how the answer is read",
            code="usage.conflict",
            hint="call the method stream() of the client instead",
        )
    return given


def _validate_idle_timeout(given: Any) -> float | None:
    """Return the milliseconds of an argument as seconds, None without one."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError(
            "idle_timeout is a whole number of at least 1, in milliseconds", code="usage.idle-timeout"
        )
    return given / 1000


def _validate_dimensions(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError("dimensions is a whole number of at least 1")
    return given


def _normalize_tool_choice(
    given: Any, tools: tuple[types.Tool, ...], provider_tools: tuple[Mapping[str, Any], ...]
) -> str | None:
    """Return auto, none, required, or the name of a tool of this call."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        function = given.get("function", given)
        given = function.get("name") if isinstance(function, Mapping) else None
    names = {tool.name for tool in tools} | {get_tool_name(tool) for tool in provider_tools}
    if not isinstance(given, str) or (given not in _TOOL_CHOICES and given not in names):
        raise UsageError("tool_choice is auto, none, required or the name of a tool of this call")
    if not names:
        raise UsageError("tool_choice needs tools")
    return given
