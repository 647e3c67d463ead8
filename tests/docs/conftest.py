"""The documentation's own tools are importable here."""

from __future__ import annotations

import sys

from support import ROOT

sys.path.insert(0, str(ROOT / "docs" / "tools"))
