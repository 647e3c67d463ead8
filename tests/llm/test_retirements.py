"""When models end: the table, and what it means on a day."""

from __future__ import annotations

import re
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from onym.cli.commands.check import check_provider
from onym.errors import ConnectionFailed, NotFoundError
from onym.llm.client import connect
from onym.llm.config import Config
from onym.llm.models import describe_retirement, find_retirement, load_retirements
from onym.llm.plan import set_error_hint
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from support import ImportedLate, as_subtests

messages: Any = ImportedLate("anthropic.resources.messages.messages")

TODAY = date(2026, 11, 23)
TABLE = ProviderTable.builtin()


def describe(provider: str, model: str, today: date = TODAY) -> str | None:
    return describe_retirement(find_retirement(provider, model), today)


def test_every_row_names_a_provider_a_day_and_a_source() -> None:
    for retirement in load_retirements().values():
        assert TABLE.get(retirement.provider).name == retirement.provider
        assert retirement.source
        assert date.fromisoformat(retirement.checked) >= TODAY
        assert retirement.model == retirement.model.lower()


def test_no_replacement_ends_before_the_model_that_it_replaces() -> None:
    for retirement in load_retirements().values():
        if retirement.replacement is not None:
            next_one = find_retirement(retirement.provider, retirement.replacement)
            assert next_one is None or next_one.ends > retirement.ends


def test_claude_ends_on_the_days_that_anthropics_sdk_names() -> None:
    ours = {
        model: row.ends for (provider, model), row in load_retirements().items() if provider == "anthropic"
    }
    assert set(ours) == set(messages.DEPRECATED_MODELS)
    for model, day in messages.DEPRECATED_MODELS.items():
        words = re.fullmatch(r"(\w+) (\d+)\w\w, (\d{4})", day)
        assert words is not None
        month, number, year = words.groups()
        assert (ours[model].strftime("%B"), ours[model].day, ours[model].year) == (
            month,
            int(number),
            int(year),
        )


def read_openai_dates() -> dict[str, date]:
    """The models and days of the deprecated values in the SDK's list of models."""
    spec = find_spec("openai.types.shared.chat_model")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    told = text.partition("Deprecated values:")[2]
    found = {}
    for entry in re.split(r"\n- ", told):
        day = re.search(r"Announced shutdown\s+date:\s+(\d{4}-\d\d-\d\d)", entry)
        if day is not None:
            names = re.findall(r'"([^"]+)"', entry.partition("Announced")[0])
            found.update(dict.fromkeys(names, date.fromisoformat(day[1])))
    return found


def test_openai_models_end_on_the_days_that_its_sdk_names() -> None:
    ours = {row.model: row.ends for row in load_retirements().values() if row.provider == "openai"}
    theirs = read_openai_dates()
    assert len(theirs) > 50
    assert ours == theirs


@as_subtests(
    ("provider", "model", "told"),
    [
        ("openai", "gpt-5", "gpt-5 ends on 2026-12-11; use gpt-6.1-sol"),
        ("openai", "GPT-5-mini", "gpt-5-mini ends on 2026-12-11; use gpt-6.1-terra"),
        ("openai", "ft:gpt-4.1-mini:my-org::abc", "gpt-4.1-mini ends on 2027-01-14; use gpt-6-luna"),
        ("openai", "gpt-4", "gpt-4 was retired on 2026-10-23; use gpt-5.6-sol"),
        ("openai", "gpt-5.1", None),
        ("openai", "gpt-5.5", None),
        ("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5 ends on 2026-11-30"),
        ("anthropic", "claude-haiku-4-5", None),
        ("gemini", "gemini-2.5-pro", "gemini-2.5-pro ends on 2026-12-01; use gemini-3.8-flash"),
        ("gemini", "gemini-3.8-flash", None),
        # other providers of a model have days of their own
        ("azure-openai", "gpt-5", None),
        ("bedrock", "claude-sonnet-4-5", None),
    ],
)
def test_what_is_told_of_a_model(provider: str, model: str, told: str | None) -> None:
    assert describe(provider, model) == told


def test_the_day_decides_what_is_told() -> None:
    assert describe("openai", "gpt-5", date(2026, 9, 11)) is None
    assert describe("openai", "gpt-5", date(2026, 9, 12)) == "gpt-5 ends on 2026-12-11; use gpt-6.1-sol"
    assert describe("openai", "gpt-5", date(2026, 12, 10)) == "gpt-5 ends on 2026-12-11; use gpt-6.1-sol"
    retired = "gpt-5 was retired on 2026-12-11; use gpt-6.1-sol"
    assert describe("openai", "gpt-5", date(2026, 12, 11)) == retired


def test_check_warns_with_the_day_and_the_replacement() -> None:
    text = "llm://openai/gpt-5?max_tokens=5#p"
    (found,) = check_provider(text, TABLE, TODAY)
    assert (found.code, found.severity, found.component) == ("llm.ends", "warning", "path")
    assert text[found.start : found.end] == "gpt-5"
    assert found.fix == "llm://openai/gpt-6.1-sol?max_tokens=5#p"
    assert "chat_model" in found.clause
    (found,) = check_provider("llm://openai/gpt-5", TABLE, date(2027, 1, 1))
    assert found.code == "llm.retired"
    (found,) = check_provider("llm://anthropic/claude-sonnet-4-5", TABLE, TODAY)
    assert (found.code, found.fix) == ("llm.ends", None)
    assert check_provider("llm://openai/gpt-5", TABLE, date(2026, 1, 1)) == ()
    assert check_provider("llm://openai/gpt-5.5", TABLE, TODAY) == ()


@pytest.mark.parametrize(
    ("uri", "hint"),
    [
        (
            "llm://openai/gpt-4",
            "OpenAI announced 2026-10-23 as the end of gpt-4. Use gpt-5.6-sol.",
        ),
        ("llm://ollama-cloud/qwen3", "Run: onym models list llm://ollama-cloud/qwen3"),
        ("llm://openai/no-such-model", "Run: onym models list llm://openai/no-such-model"),
    ],
)
def test_the_error_about_a_model_that_is_not_there_says_what_to_do(uri: str, hint: str) -> None:
    endpoint = connect(uri, key="k", config=Config.empty(), environ={}).endpoint
    error = NotFoundError("no such model", endpoint=endpoint.text, status=404)
    set_error_hint(error, endpoint, "chat")
    assert error.hint == hint


@pytest.mark.parametrize(
    ("uri", "start", "fetch"),
    [
        ("llm://ollama/qwen3%3A8b", "ollama serve", "ollama pull qwen3:8b"),
        ("llm://ollama/a%3Brm%20x", "ollama serve", "ollama pull 'a;rm x'"),
        ("llm://lmstudio/qwen3-8b", "lms server start", "lms get qwen3-8b"),
    ],
)
def test_hints_about_a_local_server_name_its_commands(uri: str, start: str, fetch: str) -> None:
    endpoint = connect(uri, policy=Policy.local(), config=Config.empty(), environ={}).endpoint
    missing = NotFoundError("no such model", endpoint=endpoint.text, status=404)
    refused = ConnectionFailed("connection refused", code="net.connection.refused")
    for error, hint in ((missing, fetch), (refused, start)):
        set_error_hint(error, endpoint, "chat")
        assert (error.hint or "").endswith(f"with: {hint}")
