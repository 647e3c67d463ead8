"""The engine of a Ray cluster (the extra `ray`): actors on every node ask, this process alone writes.

Each actor runs the engine of `_engine.py` over chunks of rows leased to it, and sends results back as
they come. The rows of an actor that dies go to another. The cluster that runs is used (RAY_ADDRESS, or the
one that `ray start` began here), else one is started on this machine for the run.

Actors get the key in a call, not in what Ray keeps of them; on its way it is as safe as the cluster's own
traffic, which Ray encrypts with RAY_USE_TLS=1. Credentials that a chain renews are found by each node itself.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.errors import OnymError, UsageError
from onym.llm._environ import variables
from onym.llm.batch._control import Control
from onym.llm.batch._engine import Local, Work
from onym.llm.batch._job import Job, make_job
from onym.llm.batch._results import Result
from onym.llm.config import Config

if TYPE_CHECKING:
    from onym.llm.client import AsyncClient

_Figures: TypeAlias = tuple[int, int, float]
#: requests under way, limit and pause of an actor; results; what stops the run
_Group: TypeAlias = tuple[_Figures, list[tuple[Any, ...]], OnymError | None]

__all__ = ["Asker", "Cluster", "require"]

#: requests at once that one process bears well; more actors beyond, while there are processors
_EACH: Final = 128
#: chunks that are leased to an actor at a time: one ends while the other goes on
_LEASES: Final = 2
#: sources of what the program itself was given, in the URI or beside it
_GIVEN: Final = ("userinfo", "argument")
#: actors that may die in a run before it is given up
_DEATHS: Final = 20


def require() -> Any:
    """The module ray. Raises UsageError where it is not installed."""
    try:
        import ray  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UsageError(
            "the engine ray needs the extra `ray`",
            code="usage.missing-extra",
            hint="pip install 'onym[ray]'",
        ) from None
    return ray


class _Chunk:
    """The `Work` of one lease, inside an actor: some rows, and a queue of their results."""

    full = False

    def __init__(self, rows: list[tuple[int, bytes]]) -> None:
        self.stop = asyncio.Event()
        self.results: asyncio.Queue[Result | None] = asyncio.Queue()
        self._rows = deque(rows)

    def take(self) -> tuple[int, bytes] | None:
        """The next row of the lease."""
        return self._rows.popleft() if self._rows and not self.stop.is_set() else None

    def give(self, result: Result) -> None:
        """Its result, to be sent back."""
        self.results.put_nowait(result)

    async def room(self) -> None:
        """There is always room: a lease is bounded."""

    async def settled(self) -> bool:
        """Nothing is durable here: that is the driver's to say."""
        return False


class Asker:
    """What an actor is: the engine of one process over leased rows."""

    def __init__(self) -> None:
        self._job: Job
        self._control: Control
        self._client: AsyncClient
        self._chunks: set[_Chunk] = set()

    async def begin(
        self, given: Mapping[str, Any], uri: str, key: str | None, variable: str | None = None
    ) -> None:
        """Make the client; the rest follows for each lease. See `_secrets` for what comes beside `given`."""
        import time

        profiles = given["profiles"]
        rest = {name: value for name, value in given.items() if name != "profiles"}
        if variable is not None and key is not None:
            # no frame of a traceback shows what it holds
            rest["environ"], key = variables({**os.environ, variable: key}), None
        self._job = make_job(**{**rest, "uri": uri, "key": key, "config": Config(profiles=profiles)})
        self._control = Control(self._job.concurrency, time.monotonic)
        self._client = self._job.client()

    async def answer(self, rows: list[tuple[int, bytes]]) -> AsyncIterator[_Group]:
        """Results in groups, as they come; the last group may hold the error that stops the run."""
        chunk = _Chunk(rows)
        engine = Local(self._job, control=self._control, client=self._client)
        self._chunks.add(chunk)
        task = asyncio.ensure_future(engine.run(chunk))
        task.add_done_callback(lambda _: chunk.results.put_nowait(None))
        try:
            ended = False
            while not ended:
                group = [await chunk.results.get()]
                while not chunk.results.empty():
                    group.append(chunk.results.get_nowait())
                ended = group[-1] is None
                results = [tuple(result) for result in group if result is not None]
                error = await _error(task) if ended else None
                if error is not None:
                    # it holds for the other leases as well
                    await self.stop()
                yield self._figures(), results, error
        finally:
            self._chunks.discard(chunk)
            task.cancel()

    async def stop(self) -> None:
        """Take no more rows; what is under way is answered."""
        for chunk in self._chunks:
            chunk.stop.set()

    def _figures(self) -> _Figures:
        control = self._control
        return control.flying, control.limit, control.pause


async def _error(task: asyncio.Future[None]) -> OnymError | None:
    try:
        await task
    except OnymError as error:
        return error
    return None


class Cluster:
    """The engine: leases rows to actors, and takes their results."""

    def __init__(self, job: Job) -> None:
        self._ray = require()
        self._job = job
        self._back: deque[tuple[int, bytes]] = deque()
        self._seen: dict[int, _Figures] = {}
        self._deaths = 0
        self._fatal: OnymError | None = None
        self._work: Work
        self._actors: list[Any] = []
        self._given: dict[str, Any] = {}
        self._size = 16

    @property
    def flying(self) -> int:
        """Requests under way on all nodes."""
        return sum(flying for flying, _, _ in self._seen.values())

    @property
    def limit(self) -> int:
        """How many may be."""
        return sum(limit for _, limit, _ in self._seen.values())

    @property
    def pause(self) -> float:
        """Seconds for which the server wants all of them to leave it alone."""
        return min((pause for _, _, pause in self._seen.values()), default=0.0)

    async def run(self, work: Work) -> None:
        """See `Engine`."""
        ray = self._ray
        self._work = work
        own = not ray.is_initialized()
        if own:
            ray.init(log_to_driver=False, logging_level="error")
        try:
            places = _places(ray, self._job.concurrency)
            each = max(1, self._job.concurrency // len(places))
            self._given = _wire(self._job, each)
            self._size = max(16, 4 * each)
            self._actors = [self._actor(node) for node in places]
            stopping = asyncio.ensure_future(self._stop_all())
            try:
                async with asyncio.TaskGroup() as group:
                    for at, node in enumerate(places):
                        group.create_task(self._serve(at, node))
            finally:
                stopping.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for actor in self._actors:
                ray.kill(actor)
            if own:
                ray.shutdown()
        if self._fatal is not None:
            raise self._fatal

    def _actor(self, node: str) -> Any:
        from ray.util.scheduling_strategies import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            NodeAffinitySchedulingStrategy,
        )

        remote = self._ray.remote(num_cpus=0, max_concurrency=_LEASES + 8)(Asker)
        return remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True)).remote()

    async def _serve(self, at: int, node: str) -> None:
        """Keep one actor busy, and put another in its place where it dies."""
        while not self._work.stop.is_set():
            try:
                # by itself: large arguments go to the object store, and from there to a disk
                await self._actors[at].begin.remote(self._given, *_secrets(self._job))
                # all of them: what one gives back is taken by those that come after
                ended = await asyncio.gather(
                    *(self._lease(at) for _ in range(_LEASES)), return_exceptions=True
                )
                for error in ended:
                    if error is not None:
                        raise error
            except self._ray.exceptions.RayActorError:
                self._deaths += 1
                if self._deaths > _DEATHS:
                    raise UsageError(
                        "the workers of the Ray cluster die again and again", code="usage.ray-workers"
                    ) from None
                self._actors[at] = self._actor(node)
            else:
                return

    async def _lease(self, at: int) -> None:
        """Lease chunk after chunk to the actor at this place."""
        while rows := await self._take():
            left = dict(rows)
            try:
                answers = self._actors[at].answer.options(num_returns="streaming").remote(rows)
                async for reference in answers:
                    figures, results, error = await reference
                    self._seen[at] = figures
                    for result in results:
                        left.pop(result[0], None)
                        self._work.give(Result(*result))
                    if error is not None:
                        self._fatal = self._fatal or error
                        self._work.stop.set()
            finally:
                # rows whose actor is gone, or that kept their turn
                self._back.extend(left.items())

    async def _take(self) -> list[tuple[int, bytes]]:
        """The rows of a lease: those that came back first."""
        if self._work.full:
            await self._work.room()
        rows: list[tuple[int, bytes]] = []
        while len(rows) < self._size and not self._work.stop.is_set():
            row = self._back.popleft() if self._back else self._work.take()
            if row is None:
                break
            rows.append(row)
        return rows

    async def _stop_all(self) -> None:
        await self._work.stop.wait()
        for actor in self._actors:
            with suppress(self._ray.exceptions.RayActorError):
                await actor.stop.remote()


def _places(ray: Any, concurrency: int) -> list[str]:
    """The nodes of the actors: one each, and more where one actor could not do it all."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    processors = int(sum(node["Resources"].get("CPU", 0) for node in nodes))
    count = min(concurrency, max(len(nodes), min(processors, -(-concurrency // _EACH))))
    return [nodes[at % len(nodes)]["NodeID"] for at in range(count)]


def _wire(job: Job, concurrency: int) -> dict[str, Any]:
    """The job as plain arguments of `make_job`, but for its URI and key."""
    profile = job.uri.fragment
    profiles = {} if profile is None or profile not in job.config.profiles else job.config.profiles
    return {
        "policy": job.settled.policy,
        "profiles": dict(profiles),
        "providers": job.providers or job.config.providers,
        "environ": None,
        "on_unsupported": job.on_unsupported,
        "system_filter": job.system_filter,
        "overrides": {**job.overrides, "retries": job.retries},
        "concurrency": concurrency,
    }


def _secrets(job: Job) -> tuple[str, str | None, str | None]:
    """URI and key revealed, for a `Secret` would refuse to travel, and the variable that the key is from.

    The key is None where each node finds its own: what a chain brought. The other half of a signing pair
    stands in the URI. Which variable it was may decide which header carries the key.
    """
    uri = job.uri.without_key()
    credential = job.settled.planner.endpoint.credential
    if credential is None or credential.expires is not None:
        return uri.render(reveal=True), None, None
    kind, _, variable = credential.source.partition(":")
    if kind == "env" and credential.access_id is None:
        uri = uri.with_params(auth=credential.source)
        return uri.render(reveal=True), credential.secret.reveal(), variable
    given = credential.access_id is None or credential.source in _GIVEN
    return uri.render(reveal=True), credential.secret.reveal() if given else None, None
