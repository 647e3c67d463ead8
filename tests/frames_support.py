"""Look for a secret in everything that a traceback holds, as tools that report errors do, and deeper."""

from __future__ import annotations

import gc
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onym.llm.providers import ProviderTable
from onym.uri.secret import Secret, SecretBytes

_TESTS = Path(__file__).resolve().parent
_SOURCE = Path(sys.modules["onym"].__file__ or "").resolve().parent
#: how deep values are walked; the error reporters that we know stop at 5
_DEPTH = 7
#: what has no values of its own to show, or is meant to hold the secret
_OPAQUE = (
    Secret,
    SecretBytes,
    # large, and made of the built-in rows
    ProviderTable,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.CodeType,
    int,
    float,
    complex,
    type(None),
)


def find_secret(error: BaseException, secret: str, *, attributes: bool = True) -> list[str]:
    """Where the error, its causes or a variable of a frame of theirs holds the secret. Our tests' own may.

    Without `attributes`, only what error reporters show: texts, containers and what `repr` returns.
    """
    found = []
    search = _Search(secret, attributes)
    for one in _list_errors(error):
        found += list(search.walk(one, type(one).__name__))
        trace = one.__traceback__
        while trace is not None:
            frame, trace = trace.tb_frame, trace.tb_next
            if not Path(frame.f_code.co_filename).is_relative_to(_TESTS):
                where = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
                for name, value in dict(frame.f_locals).items():
                    found += search.walk(value, f"{where} {name}")
    return found


def list_frames(error: BaseException) -> list[str]:
    """The functions of the package that the tracebacks of the error and its causes name."""
    found = []
    for one in _list_errors(error):
        trace = one.__traceback__
        while trace is not None:
            code, trace = trace.tb_frame.f_code, trace.tb_next
            if Path(code.co_filename).is_relative_to(_SOURCE):
                found.append(code.co_qualname)
    return found


def _list_errors(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        yield one
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


class _Search:
    """A walk over variables, which visits each object once."""

    def __init__(self, secret: str, attributes: bool) -> None:
        self.secret = secret
        self.attributes = attributes
        #: how deep an object was met; the object is kept, so that no other one gets its identity
        self.seen: dict[int, tuple[int, Any]] = {}

    def walk(self, value: Any, place: str, depth: int = 0) -> Iterator[str]:
        if isinstance(value, memoryview):
            # its repr shows nothing, so only a variable itself counts
            value = bytes(value.obj) if depth == 0 and isinstance(value.obj, bytes) else b""
        if isinstance(value, str | bytes | bytearray):
            if (self.secret if isinstance(value, str) else self.secret.encode()) in value:  # type: ignore[operator]
                yield place
            return
        if depth > _DEPTH or self.seen.get(id(value), (_DEPTH + 1, None))[0] <= depth:
            return
        self.seen[id(value)] = depth, value
        if self.secret in _get_repr(value):
            yield f"repr({place})"
        if isinstance(value, _OPAQUE):
            return
        members = list(_list_members(value))
        if self.attributes:
            members += _list_attributes(value)
        for step, member in members:
            yield from self.walk(member, f"{place}{step}", depth + 1)


def _get_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - of an object that is not made yet
        return ""


def _list_members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | types.MappingProxyType):
        for key, member in list(value.items()):
            yield "[key]", key
            yield f"[{key!r}]", member
    if isinstance(value, list | tuple | set | frozenset | deque):
        for member in list(value):
            yield "[]", member


def _list_attributes(value: Any) -> Iterator[tuple[str, Any]]:
    names = {name for kind in type(value).__mro__ for name in _list_slots(kind)}
    names |= set(getattr(value, "__struct_fields__", ()))
    for name in sorted(names):
        try:
            yield f".{name}", object.__getattribute__(value, name)
        except AttributeError:
            continue
    members = getattr(value, "__dict__", None)
    if isinstance(members, dict):
        yield from ((f".{name}", member) for name, member in list(members.items()))


def _list_slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def interrupt_everywhere(call: Callable[[], object]) -> Iterator[KeyboardInterrupt]:
    """Run the call again and again, each time with Ctrl-C at another line of the package, and yield what
    the caller gets. A run that an error does not leave is not reported. An error has its frames until the
    next one.
    """
    lines: dict[tuple[str, int], None] = {}

    def record(frame: types.FrameType, event: str, argument: object) -> Any:
        if not _is_ours(frame):
            return None
        if event == "line":
            lines.setdefault((frame.f_code.co_filename, frame.f_lineno))
        return record

    _run_traced(record, call)
    for place in lines:

        def interrupt(
            frame: types.FrameType, event: str, argument: object, place: tuple[str, int] = place
        ) -> Any:
            if not _is_ours(frame):
                return None
            if event == "line" and (frame.f_code.co_filename, frame.f_lineno) == place:
                raise KeyboardInterrupt
            return interrupt

        try:
            _run_traced(interrupt, call)
        except KeyboardInterrupt as error:
            yield error
            _drop_frames(error)
    # a socket that was lost between two lines is reported here, to the test that may lose it, and to no other
    gc.collect()


def _drop_frames(error: BaseException | None) -> None:
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


def _is_ours(frame: types.FrameType) -> bool:
    # what a destructor raises goes nowhere
    return frame.f_code.co_filename.startswith(str(_SOURCE)) and frame.f_code.co_name != "__del__"


def _run_traced(tracer: Any, call: Callable[[], object]) -> None:
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(before)
