"""Webhooks: changes of entries are sent by HTTPS POST to URLs of the settings, and again after failures.

Deliveries are rows of the store's outbox, as mail is. A delivery says which entry changed and how; its
content is at the URLs in it. Its signature follows Standard Webhooks: HMAC-SHA256 over ID, time and body,
with a secret from a file. Receivers may get a delivery twice, with the same ID, and in another order: the
number of the log record orders them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from onym import __version__
from onym.common.files import read_private_file
from onym.errors import CredentialError, OnymError
from onym.net.config import NetConfig
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import HTTPRequest, Send, split_url
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport
from onym.registry.registries import get_registry, use_catalog
from onym.registry.store import EntryChange, OutboxNotice, Store
from onym.server.mail import compute_retry_time, poll_outbox
from onym.server.registry import urls
from onym.server.settings import Settings, Webhook
from onym.uri.generic import URI
from onym.uri.secret import Secret

__all__ = ["WebhookSender", "build_change_event", "list_signatures", "read_webhook_secrets"]

#: deliveries that are claimed at once for one webhook; all of them are over before their lease ends
BATCH: Final = 10
#: changes that are put into the outbox at once
_MOST_CHANGES: Final = 200
#: seconds for one delivery
_TIMEOUT: Final = 15.0
_LIMITS: Final = NetLimits(body=64 * 1024, error_body=16 * 1024)
#: bytes of a file with secrets, secrets in it, and bytes of a secret
_MAX_SECRET_FILE: Final = 4096
_MAX_SECRETS: Final = 4
_MIN_SECRET: Final = 24
_PREFIX: Final = "whsec_"
_LOG: Final = logging.getLogger("onym.server")


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
            claimed = await self._store.outbox.claim(self._clock(), BATCH, webhook=hook.name)
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
            reply = await transport.send(Send(request=request, timeout=_TIMEOUT))
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
