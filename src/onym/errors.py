"""Every exception that Onym raises. No other module defines one.

OnymError
├── UsageError                    an argument of our own API or command line that cannot be used
├── SecretError                   a secret was about to leave by a way that is not `reveal()`
├── ConformanceError              a conformance question that cannot be read
├── ConfigError                   the configuration file, a named endpoint or a profile
├── CredentialError               a key is missing, unreadable, or bound to another host
├── URIError                      text that is not the URI it should be (component, offset, clause)
│   ├── URISyntaxError            RFC 3986 / RFC 3987 refuse it
│   ├── URILimitError             longer or deeper than the limit in force
│   ├── LLMURIError               RFC 3986 allows it, the llm draft or `docs/` does not
│   │   └── ParameterError        one query parameter is wrong (parameter)
│   └── AIURIError                RFC 3986 allows it, the ai draft does not
├── NetError                      nothing usable came back from the network (endpoint)
│   ├── PolicyError               the policy forbids this host, address, port or scheme (reason)
│   ├── ResolveError              the name has no usable address
│   ├── ConnectionFailed          no connection, or it broke
│   ├── TLSError                  no trustworthy TLS session
│   ├── DeadlineExceeded          the time allowed is over
│   ├── RedirectRefused           the server answered with a redirect; none is followed
│   ├── ResponseTooLarge          header, body or decompressed body beyond its cap
│   └── ProtocolError             what came back is not HTTP, or its encoding is broken
├── UnsupportedError              the provider, dialect or model cannot do what was asked (parameter, source)
├── ProviderError                 the server answered with a failure (endpoint, status, request_id)
│   ├── AuthenticationError       the key is missing, wrong or expired
│   ├── PermissionDeniedError     the key is right and may not do this
│   ├── NotFoundError             no such model or route
│   ├── RateLimitError            too many requests or tokens (retry_after, seconds)
│   ├── QuotaError                no credit or quota left; waiting does not help
│   ├── ContextLengthError        prompt and completion do not fit the model
│   ├── BadRequestError           the request was refused (parameter, where the server names it)
│   ├── ContentFilterError        prompt or completion was filtered
│   ├── OverloadedError           the provider is busy or down (retry_after, seconds)
│   ├── ServerError               any other failure on the server's side
│   └── MalformedResponseError    2xx, and the body is not what the dialect promises
├── MissingExtraError             an optional dependency is not installed (command)
├── SignatureError                a signature or token that does not hold
├── AIIPError                     ai:// names: what resolution, an endpoint or a gateway refuses (target)
│   ├── DiscoveryError            no trustworthy way to the authority: unknown, conflict, weaker than pinned
│   ├── ProvenanceError           a result's receipt is missing, wrong or stale; nothing of it was released
│   ├── DeniedError               policy, scopes or effects do not allow it
│   └── InvocationError           the endpoint answered with a problem (status, problem)
├── RegistryError                 schemes, parameters and namespaces (field, clause)
│   ├── RefusalError              the procedure does not allow this step (rule)
│   ├── TemplateError             no registration template can be read there (line, column)
│   ├── GrammarError              text that is not ABNF, or a grammar beyond its caps (line, column, rule)
│   ├── SnapshotError             a registry file that cannot be imported (line, column)
│   ├── StaleError                somebody else was first: what is to be changed has changed (version)
│   ├── UnknownEntryError         no such entry, request, account or token
│   ├── AccessError               not signed in, or not in that role
│   └── StoreError                the database cannot be used, or its log does not hold
└── EmbeddedError                 the model on this machine
    ├── MissingWeightsError       the weights are not on this machine (command)
    └── WeightsError              weights could not be fetched, or have the wrong hash

OnymWarning (a UserWarning)       something was dropped or withheld, and the call goes on

Each instance carries a stable `code` ("uri.bad-percent-encoding"), a message that never holds a
credential or the offending value, and a `hint` that says how to go on.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AIIPError",
    "AIURIError",
    "AccessError",
    "AuthenticationError",
    "BadRequestError",
    "ConfigError",
    "ConformanceError",
    "ConnectionFailed",
    "ContentFilterError",
    "ContextLengthError",
    "CredentialError",
    "DeadlineExceeded",
    "DeniedError",
    "DiscoveryError",
    "EmbeddedError",
    "GrammarError",
    "InvocationError",
    "LLMURIError",
    "MalformedResponseError",
    "MissingExtraError",
    "MissingWeightsError",
    "NetError",
    "NotFoundError",
    "OnymError",
    "OnymWarning",
    "OverloadedError",
    "ParameterError",
    "PermissionDeniedError",
    "PolicyError",
    "ProtocolError",
    "ProvenanceError",
    "ProviderError",
    "QuotaError",
    "RateLimitError",
    "RedirectRefused",
    "RefusalError",
    "RegistryError",
    "ResolveError",
    "ResponseTooLarge",
    "SecretError",
    "ServerError",
    "SignatureError",
    "SnapshotError",
    "StaleError",
    "StoreError",
    "TLSError",
    "TemplateError",
    "URIError",
    "URILimitError",
    "URISyntaxError",
    "UnknownEntryError",
    "UnsupportedError",
    "UsageError",
    "WeightsError",
]


class OnymError(Exception):
    """Base of every error that Onym raises on purpose.

    `code` is stable across releases; `message` is for people and may change; `hint`, where present,
    says what to do next. `as_dict()` is what `--json` prints.
    """

    default_code: ClassVar[str] = "onym.error"
    #: what the command line exits with (`onym.cli.exit_codes`)
    exit_code: ClassVar[int] = 70
    #: the status of the answer when a request to a server of Onym fails with this error
    http_status: ClassVar[int] = 500
    #: attributes, beside code, message and hint, that `as_dict` reports when they are set
    fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def as_dict(self) -> dict[str, Any]:
        """The error as plain data: code, message, hint and the class's own fields that are set."""
        out: dict[str, Any] = {"code": self.code, "message": self.message}
        for name in ("hint", *self.fields):
            value = getattr(self, name)
            if value is not None:
                out[name] = value
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_error, (type(self), self.args, dict(self.__dict__))


def _rebuild_error(cls: type[OnymError], args: tuple[Any, ...], state: dict[str, Any]) -> OnymError:
    error = cls.__new__(cls, *args)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


class UsageError(OnymError):
    """An argument of our own API or command line that cannot be used."""

    default_code = "usage.bad-argument"
    exit_code = 2
    http_status = 400


class SecretError(OnymError):
    """A secret was about to be pickled, copied into data or otherwise leave by the back door."""

    default_code = "secret.refused"


class ConformanceError(OnymError):
    """A conformance question that cannot be read."""

    default_code = "conformance.bad-question"
    exit_code = 2
    http_status = 400


class ConfigError(OnymError):
    """The configuration file, a named endpoint or a profile is missing or wrong."""

    default_code = "config.invalid"
    exit_code = 4


class CredentialError(OnymError):
    """A key is missing, unreadable, or bound to another host. Never holds the key."""

    default_code = "credential.missing"
    exit_code = 4


class URIError(OnymError):
    """Text that is not the URI it should be.

    `component` is one of scheme, userinfo, host, port, path, query, fragment; `offset` counts
    characters from the start of the text; `clause` names the rule ("RFC 3986 3.2.2").
    """

    default_code = "uri.invalid"
    exit_code = 3
    http_status = 422
    fields = ("component", "offset", "clause", "parameter")

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        component: str | None = None,
        offset: int | None = None,
        clause: str | None = None,
        parameter: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.component = component
        self.offset = offset
        self.clause = clause
        self.parameter = parameter

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at offset {self.offset}"
        rule = "" if self.clause is None else f" [{self.clause}]"
        return f"{self.message}{where}{rule}" + (f" ({self.hint})" if self.hint else "")


class URISyntaxError(URIError):
    """RFC 3986 (or RFC 3987, for an IRI) does not allow this text."""

    default_code = "uri.syntax"


class URILimitError(URIError):
    """The text is longer, or nests deeper, than the limit in force."""

    default_code = "uri.too-long"


class LLMURIError(URIError):
    """A URI by RFC 3986 that the llm scheme does not allow (draft-levy-llm-uri-scheme-00)."""

    default_code = "llm.invalid"


class ParameterError(LLMURIError):
    """One query parameter is wrong; `parameter` names it."""

    default_code = "llm.bad-parameter"


class AIURIError(URIError):
    """A URI by RFC 3986 that the ai scheme does not allow (draft-sogomonian-ai-uri-scheme-01)."""

    default_code = "ai.invalid"


class _EndpointError(OnymError):
    """What went wrong at one endpoint; `endpoint` is its redacted form.

    `partial` is what a stream had brought before it broke (a Completion), None elsewhere.
    """

    fields: ClassVar[tuple[str, ...]] = ("endpoint",)
    partial: object = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        endpoint: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.endpoint = endpoint

    def __str__(self) -> str:
        at = "" if self.endpoint is None else f" [{self.endpoint}]"
        return f"{self.message}{at}" + (f" ({self.hint})" if self.hint else "")


class NetError(_EndpointError):
    """Nothing usable came back from the network. `sent` says whether any request byte may have left."""

    default_code = "net.error"
    exit_code = 6
    http_status = 502
    #: may a call that failed so be tried again?
    retryable: ClassVar[bool] = False
    #: an error that does not say is thought to have come late
    sent: bool = True


class PolicyError(NetError):
    """The policy forbids this host, address, port or scheme; nothing was sent. `reason` is its code."""

    default_code = "net.refused"
    exit_code = 5
    fields = ("endpoint", "reason")

    def __init__(
        self, message: str, *, reason: str, endpoint: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=f"net.refused.{reason}", endpoint=endpoint, hint=hint)
        self.reason = reason


class ResolveError(NetError):
    """The name has no usable address."""

    default_code = "net.resolve"
    retryable = True


class ConnectionFailed(NetError):
    """No connection could be made, or it broke before the answer was whole."""

    default_code = "net.connection"
    retryable = True


class TLSError(NetError):
    """No trustworthy TLS session: certificate, host name or version."""

    default_code = "net.tls"


class DeadlineExceeded(NetError):
    """The time allowed for the whole call is over."""

    default_code = "net.timeout"
    exit_code = 8
    http_status = 504


class RedirectRefused(NetError):
    """The server answered with a redirect. None is followed; the key went nowhere else."""

    default_code = "net.redirect"


class ResponseTooLarge(NetError):
    """Header, body or decompressed body beyond its cap."""

    default_code = "net.too-large"


class ProtocolError(NetError):
    """What came back is not HTTP, or its content encoding is broken."""

    default_code = "net.protocol"


class UnsupportedError(OnymError):
    """The provider, its dialect or the model cannot do what was asked, known before anything is sent.

    `parameter` is what was asked for, `source` is where the rule comes from.
    """

    default_code = "llm.unsupported"
    exit_code = 9
    http_status = 501
    fields = ("parameter", "model", "source")

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        parameter: str | None = None,
        model: str | None = None,
        source: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.parameter = parameter
        self.model = model
        self.source = source


class ProviderError(_EndpointError):
    """The server answered, and the answer is a failure.

    `status` is the HTTP status, `provider_code` the body's typed code, `request_id` the server's own
    name for the exchange, `retry_after` seconds to wait where the server says, `usage` what was
    counted before a stream broke.
    """

    default_code = "provider.error"
    exit_code = 7
    http_status = 502
    fields = ("endpoint", "status", "provider_code", "request_id", "parameter", "retry_after")
    #: may a call that failed so be tried again?
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        endpoint: str | None = None,
        status: int | None = None,
        provider_code: str | None = None,
        request_id: str | None = None,
        parameter: str | None = None,
        retry_after: float | None = None,
        usage: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, endpoint=endpoint, hint=hint)
        self.status = status
        self.provider_code = provider_code
        self.request_id = request_id
        self.parameter = parameter
        self.retry_after = retry_after
        self.usage = usage


class AuthenticationError(ProviderError):
    """The key is missing, wrong or expired (401)."""

    default_code = "provider.authentication"


class PermissionDeniedError(ProviderError):
    """The key is right and may not do this (403)."""

    default_code = "provider.permission"


class NotFoundError(ProviderError):
    """No such model or route (404)."""

    default_code = "provider.not-found"


class RateLimitError(ProviderError):
    """Too many requests or tokens (429); `retry_after` in seconds where the server says."""

    default_code = "provider.rate-limit"
    retryable = True


class QuotaError(ProviderError):
    """No credit or quota left; waiting does not help (402, or 429 with a typed code)."""

    default_code = "provider.quota"


class ContextLengthError(ProviderError):
    """Prompt and completion do not fit the model's context."""

    default_code = "provider.context-length"


class BadRequestError(ProviderError):
    """The server refused the request (400, 413, 422); `parameter` where it names one."""

    default_code = "provider.bad-request"


class ContentFilterError(ProviderError):
    """Prompt or completion was filtered."""

    default_code = "provider.content-filter"


class OverloadedError(ProviderError):
    """The provider is busy or down (503, 529, 408, 409); `retry_after` in seconds where it says."""

    default_code = "provider.overloaded"
    retryable = True


class ServerError(ProviderError):
    """Any other failure on the server's side (5xx)."""

    default_code = "provider.server"
    retryable = True


class MalformedResponseError(ProviderError):
    """The status says success and the body is not what the dialect promises."""

    default_code = "provider.malformed"


class _CommandHelpsError(OnymError):
    """There is a command that puts it right, as far as one is known."""

    fields = ("command",)

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        command: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.command = command


class MissingExtraError(_CommandHelpsError):
    """An optional dependency is not installed; `command` installs it."""

    default_code = "onym.missing-extra"
    exit_code = 10
    http_status = 501


class SignatureError(OnymError):
    """A signature or a token that does not hold: wrong key, algorithm, time, audience or octets."""

    default_code = "sign.bad-signature"
    exit_code = 12
    http_status = 403


class AIIPError(OnymError):
    """What AIIP refuses. `code` is "aiip." and a code of the binding ("aiip.discovery-conflict").

    `target` is the canonical ai URI without its query, `clause` the rule, `status` the HTTP status that the
    answer had, where there was one. `retryable` says whether the same call may do better later.
    """

    default_code = "aiip.error"
    exit_code = 13
    http_status = 502
    fields: ClassVar[tuple[str, ...]] = ("target", "clause", "status")
    #: what WWW-Authenticate says of it (RFC 9110 11.6.1), for whom a token is missing or too weak
    challenge: str | None = None
    #: who was refused, once that is known; for the endpoint that makes out a receipt to it
    caller: object = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        target: str | None = None,
        clause: str | None = None,
        status: int | None = None,
        retryable: bool = False,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.target = target
        self.clause = clause
        self.status = status
        self.retryable = retryable

    def __str__(self) -> str:
        at = "" if self.target is None else f" [{self.target}]"
        return f"{self.message}{at}" + (f" ({self.hint})" if self.hint else "")


class DiscoveryError(AIIPError):
    """No trustworthy way to the authority: unknown, sources in conflict, weaker than pinned, unconfirmed."""

    default_code = "aiip.unknown-authority"


class ProvenanceError(AIIPError):
    """A result whose receipt is missing, wrong or stale. Nothing of the result was released."""

    default_code = "aiip.provenance-invalid"
    exit_code = 12


class DeniedError(AIIPError):
    """Policy, scopes or effects do not allow it; nothing was done."""

    default_code = "aiip.policy-denied"
    exit_code = 5
    http_status = 403


class InvocationError(AIIPError):
    """The endpoint answered with a problem (RFC 9457); `problem` is its document, `status` its status."""

    default_code = "aiip.invocation-failed"
    fields = ("target", "clause", "status", "problem")
    #: the problem document; signed, unless the endpoint refused before it knew the caller
    problem: dict[str, Any] | None = None


class RegistryError(OnymError):
    """What the registry refuses.

    `field` names the template field, column, rule of a grammar or argument; `clause` the rule of the
    standard ("RFC 7595 7.2 step 1"). Classes below add `rule`, `line` and `column` (from 1), or `version`.
    """

    default_code = "registry.refused"
    exit_code = 11
    http_status = 422
    fields: ClassVar[tuple[str, ...]] = ("field", "clause")

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        clause: str | None = None,
        rule: str | None = None,
        line: int | None = None,
        column: int | None = None,
        version: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.field = field
        self.clause = clause
        self.rule = rule
        self.line = line
        self.column = column
        self.version = version

    def __str__(self) -> str:
        where = "" if self.line is None else f" at line {self.line}"
        where += "" if self.column is None else f", column {self.column}"
        rule = "" if self.clause is None else f" [{self.clause}]"
        return f"{self.message}{where}{rule}" + (f" ({self.hint})" if self.hint else "")


class RefusalError(RegistryError):
    """The procedure does not allow this step in this state, or not by this actor; `rule` is the row."""

    default_code = "registry.not-allowed"
    http_status = 409
    fields = ("field", "clause", "rule")


class TemplateError(RegistryError):
    """No registration template can be read there."""

    default_code = "registry.no-template"
    fields = ("field", "clause", "line", "column")


class GrammarError(RegistryError):
    """Text that is not ABNF (RFC 5234, RFC 7405), or a grammar beyond its caps; `field` is the ABNF rule."""

    default_code = "abnf.syntax"
    fields = ("field", "clause", "line", "column")


class SnapshotError(RegistryError):
    """A registry file that cannot be imported: not of its format, hostile, or beyond its caps."""

    default_code = "registry.bad-snapshot"
    fields = ("field", "clause", "line", "column")


class StaleError(RegistryError):
    """What is to be changed has changed since it was read; `version` is the one in force."""

    default_code = "registry.stale"
    http_status = 412
    fields = ("field", "clause", "version")


class UnknownEntryError(RegistryError):
    """No such registry, entry, request, account or token; `field` says which kind."""

    default_code = "registry.unknown"
    http_status = 404


class AccessError(RegistryError):
    """Not signed in, not in the role that this needs, or a token that is expired or lacks the scope."""

    default_code = "registry.no-access"
    http_status = 403


class StoreError(RegistryError):
    """The database cannot be used, has another schema, or its log does not hold together."""

    default_code = "registry.store"
    http_status = 503


class EmbeddedError(_CommandHelpsError):
    """The model on this machine could not be started or stopped answering."""

    default_code = "embedded.failed"
    exit_code = 10


class MissingWeightsError(EmbeddedError):
    """The weights are not on this machine; `command` fetches them."""

    default_code = "embedded.missing-weights"


class WeightsError(EmbeddedError):
    """Weights could not be fetched, or have the wrong hash; nothing was kept."""

    default_code = "embedded.bad-weights"


class OnymWarning(UserWarning):
    """Something of the request was dropped, withheld or is not what it seems; the call goes on."""
