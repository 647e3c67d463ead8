"""`LLMURI`: an llm:// connection string as a frozen value (draft-levy-llm-uri-scheme-00), and its `Report`.

    >>> uri = LLMURI.parse("llm://my-app:sk-123@api.openai.com/gpt-5.5?temp=0.7&max_tokens=1500")
    >>> uri.host, uri.model, uri.temp, uri.max_tokens
    ('api.openai.com', 'gpt-5.5', 0.7, 1500)
    >>> print(uri)
    llm://my-app:***@api.openai.com/gpt-5.5?temp=0.7&max_tokens=1500

`parse` accepts what RFC 3986 accepts. `check` lists what the draft forbids or discourages beyond that, each
as a `Diagnostic` with code, clause, severity, span and, if there is one, a fix. `strict=True` rejects URIs
that the draft forbids. Onym always writes URIs in the draft's grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, final

from onym.errors import OnymError, SecretError, URIError, UsageError, strip_frames
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
    from onym.uri.llm_check import Diagnostic, Severity


@final
class Report(Frozen):
    """The result of `check`; `uri` is None if the text was rejected."""

    __slots__ = ("_fixed", "diagnostics", "uri")
    uri: LLMURI | None
    diagnostics: tuple[Diagnostic, ...]
    _fixed: LLMURI | None

    def __init__(
        self, uri: LLMURI | None, diagnostics: tuple[Diagnostic, ...], fixed: LLMURI | None = None
    ) -> None:
        self._set_slots(uri=uri, diagnostics=diagnostics, _fixed=fixed)

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
        """Whether there is a URI and no error."""
        return self.uri is not None and not self.errors

    def _select_severity(self, severity: Severity) -> tuple[Diagnostic, ...]:
        return tuple(found for found in self.diagnostics if found.severity == severity)

    def fixed(self, *, reveal: bool = False) -> str | None:
        """The URI with every fix, as Onym writes it; None if the fixes do not lead to a URI.

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
    # the parsed text, for `check`: a Secret if it contains one
    _source: str | Secret
    # set only if they do not follow from host and model
    _host_type: str
    _segments: tuple[str, ...]

    @property
    def host_type(self) -> str:
        """`reg-name`, `IPv4address`, `IPv6address` or `IPvFuture` (RFC 3986 3.2.2)."""
        known: str | None = getattr(self, "_host_type", None)
        return known or ("IPv4address" if is_ipv4(self.host) else "reg-name")

    @property
    def host_text(self) -> str:
        """`host` as it is written in a URI: an IP literal in its brackets."""
        return bracket_host(self.host, self.host_type)

    @property
    def segments(self) -> tuple[str, ...]:
        """The path's segments, each decoded once; a segment may contain a slash that was encoded."""
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
        """The maximum number of tokens in the completion, at least 1."""
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
        """System prompt. As untrusted as the URI (draft 10.4)."""
        return self._typed.get("system")

    @property
    def auth(self) -> str | None:
        """Reference to the API key, such as `env:NAME`. Never sent."""
        return self._typed.get("auth")

    @property
    def extra(self) -> dict[str, Any]:
        """Parameters for the provider's request body: unknown names, dotted names nested."""
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
        """443, or 11434 for a loopback host (draft 4.2.3). A provider may have another default."""
        return 11434 if self.is_loopback else 443

    @property
    def effective_port(self) -> int:
        """`port`, else `default_port`."""
        return self.default_port if self.port is None else self.port

    @property
    def has_default_port(self) -> bool:
        """Whether `port` is the default and can be left out.

        False for a single word except `localhost`: with a port it is a host, without a port perhaps an alias.
        """
        word = not self.is_loopback and "." not in self.host and ":" not in self.host
        return self.port == self.default_port and not word

    @property
    def normal_host(self) -> str:
        """`host` with an IPv6 address in the form of RFC 5952."""
        address = parse_ipv6(self.host) if self.host_type == "IPv6address" else None
        return self.host if address is None else format_ipv6(address)


def bracket_host(host: str, host_type: str) -> str:
    """`host` as it is written in a URI."""
    return f"[{host}]" if host_type in ("IPv6address", "IPvFuture") else host


def reveal_source(fields: LLMURIFields) -> str:
    """The parsed text with its key, only for `check`."""
    source = fields._source
    return source.reveal() if isinstance(source, Secret) else source


_PLAIN = r"A-Za-z0-9_~\-"  # unreserved, but for the dot
# The common form in one pass: no triplets outside the query, no segment that starts with a dot, and only
# characters that the draft allows in userinfo and path. Only quantifiers of characters are possessive,
# because CPython 3.11.2 matches possessive groups wrongly.
_COMMON = re.compile(
    rf"[Ll][Ll][Mm]://(?:([{_PLAIN}.]++)(?::([{_PLAIN}.]++))?@)?([{_PLAIN}.]++)(?::([0-9]{{1,5}}+))?"
    rf"/([{_PLAIN}][{_PLAIN}.]*+(?:/[{_PLAIN}][{_PLAIN}.]*+)*)"
    rf"(?:\?([{_PLAIN}.!$'()*+,;=:@/?&%]*+))?(?:\#([{_PLAIN}.!$'()*+,;=:@/?&]*+))?"
).fullmatch


_Args = ParamSpec("_Args")
_Value = TypeVar("_Value")


#: errors of calls whose arguments may contain a key; Ctrl-C may come at any moment
_STRIPPED = (OnymError, KeyboardInterrupt)


def _hide_frames(method: Callable[_Args, _Value]) -> Callable[_Args, _Value]:
    """`method`, with errors whose tracebacks have no frame with an argument."""

    @wraps(method)
    def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Value:
        try:
            return method(*args, **kwargs)
        except _STRIPPED as error:
            del args, kwargs
            raise strip_frames(error) from None

    return call


@final
class LLMURI(Frozen, LLMURIFields):
    """One llm:// connection string, immutable and hashable.

    `label` and `key` come from the userinfo; an empty label is "", and `key` is a `Secret`. `host` is in
    lower case, an IP literal without its brackets; an alias such as `openai` is not changed. `port` is None
    if the text has none. `model` is the whole path, decoded once. `fragment` is decoded and names a profile
    of the configuration file.

    Two are equal if label, key, host, port, segments, parameters and fragment are equal in normal form. An
    absent port does not equal a default port, which can depend on the provider.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("LLMURI has no constructor: use LLMURI.parse() or LLMURI.build()")

    def __init_subclass__(cls, **kwargs: Any) -> NoReturn:
        raise TypeError("LLMURI is not to be subclassed")

    @classmethod
    def parse(cls, text: str | LLMURI, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> LLMURI:
        """Parse a URI; an LLMURI is returned as it is.

        Raises URISyntaxError for a text that is not a URI of RFC 3986, LLMURIError for another scheme or a
        missing or unusable part, ParameterError for a value that draft 10.3 rejects, URILimitError for a text
        that is too long. `strict` also rejects a URI for which `check` reports an error. Neither the message
        nor the frames of the traceback below the caller contain the text.
        """
        try:
            uri = text if isinstance(text, LLMURI) else _parse_text(text, limits)
            if strict:
                _raise_first_error(uri)
        except _STRIPPED as error:
            text = MARK
            raise strip_frames(error) from None
        return uri

    @classmethod
    @_hide_frames
    def from_iri(cls, text: str, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> LLMURI:
        """Parse a text that a person typed, with Unicode (RFC 3987 3.1, IDNA for the host)."""
        from onym.uri.iri import to_uri  # late: the only module that needs idna

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
        """Build a URI from raw, unencoded parts, with the checks of `parse`.

        `provider` is an alias instead of `host`. In a `model` given as text each `/` separates segments; pass
        a sequence for a segment that contains a slash. `params` and further keywords are parameters: None
        omits one, a plain object becomes dotted names, a list is one JSON array. Raises UsageError unless
        exactly one of `host` and `provider` is given, else as `parse`.
        """
        if (host is None) is (provider is None):
            raise UsageError("pass either host or provider")
        text = llm_syntax.compose_from_raw(
            host or provider or "", model, label, key, port, {**(params or {}), **named}, fragment, limits
        )
        return cls.parse(text, limits=limits)

    def check(self) -> tuple[Diagnostic, ...]:
        """List what the draft forbids or discourages in the parsed text."""
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
        # there may also be a key in another part
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
        """The same endpoint in canonical form: canonical host, real host of an alias, no default port.

        `aliases` maps words to hosts, or to `host:port` if the port is not the default. A word with a port is
        a host and not an alias, so the port of a single word stays. Numbers, booleans and encodings are
        canonical in every text that Onym writes.
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
        """A copy with another app-label, or with none."""
        return self._with_changes(label=label)

    @_hide_frames
    def with_key(self, key: str | Secret) -> LLMURI:
        """A copy with another key."""
        return self._with_changes(key=key)

    @_hide_frames
    def without_key(self) -> LLMURI:
        """A copy without a key; the label stays."""
        return self._with_changes(key=None)

    @_hide_frames
    def with_host(self, host: str) -> LLMURI:
        """A copy with another host or alias."""
        return self._with_changes(host=host)

    @_hide_frames
    def with_port(self, port: int | None) -> LLMURI:
        """A copy with another port, or with none."""
        return self._with_changes(port=port)

    @_hide_frames
    def with_model(self, model: str | Sequence[str]) -> LLMURI:
        """A copy with another model, in the form that `build` accepts."""
        return self._with_changes(model=model)

    @_hide_frames
    def with_fragment(self, fragment: str | None) -> LLMURI:
        """A copy with another fragment, unencoded, or with none."""
        return self._with_changes(fragment=fragment)

    @_hide_frames
    def with_params(self, params: Mapping[str, Any] | None = None, /, **named: Any) -> LLMURI:
        """A copy with these parameters; replaced ones keep their position, and None removes one."""
        changes = {**(params or {}), **named}
        return self._with_changes(params=llm_syntax.change_params(self._typed, changes, self._limits))

    @_hide_frames
    def without_params(self, *names: str) -> LLMURI:
        """A copy without these parameters, and without the names nested below them."""
        return self.with_params(dict.fromkeys(names))

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
        userinfo = self.label or None, self.key
        return (*userinfo, self.normal_host, self.port, self.segments, pairs, self.fragment)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LLMURI):
            return NotImplemented
        return self._comparison_key() == other._comparison_key()

    def __hash__(self) -> int:
        return hash(self._comparison_key())

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        return f"LLMURI({self.render()!r})"

    def __format__(self, spec: str) -> str:
        return format(self.render(), spec)

    def __reduce__(self) -> tuple[object, ...]:
        if isinstance(self._source, Secret) or self.render() != self.render(reveal=True):
            raise SecretError(
                "a URI that contains a key cannot be pickled",
                code="secret.pickled",
                hint="pickle uri.without_key(), or point to the key with ?auth=env:NAME",
            )
        return _parse_text, (self._source, self._limits)


def _parse_text(text: str, limits: Limits) -> LLMURI:
    """Parse `text`. Separate from `parse`, so that no frame of a traceback contains the text."""
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
    """Parse a `text` that does not have the common form."""
    parts = llm_syntax.parse_parts(text, limits)
    uri = LLMURIFields()
    uri.label = parts.label
    uri.key = None if parts.key is None else Secret(parts.key)
    uri.host = parts.host
    uri.port = parts.port
    uri.model = "/".join(parts.segments)
    uri.fragment = parts.fragment
    uri._typed = parts.typed
    uri._source = Secret(text) if parts.hides else text
    uri._limits = limits
    uri._host_type = parts.host_type
    uri._segments = parts.segments
    return _freeze_fields(uri)


def _freeze_fields(fields: Any) -> LLMURI:
    # filling a plain object and changing its class takes a third of the time of filling a frozen one
    fields.__class__ = LLMURI
    uri: LLMURI = fields
    return uri


def parse(text: str | LLMURI, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> LLMURI:
    """`LLMURI.parse` as a function."""
    return LLMURI.parse(text, strict=strict, limits=limits)


def _raise_first_error(uri: LLMURI) -> None:
    """Raise the first diagnostic of severity error."""
    from onym.uri.llm_check import find_diagnostics  # late: see above

    for diagnostic in find_diagnostics(uri, reveal_source(uri), LLMURI, fixing=False):
        if diagnostic.severity == "error":
            raise diagnostic.as_error()


def check(text: str | LLMURI, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Report:
    """Check a text and report all diagnostics. An invalid text is an error in the report, not an exception.

    `strict` also leaves out the URI if a diagnostic is an error.
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
