"""A question about a policy, answered without a network: what `onym conformance` asks as `net.decide`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onym.errors import UsageError
from onym.net.hosts import is_loopback
from onym.net.policy import Decision, Policy, decide
from onym.uri.llm import LLMURI

if TYPE_CHECKING:
    from typing import Literal

__all__ = ["decide_question", "scheme_for"]


def decide_question(
    uri: str | LLMURI, policy: Policy | Mapping[str, Any], dns: Mapping[str, Any] | None = None
) -> Decision:
    """What would happen to this URI under this policy, if look-ups answered so.

    `dns` holds `answers` (addresses), or `sequence` (what successive look-ups would say: one is made, and the
    connection goes to what it said), or anything else for a look-up that fails. Raises URIError for text that
    is no llm URI, UsageError for a policy or answers that cannot be read.
    """
    parsed = LLMURI.parse(uri)
    rules = policy if isinstance(policy, Policy) else Policy.from_dict(policy)
    if parsed.host_type == "IPvFuture":
        return Decision(False, "bad-host", (), "")
    scheme = scheme_for(parsed.host, rules)
    return decide(rules, parsed.host, parsed.effective_port, scheme=scheme, answers=_answers(dns or {}))


def scheme_for(host: str, policy: Policy) -> Literal["https", "http"]:
    """The scheme by which a host is spoken to: plain HTTP for this machine where the policy allows it."""
    return "http" if policy.allow_loopback and is_loopback(host) else "https"


def _answers(dns: Mapping[str, Any]) -> Sequence[object] | None:
    found = dns.get("answers")
    if found is None and dns.get("sequence"):
        found = _list(dns["sequence"])[0]
    return None if found is None else _list(found)


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise UsageError("`dns` holds `answers`, a list of addresses, or `sequence`, a list of such lists")
    return value
