"""What models at Bedrock take: by the id, whatever geography or ARN it stands in."""

from __future__ import annotations

from datetime import date

import pytest

from onym.errors import UnsupportedError
from onym.llm.dialects import bedrock_converse
from onym.llm.mapping import ParameterLayer, map_parameters
from onym.llm.models import Profile, load_profiles
from onym.llm.providers import ProviderTable
from support import as_subtests

BEDROCK_PROFILES = [profile for profile in load_profiles() if profile.providers == ("bedrock",)]
ROW = ProviderTable.builtin().get("bedrock")
CLAUDE, NOVA = "additionalModelRequestFields.top_k", "additionalModelRequestFields.inferenceConfig.topK"
ARN = "arn:aws:bedrock:us-east-1:123456789012:"


def find(model: str) -> Profile:
    return next(profile for profile in BEDROCK_PROFILES if profile.applies_to("bedrock", model))


@pytest.mark.parametrize("profile", BEDROCK_PROFILES, ids=lambda profile: profile.family)
def test_every_profile_says_where_its_rules_come_from(profile: Profile) -> None:
    assert profile.source
    assert date.fromisoformat(profile.checked) == date(2026, 11, 21)
    assert not profile.applies_to("anthropic", "anthropic.claude-opus-4-7")


def test_families_have_names_of_their_own_and_the_last_takes_every_model() -> None:
    families = [profile.family for profile in BEDROCK_PROFILES]
    assert len(set(families)) == len(families)
    assert find("anything").family == "bedrock-other"


MODELS = [
    ("anthropic.claude-opus-4-7", "bedrock-claude-4.7"),
    ("us.anthropic.claude-opus-4-8", "bedrock-claude-4.7"),
    ("global.anthropic.claude-opus-5", "bedrock-claude-4.7"),
    ("global.anthropic.claude-opus-5-5-v1", "bedrock-claude-5.5"),
    ("eu.anthropic.claude-sonnet-5", "bedrock-claude-4.7"),
    ("anthropic.claude-haiku-5-5", "bedrock-claude-4.7"),
    ("anthropic.claude-fable-5", "bedrock-claude-4.7"),
    ("anthropic.claude-mythos-5", "bedrock-claude-4.7"),
    (f"{ARN}inference-profile/us.anthropic.claude-opus-4-7", "bedrock-claude-4.7"),
    ("arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-opus-4-7", "bedrock-claude-4.7"),
    ("anthropic.claude-opus-4-1-20250805-v1:0", "bedrock-claude-4.1"),
    ("global.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock-claude-4.1"),
    ("us.anthropic.claude-opus-4-6-v1", "bedrock-claude-4.1"),
    ("jp.anthropic.claude-haiku-4-5-20251001-v1:0", "bedrock-claude-4.1"),
    ("us.anthropic.claude-opus-4-20250514-v1:0", "bedrock-claude"),
    ("apac.anthropic.claude-sonnet-4-20250514-v1:0", "bedrock-claude"),
    ("anthropic.claude-3-7-sonnet-20250219-v1:0", "bedrock-claude"),
    ("anthropic.claude-3-5-haiku-20241022-v1:0", "bedrock-claude"),
    ("anthropic.claude-3-5-sonnet-20241022-v2:0", "bedrock-claude"),
    ("anthropic.claude-3-5-sonnet-20240620-v1:0", "bedrock-claude-3"),
    ("us-gov.anthropic.claude-3-haiku-20240307-v1:0", "bedrock-claude-3"),
    ("anthropic.claude-v2:1", "bedrock-claude-3"),
    ("amazon.nova-pro-v1:0", "bedrock-nova"),
    ("us.amazon.nova-2-lite-v1:0", "bedrock-nova"),
    ("amazon.titan-text-express-v1", "bedrock-without-system"),
    ("mistral.mixtral-8x7b-instruct-v0:1", "bedrock-without-system"),
    ("mistral.mistral-large-2407-v1:0", "bedrock-mistral-large"),
    ("us.meta.llama3-3-70b-instruct-v1:0", "bedrock-llama"),
    ("deepseek.r1-v1:0", "bedrock-other"),
    ("openai.gpt-oss-120b-1:0", "bedrock-other"),
    (f"{ARN}application-inference-profile/abc123", "bedrock-other"),
    ("notanthropic.claude-opus-4-7", "bedrock-other"),
]


@as_subtests(("model", "family"), MODELS)
def test_a_model_is_of_the_family_that_its_id_says(model: str, family: str) -> None:
    assert find(model).family == family


@pytest.mark.parametrize(
    ("model", "top_k", "cache"),
    [
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", CLAUDE, "cachePoint"),
        ("anthropic.claude-3-haiku-20240307-v1:0", CLAUDE, None),
        ("us.amazon.nova-pro-v1:0", NOVA, "cachePoint"),
        ("us.meta.llama3-3-70b-instruct-v1:0", None, None),
        ("mistral.mixtral-8x7b-instruct-v0:1", None, None),
    ],
)
def test_top_k_and_the_cache_point_are_for_those_that_have_them(
    model: str, top_k: str | None, cache: str | None
) -> None:
    params = find(model).params
    assert (params["top_k"], params["cache"]) == (top_k, cache)
    names = mapped(model, cache=True, **({} if top_k is None else {"top_k": 5}))
    assert names == {name: wire for name, wire in (("top_k", top_k), ("cache", cache)) if wire is not None}


def mapped(model: str, **values: object) -> dict[str, str]:
    found = map_parameters(
        [ParameterLayer(origin="uri", values=values)],
        provider=ROW,
        profile=find(model),
        model=model,
        wire=bedrock_converse.parameters,
    )
    assert set(found.params) == set(found.names)
    return dict(found.names)


@pytest.mark.parametrize(
    ("model", "values", "refused"),
    [
        ("anthropic.claude-opus-4-7", {"temp": 0.5}, "temp"),
        ("anthropic.claude-opus-4-7", {"top_p": 0.5}, "top_p"),
        ("anthropic.claude-opus-4-7", {"top_k": 5}, "top_k"),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", {"temp": 0.5, "top_p": 0.5}, "top_p"),
        ("us.meta.llama3-3-70b-instruct-v1:0", {"top_k": 5}, "top_k"),
        ("amazon.titan-text-express-v1", {"system": "x"}, "system"),
        ("amazon.nova-pro-v1:0", {"seed": 5}, "seed"),
    ],
)
def test_what_a_family_does_not_take_is_refused(model: str, values: dict[str, object], refused: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        mapped(model, **values)
    assert caught.value.parameter == refused
    assert caught.value.source


def test_what_is_not_refused_is_taken() -> None:
    assert set(mapped("anthropic.claude-sonnet-4-5-20250929-v1:0", temp=0.5, top_k=5)) == {"temp", "top_k"}
    assert set(mapped("amazon.nova-pro-v1:0", temp=0.5, top_p=0.5, top_k=5)) == {"temp", "top_p", "top_k"}
    assert set(mapped("anthropic.claude-opus-4-7", stop=("a",), max_tokens=5)) == {"stop", "max_tokens"}
