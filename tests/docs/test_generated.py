"""The generated pages are fresh, and what is written by hand in their generators is true."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from docgen.outputs import GENERATED_FILES
from docgen.paths import ROOT
from docgen.picture import EXAMPLE, spans, uri_picture
from docgen.reference_config import EXAMPLE as EXAMPLE_FILE
from docgen.reference_diagnostics import codes_in_source, diagnostics_page, found_codes
from docgen.reference_llm import PARAMETERS
from docgen.requests_picture import body_lines, plans, requests_picture

from onym.errors import ParameterError
from onym.llm.config import Config
from onym.uri.llm import LLMURI
from onym.uri.parameters import WELL_KNOWN


@pytest.mark.parametrize("path", GENERATED_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_generated_page_is_fresh(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED_FILES[path](), "run docs/tools/generate.py"


def test_the_parameters_page_names_the_twelve_and_their_ranges() -> None:
    assert tuple(PARAMETERS) == WELL_KNOWN
    for name, known in PARAMETERS.items():
        for bound, step in ((known.low, -1), (known.high, 1)):
            if bound is not None:
                assert LLMURI.parse(f"llm://h/m?{name}={bound}").params[name] == bound
                with pytest.raises(ParameterError):
                    LLMURI.parse(f"llm://h/m?{name}={bound + step}")


def test_the_picture_is_cut_by_the_parser_and_tells_every_part() -> None:
    parts = spans(EXAMPLE)
    assert [part.part for part in parts] == [
        "scheme", "label", "key", "host", "port", "model", "parameters", "fragment",
    ]  # fmt: skip
    assert all(EXAMPLE[part.start : part.end] for part in parts)
    picture = ET.fromstring(uri_picture())
    described = picture.findtext("{http://www.w3.org/2000/svg}desc") or ""
    assert all(f"{part.part}: {part.value}" in described for part in parts)
    assert "sk-made-up" not in described


def test_the_picture_of_three_requests_holds_each_body_whole_and_names_what_is_refused() -> None:
    picture = ET.fromstring(requests_picture())
    texts = ["".join(element.itertext()) for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    for plan in plans():
        wires = {note.wire_name for note in plan.notes if note.wire_name}
        lines = body_lines(plan.body or {}, wires)
        assert json.loads("".join(line.text for line in lines)) == plan.as_dict()["body"]
        assert [line.text for line in lines if line.text not in texts] == []
        assert {line.path for line in lines} >= {wire for wire in wires if "." in wire}
    assert any("top_k refused" in text for text in texts)
    assert "made-up" not in requests_picture()


def test_the_page_of_diagnostics_has_those_that_take_knowledge_of_providers() -> None:
    page = diagnostics_page()
    assert all(f"`llm.{code}`" in page for code in ("near-provider", "near-miss", "no-api", "refused"))


def test_the_example_of_the_configuration_is_read_and_has_no_error() -> None:
    config = Config.load(EXAMPLE_FILE)
    assert set(config.endpoints) == {"fast", "local"}
    assert config.providers.find("llm.mycorp.example").name == "mycorp"
    assert config.policy is not None
    assert config.policy.allow_loopback
    assert [finding for finding in config.check() if finding.severity == "error"] == []


def test_every_diagnostic_that_the_source_writes_out_is_on_its_page() -> None:
    assert codes_in_source() <= found_codes()
