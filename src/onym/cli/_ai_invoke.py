"""`onym ai invoke`: a resource invoked, its result verified before a byte of it is shown."""

from __future__ import annotations

import json
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import click

from onym.cli import exit_codes
from onym.cli._ai_connect import Options, ai_options, connected, read_uri, uri_argument
from onym.cli._ai_result import prepare, record_of, save, write
from onym.cli._errors import failure_record
from onym.cli._input import stdin_text
from onym.cli._options import json_option
from onym.cli._output import Session
from onym.cli._text import printable
from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.ai.records import Result
    from onym.net.sse import SSEEvent

__all__ = ["command"]


@click.command("invoke", short_help="Invoke a resource; its result is verified before it is shown.")
@uri_argument
@click.option("-d", "--data", metavar="JSON", help="The input, as JSON; - reads it from standard input.")
@click.option(
    "--body", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="A file as the body."
)
@click.option("--type", "content_type", metavar="TYPE", help="The media type of --body.")
@click.option("--stream", is_flag=True, help="Show events as they come; they are provisional until the end.")
@click.option("--allow", type=click.Choice(["financial", "physical"]), multiple=True,
              help="Allow such effects, for this call.")  # fmt: skip
@click.option("--idempotency-key", metavar="KEY", help="The key of an earlier try, to not do it twice.")
@click.option("--token-env", metavar="NAME", help="The variable that holds the access token.")
@click.option("--client-id", metavar="ID", help="The client that the token was given to.")
@click.option("--save", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Keep body and receipt.jwt there, for `onym ai verify`.")  # fmt: skip
@ai_options
@json_option
@click.pass_obj
def command(
    session: Session,
    /,
    uri: str,
    data: str | None,
    body: str | None,
    content_type: str | None,
    stream: bool,
    allow: tuple[str, ...],
    idempotency_key: str | None,
    token_env: str | None,
    client_id: str | None,
    folder: Path | None,
    **options: Unpack[Options],
) -> None:
    """Invoke the resource at URI. What comes back is shown only if its receipt holds.

    A pipe gets the result octet by octet; a terminal gets text alone, with control characters as escapes.
    With --json it is `body`, or `body_base64` where it is not UTF-8.

    \b
    Examples:
      onym ai invoke ai://factory.example/model/helper -d '{"prompt": "Say hello."}'
      onym ai invoke 'ai://factory.example/agent/forklift-42?zone=A3' --allow physical
      onym ai invoke ai://factory.example/model/helper -d - --save out/
    """
    session.command = "ai invoke"
    from onym.ai.exchange import is_events  # late: the JOSE library

    octets, kind = _body(data, body, content_type)
    target = read_uri(session, uri)
    given: dict[str, Any] = {"body": octets, "content_type": kind, "idempotency_key": idempotency_key}
    if folder is not None:
        prepare(folder)  # now, and not when all has been done
    with connected(options, token_variable=token_env, client_id=client_id, allow=allow) as client:
        if stream:
            with client.stream(target, **given, keep=folder is not None) as events:
                for event in events:
                    _show_event(session, event)
                result = events.result
        else:
            result = client.invoke(target, **given)
    _deliver(session, result, folder, shown=stream and is_events(result.content_type))


def _body(data: str | None, body: str | None, content_type: str | None) -> tuple[bytes | None, str | None]:
    if data is not None and body is not None:
        raise UsageError("--data or --body, not both", code="usage.command-line")
    if data is not None:
        text = stdin_text() if data == "-" else data
        if content_type is None:
            _check_json(text)
        return text.encode("utf-8", "surrogateescape"), content_type or "application/json"
    if body is not None:
        if content_type is None:
            raise UsageError(
                "--body needs its media type", code="usage.command-line", hint="--type text/plain"
            )
        return Path(body).read_bytes(), content_type
    return None, None


def _check_json(text: str) -> None:
    """Raises UsageError with the place, which an endpoint does not tell."""
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, JSONDecodeError) else ""
        raise UsageError(
            f"--data is no JSON{where}",
            code="usage.command-line",
            hint='names and texts in double quotes: -d \'{"a": 1, "b": "x"}\'',
        ) from None
    except RecursionError:
        pass  # for the endpoint to judge


def _refuse_constant(name: str) -> NoReturn:
    """Python reads and writes what JSON does not have (RFC 8259 6)."""
    raise UsageError(
        f"--data holds {name}, which JSON does not have",
        code="usage.command-line",
        hint="null, or a text, where the resource takes one",
    )


def _show_event(session: Session, event: SSEEvent) -> None:
    if session.as_json:
        session.line({"event": event.event, "id": event.id, "data": event.data, "provisional": True})
    else:
        session.say(printable(event.data))


def _deliver(session: Session, result: Result, folder: Path | None, *, shown: bool) -> None:
    """Save it and show it; what was done is shown whatever becomes of the files. Raises OSError."""
    failed: OSError | None = None
    if folder is not None:
        try:
            save(folder, result)
        except OSError as error:
            failed = error
    if session.as_json:
        session.record(record_of(result) | ({} if failed is None else failure_record(session, failed)))
        if failed is not None:
            raise SystemExit(exit_codes.INPUT_OUTPUT)
        return
    if not shown:
        write(session, result)
    receipt = result.receipt
    session.note(
        f"signed by {receipt.issuer} for {receipt.audience}: status {result.status}, receipt {receipt.id}"
        + (", an earlier answer given again" if result.replayed else "")
    )
    if failed is not None:
        raise failed
