"""Credentials that stand apart from what gives them away: next lines, tables, brackets, lists of pairs.

Draft-levy-llm-uri-scheme-00 4.2.1 and 10.1: what is logged holds no api-key.
"""

from __future__ import annotations

import json

import pytest

from onym.uri.llm import LLMURI, check
from onym.uri.redact import redact, redact_stream
from onym.uri.secret import MARK
from support import as_subtests, linear_enough

KEY = "Zq8vT2mLx0Wc5RnB7yKd3Fh"

FOUND = [
    "llm://app: X@h.example/m",
    "llm://app:\n  X@h.example/m",
    "llm://my app:X@h.example/m",
    'llm://app:a"X@h.example/m',
    "llm://app:a<X@h.example/m",
    "llm://app:a`X@h.example/m",
    "api_key:\n  X\n",
    "api_key: |\n  X\n",
    "api_key: >-\n    X\nnext: 1",
    '"api_key":\n"X"',
    '{"X-Api-Key": ["X"]}',
    '{\n "X-Api-Key": [\n  "X"\n ]\n}',
    "map[X-Api-Key:[X]]",
    '{"Authorization": ["Bearer X"]}',
    "api_key=<X>",
    "api_key={{X}}",
    "| OPENAI_API_KEY | X |",
    "\u2502 api_key \u2502 X \u2502",
    "api_key,X",
    "x_api_key->X",
    "invalid api key 'X'",
    "set api_key to X",
    "--key X --verbose",
    "--credentials X",
    '{"name": "OPENAI_API_KEY", "value": "X"}',
    "- name: API_KEY\n  value: X\n",
    "- name: API_KEY\n  value: 'X'\n",
    '<add key="ApiKey" value="X" />',
    '<input type="password" value="X">',
    'Authorization: Hawk id="a", mac="X"',
    "docker login -u x -p X registry.example",
    "sshpass -p 'X' ssh h",
    "mysql -u root -pX db",
]

LEFT = [
    "Authorization:\nHost: h.example",
    "secret:\n  name: database",
    "token: [abc]",
    'password: {"type": "string"}',
    '{"password": ["is too short"]}',
    "password, email and name",
    "| token | type |",
    "token -> string",
    "(?:token|secret|private|authorization|client|session)",
    "the key to success",
    "add a token to headers",
    '{"name": "temperature", "value": "0.7"}',
    '{"name": "max_tokens", "value": "150000"}',
    '{"name": "API_KEY", "value": "$OPENAI_API_KEY"}',
    "- name: token\n  type: string",
    "docker run -u 1000:1000 -p 8080:8080 x",
    "docker login -p 5000 x",
    "mysql -u root -p mydatabase",
    "llm://openai mailto:bob@h.example",
    "llm://app then a@b",
    "llm://localhost: x",
    'JQQJ99 and "JQQJ99AAAA"',
]


@pytest.mark.requirement("llm-4.2.1-c", "llm-10.1-a")
@as_subtests("text", FOUND)
def test_a_credential_apart_from_its_name_is_hidden_in_whole_and_in_pieces(text: str) -> None:
    text = text.replace("X-A", "\0").replace("X", KEY).replace("\0", "X-A")
    out = redact(text)
    assert KEY not in out
    assert MARK in out
    assert redact(out) == out
    for size in (1, 5, 1000):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert "".join(redact_stream(pieces)) == out


@as_subtests("text", LEFT)
def test_what_stands_apart_and_is_no_secret_is_left(text: str) -> None:
    assert redact(text) == text
    assert "".join(redact_stream(text)) == text


def test_lines_that_may_each_go_on_are_held_together() -> None:
    text = f"api_key:\n  abc:{KEY}\nplain\n"
    assert KEY not in redact(text)
    assert "".join(redact_stream(text.splitlines(keepends=True))) == redact(text)


def test_a_long_word_in_a_stream_costs_no_square_of_its_length() -> None:
    line = "a" * 60_000 + "\n"
    with linear_enough(10):
        assert "".join(redact_stream([line, line])) == line * 2


def test_the_longer_keys_of_azure_are_found_around_their_mark() -> None:
    key = "4fW8" * 13 + "JQQJ99" + "BAACYeBjFXJ3w3AAABACOGt1ZP"
    assert redact(f"the key is {key}.") == f"the key is {MARK}."


def test_a_long_list_of_one_name_is_checked_in_one_pass() -> None:
    text = "llm://h.example/m?" + "&".join(["x=1"] * 200)
    with linear_enough(5):
        found = check(text)
    assert [each.code for each in found.diagnostics].count("llm.repeated") == 199
    assert isinstance(found.uri, LLMURI)
    assert KEY not in json.dumps(found.as_dict())


def test_of_many_lines_that_may_go_on_the_first_are_let_go() -> None:
    lines = ["a:\n"] * 12
    pieces = list(redact_stream(["".join(lines)]))
    assert len(pieces) == 2
    assert "".join(pieces) == "".join(lines)
