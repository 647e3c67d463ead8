"""A Python function as a resource: its type hints define the input and the validated output.

Results are validated against the declared type before they are signed. The validation uses types that it
builds itself, so it does not run code of the function's types.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import math
import types
import typing
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import inspect as nodes

from onym.ai.endpoint import schemas
from onym.ai.endpoint._runner import CURRENT_DEADLINE
from onym.ai.endpoint.context import CONTENT_TYPE, Answer, Call, StreamEvent
from onym.ai.endpoint.responses import call_contained
from onym.ai.endpoint.schemas import build_schema
from onym.ai.endpoint.task_runner import DetachedTask, ThreadedTask
from onym.ai.records import JSON, encode_json, is_json
from onym.errors import AIIPError, OnymError, UsageError

_Object: TypeAlias = nodes.StructType | nodes.DataclassType | nodes.NamedTupleType | nodes.TypedDictType
_OBJECTS: Final = (nodes.StructType, nodes.DataclassType, nodes.NamedTupleType, nodes.TypedDictType)
#: types that are JSON arrays; sets are checked as lists, because their items may not be hashable
_ARRAYS: Final = (nodes.ListType, nodes.SetType, nodes.FrozenSetType, nodes.VarTupleType)
#: scalars that may have bounds
_SCALARS: Final[Mapping[type, Any]] = {
    nodes.NoneType: None,
    nodes.BoolType: bool,
    nodes.IntType: int,
    nodes.FloatType: float,
    nodes.StrType: str,
    nodes.BytesType: bytes,
    nodes.ByteArrayType: bytearray,
    nodes.MemoryViewType: memoryview,
    nodes.DateTimeType: dt.datetime,
    nodes.DateType: dt.date,
    nodes.TimeType: dt.time,
    nodes.TimeDeltaType: dt.timedelta,
    nodes.UUIDType: uuid.UUID,
    nodes.DecimalType: decimal.Decimal,
}
#: the bounds of a node, by their names in Meta
_BOUNDS: Final = frozenset(
    {"gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz"}
)
#: types that msgspec encodes, including their subclasses
_ENCODABLE_BASES: Final = (list, tuple, dict, set, frozenset, enum.Enum, msgspec.Struct, msgspec.Raw)
#: types that msgspec encodes without their subclasses
_ENCODABLE_TYPES: Final = frozenset(
    {*(scalar for scalar in _SCALARS.values() if scalar), type(None), object, Any}
)
#: abstract types whose subclasses msgspec cannot encode
_UNENCODABLE_TYPES: Final[frozenset[Any]] = frozenset({Callable})
_UNIONS: Final = frozenset({types.UnionType, typing.Union})


def build_check_type(kind: Any) -> Any:
    """Return the type that validates the JSON of this type.

    Objects become Structs without defaults and without `__post_init__`; values of any type are not decoded.
    Raises TypeError for a type that msgspec cannot decode.
    """
    return _convert_node(nodes.type_info(kind), {})


def _convert_node(node: nodes.Type, seen: dict[int, Any]) -> Any:
    if isinstance(node, nodes.Metadata):
        return _convert_node(node.type, seen)
    if isinstance(node, _OBJECTS):
        return seen[id(node)] if id(node) in seen else _build_struct(node, seen)
    if isinstance(node, nodes.UnionType):
        return typing.Union[tuple(_convert_node(member, seen) for member in node.types)]  # noqa: UP007 - not known here
    if isinstance(node, nodes.EnumType):
        return node.cls
    if isinstance(node, nodes.LiteralType):
        return typing.Literal[node.values]
    kind = _convert_array_or_scalar(node, seen)
    if kind is msgspec.Raw:
        return kind
    bounds = {name: getattr(node, name) for name in _BOUNDS & {*node.__struct_fields__}}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    return typing.Annotated[kind, msgspec.Meta(**bounds)] if bounds else kind


def _convert_array_or_scalar(node: nodes.Type, seen: dict[int, Any]) -> Any:
    if isinstance(node, _ARRAYS):
        return list[_convert_node(node.item_type, seen)]  # type: ignore[misc]
    if isinstance(node, nodes.TupleType):
        return tuple[tuple(_convert_node(item, seen) for item in node.item_types)]  # type: ignore[misc]
    if isinstance(node, nodes.DictType):
        anything = isinstance(node.key_type, nodes.AnyType)
        key = str if anything else _convert_node(node.key_type, seen)
        return dict[key, _convert_node(node.value_type, seen)]  # type: ignore[misc,valid-type]
    return _SCALARS.get(type(node), msgspec.Raw)


def _build_struct(node: _Object, seen: dict[int, Any]) -> Any:
    """Build a Struct with the encoded members. Their types are set later, because they may be recursive."""
    absent = _list_unset_members(node.cls)
    names = {f"f{place}": member for place, member in enumerate(node.fields)}
    needed = {name for name, member in names.items() if member.required and member.name not in absent}
    named = isinstance(node, nodes.NamedTupleType)
    made: Any = msgspec.defstruct(
        node.cls.__name__,
        [(name, Any) if name in needed else (name, Any, msgspec.UNSET) for name in names],
        rename={name: member.encode_name for name, member in names.items()},
        tag_field=getattr(node, "tag_field", None),
        tag=getattr(node, "tag", None),
        array_like=named or getattr(node, "array_like", False),
        forbid_unknown_fields=getattr(node, "forbid_unknown_fields", False),
        kw_only=True,
    )
    seen[id(node)] = made
    made.__annotations__ = {name: _convert_node(member.type, seen) for name, member in names.items()}
    return made


def _list_unset_members(kind: Any) -> set[str]:
    """Return the members that may be UNSET, which is not encoded."""
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):
        return set()
    return {name for name, hint in hints.items() if msgspec.UnsetType in [hint, *typing.get_args(hint)]}


# types that can be encoded ---------------------------------------------------------------------------------


def can_encode(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Report whether a value of this type may have a JSON form; True if that is unknown."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return can_encode(inner[0], seen)
    if origin in _UNIONS:
        return any(can_encode(member, seen) for member in inner if member is not type(None))
    if origin is not None and origin is not typing.Literal:
        parts = [origin, *(argument for argument in inner if argument is not ...)]
        return all(can_encode(part, seen) for part in parts)
    if not isinstance(kind, type) or kind in seen:
        return True
    members = _list_member_types(kind)
    return _is_encodable_class(kind) and all(can_encode(member, seen | {kind}) for member in members)


def _is_encodable_class(kind: type) -> bool:
    return (
        kind in _ENCODABLE_TYPES
        or issubclass(kind, _ENCODABLE_BASES)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
        # values are of an unknown subclass
        or (
            kind not in _UNENCODABLE_TYPES
            and (inspect.isabstract(kind) or getattr(kind, "_is_protocol", False))
        )
    )


def _list_member_types(kind: type) -> list[Any]:
    """Return the types of an object's members."""
    names: Iterable[str] = getattr(kind, "__struct_fields__", ())
    if dataclasses.is_dataclass(kind):
        names = [member.name for member in dataclasses.fields(kind)]
    elif typing.is_typeddict(kind):
        names = kind.__annotations__
    try:
        hints = typing.get_type_hints(kind) if names else {}
    except (NameError, TypeError):
        return []
    return [hints[name] for name in names if name in hints]


#: types whose results are not validated
_UNCHECKED_TYPES: Final = (Any, object, Answer, StreamEvent, typing.Never, typing.NoReturn)
_AWAITABLE_TYPES: Final = frozenset({Awaitable, Coroutine, asyncio.Future, asyncio.Task})

#: messages of msgspec that do not contain the value
_SAFE_PREFIXES: Final = ("Expected `", "Object missing ")


class ResultEncoder:
    """Encodes and validates the results, or the events, of the function `name` with the return type `kind`.

    A type that msgspec can encode but not decode has no schema and is not validated. Raises UsageError for a
    type without a JSON form.
    """

    def __init__(self, name: str, kind: Any) -> None:
        self._name = name
        self.kind = kind = _strip_wrappers(kind)
        #: may a result be bytes?
        self.octets = kind is Any or bytes in [kind, *typing.get_args(kind)]
        #: is the result always None?
        self.empty = kind is None or kind is type(None)
        try:
            self._model = schemas.find_model(kind)
            self._decoder = None if self._model or kind is Any else _build_decoder(kind)
        except (TypeError, ValueError, NameError, RecursionError) as error:
            raise schemas.make_signature_error(name, "its result", error) from None

    def build_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of a result, or None."""
        if self._model is not None:
            return schemas.inline_root_reference(self._model.build_schema(output=True))
        return None if self._decoder is None else schemas.find_schema(self.kind)

    def encode(self, value: Any) -> bytes:
        """Encode the result as JSON.

        Raises OnymError `aiip.internal` for a result of another type or with NaN or infinity. The message
        names the function, but not the value.
        """
        try:
            if self._model is not None:
                return self._model.encode(value)
            body = encode_json(value)
            if self._decoder is not None:
                self._decoder.decode(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise OnymError(
                f"the result of the function {self._name} has a wrong type: {_format_reason(error)}",
                code="aiip.internal",
            ) from None
        return body


def _strip_wrappers(kind: Any) -> Any:
    """Return the type of the encoded value: without awaitables and whole answers."""
    origin = typing.get_origin(kind)
    if origin in _AWAITABLE_TYPES or any(kind is awaitable for awaitable in _AWAITABLE_TYPES):
        return _strip_wrappers([Any, *typing.get_args(kind)][-1])
    if origin in _UNIONS:
        left = [member for member in typing.get_args(kind) if member not in (Answer, StreamEvent)]
        return typing.Union[tuple(left)] if left else Any  # noqa: UP007 - of types that are not known here
    return Any if any(kind is unchecked for unchecked in _UNCHECKED_TYPES) else kind


def _build_decoder(kind: Any) -> msgspec.json.Decoder[Any] | None:
    """Return the decoder that validates a result; None for a type that msgspec can only encode."""
    try:
        build_schema(kind)
        return msgspec.json.Decoder(build_check_type(kind))
    except (TypeError, ValueError, NameError, RecursionError):
        if not can_encode(kind):
            raise
        return None


def _format_reason(error: BaseException) -> str:
    """Return msgspec's message if it contains only types and paths, because others may contain the value."""
    known = isinstance(error, msgspec.ValidationError) and str(error).startswith(_SAFE_PREFIXES)
    return str(error) if known and error.__cause__ is None else type(error).__name__


#: media types of a result that is bytes, and of one that is a str
OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
_END: Final = object()
_AWAITED: Final = frozenset({AsyncGenerator, AsyncIterator})


class FunctionHandler:
    """Calls a function with the members of a JSON object, the parameters of the query, or both.

    A synchronous function runs in a thread of `executor`, a coroutine in the event loop; the values of a
    generator are the events of a stream. Raises UsageError for a function that cannot be called like this,
    for a result type without a JSON form, and for an invalid media type.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        media_type: str | None = None,
        executor: Callable[[], Executor | None] = lambda: None,
    ) -> None:
        if media_type is not None and not CONTENT_TYPE.fullmatch(media_type):
            raise UsageError(f"{media_type!r} is not a media type of 1 to 255 ASCII characters")
        self._function = function
        self._signature = schemas.parse_signature(function)
        self._decoder = msgspec.json.Decoder(self._signature.input)
        self._output = ResultEncoder(self._signature.input.__name__, self._signature.output)
        self._media_type = media_type
        self._executor = executor
        # a function that returns an awaitable runs in the event loop
        kind = typing.get_origin(typing.get_type_hints(function).get("return"))
        self._threaded = not self._signature.asynchronous and kind not in _AWAITED

    def describe(self) -> Mapping[str, Any]:
        """Return title and description from the docstring, input and output from the type hints."""
        first, _, rest = inspect.cleandoc(self._function.__doc__ or "").partition("\n")
        members = {
            "title": first.strip().rstrip(".") or None,
            "description": rest.strip() or None,
            "input": schemas.build_input_schema(self._signature),
            "output": self._output.build_schema(),
        }
        return {name: value for name, value in members.items() if value is not None}

    def check(self, call: Call) -> None:
        """Raise AIIPError `aiip.invalid-input` or `aiip.unsupported-media-type` for invalid input."""
        self._decode_arguments(call)

    def typed(self, call: Call) -> dict[str, Any]:
        """Return the function's arguments with defaults, for policies. Raises as `check` does."""
        given = self._decode_arguments(call)
        given.pop(self._signature.call or "", None)
        given.pop(self._signature.task or "", None)
        return given

    @property
    def streams(self) -> bool:
        """True if the result is a stream of events."""
        return self._signature.streams

    @property
    def lasts(self) -> bool:
        """True if a call runs in a thread, which cannot be cancelled.

        An awaitable that the thread returns can be cancelled; see `CallDeadline.start_limit`.
        """
        return self._threaded and not self._signature.streams

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """Call the function."""
        work = partial(self._function, **self._decode_arguments(call))
        result = await self._run_in_thread(work) if self._threaded else work()
        if inspect.isawaitable(result):
            # of a coroutine function, or of a synchronous function that returned it
            deadline = CURRENT_DEADLINE.get()
            if deadline is not None:
                deadline.start_limit()
            result = await result
        return self._iter_events(result) if self._signature.streams else self._make_answer(result)

    async def _run_in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor(), call_contained, work, *args)

    def _decode_arguments(self, call: Call) -> dict[str, Any]:
        """Decode the function's arguments."""
        if call.body and not is_json(call.content_type):
            raise AIIPError(
                "the body of a request to this resource must be JSON",
                code="aiip.unsupported-media-type",
                target=str(call.uri.without_query),
                hint=f"Send Content-Type: {JSON}.",
            )
        try:
            made = self._merge_input(call) if call.parameters else self._decoder.decode(call.body or b"{}")
            given = {name: getattr(made, name) for name in self._signature.members}
            for name, model in self._signature.models.items():
                is_default = given[name] is msgspec.UNSET
                default = self._signature.defaults[name]
                given[name] = schemas.copy_default(default) if is_default else model.decode(given[name], name)
        except msgspec.ValidationError as error:
            raise _make_input_error(call, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _make_input_error(call, "the body is not valid JSON") from None
        if self._signature.call is not None:
            given[self._signature.call] = call
        if self._signature.task is not None:
            task: Any = call.task or DetachedTask()
            given[self._signature.task] = ThreadedTask(task) if self._threaded else task
        return given

    def _merge_input(self, call: Call) -> msgspec.Struct:
        """Merge query and body. Raises AIIPError for a member that is in both."""
        members = msgspec.json.decode(call.body or b"{}")
        if not isinstance(members, dict):
            raise _make_input_error(call, "Expected `object`")
        values: dict[str, Any] = {}
        for name, text in call.parameters:
            if name not in self._signature.members:
                raise _make_input_error(call, f"Object contains unknown field `{name}`")
            # pydantic itself converts texts to numbers
            is_model = name in self._signature.models
            values[name] = text if is_model else _convert_parameter(name, text, self._signature.members[name])
        twice = next((name for name in values if name in members), None)
        if twice is not None:
            raise _make_input_error(call, f"the query and the body both contain it - at `$.{twice}`")
        arguments: msgspec.Struct = msgspec.convert(members | values, self._signature.input)
        return arguments

    def _make_answer(self, result: Any) -> Answer:
        if isinstance(result, Answer):
            return result
        if result is None and self._output.empty:
            return Answer(status=204, content_type=None)
        if isinstance(result, bytes) and self._output.octets:
            return Answer(content_type=self._media_type or OCTETS, body=result)
        if isinstance(result, str) and self._output.kind is str:
            return Answer(content_type=self._media_type or TEXT, body=result.encode())
        return Answer(content_type=self._media_type or JSON, body=self._output.encode(result))

    async def _iter_events(self, values: Any) -> AsyncIterator[StreamEvent]:
        source: Any = values if hasattr(values, "__anext__") else self._iter_in_threads(iter(values))
        try:
            async for value in source:
                if not isinstance(value, StreamEvent):
                    value = StreamEvent(data=self._output.encode(value).decode())
                yield value
        finally:
            close = getattr(source, "aclose", None)  # generators have it, iterators need not
            if close is not None:
                await close()

    async def _iter_in_threads(self, values: Iterator[Any]) -> AsyncIterator[Any]:
        """Yield the values of a synchronous generator, which runs in a thread."""
        try:
            while (value := await self._run_in_thread(next, values, _END)) is not _END:
                yield value
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                with contextlib.suppress(ValueError):  # it still runs in its thread
                    await self._run_in_thread(close)


def _convert_parameter(name: str, text: str, kind: Any) -> Any:
    """Convert a parameter of the query, which is text, to the function's type."""
    try:
        value = msgspec.to_builtins(msgspec.convert(text, kind, strict=False))
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError("Expected a finite number")
        return value
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{str(error).partition(' - at ')[0]} - at `$.{name}`") from None


def _make_input_error(call: Call, why: str) -> AIIPError:
    return AIIPError(
        f"the input is invalid: {why}",
        code="aiip.invalid-input",
        target=str(call.uri.without_query),
        hint="GET the resource for the JSON Schema of its input.",
    )
