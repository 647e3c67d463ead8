"""The generated pages are fresh, and what is written by hand in their generators is true."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from docgen.outputs import GENERATED_FILES
from docgen.paths import ROOT
from docgen.picture import EXAMPLE, spans, uri_picture
from docgen.reference_config import EXAMPLE as EXAMPLE_FILE
from docgen.reference_diagnostics import codes_in_source, found_codes
from docgen.reference_llm import PARAMETERS

from onym.errors import ParameterError
from onym.llm.config import Config
from onym.uri._names import WELL_KNOWN
from onym.uri.llm import LLMURI


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
    assert [each.part for each in parts] == [
        "scheme", "label", "key", "host", "port", "model", "parameters", "fragment",
    ]  # fmt: skip
    assert all(EXAMPLE[each.start : each.end] for each in parts)
    picture = ET.fromstring(uri_picture())
    described = picture.findtext("{http://www.w3.org/2000/svg}desc") or ""
    assert all(f"{each.part}: {each.value}" in described for each in parts)
    assert "sk-made-up" not in described


def test_the_example_of_the_configuration_is_read_and_has_no_error() -> None:
    config = Config.load(EXAMPLE_FILE)
    assert set(config.endpoints) == {"fast", "local"}
    assert config.providers.find("llm.mycorp.example").name == "mycorp"
    assert config.policy is not None
    assert config.policy.allow_loopback
    assert [each for each in config.check() if each.severity == "error"] == []


def test_every_diagnostic_that_the_source_writes_out_is_on_its_page() -> None:
    assert codes_in_source() <= found_codes()
