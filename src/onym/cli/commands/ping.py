"""`onym ping`: an endpoint tried step by step, up to the first step that fails."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from onym.cli._calls import Call, Connected, call_options, connected
from onym.cli._errors import error_record
from onym.cli._options import json_option, uri_argument
from onym.cli._output import Session
from onym.cli._text import printable
from onym.cli.exit_codes import exit_code
from onym.errors import NotFoundError, OnymError, UnsupportedError

if TYPE_CHECKING:
    from onym.llm.plan import Plan
    from onym.net.probe import ProbeReport

__all__ = ["command"]

Step = dict[str, Any]


class _Steps:
    """What was done so far; each step is shown as soon as it is known."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.done: list[Step] = []

    def add(
        self, name: str, text: str, *, seconds: float | None = None, ok: bool = True, **facts: Any
    ) -> None:
        self.done.append({"step": name, "ok": ok, "seconds": seconds, **facts})
        mark = self._session.paint("ok  ", "good") if ok else self._session.paint("fail", "bad")
        took = "" if seconds is None else self._session.paint(f"  {seconds * 1000:.0f} ms", "dim")
        self._session.say(f"{mark} {name:<8} {printable(self._session.masked(text))}{took}")


@click.command("ping")
@uri_argument
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True,
              metavar="SECONDS", help="For the connection, and again for the request.")  # fmt: skip
@call_options
@json_option
@click.pass_obj
def command(session: Session, /, timeout: float, **given: Any) -> None:
    """Try URI step by step: where the policy lets it lead, the addresses of the name, the connection, TLS,
    the key, and one cheap request (the list of models, else one token of chat). Stops at the first step
    that fails, and ends with that failure's exit code.

    \b
    Examples:
      onym ping llm://openai/gpt-5
      onym ping llm://localhost:11434/llama3
    """
    steps = _Steps(session)
    # a trial of the way there, not of what the model takes
    with connected(session, replace(Call(**given), on_unsupported="drop")) as to:
        try:
            plan = to.client.explain("ping")
            _key(steps, plan)
            if plan.endpoint.origin is not None:
                _way(steps, to, plan, timeout)
            _request(steps, to, plan, timeout)
        except OnymError as error:
            if not session.as_json:
                raise
            session.record({"ok": False, "steps": steps.done, **error_record(session, error)})
            raise SystemExit(exit_code(error)) from error
    session.record({"ok": True, "steps": steps.done})


def _key(steps: _Steps, plan: Plan) -> None:
    unkeyed, credential = plan.endpoint.unkeyed, plan.endpoint.credential
    if unkeyed is not None:
        steps.add("key", unkeyed.message, ok=False, code=unkeyed.code)
        raise unkeyed
    source = None if credential is None else credential.source
    steps.add("key", "none is sent" if source is None else f"from {source}", source=source)


def _way(steps: _Steps, to: Connected, plan: Plan, timeout: float) -> None:
    """Policy, look-up, connection and TLS."""
    from onym.net.transport import Transport

    origin = plan.endpoint.origin
    assert origin is not None  # noqa: S101 - the caller has looked
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
    _tls(steps, found)
    if found.error is not None:
        steps.add(_failed(found), found.error.message, ok=False, code=found.error.code)
        raise found.error


def _tls(steps: _Steps, found: ProbeReport) -> None:
    if found.tls_version is None:
        if found.error is None:
            steps.add("tls", "none: plain HTTP, to this machine alone", version=None)
        return
    text = f"{found.tls_version}, {found.cipher}, certificate of {found.subject} until {found.not_after}"
    steps.add("tls", text, seconds=found.tls_seconds, version=found.tls_version, cipher=found.cipher,
              subject=found.subject, issuer=found.issuer, not_after=found.not_after)  # fmt: skip


def _failed(found: ProbeReport) -> str:
    """The step that an error belongs to."""
    if found.address is not None:
        return "tls"
    return "connect" if found.answers else "name"


def _request(steps: _Steps, to: Connected, plan: Plan, timeout: float) -> None:
    """The list of models; where there is none, one token of chat."""
    limits: dict[str, Any] = {"timeout": max(1, int(timeout * 1000)), "retries": 0}
    began = monotonic()
    try:
        try:
            models = to.client.models(**limits)
        except (NotFoundError, UnsupportedError):
            began = monotonic()
            answer = to.client.chat("ping", max_tokens=1, **limits)
            facts: Step = {"operation": "chat", "model_listed": None}
            text = f"chat answers ({answer.finish_reason})"
        else:
            listed = plan.endpoint.model in {model.id for model in models}
            facts = {"operation": "models", "model_listed": listed}
            count = f"{len(models)} {'model' if len(models) == 1 else 'models'}"
            text = f"{count}, {plan.endpoint.model} {'is' if listed else 'is not'} among them"
    except OnymError as error:
        steps.add("request", error.message, seconds=monotonic() - began, ok=False, code=error.code)
        raise
    steps.add("request", text, seconds=monotonic() - began, **facts)
