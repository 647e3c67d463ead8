"""`onym ai tasks`: the long tasks that this computer has begun with `onym ai invoke --async`.

A task is named by its ID or by the first characters of it. The file of tasks contains no results.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import click

from onym.cli._input import OrderedGroup, add_options, pass_session
from onym.cli._output import Session, select_fields
from onym.cli.commands.ai.client import AIOptions, ai_options, deliver_result, open_client, prepare_folder
from onym.common.text import escape_unprintable
from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.ai.records import TaskStatus
    from onym.ai.tasks import TaskHandle

_SECONDS: Final = click.FloatRange(0, min_open=True)
#: the argument of a task, and the options of the client
_task_options = add_options(
    click.argument("task", metavar="ID"),
    click.option("--token-env", metavar="NAME", help="The variable that contains the access token."),
    click.option("--client-id", metavar="ID", help="The client ID that the token was issued to."),
    ai_options,
)
_wait_option = click.option("--wait", type=_SECONDS, metavar="SECONDS", help="Wait at most so long.")


@click.group("tasks", cls=OrderedGroup, short_help="Show, wait for and cancel long tasks.")
def tasks_command() -> None:
    """Show, wait for and cancel the long tasks that this computer has begun.

    The exit code is 15 as long as a task has no result.

    \b
    Examples:
      onym ai invoke ai://factory.example/agent/mover --async -d '{"load": 7}'
      onym ai tasks list
      onym ai tasks wait Zk3v --wait 600
      onym ai tasks result Zk3v --save out/
    """


@tasks_command.command("list")
@pass_session
def list_command(session: Session, /) -> None:
    """List the tasks that this computer has begun, the newest first."""
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
              help="Save the body and receipt.jwt in DIR, for `onym ai verify`.")  # fmt: skip
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
    with _open_task(session, task, token_env, client_id, options) as handle:
        result = handle.result(wait or 0.0)
    deliver_result(session, result, folder, shown=False)


@tasks_command.command("input")
@_task_options
@click.option("-d", "--data", metavar="JSON", required=True, help="The input as a JSON object.")
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
    """Send a task the input that it waits for; `show` prints the form."""
    try:
        values: Any = json.loads(data)
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
    from onym.ai.tasks import TaskFile

    reference = TaskFile().find(task)
    with open_client(session, options, token_variable=token_env, client_id=client_id) as client:
        yield client.task(reference)


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
