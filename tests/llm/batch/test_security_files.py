"""The files of a batch in a folder where others may write, and what a server's numbers do to an output."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from onym.common.files import write_file
from onym.errors import OnymError
from onym.llm.batch import run
from onym.llm.batch._engine import make_job
from onym.llm.batch._storage import JournalWriter, SubmissionLog, touch_file
from onym.llm.config import Config
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"

posix = pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are another matter there")


@posix
@pytest.mark.parametrize("end", [".batch", ".journal", ".part", ".provider"])
@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_a_link_in_the_place_of_a_file_of_ours_leads_to_no_other_file(
    tmp_path: Path, end: str, name: str
) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    # without a line end: a ledger would be cut back to nothing
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "x"}\n', encoding="utf-8")
    (tmp_path / (name + end)).symlink_to(victim)
    with FakeProvider() as fake:
        try:
            run(fake.uri(), source, tmp_path / name, policy=Policy.local(), config=Config())
        except (OnymError, OSError):
            assert not (tmp_path / name).exists()
    assert victim.read_text(encoding="utf-8") == "precious"


@posix
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    "opened", [touch_file, SubmissionLog, lambda link: JournalWriter(link, lambda *_: None)]
)
def test_no_way_to_open_such_a_file_follows_a_link(tmp_path: Path, there: bool, opened: Any) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"precious")
    link.symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        opened(link)
    assert target.exists() is there
    write_file(link, b"new")
    assert link.read_bytes() == b"new"
    assert not link.is_symlink()
    assert not there or target.read_bytes() == b"precious"


def test_a_count_that_no_column_can_hold_leaves_the_rest_of_the_row(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from onym.llm.batch._rows import restore_journal, write_parquet

    # of a journal that an older version wrote
    usage = {"input_tokens": 10**30, "output_tokens": 2, "cached_tokens": -(10**30), "reasoning_tokens": None}
    line = {"index": 0, "id": "a", "status": "ok", "text": "t", "usage": usage, "attempts": 1}
    with (tmp_path / "out.parquet").open("wb") as out:
        write_parquet([json.dumps(line).encode() + b"\n"], out)
    restore_journal(tmp_path / "out.parquet", tmp_path / "journal")
    found = json.loads((tmp_path / "journal").read_bytes())
    assert found["text"] == "t"
    assert found["usage"] == {**dict.fromkeys(usage), "output_tokens": 2}


def test_a_job_that_is_printed_shows_no_variable_and_no_key() -> None:
    job = make_job(
        f"llm://:{KEY}@api.openai.com/m",
        key=None,
        policy=None,
        config=Config(),
        providers=None,
        environ={"OTHER_API_KEY": f"{KEY}-too"},
        on_unsupported="error",
        system_filter=None,
        overrides={},
        concurrency=1,
    )
    assert KEY not in repr(job)
