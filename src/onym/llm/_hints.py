"""What a failure's hint can say that only the plan knows: the model list, the key's origin, a near alias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym.errors import AuthenticationError, NetError, NotFoundError, ProviderError, ResolveError
from onym.llm.providers import ProviderTable, near
from onym.uri.redact import redact

if TYPE_CHECKING:
    from onym.llm._endpoint import Endpoint
    from onym.llm._plan import Operation

__all__ = ["add_hint"]


def add_hint(error: NetError | ProviderError, endpoint: Endpoint, operation: Operation) -> None:
    """Put into the error's hint how to go on, where the endpoint knows better than the error did."""
    hint = None
    if isinstance(error, ResolveError):
        hint = _near_alias(endpoint)
    elif isinstance(error, NotFoundError):
        if operation in ("chat", "embed") and endpoint.provider.capabilities["models"] != "no":
            hint = f"onym models list {endpoint.text} shows what there is"
    elif isinstance(error, AuthenticationError):
        hint = _origin_of_key(endpoint)
    error.hint = hint or error.hint


def _near_alias(endpoint: Endpoint) -> str | None:
    """Aliases that a host of one word may have been meant for."""
    if endpoint.origin is None or "." in endpoint.origin.host:
        return None
    return near(endpoint.origin.host, ProviderTable.builtin().aliases())


def _origin_of_key(endpoint: Endpoint) -> str:
    if endpoint.credential is not None:
        return f"the key came from {redact(endpoint.credential.source, secrets=endpoint.secrets)}"
    names = endpoint.provider.key_variables
    return f"no key was sent; {f'export {names[0]}=… or ' if names else ''}point at one with ?auth=env:NAME"
