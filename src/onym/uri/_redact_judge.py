"""Whether the value behind a telling name is a secret, or a word of a program or a sentence."""

from __future__ import annotations

import re
from functools import cache

from onym.uri._redact_keys import looks_random
from onym.uri._redact_names import PASSWORDS, Weight, words
from onym.uri.secret import MARK

__all__ = ["drawn", "is_code", "is_secret"]

#: of a longer value, this much is looked at
SEEN = 256

# values that say something about a secret, and are none
_PLAIN = words(
    """
    true false null none nil undefined required optional missing invalid expired str string bytes text
    any object here hidden redacted masked secret password token is not was has must should may can
    the a an and or for authentication failed error wrong incorrect reset changed protected input bool
    int expected unicode
    """
)


@cache
def _harmless() -> re.Pattern[str]:
    """References, placeholders, formats, masks, addresses without userinfo, punctuation, one letter."""
    return re.compile(
        r"(?:env|file|keyring|vault)(?::|%3[aA]).*|\$\{?[A-Z_][A-Z0-9_]*\}?|%[a-z(].{0,40}|<.{0,40}|\{?[a-z_]*\}|:[a-z:]+"
        r"|https?://[^@]*|\*+|[\W_]+|.",
        re.DOTALL,
    )


@cache
def _code() -> re.Pattern[str]:
    return re.compile(r"_{0,2}[A-Za-z]{1,16}(?:[._][A-Za-z]{0,16}){0,8}")


def is_secret(value: str, word: str, weight: Weight) -> bool:
    """Whether a value with this much of a name is a secret, wherever it stands."""
    value = value[:SEEN].strip()
    if not value or value == MARK or value.lower() in _PLAIN or _harmless().fullmatch(value):
        return False
    if weight == "weak":
        return drawn(value, 16)
    return not (word == "token" and len(value) < 8 and value.replace(".", "").isdigit())


def is_code(value: str, word: str, spaced: bool) -> bool:
    """`token = other_token`, `key: str`, `token: missing`: an unquoted word that is no secret.

    `spaced` says that a colon or a blank stands before it.
    """
    value = value[:SEEN]
    if not _code().fullmatch(value):
        return False
    if value.lower().endswith(word):
        return True
    if word in PASSWORDS and word != "pass":
        return "_" in value or "." in value
    return spaced


def drawn(value: str, least: int) -> bool:
    """Whether the value is one word, long enough, and some piece of it looks drawn at random."""
    value = value[:SEEN]
    if len(value) < least or any(map(str.isspace, value)):
        return False
    return any(looks_random(part, 12) for part in re.split(r"[-_.:/]", value))
