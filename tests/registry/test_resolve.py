"""Registry names: a signed file with a pinned key, in force, never older than one seen."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onym.ai.records import Namespaces
from onym.errors import ConfigError, DiscoveryError, SignatureError, SnapshotError
from onym.registry.signed_namespaces import SIGNATURE_TYPE, Allocation, SignedNamespaces
from onym.sign.jws import sign_compact
from onym.sign.keys import SigningKey

ISSUED = datetime(2026, 11, 21, tzinfo=UTC)
AT = ISSUED.timestamp() + 3600
THUMBPRINT = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


def payload(*, issued: datetime = ISSUED, days: int = 30, **rows: dict[str, Any]) -> bytes:
    active = {"anchor": "https://www.bank.example", "keys": [THUMBPRINT], "state": "active"}
    members = {
        "format": "onym-ai-namespaces",
        "version": 1,
        "issued": f"{issued:%Y-%m-%dT%H:%M:%SZ}",
        "expires": f"{issued + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}",
        "namespaces": {"bank": active} | {name: active | row for name, row in rows.items()},
    }
    return json.dumps(members).encode()


class Files:
    """A registry's key and the file that it signs."""

    def __init__(self, folder: Path) -> None:
        self.signer = SigningKey.generate("Ed25519", kid="registry-1")
        self.file = folder / "namespaces.jws"
        self.key = folder / "registry.jwk"
        self.state = folder / "state" / "seen"
        self.key.write_text(json.dumps(self.signer.public()), encoding="utf-8")
        self.write(payload())

    def write(self, octets: bytes, *, signer: SigningKey | None = None, typ: str = SIGNATURE_TYPE) -> None:
        token = sign_compact(octets, signer or self.signer, header={"typ": typ})
        self.file.write_text(token + "\n", encoding="utf-8")

    def load(self, **options: Any) -> SignedNamespaces:
        return SignedNamespaces.load(self.file, **{"key": self.key, **options})


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def refused(found: Namespaces | SignedNamespaces, label: str, code: str, at: float = AT) -> DiscoveryError:
    with pytest.raises(DiscoveryError) as caught:
        found.find(label, at)
    assert caught.value.code == code
    assert caught.value.hint
    return caught.value


@pytest.mark.requirement("ai-namespaces-a")
def test_a_label_is_found_with_its_anchor_and_keys(files: Files) -> None:
    found = files.load(at=AT)
    assert found.issued == ISSUED
    assert found.find("bank", AT) == Allocation(
        label="bank", anchor="https://www.bank.example", keys=(THUMBPRINT,)
    )
    assert found.find("nobody", AT) is None


@pytest.mark.parametrize("state", ["safe-mode", "suspended", "revoked", "expired"])
def test_a_label_that_is_not_active_is_refused_with_its_state(files: Files, state: str) -> None:
    files.write(payload(shop={"state": state}))
    error = refused(files.load(), "shop", "aiip.unknown-authority")
    assert state.replace("-", " ") in error.message


def test_a_label_holds_to_the_end_of_its_last_day(files: Files) -> None:
    files.write(payload(shop={"expires": "2026-11-25"}))
    last = datetime.combine(date(2026, 11, 25), datetime.max.time(), UTC).timestamp()
    found = files.load()
    assert found.find("shop", last) is not None
    assert "2026-11-25" in refused(found, "shop", "aiip.unknown-authority", last + 1).message


def test_a_file_is_used_in_its_time_alone(files: Files) -> None:
    found = files.load()
    end = (ISSUED + timedelta(days=30)).timestamp()
    for at in (ISSUED.timestamp() - 60, end - 1):
        assert found.find("bank", at) is not None
    for at in (ISSUED.timestamp() - 61, end):
        error = refused(found, "bank", "aiip.unavailable", at)
        assert f"{ISSUED:%Y-%m-%d %H:%M}" in error.message
        with pytest.raises(SnapshotError) as caught:
            files.load(at=at)
        assert caught.value.code == "registry.expired-file"


def test_the_pinned_key_decides(files: Files) -> None:
    files.write(payload(), signer=SigningKey.generate("Ed25519", kid="registry-1"))
    with pytest.raises(SignatureError):
        files.load()


def test_a_signature_of_another_sort_is_refused(files: Files) -> None:
    files.write(payload(), typ="JWT")
    with pytest.raises(SignatureError) as caught:
        files.load()
    assert (caught.value.code, caught.value.hint) == ("sign.bad-header", "onym-ai-namespaces+jws")


def test_a_file_without_signature_is_refused(files: Files) -> None:
    for octets in (payload(), b"", b"\xff"):
        files.file.write_bytes(octets)
        with pytest.raises(SignatureError):
            files.load()


def test_a_signed_file_of_another_form_is_refused(files: Files) -> None:
    files.write(b'{"format": "something else"}')
    with pytest.raises(SnapshotError):
        files.load()


def test_the_key_may_be_a_set_or_come_as_data(files: Files) -> None:
    public = files.signer.public()
    assert files.load(key=public).find("bank", AT)
    assert files.load(key={"keys": [public]}).find("bank", AT)


@pytest.mark.parametrize(
    "text", [THUMBPRINT, "[]", "{", "{}", '{"keys": []}', '{"kty": "oct", "k": "AAAA"}', "\xff"]
)
def test_what_is_no_public_key_is_refused(files: Files, text: str) -> None:
    files.key.write_text(text, encoding="latin-1")
    with pytest.raises(SignatureError):
        files.load()


def test_a_private_key_is_no_key_to_pin(files: Files) -> None:
    files.key.write_text(files.signer.secret().reveal(), encoding="utf-8")
    with pytest.raises(SignatureError) as caught:
        files.load()
    assert (caught.value.code, "replace" in (caught.value.hint or "")) == ("sign.bad-key", True)


def test_files_that_are_not_there_are_named(files: Files, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.jwk"):
        files.load(key=tmp_path / "nothing.jwk")
    files.file.unlink()
    with pytest.raises(ConfigError, match=r"namespaces\.jws"):
        files.load()


def test_files_beyond_the_cap_are_not_read(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.registry.signed_namespaces._MAX_KEY", 16)
    with pytest.raises(SnapshotError) as caught:
        files.load()
    assert caught.value.code == "registry.snapshot-too-large"


def test_an_older_file_than_one_seen_is_refused(files: Files) -> None:
    files.write(payload(issued=ISSUED + timedelta(days=2)))
    files.load(state=files.state)
    files.load(state=files.state)
    assert files.state.stat().st_mode & 0o777 == 0o600
    assert files.state.read_text(encoding="ascii") == "2026-11-23T00:00:00Z\n"
    files.write(payload(issued=ISSUED + timedelta(days=1)))
    with pytest.raises(SnapshotError) as caught:
        files.load(state=files.state)
    assert (caught.value.code, caught.value.field) == ("registry.expired-file", "issued")
    files.write(payload(issued=ISSUED + timedelta(days=3)))
    files.load(state=files.state)
    assert files.state.read_text(encoding="ascii").count("\n") == 2


@pytest.mark.parametrize("octets", [b"nonsense", b"\xff", b"2026-13-45T00:00:00Z"])
def test_a_ruined_state_is_an_error(files: Files, octets: bytes) -> None:
    files.state.parent.mkdir()
    files.state.write_bytes(octets)
    with pytest.raises(ConfigError):
        files.load(state=files.state)


def test_a_file_that_is_replaced_is_read_again(files: Files) -> None:
    found = files.load(state=files.state)
    assert found.find("shop", AT) is None
    files.write(payload(issued=ISSUED + timedelta(minutes=10), shop={}))
    assert found.find("shop", AT) is not None
    # and one that cannot be used stops everything, rather than going on with the old
    files.write(payload(issued=ISSUED, shop={}) + b" ")
    refused(found, "bank", "aiip.unavailable")
    files.file.unlink()
    refused(found, "bank", "aiip.unavailable")
