"""Every shared vector through a real `onym conformance` process, against the verdict of its record."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support import generated, load_shared

RULES = ("URI", "URI-reference", "absolute-URI", "relative-ref")
PARTS = ("scheme", "authority", "userinfo", "host", "host_type", "port", "path", "query", "fragment")
#: seconds for one question, however long: the vectors ask for 2, on an idle machine; a square takes minutes
PATIENCE = 300.0


class Driver:
    """The process, asked one question at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "onym", "conformance"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"id": 7, **question}).encode()
        began = time.monotonic()
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert answer["id"] == 7
        self.record_duration = time.monotonic() - began
        return answer

    def close(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait(timeout=300)


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    assert driver.close() == 0


def check_error(answer: dict[str, Any]) -> None:
    """A refusal has the documented shape."""
    error = answer["error"]
    assert {"code", "component", "offset", "clause", "message"} <= error.keys()
    assert error["code"] != "conformance.bad-question"
    assert error["code"] != "internal.error"


@pytest.mark.requirement("rfc3986-A-a", "rfc3986-A-b", "rfc3986-A-c", "rfc3986-A-d")
@pytest.mark.parametrize("name", ["uri_valid.json", "uri_invalid.json"])
def test_every_production_agrees_with_the_grammar_of_rfc_3986(driver, name):
    wrong = []
    for case in load_shared(name)["cases"]:
        for rule in RULES:
            answer = driver.ask(op="uri.parse", text=case["string"], rule=rule)
            if answer["ok"] is not case["rules"][rule]:
                wrong.append((case["id"], rule))
            elif answer["ok"] and not agrees(answer["parts"], case["parts"]):
                wrong.append((case["id"], answer["parts"]))
            elif not answer["ok"]:
                check_error(answer)
    assert wrong == []


def agrees(parts: dict[str, Any], expected: dict[str, Any]) -> bool:
    assert set(parts) == set(PARTS)
    # without an authority the records leave out what belongs to one; they keep the brackets of a literal
    host = expected.get("host")
    expected = {**expected, "host": host and host.strip("[]")}
    return all(parts[name] == expected.get(name) for name in PARTS)


@pytest.mark.requirement("rfc3986-5.4-a")
def test_every_reference_resolves_as_rfc_3986_says(driver):
    wrong = []
    for case in load_shared("uri_resolve.json")["cases"]:
        answer = driver.ask(op="uri.resolve", base=case["base"], ref=case["ref"], strict=case["strict"])
        if case["status"] == "out-of-scope":
            # a base without scheme is none (5.1)
            fine = not answer["ok"]
        else:
            fine = answer["ok"] and answer["target"] in case.get("accept", [case["target"]])
        if not fine:
            wrong.append((case["id"], answer))
    assert wrong == []


def test_equivalent_uris_normalise_to_one_text_and_others_do_not(driver):
    wrong = []
    for case in load_shared("uri_normalize.json")["cases"]:
        a, b = (driver.ask(op="uri.normalize", text=case[side]) for side in "ab")
        if case["equivalent"] == "contested":
            continue
        same = a["ok"] and b["ok"] and a["text"] == b["text"]
        raw = not (case["a"] + case["b"]).isascii() or "%25eth" in case["a"]
        levels = {"syntax", "scheme"} if case["equivalent"] else {case["level"]}
        if case["level"] in levels and not raw and same is not case["equivalent"]:
            wrong.append((case["id"], a, b))
        if raw and same:
            wrong.append((case["id"], a, b))
    assert wrong == []


def test_ip_literals_are_read_as_the_grammar_says(driver):
    vectors = load_shared("ipv6_literals.json")
    wrong = []
    for kind, key, host_type in (
        ("ipv6", "valid_IPv6address", "IPv6address"),
        ("ipvfuture", "valid_IPvFuture", "IPvFuture"),
    ):
        for case in vectors[kind]:
            answer = driver.ask(op="uri.parse", text=f"http://[{case['literal']}]/", rule="URI")
            valid = answer["ok"] and answer["parts"]["host_type"] == host_type
            if valid is not case[key] or (valid and answer["parts"]["host"] != case["literal"]):
                wrong.append((case["literal"], answer))
    assert wrong == []


#: what is accepted by the grammar and refused by the meaning (docs: reading a URI)
SEMANTIC = {
    "llm.bad-port",
    "llm.control-character",
    "llm.dot-segment",
    "llm.empty-segment",
    "llm.no-model",
    "uri.bad-utf8",
}


def test_llm_uris_are_read_at_both_levels_as_the_draft_says(driver):
    wrong = []
    for case in load_shared("scheme_syntax.json")["llm"]:
        for strict in (False, True):
            answer = driver.ask(op="llm.parse", text=case["uri"], strict=strict, reveal=True)
            expected = case["expected_strict" if strict else "expected_generic"]
            if answer["ok"]:
                fine = expected == "accept" and same_value(answer["value"], case["parts"])
            else:
                check_error(answer)
                fine = expected == "reject" or answer["error"]["code"] in SEMANTIC
            if not fine:
                wrong.append((case["id"], strict, answer))
    assert wrong == []


def same_value(value: dict[str, Any], parts: dict[str, Any]) -> bool:
    model = "/".join([parts["model"], *parts["sub_paths"]])
    port = int(parts["port"]) if parts["port"] else None
    return (
        value["model"] == model
        and value["port"] == port
        and value["label"] == parts.get("app_label")
        and value["key"] == parts.get("api_key")
        and value["fragment"] == parts["fragment"]
        and same_host(value["host"], parts["host"])
    )


def same_host(host: str, expected: str) -> bool:
    return host == expected.lower().strip("[]") or "%" in expected


def test_the_key_is_answered_only_when_asked_for(driver):
    text = "llm://app:sk-1234567890@h.example/m?api_key=hidden-1234"
    closed = json.dumps(driver.ask(op="llm.parse", text=text))
    assert "sk-1234567890" not in closed
    assert "hidden-1234" not in closed
    opened = driver.ask(op="llm.parse", text=text, reveal=True)
    assert opened["value"]["key"] == "sk-1234567890"


def test_ai_uris_are_read_as_the_draft_says(driver):
    wrong = []
    for case in load_shared("scheme_syntax.json")["ai"]:
        answer = driver.ask(op="ai.parse", text=case["uri"])
        if case["expected"] == "accept":
            fine = answer["ok"] and case["parts"].items() <= answer["value"].items()
        else:
            fine = not answer["ok"]
            check_error(answer)
        if not fine:
            wrong.append((case["id"], answer))
    assert wrong == []


@pytest.mark.requirement("llm-10.3-a", "llm-10.3-b", "llm-10.3-c")
def test_parameters_are_refused_passed_or_read_as_the_records_say(driver):
    wrong = []
    for case in load_shared("bad_params.json")["cases"]:
        answer = driver.ask(op="llm.parse", text=generated(case, "uri"), reveal=True)
        if driver.record_duration > PATIENCE or not fits(case, answer):
            wrong.append((case["id"], driver.record_duration, case, answer))
    assert wrong == []


def fits(case: dict[str, Any], answer: dict[str, Any]) -> bool:
    if not answer["ok"]:
        check_error(answer)
        named = case["param"] is None or answer["error"].get("parameter") == case["param"]
        # a raw character that no URI may hold is the text's fault, not a parameter's
        syntax = answer["error"]["code"].startswith("uri.")
        return "error" in case["accept"] and (named or syntax or bool(case.get("contested")))
    if not {"accepted", "pass-through"} & set(case["accept"]):
        return False
    return "value" not in case or answer["value"]["params"][case["param"]] == case["value"]


def test_no_secret_is_left_and_nothing_else_is_taken(driver):
    wrong = []
    for case in load_shared("redaction.json")["cases"]:
        text = generated(case, "input")
        answer = driver.ask(op="redact", text=text)
        left = [s for s in (*case["must_be_absent"], *case.get("also_absent", ())) if s in answer["text"]]
        lost = [s for s in case["must_survive"] if s not in answer["text"]]
        changed = case.get("unchanged") and answer["text"] != text
        if left or lost or changed or driver.record_duration > PATIENCE:
            wrong.append((case["id"], answer["text"][:300], lost, driver.record_duration))
    assert wrong == []


OUTSIDE = {"preset": "untrusted", "allow_ip_literals": True, "ports": None}


def decision(answer: dict[str, Any]) -> str:
    if not answer["ok"]:
        check_error(answer)
        return "reject-as-malformed"
    assert set(answer) == {"id", "ok", "decision", "reason", "connect_to"}
    if answer["decision"] == "allow":
        assert answer["reason"] is None
        assert answer["connect_to"]
        return "allow"
    assert answer["decision"] == "refuse"
    assert answer["reason"]
    assert answer["connect_to"] == []
    return "block"


@pytest.mark.requirement("llm-10.5-a")
def test_no_uri_that_must_be_refused_connects(driver):
    wrong = []
    for case in load_shared("ssrf.json")["cases"]:
        got = decision(driver.ask(op="net.decide", uri=case["uri"], policy=OUTSIDE))
        dns = case["verdict"] == "depends-on-DNS"
        if (case["must_refuse"] and got == "allow") or (not dns and got not in case["accept"]):
            wrong.append((case["id"], case["uri"], got, case["accept"]))
    assert wrong == []


@pytest.mark.requirement("llm-10.5-c")
def test_untrusted_uris_may_not_name_addresses(driver):
    wrong = []
    for case in load_shared("ssrf.json")["cases"]:
        policy = {"preset": "untrusted", "ports": None}
        got = decision(driver.ask(op="net.decide", uri=case["uri"], policy=policy))
        if case["verdict_production"] in {"block", "reject-as-malformed"} and got == "allow":
            wrong.append((case["id"], case["uri"], got))
    assert wrong == []


def test_the_local_policy_lets_loopback_through_and_nothing_more(driver):
    wrong = []
    for case in load_shared("ssrf.json")["cases"]:
        answer = driver.ask(op="net.decide", uri=case["uri"], policy={"preset": "local"})
        got = decision(answer)
        # some spellings of loopback have no verdict of their own under this policy
        elsewhere = [text for text in answer.get("connect_to", ()) if text != "::1" and text[:4] != "127."]
        if elsewhere or got != case.get("verdict_local", got):
            wrong.append((case["id"], case["uri"], answer))
    assert wrong == []


@pytest.mark.requirement("llm-10.5-b")
def test_answers_of_dns_decide_and_the_first_answers_are_the_ones_used(driver):
    wrong = []
    for case in load_shared("ssrf.json")["cases"]:
        for dns in case.get("dns_cases", ()):
            asked = {key: dns[key] for key in ("answers", "sequence", "error", "family") if key in dns}
            answer = driver.ask(op="net.decide", uri=case["uri"], policy=OUTSIDE, dns=asked)
            got = decision(answer)
            first = dns.get("answers") or (dns.get("sequence") or [[]])[0]
            if got == "allow" and sorted(answer["connect_to"]) != sorted(first):
                wrong.append((case["id"], dns, answer))
            if got == "reject-as-malformed" and "reject-as-malformed" in case["accept"]:
                continue
            expected = {"allow": {"allow"}, "block": {"block"}}.get(dns["expected"], {"allow", "block"})
            if got not in expected:
                wrong.append((case["id"], case["uri"], dns, got))
    assert wrong == []


def test_addresses_that_other_guards_judge_are_judged_as_the_records_say(driver):
    wrong = []
    for case in load_shared("ssrf.json")["external_address_verdicts"]:
        literal = case["input"]
        host = f"[{literal}]" if ":" in literal else literal
        got = decision(driver.ask(op="net.decide", uri=f"llm://{host}/m", policy=OUTSIDE))
        if case["our"] != "contested" and (got == "allow") is not (case["our"] == "allow"):
            wrong.append((literal, got, case))
    assert wrong == []
