"""Network policy: where a request may go, and why not (draft 10.2, 10.5).

>>> evaluate_policy(Policy.untrusted(), "api.openai.com", 443, answers=["10.0.0.1"]).reason
'private'

Pure functions: no look-up, no clock, no environment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias, cast

from onym.errors import PolicyError, UsageError
from onym.net.hosts import (
    LOOPBACK,
    METADATA,
    PUBLIC,
    Address,
    Host,
    Network,
    classify_address,
    is_loopback,
    list_loopback_addresses,
    parse_address,
    parse_host,
    parse_network,
)
from onym.uri.llm import LLMURI

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


def make_policy_error(reason: str, endpoint: str | None) -> PolicyError:
    """The error for a refusal with this reason code."""
    sentence, hint = REASONS[reason]
    return PolicyError(sentence, reason=reason, endpoint=endpoint, hint=hint)


IPLiterals: TypeAlias = Literal["refuse", "loopback", "allow"]
Preset: TypeAlias = Literal["trusted", "local", "untrusted"]

PRESETS: Final[tuple[Preset, ...]] = ("trusted", "local", "untrusted")
_IP_LITERALS: Final = ("refuse", "loopback", "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may be reached. Take a preset and change what must differ: `Policy.local().replace(ports={8443})`.

    `allow_loopback`: 127.0.0.0/8, ::1 and the names of this machine, over plain HTTP too.
    `allow_networks`: CIDR blocks that may be reached although they are private, link-local or otherwise
    not public. A metadata service is reached only if its single address is listed, not by a wider block.
    `ip_literals`: whether an IP address may stand as host: "refuse", "loopback" (this machine's) or "allow".
    `ports`: the ports allowed, None for any.
    `allow_hosts`: where set, the only hosts allowed, compared exactly but for case and the root's dot;
    their addresses are checked all the same. `deny_hosts`: hosts refused, compared alike.
    `environment_credentials`: whether keys may come from variables and `auth=` references.
    `allow_system`: whether the URI's `system` text is used as it is.
    """

    name: str = "trusted"
    allow_loopback: bool = False
    allow_networks: tuple[str, ...] = ()
    ip_literals: IPLiterals = "refuse"
    ports: frozenset[int] | None = None
    allow_hosts: frozenset[str] | None = None
    deny_hosts: frozenset[str] = frozenset()
    environment_credentials: bool = True
    allow_system: bool = True
    _networks: tuple[Network, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("allow_networks", _require_texts("allow_networks", self.allow_networks))
        put("_networks", tuple(_require_network(text) for text in self.allow_networks))
        if self.ip_literals not in _IP_LITERALS:
            raise UsageError(f"ip_literals is one of {', '.join(_IP_LITERALS)}", code="usage.policy")
        if self.ports is not None:
            put("ports", frozenset(_require_port(port) for port in _require_collection("ports", self.ports)))
        if self.allow_hosts is not None:
            put("allow_hosts", _parse_hosts("allow_hosts", self.allow_hosts))
        put("deny_hosts", _parse_hosts("deny_hosts", self.deny_hosts))

    @classmethod
    def trusted(cls) -> Policy:
        """For URIs that the operator wrote. The default."""
        return _PRESETS["trusted"]

    @classmethod
    def local(cls) -> Policy:
        """`trusted`, and this machine as well: for model servers on localhost."""
        return _PRESETS["local"]

    @classmethod
    def untrusted(cls) -> Policy:
        """For URIs from outside: port 443 alone, no credentials of ours, no system text."""
        return _PRESETS["untrusted"]

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Policy:
        """The preset of this name with some fields changed, as `replace` changes them."""
        if name not in _PRESETS:
            raise UsageError(f"a policy preset is one of {', '.join(PRESETS)}", code="usage.policy")
        return _PRESETS[name].replace(**overrides)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """A policy from plain data: `preset` (default trusted) and overrides by field name.

        `allow_ip_literals`, true or false, may stand for `ip_literals`. Raises UsageError for what it does
        not know or cannot use.
        """
        values = dict(data)
        preset = values.pop("preset", "trusted")
        literals = values.pop("allow_ip_literals", None)
        if literals is not None:
            values["ip_literals"] = "allow" if _require_flag("allow_ip_literals", literals) else "refuse"
        for name in _FLAGS & values.keys():
            _require_flag(name, values[name])
        return cls.preset(preset if isinstance(preset, str) else "", **values)

    def replace(self, **changes: Any) -> Policy:
        """A copy with these fields changed.

        Allowing loopback allows its addresses as hosts too, unless `ip_literals` is given as well.
        """
        unknown = changes.keys() - _FIELDS
        if unknown:
            raise UsageError(f"a policy has no {', '.join(sorted(unknown))}", code="usage.policy")
        if changes.get("allow_loopback") and self.ip_literals == "refuse":
            changes.setdefault("ip_literals", "loopback")
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy says of one host and port.

    `reason` is the code of a refusal, else None. `connect_to` holds the addresses that a connection may use,
    in the order to try them, none after a refusal. `host` is the host in its one spelling, "" if it has none.
    """

    allowed: bool
    reason: str | None
    connect_to: tuple[str, ...]
    host: str

    def to_error(self, endpoint: str | None = None) -> PolicyError:
        """The error that a refusal is raised as."""
        return make_policy_error(self.reason or "bad-host", endpoint)


def evaluate_policy(
    policy: Policy, host: str, port: int, *, scheme: str = "https", answers: Sequence[object] | None = None
) -> Decision:
    """Whether the policy lets a request go to `host` and `port`, and to which addresses.

    `answers` is what one look-up of the name gave. If any of them is refused, the name is. They are not
    needed for IP literals and for names of this machine; given for the latter, they must all be loopback.
    """
    found = parse_host(host)
    reason = found.reason or _check_host_lists(policy, found)
    if reason is not None:
        return _make_refusal(found, reason)
    addresses = _list_addresses(found, answers)
    if addresses is None:
        return _make_refusal(found, "bad-answer")
    # a refused port is no reason to look a name up, so the missing address is told last
    reason = _find_refusal(policy, found, port, scheme, addresses) or (None if addresses else "no-address")
    if reason is not None:
        return _make_refusal(found, reason)
    usable = dict.fromkeys(str(_unmap_ipv4(address)) for address in addresses)
    return Decision(True, None, tuple(usable), found.text)


def _find_refusal(
    policy: Policy, host: Host, port: int, scheme: str, addresses: Iterable[Address]
) -> str | None:
    """The first rule that refuses: address, literal, port, scheme."""
    for address in addresses:
        reason = _check_address(policy, host, address)
        if reason is not None:
            return reason
    if host.address is not None and not _is_literal_allowed(policy, host.address):
        return "ip-literal"
    if not 0 < port < 65536 or (policy.ports is not None and port not in policy.ports):
        return "port"
    if scheme == "https":
        return None
    if scheme != "http":
        return "scheme"
    return None if policy.allow_loopback and _is_this_machine(host) else "plain-http"


def _check_host_lists(policy: Policy, host: Host) -> str | None:
    if host.text in policy.deny_hosts:
        return "host-denied"
    if policy.allow_hosts is not None and host.text not in policy.allow_hosts:
        return "host-not-allowed"
    return None


def _list_addresses(host: Host, answers: Sequence[object] | None) -> tuple[Address, ...] | None:
    """The addresses to judge; None where something else is among them."""
    if host.address is not None:
        return (host.address,)
    texts: tuple[object, ...] = tuple(answers or ()) or list_loopback_addresses(host.text)
    parsed = [parse_address(text) if isinstance(text, str) else None for text in texts]
    return None if None in parsed else cast("tuple[Address, ...]", tuple(parsed))


def _check_address(policy: Policy, host: Host, address: Address) -> str | None:
    category = classify_address(address)
    if host.kind == "loopback" and category != LOOPBACK:
        return "not-loopback"
    if category == PUBLIC or (category == LOOPBACK and policy.allow_loopback and _is_this_machine(host)):
        return None
    precise = category.endswith(METADATA)
    if any(
        network.contains_address(address) and (network.is_single or not precise)
        for network in policy._networks
    ):
        return None
    return category


def _is_this_machine(host: Host) -> bool:
    """Whether the text of the host alone says so: what a look-up answers does not count."""
    return host.kind == "loopback" or (
        host.address is not None and classify_address(host.address) == LOOPBACK
    )


def _is_literal_allowed(policy: Policy, address: Address) -> bool:
    if policy.ip_literals == "loopback":
        return classify_address(address) == LOOPBACK
    return policy.ip_literals == "allow"


def _unmap_ipv4(address: Address) -> Address:
    """An IPv4-mapped address as the IPv4 address that a system would connect to."""
    if address.version == 6 and address.value >> 32 == 0xFFFF:
        return Address(4, address.value & 0xFFFF_FFFF)
    return address


def _make_refusal(host: Host, reason: str) -> Decision:
    return Decision(False, reason, (), host.text)


def _require_collection(name: str, values: object) -> Collection[Any]:
    if isinstance(values, str) or not isinstance(values, Collection):
        raise UsageError(f"{name} is a list", code="usage.policy")
    return values


def _require_texts(name: str, values: object) -> tuple[str, ...]:
    texts = tuple(_require_collection(name, values))
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name} is a list of texts", code="usage.policy")
    return texts


def _parse_hosts(name: str, values: object) -> frozenset[str]:
    hosts = [parse_host(text) for text in _require_texts(name, values)]
    # a metadata name may be denied by name; it is refused anyway
    if not all(host.text for host in hosts):
        raise UsageError(f"{name} holds what is neither a DNS name nor an IP address", code="usage.policy")
    return frozenset(host.text for host in hosts)


def _require_network(text: str) -> Network:
    network = parse_network(text)
    if network is None:
        raise UsageError(
            "allow_networks holds what is no CIDR block",
            code="usage.policy",
            hint='write "10.1.0.0/16", with no bits set beyond the length',
        )
    return network


def _require_port(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise UsageError("ports holds what is no port (1 to 65535)", code="usage.policy")
    return value


def _require_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} is true or false", code="usage.policy")
    return value


_FIELDS: Final = frozenset(each.name for each in fields(Policy) if each.init)
_FLAGS: Final = frozenset({"allow_loopback", "environment_credentials", "allow_system"})
_PRESETS: Final[dict[str, Policy]] = {
    "trusted": Policy(),
    "local": Policy(name="local", allow_loopback=True, ip_literals="loopback"),
    "untrusted": Policy(
        name="untrusted", ports=frozenset({443}), environment_credentials=False, allow_system=False
    ),
}


def evaluate_uri(
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
    scheme = choose_scheme(parsed.host, rules)
    return evaluate_policy(
        rules, parsed.host, parsed.effective_port, scheme=scheme, answers=_parse_answers(dns or {})
    )


def choose_scheme(host: str, policy: Policy) -> Literal["https", "http"]:
    """The scheme by which a host is spoken to: plain HTTP for this machine where the policy allows it."""
    return "http" if policy.allow_loopback and is_loopback(host) else "https"


def _parse_answers(dns: Mapping[str, Any]) -> Sequence[object] | None:
    found = dns.get("answers")
    if found is None and dns.get("sequence"):
        found = _require_list(dns["sequence"])[0]
    return None if found is None else _require_list(found)


def _require_list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise UsageError("`dns` holds `answers`, a list of addresses, or `sequence`, a list of such lists")
    return value
