"""Accounts, sessions, API tokens and audit records: their values, and how their secrets are made and checked.

The database holds no secret that opens anything. Passwords are stored as argon2id hashes, session IDs
and API tokens as SHA-256 digests. A session ID or token has 32 random bytes, so a plain digest is safe
for it; a password needs a slow hash.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from secrets import token_bytes, token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.errors import RegistryError
from onym.registry.records import Role
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from argon2 import PasswordHasher

#: the key of `Account.roles` that stands for every registry
ALL_REGISTRIES: Final = "*"
#: what every API token begins with, so that scanners of published code find leaked ones
TOKEN_PREFIX: Final = "onym_reg_"  # noqa: S105
#: characters; NIST SP 800-63B-4 3.1.1.2 asks for 15 where a password stands alone, 8 beside a second factor
MIN_PASSWORD: Final = 12
MAX_PASSWORD: Final = 1024
MAX_LOGIN: Final = 64
MAX_NAME: Final = 200
#: RFC 5321 4.5.3.1.3 less the angle brackets
MAX_EMAIL: Final = 254
MAX_LABEL: Final = 100

_SECRET_OCTETS: Final = 32
_TOKEN: Final = re.compile(re.escape(TOKEN_PREFIX) + r"[A-Za-z0-9_-]{43}\Z")
_LOGIN: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]*\Z")
# an addr-spec of the plain sort; quoted local parts and literals are refused
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*\Z"
)
#: the ones of twelve characters and more that head every published list
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


class Scope(StrEnum):
    """What an API token may do. A scope opens the way to a role; the account must hold the role as well."""

    READ = "read"
    SUBMIT = "submit"
    REVIEW = "review"
    IANA = "iana"
    IESG = "iesg"
    ADMIN = "admin"


#: which role each scope lets a token use
_SCOPE_ROLES: Final[Mapping[Scope, Role]] = MappingProxyType(
    {
        Scope.READ: Role.READER,
        Scope.SUBMIT: Role.REGISTRANT,
        Scope.REVIEW: Role.EXPERT,
        Scope.IANA: Role.IANA,
        Scope.IESG: Role.IESG,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Somebody who may sign in. `id` never changes and is the `Actor.id` of the log.

    `login` is lower case and unique; `password_hash` is None where sign-in is by OpenID Connect alone.
    `roles` maps a registry, or `ALL_REGISTRIES`, to the roles held there. Whoever holds IANA in
    `ALL_REGISTRIES` administers accounts.
    """

    id: str
    login: str
    name: str
    email: str | None
    password_hash: Secret | None = None
    roles: Mapping[str, frozenset[Role]] = field(default_factory=lambda: MappingProxyType({}))
    disabled: bool = False
    created: datetime

    def get_roles(self, registry: str) -> frozenset[Role]:
        """The roles held in one registry, those for every registry among them."""
        nothing: frozenset[Role] = frozenset()
        return self.roles.get(registry, nothing) | self.roles.get(ALL_REGISTRIES, nothing)

    @property
    def is_administrator(self) -> bool:
        """May the account manage other accounts?"""
        return Role.IANA in self.roles.get(ALL_REGISTRIES, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One browser signed in. `digest` is of the session id; the id itself is in the cookie alone.

    `expires` ends it whatever happens; `seen` is its last use (`store.sessions.touch(digest, at)` moves
    it), from which the server counts idleness.
    """

    digest: str
    account: str
    created: datetime
    expires: datetime
    seen: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A token for programs. `digest` is of the whole token, prefix included; `scopes` are `Scope` values."""

    id: str
    digest: str
    account: str
    label: str
    scopes: frozenset[str]
    created: datetime
    expires: datetime | None
    revoked: datetime | None = None
    last_used: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One line of the audit log: who did what to what, from where, and how it ended. It holds no secret.

    `account` is None where nobody was signed in; `action` is a word with a dot ("sign-in.password",
    "request.submit"), `outcome` "ok" or the stable code of the error, `address` the client's IP address.
    """

    at: datetime
    account: str | None
    action: str
    subject: str | None
    outcome: str
    address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordCheck:
    """What a password test said: `rehash` is the new hash to store, where the old parameters are outdated."""

    ok: bool
    rehash: Secret | None = None


def validate_login(login: str) -> str:
    """The login as it is stored: lower case. Raises RegistryError (field "login")."""
    text = login.strip().lower()
    if not text or len(text) > MAX_LOGIN or not _LOGIN.match(text):
        raise RegistryError(
            "a login starts with a letter or digit and holds letters, digits and . _ @ + - alone",
            code="registry.bad-login",
            field="login",
            hint=f"use 1 to {MAX_LOGIN} ASCII characters",
        )
    return text


def validate_name(name: str) -> str:
    """The display name, in NFC, with single spaces. Raises RegistryError (field "name")."""
    text = " ".join(unicodedata.normalize("NFC", name[: 4 * MAX_NAME]).split())
    if not text or len(text) > MAX_NAME or any(unicodedata.category(c) in {"Cc", "Cf", "Cs"} for c in text):
        raise RegistryError(
            f"a name has 1 to {MAX_NAME} characters and no control or invisible ones",
            code="registry.bad-name",
            field="name",
            hint="give the name as it should be shown beside decisions",
        )
    return text


def validate_email(email: str) -> str:
    """The address (RFC 5322 addr-spec with a dot-atom). Raises RegistryError (field "email")."""
    text = email.strip()
    if len(text) > MAX_EMAIL or not _EMAIL.match(text):
        raise RegistryError(
            "not an e-mail address",
            code="registry.bad-email",
            field="email",
            clause="RFC 5322 3.4.1",
            hint="write it as name@example.org, without a display name",
        )
    return text


def validate_password(password: Secret, *, login: str = "", name: str = "") -> None:
    """Is this good enough for a new password? Raises RegistryError (field "password")."""
    text = _normalize_password(password)
    folded = text.casefold()
    own = {word.casefold() for word in (login, name) if word}
    reason = None
    if not MIN_PASSWORD <= len(text) <= MAX_PASSWORD:
        reason = f"a password has {MIN_PASSWORD} to {MAX_PASSWORD} characters"
    elif folded in _COMMON_PASSWORDS or len(set(folded)) < 4:
        reason = "this password heads the lists that attackers try first"
    elif folded in own or any(folded.startswith(word) and len(word) > len(folded) // 2 for word in own):
        reason = "the password is the login or the name"
    if reason is not None:
        raise RegistryError(
            reason,
            code="registry.weak-password",
            field="password",
            hint="take several unrelated words, or let a password manager make one",
        )


def hash_password(password: Secret) -> Secret:
    """The argon2id hash as a PHC string. Takes 64 MiB and tens of milliseconds: call it in a thread."""
    return Secret(_get_hasher().hash(_normalize_password(password)))


def verify_password(stored: Secret | None, password: Secret) -> PasswordCheck:
    """Does the password fit the stored hash? Call it in a thread.

    Without a hash (no such login, or one that signs in elsewhere) the same work is done on a dummy, so
    that the time taken does not tell. A hash that cannot be read is no match.
    """
    from argon2.exceptions import InvalidHashError, VerificationError  # late: native, for sign-in alone

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


def make_session_id() -> Secret:
    """A session id: 32 random octets in base64url."""
    return Secret(_make_random_text())


def make_token() -> Secret:
    """An API token: shown once, stored as `hash_secret` it."""
    return Secret(TOKEN_PREFIX + _make_random_text())


def is_api_token(text: str) -> bool:
    """Has the text the form of an API token?"""
    return _TOKEN.match(text) is not None


def hash_secret(secret: Secret) -> str:
    """SHA-256 in lower-case hex: what is stored of a session id or token."""
    return hashlib.sha256(secret.reveal().encode("utf-8", "surrogatepass")).hexdigest()


def make_id(prefix: str) -> str:
    """A random id that can be shown ("user-1f0c…"): no secret, and not to be guessed from another."""
    return f"{prefix}-{token_hex(8)}"


def parse_scopes(words: Iterable[str]) -> frozenset[str]:
    """Scopes from words. Raises RegistryError (field "scopes") for one that does not exist, or none."""
    try:
        scopes = frozenset(str(Scope(word)) for word in words)
    except ValueError:
        scopes = frozenset()
    if not scopes:
        raise RegistryError(
            "no scope, or one that does not exist",
            code="registry.bad-scope",
            field="scopes",
            hint="choose from " + ", ".join(Scope),
        )
    return scopes


def limit_roles(roles: frozenset[Role], scopes: Iterable[str]) -> frozenset[Role]:
    """What is left of the roles held by an account, for a token of these scopes."""
    return roles & {_SCOPE_ROLES[Scope(scope)] for scope in scopes if scope in _SCOPE_ROLES}


def _normalize_password(password: Secret) -> str:
    # RFC 8265 4.2.2 (OpaqueString): other spaces become U+0020, then NFC; the cap bounds the work
    text = password.reveal()[: MAX_PASSWORD + 1]
    spaced = "".join(" " if unicodedata.category(c) == "Zs" else c for c in text)
    return unicodedata.normalize("NFC", spaced).encode("utf-8", "replace").decode()


def _make_random_text() -> str:
    return urlsafe_b64encode(token_bytes(_SECRET_OCTETS)).rstrip(b"=").decode("ascii")


@cache
def _get_hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # late: native, and only sign-in needs it
    from argon2.profiles import RFC_9106_LOW_MEMORY

    # RFC 9106 4, second recommended option: t=3, p=4, m=64 MiB, 128-bit salt, 256-bit tag
    return PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)


@cache
def _get_dummy_hash() -> Secret:
    return Secret(_get_hasher().hash(token_hex(16)))
