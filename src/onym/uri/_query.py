"""The parameters of an llm URI: an ordered mapping of typed values, and its text (draft 4.4 and 6).

>>> params = read("temp=0.7&web_search.max_uses=3&x=1&x=2")
>>> params["temp"], params["x"], params.nested()["web_search"]
(0.7, [1, 2], {'max_uses': 3})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from onym.errors import ParameterError
from onym.uri import _values
from onym.uri._limits import DEFAULT_LIMITS, Limits
from onym.uri._names import is_redirecting
from onym.uri._percent import QUERY_NAME, QUERY_VALUE
from onym.uri._query_read import READERS, Repeated, copied, named, nest, read_typed
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator, ValuesView

__all__ = [
    "ROOMY",
    "Params",
    "params_of",
    "passed_through",
    "raw_items",
    "read",
    "roomy",
    "withheld",
    "write",
]

#: for text that was within somebody's limits already
ROOMY: Final = Limits(
    uri=2**31, value=2**31, system=2**31, json=2**31, depth=200, parameters=2**31, number=640
)


def roomy(limits: Limits) -> Limits:
    """`ROOMY`, but for what decides of what type a value is."""
    return limits if limits is ROOMY else ROOMY.replace(number=limits.number, depth=limits.depth)


@final
class Params(Mapping[str, Any]):
    """The parameters of one URI: an ordered, immutable mapping from name to typed value.

    Well-known names have the types of draft 6, `stop` a tuple. Unknown ones are bool, int, float, str,
    dict or list; a repeated name is the list of its values. What a name calls a credential is a `Secret`.
    Objects and lists come out as copies. Two are equal when they would be written the same.
    """

    __slots__ = ("_typed",)
    _typed: dict[str, Any]

    def __init__(self) -> None:
        raise TypeError("Params has no constructor: read them from a URI")

    def __getitem__(self, name: str) -> Any:
        return copied(self._typed[name])

    def items(self) -> ItemsView[str, Any]:
        """Name and typed value of each, in order."""
        return self._given().items()

    def values(self) -> ValuesView[Any]:
        """The typed values, in order."""
        return self._given().values()

    def _given(self) -> dict[str, Any]:
        # a view of a dict can't change it: only what stands inside has to be copied
        for value in self._typed.values():
            if isinstance(value, _values.STRUCTURES):
                out: dict[str, Any] = copied(self._typed)
                return out
        return self._typed

    def __iter__(self) -> Iterator[str]:
        return iter(self._typed)

    def __len__(self) -> int:
        return len(self._typed)

    def items_raw(self) -> tuple[tuple[str, str | Secret], ...]:
        """Name and decoded text of each pair, in the order in which they are written."""
        return tuple(raw_items(self._typed, ROOMY))

    def nested(self) -> dict[str, Any]:
        """All of them, dotted names as objects. `Secret`s stay hidden; `withheld` names are among them."""
        return nest(self._typed)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Params):
            return self.items_raw() == other.items_raw()
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.items_raw())

    def __repr__(self) -> str:
        from onym.uri.redact import redact  # a key may also hide in a harmless name

        return redact(f"Params({self._typed!r})")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("parameters do not change; use with_params()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("parameters do not change; use without_params()")


_new = object.__new__
_set_typed = Params.__dict__["_typed"].__set__


def params_of(typed: dict[str, Any]) -> Params:
    """`typed`, which nobody changes from now on, as `Params`."""
    params = _new(Params)
    _set_typed(params, typed)
    return params


def read(query: str, *, limits: Limits = DEFAULT_LIMITS) -> Params:
    """The parameters of a query. Raises ParameterError or URISyntaxError; offsets count in `query`."""
    return params_of(read_typed(query, 0, limits)[0])


def withheld(typed: Mapping[str, Any]) -> tuple[str, ...]:
    """The names that are never sent: they would redirect the request, or carry a credential."""
    return tuple([name for name, value in typed.items() if name not in READERS and _is_withheld(name, value)])


def _is_withheld(name: str, value: Any) -> bool:
    # below a well-known name (`stream.x`) nothing can be meant that would not replace it
    return _is_credential(value) or is_redirecting(name) or name.partition(".")[0] in READERS


def _is_credential(value: Any) -> bool:
    return isinstance(value, Secret) or (isinstance(value, Repeated) and any(map(_is_credential, value)))


def passed_through(typed: Mapping[str, Any]) -> dict[str, Any]:
    """What goes to the provider beside the well-known parameters, nested."""
    kept = {
        name: value for name, value in typed.items() if name not in READERS and not _is_withheld(name, value)
    }
    return nest(kept)


def raw_items(typed: Mapping[str, Any], limits: Limits) -> Iterator[tuple[str, str | Secret]]:
    """Decoded text for each pair, in order: one for each value of a name that stands more than once."""
    for name, value in typed.items():
        for one in _each(name, value):
            try:
                yield name, _text_of(name, one, limits)
            except ParameterError as error:
                raise named(error, name) from None


def _text_of(name: str, value: Any, limits: Limits) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if name in READERS and isinstance(value, str):
        return value
    text = _values.write_unknown(value, limits)
    return text.removesuffix(".0") if name in ("temp", "top_p") else text


def _each(name: str, value: Any) -> Iterable[Any]:
    if isinstance(value, Repeated):
        return value
    if name == "stop" and not isinstance(value, str):
        return tuple(value)
    return (value,)


def write(typed: Mapping[str, Any], limits: Limits, *, reveal: bool) -> str:
    """The query that `read_typed` reads as `typed`, with nothing but unreserved characters raw.

    Stop sequences are listed with commas, or one by one where a sequence holds a comma. Without `reveal`
    the value of a credential is `***`.
    """
    stops: Any = typed.get("stop", ())
    commas = len(stops) > 1 and not isinstance(stops, str) and not any("," in stop for stop in stops)
    pairs: list[str] = []
    for name, text in raw_items(typed, limits):
        if isinstance(text, Secret):
            value = QUERY_VALUE.quote(text.reveal()) if reveal else MARK
        else:
            value = QUERY_VALUE.quote(text)
        if commas and name == "stop" and pairs and pairs[-1].startswith("stop="):
            pairs[-1] += "," + value
        else:
            pairs.append(f"{QUERY_NAME.quote(name)}={value}")
    return "&".join(pairs)
