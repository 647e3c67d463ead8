"""Notices on their way from the outbox to a real mail server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from company_support import ADMINISTRATOR, define, load
from onym.errors import StoreError
from onym.registry.records import Actor, Event, EventKind, Role
from onym.registry.store import OutboxNotice, Store
from onym.server.notices import (
    MAX_ATTEMPTS,
    MailSender,
    build_message,
    compute_retry_time,
    format_header_line,
)
from onym.server.settings import Settings, Smtp
from onym.uri.secret import Secret
from registry_support import SMTPServer, smtp_server
from server_support import ALICE, BASE, ROOT, START, Clock
from support import free_port

NOTICE = OutboxNotice(
    id=7,
    registry="uri-schemes",
    request="uri-schemes-17",
    to="user-alice",
    subject="Your request waits",
    text="The expert asks for more review.\n",
    attempts=1,
    number=3,
)


def mail_settings(port: int, **changes: Any) -> Settings:
    given: dict[str, Any] = {"host": "127.0.0.1", "sender": "registry@example.org", "security": "none"}
    return Settings(base_url=BASE, smtp=Smtp(port=port, **{**given, **changes}))


class Outbox:
    """The outbox alone, so that each answer of the mail server meets one notice."""

    def __init__(self, *notices: OutboxNotice) -> None:
        self.waiting = list(notices)
        self.done: list[tuple[int, str, datetime | None]] = []

    async def claim(self, at: datetime, limit: int) -> tuple[OutboxNotice, ...]:
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return tuple(taken)

    async def mark_sent(self, number: int, at: datetime) -> None:
        self.done.append((number, "sent", None))

    async def mark_failed(self, number: int, at: datetime, again: datetime | None, reason: str) -> None:
        self.done.append((number, reason, again))


def go(
    folder: Path,
    settings: Settings,
    outbox: Outbox | None,
    work: Callable[[MailSender, Store], Coroutine[Any, Any, Any]],
) -> Any:
    async def run() -> Any:
        async with await Store.open(str(folder / "registry.db"), create=True) as store:
            for account in (ALICE, ROOT):
                await store.accounts.add(account)
            if outbox is not None:
                store.outbox = outbox  # type: ignore[assignment]
            return await work(MailSender(settings, store, Clock().now), store)

    return asyncio.run(run())


def send(folder: Path, settings: Settings, *notices: OutboxNotice) -> list[tuple[int, str, datetime | None]]:
    outbox = Outbox(*notices)

    async def work(sender: MailSender, store: Store) -> None:
        assert await sender.send_due() == len(notices)

    go(folder, settings, outbox, work)
    return outbox.done


def variant(**changes: Any) -> OutboxNotice:
    from dataclasses import replace

    return replace(NOTICE, **changes)


@pytest.mark.xdist_group("real-servers")
def test_a_notice_arrives_as_plain_text_with_its_headers(tmp_path: Path, smtp: SMTPServer) -> None:
    done = send(tmp_path, mail_settings(smtp.port), variant(subject="Größe", text="Ein Wort: naïve\n"))
    (mail,) = smtp.wait_for(to="alice@example.org")
    assert done == [(7, "sent", None)]
    message = mail.message
    assert (message["from"], message["to"], message["subject"]) == (
        "registry@example.org",
        "alice@example.org",
        "Größe [uri-schemes-17]",
    )
    assert message.get_content_type() == "text/plain"
    assert message.get_content_charset() == "utf-8"
    assert mail.text == f"Größe\n\nEin Wort: naïve\n\n-- \n{BASE}/requests/uri-schemes-17\n"
    assert message["list-id"] == "<uri-schemes.registry.example.org>"
    assert message["auto-submitted"] == "auto-generated"
    assert message["references"] == "<request-uri-schemes-17@registry.example.org>"
    assert message["message-id"].startswith("<notice-7-")


@pytest.mark.xdist_group("real-servers")
def test_a_role_is_told_without_showing_who_holds_it(tmp_path: Path) -> None:
    with smtp_server() as server:
        send(tmp_path, mail_settings(server.port), variant(to=Role.EXPERT, id=8))
        (mail,) = server.wait_for()
    assert mail.recipients == ("alice@example.org",)

    addresses = ["a@example.org", "b@example.org"]
    message = build_message(variant(to=Role.EXPERT), addresses, mail_settings(25), START)
    assert "example.org" not in message["to"]


@pytest.mark.xdist_group("real-servers")
def test_starttls_and_login_are_used_and_certificates_count(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    with smtp_server(login=("registry", "sekret"), starttls=context) as server:
        common = {"security": "starttls", "username": "registry", "password": Secret("sekret")}
        done = send(tmp_path, mail_settings(server.port, ca_file=str(ca), **common), NOTICE)
        assert done == [(7, "sent", None)]
        (mail,) = server.wait_for()
        assert (mail.encrypted, mail.login) == (True, "registry")
        (tmp_path / "other").mkdir()
        ((_, reason, again),) = send(tmp_path / "other", mail_settings(server.port, **common), NOTICE)
        assert again is not None
        assert "sekret" not in reason


@pytest.mark.xdist_group("real-servers")
@pytest.mark.parametrize(
    ("answer", "again"), [("451 busy", START + timedelta(minutes=1)), ("554 never", None)]
)
def test_a_refusal_is_tried_again_only_where_it_may_pass(
    tmp_path: Path, answer: str, again: datetime | None
) -> None:
    with smtp_server() as server:
        server.answers.append(answer)
        done = send(tmp_path, mail_settings(server.port), NOTICE, variant(id=8))
        assert done == [(7, f"the server answered {answer[:3]}", again), (8, "sent", None)]


@pytest.mark.xdist_group("real-servers")
def test_addresses_that_are_refused_are_given_up(tmp_path: Path) -> None:
    with smtp_server() as server:
        server.refused.add("alice@example.org")
        done = send(tmp_path, mail_settings(server.port), NOTICE)
    assert done == [(7, "the server rejected all addresses", None)]


def test_without_a_server_every_notice_waits(tmp_path: Path) -> None:
    done = send(tmp_path, mail_settings(free_port()), NOTICE, variant(id=8))
    assert [(number, again) for number, _, again in done] == [
        (7, START + timedelta(minutes=1)),
        (8, START + timedelta(minutes=1)),
    ]


@pytest.mark.xdist_group("real-servers")
@pytest.mark.parametrize("to", ["user-root", "user-none", Role.IESG])
def test_who_has_no_address_is_not_told(tmp_path: Path, smtp: SMTPServer, to: str | Role) -> None:
    done = send(tmp_path, mail_settings(smtp.port), variant(to=to))
    assert done == [(7, "no recipient has an address", None)]


@pytest.mark.xdist_group("real-servers")
def test_the_stores_own_outbox_is_emptied(tmp_path: Path, smtp: SMTPServer) -> None:
    async def work(sender: MailSender, store: Store) -> int:
        actor = Actor(id="user-alice", roles=frozenset({Role.REGISTRANT}))
        name = "example-mail"
        event = Event(
            kind=EventKind.OPEN,
            registry="uri-schemes",
            request="uri-schemes-1",
            name=name,
            data={"kind": "new", "name": name, "status": "provisional", "fields": {"name": name}},
        )
        await store.apply(event, actor, START)
        while await sender.send_due():
            pass
        return len(await store.outbox.claim(START + timedelta(days=9_000)))

    assert go(tmp_path, mail_settings(smtp.port), None, work) == 0


def test_the_sender_stops_when_it_is_told(tmp_path: Path) -> None:
    async def work(sender: MailSender, store: Store) -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(sender.run(stop))
        await asyncio.sleep(0)
        stop.set()
        await asyncio.wait_for(task, 300)

    go(tmp_path, mail_settings(25), Outbox(), work)


@pytest.mark.parametrize(
    ("fault", "said"),
    [(StoreError("locked"), "registry.store"), (RuntimeError("secret"), "mail cannot be sent: RuntimeError")],
)
def test_an_outbox_that_fails_does_not_end_the_sender(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: Exception, said: str
) -> None:
    stop = asyncio.Event()

    class Broken(Outbox):
        async def claim(self, at: datetime, limit: int) -> tuple[OutboxNotice, ...]:
            stop.set()
            raise fault

    async def work(sender: MailSender, store: Store) -> None:
        await asyncio.wait_for(sender.run(stop), 300)

    go(tmp_path, mail_settings(25), Broken(), work)
    assert said in caplog.text
    assert "secret" not in caplog.text


def test_pauses_grow_and_end() -> None:
    pauses = []
    for attempts in range(1, MAX_ATTEMPTS):
        again = compute_retry_time(START, attempts)
        assert again is not None
        pauses.append(again - START)
    assert pauses[:4] == [timedelta(minutes=n) for n in (1, 4, 16, 64)]
    assert pauses[-1] == timedelta(hours=6)
    assert compute_retry_time(START, MAX_ATTEMPTS) is None


def test_the_message_id_is_the_notices_own() -> None:
    first = build_message(NOTICE, ["a@example.org"], mail_settings(25), START)
    again = build_message(
        variant(attempts=5), ["a@example.org"], mail_settings(25), START + timedelta(days=1)
    )
    other = build_message(variant(id=8), ["a@example.org"], mail_settings(25), START)
    assert first["message-id"] == again["message-id"] != other["message-id"]


@given(subject=st.text(max_size=300), text=st.text(max_size=500), request=st.text(max_size=50))
def test_no_text_adds_a_header_or_a_recipient(subject: str, text: str, request: str) -> None:
    notice = variant(subject=subject, text=text, request=request)
    message = build_message(notice, ["a@example.org"], mail_settings(25), START)
    read = message_from_bytes(message.as_bytes(), policy=default)
    assert sorted(read.keys()) == sorted(
        [
            "From",
            "To",
            "Subject",
            "Date",
            "Message-ID",
            "References",
            "List-Id",
            "Auto-Submitted",
            "Content-Type",
            "Content-Transfer-Encoding",
            "MIME-Version",
        ]
    )
    assert read["to"] == "a@example.org"
    assert not read.is_multipart()


@pytest.mark.parametrize(
    "text", ["a\r\nBcc: x@example.org", "a\nb", "a\u2028b", "\x00\x1b[31mred", "x" * 5000, "\ud800"]
)
def test_a_subject_is_one_line(text: str) -> None:
    line = format_header_line(text)
    assert len(line) <= 200
    assert line.isprintable()


def test_a_sender_needs_a_mail_server() -> None:
    with pytest.raises(ValueError, match="no mail server"):
        MailSender(Settings(), None, Clock().now)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", [UnicodeError("label empty or too long"), ValueError("x"), KeyError("x")])
def test_what_the_library_cannot_take_is_logged_and_the_sender_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    stop, outbox = asyncio.Event(), Outbox(NOTICE, variant(id=8))

    class Odd:
        async def __aenter__(self) -> None:
            stop.set()
            raise fault

        async def __aexit__(self, *given: object) -> None:
            """Never entered."""

    monkeypatch.setattr(MailSender, "_make_connection", lambda self: Odd())

    async def work(sender: MailSender, store: Store) -> None:
        await asyncio.wait_for(sender.run(stop), 300)

    go(tmp_path, mail_settings(25), outbox, work)
    # the other notice is there again when its lease is over
    assert [(number, said) for number, said, _ in outbox.done] == [(7, type(fault).__name__)]
    assert outbox.done[0][2] is not None
    assert f"notice 7 cannot be sent: {type(fault).__name__}" in caplog.text


@pytest.mark.xdist_group("real-servers")
def test_a_notice_says_what_happened_why_and_what_is_expected_of_its_reader(tmp_path: Path) -> None:
    reason = "The grammar admits a fragment.\n" + "It is long. " * 300 + "The end."

    async def work(sender: MailSender, store: Store) -> None:
        people = {
            who: Actor(id=ROOT.id if who == "iana" else "user-alice", roles=frozenset({role}))
            for who, role in (("ann", Role.REGISTRANT), ("iana", Role.IANA), ("eve", Role.EXPERT))
        }
        fields = {
            "applications": "apps", "contact": "Ann <ann@example.org>", "references": "[RFC3986]",
            "change_controller": "Ann <ann@example.org>",
        }  # fmt: skip
        steps: list[tuple[str, EventKind, dict[str, Any]]] = [
            ("ann", EventKind.OPEN, {"status": "historical", "fields": fields}),
            ("ann", EventKind.SUBMIT, {}),
            ("iana", EventKind.CHECK_COMPLETE, {}),
            ("eve", EventKind.ASK_MORE_REVIEW, {"reason": reason}),
        ]
        for who, kind, data in steps:
            event = Event(
                kind=kind, registry="uri-schemes", request="uri-schemes-1", name="mailed", data=data
            )
            await store.apply(event, people[who], START)
        while await sender.send_due():
            pass

    with smtp_server() as server:
        go(tmp_path, mail_settings(server.port), None, work)
        mails = server.wait_for(2)
    asked = next(mail for mail in mails if "more review" in mail.message["subject"])
    assert asked.message["subject"] == "mailed: more review of uri-schemes-1 is asked for"
    assert " ".join(reason.split()) in " ".join(asked.text.split())
    assert "Expected of you: the next step." in asked.text
    assert "Request:  uri-schemes-1, New registration: mailed (Historical)" in asked.text
    assert "[RFC 7595 7.2 step 6]" in asked.text
    assert asked.text.endswith(f"-- \n{BASE}/requests/uri-schemes-1\n")


@pytest.mark.xdist_group("real-servers")
def test_mail_of_a_company_s_registry_has_its_words(tmp_path: Path) -> None:
    async def work(sender: MailSender, store: Store) -> None:
        await store.accounts.set_email(ROOT.id, "root@example.org")
        await store.apply(define(load(tmp_path)), ADMINISTRATOR, START)
        alice = Actor(id="user-alice", roles=frozenset({Role.REGISTRANT}))
        for kind, data in ((EventKind.OPEN, {"fields": {"owner": "Payments"}}), (EventKind.SUBMIT, {})):
            event = Event(kind=kind, registry="services", request="services-1", name="billing", data=data)
            await store.apply(event, alice, START)
        while await sender.send_due():
            pass

    with smtp_server() as server:
        go(tmp_path, mail_settings(server.port), None, work)
        (received,) = server.wait_for(1)
    assert "Registry: Internal services" in received.text
    assert "State:    Submitted to the naming office" in received.text
    assert "IANA" not in received.text
