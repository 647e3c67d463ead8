"""Sign-in with a password, and with OpenID Connect.

Passwords are argon2id hashes; a check takes equally long for every login. Of OpenID Connect, an application
keeps no state between the two steps of a sign-in: a cookie contains one random secret, from which `state`,
`nonce` and the code verifier are derived. Its browser can change the cookie, so it can only add to the
provider's settings.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from onym.accounts import records
from onym.common.text import decode_base64url, encode_base64url, parse_json_value
from onym.errors import AccessError, RegistryError
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from argon2 import PasswordHasher

    from onym.accounts.oidc import OIDCProvider, Person
    from onym.accounts.store import AccountStore

#: characters; NIST SP 800-63B-4 3.1.1.2 requires 15 for a password without, and 8 with a second factor
MIN_PASSWORD: Final = 12
MAX_PASSWORD: Final = 1024
#: each hash needs 64 MiB
MAX_CONCURRENT_HASHES: Final = 2
#: the passwords of twelve or more characters at the top of every published list
_COMMON_PASSWORDS: Final = frozenset(
    {
        "123456789012",
        "1234567890123",
        "12345678901234",
        "123456789123",
        "1234567891011",
        "123123123123",
        "1q2w3e4r5t6y",
        "1qaz2wsx3edc",
        "abcdefghijkl",
        "adminadminadmin",
        "administrator",
        "changemechangeme",
        "correct horse battery staple",
        "correcthorsebatterystaple",
        "iloveyou1234",
        "letmeinletmein",
        "password1234",
        "password12345",
        "passwordpassword",
        "qwerty123456",
        "qwertyqwerty",
        "qwertyuiop12",
        "qwertyuiop123",
        "qwertyuiopasdfghjkl",
        "welcome12345",
        "zaq12wsxcde3",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordCheck:
    """The result of a password check. `rehash` is a new hash to store if the old parameters are outdated."""

    ok: bool
    rehash: Secret | None = None


def validate_password(password: Secret, *, login: str = "", name: str = "") -> None:
    """Raise RegistryError (field "password") if a new password is too weak."""
    text = _normalize_password(password)
    folded = text.casefold()
    own = {word.casefold() for word in (login, name) if word}
    reason = None
    if not MIN_PASSWORD <= len(text) <= MAX_PASSWORD:
        reason = f"a password has {MIN_PASSWORD} to {MAX_PASSWORD} characters"
    elif folded in _COMMON_PASSWORDS or len(set(folded)) < 4:
        reason = "this password is one of the first that attackers try"
    elif folded in own or any(folded.startswith(word) and len(word) > len(folded) // 2 for word in own):
        reason = "the password is too similar to the login or the name"
    if reason is not None:
        raise RegistryError(
            reason,
            code="accounts.weak-password",
            field="password",
            hint="Use several unrelated words, or let a password manager create one.",
        )


def hash_password(password: Secret) -> Secret:
    """Return the argon2id hash as a PHC string. Call it in a thread: it takes 64 MiB and some 50 ms."""
    return Secret(_get_hasher().hash(_normalize_password(password)))


def verify_password(stored: Secret | None, password: Secret) -> PasswordCheck:
    """Compare the password with the stored hash. Call it in a thread.

    Without a hash (an unknown login, or one that signs in elsewhere) it does the same work on a dummy, so
    that the time does not reveal which logins exist. An unreadable hash matches no password.
    """
    from argon2.exceptions import InvalidHashError, VerificationError  # late: native, only sign-in needs it

    hasher = _get_hasher()
    text = _normalize_password(password)
    if len(text) > MAX_PASSWORD:
        stored, text = None, ""
    try:
        hasher.verify((stored or _get_dummy_hash()).reveal(), text)
    except (VerificationError, InvalidHashError):
        return PasswordCheck(ok=False)
    if stored is None:
        return PasswordCheck(ok=False)
    outdated = hasher.check_needs_rehash(stored.reveal())
    return PasswordCheck(ok=True, rehash=Secret(hasher.hash(text)) if outdated else None)


class Passwords:
    """Hashes and verifies passwords in threads, a few at a time, so that other requests go on."""

    def __init__(self, limit: int = MAX_CONCURRENT_HASHES) -> None:
        self._turn = asyncio.Semaphore(limit)

    async def hash(self, password: Secret) -> Secret:
        """Return the hash to store."""
        async with self._turn:
            return await asyncio.to_thread(hash_password, password)

    async def verify(self, stored: Secret | None, password: Secret) -> PasswordCheck:
        """Compare the password with the stored hash; without a hash, do the same work."""
        async with self._turn:
            return await asyncio.to_thread(verify_password, stored, password)

    async def authenticate(self, store: AccountStore, login: str, password: Secret) -> records.Account | None:
        """Return the account with this login and password, or None after the same amount of work.

        A hash with outdated parameters is replaced; the account that is returned has the current hash.
        """
        text = login.strip().lower()
        account = await store.accounts.find_by_login(text) if 0 < len(text) <= records.MAX_LOGIN else None
        stored = None if account is None or account.disabled else account.password_hash
        check = await self.verify(stored, password)
        if not check.ok or account is None or stored is None:
            return None
        # a password that was changed meanwhile stays; the session will be rejected
        if check.rehash is not None and await store.accounts.replace_password(
            account.id, stored, check.rehash
        ):
            return replace(account, password_hash=check.rehash)
        return account


def _normalize_password(password: Secret) -> str:
    # RFC 8265 4.2.2 (OpaqueString): other spaces become U+0020, then NFC; the cap bounds the work
    text = password.reveal()[: MAX_PASSWORD + 1]
    spaced = "".join(" " if unicodedata.category(c) == "Zs" else c for c in text)
    return unicodedata.normalize("NFC", spaced).encode("utf-8", "replace").decode()


@cache
def _get_hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # late: native, only sign-in needs it
    from argon2.profiles import RFC_9106_LOW_MEMORY

    # RFC 9106 4, second recommended option: t=3, p=4, m=64 MiB, 128-bit salt, 256-bit tag
    return PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)


@cache
def _get_dummy_hash() -> Secret:
    return Secret(_get_hasher().hash(token_hex(16)))


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
        return cls(records.make_session_id(), provider, expires, path, tuple(acr_values), max_age, session)

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
    store: AccountStore, issuer: records.Issuer, person: Person, at: datetime
) -> records.Account:
    """Return the account of a person, created now if the issuer's settings allow it. Raises AccessError.

    Only issuer and subject identify a person, never the e-mail address.
    """
    account = await store.accounts.find_by_subject(issuer.issuer, person.subject)
    if account is None and issuer.create:
        login = records.make_id(issuer.id)
        new = records.Account(
            id=records.make_id("user"),
            login=login,
            name=_validate_or_none(records.validate_name, person.name) or login,
            email=_validate_or_none(records.validate_email, person.email),
            created=at,
        )
        account = await store.accounts.add_linked(new, issuer.issuer, person.subject)
    if account is None or account.disabled:
        raise make_sign_in_error("no enabled account belongs to this identity", "Ask the operator for one.")
    return account


async def apply_group_roles(
    store: AccountStore, account: records.Account, issuer: records.Issuer, person: Person, at: datetime
) -> records.Account:
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
    act = records.AuditRecord(
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
