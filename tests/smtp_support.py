"""A real SMTP server (aiosmtpd), run by a test in a thread on a free port."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default as mail_policy
from typing import Any

from loop_support import loop_thread

__all__ = ["SMTPServer", "SentMail", "smtp_server"]


@dataclass(frozen=True)
class SentMail:
    """One message that the server took."""

    sender: str
    recipients: tuple[str, ...]
    message: EmailMessage
    #: was the connection encrypted; who signed in
    encrypted: bool
    login: str | None

    @property
    def text(self) -> str:
        """The plain-text part, its lines ended as Python ends them."""
        part = self.message.get_body(("plain",))
        assert part is not None
        return str(part.get_content()).replace("\r\n", "\n")


@dataclass
class SMTPServer:
    """A running server. `answers` holds replies to come to DATA, such as "451 busy"; then all is taken."""

    port: int = 0
    host: str = "127.0.0.1"
    mails: list[SentMail] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    #: addresses that RCPT TO refuses
    refused: set[str] = field(default_factory=set)
    _arrived: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def wait_for(self, count: int = 1, *, to: str | None = None, timeout: float = 300.0) -> list[SentMail]:
        """The mails (`to` that address), once there are so many. Fails after `timeout` seconds."""

        def found() -> list[SentMail]:
            return [mail for mail in self.mails if to is None or to in mail.recipients]

        with self._arrived:
            assert self._arrived.wait_for(lambda: len(found()) >= count, timeout), (
                f"{len(found())} of {count} mails came"
            )
        return found()

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - the same
        if self.answers:
            return self.answers.pop(0)
        message = BytesParser(policy=mail_policy).parsebytes(envelope.content)
        assert isinstance(message, EmailMessage)
        login = session.auth_data if isinstance(session.auth_data, str) else None
        mail = SentMail(envelope.mail_from, tuple(envelope.rcpt_tos), message, session.ssl is not None, login)
        with self._arrived:
            self.mails.append(mail)
            self._arrived.notify_all()
        return "250 taken"


@contextmanager
def smtp_server(
    *, login: tuple[str, str] | None = None, starttls: ssl.SSLContext | None = None
) -> Iterator[SMTPServer]:
    """A real SMTP server. With `login` it takes mail from that user alone, with `starttls` only encrypted."""
    from aiosmtpd.smtp import SMTP, AuthResult

    inbox = SMTPServer()

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        given = (data.login.decode(), data.password.decode())
        if given != login:
            # not handled: the answer to a refusal is left to aiosmtpd
            return AuthResult(success=False, handled=False)
        return AuthResult(success=True, auth_data=given[0])

    def protocol() -> SMTP:
        return SMTP(
            inbox,
            hostname="smtp.example",
            enable_SMTPUTF8=True,
            authenticator=authenticate,
            auth_required=login is not None,
            auth_require_tls=starttls is not None,
            tls_context=starttls,
            require_starttls=starttls is not None,
        )

    with loop_thread("smtp") as submit:

        async def listen() -> asyncio.Server:
            return await asyncio.get_running_loop().create_server(protocol, inbox.host, 0)

        async def close(server: asyncio.Server) -> None:
            server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        server = submit(listen())
        inbox.port = server.sockets[0].getsockname()[1]
        try:
            yield inbox
        finally:
            submit(close(server))
