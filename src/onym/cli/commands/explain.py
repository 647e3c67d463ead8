"""`onym explain`: the request that a call would send, and where each value in it came from. Sends nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onym.cli._calls import Call, call_options, connected
from onym.cli._input import user_providers
from onym.cli._options import json_option, uri_argument
from onym.cli._output import Session, dumps, plain
from onym.cli._provider_check import slips
from onym.cli._text import printable

if TYPE_CHECKING:
    from onym.llm._endpoint import Endpoint
    from onym.llm.mapping import MappingNote
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
#: how much of a value stands in the table; the body above has all of it
_LONGEST = 60


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

    With --on-unsupported drop, what the provider or the model does not take is shown as not sent, with
    the rule and where that comes from; else it is an error, as it is for `onym chat`.

    \b
    Examples:
      onym explain 'llm://openai/gpt-5?max_tokens=100'
      onym explain --on-unsupported drop 'llm://anthropic/claude-sonnet-4-5?temp=0.2&seed=7'
      onym explain 'llm://gemini/gemini-3-pro?top_k=40&system=Be%20brief' "Say hello."
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
    if session.subject is not None:
        for found in slips(session.subject.text, user_providers()):
            session.note(found.message, kind="warning")


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
        *_key_rows(plan.endpoint),
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
    rules = _rules(plan)
    if rules:
        _title(session, "Rules behind it")
        session.table(rules, indent="  ", styles=("name",))
    for warning in plan.warnings:
        session.note(warning, kind="warning")


def _key_rows(endpoint: Endpoint) -> list[tuple[str, str]]:
    if endpoint.unkeyed is not None:
        hint = endpoint.unkeyed.hint
        return [("key", f"missing: {endpoint.unkeyed.message}"), *([("", hint)] if hint else [])]
    credential = endpoint.credential
    return [("key", "none is sent" if credential is None else f"***  from {credential.source}")]


def _title(session: Session, text: str) -> None:
    session.say(("" if text == "Endpoint" else "\n") + session.paint(text, "name"))


def _policy_words(verdict: dict[str, Any]) -> str:
    if verdict["allowed"] is None:
        return f"{verdict['name']}: if every address of the name is public"
    return f"{verdict['name']}: {'allowed' if verdict['allowed'] else 'refused, ' + verdict['reason']}"


def _notes(plan: Plan) -> list[tuple[str, str, str, str]]:
    demanded = {**plan.endpoint.dialect.defaults, **plan.endpoint.profile.defaults}
    return [
        (
            note.parameter,
            _short(plain(note.value)),
            "command line" if note.origin == "override" else note.origin,
            _fate(note, demanded=note.origin == "default" and note.parameter in demanded),
        )
        for note in plan.notes
    ]


def _fate(note: MappingNote, *, demanded: bool) -> str:
    """What became of a parameter, in words."""
    if note.parameter == "api" and note.action == "renamed":
        return f"chooses the wire format {note.wire_name}"
    fate = _FATES[note.action]
    if note.wire_name is not None:
        fate = f"{fate} {note.wire_name}"
    reason = note.reason or ("the API wants to be told" if demanded else None)
    return fate if reason is None else f"{fate}: {reason}"


def _short(value: object) -> str:
    """A value on one line of the table."""
    text = value if isinstance(value, str) else dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _rules(plan: Plan) -> list[tuple[str, str]]:
    """Where each rule comes from that kept something out of the request, or says that it has no effect."""
    named: dict[str, list[str]] = {}
    for note in plan.notes:
        if note.source is not None and note.reason is not None:
            named.setdefault(note.source, []).append(note.parameter)
    return [(", ".join(names), source) for source, names in named.items()]
