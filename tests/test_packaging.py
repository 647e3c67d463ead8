"""What people install: the wheel, and nothing but the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support import ROOT

pytestmark = pytest.mark.xdist_group("packaging")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    uv = [sys.executable, str(ROOT / "tools" / "uv.py")]
    subprocess.run([*uv, "build", "--quiet", "--wheel", "--out-dir", str(out), str(ROOT)], check=True)
    return next(out.glob("*.whl"))


def test_the_wheel_carries_the_package_its_types_and_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "onym/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"onym"}


def test_the_uri_floor_of_the_wheel_works_with_no_dependency_installed(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "from onym import LLMURI, redact\n"
        "uri = LLMURI.parse('llm://app:sk-secret-0123456789abcdef@api.example.com/m?temp=0.5')\n"
        "print(uri, uri.temp, redact('key=sk-secret-0123456789abcdef'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("llm://app:***@api.example.com/m?temp=0.5 0.5 ")
    assert "sk-secret" not in done.stdout
