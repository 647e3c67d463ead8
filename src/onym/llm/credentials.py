"""Find the credential for a URI.

Order: userinfo, the `auth=` reference, the provider's conventional variable. Onym sends a conventional
variable only to that provider's exact hosts: never to another host, port, alias override or IP address.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from onym.errors import CredentialError, PolicyError, UnsupportedError, URIError, strip_frames
from onym.net.hosts import is_loopback
from onym.uri.generic import URI
from onym.uri.redact import redact
from onym.uri.secret import Secret, SecretBytes

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from onym.llm.providers import Provider
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI


class _HiddenEnvironment:
    """Variables by name. The `repr` contains none of them.

    It is not a subclass of `Mapping`: tools that print the locals of a frame print the members of a mapping.
    """

    # a method of a tuple: tools that walk slots find nothing to print
    __slots__ = ("_get_item",)

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._get_item = (variables,).__getitem__

    def __getitem__(self, name: str) -> str:
        return self._get_item(0)[name]

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of this name, or `default`."""
        return self._get_item(0).get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._get_item(0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._get_item(0))

    def __len__(self) -> int:
        return len(self._get_item(0))

    def keys(self) -> Iterator[str]:
        """Return the names. `dict` needs this method."""
        return iter(self._get_item(0))

    def __repr__(self) -> str:
        return "the environment"


def hide_environment(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the variables, `os.environ` by default, as a value whose `repr` contains none of them."""
    variables: object = os.environ if environ is None else environ
    if not isinstance(variables, _HiddenEnvironment):
        variables = _HiddenEnvironment(cast("Mapping[str, str]", variables))
    return cast("Mapping[str, str]", variables)


#: the entry point group for more kinds of reference: functions from the text after `kind:` to the key
GROUP: Final = "onym.credentials"

_LONGEST_FILE: Final = 64 * 1024
_PROCESS_KEY: Final = os.urandom(32)
#: what to do without a credential, by a provider entry's `chain`
_CHAIN_HINTS: Final[Mapping[str, str]] = {
    "aws": "set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or say ?auth=aws:PROFILE",
    "google": "run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS, "
    "or say ?auth=google:PATH",
}
#: the public half of an AWS key pair
_ACCESS_ID: Final = re.compile(r"A[KS]IA[A-Z0-9]{12,124}")
_HEADER_TEXT: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A key, and its source: "userinfo", "argument" (of the program), "env:NAME", "file:PATH"…

    `access_id` and `session` belong to a secret that signs requests and is never sent itself. `expires` is in
    seconds since 1970, and `renew` returns the next credential. `headers` are sent with the key.
    """

    secret: Secret
    source: str
    access_id: str | None = None
    session: Secret | None = None
    expires: float | None = None
    renew: Callable[[], Credential] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """An opaque ID of this key, which differs in every process."""
        digest = hashlib.blake2b(key=_PROCESS_KEY, digest_size=16)
        digest.update(f"{self.access_id}\0".encode())
        digest.update(self.secret.reveal().encode())
        return digest.hexdigest()


def resolve_credential(
    uri: LLMURI,
    provider: Provider,
    policy: Policy,
    environ: Mapping[str, str] | None = None,
    *,
    key: Secret | None = None,
) -> Credential | None:
    """Return the credential for this URI, None if the provider needs none and there is none.

    `key` takes precedence over everything that the URI names; `environ` defaults to `os.environ`. Raises
    CredentialError if the key is missing, unreadable or cannot be the value of a header, PolicyError if the
    policy does not allow the URI's `auth=`.
    """
    environ = hide_environment(environ)
    try:
        found = _find_credential(uri, provider, policy, environ, key)
    except (CredentialError, PolicyError, KeyboardInterrupt) as error:
        # no frame, and no cause that quotes what was read, stays with the error
        raise strip_frames(error) from None
    if found is not None and _HEADER_TEXT.fullmatch(found.secret.reveal()) is None:
        raise CredentialError(
            f"the key from {redact(found.source)} contains a character that is not allowed in a header",
            code="credential.bad-key",
            hint="Keys are printable ASCII without spaces. Check for a quotation mark or a line end.",
        )
    return found


def _find_credential(
    uri: LLMURI, provider: Provider, policy: Policy, environ: Mapping[str, str], key: Secret | None
) -> Credential | None:
    source = "userinfo" if key is None else "argument"
    key = uri.key if key is None else key
    if key is not None:
        # for every host: the secret half of a pair is never sent, not even to AWS
        signs = _ACCESS_ID.fullmatch(uri.label or "") is not None
        return Credential(secret=key, source=source, access_id=uri.label if signs else None)
    if uri.auth is not None:
        return _load_referenced(uri, policy, environ)
    return _find_conventional(uri, provider, policy, environ)


def _load_referenced(uri: LLMURI, policy: Policy, environ: Mapping[str, str]) -> Credential:
    if not policy.environment_credentials:
        raise PolicyError(
            "the policy does not allow this URI to refer to a credential",
            reason="auth",
            endpoint=uri.without_params("auth").render(),
            hint="auth= is allowed only in trusted URIs.",
        )
    reference = uri.auth or ""
    kind, _, rest = reference.partition(":")
    if kind in _CHAIN_HINTS:
        return _find_in_chain(kind, environ, rest) or _raise_empty(reference)
    read = _REFERENCE_READERS.get(kind)
    text = _load_from_plugin(kind, rest) if read is None else read(rest, environ)
    if not text:
        raise CredentialError(f"auth={redact(reference)} refers to an empty key", code="credential.empty")
    return Credential(secret=Secret(text), source=reference)


def get_variable(environ: Mapping[str, str], name: str) -> str:
    """Return a variable without white space around it, "" if it is not set."""
    return environ.get(name, "").strip()


def _read_variable(name: str, environ: Mapping[str, str]) -> str:
    text = get_variable(environ, name)
    if not text:
        shown = redact(name)
        raise CredentialError(
            f"the variable {shown}, which auth= names, is not set", hint=f"export {shown}=… and try again"
        )
    return text


def _read_key_file(name: str, environ: Mapping[str, str]) -> str:
    def make_error(reason: str) -> CredentialError:
        return CredentialError(
            f"the file {redact(name)}, which auth= names, {reason}",
            code="credential.unreadable",
            hint="Write the key into this file, on one line, or name another file.",
        )

    try:
        return read_credential_file(Path(name), make_error).decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise make_error("is not UTF-8 text") from None


def read_credential_file(path: Path, make_error: Callable[[str], CredentialError]) -> bytes:
    """Return the content of a file of at most 64 KiB. A pipe or a device is not read: it may never end."""
    from onym.common.files import read_file  # 3 ms that only a file needs

    try:
        return read_file(path.expanduser(), _LONGEST_FILE)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise make_error(f"cannot be read: {reason}") from None


def _read_keyring(name: str, environ: Mapping[str, str]) -> str:
    import keyring

    service, _, user = name.partition("/")
    try:
        text = keyring.get_password(service, user)
    except Exception as error:  # noqa: BLE001 - every backend has other errors
        raise CredentialError(
            f"the keyring does not answer ({type(error).__name__})",
            code="credential.keyring",
            hint="Use auth=env:NAME or auth=file:PATH if no keyring runs.",
        ) from None
    if text is None:
        raise CredentialError(
            f"the keyring has no key for {redact(name)}",
            hint=f"Run: keyring set {redact(service)} {redact(user)}",
        )
    return text


_REFERENCE_READERS: Final[Mapping[str, Callable[[str, Mapping[str, str]], str]]] = {
    "env": _read_variable,
    "file": _read_key_file,
    "keyring": _read_keyring,
}


def _find_in_chain(name: str, environ: Mapping[str, str], reference: str) -> Credential | None:
    """Return the credential of a vendor's variables, files or metadata, which its library reads."""
    find = {"aws": find_aws, "google": find_google}[name]
    return find(environ, reference)


def _raise_empty(reference: str) -> NoReturn:
    raise CredentialError(f"auth={redact(reference)} refers to no credential", code="credential.empty")


def _load_from_plugin(kind: str, rest: str) -> str:
    """Return the key from a credential store that another distribution adds."""
    points = {point.name: point for point in _list_plugins()}
    if kind not in points and kind == "vault":
        raise CredentialError(
            "auth=vault: needs a distribution that reads vaults, and none is installed",
            code="credential.needs-extra",
            hint=f"Install one with the entry point {kind} in the group {GROUP}, or use auth=env:NAME.",
        )
    if kind not in points:
        known = ", ".join(sorted({*_REFERENCE_READERS, *_CHAIN_HINTS, *points}))
        raise CredentialError(
            f"auth= names a kind of credential store that is not installed: {kind}",
            code="credential.unknown-kind",
            hint=f"known are {known}; distributions add others with the entry point group {GROUP}",
        )
    try:
        value = points[kind].load()(rest)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything, its message may hold the key
        raise CredentialError(
            f"the credential store {kind} failed ({type(error).__name__})", code="credential.plugin"
        ) from None
    return value.reveal() if isinstance(value, Secret) else str(value)


def _list_plugins() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _find_conventional(
    uri: LLMURI, provider: Provider, policy: Policy, environ: Mapping[str, str]
) -> Credential | None:
    bound = _is_bound(uri, provider, environ)
    if bound and policy.environment_credentials:
        for name in provider.key_variables:
            text = get_variable(environ, name)
            if text:
                return Credential(secret=Secret(text), source=f"env:{name}")
        if provider.chain is not None:
            found = _find_in_chain(provider.chain, environ, "")
            if found is not None:
                return found
    if not provider.needs_key:
        return None
    if not policy.environment_credentials:
        raise CredentialError(
            f"{provider.title} needs a key, and the policy does not allow keys of this computer for this URI",
            hint="Pass key= in the program.",
        )
    if bound and provider.chain is not None:
        raise CredentialError(f"no credential for {uri.host}", hint=_CHAIN_HINTS[provider.chain])
    if bound and provider.key_variables:
        names = " or ".join(provider.key_variables)
        raise CredentialError(
            f"no key for {uri.host}: {names} is not set",
            hint=f"export {provider.key_variables[0]}=… or point at a key with ?auth=file:PATH",
        )
    named = "".join(f"export {name}=https://{uri.host}, or " for name in provider.endpoint_variables)
    reason = (
        f"sends variables of {provider.title} only to the provider's hosts"
        if provider.key_variables
        else f"knows no variable for a key of {provider.title}"
    )
    raise CredentialError(
        f"no key for {uri.host}: Onym {reason}",
        code="credential.not-bound",
        hint=f"{named}name the key for this host with ?auth=env:NAME or --key-stdin",
    )


def _is_bound(uri: LLMURI, provider: Provider, environ: Mapping[str, str]) -> bool:
    """Whether the provider's variables are meant for this URI's host and port."""
    if provider.serves_exactly(uri.host, uri.port):
        return True
    words = (provider.name, *provider.aliases)
    if uri.port is None and provider.hosts and uri.host in words:
        return True  # the alias means the first host at its default port
    return any(_is_named_endpoint(environ.get(name), uri, provider) for name in provider.endpoint_variables)


def _is_named_endpoint(endpoint: str | None, uri: LLMURI, provider: Provider) -> bool:
    """Whether a variable such as `AZURE_OPENAI_ENDPOINT` contains this host."""
    if not endpoint:
        return False
    try:
        named = URI.parse(endpoint.strip(), rule="URI").normalize()
    except URIError:
        return False
    port = int(named.port or 443)
    return named.scheme == "https" and named.host == uri.host and port == (uri.port or 443)


_DEFAULT: Final = "default"

_REGION: Final = re.compile(
    r"(?:.+\.)?bedrock(?:-runtime)?(?:-fips)?\.([a-z]{2,}(?:-[a-z]+)+-[0-9]{1,2})"
    r"\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.(?:aws|amazonwebservices\.com\.cn))"
)
#: the headers of a request that the signature covers, as in botocore's own clients
_SIGNED: Final = ("content-type", "x-amz-")
#: the headers that signing replaces
_REPLACED: Final = frozenset({"authorization", "x-amz-date", "x-amz-security-token"})
#: set in containers and pods that have a role
_ROLES: Final = (
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)
#: the files in which botocore looks for profiles, and their variables
_FILES: Final = {"credentials_file": "AWS_SHARED_CREDENTIALS_FILE", "config_file": "AWS_CONFIG_FILE"}


def find_aws(environ: Mapping[str, str], reference: str = "") -> Credential | None:
    """Return the AWS credential of `auth=aws:PROFILE`, or of the variables of `environ`.

    `reference` is the text after `aws:`: a profile that botocore can read (keys in a file, SSO, a role, a
    process). If no profile is named `default`, that name means botocore's own chain, which includes the
    machine's role. "" reads only the variables: a pair of keys, AWS_PROFILE, a container's or pod's role.
    Without any of them the result is None, and no service is asked for a role.

    Raises CredentialError if half of a pair is set, a profile is unknown or unreadable, or the extra
    `bedrock` is not installed.
    """
    if reference:
        return _load_profile(reference, environ)
    access, secret = (get_variable(environ, f"AWS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
    if access and secret:
        token = get_variable(environ, "AWS_SESSION_TOKEN")
        return Credential(
            secret=Secret(secret),
            source="env:AWS_SECRET_ACCESS_KEY",
            access_id=access,
            session=Secret(token) if token else None,
        )
    if access or secret:
        missing = "AWS_SECRET_ACCESS_KEY" if access else "AWS_ACCESS_KEY_ID"
        raise CredentialError(
            f"the AWS key pair is incomplete: {missing} is not set", hint=f"export {missing}=…"
        )
    profile = get_variable(environ, "AWS_PROFILE")
    if not profile and any(get_variable(environ, name) for name in _ROLES):
        profile = _DEFAULT
    return _load_profile(profile, environ) if profile else None


def sign_request(
    *,
    method: str,
    url: str,
    headers: Sequence[tuple[str, str | Secret]],
    body: bytes | SecretBytes,
    credential: Credential,
    region: str,
    service: str = "bedrock",
    now: float | None = None,
) -> tuple[tuple[str, str | Secret], ...]:
    """Return `headers` with Authorization, X-Amz-Date and X-Amz-Security-Token.

    `url` is signed as it is sent, with its path percent-encoded once more, as every AWS service except S3
    expects. `now` is seconds since 1970, by default the current time. Raises CredentialError if the
    credential has no access key ID or the extra `bedrock` is not installed.
    """
    if credential.access_id is None:
        raise CredentialError(
            f"the key from {redact(credential.source)} cannot sign: it has no access key ID",
            code="credential.bad-key",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile by ?auth=aws:PROFILE",
        )
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    session = () if credential.session is None else (("X-Amz-Security-Token", credential.session),)
    unchanged = tuple(pair for pair in headers if pair[0].lower() not in _REPLACED)
    covered = [pair for pair in unchanged if pair[0].lower().startswith(_SIGNED)]
    added = (("X-Amz-Date", moment), *session)
    fields = (*covered, *added)
    try:
        value = Secret(_build_authorization(method, url, fields, body, credential, region, service, moment))
    except BaseException as error:
        # botocore's frames contain the secret
        error.__traceback__ = None
        raise
    return (*unchanged, *added, ("Authorization", value))


def parse_region(host: str) -> str:
    """Return the region in the name of an AWS host: `bedrock-runtime.us-east-1.amazonaws.com`.

    FIPS, dual-stack, VPC and China endpoints have one too. Raises UnsupportedError for any other host.
    """
    match = _REGION.fullmatch(host.lower())
    if match is None:
        raise UnsupportedError(
            f"the host {host} does not contain an AWS region to sign for",
            code="credential.no-region",
            hint="Use bedrock-runtime.REGION.amazonaws.com.",
        )
    return match[1]


def _build_authorization(
    method: str,
    url: str,
    headers: Sequence[tuple[str, str | Secret]],
    body: bytes | SecretBytes,
    credential: Credential,
    region: str,
    service: str,
    moment: str,
) -> str:
    """Return the value of Authorization from botocore's signer.

    This takes the signer's steps one by one, because its `add_auth` writes the canonical request, which
    contains the session token, to the log.
    """
    auth, requests, credentials = (_import_botocore(name) for name in ("auth", "awsrequest", "credentials"))
    keys = credentials.ReadOnlyCredentials(credential.access_id, credential.secret.reveal(), None)
    signer = auth.SigV4Auth(keys, service, region)
    data = body.reveal() if isinstance(body, SecretBytes) else body
    request = requests.AWSRequest(method=method, url=url, data=data)
    request.context["timestamp"] = moment
    for name, value in headers:
        request.headers.add_header(name, value.reveal() if isinstance(value, Secret) else value)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    names = signer.signed_headers(signer.headers_to_sign(request))
    return (
        f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, "
        f"Signature={signer.signature(text, request)}"
    )


def _load_profile(profile: str, environ: Mapping[str, str]) -> Credential:
    source = f"aws:{profile}"
    session = _open_aws_session(profile, environ)
    if profile == _DEFAULT and profile not in _call_botocore(lambda: session.available_profiles, source):
        session = _open_aws_session(None, environ)
    credentials = _call_botocore(session.get_credentials, source)
    if credentials is None:
        raise CredentialError(
            f"AWS has no credential for auth={redact(source)}", hint="Run: aws configure, or aws sso login"
        )
    return _freeze_credential(credentials, source)


def _open_aws_session(profile: str | None, environ: Mapping[str, str]) -> Any:
    session = _import_botocore("session").Session(profile=profile)
    for name, variable in _FILES.items():
        path = get_variable(environ, variable)
        if path:
            session.set_config_variable(name, path)
    return session


def _freeze_credential(credentials: Any, source: str) -> Credential:
    """Return the credential as it is now; botocore renews one that is about to expire."""
    keys = _call_botocore(credentials.get_frozen_credentials, source)
    # None for keys that do not expire; botocore has no public name for it
    expiry = getattr(credentials, "_expiry_time", None)
    return Credential(
        secret=Secret(keys.secret_key),
        source=source,
        access_id=keys.access_key,
        session=Secret(keys.token) if keys.token else None,
        expires=None if expiry is None else expiry.timestamp(),
        renew=None if expiry is None else partial(_freeze_credential, credentials, source),
    )


def _call_botocore(call: Callable[[], Any], source: str) -> Any:
    return _call_library(
        call,
        f"the AWS credential of auth={redact(source)} is not available",
        code="credential.aws",
        hint="Check whether `aws sts get-caller-identity` works with this profile.",
    )


def _import_botocore(name: str) -> Any:
    return _import_extra(f"botocore.{name}", "signing requests for AWS needs botocore", "bedrock")


SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
#: what `gcloud auth application-default login` writes, below the first of these that is set
_GCLOUD_FILE: Final = "application_default_credentials.json"
_GCLOUD_FOLDERS: Final = (("CLOUDSDK_CONFIG", ""), ("APPDATA", "gcloud"), ("HOME", ".config/gcloud"))
#: Cloud Run, Cloud Functions and App Engine tell a program so where it runs
_MACHINES: Final = ("K_SERVICE", "CLOUD_RUN_JOB", "GAE_SERVICE", "GCE_METADATA_HOST")
#: the classes that read a credential file, by the type that it says it is
_READERS: Final[Mapping[str, tuple[str, str]]] = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
    "external_account": ("google.auth.identity_pool", "from_info"),
    "external_account_authorized_user": ("google.auth.external_account_authorized_user", "from_info"),
    "impersonated_service_account": (
        "google.auth.impersonated_credentials",
        "from_impersonated_service_account_info",
    ),
}
#: members of a credential file that say where secrets are sent
_ENDPOINTS: Final = ("token_uri", "token_url", "service_account_impersonation_url")


def find_google(environ: Mapping[str, str], reference: str = "") -> Credential | None:
    """Return the access token for `auth=google:PATH`, or for the variables of `environ`.

    `reference` is the text after `google:`: a credential file, such as a service account's key, or `default`
    for google-auth's own chain, which includes the machine's service account. "" reads only the variables:
    GOOGLE_APPLICATION_CREDENTIALS, the file that gcloud wrote, the service account of a program that Google
    runs. Without any of them the result is None, and no service is asked.

    Raises CredentialError if a file cannot be read or is not a credential, Google gives no token, or the
    extra `vertex` is not installed.
    """
    if reference == _DEFAULT:
        return _load_default()
    if reference:
        return _load_file(Path(reference), f"google:{reference}")
    named = get_variable(environ, _VARIABLE)
    if named:
        return _load_file(Path(named), f"env:{_VARIABLE}")
    path = _find_gcloud_file(environ)
    if path is not None:
        return _load_file(path, f"google:{path}")
    return _load_default() if any(environ.get(name) for name in _MACHINES) else None


def _find_gcloud_file(environ: Mapping[str, str]) -> Path | None:
    for variable, below in _GCLOUD_FOLDERS:
        root = get_variable(environ, variable)
        if root:
            path = Path(root) / below / _GCLOUD_FILE
            return path if path.is_file() else None
    return None


def _load_default() -> Credential:
    source = f"google:{_DEFAULT}"
    auth, session = _import_google("google.auth"), _open_google_session()
    credentials, _ = _call_google_auth(lambda: auth.default(scopes=[SCOPE], request=session), source)
    return _fetch_token(credentials, session, source)


def _load_file(path: Path, source: str) -> Credential:
    info = _read_credential_file(path, source)
    reader = _READERS.get(info.get("type", ""))
    if reader is None:
        raise _make_file_error(f"has a type that is not one of {', '.join(sorted(_READERS))}", source)
    # a credential that impersonates another contains it
    inner = info.get("source_credentials")
    for record in (info, inner if isinstance(inner, dict) else {}):
        for name in _ENDPOINTS:
            if name in record and not _is_safe_url(record[name]):
                raise _make_file_error("sends secrets to an address that is not https", source)
    module, method = reader
    read: Callable[..., Any] = getattr(_import_google(module).Credentials, method)
    session = _open_google_session()
    return _fetch_token(_call_google_auth(lambda: read(info, scopes=[SCOPE]), source), session, source)


def _read_credential_file(path: Path, source: str) -> dict[str, Any]:
    import msgspec  # late: `onym check` starts without it

    try:
        info = msgspec.json.decode(read_credential_file(path, partial(_make_file_error, source=source)))
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict) or not isinstance(info.get("type", ""), str):
        raise _make_file_error("does not contain a credential", source)
    return info


def _make_file_error(reason: str, source: str) -> CredentialError:
    return CredentialError(
        f"the credential file of Google {reason}",
        code="credential.unreadable",
        hint=f"Check {redact(source)}.",
    )


def _is_safe_url(address: object) -> bool:
    """Whether a secret may be sent to this address: with https, or to loopback."""
    try:
        url = URI.parse(address if isinstance(address, str) else "", rule="URI").normalize()
    except URIError:
        return False
    return url.scheme == "https" or (url.scheme == "http" and is_loopback(url.host or ""))


def _fetch_token(credentials: Any, session: Any, source: str) -> Credential:
    """Return a new token. `renew` fetches the next one with the same credential."""
    try:
        _call_google_auth(lambda: credentials.refresh(session), source)
    finally:
        # the next token is needed an hour later: do not keep the connection
        session.session.close()
    expiry = credentials.expiry
    return Credential(
        secret=Secret(credentials.token or ""),
        source=source,
        # google-auth's times are UTC without a time zone
        expires=None if expiry is None else expiry.replace(tzinfo=UTC).timestamp(),
        renew=partial(_fetch_token, credentials, session, source),
        # a person's login is billed to a project that it names
        headers=(("x-goog-user-project", quota),) if (quota := _get_quota_project(credentials)) else (),
    )


def _get_quota_project(credentials: Any) -> str | None:
    name = getattr(credentials, "quota_project_id", None)
    return name if isinstance(name, str) and name.isascii() and name.isprintable() and name else None


def _open_google_session() -> Any:
    """Return google-auth's session without proxy variables, .netrc and redirects."""
    transport = _import_google("google.auth.transport.requests")
    session = transport.requests.Session()
    session.trust_env, session.max_redirects = False, 0
    return transport.Request(session)


def _call_google_auth(call: Callable[[], Any], source: str) -> Any:
    return _call_library(
        call,
        f"Google gives no token for {redact(source)}",
        code="credential.google",
        hint="Check whether `gcloud auth application-default print-access-token` works.",
    )


def _import_google(name: str) -> Any:
    return _import_extra(name, "getting a token from Google needs google-auth", "vertex")


def _call_library(call: Callable[[], Any], message: str, *, code: str, hint: str) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the libraries run processes and call services: any error, any text
        reason = type(error).__name__
    # outside of the except clause, so that the cause does not stay with it
    raise CredentialError(f"{message} ({reason})", code=code, hint=hint)


def _import_extra(name: str, purpose: str, extra: str) -> Any:
    """Import a module of an optional dependency, which is slow to import."""
    try:
        return import_module(name)
    except ImportError:
        missing = CredentialError(
            f"{purpose}, which is not installed",
            code="credential.needs-extra",
            hint=f"Run: pip install 'onym[{extra}]'",
        )
    raise missing
