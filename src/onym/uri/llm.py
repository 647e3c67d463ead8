"""`LLMURI`: an llm:// connection string as a frozen value (draft-levy-llm-uri-scheme-00), and its `Report`.

    >>> uri = LLMURI.parse("llm://my-app:sk-123@api.openai.com/gpt-5?temp=0.7&max_tokens=1500")
    >>> uri.host, uri.model, uri.temp, uri.max_tokens
    ('api.openai.com', 'gpt-5', 0.7, 1500)
    >>> print(uri)
    llm://my-app:***@api.openai.com/gpt-5?temp=0.7&max_tokens=1500

`parse` accepts what RFC 3986 accepts. `check` lists what the draft forbids or discourages beyond that, each
as a `Diagnostic` with code, clause, severity, span and, if there is one, a fix. `strict=True` rejects what
the draft forbids. Onym always writes URIs in the draft's grammar.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, final

from onym.errors import SecretError, URIError, UsageError
from onym.uri import llm_syntax
from onym.uri.components import Frozen, find_bad_triplet, format_ipv6, is_ipv4, parse_ipv6
from onym.uri.llm_syntax import (
    LOOSE_LIMITS,
    Params,
    iter_raw_items,
    list_withheld,
    loosen_limits,
    make_params,
    select_passed_through,
)
from onym.uri.parameters import DEFAULT_LIMITS, Limits, parse_typed_query
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onym.uri.llm_check import Diagnostic, Severity

__all__ = [
    "DEFAULT_LIMITS",
    "LLMURI",
    "LLMURIFields",
    "Limits",
    "Report",
    "bracket_host",
    "check",
    "parse",
    "reveal_source",
]


@final
class Report(Frozen):
    """What `check` found, in order of the text; `uri` is None where the text was refused."""

    __slots__ = ("_fixed", "diagnostics", "uri")
    uri: LLMURI | None
    diagnostics: tuple[Diagnostic, ...]
    _fixed: LLMURI | None

    def __init__(
        self, uri: LLMURI | None, diagnostics: tuple[Diagnostic, ...], fixed: LLMURI | None = None
    ) -> None:
        object.__setattr__(self, "uri", uri)
        object.__setattr__(self, "diagnostics", diagnostics)
        object.__setattr__(self, "_fixed", fixed)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of severity error."""
        return self._select_severity("error")

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of severity warning."""
        return self._select_severity("warning")

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of severity note."""
        return self._select_severity("note")

    @property
    def ok(self) -> bool:
        """Whether there is a value, and no error."""
        return self.uri is not None and not self.errors

    def _select_severity(self, severity: Severity) -> tuple[Diagnostic, ...]:
        return tuple(found for found in self.diagnostics if found.severity == severity)

    def fixed(self, *, reveal: bool = False) -> str | None:
        """The URI with every fix made, as Onym writes it; None where no URI comes of them.

        Keys are `***` unless `reveal` is true.
        """
        return None if self._fixed is None else self._fixed.render(reveal=reveal)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, keys masked."""
        return {
            "ok": self.ok,
            "uri": None if self.uri is None else str(self.uri),
            "fixed": self.fixed(),
            "diagnostics": [found.as_dict() for found in self.diagnostics],
        }

    def __repr__(self) -> str:
        return (
            f"<Report of {len(self.errors)} errors, {len(self.warnings)} warnings, {len(self.notes)} notes>"
        )


class LLMURIFields:
    """The slots of `LLMURI` before it is frozen, and its derived attributes."""

    __slots__ = (
        "__weakref__", "_host_type", "_limits", "_segments", "_source", "_typed",
        "fragment", "host", "key", "label", "model", "port",
    )  # fmt: skip
    label: str | None
    key: Secret | None
    host: str
    port: int | None
    model: str
    fragment: str | None
    _typed: dict[str, Any]
    _limits: Limits
    # the text it was read from, for `check`: a Secret where it holds one
    _source: str | Secret
    # set only where they do not follow from host and model
    _host_type: str
    _segments: tuple[str, ...]

    @property
    def host_type(self) -> str:
        """`reg-name`, `IPv4address`, `IPv6address` or `IPvFuture` (RFC 3986 3.2.2)."""
        known: str | None = getattr(self, "_host_type", None)
        return known or ("IPv4address" if is_ipv4(self.host) else "reg-name")

    @property
    def host_text(self) -> str:
        """`host` as it stands in a URI: an IP literal in its brackets."""
        return bracket_host(self.host, self.host_type)

    @property
    def segments(self) -> tuple[str, ...]:
        """The path's segments, each decoded once; one may hold a slash that was encoded."""
        known: tuple[str, ...] | None = getattr(self, "_segments", None)
        return known or tuple(self.model.split("/"))

    @property
    def params(self) -> Params:
        """All parameters, in order, typed."""
        return make_params(self._typed)

    @property
    def temp(self) -> float | None:
        """Sampling temperature, 0 to 2."""
        return self._typed.get("temp")

    @property
    def max_tokens(self) -> int | None:
        """The most tokens in the completion, at least 1."""
        return self._typed.get("max_tokens")

    @property
    def top_p(self) -> float | None:
        """Nucleus sampling threshold, 0 to 1."""
        return self._typed.get("top_p")

    @property
    def top_k(self) -> int | None:
        """Top-k sampling, at least 0."""
        return self._typed.get("top_k")

    @property
    def stop(self) -> tuple[str, ...] | None:
        """Stop sequences."""
        return self._typed.get("stop")

    @property
    def seed(self) -> int | None:
        """Random seed, within 64 bits."""
        return self._typed.get("seed")

    @property
    def stream(self) -> bool | None:
        """Whether to stream the answer."""
        return self._typed.get("stream")

    @property
    def timeout(self) -> int | None:
        """Milliseconds for the whole call, at least 1."""
        return self._typed.get("timeout")

    @property
    def retries(self) -> int | None:
        """Attempts after the first, 0 to 100."""
        return self._typed.get("retries")

    @property
    def cache(self) -> bool | None:
        """Whether to cache answers."""
        return self._typed.get("cache")

    @property
    def format(self) -> str | None:
        """Response format: `text`, `json` or `json_schema`."""
        return self._typed.get("format")

    @property
    def system(self) -> str | None:
        """System prompt. Untrusted where the URI is (draft 10.4)."""
        return self._typed.get("system")

    @property
    def auth(self) -> str | None:
        """Where the client finds the key, such as `env:NAME`. Never sent."""
        return self._typed.get("auth")

    @property
    def extra(self) -> dict[str, Any]:
        """What passes through to the provider's request body: unknown names, dotted ones nested."""
        return select_passed_through(self._typed)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Names that are never sent: they would redirect or replace a request, or carry a key."""
        return list_withheld(self._typed)

    @property
    def is_loopback(self) -> bool:
        """Whether the host is `localhost`, a name below it, or a literal loopback address."""
        if self.host_type == "IPv6address":
            return parse_ipv6(self.host) == 1
        if self.host_type == "IPv4address":
            return self.host.startswith("127.")
        name = self.host.removesuffix(".")
        return name == "localhost" or name.endswith(".localhost")

    @property
    def default_port(self) -> int:
        """443, or 11434 for a loopback host (draft 4.2.3). A provider's row may say otherwise."""
        return 11434 if self.is_loopback else 443

    @property
    def effective_port(self) -> int:
        """`port`, else `default_port`."""
        return self.default_port if self.port is None else self.port

    @property
    def has_default_port(self) -> bool:
        """Whether `port` says no more than the default does.

        Never for a single word but `localhost`: with a port it is a host, without one it may be an alias.
        """
        word = not self.is_loopback and "." not in self.host and ":" not in self.host
        return self.port == self.default_port and not word

    @property
    def normal_host(self) -> str:
        """`host` with an IPv6 address in the form of RFC 5952."""
        address = parse_ipv6(self.host) if self.host_type == "IPv6address" else None
        return self.host if address is None else format_ipv6(address)


def bracket_host(host: str, host_type: str) -> str:
    """`host` as it stands in a URI."""
    return f"[{host}]" if host_type in ("IPv6address", "IPvFuture") else host


def reveal_source(fields: LLMURIFields) -> str:
    """The text that it was read from, key and all: for `check` alone."""
    source = fields._source
    return source.reveal() if isinstance(source, Secret) else source


_PLAIN = r"A-Za-z0-9_~\-"  # unreserved, but for the dot
# The common form in one pass: no triplets outside the query, no segment that starts with a dot, nothing
# that the draft forbids in userinfo and path. Possessive throughout, so it never backtracks.
_COMMON = re.compile(
    rf"[Ll][Ll][Mm]://(?:([{_PLAIN}.]++)(?::([{_PLAIN}.]++))?@)?([{_PLAIN}.]++)(?::([0-9]{{1,5}}+))?"
    rf"/([{_PLAIN}][{_PLAIN}.]*+(?:/[{_PLAIN}][{_PLAIN}.]*+)*+)"
    rf"(?:\?([{_PLAIN}.!$'()*+,;=:@/?&%]*+))?(?:\#([{_PLAIN}.!$'()*+,;=:@/?&]*+))?"
).fullmatch


_Args = ParamSpec("_Args")
_Value = TypeVar("_Value")


def _strip_frames(error: URIError) -> URIError:
    """`error` without the frames that it came through: their variables hold the text."""
    error.__context__ = None
    return error.with_traceback(None)


def _hide_frames(method: Callable[_Args, _Value]) -> Callable[_Args, _Value]:
    """`method`, whose errors bring along no frame that holds an argument."""

    @wraps(method)
    def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Value:
        try:
            return method(*args, **kwargs)
        except URIError as error:
            del args, kwargs
            raise _strip_frames(error) from None

    return call


@final
class LLMURI(LLMURIFields):
    """One llm:// connection string, immutable and hashable.

    `label` and `key` come from the userinfo, "" being a label that is there and empty; `key` is a `Secret`.
    `host` is in lower case, an IP literal without its brackets; an alias such as `openai` stays as it is.
    `port` is None where the text has none. `model` is the whole path, decoded once. `fragment` is decoded,
    and names a profile of the configuration file.

    Two are equal when label, key, host, port, segments, parameters and fragment are, each in normal form;
    an absent port does not equal a default one, which can depend on the provider.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("LLMURI has no constructor: use LLMURI.parse() or LLMURI.build()")

    def __init_subclass__(cls, **kwargs: Any) -> NoReturn:
        raise TypeError("LLMURI is not to be subclassed")

    @classmethod
    def parse(cls, text: str | LLMURI, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> LLMURI:
        """The value of a URI; an LLMURI passes straight through.

        Raises URISyntaxError for what is not RFC 3986, LLMURIError for another scheme or a missing or
        unusable part, ParameterError for a value that draft 10.3 refuses, URILimitError for too long a
        text. `strict` also refuses what `check` reports as an error. No message holds the text, and no
        frame of the traceback above the caller's own.
        """
        try:
            uri = text if isinstance(text, LLMURI) else _parse_text(text, limits)
            if strict:
                _raise_first_error(uri)
        except URIError as error:
            text = MARK
            raise _strip_frames(error) from None
        return uri

    @classmethod
    @_hide_frames
    def from_iri(cls, text: str, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> LLMURI:
        """The value of what a person typed, Unicode and all (RFC 3987 3.1, IDNA for the host)."""
        from onym.uri.iri import to_uri  # the one module that needs idna

        return cls.parse(to_uri(text), strict=strict, limits=limits)

    @classmethod
    @_hide_frames
    def build(
        cls,
        host: str | None = None,
        *,
        provider: str | None = None,
        model: str | Sequence[str],
        label: str | None = None,
        key: str | Secret | None = None,
        port: int | None = None,
        params: Mapping[str, Any] | None = None,
        fragment: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        **named: Any,
    ) -> LLMURI:
        """A URI from raw, unencoded parts, judged as `parse` judges.

        `provider` is an alias in the place of `host`. In a `model` given as text each `/` separates
        segments; give a sequence for a segment that holds a slash. `params` and further keywords are
        parameters: None leaves one out, a plain object becomes dotted names, a list is one JSON array.
        Raises UsageError for none or both of `host` and `provider`, else as `parse`.
        """
        if (host is None) is (provider is None):
            raise UsageError("give either host or provider")
        text = llm_syntax.compose_from_raw(
            host or provider or "", model, label, key, port, {**(params or {}), **named}, fragment, limits
        )
        return cls.parse(text, limits=limits)

    def check(self) -> tuple[Diagnostic, ...]:
        """What the draft forbids or discourages in the text that this value was read from."""
        from onym.uri.llm_check import find_diagnostics  # late: 3 ms, and few programs check

        return find_diagnostics(self, reveal_source(self), LLMURI)

    def render(self, *, reveal: bool = False) -> str:
        """The URI in the draft's grammar; keys are `***` unless `reveal` is true."""
        text = llm_syntax.compose_llm_uri(
            self.label,
            self.key,
            self.host_text,
            self.port,
            self.segments,
            self._typed,
            self.fragment,
            reveal=reveal,
            limits=loosen_limits(self._limits),
        )
        # a key may also stand where none belongs
        return text if reveal else llm_syntax.mask_credentials(text)

    @property
    def endpoint_text(self) -> str:
        """The URI without userinfo, parameters and fragment, for messages about the endpoint."""
        limits = loosen_limits(self._limits)
        text = llm_syntax.compose_llm_uri(
            None, None, self.host_text, self.port, self.segments, {}, None, reveal=False, limits=limits
        )
        return llm_syntax.mask_credentials(text)

    @_hide_frames
    def normalize(self, aliases: Mapping[str, str] | None = None) -> LLMURI:
        """The same endpoint in one form: canonical host, real host of an alias, no default port.

        `aliases` maps words to hosts, or to `host:port` where the port is no default. A word with a port is
        a host and no alias, so the port of a single word stays. Numbers, booleans and encodings are canonical
        in every text that Onym writes.
        """
        host, port = "", self.port
        if port is None:
            host = (aliases or {}).get(self.host, "")
            if host.count(":") == 1:  # an IPv6 address has more
                host, _, digits = host.partition(":")
                port = int(digits)
        elif self.has_default_port:
            port = None
        return self._with_changes(host=host or bracket_host(self.normal_host, self.host_type), port=port)

    @_hide_frames
    def with_label(self, label: str | None) -> LLMURI:
        """The same with another app-label, or with none."""
        return self._with_changes(label=label)

    @_hide_frames
    def with_key(self, key: str | Secret) -> LLMURI:
        """The same with another key."""
        return self._with_changes(key=key)

    @_hide_frames
    def without_key(self) -> LLMURI:
        """The same without a key; the label stays."""
        return self._with_changes(key=None)

    @_hide_frames
    def with_host(self, host: str) -> LLMURI:
        """The same at another host, or under another alias."""
        return self._with_changes(host=host)

    @_hide_frames
    def with_port(self, port: int | None) -> LLMURI:
        """The same at another port, or at the default one."""
        return self._with_changes(port=port)

    @_hide_frames
    def with_model(self, model: str | Sequence[str]) -> LLMURI:
        """The same with another model, read as `build` reads it."""
        return self._with_changes(model=model)

    @_hide_frames
    def with_fragment(self, fragment: str | None) -> LLMURI:
        """The same with another fragment, raw, or with none."""
        return self._with_changes(fragment=fragment)

    @_hide_frames
    def with_params(self, params: Mapping[str, Any] | None = None, /, **named: Any) -> LLMURI:
        """The same with these parameters set, each in its old place; None takes one out."""
        return self._with_changes(
            params=llm_syntax.change_params(self._typed, {**(params or {}), **named}, self._limits)
        )

    @_hide_frames
    def without_params(self, *names: str) -> LLMURI:
        """The same without these parameters, and without what is nested below them."""
        return self._with_changes(
            params=llm_syntax.change_params(self._typed, dict.fromkeys(names), self._limits)
        )

    def _with_changes(self, **changes: Any) -> LLMURI:
        parts = {
            "host": self.host_text,
            "model": self.segments,
            "label": self.label,
            "key": self.key,
            "port": self.port,
            "params": self._typed,
            "fragment": self.fragment,
        }
        text = llm_syntax.compose_from_raw(**{**parts, **changes}, limits=loosen_limits(self._limits))
        if len(text) > self._limits.uri and len(text) > len(self.render(reveal=True)):
            raise llm_syntax.make_length_error(text, self._limits)
        return _parse_text(text, loosen_limits(self._limits))

    def _comparison_key(self) -> tuple[object, ...]:
        pairs = tuple(iter_raw_items(self._typed, LOOSE_LIMITS))
        return (
            self.label or None,
            self.key,
            self.normal_host,
            self.port,
            self.segments,
            pairs,
            self.fragment,
        )

    def __eq__(self, other: object) -> bool:
        return (
            self._comparison_key() == other._comparison_key() if isinstance(other, LLMURI) else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self._comparison_key())

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        return f"LLMURI({self.render()!r})"

    def __format__(self, spec: str) -> str:
        return format(self.render(), spec)

    def __copy__(self) -> LLMURI:
        return self

    def __deepcopy__(self, memo: object) -> LLMURI:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        if isinstance(self._source, Secret) or self.render() != self.render(reveal=True):
            raise SecretError(
                "a URI that holds a key is not pickled",
                code="secret.pickled",
                hint="pickle uri.without_key(), or point to the key with ?auth=env:NAME",
            )
        return _parse_text, (self._source, self._limits)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an LLMURI does not change; use with_*()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an LLMURI does not change; use with_*()")


def _parse_text(text: str, limits: Limits) -> LLMURI:
    """The value of `text`. Apart from `parse`, so that no frame of a traceback holds the text."""
    if len(text) > limits.uri:
        raise llm_syntax.make_length_error(text, limits)
    common = _COMMON(text)
    if common is None:
        return _parse_rare_text(text, limits)
    label, key, host, port, model, query, fragment = common.groups()
    number = None
    if port is not None and not 0 < (number := int(port)) < 65536:
        return _parse_rare_text(text, limits)
    typed: dict[str, Any] = {}
    hides = key is not None
    if query:
        if "%" in query and find_bad_triplet(query) >= 0:
            return _parse_rare_text(text, limits)
        try:
            typed, credential = parse_typed_query(query, 0, limits)
        except URIError as error:
            error.offset = (error.offset or 0) + common.start(6)
            raise
        hides = hides or credential
    uri = LLMURIFields()
    uri.label = label
    uri.key = None if key is None else Secret(key)
    uri.host = host.lower()
    uri.port = number
    uri.model = model
    uri.fragment = fragment
    uri._typed = typed
    uri._source = Secret(text) if hides else text
    uri._limits = limits
    return _freeze_fields(uri)


def _parse_rare_text(text: str, limits: Limits) -> LLMURI:
    """The value of a `text` that is not of the common form."""
    reading = llm_syntax.parse_parts(text, limits)
    uri = LLMURIFields()
    uri.label = reading.label
    uri.key = None if reading.key is None else Secret(reading.key)
    uri.host = reading.host
    uri.port = reading.port
    uri.model = "/".join(reading.segments)
    uri.fragment = reading.fragment
    uri._typed = reading.typed
    uri._source = Secret(text) if reading.hides else text
    uri._limits = limits
    uri._host_type = reading.host_type
    uri._segments = reading.segments
    return _freeze_fields(uri)


def _freeze_fields(fields: LLMURIFields) -> LLMURI:
    # filled as a plain object and frozen by its class: a third of the time that setting a frozen one takes
    fields.__class__ = LLMURI
    return fields  # type: ignore[return-value]


def parse(text: str | LLMURI, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> LLMURI:
    """`LLMURI.parse`, for those who like functions."""
    return LLMURI.parse(text, strict=strict, limits=limits)


def _raise_first_error(uri: LLMURI) -> None:
    """Raise the first diagnostic of severity error."""
    from onym.uri.llm_check import find_diagnostics  # late: see above

    for diagnostic in find_diagnostics(uri, reveal_source(uri), LLMURI, fixing=False):
        if diagnostic.severity == "error":
            raise diagnostic.as_error()


def check(text: str | LLMURI, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Report:
    """What there is to say of a text: never raises for text, a refusal becomes an error in the report.

    `strict` also withholds the value where a diagnostic is an error.
    """
    from onym.uri.llm_check import collect_findings, report_rejection  # late: see above

    try:
        uri = LLMURI.parse(text, limits=limits)
    except URIError as error:
        diagnostic, better = report_rejection(str(text), error, LLMURI)
        return Report(None, (diagnostic,), better)
    findings = collect_findings(uri, reveal_source(uri), LLMURI)
    diagnostics = findings.diagnostics()
    rejected = strict and any(diagnostic.severity == "error" for diagnostic in diagnostics)
    return Report(None if rejected else uri, diagnostics, findings.fixed())
