"""A Python function as a resource: its type hints define the input and the checked output.

Results are validated against the declared type before they are signed. The validation builds types of its
own, so it runs no code of the function's types.
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

from onym.ai.content import JSON, encode_json, is_json
from onym.ai.endpoint._runner import CURRENT_DEADLINE
from onym.ai.endpoint.context import CONTENT_TYPE, Answer, Call, StreamEvent
from onym.ai.endpoint.responses import call_contained
from onym.ai.endpoint.schemas import (
    build_input_schema,
    build_schema,
    copy_default,
    find_model,
    find_schema,
    inline_root_reference,
    make_signature_error,
    parse_signature,
    to_plain_value,
)
from onym.errors import AIIPError, OnymError, UsageError

_Object: TypeAlias = nodes.StructType | nodes.DataclassType | nodes.NamedTupleType | nodes.TypedDictType
_OBJECTS: Final = (nodes.StructType, nodes.DataclassType, nodes.NamedTupleType, nodes.TypedDictType)
#: written as arrays; what they are read into may want values that can be hashed
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
#: what Meta calls the bounds of a node
_BOUNDS: Final = frozenset(
    {"gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz"}
)
#: types whose values msgspec writes, those of subclasses too
_ENCODABLE_BASES: Final = (list, tuple, dict, set, frozenset, enum.Enum, msgspec.Struct, msgspec.Raw)
#: and those whose own values it writes
_ENCODABLE_TYPES: Final = frozenset(
    {*(scalar for scalar in _SCALARS.values() if scalar), type(None), object, Any}
)
#: abstract, and what is below them is never written
_UNENCODABLE_TYPES: Final[frozenset[Any]] = frozenset({Callable})
_UNIONS: Final = frozenset({types.UnionType, typing.Union})


def build_check_type(kind: Any) -> Any:
    """The type that the JSON of this one is read as.

    Objects become Structs without defaults and without `__post_init__`; what may be anything stays unread.
    Raises TypeError for a type that msgspec does not read.
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
    return _add_bounds(_convert_array_or_scalar(node, seen), node)


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


def _add_bounds(kind: Any, node: nodes.Type) -> Any:
    if kind is msgspec.Raw:
        return kind
    said = {name: getattr(node, name) for name in _BOUNDS & {*node.__struct_fields__}}
    bounds = {name: bound for name, bound in said.items() if bound is not None}
    return typing.Annotated[kind, msgspec.Meta(**bounds)] if bounds else kind


def _build_struct(node: _Object, seen: dict[int, Any]) -> Any:
    """A Struct of the members as they are written. Their types come later: one may be the object itself."""
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
    """The members that may be UNSET, which is not written."""
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):
        return set()
    return {name for name, hint in hints.items() if msgspec.UnsetType in [hint, *typing.get_args(hint)]}


# what can be written ---------------------------------------------------------------------------------------


def can_encode(kind: Any) -> bool:
    """May a value of this type be JSON? Where that is not known, it may."""
    return _can_encode_type(kind, set())


def _can_encode_type(kind: Any, seen: set[Any]) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _can_encode_type(inner[0], seen)
    if origin in _UNIONS:
        return any(_can_encode_type(member, seen) for member in inner if member is not type(None))
    if origin is typing.Literal:
        return True
    if origin is not None:
        return _can_encode_type(origin, seen) and all(
            _can_encode_type(argument, seen) for argument in inner if argument is not ...
        )
    if not isinstance(kind, type):
        return True
    if kind in seen:
        return True
    seen.add(kind)
    return _is_encodable_class(kind) and all(
        _can_encode_type(member, seen) for member in _list_member_types(kind)
    )


def _is_encodable_class(kind: type) -> bool:
    return (
        kind in _ENCODABLE_TYPES
        or issubclass(kind, _ENCODABLE_BASES)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
        # values are of a class below it, which nobody knows
        or (
            kind not in _UNENCODABLE_TYPES
            and (inspect.isabstract(kind) or getattr(kind, "_is_protocol", False))
        )
    )


def _list_member_types(kind: type) -> list[Any]:
    """The types of what an object has."""
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


#: types that say nothing of a result
_UNCHECKED_TYPES: Final = (Any, object, Answer, StreamEvent, typing.Never, typing.NoReturn)
_AWAITABLE_TYPES: Final = frozenset({Awaitable, Coroutine, asyncio.Future, asyncio.Task})

#: what msgspec says without a word of the value
_SAFE_PREFIXES: Final = ("Expected `", "Object missing ")


class ResultEncoder:
    """The results, or the events, of the function `name`, whose hint is `kind`.

    What can be written, and not read or described, has no schema, and is not checked. Raises UsageError for
    a type whose values no JSON can say.
    """

    def __init__(self, name: str, kind: Any) -> None:
        self._name = name
        self.kind = kind = _strip_wrappers(kind)
        #: may a result be octets?
        self.octets = kind is Any or bytes in [kind, *typing.get_args(kind)]
        #: is there never anything to tell?
        self.empty = kind is None or kind is type(None)
        try:
            self._model = find_model(kind)
            self._decoder = None if self._model or kind is Any else _build_decoder(kind)
        except (TypeError, ValueError, NameError, RecursionError) as error:
            raise make_signature_error(name, "its result", error) from None

    def build_schema(self) -> dict[str, Any] | None:
        """What a result looks like; None where that is not said."""
        if self._model is not None:
            return inline_root_reference(self._model.build_schema(output=True))
        return None if self._decoder is None else find_schema(self.kind)

    def encode(self, value: Any) -> bytes:
        """The result as JSON.

        Raises OnymError `aiip.internal` for one of another type, and for one with NaN or an infinity; it
        names the function, and nothing of the value.
        """
        try:
            if self._model is not None:
                return self._model.encode(value)
            body = encode_json(value)
            if self._decoder is not None:
                self._decoder.decode(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise OnymError(
                f"the result of the function {self._name} does not fit: {_format_reason(error)}",
                code="aiip.internal",
            ) from None
        return body


def _strip_wrappers(kind: Any) -> Any:
    """The type of what is written as it is: without what is awaited first, and without whole answers."""
    origin = typing.get_origin(kind)
    if origin in _AWAITABLE_TYPES or any(kind is awaitable for awaitable in _AWAITABLE_TYPES):
        return _strip_wrappers([Any, *typing.get_args(kind)][-1])
    if origin in _UNIONS:
        left = [
            member for member in typing.get_args(kind) if member is not Answer and member is not StreamEvent
        ]
        return typing.Union[tuple(left)] if left else Any  # noqa: UP007 - of types that are not known here
    return Any if any(kind is unchecked for unchecked in _UNCHECKED_TYPES) else kind


def _build_decoder(kind: Any) -> msgspec.json.Decoder[Any] | None:
    """What checks a result; None where msgspec can write it, and no more. Raises what msgspec raises."""
    try:
        build_schema(kind)
        return msgspec.json.Decoder(build_check_type(kind))
    except (TypeError, ValueError, NameError, RecursionError):
        if not can_encode(kind):
            raise
        return None


def _format_reason(error: BaseException) -> str:
    """Of the types and places that are known; what else is said may have the value in it."""
    known = isinstance(error, msgspec.ValidationError) and str(error).startswith(_SAFE_PREFIXES)
    return str(error) if known and error.__cause__ is None else type(error).__name__


#: media types of a result that is bytes, and of one that is a str
OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
_END: Final = object()
_AWAITED: Final = frozenset({AsyncGenerator, AsyncIterator})


class FunctionHandler:
    """Calls a function with the members of a JSON object, the parameters of the query, or both.

    A plain function runs in a thread of `executor`, a coroutine in the loop; a generator's values are the
    events of a stream. Raises UsageError for a function that cannot be called so, for a result of a type
    without a JSON form, and for a media type that is none.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        media_type: str | None = None,
        executor: Callable[[], Executor | None] = lambda: None,
    ) -> None:
        if media_type is not None and not CONTENT_TYPE.fullmatch(media_type):
            raise UsageError("a media type is visible ASCII, at most 255 characters")
        self._function = function
        self._signature = parse_signature(function)
        self._decoder = msgspec.json.Decoder(self._signature.input)
        self._output = ResultEncoder(self._signature.input.__name__, self._signature.output)
        self._media_type = media_type
        self._executor = executor
        # what is made to be awaited is made in the loop
        kind = typing.get_origin(typing.get_type_hints(function).get("return"))
        self._threaded = not self._signature.asynchronous and kind not in _AWAITED

    def describe(self) -> Mapping[str, Any]:
        """Title and description from the docstring, input and output from the type hints."""
        first, _, rest = inspect.cleandoc(self._function.__doc__ or "").partition("\n")
        found = {
            "title": first.strip().rstrip(".") or None,
            "description": rest.strip() or None,
            "input": build_input_schema(self._signature),
            "output": self._output.build_schema(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def check(self, call: Call) -> None:
        """Raises AIIPError `aiip.invalid-input`, `aiip.unsupported-media-type` where input does not fit."""
        self._decode_arguments(call)

    def typed(self, call: Call) -> dict[str, Any]:
        """What the function is given, defaults filled in, for policies. Raises as `check`."""
        given = self._decode_arguments(call)
        given.pop(self._signature.call or "", None)
        for name in self._signature.models:
            given[name] = to_plain_value(given[name])
        return given

    @property
    def lasts(self) -> bool:
        """Does the function go on where a call of it is given up? A thread cannot be ended.

        What it returns to be awaited can: the term of the call is told (`Term.awaited`).
        """
        return self._threaded and not self._signature.streams

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """Call the function."""
        made = await self._call_function(self._decode_arguments(call))
        return self._iter_events(made) if self._signature.streams else self._make_answer(made)

    async def _call_function(self, given: Mapping[str, Any]) -> Any:
        work = partial(self._function, **given)
        made = await self._run_in_thread(work) if self._threaded else work()
        if not inspect.isawaitable(made):
            return made
        # of a coroutine function, and of a plain one around it
        term = CURRENT_DEADLINE.get()
        if term is not None:
            term.start_limit()
        return await made

    async def _run_in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor(), call_contained, work, *args)

    def _decode_arguments(self, call: Call) -> dict[str, Any]:
        """The function's arguments."""
        try:
            made = (
                self._merge_input(call)
                if call.parameters
                else self._decoder.decode(_get_json_body(call) or b"{}")
            )
            given = {name: self._decode_member(name, getattr(made, name)) for name in self._signature.members}
        except msgspec.ValidationError as error:
            raise _make_input_error(call, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _make_input_error(call, "the body is not JSON") from None
        if self._signature.call is not None:
            given[self._signature.call] = call
        return given

    def _decode_member(self, name: str, value: Any) -> Any:
        model = self._signature.models.get(name)
        if model is None:
            return value
        if value is msgspec.UNSET:
            return copy_default(self._signature.defaults[name])
        return model.decode(value, name)

    def _merge_input(self, call: Call) -> msgspec.Struct:
        """The input out of query and body; a member that both have has two values, and none."""
        members = msgspec.json.decode(_get_json_body(call) or b"{}")
        if not isinstance(members, dict):
            raise _make_input_error(call, "Expected `object`")
        values = self._convert_parameters(call)
        twice = next((name for name in values if name in members), None)
        if twice is not None:
            raise _make_input_error(call, f"query and body both have it - at `$.{twice}`")
        found: msgspec.Struct = msgspec.convert(members | values, self._signature.input)
        return found

    def _convert_parameters(self, call: Call) -> dict[str, Any]:
        values = {}
        for name, text in call.parameters:
            if name not in self._signature.members:
                raise _make_input_error(call, f"Object contains unknown field `{name}`")
            pydantics = name in self._signature.models  # which reads numbers out of text
            values[name] = (
                text if pydantics else _convert_parameter(name, text, self._signature.members[name])
            )
        return values

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
                yield (
                    value
                    if isinstance(value, StreamEvent)
                    else StreamEvent(data=self._output.encode(value).decode())
                )
        finally:
            close = getattr(source, "aclose", None)  # generators have it, iterators need not
            if close is not None:
                await close()

    async def _iter_in_threads(self, values: Iterator[Any]) -> AsyncIterator[Any]:
        """What a plain generator yields, each awaited from a thread."""
        try:
            while (value := await self._run_in_thread(next, values, _END)) is not _END:
                yield value
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                with contextlib.suppress(ValueError):  # it still runs, in the thread that was given up
                    await self._run_in_thread(close)


def _get_json_body(call: Call) -> bytes:
    """The body, which is JSON or nothing."""
    if call.body and not is_json(call.content_type):
        raise AIIPError(
            "the body of this resource is JSON",
            code="aiip.unsupported-media-type",
            target=str(call.uri.without_query),
            hint=f"Content-Type: {JSON}",
        )
    return call.body


def _convert_parameter(name: str, text: str, kind: Any) -> Any:
    """A parameter of the query, which is text, as the type that the function wants."""
    try:
        found = msgspec.to_builtins(msgspec.convert(text, kind, strict=False))
        if isinstance(found, float) and not math.isfinite(found):
            raise msgspec.ValidationError("Expected a finite number")
        return found
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{str(error).partition(' - at ')[0]} - at `$.{name}`") from None


def _make_input_error(call: Call, why: str) -> AIIPError:
    return AIIPError(
        f"the input does not fit: {why}",
        code="aiip.invalid-input",
        target=str(call.uri.without_query),
        hint="GET describes what is expected (input, a JSON Schema)",
    )
