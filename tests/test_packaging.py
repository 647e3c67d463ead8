"""What people install: the wheel and the sdist, their extras, and the types that they bring."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from model_support import MODEL, pulled_weights, unavailable, uv
from peer_install import environment, install
from support import ROOT

pytestmark = pytest.mark.xdist_group("packaging")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: extras that are another name for one: what people type
ALIASES = {
    "aws": "bedrock", "google": "vertex", "litellm": "yaml", "llama-cpp": "embedded",
    "llama-index": "llamaindex", "local": "embedded", "opentelemetry": "telemetry", "otel": "telemetry",
    "postgres": "postgresql", "redis": "valkey",
}  # fmt: skip


def build(out: Path) -> Path:
    """The folder with an sdist, and with the wheel that is built from it."""
    program = [sys.executable, str(ROOT / "tools" / "uv.py")]
    variables = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(
        [*program, "build", "--quiet", "--out-dir", str(out), str(ROOT)], check=True, env=variables
    )
    return out


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel and its dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    python = environment(folder)
    # the versions of this environment, most of which are in uv's cache
    wanted = "\n".join(f"{found.name}=={found.version}" for found in metadata.distributions())
    (folder / "constraints.txt").write_text(wanted, encoding="utf-8")
    command = [uv(), "pip", "install", "--quiet", "--python", str(python), "-c", "constraints.txt"]
    install([*command, str(wheel)], folder)
    return python


def check(tool: str, *arguments: str, cwd: Path | None = None) -> str:
    """What a tool of this environment prints; the test fails if it fails."""
    program = Path(sys.executable).with_name(tool)
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_carries_the_package_its_types_and_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "onym/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"onym"}
    shared = {name.partition(".data/data/")[2] for name in names if ".data/data/" in name}
    assert shared == {
        "share/man/man1/onym.1",
        "share/bash-completion/completions/onym",
        "share/zsh/site-functions/_onym",
        "share/fish/vendor_completions.d/onym.fish",
    }


def test_the_sdist_has_the_sources_the_tests_and_the_licence(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = archive.getnames()
    inside = {name.partition("/")[2] for name in names}
    assert {
        "LICENSE",
        "pyproject.toml",
        "src/onym/py.typed",
        "tests/test_packaging.py",
        "docker/Dockerfile",
    } <= inside
    assert not [name for name in inside if name.startswith((".venv", ".onym", ".git/", "site/", "dist/"))]


def test_two_builds_have_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    for first in (*dist.glob("*.whl"), *dist.glob("*.tar.gz")):
        second = again / first.name
        assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()


def test_twine_and_check_wheel_contents_find_nothing(dist: Path, wheel: Path) -> None:
    check("twine", "check", "--strict", *map(str, (wheel, *dist.glob("*.tar.gz"))))
    # W002: files with equal text, such as two empty ones
    check("check-wheel-contents", "--ignore", "W002", str(wheel))


def test_the_uri_floor_of_the_wheel_works_with_no_dependency_installed(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "from onym import LLMURI, redact\n"
        "uri = LLMURI.parse('llm://app:sk-secret-0123456789abcdef@api.example.com/m?temp=0.5')\n"
        "print(uri, uri.temp, redact('key=sk-secret-0123456789abcdef'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("llm://app:***@api.example.com/m?temp=0.5 0.5 ")
    assert "sk-secret" not in done.stdout


@pytest.mark.embedded
@pytest.mark.peers
def test_the_command_that_chat_prints_makes_the_embedded_model_work(
    installed: Path, wheel: Path, tmp_path: Path
) -> None:
    def chat() -> subprocess.CompletedProcess[str]:
        command = [
            str(installed.with_name("onym")),
            "chat",
            f"llm://embedded/{MODEL}?temp=0&max_tokens=8",
            "Hello",
        ]
        return subprocess.run(
            command, env=variables, capture_output=True, text=True, check=False, cwd=tmp_path
        )

    cache_folder = pulled_weights().parent
    path = os.pathsep.join([str(installed.parent), str(Path(uv()).parent), os.environ["PATH"]])
    variables = os.environ | {
        "ONYM_CACHE": str(tmp_path / "empty"),
        "PATH": path,
        "VIRTUAL_ENV": str(installed.parents[1]),
    }
    failed = chat()
    assert failed.returncode == 10, failed.stderr
    command = failed.stderr.partition("next")[2].splitlines()[0].strip()
    assert command == f"pip install 'onym[embedded]' && onym models pull {MODEL}"
    # the package index has no onym yet: the wheel takes its place; the weights are not pulled twice
    variables["ONYM_CACHE"] = str(cache_folder)
    printed = command.replace(
        "pip install 'onym[embedded]'", f"uv pip install --quiet 'onym[embedded] @ {wheel.as_uri()}'"
    )
    done = subprocess.run(
        ["sh", "-c", printed], env=variables, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    if done.returncode:
        unavailable(done.stderr)
    answered = chat()
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout.strip()


@pytest.mark.peers
def test_mypy_and_pyright_see_the_types_of_the_installed_wheel(installed: Path, tmp_path: Path) -> None:
    source = tmp_path / "api.py"
    source.write_text((ROOT / "tests" / "typing" / "api.py").read_text(encoding="utf-8"), encoding="utf-8")
    check(
        "mypy", "--strict", "--no-incremental", "--config-file", os.devnull, "--python-executable",
        str(installed), "api.py", cwd=tmp_path,
    )  # fmt: skip
    report = check("pyright", "--pythonpath", str(installed), "api.py", cwd=tmp_path)
    assert "0 errors" in report
    # and a mistake is one: the checkers really read the package
    source.write_text("import onym\nonym.parse(1).temp.upper()\n", encoding="utf-8")
    program = Path(sys.executable).with_name("pyright")
    wrong = subprocess.run(
        [str(program), "--pythonpath", str(installed), "api.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 1
    assert "reportArgumentType" in wrong.stdout


def hints() -> Iterator[tuple[str, str | None]]:
    """(extra, package that is missing) of every place in the source that names an extra."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for extra in re.findall(r"pip install '?onym\[([a-z0-9-]+)\]", text):
            yield extra, None
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            # called by its name, or as a member of its module
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            values = [value.value for value in node.args if isinstance(value, ast.Constant)]
            if called == "require_extra" and len(values) == 2:
                yield str(values[1]), str(values[0])
            if called == "_import_extra" and len(values) == 3:
                yield str(values[2]), str(values[0])
    from onym.cli import _errors

    yield from ((extra, package) for package, extra in _errors._EXTRAS.items())


@cache
def closure(extra: str) -> frozenset[str]:
    """The normal names of all distributions that `pip install 'onym[extra]'` brings, as installed here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: set[tuple[str, str]] = set()
    waiting: list[tuple[str, str]] = [("onym", extra), ("onym", "")]
    while waiting:
        name, part = waiting.pop()
        if (name, part) in found:
            continue
        found.add((name, part))
        wanted = _requirements() if name == "onym" else metadata.requires(name) or []
        for requirement in map(Requirement, wanted):
            if requirement.marker is None or requirement.marker.evaluate({"extra": part}):
                child = canonicalize_name(requirement.name)
                waiting += [(child, ""), *((child, option) for option in requirement.extras)]
    return frozenset(name for name, _ in found)


def _requirements() -> list[str]:
    extras = [
        f"{requirement.partition(';')[0]}; extra == '{extra}'"
        for extra, rows in EXTRAS.items()
        for requirement in rows
    ]
    return [*PROJECT["dependencies"], *extras]


def test_every_hint_names_an_extra_that_installs_what_is_missing() -> None:
    from packaging.utils import canonicalize_name

    owners = metadata.packages_distributions()
    found = set(hints())
    assert len(found) > 25
    for extra, package in sorted(found, key=str):
        assert extra in EXTRAS, extra
        if package is not None:
            top = package.partition(".")[0]
            bringing = {canonicalize_name(owner) for owner in owners[top]}
            assert bringing & closure(extra), f"onym[{extra}] does not install {package}"


def test_other_names_of_extras_lead_to_one_extra_and_all_leads_to_each() -> None:
    for alias, extra in ALIASES.items():
        assert EXTRAS[alias] == [f"onym[{extra}]"]
    named = set(re.findall(r"[a-z0-9-]+", " ".join(re.findall(r"\[(.*?)\]", " ".join(EXTRAS["all"])))))
    assert named == EXTRAS.keys() - ALIASES.keys() - {"all", "gateway", "server"}
    assert closure("all") >= closure("gateway") | closure("server") | closure("embedded")


def test_the_metadata_of_the_wheel_has_the_extras_links_and_classifiers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode("utf-8")
    assert set(re.findall(r"^Provides-Extra: (.+)$", text, re.MULTILINE)) == set(EXTRAS)
    assert re.findall(r"^License-Expression: (.+)$", text, re.MULTILINE) == ["Apache-2.0"]
    assert "Project-URL: Specification: llm URIs, https://" in text
    for version in ("3.11", "3.12", "3.13"):
        assert f"Classifier: Programming Language :: Python :: {version}\n" in text
