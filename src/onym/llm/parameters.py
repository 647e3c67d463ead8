"""The well-known `llm://` parameters: one row per parameter (draft, section 6).

A row holds the parameter's type and default, who acts on it, and its name in every API format, SDK and
telemetry convention. A provider's row and a model's profile may replace the name in the API format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypeAlias

from onym.errors import ParameterError
from onym.uri.parameters import RANGES

DRAFT: Final = "draft-levy-llm-uri-scheme-00"
#: the values of `format`
FORMATS: Final = ("text", "json", "json_schema")

Kind: TypeAlias = Literal["number", "integer", "boolean", "text", "texts", "choice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One well-known parameter.

    Its range is in `onym.uri.parameters`. `consumer` is "client" if Onym acts on the parameter itself.
    `wire` is the usual name in a request body and `formats` contains the names in the formats that differ:
    None means that the API has no such parameter, and a dot leads to a member of an object. `sdks` contains
    the names in other tools' settings. `telemetry` is the attribute of OpenTelemetry's GenAI conventions.
    """

    name: str
    kind: Kind
    default: Any = None
    consumer: Literal["request", "client"] = "request"
    wire: str | None = None
    formats: Mapping[str, str | None] = field(default_factory=dict)
    sdks: Mapping[str, str] = field(default_factory=dict)
    telemetry: str | None = None

    @property
    def low(self) -> int | None:
        """The lowest value, or None."""
        return RANGES.get(self.name, (None, None))[0]

    @property
    def high(self) -> int | None:
        """The highest value, or None."""
        return RANGES.get(self.name, (None, None))[1]


def _in_python(name: str) -> Mapping[str, str]:
    """A name that all SDKs for Python have in common."""
    return dict.fromkeys(("langchain", "litellm", "openai", "pydantic_ai"), name)


_ROWS: Final = (
    Parameter(
        name="temp",
        kind="number",
        wire="temperature",
        formats={
            "bedrock_converse": "inferenceConfig.temperature",
            "gemini": "generationConfig.temperature",
            "ollama": "options.temperature",
        },
        sdks={"ai_sdk": "temperature", **_in_python("temperature")},
        telemetry="gen_ai.request.temperature",
    ),
    Parameter(
        name="max_tokens",
        kind="integer",
        wire="max_tokens",
        formats={
            "bedrock_converse": "inferenceConfig.maxTokens",
            "gemini": "generationConfig.maxOutputTokens",
            "ollama": "options.num_predict",
            "openai_responses": "max_output_tokens",
        },
        sdks={"ai_sdk": "maxOutputTokens", **_in_python("max_tokens")},
        telemetry="gen_ai.request.max_tokens",
    ),
    Parameter(
        name="top_p",
        kind="number",
        wire="top_p",
        formats={
            "bedrock_converse": "inferenceConfig.topP",
            "cohere_v2": "p",
            "gemini": "generationConfig.topP",
            "ollama": "options.top_p",
        },
        sdks={"ai_sdk": "topP", **_in_python("top_p")},
        telemetry="gen_ai.request.top_p",
    ),
    Parameter(
        name="top_k",
        kind="integer",
        wire="top_k",
        formats={
            "bedrock_converse": None,
            "cohere_v2": "k",
            "gemini": "generationConfig.topK",
            "ollama": "options.top_k",
            "openai_responses": None,
        },
        sdks={"ai_sdk": "topK", "langchain": "top_k", "litellm": "top_k", "pydantic_ai": "top_k"},
        telemetry="gen_ai.request.top_k",
    ),
    Parameter(
        name="stop",
        kind="texts",
        wire="stop",
        formats={
            "anthropic_messages": "stop_sequences",
            "bedrock_converse": "inferenceConfig.stopSequences",
            "cohere_v2": "stop_sequences",
            "gemini": "generationConfig.stopSequences",
            "ollama": "options.stop",
            "openai_responses": None,
        },
        sdks={"ai_sdk": "stopSequences", **_in_python("stop"), "pydantic_ai": "stop_sequences"},
        telemetry="gen_ai.request.stop_sequences",
    ),
    Parameter(
        name="seed",
        kind="integer",
        wire="seed",
        formats={
            "anthropic_messages": None,
            "bedrock_converse": None,
            "gemini": "generationConfig.seed",
            "mistral_chat": "random_seed",
            "ollama": "options.seed",
            "openai_responses": None,
        },
        sdks={"ai_sdk": "seed", **_in_python("seed")},
        telemetry="gen_ai.request.seed",
    ),
    Parameter(
        name="stream",
        kind="boolean",
        wire="stream",
        # these stream at another path
        formats={"bedrock_converse": "converse-stream (path)", "gemini": ":streamGenerateContent"},
        sdks={"langchain": "streaming", "litellm": "stream"},
    ),
    Parameter(
        name="timeout",
        kind="integer",
        default=600_000,
        consumer="client",
        sdks={"ai_sdk": "timeout", "langchain": "timeout", "litellm": "timeout"},
    ),
    Parameter(
        name="retries",
        kind="integer",
        default=2,
        consumer="client",
        sdks={"ai_sdk": "maxRetries", "langchain": "max_retries", "litellm": "num_retries"},
    ),
    Parameter(
        name="cache",
        kind="boolean",
        default=False,
        consumer="client",
        # the switch of the provider's own prompt cache
        formats={"anthropic_messages": "cache_control", "bedrock_converse": "cachePoint"},
    ),
    Parameter(
        name="format",
        kind="choice",
        wire="response_format",
        formats={
            "anthropic_messages": "output_config.format",
            "bedrock_converse": "outputConfig.textFormat",
            "gemini": "generationConfig.responseMimeType",
            "ollama": "format",
            "openai_responses": "text.format",
        },
        sdks={"litellm": "response_format"},
    ),
    Parameter(
        name="system",
        kind="text",
        wire="messages[0]",
        formats={
            "anthropic_messages": "system",
            "bedrock_converse": "system",
            "gemini": "systemInstruction",
            "openai_responses": "instructions",
        },
        sdks={"ai_sdk": "system"},
    ),
)
#: the rows by name, in the registry's order
PARAMETERS: Final[Mapping[str, Parameter]] = {row.name: row for row in _ROWS}
#: sent to the provider with the API format's names
REQUEST_PARAMETERS: Final = tuple(row.name for row in _ROWS if row.consumer == "request")
#: for the client, which does not send them
CLIENT_PARAMETERS: Final = tuple(row.name for row in _ROWS if row.consumer == "client")


def list_wire_names(api_format: str) -> Mapping[str, str]:
    """The names of the well-known parameters that one API format has."""
    names = {row.name: row.formats.get(api_format, row.wire) for row in _ROWS}
    return {name: wire for name, wire in names.items() if wire is not None}


def list_sdk_names(sdk: str) -> Mapping[str, str]:
    """The names that another tool's settings have for well-known parameters, by well-known name."""
    return {row.name: row.sdks[sdk] for row in _ROWS if sdk in row.sdks}


def validate_parameter(name: str, value: Any) -> Any:
    """Return `value` as the well-known parameter `name` has it, `stop` as a tuple.

    Raises ParameterError, which never shows the value.
    """
    row = PARAMETERS[name]
    match row.kind:
        case "boolean":
            if not isinstance(value, bool):
                _raise_parameter_error(name, "must be true or false", code="llm.bad-boolean")
        case "text":
            if not isinstance(value, str):
                _raise_parameter_error(name, "must be text")
        case "texts":
            return _validate_texts(name, value)
        case "choice":
            if value not in FORMATS:
                _raise_parameter_error(name, f"must be one of {', '.join(FORMATS)}")
        case _:
            _validate_number(row, value)
    return value


def _validate_texts(name: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) and text for text in texts):
        _raise_parameter_error(name, "must be a non-empty text or a sequence of them")
    return tuple(texts)


def _validate_number(row: Parameter, value: Any) -> None:
    whole = row.kind == "integer"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        reason = "must be a whole number" if whole else "must be a number"
        _raise_parameter_error(row.name, reason, code="llm.bad-number")
    # written so that nan is out of every range
    if not ((row.low is None or row.low <= value) and (row.high is None or value <= row.high)):
        _raise_parameter_error(row.name, _describe_range(row), code="llm.out-of-range")


def _describe_range(row: Parameter) -> str:
    if row.high is None:
        return f"must be at least {row.low:g}"
    return f"must be from {row.low:g} to {row.high}"


def _raise_parameter_error(name: str, rule: str, *, code: str = "llm.bad-value") -> NoReturn:
    raise ParameterError(f"the parameter {name} {rule}", code=code, clause=f"{DRAFT} 6", parameter=name)
