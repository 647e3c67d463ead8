"""The compatibility kit of A2A against an Onym resource behind the bridge: `make peer-a2a A2A_TCK=FOLDER`.

The kit (github.com/a2aproject/a2a-tck, branch 1.0-dev) is in no package registry: FOLDER is a checkout of it.
It is no part of `make test`. What is not met must be in `tests/bridges/suites/a2a_tck.txt`, with a reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS))

from model_support import uv  # noqa: E402
from peer_install import environment, install, installed  # noqa: E402
from suites_support import read_baseline, serve_a2a_agent  # noqa: E402


def main(arguments: list[str]) -> int:
    checkout = Path(arguments[0]) if arguments and arguments[0] else None
    if checkout is None or not (checkout / "run_tck.py").is_file():
        print(
            "pass A2A_TCK=FOLDER, a checkout of github.com/a2aproject/a2a-tck (branch 1.0-dev)",
            file=sys.stderr,
        )
        return 2
    os.environ["CI"] = "true"
    made_from = (checkout / "pyproject.toml").read_text(encoding="utf-8") + str(checkout.resolve())

    def make(folder: Path) -> None:
        python = environment(folder)
        install([uv(), "pip", "install", "--python", str(python), str(checkout)], folder)

    python = installed("a2a-tck", made_from, make) / "bin" / "python"
    with TemporaryDirectory() as text, serve_a2a_agent() as url:
        # the kit writes its reports beside itself
        copy = Path(text) / "kit"
        shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git", ".venv"))
        command = [str(python), "run_tck.py", "--sut-host", url, "--transport", "jsonrpc", *arguments[1:]]
        subprocess.run(command, cwd=copy, check=False)
        report = json.loads((copy / "reports" / "compatibility.json").read_text(encoding="utf-8"))
    return judge(report)


def judge(report: dict[str, dict[str, dict[str, str]]]) -> int:
    """0 if exactly the requirements of the baseline are not met."""
    rows = report["per_requirement"]
    failed = {name for name, row in rows.items() if row["status"] == "FAIL"}
    known = set(read_baseline("a2a_tck.txt"))
    for name in sorted(failed - known):
        print(f"not met: {name} ({rows[name]['level']})", file=sys.stderr)
    for name in sorted(known - failed):
        print(f"met, or not tested, but in the baseline: {name}", file=sys.stderr)
    print({level: report["summary"][f"{level}_compatibility"] for level in ("must", "should", "may")})
    return 0 if failed == known else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
