"""`LLMURI`: an llm:// connection string as a frozen value (draft-levy-llm-uri-scheme-00).

    >>> uri = LLMURI.parse("llm://my-app:sk-123@api.openai.com/gpt-5?temp=0.7&max_tokens=1500")
    >>> uri.host, uri.model, uri.temp, uri.max_tokens
    ('api.openai.com', 'gpt-5', 0.7, 1500)
    >>> print(uri)
    llm://my-app:***@api.openai.com/gpt-5?temp=0.7&max_tokens=1500

`parse` takes what RFC 3986 takes, `check` lists what the draft forbids or discourages beyond that, and
`strict=True` refuses what the draft forbids. What Onym writes is always inside the draft's grammar.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, final

from onym.errors import SecretError, URIError, UsageError
from onym.uri import _llm_parse, _llm_write
from onym.uri._limits import DEFAULT_LIMITS, Limits
from onym.uri._llm_fields import Fields, bracketed
from onym.uri._percent import find_bad_triplet
from onym.uri._query import ROOMY, raw_items, roomy
from onym.uri._query_read import read_typed
from onym.uri.diagnostics import Diagnostic, Report
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["DEFAULT_LIMITS", "LLMURI", "Limits", "Report", "check", "parse"]

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


def _bare(error: URIError) -> URIError:
    """`error` without the frames that it came through: their variables hold the text."""
    error.__context__ = None
    return error.with_traceback(None)


def _no_frames(method: Callable[_Args, _Value]) -> Callable[_Args, _Value]:
    """`method`, whose errors bring along no frame that holds an argument."""

    @wraps(method)
    def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Value:
        try:
            return method(*args, **kwargs)
        except URIError as error:
            del args, kwargs
            raise _bare(error) from None

    return call


@final
class LLMURI(Fields):
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
            uri = text if isinstance(text, LLMURI) else _read(text, limits)
            if strict:
                _refuse_errors(uri)
        except URIError as error:
            text = MARK
            raise _bare(error) from None
        return uri

    @classmethod
    @_no_frames
    def from_iri(cls, text: str, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> LLMURI:
        """The value of what a person typed, Unicode and all (RFC 3987 3.1, IDNA for the host)."""
        from onym.uri.iri import to_uri  # the one module that needs idna

        return cls.parse(to_uri(text), strict=strict, limits=limits)

    @classmethod
    @_no_frames
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
        text = _llm_write.compose_raw(
            host or provider or "", model, label, key, port, {**(params or {}), **named}, fragment, limits
        )
        return cls.parse(text, limits=limits)

    def check(self) -> tuple[Diagnostic, ...]:
        """What the draft forbids or discourages in the text that this value was read from."""
        from onym.uri._llm_check import diagnose  # only where it is asked for

        return diagnose(self)

    def render(self, *, reveal: bool = False) -> str:
        """The URI in the draft's grammar; keys are `***` unless `reveal` is true."""
        text = _llm_write.compose(
            self.label,
            self.key,
            self.host_text,
            self.port,
            self.segments,
            self._typed,
            self.fragment,
            reveal=reveal,
            limits=roomy(self._limits),
        )
        # a key may also stand where none belongs
        return text if reveal else _llm_write.masked(text)

    @_no_frames
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
        return self._with(host=host or bracketed(self.normal_host, self.host_type), port=port)

    @_no_frames
    def with_label(self, label: str | None) -> LLMURI:
        """The same with another app-label, or with none."""
        return self._with(label=label)

    @_no_frames
    def with_key(self, key: str | Secret) -> LLMURI:
        """The same with another key."""
        return self._with(key=key)

    @_no_frames
    def without_key(self) -> LLMURI:
        """The same without a key; the label stays."""
        return self._with(key=None)

    @_no_frames
    def with_host(self, host: str) -> LLMURI:
        """The same at another host, or under another alias."""
        return self._with(host=host)

    @_no_frames
    def with_port(self, port: int | None) -> LLMURI:
        """The same at another port, or at the default one."""
        return self._with(port=port)

    @_no_frames
    def with_model(self, model: str | Sequence[str]) -> LLMURI:
        """The same with another model, read as `build` reads it."""
        return self._with(model=model)

    @_no_frames
    def with_fragment(self, fragment: str | None) -> LLMURI:
        """The same with another fragment, raw, or with none."""
        return self._with(fragment=fragment)

    @_no_frames
    def with_params(self, params: Mapping[str, Any] | None = None, /, **named: Any) -> LLMURI:
        """The same with these parameters set, each in its old place; None takes one out."""
        return self._with(params=_llm_write.changed(self._typed, {**(params or {}), **named}, self._limits))

    @_no_frames
    def without_params(self, *names: str) -> LLMURI:
        """The same without these parameters, and without what is nested below them."""
        return self._with(params=_llm_write.changed(self._typed, dict.fromkeys(names), self._limits))

    def _with(self, **changes: Any) -> LLMURI:
        parts = {
            "host": self.host_text,
            "model": self.segments,
            "label": self.label,
            "key": self.key,
            "port": self.port,
            "params": self._typed,
            "fragment": self.fragment,
        }
        text = _llm_write.compose_raw(**{**parts, **changes}, limits=roomy(self._limits))
        if len(text) > self._limits.uri and len(text) > len(self.render(reveal=True)):
            raise _llm_parse.too_long(text, self._limits)
        return _read(text, roomy(self._limits))

    def _identity(self) -> tuple[object, ...]:
        pairs = tuple(raw_items(self._typed, ROOMY))
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
        return self._identity() == other._identity() if isinstance(other, LLMURI) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

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
        return _read, (self._source, self._limits)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an LLMURI does not change; use with_*()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an LLMURI does not change; use with_*()")


def _read(text: str, limits: Limits) -> LLMURI:
    """The value of `text`. Apart from `parse`, so that no frame of a traceback holds the text."""
    if len(text) > limits.uri:
        raise _llm_parse.too_long(text, limits)
    common = _COMMON(text)
    if common is None:
        return _read_rare(text, limits)
    label, key, host, port, model, query, fragment = common.groups()
    number = None
    if port is not None and not 0 < (number := int(port)) < 65536:
        return _read_rare(text, limits)
    typed: dict[str, Any] = {}
    hides = key is not None
    if query:
        if "%" in query and find_bad_triplet(query) >= 0:
            return _read_rare(text, limits)
        try:
            typed, credential = read_typed(query, 0, limits)
        except URIError as error:
            error.offset = (error.offset or 0) + common.start(6)
            raise
        hides = hides or credential
    uri = Fields()
    uri.label = label
    uri.key = None if key is None else Secret(key)
    uri.host = host.lower()
    uri.port = number
    uri.model = model
    uri.fragment = fragment
    uri._typed = typed
    uri._source = Secret(text) if hides else text
    uri._limits = limits
    return _frozen(uri)


def _read_rare(text: str, limits: Limits) -> LLMURI:
    """The value of a `text` that is not of the common form."""
    reading = _llm_parse.general(text, limits)
    uri = Fields()
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
    return _frozen(uri)


def _frozen(fields: Fields) -> LLMURI:
    # filled as a plain object and frozen by its class: a third of the time that setting a frozen one takes
    fields.__class__ = LLMURI
    return fields  # type: ignore[return-value]


def parse(text: str | LLMURI, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> LLMURI:
    """`LLMURI.parse`, for those who like functions."""
    return LLMURI.parse(text, strict=strict, limits=limits)


def _refuse_errors(uri: LLMURI) -> None:
    """Raise the first diagnostic of severity error."""
    from onym.uri._llm_check import diagnose  # only where it is asked for

    for found in diagnose(uri, fixing=False):
        if found.severity == "error":
            raise found.as_error()


def check(text: str | LLMURI, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Report:
    """What there is to say of a text: never raises for text, a refusal becomes an error in the report.

    `strict` also withholds the value where a diagnostic is an error.
    """
    from onym.uri._llm_check import report  # only where it is asked for

    return report(text, strict=strict, limits=limits)
