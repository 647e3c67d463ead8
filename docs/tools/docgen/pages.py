"""A page with every backed block filled in afresh."""

from __future__ import annotations

import re
from contextlib import ExitStack

from docgen.consoles import Stage, stage
from docgen.examples import run_example
from docgen.fences import Fence, fences, rewrite
from docgen.paths import ROOT

__all__ = ["refreshed"]


def refreshed(text: str) -> str:
    """`text` with its examples, their output and its console sessions as they are now."""
    with ExitStack() as stack:
        on_stage = any(each.verb == "run" for each in fences(text))
        scene = stack.enter_context(stage()) if on_stage else None
        return rewrite(text, lambda fence: _body(fence, scene))


def _body(fence: Fence, scene: Stage | None) -> str:
    argument = fence.argument or ""
    if fence.verb == "example":
        return (ROOT / argument).read_text(encoding="utf-8")
    if fence.verb == "output":
        return run_example(ROOT / argument)
    if fence.verb == "file" and scene is not None:
        scene.write(argument, fence.body)
    if fence.verb == "run" and scene is not None:
        return scene.run(fence.body, re.findall(r'answer="([^"]*)"', argument))
    return fence.body
