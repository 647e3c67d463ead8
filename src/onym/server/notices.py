"""Notices by e-mail and webhooks: sends what is in the store's outbox, and again after failures.

The store writes a notice together with its event, so no notice is lost; after a crash it is sent again with
the same ID. A delivery to a webhook is signed as in Standard Webhooks: HMAC-SHA256 over ID, time and body.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP as WIRE
from email.utils import format_datetime
from http import HTTPStatus
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from onym import __version__
from onym.accounts.records import Account, validate_email
from onym.common.files import read_private_file
from onym.errors import CredentialError, OnymError, RegistryError
from onym.net.config import NetConfig
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import HTTPRequest, Send, split_url
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport
from onym.registry.engine import find_appeal_deadline
from onym.registry.records import LogRecord, Request, Role
from onym.registry.registries import REGISTRIES, get_registry, use_catalog
from onym.registry.store import EntryChange, OutboxNotice, Store
from onym.server.registry import labels, urls
from onym.server.registry.urls import entry_url
from onym.server.settings import Settings, Webhook, get_host_and_port
from onym.uri.generic import URI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from aiosmtplib import SMTP

__all__ = [
    "MAX_ATTEMPTS",
    "MailSender",
    "NoticeContext",
    "WebhookSender",
    "build_change_event",
    "build_message",
    "compute_retry_time",
    "list_signatures",
    "poll_outbox",
    "read_webhook_secrets",
]

#: notices claimed at once, and tries before a notice is given up (about three days)
_MAIL_BATCH: Final = 20
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

        claimed = await self._store.outbox.claim(self._clock(), _MAIL_BATCH)
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
    step = labels.describe_next_step(request)
    if request.state.is_final:
        end = find_appeal_deadline(request)
        appeal = f" It can be appealed until {labels.format_date(end.date())}." if end is not None else ""
        return f"Expected of you: nothing. {step}{appeal}"
    if _is_holder(notice, request):
        due = f" An answer is expected by {labels.format_date(request.due.date())}." if request.due else ""
        return f"Expected of you: the next step. {step}{due}"
    return f"Expected of you: nothing now. {step}"


def _is_holder(notice: OutboxNotice, request: Request) -> bool:
    """Report whether the next step is the recipient's."""
    if request.holder is Role.EXPERT:
        return notice.to in {Role.EXPERT, request.expert, *request.temporary_experts}
    return notice.to == (request.registrant if request.holder is Role.REGISTRANT else request.holder)


def _list_facts(request: Request, record: LogRecord | None) -> list[str]:
    kind, status = labels.REQUEST_KIND_LABELS[request.kind], labels.STATUS_LABELS[request.status]
    due = "" if request.due is None else f", until {labels.format_date(request.due.date())}"
    facts = [
        f"Request:  {request.id}, {kind}: {request.name} ({status})",
        f"Registry: {REGISTRIES[request.registry].title}",
        f"State:    {labels.STATE_LABELS[request.state]}, since {labels.format_time(request.since)}{due}",
    ]
    if record is not None:
        facts.append(
            f"Step:     {labels.EVENT_LABELS[record.event.kind]}, {labels.format_time(record.at)} "
            f"[{record.clause}]"
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


#: deliveries that are claimed at once for one webhook; all of them are over before their lease ends
_DELIVERY_BATCH: Final = 10
#: changes that are put into the outbox at once
_MOST_CHANGES: Final = 200
#: seconds for one delivery
_DELIVERY_TIMEOUT: Final = 15.0
_LIMITS: Final = NetLimits(body=64 * 1024, error_body=16 * 1024)
#: bytes of a file with secrets, secrets in it, and bytes of a secret
_MAX_SECRET_FILE: Final = 4096
_MAX_SECRETS: Final = 4
_MIN_SECRET: Final = 24
_PREFIX: Final = "whsec_"


def read_webhook_secrets(file: str) -> tuple[Secret, ...]:
    """Return the secrets of a file, one on each line; the first is the newest.

    A secret is `whsec_` and Base64, or a text of at least 24 bytes. Raises CredentialError.
    """
    try:
        text = read_private_file(Path(file), _MAX_SECRET_FILE).decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    short = any(len(_decode_secret(line)) < _MIN_SECRET for line in lines)
    if not 0 < len(lines) <= _MAX_SECRETS or short:
        raise CredentialError(
            f"{file} must have 1 to {_MAX_SECRETS} lines, each a secret of at least {_MIN_SECRET} bytes",
            code="credential.unreadable",
            hint=f"make one: umask 077; echo whsec_$(openssl rand -base64 32) > {file}",
        )
    return tuple(Secret(line) for line in lines)


def _decode_secret(text: str) -> bytes:
    if not text.startswith(_PREFIX):
        return text.encode("utf-8")
    try:
        return base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        return b""


def list_signatures(identifier: str, seconds: int, body: bytes, secrets: Sequence[Secret]) -> str:
    """Return the value of the field `webhook-signature`: one signature for each secret."""
    signed = f"{identifier}.{seconds}.".encode("ascii") + body
    found = []
    for secret in secrets:
        digest = hmac.new(_decode_secret(secret.reveal()), signed, hashlib.sha256).digest()
        found.append(f"v1,{base64.b64encode(digest).decode('ascii')}")
    return " ".join(found)


def build_change_event(change: EntryChange, base_url: str) -> dict[str, Any]:
    """Return what a delivery says about a change. It contains no text of a registrant but the name."""
    from onym.registry.iana import get_cell
    from onym.registry.iana.changes import compare_entries  # late: nothing to send needs none of it

    after, before = change.after, change.before
    about = after or before
    assert about is not None  # noqa: S101 - a change has one
    compared = compare_entries(before, after, at=change.at)
    registry = get_registry(about.registry)
    cells = [
        tuple("" if entry is None else get_cell(entry, column.id) for entry in (before, after))
        for column in registry.columns
    ]
    differing = [column.id for column, (old, new) in zip(registry.columns, cells, strict=True) if old != new]
    return {
        "type": "registry.entry.changed",
        "timestamp": change.at.isoformat(),
        "data": {
            "number": change.number,
            "registry": registry.id,
            "name": about.name,
            "change": None if compared is None else str(compared.kind),
            "event": str(change.event),
            "status_before": None if before is None else str(before.status),
            "status": None if after is None else str(after.status),
            "columns": differing,
            "version": change.version,
            "page": base_url + urls.entry_url(registry.id, about.name),
            "entry": base_url + urls.api_url("registries", registry.id, "entries", about.name),
        },
    }


class WebhookSender:
    """Sends the changes to all webhooks of the settings. `clock` returns the time in UTC."""

    def __init__(self, settings: Settings, store: Store, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        #: the head up to which a webhook's deliveries are in the outbox; the log was empty if it is 0
        self._seen: dict[str, int] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set; deliveries that are being sent are finished first."""
        await poll_outbox(self.send_due, stop, "webhooks")

    async def send_due(self) -> int:
        """Send what is due now, at most a batch to each webhook. Return how many deliveries were tried."""
        # a slow receiver must not delay the others
        with use_catalog(await self._store.load_catalog()):
            done = await asyncio.gather(*(self._serve_webhook(hook) for hook in self._settings.webhooks))
        return sum(done)

    async def _serve_webhook(self, hook: Webhook) -> int:
        try:
            await self._fill_outbox(hook)
            claimed = await self._store.outbox.claim(self._clock(), _DELIVERY_BATCH, webhook=hook.name)
            if not claimed:
                return 0
            async with AsyncTransport(make_webhook_network(hook)) as transport:
                for notice in claimed:
                    await self._send_notice(hook, notice, transport)
        except OnymError as error:
            _LOG.error("webhook %s: %s", hook.name, error.code)
            return 0
        return len(claimed)

    async def _fill_outbox(self, hook: Webhook) -> None:
        """Put the changes since the last delivery into the outbox."""
        head = (await self._store.head()).number
        seen = self._seen.get(hook.name)
        if seen is not None and seen == head:
            return
        added = await self._store.outbox.add_changes(
            hook.name,
            hook.registries,
            self._clock(),
            render=lambda change: json.dumps(build_change_event(change, self._settings.base_url)),
            limit=_MOST_CHANGES,
            start=seen,
        )
        if added < _MOST_CHANGES:
            self._seen[hook.name] = head

    async def _send_notice(self, hook: Webhook, notice: OutboxNotice, transport: AsyncTransport) -> None:
        reason = await self.deliver(hook, f"record-{notice.number}", notice.text.encode("utf-8"), transport)
        at = self._clock()
        if reason is None:
            await self._store.outbox.mark_sent(notice.id, at)
            return
        # 410 Gone: the receiver wants no more of this
        gone = reason == _describe_status(HTTPStatus.GONE)
        again = None if gone else compute_retry_time(at, notice.attempts)
        await self._store.outbox.mark_failed(notice.id, at, again, reason)
        if again is None:
            _LOG.error(
                "webhook %s: the delivery of record %d was given up: %s", hook.name, notice.number, reason
            )

    async def send_test(self, hook: Webhook) -> str | None:
        """Send a delivery of the type `registry.test` now. Return why it failed, or None."""
        event = {
            "type": "registry.test",
            "timestamp": self._clock().isoformat(),
            "data": {"webhook": hook.name},
        }
        async with AsyncTransport(make_webhook_network(hook)) as transport:
            return await self.deliver(
                hook, f"test-{token_hex(8)}", json.dumps(event).encode("utf-8"), transport
            )

    async def deliver(
        self, hook: Webhook, identifier: str, body: bytes, transport: AsyncTransport
    ) -> str | None:
        """Send one delivery. Return why it failed, without any text of the receiver, or None."""
        try:
            seconds = int(self._clock().timestamp())
            fields = self._list_fields(hook, identifier, seconds, body)
            origin, target = split_url(URI.parse(hook.url))
            request = HTTPRequest(
                method="POST", origin=origin, target=target, headers=tuple(fields.items()), body=body
            )
            reply = await transport.send(Send(request=request, timeout=_DELIVERY_TIMEOUT))
        except OnymError as error:
            return error.code or type(error).__name__
        return None if 200 <= reply.status < 300 else _describe_status(reply.status)

    def _list_fields(
        self, hook: Webhook, identifier: str, seconds: int, body: bytes
    ) -> Mapping[str, str | Secret]:
        return {
            "content-type": "application/json",
            "user-agent": f"onym/{__version__}",
            "webhook-id": identifier,
            "webhook-timestamp": str(seconds),
            "webhook-signature": list_signatures(
                identifier, seconds, body, read_webhook_secrets(hook.secret_file)
            ),
        }


def make_webhook_network(hook: Webhook) -> NetConfig:
    """Return how a webhook is reached: only public addresses, and those that its settings allow."""
    policy = Policy.preset(hook.network, allow_networks=hook.allow_networks)
    tls = TLSConfig(ca_files=() if hook.ca_file is None else (hook.ca_file,))
    return NetConfig(policy=policy, tls=tls, limits=_LIMITS)


def _describe_status(status: int) -> str:
    return f"the receiver answered {int(status)}"
