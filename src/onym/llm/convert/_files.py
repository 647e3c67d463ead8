"""Reading a file of models: JSON always, YAML where PyYAML is installed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from onym.errors import MissingExtraError, UsageError

__all__ = ["load_models"]

_LONGEST = 4 * 1024 * 1024
#: values of a YAML text, aliases expanded
_MOST = 200_000
#: characters of a number: to read a longer one takes more than its length in time
_LONGEST_NUMBER = 1000


def load_models(text: str) -> Any:
    """The data that JSON or YAML text holds.

    Raises UsageError for text that is neither, MissingExtraError for YAML where PyYAML is missing. No message
    quotes the text, which may hold keys.
    """
    if len(text) > _LONGEST:
        raise UsageError("a list of models is at most 4 MiB long", code="convert.too-long")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _from_yaml(text)


def _from_yaml(text: str) -> Any:
    try:
        yaml = import_module("yaml")  # late: JSON needs none
    except ModuleNotFoundError:
        raise MissingExtraError(
            "reading YAML needs PyYAML, which is not installed; JSON is read without it",
            code="convert.needs-yaml",
            command="pip install pyyaml",
            hint="run: pip install pyyaml",
        ) from None
    try:
        # aliases make a small text a huge value: counted before anything is built
        if _expanded(yaml.parse(text, Loader=yaml.SafeLoader)) > _MOST:
            raise UsageError("this YAML holds too much", code="convert.too-long")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1})"
        raise UsageError(f"this is neither JSON nor YAML{where}", code="convert.bad-yaml") from None


def _expanded(events: Iterable[Any]) -> int:
    """How many values these events stand for, aliases counted as what they repeat."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = [(None, 0)]
    for event in events:
        anchor, kind = getattr(event, "anchor", None), type(event).__name__
        if kind in ("SequenceStartEvent", "MappingStartEvent"):
            open_.append((anchor, 1))
            continue
        if kind in ("SequenceEndEvent", "MappingEndEvent"):
            anchor, size = open_.pop()
        elif kind == "AliasEvent":
            # one that stands inside what it repeats has no end
            anchor, size = None, sizes.get(str(anchor), _MOST + 1)
        else:
            size = _MOST + 1 if _is_long_number(event) else 1
        if anchor is not None:
            sizes[anchor] = size
        open_[-1] = (open_[-1][0], open_[-1][1] + size)
    return open_[0][1]


def _is_long_number(event: Any) -> bool:
    text = getattr(event, "value", "")
    if len(text) <= _LONGEST_NUMBER or text[0] not in "+-.0123456789":
        return False
    # a text in quotes is a number where a tag says so
    return event.style is None or event.tag is not None
