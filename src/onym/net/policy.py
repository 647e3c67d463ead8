"""Where a request may go, and why not. Pure: no look-up, no clock, no environment. (draft 10.2, 10.5)

>>> decide(Policy.untrusted(), "api.openai.com", 443, answers=["10.0.0.1"]).reason
'private'
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from onym.errors import UsageError
from onym.net._reasons import refusal
from onym.net.addresses import (
    LOOPBACK,
    METADATA,
    PUBLIC,
    Address,
    Network,
    classify,
    parse_address,
    parse_network,
)
from onym.net.hosts import Host, loopback_addresses, read_host

if TYPE_CHECKING:
    from onym.errors import PolicyError

__all__ = ["PRESETS", "Decision", "IPLiterals", "Policy", "Preset", "decide"]

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

        put("allow_networks", _texts("allow_networks", self.allow_networks))
        put("_networks", tuple(_network(text) for text in self.allow_networks))
        if self.ip_literals not in _IP_LITERALS:
            raise UsageError(f"ip_literals is one of {', '.join(_IP_LITERALS)}", code="usage.policy")
        if self.ports is not None:
            put("ports", frozenset(_port(port) for port in _items("ports", self.ports)))
        if self.allow_hosts is not None:
            put("allow_hosts", _hosts("allow_hosts", self.allow_hosts))
        put("deny_hosts", _hosts("deny_hosts", self.deny_hosts))

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
            values["ip_literals"] = "allow" if _flag("allow_ip_literals", literals) else "refuse"
        for name in _FLAGS & values.keys():
            _flag(name, values[name])
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

    def error(self, endpoint: str | None = None) -> PolicyError:
        """The error that a refusal is raised as."""
        return refusal(self.reason or "bad-host", endpoint)


def decide(
    policy: Policy, host: str, port: int, *, scheme: str = "https", answers: Sequence[object] | None = None
) -> Decision:
    """Whether the policy lets a request go to `host` and `port`, and to which addresses.

    `answers` is what one look-up of the name gave. If any of them is refused, the name is. They are not
    needed for IP literals and for names of this machine; given for the latter, they must all be loopback.
    """
    found = read_host(host)
    reason = found.reason or _listed(policy, found)
    if reason is not None:
        return _refuse(found, reason)
    addresses = _addresses(found, answers)
    if addresses is None:
        return _refuse(found, "bad-answer")
    # a refused port is no reason to look a name up, so the missing address is told last
    reason = _check(policy, found, port, scheme, addresses) or (None if addresses else "no-address")
    if reason is not None:
        return _refuse(found, reason)
    usable = dict.fromkeys(str(_plain(address)) for address in addresses)
    return Decision(True, None, tuple(usable), found.text)


def _check(policy: Policy, host: Host, port: int, scheme: str, addresses: Iterable[Address]) -> str | None:
    """The first rule that refuses: address, literal, port, scheme."""
    for address in addresses:
        reason = _refused_address(policy, host, address)
        if reason is not None:
            return reason
    if host.address is not None and not _literal_allowed(policy, host.address):
        return "ip-literal"
    if not 0 < port < 65536 or (policy.ports is not None and port not in policy.ports):
        return "port"
    if scheme == "https":
        return None
    if scheme != "http":
        return "scheme"
    return None if policy.allow_loopback and _is_this_machine(host) else "plain-http"


def _listed(policy: Policy, host: Host) -> str | None:
    if host.text in policy.deny_hosts:
        return "host-denied"
    if policy.allow_hosts is not None and host.text not in policy.allow_hosts:
        return "host-not-allowed"
    return None


def _addresses(host: Host, answers: Sequence[object] | None) -> tuple[Address, ...] | None:
    """The addresses to judge; None where something else is among them."""
    if host.address is not None:
        return (host.address,)
    texts: tuple[object, ...] = tuple(answers or ()) or loopback_addresses(host.text)
    parsed = [parse_address(text) if isinstance(text, str) else None for text in texts]
    return None if None in parsed else cast("tuple[Address, ...]", tuple(parsed))


def _refused_address(policy: Policy, host: Host, address: Address) -> str | None:
    category = classify(address)
    if host.kind == "loopback" and category != LOOPBACK:
        return "not-loopback"
    if category == PUBLIC or (category == LOOPBACK and policy.allow_loopback and _is_this_machine(host)):
        return None
    precise = category.endswith(METADATA)
    if any(network.holds(address) and (network.is_single or not precise) for network in policy._networks):
        return None
    return category


def _is_this_machine(host: Host) -> bool:
    """Whether the text of the host alone says so: what a look-up answers does not count."""
    return host.kind == "loopback" or (host.address is not None and classify(host.address) == LOOPBACK)


def _literal_allowed(policy: Policy, address: Address) -> bool:
    if policy.ip_literals == "loopback":
        return classify(address) == LOOPBACK
    return policy.ip_literals == "allow"


def _plain(address: Address) -> Address:
    """An IPv4-mapped address as the IPv4 address that a system would connect to."""
    if address.version == 6 and address.value >> 32 == 0xFFFF:
        return Address(4, address.value & 0xFFFF_FFFF)
    return address


def _refuse(host: Host, reason: str) -> Decision:
    return Decision(False, reason, (), host.text)


def _items(name: str, values: object) -> Collection[Any]:
    if isinstance(values, str) or not isinstance(values, Collection):
        raise UsageError(f"{name} is a list", code="usage.policy")
    return values


def _texts(name: str, values: object) -> tuple[str, ...]:
    texts = tuple(_items(name, values))
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name} is a list of texts", code="usage.policy")
    return texts


def _hosts(name: str, values: object) -> frozenset[str]:
    hosts = [read_host(text) for text in _texts(name, values)]
    # a metadata name may be denied by name; it is refused anyway
    if not all(host.text for host in hosts):
        raise UsageError(f"{name} holds what is neither a DNS name nor an IP address", code="usage.policy")
    return frozenset(host.text for host in hosts)


def _network(text: str) -> Network:
    network = parse_network(text)
    if network is None:
        raise UsageError(
            "allow_networks holds what is no CIDR block",
            code="usage.policy",
            hint='write "10.1.0.0/16", with no bits set beyond the length',
        )
    return network


def _port(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise UsageError("ports holds what is no port (1 to 65535)", code="usage.policy")
    return value


def _flag(name: str, value: object) -> bool:
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
