"""The parameters of an llm URI: names, types, limits, and parsing of the query (draft 4.4, 6 and 10.3).

Pairs are split at raw `&` and at the first raw `=` before anything is decoded, so a percent-encoded delimiter
is data (RFC 3986 2.2). `+` is a plus sign. Names are case-sensitive; spellings are folded only to recognise
names that must not be sent: names that would redirect or replace a request, and names of credentials.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import isfinite
from typing import Any, Final, NoReturn, final

from onym.errors import ParameterError, URIError, UsageError
from onym.uri._registered import TYPES
from onym.uri._registered import WELL_KNOWN as WELL_KNOWN
from onym.uri.components import HEX_DIGITS, Frozen, decode_component
from onym.uri.secret import Secret

# above these, Python raises its own errors (recursion, int() of long texts)
_CEILINGS: Final = {"depth": 200, "number": 640}


@final
class Limits(Frozen):
    """Limits for an llm URI. Each is a whole number of at least 1.

    `uri`: bytes of the whole text. `value`: bytes of one decoded value, `system`: of the system prompt,
    `json`: of one structured value. `depth`: levels of JSON or dot-notation (at most 200). `parameters`:
    pairs in the query, and stop sequences. `number`: characters of one number (at most 640). Raises
    UsageError for other values.
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
        self._set_slots(
            depth=depth, json=json, number=number, parameters=parameters, system=system, uri=uri, value=value
        )
        for name, bound in self._as_dict().items():
            if type(bound) is not int or bound < 1:
                raise UsageError(f"the limit {name} must be a whole number of at least 1")
            if bound > _CEILINGS.get(name, bound):
                raise UsageError(f"the limit {name} must be at most {_CEILINGS[name]}")

    def replace(self, **changes: int) -> Limits:
        """The same limits, except the given ones."""
        return Limits(**{**self._as_dict(), **changes})

    def _as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        return f"Limits({', '.join(f'{name}={bound}' for name, bound in self._as_dict().items())})"

    def __eq__(self, other: object) -> bool:
        return self._as_dict() == other._as_dict() if isinstance(other, Limits) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._as_dict().values()))

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Limits, **self._as_dict()), ()


#: the limits of `LLMURI.parse`: 8,192 bytes, because intermediaries cut longer URIs (draft 4.4)
DEFAULT_LIMITS = Limits()


#: names that providers and SDKs give to a well-known parameter. A URI must not have both
PROVIDER_NAMES: Final = {
    name: known
    for known, names in {
        "temp": "temperature",
        "max_tokens": "maxTokens max_completion_tokens maxCompletionTokens max_output_tokens maxOutputTokens "
        "max_tokens_to_sample max_new_tokens num_predict n_predict",
        "top_p": "topP",
        "top_k": "topK",
        "stop": "stop_sequences stopSequences",
        "seed": "random_seed randomSeed",
        "timeout": "timeout_ms timeoutMs request_timeout",
        "retries": "max_retries maxRetries num_retries",
        "format": "response_format responseFormat response_mime_type responseMimeType",
    }.items()
    for name in names.split()
}


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# folded names of the model, the messages, the system prompt, the destination, its headers or its TLS
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

# parameters of providers whose names are close to a well-known name
_NO_SLIPS: Final = frozenset({"min_k", "min_p", "min_tokens", "top_a", "top_n"})


def fold_name(name: str) -> str:
    """Fold `name` to one spelling: apiKey, api-key and API_KEY are the same."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def split_dotted_name(name: str) -> tuple[str, ...]:
    """The keys of a dotted name; the name itself if a part would be empty."""
    if "." not in name:
        return (name,)
    parts = tuple(name.split("."))
    return parts if all(parts) else (name,)


def is_redirecting(name: str) -> bool:
    """Whether the name would change the destination or the content of a request, and so is never sent."""
    return fold_name(name.lstrip(".").partition(".")[0]) in _REDIRECTING


@lru_cache(maxsize=512)
def is_secret_parameter(name: str) -> bool:
    """Whether the name says that its value is a credential."""
    from onym.uri._secret_detection import is_secret_name  # late: not needed if every name is well-known

    return is_secret_name(name)


def format_name(name: str) -> str:
    """`name` as messages may show it: printable, short, and redacted."""
    from onym.uri.redact import redact  # late: needed only for errors

    text = redact(name)
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= 64 else f"{text[:63]}…"


def find_closest_name(name: str) -> str | None:
    """The well-known parameter that `name` misspells, or None."""
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
    """The number of letters to insert, drop, change or swap with their neighbour to turn `a` into `b`."""
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
# from here on floats are not exact: such a decimal stays text, exactly as written
EXACT = 1e16
# a bracket, or a whole JSON string to skip, closed or not
_STRUCTURE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def raise_bad_value(
    reason: str, *, code: str = "llm.bad-value", clause: str = "10.3", **more: Any
) -> NoReturn:
    """Raise ParameterError for a value; `reason` continues "the parameter NAME ..."."""
    raise ParameterError(reason, code=code, component="query", clause=f"{DRAFT} {clause}", **more)


def count_bytes(text: str) -> int:
    """The length of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def make_float_parser(low: float, high: float) -> Callable[[str, Limits], float]:
    """A parser for decimal numbers from `low` to `high`, both included."""
    usual = (_list_decimals(int(low), int(high)) if high - low < 10 else {}).get

    def parse(text: str, limits: Limits) -> float:
        if len(text) > limits.number:
            raise_too_long(limits.number, "characters")
        value = usual(text)
        if value is not None:
            return value
        if not _NUMBER(text):
            raise_bad_value("is not a decimal number", code="llm.bad-number")
        value = float(text)
        # a number that rounds to the upper end may be above it: 2.00000000000000001
        if low <= value <= high and not (value == high and _is_beyond(text, high)):
            return value + 0.0  # -0 becomes 0
        raise_bad_value(f"is not from {low:g} to {high:g}", code="llm.out-of-range", clause="6")

    return parse


def _is_beyond(text: str, high: float) -> bool:
    whole, _, fraction = text.partition(".")
    return int(whole) >= high and fraction.strip("0") != ""


def _list_decimals(low: int, high: int) -> dict[str, float]:
    """Numbers of up to two places by their text: a lookup is faster than a conversion."""
    whole = {str(n): float(n) for n in range(low, high + 1)}
    tenths = {f"{n // 10}.{n % 10}": n / 10 for n in range(low * 10, high * 10 + 1)}
    hundredths = {f"{n // 100}.{n % 100:02}": n / 100 for n in range(low * 100, high * 100 + 1)}
    return whole | tenths | hundredths


def make_integer_parser(low: int, high: int) -> Callable[[str, Limits], int]:
    """A parser for whole numbers from `low` to `high`, both included."""

    def parse(text: str, limits: Limits) -> int:
        if len(text) > limits.number:
            raise_too_long(limits.number, "characters")
        # mostly there are only digits, and this test is faster than the expression
        if not (text.isdecimal() and text.isascii()) and not _INTEGER(text):
            raise_bad_value("is not a whole decimal number", code="llm.bad-number")
        value = int(text)
        if low <= value <= high:
            return value
        raise_bad_value(f"is not from {low} to {high}", code="llm.out-of-range", clause="6")

    return parse


def parse_boolean(text: str, limits: Limits) -> bool:
    """Parse true or false, in any case."""
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise_bad_value("is neither true nor false", code="llm.bad-boolean")
    return value


def make_text_parser(limit: str) -> Callable[[str, Limits], str]:
    """A parser for text of at most as many bytes as the limit of that name."""

    def parse(text: str, limits: Limits) -> str:
        bound: int = getattr(limits, limit)
        if count_bytes(text) > bound:
            raise_too_long(bound, "bytes")
        return text

    return parse


def raise_too_long(bound: int, unit: str) -> NoReturn:
    """Raise ParameterError for a value of more than `bound` units."""
    raise_bad_value(f"is longer than {bound} {unit}", code="llm.value-too-long")


def parse_unknown(text: str, limits: Limits) -> Any:
    """The value of a parameter that the draft does not define.

    true or false, a decimal number, a JSON object or array, else text; a JSON string forces text. A number
    above the limit, or a fraction too large for an exact float, stays text.
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
    if count_bytes(text) > limits.value:
        raise_too_long(limits.value, "bytes")
    return text


def _parse_number(text: str) -> int | float | str:
    if "." not in text:
        return int(text)
    value = float(text)
    return value + 0.0 if -EXACT < value < EXACT else text


def _parse_forced_text(text: str, number: int) -> str:
    try:
        value: str = _decode_json(text, number)
    except json.JSONDecodeError:
        return text  # it only starts with a quotation mark
    _require_utf8(value, text)
    return value


def _parse_structure(text: str, limits: Limits) -> Any:
    if count_bytes(text) > limits.json:
        raise_too_long(limits.json, "bytes of JSON")
    if _is_deeper(text, limits.depth):
        raise_bad_value(f"nests deeper than {limits.depth} levels", code="llm.too-deep")
    try:
        value = _decode_json(text, limits.number)
    except json.JSONDecodeError:
        raise_bad_value(
            "starts like JSON and is not JSON", code="llm.bad-json", hint="a JSON string forces plain text"
        )
    except RecursionError:  # the caller is near the end of the stack already
        raise_bad_value("nests too deep to be parsed here", code="llm.too-deep")
    _require_utf8(value, text)
    return value


def _decode_json(text: str, number: int) -> Any:
    """The value of a JSON text without blanks before it."""
    value, end = _make_decoder(number if len(text) > number else 0).raw_decode(text)
    if end != len(text) and text[end:].strip(" \t\n\r"):
        raise json.JSONDecodeError("extra data", "", 0)
    return value


def _require_utf8(value: Any, text: str) -> None:
    """Raise for a value that cannot be written in UTF-8: a lone escape such as \\ud800."""
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise_bad_value("contains a lone surrogate", code="llm.bad-json")


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

    def parse_integer(text: str) -> int:
        if len(text) > number:
            raise_bad_value(f"contains a number longer than {number} characters", code="llm.bad-json")
        return int(text)

    def parse_fraction(text: str) -> float:
        value = float(text)
        if not isfinite(value) or 0 < number < len(text):
            raise_bad_value("contains a number that is too long or too large", code="llm.bad-json")
        return value

    return json.JSONDecoder(
        object_pairs_hook=_require_unique_members,
        parse_int=parse_integer if number else int,
        parse_float=parse_fraction,
        parse_constant=lambda name: raise_bad_value(
            "contains NaN or Infinity, which JSON does not have", code="llm.bad-json"
        ),
    )


def _require_unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise_bad_value("contains a JSON object with one name twice", code="llm.bad-json")
    return value


_INT64: Final = 2**63 - 1
#: the timers of poll() and of most runtimes end here, 24.8 days
_LONGEST_TIMEOUT: Final = 2**31 - 1

_parse_text = make_text_parser("value")


class RepeatedValues(list[Any]):
    """The values of an unknown name that is given more than once; one JSON array is a plain list."""

    __slots__ = ()


def _parse_format(text: str, limits: Limits) -> str:
    if not text:
        raise_bad_value("is empty", clause="6")
    return _parse_text(text, limits)


def _parse_stop(raw: str, limits: Limits) -> tuple[str, ...]:
    """Sequences, split at raw commas: an encoded comma is data."""
    pieces = raw.split(",")
    _require_few_sequences(pieces, limits)
    return tuple([_parse_sequence(piece, limits) for piece in pieces])


def _parse_sequence(piece: str, limits: Limits) -> str:
    if not piece:
        raise_bad_value("contains an empty stop sequence", clause="6")
    return _parse_text(decode_component(piece, component="query"), limits)


def _require_few_sequences(sequences: Sequence[str], limits: Limits) -> None:
    if len(sequences) > limits.parameters:
        raise_bad_value(f"lists more than {limits.parameters} sequences", code="llm.too-many")


#: the form of the part after the colon, for the kinds that Onym itself resolves
_REFERENCES: Final = {
    "env": re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch,
    "keyring": re.compile("[^/]+/[^/]+").fullmatch,
    "vault": re.compile("[^#]+#[^#]+").fullmatch,
}
# without digits: a pasted key of the form id:secret is not a reference
_REFERENCE = re.compile("([a-z]+(?:-[a-z]+)*):(.+)").fullmatch


def _parse_reference(text: str, limits: Limits) -> str:
    """The value of `auth`: a reference to the key, such as env:NAME."""
    found = _REFERENCE(text)
    if found is None or not text.isprintable() or not _REFERENCES.get(found[1], bool)(found[2]):
        raise_bad_value(
            "is not a reference to a credential",
            code="llm.bad-auth",
            clause="10.1",
            hint="use env:NAME, file:PATH or keyring:SERVICE/USER, never the key itself",
        )
    return _parse_text(text, limits)


#: the lowest and the highest value of parameters, both included; None is the end of the type's range
RANGES: Final[Mapping[str, tuple[int, int | None]]] = {
    "temp": (0, 2),
    "max_tokens": (1, None),
    "top_p": (0, 1),
    "top_k": (0, None),
    "timeout": (1, _LONGEST_TIMEOUT),
    "retries": (0, 100),
}


def _make_parser(name: str, kind: str) -> Callable[[str, Limits], Any]:
    """The parser for a type of the registry and the parameter's range."""
    low, high = RANGES.get(name, (None, None))
    if kind == "bool":
        return parse_boolean
    if kind == "float":
        return make_float_parser(-EXACT if low is None else low, EXACT if high is None else high)
    if kind == "int":
        return make_integer_parser(-_INT64 - 1 if low is None else low, _INT64 if high is None else high)
    return _parse_text


VALUE_PARSERS: Final[dict[str, Callable[[str, Limits], Any]]] = {
    **{name: _make_parser(name, kind) for name, kind in TYPES.items()},
    # texts with a form
    "stop": _parse_stop,
    "format": _parse_format,
    "system": make_text_parser("system"),
    # a parameter of this client, not in draft 6
    "auth": _parse_reference,
}


def parse_typed_query(query: str, start: int, limits: Limits) -> tuple[dict[str, Any], bool]:
    """Name to typed value, in order, and whether one of them is a credential.

    `query` has the characters that RFC 3986 3.4 allows and starts at `start` in the whole text. The value of
    a name of a credential is a `Secret`, that of a repeated unknown name a `RepeatedValues`.
    """
    typed: dict[str, Any] = {}
    found = 0
    encoded = "%" in query
    items = query.split("&")
    if len(items) > limits.parameters:
        raise ParameterError(
            f"the query has more than {limits.parameters} parameters",
            code="llm.too-many",
            component="query",
            offset=start,
            clause=f"{DRAFT} 4.4",
        )
    name = item = ""
    try:
        for item in items:
            name, _, text = item.partition("=")
            parser = VALUE_PARSERS.get(name)
            if parser is None and encoded:
                name = decode_component(name, component="query")
                parser = VALUE_PARSERS.get(name)
            if parser is None:
                if item:
                    found |= _add_unknown(typed, name, text, limits)
            elif name in typed:
                typed[name] = _parse_repeated(typed[name], parser, text, limits)
            else:
                if encoded and parser is not _parse_stop:
                    text = _decode_value(text)
                typed[name] = parser(text, limits)
        if found & _MAY_CLASH:
            _require_no_clashes(typed, limits)
    except URIError as error:
        raise _locate_error(error, items, item, name, start) from None
    return typed, found & _CREDENTIAL != 0


# the results of _add_unknown
_MAY_CLASH: Final = 1
_CREDENTIAL: Final = 2

_ASCII_TRIPLETS: Final = {high + low: chr(int(high + low, 16)) for high in "01234567" for low in HEX_DIGITS}


def _decode_value(text: str) -> str:
    """`decode_component`, faster for the usual values: without triplets, or with triplets of ASCII."""
    if "%" not in text:
        return text
    first, *rest = text.split("%")
    try:
        return first + "".join([_ASCII_TRIPLETS[piece[:2]] + piece[2:] for piece in rest])
    except KeyError:
        return decode_component(text, component="query")


def _parse_repeated(earlier: Any, parser: object, text: str, limits: Limits) -> Any:
    """The value of a well-known name that is given again: only `stop` may be."""
    if parser is not _parse_stop:
        raise_bad_value("is given twice", code="llm.duplicate", clause="4.4")
    sequences = earlier + _parse_stop(text, limits)
    _require_few_sequences(sequences, limits)
    return sequences


def _add_unknown(typed: dict[str, Any], name: str, text: str, limits: Limits) -> int:
    text = _decode_value(text)
    found = _MAY_CLASH if "." in name or name in PROVIDER_NAMES else 0
    value: Any
    if is_secret_parameter(name):
        value = Secret(_parse_text(text, limits))
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
    """Whether a JSON value has a text under the name of a credential."""
    if isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, str):
                if name.lower() != "key" and is_secret_parameter(name):  # "key" is too common inside JSON
                    return True
            elif isinstance(member, STRUCTURES) and _has_credential(member):
                return True
    elif isinstance(value, list):
        return any(map(_has_credential, value))
    return False


def _require_no_clashes(typed: dict[str, Any], limits: Limits) -> None:
    """Raise for a provider's name beside the well-known one, and for names that are both value and object."""
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

    Keys are always text, also `__proto__` and `0`. Raises ParameterError for a clash.
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
        raw_names = [other.partition("=")[0] for other in items]
        index = next(i for i, raw in enumerate(raw_names) if decode_component(raw, component="query") == name)
    at = start + index + sum(map(len, items[:index]))
    raw, equals, _ = items[index].partition("=")
    if isinstance(error, ParameterError):
        error.offset = at if error.code in ("llm.clash", "llm.duplicate") else at + len(raw) + len(equals)
    else:
        in_name = raw == name and "%" in raw
        error.offset = at + (error.offset or 0) + (0 if in_name else len(raw) + 1)
    return add_parameter_name(error, name)


def add_parameter_name(error: URIError, name: str) -> URIError:
    """`error` with the parameter's name, redacted."""
    name = format_name(name)
    text = f"the parameter {name} {error.message}"
    if not isinstance(error, ParameterError):
        text = f"in the parameter {name}, {error.message}"
    error.args, error.message, error.parameter = (text,), text, name
    return error


def copy_value(value: Any) -> Any:
    """A deep copy of a parameter's value."""
    if isinstance(value, dict):
        return {key: copy_value(member) for key, member in value.items()}
    if isinstance(value, list):
        return [copy_value(member) for member in value]
    return value
