"""Run the tests that answer soonest: smoke tests, and those that mirror the files that were changed.

A file counts as changed if it differs from the merge base with main, or if git does not track it. Coverage,
browsers, PostgreSQL, peers, the embedded model and the documentation are left to `make test`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: seconds after which no further test is started, so that the answer comes within a minute
LIMIT = 50
#: the public interface, the vectors and the errors
SMOKE = (
    "tests/test_public_api.py",
    "tests/test_errors.py",
    "tests/uri/test_shared_uri_vectors.py",
    "tests/uri/test_ai_vectors.py",
    "tests/net/test_ssrf_vectors.py",
    "tests/sign/test_provenance_attacks.py",
    "tests/cli/test_exit_codes.py",
)
#: folders of tests that only `make test` runs
_SLOW = ("tests/docs/", "tests/e2e/", "tests/typing/")
_WITHOUT = ["-m", "not embedded and not peers", "-k", "not postgresql and not browser"]


def list_changed_files() -> list[str]:
    """Return the files that differ from the merge base with main, and those that git does not track."""
    bases = (_git("merge-base", "HEAD", branch) for branch in ("main", "origin/main"))
    base = next(filter(None, bases), ["HEAD"])
    return sorted({*_git("diff", "--name-only", *base), *_git("ls-files", "--others", "--exclude-standard")})


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def read_tests() -> dict[str, str]:
    """Return the text of each test module by its path."""
    paths = (path for path in (ROOT / "tests").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def select_tests(changed: Iterable[str], tests: Mapping[str, str]) -> list[str]:
    """Return the test modules to run: smoke tests, changed tests, and the mirrors of other files."""
    changed = list(changed)
    chosen = [*SMOKE, *(path for path in changed if _is_test(path))]
    for path in changed:
        chosen += _find_mirrors(PurePosixPath(path), tests)
    return [path for path in dict.fromkeys(chosen) if path in tests and not path.startswith(_SLOW)]


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).match("test_*.py")


def _find_mirrors(path: PurePosixPath, tests: Mapping[str, str]) -> Iterator[str]:
    """Yield the tests of a changed file: by its name or by an import, or else all of the nearest folder."""
    if path.parts[:2] == ("src", "onym"):
        folder = PurePosixPath("tests", *path.parts[2:-1])
        yield from _find_module_tests(path, folder, tests)
    elif path.parts[0] == "tests" and path.name == "conftest.py" and len(path.parts) > 2:
        yield from _list_folder(path.parent, tests)
    elif path.parts[0] == "tests" and path.suffix == ".py" and not _is_test(str(path)):
        yield from _find_importers(path.stem, PurePosixPath("tests"), tests)
    elif path.parts[0] == "tools":
        yield f"tests/tools/test_{path.stem}.py"


def _find_module_tests(path: PurePosixPath, folder: PurePosixPath, tests: Mapping[str, str]) -> Iterator[str]:
    name = path.stem.strip("_")
    by_name = [
        test for test in _list_folder(folder, tests) if PurePosixPath(test).stem.startswith(f"test_{name}")
    ]
    module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
    room = PurePosixPath(*folder.parts[:2])
    by_import = _find_importers(module, room, tests) if len(room.parts) > 1 and path.suffix == ".py" else []
    while len(folder.parts) > 1 and not _list_folder(folder, tests):
        folder = folder.parent
    whole = _list_folder(folder, tests) if len(folder.parts) > 1 else []
    yield from [*by_name, *by_import] or whole


def _find_importers(module: str, folder: PurePosixPath, tests: Mapping[str, str]) -> list[str]:
    package, _, name = module.rpartition(".")
    direct = rf"\b{re.escape(module)}\b(?!\.)"
    as_name = rf"from {re.escape(package)} import [^\n]*\b{re.escape(name)}\b"
    pattern = re.compile(f"{direct}|{as_name}" if package else direct)
    return [test for test in _list_folder(folder, tests, deep=True) if pattern.search(tests[test])]


def _list_folder(folder: PurePosixPath, tests: Mapping[str, str], *, deep: bool = False) -> list[str]:
    paths = [path for path in sorted(tests) if _is_test(path)]
    if deep:
        return [path for path in paths if folder in PurePosixPath(path).parents]
    return [path for path in paths if PurePosixPath(path).parent == folder]


class Deadline:
    """Stops pytest (with xdist) when the time is over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._workers: Any = None
        self.ran = 0
        self.failed = False
        self.stopped = False

    def pytest_sessionstart(self, session: Any) -> None:
        """Find the part of xdist that hands out tests."""
        self._workers = session.config.pluginmanager.get_plugin("dsession")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count the test, and hand out no further one after the end."""
        self.failed = self.failed or report.failed
        self.ran += report.when == "call"
        if time.monotonic() > self._end and self._workers is not None:
            self.stopped = True
            self._workers.shouldstop = f"{LIMIT} seconds are over"


def main() -> int:
    """Run the tests; return 0 if none of those that ran failed."""
    import pytest  # late: the selection needs only the standard library

    changed = list_changed_files()
    chosen = select_tests(changed, read_tests())
    print(f"quick: {len(changed)} changed files, {len(chosen)} test modules")
    deadline = Deadline(LIMIT)
    options = ["-q", "-n", "auto", "--dist", "loadgroup", "--no-loadscope-reorder", "-p", "no:cacheprovider"]
    code = int(pytest.main([*options, *_WITHOUT, *chosen], plugins=[deadline]))
    if deadline.stopped:
        print(f"quick: stopped after {LIMIT} seconds and {deadline.ran} tests; run make test for the rest")
        return int(deadline.failed)
    return code


if __name__ == "__main__":
    sys.exit(main())
