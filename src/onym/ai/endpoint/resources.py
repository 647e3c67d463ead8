"""The resources of an endpoint and the documents that its anchor publishes (3.2, 3.6). Pure."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

import msgspec

from onym.ai.discovery_document import (
    MAX_OCTETS,
    WELL_KNOWN,
    document_to_members,
    encode_discovery_document,
    parse_discovery_document,
)
from onym.ai.endpoint.context import Answer, ResourceHandler
from onym.ai.endpoint.responses import TYPES
from onym.ai.endpoint.signing import ALGORITHMS, METADATA_LIFE, ReceiptSigner
from onym.ai.problems import CODES
from onym.ai.records import JSON, AnchorDocument, Approver, Effects, EndpointEntry, Requirements
from onym.errors import OnymError, UsageError
from onym.uri.ai import AIURI

#: paths at the anchor
JWKS: Final = "/.well-known/aiip.jwks.json"
PREFIX: Final = "/.well-known/aiip/v1"
_PROTECTED: Final = "/.well-known/oauth-protected-resource"
_KEYS: Final = "application/jwk-set+json"
#: seconds for which clients may cache a document
_ANCHOR_AGE: Final = 300
_KEYS_AGE: Final = 3600
#: bytes of a token without the signed members: its other claims, its header, a signature of RSA 8192
_TOKEN_ROOM: Final = 2_048
#: effects that need idempotency keys (3.11)
KEYED_EFFECTS: Final = frozenset({Effects.WRITE, Effects.FINANCIAL, Effects.PHYSICAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource. `uri` is canonical, without a query. `reversible` is about `write` effects.

    `approval` tells that its calls may need an approval (3.13). Callers must have signed in with one of
    `acr_values`, and at most `max_age` seconds ago (RFC 9470); empty and None demand nothing.
    """

    uri: str
    handler: ResourceHandler
    title: str | None = None
    effects: Effects = Effects.READ
    scopes: tuple[str, ...] = ()
    idempotency: bool = False
    accepts: str = JSON
    reversible: bool = False
    #: may a call run as a long task (3.12)?
    task: bool = False
    approval: bool = False
    acr_values: tuple[str, ...] = ()
    max_age: int | None = None

    @property
    def entry(self) -> EndpointEntry:
        """Its entry in the discovery document."""
        return EndpointEntry(
            uri=self.uri,
            title=self.title,
            effects=self.effects,
            scopes=self.scopes,
            idempotency=self.idempotency,
            reversible=self.reversible,
            asynchronous=self.task,
            approval=self.approval,
        )

    def encode_description(self) -> bytes:
        """Return the resource's description (3.6)."""
        known = dict(self.handler.describe())
        title = known.pop("title", None)
        members = known | {
            "uri": self.uri,
            "title": self.title or title,
            "methods": ["GET", "POST"],
            "effects": self.effects.value,
            "scopes": list(self.scopes),
            "idempotency": self.idempotency,
            "async": self.task,
            "approval": self.approval,
            "reversible": self.reversible or None,
        }
        return msgspec.json.encode({name: value for name, value in members.items() if value is not None})


def build_resource_uri(authority: str, path: object) -> AIURI:
    """Return the URI of a path of this authority.

    Raises UsageError for a path that is not canonical or has a query, and for other types: a decorator
    without parentheses gets the function.
    """
    if not isinstance(path, str):
        raise UsageError("a resource needs a path", hint='Write @app.resource("/tool/...").')
    if not path.startswith("/"):
        # the URI would continue the authority's name
        raise UsageError(f"the path {path!r} does not begin with a slash", hint=f"Write /{path}.")
    uri = AIURI.parse(f"ai://{authority}{path}")
    if uri.query is not None or uri.fragment is not None or uri.canonical() != str(uri):
        hint = f"Write {str(uri.without_query).removeprefix(f'ai://{authority}')}."
        raise UsageError(f"the path {path!r} is not in canonical form, or has a query", hint=hint)
    return uri


@dataclass(slots=True, kw_only=True)
class Site:
    """The documents of one anchor; `protected` is the RFC 9728 metadata if callers need tokens.

    `requirements` are those for callers.

    With `signed`, the discovery document has `signed_metadata`.
    """

    anchor: str
    authority: str
    protected: Mapping[str, Any] | None
    origins: tuple[str, ...]
    pin_max_age: int
    requirements: Requirements
    keys_age: int = _KEYS_AGE
    signed: bool = False
    approvers: tuple[Approver, ...] = ()
    resources: dict[str, Resource] = field(default_factory=dict)
    _written: dict[tuple[str, ...], bytes] = field(default_factory=dict, init=False)
    #: the key ID and the content of the last signed document, when it was signed, and its bytes
    _signed: tuple[tuple[str | None, bytes], float, bytes] | None = field(default=None, init=False)

    @property
    def identifier(self) -> str:
        """The identifier of the service as a resource (RFC 9728)."""
        return str((self.protected or {}).get("resource") or self.anchor + PREFIX)

    def has_target(self, target: str) -> bool:
        """Report whether a URI belongs to this authority, since endpoints of others may share a store."""
        return target.startswith(f"ai://{self.authority}/")

    def add(self, resource: Resource) -> None:
        """Add a resource.

        Raises UsageError for a URI that exists and if the discovery document becomes too large.
        """
        if resource.uri in self.resources:
            raise UsageError(f"the resource {resource.uri} exists already")
        self.resources[resource.uri] = resource
        self._written.clear()
        try:
            # clients must be able to parse what is published
            parse_discovery_document(self._encode_largest(), anchor=self.anchor, authority=self.authority)
        except OnymError as error:
            del self.resources[resource.uri]
            self._written.clear()
            raise UsageError(f"the discovery document cannot list {resource.uri}: {error.message}") from error

    def encode_document(self, algorithms: tuple[str, ...] = ALGORITHMS) -> bytes:
        """Return the discovery document. `algorithms` are those of receipts."""
        written = self._written.get(algorithms)
        if written is None:
            written = self._written[algorithms] = encode_discovery_document(self._build_document(algorithms))
        return written

    def _encode_largest(self) -> bytes:
        """Return the document with room for the largest signature."""
        plain = self.encode_document()
        if not self.signed:
            return plain
        # base64url of the same members, the token's own claims and the longest signature
        room = min((len(plain) + _TOKEN_ROOM) * 4 // 3, MAX_OCTETS)
        return encode_discovery_document(self._build_document(ALGORITHMS), "x" * room)

    def encode_published(self, keys: ReceiptSigner) -> bytes:
        """Return the discovery document as it is served.

        Raises AIIPError if it must be signed and cannot be.
        """
        plain = self.encode_document(algorithms := keys.list_algorithms())
        if not self.signed:
            return plain
        key, now = (keys.get_signer().kid, plain), keys.clock()
        # a change, or half its life, needs a new signature
        if (
            self._signed is not None
            and self._signed[0] == key
            and 0 <= now - self._signed[1] < METADATA_LIFE / 2
        ):
            return self._signed[2]
        document = self._build_document(algorithms)
        token = keys.sign_document_members(document_to_members(document))
        octets = encode_discovery_document(document, token)
        self._signed = (key, now, octets)
        return octets

    def _build_document(self, algorithms: tuple[str, ...]) -> AnchorDocument:
        rows = tuple(resource.entry for resource in self.resources.values())
        protected = self.protected or {}
        return AnchorDocument(
            anchor=self.anchor,
            authority=self.authority,
            service=self.anchor + PREFIX,
            jwks=self.anchor + JWKS,
            endpoints=rows,
            scopes=tuple(sorted({scope for row in rows for scope in row.scopes})),
            requirements=self.requirements,
            authorization_servers=tuple(protected.get("authorization_servers", ())),
            resource=protected.get("resource"),
            algorithms=algorithms,
            origins=self.origins,
            pin_max_age=self.pin_max_age,
            approvers=self.approvers,
        )

    def find_document(self, path: str, query: str, keys: ReceiptSigner) -> Answer | None:
        """Return the document at this path, or None. `keys` publishes the key sets."""
        if path == JWKS and query in {"", "history"}:
            return _make_public_answer(keys.encode_keys("history" if query else "jwks"), _KEYS, self.keys_age)
        if query:
            return None
        if path == WELL_KNOWN:
            return _make_public_answer(self.encode_published(keys), JSON, _ANCHOR_AGE)
        if self.protected is not None and path == self._get_metadata_path():
            return _make_public_answer(msgspec.json.encode(self.protected), JSON, _ANCHOR_AGE)
        row = CODES.get(path.removeprefix(TYPES)) if path.startswith(TYPES) else None
        if row is None:
            return None
        text = f"{row.name}: {row.title}\n".encode()
        return _make_public_answer(text, "text/plain; charset=utf-8", _ANCHOR_AGE)

    def _get_metadata_path(self) -> str:
        # RFC 9728 3.1: the well-known part comes before the resource's path
        path = str((self.protected or {}).get("resource", "")).removeprefix(self.anchor)
        return _PROTECTED + ("" if path == "/" else path)


def apply_if_none_match(answer: Answer, conditions: Iterable[str]) -> Answer:
    """Return the document, or 304 if the caller has it by the fields If-None-Match (RFC 9110 13.1.2)."""
    tag = next((value for name, value in answer.headers if name == "ETag"), None)
    known = {item.strip().removeprefix("W/") for value in conditions for item in value.split(",")}
    if tag is None or known.isdisjoint({tag, "*"}):
        return answer
    return replace(answer, status=304, content_type=None, body=b"")


def _make_public_answer(body: bytes, content_type: str, age: int) -> Answer:
    tag = urlsafe_b64encode(sha256(body).digest()[:18]).decode("ascii")
    headers = (("Cache-Control", f"public, max-age={age}"), ("ETag", f'"{tag}"'))
    return Answer(content_type=content_type, body=body, headers=headers)
