"""Every piece of code in the documentation is run, and shows what it does today."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import trustme
from docgen.examples import example_files, scripts
from docgen.fences import fences
from docgen.outputs import fresh, hand_written
from docgen.paths import ROOT, pages

from model_support import unavailable
from support import as_subtests, free_port

#: languages whose blocks are code of ours, and what must stand before such a block
BACKED = {
    "python": {"example", "before"},
    "py": {"example"},
    "pycon": set(),
    "console": {"run", "serve", "tested"},
}
#: what only a reader can run: it installs, starts servers, or needs a key or the network
_READERS_OWN = re.compile(
    r"make|pip|uv|git|cd|mkdir|python3 -m (?:venv|http\.server)|\. ~/|export|ollama|#"
    r"|llama-server|vllm|ssh|docker|createuser|createdb|onym config schema"
    r"|\.venv/bin/python docs/tools|onym chat 'llm://openai/|onym chat '?llm://embedded/|onym models pull"
)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", hand_written(), ids=named)
def test_a_page_shows_what_its_examples_and_commands_do_today(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for tool in ("curl", "openssl"):
        if f"\n$ {tool} " in text and shutil.which(tool) is None:
            unavailable(f"{tool} is not installed: apt-get install {tool}")
    assert text == fresh(page), "run docs/tools/generate.py"


@as_subtests("page", pages(), ids=named)
def test_no_python_or_console_block_stands_without_a_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    bare = [
        fence.line for fence in fences(text) if fence.verb not in BACKED.get(fence.language, {fence.verb})
    ]
    assert not bare
    for fence in fences(text):
        if fence.verb == "tested":
            assert page.name in (ROOT / str(fence.argument)).read_text(encoding="utf-8"), fence.line
        if fence.verb == "before":
            assert re.search(rf"^(?:from|import) {fence.argument}\b", fence.body, re.MULTILINE), fence.line
            compile(fence.body, named(page), "exec")
    assert not re.findall(r"^[ \t>]+```\w", text, re.MULTILINE), "an indented block is not seen by the tools"


@as_subtests("page", pages(), ids=named)
def test_no_command_of_a_page_fails_because_something_is_missing(page: Path) -> None:
    missing = re.compile(r"No such file or directory|command not found|^Traceback", re.MULTILINE)
    for fence in fences(page.read_text(encoding="utf-8")):
        assert fence.verb not in {"run", "serve"} or not missing.search(fence.body), fence.line


@as_subtests("page", pages(), ids=named)
def test_a_shell_block_holds_only_what_a_reader_alone_can_run(page: Path) -> None:
    for fence in fences(page.read_text(encoding="utf-8")):
        if fence.language in {"sh", "bash", "shell"}:
            strange = [line for line in fence.body.splitlines() if line and not _READERS_OWN.match(line)]
            assert not strange, fence.line
        assert fence.language in BACKED or not re.search(r"^\$ ", fence.body, re.MULTILINE), fence.line


@as_subtests("page", pages(), ids=named)
def test_a_block_that_is_a_file_shows_the_name_of_the_file(page: Path) -> None:
    files = {"toml", "ini", "yaml", "nginx", "dockerfile"}
    for fence in fences(page.read_text(encoding="utf-8")):
        if fence.verb in {"example", "file"} or fence.language in files:
            assert f' title="{fence.title}"' in fence.info, fence.line


def _nginx_files() -> list[tuple[str, str]]:
    return [
        (fence.title or "", fence.body)
        for page in pages()
        for fence in fences(page.read_text(encoding="utf-8"))
        if fence.language == "nginx"
    ]


def test_nginx_accepts_the_files_on_the_pages(tmp_path: Path) -> None:
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        unavailable("nginx is not installed: apt-get install nginx")
    leaf = trustme.CA().issue_cert("registry.example")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    leaf.cert_chain_pems[0].write_to_path(certificate)
    leaf.private_key_pem.write_to_path(key)
    assert _nginx_files()
    for title, body in _nginx_files():
        own = re.sub(r"(ssl_certificate_key) [^;]+", rf"\1 {key}", body)
        own = re.sub(r"(ssl_certificate) [^;]+", rf"\1 {certificate}", own)
        assert own != body, f"{title} has no certificate"
        own = own.replace("listen 443", f"listen 127.0.0.1:{free_port()}")
        paths = "".join(f"{name}_temp_path {tmp_path}/{name};" for name in _NGINX_PATHS)
        config = tmp_path / "nginx.conf"
        config.write_text(f"pid {tmp_path}/pid; events {{}} http {{ access_log off; {paths} {own} }}")
        command = [program, "-t", "-e", str(tmp_path / "error.log"), "-p", str(tmp_path), "-c", str(config)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (title, ran.stderr)


_NGINX_PATHS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def test_every_example_is_on_a_page_and_every_script_has_an_example() -> None:
    shown = {
        fence.argument
        for page in pages()
        for fence in fences(page.read_text(encoding="utf-8"))
        if fence.verb == "example"
    }
    assert shown == {named(path) for path in example_files()}
    assert set(scripts()) <= {path.stem for path in example_files()}
