"""`llm://` URIs of npm's `llm-strings` 1.8 to URIs with the same meaning in Onym.

Both projects write `llm://host/model?parameters`. llm-strings has its own table of hosts, its own parameter
aliases and form-encoded queries. It does not decode the path and ignores the fragment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from onym.errors import URIError, UsageError
from onym.llm import convert
from onym.llm.parameters import validate_parameter
from onym.llm.providers import ProviderTable
from onym.uri.components import QUERY_NAME, QUERY_VALUE, decode_component
from onym.uri.generic import URI
from onym.uri.llm import LLMURI
from onym.uri.llm_syntax import parse_query
from onym.uri.parameters import WELL_KNOWN, is_redirecting, is_secret_parameter
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.providers import Provider

#: hosts in the table of llm-strings that do not serve the provider's chat, and the provider that is meant
_MOVED_HOSTS: Final[Mapping[str, tuple[str, str]]] = {
    "gateway.ai.vercel.app": ("vercel-ai-gateway", "that host is not the gateway"),
    "gateway.ai.vercel.sh": ("vercel-ai-gateway", "that host is not the gateway"),
    "api-inference.huggingface.co": ("huggingface", "that host serves the older tasks API"),
    "api.baseten.co": ("baseten", "that host manages deployments and does not serve chat"),
}
#: its aliases for these hosts
_MOVED_ALIASES: Final[Mapping[str, str]] = {
    "vercel": "gateway.ai.vercel.app",
    "huggingface": "api-inference.huggingface.co",
    "baseten": "api.baseten.co",
}
#: its parameter names -> Onym's (standard, or the provider's usual name)
_PARAMETER_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("temp", "temperature"), "temp"),
    **dict.fromkeys(
        (
            "max", "max_out", "max_output", "max_output_tokens", "maxOutputTokens", "maxTokens", "max_tokens",
            "max_completion_tokens",
        ),
        "max_tokens",
    ),
    **dict.fromkeys(("topp", "topP", "nucleus", "top_p"), "top_p"),
    **dict.fromkeys(("topk", "topK", "top_k"), "top_k"),
    **dict.fromkeys(("freq", "freq_penalty", "frequencyPenalty", "repetition_penalty"), "frequency_penalty"),
    **dict.fromkeys(("pres", "pres_penalty", "presencePenalty"), "presence_penalty"),
    **dict.fromkeys(("stop", "stop_sequences", "stopSequences", "stop_sequence"), "stop"),
    **dict.fromkeys(("seed", "random_seed", "randomSeed"), "seed"),
    **dict.fromkeys(("candidateCount", "candidate_count", "num_completions"), "n"),
    **dict.fromkeys(
        (
            "effort", "reasoning", "reasoning_effort", "reasoningEffort", "thinking_effort", "thinkingEffort",
        ),
        "effort",
    ),
    **dict.fromkeys(("cache", "cache_control", "cacheControl", "cachePoint", "cache_point"), "cache"),
    "minP": "min_p",
    "repetitionPenalty": "repetition_penalty",
    "responseFormat": "response_format",
    "toolChoice": "tool_choice",
    "parallelToolCalls": "parallel_tool_calls",
    "topLogprobs": "top_logprobs",
    "includeReasoning": "include_reasoning",
    "stream": "stream",
}  # fmt: skip
#: the wire name of `effort`, by API format
_EFFORT_NAMES: Final[Mapping[str, str]] = {
    "anthropic_messages": "output_config.effort",
    "gemini": "generationConfig.thinkingConfig.thinkingLevel",
    "gemini_vertex": "generationConfig.thinkingConfig.thinkingLevel",
}
_TTL: Final = re.compile(r"[0-9]+[mh]").fullmatch
_TRUE: Final = frozenset({"true", "1", "yes"})
_FALSE: Final = frozenset({"false", "0", "no"})


def from_llm_strings(
    text: str,
    *,
    environ: Mapping[str, str] | None = None,
    with_key: bool = False,
    providers: ProviderTable | None = None,
) -> convert.Conversion:
    """Return the canonical URI for one written for npm's `llm-strings`, with a note for each difference.

    `environ` may contain its overrides of hosts (`LLM_STRINGS_OPENAI_HOST`); it is empty by default. The key
    in the userinfo is copied only with `with_key`. Raises URISyntaxError for text that is not a URI, and
    UsageError for another scheme.
    """
    context = convert.ImportContext.create(providers, with_key=with_key)
    table, notes = context.table, context.notes
    uri = URI.parse(text, rule="URI")
    if uri.scheme is None or uri.scheme.lower() != "llm" or not uri.host:
        raise UsageError("the text does not begin with llm://HOST", code="convert.bad-id")
    host, port = _find_host(uri.host, uri.port, environ or {}, table, notes)
    row = convert.find_uri_provider(LLMURI.build(host, model="any", port=port), table)
    label, _, key = (uri.userinfo or "").partition(":")
    if uri.fragment is not None:
        notes.add("fragment", "dropped: llm-strings ignores it, but in Onym it names a profile")
    secret = Secret(decode_component(key, component="userinfo")) if key else None
    source = convert.SourceModel(
        model=_decode_model(uri.path, notes),
        label=decode_component(label, component="userinfo") or None,
        key=None if secret is None else convert.KeySource("key", secret=secret),
        params=_convert_params(uri.query or "", row, notes),
    )
    return context.make_conversion(convert.Named(None, convert.build_uri_at(source, host, port, context)))


def _find_host(
    host: str,
    port: str | None,
    environ: Mapping[str, str],
    table: ProviderTable,
    notes: convert.NoteCollector,
) -> tuple[str, int | None]:
    """Return the host that is meant. As in llm-strings, a name with a port is not an alias."""
    word = host.lower()
    if port is not None:
        return word.strip("[]"), int(port)
    override = _find_host_override(word, environ)
    if override is not None:
        notes.add("host", "taken from the variable with which llm-strings overrides it")
        base = convert.parse_base_url(override)
        if base is None:
            message = "the variable that overrides the host is not a valid host"
            raise UsageError(message, code="convert.bad-url")
        return base.host, base.port if ":" in override.rpartition("://")[2] else None
    moved = _MOVED_HOSTS.get(_MOVED_ALIASES.get(word, word))
    if moved is not None:
        row = table.find_own(moved[0])
        if row is not None and row.host is not None:
            notes.add("host", f"{_MOVED_ALIASES.get(word, word)} in llm-strings, {row.host} here: {moved[1]}")
            return row.host, None
    row = table.find_alias(word)
    return (word if row is None or row.host is None else row.host).strip("[]"), None


def _find_host_override(word: str, environ: Mapping[str, str]) -> str | None:
    name = word.upper()
    text = environ.get(f"LLM_STRINGS_{name}_HOST") or environ.get(f"LLM_STRINGS_HOST_{name}")
    return text.strip() if text and text.strip() else None


def _decode_model(path: str, notes: convert.NoteCollector) -> str:
    raw = path.removeprefix("/")
    model = decode_component(raw, component="path")
    if model != raw:
        notes.add("model", "decoded: llm-strings sends the encoded text")
    return model


def _convert_params(query: str, row: Provider, notes: convert.NoteCollector) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for name, value in _parse_form_pairs(query):
        parameter = _PARAMETER_NAMES.get(name, name)
        if is_secret_parameter(name) or is_redirecting(name):
            notes.add(name, "a URI cannot contain credentials or parameters that redirect a request")
            continue
        if name == "repetition_penalty":
            notes.add(name, "llm-strings sends it as frequency_penalty, and so does this URI")
        if parameter == "effort":
            parameter = _EFFORT_NAMES.get(row.dialect, "reasoning_effort")
        if parameter in params:
            notes.add(name, f"{parameter} is given twice: the last one is used, as in llm-strings")
        special = _VALUE_PARSERS.get(parameter)
        typed = _parse_value(parameter, value, notes) if special is None else special(parameter, value, notes)
        if typed is not None:
            params[parameter] = typed
    return params


def _parse_form_pairs(query: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of a form-encoded query: a plus sign is a space."""
    for pair in query.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            yield (
                decode_component(name.replace("+", " "), component="query"),
                decode_component(value.replace("+", " "), component="query"),
            )


def _parse_value(name: str, value: str, notes: convert.NoteCollector) -> Any:
    try:
        typed = parse_query(f"{QUERY_NAME.quote(name)}={QUERY_VALUE.quote(value)}")[name]
        return validate_parameter(name, typed) if name in WELL_KNOWN else typed
    except URIError as error:
        notes.add(name, f"dropped: {error.message}")
        return None


def _parse_stream(name: str, value: str, notes: convert.NoteCollector) -> Any:
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    return _parse_value(name, value, notes)


def _parse_cache(name: str, value: str, notes: convert.NoteCollector) -> Any:
    if value in _FALSE:
        return False
    if value not in _TRUE and not _TTL(value):
        notes.add(name, "dropped: the value must be true or false")
        return None
    if value not in _TRUE:
        notes.add(name, "how long the provider keeps the prompt was dropped")
    return True


_VALUE_PARSERS: Final[Mapping[str, Callable[[str, str, Any], Any]]] = {
    "stream": _parse_stream,
    "cache": _parse_cache,
}
