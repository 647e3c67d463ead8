"""What an import may load. Modules are counted, not seconds: a count does not depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_PROBE = """
import json, sys
before = set(sys.modules)
{code}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded_by(code: str) -> set[str]:
    """Modules that running `code` in a bare interpreter adds."""
    command = [sys.executable, "-c", _PROBE.format(code=code)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8")
    return set(json.loads(done.stdout.splitlines()[-1]))


def third_party(modules: set[str]) -> set[str]:
    """The top-level names among them that are neither ours nor the standard library's."""
    tops = {name.partition(".")[0] for name in modules}
    return {name for name in tops if name not in sys.stdlib_module_names and name != "onym"}


@pytest.mark.parametrize(
    "code",
    [
        "import onym",
        "import onym.uri",
        "from onym.uri import LLMURI, URI, AIURI, redact_stream, check; LLMURI.parse('llm://h/m?temp=1')",
        "import onym; onym.parse('llm://h/m?a=%7B%22b%22%3A1%7D'); onym.check('llm://h/m'); onym.redact('x')",
    ],
)
def test_the_uri_floor_needs_the_standard_library_alone(code: str) -> None:
    assert third_party(loaded_by(code)) == set()


def test_importing_onym_loads_none_of_its_floors() -> None:
    ours = {name for name in loaded_by("import onym") if name.startswith("onym")}
    assert ours == {"onym", "onym._lazy"}


def test_the_uri_floor_stays_out_of_heavy_standard_modules() -> None:
    heavy = {"asyncio", "ssl", "socket", "http.client", "urllib.request", "logging", "inspect", "dataclasses"}
    assert loaded_by("from onym.uri import LLMURI, URI") & heavy == set()


def test_the_version_is_shown_without_the_command_line_library() -> None:
    code = (
        "import sys\nsys.argv = ['onym', '--version']\nfrom onym.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    modules = loaded_by(code)
    assert third_party(modules) == set()


def test_parsing_on_the_command_line_loads_no_http_client() -> None:
    code = (
        "import sys\nsys.argv = ['onym', 'parse', '--json', 'llm://h/m']\nfrom onym.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    assert third_party(loaded_by(code)) & {"httptools", "rich", "dns", "keyring", "xllamacpp"} == set()
