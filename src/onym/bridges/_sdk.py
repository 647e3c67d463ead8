"""What every bridge needs of a foreign SDK: an error if it is not installed, and limits for its HTTP client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from onym._lazy import make_missing_extra_error


@contextmanager
def require_extra(package: str, extra: str | None = None) -> Iterator[None]:
    """Imports of `package` inside the `with` raise MissingExtraError where it is not installed.

    `extra` is the extra of this distribution that brings it; without one, the package itself is named. A
    package that is installed and broken keeps its own error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package.partition(".")[0]:
            raise
        raise make_missing_extra_error(
            package.partition(".")[0], extra, code="bridge.missing-extra"
        ) from None


#: octets of one answer
MOST_OCTETS: Final = 16 * 1024 * 1024


def build_client_limits(http: Any, most: int = MOST_OCTETS) -> dict[str, Any]:
    """Arguments for an `AsyncClient` of `http` (the module httpx, or httpx2).

    An answer longer than `most` octets breaks off with its ReadError. A coded one is refused with its
    DecodingError: none is asked for, and a few octets could become any number of them.
    """

    class Bounded(http.AsyncByteStream):  # type: ignore[misc]
        """A body that breaks where it is too long."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            taken = 0
            async for part in self._stream:
                taken += len(part)
                if taken > most:
                    raise http.ReadError("the answer is too large")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise http.DecodingError("the answer is coded in a way that was not asked for")
        response.stream = Bounded(response.stream)

    return {"headers": {"Accept-Encoding": "identity"}, "event_hooks": {"response": [bound]}}
