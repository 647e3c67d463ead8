"""API formats: what an API format is, and the formats that Onym knows, by name.

An API format is one module of pure functions with the names of `Dialect`. It never reads a provider's name.
`get_dialect` imports a format on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from onym.errors import ConfigError, NetError, ProviderError, UnsupportedError
from onym.llm.types import Completion, Embeddings, Event, ModelInfo, ModelPage, Request, Usage

if TYPE_CHECKING:
    from onym.uri.secret import Secret


class HeaderMap(Protocol):
    """Response headers, asked for by name in any case, or gone through as pairs."""

    def get(self, name: str, /) -> str | None:
        """The first value of this header, None where it is absent."""

    def __iter__(self) -> Iterator[tuple[str, str]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Paths below the base path, by operation; None where the API has no such operation.

    `{model}` stands for the model, percent-encoded whole, without `model_prefix` if it begins with that.
    `stream` is for the APIs that stream at another path. `model` asks after one model;
    without it the list is searched. A route is a GET where nothing is sent with it (`models`, `model`),
    else a POST; `model_body` says that `model` is a POST of `{"model": …}`.
    """

    chat: str
    stream: str | None = None
    embed: str | None = None
    models: str | None = None
    model: str | None = None
    model_body: bool = False
    model_prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSpec:
    """Facts of one endpoint that shape a body: `names` are wire names of well-known parameters."""

    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What an error has to say of the exchange that it happened in; it never changes how an answer is read.

    `endpoint` is redacted text, `secrets` must not come back in a message, `model` stands in where
    the server names none, `now` (seconds since the epoch) turns a Retry-After date into seconds.
    """

    endpoint: str | None = None
    secrets: tuple[Secret, ...] = ()
    model: str = ""
    now: float | None = None


NO_EXCHANGE = Exchange()


class Decoder(Protocol):
    """A push decoder of a streamed answer: bytes in, events out, whatever the cuts.

    Events that came before a failure are returned, then `error` holds it: raise it after them.
    `done` says that the answer ended well and nothing more is wanted.
    """

    @property
    def error(self) -> NetError | ProviderError | None:
        """Why this stream is no use any more, None as long as it is."""

    @property
    def done(self) -> bool:
        """Whether `Finish` has been handed out."""

    @property
    def usage(self) -> Usage:
        """Tokens counted so far."""

    def feed(self, data: bytes, /) -> list[Event]:
        """The events that these bytes complete."""

    def close(self) -> list[Event]:
        """The end of the bytes: what was still to come, or `error` where the answer is not whole."""


class Dialect(Protocol):
    """One wire format. A module with these names is one."""

    @property
    def name(self) -> str:
        """As a provider row names it."""

    @property
    def routes(self) -> Routes:
        """Where its operations are."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of every request, beside those that say who asks."""

    @property
    def parameters(self) -> Mapping[str, str | None]:
        """Wire names of the well-known parameters, where no row says otherwise; dots nest, None is refused.

        `system` and `stream` name where they show in a request, for people. `cache`, where it stands, is the
        switch of the provider's own prompt cache.
        """

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Well-known parameters that the API demands, and what is sent where nobody says."""

    @property
    def formats(self) -> frozenset[str]:
        """The values of `format`, beside `text`, that the API has."""

    def encode_chat(self, request: Request, spec: WireSpec) -> dict[str, Any]:
        """The body of an inference request."""

    def encode_embed(self, model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
        """The body of an embeddings request."""

    def decode_chat(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Completion:
        """A 2xx answer; raises ProviderError."""

    def decode_embed(
        self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange, *, count: int
    ) -> Embeddings:
        """A 2xx answer with `count` vectors; raises ProviderError."""

    def decode_models(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ModelPage:
        """A 2xx answer; raises ProviderError."""

    def decode_model(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ModelInfo:
        """A 2xx answer about one model; raises ProviderError."""

    def decode_error(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ProviderError:
        """The error of any other answer; returned, not raised."""

    def stream_decoder(self, status: int, headers: HeaderMap, exchange: Exchange) -> Decoder:
        """A decoder for the streamed body of this 2xx answer."""


#: distributions add dialects here: modules, or objects, with the names of `Dialect`
GROUP = "onym.dialects"
#: the dialects that this version speaks, and the modules that speak them
DIALECTS = {
    name: f"onym.llm.dialects.{name}"
    for name in (
        "anthropic_messages",
        "anthropic_vertex",
        "bedrock_converse",
        "cohere_v2",
        "gemini",
        "gemini_vertex",
        "mistral_chat",
        "ollama",
        "openai_chat",
        "openai_responses",
    )
}


@cache
def get_dialect(name: str) -> Dialect:
    """The dialect of this name: one of our own, or one that a distribution brings by an entry point.

    Raises UnsupportedError where there is none, ConfigError for an entry point that cannot be loaded.
    """
    if name in DIALECTS:
        return cast("Dialect", import_module(DIALECTS[name]))
    # 28 ms of imports, for a name that is not known so far
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        try:
            return cast("Dialect", point.load())
        except Exception as error:
            raise ConfigError(
                f"the dialect {name}, of the entry points {GROUP}, fails to load ({type(error).__name__})",
                code="dialect.bad-plugin",
                hint="uninstall or upgrade the distribution that brings it",
            ) from error
    raise UnsupportedError(
        f"this version of Onym does not speak the dialect {name}",
        code="llm.no-dialect",
        hint=f"it speaks {', '.join(sorted(DIALECTS))}",
    )
