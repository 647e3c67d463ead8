"""A payment is asked for by one person and approved by another: in two browsers, at a terminal, and in races.

With ONYM_APPROVAL_RACES=200 there are 200 races of two clients and two approvers; 30 without it.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from approval_house_support import ApprovalHouse, approval_house
from browser_support import chromiums
from cli.conftest import Terminal
from onym.cli._app import app
from onym.errors import AIIPError
from onym.net.transport import Transport, run_flow
from onym.sign.approval import verify_receipt_approval
from onym.sign.keys import read_authority_keys
from onym.sign.receipts import verify_filed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.xdist_group("e2e-approvals")
_RACES = int(os.environ.get("ONYM_APPROVAL_RACES", "30"))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApprovalHouse]:
    with approval_house(tmp_path_factory.mktemp("house")) as found:
        yield found


@pytest.fixture(scope="module")
def browsers() -> Iterator[list[Browser]]:
    with chromiums(2) as started:
        yield started


@pytest.fixture
def pages(browsers: list[Browser]) -> Iterator[list[Page]]:
    """A page in each of two browsers."""
    with ExitStack() as stack:
        opened = []
        for browser in browsers:
            context = browser.new_context(ignore_https_errors=True)
            context.set_default_timeout(120_000)
            stack.callback(context.close)
            opened.append(context.new_page())
        yield opened


def sign_in(page: Page, house: ApprovalHouse, who: str, path: str) -> None:
    """Sign in with this browser, and open a page of the gateway."""
    page.goto(f"{house.gateway}/auth/login/home?next={path}")
    page.fill("input[name=login]", who)
    page.press("input[name=login]", "Enter")
    page.wait_for_url(f"{house.gateway}{path}")


def ask_for_payment(page: Page, house: ApprovalHouse, amount: int) -> str:
    """Fill in the form of the payment; the ID of the approval that it needs."""
    sign_in(page, house, "ann", f"/gateway/{house.bank}/pay")
    page.get_by_label("amount").fill(str(amount))
    page.get_by_label("to", exact=False).last.fill("The Shop")
    page.get_by_role("button", name="Invoke").click()
    page.get_by_role("button", name="Send this call").click()
    page.wait_for_url(f"{house.gateway}/approvals/*")
    return page.url.rpartition("/")[2].partition("?")[0]


def download(page: Page, end: str) -> bytes:
    """The file to which a link of the page leads."""
    with page.expect_download() as started:
        page.locator(f'a[href$="{end}"]').click()
    return Path(started.value.path()).read_bytes()


def approve_in_browser(house: ApprovalHouse, page: Page, approval: str) -> None:
    sign_in(page, house, "bob", f"/approvals/{approval}")
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("approved").first.wait_for()


def approve_at_terminal(house: ApprovalHouse, page: Page, approval: str) -> None:
    """Approve it with `onym ai approve yes`; the digest is read from the browser of the one who asks."""
    folder = house.keep_sign_in("bob", "approve", client="onym-cli")
    digest = page.locator("code").first.inner_text().split()[0]
    words = ["ai", "approve", "yes", approval, "--ca", house.ca_file, "--no-dns"]
    env = {"PATH": os.environ["PATH"], "HOME": str(house.folder), "ONYM_SIGN_INS": str(folder)}
    screen = Terminal([sys.executable, "-m", "onym", *words], env)
    screen.read_until("to approve the call: ")
    screen.type(f"{digest}\n")
    assert screen.end() == 0, screen.shown


def verify_offline(house: ApprovalHouse, folder: Path, receipt: bytes, evidence: bytes, body: bytes) -> None:
    """Check the receipt with its approval on the command line, from files only."""
    for name, content in {
        "receipt.jwt": receipt,
        "approval.jwt": evidence,
        "body": body,
        "bank.json": house.keys.history(2e9),
        "gateway.json": house.gateway_keys.history(2e9),
    }.items():
        (folder / name).write_bytes(content)
    words = ["receipt.jwt", "--body", "body", "--history", "bank.json"]
    words += ["--approval", "approval.jwt", "--approver-keys", "gateway.json"]
    arguments = [word if word.startswith("--") else str(folder / word) for word in words]
    done = CliRunner().invoke(app, ["ai", "verify", *arguments], prog_name="onym")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("way", ["browser", "terminal"])
def test_a_payment_is_asked_for_in_one_browser_and_approved_by_another_person(
    house: ApprovalHouse, pages: list[Page], tmp_path: Path, way: str
) -> None:
    (ann, bob), before = pages, len(house.paid)
    amount = {"browser": 31, "terminal": 32}[way]
    approval = ask_for_payment(ann, house, amount)
    assert house.paid[before:] == []
    if way == "browser":
        approve_in_browser(house, bob, approval)
        # the person who approves cannot send it, and gets no evidence
        assert bob.get_by_role("button", name="Send the call").count() == 0
        denied = bob.goto(f"{house.gateway}/approvals/{approval}/approval.jwt")
        assert denied is not None
        assert denied.status == 404
    else:
        approve_at_terminal(house, ann, approval)
    assert house.paid[before:] == []
    ann.goto(f"{house.gateway}/approvals/{approval}")
    evidence = download(ann, "approval.jwt")
    ann.get_by_role("button", name="Send the call").click()
    ann.wait_for_url(f"{house.gateway}/results/*")
    assert house.paid[before:] == [amount]
    body, receipt = download(ann, "/body"), download(ann, "/receipt")
    assert body == str(amount).encode()
    verify_offline(house, tmp_path, receipt, evidence, body)


def outcome(work: Callable[[], Any]) -> Any:
    """What a call returns, or the code of its error."""
    try:
        return work()
    except AIIPError as error:
        return error.code


def test_of_two_approvers_and_two_clients_at_once_one_decision_and_one_effect_count(
    house: ApprovalHouse,
) -> None:
    ann = house.approvals("ann")
    approvers = [house.approvals(who, "approve", client="onym-cli") for who in ("bob", "cat")]
    bank = read_authority_keys(house.keys.history(2e9), history=True)
    gateway = read_authority_keys(house.gateway_keys.history(2e9), history=True)
    grant, before, seen = house.bank_grant("ann"), len(house.paid), set()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(4))
        wires = [stack.enter_context(Transport(house.network())) for _ in approvers]
        clients = [stack.enter_context(house.client(grant)) for _ in range(2)]
        for number in range(_RACES):
            given, key = {"amount": number, "to": "The Shop"}, str(uuid.uuid4())
            asked = house.run(ann.ask(house.request(clients[0], "/pay", given, key)))

            def decide(who: int, asked: Any = asked) -> Any:
                return run_flow(approvers[who].decide(asked.id, "approve", shown=asked.shown), wires[who])

            decided = list(pool.map(lambda who: outcome(lambda: decide(who)), range(2)))
            assert sorted(getattr(done, "state", done) for done in decided) == [
                "aiip.approval-mismatch",
                "approved",
            ]
            evidence = house.run(ann.fetch_evidence(asked.id))
            sent = {"idempotency_key": key, "approval": evidence}

            def send(client: Any, given: Any = given, sent: Any = sent) -> Any:
                return client.invoke(house.uri("/pay"), given, **sent)

            results = list(pool.map(lambda client: outcome(lambda: send(client)), clients))
            assert house.paid[before:] == list(range(number + 1))
            answered = [result for result in results if not isinstance(result, str)]
            refused = {result for result in results if isinstance(result, str)}
            assert refused <= {"aiip.idempotency-in-progress"}
            assert answered
            for result in answered:
                receipt = verify_filed(result.token, bank, body=result.body)
                approval = verify_receipt_approval(receipt, evidence, gateway)
                assert result.json() == number
                seen.add(approval.by)
    assert len(house.paid) - before == _RACES
    assert len(seen) <= 2
