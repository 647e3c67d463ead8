"""A mailing list's archive: which requests its messages are about, and what a hostile one cannot do."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import RegistryError, UsageError
from onym.registry import list_archive
from onym.registry.list_archive import ArchiveMessage, RequestLinks, parse_archive, plan_links
from onym.registry.records import ListMessage, Request, RequestKind, RequestState, Status
from support import linear_enough

LIST = "https://mailarchive.ietf.org/arch/msg/uri-review"
OPENED = datetime(2026, 10, 1, tzinfo=UTC)


def mail(number: int, subject: str, *, body: str = "Text.", answers: int = 0, **headers: str) -> str:
    given = {
        "From": f"P{number} <p{number}@example.org>",
        "Subject": subject,
        "Date": f"Mon, {number:02} Oct 2026 09:00:00 +0000",
        "Message-ID": f"<m{number}@example.org>",
        "Archived-At": f"<{LIST}/m{number}>",
        **({"In-Reply-To": f"<m{answers}@example.org>"} if answers else {}),
        **headers,
    }
    lines = "".join(f"{name}: {value}\n" for name, value in given.items() if value)
    return f"From p{number} at example.org Mon Oct {number:2} 09:00:00 2026\n{lines}\n{body}\n\n"


def feed(*entries: str, head: str = "") -> str:
    return f'<?xml version="1.0"?>{head}<feed xmlns="http://www.w3.org/2005/Atom">{"".join(entries)}</feed>'


def item(number: int, title: str, *, answers: int = 0, body: str = "") -> str:
    thread = "http://purl.org/syndication/thread/1.0"
    parent = f'<t:in-reply-to xmlns:t="{thread}" ref="urn:m{answers}"/>' if answers else ""
    return (
        f"<entry><id>urn:m{number}</id><title>{title}</title><link href='{LIST}/m{number}'/>{parent}"
        f"<published>2026-10-{number:02}T09:00:00Z</published><content>{body}</content></entry>"
    )


def request(number: int = 1, name: str = "kite", **changes: Any) -> Request:
    base: dict[str, Any] = {
        "id": f"uri-schemes-{number}", "registry": "uri-schemes", "profile": "rfc7595",
        "kind": RequestKind.NEW, "name": name, "status": Status.PERMANENT, "state": RequestState.LIST_REVIEW,
        "registrant": "ann", "opened": OPENED, "since": OPENED, "announced": OPENED,
    }  # fmt: skip
    return Request(**{**base, **changes})


def plan(text: str, *requests: Request) -> dict[str, list[str]]:
    found = plan_links(parse_archive(text.encode()).messages, requests)
    return {
        links.request.id: [message.url.rpartition("/")[2] for message in links.messages] for links in found
    }


MBOX = (
    mail(5, "Review of uri-schemes-1")
    + mail(6, "Re: that", answers=5)
    + mail(7, "Re: Re: that", answers=6)
    + mail(8, "lunch")
)
ATOM = feed(
    item(5, "Review of uri-schemes-1"), item(6, "Re: that", answers=5),
    item(7, "Re: Re: that", answers=6), item(8, "lunch"),
)  # fmt: skip


@pytest.mark.parametrize("text", [MBOX, ATOM, MBOX.replace("\n", "\r\n"), "\ufeff" + ATOM])
def test_a_thread_is_found_by_the_id_of_the_request(text: str) -> None:
    assert plan(text, request(), request(2, "dragon")) == {"uri-schemes-1": ["m5", "m6", "m7"]}


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        ("The kite URI scheme", True), ("[uri-review] registration: kite:", True), ("KITE scheme", True),
        ("=?utf-8?b?a2l0ZSBzY2hlbWU=?=", True), ("kites scheme", False), ("flying a kite", False),
        ("uri-schemes-11", False), ("xuri-schemes-1", False), ("my-kite scheme", False),
    ],
)  # fmt: skip
def test_a_subject_names_a_request(subject: str, found: bool) -> None:
    assert plan(mail(5, subject), request()) == ({"uri-schemes-1": ["m5"]} if found else {})


def test_an_id_in_the_text_and_the_address_of_the_archive_count_too() -> None:
    assert plan(mail(5, "please look", body="at uri-schemes-1, thanks"), request()) == {
        "uri-schemes-1": ["m5"]
    }
    assert plan(mail(5, "hello"), request(archive=f"{LIST}/m5")) == {"uri-schemes-1": ["m5"]}
    assert plan(feed(item(5, "hello", body="see uri-schemes-1")), request()) == {"uri-schemes-1": ["m5"]}


def test_a_draft_that_is_not_public_is_not_found_by_its_name() -> None:
    draft = request(state=RequestState.DRAFT, announced=None)
    assert plan(mail(5, "The kite URI scheme"), draft) == {}
    (links,) = plan_links(parse_archive(MBOX.encode()).messages, [draft])
    assert links.announce
    assert links.event_data["announce"] is True
    (other,) = plan_links(parse_archive(MBOX.encode()).messages, [request()])
    assert "announce" not in other.event_data


def test_known_messages_are_left_out_and_a_request_gets_200() -> None:
    known = ListMessage(url=f"{LIST}/m5", subject="", at=OPENED)
    assert plan(MBOX, request(messages=(known,))) == {"uri-schemes-1": ["m6", "m7"]}
    named = frozenset({"uri-schemes-1"})
    many = [
        ArchiveMessage(id=str(n), url=f"{LIST}/{n}", subject="", at=OPENED, mentions=named)
        for n in range(300)
    ]  # fmt: skip
    (links,) = plan_links(many, [request(messages=(known,))])
    assert len(links.messages) == 199


def test_old_mail_about_another_thing_of_that_name_is_not_linked_by_its_subject() -> None:
    old = mail(5, "The kite URI scheme", Date="Mon, 05 Oct 2009 09:00:00 +0000")
    assert plan(old, request()) == {}


def test_a_pattern_makes_the_addresses_that_the_archive_lacks() -> None:
    bare = mail(5, "uri-schemes-1", **{"Archived-At": "", "Message-ID": "<a/b?c@example.org>"})
    assert parse_archive(bare.encode()).skipped == 1
    (message,) = parse_archive(bare.encode(), link="https://lists.example/m/{id}/").messages
    assert message.url == "https://lists.example/m/a%2Fb%3Fc%40example.org/"
    for wrong in (
        "http://lists.example/{id}",
        "https://lists.example/",
        "https://x y/{id}",
        "https://{id}/{id}",
    ):
        with pytest.raises(UsageError) as caught:
            parse_archive(bare.encode(), link=wrong)
        assert caught.value.code == "usage.archive"


def test_nobodys_address_is_kept() -> None:
    content = parse_archive(MBOX.encode())
    assert "p5@" not in repr(content)


# -- hostile archives


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "http://lists.example/1", "https://a b/", "https://x/\x07", "", "x" * 900]
)  # fmt: skip
def test_an_address_is_an_https_url_or_the_message_is_left_out(url: str) -> None:
    text = mail(5, "uri-schemes-1", **{"Archived-At": f"<{url}>"})
    assert (parse_archive(text.encode()).messages, parse_archive(text.encode()).skipped) == ((), 1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "registry.bad-archive"),
        ("Dear IANA", "registry.bad-archive"),
        ("<html><body/></html>", "registry.bad-archive"),
        ("<feed/>", "registry.bad-archive"),
        (feed(item(5, "x"))[:-20], "registry.bad-archive"),
        (feed(item(5, "&a;"), head='<!DOCTYPE feed [<!ENTITY a "b">]>'), "registry.bad-archive"),
        (feed(head='<!DOCTYPE feed SYSTEM "file:///etc/passwd">'), "registry.bad-archive"),
        (feed("<a>" * 40 + "</a>" * 40), "registry.bad-archive"),
    ],
)
def test_what_is_no_archive_is_refused(text: str, code: str) -> None:
    with pytest.raises(RegistryError) as caught:
        parse_archive(text.encode())
    assert caught.value.code == code


def test_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_archive, "MAX_MESSAGES", 3)
    for text in (MBOX, ATOM):
        with pytest.raises(RegistryError) as caught:
            parse_archive(text.encode())
        assert caught.value.code == "registry.archive-too-large"
    with pytest.raises(RegistryError) as caught:
        parse_archive(b"From x\n" + b"x" * list_archive.MAX_BYTES)
    assert caught.value.code == "registry.archive-too-large"


@pytest.mark.parametrize(
    "headers",
    [
        {"Subject": "=?utf-8?q?" + "=41" * 3000 + "?="},
        {"Subject": "=?x-none?q?a?= =?utf-8?b?###?="},
        {"Subject": "a\x00b\x1b[31m\u202e"},
        {"References": "<a@b> " * 20_000},
        {"References": "<" * 50_000},
        {"Date": "Mon, 99 Foo 99999999999999999999 99:99:99 +9999"},
        {"Date": "Thu, 01 Jan 0001 00:00:00 +2359"},
        {"Message-ID": "<" + "x" * 5000 + ">"},
        {"Content-Type": 'multipart/mixed; boundary="' + "b" * 60_000 + '"'},
        {"X": "y" * 70_000},
    ],
)
def test_hostile_headers_neither_break_nor_slow_it(headers: dict[str, str]) -> None:
    text = MBOX + mail(9, "uri-schemes-1", **headers)
    with linear_enough(10):
        content = parse_archive(text.encode())
    assert len(content.messages) + content.skipped == 5
    for message in content.messages:
        assert message.subject.isprintable()
        assert len(message.subject) <= 300
        assert len(message.parents) <= 100


def test_answers_in_a_circle_end() -> None:
    text = mail(5, "uri-schemes-1", answers=6) + mail(6, "Re:", answers=5)
    assert plan(text, request()) == {"uri-schemes-1": ["m5", "m6"]}


def test_nested_parts_are_not_opened() -> None:
    body = "--b\nContent-Type: message/rfc822\n\n" * 5_000
    text = mail(5, "uri-schemes-1", body=body, **{"Content-Type": 'multipart/mixed; boundary="b"'})
    assert plan(text, request()) == {"uri-schemes-1": ["m5"]}


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for start in (b"From x\n", b"<", MBOX.encode() + b"\n\n", ATOM.encode()):
        with suppress(RegistryError):
            content = parse_archive(start + data)
            for links in plan_links(content.messages, [request()]):
                assert isinstance(links, RequestLinks)
                assert len(links.event_data["messages"]) <= 200
