"""What a provider row must be like, and how its host patterns match."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING

from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.llm.providers._row import Api, Provider

__all__ = ["OPERATIONS", "check_row", "is_host", "matches", "starred"]

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_STEP = r"(?:[A-Za-z0-9_~-][A-Za-z0-9._~-]*|\{[a-z]+\})"
_PATH = re.compile(rf"(?:/{_STEP})*")
_ROUTE = re.compile(rf"(?:/{_STEP})+(?::[A-Za-z]+)?(?:\?[A-Za-z0-9=&_.-]+)?")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TOKEN = re.compile(r"[A-Za-z0-9-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PREFIX = re.compile(r"(?:[!-~]+ ?)?")
_DIALECT = re.compile(r"[a-z][a-z0-9_]*")
#: what a row may have a path or a host of its own for
OPERATIONS = frozenset({"chat", "stream", "embed", "models", "model"})
#: headers that frame the message: a key or a label there would break the request
_FRAMING = {"host", "content-length", "content-type", "transfer-encoding", "connection", "te", "upgrade"}


def is_host(text: str) -> bool:
    """Whether this is a lower-case host name of letters, digits and hyphens (RFC 1123 2.1)."""
    return len(text) <= 253 and _HOST.fullmatch(text) is not None


def matches(host: str, pattern: str) -> bool:
    """Whether a lower-case host is one that the pattern means, label border by label border."""
    return len(host) <= 253 and _compiled(pattern).fullmatch(host) is not None


def starred(host: str, patterns: Iterable[str]) -> str | None:
    """What `*` stands for in the first of the patterns that means this host."""
    for pattern in patterns:
        head, star, tail = pattern.partition("*")
        if star and "*" not in tail and matches(host, pattern):
            return host[len(head) : len(host) - len(tail)]
    return None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    if pattern.startswith("."):
        return re.compile(rf"(?:{_LABEL}\.)+{re.escape(pattern[1:])}")
    star = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
    return re.compile(star.join(re.escape(part) for part in pattern.split("*")))


def check_row(row: Provider, capabilities: Iterable[str]) -> None:
    """Refuse a row that cannot be right: UsageError, naming the row and the field."""
    for field, good in _findings(row, frozenset(capabilities)):
        if not good:
            raise UsageError(
                f"provider row {_shown(row.name)}: {field} cannot be used", code="provider.bad-row"
            )


def _findings(row: Provider, capabilities: frozenset[str]) -> Iterable[tuple[str, bool]]:
    yield "name", _all(_NAME, [row.name])
    yield "title", bool(row.title)
    yield "hosts", all(is_host(host) for host in row.hosts)
    yield "host_suffixes", all(_good_pattern(pattern) for pattern in row.host_suffixes)
    yield "aliases", _all(_NAME, row.aliases)
    yield "aliases", bool(row.hosts) or not row.aliases
    yield "default_port", 1 <= row.default_port <= 65535
    yield "base_path", _all(_PATH, [row.base_path])
    yield "dialect", _all(_DIALECT, [row.dialect])
    yield "key_variables", _all(_VARIABLE, row.key_variables)
    yield "endpoint_variables", _all(_VARIABLE, row.endpoint_variables)
    yield "key_header", _good_header(row.key_header)
    yield "key_prefix", _all(_PREFIX, [row.key_prefix])
    yield "label_headers", all(_good_header(header) for _, header in row.label_headers)
    yield "ranges", all(_good_range(*limits) for limits in row.ranges.values())
    yield "stop_max", row.stop_max is None or row.stop_max >= 0
    yield "key_forms", all(_good_header(header) for _, header, _ in row.key_forms)
    yield "key_forms", _all(_PREFIX, [prefix for _, _, prefix in row.key_forms])
    yield "routes", OPERATIONS.issuperset(row.routes) and _all(_ROUTE, row.routes.values())
    yield "first_labels", OPERATIONS.issuperset(row.first_labels)
    yield "first_labels", all(is_host(label) for label in row.first_labels.values())
    yield "query", _all(_PARAMETER, row.query)
    yield "path_values", _all(_PARAMETER, [value.parameter for value in row.path_values.values()])
    yield "path_values", row.path_values.keys() >= _placeholders(row)
    yield "apis", _all(_NAME, row.apis) and all(_good_api(api) for api in row.apis.values())
    yield "capabilities", capabilities.issuperset(row.capabilities)
    yield "capabilities", {"yes", "no", "unknown"}.issuperset(row.capabilities.values())
    yield "checked", _good_date(row.checked)


def _placeholders(row: Provider) -> set[str]:
    paths = [row.base_path, *row.routes.values()]
    for api in row.apis.values():
        paths += [api.base_path or "", *api.routes.values()]
    return {name for path in paths for name in re.findall(r"\{([a-z]+)\}", path)} - {"model"}


def _good_api(api: Api) -> bool:
    return (
        _all(_DIALECT, [api.dialect])
        and _all(_PATH, [api.base_path or ""])
        and OPERATIONS.issuperset(api.routes)
        and _all(_ROUTE, api.routes.values())
        and _all(_PARAMETER, [*api.query, *((api.when,) if api.when else ())])
    )


def _all(pattern: re.Pattern[str], texts: Iterable[str]) -> bool:
    return all(pattern.fullmatch(text) is not None for text in texts)


def _good_pattern(pattern: str) -> bool:
    # the last two labels are fixed: a pattern hangs on a domain that somebody registered
    head, _, domain = pattern.rpartition(".")
    head, _, second = head.rpartition(".")
    if "*" in domain + second or not is_host(f"{second}.{domain}"):
        return False
    if pattern.startswith("."):
        return "*" not in pattern and is_host(pattern[1:])
    return "*" in head and is_host(pattern.replace("*", "x"))


def _good_header(name: str) -> bool:
    return _all(_TOKEN, [name]) and name.lower() not in _FRAMING


def _good_range(low: float | None, high: float | None) -> bool:
    return low is None or high is None or low <= high


def _good_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return True


def _shown(name: str) -> str:
    return name if _NAME.fullmatch(name) else "without a usable name"
