"""S1 to S8 and C2: what the checks make of a grammar's answers (the answers themselves: test_syntax.py)."""

from __future__ import annotations

from typing import Any

import pytest

from checks_support import GOOD, codes, draft, finding, report
from onym.errors import GrammarError
from onym.registry import checks
from onym.registry.abnf import Outcome, Remark, RemarkCode, ReservedCharacter, Verdict
from onym.registry.checks import Level
from onym.registry.checks._grammar import Answer, GrammarProblem, SchemeGrammar

PROSE = "Text is UTF-8. The colon, slash and at sign are delimiters. Relative references work."
ENCODED = {"Encoding Considerations": "Text is UTF-8, percent-encoded."}


def verdict(outcome: Outcome, **more: Any) -> Verdict:
    return Verdict(start="kite-URI", outcome=outcome, **more)


class Stub(SchemeGrammar):
    """A grammar with given answers."""

    decidable = True
    start = "kite-URI"
    present = True

    def __init__(self, **given: Any) -> None:
        super().__init__("kite", problem=given.pop("problem", None))
        self.given = given

    def __getattribute__(self, name: str) -> Any:
        given = object.__getattribute__(self, "__dict__").get("given", {})
        return given[name] if name in given else object.__getattribute__(self, name)

    inclusion = verdict(Outcome.INCLUDED)
    unprobed = None
    reserved = tuple(
        ReservedCharacter(character=character, component="path", witness=f"kite:{character}")
        for character in ":/"
    )
    holds_text = False

    def begins(self, name: str) -> Answer:
        return self.given.get("prefix", Answer())

    def probe(self, name: str) -> str | None:
        return self.given.get("probes", {}).get(name)

    def accepts(self, text: str) -> bool | None:
        return text in self.given["language"] if "language" in self.given else None

    def source_of(self, rule: str) -> str:
        return self.given.get("source", "")


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The checks of a draft whose grammar gives these answers."""

    def make(text: str = PROSE, of: Any = None, **given: Any) -> Any:
        monkeypatch.setattr(checks, "read_syntax", lambda blocks, name: Stub(**given))
        return draft(text, sections=ENCODED) if of is None else of

    return make


def test_a_grammar_without_fault_earns_nothing(says):
    of = says()
    assert not {reported.check for reported in report(of).findings} & {f"S{at}" for at in range(1, 9)}


def test_the_fragment_alone_is_an_error_with_witness_and_the_rewritten_rule(says):
    of = says(
        inclusion=verdict(Outcome.FRAGMENT_ONLY, witness="kite:#"),
        source='kite-URI = "kite:" path [ "?" query ] [ "#" fragment ] ; all of it',
    )
    found = finding(of, "fragment-in-syntax")
    assert (found.check, found.level, found.witness, found.clause) == (
        "S1",
        Level.ERROR,
        "kite:#",
        "RFC 7595 3.2",
    )
    assert found.fix.endswith('write `kite-URI = "kite:" path [ "?" query ]`')
    assert finding(of, "fragment-in-syntax", profile="rfc4395").clause == "RFC 4395 2.2"


def test_the_rewrite_is_left_out_where_the_rule_does_not_show_it(says):
    of = says(
        inclusion=verdict(Outcome.FRAGMENT_ONLY, witness="kite:#"),
        source='kite-URI = "kite:" rest',
    )
    assert "write `" not in finding(of, "fragment-in-syntax").fix


def test_strings_that_are_no_uri_are_an_error_with_both_witnesses(says):
    of = says(inclusion=verdict(Outcome.NOT_INCLUDED, witness="kite:#[", second="kite:["))
    found = finding(of, "not-a-uri")
    assert (found.level, found.witness) == (Level.ERROR, "kite:#[")
    assert "kite:[" in found.message.replace("kite:#[", "")
    alone = says(inclusion=verdict(Outcome.NOT_INCLUDED, witness="kite:["))
    assert "too" not in finding(alone, "not-a-uri").message


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.RECURSIVE, "recursive-rule"),
        (Outcome.UNDEFINED, "undefined-rule"),
        (Outcome.PROSE, "prose-rule"),
        (Outcome.BROKEN, "broken-rule"),
        (Outcome.TOO_LARGE, "grammar-too-large"),
    ],
)
def test_what_was_not_decided_is_a_finding_of_its_own_and_never_a_pass(says, outcome, code):
    problem = GrammarError("because", hint="mend it")
    found = finding(says(inclusion=verdict(outcome, problem=problem)), code)
    assert (found.check, found.level, found.fix) == ("S1", Level.WARNING, "mend it")
    assert "because" in found.message
    bare = finding(says(inclusion=verdict(outcome)), code)
    assert "without recursion" in bare.fix


def test_a_rule_without_any_string_is_an_error(says):
    assert finding(says(inclusion=verdict(Outcome.EMPTY)), "no-strings").level is Level.ERROR


def test_a_grammar_that_cannot_be_read_is_an_error_at_its_place(says):
    problem = GrammarProblem(code="abnf-syntax", message="a quote is open", line=21, column=7, fix="close it")
    found = finding(says(problem=problem, decidable=False), "abnf-syntax")
    assert (found.level, found.line, found.column, found.fix) == (Level.ERROR, 21, 7, "close it")
    skipped = {
        reported.check
        for reported in report(says(problem=problem, decidable=False)).findings
        if reported.code == "could-not-check"
    }
    assert {"S1", "S2"} <= skipped


def test_without_a_grammar_the_report_says_so(says):
    of = says(decidable=False, present=False)
    found = [
        reported
        for reported in report(of).findings
        if reported.code == "could-not-check" and reported.check == "S1"
    ]
    assert "no ABNF" in found[0].message
    assert found[0].fix


def test_strings_that_begin_otherwise_are_an_error(says):
    assert finding(says(prefix=Answer(witness="kit:")), "wrong-prefix").fix == 'begin the rule with `"kite:"`'
    assert codes(says(prefix=Answer(problem="too large")), "S2") == {"could-not-check"}


def test_a_grammar_of_another_scheme_is_told_from_one_that_is_not_there(says):
    found = finding(says(decidable=False, schemes=("kit", "ai")), "name-not-in-syntax")
    assert "kit, ai" in found.message
    assert codes(says(decidable=False), "S2") == {"could-not-check"}
    assert not codes(says(decidable=False, present=False), "S2")


def test_double_slashes_without_authority_and_empty_hosts_are_told(says):
    improper = {"improper-slashes": "kite://;:0"}
    assert finding(says(probes=improper), "improper-double-slash").level is Level.ERROR
    assert finding(says(probes={"empty-host": "kite:///A"}), "empty-host").witness == "kite:///A"


@pytest.mark.parametrize(
    ("sentence", "answered"),
    [
        ("An empty host means this computer.", True),
        ("If the host is empty, the client uses its default.", True),
        ("The host is never empty.", True),
        ("The host MUST NOT be empty.", True),
        ("The host is a name. The path may be empty.", False),
        ("The list of hosts is empty.", False),
    ],
)
def test_a_sentence_about_the_empty_host_answers_the_warning(says, sentence, answered):
    of = says(f"{PROSE} {sentence}", probes={"empty-host": "kite:///A"})
    assert ("empty-host" not in codes(of)) is answered


def test_forms_that_were_not_looked_for_are_told(says):
    of = says(unprobed="too large")
    found = {reported.check for reported in report(of).findings if reported.code == "could-not-check"}
    assert {"S3", "S4", "S5", "C2"} <= found


def test_dot_segments_and_slashes_without_hierarchy_are_told(says):
    assert finding(says(probes={"dot-segments": "kite:/."}), "dot-segments").level is Level.WARNING
    assert finding(says(probes={"bare-scheme": "kite:"}), "bare-scheme").witness == "kite:"
    assert "slash-without-hierarchy" in codes(says("There is no relative reference. Colon, slash: UTF-8."))
    assert "slash-without-hierarchy" not in codes(says("There is no relative reference.", reserved=()))


def positions(characters: str, component: str = "path") -> tuple[ReservedCharacter, ...]:
    return tuple(
        ReservedCharacter(character=character, component=component, witness=f"kite:{character}")
        for character in characters
    )


def test_reserved_characters_that_no_prose_names_are_listed_by_component(says):
    found = finding(says(reserved=positions(":/@;,") + positions("[=", "query")), "reserved-unexplained")
    assert found.message.endswith(": ;, in the path; [= in the query")
    assert found.witness == "kite:;"
    named = says(PROSE + ' Use ";" and the comma.', reserved=positions(":/@;,"))
    assert "reserved-unexplained" not in codes(named)
    quoted = says(PROSE + ' The characters ";,!" are data.', reserved=positions(":/@;,!"))
    assert "reserved-unexplained" not in codes(quoted)
    masked = says(PROSE + ' A key is shown as "***".', reserved=positions("*"))
    assert "reserved-unexplained" in codes(masked)
    listed = says(PROSE + " The sub-delims of RFC 3986 are data.", reserved=positions("!$&'()*+,;="))
    assert "reserved-unexplained" not in codes(listed)
    others = positions("!", "fragment") + positions("[]", "authority")
    assert "reserved-unexplained" not in codes(says(reserved=others))


def test_remarks_on_rules_are_warnings_with_their_places_and_are_cut(says):
    told = Remark(code=RemarkCode.REPEATED, message="kite-URI stands twice", line=21, witness="kite-URI")
    assert finding(says(remarks=(told,)), "repeated-rule").level is Level.WARNING
    many = tuple(Remark(code=RemarkCode.UNUSED, message=f"rule {at}") for at in range(60))
    assert any("20 further remarks" in reported.message for reported in report(says(remarks=many)).findings)


def examples(*uris: str) -> Any:
    return draft(PROSE, sections=ENCODED, examples=uris)


@pytest.mark.parametrize(
    ("uri", "code", "level"),
    [
        ("kite:good", None, None),
        ("kite:bad", "example-not-in-syntax", Level.ERROR),
        ("kite:good#top", "example-has-fragment", Level.WARNING),
        ("kite:bad#top", "example-not-in-syntax", Level.ERROR),
        ("kite:ca\u00f1on", "example-not-ascii", Level.ERROR),
        ("kite:a[b", "example-not-a-uri", Level.ERROR),
        ("other:a", None, None),
        ("http://\u00a4.example/", "example-not-ascii", Level.ERROR),
        ("kite:" + "a" * 5_000, "could-not-check", Level.HINT),
    ],
)
def test_each_example_is_in_the_syntax_and_ascii(says, uri, code, level):
    of = says(of=examples(uri), language={"kite:good"})
    found = [reported for reported in report(of).findings if reported.check == "S7"]
    assert (code in {reported.code for reported in found}) if code else not found
    assert all(reported.line == 30 for reported in found)
    if code:
        assert next(reported for reported in found if reported.code == code).level is level


def test_a_currency_sign_is_mended_to_what_a_browser_took_it_for(says):
    found = finding(says(of=examples("kite:a?b=1\u00a4cy=USD")), "example-not-ascii")
    assert found.fix == "write `kite:a?b=1&currency=USD`"
    other = finding(says(of=examples("kite:\u00f1")), "example-not-ascii")
    assert other.fix == "write `kite:%C3%B1`"


def test_examples_without_a_grammar_and_beyond_the_cap_are_told(says):
    assert "could-not-check" in codes(says(of=examples("kite:good")), "S7")
    many = says(
        of=examples(*[f"kite:{at}" for at in range(250)]), language={f"kite:{at}" for at in range(250)}
    )
    assert any("50 further examples" in reported.message for reported in report(many).findings)


def test_text_in_uris_asks_for_a_character_encoding(says):
    bare = draft("Colon, slash.", sections={"Introduction": "Kites."})
    assert finding(says(of=bare, holds_text=True), "no-charset").level is Level.WARNING
    assert finding(says(of=bare, holds_text=True), "no-charset", profile="rfc4395").level is Level.ERROR
    permanent = draft("Colon, slash.", sections={"Introduction": "x"}, fields=GOOD | {"status": "Permanent"})
    assert finding(says(of=permanent, holds_text=True), "no-charset").level is Level.ERROR
    assert "no-charset" not in codes(says(holds_text=True))
    assert not codes(says(of=bare), "S8")
    assert codes(says(of=bare, decidable=False), "S8") == {"could-not-check"}
    assert not codes(says(decidable=False), "S8")


def test_octets_that_are_no_utf_8_are_told_where_the_text_says_utf_8(says):
    stray = {"encoded-octet": "kite:%FF"}
    assert finding(says(holds_text=True, probes=stray), "not-only-utf-8").witness == "kite:%FF"
    ascii_only = draft(sections={"Encoding Considerations": "US-ASCII alone."})
    assert "not-only-utf-8" not in codes(says(of=ascii_only, holds_text=True, probes=stray))


def test_secrets_in_the_syntax_ask_for_rfc_3986_3_2_1(says):
    userinfo = {"password": "kite://a:b@c"}
    assert finding(says(probes=userinfo), "password-in-userinfo").witness == "kite://a:b@c"
    assert finding(says(own_rules=("kite-URI", "api-key")), "secret-in-syntax").witness == "api-key"
    cited = PROSE + " RFC 3986 section 3.2.1 deprecates that."
    assert not codes(says(cited, probes=userinfo), "C2")
    assert not codes(says(own_rules=("monkey", "keyboard")), "C2")
