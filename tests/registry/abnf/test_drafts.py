"""Both drafts, from their own texts, where these lie beside the checkout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onym.registry.abnf import (
    Outcome,
    RemarkCode,
    decide_inclusion,
    lint,
    match,
    parse_blocks,
    parse_grammar,
    resolve,
)
from onym.registry.abnf._loader import load_library
from onym.registry.documents.types import Block
from support import linear_enough

SPEC = Path(__file__).resolve().parents[4] / "shared" / "spec"


def lines(name: str) -> list[str]:
    path = SPEC / name
    if not path.is_file():
        pytest.skip(f"the specifications are not beside this checkout: {name}")
    return path.read_text(encoding="utf-8").split("\n")


def block(text: list[str], first: str, last: str, section: str, *, after: int = 0) -> Block:
    """The lines from the first that begins so to the last that does."""
    begin = next(at for at, row in enumerate(text) if at >= after and row.lstrip().startswith(first))
    end = next(at for at, row in enumerate(text) if at >= begin and row.lstrip().startswith(last))
    return Block(text="\n".join(text[begin : end + 1]), line=begin + 1, section=section)


def llm_blocks() -> list[Block]:
    text = lines("draft-levy-llm-uri-scheme-00.txt")
    return [
        block(text, 'llm-URI = "llm:" "//" authority', "[", "3.1"),
        block(text, 'llm-URI = "llm:" "//" llm-authority', "sub-path", "3.2"),
        block(text, "authority =", "authority =", "4.2"),
        block(text, "userinfo =", "api-key =", "4.2.1"),
    ]


def test_the_llm_draft_is_fragment_only_and_its_second_definition_is_in_force() -> None:
    grammar = resolve(parse_blocks(llm_blocks()))
    assert grammar.start("llm") == "llm-URI"
    assert grammar.sections == {"llm-uri": ("3.2", "3.1")}
    assert decide_inclusion(grammar, "llm-URI").outcome is Outcome.FRAGMENT_ONLY
    assert decide_inclusion(grammar, "llm-URI").witness == "llm:///a#"
    looser = resolve(parse_blocks([each for each in llm_blocks() if each.section != "3.2"]))
    assert decide_inclusion(looser, "llm-URI").witness == "llm://#"
    assert match(grammar, "llm-URI", "llm://my-app:sk-1@api.openai.com/gpt-5?temp=0.7")
    codes = {(each.code, each.rule) for each in lint(grammar)}
    assert {
        (RemarkCode.REPEATED, "llm-URI"),
        (RemarkCode.REDEFINED, "userinfo"),
        (RemarkCode.REDUNDANT, "model-id"),
    } <= codes


def test_the_llm_draft_is_decided_soon() -> None:
    text = "\n".join(each.text for each in llm_blocks())
    with linear_enough(10):
        decide_inclusion(resolve(parse_grammar(text)), "llm-URI")


def test_the_ai_draft_is_fragment_only() -> None:
    text = lines("draft-sogomonian-ai-uri-scheme-01.txt")
    grammar = resolve(parse_blocks([block(text, "ai-uri =", "ai-uri =", "3")]))
    verdict = decide_inclusion(grammar, grammar.start("ai") or "")
    assert (verdict.outcome, verdict.witness) == (Outcome.FRAGMENT_ONLY, "ai:#")


@pytest.mark.parametrize(
    ("name", "heading", "following", "rfc"),
    [
        ("rfc/rfc3986.txt", "Appendix A.  Collected ABNF", "Appendix B.", "3986"),
        ("rfc/rfc5234.txt", "B.1.  Core Rules", "B.2.", "5234"),
        ("rfc/rfc3987.txt", "2.2.  ABNF for IRI", "   Some productions are", "3987"),
    ],
)
def test_the_shipped_library_is_what_the_rfc_says(name: str, heading: str, following: str, rfc: str) -> None:
    text = "\n".join(lines(name))
    begin = text.rindex(f"\n{heading}")
    part = text[text.index("=", begin) - 40 : text.index(f"\n{following}", begin)]
    part = part[part.index("\n") :]
    published = parse_blocks([Block(text=part, line=1)])
    shipped = load_library(rfc)
    assert shipped.rules.keys() <= published.rules.keys()
    for key, rule in shipped.rules.items():
        assert rule.node == published.rules[key].node, key


def test_media_types_and_tokens_are_what_their_rfcs_say() -> None:
    for name, rfc in (("rfc/rfc6838.txt", "6838"), ("rfc/rfc9110.txt", "9110"), ("rfc/rfc8288.txt", "8288")):
        whole = "\n".join(lines(name))
        for rule in load_library(rfc).rules.values():
            if rule.key in ("loalpha", "restricted-name-chars"):
                continue  # not a rule of that RFC; and one that has its alternatives in three steps
            found = re.search(rf"^ +{re.escape(rule.name)} +=[^/]?.*(?:\n +/.*)*", whole, re.MULTILINE)
            assert found, rule.name
            assert parse_grammar(found[0]).rules[rule.key].node == rule.node, rule.name
