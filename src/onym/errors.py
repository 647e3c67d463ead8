"""Every exception that Onym raises. No other module defines one.

Each instance carries a stable `code` ("uri.bad-percent-encoding"), a message that never contains a credential
or the offending value, and a `hint` that says what to do. docs/reference/errors.md shows the tree of classes.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

_Error = TypeVar("_Error", bound=BaseException)


def strip_frames(error: _Error) -> _Error:
    """Return the error without its frames and its context: their variables may contain a secret.

    Tools that report errors send the variables of every frame.
    """
    error.__context__ = None
    return error.with_traceback(None)


class OnymError(Exception):
    """Base of every error that Onym raises on purpose.

    `code` is stable across releases; `message` is for people and may change; `hint`, if there is one, says
    what to do next. `as_dict()` is what `--json` prints.
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
    """An argument of the Python API or of the command line cannot be used."""

    default_code = "usage.bad-argument"
    exit_code = 2
    http_status = 400


class SecretError(OnymError):
    """A secret was about to be pickled, copied into data or sent in the clear."""

    default_code = "secret.refused"


class ConformanceError(OnymError):
    """A conformance question cannot be read."""

    default_code = "conformance.bad-question"
    exit_code = 2
    http_status = 400


class ConfigError(OnymError):
    """The configuration file, a named endpoint or a profile is missing or wrong."""

    default_code = "config.invalid"
    exit_code = 4


class CredentialError(OnymError):
    """A key is missing, unreadable, or bound to another host. The message never contains the key."""

    default_code = "credential.missing"
    exit_code = 4


class URIError(OnymError):
    """A text is not a valid URI, or not one of the expected kind.

    `component` is one of scheme, userinfo, host, port, path, query, fragment; `offset` counts characters from
    the start of the text; `clause` names the rule ("RFC 3986 3.2.2").
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
        place = "" if self.offset is None else f" at offset {self.offset}"
        rule = "" if self.clause is None else f" [{self.clause}]"
        return f"{self.message}{place}{rule}" + (f" ({self.hint})" if self.hint else "")


class URISyntaxError(URIError):
    """RFC 3986 (for an IRI RFC 3987) does not allow this text."""

    default_code = "uri.syntax"


class URILimitError(URIError):
    """The text is longer, or nests deeper, than the limit in force."""

    default_code = "uri.too-long"


class LLMURIError(URIError):
    """RFC 3986 allows the URI, the llm scheme does not (draft-levy-llm-uri-scheme-00)."""

    default_code = "llm.invalid"


class ParameterError(LLMURIError):
    """One query parameter is invalid; `parameter` names it."""

    default_code = "llm.bad-parameter"


class AIURIError(URIError):
    """RFC 3986 allows the URI, the ai scheme does not (draft-sogomonian-ai-uri-scheme-01)."""

    default_code = "ai.invalid"


class _EndpointError(OnymError):
    """A failure at one endpoint; `endpoint` is its redacted form.

    `partial` is the Completion that a stream had received before it broke, None elsewhere.
    """

    fields: ClassVar[tuple[str, ...]] = ("endpoint",)
    partial: object = None

    def __init__(
        self, message: str, *, code: str | None = None, endpoint: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.endpoint = endpoint

    def __str__(self) -> str:
        at = "" if self.endpoint is None else f" [{self.endpoint}]"
        return f"{self.message}{at}" + (f" ({self.hint})" if self.hint else "")


class NetError(_EndpointError):
    """No usable answer came from the network. `sent` says whether any byte of the request may have left."""

    default_code = "net.error"
    exit_code = 6
    http_status = 502
    #: whether a call that failed with this error may be retried
    retryable: ClassVar[bool] = False
    #: true unless the error is known to come from before the first byte
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


class ProxyError(NetError):
    """The proxy does not allow the connection, requires a login, or is not a proxy. Nothing was sent."""

    default_code = "net.proxy"


class ResolveError(NetError):
    """The name has no usable address."""

    default_code = "net.resolve"
    retryable = True


class ConnectionFailed(NetError):
    """No connection could be made, or it broke before the answer was complete."""

    default_code = "net.connection"
    retryable = True


class TLSError(NetError):
    """No trustworthy TLS session could be opened: the certificate, host name or version is wrong."""

    default_code = "net.tls"


class DeadlineExceeded(NetError):
    """The call timed out."""

    default_code = "net.timeout"
    exit_code = 8
    http_status = 504


class RedirectRefused(NetError):
    """The server answered with a redirect. Onym follows none, so the key was sent nowhere else."""

    default_code = "net.redirect"


class ResponseTooLarge(NetError):
    """The header, the body or the decompressed body is larger than its limit."""

    default_code = "net.too-large"


class ProtocolError(NetError):
    """The answer is not HTTP, or its content encoding is broken."""

    default_code = "net.protocol"


class UnsupportedError(OnymError):
    """The provider, its API format or the model does not support the request; nothing was sent.

    `parameter` is the part that is not supported, `source` is where the rule comes from.
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
    """The server answered with a failure.

    `status` is the HTTP status, `provider_code` the body's typed code, `request_id` the server's name for the
    exchange, `retry_after` the seconds to wait if the server gives them, `usage` the usage before a stream
    broke. `other_uri` is the URI, without its key, that chooses another API format, if the server probably
    has that one. `headers` are the `onym.net.Headers` of the response, None if they are not known.
    """

    default_code = "provider.error"
    exit_code = 7
    http_status = 502
    fields = (
        "endpoint", "status", "provider_code", "request_id", "parameter", "retry_after", "other_uri",
    )  # fmt: skip
    other_uri: str | None = None
    #: whether a call that failed with this error may be retried; the server may decide otherwise
    retryable: bool = False
    headers: Any = None

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
    """The key is valid but may not do this (403)."""

    default_code = "provider.permission"


class NotFoundError(ProviderError):
    """The server has no such model or route (404)."""

    default_code = "provider.not-found"


class RateLimitError(ProviderError):
    """Too many requests or tokens (429); `retry_after` in seconds if the server gives it."""

    default_code = "provider.rate-limit"
    retryable = True


class QuotaError(ProviderError):
    """No credit or quota is left; waiting does not help (402, or 429 with a typed code)."""

    default_code = "provider.quota"


class ContextLengthError(ProviderError):
    """Prompt and completion do not fit the model's context."""

    default_code = "provider.context-length"


class BadRequestError(ProviderError):
    """The server refused the request (400, 413, 422); `parameter` if it names one."""

    default_code = "provider.bad-request"


class ContentFilterError(ProviderError):
    """Prompt or completion was filtered."""

    default_code = "provider.content-filter"


class OverloadedError(ProviderError):
    """The provider is busy or down (503, 529, 408, 409); `retry_after` in seconds if it gives it."""

    default_code = "provider.overloaded"
    retryable = True


class ServerError(ProviderError):
    """Any other failure on the server's side (5xx)."""

    default_code = "provider.server"
    retryable = True


class MalformedResponseError(ProviderError):
    """The status is a success, but the body is not in the API's format."""

    default_code = "provider.malformed"


class _CommandHelpsError(OnymError):
    """An error that `command` fixes, if a command for it is known."""

    fields = ("command",)

    def __init__(
        self, message: str, *, code: str | None = None, command: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.command = command


class MissingExtraError(_CommandHelpsError):
    """An optional dependency is not installed; `command` installs it."""

    default_code = "onym.missing-extra"
    exit_code = 10
    http_status = 501


class SignatureError(OnymError):
    """A signature or a token is invalid: wrong key, algorithm, time, audience or bytes."""

    default_code = "sign.bad-signature"
    exit_code = 12
    http_status = 403


class AIIPError(OnymError):
    """An ai:// name, endpoint or gateway refused the request. `code` is "aiip." and a code of the binding.

    `target` is the canonical ai URI without its query, `clause` the rule, `status` the HTTP status of the
    answer, if there was one. `retryable` says whether the same call may succeed later.
    """

    default_code = "aiip.error"
    exit_code = 13
    http_status = 502
    fields: ClassVar[tuple[str, ...]] = ("target", "clause", "status")
    #: the values of WWW-Authenticate (RFC 9110 11.6.1) if a token is missing or too weak
    challenge: str | tuple[str, ...] | None = None
    #: the value of DPoP-Nonce, which the next proof must have (RFC 9449 8)
    dpop_nonce: str | None = None
    #: why the caller did not prove its token's key, or "nonce" if only a new nonce is asked for; for metrics
    refused_proof: str | None = None
    #: what must be approved before the request is sent again, as a signed challenge (AIIP/HTTPS v1 3.13)
    transaction_challenge: str | None = None
    #: the page of a gateway on which a person can do what is missing
    page_url: str | None = None
    #: the refused caller, once it is known, so that the endpoint can sign a receipt for it
    caller: object = None
    #: seconds after which the same request may succeed, for Retry-After
    retry_after: int | None = None

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
    """The authority is unknown, unconfirmed or weaker than pinned, or its sources contradict each other."""

    default_code = "aiip.unknown-authority"


class ProvenanceError(AIIPError):
    """The receipt of a result is missing, wrong or stale. No part of the result was released."""

    default_code = "aiip.provenance-invalid"
    exit_code = 12


class DeniedError(AIIPError):
    """The policy, scopes or effects do not allow the request; it was not executed."""

    default_code = "aiip.policy-denied"
    exit_code = 5
    http_status = 403


class AuthorizationError(AIIPError):
    """No token can be had: the authorization server is unknown, refused, or its answer cannot be used.

    `oauth_error` is the `error` of its response (RFC 6749 5.2), None if there was none.
    """

    default_code = "aiip.authorization-unavailable"
    http_status = 403
    fields: ClassVar[tuple[str, ...]] = ("target", "clause", "status", "oauth_error")
    oauth_error: str | None = None


class ConnectionRequired(AuthorizationError):
    """A person must sign in at the authority's own server, `issuer`, first."""

    default_code = "aiip.connection-required"
    fields: ClassVar[tuple[str, ...]] = (*AuthorizationError.fields, "issuer")
    issuer: str | None = None


class ApprovalRequired(DeniedError):
    """People must approve the request before it is sent again; it was not executed.

    `transaction_challenge` is what they must approve, signed by the endpoint. The approval is for the same
    request with the same `idempotency_key`.
    """

    default_code = "aiip.approval-required"
    exit_code = 14
    fields = ("target", "clause", "status", "idempotency_key")
    transaction_challenge: str | None = None
    idempotency_key: str | None = None


class InvocationError(AIIPError):
    """The endpoint answered with a problem (RFC 9457); `problem` is its document, `status` its status."""

    default_code = "aiip.invocation-failed"
    fields = ("target", "clause", "status", "problem")
    #: the problem document; signed, unless the endpoint refused before it knew the caller
    problem: dict[str, Any] | None = None


class TaskCancelled(AIIPError):
    """The caller has cancelled the long task. A function that raises it ends as `canceled`."""

    default_code = "aiip.task-canceled"
    http_status = 410

    def __init__(self, message: str = "the caller has cancelled the task", **fields: Any) -> None:
        super().__init__(message, **fields)


class TaskRunning(AIIPError):
    """The endpoint runs the request as a long task, and the result is not there yet.

    `task` is the ID of the task, with which you can get the result later.
    """

    default_code = "aiip.task-running"
    exit_code = 15
    fields = ("target", "clause", "status", "task")
    task: str | None = None


class RegistryError(OnymError):
    """The registry refused a request.

    `field` names the template field, column, grammar rule or argument, `clause` the rule of the standard
    ("RFC 7595 7.2 step 1"). Subclasses add `rule`, `line` and `column` (from 1), or `version`.
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
        place = "" if self.line is None else f" at line {self.line}"
        place += "" if self.column is None else f", column {self.column}"
        rule = "" if self.clause is None else f" [{self.clause}]"
        return f"{self.message}{place}{rule}" + (f" ({self.hint})" if self.hint else "")


class RefusalError(RegistryError):
    """The procedure does not allow this step in this state, or not by this actor; `rule` is the row."""

    default_code = "registry.not-allowed"
    http_status = 409
    fields = ("field", "clause", "rule")


class TemplateError(RegistryError):
    """The text has no readable registration template."""

    default_code = "registry.no-template"
    fields = ("field", "clause", "line", "column")


class GrammarError(RegistryError):
    """A text is not ABNF (RFC 5234, RFC 7405), or exceeds a limit; `field` is the ABNF rule."""

    default_code = "abnf.syntax"
    fields = ("field", "clause", "line", "column")


class SnapshotError(RegistryError):
    """A registry file cannot be imported: it has another format, is hostile, or exceeds a limit."""

    default_code = "registry.bad-snapshot"
    fields = ("field", "clause", "line", "column")


class StaleError(RegistryError):
    """The entry has changed since it was read; `version` is the current one."""

    default_code = "registry.stale"
    http_status = 412
    fields = ("field", "clause", "version")


class UnknownEntryError(RegistryError):
    """The registry, entry, request, account or token does not exist; `field` names its kind."""

    default_code = "registry.unknown"
    http_status = 404


class AccessError(RegistryError):
    """The caller is not signed in or lacks the role, or its token has expired or lacks the scope."""

    default_code = "registry.no-access"
    http_status = 403


class StoreError(RegistryError):
    """The database cannot be used, has another schema, or its log is inconsistent."""

    default_code = "registry.store"
    http_status = 503


class EmbeddedError(_CommandHelpsError):
    """The embedded model could not be started, or stopped answering."""

    default_code = "embedded.failed"
    exit_code = 10


class MissingWeightsError(EmbeddedError):
    """The weights of the embedded model are missing; `command` downloads them."""

    default_code = "embedded.missing-weights"


class WeightsError(EmbeddedError):
    """Weights could not be downloaded, or have the wrong hash; no file was kept."""

    default_code = "embedded.bad-weights"


class OnymWarning(UserWarning):
    """A part of the request was dropped or withheld, or is not what it seems; the call continues."""
