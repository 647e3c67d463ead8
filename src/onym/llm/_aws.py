"""AWS credentials and request signatures (Signature Version 4).

botocore, the extra `bedrock`, computes signatures and reads profiles. It is imported when it is needed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from onym.errors import CredentialError, UnsupportedError
from onym.llm.credentials import Credential
from onym.uri.redact import redact
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from types import ModuleType

_REGION: Final = re.compile(
    r"(?:.+\.)?bedrock(?:-runtime)?(?:-fips)?\.([a-z]{2,}(?:-[a-z]+)+-[0-9]{1,2})"
    r"\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.(?:aws|amazonwebservices\.com\.cn))"
)
#: of the headers that are there already, those that the signature covers, as botocore's own clients do it
_SIGNED: Final = ("content-type", "x-amz-")
#: what signing writes anew
_OURS: Final = frozenset({"authorization", "x-amz-date", "x-amz-security-token"})
#: set in containers and pods that have a role
_ROLES: Final = (
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)
_DEFAULT: Final = "default"
#: the files in which botocore looks for profiles, and their variables
_FILES: Final = {"credentials_file": "AWS_SHARED_CREDENTIALS_FILE", "config_file": "AWS_CONFIG_FILE"}


def find(environ: Mapping[str, str], reference: str = "") -> Credential | None:
    """Return the AWS credential of `auth=aws:PROFILE`, or of the variables of `environ`.

    `reference` is the text after `aws:`: any profile that botocore can read (keys in a file, SSO, a role, a
    process); `default`, where no profile has that name, is botocore's own chain, the machine's role included.
    "" asks for what the variables say alone: a pair of keys, AWS_PROFILE, a container's or pod's role.
    None comes back where they say nothing: no machine is asked for its role unless somebody names it.

    Raises CredentialError: half of a pair is set, a profile is unknown or unreadable, or the extra
    `bedrock` is not installed.
    """
    if reference:
        return _load_profile(reference, environ)
    access, secret = (
        _get_variable(environ, "AWS_ACCESS_KEY_ID"),
        _get_variable(environ, "AWS_SECRET_ACCESS_KEY"),
    )
    if access and secret:
        token = _get_variable(environ, "AWS_SESSION_TOKEN")
        return Credential(
            secret=Secret(secret),
            source="env:AWS_SECRET_ACCESS_KEY",
            access_id=access,
            session=Secret(token) if token else None,
        )
    if access or secret:
        missing = "AWS_SECRET_ACCESS_KEY" if access else "AWS_ACCESS_KEY_ID"
        raise CredentialError(
            f"half of an AWS key is there: {missing} is not set", hint=f"export {missing}=… too"
        )
    profile = _get_variable(environ, "AWS_PROFILE")
    if not profile and any(_get_variable(environ, name) for name in _ROLES):
        profile = _DEFAULT
    return _load_profile(profile, environ) if profile else None


def sign_request(
    *,
    method: str,
    url: str,
    headers: Sequence[tuple[str, str | Secret]],
    body: bytes,
    credential: Credential,
    region: str,
    service: str = "bedrock",
    now: float | None = None,
) -> tuple[tuple[str, str | Secret], ...]:
    """The headers to send instead of `headers`: those, and Authorization, X-Amz-Date, X-Amz-Security-Token.

    `url` is signed as it is sent, its path percent-encoded once more, which is what every AWS service but
    S3 expects. `now` is seconds since 1970, the clock's where it is None.
    Raises CredentialError where the credential has no access key id, or the extra `bedrock` is missing.
    """
    if credential.access_id is None:
        raise CredentialError(
            f"the key from {redact(credential.source)} cannot sign: it has no access key id",
            code="credential.bad-key",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile by ?auth=aws:PROFILE",
        )
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    session = () if credential.session is None else (("X-Amz-Security-Token", credential.session),)
    kept = tuple(pair for pair in headers if pair[0].lower() not in _OURS)
    covered = [pair for pair in kept if pair[0].lower().startswith(_SIGNED)]
    signed = (("X-Amz-Date", moment), *session)
    value = _build_authorization(method, url, (*covered, *signed), body, credential, region, service, moment)
    return (*kept, *signed, ("Authorization", Secret(value)))


def parse_region(host: str) -> str:
    """The region in the name of an AWS host: `bedrock-runtime.us-east-1.amazonaws.com`.

    FIPS, dual-stack, VPC and China endpoints have one too. Raises UnsupportedError for any other host.
    """
    found = _REGION.fullmatch(host.lower())
    if found is None:
        raise UnsupportedError(
            f"the host {host} names no AWS region to sign for",
            code="credential.no-region",
            hint="use bedrock-runtime.REGION.amazonaws.com",
        )
    return found[1]


def _build_authorization(
    method: str,
    url: str,
    headers: Sequence[tuple[str, str | Secret]],
    body: bytes,
    credential: Credential,
    region: str,
    service: str,
    moment: str,
) -> str:
    """The value of Authorization, by botocore's signer.

    Its `add_auth` would do it all, and write the canonical request, with the session token in it, to the
    log; so its steps are taken one by one.
    """
    botocore = _import_botocore("auth", "awsrequest", "credentials")
    keys = botocore.credentials.ReadOnlyCredentials(credential.access_id, credential.secret.reveal(), None)
    signer = botocore.auth.SigV4Auth(keys, service, region)
    request = botocore.awsrequest.AWSRequest(method=method, url=url, data=body)
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
    session = _open_session(profile, environ)
    if profile == _DEFAULT and profile not in _call_botocore(lambda: session.available_profiles, source):
        session = _open_session(None, environ)
    found = _call_botocore(session.get_credentials, source)
    if found is None:
        raise CredentialError(
            f"AWS has no credential for auth={redact(source)}",
            hint="aws configure, or aws sso login, makes one",
        )
    return _freeze_credential(found, source)


def _open_session(profile: str | None, environ: Mapping[str, str]) -> Any:
    session = _import_botocore("session").session.Session(profile=profile)
    for name, variable in _FILES.items():
        path = _get_variable(environ, variable)
        if path:
            session.set_config_variable(name, path)
    return session


def _freeze_credential(found: Any, source: str) -> Credential:
    """The credential as it is now; botocore asks for a new one where it has come near its end."""
    keys = _call_botocore(found.get_frozen_credentials, source)
    # None for keys that last; botocore has no public name for it
    expiry = getattr(found, "_expiry_time", None)
    return Credential(
        secret=Secret(keys.secret_key),
        source=source,
        access_id=keys.access_key,
        session=Secret(keys.token) if keys.token else None,
        expires=None if expiry is None else expiry.timestamp(),
        renew=None if expiry is None else partial(_freeze_credential, found, source),
    )


def _call_botocore(ask: Callable[[], Any], source: str) -> Any:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - profiles run processes and call services: any error, any text
        failed = CredentialError(
            f"the AWS credential of auth={redact(source)} cannot be had ({type(error).__name__})",
            code="credential.aws",
            hint="does `aws sts get-caller-identity` work with this profile?",
        )
    raise failed


def _get_variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _import_botocore(*names: str) -> ModuleType:
    """botocore with these modules of it; late, since it is an extra and slow to import."""
    from importlib import import_module

    try:
        for name in names:
            import_module(f"botocore.{name}")
        return import_module("botocore")
    except ImportError:
        missing = CredentialError(
            "to sign requests for AWS takes a distribution that is not installed",
            code="credential.needs-extra",
            hint="pip install 'onym[bedrock]'",
        )
    raise missing
