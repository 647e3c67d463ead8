"""`onym ai verify`: a filed receipt, offline: who signed what for whom and when, or which step refused."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Run
from onym.sign.approval import sign_approval
from onym.sign.receipts import GATEWAY, StreamChain, content_digest, sign_receipt
from sign.test_approval import EVIDENCE, NAMED
from sign_support import BODY, NOW, RECEIPT, claims, forged, jwks, key


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", refuse)


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.receipt = self.write("receipt.jwt", sign_receipt(RECEIPT, key()) + "\n")
        self.body = self.write("body", BODY)
        self.keys = self.write("keys.json", jwks(key()))

    def write(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_receipt_that_holds_is_told_in_full(run: Run, files: Files) -> None:
    ran = run(
        "ai", "verify", files.receipt, "--body", files.body, "--history", files.keys,
        "--uri", "ai://BANK.example/payments?amount=10",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    lines = [line.split(maxsplit=1) for line in ran.out.splitlines()]
    assert ran.out.startswith("the receipt is valid\n")
    rows = {line[0]: line[1] for line in lines[1:]}
    assert rows["signed"] == "by  https://bank.example"
    assert rows["key"] == f"{key().kid} (Ed25519)"
    assert rows["for"] == "https://app.example"
    assert rows["about"] == "ai://bank.example/payments"
    assert rows["issued"] == "2025-10-09T08:53:20+00:00"
    assert rows["status"] == "200 application/json"
    assert rows["content"] == f"30 bytes, {content_digest(BODY)}"
    assert rows["checked"].endswith("claims, time of the key, issuer, resource, content")
    assert rows["not"] == "audience, nonce, request, replay"


def test_json_says_the_same(run: Run, files: Files) -> None:
    ran = run("ai", "verify", files.receipt, "--keys", files.keys, "--json")
    assert ran.json["valid"] is True
    assert ran.json["receipt"]["issuer"] == "https://bank.example"
    assert ran.json["key"] == {"kid": key().kid, "algorithm": "Ed25519"}
    assert ran.json["issued"] == "2025-10-09T08:53:20+00:00"
    assert "issuer" in ran.json["checked"]
    assert ran.json["unchecked"] == ["resource", "content", "audience", "nonce", "request", "replay"]


def test_optional_claims_are_shown(run: Run, files: Files) -> None:
    token = sign_receipt(
        replace(RECEIPT, content_type=None, policy="policy-7", approval=NAMED.approval), key()
    )
    ran = run("ai", "verify", files.write("r", token), "--keys", files.keys)
    assert "policy-7" in ran.out
    assert "approved   by ann at https://gateway.example\n" in ran.out
    assert "not        resource, content, approval, audience" in ran.out
    assert "status     200\n" in ran.out


def test_a_receipt_comes_from_a_pipe_too(run: Run, files: Files) -> None:
    ran = run("ai", "verify", "-", "--keys", files.keys, stdin=sign_receipt(RECEIPT, key()))
    assert ran.code == 0


@pytest.mark.parametrize("name", ["AIIP-Receipt: ", "aiip-receipt:", "Aiip-Receipt:\t "])
def test_a_receipt_may_have_the_name_of_its_field_before_it(run: Run, files: Files, name: str) -> None:
    field = files.write("r", f"{name}{sign_receipt(RECEIPT, key())}\r\n")
    ran = run("ai", "verify", field, "--keys", files.keys)
    assert ran.code == 0, ran.err


def test_a_folder_of_a_saved_result_is_verified_with_its_files(run: Run, files: Files) -> None:
    ran = run("ai", "verify", str(files.folder), "--keys", files.keys)
    assert ran.code == 0, ran.err
    assert "issuer, content" in ran.out
    assert "origin of the keys" not in ran.out
    files.write("history.json", jwks(key()))
    ran = run("ai", "verify", str(files.folder))
    assert ran.code == 0
    # the folder may come from another person, with that person's keys
    assert "not        resource, origin of the keys, audience" in ran.out
    assert "fetch the keys from https://bank.example" in ran.err
    files.write("body", BODY + b" ")
    assert run("ai", "verify", str(files.folder)).code == 12
    (files.folder / "body").unlink()
    assert "issuer\n" in run("ai", "verify", str(files.folder)).out


def test_without_keys_the_command_that_fetches_them_is_shown(run: Run, files: Files) -> None:
    ran = run("ai", "verify", files.receipt)
    assert ran.code == 2
    assert "'https://bank.example/.well-known/aiip.jwks.json?history'" in " ".join(ran.err.split())
    for issuer in ("https://bank.example'; rm -rf /", "http://bank.example", 7, None):
        token = files.write("r", forged(payload={**claims(), "iss": issuer}))
        told = run("ai", "verify", token)
        assert told.code == 2
        assert "ANCHOR/.well-known" in told.err
        assert "curl" not in told.err
    assert "ANCHOR/.well-known" in run("ai", "verify", files.write("r", "no receipt")).err


def test_another_field_is_no_receipt(run: Run, files: Files) -> None:
    field = files.write("r", f"Authorization: {sign_receipt(RECEIPT, key())}")
    assert run("ai", "verify", field, "--keys", files.keys).code == 12


@pytest.mark.parametrize("option", ["--history", "--keys"])
@pytest.mark.parametrize(
    "content",
    [
        "no keys at all",
        "{}",
        '{"keys": [1]}',
        '{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        "\x00" * 600_000,
        sign_receipt(RECEIPT, key()),
    ],
    ids=["text", "object", "number", "shared", "long", "receipt"],
)
def test_a_file_that_holds_no_keys_is_a_mistake_of_the_command_line_and_no_forgery(
    run: Run, files: Files, option: str, content: str
) -> None:
    wrong = files.write("wrong", content)
    ran = run("ai", "verify", files.receipt, option, wrong, "--json")
    assert (ran.code, ran.json["error"]["code"]) == (2, "usage.input-file")
    assert wrong in ran.json["error"]["message"]


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "step 1"),
        ("x.y.z", "step 1"),
        (forged(signature=b"\0" * 64), "step 5"),
        (forged(payload=claims(iss="https://evil.example")), "step 6 (iss)"),
        (forged(payload=claims(exp=NOW + 9999)), "step 6"),
    ],
)
def test_a_receipt_that_does_not_hold_says_at_which_step(
    run: Run, files: Files, token: str, why: str
) -> None:
    ran = run("ai", "verify", files.write("r", token), "--keys", files.keys)
    assert ran.code == 12
    assert why in ran.err
    assert ran.out == ""


def test_whoever_has_the_file_is_told_the_reason_that_strangers_are_not(run: Run, files: Files) -> None:
    ran = run(
        "ai", "verify", files.receipt, "--body", files.write("b", BODY[:-1]), "--keys", files.keys, "--json"
    )
    assert ran.code == 12
    error = ran.json["error"]
    assert error["clause"] == "AIIP/HTTPS v1 3.8 step 7 (res.len)"
    assert error["hint"].startswith("res.len: ")


def test_one_changed_octet_of_the_body_is_seen(run: Run, files: Files) -> None:
    changed = files.write("b", BODY.replace(b"10", b"11"))
    ran = run("ai", "verify", files.receipt, "--body", changed, "--keys", files.keys)
    assert (ran.code, "step 7 (res.cd)" in ran.err) == (12, True)


@pytest.mark.parametrize(
    "uri", ["ai://bank.example/other", "ai://other.example/payments", "ai://bank.example:8443/payments"]
)
def test_a_receipt_of_another_resource_is_refused(run: Run, files: Files, uri: str) -> None:
    ran = run("ai", "verify", files.receipt, "--keys", files.keys, "--uri", uri)
    assert (ran.code, "step 6 (sub)" in ran.err) == (12, True)


def test_the_issuer_of_a_registrys_label_is_not_judged(run: Run, files: Files) -> None:
    token = files.write("r", sign_receipt(replace(RECEIPT, subject="ai://bank/payments"), key()))
    assert run("ai", "verify", token, "--keys", files.keys, "--uri", "ai://bank/payments").code == 0
    local = files.write("r", sign_receipt(replace(RECEIPT, subject="ai:/payments"), key()))
    assert run("ai", "verify", local, "--keys", files.keys).code == 0


def test_a_uri_that_is_none_is_said(run: Run, files: Files) -> None:
    assert run("ai", "verify", files.receipt, "--keys", files.keys, "--uri", "https://x/").code == 3


def test_keys_are_judged_by_their_history(run: Run, files: Files) -> None:
    retired = files.write("k", jwks({**key().public(), "nbf": NOW - 99, "exp": NOW + 99}))
    assert run("ai", "verify", files.receipt, "--history", retired).code == 0
    for octets in (
        jwks({**key().public(), "exp": NOW - 99}),
        jwks({**key().public(), "revoked": {"revoked_at": NOW + 99}}),
        jwks(key(), revoked=[key().kid]),
        jwks(key(number=1)),
    ):
        assert run("ai", "verify", files.receipt, "--history", files.write("k", octets)).code == 12


def test_a_receipt_from_after_the_time_of_judging_is_refused(run: Run, files: Files) -> None:
    common = ["ai", "verify", files.receipt, "--keys", files.keys, "--at"]
    assert run(*common, "2025-10-09T08:53:20Z").code == 0
    assert run(*common, "2025-10-09T09:53:20+01:00").code == 0
    ran = run(*common, "2025-10-09T08:51:00Z")
    assert (ran.code, "step 6 (iat)" in ran.err) == (12, True)


@pytest.mark.parametrize("when", ["yesterday", "2025-10-09T08:53:20", "2027-13-01T00:00:00Z"])
def test_a_time_without_offset_or_sense_is_a_usage_error(run: Run, files: Files, when: str) -> None:
    assert run("ai", "verify", files.receipt, "--keys", files.keys, "--at", when).code == 2


def test_one_file_of_keys_is_given(run: Run, files: Files) -> None:
    ran = run("ai", "verify", files.receipt)
    assert (ran.code, "aiip.jwks.json" in ran.err) == (2, True)
    assert run("ai", "verify", files.receipt, "--keys", files.keys, "--history", files.keys).code == 2


def test_a_file_that_is_missing_or_too_long_is_said(run: Run, files: Files) -> None:
    assert run("ai", "verify", str(files.folder / "none"), "--keys", files.keys).code == 2
    assert run("ai", "verify", files.write("r", "x" * 20_000), "--keys", files.keys).code == 2


def test_a_gateways_receipt_is_asked_for_by_name(run: Run, files: Files) -> None:
    gateway = replace(RECEIPT, kind=GATEWAY, issuer="https://gateway.example", nonce=None, upstream="u" * 43)
    token = files.write("g", sign_receipt(gateway, key()))
    assert run("ai", "verify", token, "--keys", files.keys).code == 12
    ran = run(
        "ai", "verify", token, "--keys", files.keys, "--gateway-receipt", "--body", files.body, "--json"
    )
    assert ran.code == 0
    assert "issuer" in ran.json["unchecked"]
    assert run("ai", "verify", files.receipt, "--keys", files.keys, "--gateway-receipt").code == 12


# streams

EVENTS = ("id: 1\ndata: one\n\n", "id: 2\nevent: delta\ndata: two\ndata: lines\n\n")


def streamed(files: Files) -> str:
    chain = StreamChain(RECEIPT.request)
    chain.add("1", "message", "one")
    chain.add("2", "delta", "two\nlines")
    changes: dict[str, Any] = {"content_type": "text/event-stream", "digest": None, "length": None}
    return files.write("r", sign_receipt(replace(RECEIPT, stream=chain.end, **changes), key()))


def verify_stream(run: Run, files: Files, content: str | bytes) -> Any:
    return run(
        "ai", "verify", streamed(files), "--keys", files.keys, "--body", files.write("s", content), "--json"
    )


RECEIPTS = "event: receipt\ndata: x.y.z\n\n", "event: gateway-receipt\ndata: x.y.z\n\n"


@pytest.mark.parametrize("last", ["", RECEIPTS[0], "".join(RECEIPTS)])
def test_a_filed_stream_holds_with_its_receipt_or_without(run: Run, files: Files, last: str) -> None:
    ran = verify_stream(run, files, "".join(EVENTS) + last)
    assert ran.code == 0, ran.out
    assert "content" in ran.json["checked"]
    assert "2 events" in run("ai", "verify", streamed(files), "--keys", files.keys).out


@pytest.mark.parametrize(
    "content",
    [
        EVENTS[0],
        EVENTS[1] + EVENTS[0],
        "".join(EVENTS).replace("two", "too"),
        "".join(EVENTS) + "event: receipt\ndata: x\n\nid: 3\ndata: more\n\n",
        "".join(EVENTS) + RECEIPTS[1],
        "".join(EVENTS) + RECEIPTS[1] + RECEIPTS[0],
        "".join(EVENTS) + RECEIPTS[0] + RECEIPTS[1] * 2,
        "",
        b"data: \xff\n\n",
        json.dumps({"not": "a stream"}),
    ],
)
def test_a_filed_stream_that_is_not_the_one_is_refused(run: Run, files: Files, content: str | bytes) -> None:
    ran = verify_stream(run, files, content)
    assert ran.code == 12
    assert ran.json["error"]["code"] == "aiip.provenance-invalid"


def test_a_receipt_and_its_approval_are_verified_together(run: Run, files: Files) -> None:
    receipt = files.write("r", sign_receipt(NAMED, key()))
    evidence = files.write("a", f"AIIP-Approval: {sign_approval(EVIDENCE, key())}\n")
    ran = run(
        "ai", "verify", receipt, "--keys", files.keys, "--approval", evidence, "--approver-keys", files.keys,
        "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "approval" in ran.json["checked"]
    assert ran.json["receipt"]["approval"]["by"] == ["ann"]
    other = files.write("o", sign_approval(replace(EVIDENCE, by=("bob",)), key()))
    ran = run(
        "ai", "verify", receipt, "--keys", files.keys, "--approval", other, "--approver-keys", files.keys
    )
    assert (ran.code, ran.out) == (12, "")
    ran = run(
        "ai", "verify", files.receipt, "--keys", files.keys, "--approval", evidence,
        "--approver-keys", files.keys,
    )  # fmt: skip
    assert (ran.code, ran.out) == (12, "")


def test_an_approval_needs_the_keys_of_its_approver(run: Run, files: Files) -> None:
    for alone in ("--approval", "--approver-keys"):
        ran = run("ai", "verify", files.receipt, "--keys", files.keys, alone, files.keys, "--json")
        assert (ran.code, ran.json["error"]["code"]) == (2, "usage.command-line")
