"""`onym explain` and `onym ping`: show the request without sending it, or test the endpoint step by step."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from onym.cli._errors import build_error_record
from onym.cli._input import load_providers, pass_session, uri_argument
from onym.cli._llm_client import CallOptions, ConnectedCall, call_options, open_client
from onym.cli._output import Session, encode_json, to_plain_data
from onym.cli.commands.check import find_misspellings
from onym.cli.exit_codes import get_exit_code
from onym.common.text import escape_unprintable
from onym.errors import NotFoundError, OnymError, UnsupportedError

if TYPE_CHECKING:
    from onym.llm.endpoint import Endpoint
    from onym.llm.mapping import MappingNote
    from onym.llm.plan import Plan
    from onym.net.policy import Policy
    from onym.net.transport import ProbeReport

#: status of a parameter -> its description
_FATES = {
    "sent": "sent as",
    "renamed": "sent as",
    "client": "used by Onym itself, not sent",
    "dropped": "not sent",
    "withheld": "never sent",
}
#: characters of a value in the table; the body above it is complete
_LONGEST = 60


@click.command("explain")
@uri_argument
@click.argument("prompt", nargs=-1)
@click.option("-s", "--system", metavar="TEXT", help="The system prompt, as for `onym chat`.")
@click.option("--stream/--no-stream", default=None, help="Explain a streamed or a complete answer.")
@call_options
@pass_session
def explain_command(session: Session, /, **given: Any) -> None:
    """Show the request that Onym would send. Sends nothing.

    The output is the method, URL, headers and body of the request of `onym chat` for URI, and the origin
    and the API's name of each value. No name is resolved.

    With --on-unsupported drop, parameters that the provider or the model does not support are listed as not
    sent, with the rule and its source. Without it, they are an error, as for `onym chat`.

    \b
    Examples:
      onym explain 'llm://openai/gpt-5?max_tokens=100'
      onym explain --on-unsupported drop 'llm://anthropic/claude-sonnet-4-5?temp=0.2&seed=7'
      onym explain 'llm://gemini/gemini-3-pro?top_k=40&system=Be%20brief' "Say hello."
      onym explain llm://localhost:11434/llama3 "Say hello."
      onym explain --json fast | jq .body
    """
    prompt, system, stream = given.pop("prompt"), given.pop("system"), given.pop("stream")
    with open_client(session, CallOptions(**given)) as to:
        overrides = dict(to.overrides)
        if system is not None:
            overrides["system"] = system
        if stream is not None:
            overrides["stream"] = stream
        plan = to.client.explain(" ".join(prompt) or "…", **overrides)
    verdict = _decide_policy(to.policy, plan)
    session.print_record({**plan.as_dict(), "policy": verdict})
    if not session.as_json:
        _print_plan(session, plan, verdict)
    if session.subject is not None:
        for found in find_misspellings(session.subject.text, load_providers()):
            session.print_note(found.message, kind="warning")


def _decide_policy(policy: Policy, plan: Plan) -> dict[str, Any]:
    """Evaluate the policy without a look-up; `allowed` is null if it depends on the addresses of a name."""
    from onym.net.policy import evaluate_policy

    origin = plan.endpoint.origin
    if origin is None:
        return {"name": policy.name, "allowed": True, "reason": None}
    found = evaluate_policy(policy, origin.host, origin.port, scheme=origin.scheme)
    if found.reason == "no-address":
        return {"name": policy.name, "allowed": None, "reason": None}
    return {"name": policy.name, "allowed": found.allowed, "reason": found.reason}


def _print_plan(session: Session, plan: Plan, verdict: dict[str, Any]) -> None:
    endpoint = plan.endpoint
    _print_title(session, "Endpoint")
    rows = [
        ("uri", endpoint.text),
        ("provider", f"{endpoint.provider.title}  ({endpoint.provider.source})"),
        ("API format", endpoint.dialect.name),
        ("model", endpoint.model),
        *_build_key_rows(plan.endpoint),
        ("policy", _format_policy(verdict)),
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
    session.print_table(
        _build_note_rows(plan) or [("(the defaults of the server)",)], indent="  ", styles=("name",)
    )
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


def _build_note_rows(plan: Plan) -> list[tuple[str, str, str, str]]:
    demanded = {**plan.endpoint.dialect.defaults, **plan.endpoint.profile.defaults}
    return [
        (
            note.parameter,
            _shorten_value(to_plain_data(note.value)),
            "command line" if note.origin == "override" else note.origin,
            _describe_fate(note, demanded=note.origin == "default" and note.parameter in demanded),
        )
        for note in plan.notes
    ]


def _describe_fate(note: MappingNote, *, demanded: bool) -> str:
    """Describe what happens to a parameter."""
    if note.parameter == "api" and note.action == "renamed":
        return f"chooses the API format {note.wire_name}"
    fate = _FATES[note.action]
    if note.wire_name is not None:
        fate = f"{fate} {note.wire_name}"
    reason = note.reason or ("the API requires it" if demanded else None)
    return fate if reason is None else f"{fate}: {reason}"


def _shorten_value(value: object) -> str:
    """Format a value on one line of the table."""
    text = value if isinstance(value, str) else encode_json(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _build_rule_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the source of each rule that removed a parameter or made it ineffective."""
    named: dict[str, list[str]] = {}
    for note in plan.notes:
        if note.source is not None and note.reason is not None:
            named.setdefault(note.source, []).append(note.parameter)
    return [(", ".join(names), source) for source, names in named.items()]


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


@click.command("ping")
@uri_argument
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True,
              metavar="SECONDS", help="Timeout of the connection and of the request.")  # fmt: skip
@call_options
@pass_session
def ping_command(session: Session, /, timeout: float, **given: Any) -> None:
    """Test an endpoint step by step.

    The steps are the policy, name resolution, the connection, TLS, the key, and one cheap request (the list
    of models, or one token of chat). `ping` stops at the first failed step, with the exit code of its error.

    \b
    Examples:
      onym ping llm://openai/gpt-5
      onym ping llm://localhost:11434/llama3
    """
    steps = _Steps(session)
    # an unsupported parameter must not end a test of the connection
    with open_client(session, replace(CallOptions(**given), on_unsupported="drop")) as to:
        try:
            plan = to.client.explain("ping")
            _check_key(steps, plan)
            if plan.endpoint.origin is not None:
                _check_connection(steps, to, plan, timeout)
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


def _check_connection(steps: _Steps, to: ConnectedCall, plan: Plan, timeout: float) -> None:
    """Run the steps policy, name resolution, connection and TLS."""
    from onym.net.transport import Transport

    origin = plan.endpoint.origin
    assert origin is not None  # noqa: S101 - the caller has checked
    with Transport(to.policy) as transport:
        found = transport.probe(origin, timeout)
    if found.answers:
        looked_up = found.answers != (origin.host,)
        text = f"{origin.host} is {', '.join(found.answers)}" if looked_up else "an address, not looked up"
        steps.add("name", text, seconds=found.lookup_seconds,
                  host=origin.host, addresses=list(found.answers))  # fmt: skip
    if found.address is not None:
        steps.add("connect", f"{found.address} port {origin.port}", seconds=found.connect_seconds,
                  address=found.address, port=origin.port)  # fmt: skip
    _report_tls(steps, found)
    if found.error is not None:
        steps.add(_get_failed_step(found), found.error.message, ok=False, code=found.error.code)
        raise found.error


def _report_tls(steps: _Steps, found: ProbeReport) -> None:
    if found.tls_version is None:
        if found.error is None:
            steps.add("tls", "none: plain HTTP to this computer", version=None)
        return
    text = f"{found.tls_version}, {found.cipher}, certificate of {found.subject} until {found.not_after}"
    steps.add("tls", text, seconds=found.tls_seconds, version=found.tls_version, cipher=found.cipher,
              subject=found.subject, issuer=found.issuer, not_after=found.not_after)  # fmt: skip


def _get_failed_step(found: ProbeReport) -> str:
    """Return the step that an error belongs to."""
    if found.address is not None:
        return "tls"
    return "connect" if found.answers else "name"


def _check_request(steps: _Steps, to: ConnectedCall, plan: Plan, timeout: float) -> None:
    """Request the list of models, or one token of chat if the provider has no list."""
    limits: dict[str, Any] = {"timeout": max(1, int(timeout * 1000)), "retries": 0}
    began = monotonic()
    try:
        try:
            models = to.client.models(**limits)
        except (NotFoundError, UnsupportedError):
            began = monotonic()
            answer = to.client.chat("ping", max_tokens=1, **limits)
            facts: Step = {"operation": "chat", "model_listed": None}
            text = f"chat works ({answer.finish_reason})"
        else:
            listed = plan.endpoint.model in {model.id for model in models}
            facts = {"operation": "models", "model_listed": listed}
            count = f"{len(models)} {'model' if len(models) == 1 else 'models'}"
            text = f"{count}, {plan.endpoint.model} {'is' if listed else 'is not'} among them"
    except OnymError as error:
        steps.add("request", error.message, seconds=monotonic() - began, ok=False, code=error.code)
        raise
    steps.add("request", text, seconds=monotonic() - began, **facts)
