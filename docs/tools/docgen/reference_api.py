"""docs/reference/api.md: every public name of `onym`, its signature and its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from enum import Enum
from types import ModuleType
from typing import Any, get_origin

import onym
from docgen.text import GENERATED, paragraphs
from onym import testing
from onym.ai.client import AIStream, AsyncAIStream
from onym.llm.flow import AsyncStream, Stream
from onym.testing.fake_provider import FakeProvider

__all__ = ["api_page", "entry"]


def api_page() -> str:
    """The page."""
    named = {name: getattr(onym, name) for name in onym.__all__}
    out = [
        GENERATED,
        "# Python\n",
        (
            "These are the public names of `onym`. The import is cheap, because each name loads when you "
            "first use it. Exceptions are in `onym.errors`: [Error codes](errors.md).\n"
        ),
    ]
    for name, value in sorted(named.items(), key=lambda each: each[0].lower()):
        if not isinstance(value, ModuleType | str):
            out += entry(name, value)
    out += ["## What `stream` gives {: #stream }\n"]
    out += [*entry("Stream", Stream, "###"), *entry("AsyncStream", AsyncStream, "###")]
    out += [
        "## For your tests\n",
        paragraphs(inspect.getdoc(testing) or ""),
        *entry("FakeProvider", FakeProvider, "###"),
    ]
    return "\n".join(out)


def entry(name: str, value: Any, level: str = "##", anchor: str | None = None) -> Iterator[str]:
    """One public name: its signature, its docstring, its members."""
    yield f"{level} {name} {{: #{anchor or name.lower()} }}\n"
    if get_origin(value) is not None or not (inspect.isclass(value) or callable(value)):
        yield f"```text\n{name} = {_plain(str(value))}\n```\n"
        return
    if inspect.isclass(value) and issubclass(value, Enum):
        # not its signature, which is that of every enumeration and differs between versions of Python
        yield f"```text\n{name} = {' | '.join(json.dumps(member.value) for member in value)}\n```\n"
    elif not _made_elsewhere(value):
        yield f"```text\n{name}{_signature(value)}\n```\n"
    yield paragraphs(inspect.getdoc(value) or "")
    if inspect.isclass(value):
        yield from _members(name, value, f"{level}#")


def _made_elsewhere(value: Any) -> bool:
    """Classes that people get from `parse`, `connect` or a call, and protocols: nobody calls them."""
    return value in _MADE_ELSEWHERE or getattr(value, "_is_protocol", False)


_MADE_ELSEWHERE = (
    onym.AIURI,
    onym.AsyncClient,
    onym.Client,
    onym.Diagnostic,
    onym.LLMURI,
    onym.Plan,
    onym.Report,
    onym.URI,
    AIStream,
    AsyncAIStream,
    AsyncStream,
    Stream,
)  # fmt: skip


def _members(owner: str, value: type, level: str) -> Iterator[str]:
    fields = {each.name for each in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    seen: set[str] = set()
    # a base that is not public is a part of the class
    for base in (each for each in value.__mro__ if each is value or each.__module__.startswith("onym.")):
        for name, member in vars(base).items():
            if not (name.startswith("_") or name in fields or name in seen):
                seen.add(name)
                yield from _member(owner, name, member, level)


def _member(owner: str, name: str, member: Any, level: str) -> Iterator[str]:
    target = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    if isinstance(member, property):
        yield f"{level} {owner}.{name}\n"
        yield paragraphs(inspect.getdoc(member) or "")
    elif inspect.isfunction(target):
        yield f"{level} {owner}.{name}\n"
        called = "await " if inspect.iscoroutinefunction(target) else ""
        yield f"```text\n{called}{name}{_signature(target)}\n```\n"
        yield paragraphs(inspect.getdoc(target) or "")


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except ValueError:
        return "(…)"
    given = list(_parameters(found))
    returned = found.return_annotation
    result = "" if inspect.isclass(value) or returned is found.empty else f" -> {_type(returned)}"
    short = f"({', '.join(given)}){result}"
    return short if len(short) < 90 else "(\n    " + ",\n    ".join(given) + f",\n){result}"


def _parameters(found: inspect.Signature) -> Iterator[str]:
    starred = False
    for name, each in found.parameters.items():
        if name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        kind = "" if each.annotation is each.empty else f": {_type(each.annotation)}"
        yield f"{stars}{name}{kind}{default}"


def _default(value: Any) -> str:
    """A default, where it says something in one word."""
    text = repr(value)
    return text if len(text) < 30 and "<" not in text else "…"


def _type(annotation: Any) -> str:
    return _plain(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _plain(text: str) -> str:
    """A type without the paths of its modules."""
    return re.sub(r"\b(?:onym|typing|collections\.abc)(?:\.\w+)*\.(?=\w)", "", text)
