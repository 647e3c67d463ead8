"""How much one llm URI may hold: the bounds that draft 4.4 and 10.3 ask for, each settable."""

from __future__ import annotations

from typing import Final, NoReturn, final

from onym.errors import UsageError

__all__ = ["DEFAULT_LIMITS", "Limits"]

# beyond these, Python's own guards (recursion, int() of long texts) would speak first
_CEILINGS: Final = {"depth": 200, "number": 640}


@final
class Limits:
    """Bounds for reading an llm URI. Every one is a whole number of at least 1.

    `uri` octets of the whole text; `value` octets of one decoded value, `system` of the system prompt,
    `json` of one structured value; `depth` levels of JSON or dot-notation (at most 200); `parameters`
    pairs in the query, and stop sequences; `number` characters of one number (at most 640). Raises
    UsageError for anything else.
    """

    __slots__ = ("depth", "json", "number", "parameters", "system", "uri", "value")
    uri: int
    value: int
    system: int
    json: int
    depth: int
    parameters: int
    number: int

    def __init__(
        self,
        *,
        uri: int = 8192,
        value: int = 4096,
        system: int = 8192,
        json: int = 2048,
        depth: int = 32,
        parameters: int = 256,
        number: int = 32,
    ) -> None:
        given = (depth, json, number, parameters, system, uri, value)
        for name, bound in zip(self.__slots__, given, strict=True):
            if type(bound) is not int or bound < 1:
                raise UsageError(f"the limit {name} is a whole number of at least 1")
            if bound > _CEILINGS.get(name, bound):
                raise UsageError(f"the limit {name} is at most {_CEILINGS[name]}")
            object.__setattr__(self, name, bound)

    def replace(self, **changes: int) -> Limits:
        """The same bounds, but for those named."""
        return Limits(**{**self._as_dict(), **changes})

    def _as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        return f"Limits({', '.join(f'{name}={bound}' for name, bound in self._as_dict().items())})"

    def __eq__(self, other: object) -> bool:
        return self._as_dict() == other._as_dict() if isinstance(other, Limits) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._as_dict().values()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("limits do not change; use replace()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("limits do not change; use replace()")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self._as_dict(),)


def _rebuild(bounds: dict[str, int]) -> Limits:
    return Limits(**bounds)


#: what `LLMURI.parse` uses: 8,192 octets, because intermediaries cut longer ones (draft 4.4)
DEFAULT_LIMITS = Limits()
