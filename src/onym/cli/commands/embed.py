"""`onym embed`: texts in, vectors out, one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from onym.cli._answers import usage_record
from onym.cli._calls import Call, Connected, call_options, connected
from onym.cli._input import read_lines
from onym.cli._options import json_option, uri_argument
from onym.cli._output import Session
from onym.errors import UsageError

__all__ = ["command"]


@click.command("embed")
@uri_argument
@click.argument("texts", nargs=-1)
@click.option("--batch", type=click.IntRange(1, 2048), default=64, show_default=True, metavar="N",
              help="How many texts go into one request.")  # fmt: skip
@click.option(
    "--dimensions",
    type=click.IntRange(1),
    metavar="N",
    help="The length of the vectors, where one may choose.",
)
@click.option("--usage", is_flag=True, help="Say on standard error how many tokens it took.")
@call_options
@json_option
@click.pass_obj
def command(session: Session, /, texts: tuple[str, ...], **given: Any) -> None:
    """Turn each TEXT, or each line of standard input, into a vector: one JSON object a line,
    {"index": 0, "embedding": [...]}, in order.

    \b
    Examples:
      onym embed llm://openai/text-embedding-3-small "one text" "another"
      onym embed fast < lines.txt > vectors.jsonl
    """
    batch, dimensions, usage = given.pop("batch"), given.pop("dimensions"), given.pop("usage")
    call = Call(**given)
    if not texts and (call.uri == "-" or call.key_stdin):
        raise UsageError("standard input cannot give the texts too", code="usage.command-line")
    with connected(session, call) as to:
        if dimensions is not None:
            to.overrides["dimensions"] = dimensions
        total = _embed(session, to, iter(texts) if texts else read_lines(), batch)
    if usage:
        session.note(f"{total} tokens in", kind="usage")


def _embed(session: Session, to: Connected, texts: Iterator[str], batch: int) -> int:
    """Write a line for each text; returns the tokens that the server counted."""
    index = tokens = 0
    while some := list(islice(texts, batch)):
        found = to.client.embed(some, **to.overrides)
        tokens += usage_record(found.usage)["input_tokens"] or 0
        for vector in found.vectors:
            session.line({"index": index, "embedding": list(vector)})
            index += 1
    if not index:
        raise UsageError("no texts", code="usage.no-texts", hint="write them after the URI, or pipe lines in")
    return tokens
