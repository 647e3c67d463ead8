"""The command `onym`, a thin layer over the library.

`main` answers `--version` before it imports anything else. click and the modules of the commands are imported
only when a command runs. The exit codes are in `exit_codes.py`.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run `onym` with the arguments of the process. Ends by SystemExit with a documented code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from onym import __version__

        try:
            print(f"onym {__version__}", flush=True)
            return
        except OSError:
            pass  # `app` reports it
    from onym.cli._app import app, install_sigterm_handler

    install_sigterm_handler()
    app.main(prog_name="onym")
