"""Whom TLS trusts."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path
from typing import Final

from onym.errors import UsageError
from onym.net.limits import TLSConfig

__all__ = ["make_context"]

#: where systems keep their authorities, for a Python that was built to look elsewhere
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, BSD
)
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def make_context(config: TLSConfig) -> ssl.SSLContext:
    """A context that demands a certificate for the right name, and the version of TLS that `config` says.

    Raises UsageError where a file of authorities cannot be read.
    """
    if not config.ca_files:
        return _system_context(config.minimum)
    context = _new_context(_BUNDLES, config.minimum)
    for path in config.ca_files:
        try:
            context.load_verify_locations(cafile=path)
        except OSError as error:
            what = "holds no certificates" if isinstance(error, ssl.SSLError) else "cannot be read"
            raise UsageError(
                f"{path}, a file of authorities, {what}",
                code="usage.tls",
                hint="PEM; TLSConfig(ca_files=...) and --ca name it",
            ) from None
    return context


@cache
def _system_context(minimum: str) -> ssl.SSLContext:
    """Reading the system's authorities takes about 20 ms, and contexts may be shared."""
    return _new_context(_BUNDLES, minimum)


def _new_context(bundles: tuple[str, ...], minimum: str = "1.2") -> ssl.SSLContext:
    # not create_default_context: it writes session keys to a file that a variable names
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[minimum]
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if not context.cert_store_stats()["x509_ca"]:
        bundle = next((path for path in bundles if Path(path).is_file()), None)
        if bundle is not None:
            context.load_verify_locations(cafile=bundle)
    return context
