"""Parquet in, Parquet out, the same promises."""

from __future__ import annotations

import json
import sys

import pytest

from onym.errors import UsageError
from onym.llm.batch import run
from onym.llm.config import Config
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def fake():
    with FakeProvider() as provider:
        yield provider


def write(path, rows, **columns):
    parquet.write_table(pa.Table.from_pylist(rows, **columns), path)
    return path


def go(fake, source, output, **options):
    return run(fake.uri(), source, output, policy=Policy.local(), config=Config(), **options)


def read(path):
    return parquet.read_table(path).to_pylist()


ROWS = [
    {"id": "a", "prompt": "one", "messages": None, "params": {"temp": 0.5, "seed": None}, "label": 1},
    {"id": "b", "prompt": None, "messages": [{"role": "user", "content": "two"}], "params": None, "label": 2},
    {"id": None, "prompt": "three", "messages": None, "params": {"temp": None, "seed": 3}, "label": 3},
]


@pytest.mark.parametrize("order", ["input", "completion"])
def test_rows_of_a_parquet_file_are_answered_into_one(fake, tmp_path, order):
    report = go(fake, write(tmp_path / "in.parquet", ROWS), tmp_path / "out.parquet", order=order)
    rows = sorted(read(tmp_path / "out.parquet"), key=lambda row: row["index"])
    assert [(row["id"], row["text"], row["status"]) for row in rows] == [
        ("a", "one", "ok"),
        ("b", "two", "ok"),
        ("2", "three", "ok"),
    ]
    assert (rows[0]["input_tokens"], json.loads(rows[0]["tool_calls"]), rows[0]["error"]) == (5, [], None)
    assert report.answered == 3
    sent = {request.json["messages"][0]["content"]: request.json for request in fake.requests}
    assert sent["one"]["temperature"] == 0.5
    assert sent["three"]["seed"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "in.parquet",
        "out.parquet",
        "out.parquet.batch",
    ]


def test_columns_that_nest_may_be_texts_of_json(fake, tmp_path):
    rows = [{"messages": json.dumps([{"role": "user", "content": "x"}])}, {"messages": "not json"}]
    go(fake, write(tmp_path / "in.parquet", rows), tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["status"] for row in found] == ["ok", "error"]


def test_a_finished_parquet_output_is_not_asked_again_and_failed_rows_may_be(fake, tmp_path):
    source, out = write(tmp_path / "in.parquet", ROWS), tmp_path / "out.parquet"
    fake.fail(400)
    assert go(fake, source, out, concurrency=1).failed == 1
    first = read(out)
    assert json.loads(first[0]["error"])["status"] == 400
    fake.requests.clear()
    assert go(fake, source, out).failed == 1
    assert (fake.requests, read(out)) == ([], first)
    assert go(fake, source, out, retry_errors=True).failed == 0
    assert len(fake.requests) == 1
    assert [row["text"] for row in read(out)] == ["one", "two", "three"]
    assert read(out)[1:] == first[1:]


def test_the_results_of_no_rows_are_a_file_with_the_same_columns(fake, tmp_path):
    (tmp_path / "in.jsonl").write_text("")
    go(fake, tmp_path / "in.jsonl", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").column_names[:3] == ["index", "id", "status"]


def test_what_is_no_parquet_file_is_refused(fake, tmp_path):
    (tmp_path / "in.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UsageError) as caught:
        go(fake, tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert caught.value.code == "usage.bad-input"


def test_without_pyarrow_the_error_says_what_to_install(fake, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError) as caught:
        go(fake, tmp_path / "in.jsonl", tmp_path / "out.parquet")
    assert "onym[parquet]" in caught.value.hint
