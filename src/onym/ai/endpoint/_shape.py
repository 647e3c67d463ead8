"""What the JSON of a type looks like, as types that run no code of their own: a check builds nothing else."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import inspect as nodes

__all__ = ["sayable", "shape"]

_Object: TypeAlias = nodes.StructType | nodes.DataclassType | nodes.NamedTupleType | nodes.TypedDictType
_OBJECTS: Final = (nodes.StructType, nodes.DataclassType, nodes.NamedTupleType, nodes.TypedDictType)
#: written as arrays; what they are read into may want values that can be hashed
_ARRAYS: Final = (nodes.ListType, nodes.SetType, nodes.FrozenSetType, nodes.VarTupleType)
#: scalars that may have bounds
_PLAIN: Final[Mapping[type, Any]] = {
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
_WRITTEN: Final = (list, tuple, dict, set, frozenset, enum.Enum, msgspec.Struct, msgspec.Raw)
#: and those whose own values it writes
_EXACT: Final = frozenset({*(each for each in _PLAIN.values() if each), type(None), object, Any})
#: abstract, and what is below them is never written
_NEVER: Final[frozenset[Any]] = frozenset({Callable})
_UNIONS: Final = frozenset({types.UnionType, typing.Union})


def shape(kind: Any) -> Any:
    """The type that the JSON of this one is read as.

    Objects become Structs without defaults and without `__post_init__`; what may be anything stays unread.
    Raises TypeError for a type that msgspec does not read.
    """
    return _of(nodes.type_info(kind), {})


def _of(node: nodes.Type, seen: dict[int, Any]) -> Any:
    if isinstance(node, nodes.Metadata):
        return _of(node.type, seen)
    if isinstance(node, _OBJECTS):
        return seen[id(node)] if id(node) in seen else _object(node, seen)
    if isinstance(node, nodes.UnionType):
        return typing.Union[tuple(_of(each, seen) for each in node.types)]  # noqa: UP007 - not known here
    if isinstance(node, nodes.EnumType):
        return node.cls
    if isinstance(node, nodes.LiteralType):
        return typing.Literal[node.values]
    return _bounded(_array_or_plain(node, seen), node)


def _array_or_plain(node: nodes.Type, seen: dict[int, Any]) -> Any:
    if isinstance(node, _ARRAYS):
        return list[_of(node.item_type, seen)]  # type: ignore[misc]
    if isinstance(node, nodes.TupleType):
        return tuple[tuple(_of(each, seen) for each in node.item_types)]  # type: ignore[misc]
    if isinstance(node, nodes.DictType):
        anything = isinstance(node.key_type, nodes.AnyType)
        key = str if anything else _of(node.key_type, seen)
        return dict[key, _of(node.value_type, seen)]  # type: ignore[misc,valid-type]
    return _PLAIN.get(type(node), msgspec.Raw)


def _bounded(kind: Any, node: nodes.Type) -> Any:
    if kind is msgspec.Raw:
        return kind
    said = {name: getattr(node, name) for name in _BOUNDS & {*node.__struct_fields__}}
    bounds = {name: each for name, each in said.items() if each is not None}
    return typing.Annotated[kind, msgspec.Meta(**bounds)] if bounds else kind


def _object(node: _Object, seen: dict[int, Any]) -> Any:
    """A Struct of the members as they are written. Their types come later: one may be the object itself."""
    absent = _absent(node.cls)
    names = {f"f{place}": each for place, each in enumerate(node.fields)}
    needed = {name for name, each in names.items() if each.required and each.name not in absent}
    named = isinstance(node, nodes.NamedTupleType)
    made: Any = msgspec.defstruct(
        node.cls.__name__,
        [(name, Any) if name in needed else (name, Any, msgspec.UNSET) for name in names],
        rename={name: each.encode_name for name, each in names.items()},
        tag_field=getattr(node, "tag_field", None),
        tag=getattr(node, "tag", None),
        array_like=named or getattr(node, "array_like", False),
        forbid_unknown_fields=getattr(node, "forbid_unknown_fields", False),
        kw_only=True,
    )
    seen[id(node)] = made
    made.__annotations__ = {name: _of(each.type, seen) for name, each in names.items()}
    return made


def _absent(kind: Any) -> set[str]:
    """The members that may be UNSET, which is not written."""
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):
        return set()
    return {name for name, each in hints.items() if msgspec.UnsetType in [each, *typing.get_args(each)]}


# what can be written ---------------------------------------------------------------------------------------


def sayable(kind: Any) -> bool:
    """May a value of this type be JSON? Where that is not known, it may."""
    return _sayable(kind, set())


def _sayable(kind: Any, seen: set[Any]) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _sayable(inner[0], seen)
    if origin in _UNIONS:
        return any(_sayable(each, seen) for each in inner if each is not type(None))
    if origin is typing.Literal:
        return True
    if origin is not None:
        return _sayable(origin, seen) and all(_sayable(each, seen) for each in inner if each is not ...)
    if not isinstance(kind, type):
        return True
    if kind in seen:
        return True
    seen.add(kind)
    return _class(kind) and all(_sayable(each, seen) for each in _members(kind))


def _class(kind: type) -> bool:
    return (
        kind in _EXACT
        or issubclass(kind, _WRITTEN)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
        # values are of a class below it, which nobody knows
        or (kind not in _NEVER and (inspect.isabstract(kind) or getattr(kind, "_is_protocol", False)))
    )


def _members(kind: type) -> list[Any]:
    """The types of what an object has."""
    names: Iterable[str] = getattr(kind, "__struct_fields__", ())
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
    elif typing.is_typeddict(kind):
        names = kind.__annotations__
    try:
        hints = typing.get_type_hints(kind) if names else {}
    except (NameError, TypeError):
        return []
    return [hints[name] for name in names if name in hints]
