"""One request to a resource, from its head to the signed response: the order of checks (3.6 to 3.13).

A handler runs only after all checks have passed: caller, body, digest, signing key, idempotency key and
policy. Error responses are unsigned until the caller is known; every later response is signed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from onym.ai import messages
from onym.ai.endpoint import responses
from onym.ai.endpoint._runner import HandlerRunner, decode_stored_answer, get_caller_key
from onym.ai.endpoint.context import ANONYMOUS, AccessRequest, Answer, Authorization, Call, Caller, Limits
from onym.ai.endpoint.idempotency import ANONYMOUS_PREFIX as ANONYMOUS_CLIENT
from onym.ai.endpoint.idempotency import IdempotencyStore, KeyScope
from onym.ai.endpoint.policy import ApprovalChecker, ApprovalTerms, CheckedApproval, Policies
from onym.ai.endpoint.sender import require_bound_request, verify_request_binding
from onym.ai.endpoint.signing import ReceiptRequest, ReceiptSigner
from onym.ai.endpoint.task_runner import MAX_TASK_INPUT, TaskRunner
from onym.ai.endpoint.task_store import TaskStore
from onym.ai.endpoint.tasks import TaskService, get_task_of_answer, make_task_id
from onym.ai.records import DESCRIPTION, is_json
from onym.ai.telemetry import NULL_STAGE, Telemetry
from onym.common.text import parse_json_value
from onym.errors import AIIPError, DeniedError, OnymError
from onym.uri.ai import AIURI, from_target

_LOG: Final = logging.getLogger("onym.ai.endpoint")
#: the header field of a stored answer
_REPLAYED: Final = ("Idempotency-Replayed", "?1")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(kw_only=True)
class RequestPipeline:
    """Serves the requests to the resources of one site."""

    site: responses.Site
    signing: ReceiptSigner
    authorization: Authorization | None
    policies: Policies
    approvals: ApprovalChecker
    limits: Limits
    clock: Callable[[], float]
    telemetry: Telemetry | None = None
    store: IdempotencyStore | None = None
    tasks: TaskService | None = None

    def __post_init__(self) -> None:
        self._runner = HandlerRunner(self.signing, self.limits, self.clock, self.make_problem)

    def sign_with(self, signing: ReceiptSigner) -> None:
        """Sign with other keys from now on."""
        self.signing = signing
        self._runner.signing = signing
        if self.tasks is not None:
            self.tasks.signing = signing

    def open_tasks(self, store: TaskStore) -> None:
        """Offer long tasks, which this store contains."""
        self.tasks = TaskService(
            site=self.site,
            signing=self.signing,
            runner=TaskRunner(
                site=self.site,
                store=store,
                limits=self.limits,
                clock=self.clock,
                make_problem=self.make_problem,
                telemetry=self.telemetry,
            ),
            limits=self.limits,
            clock=self.clock,
            make_problem=self.make_problem,
            authenticate=self._authenticate_task_request,
            send_signed=self._send_signed,
            read_body=self._read_task_input,
        )

    def close_tasks(self) -> None:
        """Stop the running tasks and close their store."""
        tasks, self.tasks = self.tasks, None
        if tasks is not None:
            tasks.runner.close()

    async def serve(
        self,
        head: messages.RequestHead,
        receive: responses.Receive,
        send: responses.Send,
        peer: Any = None,
    ) -> None:
        """Serve a request whose head is valid; `peer` is `client` of its ASGI scope."""
        if self.telemetry is None:
            await self._serve_request(head, receive, send, peer)
            return
        trace, authority = head.headers.get("traceparent"), self.site.authority
        with self.telemetry.observe_request("endpoint", head.method, trace, authority=authority) as stage:
            await self._serve_request(head, receive, stage.observe_send(send), peer)

    async def serve_task(
        self,
        head: messages.RequestHead,
        receive: responses.Receive,
        send: responses.Send,
        peer: Any = None,
    ) -> None:
        """Serve a request to a task, whose head is valid."""
        try:
            if self.tasks is None:
                raise AIIPError("the authority has no tasks", code="aiip.task-not-found")
            await self.tasks.serve(head, receive, send, get_caller_key(ANONYMOUS, peer))
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            answer = self.make_problem(error, None, head.trace_id)
            await responses.send_answer(send, answer, head=head.method == "HEAD")

    async def _authenticate_task_request(
        self, head: messages.RequestHead, resource: responses.Resource | None
    ) -> Caller:
        """Return the caller. A task never shows itself to a caller without the token that it may need.

        The task itself compares the scopes, because a foreign task must look like an unknown one.
        """
        if self.authorization is None:
            return ANONYMOUS if head.origin is None else Caller(audience=head.origin)
        with self._observe_step("verify"):
            request = replace(self._make_access_request(head, resource), scopes=frozenset())
            return await self.authorization.authorize(request)

    async def _read_task_input(self, receive: responses.Receive, head: messages.RequestHead) -> bytes | None:
        body = await responses.read_body(receive, head.length, MAX_TASK_INPUT)
        if body is not None and head.digest is not None:
            messages.verify_content_digest(head.digest, body)
        return body

    async def _serve_request(
        self,
        head: messages.RequestHead,
        receive: responses.Receive,
        send: responses.Send,
        peer: Any,
    ) -> None:
        try:
            uri = self._parse_uri(head)
            if self.telemetry is not None:
                self.telemetry.set_resource(uri)
            resource = self.site.resources.get(str(uri.without_query))
            caller = await self._authenticate(head, resource)
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            answer = self.make_problem(error, getattr(error, "target", None), head.trace_id)
            known = getattr(error, "caller", None)
            if isinstance(known, Caller):
                send = responses.add_nonce(send, known.next_nonce)
                await self._send_signed(ReceiptRequest(head, self._parse_uri(head), known), answer, send)
            else:
                await responses.send_answer(send, answer, head=head.method == "HEAD")
            return
        await self._serve_caller(ReceiptRequest(head, uri, caller), resource, receive, send, peer)

    async def _serve_caller(
        self,
        request: ReceiptRequest,
        resource: responses.Resource | None,
        receive: responses.Receive,
        send: responses.Send,
        peer: Any,
    ) -> None:
        head = request.head
        answer: Answer | responses.StreamingAnswer
        send = responses.add_nonce(send, request.caller.next_nonce)
        try:
            if resource is None:
                raise AIIPError("the authority has no such resource", code="aiip.endpoint-unknown")
            if head.method == "POST":
                require_bound_request(
                    request.caller, resource.effects, always=self.site.requirements.request_binding
                )
                body = await responses.read_body(receive, head.length, self.limits.body)
                if body is None:
                    return  # the caller has disconnected
                key = get_caller_key(request.caller, peer)
                answer = await self._invoke_resource(request, resource, body, key)
            else:
                answer = self._make_description(request, resource)
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            answer = self.make_problem(error, request.subject, head.trace_id)
        if isinstance(answer, responses.StreamingAnswer):
            await self._runner.send_stream(answer, request, receive, send)
        else:
            await self._send_signed(request, answer, send)

    async def _send_signed(self, request: ReceiptRequest, answer: Answer, send: responses.Send) -> None:
        """Sign and send the answer; if it cannot be signed, send an error response instead."""
        no_body, receipt = request.head.method == "HEAD", None
        try:
            receipt = self.signing.sign_answer(request, answer, responses.get_sent_body(answer, head=no_body))
        except OnymError as error:
            answer = self.make_problem(error, request.subject, request.head.trace_id)
        await responses.send_answer(send, answer, receipt=receipt, head=no_body)

    def _parse_uri(self, head: messages.RequestHead) -> AIURI:
        uri = from_target(responses.PREFIX, head.raw_path, head.query)
        if uri.authority != self.site.authority:
            raise AIIPError(
                f"this endpoint serves {self.site.authority}, not the requested authority",
                code="aiip.unknown-authority",
            )
        return uri

    async def _authenticate(self, head: messages.RequestHead, resource: responses.Resource | None) -> Caller:
        """Return the caller. Descriptions are public, but a token that comes with the request is verified."""
        safe = head.method in _SAFE
        if self.authorization is None or (safe and "authorization" not in head.headers):
            return ANONYMOUS if head.origin is None else Caller(audience=head.origin)
        request = self._make_access_request(head, None if safe else resource)
        if "authorization" not in head.headers:
            return await self.authorization.authorize(request)
        with self._observe_step("verify"):
            return await self.authorization.authorize(request)

    def _make_access_request(
        self, head: messages.RequestHead, resource: responses.Resource | None
    ) -> AccessRequest:
        """Return the request for a caller, who must have what the resource demands."""
        return AccessRequest(
            method=head.method,
            url=self.site.anchor + head.raw_path.decode("latin-1"),  # never from Host or Forwarded
            headers=head.headers,
            certificate=head.certificate,
            scopes=frozenset() if resource is None else frozenset(resource.scopes),
            acr_values=() if resource is None else resource.acr_values,
            max_age=None if resource is None else resource.max_age,
        )

    def _observe_step(self, stage: Literal["invoke", "verify"]) -> AbstractContextManager[object]:
        """Observe a step of this request, if telemetry is on."""
        telemetry = self.telemetry
        return NULL_STAGE if telemetry is None else telemetry.observe_step(stage, self.site.authority)

    def _make_description(self, request: ReceiptRequest, resource: responses.Resource) -> Answer:
        head = request.head
        if head.method not in _SAFE:
            # the body is not read, so the receipt covers the digest that the head claims
            error = AIIPError(f"resources support only {responses.ALLOWED}", code="aiip.method-not-allowed")
            return replace(self.make_problem(error, resource.uri), headers=(("Allow", responses.ALLOWED),))
        if head.length or "transfer-encoding" in head.headers:
            raise messages.bad_request(f"a {head.method} request cannot have a body")
        if head.digest is not None:
            messages.verify_content_digest(head.digest, b"")
        request.set_body(b"")
        verify_request_binding(request.caller, lambda: request.request_hash)
        if head.method == "OPTIONS":
            headers = (("Allow", responses.ALLOWED), ("Accept-Post", resource.accepts))
            return Answer(status=204, content_type=None, headers=headers)
        # a receipt is for one caller and one moment; only the description may be cached
        cache_control = "private, no-store" if head.nonce else "private, max-age=60"
        headers = (("Cache-Control", cache_control), ("Vary", "AIIP-Nonce, Authorization, Origin"))
        return Answer(content_type=DESCRIPTION, body=resource.encode_description(), headers=headers)

    async def _invoke_resource(
        self, request: ReceiptRequest, resource: responses.Resource, body: bytes, caller_key: str
    ) -> Answer | responses.StreamingAnswer:
        head, policy_input = request.head, self._parse_body(request, body)
        call = Call(
            uri=request.uri,
            caller=request.caller,
            parameters=request.uri.parameters,
            body=body,
            content_type=head.content_type,
            accept=head.headers.get("accept"),
            headers=head.headers,
            nonce=head.nonce,
            idempotency_key=head.idempotency_key,
            request_hash=request.request_hash,
        )
        self.signing.require_signable(request)  # without a signature nothing may happen
        if resource.idempotency and head.idempotency_key is None:
            raise AIIPError(
                f"a request with {resource.effects.value} effects needs an idempotency key",
                code="aiip.idempotency-required",
                clause="AIIP/HTTPS v1 3.11",
                hint='Send a new key with every request: Idempotency-Key: "8e03978e-40d5".',
            )
        if self.policies.needs_input:
            policy_input = _get_policy_input(resource.handler, call, policy_input)
        terms = self.policies.require_permission(call, resource.effects, policy_input)
        scope = _make_key_scope(request, caller_key)
        preferences = messages.Preferences.parse(head.headers) if resource.task else messages.Preferences()
        if preferences.respond_async:
            try:
                approval = await self._check_and_approve(request, resource, call, terms)
            except DeniedError as refusal:
                return await self._require_known(call, scope, preferences, refusal)
            return await self._begin_task(request, resource, call, preferences, scope, approval)
        # the key of a task may come again from a caller that waits
        keyed_task = resource.task and head.idempotency_key is not None
        if self.store is None or not (resource.idempotency or keyed_task or terms):
            with self._observe_step("invoke"):
                return await self._runner.run(resource, call, caller_key)
        try:
            approval = await self._check_and_approve(request, resource, call, terms)
        except DeniedError as refusal:
            return await self._require_known(call, scope, preferences, refusal)
        with self._observe_step("invoke"):
            spend = None if approval is None else approval.transaction
            answer = await self._runner.run_once(resource, call, self.store, scope, caller_key, spend)
            task = get_task_of_answer(answer)
            if task is not None and self.tasks is not None:
                answer = await self.tasks.replay(task)
        if approval is not None:
            request.approval = approval.reference
        if self.telemetry is not None and _REPLAYED in answer.headers:
            self.telemetry.count_replay(self.site.authority, "idempotency")
        return answer

    async def _begin_task(
        self,
        request: ReceiptRequest,
        resource: responses.Resource,
        call: Call,
        preferences: messages.Preferences,
        scope: KeyScope,
        approval: CheckedApproval | None,
    ) -> Answer:
        assert self.store is not None  # noqa: S101 - `Endpoint.add` requires a store for tasks
        assert self.tasks is not None  # noqa: S101 - opened with the store
        with self._observe_step("invoke"):
            answer = await self.tasks.begin(request, resource, call, self.store, scope, preferences, approval)
        if approval is not None:
            request.approval = approval.reference
        return answer

    async def _require_known(
        self, call: Call, scope: KeyScope, preferences: messages.Preferences, refusal: DeniedError
    ) -> Answer | responses.StreamingAnswer:
        """Return the answer of a request that ran with its approval, which may have expired since.

        Its caller may have lost the answer, and must not have the same request approved again. Raises the
        refusal for a request that has not run, and AIIPError if it still runs or was interrupted.
        """
        if self.store is None or call.idempotency_key is None:
            raise refusal
        try:
            stored = await self.store.find(scope, call.request_hash)
        except AIIPError as error:
            if error.code == "aiip.idempotency-mismatch":  # another request, whose approval this is not
                raise refusal from None
            raise
        if stored is None:
            raise refusal
        answer = decode_stored_answer(stored, self.limits.stream_seconds)
        task = get_task_of_answer(answer)
        if task is None or self.tasks is None:
            return answer
        if preferences.respond_async:
            return await self.tasks.make_started_answer(task, preferences, replayed=True)
        return await self.tasks.replay(task)

    async def _check_and_approve(
        self, request: ReceiptRequest, resource: responses.Resource, call: Call, terms: ApprovalTerms | None
    ) -> CheckedApproval | None:
        """Check the input, and the approval if the call needs one; its receipt can name the approval.

        Raises AIIPError.
        """
        check = getattr(resource.handler, "check", None)
        if check is not None:
            check(call)
        if terms is None:
            return None
        signer, policy = self.signing.get_signer(), self.policies.digest
        approval = await self.approvals.require_approval(
            request, call.body, resource, self.site, terms, policy, signer
        )
        named = replace(request)
        if resource.task:  # the receipt of the result is longer: it names the task and this request
            named = replace(request, task=make_task_id(), original=request.request_hash)
        named.approval = approval.reference
        self.signing.require_signable(named)
        return approval

    def _parse_body(self, request: ReceiptRequest, body: bytes) -> Any:
        """Verify the body's digest and parse a JSON body, within its depth; return None for other bodies."""
        if request.head.digest is not None:
            messages.verify_content_digest(request.head.digest, body)
        request.set_body(body)
        verify_request_binding(request.caller, lambda: request.request_hash)
        if not body or not is_json(request.head.content_type):
            return None
        messages.validate_json_depth(body, self.limits.depth)
        try:
            # policies and the function must see the same value, so no member may be repeated
            return parse_json_value(body)
        except ValueError as error:
            raise AIIPError(
                f"the body {error}",
                code="aiip.invalid-input",
                clause="RFC 8259 4",
                hint="Name each member once.",
            ) from None

    def make_problem(
        self, error: BaseException, target: str | None, trace: str | None = None, *, final: bool = False
    ) -> Answer:
        """Return the error response. Failures of the endpoint are logged with the response's instance.

        With `final`, the response does not ask for a retry.
        """
        instance, anchor = str(uuid.uuid4()), self.site.anchor
        if self.telemetry is not None:
            self.telemetry.record_refusal(error)
            reason = getattr(error, "refused_proof", None)
            if reason is not None:
                self.telemetry.count_refused_proof(self.site.authority, reason)
        answer = responses.encode_problem(
            error, anchor=anchor, target=target, instance=instance, trace=trace, final=final
        )
        if answer.status >= 500:
            _LOG.error("request %s failed: %s", instance, type(error).__name__, exc_info=error)
        return answer


def _get_policy_input(handler: Any, call: Call, data: Any) -> Any:
    """Return the input for policies: the handler's typed input with its defaults.

    For a handler without `typed` it is the body and the query as sent.
    """
    typed = getattr(handler, "typed", None)
    if typed is not None:
        return typed(call)
    if not call.parameters:
        return data
    given = dict(call.parameters)
    return {**given, **data} if isinstance(data, dict) else given


def _make_key_scope(request: ReceiptRequest, caller_key: str) -> KeyScope:
    """Return the scope of a key. Callers without a token never share a scope with those that have one.

    Those without a token share the keys of their origin, but only the network address that has used a key
    gets its answer: a client that comes back from another address must not act twice.
    """
    caller, key = request.caller, str(request.head.idempotency_key)
    known = caller.client_id is not None
    client = f"client {caller.client_id}" if known else ANONYMOUS_CLIENT + caller.audience
    return KeyScope(
        client=client, principal=caller.subject or "", target=request.subject, key=key, holder=caller_key
    )
