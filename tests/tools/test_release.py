"""The program that builds a release knows the version, and what a checkout lacks."""

from __future__ import annotations

import sys

import onym
from support import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import release


def test_the_version_is_the_one_of_the_package() -> None:
    assert release.read_version() == onym.__version__


def test_a_checkout_with_open_fragments_is_no_release() -> None:
    obstacles = list(release.find_obstacles(onym.__version__))
    assert any("changelog.d" in obstacle for obstacle in obstacles)
    assert any("tag" in obstacle for obstacle in obstacles)
