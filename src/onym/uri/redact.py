"""Remove secrets from any text or stream of text, in linear time, by position.

Each secret is replaced by `***`; an app label stays (draft 10.1). Onym cannot recognise a key that has no
known format, name or URI around it: pass such keys in `secrets`. A span reaches at most into the following
line, except for PEM blocks, so `redact_stream` releases text line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from onym.uri._secret_detection import (
    HEAD,
    LAYERS,
    MAX_EXAMINED,
    PEM_BEGIN,
    PEM_END,
    PEM_REACH,
    WORDS,
    Span,
    TextView,
    Weight,
    find_keys,
    is_code_word,
    is_secret_name,
    is_secret_value,
    looks_drawn,
    looks_random,
    lower_text,
    replace_lookalikes,
    weigh_name,
)
from onym.uri._uri_credentials import (
    AUTHORITY_NAMES,
    USERINFO_NAMES,
    find_bare_credentials,
    find_part_secret,
    find_reference_credentials,
    find_uri_credentials,
)
from onym.uri.secret import MARK, Secret

#: a longer run without blanks that is not a secret is data of another kind
_LONG_RUN = 1_024
# the text between a name and a distant value: brackets, a line break, the signs of a YAML block
_FAR = r"[\[({<]{1,2}[ \t]{0,2}(?:\r?\n[ \t]{1,16})?|(?:[|>][+-]?[ \t]{0,4})?\r?\n(?:[ \t]{1,16}|(?=[\"']))"

_PART_NAMES = (*USERINFO_NAMES, *AUTHORITY_NAMES)
_ALL_NAMES = (*WORDS, *_PART_NAMES)
# follows the last word of a name
_NAME_END = (
    r"(?:[_-]?[0-9]{1,2})?(?: (?:provided|given|used|is|was|to)){0,2}"
    r"(?:(?P<quoted>\\{0,8}[\"'`])?\]?[ \t]{0,8}(?P<sign>=>|:=|=(?!=)|:|>)[ \t]{0,8}(?P<far>" + _FAR + r")?"
    r"|\\{0,8}[\"'][ \t]{0,4}(?P<comma>,)[ \t]{0,4}(?=b?\\{0,8}[\"'])"
    r"|(?:[ \t]{1,32}[|\u2502\u2503]|[ \t]{0,32}(?:->|,))[ \t]{0,4}"
    r"|(?P<blank>[ \t]{1,4})(?=[^ \t=:>]))"
)
# commands with a password in the option -p, and the text up to that
_COMMANDS = {
    "login": r"(?: [^\s]{1,64}){0,8}? -p ?",
    "sshpass": r"(?: [^\s]{1,64}){0,8}? -p ?",
    "mysql": r"(?:admin|dump)?(?: [^\s]{1,64}){0,8}? -p",
}
# names before a pair of a user and a password. A pattern that begins with a literal is much faster
_LOGIN_PAIRS = {
    "auth": (
        r"(?:[\"']?[ \t]{0,4}[:=][ \t]{0,4}|(?<=basicauth)|(?<=basic_auth)|(?<=digestauth)|(?<=digest_auth)"
        r"|(?<=proxyauth)|(?<=proxy_auth))"
    ),
    "userpassword": "",
}
_PATTERNS = {
    **{word: word + _NAME_END for word in WORDS},
    # a comparison of parts in a failed test: `uri.userinfo == 'app:…'`
    **{name: name + _NAME_END.replace("=(?!=)", "={1,3}") for name in _PART_NAMES},
    # the ends of runs and of quoted text
    "bare": r"[\s\x00-\x1f\"'`<>&,;(){}\[\]\\]",
    "word": r"[\s\x00-\x1f\"'`<>]",
    "line": r"[\x00-\x08\x0a-\x1f]",
    **{quote: f"[{quote}\r\n]" for quote in "\"'`"},
    # values
    "quote": r"([A-Za-z_.]{1,32}\()?[bBuUrRfF]{0,2}(\\{0,8})([\"'`])",
    "element": r"[^<>\x00-\x1f]+(?=</)",
    "scheme": r"(?i)(?:bearer|basic|token|apikey|api-key|key|negotiate)(?:[ \t]{1,4}|%20|\+)",
    "parts": r"(?i)(?:digest|hawk|hmac|signature|aws4)[\w-]{0,24}[ \t]",
    "second": r"[ \t]{1,4}([^\s\x00-\x1f\"'`<>&,;\\]{8,})",
    "bearer value": r"bearer(?:[ \t]{1,4}|%20)([a-z0-9_+/=.~-]{12,})",
    "user": r"-(?:u|-user|-proxy-user)(?:[ \t]{1,4}|=)[\"']?[^\s:\"'/]{0,64}:([^\s\"'/]{4,})",
    **{command: command + option + r"[\"']?([^\s\"'-][^\s\"']{3,})" for command, option in _COMMANDS.items()},
    "pair": (
        r"(?:name|key|type|id)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?([a-z0-9_.-]{2,64})[\"']?"
        r"[\s,;]{1,32}[\"']?value[\"']?[ \t]{0,4}[:=][ \t]{0,4}"
        r"(?:\"([^\"\r\n]{4,})\"|'([^'\r\n]{4,})'|([^\s\"'`<>&,;(){}\[\]]{4,}))"
    ),
    # a user and a password: `auth=("app", "...")`, `BasicAuth('app', '...')`, `UserPassword("app", "...")`
    **{
        f"{name} pair": name + sign + r"[(\[][ \t]{0,4}"
        r"b?[\"'][^\"'\r\n]{0,64}[\"'],[ \t]{0,4}b?[\"']([^\"'\r\n]{4,256})[\"']"
        for name, sign in _LOGIN_PAIRS.items()
    },
    # lines of a stream
    "name at end": r"(?i:name|key|type|id)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?[\w.-]{2,64}[\"']?[\s,;]*\Z",
    "sign": r"[|>][+-]?|[\[({<]{1,2}",
    "secret end": r"[\s\"'<>@&`]",
}


@cache
def _get_pattern(name: str) -> re.Pattern[str]:
    """A compiled pattern. It is compiled when it is first used, to keep the import fast."""
    return re.compile(_PATTERNS[name])


class _RunCache:
    """The ends of runs in a text. The last results are kept, because many names may be in one run."""

    __slots__ = ("_last", "cleared", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        #: names before this position need no search
        self.cleared = 0
        self._last: dict[str, Span] = {}

    def find_run(self, kind: str, start: int) -> Span | None:
        """The run of that kind from `start` on, None if it is empty."""
        last = self._last.get(kind, (0, -1))
        if last[0] <= start <= last[1]:
            return (start, last[1]) if start < last[1] else None
        match = _get_pattern(kind).search(self.text, start)
        end = match.start() if match else len(self.text)
        self._last[kind] = start, end
        return (start, end) if start < end else None


def find_named_values(text: str, low: str) -> Iterator[Span]:
    """Spans of the values with secret names; `low` is `text` in lower case."""
    for word in _ALL_NAMES:
        if word in low:
            yield from _find_word_values(_RunCache(text), low, word)
    if "bearer" in low:
        for match in _get_pattern("bearer value").finditer(low):
            if looks_random(text[slice(*match.span(1))], 12):
                yield match.span(1)
    if "value" in low:
        yield from _find_pair_values(text, low)
    yield from _find_logins(text, low)


def _find_logins(text: str, low: str) -> Iterator[Span]:
    """Passwords in options of commands and in pairs of a user and a password."""
    if "-u" in low or "user" in low:
        yield from (match.span(1) for match in _get_pattern("user").finditer(text) if not match[1].isdigit())
    if " -p" in low:
        for command in _COMMANDS:
            if command in text:
                found = _get_pattern(command).finditer(text)
                yield from (match.span(1) for match in found if not match[1].isdigit())
    for name in _LOGIN_PAIRS:
        if name in low:
            for match in _get_pattern(f"{name} pair").finditer(low):
                if is_secret_value(text[slice(*match.span(1))], "password", "strong"):
                    yield match.span(1)


def _find_pair_values(text: str, low: str) -> Iterator[Span]:
    """Values in lists of variables and headers: `{"name": "API_KEY", "value": "…"}`."""
    for match in _get_pattern("pair").finditer(low):
        name = text[slice(*match.span(1))]
        group = next(number for number in (2, 3, 4) if match[number] is not None)
        start, end = match.span(group)
        if is_secret_name(name) and is_secret_value(text[start:end], name.lower(), "strong"):
            yield start, end


def _find_word_values(runs: _RunCache, low: str, word: str) -> Iterator[Span]:
    done = 0
    for match in _get_pattern(word).finditer(low):
        if match.start() >= done:
            name = _NameMatch(runs, low, word, match)
            span = name.find_value() if word in WORDS else name.find_uri_part()
            if span is None and word == "auth":
                span = name.find_login()
            if span is not None and span[0] < span[1]:
                yield span
                done = span[1]
            done = max(done, runs.cleared)


class _NameMatch:
    """A possible name of a secret, and the text after it."""

    __slots__ = ("at", "far", "first", "head", "quoted", "runs", "sign", "start", "text", "word")

    def __init__(self, runs: _RunCache, low: str, word: str, match: re.Match[str]) -> None:
        self.runs, self.text, self.word = runs, runs.text, word
        self.start, self.at = match.start(), match.end()
        near = low[self.start - 48 if self.start > 48 else 0 : self.start]
        name = near[len(near.rstrip(HEAD)) :].lstrip("-.")
        self.first = self.start - len(name)
        self.head = self.text[self.first : self.start]
        self.quoted, sign, self.far, comma, _ = match.groups()
        self.sign = sign or comma or ""

    def find_value(self) -> Span | None:
        """The span of the value to hide, None if there is none."""
        written = self.text[self.start : self.start + len(self.word)]
        before = "" if self.head else self.text[self.start - 16 if self.start > 16 else 0 : self.start]
        weight = weigh_name(self.head, written, before)
        if weight == "none":
            return None
        if not self.sign:
            return self._find_after_blank(weight)
        if self.far:
            return self._find_distant()
        if self.sign == ":" and self._is_app_label():
            return None
        if self.sign == ">":
            return self._find_element(weight)
        quoted = self._find_quoted()
        cookies = self._find_cookies(quoted) if self.word == "cookie" and self.sign == ":" else None
        if cookies:
            return cookies
        if self.word == "authorization" and (quoted or self.sign == ":"):
            return self._find_header_credential(quoted)
        if self.sign == ",":
            # two strings side by side: a header and its value, or two unrelated strings
            weight = "weak"
        if quoted:
            return quoted if self._is_secret_span(quoted, weight) and not self._is_call(quoted) else None
        return self._find_bare(weight)

    def find_uri_part(self) -> Span | None:
        """The span to hide in `userinfo='app:…'` or `netloc='app:…@host'`, None if there is none."""
        if self.sign == ":" and self._is_app_label():
            return None
        is_userinfo = self.word in USERINFO_NAMES
        if self.sign == ">":
            found = _get_pattern("element").match(self.text, self.at)
            span = found.span() if found else None
        else:
            span = self._find_quoted() or self.runs.find_run("bare" if is_userinfo else "word", self.at)
        secret = span and find_part_secret(self.text, *span, is_userinfo)
        if span and not secret and span[1] - span[0] > _LONG_RUN:
            self.runs.cleared = span[1]
        return secret

    def find_login(self) -> Span | None:
        """The span of the password in `basic_auth="app:…"` or `auth: 'app:…'`, None if there is none."""
        quoted = self._find_quoted() if self.sign else None
        span = quoted or (self.runs.find_run("bare", self.at) if self.sign else None)
        secret = span and find_part_secret(self.text, *span, is_userinfo=True)
        if secret is None or self.head.lower().rstrip("_-").endswith(("http", "basic", "proxy")):
            return secret
        return secret if quoted and looks_random(self._get_examined(secret), 8) else None

    def _is_app_label(self) -> bool:
        """Whether the name is the app label of a URI (`llm://token:…@host`), which has its own search."""
        ahead = self.text[max(0, self.first - 5) : self.first].lower()
        return ahead.endswith(("//", "llm:", "llm:/"))

    def _is_secret_span(self, span: Span, weight: Weight) -> bool:
        return is_secret_value(self._get_examined(span), self.word, weight)

    def _find_element(self, weight: Weight) -> Span | None:
        """The value in `<api_key>…</api_key>` or `name="api_key">…<`, but not in a comparison."""
        if self.quoted is None and self.text[self.first - 1 : self.first] != "<":
            return None
        found = _get_pattern("element").match(self.text, self.at)
        return found.span() if found and self._is_secret_span(found.span(), weight) else None

    def _find_after_blank(self, weight: Weight) -> Span | None:
        """VALUE in `--api-key VALUE`, `ENV API_KEY VALUE`, `password VALUE` (.netrc), `| token | VALUE |`."""
        option = self.text[self.first - 2 : self.first] == "--"
        if weight == "weak" and not option:
            return None
        span = self._find_quoted() or self.runs.find_run("bare", self.at)
        if span is None:
            return None
        value = self._get_examined(span)
        if option and weight == "strong" and len(value) >= 8 and value[0] != "-":
            return span if self._is_secret_span(span, "strong") else None
        return span if looks_drawn(value, 16) else None

    def _find_distant(self) -> Span | None:
        """A value in brackets or in the next line, if it looks random."""
        quoted = self._find_quoted()
        if self.word == "authorization" and quoted:
            return self._find_header_credential(quoted)
        span = quoted or self.runs.find_run("bare", self.at)
        return span if span and looks_drawn(self._get_examined(span), 16) else None

    def _get_examined(self, span: Span) -> str:
        return self.text[span[0] : min(span[1], span[0] + MAX_EXAMINED)]

    def _find_cookies(self, quoted: Span | None) -> Span | None:
        span = quoted or self.runs.find_run("line", self.at)
        return span if span and "=" in self._get_examined(span) else None

    def _find_header_credential(self, quoted: Span | None) -> Span | None:
        """The credential of an Authorization header, without the name of its scheme."""
        start, end = quoted or (self.at, len(self.text))
        if _get_pattern("parts").match(self.text, start):
            return quoted or self.runs.find_run("line", start)
        scheme = _get_pattern("scheme").match(self.text, start, end)
        if scheme:
            start = scheme.end()
        elif not quoted:
            return self._find_unknown_scheme()
        span = (start, end) if quoted else self.runs.find_run("bare", start)
        weight: Weight = "weak" if self.sign == "," and not scheme else "strong"
        return span if span and self._is_secret_span(span, weight) else None

    def _find_unknown_scheme(self) -> Span | None:
        span = self.runs.find_run("bare", self.at)
        if span is None:
            return None
        if span[1] - span[0] >= 20 or not self._get_examined(span).isalpha():
            return span if self._is_secret_span(span, "strong") else None
        second = _get_pattern("second").match(self.text, span[1])
        return second.span(1) if second and looks_random(second[1], 8) else None

    def _find_bare(self, weight: Weight) -> Span | None:
        """A value without quotes. The value of an environment variable ends at the next blank."""
        ahead = self.text[self.first - 1 : self.first]
        variable = self.sign == "=" and self.text[self.first : self.start + len(self.word)].isupper()
        span = self.runs.find_run("word" if variable and ahead not in ("?", "&") else "bare", self.at)
        if span is None or self.text[span[1] : span[1] + 1] in ("(", "["):
            return None
        value = self._get_examined(span)
        if ahead in ("?", "&") and weight == "weak" and looks_random(value, 8):
            weight = "strong"
        spaced = ":" in self.sign or self.text[self.at - 1] == " "
        if self._is_secret_span(span, weight) and not is_code_word(value, self.word, spaced):
            return span
        if span[1] - span[0] > _LONG_RUN:
            self.runs.cleared = span[1]
        return None

    def _is_call(self, quoted: Span) -> bool:
        """Whether the quoted text is an argument and not a secret: `api_key = os.getenv("API_KEY")`."""
        name, call, _ = self.text[self.at : self.at + 40].partition("(")
        if not call or not name.replace("_", "").replace(".", "").isalpha():
            return False
        if name in _WRAPPERS or "secret" in name.lower():
            return False
        return not looks_drawn(self._get_examined(quoted), 8)

    def _find_quoted(self) -> Span | None:
        opening = _get_pattern("quote").match(self.text, self.at)
        if opening is None:
            return None
        start, quote = opening.end(), opening[3]
        if self.quoted is None and self.sign != "," and self.text[self.first - 1 : self.first] == quote:
            return None  # the quote closes: `prompt="Password: "`
        for match in _get_pattern(quote).finditer(self.text, start):
            slashes = _count_backslashes(self.text, start, match.start())
            if match[0] != quote:
                break
            if opening[2]:
                return start, match.start() - slashes
            if slashes % 2 == 0:
                return start, match.start()
        # the closing quote is missing: the value ends at the next blank
        return self.runs.find_run("word", start)


def _count_backslashes(text: str, start: int, end: int) -> int:
    """The number of backslashes before `end`."""
    count = 0
    while end - count > start and text[end - count - 1] == "\\":
        count += 1
    return count


# `Some("...")` is a value, not a call that returns one
_WRAPPERS = ("Some", "String", "str", "bytes")
#: shorter known secrets are ignored: they would match in ordinary text
_LEAST = 4
#: two rounds are enough, except for texts made to need more
_ROUNDS = 6
# characters: a shorter text is searched again as a whole
_SHORT_TEXT = 2_048


def list_known_values(secrets: Iterable[Secret | str]) -> tuple[str, ...]:
    """The texts of secrets to remove wherever they occur, without those that are too short."""
    if isinstance(secrets, str | Secret):
        raise TypeError("secrets is a collection of secrets, not one")
    values = {secret.reveal() if isinstance(secret, Secret) else secret for secret in secrets}
    return tuple(sorted(value for value in values if len(value) >= _LEAST and value != MARK))


def find_spans(text: str, known: tuple[str, ...]) -> list[Span]:
    """The spans to hide, in order and without overlaps."""
    found = list(_find_occurrences(text, known))
    views: list[TextView] = []
    below = replace_lookalikes(text)
    found += _find_layer_spans(below, known, _accept_any)
    joined = TextView.strip_invisible(below)
    if joined is not None:
        found += map(joined.map_back, _find_layer_spans(joined.text, known, _accept_any))
        views.append(joined)
        below = joined.text
    for _ in range(LAYERS):
        view = TextView.undo_escapes(below)
        if view is None:
            break
        views.append(view)
        below = view.text
        found += (_map_to_original(views, span) for span in _find_layer_spans(below, known, view.has_escape))
    return _merge_spans(found)


def _map_to_original(views: list[TextView], span: Span) -> Span:
    for view in reversed(views):
        span = view.map_back(span)
    return span


def _find_layer_spans(
    text: str, known: tuple[str, ...], written: Callable[[int, int], bool]
) -> Iterator[Span]:
    low = lower_text(text)
    yield from find_keys(text)
    yield from find_named_values(text, low)
    yield from find_uri_credentials(text, low, written)
    yield from find_reference_credentials(text)
    yield from find_bare_credentials(text, low)
    yield from _find_occurrences(text, known)


def _accept_any(start: int, end: int) -> bool:
    return True


def _find_occurrences(text: str, known: tuple[str, ...]) -> Iterator[Span]:
    for value in known:
        start = text.find(value)
        while start >= 0:
            yield start, start + len(value)
            start = text.find(value, start + 1)


def _merge_spans(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def clean_text(text: str, known: tuple[str, ...], hidden: list[Span] | None = None) -> str:
    """Replace each span by the mark; `hidden` are spans that were found before.

    Text beside a mark may be read differently than beside the secret, so the lines around new marks are
    searched again until the result stays the same. This makes redaction idempotent.
    """
    # a known value may have more lines than are searched again; a short text has few
    as_whole = len(text) <= _SHORT_TEXT or any("\n" in value for value in known)
    if hidden is None:
        hidden = find_spans(text, known)
    for _ in range(_ROUNDS):
        marks = _find_marks(text, hidden)
        if not marks:
            break
        text = _replace_spans(text, hidden)
        if as_whole:
            hidden = find_spans(text, known)
        else:
            near = TextView.keep_near(text, marks)
            hidden = [near.map_back(span) for span in find_spans(near.text, known)]
    return text


def _find_marks(text: str, hidden: list[Span]) -> list[Span]:
    """Where the marks will be that change the text."""
    marks: list[Span] = []
    shift = 0
    for start, end in hidden:
        if text[start:end] != MARK:
            marks.append((start + shift, start + shift + len(MARK)))
        shift += len(MARK) - (end - start)
    return marks


def _replace_spans(text: str, hidden: list[Span]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in hidden:
        parts += (text[done:start], MARK)
        done = end
    parts.append(text[done:])
    return "".join(parts)


#: characters in a line up to which the pieces give the same result as the whole text
WINDOW = 65_536
# characters of a longer line that are kept back
_MARGIN = 8_192
# lines that may continue in the next are kept back, up to this number
_OPEN_LINES = 8
# the largest distance between a name and its value
_CONTEXT = 256


def _is_open(text: str, start: int, end: int) -> bool:
    """Whether a line may continue in the next: it ends in a name, or in a word with a colon."""
    line = text[start:end].rstrip(" \t\r")
    near = line[-_CONTEXT:]
    if _get_pattern("name at end").search(near):
        return True
    if near.endswith(("=", ">")) and any(name in near.lower() for name in _ALL_NAMES):
        return True
    # an expression for the last word would take quadratic time on a long line
    words = line.rsplit(None, 2)
    if len(words) > 1 and _get_pattern("sign").fullmatch(words[-1]):
        words.pop()
    last = words[-1] + line[-1] if words else ""
    return not last.isascii() or any(mark in last for mark in ":%\\&")


def redact_stream(chunks: Iterable[str], *, secrets: Iterable[Secret | str] = ()) -> Iterator[str]:
    """Redact text that comes in chunks, cut anywhere. Yields text as soon as later text cannot change it.

    The pieces together equal `redact` of the whole text if no line is longer than `WINDOW` characters and no
    known secret contains a newline. In longer lines more may be hidden, but never less of a secret. At most
    about two windows of text are kept in memory.
    """
    known = list_known_values(secrets)
    for text, found in _split_stream(chunks, known):
        yield clean_text(text, known, found)


class Finding(NamedTuple):
    """The place of a credential in a text. Lines and columns count from 1, columns in characters."""

    line: int
    column: int


def find_secrets(chunks: Iterable[str], *, secrets: Iterable[Secret | str] = ()) -> Iterator[Finding]:
    """Yield the place of each credential that `redact_stream` would replace, in order.

    `***` itself is not a credential, so redacted text has none.
    """
    line, before = 1, 0
    for text, found in _split_stream(chunks, list_known_values(secrets)):
        done = 0
        for start, end in found:
            if text[start:end].strip("*"):
                line += text.count("\n", done, start)
                column = start - text.rfind("\n", 0, start)
                yield Finding(line, column if "\n" in text[:start] else column + before)
                done = start
        line += text.count("\n", done)
        before = len(text) - text.rfind("\n") - 1 if "\n" in text else before + len(text)


def _split_stream(chunks: Iterable[str], known: tuple[str, ...]) -> Iterator[tuple[str, list[Span]]]:
    """Yield the text in pieces, each with its spans, as soon as later text cannot change them."""
    held, hiding = "", False
    for chunk in _iter_pieces(chunks):
        held += chunk
        if hiding:
            held, hiding = _skip_secret(held)
        if "\n" not in chunk and len(held) <= 2 * WINDOW:
            continue
        found = find_spans(held, known)
        cut = _find_line_cut(held, found)
        if not cut and len(held) > 2 * WINDOW:
            cut, hiding = _find_forced_cut(held, found)
        if cut:
            yield held[:cut], [span for span in found if span[0] < cut]
            held = held[cut:]
    if held:
        yield held, find_spans(held, known)


def _iter_pieces(chunks: Iterable[str]) -> Iterator[str]:
    for chunk in chunks:
        if not isinstance(chunk, str):
            raise TypeError(f"redact_stream() takes str, not {type(chunk).__name__}")
        for start in range(0, len(chunk), WINDOW):
            yield chunk[start : start + WINDOW]


def _find_line_cut(text: str, found: list[Span]) -> int:
    """The last line break that no span crosses, now or with more text; 0 if there is none."""
    cut = text.rfind("\n") + 1
    for _ in range(_OPEN_LINES):
        before = text.rfind("\n", 0, max(cut - 1, 0)) + 1
        if not cut or not _is_open(text, before, cut - 1):
            break
        cut = before
    begin = text.find(PEM_BEGIN, max(text.rfind(PEM_END), len(text) - PEM_REACH - 128, 0))
    if begin >= 0:
        cut = min(cut, text.rfind("\n", 0, begin) + 1)
    for start, end in reversed(found):
        if start < cut <= end:
            cut = text.rfind("\n", 0, start) + 1
    return cut


def _find_forced_cut(text: str, found: list[Span]) -> tuple[int, bool]:
    """Where to cut a line that is too long, and whether the text after it belongs to a secret."""
    cut = len(text) - _MARGIN
    before = max((end for _, end in found if end <= cut), default=0)
    following = next(((start, end) for start, end in found if end > cut), None)
    if following is None or following[0] >= cut + _CONTEXT:
        return cut, False
    # a name and its value stay together
    start, end = following
    cut = max(before, start - _CONTEXT)
    return (cut, False) if cut else (end, end == len(text))


def _skip_secret(text: str) -> tuple[str, bool]:
    match = _get_pattern("secret end").search(text)
    return (text[match.start() :], False) if match else ("", True)


def redact(text: str, *, secrets: Iterable[Secret | str] = ()) -> str:
    """Replace every credential that can be found in a text by `***`.

    `secrets` are values to remove wherever they occur, also escaped; values shorter than four characters are
    ignored. Idempotent. Raises TypeError if `text` is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"redact() takes a str, not {type(text).__name__}")
    return clean_text(text, list_known_values(secrets))


def redact_part(name: str, value: str) -> str:
    """Redact a part of a URI by its name, such as `userinfo`. Values with other names stay unchanged."""
    low = name.lower()
    if low.endswith(_PART_NAMES):
        span = find_part_secret(value, 0, len(value), low.endswith(USERINFO_NAMES))
        return _replace_spans(value, [span] if span else [])
    return value
