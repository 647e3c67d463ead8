"""Onym against real vLLM, on this machine's processor: `python tests/e2e/vllm_job.py`, or `make peer-vllm`.

It is no part of `make test`: it installs 3.4 GB and runs for some minutes. The checks are in
`vllm_checks.py`; arguments go to pytest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("vllm_checks.py")


def main(arguments: list[str]) -> int:
    # what cannot be installed is a failure here, not a reason to leave it out
    os.environ["CI"] = "true"
    return pytest.main([str(CHECKS), "-v", "--durations=12", "-p", "no:cacheprovider", *arguments])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
