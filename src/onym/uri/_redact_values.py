"""Values that their name gives away: `api_key=…`, `"password": "…"`, `Authorization: Bearer …`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from onym.uri._redact_judge import SEEN, drawn, is_code, is_secret
from onym.uri._redact_keys import looks_random
from onym.uri._redact_names import HEAD, WORDS, Weight, is_secret_name, weigh
from onym.uri._redact_view import Span

__all__ = ["named_values"]

#: a run without blanks that is longer than this, and no secret, is data of another kind
_LONG = 1_024
# what stands between a name and a value apart: brackets, a border of lines, the signs of a YAML block
_FAR = r"[\[({<]{1,2}[ \t]{0,2}(?:\r?\n[ \t]{1,16})?|(?:[|>][+-]?[ \t]{0,4})?\r?\n(?:[ \t]{1,16}|(?=[\"']))"
_SCHEMES = "bearer|basic|token|apikey|api-key|key|negotiate"


class _Patterns(NamedTuple):
    names: tuple[tuple[str, re.Pattern[str]], ...]
    quote: re.Pattern[str]
    close: dict[str, re.Pattern[str]]
    ends: dict[str, re.Pattern[str]]
    element: re.Pattern[str]
    scheme: re.Pattern[str]
    parts: re.Pattern[str]
    second: re.Pattern[str]
    bearer: re.Pattern[str]
    user: re.Pattern[str]
    login: re.Pattern[str]
    pair: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    end = (
        r"(?:[_-]?[0-9]{1,2})?(?: (?:provided|given|used|is|was|to)){0,2}"
        r"(?:(?P<quoted>\\{0,8}[\"'`])?\]?[ \t]{0,8}(?P<sign>=>|:=|=(?!=)|:|>)[ \t]{0,8}(?P<far>"
        + _FAR
        + r")?"
        r"|\\{0,8}[\"'][ \t]{0,4}(?P<comma>,)[ \t]{0,4}(?=b?\\{0,8}[\"'])"
        r"|(?:[ \t]{1,32}[|\u2502\u2503]|[ \t]{0,32}(?:->|,))[ \t]{0,4}"
        r"|(?P<blank>[ \t]{1,4})(?=[^ \t=:>]))"
    )
    return _Patterns(
        names=tuple((word, re.compile(word + end)) for word in WORDS),
        quote=re.compile(r"([A-Za-z_.]{1,32}\()?[bBuUrRfF]{0,2}(\\{0,8})([\"'`])"),
        close={quote: re.compile(f"[{quote}\r\n]") for quote in "\"'`"},
        ends={
            "bare": re.compile(r"[\s\x00-\x1f\"'`<>&,;(){}\[\]\\]"),
            "word": re.compile(r"[\s\x00-\x1f\"'`<>]"),
            "line": re.compile(r"[\x00-\x08\x0a-\x1f]"),
        },
        element=re.compile(r"[^<>\x00-\x1f]+(?=</)"),
        scheme=re.compile(rf"(?:{_SCHEMES})(?:[ \t]{{1,4}}|%20|\+)", re.IGNORECASE),
        parts=re.compile(r"(?:digest|hawk|hmac|signature|aws4)[\w-]{0,24}[ \t]", re.IGNORECASE),
        second=re.compile(r"[ \t]{1,4}([^\s\x00-\x1f\"'`<>&,;\\]{8,})"),
        bearer=re.compile(r"bearer(?:[ \t]{1,4}|%20)([a-z0-9_+/=.~-]{12,})"),
        user=re.compile(r"-(?:u|-user|-proxy-user)(?:[ \t]{1,4}|=)[\"']?[^\s:\"'/]{0,64}:([^\s\"'/]{4,})"),
        login=re.compile(
            r"(?:(?:login|sshpass)(?: [^\s]{1,64}){0,8}? -p ?|mysql(?:admin|dump)?(?: [^\s]{1,64}){0,8}? -p)"
            r"[\"']?([^\s\"'-][^\s\"']{3,})"
        ),
        pair=re.compile(
            r"(?:name|key|type|id)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?([a-z0-9_.-]{2,64})[\"']?"
            r"[\s,;]{1,32}[\"']?value[\"']?[ \t]{0,4}[:=][ \t]{0,4}"
            r"(?:\"([^\"\r\n]{4,})\"|'([^'\r\n]{4,})'|([^\s\"'`<>&,;(){}\[\]]{4,}))"
        ),
    )


class _Runs:
    """Where runs of a text end; the last answers are kept, since many names may stand in one run."""

    __slots__ = ("_last", "cleared", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        #: up to here no other name is worth a look
        self.cleared = 0
        self._last: dict[str, Span] = {}

    def span(self, kind: str, start: int) -> Span | None:
        """The run of that kind from `start` on, None where it is empty."""
        last = self._last.get(kind, (0, -1))
        if last[0] <= start <= last[1]:
            return (start, last[1]) if start < last[1] else None
        match = _patterns().ends[kind].search(self.text, start)
        end = match.start() if match else len(self.text)
        self._last[kind] = start, end
        return (start, end) if start < end else None


def named_values(text: str, low: str) -> Iterator[Span]:
    """Spans of the values whose names say that they are secret; `low` is `text` in lower case."""
    patterns = _patterns()
    for word, name in patterns.names:
        if word in low:
            yield from _named(_Runs(text), low, word, name)
    if "bearer" in low:
        for match in patterns.bearer.finditer(low):
            if looks_random(text[slice(*match.span(1))], 12):
                yield match.span(1)
    if "-u" in low or "user" in low:
        yield from (match.span(1) for match in patterns.user.finditer(text) if not match[1].isdigit())
    if " -p" in low:
        yield from (match.span(1) for match in patterns.login.finditer(text) if not match[1].isdigit())
    if "value" in low:
        yield from _pairs(text, low)


def _pairs(text: str, low: str) -> Iterator[Span]:
    """`{"name": "API_KEY", "value": "…"}`: as lists of variables and headers have it."""
    for match in _patterns().pair.finditer(low):
        name = text[slice(*match.span(1))]
        group = next(number for number in (2, 3, 4) if match[number] is not None)
        start, end = match.span(group)
        if is_secret_name(name) and is_secret(text[start:end], name.lower(), "strong"):
            yield start, end


def _named(runs: _Runs, low: str, word: str, name: re.Pattern[str]) -> Iterator[Span]:
    done = 0
    for match in name.finditer(low):
        if match.start() >= done:
            span = _Found(runs, low, word, match).span()
            if span is not None and span[0] < span[1]:
                yield span
                done = span[1]
            done = max(done, runs.cleared)


class _Found:
    """A name that may be a secret's, and what follows it."""

    __slots__ = ("at", "far", "first", "head", "quoted", "runs", "sign", "start", "text", "word")

    def __init__(self, runs: _Runs, low: str, word: str, match: re.Match[str]) -> None:
        self.runs, self.text, self.word = runs, runs.text, word
        self.start, self.at = match.start(), match.end()
        near = low[self.start - 48 if self.start > 48 else 0 : self.start]
        name = near[len(near.rstrip(HEAD)) :].lstrip("-.")
        self.first = self.start - len(name)
        self.head = self.text[self.first : self.start]
        self.quoted, sign, self.far, comma, _ = match.groups()
        self.sign = sign or comma or ""

    def span(self) -> Span | None:
        """The value to hide, None where there is none."""
        written = self.text[self.start : self.start + len(self.word)]
        before = "" if self.head else self.text[self.start - 16 if self.start > 16 else 0 : self.start]
        weight = weigh(self.head, written, before)
        if weight == "none":
            return None
        if not self.sign:
            return self._after_blank(weight)
        if self.far:
            return self._apart()
        if self.sign == ":" and self._label():
            return None
        if self.sign == ">":
            return self._element(weight)
        quoted = self._quoted()
        cookies = self._cookies(quoted) if self.word == "cookie" and self.sign == ":" else None
        if cookies:
            return cookies
        if self.word == "authorization" and (quoted or self.sign == ":"):
            return self._header(quoted)
        if self.sign == ",":
            # two strings side by side: a header and its value, or just two strings
            weight = "weak"
        if quoted:
            return quoted if self._secret(quoted, weight) and not self._call(quoted) else None
        return self._bare(weight)

    def _label(self) -> bool:
        """`llm://token:…@host`: the app label of a URI, whose credential is found by its place."""
        ahead = self.text[max(0, self.first - 5) : self.first].lower()
        return ahead.endswith(("//", "llm:", "llm:/"))

    def _secret(self, span: Span, weight: Weight) -> bool:
        return is_secret(self._seen(span), self.word, weight)

    def _element(self, weight: Weight) -> Span | None:
        """`<api_key>…</api_key>`, `name="api_key">…<`; not a comparison."""
        if self.quoted is None and self.text[self.first - 1 : self.first] != "<":
            return None
        found = _patterns().element.match(self.text, self.at)
        return found.span() if found and self._secret(found.span(), weight) else None

    def _after_blank(self, weight: Weight) -> Span | None:
        """`--api-key VALUE`, `ENV API_KEY VALUE`, `password VALUE` of a .netrc, `| token | VALUE |`."""
        option = self.text[self.first - 2 : self.first] == "--"
        if weight == "weak" and not option:
            return None
        span = self._quoted() or self.runs.span("bare", self.at)
        if span is None:
            return None
        value = self._seen(span)
        if option and weight == "strong" and len(value) >= 8 and value[0] != "-":
            return span if self._secret(span, "strong") else None
        return span if drawn(value, 16) else None

    def _apart(self) -> Span | None:
        """A value in brackets or in the next line: of these, what looks drawn is hidden."""
        quoted = self._quoted()
        if self.word == "authorization" and quoted:
            return self._header(quoted)
        span = quoted or self.runs.span("bare", self.at)
        return span if span and drawn(self._seen(span), 16) else None

    def _seen(self, span: Span) -> str:
        return self.text[span[0] : min(span[1], span[0] + SEEN)]

    def _cookies(self, quoted: Span | None) -> Span | None:
        span = quoted or self.runs.span("line", self.at)
        return span if span and "=" in self._seen(span) else None

    def _header(self, quoted: Span | None) -> Span | None:
        """The credential of an Authorization header; the name of its scheme stays."""
        patterns = _patterns()
        start, end = quoted or (self.at, len(self.text))
        if patterns.parts.match(self.text, start):
            return quoted or self.runs.span("line", start)
        scheme = patterns.scheme.match(self.text, start, end)
        if scheme:
            start = scheme.end()
        elif not quoted:
            return self._unknown_scheme()
        span = (start, end) if quoted else self.runs.span("bare", start)
        weight: Weight = "weak" if self.sign == "," and not scheme else "strong"
        return span if span and self._secret(span, weight) else None

    def _unknown_scheme(self) -> Span | None:
        span = self.runs.span("bare", self.at)
        if span is None:
            return None
        if span[1] - span[0] >= 20 or not self._seen(span).isalpha():
            return span if self._secret(span, "strong") else None
        second = _patterns().second.match(self.text, span[1])
        return second.span(1) if second and looks_random(second[1], 8) else None

    def _bare(self, weight: Weight) -> Span | None:
        """A value without quotes. Of an environment variable it goes on to the next blank."""
        ahead = self.text[self.first - 1 : self.first]
        variable = self.sign == "=" and self.text[self.first : self.start + len(self.word)].isupper()
        span = self.runs.span("word" if variable and ahead not in ("?", "&") else "bare", self.at)
        if span is None or self.text[span[1] : span[1] + 1] in ("(", "["):
            return None
        value = self._seen(span)
        if ahead in ("?", "&") and weight == "weak" and looks_random(value, 8):
            weight = "strong"
        spaced = ":" in self.sign or self.text[self.at - 1] == " "
        if self._secret(span, weight) and not is_code(value, self.word, spaced):
            return span
        if span[1] - span[0] > _LONG:
            self.runs.cleared = span[1]
        return None

    def _call(self, quoted: Span) -> bool:
        """`api_key = os.getenv("API_KEY")`: what stands in the quotes is an argument, and no secret."""
        name, call, _ = self.text[self.at : self.at + 40].partition("(")
        if not call or not name.replace("_", "").replace(".", "").isalpha():
            return False
        return "secret" not in name.lower() and not drawn(self._seen(quoted), 8)

    def _quoted(self) -> Span | None:
        opening = _patterns().quote.match(self.text, self.at)
        if opening is None:
            return None
        start, quote = opening.end(), opening[3]
        if self.quoted is None and self.sign != "," and self.text[self.first - 1 : self.first] == quote:
            return None  # the quote closes: `prompt="Password: "`
        for match in _patterns().close[quote].finditer(self.text, start):
            slashes = _slashes(self.text, start, match.start())
            if match[0] != quote:
                break
            if opening[2]:
                return start, match.start() - slashes
            if slashes % 2 == 0:
                return start, match.start()
        # cut short: as far as it goes without a blank
        return self.runs.span("word", start)


def _slashes(text: str, start: int, end: int) -> int:
    """How many backslashes stand before `end`."""
    count = 0
    while end - count > start and text[end - count - 1] == "\\":
        count += 1
    return count
