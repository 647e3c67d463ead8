"""Where Onym differs from npm's `llm-strings`, found by comparing: hosts, names, ranges, words, outcomes.

Its side is `vectors/llm_strings.json`, Onym's is asked of the provider table and of planned calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, cast

import onym
from docgen.matrix import Cell, lines
from docgen.paths import ROOT
from onym.errors import OnymError
from onym.llm.config import Config
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.uri.parameters import PROVIDER_NAMES, WELL_KNOWN

__all__ = ["Difference", "data", "differences", "text_words"]

#: the draft's own ranges, which no provider's can widen; the whole ones go up from one or from zero
_DRAFT: Mapping[str, tuple[float, float | None]] = {
    "temp": (0, 2),
    "max_tokens": (1, None),
    "top_p": (0, 1),
    "top_k": (0, None),
}


class Difference(NamedTuple):
    """One thing that is otherwise: of which kind, of what, and how both have it."""

    kind: str
    subject: str
    theirs: str
    ours: str


@cache
def data() -> Mapping[str, Any]:
    """What llm-strings says."""
    path = ROOT / "vectors" / "llm_strings.json"
    return cast("Mapping[str, Any]", json.loads(path.read_text(encoding="utf-8")))


def text_words() -> list[str]:
    """Its words for hosts that serve text."""
    return [word for word in data()["hosts"] if word not in data()["media"]]


def differences() -> Iterator[Difference]:
    """Every one, kind by kind."""
    yield from _hosts()
    yield from _names()
    yield from _ranges()
    yield from _aliases()
    yield from _outcomes()


def _hosts() -> Iterator[Difference]:
    table = ProviderTable.builtin().aliases()
    for word in text_words():
        if table[word] != data()["hosts"][word]:
            yield Difference("host", word, data()["hosts"][word], table[word])


def _cells(provider: str) -> Mapping[str, Cell]:
    row = ProviderTable.builtin().find_alias(provider)
    return next(
        each.cells for each in lines() if each.provider.name == getattr(row, "name", "") and not each.api
    )


def _text_providers() -> list[str]:
    return [name for name in data()["providers"] if name not in data()["media"]]


def _names() -> Iterator[Difference]:
    for provider in _text_providers():
        for name, cell in _cells(provider).items():
            if name in ("timeout", "retries", "format", "system"):
                continue  # it has none of them: the examples say what becomes of them
            theirs = data()["names"][provider].get(name)
            if theirs != cell.wire:
                yield Difference("name", f"{provider}.{name}", theirs or "-", cell.wire or cell.fate)


def _ranges() -> Iterator[Difference]:
    for provider in _text_providers():
        cells = _cells(provider)
        for name, theirs in data()["ranges"][provider].items():
            if cells[name].fate == "refused":
                continue
            low, high = _DRAFT[name]
            mine = [_least(low, cells[name].low), high if cells[name].high is None else cells[name].high]
            if mine != theirs:
                yield Difference("range", f"{provider}.{name}", _range(theirs), _range(mine))


def _least(low: float, own: float | None) -> float:
    return low if own is None else max(low, own)


def _range(ends: list[float | None]) -> str:
    low, high = ("…" if end is None else f"{end:g}" for end in ends)
    return f"{low} to {high}"


def _aliases() -> Iterator[Difference]:
    for word, known in data()["aliases"].items():
        well_known = {"temperature": "temp"}.get(known, known)
        if word == well_known:
            continue
        ours = "passes as it is"
        if word in WELL_KNOWN:
            ours = word
        elif word in PROVIDER_NAMES:
            ours += f"; check points at {PROVIDER_NAMES[word]}"
        yield Difference("word", word, known, ours)


def _outcomes() -> Iterator[Difference]:
    for example in data()["examples"]:
        theirs, ours = _theirs(example), _ours(example)
        if theirs != ours:
            yield Difference("outcome", example["name"], theirs, ours)


def _theirs(example: Mapping[str, Any]) -> str:
    row = ProviderTable.builtin().find_alias(example["provider"] or "")
    provider = "no provider" if row is None else row.name
    said = [f"validate: {each}" for each in example["findings"]]
    return _told(example["host"], provider, example["model"], example["params"], said)


def _ours(example: Mapping[str, Any]) -> str:
    try:
        with onym.connect(
            example["uri"],
            policy=Policy.local(),
            config=Config.empty(),
            environ=example.get("environ", {}),
        ) as client:
            plan = client.explain("Hi", stream=None)
    except OnymError as error:
        return f"error {error.code}"
    body = {name: value for name, value in (plan.body or {}).items() if name not in ("model", "messages")}
    host = plan.url.split("/")[2]
    client_side = [
        f"client: {note.parameter}={json.dumps(note.value)}"
        for note in plan.notes
        if note.action == "client" and note.origin == "uri"
    ]
    said = [*client_side, *(f"warning: {text}" for text in plan.warnings)]
    return _told(host, plan.endpoint.provider.name, plan.endpoint.model, body, said)


def _told(host: str, provider: str, model: str, params: Mapping[str, Any], said: list[str]) -> str:
    return "; ".join([f"{host} ({provider})", f"model {model}", json.dumps(params), *said])
