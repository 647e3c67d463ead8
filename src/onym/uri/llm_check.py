"""Check an llm URI: what the draft forbids or discourages, common mistakes, and proposed fixes.

An error is what the draft's grammar (3.2, 4.2.1) or a MUST of its text forbids; `strict` rejects it.
Section 8 requires every reserved character of a value to be encoded, but RFC 3986 3.4 and the draft's own
comma-separated lists do not: those findings are warnings.
"""

from __future__ import annotations

import re
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    final,
)

from onym.errors import LLMURIError, ParameterError, URIError
from onym.uri import generic
from onym.uri.components import (
    FRAGMENT,
    QUERY_NAME,
    QUERY_VALUE,
    SEGMENT,
    USERINFO,
    Frozen,
    decode_component,
    format_ipv6,
    parse_ipv6,
)
from onym.uri.llm_syntax import LOOSE_LIMITS, expand_params, format_query, loosen_limits, mask_credentials
from onym.uri.parameters import (
    DRAFT,
    PROVIDER_NAMES,
    VALUE_PARSERS,
    find_closest_name,
    format_name,
    is_redirecting,
)
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onym.uri.parameters import Limits

#: error: the draft forbids it, or it can't work; warning: discouraged, or likely a slip; note: good to know
Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: Final = ("error", "warning", "note")


@final
class Diagnostic(Frozen):
    """One finding.

    `code` is stable ("llm.raw-model"), `message` is for people and holds no value. `start` and `end` count
    characters in the text that was checked. `parameter` names the parameter at fault, `clause` the rule.
    `fix` is the whole text with this one thing put right, its keys masked; None where there is no one fix.
    """

    __slots__ = ("clause", "code", "component", "end", "fix", "message", "parameter", "severity", "start")
    code: str
    severity: Severity
    message: str
    clause: str | None
    component: str | None
    start: int
    end: int
    fix: str | None
    parameter: str | None

    def __init__(
        self,
        code: str,
        severity: Severity,
        message: str,
        *,
        clause: str | None,
        component: str | None,
        start: int,
        end: int,
        fix: str | None = None,
        parameter: str | None = None,
    ) -> None:
        given = (clause, code, component, end, fix, message, parameter, severity, start)
        for name, value in zip(self.__slots__, given, strict=True):
            object.__setattr__(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data, what is None left out."""
        names = ("code", "severity", "message", "clause", "component", "start", "end", "parameter", "fix")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def as_error(self) -> LLMURIError:
        """The finding as the refusal that `strict` makes of it."""
        in_query = self.component == "query" and self.parameter is not None
        kind = ParameterError if in_query else LLMURIError
        return kind(
            self.message,
            code=self.code,
            component=self.component,
            offset=self.start,
            clause=self.clause,
            parameter=self.parameter,
        )

    def __repr__(self) -> str:
        return f"<Diagnostic {self.severity} {self.code} {self.start}-{self.end}>"

    def __str__(self) -> str:
        rule = "" if self.clause is None else f" [{self.clause}]"
        return f"{self.severity}: {self.message} at {self.start}-{self.end}{rule} ({self.code})"

    def __eq__(self, other: object) -> bool:
        return self.as_dict() == other.as_dict() if isinstance(other, Diagnostic) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.code, self.start, self.end, self.message))


class CheckedURI(Protocol):
    """An llm URI as the check sees it: an `LLMURI`, whose module imports this one."""

    _typed: dict[str, Any]
    _limits: Limits

    @property
    def has_default_port(self) -> bool: ...  # noqa: D102
    @property
    def withheld(self) -> tuple[str, ...]: ...  # noqa: D102
    def render(self, *, reveal: bool = False) -> str: ...  # noqa: D102


U = TypeVar("U", bound=CheckedURI, covariant=True)


class URIReader(Protocol[U]):
    """Reads texts as llm URIs: the class `LLMURI`."""

    def parse(self, text: str, /, *, limits: Limits = ...) -> U: ...  # noqa: D102
    def from_iri(self, text: str, /) -> U: ...  # noqa: D102


_WRAPPING = " \t\r\n\ufeff\u200b<>\"'`"
_SHORT_START = re.compile(r"llm:/?(?=[^/])", re.IGNORECASE)
_PATH = re.compile(r"(?<![:/])/[^?#]*")
_SLASHES = re.compile("/{2,}")
# what no URI holds raw, and a % that starts no triplet; controls are left: nobody means them
_STRAY = re.compile(r"[ \"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")
#: longer texts are not repaired
_LONGEST_REPAIRED = 8192


def repair_text(text: str, reader: URIReader[U]) -> U | None:
    """The llm URI nearest to `text`, or None.

    Quotes and blanks around it go, `llm:` gets its slashes, characters that no URI holds are
    percent-encoded, empty segments go, and an IRI becomes a URI.
    """
    if len(text) > _LONGEST_REPAIRED:
        return None
    better = text.strip(_WRAPPING)
    better = _SHORT_START.sub("llm://", better, count=1) if _SHORT_START.match(better) else better
    better = _STRAY.sub(lambda found: f"%{ord(found[0]):02X}", better)
    better = _PATH.sub(_remove_empty_segments, better, count=1)
    try:
        return reader.parse(better) if better.isascii() else reader.from_iri(better)
    except URIError:
        return None


def _remove_empty_segments(path: re.Match[str]) -> str:
    return _SLASHES.sub("/", path[0]).rstrip("/") or "/"


_RESERVED = re.compile("[^A-Za-z0-9._~%-]")


class Edit(NamedTuple):
    """Replace what stands from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


class Findings(Generic[U]):
    """The findings on `text`, an llm URI read within `limits`; fixes cost time and are made if `fixing`."""

    def __init__(self, text: str, reader: URIReader[U], limits: Limits, *, fixing: bool = True) -> None:
        self._reader = reader
        self._text = text
        self._limits = loosen_limits(limits)
        self._fixing = fixing
        self._found: list[Diagnostic] = []
        self._edits: list[Edit] = []

    def add(
        self,
        severity: Severity,
        code: str,
        message: str,
        clause: str,
        component: str | None,
        span: tuple[int, int],
        *,
        edit: str | Edit | None = None,
        parameter: str | None = None,
    ) -> None:
        """Add one finding.

        `clause` is a section of the draft, or names another document too. An `edit` given as text is for
        `span`; where it leads to no readable URI, there is no fix.
        """
        start, end = span
        fix = None
        if edit is not None and self._fixing:
            edit = Edit(start, end, edit) if isinstance(edit, str) else edit
            better = _apply_edits(self._text, [edit])
            if self._parse_or_none(better) is not None:
                self._edits.append(edit)
                fix = mask_credentials(better)
        self._found.append(
            Diagnostic(
                f"llm.{code}",
                severity,
                message,
                clause=f"{DRAFT} {clause}" if clause[0].isdigit() else clause,
                component=component,
                start=start,
                end=end,
                fix=fix,
                parameter=parameter,
            )
        )

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What was found, in order of the text, errors first."""
        return tuple(sorted(self._found, key=lambda found: (found.start, SEVERITIES.index(found.severity))))

    def fixed(self) -> U | None:
        """The value of the text with every edit made, or None if together they do not make a URI."""
        return self._parse_or_none(_apply_edits(self._text, self._edits))

    def _parse_or_none(self, text: str) -> U | None:
        try:
            return self._reader.parse(text, limits=self._limits)
        except URIError:
            return None


def _apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """`text` with the edits made from the end on; one that reaches into another is left out."""
    limit = len(text) + 1
    for edit in sorted(edits, reverse=True):
        if edit.end <= limit:
            text = text[: edit.start] + edit.text + text[edit.end :]
            limit = edit.start
    return text


def find_reserved_span(raw: str) -> tuple[int, int] | None:
    """From the first to behind the last character that should not stand raw, or None."""
    found = [match.start() for match in _RESERVED.finditer(raw)]
    return (found[0], found[-1] + 1) if found else None


def looks_like_key(text: str) -> bool:
    """Whether the text has the shape of a provider's key somewhere."""
    from onym.uri._secret_detection import find_keys

    return next(find_keys(text), None) is not None


_FORMATS = ("text", "json", "json_schema")
# marks of direction and what has no width: they hide instructions from a reader
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# how no person writes a number: a plus sign, zeros in front
_ODD_NUMBER = re.compile(r"\+.*|-?0[0-9].*").fullmatch


class _QueryItem(NamedTuple):
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


def check_query(findings: Findings[Any], uri: CheckedURI, query: str, at: int) -> None:
    """Add to `findings` what there is to say of `query`, which stands at `at`."""
    end = at + len(query)
    seen: set[str] = set()
    withheld = frozenset(uri.withheld)
    for raw in query.split("&"):
        if raw:
            item = _parse_item(raw, at)
            _check_name(findings, item, "=" in raw)
            if item.name in VALUE_PARSERS:
                _check_known(findings, item)
            else:
                _check_unknown(findings, uri, item, withheld=withheld, repeated=item.name in seen)
            _check_value(findings, item)
            seen.add(item.name)
        elif query:
            _add_empty_pair(findings, at, end)
        else:
            message = "the query is empty"
            findings.add("note", "empty-query", message, "4.4", "query", (at - 1, at), edit="")
        at += len(raw) + 1


def _parse_item(raw: str, at: int) -> _QueryItem:
    name, _, value = raw.partition("=")
    return _QueryItem(
        at,
        at + len(raw),
        name,
        value,
        decode_component(name, component="query"),
        decode_component(value, component="query"),
    )


def _add_empty_pair(findings: Findings[Any], at: int, end: int) -> None:
    # the delimiter behind it goes, or the one before it at the end
    span = (at - 1, at) if at == end else (at, at + 1)
    findings.add("warning", "empty-pair", "there is nothing between two &", "4.4", "query", span, edit="")


def _check_name(findings: Findings[Any], item: _QueryItem, has_value: bool) -> None:
    parameter = format_name(item.name)
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
        _check_item_encoding(findings, item, span, normal, "name")


def _check_item_encoding(
    findings: Findings[Any], item: _QueryItem, span: tuple[int, int], normal: str, what: str
) -> None:
    raw = item.raw_name if what == "name" else item.raw_value
    stray = find_reserved_span(raw)
    parameter = format_name(item.name)
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


def _check_value(findings: Findings[Any], item: _QueryItem) -> None:
    raw = item.raw_value
    if item.name == "stop":
        normal = ",".join(
            QUERY_VALUE.quote(decode_component(part, component="query")) for part in raw.split(",")
        )
    else:
        normal = QUERY_VALUE.quote(item.value)
    if normal != raw and not ("+" in raw and item.name in ("system", "stop")):
        _check_item_encoding(findings, item, item.value_span, normal, "value")
    if looks_like_key(item.value):
        parameter = format_name(item.name)
        message = f"the value of the parameter {parameter} looks like a key"
        findings.add("warning", "key-shaped", message, "10.1", "query", item.value_span, parameter=parameter)


def _check_known(findings: Findings[Any], item: _QueryItem) -> None:
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
        _add_odd_number(findings, item, "")


def _add_odd_number(findings: Findings[Any], item: _QueryItem, hint: str) -> None:
    parameter = format_name(item.name)
    message = f"the parameter {parameter} is read as a number, its sign or zeros in front are lost{hint}"
    findings.add("note", "number-spelling", message, "6", "query", item.value_span, parameter=parameter)


def _check_unknown(
    findings: Findings[Any], uri: CheckedURI, item: _QueryItem, *, withheld: frozenset[str], repeated: bool
) -> None:
    name = item.name
    parameter = format_name(name)
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
    slip = None if known or "." in name else find_closest_name(name)
    if known is not None:
        message = f"{parameter} is passed through as it is; the draft's name for it is {known}"
        _suggest_name(findings, uri, item, "provider-name", message, known, "6")
    elif slip is not None:
        message = f"{parameter} is no well-known parameter; {slip} is"
        _suggest_name(findings, uri, item, "near-miss", message, slip, "6")
    if isinstance(value, dict):
        _check_dots(findings, item, value, parameter)
    elif isinstance(value, int | float) and _ODD_NUMBER(item.value):
        _add_odd_number(findings, item, "; a JSON string (%22...%22) keeps them")


def _check_withheld(findings: Findings[Any], uri: CheckedURI, item: _QueryItem, parameter: str) -> None:
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


def _suggest_name(
    findings: Findings[Any],
    uri: CheckedURI,
    item: _QueryItem,
    code: str,
    message: str,
    name: str,
    clause: str,
) -> None:
    # only where the value would do under that name: what can't be read is dropped by `add`
    edit = None
    if "." not in item.name and name not in uri._typed:
        edit = Edit(item.start, item.start + len(item.raw_name), name)
    parameter = format_name(item.name)
    findings.add("warning", code, message, clause, "query", item.span, edit=edit, parameter=parameter)


def _check_dots(findings: Findings[Any], item: _QueryItem, value: dict[str, object], parameter: str) -> None:
    """A JSON object that dot-notation could say, which the draft prefers."""
    flat = expand_params({item.name: value}, LOOSE_LIMITS)
    if item.name in flat:
        return
    message = f"the parameter {parameter} could be written with dots"
    edit = Edit(*item.span, format_query(flat, LOOSE_LIMITS, reveal=True))
    findings.add("note", "json", message, "4.4", "query", item.span, edit=edit, parameter=parameter)


_USABLE_NAME = re.compile("[a-z0-9._-]+").fullmatch
#: where intermediaries begin to cut URIs (draft 4.4)
_COMFORTABLE = 2048


class _NarrowPart(NamedTuple):
    """A part that draft 3.2 or 4.2.1 narrows to unreserved characters and triplets."""

    name: str
    component: str
    clause: str


_LABEL = _NarrowPart("app-label", "userinfo", "4.2.1")
_KEY = _NarrowPart("api-key", "userinfo", "4.2.1")
_MODEL = _NarrowPart("model", "path", "3.2")


def find_diagnostics(
    uri: CheckedURI, source: str, reader: URIReader[CheckedURI], *, fixing: bool = True
) -> tuple[Diagnostic, ...]:
    """The diagnostics on `source`, the text that `uri` was read from; without `fixing` none has a fix."""
    return collect_findings(uri, source, reader, fixing=fixing).diagnostics()


def report_rejection(text: str, error: URIError, reader: URIReader[U]) -> tuple[Diagnostic, U | None]:
    """The diagnostic on a text that is not an llm URI, and the nearest URI if there is one."""
    start = min(error.offset or 0, len(text))
    end = min(start + 1, len(text))
    if error.parameter is not None and error.component == "query":
        delimiter = re.compile("[&#]").search(text, start)
        end = delimiter.start() if delimiter else len(text)
    better = repair_text(text, reader)
    diagnostic = Diagnostic(
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
    return diagnostic, better


def collect_findings(uri: CheckedURI, text: str, reader: URIReader[U], *, fixing: bool = True) -> Findings[U]:
    """The findings on `text`, which `uri` was read from."""
    parts = generic.split_uri(text, "URI", max_length=len(text))
    at = generic.compute_offsets(parts)
    findings = Findings(text, reader, uri._limits, fixing=fixing)
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
        check_query(findings, uri, parts.query, at.query)
    if parts.fragment is not None:
        _check_fragment(findings, parts.fragment, at.fragment)
    if len(text) > _COMFORTABLE:
        message = f"some intermediaries cut URIs after {_COMFORTABLE} octets"
        findings.add("note", "long", message, "4.4", None, (0, len(text)))
    return findings


def _check_userinfo(findings: Findings[Any], userinfo: str, at: int) -> None:
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
    _check_encoding(
        findings, _LABEL, label, USERINFO.quote(decode_component(label, component="userinfo")), at
    )
    if looks_like_key(label):
        message = "the app-label looks like a key"
        findings.add("warning", "key-shaped", message, "10.1", "userinfo", (at, at + len(label)))
    if key:
        raw_at, plain = end - len(key), decode_component(key, component="userinfo")
        if key != MARK:
            _check_encoding(findings, _KEY, key, USERINFO.quote(plain), raw_at)
        _check_key(findings, plain, (raw_at, end))


def _check_key(findings: Findings[Any], key: str, span: tuple[int, int]) -> None:
    if key == MARK:
        message = "the api-key was masked: this is a redacted URI"
        findings.add("error", "redacted-key", message, "10.1", "userinfo", span, parameter="api-key")
        return
    if not key.isascii():
        message = "no HTTP header carries an api-key outside ASCII"
        findings.add("warning", "key-not-ascii", message, "4.2.1", "userinfo", span, parameter="api-key")
    message = "a key in a URI gets into logs and histories; auth=env:NAME would point to one"
    findings.add("note", "key-in-uri", message, "10.1", "userinfo", span, parameter="api-key")


def _check_host(findings: Findings[Any], host: str, host_type: str | None, at: int) -> None:
    address = parse_ipv6(host) if host_type == "IPv6address" else None
    normal = generic.normalize_reg_name(host) if address is None else format_ipv6(address)
    span = (at, at + len(host))
    if normal != host:
        message = "the host has a simpler form"
        findings.add("note", "host-not-normal", message, "RFC 3986 6.2.2", "host", span, edit=normal)
    if host_type == "IPvFuture" or (address is None and not _USABLE_NAME(normal)):
        message = "no name that can be looked up has such characters"
        findings.add("warning", "host-unusable", message, "4.2.2", "host", span)


def _check_port(findings: Findings[Any], uri: CheckedURI, port: str, at: int) -> None:
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


def _check_model(findings: Findings[Any], path: str, at: int) -> None:
    whole = (at, at + len(path))
    model = path[1:]
    segments = [decode_component(segment, component="path") for segment in model.split("/")]
    normal = "/".join(map(SEGMENT.quote, segments))
    _check_encoding(findings, _MODEL, model, normal, at + 1)
    if any("/" in segment for segment in segments):
        message = "an encoded slash is part of the name, it separates nothing"
        findings.add("note", "model-slash", message, "4.3", "path", whole)
    if looks_like_key(path):
        findings.add("warning", "key-shaped", "the model looks like a key", "10.1", "path", whole)


def _check_fragment(findings: Findings[Any], fragment: str, at: int) -> None:
    span = (at, at + len(fragment))
    if looks_like_key(fragment):
        findings.add("warning", "key-shaped", "the fragment looks like a key", "10.1", "fragment", span)
    normal = FRAGMENT.quote(decode_component(fragment, component="fragment"))
    if normal != fragment:
        message = "the fragment has a simpler encoding"
        findings.add("note", "not-normal", message, "RFC 3986 6.2.2", "fragment", span, edit=normal)


def _check_encoding(findings: Findings[Any], part: _NarrowPart, raw: str, normal: str, at: int) -> None:
    """Nothing raw but unreserved characters, nothing encoded without need."""
    if normal == raw:
        return
    edit = Edit(at, at + len(raw), normal)
    stray = find_reserved_span(raw.replace("/", "-") if part is _MODEL else raw)
    if stray is None:
        message = f"the {part.name} has a simpler encoding"
        findings.add(
            "note", "not-normal", message, "RFC 3986 6.2.2", part.component, (at, edit.end), edit=edit
        )
        return
    span = (at + stray[0], at + stray[1])
    message = f"the {part.name} holds characters that have to be percent-encoded"
    findings.add("error", f"raw-{part.name}", message, part.clause, part.component, span, edit=edit)
