"""`Endpoint`: the resources of an authority as an ASGI application (AIIP/HTTPS v1, 3.6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from onym._lazy import require_extra
from onym.ai.content import JSON
from onym.ai.endpoint._request_pipeline import RequestPipeline
from onym.ai.endpoint.context import Answer, Limits
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
from onym.ai.records import Effects
from onym.ai.request_validation import parse_request_head
from onym.ai.telemetry import resolve_telemetry
from onym.errors import AIIPError, ConfigError, OnymError, URIError, UsageError
from onym.uri.ai import AIURI
from onym.uri.generic import URI

if TYPE_CHECKING:
    from onym.ai.endpoint.context import Authorization, ResourceHandler
    from onym.ai.telemetry import Telemetry
    from onym.sign.keys import Signer
    from onym.sign.keystore import KeyStore

_LOG: Final = logging.getLogger("onym.ai.endpoint")
F = TypeVar("F", bound=Callable[..., Any])


class Endpoint:
    """The resources of `authority` ("factory.example", "factory.example:8443") as an ASGI app.

    `keys` sign what is answered: a KeyStore, its folder, or one Signer; None leaves them to `sign_with`.
    `anchor` is the https origin that speaks for the authority: for a DNS name its own, for a registry name
    ("factory") to be given. `authorization` says who may call, None lets anybody. `policy` are Cedar
    policies, as text or as a Path: without a `permit`, financial and physical effects are refused. `store`
    is the SQLite file of idempotency keys, needed by every resource that does more than read. `origins` are
    other web origins that may point here, `pin_max_age` the seconds for which others shall take a weaker
    anchor document for an attack. With `signed_metadata`, the anchor document is signed, too. `clock` gives
    seconds since the epoch. `telemetry` reports what is asked; without it only `ONYM_TELEMETRY=1` does.

    Raises ConfigError for policies or a store that cannot be used, UsageError for a wrong name.

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
        require_extra("joserfc", "ai")  # now, and not when the first answer is signed
        self.authority = _validate_authority(authority)
        self.anchor = _validate_anchor(authority, anchor)
        self.title = title
        self.limits = limits or Limits()
        self._store = None if store is None else Path(store)
        self._hosts = _list_hosts(self.anchor)
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
        if isinstance(keys, str | Path):
            from onym.sign.keystore import KeyStore

            keys = KeyStore(keys)
        self._exchanges.sign_with(ReceiptSigner(self.anchor, keys, self._clock))
        self._site.keys_age = int(getattr(keys, "max_age", self._site.keys_age))

    def check(self) -> None:
        """Raises ConfigError where this endpoint could not answer: no key that signs, or no usable store."""
        try:
            self._exchanges.signing.get_signer()
        except AIIPError as error:
            reason = error.__cause__
            told = reason.message if isinstance(reason, OnymError) else reason
            hint = reason.hint if isinstance(reason, OnymError) else None
            raise ConfigError(
                "the endpoint has no key to sign with" + ("" if reason is None else f": {told}"),
                code="config.no-keys",
                hint=hint or "onym ai keys new DIR makes one; Endpoint(..., keys=DIR) or --keys DIR",
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
        """Make a function a resource. It is called by the names of its parameters, and stays what it was.

        A plain function runs in a thread, a coroutine in the loop; a generator answers with a stream.
        A parameter of the type `Call` is given the call itself. `media_type` is that of a result of bytes or
        str. Raises UsageError for a function whose type hints are missing or have no JSON form, and as `add`.
        """
        build_resource_uri(self.authority, path)  # now: without parentheses nobody would call `decorate`

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
        """Make a handler a resource. `idempotency` asks for a key on a resource that only reads, too.

        Raises UsageError for a path that is no canonical one, for effects that are not known, for resources
        that need idempotency keys where the endpoint has no `store`.
        """
        kind = _parse_effects(effects)
        keyed = kind in KEYED_EFFECTS if idempotency is None else idempotency
        if kind in KEYED_EFFECTS and not keyed:
            raise UsageError(f"{kind.value} effects need idempotency keys (AIIP/HTTPS v1 3.11)")
        if keyed and self._store is None:
            raise UsageError(
                "idempotency keys must outlive the process", hint='Endpoint(..., store="keys.sqlite")'
            )
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
        """What is served, in the order in which it was added."""
        return tuple(self._site.resources.values())

    def handler(self, uri: str) -> ResourceHandler | None:
        """What stands behind this canonical URI without a query; None where nothing does."""
        found = self._site.resources.get(uri)
        return None if found is None else found.handler

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the app."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            self._open_store()
            await self._serve_http(scope, receive, send)

    async def _serve_http(self, scope: Any, receive: Receive, send: Send) -> None:
        head, close = scope["method"] == "HEAD", False
        try:
            asked = parse_request_head(scope, self._hosts)
            found = None
            if not asked.raw_path.startswith(PREFIX.encode() + b"/"):
                found = self._find_document(asked.method, asked.raw_path, asked.query)
                found = apply_if_none_match(found, asked.headers.get_all("if-none-match"))
        except OnymError as error:
            found = self._exchanges.make_problem(error, None)
            close = found.status == 400  # where one request ends and the next begins may be what is wrong
        if found is None:
            await self._exchanges.serve(asked, receive, send, scope.get("client"))
        else:
            await send_answer(send, found, head=head, close=close)

    def _find_document(self, method: str, raw_path: bytes, query: bytes) -> Answer:
        """What is not a resource: the anchor's own documents. They are not signed, TLS is their proof."""
        path, text = raw_path.decode("latin-1"), query.decode("latin-1")
        found = self._site.find_document(path, text, self._exchanges.signing)
        if found is None:
            raise AIIPError("there is nothing at this address", code="aiip.endpoint-unknown")
        if method not in {"GET", "HEAD"}:
            answer = self._exchanges.make_problem(
                AIIPError("this is a document: GET reads it", code="aiip.method-not-allowed"), None
            )
            return replace(answer, headers=(("Allow", "GET, HEAD"),))
        return found

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Open the store at the start, where a failure is told; close it at the end."""
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
            self._exchanges.store = IdempotencyStore(
                self._store, most=self.limits.keys, octets=self.limits.kept, total=self.limits.kept_total
            )

    def _get_executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = _ContextThreadPool(self.limits.threads, thread_name_prefix="onym-resource")
        return self._threads

    async def aclose(self) -> None:
        """`close`, and the end of the handlers and the authorization that have a coroutine `close` too."""
        held = [self._authorization, *(resource.handler for resource in self.resources)]
        for part in {id(part): part for part in held}.values():
            end: Any = getattr(part, "close", None)
            if end is not None:
                try:
                    await end()
                except Exception as error:  # noqa: BLE001 - the others are closed all the same
                    _LOG.warning("%s could not be closed: %s", type(part).__name__, type(error).__name__)
        self.close()

    def close(self) -> None:
        """Let go of threads and store; what is asked next opens them again."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
        self._exchanges.close()


class _ContextThreadPool(ThreadPoolExecutor):
    """Threads that know the context that they were sent from, as those of asyncio do."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        return super().submit(copy_context().run, work, *args, **named)


def _validate_authority(authority: str) -> str:
    if "/" in authority:
        raise UsageError(
            "an authority is a name, with a port where that is not 443", hint="factory.example:8443"
        )
    try:
        uri = AIURI.parse(f"ai://{authority}/")
        canonical = uri.canonical()
    except URIError as error:
        raise UsageError(f"this is no authority of an ai URI: {error.message}", hint=error.hint) from None
    if canonical != f"ai://{authority}/":
        raise UsageError("the authority has another spelling", hint=canonical[5:-1])
    return authority


def _validate_anchor(authority: str, anchor: str | None) -> str:
    if anchor is None:
        if "." not in authority.partition(":")[0]:
            raise UsageError(
                f"{authority} is a registry name, which has its anchor elsewhere",
                hint='Endpoint(..., anchor="https://ai.example")',
            )
        return f"https://{authority}"
    uri = URI.parse(anchor)
    origin = uri.scheme == "https" and anchor == f"https://{uri.authority}" and uri.userinfo is None
    if not origin or str(uri.normalize()) != f"{anchor}/":
        raise UsageError(
            "an anchor is an https origin",
            hint="https://ai.example, in lower case, without a path and without :443",
        )
    return anchor


def _list_hosts(anchor: str) -> frozenset[str]:
    """Return the values of Host that the endpoint accepts: the anchor's host, with its port unless it is 443."""
    host = anchor.removeprefix("https://")
    return frozenset({host} if ":" in host else {host, f"{host}:443"})


def _parse_effects(effects: str | Effects) -> Effects:
    try:
        return Effects(effects)
    except ValueError:
        raise UsageError(f"effects are one of {', '.join(Effects)}") from None
