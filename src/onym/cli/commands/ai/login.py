"""`onym ai login`, `logout` and `whoami`: sign in at an authority or a gateway, and keep the sign-in.

The browser comes back to a loopback address (RFC 8252), or a code is entered on another device (RFC 8628).
Tokens and the DPoP key are in the system's keyring, or in the folder that `ONYM_SIGN_INS` names.
"""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, Final, Unpack
from urllib.parse import parse_qs

import click

from onym.cli._commands import make_command, pass_session
from onym.cli._output import Session
from onym.cli.commands.ai.client import (
    AIOptions,
    ai_options,
    build_identity,
    build_resolver_settings,
    build_transport,
    parse_uri_argument,
)
from onym.common.text import escape_unprintable
from onym.errors import AuthorizationError, CredentialError, DeadlineExceeded, NetError, UsageError

if TYPE_CHECKING:
    from onym.ai.oauth import Grant, OAuthClient, Target
    from onym.ai.settings import ResolverSettings
    from onym.ai.sign_ins import SignIn, SignIns
    from onym.net.transport import Transport
    from onym.uri.secret import Secret

#: the path of the redirect URI
_PATH: Final = "/callback"
#: seconds that one connection to the loopback address may take, and the person to sign in
_REQUEST_SECONDS: Final = 5.0
_SIGN_IN_SECONDS: Final = 300.0
_PAGE: Final = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>Onym</title>"
    b"<p>Return to the terminal. You can close this page.</p></html>"
)
_OFFLINE: Final = "offline_access"


@dataclass(frozen=True, slots=True)
class _Place:
    """What a person signs in for: its name in the store, its authorization servers and the token's target."""

    name: str
    issuers: tuple[str, ...]
    target: Target


@make_command("login", short_help="Sign in at an authority or a gateway.")
@click.argument("name", metavar="AUTHORITY|GATEWAY")
@click.option("--issuer", metavar="URL", help="The authorization server that you trust with your sign-in.")
@click.option("--client-id", metavar="ID", help="The client ID that the server knows.")
@click.option(
    "--client-secret-env", metavar="VARIABLE", help="The variable with the client's secret, if any."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="A scope to ask for (repeatable). Default: all that the authority lists.",
)
@click.option("--approve", is_flag=True, help="At a gateway: sign in anew, to decide with `onym ai approve`.")
@click.option(
    "--acr", "acr_values", multiple=True, metavar="VALUE", help="A kind of sign-in to ask for (repeatable)."
)
@click.option("--device", is_flag=True, help="Print a code to enter on another device.")
@click.option(
    "--browser/--no-browser", default=True, help="Open the browser (default), or only print the URL."
)
@ai_options
@pass_session
def login_command(
    session: Session,
    /,
    name: str,
    issuer: str | None,
    client_id: str | None,
    client_secret_env: str | None,
    scopes: tuple[str, ...],
    approve: bool,
    acr_values: tuple[str, ...],
    device: bool,
    browser: bool,
    **options: Unpack[AIOptions],
) -> None:
    """Sign in at AUTHORITY (a host, as in ai://HOST/...) or at GATEWAY (an https URL).

    The authority must name the authorization server in its discovery document, and you name it with --issuer:
    nothing is sent to a server that only one of the two names. The token is bound to a new DPoP key if the
    authority supports DPoP. `onym ai invoke` uses the sign-in and refreshes its token. To sign in again, the
    name is enough.

    With --approve, the token also has the scope `approve`. A decision needs a sign-in of the last 5 minutes.

    \b
    Examples:
      onym ai login bank.example --issuer https://bank.example --client-id me
      onym ai login bank.example --client-id me --device
      onym ai login https://gw.example --issuer https://id.example --client-id me
      onym ai login https://gateway.example --approve
    """
    from onym.ai.sign_ins import SignIn, open_sign_ins
    from onym.net.transport import run_flow

    store, settings = open_sign_ins(os.environ), build_resolver_settings(options)
    with build_transport(session, options) as wire:
        place = _find_place(session, name, scopes, settings, wire)
        if approve:
            place = _add_approve_scope(place)
        earlier = store.load(place.name)
        if earlier is not None:  # the person has named its server and client before
            issuer = issuer or earlier.registration.issuer
            client_id = client_id or earlier.registration.client_id
        secret = None if client_secret_env is None else _read_secret(session, client_secret_env)
        if secret is None and earlier is not None and earlier.registration.client_id == client_id:
            secret = earlier.registration.secret
        client = _make_client(place, issuer, client_id, secret, settings, options)
        target = _add_refresh(client, place.target, wire)
        if device:
            begun = run_flow(client.begin_device_flow(target), wire)
            _show_code(session, begun)
            grant = run_flow(client.finish_device_flow(begun), wire)
        else:
            prompts = [*(["login"] if approve else []), *(["consent"] if _OFFLINE in target.scopes else [])]
            parameters = {"prompt": " ".join(prompts), "acr_values": " ".join(acr_values)}
            grant = _sign_in_with_browser(client, target, wire, parameters, browser=browser)
    sign_in = SignIn.from_grant(
        place.name, grant, registration=client.registration, target=target, at=settings.clock()
    )
    store.save(sign_in)
    record = _build_record(sign_in)
    session.print_record(record)
    if not session.as_json:
        session.print_note(f"signed in for {place.name}; the sign-in is kept for onym ai invoke")
        session.print_table(_build_rows(record), styles=("name",))


def _find_place(
    session: Session, name: str, scopes: Sequence[str], settings: ResolverSettings, wire: Transport
) -> _Place:
    """Resolve what the person signs in for. Raises DiscoveryError, AuthorizationError."""
    from onym.ai.discovery.resolution import resolve_uri
    from onym.ai.oauth import Target
    from onym.ai.oauth_metadata import fetch_resource_metadata
    from onym.ai.records import Level
    from onym.net.transport import run_flow

    if "://" in name and not name.startswith("ai://"):
        resource = name.rstrip("/")
        found = run_flow(fetch_resource_metadata(resource, settings), wire)
        dpop = Level.REQUIRED if found.dpop_required else Level.SUPPORTED
        target = Target(resource=resource, scopes=tuple(scopes or found.scopes), dpop=dpop)
        return _Place(resource, found.authorization_servers, target)
    uri = parse_uri_argument(session, name if name.startswith("ai://") else f"ai://{name}/")
    resolution = run_flow(resolve_uri(uri, settings), wire)
    document = resolution.document
    target = Target(
        resource=document.resource or document.service,
        scopes=tuple(scopes or document.scopes),
        dpop=document.requirements.dpop,
        mtls=document.requirements.mtls,
    )
    return _Place(resolution.authority, document.authorization_servers, target)


def _add_approve_scope(place: _Place) -> _Place:
    """Return the place with the scope for decisions. Raises UsageError unless it is a gateway."""
    from onym.ai.approvals import APPROVE_SCOPE

    if "://" not in place.name:
        raise UsageError(
            f"--approve is for gateways, and {place.name} is an authority",
            code="usage.command-line",
            hint="Write the gateway's URL: onym ai login https://GATEWAY --approve",
        )
    scopes = tuple(dict.fromkeys([*place.target.scopes, APPROVE_SCOPE]))
    return replace(place, target=replace(place.target, scopes=scopes))


def _make_client(
    place: _Place,
    issuer: str | None,
    client_id: str | None,
    secret: Secret | None,
    settings: ResolverSettings,
    options: AIOptions,
) -> OAuthClient:
    """Return the client at the server that both the place and the person name."""
    from onym.ai.oauth import OAuthClient
    from onym.ai.oauth_metadata import Registration, choose_registration
    from onym.ai.records import Level
    from onym.sign.dpop import generate_dpop_key

    if not place.issuers:
        raise AuthorizationError(
            f"{place.name} names no authorization server, so nobody can sign in for it",
            clause="AIIP/HTTPS v1 3.10",
            hint="Its resources need no sign-in, or its operator must add authorization_servers.",
        )
    if issuer is None or client_id is None:
        named = issuer or place.issuers[0]
        raise UsageError(
            f"{', '.join(place.issuers)} signs people in for {place.name}: name it and your client ID",
            code="usage.command-line",
            hint="if you trust it: "
            f"onym ai login {place.name} --issuer {named} --client-id {client_id or 'ID'}",
        )
    identity = build_identity(options) if place.target.mtls else None
    row = Registration(
        issuer=issuer,
        client_id=client_id,
        secret=secret,
        identity=identity,
        method="none" if secret is None else None,
    )
    choose_registration(place.issuers, [row], target=place.name)
    key = None if place.target.dpop is Level.NONE else generate_dpop_key()
    return OAuthClient(registration=row, settings=settings, dpop_key=key)


def _read_secret(session: Session, variable: str) -> Secret:
    from onym.uri.secret import Secret

    value = os.environ.get(variable)
    if not value:
        raise UsageError(f"the variable {variable} is not set, or it is empty", code="usage.command-line")
    secret = Secret(value)
    session.secrets.append(secret)
    return secret


def _add_refresh(client: OAuthClient, target: Target, wire: Transport) -> Target:
    """Ask for a refresh token where the server has a scope for that (OpenID Connect Core 11)."""
    from onym.net.transport import run_flow

    known = run_flow(client.fetch_server(), wire).scopes
    if not {_OFFLINE, "openid"} <= known:
        return target
    return replace(target, scopes=(*target.scopes, "openid", _OFFLINE))


def _show_code(session: Session, begun: Any) -> None:
    """Print where to enter the code, on standard error, because --json needs standard output."""
    session.print_note(f"open {escape_unprintable(begun.verification_uri)}")
    session.print_note(f"enter the code {escape_unprintable(begun.user_code)}")
    if begun.verification_uri_complete is not None:
        session.print_note(f"or open {escape_unprintable(begun.verification_uri_complete)}")


class _Listener(HTTPServer):
    """Waits on a loopback address for the redirect of one sign-in; other requests are refused."""

    timeout = _REQUEST_SECONDS

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.redirect_uri = f"http://127.0.0.1:{self.server_port}{_PATH}"
        self.state: Secret | None = None
        self.received: Secret | None = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Drop a connection that ends early; the traceback could show the code."""

    def wait(self, seconds: float) -> Secret:
        """Return the URL of the redirect. Raises DeadlineExceeded."""
        deadline = time.monotonic() + seconds
        while self.received is None:
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    f"nobody signed in within {seconds:.0f} seconds",
                    hint="Run onym ai login again, or use --device on a computer without a browser.",
                )
            self.handle_request()
        return self.received


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    timeout = _REQUEST_SECONDS
    server_version, sys_version = "onym", ""

    def do_GET(self) -> None:
        """Take the redirect of this sign-in: a page that another program opens has another state."""
        from onym.uri.secret import Secret

        path, _, query = self.path.partition("?")
        states = parse_qs(query, max_num_fields=32).get("state", [])
        if (
            path != _PATH
            or self.server.state is None
            or [Secret(state) for state in states] != [self.server.state]
        ):
            self.send_error(404)
            return
        self.server.received = Secret(f"{self.server.redirect_uri}?{query}")
        self.send_response(200)
        for field, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(_PAGE))),
            ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(field, value)
        self.end_headers()
        self.wfile.write(_PAGE)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Write nothing: the request line contains the code."""


@contextmanager
def _listen() -> Iterator[_Listener]:
    listener = _Listener()
    try:
        yield listener
    finally:
        listener.server_close()


def _sign_in_with_browser(
    client: OAuthClient, target: Target, wire: Transport, parameters: Mapping[str, str], *, browser: bool
) -> Grant:
    from onym.net.transport import run_flow

    with _listen() as listener:
        given = {name: value for name, value in parameters.items() if value}
        flow = client.begin_code_flow(target, redirect_uri=listener.redirect_uri, parameters=given)
        begun = run_flow(flow, wire)
        listener.state = begun.state
        # not masked: the person needs the whole URL, and it is good for this sign-in only
        sys.stderr.write(f"Sign in at:\n{begun.url}\n")
        sys.stderr.flush()
        if browser:
            webbrowser.open(begun.url)
        redirected = listener.wait(_SIGN_IN_SECONDS)
    return run_flow(client.finish_code_flow(begun, redirected), wire)


@make_command("logout", short_help="Revoke a sign-in, and forget it.")
@click.argument("name", metavar="[AUTHORITY|GATEWAY]", required=False)
@click.option("--all", "everywhere", is_flag=True, help="End all sign-ins.")
@ai_options
@pass_session
def logout_command(
    session: Session, /, name: str | None, everywhere: bool, **options: Unpack[AIOptions]
) -> None:
    """Revoke the sign-in for AUTHORITY or GATEWAY at its server, and remove it from this computer.

    It is removed even if the server cannot be reached; then a warning says so. Exit code 4: there is no such
    sign-in.

    \b
    Examples:
      onym ai logout bank.example
      onym ai logout --all
    """
    from onym.ai.sign_ins import open_sign_ins

    store = open_sign_ins(os.environ)
    if (name is None) is not everywhere:
        raise UsageError("name an authority or a gateway, or use --all", code="usage.command-line")
    names = store.list_names() if name is None else [_normalize_name(name)]
    ended: dict[str, bool] = {}
    with build_transport(session, options) as wire:
        for stored in names:
            sign_in = _require_sign_in(store, stored)
            ended[stored] = _revoke(session, sign_in, build_resolver_settings(options), wire)
            store.delete(stored)
    session.print_record({"ended": [{"name": key, "revoked": revoked} for key, revoked in ended.items()]})
    session.print_table([(escape_unprintable(key), "signed out") for key in ended], styles=("name",))


def _revoke(session: Session, sign_in: SignIn, settings: ResolverSettings, wire: Transport) -> bool:
    from onym.ai.oauth import OAuthClient
    from onym.net.transport import run_flow

    client = OAuthClient(registration=sign_in.registration, settings=settings)
    token, hint = sign_in.refresh_token, "refresh_token"
    if token is None:
        token, hint = sign_in.token, "access_token"
    try:
        return run_flow(client.revoke(token, hint=hint), wire)
    except (AuthorizationError, NetError) as error:
        message = f"the sign-in for {sign_in.name} is removed here, but was not revoked: {error.message}"
        session.print_note(message, kind="warning")
        return False


@make_command("whoami", short_help="Show the sign-ins of this computer.")
@click.argument("name", metavar="[AUTHORITY|GATEWAY]", required=False)
@pass_session
def whoami_command(session: Session, /, name: str | None) -> None:
    """Show the sign-in for AUTHORITY or GATEWAY, or all of them. Nothing is sent.

    Exit code 4: there is no such sign-in.

    \b
    Examples:
      onym ai whoami
      onym ai whoami bank.example --json
    """
    from onym.ai.sign_ins import open_sign_ins

    store = open_sign_ins(os.environ)
    names = store.list_names() if name is None else [_normalize_name(name)]
    records = [_build_record(_require_sign_in(store, stored)) for stored in names]
    session.print_record(records[0] if name is not None else {"sign_ins": records})
    if not session.as_json and not records:
        session.print_note("there is no sign-in on this computer: onym ai login")
    for record in records:
        session.print_table(_build_rows(record), styles=("name",))


def _normalize_name(name: str) -> str:
    """Return the name of a sign-in: an authority, or the URL of a gateway."""
    plain = name.removeprefix("ai://")
    return plain.rstrip("/") if "://" in plain else plain.partition("/")[0].lower()


def _require_sign_in(store: SignIns, name: str) -> SignIn:
    found = store.load(name)
    if found is None:
        raise CredentialError(
            f"there is no sign-in for {name}",
            code="credential.missing",
            hint="List the sign-ins with onym ai whoami, or sign in with onym ai login.",
        )
    return found


def _build_record(sign_in: SignIn) -> dict[str, Any]:
    """Return what may be shown of a sign-in."""
    from onym.sign.jws import read_unverified_claims

    claims = read_unverified_claims(sign_in.token) or {}
    subject = claims.get("sub")
    return {
        "name": sign_in.name,
        "issuer": sign_in.registration.issuer,
        "client_id": sign_in.registration.client_id,
        "subject": subject if isinstance(subject, str) else None,
        "resource": sign_in.resource,
        "scopes": list(sign_in.scopes),
        "signed_in": sign_in.signed_in,
        "expires": sign_in.expires,
        "refreshable": sign_in.refresh_token is not None,
        "dpop_thumbprint": None if sign_in.dpop_key is None else sign_in.dpop_key.thumbprint,
    }


def _build_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    left = record["expires"] - time.time()
    state = "refreshed when it ends" if record["refreshable"] else "sign in again when it ends"
    return [
        ("name", escape_unprintable(record["name"])),
        ("signed in at", escape_unprintable(record["issuer"])),
        ("as", escape_unprintable(record["subject"] or "unknown (the token is opaque)")),
        ("client", escape_unprintable(record["client_id"])),
        ("scopes", escape_unprintable(" ".join(record["scopes"])) or "-"),
        ("token", f"{'has ended' if left <= 0 else f'ends in {left / 60:.0f} minutes'}; {state}"),
        ("bound to", "a DPoP key" if record["dpop_thumbprint"] else "nothing (Bearer token)"),
    ]
