"""Accounts, sessions, API tokens and audit records, their secrets, and rules for what people enter.

Roles are plain strings that each application defines. A role belongs to a realm, which is a part of the
application (a registry has one realm for each of its registries), or to all realms. A role that a group of an
OpenID provider gives is in `REALM@PROVIDER`, so that it goes with the group (docs/decisions/0058).

A session ID or token has 32 random bytes, so the database stores only a plain SHA-256 digest of it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from secrets import token_bytes, token_hex
from types import MappingProxyType
from typing import Final, Literal

from onym.common.text import encode_base64url
from onym.errors import RegistryError
from onym.uri.secret import Secret

#: the key of `Account.roles` for roles in every realm
ALL_REALMS: Final = "*"
MAX_LOGIN: Final = 64
MAX_NAME: Final = 200
#: RFC 5321 4.5.3.1.3 less the angle brackets
MAX_EMAIL: Final = 254
MAX_LABEL: Final = 100

_LOGIN: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]*\Z")
# a plain addr-spec; quoted local parts and literals are rejected
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A person who may sign in. `id` never changes.

    `login` is lower case and unique; `password_hash` is None if the person signs in with OpenID Connect
    only. `roles` maps a realm, or `ALL_REALMS`, to the roles in it.
    """

    id: str
    login: str
    name: str
    email: str | None
    password_hash: Secret | None = None
    roles: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    disabled: bool = False
    created: datetime

    def get_roles(self, realm: str) -> frozenset[str]:
        """Return the roles in one realm, including the roles in every realm."""
        nothing: frozenset[str] = frozenset()
        return nothing.union(
            *(roles for name, roles in self.roles.items() if get_realm(name) in (realm, ALL_REALMS))
        )


def get_realm(name: str) -> str:
    """Return the realm of a key of `Account.roles`, without the provider whose group gave the roles."""
    return name.partition("@")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One browser that is signed in. `digest` is of the session ID, which only the cookie contains.

    The session ends at `expires` in any case. `seen` is its last use (`Sessions.touch` updates it), from
    which the server computes idleness.
    """

    digest: str
    account: str
    created: datetime
    expires: datetime
    seen: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A token for programs. `digest` is of the whole token, including its prefix."""

    id: str
    digest: str
    account: str
    label: str
    scopes: frozenset[str]
    created: datetime
    expires: datetime | None
    revoked: datetime | None = None
    last_used: datetime | None = None

    def is_live(self, at: datetime) -> bool:
        """Report whether the token works at this time."""
        return self.revoked is None and (self.expires is None or self.expires > at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One line of the audit log: who did what to what, from where, and the outcome. It contains no secret.

    `account` is None for a visitor who is not signed in; `action` is a word with a dot ("sign-in.password",
    "request.submit"), `outcome` is "ok" or the code of the error, `address` the client's IP address. For an
    act on the command line, `address` is "command line, USER" with the operating system's user; so is
    `account` if the act needs no account.
    """

    at: datetime
    account: str | None
    action: str
    subject: str | None
    outcome: str
    address: str | None


def describe_role_changes(login: str, realm: str, before: Collection[str], after: Collection[str]) -> str:
    """Return the subject of the audit record of changed roles: `eve: added expert in uri-schemes`."""
    changes = [f"added {role}" for role in sorted(set(after) - set(before))]
    changes += [f"removed {role}" for role in sorted(set(before) - set(after))]
    return f"{login}: {', '.join(changes) or 'no change'} {describe_realm(realm)}"


def describe_realm(realm: str) -> str:
    """Return where the roles of a realm apply."""
    return "in every registry at once" if realm == ALL_REALMS else f"in {realm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRoles:
    """The roles that members of a provider's group have in `realm`."""

    group: str
    roles: tuple[str, ...]
    realm: str = ALL_REALMS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """The end of the audit log's hash chain: number and digest of its last record, and how many there are."""

    number: int
    digest: str
    records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An OpenID provider. `id` is its name in our URLs; `network` "local" allows it on this computer.

    `create` gives an account, without any role, to everyone whom the provider signs in. A sign-in must have
    one of `acr_values` (authentication context classes, the preferred one first) if there are any, and an
    authentication at most `max_age` seconds old. `prompt` is sent to the provider, such as "select_account".
    `resource` is what the access token is for (RFC 8707); then it does not open the userinfo endpoint.
    `groups_claim` names the claim with the person's groups, `groups` the roles that they give.
    """

    id: str
    issuer: str
    client_id: str
    client_secret: Secret | None = None
    title: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    network: Literal["trusted", "local"] = "trusted"
    ca_file: str | None = None
    create: bool = True
    acr_values: tuple[str, ...] = ()
    max_age: int | None = None
    prompt: str | None = None
    resource: str | None = None
    groups_claim: str = "groups"
    groups: tuple[GroupRoles, ...] = ()


def make_id(prefix: str) -> str:
    """Return a random ID that is not secret and cannot be guessed from another one ("user-1f0c…")."""
    return f"{prefix}-{token_hex(8)}"


def validate_login(login: str) -> str:
    """Return the login in lower case, as it is stored. Raises RegistryError (field "login")."""
    text = login.strip().lower()
    if not text or len(text) > MAX_LOGIN or not _LOGIN.match(text):
        raise RegistryError(
            f"a login has 1 to {MAX_LOGIN} ASCII letters, digits and . _ @ + -, with a letter or digit first",
            code="accounts.bad-login",
            field="login",
            hint="Choose a login such as ada or ada@example.org.",
        )
    return text


def validate_name(name: str) -> str:
    """Return the display name, in NFC and with single spaces. Raises RegistryError (field "name")."""
    text = " ".join(unicodedata.normalize("NFC", name[: 4 * MAX_NAME]).split())
    if not text or len(text) > MAX_NAME or any(unicodedata.category(c) in {"Cc", "Cf", "Cs"} for c in text):
        raise RegistryError(
            f"a name has 1 to {MAX_NAME} characters, none of them a control character or invisible",
            code="accounts.bad-name",
            field="name",
            hint="Enter the name that others should see.",
        )
    return text


def validate_email(email: str) -> str:
    """Return the address (RFC 5322 addr-spec with a dot-atom). Raises RegistryError (field "email")."""
    text = email.strip()
    if len(text) > MAX_EMAIL or not _EMAIL.match(text):
        raise RegistryError(
            "this is not a valid e-mail address",
            code="accounts.bad-email",
            field="email",
            clause="RFC 5322 3.4.1",
            hint="Write it as name@example.org, without a display name.",
        )
    return text


def validate_label(text: str) -> str:
    """Return the label of a token, in NFC and with single spaces. Raises RegistryError (field "label")."""
    label = " ".join(unicodedata.normalize("NFC", text[: 4 * MAX_LABEL]).split())
    if not label or len(label) > MAX_LABEL or not label.isprintable():
        raise RegistryError(
            f"a label has 1 to {MAX_LABEL} printable characters",
            code="accounts.bad-label",
            field="label",
            hint="Describe what the token is for.",
        )
    return label


_SECRET_BYTES: Final = 32
_RANDOM: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def make_session_id() -> Secret:
    """Return a session ID: 32 random bytes in base64url."""
    return Secret(_make_random_text())


def is_session_id(text: str) -> bool:
    """Report whether the text has the form of a session ID."""
    return _RANDOM.match(text) is not None


def make_token(prefix: str) -> Secret:
    """Return an API token, to be shown once. `prefix` lets scanners of published code find leaked tokens."""
    return Secret(prefix + _make_random_text())


def is_token(text: str, prefix: str) -> bool:
    """Report whether the text has the form of an API token with this prefix."""
    return text.startswith(prefix) and is_session_id(text.removeprefix(prefix))


def hash_secret(secret: Secret) -> str:
    """Return SHA-256 in lower-case hex: what the database stores of a session ID or token."""
    return hashlib.sha256(secret.reveal().encode("utf-8", "surrogatepass")).hexdigest()


def _make_random_text() -> str:
    return encode_base64url(token_bytes(_SECRET_BYTES))
