"""What installing costs: packages, megabytes on disk, and seconds from a warm cache, beside named peers.

Each candidate goes into a new environment. The first round fills the cache of uv and is not counted. Only the
candidate decides which versions are installed: the newest that go together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = [sys.executable, str(ROOT / "tools" / "uv.py")]
#: what a program that calls models installs; {wheel} is the wheel of this checkout
CANDIDATES = {
    "onym": "onym @ {wheel}",
    "onym[embedded]": "onym[embedded] @ {wheel}",
    "onym[ai]": "onym[ai] @ {wheel}",
    "onym[server]": "onym[server] @ {wheel}",
    "openai": "openai",
    "anthropic": "anthropic",
    "langchain-core": "langchain-core",
    "langchain-openai": "langchain-openai",
    "pydantic-ai": "pydantic-ai",
    "litellm": "litellm",
}


def build_wheel(folder: Path) -> str:
    """The URL of this checkout's wheel."""
    subprocess.run([*UV, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], check=True)
    return next(folder.glob("*.whl")).as_uri()


def install(requirement: str, folder: Path) -> float:
    """Install into a new environment; the seconds that it took."""
    subprocess.run([*UV, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    start = time.perf_counter()
    command = [*UV, "pip", "install", "--quiet", "--compile-bytecode", "--link-mode", "copy"]
    subprocess.run([*command, "--python", python, requirement], check=True)
    return time.perf_counter() - start


def measure(folder: Path) -> tuple[int, float]:
    """Packages, and megabytes without bytecode."""
    home = next(folder.glob("lib/python*/site-packages"))
    files = [path for path in home.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return len(list(home.glob("*.dist-info"))), sum(path.stat().st_size for path in files) / 1e6


def main() -> None:
    """Print the table, and write it as JSON if a file is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    options, _ = parser.parse_known_args()
    rows: dict[str, dict[str, object]] = {}
    times: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch) / "dist")
        for number in range(options.rounds + 1):
            for name, requirement in CANDIDATES.items():
                folder = Path(scratch) / f"{number}-{len(times[name])}-{name}"
                seconds = install(requirement.format(wheel=wheel), folder)
                if number:
                    times[name].append(seconds)
                else:
                    packages, size = measure(folder)
                    rows[name] = {"install": name, "packages": packages, "megabytes": round(size, 1)}
    baseline = statistics.median(times["openai"])
    print("| pip install | packages | MB | time, openai = 1 |\n|---|--:|--:|--:|")
    for name, row in rows.items():
        row["times_openai"] = round(statistics.median(times[name]) / baseline, 2)
        print(f"| {name} | {row['packages']} | {row['megabytes']} | {row['times_openai']:.2f} |")
    if options.json:
        Path(options.json).write_text(json.dumps(list(rows.values()), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
