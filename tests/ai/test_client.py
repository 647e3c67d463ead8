"""The client against a real endpoint: resolved over TLS, described, invoked, streamed; verified each time."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING

import pytest

from onym.ai import Effects, Namespace, Requirements, ResolverSettings
from onym.ai.records import Auth, Level
from onym.errors import AIURIError, DeniedError, DiscoveryError, InvocationError, ProvenanceError, UsageError
from onym.sign import read_authority_keys, verify_filed

if TYPE_CHECKING:
    from ai_factory import Factory


@pytest.mark.requirement("ai-intro-b", "ai-security-a")
def test_a_function_is_invoked_by_its_name_and_its_result_verified(factory: Factory) -> None:
    with factory.client() as client:
        result = client.invoke(factory.uri("/tool/add"), {"a": 2, "b": 3})
    assert result.json() == 5
    assert result.receipt.issuer == f"https://{factory.authority}"
    assert result.receipt.subject == factory.uri("/tool/add")
    assert result.receipt.audience == "anonymous"


def test_the_key_history_verifies_a_saved_receipt_after_a_rotation(factory: Factory) -> None:
    async def fetch() -> bytes:
        async with factory.aclient() as client:
            return await client.fetch_key_history(factory.uri("/tool/add"))

    with factory.client() as client:
        result = client.invoke(factory.uri("/tool/add"), {"a": 2, "b": 3})
        history = client.fetch_key_history(factory.uri("/tool/add"))
    assert json.loads(history) == json.loads(asyncio.run(fetch()))
    keys = read_authority_keys(history, history=True)
    assert verify_filed(result.token, keys, body=b"5").subject == factory.uri("/tool/add")


def test_parameters_may_stand_in_the_uri(factory: Factory) -> None:
    with factory.client() as client:
        assert client.invoke(factory.uri("/tool/add?a=2&b=40")).json() == 42


def test_resolution_tells_anchor_service_keys_and_the_row_of_the_resource(factory: Factory) -> None:
    with factory.client() as client:
        found = client.resolve(factory.uri("/agent/pay"))
    assert found.anchor == f"https://{factory.authority}"
    assert found.document.service == f"{found.anchor}/.well-known/aiip/v1"
    assert len(found.keys.kids) == 1
    assert found.entry is not None
    assert found.entry.effects is Effects.FINANCIAL


def test_a_description_has_schemas_and_effects(factory: Factory) -> None:
    with factory.client() as client:
        found = client.describe(factory.uri("/tool/add?a=1"))
    assert found.uri == factory.uri("/tool/add")
    assert found.effects is Effects.READ
    assert found.input is not None
    assert {"a", "b"} <= set(str(found.input).split("'"))
    assert found.output == {"type": "integer"}


def test_events_come_one_by_one_and_the_result_is_there_at_the_end(factory: Factory) -> None:
    with factory.client() as client, client.stream(factory.uri("/agent/count"), {"to": 3}) as events:
        seen = [event.data for event in events]
        assert seen == ['{"number":0}', '{"number":1}', '{"number":2}']
        assert events.result.receipt.stream is not None
        assert events.result.receipt.stream.count == 3


def test_a_stream_that_is_left_early_has_no_result(factory: Factory) -> None:
    with factory.client() as client:
        with client.stream(factory.uri("/agent/count"), {"to": 1000}) as events:
            next(iter(events))
        with pytest.raises(ProvenanceError):
            _ = events.result


def test_a_stream_that_is_invoked_is_read_to_its_end_and_verified_whole(factory: Factory) -> None:
    with factory.client() as client:
        result = client.invoke(factory.uri("/agent/count"), {"to": 2})
    assert result.body.count(b"data:") == 3  # two events and the receipt
    assert result.receipt.stream is not None


def test_what_is_no_stream_may_be_asked_for_as_one(factory: Factory) -> None:
    with factory.client() as client, client.stream(factory.uri("/tool/add"), {"a": 1, "b": 1}) as events:
        assert list(events) == []
        assert events.result.json() == 2


@pytest.mark.requirement("ai-provenance-c", "ai-security-b")
def test_what_moves_money_is_refused_unless_the_caller_allows_it_by_name(factory: Factory) -> None:
    before = list(factory.calls)
    with factory.client() as client, pytest.raises(DeniedError) as caught:
        client.invoke(factory.uri("/agent/pay"), {"amount": 5})
    assert caught.value.code == "aiip.policy-denied"
    assert factory.calls == before
    with factory.client(allow_effects=["read", "financial"]) as client:
        assert client.invoke(factory.uri("/agent/pay"), {"amount": 5}).json() == {"paid": 5}


def test_the_endpoints_own_policy_refuses_in_a_signed_problem(factory: Factory) -> None:
    with (
        factory.client(allow_effects=["financial"]) as client,
        pytest.raises(InvocationError) as caught,
    ):
        client.invoke(factory.uri("/agent/pay"), {"amount": 500})
    assert caught.value.code == "aiip.policy-denied"
    assert caught.value.status == 403
    assert caught.value.hint is None  # it was signed


def test_a_repeated_try_with_the_same_key_happens_once(factory: Factory) -> None:
    with factory.client() as client:
        first = client.invoke(factory.uri("/agent/note"), {"text": "once"}, idempotency_key="key-1")
        again = client.invoke(factory.uri("/agent/note"), {"text": "once"}, idempotency_key="key-1")
    assert first.json() == again.json()
    assert not first.replayed
    assert again.replayed
    assert first.receipt.id != again.receipt.id
    assert factory.calls.count("once") == 1


def test_a_key_is_made_where_effects_are_more_than_read(factory: Factory) -> None:
    with factory.client() as client:
        client.invoke(factory.uri("/agent/note"), {"text": "twice"})
        client.invoke(factory.uri("/agent/note"), {"text": "twice"})
    assert factory.calls.count("twice") == 2


def test_a_failing_function_is_told_without_its_text(factory: Factory) -> None:
    with factory.client() as client, pytest.raises(InvocationError) as caught:
        client.invoke(factory.uri("/tool/fails"))
    assert caught.value.code == "aiip.internal"
    assert "hunter2" not in str(caught.value.as_dict())


def test_wrong_input_names_the_member(factory: Factory) -> None:
    with factory.client() as client, pytest.raises(InvocationError) as caught:
        client.invoke(factory.uri("/tool/add"), {"a": "two", "b": 3})
    assert caught.value.code == "aiip.invalid-input"
    assert "a" in caught.value.message


def test_a_resource_that_is_not_there_is_told_by_a_signed_problem(factory: Factory) -> None:
    with factory.client() as client, pytest.raises(InvocationError) as caught:
        client.invoke(factory.uri("/tool/none"))
    assert caught.value.code == "aiip.endpoint-unknown"


def test_the_origin_of_a_caller_is_the_audience(factory: Factory) -> None:
    with factory.client(origin="https://gw.example") as client:
        result = client.invoke(factory.uri("/tool/whoami"))
    assert result.receipt.audience == "https://gw.example"


def test_an_uri_that_could_be_read_two_ways_goes_nowhere(factory: Factory) -> None:
    with factory.client() as client:
        for path in ("/a/../b", "/a%2Fb", "//x", "/x?a=1&A=2"):
            with pytest.raises(AIURIError):
                client.invoke(factory.uri(path))


def test_a_fragment_stays_here(factory: Factory) -> None:
    with factory.client() as client:
        assert client.invoke(factory.uri("/tool/add?a=1&b=1#here")).json() == 2


@pytest.mark.parametrize("uri", ["ai://bank/service/payments", "ai:/agent/x"])
def test_a_name_that_nobody_speaks_for_is_unknown(factory: Factory, uri: str) -> None:
    with factory.client() as client, pytest.raises(DiscoveryError) as caught:
        client.invoke(uri)
    assert caught.value.code == "aiip.unknown-authority"


def test_a_context_speaks_for_uris_without_authority_only_if_its_document_does(factory: Factory) -> None:
    context = Namespace(label="_", anchor=f"https://{factory.authority}")
    settings = ResolverSettings(dns=False, contexts={"/tool/": context})
    with factory.client(settings) as client, pytest.raises(DiscoveryError):
        client.invoke("ai:/tool/add?a=1&b=1")


@pytest.mark.parametrize(
    ("floor", "code"),
    [
        (Requirements(mtls=True), "aiip.sender-constraint"),
        (Requirements(dpop=Level.REQUIRED), "aiip.sender-constraint"),
        (Requirements(auth=Auth.OAUTH2), "aiip.authentication-required"),
    ],
)
@pytest.mark.requirement("ai-gateway-m", "ai-security-b")
def test_what_the_caller_asks_for_at_least_is_not_waived(
    factory: Factory, floor: Requirements, code: str
) -> None:
    with (
        factory.client(ResolverSettings(dns=False, floor=floor)) as client,
        pytest.raises(DeniedError) as caught,
    ):
        client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 1})
    assert caught.value.code == code


def test_keys_may_change_while_a_client_holds_the_old_set(factory: Factory) -> None:
    with factory.client() as client:
        first = client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 1})
        # the hardest change: the next key signs at once, and no client has seen it
        factory.keys.revoke(factory.keys.signer(time.time()).kid, time.time())
        second = client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})
    assert second.json() == 3
    assert first.token.partition(".")[0] != second.token.partition(".")[0]


def test_threads_share_a_client(factory: Factory) -> None:
    answers: list[int] = []
    with factory.client() as client:
        threads = [
            threading.Thread(
                target=lambda n=n: answers.append(
                    client.invoke(factory.uri("/tool/add"), {"a": n, "b": 0}).json()
                )
            )
            for n in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(answers) == list(range(8))


def test_coroutines_do_the_same(factory: Factory) -> None:
    async def work() -> None:
        async with factory.aclient() as client:
            uris = [factory.uri(f"/tool/add?a={n}&b=1") for n in range(6)]
            results = await asyncio.gather(*(client.invoke(uri) for uri in uris))
            assert [each.json() for each in results] == [1, 2, 3, 4, 5, 6]
            assert (await client.describe(uris[0])).effects is Effects.READ
            async with await client.stream(factory.uri("/agent/count"), {"to": 2}) as events:
                assert [event.data async for event in events] == ['{"number":0}', '{"number":1}']
                assert events.result.receipt.stream is not None

    asyncio.run(work())


def test_arguments_and_a_body_are_not_given_together(factory: Factory) -> None:
    with factory.client() as client:
        with pytest.raises(UsageError):
            client.invoke(factory.uri("/tool/add"), {"a": 1}, body=b"{}")
        with pytest.raises(UsageError):
            client.invoke(factory.uri("/tool/add"), body=b"{}")
        with pytest.raises(UsageError):
            client.invoke(factory.uri("/tool/add"), {"a": object()})
