"""Where below a host a request goes: which API is spoken there, and the paths and queries that it takes.

A row says all of it as data. What a URI may choose is what its provider's row declares, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from onym.errors import LLMURIError, ParameterError, UnsupportedError
from onym.llm.providers import near
from onym.llm.providers._checks import starred
from onym.uri._percent import SEGMENT

if TYPE_CHECKING:
    from onym.llm.dialects import Routes
    from onym.llm.providers import PathValue, Provider
    from onym.uri.llm import LLMURI

__all__ = ["API", "Place", "Used", "choose_api", "find_place"]

#: the parameter that names one of a row's wire formats
API = "api"
#: what `api=` calls a row's own wire format
_NAMES = {
    "openai_chat": "chat",
    "openai_responses": "responses",
    "anthropic_messages": "messages",
    "anthropic_vertex": "messages",
    "gemini": "gemini",
    "gemini_vertex": "gemini",
    "cohere_v2": "cohere",
    "ollama": "ollama",
    "bedrock_converse": "converse",
    "mistral_chat": "chat",
}
_DRAFT = "draft-levy-llm-uri-scheme-00"
#: what may stand in a path or a query that is not the URI's own: no delimiter of any kind
_PLAIN = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,127}")
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


class Used(NamedTuple):
    """One thing that became part of where requests go: its name, its value, where from and where to."""

    parameter: str
    value: str
    origin: str
    wire: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where below the host requests go.

    `used` is what the URI and the environment had a say in: `names` of them are parameters of the URI that
    reach no body.
    """

    base: str
    overrides: Mapping[str, str]
    model: str
    query: tuple[tuple[str, str], ...] = ()
    used: tuple[Used, ...] = ()
    label_used: bool = False
    region: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """The URI's parameters that are spent here."""
        return frozenset(each.parameter for each in self.used if each.origin == "uri")

    def target(self, routes: Routes, operation: str) -> str | None:
        """Path and query of an operation, None where the API has no such operation."""
        path = self.overrides.get(operation)
        if path is None:
            below: str | None = getattr(routes, operation)
            if below is None:
                return None
            path = self.base + below
        path = path.replace("{model}", SEGMENT.quote(self.model.removeprefix(routes.model_prefix)))
        if not self.query:
            return path
        query = "&".join(f"{name}={value}" for name, value in self.query)
        return f"{path}{'&' if '?' in path else '?'}{query}"


def choose_api(uri: LLMURI, row: Provider) -> tuple[Provider, Used | None]:
    """The row as it speaks the API that the URI asks for, and what asked. Raises UnsupportedError."""
    name = uri.params.get(API) if row.apis else None
    if name is not None:
        api = row.apis.get(name) if isinstance(name, str) else None
        if api is None and _NAMES.get(row.dialect) == name:
            return row, Used(API, str(name), "uri", row.dialect)
        if api is None:
            names = sorted({*row.apis, _NAMES.get(row.dialect, row.dialect)})
            raise UnsupportedError(
                f"{row.title} has no API of that name",
                code="llm.no-api",
                parameter=API,
                source=row.source,
                hint=near(str(name), names) or f"it has {', '.join(names)}",
            )
        return row.speaking(api), Used(API, str(name), "uri", api.dialect)
    for api in row.apis.values():
        asked = api.when is not None and api.when in uri.params
        if asked or any(fnmatchcase(uri.model.lower(), glob) for glob in api.models):
            return row.speaking(api), None
    return row, None


def find_place(
    uri: LLMURI, provider: Provider, host: str, environ: Mapping[str, str], chosen: Used | None = None
) -> Place:
    """Where requests for this URI go below `host`. Raises LLMURIError for a part that nobody gave."""
    found = {name: _value(uri, name, provider, host, environ) for name in _wanted(provider)}
    used = list(found.values())
    values = {name: each.value for name, each in found.items()}
    query = []
    for name in provider.query:
        if name in uri.params:
            value = _plain(name, uri.params[name])
            query.append((name, value))
            used.append(Used(name, value, "uri", f"query {name}"))
    values["model"] = "{model}"
    return Place(
        base=_filled(provider.base_path, values),
        overrides={name: _filled(path, values) for name, path in provider.routes.items()},
        model=uri.model,
        query=tuple(query),
        used=(*((chosen,) if chosen else ()), *used),
        label_used=any(each.origin == "label" for each in used),
        region=starred(host, provider.host_suffixes),
    )


def _wanted(provider: Provider) -> list[str]:
    paths = [provider.base_path, *provider.routes.values()]
    names = {name for path in paths for name in _PLACEHOLDER.findall(path)}
    return [name for name in provider.path_values if name in names]


def _filled(path: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], path)


def _value(uri: LLMURI, name: str, provider: Provider, host: str, environ: Mapping[str, str]) -> Used:
    rule = provider.path_values[name]
    for value, origin in _candidates(uri, rule, provider, host, environ):
        if value:
            return Used(rule.parameter, _plain(rule.parameter, value), origin, f"path {{{name}}}")
    places = [f"?{rule.parameter}=…", *(["the app label"] if rule.label else []), *rule.variables]
    raise LLMURIError(
        f"{provider.title} wants to know the {rule.parameter}",
        code="llm.no-path-value",
        component="query",
        clause=f"{_DRAFT} 4.4",
        hint=f"say it by {' or '.join(places)}",
    )


def _candidates(
    uri: LLMURI, rule: PathValue, provider: Provider, host: str, environ: Mapping[str, str]
) -> list[tuple[object, str]]:
    return [
        (uri.params.get(rule.parameter), "uri"),
        (starred(host, provider.host_suffixes) if rule.host else None, "host"),
        (uri.label if rule.label else None, "label"),
        *((environ.get(variable, "").strip(), f"env:{variable}") for variable in rule.variables),
        (rule.default, "default"),
    ]


def _plain(name: str, value: object) -> str:
    """The value as text that can stand in a path or a query as it is."""
    text = value if isinstance(value, str) else str(value)
    if _PLAIN.fullmatch(text) is None:
        raise ParameterError(
            f"the parameter {name} becomes part of the request's path, and cannot be that",
            code="llm.bad-path-value",
            clause=f"{_DRAFT} 4.4",
            parameter=name,
            hint="letters, digits, '-', '_', '.' and '~', 128 of them at most",
        )
    return text
