"""`onym batch --provider-batch` on the command line, in this process."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from batch_api_server import KEY, OpenAIServer
from batch_support import read_results, write_rows
from onym.cli._app import app


@pytest.fixture
def server():
    with OpenAIServer() as found:
        yield found


def onym(*args):
    ran = CliRunner().invoke(app, ["batch", *args], prog_name="onym")
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran


def args(server, folder, *more):
    source = write_rows(folder / "in.jsonl", 5)
    return (
        server.uri(),
        str(source),
        "-o",
        str(folder / "out.jsonl"),
        "--provider-batch",
        "--poll",
        "0s",
        *more,
    )


def test_rows_go_through_the_batch_api(server, tmp_path):
    ran = onym(*args(server, tmp_path, "--json"))
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["answered"] == 5
    assert server.steps()[:2] == ["upload", "create"]
    assert len(read_results(tmp_path / "out.jsonl")) == 5


@pytest.mark.parametrize("wrong", [
    ("--cancel",), ("--poll", "1s"), ("--provider-batch", "--engine", "ray"),
    ("--provider-batch", "--poll", "-1s"), ("--provider-batch", "--poll", "5"),
])  # fmt: skip
def test_options_that_do_not_go_together_are_refused(server, tmp_path, wrong):
    source = write_rows(tmp_path / "in.jsonl", 1)
    assert onym(server.uri(), str(source), "-o", str(tmp_path / "out"), *wrong).exit_code == 2
    assert server.requests == []


def test_the_command_to_go_on_names_the_batch_api_and_the_pace(server, tmp_path):
    server.refuse["look"] = [401]
    ran = onym(*args(server, tmp_path))
    assert ran.exit_code == 7
    (line,) = [line for line in ran.stderr.splitlines() if "onym batch" in line]
    assert "--provider-batch --poll 0s" in line
    assert "--engine" not in line
    assert KEY not in ran.stderr


def test_rows_that_a_cancellation_leaves_are_told(server, tmp_path):
    ran = onym(*args(server, tmp_path, "--cancel", "--yes"))
    assert ran.exit_code == 1
    assert "5 rows remain; to resume, run: onym batch" in ran.stderr


def test_another_engine_is_told_that_the_rows_are_at_the_provider(server, tmp_path):
    server.refuse["look"] = [401]
    words = args(server, tmp_path)
    onym(*words)
    ran = onym(*words[: words.index("--provider-batch")], "--json")
    assert ran.exit_code == 2
    assert json.loads(ran.stdout)["error"]["code"] == "usage.batch-at-provider"


def test_an_endpoint_without_a_batch_api_says_what_to_leave_out(tmp_path):
    source = write_rows(tmp_path / "in.jsonl", 1)
    ran = onym(
        "llm://localhost:11434/x?api=ollama", str(source), "-o", str(tmp_path / "o"), "--provider-batch"
    )
    assert "Remove --provider-batch" in ran.stderr
    assert "llm.no-batch" in ran.stderr
