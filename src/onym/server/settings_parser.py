"""Types of settings that the services share, and the rules for their values.

The rules raise ValueError with what is wanted; `onym.common.settings` names the setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Meta

from onym.accounts.records import ALL_REALMS, GroupRoles, Issuer, validate_email
from onym.common.settings import Parser, convert_value
from onym.common.text import is_printable_text
from onym.errors import ConfigError, RegistryError, URIError
from onym.net.hosts import is_loopback, parse_address, parse_host, parse_network
from onym.uri.generic import URI
from onym.uri.secret import Secret

_MAX_TEXT_LENGTH: Final = 4096
_MOST_ISSUERS: Final = 16
_MOST_GROUPS: Final = 200
_MOST_ACR_VALUES: Final = 8
_ACR_VALUE: Final = re.compile(r"[!-~]{1,200}\Z")
_YEAR: Final = 366 * 24 * 3600
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}\Z")


def parse_line(value: object) -> str:
    """Parse a text of one line."""
    if not is_printable_text(value, _MAX_TEXT_LENGTH):
        raise ValueError("must be text of one line")
    return value


def parse_secret(value: object) -> Secret:
    """Parse a secret text."""
    return value if isinstance(value, Secret) else Secret(parse_line(value))


def parse_origin(value: object) -> str:
    """Parse an http or https URL without path, query, fragment and user."""
    uri = _parse_url(parse_line(value).rstrip("/"))
    if uri.path or uri.query is not None:
        raise ValueError("must be a URL without a path, such as https://registry.example.org")
    if uri.scheme == "http" and not is_loopback(_get_bare_host(uri)):
        raise ValueError("must be an https:// URL (http:// is allowed for loopback only)")
    return str(uri.normalize()).rstrip("/")


def parse_web_url(value: object) -> str:
    """Parse an https URL without query, fragment and user; http is allowed for loopback only."""
    uri = _parse_url(parse_line(value))
    if uri.query is not None:
        raise ValueError("must be a URL without a query")
    if uri.scheme == "http" and not is_loopback(_get_bare_host(uri)):
        raise ValueError("must be an https:// URL (http:// is allowed for loopback only)")
    return str(uri.normalize())


def _parse_issuer(value: object) -> str:
    """Parse an issuer (OpenID Connect Discovery 3). It is compared byte for byte, so it is not normalised."""
    plain = parse_line(value)
    if _parse_url(plain).query is not None:
        raise ValueError("must be a URL without query and fragment")
    return plain


def get_host_and_port(url: str) -> str:
    """Return host and port of an origin, as in a Host field."""
    return url.partition("://")[2]


def _parse_host_field(value: object) -> str:
    """Parse a Host field: a name or an address, with a port if it is not the default port."""
    field = parse_line(value).lower()
    host, _, port = field.rpartition(":") if not field.endswith("]") else (field, "", "")
    if parse_host(_strip_brackets(host if port.isdigit() and host else field)).kind == "refused":
        raise ValueError("must be a list of hosts, such as registry.example.org")
    return field


def _parse_host_name(value: object) -> str:
    bare = _strip_brackets(parse_line(value))
    if parse_host(bare).kind == "refused":
        raise ValueError("must be a host such as mail.example.org")
    return bare


def _parse_network(value: object) -> str:
    block = parse_line(value)
    if parse_network(block) is None:
        raise ValueError("must be a list of CIDR blocks, such as 10.0.0.0/8")
    return block


def _parse_address(value: object) -> str:
    address = parse_line(value)
    if parse_address(address) is None:
        raise ValueError("must be a list of IP addresses, such as 127.0.0.1")
    return address


def _parse_scopes(value: object) -> tuple[str, ...]:
    """Parse OAuth scopes (RFC 6749 3.3)."""
    scopes: tuple[str, ...] = convert_value(value, tuple[Line, ...])
    if not all(_SCOPE.match(scope) for scope in scopes):
        raise ValueError("must be a list of scopes, such as profile")
    return scopes


def _parse_sign_in_scopes(value: object) -> tuple[str, ...]:
    """Parse the scopes of a sign-in (OpenID Connect Core 3.1.2.1)."""
    scopes = _parse_scopes(value)
    if "openid" not in scopes:
        raise ValueError("must be a list of scopes that contains openid")
    return scopes


def _parse_acr_values(value: object) -> tuple[str, ...]:
    """Parse authentication context classes (OpenID Connect Core 3.1.2.1)."""
    values: tuple[str, ...] = convert_value(value, tuple[Line, ...])
    if len(values) > _MOST_ACR_VALUES or not all(_ACR_VALUE.match(text) for text in values):
        raise ValueError(f"must be a list of at most {_MOST_ACR_VALUES} names without blanks")
    return values


def _parse_email(value: object) -> str:
    try:
        return validate_email(parse_line(value))
    except RegistryError:
        raise ValueError("must be an e-mail address such as registry@example.org") from None


def _build_pattern_parser(pattern: str, wanted: str) -> Callable[[Any], str]:
    match = re.compile(pattern).fullmatch

    def parse(value: object) -> str:
        if not isinstance(value, str) or not match(value):
            raise ValueError(f"must be {wanted}")
        return value

    return parse


def _parse_url(plain: str) -> URI:
    try:
        uri = URI.parse(plain)
    except URIError:
        raise ValueError("must be an http:// or https:// URL") from None
    bad = uri.scheme not in {"http", "https"} or not uri.host or uri.userinfo or uri.fragment is not None
    if bad or parse_host(_get_bare_host(uri)).kind == "refused":
        raise ValueError("must be an http:// or https:// URL without user and fragment")
    return uri


def _get_bare_host(uri: URI) -> str:
    return _strip_brackets(uri.host or "")


def _strip_brackets(host: str) -> str:
    return host.removeprefix("[").removesuffix("]")


Line: TypeAlias = Annotated[str, Parser(parse_line)]
SecretLine: TypeAlias = Annotated[Secret, Parser(parse_secret)]
OriginURL: TypeAlias = Annotated[str, Parser(parse_origin)]
WebURL: TypeAlias = Annotated[str, Parser(parse_web_url)]
IssuerURL: TypeAlias = Annotated[str, Parser(_parse_issuer)]
HostField: TypeAlias = Annotated[str, Parser(_parse_host_field)]
HostName: TypeAlias = Annotated[str, Parser(_parse_host_name)]
NetworkBlock: TypeAlias = Annotated[str, Parser(_parse_network)]
IPAddress: TypeAlias = Annotated[str, Parser(_parse_address)]
Scopes: TypeAlias = Annotated[tuple[str, ...], Parser(_parse_scopes)]
SignInScopes: TypeAlias = Annotated[tuple[str, ...], Parser(_parse_sign_in_scopes)]
AcrValues: TypeAlias = Annotated[tuple[str, ...], Parser(_parse_acr_values)]
Email: TypeAlias = Annotated[str, Parser(_parse_email)]
#: a short name for URLs
Slug: TypeAlias = Annotated[
    str,
    Parser(
        _build_pattern_parser(
            "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", "at most 32 lower-case letters, digits and inner '-'"
        )
    ),
]
GroupName: TypeAlias = Annotated[
    str, Parser(_build_pattern_parser(r"[^\x00-\x1f\x7f]{1,256}", "text of at most 256 characters"))
]
ClaimName: TypeAlias = Annotated[str, Parser(_build_pattern_parser("[!-~]{1,200}", "the name of a claim"))]
#: a part of the application, or * for all of it
RealmName: TypeAlias = Annotated[
    str, Parser(_build_pattern_parser(r"\*|[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?", "the ID of a registry, or *"))
]
#: a cookie's name without prefix
CookieName: TypeAlias = Annotated[
    str, Parser(_build_pattern_parser("[A-Za-z0-9_-]{1,40}", "at most 40 letters, digits, '_' and '-'"))
]
#: a List-Id (RFC 2919) without angle brackets
ListID: TypeAlias = Annotated[
    str,
    Parser(
        _build_pattern_parser(
            "[A-Za-z0-9](?:[A-Za-z0-9.-]{0,200}[A-Za-z0-9])?", "a name such as registry.example.org"
        )
    ),
]
#: a port to connect to, and one to listen on (0 selects a free one)
Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
ListenPort: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A token bucket: `burst` requests at once, `per_minute` on average."""

    burst: Annotated[int, Meta(ge=1, le=1_000_000)]
    per_minute: Annotated[float, Meta(gt=0, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable(GroupRoles):
    """A table of a provider's group, with the rules for its values."""

    group: GroupName
    roles: tuple[Line, ...]
    realm: RealmName = ALL_REALMS


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerTable(Issuer):
    """A table of an OpenID provider, with the rules for its values."""

    id: Slug
    issuer: IssuerURL
    client_id: Line
    client_secret: SecretLine | None = None
    title: Line = ""
    scopes: SignInScopes = ("openid", "profile", "email")
    ca_file: Line | None = None
    acr_values: AcrValues = ()
    max_age: Annotated[int, Meta(ge=0, le=_YEAR)] | None = None
    prompt: Literal["login", "consent", "select_account"] | None = None
    resource: IssuerURL | None = None
    groups_claim: Annotated[str, Parser(_build_pattern_parser("[!-~]{1,200}", "the name of a claim"))] = (
        "groups"
    )
    groups: tuple[GroupTable, ...] = ()


#: a table with `id` and `client_secret`
_Table = TypeVar("_Table", bound=Any)


def add_client_secrets(
    tables: Sequence[_Table], prefix: str, environ: Mapping[str, str]
) -> tuple[_Table, ...]:
    """Return the tables, with the secrets of the variables `{prefix}{ID}_CLIENT_SECRET`."""
    return tuple(_add_client_secret(table, prefix, environ) for table in tables)


def _add_client_secret(table: _Table, prefix: str, environ: Mapping[str, str]) -> _Table:
    variable = f"{prefix}{table.id.upper().replace('-', '_')}_CLIENT_SECRET"
    if not environ.get(variable):
        return table
    try:
        return replace(table, client_secret=parse_secret(environ[variable]))
    except ValueError as error:
        raise ConfigError(f"the variable {variable}: {error}", code="config.bad-setting") from None


def require_consistent_issuers(
    issuers: Sequence[IssuerTable], name: str, roles: Collection[str] = ()
) -> None:
    """Raise ConfigError for too many providers, two of one ID, or one without TLS. `name` is the setting.

    `roles` are those that a group of a provider may give.
    """
    if len(issuers) > _MOST_ISSUERS:
        raise ConfigError(f"[[{name}]] must be at most {_MOST_ISSUERS} tables", code="config.bad-setting")
    if len({issuer.id for issuer in issuers}) < len(issuers):
        raise ConfigError(f"two [[{name}]] tables have the same id", code="config.bad-setting")
    for index, issuer in enumerate(issuers):
        if len(issuer.groups) > _MOST_GROUPS:
            raise ConfigError(
                f"{name}[{index}].groups must be at most {_MOST_GROUPS} tables", code="config.bad-setting"
            )
        for at, row in enumerate(issuer.groups):
            unknown = [role for role in row.roles if role not in roles]
            if unknown or not row.roles:
                raise ConfigError(
                    f"{name}[{index}].groups[{at}].roles must name roles of this service",
                    code="config.bad-setting",
                    hint=f"Choose from {', '.join(roles)}." if roles else "This service has no roles.",
                )
        if issuer.issuer.startswith("http:") and issuer.network != "local":
            raise ConfigError(
                f"{name}[{index}].issuer must be an https:// URL",
                code="config.bad-setting",
                hint='For tests, network = "local" allows http:// to loopback.',
            )
