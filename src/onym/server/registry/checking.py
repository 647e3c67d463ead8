"""Parsing and checking of submissions: a pasted text, the fields of a form, or both.

Short texts are checked in a thread, long texts in a child process (`_check_child`) with limits on time and
memory. One visitor may have a few checks in progress at the same time.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym import errors
from onym.errors import OnymError, RegistryError
from onym.registry.checks.context import Finding, Level, Report
from onym.registry.codec import to_data
from onym.registry.records import Entry
from onym.registry.service import (
    ParsedSubmission,
    SubmissionInput,
    build_report,
    fill_from_entry,
    list_requested_names,
    load_reference_data,
    parse_submission,
)
from onym.server.registry.dependencies import get_store
from onym.server.security.clients import make_address_key
from onym.server.security.visitor import get_visitor
from onym.server.services import get_services

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.checks import ReferenceData, Report
    from onym.registry.checks.reference_data import NameIndex
    from onym.registry.records import Request


class CheckProcess:
    """A process of `_check_child`. Each answer must come within `seconds`; else the process is ended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        #: the names that it was told last
        self._names: NameIndex | None = None

    @property
    def is_alive(self) -> bool:
        """Can it be asked again?"""
        return self._process is not None and self._process.poll() is None

    def parse_names(self, given: SubmissionInput) -> tuple[str, ...]:
        """The names that the text asks for. Raises RegistryError."""
        plain = {field.name: getattr(given, field.name) for field in fields(given)}
        plain |= {"fields": dict(given.fields), "row": dict(given.row), "registry": None}
        return tuple(self._send_order({"registry": given.registry.id, "given": plain})["asked"])

    def check(self, known: ReferenceData) -> Report:
        """The report over the text that was read last. Raises RegistryError."""
        told = known.names is self._names
        answer = self._send_order(
            {
                "names": None if told else list(known.names or ()),
                "entries": {key: to_data(entry) for key, entry in known.entries.items()},
            }
        )
        self._names = known.names
        found = (Finding(**{**finding, "level": Level(finding["level"])}) for finding in answer["findings"])
        return Report(
            source="submission",
            profile=answer["profile"],
            scheme=answer["scheme"],
            findings=tuple(found),
            ran=tuple(answer["ran"]),
        )

    def stop_process(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None  # noqa: S101 - a pipe
                pipe.close()
        process.wait()

    def _send_order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process = self._process or _start_process()
        alarm = threading.Timer(self._seconds, process.kill)
        alarm.daemon = True
        alarm.start()
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        line = b""
        try:
            with suppress(BrokenPipeError):  # it died, which the answer shows
                process.stdin.write(json.dumps(order).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            alarm.cancel()
        if not line.endswith(b"\n"):
            self.stop_process()
            raise RegistryError(
                "the check took too long, or too much memory",
                code="registry.check-too-long",
                field="template",
                hint="give a shorter text, or check it yourself: onym scheme check FILE",
            )
        return _require_success(json.loads(line))


def _require_success(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless it tells of an error: then that is raised."""
    if "failed" in answer:
        raise OnymError(f"the check failed: {answer['failed']}")
    if "refused" in answer:
        kind: type[RegistryError] = getattr(errors, answer["class"])
        said = answer["refused"]
        raise kind(
            said["message"], **{name: said[name] for name in said if name in {"code", "hint", *kind.fields}}
        )
    return answer


def _start_process() -> subprocess.Popen[bytes]:
    # its own session: Ctrl-C in the terminal is for us to act on; -P: nothing from the current folder
    command = [sys.executable, "-P", "-m", "onym.server.registry._check_child"]
    pipe = subprocess.PIPE
    # its complaints may quote what was handed in
    return subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
    )


RequestedNames: TypeAlias = tuple[str, ...]
#: checks at once, of short texts and of long ones each
MAX_CONCURRENT_CHECKS: Final = 2
#: checks of one visitor under way or waiting
MAX_CHECKS_PER_VISITOR: Final = 4
#: characters from which on a text is long; short ones are checked in a second at most
LONG_TEXT_LENGTH: Final = 32_000
#: that a check of a long text may take
MAX_CHECK_SECONDS: Final = 30.0


class ConcurrencyLimiter:
    """Takes turns: so many at once, and no more than a few of one visitor."""

    def __init__(
        self, at_once: int = MAX_CONCURRENT_CHECKS, per_visitor: int = MAX_CHECKS_PER_VISITOR
    ) -> None:
        self._turn = asyncio.Semaphore(at_once)
        self._per_visitor = per_visitor
        self._held: Counter[str] = Counter()

    @asynccontextmanager
    async def acquire_turn(self, key: str) -> AsyncIterator[None]:
        """A turn of that visitor. Raises RegistryError (429) where enough of its own wait already."""
        if self._held[key] >= self._per_visitor:
            raise RegistryError(
                "too many texts of yours are being checked",
                code="http.too-many-requests",
                hint="wait for their reports",
            )
        self._held[key] += 1
        try:
            async with self._turn:
                yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]


class CheckWorkers:
    """Checks texts. `seconds` is what a long one may take."""

    def __init__(
        self,
        *,
        at_once: int = MAX_CONCURRENT_CHECKS,
        seconds: float = MAX_CHECK_SECONDS,
        long: int = LONG_TEXT_LENGTH,
    ) -> None:
        self._short, self._long = ConcurrencyLimiter(at_once), ConcurrencyLimiter(at_once)
        # whoever saves a text is not held up, or refused, for the checks that ran while it was typed
        self._reads = ConcurrencyLimiter(at_once)
        self._seconds = seconds
        self._from = long
        self._idle: list[CheckProcess] = []

    async def check(
        self,
        given: SubmissionInput,
        known_of: Callable[[RequestedNames], Awaitable[ReferenceData]],
        *,
        key: str,
    ) -> Report:
        """The report. `known_of` tells what is known of the names that a text asks for; `key` is the visitor.

        Raises RegistryError where nothing can be read, and with the codes http.too-many-requests and
        registry.check-too-long.
        """
        size = len(given.text) + sum(map(len, given.fields.values()))
        if size >= self._from:
            async with self._long.acquire_turn(key):
                return await self._check_long(given, known_of)
        async with self._short.acquire_turn(key):
            submission = await asyncio.to_thread(parse_submission, given)
            known = await known_of(list_requested_names(submission))
            return await asyncio.to_thread(build_report, submission, known)

    async def _check_long(
        self, given: SubmissionInput, known_of: Callable[[RequestedNames], Awaitable[ReferenceData]]
    ) -> Report:
        child = self._idle.pop() if self._idle else CheckProcess(self._seconds)
        try:
            asked = await asyncio.to_thread(child.parse_names, given)
            known = await known_of(asked)
            report = await asyncio.to_thread(child.check, known)
        except RegistryError:
            if child.is_alive:
                self._idle.append(child)
            raise
        except BaseException:
            child.stop_process()
            raise
        self._idle.append(child)
        return report

    async def parse_text(self, given: SubmissionInput, *, key: str) -> ParsedSubmission:
        """The text, read and not checked. Raises RegistryError."""
        async with self._reads.acquire_turn(key):
            return await asyncio.to_thread(parse_submission, given)

    async def close(self) -> None:
        """End the processes."""
        idle, self._idle = self._idle, []
        for child in idle:
            child.stop_process()


def get_check_workers(app: Any) -> CheckWorkers:
    """The workers of an application, made at first use; it closes them when it ends."""
    found = getattr(app.state, "registry_workers", None)
    if not isinstance(found, CheckWorkers):
        found = app.state.registry_workers = CheckWorkers()
        app.state.closing = (*getattr(app.state, "closing", ()), found)
    return found


#: seconds for which the registry's names may be older than the registry
_NAMES_SECONDS: Final = 5.0


async def check_submission(request: HTTPRequest, given: SubmissionInput) -> Report:
    """Read and check it, off the event loop. Raises RegistryError where nothing can be read."""

    async def known(asked: tuple[str, ...]) -> ReferenceData:
        return await load_known_facts(request, given, asked)

    return await get_check_workers(request.app).check(given, known, key=_get_visitor_key(request))


async def parse_in_worker(request: HTTPRequest, given: SubmissionInput) -> ParsedSubmission:
    """Read it, off the event loop. Raises RegistryError where nothing can be read."""
    offered = get_services(request).settings.list_profiles(given.registry)
    if not given.profile and len(offered) == 1:
        given = replace(given, profile=offered[0])
    return await get_check_workers(request.app).parse_text(given, key=_get_visitor_key(request))


def _get_visitor_key(request: HTTPRequest) -> str:
    visitor = get_visitor(request)
    return make_address_key(visitor.address) if visitor.account is None else visitor.account.id


async def check_saved_request(
    request: HTTPRequest, about: Request, entry: Entry | None
) -> tuple[Report | None, str]:
    """The report over a saved request, about `entry` if that exists; or None, and why there is none."""
    from onym.registry.registries import get_registry  # late: the name is taken by parameters elsewhere

    given = SubmissionInput(
        registry=get_registry(about.registry),
        text=about.template,
        fields={**about.fields, "name": about.name},
        profile=about.profile,
        status=str(about.status),
        update=about.kind != "new",
        request=about.id,
    )
    try:
        return await check_submission(request, fill_from_entry(given, entry)), ""
    except RegistryError as error:
        return None, str(error)


async def load_known_facts(
    request: HTTPRequest, given: SubmissionInput, asked: tuple[str, ...]
) -> ReferenceData:
    """What checks know: all names of this registry, and those of its entries that are asked for."""
    names = await _load_registry_names(request, given.registry.id)
    return await load_reference_data(get_store(request), given, asked, names)


async def _load_registry_names(request: HTTPRequest, registry: str) -> NameIndex:
    """The registry's names, read anew when it has changed."""
    from onym.registry.checks.reference_data import NameIndex  # late, as above

    state = request.app.state
    kept: dict[str, tuple[int, float, NameIndex]] = getattr(state, "registry_names", None) or {}
    state.registry_names = kept
    head, at = (await get_store(request).head()).number, time.monotonic()
    found = kept.get(registry)
    if found is not None and (found[0] == head or at - found[1] < _NAMES_SECONDS):
        return found[2]
    names = await asyncio.to_thread(NameIndex, await get_store(request).names(registry))
    kept[registry] = (head, at, names)
    return names
