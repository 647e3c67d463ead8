"""The options `--proxy`, `--ca`, `--cert` and `--cert-key`, and the network settings that they mean.

They are stronger than `ONYM_PROXY`, which is stronger than the table `[network]` of the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import click

from onym.cli._input import add_options
from onym.cli._output import Session
from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.llm.config import Config
    from onym.net.config import NetConfig

_FILE: Final = click.Path(exists=True, dir_okay=False)

#: adds the options to a command; their values are the fields of `NetworkOptions`
network_options = add_options(
    click.option("--proxy", metavar="URL",
                 help="The proxy's URL, `environment` for HTTPS_PROXY and NO_PROXY, or `none`. "
                 "Default: ONYM_PROXY, then the configuration, else none."),
    click.option("--ca", "ca_files", type=_FILE, multiple=True, metavar="FILE",
                 help="A certificate authority (PEM) to trust besides the system's (repeatable)."),
    click.option("--cert", type=_FILE, metavar="FILE",
                 help="The client certificate (PEM), for servers that require one."),
    click.option("--cert-key", type=_FILE, metavar="FILE",
                 help="The key of the client certificate (PEM). Default: the key in --cert."),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """The values of the options."""

    proxy: str | None = None
    ca_files: Sequence[str] = ()
    cert: str | None = None
    cert_key: str | None = None

    @property
    def has_certificates(self) -> bool:
        """Whether the user named an authority or a client certificate."""
        return bool(self.ca_files) or self.cert is not None


def build_network(
    session: Session, options: NetworkOptions, given: NetConfig, config: Config, *, loopback: bool = False
) -> NetConfig:
    """Return `given` with the proxy and the certificates. Raises UsageError; masks the proxy's password.

    `loopback` is whether the server is on this computer. It is one with TLS if the user named certificates.
    """
    from onym.llm.client import choose_network
    from onym.llm.config import parse_proxy

    if options.cert_key is not None and options.cert is None:
        raise UsageError("--cert-key needs --cert", code="usage.command-line")
    if options.proxy is not None:
        given = replace(given, proxy=parse_proxy(options.proxy, os.environ))
    network = choose_network(given, given.policy, build_environment(options), config.network)
    if network.proxy is not None and network.proxy.password is not None:
        session.secrets.append(network.proxy.password)
    if not options.has_certificates:
        return network
    tls = network.tls
    tls = replace(tls, ca_files=(*tls.ca_files, *options.ca_files), loopback=tls.loopback or loopback)
    if options.cert is not None:
        tls = replace(tls, client_cert=options.cert, client_key=options.cert_key)
    return replace(network, tls=tls)


def build_environment(options: NetworkOptions) -> Mapping[str, str]:
    """Return the environment, in which `--proxy` replaces `ONYM_PROXY`."""
    return os.environ if options.proxy is None else {**os.environ, "ONYM_PROXY": options.proxy}
