"""What the bridges to SDKs share: import checks, HTTP clients with limits, schemas and verified results."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from onym._lazy import make_missing_extra_error
from onym.errors import AIIPError, OnymError, UsageError
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from a2a.types import Part

    from onym.ai.records import Description, Result
    from onym.ai.tasks import AsyncTaskHandle, TaskReference

#: members of metadata: the compact receipt, and the ai URI of the request
RECEIPT_KEY: Final = "aiip-receipt"
URI_KEY: Final = "aiip-uri"
#: the code of the error that a call ended with
CODE_KEY: Final = "aiip-code"
#: levels of a remote schema that are passed on; JSON writers have a limit
_DEEPEST: Final = 64
#: charsets that are a subset of UTF-8
_CHARSETS: Final = frozenset({"", "utf-8", "us-ascii"})
#: in the schema of a member: a person may be asked for it, if a call leaves it out
ASK_KEY: Final = "x-aiip-ask"
#: types of the members of a form (MCP, client/elicitation), and the most members and questions
_FORM_TYPES: Final = frozenset({"string", "integer", "number", "boolean"})
_MOST_MEMBERS: Final = 16
#: effects for which a person may be asked to fill in a form
ASKING: Final = frozenset({"read", "write"})
_MAX_RESOURCES: Final = 128
_LONGEST_NAME: Final = 64
#: valid names of tools (MCP 2025-11-25, server/tools)
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")

#: the largest integer that a double represents exactly and uniquely (RFC 8259 6)
_LARGEST: Final = 2**53 - 1
#: levels of a value; the SDK reads 100, and each level takes two of them
_DEEPEST_PART: Final = 32


@contextmanager
def require_extra(package: str, extra: str) -> Iterator[None]:
    """Raise MissingExtraError if `package`, which the `with` block imports, is not installed.

    `extra` is the extra of Onym that installs it. A broken package keeps its own error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package.partition(".")[0]:
            raise
        raise make_missing_extra_error(
            package.partition(".")[0], extra, code="bridge.missing-extra"
        ) from None


#: bytes of one response
MAX_RESPONSE: Final = 16 * 1024 * 1024


def make_http_client(http: Any, timeout: float) -> Any:
    """Return an `AsyncClient` of `http` (the module httpx or httpx2) without redirects and environment.

    A response of more than `MAX_RESPONSE` bytes raises ReadError. A compressed response raises DecodingError:
    none is requested, and a few bytes could become any number of them.
    """
    limit = MAX_RESPONSE

    class Bounded(http.AsyncByteStream):  # type: ignore[misc]
        """A body that raises an error when it is too long."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._stream:
                size += len(part)
                if size > limit:
                    raise http.ReadError(f"the response is larger than {limit} bytes")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise http.DecodingError("the response has a content encoding that was not requested")
        response.stream = Bounded(response.stream)

    return http.AsyncClient(
        timeout=timeout,
        follow_redirects=False,
        trust_env=False,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [bound]},
    )


class Invoker(Protocol):
    """A client for ai URIs, such as `onym.ai.AsyncAIClient`. Its results are verified."""

    async def describe(self, uri: str | AIURI) -> Description:
        """Return the description of a resource."""
        ...

    async def invoke(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        accept: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
    ) -> Result:
        """Return the verified result of an invocation."""
        ...


@runtime_checkable
class StreamingInvoker(Protocol):
    """An `Invoker` that can also stream, such as `onym.ai.AsyncAIClient`."""

    async def stream(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        approval: str | None = None,
        keep: bool = False,
    ) -> Any:
        """Return the events, with the verified `result` after them."""
        ...


@runtime_checkable
class TaskInvoker(Protocol):
    """An `Invoker` that can begin long tasks, such as `onym.ai.AsyncAIClient`."""

    async def start(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        approval: str | None = None,
    ) -> AsyncTaskHandle:
        """Invoke the resource as a long task."""
        ...

    async def task(self, reference: TaskReference) -> AsyncTaskHandle:
        """Return a handle of a task that was begun earlier."""
        ...


def is_json(content_type: str | None) -> bool:
    """Whether a media type is JSON."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def decode_json_result(result: Result) -> tuple[Any, ...]:
    """Return the JSON value of a result as a tuple of one; () if the result is not JSON."""
    if not is_json(result.content_type):
        return ()
    try:
        return (result.json(),)
    except OnymError:
        return ()


def decode_text_result(result: Result) -> str | None:
    """Return the text of a result, including JSON; None unless it is certainly UTF-8 text."""
    kind, _, rest = (result.content_type or "").partition(";")
    text = kind.strip().lower().startswith("text/")
    if not (is_json(kind) or (text and _parse_charset(rest) in _CHARSETS)):
        return None
    try:
        return result.body.decode()
    except UnicodeDecodeError:
        return None


def read_stream_result(result: Result, last: str | None) -> Result:
    """Return the verified result of a stream: the data of its event `result`, if it had one, as JSON."""
    return result if last is None else replace(result, body=last.encode(), content_type="application/json")


def normalize_input_schema(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a remote input schema as the schema of an object; {"type": "object"} if it is not one.

    A schema is sent to all clients of the protocol, so one that could break them is replaced.
    """
    from onym.ai.endpoint.schemas import inline_root_reference  # late: bridges of llm:// do not need it

    inlined = inline_root_reference(schema or {})
    kind = inlined.get("type", "object")
    if (kind == "object" or (isinstance(kind, list) and "object" in kind)) and _is_valid_schema(inlined):
        return {**inlined, "type": "object"}
    return {"type": "object"}


def _is_valid_schema(schema: Mapping[str, Any]) -> bool:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(properties, dict)
        and all(isinstance(schema, dict | bool) for schema in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(schema.get("$schema", ""), str)
        and is_shallow(schema)
    )


def iter_levels(value: Any) -> Iterator[list[Any]]:
    """Yield the parts of a JSON value, level by level, starting with the value itself."""
    level = [value]
    while level:
        yield level
        level = [inner for value in level for inner in _list_children(value)]


def _list_children(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def _parse_charset(parameters: str) -> str:
    match = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    return "" if match is None else match[1].lower()


def sanitize_text(text: str, most: int = 500) -> str:
    """Make remote text safe to show: one line, without control characters, of limited length."""
    shown = "".join(char if char.isprintable() else " " for char in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def is_shallow(value: Any) -> bool:
    """Whether a JSON value has few enough levels to be passed on."""
    return all(depth < _DEEPEST for depth, _ in enumerate(iter_levels(value)))


def name_resources(uris: Mapping[str, str] | Iterable[str]) -> dict[str, AIURI]:
    """Map tool names to resources; a name is given, or made from the path.

    Raises AIURIError, and UsageError for a duplicate name or too many resources.
    """
    pairs = uris.items() if isinstance(uris, Mapping) else ((None, uri) for uri in uris)
    resources: dict[str, AIURI] = {}
    for name, text in pairs:
        uri = AIURI.parse(text)
        label = _make_tool_name(uri) if name is None else name
        if _NAME.fullmatch(label) is None:
            raise UsageError(
                f"{sanitize_text(label, 60)!r} is not a valid tool name",
                code="usage.bad-argument",
                hint="use 1 to 128 of the characters A-Z a-z 0-9 _ - .",
            )
        if label in resources:
            raise UsageError(
                f"two resources have the name {label}",
                code="usage.bad-argument",
                hint="pass a mapping of names to URIs",
            )
        if len(resources) >= _MAX_RESOURCES:
            raise UsageError(f"more than {_MAX_RESOURCES} resources were passed", code="usage.bad-argument")
        resources[label] = uri
    return resources


def _make_tool_name(uri: AIURI) -> str:
    name = "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "_" for char in uri.path)
    return name.strip("_")[:_LONGEST_NAME] or "root"


@dataclass(frozen=True, slots=True)
class Question:
    """A form for one member of an input; `whole` if the member is the object that the form describes."""

    form: dict[str, Any]
    whole: bool

    def read(self, content: Any, name: str) -> tuple[Any] | None:
        """Return the value in what a person gave, which the endpoint validates; None without one."""
        if not isinstance(content, dict) or not all(label in content for label in self.form["required"]):
            return None
        given = {label: content[label] for label in self.form["properties"] if label in content}
        return (given,) if self.whole else (given.get(name),)


def find_questions(description: Description, arguments: Mapping[str, Any]) -> dict[str, Question]:
    """Return forms for the required members that are missing and that a person may be asked for.

    None for financial and physical effects: their input is what a person approves, on the page for that.
    """
    if description.effects not in ASKING:
        return {}
    schema = normalize_input_schema(description.input)
    found: dict[str, Question] = {}
    for name in schema.get("required", ()):
        member = schema.get("properties", {}).get(name)
        if name not in arguments and isinstance(member, dict) and member.get(ASK_KEY) is True:
            form = make_form(name, resolve_member(member, schema))
            if form is None:
                return {}  # the endpoint says what is missing
            found[name] = form
    return found if len(found) <= _MOST_MEMBERS else {}


def resolve_member(member: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a member without its reference to a definition, if it is one."""
    prefix, _, label = str(member.get("$ref", "")).rpartition("/")
    definition = schema.get("$defs", {}).get(label) if prefix == "#/$defs" else None
    return {**(definition if isinstance(definition, dict) else {}), **member}


def make_form(name: str, member: Mapping[str, Any]) -> Question | None:
    """Return the form for a member: an object of plain members, or a plain member; None for all else."""
    about = {key: member[key] for key in ("title", "description") if isinstance(member.get(key), str)}
    whole = member.get("type") == "object"
    members = member.get("properties", {}) if whole else {name: member}
    required = list(member.get("required", [])) if whole else [name]
    plain = {label: _make_field(field) for label, field in members.items()}
    if not plain or len(plain) > _MOST_MEMBERS or None in plain.values():
        return None
    return Question({"type": "object", "properties": plain, "required": required, **about}, whole)


def _make_field(field: Any) -> dict[str, Any] | None:
    """Return the field of a form for a plain member; None for a secret, which forms must not ask for."""
    if not isinstance(field, dict) or field.get("type") not in _FORM_TYPES:
        return None
    if field.get("writeOnly") or field.get("format") == "password":
        return None
    return {key: value for key, value in field.items() if key not in {ASK_KEY, "$ref"}}


def can_carry(value: Any) -> bool:
    """Whether a data part can carry this JSON value: no integer beyond 2^53-1 and at most 32 levels."""
    return all(
        depth < _DEEPEST_PART and all(not isinstance(item, int) or abs(item) <= _LARGEST for item in level)
        for depth, level in enumerate(iter_levels(value))
    )


def build_data_part(value: Any) -> Part:
    """Build a data part. Raises AIIPError `aiip.invalid-input` for a value that it cannot carry unchanged."""
    from a2a.helpers import new_data_part

    if not can_carry(value):
        raise AIIPError(
            "A2A cannot carry this data: it has an integer beyond 2^53-1, or more than 32 levels",
            code="aiip.invalid-input",
            hint="write large integers as strings",
        )
    return new_data_part(value)


def decode_part(part: Part, code: str = "aiip.invalid-input") -> Any:
    """Return the JSON value of a data part, with whole numbers as integers, or another part in A2A's form.

    Raises AIIPError with this code for NaN and infinity, which JSON does not have.
    """
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]

    try:
        value = MessageToDict(part.data if part.WhichOneof("content") == "data" else part)
    except ValueError:
        raise AIIPError("the data contains NaN or infinity, which JSON does not have", code=code) from None
    return _restore_integers(value)


def _restore_integers(value: Any) -> Any:
    """Return the value with integers instead of whole doubles. The SDK limits the depth to 100 levels."""
    if isinstance(value, dict):
        return {name: _restore_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_restore_integers(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
        return int(value)
    return value
