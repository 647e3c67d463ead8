"""Parameters as other libraries name and write them, to the well-known ones and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from onym.errors import ParameterError
from onym.llm._params import check_value
from onym.uri._names import PROVIDER_NAMES, WELL_KNOWN, is_redirecting, is_secret

if TYPE_CHECKING:
    from onym.llm.convert._types import Notes

__all__ = ["AI_SDK", "LANGCHAIN", "LITELLM", "REFERENCE", "read_params", "write_params"]

#: how LiteLLM's configuration points at a variable
REFERENCE: Final = "os.environ/"

#: names that say their unit: everywhere else a timeout is in seconds
_MILLISECONDS: Final = frozenset({"timeout_ms", "timeoutMs"})


def read_params(given: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """The parameters of a URI for keyword arguments of an SDK; what they cannot be gets a note.

    A name that this project does not know passes through; one that would redirect a request, or holds a
    credential, does not.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        known = name if name in WELL_KNOWN else PROVIDER_NAMES.get(name)
        if known is not None:
            _known(found, known, name, value, notes)
        elif is_secret(name):
            notes.add(name, "it holds a credential, and was not copied")
        elif is_redirecting(name):
            notes.add(name, "a URI has no place for what redirects or replaces a request")
        elif not _is_plain(value):
            notes.add(name, "the value is none that a URI can hold")
        else:
            found[name] = value
    return found


def _known(found: dict[str, Any], known: str, name: str, value: Any, notes: Notes) -> None:
    if known in found:
        notes.add(name, f"{known} is set already, and it is the same parameter")
        return
    read = _READERS.get(known)
    value = value if read is None else read(name, value, notes)
    if value is None:
        return
    try:
        found[known] = check_value(known, value)
    except ParameterError as error:
        notes.add(name, f"not carried: {error.message}")


def _timeout(name: str, value: Any, notes: Notes) -> Any:
    if name in _MILLISECONDS or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return max(1, round(value * 1000))


def _format(name: str, value: Any, notes: Notes) -> Any:
    kind = value.get("type") if isinstance(value, Mapping) else value
    if kind == "json_schema":
        notes.add(name, "the schema is not carried: pass schema= at the call, or keep it in a profile")
    if kind in ("json_object", "application/json"):
        return "json"
    return "text" if kind == "text/plain" else kind


def _cache(name: str, value: Any, notes: Notes) -> Any:
    if isinstance(value, bool):
        return value
    notes.add(name, "only cache=true and cache=false are carried")
    return None


_READERS: Final[Mapping[str, Callable[[str, Any, Any], Any]]] = {
    "timeout": _timeout,
    "format": _format,
    "cache": _cache,
}


def _is_plain(value: Any) -> bool:
    """Whether JSON has such a value, and it points at no variable."""
    if isinstance(value, str):
        return not value.startswith(REFERENCE)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, bool | int | float)


def _seconds(value: Any) -> Any:
    seconds = value / 1000
    return int(seconds) if seconds.is_integer() else seconds


def _object(value: Any) -> Any:
    return {"type": "json_object"} if value == "json" else None


#: well-known name -> (name there, how the value is written there)
_Target = Mapping[str, tuple[str, Callable[[Any], Any]]]


def _same(value: Any) -> Any:
    return value


#: as Python's libraries call them
_SAMPLING: Final[_Target] = {
    "temp": ("temperature", _same),
    "max_tokens": ("max_tokens", _same),
    "top_p": ("top_p", _same),
    "top_k": ("top_k", _same),
    "stop": ("stop", list),
    "seed": ("seed", _same),
    "timeout": ("timeout", _seconds),
}
LITELLM: Final[_Target] = {
    **_SAMPLING,
    "stream": ("stream", _same),
    "retries": ("num_retries", _same),
    "format": ("response_format", _object),
}
LANGCHAIN: Final[_Target] = {
    **_SAMPLING,
    "stream": ("streaming", _same),
    "retries": ("max_retries", _same),
}
AI_SDK: Final[_Target] = {
    "temp": ("temperature", _same),
    "max_tokens": ("maxOutputTokens", _same),
    "top_p": ("topP", _same),
    "top_k": ("topK", _same),
    "stop": ("stopSequences", list),
    "seed": ("seed", _same),
    "timeout": ("timeout", _same),
    "retries": ("maxRetries", _same),
    "system": ("system", _same),
}


def write_params(given: Mapping[str, Any], target: _Target, notes: Notes) -> dict[str, Any]:
    """The well-known parameters among `given` as `target` has them; what it lacks gets a note."""
    found: dict[str, Any] = {}
    for name in WELL_KNOWN:
        if name not in given:
            continue
        there, write = target.get(name, ("", _same))
        value = write(given[name])
        if there and value is not None:
            found[there] = value
        elif not (name == "format" and given[name] == "text"):
            notes.add(name, "it has no place there: say it at the call")
    return found
