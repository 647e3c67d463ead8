"""One connection, made only to look at it: what `onym ping` shows before it sends anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onym.errors import NetError

if TYPE_CHECKING:
    from onym.net._core import Core
    from onym.net._wire import Certificate
    from onym.net.messages import Origin

__all__ = ["ProbeReport", "probe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What was found on the way to an origin, up to the step that failed; times in seconds.

    `answers` are the addresses of the look-up, or those that the host itself says. `address` is the one that
    was connected to. A step that was not reached has None. `subject` is the name on the certificate, `names`
    are those that it is good for, `issuer` vouches for it, `not_after` is until when. `error` is what failed.
    """

    origin: Origin
    answers: tuple[str, ...] = ()
    lookup_seconds: float | None = None
    address: str | None = None
    connect_seconds: float | None = None
    tls_seconds: float | None = None
    tls_version: str | None = None
    cipher: str | None = None
    subject: str | None = None
    names: tuple[str, ...] = ()
    issuer: str | None = None
    not_after: str | None = None
    error: NetError | None = None


async def probe(core: Core, origin: Origin, seconds: float | None) -> ProbeReport:
    """Judge, look up, connect, agree on TLS, and close. Never raises NetError: the report holds it."""
    clock = core.backend.clock
    deadline = None if seconds is None else clock() + seconds
    found: dict[str, Any] = {}
    try:
        start = clock()
        judged = core.targets.judge(origin)
        if isinstance(judged, str):
            answers = await core.look_up(origin, judged, deadline)
            found.update(answers=tuple(answers), lookup_seconds=clock() - start)
            judged = core.targets.judge_answers(origin, answers)
        found.setdefault("answers", judged.addresses)
        start = clock()
        dialled = await core.dial(judged, deadline)
        found.update(address=dialled.address, connect_seconds=clock() - start)
        start = clock()
        connection = await core.establish(dialled, deadline)
        try:
            session = connection.certificate()
            if session is not None:
                found.update(_describe(session), tls_seconds=clock() - start)
        finally:
            connection.close()
    except NetError as error:
        error.endpoint = error.endpoint or str(origin)
        found["error"] = error
    return ProbeReport(origin=origin, **found)


def _describe(session: Certificate) -> dict[str, Any]:
    subject = session.subject
    return {
        "tls_version": session.version,
        "cipher": session.cipher,
        "subject": _common_name(subject.get("subject")),
        "names": tuple(value for _, value in subject.get("subjectAltName", ())),
        "issuer": _common_name(subject.get("issuer")),
        "not_after": subject.get("notAfter"),
    }


def _common_name(name: Any) -> str | None:
    """The most telling part of a distinguished name, as `ssl` has it: a tuple of tuples of pairs."""
    parts = {key: value for pairs in name or () for key, value in pairs}
    for key in ("commonName", "organizationName", "organizationalUnitName"):
        if key in parts:
            return str(parts[key])
    return None
