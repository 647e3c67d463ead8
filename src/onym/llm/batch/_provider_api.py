"""Whether an endpoint has a batch API of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym.errors import UnsupportedError
from onym.llm.dialects._batch import BatchApi, api_of

if TYPE_CHECKING:
    from onym.llm._endpoint import Endpoint

__all__ = ["find_api", "no_api"]


def find_api(endpoint: Endpoint) -> BatchApi:
    """The batch API of this endpoint. Raises UnsupportedError where it is known to have none."""
    known = endpoint.provider.capabilities.get("batch", "unknown")
    api = api_of(endpoint.dialect.name)
    # what is below one model's path, signed or on this machine has no files and no batches beside it
    apart = endpoint.embedded or endpoint.signed or "{model}" in endpoint.place.base
    if api is None or known == "no" or apart:
        raise no_api(endpoint)
    return api


def no_api(endpoint: Endpoint) -> UnsupportedError:
    return UnsupportedError(
        f"{endpoint.provider.title} has no batch API that is known here",
        code="llm.no-batch",
        parameter="batch",
        model=endpoint.model,
        source=endpoint.provider.source,
        hint="leave out --provider-batch",
    )
