"""What the operating system and OpenSSL raise, in Onym's classes: the one seam. (most specific first)

The texts are ours: those of the system can hold host names and paths, none of ours holds a value.
"""

from __future__ import annotations

import errno
import ssl
from typing import Final

from onym.errors import ConnectionFailed, NetError, TLSError

__all__ = ["late", "translate"]

_NO_WAY: Final = frozenset(
    {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH}
)
#: X509_V_ERR_*: what is wrong with a certificate, and what can be done about it
_CERTIFICATE: Final[dict[int, tuple[str, str | None]]] = {
    9: ("the server's certificate is not valid yet", "check this machine's clock"),
    10: ("the server's certificate has expired", "the operator renews it; or is this machine's clock wrong?"),
    18: ("the server's certificate is signed by itself", "trust it: --ca FILE, TLSConfig(ca_files=...)"),
    19: ("the server's certificate has an unknown authority", "trust it: --ca FILE, TLSConfig(ca_files=...)"),
    20: ("the server's certificate has an unknown authority", "trust it: --ca FILE, TLSConfig(ca_files=...)"),
    62: ("the server's certificate is for another host name", None),
    64: ("the server's certificate is for another IP address", None),
}


def late() -> ConnectionFailed:
    """The error for an attempt to connect that took too long, while the call still has time."""
    return ConnectionFailed("no connection came about in time", code="net.connection.timeout")


def translate(error: Exception) -> NetError:
    """The error to raise for this one of the socket or TLS layer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text, hint = _CERTIFICATE.get(error.verify_code, ("the server's certificate cannot be trusted", None))
        return TLSError(text, code="net.tls.certificate", hint=hint)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ConnectionFailed("the connection broke", code="net.connection.broken")
    if isinstance(error, ssl.SSLError):
        return _tls(error)
    if isinstance(error, ConnectionRefusedError):
        return ConnectionFailed("nothing takes connections there", code="net.connection.refused")
    if isinstance(error, ConnectionError):
        return ConnectionFailed("the connection broke", code="net.connection.broken")
    if isinstance(error, TimeoutError):
        return late()
    if isinstance(error, OSError) and error.errno in _NO_WAY:
        return ConnectionFailed("there is no way to that address", code="net.connection.unreachable")
    return ConnectionFailed("no connection is possible", code="net.connection")


def _tls(error: ssl.SSLError) -> TLSError:
    reason = getattr(error, "reason", None) or ""
    if "WRONG_VERSION" in reason or "HTTP_REQUEST" in reason:
        return TLSError("the server does not speak TLS on this port", code="net.tls.none")
    if "PROTOCOL" in reason and "VERSION" in reason:
        return TLSError("the server speaks no version of TLS that is allowed here", code="net.tls.version")
    return TLSError("no TLS session came about", code="net.tls.handshake")
