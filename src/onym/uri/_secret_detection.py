"""Recognise secrets in text: escaped text, secret names, key formats and random values.

A `TextView` undoes one layer of escapes and maps spans back to the original text. The last word of a name
decides with the word before it: `access_token` is a secret, `max_tokens` is not. A key format is a literal
prefix and a run of characters; conditions on the run exclude package names and prose (`sk-learn`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import accumulate, chain
from typing import Literal, TypeAlias

from onym.uri.secret import MARK

#: (start, end) in characters, end excluded
Span: TypeAlias = tuple[int, int]

#: how many layers of escapes are undone: `%252540` has three
LAYERS = 4

_ENTITIES = {
    "amp": "&", "apos": "'", "bsol": "\\", "colon": ":", "commat": "@", "equals": "=", "gt": ">",
    "hyphen": "-", "lowbar": "_", "lt": "<", "num": "#", "period": ".", "quest": "?", "quot": '"', "sol": "/",
}  # fmt: skip
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}
# soft hyphen, zero width, marks of direction, word joiner, byte order mark
_INVISIBLE = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
# backslash runs are bounded, else a megabyte of them costs a square of that
_ESCAPES = {
    "%": r"%[0-9A-Fa-f]{2}",
    # a literal first makes the search much faster
    "\\": r"\\\\{0,7}(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\"'/nrt])",
    "&": rf"&(?:#[0-9]{{1,7}}|#[xX][0-9A-Fa-f]{{1,6}}|{'|'.join(_ENTITIES)});",
}
# compatibility forms (NFKC) of the characters that the scheme and its delimiters are made of
_L = (
    "2e1 1d38 2097 2112 2113 216c 217c 24c1 24db 1d40b 1d425 1d43f 1d459 1d473 1d48d 1d4c1 1d4db 1d4f5"
    " 1d50f 1d529 1d543 1d55d 1d577 1d591 1d5ab 1d5c5 1d5df 1d5f9 1d613 1d62d 1d647 1d661 1d67b 1d695 1f13b"
)
_M = (
    "1d39 1d50 2098 2133 216f 217f 24c2 24dc 1d40c 1d426 1d440 1d45a 1d474 1d48e 1d4c2 1d4dc 1d4f6 1d510"
    " 1d52a 1d544 1d55e 1d578 1d592 1d5ac 1d5c6 1d5e0 1d5fa 1d614 1d62e 1d648 1d662 1d67c 1d696 1f13c"
)


@cache
def _list_lookalikes() -> dict[str, str]:
    table = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    for letter, codes in (("l", _L), ("m", _M), (":", "fe13 fe55"), ("@", "fe6b")):
        table |= {chr(int(code, 16)): letter for code in codes.split()}
    return table


# characters; to test such a piece is cheap, and most pieces of ordinary text are ASCII
_PIECE = 256
# more different characters than this are translated at once
_FEW = 12


def _select_unusual(text: str) -> str:
    """The pieces of a text that are not ASCII."""
    pieces = (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))
    return "".join(piece for piece in pieces if not piece.isascii())


def replace_lookalikes(text: str) -> str:
    """The text with lookalikes of ASCII replaced by ASCII, each by one: positions stay."""
    if text.isascii():
        return text
    table = _list_lookalikes()
    found = table.keys() & set(_select_unusual(text))
    if len(found) > _FEW:
        return text.translate({ord(character): plain for character, plain in table.items()})
    for character in found:
        text = text.replace(character, table[character])
    return text


def lower_text(text: str) -> str:
    """The text in lower case, positions unchanged (one capital letter has two in lower case)."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "I").lower()


_PATTERNS = {
    "gap": rf"([{_INVISIBLE}]|\x1b\[[0-9;]{{0,16}}m)",
    "digit": r"\d",
    "letter": r"[^\W\d_]",
    # the end of a prefix before a run
    "prefix end": r"[-_](?=[\w+/=.-]{8})(?<=(..[-_]))",
    "amazon": r"A(?<![A-Za-z0-9]A)(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "token": r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}",
    "block": r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----",
    "body": r"(?:(?:[\s\"'+,]|\\[nrt]){0,32}[A-Za-z0-9+/=]{16,128}){0,512}",
    "azure": r"JQQJ99(?<=[A-Za-z0-9]{58})[A-Za-z0-9]{20,30}",
    # references, placeholders, formats, masks, URLs without userinfo, punctuation, one letter
    "harmless": (
        r"(?s)(?:env|file|keyring|vault)(?::|%3[aA]).*|\$\{?[A-Z_][A-Z0-9_]*\}?|%[a-z(].{0,40}|<.{0,40}"
        r"|\{?[a-z_]*\}|:[a-z:]+|https?://[^@]*|\*+|[\W_]+|."
        # a variable in LiteLLM's files; placeholders in examples: sk-..., your-api-key-here
        r"|os\.environ/[A-Za-z0-9_]+|sk-(?:proj-|ant-)?(?:\.{3}|…)"
        r"|(?i:your[-_](?:[a-z]{1,16}[-_]){0,4}(?:key|token|secret|password|here))"
    ),
    "code": r"_{0,2}[A-Za-z]{1,16}(?:[._][A-Za-z]{0,16}){0,8}",
}


@cache
def _get_pattern(name: str) -> re.Pattern[str]:
    """A compiled pattern. It is compiled when it is first used, to keep the import fast."""
    return re.compile(_PATTERNS[name])


@cache
def _decode_escape(escape: str) -> str:
    body = escape.lstrip("\\")
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    if escape[0] == "\\":
        return _SHORT.get(body, body) if len(body) == 1 else chr(int(body[1:], 16))
    name = escape[1:-1]
    if name[0] != "#":
        return _ENTITIES[name]
    code = int(f"0{name[1:]}", 0) if name[1] in "xX" else int(name[1:])
    return chr(code) if code <= 0x10FFFF else escape


@cache
def _compile_escapes(kinds: str) -> re.Pattern[str]:
    return re.compile(f"({'|'.join(_ESCAPES[kind] for kind in kinds)})")


#: lines beside an escape in which it can change what a secret is
_FAR_LINES = 8
# characters: shorter runs between two escapes are not worth leaving out
_LONG_TEXT = 4_096
# characters for each escape: text with more escapes is decoded completely, which is then faster
_DENSE = 64
# beside a change, text up to this distance in characters and lines is searched again: longer than a name, the
# blanks behind it and the value in the next line
_NEAR = 512
_NEAR_LINES = 2
# replaces lines that are left out: no name, value or URI continues over it
_GAP = "\n\x00\n"


def _skip_lines(parts: list[str], plain: list[str], text: str, start: int, end: int) -> int:
    """Add the first lines of a long run without escapes, and a gap. Return where its last lines begin."""
    head, tail = start, end
    for _ in range(_FAR_LINES):
        head = text.find("\n", head, end) + 1 or end
        tail = max(text.rfind("\n", start, tail), start)
    if head >= tail:
        return start
    parts += (text[start:head], text[head:tail])
    plain += (parts[-2], _GAP)
    return tail


def _find_near_lines(text: str, places: list[Span]) -> Iterator[Span]:
    """The lines in which a change at one of these places can change what a secret is, without overlaps."""
    begins = [match.start() for match in re.finditer(PEM_BEGIN, text)]
    # `border` ends the line in which the search for `end` began: a line may have very many places
    start = end = border = 0
    for first, last in places:
        near, far = max(first - _NEAR, 0), last + _NEAR
        index = bisect_left(begins, first - PEM_REACH)
        if index < len(begins) and begins[index] < first:
            near, far = min(near, begins[index]), last + PEM_REACH
        if near >= end:
            for _ in range(_NEAR_LINES):
                near = max(text.rfind("\n", end, near), end)
            if near > end:
                yield start, end
                start = near
        if far >= border:
            border = end = text.find("\n", far) + 1 or len(text)
            for _ in range(_NEAR_LINES):
                end = text.find("\n", end) + 1 or len(text)
    yield start, end


class TextView:
    """A text without some of its characters, or with escapes undone, and the map to the original."""

    __slots__ = ("_back", "_here", "text")

    def __init__(self, parts: list[str], plain: list[str]) -> None:
        # parts alternate: ordinary text, escape, ordinary text, ...
        self.text = replace_lookalikes("".join(plain))
        self._back = list(accumulate(map(len, parts), initial=0))
        self._here = list(accumulate(map(len, plain), initial=0))

    @staticmethod
    def strip_invisible(text: str) -> TextView | None:
        """The text without invisible characters and terminal colours, None if it has none."""
        if "\x1b" not in text and (text.isascii() or not _get_pattern("gap").search(_select_unusual(text))):
            return None
        parts = _get_pattern("gap").split(text)
        return (
            TextView(parts, [part if index % 2 == 0 else "" for index, part in enumerate(parts)])
            if parts[1:]
            else None
        )

    @staticmethod
    def keep_near(text: str, places: list[Span]) -> TextView:
        """The lines around these places, which are in order; a gap replaces all others."""
        done, parts, plain = 0, [""], [""]
        for start, end in _find_near_lines(text, places):
            parts += (text[done:start], text[start:end])
            plain += (_GAP if done < start else "", parts[-1])
            done = end
        return TextView(parts, plain)

    @staticmethod
    def undo_escapes(text: str) -> TextView | None:
        """The text with one layer of escapes undone, None if it has none.

        Lines that are far from an escape are left out, because they were searched in the layer below.
        """
        kinds = "".join(kind for kind in _ESCAPES if kind in text)
        if not kinds:
            return None
        if len(text) <= _LONG_TEXT or sum(map(text.count, kinds)) > len(text) // _DENSE:
            parts = _compile_escapes(kinds).split(text)
            plain = parts.copy()
            plain[1::2] = map(_decode_escape, parts[1::2])
            return TextView(parts, plain) if parts[1:] else None
        found = [match for kind in kinds for match in _compile_escapes(kind).finditer(text)]
        if not found:
            return None
        found.sort(key=re.Match.start)
        # the lines of a private key may be far from the escapes in it
        longest = len(text) if PEM_BEGIN in text else _LONG_TEXT
        done, parts, plain = 0, list[str](), list[str]()
        for match in found:
            start, end = match.span()
            if start - done > longest:
                done = _skip_lines(parts, plain, text, done, start)
            parts += (text[done:start], match[0])
            plain += (parts[-2], _decode_escape(match[0]))
            done = end
        if len(text) - done > longest:
            done = _skip_lines(parts, plain, text, done, len(text))
        parts.append(text[done:])
        plain.append(parts[-1])
        return TextView(parts, plain)

    def map_back(self, span: Span) -> Span:
        """The span in the text below of a span in this view, with whole escapes."""
        first = bisect_right(self._here, span[0]) - 1
        last = bisect_right(self._here, span[1] - 1) - 1
        start, end = self._back[first], self._back[last]
        if first % 2 == 0:
            start += span[0] - self._here[first]
        end = self._back[last + 1] if last % 2 else end + span[1] - self._here[last]
        return start, end

    def has_escape(self, start: int, end: int) -> bool:
        """Whether any of these characters was written as an escape in the text below."""
        first, last = bisect_right(self._here, start) - 1, bisect_right(self._here, end - 1) - 1
        return last > first or first % 2 == 1


#: strong: any value is secret; weak: a value that looks random is; none: not the name of a secret
Weight: TypeAlias = Literal["strong", "weak", "none"]


def split_words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


PASSWORDS = frozenset({"password", "passwd", "passphrase", "passcode", "pwd", "pass"})
_STRONG = PASSWORDS | {"secret", "token", "authorization", "jwt"}
_WEAK = frozenset({"auth", "sig", "signature", "credential", "credentials", "cookie", "bearer"})
WORDS = tuple(sorted(_STRONG | _WEAK | {"key"}))

#: characters of a name, before its last word
HEAD = "abcdefghijklmnopqrstuvwxyz0123456789_.-"

# before `key`: these make it a secret, these never do
_KEY_OF = split_words(
    """
    api access secret private auth account subscription master admin service encryption signing
    signature application shared storage license deploy webhook bot client user session
    """
)
_NO_KEY_OF = split_words(
    """
    public primary foreign cache sort partition row object hash range routing idempotency hot soft
    composite unique natural surrogate index lookup group dict map sorting join translation message
    shortcut param field
    """
)
# before `token`: words of tokenizers, parsers and paging
_NO_TOKEN_OF = split_words(
    """
    max min pad eos bos unk sep mask cls stop start end special next page previous prev first last
    continuation per each num count n new invalid unexpected expected image audio video text prompt
    completion output input
    """
)
# prefixes without a separator: `apikey`, `authtoken`
_GLUED = re.compile(r"(?:api|access|secret|private|auth|client|session|bearer|refresh|id|db|user|my|o)$")
_ANY_GLUED = frozenset({"password", "passwd", "passphrase", "secret"})
_HUMP = re.compile(r"[A-Z]?[a-z0-9]*$|[A-Z0-9]+$")
_NUMBER = re.compile(r"[_-]?[0-9]{1,2}$")


@lru_cache(maxsize=1024)
def weigh_name(head: str, word: str, before: str = "") -> Weight:
    """How likely the value of a name is a secret.

    `word` is the last word of the name as written (one of `WORDS`, any case), `head` the part of the name
    before it, `before` the text before the name ("api " of "API key").
    """
    low = word.lower()
    qualifier = _find_qualifier(head, word, before)
    if qualifier is None:
        return "none"
    if low == "key":
        return "strong" if qualifier in _KEY_OF else "none" if qualifier in _NO_KEY_OF else "weak"
    if low == "token" and qualifier in _NO_TOKEN_OF:
        return "none"
    return "strong" if low in _STRONG else "weak"


def _find_qualifier(head: str, word: str, before: str) -> str | None:
    """The word before the last one, "" if there is none, None if no separator is between them."""
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
    """Whether a parameter, header, variable or field of that name contains a credential.

    `api_key`, `X-Api-Key`, `clientSecret`, `OPENAI_API_KEY`, `token`, `sig` and a lone `key` do;
    `max_tokens`, `public_key`, `author` and `keyboard` do not.
    """
    plain = _NUMBER.sub("", name)
    low = plain.lower()
    for word in WORDS:
        if low.endswith(word):
            cut = len(plain) - len(word)
            weight = weigh_name(plain[:cut], plain[cut:])
            if weight == "strong" or (weight == "weak" and (word != "key" or not cut)):
                return True
    return False


PEM_BEGIN = "-----BEGIN"
PEM_END = "-----END"
#: the largest distance between the first and the last line of a PEM block, in characters
PEM_REACH = 16_384

_WORD = "[A-Za-z0-9]"
_SLUG = "[A-Za-z0-9_-]"
_BASE64 = "[A-Za-z0-9+/=_-]"
#: prefix, characters of the run after it, minimum length of the run
_SHAPES: tuple[tuple[str, str, int], ...] = (
    ("sk-proj-", _SLUG, 8),  # OpenAI: project, service account, administrator
    ("sk-svcacct-", _SLUG, 8),
    ("sk-admin-", _SLUG, 8),
    ("sk-ant-", _SLUG, 12),  # Anthropic
    ("sk-or-", _SLUG, 12),  # OpenRouter
    ("sk-lf-", _SLUG, 12),  # Langfuse
    ("xai-", _SLUG, 16),
    ("gsk_", _WORD, 16),  # Groq
    ("pplx-", _WORD, 16),  # Perplexity
    ("AIza", _SLUG, 30),  # Google
    ("AQ.A", _SLUG, 24),
    ("GOCSPX-", _SLUG, 16),
    ("ya29.", "[A-Za-z0-9_.-]", 20),
    ("hf_", _WORD, 16),  # Hugging Face
    ("ghp_", _WORD, 16),  # GitHub
    ("gho_", _WORD, 16),
    ("ghu_", _WORD, 16),
    ("ghs_", _WORD, 16),
    ("ghr_", _WORD, 16),
    ("github_pat_", r"\w", 16),
    ("glpat-", _SLUG, 16),  # GitLab
    ("r8_", _WORD, 16),  # Replicate
    ("fw_", _WORD, 16),  # Fireworks
    ("fpk_", _WORD, 16),
    ("nvapi-", _SLUG, 16),  # NVIDIA
    ("csk-", _WORD, 16),  # Cerebras
    ("tgp_v1_", _SLUG, 16),  # Together
    ("vck_", _SLUG, 16),  # Vercel
    ("tvly-", _SLUG, 16),  # Tavily
    ("lsv2_", r"\w", 16),  # LangSmith
    ("dapi", "[0-9a-f]", 32),  # Databricks
    ("ABSK", _BASE64, 30),  # Bedrock
    ("bedrock-api-key-", _BASE64, 16),
    ("hvs.", _SLUG, 16),  # HashiCorp Vault
    ("npm_", _WORD, 30),
    ("pypi-AgE", _SLUG, 16),
    ("dckr_pat_", _SLUG, 16),
    ("xoxb-", _SLUG, 16),  # Slack
    ("xoxp-", _SLUG, 16),
    ("xoxa-", _SLUG, 16),
    ("xapp-", _SLUG, 16),
    ("hooks.slack.com/services/", "[A-Za-z0-9/]", 20),
    ("sk_live_", _WORD, 12),  # Stripe
    ("sk_test_", _WORD, 12),
    ("rk_live_", _WORD, 12),
    ("whsec_", _BASE64, 16),
    ("SG.", "[A-Za-z0-9_.-]", 40),  # SendGrid
    ("AGE-SECRET-KEY-1", "[A-Z0-9]", 40),
    ("onym_reg_", _SLUG, 32),  # the registry of Onym
    ("ls__", _WORD, 32),  # LangSmith, older
    ("pcsk_", r"\w", 32),  # Pinecone
    ("flp_", _WORD, 32),  # Friendli
    ("rpa_", _WORD, 32),  # RunPod
    ("e2b_", "[0-9a-f]", 40),
    ("api_org_", _WORD, 32),  # Hugging Face, of organizations
    ("sk-helicone-", _SLUG, 16),
    ("sess-", _WORD, 40),  # OpenAI: sessions
    ("gldt-", _SLUG, 16),  # GitLab
    ("glrt-", _SLUG, 16),
    ("glptt-", _WORD, 40),
    ("dckr_oat_", _SLUG, 16),
    ("hvb.", _SLUG, 24),
    ("xoxe-", _SLUG, 24),
    ("rk_test_", _WORD, 12),
    ("dop_v1_", "[0-9a-f]", 64),  # DigitalOcean
    ("doo_v1_", "[0-9a-f]", 64),
    ("HRKU-", _SLUG, 36),  # Heroku
    ("shpat_", _WORD, 32),  # Shopify
    ("shpss_", _WORD, 32),
    ("lin_api_", _WORD, 32),  # Linear
    ("ntn_", _WORD, 40),  # Notion
    ("figd_", _SLUG, 32),  # Figma
    ("glsa_", r"\w", 32),  # Grafana
    ("glc_", _BASE64, 40),
    ("NRAK-", "[A-Z0-9]", 27),  # New Relic
    ("sntrys_", _BASE64, 40),  # Sentry
    ("sntryu_", "[0-9a-f]", 64),
    ("ATATT3", _BASE64, 60),  # Atlassian
    ("ATBB", _WORD, 32),
    ("pscale_tkn_", _SLUG, 32),  # PlanetScale
    ("PMAK-", _SLUG, 40),  # Postman
    ("rubygems_", "[0-9a-f]", 48),
    ("sq0atp-", _SLUG, 22),  # Square
    ("sq0csp-", _SLUG, 40),
    ("sbp_", "[0-9a-f]", 40),  # Supabase
    ("sb_secret_", _SLUG, 24),
    ("dp.pt.", _WORD, 40),  # Doppler
    ("sgp_", r"\w", 40),  # Sourcegraph
    ("pul-", "[0-9a-f]", 40),  # Pulumi
    ("fo1_", _SLUG, 43),  # Fly.io
    ("fm2_", _BASE64, 60),
    ("AKCp", _WORD, 69),  # Artifactory
    ("LTAI", _WORD, 20),  # Alibaba Cloud
    ("AKID", _WORD, 32),  # Tencent Cloud
    ("vcp_", _SLUG, 24),  # Vercel
)
_AMAZON = ("AKIA", "ASIA", "ABIA", "ACCA")
# a marker in the middle of the longer keys of Azure
_AZURE = "JQQJ99"
# common prefixes: the text after one is a key only if it has a long piece without hyphens
_LOOSE: tuple[tuple[str, str, int], ...] = (
    ("sk-", _SLUG, 16),  # OpenAI, DeepSeek, Moonshot, LiteLLM
    ("key-", _SLUG, 16),  # Mailgun
    ("pa-", _SLUG, 24),  # Voyage
    ("psk-", _SLUG, 16),  # Parasail
    ("jina_", _SLUG, 16),
    ("sk_", _WORD, 40),  # ElevenLabs, Novita
    ("secret_", _WORD, 40),  # Notion, older
    ("fc-", _WORD, 32),  # Firecrawl
)


# llm URIs in base64, as in the secrets of Kubernetes: `llm://` is its first eight characters
_ENCODED: tuple[tuple[str, str, int], ...] = (("bGxtOi8v", _BASE64, 12),)


@cache
def _group_formats() -> dict[str, list[tuple[str, str, int, Callable[[str], bool]]]]:
    """The formats by the end of their prefix, "" for prefixes without a hyphen or underscore at the end.

    One search for all ends is faster than a hundred searches for prefixes.
    """
    groups: dict[str, list[tuple[str, str, int, Callable[[str], bool]]]] = {"": []}
    tests = ((_SHAPES, _has_mixed_characters), (_LOOSE, _has_random_part), (_ENCODED, _encodes_userinfo))
    for shapes, good in tests:
        for start, run, least in shapes:
            end = start[-3:] if start[-1] in "-_" else ""
            groups.setdefault(end, []).append((start, run, least, good))
    return groups


@cache
def _compile_format(start: str, run: str, least: int) -> re.Pattern[str]:
    # the literal comes first, so that the search for it is a search for a literal
    return re.compile(f"{re.escape(start)}(?<![A-Za-z0-9]{re.escape(start)})({run}{{{least},}})")


def looks_random(text: str, least: int) -> bool:
    """Whether a word is probably random: digits and letters, both cases, or very long."""
    if len(text) < least:
        return False
    if len(text) >= 24:
        return True
    if _get_pattern("digit").search(text):
        return _get_pattern("letter").search(text) is not None
    return len(text) >= 20 and text.lower() != text and text.upper() != text


def find_keys(text: str) -> Iterator[Span]:
    """Spans of all texts in the format of a key."""
    formats = _group_formats()
    ends = formats.keys() & {"", *_get_pattern("prefix end").findall(text)}
    for start, run, least, good in chain.from_iterable(formats[end] for end in ends):
        if start in text:
            matches = _compile_format(start, run, least).finditer(text)
            yield from (match.span() for match in matches if good(match[1]))
    if any(start in text for start in _AMAZON):
        yield from (match.span() for match in _get_pattern("amazon").finditer(text))
    if "eyJ" in text:
        yield from (match.span() for match in _get_pattern("token").finditer(text))
    if _AZURE in text:
        yield from ((match.start() - 52, match.end()) for match in _get_pattern("azure").finditer(text))
    if PEM_BEGIN in text:
        yield from _find_pem_blocks(text)


def _has_mixed_characters(run: str) -> bool:
    return _get_pattern("digit").search(run) is not None or (run.lower() != run and run.upper() != run)


def _has_random_part(run: str) -> bool:
    return any(looks_random(part, 12) for part in run.replace("_", "-").split("-"))


def _encodes_userinfo(run: str) -> bool:
    """Whether the base64 after `llm://` is an authority with a key."""
    from binascii import Error, a2b_base64  # late: such texts are rare

    try:
        rest = a2b_base64(run.rstrip("=").replace("-", "+").replace("_", "/")[: MAX_EXAMINED * 4] + "==")
    except Error:
        return False
    userinfo, at, _ = rest.partition(b"@")
    return bool(at) and b":" in userinfo


def _find_pem_blocks(text: str) -> Iterator[Span]:
    """PEM private keys; an incomplete one ends with the last line that looks like a key."""
    ends = [match.start() for match in re.finditer(PEM_END, text)]
    done = 0
    for match in _get_pattern("block").finditer(text):
        if match.start() < done:
            continue
        index = bisect_left(ends, match.end())
        if index < len(ends) and ends[index] - match.end() <= PEM_REACH:
            tail = text.find("-----", ends[index] + len(PEM_END), ends[index] + 64)
            done = tail + 5 if tail >= 0 else ends[index] + len(PEM_END)
        else:
            body = _get_pattern("body").match(text, match.end())
            done = match.end() if body is None else body.end()
            if done == match.end():
                continue  # only the first line is not a secret
        yield match.start(), done


#: characters of a value that are examined
MAX_EXAMINED = 256

# values that are about a secret, but are not secrets
_PLAIN = split_words(
    """
    true false null none nil undefined required optional missing invalid expired str string bytes text
    any object here hidden redacted masked secret password token is not was has must should may can
    the a an and or for authentication failed error wrong incorrect reset changed protected input bool
    int expected unicode
    """
)


def is_secret_value(value: str, word: str, weight: Weight) -> bool:
    """Whether a value is a secret under a name that ends in `word` and has this weight."""
    value = value[:MAX_EXAMINED].strip()
    if not value or value == MARK or value.lower() in _PLAIN or _get_pattern("harmless").fullmatch(value):
        return False
    if weight == "weak":
        return looks_drawn(value, 16)
    return not (word == "token" and len(value) < 8 and value.replace(".", "").isdigit())


def is_code_word(value: str, word: str, spaced: bool) -> bool:
    """Whether an unquoted value is a word of code: `token = other_token`, `key: str`, `token: missing`.

    `spaced` tells whether a colon or a blank is before it.
    """
    value = value[:MAX_EXAMINED]
    if not _get_pattern("code").fullmatch(value):
        return False
    if value.lower().endswith(word):
        return True
    if word in PASSWORDS and word != "pass":
        return "_" in value or "." in value
    return spaced


def looks_drawn(value: str, least: int) -> bool:
    """Whether the value is one word, long enough, and has a piece that looks random."""
    value = value[:MAX_EXAMINED]
    if len(value) < least or any(map(str.isspace, value)):
        return False
    return any(looks_random(part, 12) for part in re.split(r"[-_.:/]", value))
