"""What a client brings to every call: its identity, what it allows, what it has seen."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from onym.ai.exchange import Caller, Question
from onym.ai.records import Auth, Effects, Invocation, Level, Resolution
from onym.ai.replay import MemoryReplays, Replays
from onym.ai.settings import ResolverSettings
from onym.errors import DeniedError

if TYPE_CHECKING:
    from onym.uri.secret import Secret

__all__ = ["HARMLESS", "Session", "Tokens"]

#: the access token for an authority, with the client id that it was given to; None where there is none
Tokens: TypeAlias = "Callable[[Resolution], tuple[Secret, str] | None]"

#: what may be invoked without being allowed by name
HARMLESS: Final = frozenset({Effects.READ, Effects.WRITE})
_CLAUSE: Final = "AIIP/HTTPS v1 3.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Who calls, and on which terms.

    `origin` is the https origin that stands for a caller without a token (a gateway has one). `tokens` gives
    the access token for an authority: it is asked anew for each, and a token goes to the service of the
    authority that it was given for and nowhere else. `allow_effects` says what an invocation may do:
    `financial` and `physical` must be named. `timeout` is seconds for one request.
    """

    settings: ResolverSettings = field(default_factory=ResolverSettings)
    origin: str | None = None
    tokens: Tokens | None = None
    allow_effects: Collection[Effects | str] = HARMLESS
    replays: Replays = field(default_factory=MemoryReplays)
    timeout: float = 60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow_effects", frozenset(Effects(each) for each in self.allow_effects))

    def question(self, invocation: Invocation, resolution: Resolution) -> Question:
        """One attempt of this invocation, with a nonce of its own.

        Raises ProvenanceError `aiip.unavailable` where its answer could not count: nothing is sent then.
        """
        self.replays.admit(resolution.anchor, now=self.settings.clock())
        return Question(invocation, resolution, self._caller(resolution), self.timeout)

    def admit(self, resolution: Resolution, effects: Effects, *, approval: bool = False) -> None:
        """Raises DeniedError where the authority asks for what is not at hand, or the caller allows less.

        `approval` says that somebody would have to agree first, which cannot be asked for yet.
        """
        needs = resolution.document.requirements
        target = str(resolution.uri.without_query)
        if needs.mtls or needs.dpop is Level.REQUIRED:
            raise DeniedError(
                "the authority binds access tokens to their sender (mTLS, DPoP), which is not supported yet",
                code="aiip.sender-constraint",
                target=target,
                clause=_CLAUSE,
            )
        if needs.auth is Auth.OAUTH2 and self._caller(resolution).token is None:
            raise DeniedError(
                "the authority wants an access token",
                code="aiip.authentication-required",
                target=target,
                clause=_CLAUSE,
                hint=f"get one from {', '.join(resolution.document.authorization_servers) or 'its issuer'}",
            )
        if approval:
            raise DeniedError(
                "the resource wants somebody's approval, which is not supported yet",
                code="aiip.approval-required",
                target=target,
                clause="AIIP/HTTPS v1 3.13",
            )
        if effects not in self.allow_effects:
            raise DeniedError(
                f"the resource has {effects} effects, which are not allowed here",
                target=target,
                clause="draft-sogomonian-ai-uri-scheme-01, Security Considerations",
                hint=f"allow_effects names what may be done; --allow {effects} on the command line",
            )

    def prepare(self, invocation: Invocation, effects: Effects, *, keyed: bool = False) -> Invocation:
        """With an idempotency key, where doing it twice would be more than doing it once (3.11).

        `keyed` says that the resource asks for one in any case.
        """
        needed = keyed or effects is not Effects.READ
        if not needed or invocation.idempotency_key is not None:
            return invocation
        return replace(invocation, idempotency_key=secrets.token_urlsafe(24))

    def seen(self, resolution: Resolution) -> Callable[[str, float], bool]:
        """Whether a receipt of this authority was there before; it is from then on."""

        def known(identity: str, until: float) -> bool:
            again = self.replays.seen(f"{resolution.anchor}\n{identity}", until, now=self.settings.clock())
            if again and self.settings.telemetry is not None:
                self.settings.telemetry.replayed(resolution.authority, "receipt")
            return again

        return known

    def _caller(self, resolution: Resolution) -> Caller:
        found = self.tokens(resolution) if self.tokens else None
        if found is None:
            return Caller(origin=self.origin)
        token, client_id = found
        return Caller(token=token, client_id=client_id)
