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
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from onym.common.text import parse_json_value
from onym.errors import ProvenanceError
from onym.net.messages import Headers, Origin
from onym.sign.keys import AuthorityKeys
from onym.sign.receipts import Receipt, content_digest, request_hash
from onym.uri.ai import AIURI

#: `aud` of a receipt for a caller with neither token nor origin
ANONYMOUS_AUDIENCE: Final = "anonymous"
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

    A member of the wrong type counts as its strictest value. `mtls` means that access tokens must be bound to
    the client certificate of the connection, `dpop` whether they may or must be bound to a DPoP key, and
    `request_binding` that every DPoP proof must cover its request (`rqh`).
    """

    signed_results: bool = True
    mtls: bool = False
    dpop: Level = Level.NONE
    auth: Auth = Auth.NONE
    request_binding: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEntry:
    """One resource in a discovery document. `uri` is canonical.

    `reversible` means that the author promises that `write` effects can be undone.
    """

    uri: str
    title: str | None = None
    effects: Effects = Effects.READ
    scopes: tuple[str, ...] = ()
    idempotency: bool = False
    asynchronous: bool = False
    approval: bool = False
    reversible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Approver:
    """An approver that an authority trusts, such as a gateway with sign-in (3.13).

    `issuer` is its https origin and `jwks` the https URL of its key set. `acr` are the accepted kinds of
    sign-in (RFC 9470); empty means any. With `pairwise`, it names persons by pseudonyms for this authority.
    """

    issuer: str
    jwks: str
    acr: tuple[str, ...] = ()
    pairwise: bool = True


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
    approvers: tuple[Approver, ...] = ()

    @property
    def identifier(self) -> str:
        """The identifier of the service as a resource (RFC 9728): `aud` of approvals."""
        return self.resource or self.service

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
    """The description of a resource (3.6). `input` and `output` are JSON Schemas.

    `reversible` means that the author promises that `write` effects can be undone.
    """

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
    reversible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One request to a resource. `headers` are additional header fields, `accept` is the Accept field.

    `approval` is the evidence that people approved this very request (3.13).
    """

    uri: AIURI
    method: str = "POST"
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    accept: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    idempotency_key: str | None = None
    approval: str | None = field(default=None, repr=False)

    def compute_request_hash(self, target: str | None = None) -> str:
        """Return `rqh`, the hash that binds receipts, proofs and approvals to this request (3.8).

        `target` is that of a part of a task; the default is the URI.
        """
        return request_hash(
            method=self.method,
            target=target or str(self.uri),
            digest=content_digest(self.body) if self.body else None,
            content_type=self.content_type,
            idempotency_key=self.idempotency_key,
        )


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


class TaskState(StrEnum):
    """The state of a long task (3.12). A task in one of `FINAL_STATES` does not change again."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"


FINAL_STATES: Final = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """The progress of a task: `done` of `total` steps (None if unknown), and a note for people."""

    done: float
    total: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """The status of a task, as its endpoint signs it.

    `target` is the canonical ai URI without its query, `request` the hash of the request that began the task
    (`rqh`). `created`, `updated` and `expires` are seconds since the epoch; `expires` is None until the task
    has ended. `poll_after` is in seconds. `inputs` is the JSON Schema of the input that the task waits for.
    `error` is the problem document of a task that did not complete. `seq` is the number of the last event.
    `canceling` is true after a request to cancel, until the task has ended.
    """

    id: str
    state: TaskState
    target: str
    request: str
    created: float
    updated: float
    expires: float | None = None
    poll_after: float = 1.0
    progress: TaskProgress | None = None
    inputs: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    seq: int = 0
    canceling: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self.state in FINAL_STATES


#: the parts of a task at the endpoint; "" is its status
TaskPart: TypeAlias = Literal["", "events", "result", "input"]


def format_task_target(task: str, part: TaskPart) -> str:
    """Return the target of a request to a part of a task, for the hash of the request (`rqh`, 3.8)."""
    return f"task:{task}/{part}" if part else f"task:{task}"


JSON: Final = "application/json"
#: the status of a task (3.12)
TASK: Final = "application/aiip-task+json"
#: the path of tasks at the origin of the service; the ID of a task follows
TASKS: Final = "/.well-known/aiip/tasks/"
#: a stream of events (WHATWG HTML 9.2)
EVENTS: Final = "text/event-stream"
#: the description of a resource (3.6)
DESCRIPTION: Final = "application/aiip+json"
#: RFC 9457 3
PROBLEM: Final = "application/problem+json"

_ENCODER: Final = msgspec.json.Encoder()


def encode_task_status(status: TaskStatus, location: str) -> bytes:
    """Encode the status of a task (3.12). `location` is the URL of the task."""
    members = {
        "id": status.id,
        "state": status.state.value,
        "target": status.target,
        "rqh": status.request,
        "created": round(status.created, 3),
        "updated": round(status.updated, 3),
        "expires": None if status.expires is None else round(status.expires, 3),
        "pollAfter": None if status.is_final else status.poll_after,
        "progress": status.progress,
        "inputs": status.inputs,
        "error": status.error,
        "seq": status.seq,
        "canceling": status.canceling or None,
        "location": location,
        "events": f"{location}/events",
        "result": f"{location}/result" if status.is_final else None,
        "input": f"{location}/input" if status.inputs is not None else None,
    }
    return _ENCODER.encode({name: value for name, value in members.items() if value is not None})


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
