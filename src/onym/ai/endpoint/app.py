"""`Endpoint`: the resources of an authority as an ASGI application (AIIP/HTTPS v1, 3.6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from onym._lazy import require_extra
from onym.ai.endpoint import responses
from onym.ai.endpoint._request_pipeline import RequestPipeline
from onym.ai.endpoint.context import Answer, Authorization, Limits, ResourceHandler
from onym.ai.endpoint.functions import FunctionHandler
from onym.ai.endpoint.idempotency import IdempotencyStore, SQLiteIdempotencyStore, StoreClaim
from onym.ai.endpoint.policy import ApprovalChecker, load_policies
from onym.ai.endpoint.sender import BOUND_EFFECTS
from onym.ai.endpoint.signing import FleetKeys, ReceiptSigner
from onym.ai.endpoint.tasks import is_task_path
from onym.ai.messages import parse_request_head
from onym.ai.records import JSON, Approver, Auth, Effects, Level, Requirements
from onym.ai.telemetry import Telemetry, resolve_telemetry
from onym.errors import AIIPError, ConfigError, OnymError, URIError, UsageError
from onym.net.config import NetConfig
from onym.net.oauth import SCOPE
from onym.sign.keys import Signer
from onym.sign.keystore import KeyStore
from onym.sign.sealing import SealingSecrets
from onym.store.postgres import is_postgres_url
from onym.store.shared import SharedStore
from onym.uri.ai import AIURI
from onym.uri.generic import URI
from onym.uri.secret import Secret

_LOG: Final = logging.getLogger("onym.ai.endpoint")
_PREFIX: Final = f"{responses.PREFIX}/".encode()
#: it must fit into a quoted string, in a list with spaces (RFC 9470 3)
_ACR: Final = SCOPE
F = TypeVar("F", bound=Callable[..., Any])


class Endpoint:
    """The resources of `authority` ("factory.example", "factory.example:8443") as an ASGI app.

    `keys` sign the responses: a KeyStore, its folder, the FleetKeys of several machines, or one Signer; you
    can also pass them to `sign_with`.
    `anchor` is the https origin that is the authority's trust anchor: a DNS name has its own, a registry name
    ("factory") needs this argument. `authorization` authenticates callers; None allows all callers. `policy`
    contains Cedar policies, as text or as a Path; without a `permit`, financial and physical effects are
    rejected. `store` is the SQLite file of idempotency keys and tasks, which every resource with effects
    needs; all processes that serve the authority must use the same one. For several machines it is the URL of
    a PostgreSQL database, `postgresql://USER@HOST/DATABASE`. It can also be another `IdempotencyStore`, which
    you close yourself. `origins` are other web origins that may point here. `pin_max_age` is the number of
    seconds for which clients treat a weaker discovery document as an attack. With `signed_metadata`, the
    discovery document is signed too. `approvers` are the gateways and other services that may approve calls
    (at most 8); `network` decides how their key sets are reached. `clock` returns seconds since the epoch.
    `telemetry` reports requests; the default is that of `ONYM_TELEMETRY=1`.

    Raises ConfigError for unusable policies or an unusable store, UsageError for an invalid name.

        app = Endpoint("factory.example", keys="keys")

        @app.resource("/tool/add")
        def add(a: int, b: int) -> int:
            return a + b
    """

    def __init__(
        self,
        authority: str,
        *,
        keys: KeyStore | FleetKeys | Signer | str | Path | None = None,
        anchor: str | None = None,
        title: str | None = None,
        authorization: Authorization | None = None,
        policy: str | Path | None = None,
        store: str | Path | Secret | IdempotencyStore | None = None,
        pin_max_age: int = 0,
        origins: Iterable[str] = (),
        signed_metadata: bool = False,
        approvers: Iterable[Approver] = (),
        network: NetConfig | None = None,
        clock: Callable[[], float] = time.time,
        limits: Limits | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        require_extra("joserfc", "ai")  # fail now, not when the first response is signed
        self.authority = _validate_authority(authority)
        self.anchor = _validate_anchor(authority, anchor)
        self.title = title
        self.limits = limits or Limits()
        self._store = _read_store(store)
        self._claim: StoreClaim | None = None
        self._proofs: SharedStore | None = None
        self._has_tasks = False
        host = self.anchor.removeprefix("https://")
        #: the accepted values of Host
        self._hosts = frozenset({host} if ":" in host else {host, f"{host}:443"})
        self._clock = clock
        self._authorization = authorization
        self._approvals = ApprovalChecker(approvers, network, clock, time.monotonic)
        self._policies = load_policies(authority, policy)
        self._require_approvable()
        self._site = responses.Site(
            anchor=self.anchor,
            authority=authority,
            protected=None if authorization is None else self._build_metadata(authorization),
            origins=tuple(origins),
            pin_max_age=pin_max_age,
            requirements=_get_requirements(authorization),
            signed=signed_metadata,
            approvers=self._approvals.approvers,
        )
        self._exchanges = RequestPipeline(
            site=self._site,
            signing=ReceiptSigner(self.anchor, None, clock),
            authorization=authorization,
            policies=self._policies,
            approvals=self._approvals,
            limits=self.limits,
            clock=clock,
            telemetry=resolve_telemetry(telemetry),
        )
        self._threads: ThreadPoolExecutor | None = None
        if keys is not None:
            self.sign_with(keys)

    def sign_with(self, keys: KeyStore | FleetKeys | Signer | str | Path) -> None:
        """Sign with these keys from now on: a KeyStore, its folder, FleetKeys, or one Signer."""
        keys = KeyStore(keys) if isinstance(keys, str | Path) else keys
        self._exchanges.sign_with(ReceiptSigner(self.anchor, keys, self._clock))
        self._site.keys_age = int(getattr(keys, "max_age", self._site.keys_age))

    def share_proofs(self, store: SharedStore, secrets: SealingSecrets) -> None:
        """Share used DPoP proofs and nonces with all processes that have this store and these secrets.

        The endpoint closes the store when it is closed. Raises ConfigError `config.no-authorization` if its
        authorization does not verify proofs.
        """
        share = getattr(self._authorization, "share_proofs", None)
        if share is None:
            raise ConfigError(
                "the endpoint verifies no DPoP proofs, so it has none to share",
                code="config.no-authorization",
                hint="Pass Endpoint(..., authorization=JWTAuthorization(...)), or do not share proofs.",
            )
        share(store, secrets)
        self._proofs = store

    def check(self) -> None:
        """Raise ConfigError if this endpoint cannot respond: without a signing key or a usable store."""
        try:
            self._exchanges.signing.get_signer()
        except AIIPError as error:
            reason = error.__cause__
            detail = reason.message if isinstance(reason, OnymError) else reason
            hint = reason.hint if isinstance(reason, OnymError) else None
            raise ConfigError(
                "the endpoint has no signing key" + ("" if reason is None else f": {detail}"),
                code="config.no-keys",
                hint=hint or "Run: onym ai keys new DIR, then pass Endpoint(..., keys=DIR) or --keys DIR.",
            ) from None
        self._open_store()

    def require_shared(self) -> None:
        """Raise ConfigError `config.not-shared` if several processes could not serve this endpoint together.

        That is so if the used DPoP proofs, or the secrets of their nonces, are in the memory of one process.
        """
        require: Any = getattr(self._authorization, "require_shared", None)
        if require is not None:
            require()

    @property
    def shared_identity(self) -> tuple[str, str]:
        """The names of the keys and of the store, which all processes of the authority have in common."""
        self._open_store()
        keys, store = self._exchanges.signing.keys, self._exchanges.store
        name = str(keys.path.resolve()) if isinstance(keys, KeyStore) else getattr(keys, "kid", None)
        return str(name), "" if store is None or self._store is None else store.identity

    def resource(
        self,
        path: str,
        *,
        effects: str | Effects = Effects.READ,
        scopes: Iterable[str] = (),
        title: str | None = None,
        idempotency: bool | None = None,
        media_type: str | None = None,
        reversible: bool = False,
        task: bool = False,
        acr_values: Iterable[str] = (),
        max_age: int | None = None,
    ) -> Callable[[F], F]:
        """Publish a function as a resource. The decorator returns the function unchanged.

        Input is passed by parameter name. A synchronous function runs in a thread, a coroutine in the event
        loop; a generator returns a stream. A parameter of the type `Call` gets the call itself. `media_type`
        is that of a result of type bytes or str. `reversible` promises that `write` effects can be undone, so
        that a gateway does not ask people to review every call. With `task`, a caller may let the call run as
        a long task; a parameter of the type `Task` (of a plain function: `ThreadTask`) reports progress,
        stores checkpoints and asks for input. `acr_values` and `max_age` (seconds) demand a strong and recent
        sign-in of the person behind the access token (RFC 9470). Raises UsageError for a function whose type
        hints are missing or have no JSON form, and what `add` raises.
        """
        responses.build_resource_uri(
            self.authority, path
        )  # now, because without parentheses `decorate` never runs

        def decorate(function: F) -> F:
            handler = FunctionHandler(function, media_type=media_type, executor=self._get_executor)
            self.add(
                path,
                handler,
                effects=effects,
                scopes=scopes,
                title=title,
                idempotency=idempotency,
                reversible=reversible,
                task=task,
                acr_values=acr_values,
                max_age=max_age,
            )
            return function

        return decorate

    def add(
        self,
        path: str,
        handler: ResourceHandler,
        *,
        effects: str | Effects = Effects.READ,
        scopes: Iterable[str] = (),
        title: str | None = None,
        idempotency: bool | None = None,
        reversible: bool = False,
        task: bool = False,
        acr_values: Iterable[str] = (),
        max_age: int | None = None,
    ) -> None:
        """Publish a handler as a resource. With `idempotency`, a read-only resource requires a key too.

        `reversible` is only for `write` effects. With `task`, a call may run as a long task. Raises
        UsageError for a path that is not canonical, for unknown effects, for a resource with idempotency keys
        or tasks if the endpoint has no `store`, for a function that is a stream of events and a task, and for
        a resource that no caller could use: it demands a sign-in but the endpoint has no `authorization`, or
        it has financial or physical effects and no token can be bound to its sender.
        """
        try:
            kind = Effects(effects)
        except ValueError:
            raise UsageError(f"{effects!r} is not one of the effects {', '.join(Effects)}") from None
        if reversible and kind is not Effects.WRITE:
            raise UsageError(f"reversible=True is for write effects, not for {kind.value} effects")
        keyed = kind in responses.KEYED_EFFECTS if idempotency is None else idempotency
        if kind in responses.KEYED_EFFECTS and not keyed:
            raise UsageError(f"{kind.value} effects need idempotency keys (AIIP/HTTPS v1 3.11)")
        if keyed and self._store is None:
            message = f"{path} needs idempotency keys, but the endpoint has no store for them"
            raise UsageError(message, hint='Pass a file: Endpoint(..., store="keys.sqlite").')
        if task and self._store is None:
            message = f"{path} runs as a task, but the endpoint has no store for tasks"
            raise UsageError(message, hint='Pass a file: Endpoint(..., store="keys.sqlite").')
        if task and getattr(handler, "streams", False):
            message = f"{path} returns a stream of events, which cannot be the result of a task"
            raise UsageError(message, hint="Return one result, and report progress with task.progress.")
        self._has_tasks = self._has_tasks or task
        uri = str(responses.build_resource_uri(self.authority, path))
        wanted = tuple([acr_values] if isinstance(acr_values, str) else acr_values)
        self._require_usable(path, kind, asks_sign_in=bool(wanted) or max_age is not None)
        self._site.add(
            responses.Resource(
                uri=uri,
                handler=handler,
                title=title or handler.describe().get("title"),
                effects=kind,
                scopes=tuple(scopes),
                idempotency=keyed,
                accepts=str(getattr(handler, "accepts", JSON)),
                approval=self._policies.may_need_approval(uri, kind),
                reversible=reversible,
                task=task,
                acr_values=_validate_acr_values(wanted),
                max_age=_validate_max_age(max_age),
            )
        )

    def _build_metadata(self, authorization: Authorization) -> dict[str, Any]:
        """Return the resource's metadata; if it sends challenges, with the keys that sign them."""
        challenges = (
            {"txn_challenge_jwks_uri": self.anchor + responses.JWKS} if self._approvals.approvers else {}
        )
        return {**authorization.metadata(), **challenges}

    def _require_approvable(self) -> None:
        """Raise ConfigError if the policy demands approvals that nobody could give, or that nobody spends."""
        if not self._policies.approvals:
            return
        message = "the Cedar policies demand approvals (@approval), but the endpoint has no"
        if not self._approvals.approvers:
            hint = "Pass approvers=[Approver(issuer=..., jwks=...)], such as your gateway."
            raise ConfigError(f"{message} approvers", code="config.no-approvers", hint=hint)
        if self._store is None:
            hint = 'Pass a file: Endpoint(..., store="keys.sqlite").'
            raise ConfigError(f"{message} store in which they are spent", code="config.bad-store", hint=hint)

    def _require_usable(self, path: str, effects: Effects, *, asks_sign_in: bool) -> None:
        """Raise UsageError for a resource that would reject every caller."""
        if asks_sign_in and self._authorization is None:
            message = f"{path} demands a sign-in, but the endpoint has no authorization"
            raise UsageError(message, hint="Pass Endpoint(..., authorization=JWTAuthorization(...)).")
        required = getattr(self._authorization, "requirements", None)
        if not isinstance(required, Requirements) or effects not in BOUND_EFFECTS:
            return
        if required.dpop is Level.NONE and not required.mtls:
            raise UsageError(
                f"{path} has {effects.value} effects, for which access tokens must be bound to their sender",
                hint='Pass JWTAuthorization(..., dpop="supported"), or mtls=True.',
            )

    @property
    def resources(self) -> tuple[responses.Resource, ...]:
        """The resources, in the order in which they were added."""
        return tuple(self._site.resources.values())

    @property
    def requirements(self) -> Requirements:
        """What callers must do, as the discovery document says it."""
        return self._site.requirements

    def handler(self, uri: str) -> ResourceHandler | None:
        """Return the handler of this canonical URI without a query, or None."""
        resource = self._site.resources.get(uri)
        return None if resource is None else resource.handler

    async def __call__(self, scope: Any, receive: responses.Receive, send: responses.Send) -> None:
        """Serve one request, or the lifespan of the app."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            self._open_store()
            if self._exchanges.tasks is not None:
                self._exchanges.tasks.runner.ensure_watching()
            await self._serve_http(scope, receive, send)

    async def _serve_http(self, scope: Any, receive: responses.Receive, send: responses.Send) -> None:
        answer, close = None, False
        try:
            request = parse_request_head(scope, self._hosts)
            if is_task_path(request.raw_path):
                await self._exchanges.serve_task(request, receive, send, scope.get("client"))
                return
            if not request.raw_path.startswith(_PREFIX):
                answer = self._find_document(request.method, request.raw_path, request.query)
                answer = responses.apply_if_none_match(answer, request.headers.get_all("if-none-match"))
        except OnymError as error:
            answer = self._exchanges.make_problem(error, None)
            close = answer.status == 400  # the end of the request may be unclear
        if answer is None:
            await self._exchanges.serve(request, receive, send, scope.get("client"))
        else:
            await responses.send_answer(send, answer, head=scope["method"] == "HEAD", close=close)

    def _find_document(self, method: str, raw_path: bytes, query: bytes) -> Answer:
        """Return a document of the anchor. Documents are not signed; TLS protects them."""
        path, text = raw_path.decode("latin-1"), query.decode("latin-1")
        document = self._site.find_document(path, text, self._exchanges.signing)
        if document is None:
            raise AIIPError("the path does not name a document", code="aiip.endpoint-unknown")
        if method not in {"GET", "HEAD"}:
            error = AIIPError("a document supports only GET and HEAD", code="aiip.method-not-allowed")
            return replace(self._exchanges.make_problem(error, None), headers=(("Allow", "GET, HEAD"),))
        return document

    async def _run_lifespan(self, receive: responses.Receive, send: responses.Send) -> None:
        """Check keys and store at startup, and close the endpoint at shutdown."""
        await receive()
        try:
            self.check()
        except ConfigError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        if self._exchanges.tasks is not None:
            self._exchanges.tasks.runner.ensure_watching()  # of an earlier process, which may have crashed
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    def _open_store(self) -> None:
        exchanges = self._exchanges
        if exchanges.store is None:
            exchanges.store = self._make_store()
        if self._has_tasks and exchanges.tasks is None:
            exchanges.open_tasks(exchanges.store.open_tasks(self._clock))

    def _make_store(self) -> IdempotencyStore:
        store: IdempotencyStore
        limits = self.limits
        if isinstance(self._store, Secret):
            from onym.ai.endpoint.postgres import PostgresIdempotencyStore  # late: few endpoints need it

            store = PostgresIdempotencyStore(
                self._store,
                most=limits.keys,
                size=limits.kept,
                total=limits.kept_total,
                clock=self._clock,
            )
        elif self._store is not None and not isinstance(self._store, Path):
            store = self._store
        else:
            store = SQLiteIdempotencyStore(
                self._store, most=limits.keys, size=limits.kept, total=limits.kept_total
            )
        keys = self._exchanges.signing.keys
        if self._store is not None and isinstance(keys, KeyStore):
            try:
                self._claim = StoreClaim(keys.path, self.authority, store.identity)
            except ConfigError:
                self._close_store(store)
                raise
        return store

    def _close_store(self, store: IdempotencyStore | None) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.close()
        if store is not None and store is not self._store:
            store.close()

    def _get_executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = _ContextThreadPool(self.limits.threads, thread_name_prefix="onym-resource")
        return self._threads

    async def aclose(self) -> None:
        """Close the endpoint, its shared store, and what has a coroutine `close`: handlers, authorization."""
        parts = [
            self._authorization,
            self._proofs,
            self._approvals,
            *(resource.handler for resource in self.resources),
        ]
        for part in {id(part): part for part in parts}.values():
            end: Any = getattr(part, "close", None)
            if end is not None:
                try:
                    await end()
                except Exception as error:  # noqa: BLE001 - the others must be closed too
                    _LOG.warning("%s could not be closed: %s", type(part).__name__, type(error).__name__)
        self.close()

    def close(self) -> None:
        """Close threads and store; the next request opens them again."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
        self._exchanges.close_tasks()
        store, self._exchanges.store = self._exchanges.store, None
        self._close_store(store)


class _ContextThreadPool(ThreadPoolExecutor):
    """A thread pool whose work runs in the context of its submitter, as in asyncio."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        return super().submit(copy_context().run, work, *args, **named)


def _read_store(
    store: str | Path | Secret | IdempotencyStore | None,
) -> Path | Secret | IdempotencyStore | None:
    if is_postgres_url(store):
        return store if isinstance(store, Secret) else Secret(str(store))
    if isinstance(store, Secret):
        raise UsageError(
            "store is not the URL of a PostgreSQL database", hint="Write postgresql://HOST/NAME."
        )
    return Path(store) if isinstance(store, str) else store


def _get_requirements(authorization: Authorization | None) -> Requirements:
    """Return what the endpoint demands of callers, for its discovery document."""
    if authorization is None:
        return Requirements()
    found = getattr(authorization, "requirements", None)
    return found if isinstance(found, Requirements) else Requirements(auth=Auth.OAUTH2)


def _validate_acr_values(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(_ACR.fullmatch(value) for value in values):
        raise UsageError("an item of acr_values has spaces, quotes or unprintable characters")
    return values


def _validate_max_age(seconds: int | None) -> int | None:
    if seconds is not None and seconds < 0:
        raise UsageError(f"max_age={seconds!r} is not a number of seconds")
    return seconds


def _validate_authority(authority: str) -> str:
    if "/" in authority:
        hint = "Pass a name, and a port if it is not 443: factory.example:8443."
        raise UsageError(f"{authority!r} is not an authority", hint=hint)
    try:
        canonical = AIURI.parse(f"ai://{authority}/").canonical()
    except URIError as error:
        message = f"{authority!r} is not a valid authority of an ai URI: {error.message}"
        raise UsageError(message, hint=error.hint) from None
    if canonical != f"ai://{authority}/":
        raise UsageError(f"{authority!r} is not in canonical form", hint=f"Write {canonical[5:-1]}.")
    return authority


def _validate_anchor(authority: str, anchor: str | None) -> str:
    if anchor is None:
        if "." not in authority.partition(":")[0]:
            hint = 'Pass an https origin: Endpoint(..., anchor="https://ai.example").'
            raise UsageError(f"{authority} is a registry name and needs an anchor", hint=hint)
        return f"https://{authority}"
    uri = URI.parse(anchor)
    origin = uri.scheme == "https" and anchor == f"https://{uri.authority}" and uri.userinfo is None
    if not origin or str(uri.normalize()) != f"{anchor}/":
        hint = "Write an anchor in lower case, without a path and without :443: https://ai.example."
        raise UsageError(f"{anchor!r} is not an https origin", hint=hint)
    return anchor
