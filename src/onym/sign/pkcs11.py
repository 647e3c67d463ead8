"""Signing keys in a PKCS #11 device (smart card, HSM, SoftHSM). The private key never leaves the device."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from onym.common.strict_json import encode_base64url
from onym.errors import CredentialError, MissingExtraError, SignatureError
from onym.sign.algorithms import ALGORITHMS, COORDINATE_SIZES, RECEIPT_ALGORITHMS
from onym.sign.keys import Key, import_native_key, thumbprint
from onym.uri.secret import Secret

#: octets that are signed once when a key is opened
_PROBE: Final = b"onym"


class PKCS11Signer:
    """A `Signer` whose private key is in a token; `open` finds it. Threads may share one."""

    def __init__(self, algorithm: str, jwk: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> None:
        self.algorithm = algorithm
        self.kid: str = thumbprint(jwk)
        self._jwk = dict(jwk)
        self._sign = sign
        self._guard = threading.Lock()
        # a label may name the wrong pair, or the module may not do what it should
        if not Key(ALGORITHMS[algorithm].kind, self.kid, algorithm, import_native_key(self._jwk)).verify(
            algorithm, _PROBE, self.sign(_PROBE)
        ):
            raise SignatureError(
                "what the token signs does not hold under its public key",
                code="sign.bad-key",
                hint="do both keys of the pair have the same label?",
            )

    @classmethod
    def open(
        cls, module: str, *, token: str, label: str, pin: Secret, algorithm: str = "Ed25519"
    ) -> PKCS11Signer:
        """The key pair of that `label` in the token of that label.

        `module` is the path of the device's PKCS #11 library. The session stays open as long as the process.
        Raises MissingExtraError without python-pkcs11, CredentialError where the token, the key or the PIN is
        not right, SignatureError where the key is not for `algorithm`, or what it signs does not hold.
        """
        if algorithm not in RECEIPT_ALGORITHMS:
            raise SignatureError(
                "this algorithm is not for receipts",
                code="sign.bad-algorithm",
                hint=f"one of {', '.join(RECEIPT_ALGORITHMS)}",
            )
        try:
            import pkcs11  # late: an extra, with a library in C
        except ImportError as error:  # pragma: no cover - the tests have it
            raise MissingExtraError(
                "keys in a token need python-pkcs11", command="pip install 'onym[pkcs11]'"
            ) from error
        try:
            session = _open_session(pkcs11, pkcs11.lib(module).get_token(token_label=token), pin)
            kind = pkcs11.KeyType[ALGORITHMS[algorithm].device_key_type]
            private = session.get_key(pkcs11.ObjectClass.PRIVATE_KEY, key_type=kind, label=label)
            public = session.get_key(pkcs11.ObjectClass.PUBLIC_KEY, key_type=kind, label=label)
            jwk = _to_public_jwk(pkcs11, public, algorithm)
        except (pkcs11.PKCS11Error, RuntimeError) as error:
            raise CredentialError(
                f"the token gives no such key ({type(error).__name__})",
                code="credential.token",
                hint="module, token, label, PIN and the key's kind have to fit: pkcs11-tool --list-objects",
            ) from None
        return cls(algorithm, jwk, _make_sign_function(pkcs11, private, algorithm))

    def sign(self, octets: bytes) -> bytes:
        """The token's signature over these octets. Raises SignatureError where the device fails."""
        import pkcs11

        try:
            with self._guard:  # a session does one thing at a time
                return self._sign(octets)
        except pkcs11.PKCS11Error as error:
            raise SignatureError(
                f"the token did not sign ({type(error).__name__})", code="sign.device-failed"
            ) from None

    def public(self) -> dict[str, Any]:
        """The public JWK, to be published."""
        return {**self._jwk, "alg": self.algorithm, "use": "sig", "kid": self.kid}


def _open_session(pkcs11: Any, token: Any, pin: Secret) -> Any:
    try:
        return token.open(user_pin=pin.reveal())
    except pkcs11.UserAlreadyLoggedIn:  # by another signer of this process: the login is the process's
        return token.open()


def _make_sign_function(pkcs11: Any, private: Any, algorithm: str) -> Callable[[bytes], bytes]:
    """How the device signs; it hashes for RSA and Ed25519, and not always for ECDSA."""
    row = ALGORITHMS[algorithm]
    mechanism = pkcs11.Mechanism[row.device_mechanism]
    options = {}
    if row.kty == "RSA":
        digest = pkcs11.Mechanism[row.hash_name.upper()]
        mask = pkcs11.MGF[row.hash_name.upper()]
        options["mechanism_param"] = (digest, mask, hashlib.new(row.hash_name).digest_size)

    def sign(octets: bytes) -> bytes:
        if row.kty == "EC":
            octets = hashlib.new(row.hash_name, octets).digest()
        return bytes(private.sign(octets, mechanism=mechanism, **options))

    return sign


def _to_public_jwk(pkcs11: Any, public: Any, algorithm: str) -> dict[str, Any]:
    """The public part as a JWK. Points are at the end of their octets, wrapped in DER or not."""
    names, curve = pkcs11.Attribute, ALGORITHMS[algorithm].curve
    if curve is None:
        n, e = (bytes(public[name]).lstrip(b"\0") for name in (names.MODULUS, names.PUBLIC_EXPONENT))
        return {"kty": "RSA", "n": encode_base64url(n), "e": encode_base64url(e)}
    point = bytes(public[names.EC_POINT])
    if curve == "Ed25519":
        return {"kty": "OKP", "crv": curve, "x": encode_base64url(point[-32:])}
    size = COORDINATE_SIZES[curve]
    x, y = point[-2 * size : -size], point[-size:]
    return {"kty": "EC", "crv": curve, "x": encode_base64url(x), "y": encode_base64url(y)}
