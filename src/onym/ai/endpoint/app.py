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
from onym.ai.endpoint._request_pipeline import RequestPipeline
from onym.ai.endpoint._runner import StoreThread
from onym.ai.endpoint.context import Answer, Authorization, Limits, ResourceHandler
from onym.ai.endpoint.functions import FunctionHandler
from onym.ai.endpoint.idempotency import IdempotencyStore
from onym.ai.endpoint.policy import load_policies
from onym.ai.endpoint.resources import (
    KEYED_EFFECTS,
    PREFIX,
    Resource,
    Site,
    apply_if_none_match,
    build_resource_uri,
)
from onym.ai.endpoint.responses import Receive, Send, send_answer
from onym.ai.endpoint.signing import ReceiptSigner
from onym.ai.records import JSON, Effects
from onym.ai.request_validation import parse_request_head
from onym.ai.telemetry import Telemetry, resolve_telemetry
from onym.errors import AIIPError, ConfigError, OnymError, URIError, UsageError
from onym.sign.keys import Signer
from onym.sign.keystore import KeyStore
from onym.uri.ai import AIURI
from onym.uri.generic import URI

_LOG: Final = logging.getLogger("onym.ai.endpoint")
_PREFIX: Final = f"{PREFIX}/".encode()
F = TypeVar("F", bound=Callable[..., Any])


class Endpoint:
    """The resources of `authority` ("factory.example", "factory.example:8443") as an ASGI app.

    `keys` sign the responses: a KeyStore, its folder, or one Signer; you can also pass them to `sign_with`.
    `anchor` is the https origin that is the authority's trust anchor: a DNS name has its own, a registry name
    ("factory") needs this argument. `authorization` authenticates callers; None allows all callers. `policy`
    contains Cedar policies, as text or as a Path; without a `permit`, financial and physical effects are
    rejected. `store` is the SQLite file of idempotency keys, which every resource with effects needs.
    `origins` are other web origins that may point here. `pin_max_age` is the number of seconds for which
    clients treat a weaker discovery document as an attack. With `signed_metadata`, the discovery document is
    signed too. `clock` returns seconds since the epoch. `telemetry` reports requests; the default is that of
    `ONYM_TELEMETRY=1`.

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
        keys: KeyStore | Signer | str | Path | None = None,
        anchor: str | None = None,
        title: str | None = None,
        authorization: Authorization | None = None,
        policy: str | Path | None = None,
        store: str | Path | None = None,
        pin_max_age: int = 0,
        origins: Iterable[str] = (),
        signed_metadata: bool = False,
        clock: Callable[[], float] = time.time,
        limits: Limits | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        require_extra("joserfc", "ai")  # fail now, not when the first response is signed
        self.authority = _validate_authority(authority)
        self.anchor = _validate_anchor(authority, anchor)
        self.title = title
        self.limits = limits or Limits()
        self._store = None if store is None else Path(store)
        host = self.anchor.removeprefix("https://")
        #: the accepted values of Host
        self._hosts = frozenset({host} if ":" in host else {host, f"{host}:443"})
        self._clock = clock
        self._authorization = authorization
        self._site = Site(
            anchor=self.anchor,
            authority=authority,
            protected=None if authorization is None else dict(authorization.metadata()),
            origins=tuple(origins),
            pin_max_age=pin_max_age,
            signed=signed_metadata,
        )
        self._exchanges = RequestPipeline(
            site=self._site,
            signing=ReceiptSigner(self.anchor, None, clock),
            authorization=authorization,
            policies=load_policies(authority, policy),
            limits=self.limits,
            clock=clock,
            telemetry=resolve_telemetry(telemetry),
        )
        self._threads: ThreadPoolExecutor | None = None
        if keys is not None:
            self.sign_with(keys)

    def sign_with(self, keys: KeyStore | Signer | str | Path) -> None:
        """Sign with these keys from now on: a KeyStore, its folder, or one Signer."""
        keys = KeyStore(keys) if isinstance(keys, str | Path) else keys
        self._exchanges.sign_with(ReceiptSigner(self.anchor, keys, self._clock))
        self._site.keys_age = int(getattr(keys, "max_age", self._site.keys_age))

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

    def resource(
        self,
        path: str,
        *,
        effects: str | Effects = Effects.READ,
        scopes: Iterable[str] = (),
        title: str | None = None,
        idempotency: bool | None = None,
        media_type: str | None = None,
    ) -> Callable[[F], F]:
        """Publish a function as a resource. The decorator returns the function unchanged.

        Input is passed by parameter name. A synchronous function runs in a thread, a coroutine in the event
        loop; a generator returns a stream. A parameter of the type `Call` gets the call itself. `media_type`
        is that of a result of type bytes or str. Raises UsageError for a function whose type hints are
        missing or have no JSON form, and what `add` raises.
        """
        build_resource_uri(self.authority, path)  # now, because without parentheses `decorate` never runs

        def decorate(function: F) -> F:
            handler = FunctionHandler(function, media_type=media_type, executor=self._get_executor)
            self.add(path, handler, effects=effects, scopes=scopes, title=title, idempotency=idempotency)
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
    ) -> None:
        """Publish a handler as a resource. With `idempotency`, a read-only resource requires a key too.

        Raises UsageError for a path that is not canonical, for unknown effects, and for a resource that needs
        idempotency keys if the endpoint has no `store`.
        """
        try:
            kind = Effects(effects)
        except ValueError:
            raise UsageError(f"{effects!r} is not one of the effects {', '.join(Effects)}") from None
        keyed = kind in KEYED_EFFECTS if idempotency is None else idempotency
        if kind in KEYED_EFFECTS and not keyed:
            raise UsageError(f"{kind.value} effects need idempotency keys (AIIP/HTTPS v1 3.11)")
        if keyed and self._store is None:
            message = f"{path} needs idempotency keys, but the endpoint has no store for them"
            raise UsageError(message, hint='Pass a file: Endpoint(..., store="keys.sqlite").')
        self._site.add(
            Resource(
                uri=str(build_resource_uri(self.authority, path)),
                handler=handler,
                title=title or handler.describe().get("title"),
                effects=kind,
                scopes=tuple(scopes),
                idempotency=keyed,
                accepts=str(getattr(handler, "accepts", JSON)),
            )
        )

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources, in the order in which they were added."""
        return tuple(self._site.resources.values())

    def handler(self, uri: str) -> ResourceHandler | None:
        """Return the handler of this canonical URI without a query, or None."""
        resource = self._site.resources.get(uri)
        return None if resource is None else resource.handler

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan of the app."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            self._open_store()
            await self._serve_http(scope, receive, send)

    async def _serve_http(self, scope: Any, receive: Receive, send: Send) -> None:
        answer, close = None, False
        try:
            request = parse_request_head(scope, self._hosts)
            if not request.raw_path.startswith(_PREFIX):
                answer = self._find_document(request.method, request.raw_path, request.query)
                answer = apply_if_none_match(answer, request.headers.get_all("if-none-match"))
        except OnymError as error:
            answer = self._exchanges.make_problem(error, None)
            close = answer.status == 400  # the end of the request may be unclear
        if answer is None:
            await self._exchanges.serve(request, receive, send, scope.get("client"))
        else:
            await send_answer(send, answer, head=scope["method"] == "HEAD", close=close)

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

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Check keys and store at startup, and close the endpoint at shutdown."""
        await receive()
        try:
            self.check()
        except ConfigError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    def _open_store(self) -> None:
        if self._exchanges.store is None:
            limits = self.limits
            self._exchanges.store = StoreThread(
                IdempotencyStore(self._store, most=limits.keys, size=limits.kept, total=limits.kept_total)
            )

    def _get_executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = _ContextThreadPool(self.limits.threads, thread_name_prefix="onym-resource")
        return self._threads

    async def aclose(self) -> None:
        """Close the endpoint, and the handlers and the authorization that have a coroutine `close`."""
        parts = [self._authorization, *(resource.handler for resource in self.resources)]
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
        self._exchanges.close()


class _ContextThreadPool(ThreadPoolExecutor):
    """A thread pool whose work runs in the context of its submitter, as in asyncio."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        return super().submit(copy_context().run, work, *args, **named)


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
