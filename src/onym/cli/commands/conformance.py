"""`onym conformance`: JSON Lines in, JSON Lines out, so that one set of vectors serves any implementation."""

from __future__ import annotations

import sys
from typing import IO

import click

from onym.cli._conformance import MAX_LINE, answer, refusal
from onym.cli._options import json_option
from onym.cli._output import dumps
from onym.errors import ConformanceError

__all__ = ["command", "serve"]

_CHUNK = 1 << 16


@click.command("conformance")
@json_option
def command() -> None:
    """Answer conformance questions: one JSON object a line on standard input, one a line on standard output.

    \b
    Operations: uri.parse, uri.resolve, uri.normalize, llm.parse, ai.parse, redact, net.decide.
    A question that cannot be read gets {"ok": false, "error": {"code": "conformance.bad-question", ...}}
    and the driver goes on. Answers come in order, each repeats `id`, each is flushed. The end of the
    input is exit code 0. Nothing touches the network.

    \b
    Example:
      echo '{"id":1,"op":"llm.parse","text":"llm://openai/gpt-5?temp=0.2"}' | onym conformance
    """
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer every line of `questions` until it ends."""
    while line := questions.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            _skip(questions)
        answers.write(_encode(line) + b"\n")
        answers.flush()


def _encode(line: bytes) -> bytes:
    try:
        return dumps(answer(line)).encode("ascii")
    except (RecursionError, ValueError):
        return dumps(refusal(ConformanceError("the answer cannot be written as JSON"))).encode("ascii")


def _skip(questions: IO[bytes]) -> None:
    """Read past the rest of a line that is too long, in bounded memory."""
    while (piece := questions.readline(_CHUNK)) and not piece.endswith(b"\n"):
        pass
