"""Notices by e-mail: sends the store's outbox to the mail server, and retries after failures.

The store writes a notice together with its event, so no notice is lost. If the service stops between
sending a message and recording that, it sends the message again with the same Message-ID.

A message names the request, says what is expected of its reader and gives the full reason and a link.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import unicodedata
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP as WIRE
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

from onym.accounts.records import Account, validate_email
from onym.errors import OnymError, RegistryError
from onym.registry.engine import find_appeal_deadline
from onym.registry.records import LogRecord, Request, Role
from onym.registry.registries import REGISTRIES, use_catalog
from onym.server.registry.labels import (
    EVENT_LABELS,
    NEXT_STEPS,
    REQUEST_KIND_LABELS,
    STATE_LABELS,
    STATUS_LABELS,
    format_date,
    format_time,
)
from onym.server.registry.urls import entry_url
from onym.server.settings import Settings
from onym.server.settings_parser import get_host_and_port

if TYPE_CHECKING:
    from aiosmtplib import SMTP

    from onym.registry.store import OutboxNotice, Store

__all__ = [
    "MAX_ATTEMPTS",
    "MailSender",
    "NoticeContext",
    "build_message",
    "compute_retry_time",
    "poll_outbox",
]

#: notices claimed at once, and tries before a notice is given up (about three days)
BATCH: Final = 20
MAX_ATTEMPTS: Final = 16
#: seconds between two checks of an empty outbox, and the timeout of an exchange with the mail server
POLL: Final = 5.0
_TIMEOUT: Final = 30.0
_FIRST: Final = timedelta(minutes=1)
_LONGEST: Final = timedelta(hours=6)
_MOST_RECIPIENTS: Final = 100
_LONGEST_SUBJECT: Final = 200
_LONGEST_TEXT: Final = 100_000
_LOG: Final = logging.getLogger("onym.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeContext:
    """What a notice is about: its log record, and the request as it is now. None for what is unknown."""

    record: LogRecord | None = None
    request: Request | None = None


class MailSender:
    """Sends the notices of the outbox. `clock` returns the time in UTC."""

    def __init__(self, settings: Settings, store: Store, clock: Callable[[], datetime]) -> None:
        if settings.smtp is None:
            raise ValueError("no mail server is set")
        self._smtp = settings.smtp
        self._settings = settings
        self._store = store
        self._clock = clock

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set; a notice that is being sent is finished first."""
        await poll_outbox(self.send_due, stop, "mail")

    async def send_due(self) -> int:
        """Send the notices that are due now, at most a batch. Return how many were claimed."""
        with use_catalog(await self._store.load_catalog()):
            return await self._send_batch()

    async def _send_batch(self) -> int:
        from aiosmtplib import SMTPException  # late: only a service that sends mail needs the library

        claimed = await self._store.outbox.claim(self._clock(), BATCH)
        left = list(claimed)
        if not left:
            return 0
        try:
            async with self._make_connection() as connection:
                while left:
                    await self._send_notice(left[0], connection)
                    left.pop(0)
        except (SMTPException, OSError) as error:
            # the connection failed or was lost: the other notices are retried
            for notice in left:
                await self._mark_failed(notice, type(error).__name__, permanent=False)
        except OnymError:
            raise
        except Exception as error:  # noqa: BLE001 - the library rejects this notice or the settings
            # the other notices return when their lease ends, and this one later
            _LOG.error("notice %d cannot be sent: %s", left[0].id, type(error).__name__)
            await self._mark_failed(left[0], type(error).__name__, permanent=False)
        return len(claimed)

    def _make_connection(self) -> SMTP:
        from aiosmtplib import SMTP

        smtp = self._smtp
        return SMTP(
            hostname=smtp.host,
            port=smtp.port,
            username=smtp.username,
            password=None if smtp.password is None else smtp.password.reveal(),
            use_tls=smtp.security == "tls",
            start_tls=smtp.security == "starttls",
            cert_bundle=smtp.ca_file,
            local_hostname=_get_domain(self._settings),
            timeout=_TIMEOUT,
        )

    async def _send_notice(self, notice: OutboxNotice, connection: SMTP) -> None:
        """Send one notice and mark it. Raises the errors that break the connection."""
        from aiosmtplib import SMTPRecipientsRefused, SMTPResponseException

        context = await self._load_context(notice)
        addresses = await self._list_addresses(notice, context)
        if not addresses:
            await self._mark_failed(notice, "no recipient has an address", permanent=True)
            return
        message = build_message(notice, addresses, self._settings, self._clock(), context)
        try:
            await connection.send_message(message, sender=self._smtp.sender, recipients=addresses)
        except SMTPRecipientsRefused as error:
            codes = [recipient.code for recipient in error.recipients]
            await self._mark_failed(notice, "the server rejected all addresses", permanent=min(codes) >= 500)
        except SMTPResponseException as error:
            # not the server's text: it may quote an address
            await self._mark_failed(notice, f"the server answered {error.code}", permanent=error.code >= 500)
        else:
            await self._store.outbox.mark_sent(notice.id, self._clock())

    async def _mark_failed(self, notice: OutboxNotice, reason: str, *, permanent: bool) -> None:
        at = self._clock()
        again = None if permanent else compute_retry_time(at, notice.attempts)
        await self._store.outbox.mark_failed(notice.id, at, again, reason)
        if again is None:
            _LOG.error("notice %d was given up: %s", notice.id, reason)

    async def _load_context(self, notice: OutboxNotice) -> NoticeContext:
        records = await self._store.log(after=notice.number - 1, limit=1)
        record = next((record for record in records if record.number == notice.number), None)
        request = None if notice.request is None else await self._store.request(notice.request)
        return NoticeContext(record=record, request=request)

    async def _list_addresses(self, notice: OutboxNotice, context: NoticeContext) -> list[str]:
        if isinstance(notice.to, Role):
            found = list(
                await self._store.accounts.list(realm=notice.registry, role=notice.to, limit=_MOST_RECIPIENTS)
            )
            if notice.to is Role.EXPERT and context.request is not None:
                found = [account for account in found if account.id not in context.request.recused]
        else:
            account = await self._store.accounts.get(notice.to)
            found = [] if account is None else [account]
        good = [_get_valid_address(account) for account in found if not account.disabled]
        return sorted({address for address in good if address is not None})[:_MOST_RECIPIENTS]


async def poll_outbox(send_due: Callable[[], Awaitable[int]], stop: asyncio.Event, what: str) -> None:
    """Call `send_due` until `stop` is set, with a pause when nothing is due. `what` is for the log."""
    while not stop.is_set():
        try:
            done = await send_due()
        except OnymError as error:
            _LOG.error("the outbox cannot be read: %s", error.code)
            done = 0
        except Exception as error:  # noqa: BLE001 - later notices must still be sent
            _LOG.error("%s cannot be sent: %s", what, type(error).__name__)
            done = 0
        if not done:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), POLL)


def build_message(
    notice: OutboxNotice,
    addresses: list[str],
    settings: Settings,
    at: datetime,
    context: NoticeContext = NoticeContext(),
) -> EmailMessage:
    """Build the message: text/plain in UTF-8, with a Message-ID that depends only on the notice.

    A single recipient is in To. Several are only in the envelope, so that they do not see each other.
    """
    smtp = settings.smtp
    if smtp is None:
        raise ValueError("no mail server is set")
    domain = _get_domain(settings)
    message = EmailMessage(policy=_POLICY)
    message["From"] = smtp.sender
    message["To"] = addresses[0] if len(addresses) == 1 else f"{notice.registry} {notice.to}:;"
    message["Subject"] = format_header_line(_build_subject(notice)) or "Registry notice"
    message["Date"] = format_datetime(at)
    message["Message-ID"] = f"<notice-{notice.id}-{_hash_notice(settings, notice)}@{domain}>"
    if notice.request is not None:
        # mail programs show the notices of a request as one thread
        message["References"] = f"<request-{_format_id_part(notice.request)}@{domain}>"
    message["List-Id"] = f"<{_format_id_part(notice.registry)}.{smtp.list_id or domain}>"
    message["Auto-Submitted"] = "auto-generated"
    text = _build_text(notice, settings, context)
    message.set_content(_clean_body(text), charset="utf-8")
    return message


def _build_subject(notice: OutboxNotice) -> str:
    """Return the subject, with the ID of the request if it does not name the request."""
    if notice.request is None or notice.request in notice.subject:
        return notice.subject
    return f"{notice.subject} [{notice.request}]"


def _build_text(notice: OutboxNotice, settings: Settings, context: NoticeContext) -> str:
    """Return what happened with its full reason, what is expected, the request, and a link."""
    record, request = context.record, context.request
    parts = [notice.text[:_LONGEST_TEXT].rstrip()]
    if notice.text.strip() != notice.subject.strip():
        parts.insert(0, notice.subject)
    elif record is not None and isinstance(record.event.data.get("reason"), str):
        reason = record.event.data["reason"].strip()
        parts += [reason[:_LONGEST_TEXT]] if reason else []
    link = ""
    if request is not None:
        parts.append(_describe_expected_step(notice, request))
        parts.append("\n".join(_list_facts(request, record)))
    if notice.request is not None:
        link = f"/requests/{_format_id_part(notice.request)}"
    elif record is not None and record.event.name is not None:
        link = entry_url(notice.registry, record.event.name)
    text = "\n\n".join(parts) + "\n"
    return text + (f"\n-- \n{settings.base_url}{link}\n" if link else "")


def _describe_expected_step(notice: OutboxNotice, request: Request) -> str:
    step = NEXT_STEPS[request.state]
    if request.state.is_final:
        end = find_appeal_deadline(request)
        appeal = f" It can be appealed until {format_date(end.date())}." if end is not None else ""
        return f"Expected of you: nothing. {step}{appeal}"
    if _is_holder(notice, request):
        due = f" An answer is expected by {format_date(request.due.date())}." if request.due else ""
        return f"Expected of you: the next step. {step}{due}"
    return f"Expected of you: nothing now. {step}"


def _is_holder(notice: OutboxNotice, request: Request) -> bool:
    """Report whether the next step is the recipient's."""
    if request.holder is Role.EXPERT:
        return notice.to in {Role.EXPERT, request.expert, *request.temporary_experts}
    return notice.to == (request.registrant if request.holder is Role.REGISTRANT else request.holder)


def _list_facts(request: Request, record: LogRecord | None) -> list[str]:
    kind, status = REQUEST_KIND_LABELS[request.kind], STATUS_LABELS[request.status]
    due = "" if request.due is None else f", until {format_date(request.due.date())}"
    facts = [
        f"Request:  {request.id}, {kind}: {request.name} ({status})",
        f"Registry: {REGISTRIES[request.registry].title}",
        f"State:    {STATE_LABELS[request.state]}, since {format_time(request.since)}{due}",
    ]
    if record is not None:
        facts.append(
            f"Step:     {EVENT_LABELS[record.event.kind]}, {format_time(record.at)} [{record.clause}]"
        )
    if request.archive:
        facts.append(f"List:     {format_header_line(request.archive)}")
    return facts


def compute_retry_time(at: datetime, attempts: int) -> datetime | None:
    """Return when to retry after this many attempts (pauses grow fourfold), or None to give up."""
    if attempts >= MAX_ATTEMPTS:
        return None
    pause: timedelta = min(_FIRST * 4 ** min(attempts - 1, 8), _LONGEST)
    return at + pause


def format_header_line(text: str) -> str:
    """Return the text as one header line, without control characters and line ends (RFC 5322 2.2)."""
    plain = "".join(" " if unicodedata.category(c) in _CONTROLS else c for c in text[:2000])
    return " ".join(plain.split())[:_LONGEST_SUBJECT]


_CONTROLS: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_POLICY: Final = WIRE.clone(max_line_length=78, raise_on_defect=True)


def _clean_body(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in lines if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"})


def _format_id_part(text: str) -> str:
    """Return the text with only the characters that a Message-ID or List-Id allows."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in text[:100]).strip(".")


def _get_domain(settings: Settings) -> str:
    # an IPv6 address literal is not a domain
    host = get_host_and_port(settings.base_url).rsplit(":", 1)[0]
    return "localhost" if host.startswith("[") else host


def _hash_notice(settings: Settings, notice: OutboxNotice) -> str:
    # two databases of one host may contain the same number
    text = f"{settings.base_url}\n{notice.id}\n{notice.number}\n{notice.subject}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _get_valid_address(account: Account) -> str | None:
    try:
        return None if account.email is None else validate_email(account.email)
    except RegistryError:
        return None
