"""What the presets allow, and what changing one rule changes."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import PolicyError, UsageError
from onym.net.hosts import Address, classify_address
from onym.net.policy import (
    PRESETS,
    REASONS,
    Policy,
    choose_scheme,
    evaluate_policy,
    evaluate_uri,
    make_policy_error,
)
from support import as_subtests

PUBLIC = ["93.184.216.34"]


def outcome(policy: Policy, host: str, port: int = 443, **options: Any) -> str:
    decision = evaluate_policy(policy, host, port, **options)
    assert decision.allowed == (decision.reason is None) == bool(decision.connect_to)
    return decision.reason or "allowed"


@pytest.mark.requirement("llm-10.5-a", "llm-10.5-d", "llm-10.5-e")
@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("trusted", {"localhost": "loopback", "127.0.0.1": "loopback", "8.8.8.8": "ip-literal"}),
        (
            "local",
            {"localhost": "allowed", "127.0.0.1": "allowed", "::1": "allowed", "8.8.8.8": "ip-literal"},
        ),
        ("untrusted", {"localhost": "loopback", "127.0.0.1": "loopback", "8.8.8.8": "ip-literal"}),
    ],
)
def test_presets_differ_in_this_machine(preset: str, expected: dict[str, str]) -> None:
    policy = Policy.preset(preset)
    assert {host: outcome(policy, host) for host in expected} == expected


@pytest.mark.requirement("llm-10.5-b")
@pytest.mark.parametrize("preset", PRESETS)
@as_subtests(
    "answer", ["10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.1.1", "fe80::1", "127.0.0.1", "::1"]
)
def test_no_preset_lets_a_name_lead_to_the_drafts_list(preset: str, answer: str) -> None:
    policy = Policy.preset(preset)
    assert outcome(policy, "a.example", answers=[answer]) != "allowed"
    assert outcome(policy, "a.example", answers=[*PUBLIC, answer]) != "allowed"
    assert outcome(policy, "a.example", answers=[answer, *PUBLIC]) != "allowed"


@pytest.mark.parametrize(
    ("preset", "expected"), [("trusted", "allowed"), ("local", "allowed"), ("untrusted", "port")]
)
def test_only_untrusted_uris_are_held_to_port_443(preset: str, expected: str) -> None:
    policy = Policy.preset(preset)
    assert outcome(policy, "a.example", 8443, answers=PUBLIC) == expected
    assert outcome(policy, "a.example", 443, answers=PUBLIC) == "allowed"


def test_presets_say_what_a_uri_may_use() -> None:
    facts = {
        name: (Policy.preset(name).environment_credentials, Policy.preset(name).allow_system)
        for name in PRESETS
    }
    assert facts == {"trusted": (True, True), "local": (True, True), "untrusted": (False, False)}
    assert Policy() == Policy.trusted()
    assert (Policy.local().name, Policy.untrusted().name) == ("local", "untrusted")


@pytest.mark.requirement("llm-5.1-a", "llm-10.2-c")
def test_plain_http_goes_to_this_machine_alone_and_only_once_allowed() -> None:
    local = Policy.local()
    assert outcome(local, "localhost", 11434, scheme="http") == "allowed"
    assert outcome(local, "::1", 11434, scheme="http") == "allowed"
    assert outcome(local, "a.example", 80, scheme="http", answers=PUBLIC) == "plain-http"
    listed = Policy.trusted().replace(allow_networks=("127.0.0.0/8", "10.0.0.0/8"), ip_literals="allow")
    assert outcome(listed, "127.0.0.1", 80, scheme="http") == "plain-http"
    assert outcome(listed, "10.0.0.1", 80, scheme="http") == "plain-http"
    assert outcome(local, "localhost", 21, scheme="ftp") == "scheme"


def test_a_name_that_leads_to_this_machine_is_not_one_of_its_names() -> None:
    assert outcome(Policy.local(), "a.example", answers=["127.0.0.1"]) == "loopback"


def test_allowing_loopback_allows_its_addresses_as_hosts_unless_told_otherwise() -> None:
    assert outcome(Policy.trusted().replace(allow_loopback=True), "127.0.0.1") == "allowed"
    strict = Policy.trusted().replace(allow_loopback=True, ip_literals="refuse")
    assert outcome(strict, "127.0.0.1") == "ip-literal"
    assert outcome(strict, "localhost") == "allowed"


@pytest.mark.requirement("llm-10.5-c")
def test_ip_literals_are_allowed_only_by_choice() -> None:
    policy = Policy.untrusted().replace(ip_literals="allow")
    assert outcome(policy, "93.184.216.34") == "allowed"
    assert outcome(policy, "2606:4700::1111") == "allowed"
    assert outcome(policy, "10.0.0.1") == "private"


def test_allow_hosts_is_exact_and_never_lets_an_address_through() -> None:
    policy = Policy.untrusted().replace(allow_hosts=["API.openai.com.", "2001:4860::8888"])
    assert outcome(policy, "api.openai.com", answers=PUBLIC) == "allowed"
    assert outcome(policy, "Api.OpenAI.com.", answers=PUBLIC) == "allowed"
    assert outcome(policy, "x.api.openai.com", answers=PUBLIC) == "host-not-allowed"
    assert outcome(policy, "api.openai.com", answers=["10.0.0.1"]) == "private"
    assert policy.allow_hosts == {"api.openai.com", "2001:4860::8888"}


@pytest.mark.parametrize("host", ["evil.example", "EVIL.example.", "%65vil.example"])
def test_deny_hosts_is_not_fooled_by_spelling(host: str) -> None:
    policy = Policy.trusted().replace(deny_hosts={"Evil.Example", "metadata.goog"})
    assert outcome(policy, host, answers=PUBLIC) == "host-denied"


def test_listed_networks_are_reached() -> None:
    policy = Policy.untrusted().replace(allow_networks=("10.1.0.0/16", "fd00::/8"))
    assert outcome(policy, "a.example", answers=["10.1.2.3"]) == "allowed"
    assert outcome(policy, "a.example", answers=["10.2.2.3"]) == "private"
    assert outcome(policy, "a.example", answers=["fd12::1"]) == "allowed"
    assert outcome(policy, "a.example", answers=["::ffff:10.1.2.3"]) == "embedded-private"


def test_a_metadata_service_is_reached_only_if_its_own_address_is_listed() -> None:
    wide = Policy.trusted().replace(allow_networks=("169.254.0.0/16", "fd00::/8", "::/0"))
    assert outcome(wide, "a.example", answers=["169.254.169.254"]) == "metadata"
    assert outcome(wide, "a.example", answers=["fd00:ec2::254"]) == "metadata"
    assert outcome(wide, "a.example", answers=["::ffff:169.254.169.254"]) == "embedded-metadata"
    single = Policy.trusted().replace(allow_networks=("169.254.169.254",))
    assert outcome(single, "a.example", answers=["169.254.169.254"]) == "allowed"


def test_a_name_without_an_address_is_refused_after_all_else() -> None:
    assert outcome(Policy.trusted(), "a.example") == "no-address"
    assert outcome(Policy.trusted(), "a.example", answers=[]) == "no-address"
    assert outcome(Policy.untrusted(), "a.example", 8443) == "port"
    assert outcome(Policy.trusted(), "a.example", 80, scheme="http") == "plain-http"


@pytest.mark.parametrize("answer", ["not-an-ip", "127.0.0.1\0", "fe80::1%eth0", "010.0.0.1", "", 7, None])
def test_an_answer_that_is_no_address_refuses_the_name(answer: Any) -> None:
    assert outcome(Policy.trusted(), "a.example", answers=[*PUBLIC, answer]) == "bad-answer"


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    assert outcome(Policy.trusted(), "a.example", port, answers=PUBLIC) == "port"


def test_addresses_to_connect_to_keep_their_order_and_come_once() -> None:
    answers = ["2606:4700::1111", "1.1.1.1", "::ffff:1.1.1.1", "2606:4700:0::1111"]
    decision = evaluate_policy(Policy.trusted(), "A.example.", 443, answers=answers)
    assert decision.connect_to == ("2606:4700::1111", "1.1.1.1")
    assert decision.host == "a.example"


def test_names_of_this_machine_must_lead_to_it() -> None:
    assert outcome(Policy.local(), "localhost", answers=["10.0.0.1"]) == "not-loopback"
    assert evaluate_policy(Policy.local(), "localhost", 11434, answers=["127.0.0.1"]).connect_to == (
        "127.0.0.1",
    )
    assert outcome(Policy.trusted(), "localhost", answers=["93.184.216.34"]) == "not-loopback"


@as_subtests(
    "changes",
    [
        {"unknown": 1},
        {"ip_literals": "maybe"},
        {"allow_networks": ("10.0.0.1/8",)},
        {"allow_networks": "10.0.0.0/8"},
        {"allow_networks": (10,)},
        {"allow_hosts": "api.openai.com"},
        {"allow_hosts": ["a b"]},
        {"deny_hosts": [1]},
        {"deny_hosts": None},
        {"ports": 443},
        {"ports": [0]},
        {"ports": [True]},
        {"ports": ["443"]},
        {"allow_loopback": 1},
        {"preset": "lenient"},
        {"preset": 1},
        {"allow_ip_literals": "yes"},
    ],
)
def test_a_policy_that_cannot_be_is_refused_when_it_is_made(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Policy.from_dict(changes)
    assert caught.value.code == "usage.policy"


def test_plain_data_makes_a_policy() -> None:
    data = {
        "preset": "untrusted",
        "allow_ip_literals": True,
        "ports": [443, 8443],
        "allow_hosts": ["A.example"],
    }
    expected = Policy.untrusted().replace(ip_literals="allow", ports={443, 8443}, allow_hosts={"a.example"})
    assert Policy.from_dict(data) == expected
    assert Policy.from_dict({}) == Policy.trusted()
    assert Policy.from_dict({"preset": "local", "allow_ip_literals": False}).ip_literals == "refuse"


def test_policies_are_values() -> None:
    policy = Policy.untrusted().replace(allow_networks=["10.0.0.0/8"])
    assert hash(policy) == hash(pickle.loads(pickle.dumps(policy)))
    assert policy == pickle.loads(pickle.dumps(policy))
    assert outcome(pickle.loads(pickle.dumps(policy)), "a.example", answers=["10.0.0.1"]) == "allowed"
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.name = "other"  # type: ignore[misc]


@as_subtests("reason", REASONS)
def test_every_reason_is_told_in_words_of_ours(reason: str) -> None:
    error = make_policy_error(reason, "https://a.example:443")
    assert isinstance(error, PolicyError)
    assert (error.reason, error.code) == (reason, f"net.refused.{reason}")
    assert error.endpoint == "https://a.example:443"


def test_a_refusal_of_this_machine_says_how_to_allow_it() -> None:
    error = evaluate_policy(Policy.trusted(), "localhost", 11434).to_error("http://localhost:11434")
    assert error.reason == "loopback"
    assert all(name in (error.hint or "") for name in ("Policy.local()", "ONYM_ALLOW_LOOPBACK=1"))


@given(
    st.one_of(
        st.integers(0, 2**32 - 1).map(lambda n: Address(4, n)),
        st.integers(0, 2**128 - 1).map(lambda n: Address(6, n)),
    )
)
def test_every_category_of_address_has_its_words(address: Address) -> None:
    category = classify_address(address)
    assert category == "public" or category in REASONS


@given(
    st.lists(st.sampled_from(["8.8.8.8", "10.0.0.1", "::1", "2606:4700::1111", "x"]), max_size=4),
    st.randoms(),
)
def test_the_order_of_answers_does_not_matter_to_the_outcome(answers: list[str], random: Any) -> None:
    shuffled = random.sample(answers, len(answers))
    first = evaluate_policy(Policy.trusted(), "a.example", 443, answers=answers)
    second = evaluate_policy(Policy.trusted(), "a.example", 443, answers=shuffled)
    assert first.allowed == second.allowed
    assert set(first.connect_to) == set(second.connect_to)


def test_questions_are_answered_from_what_lookups_would_say() -> None:
    uri = "llm://a.example/m"
    assert evaluate_uri(uri, {}, {"answers": PUBLIC}).connect_to == ("93.184.216.34",)
    assert evaluate_uri(uri, Policy.trusted(), {"sequence": [["10.0.0.1"], PUBLIC]}).reason == "private"
    assert evaluate_uri(uri, {}, {"error": "NXDOMAIN"}).reason == "no-address"
    assert evaluate_uri(uri, {}).reason == "no-address"
    assert evaluate_uri("llm://[v1.x]/m", {}).reason == "bad-host"
    assert evaluate_uri("llm://localhost/m", {"preset": "local"}, {"error": "x"}).allowed


@pytest.mark.parametrize("dns", [{"answers": "10.0.0.1"}, {"sequence": {"a": 1}}, {"sequence": ["10.0.0.1"]}])
def test_answers_that_cannot_be_read_are_refused(dns: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        evaluate_uri("llm://a.example/m", {}, dns)


@pytest.mark.requirement("llm-5.1-a")
def test_the_scheme_is_https_but_for_this_machine() -> None:
    assert choose_scheme("api.openai.com", Policy.local()) == "https"
    assert choose_scheme("localhost", Policy.local()) == "http"
    assert choose_scheme("localhost", Policy.trusted()) == "https"
