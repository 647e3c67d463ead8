"""What a person types as an ai URI: mapped, judged, shown in both forms, warned of."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import OnymError, URIError, URILimitError
from onym.uri.ai import AIURI
from onym.uri.iri import InputWarning, UserInput, parse_user_input
from support import about, as_subtests, linear_enough, load_shared


def codes(text: str) -> list[str]:
    return [warning.code for warning in parse_user_input(text).warnings]


@pytest.mark.requirement("ai-i18n-d")
def test_both_forms_are_given() -> None:
    typed = parse_user_input("  ai://BÜCHER.example/straße?q=ü#oben ")
    assert typed == UserInput(
        uri=AIURI.parse("ai://xn--bcher-kva.example/stra%C3%9Fe?q=%C3%BC"),
        unicode="ai://bücher.example/straße?q=ü",
        warnings=(),
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        typed.unicode = ""  # type: ignore[misc]


def test_a_warning_names_its_label_and_the_scripts_in_it() -> None:
    assert parse_user_input("ai://shop.b\N{CYRILLIC SMALL LETTER A}nk.example/x").warnings == (
        InputWarning(
            code="mixed-script",
            message="the label mixes Cyrillic and Latin letters",
            part="b\N{CYRILLIC SMALL LETTER A}nk",
        ),
    )


@pytest.mark.parametrize(("text", "code"), [("https://a/b", "ai.wrong-scheme"), ("shop", "uri.no-scheme")])
def test_the_error_for_another_scheme_tells_the_right_one(text: str, code: str) -> None:
    with pytest.raises(URIError) as caught:
        parse_user_input(text)
    assert (caught.value.code, caught.value.component) == (code, "scheme")
    assert "ai:" in (caught.value.hint or "")


@as_subtests(
    "label",
    [
        "東京タワーtower",
        "ひらがなカタカナ漢字abc123",
        "한국漢字korea",
        "ㄅㄆㄇ漢字abc",
        "々〆",
        "имя24",
        "ελλάδα",
        "straße-münchen",
        "नमस्ते",
        "الأردن",
    ],
)
def test_a_label_in_one_script_or_in_those_written_together_is_no_surprise(label: str) -> None:
    assert codes(f"ai://{label}/x") == []


@pytest.mark.parametrize("label", ["ひ한", "ㄅか", "λb", "имяbank", "漢b\N{CYRILLIC SMALL LETTER A}", "नб"])
def test_any_other_mix_is_warned_of(label: str) -> None:
    assert codes(f"ai://{label}/x") == ["mixed-script"]


def test_scripts_are_judged_label_by_label_and_in_the_host_alone() -> None:
    assert codes("ai://имя.bank.example/x") == []
    assert codes("ai://bank/имяbank?имяname=имяbank") == []
    assert codes("ai:/имяbank") == []


@pytest.mark.parametrize(
    "host",
    [
        "\N{FULLWIDTH DIGIT ONE}\N{FULLWIDTH DIGIT TWO}\N{FULLWIDTH DIGIT SEVEN}.0.0.1",
        "127\N{IDEOGRAPHIC FULL STOP}0\N{IDEOGRAPHIC FULL STOP}0\N{IDEOGRAPHIC FULL STOP}1",
        "127\N{SOFT HYPHEN}.0.0.1",
        "\N{CIRCLED DIGIT ONE}.1",
        "0\N{FULLWIDTH LATIN SMALL LETTER X}7f.1",
        "169\N{HALFWIDTH IDEOGRAPHIC FULL STOP}254.169.254",
    ],
)
def test_an_address_in_disguise_is_an_address(host: str) -> None:
    with pytest.raises(URIError) as caught:
        parse_user_input(f"ai://{host}/x")
    assert caught.value.code == "ai.address-literal"


def test_a_refusal_counts_in_what_was_typed() -> None:
    text = " \t ai://bücher.example/\N{GRINNING FACE}/ü//x"
    with pytest.raises(URIError) as caught:
        parse_user_input(text)
    assert caught.value.offset == text.index("//x") + 1


def test_an_unseen_character_in_a_name_is_warned_of_whichever_form_was_typed() -> None:
    joined = "ai://نامه\N{ZERO WIDTH NON-JOINER}ای/"
    assert codes(joined) == ["invisible"]
    assert codes(str(parse_user_input(joined).uri)) == ["invisible"]


def test_only_text_is_typed_and_not_too_much() -> None:
    with pytest.raises(TypeError):
        parse_user_input(b"ai://bank/x")  # type: ignore[arg-type]
    with pytest.raises(URILimitError):
        parse_user_input("ai://bank/" + "x" * 2_048)
    with pytest.raises(URIError) as caught:
        parse_user_input("ai://bank/" + "ü" * 1_000)
    assert caught.value.code == "ai.too-long"


def test_the_damaged_ampersand_of_the_draft_is_recognised() -> None:
    with pytest.raises(URIError) as caught:
        parse_user_input("ai://factory.example/pay?amount=10¤cy=USD")
    assert (caught.value.code, caught.value.offset) == ("ai.ambiguous-query", 34)
    assert "&currency" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["bank.example/x", "//bank/x", "https://bank.example", "\uff41\uff49:/x"])
def test_a_name_without_its_scheme_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(URIError) as caught:
        parse_user_input(text)
    assert caught.value.hint == "an ai URI starts with ai:"


@pytest.mark.requirement("ai-i18n-c")
def test_a_typed_host_is_mapped_as_uts_46_and_idna_2008_agree_and_then_judged() -> None:
    for case in load_shared("idna.json")["cases"]:
        with about(case):
            check_typed_host(case)


def check_typed_host(case: dict[str, Any]) -> None:
    plain = case["input"].isascii() and "xn--" not in case["input"].lower()
    mapped = case["input"].lower() if plain else case["idna2008_pkg"].get("ascii")
    try:
        expected = None if mapped is None else AIURI.parse(f"ai://{mapped}/").target.host
    except URIError:
        expected = None
    try:
        host = parse_user_input(f"ai://{case['input']}/").uri.host
    except URIError:
        host = None
    assert host == expected
    if host is not None and case["agree"]:
        assert host == case["uts46_toascii"]


@given(st.text(max_size=30), st.text("aиひ한漢ü\uff11。\u00ad.-:", max_size=12))
def test_what_is_accepted_is_canonical_and_reads_back(text: str, host: str) -> None:
    for typed in (text, f"ai:/{text}", f"ai://bank/{text}", f"ai://{host}/{text}"):
        try:
            result = parse_user_input(typed)
        except OnymError as error:
            assert error.code.startswith(("uri.", "ai."))  # noqa: PT017
            continue
        assert result.uri.canonical() == str(result.uri)
        assert parse_user_input(result.unicode).uri == result.uri
        assert parse_user_input(str(result.uri)).unicode == result.unicode


def test_reading_takes_linear_time() -> None:
    with linear_enough():
        for typed in ("ai://" + "ü." * 1_000, "ai://b/" + "ü/" * 1_000, "ai://b?" + "\u00ad" * 2_000):
            with pytest.raises(URIError):
                parse_user_input(typed)


def test_idna_is_loaded_by_those_who_type_and_not_by_the_mapping() -> None:
    code = (
        "import sys; from onym.uri.ai import to_https; from onym.uri.ai import AIURI\n"
        "to_https('https://ai.example', AIURI.parse('ai://bank/x')); assert 'idna' not in sys.modules\n"
        "import onym.uri.iri; assert 'idna' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_text_can_be_typed() -> None:
    with pytest.raises(TypeError):
        parse_user_input(b"ai://example.com/x")  # type: ignore[arg-type]
