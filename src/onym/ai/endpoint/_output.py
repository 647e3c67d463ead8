"""What a function gives, checked against the type that it says to give: nothing else is signed."""

from __future__ import annotations

import asyncio
import types
import typing
from collections.abc import Awaitable, Coroutine
from typing import Any, Final

import msgspec

from onym.ai._finite import encode
from onym.ai.endpoint._pydantic import model_of
from onym.ai.endpoint._shape import sayable, shape
from onym.ai.endpoint._types import rooted, schema, schema_of, unusable
from onym.ai.endpoint.context import Answer, StreamEvent
from onym.errors import OnymError

__all__ = ["Output"]

#: types that say nothing of a result
_SILENT: Final = (Any, object, Answer, StreamEvent, typing.Never, typing.NoReturn)
_LATER: Final = frozenset({Awaitable, Coroutine, asyncio.Future, asyncio.Task})
_UNIONS: Final = frozenset({types.UnionType, typing.Union})
#: what msgspec says without a word of the value
_NAMELESS: Final = ("Expected `", "Object missing ")


class Output:
    """The results, or the events, of the function `name`, whose hint is `kind`.

    What can be written, and not read or described, has no schema, and is not checked. Raises UsageError for
    a type whose values no JSON can say.
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
        except (TypeError, ValueError, NameError, RecursionError) as error:
            raise unusable(name, "its result", error) from None

    def schema(self) -> dict[str, Any] | None:
        """What a result looks like; None where that is not said."""
        if self._model is not None:
            return rooted(self._model.schema(output=True))
        return None if self._decoder is None else schema_of(self.kind)

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
    if origin in _LATER or any(kind is each for each in _LATER):
        return _data([Any, *typing.get_args(kind)][-1])
    if origin in _UNIONS:
        left = [each for each in typing.get_args(kind) if each is not Answer and each is not StreamEvent]
        return typing.Union[tuple(left)] if left else Any  # noqa: UP007 - of types that are not known here
    return Any if any(kind is each for each in _SILENT) else kind


def _decoder(kind: Any) -> msgspec.json.Decoder[Any] | None:
    """What checks a result; None where msgspec can write it, and no more. Raises what msgspec raises."""
    try:
        schema(kind)
        return msgspec.json.Decoder(shape(kind))
    except (TypeError, ValueError, NameError, RecursionError):
        if not sayable(kind):
            raise
        return None


def _reason(error: BaseException) -> str:
    """Of the types and places that are known; what else is said may have the value in it."""
    known = isinstance(error, msgspec.ValidationError) and str(error).startswith(_NAMELESS)
    return str(error) if known and error.__cause__ is None else type(error).__name__
