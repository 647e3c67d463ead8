"""What a run asks of whom: everything that an engine needs beside the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from onym.llm._connect import Settled, find_uri, hide, settle
from onym.llm.client import AsyncClient
from onym.llm.config import Config
from onym.llm.mapping import OnUnsupported
from onym.net.limits import NetLimits
from onym.net.transport import AsyncTransport

if TYPE_CHECKING:
    from onym.llm.providers import ProviderTable
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI
    from onym.uri.secret import Secret

__all__ = ["RETRIES", "Job", "make_job"]

#: attempts after the first where neither the URI nor the call says how many
RETRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One endpoint and how it is asked. `uri` says `retries=0`: the engine owns them while a batch runs."""

    uri: LLMURI
    key: Secret | None
    policy: Policy | None
    config: Config
    providers: ProviderTable | None
    environ: Mapping[str, str] | None = field(repr=False)
    on_unsupported: OnUnsupported
    system_filter: Callable[[str], str] | None
    overrides: Mapping[str, Any]
    concurrency: int
    retries: int
    settled: Settled = field(repr=False)

    @property
    def model(self) -> str:
        """The model's name, as the endpoint takes it."""
        return self.settled.planner.endpoint.model

    @property
    def text(self) -> str:
        """The endpoint without key and parameters."""
        return self.settled.planner.endpoint.text

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What no result may hold."""
        return self.settled.planner.endpoint.secrets

    def settings(self) -> dict[str, Any]:
        """What changes the answers beside endpoint and input; no secret in it."""
        uri = self.uri.without_key()
        found: dict[str, Any] = {
            "uri": uri.render(),
            "on_unsupported": self.on_unsupported,
            "overrides": dict(self.overrides),
        }
        # what is not there is left out: outputs of former versions are gone on with
        profile = dict(self.config.profiles.get(uri.fragment or "", {}))
        profile.pop("retries", None)
        if profile:
            found["profile"] = profile
        if self.settled.planner.endpoint.embedded:
            from onym.llm import embedded

            file = embedded.identity(self.model)
            if file:
                found["file"] = file
        return found

    def client(self) -> AsyncClient:
        """A client of this job's, for the running event loop."""
        if self.settled.planner.endpoint.embedded or self.concurrency <= NetLimits().idle_connections:
            return AsyncClient(self.settled)
        limits = NetLimits(idle_connections=self.concurrency)
        return _Wide(self.settled, AsyncTransport(self.settled.policy, limits=limits))


class _Wide(AsyncClient):
    """A client that closes the transport it was given."""

    def __init__(self, settled: Settled, transport: AsyncTransport) -> None:
        super().__init__(settled, transport)
        self._own = True


def make_job(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None,
    policy: Policy | None,
    config: Config | None,
    providers: ProviderTable | None,
    environ: Mapping[str, str] | None,
    on_unsupported: OnUnsupported,
    system_filter: Callable[[str], str] | None,
    overrides: Mapping[str, Any],
    concurrency: int,
) -> Job:
    """The job behind these arguments. Raises what `connect` raises, CredentialError for a missing key too."""
    config = Config.load(environ=environ) if config is None else config
    found = find_uri(hide(uri), config)
    profile = config.profiles.get(found.fragment or "", {})
    rest = dict(overrides)
    retries = rest.pop("retries", None)
    if retries is None:
        retries = found.params.get("retries", profile.get("retries", RETRIES))
    given: dict[str, Any] = {
        "key": hide(key),
        "policy": policy,
        "config": config,
        "providers": providers,
        "environ": environ,
        "on_unsupported": on_unsupported,
        "system_filter": system_filter,
    }
    quiet = found.with_params(retries=0)
    settled = settle(quiet, **given)
    unkeyed = settled.planner.endpoint.unkeyed
    if unkeyed is not None:
        raise unkeyed
    return Job(
        uri=quiet, overrides=rest, concurrency=concurrency, retries=int(retries), settled=settled, **given
    )
