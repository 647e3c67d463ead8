"""The approvals of a gateway: calls that wait for people, their decisions, and the evidence (3.13)."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec

from onym.ai.gateway.review import CallToReview, Review, build_review
from onym.ai.records import Effects
from onym.common.text import encode_base64url
from onym.errors import AIIPError, DeniedError, SignatureError, StoreError
from onym.sign.approval import (
    APPROVAL_SECONDS,
    MAX_SHOWN,
    SIGN_IN_SECONDS,
    Approval,
    Challenge,
    Rule,
    sign_approval,
)
from onym.sign.keys import Signer
from onym.sign.receipts import content_digest, request_hash
from onym.sign.sealing import SealingSecrets, open_sealed, seal
from onym.store.shared import SharedStore, hash_part
from onym.uri.secret import Secret

#: calls of one person that may wait
MAX_WAITING: Final = 20
#: calls that the list of one approver shows
MAX_LISTED: Final = 200
#: seconds for which a decided record can be read
_KEPT: Final = 3600.0
#: seconds for which the last call of a kind is kept, for comparison
_COMPARED: Final = 90 * 24 * 3600.0
_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
_PURPOSE: Final = "approval"
_TRIES: Final = 8
_ID: Final = re.compile(r"[A-Za-z0-9_-]{24}")
#: bytes of a schema that is stored with a body
_MAX_SCHEMA: Final = 128 * 1024
#: the calls of all people that wait
_OPEN: Final = "approval-open"

T = TypeVar("T")


class ApprovalState(StrEnum):
    """The state of a record. All but `waiting` and `approved` are final."""

    WAITING = "waiting"
    APPROVED = "approved"
    DENIED = "denied"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    USED = "used"


#: states in which the same call attaches to its record; a denied call is not asked again
_LASTING: Final = frozenset({ApprovalState.WAITING, ApprovalState.APPROVED, ApprovalState.DENIED})


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A signed-in person. `id` contains issuer and subject, `subject` only the latter, `name` is for people.

    `acr` and `signed_in` (seconds since the epoch) tell how and when the person signed in.
    """

    id: str
    name: str
    subject: str = ""
    acr: str | None = None
    signed_in: float = 0.0


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The approval of one person: what they were shown, and when (seconds since the epoch)."""

    person: Person
    shown: str
    at: float


class StoredCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it was asked for, and what the gateway knew about its resource then."""

    uri: str
    method: str
    body: bytes
    content_type: str | None
    idempotency_key: str
    title: str | None
    schema: dict[str, Any] | None
    effects: Effects
    reversible: bool
    proof: str

    def __repr__(self) -> str:
        # the query and the body may contain what only the endpoint should see
        return f"StoredCall(uri={self.uri.partition('?')[0]!r})"

    @property
    def request_hash(self) -> str:
        """`rqh` of the call."""
        return request_hash(
            method=self.method,
            target=self.uri,
            digest=content_digest(self.body) if self.body else None,
            content_type=self.content_type,
            idempotency_key=self.idempotency_key,
        )


class ApprovalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for an approval, or waited. Times are seconds since the epoch.

    `token` is the endpoint's challenge. `client` is the name of the program that calls, as people are shown
    it; `program` identifies the one that brought the call, and is None for a browser. `evidence` is set when
    the call is approved.
    """

    id: str
    call: StoredCall
    token: str
    challenge: str
    transaction: str
    audience: str
    key: str | None
    description: str
    rule: Rule
    reason: str
    subject: str
    requester: Person
    client: str
    created: float
    expires: float
    state: ApprovalState = ApprovalState.WAITING
    decisions: tuple[Decision, ...] = ()
    evidence: str | None = None
    program: str | None = None

    def __repr__(self) -> str:
        return f"ApprovalRecord(id={self.id!r}, state={self.state.value!r})"

    def may_decide(self, person: Person, *, approver: bool) -> bool:
        """Report whether this person may decide, by the rule; `approver` by the gateway's settings."""
        # the token that the endpoint saw may be of another account of the person
        asked = person.id == self.requester.id or person.subject == self.subject
        if self.rule is Rule.PERSON:
            return asked or approver
        return approver and not asked and all(person.id != made.person.id for made in self.decisions)

    def may_see(self, person: Person, *, approver: bool) -> bool:
        """Report whether this person may read the record."""
        return approver or person.id == self.requester.id

    @property
    def ends(self) -> float:
        """When the record ends without a further decision: with its challenge, or with its evidence."""
        return self.expires if self.evidence is None else self.decisions[-1].at + APPROVAL_SECONDS

    @property
    def missing(self) -> int:
        """The number of persons who must still approve."""
        return self.rule.persons - len(self.decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproverIdentity:
    """The gateway as an approver: its `issuer`, its signing key, and the secret of its pseudonyms."""

    issuer: str
    signer: Callable[[], Signer]
    pseudonyms: Secret

    def name_person(self, person: Person, audience: str, *, pairwise: bool = True) -> str:
        """Return `by` for this person at this authority: a pseudonym, or the name if it is not `pairwise`."""
        if not pairwise:
            plain = person.name.encode("ascii", "backslashreplace").decode()
            return "".join(character for character in plain if character.isprintable())[:128] or "unnamed"
        content = f"{audience}\n{person.id}".encode()
        return encode_base64url(hmac.digest(self.pseudonyms.reveal().encode(), content, "sha256"))


class ApprovalDesk:
    """The approvals of a gateway, or of a fleet of gateways that share the store and the secrets.

    `clock` returns seconds since the epoch. Methods raise StoreError if the store is out of reach.

    A record is in the shared store, sealed, and changes only by compare and swap: of two decisions at the
    same moment one counts. A call waits for as long as its challenge is valid, at most ten minutes; then it
    expires, which means no. The same call attaches to the record that waits. A person may have 20 calls
    waiting.

    Who may decide follows from the rule of the challenge: `person` is the person who asked, or an approver of
    the gateway; `other` and `two` are approvers who are not the one who asked.
    """

    def __init__(
        self,
        store: SharedStore,
        sealing: SealingSecrets,
        identity: ApproverIdentity,
        clock: Callable[[], float],
        *,
        most: int = MAX_WAITING,
    ) -> None:
        self._store = store
        self._secrets = sealing
        self._identity = identity
        self._clock = clock
        self._most = most

    async def ask(
        self,
        call: StoredCall,
        challenge: Challenge,
        token: str,
        requester: Person,
        client: str,
        *,
        program: str | None = None,
    ) -> ApprovalRecord:
        """Return the record of this call, new or the one that waits already.

        `challenge` was verified by the caller; `token` is its compact form. Raises AIIPError: for the
        challenge of another call `aiip.approval-mismatch`, for a call that cannot be shown
        `aiip.invalid-input`, if too many calls of this person wait `aiip.too-many-requests`.
        """
        _require_same_call(call, challenge)
        record = ApprovalRecord(
            id=_make_id(),
            call=call,
            token=token,
            challenge=challenge.digest,
            transaction=challenge.transaction,
            audience=challenge.issuer,
            key=challenge.key,
            description=challenge.call.description,
            rule=challenge.call.rule,
            reason=challenge.reason,
            subject=challenge.requester,
            requester=requester,
            client=client,
            created=self._clock(),
            expires=challenge.expires,
            program=program,
        )
        build_review(_make_review_input(record, call))  # what cannot be shown is not asked
        name = _make_call_key(requester, client, call.request_hash, program)
        for _ in range(_TRIES):
            stored = await self._store.get(name)
            known = None if stored is None else await self.get(stored.value.decode())
            if known is not None and known.state in _LASTING:
                return known
            await self._add(record)
            until, content = record.expires + APPROVAL_SECONDS, record.id.encode()
            if stored is None:
                first = await self._store.put_new(name, content, until)
            else:
                first = await self._store.replace(name, content, until, version=stored.version)
            if first:
                return record
            await self._close(record)
            await self._store.delete(_make_record_key(record.id))
        raise _make_busy_error(record.id)

    async def _add(self, record: ApprovalRecord) -> None:
        """Store a new record and list it. Raises AIIPError if too many calls of this person wait."""
        waiting = _make_waiting_key(record.requester)
        # counted with its own entry: of several at the same moment, too many are refused rather than too few
        await self._store.put(f"{waiting}/{record.id}", b"", record.expires)
        if await self._store.count(f"{waiting}/") > self._most:
            await self._store.delete(f"{waiting}/{record.id}")
            raise AIIPError(
                f"{self._most} calls of this person wait for an approval already",
                code="aiip.too-many-requests",
                target=_get_target(record.call),
                clause=_CLAUSE,
                hint="Wait for decisions, or withdraw some on the gateway's page /approvals.",
            )
        await self._store.put(
            _make_record_key(record.id), self._seal(record, record.id), record.expires + _KEPT
        )
        await self._store.put(_make_open_key(record), b"", record.expires)

    async def get(self, identifier: str) -> ApprovalRecord | None:
        """Return the record, or None for an unknown one."""
        found = await self._load(identifier)
        return None if found is None else found[0]

    async def list_open(self, person: Person, *, approver: bool) -> list[ApprovalRecord]:
        """Return the waiting calls that this person may see, the oldest first; at most `MAX_LISTED`."""
        prefix = _OPEN if approver else _make_waiting_key(person)
        rows = await self._store.find(f"{prefix}/", limit=MAX_LISTED)
        found = [await self.get(key.rpartition("/")[2]) for key, _ in rows]
        records = [record for record in found if record and record.state is ApprovalState.WAITING]
        return sorted(records, key=lambda record: (record.created, record.id))

    async def review(self, record: ApprovalRecord) -> Review:
        """Return what people see of a call; while it waits, with the changes since the last such call."""
        name = _make_last_key(record)
        # a decided call may itself be the last one
        stored = await self._store.get(name) if record.state is ApprovalState.WAITING else None
        shown = _make_review_input(record, record.call)
        if stored is None:
            return build_review(shown)
        try:
            last = self._open(stored.value, name, StoredCall)
        except StoreError:  # it is kept longer than the secrets with which it was sealed
            await self._store.delete(name)
            return build_review(shown)
        return build_review(shown, _make_review_input(record, last))

    async def approve(
        self,
        identifier: str,
        person: Person,
        *,
        shown: str,
        description: str,
        approver: bool,
        pairwise: bool = True,
    ) -> ApprovalRecord:
        """Approve the call for this person; with the last approval that the rule needs, sign the evidence.

        `shown` is the hash of what the person saw, and `description` that of the resource's description as it
        is now. `pairwise` tells whether the authority wants pseudonyms. Raises DeniedError for a person who
        may not decide or has signed in too long ago, `aiip.approval-mismatch` if the call, what was shown or
        the description is not what it was, `aiip.task-not-found` for an unknown record.
        """
        for _ in range(_TRIES):
            record, version = await self._require(identifier)
            self._require_decidable(record, person, approver=approver)
            if description != record.description:
                raise _make_mismatch(record, "the description of the resource has changed since the request")
            now = self._clock()
            if not -60 <= now - person.signed_in <= SIGN_IN_SECONDS:
                raise DeniedError(
                    f"the sign-in is older than {SIGN_IN_SECONDS / 60:g} minutes",
                    code="aiip.step-up-required",
                    target=_get_target(record.call),
                    clause=_CLAUSE,
                    hint="Sign in again, then decide.",
                )
            review = await self.review(record)
            if not hmac.compare_digest(review.shown.encode(), shown.encode("utf-8", "replace")):
                raise _make_mismatch(record, "the page does not show the call as it is now")
            decision = Decision(person=person, shown=review.shown, at=now)
            changed = msgspec.structs.replace(record, decisions=(*record.decisions, decision))
            if changed.missing == 0:
                evidence = self._sign(changed, now, pairwise=pairwise)
                state = ApprovalState.APPROVED
                changed = msgspec.structs.replace(changed, state=state, evidence=evidence)
            if await self._swap(changed, version):
                if changed.state is ApprovalState.APPROVED:
                    await self._close(changed)
                    last = _make_last_key(changed)
                    await self._store.put(last, self._seal(changed.call, last), now + _COMPARED)
                return changed
        raise _make_busy_error(identifier)

    async def deny(self, identifier: str, person: Person, *, approver: bool) -> ApprovalRecord:
        """Deny the call. One denial is final, whatever the rule. Raises as `approve` does."""
        return await self._end(identifier, person, ApprovalState.DENIED, approver=approver)

    async def withdraw(self, identifier: str, person: Person) -> ApprovalRecord:
        """Withdraw the request of this person, which waits or was approved and is not used yet."""
        return await self._end(identifier, person, ApprovalState.WITHDRAWN, approver=False)

    async def withdraw_all(self, person: Person) -> int:
        """Withdraw every waiting call of a person whose session has ended; return their number."""
        rows = await self._store.find(f"{_make_waiting_key(person)}/", limit=MAX_LISTED)
        count = 0
        for key, _ in rows:
            try:
                await self.withdraw(key.rpartition("/")[2], person)
            except AIIPError:
                continue  # it was decided meanwhile
            count += 1
        return count

    async def find_call(
        self, requester: Person, client: str, request: str, *, program: str | None = None
    ) -> ApprovalRecord | None:
        """Return the record of the call with this request hash, asked for in the same way, or None."""
        stored = await self._store.get(_make_call_key(requester, client, request, program))
        return None if stored is None else await self.get(stored.value.decode())

    async def mark_used(self, identifier: str) -> None:
        """Record that the evidence was sent with its call; the endpoint spends it."""
        for _ in range(_TRIES):
            record, version = await self._require(identifier)
            if record.state is not ApprovalState.APPROVED:
                return
            if await self._swap(msgspec.structs.replace(record, state=ApprovalState.USED), version):
                return

    async def _end(
        self, identifier: str, person: Person, state: ApprovalState, *, approver: bool
    ) -> ApprovalRecord:
        for _ in range(_TRIES):
            record, version = await self._require(identifier)
            if state is ApprovalState.DENIED:
                self._require_decidable(record, person, approver=approver)
            elif person.id != record.requester.id:
                raise _make_unknown_error()
            elif record.state not in {ApprovalState.WAITING, ApprovalState.APPROVED}:
                raise _make_over_error(record)
            changed = msgspec.structs.replace(record, state=state, evidence=None)
            if await self._swap(changed, version):
                await self._close(changed)
                return changed
        raise _make_busy_error(identifier)

    def _require_decidable(self, record: ApprovalRecord, person: Person, *, approver: bool) -> None:
        if not record.may_see(person, approver=approver):
            raise _make_unknown_error()
        if record.state is not ApprovalState.WAITING:
            raise _make_over_error(record)
        if not record.may_decide(person, approver=approver):
            raise DeniedError(
                f"by the rule {record.rule}, this person cannot decide about the call",
                target=_get_target(record.call),
                clause=_CLAUSE,
                hint="Another approver of this gateway must decide.",
            )

    def _sign(self, record: ApprovalRecord, now: float, *, pairwise: bool) -> str:
        last, audience, persons = (
            record.decisions[-1],
            record.audience,
            (made.person for made in record.decisions),
        )
        by = tuple(self._identity.name_person(person, audience, pairwise=pairwise) for person in persons)
        issued = int(now)
        approval = Approval(
            issuer=self._identity.issuer,
            audience=audience,
            issued=issued,
            expires=issued + APPROVAL_SECONDS,
            id=secrets.token_urlsafe(16),
            request=record.call.request_hash,
            transaction=record.transaction,
            challenge=record.challenge,
            shown=last.shown,
            by=by,
            authenticated=int(last.person.signed_in),
            acr=last.person.acr,
            key=record.key,
        )
        return sign_approval(approval, self._identity.signer())

    async def _close(self, record: ApprovalRecord) -> None:
        """Remove the record from the lists of waiting calls."""
        await self._store.delete(f"{_make_waiting_key(record.requester)}/{record.id}")
        await self._store.delete(_make_open_key(record))

    async def _require(self, identifier: str) -> tuple[ApprovalRecord, int]:
        """Return the record, and the version that `replace` compares. Raises AIIPError for an unknown one."""
        found = await self._load(identifier)
        if found is None:
            raise _make_unknown_error()
        return found

    async def _load(self, identifier: str) -> tuple[ApprovalRecord, int] | None:
        if not _ID.fullmatch(identifier):
            return None
        stored = await self._store.get(_make_record_key(identifier))
        if stored is None:
            return None
        record = self._open(stored.value, identifier, ApprovalRecord)
        if record.ends <= self._clock() and record.state in {ApprovalState.WAITING, ApprovalState.APPROVED}:
            record = msgspec.structs.replace(record, state=ApprovalState.EXPIRED, evidence=None)
        return record, stored.version

    async def _swap(self, record: ApprovalRecord, version: int) -> bool:
        content, until = self._seal(record, record.id), record.expires + _KEPT
        return await self._store.replace(_make_record_key(record.id), content, until, version=version)

    def _seal(self, record: ApprovalRecord | StoredCall, context: str) -> bytes:
        return seal(self._secrets, _PURPOSE, msgspec.msgpack.encode(record), context=context)

    def _open(self, sealed: bytes, context: str, kind: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(
                open_sealed(self._secrets, _PURPOSE, sealed, context=context), type=kind
            )
        except (SignatureError, msgspec.ValidationError, msgspec.DecodeError):
            raise StoreError(
                "a stored approval cannot be read",
                code="store.damaged",
                hint="It was changed, or its secret was rotated out. Ask for the approval again.",
            ) from None


def hash_description(body: bytes) -> str:
    """Return the hash of a resource's description, as a challenge contains it."""
    return encode_base64url(sha256(body).digest())


def _make_id() -> str:
    """Return a new ID: 144 random bits in base64url, as a word that no command takes for an option."""
    return next(name for name in iter(lambda: secrets.token_urlsafe(18), "") if not name.startswith("-"))


def _require_same_call(call: StoredCall, challenge: Challenge) -> None:
    """Raise AIIPError unless the challenge is for this call: people approve only what they see."""
    asked = challenge.call
    same = (asked.request, asked.uri, asked.method, asked.effects)
    if same != (call.request_hash, call.uri, call.method, call.effects.value):
        raise DeniedError(
            "the challenge is for another call",
            code="aiip.approval-mismatch",
            target=_get_target(call),
            clause=_CLAUSE,
            hint="Send the challenge with exactly the request that it answers.",
        )
    if len(msgspec.json.encode(call.schema)) > _MAX_SCHEMA or len(call.body) > MAX_SHOWN:
        raise AIIPError(
            f"a call that people approve has at most {MAX_SHOWN} bytes, and its schema {_MAX_SCHEMA}",
            code="aiip.too-large",
            target=_get_target(call),
            clause=_CLAUSE,
        )


def _make_review_input(record: ApprovalRecord, call: StoredCall) -> CallToReview:
    return CallToReview(
        uri=call.uri,
        method=call.method,
        body=call.body,
        content_type=call.content_type,
        effects=call.effects,
        reversible=call.reversible,
        title=call.title,
        schema=call.schema,
        reason=record.reason,
        proof=call.proof,
        person=record.requester.name,
        client=record.client,
        request=call.request_hash,
    )


def _get_target(call: StoredCall) -> str:
    return call.uri.partition("?")[0]


def _make_record_key(identifier: str) -> str:
    return f"approval/{identifier}"


def _make_open_key(record: ApprovalRecord) -> str:
    """Return the name of a waiting call in the list of all of them, which has the oldest first."""
    return f"{_OPEN}/{int(record.created * 1000):014d}/{record.id}"


def _make_waiting_key(person: Person) -> str:
    return f"approval-waiting/{hash_part(person.id)}"


def _make_call_key(person: Person, client: str, request: str, program: str | None) -> str:
    asker = hash_part(f"{client}\n{program or ''}")
    return f"approval-call/{hash_part(person.id)}/{asker}/{request}"


def _make_last_key(record: ApprovalRecord) -> str:
    return f"approval-last/{hash_part(record.requester.id)}/{hash_part(_get_target(record.call))}"


def _make_mismatch(record: ApprovalRecord, message: str) -> DeniedError:
    return DeniedError(
        message,
        code="aiip.approval-mismatch",
        target=_get_target(record.call),
        clause=_CLAUSE,
        hint="Nothing was approved. Look at the call again.",
    )


def _make_unknown_error() -> AIIPError:
    return AIIPError(
        "no such approval: it does not exist, has been deleted, or belongs to somebody else",
        code="aiip.task-not-found",
        clause=_CLAUSE,
        hint="List the calls that wait on the gateway's page /approvals.",
    )


def _make_over_error(record: ApprovalRecord) -> DeniedError:
    return DeniedError(
        f"the approval is {record.state} already",
        code="aiip.approval-mismatch",
        target=_get_target(record.call),
        clause=_CLAUSE,
        hint="Ask again with a new idempotency key.",
    )


def _make_busy_error(identifier: str) -> AIIPError:
    return AIIPError(
        f"the approval {identifier} is being changed by others",
        code="aiip.unavailable",
        clause=_CLAUSE,
        retryable=True,
        hint="Try again.",
    )
