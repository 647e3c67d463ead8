"""A page with every backed block filled in afresh."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from docgen.consoles import Stage, port_of, stage
from docgen.examples import run_example
from docgen.fences import Fence, fences, rewrite
from docgen.paths import ROOT

__all__ = ["refreshed"]


def refreshed(text: str) -> str:
    """`text` with its examples, their output and its console sessions as they are now."""
    with ExitStack() as stack:
        found = fences(text)
        ports = [_port(each) for each in found if each.verb == "serve"]
        on_stage = any(each.verb in {"run", "serve"} for each in found)
        scene = stack.enter_context(stage(ports)) if on_stage else None
        return rewrite(text, lambda fence: _body(fence, scene))


def _body(fence: Fence, scene: Stage | None) -> str:
    argument = fence.argument or ""
    if fence.verb == "example":
        code = (ROOT / argument).read_text(encoding="utf-8")
        if scene is not None:
            scene.write(
                Path(argument).name, code
            )  # for the commands after it, such as a server or its client
        return code
    if fence.verb == "output":
        return run_example(ROOT / argument)
    if fence.verb == "file" and scene is not None:
        scene.write(argument, fence.body)
    if fence.verb == "serve" and scene is not None:
        return scene.serve(fence.body, _port(fence))
    if fence.verb == "run" and scene is not None:
        return scene.run(fence.body, re.findall(r'answer="([^"]*)"', argument))
    return fence.body


def _port(fence: Fence) -> str:
    return port_of(fence.body + (fence.argument or ""))
