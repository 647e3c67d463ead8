"""What an llm URI says, as attributes: the parts it was read into and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onym.uri._ip import format_ipv6, is_ipv4, parse_ipv6
from onym.uri._query import Params, params_of, passed_through, withheld
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.uri._limits import Limits

__all__ = ["Fields", "bracketed", "source_of"]


class Fields:
    """The slots of `LLMURI` before it is frozen, and its derived attributes."""

    __slots__ = (
        "__weakref__", "_host_type", "_limits", "_segments", "_source", "_typed",
        "fragment", "host", "key", "label", "model", "port",
    )  # fmt: skip
    label: str | None
    key: Secret | None
    host: str
    port: int | None
    model: str
    fragment: str | None
    _typed: dict[str, Any]
    _limits: Limits
    # the text it was read from, for `check`: a Secret where it holds one
    _source: str | Secret
    # set only where they do not follow from host and model
    _host_type: str
    _segments: tuple[str, ...]

    @property
    def host_type(self) -> str:
        """`reg-name`, `IPv4address`, `IPv6address` or `IPvFuture` (RFC 3986 3.2.2)."""
        known: str | None = getattr(self, "_host_type", None)
        return known or ("IPv4address" if is_ipv4(self.host) else "reg-name")

    @property
    def host_text(self) -> str:
        """`host` as it stands in a URI: an IP literal in its brackets."""
        return bracketed(self.host, self.host_type)

    @property
    def segments(self) -> tuple[str, ...]:
        """The path's segments, each decoded once; one may hold a slash that was encoded."""
        known: tuple[str, ...] | None = getattr(self, "_segments", None)
        return known or tuple(self.model.split("/"))

    @property
    def params(self) -> Params:
        """All parameters, in order, typed."""
        return params_of(self._typed)

    @property
    def temp(self) -> float | None:
        """Sampling temperature, 0 to 2."""
        return self._typed.get("temp")

    @property
    def max_tokens(self) -> int | None:
        """The most tokens in the completion, at least 1."""
        return self._typed.get("max_tokens")

    @property
    def top_p(self) -> float | None:
        """Nucleus sampling threshold, 0 to 1."""
        return self._typed.get("top_p")

    @property
    def top_k(self) -> int | None:
        """Top-k sampling, at least 0."""
        return self._typed.get("top_k")

    @property
    def stop(self) -> tuple[str, ...] | None:
        """Stop sequences."""
        return self._typed.get("stop")

    @property
    def seed(self) -> int | None:
        """Random seed, within 64 bits."""
        return self._typed.get("seed")

    @property
    def stream(self) -> bool | None:
        """Whether to stream the answer."""
        return self._typed.get("stream")

    @property
    def timeout(self) -> int | None:
        """Milliseconds for the whole call, at least 1."""
        return self._typed.get("timeout")

    @property
    def retries(self) -> int | None:
        """Attempts after the first, 0 to 100."""
        return self._typed.get("retries")

    @property
    def cache(self) -> bool | None:
        """Whether to cache answers."""
        return self._typed.get("cache")

    @property
    def format(self) -> str | None:
        """Response format: `text`, `json` or `json_schema`."""
        return self._typed.get("format")

    @property
    def system(self) -> str | None:
        """System prompt. Untrusted where the URI is (draft 10.4)."""
        return self._typed.get("system")

    @property
    def auth(self) -> str | None:
        """Where the client finds the key, such as `env:NAME`. Never sent."""
        return self._typed.get("auth")

    @property
    def extra(self) -> dict[str, Any]:
        """What passes through to the provider's request body: unknown names, dotted ones nested."""
        return passed_through(self._typed)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Names that are never sent: they would redirect or replace a request, or carry a key."""
        return withheld(self._typed)

    @property
    def is_loopback(self) -> bool:
        """Whether the host is `localhost`, a name below it, or a literal loopback address."""
        if self.host_type == "IPv6address":
            return parse_ipv6(self.host) == 1
        if self.host_type == "IPv4address":
            return self.host.startswith("127.")
        name = self.host.removesuffix(".")
        return name == "localhost" or name.endswith(".localhost")

    @property
    def default_port(self) -> int:
        """443, or 11434 for a loopback host (draft 4.2.3). A provider's row may say otherwise."""
        return 11434 if self.is_loopback else 443

    @property
    def effective_port(self) -> int:
        """`port`, else `default_port`."""
        return self.default_port if self.port is None else self.port

    @property
    def has_default_port(self) -> bool:
        """Whether `port` says no more than the default does.

        Never for a single word but `localhost`: with a port it is a host, without one it may be an alias.
        """
        word = not self.is_loopback and "." not in self.host and ":" not in self.host
        return self.port == self.default_port and not word

    @property
    def normal_host(self) -> str:
        """`host` with an IPv6 address in the form of RFC 5952."""
        address = parse_ipv6(self.host) if self.host_type == "IPv6address" else None
        return self.host if address is None else format_ipv6(address)


def bracketed(host: str, host_type: str) -> str:
    """`host` as it stands in a URI."""
    return f"[{host}]" if host_type in ("IPv6address", "IPvFuture") else host


def source_of(fields: Fields) -> str:
    """The text that it was read from, key and all: for `check` alone."""
    source = fields._source
    return source.reveal() if isinstance(source, Secret) else source
