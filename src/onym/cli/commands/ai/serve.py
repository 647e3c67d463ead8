"""`onym ai serve` and `onym ai audit`: serve an `Endpoint` of Python functions, and check audit logs."""

from __future__ import annotations

import importlib
import os
import re
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli import _commands, exit_codes
from onym.cli._output import Session, select_fields
from onym.common.text import escape_unprintable
from onym.errors import ConfigError, OnymError, UsageError
from onym.uri.generic import URI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onym.ai.endpoint import Endpoint
    from onym.ai.endpoint.signing import FleetKeys
    from onym.ai.gateway.audit import AuditReport

_PORT: Final = 8443
_PROOF_STORE: Final = "ONYM_AI_PROOF_STORE"
_FLEET: Final = "ONYM_AI_FLEET"
_PATH: Final = click.Path(path_type=Path)
#: how processes get the same signing key, and the same store
_SHARED_HINTS: Final = (
    "Create a folder with onym ai keys new DIR, and use --keys DIR.",
    'Pass a file or a database: Endpoint(..., store="keys.sqlite").',
)
#: a line such as `app = Endpoint("factory.example", keys="keys")`
_APP: Final = re.compile(r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*(?:\w+\.)*Endpoint\(", re.MULTILINE)
_LONGEST_MODULE: Final = 1_000_000
_FORM: Final = "write module:name for a module in this folder or an installed one, such as factory:app"


@_commands.make_command("serve", short_help="Serve Python functions as ai:// resources.")
@click.argument("app", metavar="MODULE:APP")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True,
              help="The address to listen on.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", default=_PORT, show_default=True,
              help="The port; 0 is any free port.")  # fmt: skip
@click.option("--tls-cert", metavar="FILE", type=_PATH, help="The certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", type=_PATH, help="Its private key, if it is in another file.")
@click.option("--client-ca", metavar="FILE", type=_PATH,
              help="Authorities (PEM) that issue client certificates. Default: none.")  # fmt: skip
@click.option("--client-cert-proxy", "proxies", metavar="ADDRESS", multiple=True,
              help="A proxy that sends client certificates in Client-Cert (repeatable).")  # fmt: skip
@click.option("--keys", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
              help="Sign with the keys in this folder. Default: the app's keys.")  # fmt: skip
@click.option("--fleet", metavar="URL",
              help=f"The database of the keys of all machines. Default: {_FLEET}.")  # fmt: skip
@click.option("--workers", metavar="N", type=click.IntRange(1, 128), default=1, show_default=True,
              help="Processes that serve the port (Linux).")  # fmt: skip
@click.option("--proof-store", metavar="URL",
              help=f"The store of DPoP proofs of all processes. Default: {_PROOF_STORE}.")  # fmt: skip
@click.option("--secrets", metavar="DIR", type=_PATH,
              help="The folder of the secrets of all processes.")  # fmt: skip
@_commands.pass_session
def serve_command(
    session: Session,
    /,
    app: str,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    proxies: tuple[str, ...],
    keys: Path | None,
    fleet: str | None,
    workers: int,
    proof_store: str | None,
    secrets: Path | None,
) -> None:
    """Serve Python functions as ai:// resources, until Ctrl-C.

    MODULE:APP names the Endpoint: factory:app is `app` in factory.py.

    With --tls-cert the server uses TLS 1.3. Without a certificate it uses plain HTTP, and only on a loopback
    address. With --client-ca, clients may show a certificate, to which their access tokens can be bound.

    With --fleet, this machine announces its keys and publishes those of all (onym ai keys join).

    With --workers, a process that dies is replaced, and SIGHUP replaces all processes one after the other.
    Processes that accept DPoP need one --proof-store (a SQLite file, or a database: postgresql://, valkeys://)
    and the same --secrets (onym ai gateway secrets rotate DIR), on other machines too. Put a URL with a
    password into ONYM_AI_PROOF_STORE.

    \b
    Examples:
      onym ai serve factory:app --host 0.0.0.0 --port 443 --tls-cert cert.pem
      onym ai serve factory:app --proof-store proofs.sqlite --secrets secrets/
    """
    if tls_key is not None and tls_cert is None:
        raise UsageError("--tls-key needs --tls-cert")
    if client_ca is not None and tls_cert is None:
        raise UsageError("--client-ca needs --tls-cert", hint="behind a TLS proxy, use --client-cert-proxy")
    if (fleet or os.environ.get(_FLEET)) and keys is None:
        raise UsageError("--fleet needs --keys", hint="every machine has a folder of its own keys")
    _require_no_password("--fleet", fleet, _FLEET)
    _require_no_password("--proof-store", proof_store, _PROOF_STORE)
    shared = (fleet, proof_store, secrets)
    options = {
        "certificate": tls_cert,
        "key": tls_key,
        "client_ca": client_ca,
        "certificate_proxies": proxies,
    }

    def ready(served: dict[str, Any]) -> None:
        for note in served.pop("notes"):
            session.print_note(note)
        _print_serving(session, served)

    if workers == 1:
        _serve_endpoint(ready, app, keys, shared, options, host=host, port=port)
        return
    from onym.server.workers import run_workers  # late, as all of the web server

    def ready_together(reports: list[dict[str, Any]]) -> None:
        identities = [report.pop("shared") for report in reports]
        for name, hint, values in zip(
            ("signing key", "store"), _SHARED_HINTS, zip(*identities, strict=True), strict=True
        ):
            if len(set(values)) > 1:
                raise ConfigError(
                    f"every process has its own {name}; all must have the same",
                    code="config.not-shared",
                    hint=hint,
                )
        ready(reports[0])

    run_workers(
        _serve_endpoint,
        app,
        keys,
        shared,
        options,
        count=workers,
        host=host,
        port=port,
        ready=ready_together,
    )


def _serve_endpoint(
    report: Callable[[dict[str, Any]], object],
    app: str,
    keys: Path | None,
    shared: tuple[str | None, str | None, Path | None],
    options: Mapping[str, Any],
    *,
    host: str,
    port: int,
    reuse_port: bool = False,
) -> None:
    """Serve the app in this process. Call `report` with what is served when it listens.

    `shared` are the values of --fleet, --proof-store and --secrets.
    """
    from onym.server.http_server import run_app  # late: only this command needs the web server

    endpoint = _load_endpoint(app)
    fleet, proof_store, secrets = shared
    fleet = fleet or os.environ.get(_FLEET)
    tls = options["certificate"] is not None
    with ExitStack() as stack:
        if keys is not None:
            endpoint.sign_with(keys if fleet is None else stack.enter_context(_open_fleet(keys, fleet)))
        _share_proofs(endpoint, proof_store, secrets)
        if reuse_port:
            endpoint.require_shared()
        endpoint.check()

        def ready(bound_port: int) -> None:
            address = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{bound_port}"
            served = _describe_served(endpoint, address)
            served["notes"] = list(_iter_notes(endpoint, bound_port, options))
            report({**served, "shared": endpoint.shared_identity} if reuse_port else served)

        more = {"reuse_port": True} if reuse_port else {}
        run_app(endpoint, host=host, port=port, ready=ready, **more, **options)


def _open_fleet(folder: Path, fleet: str) -> FleetKeys:
    from onym.ai.endpoint.signing import FleetKeys  # late: few endpoints need it

    return FleetKeys(folder, fleet)


def _share_proofs(endpoint: Endpoint, store: str | None, folder: Path | None) -> None:
    """Give the endpoint the store and the secrets of its fleet, if it has them and they can be used."""
    url = _get_proof_store(store)
    if url is None and folder is None:
        return
    if url is None or folder is None:
        raise UsageError(
            "--proof-store and --secrets belong together: processes that share only one of them would reject "
            "each other's nonces or accept a proof twice",
            hint=f"Give both (the store also as {_PROOF_STORE}), or neither for a single process.",
        )
    import asyncio

    from onym.sign.sealing import FleetSecrets  # late, as in every command
    from onym.store import open_shared_store

    secrets = FleetSecrets(folder)

    async def check() -> None:
        # another one than that of the server: a store belongs to one event loop
        probe = open_shared_store(url)
        try:
            await probe.check()
        finally:
            await probe.close()

    asyncio.run(check())
    endpoint.share_proofs(open_shared_store(url), secrets)


def _get_proof_store(option: str | None) -> Secret | None:
    url = option or os.environ.get(_PROOF_STORE)
    return Secret(url) if url else None


def _require_no_password(option: str, url: str | None, variable: str) -> None:
    """Raise UsageError for a URL on the command line that has a password."""
    userinfo, at, _ = (url or "").partition("://")[2].partition("/")[0].rpartition("@")
    if at and ":" in userinfo:
        raise UsageError(
            f"the URL of {option} has a password, which other users of this computer can see",
            hint=f"Put the URL into the variable {variable}.",
        )


def _iter_notes(endpoint: Endpoint, port: int, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes about settings that would prevent clients from calling the endpoint."""
    named = int(URI.parse(endpoint.anchor).port or 443)
    if options["certificate"] is None:
        yield "plain HTTP: clients use only HTTPS; put a TLS proxy in front, or add --tls-cert"
    elif named != port:
        yield (
            f"clients connect to port {named} (the anchor is {endpoint.anchor}), but this is port {port}; "
            f"use --port {named}, set the port in Endpoint(...), or forward port {named} to this one"
        )
    if not endpoint.resources:
        yield 'the app has no resources; add one with @app.resource("/path")'
    if endpoint.requirements.mtls and options["client_ca"] is None and not options["certificate_proxies"]:
        yield (
            "callers need client certificates, which this server does not take; add --client-ca, or "
            "--client-cert-proxy behind a TLS proxy"
        )


def _load_endpoint(name: str) -> Endpoint:
    """Import the endpoint. An error of Onym that its module raises is not changed."""
    from onym.ai.endpoint import Endpoint

    module, colon, attribute = name.partition(":")
    if not (colon and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UsageError(f"{name} is not the name of an app", hint=_suggest_app(module))
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        endpoint: Any = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(f"the module {module} does not exist", hint=_suggest_app(module)) from None
        raise UsageError(f"{module} needs the module {error.name}, which is not installed") from None
    except OnymError:
        raise
    except Exception as error:
        raise UsageError(
            f"{module} cannot be imported: {type(error).__name__}{_locate_failure(error)}",
            hint=f"run python -c 'import {module}' to see the traceback",
        ) from error
    if not isinstance(endpoint, Endpoint):
        raise UsageError(f"{attribute} of {module} is not an Endpoint", hint=_suggest_app(module, attribute))
    return endpoint


def _suggest_app(name: str, tried: str = "") -> str:
    """Return a hint with the app of this module or Python file, if the file is in this folder and has one.

    The file is read, not run: running it again could have effects.
    """
    module = name.removesuffix(".py")
    file = Path(f"{module}.py")
    if module.isidentifier() and file.is_file() and file.stat().st_size <= _LONGEST_MODULE:
        found = _APP.search(file.read_text(encoding="utf-8", errors="replace"))
        if found is not None and found[1] != tried:
            return f"did you mean {module}:{found[1]}?"
    return _FORM


def _locate_failure(error: Exception) -> str:
    """Return the place at which an import failed: the invalid line, or the innermost line that ran."""
    if isinstance(error, SyntaxError):
        return f" at line {error.lineno} of {error.filename}"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at line {trace.tb_lineno} of {trace.tb_frame.f_code.co_filename}"


def _describe_served(endpoint: Endpoint, address: str) -> dict[str, Any]:
    """Return the address and the resources, as --json prints them."""
    resources = [
        {
            "uri": resource.uri,
            "effects": resource.effects.value,
            "scopes": list(resource.scopes),
            "title": resource.title,
        }
        for resource in endpoint.resources
    ]
    return {"address": address, **select_fields(endpoint, "authority", "anchor"), "resources": resources}


def _print_serving(session: Session, served: dict[str, Any]) -> None:
    """Print the address and the resources."""
    if session.as_json:
        session.print_json_line(served)
        return
    session.print_error(
        f"{session.paint('serving', 'good', sys.stderr)}: {served['address']} (Ctrl-C ends it)"
    )
    session.print_error(f"anchor: {served['anchor']}/.well-known/aiip")
    for row in served["resources"]:
        scopes = f", scopes {' '.join(row['scopes'])}" if row["scopes"] else ""
        session.print_error(f"  {row['uri']}  {row['effects']}{scopes}")


@click.group("audit", cls=_commands.OrderedGroup)
def audit_command() -> None:
    """Verify, repair and rotate the audit log of a gateway. Every command accepts --json.

    The log is JSON Lines; each line contains the hash of the line before it.

    \b
    Examples:
      onym ai audit verify audit.jsonl
      onym ai audit rotate audit.jsonl --keep 90d
    """


@audit_command.command("verify", short_help="Verify the hash chain of a log.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--from", "begins", metavar="HASH", help="The hash that the first line must continue.")
@click.option("--expect", metavar="HASH", help="The hash of the last line; it reveals a truncated log.")
@_commands.pass_session
def verify_audit_command(
    session: Session, /, files: tuple[str, ...], begins: str | None, expect: str | None
) -> None:
    """Verify the hash chain of one log, or of its files with the oldest first.

    The exit code is 1 if the chain breaks or does not end with the --expect hash. With --json, "expected"
    tells whether the last file ends with that hash; it is null without --expect and for other files.

    \b
    Examples:
      onym ai audit verify audit.jsonl
      onym ai audit verify audit.jsonl.2026*Z audit.jsonl
    """
    from onym.ai.gateway.audit import verify_log  # late, as in every command

    previous, good = begins, True
    begun: frozenset[str] = frozenset()
    for number, file in enumerate(files, 1):
        verdict = verify_log(file, previous=previous, begun=begun)
        is_compared = expect is not None and number == len(files)
        _print_verdict(session, file, verdict, expect if is_compared else None)
        previous, begun, good = verdict.ends, verdict.begun, good and verdict.is_valid
    if begun:
        streams = "1 stream has" if len(begun) == 1 else f"{len(begun)} streams have"
        session.print_line(f"{streams} no end: in progress, or cut off when a gateway was killed")
    if expect is not None and previous != expect.lower():
        good = False
        session.print_line(f"the last hash is {previous}, not the expected one: lines were removed or added")
    if not good:
        sys.exit(exit_codes.CHECK_FAILED)


def _print_verdict(session: Session, file: str, verdict: AuditReport, expect: str | None) -> None:
    """Print the report of a file; `expect` is the hash that its last line must have, None for any."""
    session.print_record(
        {
            "file": file,
            "holds": verdict.is_valid,
            **select_fields(verdict, "lines", "begins", "ends", "first", "last", "torn"),
            "expected": None if expect is None else verdict.ends == expect.lower(),
            "begun": sorted(verdict.begun),
            "faults": [select_fields(fault, "line", "message") for fault in verdict.faults],
        }
    )
    # the times come from the file, which may contain anything
    span = escape_unprintable(f", {verdict.first} to {verdict.last}") if verdict.first else ""
    word = session.paint("holds", "good") if verdict.is_valid else session.paint("broken", "bad")
    lines = "1 line" if verdict.lines == 1 else f"{verdict.lines} lines"
    session.print_line(f"{file}: {word}: {lines}{span}")
    for fault in verdict.faults:
        session.print_line(f"  line {fault.line}: {fault.message}")
    if verdict.torn:
        session.print_line(
            f"  the last line is incomplete ({verdict.torn} bytes); run onym ai audit repair {file}"
        )
    if verdict.is_valid:
        session.print_line(f"  last hash: {verdict.ends}")


@audit_command.command("repair", short_help="Remove an incomplete last line.")
@click.argument("file")
@_commands.yes_option
@_commands.pass_session
def repair_audit_command(session: Session, /, file: str, yes: bool) -> None:
    """Remove an incomplete last line, which a killed process leaves, and record the removal in the log.

    \b
    Examples:
      onym ai audit repair audit.jsonl
    """
    from onym.ai.gateway.audit import repair_log

    _commands.confirm_action(session, f"Remove an incomplete last line of {file}?", yes=yes)
    size = repair_log(file, at=datetime.now(UTC))
    session.print_record({"file": file, "octets": size})
    session.print_line(f"{file}: {f'removed {size} bytes' if size else 'nothing to repair'}")


@audit_command.command("rotate", short_help="Start a new log file, and remove old ones.")
@click.argument("file")
@_commands.make_duration_option("--keep", least=0.0, help="Remove rotated files that are older, such as 90d.")
@_commands.yes_option
@_commands.pass_session
def rotate_audit_command(session: Session, /, file: str, keep: float | None, yes: bool) -> None:
    """Rename the log and start a new file that continues its hash chain. A running gateway follows.

    \b
    Examples:
      onym ai audit rotate audit.jsonl
      onym ai audit rotate audit.jsonl --keep 90d
    """
    from onym.ai.gateway.audit import remove_old_logs, rotate_log

    if keep is not None:
        _commands.confirm_action(
            session,
            f"Remove rotated files of {file} that are older than {_commands.format_duration(keep)}?",
            yes=yes,
        )
    at = datetime.now(UTC)
    renamed = rotate_log(file, at=at)
    removed = () if keep is None else remove_old_logs(file, days=keep / 86_400, at=at)
    session.print_record({"file": file, "kept": str(renamed), "removed": [str(path) for path in removed]})
    session.print_line(f"{file}: renamed to {renamed}")
    for path in removed:
        session.print_line(f"removed {path}")
