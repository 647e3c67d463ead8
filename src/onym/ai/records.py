"""The values that resolution and invocation exchange: frozen records, media types and JSON. No I/O.

Times are seconds since the epoch, sizes are bytes. An `authority` is the host of a canonical ai URI, with its
port if that is not 443 ("bank.example", "bank.example:8443", "bank").
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from onym.common.strict_json import parse_json_value
from onym.errors import ProvenanceError
from onym.net.messages import Headers, Origin
from onym.sign.keys import AuthorityKeys
from onym.sign.receipts import Receipt
from onym.uri.ai import AIURI

#: `aud` of a receipt for a caller with neither token nor origin
ANONYMOUS_AUDIENCE: Final = "anonymous"
#: a character of a scope (RFC 6749 3.3)
SCOPE_CHARACTER: Final = r"[\x21\x23-\x5b\x5d-\x7e]"
#: the authority of an ai URI without one (`ai:/path`); it can never be a host
NO_AUTHORITY: Final = "_"


def hash_path(key: bytes, target: str) -> str:
    """Return a keyed hash of a URI without its query: equal for equal URIs, and not reversible."""
    return hmac.new(key, target.encode("utf-8"), hashlib.sha256).hexdigest()[:32]


class Effects(StrEnum):
    """The effects of an invocation on the world."""

    READ = "read"
    WRITE = "write"
    FINANCIAL = "financial"
    PHYSICAL = "physical"


class Auth(StrEnum):
    """How a caller authenticates."""

    NONE = "none"
    OAUTH2 = "oauth2"


class Level(StrEnum):
    """Whether sender-constrained tokens are supported or required."""

    NONE = "none"
    SUPPORTED = "supported"
    REQUIRED = "required"


#: from the weakest to the strongest
LEVELS: Final = (Level.NONE, Level.SUPPORTED, Level.REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """`policy` of a discovery document: the authority's requirements for callers.

    A member of the wrong type counts as its strictest value.
    """

    signed_results: bool = True
    mtls: bool = False
    dpop: Level = Level.NONE
    auth: Auth = Auth.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEntry:
    """One resource in a discovery document. `uri` is canonical."""

    uri: str
    title: str | None = None
    effects: Effects = Effects.READ
    scopes: tuple[str, ...] = ()
    idempotency: bool = False
    asynchronous: bool = False
    approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorDocument:
    """A validated discovery document (3.2). `service` is an https URL without a slash at its end."""

    anchor: str
    authority: str
    service: str
    jwks: str
    endpoint: str | None = None
    endpoints: tuple[EndpointEntry, ...] = ()
    scopes: tuple[str, ...] = ()
    requirements: Requirements = Requirements()
    authorization_servers: tuple[str, ...] = ()
    resource: str | None = None
    algorithms: tuple[str, ...] = ("Ed25519", "ES256")
    origins: tuple[str, ...] = ()
    versions: tuple[str, ...] = ("1",)
    pin_max_age: int = 0

    @property
    def speaker(self) -> str:
        """The name that pins are stored under: the authority, or the anchor for `ai:/path`."""
        return self.anchor if self.authority == NO_AUTHORITY else self.authority


class Verdict(StrEnum):
    """The outcome for a source's statement."""

    WON = "won"
    CONFIRMS = "confirms"
    DROPPED = "dropped"
    CONTRADICTS = "contradicts"
    ABSENT = "absent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What one source of discovery stated, and the outcome (3.3).

    `name` is one of anchor, registry, context, dns-srv, dns-txt, link, html; `rank` is 3 to 0; `location` is
    a URL without query or a DNS name; `said` contains its values, canonical if possible; `why` is a sentence
    for people; `code` is set if the source ended the discovery.
    """

    name: str
    rank: int
    location: str
    verdict: Verdict
    said: tuple[str, ...] = ()
    why: str = ""
    code: str | None = None
    validated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """An ai URI with everything that is needed to invoke it and to verify the response.

    `uri` has no fragment. `connect` is the target of a DNS SRV record that replaces the service's own origin,
    or None; `fallbacks` are further targets, in order. `entry` is the resource's entry in the discovery
    document, if it has one.
    """

    uri: AIURI
    authority: str
    document: AnchorDocument
    keys: AuthorityKeys
    entry: EndpointEntry | None = None
    connect: Origin | None = None
    sources: tuple[Source, ...] = ()
    fallbacks: tuple[Origin, ...] = ()

    @property
    def anchor(self) -> str:
        """The https origin that is the authority's trust anchor."""
        return self.document.anchor


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One label of a registry of ai namespaces: its anchor, and the thumbprints of its keys.

    If `keys` is empty, the anchor chooses its keys.
    """

    label: str
    anchor: str
    keys: tuple[str, ...] = ()


class AllocatedNamespace(Protocol):
    """A registry's entry for a label; `Namespace` is one."""

    @property
    def anchor(self) -> str:
        """The https origin that is the label's trust anchor."""
        ...

    @property
    def keys(self) -> Collection[str]:
        """The thumbprints of its keys; empty if the anchor chooses its keys."""
        ...


class Namespaces(Protocol):
    """Resolves one-label authorities ("bank"). `onym.registry.signed_namespaces.SignedNamespaces` is one."""

    def find(self, label: str, at: float) -> AllocatedNamespace | None:
        """Return the label's namespace, or None if it is unknown.

        Raises DiscoveryError if it is not active.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of a resource (3.6). `input` and `output` are JSON Schemas."""

    uri: str
    title: str | None = None
    methods: tuple[str, ...] = ("GET", "POST")
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    effects: Effects = Effects.READ
    scopes: tuple[str, ...] = ()
    idempotency: bool = False
    asynchronous: bool = False
    approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One request to a resource. `headers` are additional header fields, `accept` is the Accept field."""

    uri: AIURI
    method: str = "POST"
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    accept: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A verified result. `token` is the receipt in its compact form, which you can store."""

    status: int
    content_type: str | None
    body: bytes = field(repr=False)
    headers: Headers = field(repr=False)
    receipt: Receipt
    token: str = field(repr=False)
    resolution: Resolution = field(repr=False)
    checks: tuple[str, ...] = ()
    replayed: bool = False

    def json(self) -> Any:
        """Return the body as JSON without repeated members. Raises ProvenanceError if it is not that."""
        try:
            return parse_json_value(self.body)
        except ValueError:
            raise ProvenanceError(
                "the signed result is not valid JSON", target=self.receipt.subject
            ) from None


JSON: Final = "application/json"
#: a stream of events (WHATWG HTML 9.2)
EVENTS: Final = "text/event-stream"
#: the description of a resource (3.6)
DESCRIPTION: Final = "application/aiip+json"
#: RFC 9457 3
PROBLEM: Final = "application/problem+json"

_ENCODER: Final = msgspec.json.Encoder()


def parse_media_type(content_type: str | None) -> str:
    """Return the type and subtype of a Content-Type in lower case; "" without one."""
    return (content_type or "").partition(";")[0].strip().lower()


def is_json(content_type: str | None) -> bool:
    """Report whether this is a media type of JSON (RFC 6839 3.1)."""
    media_type = parse_media_type(content_type)
    return media_type == JSON or media_type.endswith("+json")


def encode_json(value: Any) -> bytes:
    """Encode the value as JSON (RFC 8259 6).

    Raises TypeError, ValueError or RecursionError for a value without a JSON form. msgspec would write NaN
    and infinity as `null`, which is another value.
    """
    body = _ENCODER.encode(value)
    if b"null" in body:  # rare, and much cheaper than to check every number
        require_finite_numbers(msgspec.to_builtins(value, str_keys=True, enc_hook=_ignore_raw))
    return body


def require_finite_numbers(value: Any) -> None:
    """Raise ValueError if a value of plain Python contains NaN or infinity."""
    json.dumps(value, allow_nan=False)


def _ignore_raw(_: Any) -> None:
    """Skip a `msgspec.Raw`, which is JSON already; the encoder has rejected all other unknown types."""
