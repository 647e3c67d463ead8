"""Sign-in with OpenID Connect: its state in a cookie, the provider's response and the account that it opens.

An application keeps no state between the two steps of a sign-in. A cookie contains one random secret;
`state`, `nonce` and the code verifier are derived from it. The cookie's name ends with an ID that is derived
from `state`, so that sign-ins in two tabs do not end each other; a browser keeps four of them at most.

Here the cookie has no proof of who set it (an application may add one): its own browser can change it. So
what it wants of a sign-in can only add to the settings of the provider, and its end is never later than that
of a sign-in that begins now.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from onym.accounts.records import (
    Account,
    AuditRecord,
    Issuer,
    make_id,
    make_session_id,
    validate_email,
    validate_name,
)
from onym.common.strict_json import decode_base64url, encode_base64url, parse_json_value
from onym.errors import AccessError, RegistryError
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.accounts.oidc import OIDCProvider, Person
    from onym.accounts.store import AccountStore

HOME: Final = "/"
#: a path that begins with one slash; browsers treat a backslash as a slash and drop tabs
_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*\Z")
_MAX_TARGET_LENGTH: Final = 2000
#: pages that would lead back to the sign-in page
_SIGN_IN_PATHS: Final = ("/login", "/logout", "/auth/")
#: seconds that a person may take at the provider
FLOW_SECONDS: Final = 600
#: seconds that the clocks of two processes of one service may differ
_CLOCK_TOLERANCE: Final = 5
#: sign-ins of one browser that may be in progress
MAX_FLOWS: Final = 4
_COOKIE: Final = re.compile(r"([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{1,3800})\Z")
_ID: Final = re.compile(r"[0-9a-f]{16}\Z")
_PROVIDER: Final = re.compile(r"[a-z0-9-]{1,32}\Z")
_CODE: Final = re.compile(r"[\x20-\x7e]{1,4096}\Z")
#: parameters of the provider's response that are read
CALLBACK_PARAMETERS: Final = ("state", "code", "iss", "error")
#: OpenID Connect Core 3.1.2.6 and RFC 6749 4.1.2.1; other errors are not repeated
_ERRORS: Final = {
    "access_denied": "you, or the provider, cancelled the sign-in",
    "login_required": "you are not signed in at the provider",
    "interaction_required": "the provider needs an answer from you",
    "consent_required": "the provider needs your consent",
    "temporarily_unavailable": "the provider is busy",
    "server_error": "the provider had an internal error",
}


def sanitize_target(text: str | None) -> str:
    """Return the path to open after signing in, or `HOME` for one that leads elsewhere or in a circle."""
    if not text or len(text) > _MAX_TARGET_LENGTH or not _PATH.match(text):
        return HOME
    path = text.partition("?")[0].partition("#")[0]
    # dot segments could climb to another path, but never to another host; "/.//" would in some clients
    if "//" in path or any(segment in {".", ".."} for segment in path.split("/")):
        return HOME
    return HOME if path.startswith(_SIGN_IN_PATHS) else text


@dataclass(frozen=True, slots=True)
class SignInFlow:
    """One sign-in: its secret, the provider, its end (seconds since the epoch) and the path to open then.

    `acr_values` and `max_age` are required of it. `session` names the session that it is a step-up of, or "".
    """

    secret: Secret
    provider: str
    expires: float
    target: str
    acr_values: tuple[str, ...] = ()
    max_age: int | None = None
    session: str = ""

    @classmethod
    def begin(
        cls,
        provider: str,
        target: str | None,
        at: datetime,
        *,
        acr_values: Sequence[str] = (),
        max_age: int | None = None,
        session: str = "",
    ) -> SignInFlow:
        """Begin a sign-in with a new secret."""
        expires = round(at.timestamp() + FLOW_SECONDS, 3)
        path = sanitize_target(target)
        return cls(make_session_id(), provider, expires, path, tuple(acr_values), max_age, session)

    @property
    def id(self) -> str:
        """The last part of the cookie's name: 16 hexadecimal digits."""
        return hash_state(self.derive_text("state"))

    @property
    def began(self) -> float:
        """When it began, in seconds since the epoch."""
        return self.expires - FLOW_SECONDS

    def derive_text(self, purpose: str) -> str:
        """Return the text for a purpose ("state", "nonce" or "verifier"): 43 characters of base64url."""
        mac = hmac.new(self.secret.reveal().encode(), f"onym oidc {purpose}".encode(), hashlib.sha256)
        return encode_base64url(mac.digest())

    def to_cookie(self) -> Secret:
        """Return the value of the cookie."""
        members = (self.provider, self.expires, self.target, self.acr_values, self.max_age, self.session)
        text = encode_base64url(json.dumps(members, separators=(",", ":")).encode())
        return Secret(f"{self.secret.reveal()}.{text}")

    @classmethod
    def from_cookie(cls, text: str) -> SignInFlow | None:
        """Return the flow in a cookie, or None if the cookie is not valid."""
        match = _COOKIE.match(text)
        if match is None:
            return None
        try:
            provider, expires, target, acr_values, max_age, session = parse_json_value(
                decode_base64url(match[2])
            )
        except (ValueError, TypeError):
            return None
        good = (
            isinstance(provider, str)
            and _PROVIDER.match(provider) is not None
            and isinstance(expires, int | float)
            and 0 <= expires < 10**12
            and isinstance(target, str)
            and isinstance(acr_values, list)
            and all(isinstance(value, str) for value in acr_values)
            and (max_age is None or _is_count(max_age))
            and isinstance(session, str)
        )
        if not good:
            return None
        path = sanitize_target(target)
        return cls(Secret(match[1]), provider, expires, path, tuple(acr_values), max_age, session)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12


def hash_state(state: str) -> str:
    """Return the ID of the sign-in with this `state`."""
    return hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()[:16]


def list_stale_flows(cookies: Mapping[str, str], prefix: str, at: datetime) -> list[str]:
    """Return the names of this browser's flow cookies to delete, so that there is room for one more.

    `cookies` are all cookies of the request, `prefix` is the beginning of their names.
    """
    found = {}
    for name, value in cookies.items():
        if name.startswith(f"{prefix}-") and _ID.match(name[len(prefix) + 1 :]):
            flow = SignInFlow.from_cookie(value)
            live = flow is not None and flow.expires > at.timestamp()
            found[name] = flow.expires if flow is not None and live else 0
    newest = sorted(found, key=found.__getitem__, reverse=True)
    return [name for index, name in enumerate(newest) if index >= MAX_FLOWS - 1 or not found[name]]


def find_flow_cookie(cookies: Mapping[str, str], prefix: str, states: Sequence[str]) -> tuple[str, str]:
    """Return the name and the value of the cookie of the flow with this `state` ("" if there is none)."""
    name = f"{prefix}-{hash_state(states[0] if states else '')}"
    return name, cookies.get(name, "")


async def check_callback(
    provider: OIDCProvider, cookie: str, parameters: Mapping[str, Sequence[str]], at: datetime
) -> tuple[SignInFlow, str]:
    """Return the flow that a provider's response belongs to, and its code. Raises AccessError.

    `cookie` is the value of the flow's cookie, `parameters` are the values of `CALLBACK_PARAMETERS` in the
    query.
    """
    flow = SignInFlow.from_cookie(cookie)
    if any(len(values) > 1 for values in parameters.values()):
        raise make_sign_in_error("the provider's response repeats a parameter")
    state, code, issuer, error = (next(iter(parameters.get(name, ())), "") for name in CALLBACK_PARAMETERS)
    left = 0.0 if flow is None else flow.expires - at.timestamp()
    # a later end is not one that this service has set: what is kept until then would be kept for ever
    current = 0 < left <= FLOW_SECONDS + _CLOCK_TOLERANCE
    if flow is None or flow.provider != provider.issuer.id or not current:
        raise make_sign_in_error("this sign-in began in another browser, or took too long")
    if not hmac.compare_digest(state.encode("utf-8", "replace"), flow.derive_text("state").encode()):
        raise make_sign_in_error("the response belongs to another sign-in")
    # RFC 9207 2.4: a response that names its issuer must name the one that was asked
    if issuer != provider.issuer.issuer and (issuer or (await provider.get_metadata()).names_issuer):
        raise make_sign_in_error("the response comes from another issuer")
    if error == "unmet_authentication_requirements":
        raise AccessError(
            "the provider cannot sign you in in the way that is required",
            code="accounts.step-up-required",
            hint="Ask the operator which kind of sign-in this needs.",
        )
    if error:
        raise make_sign_in_error(_ERRORS.get(error, "the provider reports an error"))
    if not _CODE.match(code):
        raise make_sign_in_error("the response contains no code")
    return flow, code


async def find_or_create_account(
    store: AccountStore, issuer: Issuer, person: Person, at: datetime
) -> Account:
    """Return the account of a person, created now if the issuer's settings allow it. Raises AccessError.

    Only issuer and subject identify a person, never the e-mail address.
    """
    account = await store.accounts.find_by_subject(issuer.issuer, person.subject)
    if account is None and issuer.create:
        login = make_id(issuer.id)
        new = Account(
            id=make_id("user"),
            login=login,
            name=_validate_or_none(validate_name, person.name) or login,
            email=_validate_or_none(validate_email, person.email),
            created=at,
        )
        account = await store.accounts.add_linked(new, issuer.issuer, person.subject)
    if account is None or account.disabled:
        raise make_sign_in_error("no enabled account belongs to this identity", "Ask the operator for one.")
    return account


async def apply_group_roles(
    store: AccountStore, account: Account, issuer: Issuer, person: Person, at: datetime
) -> Account:
    """Give the account the roles of the person's groups, and take those of groups that the person left.

    Roles that an administrator gave stay. A change is in the audit log. Return the account as it is now.
    """
    wanted: dict[str, frozenset[str]] = {}
    for row in issuer.groups:
        if row.group in person.groups:
            name = f"{row.realm}@{issuer.id}"
            wanted[name] = wanted.get(name, frozenset()) | frozenset(row.roles)
    held = {name: roles for name, roles in account.roles.items() if name.endswith(f"@{issuer.id}") and roles}
    if wanted == held:
        return account
    given = ", ".join(sorted(f"{role} in {name}" for name, roles in wanted.items() for role in roles))
    act = AuditRecord(
        at=at, account=account.id, action="account.group-roles", subject=given or "none", outcome="ok",
        address=None,
    )  # fmt: skip
    await store.accounts.replace_group_roles(account.id, issuer.id, wanted, audit=act)
    kept = {name: roles for name, roles in account.roles.items() if name not in held}
    return replace(account, roles={**kept, **wanted})


def make_sign_in_error(message: str, hint: str = "Begin again on the sign-in page.") -> AccessError:
    """Return the error of a sign-in that did not succeed."""
    return AccessError(message, code="accounts.sign-in-failed", hint=hint)


def _validate_or_none(validate: Callable[[str], str], text: str | None) -> str | None:
    """Return the provider's value if it is valid: a bad name must not prevent a sign-in."""
    try:
        return None if text is None else validate(text)
    except RegistryError:
        return None
