"""Resolve the options of a command to a network and an `llm://` client: URI, policy, key, parameters, proxy.

The options `--proxy`, `--ca`, `--cert` and `--cert-key` are stronger than `ONYM_PROXY`, which is stronger
than the table `[network]` of the configuration.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from onym.cli import _input
from onym.cli._commands import add_options
from onym.cli._output import Session, select_fields
from onym.errors import OnymWarning, UsageError
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.client import Client
    from onym.llm.config import Config
    from onym.llm.mapping import OnUnsupported
    from onym.llm.providers import ProviderTable
    from onym.llm.request_headers import HeaderPairs
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions(NetworkOptions):
    """The options of every command that calls an endpoint."""

    uri: str
    policy: str | None = None
    key_stdin: bool = False
    params: Sequence[str] = ()
    headers: Sequence[str] = ()
    on_unsupported: OnUnsupported = "error"
    gguf: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCall:
    """The settings of a client, from the command line and the configuration."""

    uri: LLMURI
    key: Any
    network: NetConfig
    config: Config
    overrides: dict[str, Any]
    #: the environment of the client; None for that of this process
    environ: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedCall:
    """A client, its URI and network settings, and the values of `-p` as arguments of its calls."""

    client: Client
    uri: LLMURI
    network: NetConfig
    overrides: dict[str, Any]


#: adds `--policy`, `--key-stdin`, `-p`, `--gguf`, `--on-unsupported` and `network_options` to a command
call_options = add_options(
    _input.policy_option,
    _input.key_stdin_option,
    _input.param_option,
    click.option("-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'",
                 help="A header to send (repeatable)."),
    click.option("--gguf", type=click.Path(dir_okay=False), metavar="FILE",
                 help="Use this GGUF file as the embedded model llm://embedded/NAME, with any NAME."),
    click.option("--on-unsupported", type=click.Choice(["error", "warn", "drop"]), default="error",
                 help="What to do with a parameter that the model does not support (default: error)."),
    network_options,
)  # fmt: skip


@contextmanager
def open_client(session: Session, call: CallOptions) -> Iterator[ConnectedCall]:
    """Open a client for this call. Warnings become notes, and logs are masked."""
    from onym.llm.client import connect

    resolved = resolve_call(session, call)
    settings = select_fields(resolved, "key", "network", "config", "environ")
    with (
        show_warnings_as_notes(session),
        connect(resolved.uri, on_unsupported=call.on_unsupported, **settings) as client,
    ):
        yield ConnectedCall(client=client, **select_fields(resolved, "uri", "network", "overrides"))


def resolve_call(session: Session, call: CallOptions) -> ResolvedCall:
    """Return the URI, key, network and parameters of this call. Logs are masked from here on."""
    from onym.llm.client import choose_policy
    from onym.llm.config import Config
    from onym.llm.providers import is_loopback
    from onym.llm.request_headers import merge_headers
    from onym.net.config import NetConfig
    from onym.net.policy import Policy
    from onym.uri.log_filter import install_logging_filter

    install_logging_filter()
    typed_headers = _read_headers(session, call.headers)
    config = Config.load()
    subject = _input.resolve_subject(session, call.uri, config)
    uri = LLMURI.parse(subject.text)
    if uri.key is not None:
        session.secrets.append(uri.key)
    uri, overrides = _apply_params(uri, call.params, config.providers)
    _note_misspelt_parameters(session, uri, overrides.get("extra", {}))
    headers = merge_headers(config.headers.get(call.uri, {}).items(), typed_headers)
    if headers:
        overrides["headers"] = dict(headers)
    if call.gguf is not None:
        from onym.llm import embedded

        if uri.host != "embedded":
            message = f"--gguf needs a URI llm://embedded/NAME, but the host is {uri.host}"
            raise UsageError(message, code="usage.command-line")
        embedded.register_model(uri.model, call.gguf)
    if call.key_stdin and call.uri == "-":
        raise UsageError(
            "standard input cannot give both the URI and the key",
            code="usage.key-stdin",
            hint="write the URI on the command line, or use ?auth=env:NAME for the key",
        )
    key = _input.read_key(session) if call.key_stdin else None
    if call.policy is not None:
        policy = Policy.preset(call.policy)
    else:
        policy = choose_policy(config, os.environ, typed=subject.typed)
    network = build_network(session, call, NetConfig(policy=policy), config, loopback=is_loopback(uri.host))
    session.print_detail("configuration", config.path or "no file")
    session.print_detail("endpoint", uri.without_key().render())
    session.print_detail("policy", call.policy or ("of the configuration" if config.policy else "by origin"))
    session.print_detail("proxy", "none" if network.proxy is None else network.proxy.text)
    return ResolvedCall(
        uri=uri,
        key=key,
        network=network,
        config=config,
        overrides=overrides,
        environ=None if call.proxy is None else build_environment(call),
    )


def _read_headers(session: Session, lines: Sequence[str]) -> HeaderPairs:
    """Return the headers of `-H`. Their values are masked from here on."""
    from onym.llm.request_headers import merge_headers

    headers = tuple(_input.parse_header(line) for line in lines)
    session.secrets.extend(value for _, value in headers if isinstance(value, Secret))
    if len(merge_headers(headers)) != len(headers):
        raise UsageError("two -H options set the same header", code="usage.header")
    return headers


def _apply_params(
    uri: LLMURI, pairs: Sequence[str], providers: ProviderTable
) -> tuple[LLMURI, dict[str, Any]]:
    """Split `-p` values into those that the URI must have, and overrides of the call's arguments."""
    from onym.uri.parameters import WELL_KNOWN

    if not pairs:
        return uri, {}
    params = dict(_input.parse_params(pairs))
    routing = {name: params.pop(name) for name in _list_routing_names(uri, providers) if name in params}
    if routing:
        uri = uri.with_params(routing)
    overrides: dict[str, Any] = {name: params.pop(name) for name in WELL_KNOWN if name in params}
    if params:
        # nested like the query of a URI
        overrides["extra"] = _input.parse_params(p for p in pairs if p.partition("=")[0] in params).nested()
    return uri, overrides


def _note_misspelt_parameters(session: Session, uri: LLMURI, extra: Mapping[str, Any]) -> None:
    """Print a warning for each parameter that is passed through and is spelled like a standard one."""
    from onym.uri.parameters import PROVIDER_NAMES, find_closest_name, format_name

    for name in (*uri.extra, *extra):
        meant = None if name in PROVIDER_NAMES else find_closest_name(name)
        if meant is not None:
            unknown = f"{format_name(name)} is not a standard parameter and is passed through"
            session.print_note(f"{unknown}; did you mean {meant}?", kind="warning")


def _list_routing_names(uri: LLMURI, providers: ProviderTable) -> set[str]:
    """Return the parameters that choose the key, the API or a part of the path, which no call changes."""
    from onym.llm.endpoint import API_PARAMETER

    row = _input.find_provider(uri, providers)
    paths = {rule.parameter for rule in row.path_values.values()}
    return {"auth", *([API_PARAMETER] if row.apis else ()), *paths, *row.query}


@contextmanager
def show_warnings_as_notes(session: Session, action: Literal["always", "once"] = "always") -> Iterator[None]:
    """Print warnings of Onym as notes on standard error."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        session.print_note(str(message), kind="warning")

    with warnings.catch_warnings():
        warnings.simplefilter(action, OnymWarning)
        warnings.showwarning = show
        yield
