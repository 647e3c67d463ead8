"""The plan of one call: the request, its notes, and the errors that its answer means.

`explain` prints a `Plan`, and the flow sends it.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onym import errors
from onym.llm.config import add_proxy_hint
from onym.llm.dialects import Exchange
from onym.llm.mapping import REJECTED_PARAMETERS, MappingNote, OnUnsupported, RejectedParameters
from onym.llm.providers import ProviderTable, format_suggestion
from onym.llm.request_headers import HeaderPairs
from onym.llm.types import OPERATIONS, OperationName
from onym.net.limits import parse_should_retry
from onym.net.messages import HTTPRequest, Origin, Reply
from onym.uri.redact import redact
from onym.uri.secret import MARK, Secret, SecretBytes

if TYPE_CHECKING:
    from onym.llm.dialects import Dialect
    from onym.llm.endpoint import Endpoint


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One request, before it is sent.

    `operation` is a name of `onym.llm.types`. `endpoint` has the provider, model, API format and
    credential, and `origin` is None for the embedded model before it runs. `target` is the path with the
    query, and `headers` contain the key as a `Secret`. `exchange` has the facts that errors show. `timeout`
    is in seconds, for the whole call, and `retries` are the attempts after the first. With `stream`, the
    answer is streamed on the wire. `warnings` are sentences that the client emits. `notes` say where each
    value came from and what became of it. `expected` is the number of results that the answer must have.
    `find_unused_proxy` returns the variable of a proxy that Onym was not told to use, if one is set.
    `call_headers` are those of `headers` that the call itself has. `idle_timeout` is the longest time without
    a byte of a stream, in seconds.

    `body` may contain `Secret` values that the program put there, as `headers` does: `repr`, `str` and
    `as_dict()` show `***` instead.
    """

    operation: OperationName
    endpoint: Endpoint
    origin: Origin | None
    method: str
    target: str
    headers: tuple[tuple[str, str | Secret], ...]
    exchange: Exchange
    timeout: float
    idle_timeout: float | None = None
    retries: int
    stream: bool = False
    warnings: tuple[str, ...] = ()
    on_unsupported: OnUnsupported = "error"
    lessons: RejectedParameters = REJECTED_PARAMETERS
    body: Mapping[str, Any] | None = None
    notes: tuple[MappingNote, ...] = ()
    expected: int | None = None
    find_unused_proxy: Callable[[], str | None] | None = None
    call_headers: HeaderPairs = ()

    def __repr__(self) -> str:
        return f"Plan({self.operation!r}, {self.endpoint.text!r}, {self.method} {self.target})"

    @property
    def dialect(self) -> Dialect:
        """The API format."""
        return self.endpoint.dialect

    @property
    def url(self) -> str:
        """Where the request goes."""
        origin = self.origin
        if origin is None:
            return f"http://127.0.0.1:(a port chosen at the start){self.target}"
        usual = {"https": 443, "http": 80}[origin.scheme]
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        return f"{origin.scheme}://{host}" + (f":{origin.port}" if origin.port != usual else "") + self.target

    @property
    def expires(self) -> float | None:
        """When the credential expires, in seconds since 1970; None if it does not."""
        credential = self.endpoint.credential
        return None if credential is None else credential.expires

    @property
    def route(self) -> str:
        """The operation's name among the routes: some API formats have a separate route for streams."""
        separate = self.stream and self.dialect.routes.find("stream") is not None
        return "stream" if separate else self.operation

    def with_timeout(self, timeout: float) -> Plan:
        """Return this plan with so many seconds for the call."""
        return replace(self, timeout=timeout)

    def with_next_page(self, query: str, left: float) -> Plan:
        """Return the plan of the next page of a list, for which so many seconds are left."""
        return replace(self, target=f"{self.target.partition('?')[0]}?{query}", timeout=left)

    def with_model_list(self) -> Plan | None:
        """Return the plan for the list of models instead of one for a single model, if there is a list."""
        target = self.endpoint.place.build_target(self.dialect.routes, "models")
        if target is None:
            return None
        origin = self.endpoint.get_origin("models")
        return replace(self, operation="models", method="GET", target=target, origin=origin, body=None)

    @property
    def request(self) -> HTTPRequest:
        """The request itself, with the key in it. Raises CredentialError if a required key is missing."""
        endpoint = self.endpoint
        if self.origin is None:
            raise errors.UsageError("the embedded model does not run yet", code="usage.not-running")
        if endpoint.unkeyed is not None:
            raise copy(endpoint.unkeyed)
        body = b"" if self.body is None else _encode_sealed_body(self.body)
        headers = self.headers
        if endpoint.is_signed:
            headers = endpoint.sign_request(self.method, self.url, headers, body)
        return HTTPRequest(
            method=self.method,
            origin=self.origin,
            target=self.target,
            headers=headers,
            body=body,
            credential=endpoint.credential_name,
        )

    def decode_error(self, reply: Reply, now: float) -> errors.ProviderError:
        """Return the error of this reply."""
        dated = dataclasses.replace(self.exchange, now=now)
        error = self.dialect.decode_error(reply.status, reply.headers, reply.body, dated)
        add_response_facts(error, reply)
        self.add_hint(error)
        if isinstance(error, errors.NotFoundError) and not _names_model(self.dialect.name, reply.body):
            self._add_route_hint(error)
        return error

    def _add_route_hint(self, error: errors.NotFoundError) -> None:
        """Add a hint about the API to the error of a server that does not have this API's route."""
        endpoint = self.endpoint
        error.other_uri = endpoint.other_uri
        if endpoint.other_uri is not None:
            error.hint = (
                f"The server has no {self.target}. If it has OpenAI's API, as llama.cpp and vLLM do, use "
                f"{endpoint.other_uri}"
            )
        elif endpoint.provider.name.startswith(_ASSUMED):
            error.hint = (
                f"The request went to {self.url}. If the API is below another path, add a provider with "
                "base_path to the configuration file."
            )

    def add_hint(self, error: errors.NetError | errors.ProviderError) -> None:
        """Add to the error a hint about the model, the key or the host."""
        set_error_hint(error, self.endpoint, self.operation)
        if isinstance(error, errors.DeadlineExceeded) and error.code == errors.DeadlineExceeded.default_code:
            self._explain_timeout(error)
        variable = None if self.find_unused_proxy is None else self.find_unused_proxy()
        if variable is not None and self.origin is not None:
            add_proxy_hint(error, self.origin.host, variable)

    def _explain_timeout(self, error: errors.DeadlineExceeded) -> None:
        """Name the timeout of the call and where it was set."""
        milliseconds = round(self.timeout * 1000)
        origin = next((note.origin for note in self.notes if note.parameter == "timeout"), "default")
        place = {"uri": "in the URI", "override": "in the call", "default": "the default"}.get(origin, origin)
        error.message = (
            f"the request timed out after {milliseconds} ms (timeout={milliseconds}, {place}; "
            "the unit is milliseconds)"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON, with secrets masked."""
        endpoint, secrets = self.endpoint, self.endpoint.secrets
        return {
            "operation": self.operation,
            "endpoint": endpoint.text,
            "provider": endpoint.provider.name,
            "dialect": endpoint.dialect.name,
            "profile": endpoint.profile.family,
            "model": endpoint.model,
            "credential": None if endpoint.credential is None else endpoint.credential.source,
            "unkeyed": None if endpoint.unkeyed is None else str(endpoint.unkeyed),
            "method": self.method,
            "url": self.url,
            "headers": {name: mask_secrets(value, secrets) for name, value in self.headers},
            "body": mask_secrets(self.body, secrets),
            "timeout": self.timeout,
            "idle_timeout": self.idle_timeout,
            "retries": self.retries,
            "stream": self.stream,
            "notes": [mask_secrets(note.as_dict(), secrets) for note in self.notes],
            "warnings": list(self.warnings),
        }


#: providers whose base path is only assumed, because nothing is known about the server
_ASSUMED = "openai-compatible"


def _names_model(dialect: str, body: bytes) -> bool:
    """Return whether the body of a 404 has the form in which this API format reports an unknown model.

    A server without the route answers in its own form: with text, `{"detail": ...}` or another API's error.
    """
    try:
        data = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(data, dict):
        return False
    if dialect == "ollama":
        return isinstance(data.get("error"), str)
    if dialect == "cohere_v2":
        return "message" in data
    if dialect.startswith("anthropic"):
        return data.get("type") == "error"
    return "error" in data or "message" in data


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return the body as JSON, with the secrets of pass-through parameters. Raises UsageError."""
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        pass  # its text would contain the prompt
    raise errors.UsageError(
        "a text contains a lone surrogate, which UTF-8 cannot encode", code="usage.bad-message"
    )


def _encode_sealed_body(body: Mapping[str, Any]) -> bytes | SecretBytes:
    """Return the body as JSON; as `SecretBytes` if it contains a secret."""
    try:
        return _PLAIN_ENCODER.encode(body)
    except (errors.SecretError, UnicodeEncodeError):
        pass
    try:
        return SecretBytes(encode_body(body))
    except BaseException as error:
        # no frame with a revealed secret stays with the error
        error.__traceback__ = None
        raise


def _encode_plain(value: Any) -> Any:
    if isinstance(value, Secret):
        raise errors.SecretError("the body contains a secret")
    return _encode_special(value)


def _encode_special(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be part of a request's body")


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_special)
_PLAIN_ENCODER = msgspec.json.Encoder(enc_hook=_encode_plain)


def mask_secrets(value: Any, secrets: Sequence[Secret]) -> Any:
    """Return `value` as plain data with every secret masked."""
    if isinstance(value, Secret):
        return MARK
    if isinstance(value, str):
        return redact(value, secrets=secrets)
    if isinstance(value, Mapping):
        return {name: mask_secrets(item, secrets) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_secrets(item, secrets) for item in value]
    return value


def add_response_facts(error: errors.ProviderError, reply: Reply) -> None:
    """Add the headers to the error, and what they say about retries."""
    error.headers = reply.headers
    asked = parse_should_retry(reply.headers)
    if asked is not None:
        error.retryable = asked


def set_error_hint(
    error: errors.NetError | errors.ProviderError, endpoint: Endpoint, operation: OperationName
) -> None:
    """Replace the error's hint if the endpoint allows a better one."""
    hint = None
    if isinstance(error, errors.ResolveError):
        hint = _suggest_alias(endpoint)
    elif isinstance(error, errors.NotFoundError):
        if OPERATIONS[operation].names_model and endpoint.provider.capabilities["models"] != "no":
            hint = _suggest_model(endpoint) or f"Run: onym models list {endpoint.text}"
    elif isinstance(error, errors.AuthenticationError):
        hint = _describe_key_origin(endpoint)
    elif error.code == "net.connection.refused" and endpoint.provider.start_command is not None:
        hint = f"Is {endpoint.provider.title} running? Start it with: {endpoint.provider.start_command}"
    error.hint = hint or error.hint


def _suggest_model(endpoint: Endpoint) -> str | None:
    """Return how to get a model that the server does not have, or what is known about its end."""
    if endpoint.provider.fetch_command is not None:
        command = endpoint.provider.fetch_command.replace("{model}", shlex.quote(endpoint.model))
        return f"Fetch the model with: {command}"
    from onym.llm.models import find_retirement  # only this error needs the table

    retirement = find_retirement(endpoint.provider.name, endpoint.model)
    if retirement is None:
        return None
    advice = "" if retirement.replacement is None else f" Use {retirement.replacement}."
    day = retirement.ends.isoformat()
    return f"{endpoint.provider.title} announced {day} as the end of {endpoint.model}.{advice}"


def _suggest_alias(endpoint: Endpoint) -> str | None:
    """Suggest aliases for a host of one word, or a host for an alias with a port."""
    if endpoint.origin is None or "." in endpoint.origin.host:
        return None
    host, aliases = endpoint.origin.host, ProviderTable.builtin().aliases()
    if host in aliases:
        local = f"localhost:{endpoint.origin.port}"
        return f"{host} is an alias only without a port. For a server on this computer, write {local}."
    return format_suggestion(host, aliases)


def _describe_key_origin(endpoint: Endpoint) -> str:
    if endpoint.credential is not None:
        return f"the key came from {redact(endpoint.credential.source, secrets=endpoint.secrets)}"
    names = endpoint.provider.key_variables
    return f"no key was sent; {f'export {names[0]}=… or ' if names else ''}point at one with ?auth=env:NAME"
