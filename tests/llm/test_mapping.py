"""From well-known parameters to what one endpoint takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onym.errors import ParameterError, UnsupportedError
from onym.llm.dialects import openai_chat
from onym.llm.mapping import MappedParameters, MappingNote, ParameterLayer, map_parameters
from onym.llm.models import DEFAULT_PROFILE, Profile
from onym.llm.models import find_profile as find_profile
from onym.llm.providers import Provider, ProviderTable
from support import as_subtests

OPENAI = ProviderTable.builtin().get("openai")
GENERIC = ProviderTable.builtin().get("openai-compatible")


def row(**facts: Any) -> Provider:
    given = {"name": "acme", "title": "Acme", "docs": "https://acme.example", "source": "its docs"}
    return Provider(**{**given, "checked": "2026-11-21", **facts})


def map_all(
    *layers: ParameterLayer, provider: Provider = GENERIC, profile: Profile = DEFAULT_PROFILE, **how: Any
) -> MappedParameters:
    return map_parameters(
        layers, provider=provider, profile=profile, model="m", wire=openai_chat.parameters, **how
    )


def uri(extra: dict[str, Any] | None = None, **values: Any) -> ParameterLayer:
    return ParameterLayer(origin="uri", values=values, extra=extra or {})


def note(mapped: MappedParameters, parameter: str) -> MappingNote:
    (found,) = [note for note in mapped.notes if note.parameter == parameter]
    return found


TWELVE: dict[str, Any] = {
    "temp": 0.7,
    "max_tokens": 100,
    "top_p": 0.9,
    "top_k": 40,
    "stop": ("a", "b"),
    "seed": 7,
    "stream": True,
    "timeout": 5000,
    "retries": 3,
    "cache": False,
    "format": "json",
    "system": "Be brief.",
}


@pytest.mark.requirement("llm-4.4-a", "llm-6-b", "llm-9-a")
def test_all_twelve_parameters_have_a_place() -> None:
    mapped = map_all(uri(**TWELVE))
    assert mapped.params == {
        "temp": 0.7,
        "max_tokens": 100,
        "top_p": 0.9,
        "top_k": 40,
        "stop": ("a", "b"),
        "seed": 7,
        "format": "json",
    }
    assert mapped.names["temp"] == "temperature"
    assert (mapped.stream, mapped.system) == ((True, "uri"), ("Be brief.", "uri"))
    assert (mapped.timeout_ms, mapped.retries, mapped.cache) == (5000, 3, False)
    assert mapped.warnings == ()


def test_what_nobody_said_is_the_default_and_noted_as_such() -> None:
    mapped = map_all()
    assert (mapped.params, mapped.extra, mapped.system, mapped.stream) == ({}, {}, None, None)
    assert (mapped.timeout_ms, mapped.retries, mapped.cache) == (600_000, 2, False)
    assert [(note.parameter, note.origin, note.action) for note in mapped.notes] == [
        ("timeout", "default", "client"),
        ("retries", "default", "client"),
    ]


@pytest.mark.requirement("onym-fragment-a")
def test_a_call_goes_before_the_uri_and_the_uri_before_a_profile() -> None:
    call = ParameterLayer(origin="override", values={"temp": 0.1, "seed": None}, extra={"a": 1})
    profile = ParameterLayer(
        origin="profile:p", values={"temp": 0.3, "seed": 9, "top_p": 0.5}, extra={"a": 3, "b": 3}
    )
    mapped = map_all(call, uri({"a": 2, "c": 2}, temp=0.2, seed=8), profile)
    assert mapped.params == {"temp": 0.1, "seed": 8, "top_p": 0.5}
    assert mapped.extra == {"a": 1, "b": 3, "c": 2}
    origins = {note.parameter: note.origin for note in mapped.notes if note.origin != "default"}
    assert origins == {
        "temp": "override",
        "seed": "uri",
        "top_p": "profile:p",
        "a": "override",
        "b": "profile:p",
        "c": "uri",
    }


def test_a_note_says_what_became_of_a_parameter() -> None:
    mapped = map_all(uri({"frequency_penalty": 0.5}, max_tokens=5, seed=1), provider=OPENAI)
    sent = note(mapped, "max_tokens")
    assert (sent.wire_name, sent.action, sent.value) == ("max_completion_tokens", "renamed", 5)
    assert note(mapped, "seed").action == "sent"
    assert note(mapped, "frequency_penalty").as_dict() == {
        "parameter": "frequency_penalty",
        "value": 0.5,
        "origin": "uri",
        "action": "sent",
        "wire_name": "frequency_penalty",
        "reason": "passed through as it is",
        "clause": "draft-levy-llm-uri-scheme-00 4.4",
    }


@pytest.mark.requirement("onym-call-a")
def test_what_a_provider_does_not_have_is_refused_with_parameter_model_and_source() -> None:
    with pytest.raises(UnsupportedError) as caught:
        map_all(uri(top_k=40), provider=OPENAI)
    error = caught.value
    assert (error.parameter, error.model, error.source) == ("top_k", "m", OPENAI.source)
    assert "OpenAI" in error.message
    assert "top_k" in error.message


@pytest.mark.requirement("onym-call-a")
def test_what_a_model_refuses_is_refused_with_the_reason() -> None:
    profile = find_profile("openai", "gpt-5")
    with pytest.raises(UnsupportedError) as caught:
        map_all(uri(temp=0.5), provider=OPENAI, profile=profile)
    assert caught.value.parameter == "temp"
    assert caught.value.source == profile.source


def test_a_rule_that_holds_while_a_model_reasons_does_not_hold_when_it_does_not() -> None:
    profile = find_profile("openai", "gpt-5.1")
    assert map_all(uri(temp=0.5), provider=OPENAI, profile=profile).params == {"temp": 0.5}
    with pytest.raises(UnsupportedError):
        map_all(uri({"reasoning_effort": "high"}, temp=0.5), provider=OPENAI, profile=profile)


def test_a_pass_through_parameter_that_the_model_refuses_is_refused_too() -> None:
    with pytest.raises(UnsupportedError) as caught:
        map_all(uri({"logprobs": True}), provider=OPENAI, profile=find_profile("openai", "o3"))
    assert caught.value.parameter == "logprobs"


def test_a_profile_renames_and_removes_before_the_row() -> None:
    profile = Profile(
        family="f", params={"max_tokens": "max_new", "seed": None}, source="s", checked="2026-11-21"
    )
    mapped = map_all(uri(max_tokens=5), provider=OPENAI, profile=profile)
    assert mapped.names == {"max_tokens": "max_new"}
    with pytest.raises(UnsupportedError) as caught:
        map_all(uri(seed=5), provider=OPENAI, profile=profile)
    assert caught.value.source == "s"


def test_a_parameter_without_effect_is_sent_and_says_so() -> None:
    profile = Profile(family="f", ignores={"temp": "it thinks", "x": "too"}, source="s", checked="2026-11-21")
    mapped = map_all(uri({"x": 1}, temp=0.5), profile=profile)
    assert (mapped.params, mapped.extra) == ({"temp": 0.5}, {"x": 1})
    assert (note(mapped, "temp").reason, note(mapped, "temp").source) == ("no effect: it thinks", "s")
    assert note(mapped, "x").reason == "no effect: too"


@pytest.mark.parametrize("how", ["drop", "warn"])
def test_by_choice_what_is_not_taken_is_dropped_and_noted(how: str) -> None:
    values = {"top_k": 40, "seed": 7, "stop": ("a",) * 5}
    mapped = map_all(uri(**values), provider=OPENAI, on_unsupported=how)
    assert mapped.params == {"seed": 7}
    dropped = [note.parameter for note in mapped.notes if note.action == "dropped"]
    assert dropped == ["top_k", "stop"]
    assert note(mapped, "top_k").source == OPENAI.source
    assert len(mapped.warnings) == (2 if how == "warn" else 0)


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("temp", 1.5, "at most 1"),
        ("temp", 0.05, "at least 0.1"),
        ("stop", ("a", "b", "c"), "at most 2 of them"),
    ],
)
def test_a_narrower_range_of_the_provider_is_an_error_that_names_it(
    name: str, value: Any, limit: str
) -> None:
    narrow = row(ranges={"temp": (0.1, 1)}, stop_max=2)
    with pytest.raises(ParameterError) as caught:
        map_all(uri(**{name: value}), provider=narrow)
    error = caught.value
    assert (error.parameter, error.code, error.clause) == (name, "llm.provider-range", "its docs")
    assert "Acme" in error.message
    assert limit in error.message
    assert str(value) not in error.message


def test_the_ends_of_a_range_are_inside_it() -> None:
    narrow = row(ranges={"temp": (0.1, 1), "top_p": (None, 0.5), "max_tokens": (2, None)}, stop_max=1)
    taken = {"temp": 1, "top_p": 0.5, "max_tokens": 2, "stop": ("a",)}
    assert map_all(uri(**taken), provider=narrow).params == taken
    assert map_all(uri(temp=0.1), provider=narrow).params == {"temp": 0.1}


@pytest.mark.parametrize(
    ("no", "asked", "supported"),
    [
        (("json",), "json", "json_schema"),
        (("json_schema",), "json_schema", "json"),
        (("json", "json_schema"), "json", "text"),
    ],
)
def test_a_format_that_the_provider_lacks_is_refused(no: tuple[str, ...], asked: str, supported: str) -> None:
    provider = row(capabilities=dict.fromkeys(no, "no"))
    with pytest.raises(UnsupportedError) as caught:
        map_all(uri(format=asked), provider=provider)
    assert caught.value.code == "llm.no-format"
    assert caught.value.parameter == "format"
    assert caught.value.message.endswith(f" {supported}")


def test_text_is_the_format_of_an_answer_unasked() -> None:
    mapped = map_all(uri(format="text"), provider=row(capabilities={"json": "no", "json_schema": "no"}))
    assert mapped.params == {}
    assert note(mapped, "format").action == "client"


def test_a_providers_own_name_beside_the_well_known_one_gives_way() -> None:
    mapped = map_all(
        ParameterLayer(origin="override", values={"temp": 0.1}), uri({"temperature": 0.9, "top_a": 1})
    )
    assert (mapped.params, mapped.extra) == ({"temp": 0.1}, {"top_a": 1})
    assert note(mapped, "temperature").action == "dropped"
    mapped = map_all(
        ParameterLayer(origin="override", values={"max_tokens": 5}), uri({"max_completion_tokens": 9})
    )
    assert (mapped.params, mapped.extra) == ({"max_tokens": 5}, {})


def test_a_providers_own_name_alone_passes() -> None:
    assert map_all(uri({"temperature": 0.9})).extra == {"temperature": 0.9}


def test_the_response_cache_is_the_clients_and_says_what_it_does() -> None:
    mapped = map_all(uri(cache=True))
    assert mapped.cache
    assert note(mapped, "cache").action == "client"
    assert note(mapped, "cache").reason == "answered from the cache when it can"
    assert mapped.warnings == ()


ONE_OF_TWO = replace(DEFAULT_PROFILE, exclusive=(("temp", "top_p"),))


@pytest.mark.parametrize(
    ("call", "uri_values", "sent"),
    [
        ({"top_p": 0.9}, {"temp": 0.2}, "top_p"),
        ({"temp": 0.2}, {"top_p": 0.9}, "temp"),
        ({}, {"temp": 0.2, "top_p": 0.9}, "temp"),
        ({"temp": 0.2, "top_p": 0.9}, {"temp": 1}, "temp"),
    ],
)
def test_of_two_that_exclude_each_other_the_stronger_layers_is_sent(
    call: dict[str, Any], uri_values: dict[str, Any], sent: str
) -> None:
    layers = (ParameterLayer(origin="override", values=call), uri(**uri_values))
    mapped = map_all(*layers, profile=ONE_OF_TWO, on_unsupported="warn")
    (lost,) = {"temp", "top_p"} - {sent}
    assert set(mapped.params) == {sent}
    assert note(mapped, lost).action == "dropped"
    assert lost in mapped.warnings[0]
    # and none of them is dropped in silence
    with pytest.raises(UnsupportedError) as caught:
        map_all(*layers, profile=ONE_OF_TWO)
    assert caught.value.parameter == lost


BAD: list[tuple[str, Any, str]] = [
    ("temp", "0.5", "llm.bad-number"),
    ("temp", True, "llm.bad-number"),
    ("temp", 2.1, "llm.out-of-range"),
    ("temp", -0.1, "llm.out-of-range"),
    ("temp", float("nan"), "llm.out-of-range"),
    ("top_p", 1.5, "llm.out-of-range"),
    ("max_tokens", 0, "llm.out-of-range"),
    ("max_tokens", 1.5, "llm.bad-number"),
    ("max_tokens", True, "llm.bad-number"),
    ("top_k", -1, "llm.out-of-range"),
    ("seed", "7", "llm.bad-number"),
    ("timeout", 0, "llm.out-of-range"),
    ("timeout", 2**31, "llm.out-of-range"),
    ("retries", 101, "llm.out-of-range"),
    ("stream", "true", "llm.bad-boolean"),
    ("cache", 1, "llm.bad-boolean"),
    ("format", "xml", "llm.bad-value"),
    ("format", ["json"], "llm.bad-value"),
    ("system", 5, "llm.bad-value"),
    ("stop", 5, "llm.bad-value"),
    ("stop", [""], "llm.bad-value"),
    ("stop", "", "llm.bad-value"),
    ("stop", ["a", 1], "llm.bad-value"),
]


@pytest.mark.requirement("llm-10.3-a", "llm-10.3-b", "llm-10.3-c")
@as_subtests(("name", "value", "code"), BAD)
def test_a_value_that_is_none_for_its_parameter_is_refused_before_anything_is_sent(
    name: str, value: Any, code: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        map_all(ParameterLayer(origin="override", values={name: value}))
    error = caught.value
    assert (error.parameter, error.code) == (name, code)
    assert error.clause == "draft-levy-llm-uri-scheme-00 6"


def test_stop_is_a_text_or_several() -> None:
    assert map_all(uri(stop="end")).params == {"stop": ("end",)}
    assert map_all(uri(stop=["a", "b"])).params == {"stop": ("a", "b")}


def test_a_dialect_without_a_parameter_cannot_be_asked_for_it() -> None:
    wire = {name: parameter for name, parameter in openai_chat.parameters.items() if name != "top_k"}
    mapped = map_parameters([uri(seed=1)], provider=GENERIC, profile=DEFAULT_PROFILE, model="m", wire=wire)
    assert mapped.params == {"seed": 1}
    with pytest.raises(UnsupportedError):
        map_parameters([uri(top_k=1)], provider=GENERIC, profile=DEFAULT_PROFILE, model="m", wire=wire)
