"""`onym ai discover`, `resolve`, `describe` and `invoke`: the client of `ai://` resources.

The shared options (policy, CA, registry file, DNS) become a guarded transport and an `AIClient`. A pipe
receives the verified result byte for byte. A terminal receives only text, with control characters escaped.
`--json` has `body` for UTF-8 and `body_base64` (RFC 4648 4) for other content.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypedDict, Unpack

import click

from onym._lazy import require_extra
from onym.cli import exit_codes
from onym.cli._commands import add_options, make_command, make_duration_option, pass_session
from onym.cli._errors import build_error_record, build_failure_record, complete_command
from onym.cli._input import POLICY_CHOICE, read_body, read_file, translate_key_errors
from onym.cli._llm_client import NetworkOptions, build_network, network_options
from onym.cli._output import Session, Subject, encode_json, is_terminal, replace_text_file, select_fields
from onym.cli.exit_codes import get_exit_code
from onym.common.text import escape_unprintable
from onym.errors import ApprovalRequired, OnymError, UsageError

if TYPE_CHECKING:
    from onym.ai.client import AIClient, AIStream
    from onym.ai.credentials import Credential, Credentials
    from onym.ai.discovery.evaluation import Discovery
    from onym.ai.records import Effects, Namespaces, Resolution, Result, Source
    from onym.ai.settings import ResolverSettings
    from onym.ai.tasks import TaskHandle
    from onym.net.limits import ClientIdentity
    from onym.net.messages import Flow
    from onym.net.transport import Transport
    from onym.uri.ai import AIURI
    from onym.uri.secret import Secret

uri_argument = click.argument("uri", metavar="URI")


class AIOptions(TypedDict):
    """The options of every command that contacts an authority."""

    policy: str
    proxy: str | None
    ca_files: tuple[str, ...]
    cert: str | None
    cert_key: str | None
    namespaces: str | None
    namespaces_key: str | None
    dns: bool
    resolver: str | None
    timeout: float


_FILE: Final = click.Path(exists=True, dir_okay=False)
#: bytes
_MAX_APPROVAL: Final = 16 * 1024
_MAX_BODY: Final = 256 * 1024 * 1024

#: add `--policy`, the network options, the registry's, `--no-dns`, `--resolver` and `--timeout`
ai_options = add_options(
    click.option("--policy", type=POLICY_CHOICE, default="local", show_default=True,
                 help="Hosts that the URI may reach: local allows loopback, untrusted only port 443."),
    network_options,
    click.option("--namespaces", type=_FILE, metavar="FILE",
                 help="A registry's signed file of names, for names of one label (ai://bank/...)."),
    click.option("--namespaces-key", type=_FILE, metavar="FILE",
                 help="The public key of that file: a JWK or a JWK Set."),
    click.option("--dns/--no-dns", default=True, help="Query DNS for SRV and TXT records (default)."),
    click.option("--resolver", metavar="ADDRESS[:PORT]",
                 help="The name server, if not the system's; on loopback, its DNSSEC result is trusted."),
    make_duration_option("--timeout", default="30s", show_default=True, help="Timeout of each request."),
)  # fmt: skip


def parse_uri_argument(session: Session, text: str) -> AIURI:
    """Parse a typed ai URI, and print a note if Unicode in it was converted. Raises AIURIError."""
    from onym.uri.iri import parse_user_input

    session.subject = Subject(text, text, typed=True)
    typed = parse_user_input(text)
    if str(typed.uri) != text.strip():
        session.print_note(f"read as {typed.uri}")
    for warning in typed.warnings:
        session.print_note(warning.message, kind="warning")
    return typed.uri


def build_resolver_settings(options: AIOptions) -> ResolverSettings:
    """Return the settings of discovery. Pins are in the user's state folder."""
    from onym.ai.settings import PinFile, ResolverSettings
    from onym.ai.telemetry import resolve_telemetry

    namespaces: tuple[Namespaces, ...] = ()
    if options["namespaces"] is not None:
        from onym.registry.signed_namespaces import SignedNamespaces

        if options["namespaces_key"] is None:
            raise UsageError(
                "--namespaces needs the key that signs the file",
                hint="add --namespaces-key FILE with the registry's public JWK",
            )
        key = Path(options["namespaces_key"])
        with translate_key_errors(key, "sign.bad-key"):
            namespaces = (SignedNamespaces.load(options["namespaces"], key=key, state=_get_seen_path(key)),)
    return ResolverSettings(
        namespaces=namespaces,
        pins=PinFile(),
        dns=options["dns"],
        timeout=options["timeout"],
        telemetry=resolve_telemetry(None),
    )


def _get_seen_path(key: Path) -> Path:
    """Return the file with the last issue seen of this registry's file, so that no older one is accepted."""
    from hashlib import sha256

    from platformdirs import user_state_path

    folder = user_state_path("onym", ensure_exists=True)
    return folder / f"registry-{sha256(key.read_bytes()).hexdigest()[:16]}.seen"


def build_transport(session: Session, options: AIOptions) -> Transport:
    """Build the guarded transport for these options."""
    from onym.llm.config import Config
    from onym.net.config import NetConfig
    from onym.net.policy import Policy
    from onym.net.records import RecordResolver
    from onym.net.transport import Transport

    nameservers, port = _parse_name_server(options["resolver"])
    given = NetConfig(policy=Policy.preset(options["policy"]), records=RecordResolver(nameservers, port))
    chosen = NetworkOptions(
        proxy=options["proxy"],
        ca_files=options["ca_files"],
        cert=options["cert"],
        cert_key=options["cert_key"],
    )
    config = Config.load()
    network = build_network(session, chosen, given, config)
    session.print_detail("configuration", config.path or "no file")
    session.print_detail("policy", options["policy"])
    session.print_detail("proxy", "none" if network.proxy is None else network.proxy.text)
    # every connection of ai:// has TLS 1.3, also one to this computer (AIIP)
    return Transport(replace(network, tls=replace(network.tls, minimum="1.3")))


def build_identity(options: AIOptions) -> ClientIdentity | None:
    """Return the client certificate of the command line, for authorities that require one."""
    from onym.net.limits import ClientIdentity

    return None if options["cert"] is None else ClientIdentity(cert=options["cert"], key=options["cert_key"])


def _parse_name_server(text: str | None) -> tuple[Sequence[str] | None, int]:
    if text is None:
        return None, 53
    address, colon, port = text.rpartition(":") if text.count(":") == 1 else (text, "", "53")
    if not port.isdecimal() or not 0 < int(port) < 65536 or (colon and not address):
        raise UsageError(
            f"--resolver {text} is not ADDRESS or ADDRESS:PORT",
            code="usage.command-line",
            hint="write an IP address, as in --resolver 127.0.0.1:5353",
        )
    return [address.strip("[]")], int(port)


@contextmanager
def open_client(
    session: Session,
    options: AIOptions,
    *,
    token_variable: str | None = None,
    client_id: str | None = None,
    allow: Sequence[str] = (),
) -> Iterator[AIClient]:
    """Open a client with these options. Logs are masked from here on."""
    from onym.ai.client import AIClient
    from onym.ai.client_flows import DEFAULT_EFFECTS
    from onym.uri.log_filter import install_logging_filter

    install_logging_filter()
    settings = build_resolver_settings(options)
    with (
        build_transport(session, options) as wire,
        AIClient(
            settings,
            transport=wire,
            credentials=_build_credentials(token_variable, client_id, settings),
            identity=build_identity(options),
            allow_effects={*DEFAULT_EFFECTS, *allow},
            timeout=options["timeout"],
        ) as client,
    ):
        yield client


@dataclass(frozen=True, slots=True)
class _OneAuthority:
    """The token of the command line, which is meant for the one authority of the command."""

    token: Secret
    client_id: str

    def obtain(
        self, resolution: Resolution, *, scopes: Collection[str], effects: Effects
    ) -> Flow[Credential | None]:
        """Return the token."""
        from onym.ai.credentials import Credential

        yield from ()
        return Credential(token=self.token, client_id=self.client_id)

    def forget(self, token: Secret) -> None:
        """Do nothing: there is no other token."""


def _build_credentials(
    variable: str | None, client_id: str | None, settings: ResolverSettings
) -> Credentials:
    """Return the token of the command line, or the sign-ins of `onym ai login`."""
    from onym.uri.secret import Secret

    if variable is None:
        from onym.ai.credentials import StoredCredentials

        return StoredCredentials(settings=settings)
    value = os.environ.get(variable)
    if not value:
        raise UsageError(f"the variable {variable} is not set, or it is empty", code="usage.command-line")
    if client_id is None:
        raise UsageError(
            "--token-env needs the client ID that the token was issued to", hint="add --client-id ID"
        )
    return _OneAuthority(Secret(value), client_id)


#: verdict -> its mark, which is readable without colour
_MARKS: Final = {
    "won": "+",
    "confirms": "=",
    "dropped": "-",
    "contradicts": "!",
    "absent": ".",
    "failed": "x",
}
#: values in a row; --json has all of them
_MAX_VALUES: Final = 2


@make_command("discover", short_help="Find the endpoint of a name, and explain each source.")
@click.argument("name", metavar="NAME")
@ai_options
@pass_session
def discover_command(session: Session, /, name: str, **options: Unpack[AIOptions]) -> None:
    """Find the endpoint of NAME (a host, an https URL or an ai URI). Nothing is invoked.

    Every source is queried and listed, the highest rank first: + won, = confirms, - dropped, ! contradicts, .
    has no answer, x failed. The requirements in the discovery document are remembered, and later documents
    are compared with them.

    \b
    Examples:
      onym ai discover bank.example
      onym ai discover --json https://shop.example/pay
      onym ai discover bank --namespaces names.jws --namespaces-key registry.jwk
    """
    require_extra("selectolax", "ai")  # before the first request
    from onym.ai.discovery.evaluation import discover_authority
    from onym.net.transport import run_flow
    from onym.uri.log_filter import install_logging_filter

    install_logging_filter()
    settings = build_resolver_settings(options)
    with build_transport(session, options) as wire:
        discovery = run_flow(discover_authority(name, settings), wire)
    record = _build_discovery_record(session, discovery)
    session.print_table([_build_source_row(source) for source in _sort_sources(discovery)])
    session.print_line()
    session.print_table(_build_decision_rows(discovery, record), styles=("name",))
    session.print_record(record)
    if discovery.refusal is not None:
        if not session.as_json:
            raise discovery.refusal
        raise SystemExit(get_exit_code(discovery.refusal)) from discovery.refusal


def _sort_sources(discovery: Discovery) -> list[Source]:
    return sorted(discovery.sources, key=lambda source: -source.rank)


def _build_source_row(source: Source) -> tuple[str, ...]:
    values = ", ".join(source.said[:_MAX_VALUES]) or "-"
    if len(source.said) > _MAX_VALUES:
        values += f" and {len(source.said) - _MAX_VALUES} more"
    reason = f"{source.location}: {source.why}" if source.why else source.location
    return _MARKS[source.verdict], str(source.rank), source.name, source.verdict, values, reason


def _build_decision_rows(discovery: Discovery, record: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [(name, record[name]) for name in ("authority", "anchor", "service") if record[name] is not None]
    if record["connect"] is not None:
        rows.append(("connect", f"{record['connect']} (signed SRV record)"))
    rows += [("or else", fallback) for fallback in record["fallbacks"]]
    rows += [("key", kid) for kid in discovery.kids]
    for candidate in discovery.candidates:
        state = "confirmed" if candidate.confirmed else "unconfirmed"
        rows.append(("resource", f"{candidate.uri} ({state}: {candidate.why}; {', '.join(candidate.by)})"))
    refusal = discovery.refusal
    return [*rows, ("decision", "discovered" if refusal is None else f"rejected: {refusal.message}")]


def _build_discovery_record(session: Session, discovery: Discovery) -> dict[str, Any]:
    document, connect, refusal = discovery.document, discovery.connect, discovery.refusal
    names = ("name", "rank", "verdict", "said", "why", "location", "validated", "code")
    record: dict[str, Any] = {
        **select_fields(discovery, "authority", "anchor"),
        "service": None if document is None else document.service,
        "keys": discovery.kids,
        "connect": None if connect is None else f"{connect.host}:{connect.port}",
        "fallbacks": [f"{fallback.host}:{fallback.port}" for fallback in discovery.fallbacks],
        "sources": [select_fields(source, *names) for source in _sort_sources(discovery)],
        "candidates": [
            select_fields(candidate, "uri", "confirmed", "by", "why") for candidate in discovery.candidates
        ],
        "ok": refusal is None,
    }
    return record if refusal is None else record | build_error_record(session, refusal)


@make_command("resolve", short_help="Show the anchor, service, keys and policy of a URI.")
@uri_argument
@ai_options
@pass_session
def resolve_command(session: Session, /, uri: str, **options: Unpack[AIOptions]) -> None:
    """Show the anchor, service, keys and policy of URI.

    \b
    Examples:
      onym ai resolve ai://factory.example/agent/forklift-42
      onym ai resolve ai://factory.example/agent/forklift-42 --policy untrusted
    """
    with open_client(session, options) as client:
        resolution = client.resolve(parse_uri_argument(session, uri))
    record = _build_resolution_record(resolution)
    session.print_record(record)
    session.print_table(_build_resolution_rows(record), styles=("name",))


def _build_resolution_record(resolution: Resolution) -> dict[str, Any]:
    document, entry = resolution.document, resolution.entry
    return {
        "uri": str(resolution.uri),
        **select_fields(resolution, "authority", "anchor"),
        "service": document.service,
        "connect": None if resolution.connect is None else str(resolution.connect),
        "fallbacks": [str(fallback) for fallback in resolution.fallbacks],
        "keys": sorted(resolution.keys.kids),
        "requires": select_fields(document.requirements, "auth", "signed_results", "mtls", "dpop"),
        "resource": None if entry is None else select_fields(entry, "title", "effects", "scopes"),
    }


def _build_resolution_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    requires, resource = record["requires"], record["resource"]
    demands = [
        "signed results",
        "an access token (oauth2)" if requires["auth"] == "oauth2" else "no authentication",
        "a client certificate" if requires["mtls"] else "",
        "" if requires["dpop"] == "none" else f"DPoP {requires['dpop']}",
    ]
    rows = [
        *((name, record[name]) for name in ("uri", "anchor", "service")),
        ("keys", ", ".join(record["keys"])),
        ("requires", ", ".join(demand for demand in demands if demand)),
    ]
    if record["connect"] is not None:
        rows.append(("connect", f"{record['connect']} (DNS)"))
    rows += [("or else", f"{fallback} (DNS)") for fallback in record["fallbacks"]]
    if resource is not None:
        rows.append(("resource", f"{resource['title'] or '-'}; effects {resource['effects']}"))
    return rows


@make_command("describe", short_help="Show the input, output, effects and scopes of a resource.")
@uri_argument
@ai_options
@pass_session
def describe_command(session: Session, /, uri: str, **options: Unpack[AIOptions]) -> None:
    """Show the title, input, output, effects and scopes of the resource at URI. Has no effects.

    \b
    Example:
      onym ai describe ai://factory.example/model/helper
    """
    with open_client(session, options) as client:
        description = client.describe(parse_uri_argument(session, uri))
    names = ("uri", "title", "methods", "input", "output", "effects", "scopes", "idempotency")
    record = select_fields(description, *names)
    flags = {"approval": description.approval, "reversible": description.reversible}
    session.print_record({**record, "async": description.asynchronous, **flags})
    rows = [
        ("uri", description.uri),
        ("title", description.title or "-"),
        ("methods", ", ".join(description.methods)),
        ("effects", description.effects + (" (reversible)" if description.reversible else "")),
        ("scopes", ", ".join(description.scopes) or "-"),
        ("idempotency", "a key is required" if description.idempotency else "-"),
    ]
    session.print_table(rows, styles=("name",))
    for name in ("input", "output"):
        if record[name] is not None:
            session.print_line(f"\n{session.paint(name, 'name')}\n{encode_json(record[name], indent=2)}")


_TEXTS: Final = frozenset({"application/json", "application/xml"})
_SUFFIXES: Final = ("+json", "+xml")


def prepare_folder(folder: Path) -> None:
    """Create the folder for a result and test that it is writable, before the call. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        pass


def fetch_history(session: Session, client: AIClient, folder: Path | None, result: Result) -> bytes | None:
    """Fetch the keys that verify the result in `folder` later. Without them, a note says so."""
    if folder is None:
        return None
    try:
        return client.fetch_key_history(result.receipt.subject)
    except OnymError as error:
        session.print_note(f"the authority's keys were not saved: {error.message}")
        return None


def save_result(folder: Path, result: Result, history: bytes | None) -> None:
    """Write the result into `folder`, where `onym ai verify` reads it. Raises OSError."""
    (folder / "body").write_bytes(result.body)
    (folder / "receipt.jwt").write_text(result.token + "\n")
    if history is not None:
        (folder / "history.json").write_bytes(history)


def write_result(session: Session, result: Result) -> None:
    """Write the body to standard output."""
    if not is_terminal(sys.stdout):
        _write_stdout(result.body)
    elif _is_text(result.content_type):
        lines = result.body.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
        for line in lines if result.body else ():
            session.print_line("\t".join(map(escape_unprintable, line.removesuffix("\r").split("\t"))))
    elif result.body:
        kind = result.content_type or "of unknown type"
        session.print_note(
            f"the result is {kind} ({len(result.body)} bytes) and cannot be shown on a terminal; "
            "pipe the output, or use --save DIR"
        )


def build_result_record(result: Result) -> dict[str, Any]:
    """Return the JSON of a result."""
    body: dict[str, str | None]
    try:
        body = {"body": result.body.decode("utf-8")}
    except UnicodeDecodeError:
        body = {"body": None, "body_base64": b64encode(result.body).decode("ascii")}
    receipt = select_fields(result.receipt, "issuer", "subject", "audience", "issued", "id")
    return {
        **select_fields(result, "status", "content_type"),
        **body,
        "replayed": result.replayed,
        "receipt": {**receipt, "token": result.token},
        "checks": result.checks,
    }


def _is_text(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind in _TEXTS or kind.startswith("text/") or kind.endswith(_SUFFIXES)


def _write_stdout(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.flush()
    if content and not content.endswith(b"\n"):
        with suppress(OSError, ValueError):  # a replaced stream has no descriptor
            if os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
                # the next note on standard error starts on a new line
                sys.stderr.write("\n")


@make_command("invoke", short_help="Invoke a resource and verify its result.")
@uri_argument
@click.option("-d", "--data", metavar="DATA", help="The input: JSON text, @FILE, or - for standard input.")
@click.option("--type", "content_type", metavar="TYPE", help="The media type of the input, if not JSON.")
@click.option("--stream", is_flag=True, help="Print events as they arrive; the end makes them final.")
@click.option("--allow", type=click.Choice(["financial", "physical"]), multiple=True,
              help="Allow these effects for this call.")  # fmt: skip
@click.option("--idempotency-key", metavar="KEY", help="The key of an earlier attempt, to retry safely.")
@click.option("--async", "as_task", is_flag=True, help="Begin a long task; `onym ai tasks` goes on with it.")
@make_duration_option("--wait", help="With --async: the longest time to wait for the result.")
@click.option("--approval", metavar="FILE", help="The evidence that people approved the call.")
@click.option("--token-env", metavar="VARIABLE", help="The variable that contains the access token.")
@click.option("--client-id", metavar="ID", help="The client ID that the token was issued to.")
@click.option("--save", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Save the result, its receipt and keys in DIR, for `onym ai verify`.")  # fmt: skip
@ai_options
@pass_session
def invoke_command(
    session: Session,
    /,
    uri: str,
    data: str | None,
    content_type: str | None,
    stream: bool,
    allow: tuple[str, ...],
    idempotency_key: str | None,
    as_task: bool,
    wait: float | None,
    approval: str | None,
    token_env: str | None,
    client_id: str | None,
    folder: Path | None,
    **options: Unpack[AIOptions],
) -> None:
    """Invoke a resource, verify its receipt, and print the result only if the receipt is valid.

    A pipe receives the result byte for byte. A terminal receives only text, with control characters escaped.
    With --json the result is `body`, or `body_base64` if it is not UTF-8. With --async, the exit code is 15
    if the result is not there yet; the ID of the task is then the output. If people must approve the call,
    the exit code is 14: send it again with --idempotency-key and --approval. With --save, what the people
    need is in approval-request.json.

    \b
    Examples:
      onym ai invoke ai://factory.example/model/helper -d '{"prompt": "Hi"}'
      onym ai invoke ai://factory.example/agent/forklift-42 --allow physical
      onym ai invoke ai://factory.example/model/helper -d @prompt.json --save out/
    """
    from onym.ai.records import EVENTS, parse_media_type  # late: the JOSE library

    if (stream and as_task) or (wait is not None and not as_task):
        raise UsageError("--wait needs --async, which excludes --stream", code="usage.command-line")
    content, kind = _read_input(data, content_type)
    target = parse_uri_argument(session, uri)
    request: dict[str, Any] = {"body": content, "content_type": kind, "idempotency_key": idempotency_key}
    if approval is not None:
        request["approval"] = _read_approval(approval, idempotency_key)
    if folder is not None:
        prepare_folder(folder)  # before the call, which cannot be undone
    with (
        open_client(session, options, token_variable=token_env, client_id=client_id, allow=allow) as client,
        save_approval_request(session, folder, str(target), content, kind),
    ):
        if stream:
            with client.stream(target, **request, keep=folder is not None) as events:
                result = _print_events(session, events)
        elif as_task:
            result = _begin_task(session, client.start(target, **request, wait=wait), wait)
        else:
            result = client.invoke(target, **request)
        history = fetch_history(session, client, folder, result)
    shown = stream and parse_media_type(result.content_type) == EVENTS
    deliver_result(session, result, folder, history, shown=shown)


def _print_events(session: Session, events: AIStream) -> Result:
    """Print the events as they arrive, before their receipt, and return the verified result."""
    for event in events:
        if session.as_json:
            record = select_fields(event, "event", "id", "data")
            session.print_json_line({**record, "provisional": True})
        else:
            session.print_line(escape_unprintable(event.data))
    return events.result


def _begin_task(session: Session, task: TaskHandle, wait: float | None) -> Result:
    """Return the result of a task that was begun; without one, record the task and show it."""
    from onym.ai.tasks import TaskFile

    if task.reference is None or task.first is None:
        return task.result()
    TaskFile().add(task.reference, task.first.created)
    if wait is not None:
        return task.result(wait)
    session.print_record({**task.reference.as_dict(), "state": task.first.state})
    session.print_line(task.reference.id)
    # the start of the ID is enough here, and cannot be used on another computer
    command = complete_command(session, f"onym ai tasks result {task.reference.id[:8]}")
    session.print_note(f"the task is {task.first.state}; get its result with: {command}")
    raise SystemExit(exit_codes.TASK_RUNNING)


@contextmanager
def save_approval_request(
    session: Session, folder: Path | None, uri: str, body: bytes | None, content_type: str | None
) -> Iterator[None]:
    """If people must approve the call, save what they need in the folder."""
    try:
        yield
    except ApprovalRequired as error:
        if folder is not None:
            request = {
                "transaction_challenge": error.transaction_challenge,
                "uri": uri,
                "idempotency_key": error.idempotency_key,
                "body_base64": b64encode(body or b"").decode("ascii"),
                "content_type": content_type if body else None,
            }
            file = folder / "approval-request.json"
            with replace_text_file(file) as write:
                write(json.dumps(request, indent=2) + "\n")
            session.print_note(
                f"what people must approve is in {file}: paste it at /approvals of the gateway, or run "
                f"onym ai approve ask {file}; then send it again with --idempotency-key KEY --approval FILE"
            )
        else:
            session.print_note("add --save DIR, which writes what people must approve to a file")
        raise


def _read_approval(file: str, key: str | None) -> str:
    """Read evidence, with or without the name of its header field."""
    if key is None:
        raise UsageError(
            "--approval needs the idempotency key of the call that was approved",
            code="usage.command-line",
            hint="add --idempotency-key KEY, which the first attempt printed",
        )
    text = read_file(file, _MAX_APPROVAL).decode("ascii", "replace").strip()
    name, colon, rest = text.partition(":")
    return rest.strip() if colon and name.lower() == "aiip-approval" else text


def _read_input(data: str | None, content_type: str | None) -> tuple[bytes | None, str | None]:
    """Return the body of the call and its media type. Raises UsageError for JSON that is not valid."""
    if data is None:
        return None, None
    body = read_body(data, _MAX_BODY)
    if content_type is None:
        _require_json(body)
    return body, content_type or "application/json"


def _require_json(text: bytes) -> None:
    """Raise UsageError with the position, which an endpoint would not report."""
    try:
        json.loads(text, parse_constant=_reject_constant)
    except ValueError as error:
        place = f" at line {error.lineno}, column {error.colno}" if isinstance(error, JSONDecodeError) else ""
        raise UsageError(
            f"--data is not valid JSON{place}",
            code="usage.command-line",
            hint="put names and texts in double quotes, as in -d '{\"a\": 1}'; add --type for other content",
        ) from None
    except RecursionError:
        pass  # the endpoint decides


def _reject_constant(name: str) -> NoReturn:
    """Reject NaN and Infinity, which Python reads but JSON does not have (RFC 8259 6)."""
    raise UsageError(
        f"--data contains {name}, which JSON does not have",
        code="usage.command-line",
        hint="use null or a text, if the resource accepts one",
    )


def deliver_result(
    session: Session, result: Result, folder: Path | None, history: bytes | None, *, shown: bool
) -> None:
    """Save and show the result. It is shown even if it cannot be saved. Raises OSError."""
    failed: OSError | None = None
    if folder is not None:
        try:
            save_result(folder, result, history)
        except OSError as error:
            failed = error
    if session.as_json:
        record = build_result_record(result)
        if failed is not None:
            session.print_record(record | build_failure_record(session, failed))
            raise SystemExit(exit_codes.INPUT_OUTPUT)
        session.print_record(record)
        return
    if not shown:
        write_result(session, result)
    receipt = result.receipt
    session.print_note(
        f"signed by {receipt.issuer} for {receipt.audience}: status {result.status}, receipt {receipt.id}"
        + (", an earlier answer given again" if result.replayed else "")
    )
    if failed is not None:
        raise failed
