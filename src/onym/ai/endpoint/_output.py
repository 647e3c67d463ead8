"""What a function gives, checked against the type that it says to give: nothing else is signed."""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Coroutine
from typing import Any, Final

import msgspec

from onym.ai._finite import encode
from onym.ai.endpoint._pydantic import model_of
from onym.ai.endpoint._types import rooted, schema, schema_of, unusable
from onym.ai.endpoint.context import Answer, StreamEvent
from onym.errors import OnymError

__all__ = ["Output"]

#: types that say nothing of a result
_SILENT: Final = (Any, object, Answer, StreamEvent, typing.Never, typing.NoReturn)
_LATER: Final = frozenset({Awaitable, Coroutine})
_UNIONS: Final = frozenset({types.UnionType, typing.Union})
#: what msgspec says without a word of the value
_NAMELESS: Final = ("Expected `", "Object missing ")


class Output:
    """The results, or the events, of the function `name`, whose hint is `kind`.

    Raises UsageError for a type without a JSON form.
    """

    def __init__(self, name: str, kind: Any) -> None:
        self._name = name
        self.kind = kind = _data(kind)
        #: may a result be octets?
        self.octets = kind is Any or bytes in [kind, *typing.get_args(kind)]
        #: is there never anything to tell?
        self.empty = kind is None or kind is type(None)
        try:
            self._model = model_of(kind)
            self._decoder = None if self._model or kind is Any else _decoder(kind)
        except (TypeError, ValueError) as error:
            raise unusable(name, "its result", error) from None

    def schema(self) -> dict[str, Any] | None:
        """What a result looks like; None where that is not said."""
        return schema_of(self.kind) if self._model is None else rooted(self._model.schema(output=True))

    def encode(self, value: Any) -> bytes:
        """The result as JSON.

        Raises OnymError `aiip.internal` for one of another type, and for one with NaN or an infinity; it
        names the function, and nothing of the value.
        """
        try:
            if self._model is not None:
                return self._model.write(value)
            body = encode(value)
            if self._decoder is not None:
                self._decoder.decode(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise OnymError(
                f"the result of the function {self._name} does not fit: {_reason(error)}",
                code="aiip.internal",
            ) from None
        return body


def _data(kind: Any) -> Any:
    """The type of what is written as it is: without what is awaited first, and without whole answers."""
    origin = typing.get_origin(kind)
    if origin in _LATER:
        return _data(typing.get_args(kind)[-1])
    if origin in _UNIONS:
        left = [each for each in typing.get_args(kind) if each is not Answer and each is not StreamEvent]
        return typing.Union[tuple(left)] if left else Any  # noqa: UP007 - of types that are not known here
    return Any if any(kind is each for each in _SILENT) else kind


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    schema(kind)
    return msgspec.json.Decoder(_shallow(kind))


def _shallow(kind: Any) -> Any:
    """The type with what may be anything left unread."""
    if kind is Any:
        return msgspec.Raw
    if kind is list or kind is dict:
        return list[msgspec.Raw] if kind is list else dict[str, msgspec.Raw]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return list[_shallow(inner[0])]  # type: ignore[misc]
    return dict[inner[0], _shallow(inner[1])] if origin is dict else kind  # type: ignore[misc,valid-type]


def _reason(error: BaseException) -> str:
    """Of the types and places that are known; what else is said may have the value in it."""
    known = isinstance(error, msgspec.ValidationError) and str(error).startswith(_NAMELESS)
    return str(error) if known and error.__cause__ is None else type(error).__name__
