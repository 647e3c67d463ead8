"""Parsers for settings files: typed values from TOML, text from environment variables.

Error messages name the setting and never print its value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from onym.accounts.records import validate_email
from onym.errors import ConfigError, RegistryError, URIError
from onym.net.hosts import is_loopback, parse_host, parse_network
from onym.uri.generic import URI
from onym.uri.secret import Secret

__all__ = [
    "RateLimit",
    "SettingParser",
    "build_choice_parser",
    "build_number_parser",
    "get_host_and_port",
    "is_loopback",
    "load_settings_file",
    "parse_cookie_name",
    "parse_email",
    "parse_flag",
    "parse_hosts",
    "parse_issuer",
    "parse_list_id",
    "parse_networks",
    "parse_origin",
    "parse_positive_number",
    "parse_rate_limit",
    "parse_scopes",
    "parse_secret",
    "parse_settings_table",
    "parse_slug",
    "parse_text",
    "require_settings",
]

_MAX_TEXT_LENGTH: Final = 4096
_WORD: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\Z")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_LIST_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,200}[A-Za-z0-9])?\Z")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}\Z")
_NUMBER: Final = re.compile(r"[0-9]{1,12}\Z")
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def parse_text(name: str, value: object) -> str:
    """Parse a text of one line."""
    if not isinstance(value, str) or not value or len(value) > _MAX_TEXT_LENGTH or not value.isprintable():
        _raise_bad_setting(name, "text of one line")
    return value


def parse_secret(name: str, value: object) -> Secret:
    """Parse a secret text."""
    return value if isinstance(value, Secret) else Secret(parse_text(name, value))


def build_number_parser(least: int, most: int) -> Callable[[str, object], int]:
    """Return a parser of whole numbers in a range."""

    def reader(name: str, value: object) -> int:
        if isinstance(value, str) and _NUMBER.match(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            _raise_bad_setting(name, f"a whole number from {least} to {most}")
        return value

    return reader


def parse_positive_number(name: str, value: object) -> float:
    """Parse a number above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1_000_000:
        _raise_bad_setting(name, "a number above 0")
    return float(value)


def parse_flag(name: str, value: object) -> bool:
    """Parse true or false."""
    if isinstance(value, str):
        value = _FLAGS.get(value.lower())
    if not isinstance(value, bool):
        _raise_bad_setting(name, "true or false")
    return value


def build_choice_parser(*words: str) -> Callable[[str, object], str]:
    """Return a parser of one of these words."""

    def reader(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            _raise_bad_setting(name, f"one of {', '.join(words)}")
        return value

    return reader


def parse_origin(name: str, value: object) -> str:
    """Parse an http or https URL without path, query, fragment and user."""
    plain = parse_text(name, value).rstrip("/")
    uri = _parse_url(name, plain)
    if uri.path or uri.query is not None:
        _raise_bad_setting(name, "a URL without a path, such as https://registry.example.org")
    if uri.scheme == "http" and not is_loopback(_get_bare_host(uri)):
        _raise_bad_setting(name, "an https:// URL (http:// is allowed for loopback only)")
    return str(uri.normalize()).rstrip("/")


def parse_issuer(name: str, value: object) -> str:
    """Parse an issuer (OpenID Connect Discovery 3). It is compared byte for byte, so it is not normalised."""
    plain = parse_text(name, value)
    uri = _parse_url(name, plain)
    if uri.query is not None:
        _raise_bad_setting(name, "a URL without query and fragment")
    return plain


def get_host_and_port(url: str) -> str:
    """Return host and port of an origin, as in a Host field."""
    return url.partition("://")[2]


def parse_hosts(name: str, value: object) -> tuple[str, ...]:
    """Parse Host fields: names or addresses, with a port if it is not the default port."""
    found = tuple(item.lower() for item in _parse_items(name, value))
    for host_field in found:
        host, _, port = host_field.rpartition(":") if not host_field.endswith("]") else (host_field, "", "")
        bare = (host if port.isdigit() and host else host_field).removeprefix("[").removesuffix("]")
        if parse_host(bare).kind == "refused":
            _raise_bad_setting(name, "a list of hosts, such as registry.example.org")
    return found


def parse_networks(name: str, value: object) -> tuple[str, ...]:
    """Parse CIDR blocks."""
    found = _parse_items(name, value)
    if any(parse_network(block) is None for block in found):
        _raise_bad_setting(name, "a list of CIDR blocks, such as 10.0.0.0/8")
    return found


def parse_scopes(name: str, value: object) -> tuple[str, ...]:
    """Parse OAuth scopes (RFC 6749 3.3)."""
    found = _parse_items(name, value)
    if "openid" not in found or not all(_SCOPE.match(scope) for scope in found):
        _raise_bad_setting(name, "a list of scopes that contains openid")
    return found


def parse_slug(name: str, value: object) -> str:
    """Parse a short name for URLs."""
    return _require_match(name, value, _WORD, "at most 32 lower-case letters, digits and inner '-'")


def parse_cookie_name(name: str, value: object) -> str:
    """Parse a cookie's name without prefix."""
    return _require_match(name, value, _COOKIE, "at most 40 letters, digits, '_' and '-'")


def parse_list_id(name: str, value: object) -> str:
    """Parse a List-Id (RFC 2919) without angle brackets."""
    return _require_match(name, value, _LIST_ID, "a name such as registry.example.org")


def parse_email(name: str, value: object) -> str:
    """Parse an e-mail address."""
    try:
        return validate_email(parse_text(name, value))
    except RegistryError:
        _raise_bad_setting(name, "an e-mail address such as registry@example.org")


def _require_match(name: str, value: object, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        _raise_bad_setting(name, what)
    return value


def _parse_items(name: str, value: object) -> tuple[str, ...]:
    """Parse a list of texts; variables separate them by commas."""
    given: Iterable[object] = value.split(",") if isinstance(value, str) else ()
    if isinstance(value, list | tuple):
        given = value
    elif not isinstance(value, str):
        _raise_bad_setting(name, "a list of texts")
    return tuple(parse_text(name, item.strip() if isinstance(item, str) else item) for item in given)


def _parse_url(name: str, plain: str) -> URI:
    try:
        uri = URI.parse(plain)
    except URIError:
        _raise_bad_setting(name, "an http:// or https:// URL")
    bad = uri.scheme not in {"http", "https"} or not uri.host or uri.userinfo or uri.fragment is not None
    if bad or parse_host(_get_bare_host(uri)).kind == "refused":
        _raise_bad_setting(name, "an http:// or https:// URL without user and fragment")
    return uri


def _get_bare_host(uri: URI) -> str:
    return (uri.host or "").removeprefix("[").removesuffix("]")


def _raise_bad_setting(name: str, what: str) -> NoReturn:
    raise ConfigError(f"{name} must be {what}", code="config.bad-setting")


_LONGEST_FILE: Final = 256 * 1024

SettingParser: TypeAlias = Callable[[str, object], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A token bucket: `burst` requests at once, `per_minute` on average."""

    burst: int
    per_minute: float


_RATE_LIMIT_PARSERS: Final[Mapping[str, SettingParser]] = {
    "burst": build_number_parser(1, 1_000_000),
    "per_minute": parse_positive_number,
}


def load_settings_file(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            octets = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({type(error).__name__})", code="config.unreadable"
        ) from None
    if len(octets) > _LONGEST_FILE:
        raise ConfigError(f"{path}: longer than {_LONGEST_FILE} bytes", code="config.too-long")
    try:
        return tomllib.loads(octets.decode("utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8", code="config.syntax") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # the message names the position and quotes at most one character
        raise ConfigError(f"{path}: {error}", code="config.syntax") from None


def parse_settings_table(where: str, data: object, table: Mapping[str, SettingParser]) -> dict[str, Any]:
    """Return the parsed values of a TOML table. Raises ConfigError for an unknown key."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where.rstrip('.')} must be a table", code="config.bad-setting")
    for key in data:
        if key not in table:
            close = get_close_matches(str(key), list(table), n=1)
            raise ConfigError(
                f"{where}{key} is not a setting",
                code="config.unknown-setting",
                hint=f"Did you mean {where}{close[0]}?" if close else f"The settings are {', '.join(table)}.",
            )
    return {key: table[key](where + key, value) for key, value in data.items()}


def require_settings(where: str, values: Mapping[str, Any], *needed: str) -> None:
    """Raise ConfigError for a missing setting."""
    for key in needed:
        if key not in values:
            raise ConfigError(f"{where}{key} is missing", code="config.missing-setting")


def parse_rate_limit(where: str, data: object) -> RateLimit:
    """Parse a rate limit: a table with `burst` and `per_minute`."""
    values = parse_settings_table(where + ".", data, _RATE_LIMIT_PARSERS)
    require_settings(where + ".", values, "burst", "per_minute")
    return RateLimit(**values)
