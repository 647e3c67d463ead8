"""The documentation's own tools are importable here."""

from __future__ import annotations

import os
import sys

import pytest

from support import ROOT, untraced

sys.path.insert(0, str(ROOT / "docs" / "tools"))


@pytest.fixture(autouse=True)
def _untraced_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What examples run is tested elsewhere, line by line."""
    for name in set(os.environ) - set(untraced()):
        monkeypatch.delenv(name)
