"""The gateway's pages for approvals: what waits, the review of one call, the decision, and the evidence."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import RedirectResponse, Response

from onym.accounts.oidc import Person as AccountPerson
from onym.ai import approvals
from onym.ai.client_flows import parse_description
from onym.ai.endpoint.sender import format_challenge
from onym.ai.gateway import approvals as gateway_approvals
from onym.ai.gateway.forwarding import require_no_loop
from onym.ai.gateway.permissions import Step, get_rule
from onym.ai.records import Invocation, is_json
from onym.ai.tasks import ask_for_task
from onym.common.text import parse_json_object
from onym.errors import AIIPError, DeniedError, SignatureError
from onym.server.gateway import responses
from onym.server.gateway.dependencies import make_reload_headers, parse_form, read_body, record_event
from onym.server.gateway.people import require_session, require_step_up
from onym.sign.approval import MAX_SHOWN, SIGN_IN_SECONDS, verify_challenge
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from onym.ai.gateway.approvals import ApprovalDesk
    from onym.ai.records import Approver, Description, Resolution, Result
    from onym.server.gateway.dependencies import Dependencies, Program, RequestContext
    from onym.server.gateway.handlers import UpstreamRelay
    from onym.server.gateway.sessions import PersonSession

T = TypeVar("T")

_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
_EVENT: Final = "approval"
#: bytes of a document with a call: its body in base64, the challenge and the other members
_MAX_REQUEST: Final = 2 * MAX_SHOWN
#: seconds after which a program should look again whether people have decided
_POLL_SECONDS: Final = 2
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The person of a request: signed in with a browser, or named by the token of a `program`.

    `approver` tells whether this request may see and decide the calls of others.
    """

    account: AccountPerson
    approver: bool
    program: Program | None = None

    @property
    def person(self) -> gateway_approvals.Person:
        """The person as a requester or an approver."""
        return make_person(self.account)

    @property
    def program_id(self) -> str | None:
        """The identifier of the program, None for a browser."""
        return None if self.program is None else f"{self.program.issuer} {self.program.client}"

    @property
    def can_decide(self) -> bool:
        """Whether this request may carry a decision: any browser's, and a program's by its scope."""
        return self.program is None or approvals.APPROVE_SCOPE in self.program.caller.scopes

    @property
    def is_bound(self) -> bool:
        """Whether a stolen token would be useless: any browser's session, and a program's bound token."""
        return self.program is None or self.program.thumbprint is not None

    def may_see(self, record: gateway_approvals.ApprovalRecord) -> bool:
        """Report whether the request may read the record: a program without the scope, only its own."""
        if not record.may_see(self.person, approver=self.approver):
            return False
        return self.can_decide or self.may_use(record)

    def may_decide(self, record: gateway_approvals.ApprovalRecord) -> bool:
        """Report whether the request may decide about the record, if it is fresh enough."""
        if not self.can_decide or self.has_brought(record):
            return False
        return record.may_decide(self.person, approver=self.approver)

    def may_use(self, record: gateway_approvals.ApprovalRecord) -> bool:
        """Report whether the request may have the evidence: the person who asked, with the same program."""
        own = record.requester.id == self.person.id
        return own and (self.program is None or record.program == self.program_id)

    def has_brought(self, record: gateway_approvals.ApprovalRecord) -> bool:
        """Report whether this program has brought the call, for this person."""
        return self.program is not None and self.may_use(record)


class ApprovalHandler:
    """Handles the requests below `/approvals`. `desk` is None if the gateway has no sign-in.

    A person brings a call that an endpoint has challenged; others, or the same person, see it and decide. The
    person who approves does not send the call: the evidence goes to the one who asked. Approving needs a
    sign-in of the last five minutes.

    Each page has a JSON twin for programs, which send an access token for the gateway. With any token, a
    program asks for approvals and fetches their evidence, for the calls that it has brought itself. To see
    the calls of others and to decide, it needs the scope `approve`, a token that is bound to a key or a
    certificate, and the time of the person's sign-in in the token. A program never decides for a person about
    a call that it has brought for the same person.
    """

    def __init__(self, parts: Dependencies, relay: UpstreamRelay, desk: ApprovalDesk | None) -> None:
        self._parts = parts
        self._relay = relay
        self._found = desk

    @property
    def _desk(self) -> ApprovalDesk:
        if self._found is None:
            raise AIIPError(
                "this gateway has no sign-in, so nobody can approve a call here",
                code="aiip.endpoint-unknown",
                hint="The operator can add [[providers]] to its settings.",
            )
        return self._found

    async def handle_request(self, visit: RequestContext, method: str, rest: list[str]) -> Response:
        """Return the response to this request. Raises OnymError."""
        desk = self._desk
        match method, rest:
            case "GET", []:
                return await self._show_list(visit, desk)
            case "POST", []:
                return await self._ask(visit, desk)
            case "GET", [name]:
                return await self._show_record(visit, desk, name)
            case "GET", [name, "body"]:
                return await self._send_body(visit, desk, name)
            case "GET", [name, "approval.jwt"]:
                return await self._send_evidence(visit, desk, name)
            case "POST", [name]:
                return await self._decide(visit, desk, name)
        raise AIIPError("this URL does not exist", code="aiip.endpoint-unknown")

    async def withdraw_ended(self, ended: Sequence[PersonSession]) -> None:
        """Withdraw the waiting calls of people whose last session has ended."""
        sessions = self._parts.sessions
        if self._found is None or sessions is None:
            return
        accounts = {(last.person.issuer, last.person.subject): last.person for last in ended}
        for account in accounts.values():
            if not await sessions.list_sessions(account):
                await self._found.withdraw_all(make_person(account))

    async def withdraw_person(self, issuer: str, subject: str) -> None:
        """Withdraw the waiting calls of a person who is signed out everywhere."""
        if self._found is not None:
            account = AccountPerson(issuer=issuer, subject=subject, name=None, email=None)
            await self._found.withdraw_all(make_person(account))

    async def _require_actor(self, visit: RequestContext) -> Actor:
        """Return the person of this request. Raises AIIPError without a session and without a valid token.

        A request with a token is a program's, whatever cookies it has.
        """
        programs = self._parts.programs
        program = None if programs is None else await programs.authenticate(visit)
        if program is None:
            session = await require_session(self._parts, visit)
            names = self._name_account(session.provider, session.person)
            return Actor(account=session.person, approver=self._lists(names))
        if program.person is None:
            raise DeniedError(
                "the token is of the program itself, and approvals are matters of people",
                code="aiip.insufficient-scope",
                clause=_CLAUSE,
                hint="Send a token that a person has given the program.",
            )
        account = AccountPerson(
            issuer=program.issuer,
            subject=program.person,
            name=None,
            email=None,
            acr=program.caller.acr,
            auth_time=program.caller.auth_time,
        )
        provider = next(
            known.issuer.id
            for known in self._parts.providers.values()
            if known.issuer.issuer == account.issuer
        )
        actor = Actor(
            account=account, approver=self._lists(self._name_account(provider, account)), program=program
        )
        return actor if actor.can_decide and actor.is_bound else replace(actor, approver=False)

    @staticmethod
    def _name_account(provider: str, account: AccountPerson) -> set[str]:
        """Return the names under which the settings may list this person as an approver."""
        return {f"{provider} {name}" for name in (account.email, account.subject) if name}

    def _lists(self, names: set[str]) -> bool:
        return not names.isdisjoint(self._parts.settings.approvers)

    async def _show_list(self, visit: RequestContext, desk: ApprovalDesk) -> Response:
        actor = await self._require_actor(visit)
        records = await desk.list_open(actor.person, approver=actor.approver)
        rows = tuple(
            approvals.ApprovalRow(
                id=record.id,
                target=record.call.uri.partition("?")[0],
                effects=record.call.effects.value,
                requester=record.requester.name,
                created=responses.format_time(record.created),
                expires=responses.format_time(record.expires),
                own=record.requester.id == actor.person.id,
            )
            for record in records
            if actor.may_see(record)
        )
        return self._make_response(visit, "approvals.html", approvals.ApprovalListView(rows=rows))

    async def _ask(self, visit: RequestContext, desk: ApprovalDesk) -> Response:
        """Take a call that waits for an approval: a document in a browser's form, or a program's body."""
        actor = await self._require_actor(visit)
        body = await self._read_body(visit)
        if actor.program is None:
            body = parse_form(visit, body).get("request", "").encode("utf-8", "replace")
        else:
            _require_json(visit)
        request = _parse_document(body, approvals.ApprovalRequest)
        resolution, description, digest = await self._look_up(visit, AIURI.parse(request.uri))
        call = _make_call(request, resolution, description)
        challenge = self._verify_challenge(request.transaction_challenge, resolution)
        if digest != challenge.call.description:
            raise _make_mismatch(call, "the description of the resource has changed since the request")
        named = request.client if actor.program is None else actor.program.client
        client = challenge.client or named or "not named"
        token = request.transaction_challenge
        record = await desk.ask(call, challenge, token, actor.person, client, program=actor.program_id)
        self._record(visit, actor, record, "asked")
        if actor.program is None:
            return RedirectResponse(f"/approvals/{record.id}", 303)
        view = await self._build_view(desk, actor, record)
        headers = {"location": f"/approvals/{record.id}"}
        return self._make_response(visit, "approval.html", view, status=201, headers=headers)

    async def ask_for_call(
        self, visit: RequestContext, described: Result, invocation: Invocation, token: str
    ) -> Response:
        """Take a call that the endpoint wants approved, and that came from a form or from a program.

        `described` is the signed description that the person saw, `token` the endpoint's challenge. Return
        the redirect to the page of the approval, on which the person sends the call once it is approved; for
        a program, the problem that it must wait and then send the call again, with the URL of the approval.
        """
        actor, resolution = await self._require_actor(visit), described.resolution
        description = parse_description(described, str(resolution.uri.without_query))
        challenge = self._verify_challenge(token, resolution)
        call = _store_call(invocation, resolution, description)
        if gateway_approvals.hash_description(described.body) != challenge.call.description:
            raise _make_mismatch(call, "the description of the resource has changed since the request")
        name, program = self._name_client(actor), actor.program_id
        record = await self._desk.ask(call, challenge, token, actor.person, name, program=program)
        self._record(visit, actor, record, "asked")
        if actor.program is None:
            return RedirectResponse(f"/approvals/{record.id}", 303)
        response = responses.make_problem_response(self._parts, visit, self._make_waiting_error(record))
        response.headers["location"] = f"/approvals/{record.id}"
        return response

    async def find_call(
        self, visit: RequestContext, invocation: Invocation
    ) -> gateway_approvals.ApprovalRecord | None:
        """Return the record of a call that this program has sent before, to be approved, or None."""
        actor = await self._require_actor(visit)
        return await self._desk.find_call(
            actor.person,
            self._name_client(actor),
            invocation.compute_request_hash(),
            program=actor.program_id,
        )

    async def mark_sent(self, visit: RequestContext, record: gateway_approvals.ApprovalRecord) -> None:
        """Record that a program has sent its approved call."""
        await self._desk.mark_used(record.id)
        self._record(visit, await self._require_actor(visit), record, "spent")

    def _name_client(self, actor: Actor) -> str:
        """Return the name of the program in whose calls the gateway is asked, as people are shown it."""
        return self._parts.settings.name if actor.program is None else actor.program.client

    def _make_waiting_error(self, record: gateway_approvals.ApprovalRecord) -> DeniedError:
        denied = record.state is gateway_approvals.ApprovalState.DENIED
        url = f"{self._parts.settings.base_url}/approvals/{record.id}"
        return DeniedError(
            "people have denied the call" if denied else "the call waits for the approval of people",
            code="aiip.approval-required",
            target=record.call.uri.partition("?")[0],
            clause=_CLAUSE,
            hint=f"See {url}."
            if denied
            else f"Send it again with the same key and access token once it is approved: {url}.",
        )

    async def _send_call(
        self,
        visit: RequestContext,
        desk: ApprovalDesk,
        actor: Actor,
        record: gateway_approvals.ApprovalRecord,
    ) -> Response:
        """Send an approved call for the person who asked, and show its result."""
        delegation = self._relay.delegation
        if delegation is None or not actor.may_use(record) or record.evidence is None:
            raise AIIPError("there is no approved call of yours here", code="aiip.task-not-found")
        resolution, description, _ = await self._look_up(visit, AIURI.parse(record.call.uri))
        longest = get_rule(description).sign_in_seconds
        if longest is not None:
            target = f"/approvals/{record.id}"
            fresh = await require_step_up(self._parts, visit, max_age=int(longest), target=target)
            if isinstance(fresh, Response):
                return fresh
        credentials = await delegation.authorize(visit, resolution, description, Step.FORWARD)
        invocation = Invocation(
            uri=resolution.uri,
            method=record.call.method,
            body=record.call.body,
            content_type=record.call.content_type,
            headers=self._relay.build_forwarded_fields(visit, plain=True),
            idempotency_key=record.call.idempotency_key,
            approval=record.evidence,
        )
        if description.asynchronous:
            invocation = ask_for_task(invocation, responses.FORM_WAIT)
        with self._parts.slots.reserve(client=visit.client, authority=resolution.authority):
            result = await self._parts.upstream.exchange(invocation, resolution, credentials=credentials)
        if result.status < 400:
            await desk.mark_used(record.id)
            self._record(visit, actor, record, "spent")
        return responses.redirect_to_result(self._parts, visit, result)

    async def _show_record(self, visit: RequestContext, desk: ApprovalDesk, name: str) -> Response:
        actor = await self._require_actor(visit)
        record = await self._find(desk, actor, name)
        view = await self._build_view(desk, actor, record)
        if view.may_decide:
            self._record(visit, actor, record, "shown", smd=view.shown)
        return self._make_response(visit, "approval.html", view)

    async def _build_view(
        self, desk: ApprovalDesk, actor: Actor, record: gateway_approvals.ApprovalRecord
    ) -> approvals.ApprovalView:
        waits = record.state is gateway_approvals.ApprovalState.WAITING
        usable = actor.may_use(record)
        review = await desk.review(record)
        return approvals.ApprovalView(
            id=record.id,
            state=record.state.value,
            rule=record.rule.value,
            target=record.call.uri.partition("?")[0],
            review=review,
            shown=review.shown,
            created=responses.format_time(record.created),
            expires=responses.format_time(record.ends),
            seconds=max(0, int(record.ends - self._parts.clock().timestamp())),
            missing=record.missing,
            own=record.requester.id == actor.person.id,
            may_decide=waits and actor.may_decide(record),
            has_evidence=usable and record.evidence is not None,
            idempotency_key=record.call.idempotency_key if usable else None,
        )

    async def _send_body(self, visit: RequestContext, desk: ApprovalDesk, name: str) -> Response:
        """Send the stored body, always as a download: its content is untrusted."""
        actor = await self._require_actor(visit)
        record = await self._find(desk, actor, name)
        if any(row.hidden for row in (await desk.review(record)).rows) and not actor.may_use(record):
            raise DeniedError("the body has members that are hidden from approvers", clause=_CLAUSE)
        return _make_download(record.call.body, "body", "application/octet-stream")

    async def _send_evidence(self, visit: RequestContext, desk: ApprovalDesk, name: str) -> Response:
        actor = await self._require_actor(visit)
        record = await self._find(desk, actor, name)
        if not actor.may_use(record) or record.evidence is None:
            raise AIIPError("there is no evidence for you here", code="aiip.task-not-found", clause=_CLAUSE)
        return _make_download(record.evidence.encode("ascii"), "approval.jwt", "application/jwt")

    async def _decide(self, visit: RequestContext, desk: ApprovalDesk, name: str) -> Response:
        """Take a decision from the page's form, or from a program."""
        actor = await self._require_actor(visit)
        body = await self._read_body(visit)
        if actor.program is None:
            form = parse_form(visit, body)
            decision, shown = form.get("decision"), form.get("shown", "")
        else:
            _require_json(visit)
            given = _parse_document(body, approvals.DecisionRequest)
            decision, shown = given.decision, given.shown
            if decision != "withdraw" and actor.can_decide:
                self._require_deciding_token(actor)  # an unbound token does not even find the calls of others
        record = await self._find(desk, actor, name)
        if decision == "send" and actor.program is None:
            return await self._send_call(visit, desk, actor, record)
        if decision == "withdraw":
            if not actor.may_use(record):
                raise DeniedError(
                    "only the person who asked for the approval can withdraw the call, in the same way",
                    target=record.call.uri.partition("?")[0],
                    clause=_CLAUSE,
                    hint="An approver can deny it.",
                )
            record = await desk.withdraw(name, actor.person)
        elif decision == "deny":
            self._require_authority_to_decide(actor, record)
            record = await desk.deny(name, actor.person, approver=actor.approver)
        elif decision == "approve":
            self._require_authority_to_decide(actor, record)
            resolution, _, description = await self._look_up(visit, AIURI.parse(record.call.uri))
            entry = self._require_listed(resolution)
            fresh = await self._require_fresh_sign_in(visit, actor, entry, name)
            if isinstance(fresh, Response):
                return fresh  # the person signs in again, looks at the call again, and decides
            record = await desk.approve(
                name,
                fresh.person,
                shown=shown,
                description=description,
                approver=actor.approver,
                pairwise=entry.pairwise,
            )
        else:
            raise AIIPError("the decision is not approve, deny, withdraw or send", code="aiip.bad-request")
        self._record(visit, actor, record, decision)
        if actor.program is None:
            return RedirectResponse(f"/approvals/{name}", 303)
        return self._make_response(visit, "approval.html", await self._build_view(desk, actor, record))

    def _require_authority_to_decide(self, actor: Actor, record: gateway_approvals.ApprovalRecord) -> None:
        """Raise AIIPError for a program whose token does not carry decisions, or that brought this call."""
        self._require_deciding_token(actor)
        if actor.has_brought(record):
            raise DeniedError(
                "the program that brought the call cannot decide about it",
                clause=_CLAUSE,
                hint=f"Decide on the page {self._parts.settings.base_url}/approvals/{record.id}",
            )

    def _require_deciding_token(self, actor: Actor) -> None:
        """Raise AIIPError for a program whose token does not carry decisions."""
        login = f"onym ai login {self._parts.settings.base_url} --approve"
        if not actor.can_decide:
            error = AIIPError(
                f"the access token lacks the scope {approvals.APPROVE_SCOPE}, without which a program cannot "
                "decide",
                code="aiip.insufficient-scope",
                status=403,
                clause=_CLAUSE,
                hint=f"Sign in for it: {login}",
            )
            error.challenge = format_challenge(
                "DPoP",
                error="insufficient_scope",
                error_description="a scope is missing",
                scope=approvals.APPROVE_SCOPE,
            )
            raise error
        if not actor.is_bound:
            error = AIIPError(
                "a decision needs an access token that is bound to a DPoP key or a client certificate",
                code="aiip.sender-constraint",
                clause=_CLAUSE,
                hint=f"Sign in for it: {login}",
            )
            error.challenge = format_challenge("DPoP", error="invalid_token", error_description="not bound")
            raise error

    async def _require_fresh_sign_in(
        self, visit: RequestContext, actor: Actor, entry: Approver, name: str
    ) -> Actor | Response:
        """Return the person with a sign-in that is fresh and of a kind that the authority accepts.

        For a browser without one, return the redirect that asks for it. Raises AIIPError
        `aiip.step-up-required` with a challenge (RFC 9470) for a program.
        """
        age = int(SIGN_IN_SECONDS)
        if actor.program is None:
            fresh = await require_step_up(
                self._parts, visit, acr_values=entry.acr, max_age=age, target=f"/approvals/{name}"
            )
            return fresh if isinstance(fresh, Response) else replace(actor, account=fresh.person)
        shortfall = actor.account.find_shortfall(entry.acr, age, self._parts.clock())
        if shortfall is not None:
            kinds = "".join(f" --acr {value}" for value in entry.acr)
            error = AIIPError(
                f"the sign-in behind the access token is not enough: {shortfall}",
                code="aiip.step-up-required",
                clause="RFC 9470 3",
                hint=f"Sign in again: onym ai login {self._parts.settings.base_url} --approve{kinds}",
            )
            error.challenge = format_challenge(
                "DPoP",
                error="insufficient_user_authentication",
                error_description="a more recent or stronger sign-in is required",
                acr_values=" ".join(entry.acr),
                max_age=str(age),
                scope=approvals.APPROVE_SCOPE,
            )
            raise error
        return actor

    async def _find(self, desk: ApprovalDesk, actor: Actor, name: str) -> gateway_approvals.ApprovalRecord:
        """Return the record. Raises AIIPError: an unknown one and one of others look alike."""
        record = await desk.get(name)
        if record is None or not actor.may_see(record):
            raise AIIPError("no such approval", code="aiip.task-not-found", clause=_CLAUSE)
        return record

    async def _look_up(self, visit: RequestContext, uri: AIURI) -> tuple[Resolution, Description, str]:
        """Return the authority and the resource's description as they are now, and its hash."""
        self._relay.note_target(visit, uri)
        require_no_loop(uri, self._parts.settings.own_hosts)
        with self._parts.slots.reserve(client=visit.client, authority=uri.authority_text or ""):
            resolution = await self._parts.upstream.resolve(uri)
            self._relay.require_authority(resolution)
            description, result = await self._relay.describe(visit, resolution)
        return resolution, description, gateway_approvals.hash_description(result.body)

    def _require_listed(self, resolution: Resolution) -> Approver:
        """Return this gateway's entry at the authority. Raises DeniedError if it has none."""
        issuer = self._parts.settings.base_url
        entry = next((known for known in resolution.document.approvers if known.issuer == issuer), None)
        if entry is None:
            raise DeniedError(
                f"{resolution.authority} does not list this gateway as an approver",
                target=str(resolution.uri.without_query),
                clause=_CLAUSE,
                hint=f"The authority can add {issuer} to its approvers.",
            )
        return entry

    def _verify_challenge(self, token: str, resolution: Resolution) -> Any:
        entry, document = self._require_listed(resolution), resolution.document
        try:
            return verify_challenge(
                token,
                resolution.keys,
                issuer=document.identifier,
                at=self._parts.clock().timestamp(),
                approver=entry.issuer,
                algorithms=document.algorithms,
            )
        except SignatureError as error:
            raise DeniedError(
                f"the challenge is not valid: {error.message}",
                code="aiip.approval-mismatch",
                target=str(resolution.uri.without_query),
                clause=_CLAUSE,
                hint="Send the request to the endpoint again to get a new challenge.",
            ) from error

    async def _read_body(self, visit: RequestContext) -> bytes:
        body = await read_body(self._parts, visit)
        if len(body) > 3 * _MAX_REQUEST:  # a form encodes many characters as three
            raise AIIPError("the form is too large", code="aiip.too-large")
        return body

    def _record(
        self,
        visit: RequestContext,
        actor: Actor,
        record: gateway_approvals.ApprovalRecord,
        step: str,
        **members: Any,
    ) -> None:
        if actor.program is not None:
            members |= {"client": actor.program.client, "proof": actor.program.proof.value}
        telemetry = self._parts.upstream.session.settings.telemetry
        if telemetry is not None:
            telemetry.count_approval(step)
        request, state = record.call.request_hash, record.state.value
        record_event(
            self._parts, visit, _EVENT, actor.account, step=step, rqh=request, decision=state, **members
        )

    def _make_response(
        self,
        visit: RequestContext,
        template: str,
        view: approvals.ApprovalListView | approvals.ApprovalView,
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> Response:
        """Return a view as a page, or as JSON for a program."""
        fields = {"vary": "Accept, Authorization, Cookie", **(headers or {})}
        waiting = (
            view
            if isinstance(view, approvals.ApprovalView)
            and view.state == gateway_approvals.ApprovalState.WAITING
            else None
        )
        if visit.wants_page and visit.program is None:
            # the page of the person who waits is loaded again; a person who decides reads in peace
            reload = make_reload_headers(visit) if waiting and not waiting.may_decide else {}
            html = responses.render_page(
                template, self._parts.settings, view=view, csrf=visit.form_key.token, reloads=bool(reload)
            )
            return responses.make_page_response(html, status, fields | reload)
        if waiting:
            fields["retry-after"] = str(_POLL_SECONDS)
        return Response(msgspec.json.encode(view), status, fields, media_type=_JSON)


def make_person(account: AccountPerson) -> gateway_approvals.Person:
    """Return a person who signed in as a requester or an approver."""
    return gateway_approvals.Person(
        id=f"{account.issuer} {account.subject}",
        name=account.name or account.email or account.subject,
        subject=account.subject,
        acr=account.acr,
        signed_in=account.auth_time or 0.0,
    )


def _require_json(visit: RequestContext) -> None:
    """Raise AIIPError unless the body of a program is JSON."""
    if not is_json(visit.get_field("content-type")):
        raise AIIPError(f"the body must have the type {_JSON}", code="aiip.unsupported-media-type")


def _parse_document(body: bytes, kind: type[T]) -> T:
    """Parse the document of a call or of a decision. Raises AIIPError `aiip.invalid-input`."""
    if len(body) > _MAX_REQUEST:
        raise AIIPError("the request is too large", code="aiip.too-large", clause=_CLAUSE)
    try:
        return msgspec.convert(parse_json_object(body), kind)
    except (ValueError, msgspec.ValidationError) as error:
        hint = "Send the file approval-request.json that onym ai invoke --save DIR wrote."
        raise AIIPError(
            f"the request is not valid: {error}",
            code="aiip.invalid-input",
            clause=_CLAUSE,
            hint=hint if kind is approvals.ApprovalRequest else 'Send, for example, {"decision": "deny"}.',
        ) from None


def _make_call(
    request: approvals.ApprovalRequest, resolution: Resolution, description: Description
) -> gateway_approvals.StoredCall:
    try:
        body = b64decode(request.body_base64, validate=True)
    except ValueError:
        raise AIIPError("body_base64 is not base64", code="aiip.invalid-input", clause=_CLAUSE) from None
    invocation = Invocation(
        uri=resolution.uri,
        method="POST",
        body=body,
        content_type=request.content_type,
        idempotency_key=request.idempotency_key,
    )
    return _store_call(invocation, resolution, description)


def _store_call(
    invocation: Invocation, resolution: Resolution, description: Description
) -> gateway_approvals.StoredCall:
    """Return the call with what the gateway knows about its resource."""
    return gateway_approvals.StoredCall(
        uri=str(invocation.uri),
        method=invocation.method,
        body=invocation.body,
        content_type=invocation.content_type,
        idempotency_key=invocation.idempotency_key or "",
        title=description.title,
        schema=None if description.input is None else dict(description.input),
        effects=description.effects,
        reversible=description.reversible,
        proof=f"{resolution.anchor} over TLS, with its signed description",
    )


def _make_mismatch(call: gateway_approvals.StoredCall, message: str) -> DeniedError:
    return DeniedError(
        message,
        code="aiip.approval-mismatch",
        target=call.uri.partition("?")[0],
        clause=_CLAUSE,
        hint="Send the request to the endpoint again to get a new challenge.",
    )


def _make_download(content: bytes, name: str, media_type: str) -> Response:
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return Response(content, 200, headers, media_type=media_type)
