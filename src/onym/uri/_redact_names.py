"""Which names say that their value is a secret.

The last word of a name decides, with what stands before it: `access_token` is a secret, `max_tokens`
and `pad_token` are not, `keyboard` holds no such word at all.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

__all__ = ["HEAD", "PASSWORDS", "WORDS", "Weight", "is_secret_name", "weigh", "words"]

#: strong: whatever the value is; weak: a value that looks drawn at random; none: not a secret's name
Weight: TypeAlias = Literal["strong", "weak", "none"]


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


PASSWORDS = frozenset({"password", "passwd", "passphrase", "passcode", "pwd", "pass"})
_STRONG = PASSWORDS | {"secret", "token", "authorization", "jwt"}
_WEAK = frozenset({"auth", "sig", "signature", "credential", "credentials", "cookie", "bearer"})
WORDS = tuple(sorted(_STRONG | _WEAK | {"key"}))

#: characters of a name, before its last word
HEAD = "abcdefghijklmnopqrstuvwxyz0123456789_.-"

# before `key`: these make it a secret, these never do
_KEY_OF = words(
    """
    api access secret private auth account subscription master admin service encryption signing
    signature application shared storage license deploy webhook bot client user session
    """
)
_NO_KEY_OF = words(
    """
    public primary foreign cache sort partition row object hash range routing idempotency hot soft
    composite unique natural surrogate index lookup group dict map sorting join translation message
    shortcut param field
    """
)
# before `token`: words of tokenizers, parsers and paging
_NO_TOKEN_OF = words(
    """
    max min pad eos bos unk sep mask cls stop start end special next page previous prev first last
    continuation per each num count n new invalid unexpected expected image audio video text prompt
    completion output input
    """
)
# what stands glued to a word without a border: `apikey`, `authtoken`
_GLUED = re.compile(r"(?:api|access|secret|private|auth|client|session|bearer|refresh|id|db|user|my|o)$")
_ANY_GLUED = frozenset({"password", "passwd", "passphrase", "secret"})
_HUMP = re.compile(r"[A-Z]?[a-z0-9]*$|[A-Z0-9]+$")
_NUMBER = re.compile(r"[_-]?[0-9]{1,2}$")


@lru_cache(maxsize=1024)
def weigh(head: str, word: str, before: str = "") -> Weight:
    """How much a name says of its value.

    `word` is its last word as written (one of `WORDS`, any case), `head` what stands before it in the
    name, `before` the text in front of the name ("api " of "API key").
    """
    low = word.lower()
    qualifier = _qualifier(head, word, before)
    if qualifier is None:
        return "none"
    if low == "key":
        return "strong" if qualifier in _KEY_OF else "none" if qualifier in _NO_KEY_OF else "weak"
    if low == "token" and qualifier in _NO_TOKEN_OF:
        return "none"
    return "strong" if low in _STRONG else "weak"


def _qualifier(head: str, word: str, before: str) -> str | None:
    """The word before the last one, "" where there is none, None where no border stands between."""
    if not head:
        left = before[-16:].lower()
        return left.split()[-1] if left.endswith(" ") and left.strip() else ""
    if head[-1] in "-_.":
        return re.split(r"[-_.]", head.rstrip("-_."))[-1].lower()
    if word[0].isupper() and not head[-1].isupper():
        hump = _HUMP.search(head)
        return hump[0].lower() if hump else ""
    low = head.lower()
    glued = _GLUED.search(low)
    if glued:
        return glued[0]
    return low if word.lower() in _ANY_GLUED else None


def is_secret_name(name: str) -> bool:
    """Whether a parameter, header, variable or field of that name holds a credential.

    `api_key`, `X-Api-Key`, `clientSecret`, `OPENAI_API_KEY`, `token`, `sig` and a lone `key` do;
    `max_tokens`, `public_key`, `author` and `keyboard` do not.
    """
    plain = _NUMBER.sub("", name)
    low = plain.lower()
    for word in WORDS:
        if low.endswith(word):
            cut = len(plain) - len(word)
            weight = weigh(plain[:cut], plain[cut:])
            if weight == "strong" or (weight == "weak" and (word != "key" or not cut)):
                return True
    return False
