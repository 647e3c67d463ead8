"""`onym ai serve`: an endpoint of Python functions, served with TLS."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli._options import json_option
from onym.cli._output import Session
from onym.errors import OnymError, UsageError
from onym.uri.generic import URI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onym.ai.endpoint import Endpoint

__all__ = ["command"]

_PORT: Final = 8443
_FORM: Final = "module:name, where the module is in this folder or installed: factory:app"


@click.command("serve", short_help="Serve Python functions as ai:// resources.")
@click.argument("app", metavar="MODULE:APP")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="The port; 0: a free one."
)
@click.option(
    "--tls-cert", metavar="FILE", type=click.Path(path_type=Path), help="The certificate chain (PEM)."
)
@click.option(
    "--tls-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Its key, where it is not in the same file.",
)
@click.option(
    "--keys",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Sign with the keys of this folder (onym ai keys new). Default: those of the app.",
)
@json_option
@click.pass_obj
def command(
    session: Session,
    /,
    app: str,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    keys: Path | None,
) -> None:
    """Serve an Endpoint until Ctrl-C. MODULE:APP names it: factory:app is `app` in factory.py.

    TLS 1.3 is spoken, with --tls-cert. Plain HTTP is for this machine alone: without a certificate nothing
    but a loopback address is listened on.

    \b
    Examples:
      onym ai serve factory:app --tls-cert cert.pem --tls-key key.pem --host 0.0.0.0 --port 443
      onym ai serve factory:app --keys keys/
    """
    session.command = "ai serve"
    from onym.server.listen import listen  # late: the web server is needed nowhere else

    if tls_key is not None and tls_cert is None:
        raise UsageError("--tls-key needs --tls-cert")
    endpoint = _load(app)
    if keys is not None:
        endpoint.sign_with(keys)
    endpoint.check()
    scheme = "http" if tls_cert is None else "https"

    def ready(found: int) -> None:
        for note in _notes(endpoint, found, tls=tls_cert is not None):
            session.note(note)
        _tell(session, endpoint, f"{scheme}://{f'[{host}]' if ':' in host else host}:{found}")

    listen(endpoint, host=host, port=port, certificate=tls_cert, key=tls_key, ready=ready)


def _notes(endpoint: Endpoint, port: int, *, tls: bool) -> Iterator[str]:
    """What would surprise whoever comes."""
    named = int(URI.parse(endpoint.anchor).port or 443)
    if not tls:
        yield "plain HTTP: clients speak HTTPS alone; put a proxy in front, or give --tls-cert"
    elif named != port:
        yield (
            f"clients come to port {named}, as {endpoint.anchor} says, and this is port {port}: "
            f"--port {named}, or the port in Endpoint(...), or something that leads from there to here"
        )
    if not endpoint.resources:
        yield 'the app has no resources: @app.resource("/path") makes a function one'


def _load(name: str) -> Endpoint:
    """The endpoint of that name. An error of Onym that its module raises comes out as it is."""
    from onym.ai.endpoint import Endpoint

    module, colon, attribute = name.partition(":")
    if not (colon and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UsageError(f"{name} does not name an app", hint=_FORM)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(f"there is no module {module}", hint=_FORM) from None
        raise UsageError(f"{module} needs the module {error.name}, which is not installed") from None
    except OnymError:
        raise
    except Exception as error:
        raise UsageError(
            f"{module} cannot be imported: {type(error).__name__}{_place(error)}",
            hint=f"python -c 'import {module}' shows all of it",
        ) from error
    if not isinstance(found, Endpoint):
        raise UsageError(f"{attribute} of {module} is no Endpoint", hint=_FORM)
    return found


def _place(error: Exception) -> str:
    """Where an import failed: the line that cannot be read, else the innermost one that ran."""
    if isinstance(error, SyntaxError):
        return f" at line {error.lineno} of {error.filename}"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at line {trace.tb_lineno} of {trace.tb_frame.f_code.co_filename}"


def _tell(session: Session, endpoint: Endpoint, address: str) -> None:
    """Say what is served, and where."""
    rows = [
        {"uri": each.uri, "effects": each.effects.value, "scopes": list(each.scopes), "title": each.title}
        for each in endpoint.resources
    ]
    if session.as_json:
        session.line(
            {
                "address": address,
                "authority": endpoint.authority,
                "anchor": endpoint.anchor,
                "resources": rows,
            }
        )
        return
    session.complain(f"{session.paint('serving', 'good', sys.stderr)}: {address} (Ctrl-C ends it)")
    session.complain(f"anchor: {endpoint.anchor}/.well-known/aiip")
    for row in rows:
        scopes = f", scopes {' '.join(row['scopes'])}" if row["scopes"] else ""
        session.complain(f"  {row['uri']}  {row['effects']}{scopes}")
