"""What `check` says of the query of an llm URI (draft 4.4, 6, 8, 10.1 and 10.4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from onym.uri._findings import Edit, Findings, looks_like_key, reserved_span
from onym.uri._llm_write import expand
from onym.uri._names import PROVIDER_NAMES, closest, is_redirecting, shown
from onym.uri._percent import QUERY_NAME, QUERY_VALUE, decode
from onym.uri._query import ROOMY, write
from onym.uri._query_read import READERS
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.uri.diagnostics import Severity
    from onym.uri.llm import LLMURI

__all__ = ["check"]

_FORMATS = ("text", "json", "json_schema")
# marks of direction and what has no width: they hide instructions from a reader
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# how no person writes a number: a plus sign, zeros in front
_ODD_NUMBER = re.compile(r"\+.*|-?0[0-9].*").fullmatch


class _Item(NamedTuple):
    """One `name=value` as it stands in the text, from `start` to `end`."""

    start: int
    end: int
    raw_name: str
    raw_value: str
    name: str
    value: str

    @property
    def value_start(self) -> int:
        """Behind the `=`."""
        return self.end - len(self.raw_value)

    @property
    def span(self) -> tuple[int, int]:
        """The whole pair."""
        return self.start, self.end

    @property
    def value_span(self) -> tuple[int, int]:
        """The value alone."""
        return self.value_start, self.end


def check(findings: Findings, uri: LLMURI, query: str, at: int) -> None:
    """Add to `findings` what there is to say of `query`, which stands at `at`."""
    end = at + len(query)
    seen: set[str] = set()
    withheld = frozenset(uri.withheld)
    for raw in query.split("&"):
        if raw:
            item = _item(raw, at)
            _check_name(findings, item, "=" in raw)
            if item.name in READERS:
                _check_known(findings, item)
            else:
                _check_unknown(findings, uri, item, withheld=withheld, repeated=item.name in seen)
            _check_value(findings, item)
            seen.add(item.name)
        elif query:
            _empty_pair(findings, at, end)
        else:
            message = "the query is empty"
            findings.add("note", "empty-query", message, "4.4", "query", (at - 1, at), edit="")
        at += len(raw) + 1


def _item(raw: str, at: int) -> _Item:
    name, _, value = raw.partition("=")
    return _Item(
        at, at + len(raw), name, value, decode(name, component="query"), decode(value, component="query")
    )


def _empty_pair(findings: Findings, at: int, end: int) -> None:
    # the delimiter behind it goes, or the one before it at the end
    span = (at - 1, at) if at == end else (at, at + 1)
    findings.add("warning", "empty-pair", "there is nothing between two &", "4.4", "query", span, edit="")


def _check_name(findings: Findings, item: _Item, has_value: bool) -> None:
    parameter = shown(item.name)
    span = (item.start, item.start + len(item.raw_name))
    if not has_value:
        message = f"the parameter {parameter} has no = and no value"
        edit = Edit(item.end, item.end, "=")
        findings.add("warning", "no-value", message, "4.4", "query", span, edit=edit, parameter=parameter)
    if not item.name:
        findings.add("warning", "empty-name", "a parameter has no name", "4.4", "query", item.span)
    if _CONTROL.search(item.name):
        message = f"the name of the parameter {parameter} holds a control character"
        findings.add("error", "control-in-name", message, "10.3", "query", span, parameter=parameter)
    normal = QUERY_NAME.quote(item.name)
    if normal != item.raw_name:
        _check_encoding(findings, item, span, normal, "name")


def _check_encoding(findings: Findings, item: _Item, span: tuple[int, int], normal: str, what: str) -> None:
    raw = item.raw_name if what == "name" else item.raw_value
    stray = reserved_span(raw)
    parameter = shown(item.name)
    edit = Edit(*span, normal)
    if stray is None:
        message = f"the {what} of the parameter {parameter} has a simpler encoding"
        findings.add(
            "note", "not-normal", message, "RFC 3986 6.2.2", "query", span, edit=edit, parameter=parameter
        )
        return
    message = f"the {what} of the parameter {parameter} holds reserved characters that are not encoded"
    span = (span[0] + stray[0], span[0] + stray[1])
    # the colon of a reference such as env:NAME does no harm, and everybody writes it so
    severity: Severity = "note" if item.name == "auth" else "warning"
    findings.add(severity, f"raw-{what}", message, "8", "query", span, edit=edit, parameter=parameter)


def _check_value(findings: Findings, item: _Item) -> None:
    raw = item.raw_value
    if item.name == "stop":
        normal = ",".join(QUERY_VALUE.quote(decode(part, component="query")) for part in raw.split(","))
    else:
        normal = QUERY_VALUE.quote(item.value)
    if normal != raw and not ("+" in raw and item.name in ("system", "stop")):
        _check_encoding(findings, item, item.value_span, normal, "value")
    if looks_like_key(item.value):
        parameter = shown(item.name)
        message = f"the value of the parameter {parameter} looks like a key"
        findings.add("warning", "key-shaped", message, "10.1", "query", item.value_span, parameter=parameter)


def _check_known(findings: Findings, item: _Item) -> None:
    """What is well-known, or the client's own `auth`: its value has been judged already."""
    name, span = item.name, item.value_span
    if name in ("system", "stop"):
        if "+" in item.raw_value:
            message = f"a + in {name} is a plus sign; a blank is %20"
            edit = Edit(*span, item.raw_value.replace("+", "%20"))
            findings.add("warning", "plus", message, "4.4", "query", span, edit=edit, parameter=name)
        if name == "system":
            message = "a system prompt in a URI is as trustworthy as whoever wrote the URI"
            findings.add("note", "system", message, "10.4", "query", item.span, parameter=name)
        if _INVISIBLE.search(item.value):
            message = f"{name} holds characters that no reader sees"
            findings.add("warning", "invisible", message, "10.4", "query", span, parameter=name)
    elif name == "format" and item.value not in _FORMATS:
        lower = item.value.lower()
        message = f"format is one of {', '.join(_FORMATS)}"
        better = lower if lower in _FORMATS else None
        findings.add("warning", "unknown-format", message, "6", "query", span, edit=better, parameter=name)
    elif _ODD_NUMBER(item.value):
        _odd_number(findings, item, "")


def _odd_number(findings: Findings, item: _Item, hint: str) -> None:
    parameter = shown(item.name)
    message = f"the parameter {parameter} is read as a number, its sign or zeros in front are lost{hint}"
    findings.add("note", "number-spelling", message, "6", "query", item.value_span, parameter=parameter)


def _check_unknown(
    findings: Findings, uri: LLMURI, item: _Item, *, withheld: frozenset[str], repeated: bool
) -> None:
    name = item.name
    parameter = shown(name)
    value = uri._typed[name]  # `params` would copy it, for each of its repetitions
    if repeated:
        message = f"the parameter {parameter} stands more than once: its values make a list"
        findings.add("warning", "repeated", message, "4.4", "query", item.span, parameter=parameter)
    if name in withheld:
        _check_withheld(findings, uri, item, parameter)
        return
    if "." in name and not all(name.split(".")):
        message = f"the name {parameter} has an empty part, so it nests nothing"
        findings.add("warning", "empty-dots", message, "4.4", "query", item.span, parameter=parameter)
    known = PROVIDER_NAMES.get(name) or PROVIDER_NAMES.get(name.partition(".")[0])
    slip = None if known or "." in name else closest(name)
    if known is not None:
        message = f"{parameter} is passed through as it is; the draft's name for it is {known}"
        _rename(findings, uri, item, "provider-name", message, known, "6")
    elif slip is not None:
        message = f"{parameter} is no well-known parameter; {slip} is"
        _rename(findings, uri, item, "near-miss", message, slip, "6")
    if isinstance(value, dict):
        _check_dots(findings, item, value, parameter)
    elif isinstance(value, int | float) and _ODD_NUMBER(item.value):
        _odd_number(findings, item, "; a JSON string (%22...%22) keeps them")


def _check_withheld(findings: Findings, uri: LLMURI, item: _Item, parameter: str) -> None:
    name = item.name
    value = uri._typed[name]
    if any(isinstance(one, Secret) for one in (value if isinstance(value, list) else [value])):
        message = f"{parameter} carries a key and is not sent; keys belong in the userinfo or behind auth="
        findings.add("error", "credential", message, "10.1", "query", item.span, parameter=parameter)
        return
    why = (
        "would redirect or replace the request" if is_redirecting(name) else "would replace a well-known one"
    )
    message = f"the parameter {parameter} {why} and is not sent"
    findings.add("warning", "withheld", message, "10.3", "query", item.span, parameter=parameter)


def _rename(
    findings: Findings, uri: LLMURI, item: _Item, code: str, message: str, name: str, clause: str
) -> None:
    # only where the value would do under that name: what can't be read is dropped by `add`
    edit = None
    if "." not in item.name and name not in uri._typed:
        edit = Edit(item.start, item.start + len(item.raw_name), name)
    parameter = shown(item.name)
    findings.add("warning", code, message, clause, "query", item.span, edit=edit, parameter=parameter)


def _check_dots(findings: Findings, item: _Item, value: dict[str, object], parameter: str) -> None:
    """A JSON object that dot-notation could say, which the draft prefers."""
    flat = expand({item.name: value}, ROOMY)
    if item.name in flat:
        return
    message = f"the parameter {parameter} could be written with dots"
    edit = Edit(*item.span, write(flat, ROOMY, reveal=True))
    findings.add("note", "json", message, "4.4", "query", item.span, edit=edit, parameter=parameter)
