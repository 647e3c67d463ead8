"""What DNS says of an authority, read by rule 6 of AIIP/HTTPS v1 3.3 and RFC 2782."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.discovery.pointers import drop_alias_targets, evaluate_srv, evaluate_txt
from onym.ai.records import Source, Verdict
from onym.net.messages import SRV, Origin, Records
from onym.uri.ai import AIURI
from support import as_subtests

HOST = "bank.test"
GOOD = SRV(0, 0, 8443, "aiip.bank.test")
CONNECT = Origin("https", "aiip.bank.test", 8443)
URI = "ai://bank.test/service/payments"
CONFLICT = "aiip.discovery-conflict"


def found(*values: SRV | str, validated: bool = True) -> Records:
    return Records(status="found", values=values, validated=validated)


def targets(records: Records, *, port: int = 443, draw: float = 0.0) -> tuple[Source, tuple[Origin, ...]]:
    return evaluate_srv(records, host=HOST, port=port, draw=lambda: draw)


def srv(records: Records, *, port: int = 443, draw: float = 0.0) -> tuple[Source, Origin | None]:
    """What is tried first."""
    source, found = targets(records, port=port, draw=draw)
    return source, next(iter(found), None)


def txt(records: Records) -> tuple[Source, tuple[str, ...]]:
    return evaluate_txt(records, host=HOST)


@pytest.mark.requirement("ai-discovery-d", "ai-discovery-f")
def test_the_records_of_the_draft_are_read() -> None:
    source, connect = evaluate_srv(
        found(SRV(0, 0, 443, "aiip.bank.example")), host="bank.example", port=443, draw=lambda: 0.5
    )
    assert connect == (Origin("https", "aiip.bank.example", 443),)
    assert (source.name, source.rank, source.location) == ("dns-srv", 2, "_aiip._tcp.bank.example")
    assert (source.verdict, source.said) == (Verdict.CONFIRMS, ("0 0 443 aiip.bank.example",))
    pointer, uris = evaluate_txt(found("endpoint=ai://bank/service/payments"), host="bank.example")
    assert uris == pointer.said == ("ai://bank/service/payments",)
    assert (pointer.name, pointer.rank, pointer.location) == ("dns-txt", 2, "_aiip.bank.example")


@pytest.mark.parametrize("evaluate", [srv, txt])
@as_subtests(
    ("records", "verdict", "code", "rank"),
    [
        (Records(status="none", validated=True, detail="none"), Verdict.ABSENT, None, 2),
        (Records(status="none", detail="none"), Verdict.ABSENT, None, 0),
        (Records(status="failed", detail="late"), Verdict.FAILED, None, 0),
        (Records(status="bogus", detail="false"), Verdict.FAILED, CONFLICT, 0),
        (Records(status="bogus"), Verdict.FAILED, CONFLICT, 0),
    ],
)
def test_attack_15_bogus_stops_and_is_no_absence(
    evaluate: object, records: Records, verdict: Verdict, code: str | None, rank: int
) -> None:
    source, usable = evaluate(records)  # type: ignore[operator]
    assert not usable
    assert (source.verdict, source.code, source.rank, source.said) == (verdict, code, rank, ())
    assert source.why


def test_prov_099_without_dnssec_it_is_a_hint_of_the_lowest_rank() -> None:
    source, uris = txt(found("endpoint=ai://evil.test/x", validated=False))
    assert (source.rank, source.validated, uris) == (0, False, ("ai://evil.test/x",))
    source, connect = srv(found(GOOD, validated=False))
    assert (source.rank, source.validated, connect) == (0, False, CONNECT)


def test_prov_100_this_machine_as_target_is_left_to_the_policy() -> None:
    _, connect = srv(found(SRV(0, 0, 22, "localhost")))
    assert connect == Origin("https", "localhost", 22)


@pytest.mark.parametrize(
    "target",
    ["127.0.0.1", "2130706433", "0x7f.1", "10.0.0.1", "a b.test", "a\\046b.test", "metadata.google.internal"],
)
def test_a_target_that_is_an_address_or_no_host_is_refused(target: str) -> None:
    source, connect = srv(found(SRV(0, 0, 443, target)))
    assert (connect, source.verdict, source.code) == (None, Verdict.DROPPED, None)
    assert source.said == (f"0 0 443 {target}",)


def test_a_target_without_a_port_is_refused_and_others_stay() -> None:
    assert srv(found(SRV(0, 0, 0, "a.test")))[1] is None
    assert srv(found(SRV(0, 0, 0, "a.test"), SRV(9, 0, 8443, "aiip.bank.test")))[1] == CONNECT


def test_the_root_says_that_the_service_is_not_offered() -> None:
    source, connect = srv(found(SRV(0, 0, 0, "")))
    assert (connect, source.verdict, source.code) == (None, Verdict.CONTRADICTS, CONFLICT)
    assert source.said == ("0 0 0 .",)
    source, connect = srv(found(SRV(0, 0, 0, ""), validated=False))
    assert (connect, source.verdict, source.code) == (None, Verdict.DROPPED, None)
    # beside other targets it says nothing
    assert srv(found(SRV(0, 0, 0, ""), SRV(1, 0, 8443, "aiip.bank.test")))[1] == CONNECT


def test_an_authority_that_names_its_port_is_taken_at_its_word() -> None:
    source, connect = srv(found(GOOD), port=8443)
    assert (connect, source.verdict) == (None, Verdict.DROPPED)


def test_the_lowest_priority_comes_first() -> None:
    for draw in (0.0, 0.5, 0.999):
        assert srv(found(SRV(5, 65535, 1, "b.test"), GOOD), draw=draw)[1] == CONNECT


def test_weights_share_out_the_draws() -> None:
    records = found(SRV(0, 10, 443, "a.test"), SRV(0, 30, 443, "b.test"), SRV(0, 0, 443, "c.test"))
    chosen = Counter(srv(records, draw=step / 41)[1] for step in range(41))
    counts = {origin.host: count for origin, count in chosen.items() if origin is not None}
    assert counts == {"c.test": 1, "a.test": 10, "b.test": 30}


rows = st.builds(
    SRV,
    st.integers(0, 3),
    st.sampled_from([0, 0, 1, 7, 65535]),
    st.integers(0, 65535),
    st.sampled_from(["", "a.test", "b.test", "10.0.0.1", "localhost"]),
)


def test_all_targets_are_named_in_the_order_in_which_they_are_tried() -> None:
    source, order = targets(
        found(
            SRV(10, 0, 443, "c.test"),
            SRV(5, 1, 443, "b.test"),
            SRV(5, 9, 443, "a.test"),
            SRV(0, 0, 443, "10.0.0.1"),
        ),
        draw=0.999,
    )
    assert [each.host for each in order] == ["b.test", "a.test", "c.test"]
    assert source.said == ("5 1 443 b.test", "5 9 443 a.test", "10 0 443 c.test", "0 0 443 10.0.0.1")
    assert "the first target" in source.why


def test_weights_share_out_what_comes_second_too() -> None:
    draws = iter([0.0, 0.5, 0.0, 0.0])
    records = found(
        *(SRV(0, weight, 443, f"{name}.test") for name, weight in zip("abc", (0, 10, 30), strict=True))
    )
    _, order = evaluate_srv(records, host=HOST, port=443, draw=lambda: next(draws))
    assert [each.host for each in order] == ["a.test", "c.test", "b.test"]


def test_a_target_that_is_named_twice_is_tried_once() -> None:
    _, order = targets(found(GOOD, SRV(3, 5, 8443, "aiip.bank.test"), SRV(0, 9, 8443, "aiip.bank.test")))
    assert order == (CONNECT,)


def test_of_very_many_targets_eight_are_used() -> None:
    records = found(*(SRV(0, 65_535, 443, f"t{number}.test") for number in range(3000)))
    source, order = targets(records, draw=1 - 2**-53)
    assert len(order) == len(set(order)) == 8
    assert source.verdict is Verdict.CONFIRMS


OTHER = Origin("https", "two.bank.test", 443)
NONE = Records(status="none", validated=True)


@pytest.mark.parametrize(
    ("answers", "left", "said"),
    [
        ([(CONNECT, NONE), (OTHER, NONE)], (CONNECT, OTHER), ""),
        (
            [(CONNECT, found("x.test")), (OTHER, NONE)],
            (OTHER,),
            "aiip.bank.test:8443 (the target is an alias",
        ),
        ([(CONNECT, NONE), (OTHER, None)], (CONNECT,), "two.bank.test:443 (it is unknown"),
        ([(CONNECT, NONE), (OTHER, Records(status="failed", detail="late"))], (CONNECT,), "alias: late)"),
    ],
)
def test_a_target_that_is_an_alias_is_left_out_of_several(
    answers: list[tuple[Origin, Records | None]], left: tuple[Origin, ...], said: str
) -> None:
    source, _ = srv(found(GOOD))
    source, kept = drop_alias_targets(source, answers)
    assert (kept, source.verdict, source.code) == (left, Verdict.CONFIRMS, None)
    assert said in source.why
    assert source.why.startswith("connections")


def test_attack_15_a_false_answer_about_any_target_stops() -> None:
    source, _ = srv(found(GOOD))
    source, kept = drop_alias_targets(source, [(CONNECT, NONE), (OTHER, Records(status="bogus"))])
    assert (kept, source.verdict, source.code) == ((), Verdict.FAILED, CONFLICT)


def test_where_all_targets_are_aliases_the_own_host_is_left() -> None:
    source, _ = srv(found(GOOD))
    source, kept = drop_alias_targets(source, [(CONNECT, found("x.test")), (OTHER, found("x.test"))])
    assert (kept, source.verdict, source.code) == ((), Verdict.DROPPED, None)
    assert "two.bank.test:443" in source.why


@given(st.lists(rows, max_size=6), st.floats(0, 1, exclude_max=True), st.randoms(use_true_random=False))
def test_the_choice_is_of_the_lowest_usable_priority_and_does_not_depend_on_the_servers_order(
    values: list[SRV], draw: float, shuffler: object
) -> None:
    _, order = targets(found(*values), draw=draw)
    connect = next(iter(order), None)
    usable = [value for value in values if value.port and value.target in ("a.test", "b.test", "localhost")]
    best = [value for value in usable if value.priority == min(each.priority for each in usable)]
    places = {Origin("https", value.target, value.port) for value in best}
    assert connect in places if places else connect is None
    mixed = list(values)
    shuffler.shuffle(mixed)  # type: ignore[attr-defined]
    assert targets(found(*mixed), draw=draw)[1] == order
    assert set(order) == {Origin("https", value.target, value.port) for value in usable}
    ranks = [
        min(each.priority for each in usable if (each.target, each.port) == (one.host, one.port))
        for one in order
    ]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("records", "connect", "verdict", "code"),
    [
        (Records(status="none", validated=True), CONNECT, Verdict.CONFIRMS, None),
        (Records(status="none"), CONNECT, Verdict.CONFIRMS, None),
        (Records(status="found", values=("other.test",)), None, Verdict.DROPPED, None),
        (Records(status="failed", detail="late"), None, Verdict.DROPPED, None),
        (Records(status="bogus"), None, Verdict.FAILED, CONFLICT),
    ],
)
def test_a_target_that_is_an_alias_is_refused(
    records: Records, connect: Origin | None, verdict: Verdict, code: str | None
) -> None:
    source, origin = srv(found(GOOD))
    assert origin is not None
    source, left = drop_alias_targets(source, [(origin, records)])
    assert (left, source.verdict, source.code) == (() if connect is None else (connect,), verdict, code)


def test_other_records_of_the_name_are_not_ours() -> None:
    source, uris = txt(found("v=spf1 -all", "end point=ai://bank.test/x", "endpoints=ai://bank.test/x"))
    assert (uris, source.verdict, source.said) == ((), Verdict.ABSENT, ())
    source, uris = txt(found("v=spf1 -all", f"EndPoint={URI}"))
    assert (uris, source.verdict) == ((URI,), Verdict.CONFIRMS)


def test_several_spellings_of_one_resource_are_one() -> None:
    source, uris = txt(found(f"endpoint={URI}", "endpoint=AI://BANK.test:443/service/payments#x"))
    assert uris == source.said == (URI,)


def test_several_resources_are_ambiguous() -> None:
    records = ("endpoint=ai://bank.test/a", "endpoint=ai://bank.test/b")
    source, uris = txt(found(*records))
    assert (uris, source.verdict, source.code) == ((), Verdict.FAILED, CONFLICT)
    assert source.said == ("ai://bank.test/a", "ai://bank.test/b")
    source, uris = txt(found(*records, validated=False))
    assert (uris, source.verdict, source.code) == ((), Verdict.DROPPED, None)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "https://bank.test/x",
        "ai://bank.test/a endpoint=ai://bank.test/b",
        "ai://bank.test@evil.test/x",
        "ai://127.0.0.1/x",
        "ai://bank.test/%2e%2e/x",
        "ai://bank.test/\N{REPLACEMENT CHARACTER}",
        "ai://bank.test/" + "x" * 4000,
    ],
)
def test_malformed_uris_are_dropped_and_reported(value: str) -> None:
    source, uris = txt(found(f"endpoint={value}"))
    assert (uris, source.verdict, source.code) == ((), Verdict.DROPPED, None)
    assert len(source.said) == 1
    assert len(source.said[0]) < 300
    source, uris = txt(found(f"endpoint={value}", f"endpoint={URI}"))
    assert (uris, source.verdict) == ((URI,), Verdict.CONFIRMS)
    assert "1 of 2" in source.why


@given(st.lists(st.text(max_size=40) | st.text(max_size=20).map("endpoint={}".format), max_size=4))
def test_whatever_strangers_write_is_safe_to_print_and_every_uri_is_canonical(texts: list[str]) -> None:
    source, uris = txt(found(*texts))
    assert all(text.isprintable() for text in source.said)
    assert all(AIURI.parse(uri).canonical() == uri for uri in uris)
    assert len(uris) <= 1
