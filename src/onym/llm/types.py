"""The values of a call: messages, completions, events and embeddings. All are frozen.

Texts are `str`, token counts are whole tokens, and times are seconds unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text inside a message of several parts."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """An image: either `data` with its `media_type`, or a `url` that the provider fetches itself."""

    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str = "image/png"
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPart:
    """A document: either `data` with its `media_type`, or a `url` that the provider fetches itself."""

    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str = "application/pdf"
    name: str | None = None


ContentPart: TypeAlias = TextPart | ImagePart | DocumentPart
Content: TypeAlias = str | tuple[ContentPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model asks for; `arguments` is JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a provider wants back unchanged with the assistant's turn, such as signed reasoning.

    `parts` are the turn's content as that dialect writes it; another dialect leaves them out.
    """

    dialect: str
    parts: tuple[Mapping[str, Any], ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call; `parameters` is a JSON Schema."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn. `tool_call_id` answers a `ToolCall` and belongs to role `tool` alone."""

    role: Role
    content: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    carried: Carried | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One inference, before any dialect has seen it.

    `params` holds well-known parameters under their `llm:` names (draft section 6), `extra` the
    pass-through ones, nested as dot-notation says. `schema` goes with `format="json_schema"`.
    """

    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    schema: Mapping[str, Any] | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the server counted them; None where it does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output together, where both are known."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer. `raw` is the server's own body, `request_id` its name for the exchange."""

    text: str
    model: str
    finish_reason: FinishReason
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    request_id: str | None = None
    carried: Carried | None = None
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
    """A piece of one tool call; `index` tells parallel calls apart, id and name come once."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The last event of every stream that ended well."""

    reason: FinishReason
    usage: Usage = Usage()
    model: str | None = None
    request_id: str | None = None
    carried: Carried | None = None


Event: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """One vector per input text, in order."""

    vectors: tuple[Sequence[float], ...]
    model: str
    usage: Usage = Usage()
    request_id: str | None = None


#: the whole answer of an operation that the cache and telemetry know
Answer: TypeAlias = Completion | Embeddings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a server says of one model; None where it says nothing. `raw` is its own record.

    `context_window` and `max_output_tokens` are tokens, `created` is seconds since 1970, `parameters` are the
    wire names that the model takes.
    """

    id: str
    context_window: int | None = None
    max_output_tokens: int | None = None
    owner: str | None = None
    created: int | None = None
    parameters: tuple[str, ...] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ModelPage:
    """A part of a server's list of models; `next` is the query that asks for the part after it."""

    models: tuple[ModelInfo, ...]
    next: str | None = None
