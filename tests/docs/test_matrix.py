"""The matrix of parameters says what is done: each cell against the request that a client would send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from docgen.matrix import MODEL, SCHEMA, Cell, differences, families, lines, silent_rows, table_rows
from docgen.reference_matrix import matrix_part, shown

import onym
from onym.errors import ParameterError, UnsupportedError
from onym.llm import models
from onym.llm.config import Config
from onym.llm.plan import Plan
from onym.llm.providers import Provider, ProviderTable
from onym.net.policy import Policy
from onym.uri.parameters import WELL_KNOWN
from onym.uri.secret import Secret
from support import ROOT, as_subtests

KEY = "sk-test-key-0123456789"
#: as they stand in a URI, and as they are in a body
GIVEN: Mapping[str, tuple[str, Any]] = {
    "temp": ("0.25", 0.25),
    "max_tokens": ("321", 321),
    "top_p": ("0.75", 0.75),
    "top_k": ("3", 3),
    "stop": ("ENOUGH", ["ENOUGH"]),
    "seed": ("99", 99),
    "stream": ("true", True),
    "timeout": ("4321", None),
    "retries": ("9", None),
    "cache": ("true", None),
    "system": ("Speak%20plainly.", "Speak plainly."),
}
#: the widest values that the draft itself lets through
DRAFT: Mapping[str, tuple[float, float]] = {"temp": (0, 2), "top_p": (0, 1), "top_k": (0, 100_000)}
LINES = [(line, f"{line.provider.name}-{line.api or 'default'}") for line in lines()]


def at(row: Provider, api: str | None, model: str = MODEL, **params: str) -> str:
    """A URI that leads to a row: by its word, by a name of its pattern, or to nobody's host."""
    if row.hosts:
        host = row.name
    elif row.host_suffixes:
        host = "here" + row.host_suffixes[0]
    else:
        host = "localhost:4321" if row.name.endswith("-local") else "models.example"
    chosen = {value.parameter: "mine" for value in row.path_values.values()}
    if api is not None:
        chosen["api"] = api
        if row.apis.get(api) is not None and row.apis[api].when:
            chosen[str(row.apis[api].when)] = "2024-10-21"
    query = "&".join(f"{name}={value}" for name, value in (chosen | params).items())
    return f"llm://:{KEY}@{host}/{model}?{query}"


def planned(uri: str, **how: Any) -> Plan:
    client = onym.connect(uri, policy=Policy.local(), config=Config.empty(), environ={})
    with client:
        return client.explain("Hi", **how)


def member(body: Any, wire: str) -> Any:
    for step in wire.split("."):
        body = body.get(step) if isinstance(body, Mapping) else None
    return body


def hold(row: Provider, api: str | None, name: str, cell: Cell, model: str = MODEL) -> None:
    """Say the parameter in a URI, and look at what would be sent."""
    text, value = GIVEN[name]
    uri = at(row, api, model, **{name: text})
    if cell.fate == "refused":
        with pytest.raises(UnsupportedError):
            planned(uri)
        return
    plan, bare = planned(uri), planned(at(row, api, model))
    assert plan.body is not None
    assert bare.body is not None
    if cell.fate == "client":
        if cell.wire is None:
            assert plan.body == bare.body
        else:
            assert f'"{cell.wire.rpartition(".")[2]}"' in json.dumps(plan.body)
            assert f'"{cell.wire.rpartition(".")[2]}"' not in json.dumps(bare.body)
        assert plan.target == bare.target
        return
    assert cell.wire is not None
    if cell.wire == "messages[0]":
        assert plan.body["messages"][0] == {"role": "system", "content": value}
        assert value not in json.dumps(bare.body)
    elif cell.wire.startswith(":") or cell.wire.endswith("(path)"):
        part = cell.wire.removesuffix(" (path)")
        assert part in plan.target
        assert part not in bare.target
    elif name == "system":
        assert value in json.dumps(member(plan.body, cell.wire))
        assert member(bare.body, cell.wire) is None
    else:
        assert member(plan.body, cell.wire) == value
        assert member(bare.body, cell.wire) != value


def hold_formats(row: Provider, api: str | None, cell: Cell, model: str = MODEL) -> None:
    """Say each format in a URI, and look at what would be sent."""
    assert (cell.fate == "refused") is not bool(cell.formats)
    bare = planned(at(row, api, model)).body
    for value in ("json", "json_schema"):
        uri = at(row, api, model, format=value)
        how = {"schema": SCHEMA} if value == "json_schema" else {}
        if value not in cell.formats:
            with pytest.raises(UnsupportedError):
                planned(uri, **how)
            continue
        assert cell.wire is not None
        body = planned(uri, **how).body
        assert member(body, cell.wire) is not None
        assert member(bare, cell.wire) is None
        assert ("required" in json.dumps(body)) is (value == "json_schema")


@pytest.mark.requirement("onym-provider-c")
@as_subtests(("line", "label"), LINES, ids=[name for _, name in LINES])
def test_each_cell_is_what_a_client_of_that_provider_does(line: Any, label: str) -> None:
    row = ProviderTable.builtin().get(line.provider.name)
    assert tuple(line.cells) == WELL_KNOWN
    for name in GIVEN:
        hold(row, line.api, name, line.cells[name])


@pytest.mark.requirement("onym-provider-c")
@as_subtests(("line", "label"), LINES, ids=[name for _, name in LINES])
def test_each_range_ends_where_the_cell_says(line: Any, label: str) -> None:
    row = ProviderTable.builtin().get(line.provider.name)
    for name, (least, greatest) in DRAFT.items():
        cell = line.cells[name]
        step = 1 if name == "top_k" else 0.01
        if cell.low is not None:
            assert planned(at(row, line.api, **{name: f"{cell.low:g}"}))
            if cell.low - step >= least:
                with pytest.raises(ParameterError):
                    planned(at(row, line.api, **{name: f"{cell.low - step:g}"}))
        if cell.fate == "sent":
            assert planned(at(row, line.api, **{name: f"{greatest if cell.high is None else cell.high:g}"}))
        if cell.high is not None and cell.high + step <= greatest:
            with pytest.raises(ParameterError):
                planned(at(row, line.api, **{name: f"{cell.high + step:g}"}))
    most = line.cells["stop"].most
    if line.cells["stop"].fate == "sent":
        assert planned(at(row, line.api, stop=",".join(f"s{i}" for i in range(most or 40))))
    if most is not None and line.cells["stop"].fate == "sent":
        with pytest.raises(ParameterError):
            planned(at(row, line.api, stop=",".join(f"s{i}" for i in range(most + 1))))


@as_subtests(("line", "label"), LINES, ids=[name for _, name in LINES])
def test_each_format_of_a_cell_is_sent_and_no_other(line: Any, label: str) -> None:
    hold_formats(ProviderTable.builtin().get(line.provider.name), line.api, line.cells["format"])


@as_subtests(
    ("profile", "row", "model"),
    [pytest.param(*case, id=f"{case[0].family}-{case[1].name}") for case in families()],
)
def test_what_a_family_does_otherwise_is_what_a_client_does(
    profile: models.Profile, row: Provider, model: str
) -> None:
    assert models.find_profile(row.name, model) is profile
    for name, (mine, usual) in differences(row, model).items():
        assert mine != usual
        if name == "format":
            hold_formats(row, None, mine, model)
            continue
        hold(row, None, name, mine, model)
        notes = (
            [] if mine.fate == "refused" else planned(at(row, None, model, **{name: GIVEN[name][0]})).notes
        )
        said = [note.reason for note in notes if note.parameter == name and note.reason]
        assert mine.unused is any(reason.startswith("no effect") for reason in said)


def test_every_family_of_a_provider_is_asked_but_those_of_all_other_models() -> None:
    asked = {profile.family for profile, _, _ in families()}
    assert {profile.family for profile in models.load_profiles() if profile.matches != ("*",)} == asked


@cache
def told_of_rows() -> dict[str, str]:
    return {line.split("|")[1].strip(): line for line in matrix_part().splitlines() if line.startswith("| [")}


@as_subtests("row", table_rows(), ids=lambda row: row.name)
def test_the_key_and_the_label_are_in_the_headers_that_the_page_names(row: Provider) -> None:
    told = told_of_rows()[f"[{row.name}](providers.md#{row.name})"]
    if row.name != "embedded":  # it gets a key of its own when it starts
        headers = planned(at(row, None)).request.headers
        found = {name: value.reveal() if isinstance(value, Secret) else value for name, value in headers}
        assert found[row.key_header] == row.key_prefix + KEY
    assert f"`{row.key_header}: {row.key_prefix}…`" in told
    for variable in row.key_variables:
        assert f"`{variable}`" in told
    for prefix, header in row.label_headers:
        uri = at(row, None).replace("llm://", f"llm://{prefix}my-app")
        assert dict(planned(uri).request.headers)[header] == f"{prefix}my-app"
        assert f"`{header}`" in told


def test_every_row_is_on_the_page_and_those_of_other_services_refuse_a_call() -> None:
    page = matrix_part()
    assert len(table_rows()) + len(silent_rows()) == len(ProviderTable.builtin())
    for row in silent_rows():
        assert row.docs in page
        with pytest.raises(UnsupportedError) as caught:
            planned(at(row, None))
        assert caught.value.code == "llm.no-dialect"


def test_a_cell_is_shown_with_all_that_it_holds() -> None:
    assert shown(Cell("refused")) == "refused"
    assert shown(Cell("client")) == "client"
    assert shown(Cell("client", "cache_control")) == "client, `cache_control`"
    assert shown(Cell("sent", "a.b", 0, 1.5)) == "`a.b` 0 to 1.5"
    assert shown(Cell("sent", "stop", most=4)) == "`stop` at most 4"
    assert shown(Cell("sent", "k", low=0, unused=True)) == "`k` 0 to … (no effect)"
    assert shown(Cell("sent", "f", formats=("json",))) == "`f` (json)"


def test_a_fact_that_nobody_checked_says_so_on_the_page_of_providers() -> None:
    text = (ROOT / "docs" / "reference" / "providers.md").read_text(encoding="utf-8")
    for row in ProviderTable.builtin():
        assert row.docs in text
        assert "general knowledge" not in row.source or "not checked" in row.source
