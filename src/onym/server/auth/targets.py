"""Where a visitor goes on to after signing in: a path of this service, and nowhere else."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HOME", "safe_target"]

HOME: Final = "/"
#: a path that begins with one slash; a backslash counts as a slash in browsers, and tabs vanish
_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*\Z")
_LONGEST: Final = 2000
#: pages that signing in leads to again and again
_LOOPS: Final = ("/login", "/logout")


def safe_target(text: str | None) -> str:
    """The path to go on to, or `HOME` for one that would lead elsewhere or around in a circle."""
    if not text or len(text) > _LONGEST or not _PATH.match(text):
        return HOME
    path = text.partition("?")[0].partition("#")[0]
    # dot segments could climb to another path, but never to another host; "/.//" would in some clients
    if "//" in path or any(segment in {".", ".."} for segment in path.split("/")):
        return HOME
    return HOME if path.startswith(_LOOPS) else text
