"""Consents of people for programs at a gateway: the question of a program, the answer, and the list.

A program that wants to change something needs the consent of its person. It gets the URL of a page, on which
the person allows or denies it. `/consents` lists what a person has allowed, and revokes it. Each page has a
JSON twin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import RedirectResponse, Response

from onym.ai.gateway import permissions
from onym.ai.gateway.review import describe_effects, describe_name
from onym.errors import AIIPError, DeniedError, URIError
from onym.server.gateway.dependencies import Proof, read_form, record_event
from onym.server.gateway.people import make_view_response, require_session
from onym.server.gateway.responses import format_time
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from onym.server.gateway.dependencies import Dependencies, RequestContext
    from onym.server.gateway.sessions import PersonSession

#: how a program proved that it is the client of its token, for people
_PROOFS: Final[Mapping[str, str]] = MappingProxyType(
    {
        Proof.BEARER: "It sent a token that is bound to no key. Anybody who has the token can use it.",
        Proof.DPOP: "It proved that it has the key to which its token is bound (DPoP).",
        Proof.CERTIFICATE: "It proved that it has the client certificate to which its token is bound.",
    }
)


#: the person's answer -> the decision in the audit log
_DECISIONS: Final[Mapping[str | None, str]] = MappingProxyType({"allow": "permit", "deny": "refuse"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentScopeView:
    """What a consent covers, for people. `id` names it in links, `bound` is for a program that proved a key.

    `client` is the program's ID at the provider `provider`. `authority` is the ASCII form, `unicode` the name
    as people write it, with the gateway's `warnings` about it.
    """

    id: str
    client: str
    provider: str
    authority: str
    unicode: str
    warnings: tuple[str, ...]
    effects: str
    bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentQuestionView:
    """A question of a program. Times are text in UTC; `days` is how long a consent is valid.

    `proof` and `proof_text` tell how the program proved its ID, with `thumbprint` of its key. `target` is the
    resource that it called, `scopes` are those of the token that the authority gets.
    """

    scope: ConsentScopeView
    proof: str
    proof_text: str
    thumbprint: str | None
    target: str
    scopes: tuple[str, ...]
    asked: str
    until: str
    days: int
    denied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentView:
    """A consent in the list. Times are text in UTC."""

    scope: ConsentScopeView
    since: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentListView:
    """The page of consents: those that the person gave, and the questions that wait."""

    consents: tuple[ConsentView, ...]
    questions: tuple[ConsentQuestionView, ...]


class ConsentHandler:
    """Handles the requests below `/consents`, which are for the person who signed in with this browser."""

    def __init__(self, parts: Dependencies, consents: permissions.ConsentStore) -> None:
        self._parts = parts
        self._consents = consents

    async def handle_request(self, visit: RequestContext, method: str, rest: Sequence[str]) -> Response:
        """Return the response to this request. Raises OnymError."""
        session = await require_session(self._parts, visit)
        match method, rest:
            case "GET", []:
                return await self._list(visit, session)
            case "GET", [name]:
                question = await self._find_question(session, name)
                view = self._view_question(session, question)
                return make_view_response(self._parts, visit, "consent.html", view, csrf=visit.form_key.token)
            case "POST", [name]:
                return await self._decide(visit, session, name)
        raise AIIPError("this URL does not exist", code="aiip.endpoint-unknown")

    async def _list(self, visit: RequestContext, session: PersonSession) -> Response:
        at, person = self._now(), _name_holder(session)
        view = ConsentListView(
            consents=tuple(
                ConsentView(
                    scope=self._view_scope(session, consent.scope),
                    since=format_time(consent.created),
                    until=format_time(consent.until),
                )
                for consent in await self._consents.list_consents(person, at=at)
            ),
            questions=tuple(
                self._view_question(session, question)
                for question in await self._consents.list_questions(person, at=at)
            ),
        )
        return make_view_response(self._parts, visit, "consents.html", view, csrf=visit.form_key.token)

    async def _decide(self, visit: RequestContext, session: PersonSession, name: str) -> Response:
        """Allow or deny what a program asked, or revoke a consent (field `decision`)."""
        form = await read_form(self._parts, visit)
        decision, person = form.get("decision"), _name_holder(session)
        if decision == "revoke":
            await self._consents.revoke(person, name)
            self._record(visit, session, "end", name)
        elif decision in _DECISIONS:
            question = await self._find_question(session, name)
            if decision == "deny":
                await self._consents.deny(person, question)
            elif form.get("proof") != question.proof:
                raise DeniedError(
                    "the program has called again since this page was shown, with another proof",
                    code="aiip.consent-required",
                    hint="Reload the page, read it again, and decide.",
                )
            else:
                await self._consents.allow(person, question.scope, at=self._now())
            self._record(visit, session, _DECISIONS[decision], name, question.scope)
        else:
            raise AIIPError("the decision is not allow, deny or revoke", code="aiip.bad-request")
        if visit.wants_page:
            return RedirectResponse("/consents", 303)
        return Response(msgspec.json.encode({"decision": decision}), media_type="application/json")

    def _record(
        self,
        visit: RequestContext,
        session: PersonSession,
        decision: str,
        name: str,
        scope: permissions.ConsentScope | None = None,
    ) -> None:
        members = {} if scope is None else {"client": scope.client, "authority": scope.authority}
        record_event(
            self._parts, visit, "consent", session.person, decision=decision, consent=name, **members
        )

    async def _find_question(self, session: PersonSession, name: str) -> permissions.ConsentQuestion:
        """Return the question. Raises AIIPError: an unknown one and one for others look alike."""
        question = await self._consents.find_question(_name_holder(session), name, at=self._now())
        if question is None:
            raise AIIPError(
                "no program asks you this, or it asked more than a day ago",
                code="aiip.endpoint-unknown",
                hint="Sign in as the person for whom the program acts, or let the program call again.",
            )
        return question

    def _view_question(
        self, session: PersonSession, question: permissions.ConsentQuestion
    ) -> ConsentQuestionView:
        return ConsentQuestionView(
            scope=self._view_scope(session, question.scope),
            proof=question.proof,
            proof_text=_PROOFS.get(question.proof, ""),
            thumbprint=question.thumbprint,
            target=question.target,
            scopes=question.scopes,
            asked=format_time(question.created),
            until=format_time(question.until),
            days=permissions.CONSENT_SECONDS // (24 * 3600),
            denied=question.denied,
        )

    def _view_scope(self, session: PersonSession, scope: permissions.ConsentScope) -> ConsentScopeView:
        try:
            unicode, warnings = describe_name(AIURI.parse(f"ai://{scope.authority}/"))
        except URIError:
            unicode, warnings = scope.authority, []
        return ConsentScopeView(
            id=scope.id,
            client=scope.client,
            # a client ID is unique at its issuer, which is the one where the person signed in
            provider=session.person.issuer,
            authority=scope.authority,
            unicode=unicode.removeprefix("ai://").partition("/")[0],
            warnings=tuple(warnings),
            effects=describe_effects(scope.effects, reversible=True),
            bound=scope.bound,
        )

    def _now(self) -> float:
        return self._parts.clock().timestamp()


def _name_holder(session: PersonSession) -> str:
    return permissions.name_person(session.person.issuer, session.person.subject)
