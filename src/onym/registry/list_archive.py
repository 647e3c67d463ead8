"""A mailing list's archive (mbox or Atom): its messages, and the registration requests that they are about.

    messages = parse_archive(data, link="https://lists.example/arch/{id}")
    for links in plan_links(messages, requests):
        links.request, links.event_data

Archives contain mail of people whom nobody checked. Only headers are parsed; a body is searched for request
IDs as it is, so that MIME structures are never opened. The size, the number of messages and every text are
limited, and XML with a document type declaration is rejected. Addresses and names of senders are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.errors import HeaderParseError
from email.header import decode_header
from email.parser import BytesHeaderParser
from email.policy import compat32
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Final, NoReturn
from xml.parsers import expat

from onym.common.text import format_timestamp
from onym.errors import RegistryError, UsageError
from onym.registry.records import Request, RequestState
from onym.registry.registries import REGISTRIES, get_profile
from onym.uri.components import SEGMENT

#: bytes of an archive, its messages, and bytes of a message's header and of the searched part of its body
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_MESSAGES: Final = 20_000
_MAX_HEADER: Final = 64 * 1024
_MAX_BODY: Final = 64 * 1024
#: messages of one request; the engine has the same limit
_MAX_LINKED: Final = 200
_MAX_URL: Final = 500
_MAX_SUBJECT: Final = 300
_MAX_REFERENCES: Final = 100
_MAX_DEPTH: Final = 32
#: a message can be older than the request, which is often opened after the first discussion
_BEFORE: Final = timedelta(days=90)

_SEPARATOR: Final = re.compile(rb"(?:\A|\n\r?\n)From [^\n]{0,998}\n")
_MESSAGE_ID: Final = re.compile(r"<([^<>\s]{1,250})>")
_WORD: Final = re.compile(r"[A-Za-z0-9+._-]{1,100}")
#: a subject with a name and one of these words is about a registration
_TOPICS: Final = frozenset(
    {"scheme", "schemes", "uri", "registration", "register", "request", "review", "parameter", "namespace"}
)
_ATOM: Final = "http://www.w3.org/2005/Atom"
_THREAD: Final = "http://purl.org/syndication/thread/1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMessage:
    """A message: `parents` are the IDs of messages that it answers, `mentions` request IDs in its text."""

    id: str
    url: str
    subject: str
    at: datetime
    parents: tuple[str, ...] = ()
    mentions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveContent:
    """The messages of an archive, and the number of those without a usable ID, date or address."""

    messages: tuple[ArchiveMessage, ...]
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLinks:
    """New messages about a request. With `announce`, they start the list review of a draft."""

    request: Request
    messages: tuple[ArchiveMessage, ...]
    announce: bool

    @property
    def event_data(self) -> dict[str, Any]:
        """The data of the event LINK_MESSAGES."""
        data: dict[str, Any] = {
            "messages": [
                {"url": message.url, "subject": message.subject, "at": format_timestamp(message.at)}
                for message in self.messages
            ]
        }
        return data | ({"announce": True} if self.announce else {})


def parse_archive(data: bytes, *, link: str | None = None) -> ArchiveContent:
    """Return the messages of an mbox file or an Atom feed (RFC 4155, RFC 4287), oldest first.

    A message of an mbox has its address in Archived-At (RFC 5064); `link` makes the address of the others:
    an https URL that contains `{id}`, for the Message-ID. Raises RegistryError (registry.bad-archive,
    registry.archive-too-large) and UsageError for an unusable `link`.
    """
    if len(data) > MAX_BYTES:
        raise _make_limit_error(f"the archive has more than {MAX_BYTES:,} bytes")
    _require_link(link)
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    drafts: Iterable[ArchiveMessage | None]
    if start.startswith(b"<"):
        drafts = _parse_atom(data)
    elif start.startswith(b"From "):
        drafts = _iter_mbox(data[data.index(b"From ") :], link)
    else:
        raise RegistryError(
            "the file is neither an mbox archive nor an Atom feed",
            code="registry.bad-archive",
            field="archive",
            hint='An mbox file starts with "From ", a feed with <feed xmlns="http://www.w3.org/2005/Atom">.',
        )
    found: dict[str, ArchiveMessage] = {}
    skipped = 0
    for number, message in enumerate(drafts, 1):
        if number > MAX_MESSAGES:
            raise _make_limit_error(f"the archive has more than {MAX_MESSAGES:,} messages")
        if message is None:
            skipped += 1
        else:
            found.setdefault(message.id, message)
    messages = sorted(found.values(), key=lambda message: (message.at, message.id))
    return ArchiveContent(messages=tuple(messages), skipped=skipped)


def _make_limit_error(message: str) -> RegistryError:
    return RegistryError(
        message, code="registry.archive-too-large", field="archive", hint="Split it, for example by month."
    )


def _require_link(link: str | None) -> None:
    good = link is None or (link.startswith("https://") and link.count("{id}") == 1 and _is_url(link))
    if not good:
        raise UsageError(
            "the address pattern is not an https URL with {id}",
            code="usage.archive",
            hint="write it as in https://lists.example/arch/msg/{id}",
        )


def _is_url(text: str) -> bool:
    return text.startswith("https://") and len(text) <= _MAX_URL and text.isprintable() and " " not in text


# ---------- mbox


def _iter_mbox(data: bytes, link: str | None) -> Iterator[ArchiveMessage | None]:
    ends = [(match.start(), match.end()) for match in _SEPARATOR.finditer(data)]
    for number, (_, start) in enumerate(ends):
        end = ends[number + 1][0] if number + 1 < len(ends) else len(data)
        yield _parse_message(data[start:end], link)


def _parse_message(data: bytes, link: str | None) -> ArchiveMessage | None:
    """Return the message, or None if it has no ID, no date or no address."""
    split = re.search(rb"\r?\n\r?\n", data[:_MAX_HEADER])
    if split is None:
        return None
    header = BytesHeaderParser(policy=compat32).parsebytes(data[: split.end()])
    ids = _MESSAGE_ID.findall(_get_header(header, "Message-ID"))
    at = _parse_date(_get_header(header, "Date"))
    if not ids or at is None:
        return None
    url = _get_header(header, "Archived-At").strip().strip("<>")
    if not _is_url(url):
        url = "" if link is None else link.replace("{id}", SEGMENT.quote(ids[0]))
    if not _is_url(url):
        return None
    subject = _decode_subject(_get_header(header, "Subject"))
    answered = f"{_get_header(header, 'References')} {_get_header(header, 'In-Reply-To')}"
    body = data[split.end() : split.end() + _MAX_BODY].decode("ascii", "replace")
    return ArchiveMessage(
        id=ids[0],
        url=url,
        subject=subject,
        at=at,
        parents=tuple(_MESSAGE_ID.findall(answered)[-_MAX_REFERENCES:]),
        mentions=_find_mentions(subject, body),
    )


def _get_header(header: Any, name: str) -> str:
    # bytes that are not ASCII come as a Header object
    return str(header.get(name, ""))[:_MAX_HEADER]


def _parse_date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text[:200])
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _decode_subject(text: str) -> str:
    try:
        parts = decode_header(text[:2000])
        decoded = "".join(
            part if isinstance(part, str) else part.decode(charset or "ascii", "replace")
            for part, charset in parts
        )
    except (HeaderParseError, LookupError, ValueError):
        decoded = text
    return _make_line(decoded)


def _make_line(text: str) -> str:
    plain = "".join(character if character.isprintable() else " " for character in text[:2000])
    return " ".join(plain.split())[:_MAX_SUBJECT]


@cache
def _compile_request_id(registries: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![A-Za-z0-9-])(?:{'|'.join(map(re.escape, registries))})-[1-9][0-9]{{0,17}}(?![0-9])"
    )


def _find_mentions(subject: str, body: str) -> frozenset[str]:
    return frozenset(_compile_request_id(tuple(REGISTRIES)).findall(f"{subject}\n{body}"))


# ---------- Atom


def _parse_atom(data: bytes) -> list[ArchiveMessage | None]:
    reader = _FeedReader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise RegistryError(
            f"the feed is not XML: {expat.ErrorString(error.code)}",
            code="registry.bad-archive",
            field="archive",
            line=error.lineno,
        ) from None
    except (ValueError, LookupError) as error:
        raise RegistryError(
            f"the feed cannot be read ({type(error).__name__})", code="registry.bad-archive", field="archive"
        ) from None
    return reader.messages


class _FeedReader:
    """The handlers of expat, and the messages that they have read."""

    def __init__(self) -> None:
        self.messages: list[ArchiveMessage | None] = []
        self._open: list[str] = []
        self._entry: dict[str, str] | None = None
        self._parents: list[str] = []
        self._text: list[str] = []
        self._length = 0
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._reject_declaration
        self.parser.EntityDeclHandler = self._reject_declaration
        self.parser.ExternalEntityRefHandler = self._reject_declaration
        self.parser.StartElementHandler = self._start_element
        self.parser.EndElementHandler = self._end_element
        self.parser.CharacterDataHandler = self._add_text

    def _reject(self, message: str) -> NoReturn:
        raise RegistryError(
            message, code="registry.bad-archive", field="archive", line=self.parser.CurrentLineNumber
        )

    def _reject_declaration(self, *_: Any) -> NoReturn:
        self._reject("the feed has a document type declaration or an entity")

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != f"{_ATOM} feed":
            self._reject("the document is not an Atom feed")
        if len(self._open) >= _MAX_DEPTH:
            self._reject(f"elements nest beyond {_MAX_DEPTH} levels")
        self._open.append(name)
        if name == f"{_ATOM} entry" and len(self._open) == 2:
            self._entry, self._parents = {}, []
            if len(self.messages) >= MAX_MESSAGES:
                raise _make_limit_error(f"the archive has more than {MAX_MESSAGES:,} messages")
        elif self._entry is not None and len(self._open) == 3:
            self._text, self._length = [], 0
            if name == f"{_ATOM} link" and attributes.get("rel", "alternate") == "alternate":
                self._entry.setdefault("link", attributes.get("href", ""))
            if name == f"{_THREAD} in-reply-to" and len(self._parents) < _MAX_REFERENCES:
                self._parents.append(attributes.get("ref", "")[:_MAX_URL])

    def _add_text(self, text: str) -> None:
        if self._entry is not None and len(self._open) >= 3 and self._length < _MAX_BODY:
            self._text.append(text[: _MAX_BODY - self._length])
            self._length += len(text)

    def _end_element(self, name: str) -> None:
        self._open.pop()
        if self._entry is None:
            return
        if len(self._open) == 2:
            namespace, _, tag = name.rpartition(" ")
            if namespace == _ATOM and tag != "link":
                self._entry.setdefault(tag, "".join(self._text))
        elif len(self._open) == 1:
            self.messages.append(self._make_message(self._entry))
            self._entry = None

    def _make_message(self, entry: Mapping[str, str]) -> ArchiveMessage | None:
        identifier, url = entry.get("id", "").strip()[:_MAX_URL], entry.get("link", "").strip()
        at = _parse_feed_time(entry.get("published") or entry.get("updated", ""))
        if not identifier or at is None or not _is_url(url):
            return None
        subject = _make_line(entry.get("title", ""))
        body = f"{entry.get('summary', '')}\n{entry.get('content', '')}"
        return ArchiveMessage(
            id=identifier, url=url, subject=subject, at=at, parents=tuple(filter(None, self._parents)),
            mentions=_find_mentions(subject, body),
        )  # fmt: skip


def _parse_feed_time(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text.strip()[:40])
        return at.astimezone(UTC) if at.tzinfo else None
    except (ValueError, OverflowError):
        return None


# ---------- requests


def plan_links(messages: Iterable[ArchiveMessage], requests: Iterable[Request]) -> tuple[RequestLinks, ...]:
    """Return the new messages of each request, oldest first.

    A message is about a request if it has the request's ID, is the message that the request gives as its
    archive, or has the request's name and a word such as "scheme" in its subject; so are all answers to it.
    A draft that is not public is found by its ID or archive only.
    """
    listed = tuple(messages)
    answers: dict[str, list[ArchiveMessage]] = {}
    for message in listed:
        for parent in dict.fromkeys(message.parents):
            answers.setdefault(parent, []).append(message)
    named = _index_subjects(listed)
    by_mention: dict[str, list[ArchiveMessage]] = {}
    by_url: dict[str, list[ArchiveMessage]] = {}
    for message in listed:
        by_url.setdefault(message.url, []).append(message)
        for identifier in message.mentions:
            by_mention.setdefault(identifier, []).append(message)
    plans = []
    for request in requests:
        sure = by_mention.get(request.id, []) + by_url.get(request.archive or "", [])
        by_name = named.get(request.name.lower(), [])
        likely = [] if request.public_since is None else _select_in_time(by_name, request)
        found = _collect_threads([*sure, *likely], answers)
        known = {message.url for message in request.messages}
        fresh = {message.url: message for message in found if message.url not in known}
        new = sorted(fresh.values(), key=lambda message: (message.at, message.url))
        new = new[: max(0, _MAX_LINKED - len(known))]
        if new:
            announce = bool(sure) and request.state is RequestState.DRAFT and _has_list_review(request)
            plans.append(RequestLinks(request=request, messages=tuple(new), announce=announce))
    return tuple(plans)


def _has_list_review(request: Request) -> bool:
    return request.status in get_profile(request.profile).list_review


def _index_subjects(messages: Iterable[ArchiveMessage]) -> dict[str, list[ArchiveMessage]]:
    """Return the messages by the words of subjects that are about registrations."""
    found: dict[str, list[ArchiveMessage]] = {}
    for message in messages:
        words = {word.strip(".-_").lower() for word in _WORD.findall(message.subject)}
        if not words.isdisjoint(_TOPICS):
            for word in words:
                found.setdefault(word, []).append(message)
    return found


def _select_in_time(messages: Iterable[ArchiveMessage], request: Request) -> list[ArchiveMessage]:
    start = request.opened - _BEFORE
    return [message for message in messages if message.at >= start]


def _collect_threads(
    roots: Iterable[ArchiveMessage], answers: Mapping[str, list[ArchiveMessage]]
) -> list[ArchiveMessage]:
    """Return the messages and every answer to them."""
    found: dict[str, ArchiveMessage] = {}
    waiting = list(roots)
    while waiting:
        message = waiting.pop()
        if message.id not in found:
            found[message.id] = message
            waiting += answers.get(message.id, [])
    return list(found.values())
