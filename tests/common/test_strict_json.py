"""JSON and base64url with one meaning."""

from __future__ import annotations

import pytest

from onym.common.text import decode_base64url, encode_base64url, parse_json_object, parse_json_value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1, "a": 2}', "repeats a member"),
        (b'{"b": {"a": 1, "a": 1}}', "repeats a member"),
        (b"{", "is not JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b'{"a": 1e999}', "is not JSON"),
        (b'{"a": %s}' % (b"1" * 5000), "is not JSON"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b"[]", "is not a JSON object"),
        (b"[" * 100_000, "nests too deep"),
        (b'{"a":' + b"[" * 16 + b"]" * 16 + b"}", "nests deeper than 16 levels"),
    ],
)
def test_json_with_another_meaning_is_rejected(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_json_object(content)


def test_json_with_one_meaning_is_read() -> None:
    assert parse_json_object(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert parse_json_value("[1]") == [1]
    assert parse_json_object(b'{"a":' + b"[" * 20 + b"]" * 20 + b"}", max_depth=22)


def test_base64url_has_one_spelling() -> None:
    for content in (b"", b"a", b"ab", b"abc", bytes(range(256))):
        assert decode_base64url(encode_base64url(content)) == content
    for text in ("a", "YR", "YQ==", "Y Q", "a+/b", "é"):
        with pytest.raises(ValueError, match="is not base64url"):
            decode_base64url(text)
