"""The command `onym`: a thin floor over the library, floor 5.

`main` answers `--version` before anything else is imported; every command's module, and click
itself, load only when they are run. Exit codes: `exit_codes.py`.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run `onym` with the process's own arguments; ends by SystemExit with a documented code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from onym._version import __version__

        print(f"onym {__version__}")
        return
    from onym.cli._app import app, install_sigterm_handler

    install_sigterm_handler()
    app.main(prog_name="onym")
