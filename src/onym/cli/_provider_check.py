"""What `check` says of a URI beyond its grammar: is there such a provider, and does it take all this?

Nothing is sent, no name is looked up, and no key is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from onym.errors import OnymError, ParameterError, UnsupportedError
from onym.uri._rfc3986 import split
from onym.uri.diagnostics import Diagnostic
from onym.uri.llm import LLMURI
from onym.uri.redact import redact

if TYPE_CHECKING:
    from onym.llm.providers import Provider, ProviderTable

__all__ = ["provider_findings", "slips"]

_DRAFT = "draft-levy-llm-uri-scheme-00"
#: how alike a word of one's own and a provider's may be before it looks like a slip
_ALIKE_WORD = 0.75
_ALIKE_HOST = 0.9


def provider_findings(text: str, providers: ProviderTable) -> tuple[Diagnostic, ...]:
    """Warnings on `text`: words that look misspelt, and parameters that this provider's model refuses.

    Empty for text that is no llm URI.
    """
    try:
        uri = LLMURI.parse(text)
    except OnymError:
        return ()
    found = tuple(_slips(text, uri, providers))
    return found or tuple(_refusals(text, uri, providers))


def slips(text: str, providers: ProviderTable) -> tuple[Diagnostic, ...]:
    """Only what looks misspelt: the provider, the value of `api=`, the name of a parameter of the row's."""
    try:
        return tuple(_slips(text, LLMURI.parse(text), providers))
    except OnymError:
        return ()


def _slips(text: str, uri: LLMURI, providers: ProviderTable) -> Iterator[Diagnostic]:
    row = _row(uri, providers)
    meant = _meant(uri, row, providers)
    if meant is None:
        yield from _slips_of(text, uri, row)
        return
    message = f"no provider is known by this host; did you mean {meant}?"
    yield _warning(text, "near-provider", message, _host_span(text), f"{_DRAFT} 4.2.1", "host", better=meant)


def _slips_of(text: str, uri: LLMURI, row: Provider) -> Iterator[Diagnostic]:
    """Words that this row has in another spelling."""
    from onym.llm._routes import choose_api

    try:
        choose_api(uri, row)
    except UnsupportedError as error:
        yield _no_api(text, uri, row, error)
    own = _own_names(row)
    for name in uri.extra:
        close = [] if name in own else get_close_matches(name, own, n=1, cutoff=_ALIKE_WORD)
        if close and close[0] not in uri.params:
            message = f"{row.title} has a parameter {close[0]} of its own; this is another name"
            span = _span(text, name)
            edit = (span[0], span[0] + len(text[slice(*span)].partition("=")[0]))
            yield _warning(text, "near-miss", message, span, row.source, "query", name, close[0], edit)


def _row(uri: LLMURI, providers: ProviderTable) -> Provider:
    return (providers.alias(uri.host) if uri.port is None else None) or providers.find(uri.host, uri.port)


def _meant(uri: LLMURI, row: Provider, providers: ProviderTable) -> str | None:
    """The alias or the host that an unknown one is close to."""
    if row.hosts or row.host_suffixes or uri.port is not None or uri.host_type != "reg-name":
        return None
    host = uri.host.lower()
    if "." not in host:
        known, alike = list(providers.aliases()), _ALIKE_WORD
    else:
        known, alike = [each for one in providers for each in one.hosts], _ALIKE_HOST
    return next(iter(get_close_matches(host, known, n=1, cutoff=alike)), None)


def _own_names(row: Provider) -> list[str]:
    """The parameters that complete this row's address, where a name could be misspelt."""
    names = {value.parameter for value in row.path_values.values()} | set(row.query)
    chosen = {each.when for each in row.apis.values() if each.when is not None}
    return sorted(names | chosen | ({"api"} if row.apis else set()))


def _no_api(text: str, uri: LLMURI, row: Provider, error: UnsupportedError) -> Diagnostic:
    close = get_close_matches(str(uri.params["api"]), list(row.apis), n=1)
    start, end = _span(text, "api")
    _, _, written = text[start:end].partition("=")
    value = (end - len(written), end) if written else (start, end)
    message = f"{error.message}; {error.hint}"
    return _warning(
        text,
        "no-api",
        message,
        value,
        row.source,
        "query",
        "api",
        close[0] if close and written else None,
        value,
    )


def _refusals(text: str, uri: LLMURI, providers: ProviderTable) -> Iterator[Diagnostic]:
    """What a call would refuse: the provider, the wire format or the model does not take it."""
    if not uri.params:
        return  # nothing to refuse: the wire formats stay unread
    from onym.llm import dialects, profiles
    from onym.llm._routes import choose_api
    from onym.llm.mapping import Layer, map_parameters
    from onym.uri._names import WELL_KNOWN

    provider, _ = choose_api(uri, _row(uri, providers))
    values = {name: uri.params[name] for name in WELL_KNOWN if name in uri.params}
    try:
        mapped = map_parameters(
            [Layer(origin="uri", values=values, extra=_passed(uri, provider))],
            provider=provider,
            profile=profiles.find(provider.name, uri.model, provider.dialect),
            model=uri.model,
            wire=dialects.get(provider.dialect).parameters,
            on_unsupported="drop",
        )
    except ParameterError:
        return  # no value of the draft's: the check of the grammar says so
    for note in mapped.notes:
        if note.action == "dropped" and note.source is not None:
            message = f"{provider.title} does not take {note.parameter} for this model: {note.reason}"
            span = _span(text, note.parameter)
            yield _warning(text, "refused", message, span, note.source, "query", note.parameter)


def _passed(uri: LLMURI, provider: Provider) -> Mapping[str, Any]:
    spent = {"api", *_own_names(provider)}
    return {name: value for name, value in uri.extra.items() if name not in spent}


def _host_span(text: str) -> tuple[int, int]:
    """Where the host stands, as it is written."""
    parts = split(text, rule="URI")
    host = parts.host or ""
    start = text.index("//") + 2 + (0 if parts.userinfo is None else len(parts.userinfo) + 1)
    return start, start + len(host)


def _span(text: str, name: str) -> tuple[int, int]:
    """Where the parameter of that name (the first part of its dots) stands in `text`."""
    from onym.uri._percent import decode

    at = text.index("?") + 1
    for pair in text[at:].partition("#")[0].split("&"):
        written = decode(pair.partition("=")[0], component="query")
        if written == name or written.partition(".")[0] == name:
            return at, at + len(pair)
        at += len(pair) + 1
    raise AssertionError(name)  # pragma: no cover - every name came from this text


def _warning(
    text: str,
    code: str,
    message: str,
    span: tuple[int, int],
    clause: str,
    component: str,
    parameter: str | None = None,
    better: str | None = None,
    edit: tuple[int, int] | None = None,
) -> Diagnostic:
    start, end = edit or span
    return Diagnostic(
        f"llm.{code}",
        "warning",
        message,
        clause=clause,
        component=component,
        start=span[0],
        end=span[1],
        fix=None if better is None else redact(text[:start] + better + text[end:]),
        parameter=parameter,
    )
