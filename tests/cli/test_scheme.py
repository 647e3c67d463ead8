"""`onym scheme`: reports in three forms, exit codes, and the grammar tools."""

from __future__ import annotations

import json

import pytest

GOOD = """\
Scheme name: kite
Status: Provisional
Applications/protocols that use this scheme name: Kite flying
Contact: Ada Example <ada@example.com>
Change controller: Ada Example <ada@example.com>
References: [KITE] Kites, https://kite.example/spec
"""
BAD = GOOD.replace("Ada Example <ada@example.com>\nChange", "nobody\nChange")
WARNED = GOOD.replace("Kite flying", "the KCP protocol")
GRAMMAR = 'kite-URI = "kite:" 1*ALPHA\n'


@pytest.fixture
def file(tmp_path):
    """A file with this text; its path."""

    def make(text: str, name: str = "kite.txt") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return make


def test_a_good_template_has_no_errors_and_ends_with_0(run, file):
    ran = run("scheme", "check", file(GOOD))
    assert ran.code == 0
    assert "no errors, no warnings" in ran.out


def test_an_error_ends_with_1_and_shows_line_clause_and_fix(run, file):
    ran = run("scheme", "check", file(BAD))
    assert ran.code == 1
    said = "the contact cannot be reached: no mail address, telephone number or URI  [RFC 7595 7.4]"
    assert f"error T3 line 4: {said}" in ran.out
    assert "fix: write `Contact: NAME <ADDRESS>`" in ran.out


def test_reports_of_several_files_follow_each_other(run, file):
    ran = run("scheme", "check", file(GOOD), file(BAD, "bad.txt"))
    assert ran.code == 1
    assert ran.out.count('kite", rfc7595') == 2
    assert "\n\n" in ran.out


def test_a_warning_ends_with_1_only_where_strict(run, file):
    assert run("scheme", "check", file(WARNED)).code == 0
    assert run("scheme", "check", "--strict", file(WARNED)).code == 1


def test_standard_input_is_read_and_the_profile_can_be_chosen(run):
    ran = run("scheme", "check", "--rules", "rfc4395", "-", stdin=GOOD)
    assert ran.code == 1
    assert "RFC 4395 5.4" in ran.out
    assert ran.out.startswith('-: scheme "kite", rfc4395')


@pytest.mark.parametrize("flags", [("--json",), ("--format", "json")])
def test_json_is_one_object_for_each_file(run, file, flags):
    ran = run("scheme", "check", *flags, file(GOOD), file(BAD, "bad.txt"))
    assert ran.code == 1
    first, second = ran.lines
    assert (first["ok"], second["ok"]) == (True, False)
    assert first["scheme"] == "kite"
    assert second["counts"]["error"] == 1
    assert second["findings"][0]["code"] == "no-address"


def test_sarif_is_one_log_with_a_run_for_each_file(run, file):
    ran = run("scheme", "check", "--format", "sarif", file(GOOD), file(BAD, "bad.txt"))
    assert ran.code == 1
    log = json.loads(ran.out)
    assert log["version"] == "2.1.0"
    assert len(log["runs"]) == 2


@pytest.mark.parametrize("name", ["absent.txt", "."])
def test_a_file_that_cannot_be_opened_ends_with_2(run, tmp_path, name):
    path = str(tmp_path / name)
    ran = run("scheme", "check", "--json", path)
    error = ran.json["error"]
    assert (ran.code, error["code"], path in error["message"]) == (2, "usage.file", True)


def test_octets_and_files_beyond_measure_end_with_2(run, tmp_path, monkeypatch):
    from onym.cli.commands import scheme

    path = tmp_path / "x.txt"
    path.write_bytes(b"\xff\xfe")
    assert run("scheme", "check", str(path)).code == 2
    monkeypatch.setattr(scheme, "MAX_FILE", 1)
    assert "usage.file" in run("scheme", "check", str(path)).err


def test_escapes_in_a_template_reach_no_terminal(run):
    ran = run("scheme", "check", "-", stdin=BAD.replace("nobody", "no\x1b[2Jbody \u202e"))
    assert "\x1b" not in ran.out + ran.err
    assert "\u202e" not in ran.out + ran.err
    assert ran.code == 1


def test_match_says_which_strings_are_in_the_grammar(run, file):
    path = file(GRAMMAR, "kite.abnf")
    ran = run("scheme", "match", path, "kite:red", "kite:1")
    assert (ran.code, ran.out) == (1, "yes  kite:red\nno   kite:1\n")
    assert run("scheme", "match", path, "KITE:red").code == 0
    assert run("scheme", "match", "--start", "ALPHA", path, "a").code == 0
    ran = run("scheme", "match", "--json", path, "kite:red")
    assert ran.lines == [{"string": "kite:red", "start": "kite-URI", "matches": True}]


def test_a_rule_that_is_not_there_and_a_text_without_grammar_are_errors(run, file):
    ran = run("scheme", "match", "--start", "nope", file(GRAMMAR, "kite.abnf"), "x")
    assert ran.code == 11
    assert "nope" in ran.err
    ran = run("scheme", "match", file(GOOD), "x")
    assert ran.code == 11
    assert "abnf.none" in ran.err
    ran = run("scheme", "match", file('a = "x"\nb = "y"\n', "two.abnf"), "x")
    assert "--start" in ran.err or "a, b" in ran.err


@pytest.mark.parametrize(
    ("other", "said", "code"),
    [
        (GRAMMAR, "equal: A and B match the same strings", 0),
        ('kite-URI = "kite:" *ALPHA\n', "subset: B matches more strings than A", 1),
        ('kite-URI = "kite:" 1*%x61-7A\n', "superset: A matches more strings than B", 1),
        (
            'kite-URI = "kite:" 1*( "a" / DIGIT )\n',
            "overlap: A and B each match strings that the other does not",
            1,
        ),
        ('kite-URI = "kite:" 1*DIGIT\n', "disjoint: no string matches both", 1),
    ],
)
def test_diff_says_how_two_grammars_lie(run, file, other, said, code):
    paths = file(GRAMMAR, "a.abnf"), file(other, "b.abnf")
    ran = run("scheme", "diff", *paths)
    assert (ran.code, ran.out.splitlines()[0]) == (code, said)
    record = run("scheme", "diff", "--json", *paths).json
    assert (record["only_a"] is None and record["only_b"] is None) is (code == 0)


def test_examples_are_strings_of_the_grammar_and_repeat_with_the_seed(run, file):
    path = file(GRAMMAR, "kite.abnf")
    ran = run("scheme", "examples", path, "-n", "5", "--seed", "7")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert 0 < len(lines) <= 5
    assert all(line.lower().startswith("kite:") for line in lines)
    assert run("scheme", "examples", path, "-n", "5", "--seed", "7").out == ran.out
    assert run("scheme", "examples", "--json", path, "-n", "2").json["start"] == "kite-URI"


def test_railroad_draws_to_standard_output_or_to_a_file(run, file, tmp_path):
    path = file(GRAMMAR, "kite.abnf")
    assert "<svg" in run("scheme", "railroad", path).out
    out = tmp_path / "kite.svg"
    assert run("scheme", "railroad", path, "-o", str(out)).code == 0
    assert "<svg" in out.read_text(encoding="utf-8")
    assert "<svg" in run("scheme", "railroad", "--json", path).json["svg"]
    assert run("scheme", "railroad", "--json", path, "-o", str(out)).json["file"] == str(out)


@pytest.mark.parametrize("command", ["check", "examples", "railroad"])
def test_a_device_without_an_end_is_read_up_to_the_cap(run, command):
    ran = run("scheme", command, "--json", "/dev/zero")
    assert ran.code == 2
    assert "is larger than" in ran.json["error"]["message"]


def test_a_file_without_a_name_is_told_as_such(run):
    ran = run("scheme", "check", "")
    assert ran.code == 2
    assert "usage.file" in ran.err
    assert "without a name" in ran.err


def test_a_file_is_read_whatever_its_line_ends_and_its_mark(run, tmp_path):
    (tmp_path / "a.abnf").write_bytes(b"\xef\xbb\xbf" + GRAMMAR.replace("\n", "\r\n").encode())
    assert run("scheme", "match", str(tmp_path / "a.abnf"), "kite:a").code == 0


def test_a_grammar_that_is_broken_is_answered_with_its_fault(run, file):
    ran = run("scheme", "match", "--json", file('kite-URI = "kite:\n'), "kite:a")
    error = ran.json["error"]
    assert (ran.code, error["code"], error["field"]) == (11, "abnf.syntax", "kite-URI")
    assert (error["line"], error["column"]) == (1, 12)


def test_match_takes_the_octets_of_the_command_line_as_they_are(run, file):
    path = file('k = "kite:" %xFF\n', "k.abnf")
    assert run("scheme", "match", path, "kite:\udcff").code == 0
    assert run("scheme", "match", file('k = "kite:" 3OCTET\n', "three.abnf"), "kite:\udcff").code == 1
    assert run("scheme", "match", "--json", path, "kite:\udcff").json["matches"] is True


def test_match_makes_the_automaton_once_for_all_strings(run, file, monkeypatch):
    import onym.registry.abnf._nfa as module

    made = []
    build = module.build_nfa
    monkeypatch.setattr(module, "build_nfa", lambda whole: made.append(whole) or build(whole))
    assert run("scheme", "match", file(GRAMMAR, "kite.abnf"), "kite:a", "kite:b", "kite:c").code == 0
    assert len(made) == 1


def test_examples_that_there_are_none_of_is_said_on_standard_error(run, file):
    ran = run("scheme", "examples", file('k = "kite:" %xFF\n', "k.abnf"))
    assert (ran.code, ran.out) == (0, "")
    assert "matches no" in ran.err
    ran = run("scheme", "examples", "--json", file('k = "kite:" %xFF\n', "k.abnf"))
    assert ran.json["examples"] == []


def test_a_rule_line_with_one_angle_bracket_is_a_finding_and_no_crash(run, file):
    ran = run("scheme", "check", file('s = "k:" "a"\n<a = b>\n', "c.abnf"))
    assert ran.code == 0
    assert "described in words" in ran.out


def test_a_grammar_whose_rule_is_not_clear_is_said_to_be_no_pass(run, file):
    path = file('first = "a:" x\nsecond = "b:" x\nx = *( %x21-7E )\n', "two.abnf")
    ran = run("scheme", "check", path)
    assert ran.code == 0
    assert "no-start-rule" in ran.out
    assert "not complete" in ran.out
    assert run("scheme", "check", "--strict", path).code == 1


def test_an_undecided_grammar_is_listed_as_not_checked(run, file):
    ran = run("scheme", "check", file('kite = "kite:" <words>\n', "k.abnf"))
    assert ran.code == 0
    assert "S1 inclusion in absolute-URI:" in ran.out
    assert "not complete" in ran.out


@pytest.mark.parametrize(
    "syntax",
    [
        'Scheme syntax: kite-URI = "kite:" 1*( ALPHA / "[" )',
        'Scheme syntax:\n   kite-URI = "kite:" part\n   part = 1*( ALPHA / "[" )',
        'Scheme syntax: kite-URI = "kite:" part\n   [ "?" part ]\npart = 1*( ALPHA / "[" )',
    ],
)
def test_a_grammar_in_the_syntax_field_is_read_also_on_the_line_of_its_label(run, file, syntax):
    ran = run("scheme", "check", "--json", file(GOOD.replace("Contact:", f"{syntax}\nContact:", 1)))
    found = [each for each in json.loads(ran.out)["findings"] if each["code"] == "not-a-uri"]
    assert [(each["check"], each["witness"], each["field"]) for each in found] == [("S1", "kite:[", "syntax")]
    assert found[0]["line"] == 4 + ("syntax:\n" in syntax)


def test_the_questions_for_a_person_are_listed_once_and_only_on_request(run, file):
    two = file(GOOD + "\n" + GOOD.replace("kite\n", "kites\n", 1), "two.txt")
    assert "for a person to judge" not in run("scheme", "check", two).out
    assert "ask-utility" not in run("scheme", "check", "--json", two).out
    asked = run("scheme", "check", "--questions", two).out
    assert asked.count("  Q1 ") == 1
    listed = json.loads(run("scheme", "check", "--json", "--questions", two).out)
    assert sum(each["check"] == "Q1" for each in listed["findings"]) == 1
    assert listed["counts"] == json.loads(run("scheme", "check", "--json", two).out)["counts"]


def test_the_counts_are_those_of_the_summary_and_the_most_important_finding_comes_first(run, file):
    late = GOOD.replace("Ada Example <ada@example.com>\nChange", "nobody\nChange")
    late = late.replace("Scheme name: kite\n", "").replace("References", "Scheme name: Kite\nReferences")
    path = file(late)
    data = json.loads(run("scheme", "check", "--json", path).out)
    counts = data["counts"]
    text = run("scheme", "check", path).out
    assert f"{counts['error']} errors" in text
    assert [each["check"] for each in data["findings"] if each["level"] == "error"][:2] == ["N1", "T3"]


def test_the_schemes_of_a_text_without_a_template_are_inferred(run, file):
    rules = '1.  Syntax\n\n   kite-URI = "kite:" ALPHA "["\n   kites-URI = "kites:" ALPHA "]"\n'
    data = json.loads(run("scheme", "check", "--json", file(f"Kites.\n\n{rules}")).out)
    assert data["scheme"] == "kite"
    witnesses = [each["witness"] for each in data["findings"] if each["code"] == "not-a-uri"]
    assert witnesses == ["kite:a[", "kites:a]"]


def test_xml_that_is_broken_is_answered_with_the_name_of_its_file(run, file):
    ran = run("scheme", "check", file("<rfc><t>x</rfc>", "broken.xml"))
    assert (ran.code, "registry.bad-xml" in ran.err) == (11, True)
    assert "broken.xml: " in ran.err


def test_rules_that_a_field_chose_are_told_with_the_option_for_the_others(run, file):
    old = file(GOOD + "\nURI scheme syntax: kite:name\n")
    note = run("scheme", "check", old).err
    assert "--rules rfc7595" in note
    assert "URI scheme syntax" in note
    assert run("scheme", "check", "--rules", "rfc7595", old).err == ""
