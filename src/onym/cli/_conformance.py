"""Conformance questions and their answers, on the public API alone. (`docs/`: conformance driver)

A question is one JSON object with `op` and what the operation needs; the answer repeats `id` and
holds `ok`, and then what the operation gives or an `error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from onym.cli._output import plain
from onym.errors import ConformanceError, OnymError, URIError, UsageError

if TYPE_CHECKING:
    from onym.uri.llm import LLMURI

__all__ = ["MAX_LINE", "OPERATIONS", "answer", "refusal"]

#: octets of one question, its newline included; longer lines are skipped and refused
MAX_LINE: Final = 32 * 1024 * 1024

_RULES: Final = ("URI", "URI-reference", "absolute-URI", "relative-ref")
_PRESETS: Final = ("trusted", "local", "untrusted")
_PARTS: Final = (
    "scheme",
    "authority",
    "userinfo",
    "host",
    "host_type",
    "port",
    "path",
    "query",
    "fragment",
)

Question = Mapping[str, Any]
Answer = dict[str, Any]


def answer(line: bytes) -> Answer:
    """The answer to one line. Never raises for anything that a line can hold."""
    try:
        question = _read(line)
    except ConformanceError as error:
        return refusal(error)
    try:
        return {"id": question.get("id"), "ok": True, **_operation(question)(question)}
    except OnymError as error:
        return refusal(error, question.get("id"))
    except Exception as error:  # noqa: BLE001 - one question must not end the conversation
        message = f"onym failed in a way that it should not ({type(error).__name__})"
        return refusal(OnymError(message, code="internal.error"), question.get("id"))


def refusal(error: OnymError, identity: object = None) -> Answer:
    """`ok: false` and the error, of which `parameter` is there only where one is at fault."""
    body: Answer = {"code": error.code, "component": None, "offset": None, "clause": None}
    if isinstance(error, URIError):
        body.update(component=error.component, offset=error.offset, clause=error.clause)
        if error.parameter is not None:
            body["parameter"] = error.parameter
    body["message"] = error.message
    return {"id": identity, "ok": False, "error": body}


def _read(line: bytes) -> Question:
    import json

    if len(line) > MAX_LINE:
        raise ConformanceError(f"the line is longer than {MAX_LINE} octets")
    try:
        question = json.loads(line.decode("utf-8"))
    except RecursionError:
        raise ConformanceError("the JSON is nested too deeply") from None
    except ValueError:
        # UnicodeDecodeError, JSONDecodeError, and CPython's refusal of integers with thousands of digits
        raise ConformanceError("the line is not one JSON object in UTF-8") from None
    if not isinstance(question, dict):
        raise ConformanceError("the line is not one JSON object in UTF-8")
    if isinstance(question.get("id"), (dict, list)):
        raise ConformanceError("`id` is a string, a number, a boolean or null")
    return question


def _operation(question: Question) -> Callable[[Question], Answer]:
    name = _text(question, "op")
    try:
        return OPERATIONS[name]
    except KeyError:
        known = ", ".join(OPERATIONS)
        raise ConformanceError(f"no such operation; known are {known}") from None


def _uri_parse(question: Question) -> Answer:
    from onym.uri.generic import URI

    uri = URI.parse(_text(question, "text"), rule=_choice(question, "rule", _RULES, "URI-reference"))
    return {"parts": {name: getattr(uri, name) for name in _PARTS}}


def _uri_resolve(question: Question) -> Answer:
    from onym.uri.generic import URI

    base = URI.parse(_text(question, "base"))
    return {"target": str(base.resolve(_text(question, "ref"), strict=_flag(question, "strict", True)))}


def _uri_normalize(question: Question) -> Answer:
    from onym.uri.generic import URI

    return {"text": str(URI.parse(_text(question, "text")).normalize())}


def _llm_parse(question: Question) -> Answer:
    from onym.uri.llm import LLMURI

    text, strict = _text(question, "text"), _flag(question, "strict", False)
    uri = LLMURI.parse(text, strict=strict)
    value = _llm_value(uri, reveal=_flag(question, "reveal", False))
    diagnostics = [found.as_dict() for found in uri.check()]
    # the protocol can be read both ways: beside the value, or inside it
    return {"value": {**value, "diagnostics": diagnostics}, "diagnostics": diagnostics}


def _llm_value(uri: LLMURI, *, reveal: bool) -> Answer:
    value: Answer = {"label": uri.label}
    if reveal:
        value["key"] = None if uri.key is None else uri.key.reveal()
    params = plain(uri.params.nested(), reveal=reveal)
    value.update(host=uri.host, port=uri.port, model=uri.model, params=params, fragment=uri.fragment)
    return value


def _ai_parse(question: Question) -> Answer:
    from onym.uri.ai import AIURI

    uri = AIURI.parse(_text(question, "text"))
    try:
        canonical = uri.canonical()
    except URIError:
        canonical = None
    names = ("authority", "host", "port", "path", "query", "fragment")
    return {"value": {**{name: getattr(uri, name) for name in names}, "canonical": canonical}}


def _redact(question: Question) -> Answer:
    from onym.uri.redact import redact

    return {"text": redact(_text(question, "text"))}


def _net_decide(question: Question) -> Answer:
    from onym.llm.aliases import normalize
    from onym.net.question import decide_question

    uri = normalize(_text(question, "uri"))
    try:
        found = decide_question(uri, _object(question, "policy"), _object(question, "dns"))
    except UsageError as error:
        raise ConformanceError(error.message) from error
    return {
        "decision": "allow" if found.allowed else "refuse",
        "reason": found.reason,
        "connect_to": list(found.connect_to),
    }


OPERATIONS: Final[Mapping[str, Callable[[Question], Answer]]] = {
    "uri.parse": _uri_parse,
    "uri.resolve": _uri_resolve,
    "uri.normalize": _uri_normalize,
    "llm.parse": _llm_parse,
    "ai.parse": _ai_parse,
    "redact": _redact,
    "net.decide": _net_decide,
}


def _text(question: Question, name: str) -> str:
    value = question.get(name)
    if not isinstance(value, str):
        raise ConformanceError(f"`{name}` is missing or not a string")
    return value


def _object(question: Question, name: str) -> dict[str, Any]:
    value = question.get(name)
    if not isinstance(value, dict | None):
        raise ConformanceError(f"`{name}` is an object")
    return value or {}


def _flag(question: Question, name: str, default: bool) -> bool:
    value = question.get(name, default)
    if not isinstance(value, bool):
        raise ConformanceError(f"`{name}` is true or false")
    return value


def _choice(question: Question, name: str, allowed: tuple[str, ...], default: str) -> str:
    value = question.get(name, default)
    if value not in allowed:
        raise ConformanceError(f"`{name}` is one of {', '.join(allowed)}")
    return str(value)
