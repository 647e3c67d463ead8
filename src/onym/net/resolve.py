"""Names to addresses. What is answered here is not trusted: the policy checks every address of it.

Names of this machine never come here; their addresses are known.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from onym.errors import ResolveError
from onym.net._deadline import SLICE, Deadline, overdue, remaining

__all__ = ["DNSResolver", "Resolver", "SystemResolver"]

_Found: TypeAlias = list[str] | ResolveError

#: seconds for one question to the name servers, as stub resolvers have it
_PATIENCE: Final = 5.0
_KINDS: Final = ("A", "AAAA")


class Resolver(Protocol):
    """Looks names up, for blocking callers and for coroutines.

    `deadline` is a moment of `time.monotonic()`, None for never. Both raise ResolveError where the name has
    no address, and DeadlineExceeded.
    """

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """The addresses of `host`, in the order to try them."""
        ...

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """The addresses of `host`, in the order to try them."""
        ...


class SystemResolver:
    """The system's own look-up: hosts file, DNS, whatever this machine is set up for.

    It cannot be interrupted, so it runs in a thread of its own, which a deadline or Ctrl-C leaves behind.
    """

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """Ask the system and wait."""
        done = threading.Event()
        found: list[_Found] = []

        def put(answer: _Found) -> None:
            found.append(answer)
            done.set()

        _ask_aside(host, put)
        while not done.wait(remaining(deadline, time.monotonic, SLICE)):
            pass
        return _given(found[0])

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """Ask the system without holding up the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Found] = loop.create_future()

        def set_result(answer: _Found) -> None:
            # nobody may wait any more
            with contextlib.suppress(asyncio.InvalidStateError):
                future.set_result(answer)

        def put(answer: _Found) -> None:
            # the loop may be gone by now
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(set_result, answer)

        _ask_aside(host, put)
        try:
            async with asyncio.timeout(remaining(deadline, time.monotonic)):
                return _given(await future)
        except TimeoutError:
            raise overdue() from None


class DNSResolver:
    """DNS and nothing else: A and AAAA, from the servers named or from those of this machine.

    `nameservers` are IP addresses, `port` is theirs. Search domains and the hosts file are not used.
    """

    def __init__(self, nameservers: Sequence[str] | None = None, port: int = 53) -> None:
        self._nameservers = None if nameservers is None else list(nameservers)
        self._port = port

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """Ask and wait."""
        from dns.exception import DNSException
        from dns.resolver import Resolver

        found: list[str] = []
        for kind in _KINDS:
            try:
                found += _texts(self._set_up(Resolver).resolve(host + ".", kind, **_options(deadline)))
            except DNSException:
                remaining(deadline, time.monotonic)
        return _some(found)

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """Ask as a coroutine."""
        from dns.asyncresolver import Resolver
        from dns.exception import DNSException

        found: list[str] = []
        for kind in _KINDS:
            try:
                found += _texts(await self._set_up(Resolver).resolve(host + ".", kind, **_options(deadline)))
            except DNSException:
                remaining(deadline, time.monotonic)
        return _some(found)

    def _set_up(self, make: Callable[..., Any]) -> Any:
        resolver = make(configure=self._nameservers is None)
        if self._nameservers is not None:
            resolver.nameservers = self._nameservers
            resolver.port = self._port
        return resolver


def _options(deadline: Deadline) -> dict[str, Any]:
    lifetime = remaining(deadline, time.monotonic, _PATIENCE)
    return {"raise_on_no_answer": False, "search": False, "lifetime": lifetime}


def _texts(answer: Any) -> list[str]:
    return [record.address for record in answer.rrset or ()]


def _some(found: list[str]) -> list[str]:
    if not found:
        raise _unknown()
    return found


def _unknown() -> ResolveError:
    return ResolveError(
        "the name cannot be looked up", hint="is it spelled right, and does this machine have a network?"
    )


def _given(found: _Found) -> list[str]:
    if isinstance(found, ResolveError):
        raise found
    return found


def _ask_aside(host: str, put: Callable[[_Found], None]) -> None:
    """Hand the system's answer to `put`, in a thread that an interpreter that ends does not wait for."""
    threading.Thread(target=lambda: put(_ask_system(host)), name="onym-resolver", daemon=True).start()


def _ask_system(host: str) -> _Found:
    """The addresses, or the error to raise: nobody may be there to catch one."""
    try:
        # octets, so that no codec has a say
        rows = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return _unknown()
    if any(row[0] not in (socket.AF_INET, socket.AF_INET6) for row in rows):
        return ResolveError("the look-up of the name gave something that is no address")
    return list(dict.fromkeys(str(row[4][0]) for row in rows))
