"""Approvals at a gateway, for programs: the documents of its `/approvals`, and their client (3.13)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from onym.ai.credentials import Credential
from onym.ai.exchange import DPoPNonces, find_challenge, wants_dpop_nonce
from onym.ai.gateway.review import Review
from onym.ai.messages import decode_problem
from onym.ai.oauth_metadata import parse_url
from onym.ai.settings import ResolverSettings
from onym.errors import AIIPError, CredentialError
from onym.net.messages import Flow, HTTPRequest, Reply, Send
from onym.sign.approval import MAX_APPROVAL
from onym.sign.dpop import sign_dpop_proof
from onym.uri.secret import Secret

T = TypeVar("T")

#: the scope of a token with which a program decides for its person
APPROVE_SCOPE: Final = "approve"
_JSON: Final = "application/json"
#: bytes of a response: 200 rows, or a review with its longest values
_MAX_RESPONSE: Final = 2 * 1024 * 1024
_ID: Final = re.compile(r"[A-Za-z0-9_-]{24}")
_EVIDENCE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
#: a value of `acr_values` that a printed command may contain
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
#: codes of errors that another sign-in removes
_SIGN_IN: Final = frozenset(
    {
        "aiip.authentication-required",
        "aiip.insufficient-scope",
        "aiip.sender-constraint",
        "aiip.sign-in-required",
        "aiip.step-up-required",
    }
)


class ApprovalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that waits for an approval, as `onym ai invoke --save` writes it."""

    transaction_challenge: str
    uri: str
    idempotency_key: str
    body_base64: str = ""
    content_type: str | None = None
    client: str = ""


class DecisionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a program sends to decide. `shown` is the hash of the review that its person has seen."""

    decision: Literal["approve", "deny", "withdraw"]
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRow:
    """A call in the list. Times are text in UTC; `own` calls are those of the person who gets the list."""

    id: str
    target: str
    effects: str
    requester: str
    created: str
    expires: str
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalListView:
    """The calls that wait, and that this person may see."""

    rows: tuple[ApprovalRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalView:
    """One call. `shown` is the hash of the review, which a decision repeats. Times are text in UTC.

    `seconds` are left until the call ends without a decision, or until its evidence ends. `missing` persons
    must still approve. `idempotency_key` is only for the person who asked.
    """

    id: str
    state: str
    rule: str
    target: str
    review: Review
    shown: str
    created: str
    expires: str
    seconds: int
    missing: int
    own: bool
    may_decide: bool
    has_evidence: bool
    idempotency_key: str | None


class GatewayCredentials(Protocol):
    """Where a program's token for a gateway comes from, such as `onym.ai.credentials.StoredCredentials`."""

    def obtain_token(self, name: str) -> Flow[Credential | None]:
        """Return the token for the gateway with this origin, None without one."""
        ...


@dataclass(frozen=True, slots=True)
class OneGatewayToken:
    """One token for one gateway, which is not kept: that of a sign-in for one decision."""

    gateway: str
    credential: Credential

    def obtain_token(self, name: str) -> Flow[Credential | None]:
        """Return the token for its own gateway."""
        yield from ()
        return self.credential if name == self.gateway else None


@dataclass(frozen=True, slots=True)
class ApprovalClient:
    """The approvals of one gateway (`gateway` is its origin), with the person's sign-in there.

    Its methods are flows. They raise CredentialError without a sign-in, InvocationError for an error of the
    gateway, AuthorizationError if the sign-in has ended, and NetError.

        client = ApprovalClient("https://gateway.example", StoredCredentials(settings=settings), settings)
        waiting = transport.run(client.list_waiting())

    A program that has got a challenge brings the call, looks again until people have decided, and fetches the
    evidence. With the scope `approve` it also shows its person the calls of others, and sends their decision.
    """

    gateway: str
    credentials: GatewayCredentials
    settings: ResolverSettings
    nonces: DPoPNonces = field(default_factory=DPoPNonces, repr=False)

    def list_waiting(self) -> Flow[tuple[ApprovalRow, ...]]:
        """Return the calls that wait and that the person may see, the oldest first."""
        reply = yield from self._send("GET", "/approvals")
        return self._decode(reply, ApprovalListView).rows

    def get(self, approval: str) -> Flow[ApprovalView]:
        """Return a call with everything that a person is shown of it."""
        reply = yield from self._send("GET", self._get_path(approval))
        return self._decode(reply, ApprovalView)

    def ask(self, request: bytes) -> Flow[ApprovalView]:
        """Bring a call that an endpoint wants approved: an `ApprovalRequest` as JSON."""
        reply = yield from self._send("POST", "/approvals", request)
        return self._decode(reply, ApprovalView)

    def decide(
        self, approval: str, decision: Literal["approve", "deny", "withdraw"], *, shown: str = ""
    ) -> Flow[ApprovalView]:
        """Decide about a call. `shown` is that of the view that the person has seen."""
        body = msgspec.json.encode(DecisionRequest(decision, shown))
        reply = yield from self._send("POST", self._get_path(approval), body)
        return self._decode(reply, ApprovalView)

    def fetch_evidence(self, approval: str) -> Flow[str]:
        """Return the evidence of an approved call that this program has brought."""
        reply = yield from self._send("GET", f"{self._get_path(approval)}/approval.jwt")
        evidence = reply.body.decode("ascii", "replace")
        if len(evidence) > MAX_APPROVAL or not _EVIDENCE.fullmatch(evidence):
            raise self._make_response_error("the evidence is not a token")
        return evidence

    def _get_path(self, approval: str) -> str:
        if not _ID.fullmatch(approval):
            raise AIIPError(
                f"{approval[:40]!r} is not the ID of an approval",
                code="aiip.task-not-found",
                hint="List the calls that wait: onym ai approve list",
            )
        return f"/approvals/{approval}"

    def _send(self, method: str, path: str, body: bytes = b"") -> Flow[Reply]:
        """Send a request with the token and a new proof; once more if the gateway asks for a nonce."""
        origin, _ = parse_url(self.gateway)
        credential = yield from self.credentials.obtain_token(self.gateway)
        if credential is None:
            raise CredentialError(
                f"there is no sign-in for {self.gateway}",
                code="credential.missing",
                hint=f"Sign in: onym ai login {self.gateway} --approve",
            )
        for again in (False, True):
            request = HTTPRequest(
                method=method,
                origin=origin,
                target=path,
                headers=self._build_headers(credential, method, path, body),
                body=body,
                credential=f"{self.gateway} {credential.client_id}",
            )
            reply: Reply = yield Send(request, self.settings.timeout, limit=_MAX_RESPONSE)
            renewed = self.nonces.update(origin, reply.headers)
            if again or not renewed or not wants_dpop_nonce(reply):
                break
        if not 200 <= reply.status < 300:
            raise self._make_error(reply, path)
        return reply

    def _build_headers(
        self, credential: Credential, method: str, path: str, body: bytes
    ) -> tuple[tuple[str, str | Secret], ...]:
        token, key = credential.token, credential.dpop_key
        headers: list[tuple[str, str | Secret]] = [
            ("Accept", _JSON),
            ("Accept-Encoding", "identity"),
            ("Authorization", Secret(f"{'Bearer' if key is None else 'DPoP'} {token.reveal()}")),
        ]
        if body:
            headers.append(("Content-Type", _JSON))
        if key is not None:
            proof = sign_dpop_proof(
                key,
                method=method,
                url=self.gateway + path,
                at=self.settings.clock(),
                access_token=token.reveal(),
                nonce=self.nonces.get(parse_url(self.gateway)[0]),
            )
            headers.append(("DPoP", Secret(proof)))
        return tuple(headers)

    def _make_error(self, reply: Reply, path: str) -> AIIPError:
        content_type = reply.headers.get("content-type")
        error = decode_problem(reply.status, content_type, reply.body, self.gateway + path, signed=True)
        if error.problem and isinstance(error.problem.get("hint"), str):
            error.hint = error.problem["hint"][:300]
        if error.code == "aiip.task-not-found":
            error.hint = (
                "List the calls that wait: onym ai approve list. "
                f"For the calls of others, sign in with: onym ai login {self.gateway} --approve"
            )
        if error.code in _SIGN_IN:
            challenge = find_challenge(reply.headers)
            kinds = "" if challenge is None else challenge.parameters.get("acr_values", "")
            flags = "".join(f" --acr {kind}" for kind in kinds.split() if _PLAIN.fullmatch(kind))
            error.hint = f"Sign in again: onym ai login {self.gateway} --approve{flags}"
        return error

    def _decode(self, reply: Reply, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._make_response_error("the response is not what this version expects") from None

    def _make_response_error(self, why: str) -> AIIPError:
        return AIIPError(f"{self.gateway} cannot be used: {why}", code="aiip.invocation-failed")
