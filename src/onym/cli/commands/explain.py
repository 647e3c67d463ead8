"""`onym explain`: the request that a call would send, and where each value in it came from. Sends nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onym.cli._calls import Call, call_options, connected
from onym.cli._options import json_option, uri_argument
from onym.cli._output import Session, dumps, plain
from onym.cli._text import printable

if TYPE_CHECKING:
    from onym.llm._endpoint import Endpoint
    from onym.llm.plan import Plan
    from onym.net.policy import Policy

__all__ = ["command"]

#: what became of a parameter, in words
_FATES = {
    "sent": "sent as",
    "renamed": "sent as",
    "client": "used by onym itself, not sent",
    "dropped": "not sent",
    "withheld": "never sent",
}


@click.command("explain")
@uri_argument
@click.argument("prompt", nargs=-1)
@click.option("-s", "--system", metavar="TEXT", help="The system prompt, as for `onym chat`.")
@click.option("--stream/--no-stream", default=None, help="Explain a streamed call, or one that is not.")
@call_options
@json_option
@click.pass_obj
def command(session: Session, /, **given: Any) -> None:
    """Show the request that `onym chat` would send for URI: method, address, headers, body, and for each
    value where it came from and what it is called on the way. Nothing is sent, and no name looked up.

    \b
    Examples:
      onym explain 'llm://openai/gpt-5?max_tokens=100'
      onym explain llm://localhost:11434/llama3 "Say hello."
      onym explain --json fast | jq .body
    """
    prompt, system, stream = given.pop("prompt"), given.pop("system"), given.pop("stream")
    with connected(session, Call(**given)) as to:
        overrides = dict(to.overrides)
        if system is not None:
            overrides["system"] = system
        if stream is not None:
            overrides["stream"] = stream
        plan = to.client.explain(" ".join(prompt) or "…", **overrides)
    verdict = _verdict(to.policy, plan)
    session.record({**plan.as_dict(), "policy": verdict})
    if not session.as_json:
        _draw(session, plan, verdict)


def _verdict(policy: Policy, plan: Plan) -> dict[str, Any]:
    """What the policy says without a look-up; `allowed` is null for a name whose addresses will decide."""
    from onym.net.policy import decide

    origin = plan.endpoint.origin
    if origin is None:
        return {"name": policy.name, "allowed": True, "reason": None}
    found = decide(policy, origin.host, origin.port, scheme=origin.scheme)
    if found.reason == "no-address":
        return {"name": policy.name, "allowed": None, "reason": None}
    return {"name": policy.name, "allowed": found.allowed, "reason": found.reason}


def _draw(session: Session, plan: Plan, verdict: dict[str, Any]) -> None:
    endpoint = plan.endpoint
    _title(session, "Endpoint")
    rows = [
        ("uri", endpoint.text),
        ("provider", f"{endpoint.provider.title}  ({endpoint.provider.source})"),
        ("wire format", endpoint.dialect.name),
        ("model", endpoint.model),
        ("key", _key_words(plan.endpoint)),
        ("policy", _policy_words(verdict)),
        ("time allowed", f"{plan.timeout:g} s, at most {plan.retries} retries"),
    ]
    session.table(rows, indent="  ", styles=("dim",))
    _title(session, "Request")
    session.say(f"  {session.paint(plan.method, 'name')} {printable(plan.url)}")
    headers = [(f"{name}:", str(value)) for name, value in plan.headers]
    session.table(headers, indent="  ", styles=("dim",))
    if plan.body is not None:
        session.say()
        for line in dumps(plain(plan.body), indent=2).splitlines():
            session.say(f"  {line}")
    _title(session, "Where each value came from")
    session.table(_notes(plan) or [("(the defaults of the server)",)], indent="  ", styles=("name",))
    for warning in plan.warnings:
        session.note(warning, kind="warning")


def _key_words(endpoint: Endpoint) -> str:
    if endpoint.unkeyed is not None:
        return f"missing: {endpoint.unkeyed.message}"
    credential = endpoint.credential
    return "none is sent" if credential is None else f"***  from {credential.source}"


def _title(session: Session, text: str) -> None:
    session.say(("" if text == "Endpoint" else "\n") + session.paint(text, "name"))


def _policy_words(verdict: dict[str, Any]) -> str:
    if verdict["allowed"] is None:
        return f"{verdict['name']}: if every address of the name is public"
    return f"{verdict['name']}: {'allowed' if verdict['allowed'] else 'refused, ' + verdict['reason']}"


def _notes(plan: Plan) -> list[tuple[str, str, str, str]]:
    rows = []
    for note in plan.notes:
        fate = _FATES[note.action]
        if note.wire_name is not None:
            fate = f"{fate} {note.wire_name}"
        if note.reason is not None:
            fate = f"{fate}: {note.reason}"
        value = plain(note.value)
        origin = "command line" if note.origin == "override" else note.origin
        rows.append((note.parameter, value if isinstance(value, str) else dumps(value), origin, fate))
    return rows
