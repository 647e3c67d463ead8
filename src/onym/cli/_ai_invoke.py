"""`onym ai invoke`: a resource invoked, its result verified before a byte of it is shown."""

from __future__ import annotations

import json
import sys
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from onym.cli._ai_connect import Options, ai_options, connected, read_uri, uri_argument
from onym.cli._input import stdin_text
from onym.cli._options import json_option
from onym.cli._output import Session, is_terminal
from onym.cli._text import printable
from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.ai.records import Result
    from onym.net.sse import SSEEvent

__all__ = ["command"]

_TEXTS = ("application/json", "application/problem+json", "application/aiip+json")


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
@click.option("--save", type=click.Path(file_okay=False), metavar="DIR",
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
    save: str | None,
    **options: Unpack[Options],
) -> None:
    """Invoke the resource at URI. What comes back is shown only if its receipt holds.

    \b
    Examples:
      onym ai invoke ai://factory.example/model/helper -d '{"prompt": "Say hello."}'
      onym ai invoke 'ai://factory.example/agent/forklift-42?zone=A3' --allow physical
      onym ai invoke ai://factory.example/model/helper -d - --save out/
    """
    session.command = "ai invoke"
    octets, kind = _body(data, body, content_type)
    target = read_uri(session, uri)
    given: dict[str, Any] = {"body": octets, "content_type": kind, "idempotency_key": idempotency_key}
    with connected(options, token_variable=token_env, client_id=client_id, allow=allow) as client:
        if stream:
            with client.stream(target, **given, keep=save is not None) as events:
                for event in events:
                    _show_event(session, event)
                result = events.result
        else:
            result = client.invoke(target, **given)
    if save is not None:
        _save(Path(save), result)
    _show(session, result, shown=stream)


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
        json.loads(text)
    except ValueError as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, JSONDecodeError) else ""
        raise UsageError(
            f"--data is no JSON{where}",
            code="usage.command-line",
            hint='names and texts in double quotes: -d \'{"a": 1, "b": "x"}\'',
        ) from None
    except RecursionError:
        pass  # for the endpoint to judge


def _show_event(session: Session, event: SSEEvent) -> None:
    if session.as_json:
        session.line({"event": event.event, "id": event.id, "data": event.data, "provisional": True})
    else:
        session.say(printable(event.data))


def _show(session: Session, result: Result, *, shown: bool) -> None:
    receipt = result.receipt
    if session.as_json:
        session.record(_record(result))
        return
    if not shown:
        _write(result)
    session.note(
        f"signed by {receipt.issuer} for {receipt.audience}: status {result.status}, receipt {receipt.id}"
        + (", an earlier answer given again" if result.replayed else "")
    )


def _write(result: Result) -> None:
    kind = (result.content_type or "").partition(";")[0].strip().lower()
    if kind in _TEXTS or kind.startswith("text/"):
        text = result.body.decode("utf-8", "backslashreplace")
        sys.stdout.write("\n".join(printable(line) for line in text.split("\n")) + "\n")
        return
    if is_terminal(sys.stdout):
        raise UsageError(
            f"the result is {kind or 'of no known type'}, which a terminal cannot show",
            code="usage.command-line",
            hint="--save DIR, or pipe it",
        )
    sys.stdout.flush()
    sys.stdout.buffer.write(result.body)


def _record(result: Result) -> dict[str, Any]:
    receipt = result.receipt
    return {
        "status": result.status,
        "content_type": result.content_type,
        "body": result.body.decode("utf-8", "backslashreplace"),
        "replayed": result.replayed,
        "receipt": {
            "issuer": receipt.issuer,
            "subject": receipt.subject,
            "audience": receipt.audience,
            "issued": receipt.issued,
            "id": receipt.id,
            "token": result.token,
        },
        "checks": list(result.checks),
    }


def _save(folder: Path, result: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "body").write_bytes(result.body)
    (folder / "receipt.jwt").write_text(result.token + "\n")
