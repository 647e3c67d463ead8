"""What the GenAI conventions call the facts of a call: a plan, an answer or an error in, attributes out.

The names are those of the OpenTelemetry conventions for generative AI, November 2026 (status: development).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.errors import OnymError
from onym.llm.types import Completion

if TYPE_CHECKING:
    from onym.llm.plan import Plan
    from onym.llm.types import Embeddings, Usage
    from onym.uri.secret import Secret

__all__ = ["Attributes", "Value", "error_type", "fit_name", "named", "of_answer", "of_plan", "of_usage"]

Value: TypeAlias = str | bool | int | float | tuple[str, ...]
Attributes: TypeAlias = dict[str, Value]

#: what the conventions call a provider, where that is not the row's name
_PROVIDERS: Final[Mapping[str, str]] = {
    "azure-inference": "azure.ai.inference",
    "azure-openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
_OPERATIONS: Final[Mapping[str, str]] = {"chat": "chat", "embed": "embeddings"}


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value))


#: our parameters and the pass-through ones that the conventions know: their name, and their type
_PARAMETERS: Final[Mapping[str, tuple[str, Callable[[Any], Value]]]] = {
    "temp": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "top_k": ("gen_ai.request.top_k", float),
    "max_tokens": ("gen_ai.request.max_tokens", int),
    "stop": ("gen_ai.request.stop_sequences", _texts),
    "seed": ("gen_ai.request.seed", int),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
    "dimensions": ("gen_ai.embeddings.dimension.count", int),
}
_OUTPUTS: Final[Mapping[Any, str]] = {"text": "text", "json": "json", "json_schema": "json"}
#: where servers put the name of an answer
_RESPONSE_IDS: Final = ("id", "responseId")
_LONGEST_NAME: Final = 256


def named(plan: Plan) -> Attributes:
    """What every span and metric of a call says: what is done, by whom, where."""
    endpoint, origin = plan.endpoint, plan.frame.origin
    provider = endpoint.provider.name
    found: Attributes = {
        "gen_ai.operation.name": _OPERATIONS.get(plan.operation, plan.operation),
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": endpoint.model,
    }
    if origin is not None:
        found["server.address"] = origin.host
        found["server.port"] = origin.port
    return found


def of_plan(plan: Plan) -> Attributes:
    """The parameters that are sent."""
    found: Attributes = {}
    if plan.stream:
        found["gen_ai.request.stream"] = True
    for note in plan.notes:
        if note.parameter == "format" and note.action != "dropped" and note.value in _OUTPUTS:
            found["gen_ai.output.type"] = _OUTPUTS[note.value]
        if note.action in ("sent", "renamed") and note.parameter in _PARAMETERS:
            name, kind = _PARAMETERS[note.parameter]
            value = _as(kind, note.value)
            if value is not None:
                found[name] = value
    return found


def _as(kind: Callable[[Any], Value], value: Any) -> Value | None:
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        return None  # a pass-through parameter may be anything


def of_answer(answer: Completion | Embeddings, secrets: Iterable[Secret] = ()) -> Attributes:
    """What came back, but for its content. Names of the server's that quote one of `secrets` are left out."""
    known = tuple(secrets)
    told: dict[str, object] = {"gen_ai.response.model": answer.model, "onym.request_id": answer.request_id}
    if isinstance(answer, Completion):
        told["gen_ai.response.id"] = next(filter(None, map(answer.raw.get, _RESPONSE_IDS)), None)
    found: Attributes = {}
    for name, text in told.items():
        fit = fit_name(text, known)
        if fit is not None:
            found[name] = fit
    if isinstance(answer, Completion):
        found["gen_ai.response.finish_reasons"] = (answer.finish_reason,)
    return found | of_usage(answer.usage)


def fit_name(text: object, secrets: Iterable[Secret]) -> str | None:
    """A name that the server gave, None for what is none, is no fit for a label, or holds a key."""
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_NAME or not text.isprintable():
        return None
    return None if any(secret.reveal() in text for secret in secrets) else text


def of_usage(usage: Usage) -> Attributes:
    """Tokens, where the server counted them: cached ones are part of the input, reasoning of the output."""
    counted = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return {name: count for name, count in counted.items() if count is not None}


def error_type(error: BaseException) -> str:
    """A name for what went wrong, of few possible ones: our own code, else the class."""
    if isinstance(error, OnymError):
        return error.code
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
