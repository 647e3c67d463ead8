"""DNS as a discovery source: `_aiip._tcp` SRV and `_aiip` TXT records (AIIP/HTTPS v1, 3.3 rule 6). Pure.

Records that DNSSEC validates have rank 2, all others rank 0. SRV records say where to connect, TXT records
point to resources; neither brings keys. A usable record has the verdict CONFIRMS until it is compared with
the discovery document.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, islice
from typing import Final

from onym.ai.discovery_document import try_canonicalize
from onym.ai.records import Source, Verdict
from onym.common.text import replace_unprintable, shorten_text
from onym.net.hosts import parse_host
from onym.net.messages import SRV, Origin, Records

_SRV: Final = "dns-srv"
_TXT: Final = "dns-txt"
_CONFLICT: Final = "aiip.discovery-conflict"
_DEFAULT_PORT: Final = 443
_KEY: Final = "endpoint="
#: characters of untrusted text that are shown
_SHOWN: Final = 256
#: targets that are used
_MOST_TARGETS: Final = 8
_VERDICTS: Final = {
    "found": Verdict.CONFIRMS,
    "none": Verdict.ABSENT,
    "failed": Verdict.FAILED,
    "bogus": Verdict.FAILED,
}
_BOGUS: Final = "DNSSEC validation failed"


def evaluate_srv(
    records: Records, *, host: str, port: int, draw: Callable[[], float]
) -> tuple[Source, tuple[Origin, ...]]:
    """Return the source and the targets for the service of `host`, in order; () means the host itself.

    `draw` returns random numbers from 0 to below 1, which choose by weight among targets of one priority
    (RFC 2782). At most 8 targets are returned. SRV records do not apply to an authority with a `port` (as in
    RFC 3263 4.2). The caller checks the targets with `drop_alias_targets`; the policy checks their ports and
    addresses before a connection.
    """
    source = _make_source(_SRV, f"_aiip._tcp.{host}", records)
    if records.status != "found":
        return source, ()
    if port != _DEFAULT_PORT:
        return _mark_dropped(source, "the authority has a port, so the records do not apply"), ()
    services = [value for value in records.values if isinstance(value, SRV)]
    # the policy decides about loopback addresses
    usable = [
        value
        for value in services
        if value.port > 0 and parse_host(value.target).kind in ("name", "loopback")
    ]
    targets = list(islice(_order_targets(usable, draw), _MOST_TARGETS))
    values = (
        f"{value.priority} {value.weight} {value.port} {value.target or '.'}"
        for value in [*targets, *services]
    )
    source = replace(source, said=tuple(dict.fromkeys(map(_make_printable, values))))
    if services and not any(value.target for value in services):
        # the target `.` (RFC 2782)
        why = "the record states that the domain does not offer the service"
        if source.validated:
            return replace(source, verdict=Verdict.CONTRADICTS, why=why, code=_CONFLICT), ()
        return _mark_dropped(source, f"{why}, but it is not signed (no DNSSEC)"), ()
    if not targets:
        return _mark_dropped(source, "no target has a host name and a port (RFC 2782)"), ()
    destination = "to this target" if len(targets) == 1 else "to the first target that accepts one"
    why = f"connections for the service go {destination}; TLS and Host keep the authority's name"
    return replace(source, why=why), tuple(Origin("https", value.target, value.port) for value in targets)


def drop_alias_targets(
    source: Source, answers: Sequence[tuple[Origin, Records | None]]
) -> tuple[Source, tuple[Origin, ...]]:
    """Remove the targets that are aliases, by the answers to the queries for CNAME records.

    A target whose answer is None was not queried, and is removed too.
    """
    left: list[Origin] = []
    removed: list[str] = []
    for connect, records in answers:
        if records is not None and records.status == "bogus":
            return _mark_failed(source, records.detail or _BOGUS), ()
        if records is not None and records.status == "none":
            left.append(connect)
            continue
        detail = "it was not queried" if records is None else records.detail
        why = f"it is unknown whether the target is an alias: {detail}"
        if records is not None and records.status == "found":
            why = "the target is an alias, which RFC 2782 forbids"
        removed.append(f"{connect.host}:{connect.port} ({why})" if len(answers) > 1 else why)
    if not left:
        return _mark_dropped(source, "; ".join(removed)), ()
    if removed:
        source = replace(source, why=f"{source.why}; removed: {'; '.join(removed)}")
    return source, tuple(left)


def evaluate_txt(records: Records, *, host: str) -> tuple[Source, tuple[str, ...]]:
    """Return the source and the canonical ai URI that `host` points to; no URI if there is not exactly one.

    A record is `endpoint=` and an ai URI. Records of other forms are ignored; invalid URIs are reported in
    the source.
    """
    source = _make_source(_TXT, f"_aiip.{host}", records)
    if records.status != "found":
        return source, ()
    values = _list_endpoints(records.values)
    canonical = {value: try_canonicalize(value) for value in values}
    good = tuple(dict.fromkeys(uri for uri in canonical.values() if uri is not None))
    source = replace(
        source, said=tuple(dict.fromkeys(uri or _make_printable(text) for text, uri in canonical.items()))
    )
    if not values:
        return replace(source, verdict=Verdict.ABSENT, why="no record contains endpoint="), ()
    if len(good) > 1:
        why = "several records point to different resources"
        return (_mark_failed(source, why) if source.validated else _mark_dropped(source, why)), ()
    bad = sum(uri is None for uri in canonical.values())
    malformed = f"{bad} of {len(canonical)} values not valid ai URIs" if bad else ""
    if not good:
        return _mark_dropped(source, malformed), ()
    return replace(
        source, why=malformed or "a pointer; the discovery document decides whether it applies"
    ), good


def _make_source(name: str, location: str, records: Records) -> Source:
    """Return the source by the status of the answer, without the content of the records."""
    rank, verdict = 2 if records.validated else 0, _VERDICTS[records.status]
    source = Source(name=name, rank=rank, location=location, verdict=verdict, validated=records.validated)
    if records.status == "bogus":
        # a forged answer must not count as an absent record
        return _mark_failed(source, records.detail or _BOGUS)
    return source if records.status == "found" else replace(source, why=records.detail)


def _mark_failed(source: Source, why: str) -> Source:
    return replace(source, verdict=Verdict.FAILED, why=why, code=_CONFLICT)


def _mark_dropped(source: Source, why: str) -> Source:
    return replace(source, verdict=Verdict.DROPPED, why=why)


def _order_targets(values: list[SRV], draw: Callable[[], float]) -> Iterator[SRV]:
    """Yield the targets by priority, and within a priority at random by weight (RFC 2782).

    The first of several records with the same target applies. The order of the answer has no effect.
    """
    places: dict[tuple[str, int], SRV] = {}
    for value in sorted(values, key=lambda value: (value.priority, -value.weight)):
        places.setdefault((value.target, value.port), value)
    for _, equals in groupby(places.values(), key=lambda value: value.priority):
        # weights of 0 first
        left = sorted(equals, key=lambda value: (value.weight > 0, value.target, value.port))
        while left:
            running = list(accumulate(value.weight for value in left))
            yield left.pop(bisect_left(running, int(draw() * (running[-1] + 1))))


def _list_endpoints(values: Iterable[SRV | str]) -> list[str]:
    """Return the values of the key without duplicates; the key is case-insensitive (as in RFC 6763 6.4)."""
    texts = (value for value in values if isinstance(value, str))
    return list(dict.fromkeys(text[len(_KEY) :] for text in texts if text[: len(_KEY)].lower() == _KEY))


def _make_printable(text: str) -> str:
    """Return untrusted text that is safe to print."""
    return replace_unprintable(shorten_text(text, _SHOWN + 1), "\N{REPLACEMENT CHARACTER}")
