"""Check an llm URI: what the draft forbids or discourages, common mistakes, and proposed fixes.

An error is a violation of the draft's grammar (3.2, 4.2.1) or of a MUST of its text; `strict` rejects it.
Section 8 requires every reserved character of a value to be encoded, but RFC 3986 3.4 and the draft's own
comma-separated lists do not: those findings are warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from onym.errors import LLMURIError, ParameterError, URIError
from onym.uri import components, generic, llm_syntax, parameters
from onym.uri.secret import MARK, Secret

#: error: forbidden by the draft, or it cannot work; warning: discouraged, or a likely mistake
Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: Final = ("error", "warning", "note")

#: code -> severity, clause (a section of the draft, or with the name of another document) and message
RULES: Final[Mapping[str, tuple[Severity, str, str]]] = {
    "scheme-case": ("warning", "4.1", "write the scheme in lower case"),
    "long": ("note", "4.4", "some intermediaries cut URIs after {limit} bytes"),
    "key-shaped": ("warning", "10.1", "the {part} looks like a key"),
    "not-normal": ("note", "RFC 3986 6.2.2", "the {part} has a simpler encoding"),
    # userinfo
    "empty-userinfo": ("error", "4.2.1", "the userinfo is empty"),
    "empty-label": ("error", "4.2.1", "the app-label is empty"),
    "empty-key": ("error", "4.2.1", "the api-key is empty and treated as absent"),
    "raw-app-label": ("error", "4.2.1", "the app-label contains characters that must be percent-encoded"),
    "raw-api-key": ("error", "4.2.1", "the api-key contains characters that must be percent-encoded"),
    "redacted-key": ("error", "10.1", "the api-key is masked: this is a redacted URI"),
    "key-not-ascii": (
        "warning",
        "4.2.1",
        "an HTTP header cannot carry an api-key outside ASCII",
    ),
    "key-in-uri": (
        "note",
        "10.1",
        "a key in a URI gets into logs and histories; use auth=env:NAME",
    ),
    # host, port and model
    "host-not-normal": ("note", "RFC 3986 6.2.2", "the host has a simpler form"),
    "host-unusable": ("warning", "4.2.2", "the host is neither a DNS name nor an IP address"),
    "empty-port": ("warning", "RFC 3986 6.2.3", "the port is empty and treated as absent"),
    "port-zeros": ("warning", "RFC 3986 3.2.3", "the port has leading zeros"),
    "default-port": ("note", "4.2.3", "this is the default port"),
    "raw-model": ("error", "3.2", "the model contains characters that must be percent-encoded"),
    "model-slash": ("note", "4.3", "an encoded slash is part of the name and separates nothing"),
    # query
    "empty-query": ("note", "4.4", "the query is empty"),
    "empty-pair": ("warning", "4.4", "there is nothing between two &"),
    "no-value": ("warning", "4.4", "the parameter {parameter} has no = and no value"),
    "empty-name": ("warning", "4.4", "a parameter has no name"),
    "control-in-name": ("error", "10.3", "the parameter name {parameter} contains a control character"),
    "raw-name": ("warning", "8", "the {part} contains reserved characters that are not encoded"),
    "raw-value": ("warning", "8", "the {part} contains reserved characters that are not encoded"),
    "plus": ("warning", "4.4", "a + in {parameter} is a plus sign; write a blank as %20"),
    "system": ("note", "10.4", "a system prompt in a URI is as trustworthy as the author of the URI"),
    "invisible": ("warning", "10.4", "{parameter} contains invisible characters"),
    "unknown-format": ("warning", "6", "format is one of {formats}"),
    "number-spelling": ("note", "6", "the number {parameter} loses its sign or leading zeros{hint}"),
    "repeated": ("warning", "4.4", "{parameter} is given more than once: its values form a list"),
    "credential": ("error", "10.1", "{parameter} carries a key and is not sent; use the userinfo or auth="),
    "withheld": ("warning", "10.3", "the parameter {parameter} would {effect} and is not sent"),
    "empty-dots": ("warning", "4.4", "the name {parameter} has an empty part and does not nest"),
    "provider-name": ("warning", "6", "{parameter} is passed through unchanged; the draft calls it {known}"),
    "near-miss": ("warning", "6", "{parameter} is not a well-known parameter; did you mean {known}?"),
    "json": ("note", "4.4", "the parameter {parameter} could be written with dots"),
}


class Diagnostic(NamedTuple):
    """A finding in a URI.

    `code` is stable ("llm.raw-model"), `message` is for people and contains no value. `start` and `end` count
    characters in the text that was checked. `parameter` names the parameter, `clause` the rule. `fix` is the
    whole text with only this finding corrected and keys masked; None if there is no single correction.
    """

    code: str
    severity: Severity
    message: str
    clause: str | None
    component: str | None
    start: int
    end: int
    parameter: str | None = None
    fix: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data, without the values that are None."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def as_error(self) -> LLMURIError:
        """The finding as the error that `strict` raises."""
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


class CheckedURI(Protocol):
    """An llm URI as the check sees it: an `LLMURI`, whose module imports this one."""

    _typed: dict[str, Any]
    _limits: parameters.Limits

    @property
    def has_default_port(self) -> bool:
        """Whether the port can be left out."""

    @property
    def withheld(self) -> tuple[str, ...]:
        """The names of parameters that are never sent."""

    def render(self, *, reveal: bool = False) -> str:
        """The URI as text."""


U = TypeVar("U", bound=CheckedURI, covariant=True)


class URIReader(Protocol[U]):
    """Reads texts as llm URIs: the class `LLMURI`."""

    def parse(self, text: str, /, *, limits: parameters.Limits = ...) -> U:
        """Read a URI."""

    def from_iri(self, text: str, /) -> U:
        """Read text that may have Unicode in it."""


_WRAPPING = " \t\r\n\ufeff\u200b<>\"'`"
_SHORT_START = re.compile(r"llm:/?(?=[^/])", re.IGNORECASE)
_PATH = re.compile(r"(?<![:/])/[^?#]*")
_SLASHES = re.compile("/{2,}")
# characters that a URI cannot contain, and a % without two digits; control characters are never intended
_STRAY = re.compile(r"[ \"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")
#: longer texts are not repaired
_LONGEST_REPAIRED = 8192


def repair_text(text: str, reader: URIReader[U]) -> U | None:
    """The llm URI nearest to `text`, or None.

    Quotes and blanks around it are removed, `llm:` gets its slashes, characters that are not allowed in a URI
    are percent-encoded, empty segments are removed, and an IRI becomes a URI.
    """
    if len(text) > _LONGEST_REPAIRED:
        return None
    better = text.strip(_WRAPPING)
    better = _SHORT_START.sub("llm://", better, count=1) if _SHORT_START.match(better) else better
    better = _STRAY.sub(lambda found: f"%{ord(found[0]):02X}", better)
    better = _PATH.sub(lambda path: _SLASHES.sub("/", path[0]).rstrip("/") or "/", better, count=1)
    try:
        return reader.parse(better) if better.isascii() else reader.from_iri(better)
    except URIError:
        return None


_RESERVED = re.compile("[^A-Za-z0-9._~%-]")


class Edit(NamedTuple):
    """Replace the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


class Findings(Generic[U]):
    """The findings on `text`, an llm URI read within `limits`; fixes cost time and are made if `fixing`."""

    def __init__(
        self, text: str, reader: URIReader[U], limits: parameters.Limits, *, fixing: bool = True
    ) -> None:
        self._reader = reader
        self._text = text
        self._limits = llm_syntax.loosen_limits(limits)
        self._fixing = fixing
        self._found: list[Diagnostic] = []
        self._edits: list[Edit] = []

    def add(
        self,
        code: str,
        component: str | None,
        span: tuple[int, int],
        *,
        edit: str | Edit | None = None,
        parameter: str | None = None,
        severity: Severity | None = None,
        **words: object,
    ) -> None:
        """Add a finding under a rule; `severity` replaces the rule's, and `words` complete its message.

        An `edit` given as text is for `span`; if it does not lead to a readable URI, there is no fix.
        """
        start, end = span
        usual, clause, message = RULES[code]
        fix = None
        if edit is not None and self._fixing:
            edit = Edit(start, end, edit) if isinstance(edit, str) else edit
            better = _apply_edits(self._text, [edit])
            if self._parse_or_none(better) is not None:
                self._edits.append(edit)
                fix = llm_syntax.mask_credentials(better)
        self._found.append(
            Diagnostic(
                f"llm.{code}",
                severity or usual,
                message.format(parameter=parameter, **words),
                clause=f"{parameters.DRAFT} {clause}" if clause[0].isdigit() else clause,
                component=component,
                start=start,
                end=end,
                fix=fix,
                parameter=parameter,
            )
        )

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The findings in order of the text, errors first."""
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
    """`text` with the edits made from the end on; an edit that overlaps another is left out."""
    limit = len(text) + 1
    for edit in sorted(edits, reverse=True):
        if edit.end <= limit:
            text = text[: edit.start] + edit.text + text[edit.end :]
            limit = edit.start
    return text


def find_reserved_span(raw: str) -> tuple[int, int] | None:
    """The span from the first to the last character that should be encoded, or None."""
    found = [match.start() for match in _RESERVED.finditer(raw)]
    return (found[0], found[-1] + 1) if found else None


def looks_like_key(text: str) -> bool:
    """Whether the text contains a key in a provider's format."""
    from onym.uri._secret_detection import find_keys

    return next(find_keys(text), None) is not None


_FORMATS = ("text", "json", "json_schema")
# marks of direction and characters without width: they hide instructions from a reader
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
# a number with a plus sign or leading zeros
_ODD_NUMBER = re.compile(r"\+.*|-?0[0-9].*").fullmatch


class _QueryItem(NamedTuple):
    """One `name=value` of the text, from `start` to `end`; messages show its name as `parameter`."""

    start: int
    end: int
    raw_name: str
    raw_value: str
    name: str
    value: str
    parameter: str

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end

    @property
    def name_span(self) -> tuple[int, int]:
        return self.start, self.start + len(self.raw_name)

    @property
    def value_span(self) -> tuple[int, int]:
        return self.end - len(self.raw_value), self.end


def check_query(findings: Findings[Any], uri: CheckedURI, query: str, at: int) -> None:
    """Add the findings about `query`, which starts at `at`."""
    end = at + len(query)
    seen: set[str] = set()
    withheld = frozenset(uri.withheld)
    for raw in query.split("&"):
        if raw:
            item = _parse_item(raw, at)
            _check_name(findings, item, "=" in raw)
            if item.name in parameters.VALUE_PARSERS:
                _check_known(findings, item)
            else:
                _check_unknown(findings, uri, item, withheld=withheld, repeated=item.name in seen)
            _check_value(findings, item)
            seen.add(item.name)
        elif query:
            # the fix removes the delimiter after it, or the one before it at the end
            findings.add("empty-pair", "query", (at - 1, at) if at == end else (at, at + 1), edit="")
        else:
            findings.add("empty-query", "query", (at - 1, at), edit="")
        at += len(raw) + 1


def _parse_item(raw: str, at: int) -> _QueryItem:
    raw_name, _, raw_value = raw.partition("=")
    name = components.decode_component(raw_name, component="query")
    value = components.decode_component(raw_value, component="query")
    return _QueryItem(at, at + len(raw), raw_name, raw_value, name, value, parameters.format_name(name))


def _check_name(findings: Findings[Any], item: _QueryItem, has_value: bool) -> None:
    span, parameter = item.name_span, item.parameter
    if not has_value:
        findings.add("no-value", "query", span, edit=Edit(item.end, item.end, "="), parameter=parameter)
    if not item.name:
        findings.add("empty-name", "query", item.span)
    if llm_syntax.CONTROL.search(item.name):
        findings.add("control-in-name", "query", span, parameter=parameter)
    normal = components.QUERY_NAME.quote(item.name)
    if normal != item.raw_name:
        _check_item_encoding(findings, item, span, normal, "name")


def _check_item_encoding(
    findings: Findings[Any], item: _QueryItem, span: tuple[int, int], normal: str, half: str
) -> None:
    stray = find_reserved_span(item.raw_name if half == "name" else item.raw_value)
    edit, part = Edit(*span, normal), f"{half} of the parameter {item.parameter}"
    # the colon of a reference such as env:NAME is harmless and common
    severity: Severity | None = "note" if item.name == "auth" else None
    code = "not-normal"
    if stray is not None:
        code, span = f"raw-{half}", (span[0] + stray[0], span[0] + stray[1])
    findings.add(code, "query", span, edit=edit, parameter=item.parameter, severity=severity, part=part)


def _check_value(findings: Findings[Any], item: _QueryItem) -> None:
    raw = item.raw_value
    if item.name == "stop":
        parts = (components.decode_component(part, component="query") for part in raw.split(","))
        normal = ",".join(map(components.QUERY_VALUE.quote, parts))
    else:
        normal = components.QUERY_VALUE.quote(item.value)
    if normal != raw and not ("+" in raw and item.name in ("system", "stop")):
        _check_item_encoding(findings, item, item.value_span, normal, "value")
    if looks_like_key(item.value):
        part = f"value of the parameter {item.parameter}"
        findings.add("key-shaped", "query", item.value_span, parameter=item.parameter, part=part)


def _check_known(findings: Findings[Any], item: _QueryItem) -> None:
    """Check a well-known parameter or `auth`; its value is valid already."""
    name, span = item.name, item.value_span
    if name in ("system", "stop"):
        if "+" in item.raw_value:
            edit = item.raw_value.replace("+", "%20")
            findings.add("plus", "query", span, edit=edit, parameter=name)
        if name == "system":
            findings.add("system", "query", item.span, parameter=name)
        if _INVISIBLE.search(item.value):
            findings.add("invisible", "query", span, parameter=name)
    elif name == "format" and item.value not in _FORMATS:
        lower = item.value.lower()
        better = lower if lower in _FORMATS else None
        formats = ", ".join(_FORMATS)
        findings.add("unknown-format", "query", span, edit=better, parameter=name, formats=formats)
    elif _ODD_NUMBER(item.value):
        findings.add("number-spelling", "query", span, parameter=item.parameter, hint="")


def _check_unknown(
    findings: Findings[Any], uri: CheckedURI, item: _QueryItem, *, withheld: frozenset[str], repeated: bool
) -> None:
    name, parameter = item.name, item.parameter
    value = uri._typed[name]  # `params` would copy it for each repetition
    if repeated:
        findings.add("repeated", "query", item.span, parameter=parameter)
    if name in withheld:
        _check_withheld(findings, item, value)
        return
    if "." in name and not all(name.split(".")):
        findings.add("empty-dots", "query", item.span, parameter=parameter)
    known = parameters.PROVIDER_NAMES.get(name) or parameters.PROVIDER_NAMES.get(name.partition(".")[0])
    meant = known or (None if "." in name else parameters.find_closest_name(name))
    if meant is not None:
        # `add` drops the fix if the value is invalid under that name
        edit = Edit(*item.name_span, meant) if "." not in name and meant not in uri._typed else None
        code = "near-miss" if known is None else "provider-name"
        findings.add(code, "query", item.span, edit=edit, parameter=parameter, known=meant)
    if isinstance(value, dict):
        _check_dots(findings, item, value)
    elif isinstance(value, int | float) and _ODD_NUMBER(item.value):
        hint = "; a JSON string (%22...%22) keeps them"
        findings.add("number-spelling", "query", item.value_span, parameter=parameter, hint=hint)


def _check_withheld(findings: Findings[Any], item: _QueryItem, value: Any) -> None:
    if any(isinstance(one, Secret) for one in (value if isinstance(value, list) else [value])):
        findings.add("credential", "query", item.span, parameter=item.parameter)
        return
    effect = (
        "redirect or replace the request"
        if parameters.is_redirecting(item.name)
        else "replace a well-known parameter"
    )
    findings.add("withheld", "query", item.span, parameter=item.parameter, effect=effect)


def _check_dots(findings: Findings[Any], item: _QueryItem, value: dict[str, object]) -> None:
    """Note a JSON object that could have dot-notation, which the draft prefers."""
    flat = llm_syntax.expand_params({item.name: value}, llm_syntax.LOOSE_LIMITS)
    if item.name not in flat:
        edit = llm_syntax.format_query(flat, llm_syntax.LOOSE_LIMITS, reveal=True)
        findings.add("json", "query", item.span, edit=edit, parameter=item.parameter)


#: the length from which intermediaries begin to cut URIs, in bytes (draft 4.4)
_COMFORTABLE = 2048


def find_diagnostics(
    uri: CheckedURI, source: str, reader: URIReader[CheckedURI], *, fixing: bool = True
) -> tuple[Diagnostic, ...]:
    """The diagnostics on `source`, the text of `uri`; without `fixing`, none has a fix."""
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
        findings.add("scheme-case", "scheme", (0, 3), edit="llm")
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
        findings.add("long", None, (0, len(text)), limit=_COMFORTABLE)
    return findings


def _check_userinfo(findings: Findings[Any], userinfo: str, at: int) -> None:
    label, colon, key = userinfo.partition(":")
    end = at + len(userinfo)
    if not userinfo:
        findings.add("empty-userinfo", "userinfo", (at, at + 1), edit="")
    elif not label:
        findings.add("empty-label", "userinfo", (at, at + 1), parameter="app-label")
    if colon and not key:
        findings.add("empty-key", "userinfo", (end - 1, end), edit="", parameter="api-key")
    normal = components.USERINFO.quote(components.decode_component(label, component="userinfo"))
    _check_encoding(findings, "app-label", "userinfo", label, normal, at)
    if looks_like_key(label):
        findings.add("key-shaped", "userinfo", (at, at + len(label)), part="app-label")
    if key:
        start, plain = end - len(key), components.decode_component(key, component="userinfo")
        if key != MARK:
            _check_encoding(findings, "api-key", "userinfo", key, components.USERINFO.quote(plain), start)
        _check_key(findings, plain, (start, end))


def _check_key(findings: Findings[Any], key: str, span: tuple[int, int]) -> None:
    if key == MARK:
        findings.add("redacted-key", "userinfo", span, parameter="api-key")
        return
    if not key.isascii():
        findings.add("key-not-ascii", "userinfo", span, parameter="api-key")
    findings.add("key-in-uri", "userinfo", span, parameter="api-key")


def _check_host(findings: Findings[Any], host: str, host_type: str | None, at: int) -> None:
    address = components.parse_ipv6(host) if host_type == "IPv6address" else None
    normal = generic.normalize_reg_name(host) if address is None else components.format_ipv6(address)
    span = (at, at + len(host))
    if normal != host:
        findings.add("host-not-normal", "host", span, edit=normal)
    if host_type == "IPvFuture" or (address is None and not _is_usable_name(normal)):
        findings.add("host-unusable", "host", span)


def _is_usable_name(host: str) -> bool:
    if components.is_ipv4(host):
        return True
    name = host.removesuffix(".")
    return generic.is_dns_name(name) and not generic.ends_in_number(name)


def _check_port(findings: Findings[Any], uri: CheckedURI, port: str, at: int) -> None:
    end = at + len(port)
    if not port:
        findings.add("empty-port", "port", (at - 1, end), edit="")
    elif port[0] == "0":
        findings.add("port-zeros", "port", (at, end), edit=port.lstrip("0"))
    elif uri.has_default_port:
        findings.add("default-port", "port", (at - 1, end), edit="")


def _check_model(findings: Findings[Any], path: str, at: int) -> None:
    span = (at, at + len(path))
    model = path[1:]
    segments = [components.decode_component(segment, component="path") for segment in model.split("/")]
    _check_encoding(
        findings, "model", "path", model, "/".join(map(components.SEGMENT.quote, segments)), at + 1
    )
    if any("/" in segment for segment in segments):
        findings.add("model-slash", "path", span)
    if looks_like_key(path):
        findings.add("key-shaped", "path", span, part="model")


def _check_fragment(findings: Findings[Any], fragment: str, at: int) -> None:
    span = (at, at + len(fragment))
    if looks_like_key(fragment):
        findings.add("key-shaped", "fragment", span, part="fragment")
    normal = components.FRAGMENT.quote(components.decode_component(fragment, component="fragment"))
    if normal != fragment:
        findings.add("not-normal", "fragment", span, edit=normal, part="fragment")


def _check_encoding(
    findings: Findings[Any], part: str, component: str, raw: str, normal: str, at: int
) -> None:
    """Check that a part of draft 3.2 or 4.2.1 has only unreserved characters and necessary triplets."""
    if normal == raw:
        return
    edit = Edit(at, at + len(raw), normal)
    stray = find_reserved_span(raw.replace("/", "-") if part == "model" else raw)
    if stray is None:
        findings.add("not-normal", component, (at, edit.end), edit=edit, part=part)
    else:
        findings.add(f"raw-{part}", component, (at + stray[0], at + stray[1]), edit=edit)
