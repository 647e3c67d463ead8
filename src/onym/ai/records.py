"""What resolution and invocation say to each other: frozen values, no I/O (AIIP/HTTPS v1, 3.1 to 3.8).

Times are seconds since the epoch, sizes octets. An `authority` is the host of an ai URI with its port where
that is not 443, as the canonical form has it ("bank.example", "bank.example:8443", "bank").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from onym.net.messages import Headers

if TYPE_CHECKING:
    from onym.net.messages import Origin
    from onym.sign.keys import AuthorityKeys
    from onym.sign.receipts import Receipt
    from onym.uri.ai import AIURI

__all__ = [
    "AllocatedNamespace",
    "AnchorDocument",
    "Auth",
    "Description",
    "Effects",
    "EndpointEntry",
    "Invocation",
    "Level",
    "Namespace",
    "Namespaces",
    "Requirements",
    "Resolution",
    "Result",
    "Source",
    "Verdict",
]


class Effects(StrEnum):
    """What an invocation does to the world."""

    READ = "read"
    WRITE = "write"
    FINANCIAL = "financial"
    PHYSICAL = "physical"


class Auth(StrEnum):
    """How a caller shows who it is."""

    NONE = "none"
    OAUTH2 = "oauth2"


class Level(StrEnum):
    """Whether a constraint of the sender is asked for."""

    NONE = "none"
    SUPPORTED = "supported"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """`policy` of an anchor document: what the authority demands of those who invoke it.

    A member that is missing or of the wrong type counts as the strict one, where there is one.
    """

    signed_results: bool = True
    mtls: bool = False
    dpop: Level = Level.NONE
    auth: Auth = Auth.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEntry:
    """One resource that an anchor document lists. `uri` is canonical."""

    uri: str
    title: str | None = None
    effects: Effects = Effects.READ
    scopes: tuple[str, ...] = ()
    idempotency: bool = False
    asynchronous: bool = False
    approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorDocument:
    """`/.well-known/aiip`, checked (3.2). `service` is an https base without a slash at its end."""

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
        """Whose promises these are: the authority's, or the anchor's where there is none (`ai:/path`)."""
        return self.anchor if self.authority == "_" else self.authority


class Verdict(StrEnum):
    """What became of a source's word."""

    WON = "won"
    CONFIRMS = "confirms"
    DROPPED = "dropped"
    CONTRADICTS = "contradicts"
    ABSENT = "absent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What one source of discovery said, and what became of it (3.3).

    `name` is one of anchor, registry, context, dns-srv, dns-txt, link, html; `rank` 3 to 0; `location` what
    was asked (a URL without query, a DNS name); `said` the values that it gave, canonical where it could be;
    `why` a sentence for people; `code` where it stopped or spoiled the discovery.
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
    """An ai URI, and all that is needed to invoke it and to verify what comes back.

    `uri` has no fragment. `connect` is where to open the connection instead of the service's own origin
    (a DNS SRV record), None for there; `fallbacks` are what to try after it, in this order. `entry` is the
    resource's row in the anchor document, if it has one.
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
        """The https origin that speaks for the authority."""
        return self.document.anchor


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """One label of a registry of ai namespaces: who speaks for it, and the thumbprints of its keys.

    `keys` empty leaves the choice of keys to the anchor.
    """

    label: str
    anchor: str
    keys: tuple[str, ...] = ()


class AllocatedNamespace(Protocol):
    """What a registry says of a label; `Namespace` is one."""

    @property
    def anchor(self) -> str:
        """The https origin that speaks for it."""
        ...

    @property
    def keys(self) -> Collection[str]:
        """The thumbprints of its keys; none leaves the choice to the anchor."""
        ...


class Namespaces(Protocol):
    """Resolves one-label authorities ("bank"). `onym.registry.signed_namespaces.SignedNamespaces` is one."""

    def find(self, label: str, at: float) -> AllocatedNamespace | None:
        """The namespace of that label, None for an unknown one. Raises DiscoveryError if it is not active."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What GET says of a resource (3.6). `input` and `output` are JSON Schemas."""

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
    """One request to a resource. `headers` are fields that the caller adds, `accept` what it takes."""

    uri: AIURI
    method: str = "POST"
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    accept: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A result that was verified before it was released. `token` is the receipt as it came, to be filed."""

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
        """The body read as JSON, which has one reading. Raises ProvenanceError where it is none."""
        from onym.common.strict_json import parse_json_value
        from onym.errors import ProvenanceError

        try:
            return parse_json_value(self.body)
        except ValueError:
            raise ProvenanceError(
                "the result is signed, and is no JSON", target=self.receipt.subject
            ) from None
