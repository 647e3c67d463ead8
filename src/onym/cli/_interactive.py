"""A conversation at the terminal: lines in, streamed answers out, history kept for this user alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from onym.cli._answers import stream_text, tell, to_screen
from onym.cli._errors import error_block
from onym.cli._output import Session, is_terminal
from onym.cli._text import printable
from onym.errors import OnymError
from onym.llm.types import Finish, Message

if TYPE_CHECKING:
    from onym.llm.client import Client

__all__ = ["Conversation", "history_path", "line_history"]

_HELP = """\
  /reset          forget what was said
  /system TEXT    set the system prompt and start again; without TEXT, show it
  /usage          show or hide token counts
  /help           this list
  /exit           leave (Ctrl-D too)
Ctrl-C stops an answer, or clears the line."""
_KEPT_LINES = 1000


class Conversation:
    """Turns with one endpoint. Each `turn` sends all that was said before it.

    A turn that fails or is stopped is forgotten, so that the next one starts from a whole state.
    """

    def __init__(self, client: Client, session: Session, overrides: dict[str, Any], *, usage: bool) -> None:
        self._client = client
        self._session = session
        self._overrides = overrides
        self._usage = usage
        self._said: list[Message] = []

    def run(self) -> None:
        """Read lines until the end of input or /exit."""
        person = is_terminal(sys.stdin)
        if person:
            self._session.complain("/help lists the commands, Ctrl-D leaves")
        while (line := self._ask(person)) is not None:
            if line.startswith("/"):
                if not self._obey(line):
                    return
            elif line.strip():
                self._turn(line)

    def _ask(self, person: bool) -> str | None:
        try:
            return input("> " if person else "")
        except EOFError:
            if person:
                to_screen("\n")
            return None
        except KeyboardInterrupt:
            if not person:
                raise
            to_screen("\n")
            return ""

    def _obey(self, line: str) -> bool:
        """Do what a /command says; False to leave."""
        word, _, rest = line.partition(" ")
        if word in {"/exit", "/quit"}:
            return False
        if word == "/reset":
            self._said.clear()
        elif word == "/system":
            self._system(rest.strip())
        elif word == "/usage":
            self._usage = not self._usage
        else:
            self._session.complain(_HELP if word == "/help" else f"no such command; {_HELP.lstrip()}")
        return True

    def _system(self, text: str) -> None:
        if text:
            self._overrides["system"] = text
            self._said.clear()
        else:
            self._session.complain(printable(str(self._overrides.get("system", "(none)"))))

    def _turn(self, line: str) -> None:
        question = Message(role="user", content=line)
        began = monotonic()
        try:
            with self._client.stream([*self._said, question], **self._overrides) as stream:
                ends: list[Finish] = []
                text = stream_text(_noting(stream, ends), to_screen)
        except OnymError as error:
            self._session.complain(error_block(self._session, error))
        except KeyboardInterrupt:
            to_screen("\n")
            self._session.note("stopped; this turn is forgotten")
        else:
            self._said += [question, Message(role="assistant", content=text)]
            for end in ends:
                tell(self._session, end, began, usage=self._usage)


def _noting(events: Any, ends: list[Finish]) -> Iterator[Any]:
    for event in events:
        if isinstance(event, Finish):
            ends.append(event)
        yield event


def history_path() -> Path:
    """Where the lines of conversations are kept: this user's state folder."""
    from platformdirs import user_state_path

    return user_state_path("onym", appauthor=False) / "history"


def _readline() -> Any:
    """The module for line editing, None where this Python has none."""
    try:
        import readline
    except ImportError:
        return None
    return readline


@contextmanager
def line_history(session: Session, path: Path) -> Iterator[None]:
    """Line editing with a history in `path`, which nobody else can read. Keys in it are masked.

    Where there is no readline, or no terminal, nothing is kept.
    """
    readline = _readline() if is_terminal(sys.stdin) else None
    if readline is None:
        yield
        return
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            readline.add_history(line)
    try:
        yield
    finally:
        count = readline.get_current_history_length()
        lines = [readline.get_history_item(at) for at in range(1, count + 1)]
        with suppress(OSError):
            _keep(path, [session.masked(line) for line in lines if line.strip()][-_KEPT_LINES:])


def _keep(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:  # noqa: PTH123 - the mode
        path.chmod(0o600)
        out.writelines(line + "\n" for line in lines)
