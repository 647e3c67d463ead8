"""The parameters of an llm URI: names, types, limits, and parsing of the query (draft 4.4, 6 and 10.3).

Pairs are split at raw `&` and at the first raw `=` before anything is decoded, so a percent-encoded
delimiter is data (RFC 3986 2.2). `+` is a plus sign. Names are case-sensitive (draft 4.4). Spellings are
folded only to recognise names that must not be sent: names that would redirect or replace a request, and
names of credentials. The parser rejects values that draft 10.3 requires to be validated, and names that
mean two things at once. Every other unknown name is kept.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from onym.errors import ParameterError, URIError, UsageError
from onym.uri._registered import TYPES, WELL_KNOWN
from onym.uri.components import decode_component
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "DEFAULT_LIMITS",
    "DRAFT",
    "PROVIDER_NAMES",
    "STRUCTURES",
    "VALUE_PARSERS",
    "WELL_KNOWN",
    "Limits",
    "RepeatedValues",
    "add_parameter_name",
    "copy_value",
    "count_octets",
    "find_closest_name",
    "fold_name",
    "format_decimal",
    "format_json",
    "format_name",
    "format_unknown",
    "is_redirecting",
    "is_secret_parameter",
    "make_float_parser",
    "make_integer_parser",
    "make_text_parser",
    "nest_names",
    "parse_boolean",
    "parse_typed_query",
    "parse_unknown",
    "raise_bad_value",
    "split_dotted_name",
]

# beyond these, Python's own guards (recursion, int() of long texts) would speak first
_CEILINGS: Final = {"depth": 200, "number": 640}


@final
class Limits:
    """Bounds for reading an llm URI. Every one is a whole number of at least 1.

    `uri` octets of the whole text; `value` octets of one decoded value, `system` of the system prompt,
    `json` of one structured value; `depth` levels of JSON or dot-notation (at most 200); `parameters`
    pairs in the query, and stop sequences; `number` characters of one number (at most 640). Raises
    UsageError for anything else.
    """

    __slots__ = ("depth", "json", "number", "parameters", "system", "uri", "value")
    uri: int
    value: int
    system: int
    json: int
    depth: int
    parameters: int
    number: int

    def __init__(
        self,
        *,
        uri: int = 8192,
        value: int = 4096,
        system: int = 8192,
        json: int = 2048,
        depth: int = 32,
        parameters: int = 256,
        number: int = 32,
    ) -> None:
        given = (depth, json, number, parameters, system, uri, value)
        for name, bound in zip(self.__slots__, given, strict=True):
            if type(bound) is not int or bound < 1:
                raise UsageError(f"the limit {name} is a whole number of at least 1")
            if bound > _CEILINGS.get(name, bound):
                raise UsageError(f"the limit {name} is at most {_CEILINGS[name]}")
            object.__setattr__(self, name, bound)

    def replace(self, **changes: int) -> Limits:
        """The same bounds, but for those named."""
        return Limits(**{**self._as_dict(), **changes})

    def _as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        return f"Limits({', '.join(f'{name}={bound}' for name, bound in self._as_dict().items())})"

    def __eq__(self, other: object) -> bool:
        return self._as_dict() == other._as_dict() if isinstance(other, Limits) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._as_dict().values()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("limits do not change; use replace()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("limits do not change; use replace()")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_limits, (self._as_dict(),)


def _rebuild_limits(bounds: dict[str, int]) -> Limits:
    return Limits(**bounds)


#: what `LLMURI.parse` uses: 8,192 octets, because intermediaries cut longer ones (draft 4.4)
DEFAULT_LIMITS = Limits()


#: what providers and SDKs call a well-known parameter. One of these beside it is a clash
PROVIDER_NAMES: Final = {
    "temperature": "temp",
    "maxTokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "maxCompletionTokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "max_tokens_to_sample": "max_tokens",
    "max_new_tokens": "max_tokens",
    "num_predict": "max_tokens",
    "n_predict": "max_tokens",
    "topP": "top_p",
    "topK": "top_k",
    "stop_sequences": "stop",
    "stopSequences": "stop",
    "random_seed": "seed",
    "randomSeed": "seed",
    "timeout_ms": "timeout",
    "timeoutMs": "timeout",
    "request_timeout": "timeout",
    "max_retries": "retries",
    "maxRetries": "retries",
    "num_retries": "retries",
    "response_format": "format",
    "responseFormat": "format",
    "response_mime_type": "format",
    "responseMimeType": "format",
}


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# folded. They name the model, the messages, the system prompt, the destination, its headers or its TLS
_REDIRECTING: Final = _split_words(
    "model modelid modelname engine deployment deploymentid azuredeployment "
    "messages message prompt prompts input inputs contents chathistory "
    "instructions systemprompt systeminstruction systeminstructions systemmessage preamble "
    "baseurl apibase apiurl url uri endpoint apiendpoint azureendpoint host hostname port server scheme "
    "apihost basepath path apiversion apitype "
    "header headers extraheaders defaultheaders customheaders extrabody extraquery defaultquery "
    "organization organisation organizationid project projectid "
    "proxy proxies httpproxy httpsproxy verify sslverify verifyssl insecure cert certs sslcontext tls ssl "
    "httpclient asyncclient httpasyncclient transport mounts followredirects trustenv "
    "customllmprovider llmprovider"
)

# real parameters of providers that stand one slip away from a well-known name
_NO_SLIPS: Final = frozenset({"min_k", "min_p", "min_tokens", "top_a", "top_n"})


def fold_name(name: str) -> str:
    """`name` in one spelling: apiKey, api-key and API_KEY are the same."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def split_dotted_name(name: str) -> tuple[str, ...]:
    """The keys that a dotted name leads through; the name itself where a part would be empty."""
    if "." not in name:
        return (name,)
    parts = tuple(name.split("."))
    return parts if all(parts) else (name,)


def is_redirecting(name: str) -> bool:
    """Whether the name would change where a request goes, or what it asks, and so is never sent."""
    return fold_name(name.lstrip(".").partition(".")[0]) in _REDIRECTING


@lru_cache(maxsize=512)
def is_secret_parameter(name: str) -> bool:
    """Whether the name says that its value is a credential."""
    from onym.uri._secret_detection import is_secret_name  # not needed where every name is well-known

    return is_secret_name(name)


def format_name(name: str) -> str:
    """`name` as messages may show it: printable, short, and not itself a key."""
    from onym.uri.redact import redact  # needed only where something is wrong

    text = redact(name)
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= 64 else f"{text[:63]}…"


def find_closest_name(name: str) -> str | None:
    """The well-known parameter that `name` misses by a slip or by its case, or None."""
    if name in _NO_SLIPS:
        return None
    folded = fold_name(name)
    for known, meant in (*((known, known) for known in WELL_KNOWN), *PROVIDER_NAMES.items()):
        target = fold_name(known)
        allowed = 0 if len(target) < 4 else 1 if len(target) < 7 else 2
        if abs(len(target) - len(folded)) <= allowed and _count_slips(folded, target) <= allowed:
            return meant
    return None


def _count_slips(a: str, b: str) -> int:
    """Letters to insert, drop, change or swap with their neighbour to make `b` of `a`."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        last, before, row = before, row, [i + 1]
        for j, y in enumerate(b):
            cost = min(before[j + 1] + 1, row[j] + 1, before[j] + (x != y))
            if i and j and x == b[j - 1] and a[i - 1] == y:
                cost = min(cost, last[j - 1] + 1)
            row.append(cost)
    return row[-1]


DRAFT = "draft-levy-llm-uri-scheme-00"
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?").fullmatch
_INTEGER = re.compile(r"[+-]?[0-9]+").fullmatch
#: the types of structured values
STRUCTURES = (dict, list)
_BOOLEANS = {"true": True, "false": False}
# what a float no longer tells apart from its neighbours: such a decimal stays text, exactly as written
_EXACT = 1e16
# one step of nesting, or a whole JSON string to step over, closed or not
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def raise_bad_value(
    reason: str, *, code: str = "llm.bad-value", clause: str = "10.3", **more: Any
) -> NoReturn:
    """Raise ParameterError for a value; `reason` continues "the parameter NAME ..."."""
    raise ParameterError(reason, code=code, component="query", clause=f"{DRAFT} {clause}", **more)


def count_octets(text: str) -> int:
    """The length of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def make_float_parser(low: float, high: float) -> Callable[[str, Limits], float]:
    """A reader for decimal numbers from `low` to `high`, both included."""
    usual = (_list_decimals(int(low), int(high)) if high - low < 10 else {}).get

    def read(text: str, limits: Limits) -> float:
        if len(text) > limits.number:
            _raise_too_long(limits.number, "characters")
        value = usual(text)
        if value is not None:
            return value
        if not _NUMBER(text):
            raise_bad_value("is not a decimal number", code="llm.bad-number")
        value = float(text)
        # what rounds to the upper end may be beyond it: 2.00000000000000001
        if low <= value <= high and not (value == high and _is_beyond(text, high)):
            return value + 0.0  # -0 becomes 0
        raise_bad_value(f"is not from {low:g} to {high:g}", code="llm.out-of-range", clause="6")

    return read


def _is_beyond(text: str, high: float) -> bool:
    whole, _, fraction = text.partition(".")
    return int(whole) >= high and fraction.strip("0") != ""


def _list_decimals(low: int, high: int) -> dict[str, float]:
    """Numbers of up to two places by their text: to look one up is faster than to read it."""
    whole = {str(n): float(n) for n in range(low, high + 1)}
    tenths = {f"{n // 10}.{n % 10}": n / 10 for n in range(low * 10, high * 10 + 1)}
    hundredths = {f"{n // 100}.{n % 100:02}": n / 100 for n in range(low * 100, high * 100 + 1)}
    return whole | tenths | hundredths


def make_integer_parser(low: int, high: int) -> Callable[[str, Limits], int]:
    """A reader for whole numbers from `low` to `high`, both included."""

    def read(text: str, limits: Limits) -> int:
        if len(text) > limits.number:
            _raise_too_long(limits.number, "characters")
        # digits alone are the rule, and faster to see than by the expression
        if not (text.isdecimal() and text.isascii()) and not _INTEGER(text):
            raise_bad_value("is not a whole decimal number", code="llm.bad-number")
        value = int(text)
        if low <= value <= high:
            return value
        raise_bad_value(f"is not from {low} to {high}", code="llm.out-of-range", clause="6")

    return read


def parse_boolean(text: str, limits: Limits) -> bool:
    """Read true or false, in any case."""
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise_bad_value("is neither true nor false", code="llm.bad-boolean")
    return value


def make_text_parser(limit: str) -> Callable[[str, Limits], str]:
    """A reader for text of at most as many octets as the limit of that name."""

    def read(text: str, limits: Limits) -> str:
        bound: int = getattr(limits, limit)
        if count_octets(text) > bound:
            _raise_too_long(bound, "octets")
        return text

    return read


def _raise_too_long(bound: int, unit: str) -> NoReturn:
    raise_bad_value(f"is longer than {bound} {unit}", code="llm.value-too-long")


def parse_unknown(text: str, limits: Limits) -> Any:
    """The value of a parameter that the draft does not define.

    true or false, a decimal number, a JSON object or array, else text; a JSON string forces text. A
    number beyond the limit, or a fraction too large for a float to show, stays text.
    """
    first = text[:1]
    if first == "{" or first == "[":
        return _parse_structure(text, limits)
    if first == '"':
        text = _parse_forced_text(text, limits.number)
    elif len(text) <= limits.number and _NUMBER(text):
        return _parse_number(text)
    elif (flag := _BOOLEANS.get(text.lower())) is not None:
        return flag
    if count_octets(text) > limits.value:
        _raise_too_long(limits.value, "octets")
    return text


def _parse_number(text: str) -> int | float | str:
    if "." not in text:
        return int(text)
    value = float(text)
    return value + 0.0 if -_EXACT < value < _EXACT else text


def _parse_forced_text(text: str, number: int) -> str:
    try:
        value: str = _decode_json(text, number)
    except json.JSONDecodeError:
        return text  # it only starts with a quotation mark
    _require_utf8(value, text)
    return value


def _parse_structure(text: str, limits: Limits) -> Any:
    if count_octets(text) > limits.json:
        _raise_too_long(limits.json, "octets of JSON")
    if _is_deeper(text, limits.depth):
        raise_bad_value(f"nests deeper than {limits.depth} levels", code="llm.too-deep")
    try:
        value = _decode_json(text, limits.number)
    except json.JSONDecodeError:
        raise_bad_value(
            "starts like JSON and is not JSON", code="llm.bad-json", hint="a JSON string forces plain text"
        )
    except RecursionError:  # the caller stands near the end of the stack already
        raise_bad_value("nests too deep to be read here", code="llm.too-deep")
    _require_utf8(value, text)
    return value


def _decode_json(text: str, number: int) -> Any:
    """The value of a JSON text that starts at once: no blanks before it."""
    value, end = _make_decoder(number if len(text) > number else 0).raw_decode(text)
    if end != len(text) and text[end:].strip(" \t\n\r"):
        raise json.JSONDecodeError("extra data", "", 0)
    return value


def _require_utf8(value: Any, text: str) -> None:
    """Refuse what can't be written in UTF-8 again: an escape such as \\ud800 alone."""
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise_bad_value("holds a lone surrogate", code="llm.bad-json")


def _is_deeper(text: str, depth: int) -> bool:
    if text.count("[") + text.count("{") <= depth:
        return False
    level = 0
    for mark in _STRUCTURE.findall(text):
        if mark in "[{":
            level += 1
            if level > depth:
                return True
        elif mark in "]}":
            level -= 1
    return False


@lru_cache(maxsize=8)
def _make_decoder(number: int) -> json.JSONDecoder:
    """A strict JSON decoder for numbers of at most `number` characters, 0 for no limit."""

    def whole(text: str) -> int:
        if len(text) > number:
            raise_bad_value(f"holds a number longer than {number} characters", code="llm.bad-json")
        return int(text)

    def fraction(text: str) -> float:
        value = float(text)
        if not isfinite(value) or 0 < number < len(text):
            raise_bad_value("holds a number that is too long or too large", code="llm.bad-json")
        return value

    return json.JSONDecoder(
        object_pairs_hook=_require_unique_members,
        parse_int=whole if number else int,
        parse_float=fraction,
        parse_constant=_refuse_constant,
    )


def _require_unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise_bad_value("holds a JSON object with one name twice", code="llm.bad-json")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise_bad_value("holds NaN or Infinity, which JSON does not have", code="llm.bad-json")


def format_decimal(value: float) -> str:
    """`value` in decimal notation without exponent, the shortest that reads back (draft 6)."""
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
    """Compact JSON. Raises ParameterError for what JSON can't hold, TypeError for foreign objects."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):  # NaN, Infinity, or an object inside itself
        raise_bad_value("can't be written as JSON", code="llm.bad-json")


def format_unknown(value: Any, limits: Limits) -> str:
    """The text that `parse_unknown` reads as `value`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if _parses_to_itself(value, limits) else format_json(value)
    if isinstance(value, int):
        # bits first: str() of an enormous int is refused by Python itself
        if value.bit_length() > 4 * limits.number or len(str(value)) > limits.number:
            _raise_too_long(limits.number, "characters")
        return str(value)
    if isinstance(value, float):
        text = format_decimal(value)
        if len(text) > limits.number or abs(value) >= _EXACT:
            raise_bad_value(
                "is too large or too small for decimal notation", code="llm.bad-number", clause="6"
            )
        return text
    if isinstance(value, (*STRUCTURES, tuple)):
        return format_json(list(value) if isinstance(value, tuple) else value)
    raise TypeError(f"a parameter can't be a {type(value).__name__}")


def _parses_to_itself(text: str, limits: Limits) -> bool:
    try:
        return isinstance(parse_unknown(text, limits), str) and parse_unknown(text, limits) == text
    except ParameterError:
        return False


_INT64: Final = 2**63 - 1
#: the timers of poll() and of most runtimes end here, 24.8 days
_LONGEST_TIMEOUT: Final = 2**31 - 1

_value_text = make_text_parser("value")


class RepeatedValues(list[Any]):
    """The values of an unknown name that stands more than once: not the same as one JSON array."""

    __slots__ = ()


def _make_filled_parser(reader: Callable[[str, Limits], str]) -> Callable[[str, Limits], str]:
    def read_filled(text: str, limits: Limits) -> str:
        if not text:
            raise_bad_value("is empty", clause="6")
        return reader(text, limits)

    return read_filled


def _parse_stop(raw: str, limits: Limits) -> tuple[str, ...]:
    """Sequences, split at raw commas: an encoded comma is a comma of the text."""
    pieces = raw.split(",")
    if len(pieces) > limits.parameters:
        _raise_too_many_sequences(limits)
    return tuple([_parse_sequence(piece, limits) for piece in pieces])


def _raise_too_many_sequences(limits: Limits) -> NoReturn:
    raise_bad_value(f"lists more than {limits.parameters} sequences", code="llm.too-many")


def _parse_sequence(piece: str, limits: Limits) -> str:
    if not piece:
        raise_bad_value("holds an empty stop sequence", clause="6")
    return _value_text(decode_component(piece, component="query"), limits)


#: how the part after the colon looks, for the kinds that Onym itself resolves
_REFERENCES: Final = {
    "env": re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch,
    "keyring": re.compile("[^/]+/[^/]+").fullmatch,
    "vault": re.compile("[^#]+#[^#]+").fullmatch,
}
# no digits: a pasted key of the shape id:secret must not pass for a kind of reference
_REFERENCE = re.compile("([a-z]+(?:-[a-z]+)*):(.+)").fullmatch


def _parse_reference(text: str, limits: Limits) -> str:
    """`auth=`: where the key is, such as env:NAME. Never the key."""
    found = _REFERENCE(text)
    if found is None or not text.isprintable() or not _REFERENCES.get(found[1], bool)(found[2]):
        raise_bad_value(
            "is not a reference to a credential",
            code="llm.bad-auth",
            clause="10.1",
            hint="such as env:NAME, file:PATH or keyring:SERVICE/USER, never the key itself",
        )
    return _value_text(text, limits)


#: a parser for each type that the registry has
_TYPE_PARSERS: Final[Mapping[str, Callable[[str, Limits], Any]]] = {
    "bool": parse_boolean,
    "float": make_float_parser(-_EXACT, _EXACT),
    "int": make_integer_parser(-_INT64 - 1, _INT64),
    "string": _value_text,
}
VALUE_PARSERS: Final[dict[str, Callable[[str, Limits], Any]]] = {
    **{name: _TYPE_PARSERS[kind] for name, kind in TYPES.items()},
    # those with a range or a form
    "temp": make_float_parser(0.0, 2.0),
    "max_tokens": make_integer_parser(1, _INT64),
    "top_p": make_float_parser(0.0, 1.0),
    "top_k": make_integer_parser(0, _INT64),
    "stop": _parse_stop,
    "timeout": make_integer_parser(1, _LONGEST_TIMEOUT),
    "retries": make_integer_parser(0, 100),
    "format": _make_filled_parser(_value_text),
    "system": make_text_parser("system"),
    # a parameter of this client, not of draft 6
    "auth": _parse_reference,
}


def parse_typed_query(query: str, start: int, limits: Limits) -> tuple[dict[str, Any], bool]:
    """Name to typed value, in order, and whether a credential is among them.

    `query` has the characters that RFC 3986 3.4 allows and stands at `start` in the whole text. The value
    of a name that says it is a credential is a `Secret`, that of a repeated unknown name a `RepeatedValues`.
    """
    typed: dict[str, Any] = {}
    found = 0
    encoded = "%" in query
    items = query.split("&")
    if len(items) > limits.parameters:
        raise _make_too_many_error(start, limits)
    name = item = ""
    try:
        for item in items:
            name, _, text = item.partition("=")
            reader = VALUE_PARSERS.get(name)
            if reader is None and encoded:
                name = decode_component(name, component="query")
                reader = VALUE_PARSERS.get(name)
            if reader is None:
                if item:
                    found |= _add_unknown(typed, name, text, limits)
            elif name in typed:
                typed[name] = _parse_repeated(typed[name], reader, text, limits)
            else:
                if encoded and reader is not _parse_stop:
                    text = _decode_value(text)
                typed[name] = reader(text, limits)
        if found & _MAY_CLASH:
            _require_no_clashes(typed, limits)
    except URIError as error:
        raise _locate_error(error, items, item, name, start) from None
    return typed, found & _CREDENTIAL != 0


# what _add_unknown found
_MAY_CLASH: Final = 1
_CREDENTIAL: Final = 2

_HEX_DIGITS: Final = "0123456789abcdefABCDEF"
_ASCII_TRIPLETS: Final = {high + low: chr(int(high + low, 16)) for high in "01234567" for low in _HEX_DIGITS}


def _decode_value(text: str) -> str:
    """`decode`, faster for what is mostly there: nothing to decode, or triplets of ASCII."""
    if "%" not in text:
        return text
    first, *rest = text.split("%")
    try:
        return first + "".join([_ASCII_TRIPLETS[piece[:2]] + piece[2:] for piece in rest])
    except KeyError:
        return decode_component(text, component="query")


def _make_too_many_error(start: int, limits: Limits) -> ParameterError:
    return ParameterError(
        f"the query holds more than {limits.parameters} parameters",
        code="llm.too-many",
        component="query",
        offset=start,
        clause=f"{DRAFT} 4.4",
    )


def _parse_repeated(earlier: Any, reader: object, text: str, limits: Limits) -> Any:
    """A well-known name for the second time: only `stop` may list its values so."""
    if reader is not _parse_stop:
        raise_bad_value("stands twice", code="llm.duplicate", clause="4.4")
    sequences = earlier + _parse_stop(text, limits)
    if len(sequences) > limits.parameters:
        _raise_too_many_sequences(limits)
    return sequences


def _add_unknown(typed: dict[str, Any], name: str, text: str, limits: Limits) -> int:
    text = _decode_value(text)
    found = _MAY_CLASH if "." in name or name in PROVIDER_NAMES else 0
    value: Any
    if is_secret_parameter(name):
        value = Secret(_value_text(text, limits))
        found |= _CREDENTIAL
    else:
        value = parse_unknown(text, limits)
        if isinstance(value, STRUCTURES) and _has_credential(value):
            value = Secret(text)
            found |= _CREDENTIAL
    if name not in typed:
        typed[name] = value
    elif isinstance(earlier := typed[name], RepeatedValues):
        earlier.append(value)
    else:
        typed[name] = RepeatedValues((earlier, value))
    return found


def _has_credential(value: Any) -> bool:
    """Whether a member of a JSON value is a text whose name calls it a credential."""
    if isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, str):
                if name.lower() != "key" and is_secret_parameter(name):  # alone, and so deep, it says little
                    return True
            elif isinstance(member, STRUCTURES) and _has_credential(member):
                return True
    elif isinstance(value, list):
        return any(map(_has_credential, value))
    return False


def _require_no_clashes(typed: dict[str, Any], limits: Limits) -> None:
    """A provider's name beside the well-known one, and names that are both value and object."""
    for name in typed:
        root, dot, _ = name.partition(".")
        meant = PROVIDER_NAMES.get(root)
        if meant in typed:
            _raise_clash(name, meant)
        if dot and len(split_dotted_name(name)) > limits.depth:
            raise_bad_value(f"nests deeper than {limits.depth} levels", code="llm.too-deep", parameter=name)
    nest_names(typed)


def nest_names(typed: Mapping[str, Any]) -> dict[str, Any]:
    """`typed` with dotted names as objects: `a.b=1&a.c=2` is `{"a": {"b": 1, "c": 2}}` (draft 4.4).

    Keys are text and nothing else, `__proto__` or `0` too. Raises ParameterError for a clash.
    """
    root: dict[str, Any] = {}
    branches = {id(root)}
    for name, value in typed.items():
        *above, last = split_dotted_name(name)
        node = root
        for depth, key in enumerate(above, 1):
            child = node.get(key)
            if child is None:
                child = node[key] = {}
                branches.add(id(child))
            elif id(child) not in branches:
                _raise_clash(".".join(above[:depth]), name)
            node = child
        if last in node:
            _raise_clash(name, next(other for other in typed if other.startswith(name + ".")))
        node[last] = copy_value(value)
    return root


def _raise_clash(name: str, other: str) -> NoReturn:
    raise_bad_value(
        f"clashes with {format_name(other)}",
        code="llm.clash",
        clause="4.4",
        parameter=name,
        hint="keep one of them",
    )


def _locate_error(error: URIError, items: list[str], item: str, name: str, start: int) -> URIError:
    """`error` with the parameter's name in its message, and its offset in the whole text."""
    index = next(i for i, other in enumerate(items) if other is item)
    if error.parameter is not None:
        name = error.parameter
        index = next(i for i, other in enumerate(items) if _parse_item_name(other) == name)
    at = start + index + sum(map(len, items[:index]))
    raw, equals, _ = items[index].partition("=")
    if isinstance(error, ParameterError):
        error.offset = at if error.code in ("llm.clash", "llm.duplicate") else at + len(raw) + len(equals)
    else:
        in_name = raw == name and "%" in raw
        error.offset = at + (error.offset or 0) + (0 if in_name else len(raw) + 1)
    return add_parameter_name(error, name)


def add_parameter_name(error: URIError, name: str) -> URIError:
    """`error` with the parameter's name, in a form that may be shown."""
    name = format_name(name)
    text = f"the parameter {name} {error.message}"
    if not isinstance(error, ParameterError):
        text = f"in the parameter {name}, {error.message}"
    error.args, error.message, error.parameter = (text,), text, name
    return error


def _parse_item_name(item: str) -> str:
    return decode_component(item.partition("=")[0], component="query")


def copy_value(value: Any) -> Any:
    """A deep copy of a parameter's value."""
    if isinstance(value, dict):
        return {key: copy_value(member) for key, member in value.items()}
    if isinstance(value, list):
        return [copy_value(member) for member in value]
    return value
