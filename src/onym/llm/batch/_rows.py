"""One row of the input: what is asked, under which label. Two shapes are read, ours and OpenAI's batch line.

{"id": "a", "prompt": "…"}
{"id": "b", "messages": […], "params": {"temp": 0.2}, "tools": […], "schema": {…}}
{"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […], …}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from onym.errors import OnymError, UsageError
from onym.uri._names import WELL_KNOWN
from onym.uri.redact import redact

__all__ = ["Row", "label", "read_row"]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_URLS = frozenset({None, "/v1/chat/completions"})
#: characters of a remark on the shape of a row
_LONGEST = 160
#: a member of OpenAI's body, and the argument of a call that says the same
_BODY = {
    "temperature": "temp",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
    "tools": "tools",
    "tool_choice": "tool_choice",
}


class Row(NamedTuple):
    """One request: its place in the input (0 is the first), its label, what is asked and how.

    `retries` is the row's own, None for the run's. `error` says why the row cannot be asked at all.
    """

    place: int
    id: str
    messages: Any = None
    overrides: Mapping[str, Any] = _NOTHING
    retries: int | None = None
    error: OnymError | None = None


class _Ids(msgspec.Struct):
    id: Any = None
    custom_id: Any = None


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    params: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    schema: dict[str, Any] | None = None
    custom_id: str | int | None = None
    method: str | None = None
    url: str | None = None
    body: dict[str, Any] | None = None


_IDS = msgspec.json.Decoder(_Ids)
_GIVEN = msgspec.json.Decoder(_Given)


def label(index: int, line: bytes) -> str:
    """The label of a row: its `id` or `custom_id`, else its place as decimal text."""
    try:
        found = _IDS.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return str(index)
    for given in (found.id, found.custom_id):
        if type(given) in (str, int):
            return str(given)
    return str(index)


def read_row(index: int, line: bytes, model: str) -> Row:
    """The row that this line holds; what is wrong with it stands in `error`, nothing is raised.

    `model` is the model of the endpoint, which a body may name and must not contradict.
    """
    try:
        given = _GIVEN.decode(line)
        messages, overrides = _from_body(given, model) if given.body is not None else _own(given)
        retries = _take_retries(overrides)
    except UsageError as error:
        return Row(index, label(index, line), error=error)
    except msgspec.ValidationError as error:
        return Row(index, label(index, line), error=_bad(_remark(error)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Row(index, label(index, line), error=_bad("the row is not JSON"))
    name = given.custom_id if given.id is None else given.id
    return Row(index, str(index if name is None else name), messages, overrides, retries)


def _bad(text: str, *, hint: str | None = None) -> UsageError:
    return UsageError(text, code="usage.bad-row", hint=hint)


def _remark(error: Exception) -> str:
    # it holds names of members and of types, no value of theirs
    return f"the row has another shape: {redact(str(error))[:_LONGEST]}"


def _own(given: _Given) -> tuple[Any, dict[str, Any]]:
    if (given.prompt is None) == (given.messages is None):
        raise _bad("a row has either a prompt or messages")
    overrides: dict[str, Any] = {}
    if given.params:
        extra: dict[str, Any] = {}
        for name, value in given.params.items():
            (overrides if name in WELL_KNOWN else extra)[name] = value
        if extra:
            overrides["extra"] = extra
    for name in ("tools", "tool_choice", "schema"):
        value = getattr(given, name)
        if value is not None:
            overrides[name] = value
    return given.messages if given.prompt is None else given.prompt, overrides


def _from_body(given: _Given, model: str) -> tuple[Any, dict[str, Any]]:
    """OpenAI's batch line, in the arguments of a call; what has no name here is passed through."""
    ours = (given.prompt, given.messages, given.params, given.tools, given.tool_choice, given.schema)
    if any(member is not None for member in ours):
        raise _bad("a row with a body has nothing beside it but custom_id, method and url")
    if given.url not in _URLS:
        raise _bad("the row asks for another operation than /v1/chat/completions")
    body = dict(given.body or {})
    if body.pop("model", model) != model:
        raise _bad("the body names another model than the URI", hint="leave model out of the body")
    messages = body.pop("messages", None)
    if not isinstance(messages, list):
        raise _bad("the body holds no messages")
    if body.pop("stream", False):
        raise _bad("a row of a batch is not streamed")
    overrides = {_BODY[name]: body.pop(name) for name in _BODY if name in body}
    _FORMATS.get(type(body.get("response_format")), _no_format)(body, overrides)
    if body:
        overrides["extra"] = body
    return messages, overrides


def _no_format(body: dict[str, Any], overrides: dict[str, Any]) -> None:
    if "response_format" in body:
        raise _bad("response_format is an object")


def _format(body: dict[str, Any], overrides: dict[str, Any]) -> None:
    wanted = body.pop("response_format")
    kind, inner = wanted.get("type"), wanted.get("json_schema")
    if kind == "json_schema" and isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
        overrides["schema"] = inner["schema"]
    elif kind in ("text", "json_object"):
        overrides["format"] = "json" if kind == "json_object" else "text"
    else:
        raise _bad("response_format is not one of text, json_object and json_schema with its schema")


_FORMATS: dict[type, Callable[[dict[str, Any], dict[str, Any]], None]] = {dict: _format}


def _take_retries(overrides: dict[str, Any]) -> int | None:
    """`retries` of the row: the run's, not the client's, to act on."""
    given = overrides.pop("retries", None)
    if given is not None and (type(given) is not int or not 0 <= given <= 100):
        raise _bad("retries is a whole number from 0 to 100")
    return given
