"""`check`: what the draft forbids or discourages in a text that RFC 3986 allows, and what slips people make.

An error is what the draft's grammar (3.2, 4.2.1) or a MUST of its text forbids, and `strict` refuses it.
Where section 8 wants every reserved character of a value encoded, RFC 3986 3.4 and the draft's own lists
with commas say otherwise: those are warnings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from onym.errors import URIError
from onym.uri import _llm_check_query, _rfc3986
from onym.uri._findings import Edit, Findings, looks_like_key, reserved_span
from onym.uri._ip import format_ipv6, parse_ipv6
from onym.uri._llm_fields import source_of
from onym.uri._llm_repair import repaired
from onym.uri._percent import FRAGMENT, SEGMENT, USERINFO, decode
from onym.uri.diagnostics import Diagnostic, Report
from onym.uri.secret import MARK

if TYPE_CHECKING:
    from onym.uri._limits import Limits
    from onym.uri.llm import LLMURI

__all__ = ["diagnose", "report"]

_USABLE_NAME = re.compile("[a-z0-9._-]+").fullmatch
#: where intermediaries begin to cut URIs (draft 4.4)
_COMFORTABLE = 2048


class _Part(NamedTuple):
    """A part that draft 3.2 or 4.2.1 narrows to unreserved characters and triplets."""

    name: str
    component: str
    clause: str


_LABEL = _Part("app-label", "userinfo", "4.2.1")
_KEY = _Part("api-key", "userinfo", "4.2.1")
_MODEL = _Part("model", "path", "3.2")


def report(text: str | LLMURI, *, strict: bool, limits: Limits) -> Report:
    """The report on a text; on a value, that on the text it was read from."""
    from onym.uri.llm import LLMURI  # that module imports this one

    try:
        uri = LLMURI.parse(text, limits=limits)
    except URIError as error:
        return _refusal(str(text), error)
    findings = _findings(uri, fixing=True)
    diagnostics = findings.diagnostics()
    refused = strict and any(found.severity == "error" for found in diagnostics)
    return Report(None if refused else uri, diagnostics, findings.fixed())


def diagnose(uri: LLMURI, *, fixing: bool = True) -> tuple[Diagnostic, ...]:
    """The diagnostics on the text that `uri` was read from; without `fixing` none has a fix."""
    return _findings(uri, fixing=fixing).diagnostics()


def _refusal(text: str, error: URIError) -> Report:
    """The report on a text that has no value."""
    start = min(error.offset or 0, len(text))
    end = min(start + 1, len(text))
    if error.parameter is not None and error.component == "query":
        delimiter = re.compile("[&#]").search(text, start)
        end = delimiter.start() if delimiter else len(text)
    better = repaired(text)
    found = Diagnostic(
        error.code,
        "error",
        error.message if error.hint is None else f"{error.message} ({error.hint})",
        clause=error.clause,
        component=error.component,
        start=start,
        end=end,
        fix=None if better is None else better.render(),
        parameter=error.parameter,
    )
    return Report(None, (found,), better)


def _findings(uri: LLMURI, *, fixing: bool) -> Findings:
    text = source_of(uri)
    parts = _rfc3986.split(text, "URI", max_length=len(text))
    at = _rfc3986.offsets(parts)
    findings = Findings(text, uri._limits, fixing=fixing)
    if not text.startswith("llm:"):
        findings.add(
            "warning", "scheme-case", "write the scheme in lower case", "4.1", "scheme", (0, 3), edit="llm"
        )
    if parts.userinfo is not None:
        _check_userinfo(findings, parts.userinfo, at.userinfo)
    _check_host(findings, parts.host or "", parts.host_type, at.host)
    if parts.port is not None:
        _check_port(findings, uri, parts.port, at.port)
    _check_model(findings, parts.path, at.path)
    if parts.query is not None:
        _llm_check_query.check(findings, uri, parts.query, at.query)
    if parts.fragment is not None:
        _check_fragment(findings, parts.fragment, at.fragment)
    if len(text) > _COMFORTABLE:
        message = f"some intermediaries cut URIs after {_COMFORTABLE} octets"
        findings.add("note", "long", message, "4.4", None, (0, len(text)))
    return findings


def _check_userinfo(findings: Findings, userinfo: str, at: int) -> None:
    label, colon, key = userinfo.partition(":")
    end = at + len(userinfo)
    if not userinfo:
        message = "the userinfo is empty"
        findings.add("error", "empty-userinfo", message, "4.2.1", "userinfo", (at, at + 1), edit="")
    elif not label:
        message = "the app-label is empty"
        findings.add(
            "error", "empty-label", message, "4.2.1", "userinfo", (at, at + 1), parameter="app-label"
        )
    if colon and not key:
        message = "the api-key is empty: it counts as absent"
        findings.add(
            "error", "empty-key", message, "4.2.1", "userinfo", (end - 1, end), edit="", parameter="api-key"
        )
    _check_encoding(findings, _LABEL, label, USERINFO.quote(decode(label, component="userinfo")), at)
    if looks_like_key(label):
        message = "the app-label looks like a key"
        findings.add("warning", "key-shaped", message, "10.1", "userinfo", (at, at + len(label)))
    if key:
        raw_at, plain = end - len(key), decode(key, component="userinfo")
        if key != MARK:
            _check_encoding(findings, _KEY, key, USERINFO.quote(plain), raw_at)
        _check_key(findings, plain, (raw_at, end))


def _check_key(findings: Findings, key: str, span: tuple[int, int]) -> None:
    if key == MARK:
        message = "the api-key was masked: this is a redacted URI"
        findings.add("error", "redacted-key", message, "10.1", "userinfo", span, parameter="api-key")
        return
    if not key.isascii():
        message = "no HTTP header carries an api-key outside ASCII"
        findings.add("warning", "key-not-ascii", message, "4.2.1", "userinfo", span, parameter="api-key")
    message = "a key in a URI gets into logs and histories; auth=env:NAME would point to one"
    findings.add("note", "key-in-uri", message, "10.1", "userinfo", span, parameter="api-key")


def _check_host(findings: Findings, host: str, host_type: str | None, at: int) -> None:
    address = parse_ipv6(host) if host_type == "IPv6address" else None
    normal = _rfc3986.normal_reg_name(host) if address is None else format_ipv6(address)
    span = (at, at + len(host))
    if normal != host:
        message = "the host has a simpler form"
        findings.add("note", "host-not-normal", message, "RFC 3986 6.2.2", "host", span, edit=normal)
    if host_type == "IPvFuture" or (address is None and not _USABLE_NAME(normal)):
        message = "no name that can be looked up has such characters"
        findings.add("warning", "host-unusable", message, "4.2.2", "host", span)


def _check_port(findings: Findings, uri: LLMURI, port: str, at: int) -> None:
    span = (at, at + len(port))
    with_colon = (at - 1, at + len(port))
    if not port:
        message = "the port is empty: it counts as absent"
        findings.add("warning", "empty-port", message, "RFC 3986 6.2.3", "port", with_colon, edit="")
    elif port[0] == "0":
        message = "the port has leading zeros"
        findings.add("warning", "port-zeros", message, "RFC 3986 3.2.3", "port", span, edit=port.lstrip("0"))
    elif uri.has_default_port:
        findings.add("note", "default-port", "this is the default port", "4.2.3", "port", with_colon, edit="")


def _check_model(findings: Findings, path: str, at: int) -> None:
    whole = (at, at + len(path))
    model = path[1:]
    segments = [decode(segment, component="path") for segment in model.split("/")]
    normal = "/".join(map(SEGMENT.quote, segments))
    _check_encoding(findings, _MODEL, model, normal, at + 1)
    if any("/" in segment for segment in segments):
        message = "an encoded slash is part of the name, it separates nothing"
        findings.add("note", "model-slash", message, "4.3", "path", whole)
    if looks_like_key(path):
        findings.add("warning", "key-shaped", "the model looks like a key", "10.1", "path", whole)


def _check_fragment(findings: Findings, fragment: str, at: int) -> None:
    span = (at, at + len(fragment))
    if looks_like_key(fragment):
        findings.add("warning", "key-shaped", "the fragment looks like a key", "10.1", "fragment", span)
    normal = FRAGMENT.quote(decode(fragment, component="fragment"))
    if normal != fragment:
        message = "the fragment has a simpler encoding"
        findings.add("note", "not-normal", message, "RFC 3986 6.2.2", "fragment", span, edit=normal)


def _check_encoding(findings: Findings, part: _Part, raw: str, normal: str, at: int) -> None:
    """Nothing raw but unreserved characters, nothing encoded without need."""
    if normal == raw:
        return
    edit = Edit(at, at + len(raw), normal)
    stray = reserved_span(raw.replace("/", "-") if part is _MODEL else raw)
    if stray is None:
        message = f"the {part.name} has a simpler encoding"
        findings.add(
            "note", "not-normal", message, "RFC 3986 6.2.2", part.component, (at, edit.end), edit=edit
        )
        return
    span = (at + stray[0], at + stray[1])
    message = f"the {part.name} holds characters that have to be percent-encoded"
    findings.add("error", f"raw-{part.name}", message, part.clause, part.component, span, edit=edit)
