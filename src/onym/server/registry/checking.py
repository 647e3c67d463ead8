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
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym import errors
from onym.errors import OnymError, RegistryError
from onym.registry import service
from onym.registry.checks.context import Finding, Level, Report
from onym.registry.codec import to_data
from onym.registry.registries import REGISTRIES, get_catalog
from onym.server.clients import make_address_key
from onym.server.registry.dependencies import get_current_time, get_store
from onym.server.services import get_services
from onym.server.sessions import get_visitor

if TYPE_CHECKING:
    from datetime import date

    from starlette.requests import Request as HTTPRequest

    from onym.registry.checks import ReferenceData, Report
    from onym.registry.checks.context import NameIndex
    from onym.registry.records import Request


class CheckProcess:
    """A process of `_check_child`. It is killed if an answer takes longer than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        #: the names that the process has
        self._names: NameIndex | None = None

    @property
    def is_alive(self) -> bool:
        """Can the process be used again?"""
        return self._process is not None and self._process.poll() is None

    def parse_names(self, given: service.SubmissionInput) -> tuple[str, ...]:
        """Return the names that the text requests. Raises RegistryError."""
        plain = {field.name: getattr(given, field.name) for field in fields(given)}
        plain |= {"fields": dict(given.fields), "row": dict(given.row), "registry": None}
        return tuple(
            self._send_order(
                {"registry": given.registry.id, "given": plain, "definition": get_catalog().definition}
            )["asked"]
        )

    def check(self, known: ReferenceData, today: date) -> Report:
        """Return the report about the text that was parsed last. Raises RegistryError."""
        told = known.names is self._names
        answer = self._send_order(
            {
                "names": None if told else list(known.names or ()),
                "entries": {key: to_data(entry) for key, entry in known.entries.items()},
                "requests": {key: list(map(to_data, found)) for key, found in known.requests.items()},
                "today": today.isoformat(),
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
            with suppress(BrokenPipeError):  # the process died: there is no answer
                process.stdin.write(json.dumps(order).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            alarm.cancel()
        if not line.endswith(b"\n"):
            self.stop_process()
            raise RegistryError(
                f"the check took longer than {self._seconds:.0f} seconds, or too much memory",
                code="registry.check-too-long",
                field="template",
                hint="Shorten the text, or check it on your computer: onym scheme check FILE.",
            )
        return _require_success(json.loads(line))


def _require_success(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer. Raises the error that it reports."""
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
    # a new session, so that Ctrl-C reaches only the service; -P: no modules from the current folder
    command = [sys.executable, "-P", "-m", "onym.server.registry._check_child"]
    pipe = subprocess.PIPE
    # error output is dropped, because it may quote the text
    return subprocess.Popen(  # noqa: S603 - a module of this package
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
    )


RequestedNames: TypeAlias = tuple[str, ...]
#: concurrent checks of short texts, and of long texts
MAX_CONCURRENT_CHECKS: Final = 2
#: checks of one visitor that run or wait
MAX_CHECKS_PER_VISITOR: Final = 4
#: characters from which a text is long; short texts take at most a second
LONG_TEXT_LENGTH: Final = 32_000
#: time limit of the check of a long text
MAX_CHECK_SECONDS: Final = 30.0


class CheckTurns:
    """Limits concurrent checks, and those of one visitor that run or wait."""

    def __init__(
        self, at_once: int = MAX_CONCURRENT_CHECKS, per_visitor: int = MAX_CHECKS_PER_VISITOR
    ) -> None:
        self._turn = asyncio.Semaphore(at_once)
        self._per_visitor = per_visitor
        self._held: Counter[str] = Counter()

    @asynccontextmanager
    async def acquire_turn(self, key: str) -> AsyncIterator[None]:
        """Wait for a turn. Raises RegistryError (429) if the visitor has too many checks."""
        if self._held[key] >= self._per_visitor:
            raise RegistryError(
                f"{self._per_visitor} of your texts are being checked already",
                code="http.too-many-requests",
                hint="Wait for their reports.",
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
    """Checks texts. `seconds` is the time limit for a long text."""

    def __init__(
        self,
        *,
        at_once: int = MAX_CONCURRENT_CHECKS,
        seconds: float = MAX_CHECK_SECONDS,
        long: int = LONG_TEXT_LENGTH,
    ) -> None:
        self._short, self._long = CheckTurns(at_once), CheckTurns(at_once)
        # separate, so that saving a text does not wait for the checks that ran while it was typed
        self._reads = CheckTurns(at_once)
        self._seconds = seconds
        self._from = long
        self._idle: list[CheckProcess] = []

    async def check(
        self,
        given: service.SubmissionInput,
        known_of: Callable[[RequestedNames], Awaitable[ReferenceData]],
        *,
        key: str,
        today: date,
    ) -> Report:
        """Return the report. `known_of` loads the facts about requested names; `key` identifies the visitor.

        Raises RegistryError if the text has no template, and with the codes http.too-many-requests and
        registry.check-too-long.
        """
        size = len(given.text) + sum(map(len, given.fields.values()))
        if size >= self._from:
            async with self._long.acquire_turn(key):
                return await self._check_long(given, known_of, today)
        async with self._short.acquire_turn(key):
            submission = await asyncio.to_thread(service.parse_submission, given)
            known = await known_of(service.list_requested_names(submission))
            return await asyncio.to_thread(service.build_report, submission, known, today=today)

    async def _check_long(
        self,
        given: service.SubmissionInput,
        known_of: Callable[[RequestedNames], Awaitable[ReferenceData]],
        today: date,
    ) -> Report:
        child = self._idle.pop() if self._idle else CheckProcess(self._seconds)
        try:
            asked = await asyncio.to_thread(child.parse_names, given)
            known = await known_of(asked)
            report = await asyncio.to_thread(child.check, known, today)
        except RegistryError:
            if child.is_alive:
                self._idle.append(child)
            raise
        except BaseException:
            child.stop_process()
            raise
        self._idle.append(child)
        return report

    async def parse_text(self, given: service.SubmissionInput, *, key: str) -> service.ParsedSubmission:
        """Return the parsed text, without checking it. Raises RegistryError."""
        async with self._reads.acquire_turn(key):
            return await asyncio.to_thread(service.parse_submission, given)

    async def close(self) -> None:
        """End the processes."""
        idle, self._idle = self._idle, []
        for child in idle:
            child.stop_process()


def get_check_workers(app: Any) -> CheckWorkers:
    """Return the application's workers, created at first use and closed with the application."""
    found = getattr(app.state, "registry_workers", None)
    if not isinstance(found, CheckWorkers):
        found = app.state.registry_workers = CheckWorkers()
        app.state.closing = (*getattr(app.state, "closing", ()), found)
    return found


#: seconds for which the cached names may be out of date
_NAMES_SECONDS: Final = 5.0


async def check_submission(request: HTTPRequest, given: service.SubmissionInput) -> Report:
    """Parse and check a submission off the event loop. Raises RegistryError if it has no template."""

    async def known(asked: tuple[str, ...]) -> ReferenceData:
        # all names of this registry, and the requested entries
        names = await _load_registry_names(request, given.registry.id)
        return await service.load_reference_data(get_store(request), given, asked, names)

    today = get_current_time(request).date()
    return await get_check_workers(request.app).check(
        given, known, key=_get_visitor_key(request), today=today
    )


async def parse_in_worker(request: HTTPRequest, given: service.SubmissionInput) -> service.ParsedSubmission:
    """Parse a submission off the event loop. Raises RegistryError if it has no template."""
    offered = get_services(request).settings.list_profiles(given.registry)
    if not given.profile and len(offered) == 1:
        given = replace(given, profile=offered[0])
    return await get_check_workers(request.app).parse_text(given, key=_get_visitor_key(request))


def _get_visitor_key(request: HTTPRequest) -> str:
    visitor = get_visitor(request)
    return make_address_key(visitor.address) if visitor.account is None else visitor.account.id


def make_input_from_request(about: Request) -> service.SubmissionInput:
    """Return the submission that a saved request holds."""
    return service.SubmissionInput(
        registry=REGISTRIES[about.registry],
        text=about.template,
        fields={**about.fields, "name": about.name},
        profile=about.profile,
        status=str(about.status),
        on_behalf_of=about.on_behalf_of or "",
        update=about.kind != "new",
        request=about.id,
    )


#: lines around a finding that a page shows, and lines of one page
_LINES_AROUND: Final = 1
_MAX_EXCERPT: Final = 400
#: characters of a line that a page shows
_MAX_ROW: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line of the checked text, and whether a finding that is more than a hint is about it."""

    number: int
    text: str
    fault: bool


def split_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a text as findings count them."""
    return tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def build_excerpt(report: Report | None, text: str) -> tuple[SourceLine, ...]:
    """Return the lines of the text that the findings name, with the lines around them."""
    if report is None or not text.strip():
        return ()
    rows = split_lines(text)
    named = [finding for finding in report.findings if finding.line and not finding.check.startswith("Q")]
    faults = {finding.line for finding in named if finding.level is not Level.HINT}
    numbers: dict[int, None] = {}
    for finding in named:
        line = finding.line or 0
        numbers.update(dict.fromkeys(range(line - _LINES_AROUND, line + _LINES_AROUND + 1)))
    shown = sorted(number for number in list(numbers)[:_MAX_EXCERPT] if 0 < number <= len(rows))
    return tuple(
        SourceLine(number=number, text=rows[number - 1][:_MAX_ROW], fault=number in faults)
        for number in shown
    )


async def check_for_page(request: HTTPRequest, given: service.SubmissionInput) -> tuple[Report | None, str]:
    """Return the report about a submission, or None and the reason."""
    try:
        return await check_submission(request, given), ""
    except RegistryError as error:
        return None, str(error)


async def _load_registry_names(request: HTTPRequest, registry: str) -> NameIndex:
    """Return the registry's names, reloaded after a change."""
    from onym.registry.checks.context import NameIndex  # late, as above

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
