"""`onym conformance`: answer conformance questions, one JSON object per line.

A question is a JSON object with `op` and the operation's members. The answer repeats `id` and has `ok`, and
then the result or an `error`. Only the public API is used, so one set of vectors serves any implementation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any, Final

from onym.cli._commands import make_command
from onym.cli._output import encode_json, select_fields, to_plain_data
from onym.errors import ConformanceError, OnymError, URIError, UsageError

if TYPE_CHECKING:
    from onym.uri.llm import LLMURI

#: bytes of one question with its line end; longer lines are skipped and rejected
MAX_LINE: Final = 32 * 1024 * 1024

_RULES: Final = ("URI", "URI-reference", "absolute-URI", "relative-ref")
_PARTS: Final = ("scheme", "authority", "userinfo", "host", "host_type", "port", "path", "query", "fragment")

Question = Mapping[str, Any]
Answer = dict[str, Any]


def answer_line(line: bytes) -> Answer:
    """Return the answer to one line. Any line gets an answer; no exception is raised."""
    try:
        question = _decode_question(line)
    except ConformanceError as error:
        return build_error_answer(error)
    try:
        operation = OPERATIONS[_get_choice(question, "op", tuple(OPERATIONS))]
        return {"id": question.get("id"), "ok": True, **operation(question)}
    except OnymError as error:
        return build_error_answer(error, question.get("id"))
    except Exception as error:  # noqa: BLE001 - a failed question must not end the process
        message = f"internal error in onym ({type(error).__name__})"
        return build_error_answer(OnymError(message, code="internal.error"), question.get("id"))


def build_error_answer(error: OnymError, identity: object = None) -> Answer:
    """Return `ok: false` and the error, with `parameter` if a parameter is invalid."""
    body: Answer = {"code": error.code, "component": None, "offset": None, "clause": None}
    if isinstance(error, URIError):
        body.update(component=error.component, offset=error.offset, clause=error.clause)
        if error.parameter is not None:
            body["parameter"] = error.parameter
    body["message"] = error.message
    return {"id": identity, "ok": False, "error": body}


def _decode_question(line: bytes) -> Question:
    import json

    if len(line) > MAX_LINE:
        raise ConformanceError(f"the line is longer than {MAX_LINE} bytes")
    try:
        question = json.loads(line.decode("utf-8"))
    except RecursionError:
        raise ConformanceError("the JSON is nested too deeply") from None
    except ValueError:
        # UnicodeDecodeError, JSONDecodeError, and CPython's limit for integers with thousands of digits
        raise ConformanceError("the line is not one JSON object in UTF-8") from None
    if not isinstance(question, dict):
        raise ConformanceError("the line is not one JSON object in UTF-8")
    if isinstance(question.get("id"), (dict, list)):
        raise ConformanceError("`id` must be a string, a number, a boolean or null")
    return question


def _uri_parse(question: Question) -> Answer:
    from onym.uri.generic import URI

    uri = URI.parse(_get_text(question, "text"), rule=_get_choice(question, "rule", _RULES, "URI-reference"))
    return {"parts": select_fields(uri, *_PARTS)}


def _uri_resolve(question: Question) -> Answer:
    from onym.uri.generic import URI

    base, reference = URI.parse(_get_text(question, "base")), _get_text(question, "ref")
    return {"target": str(base.resolve(reference, strict=_get_flag(question, "strict", True)))}


def _uri_normalize(question: Question) -> Answer:
    from onym.uri.generic import URI

    return {"text": str(URI.parse(_get_text(question, "text")).normalize())}


def _llm_parse(question: Question) -> Answer:
    from onym.uri.llm import LLMURI

    text, strict = _get_text(question, "text"), _get_flag(question, "strict", False)
    uri = LLMURI.parse(text, strict=strict)
    value = _build_llm_value(uri, reveal=_get_flag(question, "reveal", False))
    diagnostics = [diagnostic.as_dict() for diagnostic in uri.check()]
    # the protocol allows the diagnostics beside the value and inside it
    return {"value": {**value, "diagnostics": diagnostics}, "diagnostics": diagnostics}


def _build_llm_value(uri: LLMURI, *, reveal: bool) -> Answer:
    value: Answer = {"label": uri.label}
    if reveal:
        value["key"] = None if uri.key is None else uri.key.reveal()
    params = to_plain_data(uri.params.nested(), reveal=reveal)
    value.update(host=uri.host, port=uri.port, model=uri.model, params=params, fragment=uri.fragment)
    return value


def _ai_parse(question: Question) -> Answer:
    from onym.uri.ai import AIURI

    uri = AIURI.parse(_get_text(question, "text"))
    try:
        canonical = uri.canonical()
    except URIError:
        canonical = None
    names = ("authority", "host", "port", "path", "query", "fragment")
    return {"value": {**select_fields(uri, *names), "canonical": canonical}}


def _redact_text(question: Question) -> Answer:
    from onym.uri.redact import redact

    return {"text": redact(_get_text(question, "text"))}


def _net_decide(question: Question) -> Answer:
    from onym.llm.providers import normalize
    from onym.net.policy import evaluate_uri

    uri = normalize(_get_text(question, "uri"))
    try:
        verdict = evaluate_uri(uri, _get_object(question, "policy"), _get_object(question, "dns"))
    except UsageError as error:
        raise ConformanceError(error.message) from error
    return {
        "decision": "allow" if verdict.allowed else "refuse",
        "reason": verdict.reason,
        "connect_to": list(verdict.connect_to),
    }


OPERATIONS: Final[Mapping[str, Callable[[Question], Answer]]] = {
    "uri.parse": _uri_parse,
    "uri.resolve": _uri_resolve,
    "uri.normalize": _uri_normalize,
    "llm.parse": _llm_parse,
    "ai.parse": _ai_parse,
    "redact": _redact_text,
    "net.decide": _net_decide,
}


def _get_text(question: Question, name: str) -> str:
    value = question.get(name)
    if not isinstance(value, str):
        raise ConformanceError(f"`{name}` is missing or not a string")
    return value


def _get_object(question: Question, name: str) -> dict[str, Any]:
    value = question.get(name)
    if not isinstance(value, dict | None):
        raise ConformanceError(f"`{name}` must be an object")
    return value or {}


def _get_flag(question: Question, name: str, default: bool) -> bool:
    value = question.get(name, default)
    if not isinstance(value, bool):
        raise ConformanceError(f"`{name}` must be true or false")
    return value


def _get_choice(question: Question, name: str, allowed: tuple[str, ...], default: str = "") -> str:
    value = question.get(name, default)
    if value not in allowed:
        raise ConformanceError(f"`{name}` must be one of {', '.join(allowed)}")
    return str(value)


_CHUNK = 1 << 16


@make_command("conformance")
def conformance_command() -> None:
    """Answer conformance questions, one JSON object per line.

    Operations: uri.parse, uri.resolve, uri.normalize, llm.parse, ai.parse, redact, net.decide.
    An unreadable question gets {"ok": false, "error": {"code": "conformance.bad-question", ...}}, and the
    next one is read. Answers come in order, repeat `id`, and are flushed. At the end of the input the exit
    code is 0. Nothing uses the network.

    \b
    Example:
      echo '{"id":1,"op":"llm.parse","text":"llm://h/m"}' | onym conformance
    """
    serve_questions(sys.stdin.buffer, sys.stdout.buffer)


def serve_questions(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer every line of `questions` until the input ends."""
    while line := questions.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            # skip the rest of the line in bounded memory
            while (piece := questions.readline(_CHUNK)) and not piece.endswith(b"\n"):
                pass
        try:
            answer = encode_json(answer_line(line))
        except (RecursionError, ValueError):
            error = ConformanceError("the answer cannot be written as JSON")
            answer = encode_json(build_error_answer(error))
        answers.write(answer.encode("ascii") + b"\n")
        answers.flush()
