"""What people and programs must do before a gateway forwards a call, and the consents that they gave (3.13).

The effects of a resource decide: reading needs nothing, writing needs a sign-in, and effects that cannot be
undone need a person who has seen the call. A consent lets one program act for one person at one authority; it
never covers effects that need an approval. Only a program that came with the person's token can ask for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from onym.ai.records import Description, Effects
from onym.errors import AIIPError, DeniedError, StoreError
from onym.store.shared import SharedStore, hash_part, make_key

#: seconds for which a consent is valid
CONSENT_SECONDS: Final = 90 * 24 * 3600
#: seconds since a person's sign-in after which financial and physical effects need another one
SIGN_IN_SECONDS: Final = 5 * 60.0
#: consents of one person
MAX_CONSENTS: Final = 200
#: seconds for which the question for a consent can be answered, and such questions of one person
QUESTION_SECONDS: Final = 24 * 3600
MAX_QUESTIONS: Final = 20
_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
_ID: Final = re.compile(r"~[A-Za-z0-9_-]{43}")


class Step(StrEnum):
    """What comes next for a call: it is forwarded, or the caller must do something first."""

    FORWARD = "forward"
    SIGN_IN = "sign-in"
    STEP_UP = "step-up"
    CONSENT = "consent"
    REVIEW = "review"
    APPROVE = "approve"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRule:
    """The rule for one kind of effects.

    `sign_in_seconds` is the largest age of the sign-in, None for any age. `browser` is the step for a person
    who sends a form, `program` that for a program that acts for a person.
    """

    signed_in: bool
    sign_in_seconds: float | None = None
    browser: Step
    program: Step


_REVERSIBLE: Final = EffectRule(signed_in=True, browser=Step.FORWARD, program=Step.CONSENT)
_WEIGHTY: Final = EffectRule(
    signed_in=True, sign_in_seconds=SIGN_IN_SECONDS, browser=Step.APPROVE, program=Step.APPROVE
)
#: `write` effects count as irreversible unless the author promises that they can be undone
_RULES: Final[Mapping[Effects, EffectRule]] = MappingProxyType(
    {
        Effects.READ: EffectRule(signed_in=False, browser=Step.FORWARD, program=Step.FORWARD),
        Effects.WRITE: EffectRule(signed_in=True, browser=Step.REVIEW, program=Step.APPROVE),
        Effects.FINANCIAL: _WEIGHTY,
        Effects.PHYSICAL: _WEIGHTY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState:
    """What is known about the caller of one call.

    `signed_in_at` is the time of the person's sign-in in seconds since the epoch, None without one.
    `consented`, `reviewed` and `approved` tell which steps have been done for this very call.
    """

    signed_in_at: float | None
    is_program: bool = False
    consented: bool = False
    reviewed: bool = False
    approved: bool = False


def get_rule(description: Description) -> EffectRule:
    """Return the rule for a resource's effects."""
    if description.effects is Effects.WRITE and description.reversible:
        return _REVERSIBLE
    return _RULES[description.effects]


def find_next_step(description: Description, state: CallState, *, at: float, token: bool = False) -> Step:
    """Return what must happen next for an invocation of this resource at `at` (seconds).

    `token` means that the authority wants an access token for a person.
    """
    rule = get_rule(description)
    if state.signed_in_at is None and (token or rule.signed_in):
        return Step.SIGN_IN
    # for a program, such effects need an approval, and the person who gives it has signed in just before
    longest = None if state.is_program else rule.sign_in_seconds
    if state.signed_in_at is not None and _is_too_old(at - state.signed_in_at, longest):
        return Step.STEP_UP
    step = rule.program if state.is_program else rule.browser
    if description.approval:
        step = Step.APPROVE
    done = {
        Step.CONSENT: state.consented,
        Step.REVIEW: state.reviewed or state.approved,
        Step.APPROVE: state.approved,
    }
    return Step.FORWARD if done.get(step, False) else step


def _is_too_old(age: float, longest: float | None) -> bool:
    # a sign-in from the future is not fresh either: the clock may have been set back
    return longest is not None and not -60 <= age <= longest


#: step -> code of the problem, what is missing, and what to do
_REFUSALS: Final[Mapping[Step, tuple[str, str, str]]] = MappingProxyType(
    {
        Step.SIGN_IN: (
            "sign-in-required",
            "the resource has effects or needs a token, so the caller must be signed in",
            "Sign in at this gateway, or send an access token for it.",
        ),
        Step.STEP_UP: (
            "step-up-required",
            f"the sign-in is older than {SIGN_IN_SECONDS / 60:g} minutes",
            "Sign in again, then repeat the call.",
        ),
        Step.CONSENT: (
            "consent-required",
            "the person has not allowed this program to change things at the authority",
            "Ask the person to open the page and to allow it, then send the same call again.",
        ),
        Step.REVIEW: (
            "approval-required",
            "the effects cannot be undone, so a person must see the call before it is sent",
            "Open the resource's page on this gateway.",
        ),
        Step.APPROVE: (
            "approval-required",
            "the call needs the approval of a person",
            "Open its page here, or send the call to the authority and bring what it asks for to /approvals.",
        ),
    }
)


def make_step_error(step: Step, target: str) -> AIIPError:
    """Return the error for a call whose next step is not `Step.FORWARD`."""
    code, why, hint = _REFUSALS[step]
    return DeniedError(
        f"the gateway does not forward this call yet: {why}",
        code=f"aiip.{code}",
        target=target,
        clause=_CLAUSE,
        hint=hint,
    )


class ConsentScope(msgspec.Struct, frozen=True, kw_only=True):
    """What a consent covers: a program by its client ID, at an authority, with these effects.

    With `bound`, the program must prove a key to which its token is bound; a stolen token is not enough.
    """

    client: str
    authority: str
    effects: Effects
    bound: bool

    @property
    def id(self) -> str:
        """The identifier in links and forms. A consent replaces one that differs only in `bound`."""
        return _hash_parts(self.client, self.authority, self.effects)

    def covers(self, other: ConsentScope) -> bool:
        """Report whether a consent for this one is also enough for a call with the other one."""
        return self.id == other.id and (other.bound or not self.bound)


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """A person's consent that a program acts for them. Times are seconds since the epoch."""

    scope: ConsentScope
    created: float
    until: float


class ConsentQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A program's call that needs a consent, which the person may give. Times are seconds since the epoch.

    `target` is the called resource, `scopes` those of the token that the authority would get. `proof` is how
    the program proved that it is the client, with `thumbprint` of its key. `denied` is the person's answer.
    """

    scope: ConsentScope
    target: str
    scopes: tuple[str, ...]
    proof: str
    thumbprint: str | None
    created: float
    until: float
    denied: bool = False


_Stored = TypeVar("_Stored", Consent, ConsentQuestion)


class ConsentStore:
    """The consents of all people of a gateway, and the questions that wait for them, in a shared store.

    A person is identified by a text that contains issuer and subject, which is stored as a hash. Nothing is
    cached: a consent that was revoked does not cover the next call. Every method raises StoreError if the
    store is out of reach or a stored value is damaged.
    """

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    async def find(self, person: str, scope: ConsentScope, *, at: float) -> Consent | None:
        """Return the valid consent that covers this, or None."""
        consent = await self._get(_CONSENT, person, scope.id, Consent, at)
        return consent if consent is not None and consent.scope.covers(scope) else None

    async def ask(self, person: str, question: ConsentQuestion) -> ConsentQuestion:
        """Store a question, and return it; or the one that the person has denied.

        Raises DeniedError `aiip.consent-required` for a person with `MAX_QUESTIONS` others.
        """
        known = await self.find_question(person, question.scope.id, at=question.created)
        if known is not None and known.denied:
            return known
        if known is None:
            await self._require_room(_QUESTION, person, MAX_QUESTIONS, "consent-required")
        await self._put(_QUESTION, person, question.scope.id, question, question.until)
        return question

    async def find_question(self, person: str, identifier: str, *, at: float) -> ConsentQuestion | None:
        """Return a question by the `id` of its scope, or None."""
        if not _ID.fullmatch(identifier):
            return None
        return await self._get(_QUESTION, person, identifier, ConsentQuestion, at)

    async def allow(self, person: str, scope: ConsentScope, *, at: float) -> Consent:
        """Store a consent, which replaces an older one for the same program, authority and effects.

        Raises DeniedError for effects that a consent cannot cover, and `aiip.policy-denied` for a person with
        `MAX_CONSENTS` others.
        """
        if scope.effects not in {Effects.READ, Effects.WRITE}:
            raise make_step_error(Step.APPROVE, scope.authority)
        consent = Consent(scope=scope, created=at, until=at + CONSENT_SECONDS)
        if await self._store.get(_make_key(_CONSENT, person, scope.id)) is None:
            await self._require_room(_CONSENT, person, MAX_CONSENTS, "policy-denied")
        await self._put(_CONSENT, person, scope.id, consent, consent.until)
        await self._store.delete(_make_key(_QUESTION, person, scope.id))
        return consent

    async def deny(self, person: str, question: ConsentQuestion) -> None:
        """Note that the person denied a question, which is then not asked again before it expires."""
        denied = msgspec.structs.replace(question, denied=True)
        await self._put(_QUESTION, person, question.scope.id, denied, question.until)

    async def list_consents(self, person: str, *, at: float) -> tuple[Consent, ...]:
        """Return the person's valid consents, the newest first."""
        return await self._list(_CONSENT, person, MAX_CONSENTS, Consent, at)

    async def list_questions(self, person: str, *, at: float) -> tuple[ConsentQuestion, ...]:
        """Return the questions for the person, the newest first."""
        return await self._list(_QUESTION, person, MAX_QUESTIONS, ConsentQuestion, at)

    async def revoke(self, person: str, identifier: str) -> None:
        """Delete a consent by the `id` of its scope. An unknown one is not an error."""
        if _ID.fullmatch(identifier):
            await self._store.delete(_make_key(_CONSENT, person, identifier))

    async def _get(
        self, kind: str, person: str, identifier: str, form: type[_Stored], at: float
    ) -> _Stored | None:
        stored = await self._store.get(_make_key(kind, person, identifier))
        found = None if stored is None else _decode(stored.value, form)
        return None if found is None or found.until <= at else found

    async def _put(
        self, kind: str, person: str, identifier: str, value: Consent | ConsentQuestion, until: float
    ) -> None:
        await self._store.put(_make_key(kind, person, identifier), msgspec.msgpack.encode(value), until)

    async def _list(
        self, kind: str, person: str, limit: int, form: type[_Stored], at: float
    ) -> tuple[_Stored, ...]:
        rows = await self._store.find(_make_key(kind, person, ""), limit=limit)
        found = [_decode(stored.value, form) for _, stored in rows]
        current = [value for value in found if value.until > at]
        return tuple(sorted(current, key=lambda value: (-value.created, value.scope.id)))

    async def _require_room(self, kind: str, person: str, most: int, code: str) -> None:
        if await self._store.count(_make_key(kind, person, "")) >= most:
            raise DeniedError(
                f"the person has {most} consents, or questions for one, which is the most",
                code=f"aiip.{code}",
                clause=_CLAUSE,
                hint="The person can answer or revoke some on the gateway's page /consents.",
            )


#: folders of the store
_CONSENT: Final = "consent"
_QUESTION: Final = "consent-question"


def _make_key(kind: str, person: str, identifier: str) -> str:
    return f"{make_key(kind)}/{hash_part(person)}/{identifier}"


def _hash_parts(*parts: str) -> str:
    """Return the hash of texts, none of which contains a line feed."""
    return hash_part("\n".join(parts))


def _decode(octets: bytes, form: type[_Stored]) -> _Stored:
    try:
        return msgspec.msgpack.decode(octets, type=form)
    except (msgspec.ValidationError, msgspec.DecodeError):
        raise StoreError(
            "a stored consent cannot be read",
            code="store.damaged",
            hint="Revoke the consents of this person, or restore the store from a backup.",
        ) from None


def name_person(issuer: str, subject: str) -> str:
    """Return the name of a person in the store of consents."""
    return f"{issuer} {subject}"
