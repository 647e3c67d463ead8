"""`onym ai tasks` and `onym ai approve`: calls that take long, and calls that wait for people.

A task is named by its ID or by the first characters of it. The file of tasks contains no results. Approvals
use the sign-in of `onym ai login GATEWAY --approve`; what is shown is the review of the gateway's page.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import click

from onym.cli import exit_codes
from onym.cli._commands import OrderedGroup, add_options, make_duration_option, pass_session
from onym.cli._errors import complete_commands
from onym.cli._input import read_body, read_file
from onym.cli._output import Session, is_terminal, replace_text_file, select_fields
from onym.cli.commands.ai.client import (
    AIOptions,
    ai_options,
    build_resolver_settings,
    build_transport,
    deliver_result,
    fetch_history,
    open_client,
    prepare_folder,
)
from onym.common.text import escape_unprintable
from onym.errors import AIIPError, CredentialError, DeniedError, UsageError

if TYPE_CHECKING:
    from onym.ai.approvals import ApprovalClient, ApprovalView
    from onym.ai.client import AIClient
    from onym.ai.records import TaskStatus
    from onym.ai.tasks import TaskHandle, TaskReference
    from onym.net.transport import Transport

#: bytes of the input of a task
_MAX_INPUT: Final = 1024 * 1024
#: the argument of a task, and the options of the client
_task_options = add_options(
    click.argument("task", metavar="ID"),
    click.option("--token-env", metavar="VARIABLE", help="The variable that contains the access token."),
    click.option("--client-id", metavar="ID", help="The client ID that the token was issued to."),
    ai_options,
)
_wait_option = make_duration_option("--wait", help="The longest time to wait for the result.")


@click.group("tasks", cls=OrderedGroup, short_help="Show, wait for and cancel long tasks.")
def tasks_command() -> None:
    """Show, wait for and cancel the long tasks that this computer has begun.

    The exit code is 15 as long as a task has no result.

    \b
    Examples:
      onym ai invoke ai://factory.example/agent/mover --async -d '{"load": 7}'
      onym ai tasks list
      onym ai tasks wait Zk3v --wait 10m
      onym ai tasks result Zk3v --save out/
    """


@tasks_command.command("list")
@pass_session
def list_command(session: Session, /) -> None:
    """List the tasks that this computer began, the newest first."""
    from onym.ai.tasks import TaskFile

    tasks = TaskFile().list()[::-1]
    session.print_record({"tasks": [{**task.reference.as_dict(), "started": task.started} for task in tasks]})
    session.print_table(
        [(task.reference.id, _format_time(task.started), task.reference.uri) for task in tasks]
    )
    if not tasks:
        session.print_note("no tasks; onym ai invoke --async begins one")


@tasks_command.command("show")
@_task_options
@pass_session
def show_command(
    session: Session, /, task: str, token_env: str | None, client_id: str | None, **options: Unpack[AIOptions]
) -> None:
    """Show the state and the progress of a task."""
    with _open_task(session, task, token_env, client_id, options) as handle:
        _show_status(session, handle.status())


@tasks_command.command("wait")
@_task_options
@_wait_option
@pass_session
def wait_command(
    session: Session,
    /,
    task: str,
    wait: float | None,
    token_env: str | None,
    client_id: str | None,
    **options: Unpack[AIOptions],
) -> None:
    """Wait until a task has ended or needs input, and show it."""
    with _open_task(session, task, token_env, client_id, options) as handle:
        _show_status(session, handle.wait(wait))


@tasks_command.command("events")
@_task_options
@pass_session
def events_command(
    session: Session, /, task: str, token_env: str | None, client_id: str | None, **options: Unpack[AIOptions]
) -> None:
    """Print the events of a task as they come. The end of the command makes them final."""
    with _open_task(session, task, token_env, client_id, options) as handle:
        for event in handle.events():
            if session.as_json:
                session.print_json_line({**select_fields(event, "seq", "type", "data"), "provisional": True})
            else:
                data = escape_unprintable(json.dumps(event.data, ensure_ascii=False))
                session.print_line(f"{event.seq:>4}  {event.type:<9} {data}")


@tasks_command.command("result")
@_task_options
@_wait_option
@click.option("--save", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Save the result, its receipt and keys in DIR, for `onym ai verify`.")  # fmt: skip
@pass_session
def result_command(
    session: Session,
    /,
    task: str,
    wait: float | None,
    folder: Path | None,
    token_env: str | None,
    client_id: str | None,
    **options: Unpack[AIOptions],
) -> None:
    """Print the verified result of a task. Without --wait, do not wait for it."""
    if folder is not None:
        prepare_folder(folder)
    with _open_client(session, task, token_env, client_id, options) as (client, reference):
        result = client.task(reference).result(wait or 0.0)
        history = fetch_history(session, client, folder, result)
    deliver_result(session, result, folder, history, shown=False)


@tasks_command.command("input")
@_task_options
@click.option("-d", "--data", metavar="DATA", required=True,
              help="The input: a JSON object, @FILE, or - for standard input.")  # fmt: skip
@pass_session
def input_command(
    session: Session,
    /,
    task: str,
    data: str,
    token_env: str | None,
    client_id: str | None,
    **options: Unpack[AIOptions],
) -> None:
    """Send a task the input that it waits for.

    `onym ai tasks show` prints the form.
    """
    try:
        values: Any = json.loads(read_body(data, _MAX_INPUT))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UsageError("--data is not a JSON object", code="usage.command-line")
    with _open_task(session, task, token_env, client_id, options) as handle:
        _show_status(session, handle.send_input(values))


@tasks_command.command("cancel")
@_task_options
@pass_session
def cancel_command(
    session: Session, /, task: str, token_env: str | None, client_id: str | None, **options: Unpack[AIOptions]
) -> None:
    """Ask the endpoint to cancel a task. It is cancelled when its function has ended."""
    with _open_task(session, task, token_env, client_id, options) as handle:
        _show_status(session, handle.cancel())


@contextmanager
def _open_task(
    session: Session, task: str, token_env: str | None, client_id: str | None, options: AIOptions
) -> Iterator[TaskHandle]:
    with _open_client(session, task, token_env, client_id, options) as (client, reference):
        yield client.task(reference)


@contextmanager
def _open_client(
    session: Session, task: str, token_env: str | None, client_id: str | None, options: AIOptions
) -> Iterator[tuple[AIClient, TaskReference]]:
    from onym.ai.tasks import TaskFile

    reference = TaskFile().find(task)
    with open_client(session, options, token_variable=token_env, client_id=client_id) as client:
        yield client, reference


def _show_status(session: Session, status: TaskStatus) -> None:
    progress = status.progress
    names = ("id", "state", "target", "created", "updated", "expires", "inputs", "error", "canceling")
    done = None if progress is None else select_fields(progress, "done", "total", "note")
    session.print_record({**select_fields(status, *names), "progress": done})
    rows = [
        ("id", status.id),
        ("state", f"{status.state}{' (to be cancelled)' if status.canceling else ''}"),
        ("resource", status.target),
        ("begun", _format_time(status.created)),
    ]
    if progress is not None:
        total = "" if progress.total is None else f" of {progress.total:g}"
        rows.append(("progress", f"{progress.done:g}{total} {escape_unprintable(progress.note)}".strip()))
    if status.inputs is not None:
        rows.append(("question", escape_unprintable(str(status.inputs.get("description", "")))))
        rows.append(("input", escape_unprintable(json.dumps(status.inputs.get("properties", {})))))
    if status.error is not None:
        rows.append(("error", escape_unprintable(str(status.error.get("detail", "")))))
    session.print_table(rows, styles=("name",))


def _format_time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC).isoformat()


#: bytes of a saved call: a body of 64 KiB in base64 and a challenge
_MAX_REQUEST: Final = 128 * 1024
#: seconds between two looks
_POLL_SECONDS: Final = 2.0
_RULES: Final = {
    "person": "a person",
    "other": "a person who did not ask",
    "two": "two persons, neither of whom asked",
}
_CHANGES: Final = {"new": "new: ", "changed": "changed: ", "gone": "not sent any more"}

_gateway_options = add_options(
    click.option(
        "--gateway", metavar="URL", help="The gateway. Default: the only one that you are signed in at."
    ),
    ai_options,
)
_approval_options = add_options(click.argument("approval", metavar="ID"), _gateway_options)


@click.group("approve", cls=OrderedGroup, short_help="Show and decide the calls that wait for people.")
def approve_command() -> None:
    """Show and decide the calls that wait for the approval of people at a gateway.

    Sign in with `onym ai login GATEWAY --approve` first. A decision needs a sign-in of the last five minutes.

    \b
    Examples:
      onym ai login https://gateway.example --approve
      onym ai approve list
      onym ai approve yes 2NtOeG4qXWqAcqRJgBVjU0Vt
      onym ai approve ask out/approval-request.json
    """


@approve_command.command("list")
@_gateway_options
@pass_session
def list_approvals_command(session: Session, /, gateway: str | None, **options: Unpack[AIOptions]) -> None:
    """List the calls that wait, the oldest first.

    The list has the calls that you may see.
    """
    with _open_approvals(session, gateway, options) as desk:
        rows = desk.run(desk.client.list_waiting())
    names = ("id", "target", "effects", "requester", "created", "expires", "own")
    session.print_record({"approvals": [select_fields(row, *names) for row in rows]})
    session.print_table(
        [(row.id, row.target, row.effects, "you" if row.own else row.requester, row.expires) for row in rows],
        styles=("name",),
    )
    if not rows:
        session.print_note("no call waits")


@approve_command.command("show")
@_approval_options
@pass_session
def show_approval_command(
    session: Session, /, approval: str, gateway: str | None, **options: Unpack[AIOptions]
) -> None:
    """Show a call: its effects, its input, who asks, its state."""
    with _open_approvals(session, gateway, options) as desk:
        _show_call(session, desk.run(desk.client.get(approval)))


@approve_command.command("yes", short_help="Show a call, and approve it.")
@_approval_options
@click.option("--sign-in", "login", metavar="NAME", help="Sign in anew on your own device, as NAME (CIBA).")
@pass_session
def yes_command(
    session: Session, /, approval: str, gateway: str | None, login: str | None, **options: Unpack[AIOptions]
) -> None:
    """Show a call, and approve it after you have typed the first eight characters of its digest.

    It needs a terminal. The person who asked sends the call; you do not. Exit code 5: nothing was approved,
    because there is no terminal, the digest is another one, or you may not decide.

    With --sign-in, the authorization server asks you to sign in on your own device, which shows the beginning
    of the digest. The decision is made with that sign-in, which is not kept.
    """
    import msgspec

    with _open_approvals(session, gateway, options) as desk:
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise DeniedError(
                "a person at a terminal must approve a call, and this is not a terminal",
                hint=f"Run it in a terminal, or open {desk.client.gateway}/approvals/{approval}",
            )
        seen = desk.run(desk.client.get(approval))
        _show_to_person(session, seen)
        if not seen.may_decide:
            raise DeniedError(
                f"you cannot decide about this call: its state is {seen.state}, and the rule is {seen.rule}",
                hint="List the calls that wait: onym ai approve list",
            )
        _require_digest(session, seen)
        client = desk.client if login is None else _sign_in_elsewhere(session, desk, seen, login)
        done = desk.run(client.decide(approval, "approve", shown=seen.shown))
    session.print_record(msgspec.to_builtins(done))
    missing = f"{done.missing} more must approve it" if done.missing else "the person who asked can send it"
    session.print_note(f"you have approved the call; {missing}")


@approve_command.command("no")
@_approval_options
@pass_session
def no_command(session: Session, /, approval: str, gateway: str | None, **options: Unpack[AIOptions]) -> None:
    """Deny a call. One denial is final, whatever the rule."""
    import msgspec

    with _open_approvals(session, gateway, options) as desk:
        done = desk.run(desk.client.decide(approval, "deny"))
    session.print_record(msgspec.to_builtins(done))
    session.print_note("you have denied the call")


@approve_command.command("ask", short_help="Ask for the approval of a call that was saved.")
@click.argument("file", metavar="FILE")
@_gateway_options
@pass_session
def ask_command(session: Session, /, file: str, gateway: str | None, **options: Unpack[AIOptions]) -> None:
    """Ask for the approval of a call, from the file that `onym ai invoke --save DIR` wrote.

    FILE is DIR/approval-request.json; - reads standard input. The output is the ID of the approval.
    """
    import msgspec

    request = read_file(file, _MAX_REQUEST)
    with _open_approvals(session, gateway, options) as desk:
        asked = desk.run(desk.client.ask(request))
        url = desk.client.gateway
    session.print_record(msgspec.to_builtins(asked))
    session.print_line(asked.id)
    session.print_note(f"approvers see the call at {url}/approvals/{asked.id}")
    command = f"onym ai approve evidence {asked.id} --wait 10m"
    session.print_note(f"get the evidence with: {complete_commands(session, command)}")


@approve_command.command("evidence", short_help="Print the evidence that people approved a call.")
@_approval_options
@make_duration_option("--wait", help="The longest time to wait for the decision.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the evidence to FILE.")  # fmt: skip
@pass_session
def evidence_command(
    session: Session,
    /,
    approval: str,
    gateway: str | None,
    wait: float | None,
    output: Path | None,
    **options: Unpack[AIOptions],
) -> None:
    """Print the evidence that people approved a call, for `onym ai invoke --approval`.

    You have asked for it with `ask`. It is valid for five minutes. Exit code 14: the call waits for people.
    Exit code 13: it was denied or withdrawn, or has expired.
    """
    with _open_approvals(session, gateway, options) as desk:
        view = desk.wait_for_decision(approval, wait or 0.0)
        state = {"id": view.id, "state": view.state, "idempotency_key": view.idempotency_key}
        if view.state == "waiting":
            session.print_record({**state, "evidence": None})
            session.print_note("the call waits for people")
            raise SystemExit(exit_codes.APPROVAL)
        if not view.has_evidence:
            raise AIIPError(
                f"there is no evidence for this call: it is {view.state}",
                code="aiip.approval-mismatch",
                hint="Send the call again with a new idempotency key, and ask for another approval.",
            )
        evidence = desk.run(desk.client.fetch_evidence(approval))
    session.print_record({**state, "evidence": evidence})
    if output is None:
        session.print_line(evidence)
    else:
        with replace_text_file(output) as write:
            write(evidence + "\n")
    session.print_note(f"send the call with --idempotency-key {view.idempotency_key} and --approval FILE")


class _Approvals:
    """The approvals of a gateway, over one transport."""

    def __init__(self, client: ApprovalClient, wire: Transport) -> None:
        self.client = client
        self._wire = wire

    def run(self, flow: Any) -> Any:
        """Return the result of a request. Raises OnymError."""
        from onym.net.transport import run_flow

        return run_flow(flow, self._wire)

    def wait_for_decision(self, approval: str, seconds: float) -> ApprovalView:
        """Return the call once it does not wait any more, or as it is after so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            view: ApprovalView = self.run(self.client.get(approval))
            left = deadline - time.monotonic()
            if view.state != "waiting" or left <= 0:
                return view
            time.sleep(min(_POLL_SECONDS, left))


@contextmanager
def _open_approvals(session: Session, gateway: str | None, options: AIOptions) -> Iterator[_Approvals]:
    from onym.ai.approvals import ApprovalClient
    from onym.ai.credentials import StoredCredentials
    from onym.ai.sign_ins import open_sign_ins
    from onym.uri.log_filter import install_logging_filter

    install_logging_filter()
    store, settings = open_sign_ins(os.environ), build_resolver_settings(options)
    name = _choose_gateway([name for name in store.list_names() if "://" in name], gateway)
    client = ApprovalClient(name, StoredCredentials(store, settings=settings), settings)
    with build_transport(session, options) as wire:
        yield _Approvals(client, wire)


def _sign_in_elsewhere(session: Session, desk: _Approvals, seen: ApprovalView, login: str) -> ApprovalClient:
    """Return a client with a new sign-in of the same person, made on the person's own device (CIBA)."""
    from dataclasses import replace

    from onym.ai.approvals import APPROVE_SCOPE, OneGatewayToken
    from onym.ai.credentials import Credential
    from onym.ai.oauth import OAuthClient, Target
    from onym.ai.records import Level
    from onym.ai.sign_ins import open_sign_ins
    from onym.sign.dpop import generate_dpop_key
    from onym.sign.jws import read_unverified_claims

    client, digest = desk.client, seen.review.digest_groups[0]
    sign_in = open_sign_ins(os.environ).load(client.gateway)
    if sign_in is None:
        raise CredentialError(f"there is no sign-in for {client.gateway}", code="credential.missing")
    key = generate_dpop_key()
    server = OAuthClient(registration=sign_in.registration, settings=client.settings, dpop_key=key)
    scopes = tuple(dict.fromkeys([*sign_in.scopes, APPROVE_SCOPE]))
    target = Target(resource=client.gateway, scopes=scopes, dpop=Level.REQUIRED)
    begun = desk.run(server.begin_backchannel_flow(target, login_hint=login, binding_message=digest))
    session.print_note(f"sign in on your own device; it must show {digest}")
    grant = desk.run(server.finish_backchannel_flow(begun))
    # the gateway verifies the token; here it only must not decide in the name of somebody else
    subjects = [(read_unverified_claims(token) or {}).get("sub") for token in (sign_in.token, grant.token)]
    if subjects[0] is None or subjects[0] != subjects[1]:
        raise DeniedError(
            "another person signed in on the other device, so nothing was approved",
            hint="Sign in as the person who is signed in here: onym ai whoami",
        )
    credential = Credential(
        token=grant.token,
        client_id=sign_in.registration.client_id,
        dpop_key=grant.dpop_key,
        expires=grant.expires,
    )
    return replace(client, credentials=OneGatewayToken(client.gateway, credential))


def _choose_gateway(signed_in: list[str], named: str | None) -> str:
    """Return the gateway's URL: the named one, or the only one with a sign-in."""
    if named is not None:
        if not named.startswith("https://"):
            raise UsageError(
                f"--gateway {named} is not a URL with https://",
                code="usage.command-line",
                hint="Write its origin, as in --gateway https://gateway.example",
            )
        return named.rstrip("/")
    if not signed_in:
        raise CredentialError(
            "you are not signed in at a gateway",
            code="credential.missing",
            hint="Sign in: onym ai login https://GATEWAY --issuer URL --client-id ID --approve",
        )
    if len(signed_in) > 1:
        raise UsageError(
            f"you are signed in at {len(signed_in)} gateways",
            code="usage.command-line",
            hint=f"Choose one of them: --gateway {signed_in[0]}",
        )
    return signed_in[0]


def _require_digest(session: Session, seen: ApprovalView) -> None:
    """Ask for the beginning of the digest. Raises DeniedError for another one."""
    session.print_error("Compare the digest with that of the person who asks. Nothing is sent by you.")
    sys.stderr.write("Type the first eight characters of the digest to approve the call: ")
    sys.stderr.flush()
    typed = sys.stdin.readline().strip().lower()
    if typed != seen.review.digest_groups[0]:
        raise DeniedError(
            "what you typed is not the beginning of the digest, so nothing was approved",
            hint=f"To deny the call: onym ai approve no {seen.id}",
        )


def _show_call(session: Session, view: ApprovalView) -> None:
    """Show a call on standard output."""
    import msgspec

    session.print_record(msgspec.to_builtins(view))
    for warning in view.review.warnings:
        session.print_note(warning, kind="warning")
    session.print_table(_build_rows(view), styles=("name",))


def _show_to_person(session: Session, view: ApprovalView) -> None:
    """Show a call on the terminal, wherever standard output goes."""
    for warning in view.review.warnings:
        session.print_note(warning, kind="warning")
    for name, value in _build_rows(view):
        session.print_error(f"{session.paint(name, 'name', sys.stderr)}: {escape_unprintable(value)}")


def _build_rows(view: ApprovalView) -> list[tuple[str, str]]:
    """Return everything that the gateway's page shows, as names and values."""
    review, rule = view.review, _RULES.get(view.rule, view.rule)
    rows = [
        ("resource", view.target),
        ("name as written", review.unicode),
        ("authority", f"{review.authority} ({review.proof})"),
        *([("title, by the authority", review.title)] if review.title else []),
        ("effects", review.effects),
        ("asked by", f"{review.person} (you)" if view.own else review.person),
        ("program", review.client),
        ("must approve", f"{rule}; {view.missing} missing" if view.missing else rule),
        ("reason, by the authority", review.reason),
        ("state", f"{view.state}; asked at {view.created}, ends at {view.expires}"),
        ("digest", " ".join(review.digest_groups)),
    ]
    for row in review.rows:
        value = "" if row.change == "gone" else row.value
        before = f" (before: {row.before})" if row.before and not row.hidden else ""
        label = row.label if row.path.endswith(row.label) else f"{row.label} ({row.path})"
        rows.append((f"input: {label}", f"{_CHANGES.get(row.change, '')}{value}{before}"))
    if review.omitted:
        rows.append(("input", f"{review.omitted} more members are not shown"))
    return rows
