"""What calls cost: by the list, or not at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import ConfigError
from onym.llm import prices as price_module
from onym.llm.prices import Price, PriceList, cost
from onym.llm.providers import ProviderTable
from onym.llm.types import Usage

HEAD = 'source = "the contract"\nchecked = 2026-11-01\n'
#: rows of ours, and what the data that the list was taken from calls them
ORIGINS = {"gemini": "google", "xai": "x-ai", "moonshot": "moonshotai"}
BUILTIN = PriceList.from_file(Path(price_module.__file__).with_name("prices.toml"))


def of(read: int | None, written: int | None, cached: int | None = None) -> Usage:
    return Usage(input_tokens=read, output_tokens=written, cached_tokens=cached)


def own(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return {"ONYM_PRICES": str(path)}


def test_a_known_model_costs_what_the_list_says() -> None:
    found = cost(of(1_000_000, 100_000), "openai", "gpt-5", environ={})
    assert found is not None
    assert (found.amount, found.currency) == (Decimal("2.25"), "USD")
    assert found.source.startswith("https://")
    assert found.checked >= date(2026, 11, 1)


def test_cached_tokens_cost_less_where_a_price_for_them_is_published() -> None:
    found = cost(of(1_000_000, 0, 400_000), "openai", "gpt-5", environ={})
    assert found is not None
    assert found.amount == Decimal("0.75") + Decimal("0.05")
    plain = Price(input=Decimal(2), output=Decimal(3), source="s", checked=date(2026, 1, 1))
    whole = plain.compute_cost(of(1_000_000, 0, 400_000))
    assert whole is not None
    assert whole.amount == 2


def test_a_long_input_costs_what_long_inputs_cost() -> None:
    at, beyond = (cost(of(n, 0), "gemini", "gemini-2.5-pro", environ={}) for n in (200_000, 200_001))
    assert at is not None
    assert beyond is not None
    assert at.amount == Decimal("0.25")
    assert beyond.amount == 200_001 * Decimal("2.5") / 1_000_000


@pytest.mark.requirement("onym-telemetry-b")
@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-5-of-next-year"),
        ("openai", "gpt-5 "),
        ("openai", "GPT-5"),
        ("openai", ""),
        ("openai", "*"),
        ("ollama", "gpt-5"),
        ("embedded", "smollm2-135m-instruct"),
        ("", "gpt-5"),
    ],
)
def test_what_is_not_in_the_list_has_no_price(provider: str, model: str) -> None:
    assert cost(of(1, 1), provider, model, environ={}) is None


def test_what_was_not_counted_has_no_price() -> None:
    assert cost(of(None, 5), "openai", "gpt-5", environ={}) is None
    assert cost(of(5, None), "openai", "gpt-5", environ={}) is None
    assert cost(Usage(), "openai", "gpt-5", environ={}) is None


def test_a_model_that_writes_nothing_is_paid_for_what_it_reads() -> None:
    price = Price(input=Decimal("0.02"), source="s", checked=date(2026, 1, 1))
    found = price.compute_cost(of(1_000_000, None))
    assert found is not None
    assert found.amount == Decimal("0.02")


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**8))
def test_no_call_costs_less_than_nothing_and_more_tokens_never_cost_less(
    read: int, written: int, cached: int
) -> None:
    price = Price(
        input=Decimal(3), output=Decimal(15), cached=Decimal("0.3"), source="s", checked=date(2026, 1, 1)
    )
    found, more = (
        price.compute_cost(of(read, written, cached)),
        price.compute_cost(of(read + 1, written + 1, cached)),
    )
    assert found is not None
    assert more is not None
    assert 0 <= found.amount <= more.amount


@pytest.mark.requirement("onym-telemetry-b")
def test_every_row_of_the_list_has_a_provider_a_source_and_a_date() -> None:
    prices = BUILTIN
    assert set(prices.rows) <= set(ProviderTable.builtin().names())
    for models in prices.rows.values():
        assert models
        for name, price in models.items():
            assert price.source.startswith("https://"), name
            assert date(2026, 1, 1) <= price.checked <= date(2027, 1, 1)
            assert not name.endswith("*")
            assert price.cached is None or price.cached <= price.input, name
            assert [tokens for tokens, _ in price.above] == sorted(tokens for tokens, _ in price.above)


def test_every_price_is_the_one_of_the_data_that_it_was_taken_from() -> None:
    genai_prices = pytest.importorskip("genai_prices")
    rows = [(row, model) for row, models in BUILTIN.rows.items() for model in models]
    assert len(rows) > 300
    for row, model in rows:
        for read in (1_000, 300_000, 2_000_000):
            ours = BUILTIN.rows[row][model].compute_cost(of(read, 500, read // 4))
            theirs = genai_prices.calc_price(
                genai_prices.Usage(input_tokens=read, output_tokens=500, cache_read_tokens=read // 4),
                model_ref=model,
                provider_id=ORIGINS.get(row, row),
                genai_request_timestamp=datetime(2026, 11, 10, 12, tzinfo=UTC),
            )
            assert ours is not None
            assert ours.amount == pytest.approx(theirs.total_price), (row, model, read)


def test_a_list_of_ones_own_goes_first_and_the_built_in_one_after_it(tmp_path: Path) -> None:
    text = f'[openai]\n{HEAD}currency = "EUR"\n[openai.models]\n"gpt-5" = {{ input = 1, output = "2" }}\n'
    environ = own(tmp_path, text)
    found = cost(of(1_000_000, 1_000_000), "openai", "gpt-5", environ=environ)
    assert found is not None
    assert (found.amount, found.currency, found.source) == (Decimal(3), "EUR", "the contract")
    other = cost(of(1_000_000, 0), "openai", "gpt-5-mini", environ=environ)
    assert other is not None
    assert other.currency == "USD"


def test_a_list_of_ones_own_is_read_again_when_it_changed(tmp_path: Path) -> None:
    import os

    text = f'[here]\n{HEAD}[here.models]\nm = {{ input = "%s" }}\n'
    environ = own(tmp_path, text % 1)
    first = cost(of(1_000_000, None), "here", "m", environ=environ)
    own(tmp_path, text % 2)
    os.utime(environ["ONYM_PRICES"], (1, 1))
    second = cost(of(1_000_000, None), "here", "m", environ=environ)
    assert first is not None
    assert second is not None
    assert (first.amount, second.amount) == (1, 2)


def test_a_name_with_a_star_covers_what_begins_so_and_the_longest_wins(tmp_path: Path) -> None:
    rows = '"llama*" = { input = 1 }\n"llama3*" = { input = 2 }\n"llama3" = { input = 3 }\n'
    path = tmp_path / "p.toml"
    path.write_text(f"[here]\n{HEAD}[here.models]\n{rows}", encoding="utf-8")
    prices = PriceList.from_file(path)
    found = {name: prices.find_price("here", name) for name in ("llama2", "llama3:8b", "llama3", "qwen")}
    assert {name: price and price.input for name, price in found.items()} == {
        "llama2": 1,
        "llama3:8b": 2,
        "llama3": 3,
        "qwen": None,
    }


BAD: list[tuple[str, Any]] = [
    ("not toml at all", "TOML"),
    ("here = 1", "here .*`models`"),
    ("[here]\nmodels = 1", "here .*`models`"),
    (f"[here]\n{HEAD}more = 1\n[here.models]", "here.more "),
    (f"[here]\n{HEAD}[here.models]\nm = 1", "here.models.m .*table"),
    (f"[here]\n{HEAD}[here.models]\nm = {{ inptu = 1 }}", "here.models.m.inptu "),
    (f"[here]\n{HEAD}[here.models]\nm = {{ output = 1 }}", "here.models.m .*input"),
    (f"[here]\n{HEAD}[here.models]\nm = {{ input = 'much' }}", "here.models.m.input "),
    (f"[here]\n{HEAD}[here.models]\nm = {{ input = -1 }}", "here.models.m.input "),
    (f"[here]\n{HEAD}[here.models]\nm = {{ input = nan }}", "here.models.m.input "),
    (f"[here]\n{HEAD}[here.models]\nm = {{ input = true }}", "here.models.m.input "),
    (f"[here]\n{HEAD}currency = 1\n[here.models]\nm = {{ input = 1 }}", "here.models.m .*currency"),
    ("[here]\nchecked = 2026-01-01\n[here.models]\nm = { input = 1 }", "here.models.m .*source"),
    ("[here]\nsource = 'x'\n[here.models]\nm = { input = 1 }", "m .*checked"),
    (
        "[here]\nsource = 'x'\nchecked = '2026-01-01'\n[here.models]\nm = { input = 1 }",
        "m .*checked",
    ),
    (f"[here]\n{HEAD}[here.models]\nm = {{ input = 1, above = 1 }}", "here.models.m.above .*list"),
    (
        f"[here]\n{HEAD}[here.models]\nm = {{ input = 1, above = [{{ input = 1 }}] }}",
        "m.above .*`tokens`",
    ),
    (
        f"[here]\n{HEAD}[here.models]\nm = {{ input = 1, above = [{{ tokens = 1 }}] }}",
        "m.above .*`tokens`",
    ),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_a_list_that_is_wrong_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"prices.toml: .*{said}") as caught:
        cost(of(1, 1), "openai", "gpt-5", environ=own(tmp_path, text))
    assert caught.value.code == "config.bad-prices"


def test_a_list_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONYM_PRICES", str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"none\.toml.*FileNotFoundError"):
        cost(of(1, 1), "openai", "gpt-5")
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"latin\.toml.*TOML"):
        PriceList.from_file(tmp_path / "latin.toml")
