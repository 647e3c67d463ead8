"""Sign-ins that are kept, and what is done with them: stored, read, refreshed, and never shown."""

from __future__ import annotations

import itertools
import json
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.errors import KeyringLocked

from oauth_support import BANK, KEY, REFRESH, SECRET, Liar, hand_issuer, obtain, refused, resolution
from onym.ai.credentials import StaticCredentials, StoredCredentials
from onym.ai.oauth_metadata import Registration
from onym.ai.records import Auth, Effects, Level
from onym.ai.settings import ResolverSettings
from onym.ai.sign_ins import FolderSignIns, KeyringSignIns, SignIn
from onym.errors import CredentialError, SecretError
from onym.net.config import NetConfig
from onym.net.messages import Send, Wait, Work
from onym.net.policy import Policy
from onym.net.transport import Transport, run_flow
from onym.uri.secret import Secret

pytestmark = pytest.mark.xdist_group("oauth client")

TOKEN = "the-token-of-the-sign-in-4711"


def sign_in(issuer: str = "https://login.example", **changes: Any) -> SignIn:
    row = Registration(issuer=issuer, client_id="shop", secret=Secret(SECRET))
    known: dict[str, Any] = {
        "name": "bank.example",
        "registration": row,
        "resource": BANK,
        "scopes": ("read",),
        "token": Secret(TOKEN),
        "expires": time.time() + 300,
        "signed_in": time.time(),
        "refresh_token": Secret(REFRESH),
        "dpop_key": KEY,
        "dpop": Level.REQUIRED,
    }
    return SignIn(**{**known, **changes})


@pytest.fixture
def store(tmp_path: Path) -> FolderSignIns:
    return FolderSignIns(tmp_path / "sign-ins")


@pytest.fixture
def liar() -> Iterator[Liar]:
    with hand_issuer(Liar) as server:
        assert isinstance(server, Liar)
        server.publish()
        yield server


@pytest.fixture(scope="module")
def wire() -> Iterator[Transport]:
    with Transport(NetConfig(policy=Policy.local())) as found:
        yield found


def test_a_sign_in_comes_back_as_it_was_and_shows_no_secret(store: FolderSignIns) -> None:
    for kept in (sign_in(), sign_in(name="https://gw.example", refresh_token=None, dpop_key=None)):
        store.save(kept)
        found = store.load(kept.name)
        assert found is not None
        keys = [each.dpop_key and each.dpop_key.thumbprint for each in (kept, found)]
        assert keys[0] == keys[1]
        assert replace(found, dpop_key=None) == replace(kept, dpop_key=None)
        for shown in (repr(found), str(found), repr(found.registration)):
            for secret in (SECRET, REFRESH, TOKEN):
                assert secret not in shown
        with pytest.raises(SecretError):
            pickle.dumps(found)
    assert store.list_names() == ["bank.example", "https://gw.example"]
    assert store.load("other.example") is None
    assert (store.delete("bank.example"), store.delete("bank.example")) == (True, False)


def test_names_that_a_file_system_takes_for_one_are_two(store: FolderSignIns) -> None:
    for name in ("https://gw.example/a", "https://gw.example:a"):
        store.save(sign_in(name=name))
    assert store.list_names() == ["https://gw.example/a", "https://gw.example:a"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": 7}', "\ud800"])
def test_a_stored_text_that_is_no_sign_in_is_an_error_without_it(text: str) -> None:
    with pytest.raises(CredentialError) as caught:
        SignIn.from_text(Secret(text))
    assert caught.value.code == "credential.unreadable"
    assert caught.value.__context__ is None


@pytest.mark.parametrize("field", ["token", "dpop_key", "expires", "issuer", "dpop"])
def test_a_sign_in_with_a_broken_member_is_not_read(field: str) -> None:
    members = json.loads(sign_in().export().reveal()) | {field: {}}
    with pytest.raises(CredentialError):
        SignIn.from_text(Secret(json.dumps(members)))


def test_a_locked_keyring_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> None:
        raise KeyringLocked(SECRET)

    monkeypatch.setattr(keyring, "get_password", locked)
    with pytest.raises(CredentialError) as caught:
        KeyringSignIns().load("bank.example")
    assert caught.value.code == "credential.keyring"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("index", ["", "{", "7", '["bank.example", 7]'])
def test_a_broken_list_of_names_hides_no_sign_in(monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    kept = {("onym-ai", " names"): index, ("onym-ai", "bank.example"): sign_in().export().reveal()}
    monkeypatch.setattr(keyring, "get_password", lambda *key: kept.get(key))
    monkeypatch.setattr(keyring, "set_password", lambda *row: kept.__setitem__(row[:2], row[2]))
    monkeypatch.setattr(keyring, "delete_password", lambda *key: kept.__delitem__(key))
    ring = KeyringSignIns()
    assert ring.load("bank.example") is not None
    ring.save(sign_in(name="shop.example"))
    assert "shop.example" in ring.list_names()
    assert (ring.delete("bank.example"), ring.delete("bank.example")) == (True, False)
    assert ring.list_names() == ["shop.example"]


def test_a_token_goes_only_to_its_own_authority(wire: Transport) -> None:
    here = StaticCredentials(Secret(TOKEN), "shop", authority="bank.example", dpop_key=KEY)
    found = run_flow(obtain(here, resolution()), wire)
    assert (found.token.reveal(), found.client_id, found.dpop_key) == (TOKEN, "shop", KEY)
    elsewhere = StaticCredentials(Secret(TOKEN), "shop", authority="bank.example:8443")
    assert run_flow(obtain(elsewhere, resolution()), wire) is None
    elsewhere.forget(Secret(TOKEN))


def test_a_sign_in_is_used_only_while_the_authority_names_its_server_and_resource(
    store: FolderSignIns, wire: Transport
) -> None:
    store.save(sign_in())
    credentials = StoredCredentials(store)
    good = resolution("https://login.example")
    assert run_flow(obtain(credentials, good), wire).token.reveal() == TOKEN
    moved = replace(good, document=replace(good.document, resource=f"{BANK}/other"))
    for changed in (resolution("https://evil.example"), moved):
        refused(obtain(credentials, changed), wire, "aiip.authorization-unavailable")
    refused(obtain(credentials, good, scopes=["read", "pay"]), wire, "aiip.insufficient-scope")
    # an open read needs nobody's name, and another authority has no sign-in
    opened = resolution("https://login.example", auth=Auth.NONE)
    assert run_flow(obtain(credentials, opened, scopes=[]), wire) is None
    assert run_flow(obtain(credentials, opened, scopes=[], effects=Effects.WRITE), wire) is not None
    other = replace(good, authority="other.example")
    assert run_flow(obtain(credentials, other), wire) is None


def test_a_token_that_the_resource_refused_is_refreshed(
    store: FolderSignIns, liar: Liar, wire: Transport
) -> None:
    store.save(sign_in(liar.issuer))
    credentials = StoredCredentials(store)
    found = run_flow(obtain(credentials, resolution(liar.issuer)), wire)
    credentials.forget(Secret("another"))
    credentials.forget(found.token)
    liar.grant(refresh_token="the-next")
    renewed = run_flow(obtain(credentials, resolution(liar.issuer)), wire)
    assert renewed.token != found.token
    kept = store.load("bank.example")
    assert kept is not None
    assert (kept.token, kept.refresh_token) == (renewed.token, Secret("the-next"))


def test_a_token_that_another_process_has_refreshed_is_taken_over(
    store: FolderSignIns, liar: Liar, wire: Transport
) -> None:
    clock = [time.time()]
    store.save(sign_in(liar.issuer, expires=clock[0] + 300))
    credentials = StoredCredentials(store, settings=ResolverSettings(clock=lambda: clock[0]))
    assert run_flow(credentials.obtain_token("bank.example"), wire)
    clock[0] += 280
    store.save(sign_in(liar.issuer, token=Secret("of the other"), expires=clock[0] + 300))
    assert run_flow(credentials.obtain_token("bank.example"), wire).token.reveal() == "of the other"
    assert not liar.asked
    # theirs ends too, and ours is refreshed with their refresh token
    clock[0] += 600
    store.save(sign_in(liar.issuer, token=Secret("the third"), expires=clock[0] + 1))
    liar.grant()
    assert run_flow(credentials.obtain_token("bank.example"), wire)
    assert liar.asked["/token"] == 1


@pytest.mark.parametrize("gone", ["refresh token", "sign-in"])
def test_a_sign_in_without_a_way_to_refresh_has_ended(
    store: FolderSignIns, wire: Transport, gone: str
) -> None:
    clock = [time.time()]
    store.save(sign_in(expires=clock[0] + 40, refresh_token=None))
    credentials = StoredCredentials(store, settings=ResolverSettings(clock=lambda: clock[0]))
    assert run_flow(credentials.obtain_token("bank.example"), wire)
    clock[0] += 20
    if gone == "sign-in":
        store.delete("bank.example")
    refused(credentials.obtain_token("bank.example"), wire, "aiip.authentication-required")
    assert run_flow(credentials.obtain_token("other.example"), wire) is None


def test_a_refresh_token_that_was_used_elsewhere_ends_the_sign_in(
    store: FolderSignIns, liar: Liar, wire: Transport
) -> None:
    store.save(sign_in(liar.issuer, expires=0.0))
    liar.answer("/token", {"error": "invalid_grant"}, 400)
    error = refused(
        StoredCredentials(store).obtain_token("bank.example"), wire, "aiip.authentication-required"
    )
    assert "onym ai login bank.example" in (error.hint or "")
    liar.answer("/token", {"error": "temporarily_unavailable"}, 503)
    error = refused(
        StoredCredentials(store).obtain_token("bank.example"), wire, "aiip.authorization-unavailable"
    )
    assert error.retryable


def test_two_requests_at_the_end_of_a_token_refresh_it_once(
    store: FolderSignIns, liar: Liar, wire: Transport
) -> None:
    """A server may end the sign-in if a refresh token that it has replaced comes once more."""
    store.save(sign_in(liar.issuer, expires=0.0))
    credentials = StoredCredentials(store)
    first, second = (credentials.obtain_token("bank.example") for _ in range(2))

    def advance(flow: Any, step: Any, until: type) -> Any:
        while not isinstance(step, until):
            assert isinstance(step, Work)
            step = flow.send(step.call())
        return step

    under_way = advance(first, next(first), Send)
    waiting = advance(second, next(second), Wait)
    liar.grant(refresh_token="the-next")

    def resume(flow: Any, step: Any) -> Any:
        def go_on() -> Any:
            answer = yield step
            try:
                while True:
                    answer = yield flow.send(answer)
            except StopIteration as end:
                return end.value

        return run_flow(go_on(), wire)

    renewed = resume(first, under_way)
    assert resume(second, waiting).token == renewed.token
    assert liar.asked["/token"] == 1


def test_a_refresh_token_that_another_process_has_just_used_does_not_end_the_sign_in(
    store: FolderSignIns, liar: Liar, wire: Transport
) -> None:
    store.save(sign_in(liar.issuer, expires=0.0))
    liar.answer("/token", {"error": "invalid_grant"}, 400)
    loads = itertools.count()

    class Other(FolderSignIns):
        def load(self, name: str) -> SignIn | None:
            if next(loads) == 2:  # after the refresh was refused
                self.save(sign_in(liar.issuer, token=Secret("of the other")))
            return super().load(name)

    credentials = StoredCredentials(Other(store._folder))
    assert run_flow(credentials.obtain_token("bank.example"), wire).token.reveal() == "of the other"
