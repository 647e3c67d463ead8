"""Type hints of pydantic's, which it reads and writes itself. It is never imported here.

Whoever wrote such a hint has imported it; without one, nothing of this is used.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from onym.ai._finite import check_finite

__all__ = ["Model", "is_field", "model_of", "plain"]

_OWN: Final = ("__pydantic_core_schema__", "__get_pydantic_core_schema__")
#: where marks in `Annotated` come from that pydantic knows, and msgspec would pass over
_MARKS: Final = frozenset({"annotated_types", "pydantic"})
#: what pydantic writes for numbers that JSON does not have, as a model is set up
_ODD: Final = (b"null", b"NaN", b"Infinity")


class Model:
    """A type that pydantic reads and writes."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def schema(self, *, output: bool = False, prefix: str = "") -> dict[str, Any]:
        """Its JSON Schema, which has its definitions in `$defs`, their names after `prefix`."""
        found: dict[str, Any] = self._adapter.json_schema(
            mode="serialization" if output else "validation", ref_template=f"#/$defs/{prefix}{{model}}"
        )
        named = found.pop("$defs", {})
        return found | ({"$defs": {prefix + name: each for name, each in named.items()}} if named else {})

    def read(self, value: Any, place: str) -> Any:
        """The value of decoded JSON as this type. Raises msgspec.ValidationError, which says where."""
        try:
            return self._adapter.validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise msgspec.ValidationError(_told(error, place)) from None

    def write(self, value: Any) -> bytes:
        """A result of this type as JSON. Raises ValueError for one that is not, without its content."""
        try:
            made = self._adapter.validate_python(value)
            body: bytes = self._adapter.dump_json(made, by_alias=True, warnings="error")
            if any(each in body for each in _ODD):
                check_finite(self._adapter.dump_python(made, mode="json"))
        except ValueError as error:
            raise ValueError(f"pydantic refuses it ({type(error).__name__})") from None
        return body


def model_of(kind: Any) -> Model | None:
    """What reads and writes a type that has something of pydantic's in it; None for every other type.

    Raises TypeError for one that pydantic cannot read.
    """
    if not _has(kind):
        return None
    loaded: Any = sys.modules.get("pydantic")
    if loaded is None:
        raise TypeError("the marks of annotated_types count where pydantic is imported")
    try:
        model = Model(loaded.TypeAdapter(kind))
        model.schema()
    except (loaded.errors.PydanticUserError, NameError) as error:
        raise TypeError(str(error).partition("\n")[0]) from None
    return model


def plain(value: Any) -> Any:
    """What models hold, under the names that JSON has for it, for policies.

    Not as they are dumped: a model may leave out, or change, what the function is given.
    """
    fields = getattr(type(value), "__pydantic_fields__", None)
    if fields is not None:
        if getattr(type(value), "__pydantic_root_model__", False):
            return plain(value.root)
        more = getattr(value, "__pydantic_extra__", None) or {}
        own = {_name(name, field): getattr(value, name) for name, field in fields.items()}
        return {name: plain(each) for name, each in (own | more).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return {name: plain(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _name(name: str, field: Any) -> str:
    said = field.validation_alias
    return said if isinstance(said, str) else field.alias or name


def is_field(default: Any) -> bool:
    """Is this what `pydantic.Field(...)` gives? As a default the function itself would be given it."""
    loaded: Any = sys.modules.get("pydantic")
    return loaded is not None and isinstance(default, loaded.fields.FieldInfo)


def _has(kind: Any) -> bool:
    marks = getattr(kind, "__metadata__", ())
    return (
        any(hasattr(kind, name) for name in _OWN)
        or any(type(mark).__module__.partition(".")[0] in _MARKS for mark in marks)
        or any(_has(each) for each in typing.get_args(kind))
    )


def _told(error: Any, place: str) -> str:
    """The first fault and its place; neither the input nor pydantic's advice."""
    found: list[Mapping[str, Any]] = error.errors(
        include_url=False, include_input=False, include_context=False
    )
    where = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in found[0]["loc"])
    return f"{found[0]['msg']} - at `$.{place}{where}`"
