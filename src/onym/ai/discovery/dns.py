"""DNS as a discovery source: `_aiip._tcp` SRV and `_aiip` TXT records (AIIP/HTTPS v1, 3.3 rule 6). Pure.

Records that DNSSEC validates have rank 2, all others rank 0. SRV records say where to connect, TXT records
point to resources; neither brings keys. A usable record has the verdict CONFIRMS until it is compared with
the discovery document.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from typing import Final

from onym.ai.records import Source, Verdict
from onym.errors import URIError
from onym.net.hosts import parse_host
from onym.net.messages import SRV, Ask, Origin, Records
from onym.uri.ai import AIURI

_SRV: Final = "dns-srv"
_TXT: Final = "dns-txt"
_CONFLICT: Final = "aiip.discovery-conflict"
_DEFAULT_PORT: Final = 443
_KEY: Final = "endpoint="
#: characters of a stranger's text that are shown
_SHOWN: Final = 256
#: targets that are used of those that a service has
_MOST_TARGETS: Final = 8


def make_srv_query(host: str, timeout: float | None = None) -> Ask:
    """What to ask for where a service is."""
    return Ask(f"_aiip._tcp.{host}", "SRV", timeout)


def make_txt_query(host: str, timeout: float | None = None) -> Ask:
    """What to ask for pointers to resources."""
    return Ask(f"_aiip.{host}", "TXT", timeout)


def make_alias_query(connect: Origin, timeout: float | None = None) -> Ask:
    """What to ask of a target that `evaluate_srv` gave, before it is used."""
    return Ask(connect.host, "CNAME", timeout)


def evaluate_srv(
    records: Records, *, host: str, port: int, draw: Callable[[], float]
) -> tuple[Source, tuple[Origin, ...]]:
    """Where to open connections for the service of `host`, what to try first first; () is the host itself.

    Each number that `draw` gives, at least 0 and below 1, chooses by weight among those of one priority
    (RFC 2782). At most 8 targets are named. An authority that names its `port` is taken at its word: SRV
    records are not for it (as RFC 3263 4.2 has it). The origins found have yet to pass `drop_alias_targets`, and
    the policy, which judges port and addresses before connecting.
    """
    source = _make_source(_SRV, f"_aiip._tcp.{host}", records)
    if records.status != "found":
        return source, ()
    if port != _DEFAULT_PORT:
        why = "the authority names its port, so the records are not for it"
        return replace(source, verdict=Verdict.DROPPED, why=why), ()
    found = [value for value in records.values if isinstance(value, SRV)]
    usable = [value for value in found if _is_usable(value)]
    order = [value for value, _ in zip(_order_targets(usable, draw), range(_MOST_TARGETS), strict=False)]
    source = replace(
        source, said=tuple(dict.fromkeys(_make_printable(_format_srv(value)) for value in [*order, *found]))
    )
    if found and not any(value.target for value in found):
        return _mark_not_offered(source), ()
    if not order:
        why = "no target is a host name with a port (RFC 2782)"
        return replace(source, verdict=Verdict.DROPPED, why=why), ()
    where = "there" if len(order) == 1 else "to the first of them that takes one"
    why = f"connections for the service go {where}; TLS and Host keep the authority's name"
    return replace(source, why=why), tuple(Origin("https", value.target, value.port) for value in order)


def drop_alias_targets(
    source: Source, answers: Sequence[tuple[Origin, Records | None]]
) -> tuple[Source, tuple[Origin, ...]]:
    """What is left of an SRV record's targets, by the answers to `make_alias_query`: none may be an alias.

    A target whose answer is None was not asked about, and is not used.
    """
    left: list[Origin] = []
    out: list[str] = []
    for connect, records in answers:
        if records is not None and records.status == "bogus":
            return _mark_failed(source, _get_bogus_reason(records)), ()
        why = _find_alias_problem(records)
        if why is None:
            left.append(connect)
        else:
            out.append(f"{connect.host}:{connect.port} ({why})" if len(answers) > 1 else why)
    if not left:
        return _mark_dropped(source, "; ".join(out)), ()
    if out:
        source = replace(source, why=f"{source.why}; left out: {'; '.join(out)}")
    return source, tuple(left)


def _find_alias_problem(records: Records | None) -> str | None:
    """Why a target is not used; None for one that is no alias."""
    if records is not None and records.status == "none":
        return None
    if records is not None and records.status == "found":
        return "the target is an alias, which RFC 2782 forbids"
    detail = "it was not asked" if records is None else records.detail
    return f"nothing shows that the target is no alias: {detail}"


def evaluate_txt(records: Records, *, host: str) -> tuple[Source, tuple[str, ...]]:
    """The ai URI that `host` points to, canonical; none where there is none, or more than one.

    A record is `endpoint=` and an ai URI; records of other forms are not ours, and URIs that cannot be used
    are reported in the source.
    """
    source = _make_source(_TXT, f"_aiip.{host}", records)
    if records.status != "found":
        return source, ()
    values = _list_endpoints(records.values)
    canonical = {value: _try_canonicalize(value) for value in values}
    good = tuple(dict.fromkeys(uri for uri in canonical.values() if uri is not None))
    source = replace(
        source, said=tuple(dict.fromkeys(uri or _make_printable(text) for text, uri in canonical.items()))
    )
    if not values:
        return replace(source, verdict=Verdict.ABSENT, why="no record has the key endpoint"), ()
    if len(good) > 1:
        why = "several records point to different resources"
        return (_mark_failed(source, why) if source.validated else _mark_dropped(source, why)), ()
    bad = sum(uri is None for uri in canonical.values())
    malformed = f"{bad} of {len(canonical)} values no ai URI that can be used" if bad else ""
    if not good:
        return _mark_dropped(source, malformed), ()
    return replace(source, why=malformed or "a pointer, which the anchor's document decides on"), good


def _make_source(name: str, location: str, records: Records) -> Source:
    """The source as far as it does not matter what the records hold."""
    verdict, why, code = Verdict.CONFIRMS, "", None
    if records.status == "none":
        verdict, why = Verdict.ABSENT, records.detail
    elif records.status == "failed":
        verdict, why = Verdict.FAILED, records.detail
    elif records.status == "bogus":
        # not an absence: somebody wants it to look like one
        verdict, why, code = Verdict.FAILED, _get_bogus_reason(records), _CONFLICT
    return Source(
        name=name,
        rank=2 if records.validated else 0,
        location=location,
        verdict=verdict,
        why=why,
        code=code,
        validated=records.validated,
    )


def _get_bogus_reason(records: Records) -> str:
    return records.detail or "DNSSEC shows that the answer is false"


def _mark_not_offered(source: Source) -> Source:
    """The target `.`: the service is decidedly not available at this domain."""
    why = "the domain says that it offers no such service"
    if source.validated:
        return replace(source, verdict=Verdict.CONTRADICTS, why=why, code=_CONFLICT)
    return _mark_dropped(source, f"{why}, and nobody vouches for that")


def _mark_failed(source: Source, why: str) -> Source:
    return replace(source, verdict=Verdict.FAILED, why=why, code=_CONFLICT)


def _mark_dropped(source: Source, why: str) -> Source:
    return replace(source, verdict=Verdict.DROPPED, why=why)


def _is_usable(value: SRV) -> bool:
    """Whether it names a host, which may be this machine: that is for the policy to refuse."""
    return value.port > 0 and parse_host(value.target).kind in ("name", "loopback")


def _order_targets(values: list[SRV], draw: Callable[[], float]) -> Iterator[SRV]:
    """RFC 2782: by priority, among equals one after another by weight; weight 0 has a small chance.

    Of records with the same target the first counts. The order does not depend on that of the server.
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


def _format_srv(value: SRV) -> str:
    return f"{value.priority} {value.weight} {value.port} {value.target or '.'}"


def _list_endpoints(values: Iterable[SRV | str]) -> list[str]:
    """The values of the key, once each; the key's case does not matter (as in RFC 6763 6.4)."""
    texts = (value for value in values if isinstance(value, str))
    return list(dict.fromkeys(text[len(_KEY) :] for text in texts if text[: len(_KEY)].lower() == _KEY))


def _try_canonicalize(text: str) -> str | None:
    try:
        return AIURI.parse(text).canonical()
    except URIError:
        return None


def _make_printable(text: str) -> str:
    """A stranger's text, safe to print."""
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in cut)
