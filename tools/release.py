"""Build and check a release: `make package`. It publishes nothing (docs/how-to/release.md).

It builds the sdist and the wheel twice, compares the bytes, checks both, and writes their digests. With
`--release` it also requires what only a release needs: a clean checkout at the tag of the version, links of
the project, and a changelog without open fragments.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
#: links that a page on the package index must have
LINKS = ("Homepage", "Source", "Documentation", "Issues")


def run(*command: str) -> str:
    """The output of a command; ends this program if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"release: {Path(command[0]).name} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def read_version() -> str:
    """The version of the package."""
    text = (ROOT / "src" / "onym" / "__init__.py").read_text(encoding="utf-8")
    return text.partition('__version__ = "')[2].partition('"')[0]


def build(folder: Path) -> list[Path]:
    """The sdist and the wheel that is built from it. Times in them are those of the last commit."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct")
    command = [sys.executable, str(ROOT / "tools" / "uv.py"), "build", "--quiet", "--out-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": epoch})
    return sorted(path for path in folder.iterdir() if path.suffix in {".whl", ".gz"})


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_obstacles(version: str) -> Iterator[str]:
    """Yield what keeps this checkout from being a release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing = [name for name in LINKS if name not in project.get("urls", {})]
    if missing:
        yield f"pyproject.toml: [project.urls] has no {', '.join(missing)}"
    if run("git", "status", "--porcelain"):
        yield "the checkout has changes that are not committed"
    if f"v{version}" not in run("git", "tag", "--points-at", "HEAD").split():
        yield f"HEAD has no tag v{version}: git tag --sign v{version}"
    if any(path.suffix == ".md" for path in (ROOT / "changelog.d").iterdir()):
        yield f"changelog.d has fragments: .venv/bin/towncrier build --version {version}"
    if f"## {version} " not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md has no section for {version}"


def main(arguments: list[str]) -> int:
    """0 if the files in dist/ can be published."""
    parser = argparse.ArgumentParser(description="Build and check a release. Publishes nothing.")
    parser.add_argument("--release", action="store_true", help="Require what a release needs.")
    options = parser.parse_args(arguments)
    version = read_version()
    obstacles = list(find_obstacles(version)) if options.release else []
    if obstacles:
        print(*(f"release: {obstacle}" for obstacle in obstacles), sep="\n", file=sys.stderr)
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    files = build(DIST)
    with tempfile.TemporaryDirectory() as folder:
        again = build(Path(folder))
        if [digest(path) for path in files] != [digest(path) for path in again]:
            print("release: two builds have different bytes", file=sys.stderr)
            return 1
    print(run(str(BIN / "twine"), "check", "--strict", *map(str, files)))
    wheels = [str(path) for path in files if path.suffix == ".whl"]
    print(run(str(BIN / "check-wheel-contents"), "--ignore", "W002", *wheels))
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
