"""A client whose call people must approve: it gets a challenge, and sends the evidence with the same call."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ai_factory import Factory
from ai_support import authority_ca, key_store, serve_authority, trust
from approval_support import HandApprover, hand_approver
from onym.ai.endpoint import Endpoint
from onym.cli import exit_codes
from onym.cli._app import app
from onym.errors import ApprovalRequired, DeniedError, InvocationError, UsageError
from onym.sign.approval import Challenge, verify_receipt_approval
from onym.sign.keys import read_authority_keys

NAME = "shop.localhost"
POLICY = '@approval("person") permit(principal, action, resource);'
ALLOW = {"allow_effects": ["read", "write", "financial"]}


class Shop:
    """An authority whose payments need an approval, and the approver."""

    def __init__(self, factory: Factory, approver: HandApprover) -> None:
        self.factory, self.approver = factory, approver
        self.uri = factory.uri("/pay")

    def understand(self, error: ApprovalRequired) -> Challenge:
        keys = read_authority_keys(self.factory.keys.jwks(2e9))
        resource = f"https://{self.factory.authority}/.well-known/aiip/v1"
        return self.approver.understand(error.transaction_challenge or "", keys, resource)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    keys, ca, calls = key_store(folder), authority_ca(), list[str]()
    with hand_approver(ca, folder) as approver:

        def make(authority: str) -> Endpoint:
            app = Endpoint(
                authority,
                keys=keys,
                store=folder / "seen.sqlite",
                policy=POLICY,
                approvers=[approver.entry()],
                network=approver.network,
            )

            @app.resource("/pay", effects="financial")
            def pay(amount: int) -> int:
                calls.append(f"pay {amount}")
                return amount

            @app.resource("/task", effects="financial", task=True)
            async def task(amount: int) -> int:
                calls.append(f"task {amount}")
                return amount

            return app

        trust(ca, folder)
        with serve_authority(make, NAME, ca=ca) as (app, authority):
            yield Shop(Factory(app, authority, keys, folder, ca, calls), approver)


def needed(work: Any) -> ApprovalRequired:
    with pytest.raises(ApprovalRequired) as caught:
        work()
    return caught.value


def test_a_call_is_sent_again_with_its_key_and_the_evidence(shop: Shop) -> None:
    with shop.factory.client(**ALLOW) as client:
        error = needed(lambda: client.invoke(shop.uri, {"amount": 3}))
        assert isinstance(error, DeniedError)
        assert (error.code, error.exit_code) == ("aiip.approval-required", 14)
        assert error.idempotency_key is not None
        assert error.idempotency_key in str(error)
        challenge = shop.understand(error)
        assert challenge.call.uri == shop.uri
        evidence = shop.approver.approve(challenge)
        sent = {"idempotency_key": error.idempotency_key, "approval": evidence}
        result = client.invoke(shop.uri, {"amount": 3}, **sent)
        assert result.json() == 3
        keys = read_authority_keys(shop.approver.key_set())
        assert verify_receipt_approval(result.receipt, evidence, keys).request == result.receipt.request
        with pytest.raises(InvocationError) as caught:
            client.invoke(shop.uri, {"amount": 4}, **sent)
        assert caught.value.code == "aiip.approval-mismatch"
    assert shop.factory.calls.count("pay 3") == 1
    assert "pay 4" not in shop.factory.calls


def test_the_same_with_coroutines(shop: Shop) -> None:
    async def main() -> None:
        async with shop.factory.aclient(**ALLOW) as client:
            with pytest.raises(ApprovalRequired) as caught:
                await client.invoke(shop.uri, {"amount": 5})
            evidence = shop.approver.approve(shop.understand(caught.value))
            key = caught.value.idempotency_key
            result = await client.invoke(shop.uri, {"amount": 5}, idempotency_key=key, approval=evidence)
            assert result.json() == 5

    asyncio.run(main())


def test_a_long_task_needs_its_approval_too(shop: Shop) -> None:
    uri = shop.factory.uri("/task")
    with shop.factory.client(**ALLOW) as client:
        error = needed(lambda: client.start(uri, {"amount": 7}))
        assert "task 7" not in shop.factory.calls
        evidence = shop.approver.approve(shop.understand(error))
        task = client.start(uri, {"amount": 7}, idempotency_key=error.idempotency_key, approval=evidence)
        result = task.result(60)
        again = client.task(task.reference).result(0)
    assert result.json() == 7
    assert shop.factory.calls.count("task 7") == 1
    # the receipt of the result names the approval of the request that began the task
    keys = read_authority_keys(shop.approver.key_set())
    for receipt in (result.receipt, again.receipt):
        approval = verify_receipt_approval(receipt, evidence, keys)
        assert approval.request == receipt.original != receipt.request


def test_effects_must_still_be_allowed(shop: Shop) -> None:
    with shop.factory.client() as client, pytest.raises(DeniedError) as caught:
        client.invoke(shop.uri, {"amount": 3})
    assert caught.value.code == "aiip.policy-denied"


@pytest.mark.parametrize("approval", ["", "x", "a.b.c\r\nX: y", "AIIP-Approval: a.b.c"])
def test_what_is_no_evidence_is_not_sent(shop: Shop, approval: str) -> None:
    with shop.factory.client(**ALLOW) as client, pytest.raises(UsageError):
        client.invoke(shop.uri, {"amount": 3}, idempotency_key="k", approval=approval)


@pytest.fixture
def cli(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`onym ai invoke` of the payment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ca = str(shop.factory.folder / "authority.pem")

    def invoke(*words: str, uri: str = shop.uri) -> Any:
        command = ["ai", "invoke", uri, "--ca", ca, "--no-dns", "--allow", "financial", *words]
        return CliRunner().invoke(app, command, prog_name="onym")

    return invoke


def test_the_command_saves_what_people_need_and_sends_their_approval(
    shop: Shop, cli: Any, tmp_path: Path
) -> None:
    data = ["-d", '{"amount": 21}']
    ran = cli(*data, "--save", str(tmp_path / "out"))
    assert ran.exit_code == exit_codes.APPROVAL, ran.output
    assert "--save DIR" in cli(*data).stderr
    request = tmp_path / "out" / "approval-request.json"
    assert f"onym ai approve ask {request}" in ran.stderr
    saved = json.loads(request.read_bytes())
    assert base64.b64decode(saved["body_base64"]) == b'{"amount": 21}'
    assert (saved["uri"], saved["content_type"]) == (shop.uri, "application/json")
    assert saved["idempotency_key"] in ran.stderr
    asked = ApprovalRequired("x")
    asked.transaction_challenge = saved["transaction_challenge"]
    evidence = tmp_path / "approval.jwt"
    evidence.write_text(f"AIIP-Approval: {shop.approver.approve(shop.understand(asked))}\n")
    key = ["--idempotency-key", saved["idempotency_key"]]
    ran = cli(*data, *key, "--approval", str(evidence), "--save", str(tmp_path / "out"))
    assert (ran.exit_code, ran.stdout) == (0, "21"), ran.output
    assert shop.factory.calls.count("pay 21") == 1
    keys, history = tmp_path / "approver.json", tmp_path / "history.json"
    keys.write_bytes(shop.approver.key_set())
    history.write_bytes(shop.factory.keys.history(2e9))
    words = ["ai", "verify", str(tmp_path / "out" / "receipt.jwt"), "--history", str(history)]
    words += ["--approval", str(evidence), "--approver-keys", str(keys), "--json"]
    ran = CliRunner().invoke(app, words, prog_name="onym")
    assert ran.exit_code == 0, ran.output
    assert "approval" in json.loads(ran.stdout)["checked"]


def test_the_command_tells_programs_the_key(cli: Any) -> None:
    ran = cli("-d", '{"amount": 22}', "--json")
    error = json.loads(ran.stdout)["error"]
    assert (ran.exit_code, error["code"]) == (14, "aiip.approval-required")
    assert error["idempotency_key"]


def test_evidence_without_its_key_is_a_mistake(cli: Any) -> None:
    ran = cli("-d", '{"amount": 1}', "--approval", "-")
    assert ran.exit_code == 2
    assert "--idempotency-key" in ran.stderr


def test_the_receipt_of_a_tasks_result_is_verified_offline_with_its_approval(
    shop: Shop, cli: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sent = ("-d", '{"amount": 9}', "--save", str(out))
    asked = cli(*sent, uri=shop.factory.uri("/task"))
    assert asked.exit_code == exit_codes.APPROVAL
    request = json.loads((out / "approval-request.json").read_text())
    keys = read_authority_keys(shop.factory.keys.jwks(2e9))
    resource = f"https://{shop.factory.authority}/.well-known/aiip/v1"
    challenge = shop.approver.understand(request["transaction_challenge"], keys, resource)
    (tmp_path / "approval.jwt").write_text(shop.approver.approve(challenge))
    more = ("--idempotency-key", request["idempotency_key"], "--approval", str(tmp_path / "approval.jwt"))
    done = cli(*sent, *more, "--async", "--wait", "60s", uri=shop.factory.uri("/task"))
    assert done.exit_code == 0, done.output
    (tmp_path / "approver.json").write_bytes(shop.approver.key_set())
    (tmp_path / "history.json").write_bytes(shop.factory.keys.history(2e9))
    verified = CliRunner().invoke(
        app,
        ["ai", "verify", str(out / "receipt.jwt"), "--body", str(out / "body"),
         "--history", str(tmp_path / "history.json"), "--approval", str(tmp_path / "approval.jwt"),
         "--approver-keys", str(tmp_path / "approver.json")],
    )  # fmt: skip
    assert verified.exit_code == 0, verified.output
