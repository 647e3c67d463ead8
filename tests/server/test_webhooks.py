"""Webhooks: signed, sent again after failures, and only to addresses that the settings allow."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from company_support import ADMINISTRATOR, define, load
from onym.errors import ConfigError, OnymError
from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import IANA_CLOCK, Actor, Entry, Event, EventKind, Role, Status
from onym.registry.store import Store
from onym.server import notices
from onym.server.app import list_senders
from onym.server.notices import MAX_ATTEMPTS, WebhookSender, list_signatures, read_webhook_secrets
from onym.server.settings import Settings, Webhook, load_settings
from onym.uri.secret import Secret
from server.registry.site import site
from server_support import BASE, START, Clock, settings
from webhook_support import KEY, SECRET, Receiver, receive_webhooks, write_secret

_IAN = Actor(id="user-ian", roles=frozenset({Role.IANA}))
_ROWS = load_builtin_snapshot("uri-schemes").entries[:4]
_PARAMETERS = load_builtin_snapshot("llm-parameters").entries[:2]


def make_settings(receiver: Receiver, folder: Path, **changes: Any) -> Settings:
    hook = Webhook(
        **{
            "name": "catalogue",
            "url": receiver.url,
            "secret_file": write_secret(folder),
            "network": "local",
            **changes,
        }
    )
    return Settings(base_url=BASE, webhooks=(hook,))


class Work(Protocol):
    """What a test does with a store, a sender, and the sender's clock."""

    def __call__(self, store: Store, sender: WebhookSender, clock: Clock, /) -> Coroutine[Any, Any, Any]: ...


def go(folder: Path, given: Settings, work: Work) -> Any:
    async def run() -> Any:
        clock = Clock()
        async with await Store.open(str(folder / "registry.db"), create=True) as store:
            return await work(store, WebhookSender(given, store, clock.now), clock)

    return asyncio.run(run())


async def put(store: Store, rows: Any, at: datetime = START) -> None:
    await store.import_entries(rows[0].registry, rows, IANA_CLOCK, at, source="seed")


async def remove(store: Store, name: str) -> None:
    data = {"remove": "yes", "reason": "never used"}
    event = Event(kind=EventKind.OVERRIDE, registry="uri-schemes", name=name, data=data)
    await store.apply(event, _IAN, START + timedelta(minutes=1))


def test_a_change_is_delivered_once_signed_and_without_texts_of_registrants(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, _: Clock, /) -> None:
        assert await sender.send_due() == 0  # the log is empty
        await put(store, _ROWS[:1])
        assert await sender.send_due() == 1
        assert await sender.send_due() == 0
        await remove(store, _ROWS[0].name)
        assert await sender.send_due() == 1

    with receive_webhooks() as receiver:
        go(tmp_path, make_settings(receiver, tmp_path), work)
        added, removed = receiver.take()
    name = _ROWS[0].name
    assert added.path == "/hooks/registry"
    assert added.is_signed()
    assert removed.is_signed()
    assert not added.is_signed(b"x" * 32)
    assert added.headers["content-type"] == "application/json"
    assert added.headers["webhook-id"] == "record-1"
    assert added.headers["webhook-timestamp"] == str(int(START.timestamp()))
    assert added.json["type"] == "registry.entry.changed"
    data = added.json["data"]
    assert {key: data[key] for key in ("number", "registry", "name", "change", "status_before")} == {
        "number": 1, "registry": "uri-schemes", "name": name, "change": "added", "status_before": None,
    }  # fmt: skip
    assert data["status"] == str(_ROWS[0].status)
    assert "status" in data["columns"]
    assert data["page"] == f"{BASE}/r/uri-schemes/{name}"
    assert data["entry"] == f"{BASE}/api/v1/registries/uri-schemes/entries/{name}"
    assert (removed.json["data"]["change"], removed.json["data"]["status"]) == ("removed", None)
    for value in _ROWS[0].fields.values():
        assert len(value) < 12 or value not in added.body.decode()


def test_the_signature_is_that_of_standard_webhooks() -> None:
    # the example of the specification: github.com/standard-webhooks/standard-webhooks
    body = b'{"test": 2432232314}'
    secret = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    found = list_signatures("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, [secret])
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_webhook_begins_at_the_end_of_the_log_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, _: Clock, /) -> None:
        await put(store, _ROWS[:2])
        assert await sender.send_due() == 0
        await put(store, _ROWS[2:3])  # while no service runs
        again = WebhookSender(given, store, Clock().now)
        assert await again.send_due() == 1
        await put(store, _ROWS[3:])
        assert await WebhookSender(given, store, Clock().now).send_due() == 1

    with receive_webhooks() as receiver:
        given = make_settings(receiver, tmp_path)
        go(tmp_path, given, work)
        names = [delivery.json["data"]["name"] for delivery in receiver.take()]
    assert names == [row.name for row in _ROWS[2:]]


def test_only_the_chosen_registries_are_delivered(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, _: Clock, /) -> None:
        await sender.send_due()
        await put(store, _ROWS)
        await put(store, _PARAMETERS)
        while await sender.send_due():
            pass

    with receive_webhooks() as receiver:
        go(tmp_path, make_settings(receiver, tmp_path, registries=("llm-parameters",)), work)
        names = {delivery.json["data"]["name"] for delivery in receiver.take()}
    assert names == {row.name for row in _PARAMETERS}


def test_changes_of_a_company_s_registry_are_delivered(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, clock: Clock, /) -> None:
        await store.apply(define(load(tmp_path)), ADMINISTRATOR, START)
        await sender.send_due()
        row = Entry(
            registry="services", name="billing", status=Status.REGISTERED, fields={"owner": "Payments"}
        )
        await put(store, [row])
        assert len(list_senders(given, store, clock.now)) == 1
        assert await sender.send_due() == 1

    with receive_webhooks() as receiver:
        given = make_settings(receiver, tmp_path, registries=("services",))
        go(tmp_path, given, work)
        (delivery,) = receiver.take()
    assert (delivery.json["data"]["registry"], delivery.json["data"]["name"]) == ("services", "billing")


def test_a_registry_that_is_not_in_force_is_reported_before_anything_is_sent(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, clock: Clock, /) -> None:
        with pytest.raises(ConfigError) as caught:
            list_senders(given, store, clock.now)
        assert caught.value.code == "config.bad-setting"

    with receive_webhooks() as receiver:
        given = make_settings(receiver, tmp_path, registries=("services",))
        go(tmp_path, given, work)


def test_a_failed_delivery_is_sent_again_with_the_same_id(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, clock: Clock, /) -> Any:
        await sender.send_due()
        await put(store, _ROWS[:1])
        await sender.send_due()
        waiting = await store.outbox.count_deliveries("catalogue")
        assert await sender.send_due() == 0
        for pause in (timedelta(minutes=1), timedelta(minutes=4), timedelta(minutes=16)):
            clock.advance(seconds=pause.total_seconds())
            assert await sender.send_due() == 1
        return waiting, await store.outbox.count_deliveries("catalogue")

    with receive_webhooks() as receiver:
        receiver.statuses += [500, 302, 429]
        waiting, done = go(tmp_path, make_settings(receiver, tmp_path), work)
        found = receiver.take()
    assert (waiting.waiting, waiting.sent, waiting.reason) == (1, 0, "the receiver answered 500")
    assert (done.waiting, done.sent, done.given_up, done.reason) == (0, 1, 0, None)
    assert [delivery.headers["webhook-id"] for delivery in found] == ["record-1"] * 4
    # redirects are not followed, and every attempt is signed for its own time
    assert {delivery.path for delivery in found} == {"/hooks/registry"}
    assert len({delivery.headers["webhook-timestamp"] for delivery in found}) == 4
    assert all(delivery.is_signed() for delivery in found)


def test_a_delivery_is_given_up_after_the_last_attempt_or_by_410(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, clock: Clock, /) -> Any:
        await sender.send_due()
        await put(store, _ROWS[:1])
        for _ in range(MAX_ATTEMPTS + 2):
            await sender.send_due()
            clock.advance(hours=7)
        await put(store, _ROWS[1:2])
        receiver.statuses[:] = [410]
        await sender.send_due()
        clock.advance(hours=7)
        await sender.send_due()
        return await store.outbox.count_deliveries("catalogue")

    with receive_webhooks() as receiver:
        receiver.statuses += [503] * (MAX_ATTEMPTS + 2)
        counts = go(tmp_path, make_settings(receiver, tmp_path), work)
        assert len(receiver.take()) == MAX_ATTEMPTS + 1
    assert (counts.waiting, counts.sent, counts.given_up) == (0, 0, 2)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/hooks/registry",
        "https://127.0.0.1:{port}/",
        "https://localhost:{port}/",
        "https://10.0.0.1/",
        "https://[::1]:{port}/",
        "https://169.254.169.254/latest",
        "https://[::ffff:127.0.0.1]:{port}/",
    ],
)
def test_only_public_addresses_are_reached_by_default(tmp_path: Path, url: str) -> None:
    async def work(store: Store, sender: WebhookSender, _: Clock, /) -> Any:
        await sender.send_due()
        await put(store, _ROWS[:1])
        await sender.send_due()
        return (await store.outbox.count_deliveries("catalogue")).reason

    with receive_webhooks() as receiver:
        hook = {"url": url.format(port=receiver.port), "network": "trusted"}
        reason = go(tmp_path, make_settings(receiver, tmp_path, **hook), work)
        assert receiver.take() == []
    assert reason.startswith("net.refused.")


def test_two_senders_deliver_every_change_once(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, clock: Clock, /) -> None:
        other = WebhookSender(given, store, clock.now)
        await asyncio.gather(sender.send_due(), other.send_due())
        await put(store, _ROWS)
        await asyncio.gather(*(each.send_due() for each in (sender, other) * 3))

    with receive_webhooks() as receiver:
        given = make_settings(receiver, tmp_path)
        go(tmp_path, given, work)
        ids = sorted(delivery.headers["webhook-id"] for delivery in receiver.take())
    assert ids == [f"record-{number}" for number in range(1, len(_ROWS) + 1)]


def test_mail_and_webhooks_leave_each_others_notices_alone(tmp_path: Path) -> None:
    async def work(store: Store, sender: WebhookSender, clock: Clock, /) -> Any:
        await sender.send_due()
        await put(store, _ROWS[:1])
        await sender._fill_outbox(given.webhooks[0])
        mails = await store.outbox.claim(clock.now())
        hooks = await store.outbox.claim(clock.now(), webhook="catalogue")
        others = await store.outbox.claim(clock.now(), webhook="other")
        return len(mails), len(hooks), len(others)

    with receive_webhooks() as receiver:
        given = make_settings(receiver, tmp_path)
        assert go(tmp_path, given, work) == (0, 1, 0)


def test_several_secrets_sign_a_delivery_so_that_one_can_be_replaced(tmp_path: Path) -> None:
    async def work(_: Store, sender: WebhookSender, __: Clock, /) -> Any:
        return await sender.send_test(given.webhooks[0])

    with receive_webhooks() as receiver:
        given = make_settings(receiver, tmp_path)
        write_secret(tmp_path, SECRET, "another secret of thirty-two bytes")
        assert go(tmp_path, given, work) is None
        (delivery,) = receiver.take()
    assert delivery.json["type"] == "registry.test"
    assert delivery.is_signed(KEY)
    assert delivery.is_signed(b"another secret of thirty-two bytes")


@pytest.mark.parametrize("lines", [("short",), ("",), ("whsec_!!!",), ("whsec_" + "QUJD",), (SECRET,) * 5])
def test_a_weak_secret_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(OnymError) as caught:
        read_webhook_secrets(write_secret(tmp_path, *lines))
    assert caught.value.code == "credential.unreadable"
    assert not any(line and line in str(caught.value) for line in lines)


def test_a_secret_that_others_can_read_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(store: Store, sender: WebhookSender, _: Clock, /) -> Any:
        await sender.send_due()
        await put(store, _ROWS[:1])
        await sender.send_due()
        return (await store.outbox.count_deliveries("catalogue")).reason

    with receive_webhooks() as receiver, caplog.at_level(logging.DEBUG):
        given = make_settings(receiver, tmp_path)
        Path(given.webhooks[0].secret_file).chmod(0o644)
        reason = go(tmp_path, given, work)
        assert receiver.take() == []
    assert reason.startswith("credential.")
    assert SECRET not in caplog.text
    assert given.webhooks[0].url not in repr(given)


def test_a_change_through_the_api_reaches_the_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "POLL", 0.01)
    with receive_webhooks() as receiver:
        given = replace(settings(), webhooks=make_settings(receiver, tmp_path).webhooks)
        with site(tmp_path, given=given) as here:
            # the seed is older than the webhook, or delivered; the change comes last
            path = "/api/v1/registries/uri-schemes/entries/ftp/events"
            data = {"event": "override", "data": {"remove": "yes", "reason": "never used"}}
            headers = {**here.headers("ian"), "if-match": '"1-json"', "accept": "*/*"}
            assert here.world.client.post(path, json=data, headers=headers).status_code == 200
            while True:
                found = receiver.arrived.get(timeout=300).json["data"]
                if found["name"] == "ftp" and found["change"] == "removed":
                    break
    assert found["event"] == "override"


def test_a_service_without_webhooks_and_mail_sends_nothing() -> None:
    assert list_senders(Settings(), None, Clock().now) == []  # type: ignore[arg-type]


HOOK = {"name": "a", "url": "https://a.example/hook", "secret_file": "secret"}


@pytest.mark.parametrize(
    "hooks",
    [
        [{**HOOK, "url": "http://a.example/hook"}],
        [{**HOOK, "url": "http://127.0.0.1/hook"}],
        [{**HOOK, "url": "https://user:password@a.example/"}],
        [{**HOOK, "url": "https://a.example/?key=value"}],
        [{**HOOK, "url": "ftp://a.example/"}],
        [{**HOOK, "name": "A b"}],
        [{**HOOK, "registries": ["no registry"]}],
        [{**HOOK, "network": "anything"}],
        [{**HOOK, "allow_networks": ["10.0.0.0/99"]}],
        [HOOK, HOOK],
        [{**HOOK, "name": f"a{number}"} for number in range(17)],
    ],
)
def test_a_wrong_webhook_is_an_error_of_the_settings(tmp_path: Path, hooks: list[dict[str, Any]]) -> None:
    path = tmp_path / "registry.toml"
    tables = ["[[webhooks]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in hook.items())
              for hook in hooks]  # fmt: skip
    path.write_text("\n".join(tables))
    with pytest.raises(ConfigError) as caught:
        load_settings(path, environ={})
    assert "password" not in str(caught.value)


def test_webhooks_are_read_from_the_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "registry.toml"
    path.write_text(
        '[[webhooks]]\nname = "a"\nurl = "https://a.example/hook"\nsecret_file = "secret"\n'
        'registries = ["uri-schemes"]\nallow_networks = ["10.1.0.0/16"]\n'
    )
    (hook,) = load_settings(path, environ={}).webhooks
    assert (hook.url, hook.registries, hook.network) == (
        "https://a.example/hook",
        ("uri-schemes",),
        "trusted",
    )
