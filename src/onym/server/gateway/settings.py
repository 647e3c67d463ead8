"""The gateway's settings, as values; `load` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from onym.ai.replay import MOST
from onym.errors import ConfigError
from onym.server import _reading as read
from onym.server._tables import Rate
from onym.uri.generic import URI
from onym.uri.secret import Secret

__all__ = ["Context", "GatewayRates", "GatewaySettings", "Namespaces"]

_MEGABYTE: Final = 1024 * 1024
#: not addresses that anybody could open
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_READS: Final = Rate(burst=300, per_minute=600)
_WRITES: Final = Rate(burst=60, per_minute=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """A signed registry file for names of one label, and the file of the JWK Set that it is signed with.

    `state` is a file that remembers the newest issue seen, so that no older one is taken.
    """

    file: str
    keys: str
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who speaks for `ai:/path` below this path: an https origin, and the thumbprints of its keys."""

    path: str
    anchor: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRates:
    """How much one client address may ask for; an IPv6 network counts as one."""

    reads: Rate = _READS
    writes: Rate = _WRITES


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """All settings of one gateway. Immutable; printed, it shows no secret.

    `base_url` is the origin that people see, without a path; where none is given, the one that is listened
    on, https where there is a certificate; ConfigError `config.missing-setting` is raised for one without a
    certificate that others than this machine would reach. `allowed_hosts` are the values of Host that are
    served, that of `base_url` where none is given. `keys` is the folder of the key store; without one, a
    gateway on this machine signs with a key that ends with the process. `audit` is the file of the audit log,
    `audit_key` what hashes paths in it (a new one for each start where none is given). `pins` and `replays`
    are files; what they hold is forgotten at the end without them. `replay_limit` is how many receipts are
    kept apart, in the file or in memory, each for 180 seconds.

    `trusted_proxies` are CIDR blocks whose `X-Forwarded-For` counts, for rate limits alone. `network` says
    where authorities may be: `public` addresses on port 443, or `local` ones too, for trials. `ports` are
    further ports, `networks` CIDR blocks that may be reached although they are not public. `ca_files` are
    trusted besides the system's. `dns` says whether SRV and TXT records are asked for, of `nameservers`
    (addresses, at `nameserver_port`; the system's by default). Times are in seconds, sizes in octets.
    """

    base_url: str = ""
    host: str = "127.0.0.1"
    port: int = 8480
    certificate: str | None = None
    key: str | None = None
    behind_proxy: bool = False
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    keys: str | None = None
    audit: str | None = None
    audit_key: Secret | None = None
    pins: str | None = None
    replays: str | None = None
    replay_limit: int = MOST
    network: Literal["public", "local"] = "public"
    dns: bool = True
    nameservers: tuple[str, ...] = ()
    nameserver_port: int = 53
    ports: tuple[int, ...] = ()
    networks: tuple[str, ...] = ()
    ca_files: tuple[str, ...] = ()
    body_limit: int = _MEGABYTE
    answer_limit: int = 8 * _MEGABYTE
    timeout: int = 30
    concurrency: int = 200
    client_concurrency: int = 20
    authority_concurrency: int = 50
    rates: GatewayRates = GatewayRates()
    namespaces: tuple[Namespaces, ...] = ()
    contexts: tuple[Context, ...] = ()
    prefix: str = field(init=False, default="/gateway")

    def __post_init__(self) -> None:
        if not self.base_url:
            object.__setattr__(self, "base_url", _listened(self))
        if not self.allowed_hosts:
            object.__setattr__(self, "allowed_hosts", (read.authority(self.base_url),))

    @property
    def https(self) -> bool:
        """Is the gateway reached over TLS?"""
        return self.base_url.startswith("https:")

    @property
    def name(self) -> str:
        """The gateway's name in Via and Proxy-Status: its host with its port."""
        return read.authority(self.base_url)

    @property
    def own_hosts(self) -> frozenset[str]:
        """Its host names, without ports: no authority that it goes to."""
        urls = (self.base_url, *(f"https://{each}" for each in self.allowed_hosts))
        names = (URI.parse(each).host or "" for each in urls)
        return frozenset(each.lower().removeprefix("[").removesuffix("]") for each in names)

    @property
    def cookie(self) -> str:
        """The name of the cookie that the page's forms follow from."""
        return "__Host-onym-gateway" if self.https else "onym-gateway"


def _listened(settings: GatewaySettings) -> str:
    """The origin of the address that is listened on. Raises ConfigError where it is not what people see."""
    everywhere = settings.host in _EVERYWHERE
    # what http shows to others than this machine comes through a proxy, under an address of its own
    others = settings.behind_proxy if everywhere else not read.is_loopback(settings.host)
    if others and settings.certificate is None:
        raise ConfigError(
            "base_url is missing: others than this machine are to come, and there is no certificate",
            code="config.missing-setting",
            hint="set base_url to the https address that people see, or give certificate and key",
        )
    scheme, usual = ("http", 80) if settings.certificate is None else ("https", 443)
    host = "127.0.0.1" if everywhere else settings.host
    port = "" if settings.port == usual else f":{settings.port}"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{port}"
