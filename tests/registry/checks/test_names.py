"""N1 to N5 and R1: names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks_support import KNOWN, OLD, OLD_LABELS, codes, document, draft, entry, finding, report, template
from onym.registry.checks import Level, ReferenceData, check_entries
from onym.registry.checks.context import load_builtin
from onym.registry.records import Status
from onym.registry.registries import REGISTRIES
from support import as_subtests, linear_enough

SHIPPED = load_builtin()


def named(name: str) -> object:
    return document(template(name=name))


def is_confused(name: str, registered: str) -> bool:
    known = ReferenceData(entries={registered: entry(registered)})
    return not {"name-looks-alike", "name-near"}.isdisjoint(codes(named(name), known=known))


@pytest.mark.parametrize("name", ["kite", "coap+tcp", "x-y", "a1", '"kite"', "kite:", "<kite>", "'kite'."])
def test_a_name_of_lower_case_letters_digits_and_marks_passes(name):
    assert not codes(named(name), "N1")


def test_upper_case_is_an_error_and_the_fix_is_the_lower_case_name():
    found = finding(named("Kite"), "name-not-lowercase")
    assert found.level is Level.ERROR
    assert found.fix == "write `Scheme name: kite`"
    assert found.clause == "RFC 7595 3.8"
    old = finding(
        document(template(OLD, labels=OLD_LABELS, name="Kite")), "name-not-lowercase", profile="rfc4395"
    )
    assert (old.clause, old.fix) == ("RFC 4395 2.8", "write `URI scheme name: kite`")


@pytest.mark.parametrize(
    ("name", "shown", "column"),
    [
        ("ki_te", '"_"', 3),
        ("kit\u0435", "U+0435 CYRILLIC SMALL LETTER IE", 4),
        ("ki te", "a space", 3),
        ("1kite", '"1"', 1),
        ("-kite", '"-"', 1),
        ("kite\u202eetik", "U+202E RIGHT-TO-LEFT OVERRIDE", 5),
        ("<script>alert(1)</script>", '">"', 8),
        ("../../etc/passwd", '"."', 1),
        ("kite/../passwd", '"/"', 5),
    ],
)
def test_a_character_that_no_name_has_is_called_by_its_name_and_place(name, shown, column):
    found = finding(named(name), "name-syntax")
    assert shown in found.message
    assert (found.line, found.column) == (1, len("Scheme name: ") + column)
    assert found.witness.isprintable()
    assert "\u202e" not in str(found.as_dict())


def test_a_name_beyond_the_limit_is_told_the_limit_and_not_a_clause_that_has_none():
    found = finding(named("k" * 64), "name-too-long")
    assert (found.level, found.column, found.clause) == (
        Level.ERROR,
        len("Scheme name: ") + 1,
        REGISTRIES["uri-schemes"].limit_clause,
    )
    assert not codes(named("k" * 63), "N1")


@as_subtests(
    ("name", "place"), [("top-p", 'character 4 is "-"'), ("9_x", 'character 1 is "9"'), ("top_p", None)]
)
def test_a_parameter_s_name_is_judged_by_the_rule_for_parameters(name, place):
    item = document(template({"name": name}), registry="llm-parameters")
    found = [each for each in report(item, profile="specification-required").findings if each.check == "N1"]
    assert [place in each.message for each in found] == ([] if place is None else [True])


def test_two_names_in_one_template_ask_for_two_templates():
    found = finding(named("kite and kites"), "several-names")
    assert found.level is Level.WARNING


def test_a_name_in_use_is_an_error_whatever_its_case_and_says_the_entry_s_status():
    found = finding(named("HTTP"), "name-taken")
    assert "permanent" in found.message
    assert found.level is Level.ERROR
    assert finding(document(template(OLD, labels=OLD_LABELS, name="http")), "name-taken").clause == (
        "RFC 4395 5.2 step 2"
    )
    assert not codes(named("kite"), "N2")


def test_an_update_may_use_the_name_and_so_may_the_document_that_registered_it():
    assert not codes(named("http"), "N2", update=True)
    known = KNOWN.with_entries({"tag": entry("tag", reference="[RFC4151]")})
    own = draft(fields=dict(template().values) and {"name": "tag", "status": "Permanent"}, name="RFC 4151")
    assert finding(own, "registered-here", known=known).level is Level.HINT


def test_without_a_registry_the_report_says_that_names_were_not_compared():
    found = [
        each
        for each in report(named("kite"), known=ReferenceData()).findings
        if each.code == "could-not-check"
    ]
    assert {"N2", "N4", "T4"} <= {each.check for each in found}
    assert "N3" in {
        each.check
        for each in report(named("com.kite"), known=ReferenceData()).findings
        if each.code == "could-not-check"
    }


@pytest.mark.requirement("rfc7595-3.8-i")
@as_subtests(
    ("name", "reason"),
    [
        ("com.example.kite", None),
        ("com.kite", None),
        ("com.example.kite+tcp", None),
        ("kite", None),
        ("kite.x", '"kite" is not a top-level domain'),
        ("com..kite", "a label is empty"),
        ("com.+.kite", '"+" is not a label of a domain name'),
        ("com.-example.kite", '"-example" is not a label of a domain name'),
    ],
)
def test_a_dot_is_for_reversed_domains_alone(name, reason):
    found = [each for each in report(named(name)).findings if each.code == "dot-without-domain"]
    assert [each.level for each in found] == ([] if reason is None else [Level.ERROR])
    assert all(reason in each.message for each in found)


def test_a_name_with_a_dot_gets_two_names_to_choose_from():
    assert finding(named("kite.x"), "dot-without-domain").fix == (
        "write `Scheme name: kite-x`, or begin with your own domain, as in `com.example.x`"
    )
    assert "kite-x" in finding(named("kite..x"), "dot-without-domain").fix


@pytest.mark.requirement("rfc7595-3.8-i", "rfc7595-7.3-a")
def test_a_registered_name_with_a_dot_may_be_updated_because_the_rule_is_for_new_names():
    known = KNOWN.with_entries({"iris.beep": entry("iris.beep")})
    assert codes(named("iris.beep"), "N3", known=known, update=True) == set()
    assert codes(named("iris.beep"), "N3") == {"dot-without-domain"}


def test_a_name_that_is_registered_gets_no_advice_to_choose_a_more_distinctive_one():
    assert not {"N4", "N5"} & {each.check for each in report(named("http"), known=SHIPPED).findings}
    assert not {"N4", "N5"} & {
        each.check for each in report(named("http"), known=SHIPPED, update=True).findings
    }


@pytest.mark.requirement("rfc7595-3.8-h")
def test_the_owner_of_a_private_name_is_known_by_an_address_in_its_domain():
    stranger = document(template(name="com.kites.fly"))
    found = finding(stranger, "private-name")
    assert (found.level, found.clause) == (Level.HINT, "RFC 7595 3.8")
    assert '"kites.com"' in found.message
    for good in ({"contact": "Ada <ada@kites.com>"}, {"references": "https://www.kites.com/spec"}):
        assert "private-name" not in codes(document(template(name="com.kites.fly", **good)))
    for bad in ("Ada <ada@notkites.com>", "Ada <ada@kites.com.example>"):
        assert "private-name" in codes(document(template(name="com.kites.fly", contact=bad)))


def test_internationalized_top_level_domains_are_known_in_ascii():
    assert "xn--p1ai" in SHIPPED.tlds
    assert codes(named("xn--p1ai.kites.fly"), "N3", known=SHIPPED) == {"private-name"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("kite.x", "dot-without-domain"),
        ("com-example-kite", "private-name"),
        ("ms-kite", None),
        ("kite", None),
    ],
)
def test_under_rfc_4395_a_reversed_domain_goes_with_hyphens(name, code):
    old = document(template(OLD, labels=OLD_LABELS, name=name))
    assert codes(old, "N3") == ({code} if code else set())


@as_subtests(
    ("name", "code"),
    [
        ("ai", "name-very-short"),
        ("ai", "name-near"),
        ("service", "name-general"),
        ("universalkite", "name-grandiose"),
        ("rnodem", "name-looks-alike"),
        ("htpt", None),
        ("httq", "name-near"),
        ("https", None),
        ("ws", None),
        ("aaa", None),
        ("kite", None),
    ],
)
def test_names_too_short_general_or_near_are_hints(name, code):
    found = codes(named(name), "N4")
    assert code in found if code else not found - {"name-very-short"}
    assert all(each.level is Level.HINT for each in report(named(name)).findings if each.check == "N4")


def test_a_service_name_that_the_text_does_not_mention_is_a_hint():
    assert "service-name" in codes(named("ipp"))
    assert "service-name" not in codes(
        document(template(name="ipp"), text="It goes with the service name ipp.")
    )
    assert "service-name" not in codes(document(template(OLD, labels=OLD_LABELS, name="ipp")))


@given(
    st.text(alphabet="abc01lm", min_size=1, max_size=6), st.text(alphabet="abc01lm", min_size=1, max_size=6)
)
def test_confusion_goes_both_ways_and_never_with_oneself(one, other):
    assert is_confused(one, other) == is_confused(other, one)
    assert not is_confused(one, one)
    assert not is_confused(one, one + "s")


@given(st.text(max_size=200))
def test_no_name_crashes_the_checks_and_what_they_say_is_printable(name):
    for each in report(named(name)).findings:
        assert each.message.isprintable()
        assert (each.witness or "").isprintable()
        assert (each.fix or "").isprintable()


def test_a_name_of_a_million_characters_takes_no_time():
    for text in ("a" * 1_000_000, "." * 1_000_000, "'" * 1_000_000, "a and " * 150_000):
        with linear_enough(10):
            assert report(named(text)).findings


def test_a_registry_in_order_has_no_findings_and_each_disorder_has_one():
    good = [entry("a", template="perm/a"), entry("b", Status.PROVISIONAL, template="prov/b"), entry("c")]
    assert check_entries(good).findings == ()
    assert check_entries(good).ran == ("R1",)
    bad = [entry("b", template="prov/b"), entry("a", template=" perm/a"), entry("A")]
    found = [each.code for each in check_entries(bad).findings]
    assert found == ["not-sorted", "name-twice", "folder-does-not-fit", "path-not-trimmed"]
