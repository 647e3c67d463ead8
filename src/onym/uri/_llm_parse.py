"""Reading an llm URI that is not of the plainest form, component by component (draft 3 and 4).

`llm.LLMURI.parse` reads the common form by one expression of its own and comes here for all others: IP
literals, percent-encoded parts, what the draft forbids and RFC 3986 allows, and every refusal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from onym.errors import LLMURIError, URILimitError, URISyntaxError
from onym.uri import _rfc3986
from onym.uri._ip import is_ipv4
from onym.uri._names import shown
from onym.uri._percent import decode, decode_octets
from onym.uri._query_read import read_typed
from onym.uri._values import DRAFT

if TYPE_CHECKING:
    from onym.uri._limits import Limits

__all__ = ["Reading", "general", "refuse", "too_long"]

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_PLAIN_NAME = re.compile("[A-Za-z0-9._~-]+").fullmatch
_NOT_IN_KEY = re.compile("[\x00-\x20\x7f-\x9f]")
_CONTROL_OCTET = re.compile(b"[\x00-\x1f\x7f]")
# also within one segment: a server may decode %2F before it looks for dot segments
_DOT_SEGMENT = re.compile(r"(?:\A|[/\\])\.{1,2}(?=[/\\]|\Z)").search


class Reading(NamedTuple):
    """What a text says, decoded; `hides` where a credential is among it."""

    label: str | None
    key: str | None
    host: str
    host_type: str
    port: int | None
    segments: tuple[str, ...]
    typed: dict[str, Any]
    fragment: str | None
    hides: bool

    def __repr__(self) -> str:
        return "<Reading>"  # it holds the key


def refuse(
    message: str,
    code: str,
    component: str,
    offset: int,
    clause: str,
    *,
    parameter: str | None = None,
    hint: str | None = None,
) -> LLMURIError:
    """An LLMURIError; `clause` is a section of the draft."""
    return LLMURIError(
        message,
        code=f"llm.{code}",
        component=component,
        offset=offset,
        clause=f"{DRAFT} {clause}",
        parameter=parameter,
        hint=hint,
    )


def general(text: str, limits: Limits) -> Reading:
    """Read `text`, or raise the URIError that says why not."""
    try:
        parts = _rfc3986.split(text, "URI", max_length=limits.uri)
    except URISyntaxError as error:
        raise _explained(error, text) from None
    at = _rfc3986.offsets(parts)
    if parts.scheme is None or parts.scheme.lower() != "llm":
        raise refuse("the scheme is not llm", "not-llm", "scheme", 0, "4.1", hint="llm://HOST/MODEL")
    if parts.host is None or parts.host_type is None:
        raise refuse(
            "there is no authority", "no-authority", "host", len("llm:"), "3.1", hint="write llm://HOST/MODEL"
        )
    label, key = _userinfo(parts.userinfo, at.userinfo)
    host, host_type = _host(parts.host, parts.host_type, at.host)
    port = _port(parts.port, at.port)
    segments = _segments(parts.path, at.path)
    fragment = None
    if parts.fragment is not None:
        fragment = decode(parts.fragment, component="fragment", offset=at.fragment)
    typed, credential = read_typed(parts.query, at.query, limits) if parts.query else ({}, False)
    hides = credential or key is not None
    return Reading(label, key, host, host_type, port, segments, typed, fragment, hides)


def _explained(error: URISyntaxError, text: str) -> URISyntaxError:
    """`error` for somebody who wrote an llm URI: the way for Unicode, the parameter it stands in."""
    if error.offset is not None and not text[error.offset : error.offset + 1].isascii():
        error.hint = "LLMURI.from_iri reads what was typed with other characters than ASCII"
    if error.component == "query" and error.offset is not None:
        start = max(text.find("?"), text.rfind("&", 0, error.offset)) + 1
        name, equals, _ = text[start : error.offset].partition("=")
        if equals and _PLAIN_NAME(name):
            error.message = f"{error.message}, in the parameter {shown(name)}"
            error.args = (error.message,)
    return error


def too_long(text: str, limits: Limits) -> URILimitError:
    """The error for a text beyond `limits.uri`; it names the parameter that crosses the limit."""
    head = text[: limits.uri]
    question, slash = head.find("?"), head.find("/", len("llm://"))
    component, parameter = "query", None
    if question >= 0:
        name, equals, _ = head[max(question, head.rfind("&")) + 1 :].partition("=")
        parameter = shown(name) if name and equals else None
    elif slash >= 0:
        component, parameter = "path", "model"
    else:
        component = "host"
    where = "" if parameter is None else f"; {parameter} crosses it"
    return URILimitError(
        f"the URI is longer than {limits.uri} octets{where}",
        component=component,
        offset=limits.uri,
        clause=f"{DRAFT} 4.4",
        parameter=parameter,
        hint="keep long values in a configuration file",
    )


def _userinfo(userinfo: str | None, at: int) -> tuple[str | None, str | None]:
    """Label and key, split at the first raw colon; an empty key is no key (draft 4.2.1)."""
    if userinfo is None:
        return None, None
    raw_label, colon, raw_key = userinfo.partition(":")
    label = _text(raw_label, "userinfo", at, "app-label")
    _refuse_control(label, _CONTROL, "userinfo", at, "4.2.1", "app-label")
    key_at = at + len(raw_label) + len(colon)
    key = _text(raw_key, "userinfo", key_at, "api-key")
    _refuse_control(key, _NOT_IN_KEY, "userinfo", key_at, "4.2.1", "api-key")
    return label, key or None


def _text(raw: str, component: str, at: int, part: str) -> str:
    try:
        return decode(raw, component=component, offset=at)
    except URISyntaxError as error:
        error.parameter = part
        error.message = f"percent-encoded octets in the {part} are not UTF-8"
        error.args = (error.message,)
        raise


def _refuse_control(
    text: str, pattern: re.Pattern[str], component: str, at: int, clause: str, part: str
) -> None:
    if pattern.search(text):
        what = "a space or control character" if pattern is _NOT_IN_KEY else "a control character"
        # the offset of the part: a finer one would tell where in a key it stands
        raise refuse(f"the {part} holds {what}", "control-character", component, at, clause, parameter=part)


def _host(host: str, host_type: str, at: int) -> tuple[str, str]:
    """The host in lower case, unreserved triplets decoded, so that a guard sees the real name."""
    if not host:
        raise refuse("the host is empty", "no-host", "host", at, "4.2.2", hint="llm://HOST/MODEL")
    if host_type != "reg-name":
        return host.lower(), host_type
    octets = decode_octets(host, component="host", offset=at)
    if _CONTROL_OCTET.search(octets):
        raise refuse("the host holds a control character", "control-character", "host", at, "4.2.2")
    decode(host, component="host", offset=at)  # RFC 3986 3.2.2: UTF-8
    host = _rfc3986.normal_reg_name(host)
    return host, "IPv4address" if is_ipv4(host) else "reg-name"


def _port(port: str | None, at: int) -> int | None:
    """The number; an empty port is an absent one (RFC 3986 6.2.3), leading zeros count for nothing."""
    if not port:
        return None
    digits = port.lstrip("0")
    if not digits or len(digits) > 5 or int(digits) > 65535:
        raise refuse("the port is not from 1 to 65535", "bad-port", "port", at, "4.2.3")
    return int(digits)


def _segments(path: str, at: int) -> tuple[str, ...]:
    """The decoded segments of the model (draft 4.3). An encoded slash is data and does not separate."""
    if path in ("", "/"):
        raise refuse(
            "there is no model",
            "no-model",
            "path",
            at,
            "4.3",
            parameter="model",
            hint="write llm://HOST/MODEL",
        )
    segments = []
    for raw in path[1:].split("/"):
        at += 1
        if not raw:
            raise refuse(
                "the model has an empty segment", "empty-segment", "path", at, "3.2", parameter="model",
                hint="a model ends in no slash and holds no //",
            )  # fmt: skip
        segment = _text(raw, "path", at, "model")
        _refuse_control(segment, _CONTROL, "path", at, "4.3", "model")
        if _DOT_SEGMENT(segment):
            raise refuse(
                "the model has a dot segment", "dot-segment", "path", at, "4.3", parameter="model",
                hint="a model is a name, not a path to walk",
            )  # fmt: skip
        segments.append(segment)
        at += len(raw)
    return tuple(segments)
