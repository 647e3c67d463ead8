"""Import checks for optional SDKs, and limits for their HTTP clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from onym._lazy import make_missing_extra_error


@contextmanager
def require_extra(package: str, extra: str | None = None) -> Iterator[None]:
    """Raise MissingExtraError if `package`, which the `with` block imports, is not installed.

    `extra` is the extra of Onym that installs it; without one, pip installs the package itself. A broken
    package keeps its own error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package.partition(".")[0]:
            raise
        raise make_missing_extra_error(
            package.partition(".")[0], extra, code="bridge.missing-extra"
        ) from None


#: bytes of one response
MOST_OCTETS: Final = 16 * 1024 * 1024


def build_client_limits(http: Any, most: int = MOST_OCTETS) -> dict[str, Any]:
    """Return arguments for an `AsyncClient` of `http` (the module httpx or httpx2).

    A response of more than `most` bytes raises ReadError. A compressed response raises DecodingError: none is
    requested, and a few bytes could become any number of them.
    """

    class Bounded(http.AsyncByteStream):  # type: ignore[misc]
        """A body that raises an error when it is too long."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            taken = 0
            async for part in self._stream:
                taken += len(part)
                if taken > most:
                    raise http.ReadError(f"the response is larger than {most} bytes")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise http.DecodingError("the response has a content encoding that was not requested")
        response.stream = Bounded(response.stream)

    return {"headers": {"Accept-Encoding": "identity"}, "event_hooks": {"response": [bound]}}
