"""An endpoint for a client that is not Onym's own: checked, resolved, its key about to be handed over."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onym.errors import UnsupportedError
from onym.llm._connect import hide, settle
from onym.net.messages import Origin
from onym.net.policy import Policy, decide
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.plan import Plan
    from onym.uri.llm import LLMURI

__all__ = ["Foreign", "foreign"]

_CHAT = "/chat/completions"
#: headers that every client sets for itself
_OWN = frozenset({"accept", "content-type", "user-agent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What a foreign client is made of. `headers` may hold the key, so neither is shown by `repr`.

    `timeout` is in seconds. `body` holds the URI's parameters under their wire names, without model and
    messages; `warnings` are sentences on what was left out.
    """

    base_url: str
    query: Mapping[str, str]
    model: str
    bearer: Secret | None = field(repr=False)
    headers: Mapping[str, str | Secret] = field(repr=False)
    timeout: float
    retries: int
    body: Mapping[str, Any]
    #: messages that the URI asks for, before the caller's own
    system: tuple[Mapping[str, Any], ...]
    warnings: tuple[str, ...]


def foreign(uri: str | Secret | LLMURI, options: Mapping[str, Any]) -> Foreign:
    """The endpoint, once the policy has allowed its host, port and scheme.

    Nothing is looked up, so what a name's addresses are is not judged here. Raises what `connect` raises,
    CredentialError for a key that is missing, UnsupportedError for another wire format than OpenAI's.
    """
    arguments = {**_DEFAULTS, **{name: value for name, value in options.items() if value is not None}}
    arguments["key"] = hide(arguments["key"])
    planner, policy = settle(hide(uri), **arguments)
    plan = planner.chat("…", {}, stream=False)
    endpoint = plan.endpoint
    if endpoint.dialect.name != "openai_chat" or not plan.target.partition("?")[0].endswith(_CHAT):
        raise UnsupportedError(
            f"{endpoint.provider.title} does not speak OpenAI's chat format at this address",
            code="bridge.not-openai",
            source=endpoint.provider.source,
            hint="onym.connect() speaks the provider's own format",
        )
    if endpoint.embedded:
        from onym.llm import embedded  # a process to look after, which other endpoints do not need

        plan = planner.running(plan, embedded.ensure(endpoint.model))
        policy = Policy.local()
    if plan.endpoint.unkeyed is not None:
        raise copy(plan.endpoint.unkeyed)
    _check(policy, plan)
    return _foreign(plan)


_DEFAULTS: dict[str, Any] = {
    "policy": None,
    "config": None,
    "key": None,
    "providers": None,
    "environ": None,
    "on_unsupported": "error",
    "system_filter": None,
}


def _check(policy: Policy, plan: Plan) -> None:
    origin = plan.endpoint.origin
    assert isinstance(origin, Origin)  # noqa: S101 - an embedded model runs by now
    verdict = decide(policy, origin.host, origin.port, scheme=origin.scheme)
    # a name without addresses yet: they are for the client to find, and beyond this check
    if not verdict.allowed and verdict.reason != "no-address":
        raise verdict.error(plan.endpoint.text)


def _foreign(plan: Plan) -> Foreign:
    address, _, query = plan.url.partition("?")
    headers: dict[str, str | Secret] = {}
    bearer = None
    for name, value in plan.headers:
        if name.lower() == "authorization" and isinstance(value, Secret) and _is_bearer(value):
            bearer = Secret(value.reveal().partition(" ")[2])
        elif name.lower() not in _OWN:
            headers[name] = value
    body = {name: value for name, value in (plan.body or {}).items() if name not in ("model", "messages")}
    return Foreign(
        base_url=address.removesuffix(_CHAT),
        query=dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair),
        model=plan.endpoint.model,
        bearer=bearer,
        headers=headers,
        timeout=plan.timeout,
        retries=plan.retries,
        body=body,
        system=tuple((plan.body or {}).get("messages", ())[:-1]),
        warnings=plan.warnings,
    )


def _is_bearer(value: Secret) -> bool:
    return value.reveal().startswith("Bearer ")
