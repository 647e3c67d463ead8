"""What the kinds of resources share: a call's arguments, and results as JSON or as events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from onym.ai.endpoint.context import JSON, Answer, Call, StreamEvent
from onym.errors import AIIPError, SignatureError
from onym.sign._strict import read_object

__all__ = ["EVENTS", "arguments", "convert", "event", "refused", "result", "typed", "wants_events"]

T = TypeVar("T")

#: media type of a streaming result
EVENTS: Final = "text/event-stream"
_JSON: Final = re.compile(r"application/(?:json|[a-z0-9!#$&^_.+-]+\+json)\s*(?:;|\Z)", re.IGNORECASE)
_WEIGHT: Final = re.compile(r"\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*\Z", re.IGNORECASE)
#: how JSON escapes a half of a character beyond U+FFFF, which may come without the other
_SURROGATE: Final = b"\\ud"
#: media ranges of one Accept field that are read
_MOST_RANGES: Final = 32


def arguments(call: Call) -> dict[str, Any]:
    """The members of a JSON body, and the parameters of the query as texts, each name once.

    Raises AIIPError `aiip.unsupported-media-type` for another body, `aiip.invalid-input` for one that is no
    object or repeats a name.
    """
    found = _body(call) if call.body else {}
    for name, value in call.parameters:
        if name in found:
            raise refused(f"{name} is given twice: in the URI and in the body")
        found[name] = value
    return found


def convert(found: Mapping[str, Any], kind: type[T], *, texts: bool = False) -> T:
    """The arguments as a value of this type; with `texts`, numbers may be spelled as texts, as in a query.

    Raises AIIPError `aiip.invalid-input`, which names the member and never its value.
    """
    try:
        return msgspec.convert(found, kind, strict=not texts)
    except msgspec.ValidationError as error:
        raise refused(str(error)) from None


def typed(call: Call, kind: type[T]) -> T:
    """The input as `kind` reads it, defaults filled in, for policies. Raises as `arguments` and `convert`."""
    return convert(arguments(call), kind, texts=not call.body)


def wants_events(call: Call) -> bool:
    """Whether the caller prefers events to JSON (RFC 9110 12.5.1); the one named first wins a tie."""
    best, events = 0.0, False
    for each in (call.accept or "").split(",")[:_MOST_RANGES]:
        name, _, rest = each.partition(";")
        kind = name.strip().lower()
        if kind in {EVENTS, JSON} and _weight(rest) > best:
            best, events = _weight(rest), kind == EVENTS
    return events


def result(value: Any) -> Answer:
    """A whole result, as JSON."""
    return Answer(body=msgspec.json.encode(value))


def event(name: str, value: Any) -> StreamEvent:
    """One event of a streaming result; its data is JSON on one line."""
    return StreamEvent(event=name, data=msgspec.json.encode(value).decode())


def refused(why: str, code: str = "aiip.invalid-input", hint: str | None = None) -> AIIPError:
    """The error of an input that cannot be used."""
    return AIIPError(
        why, code=code, clause="AIIP/HTTPS v1 3.6", hint=hint or "GET the resource for its input schema"
    )


def _body(call: Call) -> dict[str, Any]:
    if _JSON.match(call.content_type or "") is None:
        raise refused(
            "the body is read as JSON alone", "aiip.unsupported-media-type", f"Content-Type: {JSON}"
        )
    try:
        found = read_object(call.body, "body")
        if _SURROGATE in call.body.lower():
            msgspec.json.encode(found)
    except SignatureError as error:
        raise refused(error.message) from None
    except UnicodeEncodeError:
        raise refused("the body has half a character, which no text can have") from None
    return found


def _weight(parameters: str) -> float:
    for each in parameters.split(";"):
        found = _WEIGHT.match(each)
        if found is not None:
            return float(found[1])
    return 1.0
