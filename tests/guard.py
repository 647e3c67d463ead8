"""Run a command until standard input ends; then stop it and remove folders. Run by tests, never imported.

    python -IS guard.py SIGNAL USER FOLDER COMMAND...

The test process holds the other end of the pipe, so whatever happens to it, kill -9 included, nothing stays
behind. USER is whom COMMAND runs as ("" for this one), FOLDER is removed at the end ("" for none).
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys

_PATIENCE = 300.0


def main(number: str, user: str, folder: str, *command: str) -> int:
    # Ctrl-C goes to the whole group of processes; the pipe says when it is over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # a session of its own, for the same reason
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        restore_signals=True,
        user=user or None,
        group=user or None,
        extra_groups=[] if user else None,
    )
    try:
        _wait(child)
        if child.poll() is None:
            child.send_signal(signal.Signals[number])
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
        return child.wait()
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _wait(child: subprocess.Popen[bytes]) -> None:
    """Until the pipe is closed at its other end, or the child ends by itself."""
    ended = os.pidfd_open(child.pid)
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    poll.register(ended, select.POLLIN)
    poll.poll()
    os.close(ended)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
