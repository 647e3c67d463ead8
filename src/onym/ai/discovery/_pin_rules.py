"""When a document asks for less than the one before: then it is taken for an attack. Pure.

An authority says how long it means what it says (`pin_max_age`). Until then each of these may grow and never
shrink: signed results, mTLS, DPoP, sign-in, the strength of the weakest signature algorithm. And its key set
goes on from one look to the next: a set that shares no key with the last one seen is refused, so a new key is
announced by publishing it beside one that is known already (3.9 asks for that overlap anyway).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from onym.ai.records import AnchorDocument, Auth, Level
from onym.errors import DiscoveryError

__all__ = ["CLAUSE", "LONGEST_PIN", "Pin", "judge"]

CLAUSE: Final = "AIIP/HTTPS v1 3.3 rule 7"
#: seconds that a pin holds at most, whatever the authority says
LONGEST_PIN: Final = 2 * 365 * 24 * 3600
#: a pin is written anew when it holds this many seconds longer than before
_NOTED: Final = 60.0

_LEVELS: Final = (Level.NONE, Level.SUPPORTED, Level.REQUIRED)
#: bits of security (NIST SP 800-57 1, table 2); PS256 with its smallest key
_BITS: Final[Mapping[str, int]] = MappingProxyType({"PS256": 112, "Ed25519": 128, "ES256": 128, "ES384": 192})
#: a demand's name up to its colon -> what a document without it has lost
_LOST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "signed-results": "until now it asked for signed results",
        "mtls": "until now it asked for client certificates (mTLS)",
        "dpop": "until now it asked more firmly for proofs of possession (DPoP)",
        "auth": "until now it asked callers to sign in",
        "bits": "until now it signed with stronger algorithms alone",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What one authority is held to: each demand and until when it stands, and the keys last seen.

    Times are seconds since the epoch; the keys count as long as any demand stands.
    """

    demands: Mapping[str, float]
    kids: frozenset[str] = frozenset()

    @property
    def until(self) -> float:
        """When nothing of it holds any more."""
        return max(self.demands.values(), default=0.0)


def judge(
    authority: str, document: AnchorDocument, kids: Collection[str], at: float, before: Pin | None
) -> Pin | None:
    """What to remember of this document, None where that is there already. Raises DiscoveryError."""
    demands = _demands(document)
    held = {name: until for name, until in (before.demands.items() if before else ()) if until > at}
    for name in held:
        if name not in demands:
            raise _downgrade(authority, _LOST[name.partition(":")[0]])
    known = before.kids if before and held else frozenset()
    if kids and known and known.isdisjoint(kids):
        raise _downgrade(
            authority,
            "none of its keys is one that it had",
            "a new key is published beside the old one before the old one goes; else this is not its owner",
        )
    now = _grown(held, demands, frozenset(kids) or known, at, document.pin_max_age)
    return now if _worth_writing(before, now) else None


def _demands(document: AnchorDocument) -> frozenset[str]:
    """Everything that this document asks for; what asks for more asks for the lesser as well."""
    asked = document.requirements
    bits = min((_BITS.get(each, 0) for each in document.algorithms), default=0)
    level = _LEVELS.index(asked.dpop)
    return frozenset(
        [
            *(["signed-results"] if asked.signed_results else []),
            *(["mtls"] if asked.mtls else []),
            *(["auth"] if asked.auth is not Auth.NONE else []),
            *(f"dpop:{each}" for each in _LEVELS[1 : level + 1]),
            *(f"bits:{each}" for each in sorted(set(_BITS.values())) if each <= bits),
        ]
    )


def _grown(
    held: Mapping[str, float], demands: frozenset[str], kids: frozenset[str], at: float, pin_max_age: int
) -> Pin:
    """The pin with this document in it. A shorter `pin_max_age` takes nothing back that was promised."""
    until = at + min(max(pin_max_age, 0), LONGEST_PIN)
    stands = {name: max(until, held.get(name, 0.0)) for name in demands}
    stands = {name: end for name, end in stands.items() if end > at}
    return Pin(demands=stands, kids=kids if stands else frozenset())


def _worth_writing(before: Pin | None, now: Pin) -> bool:
    if before is None:
        return bool(now.demands)
    if now.kids != before.kids or now.demands.keys() != before.demands.keys():
        return True
    return any(end - before.demands[name] >= _NOTED for name, end in now.demands.items())


def _downgrade(authority: str, what: str, hint: str | None = None) -> DiscoveryError:
    return DiscoveryError(
        f"{authority} asks for less than it did: {what}",
        code="aiip.downgrade-detected",
        clause=CLAUSE,
        hint=hint or "ask its owner; what it promised counts until the end of its pin_max_age",
    )
