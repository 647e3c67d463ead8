"""Keys in a token, by SoftHSM: what they sign holds, and they stay where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pkcs11
import pytest
from pkcs11.util.ec import encode_named_curve_parameters

from model_support import unavailable
from onym.errors import CredentialError, SignatureError
from onym.sign.keys import Signer
from onym.sign.keystore import PKCS11Signer
from onym.sign.receipts import sign_receipt
from onym.uri.secret import Secret
from sign_support import RECEIPT, authority, jwks, verified

PIN = Secret("1234")
TOKEN = "onym-test"
MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so")
#: DER of the PrintableString that names the curve (PKCS #11 3.0, 2.3.5)
EDWARDS = b"\x13\x0cedwards25519"


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """SoftHSM's library, with a token of our own that holds a key of each kind."""
    found = next((each for each in MODULES if Path(each).is_file()), None)
    program = shutil.which("softhsm2-util")
    if found is None or program is None:
        unavailable("SoftHSM is not installed: apt-get install softhsm2")
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    settings = folder / "softhsm2.conf"
    settings.write_text(f"directories.tokendir = {folder / 'tokens'}\nlog.level = ERROR\n", encoding="utf-8")
    before = os.environ.get("SOFTHSM2_CONF")
    # the library reads it when it is loaded, in this process
    os.environ["SOFTHSM2_CONF"] = str(settings)
    try:
        command = [program, "--init-token", "--free", "--label", TOKEN, "--pin", PIN.reveal()]
        subprocess.run([*command, "--so-pin", "12345678"], check=True, capture_output=True)
        _fill(pkcs11.lib(found))
        yield found
        pkcs11.unload(found)
    finally:
        if before is None:
            del os.environ["SOFTHSM2_CONF"]
        else:
            os.environ["SOFTHSM2_CONF"] = before


def _fill(library: Any) -> None:
    kind, names = pkcs11.KeyType, pkcs11.Attribute
    with library.get_token(token_label=TOKEN).open(user_pin=PIN.reveal(), rw=True) as session:
        for label, curve in (("ES256", "secp256r1"), ("ES384", "secp384r1")):
            parameters = {names.EC_PARAMS: encode_named_curve_parameters(curve)}
            pair = session.create_domain_parameters(kind.EC, parameters, local=True)
            pair.generate_keypair(store=True, label=label)
        edwards = session.create_domain_parameters(kind.EC_EDWARDS, {names.EC_PARAMS: EDWARDS}, local=True)
        make = pkcs11.Mechanism.EC_EDWARDS_KEY_PAIR_GEN
        edwards.generate_keypair(mechanism=make, store=True, label="Ed25519")
        session.generate_keypair(kind.RSA, 2048, store=True, label="PS256")
        # a pair whose halves do not belong together
        pair = session.create_domain_parameters(
            kind.EC, {names.EC_PARAMS: encode_named_curve_parameters("secp256r1")}, local=True
        )
        _, private = pair.generate_keypair(store=True, label="mixed-private")
        public, _ = pair.generate_keypair(store=True, label="mixed-public")
        public.copy({names.LABEL: "mixed"})
        private.copy({names.LABEL: "mixed"})


def opened(module: str, algorithm: str = "Ed25519", **more: Any) -> PKCS11Signer:
    where = {"token": TOKEN, "label": algorithm, "pin": PIN, **more}
    return PKCS11Signer.open(module, algorithm=algorithm, **where)


@pytest.mark.peers
@pytest.mark.parametrize("algorithm", ["Ed25519", "ES256", "ES384", "PS256"])
def test_a_receipt_signed_in_a_token_holds_by_its_published_key(module: str, algorithm: str) -> None:
    signer: Signer = opened(module, algorithm)
    token = sign_receipt(RECEIPT, signer)
    keys = authority(signer.public())
    assert keys.kids == {signer.kid}
    assert verified(token, keys, algorithms=(algorithm,)) == RECEIPT
    assert set(signer.public()) <= {"kty", "crv", "x", "y", "n", "e", "alg", "use", "kid"}
    assert b'"d"' not in jwks(signer.public())


@pytest.mark.peers
def test_two_signers_of_one_token_share_its_login(module: str) -> None:
    one, two = opened(module), opened(module)
    assert one.kid == two.kid
    assert one.sign(b"x") == two.sign(b"x")


@pytest.mark.peers
def test_threads_may_share_a_signer(module: str) -> None:
    signer = opened(module, "ES256")
    keys = authority(signer.public())
    key = keys.find(signer.kid, "ES256", 0)
    results: list[bool] = []

    def work(number: int) -> None:
        octets = str(number).encode()
        results.append(key.verify("ES256", octets, signer.sign(octets)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results == [True] * 20


@pytest.mark.peers
@pytest.mark.parametrize(
    "change",
    [{"token": "other"}, {"label": "other"}, {"label": "ES256"}],
)
def test_a_token_or_key_that_is_not_there_is_said(module: str, change: dict[str, Any]) -> None:
    with pytest.raises(CredentialError) as caught:
        opened(module, **change)
    assert caught.value.code == "credential.token"
    assert PIN.reveal() not in str(caught.value)


@pytest.mark.peers
def test_a_wrong_pin_is_said_and_not_shown(module: str) -> None:
    # a login is the process's, so a fresh one asks
    program = (
        "import sys; from onym.sign.keystore import PKCS11Signer; from onym.uri.secret import Secret\n"
        "try: PKCS11Signer.open(sys.argv[1], token=sys.argv[2], label='Ed25519', pin=Secret('9999'))\n"
        "except Exception as error: print(type(error).__name__, error.code, error)"
    )
    import sys

    done = subprocess.run(
        [sys.executable, "-c", program, module, TOKEN],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.startswith("CredentialError credential.token ")
    assert "9999" not in done.stdout


@pytest.mark.peers
def test_a_module_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(CredentialError) as caught:
        opened(str(tmp_path / "none.so"))
    assert caught.value.code == "credential.token"


@pytest.mark.peers
def test_a_pair_whose_halves_do_not_fit_is_refused(module: str) -> None:
    with pytest.raises(SignatureError) as caught:
        opened(module, "ES256", label="mixed")
    assert caught.value.code == "sign.bad-key"


def test_an_algorithm_that_is_not_for_receipts_is_refused() -> None:
    with pytest.raises(SignatureError) as caught:
        opened("none.so", "RS256")
    assert caught.value.code == "sign.bad-algorithm"


@pytest.mark.peers
def test_a_device_that_fails_is_said(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = opened(module)

    def gone(octets: bytes) -> bytes:
        raise pkcs11.DeviceRemoved

    monkeypatch.setattr(signer, "_sign", gone)
    with pytest.raises(SignatureError) as caught:
        signer.sign(b"x")
    assert caught.value.code == "sign.device-failed"
