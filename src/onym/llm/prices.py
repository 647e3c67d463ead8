"""Prices of calls, from dated price lists. Onym does not guess a price that is not listed.

The built-in list is `prices.toml`. `ONYM_PRICES` names a file of the same format that takes precedence.
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

#: the variable that names a file of prices, which takes precedence over the built-in list
VARIABLE: Final = "ONYM_PRICES"

_MILLION: Final = Decimal(1_000_000)
_RATES: Final = ("input", "cached", "output")
_ROW: Final = frozenset({*_RATES, "above", "source", "checked", "currency"})
_TABLE: Final = frozenset({"source", "checked", "currency", "models"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a call, with the source of the price and the date when it was checked."""

    amount: Decimal
    currency: str
    source: str
    checked: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices for a million tokens, from `source`, as of `checked`.

    `output` is None for a model without output tokens. Without `cached`, cached input has the price of other
    input. `above` has (tokens, price) for calls with a longer input, in ascending order.
    """

    input: Decimal
    output: Decimal | None = None
    cached: Decimal | None = None
    currency: str = "USD"
    source: str
    checked: date
    above: tuple[tuple[int, Price], ...] = ()

    def compute_cost(self, usage: Usage) -> Cost | None:
        """Return the cost of these tokens, None if the server did not count them."""
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
    """Prices by provider entry, then by model. A name that ends in `*` covers all models with that prefix."""

    rows: Mapping[str, Mapping[str, Price]]

    @classmethod
    def from_file(cls, path: Path) -> PriceList:
        """Read the list in a file. Raises ConfigError, which names the file and the entry."""
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise _make_error(path, "", f"cannot be read ({type(error).__name__})") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
            raise _make_error(path, "", "is not TOML") from None
        rows = {}
        for provider, table in data.items():
            models = table.pop("models", None) if isinstance(table, dict) else None
            if not isinstance(models, dict):
                raise _make_error(path, provider, "has no table `models`")
            _require_known_keys(path, provider, table, _TABLE)
            entries = {f"{provider}.models.{name}": row for name, row in models.items()}
            prices = [_parse_price(path, entry, row, table) for entry, row in entries.items()]
            rows[provider] = dict(zip(models, prices, strict=True))
        return cls(rows)

    def find_price(self, provider: str, model: str) -> Price | None:
        """Return the price of a model: by its name, else by the longest `*` name that matches."""
        row = self.rows.get(provider, {})
        if model in row:
            return row[model]
        matching = [name for name in row if name.endswith("*") and model.startswith(name[:-1])]
        return row[max(matching, key=len)] if matching else None


def cost(usage: Usage, provider: str, model: str, *, environ: Mapping[str, str] | None = None) -> Cost | None:
    """Return the cost of `usage` at this provider, None if the price or the count is not known.

    This is the list price of the tokens, without service tiers, batch discounts, the server's tools and
    writing the prompt cache. Raises ConfigError for a file of `ONYM_PRICES` that cannot be read.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(VARIABLE)
    paths = [Path(named).expanduser()] if named else []
    for path in (*paths, Path(__file__).with_name("prices.toml")):
        price = _load_prices(path, _get_mtime(path)).find_price(provider, model)
        if price is not None:
            return price.compute_cost(usage)
    return None


@lru_cache(4)
def _load_prices(path: Path, mtime: float) -> PriceList:
    return PriceList.from_file(path)


def _get_mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # reading the file raises the error


def _parse_price(path: Path, entry: str, row: Any, shared: Mapping[str, Any]) -> Price:
    """Return the price of a model; `shared` is what the provider's table says for all of its models."""
    if not isinstance(row, dict):
        raise _make_error(path, entry, "is not a table")
    _require_known_keys(path, entry, row, _ROW)
    row = {**shared, **row}
    rates = _parse_rates(path, entry, row)
    checked, source, currency = row.get("checked"), row.get("source"), row.get("currency", "USD")
    if "input" not in rates:
        raise _make_error(path, entry, "has no price of its input")
    if type(checked) is not date or not isinstance(source, str) or not source:
        raise _make_error(path, entry, "needs the source of its price (source) and its date (checked)")
    if not isinstance(currency, str):
        raise _make_error(path, entry, "has a currency that is not a text")
    facts: dict[str, Any] = {"currency": currency, "source": source, "checked": checked}
    return Price(above=tuple(_parse_tiers(path, f"{entry}.above", row, facts)), **rates, **facts)


def _require_known_keys(path: Path, entry: str, table: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in table:
        if name not in known:
            raise _make_error(path, f"{entry}.{name}", f"is not known; known are {', '.join(sorted(known))}")


def _parse_tiers(
    path: Path, entry: str, row: Mapping[str, Any], facts: Mapping[str, Any]
) -> Iterator[tuple[int, Price]]:
    tiers = row.get("above", [])
    if not isinstance(tiers, list) or not all(isinstance(tier, dict) for tier in tiers):
        raise _make_error(path, entry, "is not a list of tables")
    if any(type(tier.get("tokens")) is not int or "input" not in tier for tier in tiers):
        raise _make_error(path, entry, "has a table without `tokens` (a whole number) or without `input`")
    for tier in sorted(tiers, key=lambda tier: tier["tokens"]):
        yield tier["tokens"], Price(**_parse_rates(path, entry, tier), **facts)


def _parse_rates(path: Path, entry: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _parse_rate(path, f"{entry}.{name}", row[name]) for name in _RATES if name in row}


def _parse_rate(path: Path, entry: str, value: Any) -> Decimal:
    try:
        # a TOML float has already lost digits, so the built-in list uses text
        rate = Decimal(str(value)) if not isinstance(value, bool) else Decimal("nan")
    except InvalidOperation:
        rate = Decimal("nan")
    if not rate.is_finite() or rate < 0:
        raise _make_error(path, entry, "is not a price")
    return rate


def _make_error(path: Path, entry: str, message: str) -> ConfigError:
    return ConfigError(f"{path}: {entry + ' ' if entry else ''}{message}", code="config.bad-prices")
