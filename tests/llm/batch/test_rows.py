from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.llm.batch._rows import decode_row, make_answer_result
from onym.llm.batch._storage import get_label
from onym.llm.types import Completion, ToolCall
from support import as_subtests


def row(value, index=3):
    return decode_row(index, json.dumps(value).encode(), "m")


def test_a_prompt_is_one_user_turn_with_the_label_it_was_given():
    found = row({"id": "a", "prompt": "hello"})
    assert (found.position, found.id, found.messages, found.overrides, found.error) == (
        3,
        "a",
        "hello",
        {},
        None,
    )


def test_a_row_without_an_id_is_called_by_its_number():
    assert row({"prompt": "hello"}).id == "3"


def test_a_number_may_be_an_id():
    assert row({"id": 17, "prompt": "hello"}).id == "17"


def test_parameters_with_a_known_name_and_others_go_their_own_ways():
    found = row({"messages": [{"role": "user", "content": "x"}], "params": {"temp": 0.5, "min_p": 0.1}})
    assert found.overrides == {"temp": 0.5, "extra": {"min_p": 0.1}}


def test_tools_and_schema_are_arguments_of_the_call():
    tool, schema = {"name": "f"}, {"type": "object"}
    found = row({"prompt": "x", "tools": [tool], "tool_choice": "auto", "schema": schema})
    assert found.overrides == {"tools": [tool], "tool_choice": "auto", "schema": schema}


def test_retries_of_a_row_are_for_the_run_and_not_for_the_client():
    found = row({"prompt": "x", "params": {"retries": 2}})
    assert (found.retries, found.overrides) == (2, {})


def test_a_line_of_openais_batch_files_means_the_same_call():
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "m", "messages": messages, "temperature": 1, "max_completion_tokens": 9, "user": "u"}
    found = row({"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": body})
    assert found.id == "c"
    assert found.messages == messages
    assert found.overrides == {"temp": 1, "max_tokens": 9, "extra": {"user": "u"}}


@pytest.mark.parametrize(
    ("wanted", "means"),
    [
        ({"type": "text"}, {"format": "text"}),
        ({"type": "json_object"}, {"format": "json"}),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}}}, {"schema": {"a": 1}}),
    ],
)
def test_openais_response_format_is_read(wanted, means):
    assert row({"body": {"messages": [], "response_format": wanted}}).overrides == means


BODY = {"messages": []}


@as_subtests(
    "value",
    [
        {},
        [],
        "text",
        {"prompt": "a", "messages": []},
        {"prompt": 3},
        {"pormpt": "a"},
        {"id": 1.5, "prompt": "a"},
        {"id": True, "prompt": "a"},
        {"prompt": "a", "params": {"retries": -1}},
        {"prompt": "a", "params": {"retries": True}},
        {"body": {}},
        {"body": BODY, "prompt": "a"},
        {"body": BODY, "url": "/v1/embeddings"},
        {"body": {**BODY, "model": "other"}},
        {"body": {**BODY, "stream": True}},
        {"body": {**BODY, "response_format": "json"}},
        {"body": {**BODY, "response_format": {"type": "xml"}}},
        {"body": {**BODY, "response_format": {"type": "json_schema", "json_schema": {}}}},
    ],
)
def test_a_row_of_another_shape_is_an_error_of_that_row(value):
    found = row(value)
    assert found.error is not None
    assert found.error.code == "usage.bad-row"


@pytest.mark.parametrize("line", [b"{", b"", b"\xff", b'{"prompt": "\xff"}', b"[" * 100_000])
def test_what_is_no_json_is_an_error_of_that_row(line):
    found = decode_row(7, line, "m")
    assert (found.id, found.error.code) == ("7", "usage.bad-row")


def test_the_text_of_a_bad_row_is_not_in_its_error():
    found = row({"id": "a", "prompt": {"secret": "sk-proj-0123456789abcdefghij"}})
    assert "sk-proj" not in str(found.error)
    assert found.id == "a"


@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner)
       | st.dictionaries(st.sampled_from(["id", "custom_id", "prompt", "body", "params", "x"]), inner))
       .map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_line_is_a_row_whose_label_is_the_one_that_was_checked(line):
    found = decode_row(5, line, "m")
    assert found.id == get_label(5, line)


def test_a_result_has_the_tool_calls_of_its_answer():
    calls = (
        ToolCall(id="a", name="f", arguments="{}"),
        ToolCall(id="b", name="shell", arguments="ls", custom=True),
    )
    whole = Completion(text="", model="m", finish_reason="tool_calls", tool_calls=calls)
    assert json.loads(make_answer_result(0, "0", whole, 1).line)["tool_calls"] == [
        {"id": "a", "name": "f", "arguments": "{}"},
        {"id": "b", "name": "shell", "arguments": "ls", "custom": True},
    ]
