"""`onym normalize`: one canonical spelling, aliases replaced by the real host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onym.cli._input import subjects, to_uri
from onym.cli._options import URI, json_option
from onym.cli._output import Session
from onym.cli._text import printable

if TYPE_CHECKING:
    from onym.uri.llm import LLMURI

__all__ = ["command"]


@click.command("normalize")
@click.argument("uris", nargs=-1, required=True, type=URI, metavar="URI...")
@click.option("--generic", is_flag=True, help="By RFC 3986 alone, for a URI of any scheme.")
@click.option("--reveal", is_flag=True, help="Write the key instead of ***.")
@json_option
@click.pass_obj
def command(session: Session, uris: tuple[str, ...], generic: bool, reveal: bool) -> None:
    """Write each URI in its one canonical spelling: equal endpoints become equal texts.

    Aliases become real hosts (openai, api.openai.com), case and percent-encoding are settled, default
    ports go. - stands for the lines of standard input. With --json, one object a line.

    \b
    Examples:
      onym normalize 'LLM://OpenAI/gpt%2d5?temp=0.70'
      onym normalize ai://Factory.example:443/agent/x
      onym normalize --generic 'HTTP://Example.ORG/%7ea/./b'
    """
    for subject in subjects(session, uris):
        if generic:
            text = _generic(subject.text, reveal)
        elif subject.text[:3].lower() == "ai:":
            text = _ai(subject.text)
        else:
            text = _llm(to_uri(subject), reveal)
        if session.as_json:
            session.line({"uri": text})
        else:
            session.say(printable(text))


def _llm(uri: LLMURI, reveal: bool) -> str:
    from onym.llm.aliases import normalize

    return normalize(uri).render(reveal=reveal)


def _ai(text: str) -> str:
    from onym.uri.ai import AIURI

    return str(AIURI.parse(text).target)


def _generic(text: str, reveal: bool) -> str:
    from onym.cli._generic import masked_text
    from onym.uri import generic

    uri = generic.URI.parse(text).normalize()
    return str(uri) if reveal else masked_text(uri)
