"""The text of an llm URI: parse and write its components and its query (draft 3, 4 and 8).

`LLMURI.parse` reads the common form with one expression of its own. `parse_parts` reads all other texts. Onym
writes only the draft's own grammar. The one exception is a key without a label: the draft has no form for it,
so Onym writes an empty label, as RFC 3986 allows (`llm://:KEY@HOST/MODEL`).
"""

from __future__ import annotations

import json
import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from math import isfinite
from typing import Any, Final, NamedTuple, final

from onym.errors import LLMURIError, ParameterError, URIError, URILimitError, URISyntaxError
from onym.uri import generic
from onym.uri.components import (
    FRAGMENT,
    QUERY_NAME,
    QUERY_VALUE,
    SEGMENT,
    USERINFO,
    Frozen,
    decode_component,
    decode_component_bytes,
    is_ipv4,
)
from onym.uri.parameters import (
    DEFAULT_LIMITS,
    DRAFT,
    EXACT,
    STRUCTURES,
    VALUE_PARSERS,
    Limits,
    RepeatedValues,
    add_parameter_name,
    copy_value,
    format_name,
    is_redirecting,
    nest_names,
    parse_typed_query,
    parse_unknown,
    raise_bad_value,
    raise_too_long,
    split_dotted_name,
)
from onym.uri.secret import MARK, Secret

#: for text that was within the caller's limits already
LOOSE_LIMITS: Final = Limits(
    uri=2**31, value=2**31, system=2**31, json=2**31, depth=200, parameters=2**31, number=640
)


def loosen_limits(limits: Limits) -> Limits:
    """`LOOSE_LIMITS`, except the limits that decide the type of a value."""
    return LOOSE_LIMITS.replace(number=limits.number, depth=limits.depth)


@final
class Params(Frozen, Mapping[str, Any]):
    """The parameters of one URI: an ordered, immutable mapping from name to typed value.

    Well-known names have the types of draft 6, `stop` is a tuple. Unknown names have bool, int, float, str,
    dict or list values; a repeated name has the list of its values. Credentials are `Secret`s. Objects and
    lists are returned as copies. Two are equal if they would be written the same.
    """

    __slots__ = ("_typed",)
    _typed: dict[str, Any]

    def __init__(self) -> None:
        raise TypeError("Params has no constructor: use the params of a URI")

    def __getitem__(self, name: str) -> Any:
        return copy_value(self._typed[name])

    def items(self) -> ItemsView[str, Any]:
        """Names and typed values, in order."""
        return self._copy_typed().items()

    def values(self) -> ValuesView[Any]:
        """The typed values, in order."""
        return self._copy_typed().values()

    def _copy_typed(self) -> dict[str, Any]:
        # a view cannot change the dict: only the structures in it have to be copied
        for value in self._typed.values():
            if isinstance(value, STRUCTURES):
                out: dict[str, Any] = copy_value(self._typed)
                return out
        return self._typed

    def __iter__(self) -> Iterator[str]:
        return iter(self._typed)

    def __len__(self) -> int:
        return len(self._typed)

    def items_raw(self) -> tuple[tuple[str, str | Secret], ...]:
        """Name and decoded text of each pair, in the order in which they are written."""
        return tuple(iter_raw_items(self._typed, LOOSE_LIMITS))

    def nested(self) -> dict[str, Any]:
        """All parameters, dotted names as objects, also the withheld names. Secrets stay hidden."""
        return nest_names(self._typed)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Params):
            return self.items_raw() == other.items_raw()
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.items_raw())

    def __repr__(self) -> str:
        from onym.uri.redact import redact  # a key may also hide in a harmless name

        return redact(f"Params({self._typed!r})")


_new = object.__new__
_set_typed = Params.__dict__["_typed"].__set__


def make_params(typed: dict[str, Any]) -> Params:
    """Wrap `typed`, which must not be changed from now on, as `Params`."""
    params = _new(Params)
    _set_typed(params, typed)
    return params


def parse_query(query: str, *, limits: Limits = DEFAULT_LIMITS) -> Params:
    """The parameters of a query. Raises ParameterError or URISyntaxError; offsets count in `query`."""
    return make_params(parse_typed_query(query, 0, limits)[0])


def list_withheld(typed: Mapping[str, Any]) -> tuple[str, ...]:
    """The names that are never sent: they would redirect the request, or carry a credential."""
    return tuple(
        [name for name, value in typed.items() if name not in VALUE_PARSERS and _is_withheld(name, value)]
    )


def _is_withheld(name: str, value: Any) -> bool:
    # a name below a well-known name (`stream.x`) would replace it
    return _is_credential(value) or is_redirecting(name) or name.partition(".")[0] in VALUE_PARSERS


def _is_credential(value: Any) -> bool:
    return isinstance(value, Secret) or (
        isinstance(value, RepeatedValues) and any(map(_is_credential, value))
    )


def select_passed_through(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that are passed to the provider beside the well-known ones, nested."""
    kept = {
        name: value
        for name, value in typed.items()
        if name not in VALUE_PARSERS and not _is_withheld(name, value)
    }
    return nest_names(kept)


def iter_raw_items(typed: Mapping[str, Any], limits: Limits) -> Iterator[tuple[str, str | Secret]]:
    """Decoded text of each pair, in order: one for each value of a repeated name."""
    for name, value in typed.items():
        for one in _iter_values(name, value):
            try:
                yield name, _format_value(name, one, limits)
            except ParameterError as error:
                raise add_parameter_name(error, name) from None


def _format_value(name: str, value: Any, limits: Limits) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if name in VALUE_PARSERS and isinstance(value, str):
        return value
    text = format_unknown(value, limits)
    return text.removesuffix(".0") if name in ("temp", "top_p") else text


def _iter_values(name: str, value: Any) -> Iterable[Any]:
    if isinstance(value, RepeatedValues):
        return value
    if name == "stop" and not isinstance(value, str):
        return tuple(value)
    return (value,)


def format_decimal(value: float) -> str:
    """`value` in the shortest decimal notation without exponent that parses to it (draft 6)."""
    if not isfinite(value):
        raise_bad_value("is not a finite number", code="llm.bad-number", clause="6")
    text = repr(value)
    mantissa, has_exponent, exponent = text.partition("e")
    if not has_exponent:
        return text
    sign = "-" if value < 0 else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits, point = whole + fraction, len(whole) + int(exponent)
    if point > 0:
        return f"{sign}{digits.ljust(point, '0')}.0"
    return f"{sign}0.{'0' * -point}{digits}"


def format_json(value: Mapping[str, Any] | list[Any] | str) -> str:
    """Compact JSON. Raises ParameterError for values that JSON does not have, TypeError for other types."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):  # NaN, Infinity, or an object inside itself
        raise_bad_value("cannot be written as JSON", code="llm.bad-json")


def format_unknown(value: Any, limits: Limits) -> str:
    """The text that `parse_unknown` parses to `value`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if _parses_to_itself(value, limits) else format_json(value)
    if isinstance(value, int):
        # bits first: str() of an enormous int is refused by Python itself
        if value.bit_length() > 4 * limits.number or len(str(value)) > limits.number:
            raise_too_long(limits.number, "characters")
        return str(value)
    if isinstance(value, float):
        text = format_decimal(value)
        if len(text) > limits.number or abs(value) >= EXACT:
            raise_bad_value(
                "is too large or too small for decimal notation", code="llm.bad-number", clause="6"
            )
        return text
    if isinstance(value, (*STRUCTURES, tuple)):
        return format_json(list(value) if isinstance(value, tuple) else value)
    raise TypeError(f"a parameter cannot be a {type(value).__name__}")


def _parses_to_itself(text: str, limits: Limits) -> bool:
    try:
        return isinstance(parse_unknown(text, limits), str) and parse_unknown(text, limits) == text
    except ParameterError:
        return False


def format_query(typed: Mapping[str, Any], limits: Limits, *, reveal: bool) -> str:
    """The query that `parse_typed_query` parses to `typed`, with only unreserved characters raw.

    Stop sequences are separated by commas, or repeated if a sequence contains a comma. Without `reveal`, the
    values of credentials are `***`.
    """
    stops: Any = typed.get("stop", ())
    commas = len(stops) > 1 and not isinstance(stops, str) and not any("," in stop for stop in stops)
    pairs: list[str] = []
    for name, text in iter_raw_items(typed, limits):
        if isinstance(text, Secret):
            value = QUERY_VALUE.quote(text.reveal()) if reveal else MARK
        else:
            value = QUERY_VALUE.quote(text)
        if commas and name == "stop" and pairs and pairs[-1].startswith("stop="):
            pairs[-1] += "," + value
        else:
            pairs.append(f"{QUERY_NAME.quote(name)}={value}")
    return "&".join(pairs)


CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_PLAIN_NAME = re.compile("[A-Za-z0-9._~-]+").fullmatch
_NOT_IN_KEY = re.compile("[\x00-\x20\x7f-\x9f]")
_CONTROL_BYTE = re.compile(b"[\x00-\x1f\x7f]")
# also within one segment: a server may decode %2F before it looks for dot segments
_DOT_SEGMENT = re.compile(r"(?:\A|[/\\])\.{1,2}(?=[/\\]|\Z)").search


class LLMURIParts(NamedTuple):
    """The decoded parts of a text; `hides` tells whether one of them is a credential."""

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
        return "<LLMURIParts>"  # it contains the key


def make_llm_error(
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


def parse_parts(text: str, limits: Limits) -> LLMURIParts:
    """Parse `text`. Raises URIError."""
    try:
        parts = generic.split_uri(text, "URI", max_length=limits.uri)
    except URISyntaxError as error:
        raise _explain_error(error, text) from None
    at = generic.compute_offsets(parts)
    if parts.scheme is None or parts.scheme.lower() != "llm":
        hint = "write llm://HOST/MODEL"
        raise make_llm_error("the scheme is not llm", "not-llm", "scheme", 0, "4.1", hint=hint)
    if parts.host is None or parts.host_type is None:
        hint = "write llm://HOST/MODEL"
        raise make_llm_error("the URI has no authority", "no-authority", "host", 4, "3.1", hint=hint)
    label, key = _parse_userinfo(parts.userinfo, at.userinfo)
    host, host_type = _parse_host(parts.host, parts.host_type, at.host)
    port = _parse_port(parts.port, at.port)
    segments = _parse_segments(parts.path, at.path)
    fragment = None
    if parts.fragment is not None:
        fragment = decode_component(parts.fragment, component="fragment", offset=at.fragment)
    typed, credential = parse_typed_query(parts.query, at.query, limits) if parts.query else ({}, False)
    hides = credential or key is not None
    return LLMURIParts(label, key, host, host_type, port, segments, typed, fragment, hides)


def _explain_error(error: URISyntaxError, text: str) -> URISyntaxError:
    """`error` with a hint for Unicode text, or with the parameter that it is in."""
    if error.offset is not None and not text[error.offset : error.offset + 1].isascii():
        error.hint = "write it in ASCII: percent-encoded, a host in IDNA (in Python, LLMURI.from_iri does)"
    if error.component == "query" and error.offset is not None:
        start = max(text.find("?"), text.rfind("&", 0, error.offset)) + 1
        name, equals, _ = text[start : error.offset].partition("=")
        if equals and _PLAIN_NAME(name):
            error.message = f"{error.message}, in the parameter {format_name(name)}"
            error.args = (error.message,)
    return error


def make_length_error(text: str, limits: Limits) -> URILimitError:
    """The error for a text beyond `limits.uri`; it names the parameter that crosses the limit."""
    head = text[: limits.uri]
    question, slash = head.find("?"), head.find("/", len("llm://"))
    component, parameter = "query", None
    if question >= 0:
        name, equals, _ = head[max(question, head.rfind("&")) + 1 :].partition("=")
        parameter = format_name(name) if name and equals else None
    elif slash >= 0:
        component, parameter = "path", "model"
    else:
        component = "host"
    culprit = "" if parameter is None else f"; {parameter} exceeds the limit"
    return URILimitError(
        f"the URI is longer than {limits.uri} bytes{culprit}",
        component=component,
        offset=limits.uri,
        clause=f"{DRAFT} 4.4",
        parameter=parameter,
        hint="keep long values in a configuration file",
    )


def _parse_userinfo(userinfo: str | None, at: int) -> tuple[str | None, str | None]:
    """Label and key, split at the first raw colon; an empty key is None (draft 4.2.1)."""
    if userinfo is None:
        return None, None
    raw_label, colon, raw_key = userinfo.partition(":")
    label = _decode_part(raw_label, "userinfo", at, "app-label")
    _require_no_control(label, CONTROL, "userinfo", at, "4.2.1", "app-label")
    key_at = at + len(raw_label) + len(colon)
    key = _decode_part(raw_key, "userinfo", key_at, "api-key")
    _require_no_control(key, _NOT_IN_KEY, "userinfo", key_at, "4.2.1", "api-key")
    return label, key or None


def _decode_part(raw: str, component: str, at: int, part: str) -> str:
    try:
        return decode_component(raw, component=component, offset=at)
    except URISyntaxError as error:
        error.parameter = part
        error.message = f"percent-encoded bytes in the {part} are not UTF-8"
        error.args = (error.message,)
        raise


def _require_no_control(
    text: str, pattern: re.Pattern[str], component: str, at: int, clause: str, part: str
) -> None:
    if pattern.search(text):
        kind = "a space or control character" if pattern is _NOT_IN_KEY else "a control character"
        # the offset of the part: the exact one would give information about a key
        message = f"the {part} contains {kind}"
        raise make_llm_error(message, "control-character", component, at, clause, parameter=part)


def _parse_host(host: str, host_type: str, at: int) -> tuple[str, str]:
    """The host in lower case, unreserved triplets decoded, so that a guard sees the real name."""
    if not host:
        raise make_llm_error(
            "the host is empty", "no-host", "host", at, "4.2.2", hint="write llm://HOST/MODEL"
        )
    if host_type != "reg-name":
        return host.lower(), host_type
    if _CONTROL_BYTE.search(decode_component_bytes(host, component="host", offset=at)):
        message = "the host contains a control character"
        raise make_llm_error(message, "control-character", "host", at, "4.2.2")
    decode_component(host, component="host", offset=at)  # RFC 3986 3.2.2: UTF-8
    host = generic.normalize_reg_name(host)
    return host, "IPv4address" if is_ipv4(host) else "reg-name"


def _parse_port(port: str | None, at: int) -> int | None:
    """The number; None for an empty port (RFC 3986 6.2.3). Leading zeros are ignored."""
    if not port:
        return None
    digits = port.lstrip("0")
    if not digits or len(digits) > 5 or int(digits) > 65535:
        raise make_llm_error("the port is not from 1 to 65535", "bad-port", "port", at, "4.2.3")
    return int(digits)


def _parse_segments(path: str, at: int) -> tuple[str, ...]:
    """The decoded segments of the model (draft 4.3). An encoded slash is data and does not separate."""
    if path in ("", "/"):
        raise _make_model_error("the URI has no model", "no-model", at, "4.3", "write llm://HOST/MODEL")
    segments = []
    for raw in path[1:].split("/"):
        at += 1
        if not raw:
            hint = "remove the slash at the end, or the second of two slashes"
            raise _make_model_error("the model has an empty segment", "empty-segment", at, "3.2", hint)
        segment = _decode_part(raw, "path", at, "model")
        _require_no_control(segment, CONTROL, "path", at, "4.3", "model")
        if _DOT_SEGMENT(segment):
            hint = "write the name of the model without . and .. segments"
            raise _make_model_error("the model has a dot segment", "dot-segment", at, "4.3", hint)
        segments.append(segment)
        at += len(raw)
    return tuple(segments)


def _make_model_error(message: str, code: str, offset: int, clause: str, hint: str) -> LLMURIError:
    return make_llm_error(message, code, "path", offset, clause, parameter="model", hint=hint)


# a reg-name, or an IP literal with or without its brackets; `parse` checks it further
_HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[A-Za-z0-9._~!$&'()*+,;=:-]+\]|[0-9A-Fa-f:.]+").fullmatch


def compose_llm_uri(
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
    """The text for decoded parts; `host` has its brackets. Without `reveal`, keys are `***`."""
    userinfo = ""
    if key is not None:
        text = USERINFO.quote(key.reveal()) if reveal else MARK
        userinfo = f"{USERINFO.quote(label or '')}:{text}@"
    elif label:
        userinfo = f"{USERINFO.quote(label)}@"
    at = "" if port is None else f":{port}"
    model = "/".join(map(SEGMENT.quote, segments))
    query = format_query(typed, limits, reveal=reveal)
    query = f"?{query}" if query else ""
    tail = "" if fragment is None else f"#{FRAGMENT.quote(fragment)}"
    return f"llm://{userinfo}{host}{at}/{model}{query}{tail}"


_AUTH = re.compile(r"(?<=[?&])auth=([^&#]*)")


def mask_credentials(text: str) -> str:
    """The text of a URI with every credential masked, and the reference in `auth=` left readable."""
    from onym.uri.redact import redact  # late: not needed to parse a URI

    out = redact(text)
    found = _AUTH.search(text)
    if found is None or f"auth={MARK}" not in out:
        return out
    try:
        VALUE_PARSERS["auth"](decode_component(found[1], component="query"), LOOSE_LIMITS)
    except URIError:
        return out  # not a reference, perhaps a pasted key
    return _AUTH.sub(lambda _: found[0], out, count=1)


def compose_from_raw(
    host: str,
    model: str | Sequence[str],
    label: str | None,
    key: str | Secret | None,
    port: int | None,
    params: Mapping[str, Any],
    fragment: str | None,
    limits: Limits,
) -> str:
    """The revealed text for the arguments of a caller; `LLMURI.parse` then checks it as any other text."""
    if not _HOST(host):
        hint = "pass only a name or an address; the port and the userinfo have their own arguments"
        if not host.isascii():
            hint = "write the name in ASCII (in Python, LLMURI.from_iri converts a URI)"
        raise make_llm_error("the host is not a name or address", "bad-host", "host", 6, "4.2.2", hint=hint)
    if ":" in host and host[0] != "[":
        host = f"[{host}]"
    if key is not None and not isinstance(key, Secret):
        key = Secret(key)
    if key is not None and not key.reveal():
        raise make_llm_error("the api-key is empty", "empty-key", "userinfo", 6, "4.2.1", parameter="api-key")
    if port is not None and type(port) is not int:
        raise TypeError("a port is an int")
    segments = model.split("/") if isinstance(model, str) else list(model)
    return compose_llm_uri(
        label, key, host, port, segments, expand_params(params, limits), fragment, reveal=True, limits=limits
    )


def expand_params(params: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """`params` as typed pairs: None is left out, plain objects become dotted names (draft 4.4)."""
    typed: dict[str, Any] = {}
    for name, value in params.items():
        if not isinstance(name, str):
            raise TypeError("the name of a parameter is a str")
        if value is None:
            continue
        if name == "stop":
            value = _to_stop_sequences(value)
        for written, part in _iter_dotted(name, value, limits):
            if written in typed:
                raise ParameterError(
                    f"the parameter {format_name(written)} is given twice",
                    code="llm.clash",
                    component="query",
                    clause=f"{DRAFT} 4.4",
                    parameter=format_name(written),
                )
            typed[written] = part
    return typed


def _to_stop_sequences(value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if isinstance(stops, Mapping) or not isinstance(stops, Iterable):
        raise TypeError("stop is a str or a sequence of str")
    found = tuple(stops)
    if not all(isinstance(stop, str) for stop in found):
        raise TypeError("stop is a str or a sequence of str")
    return found


def _iter_dotted(name: str, value: Any, limits: Limits) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield name, value
    elif (
        _is_dottable(value)
        and all(name.split("."))
        and len(split_dotted_name(name)) + _count_levels(value) <= limits.depth
    ):
        for key, member in value.items():
            yield from _iter_dotted(f"{name}.{key}", member, limits)
    else:
        yield name, dict(value)


def _is_dottable(value: Mapping[Any, Any]) -> bool:
    """Whether dot-notation can express `value`: no lists, no empty objects, only printable keys."""
    return bool(value) and all(
        isinstance(key, str)
        and key != ""
        and key.isprintable()
        and "." not in key
        and (
            _is_dottable(member)
            if isinstance(member, Mapping)
            else isinstance(member, bool | int | float | str)
        )
        for key, member in value.items()
    )


def _count_levels(value: Mapping[Any, Any]) -> int:
    return 1 + max(
        (_count_levels(member) for member in value.values() if isinstance(member, Mapping)), default=0
    )


def change_params(typed: Mapping[str, Any], changes: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """`typed` with `changes` in place of the old values, new parameters at the end; None removes."""
    # raises for invalid changes; the other parameters are valid already
    parse_typed_query(format_query(expand_params(changes, limits), limits, reveal=True), 0, limits)
    out: dict[str, Any] = {}
    left = dict(changes)
    for name, value in typed.items():
        replaced = _find_replacement(name, changes)
        if replaced is None:
            out[name] = value
        elif replaced in left:
            out.update(expand_params({replaced: left.pop(replaced)}, limits))
    return {**out, **expand_params(left, limits)}


def _find_replacement(name: str, changes: Mapping[str, Any]) -> str | None:
    """The change that replaces `name`: its own, or that of an object above it."""
    parts = split_dotted_name(name)
    return next((above for n in range(len(parts)) if (above := ".".join(parts[: n + 1])) in changes), None)
