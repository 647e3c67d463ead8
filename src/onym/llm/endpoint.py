"""The endpoint of a URI: provider, API format, paths, origin and credential.

The provider's row holds these facts as data. A URI can choose only what its provider's row declares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from onym import __version__
from onym.errors import CredentialError, LLMURIError, ParameterError, PolicyError, UnsupportedError
from onym.llm import credentials, dialects, models
from onym.llm.parameters import DRAFT
from onym.llm.providers import format_suggestion, is_loopback, match_wildcard
from onym.llm.request_headers import merge_headers
from onym.net.messages import Origin
from onym.uri.components import SEGMENT
from onym.uri.secret import Secret, SecretBytes

if TYPE_CHECKING:
    from onym.llm.dialects import Routes
    from onym.llm.providers import PathValue, Provider, ProviderTable
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI

#: the parameter that names one of a provider's API formats
API_PARAMETER = "api"
#: the name for `api=` of a provider's own API format
_API_NAMES = {
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
#: the API format that most servers have
_COMMON = "openai_chat"
#: text for a path or a query: it contains no delimiter
_PATH_TEXT = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,127}")
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


class RoutingValue(NamedTuple):
    """A value that is part of the path, the query or the API format of requests, and where it comes from.

    `reason` and `source` belong to a choice that nobody made in the URI.
    """

    parameter: str
    value: str
    origin: str
    wire: str
    reason: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPaths:
    """The paths of requests. `used` has the values that the URI and the environment contribute."""

    base: str
    overrides: Mapping[str, str]
    model: str
    query: tuple[tuple[str, str], ...] = ()
    used: tuple[RoutingValue, ...] = ()
    label_used: bool = False
    region: str | None = None

    @property
    def parameter_names(self) -> frozenset[str]:
        """The parameters of the URI that are part of the path or query, and not of the body."""
        return frozenset(value.parameter for value in self.used if value.origin == "uri")

    def build_target(self, routes: Routes, operation: str) -> str | None:
        """Return path and query of an operation, None if the API does not have the operation."""
        path = self.overrides.get(operation)
        if path is None:
            below = routes.find(operation)
            if below is None:
                return None
            path = self.base + below
        path = path.replace("{model}", SEGMENT.quote(self.model.removeprefix(routes.model_prefix)))
        if not self.query:
            return path
        query = "&".join(f"{name}={value}" for name, value in self.query)
        return f"{path}{'&' if '?' in path else '?'}{query}"


#: the API that serves what chat completions do not
_RESPONSES = "responses"
#: parameters that only the Responses API has: the difference of the two APIs in the openai 3.52 SDK
_RESPONSES_PARAMETERS = frozenset(
    {
        *("background", "context_management", "conversation", "include", "max_tool_calls"),
        *("previous_response_id", "reasoning", "text", "truncation"),
    }
)


def choose_api(uri: LLMURI, row: Provider) -> tuple[Provider, RoutingValue | None]:
    """Return the provider entry for the API that the URI selects, and how.

    If the URI selects none, the model decides: its profile says what chat completions do not offer. Raises
    UnsupportedError for an API that the provider does not have, or that does not serve the model.
    """
    name = uri.params.get(API_PARAMETER) if row.apis else None
    if name is not None:
        api = row.apis.get(name) if isinstance(name, str) else None
        if api is None and _API_NAMES.get(row.dialect) == name:
            _require_chat(uri, row)
            return row, RoutingValue(API_PARAMETER, str(name), "uri", row.dialect)
        if api is None:
            names = sorted({*row.apis, _API_NAMES.get(row.dialect, row.dialect)})
            raise UnsupportedError(
                f"{row.title} has no API of that name",
                code="llm.no-api",
                parameter=API_PARAMETER,
                source=row.source,
                hint=format_suggestion(str(name), names) or f"it has {', '.join(names)}",
            )
        return row.with_api(api), RoutingValue(API_PARAMETER, str(name), "uri", api.dialect)
    for api in row.apis.values():
        asked = api.when is not None and api.when in uri.params
        if asked or any(fnmatchcase(uri.model.lower(), glob) for glob in api.models):
            return row.with_api(api), None
    moved = _find_moved_api(uri, row)
    return (row, None) if moved is None else (row.with_api(row.apis[_RESPONSES]), moved)


def _find_profile(uri: LLMURI, row: Provider) -> models.Profile | None:
    """Return the model's profile, None if the provider does not have both of OpenAI's APIs."""
    if row.dialect != "openai_chat" or _RESPONSES not in row.apis:
        return None
    return models.find_profile(row.name, uri.model, row.dialect)


def find_tool_limit(uri: LLMURI, row: Provider) -> str | None:
    """Return why chat completions take no tools with this URI, None if they do."""
    profile = _find_profile(uri, row)
    return None if profile is None else profile.find_chat_gap(uri.extra, tools=True)


def _find_moved_api(uri: LLMURI, row: Provider) -> RoutingValue | None:
    """Return the Responses API and the reason for it, None if chat completions serve the URI completely."""
    profile = _find_profile(uri, row)
    if profile is None or profile.chat == "all":
        return None
    own = sorted(_RESPONSES_PARAMETERS.intersection(uri.extra))
    reason = f"chat completions have no parameter {own[0]}" if own else None
    reason = profile.find_chat_gap(uri.extra, tools=True) or reason
    if reason is None:
        return None
    wire = row.apis[_RESPONSES].dialect
    return RoutingValue(API_PARAMETER, _RESPONSES, "default", wire, reason, profile.source)


def _require_chat(uri: LLMURI, row: Provider) -> None:
    """Raise UnsupportedError if the URI selects chat completions for a model that they do not serve."""
    profile = _find_profile(uri, row)
    reason = None if profile is None else profile.find_chat_gap(uri.extra, tools=False)
    if profile is not None and reason is not None:
        raise UnsupportedError(
            f"{row.title} does not take api=chat for this model: {reason}",
            code="llm.no-api",
            parameter=API_PARAMETER,
            model=uri.model,
            source=profile.source,
            hint="Leave out api=chat: the Responses API is used then.",
        )


def resolve_paths(
    uri: LLMURI, provider: Provider, host: str, environ: Mapping[str, str], chosen: RoutingValue | None = None
) -> RequestPaths:
    """Return the paths of requests for this URI. Raises LLMURIError for a missing part of a path."""
    found = {
        name: _resolve_path_value(uri, name, provider, host, environ) for name in _list_placeholders(provider)
    }
    used = list(found.values())
    values = {name: routed.value for name, routed in found.items()}
    query = []
    for name in provider.query:
        if name in uri.params:
            value = _validate_path_text(name, uri.params[name])
            query.append((name, value))
            used.append(RoutingValue(name, value, "uri", f"query {name}"))
    values["model"] = "{model}"
    return RequestPaths(
        base=_fill_placeholders(provider.base_path, values),
        overrides={name: _fill_placeholders(path, values) for name, path in provider.routes.items()},
        model=uri.model,
        query=tuple(query),
        used=(*((chosen,) if chosen else ()), *used),
        label_used=any(value.origin == "label" for value in used),
        region=match_wildcard(host, provider.host_suffixes),
    )


def _list_placeholders(provider: Provider) -> list[str]:
    paths = [provider.base_path, *provider.routes.values()]
    names = {name for path in paths for name in _PLACEHOLDER.findall(path)}
    return [name for name in provider.path_values if name in names]


def _fill_placeholders(path: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], path)


def _resolve_path_value(
    uri: LLMURI, name: str, provider: Provider, host: str, environ: Mapping[str, str]
) -> RoutingValue:
    rule = provider.path_values[name]
    for value, origin in _list_candidates(uri, rule, provider, host, environ):
        if value:
            return RoutingValue(
                rule.parameter, _validate_path_text(rule.parameter, value), origin, f"path {{{name}}}"
            )
    places = [f"?{rule.parameter}=…", *(["the app label"] if rule.label else []), *rule.variables]
    raise LLMURIError(
        f"{provider.title} needs the parameter {rule.parameter}",
        code="llm.no-path-value",
        component="query",
        clause=f"{DRAFT} 4.4",
        hint=f"Set it by {' or '.join(places)}.",
    )


def _list_candidates(
    uri: LLMURI, rule: PathValue, provider: Provider, host: str, environ: Mapping[str, str]
) -> list[tuple[object, str]]:
    return [
        (uri.params.get(rule.parameter), "uri"),
        (match_wildcard(host, provider.host_suffixes) if rule.host else None, "host"),
        (uri.label if rule.label else None, "label"),
        *((environ.get(variable, "").strip(), f"env:{variable}") for variable in rule.variables),
        (rule.default, "default"),
    ]


def _validate_path_text(name: str, value: object) -> str:
    """Return the value as text that needs no encoding in a path or a query."""
    text = value if isinstance(value, str) else str(value)
    if _PATH_TEXT.fullmatch(text) is None:
        raise ParameterError(
            f"the value of {name} cannot be part of the request's path",
            code="llm.bad-path-value",
            clause=f"{DRAFT} 4.4",
            parameter=name,
            hint="Use at most 128 letters, digits, '-', '_', '.' and '~'.",
        )
    return text


EMBEDDED = "embedded"

_LONGEST_LABEL = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint: its provider entry, profile, API format, paths and credential.

    `origin` is None for the embedded model before it runs. `text` is the name of the endpoint in errors and
    notes, without label, key and parameters. `label_header` is the header for the app label, None if there is
    none. `unkeyed` is the error for a missing key: such an endpoint can be explained, but not called.
    `other_uri` is the URI, without its key, for a server of OpenAI's chat format at the same address; None if
    the URI chooses that format, or if its provider is known.
    """

    provider: Provider
    profile: models.Profile
    dialect: dialects.Dialect
    origin: Origin | None
    place: RequestPaths
    model: str
    text: str
    label: str | None = None
    label_header: str | None = None
    credential: credentials.Credential | None = field(default=None, repr=False)
    #: an opaque name of the credential, for the pool of connections
    credential_name: str | None = None
    unkeyed: CredentialError | None = field(default=None, repr=False)
    other_uri: str | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether this is the embedded model, which Onym starts for the first call."""
        return self.provider.name == EMBEDDED

    @property
    def rejection_key(self) -> str:
        """The key for rejected parameters: model and API format, because other formats may accept more."""
        return f"{self.dialect.name} {self.text}"

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets that must not appear in messages."""
        credential = self.credential
        if credential is None:
            return ()
        return (credential.secret,) if credential.session is None else (credential.secret, credential.session)

    @property
    def is_signed(self) -> bool:
        """Whether requests contain a signature instead of the key."""
        return self.credential is not None and self.credential.access_id is not None

    def find_choice_refusal(self, choice: str, extra: Mapping[str, Any]) -> models.ChoiceRefusal | None:
        """Return why the model or its API format refuses a tool choice in a call with these parameters.

        `extra` are pass-through parameters, or the body of a request.
        """
        # formats of other distributions may not have this member
        refused: Mapping[str, str] = getattr(self.dialect, "refuses_choice", {})
        reason = refused.get(models.get_choice_kind(choice))
        if reason is not None:
            return models.ChoiceRefusal(reason, self.provider.source)
        return self.profile.find_choice_refusal(choice, extra)

    def build_headers(self) -> tuple[tuple[str, str | Secret], ...]:
        """Return the headers of every request to this endpoint, without a signature."""
        headers: list[tuple[str, str | Secret]] = [
            ("Accept", "application/json"),
            ("User-Agent", f"onym/{__version__}"),
            *self.dialect.headers,
        ]
        if self.credential is not None and not self.is_signed:
            header, prefix = self.provider.get_key_header(self.credential.secret, self.credential.source)
            headers += [(header, _prefix_secret(prefix, self.credential.secret)), *self.credential.headers]
        if self.label is not None and self.label_header is not None:
            headers.append((self.label_header, self.label))
        if self.provider.headers:
            return merge_headers(headers, self.provider.headers.items())
        return tuple(headers)

    def sign_request(
        self,
        method: str,
        url: str,
        headers: tuple[tuple[str, str | Secret], ...],
        body: bytes | SecretBytes,
    ) -> tuple[tuple[str, str | Secret], ...]:
        """Return the headers with a signature of this request."""

        assert self.credential is not None  # noqa: S101 - `is_signed` requires it
        assert self.origin is not None  # noqa: S101 - only the embedded model lacks it
        # only the pattern of a provider with signed requests contains a region
        named = self.place.region if self.provider.signing is not None else None
        region = named or credentials.parse_region(self.origin.host)
        return credentials.sign_request(
            method=method, url=url, headers=headers, body=body, credential=self.credential, region=region
        )

    def get_origin(self, operation: str) -> Origin | None:
        """Return the origin that serves this operation."""
        label = self.provider.first_labels.get(operation)
        if self.origin is None or label is None:
            return self.origin
        first, dot, rest = self.origin.host.partition(".")
        known = first in self.provider.first_labels.values()
        return replace(self.origin, host=label + dot + rest) if known else self.origin

    def make_exchange(self) -> dialects.Exchange:
        """Return what decoders and errors need to know about this endpoint."""
        return dialects.Exchange(
            endpoint=self.text, provider=self.provider.name, secrets=self.secrets, model=self.model
        )

    def with_running_server(self, origin: Origin, key: Secret) -> Endpoint:
        """Return this endpoint with the origin and key of the running embedded model."""
        credential = credentials.Credential(secret=key, source=EMBEDDED)
        return replace(self, origin=origin, credential=credential, credential_name=credential.digest)

    def with_credential(self, credential: credentials.Credential) -> Endpoint:
        """Return this endpoint with a newer credential."""
        return replace(self, credential=credential, credential_name=credential.digest)


def _prefix_secret(prefix: str, secret: Secret) -> Secret:
    try:
        return Secret(prefix + secret.reveal())
    except BaseException as error:
        error.__traceback__ = None  # the frame of `Secret` contains the text
        raise


def resolve_endpoint(
    uri: LLMURI,
    *,
    providers: ProviderTable,
    policy: Policy,
    environ: Mapping[str, str],
    key: Secret | None = None,
    tls_loopback: bool = False,
) -> Endpoint:
    """Return the endpoint of a URI. With `tls_loopback`, a server on this computer has TLS.

    An alias without a port means the provider's host. Raises UnsupportedError for an API that the row does
    not have, LLMURIError for a label that cannot be a header, or for a missing part of a path.
    """
    host, aliased = uri.host, None
    if uri.port is None:
        aliased = providers.find_alias(host)
    row = aliased or providers.find(host, uri.port)
    if aliased is not None:
        host = aliased.hosts[0]
    text = uri.endpoint_text
    provider, chosen = choose_api(uri, row)
    # values of the environment are used under the same rule as its secrets
    known = environ if policy.environment_credentials else {}
    place = resolve_paths(uri, provider, host, known, chosen)
    fixed: dict[str, Any] = {
        "provider": provider,
        "profile": models.find_profile(provider.name, uri.model, provider.dialect),
        "dialect": dialects.get_dialect(provider.dialect),
        "place": place,
        "model": uri.model,
        "text": text,
    }
    if provider.name == EMBEDDED:
        _require_embedded_allowed(policy, text)
        return Endpoint(origin=None, **fixed)
    found = _resolve_key(uri, provider, policy, environ, key)
    credential: credentials.Credential | None = found.get("credential")
    spoken_for = place.label_used or (credential is not None and credential.access_id == uri.label)
    label = None if spoken_for else uri.label
    return Endpoint(
        origin=_build_origin(host, uri.port, provider, tls_loopback),
        other_uri=_find_other_uri(uri, row, provider.dialect, host),
        label=label,
        label_header=_find_label_header(label, provider),
        **found,
        **fixed,
    )


def _resolve_key(
    uri: LLMURI, provider: Provider, policy: Policy, environ: Mapping[str, str], key: Secret | None
) -> dict[str, Any]:
    try:
        found = credentials.resolve_credential(uri, provider, policy, environ, key=key)
    except CredentialError as error:
        # kept without its frames, which would live as long as the client
        return {"unkeyed": error.with_traceback(None)}
    return {"credential": found, "credential_name": None if found is None else found.digest}


def _build_origin(host: str, port: int | None, provider: Provider, tls_loopback: bool) -> Origin:
    # HTTP only to loopback (draft 5.1, 10.2); the transport applies the policy
    plain = is_loopback(host) and not tls_loopback
    return Origin("http" if plain else "https", host, port or provider.default_port)


def _find_other_uri(uri: LLMURI, row: Provider, dialect: str, host: str) -> str | None:
    """Return `Endpoint.other_uri`. Any program may listen on this computer, also on Ollama's port."""
    if dialect == _COMMON or not (is_loopback(host) or row.name == "openai-compatible"):
        return None
    if row.dialect == _COMMON:
        return uri.without_key().without_params(API_PARAMETER).render()
    names = [name for name, api in row.apis.items() if api.dialect == _COMMON]
    return uri.without_key().with_params({API_PARAMETER: names[0]}).render() if names else None


def _require_embedded_allowed(policy: Policy, text: str) -> None:
    # starting a model uses this computer's memory and processor, so an untrusted URI must not do it
    if not policy.environment_credentials or (
        policy.allow_hosts is not None and EMBEDDED not in policy.allow_hosts
    ):
        message = "the policy does not allow a URI to start the embedded model on this computer"
        raise PolicyError(message, reason="embedded", endpoint=text)


def _find_label_header(label: str | None, provider: Provider) -> str | None:
    header = None if label is None else provider.find_label_header(label)
    if header is None or label is None:
        return None
    if (
        len(label) > _LONGEST_LABEL
        or label != label.strip(" ")
        or not label.isascii()
        or not label.isprintable()
    ):
        raise LLMURIError(
            "the app label cannot be the value of a header",
            code="llm.bad-label",
            component="userinfo",
            clause=f"{DRAFT} 4.2.1",
        )
    return header
