"""Where telemetry meets clients and servers. Off, it is a look at one attribute, and nothing is loaded."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onym.ai.flow import Opened
    from onym.ai.settings import ResolverSettings
    from onym.ai.telemetry import Telemetry
    from onym.ai.telemetry._stage import Stage

__all__ = ["UNSEEN", "begun", "call", "observed", "part", "wanted"]

#: stands for a stage where nobody observes
UNSEEN: Final = nullcontext()


def wanted(telemetry: Telemetry | None, *, path_key: bytes | None = None) -> Telemetry | None:
    """The telemetry that is given, else what `ONYM_TELEMETRY=1` asks for, which hashes with `path_key`."""
    if telemetry is None and os.environ.get("ONYM_TELEMETRY"):
        from onym.ai.telemetry import from_environment

        return from_environment(path_key=path_key)
    return telemetry


def observed(settings: ResolverSettings, telemetry: Telemetry | None) -> ResolverSettings:
    """The settings with their telemetry, unless they have one and none is given."""
    if telemetry is None and settings.telemetry is not None:
        return settings
    found = wanted(telemetry)
    return settings if found is None else replace(settings, telemetry=found)


def call(telemetry: Telemetry | None, method: str) -> AbstractContextManager[object]:
    """What observes a client's call in this block."""
    return UNSEEN if telemetry is None else telemetry.invoking(method)


def begun(telemetry: Telemetry | None, method: str) -> AbstractContextManager[Stage | None]:
    """The same for a call that is not over at the end of the block: the rest is its stream's."""
    return UNSEEN if telemetry is None else telemetry.invoking(method).held()


def part(opened: Opened, call: Stage | None) -> Opened:
    """What was opened, as a part of the call; that is over where the answer came whole."""
    if call is None:
        return opened
    if opened.result is not None:
        call.answered(opened.result.status)  # a refusal: what else came whole is read like a stream
        call.end()
    return replace(opened, call=call)
