"""Settings files: TOML read with bounds, each value by a table of readers. The services share it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from onym.errors import ConfigError
from onym.server import _reading as read

__all__ = ["Rate", "Reader", "check_present", "read_file", "read_rate", "read_rows"]

_LONGEST_FILE: Final = 256 * 1024

Reader: TypeAlias = Callable[[str, object], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A token bucket: `burst` at once, `per_minute` in the long run."""

    burst: int
    per_minute: float


_RATE: Final[Mapping[str, Reader]] = {"burst": read.number(1, 1_000_000), "per_minute": read.rate}


def read_file(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            octets = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({type(error).__name__})", code="config.unreadable"
        ) from None
    if len(octets) > _LONGEST_FILE:
        raise ConfigError(f"{path}: longer than {_LONGEST_FILE} octets", code="config.too-long")
    try:
        return tomllib.loads(octets.decode("utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8", code="config.syntax") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # the message says where, and quotes no more than a character
        raise ConfigError(f"{path}: {error}", code="config.syntax") from None


def read_rows(where: str, data: object, table: Mapping[str, Reader]) -> dict[str, Any]:
    """The values of one TOML table, each read; raises for a key that the table does not have."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where.rstrip('.')} is a table", code="config.bad-setting")
    for key in data:
        if key not in table:
            close = get_close_matches(str(key), list(table), n=1)
            raise ConfigError(
                f"there is no setting {where}{key}",
                code="config.unknown-setting",
                hint=f"did you mean {where}{close[0]}?" if close else f"one of {', '.join(table)}",
            )
    return {key: table[key](where + key, value) for key, value in data.items()}


def check_present(where: str, values: Mapping[str, Any], *needed: str) -> None:
    """Raises ConfigError for a setting that is needed and not there."""
    for key in needed:
        if key not in values:
            raise ConfigError(f"{where}{key} is missing", code="config.missing-setting")


def read_rate(where: str, data: object) -> Rate:
    """One rate limit: a table with `burst` and `per_minute`."""
    values = read_rows(where + ".", data, _RATE)
    check_present(where + ".", values, "burst", "per_minute")
    return Rate(**values)
