"""Valkey and Redis: clients for threads and for asyncio, opened from a URL.

The clients are those of the package `valkey` (extra `valkey`). They connect when they are first used. Run
commands inside `translate_errors`, which turns the client's errors into StoreError:

    client = open_valkey(Secret("valkeys://app:password@cache.example/0"))
    with translate_errors():
        client.set("key", "value", nx=True, px=60_000)

Errors, reprs and tracebacks do not contain the password or the server's messages, which may quote values.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from onym._lazy import require_extra
from onym.errors import StaleError, StoreError, URIError
from onym.uri.components import decode_component
from onym.uri.generic import URI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from valkey import Valkey
    from valkey.asyncio import Valkey as AsyncValkey

_TLS_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
#: scheme of a URL -> whether the connection uses TLS
VALKEY_SCHEMES: Final = {"redis": False, "valkey": False, "rediss": True, "valkeys": True, "unix": False}
_PORT: Final = 6379
#: the number of a database: the path of a TCP URL, the query of a unix URL
_DATABASE_PATH: Final = re.compile(r"/?([0-9]{1,5})?")
_DATABASE: Final = re.compile(r"(?:db=([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValkeyOptions:
    """How to connect. Times are in seconds.

    `connect_timeout` is for a new connection, `timeout` for each command. `ca_files` (PEM) and `minimum` are
    the fields of `onym.net.TLSConfig`: authorities that are trusted besides the system's, and the lowest
    version of TLS.
    """

    connect_timeout: float = 5.0
    timeout: float = 5.0
    ca_files: tuple[str, ...] = ()
    minimum: Literal["1.2", "1.3"] = "1.2"


def open_valkey(url: str | Secret, options: ValkeyOptions = ValkeyOptions()) -> Valkey:
    """Return a client for threads. Close it with `close()`.

    `url` is `valkey://`, `redis://` (plain TCP), `valkeys://`, `rediss://` (TLS) or `unix://`, such as
    `valkeys://USER:PASSWORD@HOST:PORT/DATABASE` or `unix:///run/valkey.sock?db=0`. Raises StoreError
    (valkey.bad-url, valkey.bad-tls) and MissingExtraError.
    """
    require_extra("valkey", "valkey")
    from valkey import Valkey  # late: an optional dependency

    return Valkey(**_build_arguments(_wrap_url(url), options))


def open_async_valkey(url: str | Secret, options: ValkeyOptions = ValkeyOptions()) -> AsyncValkey:
    """Return a client for asyncio; see `open_valkey`. Close it with `await client.aclose()`."""
    require_extra("valkey", "valkey")
    from valkey.asyncio import Valkey  # late: an optional dependency

    return Valkey(**_build_arguments(_wrap_url(url), options))


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of the client that leave the block into StoreError; a lost race becomes StaleError."""
    from valkey.exceptions import ValkeyError  # late: an optional dependency

    try:
        yield
    except ValkeyError as error:
        failure = _make_error(error)
        # the client's frames contain the password
        error.__traceback__ = error.__cause__ = error.__context__ = None
        raise failure from None


@dataclass(frozen=True, slots=True)
class _Failure:
    code: str
    message: str
    hint: str


_TLS: Final = _Failure(
    "valkey.tls", "the TLS handshake failed", "Check the host in the URL, and ca_files for its certificate."
)
_CREDENTIALS: Final = _Failure(
    "valkey.credentials", "the server rejected the user or the password", "Check both in the URL."
)
#: by the name of the client's exception class or of a base class
_FAILURES: Final = {
    "AuthenticationError": _CREDENTIALS,
    "AuthorizationError": _CREDENTIALS,
    "NoPermissionError": _Failure(
        "valkey.forbidden", "the user may not run this command", "Grant it to the user with ACL SETUSER."
    ),
    "BusyLoadingError": _Failure("valkey.busy", "the server is still loading its data", "Try again."),
    "ReadOnlyError": _Failure(
        "valkey.read-only", "the server is a read-only replica", "Use the URL of the primary server."
    ),
    "OutOfMemoryError": _Failure(
        "valkey.full", "the memory of the server is full", "Raise maxmemory on the server."
    ),
    "TimeoutError": _Failure(
        "valkey.timeout", "the server did not answer in time", "Check its load, or raise the timeout."
    ),
    "ConnectionError": _Failure(
        "valkey.unreachable",
        "the server cannot be reached",
        "Check that it runs, and the scheme, the host and the port in the URL.",
    ),
    "ValkeyError": _Failure(
        "valkey.failed", "the server rejected the command", "Look at the log of the server."
    ),
}


def _make_error(error: Exception) -> StoreError | StaleError:
    name = type(error).__name__
    if name == "WatchError":
        return StaleError(
            "another client changed the data first",
            code="valkey.stale",
            hint="Read the data again, then try again.",
        )
    failure = next(_FAILURES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _FAILURES)
    if isinstance(error.__cause__ or error.__context__, ssl.SSLError):
        failure = _TLS
    return StoreError(f"{failure.message}: {name}", code=failure.code, hint=failure.hint)


@dataclass(frozen=True, slots=True)
class _Credentials:
    """Gives the client the user and the password when it connects."""

    user: str
    password: Secret = field(repr=False)

    def get_credentials(self) -> tuple[str, ...]:
        """Called by the client."""
        return (self.user, self.password.reveal()) if self.user else (self.password.reveal(),)


def _wrap_url(url: str | Secret) -> Secret:
    return url if isinstance(url, Secret) else Secret(url)


def _build_arguments(url: Secret, options: ValkeyOptions) -> dict[str, Any]:
    arguments = _parse_url(url)
    if arguments is None:
        raise StoreError(
            "not a URL of a Valkey or Redis server",
            code="valkey.bad-url",
            field="url",
            hint="Write valkeys://USER:PASSWORD@HOST/DATABASE, or unix:///run/valkey.sock.",
        )
    if arguments.get("ssl"):
        arguments |= {
            "ssl_ca_data": _read_authorities(options.ca_files),
            "ssl_check_hostname": True,  # the client's default is False
            "ssl_min_version": _TLS_VERSIONS[options.minimum],
        }
    return {**arguments, "socket_connect_timeout": options.connect_timeout, "socket_timeout": options.timeout}


def _parse_url(url: Secret) -> dict[str, Any] | None:
    """Return the client's arguments, or None: an error raised here would have the password in its frames."""
    try:
        uri = URI.parse(url.reveal())
        user, _, password = (
            decode_component(text, component="userinfo") for text in (uri.userinfo or "").partition(":")
        )
        path = decode_component(uri.path, component="path")
    except URIError:
        return None
    local = uri.scheme == "unix"
    host = (uri.host or "").removeprefix("[").removesuffix("]")
    database = (_DATABASE if local else _DATABASE_PATH).fullmatch((uri.query if local else path) or "")
    port = int(uri.port or _PORT)
    if uri.scheme not in VALKEY_SCHEMES or database is None or uri.fragment is not None or port > 65535:
        return None
    if not (path if local else host and uri.query is None):
        return None
    arguments: dict[str, Any] = {"db": int(database[1] or 0)}
    if local:
        arguments["unix_socket_path"] = path
    else:
        arguments |= {"host": host, "port": port, "ssl": VALKEY_SCHEMES[uri.scheme]}
    if password:
        arguments["credential_provider"] = _Credentials(user, Secret(password))
    return arguments


def _read_authorities(files: tuple[str, ...]) -> str | None:
    """Return the certificates of all files. The client takes one text, besides the system's authorities."""
    try:
        text = "\n".join(Path(file).read_text(encoding="ascii") for file in files)
        if files:
            ssl.create_default_context(cadata=text)
    except (OSError, ValueError):
        raise StoreError(
            f"the certificates cannot be read: {', '.join(files)}",
            code="valkey.bad-tls",
            field="ca_files",
            hint="Use files of PEM certificates.",
        ) from None
    return text or None
