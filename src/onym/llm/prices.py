"""Prices of calls, from dated price lists. Onym does not guess a price that is not listed.

    cost(answer.usage, "openai", "gpt-5")  # Cost(amount=Decimal("0.0000975"), currency="USD", …), or None

The built-in list is `prices.toml`. `ONYM_PRICES` names a file of the same format that takes precedence, for
example for contract prices or newer models.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onym.errors import ConfigError

if TYPE_CHECKING:
    from onym.llm.types import Usage

#: names a file of prices that goes before the built-in list
VARIABLE: Final = "ONYM_PRICES"

_MILLION: Final = Decimal(1_000_000)
_RATES: Final = ("input", "cached", "output")
_ROW: Final = frozenset({*_RATES, "above", "source", "checked", "currency"})
_TABLE: Final = frozenset({"source", "checked", "currency", "models"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a call costs, and who said so, when."""

    amount: Decimal
    currency: str
    source: str
    checked: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices for a million tokens, from `source`, as of `checked`.

    `output` is None for a model that writes none; without `cached`, cached input costs as any other. `above`
    holds (tokens, price) for calls whose input is longer than that, the fewest first.
    """

    input: Decimal
    output: Decimal | None = None
    cached: Decimal | None = None
    currency: str = "USD"
    source: str
    checked: date
    above: tuple[tuple[int, Price], ...] = ()

    def compute_cost(self, usage: Usage) -> Cost | None:
        """What so many tokens cost; None where the server did not count what is paid for."""
        read, written = usage.input_tokens, usage.output_tokens
        if read is None or (written is None and self.output is not None):
            return None
        price = self
        for tokens, higher in self.above:
            if read > tokens:
                price = higher
        cached = min(usage.cached_tokens or 0, read)
        amount = (read - cached) * price.input
        amount += cached * (price.input if price.cached is None else price.cached)
        amount += (written or 0) * (price.output or Decimal(0))
        return Cost(
            amount=amount / _MILLION, currency=self.currency, source=self.source, checked=self.checked
        )


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by provider row, then by the name of a model; a name that ends in `*` covers what begins so."""

    rows: Mapping[str, Mapping[str, Price]]

    @classmethod
    def from_file(cls, path: Path) -> PriceList:
        """The list in a file. Raises ConfigError, which names the file and the entry."""
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise _make_error(path, "", f"cannot be read ({type(error).__name__})") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
            raise _make_error(path, "", "is not TOML") from None
        return cls({name: dict(_parse_models(path, name, table)) for name, table in data.items()})

    def find_price(self, provider: str, model: str) -> Price | None:
        """The price of this very model: by its name, else by the longest `*` name that fits."""
        row = self.rows.get(provider, {})
        if model in row:
            return row[model]
        fitting = [name for name in row if name.endswith("*") and model.startswith(name[:-1])]
        return row[max(fitting, key=len)] if fitting else None


def cost(usage: Usage, provider: str, model: str, *, environ: Mapping[str, str] | None = None) -> Cost | None:
    """What `usage` costs at this provider row; None where price or count is not known.

    It is the list price of the tokens: tiers of service, batches, tools of the server and what it asks for
    writing its prompt cache are not in it. Raises ConfigError for a file of `ONYM_PRICES` that cannot be
    read.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(VARIABLE)
    lists = ([_load_own_prices(Path(named).expanduser(), _get_mtime(named))] if named else []) + [
        _load_builtin_prices()
    ]
    for prices in lists:
        price = prices.find_price(provider, model)
        if price is not None:
            return price.compute_cost(usage)
    return None


@lru_cache(1)
def _load_builtin_prices() -> PriceList:
    return PriceList.from_file(Path(__file__).with_name("prices.toml"))


@lru_cache(4)
def _load_own_prices(path: Path, stamp: float) -> PriceList:
    return PriceList.from_file(path)


def _get_mtime(named: str) -> float:
    try:
        return Path(named).expanduser().stat().st_mtime
    except OSError:
        return 0.0  # reading it says what is wrong


def _parse_models(path: Path, provider: str, table: Any) -> Iterator[tuple[str, Price]]:
    if not isinstance(table, dict) or not isinstance(table.get("models"), dict):
        raise _make_error(path, provider, "has no table `models`")
    _require_known_keys(path, provider, table, _TABLE)
    for model, row in table["models"].items():
        where = f"{provider}.models.{model}"
        if not isinstance(row, dict):
            raise _make_error(path, where, "is not a table")
        _require_known_keys(path, where, row, _ROW)
        yield model, _parse_price(path, where, {**table, **row})


def _require_known_keys(path: Path, where: str, table: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in table:
        if name not in known:
            raise _make_error(path, f"{where}.{name}", f"is not known; known are {', '.join(sorted(known))}")


def _parse_price(path: Path, where: str, row: Mapping[str, Any]) -> Price:
    rates: dict[str, Any] = {
        name: _parse_rate(path, f"{where}.{name}", row[name]) for name in _RATES if name in row
    }
    checked, source = row.get("checked"), row.get("source")
    if "input" not in rates:
        raise _make_error(path, where, "has no price of its input")
    if type(checked) is not date or not isinstance(source, str) or not source:
        raise _make_error(
            path, where, "says not where its price is from (source) and of when (checked, a date)"
        )
    currency = row.get("currency", "USD")
    if not isinstance(currency, str):
        raise _make_error(path, where, "has a currency that is not a text")
    known: dict[str, Any] = {"currency": currency, "source": source, "checked": checked}
    return Price(above=tuple(_parse_tiers(path, where, row, known)), **rates, **known)


def _parse_tiers(
    path: Path, where: str, row: Mapping[str, Any], known: Mapping[str, Any]
) -> Iterator[tuple[int, Price]]:
    steps = row.get("above", [])
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise _make_error(path, f"{where}.above", "is not a list of tables")
    if any(type(step.get("tokens")) is not int or "input" not in step for step in steps):
        raise _make_error(
            path, f"{where}.above", "has a step without `tokens`, a whole number, or without `input`"
        )
    for step in sorted(steps, key=lambda step: step["tokens"]):
        rates: dict[str, Any] = {
            name: _parse_rate(path, f"{where}.above", step[name]) for name in _RATES if name in step
        }
        yield step["tokens"], Price(**rates, **known)


def _parse_rate(path: Path, where: str, value: Any) -> Decimal:
    try:
        # a float of TOML has lost digits already, so a text is what the built-in list has
        rate = Decimal(str(value)) if not isinstance(value, bool) else Decimal("nan")
    except InvalidOperation:
        rate = Decimal("nan")
    if not rate.is_finite() or rate < 0:
        raise _make_error(path, where, "is not a price")
    return rate


def _make_error(path: Path, where: str, text: str) -> ConfigError:
    return ConfigError(f"{path}: {where + ' ' if where else ''}{text}", code="config.bad-prices")
