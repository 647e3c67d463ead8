"""`onym redact`: text in, the same text without credentials out, as it flows."""

from __future__ import annotations

import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import click

from onym.cli._options import json_option
from onym.cli._output import Session
from onym.uri.redact import redact_stream

if TYPE_CHECKING:
    from io import BufferedReader

__all__ = ["command"]

_CHUNK = 1 << 16


@click.command("redact")
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True), metavar="[FILE]...")
@json_option
@click.pass_obj
def command(session: Session, files: tuple[str, ...]) -> None:
    """Take credentials out of text: standard input, or FILEs one after another, to standard output.

    Keys in llm:// URIs and keys of the providers' known shapes become ***; every other octet stays as
    it is, line ends and broken UTF-8 included. Works as a filter: lines leave as they come, in bounded
    memory. With --json the text is read whole and comes as {"text": ...}.

    \b
    Examples:
      my-server 2>&1 | onym redact
      onym redact server.log > clean.log
    """
    for name in files or ("-",):
        pieces = redact_stream(_texts(name))
        if session.as_json:
            session.record({"text": "".join(pieces)})
        else:
            _pump(pieces)


def _texts(name: str) -> Iterator[str]:
    """The text of a file as it comes; octets that are not UTF-8 travel as lone surrogates, and back."""
    decoder = getincrementaldecoder("utf-8")("surrogateescape")
    with click.open_file(name, "rb") as opened:
        source = cast("BufferedReader", opened)
        # what is there, without waiting for a whole block: a pipe flows
        while data := source.read1(_CHUNK):
            yield decoder.decode(data)
        yield decoder.decode(b"", final=True)


def _pump(pieces: Iterator[str]) -> None:
    out = sys.stdout.buffer
    for piece in pieces:
        if piece:
            out.write(piece.encode("utf-8", "surrogateescape"))
            out.flush()
