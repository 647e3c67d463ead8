"""What becomes of the twelve well-known parameters at each provider: asked of the planner, not written down.

For each row, and each wire format that it has, a call with one parameter is planned; the note that the plan
has on it, or the refusal, is the cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal, TypeAlias

from onym.errors import UnsupportedError
from onym.llm import models
from onym.llm.dialects import DIALECTS
from onym.llm.models import Profile
from onym.llm.planner import Planner, PlannerSettings
from onym.llm.providers import Provider, ProviderTable
from onym.net.policy import Policy
from onym.uri.llm import LLMURI
from onym.uri.parameters import WELL_KNOWN

__all__ = [
    "MODEL",
    "VALUES",
    "Cell",
    "Line",
    "differences",
    "families",
    "lines",
    "planner",
    "silent_rows",
    "table_rows",
]

#: one that no profile knows
MODEL = "some-model"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
#: a value of each parameter that every provider's range takes
VALUES: Mapping[str, Any] = {
    "temp": 0.5,
    "max_tokens": 64,
    "top_p": 0.5,
    "top_k": 5,
    "stop": ("END",),
    "seed": 7,
    "stream": True,
    "timeout": 1000,
    "retries": 1,
    "cache": True,
    "format": "json",
    "system": "Be brief.",
}
FORMATS = ("json", "json_schema")
#: where a row without a host of its own is met
_SAMPLES = {"openai-compatible": ("llm.example", None), "openai-compatible-local": ("localhost", 9999)}

Fate: TypeAlias = Literal["sent", "client", "refused"]


@dataclass(frozen=True, slots=True)
class Cell:
    """What becomes of one parameter.

    `wire` is where it is in the request: a member of the body, dots nest, or a part of the path. `client` may
    have one too: what it switches on at the provider. `formats` are the values of `format` that are taken,
    `unused` that the model takes it without effect.
    """

    fate: Fate
    wire: str | None = None
    low: float | None = None
    high: float | None = None
    most: int | None = None
    formats: tuple[str, ...] = ()
    unused: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the matrix: a provider as it speaks one of its wire formats."""

    provider: Provider
    api: str | None
    cells: Mapping[str, Cell] = field(hash=False)


def planner(row: Provider, api: str | None = None, model: str = MODEL) -> Planner:
    """A planner for a model of this row, by a URI that leads there. No key, and nothing is sent."""
    host, port = _SAMPLES.get(row.name) or (_host(row), None)
    params = {value.parameter: f"my-{value.parameter}" for value in row.path_values.values()}
    if api is not None:
        params["api"] = api
        when = row.apis[api].when
        if when is not None:
            params[when] = "2024-10-21"
    uri = LLMURI.build(host=host, port=port, model=model, params=params)
    return Planner(uri, PlannerSettings(policy=Policy.local(), providers=ProviderTable.builtin()))


def _host(row: Provider) -> str:
    if row.hosts:
        return row.name  # an alias, which leads to the row where several share a host and a port
    pattern = row.host_suffixes[0]
    return f"my-resource{pattern}" if pattern.startswith(".") else pattern.replace("*", "my-resource")


def table_rows() -> list[Provider]:
    """The rows that can be called, in order."""
    return [row for row in ProviderTable.builtin() if row.dialect in DIALECTS]


def silent_rows() -> list[Provider]:
    """The rows of services whose hosts have a name here, and no chat."""
    return [row for row in ProviderTable.builtin() if row.dialect not in DIALECTS]


@cache
def lines() -> tuple[Line, ...]:
    """The whole matrix."""
    return tuple(
        Line(row if api is None else row.with_api(row.apis[api]), api, _cells(planner(row, api)))
        for row in table_rows()
        for api in (None, *row.apis)
    )


def _cells(asked: Planner) -> dict[str, Cell]:
    return {name: _cell(asked, name) for name in WELL_KNOWN}


def _cell(asked: Planner, name: str) -> Cell:
    if name == "format":
        return _format_cell(asked)
    row = asked.endpoint.provider
    try:
        notes = asked.chat("Hi", {name: VALUES[name]}, stream=True if name == "stream" else None).notes
    except UnsupportedError:
        return Cell("refused")
    mine = [note for note in notes if note.parameter == name and note.origin == "override"]
    wire = next((note.wire_name for note in mine if note.wire_name is not None), None)
    fate: Fate = "client" if mine[-1].action == "client" else "sent"
    low, high = row.ranges.get(name, (None, None))
    unused = any((note.reason or "").startswith("no effect") for note in mine)
    return Cell(fate, wire, low, high, row.stop_max if name == "stop" else None, unused=unused)


def _format_cell(asked: Planner) -> Cell:
    taken, wire = [], None
    for value in FORMATS:
        given: dict[str, Any] = {"format": value} | ({"schema": SCHEMA} if value == "json_schema" else {})
        try:
            notes = asked.chat("Hi", given).notes
        except UnsupportedError:
            continue
        taken.append(value)
        wire = next(note.wire_name for note in notes if note.parameter == "format")
    return Cell("sent", wire, formats=tuple(taken)) if taken else Cell("refused")


def families() -> Iterator[tuple[Profile, Provider, str]]:
    """Each profile of a family of models, a row that serves it, and the name of a model of that family.

    What is said of every other model of a provider is in its own line already.
    """
    table = ProviderTable.builtin()
    for profile in models.load_profiles():
        for name in profile.providers:
            row = table.get(name)
            names = [_sample(glob) for glob in profile.matches]
            model = next(
                (each for each in names if each and models.find_profile(name, each) is profile), None
            )
            if model is not None and not _elsewhere(row, model):
                yield profile, row, model


def _elsewhere(row: Provider, model: str) -> bool:
    """Whether this row serves the model by another API than its own, which other rows show."""
    return any(fnmatchcase(model, glob) for api in row.apis.values() for glob in api.models)


def _sample(glob: str) -> str:
    """A name that the glob fits, the shortest there is."""
    name, rest = "", glob
    while rest:
        first, rest = rest[0], rest[1:]
        if first == "[":
            inside, _, rest = rest.partition("]")
            name += inside[0]
        elif first != "*":
            name += "5" if first == "?" else first
    return name


def differences(row: Provider, model: str) -> dict[str, tuple[Cell, Cell]]:
    """The cells of this model that are not those of a model that nothing is known of, and the latter."""
    usual, mine = _cells(planner(row)), _cells(planner(row, model=model))
    return {name: (cell, usual[name]) for name, cell in mine.items() if cell != usual[name]}
