"""Independent servers for the end-to-end tests: installed once per machine, started per run.

llama.cpp's own server carries a real model; Portkey's gateway (npm), LiteLLM's proxy and ollama-proxy-plus
(PyPI) stand in front of it. What is installed lives outside the checkout, in `ONYM_TEST_PEERS` or the
user's cache, in a folder that is named after what it was made from.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from model_support import MODEL, pulled_weights, uv
from onym.llm.providers import Provider, ProviderTable
from onym.uri.llm import LLMURI
from peer_install import Node, environment, install, installed, node, npm_package
from support import free_port

HERE = Path(__file__).parent
UPSTREAM_KEY = "sk-upstream-of-the-peers"
LITELLM_KEY = "sk-front-of-litellm"
#: the name under which LiteLLM reaches the same model with a key that its server refuses
BAD_KEY_MODEL = "refused-upstream"
#: the same model once more: LiteLLM asks it in OpenAI's chat format whatever it was asked in itself
TRANSLATED = "translated"
#: names under which LiteLLM answers without asking anybody
MOCKED = "mocked"
MOCKED_TOOLS = "mocked-tools"
MOCKED_RATE_LIMIT = "mocked-rate-limit"
MOCKED_FAILURE = "mocked-failure"
MOCKED_TEXT = "Paris, said the mock, is the capital of France."
MOCKED_CALL = {
    "id": "call_of_the_mock",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
}
#: what ollama-proxy-plus puts before a model's name to say where it is, and where its key is refused
HERE_PREFIX = "local"
REFUSED_PREFIX = "refused"
_STARTUP = 1200.0


@dataclass(frozen=True)
class Peer:
    """A running server, as a URI sees it. `upstream` is the model server behind it."""

    name: str
    port: int
    key: str
    label: str | None = None
    providers: ProviderTable = field(default_factory=ProviderTable.builtin)
    upstream: Peer | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def uri(self, model: str = MODEL, *, key: str | None = None, **params: object) -> LLMURI:
        return LLMURI.build(
            host="127.0.0.1",
            port=self.port,
            model=model,
            label=self.label,
            key=key or self.key,
            params=params,
        )


@contextmanager
def llama() -> Iterator[Peer]:
    """llama.cpp's own server with the embedded model."""
    command = [sys.executable, str(HERE / "llama_server.py"), str(pulled_weights()), MODEL, UPSTREAM_KEY]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, f"the model server ended with {process.wait()}"
        yield Peer("llama.cpp", int(address.rpartition(":")[2]), UPSTREAM_KEY)
    finally:
        process.stdin.close()
        process.wait(timeout=300)
        process.stdout.close()


@contextmanager
def portkey(upstream: Peer, folder: Path) -> Iterator[Peer]:
    """Portkey's gateway.

    It is told where to go by the header x-portkey-config. A provider row puts the app label of the
    URI there, as draft 4.2.1 has it; the key passes through.
    """
    script, runtime = _portkey()
    config = {
        "provider": "openai",
        "custom_host": f"{upstream.address}/v1",
        "retry": {"attempts": 0},
        "forward_headers": ["authorization"],
    }

    def command(port: int) -> list[str]:
        return [runtime.program, str(script), f"--port={port}", "--headless"]

    with _serving("portkey", command, "/", folder, runtime.environment) as port:
        row = Provider(
            name="portkey-here",
            title="Portkey's gateway on this machine",
            hosts=("127.0.0.1",),
            default_port=port,
            needs_key=False,
            label_headers=(("", "x-portkey-config"),),
            docs="https://portkey.ai/docs/api-reference/inference-api/headers",
            source="run by these tests",
            checked="2026-11-21",
        )
        yield Peer(
            "portkey",
            port,
            UPSTREAM_KEY,
            label=json.dumps(config, separators=(",", ":")),
            providers=ProviderTable.builtin().register(row),
            upstream=upstream,
        )


@contextmanager
def litellm(upstream: Peer, folder: Path) -> Iterator[Peer]:
    """LiteLLM's proxy, with a key of its own."""
    program = _python_program("litellm", "litellm")
    config = folder / "litellm.yaml"  # JSON is YAML
    settings = {
        "model_list": _litellm_models(upstream),
        "general_settings": {"master_key": LITELLM_KEY},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "litellm_settings": {"num_retries": 0, "telemetry": False},
    }
    config.write_text(json.dumps(settings))

    def command(port: int) -> list[str]:
        options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        return [str(program), *options, "--telemetry", "False"]

    # without this it asks a host outside for prices, three times
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with _serving("litellm", command, "/health/liveliness", folder, environment) as port:
        yield Peer("litellm", port, LITELLM_KEY, upstream=upstream)


def _litellm_models(upstream: Peer) -> list[dict[str, object]]:
    here = {"api_base": f"{upstream.address}/v1", "api_key": UPSTREAM_KEY}
    # nothing listens there; LiteLLM knows facts of the first, and translates before it mocks the second
    nowhere = {"api_base": "http://127.0.0.1:9/v1", "api_key": "none"}
    known, other = {"model": "openai/gpt-4o", **nowhere}, {"model": "hosted_vllm/none", **nowhere}
    return [
        {"model_name": name, "litellm_params": route}
        for name, route in {
            MODEL: {"model": f"openai/{MODEL}", **here},
            BAD_KEY_MODEL: {"model": f"openai/{MODEL}", **here, "api_key": "sk-wrong"},
            TRANSLATED: {"model": f"hosted_vllm/{MODEL}", **here, "use_chat_completions_api": True},
            MOCKED: {**known, "mock_response": MOCKED_TEXT},
            MOCKED_TOOLS: {**other, "mock_tool_calls": [MOCKED_CALL]},
            MOCKED_RATE_LIMIT: {**known, "mock_response": "litellm.RateLimitError"},
            MOCKED_FAILURE: {**known, "mock_response": "litellm.InternalServerError"},
        }.items()
    ]


@contextmanager
def ollama(upstream: Peer, folder: Path) -> Iterator[Peer]:
    """ollama-proxy-plus, which speaks Ollama's API. It is not Ollama, whose server no registry has."""
    program = _python_program("ollama", "ollama-proxy")

    def command(port: int) -> list[str]:
        return [str(program), "serve", "--host", "127.0.0.1", "--port", str(port)]

    environment = {
        "EXTRA_MODELS": f"{HERE_PREFIX}/{MODEL}",
        **_ollama_provider(HERE_PREFIX, upstream, UPSTREAM_KEY),
        **_ollama_provider(REFUSED_PREFIX, upstream, "sk-wrong"),
    }
    with _serving("ollama", command, "/api/version", folder, environment) as port:
        yield Peer("ollama", port, "sk-nobody-asks-for-it", upstream=upstream)


def _ollama_provider(prefix: str, upstream: Peer, key: str) -> dict[str, str]:
    name = f"PROVIDERS_{prefix.upper()}"
    return {f"{name}_BASE_URL": f"{upstream.address}/v1", f"{name}_API_KEY": key}


# installing -------------------------------------------------------------------------------------------


@cache
def _portkey() -> tuple[Path, Node]:
    """The gateway's script, and the Node that runs it."""
    # its one install script patches a development dependency that is not here
    gateway = npm_package(HERE, "portkey") / "@portkey-ai" / "gateway"
    return gateway / "build" / "start-server.js", node()


@cache
def _python_program(name: str, command: str) -> Path:
    """A program of the environment that `name`.txt pins."""
    pins = HERE / f"{name}.txt"

    def make(folder: Path) -> None:
        python = environment(folder)
        install([uv(), "pip", "install", "--python", str(python), "--no-deps", "-r", str(pins)], folder)

    return installed(name, pins.read_text() + sys.version, make) / "bin" / command


# starting ---------------------------------------------------------------------------------------------


@contextmanager
def _serving(
    name: str, command: Callable[[int], list[str]], health: str, folder: Path, environment: dict[str, str]
) -> Iterator[int]:
    """Run a server until the end of the block; its port, once it answers."""
    port = free_port()
    # should this process be killed, its servers go too
    guard = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    plain = {
        key: value for key, value in os.environ.items() if not key.lower().endswith(("_api_key", "_proxy"))
    }
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*guard, *command(port)],
            cwd=folder,
            env={**plain, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_it_answers(process, f"http://127.0.0.1:{port}{health}", log)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(timeout=300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _STARTUP
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=60):
                return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            pass
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    tail = log.read_text(errors="replace")[-2000:]
    pytest.fail(f"{log.stem} did not answer (exit code {process.poll()}): {tail}")
