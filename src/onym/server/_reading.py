"""How one setting is read: typed from TOML, as text from a variable. Errors name it and not its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from onym.errors import ConfigError, RegistryError, URIError
from onym.net.addresses import parse_network
from onym.net.hosts import is_loopback, read_host
from onym.registry.accounts import check_email
from onym.uri.generic import URI
from onym.uri.secret import Secret

__all__ = [
    "authority",
    "choice",
    "cookie_name",
    "email",
    "flag",
    "hosts",
    "is_loopback",
    "issuer",
    "list_id",
    "networks",
    "number",
    "origin",
    "rate",
    "secret",
    "text",
    "word",
    "words",
]

_LONGEST: Final = 4096
_WORD: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\Z")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_LIST_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,200}[A-Za-z0-9])?\Z")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}\Z")
_NUMBER: Final = re.compile(r"[0-9]{1,12}\Z")
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def text(name: str, value: object) -> str:
    """A text of one line."""
    if not isinstance(value, str) or not value or len(value) > _LONGEST or not value.isprintable():
        _refuse(name, "a text of one line")
    return value


def secret(name: str, value: object) -> Secret:
    """A text that is not to be seen."""
    return value if isinstance(value, Secret) else Secret(text(name, value))


def number(least: int, most: int) -> Callable[[str, object], int]:
    """A reader of whole numbers in a range."""

    def reader(name: str, value: object) -> int:
        if isinstance(value, str) and _NUMBER.match(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            _refuse(name, f"a whole number from {least} to {most}")
        return value

    return reader


def rate(name: str, value: object) -> float:
    """A number above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1_000_000:
        _refuse(name, "a number above 0")
    return float(value)


def flag(name: str, value: object) -> bool:
    """True or false."""
    if isinstance(value, str):
        value = _FLAGS.get(value.lower())
    if not isinstance(value, bool):
        _refuse(name, "true or false")
    return value


def choice(*words: str) -> Callable[[str, object], str]:
    """A reader of one of these words."""

    def reader(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            _refuse(name, f"one of {', '.join(words)}")
        return value

    return reader


def origin(name: str, value: object) -> str:
    """An http or https URL without path, query, fragment and user: where the service is reached."""
    plain = text(name, value).rstrip("/")
    uri = _url(name, plain)
    if uri.path or uri.query is not None:
        _refuse(name, "an address without a path, such as https://registry.example.org")
    if uri.scheme == "http" and not is_loopback(_bare(uri)):
        _refuse(name, "an https address; http is for this machine alone")
    return str(uri.normalize()).rstrip("/")


def issuer(name: str, value: object) -> str:
    """An issuer identifier (OpenID Connect Discovery 3): compared octet by octet, so kept as it is."""
    plain = text(name, value)
    uri = _url(name, plain)
    if uri.query is not None:
        _refuse(name, "an address without query and fragment")
    return plain


def authority(url: str) -> str:
    """Host and port of an origin, as a Host field has them."""
    return url.partition("://")[2]


def hosts(name: str, value: object) -> tuple[str, ...]:
    """Host fields: a name or address, with a port where it is not the default one."""
    found = tuple(each.lower() for each in _items(name, value))
    for each in found:
        host, _, port = each.rpartition(":") if not each.endswith("]") else (each, "", "")
        bare = (host if port.isdigit() and host else each).removeprefix("[").removesuffix("]")
        if read_host(bare).kind == "refused":
            _refuse(name, "a list of hosts, such as registry.example.org")
    return found


def networks(name: str, value: object) -> tuple[str, ...]:
    """CIDR blocks."""
    found = _items(name, value)
    if any(parse_network(each) is None for each in found):
        _refuse(name, "a list of CIDR blocks, such as 10.0.0.0/8")
    return found


def words(name: str, value: object) -> tuple[str, ...]:
    """Scopes of OAuth (RFC 6749 3.3)."""
    found = _items(name, value)
    if "openid" not in found or not all(_SCOPE.match(each) for each in found):
        _refuse(name, "a list of scopes with openid among them")
    return found


def word(name: str, value: object) -> str:
    """A short name that stands in addresses."""
    return _matching(name, value, _WORD, "lower-case letters, digits and inner '-', 32 at most")


def cookie_name(name: str, value: object) -> str:
    """A cookie's name, without a prefix."""
    return _matching(name, value, _COOKIE, "letters, digits, '_' and '-', 40 at most")


def list_id(name: str, value: object) -> str:
    """A List-Id (RFC 2919) without the angle brackets."""
    return _matching(name, value, _LIST_ID, "a name such as registry.example.org")


def email(name: str, value: object) -> str:
    """An address."""
    try:
        return check_email(text(name, value))
    except RegistryError:
        _refuse(name, "an e-mail address such as registry@example.org")


def _matching(name: str, value: object, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        _refuse(name, what)
    return value


def _items(name: str, value: object) -> tuple[str, ...]:
    """A list of texts; a variable separates them by commas."""
    given: Iterable[object] = value.split(",") if isinstance(value, str) else ()
    if isinstance(value, list | tuple):
        given = value
    elif not isinstance(value, str):
        _refuse(name, "a list of texts")
    return tuple(text(name, each.strip() if isinstance(each, str) else each) for each in given)


def _url(name: str, plain: str) -> URI:
    try:
        uri = URI.parse(plain)
    except URIError:
        _refuse(name, "an http or https address")
    bad = uri.scheme not in {"http", "https"} or not uri.host or uri.userinfo or uri.fragment is not None
    if bad or read_host(_bare(uri)).kind == "refused":
        _refuse(name, "an http or https address without user and fragment")
    return uri


def _bare(uri: URI) -> str:
    return (uri.host or "").removeprefix("[").removesuffix("]")


def _refuse(name: str, what: str) -> NoReturn:
    raise ConfigError(f"{name} is not as it should be", code="config.bad-setting", hint=f"give {what}")
