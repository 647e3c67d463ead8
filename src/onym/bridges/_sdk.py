"""Import checks for optional SDKs, and HTTP clients with limits for them."""

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
MAX_RESPONSE: Final = 16 * 1024 * 1024


def make_http_client(http: Any, timeout: float) -> Any:
    """Return an `AsyncClient` of `http` (the module httpx or httpx2) without redirects and environment.

    A response of more than `MAX_RESPONSE` bytes raises ReadError. A compressed response raises DecodingError:
    none is requested, and a few bytes could become any number of them.
    """
    limit = MAX_RESPONSE

    class Bounded(http.AsyncByteStream):  # type: ignore[misc]
        """A body that raises an error when it is too long."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._stream:
                size += len(part)
                if size > limit:
                    raise http.ReadError(f"the response is larger than {limit} bytes")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise http.DecodingError("the response has a content encoding that was not requested")
        response.stream = Bounded(response.stream)

    return http.AsyncClient(
        timeout=timeout,
        follow_redirects=False,
        trust_env=False,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [bound]},
    )
