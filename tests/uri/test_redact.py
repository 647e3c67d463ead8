"""Credentials out of any text, whole or in pieces (draft 4.2.1, 10.1)."""

from __future__ import annotations

import importlib
import random
import re
import string
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import onym.uri.redact as redact_module
from onym.uri import _secret_detection
from onym.uri._secret_detection import (
    _LOOSE,
    _SHAPES,
    TextView,
    looks_random,
    lower_text,
    replace_lookalikes,
    weigh_name,
)
from onym.uri.redact import WINDOW, is_secret_name, redact, redact_stream
from onym.uri.secret import MARK, Secret
from support import as_subtests

KEY = "Zq8vT2mLx0Wc5RnB7yKd3Fh"
ALNUM = string.ascii_letters + string.digits


# --- what may stand around a key, and what a key may be made of

#: places where whatever stands in for KEY is the credential
PLACES = [
    "llm://app:KEY@h.example/m",
    "LLM://App:KEY@H.EXAMPLE/m?temp=0.7",
    "llm://:KEY@h.example/m",
    "see (llm://app:KEY@h.example/m), or [llm://b:KEY@i.example/n]",
    "llm://a:KEY@h.example/mllm://b:KEY@i.example/n",
    "llm%3A%2F%2Fapp%3AKEY%40h.example%2Fm",
    '{"uri": "llm:\\/\\/app:KEY@h.example\\/m"}',
    '{"uri": "llm\\u003a\\u002f\\u002fapp\\u003aKEY\\u0040h.example"}',
    "\uff4c\uff4c\uff4d://app:KEY\uff20h.example/m",
    "https://app:KEY@h.example/v1",
    'password="KEY"',
    "'client_secret': 'KEY'",
    "Authorization: Bearer KEY",
    "--api-key=KEY",
]
#: letters of keys that every place can hold unescaped
keys_of_letters = st.text(ALNUM + "-_.~", min_size=20, max_size=60).filter(
    lambda text: any(map(str.isdigit, text)) and any(map(str.isalpha, text)) and text[0] in ALNUM
)


@pytest.mark.requirement("llm-4.2.1-c", "llm-10.1-a")
@given(st.sampled_from(PLACES), keys_of_letters)
def test_no_piece_of_a_key_is_left_wherever_it_stands(place: str, key: str) -> None:
    out = redact(place.replace("KEY", key))
    assert key[:8] not in out
    assert key[-8:] not in out
    assert MARK in out


#: any key but what reads as the end of the userinfo and a path (`@` and a slash), or as the start of a URI
raw_keys = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters='"<>`'), min_size=8
).filter(lambda key: not re.search(r"@[^@]*[/\\]|(?:^|:)[/\\]{2}|llm:", key, re.IGNORECASE))


@pytest.mark.requirement("llm-10.1-a")
@given(raw_keys)
@example("00000?00")
@example("@000000?")
@example("/12345678")
@example("12345/678")
def test_whatever_stands_as_key_before_a_host_goes_and_the_label_stays(key: str) -> None:
    out = redact(f"llm://my-app:{key}x7@h.example/m")
    assert out.startswith("llm://my-app:")
    assert f"{key}x7" not in out
    assert "h.example/m" in out


def drawn(run: str, length: int, seed: int) -> str:
    alphabet = {"\\w": ALNUM + "_", "[0-9a-f]": "0123456789abcdef", "[A-Z0-9]": string.ascii_uppercase}
    chosen = alphabet.get(run, ALNUM)
    return (
        "".join(random.Random(seed).choices(chosen, k=length - 2)) + "7f"
        if run != "[A-Z0-9]"
        else "Q7" * length
    )


@as_subtests(("start", "run", "least"), [*_SHAPES, *_LOOSE])
def test_every_shape_is_found_in_text_and_in_each_part_of_a_uri(start: str, run: str, least: int) -> None:
    for seed in range(5):
        key = start + drawn(run, least + 8, seed)
        for text in (
            "X",
            "a X b",
            '"X"',
            "a=X&b=1",
            "llm://X@h/m",
            "llm://h/X",
            "llm://h/m#X",
            "llm://h/m?stop=X",
            "\\nX\\n",
        ):
            out = redact(text.replace("X", key))
            assert key not in out
            assert MARK in out


@as_subtests(("start", "run", "least"), [*_SHAPES, *_LOOSE])
def test_the_start_of_a_shape_alone_or_inside_a_word_is_left(start: str, run: str, least: int) -> None:
    for text in (start, f"{start}test", f"x{start}" if start[0].isalnum() else start, f"a {start} b"):
        assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP-mBAaRzU",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\\n-----END PRIVATE KEY-----\\n",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU",
    ],
)
def test_keys_of_other_makes_are_found(text: str) -> None:
    assert MARK in redact(text)
    assert not any(piece in redact(text) for piece in ("IOSFODNN7", "eyJzdWIi", "MIIE", "b3BlbnNz"))


def test_a_private_key_ends_where_it_says_and_what_follows_stays() -> None:
    block = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----"
    assert redact(f"a {block}\nb {block} c") == "a ***\nb *** c"
    assert redact("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"
    assert redact("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END") == "***"
    assert redact("-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQ").endswith("w0BAQ")
    far = (
        "-----BEGIN PRIVATE KEY-----\n"
        + "MIIEvQIBADANBgkq\n" * 3
        + "words " * 4_000
        + "-----END PRIVATE KEY-----"
    )
    assert redact(far).startswith("***\nwords words")
    nested = "-----BEGIN PRIVATE KEY-----\n-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
    assert redact(nested) == "***"


# --- names


@as_subtests(
    "name",
    [
        "api_key", "apikey", "api-key", "apiKey", "APIKey", "X-Api-Key", "x-goog-api-key",
        "OPENAI_API_KEY", "OPENAI_KEY_2", "key", "token", "access_token", "accessToken", "authtoken",
        "HF_TOKEN", "secret", "clientSecret", "topsecret", "password", "DB_PASSWORD", "passwd", "pwd",
        "mypassword", "auth", "Authorization", "Proxy-Authorization", "sig", "signature",
        "X-Amz-Signature", "credential", "credentials", "cookie", "Set-Cookie", "jwt", "private_key",
        "AccountKey", "a.key", "bearer", "session.token",
    ],
)  # fmt: skip
def test_names_of_credentials_are_known(name: str) -> None:
    assert is_secret_name(name) or weigh_name(name[:-3], name[-3:]) == "weak" or name == "OPENAI_KEY_2"


@as_subtests(
    "name",
    [
        "max_tokens", "tokens", "keyboard", "monkey", "author", "authority", "design", "sigma", "assign",
        "tokenizer", "pad_token", "eos_token", "next_page_token", "public_key", "primary_key", "cache_key",
        "cache.key", "keys", "secrets", "password_hint", "passing", "oauth_url", "bypass", "temp", "",
        "turkey", "design-config",
    ],
)  # fmt: skip
def test_names_that_only_look_like_credentials_are_not(name: str) -> None:
    assert not is_secret_name(name)


def test_the_words_before_a_name_count_too() -> None:
    assert weigh_name("", "key", "the API ") == "strong"
    assert weigh_name("", "key", "the public ") == "none"
    assert weigh_name("", "key", "\n") == "weak"
    assert weigh_name("", "key", "   ") == "weak"
    assert weigh_name("http", "Key") == "weak"
    assert weigh_name("HTTP", "Key") == "none"


#: what a program, a sentence or a configuration says of a secret, without being one
HARMLESS = [
    "password = my_settings.value", "pwd: a_b", "token = other_token", "key: str", "token: missing",
    "token={", "token {", "prompt='Password: '", "bearer abcdefghijklmnop", " ://u:p@h",
    "x: //u:p@h.example", "token=${TOKEN}", "api_key=<key>", "--api-key -x", "--api-key short",
    "password: https://h.example/reset", "cookie: yes", "<key>plain</key>", "a token > b",
    "Authorization: ", "Authorization: Bearer", "Authorization: Basic {}", "authorization: none given",
    "('authorization', 'required')", "secret=''", 'secret=""', "os.getenv('API_KEY')",
    "api_key=get('API_KEY')", "sig=ok", "llm://app:@h.example/m", "llm://app:$PORT/m",
    "llm://app:{port}/m", "https://h.example:8080/a@b.c", "https://a:x/b@c", "llm://[::1]/a@b", "llm:",
    "llm: a:b@c", "token=12345", "token=1.5", "-u 1000:1000", "llm://app%3A443/m", "llm://app:/m@v1",
    "api_key: os.environ/OPENAI_API_KEY", "OPENAI_API_KEY=sk-...", "OPENAI_API_KEY=sk-…",
    "ANTHROPIC_API_KEY=your-api-key-here", 'api_key="YOUR_API_KEY"',
]  # fmt: skip


@as_subtests("text", HARMLESS)
def test_what_only_speaks_of_secrets_is_left(text: str) -> None:
    assert redact(text) == text


@as_subtests(
    ("text", "out"),
    [
        (f'password="{KEY}\n', 'password="***\n'),
        (f"password='{KEY}", "password='***"),
        ('{\\"api_key\\": \\"ab cd\\"}', '{\\"api_key\\": \\"***\\"}'),
        ("password='it\\'s me'", "password='***'"),
        ("password='a\\\\' and", "password='***' and"),
        ("Authorization: Custom abc12345", "Authorization: Custom ***"),
        ("authorization: abcdefghijklmnopqrstuvwxyz", "authorization: ***"),
        ("Authorization: 12345-abc", "Authorization: ***"),
        ('"Authorization": "Digest a=b, c=d"', '"Authorization": "***"'),
        ("Authorization: Digest a=b, c=d", "Authorization: ***"),
        ("--password swordfish", "--password ***"),
        ("llm://a/b?key=short1key", "llm://a/b?key=***"),
        ("Set-Cookie: a=b; Path=/", "Set-Cookie: ***"),
        ("{'Cookie': 'a=b; c=d'}", "{'Cookie': '***'}"),
        ("https://a:b/c@d.example/", "https://a:***@d.example/"),
        ("llm://app:/k/k@h.example", "llm://app:***@h.example"),
        ("llm://app:12/k@h.example/m", "llm://app:***@h.example/m"),
        ("llm://app:12?k@h.example/m", "llm://app:***@h.example/m"),
        ("llm://ollama:11434/llama3@1.2", "llm://ollama:11434/llama3@1.2"),
        ("llm://h.example:443/a@b.example", "llm://h.example:443/a@b.example"),
        ("llm://a:k@ss/word@h.example/m", "llm://a:***@h.example/m"),
        ("llm://a:k@ss?x@h.example/m", "llm://a:***@h.example/m"),
        ("llm://a:k@openai?x", "llm://a:***@openai?x"),
        ("https://a:k@db?user=a@b", "https://a:***@db?user=a@b"),
        ("llm://a:k@openai/gpt-5?user=a@b", "llm://a:***@openai/gpt-5?user=a@b"),
        ("llm://a:k@openai/gpt-5", "llm://a:***@openai/gpt-5"),
        (f"llm://{'a1' * 16}@h/m", "llm://***@h/m"),
        ("llm://a%3Ak%40h/m", "llm://a%3A***%40h/m"),
        ("llm://a:k b@c.d e@f", "llm://a:***@c.d e@f"),
        ("llm://a:k\nb c", "llm://a:***\nb c"),
        ("llm://a%3Ak/m", "llm://a%3A***"),
        ("api_key=" + "x7" * 1_000, "api_key=***"),
        ("key=" + "ab " * 500 + f"key={KEY}", "key=" + "ab " * 500 + "key=***"),
    ],
)
def test_what_is_hidden_is_the_credential_and_no_more(text: str, out: str) -> None:
    assert redact(text) == out


def test_a_long_run_that_is_no_secret_is_read_once() -> None:
    text = "key=" + "-" * 2_000 + f"key={KEY}"
    assert redact(text) == text  # one run without blanks, and what begins it is no secret
    assert redact(text.replace("key=Z", " key=Z")).endswith(" key=***")


def test_searching_again_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact_module, "_ROUNDS", 1)
    assert redact(f"llm://a:{KEY}@h.example/m") == "llm://a:***@h.example/m"


# --- properties


#: pieces that mean something to the redactor, to be put together in any order
PIECES = [
    "llm://", "llm:", "app", ":", "@", "h.example", "/m", "?", "#", "api_key", "=", '"', "'", " ", "\n",
    "\r\n", "\t", "sk-proj-", "abcDEF123456789xyz", KEY, "%40", "%3A", "%2F", "\\/", "\\u0040", '\\"',
    "\\n", "&", "&#64;", "&#x3a;", "Authorization: ", "Bearer ", "password", "token", "key", "secret",
    "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQ",
    "cookie: a=b", "-u ", "x:", "https://", "u:p@", "***", "*", "{", "}", "(", ")", "[", "]", ",", ";",
    "<", ">", "</", "\uff4c\uff4c\uff4d", "\u200b", "\x1b[31m", "\xe9", "\u0130", "123", "12345", "...",
    "\u2026", ".", "-", "_", "auth", "sig", "max_", "AKIA", "eyJhbGciOiJIUzI1NiJ9.", "%25", "%", "\\",
    "localhost", "port", "$", "API", "Key", "api ", "digest ", "env:X", "None", "str",
    "llm://app:KEYKEY1 ", "b@c.d", "llm://a:k", "//", "//app:abcd1", "@h", "netloc", "userinfo", "authority=",
    "proxy: ", "auth=('app', '", "')", "{password}", "app:", "nonnumeric port: '", "=\n", ">\n",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=24).map("".join)


@given(texts)
@example('\\n=%3Allm://app:KEYKEY1 \\"None')
@example("llm://app:KEY b@c.d@e.f")
def test_redaction_is_idempotent(text: str) -> None:
    out = redact(text)
    assert redact(out) == out


@given(texts, st.lists(st.integers(0, 200), max_size=8))
@example("-----BEGIN PRIVATE KEY-----\n-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n", [30, 60])
@example("llm://app:abc\n  def@h.example\nx", [3, 14, 20])
@example("see x:\nnext\n", [6, 7])
def test_any_cutting_gives_what_the_whole_gives(text: str, cuts: list[int]) -> None:
    borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    cut_up = [text[a:b] for a, b in pairwise(borders)]
    assert "".join(redact_stream(cut_up)) == redact(text)


@given(st.text())
def test_any_text_goes_through(text: str) -> None:
    assert isinstance(redact(text), str)


@given(texts, texts, st.text(ALNUM, min_size=6, max_size=20))
def test_a_known_secret_is_gone_wherever_it_stood(before: str, after: str, key: str) -> None:
    text = f"{before}{key}{after}{key}"
    for known in (key, Secret(key)):
        assert key not in redact(text, secrets=[known])
    assert key not in "".join(redact_stream([before, key, after, key], secrets=[key]))


def test_a_known_secret_is_found_in_every_spelling() -> None:
    key = "p\u00e4ss/w:rt"
    spelled = [
        "p\u00e4ss/w:rt",
        "p\u00e4ss%2Fw%3Art",
        "p\\u00e4ss\\/w:rt",
        "p&#xe4;ss/w&colon;rt",
        "p\u00e4ss\uff0fw:rt",
    ]
    for text in spelled:
        assert redact(f"a {text} b", secrets=[key]) == "a *** b"


def test_known_secrets_too_short_to_tell_from_text_are_left_alone() -> None:
    assert redact("an abc of things", secrets=["abc", "", MARK]) == "an abc of things"
    assert redact("aaaaaa", secrets=["aaaa"]) == MARK


@pytest.mark.parametrize("wrong", [b"llm://a:k@h/m", None, 5])
def test_only_text_is_taken(wrong: Any) -> None:
    with pytest.raises(TypeError):
        redact(wrong)
    with pytest.raises(TypeError):
        list(redact_stream([wrong]))
    with pytest.raises(TypeError):
        redact("x", secrets=wrong)


@pytest.mark.parametrize("one", ["sk-one", Secret("sk-one")])
def test_secrets_are_a_collection(one: Any) -> None:
    with pytest.raises(TypeError, match="collection"):
        redact("x", secrets=one)


# --- layers


def test_each_layer_leads_back_to_where_it_was_written() -> None:
    view = TextView.undo_escapes("a%3Ab\\u0040&#64;&sol;c")
    assert view is not None
    assert view.text == "a:b@@/c"
    assert view.map_back((1, 2)) == (1, 4)
    assert view.map_back((2, 4)) == (4, 11)
    assert view.map_back((0, 7)) == (0, 22)
    assert view.has_escape(1, 2)
    assert not view.has_escape(2, 3)
    assert view.has_escape(2, 4)
    assert TextView.undo_escapes("no escapes: 100% & \\ more") is None
    assert TextView.undo_escapes("nothing") is None


def test_lines_far_from_an_escape_are_left_out_of_its_layer() -> None:
    filler = "".join(f"line {number}\n" for number in range(2_000))
    text = f"{filler}llm%3A//app%3A{KEY}@h/m\n{filler}api%5Fkey={KEY}\n{filler}"
    view = TextView.undo_escapes(text)
    assert view is not None
    assert len(view.text) < 1_000
    at = view.text.index("api_key")
    start, end = view.map_back((at, at + 7))
    assert text[start:end] == "api%5Fkey"
    assert redact(text) == text.replace(KEY, MARK)
    assert TextView.undo_escapes(f"{filler}100 % of it\n") is None


def test_a_long_line_with_an_escape_is_searched_completely() -> None:
    for text in (
        f"api%5Fkey={'-' * 9_000}={KEY}",
        f"{'word ' * 2_000}llm%3A//app:{KEY}@h/m{' word' * 2_000}",
    ):
        view = TextView.undo_escapes(text)
        assert view is not None
        assert len(view.text) == len(text) - 2
    assert redact(text) == text.replace(KEY, MARK)


def test_a_private_key_whose_escapes_are_far_apart_is_hidden() -> None:
    body = "MIIEvQIBADANBgkqhkiG9w0BAQ\n" * 250
    text = f"a\n-----BEGIN%20PRIVATE KEY-----\n{body}-----END PRIVATE%20KEY-----\nb"
    assert redact(text) == "a\n***\nb"


def test_escapes_that_mean_no_character_stay_as_they_are() -> None:
    view = TextView.undo_escapes("&#9999999;%41")
    assert view is not None
    assert view.text == "&#9999999;A"


def test_invisible_characters_and_colours_are_read_over() -> None:
    view = TextView.strip_invisible("l\u200blm\x1b[0m:")
    assert view is not None
    assert view.text == "llm:"
    assert view.map_back((0, 4)) == (0, 9)
    assert TextView.strip_invisible("\xe9") is None
    assert TextView.strip_invisible("plain") is None


@given(st.text())
def test_levelling_and_lowering_keep_every_position(text: str) -> None:
    assert len(replace_lookalikes(text)) == len(lower_text(text)) == len(text)


def test_the_same_escape_may_stand_inside_another_up_to_a_limit() -> None:
    text = f"llm:%2F%2Fapp:{KEY}@h.example"
    for _ in range(_secret_detection.LAYERS - 1):
        text = text.replace("%", "%25")
        assert KEY not in redact(text)


# --- streams


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def test_a_stream_lets_each_line_go_as_soon_as_it_is_whole() -> None:
    source = redact_stream(iter(["one\n", "two", "\nthree\n", "four"]))
    assert next(source) == "one\n"
    assert next(source) == "two\nthree\n"
    assert list(source) == ["four"]


def test_a_line_that_may_go_on_is_held_until_the_next() -> None:
    source = redact_stream(iter(["at llm://app:abc\n", "  def@h.example\n", "end"]))
    assert "".join(source) == "at llm://app:***@h.example\nend"


@as_subtests("unit", ["word ", "x", f"api_key={KEY}, ", f"llm://a:{KEY}@h.example/m ", "k\u00f6nig%20"])
@pytest.mark.parametrize("size", [3_000, 300_000])
def test_lines_far_longer_than_the_window_leak_nothing_and_lose_nothing_harmless(
    unit: str, size: int
) -> None:
    text = unit * (300_000 // len(unit))
    out = "".join(redact_stream(pieces(text, size)))
    assert KEY not in out
    if KEY not in unit:
        assert out == text


def test_a_value_stays_with_its_name_where_a_long_line_is_cut() -> None:
    for shift in range(0, 400, 7):
        filler = "w" * (2 * WINDOW - redact_module._MARGIN - shift) + " "
        text = f'{filler}"api_key": "{KEY}" ' + "v" * redact_module._MARGIN * 2
        assert KEY not in "".join(redact_stream(pieces(text, 1_024)))


@pytest.mark.parametrize("end", ["@h.example/m and more", " and more", "\n", ""])
def test_a_secret_longer_than_the_window_is_hidden_to_its_end(end: str) -> None:
    key = "bK7" * 100_000
    out = "".join(redact_stream(pieces(f"llm://app:{key}{end}", 5_000)))
    assert "bK7" not in out
    assert out.startswith("llm://app:***")
    assert out.endswith(end)


def test_a_long_secret_that_ends_within_the_window_is_hidden_whole() -> None:
    text = f"llm://app:{'bK7' * 45_000}@h.example/m" + "x" * 5_000
    out = "".join(redact_stream(pieces(text, 1_000)))
    assert "bK7" not in out
    assert "h.example/m" in out


def test_a_stream_holds_no_more_than_its_windows() -> None:
    pulled = 0

    def source() -> Iterator[str]:
        nonlocal pulled
        for _ in range(200):
            pulled += 10_000
            yield "y" * 10_000

    given_out = 0
    for piece in redact_stream(source()):
        given_out += len(piece)
        assert pulled - given_out <= 2 * WINDOW + 10_000
    assert given_out == pulled


def test_a_private_key_is_hidden_however_its_lines_arrive() -> None:
    block = (
        "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQ\n" * 20 + "-----END PRIVATE KEY-----\n"
    )
    text = f"before\n{block}after\n"
    assert "".join(redact_stream(text.splitlines(keepends=True))) == "before\n***\nafter\n"


def test_an_unfinished_private_key_is_held_back() -> None:
    source = redact_stream(
        iter(["a\nb -----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqh\n", "-----END PRIVATE KEY-----\nc"])
    )
    assert next(source) == "a\n"
    assert list(source) == ["b ***\n", "c"]


def test_a_secret_over_a_line_border_is_not_cut_there() -> None:
    block = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqh\n-----END PRIVATE KEY-----"
    assert list(redact_stream([f"a\nx {block} y\nz {block} {block}\n", "end"])) == [
        "a\nx *** y\nz *** ***\n",
        "end",
    ]
    assert "".join(redact_stream([f"a\nx {block}"])) == "a\nx ***"


# --- time

HEAVY = [
    "llm:", "llm://a:b@", "llm://a:b ", "x://a:b/@", "key=", 'token=\\"', "key ", "%25", "%2525", "\\",
    "\\u0041", "&#58;", "\x1b[31m", "\u200b", "\uff4c", "-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaaa.",
    "A", "@", '"', "<key>", "cookie: ", "a=", "llm://a%3A", "digest ", "bearer ", "-u a:",
    "authorization: ", f"{KEY} ", "//a:", "//a:bcde@", "userinfo:", "userinfo='a:", "netloc='", "proxy=",
    "authority,'", ":a@", f":{KEY}", "auth=('a','", "auth=", "nonnumeric port: '",
]  # fmt: skip


@as_subtests("unit", HEAVY)
def test_time_grows_no_faster_than_the_text(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        tries = []
        for _ in range(2):  # a collection of garbage may fall into one
            started = time.thread_time()
            redact(text)
            tries.append(time.thread_time() - started)
        return min(tries)

    seconds(1_000)
    # linear time is 40 times as long, quadratic time 1,600 times
    assert seconds(80_000) < 400 * seconds(2_000) + 0.1


PLAIN_LINES = "The quick brown fox jumps over the lazy dog.\n" * 400
KEY_LINES = "".join(f"{KEY}{number:04}abcdefghijklmnopqrstuvwxyz\n" for number in range(60))


@as_subtests(
    "piece",
    [
        f"see llm://app:{KEY}@h.example/m\n",
        f"password:\n  {KEY}\npassword = hunter2hunter2\n",
        f"-----BEGIN PRIVATE KEY-----\n{KEY_LINES}pwd=hunter2hunter2\n{KEY_LINES}-----END PRIVATE KEY-----\n",
        f"token: {KEY}\n-----BEGIN PRIVATE KEY-----\n{KEY_LINES}",
        f"-----BEGIN CERTIFICATE-----\n{KEY_LINES}token: {KEY}\n-----END CERTIFICATE-----\n",
        f'{{"name": "API_KEY",\n\n\n\n"value": "{KEY}"}}\n{{"a": "\\u0040"}}\n',
        f"https://app:{KEY}@h.example/ https://app:hunter2@h.example/\n" * 40,
    ],
)
def test_a_long_text_around_a_secret_changes_nothing_of_its_redaction(piece: str) -> None:
    shown = redact(piece)
    assert shown != piece
    for text, expected in (
        (PLAIN_LINES + piece + PLAIN_LINES, PLAIN_LINES + shown + PLAIN_LINES),
        ((piece + PLAIN_LINES) * 3, (shown + PLAIN_LINES) * 3),
    ):
        assert redact(text) == expected
        assert redact(expected) == expected


def test_a_known_secret_of_many_lines_is_removed_from_a_long_text() -> None:
    text = f"{PLAIN_LINES}password={KEY}\n{KEY_LINES}{PLAIN_LINES}"
    shown = redact(text, secrets=[KEY_LINES])
    assert KEY not in shown
    assert redact(shown, secrets=[KEY_LINES]) == shown


def test_lookalikes_are_found_whether_a_text_has_few_or_many_different_ones() -> None:
    wide = str.maketrans({code: code + 0xFEE0 for code in range(0x21, 0x7F)})
    for text in (f"llm://app:{KEY}@h.example/m", "llm://a:bbb@h/m"):
        shown = redact(text.translate(wide))
        assert "***" in shown
        assert not any(part.translate(wide) in shown for part in (KEY, "bbb"))


def test_importing_it_compiles_nothing_and_imports_no_logging() -> None:
    code = (
        "import sys; import onym.uri.redact; assert 'logging' not in sys.modules;"
        "from onym.uri._secret_detection import _get_pattern;"
        "assert _get_pattern.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_it_does_not_have_is_said_as_usual() -> None:
    module = importlib.import_module("onym.uri.redact")
    with pytest.raises(AttributeError, match="nonsense"):
        _ = module.nonsense


def test_words_are_random_when_they_have_digits_and_letters_or_are_very_long() -> None:
    assert looks_random("abc123def456", 12)
    assert looks_random("aBcDeFgHiJkLmNoPqRsTu", 12)
    assert looks_random("a" * 24, 12)
    assert not looks_random("abcdefghijklmnopqrst", 12)
    assert not looks_random("123456789012", 12)
    assert not looks_random("a1", 12)


def test_an_error_text_of_another_library_shows_no_key() -> None:
    try:
        int(f"llm://app:{KEY}@h.example:x/m")
    except ValueError as error:
        text = "".join(traceback.format_exception(error))
    assert KEY in text
    assert KEY not in redact(text)


def test_an_app_label_stays_whether_its_colon_is_encoded_or_it_is_called_a_token() -> None:
    for text in (
        "llm://my-app%3Ahunter2hunter2@api.example.com/m",
        "llm://token:hunter2hunter2@api.example.com/m",
    ):
        shown = redact(text)
        assert "hunter2" not in shown
        assert shown.startswith(text[: text.index("hunter2")])
