"""What a provider row must be like, and how its host patterns match."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING

from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.llm.providers._row import Provider

__all__ = ["check_row", "is_host", "matches"]

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PATH = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
_TOKEN = re.compile(r"[A-Za-z0-9-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PREFIX = re.compile(r"(?:[!-~]+ ?)?")
_DIALECT = re.compile(r"[a-z][a-z0-9_]*")
#: headers that frame the message: a key or a label there would break the request
_FRAMING = {"host", "content-length", "content-type", "transfer-encoding", "connection", "te", "upgrade"}


def is_host(text: str) -> bool:
    """Whether this is a lower-case host name of letters, digits and hyphens (RFC 1123 2.1)."""
    return len(text) <= 253 and _HOST.fullmatch(text) is not None


def matches(host: str, pattern: str) -> bool:
    """Whether a lower-case host is one that the pattern means, label border by label border."""
    return len(host) <= 253 and _compiled(pattern).fullmatch(host) is not None


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
    yield "capabilities", capabilities.issuperset(row.capabilities)
    yield "capabilities", {"yes", "no", "unknown"}.issuperset(row.capabilities.values())
    yield "checked", _good_date(row.checked)


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
