"""Network policy: the hosts that a request may reach, and the reasons of a refusal (draft 10.2, 10.5).

>>> evaluate_policy(Policy.untrusted(), "api.openai.com", 443, answers=["10.0.0.1"]).reason
'private'

Pure functions: no lookup, no clock, no environment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias, cast

from onym.errors import PolicyError, UsageError
from onym.net import hosts
from onym.uri.llm import LLMURI

_LIST_IT = "If that network is yours, list it in the policy's allow_networks."
_LISTENING = "Servers listen on it, but no client can call it. Write localhost, or the server's own name."
_LOCAL = "For a server on this computer use Policy.local(), or set ONYM_ALLOW_LOOPBACK=1."

_KINDS: Final[dict[str, str]] = {
    "6to4-relay": "the retired 6to4 relays",
    "amt": "multicast tunnelling relays",
    "as112": "the sinks for stray DNS queries",
    "benchmarking": "networks for benchmarks",
    "broadcast": "broadcast",
    "cgnat": "the shared network of an access provider",
    "discard": "the discard prefix",
    "documentation": "documentation",
    "dummy": "the dummy prefix",
    "ietf-protocol": "IETF protocols",
    "link-local": "the local link",
    "loopback": "this computer",
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
    "numeric-host": (
        "the host is a number that systems read differently",
        "Write it as four decimal numbers.",
    ),
    "metadata-name": ("the host is the name of a cloud's metadata service", None),
    "host-denied": ("the policy's deny_hosts names this host", None),
    "host-not-allowed": ("the policy's allow_hosts does not name this host", None),
    "ip-literal": ("the policy allows no IP address as host", 'Set ip_literals="allow" in the policy.'),
    "port": ("the policy does not allow this port", "List it in the policy's ports."),
    "scheme": ("only https, and http to this computer, are supported", None),
    "plain-http": ("plain http is allowed only to this computer", "Use https."),
    "no-address": ("the name has no address", None),
    "bad-answer": ("the lookup of the name returned something that is not an IP address", None),
    "not-loopback": ("a name of this computer has an address elsewhere", None),
    "proxy-resolution": (
        "the proxy would look up the host's name, so that its addresses could not be checked",
        'Use a socks5:// proxy or ProxyConfig(resolve="local"), or set allow_proxy_resolution in the policy.',
    ),
    **{kind: (f"the host has an address for {what}", _LIST_IT) for kind, what in _KINDS.items()},
    "this-network": ('the host is 0.0.0.0 or another address of "this network"', _LISTENING),
    "unspecified": ("the host has an address for no host at all", _LISTENING),
    **{
        f"embedded-{kind}": (f"the host has an IPv6 address that contains one for {what}", None)
        for kind, what in _KINDS.items()
    },
    **{
        f"embedded-{how}": (f"the host has an IPv6 address for {name}", None)
        for how, name in (
            ("6to4", "6to4"),
            ("teredo", "Teredo"),
            ("nat64-local", "a local NAT64"),
            ("obsolete", "an obsolete transition mechanism"),
        )
    },
    "loopback": ("the host is this computer, which the policy does not allow", _LOCAL),
    "metadata": ("the host has the address of a cloud's metadata service", None),
}


def make_policy_error(reason: str, endpoint: str | None) -> PolicyError:
    """Return the error for a refusal with this reason code."""
    sentence, hint = REASONS[reason]
    return PolicyError(sentence, reason=reason, endpoint=endpoint, hint=hint)


IPLiterals: TypeAlias = Literal["refuse", "loopback", "allow"]
Preset: TypeAlias = Literal["trusted", "local", "untrusted"]

PRESETS: Final[tuple[Preset, ...]] = ("trusted", "local", "untrusted")
_IP_LITERALS: Final = ("refuse", "loopback", "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The hosts that may be reached. Change a preset: `Policy.local().replace(ports={8443})`.

    `allow_loopback`: 127.0.0.0/8, ::1 and the names of this computer, also over plain HTTP.
    `allow_networks`: CIDR blocks that are allowed although they are not public. A metadata service is allowed
    only by its single address, not by a wider block.
    `ip_literals`: whether the host may be an IP address: "refuse", "loopback" (of this computer) or "allow".
    `ports`: the allowed ports, None for any.
    `allow_hosts`: if set, the only allowed hosts, compared exactly except for case and the final dot; their
    addresses are checked too. `deny_hosts`: refused hosts, compared in the same way.
    `environment_credentials`: whether keys may come from variables and `auth=` references.
    `allow_system`: whether the URI's `system` text is used unchanged.
    `allow_headers`: if set, the only names that `headers` of a call or an endpoint may have.
    `allow_proxy_resolution`: whether a proxy may look up the names of servers. Onym cannot check their
    addresses then.
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
    allow_headers: frozenset[str] | None = None
    allow_proxy_resolution: bool = True
    _networks: tuple[hosts.Network, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("allow_networks", _require_texts("allow_networks", self.allow_networks))
        put("_networks", tuple(_require_network(text) for text in self.allow_networks))
        if self.ip_literals not in _IP_LITERALS:
            raise UsageError(f"ip_literals must be one of {', '.join(_IP_LITERALS)}", code="usage.policy")
        if self.ports is not None:
            put("ports", frozenset(_require_port(port) for port in _require_collection("ports", self.ports)))
        if self.allow_hosts is not None:
            put("allow_hosts", _parse_hosts("allow_hosts", self.allow_hosts))
        if self.allow_headers is not None:
            names = _require_texts("allow_headers", self.allow_headers)
            put("allow_headers", frozenset(name.lower() for name in names))
        put("deny_hosts", _parse_hosts("deny_hosts", self.deny_hosts))

    @classmethod
    def trusted(cls) -> Policy:
        """Return the default policy, for URIs that the operator wrote."""
        return _PRESETS["trusted"]

    @classmethod
    def local(cls) -> Policy:
        """Return `trusted` with loopback allowed, for model servers on this computer."""
        return _PRESETS["local"]

    @classmethod
    def untrusted(cls) -> Policy:
        """Return the policy for untrusted URIs: port 443, no keys of the environment, no system text.

        A proxy may only be asked for addresses that Onym has checked.
        """
        return _PRESETS["untrusted"]

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Policy:
        """Return the preset with some fields changed, as `replace` does."""
        if name not in _PRESETS:
            raise UsageError(f"a policy preset must be one of {', '.join(PRESETS)}", code="usage.policy")
        return _PRESETS[name].replace(**overrides)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """Return a policy from plain data: `preset` (default: trusted) and fields.

        `allow_ip_literals` (true or false) may replace `ip_literals`. Raises UsageError.
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
        """Return a copy with these fields changed.

        `allow_loopback` also allows its addresses as hosts, unless `ip_literals` is given.
        """
        unknown = changes.keys() - _FIELDS
        if unknown:
            raise UsageError(f"a policy has no {', '.join(sorted(unknown))}", code="usage.policy")
        if changes.get("allow_loopback") and self.ip_literals == "refuse":
            changes.setdefault("ip_literals", "loopback")
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Decision:
    """The policy's decision about one host and port.

    `reason` is the code of a refusal, or None. `connect_to` are the addresses to connect to, in the order to
    try them. `host` is the host in its canonical spelling, "" if it is invalid.
    """

    allowed: bool
    reason: str | None
    connect_to: tuple[str, ...]
    host: str

    def to_error(self, endpoint: str | None = None) -> PolicyError:
        """Return the error for a refusal."""
        return make_policy_error(self.reason or "bad-host", endpoint)


def evaluate_policy(
    policy: Policy,
    host: str,
    port: int,
    *,
    scheme: str = "https",
    answers: Sequence[object] | None = None,
    by_proxy: bool = False,
) -> Decision:
    """Decide whether a request may go to `host` and `port`, and to which addresses.

    `answers` are the addresses from one lookup of the name. If one of them is refused, the name is refused.
    IP literals and names of this computer need no answers; those of the latter must all be loopback.
    `by_proxy` means that a proxy looks up the name: no address is checked, and `connect_to` is empty.
    """
    parsed = hosts.parse_host(host)
    reason = parsed.reason or _check_host_lists(policy, parsed)
    if reason is not None:
        return Decision(False, reason, (), parsed.text)
    addresses = _list_addresses(parsed, answers)
    if addresses is None:
        return Decision(False, "bad-answer", (), parsed.text)
    # a refused port must not cause a lookup, so a missing address is checked last
    reason = _find_refusal(policy, parsed, port, scheme, addresses)
    if reason is None and not addresses:
        reason = _check_missing_address(policy, by_proxy=by_proxy)
    if reason is not None:
        return Decision(False, reason, (), parsed.text)
    usable = dict.fromkeys(str(_unmap_ipv4(address)) for address in addresses)
    return Decision(True, None, tuple(usable), parsed.text)


def _find_refusal(
    policy: Policy, host: hosts.Host, port: int, scheme: str, addresses: Iterable[hosts.Address]
) -> str | None:
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
    return None if policy.allow_loopback and host.is_loopback else "plain-http"


def _check_missing_address(policy: Policy, *, by_proxy: bool) -> str | None:
    if not by_proxy:
        return "no-address"
    return None if policy.allow_proxy_resolution else "proxy-resolution"


def _check_host_lists(policy: Policy, host: hosts.Host) -> str | None:
    if host.text in policy.deny_hosts:
        return "host-denied"
    if policy.allow_hosts is not None and host.text not in policy.allow_hosts:
        return "host-not-allowed"
    return None


def _list_addresses(host: hosts.Host, answers: Sequence[object] | None) -> tuple[hosts.Address, ...] | None:
    """Return the addresses to check, None if one of the answers is not an address."""
    if host.address is not None:
        return (host.address,)
    texts: tuple[object, ...] = tuple(answers or ()) or hosts.list_loopback_addresses(host.text)
    parsed = [hosts.parse_address(text) if isinstance(text, str) else None for text in texts]
    return None if None in parsed else cast("tuple[hosts.Address, ...]", tuple(parsed))


def _check_address(policy: Policy, host: hosts.Host, address: hosts.Address) -> str | None:
    category = hosts.classify_address(address)
    if host.kind == "loopback" and category != hosts.LOOPBACK:
        return "not-loopback"
    if category == hosts.PUBLIC or (
        category == hosts.LOOPBACK and policy.allow_loopback and host.is_loopback
    ):
        return None
    precise = category.endswith(hosts.METADATA)
    if any(
        network.contains_address(address) and (network.is_single or not precise)
        for network in policy._networks
    ):
        return None
    return category


def _is_literal_allowed(policy: Policy, address: hosts.Address) -> bool:
    if policy.ip_literals == "loopback":
        return hosts.classify_address(address) == hosts.LOOPBACK
    return policy.ip_literals == "allow"


def _unmap_ipv4(address: hosts.Address) -> hosts.Address:
    """Return the IPv4 address that a system connects to for an IPv4-mapped address."""
    if address.version == 6 and address.value >> 32 == 0xFFFF:
        return hosts.Address(4, address.value & 0xFFFF_FFFF)
    return address


def _require_collection(name: str, values: object) -> Collection[Any]:
    if isinstance(values, str) or not isinstance(values, Collection):
        raise UsageError(f"{name} must be a list", code="usage.policy")
    return values


def _require_texts(name: str, values: object) -> tuple[str, ...]:
    texts = tuple(_require_collection(name, values))
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name} must be a list of texts", code="usage.policy")
    return texts


def _parse_hosts(name: str, values: object) -> frozenset[str]:
    parsed = [hosts.parse_host(text) for text in _require_texts(name, values)]
    if not all(host.text for host in parsed):
        raise UsageError(
            f"{name} contains something that is neither a DNS name nor an IP address", code="usage.policy"
        )
    return frozenset(host.text for host in parsed)


def _require_network(text: str) -> hosts.Network:
    network = hosts.parse_network(text)
    if network is None:
        raise UsageError(
            "allow_networks contains something that is not a CIDR block",
            code="usage.policy",
            hint='Write "10.1.0.0/16", without bits beyond the length.',
        )
    return network


def _require_port(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise UsageError("ports must be numbers from 1 to 65535", code="usage.policy")
    return value


def _require_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false", code="usage.policy")
    return value


_FIELDS: Final = frozenset(member.name for member in fields(Policy) if member.init)
_FLAGS: Final = frozenset(
    {"allow_loopback", "allow_proxy_resolution", "allow_system", "environment_credentials"}
)
_PRESETS: Final[dict[str, Policy]] = {
    "trusted": Policy(),
    "local": Policy(name="local", allow_loopback=True, ip_literals="loopback"),
    "untrusted": Policy(
        name="untrusted",
        ports=frozenset({443}),
        environment_credentials=False,
        allow_system=False,
        # a header is meant for one provider, and here another person chooses the host
        allow_headers=frozenset(),
        allow_proxy_resolution=False,
    ),
}


def evaluate_uri(
    uri: str | LLMURI, policy: Policy | Mapping[str, Any], dns: Mapping[str, Any] | None = None
) -> Decision:
    """Return the decision about this URI under this policy, with given answers of the lookup.

    `dns` has `answers` (addresses), or `sequence` (the answers of successive lookups, of which the first is
    used); without both, the lookup fails. Raises URIError for an invalid llm URI, UsageError for an invalid
    policy or invalid answers.
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
    """Return the scheme for a host: plain HTTP for this computer if the policy allows it."""
    return "http" if policy.allow_loopback and hosts.is_loopback(host) else "https"


def _parse_answers(dns: Mapping[str, Any]) -> Sequence[object] | None:
    answers = dns.get("answers")
    if answers is None and dns.get("sequence"):
        answers = _require_list(dns["sequence"])[0]
    return None if answers is None else _require_list(answers)


def _require_list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise UsageError("dns must have `answers`, a list of addresses, or `sequence`, a list of such lists")
    return value
