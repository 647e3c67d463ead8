"""The model on this machine: its process starts once, serves, and never outlives whom it serves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import onym
from model_support import MODEL, ends, pulled_weights
from onym.errors import (
    EmbeddedError,
    MissingExtraError,
    MissingWeightsError,
    PolicyError,
    UnsupportedError,
    UsageError,
    WeightsError,
)
from onym.llm import _embedded_server, embedded
from onym.llm.embedded import EmbeddedEndpoint
from onym.llm.types import Tool
from onym.net.policy import Policy
from support import untraced

# one worker runs them all: each start loads the model, and two loads at once would share two cores
pytestmark = [
    pytest.mark.embedded,
    pytest.mark.xdist_group("embedded"),
    pytest.mark.usefixtures("gguf"),
]

linux = pytest.mark.skipif(sys.platform != "linux", reason="watches processes through /proc and pidfd")
SYSTEM = {"role": "system", "content": embedded.DEFAULT_SYSTEM}
FRANCE = [SYSTEM, {"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def gguf() -> Path:
    return pulled_weights()


@pytest.fixture(autouse=True)
def _time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server starts, and what it wrote before its end is read to the end, however busy the machine is."""
    lines = embedded._StderrTail.last_lines

    def all_lines(tail: embedded._StderrTail, count: int) -> list[str]:
        tail._reader.join(300)
        return lines(tail, count)

    monkeypatch.setattr(embedded._StderrTail, "last_lines", all_lines)
    monkeypatch.setitem(embedded.ensure_server.__kwdefaults__, "start_timeout", 600.0)


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    embedded.close_servers()


def post(
    where: EmbeddedEndpoint, body: dict[str, Any], path: str = "/v1/chat/completions", **headers: str
) -> Any:
    """The open answer to a request with the endpoint's key."""
    request = urllib.request.Request(
        where.address + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {where.key.reveal()}"} | headers,
    )
    return urllib.request.urlopen(request, timeout=600)


def answer(where: EmbeddedEndpoint, **parameters: Any) -> dict[str, Any]:
    with post(where, {"messages": FRANCE, "temperature": 0, "max_tokens": 16} | parameters) as reply:
        return dict(json.load(reply))


def status(where: EmbeddedEndpoint, path: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(where.address + path, headers=headers)) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def slots(where: EmbeddedEndpoint) -> list[dict[str, Any]]:
    """What the server says of each conversation that it has room for."""
    key = {"Authorization": f"Bearer {where.key.reveal()}"}
    with urllib.request.urlopen(urllib.request.Request(where.address + "/slots", headers=key)) as reply:
        return list(json.load(reply))


def process_of(where: EmbeddedEndpoint) -> subprocess.Popen[bytes]:
    children = embedded._SERVERS._children.values()
    return next(child._process for child in children if child.endpoint == where)


def test_the_model_answers() -> None:
    where = embedded.ensure_server(MODEL)
    body = answer(where)
    assert body["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert body["model"] == where.model == MODEL
    assert where.origin.scheme == "http"
    assert where.origin.host == "127.0.0.1"
    assert where.address == f"http://127.0.0.1:{where.origin.port}"


def test_a_uri_reaches_it_with_no_key_and_a_neutral_system_message() -> None:
    with onym.connect(f"llm://embedded/{MODEL}?temp=0&max_tokens=16") as client:
        assert client.explain("Hi").as_dict()["body"]["messages"][0] == SYSTEM
        assert client.chat("What is the capital of France?").text == "The capital of France is Paris."


def test_what_the_runtime_would_silently_ignore_is_refused() -> None:
    with onym.connect(f"llm://embedded/{MODEL}") as client, pytest.raises(UnsupportedError) as caught:
        client.chat("What is the weather?", tools=[Tool(name="weather")])
    assert caught.value.parameter == "tools"
    with onym.connect("llm://embedded/gpt-5.4") as client, pytest.raises(UnsupportedError) as caught:
        client.chat("Hi")
    assert caught.value.code == "embedded.unknown-model"


def test_a_policy_for_foreign_uris_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "ensure_server", lambda *_, **__: pytest.fail("it was started"))
    with (
        pytest.raises(PolicyError),
        onym.connect(f"llm://embedded/{MODEL}", policy=Policy.untrusted()) as client,
    ):
        client.chat("Hi")


def test_the_endpoint_shows_no_key() -> None:
    where = embedded.ensure_server(MODEL)
    assert where.key.reveal() not in repr(where)
    assert len(where.key.reveal()) >= 40


def test_nobody_without_the_key_is_served_and_no_web_page_is_let_in() -> None:
    where = embedded.ensure_server(MODEL)
    assert status(where, "/v1/models") == 401
    assert status(where, "/v1/models", Authorization="Bearer guess") == 401
    assert status(where, "/slots") == 401
    assert status(where, "/v1/models", Authorization=f"Bearer {where.key.reveal()}") == 200
    with post(where, {"messages": FRANCE, "max_tokens": 1}, Origin="https://evil.example") as reply:
        assert reply.headers.get("Access-Control-Allow-Origin") in (None, "")
        assert reply.headers.get("Access-Control-Allow-Credentials") is None


@linux
def test_the_key_is_in_no_argument_and_no_environment_of_the_child() -> None:
    where = embedded.ensure_server(MODEL)
    proc = Path("/proc") / str(process_of(where).pid)
    key = where.key.reveal().encode()
    assert key not in (proc / "cmdline").read_bytes()
    assert key not in (proc / "environ").read_bytes()


def test_the_child_is_reused_while_it_lives_and_replaced_when_it_is_dead() -> None:
    first = embedded.ensure_server(MODEL)
    assert embedded.ensure_server(MODEL) == first
    process = process_of(first)
    process.kill()
    process.wait()
    second = embedded.ensure_server(MODEL)
    assert second.key != first.key
    assert answer(second)["model"] == MODEL


def test_threads_that_ask_at_once_share_one_child() -> None:
    embedded.close_servers()
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: embedded.ensure_server(MODEL), range(16)))
    assert len(found) == 1
    # the threads that started it are gone, which is not the end of the process
    assert answer(found.pop())["model"] == MODEL


def test_closing_ends_the_process_in_the_middle_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    where = embedded.ensure_server(MODEL)
    process = process_of(where)
    # it would be killed after two seconds
    wait = process.wait
    monkeypatch.setattr(process, "wait", lambda timeout=None: wait(300))
    with post(where, {"messages": FRANCE, "stream": True, "max_tokens": 4000, "ignore_eos": True}) as reply:
        assert reply.readline().startswith(b"data: ")
        embedded.close_servers()
    assert process.returncode == 0
    with pytest.raises(urllib.error.URLError):
        status(where, "/health")
    embedded.close_servers()


def test_other_options_are_another_child_which_goes_by_any_name(gguf: Path, tmp_path: Path) -> None:
    file = tmp_path / "any name.gguf"
    file.symlink_to(gguf)
    named = embedded.ensure_server("my/model:1", gguf=file, context=512, parallel=1)
    assert named.address != embedded.ensure_server(MODEL).address
    assert answer(named)["model"] == "my/model:1"
    with pytest.raises(urllib.error.HTTPError) as caught:
        answer(named, messages=[SYSTEM, {"role": "user", "content": "word " * 600}])
    with caught.value as error:
        assert json.load(error)["error"]["type"] == "exceed_context_size_error"
    embedded.close_servers()


def test_a_registered_file_is_found_by_its_name(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_FILES", {})
    with pytest.raises(UnsupportedError):
        embedded.ensure_server("my-model")
    embedded.register_model("my-model", gguf)
    assert answer(embedded.ensure_server("my-model"), max_tokens=1)["model"] == "my-model"
    with pytest.raises(WeightsError):
        embedded.register_model("no-model", gguf.parent)


def test_one_conversation_has_the_whole_context_that_was_asked_for() -> None:
    where = embedded.ensure_server(MODEL, context=600, parallel=2)
    long = [SYSTEM, {"role": "user", "content": "word " * 500}]
    assert answer(where, messages=long, max_tokens=1)["usage"]["prompt_tokens"] > 500


def test_an_abandoned_answer_frees_its_slot() -> None:
    where = embedded.ensure_server(MODEL, parallel=1)
    with post(where, {"messages": FRANCE, "stream": True, "max_tokens": 4000, "ignore_eos": True}) as reply:
        for _ in range(2 * 50):  # each token is a line and an empty one
            assert reply.readline()
        assert [slot["is_processing"] for slot in slots(where)] == [True]
    # nearly 4000 tokens were still to come
    while busy := [slot for slot in slots(where) if slot["is_processing"]]:
        for slot in busy:
            assert slot["next_token"][0]["n_decoded"] < 1500, "the server went on writing"
    assert answer(where, max_tokens=2)["usage"]["completion_tokens"] <= 2


def test_a_seed_fixes_the_text_and_a_stop_ends_it() -> None:
    where = embedded.ensure_server(MODEL)
    texts = {answer(where, seed=7, temperature=0.9)["choices"][0]["message"]["content"] for _ in range(3)}
    assert len(texts) == 1
    stopped = answer(where, stop=["France"])["choices"][0]
    assert stopped == stopped | {"finish_reason": "stop"}
    assert stopped["message"]["content"] == "The capital of "


def test_bad_options_are_refused_before_anything_starts() -> None:
    for options in ({"context": 0}, {"parallel": 0}):
        with pytest.raises(UsageError):
            embedded.ensure_server(MODEL, **options)
    with pytest.raises(UnsupportedError) as caught:
        embedded.ensure_server("llama-9-giant")
    assert caught.value.model == "llama-9-giant"


def test_missing_pieces_are_named_with_the_command_that_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONYM_CACHE", str(tmp_path))
    with pytest.raises(MissingWeightsError) as caught:
        embedded.ensure_server(MODEL)
    assert caught.value.command == f"onym models pull {MODEL}"
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError) as caught:
        embedded.ensure_server(MODEL)
    assert caught.value.command == f"pip install 'onym[embedded]' && onym models pull {MODEL}"
    assert "pip install 'onym[embedded]'" in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 something else"])
def test_a_file_that_is_no_gguf_is_refused_before_anything_starts(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(WeightsError, match=r"model\.gguf") as caught:
        embedded.ensure_server("mine", gguf=file)
    assert caught.value.code == "embedded.no-gguf"


def test_a_broken_gguf_is_an_error_with_the_runtimes_own_words(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(EmbeddedError) as caught:
        embedded.ensure_server("mine", gguf=file)
    assert "RuntimeError: Failed to init server" in caught.value.message
    assert "failed to load model" in caught.value.message


def runtime(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Have child processes find this instead of the runtime."""
    (folder / "xllamacpp.py").write_text("import os, signal, sys, threading\n" + script)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os.kill(os.getpid(), 40)", "signal 40"),
        ("os._exit(3)", "exit code 3"),
        ("raise ImportError('no libgomp.so.1')", "ImportError: no libgomp.so.1"),
        ("print('noise\\n' * 99999, 'the reason', flush=True); os._exit(4)", "the reason"),
    ],
)
def test_a_runtime_that_dies_at_the_start_is_an_error_that_says_how(
    gguf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    said: str,
) -> None:
    runtime(monkeypatch, tmp_path, script)
    with pytest.raises(EmbeddedError, match=said) as caught:
        embedded.ensure_server("crashes", gguf=gguf)
    assert len(caught.value.message) < 1000
    assert (caught.value.hint is not None) is (said == "SIGILL" or "libgomp" in said)
    assert not [launch for launch in embedded._SERVERS._children if launch.model == "crashes"]


def test_of_what_the_server_writes_to_standard_error_only_the_end_is_kept() -> None:
    reading, writing = os.pipe()
    tail = embedded._StderrTail(os.fdopen(reading, "rb", buffering=0))
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(b"x" * 1_000_000 + b"\nlast\n")
    assert tail.last_lines(1) == ["last"]
    assert len(tail._kept) == embedded._STDERR_KEPT
    tail.close()


def test_a_runtime_that_hangs_is_given_up_after_the_time_allowed(
    gguf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime(monkeypatch, tmp_path, "threading.Event().wait()")
    with pytest.raises(EmbeddedError, match=r"\b0\.5 seconds") as caught:
        embedded.ensure_server("hangs", gguf=gguf, start_timeout=0.5)
    assert (caught.value.code, caught.value.hint is not None) == ("embedded.failed", True)


def test_an_interpreter_that_cannot_be_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.sys, "executable", "/no/such/python")
    with pytest.raises(EmbeddedError, match="No such file or directory") as caught:
        embedded.ensure_server(MODEL, context=100)
    assert (caught.value.code, caught.value.hint is not None) == ("embedded.failed", True)


def test_nothing_in_the_current_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise SystemExit('imported from the current folder')")
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    embedded.close_servers()
    assert answer(embedded.ensure_server(MODEL))["model"] == MODEL


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (64, 4)])
def test_a_core_is_left_to_others(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert embedded._choose_thread_count() == threads
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert embedded._choose_thread_count() == threads


def test_a_child_that_is_told_nothing_leaves() -> None:
    done = subprocess.run(
        [sys.executable, "-m", _embedded_server.__name__], stdin=subprocess.DEVNULL, check=False, timeout=600
    )
    assert done.returncode == 2


def test_a_child_that_does_not_hear_the_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    where = embedded.ensure_server(MODEL)
    process = process_of(where)
    os.kill(process.pid, signal.SIGSTOP)
    embedded.close_servers()
    assert process.returncode == -signal.SIGKILL


_OWNER = f"""
import os, signal, sys, threading, time
from onym.llm import _embedded_server, embedded
# a shell that runs the tests in its background has them ignore Ctrl-C, and nohup SIGHUP
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
{{before}}
where = embedded.ensure_server({MODEL!r}, start_timeout=600)
pid = next(iter(embedded._SERVERS._children.values()))._process.pid
print(pid, flush=True)
"""


@contextmanager
def owner(script: str, before: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that runs `before`, starts the model and runs `script`; and the pid of the server."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER.format(before=before) + script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=untraced(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_server_dies_with_an_owner_that_is_killed(number: signal.Signals) -> None:
    with owner("sys.stdin.read()") as (process, server):
        process.send_signal(number)
        process.wait(timeout=600)
        assert ends(server)


@linux
@pytest.mark.parametrize("script", ["", "sys.exit(3)", "raise RuntimeError", "os._exit(0)"])
def test_the_server_dies_with_an_owner_that_ends(script: str) -> None:
    with owner("sys.stderr = open(os.devnull, 'w')\n" + script) as (process, server):
        process.wait(timeout=600)
        assert ends(server)


@linux
def test_the_server_dies_with_its_owner_though_a_fork_of_the_owner_lives() -> None:
    script = """
held = next(iter(embedded._SERVERS._children.values()))._process
if os.fork() == 0:
    assert not embedded._SERVERS._children
    assert held.stdin.closed
    print("forked", flush=True)
    time.sleep(600)
sys.stdin.read()
"""
    # the server hears of it by the end of the pipe alone, and not when it looks
    with owner(script, "_embedded_server._LOOK = 3600.0") as (process, server):
        assert process.stdout is not None
        assert process.stdout.readline() == "forked\n"
        try:
            process.kill()
            process.wait()
            assert ends(server)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@linux
def test_a_fork_starts_a_server_of_its_own_and_leaves_the_first_alone() -> None:
    script = f"""
child = os.fork()
if child == 0:
    mine = embedded.ensure_server({MODEL!r}, start_timeout=600)
    print(mine.address != where.address, flush=True)
    sys.exit()
os.waitpid(child, 0)
print(embedded.ensure_server({MODEL!r}) == where, flush=True)
sys.stdin.read()
"""
    with owner(script) as (process, server):
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert process.stdout.readline() == "True\n"
        process.kill()
        assert ends(server)


@linux
def test_the_server_dies_with_an_owner_whose_pipe_another_process_holds() -> None:
    # it looks who its parent is, for the end of the pipe does not come
    script = """
process = next(iter(embedded._SERVERS._children.values()))._process
os.set_inheritable(process.stdin.fileno(), True)
import subprocess
holder = subprocess.Popen(["sleep", "600"], close_fds=False)
print(holder.pid, flush=True)
sys.stdin.read()
"""
    with owner(script) as (process, server):
        assert process.stdout is not None
        holder = int(process.stdout.readline())
        try:
            process.kill()
            process.wait()
            assert ends(server)
        finally:
            os.kill(holder, signal.SIGKILL)


@linux
def test_ctrl_c_reaches_the_owner_and_not_the_server() -> None:
    script = """
try:
    print("ready", flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    import urllib.request
    print(urllib.request.urlopen(where.address + "/health").status, flush=True)
"""
    with owner(script) as (process, server):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        os.kill(server, signal.SIGINT)  # even if it were in the same group
        assert process.stdout.readline() == "200\n"
        process.wait(timeout=600)
        assert ends(server)


@linux
def test_a_server_that_is_still_loading_dies_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a load that keeps the interpreter to itself, as the real one does, and never ends
    told = tmp_path / "told"
    os.mkfifo(told)
    runtime(
        monkeypatch,
        tmp_path,
        f"import ctypes\nopen({str(told)!r}, 'w').write(str(os.getpid()))\nctypes.PyDLL(None).pause()",
    )
    script = f"from onym.llm import embedded; embedded.ensure_server({MODEL!r})"
    process = subprocess.Popen([sys.executable, "-c", script])
    server = int(told.read_text())
    process.kill()
    process.wait()
    assert ends(server)
