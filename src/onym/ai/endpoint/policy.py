"""Cedar policies: which caller may invoke which resource, and which calls people must approve (3.13).

Without evidence of an approval the endpoint answers 403 `approval-required` with a signed challenge. With
evidence it makes the challenge again from the request as it is now. The evidence is spent in the transaction
that begins the call.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from onym._lazy import require_extra
from onym.ai.endpoint.context import Call, Caller
from onym.ai.endpoint.responses import Resource, Site
from onym.ai.endpoint.signing import ReceiptRequest
from onym.ai.oauth_metadata import parse_url
from onym.ai.records import Approver, Effects, is_json
from onym.common.text import encode_base64url, is_printable_text
from onym.errors import AIIPError, ConfigError, DeniedError, NetError, SignatureError, UsageError
from onym.net.config import NetConfig
from onym.net.limits import NetLimits
from onym.net.messages import HTTPRequest, Reply, Send
from onym.net.transport import AsyncTransport
from onym.sign import approval as approval_tokens
from onym.sign.keys import LEEWAY, MAX_AUTHORITY_KEY_SET, AuthorityKeys, Signer, read_authority_keys
from onym.sign.receipts import ApprovalReference

#: characters of all policies
MAX_POLICY: Final = 1024 * 1024
_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
#: effects that only a policy can permit
_DENIED_BY_DEFAULT: Final = frozenset({Effects.FINANCIAL, Effects.PHYSICAL})
_INTEGERS: Final = range(-(2**63), 2**63)
_BUILTIN: Final = (str, int, float, list, tuple, set, frozenset)


#: in place of the policies that decided, if some of them could not be evaluated
_BROKEN: Final = ""
_LONGEST_REASON: Final = 512
_REASON: Final = "The policy of the authority requires an approval of this call."


@dataclasses.dataclass(frozen=True, slots=True)
class PermitScope:
    """The actions and resources in the head of a permit; None means any."""

    actions: frozenset[str] | None = None
    resources: frozenset[tuple[str, str]] | None = None

    def covers(self, uri: str, authority: str, effects: Effects) -> bool:
        """Report whether the permit may match calls of this resource."""
        if self.actions is not None and effects.value not in self.actions:
            return False
        known = {("Resource", uri), ("Authority", authority)}
        return self.resources is None or not known.isdisjoint(self.resources)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalTerms:
    """The approval that a permit demands. `any_body` allows bodies of which nobody can see the members."""

    rule: approval_tokens.Rule
    reason: str = _REASON
    any_body: bool = False
    scope: PermitScope = PermitScope()


@dataclasses.dataclass(frozen=True, slots=True)
class Policies:
    """The parsed policies of one endpoint. `native` is None without policies.

    Without a policy, and for requests that no policy matches, `read` and `write` effects are allowed,
    `financial` and `physical` effects are not. A `forbid` takes precedence. A policy that cannot be evaluated
    for a request denies it: Cedar would skip the policy, and a skipped `forbid` would allow too much.

        principal   Client::"id" or, with a subject in the token, Subject::"sub" in Client::"id";
                    Anonymous::"origin" for a caller without a token (its origin is not verified)
        action      Action::"read", "write", "financial" or "physical": the resource's effects
        resource    Resource::"ai://factory.example/agent/x" in Authority::"factory.example"
        context     effects, scopes (of the caller), actors (the subjects that act for the principal, and
                    `actor`, the current one, if there is any), sender ("none", "bearer", "dpop" or "mtls"),
                    authority, parameters (of the query, as strings), input (the members of a JSON body, the
                    parameters of the query and the resource's defaults, with the resource's types; numbers
                    that are not 64-bit integers are strings, null is left out)

    A permit can demand that people approve the call first. Of several that match, the strictest rule applies:

        @approval("person")    a person; "other": not the one who asks; "two": two persons, not the one who
        asks @reason("...")         shown to the approver @approval_body("any")  also for a body that is not
        JSON, of which people see only type, size and digest
    """

    authority: str
    native: Any = None
    #: the annotated permits by the names that Cedar gives them
    approvals: Mapping[str, ApprovalTerms] = dataclasses.field(default_factory=dict)
    #: SHA-256 of the text in base64url: an approval is for this version
    digest: str = ""

    def may_need_approval(self, uri: str, effects: Effects) -> bool:
        """Report whether calls of this resource may need an approval, by the scopes of the permits."""
        authority = self.authority
        return any(terms.scope.covers(uri, authority, effects) for terms in self.approvals.values())

    @property
    def needs_input(self) -> bool:
        """True if there is a policy, which may use the input."""
        return self.native is not None

    def require_permission(self, call: Call, effects: Effects, body: Any = None) -> ApprovalTerms | None:
        """Raise DeniedError `aiip.policy-denied` unless the call is allowed. `body` is its parsed input.

        Returns the terms of the approval that the call needs, or None if it needs none.
        """
        if self.native is None:
            if effects in _DENIED_BY_DEFAULT:
                raise _make_denial(call, f"{effects.value} effects need a policy that permits them")
            return None
        allowed, matched = self._evaluate_request(call, effects, body)
        if not allowed and (matched or effects in _DENIED_BY_DEFAULT):
            raise _make_denial(call, "the endpoint's policy does not permit the request")
        terms = [self.approvals[name] for name in matched if name in self.approvals] if allowed else []
        strictest = max(terms, key=lambda term: approval_tokens.RULES.index(term.rule), default=None)
        if strictest is None or all(term.any_body for term in terms):
            return strictest
        return dataclasses.replace(strictest, any_body=False)

    def _evaluate_request(self, call: Call, effects: Effects, body: Any) -> tuple[bool, tuple[str, ...]]:
        """Return whether the request is allowed, and the policies that decided so."""
        import cedarpy  # late: optional dependency (extra ai), native code of 10 MB

        uri = {"type": "Resource", "id": str(call.uri.without_query)}
        authority = {"type": "Authority", "id": self.authority}
        principal, entities = _build_principal(call.caller)
        entities += [
            {"uid": uri, "attrs": {}, "parents": [authority]},
            {"uid": authority, "attrs": {}, "parents": []},
        ]
        request = {
            "principal": principal,
            "action": {"type": "Action", "id": effects.value},
            "resource": uri,
            "context": {
                "effects": effects.value,
                "scopes": sorted(call.caller.scopes),
                "sender": _get_sender(call.caller),
                "actors": [actor.subject for actor in call.caller.actors],
                **({"actor": call.caller.actors[0].subject} if call.caller.actors else {}),
                "authority": self.authority,
                "parameters": dict(call.parameters),
                "input": given if isinstance(given := _to_cedar_value(body), dict) else {},
            },
        }
        result = cedarpy.is_authorized(request, self.native, entities)
        broken = bool(result.diagnostics.errors) or result.decision is cedarpy.Decision.NoDecision
        return result.allowed and not broken, (_BROKEN,) if broken else tuple(result.diagnostics.reasons)


def load_policies(authority: str, source: str | Path | None) -> Policies:
    """Parse the policies in this text or file. Raises ConfigError if they cannot be read or parsed."""
    if source is None:
        return Policies(authority)
    if isinstance(source, Path):
        try:
            with source.open(encoding="utf-8") as file:
                source = file.read(MAX_POLICY + 1)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the policy file {source} cannot be read: {type(error).__name__}", code="config.bad-policy"
            ) from None
    if len(source) > MAX_POLICY:
        raise ConfigError(f"the policies are longer than {MAX_POLICY} characters", code="config.bad-policy")
    require_extra("cedarpy", "ai")
    import cedarpy  # late: see above

    try:
        native = cedarpy.PolicySet.from_str(source)
    except ValueError as error:
        raise ConfigError(
            f"the Cedar policies cannot be parsed: {error}",
            code="config.bad-policy",
            hint="The Cedar language is described at https://docs.cedarpolicy.com.",
        ) from None
    if native.templates():
        # Onym does not link templates, so a `forbid` in one would have no effect
        raise ConfigError(
            "the Cedar policies contain templates, which Onym does not support",
            code="config.bad-policy",
            hint="Write a principal and a resource instead of ?principal and ?resource.",
        )
    digest = encode_base64url(sha256(source.encode("utf-8", "surrogatepass")).digest())
    rows = json.loads(cedarpy.policies_to_json_str(source))["staticPolicies"]
    annotated = {
        name: row for name, row in rows.items() if not _ANNOTATIONS.isdisjoint(_get_annotations(row))
    }
    return Policies(authority, native, {name: _read_terms(row) for name, row in annotated.items()}, digest)


_ANNOTATIONS: Final = frozenset({"approval", "approval_body"})


def _get_annotations(row: Mapping[str, Any]) -> dict[str, Any]:
    return row.get("annotations") or {}


def _read_terms(row: Mapping[str, Any]) -> ApprovalTerms:
    """Return the terms in the annotations of a policy. Raises ConfigError for unknown ones."""
    annotations = _get_annotations(row)
    rule, body = annotations.get("approval"), annotations.get("approval_body", "json")
    if row["effect"] != "permit":
        raise _make_annotation_error("@approval is for a permit, not for a forbid")
    if rule not in list(approval_tokens.Rule):
        raise _make_annotation_error(f"@approval must be one of {', '.join(approval_tokens.Rule)}")
    if body not in {"json", "any"}:
        raise _make_annotation_error("@approval_body must be json or any")
    reason = annotations.get("reason") or _REASON
    if not is_printable_text(reason, _LONGEST_REASON):
        raise _make_annotation_error(f"@reason must have at most {_LONGEST_REASON} printable characters")
    scope = PermitScope(_read_actions(row["action"]), _read_resources(row["resource"]))
    return ApprovalTerms(rule=approval_tokens.Rule(rule), reason=reason, any_body=body == "any", scope=scope)


def _read_actions(action: Mapping[str, Any]) -> frozenset[str] | None:
    entities = action.get("entities", [action["entity"]] if "entity" in action else None)
    return None if entities is None else frozenset(entity["id"] for entity in entities)


def _read_resources(resource: Mapping[str, Any]) -> frozenset[tuple[str, str]] | None:
    if resource["op"] not in {"==", "in"}:
        return None
    return frozenset({(resource["entity"]["type"], resource["entity"]["id"])})


def _make_annotation_error(message: str) -> ConfigError:
    hint = 'Write, for example: @approval("other") permit(principal, action, resource);'
    return ConfigError(f"a Cedar policy is invalid: {message}", code="config.bad-policy", hint=hint)


def _get_sender(caller: Caller) -> str:
    """Return how the caller proved that its token is its own."""
    if caller.certificate is not None:
        return "mtls"
    if caller.key is not None:
        return "dpop"
    return "none" if caller.token_hash is None else "bearer"


def _build_principal(caller: Caller) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the principal and its entities. Only an access token makes a caller a Client."""
    if caller.client_id is None:
        anonymous = {"type": "Anonymous", "id": caller.audience}
        return anonymous, [{"uid": anonymous, "attrs": {}, "parents": []}]
    client = {"type": "Client", "id": caller.client_id}
    entities: list[dict[str, Any]] = [{"uid": client, "attrs": {}, "parents": []}]
    if caller.subject is None:
        return client, entities
    subject = {"type": "Subject", "id": caller.subject}
    return subject, [*entities, {"uid": subject, "attrs": {}, "parents": [client]}]


def _to_cedar_value(value: Any) -> Any:
    """Convert a value to Cedar's types: no floats, no null, and no names that Cedar reserves."""
    value = _get_members(value)
    if isinstance(value, Mapping):
        return {
            name: _to_cedar_value(member)
            for name, member in value.items()
            if member is not None and member is not UNSET and not name.startswith("__")
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_cedar_value(item) for item in value if item is not None]
    if isinstance(value, bool) or type(value) is str:
        return value
    return int(value) if isinstance(value, int) and value in _INTEGERS else str(value)


def _get_members(value: Any) -> Any:
    """Return the members of a typed value by their JSON names, including defaults."""
    fields = getattr(type(value), "__pydantic_fields__", None)
    if fields is not None:
        # not `model_dump`, because a model may omit or change members that the function gets
        if getattr(type(value), "__pydantic_root_model__", False):
            return _get_members(value.root)
        more = getattr(value, "__pydantic_extra__", None) or {}
        aliases = {name: field.validation_alias for name, field in fields.items()}
        own = {
            alias if isinstance(alias, str) else fields[name].alias or name: getattr(value, name)
            for name, alias in aliases.items()
        }
        return own | more
    if isinstance(value, msgspec.Struct):
        # not `to_builtins`, because a Struct may omit its defaults
        kind = type(value)
        tag = {kind.__struct_config__.tag_field: kind.__struct_config__.tag}
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        members = {encoded: getattr(value, name) for encoded, name in names}
        return {**tag, **members} if None not in tag else members
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {member.name: getattr(value, member.name) for member in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): member for name, member in value.items()}
    if isinstance(value, _BUILTIN):
        return value
    return msgspec.to_builtins(value, enc_hook=str)


def _make_denial(call: Call, message: str) -> DeniedError:
    return DeniedError(message, target=str(call.uri.without_query), clause=_CLAUSE)


#: the header field with the evidence, and that of a caller who can pass a challenge on
APPROVAL_FIELD: Final = "AIIP-Approval"
CAPABILITY_FIELD: Final = "Accept-Txn-Challenge"
_FRESH: Final = frozenset({Effects.FINANCIAL, Effects.PHYSICAL})
#: a true item of RFC 9651 3.3.6, with or without parameters
_TRUE: Final = re.compile(r"\?1[ \t]*(?:;.*)?")
_AGAIN: Final = "Send the request without AIIP-Approval to get a new challenge."
#: bytes and seconds of a request for keys; seconds for which keys are used, and between two requests
_LIMITS: Final = NetLimits(body=MAX_AUTHORITY_KEY_SET, error_body=16 * 1024, connect=5.0)
_TIMEOUT: Final = 10.0
_KEY_SECONDS: Final = 60.0
_RETRY: Final = 5.0


class ApproverKeys:
    """The keys of one approver, from the URL in the endpoint's configuration.

    Raises AIIPError `aiip.unavailable` if they cannot be fetched. Expired keys are never used.
    """

    def __init__(self, approver: Approver, transport: AsyncTransport, clock: Callable[[], float]) -> None:
        self._approver = approver
        self._transport = transport
        self._clock = clock
        self._lock = asyncio.Lock()
        self._keys: AuthorityKeys | None = None
        self._fetched = self._failed = float("-inf")

    async def get(self) -> AuthorityKeys:
        """Return the keys. They are fetched once a minute, so that a revocation is noticed."""
        async with self._lock:
            now = self._clock()
            if self._keys is not None and now - self._fetched < _KEY_SECONDS:
                return self._keys
            if now - self._failed < _RETRY:
                raise self._make_unavailable_error("they could not be fetched a few seconds ago")
            try:
                self._keys = await self._fetch()
            except (NetError, SignatureError) as error:
                self._failed = self._clock()
                raise self._make_unavailable_error("they cannot be fetched, or are invalid") from error
            self._fetched = now
            return self._keys

    async def _fetch(self) -> AuthorityKeys:
        origin, target = parse_url(self._approver.jwks)
        fields = (("Accept", "application/jwk-set+json, application/json"),)
        request = HTTPRequest(method="GET", origin=origin, target=target, headers=fields)
        reply: Reply = await self._transport.send(Send(request, timeout=_TIMEOUT))
        if reply.status != 200:
            raise SignatureError(f"the key set was answered with status {reply.status}", code="sign.bad-key")
        return read_authority_keys(reply.body)

    def _make_unavailable_error(self, why: str) -> AIIPError:
        return AIIPError(
            f"the keys of the approver {self._approver.issuer} cannot be used: {why}",
            code="aiip.unavailable",
            clause=_CLAUSE,
            retryable=True,
            hint="Nothing was done. Send the request again with the same idempotency key and approval.",
        )


@dataclass(frozen=True, slots=True)
class CheckedApproval:
    """A valid approval: the transaction that the call must spend, and the reference for its receipt."""

    transaction: str
    reference: ApprovalReference


class ApprovalChecker:
    """Challenges calls and checks the evidence of the approvers that the authority lists.

    `network` decides how the key sets of the approvers are reached. Raises UsageError for an approver whose
    URLs are not https, and for more than eight of them.
    """

    def __init__(
        self,
        approvers: Iterable[Approver],
        network: NetConfig | None,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.approvers = tuple(approvers)
        issuers = [approver.issuer for approver in self.approvers]
        if len(issuers) > approval_tokens.MAX_APPROVERS or len(set(issuers)) < len(issuers):
            raise UsageError(
                f"an endpoint has at most {approval_tokens.MAX_APPROVERS} approvers with different issuers"
            )
        for url in (url for approver in self.approvers for url in (approver.issuer, approver.jwks)):
            if not url.startswith("https://"):
                raise UsageError(f"{url!r} is not an https URL", hint="Approvers are reached over TLS only.")
        self._clock = clock
        self._transport = AsyncTransport(replace(network or NetConfig(), limits=_LIMITS))
        self._keys: Mapping[str, ApproverKeys] = {
            approver.issuer: ApproverKeys(approver, self._transport, monotonic) for approver in self.approvers
        }

    async def close(self) -> None:
        """Close the connections to the approvers."""
        await self._transport.close()

    async def require_approval(
        self,
        request: ReceiptRequest,
        body: bytes,
        resource: Resource,
        site: Site,
        terms: ApprovalTerms,
        policy: str,
        signer: Signer,
    ) -> CheckedApproval:
        """Return the approval of this request, which is not spent yet.

        `policy` is the digest of the policy that demands it. Raises DeniedError `aiip.approval-required` with
        a challenge if the request has no evidence, `aiip.approval-mismatch` if the evidence is not for this
        request, and AIIPError for a request that cannot be approved.
        """
        _require_approvable(request, body, terms)
        evidence = request.head.headers.get(APPROVAL_FIELD)
        if evidence is None:
            transaction = approval_tokens.make_transaction(self._clock())
            challenge = self._make_challenge(request, resource, site, terms, policy, transaction)
            raise _make_challenge_error(request, approval_tokens.sign_challenge(challenge, signer))
        try:
            approval, approver = await self._verify(evidence, site)
            challenge = self._make_challenge(request, resource, site, terms, policy, approval.transaction)
        except SignatureError as error:
            raise _make_mismatch(request, f"the approval is not valid: {error.message}") from error
        why = _find_mismatch(approval, approver, challenge)
        if why is not None:
            raise _make_mismatch(request, why)
        reference = ApprovalReference(
            hash=approval_tokens.hash_approval(evidence), issuer=approver.issuer, by=approval.by
        )
        return CheckedApproval(approval.transaction, reference)

    async def _verify(self, evidence: str, site: Site) -> tuple[approval_tokens.Approval, Approver]:
        """Verify the signature, audience and times. Raises SignatureError."""
        issuer = approval_tokens.get_approver(evidence)
        approver = next((known for known in self.approvers if known.issuer == issuer), None)
        if approver is None:
            raise SignatureError("the authority does not list its approver", code="sign.bad-issuer")
        keys = await self._keys[issuer].get()
        approval = approval_tokens.verify_approval(
            evidence, keys, issuer=issuer, audience=site.identifier, at=self._clock()
        )
        return approval, approver

    def _make_challenge(
        self,
        request: ReceiptRequest,
        resource: Resource,
        site: Site,
        terms: ApprovalTerms,
        policy: str,
        transaction: str,
    ) -> approval_tokens.Challenge:
        """Return the challenge of this request with this `txn`. Raises SignatureError for a foreign `txn`."""
        issued, caller = approval_tokens.get_transaction_time(transaction), request.caller
        call = approval_tokens.CallDetails(
            uri=str(request.uri),
            method=request.head.method,
            request=request.request_hash,
            effects=resource.effects.value,
            rule=terms.rule,
            description=encode_base64url(sha256(resource.encode_description()).digest()),
            policy=policy,
            digest=request.digest,
            content_type=request.head.content_type,
        )
        return approval_tokens.Challenge(
            issuer=site.identifier,
            approvers=tuple(approver.issuer for approver in self.approvers),
            issued=issued,
            expires=issued + approval_tokens.CHALLENGE_SECONDS,
            transaction=transaction,
            call=call,
            reason=terms.reason,
            requester=caller.subject or caller.audience,
            client=caller.client_id,
            key=caller.key,
        )


def _require_approvable(request: ReceiptRequest, body: bytes, terms: ApprovalTerms) -> None:
    """Raise AIIPError for a request whose approval would not bind it, or that people cannot be shown."""
    head, target = request.head, request.subject
    if head.idempotency_key is None:
        raise AIIPError(
            "a request that needs an approval needs an idempotency key",
            code="aiip.idempotency-required",
            target=target,
            clause=_CLAUSE,
            hint='Send a new key with every request: Idempotency-Key: "8e03978e-40d5".',
        )
    if len(body) > approval_tokens.MAX_SHOWN:
        message = f"a body that people must approve has at most {approval_tokens.MAX_SHOWN} bytes"
        raise AIIPError(message, code="aiip.too-large", target=target, clause=_CLAUSE)
    if body and not terms.any_body and not is_json(head.content_type):
        raise AIIPError(
            "the body is not JSON, so that people could not see what they approve",
            code="aiip.unsupported-media-type",
            target=target,
            clause=_CLAUSE,
            hint='Send JSON. The authority can allow other bodies with @approval_body("any").',
        )


def _find_mismatch(
    approval: approval_tokens.Approval, approver: Approver, challenge: approval_tokens.Challenge
) -> str | None:
    """Return why the approval is not for the challenge, or None if it is for it."""
    if approval.request != challenge.call.request:
        return "the approval is for another request"
    if approval.key != challenge.key:
        return "the approval is for another key"
    if approval.challenge != approval_tokens.hash_challenge(challenge):
        return "the caller, the policy or the description has changed since the approval was asked for"
    if approval.issued > challenge.expires:
        return "the challenge had expired when the approval was given"
    if len(approval.by) != challenge.call.rule.persons:
        return f"the rule {challenge.call.rule} needs {challenge.call.rule.persons} person(s)"
    if challenge.call.rule is not approval_tokens.Rule.PERSON and challenge.requester in approval.by:
        return "the person who asks cannot approve the request"
    if approver.acr and approval.acr not in approver.acr:
        return "the approver's sign-in is not of an accepted kind"
    fresh = approval.issued - approval.authenticated <= approval_tokens.SIGN_IN_SECONDS + LEEWAY
    if Effects(challenge.call.effects) in _FRESH and not fresh:
        most = f"{approval_tokens.SIGN_IN_SECONDS:.0f} seconds"
        return f"the approver's sign-in was more than {most} before the approval"
    return None


def _make_mismatch(request: ReceiptRequest, message: str) -> DeniedError:
    return DeniedError(
        message, code="aiip.approval-mismatch", target=request.subject, clause=_CLAUSE, hint=_AGAIN
    )


def _make_challenge_error(request: ReceiptRequest, challenge: str) -> DeniedError:
    error = DeniedError(
        "the request needs an approval",
        code="aiip.approval-required",
        target=request.subject,
        clause=_CLAUSE,
        hint=f"Have it approved, then send the same request with the evidence in {APPROVAL_FIELD}.",
    )
    error.transaction_challenge = challenge
    given = request.head.headers.get_all(CAPABILITY_FIELD)
    if len(given) == 1 and _TRUE.fullmatch(given[0].strip()):
        error.challenge = (
            'Bearer error="transaction_authorization_required", '
            f'error_description="the request needs an approval", transaction_challenge="{challenge}"'
        )
    return error
