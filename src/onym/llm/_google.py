"""Google Cloud credentials: access tokens for Vertex AI.

google-auth, the extra `vertex`, reads credential files and fetches tokens. It is imported when it is
needed.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from datetime import UTC
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from onym.errors import CredentialError, URIError
from onym.llm.credentials import Credential
from onym.net.hosts import is_loopback
from onym.uri.generic import URI
from onym.uri.redact import redact
from onym.uri.secret import Secret

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"

_LONGEST_FILE: Final = 64 * 1024
_DEFAULT: Final = "default"
_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
#: what `gcloud auth application-default login` writes, below the first of these that is set
_GCLOUD_FILE: Final = "application_default_credentials.json"
_GCLOUD_PLACES: Final = (("CLOUDSDK_CONFIG", ""), ("APPDATA", "gcloud"), ("HOME", ".config/gcloud"))
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


def find(environ: Mapping[str, str], reference: str = "") -> Credential | None:
    """Return the access token for `auth=google:PATH`, or for the variables of `environ`.

    `reference` is the text after `google:`: a credential file, such as a service account's key;
    `default` is google-auth's own chain, the machine's service account included. "" asks for what the
    variables say alone: GOOGLE_APPLICATION_CREDENTIALS, the file that gcloud wrote, the service account of
    a program that Google runs. None comes back where they say nothing: no other machine is asked.

    Raises CredentialError: a file cannot be read or is no credential, Google gave no token, or the extra
    `vertex` is not installed.
    """
    if reference == _DEFAULT:
        return _load_default()
    if reference:
        return _load_file(Path(reference), f"google:{reference}")
    named = environ.get(_VARIABLE, "").strip()
    if named:
        return _load_file(Path(named), f"env:{_VARIABLE}")
    path = _find_gcloud_file(environ)
    if path is not None:
        return _load_file(path, f"google:{path}")
    return _load_default() if any(environ.get(name) for name in _MACHINES) else None


def _find_gcloud_file(environ: Mapping[str, str]) -> Path | None:
    for variable, below in _GCLOUD_PLACES:
        root = environ.get(variable, "").strip()
        if root:
            path = Path(root) / below / _GCLOUD_FILE
            return path if path.is_file() else None
    return None


def _load_default() -> Credential:
    source = f"google:{_DEFAULT}"
    auth, session = _import_google("google.auth"), _open_session()
    found, _ = _call_google_auth(lambda: auth.default(scopes=[SCOPE], request=session), source)
    return _fetch_token(found, session, source)


def _load_file(path: Path, source: str) -> Credential:
    info = _read_credential_file(path, source)
    reader = _READERS.get(info.get("type", ""))
    if reader is None:
        raise _make_unreadable_error(f"is of a type that is not one of {', '.join(sorted(_READERS))}", source)
    # one that impersonates holds another inside, which is where its secret is
    inner = info.get("source_credentials")
    for holder in (info, inner if isinstance(inner, dict) else {}):
        for name in _ENDPOINTS:
            if name in holder and not _is_safe_url(holder[name]):
                raise _make_unreadable_error("sends secrets to an address that is not https", source)
    module, method = reader
    read: Callable[..., Any] = getattr(_import_google(module).Credentials, method)
    session = _open_session()
    return _fetch_token(_call_google_auth(lambda: read(info, scopes=[SCOPE]), source), session, source)


def _read_credential_file(path: Path, source: str) -> dict[str, Any]:
    """The object in a credential file; a pipe or a device is not read, since it may never end."""
    try:
        path = path.expanduser()
        if not stat.S_ISREG(path.stat().st_mode):
            raise _make_unreadable_error("is not a regular file", source)
        with path.open("rb") as file:
            octets = file.read(_LONGEST_FILE + 1)
    except (OSError, ValueError, RuntimeError) as error:
        raise _make_unreadable_error(f"cannot be read ({type(error).__name__})", source) from None
    try:
        info = msgspec.json.decode(octets) if len(octets) <= _LONGEST_FILE else None
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict) or not isinstance(info.get("type", ""), str):
        raise _make_unreadable_error("holds no credential", source)
    return info


def _is_safe_url(address: object) -> bool:
    """Whether a secret may go to this address: by https, or no further than this machine."""
    try:
        place = URI.parse(address if isinstance(address, str) else "", rule="URI").normalize()
    except URIError:
        return False
    return place.scheme == "https" or (place.scheme == "http" and is_loopback(place.host or ""))


def _make_unreadable_error(why: str, source: str) -> CredentialError:
    return CredentialError(
        f"the credential file of Google {why}",
        code="credential.unreadable",
        hint=f"look at {redact(source)}",
    )


def _fetch_token(found: Any, session: Any, source: str) -> Credential:
    """A fresh token. `renew` fetches the next one by the same credential."""
    try:
        _call_google_auth(lambda: found.refresh(session), source)
    finally:
        # the next token is an hour away: no connection waits for it
        session.session.close()
    expiry = found.expiry
    return Credential(
        secret=Secret(found.token or ""),
        source=source,
        # google-auth's times are UTC without a time zone
        expires=None if expiry is None else expiry.replace(tzinfo=UTC).timestamp(),
        renew=partial(_fetch_token, found, session, source),
        # a person's own login is billed to a project that it names
        headers=(("x-goog-user-project", quota),) if (quota := _get_quota_project(found)) else (),
    )


def _get_quota_project(found: Any) -> str | None:
    name = getattr(found, "quota_project_id", None)
    return name if isinstance(name, str) and name.isascii() and name.isprintable() and name else None


def _call_google_auth(ask: Callable[[], Any], source: str) -> Any:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - google-auth's own errors, ValueError, a key's: any text
        failed = CredentialError(
            f"Google gives no token for {redact(source)} ({type(error).__name__})",
            code="credential.google",
            hint="does `gcloud auth application-default print-access-token` work?",
        )
    raise failed


def _open_session() -> Any:
    """How google-auth asks: no proxy variables, no .netrc, no redirects."""
    transport = _import_google("google.auth.transport.requests")
    session = transport.requests.Session()
    session.trust_env, session.max_redirects = False, 0
    return transport.Request(session)


def _import_google(name: str) -> Any:
    """A module of google-auth; late, since it is an extra and slow to import."""
    try:
        return import_module(name)
    except ImportError:
        missing = CredentialError(
            "to ask Google for a token takes a distribution that is not installed",
            code="credential.needs-extra",
            hint="pip install 'onym[vertex]'",
        )
    raise missing
