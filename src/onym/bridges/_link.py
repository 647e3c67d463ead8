"""What the objects of a framework hold: an endpoint, and clients for it that are made when first used."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

from onym.errors import SecretError
from onym.llm._connect import hide
from onym.llm.client import AsyncClient, Client, aconnect, connect
from onym.uri.llm import LLMURI

if TYPE_CHECKING:
    from onym.llm._endpoint import Endpoint
    from onym.uri.secret import Secret

__all__ = ["Link", "Linked"]


class Link:
    """One endpoint, and the arguments of `connect` for it. Threads may share it.

    Printed, it shows no key. It is copied as itself, and pickled without its clients: never with a key, with
    `environ` or a configuration, any of which may hold one.
    """

    __slots__ = ("__weakref__", "_async", "_lock", "_options", "_source", "_sync")

    def __init__(self, uri: str | Secret | LLMURI, **options: Any) -> None:
        uri = hide(uri)
        self._source: str | LLMURI = uri if isinstance(uri, LLMURI) else _source(uri)
        self._options = {name: value for name, value in options.items() if value is not None}
        if "key" in self._options:
            self._options["key"] = hide(self._options["key"])
        self._lock = threading.Lock()
        self._async: AsyncClient | None = None
        # made now: what is wrong with the URI is said where it was given
        self._sync: Client | None = connect(self._source, **self._options)

    @property
    def endpoint(self) -> Endpoint:
        """Who is on the other side."""
        return self.sync().explain("…").endpoint

    @property
    def text(self) -> str:
        """The URI without its key, or the name of the endpoint in the configuration."""
        return self._source if isinstance(self._source, str) else self._source.without_key().render()

    def sync(self) -> Client:
        """The client."""
        with self._lock:
            if self._sync is None:
                self._sync = connect(self._source, **self._options)
            return self._sync

    def waiting(self) -> AsyncClient:
        """The client for coroutines."""
        with self._lock:
            if self._async is None:
                self._async = aconnect(self._source, **self._options)
            return self._async

    def close(self) -> None:
        """Close the connections; the next call makes new ones."""
        with self._lock:
            client, self._sync = self._sync, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of coroutines too."""
        self.close()
        with self._lock:
            client, self._async = self._async, None
        if client is not None:
            await client.close()

    def __del__(self) -> None:
        client = getattr(self, "_sync", None)
        if client is not None:
            client.close()

    def __repr__(self) -> str:
        # a debugger may look at one whose URI was refused
        return f"Link({self.text!r})" if hasattr(self, "_source") else "Link()"

    def __copy__(self) -> Link:
        return self

    def __deepcopy__(self, memo: object) -> Link:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._options.keys() & {"key", "environ", "config"}:
            _refuse()
        options = {name: value for name, value in self._options.items() if name != "transport"}
        return _restored, (self._source, options)


class Linked:
    """What the classes of frameworks that hold a link have in common."""

    _link: Link

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    async def aclose(self) -> None:
        """Close the connections of coroutines too."""
        await self._link.aclose()


def _source(given: Secret) -> str | LLMURI:
    """The URI, or the name of an endpoint in the configuration, which has no colon."""
    return LLMURI.parse(given.reveal()) if ":" in given.reveal() else given.reveal()


def _restored(source: str | LLMURI, options: dict[str, Any]) -> Link:
    return Link(source, **options)


def _refuse() -> NoReturn:
    raise SecretError(
        "an object that was given a key, an environment or a configuration is not pickled",
        code="secret.pickled",
        hint="point to the key with ?auth=env:NAME, and give nothing but the URI",
    )
