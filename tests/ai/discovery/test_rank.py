"""Whom to believe: the rules of 3.3 over what sources say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.discovery.evaluation import Candidate, Discovery, is_same_site, list_resources, weigh_sources
from onym.ai.records import AnchorDocument, EndpointEntry, Source, Verdict

ORIGIN = "https://bank.example"
PAY = "ai://bank.example/pay"
RANKS = {"dns-txt": 0, "link": 1, "html": 0, "dns-srv": 0, "anchor": 3}


def document(
    *uris: str, authority: str = "bank.example", anchor: str | None = None, origins: tuple[str, ...] = ()
) -> AnchorDocument:
    origin = anchor or f"https://{authority}"
    return AnchorDocument(
        anchor=origin,
        authority=authority,
        service=f"{origin}/v1",
        jwks=f"{origin}/keys",
        endpoints=tuple(EndpointEntry(uri=uri) for uri in uris),
        origins=origins,
    )


def source(name: str, *said: str, rank: int | None = None, verdict: Verdict = Verdict.CONFIRMS) -> Source:
    return Source(
        name=name,
        rank=RANKS[name] if rank is None else rank,
        location="there",
        verdict=verdict,
        said=said,
        validated=rank == 2,
    )


def weighed(*sources: Source, own: AnchorDocument | None, **named: AnchorDocument) -> Discovery:
    return weigh_sources(
        ORIGIN, "bank.example", own, sources, {each.authority: each for each in named.values()}
    )


def verdicts(found: Discovery) -> list[Verdict]:
    return [each.verdict for each in found.sources]


@pytest.mark.parametrize("name", ["dns-txt", "link", "html"])
def test_a_pointer_that_the_document_lists_confirms(name: str) -> None:
    found = weighed(source(name, "AI://Bank.example:443/%70ay"), own=document(PAY))
    assert verdicts(found) == [Verdict.CONFIRMS]
    assert found.sources[0].said == (PAY,)
    assert found.candidates[0].uri == PAY
    assert found.candidates[0].by == ("anchor", name)
    assert found.refusal is None


def test_a_query_does_not_make_another_resource() -> None:
    found = weighed(source("link", PAY + "?amount=1"), own=document(PAY))
    assert verdicts(found) == [Verdict.CONFIRMS]
    assert [each.uri for each in found.candidates] == [PAY, PAY + "?amount=1"]


def test_a_document_that_lists_nothing_leaves_its_authority_open() -> None:
    assert verdicts(weighed(source("link", PAY), own=document())) == [Verdict.CONFIRMS]


@pytest.mark.parametrize(("name", "rank"), [("dns-txt", 0), ("link", 1), ("html", 0)])
def test_weak_sources_that_disagree_are_dropped_and_reported(name: str, rank: int) -> None:
    # prov-098, prov-099
    found = weighed(source(name, "ai://bank.example/other", rank=rank), own=document(PAY))
    assert verdicts(found) == [Verdict.DROPPED]
    assert "does not list" in found.sources[0].why
    assert [each.uri for each in found.candidates] == [PAY]
    assert found.refusal is None


@pytest.mark.parametrize("uri", ["ai://bank.example/other", "ai://evil.example/x"])
def test_signed_dns_that_disagrees_stops(uri: str) -> None:
    found = weighed(source("dns-txt", uri, rank=2), own=document(PAY))
    assert verdicts(found) == [Verdict.CONTRADICTS]
    assert found.refusal is not None
    assert found.refusal.code == "aiip.discovery-conflict"
    assert [row.name for row in found.sources if row.code] == ["dns-txt"]


def test_what_dns_itself_found_wrong_stops() -> None:
    bogus = Source(
        name="dns-srv",
        rank=0,
        location="_aiip._tcp.bank.example",
        verdict=Verdict.FAILED,
        why="the signatures do not hold",
        code="aiip.discovery-conflict",
    )
    found = weighed(bogus, own=document(PAY))
    assert found.refusal is not None
    assert found.refusal.code == bogus.code
    assert found.sources == (bogus,)


def test_two_values_of_a_page_are_ambiguous() -> None:
    two = weighed(source("link", PAY, "ai://bank.example/other"), own=document(PAY))
    assert verdicts(two) == [Verdict.CONTRADICTS]
    assert two.refusal is not None
    assert two.refusal.code == "aiip.discovery-conflict"


def test_two_spellings_of_one_value_are_not_ambiguous() -> None:
    found = weighed(source("link", PAY, "ai://BANK.example/pay"), own=document(PAY))
    assert found.refusal is None


def test_malformed_values_are_dropped_before_they_can_be_ambiguous() -> None:
    found = weighed(source("link", PAY, "ai://user@bank.example/x"), own=document(PAY))
    assert verdicts(found) == [Verdict.CONFIRMS]
    assert "ai://user@bank.example/x" in found.sources[0].why
    nothing = weighed(source("html", "javascript:alert(1)"), own=document(PAY))
    assert verdicts(nothing) == [Verdict.DROPPED]


def test_two_values_of_a_head_are_two_candidates() -> None:
    found = weighed(
        source("html", PAY, "ai://bank.example/rates", PAY + "x"),
        own=document(PAY, "ai://bank.example/rates"),
    )
    assert verdicts(found) == [Verdict.CONFIRMS]
    assert "does not list" in found.sources[0].why
    assert len(found.candidates) == 2


def test_without_a_document_nobody_speaks_for_the_authority() -> None:
    found = weighed(source("link", PAY), source("dns-txt", PAY, rank=2), own=None)
    assert verdicts(found) == [Verdict.DROPPED, Verdict.DROPPED]
    assert found.candidates == ()


def test_sources_with_nothing_to_say_stay_as_they_are() -> None:
    silent = source("link", verdict=Verdict.ABSENT)
    empty = source("html")
    where = source("dns-srv", "0 0 443 x.example")
    found = weighed(silent, empty, where, own=document(PAY))
    assert verdicts(found) == [Verdict.ABSENT, Verdict.ABSENT, Verdict.CONFIRMS]
    assert found.sources[0] is silent


EVIL = "ai://evil.example/x"


@pytest.mark.parametrize("name", ["link", "html", "dns-txt"])
def test_another_authority_that_does_not_know_the_origin_is_unconfirmed(name: str) -> None:
    # attack 13, prov-095
    for theirs in ({}, {"theirs": document(EVIL, authority="evil.example")}):
        found = weighed(source(name, EVIL), own=document(PAY), **theirs)
        assert verdicts(found) == [Verdict.DROPPED]
        assert [each.confirmed for each in found.candidates] == [True, False]
        assert found.refusal is None


@pytest.mark.parametrize("own", [None, document(PAY)])
def test_another_authority_that_lists_the_origin_confirms_it(own: AnchorDocument | None) -> None:
    theirs = document(authority="pay.example", origins=(ORIGIN,))
    found = weighed(source("link", "ai://pay.example/x"), own=own, theirs=theirs)
    assert verdicts(found) == [Verdict.CONFIRMS]
    assert found.candidates[-1].confirmed


def test_a_sister_of_the_same_domain_must_list_the_resource() -> None:
    pointer = source("link", "ai://pay.bank.example/x")
    silent = weighed(pointer, own=None, theirs=document(authority="pay.bank.example"))
    assert not silent.candidates[0].confirmed
    lists = weighed(
        pointer, own=None, theirs=document("ai://pay.bank.example/x", authority="pay.bank.example")
    )
    assert lists.candidates == (
        Candidate(
            uri="ai://pay.bank.example/x",
            confirmed=True,
            by=("link",),
            why="pay.bank.example has the same registrable domain and lists the resource",
        ),
    )


def test_the_drafts_own_example_holds() -> None:
    """bank.example points by DNS at the registry name bank, which www.bank.example speaks for."""
    uri = "ai://bank/service/payments"
    theirs = document(uri, authority="bank", anchor="https://www.bank.example")
    for rank in (0, 2):
        found = weighed(source("dns-txt", uri, rank=rank), own=None, theirs=theirs)
        assert verdicts(found) == [Verdict.CONFIRMS]


def test_neighbours_under_a_public_suffix_are_strangers() -> None:
    assert is_same_site("https://a.bank.example", "https://b.bank.example:8443")
    assert not is_same_site("https://one.github.io", "https://two.github.io")
    assert not is_same_site("https://bank.co.uk", "https://evil.co.uk")
    assert not is_same_site("https://127.0.0.1", "https://127.0.0.1")
    assert not is_same_site("https://[::1]", "https://[::1]")
    assert not is_same_site("https://co.uk", "https://co.uk")


def test_a_candidate_that_two_sources_name_is_one() -> None:
    theirs = document(authority="pay.example", origins=(ORIGIN,))
    found = weighed(
        source("link", "ai://pay.example/x"), source("html", "ai://pay.example/x"), own=None, theirs=theirs
    )
    assert [(each.uri, each.by) for each in found.candidates] == [("ai://pay.example/x", ("link", "html"))]


def test_what_is_listed_twice_is_listed_once() -> None:
    both = AnchorDocument(
        anchor=ORIGIN, authority="bank.example", service=ORIGIN, jwks=ORIGIN, endpoint=PAY,
        endpoints=(EndpointEntry(uri=PAY),),
    )  # fmt: skip
    assert list_resources(both) == (PAY,)


uris = st.sampled_from([PAY, "ai://bank.example/other", EVIL, "ai://[::1]/x", "nonsense", ""])
sources = st.lists(
    st.builds(
        lambda name, said, signed: source(name, *said, rank=2 if signed and name == "dns-txt" else None),
        st.sampled_from(["dns-txt", "link", "html"]),
        st.lists(uris, max_size=3),
        st.booleans(),
    ),
    max_size=4,
)


@given(sources, st.booleans())
def test_no_pointer_makes_a_stranger_confirmed_or_hides_the_anchor(found: list[Source], known: bool) -> None:
    own = document(PAY) if known else None
    result = weighed(*found, own=own)
    confirmed = {each.uri for each in result.candidates if each.confirmed}
    assert confirmed == ({PAY} if known else set())
    assert len(result.sources) == len(found)
