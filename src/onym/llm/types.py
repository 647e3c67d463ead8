"""The values of a call: messages, completions, events and embeddings. All are frozen.

Texts are `str`, token counts are whole tokens, and times are seconds unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from onym.net.messages import Headers

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
#: the headers of an answer that did not come with a response: a cached one, or one of a batch
NO_HEADERS: Final = Headers()
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text inside a message of several parts.

    `cache_control` marks the end of a prefix that the provider caches, in Anthropic's form.
    """

    text: str
    cache_control: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """An image: either `data` with its `media_type`, or a `url` that the provider fetches itself."""

    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str = "image/png"
    detail: str | None = None
    cache_control: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPart:
    """A document or a recording: `data` with its `media_type`, or a `url` that the provider fetches."""

    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str = "application/pdf"
    name: str | None = None
    cache_control: Mapping[str, Any] | None = field(default=None, hash=False)


ContentPart: TypeAlias = TextPart | ImagePart | DocumentPart
Content: TypeAlias = str | tuple[ContentPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of the model; `arguments` is JSON text exactly as the model wrote it.

    `custom` is a call of one of OpenAI's custom tools: its `arguments` are free text, not JSON.
    """

    id: str
    name: str
    arguments: str
    custom: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the call as plain data, with `custom` only if it is true."""
        record: dict[str, Any] = {"id": self.id, "name": self.name, "arguments": self.arguments}
        return {**record, "custom": True} if self.custom else record


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Content that a provider needs back unchanged with the assistant's turn, such as its reasoning.

    `parts` are the turn's content in the API format `dialect`; other API formats leave them out. `provider`
    is the name of the provider row that made them: other providers leave them out too. It is "" if it is not
    known, because a program wrote the turn.
    """

    dialect: str
    parts: tuple[Mapping[str, Any], ...] = field(repr=False)
    provider: str = ""

    def to_record(self) -> dict[str, Any]:
        """Return plain data, such as JSON can contain."""
        return {"dialect": self.dialect, "provider": self.provider, "parts": [*map(dict, self.parts)]}

    @classmethod
    def from_record(cls, record: Any) -> Carried | None:
        """Return the content of a record that `to_record` made; None for any other value."""
        if not isinstance(record, Mapping) or not isinstance(record.get("parts"), list | tuple):
            return None
        dialect, provider, parts = record.get("dialect"), record.get("provider", ""), record["parts"]
        if not isinstance(dialect, str) or not isinstance(provider, str):
            return None
        if not all(isinstance(part, Mapping) for part in parts):
            return None
        return cls(dialect=dialect, parts=tuple(parts), provider=provider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call; `parameters` is a JSON Schema.

    `cache_control` is that of `TextPart`.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool | None = None
    cache_control: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn. `tool_call_id` answers a `ToolCall`; only the role `tool` has it."""

    role: Role
    content: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    carried: Carried | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One inference, independent of an API format.

    `params` has well-known parameters by their `llm:` names (draft section 6), `extra` has pass-through
    parameters, nested by dot notation. `provider_tools` are tools that the provider runs itself, such as a
    web search, in the provider's own form. `schema` is for `format="json_schema"`.
    """

    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    provider_tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | None = None
    schema: Mapping[str, Any] | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the server counted them; None if it did not report a count."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output tokens, None unless both are known."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer.

    `text` is the answer without the remarks that some models make while they work (`reasoning` has them).
    `refusal` is the model's own text if it declined to answer; then `finish_reason` is "content_filter", and
    `text` has it too. `raw` is the body of the response, `request_id` the server's ID of the request, and
    `headers` are those of the response: none for a cached answer.
    """

    text: str
    model: str
    finish_reason: FinishReason
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    request_id: str | None = None
    carried: Carried | None = None
    headers: Headers = field(default=NO_HEADERS, repr=False, compare=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the reasoning text that some models show."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of one tool call; `index` identifies parallel calls, and ID and name come once.

    `custom` is that of `ToolCall`; it comes with the name.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    custom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The last event of every stream that ends without an error. `refusal` is that of `Completion`."""

    reason: FinishReason
    refusal: str | None = None
    usage: Usage = Usage()
    model: str | None = None
    request_id: str | None = None
    carried: Carried | None = None


Event: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """One vector per input text, in order. `headers` are those of `Completion`."""

    vectors: tuple[Sequence[float], ...]
    model: str
    usage: Usage = Usage()
    request_id: str | None = None
    headers: Headers = field(default=NO_HEADERS, repr=False, compare=False)


#: the answer of an operation that the cache and telemetry support
Answer: TypeAlias = Completion | Embeddings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a server reports about one model; None for facts that it does not report. `raw` is its record.

    `context_window` and `max_output_tokens` are tokens, `created` is seconds since 1970, and `parameters` are
    the wire names that the model accepts. `headers` are those of the response, which may describe more
    models, and `request_id` is its ID.
    """

    id: str
    context_window: int | None = None
    max_output_tokens: int | None = None
    owner: str | None = None
    created: int | None = None
    parameters: tuple[str, ...] | None = None
    request_id: str | None = field(default=None, compare=False)
    headers: Headers = field(default=NO_HEADERS, repr=False, compare=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ModelPage:
    """A page of a server's list of models; `next` is the query for the next page."""

    models: tuple[ModelInfo, ...]
    next: str | None = None


OperationName: TypeAlias = Literal["chat", "embed", "models", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    `capability` is the member of a provider row's capabilities that it needs, `title` names that in messages.
    `result` is what a format's decoder returns. `arguments` are the keyword arguments of a call besides
    `timeout` and `retries`. A stored `result` is cacheable. `telemetry` is `gen_ai.operation.name`. With
    `names_model`, a 404 may mean an unknown model, and the hint shows how to list models.
    """

    name: OperationName
    capability: str
    title: str
    result: type
    arguments: tuple[str, ...] = ()
    cacheable: bool = False
    telemetry: str
    names_model: bool = False

    @property
    def encoder(self) -> str:
        """The name of the function of a format that builds the body."""
        return f"encode_{self.name}"

    @property
    def decoder(self) -> str:
        """The name of the function of a format that reads the response."""
        return f"decode_{self.name}"


_ROWS: Final = (
    Operation(
        name="chat",
        capability="chat",
        title="chat",
        result=Completion,
        cacheable=True,
        telemetry="chat",
        names_model=True,
    ),
    Operation(
        name="embed",
        capability="embeddings",
        title="embeddings",
        result=Embeddings,
        arguments=("dimensions", "extra"),
        cacheable=True,
        telemetry="embeddings",
        names_model=True,
    ),
    Operation(
        name="models",
        capability="models",
        title="list of models",
        result=ModelPage,
        telemetry="models",
    ),
    Operation(
        name="model",
        capability="models",
        title="list of models",
        result=ModelInfo,
        telemetry="model",
    ),
)
#: the rows by name
OPERATIONS: Final[Mapping[str, Operation]] = {row.name: row for row in _ROWS}
#: what a provider row may have its own path or host for
ROUTE_NAMES: Final = frozenset({*OPERATIONS, "stream"})
