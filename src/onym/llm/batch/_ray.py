"""The engine of a Ray cluster (the extra `ray`): actors on every node send requests, this process writes.

Each actor runs the local engine over rows that are leased to it; if it dies, its rows go to another. Actors
receive the key in a call, and Ray does not store it: it is as safe as the cluster's traffic (RAY_USE_TLS=1).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.errors import OnymError, UsageError
from onym.llm.batch._engine import AdaptiveLimiter, Job, Load, LocalEngine, WorkQueue, make_job
from onym.llm.batch._rows import Result
from onym.llm.config import Config
from onym.llm.credentials import hide_environment
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.proxies import ProxyConfig
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.client import AsyncClient

#: the load of an actor, results, and the error that stops the run
_Group: TypeAlias = tuple[Load, list[tuple[Any, ...]], OnymError | None]

#: concurrent requests that one process can handle; above that, more actors start if there are processors
_REQUESTS_PER_ACTOR: Final = 128
#: leases of one actor at a time: the next one starts while the other ends
_LEASES_PER_ACTOR: Final = 2
#: sources of credentials that were passed to the program
_GIVEN_SOURCES: Final = ("userinfo", "argument")
#: the run is given up after so many actors died
_MAX_DEATHS: Final = 20


def require_ray() -> Any:
    """Return the module ray. Raises UsageError if it is not installed."""
    try:
        import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UsageError(
            "the engine ray needs the extra `ray`",
            code="usage.missing-extra",
            hint="Run: pip install 'onym[ray]'",
        ) from None
    return ray


class _Lease:
    """The `WorkQueue` of one lease inside an actor: some rows, and a queue of their results."""

    full = False

    def __init__(self, rows: list[tuple[int, bytes]]) -> None:
        self.stop = asyncio.Event()
        self.results: asyncio.Queue[Result | None] = asyncio.Queue()
        self._rows = deque(rows)

    def next_row(self) -> tuple[int, bytes] | None:
        """Return the next row of the lease."""
        return self._rows.popleft() if self._rows and not self.stop.is_set() else None

    def put_result(self, result: Result) -> None:
        """Queue the result, to be sent back."""
        self.results.put_nowait(result)

    async def wait_for_room(self) -> None:
        """Do nothing: a lease is bounded."""

    async def wait_until_durable(self) -> bool:
        """Return False: results become durable in the driver."""
        return False


class RayWorker:
    """The code of an actor: the engine of one process over leased rows."""

    def __init__(self) -> None:
        self._job: Job
        self._control: AdaptiveLimiter
        self._client: AsyncClient
        self._leases: set[_Lease] = set()

    async def begin(
        self,
        arguments: Mapping[str, Any],
        uri: str,
        key: str | None,
        variable: str | None = None,
        logins: Mapping[str, str] | None = None,
    ) -> None:
        """Create the client. See `_reveal_credentials` for `uri`, `key` and `variable`.

        `logins` are those of `_reveal_logins`.
        """
        profiles = arguments["profiles"]
        rest = {name: value for name, value in arguments.items() if name != "profiles"}
        secrets = {name: Secret(text) for name, text in (logins or {}).items()}
        logins = None
        rest["network"] = _unpack_network(arguments["network"], secrets)
        if variable is not None and key is not None:
            # no frame of a traceback shows its values
            rest["environ"], key = hide_environment({**os.environ, variable: key}), None
        self._job = make_job(**{**rest, "uri": uri, "key": key, "config": Config(profiles=profiles)})
        self._control = AdaptiveLimiter(self._job.concurrency, time.monotonic)
        self._client = self._job.make_client()

    async def answer(self, rows: list[tuple[int, bytes]]) -> AsyncIterator[_Group]:
        """Yield results in groups as they arrive; the last group may contain the error that stops the run."""
        lease = _Lease(rows)
        engine = LocalEngine(self._job, control=self._control, client=self._client)
        self._leases.add(lease)
        task = asyncio.ensure_future(engine.run(lease))
        task.add_done_callback(lambda _: lease.results.put_nowait(None))
        try:
            ended = False
            while not ended:
                group = [await lease.results.get()]
                while not lease.results.empty():
                    group.append(lease.results.get_nowait())
                ended = group[-1] is None
                results = [tuple(result) for result in group if result is not None]
                error = task.exception() if ended else None
                if error is not None and not isinstance(error, OnymError):
                    raise error
                if error is not None:
                    # the error affects the other leases too
                    await self.stop()
                yield self._control.load, results, error
        finally:
            self._leases.discard(lease)
            task.cancel()

    async def stop(self) -> None:
        """Take no more rows; requests in progress are finished."""
        for lease in self._leases:
            lease.stop.set()


class RayEngine:
    """The engine: leases rows to actors, and takes their results."""

    def __init__(self, job: Job) -> None:
        self._ray = require_ray()
        self._job = job
        self._back: deque[tuple[int, bytes]] = deque()
        #: the load of every actor
        self._loads: dict[int, Load] = {}
        self._deaths = 0
        self._fatal: OnymError | None = None
        self._work: WorkQueue
        self._actors: list[Any] = []
        self._given: dict[str, Any] = {}
        self._size = 16

    @property
    def load(self) -> Load:
        """The requests of all nodes; `pause` is the shortest one."""
        loads = self._loads.values()
        return Load(
            sum(load.active for load in loads),
            sum(load.limit for load in loads),
            min((load.pause for load in loads), default=0.0),
        )

    async def run(self, work: WorkQueue) -> None:
        """See `Engine`."""
        ray = self._ray
        self._work = work
        started = not ray.is_initialized()
        if started:
            ray.init(log_to_driver=False, logging_level="error")
        try:
            places = _place_actors(ray, self._job.concurrency)
            share = max(1, self._job.concurrency // len(places))
            self._given = _pack_job(self._job, share)
            self._size = max(16, 4 * share)
            self._actors = [self._start_actor(node) for node in places]
            stopping = asyncio.ensure_future(self._stop_all())
            try:
                async with asyncio.TaskGroup() as group:
                    for at, node in enumerate(places):
                        group.create_task(self._run_actor(at, node))
            finally:
                stopping.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for actor in self._actors:
                ray.kill(actor)
            if started:
                ray.shutdown()
        if self._fatal is not None:
            raise self._fatal

    def _start_actor(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # type: ignore[import-untyped,import-not-found,unused-ignore]

        remote = self._ray.remote(num_cpus=0, max_concurrency=_LEASES_PER_ACTOR + 8)(RayWorker)
        return remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True)).remote()

    async def _run_actor(self, at: int, node: str) -> None:
        """Keep one actor busy, and start another if it dies."""
        while not self._work.stop.is_set():
            try:
                # as arguments of their own: Ray writes large arguments to the object store, and from there to
                # a disk
                await self._actors[at].begin.remote(
                    self._given,
                    *_reveal_credentials(self._job),
                    _reveal_logins(self._job.settled.network),
                )
                # wait for all: rows that one lease returns are taken by the next
                ended = await asyncio.gather(
                    *(self._lease_rows(at) for _ in range(_LEASES_PER_ACTOR)), return_exceptions=True
                )
                for error in ended:
                    if error is not None:
                        raise error
            except self._ray.exceptions.RayActorError:
                self._deaths += 1
                if self._deaths > _MAX_DEATHS:
                    raise UsageError(
                        "the workers of the Ray cluster keep dying", code="usage.ray-workers"
                    ) from None
                self._actors[at] = self._start_actor(node)
            else:
                return

    async def _lease_rows(self, at: int) -> None:
        """Lease rows to the actor at this position until none is left."""
        while rows := await self._next_lease():
            remaining = dict(rows)
            try:
                answers = self._actors[at].answer.options(num_returns="streaming").remote(rows)
                async for reference in answers:
                    self._loads[at], results, error = await reference
                    for result in results:
                        remaining.pop(result[0], None)
                        self._work.put_result(Result(*result))
                    if error is not None:
                        self._fatal = self._fatal or error
                        self._work.stop.set()
            finally:
                # rows of a dead actor, and rows without a result
                self._back.extend(remaining.items())

    async def _next_lease(self) -> list[tuple[int, bytes]]:
        """Return the rows of a lease; returned rows come first."""
        if self._work.full:
            await self._work.wait_for_room()
        rows: list[tuple[int, bytes]] = []
        while len(rows) < self._size and not self._work.stop.is_set():
            row = self._back.popleft() if self._back else self._work.next_row()
            if row is None:
                break
            rows.append(row)
        return rows

    async def _stop_all(self) -> None:
        await self._work.stop.wait()
        for actor in self._actors:
            with suppress(self._ray.exceptions.RayActorError):
                await actor.stop.remote()


def _place_actors(ray: Any, concurrency: int) -> list[str]:
    """Return the nodes of the actors: one per node, and more if one actor cannot handle the concurrency."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    processors = int(sum(node["Resources"].get("CPU", 0) for node in nodes))
    count = min(concurrency, max(len(nodes), min(processors, -(-concurrency // _REQUESTS_PER_ACTOR))))
    return [nodes[at % len(nodes)]["NodeID"] for at in range(count)]


def _pack_job(job: Job, concurrency: int) -> dict[str, Any]:
    """Return the job as arguments of `make_job`, without its URI and key."""
    profile = job.uri.fragment
    profiles = {} if profile is None or profile not in job.config.profiles else job.config.profiles
    return {
        **job.options,
        "policy": job.settled.network.policy,
        "network": _pack_network(job.settled.network),
        "profiles": dict(profiles),
        "providers": job.options["providers"] or job.config.providers,
        "environ": None,
        "overrides": {**job.overrides, "retries": job.retries},
        "concurrency": concurrency,
    }


def _pack_network(network: NetConfig) -> dict[str, Any]:
    """Return the proxy and the TLS settings without their secrets. Every node needs the files they name."""
    proxy = None if network.proxy is None else _select_fields(network.proxy, secret=False)
    return {"proxy": proxy, "tls": _select_fields(network.tls, secret=False)}


def _reveal_logins(network: NetConfig) -> dict[str, str]:
    """Return the login at the proxy and the password of the client's key in clear text, as the key is."""
    logins = {} if network.proxy is None else _select_fields(network.proxy, secret=True)
    logins |= _select_fields(network.tls, secret=True)
    return {name: secret.reveal() for name, secret in logins.items()}


def _select_fields(value: ProxyConfig | TLSConfig, *, secret: bool) -> dict[str, Any]:
    values = {member.name: getattr(value, member.name) for member in fields(value) if member.init}
    return {name: item for name, item in values.items() if isinstance(item, Secret) is secret}


def _unpack_network(packed: Mapping[str, Any], logins: Mapping[str, Secret]) -> NetConfig:
    proxy, tls = packed["proxy"], packed["tls"]
    password = {name: value for name, value in logins.items() if name == "client_key_password"}
    login = {name: value for name, value in logins.items() if name not in password}
    return NetConfig(
        tls=TLSConfig(**{**tls, **password}),
        proxy=None if proxy is None else ProxyConfig(**{**proxy, **login}),
    )


def _reveal_credentials(job: Job) -> tuple[str, str | None, str | None]:
    """Return the URI and the key in clear text, because a `Secret` cannot be pickled, and the key's variable.

    The key is None if each node finds its own (from a credential chain). The other half of a signing pair is
    in the URI. The variable may decide which header carries the key.
    """
    uri = job.uri.without_key()
    credential = job.settled.planner.endpoint.credential
    if credential is None or credential.expires is not None:
        return uri.render(reveal=True), None, None
    kind, _, variable = credential.source.partition(":")
    if kind == "env" and credential.access_id is None:
        uri = uri.with_params(auth=credential.source)
        return uri.render(reveal=True), credential.secret.reveal(), variable
    is_passed = credential.access_id is None or credential.source in _GIVEN_SOURCES
    return uri.render(reveal=True), credential.secret.reveal() if is_passed else None, None
