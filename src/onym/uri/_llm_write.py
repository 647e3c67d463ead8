"""Writing an llm URI: nothing but the draft's own grammar comes out (draft 3.2, 4.2.1 and 8).

The one exception is a key without a label: the draft has no form for it, so it is written as RFC 3986
allows, with an empty label (`llm://:KEY@HOST/MODEL`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onym.errors import ParameterError, URIError
from onym.uri._llm_parse import refuse
from onym.uri._names import branch, shown
from onym.uri._percent import FRAGMENT, SEGMENT, USERINFO, decode
from onym.uri._query import ROOMY, write
from onym.uri._query_read import READERS, read_typed
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onym.uri._limits import Limits

__all__ = ["changed", "compose", "compose_raw", "expand", "masked"]

# a reg-name, an IP literal with or without its brackets; `parse` judges it further
_HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[A-Za-z0-9._~!$&'()*+,;=:-]+\]|[0-9A-Fa-f:.]+").fullmatch


def compose(
    label: str | None,
    key: Secret | None,
    host: str,
    port: int | None,
    segments: Sequence[str],
    typed: Mapping[str, Any],
    fragment: str | None,
    *,
    reveal: bool,
    limits: Limits,
) -> str:
    """The text for decoded parts; `host` as it stands in a URI. Without `reveal`, keys are `***`."""
    userinfo = ""
    if key is not None:
        text = USERINFO.quote(key.reveal()) if reveal else MARK
        userinfo = f"{USERINFO.quote(label or '')}:{text}@"
    elif label:
        userinfo = f"{USERINFO.quote(label)}@"
    at = "" if port is None else f":{port}"
    model = "/".join(map(SEGMENT.quote, segments))
    query = write(typed, limits, reveal=reveal)
    query = f"?{query}" if query else ""
    tail = "" if fragment is None else f"#{FRAGMENT.quote(fragment)}"
    return f"llm://{userinfo}{host}{at}/{model}{query}{tail}"


_AUTH = re.compile(r"(?<=[?&])auth=([^&#]*)")


def masked(text: str) -> str:
    """The text of a URI with every credential masked, and the reference in `auth=` left readable."""
    from onym.uri.redact import redact  # not needed to read a URI

    out = redact(text)
    found = _AUTH.search(text)
    if found is None or f"auth={MARK}" not in out:
        return out
    try:
        READERS["auth"](decode(found[1], component="query"), ROOMY)
    except URIError:
        return out  # no reference: a pasted key, perhaps
    return _AUTH.sub(lambda _: found[0], out, count=1)


def compose_raw(
    host: str,
    model: str | Sequence[str],
    label: str | None,
    key: str | Secret | None,
    port: int | None,
    params: Mapping[str, Any],
    fragment: str | None,
    limits: Limits,
) -> str:
    """The revealed text for what a caller gave; `LLMURI.parse` then judges it as any other text."""
    if not _HOST(host):
        raise refuse(
            "the host is not a name or an address",
            "bad-host",
            "host",
            len("llm://"),
            "4.2.2",
            hint="a name outside ASCII goes through LLMURI.from_iri",
        )
    if ":" in host and host[0] != "[":
        host = f"[{host}]"
    if key is not None and not isinstance(key, Secret):
        key = Secret(key)
    if key is not None and not key.reveal():
        raise refuse(
            "the api-key is empty", "empty-key", "userinfo", len("llm://"), "4.2.1", parameter="api-key"
        )
    if port is not None and type(port) is not int:
        raise TypeError("a port is an int")
    segments = model.split("/") if isinstance(model, str) else list(model)
    return compose(
        label, key, host, port, segments, expand(params, limits), fragment, reveal=True, limits=limits
    )


def expand(params: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """`params` as typed pairs: None is left out, plain objects become dotted names (draft 4.4)."""
    typed: dict[str, Any] = {}
    for name, value in params.items():
        if not isinstance(name, str):
            raise TypeError("the name of a parameter is a str")
        if value is None:
            continue
        if name == "stop":
            value = _stops(value)
        for written, part in _dotted(name, value, limits):
            if written in typed:
                raise ParameterError(
                    f"the parameter {shown(written)} is given twice",
                    code="llm.clash",
                    component="query",
                    clause="draft-levy-llm-uri-scheme-00 4.4",
                    parameter=shown(written),
                )
            typed[written] = part
    return typed


def _stops(value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if isinstance(stops, Mapping) or not isinstance(stops, Iterable):
        raise TypeError("stop is a str or a sequence of str")
    found = tuple(stops)
    if not all(isinstance(stop, str) for stop in found):
        raise TypeError("stop is a str or a sequence of str")
    return found


def _dotted(name: str, value: Any, limits: Limits) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield name, value
    elif _is_plain(value) and all(name.split(".")) and len(branch(name)) + _levels(value) <= limits.depth:
        for key, member in value.items():
            yield from _dotted(f"{name}.{key}", member, limits)
    else:
        yield name, dict(value)


def _is_plain(value: Mapping[Any, Any]) -> bool:
    """Whether dot-notation can say all of it: no lists, no empty objects, no odd keys."""
    return bool(value) and all(
        isinstance(key, str)
        and key != ""
        and key.isprintable()
        and "." not in key
        and (
            _is_plain(member) if isinstance(member, Mapping) else isinstance(member, bool | int | float | str)
        )
        for key, member in value.items()
    )


def _levels(value: Mapping[Any, Any]) -> int:
    return 1 + max((_levels(member) for member in value.values() if isinstance(member, Mapping)), default=0)


def changed(typed: Mapping[str, Any], changes: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """`typed` with `changes` in the places of what they replace, new ones at the end; None removes."""
    read_typed(
        write(expand(changes, limits), limits, reveal=True), 0, limits
    )  # what is old was judged before
    out: dict[str, Any] = {}
    left = dict(changes)
    for name, value in typed.items():
        replaced = _replaced(name, changes)
        if replaced is None:
            out[name] = value
        elif replaced in left:
            out.update(expand({replaced: left.pop(replaced)}, limits))
    return {**out, **expand(left, limits)}


def _replaced(name: str, changes: Mapping[str, Any]) -> str | None:
    """The change that takes the place of `name`: its own, or that of an object above it."""
    parts = branch(name)
    return next((above for n in range(len(parts)) if (above := ".".join(parts[: n + 1])) in changes), None)
