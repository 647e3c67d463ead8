"""What a person is told when a policy refuses: a sentence and a way on, for each reason code."""

from __future__ import annotations

from typing import Final

from onym.errors import PolicyError

__all__ = ["REASONS", "refusal"]

_LIST_IT = "if that network is yours, list it in the policy's allow_networks"
_LOCAL = "for a model server on this machine use Policy.local(), or set ONYM_ALLOW_LOOPBACK=1"

_KINDS: Final[dict[str, str]] = {
    "6to4-relay": "the retired 6to4 relays",
    "amt": "multicast tunnelling relays",
    "as112": "the sinks for stray DNS questions",
    "benchmarking": "networks for benchmarks",
    "broadcast": "broadcast",
    "cgnat": "the shared network of an access provider",
    "discard": "the discard prefix",
    "documentation": "documentation",
    "dummy": "the dummy prefix",
    "ietf-protocol": "IETF protocols",
    "link-local": "the local link",
    "loopback": "this machine",
    "metadata": "a cloud's metadata service",
    "multicast": "multicast",
    "orchid": "cryptographic identifiers",
    "private": "a private network",
    "reserved": "future use",
    "site-local": "a site's network",
    "srv6": "segment routing",
    "this-network": '"this network"',
    "unspecified": "no host at all",
}

#: reason code to sentence and hint
REASONS: Final[dict[str, tuple[str, str | None]]] = {
    "bad-host": ("the host is neither a DNS name nor an IP address", None),
    "numeric-host": ("the host is a number that systems read differently", "write it as four decimal octets"),
    "metadata-name": ("the host is the name of a cloud's metadata service", None),
    "host-denied": ("the policy's deny_hosts names this host", None),
    "host-not-allowed": ("the policy's allow_hosts does not name this host", None),
    "ip-literal": ("the policy allows no IP address as host", 'allow it with ip_literals="allow"'),
    "port": ("the policy does not allow this port", "list it in the policy's ports"),
    "scheme": ("only https, and http to this machine, are spoken", None),
    "plain-http": ("plain http goes to this machine alone", "use https"),
    "no-address": ("the name has no address", None),
    "bad-answer": ("the look-up of the name gave something that is no address", None),
    "not-loopback": ("a name of this machine was given an address elsewhere", None),
    **{kind: (f"the host leads to an address for {what}", _LIST_IT) for kind, what in _KINDS.items()},
    **{
        f"embedded-{kind}": (f"the host leads to an IPv6 address that carries one for {what}", None)
        for kind, what in _KINDS.items()
    },
    **{
        f"embedded-{how}": (f"the host leads to an IPv6 address made for {name}", None)
        for how, name in (
            ("6to4", "6to4"),
            ("teredo", "Teredo"),
            ("nat64-local", "a local NAT64"),
            ("obsolete", "a transition that is over"),
        )
    },
    "loopback": ("the host is this machine, which the policy does not allow", _LOCAL),
    "metadata": ("the host leads to a cloud's metadata service", None),
}


def refusal(reason: str, endpoint: str | None) -> PolicyError:
    """The error for a refusal with this reason code."""
    sentence, hint = REASONS[reason]
    return PolicyError(sentence, reason=reason, endpoint=endpoint, hint=hint)
