"""Many requests to one endpoint: a file in, a file out, each row answered exactly once.

    report = onym.llm.batch.run("llm://openai/gpt-5-mini", "requests.jsonl", "results.jsonl")

`run` may be killed at any moment and called again: see `arun` for what is promised.
"""

from __future__ import annotations

from onym.llm.batch._engine import Engine, Local, Work
from onym.llm.batch._job import Job
from onym.llm.batch._report import BatchReport, Progress
from onym.llm.batch._results import Result
from onym.llm.batch._run import EngineName, Order, arun, run

__all__ = [
    "BatchReport",
    "Engine",
    "EngineName",
    "Job",
    "Local",
    "Order",
    "Progress",
    "Result",
    "Work",
    "arun",
    "run",
]
